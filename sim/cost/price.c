#include "sim/cost/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/cost/answers.h"
#include "sim/cost/floor.h"
#include "sim/cost/roofline.h"
#include "sim/cost/varlen.h"
#include "sim/model/ranks.h"

const char *const op_bound_names[] = {"compute", "bandwidth", "launch"};
const char *const price_match_words[PRICE_MATCH_COUNT] = {"exact", "interpolated", "extrapolated",
                                                          "roofline"};

/* Every operator but attention depends on one symbol. The sum over the operators of a symbol is
 * remembered for each value below TABLE_VALUES, in the chunks it was last asked for; larger ones
 * are computed each time. */
enum { TABLE_VALUES = 1 << 17 };

struct known_price {
    double ns; /* 0: not yet known */
    struct chunk_rows chunks;
    uint16_t lookups[PRICE_MATCH_COUNT];
    float match_ns[PRICE_MATCH_COUNT], behind_ns; /* for shares alone: floats will do */
};

/* A step's host time and launches by what is in it, all layers together. */
struct host_terms {
    double step_ns, launches, request_ns, request_launches;
};

struct cost_model {
    const struct gpu *gpu;
    const struct profile *profile;
    const struct runtime *runtime;
    const struct graph *graph;
    enum symbol used[SYM_COUNT]; /* that some operator depends on alone, in order */
    uint32_t n_used;
    struct known_price *known[SYM_COUNT]; /* TABLE_VALUES entries, for used symbols */
    struct host_terms host[HOST_KIND_COUNT];
    double n_executions;                            /* operators of one step, repetitions counted */
    uint32_t attention[GRAPH_MAX_OPS], n_attention; /* operators priced from span sums */
    const struct expert_routing *routing;
    bool stores_passes;
    enum symbol stored_rows;
    uint32_t n_behind;
    bool is_behind[GRAPH_MAX_OPS]; /* answered by the profile behind the first */
    /* PROVENANCE_ROOFLINE where there is no such profile. */
    enum provenance_kind kind, behind_kind;
    const struct profile
        *answers[GRAPH_MAX_OPS]; /* what each operator is priced from; NULL: roofline */
    struct profile_layouts layouts[GRAPH_MAX_OPS]; /* of attention, in what answers it */
    int curves[GRAPH_MAX_OPS];                     /* in the load of what answers; -1: none */
};

static bool is_attention(const struct op *op) {
    return op->kind == OP_ATTENTION_FULL || op->kind == OP_ATTENTION_BLOCK ||
           op->kind == OP_ATTENTION_PREFILL;
}

/* What there is one of, whatever the rows, is too small to count. */
static int64_t bytes_of_row(const struct tensor *tensor) {
    return tensor->bytes.symbol == SYM_ONE ? 0 : tensor->bytes.per;
}

/* Bytes that one row of a pass over rows reads and writes. */
static int64_t bytes_per_row(const struct graph *graph, const struct op *op) {
    int64_t bytes = 0;
    for (int i = 0; i < OP_MAX_TENSORS; i++) {
        bytes += op->in[i] >= 0 ? bytes_of_row(&graph->tensors[op->in[i]]) : 0;
        bytes += op->out[i] >= 0 ? bytes_of_row(&graph->tensors[op->out[i]]) : 0;
    }
    /* A copy reads what it writes, however wide the tensor it reads from. */
    if (op->kind == OP_GATHER) {
        bytes = 2 * graph->tensors[op->out[0]].bytes.per;
    }
    /* Raised logits are searched once they are written. A list of credit is read and written whole,
     * at most, and no more logits are read than it has entries. */
    if (op->kind == OP_CREDIT && op->out[2] >= 0) {
        bytes += graph->tensors[op->out[2]].bytes.per;
    } else if (op->kind == OP_CREDIT) {
        bytes = 2 * graph->tensors[op->in[1]].bytes.per + 3 * graph->tensors[op->in[2]].bytes.per;
    }
    return bytes;
}

/* A table that says less than what must be moved or multiplied takes was asked for another shape
 * than it holds, or was timed in a loop that found its weights in the L2 cache. */
static void raise_to_floor(const struct gpu *gpu, double cold_bytes, struct op_price *price) {
    double least_ns = floor_ns(gpu, price->flops, cold_bytes);
    if (price->ns < least_ns) {
        price->ns = least_ns;
        price->match = PRICE_ROOFLINE;
    }
}

static void settle(struct op_price *price, const struct gpu *gpu) {
    double compute_ns = price->flops / gpu->peak_bf16_flops * 1e9;
    double memory_ns = price->bytes / gpu->peak_bandwidth * 1e9;
    double larger = compute_ns > memory_ns ? compute_ns : memory_ns;
    /* A kernel that runs at under a tenth of either roof is bound by its launch. */
    price->bound = larger < 0.1 * price->ns ? BOUND_LAUNCH
                   : compute_ns > memory_ns ? BOUND_COMPUTE
                                            : BOUND_BANDWIDTH;
}

