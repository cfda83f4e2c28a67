/* What the engine's suites share: tiny models, an engine with its batch, and a forward pass in
 * double that has nothing in common with the engine's but the weights. */
#ifndef UNMASK_TESTS_FORWARD_H
#define UNMASK_TESTS_FORWARD_H

#include <math.h>
#include <string.h>

#include "engine/cpu.h"
#include "sim/base/rng.h"
#include "tests/suite.h"

/* ---- models ---- */

/* The shapes of the golden checkpoints, and one with head norms and a tied head whose sizes are no
 * multiples of the product's tiles. */
static const struct model llada = {.name = "llada-tiny",
                                   .layers = 2,
                                   .hidden = 32,
                                   .heads = 4,
                                   .kv_heads = 4,
                                   .head_dim = 8,
                                   .ffn = 48,
                                   .vocab = 67,
                                   .max_positions = 256};
static const struct model dream = {.name = "dream-tiny",
                                   .layers = 2,
                                   .hidden = 48,
                                   .heads = 6,
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .ffn = 56,
                                   .vocab = 61,
                                   .max_positions = 256,
                                   .qkv_bias = true,
                                   .shifted_logits = true};
static const struct model sdar = {.name = "sdar-tiny",
                                  .layers = 3,
                                  .hidden = 44,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 18,
                                  .ffn = 30,
                                  .vocab = 35,
                                  .max_positions = 256,
                                  .qk_norm = true,
                                  .tied = true};
static const struct model *const models[] = {&llada, &dream, &sdar};
enum { N_MODELS = 3, MAX_SPANS = 8, MAX_TOKENS = 512, MAX_VOCAB = 67, POOL = 1 << 17 };

static const struct graph_options fused = {.fused = true, .logits_bytes = 2};

/* ---- an engine and its batch ---- */

struct rig {
    struct graph graph;
    struct weights weights;
    struct cpu *cpu;
    float k[POOL], v[POOL];
    struct kv_pool pool;
    const char *planner;
    int64_t chunk_rows;
    struct placement placement;
    struct step_shape shape;
    struct span spans[MAX_SPANS];
    const struct span *span_list[MAX_SPANS];
    struct step_part parts[MAX_SPANS];
    struct step step;
    int32_t token[MAX_TOKENS];
    float confidence[MAX_TOKENS];
    float logits[MAX_TOKENS * MAX_VOCAB];
    struct step_result result;
};

static const struct step_limits limits = {.max_requests = MAX_SPANS,
                                          .max_tokens = MAX_TOKENS,
                                          .max_logit_rows = MAX_TOKENS,
                                          .max_positions = 256,
                                          .workspace_bytes = 4 << 20};

static inline struct rig *rig_open(const struct model *model, const struct graph_options *options,
                                   const char *source) {
    struct rig *rig = calloc(1, sizeof *rig);
    struct err err = {0};
    graph_build(&rig->graph, model, options);
    ck_assert_msg(weights_open(&rig->weights, model, source, KERNEL_F32, &err) == 0, "%s",
                  err.text);
    ck_assert_msg(cpu_open(&rig->graph, &rig->weights, &limits, &rig->cpu, &err) == 0, "%s",
                  err.text);
    rig->planner = "first-fit";
    rig->pool = (struct kv_pool){rig->k, rig->v, POOL};
    rig->result = (struct step_result){rig->token, rig->confidence, rig->logits};
    return rig;
}

static inline void rig_close(struct rig *rig) {
    cpu_close(rig->cpu);
    weights_close(&rig->weights);
    free(rig);
}

/* Tokens of one request, positions 0, 1, ...; every query's logits. */
static inline void rig_add(struct rig *rig, uint32_t queries, uint32_t context,
                           const struct step_part *part) {
    uint32_t i = rig->shape.n_spans++;
    rig->spans[i] = (struct span){.phase = context > 0 ? PHASE_REUSE : PHASE_REFRESH,
                                  .queries = queries,
                                  .first_queries = queries,
                                  .context = context,
                                  .logit_rows = queries};
    rig->span_list[i] = &rig->spans[i];
    rig->parts[i] = *part;
    rig->shape.spans = rig->span_list;
}

static inline void rig_clear(struct rig *rig) {
    shape_clear(&rig->shape);
    rig->shape.n_spans = 0;
}

static inline int rig_begin(struct rig *rig, struct err *err) {
    memset(rig->shape.sym, 0, sizeof rig->shape.sym);
    rig->shape.sym[SYM_ONE] = 1;
    for (uint32_t i = 0; i < rig->shape.n_spans; i++) {
        shape_add(rig->shape.sym, &rig->spans[i], 1);
    }
    placement_make(planner_find(rig->planner, err), &rig->graph, &rig->shape, rig->chunk_rows,
                   &rig->placement);
    rig->step = (struct step){&rig->placement, &rig->shape, rig->parts, &rig->pool};
    memset(rig->token, 0xff, sizeof rig->token);
    memset(rig->confidence, 0xff, sizeof rig->confidence);
    return cpu_begin(rig->cpu, &rig->step, &rig->result, err);
}

