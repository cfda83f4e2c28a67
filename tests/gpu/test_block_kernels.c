/* Block diffusion's kernels against their reference implementations on random shapes, tails
 * included. A plain program, as test_kernels is: `test_block_kernels [seed] [small | patterns]`.
 * Outputs are poisoned with NaN before each launch, and so are pool rows that no query may see. */
#include <time.h>

#include "kernels/kernels.h"
#include "kernels/rules/pattern.h"
#include "tests/gpu/arrays.h"

static bool small;

static struct array *bytes_of(const uint8_t *values, int64_t n) {
    struct array *a = array_new((size_t)n);
    memcpy(a->host, values, (size_t)n);
    push(a);
    return a;
}

enum { MAX_B = 70, MAX_T = 5000 };

enum paged_kind { MIXED, DECODE, BLOCKS, CAUSAL, ONE_LONG, CHECKED, KINDS };

struct paged_shape {
    int32_t start[MAX_B + 1], extent[MAX_T], before[MAX_T];
    int b, longest, furthest;
};

/* No more (query, key) pairs than about `budget`. */
static struct paged_shape paged_shape(enum paged_kind kind, int64_t budget) {
    struct paged_shape s = {.b = kind == ONE_LONG ? 1 : between(1, kind == DECODE ? MAX_B : 12)};
    const int one_in = kind == CAUSAL ? 70 : 33, far = (int)(budget / (kind == DECODE ? 60 : 200));
    for (int r = 0; r < s.b; r++) {
        int n = kind == DECODE     ? 1
                : kind == BLOCKS   ? (draw() % 3 ? 32 : between(1, 40))
                : kind == CAUSAL   ? between(1, 4 * one_in)
                : kind == ONE_LONG ? between(1, 33)
                : kind == CHECKED  ? 2 * between(1, draw() % 2 ? 4 : 40)
                : draw() % 5 == 0  ? 0
                                   : between(1, draw() % 2 ? 70 : 6);
        int context = kind == ONE_LONG ? (int)(budget / (n + 1)) : between(0, far / (n + 1) + 3);
        if (draw() % 4 == 0) {
            context = between(0, 3);
        }
        n = s.start[r] + n > MAX_T ? 0 : n;
        s.start[r + 1] = s.start[r] + n;
        const bool checks = kind == CHECKED && draw() % 4 > 0; /* drafts, then as many masks */
        const bool causal = kind == CAUSAL || checks || (kind == MIXED && draw() % 3 == 0);
        for (int t = 0; t < n; t++) {
            const int all = context + n;
            const int32_t extent = causal && t < n - 1 ? context + t + 1 : all;
            s.extent[s.start[r] + t] = extent;
            s.before[s.start[r] + t] = checks && t >= n / 2 ? context + t - n / 2 : extent - 1;
            s.furthest = all > s.furthest ? all : s.furthest;
        }
        s.longest = n > s.longest ? n : s.longest;
    }
    return s;
}