static const struct profile *answering(const struct cost_model *cost, const struct op *op) {
    return cost->answers[op - cost->graph->ops];
}

static double load_of(const struct cost_model *cost, const struct op *op, int64_t rows) {
    const struct profile *profile = answering(cost, op);
    int curve = cost->curves[op - cost->graph->ops];
    return profile != NULL ? load_factor(profile_load(profile), curve, (double)rows) : 1;
}

/* The clock is of no help where memory binds. */
static void take_product_ratio(const struct cost_model *cost, struct op_price *price) {
    double ratio = cost->runtime->product_ratio;
    double memory_ns = price->bytes / cost->gpu->best_bandwidth * 1e9;
    if (ratio > 0 && price->ns > memory_ns) {
        price->ns = price->ns * ratio > memory_ns ? price->ns * ratio : memory_ns;
    }
}

static void price_gemm(const struct cost_model *cost, const struct op *op, int64_t m,
                       struct op_price *price) {
    const struct profile *profile = answering(cost, op);
    price->flops = 2.0 * (double)m * (double)op->n * (double)op->k;
    price->bytes = (double)(cost->graph->element_bytes * (m * op->k + op->k * op->n + m * op->n));
    if (profile != NULL) {
        enum profile_match match;
        price->ns = profile_gemm(profile, m, op->n, op->k, &match);
        price->match = match;
        take_product_ratio(cost, price);
    } else {
        price->ns = roofline_gemm_ns(cost->gpu, m, op->n, op->k);
    }
}

/* The head with argmax and confidence in one; the product alone where the profile has no such rows.
 * Its logits are never stored: what it moves is hidden states and weights. */
static void price_head(const struct cost_model *cost, const struct op *op, int64_t rows,
                       struct op_price *price) {
    const struct profile *profile = answering(cost, op);
    price_gemm(cost, op, rows, price);
    price->bytes = (double)(cost->graph->element_bytes * op->k * (rows + op->n));
    if (profile != NULL && profile_has(profile, PROFILE_HEAD)) {
        enum profile_match match;
        price->ns = profile_fused(profile, PROFILE_HEAD, rows, op->n, op->k, &match);
        price->match = match;
    }
}

static bool is_experts(enum op_kind kind) {
    return kind == OP_MOE_LINEAR || kind == OP_MOE_GATE_UP || kind == OP_MOE_DOWN;
}

/* Rows and in-step corrections of our own hold the experts that our router hit, fewer than chance
 * has (45.9 of 64 at 64 tokens of LLaDA-MoE): they go by no other number unless one is asked for.
 */
static bool knows_its_hits(const struct cost_model *cost, const struct op *op) {
    bool is_behind = cost->is_behind[op - cost->graph->ops];
    return is_experts(op->kind) && !cost->routing->is_given &&
           (is_behind ? cost->behind_kind : cost->kind) == PROVENANCE_MEASURED;
}

static double hits_of(const struct cost_model *cost, const struct op *op, double m) {
    return routing_hits(cost->routing, op->experts, op->experts_active, m);
}

/* FLOPs and bytes of one product of the experts, the weights of those that m tokens hit among them.
 * Where gates and ups are one operator with their activation, a token is read once, and half as
 * much is written. */
static void work_of_experts(const struct cost_model *cost, const struct op *op, double m,
                            double n_steps, double *flops, double *bytes) {
    const struct graph *graph = cost->graph;
    double pairs = m * op->experts_active, matrix = (double)(op->n * op->k);
    double weights = n_steps * matrix * hits_of(cost, op, m / n_steps);
    double moved = op->kind == OP_MOE_GATE_UP ? m * (double)op->k + pairs * (double)op->n / 2
                                              : pairs * (double)(op->n + op->k);
    *flops = 2 * pairs * matrix;
    *bytes = (double)graph->element_bytes * (weights + moved);
}

/* Gate-up and down are measured together; two thirds of their weights are gate and up. */
static void price_experts(const struct cost_model *cost, const struct op *op, int64_t m,
                          struct op_price *price) {
    const struct profile *profile = answering(cost, op);
    const struct model *model = cost->graph->model;
    bool is_down = op->kind == OP_MOE_DOWN ||
                   (op->kind == OP_MOE_LINEAR && op->k == (int64_t)model->expert_ffn);
    work_of_experts(cost, op, (double)m, 1, &price->flops, &price->bytes);
    if (profile != NULL) {
        enum profile_match match;
        struct moe_shape shape = {model->hidden, model->expert_ffn, op->experts_active,
                                  op->experts};
        double hits = knows_its_hits(cost, op) ? 0 : hits_of(cost, op, (double)m);
        double both = profile_moe(profile, shape, m, hits, &match);
        price->match = match;
        price->ns = both * (is_down ? 1.0 / 3 : 2.0 / 3);
    } else {
        price->ns = roofline_ns(cost->gpu, price->flops, price->bytes);
    }
}

/* Bytes that a pass moves through memory; what stays in the L2 cache counts as the bytes that
 * memory would move in the same time. */
