/* What one execution of an operator takes, by the rows that its look-up found. */
#include <math.h>
#include <string.h>

#include "sim/cost/link.h"
#include "sim/cost/lookup.h"
#include "sim/cost/roofline.h"
#include "sim/model/ranks.h"

bool lookup_is_assumed(const struct lookup *l) {
    return l->type->family == FAMILY_EXCHANGE && !l->has_own;
}

static struct profile_peaks peaks_of(const struct lookup *l) {
    return l->profile != NULL ? *profile_peaks(l->profile) : profile_peaks_of(l->of->gpu);
}

/* What memory is read at: the best that is known of such cards, or this card's own where its rows
 * show more than its data sheet. By a slower one's word operators that the clock stretches would be
 * taken for bound by memory (experiments/gpu/rehearsal.sh, 2026-11-28: a step of 2.8 times its
 * time). */
static double reached_bandwidth(const struct lookup *l) {
    const double peak = peaks_of(l).bandwidth;
    return peak > l->of->gpu->peak_bandwidth ? peak : l->of->gpu->best_bandwidth;
}

/* The bound that the price's work comes closest to; price_exchange says that of exchanges. */
static void lookup_settle(const struct lookup *l, struct op_price *price) {
    const struct profile_peaks peaks = peaks_of(l);
    double compute_ns = price->flops / peaks.flops * 1e9;
    double memory_ns = price->bytes / peaks.bandwidth * 1e9;
    double larger = compute_ns > memory_ns ? compute_ns : memory_ns;
    double moving_ns = price->bytes / reached_bandwidth(l) * 1e9;
    price->compute_ns = stretched_ns(price->ns, moving_ns);
    if (l->type->family == FAMILY_EXCHANGE) {
        return;
    }
    /* A kernel that runs at under a tenth of either roof is bound by its launch. */
    price->bound = larger < 0.1 * price->ns ? BOUND_LAUNCH
                   : compute_ns > memory_ns ? BOUND_COMPUTE
                                            : BOUND_BANDWIDTH;
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
static void raise_to_floor(const struct lookup *l, const struct op_work *work,
                           struct op_price *price) {
    double least_ns = floor_ns(l->of->gpu, work->flops, work->weight_bytes + work->cached_bytes);
    if (price->ns < least_ns && !is_measured_here(l, price)) {
        price->ns = least_ns;
        price->match = PRICE_ROOFLINE;
    }
}

/* In a whole step the operator takes other times than alone. */
static void correct(const struct lookup *l, int64_t rows, struct op_price *price) {
    if (l->profile != NULL) {
        price->ns *= correction_factor(profile_correction(l->profile), l->correction, (double)rows);
    }
}

static struct moe_shape moe_shape_of(const struct lookup *l) {
    const struct model *model = l->of->graph->model;
    return (struct moe_shape){model->hidden, model->expert_ffn, l->op->experts_active,
                              l->op->experts};
}

/* ---- rows ---- */

/* The clock is of no help where memory binds. */
static void take_product_ratio(const struct lookup *l, int64_t m, struct op_price *price) {
    const struct op *op = l->op;
    double ratio = l->of->runtime->product_ratio;
    double bytes = (double)(l->of->graph->element_bytes * (m * op->k + op->k * op->n + m * op->n));
    double memory_ns = bytes / reached_bandwidth(l) * 1e9;
    if (ratio > 0 && price->ns > memory_ns) {
        price->ns = price->ns * ratio > memory_ns ? price->ns * ratio : memory_ns;
    }
}

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

/* Without rows of both products and their activation in one, the product and then the pass that the
 * activation is where it stands alone, as the engine runs it on GPUs without that kernel. */
static void add_activation(const struct lookup *l, int64_t rows, struct op_price *price) {
    struct op_price activation = {.match = PRICE_ROOFLINE};
    struct op_pass pass = {PASS_SWIGLU, l->op->n / 2};
    double bytes = (double)(3 * pass.channels * l->of->graph->element_bytes * rows);
    bool has_pass = l->profile != NULL && profile_has_pass(l->profile, pass.pass);
    price_named(l, has_pass, pass, rows, bytes, &activation);
    /* Most of the time says what kind of price it is: the product's, unless it is tiny. */
    price->match = activation.ns > price->ns ? activation.match : price->match;
    price->ns += activation.ns;
}

static void price_product(const struct lookup *l, int64_t m, const struct op_work *work,
                          struct op_price *price) {
    (void)work;
    const struct op *op = l->op;
    enum profile_match match;
    if (l->has_own && l->type->table != PROFILE_GEMM) {
        price->ns = profile_fused(l->profile, l->type->table, m, op->n, op->k, &match);
        price->match = match;
        return;
    }
    if (l->profile != NULL) {
        price->ns = profile_gemm(l->profile, m, op->n, op->k, &match);
        price->match = match;
        take_product_ratio(l, m, price);
    } else {
        price->ns = roofline_gemm_ns(l->of->gpu, m, op->n, op->k);
    }
    if (l->type->activates) {
        add_activation(l, m, price);
    }
}

/* Rows of our own were measured with random weights, and their in-step corrections hold the experts
 * that such a router hit in whole steps, fewer than chance has (45.9 of 64 at 64 tokens of
 * LLaDA-MoE): where weights are random they are right as they stand. */
static bool is_as_measured(const struct lookup *l) {
    return l->type->family == FAMILY_EXPERTS && l->of->routing->is_random && l->is_ours;
}

/* Where the run's tokens hit other experts than those of the rows, the price is for the run's. The
 * correction is of steps that hit experts of their own number: rows of as many are what it is of.
 */
static void correct_hits(const struct lookup *l, int64_t rows, struct op_price *price) {
    if (l->type->family != FAMILY_EXPERTS || l->profile == NULL || is_as_measured(l)) {
        return;
    }
    double in_steps = correction_hits(profile_correction(l->profile), l->correction, (double)rows);
    if (in_steps > 0) {
        enum profile_match match;
        price->ns *= profile_moe(l->profile, moe_shape_of(l), rows, 0, &match) /
                     profile_moe(l->profile, moe_shape_of(l), rows, in_steps, &match);
    }
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

/* Gate-up and down are measured together; two thirds of their weights are gate and up. */
static void price_experts(const struct lookup *l, int64_t m, const struct op_work *work,
                          struct op_price *price) {
    const struct model *model = l->of->graph->model;
    if (l->profile == NULL) {
        price->ns = roofline_ns(l->of->gpu, work->flops, op_work_bytes(work));
        return;
    }
    enum profile_match match;
    bool is_down = !l->type->activates && l->op->k == (int64_t)model->expert_ffn;
    double hits = is_as_measured(l) ? 0 : hits_of(l, (double)m);
    double both = profile_moe(l->profile, moe_shape_of(l), m, hits, &match);
    price->match = match;
    price->ns = both * (is_down ? 1.0 / 3 : 2.0 / 3);
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

static void price_pass(const struct lookup *l, int64_t rows, const struct op_work *work,
                       struct op_price *price) {
    const struct gpu *gpu = l->of->gpu;
    if (l->op->eager_bytes > 0) {
        price->bytes = eager_bytes(l, rows, (int64_t)price->bytes);
    }
    price_named(l, l->has_own, l->pass, rows, price->bytes, price);
    if (l->op->eager_sm_rate > 0) {
        double rate = l->op->eager_sm_rate * gpu->sms;
        price->ns = fmax(price->ns, (double)(rows * l->op->eager_bytes) / rate);
    }
    if (work->fp64_flops > 0) {
        price->ns = fmax(price->ns, work->fp64_flops / gpu->peak_fp64_flops * 1e9);
    }
}

/* Ranks exchange what one of them holds: its part of a sum, or what it has to be gathered. */
static void price_exchange(const struct lookup *l, int64_t rows, const struct op_work *work,
                           struct op_price *price) {
    (void)work;
    const struct graph *graph = l->of->graph;
    uint32_t ranks = model_ranks(graph->model);
    bool reduces = l->type->table == PROFILE_ALL_REDUCE;
    int held = reduces ? l->op->out[0] : l->op->in[0];
    int64_t bytes = rows * graph->tensors[held].bytes.per;
    const struct link_time time = link_time(l->of->gpu, ranks, (double)bytes, reduces);
    if (l->has_own) {
        enum profile_match match;
        price->ns = profile_collective(l->profile, l->type->table, ranks, bytes, &match);
        price->match = match;
    } else {
        price->ns = time.latency_ns + time.transfer_ns;
    }
    price->bound = 2 * time.latency_ns > price->ns ? BOUND_LATENCY : BOUND_LINK;
}

typedef void price_fn(const struct lookup *lookup, int64_t rows, const struct op_work *work,
                      struct op_price *price);
static price_fn *const price_by_family[FAMILY_COUNT] = {
    [FAMILY_PASS] = price_pass,         [FAMILY_PRODUCT] = price_product,
    [FAMILY_ROUTER] = price_product,    [FAMILY_EXPERTS] = price_experts,
    [FAMILY_EXCHANGE] = price_exchange,
};

void lookup_price_rows(const struct lookup *l, int64_t rows, struct op_price *price) {
    *price = (struct op_price){.match = PRICE_ROOFLINE, .executions = 1};
    if (l->is_included) {
        price->match = PROFILE_EXACT;
        lookup_settle(l, price);
        return;
    }
    struct op_amount amount = {
        .rows = (double)rows, .n_steps = 1, .hits = hits_of(l, (double)rows)};
    struct op_work work = l->type->work(l->of->graph, l->op, &amount);
    price->flops = work.flops;
    price->bytes = op_work_bytes(&work);
    price_by_family[l->type->family](l, rows, &work, price);
    correct(l, rows, price);
    correct_hits(l, rows, price);
    if (!is_as_measured(l)) {
        raise_to_floor(l, &work, price);
    }
    lookup_settle(l, price);
}

/* ---- spans ---- */

static struct op_amount amount_of_spans(const struct op *op, const int64_t sym[SYM_COUNT]) {
    int64_t cached = sym[op->span_k] - sym[op->span_q];
    return (struct op_amount){.sum_q = (double)sym[op->span_q],
                              .sum_kv = (double)sym[op->span_k],
                              .sum_cached = cached > 0 ? (double)cached : 0,
                              .sum_q_kv = (double)sym[op->span_qk]};
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
    enum { BLOCKS_A_SM = 2 };
    double fill = 0.8 * BLOCKS_A_SM * (double)profile_peaks(profile)->sms;
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

void lookup_price_spans(const struct lookup *l, const struct step_shape *shape,
                        struct op_price *price) {
    const struct model *m = l->of->graph->model;
    struct op_amount amount = amount_of_spans(l->op, shape->sym);
    struct op_work work = l->type->work(l->of->graph, l->op, &amount);
    *price = (struct op_price){.match = PRICE_ROOFLINE,
                               .executions = 1,
                               .flops = work.flops,
                               .bytes = op_work_bytes(&work)};
    if (l->profile != NULL) {
        struct profile_spans spans = {.n_seqs = shape->sym[l->op->span_n],
                                      .sum_q = amount.sum_q,
                                      .sum_kv = amount.sum_kv,
                                      .sum_q_kv = amount.sum_q_kv,
                                      .heads = m->heads,
                                      .kv_heads = m->kv_heads,
                                      .head_dim = m->head_dim,
                                      .layouts = &l->layouts};
        enum profile_match match;
        price->ns = profiled_spans(l, &spans, &match);
        if (l->of->runtime->varlen_attention && l->type->decodes &&
            spans.sum_q == (double)spans.n_seqs) {
            price->ns = lookup_varlen_single_ns(l->profile, shape, &spans, price->ns, &match);
        }
        price->match = match;
    } else {
        price->ns = roofline_ns(l->of->gpu, price->flops, price->bytes);
    }
    correct(l, shape->sym[l->op->span_q], price);
    raise_to_floor(l, &work, price);
    lookup_settle(l, price);
}

/* The share's part of the whole's time, and no less than the keys and values take to be read once
 * more. */
void lookup_price_share(const struct lookup *l, const struct step_shape *shape, double share,
                        const struct op_price *whole, struct op_price *price) {
    struct op_amount amount = amount_of_spans(l->op, shape->sym);
    amount.sum_q *= share;
    struct op_work work = l->type->work(l->of->graph, l->op, &amount);
    *price = *whole;
    price->flops *= share;
    price->bytes = op_work_bytes(&work);
    double least_ns = price->bytes / reached_bandwidth(l) * 1e9;
    price->ns = fmax(whole->ns * share, least_ns);
    lookup_settle(l, price);
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
