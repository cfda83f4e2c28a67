#include "sim/price/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/price/captured.h"
#include "sim/price/cost_model.h"
#include "sim/price/known.h"
#include "sim/price/ladder.h"

/* ---- captured steps ---- */

/* Of those that are captured or of those that are not: the one used longest ago. */
static uint32_t oldest(const struct captured *captured, bool is_captured) {
    uint32_t i = 0;
    while (i < captured->n_known &&
           captured->steps[captured->order[i]].is_captured != is_captured) {
        i++;
    }
    ASSERT(i < captured->n_known);
    return captured->order[i];
}

static bool is_at(const struct captured *captured, uint32_t place, uint64_t key) {
    return place < captured->n_known && captured->steps[place].key == key;
}

/* The place of a key that is not known yet. */
static uint32_t take_place(struct captured *captured) {
    if (captured->n_known == MAX_KNOWN_STEPS) {
        return oldest(captured, false);
    }
    captured->order[captured->n_known] = (uint8_t)captured->n_known;
    return captured->n_known++;
}

/* Moves it to the end of the order. */
static void use_place(struct captured *captured, uint32_t place) {
    uint8_t *end = captured->order + captured->n_known - 1;
    if (*end != place) {
        uint8_t *at = memchr(captured->order, (int)place, captured->n_known);
        memmove(at, at + 1, (size_t)(end - at));
        *end = (uint8_t)place;
    }
}

uint32_t captured_find(struct captured *captured, uint64_t key, bool *is_new) {
    uint8_t *last = &captured->last[key % MAX_KNOWN_STEPS];
    uint32_t place = is_at(captured, *last, key) ? *last : 0;
    while (place < captured->n_known && captured->steps[place].key != key) {
        place++;
    }
    *is_new = place == captured->n_known;
    if (*is_new) {
        place = take_place(captured);
        captured->steps[place].key = key;
    }
    use_place(captured, place);
    *last = (uint8_t)place;
    return place;
}

uint32_t captured_keep(struct captured *captured, uint32_t place) {
    uint32_t dropped = MAX_KNOWN_STEPS;
    if (captured->n_captured == MAX_CAPTURED) {
        dropped = oldest(captured, true);
        captured_drop(captured, dropped);
    }
    captured->steps[place].is_captured = true;
    captured->n_captured++;
    return dropped;
}

void captured_drop(struct captured *captured, uint32_t place) {
    ASSERT(captured->steps[place].is_captured);
    captured->steps[place].is_captured = false;
    captured->n_captured--;
}

bool captured_issues(struct captured *captured, uint64_t key) {
    bool is_new;
    const uint32_t place = captured_find(captured, key, &is_new);
    const bool issues = !captured->steps[place].is_captured;
    if (issues && !is_new) {
        (void)captured_keep(captured, place);
    }
    return issues;
}

/* Of the spans that attend to themselves, and of the others; and how many decide nothing. */
struct longest {
    int64_t full_queries, block_queries, logit_rows, candidates, pages, n_commit;
};

static struct longest longest_of(const struct step_shape *shape, uint32_t page_rows) {
    struct longest most = {0};
    int64_t n_pages = 0;
    for (uint32_t i = 0; shape->spans != NULL && i < shape->n_spans; i++) {
        const struct span *span = shape->spans[i];
        const bool is_full = span->exact ? span->phase == PHASE_PREFILL : span->context == 0;
        int64_t *queries = is_full ? &most.full_queries : &most.block_queries;
        *queries = num_larger(*queries, span->queries);
        most.logit_rows = num_larger(most.logit_rows, span->logit_rows);
        most.candidates = num_larger(most.candidates, span->select_rows);
        most.n_commit += span->phase == PHASE_COMMIT;
        n_pages =
            page_rows > 0
                ? num_larger(n_pages, ceil_div((int64_t)span->context + span->queries, page_rows))
                : 0;
    }
    for (most.pages = 1; most.pages < n_pages;) {
        most.pages *= 2;
    }
    return most;
}

