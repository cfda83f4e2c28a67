/* What the engine's suites share: tiny models, an engine with its batch, and a forward pass in
 * double that has nothing in common with the engine's but the weights. */
#ifndef UNMASK_TESTS_SUPPORT_FORWARD_H
#define UNMASK_TESTS_SUPPORT_FORWARD_H

#include <math.h>
#include <string.h>

#include "engine/step/forward.h"
#include "sim/base/rng.h"
#include "sim/step/builder.h"
#include "tests/support/suite.h"

#define TINY(...)                                                                                  \
    { .max_positions = 256, __VA_ARGS__ }
#define ENGINE_GRAPH(...)                                                                          \
    {                                                                                              \
        .storage = {NUMBER_F32, NUMBER_F32, NUMBER_F32, NUMBER_F32, NUMBER_F32}, .engine = true,   \
        __VA_ARGS__                                                                                \
    } /* in float32 */

/* The shapes of the golden checkpoints, and one with head norms and a tied head whose sizes are no
 * multiples of anything a kernel takes at once. */
static const struct model llada =
    TINY(.name = "llada-tiny", .family = "llada", .layers = 2, .hidden = 32, .heads = 4,
         .kv_heads = 4, .head_dim = 8, .ffn = 48, .vocab = 67, .mask_token = 66);
static const struct model dream =
    TINY(.name = "dream-tiny", .family = "Dream", .layers = 2, .hidden = 48, .heads = 6,
         .kv_heads = 2, .head_dim = 8, .ffn = 56, .vocab = 61, .mask_token = 5, .qkv_bias = true,
         .shifted_logits = true);
static const struct model sdar =
    TINY(.name = "sdar-tiny", .family = "sdar", .layers = 3, .hidden = 44, .heads = 4,
         .kv_heads = 2, .head_dim = 18, .ffn = 30, .vocab = 35, .mask_token = 0, .qk_norm = true,
         .tied = true);
/* LLaDA-MoE's: every layer a mixture. */
static const struct model llada_moe =
    TINY(.name = "llada-moe-tiny", .family = "lladamoe", .layers = 2, .hidden = 32, .heads = 4,
         .kv_heads = 4, .head_dim = 8, .vocab = 67, .mask_token = 66, .qk_norm = true,
         .router = ROUTER_SOFTMAX, .experts = 8, .experts_active = 3, .expert_ffn = 24,
         .expert_groups = 1, .expert_groups_active = 1, .routed_scale = 1);
static const struct model *const models[] = {&llada, &dream, &sdar, &llada_moe};
enum {
    N_MODELS = 4,
    MAX_SPANS = 8,
    MAX_TOKENS = 512,
    MAX_VOCAB = 67,
    POOL = 1 << 17,           /* elements */
    STORE = POOL / MAX_SPANS, /* from one request's store to the next's */
    CANVAS_TOKENS = 256,      /* from one request's canvas to the next's */
    WORKSPACE = 64 << 20
};

static const struct graph_options fused =
    ENGINE_GRAPH(.fused = true, .stored_rows = SYM_FULL_Q, .logits_bytes = 2);
static const struct graph_options eager =
    ENGINE_GRAPH(.stored_rows = SYM_FULL_Q, .logits_bytes = 4);
static const struct graph_options sparse =
    ENGINE_GRAPH(.fused = true, .stored_rows = SYM_FULL_Q, .logits_bytes = 2, .selects = true);

static const struct step_limits limits = {.max_requests = MAX_SPANS,
                                          .max_tokens = MAX_TOKENS,
                                          .max_logit_rows = MAX_TOKENS,
                                          .max_positions = CANVAS_TOKENS,
                                          .canvas_tokens = MAX_SPANS * CANVAS_TOKENS,
                                          .workspace_bytes = WORKSPACE,
                                          .pool_bytes = POOL * (int64_t)sizeof(float)};

