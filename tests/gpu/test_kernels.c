/* Every kernel against its reference implementation on random shapes, tails included. A plain
 * program, so that it runs on a GPU machine without a test library: `test_kernels [seed] [small]`
 * prints the seed, a line for each failure, and the count; `small` keeps to sizes a memory checker
 * gets through. Outputs are poisoned with NaN before each launch, and a NaN never passes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#include "tests/gpu/arrays.h"

static bool small;

static void test_embed(void) {
    const int n_tokens = between(1, 70), n_channels = between(1, 300) * 8, n_vocab = between(2, 50);
    struct array *table = random_bf16((int64_t)n_vocab * n_channels, 1);
    int32_t ids[70];
    for (int t = 0; t < n_tokens; t++) {
        ids[t] = between(draw() % 8 ? 0 : -1, n_vocab - (draw() % 8 != 0)); /* some unknown */
    }
    struct array *id = integers(ids, n_tokens);
    struct array *y = array_new((size_t)n_tokens * n_channels * 2);
    int64_t where[70];
    for (int t = 0; t < n_tokens; t++) {
        where[t] = between(0, n_tokens - 1);
    }
    struct array *at = longs(where, n_tokens);
    const bool indirect = draw() % 2;
    struct call_embed call = {table->host, id->host,   indirect ? at->host : NULL,
                              y->host,     n_tokens,   n_channels,
                              n_vocab,     KERNEL_BF16};
    ref_embed(&call);
    call.table = table->device;
    call.ids = id->device;
    call.at = indirect ? at->device : NULL;
    call.y = y->device;
    launched(kernel_embed(&call, NULL), "embed");
    check_bytes(y, (size_t)n_tokens * n_channels * 2, "embed");
    arrays_free();
}

/* 0: plain; 1: with residual; 2: gathered rows with residual; 3: without, some from the row before
 * the first. */
static void test_norm(int mode) {
    const int widths[] = {64, 2048, 3584, 4096, 4104, 8192, 32768};
    const int n_channels = draw() % 3 ? widths[draw() % 7] : between(1, 600) * 8;
    const int n_tokens = between(mode == 3 ? 2 : 1, 40), before = mode == 3;
    const int n_rows = mode >= 2 ? between(1, 40) : n_tokens;
    const int64_t n = (int64_t)n_tokens * n_channels;
    int32_t list[40];
    for (int i = 0; i < n_rows; i++) {
        list[i] = before && i == 0 ? -1 : between(-before, n_tokens - 1 - before);
    }
    struct array *x = random_bf16(n, 3), *weight = random_bf16(n_channels, 1);
    struct array *residual = random_bf16(n, 3), *rows = integers(list, n_rows);
    struct array *y = array_new((size_t)n_rows * n_channels * 2);
    const bool adds = mode == 1 || mode == 2;
    const size_t at = (size_t)before * n_channels * 2;
    struct call_norm call =
        MAKE(struct call_norm, .x = (char *)x->host + at, .weight = weight->host,
             .residual = adds ? residual->host : NULL, .rows = mode >= 2 ? rows->host : NULL,
             .y = y->host, .n_rows = n_rows, .n_channels = n_channels, .epsilon = 1e-5f,
             .dtype = KERNEL_BF16);
    ref_norm(&call);
    call.x = (char *)x->device + at;
    call.weight = weight->device;
    call.residual = adds ? residual->device : NULL;
    call.rows = mode >= 2 ? rows->device : NULL;
    call.y = y->device;
    launched(kernel_norm(&call, NULL), "norm");
    check_rows(y, KERNEL_BF16, n_rows, n_channels, n_channels, n_channels, "norm");
    check_bytes(residual, (size_t)n * 2, "norm's residual");
    arrays_free();
}

