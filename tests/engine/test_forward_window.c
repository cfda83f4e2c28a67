/* Layers with a window, global ones with heads of their own, norms of outputs, gelu, a softcap and
 * self-conditioning (DiffusionGemma's) in the forward pass, against a reference in double that
 * computes every token by itself. */
#include "engine/step/forward_parts.h"
#include "engine/weights/ranks.h"
#include "sim/model/ranks.h"
#include "tests/support/chain.h"

enum { TOKENS = 40, PROMPT = 24, CANVAS = TOKENS - PROMPT, PAGE = 4, WINDOW = 9 };

static const struct model gemma =
    TINY(.name = "gemma-blocks", .family = "diffusion_gemma", .layers = 3, .hidden = 32, .heads = 4,
         .kv_heads = 2, .head_dim = 8, .local_window = WINDOW, .global_every = 3,
         .global_kv_heads = 1, .global_head_dim = 16, .global_values_are_keys = true, .vocab = 61,
         .mask_token = NO_MASK_TOKEN, .qk_norm = true, .tied = true, .output_norms = true,
         .gelu = true, .logit_softcap = 2, .uniform_noise = true, .conditioning_ffn = 20,
         .causal_prompt = true, .mask = MASK_BLOCK_CAUSAL, .block_tokens = CANVAS,
         .router = ROUTER_SOFTMAX, .experts = 8, .experts_active = 3, .expert_ffn = 16,
         .shared_experts = 1, .shared_ffn = 24, .expert_groups = 1, .expert_groups_active = 1,
         .norm_topk = true, .routed_scale = 1);
static const struct graph_options renoising =
    ENGINE_GRAPH(.fused = true, .logits_bytes = 2, .exact = true, .statistics = true);
static const double T = 0.7;

static int extent_of(int t) {
    return t < PROMPT ? t + 1 : TOKENS;
}

/* ---- the reference ---- */

static double x[TOKENS][MAX_DIM], k[TOKENS][MAX_DIM], v[TOKENS][MAX_DIM], q[TOKENS][MAX_DIM];
static double expected[CANVAS][MAX_DIM], entropy[CANVAS];
static int top[CANVAS];

static double rms_inverse(const double *a, int n, double eps) {
    double squares = 0;
    for (int i = 0; i < n; i++) {
        squares += a[i] * a[i];
    }
    return 1 / sqrt(squares / n + eps);
}

static void norm_alone(double *a, int n, double eps) {
    const double scale = rms_inverse(a, n, eps);
    for (int i = 0; i < n; i++) {
        a[i] *= scale;
    }
}

static void geglu(const float *gates_and_ups, const float *down, const double *y, int f,
                  double *out) {
    double gate_up[2 * MAX_DIM], z[MAX_DIM];
    naive_matvec(gates_and_ups, y, 2 * f, (int)gemma.hidden, gate_up);
    for (int i = 0; i < f; i++) {
        const double g = gate_up[i];
        z[i] = g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) / 2 *
               gate_up[f + i];
    }
    naive_matvec(down, z, (int)gemma.hidden, f, out);
}

/* What the step before expected of a canvas's positions. */
static void condition(const struct weights *w, double eps) {
    const int c = (int)gemma.hidden;
    double y[MAX_DIM], z[MAX_DIM];
    for (int t = 0; t < CANVAS; t++) {
        naive_norm(weights_at(w, WEIGHT_CONDITIONING_NORM, 0), eps, expected[t], c, y);
        geglu(weights_at(w, WEIGHT_CONDITIONING_GATE_UP, 0),
              weights_at(w, WEIGHT_CONDITIONING_DOWN, 0), y, (int)gemma.conditioning_ffn, z);
        for (int i = 0; i < c; i++) {
            x[PROMPT + t][i] += z[i];
        }
        norm_alone(x[PROMPT + t], c, eps);
    }
}