struct rig_setup {
    const struct model *model;
    const struct graph_options *options;
    const char *source;               /* of the weights */
    const struct device_table *table; /* NULL: the CPU */
    enum kernel_dtype dtype;
    const struct step_limits *limits; /* NULL: the above */
};

struct rig {
    struct graph graph;
    struct engine_device device;
    struct weights weights;
    struct forward *forward;
    const char *planner;
    struct chunk_rows chunks;
    struct placement placement;
    struct step_shape shape;
    struct span spans[MAX_SPANS];
    const struct span *span_list[MAX_SPANS];
    struct step_part parts[MAX_SPANS];
    struct step step;
    float threshold; /* of its decisions */
    int (*evict)(void *state, const struct eviction *seen, struct step *rest, struct err *err);
    void *evict_state;
    int32_t token[MAX_TOKENS];
    float confidence[MAX_TOKENS];
    uint8_t committed[MAX_TOKENS];
    int32_t n_committed[MAX_SPANS];
    struct step_result result;
    float logits[MAX_TOKENS * MAX_VOCAB];
};

static inline int rig_try_open(const struct rig_setup *setup, struct rig **out, struct err *err) {
    struct rig *rig = calloc(1, sizeof *rig);
    struct graph_options options = *setup->options;
    const struct storage *said = &options.storage;
    if (storage_is(said, (enum number_type)said->wide)) { /* nothing of it is in fp8 */
        options.storage = storage_of(setup->dtype == KERNEL_F32 ? NUMBER_F32 : NUMBER_BF16);
    }
    graph_build(&rig->graph, setup->model, &options);
    rig->planner = "first-fit";
    rig->result = MAKE(struct step_result, .token = rig->token, .confidence = rig->confidence,
                       .committed = rig->committed, .n_committed = rig->n_committed);
    int status = engine_device_start(setup->table != NULL ? setup->table : &device_cpu,
                                     setup->dtype, &rig->device, err);
    if (status == 0) {
        status = weights_open_stored(&rig->weights, &rig->device, setup->model, &rig->graph.storage,
                                     0, setup->source, err);
    }
    if (status == 0) {
        status = forward_open(&rig->device, &rig->graph, &rig->weights,
                              setup->limits != NULL ? setup->limits : &limits, &rig->forward, err);
    }
    *out = rig;
    return status;
}

/* Device memory that nobody released. */
static inline int64_t rig_close(struct rig *rig) {
    int64_t left = 0;
    forward_close(rig->forward);
    weights_close(&rig->weights);
    if (rig->device.device != NULL) {
        left = rig->device.table->allocated_bytes(rig->device.device);
    }
    engine_device_close(&rig->device);
    free(rig);
    return left;
}

static inline struct rig *rig_set_up(const struct rig_setup *setup) {
    struct rig *rig;
    struct err err = {0};
    ck_assert_msg(rig_try_open(setup, &rig, &err) == 0, "%s", err.text);
    return rig;
}

static inline struct rig *rig_open(const struct model *model, const struct graph_options *options,
                                   const char *source) {
    const struct rig_setup setup = {model, options, source, NULL, KERNEL_F32, NULL};
    return rig_set_up(&setup);
}

/* The pool of a rig on the CPU, in float32. */
static inline float *rig_pool(struct rig *rig) {
    return (float *)(void *)forward_pool(rig->forward);
}

/* Tokens from position `first` of a request's canvas on. */
static inline void rig_write(struct rig *rig, int request, int first, const int32_t *tokens,
                             int n) {
    struct err err = {0};
    int64_t at = (int64_t)request * CANVAS_TOKENS + first;
    ck_assert_msg(forward_write_canvas(rig->forward, at, tokens, n, &err) == 0, "%s", err.text);
}

static inline void rig_read(struct rig *rig, int request, int first, int32_t *tokens, int n) {
    struct err err = {0};
    int64_t at = (int64_t)request * CANVAS_TOKENS + first;
    ck_assert_msg(forward_read_canvas(rig->forward, at, tokens, n, &err) == 0, "%s", err.text);
}