static void test_swiglu(bool in_place) {
    const int n_tokens = between(1, 30), n_hidden = between(1, 1600) * 8;
    const int64_t stride = in_place ? 2 * n_hidden : n_hidden;
    struct array *x = random_bf16((int64_t)n_tokens * 2 * n_hidden, 2);
    struct array *y = in_place ? x : array_new((size_t)n_tokens * n_hidden * 2);
    struct call_swiglu call = {x->host,  y->host,     stride,        n_tokens,
                               n_hidden, KERNEL_BF16, draw() % 2 > 0};
    ref_swiglu(&call);
    call.gate_up = x->device;
    call.y = y->device;
    launched(kernel_swiglu(&call, NULL), "swiglu");
    check_rows(y, KERNEL_BF16, n_tokens, n_hidden, stride, 1, "swiglu");
    arrays_free();
}

static void test_add(void) {
    const int64_t n = (int64_t)between(1, 5000) * 8;
    struct array *a = random_bf16(n, 1), *b = random_bf16(n, 1);
    const bool in_place = draw() % 2;
    struct array *y = in_place ? a : array_new((size_t)n * 2);
    struct call_add call = {a->host, b->host, y->host, n, KERNEL_BF16};
    ref_add(&call);
    call.a = a->device;
    call.b = b->device;
    call.y = y->device;
    launched(kernel_add(&call, NULL), "add");
    check_bytes(y, (size_t)n * 2, "add");
    arrays_free();
}

static void test_random(enum kernel_dtype dtype) {
    const int64_t n = between(1, 5000);
    struct array *y = array_new((size_t)n * (dtype == KERNEL_F32 ? 4 : 2));
    const int64_t run = draw() % 2 ? 0 : between(1, 700);
    struct call_random call =
        MAKE(struct call_random, .y = y->host, .key = draw(), .first = (int64_t)(draw() >> 20),
             .n = n, .centre = normal(), .spread = fabs(normal()), .dtype = dtype, .run = run,
             .stride = run + between(0, 900));
    ref_random(&call);
    call.y = y->device;
    launched(kernel_random(&call, NULL), "random");
    check_bytes(y, y->n_bytes, "random, and nothing behind it");
    arrays_free();
}

static void test_keep(void) {
    const int b = between(1, 6), n_kv_heads = between(1, 9), size = draw_head_size();
    int32_t start[8] = {0}, kept[8], owner[8 * 60], row[8 * 60];
    int64_t cache_start[8], n_cache = 0;
    for (int r = b - 1; r >= 0; r--) { /* the pool's order is not the batch's */
        kept[r] = between(1, 60);
        cache_start[r] = n_cache;
        n_cache += 2ll * kept[r] * n_kv_heads * size + 8 * between(0, 3);
    }
    for (int r = 0; r < b; r++) {
        start[r + 1] = start[r] + kept[r];
        for (int t = start[r]; t < start[r + 1]; t++) {
            owner[t] = r;
            row[t] = draw() % 4 ? start[r + 1] - 1 - t : -1;
        }
    }
    const int64_t n = start[b], stride = n_kv_heads * size + 8 * between(0, 4);
    struct array *k = random_bf16(n * stride, 1), *v = random_bf16(n * stride, 1);
    struct array *cache = array_new((size_t)n_cache * 2), *starts = integers(start, b + 1);
    struct array *owners = integers(owner, n), *rows = integers(row, n);
    struct array *kepts = integers(kept, b), *cache_starts = longs(cache_start, b);
    struct call_keep call = {k->host,    v->host,     start,       owner,  row,
                             kept,       cache_start, cache->host, stride, b,
                             (int32_t)n, n_kv_heads,  size,        false,  KERNEL_BF16};
    ref_keep(&call);
    call.k = k->device;
    call.v = v->device;
    call.start = starts->device;
    call.owner = owners->device;
    call.kv_rows = rows->device;
    call.kept = kepts->device;
    call.cache_start = cache_starts->device;
    call.cache = cache->device;
    launched(kernel_keep(&call, NULL), "keep");
    check_bytes(cache, cache->n_bytes, "keep");
    arrays_free();
}

/* Bit 0: bias, bit 1: QK norm, bit 2: in place, bit 3: scatter. Keys and values, or queries, may be
 * missing, and some of a head's channels may not rotate. */
