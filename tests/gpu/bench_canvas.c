/* Time of the kernels that canvases of random tokens and layers with a window need, at
 * DiffusionGemma's sizes (one layer, or one step), next to what memory or the tensor cores allow:
 *
 *     bench_canvas         lines of: what, microseconds, GB or TFLOP moved or done, share of the
 * bound
 *
 * A bound is the larger of bytes over 4.8 TB/s and operations over 989 TFLOP/s (the data sheet of
 * an H200 SXM). tests/gpu/canvas_peers.py times PyTorch at the same shapes. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "kernels/rules/draw_rule.h"
#include "tests/gpu/arrays.h"

enum { RUNS = 20, ROUNDS = 5, CANVAS = 256, VOCAB = 262144, HIDDEN = 2816 };

static double time_us(void (*run)(const void *), const void *call) {
    cudaEvent_t begin, end;
    double best = 1e30;
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    run(call);
    for (int round = 0; round < ROUNDS; round++) {
        float ms = 0;
        must(cudaEventRecord(begin, NULL), "record");
        for (int i = 0; i < RUNS; i++) {
            run(call);
        }
        must(cudaEventRecord(end, NULL), "record");
        must(cudaEventSynchronize(end), "wait");
        must(cudaEventElapsedTime(&ms, begin, end), "time");
        best = fmin(best, 1e3 * (double)ms / RUNS);
    }
    return best;
}

static void say(const char *what, double us, double bytes, double operations) {
    const double bound = fmax(bytes / 4.8e12, operations / 989e12) * 1e6;
    printf("%-44s %9.1f us %8.1f GB/s %7.1f TFLOP/s  bound %7.1f us  %5.1f %%\n", what, us,
           bytes / us * 1e-3, operations / us * 1e-6, bound, 100 * bound / us);
}

static struct array *noise(int64_t n, double spread) {
    struct array *a = array_new((size_t)n * 2);
    const struct call_random call = MAKE(struct call_random, .y = a->device, .key = draw(), .n = n,
                                         .spread = spread, .dtype = KERNEL_BF16);
    launched(kernel_random(&call, NULL), "random");
    return a;
}

#define RUN(name, kernel)                                                                          \
    static void run_##name(const void *call) {                                                     \
        must(kernel(call, NULL), #name);                                                           \
    }
RUN(window, kernel_paged_attention_window)
RUN(paged, kernel_paged_attention)
RUN(softcap, kernel_softcap)
RUN(renoise, kernel_renoise)
RUN(softmax, kernel_softmax)
RUN(condition, kernel_condition)
RUN(swiglu, kernel_swiglu)

/* A canvas of each of b requests after `context` rows. window 0 of heads of 256: the other path. */
static void bench_attention(int b, int context, int d, int n_kv_heads, int window) {
    enum { HEADS = 16, PAGE = 256 };
    const int rows = context + CANVAS, n_pages = (rows + PAGE - 1) / PAGE, n = b * CANVAS;
    struct array *start = array_new((size_t)(b + 1) * 4),
                 *pages = array_new((size_t)b * n_pages * 4);
    struct array *extent = array_new((size_t)n * 4), *positions = array_new((size_t)n * 4);
    for (int i = 0; i < n; i++) {
        ((int32_t *)extent->host)[i] = rows;
        ((int32_t *)positions->host)[i] = context + i % CANVAS;
    }
    for (int r = 0; r <= b; r++) {
        ((int32_t *)start->host)[r] = r * CANVAS;
    }
    for (int i = 0; i < b * n_pages; i++) {
        ((int32_t *)pages->host)[i] = i;
    }
    push(start);
    push(pages);
    push(extent);
    push(positions);
    struct array *k = noise((int64_t)b * n_pages * PAGE * n_kv_heads * d, 1);
    struct array *v = noise((int64_t)b * n_pages * PAGE * n_kv_heads * d, 1);
    struct array *q = noise((int64_t)n * HEADS * d, 1), *y = array_new((size_t)n * HEADS * d * 2);
    struct array *scratch = array_new((size_t)block_attention_scratch_bytes(264));
    must(cudaMemset(scratch->device, 0, scratch->n_bytes), "clear");
    const struct call_paged_attention call =
        MAKE(struct call_paged_attention, .q = q->device, .k = k->device, .v = v->device,
             .y = y->device, .start = start->device, .extent = extent->device,
             .pages = pages->device, .scratch = scratch->device, .q_stride = HEADS * d,
             .kv_stride = n_kv_heads * d, .y_stride = HEADS * d, .n_requests = b, .n_tokens = n,
             .n_heads = HEADS, .n_kv_heads = n_kv_heads, .head_size = d, .max_pages = n_pages,
             .page_rows = PAGE, .max_queries = CANVAS, .max_extent = n_pages * PAGE,
             .dtype = KERNEL_BF16, .local_window = window, .positions = positions->device);
    double seen = 0;
    for (int i = 0; i < CANVAS; i++) {
        const int first = window > 0 ? context + i - window + 1 : 0;
        seen += rows - (first > 0 ? first : 0);
    }
    char what[64];
    snprintf(what, sizeof what, "%s %d x 256 after %d, heads %d/%d of %d",
             window > 0 ? "window"
             : d > 256  ? "wide"
                        : "paged",
             b, context, HEADS, n_kv_heads, d);
    const double most = window > 0 && window + CANVAS < rows ? window + CANVAS : rows;
    say(what, time_us(window > 0 || d > 256 ? run_window : run_paged, &call),
        2.0 * (2.0 * n * HEADS * d + 2.0 * b * most * n_kv_heads * d), 4.0 * b * seen * HEADS * d);
    arrays_free();
}