static int64_t pass_bytes(const struct cost_model *cost, const struct op *op, int64_t rows) {
    int64_t bytes = rows * bytes_per_row(cost->graph, op);
    int64_t extra = rows * op->eager_bytes - bytes;
    if (op->eager_bytes > 0 && extra <= 0) {
        return rows * op->eager_bytes;
    }
    if (extra <= 0) {
        return bytes;
    }
    bool spills = rows * op->temporary_bytes > cost->gpu->l2_bytes;
    double share = spills ? 1 : cost->gpu->best_bandwidth / cost->gpu->l2_bandwidth;
    return bytes + (int64_t)(share * (double)extra);
}

/* A pass over `rows` rows that moves `bytes` in all; `pass` is its name in a profile, or -1. */
static void price_named(const struct cost_model *cost, const struct op *op, int pass,
                        int64_t channels, int64_t rows, int64_t bytes, struct op_price *price) {
    const struct profile *profile = answering(cost, op);
    enum profile_match match;
    price->bytes = (double)bytes;
    if (profile != NULL && pass >= 0 && profile_has_pass(profile, (enum profile_pass)pass)) {
        price->ns = profile_pass(profile, (enum profile_pass)pass, channels, rows, &match);
        price->match = match;
    } else if (profile != NULL && profile_has(profile, PROFILE_ELEMENTWISE)) {
        price->ns = profile_elementwise(profile, bytes, &match);
        price->match = match;
    } else {
        price->ns = roofline_ns(cost->gpu, 0, (double)bytes);
    }
}

static void price_pass(const struct cost_model *cost, const struct op *op, int64_t rows,
                       struct op_price *price) {
    int64_t channels;
    int pass = answers_pass(cost->graph, op, &channels);
    price_named(cost, op, pass, channels, rows, pass_bytes(cost, op, rows), price);
    if (op->eager_sm_rate > 0) {
        double rate = op->eager_sm_rate * cost->gpu->sms;
        double least_ns = (double)(rows * op->eager_bytes) / rate;
        price->ns = least_ns > price->ns ? least_ns : price->ns;
    }
}

/* Double-precision instructions of a logit in PyTorch's softmax, whose kernel passes over a row
 * three times: 1 for the largest, 19 for the sum of exponentials (what nvcc 13 makes of exp() and
 * the sum for sm_90), 18 and a division (9, assumed) for exponential over sum. Data sheets count an
 * instruction as 2 FLOPs. */
enum { FP64_OF_SOFTMAX = 47 };

static void price_softmax(const struct cost_model *cost, const struct op *op, int64_t rows,
                          struct op_price *price) {
    const struct graph *graph = cost->graph;
    price_pass(cost, op, rows, price);
    if (graph->tensors[op->out[0]].bytes.per ==
        model_logits_bytes_per_row(graph->model, (int64_t)sizeof(double))) {
        double flops = 2.0 * FP64_OF_SOFTMAX * (double)rows * (double)graph->model->vocab;
        double compute_ns = flops / cost->gpu->peak_fp64_flops * 1e9;
        price->ns = compute_ns > price->ns ? compute_ns : price->ns;
    }
}

/* Both products and the activation in one; without rows of it, the product and then the pass that
 * the activation is where it stands alone, as the engine runs it on GPUs without that kernel. */
static void price_gate_up(const struct cost_model *cost, const struct op *op, int64_t rows,
                          struct op_price *price) {
    const struct profile *profile = answering(cost, op);
    int64_t element_bytes = cost->graph->element_bytes, width = op->n / 2;
    price_gemm(cost, op, rows, price);
    if (profile != NULL && profile_has(profile, PROFILE_GATE_UP)) {
        enum profile_match match;
        price->ns = profile_fused(profile, PROFILE_GATE_UP, rows, op->n, op->k, &match);
        price->match = match;
    } else {
        struct op_price activation = {.match = PRICE_ROOFLINE};
        price_named(cost, op, PASS_SWIGLU, width, rows, 3 * width * element_bytes * rows,
                    &activation);
        /* Most of the time says what kind of price it is: the product's, unless it is tiny. */
        price->match = activation.ns > price->ns ? activation.match : price->match;
        price->ns += activation.ns;
    }
    price->bytes = (double)(element_bytes * (op->k * (rows + op->n) + rows * width));
}

/* Ranks exchange what one of them holds: its part of a sum, or what it has to be gathered. */
static void price_collective(const struct cost_model *cost, const struct op *op, int64_t rows,
                             struct op_price *price) {
    const struct profile *profile = answering(cost, op);
    const struct graph *graph = cost->graph;
    uint32_t ranks = model_ranks(graph->model);
    bool reduces = op->kind == OP_ALL_REDUCE;
    int64_t bytes = rows * graph->tensors[reduces ? op->out[0] : op->in[0]].bytes.per;
    price->bytes = (double)bytes * (reduces ? 2 : 1 + ranks);
    if (profile != NULL && profile_has(profile, answers_collective(op))) {
        enum profile_match match;
        price->ns = profile_collective(profile, answers_collective(op), ranks, bytes, &match);
        price->match = match;
    } else {
        price->ns = link_ns(cost->gpu, ranks, (double)bytes, reduces);
    }
}

