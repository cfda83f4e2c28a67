#include "sim/graph/builder.h"

#include "sim/graph/registrar.h"
#include "sim/model/ranks.h"

#define LIST(...) ((const int[]){__VA_ARGS__, -1})

enum { INDEX_BYTES = 4 }; /* of a number of tokens, pairs or experts */

static void add_linear(struct graph *g, const char *name, enum symbol rows, int64_t n, int64_t k,
                       int in, int out) {
    struct op *op = graph_add_op(g, name, OP_LINEAR, rows, LIST(in), LIST(out));
    op->n = n;
    op->k = k;
    op->weight_bytes = g->element_bytes * n * k;
}

/* Traffic of eager PyTorch in bytes per element, counted operator by operator in LLaDA's modeling
 * code. Norm: to float32 6, square 8, mean 4, scale 8, to bf16 6, times weight 2: 34. Rotation of
 * queries and keys: to float32 6, times cosine 8, rotate half 12, times sine 8, add 12, to bf16 6:
 * 52. SwiGLU: activation 4, product 6. Temporaries alive at once: 10, 12 and 6 bytes. */
enum {
    EAGER_NORM_BYTES = 34,
    EAGER_ROPE_BYTES = 52,
    EAGER_SWIGLU_BYTES = 10,
    NORM_TEMPORARY_BYTES = 10,
    ROPE_TEMPORARY_BYTES = 12,
    SWIGLU_TEMPORARY_BYTES = 6,
};

/* Nothing to add where the runtime has a kernel of its own for the operator. */
static void add_eager(struct op *op, const struct graph_options *options, int64_t bytes,
                      int64_t temporary_bytes) {
    op->eager_bytes = options->fused ? 0 : bytes;
    op->temporary_bytes = options->fused ? 0 : temporary_bytes;
}

/* Query and key channels that an operator rotates. */
static void add_rotation(struct op *op, int64_t query_channels, int64_t key_channels) {
    op->n = query_channels;
    op->k = key_channels;
}

struct builder {
    struct graph *g;
    const struct model *m;
    const struct graph_options *options;
    enum symbol tokens;        /* of the segment being built */
    int64_t hidden_bytes;      /* one token's hidden state */
    int64_t q_bytes, kv_bytes; /* one token's queries, its keys and values, one layer */
    int residual;
    int importance; /* of the first layer, where the second evicts; else -1 */
};

/* A layer-long tensor of `per` bytes a token. */
static int token_tensor(struct builder *b, const char *name, int64_t per) {
    return graph_add_tensor(b->g, name, b->tokens, per);
}

/* What a rank has of a sum over all of them becomes the sum. */
static void add_all_reduce(struct builder *b, const char *name, int tensor) {
    if (model_ranks(b->m) > 1) {
        graph_add_op(b->g, name, OP_ALL_REDUCE, b->g->tensors[tensor].bytes.symbol, LIST(tensor),
                     LIST(tensor));
    }
}

static int add_norm(struct builder *b, const char *name, int delta) {
    int normed = token_tensor(b, name, b->hidden_bytes);
    if (b->options->fused && delta >= 0) {
        graph_add_op(b->g, name, OP_RMSNORM, b->tokens, LIST(b->residual, delta),
                     LIST(b->residual, normed));
        return normed;
    }
    if (delta >= 0) {
        graph_add_op(b->g, "residual add", OP_ADD, b->tokens, LIST(b->residual, delta),
                     LIST(b->residual));
    }
    struct op *norm =
        graph_add_op(b->g, name, OP_RMSNORM, b->tokens, LIST(b->residual), LIST(normed));
    add_eager(norm, b->options, EAGER_NORM_BYTES * (int64_t)b->m->hidden,
              NORM_TEMPORARY_BYTES * (int64_t)b->m->hidden);
    return normed;
}

/* Scores for each candidate row, the best of them packed. Our own kernels score the fresh keys
 * where attention read them, and write the chosen rows' indices before they pack. */
