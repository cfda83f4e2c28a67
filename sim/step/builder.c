#include "sim/step/builder.h"

#include "sim/step/builder_parts.h"

enum { INDEX_BYTES = 4 }; /* of a number of tokens, pairs or experts */

/* Query and key channels that an operator rotates. */
static void add_rotation(struct op *op, int64_t query_channels, int64_t key_channels) {
    op->n = query_channels;
    op->k = key_channels;
}

/* A layer-long tensor of `per` bytes a token. */
static int token_tensor(struct builder *b, const char *name, int64_t per) {
    return graph_add_tensor(b->g, name, b->tokens, per);
}

int builder_quantised(struct builder *b, const char *name, enum weight_slot weight, int input,
                      int64_t n_rows, int64_t numbers) {
    struct graph *g = b->g;
    const enum number_type type = storage_input(&g->storage, weight);
    if (!number_is_fp8(type)) {
        return input;
    }
    const enum symbol rows = g->tensors[input].bytes.symbol;
    int copy = graph_add_tensor(g, name, rows, n_rows * number_input_bytes(type, numbers));
    g->tensors[copy].type = type;
    struct op *op = graph_add_op(g, name, OP_CAST, rows, LIST(input), LIST(copy));
    op->n = n_rows;
    op->k = numbers;
    return copy;
}

/* Rows of the pool, and copies of them in the workspace, are in the cache's type. */
static int in_cache_type(struct builder *b, int tensor) {
    b->g->tensors[tensor].type = (enum number_type)b->g->storage.cache;
    return tensor;
}

static int cached_tensor(struct builder *b, const char *name, enum symbol rows, int64_t per) {
    return in_cache_type(b, graph_add_cache(b->g, name, rows, per));
}

/* Of the residual stream, to which `delta`, where there is one, is added first. */
static void add_norm_to(struct builder *b, const char *name, enum weight_slot weight, int delta,
                        struct normed to) {
    const int first = to.wide >= 0 ? to.wide : to.codes, second = to.wide >= 0 ? to.codes : -1;
    const bool adds = delta >= 0, together = adds && b->options->fused;
    if (adds && !together) {
        graph_add_op(b->g, "residual add", OP_ADD, b->tokens, LIST(b->residual, delta),
                     LIST(b->residual));
    }
    struct op *norm =
        graph_add_op(b->g, name, OP_RMSNORM, b->tokens, LIST(b->residual, together ? delta : -1),
                     together ? LIST(b->residual, first, second) : LIST(first, second));
    norm->weight = weight;
    if (!together) {
        add_eager(norm, b->options, b->m->hidden);
    }
}

/* For products with that weight. Where these read fp8 a runtime with kernels of its own quantises
 * what it has normed at once; the wide one is left out unless something else reads it. */
static struct normed add_norm(struct builder *b, const char *name, enum weight_slot weight,
                              int delta, enum weight_slot product, bool wide_too) {
    const enum number_type type = storage_input(&b->g->storage, product);
    const bool quantises = number_is_fp8(type) && b->options->fused;
    struct normed to = {-1, -1};
    if (!quantises || wide_too) {
        to.wide = token_tensor(b, name, b->hidden_bytes);
    }
    if (quantises) {
        to.codes = token_tensor(b, name, number_input_bytes(type, b->m->hidden));
        b->g->tensors[to.codes].type = type;
    }
    add_norm_to(b, name, weight, delta, to);
    return to;
}

/* What a product reads of it. */
static int normed_input(struct builder *b, const char *name, enum weight_slot weight,
                        struct normed normed) {
    return normed.codes >= 0 ? normed.codes
                             : builder_quantised(b, name, weight, normed.wide, 1, b->m->hidden);
}

/* What a part of a layer gave, normed where it lies; in models that do so. */
static void add_output_norm(struct builder *b, const char *name, enum weight_slot weight,
                            int tensor) {
    if (b->m->output_norms) {
        struct op *norm =
            graph_add_op(b->g, name, OP_RMSNORM, b->tokens, LIST(tensor), LIST(tensor));
        norm->weight = weight;
        add_eager(norm, b->options, b->m->hidden);
    }
}

/* The same of a mixture's shared experts, or of the others: a norm is of what all ranks gave. */
static void add_mixture_norm(struct builder *b, const char *name, enum weight_slot weight,
                             int tensor) {
    if (b->m->output_norms) {
        add_all_reduce(b, "ffn all-reduce", tensor);
        add_output_norm(b, name, weight, tensor);
    }
}

/* What a mixture's experts read: what router and shared expert read, or a norm of their own. */
static struct normed add_expert_norm(struct builder *b, struct normed normed) {
    return b->m->output_norms
               ? add_norm(b, "expert norm", WEIGHT_EXPERT_NORM, -1, WEIGHT_GATE_UP, false)
               : normed;
}

static void make_single(struct graph *g, int tensor) {
    g->tensors[tensor].single = true;
    g->tensors[tensor].type = NUMBER_F32;
}

/* Scores for each candidate row, the best of them packed. Our own kernels score the fresh keys
 * where attention read them, and write the chosen rows' indices before they pack. */
