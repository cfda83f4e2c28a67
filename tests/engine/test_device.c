/* The CPU as a device: products whose rows do not see their batch, selections, attention in tiles,
 * ties, limits, memory behind addresses; and devices that are not there. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/device/device.h"
#include "kernels/ref/ref.h"
#include "sim/base/rng.h"
#include "sim/base/wait.h"
#include "tests/support/says.h"
#include "tests/support/suite.h"

TEST(a_row_of_a_product_has_the_same_bits_in_any_call) {
    enum { T = 101, MAX_N = 700, MAX_K = 1100 };
    static const int widths[][2] = {{30, 8}, {67, 44}, {256, 128}, {257, 1100}, {700, 333}};
    static float x[T * MAX_K], w[MAX_N * MAX_K], whole[T * MAX_N], part[T * MAX_N];
    struct engine_device cpu;
    struct err err = {0};
    struct rng rng = rng_stream(4, "product");
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    for (int i = 0; i < T * MAX_K; i++) {
        x[i] = (float)rng_uniform(&rng) - 0.5f;
    }
    for (int i = 0; i < MAX_N * MAX_K; i++) {
        w[i] = (float)rng_uniform(&rng) - 0.5f;
    }
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int n = widths[i][0], k = widths[i][1];
        struct call_linear call = {.x = x,
                                   .w = w,
                                   .y = whole,
                                   .x_stride = k,
                                   .y_stride = n,
                                   .n_tokens = T,
                                   .n_outputs = n,
                                   .n_inputs = k,
                                   .dtype = KERNEL_F32};
        ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
        for (int t = 1; t <= T; t++) { /* the first t rows, and the last t */
            call.y = part;
            call.n_tokens = t;
            ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
            ck_assert_mem_eq(part, whole, sizeof(float) * (size_t)(t * n));
            call.x = x + (T - t) * k;
            ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
            ck_assert_mem_eq(part, whole + (T - t) * n, sizeof(float) * (size_t)(t * n));
            call.x = x;
        }
        call.n_tokens = T;
        ref_linear(&call);
        double difference = 0, norm = 0;
        for (int j = 0; j < T * n; j++) {
            double d = (double)whole[j] - (double)part[j];
            difference += d * d;
            norm += (double)part[j] * (double)part[j];
        }
        ck_assert_double_le(sqrt(difference / norm), ref_bound(KERNEL_F32, k));
        float *sum = whole; /* adding in place */
        memcpy(sum, part, sizeof(float) * (size_t)(T * n));
        call = (struct call_linear){.x = x,
                                    .w = w,
                                    .add = sum,
                                    .y = sum,
                                    .x_stride = k,
                                    .y_stride = n,
                                    .n_tokens = T,
                                    .n_outputs = n,
                                    .n_inputs = k,
                                    .dtype = KERNEL_F32};
        ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
        for (int j = 0; j < T * n; j++) {
            ck_assert_float_eq_tol(sum[j], 2 * part[j], 1e-4f);
        }
    }
    engine_device_close(&cpu);
}

/* Of heads: those that the GPU takes, too, and a small one. */
static const int head_sizes[] = {8, 64, 96, 128, 256};
enum { N_HEAD_SIZES = sizeof head_sizes / sizeof head_sizes[0], MOST_SIZE = 256 };

TEST_EACH(selection_in_float32_equals_the_reference, N_HEAD_SIZES) {
    enum { T = 60, H = 6, G = 2, N = 51, KEPT = 20 };
    static float q[T * H * MOST_SIZE], k[T * G * MOST_SIZE], v[T * G * MOST_SIZE];
    static float scores[2][G * N], cache[2][2 * G * KEPT * MOST_SIZE];
    static int32_t indices[2][G * N];
    const int size = head_sizes[_i];
    struct engine_device cpu;
    struct err err = {0};
    struct rng rng = rng_stream(5, "selection");
    const int32_t start[] = {0, T}, begin[] = {13}, end[] = {22}, kept[] = {KEPT};
    const int64_t zero[] = {0};
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    for (int i = 0; i < T * H * size; i++) {
        q[i] = (float)rng_uniform(&rng) - 0.5f;
        k[i % (T * G * size)] = (float)rng_uniform(&rng) - 0.5f;
        v[i % (T * G * size)] = (float)i;
    }
    for (int uniform = 0; uniform < 2; uniform++) {
        struct call_select call =
            MAKE(struct call_select, .q = q, .k = k, .v = v, .start = start, .block_start = begin,
                 .block_end = end, .kept = kept, .cache_start = zero, .score_start = zero,
                 .q_stride = H * size, .kv_stride = G * size, .n_requests = 1, .n_heads = H,
                 .n_kv_heads = G, .head_size = size, .max_candidates = N, .uniform = uniform == 1,
                 .dtype = KERNEL_F32);
        for (int i = 0; i < 2; i++) {
            call.cache = cache[i];
            call.scores = scores[i];
            call.indices = indices[i];
            ck_assert(i == 0 ? cpu.table->select(cpu.device, &call) == DEVICE_OK
                             : ref_select(&call));
        }
        ck_assert_mem_eq(scores[0], scores[1], sizeof(float) * (uniform ? N : G * N));
        ck_assert_mem_eq(indices[0], indices[1], sizeof(int32_t) * KEPT);
        ck_assert_mem_eq(indices[0] + N, indices[1] + N, sizeof(int32_t) * KEPT);
        ck_assert_mem_eq(cache[0], cache[1], sizeof cache[0]);
    }
    engine_device_close(&cpu);
}