/* Of the sums that launches follow from. */
static uint64_t sums_key(const int64_t sums[SYM_COUNT]) {
    static const enum symbol attended[] = {SYM_CONTEXT_ROWS, SYM_PREFILL_K, SYM_PREFILL_QK,
                                           SYM_BLOCK_K,      SYM_BLOCK_QK,  SYM_KEPT_K,
                                           SYM_KEPT_QK};
    int64_t sym[SYM_COUNT];
    memcpy(sym, sums, sizeof sym);
    for (size_t i = 0; i < sizeof attended / sizeof *attended; i++) {
        sym[attended[i]] = 0;
    }
    return captured_hash(sym, sizeof sym);
}

static uint64_t spans_key(uint64_t key, const struct step_shape *shape, uint32_t page_rows) {
    const struct longest most = longest_of(shape, page_rows);
    const int64_t words[] = {most.full_queries, most.block_queries, most.logit_rows,
                             most.candidates,   most.pages,         most.n_commit};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        key = captured_hash_word(key, (uint64_t)words[i]);
    }
    return key;
}

uint64_t captured_key(const struct step_shape *shape, uint32_t page_rows) {
    return spans_key(sums_key(shape->sym), shape, page_rows);
}

/* ---- the cost model ---- */

const char *const op_bound_names[] = {"compute", "bandwidth", "launch", "latency", "link"};
const char *const price_match_words[PRICE_MATCH_COUNT] = {"exact", "interpolated", "extrapolated",
                                                          "roofline"};

/* ---- a card's clock under its power ---- */

/* Joules of an operation in fp8 over those of one in bf16: times of LLaDA-8B's products of 4096
 * rows in both, with scales of squares (0.62 to 0.64; of rows 0.52 to 0.55), at the limit of 700 W
 * (one H200, whole steps, 2026-11-30). */
static const double fp8_share = 0.63;
static const double joules_a_pj = 1e-12, ns_a_ms = 1e6, ns_a_s = 1e9;

double power_flops(double flops, double fp8_flops) {
    return flops - fp8_flops + fp8_flops * fp8_share;
}

double power_flops_j(const struct power *power, double flops) {
    return power->flop_pj * flops * joules_a_pj;
}

double power_bytes_j(const struct power *power, double bytes) {
    return power->byte_pj * bytes * joules_a_pj;
}

static double longer_ns(const struct power_step *step, double slowdown) {
    return step->compute_ns * (slowdown - 1);
}

static double step_ns(const struct power_step *step, double slowdown) {
    return step->ns + longer_ns(step, slowdown);
}

/* Joules that fall as operations' do: compute-bound work has as many cycles at any clock. */
static double cycles_j(const struct power *power, const struct power_step *step) {
    return step->flops_j + power->active_w * step->compute_ns / ns_a_s;
}

/* Of as many watts a cycle as at the highest clock. */
static double busy_j(const struct power *power, const struct power_step *step, double slowdown) {
    return power->busy_w * (step->busy_ns + longer_ns(step, slowdown)) / ns_a_s / slowdown;
}

static double work_joules(const struct power *power, const struct power_step *step,
                          double at_highest_j, double slowdown) {
    return (at_highest_j + busy_j(power, step, slowdown)) * pow(slowdown, -power->exponent) +
           step->bytes_j;
}

double power_work_joules(const struct power *power, const struct power_step *step,
                         double slowdown) {
    return work_joules(power, step, cycles_j(power, step), slowdown);
}

/* Power falls as the slowdown grows; Newton's steps in logarithms, in which it is nearly straight.
 */
double power_settled(const struct power *power, const struct power_step *step) {
    enum { MOST_STEPS = 20 };
    static const double most = 8;
    const double spare_w = power->limit_w - power->idle_w, cycles = cycles_j(power, step);
    double log_x = 0;
    if (cycles + busy_j(power, step, 1) + step->bytes_j <= spare_w * step->ns / ns_a_s) {
        return 1;
    }
    for (int i = 0; i < MOST_STEPS; i++) {
        const double x = exp(log_x), ns = step_ns(step, x), stretched = step->compute_ns * x;
        const double volts = exp(-power->exponent * log_x);
        const double clocked = (cycles + busy_j(power, step, x)) * volts,
                     joules = clocked + step->bytes_j;
        /* Work that is not stretched draws fewer watts for as long. */
        const double fixed_j =
            power->busy_w * (step->busy_ns - step->compute_ns) / ns_a_s / x * volts;
        const double falls = (power->exponent * clocked + fixed_j) / joules;
        const double move = log(joules * ns_a_s / (spare_w * ns)) / (falls + stretched / ns);
        log_x = fmin(fmax(log_x + move, 0), log(most));
        if (fabs(move) < 1e-12) {
            break;
        }
    }
    return exp(log_x);
}

