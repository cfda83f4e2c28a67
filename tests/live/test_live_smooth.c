/* Iteration smoothing live, on the CPU: its kernels, the embeddings that enter each step against
 * those that the logits before it make, its schedule, its memory, who refuses it. */
#include <math.h>

#include "engine/session/session.h"
#include "engine/step/forward_parts.h"
#include "kernels/bf16.h"
#include "kernels/ref/ref.h"
#include "sim/base/rng.h"
#include "sim/decode/smooth.h"
#include "tests/support/live.h"
#include "tests/support/unequal.h"

static const struct smoothing released = {.weight_init = 0.15,
                                          .weight_growth = 0.02,
                                          .weight_most = 0.3,
                                          .threshold_decay = 0.02,
                                          .gain = 1};

#define SMOOTH(model, ...)                                                                         \
    LIVE_SYSTEM(model, "iteration=smooth", "block_tokens=6", "max_requests=4",                     \
                "logit_scope=block", __VA_ARGS__)

static struct served *serve_well(struct system *system, const struct arrival *arrivals) {
    struct served *served = serve_live(system, arrivals, N);
    check_used_as_planned(served, N);
    check_outputs(served, system, together, N);
    return served;
}

enum { ROWS = 5, VOCAB = 41, CHANNELS = 24, PLACES = 7 };

static float some(struct rng *rng, double scale) {
    return (float)((rng_uniform(rng) - 0.5) * scale);
}

/* Kinds of rows: noise, one huge logit, all equal, all but one -infinity, one no number, one
 * +infinity, all -infinity. */
static void fill_logits(int kind, struct rng *rng, float *logits) {
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = kind == 2 ? 3.5f : kind == 3 || kind == 6 ? -INFINITY : some(rng, 20);
    }
    if (kind != 0 && kind != 2 && kind != 6) {
        logits[17] = kind == 1 ? 3e38f : kind == 3 ? 1 : kind == 4 ? NAN : INFINITY;
    }
}

TEST(a_softmax_is_that_of_each_row) {
    enum { KINDS = 7 };
    struct rng rng = rng_stream(3, "logits");
    float logits[KINDS][VOCAB], y[KINDS][VOCAB];
    for (int kind = 0; kind < KINDS; kind++) {
        fill_logits(kind, &rng, logits[kind]);
    }
    const struct call_softmax call = {
        .logits = logits, .y = y, .n_rows = KINDS, .n_vocab = VOCAB, .dtype = KERNEL_F32};
    ref_softmax(&call);
    for (int kind = 0; kind < KINDS; kind++) {
        double sum = 0, most = -INFINITY;
        for (int i = 0; i < VOCAB; i++) {
            most = fmax(most, (double)logits[kind][i]);
        }
        for (int i = 0; i < VOCAB; i++) {
            sum += exp((double)logits[kind][i] - most);
        }
        for (int i = 0; i < VOCAB; i++) {
            double wanted = exp((double)logits[kind][i] - most) / sum;
            ck_assert_msg(kind >= 4 ? isnan(y[kind][i])
                                    : fabs((double)y[kind][i] - wanted) <= 1e-7 * wanted,
                          "row %d, token %d: %g", kind, i, (double)y[kind][i]);
        }
    }
    ck_assert_float_eq(y[1][17], 1);
    ck_assert_float_eq(y[3][17], 1);
    /* In place, and alone. */
    ref_softmax(&(struct call_softmax){
        .logits = logits[0], .y = logits[0], .n_rows = 1, .n_vocab = VOCAB, .dtype = KERNEL_F32});
    ck_assert_mem_eq(logits[0], y[0], sizeof y[0]);
}

