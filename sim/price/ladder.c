#include "sim/price/ladder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/model/ranks.h"
#include "sim/price/link.h"
#include "sim/price/roofline.h"

/* ---- without rows: roofline and links ---- */

/* Kernel start and drain on a busy stream, 2 us: launch gaps of 1 to 3 us are published for all of
 * the table's GPUs (NVIDIA "Getting started with CUDA graphs"). */
static const double launch_ns = 2000;

/* Operations at two rates; the second is asked of only where there are such. */
static double compute_ns_of(double flops, double fp8_flops, double rate, double fp8_rate) {
    const double fp8_ns = fp8_flops > 0 ? fp8_flops / fp8_rate * 1e9 : 0;
    return (flops - fp8_flops) / rate * 1e9 + fp8_ns;
}

double roofline_ns(const struct gpu *gpu, const struct op_work *work) {
    double compute_ns =
        compute_ns_of(work->flops, work->fp8_flops, gpu->best_bf16_flops, gpu_best_fp8_flops(gpu));
    double memory_ns = op_work_bytes(work) / gpu->best_bandwidth * 1e9;
    return launch_ns + (compute_ns > memory_ns ? compute_ns : memory_ns);
}

double roofline_bytes_ns(const struct gpu *gpu, double bytes) {
    return roofline_ns(gpu, &(struct op_work){.row_bytes = bytes});
}

double roofline_product_ns(const struct gpu *gpu, int64_t m, int64_t n, int64_t k,
                           const struct op_work *work) {
    enum { TILE = 128 };
    double padded_m = (double)(ceil_div(m, TILE) * TILE),
           padded_n = (double)(ceil_div(n, TILE) * TILE);
    /* A product thinner than a tile is bound by its bytes, not by the padding. */
    double rows = m < TILE ? (double)m : padded_m;
    struct op_work padded = *work;
    padded.flops = 2 * rows * padded_n * (double)k;
    padded.fp8_flops = work->fp8_flops > 0 ? padded.flops : 0;
    return roofline_ns(gpu, &padded);
}

double stretched_ns(double ns, double moving_ns) {
    return ns > moving_ns ? ns * (1 - pow(moving_ns / ns, OVERLAP)) : 0;
}

double floor_ns(const struct gpu *gpu, const struct op_work *work) {
    if (gpu->compute_capability == 0) {
        return 0;
    }
    double compute_ns =
        compute_ns_of(work->flops, work->fp8_flops, gpu_roof_flops(gpu), gpu_roof_fp8_flops(gpu));
    double memory_ns = (work->weight_bytes + work->cached_bytes) / gpu->peak_bandwidth * 1e9;
    return compute_ns > memory_ns ? compute_ns : memory_ns;
}

/* Who is not in the table, the host's processor among them, is taken for the last, slowest one. */
struct link_kind {
    const char *begins; /* the link's name; "": any */
    int peers;          /* 1 with peer access, 0 without, -1: either */
    double start_us, hop_us;
    double slow_share, slow_bytes; /* of the data sheet's rate, for the first bytes a GPU sends */
    double share;                  /* for the others */
    double host_links; /* what all GPUs send together at most, in links; INFINITY: no such limit */
};

/* NVLink: NCCL's all-reduces of 512 bytes to 512 MiB over 2, 4 and 8 GPUs of an H100 and an A100
 * host (the imported tables kernels/profiles/h100.csv and a100-80g.csv). PCIe with peer access:
 * start and hops by an L40S host (l40s.csv); rates are 0.40, 0.62, 0.78 and 0.82 of the data
 * sheet's on four hosts (tinygrad/open-gpu-kernel-modules#22, two L40S, #17 with 4 and with 5 GPUs,
 * #36): the share between the first and the last, which no number of GPUs moves. Without: hops by 8
 * RTX 4090s (NVIDIA/nccl#1530), twice those with it; long messages by one host with 4 and with 8
 * RTX 5090s (NVIDIA/nccl#1639, 35 and 28 GB/s of a link's 63): all of them pass the host's memory,
 * and what that passes is a limit on all of them together, as a maintainer of NCCL says there.
 * Short messages go at half the rate of those with peers, since they wait for twice the hops. Hosts
 * differ: the L40S's passes long messages of 4 and 8 GPUs at a quarter and a twelfth of this. */