static void add_selection(struct builder *b, int rotated, int64_t row_bytes) {
    struct graph *g = b->g;
    int64_t per = (int64_t)b->m->kv_heads * F32_BYTES;
    int scores = graph_add_tensor(g, "selection scores", SYM_SELECT_ROWS, per), indices = -1;
    bool together = b->options->selects_together && model_ranks(b->m) > 1;
    int keys = graph_add_cache(g, "scored keys", SYM_SELECT_ROWS, row_bytes / 2);
    int picked = graph_add_cache(g, "picked kv", SYM_PACK_ROWS, row_bytes);
    int packed = graph_add_cache(g, "packed kv", SYM_PACK_ROWS, row_bytes);
    if (b->options->engine) {
        indices = graph_add_tensor(g, "kept tokens", SYM_SELECT_ROWS, per); /* as wide as a score */
        graph_add_op(g, "score and select", OP_SELECT, SYM_SELECT_ROWS, LIST(keys),
                     LIST(scores, indices));
        graph_add_barrier(g, rotated);
    } else {
        graph_add_op(g, "score and select", OP_SELECT, SYM_SELECT_ROWS, LIST(keys), LIST(scores));
    }
    if (together) {
        g->tensors[scores].single = true;
        add_all_reduce(b, "scores all-reduce", scores);
    }
    graph_add_op(g, "pack", OP_PACK, SYM_PACK_ROWS, LIST(picked, scores), LIST(packed));
    if (together && b->options->engine) {
        graph_add_barrier(g, indices); /* chosen behind the sum, from the same keys */
        graph_add_barrier(g, rotated);
    }
}

/* FOCUS: the importance of the layer's masked tokens, and in the second layer the choice of those
 * that go on (arXiv 2601.23278, section 4): their queries and their residual stream, copied
 * together. Returns the queries. */
static int add_eviction(struct builder *b, int rotated) {
    struct graph *g = b->g;
    int importance = token_tensor(b, "importance", F32_BYTES);
    g->tensors[importance].single = true;
    graph_add_op(g, "importance", OP_IMPORTANCE, b->tokens, LIST(rotated), LIST(importance));
    add_all_reduce(b, "importance all-reduce", importance);
    if (b->importance < 0) {
        b->importance = importance;
        return rotated;
    }
    int before = b->residual;
    int queries = graph_add_tensor(g, "kept queries", SYM_KEPT_TOKENS, b->q_bytes);
    b->tokens = SYM_KEPT_TOKENS;
    b->residual = graph_add_tensor(g, "kept residual", SYM_KEPT_TOKENS, b->hidden_bytes);
    g->tensors[b->residual].carried = true;
    graph_add_op(g, "evict", OP_EVICT, SYM_KEPT_TOKENS,
                 LIST(b->importance, importance, rotated, before), LIST(queries, b->residual));
    return queries;
}

/* Attention under a mask of blocks or tokens: fresh keys and values are rows of the pool before
 * anyone attends to them. */
static void add_exact_attention(struct builder *b, int queries, int attended) {
    struct graph *g = b->g;
    bool evicted = b->tokens == SYM_KEPT_TOKENS;
    struct op *prefill = graph_add_op(g, "prefill attention", OP_ATTENTION_PREFILL, b->tokens,
                                      LIST(queries), LIST(attended));
    prefill->span_n = SYM_PREFILL_N;
    prefill->span_q = SYM_PREFILL_Q;
    prefill->span_k = SYM_PREFILL_K;
    prefill->span_qk = SYM_PREFILL_QK;
    int cache = graph_add_cache(g, "cached kv", evicted ? SYM_KEPT_K : SYM_BLOCK_K, b->kv_bytes);
    struct op *block = graph_add_op(g, "block attention", OP_ATTENTION_BLOCK, b->tokens,
                                    LIST(queries, cache), LIST(attended));
    block->span_n = SYM_BLOCK_N;
    block->span_q = evicted ? SYM_KEPT_Q : SYM_BLOCK_Q;
    block->span_k = evicted ? SYM_KEPT_K : SYM_BLOCK_K;
    block->span_qk = evicted ? SYM_KEPT_QK : SYM_BLOCK_QK;
}

