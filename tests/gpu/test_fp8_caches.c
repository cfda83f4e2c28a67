/* What reads and writes fp8 beside the products of layers: caches, experts and weights that are
 * quantised, against their reference implementations on random shapes. A plain program:
 * `test_fp8_caches [seed]`. Outputs are poisoned before each launch. */
#include <time.h>

#include "kernels/fp8.h"
#include "kernels/kernels.h"
#include "tests/gpu/arrays.h"

enum { MAX_B = 12, MAX_T = 800 };

/* Keys and values, weights and inputs in fp8 are rounded to bf16 when they are expanded: two more
 * roundings than ref_bound has, as many as sums of that number of terms count for. */
enum { TWO_ROUNDINGS = 1 << 17 };

/* A key's rounding is in an exponent, where it counts by the size of the logit: 0.0163 was met in
 * 4304 rows of heads of 64, where two roundings are bounded by 0.0156. */
enum { KEYS_ROUNDED = 1 << 18 };

static struct array *scratch_new(void) {
    struct cudaDeviceProp device;
    must(cudaGetDeviceProperties(&device, 0), "properties");
    struct array *scratch =
        array_new((size_t)block_attention_scratch_bytes(device.multiProcessorCount));
    must(cudaMemset(scratch->device, 0, scratch->n_bytes), "zero");
    return scratch;
}

/* A head of random numbers at its place. */
static void put_head(uint8_t *cache, struct fp8_place place, int size) {
    float x[256];
    for (int i = 0; i < size; i++) {
        x[i] = (float)normal();
    }
    for (int first = 0; first < size; first += FP8_HEAD_GROUP) {
        const int n = size - first < FP8_HEAD_GROUP ? size - first : FP8_HEAD_GROUP;
        uint8_t row[FP8_HEAD_GROUP + 4 + FP8_HEAD_GROUP];
        fp8_row_from(row, x + first, n, FP8_HEAD_GROUP);
        memcpy(cache + place.codes + first, row, (size_t)n);
        memcpy(cache + place.scales + first / FP8_HEAD_GROUP * 4, row + n, 4);
    }
}

/* ---- weights ---- */

static void test_quantise_weights(enum kernel_dtype dtype) {
    const int n = between(1, 300), k = between(1, 100) * 4, by_row = draw() % 2;
    const int w_rows = by_row ? 1 : 128, w_columns = by_row ? k : 128;
    struct array *x = array_new((size_t)n * (size_t)k * (dtype == KERNEL_BF16 ? 2 : 4));
    for (int64_t i = 0; i < (int64_t)n * k; i++) {
        ref_store(x->host, dtype, i, draw() % 50 == 0 ? 0 : normal() * pow(2, between(-20, 3)));
    }
    push(x);
    const int64_t n_scales = fp8_groups(n, w_rows) * fp8_groups(k, w_columns);
    struct array *codes = array_new((size_t)n * (size_t)k);
    struct array *scales = array_new((size_t)n_scales * 4);
    struct call_quantise_weights call = MAKE(
        struct call_quantise_weights, .x = x->host, .codes = codes->host, .scales = scales->host,
        .n_rows = n, .n_channels = k, .w_rows = w_rows, .w_columns = w_columns, .dtype = dtype);
    ref_quantise_weights(&call);
    call.x = x->device;
    call.codes = codes->device;
    call.scales = scales->device;
    launched(kernel_quantise_weights(&call, NULL), "quantise_weights");
    check_all(codes, "quantised weights");
    check_all(scales, "scales of weights");
    arrays_free();
}

/* ---- caches ---- */

struct batch {
    int b, heads, kv_heads, size, longest;
    int32_t start[MAX_B + 1], kept[MAX_B];
    int64_t cache_start[MAX_B], n_cache; /* bytes */
};