/* Of each lag, 1/ns. */
static double lag_rate(const struct power *power) {
    return POWER_LAGS / (power->lag_ms * ns_a_ms);
}

/* Three lags with a constant input `to`: the states after `ns`, and the last lag's mean until then.
 */
static inline double follow(double rate, double to, double ns, const double was[POWER_LAGS],
                            double after[POWER_LAGS]) {
    const double a = rate * ns, fades = exp(-a);
    const double d[POWER_LAGS] = {was[0] - to, was[1] - to, was[2] - to};
    const double now[POWER_LAGS] = {fades * d[0], fades * (d[1] + a * d[0]),
                                    fades * (d[2] + a * (d[1] + a / 2 * d[0]))};
    const double last = was[POWER_LAGS - 1];
    double fallen = 0;
    for (int i = 0; i < POWER_LAGS; i++) {
        fallen += d[i] - now[i];
        after[i] = to + now[i];
    }
    return a > 0 ? to + fallen / a : last;
}

struct power_course power_course_of(const struct power *power, const struct power_step *step,
                                    double settled) {
    return (struct power_course){.power = power,
                                 .step = *step,
                                 .settled = settled,
                                 .rate = lag_rate(power),
                                 .cycles_j = cycles_j(power, step)};
}

/* How long the step takes depends on the clock and the clock on how long it takes: once with the
 * clock as it is, then with its mean over that time. */
struct power_spent power_course_run(const struct power_course *course, struct power_state *state) {
    const struct power *power = course->power;
    const struct power_step *step = &course->step;
    double ns = step_ns(step, 1 + state->behind[POWER_LAGS - 1]), trial[POWER_LAGS];
    double slowdown = 1 + follow(course->rate, course->settled, ns, state->behind, trial);
    ns = step_ns(step, slowdown);
    slowdown = 1 + follow(course->rate, course->settled, ns, state->behind, state->behind);
    ns = step_ns(step, slowdown);
    return (struct power_spent){.ns = ns,
                                .slowdown = slowdown,
                                .work_joules =
                                    work_joules(power, step, course->cycles_j, slowdown)};
}

struct power_spent power_run(const struct power *power, const struct power_step *step,
                             struct power_state *state) {
    const struct power_course course = power_course_of(power, step, power_settled(power, step) - 1);
    return power_course_run(&course, state);
}

void power_rest(const struct power *power, double ns, struct power_state *state) {
    (void)follow(lag_rate(power), 0, ns, state->behind, state->behind);
}

double cost_wide_flops(const struct cost_model *cost, double flops, double fp8_flops) {
    const struct gpu *gpu = cost->pricing.gpu;
    return fp8_flops > 0
               ? flops - fp8_flops + fp8_flops * gpu_roof_flops(gpu) / gpu_roof_fp8_flops(gpu)
               : flops;
}

static void known_add(const struct cost_model *cost, struct known_price *known,
                      const struct op_price *price, const struct lookup *lookup) {
    known->ns += price->ns;
    if (cost->power != NULL) {
        known->compute_ns += price->compute_ns;
        known->flops_j += power_flops_j(cost->power, power_flops(price->flops, price->fp8_flops));
        known->bytes_j += power_bytes_j(cost->power, price->bytes);
    }
    known->lookups[price->match]++;
    known->match_ns[price->match] += (float)price->ns;
    known->behind_ns += lookup->is_behind && price->match != PRICE_ROOFLINE ? (float)price->ns : 0;
    known->link_ns += lookup_is_assumed(lookup) ? (float)price->ns : 0;
}