static void add_full_attention(struct builder *b, int rotated, int attended, bool first) {
    struct graph *g = b->g;
    struct op *full = graph_add_op(g, "full attention", OP_ATTENTION_FULL, b->tokens, LIST(rotated),
                                   LIST(attended));
    full->span_n = first ? SYM_FIRST_N : SYM_FULL_N;
    full->span_q = full->span_k = first ? SYM_FIRST_TOKENS : SYM_FULL_Q;
    full->span_qk = first ? SYM_FIRST_QK : SYM_FULL_QK;
    if (first) {
        return;
    }
    int cache = graph_add_cache(g, "cached kv", SYM_CONTEXT_ROWS, b->kv_bytes);
    if (b->options->gathers_cache) {
        /* Gathered and concatenated request by request: a request's rows of one layer (under
         * 10 MB) stay in the L2 cache between the copies, so memory sees one read, one write. */
        int flat = graph_add_tensor(g, "flat kv", SYM_BLOCK_K, b->kv_bytes);
        graph_add_op(g, "kv gather", OP_GATHER, SYM_BLOCK_K, LIST(cache), LIST(flat));
        cache = flat;
    }
    struct op *block = graph_add_op(g, "block attention", OP_ATTENTION_BLOCK, b->tokens,
                                    LIST(rotated, cache), LIST(attended));
    block->span_n = SYM_BLOCK_N;
    block->span_q = SYM_BLOCK_Q;
    block->span_k = SYM_BLOCK_K;
    block->span_qk = SYM_BLOCK_QK;
    if (b->options->selects) {
        add_selection(b, rotated, b->kv_bytes);
    }
}

/* Attention of one layer: returns the tensor that holds its projected output. */
static int add_attention(struct builder *b, int normed, bool first, bool evicts) {
    const struct model *m = b->m;
    struct graph *g = b->g;
    int64_t q_dim = (int64_t)m->heads * m->head_dim, kv_dim = (int64_t)m->kv_heads * m->head_dim;
    int64_t row_bytes = b->kv_bytes;
    int qkv = token_tensor(b, "qkv", b->q_bytes + b->kv_bytes);
    add_linear(g, "qkv projection", b->tokens, q_dim + 2 * kv_dim, m->hidden, normed, qkv);
    if (b->options->compares_values && !first) {
        int values = graph_add_tensor(g, "fresh values", SYM_VALUE_ROWS, kv_dim * g->element_bytes);
        int cached = graph_add_cache(g, "cached values", SYM_VALUE_ROWS, kv_dim * g->element_bytes);
        int value_input = graph_add_tensor(g, "value input", SYM_VALUE_ROWS, b->hidden_bytes);
        graph_add_op(g, "value input", OP_GATHER, SYM_VALUE_ROWS, LIST(b->residual),
                     LIST(value_input));
        add_linear(g, "value projection", SYM_VALUE_ROWS, kv_dim, m->hidden, value_input, values);
        graph_add_op(g, "value similarity", OP_SIMILARITY, SYM_VALUE_ROWS, LIST(values, cached),
                     LIST(cached));
        if (model_ranks(m) > 1) {
            /* The products and both squares that a cosine over all heads is made of. */
            int cosine = graph_add_tensor(g, "similarities", SYM_VALUE_ROWS, 3LL * F32_BYTES);
            graph_add_op(g, "similarities all-reduce", OP_ALL_REDUCE, SYM_VALUE_ROWS, LIST(cached),
                         LIST(cosine));
        }
    }
    int rotated = b->options->fused ? graph_add_alias(g, "rotated qkv", qkv)
                                    : token_tensor(b, "rotated qkv", b->q_bytes + b->kv_bytes);
    int fresh = graph_add_cache(g, "fresh kv", b->tokens, row_bytes);
    struct op *rope =
        graph_add_op(g, "rope and kv write", OP_ROPE, b->tokens, LIST(qkv), LIST(rotated, fresh));
    add_rotation(rope, q_dim, kv_dim);
    add_eager(rope, b->options, EAGER_ROPE_BYTES * (q_dim + kv_dim) + 2 * row_bytes,
              ROPE_TEMPORARY_BYTES * (q_dim + kv_dim));
    int queries = evicts ? add_eviction(b, rotated) : rotated;
    int attended = token_tensor(b, "attention output", b->q_bytes);
    if (b->options->exact) {
        add_exact_attention(b, queries, attended);
    } else {
        add_full_attention(b, rotated, attended, first);
    }
    int projected = token_tensor(b, "attention projected", b->hidden_bytes);
    add_linear(g, "output projection", b->tokens, m->hidden, q_dim, attended, projected);
    add_all_reduce(b, "attention all-reduce", projected);
    return projected;
}