/* One request's span; every query's logits. */
static inline struct span *rig_add(struct rig *rig, uint32_t queries, uint32_t context,
                                   const struct step_part *part) {
    uint32_t i = rig->shape.n_spans++;
    rig->spans[i] =
        MAKE(struct span, .phase = context > 0 ? PHASE_REUSE : PHASE_REFRESH, .queries = queries,
             .first_queries = queries, .context = context, .logit_rows = queries);
    rig->span_list[i] = &rig->spans[i];
    rig->parts[i] = *part;
    rig->shape.spans = rig->span_list;
    return &rig->spans[i];
}

static inline void rig_clear(struct rig *rig) {
    shape_clear(&rig->shape);
    rig->shape.n_spans = 0;
}

/* What all decisions by threshold go by; to be said after the step is planned. */
static inline void rig_threshold(struct rig *rig, float threshold) {
    rig->threshold = threshold;
    for (uint32_t i = 0; i < rig->shape.n_spans; i++) {
        rig->parts[i].decision.threshold = threshold;
    }
}

/* The step of what was added. */
static inline void rig_plan(struct rig *rig) {
    struct err err = {0};
    memset(rig->shape.sym, 0, sizeof rig->shape.sym);
    rig->shape.sym[SYM_ONE] = 1;
    for (uint32_t i = 0; i < rig->shape.n_spans; i++) {
        shape_add(rig->shape.sym, &rig->spans[i], 1);
    }
    placement_make(planner_find(rig->planner, &err), &rig->graph, &rig->shape, rig->chunks,
                   &rig->placement);
    rig->step = MAKE(struct step, .placement = &rig->placement, .shape = &rig->shape,
                     .parts = rig->parts, .rule = {.kind = DECODE_THRESHOLD}, .evict = rig->evict,
                     .evict_state = rig->evict_state);
    rig_threshold(rig, 0.5f);
    memset(rig->token, 0xff, sizeof rig->token);
    memset(rig->confidence, 0xff, sizeof rig->confidence);
    memset(rig->committed, 0xff, sizeof rig->committed);
}

static inline bool rig_stores_logits(const struct rig *rig) {
    return rig->chunks.of[CHUNK_LOGITS] == 0 &&
           strcmp(rig->graph.ops[rig->graph.n_ops - 2].name, "argmax and confidence") == 0;
}

/* Its result and, where they are stored, its logits. */
static inline int rig_collect(struct rig *rig, struct err *err) {
    int status = forward_result(rig->forward, &rig->result, err);
    if (status == 0 && rig_stores_logits(rig)) {
        status = forward_logits(rig->forward, rig->logits, err);
    }
    return status;
}

static inline void rig_step(struct rig *rig) {
    struct err err = {0};
    rig_plan(rig);
    ck_assert_msg(forward_submit(rig->forward, &rig->step, &err) == 0, "%s", err.text);
    ck_assert_msg(rig_collect(rig, &err) == 0, "%s", err.text);
}

/* Random tokens and the numbers 0, 1, 2, ... */
static int32_t ids[MAX_TOKENS], count[MAX_TOKENS];

static inline void draw_ids(const struct model *model, uint64_t seed) {
    struct rng rng = rng_stream(seed, "ids");
    for (int i = 0; i < MAX_TOKENS; i++) {
        ids[i] = (int32_t)(rng_next(&rng) % model->vocab);
        count[i] = i;
    }
}

enum { MAX_NAIVE = 96, MAX_DIM = 256, MAX_KV_HEADS = 4, MAX_LAYERS = 3, MAX_EXPERTS = 16 };

/* Queries, keys and values of one pass, [layer][token][H D or G D]. */
struct naive_kv {
    double q[MAX_LAYERS][MAX_NAIVE][MAX_DIM];
    double k[MAX_LAYERS][MAX_NAIVE][MAX_DIM], v[MAX_LAYERS][MAX_NAIVE][MAX_DIM];
};

/* Tokens of a pass that later queries see: n of them, which each key-value head of each layer
 * chooses for itself. */