TEST(weights_and_thresholds_are_those_of_the_schedule) {
    const struct call_keep_expected at = {
        .weight_init = 0.15, .weight_growth = 0.02, .weight_most = 0.3, .n_channels = 1};
    for (int32_t i = 0; i < 60; i++) {
        int32_t place = 0, step = i, first = 0;
        float one = 1, kept = 0, least = 0.31f, threshold;
        struct call_keep_expected keep = at;
        keep.x = &one;
        keep.kept = &kept;
        keep.places = &place;
        keep.step = &step;
        keep.n_rows = 1;
        keep.dtype = KERNEL_F32;
        ref_keep_expected(&keep);
        ck_assert_float_eq(kept, (float)smoothing_weight(&released, (uint32_t)i + 1));
        ref_next_step(&MAKE(struct call_next_step, .step = &step, .first_row = &first,
                            .least = &least, .threshold = &threshold, .n_rows = 1, .n_requests = 1,
                            .threshold_decay = 0.02));
        ck_assert_float_eq(threshold, smoothing_threshold(&released, (uint32_t)i, least));
        ck_assert_int_eq(step, i + 1);
    }
}

/* Places as they come, some rows and tokens without one, some tokens decided. */
TEST(what_is_kept_of_a_row_is_added_to_masked_tokens_of_its_place) {
    struct rng rng = rng_stream(4, "rows");
    float x[ROWS][CHANNELS], kept[PLACES][CHANNELS], y[ROWS][CHANNELS], before[ROWS][CHANNELS];
    const int32_t places[ROWS] = {6, -1, 0, 3, 2}, tokens[ROWS] = {3, 6, -1, 2, 5};
    const int32_t steps[ROWS] = {0, 1, 2, 8, 100}, canvas[] = {7, 9, 9, 9, 1, 9};
    const int64_t at[ROWS] = {1, 2, 3, 4, 5};
    memset(kept, 0, sizeof kept);
    for (int row = 0; row < ROWS; row++) {
        for (int c = 0; c < CHANNELS; c++) {
            x[row][c] = some(&rng, 2);
            before[row][c] = y[row][c] = some(&rng, 2);
        }
    }
    ref_keep_expected(&MAKE(struct call_keep_expected, .x = x, .places = places, .step = steps,
                            .kept = kept, .n_rows = ROWS, .n_channels = CHANNELS,
                            .weight_init = 0.15, .weight_growth = 0.02, .weight_most = 0.3,
                            .dtype = KERNEL_F32));
    ref_add_expected(&MAKE(struct call_add_expected, .kept = kept, .places = tokens, .at = at,
                           .canvas = canvas, .y = y, .n_tokens = ROWS, .n_channels = CHANNELS,
                           .mask_token = 9, .dtype = KERNEL_F32));
    for (int c = 0; c < CHANNELS; c++) {
        const float third = (float)smoothing_weight(&released, 9) * x[3][c];
        const float first = (float)smoothing_weight(&released, 1) * x[0][c];
        ck_assert_float_eq(kept[1][c] + kept[4][c] + kept[5][c], 0);
        ck_assert_float_eq(y[0][c], before[0][c] + third);
        ck_assert_float_eq(y[1][c], before[1][c] + first);
        ck_assert_float_eq(y[2][c], before[2][c]); /* no place */
        ck_assert_float_eq(y[3][c], before[3][c]); /* no mask */
        ck_assert_float_eq(y[4][c], before[4][c]); /* nothing was kept there */
    }
}