/* Keys and values of all tokens, then, chunk by chunk, queries, attention written over them, and
 * its projection added to the residual stream. Each chunk is normed for keys and values and once
 * more for its queries: three hidden states of a token are live throughout, the residual, a key and
 * a value. */
static void add_attention_in_chunks(struct builder *b) {
    const struct model *m = b->m;
    struct graph *g = b->g;
    int64_t q_dim = (int64_t)m->heads * m->head_dim, kv_dim = (int64_t)m->kv_heads * m->head_dim;
    graph_begin_loop(g, CHUNK_ATTENTION, b->tokens);
    int normed = add_norm(b, "attention norm", -1);
    int kv = token_tensor(b, "kv", b->kv_bytes);
    add_linear(g, "kv projection", b->tokens, 2 * kv_dim, m->hidden, normed, kv);
    graph_end_loop(g, kv);
    int rotated = graph_add_alias(g, "rotated kv", kv);
    add_rotation(graph_add_op(g, "key rotation", OP_ROPE, b->tokens, LIST(kv), LIST(rotated)), 0,
                 kv_dim);
    graph_begin_loop(g, CHUNK_ATTENTION, b->tokens);
    int again = add_norm(b, "query norm", -1);
    int queries = token_tensor(b, "queries", b->q_bytes);
    add_linear(g, "query projection", b->tokens, q_dim, m->hidden, again, queries);
    int turned = graph_add_alias(g, "rotated queries", queries);
    add_rotation(graph_add_op(g, "query rotation", OP_ROPE, b->tokens, LIST(queries), LIST(turned)),
                 q_dim, 0);
    int attended = graph_add_alias(g, "attention output", turned);
    struct op *full = graph_add_op(g, "full attention", OP_ATTENTION_FULL, b->tokens,
                                   LIST(turned, rotated), LIST(attended));
    full->span_n = SYM_FULL_N;
    full->span_q = full->span_k = SYM_FULL_Q;
    full->span_qk = SYM_FULL_QK;
    int projected = token_tensor(b, "attention projected", b->hidden_bytes);
    add_linear(g, "output projection", b->tokens, m->hidden, q_dim, attended, projected);
    add_all_reduce(b, "attention all-reduce", projected);
    graph_add_op(g, "attention residual add", OP_ADD, b->tokens, LIST(b->residual, projected),
                 LIST(b->residual));
    graph_end_loop(g, b->residual);
}

/* Returns the tensor of activated gates times ups. */
static int add_fused_gate_up(struct builder *b, int normed, int64_t width, const char *name) {
    int gated = token_tensor(b, "gated", width * b->g->element_bytes);
    struct op *op = graph_add_op(b->g, name, OP_GATE_UP, b->tokens, LIST(normed), LIST(gated));
    op->n = 2 * width;
    op->k = b->m->hidden;
    op->weight_bytes = b->g->element_bytes * op->n * op->k;
    return gated;
}

static int add_gate_up(struct builder *b, int normed, int64_t width, const char *name) {
    if (b->options->fused_gate_up) {
        return add_fused_gate_up(b, normed, width, name);
    }
    int gate_up = token_tensor(b, "gate and up", 2 * width * b->g->element_bytes);
    add_linear(b->g, name, b->tokens, 2 * width, b->m->hidden, normed, gate_up);
    int gated = b->options->fused ? graph_add_alias(b->g, "gated", gate_up)
                                  : token_tensor(b, "gated", width * b->g->element_bytes);
    struct op *swiglu =
        graph_add_op(b->g, "swiglu", OP_SWIGLU, b->tokens, LIST(gate_up), LIST(gated));
    add_eager(swiglu, b->options, EAGER_SWIGLU_BYTES * width, SWIGLU_TEMPORARY_BYTES * width);
    return gated;
}