static void project(const struct weights *w, uint32_t layer, bool global, double eps) {
    const int h = (int)gemma.heads, c = (int)gemma.hidden;
    const int g = global ? 1 : 2, d = global ? 16 : 8;
    double y[MAX_DIM], qkv[4 * MAX_DIM];
    for (int t = 0; t < TOKENS; t++) {
        naive_norm(weights_at(w, WEIGHT_ATTENTION_NORM, layer), eps, x[t], c, y);
        naive_matvec(weights_at(w, WEIGHT_QKV, layer), y, (h + (global ? g : 2 * g)) * d, c, qkv);
        memcpy(v[t], qkv + (global ? h : h + g) * d, sizeof(double) * (size_t)(g * d));
        for (int head = 0; head < g; head++) {
            norm_alone(v[t] + head * d, d, eps);
        }
        for (int head = 0; head < h + g; head++) {
            double *part = qkv + head * d;
            naive_norm(weights_at(w, head < h ? WEIGHT_Q_NORM : WEIGHT_K_NORM, layer), eps, part, d,
                       part);
            naive_rotate(part, d, t, &w->constants.rotation);
        }
        memcpy(q[t], qkv, sizeof(double) * (size_t)(h * d));
        memcpy(k[t], qkv + h * d, sizeof(double) * (size_t)(g * d));
    }
}

static void attend(int t, bool global, double *y) {
    const int h = (int)gemma.heads, g = global ? 1 : 2, d = global ? 16 : 8;
    const int first = global || t < WINDOW ? 0 : t - WINDOW + 1;
    for (int head = 0; head < h; head++) {
        const int at = head / (h / g) * d;
        double p[TOKENS], sum = 0;
        for (int j = first; j < extent_of(t); j++) {
            p[j] = 0;
            for (int i = 0; i < d; i++) {
                p[j] += q[t][head * d + i] * k[j][at + i];
            }
            p[j] = exp(p[j] / sqrt(d));
            sum += p[j];
        }
        for (int i = 0; i < d; i++) {
            y[head * d + i] = 0;
            for (int j = first; j < extent_of(t); j++) {
                y[head * d + i] += p[j] / sum * v[j][at + i];
            }
        }
    }
}

static void mix(const struct weights *w, uint32_t layer, const double *from, double eps,
                double *out) {
    const int c = (int)gemma.hidden, f = (int)gemma.expert_ffn;
    double y[MAX_DIM], z[MAX_DIM], one[MAX_DIM], sum[MAX_DIM] = {0}, weight[MAX_EXPERTS];
    naive_norm(weights_at(w, WEIGHT_FFN_NORM, layer), eps, from, c, y);
    geglu(weights_at(w, WEIGHT_SHARED_GATE_UP, layer), weights_at(w, WEIGHT_SHARED_DOWN, layer), y,
          (int)gemma.shared_ffn, out);
    naive_norm(weights_at(w, WEIGHT_SHARED_OUTPUT_NORM, layer), eps, out, c, out);
    naive_route(w, layer, y, weight);
    naive_norm(weights_at(w, WEIGHT_EXPERT_NORM, layer), eps, from, c, z);
    for (int e = 0; e < (int)gemma.experts; e++) {
        const float *gate_up = weights_at(w, WEIGHT_EXPERTS_GATE_UP, layer);
        const float *down = weights_at(w, WEIGHT_EXPERTS_DOWN, layer);
        geglu(gate_up + e * 2 * f * c, down + e * c * f, z, f, one);
        for (int i = 0; i < c; i++) {
            sum[i] += weight[e] * one[i];
        }
    }
    naive_norm(weights_at(w, WEIGHT_EXPERT_OUTPUT_NORM, layer), eps, sum, c, sum);
    for (int i = 0; i < c; i++) {
        out[i] += sum[i];
    }
    naive_norm(weights_at(w, WEIGHT_FFN_OUTPUT_NORM, layer), eps, out, c, out);
}