struct naive_cache {
    struct naive_kv kv;
    int n, rows[MAX_LAYERS][MAX_KV_HEADS][MAX_NAIVE];
};

/* The same tokens everywhere. */
static inline void naive_keep(struct naive_cache *cache, int token) {
    for (int layer = 0; layer < MAX_LAYERS; layer++) {
        for (int head = 0; head < MAX_KV_HEADS; head++) {
            cache->rows[layer][head][cache->n] = token;
        }
    }
    cache->n++;
}

static inline void naive_matvec(const float *w, const double *x, int n, int k, double *y) {
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int j = 0; j < k; j++) {
            y[i] += (double)w[i * k + j] * x[j];
        }
    }
}

static inline void naive_norm(const float *weight, double epsilon, const double *x, int n,
                              double *y) {
    double mean = 0;
    for (int i = 0; i < n; i++) {
        mean += x[i] * x[i] / n;
    }
    for (int i = 0; i < n; i++) {
        y[i] = x[i] / sqrt(mean + epsilon) * (double)weight[i];
    }
}

/* Positions of a whole turn. */
static inline double naive_wave(const struct rotation *r, int pair, int size) {
    double wave = 2 * 3.14159265358979323846 * pow(r->theta, 2.0 * pair / size);
    if (r->stretch.factor == 0 || wave < r->stretch.original_positions / r->stretch.high_factor) {
        return wave;
    }
    if (wave > r->stretch.original_positions / r->stretch.low_factor) {
        return wave * r->stretch.factor;
    }
    double smooth = (r->stretch.original_positions / wave - r->stretch.low_factor) /
                    (r->stretch.high_factor - r->stretch.low_factor);
    return wave / ((1 - smooth) / r->stretch.factor + smooth);
}

/* Of a head's channels, the first `size`. */
static inline void naive_rotate(double *x, int size, int position, const struct rotation *r) {
    for (int i = 0; i < size / 2; i++) {
        double angle = 2 * 3.14159265358979323846 * position / naive_wave(r, i, size);
        double a = x[i], b = x[i + size / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + size / 2] = b * cos(angle) + a * sin(angle);
    }
}

static inline void naive_swiglu(const float *gates_and_ups, const float *down, const double *y,
                                int c, int f, double *out) {
    double gate_up[4 * MAX_DIM], z[2 * MAX_DIM];
    naive_matvec(gates_and_ups, y, 2 * f, c, gate_up);
    for (int i = 0; i < f; i++) {
        z[i] = gate_up[i] / (1 + exp(-gate_up[i])) * gate_up[f + i];
    }
    naive_matvec(down, z, c, f, out);
}

/* The weight of each expert, 0 of those that are not chosen: an expert is if fewer than A others
 * are before it, where those of worse groups are behind all. */
static inline void naive_route(const struct weights *w, uint32_t layer, const double *y,
                               double *weight) {
    const struct model *m = w->layout.model;
    int n = (int)m->experts, size = n / (int)m->expert_groups;
    bool is_softmax = m->router == ROUTER_SOFTMAX;
    const float *bias = weights_at(w, WEIGHT_EXPERT_BIAS, layer);
    double score[MAX_EXPERTS], rank[MAX_EXPERTS], sum = 0, group[MAX_EXPERTS] = {0};
    naive_matvec(weights_at(w, WEIGHT_ROUTER, layer), y, n, (int)m->hidden, score);
    for (int e = 0; e < n; e++) {
        score[e] = is_softmax ? exp(score[e]) : 1 / (1 + exp(-score[e]));
        sum += score[e];
        rank[e] = score[e] + (bias != NULL ? (double)bias[e] : 0);
    }
    for (int e = 0; e < n; e++) { /* the best sum of two, of any two */
        for (int other = e / size * size; other < e; other++) {
            group[e / size] = fmax(group[e / size], rank[e] + rank[other]);
        }
    }
    double chosen = 0;
    for (int e = 0; e < n; e++) {
        int before = 0, groups_before = 0;
        for (int g = 0; g < n / size; g++) {
            groups_before += group[g] > group[e / size];
        }
        for (int other = 0; other < n; other++) {
            int better = 0;
            for (int g = 0; g < n / size; g++) {
                better += group[g] > group[other / size];
            }
            before += better < (int)m->expert_groups_active && rank[other] > rank[e];
        }
        bool stays = groups_before < (int)m->expert_groups_active;
        weight[e] = stays && before < (int)m->experts_active ? score[e] : 0;
        weight[e] /= is_softmax ? sum : 1;
        chosen += weight[e];
    }
    for (int e = 0; e < n; e++) {
        weight[e] *= m->routed_scale / (m->norm_topk ? chosen : 1);
    }
}