static int add_dense_ffn(struct builder *b, int normed, int64_t width, const char *up_name,
                         const char *down_name) {
    int gated = add_gate_up(b, normed, width, up_name);
    int output = token_tensor(b, "ffn output", b->hidden_bytes);
    add_linear(b->g, down_name, b->tokens, b->m->hidden, width, gated, output);
    return output;
}

static void add_moe_linear(struct builder *b, const char *name, int64_t n, int64_t k, int in,
                           int out) {
    struct op *op = graph_add_op(b->g, name, OP_MOE_LINEAR, b->tokens, LIST(in), LIST(out));
    op->n = n;
    op->k = k;
    op->experts = b->m->experts;
    op->experts_active = b->m->experts_active;
}

static struct op *add_mixture_op(struct builder *b, const char *name, enum op_kind kind,
                                 const int *in, const int *out) {
    struct op *op = graph_add_op(b->g, name, kind, b->tokens, in, out);
    op->experts = b->m->experts;
    op->experts_active = b->m->experts_active;
    return op;
}

/* As our engine runs it: pairs of a token and one of its experts, in the order of their experts, so
 * that either product is one operator over all of them. What all tokens share comes first; the
 * others' sum is added to it. */
static int add_sorted_moe_ffn(struct builder *b, int normed) {
    const struct model *m = b->m;
    struct graph *g = b->g;
    int64_t pairs = model_most_active(m), width = m->expert_ffn, eb = g->element_bytes;
    int64_t routed = model_routed_experts(m);
    bool shares = m->shared_experts > 0;
    int output = shares ? add_dense_ffn(b, normed, m->shared_experts * (int64_t)m->shared_ffn,
                                        "shared gate and up", "shared down")
                        : token_tensor(b, "ffn output", b->hidden_bytes);
    int logits = token_tensor(b, "router logits", routed * eb);
    add_linear(g, "router", b->tokens, routed, m->hidden, normed, logits);
    int experts = token_tensor(b, "experts", pairs * INDEX_BYTES);
    int weights = token_tensor(b, "expert weights", pairs * F32_BYTES);
    int starts =
        graph_add_tensor(g, "expert starts", SYM_ONE, ((int64_t)m->experts + 1) * INDEX_BYTES);
    int order = token_tensor(b, "expert order", pairs * INDEX_BYTES);
    int places = token_tensor(b, "expert places", pairs * INDEX_BYTES);
    add_mixture_op(b, "choose experts", OP_MOE_CHOOSE, LIST(logits),
                   LIST(experts, weights, starts, order, places));
    int gated = token_tensor(b, "expert gated", pairs * width * eb);
    struct op *op = add_mixture_op(b, "expert gate and up", OP_MOE_GATE_UP,
                                   LIST(normed, starts, order), LIST(gated));
    op->n = 2 * width;
    op->k = m->hidden;
    int outputs = token_tensor(b, "expert outputs", pairs * b->hidden_bytes);
    op = add_mixture_op(b, "expert down", OP_MOE_DOWN, LIST(gated, starts), LIST(outputs));
    op->n = m->hidden;
    op->k = width;
    add_mixture_op(b, "combine experts", OP_MOE_COMBINE,
                   LIST(outputs, weights, places, shares ? output : -1), LIST(output));
    return output;
}

static int add_moe_ffn(struct builder *b, int normed) {
    if (b->options->engine) {
        return add_sorted_moe_ffn(b, normed);
    }
    const struct model *m = b->m;
    int64_t active = model_most_active(m), width = m->expert_ffn;
    int64_t routed = model_routed_experts(m);
    int routing = token_tensor(b, "routing", routed * F32_BYTES);
    struct op *route =
        graph_add_op(b->g, "route", OP_MOE_ROUTE, b->tokens, LIST(normed), LIST(routing));
    route->n = routed;
    route->k = m->hidden;
    route->weight_bytes = b->g->element_bytes * route->n * route->k;
    int gate_up = token_tensor(b, "expert gate and up", 2 * active * width * b->g->element_bytes);
    add_moe_linear(b, "expert gate and up", 2 * width, m->hidden, normed, gate_up);
    int gated = token_tensor(b, "expert gated", active * width * b->g->element_bytes);
    graph_add_op(b->g, "expert swiglu", OP_SWIGLU, b->tokens, LIST(gate_up), LIST(gated));
    int output = token_tensor(b, "ffn output", b->hidden_bytes);
    add_moe_linear(b, "expert down", m->hidden, width, gated, output);
    if (m->shared_experts > 0) {
        int shared = add_dense_ffn(b, normed, m->shared_experts * (int64_t)m->shared_ffn,
                                   "shared gate and up", "shared down");
        graph_add_op(b->g, "shared add", OP_ADD, b->tokens, LIST(output, shared), LIST(output));
    }
    return output;
}