static const struct link_kind kinds[] = {
    {"NVLink 3", -1, 7.9, 1.05, 0.21, 2 << 20, 0.75, INFINITY},
    {"NVLink", -1, 4.6, 0.8, 0.21, 2 << 20, 0.75, INFINITY},
    {"PCIe", 1, 4.6, 1.33, 0.21, 256 << 10, 0.6, INFINITY},
    {"", -1, 4.6, 2.7, 0.105, 256 << 10, 35.0 / 63, 8 * 28.0 / 63},
};

static const struct link_kind *link_kind_of(const struct gpu *gpu) {
    const struct link_kind *kind = kinds;
    while (strncmp(gpu->link, kind->begins, strlen(kind->begins)) != 0 ||
           (kind->peers >= 0 && kind->peers != (gpu->link_peers != 0))) {
        kind++;
    }
    return kind;
}

struct link_time link_time(const struct gpu *gpu, uint32_t ranks, double bytes, bool reduces) {
    const struct link_kind *kind = link_kind_of(gpu);
    const double others = (double)ranks - 1, ns_a_us = 1e3;
    const double hops = reduces ? 2 * others : others;
    const double sent = reduces ? 2 * bytes * others / ranks : bytes * others;
    const double slow = fmin(sent, kind->slow_bytes);
    const double share = fmin(kind->share, kind->host_links / ranks);
    return (struct link_time){.latency_ns = ns_a_us * (kind->start_us + hops * kind->hop_us),
                              .transfer_ns = (slow / kind->slow_share + (sent - slow) / share) /
                                             gpu->link_bandwidth * 1e9};
}

const char *link_words(const struct gpu *gpu, char *text, size_t size) {
    const bool tells = strncmp(gpu->link, "PCIe", 4) == 0;
    snprintf(text, size, "%s%s", gpu->link,
             !tells            ? ""
             : gpu->link_peers ? " with peer access"
                               : " without peer access");
    return text;
}

/* ---- in-step corrections ---- */

/* A product's rows as its tiles have them: a partly filled one takes as long as a whole one. */
static double tiled(const struct correction *correction, enum op_kind kind, double rows) {
    const bool says = correction->tile_rows > 0;
    const double tile = says ? correction->tile_rows : tiles_default.corrected_rows;
    const double first = says ? correction->tile_from : tiles_default.corrected_from;
    const bool is_tiled = op_types[kind]->family == FAMILY_PRODUCT && rows > first;
    return is_tiled ? ceil(rows / tile) * tile : rows;
}

/* The points around `rows` rows, twice the same one beyond them; false: there are none. */
static bool around(const struct correction *correction, int curve, double rows,
                   const struct correction_point *out[2]) {
    if (curve < 0) {
        return false;
    }
    const struct correction_point *points = correction->curves[curve].points;
    uint32_t n = correction->curves[curve].n_points, above = 0;
    while (above < n && points[above].rows < rows) {
        above++;
    }
    out[0] = &points[above > 0 ? above - 1 : 0];
    out[1] = &points[above < n ? above : n - 1];
    if (above == 0 || above == n) {
        out[0] = out[1];
    }
    return true;
}

double correction_factor(const struct correction *correction, int curve, double rows) {
    const struct correction_point *at[2];
    rows = curve < 0 ? rows : tiled(correction, correction->curves[curve].kind, rows);
    if (!around(correction, curve, rows, at)) {
        return correction->all > 0 ? correction->all : 1;
    }
    const struct correction_point *a = at[0], *b = at[1];
    return a == b ? a->factor
                  : a->factor + (b->factor - a->factor) * (rows - a->rows) / (b->rows - a->rows);
}