static struct batch batch_new(int d, bool keeps) {
    const int groups[] = {1, 1, 2, 4, 7};
    struct batch s = {.b = between(1, MAX_B), .kv_heads = between(1, 4), .size = d};
    const int most = draw() % 2 ? 32 : draw() % 2 ? 8 : 60;
    s.heads = s.kv_heads * groups[draw() % 5];
    s.n_cache = 8 * between(0, 3);
    for (int r = 0; r < s.b; r++) {
        const int n = draw() % 6 == 0 ? 0 : draw() % 2 ? most : between(1, most);
        s.start[r + 1] = s.start[r] + n;
        s.longest = n > s.longest ? n : s.longest;
        s.kept[r] = !keeps && draw() % 6 == 0 ? 0 : between(1, draw() % 8 == 0 ? 1500 : 200);
        s.cache_start[r] = s.n_cache;
        s.n_cache += 2ll * s.kept[r] * s.kv_heads * fp8_head_elements(d, true);
        s.n_cache = (s.n_cache + 7) / 8 * 8 + 8 * between(0, 2);
    }
    return s;
}

static void test_keep(void) {
    struct batch s = batch_new(draw_head_size(), true);
    const int64_t n = s.start[s.b], stride = s.kv_heads * s.size + 8 * between(0, 4);
    int32_t owner[MAX_T], row[MAX_T];
    for (int r = 0; r < s.b; r++) {
        for (int t = s.start[r], i = 0; t < s.start[r + 1]; t++, i++) {
            owner[t] = r;
            row[t] = i < s.kept[r] && draw() % 4 ? s.kept[r] - 1 - i : -1;
        }
    }
    struct array *k = random_bf16(n * stride, 1), *v = random_bf16(n * stride, 3);
    struct array *cache = array_new((size_t)s.n_cache);
    struct call_keep call = MAKE(
        struct call_keep, .k = k->host, .v = v->host, .start = s.start, .owner = owner,
        .kv_rows = row, .kept = s.kept, .cache_start = s.cache_start, .cache = cache->host,
        .kv_stride = stride, .n_requests = s.b, .n_tokens = (int32_t)n, .n_kv_heads = s.kv_heads,
        .head_size = s.size, .cache_fp8 = true, .dtype = KERNEL_BF16);
    ref_keep(&call);
    call.k = k->device;
    call.v = v->device;
    call.start = integers(s.start, s.b + 1)->device;
    call.owner = integers(owner, n)->device;
    call.kv_rows = integers(row, n)->device;
    call.kept = integers(s.kept, s.b)->device;
    call.cache_start = longs(s.cache_start, s.b)->device;
    call.cache = cache->device;
    launched(kernel_keep(&call, NULL), "keep");
    check_all(cache, "keep in fp8");
    arrays_free();
}

/* The rows that the device chose, packed by the reference. */
static void test_select(int d) {
    const int b = between(1, 5), kv_heads = between(1, 3), heads = kv_heads * between(1, 3);
    int32_t start[8] = {0}, begin[8], end[8], kept[8];
    int64_t cache_start[8], score_start[8], n_cache = 0, n_scores = 0;
    int most = 0;
    for (int r = 0; r < b; r++) {
        const int n = between(3, 120), block = between(1, n - 1), candidates = n - block;
        begin[r] = between(0, candidates);
        end[r] = begin[r] + block;
        start[r + 1] = start[r] + n;
        kept[r] = between(1, candidates);
        most = candidates > most ? candidates : most;
        cache_start[r] = n_cache;
        score_start[r] = n_scores;
        n_scores += candidates;
        n_cache += (2ll * kept[r] * kv_heads * fp8_head_elements(d, true) + 7) / 8 * 8;
    }
    const int64_t n = start[b], q_stride = heads * d, kv_stride = kv_heads * d;
    struct array *q = random_bf16(n * q_stride, 1), *k = random_bf16(n * kv_stride, 1);
    struct array *v = random_bf16(n * kv_stride, 1), *cache = array_new((size_t)n_cache);
    struct array *scores = array_new((size_t)(n_scores * kv_heads) * 4);
    struct array *indices = array_new((size_t)(n_scores * kv_heads) * 4);
    struct call_select call = MAKE(
        struct call_select, .q = q->device, .k = k->device, .v = v->device,
        .start = integers(start, b + 1)->device, .block_start = integers(begin, b)->device,
        .block_end = integers(end, b)->device, .kept = integers(kept, b)->device,
        .cache_start = longs(cache_start, b)->device, .score_start = longs(score_start, b)->device,
        .cache = cache->device, .scores = scores->device, .indices = indices->device,
        .q_stride = q_stride, .kv_stride = kv_stride, .n_requests = b, .n_heads = heads,
        .n_kv_heads = kv_heads, .head_size = d, .max_candidates = most, .uniform = draw() % 2,
        .cache_fp8 = true, .dtype = KERNEL_BF16);
    launched(kernel_select(&call, NULL), "select");
    call.indices = pull(indices);
    call.k = k->host;
    call.v = v->host;
    call.start = start;
    call.block_start = begin;
    call.block_end = end;
    call.kept = kept;
    call.cache_start = cache_start;
    call.score_start = score_start;
    call.cache = cache->host;
    ref_select_pack(&call);
    check_all(cache, "rows packed in fp8");
    free(call.indices);
    arrays_free();
}

