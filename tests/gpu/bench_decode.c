/* What deciding takes beside a step: every decoder's rule, with what it reads of the logits beyond
 * token and confidence, for LLaDA-MoE's vocabulary. Device time of launches in a graph, and as a
 * share of the least that a step takes, reading all of LLaDA-MoE's weights once (a block of 32
 * tokens hits 63 of 64 experts) at the bandwidth of a copy in the same run. Masks are committed
 * where they stand, so that every launch finds the same rows. Then the kernels of iteration
 * smoothing, without the product between them. `bench_decode` prints a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/gpu/arrays.h"

enum { VOCAB = 157184, HIDDEN = 2048, MASK = 156895, LAUNCHES = 100, ROUNDS = 9 };

/* 7.36e9 parameters in bf16. */
static const double weight_bytes = 14.72e9;

/* One step's rows: a batch of blocks, everything masked. */
struct step {
    int n_requests, block, n_rows;
    struct array *logits, *token, *mask_token, *confidence, *margin, *entropy, *threshold, *key;
    struct array *first, *lengths, *take, *position, *start, *canvas, *committed, *counts;
    struct array *state, *lists;
    struct array *rows, *kept, *steps; /* of iteration smoothing */
};

static int in_order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Microseconds of one launch, the median over rounds of launches in a graph. */
static double time_of(cudaError_t (*run)(const struct step *s, cudaStream_t stream),
                      const struct step *s) {
    cudaStream_t stream;
    cudaEvent_t from, to;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    double us[ROUNDS];
    must(cudaStreamCreate(&stream), "stream");
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < LAUNCHES; i++) {
        must(run(s, stream), "launch");
    }
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiateWithFlags(&executable, graph, 0), "graph");
    for (int round = -1; round < ROUNDS; round++) { /* one round to warm up */
        float ms;
        must(cudaEventRecord(from, stream), "event");
        must(cudaGraphLaunch(executable, stream), "graph");
        must(cudaEventRecord(to, stream), "event");
        must(cudaStreamSynchronize(stream), "run");
        must(cudaEventElapsedTime(&ms, from, to), "time");
        us[round < 0 ? 0 : round] = (double)ms * 1000 / LAUNCHES;
    }
    qsort(us, ROUNDS, sizeof us[0], in_order);
    must(cudaGraphExecDestroy(executable), "graph");
    must(cudaGraphDestroy(graph), "graph");
    must(cudaEventDestroy(from), "event");
    must(cudaEventDestroy(to), "event");
    must(cudaStreamDestroy(stream), "stream");
    return us[ROUNDS / 2];
}

static cudaError_t sample(const struct step *s, cudaStream_t stream, bool statistics) {
    const struct call_sample call =
        MAKE(struct call_sample, .logits = s->logits->device, .token = s->token->device,
             .confidence = s->confidence->device, .margin = statistics ? s->margin->device : NULL,
             .entropy = statistics ? s->entropy->device : NULL, .n_rows = s->n_rows,
             .n_vocab = VOCAB, .dtype = KERNEL_BF16);
    return kernel_sample(&call, stream);
}

static cudaError_t plain(const struct step *s, cudaStream_t stream) {
    return sample(s, stream, false);
}

static cudaError_t with_statistics(const struct step *s, cudaStream_t stream) {
    return sample(s, stream, true);
}

static cudaError_t credit(const struct step *s, cudaStream_t stream) {
    const struct call_credit call =
        MAKE(struct call_credit, .logits = s->logits->device, .token = s->token->device,
             .confidence = s->confidence->device, .state = s->state->device,
             .lists = s->lists->device, .position = s->position->device,
             .canvas = s->canvas->device, .n_rows = s->n_rows, .n_vocab = VOCAB, .n_slots = 64,
             .mask_token = MASK, .alpha = 0.7f, .beta = 0.8f, .gamma = 0.2f, .dtype = KERNEL_BF16);
    return kernel_credit(&call, stream);
}

/* Over the logits themselves, which nobody reads any more: its time is that of any numbers. */
static cudaError_t softmax(const struct step *s, cudaStream_t stream) {
    const struct call_softmax call =
        MAKE(struct call_softmax, .logits = s->logits->device, .y = s->logits->device,
             .n_rows = s->n_rows, .n_vocab = VOCAB, .dtype = KERNEL_BF16);
    return kernel_softmax(&call, stream);
}