/* More inputs than the CPU's panels hold at once. */
TEST(a_product_by_inputs_is_the_weighted_sum_of_a_matrix_s_rows) {
    enum { INPUTS = 70000, OUTPUTS = 264, TOKENS = 19, STRIDE = INPUTS + 8 };
    struct rng rng = rng_stream(5, "product");
    float *x = malloc(sizeof *x * STRIDE * TOKENS), *w = malloc(sizeof *w * INPUTS * OUTPUTS);
    float *y = malloc(sizeof *y * TOKENS * OUTPUTS), *one = malloc(sizeof *one * OUTPUTS);
    char text[DEVICE_TEXT_CHARS];
    struct device *device;
    ck_assert_int_eq(device_cpu.open(0, KERNEL_F32, &device, text), DEVICE_OK);
    for (int i = 0; i < STRIDE * TOKENS; i++) {
        x[i] = some(&rng, 0.01);
    }
    for (int i = 0; i < INPUTS * OUTPUTS; i++) {
        w[i] = (float)((i * 7919LL) % 1009) / 1009 - 0.5f;
    }
    struct call_linear call = MAKE(struct call_linear, .x = x, .w = w, .y = y, .x_stride = STRIDE,
                                   .y_stride = OUTPUTS, .n_tokens = TOKENS, .n_outputs = OUTPUTS,
                                   .n_inputs = INPUTS, .dtype = KERNEL_F32, .by_inputs = true);
    ck_assert_int_eq(device_cpu.linear(device, &call), DEVICE_OK);
    for (int t = 0; t < TOKENS; t += 9) {
        for (int o = 0; o < OUTPUTS; o += 131) {
            double sum = 0;
            for (int64_t i = 0; i < INPUTS; i++) {
                sum += (double)x[t * STRIDE + i] * (double)w[i * OUTPUTS + o];
            }
            ck_assert_double_eq_tol((double)y[t * OUTPUTS + o], sum, 1e-5);
        }
    }
    for (int t = 0; t < TOKENS; t += 6) { /* the same bits alone */
        call.x = x + t * STRIDE;
        call.y = one;
        call.n_tokens = 1;
        ck_assert_int_eq(device_cpu.linear(device, &call), DEVICE_OK);
        ck_assert_mem_eq(one, y + t * OUTPUTS, sizeof *one * OUTPUTS);
    }
    /* The reference's, and its bits in bf16. */
    uint16_t p[2 * 16], table[16 * 8], out[2 * 8];
    for (int i = 0; i < 16 * 8; i++) {
        table[i] = bf16_from_float((float)(i % 13) - 6);
        p[i % 32] = bf16_from_float((float)(i % 32) / 32);
    }
    ck_assert_int_eq(device_cpu.linear(device, &MAKE(struct call_linear, .x = p, .w = table,
                                                     .y = out, .x_stride = 16, .y_stride = 8,
                                                     .n_tokens = 2, .n_outputs = 8, .n_inputs = 16,
                                                     .dtype = KERNEL_BF16, .by_inputs = true)),
                     DEVICE_OK);
    for (int i = 0; i < 16; i++) {
        double sum = 0;
        for (int k = 0; k < 16; k++) {
            sum += (double)bf16_to_float(p[i / 8 * 16 + k]) *
                   (double)bf16_to_float(table[k * 8 + i % 8]);
        }
        ck_assert_uint_eq(out[i], bf16_from_float((float)sum));
    }
    device_cpu.close(device);
    free(x);
    free(w);
    free(y);
    free(one);
}

enum { MOST_ROWS = 64, MOST_CANVAS = 64, MOST_CHANNELS = 512, MOST_VOCAB = 1536 };

/* One request's steps, worked out beside the engine: what each is expected to start from. */
static struct {
    struct smoothing smoothing;
    float least;                /* the decoder's threshold */
    uint32_t n_steps, n_passes; /* that decide; all */
    const float *table;         /* of embeddings, [vocab, n_channels] */
    int32_t n_channels, n_rows;
    double rows[MOST_ROWS][MOST_CHANNELS]; /* of the step's logits */
    int64_t first;                         /* of the canvas */
    bool known[MOST_CANVAS];
    double expected[MOST_CANVAS][MOST_CHANNELS];
    uint32_t n_added, n_thresholds;
} watch;
static struct device_table watched;

static int watch_embed(struct device *device, const struct call_embed *call) {
    ck_assert_int_le(call->n_channels, MOST_CHANNELS);
    watch.table = call->table;
    watch.n_channels = call->n_channels;
    watch.n_rows = 0;
    watch.n_passes++;
    watch.first = watch.first < 0 ? call->at[0] : watch.first;
    return device_cpu.embed(device, call);
}