double correction_hits(const struct correction *correction, int curve, double rows) {
    const struct correction_point *at[2];
    if (!around(correction, curve, rows, at) || at[0]->hits <= 0 || at[1]->hits <= 0) {
        return 0;
    }
    const struct correction_point *a = at[0], *b = at[1];
    return a == b ? a->hits
                  : a->hits + (b->hits - a->hits) * (rows - a->rows) / (b->rows - a->rows);
}

bool lookup_is_assumed(const struct lookup *l) {
    return l->type->family == FAMILY_EXCHANGE && !l->has_own;
}

/* The bound that the price's work comes closest to; price_exchange says that of exchanges. */
static void settle(const struct lookup *l, struct op_price *price) {
    double compute_ns =
        compute_ns_of(price->flops, price->fp8_flops, l->peaks.flops, l->peaks.fp8_flops);
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

/* ---- the look-up ---- */

/* Rows of the profile by name, or by the `bytes` that they move in all. */
static void price_named(const struct lookup *l, const struct profile *of, bool has_bytes,
                        bool has_pass, struct op_pass pass, int64_t rows, double bytes,
                        struct op_price *price) {
    enum profile_match match = PROFILE_EXACT;
    if (has_pass) {
        price->ns = profile_pass(of, pass.pass, pass.channels, rows, &match);
        price->match = match;
    } else if (has_bytes) {
        price->ns = profile_elementwise(of, (int64_t)bytes, &match);
        price->match = match;
    } else {
        price->ns = roofline_bytes_ns(l->of->gpu, bytes);
    }
}

/* Whether the product and what follows it are in rows of their own. */
static bool has_fused_rows(const struct lookup *l) {
    return l->has_own && l->table != PROFILE_GEMM;
}

static struct profile_spans spans_of(const struct priced *p) {
    const struct model_heads heads = graph_heads(p->lookup->of->graph, p->lookup->op);
    return (struct profile_spans){.n_seqs = p->shape->sym[p->lookup->op->span_n],
                                  .sum_q = p->amount.sum_q,
                                  .sum_kv = p->amount.sum_kv,
                                  .sum_q_kv = p->amount.sum_q_kv,
                                  .heads = heads.heads,
                                  .kv_heads = heads.kv_heads,
                                  .head_dim = heads.head_dim,
                                  .layouts = &p->lookup->layouts};
}

/* The rows of the operator's own table, or of the causal pair. */
static double profiled_spans(const struct lookup *l, const struct profile_spans *spans,
                             enum profile_match *match) {
    enum profile_op table = l->table;
    return !l->has_own                        ? profile_attention(l->profile, spans, match)
           : table == PROFILE_ATTENTION_FULL  ? profile_attention_full(l->profile, spans, match)
           : table == PROFILE_ATTENTION_BLOCK ? profile_attention_block(l->profile, spans, match)
           : table == PROFILE_ATTENTION_PATTERN
               ? profile_attention_pattern(l->profile, spans, match)
           : table == PROFILE_PATTERN ? profile_pattern(l->profile, spans, match)
                                      : profile_attention_prefill(l->profile, spans, match);
}

/* Ranks exchange what one of them holds: its part of a sum, or what it has to be gathered. */
static int64_t held_bytes(const struct priced *p) {
    const struct lookup *l = p->lookup;
    const int held = l->table == PROFILE_ALL_REDUCE ? l->op->out[0] : l->op->in[0];
    return p->rows * l->of->graph->tensors[held].bytes.per;
}

static struct link_time link_of(const struct priced *p) {
    const struct lookup *l = p->lookup;
    return link_time(l->of->gpu, model_ranks(l->of->graph->model), (double)held_bytes(p),
                     l->table == PROFILE_ALL_REDUCE);
}

/* Of the product alone, which writes all its channels. */
static struct op_work plain_work(const struct priced *p) {
    struct op_work work = p->work;
    work.row_bytes = p->amount.rows * p->lookup->plain_row_bytes;
    return work;
}

/* Without rows: by the data sheet and the best that is known, or by the model of a link. */
static double by_sheet(const struct priced *p) {
    const struct lookup *l = p->lookup;
    switch (l->type->family) {
    case FAMILY_PRODUCT:
    case FAMILY_ROUTER: {
        const struct op_work work = plain_work(p);
        return roofline_product_ns(l->of->gpu, p->rows, l->op->n, l->op->k, &work);
    }
    case FAMILY_EXCHANGE: {
        const struct link_time time = link_of(p);
        return time.latency_ns + time.transfer_ns;
    }
    case FAMILY_PASS:
        return roofline_bytes_ns(l->of->gpu, p->price.bytes);
    case FAMILY_EXPERTS:
    case FAMILY_ATTENTION:
        break;
    }
    return roofline_ns(l->of->gpu, &p->work);
}

/* By the profile's rows of it. Gate-up and down of a mixture are measured together. */
static void by_rows(struct priced *p) {
    const struct lookup *l = p->lookup;
    const struct profile *rows = l->profile;
    const struct op *op = l->op;
    enum profile_match match = PROFILE_EXACT;
    switch (l->type->family) {
    case FAMILY_PASS:
        price_named(l, l->profile, l->has_bytes, l->has_own, l->pass, p->rows, p->price.bytes,
                    &p->price);
        return;
    case FAMILY_PRODUCT:
    case FAMILY_ROUTER:
        p->price.ns = has_fused_rows(l)
                          ? profile_fused(rows, l->table, p->rows, op->n, op->k, &match)
                          : profile_gemm(rows, p->rows, op->n, op->k, &match);
        break;
    case FAMILY_EXPERTS:
        p->price.ns = profile_moe(rows, lookup_moe_shape(l), p->rows,
                                  is_as_measured(l) ? 0 : p->amount.hits, &match);
        break;
    case FAMILY_EXCHANGE:
        p->price.ns = profile_collective(rows, l->table, model_ranks(l->of->graph->model),
                                         held_bytes(p), &match);
        break;
    case FAMILY_ATTENTION: {
        const struct profile_spans spans = spans_of(p);
        p->price.ns = profiled_spans(l, &spans, &match);
        break;
    }
    }
    p->price.match = match;
}

/* Eager passes of operators that move no bytes are all that there is of them. */
static bool has_nothing(const struct priced *p) {
    return p->lookup->op->eager_bytes > 0 && p->price.bytes < 1 &&
           p->lookup->type->family == FAMILY_PASS;
}

static void look_up(struct priced *p) {
    const struct lookup *l = p->lookup;
    if (l->is_included) {
        p->price.match = PROFILE_EXACT; /* 0: the experts' rows have it */
    } else if (l->profile == NULL || lookup_is_assumed(l)) {
        p->price.ns = by_sheet(p);
    } else if (!has_nothing(p)) {
        by_rows(p);
    }
    if (l->type->family == FAMILY_EXCHANGE) {
        p->price.bound = 2 * link_of(p).latency_ns > p->price.ns ? BOUND_LATENCY : BOUND_LINK;
    }
}

/* ---- the other steps ---- */

static bool concerns_all(const struct lookup *l) {
    (void)l;
    return true;
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
            profile_varlen_single_ns(p->lookup->profile, p->shape, &spans, p->price.ns, &match);
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
    const struct op_work work = plain_work(p);
    double ratio = p->lookup->of->runtime->product_ratio;
    double memory_ns = op_work_bytes(&work) / p->lookup->reached_bandwidth * 1e9;
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
    double bytes = (double)(3 * pass.channels * graph_element_bytes(l->of->graph) * p->rows);
    price_named(l, l->passes, l->passes_have_bytes, l->has_activation, pass, p->rows, bytes,
                &activation);
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
    price_named(l, l->profile, l->has_bytes, l->has_own, l->pass, p->rows, p->price.bytes,
                &p->price);
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
        p->price.ns *= profile_moe(l->profile, lookup_moe_shape(l), p->rows, 0, &match) /
                       profile_moe(l->profile, lookup_moe_shape(l), p->rows, in_steps, &match);
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
    const double least_ns = floor_ns(l->of->gpu, &p->work);
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
        p->price.fp8_flops = p->work.fp8_flops;
        p->price.bytes = op_work_bytes(&p->work);
    }
}