/* What the layer's FFN makes of one token: every expert by itself, as far as it has a weight. */
static inline void naive_ffn(const struct weights *w, uint32_t layer, const double *y,
                             double *out) {
    const struct model *m = w->layout.model;
    int c = (int)m->hidden, f = (int)m->expert_ffn;
    double weight[MAX_EXPERTS], one[MAX_DIM];
    if (layer < model_first_mixture(m)) {
        naive_swiglu(weights_at(w, WEIGHT_GATE_UP, layer), weights_at(w, WEIGHT_DOWN, layer), y, c,
                     (int)m->ffn, out);
        return;
    }
    memset(out, 0, sizeof *out * (size_t)c);
    if (m->shared_experts > 0) {
        naive_swiglu(weights_at(w, WEIGHT_SHARED_GATE_UP, layer),
                     weights_at(w, WEIGHT_SHARED_DOWN, layer), y, c,
                     (int)(m->shared_experts * m->shared_ffn), out);
    }
    naive_route(w, layer, y, weight);
    for (int e = 0; e < (int)m->experts; e++) {
        const float *gate_up = weights_at(w, WEIGHT_EXPERTS_GATE_UP, layer);
        const float *down = weights_at(w, WEIGHT_EXPERTS_DOWN, layer);
        if (weight[e] > 0) {
            naive_swiglu(gate_up + e * 2 * f * c, down + e * c * f, y, c, f, one);
        }
        for (int i = 0; weight[e] > 0 && i < c; i++) {
            out[i] += weight[e] * one[i];
        }
    }
}

/* Logits of n tokens from position `first` on, which see themselves and what is cached (NULL:
 * nothing); their own queries, keys and values go to `own`. extent: of themselves token t sees the
 * first extent[t]; NULL: all. */