/* One execution over `rows` rows. */
static void price_rows(const struct cost_model *cost, const struct op *op, int64_t rows,
                       struct op_price *price) {
    *price = (struct op_price){.match = PRICE_ROOFLINE, .executions = 1};
    switch (op->kind) {
    case OP_LINEAR:
        price_gemm(cost, op, rows, price);
        break;
    case OP_HEAD:
        price_head(cost, op, rows, price);
        break;
    case OP_GATE_UP:
        price_gate_up(cost, op, rows, price);
        break;
    case OP_MOE_LINEAR:
    case OP_MOE_GATE_UP:
    case OP_MOE_DOWN:
        price_experts(cost, op, rows, price);
        break;
    case OP_MOE_ROUTE:
    case OP_MOE_CHOOSE:
    case OP_MOE_COMBINE:
        if (answers_in_experts(answering(cost, op), op)) {
            price->match = PROFILE_EXACT;
        } else if (op->kind == OP_MOE_ROUTE) {
            price_gemm(cost, op, rows, price);
        } else {
            price_pass(cost, op, rows, price);
        }
        break;
    case OP_SOFTMAX:
        price_softmax(cost, op, rows, price);
        break;
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
        price_collective(cost, op, rows, price);
        break;
    default:
        price_pass(cost, op, rows, price);
        break;
    }
    price->ns *= load_of(cost, op, rows);
    if (!answers_in_experts(answering(cost, op), op) && !knows_its_hits(cost, op)) {
        double hits = is_experts(op->kind) ? hits_of(cost, op, (double)rows) : 0;
        raise_to_floor(cost->gpu, floor_bytes(cost->graph, op, (double)rows, hits), price);
    }
    settle(price, cost->gpu);
}

static struct profile_spans spans_of(const struct cost_model *cost, const struct op *op,
                                     const int64_t sym[SYM_COUNT]) {
    const struct model *model = cost->graph->model;
    return (struct profile_spans){
        .n_seqs = sym[op->span_n],
        .sum_q = (double)sym[op->span_q],
        .sum_kv = (double)sym[op->span_k],
        .sum_q_kv = (double)sym[op->span_qk],
        .heads = model->heads,
        .kv_heads = model->kv_heads,
        .head_dim = model->head_dim,
        .layouts = &cost->layouts[op - cost->graph->ops],
    };
}

static void work_of_spans(const struct cost_model *cost, const struct op *op,
                          const int64_t sym[SYM_COUNT], struct op_price *price) {
    struct profile_spans spans = spans_of(cost, op, sym);
    double row_bytes = (double)(spans.head_dim * cost->graph->element_bytes);
    price->flops = 4.0 * spans.sum_q_kv * (double)(spans.heads * spans.head_dim);
    price->bytes =
        row_bytes * 2 * (spans.sum_q * (double)spans.heads + spans.sum_kv * (double)spans.kv_heads);
}

/* Which rows of the profile answer for an attention operator: its own where there are any. */
static double profiled_spans(const struct cost_model *cost, const struct op *op,
                             const struct profile_spans *spans, enum profile_match *match) {
    const struct profile *profile = answering(cost, op);
    if (op->kind == OP_ATTENTION_FULL && profile_has(profile, PROFILE_ATTENTION_FULL)) {
        return profile_attention_full(profile, spans, match);
    }
    if (op->kind == OP_ATTENTION_BLOCK && profile_has(profile, PROFILE_ATTENTION_BLOCK)) {
        return profile_attention_block(profile, spans, match);
    }
    return op->kind == OP_ATTENTION_PREFILL ? profile_attention_prefill(profile, spans, match)
                                            : profile_attention(profile, spans, match);
}

static void price_spans(const struct cost_model *cost, const struct op *op,
                        const struct step_shape *shape, struct op_price *price) {
    const struct profile *profile = answering(cost, op);
    *price = (struct op_price){.match = PRICE_ROOFLINE, .executions = 1};
    work_of_spans(cost, op, shape->sym, price);
    if (profile != NULL) {
        struct profile_spans spans = spans_of(cost, op, shape->sym);
        enum profile_match match;
        price->ns = profiled_spans(cost, op, &spans, &match);
        if (cost->runtime->varlen_attention && op->kind == OP_ATTENTION_BLOCK &&
            spans.sum_q == (double)spans.n_seqs) {
            price->ns = varlen_single_ns(profile, shape, &spans, price->ns, &match);
        }
        price->match = match;
    } else {
        price->ns = roofline_ns(cost->gpu, price->flops, price->bytes);
    }
    price->ns *= load_of(cost, op, shape->sym[op->span_q]);
    raise_to_floor(cost->gpu, floor_span_bytes(cost->graph, op, shape->sym), price);
    settle(price, cost->gpu);
}

