#include "sim/cost/ladder.h"

#include <math.h>
#include <string.h>

#include "sim/cost/link.h"
#include "sim/cost/roofline.h"
#include "sim/model/ranks.h"

bool lookup_is_assumed(const struct lookup *l) {
    return l->type->family == FAMILY_EXCHANGE && !l->has_own;
}

/* The bound that the price's work comes closest to; price_exchange says that of exchanges. */
static void settle(const struct lookup *l, struct op_price *price) {
    double compute_ns = price->flops / l->peaks.flops * 1e9;
    double memory_ns = price->bytes / l->peaks.bandwidth * 1e9;
    double larger = compute_ns > memory_ns ? compute_ns : memory_ns;
    double moving_ns = price->bytes / l->reached_bandwidth * 1e9;
    price->compute_ns = stretched_ns(price->ns, moving_ns);
    if (l->type->family == FAMILY_EXCHANGE) {
        return;
    }
    /* A kernel that runs at under a tenth of either roof is bound by its launch. */
    price->bound = larger < 0.1 * price->ns ? BOUND_LAUNCH
                   : compute_ns > memory_ns ? BOUND_COMPUTE
                                            : BOUND_BANDWIDTH;
}

/* Rows of our own were measured with random weights, and their in-step corrections hold the experts
 * that such a router hit in whole steps, fewer than chance has (45.9 of 64 at 64 tokens of
 * LLaDA-MoE): where weights are random they are right as they stand. */
static bool is_as_measured(const struct lookup *l) {
    return l->type->family == FAMILY_EXPERTS && l->of->routing->is_random && l->is_ours;
}

/* Which hits are priced and which bytes are counted go by the same number, and joules were measured
 * with chance's: our router, whose weights are random, hits little fewer. */
static double hits_of(const struct lookup *l, double n_tokens) {
    return l->type->family == FAMILY_EXPERTS
               ? routing_hits(l->of->routing, l->op->experts, l->op->experts_active, n_tokens)
               : 0;
}

double lookup_experts_hit(const struct lookup *lookup, double n_tokens) {
    return is_as_measured(lookup) ? (double)NAN : hits_of(lookup, n_tokens);
}

/* ---- the look-up, by family ---- */

/* Rows of the profile by name, or by the `bytes` that they move in all. */
static void price_named(const struct lookup *l, bool has_pass, struct op_pass pass, int64_t rows,
                        double bytes, struct op_price *price) {
    enum profile_match match = PROFILE_EXACT;
    if (has_pass) {
        price->ns = profile_pass(l->profile, pass.pass, pass.channels, rows, &match);
        price->match = match;
    } else if (l->profile != NULL && profile_has(l->profile, PROFILE_ELEMENTWISE)) {
        price->ns = profile_elementwise(l->profile, (int64_t)bytes, &match);
        price->match = match;
    } else {
        price->ns = roofline_ns(l->of->gpu, 0, bytes);
    }
}

/* Eager passes of operators that move no bytes are all that there is of them. */
static void look_up_pass(struct priced *p) {
    const struct lookup *l = p->lookup;
    if (p->price.bytes >= 1 || l->op->eager_bytes == 0) {
        price_named(l, l->has_own, l->pass, p->rows, p->price.bytes, &p->price);
    }
}

/* Whether the product and what follows it are in rows of their own. */
static bool has_fused_rows(const struct lookup *l) {
    return l->has_own && l->type->table != PROFILE_GEMM;
}

static void look_up_product(struct priced *p) {
    const struct lookup *l = p->lookup;
    const struct op *op = l->op;
    enum profile_match match = PROFILE_EXACT;
    if (has_fused_rows(l)) {
        p->price.ns = profile_fused(l->profile, l->type->table, p->rows, op->n, op->k, &match);
    } else if (l->profile != NULL) {
        p->price.ns = profile_gemm(l->profile, p->rows, op->n, op->k, &match);
    } else {
        p->price.ns = roofline_gemm_ns(l->of->gpu, p->rows, op->n, op->k);
        return;
    }
    p->price.match = match;
}