static int watch_add(struct device *device, const struct call_add_expected *call) {
    int32_t n = call->n_channels;
    static float before[MOST_ROWS][MOST_CHANNELS];
    const float *y = call->y;
    for (int32_t t = 0; t < call->n_tokens; t++) {
        memcpy(before[t], y + t * n, (size_t)n * sizeof *y);
        ck_assert_mem_eq(before[t], watch.table + call->canvas[call->at[t]] * (int64_t)n,
                         (size_t)n * sizeof *y);
    }
    int status = device_cpu.add_expected(device, call);
    for (int32_t t = 0; t < call->n_tokens; t++) {
        int64_t position = call->at[t] - watch.first;
        bool adds = call->canvas[call->at[t]] == call->mask_token && watch.known[position];
        double largest = 0;
        for (int32_t c = 0; c < n; c++) {
            double more = adds ? watch.expected[position][c] : 0;
            ck_assert_double_eq_tol((double)y[t * n + c], (double)before[t][c] + more, 1e-7);
            largest = fmax(largest, fabs(more));
        }
        ck_assert(!adds || watch.smoothing.weight_most == 0 || largest > 1e-5);
        watch.n_added += adds;
    }
    return status;
}

static int watch_sample(struct device *device, const struct call_sample *call) {
    int32_t n = call->n_vocab;
    for (int32_t row = 0; row < call->n_rows; row++, watch.n_rows++) {
        const float *logits = (const float *)call->logits + (int64_t)row * n;
        double *out = watch.rows[watch.n_rows], sum = 0;
        memset(out, 0, sizeof watch.rows[0]);
        for (int32_t token = 0; token < n; token++) {
            sum += exp((double)logits[token]);
        }
        for (int32_t token = 0; token < n; token++) {
            for (int32_t c = 0; c < watch.n_channels; c++) {
                out[c] += exp((double)logits[token]) / sum *
                          (double)watch.table[token * (int64_t)watch.n_channels + c];
            }
        }
    }
    return device_cpu.sample(device, call);
}

static int watch_decode(struct device *device, const struct call_decode *call) {
    ck_assert_int_eq(call->n_requests, 1);
    double weight = smoothing_weight(&watch.smoothing, watch.n_passes);
    for (int32_t row = 0; row < watch.n_rows; row++) {
        int64_t position = call->position[row] - watch.first;
        watch.known[position] = true;
        for (int32_t c = 0; c < watch.n_channels; c++) {
            watch.expected[position][c] = weight * watch.rows[row][c];
        }
    }
    if (call->rule != DECODE_COUNT) {
        float wanted = smoothing_threshold(&watch.smoothing, watch.n_passes - 1, watch.least);
        ck_assert_float_eq(call->threshold[0], wanted);
        watch.n_thresholds++;
    }
    watch.n_steps++;
    return device_cpu.decode(device, call);
}

static void check_embeddings(struct system *system, float least) {
    static const struct arrival alone = {.prompt_tokens = 9, .output_tokens = 14};
    memset(&watch, 0, sizeof watch);
    watch.smoothing = system->settings.smoothing;
    watch.least = least;
    watch.first = -1;
    watched = device_cpu;
    watched.embed = watch_embed;
    watched.add_expected = watch_add;
    watched.sample = watch_sample;
    watched.decode = watch_decode;
    struct serving serving = {.system = system, .arrivals = &alone, .n = 1, .table = &watched};
    struct served *served = serve(&serving);
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    check_used_as_planned(served, 1);
    ck_assert_uint_eq(watch.n_passes, served->result.request_steps);
    ck_assert_uint_gt(watch.n_added, system->rows.chooser == CHOSEN_BY_POLICY ? 3 : 14);
    free(served);
    system_close(system);
}

#define FOCUS(...)                                                                                 \
    live_system_of("focus", "sdar-tiny",                                                           \
                   (const char *const[]){"runtime=unmask", "block_tokens=8", "page_tokens=4",      \
                                         "iteration=smooth", "runtime.fused_head=off",             \
                                         __VA_ARGS__, NULL})