enum { KEYS = 200, HEADS = 4, KV_HEADS = 2, MOST_BLOCK = 3, PAGE_ROWS = 16 };
enum { PAGES = (KEYS + PAGE_ROWS - 1) / PAGE_ROWS };

/* One request's queries, keys and values, and the cache that holds its first keys. */
struct attention_inputs {
    float q[KEYS * HEADS * MOST_SIZE], k[KEYS * KV_HEADS * MOST_SIZE],
        v[KEYS * KV_HEADS * MOST_SIZE];
    float cache[2 * KV_HEADS * KEYS * MOST_SIZE];
    int32_t start[2];
    int size, n_keys, n_kept; /* size: of a head */
};

/* Queries point along one direction and so do the keys of `large`, two bits: the first key's and
 * the last one's, whose scores then are about 6 and 12 while the others stay within a few tenths.
 * The last `n_block` tokens are the block, those before it are in the cache. */
static void fill_attention(struct attention_inputs *in, int size, int n_keys, int n_block,
                           unsigned large) {
    struct rng rng = rng_stream((uint64_t)n_keys * 4 + large, "attention");
    for (int i = 0; i < n_keys * HEADS * size; i++) {
        in->q[i] = 1 + 0.2f * (float)(rng_uniform(&rng) - 0.5);
    }
    for (int i = 0; i < n_keys * KV_HEADS * size; i++) {
        int token = i / (KV_HEADS * size);
        float along = token == 0 && (large & 1) != 0            ? 1
                      : token == n_keys - 1 && (large & 2) != 0 ? 2
                                                                : 0;
        in->k[i] = along + 0.2f * (float)(rng_uniform(&rng) - 0.5);
        in->v[i] = (float)rng_uniform(&rng) - 0.5f;
    }
    in->size = size;
    in->start[0] = 0;
    in->start[1] = n_keys;
    in->n_keys = n_keys;
    in->n_kept = n_keys - n_block;
    for (int head = 0; head < KV_HEADS; head++) {
        for (int row = 0; row < in->n_kept; row++) {
            float *keys = in->cache + (head * in->n_kept + row) * size;
            int from = (row * KV_HEADS + head) * size;
            memcpy(keys, in->k + from, size * sizeof *keys);
            memcpy(keys + KV_HEADS * in->n_kept * size, in->v + from, size * sizeof *keys);
        }
    }
}

static struct call_dense_attention dense_call(const struct attention_inputs *in, float *y) {
    return (struct call_dense_attention){.q = in->q,
                                         .k = in->k,
                                         .v = in->v,
                                         .y = y,
                                         .start = in->start,
                                         .q_stride = HEADS * in->size,
                                         .kv_stride = KV_HEADS * in->size,
                                         .y_stride = HEADS * in->size,
                                         .n_requests = 1,
                                         .n_tokens = in->n_keys,
                                         .n_heads = HEADS,
                                         .n_kv_heads = KV_HEADS,
                                         .head_size = in->size,
                                         .max_tokens = in->n_keys,
                                         .dtype = KERNEL_F32};
}

