/* What SparseD's patterns save: the device time of one layer's attention to all keys, of the choice
 * of blocks, which a request makes once, and of attention by the pattern, for LLaDA-8B's 32 heads
 * at three lengths of canvas with 128 tokens of output, 0.3 of the blocks. Where every block is
 * kept both attentions are compared. `bench_pattern` prints a table. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "kernels/rules/pattern.h"
#include "tests/gpu/arrays.h"

enum { HEADS = 32, SIZE = 128, OUTPUT = 128, ROUNDS = 5 };

/* One request of n tokens; the rows of queries, keys and values are one matrix, as in the engine.
 */
struct canvas {
    int n, tokens;
    struct array *qkv, *y, *cache, *start, *zero, *rest, *keep, *keep_rest;
};

static void *part(const struct canvas *c, int i) {
    return (uint16_t *)c->qkv->device + i * HEADS * SIZE;
}

static cudaError_t full(const struct canvas *c) {
    const struct call_dense_attention call =
        MAKE(struct call_dense_attention, .q = part(c, 0), .k = part(c, 1), .v = part(c, 2),
             .y = c->y->device, .start = c->start->device, .q_stride = 3 * HEADS * SIZE,
             .kv_stride = 3 * HEADS * SIZE, .y_stride = HEADS * SIZE, .n_requests = 1,
             .n_tokens = c->n, .n_heads = HEADS, .n_kv_heads = HEADS, .head_size = SIZE,
             .max_tokens = c->n, .dtype = KERNEL_BF16);
    return kernel_dense_attention(&call, NULL);
}

static cudaError_t choice(const struct canvas *c) {
    const struct call_pattern call =
        MAKE(struct call_pattern, .q = part(c, 0), .k = part(c, 1), .start = c->start->device,
             .rest = c->rest->device, .keep = c->keep->device, .keep_rest = c->keep_rest->device,
             .cache_start = c->zero->device, .cache = c->cache->device,
             .q_stride = 3 * HEADS * SIZE, .kv_stride = 3 * HEADS * SIZE, .n_requests = 1,
             .n_heads = HEADS, .n_kv_heads = HEADS, .head_size = SIZE, .block_tokens = c->tokens,
             .max_tokens = c->n, .scale = 1 / sqrtf((float)HEADS), .dtype = KERNEL_BF16);
    return kernel_pattern(&call, NULL);
}

static struct call_pattern_attention sparse_call(const struct canvas *c) {
    return MAKE(struct call_pattern_attention, .q = part(c, 0), .k = part(c, 1), .v = part(c, 2),
                .cache = c->cache->device, .y = c->y->device, .start = c->start->device,
                .cache_start = c->zero->device, .q_stride = 3 * HEADS * SIZE,
                .kv_stride = 3 * HEADS * SIZE, .y_stride = HEADS * SIZE, .n_requests = 1,
                .n_tokens = c->n, .n_heads = HEADS, .n_kv_heads = HEADS, .head_size = SIZE,
                .block_tokens = c->tokens, .max_tokens = c->n, .dtype = KERNEL_BF16);
}

static cudaError_t sparse(const struct canvas *c) {
    const struct call_pattern_attention call = sparse_call(c);
    return kernel_pattern_attention(&call, NULL);
}

static cudaError_t sparse_mma(const struct canvas *c) {
    const struct call_pattern_attention call = sparse_call(c);
    return kernel_pattern_attention_mma(&call, NULL);
}

static int in_order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Milliseconds, the median. */
static double time_of(cudaError_t (*run)(const struct canvas *), const struct canvas *c) {
    cudaEvent_t from, to;
    double all[ROUNDS];
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    for (int round = -1; round < ROUNDS; round++) { /* one round to warm up */
        float ms;
        must(cudaEventRecord(from, NULL), "event");
        must(run(c), "launch");
        must(cudaEventRecord(to, NULL), "event");
        must(cudaDeviceSynchronize(), "run");
        must(cudaEventElapsedTime(&ms, from, to), "time");
        all[round < 0 ? 0 : round] = (double)ms;
    }
    qsort(all, ROUNDS, sizeof all[0], in_order);
    must(cudaEventDestroy(from), "event");
    must(cudaEventDestroy(to), "event");
    return all[ROUNDS / 2];
}

/* The largest difference of the two attentions where every block is kept. */
static double difference(const struct canvas *c) {
    must(cudaMemset(c->cache->device, 0xff, c->cache->n_bytes), "all blocks");
    must(sparse(c), "launch");
    uint16_t *by_pattern = pull(c->y);
    must(full(c), "launch");
    uint16_t *of_all = pull(c->y);
    double worst = 0;
    for (int64_t i = 0; i < (int64_t)c->n * HEADS * SIZE; i++) {
        const double off = fabs((double)(bf16_to_float(by_pattern[i]) - bf16_to_float(of_all[i])));
        worst = off > worst ? off : worst;
    }
    free(by_pattern);
    free(of_all);
    return worst;
}

static void measure(int n, int tokens, bool compares) {
    const int32_t n_blocks = pattern_n_blocks(n, tokens), ends[2] = {0, n};
    const int32_t of_prompt = pattern_n_blocks(n - OUTPUT, tokens);
    const int32_t rest = of_prompt < n_blocks ? of_prompt : n_blocks - 1;
    const int32_t keep = (int32_t)(0.3 * n_blocks) + 1;
    const int32_t keep_rest = (int32_t)(0.3 * (n_blocks - rest)) + 1;
    const int64_t zero = 0, words = (int64_t)HEADS * n_blocks * pattern_n_words(n_blocks);
    struct canvas c = {.n = n,
                       .tokens = tokens,
                       .qkv = random_bf16((int64_t)n * 3 * HEADS * SIZE, 1),
                       .y = array_new((size_t)n * HEADS * SIZE * 2),
                       .cache = array_new((size_t)words * 4),
                       .start = integers(ends, 2),
                       .zero = longs(&zero, 1),
                       .rest = integers(&rest, 1),
                       .keep = integers(&keep, 1),
                       .keep_rest = integers(&keep_rest, 1)};
    const double all = time_of(full, &c), chosen = time_of(choice, &c);
    uint32_t *kept = pull(c.cache);
    int64_t n_kept = 0;
    for (int64_t w = 0; w < words; w++) {
        n_kept += __builtin_popcount(kept[w]);
    }
    free(kept);
    const double some = time_of(sparse, &c), mma = time_of(sparse_mma, &c);
    printf("%6d  %3d  %5.3f  %9.3f  %9.3f  %9.3f  %9.3f  %5.2f", n, tokens,
           (double)n_kept / ((double)HEADS * n_blocks * n_blocks), all, chosen, some, mma,
           all / some);
    if (compares) {
        printf("  %.2g", difference(&c));
    }
    printf("\n");
    fflush(stdout);
    arrays_free();
}

int main(int argc, char **argv) {
    static const int canvases[] = {4096, 16384, 65536};
    const size_t n = argc > 1 && strcmp(argv[1], "small") == 0 ? 1 : 3;
    state = 7;
    printf("tokens block  kept  full ms  choice ms  pattern ms  its mma ms  full / pattern  "
           "largest difference where all are kept\n");
    for (size_t i = 0; i < n; i++) {
        measure(canvases[i], 128, i < 2);
        measure(canvases[i] + 60, 32, false);
    }
    return 0;
}