/* Codes are those of the reference or next to them, few of them, and scales as good as equal. */
static void check_heads(const struct array *pool, const int32_t *rows, int n_tokens, int64_t stride,
                        int kv_heads, int d, const char *name) {
    uint8_t *got = pull(pool);
    const uint8_t *want = pool->host;
    int64_t n_all = 0, n_other = 0;
    bool good = true;
    for (int t = 0; t < n_tokens; t++) {
        for (int head = 0; rows[t] >= 0 && head < kv_heads; head++) {
            const struct fp8_place place = fp8_paged(kv_heads, d, head);
            const int64_t at = rows[t] * stride;
            for (int i = 0; i < d; i++) {
                const double scale =
                    (double)fp8_scale_at(want + at + place.scales, i / FP8_HEAD_GROUP);
                const double its =
                    (double)fp8_scale_at(got + at + place.scales, i / FP8_HEAD_GROUP);
                const uint8_t a = want[at + place.codes + i], c = got[at + place.codes + i];
                const double x = (double)e4m3_to_float(a), y = (double)e4m3_to_float(c);
                good = good && fabs(scale - its) <= 1e-5 * scale &&
                       fabs(x - y) <= fmax(fabs(x), fabs(y)) / 8 + 0x1p-9;
                n_all++;
                n_other += a != c;
            }
        }
    }
    check(good && n_other * 20 <= n_all, "%s: %" PRId64 " of %" PRId64 " codes are others", name,
          n_other, n_all);
    free(got);
}

static void test_rope(int mode, int size) {
    const int n_tokens = between(1, 60), n_positions = 300, kv_heads = between(1, 8);
    const int heads = draw() % 4 == 0 ? 0 : kv_heads * between(1, 3);
    const int part = draw() % 2 ? 0 : between(1, size / 16) * 16, rotary = part > 0 ? part : size;
    const int width = (heads + 2 * kv_heads) * size;
    const int64_t stride = kv_heads * fp8_head_elements(size, true) + 4 * between(0, 4);
    struct array *qkv = random_bf16((int64_t)n_tokens * width, 1), *bias = random_bf16(width, 1);
    struct array *q_norm = random_bf16(size, 1), *k_norm = random_bf16(size, 1);
    struct array *turns = array_new((size_t)n_positions * (size_t)rotary * 4);
    ref_cos_sin(turns->host, n_positions, rotary, 500000);
    push(turns);
    int32_t position[60], row[60];
    for (int t = 0; t < n_tokens; t++) {
        position[t] = between(0, n_positions - 1);
        row[t] = draw() % 8 == 0 ? -1 : n_tokens - 1 - t;
    }
    struct array *positions = integers(position, n_tokens), *rows = integers(row, n_tokens);
    struct array *q = array_new((size_t)n_tokens * (size_t)(heads * size) * 2);
    struct array *k = array_new((size_t)(n_tokens * stride));
    struct array *v = array_new((size_t)(n_tokens * stride));
    struct call_rope call =
        MAKE(struct call_rope, .n_tokens = n_tokens, .n_heads = heads, .n_kv_heads = kv_heads,
             .head_size = size, .rotary_size = part, .q_stride = heads * size, .kv_stride = stride,
             .epsilon = 1e-6f, .kv_fp8 = true, .dtype = KERNEL_BF16);
    for (int side = 0; side < 2; side++) {
#define SIDE(a) (side ? (a)->device : (a)->host)
        call.qkv = SIDE(qkv);
        call.bias = mode & 1 ? SIDE(bias) : NULL;
        call.q_norm = mode & 2 ? SIDE(q_norm) : NULL;
        call.k_norm = mode & 2 ? SIDE(k_norm) : NULL;
        call.cos_sin = SIDE(turns);
        call.positions = SIDE(positions);
        call.kv_rows = SIDE(rows);
        call.q = SIDE(q);
        call.k = SIDE(k);
        call.v = SIDE(v);
        if (side) {
            launched(kernel_rope(&call, NULL), "rope");
        } else {
            ref_rope(&call);
        }
    }
    char name[100];
    snprintf(name, sizeof name, "rope into fp8, mode %d, heads %d/%d of %d, rotary %d", mode, heads,
             kv_heads, size, rotary);
    check_rows(q, KERNEL_BF16, (int64_t)n_tokens * heads, size, size, size, name);
    check_heads(k, row, n_tokens, stride, kv_heads, size, name);
    check_heads(v, row, n_tokens, stride, kv_heads, size, name);
    arrays_free();
}