/* Of the block alone: `block_start` is {0, its length}. */
static struct call_block_attention block_call(const struct attention_inputs *in,
                                              const int32_t *block_start, const int32_t *kept,
                                              const int64_t *cache_start, float *y) {
    return (struct call_block_attention){.q = in->q + in->n_kept * HEADS * in->size,
                                         .k = in->k + in->n_kept * KV_HEADS * in->size,
                                         .v = in->v + in->n_kept * KV_HEADS * in->size,
                                         .cache = in->cache,
                                         .y = y,
                                         .start = block_start,
                                         .kept = kept,
                                         .cache_start = cache_start,
                                         .q_stride = HEADS * in->size,
                                         .kv_stride = KV_HEADS * in->size,
                                         .y_stride = HEADS * in->size,
                                         .n_requests = 1,
                                         .n_heads = HEADS,
                                         .n_kv_heads = KV_HEADS,
                                         .head_size = in->size,
                                         .max_queries = block_start[1],
                                         .dtype = KERNEL_F32};
}

/* Every output row of a head, which sums over keys whose scores sum over its products. */
static void assert_rows_near(const float *y, const float *expected, int size, int n_rows,
                             int n_keys) {
    for (int row = 0; row < n_rows; row++) {
        double difference = 0, norm = 0;
        for (int d = row * size; d < (row + 1) * size; d++) {
            double off = (double)y[d] - (double)expected[d];
            difference += off * off;
            norm += (double)expected[d] * (double)expected[d];
        }
        double error = sqrt(difference / norm);
        ck_assert_msg(error <= ref_bound(KERNEL_F32, n_keys + size), "%d keys, row %d: %g", n_keys,
                      row, error);
    }
}

/* The block's queries over the same keys in pages, of which the last comes first. */
static void assert_pages_near(const struct engine_device *cpu, const struct attention_inputs *in,
                              const float *expected) {
    static float k[PAGES * PAGE_ROWS * KV_HEADS * MOST_SIZE], v[sizeof k / sizeof *k];
    static float y[MOST_BLOCK * HEADS * MOST_SIZE];
    const int row = KV_HEADS * in->size, n_block = in->n_keys - in->n_kept;
    const int32_t start[] = {0, n_block};
    int32_t pages[PAGES], extent[MOST_BLOCK] = {in->n_keys, in->n_keys, in->n_keys};
    for (int page = 0; page < PAGES; page++) {
        pages[page] = PAGES - 1 - page;
    }
    for (int i = 0; i < in->n_keys; i++) {
        const int to = (pages[i / PAGE_ROWS] * PAGE_ROWS + i % PAGE_ROWS) * row;
        memcpy(k + to, in->k + i * row, (size_t)row * sizeof *k);
        memcpy(v + to, in->v + i * row, (size_t)row * sizeof *v);
    }
    const struct call_paged_attention call = {.q = in->q + in->n_kept * HEADS * in->size,
                                              .k = k,
                                              .v = v,
                                              .y = y,
                                              .start = start,
                                              .extent = extent,
                                              .pages = pages,
                                              .q_stride = HEADS * in->size,
                                              .kv_stride = row,
                                              .y_stride = HEADS * in->size,
                                              .n_requests = 1,
                                              .n_tokens = n_block,
                                              .n_heads = HEADS,
                                              .n_kv_heads = KV_HEADS,
                                              .head_size = in->size,
                                              .max_pages = PAGES,
                                              .page_rows = PAGE_ROWS,
                                              .max_queries = n_block,
                                              .max_extent = in->n_keys,
                                              .dtype = KERNEL_F32};
    ck_assert_int_eq(cpu->table->paged_attention(cpu->device, &call), DEVICE_OK);
    assert_rows_near(y, expected, in->size, n_block * HEADS, in->n_keys);
}