static void add_selection(struct builder *b, int rotated) {
    struct graph *g = b->g;
    int64_t per = (int64_t)b->heads.kv_heads * F32_BYTES;
    int scores = graph_add_tensor(g, "selection scores", SYM_SELECT_ROWS, per), indices = -1;
    bool together = b->options->selects_together && model_ranks(b->m) > 1;
    int keys = cached_tensor(b, "scored keys", SYM_SELECT_ROWS, b->cached_bytes / 2);
    int picked = cached_tensor(b, "picked kv", SYM_PACK_ROWS, b->cached_bytes);
    int packed = cached_tensor(b, "packed kv", SYM_PACK_ROWS, b->cached_bytes);
    if (b->options->engine) {
        indices = graph_add_tensor(g, "kept tokens", SYM_SELECT_ROWS, per); /* as wide as a score */
        graph_add_op(g, "score and select", OP_SELECT, SYM_SELECT_ROWS, LIST(keys),
                     LIST(scores, indices));
        graph_add_barrier(g, rotated);
    } else {
        /* Sparse-dLLM's code clones keys and values and concatenates those around the block. */
        struct op *op = graph_add_op(g, "score and select", OP_SELECT, SYM_SELECT_ROWS, LIST(keys),
                                     LIST(scores));
        add_copy(op, b->options, EAGER_JOIN_CACHED, b->kv_numbers);
        op->eager_bytes *= 2;
    }
    if (together) {
        make_single(g, scores);
        add_all_reduce(b, "scores all-reduce", scores);
    }
    struct op *pack =
        graph_add_op(g, "pack", OP_PACK, SYM_PACK_ROWS, LIST(picked, scores), LIST(packed));
    add_copy(pack, b->options, EAGER_PICK, b->kv_numbers);
    if (together && b->options->engine) {
        graph_add_barrier(g, indices); /* chosen after the sum, from the same keys */
        graph_add_barrier(g, rotated);
    }
}

/* FOCUS: the importance of the layer's masked tokens, and in the second of two layers the choice of
 * those that go on (arXiv 2601.23278, section 4): their queries and their residual stream, copied
 * together. Returns the queries. */
static int add_eviction(struct builder *b, int rotated) {
    struct graph *g = b->g;
    int importance = token_tensor(b, "importance", F32_BYTES);
    make_single(g, importance);
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
    struct op *evict =
        graph_add_op(g, "evict", OP_EVICT, SYM_KEPT_TOKENS,
                     LIST(b->importance, importance, rotated, before), LIST(queries, b->residual));
    evict->wait_ns = b->options->evict_wait_ns;
    evict->wait_kind = b->options->evict_wait_kind;
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
    int cache = cached_tensor(b, "cached kv", evicted ? SYM_KEPT_K : SYM_BLOCK_K, b->cached_bytes);
    struct op *block = graph_add_op(g, "block attention", OP_ATTENTION_BLOCK, b->tokens,
                                    LIST(queries, cache), LIST(attended));
    block->span_n = SYM_BLOCK_N;
    block->span_q = evicted ? SYM_KEPT_Q : SYM_BLOCK_Q;
    block->span_k = evicted ? SYM_KEPT_K : SYM_BLOCK_K;
    block->span_qk = evicted ? SYM_KEPT_QK : SYM_BLOCK_QK;
}

/* A part of keys and values concatenated by eager code: rows of one symbol. */
static int add_join(struct builder *b, const char *name, enum symbol rows, int from,
                    enum eager_kind kind) {
    int joined = in_cache_type(b, graph_add_tensor(b->g, name, rows, b->cached_bytes));
    struct op *op = graph_add_op(b->g, name, OP_PACK, rows, LIST(from), LIST(joined));
    add_copy(op, b->options, kind, b->kv_numbers);
    return joined;
}

/* Each head's choice of blocks of keys, and attention to these. */
static void add_pattern(struct builder *b, int rotated, int attended) {
    struct graph *g = b->g;
    const int pattern =
        graph_add_cache(g, "pattern", SYM_SCORED_Q, (int64_t)b->m->heads * INDEX_BYTES);
    struct op *choice = graph_add_op(g, "score and choose blocks", OP_PATTERN, b->tokens,
                                     LIST(rotated), LIST(pattern));
    choice->span_n = SYM_SCORED_N;
    choice->span_q = choice->span_k = SYM_SCORED_Q;
    choice->span_qk = SYM_SCORED_QK;
    struct op *sparse = graph_add_op(g, "pattern attention", OP_ATTENTION_PATTERN, b->tokens,
                                     LIST(rotated, pattern), LIST(attended));
    sparse->span_n = SYM_PATTERN_N;
    sparse->span_q = sparse->span_k = SYM_PATTERN_Q;
    sparse->span_qk = SYM_PATTERN_QK;
}

/* Leading layers: spans of their own keys, and spans of cached ones as well. */
static void add_leading_attention(struct builder *b, int rotated, int attended) {
    struct graph *g = b->g;
    struct op *full = graph_add_op(g, "full attention", OP_ATTENTION_FULL, b->tokens, LIST(rotated),
                                   LIST(attended));
    full->span_n = SYM_LEAD_FULL_N;
    full->span_q = full->span_k = SYM_LEAD_FULL_Q;
    full->span_qk = SYM_LEAD_FULL_QK;
    int cache = cached_tensor(b, "cached kv", SYM_LEAD_BLOCK_K, b->cached_bytes);
    struct op *block = graph_add_op(g, "block attention", OP_ATTENTION_BLOCK, b->tokens,
                                    LIST(rotated, cache), LIST(attended));
    block->span_n = SYM_LEAD_BLOCK_N;
    block->span_q = SYM_LEAD_BLOCK_Q;
    block->span_k = SYM_LEAD_BLOCK_K;
    block->span_qk = SYM_LEAD_BLOCK_QK;
}

static bool is_leading(const struct builder *b) {
    return b->options->lead_layers > 0 && b->tokens == SYM_FIRST_TOKENS;
}

