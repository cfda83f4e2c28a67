/* Requests decoded with exact keys and values in pages, for the forward pass's suites: the spans
 * and parts of their steps as an exact cache policy has them, and a reference in double that
 * computes the whole canvas anew at every step under the model's mask. */
#ifndef UNMASK_TESTS_SUPPORT_CHAIN_H
#define UNMASK_TESTS_SUPPORT_CHAIN_H

#include "tests/support/forward.h"

static const struct model sdar_blocks =
    TINY(.name = "sdar-blocks", .family = "sdar", .layers = 3, .hidden = 44, .heads = 4,
         .kv_heads = 2, .head_dim = 18, .ffn = 30, .vocab = 35, .mask_token = 0, .qk_norm = true,
         .tied = true, .mask = MASK_BLOCK_CAUSAL);
/* Whose graph evicts behind the second layer. */
static const struct model focus_blocks =
    TINY(.name = "sdar-focus", .family = "sdar", .layers = 4, .hidden = 40, .heads = 4,
         .kv_heads = 2, .head_dim = 10, .ffn = 30, .vocab = 41, .mask_token = 0, .qk_norm = true,
         .mask = MASK_BLOCK_CAUSAL);
static const struct graph_options evicting =
    ENGINE_GRAPH(.fused = true, .logits_bytes = 2, .exact = true, .evict_layer = 1);
static const struct model fast_blocks =
    TINY(.name = "fast-blocks", .family = "Fast_dLLM_Qwen", .layers = 2, .hidden = 48, .heads = 6,
         .kv_heads = 2, .head_dim = 8, .ffn = 56, .vocab = 61, .mask_token = 5, .qkv_bias = true,
         .shifted_logits = true, .mask = MASK_BLOCK_CAUSAL);
static const struct model qwen_tokens =
    TINY(.name = "qwen2.5-tokens", .family = "qwen2", .layers = 3, .hidden = 40, .heads = 4,
         .kv_heads = 1, .head_dim = 8, .ffn = 24, .vocab = 41, .mask_token = NO_MASK_TOKEN,
         .qkv_bias = true, .tied = true, .mask = MASK_CAUSAL);
static const struct model llama_tokens =
    TINY(.name = "llama-tokens", .family = "llama", .layers = 2, .hidden = 32, .heads = 4,
         .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 67, .mask_token = NO_MASK_TOKEN,
         .mask = MASK_CAUSAL);

/* LLaDA2.0's: a dense layer first, experts in groups with a bias, one that all share, half of a
 * head's channels rotated. */
static const struct model llada2_blocks =
    TINY(.name = "llada2-blocks", .family = "llada2_moe", .layers = 3, .hidden = 48, .heads = 6,
         .kv_heads = 2, .head_dim = 8, .rotary_dim = 4, .ffn = 56, .vocab = 61, .mask_token = 5,
         .qk_norm = true, .mask = MASK_BLOCK_CAUSAL, .router = ROUTER_SIGMOID_GROUPED,
         .experts = 16, .experts_active = 4, .expert_ffn = 16, .shared_experts = 1,
         .shared_ffn = 24, .dense_layers = 1, .expert_groups = 4, .expert_groups_active = 2,
         .expert_bias = true, .norm_topk = true, .routed_scale = 2.5);

static const struct graph_options exact =
    ENGINE_GRAPH(.fused = true, .logits_bytes = 2, .exact = true);

static inline struct rig *exact_rig(const struct model *model, const struct graph_options *options,
                                    uint32_t page_rows) {
    struct step_limits paged = limits;
    paged.page_rows = page_rows;
    return rig_set_up(&(struct rig_setup){model, options, "random:21", NULL, KERNEL_F32, &paged});
}

/* Pages of a rig's pool, and rows. */
static inline int pool_rows(const struct model *m, int page_rows) {
    int row = 2 * (int)(m->layers * m->kv_heads * m->head_dim);
    return POOL / (row * page_rows) * page_rows;
}