static struct moe_shape moe_shape_of(const struct lookup *l) {
    const struct model *model = l->of->graph->model;
    return (struct moe_shape){model->hidden, model->expert_ffn, l->op->experts_active,
                              l->op->experts};
}

/* Gate-up and down are measured together. */
static void look_up_experts(struct priced *p) {
    const struct lookup *l = p->lookup;
    if (l->profile == NULL) {
        p->price.ns = roofline_ns(l->of->gpu, p->work.flops, op_work_bytes(&p->work));
        return;
    }
    enum profile_match match;
    const double hits = is_as_measured(l) ? 0 : p->amount.hits;
    p->price.ns = profile_moe(l->profile, moe_shape_of(l), p->rows, hits, &match);
    p->price.match = match;
}

/* Ranks exchange what one of them holds: its part of a sum, or what it has to be gathered. */
static void look_up_exchange(struct priced *p) {
    const struct lookup *l = p->lookup;
    const struct graph *graph = l->of->graph;
    uint32_t ranks = model_ranks(graph->model);
    bool reduces = l->type->table == PROFILE_ALL_REDUCE;
    int held = reduces ? l->op->out[0] : l->op->in[0];
    int64_t bytes = p->rows * graph->tensors[held].bytes.per;
    const struct link_time time = link_time(l->of->gpu, ranks, (double)bytes, reduces);
    if (l->has_own) {
        enum profile_match match;
        p->price.ns = profile_collective(l->profile, l->type->table, ranks, bytes, &match);
        p->price.match = match;
    } else {
        p->price.ns = time.latency_ns + time.transfer_ns;
    }
    p->price.bound = 2 * time.latency_ns > p->price.ns ? BOUND_LATENCY : BOUND_LINK;
}

/* The rows of the operator's own table, or of the causal pair. */
static double profiled_spans(const struct lookup *l, const struct profile_spans *spans,
                             enum profile_match *match) {
    enum profile_op table = l->type->table;
    return !l->has_own                        ? profile_attention(l->profile, spans, match)
           : table == PROFILE_ATTENTION_FULL  ? profile_attention_full(l->profile, spans, match)
           : table == PROFILE_ATTENTION_BLOCK ? profile_attention_block(l->profile, spans, match)
                                              : profile_attention_prefill(l->profile, spans, match);
}

static struct profile_spans spans_of(const struct priced *p) {
    const struct model *m = p->lookup->of->graph->model;
    return (struct profile_spans){.n_seqs = p->shape->sym[p->lookup->op->span_n],
                                  .sum_q = p->amount.sum_q,
                                  .sum_kv = p->amount.sum_kv,
                                  .sum_q_kv = p->amount.sum_q_kv,
                                  .heads = m->heads,
                                  .kv_heads = m->kv_heads,
                                  .head_dim = m->head_dim,
                                  .layouts = &p->lookup->layouts};
}

static void look_up_attention(struct priced *p) {
    const struct lookup *l = p->lookup;
    if (l->profile == NULL) {
        p->price.ns = roofline_ns(l->of->gpu, p->price.flops, p->price.bytes);
        return;
    }
    enum profile_match match;
    const struct profile_spans spans = spans_of(p);
    p->price.ns = profiled_spans(l, &spans, &match);
    p->price.match = match;
}

static void (*const look_up_by_family[FAMILY_COUNT])(struct priced *p) = {
    [FAMILY_PASS] = look_up_pass,         [FAMILY_PRODUCT] = look_up_product,
    [FAMILY_ROUTER] = look_up_product,    [FAMILY_EXPERTS] = look_up_experts,
    [FAMILY_EXCHANGE] = look_up_exchange, [FAMILY_ATTENTION] = look_up_attention,
};

static void look_up(struct priced *p) {
    if (p->lookup->is_included) {
        p->price.match = PROFILE_EXACT; /* 0: the experts' rows have it */
        return;
    }
    look_up_by_family[p->lookup->type->family](p);
}