static void add_full_attention(struct builder *b, int rotated, int attended, bool first) {
    struct graph *g = b->g;
    if (is_leading(b)) {
        add_leading_attention(b, rotated, attended);
        return;
    }
    struct op *full = graph_add_op(g, "full attention", OP_ATTENTION_FULL, b->tokens, LIST(rotated),
                                   LIST(attended));
    full->span_n = first ? SYM_FIRST_N : SYM_FULL_N;
    full->span_q = full->span_k = first ? SYM_FIRST_TOKENS : SYM_FULL_Q;
    full->span_qk = first ? SYM_FIRST_QK : SYM_FULL_QK;
    if (first) {
        return;
    }
    if (b->options->has_patterns) {
        add_pattern(b, rotated, attended);
        return;
    }
    int cache = cached_tensor(b, "cached kv", SYM_CONTEXT_ROWS, b->cached_bytes), fresh = -1;
    if (b->options->gathers_cache && b->options->fused) {
        /* Gathered and concatenated request by request: a request's rows of one layer (under
         * 10 MB) stay in the L2 cache between the copies, so memory sees one read, one write. */
        int flat = in_cache_type(b, graph_add_tensor(g, "flat kv", SYM_BLOCK_K, b->cached_bytes));
        graph_add_op(g, "kv gather", OP_GATHER, SYM_BLOCK_K, LIST(cache), LIST(flat));
        cache = flat;
    } else if (b->options->gathers_cache) {
        cache = add_join(b, "cached kv join", SYM_CONTEXT_ROWS, cache, EAGER_JOIN_CACHED);
        fresh = add_join(b, "fresh kv join", SYM_BLOCK_Q, rotated, EAGER_JOIN_FRESH);
    }
    struct op *block = graph_add_op(g, "block attention", OP_ATTENTION_BLOCK, b->tokens,
                                    LIST(rotated, cache, fresh), LIST(attended));
    block->span_n = SYM_BLOCK_N;
    block->span_q = SYM_BLOCK_Q;
    block->span_k = SYM_BLOCK_K;
    block->span_qk = SYM_BLOCK_QK;
    if (b->options->selects) {
        add_selection(b, rotated);
    }
}

/* dLLM-Cache: the values of many rows, compared with the cached ones. */
static void add_comparison(struct builder *b, int values) {
    struct graph *g = b->g;
    int64_t kv_dim = b->kv_dim;
    int cached = cached_tensor(b, "cached values", SYM_VALUE_ROWS, b->cached_bytes / 2);
    struct op *op = graph_add_op(g, "value similarity", OP_SIMILARITY, SYM_VALUE_ROWS,
                                 LIST(values, cached), LIST(cached));
    add_eager(op, b->options, kv_dim);
    if (model_ranks(b->m) > 1) {
        /* The products and both squares that a cosine over all heads is made of. */
        int cosine = graph_add_tensor(g, "similarities", SYM_VALUE_ROWS, 3LL * F32_BYTES);
        graph_add_op(g, "similarities all-reduce", OP_ALL_REDUCE, SYM_VALUE_ROWS, LIST(cached),
                     LIST(cosine));
    }
}

/* Queries, keys and values of one layer. dLLM-Cache norms all rows whose values it projects, and
 * picks from them those that have moved. */
static int add_projections(struct builder *b, struct normed input, bool first) {
    const struct model *m = b->m;
    struct graph *g = b->g;
    const int64_t q_dim = b->q_dim, kv_dim = b->kv_dim;
    int qkv = token_tensor(b, "qkv", b->q_bytes + b->kv_bytes);
    int normed = normed_input(b, "quantised attention input", WEIGHT_QKV, input);
    if (!b->options->compares_values || first) {
        add_linear(g, "qkv projection", WEIGHT_QKV, b->tokens, heads_projected(&b->heads),
                   m->hidden, normed, qkv);
        return qkv;
    }
    int values = graph_add_tensor(g, "fresh values", SYM_PROJECTED_VALUES, b->kv_bytes / 2);
    add_linear(g, "value projection", WEIGHT_QKV, SYM_PROJECTED_VALUES, kv_dim, m->hidden, normed,
               values)
        ->weight_rows_before = q_dim + kv_dim;
    add_comparison(b, values);
    int picked = graph_add_tensor(g, "picked rows", SYM_PICKED_ROWS, g->tensors[normed].bytes.per);
    g->tensors[picked].type = g->tensors[normed].type;
    struct op *pick =
        graph_add_op(g, "pick rows", OP_GATHER, SYM_PICKED_ROWS, LIST(normed), LIST(picked));
    add_copy(pick, b->options, EAGER_PICK, m->hidden);
    struct op *op = graph_add_op(g, "query and key projection", OP_LINEAR, b->tokens,
                                 LIST(normed, picked), LIST(qkv));
    set_product(op, WEIGHT_QKV, q_dim + kv_dim, m->hidden);
    op->weight_rows_after = kv_dim;
    return qkv;
}

/* What eager code does with cached rows besides attending to them. A whole pass keeps its keys and
 * values where they are; those of a block are written over the cached ones, or concatenated. Keys
 * that are cached before rotation are all rotated. dLLM-Cache's features (keys, values, what
 * attention and the FFN gave) are concatenated to the whole canvas, over which the residuals are
 * added; of the rows that moved, keys and both features are scattered into the cache and the FFN's
 * input is gathered. */
static void add_cached_passes(struct builder *b, int rotated) {
    struct graph *g = b->g;
    int64_t kv_dim = b->kv_dim, hidden = b->m->hidden;
    enum { FEATURES = 2, SUMS = 2, SCATTERS = 3, GATHERS = 1 };
    if (b->options->rotates_cache) {
        int keys = cached_tensor(b, "cached keys", SYM_CONTEXT_ROWS, b->cached_bytes / 2);
        int turned = graph_add_tensor(g, "rotated cached keys", SYM_CONTEXT_ROWS, b->kv_bytes / 2);
        struct op *op = graph_add_op(g, "cached key rotation", OP_CAST, SYM_CONTEXT_ROWS,
                                     LIST(keys), LIST(turned));
        add_pass(op, b->options, &op_type_rope.eager, kv_dim);
    }
    if (b->options->rotates_cache && !b->options->gathers_cache && !b->options->compares_values) {
        int block = cached_tensor(b, "cached block", SYM_BLOCK_Q, b->cached_bytes);
        struct op *op =
            graph_add_op(g, "cache update", OP_PACK, SYM_BLOCK_Q, LIST(rotated), LIST(block));
        add_copy(op, b->options, EAGER_PICK, b->kv_numbers);
    }
    if (b->options->compares_values) {
        int64_t joined = 2 * kv_dim + FEATURES * hidden;
        int64_t joined_bytes =
            b->cached_bytes +
            FEATURES * number_row_bytes((enum number_type)g->storage.cache, hidden);
        int features = cached_tensor(b, "features", SYM_BLOCK_K, joined_bytes);
        int whole =
            in_cache_type(b, graph_add_tensor(g, "joined features", SYM_BLOCK_K, joined_bytes));
        struct op *op =
            graph_add_op(g, "feature join", OP_GATHER, SYM_BLOCK_K, LIST(features), LIST(whole));
        add_copy(op, b->options, EAGER_JOIN_TOKENS, joined);
        op = graph_add_op(g, "cached residual adds", OP_ADD, SYM_CONTEXT_ROWS,
                          LIST(b->residual, whole), LIST(b->residual));
        add_eager(op, b->options, SUMS * hidden);
        op = graph_add_op(g, "feature update", OP_PACK, SYM_PICKED_ROWS, LIST(whole),
                          LIST(features));
        add_copy(op, b->options, EAGER_PICK, SCATTERS * hidden + GATHERS * hidden);
    }
}