/* Steps one by one, several a visit, and a step issued again and again; logits in chunks. */
TEST(masked_tokens_enter_a_step_with_what_the_one_before_it_said) {
    static const char *const caches[] = {"cache=none", "cache=dual", "cache=vicinity",
                                         "cache=prefix", "cache=sparse-head"};
    for (int i = 0; i < 5; i++) {
        check_embeddings(SMOOTH("llada-tiny", caches[i], "decoder=threshold",
                                "decoder.threshold=0.0102", "iteration.threshold_decay=0.2"),
                         0.0102f);
        ck_assert_uint_eq(watch.n_thresholds, watch.n_steps);
        ck_assert_uint_lt(watch.n_steps, 14); /* some commit more than one of the 14 tokens */
        check_embeddings(SMOOTH("llada-tiny", caches[i], "decoder=threshold", "unroll.maximum=3",
                                "unroll.expected_tpf=1", "decoder.threshold=0.0102",
                                "iteration.threshold_decay=0.2"),
                         0.0102f);
        ck_assert_uint_eq(watch.n_thresholds, watch.n_steps);
        ck_assert_uint_lt(watch.n_steps, 14);
    }
    check_embeddings(SMOOTH("llada-tiny", "cache=dual", "decoder=fixed", "steps_per_block=6",
                            "iteration.weight_growth=0.05"),
                     0);
    check_embeddings(SMOOTH("dream-tiny", "cache=dual", "decoder=fixed", "logit_scope=masked"), 0);
    check_embeddings(SMOOTH("llada-moe-tiny", "cache=vicinity", "decoder=fixed"), 0);
    /* What is evicted in the middle of a step keeps what the last step said that computed it. */
    check_embeddings(FOCUS("decoder=fixed", "steps_per_block=8"), 0);
    check_embeddings(
        FOCUS("decoder=threshold", "decoder.threshold=0.006", "iteration.threshold_decay=0.2"),
        0.006f);
    struct system *in_chunks = SMOOTH("llada-tiny", "cache=dual", "decoder=fixed");
    in_chunks->chunks.bound.of[CHUNK_LOGITS] = 4;
    check_embeddings(in_chunks, 0);
}

TEST(without_weight_it_decides_as_plain_steps_do) {
    static const char *const weightless[] = {"iteration.weight_init=0",
                                             "iteration.weight_growth=0"};
    for (int i = 0; i < 2; i++) {
        const char *cache = i == 0 ? "cache=dual" : "cache=vicinity";
        struct system *systems[] = {
            SMOOTH("llada-tiny", cache, "decoder=fixed", weightless[0], weightless[1]),
            SMOOTH("llada-tiny", cache, "decoder=fixed", "iteration=plain"),
            SMOOTH("llada-tiny", cache, "decoder=fixed", "iteration.weight_init=1",
                   "iteration.weight_most=1"),
            /* A threshold that never sinks is one of 1. */
            SMOOTH("llada-tiny", cache, "decoder=threshold", "decoder.threshold=0.012",
                   weightless[0], weightless[1], "iteration.threshold_decay=0"),
            SMOOTH("llada-tiny", cache, "decoder=threshold", "decoder.threshold=1",
                   "iteration=plain")};
        struct served *served[5];
        for (int s = 0; s < 5; s++) {
            served[s] = serve_well(systems[s], together);
        }
        same_tokens(served[0], served[1], N);
        ck_assert(!has_same_tokens(served[0], served[2]));
        same_tokens(served[3], served[4], N);
        for (int s = 0; s < 5; s++) {
            free(served[s]);
            system_close(systems[s]);
        }
    }
}

/* A step's expectation is of its logits, whatever is drawn from them and at what temperature. */
TEST(without_weight_it_draws_and_tempers_as_plain_steps_do) {
    static const char *const settings[][2] = {{"sampling=on", "temperature=1.3"},
                                              {"temperature=0.5", "decoder=threshold"}};
    for (int i = 0; i < 2; i++) {
        const char *one = settings[i][0], *other = settings[i][1];
        const char *threshold = i == 0 ? "decoder=fixed" : "decoder.threshold=1";
        struct system *systems[] = {
            SMOOTH("llada-tiny", "cache=dual", threshold, one, other, "iteration.weight_init=0",
                   "iteration.weight_growth=0", "iteration.threshold_decay=0"),
            SMOOTH("llada-tiny", "cache=dual", threshold, one, other, "iteration=plain"),
            SMOOTH("llada-tiny", "cache=dual", threshold, one, other, "iteration.weight_init=1",
                   "iteration.weight_most=1", "iteration.threshold_decay=0")};
        struct served *served[3];
        for (int s = 0; s < 3; s++) {
            served[s] = serve_well(systems[s], together);
        }
        same_tokens(served[0], served[1], N);
        ck_assert(!has_same_tokens(served[0], served[2]));
        for (int s = 0; s < 3; s++) {
            free(served[s]);
            system_close(systems[s]);
        }
    }
}