/* ---- the other steps ---- */

static bool concerns_all(const struct lookup *l) {
    (void)l;
    return true;
}

/* The longest single queries' keys, falling. */
static void find_longest(const struct step_shape *shape, uint32_t keys[PROFILE_STRAGGLERS]) {
    memset(keys, 0, PROFILE_STRAGGLERS * sizeof *keys);
    for (uint32_t i = 0; i < shape->n_spans; i++) {
        const struct span *span = shape->spans[i];
        uint32_t found = span->phase == PHASE_PREFILL ? 0 : span->context + span->queries;
        for (int at = 0; found > 0 && at < PROFILE_STRAGGLERS; at++) {
            if (found > keys[at]) {
                uint32_t shorter = keys[at];
                keys[at] = found;
                found = shorter;
            }
        }
    }
}

static bool leaves_unsplit(const struct profile *profile, const struct profile_spans *spans) {
    const struct tiles *tiles = profile_tiles(profile);
    double fill = tiles->split_fill * tiles->split_blocks * (double)profile_peaks(profile)->sms;
    return (double)(spans->n_seqs * spans->kv_heads) >= fill;
}

double lookup_varlen_single_ns(const struct profile *profile, const struct step_shape *shape,
                               const struct profile_spans *spans, double uniform_ns,
                               enum profile_match *match) {
    double prefill_tokens = (double)shape->sym[SYM_PREFILL_Q];
    bool is_mixed = prefill_tokens > 0 && profile_has(profile, PROFILE_ATTENTION_MIXED);
    double ns =
        is_mixed ? profile_attention_mixed(profile, spans, prefill_tokens, match) : uniform_ns;
    if (shape->spans != NULL && (is_mixed || leaves_unsplit(profile, spans))) {
        uint32_t keys[PROFILE_STRAGGLERS];
        find_longest(shape, keys);
        ns += profile_stragglers(profile, spans, ns, keys);
    }
    return ns;
}

static bool concerns_varlen(const struct lookup *l) {
    return l->type->family == FAMILY_ATTENTION && l->type->decodes && l->profile != NULL &&
           l->of->runtime->varlen_attention;
}

static void take_varlen(struct priced *p) {
    const struct profile_spans spans = spans_of(p);
    enum profile_match match = (enum profile_match)p->price.match;
    if (spans.sum_q == (double)spans.n_seqs) {
        p->price.ns =
            lookup_varlen_single_ns(p->lookup->profile, p->shape, &spans, p->price.ns, &match);
        p->price.match = match;
    }
}

static bool is_plain_product(const struct lookup *l) {
    return (l->type->family == FAMILY_PRODUCT || l->type->family == FAMILY_ROUTER) &&
           !has_fused_rows(l);
}

static bool concerns_ratio(const struct lookup *l) {
    return is_plain_product(l) && l->profile != NULL && l->of->runtime->product_ratio > 0;
}

/* The clock is of no help where memory binds. */
static void take_product_ratio(struct priced *p) {
    const struct op *op = p->lookup->op;
    const int64_t m = p->rows;
    double ratio = p->lookup->of->runtime->product_ratio;
    double bytes =
        (double)(p->lookup->of->graph->element_bytes * (m * op->k + op->k * op->n + m * op->n));
    double memory_ns = bytes / p->lookup->reached_bandwidth * 1e9;
    if (p->price.ns > memory_ns) {
        p->price.ns = p->price.ns * ratio > memory_ns ? p->price.ns * ratio : memory_ns;
    }
}

static bool concerns_activation(const struct lookup *l) {
    return is_plain_product(l) && l->type->activates;
}

/* Without rows of both products and their activation in one, the product and then the pass that the
 * activation is where it stands alone, as the engine runs it on GPUs without that kernel. */
