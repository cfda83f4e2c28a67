/* dKV-Cache and what renews as it does, live on the CPU: scattered positions run against the rows
 * of a whole canvas, as an independent pass in double with rows of its own has it; what is renewed
 * always is as without a cache; co-batched requests change no token. */
#include "engine/weights/weights.h"
#include "sim/policy/decoder/decoder.h"
#include "tests/support/forward.h"
#include "tests/support/live.h"
#include "tests/support/unequal.h"

enum { BLOCK = 6 };

/* Intervals at which a block has steps of every kind. */
static const char *const caches[][3] = {
    {"cache=dkv-decode", "cache.interval_steps=4", NULL},
    {"cache=dkv-prefill", "cache.prompt_interval_steps=4", NULL},
    {"cache=dkv-pd", "cache.interval_steps=2", "cache.prompt_interval_steps=6"},
    {"cache=paced", "cache.renew_tokens=4", NULL},
    {"cache=entropy", "cache.bound_nats=6.465", NULL},
    {"cache=entropy", "cache.bound_nats=6.465", "cache.recent_tokens=3"},
};
enum { DECODE, PREFILL, PD, PACED, ENTROPY, RECENT, N_CACHES };

/* The same of a model whose logits are shifted, where it says so. */
static struct system *system_by(const char *const cache[3], const char *decoder, const char *scope,
                                const char *layout, const char *shifted) {
    char texts[3][64];
    snprintf(texts[0], sizeof texts[0], "decoder=%s", decoder);
    snprintf(texts[1], sizeof texts[1], "logit_scope=%s", scope);
    snprintf(texts[2], sizeof texts[2], "kv=%s", layout);
    const char *settings[13] = {
        texts[0], texts[1], texts[2], "layers=2", "block_tokens=6", "steps_per_block=6", shifted};
    size_t n = 7;
    for (int i = 0; i < 3 && cache[i] != NULL; i++) {
        settings[n++] = cache[i];
    }
    if (strcmp(decoder, "threshold") == 0) {
        settings[n++] = "decoder.threshold=0.012";
    }
    return live_system("llada-tiny", settings);
}

static struct system *system_of(const char *const cache[3], const char *decoder, const char *scope,
                                const char *layout) {
    return system_by(cache, decoder, scope, layout, "model.shifted_logits=off");
}

static struct served *serve_well(struct system *system, const struct arrival *arrivals) {
    struct served *served = serve_live(system, arrivals, N);
    check_outputs(served, system, together, N);
    check_used_as_planned(served, N);
    ck_assert_int_eq(served->memory.metered_bytes + served->memory.unmapped_bytes,
                     served->memory.planned_bytes);
    return served;
}

enum { MOST_CANVAS = 32, LAYERS = 2, SEED = 1 };

struct canvas {
    uint32_t n, prompt;
    uint32_t shift; /* 1: the row before a position decides on it */
    int32_t tokens[MOST_CANVAS];
    bool masked[MOST_CANVAS], decided[MOST_CANVAS]; /* decided: by the step before */
    uint32_t since[MOST_CANVAS];                    /* a position was decided: steps */
    double k[LAYERS][MOST_CANVAS][MAX_DIM], v[LAYERS][MOST_CANVAS][MAX_DIM];
    double x[MOST_CANVAS][MAX_DIM];
    double entropy; /* of what the step before decided, nats */
};

static void attend(const struct model *m, const struct canvas *canvas, uint32_t layer,
                   const double *q, double *y) {
    int d = (int)m->head_dim;
    for (int head = 0; head < (int)m->heads; head++) {
        int at = head / (int)(m->heads / m->kv_heads) * d;
        double p[MOST_CANVAS], sum = 0;
        for (uint32_t j = 0; j < canvas->n; j++) {
            p[j] = 0;
            for (int i = 0; i < d; i++) {
                p[j] += q[head * d + i] * canvas->k[layer][j][at + i];
            }
            p[j] = exp(p[j] / sqrt(d));
            sum += p[j];
        }
        for (int i = 0; i < d; i++) {
            y[head * d + i] = 0;
            for (uint32_t j = 0; j < canvas->n; j++) {
                y[head * d + i] += p[j] / sum * canvas->v[layer][j][at + i];
            }
        }
    }
}