static cudaError_t keep_expected(const struct step *s, cudaStream_t stream) {
    const struct call_keep_expected call =
        MAKE(struct call_keep_expected, .x = s->rows->device, .places = s->lists->device,
             .step = s->steps->device, .kept = s->kept->device, .n_rows = s->n_rows,
             .n_channels = HIDDEN, .weight_init = 0.15, .weight_growth = 0.02, .weight_most = 0.3,
             .dtype = KERNEL_BF16);
    return kernel_keep_expected(&call, stream);
}

static cudaError_t add_expected(const struct step *s, cudaStream_t stream) {
    const struct call_add_expected call =
        MAKE(struct call_add_expected, .kept = s->kept->device, .places = s->lists->device,
             .at = s->position->device, .canvas = s->canvas->device, .y = s->rows->device,
             .n_tokens = s->n_rows, .n_channels = HIDDEN, .mask_token = MASK, .dtype = KERNEL_BF16);
    return kernel_add_expected(&call, stream);
}

static cudaError_t next_step(const struct step *s, cudaStream_t stream) {
    const struct call_next_step call =
        MAKE(struct call_next_step, .step = s->steps->device, .first_row = s->first->device,
             .least = s->threshold->device, .threshold = s->confidence->device, .n_rows = s->n_rows,
             .n_requests = s->n_requests, .threshold_decay = 0.02);
    return kernel_next_step(&call, stream);
}

static cudaError_t decide(const struct step *s, cudaStream_t stream, enum decode_kind rule,
                          enum decode_rank rank) {
    const struct call_decode call = MAKE(
        struct call_decode, .confidence = s->confidence->device, .margin = s->margin->device,
        .entropy = s->entropy->device, .token = s->mask_token->device,
        .first_row = s->first->device, .n_rows = s->lengths->device, .take = s->take->device,
        .threshold = s->threshold->device, .key = s->key->device, .canvas_start = s->start->device,
        .position = s->position->device, .canvas = s->canvas->device,
        .committed = s->committed->device, .n_committed = s->counts->device,
        .n_requests = s->n_requests, .max_rows = s->block, .mask_token = MASK, .rule = rule,
        .rank = rank, .slack = 1e-5f, .low = 0.62f, .factor = 1, .bound = 0.35f);
    return kernel_decode(&call, stream);
}

#define DECIDE(name, rule, rank)                                                                   \
    static cudaError_t name(const struct step *s, cudaStream_t stream) {                           \
        return decide(s, stream, rule, rank);                                                      \
    }
DECIDE(fixed, DECODE_COUNT, RANK_CONFIDENCE)
DECIDE(sequential, DECODE_COUNT, RANK_ORDER)
DECIDE(margin, DECODE_COUNT, RANK_MARGIN)
DECIDE(entropy, DECODE_COUNT, RANK_ENTROPY)
DECIDE(origin, DECODE_THRESHOLD, RANK_DRAW)
DECIDE(threshold, DECODE_THRESHOLD, RANK_CONFIDENCE)
DECIDE(factor, DECODE_FACTOR, RANK_CONFIDENCE)
DECIDE(hierarchical, DECODE_HIERARCHICAL, RANK_CONFIDENCE)
DECIDE(entropy_bounded, DECODE_ENTROPY_BOUNDED, RANK_ENTROPY)

/* Decoders, and what they take beyond a sample. */
static const struct {
    const char *name;
    cudaError_t (*rule)(const struct step *s, cudaStream_t stream);
    bool statistics, credit;
} decoders[] = {
    {"fixed, maskgit-plus", fixed, false, false},
    {"sequential", sequential, false, false},
    {"threshold", threshold, false, false},
    {"factor", factor, false, false},
    {"hierarchical", hierarchical, false, false},
    {"origin", origin, false, false},
    {"margin", margin, true, false},
    {"entropy", entropy, true, false},
    {"entropy-bounded", entropy_bounded, true, false},
    {"credit", threshold, false, true},
};

/* Nanoseconds a byte, of a copy that reads and writes a gigabyte. */
static double read_ns_of_byte(void) {
    const size_t n = (size_t)1 << 30;
    void *from, *to;
    cudaEvent_t a, b;
    float ms = 0;
    must(cudaMalloc(&from, n), "memory");
    must(cudaMalloc(&to, n), "memory");
    must(cudaEventCreate(&a), "event");
    must(cudaEventCreate(&b), "event");
    for (int i = 0; i < 2; i++) {
        must(cudaEventRecord(a, NULL), "event");
        for (int j = 0; j < 20; j++) {
            must(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, NULL), "copy");
        }
        must(cudaEventRecord(b, NULL), "event");
        must(cudaDeviceSynchronize(), "copy");
        must(cudaEventElapsedTime(&ms, a, b), "time");
    }
    must(cudaFree(from), "memory");
    must(cudaFree(to), "memory");
    return (double)ms * 1e6 / (2.0 * 20 * (double)n);
}