static void add_activation(struct priced *p) {
    const struct lookup *l = p->lookup;
    struct op_price activation = {.match = PRICE_ROOFLINE};
    struct op_pass pass = {PASS_SWIGLU, l->op->n / 2};
    double bytes = (double)(3 * pass.channels * l->of->graph->element_bytes * p->rows);
    bool has_pass = l->profile != NULL && profile_has_pass(l->profile, pass.pass);
    price_named(l, has_pass, pass, p->rows, bytes, &activation);
    /* Most of the time says what kind of price it is: the product's, unless it is tiny. */
    p->price.match = activation.ns > p->price.ns ? activation.match : p->price.match;
    p->price.ns += activation.ns;
}

static bool concerns_experts(const struct lookup *l) {
    return l->type->family == FAMILY_EXPERTS && l->profile != NULL;
}

/* Two thirds of the weights of gate, up and down are those of gate and up. */
static void take_mixture_part(struct priced *p) {
    const struct lookup *l = p->lookup;
    bool is_down = !l->type->activates && l->op->k == (int64_t)l->of->graph->model->expert_ffn;
    p->price.ns *= is_down ? 1.0 / 3 : 2.0 / 3;
}

/* Bytes that an unfused runtime's passes move through memory; what stays in the L2 cache counts as
 * the bytes that memory would move in the same time. */
static double eager_bytes(const struct lookup *l, int64_t rows, int64_t bytes) {
    const struct gpu *gpu = l->of->gpu;
    int64_t extra = rows * l->op->eager_bytes - bytes;
    if (extra <= 0) {
        return (double)(rows * l->op->eager_bytes);
    }
    bool spills = rows * l->op->temporary_bytes > gpu->l2_bytes;
    double share = spills ? 1 : gpu->best_bandwidth / gpu->l2_bandwidth;
    return (double)(bytes + (int64_t)(share * (double)extra));
}

static bool concerns_eager(const struct lookup *l) {
    return l->type->family == FAMILY_PASS && l->op->eager_bytes > 0;
}

static void take_eager_bytes(struct priced *p) {
    const struct lookup *l = p->lookup;
    p->price.bytes = eager_bytes(l, p->rows, (int64_t)p->price.bytes);
    price_named(l, l->has_own, l->pass, p->rows, p->price.bytes, &p->price);
}

static bool concerns_eager_rate(const struct lookup *l) {
    return l->type->family == FAMILY_PASS && l->op->eager_sm_rate > 0;
}

static void hold_eager_rate(struct priced *p) {
    const struct op *op = p->lookup->op;
    double rate = op->eager_sm_rate * p->lookup->of->gpu->sms;
    p->price.ns = fmax(p->price.ns, (double)(p->rows * op->eager_bytes) / rate);
}

static bool concerns_pass(const struct lookup *l) {
    return l->type->family == FAMILY_PASS;
}

static void hold_double(struct priced *p) {
    if (p->work.fp64_flops > 0) {
        const double peak = p->lookup->of->gpu->peak_fp64_flops;
        p->price.ns = fmax(p->price.ns, p->work.fp64_flops / peak * 1e9);
    }
}

static bool concerns_profiled(const struct lookup *l) {
    return l->profile != NULL;
}

/* In a whole step the operator takes other times than alone. */
static void correct(struct priced *p) {
    const struct lookup *l = p->lookup;
    const double rows = op_is_attention(l->op) ? p->amount.sum_q : (double)p->rows;
    p->price.ns *= correction_factor(l->in_step, l->correction, rows);
}

/* Where the run's tokens hit other experts than those of the rows, the price is for the run's. The
 * correction is of steps that hit experts of their own number: rows of as many are what it is of.
 */
static void correct_hits(struct priced *p) {
    const struct lookup *l = p->lookup;
    if (is_as_measured(l)) {
        return;
    }
    double in_steps = correction_hits(l->in_step, l->correction, (double)p->rows);
    if (in_steps > 0) {
        enum profile_match match;
        p->price.ns *= profile_moe(l->profile, moe_shape_of(l), p->rows, 0, &match) /
                       profile_moe(l->profile, moe_shape_of(l), p->rows, in_steps, &match);
    }
}