static void test_rope(int mode) {
    const int size = draw_head_size(), some_heads = between(1, 8);
    const int part = draw() % 2 ? 0 : between(1, size / 16) * 16, rotary = part > 0 ? part : size;
    const int n_tokens = between(1, 60), n_positions = 300, apart = (int)(draw() % 6);
    const int n_kv_heads = apart == 1 ? 0 : some_heads;
    const int n_heads = apart == 0 ? 0 : some_heads * between(1, 7);
    const int all = n_heads + 2 * n_kv_heads, width = all * size;
    const bool in_place = mode & 4, scatter = (mode & 8) && !in_place;
    struct array *qkv = random_bf16((int64_t)n_tokens * width, 1), *bias = random_bf16(width, 1);
    struct array *q_norm = random_bf16(size, 1), *k_norm = random_bf16(size, 1);
    struct array *turns = array_new((size_t)n_positions * rotary * 4);
    ref_cos_sin(turns->host, n_positions, rotary, 500000);
    push(turns);
    int32_t position[60], row[60];
    for (int t = 0; t < n_tokens; t++) {
        position[t] = between(0, n_positions - 1);
        row[t] = draw() % 8 == 0 ? -1 : n_tokens - 1 - t;
    }
    struct array *positions = integers(position, n_tokens), *rows = integers(row, n_tokens);
    struct array *q = array_new((size_t)n_tokens * n_heads * size * 2);
    struct array *k = array_new((size_t)n_tokens * n_kv_heads * size * 2);
    struct array *v = array_new((size_t)n_tokens * n_kv_heads * size * 2);
    struct call_rope call = MAKE(
        struct call_rope, .n_tokens = n_tokens, .n_heads = n_heads, .n_kv_heads = n_kv_heads,
        .head_size = size, .rotary_size = part, .q_stride = in_place ? width : n_heads * size,
        .kv_stride = in_place ? width : n_kv_heads * size, .epsilon = 1e-6f, .dtype = KERNEL_BF16);
    for (int side = 0; side < 2; side++) {
#define SIDE(a) (side ? (a)->device : (a)->host)
        call.qkv = SIDE(qkv);
        call.bias = mode & 1 ? SIDE(bias) : NULL;
        call.q_norm = mode & 2 ? SIDE(q_norm) : NULL;
        call.k_norm = mode & 2 ? SIDE(k_norm) : NULL;
        call.cos_sin = SIDE(turns);
        call.positions = SIDE(positions);
        call.kv_rows = scatter ? SIDE(rows) : NULL;
        call.q = in_place ? SIDE(qkv) : SIDE(q);
        call.k = in_place ? (char *)SIDE(qkv) + n_heads * size * 2 : SIDE(k);
        call.v = in_place ? (char *)SIDE(qkv) + (n_heads + n_kv_heads) * size * 2 : SIDE(v);
        if (side) {
            launched(kernel_rope(&call, NULL), "rope");
        } else {
            ref_rope(&call);
        }
    }
    if (in_place) {
        check_rows(qkv, KERNEL_BF16, n_tokens * (int64_t)all, size, size, size, "rope in place");
    } else {
        check_rows(q, KERNEL_BF16, n_tokens * (int64_t)n_heads, size, size, size, "rope's q");
        check_rows(k, KERNEL_BF16, n_tokens * (int64_t)n_kv_heads, size, size, size, "rope's k");
        check_rows(v, KERNEL_BF16, n_tokens * (int64_t)n_kv_heads, size, size, size, "rope's v");
    }
    arrays_free();
}

enum { MAX_B = 40 };