static struct array *singles(int n, float scale, float shift) {
    struct array *a = array_new((size_t)n * 4);
    for (int i = 0; i < n; i++) {
        ((float *)a->host)[i] = (float)(draw() >> 40) * 0x1p-24f * scale + shift;
    }
    push(a);
    return a;
}

static struct array *whole(int n, int32_t first, int32_t step) {
    int32_t *of = malloc(sizeof *of * (size_t)n);
    for (int i = 0; i < n; i++) {
        of[i] = first + step * i;
    }
    struct array *a = integers(of, n);
    free(of);
    return a;
}

static struct array *far(int n, int64_t step) {
    int64_t *of = malloc(sizeof *of * (size_t)n);
    for (int i = 0; i < n; i++) {
        of[i] = step * i;
    }
    struct array *a = longs(of, n);
    free(of);
    return a;
}

/* The first rows drawn, the others copies of them. */
static struct array *some_logits(int n) {
    enum { DRAWN = 16 };
    struct array *a = array_new((size_t)n * VOCAB * 2);
    uint16_t *rows = a->host;
    for (int64_t i = 0; i < (int64_t)DRAWN * VOCAB; i++) {
        rows[i] = bf16_from_float((float)(normal() * 3));
    }
    for (int row = DRAWN; row < n; row++) {
        memcpy(rows + (int64_t)row * VOCAB, rows + (int64_t)(row % DRAWN) * VOCAB, VOCAB * 2);
    }
    push(a);
    return a;
}

static void bench(int n_requests, int block, double ns_of_byte) {
    const int n = n_requests * block;
    const double step_us = weight_bytes * ns_of_byte / 1000;
    struct step s = MAKE(
        struct step, .n_requests = n_requests, .block = block, .n_rows = n,
        .logits = some_logits(n), .token = whole(n, 0, 0), .mask_token = whole(n, MASK, 0),
        .confidence = singles(n, 1, 0), .margin = singles(n, 1, 0), .entropy = singles(n, 2, -2),
        .threshold = singles(n_requests, 0, 0.9f), .key = far(n_requests, 12345),
        .first = whole(n_requests, 0, block), .lengths = whole(n_requests, block, 0),
        .take = whole(n_requests, 2, 0), .position = far(n, 1), .start = far(n_requests, block),
        .canvas = whole(n, MASK, 0), .committed = array_new((size_t)n),
        .counts = array_new((size_t)n_requests * 4), .state = array_new((size_t)n * 130 * 4),
        .lists = whole(n, 0, 1), .rows = random_bf16((int64_t)n * HIDDEN, 1),
        .kept = array_new((size_t)n * HIDDEN * 2), .steps = whole(n, 0, 0));
    memset(s.state->host, 0, s.state->n_bytes);
    push(s.state);
    const double sampling = time_of(plain, &s);
    const double more = time_of(with_statistics, &s) - sampling, credits = time_of(credit, &s);
    printf("\nbatch %d, block %d: sample %.1f us, statistics %+.1f us, credit %.1f us; a step at "
           "least %.0f us\n",
           n_requests, block, sampling, more, credits, step_us);
    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++) {
        const double us = time_of(decoders[i].rule, &s);
        const double all = us + (decoders[i].statistics && more > 0 ? more : 0) +
                           (decoders[i].credit ? credits : 0);
        printf("  %-20s rule %6.1f us, all %6.1f us, %5.2f %% of a step\n", decoders[i].name, us,
               all, 100 * all / step_us);
    }
    const double made = time_of(softmax, &s), kept = time_of(keep_expected, &s);
    const double added = time_of(add_expected, &s), counted = time_of(next_step, &s);
    printf("  smoothing, without its product: softmax %.1f us, keep %.1f us, add %.1f us, steps "
           "%.1f us, %.2f %% of a step\n",
           made, kept, added, counted, 100 * (made + kept + added + counted) / step_us);
    arrays_free();
}

int main(void) {
    state = 1;
    const double ns_of_byte = read_ns_of_byte();
    printf("a copy moves %.0f GB/s; V %d\n", 1 / ns_of_byte, VOCAB);
    for (int batch = 1; batch <= 32; batch *= 32) {
        for (int block = 32; block <= 64; block *= 2) {
            bench(batch, block, ns_of_byte);
        }
    }
    return n_failed ? 1 : 0;
}