/* The most likely token, the entropy at temperature T and the embedding that is expected. */
static void read_logits(const struct weights *w, int t, double eps) {
    const int c = (int)gemma.hidden, vocab = (int)gemma.vocab;
    const float *table = weights_at(w, WEIGHT_EMBEDDING, 0);
    double y[MAX_DIM], logit[MAX_VOCAB], sum = 0;
    naive_norm(weights_at(w, WEIGHT_FINAL_NORM, 0), eps, x[PROMPT + t], c, y);
    naive_matvec(table, y, vocab, c, logit);
    top[t] = 0;
    for (int i = 0; i < vocab; i++) {
        logit[i] = gemma.logit_softcap * tanh(logit[i] / gemma.logit_softcap);
        top[t] = logit[i] > logit[top[t]] ? i : top[t];
        sum += exp(logit[i] / T);
    }
    memset(expected[t], 0, sizeof expected[t]);
    entropy[t] = 0;
    for (int i = 0; i < vocab; i++) {
        const double p = exp(logit[i] / T) / sum;
        entropy[t] -= p * log(p);
        for (int j = 0; j < c; j++) {
            expected[t][j] += p * (double)table[i * c + j];
        }
    }
}

static void naive_step(const struct weights *w, const int32_t *tokens) {
    const int c = (int)gemma.hidden;
    const double eps = (double)w->constants.norm_epsilon;
    double y[MAX_DIM], z[MAX_DIM];
    for (int t = 0; t < TOKENS; t++) {
        const float *row = (const float *)weights_at(w, WEIGHT_EMBEDDING, 0) + tokens[t] * c;
        for (int i = 0; i < c; i++) {
            x[t][i] = (double)row[i];
        }
    }
    condition(w, eps);
    for (uint32_t layer = 0; layer < gemma.layers; layer++) {
        const bool global = layer == 2;
        project(w, layer, global, eps);
        for (int t = 0; t < TOKENS; t++) {
            attend(t, global, y);
            naive_matvec(weights_at(w, WEIGHT_OUTPUT, layer), y, c,
                         (int)gemma.heads * (global ? 16 : 8), z);
            naive_norm(weights_at(w, WEIGHT_ATTENTION_OUTPUT_NORM, layer), eps, z, c, z);
            for (int i = 0; i < c; i++) {
                x[t][i] += z[i];
            }
            mix(w, layer, x[t], eps, z);
            for (int i = 0; i < c; i++) {
                x[t][i] += z[i];
            }
        }
    }
    for (int t = 0; t < CANVAS; t++) {
        read_logits(w, t, eps);
    }
}

/* ---- the engine ---- */

static int32_t positions[TOKENS], extents[TOKENS], pages[TOKENS / PAGE], rows[CANVAS];
static int32_t places[CANVAS];

/* The prompt, each of whose tokens sees no further than itself, and the canvas in one span. */
static void add_span(struct rig *rig) {
    for (int t = 0; t < TOKENS; t++) {
        positions[t] = t;
        extents[t] = extent_of(t);
        pages[t / PAGE] = (t / PAGE * 7 + 3) % 40;
    }
    for (int r = 0; r < CANVAS; r++) {
        rows[r] = PROMPT + r;
        places[r] = CANVAS - 1 - r;
    }
    const struct step_part part =
        MAKE(struct step_part, .positions = positions, .logit_rows = rows, .row_places = places,
             .draw_key = 5, .drawing = {.temperature = (float)T, .top_p = 1},
             .kv_pages = {pages, TOKENS / PAGE, extents});
    struct span *span = rig_add(rig, TOKENS, 0, &part);
    span->phase = PHASE_REUSE;
    span->exact = 1;
    span->logit_rows = CANVAS;
}

/* The same model, with a vocabulary that ranks divide: each step's tokens, entropies and kept
 * expectations are one device's. What a step expects goes into the next, which makes ten times of a
 * difference by rounding. */