/* What attention gave, projected. */
static int add_output(struct builder *b, int attended) {
    const int64_t hidden = b->m->hidden, q_dim = b->q_dim;
    attended =
        builder_quantised(b, "quantised attention output", WEIGHT_OUTPUT, attended, 1, q_dim);
    int projected = token_tensor(b, "attention projected", b->hidden_bytes);
    add_linear(b->g, "output projection", WEIGHT_OUTPUT, b->tokens, hidden, q_dim, attended,
               projected);
    add_all_reduce(b, "attention all-reduce", projected);
    add_output_norm(b, "attention output norm", WEIGHT_ATTENTION_OUTPUT_NORM, projected);
    return projected;
}

/* Attention of one layer: returns the tensor that holds its projected output. */
static int add_attention(struct builder *b, struct normed normed, bool first, bool evicts) {
    struct graph *g = b->g;
    const int64_t q_dim = b->q_dim, kv_dim = b->kv_dim;
    int qkv = add_projections(b, normed, first);
    int rotated = b->options->fused ? graph_add_alias(g, "rotated qkv", qkv)
                                    : token_tensor(b, "rotated qkv", b->q_bytes + b->kv_bytes);
    int fresh = cached_tensor(b, "fresh kv", b->tokens, b->cached_bytes);
    struct op *rope =
        graph_add_op(g, "rope and kv write", OP_ROPE, b->tokens, LIST(qkv), LIST(rotated, fresh));
    add_rotation(rope, q_dim, kv_dim);
    add_eager(rope, b->options, q_dim + kv_dim);
    if (b->options->stored_rows != SYM_ONE && (b->options->fused || b->options->engine)) {
        const enum symbol stored = is_leading(b) ? SYM_LEAD_FULL_Q : b->options->stored_rows;
        int kept = cached_tensor(b, "kept kv", stored, b->cached_bytes);
        graph_add_op(g, "kv store", OP_KEEP, stored, LIST(rotated), LIST(kept));
    }
    if (!b->options->fused && !b->options->exact && !first) {
        add_cached_passes(b, rotated);
    }
    int queries = evicts ? add_eviction(b, rotated) : rotated;
    int attended = token_tensor(b, "attention output", b->q_bytes);
    if (b->options->exact) {
        add_exact_attention(b, queries, attended);
    } else {
        add_full_attention(b, rotated, attended, first);
    }
    return add_output(b, attended);
}

/* Keys and values of all tokens, then, chunk by chunk, queries, attention written over them, and
 * its projection added to the residual stream. Each chunk is normed for keys and values and once
 * more for its queries: three hidden states of a token are live throughout, the residual, a key and
 * a value. */
static void add_attention_in_chunks(struct builder *b) {
    const struct model *m = b->m;
    struct graph *g = b->g;
    const int64_t q_dim = b->q_dim, kv_dim = b->kv_dim;
    graph_begin_loop(g, CHUNK_ATTENTION, b->tokens);
    struct normed keys_of =
        add_norm(b, "attention norm", WEIGHT_ATTENTION_NORM, -1, WEIGHT_QKV, false);
    int normed = normed_input(b, "quantised key input", WEIGHT_QKV, keys_of);
    int kv = token_tensor(b, "kv", b->kv_bytes);
    const int64_t projected_kv = heads_projected(&b->heads) - q_dim;
    add_linear(g, "kv projection", WEIGHT_QKV, b->tokens, projected_kv, m->hidden, normed, kv)
        ->weight_rows_before = q_dim;
    graph_end_loop(g, kv);
    int rotated = graph_add_alias(g, "rotated kv", kv);
    add_rotation(graph_add_op(g, "key rotation", OP_ROPE, b->tokens, LIST(kv), LIST(rotated)), 0,
                 kv_dim);
    graph_begin_loop(g, CHUNK_ATTENTION, b->tokens);
    struct normed queries_of =
        add_norm(b, "query norm", WEIGHT_ATTENTION_NORM, -1, WEIGHT_QKV, false);
    int again = normed_input(b, "quantised query input", WEIGHT_QKV, queries_of);
    int queries = token_tensor(b, "queries", b->q_bytes);
    add_linear(g, "query projection", WEIGHT_QKV, b->tokens, q_dim, m->hidden, again, queries)
        ->weight_rows_after = projected_kv;
    int turned = graph_add_alias(g, "rotated queries", queries);
    add_rotation(graph_add_op(g, "query rotation", OP_ROPE, b->tokens, LIST(queries), LIST(turned)),
                 q_dim, 0);
    int attended = graph_add_alias(g, "attention output", turned);
    struct op *full = graph_add_op(g, "full attention", OP_ATTENTION_FULL, b->tokens,
                                   LIST(turned, rotated), LIST(attended));
    full->span_n = SYM_FULL_N;
    full->span_q = full->span_k = SYM_FULL_Q;
    full->span_qk = SYM_FULL_QK;
    int projected = add_output(b, attended);
    graph_add_op(g, "attention residual add", OP_ADD, b->tokens, LIST(b->residual, projected),
                 LIST(b->residual));
    graph_end_loop(g, b->residual);
}