/* Some requests, at times more than one launch takes. */
static void test_dense(bool wgmma, int d) {
    enum { MANY = 600 };
    const bool many = draw() % 6 == 0;
    const int groups[] = {1, 1, 4, 7}, n_kv_heads = between(1, 3);
    const int b = many ? between(MANY / 2, MANY) : between(1, 5);
    const int n_heads = n_kv_heads * groups[draw() % 4], pad = between(0, 1) * 64;
    int32_t start[MANY + 1] = {0}, longest = 0;
    for (int r = 0; r < b; r++) {
        const int n = draw() % 8 == 0 ? 0 : between(1, many ? 4 : small ? 140 : 420);
        start[r + 1] = start[r] + n;
        longest = n > longest ? n : longest;
    }
    if (start[b] == 0) {
        start[b] = longest = 1;
    }
    const int64_t n = start[b], q_stride = n_heads * d + pad, kv_stride = n_kv_heads * d + pad;
    struct array *q = random_bf16(n * q_stride, 2), *k = random_bf16(n * kv_stride, 1);
    struct array *v = random_bf16(n * kv_stride, 1), *y = array_new((size_t)(n * q_stride) * 2);
    struct array *starts = integers(start, b + 1);
    struct call_dense_attention call = {
        q->host,    k->host, v->host,    y->host, start,   q_stride, kv_stride, q_stride,   b,
        (int32_t)n, n_heads, n_kv_heads, d,       longest, 0,        0,         KERNEL_BF16};
    int64_t rows = n;
    if (draw() % 2) { /* some of the queries */
        call.first_query = between(0, (int)n - 1);
        call.n_queries = between(1, (int)n - call.first_query);
        rows = call.n_queries;
    }
    const int64_t at = call.first_query * q_stride;
    call.q = (uint16_t *)q->host + at;
    call.y = (uint16_t *)y->host + at;
    if (!ref_dense_attention(&call)) {
        exit(2);
    }
    call.q = (uint16_t *)q->device + at;
    call.k = k->device;
    call.v = v->device;
    call.y = (uint16_t *)y->device + at;
    call.start = starts->device;
    const cudaError_t status =
        wgmma ? kernel_dense_attention_wgmma(&call, NULL) : kernel_dense_attention_mma(&call, NULL);
    if (status != cudaErrorNotSupported) {
        launched(status, "dense attention");
        for (int h = 0; h < n_heads; h++) {
            struct array head = {(uint16_t *)y->host + at + h * d,
                                 (uint16_t *)y->device + at + h * d,
                                 (size_t)(rows * q_stride) * 2 - (size_t)h * d * 2};
            check_rows(&head, KERNEL_BF16, rows, d, q_stride, longest + d,
                       wgmma ? "dense attention (wgmma)" : "dense attention (mma)");
        }
    }
    arrays_free();
}