/* Every page used by one request; rows past the extents are NaN, and pages past them wild. */
static void test_paged(enum paged_kind kind, int head_size) {
    const int groups[] = {1, 2, 4, 4, 7, 8, 16}, group = groups[draw() % 7];
    const int n_kv_heads = between(1, kind == DECODE ? 8 : 2), n_heads = group * n_kv_heads;
    const int page_rows = 4 << draw() % 7, d = head_size;
    const int64_t budget = (small ? 20000 : 300000) / n_heads;
    struct paged_shape s = paged_shape(kind, budget);
    const int max_pages = s.furthest / page_rows + 1 + between(0, 3);
    const int n_pages = s.b * max_pages + between(0, 5), n_rows = n_pages * page_rows;
    const int64_t n = s.start[s.b], q_stride = (n_heads + between(0, 2)) * d;
    const int64_t y_stride = (n_heads + between(0, 1)) * d;
    const int64_t kv_stride = (n_kv_heads + between(0, 1)) * d;
    int32_t *pages = malloc(sizeof *pages * (size_t)(s.b * max_pages));
    int32_t *shuffled = malloc(sizeof *shuffled * (size_t)n_pages);
    for (int i = 0; i < n_pages; i++) {
        shuffled[i] = i;
    }
    struct array *k = array_new((size_t)(n_rows * kv_stride) * 2);
    struct array *v = array_new((size_t)(n_rows * kv_stride) * 2);
    int64_t page_at = 0;
    for (int r = 0; r < s.b; r++) {
        const int reach = s.start[r + 1] > s.start[r] ? s.extent[s.start[r + 1] - 1] : 0;
        for (int p = 0; p < max_pages; p++) {
            pages[r * max_pages + p] = -1000000;
            if (p * page_rows < reach) {
                const int64_t from = page_at + (int64_t)(draw() % (uint64_t)(n_pages - page_at));
                const int32_t page = shuffled[from];
                shuffled[from] = shuffled[page_at];
                shuffled[page_at++] = page;
                pages[r * max_pages + p] = page;
                for (int row = 0; row < page_rows && p * page_rows + row < reach; row++) {
                    const int64_t at = ((int64_t)page * page_rows + row) * kv_stride;
                    for (int64_t c = 0; c < n_kv_heads * d; c++) {
                        ((uint16_t *)k->host)[at + c] = bf16_from_float((float)normal());
                        ((uint16_t *)v->host)[at + c] = bf16_from_float((float)normal());
                    }
                }
            }
        }
    }
    push(k);
    push(v);
    struct array *q = random_bf16(n * q_stride, 2), *y = array_new((size_t)(n * y_stride) * 2);
    struct array *starts = integers(s.start, s.b + 1), *extents = integers(s.extent, n);
    struct array *page_table = integers(pages, (int64_t)s.b * max_pages);
    struct array *befores = integers(s.before, n);
    struct cudaDeviceProp device;
    must(cudaGetDeviceProperties(&device, 0), "properties");
    struct array *scratch =
        array_new((size_t)block_attention_scratch_bytes(device.multiProcessorCount));
    must(cudaMemset(scratch->device, 0, scratch->n_bytes), "zero");
    struct call_paged_attention call = MAKE(
        struct call_paged_attention, .q = q->host, .k = k->host, .v = v->host, .y = y->host,
        .start = s.start, .extent = s.extent, .before = kind == CHECKED ? s.before : NULL,
        .pages = pages, .q_stride = q_stride, .kv_stride = kv_stride, .y_stride = y_stride,
        .n_requests = s.b, .n_tokens = (int32_t)n, .n_heads = n_heads, .n_kv_heads = n_kv_heads,
        .head_size = d, .max_pages = max_pages, .page_rows = page_rows, .max_queries = s.longest,
        .max_extent = s.furthest, .dtype = KERNEL_BF16);
    if (!ref_paged_attention(&call)) {
        exit(2);
    }
    call.q = q->device;
    call.k = k->device;
    call.v = v->device;
    call.y = y->device;
    call.start = starts->device;
    call.extent = extents->device;
    call.before = call.before ? befores->device : NULL;
    call.pages = page_table->device;
    call.scratch = scratch->device;
    static const struct {
        const char *name;
        cudaError_t (*kernel)(const struct call_paged_attention *, cudaStream_t);
        bool invariant;
    } paths[] = {{"mma", kernel_paged_attention_mma, false},
                 {"compact", kernel_paged_attention_compact, false},
                 {"wgmma", kernel_paged_attention_wgmma, false},
                 {"few", kernel_paged_attention_few, false},
                 {"invariant", kernel_paged_attention, true}};
    char name[200];
    for (size_t path = 0; path < sizeof paths / sizeof paths[0]; path++) {
        void *first = NULL;
        snprintf(name, sizeof name,
                 "paged attention, %s, kind %d, %d requests, heads %d/%d of %d, pages of %d, "
                 "queries <= %d, rows <= %d",
                 paths[path].name, (int)kind, s.b, n_heads, n_kv_heads, d, page_rows, s.longest,
                 s.furthest);
        call.invariant = paths[path].invariant;
        for (int round = 0; round < 2; round++) { /* the second finds the counters at rest */
            poison(y);
            const cudaError_t status = paths[path].kernel(&call, NULL);
            if (status == cudaErrorNotSupported) {
                break;
            }
            launched(status, name);
            /* Rows of heads, tokens y_stride apart: a row of a token's heads each. */
            for (int64_t t = 0; round == 0 && t < n; t++) {
                struct array token = {(char *)y->host + t * y_stride * 2,
                                      (char *)y->device + t * y_stride * 2,
                                      (size_t)(n_heads * d) * 2};
                if (t < 40 || t > n - 40 || draw() % 8 == 0) {
                    check_rows(&token, KERNEL_BF16, n_heads, d, d, s.furthest + d, name);
                }
            }
            void *got = pull(y);
            check(round == 0 || memcmp(first, got, y->n_bytes) == 0, "%s: two launches differ",
                  name);
            free(first);
            first = got;
        }
        if (first && paths[path].invariant && n > 0) { /* one request alone has the same bits */
            int r = between(0, s.b - 1);
            while (s.start[r] == s.start[r + 1]) {
                r = (r + 1) % s.b;
            }
            struct call_paged_attention alone = call;
            const int32_t length = s.start[r + 1] - s.start[r], both[2] = {0, length};
            alone.start = integers(both, 2)->device;
            alone.q = (const uint16_t *)q->device + s.start[r] * q_stride;
            alone.y = (uint16_t *)y->device + s.start[r] * y_stride;
            alone.extent = (const int32_t *)extents->device + s.start[r];
            alone.before = call.before ? (const int32_t *)befores->device + s.start[r] : NULL;
            alone.pages = (const int32_t *)page_table->device + (int64_t)r * max_pages;
            alone.n_requests = 1;
            alone.n_tokens = alone.max_queries = length;
            poison(y);
            launched(kernel_paged_attention(&alone, NULL), name);
            char *got = pull(y);
            bool same = true;
            for (int64_t t = s.start[r]; t < s.start[r + 1]; t++) {
                same = same && memcmp(got + t * y_stride * 2, (char *)first + t * y_stride * 2,
                                      (size_t)(n_heads * d) * 2) == 0;
            }
            check(same, "%s: alone a request has other bits", name);
            free(got);
        }
        free(first);
    }
    free(pages);
    free(shuffled);
    arrays_free();
}