TEST_EACH(attention_over_several_tiles_equals_the_reference_wherever_the_large_scores_are,
          N_HEAD_SIZES) {
    static const int counts[] = {1, 63, 64, 65, 130, KEYS};
    static struct attention_inputs in;
    static float y[KEYS * HEADS * MOST_SIZE], expected[KEYS * HEADS * MOST_SIZE],
        block[MOST_BLOCK * HEADS * MOST_SIZE];
    const int size = head_sizes[_i];
    struct engine_device cpu;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    for (unsigned i = 0; i < 4 * sizeof counts / sizeof counts[0]; i++) {
        int n = counts[i / 4], n_block = n < MOST_BLOCK ? n : MOST_BLOCK;
        fill_attention(&in, size, n, n_block, i % 4);
        struct call_dense_attention dense = dense_call(&in, y);
        ck_assert_int_eq(cpu.table->dense_attention(cpu.device, &dense), DEVICE_OK);
        dense.y = expected;
        ck_assert(ref_dense_attention(&dense));
        assert_rows_near(y, expected, size, n * HEADS, n);
        const int32_t start[] = {0, n_block}, kept[] = {in.n_kept};
        const int64_t zero[] = {0};
        struct call_block_attention call = block_call(&in, start, kept, zero, block);
        ck_assert_int_eq(cpu.table->block_attention(cpu.device, &call), DEVICE_OK);
        /* The same keys in the same order, out of the cache or not, are the same bits. */
        ck_assert_mem_eq(block, y + in.n_kept * HEADS * size,
                         (size_t)(n_block * HEADS * size) * sizeof *y);
        call.y = expected;
        ck_assert(ref_block_attention(&call));
        assert_rows_near(block, expected, size, n_block * HEADS, n);
        assert_pages_near(&cpu, &in, expected);
        if (in.n_kept > 0) { /* cached rows alone */
            call.own_cached = true;
            ck_assert(ref_block_attention(&call));
            call.y = block;
            ck_assert_int_eq(cpu.table->block_attention(cpu.device, &call), DEVICE_OK);
            assert_rows_near(block, expected, size, n_block * HEADS, in.n_kept);
        }
    }
    engine_device_close(&cpu);
}

/* Whole numbers, whose products and sums are exact: equal rows give equal logits. */
TEST(equal_logits_give_the_lowest_token) {
    enum { V = 600, C = 16, N = 3 };
    static const int32_t tied[N][3] = {{7, 300, V - 1}, {0, 1, 2}, {255, 256, 511}};
    static float w[V * C], x[N * C], logits[N * V], scratch[HEAD_SCRATCH_BYTES / sizeof(float)];
    struct engine_device cpu;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    for (int i = 0; i < V * C; i++) {
        w[i] = (float)(i % 3 - 1);
    }
    for (int row = 0; row < N; row++) { /* whose best tokens have a column of their own */
        x[row * C + row] = 8;
        for (int v = 0; v < V; v++) {
            w[v * C + row] = 0;
        }
        for (int i = 0; i < 3; i++) {
            w[tied[row][i] * C + row] = 1;
        }
    }
    for (int i = 0; i < N * V; i++) {
        logits[i] = 8 * w[i % V * C + i / V];
    }
    int32_t token[N];
    float confidence[N];
    const struct call_head head =
        MAKE(struct call_head, .x = x, .w = w, .token = token, .confidence = confidence,
             .scratch = scratch, .n_rows = N, .n_channels = C, .n_vocab = V, .dtype = KERNEL_F32);
    const struct call_sample sample =
        MAKE(struct call_sample, .logits = logits, .token = token, .confidence = confidence,
             .n_rows = N, .n_vocab = V, .dtype = KERNEL_F32);
    const float expected = (float)(1 / (3 + (V - 3) * exp(-8)));
    for (int way = 0; way < 2; way++) {
        memset(token, 0xff, sizeof token);
        ck_assert_int_eq(way == 0 ? cpu.table->head(cpu.device, &head)
                                  : cpu.table->sample(cpu.device, &sample),
                         DEVICE_OK);
        for (int row = 0; row < N; row++) {
            ck_assert_int_eq(token[row], tied[row][0]);
            ck_assert_float_eq_tol(confidence[row], expected, 1e-6f);
        }
    }
    engine_device_close(&cpu);
}

TEST(calls_that_are_too_large_for_the_cpu_are_refused) {
    struct engine_device cpu;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    ck_assert_int_eq(cpu.table->linear(
                         cpu.device, &(struct call_linear){.n_inputs = 32776, .dtype = KERNEL_F32}),
                     DEVICE_REFUSED);
    ck_assert_int_eq(engine_device_err(&cpu, DEVICE_REFUSED, "trying", &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "the cpu device refused a call while trying: a product over more "
                          "than 32768 inputs");
    ck_assert_int_eq(
        cpu.table->head(cpu.device, &(struct call_head){.n_vocab = 16 << 20, .dtype = KERNEL_F32}),
        DEVICE_REFUSED);
    ck_assert_int_eq(cpu.table->select(cpu.device, &(struct call_select){.n_heads = 512,
                                                                         .head_size = 128,
                                                                         .dtype = KERNEL_F32}),
                     DEVICE_REFUSED);
#ifndef __SANITIZE_ADDRESS__ /* which stops at such a wish */
    void *memory;
    ck_assert_int_eq(cpu.table->allocate(cpu.device, INT64_C(1) << 60, &memory), DEVICE_NO_MEMORY);
#endif
    ck_assert(cpu.facts.memory_bytes > 0 && cpu.facts.free_bytes > 0 && cpu.facts.n_sms > 0 &&
              cpu.facts.capability == 0 && strlen(cpu.facts.name) > 0);
    char line[512], name[512] = "CPU"; /* the first line of its kind; not all kernels write it */
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "model name : %511[^\n]", name) != 1) {
    }
    ck_assert_str_eq(cpu.facts.name, name);
    if (file != NULL) {
        fclose(file);
    }
    engine_device_close(&cpu);
}