/* From the second step on they are above the threshold, and more than one commits. */
TEST(confidences_are_of_the_temperature) {
    static const char *const temperatures[] = {"temperature=1", "temperature=0.1"};
    size_t n_steps[2];
    for (int i = 0; i < 2; i++) {
        struct system *system =
            SMOOTH("llada-tiny", "cache=dual", temperatures[i], "decoder=threshold",
                   "decoder.threshold=0.05", "iteration.threshold_decay=1");
        struct served *served = serve_well(system, together);
        n_steps[i] = served->n_steps;
        free(served);
        system_close(system);
    }
    ck_assert_uint_lt(n_steps[1], n_steps[0]);
}

static struct {
    int64_t owner[1024]; /* canvas position that was kept in a place last, + 1 */
    int32_t places[256];
    int32_t n_rows;
    uint32_t n_found;
} kept;

static int follow_keep(struct device *device, const struct call_keep_expected *call) {
    kept.n_rows = call->n_rows;
    memcpy(kept.places, call->places, (size_t)call->n_rows * sizeof *call->places);
    return device_cpu.keep_expected(device, call);
}

static int follow_decode(struct device *device, const struct call_decode *call) {
    for (int32_t row = 0; row < kept.n_rows; row++) {
        if (kept.places[row] >= 0) {
            kept.owner[kept.places[row]] = call->position[row] + 1;
        }
    }
    return device_cpu.decode(device, call);
}

static int follow_add(struct device *device, const struct call_add_expected *call) {
    for (int32_t t = 0; t < call->n_tokens; t++) {
        int32_t place = call->places[t];
        if (place < 0 || call->canvas[call->at[t]] != call->mask_token) {
            continue;
        }
        const float *row = (const float *)call->kept + (int64_t)place * call->n_channels;
        bool is_empty = true;
        for (int32_t c = 0; c < call->n_channels; c++) {
            is_empty = is_empty && row[c] == 0;
        }
        ck_assert(is_empty || kept.owner[place] == call->at[t] + 1);
        kept.n_found += !is_empty;
    }
    return device_cpu.add_expected(device, call);
}

static struct served *follow(struct system *system, const struct arrival *arrivals) {
    memset(&kept, 0, sizeof kept);
    watched = device_cpu;
    watched.keep_expected = follow_keep;
    watched.add_expected = follow_add;
    watched.decode = follow_decode;
    struct serving serving = {.system = system, .arrivals = arrivals, .n = N, .table = &watched};
    struct served *served = serve(&serving);
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    check_used_as_planned(served, N);
    check_outputs(served, system, together, N);
    ck_assert_uint_gt(kept.n_found, 4);
    return served;
}