static void bench_logits(int b) {
    const int n = b * CANVAS;
    struct array *logits = noise((int64_t)n * VOCAB, 8);
    struct array *y = array_new((size_t)((int64_t)n * VOCAB) * 2);
    struct array *by = array_new((size_t)n * sizeof(struct draw_rule));
    struct array *key = array_new((size_t)n * 8), *entropy = array_new((size_t)n * 4);
    struct array *token = array_new((size_t)n * 4), *drawn = array_new((size_t)n * 4);
    for (int i = 0; i < n; i++) {
        ((struct draw_rule *)by->host)[i] = MAKE(struct draw_rule, .temperature = 0.6f, .top_p = 1);
        ((uint64_t *)key->host)[i] = draw();
    }
    push(by);
    push(key);
    const double bytes = 2.0 * n * VOCAB;
    char what[64];
    const struct call_softcap softcap =
        MAKE(struct call_softcap, .logits = logits->device, .n_rows = n, .n_vocab = VOCAB,
             .cap = 30, .dtype = KERNEL_BF16);
    snprintf(what, sizeof what, "softcap, %d canvases", b);
    say(what, time_us(run_softcap, &softcap), 2 * bytes, 0);
    const struct call_softmax softmax =
        MAKE(struct call_softmax, .logits = logits->device, .y = y->device, .n_rows = n,
             .n_vocab = VOCAB, .dtype = KERNEL_BF16, .by = by->device);
    snprintf(what, sizeof what, "softmax at a temperature, %d canvases", b);
    say(what, time_us(run_softmax, &softmax), 2 * bytes, 0);
    const struct call_renoise renoise =
        MAKE(struct call_renoise, .logits = logits->device, .by = by->device, .key = key->device,
             .token = token->device, .drawn = drawn->device, .entropy = entropy->device,
             .n_rows = n, .n_vocab = VOCAB, .dtype = KERNEL_BF16);
    snprintf(what, sizeof what, "draw, best and entropy, %d canvases", b);
    say(what, time_us(run_renoise, &renoise), bytes, 0);
    arrays_free();
}

static void bench_rows(int b) {
    enum { SHARED = 2112 };
    const int n = b * CANVAS;
    struct array *x = noise((int64_t)n * HIDDEN, 1), *y = noise((int64_t)n * HIDDEN, 1);
    struct array *rows = array_new((size_t)n * 4), *gate_up = noise((int64_t)n * 2 * SHARED, 1);
    char what[64];
    for (int i = 0; i < n; i++) {
        ((int32_t *)rows->host)[i] = i;
    }
    push(rows);
    struct call_condition condition =
        MAKE(struct call_condition, .x = x->device, .rows = rows->device, .y = y->device,
             .n_rows = n, .n_channels = HIDDEN, .epsilon = 1e-6f, .dtype = KERNEL_BF16);
    snprintf(what, sizeof what, "conditioning added, %d canvases", b);
    say(what, time_us(run_condition, &condition), 6.0 * n * HIDDEN, 0);
    condition.x = NULL;
    snprintf(what, sizeof what, "conditioned norm, %d canvases", b);
    say(what, time_us(run_condition, &condition), 4.0 * n * HIDDEN, 0);
    const struct call_swiglu gelu =
        MAKE(struct call_swiglu, .gate_up = gate_up->device, .y = x->device, .y_stride = SHARED,
             .n_tokens = n, .n_hidden = SHARED, .dtype = KERNEL_BF16, .gelu = true);
    snprintf(what, sizeof what, "gelu gates, %d canvases", b);
    say(what, time_us(run_swiglu, &gelu), 6.0 * n * SHARED, 0);
    arrays_free();
}

int main(void) {
    state = 1;
    for (int b = 1; b <= 8; b *= 8) {
        for (int context = 256; context <= 4096; context *= 4) {
            bench_attention(b, context, 256, 8, 1024);
            bench_attention(b, context, 256, 8, 0);
            bench_attention(b, context, 512, 2, 0);
        }
        bench_logits(b);
        bench_rows(b);
    }
    return 0;
}