/* One chunk's queries against all keys: its share of the whole's time, and no less than the keys
 * and values take to be read once more. */
static void share_spans(const struct cost_model *cost, const struct op *op, double share,
                        const struct op_price *whole, const struct step_shape *shape,
                        struct op_price *price) {
    struct profile_spans spans = spans_of(cost, op, shape->sym);
    double row_bytes = (double)(spans.head_dim * cost->graph->element_bytes);
    *price = *whole;
    price->flops *= share;
    price->bytes =
        row_bytes * 2 *
        (share * spans.sum_q * (double)spans.heads + spans.sum_kv * (double)spans.kv_heads);
    double least_ns = price->bytes / cost->gpu->best_bandwidth * 1e9;
    price->ns = whole->ns * share > least_ns ? whole->ns * share : least_ns;
    settle(price, cost->gpu);
}

static void price_add(struct op_price *sum, const struct op_price *price, double times) {
    sum->ns += times * price->ns;
    sum->flops += times * price->flops;
    sum->bytes += times * price->bytes;
    sum->executions += (uint32_t)times * price->executions;
    sum->match = price->match > sum->match ? price->match : sum->match;
    sum->bound = price->bound;
}

/* Whether spans whose rows are stored pay a pass of its own behind this operator; eager code keeps
 * them where they are. */
static bool keeps_behind(const struct cost_model *cost, const struct op *op) {
    return cost->stores_passes && op->kind == OP_ROPE && op->eager_bytes == 0;
}

/* That pass, over the rows of those spans. The operator's bytes count its writes already. */
static void price_keep(const struct cost_model *cost, const struct op *op, int64_t rows,
                       struct op_price *sum) {
    const struct model *model = cost->graph->model;
    int64_t channels = (int64_t)model->kv_heads * model->head_dim;
    uint32_t repeat = cost->graph->segments[op->segment].repeat;
    enum profile_match match;
    double ns = profile_pass(cost->profile, PASS_KEEP, channels, rows, &match);
    const struct load *load = profile_load(cost->profile);
    double factor = load_factor(load, load_find(load, op->kind, op->name), (double)rows);
    sum->ns += repeat * ns * factor;
    sum->executions += repeat;
    sum->match = match > sum->match ? match : sum->match;
}

/* Whose word the price is, once all of it is there. */
static void set_kind(const struct cost_model *cost, const struct op *op, struct op_price *price) {
    bool is_behind = cost->is_behind[op - cost->graph->ops];
    price->kind = price->match == PRICE_ROOFLINE ? PROVENANCE_ROOFLINE
                  : is_behind                    ? cost->behind_kind
                                                 : cost->kind;
}

static void price_attention(const struct cost_model *cost, const struct op *op,
                            const struct step_shape *shape, struct chunk_rows chunks, double repeat,
                            struct op_price *sum) {
    struct op_price whole, price;
    int64_t rows = shape->sym[op->rows];
    int64_t chunk = op->loop < 0 ? rows : loop_chunk_rows(cost->graph, op->loop, shape, chunks);
    price_spans(cost, op, shape, &whole);
    if (chunk >= rows) {
        price_add(sum, &whole, repeat);
        return;
    }
    share_spans(cost, op, (double)chunk / (double)rows, &whole, shape, &price);
    int64_t n_whole = rows / chunk;
    price_add(sum, &price, repeat * (double)n_whole);
    if (rows % chunk != 0) {
        share_spans(cost, op, (double)(rows % chunk) / (double)rows, &whole, shape, &price);
        price_add(sum, &price, repeat);
    }
}

static bool reads_weights(enum op_kind kind) {
    return kind == OP_LINEAR || kind == OP_HEAD || kind == OP_GATE_UP || kind == OP_MOE_ROUTE ||
           is_experts(kind);
}

/* All executions of one operator in a step: repetitions of its segment, chunks of its rows.
 *
 * In chunks a product reads its weights again and saves nothing, so it takes no less than the
 * whole. Rows alone would have it cheaper: those of experts on the A100 take 0.68 us a token at
 * 8,192 tokens and 0.76 at 65,536. Passes over activations may be cheaper in chunks that stay in
 * the L2 cache. */
static void price_op(const struct cost_model *cost, const struct op *op,
                     const struct step_shape *shape, struct chunk_rows chunks,
                     struct op_price *sum) {
    double repeat = cost->graph->segments[op->segment].repeat;
    struct op_price price;
    *sum = (struct op_price){0};
    if (is_attention(op)) {
        if (shape->sym[op->span_n] > 0) {
            price_attention(cost, op, shape, chunks, repeat, sum);
        }
        return;
    }
    int64_t rows = shape->sym[op->rows];
    if (rows == 0) {
        return;
    }
    int64_t chunk = op->loop < 0 ? rows : loop_chunk_rows(cost->graph, op->loop, shape, chunks);
    price_rows(cost, op, chunk, &price);
    int64_t n_whole = rows / chunk;
    price_add(sum, &price, repeat * (double)n_whole);
    if (rows % chunk != 0) {
        price_rows(cost, op, rows % chunk, &price);
        price_add(sum, &price, repeat);
    }
    if (chunk < rows && reads_weights(op->kind)) {
        price_rows(cost, op, rows, &price);
        sum->ns = sum->ns < repeat * price.ns ? repeat * price.ns : sum->ns;
    }
}

