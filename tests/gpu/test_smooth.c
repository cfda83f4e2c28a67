/* Iteration smoothing's kernels against their reference implementations, on random and on
 * adversarial data. A plain program, so that it runs on a GPU machine without a test library:
 * `test_smooth [seed] [small]` prints the seed, a line for each failure, and the count. Outputs are
 * poisoned before each launch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "tests/gpu/arrays.h"

enum { MASK = 126336 };

/* What a row of logits is made of. */
enum row_kind {
    ROW_NOISE,
    ROW_HUGE,       /* one logit far above the others */
    ROW_EQUAL,      /* all alike */
    ROW_ONE_FINITE, /* all others -infinity */
    ROW_NOT_NUMBER, /* one of them */
    ROW_INFINITE,   /* one +infinity */
    ROW_NOTHING,    /* all -infinity */
};
enum { ROW_KINDS = ROW_NOTHING + 1 };

static void fill_row(uint16_t *row, int n, enum row_kind kind, double scale) {
    const float base = kind == ROW_ONE_FINITE || kind == ROW_NOTHING ? -INFINITY : 7.5f;
    const bool is_noise = kind == ROW_NOISE || kind == ROW_HUGE || kind >= ROW_NOT_NUMBER;
    for (int i = 0; i < n; i++) {
        const float x = is_noise && kind != ROW_NOTHING ? (float)(normal() * scale) : base;
        row[i] = bf16_from_float(x);
    }
    const float one = kind == ROW_HUGE         ? 3e38f
                      : kind == ROW_ONE_FINITE ? -2.0f
                      : kind == ROW_NOT_NUMBER ? NAN
                                               : INFINITY;
    if (kind != ROW_NOISE && kind != ROW_EQUAL && kind != ROW_NOTHING) {
        row[between(0, n - 1)] = bf16_from_float(one);
    }
}

/* Each probability by itself: two roundings apart, or both no numbers. */
static bool is_softmax(const uint16_t *got, const uint16_t *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)bf16_to_float(got[i]), b = (double)bf16_to_float(want[i]);
        if (isnan(a) != isnan(b) || fabs(a - b) > 0x1p-7 * b + 1e-37) {
            return false;
        }
    }
    return true;
}

static void test_softmax(int n_rows, int n_vocab, bool in_place) {
    const int64_t n = (int64_t)n_rows * n_vocab;
    struct array *logits = array_new((size_t)n * 2), *y = in_place ? logits : NULL;
    for (int row = 0; row < n_rows; row++) {
        const enum row_kind kind = draw() % 2 ? ROW_NOISE : (enum row_kind)(draw() % ROW_KINDS);
        fill_row((uint16_t *)logits->host + (int64_t)row * n_vocab, n_vocab, kind,
                 draw() % 2 ? 0.5 : 12);
    }
    push(logits);
    y = in_place ? logits : array_new((size_t)n * 2);
    struct call_softmax call = MAKE(struct call_softmax, .logits = logits->host, .y = y->host,
                                    .n_rows = n_rows, .n_vocab = n_vocab, .dtype = KERNEL_BF16);
    ref_softmax(&call);
    call.logits = logits->device;
    call.y = y->device;
    launched(kernel_softmax(&call, NULL), "softmax");
    uint16_t *got = pull(y);
    check(is_softmax(got, y->host, n), "softmax of %d rows of %d", n_rows, n_vocab);
    check(memcmp(got + n, (uint16_t *)y->host + n, 16) == 0, "softmax wrote behind %d rows of %d",
          n_rows, n_vocab);
    free(got);
    arrays_free();
}

#define OF(array) (side ? (array)->device : (array)->host)

/* Of a rank's tokens, by what all ranks found. */
static void test_softmax_part(int n_rows, int n_vocab) {
    const int64_t n = (int64_t)n_rows * n_vocab;
    struct array *logits = random_bf16(n, 4), *y = array_new((size_t)n * 2);
    struct array *top = array_new((size_t)n_rows * 4), *confidence = array_new((size_t)n_rows * 4);
    for (int row = 0; row < n_rows; row++) {
        ((float *)top->host)[row] = (float)between(20, 30);
        ((float *)confidence->host)[row] = draw() % 9 == 0 ? NAN : (float)between(1, 100) / 100;
    }
    push(top);
    push(confidence);
    for (int side = 0; side < 2; side++) {
        const struct call_softmax call =
            MAKE(struct call_softmax, .logits = OF(logits), .y = OF(y), .top = OF(top),
                 .confidence = OF(confidence), .n_rows = n_rows, .n_vocab = n_vocab,
                 .dtype = KERNEL_BF16);
        side ? launched(kernel_softmax(&call, NULL), "softmax") : ref_softmax(&call);
    }
    uint16_t *got = pull(y);
    check(is_softmax(got, y->host, n), "a rank's part of the softmax of %d rows of %d", n_rows,
          n_vocab);
    free(got);
    arrays_free();
}

static struct array *some_places(int n, int n_places) {
    int32_t *places = malloc((size_t)n * sizeof *places);
    for (int i = 0; i < n; i++) { /* apart */
        places[i] = draw() % 4 == 0 ? -1 : (int32_t)((i * 7LL + 3) % n_places);
    }
    struct array *a = integers(places, n);
    free(places);
    return a;
}