/* The sum over the operators that depend on `symbol` alone, when it has this value. */
static struct known_price price_symbol(const struct cost_model *cost, enum symbol symbol,
                                       int64_t value, struct chunk_rows chunks) {
    struct known_price known = {.chunks = chunks};
    struct step_shape shape = {0};
    shape.sym[symbol] = value;
    for (uint32_t i = 0; i < cost->pricing.graph->n_ops; i++) {
        const struct op *op = &cost->pricing.graph->ops[i];
        if (!op_is_attention(op) && op->rows == symbol && !cost->lookups[i].is_absent) {
            struct op_price price;
            ladder_price(&cost->lookups[i], &shape, chunks, &price);
            known_add(cost, &known, &price, &cost->lookups[i]);
        }
    }
    return known;
}

static enum provenance_kind kind_of_price(const struct lookup *lookup,
                                          const struct op_price *price) {
    return lookup_is_assumed(lookup)        ? PROVENANCE_ASSUMED
           : price->match == PRICE_ROOFLINE ? PROVENANCE_ROOFLINE
                                            : lookup->kind;
}

void cost_explain_one(const struct cost_model *cost, uint32_t op, const struct step_shape *shape,
                      struct chunk_rows chunks, struct op_price *out) {
    const struct lookup *lookup = &cost->lookups[op];
    ladder_price(lookup, shape, chunks, out);
    const double waits_ns = ladder_wait_ns(lookup, shape);
    out->kind = waits_ns > out->ns ? lookup->op->wait_kind : kind_of_price(lookup, out);
    out->ns += waits_ns;
}

void cost_explain(const struct cost_model *cost, const struct step_shape *shape,
                  struct chunk_rows chunks, struct op_price out[GRAPH_MAX_OPS]) {
    for (uint32_t i = 0; i < cost->pricing.graph->n_ops; i++) {
        cost_explain_one(cost, i, shape, chunks, &out[i]);
    }
}

void cost_work(const struct cost_model *cost, const int64_t sym[SYM_COUNT], double n_steps,
               double *flops, double *bytes) {
    const struct graph *graph = cost->pricing.graph;
    *flops = *bytes = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        struct op_work work;
        lookup_work(&cost->lookups[i], sym, n_steps, &work);
        double repeat = graph->segments[graph->ops[i].segment].repeat;
        *flops += repeat * cost_wide_flops(cost, work.flops, work.fp8_flops);
        *bytes += repeat * op_work_bytes(&work);
    }
}

/* Requests of one kind in a loop of the host's. */
static void add_loop(const struct runtime *r, const struct host_terms *terms, double requests,
                     struct step_price *out) {
    const double device_ns = requests * terms->request_launches * r->small_kernel_ns;
    const double of_host_ns = requests * terms->request_ns * r->host_factor;
    out->loop_device_ns += device_ns;
    out->loop_host_ns += of_host_ns;
    out->loop_ns += fmax(device_ns, of_host_ns);
}

/* The host's time for the step, of it the loop over requests, and the extra time of the step while
 * it is issued one by one, into `out`; the launches beyond the graph's operators into `launches`.
 */
static void add_host(const struct cost_model *cost, const struct step_shape *shape,
                     double *launches, struct step_price *out) {
    const struct runtime *r = cost->pricing.runtime;
    int64_t n[HOST_KIND_COUNT];
    n[HOST_REFRESH] = shape->sym[SYM_REFRESH_N];
    n[HOST_SELECT] = shape->sym[SYM_SELECT_N];
    n[HOST_REUSE] = shape->sym[SYM_REQUESTS] - n[HOST_REFRESH] - n[HOST_SELECT];
    double most_ns = 0, most_launches = 0, requests_ns = 0;
    *launches = 0;
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        if (n[kind] == 0) {
            continue;
        }
        const struct host_terms *terms = &cost->host[kind];
        double requests = (double)n[kind];
        most_ns = terms->step_ns > most_ns ? terms->step_ns : most_ns;
        most_launches = terms->launches > most_launches ? terms->launches : most_launches;
        out->issued_ns = fmax(out->issued_ns, r->issued_ns[kind]);
        requests_ns += requests * terms->request_ns;
        *launches += requests * terms->request_launches;
        if ((enum host_mode)r->host_mode == HOST_LOOPS) {
            add_loop(r, terms, requests, out);
        }
    }
    *launches += most_launches;
    out->host_ns = r->host_factor * (most_ns + requests_ns);
}