/* The rows of the positions that run are renewed, then each of these attends to all. */
static void run_layer(const struct weights *w, uint32_t layer, struct canvas *canvas,
                      const bool *runs) {
    const struct model *m = w->layout.model;
    int c = (int)m->hidden, width = (int)(m->heads * m->head_dim);
    int kv = (int)(m->kv_heads * m->head_dim), d = (int)m->head_dim;
    double eps = (double)w->constants.norm_epsilon, y[MAX_DIM], z[MAX_DIM];
    static double qkv[MOST_CANVAS][3 * MAX_DIM];
    for (uint32_t t = 0; t < canvas->n; t++) {
        if (runs[t]) {
            naive_norm(weights_at(w, WEIGHT_ATTENTION_NORM, layer), eps, canvas->x[t], c, y);
            naive_matvec(weights_at(w, WEIGHT_QKV, layer), y, width + 2 * kv, c, qkv[t]);
            for (int at = 0; at < width + kv; at += d) {
                naive_rotate(qkv[t] + at, d, (int)t, &w->constants.rotation);
            }
            memcpy(canvas->k[layer][t], qkv[t] + width, sizeof(double) * (size_t)kv);
            memcpy(canvas->v[layer][t], qkv[t] + width + kv, sizeof(double) * (size_t)kv);
        }
    }
    for (uint32_t t = 0; t < canvas->n; t++) {
        if (runs[t]) {
            attend(m, canvas, layer, qkv[t], y);
            naive_matvec(weights_at(w, WEIGHT_OUTPUT, layer), y, c, width, z);
            for (int i = 0; i < c; i++) {
                canvas->x[t][i] += z[i];
            }
            naive_norm(weights_at(w, WEIGHT_FFN_NORM, layer), eps, canvas->x[t], c, y);
            naive_ffn(w, layer, y, z);
            for (int i = 0; i < c; i++) {
                canvas->x[t][i] += z[i];
            }
        }
    }
}

/* What the model says at a position that was run, and how unsure it is of it. */
static int32_t best_token(const struct weights *w, const struct canvas *canvas, uint32_t t,
                          double *entropy) {
    const struct model *m = w->layout.model;
    static double logits[4096];
    double y[MAX_DIM];
    naive_norm(weights_at(w, WEIGHT_FINAL_NORM, 0), (double)w->constants.norm_epsilon, canvas->x[t],
               (int)m->hidden, y);
    naive_matvec(weights_at(w, WEIGHT_HEAD, 0), y, (int)m->vocab, (int)m->hidden, logits);
    int32_t best = 0;
    for (int32_t i = 1; i < (int32_t)m->vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    double sum = 0, weighted = 0;
    for (int32_t i = 0; i < (int32_t)m->vocab; i++) {
        double p = exp(logits[i] - logits[best]);
        sum += p;
        weighted += p * (logits[i] - logits[best]);
    }
    *entropy = log(sum) - weighted / sum;
    return best;
}

static void run_step(const struct weights *w, struct canvas *canvas, const bool *runs,
                     uint32_t next) {
    const struct model *m = w->layout.model;
    for (uint32_t t = 0; t < canvas->n; t++) {
        const float *row = (const float *)weights_at(w, WEIGHT_EMBEDDING, 0) +
                           (size_t)canvas->tokens[t] * m->hidden;
        for (uint32_t i = 0; i < m->hidden; i++) {
            canvas->x[t][i] = (double)row[i];
        }
    }
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        run_layer(w, layer, canvas, runs);
    }
    ck_assert(runs[next - canvas->shift] && canvas->masked[next]);
    canvas->tokens[next] = best_token(w, canvas, next - canvas->shift, &canvas->entropy);
    canvas->masked[next] = false;
    memset(canvas->decided, 0, sizeof canvas->decided);
    for (uint32_t t = 0; t < canvas->n; t++) {
        canvas->since[t]++;
    }
    canvas->since[next] = 0;
    canvas->decided[next] = true;
}

/* The masked position of [first, end) whose draw is the largest: one is decided a step. */
static uint32_t next_of(const struct canvas *canvas, uint64_t id, uint32_t first, uint32_t end) {
    uint32_t best = end;
    float most = -1;
    for (uint32_t t = first; t < end; t++) {
        float draw = keyed_draw(rng_key(SEED, id, 0), t);
        if (canvas->masked[t] && draw > most) {
            best = t;
            most = draw;
        }
    }
    return best;
}

/* `step` in the block that begins at `first`, `of_all` of the request, each of which decides a
 * token. Where logits are shifted rows stand for the positions after theirs; the last one for none,
 * which dKV-Cache's released code runs in a request's second step all the same. */