static void known_add(struct known_price *known, const struct op_price *price, bool is_behind) {
    known->ns += price->ns;
    known->lookups[price->match]++;
    known->match_ns[price->match] += (float)price->ns;
    known->behind_ns += is_behind && price->match != PRICE_ROOFLINE ? (float)price->ns : 0;
}

/* The sum over the operators that depend on `symbol` alone, when it has this value. */
static struct known_price price_symbol(const struct cost_model *cost, enum symbol symbol,
                                       int64_t value, struct chunk_rows chunks) {
    struct known_price known = {.chunks = chunks};
    struct step_shape shape = {0};
    shape.sym[symbol] = value;
    for (uint32_t i = 0; i < cost->graph->n_ops; i++) {
        const struct op *op = &cost->graph->ops[i];
        if (!is_attention(op) && op->rows == symbol) {
            struct op_price price;
            price_op(cost, op, &shape, chunks, &price);
            known_add(&known, &price, cost->is_behind[i]);
        }
        if (symbol == cost->stored_rows && keeps_behind(cost, op)) {
            struct op_price keep = {0};
            price_keep(cost, op, value, &keep);
            known_add(&known, &keep, false);
        }
    }
    return known;
}

void cost_explain(struct cost_model *cost, const struct step_shape *shape, struct chunk_rows chunks,
                  struct op_price out[GRAPH_MAX_OPS]) {
    for (uint32_t i = 0; i < cost->graph->n_ops; i++) {
        const struct op *op = &cost->graph->ops[i];
        price_op(cost, op, shape, chunks, &out[i]);
        if (keeps_behind(cost, op) && shape->sym[cost->stored_rows] > 0) {
            price_keep(cost, op, shape->sym[cost->stored_rows], &out[i]);
        }
        set_kind(cost, op, &out[i]);
    }
}

void cost_work(const struct cost_model *cost, const int64_t sym[SYM_COUNT], double n_steps,
               double *flops, double *bytes) {
    double element_bytes = (double)cost->graph->element_bytes;
    *flops = *bytes = 0;
    for (uint32_t i = 0; i < cost->graph->n_ops; i++) {
        const struct op *op = &cost->graph->ops[i];
        double repeat = cost->graph->segments[op->segment].repeat;
        double rows = (double)sym[op->rows];
        double width = (double)(op->kind == OP_HEAD      ? op->k
                                : op->kind == OP_GATE_UP ? op->n / 2 + op->k
                                                         : op->n + op->k);
        double weights = (double)(op->n * op->k);
        if (is_attention(op)) {
            struct op_price price = {0};
            work_of_spans(cost, op, sym, &price);
            *flops += repeat * price.flops;
            *bytes += repeat * price.bytes;
        } else if (op->kind == OP_LINEAR || op->kind == OP_MOE_ROUTE || op->kind == OP_HEAD ||
                   op->kind == OP_GATE_UP) {
            *flops += repeat * 2 * rows * weights;
            *bytes += repeat * element_bytes * (rows * width + n_steps * weights);
        } else if (is_experts(op->kind)) {
            double op_flops, op_bytes;
            work_of_experts(cost, op, rows, n_steps, &op_flops, &op_bytes);
            *flops += repeat * op_flops;
            *bytes += repeat * op_bytes;
        } else {
            *bytes += repeat * rows * (double)bytes_per_row(cost->graph, op);
        }
    }
}

/* What the host pays for the step, and the launches it makes beyond the graph's operators. */
static double host_ns(const struct cost_model *cost, const struct step_shape *shape,
                      double *launches) {
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
        requests_ns += requests * terms->request_ns;
        *launches += requests * terms->request_launches;
    }
    *launches += most_launches;
    return cost->runtime->host_factor * (most_ns + requests_ns);
}

/* How host and device go together; `head_ns` is part of the device's time. */
static void take_wall(const struct runtime *r, const struct step_shape *shape, double head_ns,
                      uint32_t layers, struct step_price *out) {
    bool reuses = shape->sym[SYM_REFRESH_N] == 0 && shape->sym[SYM_SELECT_N] == 0;
    double sync_ns = reuses ? r->host_sync_ns[HOST_REUSE] + r->host_sync_layer_ns * layers
                            : r->host_sync_ns[HOST_REFRESH];
    double trunk_ns = out->device_ns - head_ns;
    double look_ns = r->host_factor * r->host_look_ns * (double)shape->sym[SYM_REQUESTS];
    switch ((enum host_mode)r->host_mode) {
    case HOST_SERIAL:
        out->wall_ns = out->device_ns + out->host_ns;
        break;
    case HOST_OVERLAPS:
        out->wall_ns = out->device_ns + r->host_factor * sync_ns;
        out->wall_ns = out->wall_ns > out->host_ns ? out->wall_ns : out->host_ns;
        break;
    case HOST_BY_LAYERS:
        out->wall_ns = (trunk_ns > out->host_ns ? trunk_ns : out->host_ns) + head_ns + look_ns;
        out->host_ns += look_ns;
        break;
    }
}