/* Our own rows were taken with cold weights on the card that is priced: within them they are what
 * it does, whatever its data sheet says. Clocks rise above the sheet's: an RTX 4090 did 168 TFLOP/s
 * of its 165 (tinygrad/tinygrad#11390), an overclocked one 1,018 GB/s of 1,008
 * (krrishnarraj/clpeak#108). */
static bool is_measured_here(const struct lookup *l, const struct op_price *price) {
    return l->kind == PROVENANCE_MEASURED && price->match <= PROFILE_INTERPOLATED &&
           l->type->family != FAMILY_EXPERTS; /* whose rows are brought to other hits */
}

/* A table of others that says less than what must be moved or multiplied takes was timed in a loop
 * that found its weights in the L2 cache; any table may, beyond its rows. */
static void raise_to_floor(struct priced *p) {
    const struct lookup *l = p->lookup;
    const double from_memory = p->work.weight_bytes + p->work.cached_bytes;
    const double least_ns = floor_ns(l->of->gpu, p->work.flops, from_memory);
    if (p->price.ns < least_ns && !is_measured_here(l, &p->price) && !is_as_measured(l)) {
        p->price.ns = least_ns;
        p->price.match = PRICE_ROOFLINE;
    }
}

/* The steps of one execution that can change its price. */
static void climb(struct priced *p, ladder_fn *each, void *state) {
    for (uint32_t i = 0; i < p->lookup->n_steps; i++) {
        const double before_ns = p->price.ns;
        const enum price_step_id step = (enum price_step_id)p->lookup->steps[i];
        price_steps[step].apply(p);
        if (each != NULL) {
            each(state, step, before_ns, p->price.ns, p);
        }
    }
    settle(p->lookup, &p->price);
}

static void begin_rows(struct priced *p) {
    const struct lookup *l = p->lookup;
    p->price = (struct op_price){.match = PRICE_ROOFLINE, .executions = 1};
    if (!l->is_included) {
        p->amount = (struct op_amount){
            .rows = (double)p->rows, .n_steps = 1, .hits = hits_of(l, (double)p->rows)};
        p->work = l->type->work(l->of->graph, l->op, &p->amount);
        p->price.flops = p->work.flops;
        p->price.bytes = op_work_bytes(&p->work);
    }
}

static struct op_amount amount_of_spans(const struct op *op, const int64_t sym[SYM_COUNT]) {
    int64_t cached = sym[op->span_k] - sym[op->span_q];
    return (struct op_amount){.sum_q = (double)sym[op->span_q],
                              .sum_kv = (double)sym[op->span_k],
                              .sum_cached = cached > 0 ? (double)cached : 0,
                              .sum_q_kv = (double)sym[op->span_qk]};
}

static void begin_spans(struct priced *p) {
    const struct lookup *l = p->lookup;
    p->amount = amount_of_spans(l->op, p->shape->sym);
    p->work = l->type->work(l->of->graph, l->op, &p->amount);
    p->price = (struct op_price){.match = PRICE_ROOFLINE,
                                 .executions = 1,
                                 .flops = p->work.flops,
                                 .bytes = op_work_bytes(&p->work)};
}

/* ---- all executions ---- */

static void price_add(struct op_price *sum, const struct op_price *price, double times) {
    sum->ns += times * price->ns;
    sum->compute_ns += times * price->compute_ns;
    sum->flops += times * price->flops;
    sum->bytes += times * price->bytes;
    sum->executions += (uint32_t)times * price->executions;
    sum->match = price->match > sum->match ? price->match : sum->match;
    sum->bound = price->bound;
}

static void take_repetitions(struct priced *p) {
    p->sum = (struct op_price){0};
    price_add(&p->sum, &p->price, p->repeat);
}

static bool concerns_chunked(const struct lookup *l) {
    return l->op->loop >= 0;
}