/* Sizes in tokens. Autoregressive models have blocks of one token. */
struct chain {
    int canvas, prompt, block;
    int take;  /* positions a step commits; 0: by threshold */
    int chunk; /* of a prefill, in whole blocks; 0: all of it */
    /* Written by the functions below. */
    const struct model *model;
    int request, begin, end; /* the active block */
    int cached;              /* positions whose keys and values are final */
    int masked;              /* of the block; one that is given the mask itself has been decided */
    int page_rows, n_pages;
    enum phase phase; /* of the next step, and its queries */
    int first, queries;
    int32_t tokens[MAX_NAIVE]; /* the reference's canvas */
    int32_t pages[MAX_NAIVE], positions[MAX_NAIVE], extents[MAX_NAIVE];
    int32_t rows[MAX_NAIVE], targets[MAX_NAIVE];
};

static inline bool chain_is_causal(const struct chain *c) {
    return c->model->mask == MASK_CAUSAL;
}

static inline bool chain_over(const struct chain *c) {
    return c->begin >= c->canvas;
}

static inline void chain_enter(struct chain *c, int begin) {
    c->begin = begin;
    c->end = begin + c->block < c->canvas ? begin + c->block : c->canvas;
    c->masked = c->end - (begin > c->prompt ? begin : c->prompt);
}

/* Every request has pages of its own, scattered by a stride that is odd, from `shift` on. */
static inline void chain_place(struct chain *c, int page_rows, int shift) {
    int n = pool_rows(c->model, page_rows) / page_rows;
    c->page_rows = page_rows;
    c->n_pages = (c->canvas + page_rows - 1) / page_rows;
    for (int page = 0; page < c->n_pages; page++) {
        int at = (shift + c->request * c->n_pages + page) * 7 % n;
        c->pages[page] = n % 7 == 0 ? (at + page) % n : at;
    }
}

static inline void chain_start(struct chain *c, int request, struct rig *rig) {
    const struct model *model = rig->graph.model;
    struct rng rng = rng_stream((uint64_t)request, "prompt");
    bool has_mask = model->mask_token != NO_MASK_TOKEN;
    c->model = model;
    c->request = request;
    c->cached = 0;
    c->block = chain_is_causal(c) ? 1 : c->block;
    for (int t = 0; t < c->canvas; t++) {
        int32_t token = (int32_t)(rng_next(&rng) % (model->vocab - 1));
        bool is_above = has_mask && token >= (int32_t)model->mask_token;
        c->tokens[t] = t >= c->prompt ? (int32_t)model->mask_token : token + is_above;
    }
    chain_enter(c, chain_is_causal(c) ? c->prompt : c->prompt / c->block * c->block);
    rig_write(rig, request, 0, c->tokens, c->canvas);
}

static inline int chain_extent(const struct chain *c, int position) {
    int end = (position / c->block + 1) * c->block;
    return end < c->canvas ? end : c->canvas;
}

/* What the next step is. */
static inline void chain_plan(struct chain *c) {
    c->first = c->cached;
    c->queries = c->begin - c->cached;
    c->phase = PHASE_PREFILL;
    if (c->chunk > 0 && c->queries > c->chunk) {
        c->queries = c->chunk / c->block * c->block;
    } else if (c->queries == 1 && chain_is_causal(c)) {
        c->phase = PHASE_REUSE;
    } else if (c->queries == 0) {
        c->queries = c->end - c->begin;
        c->phase = c->masked > 0 ? PHASE_REUSE : PHASE_COMMIT;
    }
}

/* Positions that the step may commit; 0: by the threshold. */
static inline int chain_take(const struct chain *c) {
    return c->take < c->masked ? c->take : c->masked;
}

/* Whether the step that was planned commits positions. */
static inline bool chain_decides(const struct chain *c) {
    return chain_is_causal(c) ? c->first + c->queries == c->begin : c->phase == PHASE_REUSE;
}

/* Whether, logits being shifted, its last query decides on the first position of a block. */
static inline bool chain_yields(const struct chain *c) {
    int end = c->first + c->queries;
    return !chain_is_causal(c) && c->model->shifted_logits &&
           (c->phase == PHASE_PREFILL ? end == c->begin && c->masked == c->end - c->begin
                                      : c->phase == PHASE_COMMIT && end < c->canvas);
}

/* The query whose logits decide on a position. */
static inline int chain_query(const struct chain *c, int position) {
    int query = position - c->first;
    return (chain_is_causal(c) || c->model->shifted_logits) && query > 0 ? query - 1 : query;
}

/* Adds the next step's span to a rig's batch: logits of what it decides on, or of a block that it
 * commits. */