static void test_block(int d) {
    const bool own_cached = draw() % 4 == 0;
    struct batch s = batch_new(d, own_cached);
    const int64_t n = s.start[s.b], q_stride = s.heads * d, kv_stride = s.kv_heads * d;
    struct array *q = random_bf16(n * q_stride, 2), *k = random_bf16(n * kv_stride, 1);
    struct array *v = random_bf16(n * kv_stride, 1), *y = array_new((size_t)(n * q_stride) * 2);
    struct array *cache = array_new((size_t)s.n_cache);
    for (int r = 0; r < s.b; r++) {
        for (int i = 0; i < 2 * s.kv_heads * s.kept[r]; i++) {
            put_head((uint8_t *)cache->host + s.cache_start[r],
                     fp8_packed(s.kv_heads, s.kept[r], d, i / s.kept[r], i % s.kept[r]), d);
        }
    }
    push(cache);
    struct call_block_attention call = MAKE(
        struct call_block_attention, .q = q->host, .k = k->host, .v = v->host, .cache = cache->host,
        .y = y->host, .start = s.start, .kept = s.kept, .cache_start = s.cache_start,
        .q_stride = q_stride, .kv_stride = kv_stride, .y_stride = q_stride, .n_requests = s.b,
        .n_heads = s.heads, .n_kv_heads = s.kv_heads, .head_size = d, .max_queries = s.longest,
        .own_cached = own_cached, .cache_fp8 = true, .dtype = KERNEL_BF16);
    if (!ref_block_attention(&call)) {
        exit(2);
    }
    call.q = q->device;
    call.k = k->device;
    call.v = v->device;
    call.cache = cache->device;
    call.y = y->device;
    call.start = integers(s.start, s.b + 1)->device;
    call.kept = integers(s.kept, s.b)->device;
    call.cache_start = longs(s.cache_start, s.b)->device;
    call.scratch = scratch_new()->device;
    check(kernel_block_attention_few(&call, NULL) == cudaErrorNotSupported,
          "`few` takes a cache in fp8");
    static const struct {
        const char *name;
        cudaError_t (*kernel)(const struct call_block_attention *, cudaStream_t);
        bool invariant;
    } paths[] = {{"chosen", kernel_block_attention, false},
                 {"line", kernel_block_attention_line, false},
                 {"compact", kernel_block_attention_compact, false},
                 {"invariant", kernel_block_attention, true}};
    for (size_t path = 0; path < sizeof paths / sizeof paths[0]; path++) {
        char name[160];
        void *first = NULL;
        snprintf(name, sizeof name,
                 "block attention over fp8, %s, %d requests, heads %d/%d of %d%s", paths[path].name,
                 s.b, s.heads, s.kv_heads, d, own_cached ? ", own cached" : "");
        call.invariant = paths[path].invariant;
        for (int round = 0; round < 2; round++) {
            poison(y);
            launched(paths[path].kernel(&call, NULL), name);
            check_rows(y, KERNEL_BF16, n * s.heads, d, d, KEYS_ROUNDED + d, name);
            void *got = pull(y);
            check(!first || memcmp(first, got, y->n_bytes) == 0, "%s: two launches differ", name);
            free(first);
            first = got;
        }
        free(first);
    }
    arrays_free();
}