/* Requests of up to `most` tokens; some are prompts, without a mask. */
static int random_requests(int b, int most, int32_t *start, uint8_t *masked, int *most_masked) {
    *most_masked = 0;
    start[0] = 0;
    for (int r = 0; r < b; r++) {
        const bool is_prompt = draw() % 12 == 0;
        const int n = draw() % 9 == 0 ? 0 : is_prompt ? between(1, 5 * most) : between(1, most);
        const int share = between(0, 4); /* of four */
        int n_masked = 0;
        start[r + 1] = start[r] + n;
        for (int t = start[r]; t < start[r + 1]; t++) {
            masked[t] = !is_prompt && (int)(draw() % 4) < share;
            n_masked += masked[t];
        }
        *most_masked = n_masked > *most_masked ? n_masked : *most_masked;
    }
    return start[b];
}

static void test_importance(int head_size, int most) {
    enum { B = 9 };
    const int groups[] = {1, 2, 4, 7, 8}, n_kv_heads = between(1, 4), d = head_size;
    const int n_heads = n_kv_heads * groups[draw() % 5], b = between(1, B);
    int32_t start[B + 1];
    uint8_t *masked = malloc((size_t)(B * 5 * most));
    int most_masked;
    const int n = random_requests(b, most, start, masked, &most_masked), n_rows = n + 50;
    const int64_t q_stride = (n_heads + 1) * d, kv_stride = (n_kv_heads + 2) * d;
    int32_t *rows = malloc(sizeof *rows * (size_t)n_rows);
    for (int i = 0; i < n_rows; i++) {
        const int other = between(0, i);
        rows[i] = rows[other];
        rows[other] = i;
    }
    struct array *q = random_bf16(n * q_stride, 1.5), *k = random_bf16(n_rows * kv_stride, 1);
    struct array *y = array_new((size_t)n * 4), *starts = integers(start, b + 1);
    struct array *masks = bytes_of(masked, n), *where = integers(rows, n);
    const bool scattered = draw() % 2;
    struct call_importance call =
        MAKE(struct call_importance, .q = q->host, .k = k->host, .kv_rows = scattered ? rows : NULL,
             .start = start, .masked = masked, .importance = y->host, .q_stride = q_stride,
             .kv_stride = kv_stride, .n_requests = b, .n_heads = n_heads, .n_kv_heads = n_kv_heads,
             .head_size = d, .max_masked = most_masked, .dtype = KERNEL_BF16);
    ref_importance(&call);
    call.q = q->device;
    call.k = k->device;
    call.kv_rows = scattered ? where->device : NULL;
    call.start = starts->device;
    call.masked = masks->device;
    call.importance = y->device;
    launched(kernel_importance(&call, NULL), "importance");
    float *got = pull(y);
    double worst = 0;
    bool good = true;
    for (int t = 0; t < n; t++) {
        const double want = ((float *)y->host)[t], off = fabs((double)got[t] - want);
        /* Scores of about 20 in single precision; a sum of exponentials of them. */
        good = good && off <= 2e-5 * want + 1e-7;
        worst = off / (want + 1e-30) > worst && want > 0 ? off / want : worst;
    }
    check(good, "importance: relative error %g, %d requests, heads %d/%d of %d, masked <= %d",
          worst, b, n_heads, n_kv_heads, d, most_masked);
    free(got);
    free(masked);
    free(rows);
    arrays_free();
}