/* Of those that come back, too: a step in the middle of a block clears nothing. */
TEST(whoever_is_admitted_has_empty_places) {
    struct system *system = SMOOTH("llada-tiny", "cache=dual");
    struct engine_request asked = {.backend = BACKEND_CPU, .weights = "random:3", .system = system};
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&asked, &engine, &err) == 0, "%s", err.text);
    struct sessions sessions;
    ck_assert_int_eq(sessions_open(&sessions, system, engine->forward, &engine->limits, 5, &err),
                     0);
    struct room *room = &engine->forward->room;
    const size_t block = 6 * (size_t)room->expected_bytes;
    struct request requests[2];
    for (uint32_t i = 0; i < 2; i++) {
        requests[i] =
            (struct request){.id = i, .prompt_tokens = 9, .output_tokens = 14, .canvas_tokens = 23};
        requests[i].state = REQUEST_RUNNING;
        ck_assert_int_eq(sessions_admit(&sessions, i, &requests[i], NULL, NULL, &err), 0);
    }
    for (int way = 0; way < 2; way++) { /* preempted, and done */
        memset(room->expected, 1, 4 * block);
        requests[1].state = way == 0 ? REQUEST_PREEMPTED : REQUEST_DONE;
        sessions_release(&sessions, 1);
        requests[1].state = REQUEST_RUNNING;
        ck_assert_int_eq(sessions_admit(&sessions, 1, &requests[1], NULL, NULL, &err), 0);
        size_t n_empty = 0;
        for (size_t i = 0; i < 4 * block; i++) {
            n_empty += room->expected[i] == 0;
        }
        ck_assert_uint_eq(n_empty, block);
    }
    sessions_close(&sessions);
    engine_close(engine);
    system_close(system);
}

#define EXACT(model, ...)                                                                          \
    live_system_of("sdar", model,                                                                  \
                   (const char *const[]){"runtime=unmask", "prefix_caching=off", "block_tokens=4", \
                                         "page_tokens=4", "iteration=smooth", __VA_ARGS__, NULL})

TEST(a_place_is_that_of_its_position_whoever_is_preempted) {
    static const char *const models[] = {"sdar-tiny", "fast-dllm-v2-tiny", "llada2-tiny"};
    uint32_t n_preempted = 0;
    for (int i = 0; i < 3; i++) {
        struct system *system = EXACT(models[i], "decoder=threshold", "decoder.threshold=0.008",
                                      "iteration.threshold_decay=0.3");
        struct served *calm = follow(system, together);
        ck_assert_uint_eq(calm->n_preempted, 0);
        struct served *alone = serve_live(system, apart, N);
        same_tokens(calm, alone, N);
        for (int64_t pages = 7; pages <= 11; pages += 2) {
            system->budget.pool_bytes = pages * system->budget.unit_bytes;
            struct served *pressed = follow(system, together);
            n_preempted += pressed->n_preempted;
            free(pressed);
        }
        free(alone);
        free(calm);
        system_close(system);
    }
    ck_assert_uint_gt(n_preempted, 2);
}

TEST(what_is_kept_is_planned_and_allocated_to_the_byte) {
    struct system *smooth = SMOOTH("llada-tiny", "cache=dual"),
                  *plain = SMOOTH("llada-tiny", "cache=dual", "iteration=plain");
    /* requests, positions, channels */
    const int64_t bytes = 4LL * 6 * smooth->model->hidden * F32_BYTES;
    ck_assert_int_eq(smooth->expected_bytes, bytes);
    ck_assert_int_eq(plain->expected_bytes, 0);
    ck_assert_int_eq(smooth->budget.reserve_bytes, plain->budget.reserve_bytes + bytes);
    struct engine *engines[2];
    struct system *systems[2] = {smooth, plain};
    struct err err = {0};
    for (int i = 0; i < 2; i++) {
        struct engine_request asked = {
            .backend = BACKEND_CPU, .weights = "random:3", .system = systems[i]};
        ck_assert_msg(engine_open(&asked, &engines[i], &err) == 0, "%s", err.text);
        struct engine_memory memory = engine_memory(engines[i]);
        ck_assert_int_eq(memory.metered_bytes, memory.planned_bytes);
    }
    const struct forward *forward = engines[0]->forward;
    ck_assert_int_eq(forward->room.expected_bytes * forward->limits.places, bytes);
    int64_t arrays = forward->packed.max_bytes - engines[1]->forward->packed.max_bytes;
    ck_assert_int_eq(forward_side_bytes(forward) - forward_side_bytes(engines[1]->forward),
                     bytes + arrays + 4 * (int64_t)sizeof(float));
    engine_close(engines[0]);
    engine_close(engines[1]);
    system_close(smooth);
    system_close(plain);
}

SUITE("live smooth")