/* The chunks as far as they matter at this value of a symbol: numbers of rows that hold no loop
 * back are 0, so that equal prices are known by equal chunks. */
static struct chunk_rows effective(const struct cost_model *cost, enum symbol symbol, int64_t value,
                                   struct chunk_rows asked) {
    struct chunk_rows chunks = {{0}};
    for (uint32_t i = 0; i < cost->graph->n_loops; i++) {
        const struct chunk_loop *loop = &cost->graph->loops[i];
        if (loop->rows == symbol && asked.of[loop->kind] < value) {
            chunks.of[loop->kind] = asked.of[loop->kind];
        }
    }
    return chunks;
}

void cost_price(struct cost_model *cost, const struct step_shape *shape, struct chunk_rows asked,
                struct step_price *out) {
    memset(out, 0, sizeof *out);
    double device = 0, head_ns = 0, behind_ns = 0, match_ns[PRICE_MATCH_COUNT] = {0};
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
        head_ns += symbol == SYM_LOGIT_ROWS ? known->ns : 0;
        for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
            lookups[match] += known->lookups[match];
            match_ns[match] += (double)known->match_ns[match];
        }
        behind_ns += (double)known->behind_ns;
    }
    memcpy(out->lookups, lookups, sizeof lookups);
    out->time = (struct price_time){.behind_ns = behind_ns};
    memcpy(out->time.match_ns, match_ns, sizeof match_ns);
    for (uint32_t i = 0; i < cost->n_attention; i++) {
        struct op_price price;
        price_op(cost, &cost->graph->ops[cost->attention[i]], shape, asked, &price);
        device += price.ns;
        out->lookups[price.match] += price.executions > 0;
        out->time.match_ns[price.match] += price.ns;
        if (cost->is_behind[cost->attention[i]] && price.match != PRICE_ROOFLINE) {
            out->time.behind_ns += price.ns;
        }
    }
    double launches;
    out->host_ns = host_ns(cost, shape, &launches);
    launches = launches > cost->n_executions ? launches - cost->n_executions : 0;
    out->device_ns = device + launches * cost->runtime->small_kernel_ns;
    int64_t kept = shape->sym[SYM_KEPT_Q];
    if (kept > 0 && kept < shape->sym[SYM_BLOCK_Q]) {
        out->device_ns += cost->runtime->host_factor * cost->runtime->evict_ns;
    }
    take_wall(cost->runtime, shape, head_ns, cost->graph->model->layers, out);
}

static enum provenance_kind kind_of(const struct profile *profile) {
    return profile == NULL ? PROVENANCE_ROOFLINE
                           : (enum provenance_kind)provenance_find(profile_kind(profile));
}

static void choose_profiles(struct cost_model *cost, const struct profile *behind) {
    cost->kind = kind_of(cost->profile);
    cost->behind_kind = kind_of(behind);
    for (uint32_t i = 0; i < cost->graph->n_ops; i++) {
        const struct op *op = &cost->graph->ops[i];
        bool asks_behind = cost->profile != NULL && behind != NULL &&
                           !answers_as_measured(cost->profile, cost->graph, op) &&
                           answers_at_all(behind, cost->graph, op);
        cost->answers[i] = asks_behind ? behind : cost->profile;
        cost->n_behind += asks_behind;
        cost->is_behind[i] = asks_behind;
        cost->curves[i] = cost->answers[i] != NULL
                              ? load_find(profile_load(cost->answers[i]), op->kind, op->name)
                              : -1;
        if (cost->answers[i] != NULL && is_attention(op)) {
            const struct model *m = cost->graph->model;
            cost->layouts[i] =
                profile_layouts_of(cost->answers[i], m->heads, m->kv_heads, m->head_dim);
        }
    }
}

static void use_symbol(struct cost_model *cost, enum symbol symbol) {
    if (cost->known[symbol] == NULL) {
        cost->known[symbol] = calloc(TABLE_VALUES, sizeof *cost->known[symbol]);
        ASSERT(cost->known[symbol] != NULL);
    }
    cost->n_used = 0;
    for (int i = 0; i < SYM_COUNT; i++) {
        if (cost->known[i] != NULL) {
            cost->used[cost->n_used++] = (enum symbol)i;
        }
    }
}