static void test_compact(void) {
    const int n_from = between(1, 300), most = between(0, n_from), n_parts = between(1, 4);
    const int32_t n = between(0, most);
    int32_t *rows = malloc(sizeof *rows * (size_t)(most + 1));
    for (int i = 0; i < most; i++) {
        rows[i] = between(0, n_from - 1);
    }
    const bool counted = draw() % 2;
    struct array *from[4], *to[4];
    struct call_compact call =
        MAKE(struct call_compact, .rows = rows, .n_rows = counted ? &n : NULL, .n_arrays = n_parts,
             .max_rows = most, .dtype = KERNEL_BF16);
    struct array *row_list = integers(rows, most), *count = integers(&n, 1);
    for (int a = 0; a < n_parts; a++) {
        call.width[a] = between(0, 600) * 8;
        call.from_stride[a] = call.width[a] + between(0, 3) * 8;
        call.to_stride[a] = call.width[a] + between(0, 3) * 8;
        from[a] = random_bf16(n_from * call.from_stride[a], 1);
        to[a] = array_new((size_t)(most * call.to_stride[a]) * 2);
        call.from[a] = from[a]->host;
        call.to[a] = to[a]->host;
    }
    ref_compact(&call);
    call.rows = row_list->device;
    call.n_rows = counted ? count->device : NULL;
    for (int a = 0; a < n_parts; a++) {
        call.from[a] = from[a]->device;
        call.to[a] = to[a]->device;
    }
    launched(kernel_compact(&call, NULL), "compact");
    for (int a = 0; a < n_parts; a++) {
        check_all(to[a], "compact");
    }
    free(rows);
    arrays_free();
}

/* ---- SparseD ---- */

enum { PATTERN_B = 3 };

/* Requests of up to `longest` tokens, and what each keeps of its blocks. */
struct patterned {
    int b, n_heads, n_kv_heads, n, longest, tokens;
    int32_t start[PATTERN_B + 1], rest[PATTERN_B], keep[PATTERN_B], keep_rest[PATTERN_B];
    int64_t cache_start[PATTERN_B], pool; /* in elements of bf16 */
};

static struct patterned random_patterned(int longest, int tokens) {
    const int n_kv_heads = between(1, 2);
    struct patterned p = {.b = between(1, PATTERN_B),
                          .n_heads = n_kv_heads * between(1, 2),
                          .n_kv_heads = n_kv_heads,
                          .tokens = tokens};
    for (int r = 0; r < p.b; r++) {
        const int n = between(1, longest), n_blocks = pattern_n_blocks(n, tokens);
        p.rest[r] = between(0, n_blocks - 1);
        p.keep[r] = between(1, draw() % 3 ? (n_blocks + 2) / 3 : n_blocks);
        p.keep_rest[r] = between(1, n_blocks - p.rest[r]);
        p.cache_start[r] = p.pool;
        p.pool += (2 * (int64_t)p.n_heads * n_blocks * pattern_n_words(n_blocks) + 7) / 8 * 8;
        p.start[r + 1] = p.n += n;
        p.longest = n > p.longest ? n : p.longest;
    }
    return p;
}

/* Blocks that one side keeps and the other leaves have shares next to the least kept one: single
 * precision, exponents of scores up to about 20. */
static double off_share(const double *shares, int n, int keep, int block) {
    double least = 0;
    for (int b = 0; b < n; b++) { /* the keep-th largest */
        int n_over = 0, n_equal = 0;
        for (int other = 0; other < n; other++) {
            n_over += shares[other] > shares[b];
            n_equal += shares[other] == shares[b];
        }
        least = n_over < keep && n_over + n_equal >= keep ? shares[b] : least;
    }
    return fabs(shares[block] - least) / least;
}

static void check_words(const struct call_pattern *call, const struct patterned *p,
                        const struct array *cache, const char *name) {
    void *got = pull(cache);
    double worst = 0;
    int n_wrong = 0, n_differ = 0;
    double *shares = malloc(sizeof *shares * 2 * (size_t)(p->longest + 1));
    for (int r = 0; r < p->b; r++) {
        const int n_blocks = pattern_n_blocks(p->start[r + 1] - p->start[r], p->tokens);
        for (int head = 0; head < p->n_heads; head++) {
            for (int block = 0; block < n_blocks; block++) {
                const int64_t at = p->cache_start[r];
                const uint32_t *ours = pattern_words_of(call->cache, 2, at, n_blocks, head, block);
                const uint32_t *its = pattern_words_of(got, 2, at, n_blocks, head, block);
                const size_t size = (size_t)pattern_n_words(n_blocks) * sizeof *ours;
                if (memcmp(ours, its, size) == 0) {
                    continue;
                }
                int n_ours = 0, n_its = 0;
                if (!ref_pattern_shares(call, r, head, block, shares)) {
                    exit(2);
                }
                for (int b = 0; b < n_blocks; b++) {
                    const int rest = p->rest[r], of_rest = b >= rest;
                    n_ours += pattern_has(ours, b) && of_rest;
                    n_its += pattern_has(its, b) && of_rest;
                    if (pattern_has(ours, b) != pattern_has(its, b)) {
                        const double off = of_rest ? off_share(shares + n_blocks, n_blocks - rest,
                                                               p->keep_rest[r], b - rest)
                                                   : off_share(shares, n_blocks, p->keep[r], b);
                        worst = off > worst ? off : worst;
                        n_differ++;
                    }
                }
                n_wrong += n_ours != n_its;
            }
        }
    }
    check(n_wrong == 0 && worst <= 1e-4, "%s: %d blocks differ, off by %g; %d counts are wrong",
          name, n_differ, worst, n_wrong);
    free(shares);
    free(got);
}