static void test_rows(int n_rows, int n_tokens, int n_channels) {
    const int n_places = 7 * (n_rows > n_tokens ? n_rows : n_tokens) + 5; /* no multiple of 7 */
    int32_t *steps = malloc((size_t)n_rows * sizeof *steps);
    for (int i = 0; i < n_rows; i++) {
        steps[i] = draw() % 8 == 0 ? between(0, 1 << 30) : between(0, 20);
    }
    struct array *x = random_bf16((int64_t)n_rows * n_channels, 1), *step = integers(steps, n_rows);
    struct array *kept = random_bf16((int64_t)n_places * n_channels, 1);
    struct array *y = random_bf16((int64_t)n_tokens * n_channels, 1);
    struct array *of_rows = some_places(n_rows, n_places);
    struct array *of_tokens = some_places(n_tokens, n_places);
    struct array *canvas = array_new((size_t)n_tokens * 4), *at = array_new((size_t)n_tokens * 8);
    for (int t = 0; t < n_tokens; t++) {
        ((int32_t *)canvas->host)[t] = draw() % 3 ? MASK : between(0, 1000);
        ((int64_t *)at->host)[t] = n_tokens - 1 - t;
    }
    push(canvas);
    push(at);
    for (int side = 0; side < 2; side++) {
        const struct call_keep_expected keep =
            MAKE(struct call_keep_expected, .x = OF(x), .places = OF(of_rows), .step = OF(step),
                 .kept = OF(kept), .n_rows = n_rows, .n_channels = n_channels, .weight_init = 0.15,
                 .weight_growth = 0.02, .weight_most = 0.3, .dtype = KERNEL_BF16);
        const struct call_add_expected add =
            MAKE(struct call_add_expected, .kept = OF(kept), .places = OF(of_tokens), .at = OF(at),
                 .canvas = OF(canvas), .y = OF(y), .n_tokens = n_tokens, .n_channels = n_channels,
                 .mask_token = MASK, .dtype = KERNEL_BF16);
        if (side) {
            launched(kernel_keep_expected(&keep, NULL), "keep_expected");
            launched(kernel_add_expected(&add, NULL), "add_expected");
        } else {
            ref_keep_expected(&keep);
            ref_add_expected(&add);
        }
    }
    check_bytes(kept, kept->n_bytes - 16, "expected embeddings that are kept");
    check_bytes(y, y->n_bytes - 16, "embeddings with what was expected");
    free(steps);
    arrays_free();
}

static void test_next_step(int n_requests, int n_rows) {
    struct array *step = array_new((size_t)n_rows * 4), *first = array_new((size_t)n_requests * 4);
    struct array *least = array_new((size_t)n_requests * 4);
    struct array *threshold = array_new((size_t)n_requests * 4);
    for (int i = 0; i < n_rows; i++) {
        ((int32_t *)step->host)[i] = between(0, 70);
    }
    for (int r = 0; r < n_requests; r++) {
        ((int32_t *)first->host)[r] = between(0, n_rows - 1);
        ((float *)least->host)[r] = (float)(draw() >> 40) * 0x1p-24f;
    }
    struct array *const sent[] = {step, first, least};
    for (int i = 0; i < 3; i++) {
        push(sent[i]);
    }
    for (int side = 0; side < 2; side++) {
        const struct call_next_step call =
            MAKE(struct call_next_step, .step = OF(step), .first_row = OF(first),
                 .least = OF(least), .threshold = OF(threshold), .n_rows = n_rows,
                 .n_requests = n_requests, .threshold_decay = 0.02);
        side ? launched(kernel_next_step(&call, NULL), "next_step") : ref_next_step(&call);
    }
    check_bytes(step, step->n_bytes, "steps, and nothing behind them");
    check_bytes(threshold, threshold->n_bytes, "thresholds, and nothing behind them");
    arrays_free();
}

static void test_limits(void) {
    struct call_softmax softmax = {.n_rows = 0, .n_vocab = 8, .dtype = KERNEL_BF16};
    check(kernel_softmax(&softmax, NULL) == cudaSuccess, "no rows");
    softmax.dtype = KERNEL_F32;
    check(kernel_softmax(&softmax, NULL) == cudaErrorInvalidValue, "single precision");
    const struct call_keep_expected keep = {.n_rows = 1, .n_channels = 12, .dtype = KERNEL_BF16};
    check(kernel_keep_expected(&keep, NULL) == cudaErrorInvalidValue, "12 channels to keep");
    const struct call_add_expected add = {.n_tokens = 1, .n_channels = 12, .dtype = KERNEL_BF16};
    check(kernel_add_expected(&add, NULL) == cudaErrorInvalidValue, "12 channels to add");
    const struct call_next_step step = {.n_rows = -1};
    check(kernel_next_step(&step, NULL) == cudaErrorInvalidValue, "less than no rows");
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    const bool small = argc > 2 && strcmp(argv[2], "small") == 0;
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    for (int i = 0; i < (small ? 4 : 30); i++) {
        test_softmax(between(1, 40), between(1, 60), i % 2);
        test_softmax_part(between(1, 40), between(1, 3000));
        test_softmax(between(1, 9), between(2, small ? 3000 : 30000), i % 2);
        test_rows(between(1, 70), between(1, 90), 8 * between(1, 600));
        test_next_step(between(1, 40), between(1, small ? 300 : 5000));
    }
    if (!small) {
        test_softmax(64, 157184, true);
        test_softmax(33, 126464, false);
        test_softmax(9, 151667, false);
        test_rows(2048, 4096, 2048);
    }
    test_limits();
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