/* Pages of every request in turn, in the order of the pool backwards. */
static void test_paged(int d) {
    const int kv_heads = between(1, 4), groups[] = {1, 2, 4, 8}, group = groups[draw() % 4];
    const int heads = kv_heads * group, b = between(1, 6), page_rows = 4 << draw() % 6;
    int32_t start[8] = {0}, extent[MAX_T], longest = 0, furthest = 0;
    for (int r = 0; r < b; r++) {
        const int n = draw() % 3 == 0 ? between(1, 130) : between(1, 32);
        const int context = between(0, draw() % 3 == 0 ? 1500 : 200), causal = draw() % 3 == 0;
        start[r + 1] = start[r] + n;
        for (int t = 0; t < n; t++) {
            extent[start[r] + t] = causal ? context + t + 1 : context + n;
        }
        longest = n > longest ? n : longest;
        furthest = context + n > furthest ? context + n : furthest;
    }
    const int max_pages = furthest / page_rows + 1, n_pages = b * max_pages;
    const int64_t n = start[b], q_stride = heads * d;
    const int64_t stride = kv_heads * fp8_head_elements(d, true) + 4 * between(0, 4);
    int32_t *pages = malloc(sizeof *pages * (size_t)n_pages);
    struct array *k = array_new((size_t)(n_pages * page_rows * stride));
    struct array *v = array_new((size_t)(n_pages * page_rows * stride));
    for (int r = 0; r < b; r++) {
        for (int p = 0; p < max_pages; p++) {
            pages[r * max_pages + p] = n_pages - 1 - (p * b + r);
        }
        for (int row = 0; row < extent[start[r + 1] - 1]; row++) {
            const int64_t at =
                (int64_t)pages[r * max_pages + row / page_rows] * page_rows + row % page_rows;
            for (int head = 0; head < kv_heads; head++) {
                put_head((uint8_t *)k->host + at * stride, fp8_paged(kv_heads, d, head), d);
                put_head((uint8_t *)v->host + at * stride, fp8_paged(kv_heads, d, head), d);
            }
        }
    }
    push(k);
    push(v);
    struct array *q = random_bf16(n * q_stride, 2), *y = array_new((size_t)(n * q_stride) * 2);
    struct call_paged_attention call =
        MAKE(struct call_paged_attention, .q = q->host, .k = k->host, .v = v->host, .y = y->host,
             .start = start, .extent = extent, .pages = pages, .q_stride = q_stride,
             .kv_stride = stride, .y_stride = q_stride, .n_requests = b, .n_tokens = (int32_t)n,
             .n_heads = heads, .n_kv_heads = kv_heads, .head_size = d, .max_pages = max_pages,
             .page_rows = page_rows, .max_queries = longest, .max_extent = max_pages * page_rows,
             .cache_fp8 = true, .dtype = KERNEL_BF16);
    if (!ref_paged_attention(&call)) {
        exit(2);
    }
    call.q = q->device;
    call.k = k->device;
    call.v = v->device;
    call.y = y->device;
    call.start = integers(start, b + 1)->device;
    call.extent = integers(extent, n)->device;
    call.pages = integers(pages, n_pages)->device;
    call.scratch = scratch_new()->device;
    check(kernel_paged_attention_few(&call, NULL) == cudaErrorNotSupported &&
              kernel_paged_attention_wgmma(&call, NULL) == cudaErrorNotSupported,
          "`few` or wgmma takes pages in fp8");
    static const struct {
        const char *name;
        cudaError_t (*kernel)(const struct call_paged_attention *, cudaStream_t);
        bool invariant;
    } paths[] = {{"chosen", kernel_paged_attention, false},
                 {"compact", kernel_paged_attention_compact, false},
                 {"invariant", kernel_paged_attention, true}};
    for (size_t path = 0; path < sizeof paths / sizeof paths[0]; path++) {
        char name[160];
        snprintf(name, sizeof name,
                 "paged attention over fp8, %s, %d requests, heads %d/%d of %d, pages of %d",
                 paths[path].name, b, heads, kv_heads, d, page_rows);
        call.invariant = paths[path].invariant;
        poison(y);
        launched(paths[path].kernel(&call, NULL), name);
        check_rows(y, KERNEL_BF16, n * heads, d, d, KEYS_ROUNDED + d, name);
    }
    free(pages);
    arrays_free();
}