/* The share's part of the whole's time, and no less than the keys and values take to be read once
 * more. */
static struct op_price price_share(const struct priced *p, double share) {
    const struct lookup *l = p->lookup;
    struct op_amount amount = p->amount;
    amount.sum_q *= share;
    struct op_work work = l->type->work(l->of->graph, l->op, &amount);
    struct op_price price = p->price;
    price.flops *= share;
    price.bytes = op_work_bytes(&work);
    double least_ns = price.bytes / l->reached_bandwidth * 1e9;
    price.ns = fmax(p->price.ns * share, least_ns);
    settle(l, &price);
    return price;
}

static struct op_price price_rows(const struct lookup *l, int64_t rows) {
    struct priced piece = {.lookup = l, .rows = rows};
    begin_rows(&piece);
    climb(&piece, NULL, NULL);
    return piece.price;
}

static struct op_price price_piece(const struct priced *p, int64_t rows) {
    return op_is_attention(p->lookup->op) ? price_share(p, (double)rows / (double)p->rows)
                                          : price_rows(p->lookup, rows);
}

/* In chunks a product reads its weights again and saves nothing, so it takes no less than the
 * whole. Rows alone would have it cheaper: those of experts on the A100 take 0.68 us a token at
 * 8,192 tokens and 0.76 at 65,536. Passes over activations may be cheaper in chunks that stay in
 * the L2 cache. */
static void take_chunks(struct priced *p) {
    if (p->chunk >= p->rows) {
        return;
    }
    p->sum = (struct op_price){0};
    struct op_price piece = price_piece(p, p->chunk);
    const int64_t n_whole = p->rows / p->chunk, rest = p->rows % p->chunk;
    price_add(&p->sum, &piece, p->repeat * (double)n_whole);
    if (rest != 0) {
        piece = price_piece(p, rest);
        price_add(&p->sum, &piece, p->repeat);
    }
    if (op_is_product(p->lookup->op)) {
        const double whole_ns = p->repeat * p->price.ns;
        p->sum.ns = p->sum.ns < whole_ns ? whole_ns : p->sum.ns;
    }
}

double ladder_wait_ns(const struct lookup *l, const struct step_shape *shape) {
    const struct runtime *runtime = l->of->runtime;
    const bool waits = l->type->waits != NULL && l->type->waits(shape->sym);
    const bool is_measured =
        runtime->issued_ns[HOST_REUSE] > 0 && l->op->wait_kind == PROVENANCE_CALIBRATED;
    return waits && !is_measured ? runtime->host_factor * l->op->wait_ns : 0;
}

static bool concerns_waiting(const struct lookup *l) {
    return l->type->waits != NULL;
}

static void add_wait(struct priced *p) {
    p->sum.ns += ladder_wait_ns(p->lookup, p->shape);
}

/* ---- the ladder ---- */

const struct price_step price_steps[PRICE_STEPS] = {
    [STEP_LOOK_UP] = {"look-up", "the time of as much work by itself", concerns_all, look_up},
    [STEP_VARLEN] = {"one call with prefills",
                     "single queries as a kernel for variable lengths serves them", concerns_varlen,
                     take_varlen},
    [STEP_PRODUCT_RATIO] = {"product ratio",
                            "the runtime's products run at another clock than the rows'",
                            concerns_ratio, take_product_ratio},
    [STEP_ACTIVATION] = {"activation", "a pass of its own after the product", concerns_activation,
                         add_activation},
    [STEP_MIXTURE] = {"mixture's part",
                      "gate and up have two thirds of a layer's weights, down one",
                      concerns_experts, take_mixture_part},
    [STEP_EAGER] = {"eager passes", "every kernel of eager code reads and writes memory",
                    concerns_eager, take_eager_bytes},
    [STEP_EAGER_RATE] = {"eager rate", "such kernels are bound by their instructions",
                         concerns_eager_rate, hold_eager_rate},
    [STEP_DOUBLE] = {"double precision", "no less than the FLOPs in double precision take",
                     concerns_pass, hold_double},
    [STEP_CORRECTION] = {"in-step correction", "whole steps take other times than loops",
                         concerns_profiled, correct},
    [STEP_CORRECTION_HITS] = {"corrected experts",
                              "the steps that it was fitted to hit other experts than the rows",
                              concerns_experts, correct_hits},
    [STEP_FLOOR] = {"floor", "no less than its weights, cached rows and FLOPs take at the peaks",
                    concerns_all, raise_to_floor},
    [STEP_REPETITIONS] = {"repetitions", "once for every layer of the segment", concerns_all,
                          take_repetitions},
    [STEP_CHUNKS] = {"chunks", "each reads the weights, or keys, again", concerns_chunked,
                     take_chunks},
    [STEP_WAIT] = {"wait for the host", "which decides in the middle of the operator",
                   concerns_waiting, add_wait},
};