/* Time of the host's look at every request's confidences after a step, where it has one. */
static double look_ns(const struct runtime *r, const struct step_shape *shape) {
    return (enum host_mode)r->host_mode == HOST_BY_LAYERS
               ? r->host_factor * r->host_look_ns * (double)shape->sym[SYM_REQUESTS]
               : 0;
}

/* The host's time for asking the scheduler, before anything is launched. */
static double visit_ns(const struct runtime *r, const struct step_shape *shape) {
    double cached_rows = r->shares_prefixes ? (double)shape->sym[SYM_CONTEXT_ROWS] : 0;
    return r->host_factor *
           (r->host_visit_ns + r->host_visit_request_ns * (double)shape->sym[SYM_REQUESTS] +
            r->host_visit_cached_ns * cached_rows);
}

/* The chunks as far as they matter at this value of a symbol: numbers of rows that hold no loop
 * back are 0, so that equal prices are known by equal chunks. */
static struct chunk_rows effective(const struct cost_model *cost, enum symbol symbol, int64_t value,
                                   struct chunk_rows asked) {
    struct chunk_rows chunks = {{0}};
    for (uint32_t i = 0; i < cost->pricing.graph->n_loops; i++) {
        const struct chunk_loop *loop = &cost->pricing.graph->loops[i];
        if (loop->rows == symbol && asked.of[loop->kind] < value) {
            chunks.of[loop->kind] = asked.of[loop->kind];
        }
    }
    return chunks;
}

/* Adds up the operators, of which each symbol's are remembered. */
static void sum_operators(struct cost_model *cost, const struct step_shape *shape,
                          struct chunk_rows asked, struct step_price *out) {
    double device = 0, behind_ns = 0, link_ns = 0, match_ns[PRICE_MATCH_COUNT] = {0};
    uint32_t lookups[PRICE_MATCH_COUNT] = {0};
    for (uint32_t i = 0; i < cost->n_used; i++) {
        enum symbol symbol = cost->used[i];
        int64_t value = shape->sym[symbol];
        if (value == 0) {
            continue;
        }
        struct chunk_rows chunks = effective(cost, symbol, value, asked);
        struct known_price computed, *known = &computed;
        if (value < TABLE_VALUES) {
            known = &cost->known[symbol][value];
            if (known->ns == 0 || memcmp(&known->chunks, &chunks, sizeof chunks) != 0) {
                *known = price_symbol(cost, symbol, value, chunks);
            }
        } else {
            computed = price_symbol(cost, symbol, value, chunks);
        }
        device += known->ns;
        out->compute_ns += known->compute_ns;
        out->flops_j += known->flops_j;
        out->bytes_j += known->bytes_j;
        out->head_ns += symbol == SYM_LOGIT_ROWS ? known->ns : 0;
        for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
            lookups[match] += known->lookups[match];
            match_ns[match] += (double)known->match_ns[match];
        }
        behind_ns += (double)known->behind_ns;
        link_ns += (double)known->link_ns;
    }
    out->device_ns = device;
    memcpy(out->lookups, lookups, sizeof lookups);
    out->time = (struct price_time){.behind_ns = behind_ns, .link_ns = link_ns};
    memcpy(out->time.match_ns, match_ns, sizeof match_ns);
}

/* The price of the i-th attention operator, which has spans; `fresh` is room for it. */
static const struct op_price *price_spans(const struct cost_model *cost, uint32_t i,
                                          const struct step_shape *shape, struct chunk_rows asked,
                                          struct op_price *fresh) {
    const struct lookup *lookup = &cost->lookups[cost->attention[i]];
    const struct op *op = lookup->op;
    if (cost->spans == NULL) {
        ladder_price(lookup, shape, asked, fresh);
        return fresh;
    }
    const int64_t *sym = shape->sym, rows = sym[op->rows];
    const int64_t chunk =
        op->loop < 0 ? rows : loop_chunk_rows(cost->pricing.graph, op->loop, shape, asked);
    const bool is_chunked = chunk < rows;
    const int64_t of[SPAN_SUMS] = {sym[op->span_n],  sym[op->span_q],        sym[op->span_k],
                                   sym[op->span_qk], is_chunked ? chunk : 0, is_chunked ? rows : 0};
    const size_t place = captured_hash(of, sizeof of) & (KNOWN_SPANS - 1);
    struct known_spans *known = &cost->spans[(size_t)i * KNOWN_SPANS + place];
    if (memcmp(known->of, of, sizeof of) != 0) {
        memcpy(known->of, of, sizeof of);
        ladder_price(lookup, shape, asked, &known->price);
    }
    return &known->price;
}