/* Whether a byte can be read and written; the system is asked, which does not fault. */
static bool is_reachable(unsigned char *at) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    bool reachable = write(ends[1], at, 1) == 1 && read(ends[0], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return reachable;
}

TEST(memory_keeps_what_is_in_it_wherever_it_is_mapped) {
    struct engine_device cpu;
    struct err err = {0};
    int64_t granule, before;
    void *memory;
    unsigned char *ranges[2];
    struct device_handle *one, *two;
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    const struct device_table *table = cpu.table;
    ck_assert_int_eq(table->granule(cpu.device, &granule), DEVICE_OK);
    before = table->allocated_bytes(cpu.device);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(table->range_open(cpu.device, 8 * granule, &memory), DEVICE_OK);
        ranges[i] = memory;
        ck_assert(!is_reachable(ranges[i]));
    }
    ck_assert_int_eq(table->allocated_bytes(cpu.device), before);
    ck_assert_int_eq(table->handle_open(cpu.device, granule, &one), DEVICE_OK);
    ck_assert_int_eq(table->handle_open(cpu.device, 2 * granule, &two), DEVICE_OK);
    ck_assert_int_eq(table->allocated_bytes(cpu.device), before + 3 * granule);
    ck_assert_int_eq(table->map(cpu.device, ranges[0] + granule, one), DEVICE_OK);
    ck_assert_int_eq(table->map(cpu.device, ranges[0] + 2 * granule, two), DEVICE_OK);
    ck_assert(!is_reachable(ranges[0] + granule));
    ck_assert_int_eq(table->allow(cpu.device, ranges[0] + granule, 3 * granule), DEVICE_OK);
    memset(ranges[0] + granule, 17, (size_t)granule);
    memset(ranges[0] + 2 * granule, 42, (size_t)(2 * granule));
    ck_assert(!is_reachable(ranges[0] + granule - 1) && !is_reachable(ranges[0] + 4 * granule));
    /* The second goes to the other range, whole; the first stays. */
    ck_assert_int_eq(table->unmap(cpu.device, two), DEVICE_OK);
    ck_assert(!is_reachable(ranges[0] + 2 * granule));
    ck_assert_int_eq(table->map(cpu.device, ranges[1] + 6 * granule, two), DEVICE_OK);
    ck_assert_int_eq(table->allow(cpu.device, ranges[1] + 6 * granule, 2 * granule), DEVICE_OK);
    for (int64_t i = 0; i < 2 * granule; i += 4095) {
        ck_assert_int_eq(ranges[0][granule + i % granule], 17);
        ck_assert_int_eq(ranges[1][6 * granule + i], 42);
    }
    ck_assert_int_eq(table->allocated_bytes(cpu.device), before + 3 * granule);
    table->handle_close(cpu.device, one); /* from where it is mapped */
    ck_assert(!is_reachable(ranges[0] + granule));
    table->range_close(cpu.device, ranges[1]); /* from under what is mapped there */
    ck_assert_int_eq(table->map(cpu.device, ranges[0], two), DEVICE_OK);
    ck_assert_int_eq(table->allow(cpu.device, ranges[0], 2 * granule), DEVICE_OK);
    ck_assert_int_eq(ranges[0][2 * granule - 1], 42);
    table->handle_close(cpu.device, two);
    table->handle_close(cpu.device, NULL);
    table->range_close(cpu.device, ranges[0]);
    table->range_close(cpu.device, NULL);
    ck_assert_int_eq(table->allocated_bytes(cpu.device), before);
    /* Closing the device takes what is left. */
    ck_assert_int_eq(table->range_open(cpu.device, granule, &memory), DEVICE_OK);
    ck_assert_int_eq(table->handle_open(cpu.device, granule, &one), DEVICE_OK);
    ck_assert_int_eq(table->map(cpu.device, memory, one), DEVICE_OK);
    engine_device_close(&cpu);
    ck_assert(!is_reachable(memory));
}