static inline void chain_add(struct chain *c, struct rig *rig) {
    chain_plan(c);
    bool yields = chain_yields(c);
    int n_rows = yields ? 1 : c->phase == PHASE_COMMIT || chain_decides(c) ? c->end - c->begin : 0;
    for (int t = 0; t < c->queries; t++) {
        c->positions[t] = c->first + t;
        c->extents[t] = chain_extent(c, c->first + t);
    }
    for (int r = 0; r < n_rows; r++) {
        c->rows[r] = yields ? c->queries - 1 : chain_query(c, c->begin + r);
        c->targets[r] = yields ? c->first + c->queries : c->begin + r;
    }
    const struct step_part part =
        MAKE(struct step_part, .canvas = (int64_t)c->request * CANVAS_TOKENS,
             .positions = c->positions, .logit_rows = c->rows, .targets = c->targets,
             .decision = {.n_rows = yields || chain_decides(c) ? (uint32_t)n_rows : 0,
                          .take = yields ? 1 : (uint32_t)chain_take(c)},
             .kv_pages = {c->pages, c->n_pages, c->extents});
    struct span *span = rig_add(rig, (uint32_t)c->queries, (uint32_t)c->first, &part);
    span->phase = c->phase;
    span->exact = 1;
    span->logit_rows = (uint32_t)n_rows;
}

static struct naive_kv chain_own;

static inline int chain_likeliest(const struct chain *c, const double *row) {
    int token = 0;
    for (int v = 1; v < (int)c->model->vocab; v++) {
        token = row[v] > row[token] ? v : token;
    }
    return token;
}

/* Commits the surest of the masked positions, as scripts do; logits by position of the query. */
static inline void chain_commit(struct chain *c, double threshold, double logits[][MAX_VOCAB]) {
    int token[MAX_NAIVE];
    double sure[MAX_NAIVE];
    for (int i = 0; i < c->end - c->begin; i++) {
        const double *row = logits[c->first + chain_query(c, c->begin + i)];
        double sum = 0;
        token[i] = chain_likeliest(c, row);
        for (int v = 0; v < (int)c->model->vocab; v++) {
            sum += exp(row[v] - row[token[i]]);
        }
        const int mask = (int32_t)c->model->mask_token;
        sure[i] = c->tokens[c->begin + i] != mask ? -1 : token[i] == mask ? 0 : 1 / sum;
    }
    for (int n = 0; c->take == 0 || n < chain_take(c); n++) {
        int best = 0;
        for (int i = 1; i < c->end - c->begin; i++) {
            best = sure[i] > sure[best] ? i : best;
        }
        if (sure[best] < 0 || (c->take == 0 && n > 0 && sure[best] < threshold)) {
            return;
        }
        c->tokens[c->begin + best] = token[best];
        sure[best] = -1;
    }
}

/* The step that was planned, on the reference: logits by position of the query, from the whole
 * canvas as far as it is known. */
static inline void chain_refer(struct chain *c, const struct weights *w, double threshold,
                               double logits[][MAX_VOCAB]) {
    int32_t extents[MAX_NAIVE];
    int n = c->first + c->queries;
    for (int t = 0; t < n; t++) {
        extents[t] = chain_extent(c, t);
    }
    naive_masked(w, c->tokens, 0, n, NULL, extents, &chain_own, logits);
    if (chain_decides(c)) {
        chain_commit(c, threshold, logits);
    } else if (chain_yields(c)) {
        c->tokens[n] = chain_likeliest(c, logits[n - 1]);
    }
}

/* The step was run, its n commits are in the canvas. */
static inline void chain_advance(struct chain *c, int n) {
    bool yields = chain_yields(c);
    c->masked -= n < c->masked ? n : c->masked;
    if (chain_is_causal(c)) {
        c->cached = c->first + c->queries;
        if (c->cached == c->begin) {
            chain_enter(c, c->end);
        }
    } else if (c->phase == PHASE_PREFILL) {
        c->cached += c->queries;
    } else if (c->phase == PHASE_COMMIT) {
        c->cached = c->end;
        chain_enter(c, c->end);
        c->masked -= yields;
    }
}

/* The canvas as the rig has it, where no reference runs along. */
static inline void chain_follow(struct chain *c, struct rig *rig) {
    rig_read(rig, c->request, 0, c->tokens, c->canvas);
}

#endif