static inline void rig_run(struct rig *rig) {
    struct err err = {0};
    ck_assert_msg(rig_begin(rig, &err) == 0, "%s", err.text);
    while (cpu_next(rig->cpu)) {
    }
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

/* ---- the independent forward pass ---- */

enum { MAX_NAIVE = 64, MAX_DIM = 128 };

/* Keys and values of one pass, [layer][token][G D]. */
struct naive_kv {
    double k[4][MAX_NAIVE][MAX_DIM], v[4][MAX_NAIVE][MAX_DIM];
};

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

static inline void naive_rotate(double *x, int size, int position, double theta) {
    for (int i = 0; i < size / 2; i++) {
        double angle = position / pow(theta, 2.0 * i / size), a = x[i], b = x[i + size / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + size / 2] = b * cos(angle) + a * sin(angle);
    }
}

/* Logits of n tokens from position `first` on, which see themselves and the cached tokens for which
 * `cached` has rows (n_cached of them, in `rows`); their own keys and values go to `own`. */
static inline void naive_forward(const struct weights *w, const int32_t *tokens, int first, int n,
                                 const struct naive_kv *cached, const int *rows, int n_cached,
                                 struct naive_kv *own, double logits[][MAX_VOCAB]) {
    const struct model *m = w->layout.model;
    int c = (int)m->hidden, h = (int)m->heads, g = (int)m->kv_heads, d = (int)m->head_dim;
    int f = (int)m->ffn;
    double eps = (double)w->constants.norm_epsilon, theta = w->constants.rope_theta;
    static double x[MAX_NAIVE][MAX_DIM], q[MAX_NAIVE][MAX_DIM];
    double y[MAX_DIM], qkv[4 * MAX_DIM], gate_up[4 * MAX_DIM], z[MAX_DIM];
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
                naive_rotate(part, d, first + t, theta);
            }
            memcpy(q[t], qkv, sizeof(double) * (size_t)(h * d));
            memcpy(own->k[layer][t], qkv + h * d, sizeof(double) * (size_t)(g * d));
            memcpy(own->v[layer][t], qkv + (h + g) * d, sizeof(double) * (size_t)(g * d));
        }
        for (int t = 0; t < n; t++) {
            for (int head = 0; head < h; head++) {
                int at = head / (h / g) * d;
                double p[2 * MAX_NAIVE], sum = 0;
                for (int j = 0; j < n_cached + n; j++) {
                    const double *key = j < n_cached ? cached->k[layer][rows[j]] + at
                                                     : own->k[layer][j - n_cached] + at;
                    p[j] = 0;
                    for (int i = 0; i < d; i++) {
                        p[j] += q[t][head * d + i] * key[i];
                    }
                    p[j] = exp(p[j] / sqrt(d));
                    sum += p[j];
                }
                for (int i = 0; i < d; i++) {
                    y[head * d + i] = 0;
                    for (int j = 0; j < n_cached + n; j++) {
                        y[head * d + i] += p[j] / sum *
                                           (j < n_cached ? cached->v[layer][rows[j]][at + i]
                                                         : own->v[layer][j - n_cached][at + i]);
                    }
                }
            }
            naive_matvec(weights_at(w, WEIGHT_OUTPUT, layer), y, c, h * d, z);
            for (int i = 0; i < c; i++) {
                x[t][i] += z[i];
            }
            naive_norm(weights_at(w, WEIGHT_FFN_NORM, layer), eps, x[t], c, y);
            naive_matvec(weights_at(w, WEIGHT_GATE_UP, layer), y, 2 * f, c, gate_up);
            for (int i = 0; i < f; i++) {
                z[i] = gate_up[i] / (1 + exp(-gate_up[i])) * gate_up[f + i];
            }
            naive_matvec(weights_at(w, WEIGHT_DOWN, layer), z, c, f, y);
            for (int i = 0; i < c; i++) {
                x[t][i] += y[i];
            }
        }
    }
    for (int t = 0; t < n; t++) {
        naive_norm(weights_at(w, WEIGHT_FINAL_NORM, 0), eps, x[t], c, y);
        naive_matvec(weights_at(w, WEIGHT_HEAD, 0), y, (int)m->vocab, c, logits[t]);
    }
}

static double logits_naive[MAX_NAIVE][MAX_VOCAB];
static struct naive_kv kv_canvas, kv_block;

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