static void add_attention(const struct cost_model *cost, const struct step_shape *shape,
                          struct chunk_rows asked, struct step_price *out) {
    for (uint32_t i = 0; i < cost->n_attention; i++) {
        const struct lookup *lookup = &cost->lookups[cost->attention[i]];
        struct op_price fresh;
        if (shape->sym[lookup->op->span_n] == 0) {
            continue;
        }
        const struct op_price *price = price_spans(cost, i, shape, asked, &fresh);
        out->device_ns += price->ns;
        if (cost->power != NULL) {
            out->compute_ns += price->compute_ns;
            out->flops_j += power_flops_j(cost->power, power_flops(price->flops, price->fp8_flops));
            out->bytes_j += power_bytes_j(cost->power, price->bytes);
        }
        out->lookups[price->match] += price->executions > 0;
        out->time.match_ns[price->match] += price->ns;
        if (lookup->is_behind && price->match != PRICE_ROOFLINE) {
            out->time.behind_ns += price->ns;
        }
    }
}

/* ---- from the operators to the step ---- */

/* A step on its way from the sum of its operators to its price. */
struct stepped {
    const struct cost_model *cost;
    const struct step_shape *shape;
    double launches; /* that the runtime makes, the operators' among them */
    double slowdown; /* of the clock */
    struct step_price *price;
};

static void add_launches(struct stepped *s) {
    const double beyond = s->launches - s->cost->n_executions;
    const double launches = beyond > 0 ? beyond : 0;
    s->price->device_ns += launches * s->cost->pricing.runtime->small_kernel_ns;
    s->price->busy_ns = s->cost->power != NULL ? s->price->device_ns : 0;
}

/* A step in whose middle the host has a word is never captured. */
static void wait_for_host(struct stepped *s) {
    if (s->cost->waiting != NULL) {
        const double waits_ns = ladder_wait_ns(s->cost->waiting, s->shape);
        s->price->device_ns += waits_ns > s->price->issued_ns ? waits_ns : s->price->issued_ns;
        s->price->issued_ns = 0;
    }
}

/* How host and device go together: a step's wall time, where the device takes that long, its head
 * of it that long, and the host without looking. */
static double joined_ns(const struct cost_model *cost, const struct step_shape *shape,
                        const struct step_price *price, double device_ns, double head_ns,
                        double host_ns) {
    const struct runtime *r = cost->pricing.runtime;
    const int64_t *sym = shape->sym;
    const bool reuses = sym[SYM_REFRESH_N] == 0 && sym[SYM_SELECT_N] == 0;
    const double launching_ns = host_ns - price->plan_ns, trunk_ns = device_ns - head_ns;
    const uint32_t layers = cost->pricing.graph->model->layers;
    const double sync_ns = reuses ? r->host_sync_ns[HOST_REUSE] + r->host_sync_layer_ns * layers
                                  : r->host_sync_ns[HOST_REFRESH];
    const double synced_ns = device_ns + r->host_factor * sync_ns;
    switch ((enum host_mode)r->host_mode) {
    case HOST_SERIAL:
        return device_ns + launching_ns;
    case HOST_OVERLAPS:
        return synced_ns > launching_ns ? synced_ns : launching_ns;
    case HOST_BY_LAYERS:
        return (trunk_ns > launching_ns ? trunk_ns : launching_ns) + head_ns + look_ns(r, shape);
    case HOST_LOOPS:
        break;
    }
    return fmax(device_ns - price->loop_device_ns, launching_ns - price->loop_host_ns) +
           price->loop_ns;
}

static void join_host(struct stepped *s) {
    struct step_price *price = s->price;
    price->wall_ns =
        joined_ns(s->cost, s->shape, price, price->device_ns, price->head_ns, price->host_ns);
}