static void test_pattern_attention(const struct patterned *p, const struct array *const qkv[3],
                                   const struct array *cache, const int64_t strides[2], int d) {
    const int64_t y_stride = (p->n_heads + between(0, 1)) * d;
    struct array *y = array_new((size_t)(p->n * y_stride) * 2);
    struct array *starts = integers(p->start, p->b + 1), *where = longs(p->cache_start, p->b);
    struct call_pattern_attention call = MAKE(
        struct call_pattern_attention, .q = qkv[0]->host, .k = qkv[1]->host, .v = qkv[2]->host,
        .cache = cache->host, .y = y->host, .start = p->start, .cache_start = p->cache_start,
        .q_stride = strides[0], .kv_stride = strides[1], .y_stride = y_stride, .n_requests = p->b,
        .n_tokens = p->n, .n_heads = p->n_heads, .n_kv_heads = p->n_kv_heads, .head_size = d,
        .block_tokens = p->tokens, .max_tokens = p->longest, .dtype = KERNEL_BF16);
    static const struct {
        const char *name;
        cudaError_t (*kernel)(const struct call_pattern_attention *, cudaStream_t);
    } paths[] = {{"mma", kernel_pattern_attention_mma}, {"wgmma", kernel_pattern_attention_wgmma}};
    if (!ref_pattern_attention(&call)) {
        exit(2);
    }
    call.q = qkv[0]->device;
    call.k = qkv[1]->device;
    call.v = qkv[2]->device;
    call.cache = cache->device;
    call.y = y->device;
    call.start = starts->device;
    call.cache_start = where->device;
    for (size_t path = 0; path < sizeof paths / sizeof paths[0]; path++) {
        char name[160];
        snprintf(
            name, sizeof name,
            "pattern attention, %s, %d requests, heads %d/%d of %d, blocks of %d, tokens <= %d",
            paths[path].name, p->b, p->n_heads, p->n_kv_heads, d, p->tokens, p->longest);
        poison(y);
        const cudaError_t status = paths[path].kernel(&call, NULL);
        if (status == cudaErrorNotSupported) {
            continue;
        }
        launched(status, name);
        for (int64_t t = 0; t < p->n; t++) {
            struct array token = {(char *)y->host + t * y_stride * 2,
                                  (char *)y->device + t * y_stride * 2,
                                  (size_t)(p->n_heads * d) * 2};
            if (t < 40 || t > p->n - 40 || draw() % 16 == 0) {
                check_rows(&token, KERNEL_BF16, p->n_heads, d, d, p->longest + d, name);
            }
        }
    }
}

static void test_pattern(int longest, int tokens, int d) {
    const struct patterned p = random_patterned(longest, tokens);
    const int64_t strides[2] = {(p.n_heads + between(0, 2)) * d,
                                (p.n_kv_heads + between(0, 2)) * d};
    struct array *qkv[3] = {random_bf16(p.n * strides[0], 1.5), random_bf16(p.n * strides[1], 1),
                            random_bf16(p.n * strides[1], 1)};
    struct array *cache = array_new((size_t)p.pool * 2), *starts = integers(p.start, p.b + 1);
    struct array *rest = integers(p.rest, p.b), *keep = integers(p.keep, p.b);
    struct array *keep_rest = integers(p.keep_rest, p.b), *where = longs(p.cache_start, p.b);
    struct call_pattern call =
        MAKE(struct call_pattern, .q = qkv[0]->host, .k = qkv[1]->host, .start = p.start,
             .rest = p.rest, .keep = p.keep, .keep_rest = p.keep_rest, .cache_start = p.cache_start,
             .cache = cache->host, .q_stride = strides[0], .kv_stride = strides[1],
             .n_requests = p.b, .n_heads = p.n_heads, .n_kv_heads = p.n_kv_heads, .head_size = d,
             .block_tokens = tokens, .max_tokens = p.longest,
             .scale = 1 / sqrtf((float)(draw() % 2 ? d : 32)), .dtype = KERNEL_BF16);
    if (!ref_pattern(&call)) {
        exit(2);
    }
    struct call_pattern on_device = call;
    on_device.q = qkv[0]->device;
    on_device.k = qkv[1]->device;
    on_device.start = starts->device;
    on_device.rest = rest->device;
    on_device.keep = keep->device;
    on_device.keep_rest = keep_rest->device;
    on_device.cache_start = where->device;
    on_device.cache = cache->device;
    char name[160];
    snprintf(name, sizeof name,
             "pattern, %d requests, heads %d/%d of %d, blocks of %d, tokens <= %d", p.b, p.n_heads,
             p.n_kv_heads, d, tokens, p.longest);
    launched(kernel_pattern(&on_device, NULL), name);
    check_words(&call, &p, cache, name);
    push(cache);
    test_pattern_attention(&p, (const struct array *const *)qkv, cache, strides, d);
    arrays_free();
}