static void add_layers(struct builder *b, const char *name, uint32_t repeat, bool dense,
                       bool evicts) {
    graph_add_segment(b->g, name, repeat);
    bool first = b->tokens == SYM_FIRST_TOKENS, in_chunks = b->options->query_chunks;
    int normed = -1;
    if (in_chunks) {
        add_attention_in_chunks(b);
    } else {
        int projected = add_attention(b, add_norm(b, "attention norm", -1), first, evicts);
        normed = add_norm(b, "ffn norm", projected);
    }
    graph_begin_loop(b->g, CHUNK_FFN, b->tokens);
    if (in_chunks) {
        normed = add_norm(b, "ffn norm", -1);
    }
    int output =
        dense ? add_dense_ffn(b, normed, b->m->ffn, "gate and up", "down") : add_moe_ffn(b, normed);
    add_all_reduce(b, "ffn all-reduce", output);
    if (!in_chunks) {
        graph_end_loop(b->g, output);
    }
    graph_add_op(b->g, "ffn residual add", OP_ADD, b->tokens, LIST(b->residual, output),
                 LIST(b->residual));
    if (in_chunks) {
        graph_end_loop(b->g, b->residual);
    }
}

/* The layers as segments: those that differ from the rest in what they run over, then dense ones,
 * then mixtures. */
static void add_all_layers(struct builder *b) {
    const struct model *m = b->m;
    uint32_t n_dense = m->experts == 0 ? m->layers : m->dense_layers, done = 0;
    if (b->options->splits_first_layer) {
        add_layers(b, "first layer", 1, n_dense > 0, false);
        b->tokens = SYM_TOKENS;
        done = 1;
    } else if (b->options->evicts) {
        add_layers(b, "first layer", 1, n_dense > 0, true);
        add_layers(b, "second layer", 1, n_dense > 1, true);
        done = 2;
    }
    if (n_dense > done) {
        add_layers(b, "dense layers", n_dense - done, true, false);
        done = n_dense;
    }
    if (m->layers > done) {
        add_layers(b, "mixture layers", m->layers - done, false, false);
    }
}

int64_t graph_credit_bytes(const struct model *model, const struct graph_options *options) {
    /* How many entries, padding; a token and a number for each. */
    int64_t list = (2LL * options->credit_slots + 2) * F32_BYTES;
    return options->credit_matrix ? (int64_t)model->vocab * F32_BYTES : list;
}

/* A token, its confidence, and the statistics of its row where decoders read them. */
static int64_t candidate_bytes(const struct builder *b) {
    return (b->options->statistics ? 4LL : 2LL) * F32_BYTES;
}

/* Those of a rank's part of the vocabulary come with their logit. */
static int add_candidates(struct builder *b) {
    int64_t logit_bytes = model_ranks(b->m) > 1 && !b->m->whole_head ? F32_BYTES : 0;
    return graph_add_tensor(b->g, "candidates", SYM_LOGIT_ROWS, candidate_bytes(b) + logit_bytes);
}

/* Credit changes the candidates; of a matrix the raised logits are another tensor, searched anew.
 */
static void add_credit(struct builder *b, int logits, int decided, int earned) {
    const int in[] = {logits, decided, earned, -1};
    if (b->options->credit_matrix) {
        int raised = graph_add_tensor(b->g, "logits with credit", SYM_LOGIT_ROWS,
                                      model_logits_bytes_per_row(b->m, F32_BYTES));
        graph_add_op(b->g, "credit", OP_CREDIT, SYM_LOGIT_ROWS, in, LIST(decided, earned, raised));
    } else {
        graph_add_op(b->g, "credit", OP_CREDIT, SYM_LOGIT_ROWS, in, LIST(decided, earned));
    }
}