/* A dense layer's products, or those of a mixture's shared experts. */
struct ffn {
    const char *up_name, *down_name;
    enum weight_slot up, down;
};
static const struct ffn dense_ffn = {"gate and up", "down", WEIGHT_GATE_UP, WEIGHT_DOWN};
static const struct ffn shared_ffn = {"shared gate and up", "shared down", WEIGHT_SHARED_GATE_UP,
                                      WEIGHT_SHARED_DOWN};

/* Returns the tensor of activated gates times ups. Where squares of the next product's share a
 * scale, and so the outputs of a tile, both are quantised at once; the wide ones are room for
 * kernels that do not. */
static int add_fused_gate_up(struct builder *b, int normed, int64_t width, const struct ffn *ffn) {
    int gated = token_tensor(b, "gated", width * graph_element_bytes(b->g)), codes = -1;
    if (storage_input(&b->g->storage, ffn->down) == NUMBER_FP8) {
        codes = token_tensor(b, "quantised gated", number_input_bytes(NUMBER_FP8, width));
        b->g->tensors[codes].type = NUMBER_FP8;
    }
    struct op *op =
        graph_add_op(b->g, ffn->up_name, OP_GATE_UP, b->tokens, LIST(normed), LIST(gated, codes));
    set_product(op, ffn->up, 2 * width, b->m->hidden);
    return codes >= 0 ? codes : gated;
}

static int add_gate_up(struct builder *b, int normed, int64_t width, const struct ffn *ffn) {
    if (b->options->fused_gate_up) {
        return add_fused_gate_up(b, normed, width, ffn);
    }
    int gate_up = token_tensor(b, "gate and up", 2 * width * graph_element_bytes(b->g));
    add_linear(b->g, ffn->up_name, ffn->up, b->tokens, 2 * width, b->m->hidden, normed, gate_up);
    int gated = b->options->fused ? graph_add_alias(b->g, "gated", gate_up)
                                  : token_tensor(b, "gated", width * graph_element_bytes(b->g));
    struct op *swiglu =
        graph_add_op(b->g, "swiglu", OP_SWIGLU, b->tokens, LIST(gate_up), LIST(gated));
    add_eager(swiglu, b->options, width);
    return gated;
}

static int add_dense_ffn(struct builder *b, int normed, int64_t width, const struct ffn *ffn) {
    int gated = add_gate_up(b, normed, width, ffn);
    if (!number_is_fp8(b->g->tensors[gated].type)) {
        gated = builder_quantised(b, "quantised gated", ffn->down, gated, 1, width);
    }
    int output = token_tensor(b, "ffn output", b->hidden_bytes);
    add_linear(b->g, ffn->down_name, ffn->down, b->tokens, b->m->hidden, width, gated, output);
    return output;
}

static int quantised_ffn_input(struct builder *b, struct normed normed) {
    return normed_input(b, "quantised ffn input", WEIGHT_GATE_UP, normed);
}

/* A mixture's router reads the wide one. */
static struct normed add_ffn_norm(struct builder *b, int delta, bool dense) {
    return add_norm(b, "ffn norm", WEIGHT_FFN_NORM, delta, WEIGHT_GATE_UP, !dense);
}

/* What the step before expected of the positions that it decided on, through a norm and an FFN of
 * its own, is added to their input, which is normed (DiffusionGemma's self-conditioning). */