static void test_patterns(int rounds) {
    static const int tokens[] = {128, 32, 64, 256, 1, 5, 16, 100, 128};
    for (int i = 0; i < rounds; i++) {
        const int of = tokens[i % 9], longest = small ? 200 : of >= 128 ? 700 : 300;
        test_pattern(longest, of, head_sizes[i % N_HEAD_SIZES]);
    }
}

/* ---- dLLM-Cache ---- */

enum { MOST_KEPT = 6 };

/* Requests of which a step compares some rows, all or none, and picks as many as it wants of them;
 * what they keep lies one after the other in a pool. */
struct kept {
    int b, n_kv_heads, head_size, channels, n_compared, n_queries, n_values, n_stream, max_compared;
    int max_queries;
    int32_t start[MOST_KEPT + 1], value_start[MOST_KEPT + 1], compared_start[MOST_KEPT + 1];
    int32_t stream_start[MOST_KEPT + 1], run_first[MOST_KEPT], given[MOST_KEPT], rows[MOST_KEPT];
    int64_t cache_start[MOST_KEPT], pool;
};

static struct kept random_kept(int longest) {
    struct kept k = {.b = between(1, MOST_KEPT),
                     .n_kv_heads = between(1, 5),
                     .head_size = draw_head_size(),
                     .channels = 8 * between(1, 300)};
    for (int r = 0; r < k.b; r++) {
        const int canvas = between(1, longest), first = between(0, canvas);
        const int n = between(0, canvas - first), compares = draw() % 4 != 0;
        const int given = compares ? between(0, n) : n;
        const int chosen = compares ? between(0, n - given) : 0;
        k.rows[r] = canvas;
        k.run_first[r] = first;
        k.given[r] = given;
        k.cache_start[r] = k.pool;
        k.pool += (int64_t)canvas * (2 * k.n_kv_heads * k.head_size + 2 * k.channels);
        k.start[r + 1] = k.n_queries += given + chosen;
        k.value_start[r + 1] = k.n_values += n;
        k.compared_start[r + 1] = k.n_compared += compares ? n : 0;
        k.stream_start[r + 1] = k.n_stream += canvas;
        k.max_compared = compares && n > k.max_compared ? n : k.max_compared;
        k.max_queries = given + chosen > k.max_queries ? given + chosen : k.max_queries;
    }
    return k;
}

/* Sums are in single precision, of up to 640 products in eight lanes' parts. */
static void check_sums(const struct array *sums, int n) {
    float *got = pull(sums);
    const float *want = sums->host;
    double worst = 0;
    bool good = true;
    for (int i = 0; i < n * 3; i += 3) {
        const double size = (double)want[i] + 2 * (double)want[i + 2] + 1e-30;
        for (int k = 0; k < 3; k++) {
            const double off = fabs((double)got[i + k] - (double)want[i + k]) / size;
            good = good && off <= 1e-5;
            worst = off > worst ? off : worst;
        }
    }
    check(good, "similarity: %d rows, off by %g of their squares", n, worst);
    free(got);
}

/* What changed most is chosen from the device's own sums, which the reference takes over: from then
 * on the bits are the same. */