TEST(memory_is_mapped_whole_once_and_where_there_is_room_or_not_at_all) {
    struct engine_device cpu;
    struct err err = {0};
    int64_t granule;
    void *memory;
    struct device_handle *one, *two, *none;
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    const struct device_table *table = cpu.table;
    ck_assert_int_eq(table->granule(cpu.device, &granule), DEVICE_OK);
    ck_assert_int_eq(table->range_open(cpu.device, granule / 2, &memory), DEVICE_REFUSED);
    ck_assert_int_eq(table->range_open(cpu.device, 0, &memory), DEVICE_REFUSED);
    ck_assert_int_eq(table->range_open(cpu.device, INT64_C(1) << 60, &memory), DEVICE_NO_MEMORY);
    ck_assert_ptr_null(memory);
    ck_assert_int_eq(table->handle_open(cpu.device, -granule, &none), DEVICE_REFUSED);
    ck_assert_int_eq(table->handle_open(cpu.device, INT64_C(1) << 60, &none), DEVICE_NO_MEMORY);
    ck_assert_ptr_null(none);
    ck_assert_str_eq(table->trouble(cpu.device), "the host has no such memory");
    ck_assert_int_eq(table->range_open(cpu.device, 4 * granule, &memory), DEVICE_OK);
    unsigned char *range = memory;
    ck_assert_int_eq(table->handle_open(cpu.device, 2 * granule, &one), DEVICE_OK);
    ck_assert_int_eq(table->handle_open(cpu.device, 2 * granule, &two), DEVICE_OK);
    const int64_t outside[] = {-granule, 3 * granule, 4 * granule, 5 * granule, granule / 2};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        ck_assert_int_eq(table->map(cpu.device, range + outside[i], one), DEVICE_REFUSED);
        ck_assert_str_eq(table->trouble(cpu.device), "mapping to addresses that were not reserved");
    }
    ck_assert_int_eq(table->map(cpu.device, range + granule, one), DEVICE_OK);
    ck_assert_int_eq(table->map(cpu.device, range + 2 * granule, one), DEVICE_REFUSED);
    ck_assert_str_eq(table->trouble(cpu.device), "mapping what is mapped");
    for (int64_t at = 0; at <= 2; at++) {
        ck_assert_int_eq(table->map(cpu.device, range + at * granule, two), DEVICE_REFUSED);
        ck_assert_str_eq(table->trouble(cpu.device), "mapping to addresses that have memory");
    }
    ck_assert_int_eq(table->allow(cpu.device, range, 3 * granule), DEVICE_REFUSED);
    ck_assert_int_eq(table->allow(cpu.device, range + granule, granule), DEVICE_REFUSED);
    ck_assert_str_eq(table->trouble(cpu.device), "allowing addresses without memory");
    ck_assert_int_eq(table->unmap(cpu.device, two), DEVICE_OK); /* which is not mapped */
    engine_device_close(&cpu);
}

static double read_energy_j;

static void read_vitals(struct device *device, struct device_vitals *out) {
    (void)device;
    *out = (struct device_vitals){.energy_j = read_energy_j};
}

TEST(a_device_counts_energy_where_its_counter_has_moved) {
    for (int i = 0; i < 3; i++) {
        struct device_table table = device_cpu;
        struct engine_device device;
        struct err err = {0};
        table.vitals = i < 2 ? read_vitals : NULL;
        read_energy_j = i == 0 ? 0.25 : 0;
        ck_assert_msg(engine_device_start(&table, KERNEL_F32, &device, &err) == 0, "%s", err.text);
        ck_assert_int_eq(device.counts_energy, i == 0);
        engine_device_close(&device);
        ck_assert_ptr_null(device.device);
    }
}

static bool is_waited_for;

static int slow_open(int32_t index, enum kernel_dtype dtype, struct device **out, char *text) {
    is_waited_for = wait_is_on(wait_count());
    return device_cpu.open(index, dtype, out, text);
}

/* So that an interrupt ends a program whose GPU does not answer. */
TEST(a_device_that_is_opened_is_waited_for) {
    struct device_table table = device_cpu;
    struct engine_device device;
    struct err err = {0};
    table.open = slow_open;
    ck_assert_int_eq(engine_device_start(&table, KERNEL_F32, &device, &err), 0);
    ck_assert(is_waited_for && !wait_is_on(wait_count()));
    engine_device_close(&device);
}