static void choose_runs(int cache, const struct canvas *canvas, uint32_t first, uint32_t step,
                        uint32_t of_all, bool *runs) {
    const bool is_dkv = cache == DECODE || cache == PD;
    for (uint32_t row = 0; row < canvas->n; row++) {
        const uint32_t t = row + canvas->shift;
        const bool is_one = t < canvas->n, is_output = is_one && t >= canvas->prompt;
        bool undecided = is_one ? canvas->masked[t] || canvas->decided[t] : is_dkv && of_all == 1;
        bool of_cache[N_CACHES] = {
            [DECODE] = step % 4 == 0 || undecided,
            [PREFILL] = step % 4 == 0 || t >= canvas->prompt,
            [PACED] = of_all % 4 == 0 || undecided ||
                      (step == 0 && is_output && t + BLOCK >= first), /* the block before */
            [ENTROPY] = of_all == 0 || canvas->entropy > 6.465 || undecided ||
                        (step == 0 && is_output && t + BLOCK >= first),
            [RECENT] = of_all == 0 || canvas->entropy > 6.465 || (is_one && canvas->masked[t]) ||
                       (is_one && t >= first && canvas->since[t] < 3) ||
                       (step < 3 && first > canvas->prompt && is_output && t + BLOCK >= first),
            [PD] = step % 6 == 0 || (step % 2 == 0 && t >= canvas->prompt) || undecided,
        };
        runs[row] = of_cache[cache];
    }
}

/* Rows that a run's steps wrote, read off its calls. */
static struct {
    int n_calls, n_scattered;
    bool wrote[LIVE_STEPS][MOST_CANVAS];
} noted;

static int note_keep(struct device *device, const struct call_keep *call) {
    int step = noted.n_calls++ / LAYERS;
    ck_assert_int_lt(step, LIVE_STEPS);
    for (int32_t t = 0; t < call->n_tokens; t++) {
        if (call->kv_rows[t] >= 0) {
            noted.wrote[step][call->kv_rows[t]] = true;
        }
    }
    return device_cpu.keep(device, call);
}

static int note_attention(struct device *device, const struct call_block_attention *call) {
    noted.n_scattered += call->own_cached;
    return device_cpu.block_attention(device, call);
}

static int32_t prompts[N][MOST_CANVAS];
static const char *const scopes[] = {"queries", "generation", "block", "masked"};

static const int32_t *prompt_of(void *state, uint64_t id) {
    (void)state;
    return prompts[id];
}

/* One request from its prompt to its end, a position a step: returns its steps. */
static uint32_t follow(int cache, const struct weights *w, const struct arrival *arrival,
                       uint32_t shift, struct canvas *canvas) {
    uint32_t n_steps = 0;
    bool runs[MOST_CANVAS];
    memset(canvas, 0, sizeof *canvas);
    canvas->shift = shift;
    canvas->prompt = arrival->prompt_tokens;
    canvas->n = arrival->prompt_tokens + arrival->output_tokens;
    for (uint32_t t = 0; t < canvas->n; t++) {
        canvas->masked[t] = t >= canvas->prompt;
        canvas->tokens[t] =
            canvas->masked[t] ? (int32_t)w->layout.model->mask_token : prompts[arrival->id][t];
    }
    for (uint32_t first = canvas->prompt; first < canvas->n; first += BLOCK) {
        uint32_t end = first + BLOCK < canvas->n ? first + BLOCK : canvas->n;
        for (uint32_t step = 0; step < end - first; step++, n_steps++) {
            uint32_t next = next_of(canvas, arrival->id, first, end);
            choose_runs(cache, canvas, first, step, n_steps, runs);
            run_step(w, canvas, runs, next);
            if (cache != PREFILL) { /* which stores the prompt alone */
                ck_assert_mem_eq(runs, noted.wrote[n_steps], canvas->n * sizeof *runs);
            }
        }
    }
    return n_steps;
}

static void decodes_as_reference(bool is_shifted) {
    static struct canvas canvas;
    struct device_table table = device_cpu;
    struct rng rng = rng_stream(4, "prompts");
    table.keep = note_keep;
    table.block_attention = note_attention;
    for (int cache = 0; cache < N_CACHES; cache++) {
        struct system *system =
            system_by(caches[cache], "random", is_shifted ? scopes[cache % 4] : "block", "pages",
                      is_shifted ? "model.shifted_logits=on" : "model.shifted_logits=off");
        struct engine_device device;
        struct weights weights;
        struct err err = {0};
        ck_assert(system->model->layers == LAYERS && system->model->hidden <= MAX_DIM);
        ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &device, &err), 0);
        ck_assert_int_eq(weights_open(&weights, &device, system->model, "random:3", &err), 0);
        for (int i = 0; i < 2; i++) {
            const struct arrival *arrival = &together[i];
            for (uint32_t t = 0; t < arrival->prompt_tokens; t++) {
                prompts[arrival->id][t] = (int32_t)(rng_uniform(&rng) * 1000);
            }
            memset(&noted, 0, sizeof noted);
            struct served *served =
                serve(&MAKE(struct serving, .system = system, .arrivals = arrival, .n = 1,
                            .table = &table, .prompt = prompt_of));
            ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
            uint32_t n_steps = follow(cache, &weights, arrival, is_shifted, &canvas);
            ck_assert_uint_eq(served->result.steps, n_steps);
            ck_assert_mem_eq(served->tokens[arrival->id], canvas.tokens + canvas.prompt,
                             arrival->output_tokens * sizeof canvas.tokens[0]);
            ck_assert_int_eq(noted.n_scattered > 0, cache != PREFILL);
            free(served);
        }
        weights_close(&weights);
        engine_device_close(&device);
        system_close(system);
    }
}