static void test_block(int kind, int d) { /* 0 random, 1 many small requests, 2 one long request */
    const int groups[] = {1, 1, 2, 4, 7}, n_kv_heads = between(1, kind == 1 ? 8 : 4);
    const int n_heads = n_kv_heads * groups[draw() % 5];
    const int b = kind == 2 ? 1 : kind == 1 ? between(20, MAX_B) : between(1, 6);
    const int most_queries = draw() % 2 ? 32 : draw() % 2 ? 8 : 70;
    const bool own_cached = draw() % 4 == 0; /* then there are cached rows */
    int32_t start[MAX_B + 1] = {0}, kept[MAX_B], longest = 0;
    int64_t cache_start[MAX_B], n_cache = 8 * between(0, 3);
    for (int r = 0; r < b; r++) {
        const int n = kind == 0 && draw() % 6 == 0 ? 0
                      : draw() % 2                 ? most_queries
                                                   : between(1, most_queries);
        start[r + 1] = start[r] + n;
        longest = n > longest ? n : longest;
        kept[r] = draw() % 6 == 0 ? own_cached
                  : kind == 1     ? between(1, small ? 20 : 100)
                  : kind == 2     ? between(1, small ? 900 : 6000)
                                  : between(1, small ? 200 : 700);
        cache_start[r] = n_cache;
        n_cache += 2ll * kept[r] * n_kv_heads * d + 8 * between(0, 2);
    }
    const int64_t n = start[b], q_stride = n_heads * d, kv_stride = n_kv_heads * d;
    struct array *q = random_bf16(n * q_stride, 2), *k = random_bf16(n * kv_stride, 1);
    struct array *v = random_bf16(n * kv_stride, 1), *y = array_new((size_t)(n * q_stride) * 2);
    struct array *cache = random_bf16(n_cache, 1);
    struct array *starts = integers(start, b + 1), *kepts = integers(kept, b);
    struct array *cache_starts = longs(cache_start, b);
    struct cudaDeviceProp device;
    must(cudaGetDeviceProperties(&device, 0), "properties");
    struct array *scratch =
        array_new((size_t)block_attention_scratch_bytes(device.multiProcessorCount));
    must(cudaMemset(scratch->device, 0, scratch->n_bytes), "zero");
    struct call_block_attention call = MAKE(
        struct call_block_attention, .q = q->host, .k = k->host, .v = v->host, .cache = cache->host,
        .y = y->host, .start = start, .kept = kept, .cache_start = cache_start,
        .q_stride = q_stride, .kv_stride = kv_stride, .y_stride = q_stride, .n_requests = b,
        .n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_size = d, .max_queries = longest,
        .own_cached = own_cached, .dtype = KERNEL_BF16);
    if (!ref_block_attention(&call)) {
        exit(2);
    }
    call.q = q->device;
    call.k = k->device;
    call.v = v->device;
    call.cache = cache->device;
    call.y = y->device;
    call.start = starts->device;
    call.kept = kepts->device;
    call.cache_start = cache_starts->device;
    call.scratch = scratch->device;
    static const struct {
        const char *name;
        cudaError_t (*kernel)(const struct call_block_attention *, cudaStream_t);
    } paths[] = {{"block attention", kernel_block_attention},
                 {"block attention (line)", kernel_block_attention_line},
                 {"block attention (compact)", kernel_block_attention_compact},
                 {"block attention (few)", kernel_block_attention_few}};
    for (size_t path = 0; path < sizeof paths / sizeof paths[0]; path++) {
        void *first = NULL;
        for (int round = 0; round < 2; round++) { /* the second finds the counters at rest */
            poison(y);
            const cudaError_t status = paths[path].kernel(&call, NULL);
            if (status == cudaErrorNotSupported) {
                break;
            }
            launched(status, paths[path].name);
            check_rows(y, KERNEL_BF16, n * n_heads, d, d, longest + d, paths[path].name);
            void *got = pull(y);
            check(!first || memcmp(first, got, y->n_bytes) == 0, "%s: two launches differ",
                  paths[path].name);
            free(first);
            first = got;
        }
        free(first);
    }
    arrays_free();
}