static void add_visit(struct stepped *s) {
    s->price->wall_ns += s->price->visit_ns + s->price->plan_ns;
}

static void add_plans(struct stepped *s) {
    s->price->host_ns += s->price->plan_ns;
    s->price->wall_ns += s->price->plan_ns;
}

static void issue(struct stepped *s) {
    s->price->device_ns += s->price->issued_ns;
    s->price->wall_ns += s->price->issued_ns;
}

/* How many times as long the device takes where compute-bound time grows. */
static double times_longer(const struct step_price *price, double slowdown) {
    return 1 + price->compute_ns * (slowdown - 1) / price->device_ns;
}

/* Host and device are combined anew. */
static void slow(struct stepped *s) {
    struct step_price *price = s->price;
    const double longer = times_longer(price, s->slowdown);
    const double looking_ns = look_ns(s->cost->pricing.runtime, s->shape);
    price->device_ns *= longer;
    price->head_ns *= longer;
    price->host_ns -= looking_ns;
    join_host(s);
    add_visit(s);
    price->host_ns += looking_ns;
}

const struct step_term step_terms[STEP_TERMS] = {
    [TERM_LAUNCHES] = {"launches beyond the graph", "each a short kernel", add_launches},
    [TERM_WAITS] = {"waits for the host", "its wait, or what issuing one by one takes if more",
                    wait_for_host},
    [TERM_HOST] = {"host", "as the runtime's host goes together with the device", join_host},
    [TERM_VISIT] = {"visit", "the scheduler is asked", add_visit},
    [TERM_PLANS] = {"plans", "the host looks for chunks and a plan", add_plans},
    [TERM_ISSUED] = {"issued one by one", "a step that is no captured graph yet", issue},
    [TERM_CLOCK] = {"clock", "as it settles under the card's power", slow},
};

void cost_price(struct cost_model *cost, const struct step_shape *shape, struct chunk_rows asked,
                struct step_price *out) {
    const struct runtime *runtime = cost->pricing.runtime;
    struct stepped stepped = {.cost = cost, .shape = shape, .price = out};
    struct known_steps *known = cost->steps;
    const uint64_t key = known != NULL ? known_step_key(shape->sym, &asked) : 0;
    const size_t place = known != NULL ? known_step_place(known, key) : 0;
    if (known != NULL && known->keys[place] == key) {
        *out = known->of[place].price;
        return;
    }
    memset(out, 0, sizeof *out);
    sum_operators(cost, shape, asked, out);
    add_attention(cost, shape, asked, out);
    add_host(cost, shape, &stepped.launches, out);
    out->visit_ns = visit_ns(runtime, shape);
    for (int term = 0; term < TERM_PLANS; term++) {
        step_terms[term].apply(&stepped);
    }
    out->host_ns += look_ns(runtime, shape);
    out->launch_key = cost->knows_issued ? sums_key(shape->sym) : 0;
    if (known != NULL) {
        const bool is_seen = (known->keys[place] | KNOWN_PRICED) == key;
        known->keys[place] = is_seen ? key : key & ~KNOWN_PRICED;
        if (is_seen) {
            known->of[place].price = *out;
        }
    }
}

void cost_add_plans(const struct cost_model *cost, double n_plans, struct step_price *price) {
    const struct runtime *r = cost->pricing.runtime;
    struct stepped stepped = {.cost = cost, .price = price};
    price->plan_ns = r->host_factor * r->host_plan_ns * n_plans;
    step_terms[TERM_PLANS].apply(&stepped);
}

bool cost_issue(const struct cost_model *cost, const struct step_shape *shape, uint32_t page_rows,
                struct captured *captured, const struct step_price *price,
                struct step_price *issued) {
    struct stepped stepped = {.cost = cost, .shape = shape, .price = issued};
    const bool issues = captured != NULL &&
                        captured_issues(captured, spans_key(price->launch_key, shape, page_rows));
    if (issues) {
        *issued = *price;
        step_terms[TERM_ISSUED].apply(&stepped);
    }
    return issues;
}

bool cost_knows_issued(const struct cost_model *cost) {
    return cost->knows_issued;
}

const struct power *cost_power(const struct cost_model *cost) {
    return cost->power;
}