static void test_similarity_and_pick(int longest) {
    struct kept k = random_kept(longest);
    const int64_t width = (int64_t)k.n_kv_heads * k.head_size;
    struct array *values = random_bf16(k.n_values * width, 1), *bias = random_bf16(width, 1);
    struct array *cache = random_bf16(k.pool, 1), *sums = array_new((size_t)k.n_compared * 12);
    struct array *starts = integers(k.start, k.b + 1);
    struct array *value_starts = integers(k.value_start, k.b + 1);
    struct array *compared_starts = integers(k.compared_start, k.b + 1);
    struct array *streams = integers(k.stream_start, k.b + 1);
    struct array *firsts = integers(k.run_first, k.b), *given = integers(k.given, k.b);
    struct array *rows = integers(k.rows, k.b), *where = longs(k.cache_start, k.b);
    const bool biased = draw() % 2;
    struct call_similarity call = MAKE(
        struct call_similarity, .values = values->host, .bias = biased ? bias->host : NULL,
        .value_start = k.value_start, .compared_start = k.compared_start, .run_first = k.run_first,
        .given = k.given, .kept = k.rows, .cache_start = k.cache_start, .cache = cache->host,
        .sums = sums->host, .n_requests = k.b, .n_kv_heads = k.n_kv_heads, .head_size = k.head_size,
        .max_compared = k.max_compared, .dtype = KERNEL_BF16);
    ref_similarity(&call);
    call.values = values->device;
    call.bias = biased ? bias->device : NULL;
    call.value_start = value_starts->device;
    call.compared_start = compared_starts->device;
    call.run_first = firsts->device;
    call.given = given->device;
    call.kept = rows->device;
    call.cache_start = where->device;
    call.cache = cache->device;
    call.sums = sums->device;
    launched(kernel_similarity(&call, NULL), "similarity");
    check_all(cache, "similarity's values");
    check_sums(sums, k.n_compared);
    float *own = pull(sums);
    for (int i = 3; i < k.n_compared * 3; i++) { /* some changed as much as the row before */
        own[i] = i / 3 % 5 == 0 ? own[i - 3] : own[i];
    }
    memcpy(sums->host, own, (size_t)k.n_compared * 12);
    push(sums);
    struct array *out[3];
    for (int i = 0; i < 3; i++) {
        out[i] = array_new((size_t)k.n_queries * 4);
    }
    struct call_pick pick =
        MAKE(struct call_pick, .sums = sums->host, .start = k.start, .value_start = k.value_start,
             .compared_start = k.compared_start, .stream_start = k.stream_start,
             .run_first = k.run_first, .given = k.given, .positions = out[0]->host,
             .value_rows = out[1]->host, .stream_rows = out[2]->host, .n_requests = k.b,
             .max_compared = k.max_compared, .max_queries = k.max_queries);
    ref_pick(&pick);
    pick.sums = sums->device;
    pick.start = starts->device;
    pick.value_start = value_starts->device;
    pick.compared_start = compared_starts->device;
    pick.stream_start = streams->device;
    pick.run_first = firsts->device;
    pick.given = given->device;
    pick.positions = out[0]->device;
    pick.value_rows = out[1]->device;
    pick.stream_rows = out[2]->device;
    launched(kernel_pick(&pick, NULL), "pick");
    check_all(out[0], "pick's positions");
    check_all(out[1], "pick's rows of values");
    check_all(out[2], "pick's rows of the stream");
    free(own);
    arrays_free();
}

static void test_features(void) {
    struct kept k = random_kept(300);
    const int32_t n = between(0, 500);
    int32_t *owner = malloc(sizeof *owner * 500), *row = malloc(sizeof *row * 500);
    int32_t *taken = calloc((size_t)k.n_stream + 1, sizeof *taken), n_kept = 0;
    for (int i = 0; i < n; i++) { /* a row is kept once */
        const int r = between(0, k.b - 1), at = between(0, k.rows[r] - 1);
        if (!taken[k.stream_start[r] + at]++) {
            owner[n_kept] = r;
            row[n_kept++] = at;
        }
    }
    struct array *x = random_bf16((int64_t)n_kept * k.channels, 1), *cache = random_bf16(k.pool, 1);
    struct array *y = random_bf16((int64_t)n_kept * k.channels, 1);
    struct array *owners = integers(owner, n_kept), *row_list = integers(row, n_kept);
    struct array *rows = integers(k.rows, k.b), *where = longs(k.cache_start, k.b);
    const int64_t before = 2 * k.n_kv_heads * k.head_size + (draw() % 2 ? k.channels : 0);
    struct call_keep_feature keep =
        MAKE(struct call_keep_feature, .x = x->host, .owner = owner, .rows = row, .kept = k.rows,
             .cache_start = k.cache_start, .cache = cache->host, .before = before,
             .n_tokens = n_kept, .n_channels = k.channels, .dtype = KERNEL_BF16);
    struct call_add_feature add =
        MAKE(struct call_add_feature, .cache = cache->host, .owner = owner, .rows = row,
             .kept = k.rows, .cache_start = k.cache_start, .y = y->host, .before = before,
             .n_tokens = n_kept, .n_channels = k.channels, .dtype = KERNEL_BF16);
    ref_keep_feature(&keep);
    ref_add_feature(&add);
    keep.x = x->device;
    keep.owner = add.owner = owners->device;
    keep.rows = add.rows = row_list->device;
    keep.kept = add.kept = rows->device;
    keep.cache_start = add.cache_start = where->device;
    add.cache = keep.cache = cache->device;
    add.y = y->device;
    launched(kernel_keep_feature(&keep, NULL), "keep_feature");
    launched(kernel_add_feature(&add, NULL), "add_feature");
    check_all(cache, "keep_feature");
    check_all(y, "add_feature");
    free(owner);
    free(row);
    free(taken);
    arrays_free();
}