static void test_select(bool whole, bool uniform, int most, int d) {
    const int groups[] = {1, 1, 4, 7}, n_kv_heads = between(1, 4), b = between(1, 4);
    const int n_heads = n_kv_heads * groups[draw() % 4];
    int32_t start[MAX_B + 1] = {0}, begin[MAX_B], end[MAX_B], kept[MAX_B], n_most = 0;
    int64_t cache_start[MAX_B], n_cache = 0, score_start[MAX_B + 1] = {0};
    for (int r = 0; r < b; r++) {
        const int block = 1 << between(0, 5), n = between(1, most);
        start[r + 1] = start[r] + n + block;
        score_start[r + 1] = score_start[r] + n;
        begin[r] = between(0, n);
        end[r] = begin[r] + block;
        kept[r] = draw() % 4 ? ref_kept_tokens(n, (double)between(0, 100) / 100) : n;
        n_most = n > n_most ? n : n_most;
        cache_start[r] = n_cache;
        n_cache += 2ll * kept[r] * n_kv_heads * d + 8 * between(0, 2);
    }
    const int64_t n = start[b], n_scores = n_kv_heads * score_start[b];
    const int64_t q_stride = n_heads * d, kv_stride = n_kv_heads * d;
    struct array *q = whole ? random_whole(n * q_stride, 2) : random_bf16(n * q_stride, 1);
    struct array *k = whole ? random_whole(n * kv_stride, 1) : random_bf16(n * kv_stride, 1);
    struct array *v = random_bf16(n * kv_stride, 1), *cache = array_new((size_t)n_cache * 2);
    struct array *scores = array_new((size_t)n_scores * 4);
    struct array *indices = array_new((size_t)n_scores * 4);
    struct array *starts = integers(start, b + 1), *begins = integers(begin, b);
    struct array *ends = integers(end, b), *kepts = integers(kept, b);
    struct array *cache_starts = longs(cache_start, b), *score_starts = longs(score_start, b);
    struct call_select call =
        MAKE(struct call_select, .q = q->host, .k = k->host, .v = v->host, .start = start,
             .block_start = begin, .block_end = end, .kept = kept, .cache_start = cache_start,
             .score_start = score_start, .cache = cache->host, .scores = scores->host,
             .indices = indices->host, .q_stride = q_stride, .kv_stride = kv_stride,
             .n_requests = b, .n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_size = d,
             .max_candidates = n_most, .uniform = uniform, .dtype = KERNEL_BF16);
    struct call_select on_device = call;
    on_device.q = q->device;
    on_device.k = k->device;
    on_device.v = v->device;
    on_device.start = starts->device;
    on_device.block_start = begins->device;
    on_device.block_end = ends->device;
    on_device.kept = kepts->device;
    on_device.cache_start = cache_starts->device;
    on_device.score_start = score_starts->device;
    on_device.cache = cache->device;
    on_device.scores = scores->device;
    on_device.indices = indices->device;
    launched(kernel_select(&on_device, NULL), "select");
    if (!ref_select_score(&call)) {
        exit(2);
    }
    float *device_scores = pull(scores);
    for (int r = 0; r < b; r++) {
        const int64_t candidates = score_start[r + 1] - score_start[r];
        for (int h = 0; h < (uniform ? 1 : n_kv_heads); h++) {
            const int64_t at = n_kv_heads * score_start[r] + h * candidates;
            double errors = 0, squares = 0;
            for (int c = 0; c < candidates; c++) {
                const double want = ((float *)scores->host)[at + c];
                errors += (device_scores[at + c] - want) * (device_scores[at + c] - want);
                squares += want * want;
            }
            /* A score sums over the block and a head, a uniform one over all heads. */
            const int64_t length = 32 + (uniform ? (int64_t)n_heads * d : d);
            check(sqrt(errors) <= ref_bound(KERNEL_F32, length) * sqrt(squares),
                  "select's scores, heads of %d: relative error %g", d, sqrt(errors / squares));
        }
    }
    /* Small whole numbers: the device's scores must be the reference's up to the one factor
     * 1/sqrt(D), and many are tied. Otherwise the choice is checked on the device's own scores. */
    memcpy(scores->host, device_scores, (size_t)n_scores * 4);
    free(device_scores);
    ref_select_top(&call);
    ref_select_pack(&call);
    check_bytes(indices, (size_t)n_scores * 4, "select's indices");
    check_bytes(cache, cache->n_bytes, "select's keys and values");
    if (whole) { /* end to end: the reference's own scores choose the same */
        if (!ref_select(&call)) {
            exit(2);
        }
        check_bytes(indices, (size_t)n_scores * 4, "select's indices from exact scores");
    }
    arrays_free();
}

static void test_top(int n) { /* the choice alone, long rows and few distinct scores */
    const int kept_value = between(1, n), block = 32;
    int32_t start[2] = {0, n + block}, begin[1] = {n / 3}, end[1] = {n / 3 + block};
    int32_t kept[1] = {kept_value};
    int64_t score_start[1] = {0};
    struct array *scores = array_new((size_t)n * 4), *indices = array_new((size_t)n * 4);
    for (int i = 0; i < n; i++) {
        ((float *)scores->host)[i] = draw() % 2 ? (float)between(-20, 20) / 8 : (float)normal();
    }
    push(scores);
    struct array *starts = integers(start, 2), *begins = integers(begin, 1);
    struct array *ends = integers(end, 1), *kepts = integers(kept, 1);
    struct array *score_starts = longs(score_start, 1);
    struct call_select call =
        MAKE(struct call_select, .start = start, .block_start = begin, .block_end = end,
             .kept = kept, .score_start = score_start, .scores = scores->host,
             .indices = indices->host, .n_requests = 1, .n_heads = 1, .n_kv_heads = 1,
             .head_size = 128, .max_candidates = n, .dtype = KERNEL_BF16);
    ref_select_top(&call);
    call.start = starts->device;
    call.block_start = begins->device;
    call.block_end = ends->device;
    call.kept = kepts->device;
    call.score_start = score_starts->device;
    call.scores = scores->device;
    call.indices = indices->device;
    launched(kernel_select_top(&call, NULL), "top");
    check_bytes(indices, (size_t)n * 4, "top's indices");
    arrays_free();
}