void lookup_take_steps(struct lookup *lookup) {
    lookup->n_steps = 0;
    for (int step = 0; step < STEP_REPETITIONS; step++) {
        if (step == STEP_LOOK_UP || (!lookup->is_included && price_steps[step].concerns(lookup))) {
            lookup->steps[lookup->n_steps++] = (uint8_t)step;
        }
    }
}

/* Before the first step; false where there is nothing to price. */
static bool begin(struct priced *p, const struct lookup *l, const struct step_shape *shape,
                  struct chunk_rows chunks) {
    const struct graph *graph = l->of->graph;
    const struct op *op = l->op;
    const bool is_attention = op_is_attention(op);
    const int64_t rows = shape->sym[op->rows];
    if (is_attention ? shape->sym[op->span_n] == 0 : rows == 0 || l->is_absent) {
        return false;
    }
    *p = (struct priced){.lookup = l,
                         .shape = shape,
                         .rows = rows,
                         .chunk =
                             op->loop < 0 ? rows : loop_chunk_rows(graph, op->loop, shape, chunks),
                         .repeat = graph->segments[op->segment].repeat};
    if (is_attention) {
        begin_spans(p);
    } else {
        begin_rows(p);
    }
    return true;
}

void ladder_price(const struct lookup *l, const struct step_shape *shape, struct chunk_rows chunks,
                  struct op_price *out) {
    struct priced p;
    *out = (struct op_price){0};
    if (!begin(&p, l, shape, chunks)) {
        return;
    }
    const bool is_chunked = p.chunk < p.rows;
    if (!is_chunked || op_is_attention(l->op) || op_is_product(l->op)) {
        climb(&p, NULL, NULL);
    }
    price_steps[is_chunked ? STEP_CHUNKS : STEP_REPETITIONS].apply(&p);
    *out = p.sum;
}

void ladder_show(const struct lookup *l, const struct step_shape *shape, struct chunk_rows chunks,
                 ladder_fn *each, void *state) {
    struct priced p;
    if (!begin(&p, l, shape, chunks)) {
        return;
    }
    climb(&p, each, state);
    double before_ns = p.price.ns;
    for (int i = STEP_REPETITIONS; i < PRICE_STEPS; i++) {
        const enum price_step_id step = (enum price_step_id)i;
        if (price_steps[step].concerns(l)) {
            price_steps[step].apply(&p);
            each(state, step, before_ns, p.sum.ns, &p);
            before_ns = p.sum.ns;
        }
    }
}

void lookup_work(const struct lookup *l, const int64_t sym[SYM_COUNT], double n_steps,
                 struct op_work *out) {
    struct op_amount amount = {0};
    if (l->type->family == FAMILY_ATTENTION) {
        amount = amount_of_spans(l->op, sym);
    } else {
        amount.rows = (double)sym[l->op->rows];
        amount.n_steps = n_steps;
        amount.hits = hits_of(l, amount.rows / n_steps);
    }
    *out = l->type->work(l->of->graph, l->op, &amount);
}