/* In bf16 rows of every path have one error bound; a call outside the promises is refused. */
static void test_refusals(void) {
    struct call_paged_attention paged =
        MAKE(struct call_paged_attention, .n_requests = 1, .n_heads = 4, .n_kv_heads = 2,
             .head_size = 128, .max_pages = 4, .page_rows = 24, .dtype = KERNEL_BF16);
    check(kernel_paged_attention(&paged, NULL) == cudaErrorInvalidValue, "pages of 24 rows");
    paged.page_rows = 16;
    paged.max_extent = 65;
    check(kernel_paged_attention(&paged, NULL) == cudaErrorInvalidValue, "65 rows in 4 pages");
    paged.max_extent = 64;
    check(kernel_paged_attention(&paged, NULL) == cudaSuccess, "no queries");
    paged.head_size = 80;
    check(kernel_paged_attention(&paged, NULL) == cudaErrorInvalidValue, "heads of 80");
    struct call_importance importance =
        MAKE(struct call_importance, .n_requests = 1, .n_heads = 4, .n_kv_heads = 2,
             .head_size = 128, .max_masked = FOCUS_MAX_BLOCK + 1, .dtype = KERNEL_BF16);
    check(kernel_importance(&importance, NULL) == cudaErrorInvalidValue, "a block of 129");
    struct call_compact compact = {.n_arrays = 1, .max_rows = 1, .width = {12}};
    check(kernel_compact(&compact, NULL) == cudaErrorInvalidValue, "rows of 12");
    struct call_pick pick = {.n_requests = 1, .max_compared = 65537, .max_queries = 1};
    check(kernel_pick(&pick, NULL) == cudaErrorInvalidValue, "65537 compared rows");
    struct call_keep_feature keep = {.before = 4, .n_tokens = 1, .n_channels = 8};
    check(kernel_keep_feature(&keep, NULL) == cudaErrorInvalidValue, "features after 4 channels");
    struct call_similarity values = MAKE(struct call_similarity, .n_requests = 1, .n_kv_heads = 1,
                                         .head_size = 12, .max_compared = 1, .dtype = KERNEL_BF16);
    check(kernel_similarity(&values, NULL) == cudaErrorInvalidValue, "values of 12");
    struct call_pattern pattern =
        MAKE(struct call_pattern, .n_requests = 1, .n_heads = 4, .n_kv_heads = 2, .head_size = 128,
             .block_tokens = 16, .max_tokens = 16 * PATTERN_MAX_BLOCKS + 1, .dtype = KERNEL_BF16);
    check(kernel_pattern(&pattern, NULL) == cudaErrorInvalidValue, "4097 blocks");
    struct call_pattern_attention sparse =
        MAKE(struct call_pattern_attention, .n_requests = 1, .n_heads = 4, .n_kv_heads = 2,
             .head_size = 128, .max_tokens = 1, .dtype = KERNEL_BF16);
    check(kernel_pattern_attention(&sparse, NULL) == cudaErrorInvalidValue, "blocks of 0");
    pattern.max_tokens = 16;
    pattern.head_size = sparse.head_size = 80;
    sparse.block_tokens = 16;
    check(kernel_pattern(&pattern, NULL) == cudaErrorInvalidValue, "patterns of heads of 80");
    check(kernel_pattern_attention(&sparse, NULL) == cudaErrorInvalidValue, "heads of 80");
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    test_refusals();
    if (argc > 2 && strcmp(argv[2], "patterns") == 0) {
        small = true;
        test_patterns(20);
        printf("%d passed, %d failed\n", n_passed, n_failed);
        return n_failed ? 1 : 0;
    }
    const int n = small ? 2 : 6;
    test_patterns(small ? 8 : 20);
    for (int i = 0; i < n; i++) {
        static const int blocks[] = {32, 60, 64, FOCUS_MAX_BLOCK};
        for (int size = 0; size < N_HEAD_SIZES; size++) {
            for (int kind = 0; kind < KINDS; kind++) {
                test_paged((enum paged_kind)kind, head_sizes[size]);
            }
            test_importance(head_sizes[size], blocks[(i + size) % 4]);
            test_importance(head_sizes[size], blocks[(i + size + 2) % 4]);
        }
        for (int j = 0; j < 5; j++) {
            test_compact();
            test_features();
        }
        test_similarity_and_pick(60);
        test_similarity_and_pick(i % 2 == 0 ? 700 : 4000);
    }
    if (!small) {
        test_similarity_and_pick(20000);
        test_similarity_and_pick(65536);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