static void add_conditioning(struct builder *b) {
    static const struct ffn conditioning = {"conditioning gate and up", "conditioning down",
                                            WEIGHT_CONDITIONING_GATE_UP, WEIGHT_CONDITIONING_DOWN};
    struct graph *g = b->g;
    const enum symbol tokens = b->tokens;
    b->tokens = SYM_LOGIT_ROWS; /* of prefills and commit passes none */
    int kept = graph_add_cache(g, "last step's embeddings", b->tokens, b->hidden_bytes);
    int normed = token_tensor(b, "conditioning norm", b->hidden_bytes);
    graph_add_op(g, "conditioning norm", OP_RMSNORM, b->tokens, LIST(kept), LIST(normed))->weight =
        WEIGHT_CONDITIONING_NORM;
    int added = add_dense_ffn(b, quantised_ffn_input(b, (struct normed){normed, -1}),
                              b->m->conditioning_ffn, &conditioning);
    add_all_reduce(b, "conditioning all-reduce", added);
    graph_add_op(g, "add conditioning", OP_ADD_EXPECTED, b->tokens, LIST(b->residual, added),
                 LIST(b->residual));
    graph_add_op(g, "conditioned norm", OP_RMSNORM, b->tokens, LIST(b->residual),
                 LIST(b->residual));
    b->tokens = tokens;
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
static int add_sorted_moe_ffn(struct builder *b, struct normed normed) {
    const struct model *m = b->m;
    struct graph *g = b->g;
    int64_t pairs = model_most_active(m), width = m->expert_ffn, eb = graph_element_bytes(g);
    int64_t routed = model_routed_experts(m);
    bool shares = m->shared_experts > 0;
    int quantised = quantised_ffn_input(b, normed);
    int output = shares ? add_dense_ffn(b, quantised, m->shared_experts * (int64_t)m->shared_ffn,
                                        &shared_ffn)
                        : token_tensor(b, "ffn output", b->hidden_bytes);
    if (shares) {
        add_mixture_norm(b, "shared output norm", WEIGHT_SHARED_OUTPUT_NORM, output);
    }
    int logits = token_tensor(b, "router logits", routed * eb);
    add_linear(g, "router", WEIGHT_ROUTER, b->tokens, routed, m->hidden, normed.wide, logits);
    int experts = token_tensor(b, "experts", pairs * INDEX_BYTES);
    int weights = token_tensor(b, "expert weights", pairs * F32_BYTES);
    int starts =
        graph_add_tensor(g, "expert starts", SYM_ONE, ((int64_t)m->experts + 1) * INDEX_BYTES);
    int order = token_tensor(b, "expert order", pairs * INDEX_BYTES);
    int places = token_tensor(b, "expert places", pairs * INDEX_BYTES);
    add_mixture_op(b, "choose experts", OP_MOE_CHOOSE, LIST(logits),
                   LIST(experts, weights, starts, order, places));
    if (m->output_norms) {
        quantised = quantised_ffn_input(b, add_expert_norm(b, normed));
    }
    int gated = token_tensor(b, "expert gated", pairs * width * eb);
    struct op *op = add_mixture_op(b, "expert gate and up", OP_MOE_GATE_UP,
                                   LIST(quantised, starts, order), LIST(gated));
    set_product(op, WEIGHT_EXPERTS_GATE_UP, 2 * width, m->hidden);
    gated =
        builder_quantised(b, "quantised expert gated", WEIGHT_EXPERTS_DOWN, gated, pairs, width);
    int outputs = token_tensor(b, "expert outputs", pairs * b->hidden_bytes);
    op = add_mixture_op(b, "expert down", OP_MOE_DOWN, LIST(gated, starts), LIST(outputs));
    set_product(op, WEIGHT_EXPERTS_DOWN, m->hidden, width);
    if (shares && m->output_norms) {
        int sum = token_tensor(b, "expert sum", b->hidden_bytes);
        add_mixture_op(b, "combine experts", OP_MOE_COMBINE, LIST(outputs, weights, places),
                       LIST(sum));
        add_mixture_norm(b, "expert output norm", WEIGHT_EXPERT_OUTPUT_NORM, sum);
        graph_add_op(g, "shared add", OP_ADD, b->tokens, LIST(output, sum), LIST(output));
        return output;
    }
    add_mixture_op(b, "combine experts", OP_MOE_COMBINE,
                   LIST(outputs, weights, places, shares ? output : -1), LIST(output));
    add_all_reduce(b, "ffn all-reduce", output);
    return output;
}

static int add_moe_ffn(struct builder *b, struct normed normed) {
    if (b->options->engine) {
        return add_sorted_moe_ffn(b, normed);
    }
    const struct model *m = b->m;
    int64_t active = model_most_active(m), width = m->expert_ffn;
    int64_t routed = model_routed_experts(m);
    int routing = token_tensor(b, "routing", routed * F32_BYTES);
    struct op *route =
        graph_add_op(b->g, "route", OP_MOE_ROUTE, b->tokens, LIST(normed.wide), LIST(routing));
    set_product(route, WEIGHT_ROUTER, routed, m->hidden);
    int quantised = quantised_ffn_input(b, add_expert_norm(b, normed));
    int gate_up =
        token_tensor(b, "expert gate and up", 2 * active * width * graph_element_bytes(b->g));
    struct op *op =
        add_mixture_op(b, "expert gate and up", OP_MOE_LINEAR, LIST(quantised), LIST(gate_up));
    set_product(op, WEIGHT_EXPERTS_GATE_UP, 2 * width, m->hidden);
    int gated = token_tensor(b, "expert gated", active * width * graph_element_bytes(b->g));
    graph_add_op(b->g, "expert swiglu", OP_SWIGLU, b->tokens, LIST(gate_up), LIST(gated));
    gated =
        builder_quantised(b, "quantised expert gated", WEIGHT_EXPERTS_DOWN, gated, active, width);
    int output = token_tensor(b, "ffn output", b->hidden_bytes);
    op = add_mixture_op(b, "expert down", OP_MOE_LINEAR, LIST(gated), LIST(output));
    set_product(op, WEIGHT_EXPERTS_DOWN, m->hidden, width);
    add_mixture_norm(b, "expert output norm", WEIGHT_EXPERT_OUTPUT_NORM, output);
    if (m->shared_experts > 0) {
        const int input = m->output_norms ? quantised_ffn_input(b, normed) : quantised;
        int shared =
            add_dense_ffn(b, input, m->shared_experts * (int64_t)m->shared_ffn, &shared_ffn);
        add_mixture_norm(b, "shared output norm", WEIGHT_SHARED_OUTPUT_NORM, shared);
        graph_add_op(b->g, "shared add", OP_ADD, b->tokens, LIST(output, shared), LIST(output));
    }
    if (!m->output_norms) {
        add_all_reduce(b, "ffn all-reduce", output);
    }
    return output;
}

/* What a layer's FFN gives, the sum over ranks. */
static int add_ffn(struct builder *b, struct normed normed, bool dense) {
    if (!dense) {
        return add_moe_ffn(b, normed);
    }
    int output = add_dense_ffn(b, quantised_ffn_input(b, normed), b->m->ffn, &dense_ffn);
    add_all_reduce(b, "ffn all-reduce", output);
    return output;
}

/* ---- dLLM-Cache's features, as our engine keeps them ---- */

static bool keeps_features(const struct builder *b) {
    return b->options->engine && b->options->compares_values && b->options->splits_first_layer;
}

/* The operator added last runs over rows that `picks` lists. */
static void run_picked(struct builder *b, int picks) {
    b->g->ops[b->g->n_ops - 1].picks = picks;
    graph_add_barrier(b->g, picks);
}

/* The values of all rows that run, how far those of the output are from the cached ones, which they
 * replace, and the rows that go on: their input, and their values in the product's place for them.
 * Returns the product's tensor, and in *picks the rows. */
static int add_picked_projections(struct builder *b, int *picks) {
    enum { SUMS = 3, PICKS = 3 }; /* of a comparison (kernels/rules/change.h); call_pick's */
    const struct model *m = b->m;
    struct graph *g = b->g;
    const int64_t q_dim = b->q_dim, kv_dim = b->kv_dim;
    b->tokens = SYM_PROJECTED_VALUES;
    struct normed input =
        add_norm(b, "attention norm", WEIGHT_ATTENTION_NORM, -1, WEIGHT_QKV, false);
    b->tokens = SYM_TOKENS;
    int normed = normed_input(b, "quantised attention input", WEIGHT_QKV, input);
    int values = graph_add_tensor(g, "fresh values", SYM_PROJECTED_VALUES, b->kv_bytes / 2);
    add_linear(g, "value projection", WEIGHT_QKV, SYM_PROJECTED_VALUES, kv_dim, m->hidden, normed,
               values)
        ->weight_rows_before = q_dim + kv_dim;
    int cached = cached_tensor(b, "cached values", SYM_VALUE_ROWS, b->cached_bytes / 2);
    int sums = graph_add_tensor(g, "value changes", SYM_VALUE_ROWS, (int64_t)SUMS * F32_BYTES);
    make_single(g, sums);
    graph_add_op(g, "value similarity", OP_SIMILARITY, SYM_VALUE_ROWS, LIST(values, cached),
                 LIST(cached, sums));
    add_all_reduce(b, "value changes all-reduce", sums);
    *picks = token_tensor(b, "picked positions", (int64_t)PICKS * INDEX_BYTES);
    int picked = token_tensor(b, "picked rows", g->tensors[normed].bytes.per);
    g->tensors[picked].type = g->tensors[normed].type;
    int qkv = token_tensor(b, "qkv", b->q_bytes + b->kv_bytes);
    graph_add_op(g, "pick rows", OP_PICK, b->tokens, LIST(sums, normed, values),
                 LIST(*picks, picked, qkv));
    struct op *op =
        graph_add_op(g, "query and key projection", OP_LINEAR, b->tokens, LIST(picked), LIST(qkv));
    set_product(op, WEIGHT_QKV, q_dim + kv_dim, m->hidden);
    op->weight_rows_after = kv_dim;
    return qkv;
}

/* What a sublayer gave of the rows that ran, kept, and of all rows what is kept, added to the
 * residual stream. */
static void add_feature(struct builder *b, uint32_t feature, int output, int picks) {
    static const char *const stores[] = {"attention store", "ffn store"};
    static const char *const sums[] = {"kept attention add", "kept ffn add"};
    const int64_t bytes = number_row_bytes((enum number_type)b->g->storage.cache, b->m->hidden);
    int kept = cached_tensor(b, stores[feature], b->tokens, bytes);
    graph_add_op(b->g, stores[feature], OP_KEEP_FEATURE, b->tokens, LIST(output), LIST(kept))
        ->feature = feature;
    run_picked(b, picks);
    int all = cached_tensor(b, sums[feature], SYM_FIRST_TOKENS, bytes);
    graph_add_op(b->g, sums[feature], OP_ADD_FEATURE, SYM_FIRST_TOKENS, LIST(b->residual, all),
                 LIST(b->residual))
        ->feature = feature;
}

/* Layers of which some rows run, and all go on with what they last came to. */
static void add_feature_layers(struct builder *b, const char *name, uint32_t repeat, bool dense) {
    struct graph *g = b->g;
    int picks;
    graph_add_segment(g, name, repeat);
    int qkv = add_picked_projections(b, &picks);
    int rotated = b->options->fused ? graph_add_alias(g, "rotated qkv", qkv)
                                    : token_tensor(b, "rotated qkv", b->q_bytes + b->kv_bytes);
    struct op *rope = graph_add_op(g, "rope", OP_ROPE, b->tokens, LIST(qkv), LIST(rotated));
    add_rotation(rope, b->q_dim, b->kv_dim);
    run_picked(b, picks);
    int kept = cached_tensor(b, "kept kv", b->tokens, b->cached_bytes);
    graph_add_op(g, "kv store", OP_KEEP, b->tokens, LIST(rotated), LIST(kept));
    run_picked(b, picks);
    int attended = token_tensor(b, "attention output", b->q_bytes);
    add_full_attention(b, rotated, attended, false);
    add_feature(b, 0, add_output(b, attended), picks);
    struct normed normed = add_ffn_norm(b, -1, dense);
    run_picked(b, picks);
    graph_begin_loop(g, CHUNK_FFN, b->tokens);
    int output = add_ffn(b, normed, dense);
    graph_end_loop(g, output);
    add_feature(b, 1, output, picks);
}

/* ---- layers ---- */

static void add_layers(struct builder *b, const char *name, uint32_t repeat, bool dense,
                       bool evicts) {
    if (keeps_features(b) && b->tokens == SYM_TOKENS) {
        add_feature_layers(b, name, repeat, dense);
        return;
    }
    graph_add_segment(b->g, name, repeat);
    b->g->segments[b->g->n_segments - 1].global =
        b->heads.local_window == 0 && b->m->local_window > 0;
    bool first = b->tokens == SYM_FIRST_TOKENS, in_chunks = b->options->query_chunks;
    struct normed normed = {-1, -1};
    if (in_chunks) {
        add_attention_in_chunks(b);
    } else {
        enum symbol tokens = b->tokens;
        b->tokens = b->options->compares_values && !first ? SYM_PROJECTED_VALUES : tokens;
        normed = add_norm(b, "attention norm", WEIGHT_ATTENTION_NORM, -1, WEIGHT_QKV, false);
        b->tokens = tokens;
        normed = add_ffn_norm(b, add_attention(b, normed, first && !is_leading(b), evicts), dense);
    }
    graph_begin_loop(b->g, CHUNK_FFN, b->tokens);
    if (in_chunks) {
        normed = add_ffn_norm(b, -1, dense);
    }
    int output = add_ffn(b, normed, dense);
    add_output_norm(b, "ffn output norm", WEIGHT_FFN_OUTPUT_NORM, output);
    if (!in_chunks) {
        graph_end_loop(b->g, output);
    }
    graph_add_op(b->g, "ffn residual add", OP_ADD, b->tokens, LIST(b->residual, output),
                 LIST(b->residual));
    if (in_chunks) {
        graph_end_loop(b->g, b->residual);
    }
}

/* The heads of the layers to come. */
static void take_heads(struct builder *b, bool global) {
    const int64_t element_bytes = graph_element_bytes(b->g);
    const enum number_type cached = (enum number_type)b->options->storage.cache;
    b->heads = model_heads_of(b->m, global);
    b->q_dim = heads_q_dim(&b->heads);
    b->kv_dim = heads_kv_dim(&b->heads);
    b->q_bytes = b->q_dim * element_bytes;
    b->kv_numbers = 2 * b->kv_dim;
    b->kv_bytes = b->kv_numbers * element_bytes;
    b->cached_bytes = 2 * heads_half_kv_bytes(&b->heads, cached);
}

/* Local layers and those between them that see everything: each kind together, as neither prices
 * nor places go by the order of layers. */
static void add_local_and_global(struct builder *b) {
    const uint32_t n_global = model_global_layers(b->m);
    const bool dense = b->m->experts == 0;
    add_layers(b, "local layers", b->m->layers - n_global, dense, false);
    take_heads(b, true);
    add_layers(b, "global layers", n_global, dense, false);
    take_heads(b, false);
}

/* Layers [done, end), of which the first n_dense of the model are dense; returns end. */
static uint32_t add_alike(struct builder *b, uint32_t done, uint32_t end, uint32_t n_dense) {
    uint32_t dense_end = n_dense < end ? n_dense : end;
    if (dense_end > done) {
        add_layers(b, "dense layers", dense_end - done, true, false);
        done = dense_end;
    }
    if (end > done) {
        add_layers(b, "mixture layers", end - done, false, false);
    }
    return end;
}

/* After leading layers: the residual stream of what goes on, some of it as it was kept when a
 * shared prefix ran by itself. */
static void add_joined(struct builder *b) {
    const int before = b->residual;
    graph_add_segment(b->g, "join", 1);
    b->tokens = SYM_TOKENS;
    b->residual = token_tensor(b, "joined residual", b->hidden_bytes);
    b->g->tensors[b->residual].carried = true;
    graph_add_op(b->g, "join", OP_JOIN, SYM_TOKENS, LIST(before), LIST(b->residual));
}

/* The layers as segments: those that differ from the rest in what they run over, then dense ones,
 * then mixtures. */
static void add_all_layers(struct builder *b) {
    const struct model *m = b->m;
    uint32_t n_dense = m->experts == 0 ? m->layers : m->dense_layers, done = 0;
    uint32_t evicts = b->options->evict_layer;
    if (model_global_layers(m) > 0) {
        add_local_and_global(b);
        return;
    }
    if (b->options->lead_layers > 0) {
        done = add_alike(b, 0, b->options->lead_layers, n_dense);
        add_joined(b);
    } else if (b->options->splits_first_layer) {
        add_layers(b, "first layer", 1, n_dense > 0, false);
        b->tokens = SYM_TOKENS;
        done = 1;
    } else if (evicts > 0) {
        done = add_alike(b, 0, evicts - 1, n_dense);
        add_layers(b, evicts == 1 ? "first layer" : "layer before", 1, n_dense > done, true);
        add_layers(b, evicts == 1 ? "second layer" : "evicting layer", 1, n_dense > done + 1, true);
        done += 2;
    }
    (void)add_alike(b, done, m->layers, n_dense);
}

int graph_try(struct graph *graph, const struct model *model, const struct graph_options *options,
              struct err *err) {
    ASSERT((options->credit_slots == 0 && !options->draws) || !options->fused_head);
    ASSERT(!options->samples_output ||
           (!options->fused_head && !options->smooths && options->credit_slots == 0));
    ASSERT(!options->query_chunks ||
           (options->fused && !options->splits_first_layer && !options->selects &&
            !options->compares_values && !options->gathers_cache));
    *graph = (struct graph){.model = model, .storage = options->storage};
    const int64_t element_bytes = graph_element_bytes(graph);
    struct builder b = {
        .g = graph,
        .m = model,
        .options = options,
        .tokens =
            options->splits_first_layer || options->lead_layers > 0 ? SYM_FIRST_TOKENS : SYM_TOKENS,
        .sampled = options->samples_output ? SYM_SAMPLED_ROWS : SYM_LOGIT_ROWS,
        .hidden_bytes = model->hidden * element_bytes,
        .importance = -1,
    };
    take_heads(&b, false);
    graph_add_segment(graph, "embed", 1);
    b.residual = token_tensor(&b, "residual", b.hidden_bytes);
    graph->tensors[b.residual].carried = true;
    int ids = graph_add_cache(graph, "input ids", b.tokens, 4);
    graph_add_op(graph, "embed", OP_EMBED, b.tokens, LIST(ids), LIST(b.residual))->weight =
        WEIGHT_EMBEDDING;
    if (options->smooths) { /* to no more tokens than have logits */
        int expected =
            graph_add_cache(graph, "last step's embeddings", SYM_LOGIT_ROWS, b.hidden_bytes);
        graph_add_op(graph, "add expected embedding", OP_ADD_EXPECTED, SYM_LOGIT_ROWS,
                     LIST(b.residual, expected), LIST(b.residual));
    }
    if (model->conditioning_ffn > 0) {
        add_conditioning(&b);
    }
    add_all_layers(&b);
    builder_add_head(&b);
    struct err trouble = {0};
    return graph_check(graph, &trouble) == 0
               ? 0
               : err_usage(err, "no step of model %s can be made with these settings: %s",
                           model->name, trouble.text);
}

void graph_build(struct graph *graph, const struct model *model,
                 const struct graph_options *options) {
    struct err err = {0};
    int status = graph_try(graph, model, options, &err);
    ASSERT(status == 0);
}