TEST(devices_that_are_not_there_are_named) {
    struct engine_device device;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open(BACKEND_CUDA, "/nowhere/libunmask_cuda.so", &device, &err),
                     ERR_WORLD);
    ck_assert_ptr_eq(strstr(err.text, "no cuda device: /nowhere/libunmask_cuda.so cannot be "
                                      "loaded ("),
                     err.text);
    err = (struct err){0};
    ck_assert_int_eq(engine_device_open(BACKEND_CUDA, "libm.so.6", &device, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "no cuda device: libm.so.6 has no symbol unmask_device_cuda");
}

/* Cards as their drivers print them, with what else they report; `is` is the file that describes
 * them, NULL for cards that none of ours does: variants of a card are not the card. */
static const struct {
    const char *device, *is;
    int32_t sms, capability, memory_mib, l2_mib;
} cards[] = {
    {"NVIDIA H100 80GB HBM3", "h100", 132, 90, 81079, 50},
    {"NVIDIA H100 PCIe", "h100pcie", 114, 90, 81079, 50},
    {"NVIDIA H100 NVL", NULL, 132, 90, 95320, 50},
    {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", NULL, 16, 90, 9984, 6},
    {"NVIDIA H100 80GB HBM3 MIG 7g.80gb", NULL, 132, 90, 81079, 50},
    {"NVIDIA GH200 480GB", "gh200", 132, 90, 97280, 50},
    {"NVIDIA H200", "h200", 132, 90, 143156, 60},
    {"NVIDIA H200 NVL", NULL, 132, 90, 143156, 60},
    {"NVIDIA H800", "h800", 132, 90, 81079, 50},
    {"NVIDIA H800 PCIe", NULL, 114, 90, 81079, 50},
    {"NVIDIA H20", "h20", 78, 90, 97871, 60},
    {"NVIDIA H20-3e", NULL, 78, 90, 144384, 60},
    {"NVIDIA A100-SXM4-80GB", "a100-80g", 108, 80, 81051, 40},
    {"NVIDIA A100 80GB PCIe", NULL, 108, 80, 81051, 40},
    {"NVIDIA A100-SXM4-40GB", "a100-40g", 108, 80, 40444, 40},
    {"A100-SXM4-40GB", "a100-40g", 108, 80, 40536, 40},
    {"NVIDIA A100-PCIE-40GB", NULL, 108, 80, 40444, 40},
    {"NVIDIA A100-SXM4-40GB MIG 3g.20gb", NULL, 42, 80, 19968, 20},
    {"GRID A100X-40C", NULL, 108, 80, 40960, 40},
    {"NVIDIA A800-SXM4-80GB", "a800", 108, 80, 81051, 40},
    {"NVIDIA A40", "a40", 84, 86, 45634, 6},
    {"NVIDIA A10", "a10", 72, 86, 22731, 6},
    {"NVIDIA A10G", NULL, 80, 86, 22731, 6},
    {"NVIDIA L4", "l4", 58, 89, 22564, 48},
    {"NVIDIA L4-24Q", NULL, 58, 89, 24576, 48},
    {"NVIDIA L40", "l40", 142, 89, 45634, 96},
    {"NVIDIA L40S", "l40s", 142, 89, 45458, 96},
    {"NVIDIA L40S-48Q", NULL, 142, 89, 49152, 96},
    {"NVIDIA L40G", NULL, 142, 89, 24576, 48},
    {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada", 142, 89, 48645, 96},
    {"NVIDIA RTX A6000", "rtx-a6000", 84, 86, 48669, 6},
    {"NVIDIA GeForce RTX 3090", "rtx3090", 82, 86, 24245, 6},
    {"GeForce RTX 3090", "rtx3090", 82, 86, 24268, 6},
    {"NVIDIA GeForce RTX 3090 Ti", NULL, 84, 86, 24245, 6},
    {"NVIDIA GeForce RTX 4090", "rtx4090", 128, 89, 24080, 72},
    {"NVIDIA GeForce RTX 4090 D", NULL, 114, 89, 24080, 72},
    {"NVIDIA GeForce RTX 4090 Laptop GPU", NULL, 76, 89, 16376, 64},
    {"NVIDIA GeForce RTX 4080 SUPER", NULL, 80, 89, 16376, 64},
    {"NVIDIA GeForce RTX 5090", "rtx5090", 170, 120, 32120, 96},
    {"NVIDIA GeForce RTX 5090 D", NULL, 170, 120, 32120, 96},
    {"NVIDIA GeForce RTX 5090 Laptop GPU", NULL, 82, 120, 24463, 64},
    {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", 188, 120, 97250, 128},
    {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000", 188, 120, 97250, 128},
    {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", NULL, 188, 120, 97250, 128},
    {"NVIDIA RTX PRO 5000 Blackwell", NULL, 110, 120, 48500, 96},
    {"NVIDIA B200", "b200", 148, 100, 182642, 126},
    {"NVIDIA GB200", "gb200", 152, 100, 189471, 126},
    {"NVIDIA B300 SXM6 AC", "b300", 148, 103, 275040, 126},
    {"Tesla T4", "t4", 40, 75, 15096, 4},
    {"Tesla V100-SXM2-32GB", "v100", 80, 70, 32501, 6},
    /* The right name on another chip: a name alone proves nothing. */
    {"NVIDIA GeForce RTX 4090", NULL, 76, 89, 24080, 72},
    {"NVIDIA GeForce RTX 4090", NULL, 128, 89, 49140, 72},
    {"NVIDIA L40S", NULL, 142, 89, 45458, 48},
    {"NVIDIA H100 80GB HBM3", NULL, 132, 80, 81079, 50},
};

static struct device_facts facts_of(size_t i) {
    struct device_facts facts = {.memory_bytes = (int64_t)cards[i].memory_mib << 20,
                                 .l2_bytes = (int64_t)cards[i].l2_mib << 20,
                                 .n_sms = cards[i].sms,
                                 .capability = cards[i].capability};
    snprintf(facts.name, sizeof facts.name, "%s", cards[i].device);
    return facts;
}

TEST(a_card_is_itself_or_unknown_and_never_its_neighbour) {
    struct err err = {0};
    const struct gpu *const *gpus = gpu_all(&err);
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
        const struct device_facts facts = facts_of(i);
        size_t n_found = 0;
        for (size_t n = 0; gpus[n] != NULL; n++) {
            const bool is = engine_device_is(&facts, gpus[n]);
            const bool expected = cards[i].is != NULL && strcmp(cards[i].is, gpus[n]->name) == 0;
            ck_assert_msg(is == expected, "%s and %s", cards[i].device, gpus[n]->name);
            n_found += is;
        }
        ck_assert_uint_eq(n_found, cards[i].is != NULL);
    }
}

TEST(what_differs_from_the_card_is_said) {
    struct err err = {0};
    const struct gpu *card = gpu_find("rtx4090", &err);
    struct device_facts facts = {.name = "NVIDIA GeForce RTX 4090 Laptop GPU"};
    facts.capability = 89;
    ck_assert_int_eq(engine_check_device(&facts, card, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "the device is 'NVIDIA GeForce RTX 4090 Laptop GPU', not a rtx4090 "
                          "('NVIDIA GeForce RTX 4090')");
    err = (struct err){0};
    snprintf(facts.name, sizeof facts.name, "NVIDIA GeForce RTX 4090");
    facts.n_sms = 76;
    ck_assert_int_eq(engine_check_device(&facts, card, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "the device 'NVIDIA GeForce RTX 4090' has 76 multiprocessors, a rtx4090 "
                          "has 128");
}

/* An owner's file without `device` is told by multiprocessors, memory, L2 and capability. */
TEST(a_file_that_says_no_name_is_told_by_the_chip) {
    struct err err = {0};
    struct gpu mine = *gpu_find("l4", &err);
    mine.device = NULL;
    mine.name = "mine";
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
        const struct device_facts facts = facts_of(i);
        ck_assert_int_eq(engine_device_is(&facts, &mine),
                         strncmp(facts.name, "NVIDIA L4", 9) == 0 && facts.n_sms == 58);
    }
}

TEST(a_build_is_newer_by_its_day) {
    ck_assert_int_eq(engine_build_age("2026-11-23 a", "2026-11-23 a"), BUILD_SAME);
    ck_assert_int_eq(engine_build_age("2026-11-23 a", "2026-12-01 b"), BUILD_NEWER);
    ck_assert_int_eq(engine_build_age("2026-11-23 a", "2026-11-23 b"), BUILD_OTHER);
    ck_assert_int_eq(engine_build_age("2026-11-23 a", "2025-12-01 b"), BUILD_OTHER);
    ck_assert_int_eq(engine_build_age("2026-11-23 a", "unknown b"), BUILD_OTHER);
}

SUITE("device")