/* ---- experts ---- */

/* Random numbers as codes and scales: matrices of n rows of k. */
static struct array *narrow_matrices(int n_matrices, int n, int k, double scale,
                                     struct call_fp8 *fp8) {
    const int64_t high = fp8_groups(n, fp8->w_rows), wide = fp8_groups(k, fp8->w_columns);
    struct array *codes = array_new((size_t)n_matrices * (size_t)n * (size_t)k);
    struct array *scales = array_new((size_t)(n_matrices * high * wide) * 4);
    float *x = malloc(sizeof *x * (size_t)n * (size_t)k);
    for (int m = 0; m < n_matrices; m++) {
        for (int64_t i = 0; i < (int64_t)n * k; i++) {
            x[i] = (float)(normal() * scale);
        }
        const struct call_quantise_weights call =
            MAKE(struct call_quantise_weights, .x = x,
                 .codes = (uint8_t *)codes->host + (int64_t)m * n * k,
                 .scales = (float *)scales->host + m * high * wide, .n_rows = n, .n_channels = k,
                 .w_rows = fp8->w_rows, .w_columns = fp8->w_columns, .dtype = KERNEL_F32);
        ref_quantise_weights(&call);
    }
    free(x);
    push(codes);
    push(scales);
    fp8->w_scale = scales->host;
    return codes;
}

static struct array *narrow_rows(int64_t n, int k, int group) {
    const int64_t bytes = fp8_row_bytes(k, group);
    struct array *rows = array_new((size_t)(n * bytes));
    float *x = malloc(sizeof *x * (size_t)k);
    for (int64_t t = 0; t < n; t++) {
        for (int i = 0; i < k; i++) {
            x[i] = (float)normal();
        }
        fp8_row_from((uint8_t *)rows->host + t * bytes, x, k, group);
    }
    free(x);
    push(rows);
    return rows;
}

static const void *on_device(const void *host) {
    for (int i = 0; i < n_arrays; i++) {
        if (arrays[i]->host == host) {
            return arrays[i]->device;
        }
    }
    return NULL;
}

static const struct {
    const char *name;
    cudaError_t (*gate_up)(const struct call_moe_gate_up *, cudaStream_t);
    cudaError_t (*down)(const struct call_moe_down *, cudaStream_t);
} expert_paths[] = {{"chosen", kernel_moe_gate_up, kernel_moe_down},
                    {"mma", kernel_moe_gate_up_mma, kernel_moe_down_mma},
                    {"wgmma", kernel_moe_gate_up_wgmma, kernel_moe_down_wgmma}};

/* The pairs of the last token alone have the bits that `down`, whose inputs lie by place, and
 * `gate_up` gave them among the others. */
static void check_expert_alone(const struct call_moe_gate_up *gate_up, const struct array *inner,
                               const int32_t *experts, const int32_t *place, const char *name) {
    const int a = gate_up->n_active, f = gate_up->n_hidden, t = gate_up->n_tokens - 1;
    const size_t bytes = (size_t)f * 2;
    struct array *start = array_new((size_t)(gate_up->n_experts + 1) * 4);
    struct array *order = array_new((size_t)a * 4), *own_place = array_new((size_t)a * 4);
    struct array *own = array_new((size_t)a * bytes);
    const struct call_moe_sort sort =
        MAKE(struct call_moe_sort, .expert = experts + (int64_t)t * a, .start = start->host,
             .order = order->host, .place = own_place->host, .n_tokens = 1, .n_active = a,
             .n_experts = gate_up->n_experts);
    ref_moe_sort(&sort);
    push(start);
    push(order);
    struct call_moe_gate_up one = *gate_up;
    one.x = (const uint8_t *)gate_up->x + t * gate_up->x_stride * (gate_up->fp8.x_too ? 1 : 2);
    one.n_tokens = 1;
    one.start = start->device;
    one.order = order->device;
    one.y = own->device;
    launched(kernel_moe_gate_up(&one, NULL), name);
    unsigned char *alone = pull(own), *all = pull(inner);
    bool same = true;
    for (int i = 0; i < a; i++) {
        same = same && memcmp(alone + (size_t)((int32_t *)own_place->host)[i] * bytes,
                              all + (size_t)place[(int64_t)t * a + i] * bytes, bytes) == 0;
    }
    check(same, "%s: alone a token has other bits", name);
    free(alone);
    free(all);
}