static inline void naive_masked(const struct weights *w, const int32_t *tokens, int first, int n,
                                const struct naive_cache *cached, const int32_t *extent,
                                struct naive_kv *own, double logits[][MAX_VOCAB]) {
    const struct model *m = w->layout.model;
    int c = (int)m->hidden, h = (int)m->heads, g = (int)m->kv_heads, d = (int)m->head_dim;
    double eps = (double)w->constants.norm_epsilon;
    int n_cached = cached != NULL ? cached->n : 0;
    static double x[MAX_NAIVE][MAX_DIM];
    double y[MAX_DIM], qkv[4 * MAX_DIM], z[MAX_DIM];
    for (int t = 0; t < n; t++) {
        const float *row = (const float *)weights_at(w, WEIGHT_EMBEDDING, 0) + tokens[t] * c;
        for (int i = 0; i < c; i++) {
            x[t][i] = (double)row[i];
        }
    }
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        const float *bias = weights_at(w, WEIGHT_QKV_BIAS, layer);
        for (int t = 0; t < n; t++) {
            naive_norm(weights_at(w, WEIGHT_ATTENTION_NORM, layer), eps, x[t], c, y);
            naive_matvec(weights_at(w, WEIGHT_QKV, layer), y, (h + 2 * g) * d, c, qkv);
            for (int i = 0; bias != NULL && i < (h + 2 * g) * d; i++) {
                qkv[i] += (double)bias[i];
            }
            for (int head = 0; head < h + g; head++) {
                double *part = qkv + head * d;
                if (m->qk_norm) {
                    naive_norm(weights_at(w, head < h ? WEIGHT_Q_NORM : WEIGHT_K_NORM, layer), eps,
                               part, d, part);
                }
                naive_rotate(part, (int)model_rotary_dim(m), first + t, &w->constants.rotation);
            }
            memcpy(own->q[layer][t], qkv, sizeof(double) * (size_t)(h * d));
            memcpy(own->k[layer][t], qkv + h * d, sizeof(double) * (size_t)(g * d));
            memcpy(own->v[layer][t], qkv + (h + g) * d, sizeof(double) * (size_t)(g * d));
        }
        for (int t = 0; t < n; t++) {
            int n_keys = n_cached + (extent != NULL ? extent[t] : n);
            for (int head = 0; head < h; head++) {
                int at = head / (h / g) * d;
                const int *rows = cached != NULL ? cached->rows[layer][head / (h / g)] : NULL;
                const double *query = own->q[layer][t] + head * d;
                double p[2 * MAX_NAIVE], sum = 0;
                for (int j = 0; j < n_keys; j++) {
                    const double *key = j < n_cached ? cached->kv.k[layer][rows[j]] + at
                                                     : own->k[layer][j - n_cached] + at;
                    p[j] = 0;
                    for (int i = 0; i < d; i++) {
                        p[j] += query[i] * key[i];
                    }
                    p[j] = exp(p[j] / sqrt(d));
                    sum += p[j];
                }
                for (int i = 0; i < d; i++) {
                    y[head * d + i] = 0;
                    for (int j = 0; j < n_keys; j++) {
                        y[head * d + i] += p[j] / sum *
                                           (j < n_cached ? cached->kv.v[layer][rows[j]][at + i]
                                                         : own->v[layer][j - n_cached][at + i]);
                    }
                }
            }
            naive_matvec(weights_at(w, WEIGHT_OUTPUT, layer), y, c, h * d, z);
            for (int i = 0; i < c; i++) {
                x[t][i] += z[i];
            }
            naive_norm(weights_at(w, WEIGHT_FFN_NORM, layer), eps, x[t], c, y);
            naive_ffn(w, layer, y, z);
            for (int i = 0; i < c; i++) {
                x[t][i] += z[i];
            }
        }
    }
    for (int t = 0; t < n; t++) {
        naive_norm(weights_at(w, WEIGHT_FINAL_NORM, 0), eps, x[t], c, y);
        naive_matvec(weights_at(w, WEIGHT_HEAD, 0), y, (int)m->vocab, c, logits[t]);
    }
}

static inline void naive_forward(const struct weights *w, const int32_t *tokens, int first, int n,
                                 const struct naive_cache *cached, struct naive_kv *own,
                                 double logits[][MAX_VOCAB]) {
    naive_masked(w, tokens, first, n, cached, NULL, own, logits);
}

/* ||ours - reference|| / ||reference|| over n rows. */
static inline double relative_error(const float *ours, double reference[][MAX_VOCAB], int n,
                                    int vocab) {
    double difference = 0, norm = 0;
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < vocab; i++) {
            double d = (double)ours[t * vocab + i] - reference[t][i];
            difference += d * d;
            norm += reference[t][i] * reference[t][i];
        }
    }
    ck_assert(norm > 0);
    return sqrt(difference / norm);
}

/* The token and confidence of a row of logits. */
static inline void assert_decision(const struct rig *rig, int row, const double *logits) {
    int best = 0;
    double sum = 0;
    for (int i = 0; i < (int)rig->graph.model->vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    for (int i = 0; i < (int)rig->graph.model->vocab; i++) {
        sum += exp(logits[i] - logits[best]);
    }
    ck_assert_int_eq(rig->token[row], best);
    ck_assert_double_eq_tol((double)rig->confidence[row], 1 / sum, 1e-5);
}

#endif