/* Operators that their profile has no rows of: refused, or by roofline. */
static int settle_gaps(struct cost_model *cost, bool fills, struct err *err) {
    for (uint32_t i = 0; cost->profile != NULL && i < cost->graph->n_ops; i++) {
        struct err missing = {0};
        if (answers_required(cost->answers[i], &cost->graph->ops[i], &missing) == 0) {
            continue;
        }
        if (!fills) {
            return err_world(err,
                             "%s: price by the data sheet (--roofline), or on a GPU that has them "
                             "(`unmask profile show NAME` lists a GPU's)",
                             missing.text);
        }
        cost->n_behind -= cost->is_behind[i];
        cost->answers[i] = NULL;
        cost->is_behind[i] = false;
        cost->curves[i] = -1;
    }
    return 0;
}

static void add_up_layers(struct cost_model *cost) {
    const struct runtime *r = cost->runtime;
    double layers = (double)cost->graph->model->layers;
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        cost->host[kind] = (struct host_terms){
            .step_ns = r->host_step_ns[kind] + layers * r->host_layer_ns[kind],
            .launches = r->launches_step[kind] + layers * r->launches_layer[kind],
            .request_ns = r->host_request_ns[kind] + layers * r->host_layer_request_ns[kind],
            .request_launches =
                r->launches_request[kind] + layers * r->launches_layer_request[kind]};
    }
}

static int open_cost(const struct gpu *gpu, const struct profile *profile,
                     const struct profile *behind, const struct runtime *runtime,
                     const struct graph *graph, bool fills_gaps, struct cost_model **out,
                     struct err *err) {
    struct cost_model *cost = calloc(1, sizeof *cost);
    ASSERT(cost != NULL);
    static const struct expert_routing chance = {.exponent = 1};
    *cost = (struct cost_model){
        .gpu = gpu, .profile = profile, .runtime = runtime, .graph = graph, .routing = &chance};
    add_up_layers(cost);
    choose_profiles(cost, behind);
    int status = settle_gaps(cost, fills_gaps, err);
    if (status != 0) {
        free(cost);
        return status;
    }
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        cost->n_executions += graph->segments[op->segment].repeat;
        if (is_attention(op)) {
            cost->attention[cost->n_attention++] = i;
        } else {
            use_symbol(cost, op->rows);
        }
    }
    *out = cost;
    return 0;
}

int cost_open(const struct gpu *gpu, const struct profile *profile, const struct profile *behind,
              const struct runtime *runtime, const struct graph *graph, struct cost_model **out,
              struct err *err) {
    return open_cost(gpu, profile, behind, runtime, graph, false, out, err);
}

int cost_open_with_gaps(const struct gpu *gpu, const struct profile *profile,
                        const struct profile *behind, const struct runtime *runtime,
                        const struct graph *graph, struct cost_model **out, struct err *err) {
    return open_cost(gpu, profile, behind, runtime, graph, true, out, err);
}

const struct profile *cost_collectives(const struct cost_model *cost) {
    const struct profile *profile = NULL;
    for (uint32_t i = 0; i < cost->graph->n_ops; i++) {
        const struct op *op = &cost->graph->ops[i];
        bool answers = op->kind == OP_ALL_REDUCE && cost->answers[i] != NULL &&
                       profile_has(cost->answers[i], PROFILE_ALL_REDUCE);
        profile = answers ? cost->answers[i] : profile;
    }
    return profile;
}

uint32_t cost_ops_behind(const struct cost_model *cost) {
    return cost->n_behind;
}

struct price_shares cost_shares(const struct cost_model *cost, const struct price_time *time) {
    struct price_shares shares = {0};
    double all_ns = 0;
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        all_ns += time->match_ns[match];
    }
    if (all_ns <= 0) {
        return shares;
    }
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        shares.by_match[match] = time->match_ns[match] / all_ns;
    }
    double roofline_ns = time->match_ns[PRICE_ROOFLINE];
    shares.by_kind[PROVENANCE_ROOFLINE] = roofline_ns / all_ns;
    shares.by_kind[cost->behind_kind] += time->behind_ns / all_ns;
    shares.by_kind[cost->kind] += (all_ns - roofline_ns - time->behind_ns) / all_ns;
    return shares;
}

void cost_routes(struct cost_model *cost, const struct expert_routing *routing) {
    cost->routing = routing;
}

double cost_experts_hit(const struct cost_model *cost, double n_tokens) {
    for (uint32_t i = 0; i < cost->graph->n_ops; i++) {
        const struct op *op = &cost->graph->ops[i];
        if (is_experts(op->kind)) {
            return knows_its_hits(cost, op) ? (double)NAN : hits_of(cost, op, n_tokens);
        }
    }
    return 0;
}

void cost_stores_passes(struct cost_model *cost, enum symbol rows) {
    if (cost->profile != NULL && profile_has_pass(cost->profile, PASS_KEEP)) {
        cost->stores_passes = true;
        cost->stored_rows = rows;
        use_symbol(cost, rows);
    }
}

void cost_close(struct cost_model *cost) {
    if (cost == NULL) {
        return;
    }
    for (int symbol = 0; symbol < SYM_COUNT; symbol++) {
        free(cost->known[symbol]);
    }
    free(cost);
}