struct mixture {
    int tokens, experts, active, channels, hidden;
    bool x_too, by_row, crowded; /* crowded: most tokens go to the first experts */
};

static struct mixture random_mixture(int n_tokens, bool x_too, bool by_row) {
    const int n_experts = between(1, 9), step = draw() % 4 == 0 ? 8 : 16;
    const int most = n_tokens > 40 ? 160 : 480; /* the reference takes its time */
    const struct mixture m = {.tokens = n_tokens,
                              .experts = n_experts,
                              .active = between(1, n_experts < 4 ? n_experts : 4),
                              .channels = between(1, most / step) * step,
                              .hidden = between(1, most / step) * step,
                              .x_too = x_too,
                              .by_row = by_row,
                              .crowded = draw() % 3 == 0};
    return m;
}

/* Both products' calls on the device's arrays, with what the reference made of them in inner and
 * outer; the second one's inputs are not the first one's outputs. */
struct mixture_calls {
    struct call_moe_gate_up gate_up;
    struct call_moe_down down;
    struct array *inner, *outer;
    int32_t *experts, *place;
};

static struct call_fp8 scales_of(const struct mixture *m, int k) {
    const struct call_fp8 fp8 = {
        .w_rows = m->by_row ? 1 : 128, .w_columns = m->by_row ? k : 128, .x_too = m->x_too};
    return fp8;
}

static struct array *inputs_of(const struct mixture *m, int64_t n, int k, int group) {
    return m->x_too ? narrow_rows(n, k, group) : random_bf16(n * k, 1);
}

static void mixture_sort(const struct mixture *m, struct mixture_calls *calls) {
    const int64_t n = (int64_t)m->tokens * m->active;
    calls->experts = malloc(sizeof *calls->experts * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) { /* apart, of one token */
        const int64_t token = m->crowded && draw() % 4 ? 0 : i / m->active * 7;
        calls->experts[i] = (int32_t)((token + i % m->active) % m->experts);
    }
    struct array *start = array_new((size_t)(m->experts + 1) * 4);
    struct array *order = array_new((size_t)n * 4), *place = array_new((size_t)n * 4);
    const struct call_moe_sort sort =
        MAKE(struct call_moe_sort, .expert = calls->experts, .start = start->host,
             .order = order->host, .place = place->host, .n_tokens = m->tokens,
             .n_active = m->active, .n_experts = m->experts);
    ref_moe_sort(&sort);
    push(start);
    push(order);
    calls->place = place->host;
    calls->gate_up.start = calls->down.start = start->host;
    calls->gate_up.order = order->host;
}

static void mixture_make(const struct mixture *m, struct mixture_calls *calls) {
    const int c = m->channels, f = m->hidden;
    const int64_t n = (int64_t)m->tokens * m->active;
    struct call_fp8 one = scales_of(m, c), two = scales_of(m, f);
    calls->gate_up =
        MAKE(struct call_moe_gate_up, .x_stride = m->x_too ? fp8_row_bytes(c, one.w_columns) : c,
             .n_tokens = m->tokens, .n_active = m->active, .n_experts = m->experts, .n_channels = c,
             .n_hidden = f, .dtype = KERNEL_BF16);
    calls->down =
        MAKE(struct call_moe_down, .n_tokens = m->tokens, .n_active = m->active,
             .n_experts = m->experts, .n_channels = c, .n_hidden = f, .dtype = KERNEL_BF16);
    mixture_sort(m, calls);
    calls->gate_up.w = narrow_matrices(m->experts, 2 * f, c, 2 / sqrt(c), &one)->host;
    calls->down.w = narrow_matrices(m->experts, c, f, 1 / sqrt(f), &two)->host;
    calls->gate_up.x = inputs_of(m, m->tokens, c, one.w_columns)->host;
    calls->down.x = inputs_of(m, n, f, two.w_columns)->host;
    calls->inner = array_new((size_t)(n * f) * 2);
    calls->outer = array_new((size_t)(n * c) * 2);
    calls->gate_up.y = calls->inner->host;
    calls->down.y = calls->outer->host;
    calls->gate_up.fp8 = one;
    calls->down.fp8 = two;
    ref_moe_gate_up(&calls->gate_up);
    ref_moe_down(&calls->down);
    calls->gate_up.x = on_device(calls->gate_up.x);
    calls->gate_up.w = on_device(calls->gate_up.w);
    calls->gate_up.order = on_device(calls->gate_up.order);
    calls->gate_up.fp8.w_scale = on_device(one.w_scale);
    calls->gate_up.y = calls->inner->device;
    calls->down.x = on_device(calls->down.x);
    calls->down.w = on_device(calls->down.w);
    calls->down.fp8.w_scale = on_device(two.w_scale);
    calls->down.y = calls->outer->device;
    calls->gate_up.start = calls->down.start = on_device(calls->down.start);
}