static double logit(const struct call_head *call, int32_t token) {
    double sum = 0;
    for (int64_t c = 0; c < call->n_channels; c++) {
        sum += ref_load(call->x, call->dtype, c) *
               ref_load(call->w, call->dtype, (int64_t)token * call->n_channels + c);
    }
    return sum;
}

/* head == NULL: the fused path. */
static void test_head(struct head *head, int n_rows, int n_channels, int n_vocab, bool exact) {
    const int64_t n = (int64_t)n_rows * n_channels, m = (int64_t)n_vocab * n_channels;
    struct array *x = exact ? random_whole(n, 2) : random_bf16(n, 1);
    struct array *w = exact ? random_whole(m, 1) : random_bf16(m, 0.1);
    struct array *token = array_new((size_t)n_rows * 4),
                 *confidence = array_new((size_t)n_rows * 4);
    struct array *scratch = array_new((size_t)head_scratch_bytes());
    struct call_head call =
        MAKE(struct call_head, .x = x->device, .w = w->device, .token = token->device,
             .confidence = confidence->device, .scratch = scratch->device, .n_rows = n_rows,
             .n_channels = n_channels, .n_vocab = n_vocab, .rounded = exact && draw() % 2,
             .dtype = KERNEL_BF16);
    const cudaError_t status =
        head ? kernel_head_tiles(head, &call, NULL) : kernel_head_wgmma(&call, NULL);
    if (status == cudaErrorNotSupported) {
        arrays_free();
        return;
    }
    launched(status, head ? "head (tiles)" : "head (wgmma)");
    int32_t *got = pull(token);
    float *sure = pull(confidence);
    call.x = x->host;
    call.w = w->host;
    call.token = token->host;
    call.confidence = confidence->host;
    bool tokens = true, confident = true;
    for (int row = 0; row < n_rows; row++) {
        const int n_checked =
            m > 100 * 1000 * 1000 ? 4 : 20; /* the reference implementation is slow */
        if (n_rows > 40 && row % (n_rows / n_checked) != 0) {
            continue;
        }
        struct call_head one = call;
        one.x = (uint16_t *)x->host + (int64_t)row * n_channels;
        one.n_rows = 1;
        one.token = (int32_t *)token->host + row;
        one.confidence = (float *)confidence->host + row;
        if (!ref_head(&one)) {
            exit(2);
        }
        /* A logit is off by the bound times |x| |w| at most; sums of whole numbers are exact. */
        double x_squares = 0, w_squares = 0;
        const int32_t best = *one.token;
        const bool known = got[row] >= 0 && got[row] < n_vocab;
        for (int64_t c = 0; c < n_channels; c++) {
            const double x_c = ref_load(one.x, KERNEL_BF16, c);
            const double w_c = ref_load(w->host, KERNEL_BF16, (int64_t)best * n_channels + c);
            x_squares += x_c * x_c;
            w_squares += w_c * w_c;
        }
        const double error =
            exact ? 0 : ref_bound(KERNEL_F32, n_channels) * sqrt(x_squares * w_squares);
        /* Without exact sums, a token whose logit is within the error of the largest may win. */
        const double top = logit(&one, best), its = known ? logit(&one, got[row]) : 0;
        tokens = tokens && known && (exact ? got[row] == best : its >= top - 2 * error);
        /* The exponents are off by two logits' errors and by the rounding of a logit times log2 e
         * to a single; the exponential itself by 2 ulp (CUDA guide, ex2.approx). */
        const double want = (double)((float *)confidence->host)[row];
        const double tolerance = 1e-5 + 2 * error + 0x1p-22 * fabs(top);
        confident = confident && fabs((double)sure[row] - want) <= tolerance * want;
    }
    check(tokens, "head: tokens of %d rows, %d channels, %d vocabulary", n_rows, n_channels,
          n_vocab);
    check(confident, "head: confidences of %d rows, %d channels, %d vocabulary", n_rows, n_channels,
          n_vocab);
    free(got);
    free(sure);
    arrays_free();
}