/* The embedding that a step expects of each row: probabilities, of the stored logits where the
 * runtime has none, times the table of embeddings. Ranks divide it among them, by tokens of the
 * vocabulary here; ranks with a whole head may do so by rows, which is as much work. */
static void add_expectation(struct builder *b, int logits, int probabilities, int expected) {
    struct graph *g = b->g;
    const struct model *m = b->m;
    uint32_t part = m->whole_head ? m->vocab / model_ranks(m) : m->vocab;
    if (probabilities < 0) {
        probabilities =
            graph_add_tensor(g, "probabilities", SYM_LOGIT_ROWS, part * g->element_bytes);
        graph_add_op(g, "softmax", OP_SOFTMAX, SYM_LOGIT_ROWS, LIST(logits), LIST(probabilities));
    }
    add_linear(g, "embedding of probabilities", SYM_LOGIT_ROWS, m->hidden, part, probabilities,
               expected);
}

/* It is kept for the next step. */
static void keep_expectation(struct builder *b, int expected) {
    add_all_reduce(b, "smoothing all-reduce", expected);
    int kept = graph_add_cache(b->g, "kept embeddings", SYM_LOGIT_ROWS, b->hidden_bytes);
    graph_add_op(b->g, "keep expected embedding", OP_KEEP_EXPECTED, SYM_LOGIT_ROWS, LIST(expected),
                 LIST(kept));
}

/* Logits that exist, in chunks or whole, and what is read off them. */
static int add_stored_logits(struct builder *b, int normed) {
    struct graph *g = b->g;
    const struct model *m = b->m;
    int earned = b->options->credit_slots > 0 ? graph_add_cache(g, "credit", SYM_LOGIT_ROWS,
                                                                graph_credit_bytes(m, b->options))
                                              : -1;
    int expected = b->options->smooths
                       ? graph_add_tensor(g, "expected embedding", SYM_LOGIT_ROWS, b->hidden_bytes)
                       : -1;
    graph_begin_loop(g, CHUNK_LOGITS, SYM_LOGIT_ROWS);
    int64_t logits_bytes = b->options->logits_bytes * g->element_bytes / BF16_BYTES;
    int logits =
        graph_add_tensor(g, "logits", SYM_LOGIT_ROWS, model_logits_bytes_per_row(m, logits_bytes));
    add_linear(g, "output head", SYM_LOGIT_ROWS, m->vocab, m->hidden, normed, logits);
    int decided = add_candidates(b);
    if (b->options->shift_copy && m->shifted_logits) {
        int shifted = graph_add_tensor(g, "shifted logits", SYM_LOGIT_ROWS,
                                       model_logits_bytes_per_row(m, logits_bytes));
        graph_add_op(g, "logits shift", OP_CAST, SYM_LOGIT_ROWS, LIST(logits), LIST(shifted));
        logits = shifted;
    }
    int sampled = logits;
    if (b->options->copy_bytes > 0) {
        int copy = graph_add_tensor(g, "logits copy", SYM_LOGIT_ROWS,
                                    model_logits_bytes_per_row(m, b->options->copy_bytes));
        graph_add_op(g, "logits cast", OP_CAST, SYM_LOGIT_ROWS, LIST(logits), LIST(copy));
        sampled = copy;
    }
    int probabilities = -1;
    if (b->options->softmax_bytes > 0) {
        probabilities = graph_add_tensor(g, "probabilities", SYM_LOGIT_ROWS,
                                         model_logits_bytes_per_row(m, b->options->softmax_bytes));
        graph_add_op(g, "softmax", OP_SOFTMAX, SYM_LOGIT_ROWS, LIST(sampled), LIST(probabilities));
        graph_add_op(g, "argmax and confidence", OP_SAMPLE, SYM_LOGIT_ROWS,
                     LIST(logits, probabilities), LIST(decided));
    } else {
        graph_add_op(g, "argmax and confidence", OP_SAMPLE, SYM_LOGIT_ROWS, LIST(sampled),
                     LIST(decided));
    }
    if (earned >= 0) {
        add_credit(b, logits, decided, earned);
    }
    if (expected >= 0) {
        add_expectation(b, logits, probabilities, expected);
    }
    graph_end_loop(g, decided);
    if (expected >= 0) {
        keep_expectation(b, expected);
    }
    return decided;
}