TEST(every_variant_decodes_as_a_reference_with_rows_of_its_own) {
    decodes_as_reference(false);
}

TEST(where_logits_are_shifted_the_rows_before_stand_for_positions) {
    decodes_as_reference(true);
}

static struct served *serve_as(const char *first, const char *second, const char *third,
                               const char *decoder) {
    struct system *system =
        system_of((const char *const[]){first, second, third}, decoder, "block", "pages");
    struct served *served = serve_well(system, together);
    system_close(system);
    return served;
}

static void same_runs(struct served *a, struct served *b) {
    same_tokens(a, b, N);
    ck_assert_uint_eq(a->result.steps, b->result.steps);
    ck_assert_mem_eq(a->commits, b->commits, sizeof a->commits);
}

TEST(renewal_in_every_step_is_no_cache_at_all) {
    static const char *const every[][3] = {
        {"cache=dkv-decode", "cache.interval_steps=1", NULL},
        {"cache=dkv-prefill", "cache.prompt_interval_steps=1", NULL},
        {"cache=dkv-pd", "cache.prompt_interval_steps=1", NULL},
        {"cache=paced", "cache.renew_tokens=1", NULL},
        {"cache=entropy", "cache.bound_nats=0", NULL},
        {"cache=entropy", "cache.bound_nats=0", "cache.recent_tokens=3"},
    };
    for (int i = 0; i < N_CACHES; i++) {
        struct served *none = serve_as("cache=none", NULL, NULL, "fixed");
        struct served *all = serve_as(every[i][0], every[i][1], every[i][2], "fixed");
        struct served *some = serve_as(caches[i][0], caches[i][1], caches[i][2], "fixed");
        same_tokens(none, all, N);
        ck_assert_uint_eq(all->result.steps, none->result.steps);
        ck_assert_int_eq(all->result.sym[SYM_TOKENS], none->result.sym[SYM_TOKENS]);
        ck_assert(!has_same_tokens(none, some)); /* it can be told from that */
        ck_assert_int_lt(some->result.sym[SYM_TOKENS], none->result.sym[SYM_TOKENS]);
        free(none);
        free(all);
        free(some);
    }
}

/* The same of caches that renew once a block unless told to do so more often. */
TEST(intervals_of_one_step_are_no_cache_and_longer_ones_than_blocks_once_a_block) {
    static const char *const of[] = {"cache=dual", "cache=prefix"};
    for (int i = 0; i < 2; i++) {
        struct served *none = serve_as("cache=none", NULL, NULL, "fixed");
        struct served *all = serve_as(of[i], "cache.interval_steps=1", NULL, "fixed");
        struct served *some = serve_as(of[i], "cache.interval_steps=2", NULL, "fixed");
        struct served *block = serve_as(of[i], NULL, NULL, "fixed");
        struct served *never = serve_as(of[i], "cache.interval_steps=1000", NULL, "fixed");
        same_tokens(none, all, N);
        same_runs(block, never);
        ck_assert(!has_same_tokens(none, block) && !has_same_tokens(some, block));
        ck_assert_int_eq(all->result.sym[SYM_TOKENS], none->result.sym[SYM_TOKENS]);
        ck_assert_mem_eq(block->result.sym, never->result.sym, sizeof block->result.sym);
        ck_assert_int_lt(block->result.sym[SYM_TOKENS], some->result.sym[SYM_TOKENS]);
        free(none);
        free(all);
        free(some);
        free(block);
        free(never);
    }
}

/* The output in every step against the prompt's rows: in place, or stored apart. */
TEST(an_output_that_is_renewed_in_every_step_is_the_prefill_variant) {
    struct served *both = serve_as("cache=dkv-pd", "cache.interval_steps=1",
                                   "cache.prompt_interval_steps=4", "threshold");
    struct served *prefill =
        serve_as(caches[PREFILL][0], caches[PREFILL][1], caches[PREFILL][2], "threshold");
    same_runs(both, prefill);
    free(both);
    free(prefill);
}

TEST(one_interval_for_prompt_and_output_is_the_decode_variant) {
    struct served *both = serve_as("cache=dkv-pd", "cache.interval_steps=4",
                                   "cache.prompt_interval_steps=4", "fixed");
    struct served *decode =
        serve_as(caches[DECODE][0], caches[DECODE][1], caches[DECODE][2], "fixed");
    same_runs(both, decode);
    free(both);
    free(decode);
}

SUITE("live dkv")