/* Logits in steps of a sixteenth, so that the largest is often there twice; behind them, NaN. */
static void test_sample(int n_rows, int n_vocab, bool impossible) {
    const int64_t n = (int64_t)n_rows * n_vocab;
    struct array *logits = random_bf16(n, 0);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)(floor(normal() * 48) / 16);
        ((uint16_t *)logits->host)[i] =
            bf16_from_float(impossible && i % n_vocab != n_vocab / 2 && draw() % 4 ? -INFINITY : x);
    }
    push(logits);
    struct array *token = array_new((size_t)n_rows * 4);
    struct array *confidence = array_new((size_t)n_rows * 4);
    struct call_sample call = MAKE(struct call_sample, .logits = logits->host, .token = token->host,
                                   .confidence = confidence->host, .n_rows = n_rows,
                                   .n_vocab = n_vocab, .dtype = KERNEL_BF16);
    if (!ref_sample(&call)) {
        exit(2);
    }
    call.logits = logits->device;
    call.token = token->device;
    call.confidence = confidence->device;
    launched(kernel_sample(&call, NULL), "sample");
    check_bytes(token, (size_t)n_rows * 4, "sample's tokens");
    float *sure = pull(confidence);
    bool good = true;
    for (int row = 0; row < n_rows; row++) {
        const double want = (double)((float *)confidence->host)[row];
        good = good && fabs((double)sure[row] - want) <= 1e-5 * want;
    }
    check(good, "sample: confidences of %d rows, %d vocabulary", n_rows, n_vocab);
    free(sure);
    arrays_free();
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    struct head *head;
    must(head_open(&head), "head_open");
    const int n = small ? 2 : 8;
    for (int i = 0; i < n; i++) {
        test_embed();
        for (int mode = 0; mode < 4; mode++) {
            test_norm(mode);
        }
        test_swiglu(false);
        test_swiglu(true);
        test_rope((int)(draw() % 16));
        test_rope((int)(draw() % 16));
        for (int size = 0; size < N_HEAD_SIZES; size++) {
            test_dense(false, head_sizes[size]);
            test_dense(true, head_sizes[size]);
            test_block(0, head_sizes[size]);
            for (int mode = i % 2; mode < 4; mode += 2) {
                test_select(mode & 1, mode & 2, small ? 150 : 500, head_sizes[size]);
            }
        }
        test_add();
        test_random(KERNEL_BF16);
        test_random(KERNEL_F32);
        test_keep();
        test_sample(between(1, 40), between(1, 40), false);
        test_sample(between(1, 10), between(1, 20000), i % 2);
        test_head(head, between(1, 40), between(1, 40) * 8, between(1, 2000), i % 2);
        test_head(NULL, between(1, 400), between(1, 40) * 8, between(1, 2000), i % 2);
    }
    printf("passed the first round\n");
    for (int size = 0; size < N_HEAD_SIZES; size++) {
        test_block(1, head_sizes[size]);
        test_block(2, head_sizes[size]);
    }
    test_top(small ? 1500 : 3000);
    if (!small) {
        test_block(1, 128);
        test_block(2, 128);
        test_top(9000);
        test_top(20000);
        test_sample(30, 126464, false);
        test_sample(200, 151667, true);
        test_head(head, 300, 512, 30000, false);
        test_head(head, 1100, 256, 20001, true);
        test_head(head, 33, 256, 126464, true);
        test_head(NULL, 300, 512, 30000, false);
        test_head(NULL, 2500, 256, 20001, true);
        test_head(NULL, 256, 4096, 126464, true);
    }
    head_close(head);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