/* One product's outputs, n rows of `width`, if a path takes the call at all. */
static bool check_expert_rows(cudaError_t status, const struct array *y, int64_t n, int width,
                              int length, const char *name) {
    if (status == cudaErrorNotSupported) {
        return false;
    }
    launched(status, name);
    check_rows(y, KERNEL_BF16, n, width, width, TWO_ROUNDINGS + length, name);
    check_untouched(y, n * width * 2, name);
    return true;
}

static int n_by_wgmma;

static void test_experts(const struct mixture *m) {
    const int c = m->channels, f = m->hidden;
    const int64_t n = (int64_t)m->tokens * m->active;
    struct mixture_calls calls;
    mixture_make(m, &calls);
    for (size_t path = 0; path < sizeof expert_paths / sizeof expert_paths[0]; path++) {
        char name[160];
        snprintf(name, sizeof name, "experts in fp8%s%s, %s: %d tokens, %d of %d%s, C %d, F %d",
                 m->by_row ? "-channel" : "", m->x_too ? " with inputs" : "",
                 expert_paths[path].name, m->tokens, m->active, m->experts,
                 m->crowded ? " crowded" : "", c, f);
        poison(calls.inner);
        poison(calls.outer);
        const bool up = check_expert_rows(expert_paths[path].gate_up(&calls.gate_up, NULL),
                                          calls.inner, n, f, c, name);
        if (path == 0) {
            check_expert_alone(&calls.gate_up, calls.inner, calls.experts, calls.place, name);
        }
        const bool down = check_expert_rows(expert_paths[path].down(&calls.down, NULL), calls.outer,
                                            n, c, f, name);
        /* wgmma takes rows of codes of whole 16 bytes. */
        check(path == 2 || (up && down), "%s: refused", name);
        n_by_wgmma += path == 2 && up;
    }
    free(calls.experts);
    arrays_free();
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    printf("seed %" PRIu64 "\n", state);
    for (int i = 0; i < 12; i++) {
        test_quantise_weights(i % 2 ? KERNEL_BF16 : KERNEL_F32);
        test_keep();
        test_rope(i % 4, head_sizes[i % N_HEAD_SIZES]);
        test_rope(i % 4, draw_head_size());
        test_select(head_sizes[i % N_HEAD_SIZES]);
    }
    for (int i = 0; i < 24; i++) {
        const struct mixture m =
            random_mixture(i == 0 ? 1 : between(1, i % 3 == 0 ? 300 : 40), i % 2, i / 2 % 2);
        test_experts(&m);
    }
    for (int i = 0; i < 4; i++) { /* a model's rows */
        const struct mixture m = {.tokens = 5,
                                  .experts = 8,
                                  .active = 2,
                                  .channels = 2048,
                                  .hidden = 512,
                                  .x_too = i % 2,
                                  .by_row = i / 2};
        test_experts(&m);
    }
    printf("experts by wgmma: %d\n", n_by_wgmma);
    for (int i = 0; i < 8; i++) {
        test_block(head_sizes[i % N_HEAD_SIZES]);
        test_paged(head_sizes[i % N_HEAD_SIZES]);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed > 0;
}