TEST(ranks_read_and_keep_what_one_device_does) {
    enum { STEPS = 2 };
    struct model even = gemma, of_rank;
    struct err err = {0};
    struct step_limits paged = limits;
    int32_t tokens[TOKENS];
    static float found[2][CANVAS], drawn[2][CANVAS];
    even.vocab = 60;
    paged.page_rows = PAGE;
    paged.places = CANVAS;
    for (int t = 0; t < TOKENS; t++) {
        tokens[t] = (t * 17 + 5) % (int)even.vocab;
    }
    ck_assert_int_eq(model_divide(&even, 2, false, &of_rank, &err), 0);
    struct rig *rigs[2];
    struct ranks *ranks;
    for (int many = 0; many < 2; many++) {
        rigs[many] = rig_set_up(&(struct rig_setup){many ? &of_rank : &even, &renoising,
                                                    "random:21", NULL, KERNEL_F32, &paged});
    }
    const struct ranks_request request = {.device = &rigs[1]->device,
                                          .model = &of_rank,
                                          .storage = rigs[1]->graph.storage,
                                          .weights = "random:21"};
    ck_assert_msg(ranks_open(&request, &ranks, &err) == 0, "%s", err.text);
    ck_assert_msg(forward_lead(rigs[1]->forward, ranks, &err) == 0, "%s", err.text);
    for (int step = 0; step < STEPS; step++) {
        for (int many = 0; many < 2; many++) {
            struct rig *rig = rigs[many];
            rig->result.margin = drawn[many];
            rig->result.entropy = found[many];
            if (step == 0) {
                rig_write(rig, 0, 0, tokens, TOKENS);
                ck_assert_int_eq(forward_clear_places(rig->forward, 0, CANVAS, &err), 0);
            }
            rig_clear(rig);
            add_span(rig);
            rig_step(rig);
        }
        for (uint32_t rank = 0; rank < 2; rank++) {
            const struct forward *of = forward_of_rank(rigs[1]->forward, rank);
            const float *one = (const float *)(const void *)rigs[0]->forward->room.expected;
            const float *two = (const float *)(const void *)of->room.expected;
            for (int i = 0; i < CANVAS * (int)gemma.hidden; i++) {
                ck_assert_float_eq_tol(one[i], two[i], 1e-4F);
            }
        }
        for (int t = 0; t < CANVAS; t++) {
            ck_assert_int_eq(rigs[0]->token[t], rigs[1]->token[t]);
            ck_assert_mem_eq(&drawn[0][t], &drawn[1][t], sizeof drawn[0][t]);
            ck_assert_float_eq_tol(found[0][t], found[1][t], 1e-5F);
        }
    }
    forward_close(rigs[1]->forward);
    rigs[1]->forward = NULL;
    ranks_close(ranks);
    rig_close(rigs[0]);
    ck_assert_int_eq(rig_close(rigs[1]), 0);
}

/* Two steps: the first is conditioned on nothing, the second on what the first expected. */
TEST(layers_of_both_kinds_and_conditioning_are_the_reference_s) {
    int32_t tokens[TOKENS];
    float kept_entropy[CANVAS], drawn[CANVAS];
    struct err err = {0};
    struct step_limits paged = limits;
    paged.page_rows = PAGE;
    paged.places = CANVAS;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){&gemma, &renoising, "random:21", NULL, KERNEL_F32, &paged});
    for (int t = 0; t < TOKENS; t++) {
        tokens[t] = (t * 17 + 5) % (int)gemma.vocab;
    }
    rig_write(rig, 0, 0, tokens, TOKENS);
    ck_assert_int_eq(forward_clear_places(rig->forward, 0, CANVAS, &err), 0);
    memset(expected, 0, sizeof expected);
    for (int step = 0; step < 2; step++) {
        rig->result.margin = drawn;
        rig->result.entropy = kept_entropy;
        rig_clear(rig);
        add_span(rig);
        rig_step(rig);
        naive_step(&rig->weights, tokens);
        const float *kept = (const float *)(const void *)rig->forward->room.expected;
        for (int t = 0; t < CANVAS; t++) {
            double apart = 0, size = 0;
            for (int i = 0; i < (int)gemma.hidden; i++) {
                const double found = (double)kept[places[t] * (int)gemma.hidden + i];
                apart += (found - expected[t][i]) * (found - expected[t][i]);
                size += expected[t][i] * expected[t][i];
            }
            ck_assert_msg(sqrt(apart / size) < 1e-4, "step %d, row %d: %g", step, t,
                          sqrt(apart / size));
            ck_assert_int_eq(rig->token[t], top[t]);
            ck_assert_double_lt(fabs((double)kept_entropy[t] - entropy[t]), 1e-4);
        }
    }
    rig_clear(rig);
    add_span(rig);
    places[1] = CANVAS;
    rig_plan(rig);
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    ck_assert_msg(strstr(err.text, "row 1 of span 0 has place") != NULL, "%s", err.text);
    ck_assert_int_eq(rig_close(rig), 0);
}

SUITE("forward with windows")