/* Of n queries, how many keys they see together where the first of them sees `first` and each of
 * the others one more (step 1) or one less (-1) than the one before it, from 0 to `most`. */
static double keys_seen(double n, double first, int step, double most) {
    const double last = first + step * (n - 1);
    const double low = fmin(first, last), high = fmax(first, last);
    const double above = fmin(n, fmax(0, high - most)), below = fmin(n, fmax(0, -low));
    const double between = n - above - below;
    const double from = fmax(0, low), to = fmin(high, most);
    return above * most + fmax(0, between) * (from + to) / 2;
}

/* A local layer's queries see what a window leaves of the keys before their span, and of the span
 * itself all (its window is no less than a canvas) or, in a prefill, what is before them. Spans are
 * taken to be of the step's mean length, for which this is exact: of spans that differ it counts no
 * less than there is. */
static void limit_to_window(const struct op *op, double n, double window,
                            struct op_amount *amount) {
    const double q = amount->sum_q / n, context = (amount->sum_kv - amount->sum_q) / n;
    const double held = fmin(context, window - 1);
    double seen = q * q + keys_seen(q, window - 1, -1, context);
    if (op->kind == OP_ATTENTION_PREFILL) {
        seen = keys_seen(q, context + 1, 1, window);
    }
    amount->sum_kv = fmin(amount->sum_kv, n * (held + q));
    amount->sum_cached = fmin(amount->sum_cached, n * held);
    amount->sum_q_kv = fmin(amount->sum_q_kv, n * seen);
}