static int add_fused_head(struct builder *b, int normed) {
    struct graph *g = b->g;
    int decided = add_candidates(b);
    int scratch = graph_add_tensor(g, "head scratch", SYM_ONE, GRAPH_HEAD_SCRATCH_BYTES);
    struct op *op = graph_add_op(g, "output head", OP_HEAD, SYM_LOGIT_ROWS, LIST(normed),
                                 LIST(decided, scratch));
    op->n = b->m->vocab;
    op->k = b->m->hidden;
    op->weight_bytes = g->element_bytes * op->n * op->k;
    return decided;
}

/* Every rank has the best token of its own rows of the vocabulary: they are gathered, and the best
 * of them is the row's. */
static int add_combination(struct builder *b, int decided) {
    struct graph *g = b->g;
    uint32_t ranks = model_ranks(b->m);
    if (ranks == 1 || b->m->whole_head) {
        return decided;
    }
    int gathered = graph_add_tensor(g, "gathered candidates", SYM_LOGIT_ROWS,
                                    ranks * g->tensors[decided].bytes.per);
    int combined = graph_add_tensor(g, "combined candidates", SYM_LOGIT_ROWS, candidate_bytes(b));
    graph_add_op(g, "candidates all-gather", OP_ALL_GATHER, SYM_LOGIT_ROWS, LIST(decided),
                 LIST(gathered));
    graph_add_op(g, "combine", OP_COMBINE, SYM_LOGIT_ROWS, LIST(gathered), LIST(combined));
    return combined;
}

static void add_head(struct builder *b) {
    struct graph *g = b->g;
    graph_add_segment(g, "head", 1);
    int normed = graph_add_tensor(g, "final norm", SYM_LOGIT_ROWS, b->hidden_bytes);
    graph_add_op(g, "final norm", OP_RMSNORM, SYM_LOGIT_ROWS, LIST(b->residual), LIST(normed));
    int decided = b->options->fused_head ? add_fused_head(b, normed) : add_stored_logits(b, normed);
    decided = add_combination(b, decided);
    int ids = graph_add_cache(g, "token ids", SYM_LOGIT_ROWS, 4);
    graph_add_op(g, "commit", OP_COMMIT, SYM_LOGIT_ROWS, LIST(decided), LIST(ids));
}

void graph_build(struct graph *graph, const struct model *model,
                 const struct graph_options *options) {
    int64_t element_bytes = options->element_bytes > 0 ? options->element_bytes : BF16_BYTES;
    ASSERT(options->credit_slots == 0 || !options->fused_head);
    ASSERT(!options->query_chunks ||
           (options->fused && !options->splits_first_layer && !options->selects &&
            !options->compares_values && !options->gathers_cache));
    *graph = (struct graph){.model = model, .element_bytes = element_bytes};
    struct builder b = {
        .g = graph,
        .m = model,
        .options = options,
        .tokens = options->splits_first_layer ? SYM_FIRST_TOKENS : SYM_TOKENS,
        .hidden_bytes = model->hidden * element_bytes,
        .q_bytes = (int64_t)model->heads * model->head_dim * element_bytes,
        .kv_bytes = 2LL * model->kv_heads * model->head_dim * element_bytes,
        .importance = -1,
    };
    graph_add_segment(graph, "embed", 1);
    b.residual = token_tensor(&b, "residual", b.hidden_bytes);
    graph->tensors[b.residual].carried = true;
    int ids = graph_add_cache(graph, "input ids", b.tokens, 4);
    graph_add_op(graph, "embed", OP_EMBED, b.tokens, LIST(ids), LIST(b.residual));
    if (options->smooths) { /* to no more tokens than have logits */
        int expected =
            graph_add_cache(graph, "last step's embeddings", SYM_LOGIT_ROWS, b.hidden_bytes);
        graph_add_op(graph, "add expected embedding", OP_ADD_EXPECTED, SYM_LOGIT_ROWS,
                     LIST(b.residual, expected), LIST(b.residual));
    }
    add_all_layers(&b);
    add_head(&b);
    struct err err = {0};
    ASSERT(graph_check(graph, &err) == 0);
}