struct power_step cost_power_step(const struct step_price *price, double wall_ns) {
    return (struct power_step){.ns = wall_ns,
                               .busy_ns = price->busy_ns,
                               .compute_ns = price->compute_ns,
                               .flops_j = price->flops_j,
                               .bytes_j = price->bytes_j};
}

void cost_slow(const struct cost_model *cost, const struct step_shape *shape, double slowdown,
               struct step_price *price) {
    struct stepped stepped = {.cost = cost, .shape = shape, .slowdown = slowdown, .price = price};
    step_terms[TERM_CLOCK].apply(&stepped);
}

void cost_course_begin(const struct cost_model *cost, const struct step_shape *shape, uint32_t n,
                       const struct step_price *highest, struct cost_course *course) {
    const bool waits_once = n > 1 && cost->pricing.runtime->host_mode == HOST_SERIAL;
    const double each_ns = highest->plan_ns;
    const double once_ns = (highest->host_ns - each_ns + highest->visit_ns) / n;
    const double wall_ns = waits_once ? highest->device_ns + each_ns + once_ns : highest->wall_ns;
    const struct power_step step = cost_power_step(highest, wall_ns);
    *course = (struct cost_course){
        .cost = cost,
        .shape = shape,
        .highest = highest,
        .waits_once = waits_once,
        .each_ns = each_ns,
        .once_ns = once_ns,
        .host_ns = highest->host_ns - look_ns(cost->pricing.runtime, shape),
        .power =
            power_course_of(cost->power, &step, known_settled(cost->settled, cost->power, &step)),
    };
}

struct cost_ran cost_course_run(const struct cost_course *course, struct power_state *clock) {
    const struct step_price *highest = course->highest;
    const struct power_spent spent = power_course_run(&course->power, clock);
    const double longer = times_longer(highest, spent.slowdown);
    const double device_ns = highest->device_ns * longer;
    if (course->waits_once) {
        return (struct cost_ran){device_ns, device_ns + course->each_ns + course->once_ns,
                                 spent.work_joules};
    }
    const double joined = joined_ns(course->cost, course->shape, highest, device_ns,
                                    highest->head_ns * longer, course->host_ns);
    return (struct cost_ran){device_ns, joined + (highest->visit_ns + highest->plan_ns),
                             spent.work_joules};
}

double cost_settle(const struct cost_model *cost, const struct step_shape *shape,
                   struct step_price *price) {
    const struct power *power = cost_power(cost);
    if (power == NULL) {
        return 1;
    }
    const struct power_step once = cost_power_step(price, price->wall_ns);
    const double slowdown = power_settled(power, &once);
    cost_slow(cost, shape, slowdown, price);
    return slowdown;
}

void cost_show(const struct cost_model *cost, uint32_t op, const struct step_shape *shape,
               struct chunk_rows chunks, ladder_fn *each, void *state) {
    ladder_show(&cost->lookups[op], shape, chunks, each, state);
}

/* A step's price until the host is in it, and from then on. */
static double so_far(const struct step_price *price) {
    return price->wall_ns > 0 ? price->wall_ns : price->device_ns;
}

void cost_show_step(struct cost_model *cost, const struct step_shape *shape,
                    struct chunk_rows chunks, double plan_ns, step_fn *each, void *state) {
    struct step_price price = {0};
    struct stepped stepped = {.cost = cost, .shape = shape, .price = &price};
    sum_operators(cost, shape, chunks, &price);
    add_attention(cost, shape, chunks, &price);
    add_host(cost, shape, &stepped.launches, &price);
    price.visit_ns = visit_ns(cost->pricing.runtime, shape);
    for (int term = 0; term < STEP_TERMS; term++) {
        const double before_ns = so_far(&price);
        price.host_ns += term == TERM_PLANS ? look_ns(cost->pricing.runtime, shape) : 0;
        price.plan_ns = term == TERM_PLANS ? plan_ns : price.plan_ns;
        if (term == TERM_CLOCK) {
            (void)cost_settle(cost, shape, &price);
        } else if (term != TERM_ISSUED) { /* what is shown is a captured graph */
            step_terms[term].apply(&stepped);
        }
        each(state, (enum step_term_id)term, before_ns, so_far(&price));
    }
}