static struct op_amount amount_of_spans(const struct graph *graph, const struct op *op,
                                        const int64_t sym[SYM_COUNT]) {
    int64_t cached = sym[op->span_k] - sym[op->span_q];
    const uint32_t window = graph_heads(graph, op).local_window;
    struct op_amount amount = {.sum_q = (double)sym[op->span_q],
                               .sum_kv = (double)sym[op->span_k],
                               .sum_cached = cached > 0 ? (double)cached : 0,
                               .sum_q_kv = (double)sym[op->span_qk]};
    if (window > 0 && sym[op->span_n] > 0) {
        limit_to_window(op, (double)sym[op->span_n], window, &amount);
    }
    return amount;
}

static void begin_spans(struct priced *p) {
    const struct lookup *l = p->lookup;
    p->amount = amount_of_spans(l->of->graph, l->op, p->shape->sym);
    p->work = l->type->work(l->of->graph, l->op, &p->amount);
    p->price = (struct op_price){.match = PRICE_ROOFLINE,
                                 .executions = 1,
                                 .flops = p->work.flops,
                                 .fp8_flops = p->work.fp8_flops,
                                 .bytes = op_work_bytes(&p->work)};
}

/* ---- all executions ---- */

static void price_add(struct op_price *sum, const struct op_price *price, double times) {
    sum->ns += times * price->ns;
    sum->compute_ns += times * price->compute_ns;
    sum->flops += times * price->flops;
    sum->fp8_flops += times * price->fp8_flops;
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
    price.fp8_flops *= share;
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
        amount = amount_of_spans(l->of->graph, l->op, sym);
    } else {
        amount.rows = (double)sym[l->op->rows];
        amount.n_steps = n_steps;
        amount.hits = hits_of(l, amount.rows / n_steps);
    }
    *out = l->type->work(l->of->graph, l->op, &amount);
}
