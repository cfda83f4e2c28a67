/* The plain-C kernels of SparseD's patterns: which blocks of keys are kept, and attention to these.
 */
#include <math.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/pattern.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

enum { HEADS = 2, SIZE = 8, TOKENS = 50, STRIDE = HEADS * SIZE + 8, BLOCK = 4, WORDS = 400 };

/* Two requests, of 13 tokens and of 37, after three of others; heads share keys and values. */
struct canvases {
    float q[TOKENS + 3][STRIDE], k[TOKENS + 3][STRIDE], v[TOKENS + 3][STRIDE];
    float y[TOKENS + 3][STRIDE], full[TOKENS + 3][STRIDE];
    uint32_t pool[WORDS], other[WORDS];
    int32_t start[3], rest[2], keep[2], keep_rest[2];
    int64_t cache_start[2];
};

static void canvases_init(struct canvases *c, uint64_t seed) {
    struct rng rng = rng_stream(seed, "canvases");
    *c = (struct canvases){.start = {3, 16, 53},
                           .rest = {1, 6},
                           .keep = {2, 4},
                           .keep_rest = {2, 1},
                           .cache_start = {8, 64}};
    float *const all[] = {&c->q[0][0], &c->k[0][0], &c->v[0][0]};
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < (TOKENS + 3) * STRIDE; i++) {
            all[a][i] = (float)(4 * rng_uniform(&rng) - 2);
        }
    }
    memset(c->pool, 0xaa, sizeof c->pool);
    memset(c->other, 0xaa, sizeof c->other);
}

static struct call_pattern choice(struct canvases *c, uint32_t *pool) {
    return (struct call_pattern){.q = c->q,
                                 .k = c->k,
                                 .start = c->start,
                                 .rest = c->rest,
                                 .keep = c->keep,
                                 .keep_rest = c->keep_rest,
                                 .cache_start = c->cache_start,
                                 .cache = pool,
                                 .q_stride = STRIDE,
                                 .kv_stride = STRIDE,
                                 .n_requests = 2,
                                 .n_heads = HEADS,
                                 .n_kv_heads = 1,
                                 .head_size = SIZE,
                                 .block_tokens = BLOCK,
                                 .max_tokens = 37,
                                 .scale = 0.5f,
                                 .dtype = KERNEL_F32};
}

static struct call_pattern_attention attention(struct canvases *c) {
    return (struct call_pattern_attention){.q = c->q,
                                           .k = c->k,
                                           .v = c->v,
                                           .cache = c->pool,
                                           .y = c->y,
                                           .start = c->start,
                                           .cache_start = c->cache_start,
                                           .q_stride = STRIDE,
                                           .kv_stride = STRIDE,
                                           .y_stride = STRIDE,
                                           .n_requests = 2,
                                           .n_tokens = TOKENS + 3,
                                           .n_heads = HEADS,
                                           .n_kv_heads = 1,
                                           .head_size = SIZE,
                                           .block_tokens = BLOCK,
                                           .max_tokens = 37,
                                           .dtype = KERNEL_F32};
}

static const struct device_table *const table = &device_cpu;
static struct device *device;

static void open_cpu(void) {
    char why[DEVICE_TEXT_CHARS];
    ck_assert_int_eq(table->open(0, KERNEL_F32, &device, why), DEVICE_OK);
}

static const uint32_t *words(const struct canvases *c, int r, int head, int block) {
    const int n_blocks = pattern_n_blocks(c->start[r + 1] - c->start[r], BLOCK);
    return pattern_words_of((void *)c->pool, 4, c->cache_start[r], n_blocks, head, block);
}

/* Every block's share of one head's attention, as the definition has it. */
static void shares_of(const struct canvases *c, int r, int head, int block, int from,
                      double *shares) {
    const int first = c->start[r], n = c->start[r + 1] - first;
    for (int t = block * BLOCK; t < n && t < (block + 1) * BLOCK; t++) {
        double p[TOKENS], sum = 0;
        for (int j = from * BLOCK; j < n; j++) {
            double score = 0;
            for (int d = 0; d < SIZE; d++) {
                score += (double)c->q[first + t][head * SIZE + d] * (double)c->k[first + j][d];
            }
            p[j] = exp(0.5 * score);
            sum += p[j];
        }
        for (int j = from * BLOCK; j < n; j++) {
            shares[j / BLOCK] += p[j] / sum;
        }
    }
}

static int n_larger(const double *shares, int from, int n, int block) {
    int larger = 0;
    for (int b = from; b < n; b++) {
        larger += shares[b] > shares[block];
    }
    return larger;
}

TEST(the_blocks_with_the_largest_shares_are_kept_the_outputs_among_themselves) {
    static struct canvases c;
    canvases_init(&c, 5);
    const struct call_pattern call = choice(&c, c.pool);
    ck_assert(ref_pattern(&call));
    for (int r = 0; r < 2; r++) {
        const int n = pattern_n_blocks(c.start[r + 1] - c.start[r], BLOCK);
        for (int at = 0; at < HEADS * n; at++) {
            double all[TOKENS] = {0}, output[TOKENS] = {0};
            shares_of(&c, r, at / n, at % n, 0, all);
            shares_of(&c, r, at / n, at % n, c.rest[r], output);
            for (int b = 0; b < 32; b++) {
                const bool kept = b >= n ? false
                                  : b < c.rest[r]
                                      ? n_larger(all, 0, n, b) < c.keep[r]
                                      : n_larger(output, c.rest[r], n, b) < c.keep_rest[r];
                ck_assert_int_eq(pattern_has(words(&c, r, at / n, at % n), b), kept);
            }
        }
    }
    for (int w = 0; w < 8; w++) { /* what lies before the stores stays */
        ck_assert_uint_eq(c.pool[w], 0xaaaaaaaa);
    }
}

TEST(equal_shares_keep_the_earlier_block) {
    const double shares[40] = {[3] = 1, [7] = 2, [8] = 2, [33] = 2};
    uint32_t kept[2] = {0};
    ref_pattern_keep(shares, 40, 2, 0, kept);
    ck_assert_uint_eq(kept[0], 1u << 7 | 1u << 8);
    ck_assert_uint_eq(kept[1], 0);
    ref_pattern_keep(shares, 40, 5, 0, kept);
    ck_assert_uint_eq(kept[0], 1u << 7 | 1u << 8 | 1u << 3 | 1u);
    ck_assert_uint_eq(kept[1], 2);
    kept[0] = kept[1] = 0;
    ref_pattern_keep(shares, 40, 1, 24, kept);
    ck_assert_uint_eq(kept[0], 1u << 31);
}

TEST(the_cpu_chooses_and_attends_as_the_reference) {
    static struct canvases c;
    open_cpu();
    for (uint64_t seed = 0; seed < 5; seed++) {
        canvases_init(&c, seed);
        struct call_pattern call = choice(&c, c.other);
        ck_assert(ref_pattern(&call));
        call.cache = c.pool;
        ck_assert_int_eq(table->pattern(device, &call), DEVICE_OK);
        ck_assert_mem_eq(c.pool, c.other, sizeof c.pool);
        struct call_pattern_attention sparse = attention(&c);
        ck_assert_int_eq(table->pattern_attention(device, &sparse), DEVICE_OK);
        sparse.y = c.full;
        ck_assert(ref_pattern_attention(&sparse));
        for (int t = 3; t < TOKENS + 3; t++) {
            for (int d = 0; d < HEADS * SIZE; d++) {
                ck_assert_float_eq_tol(c.y[t][d], c.full[t][d], 1e-5f);
            }
        }
    }
    table->close(device);
}

TEST(a_pattern_of_all_blocks_is_full_attention) {
    static struct canvases c;
    canvases_init(&c, 9);
    open_cpu();
    memset(c.pool, 0xff, sizeof c.pool);
    const struct call_pattern_attention sparse = attention(&c);
    const struct call_dense_attention dense = {.q = c.q,
                                               .k = c.k,
                                               .v = c.v,
                                               .y = c.full,
                                               .start = c.start,
                                               .q_stride = STRIDE,
                                               .kv_stride = STRIDE,
                                               .y_stride = STRIDE,
                                               .n_requests = 2,
                                               .n_tokens = TOKENS + 3,
                                               .n_heads = HEADS,
                                               .n_kv_heads = 1,
                                               .head_size = SIZE,
                                               .max_tokens = 37,
                                               .dtype = KERNEL_F32};
    ck_assert_int_eq(table->pattern_attention(device, &sparse), DEVICE_OK);
    ck_assert_int_eq(table->dense_attention(device, &dense), DEVICE_OK);
    ck_assert_mem_eq(c.y, c.full, sizeof c.y);
    table->close(device);
}

TEST(a_pattern_of_too_many_blocks_is_refused) {
    static struct canvases c;
    canvases_init(&c, 1);
    open_cpu();
    struct call_pattern call = choice(&c, c.pool);
    struct call_pattern_attention sparse = attention(&c);
    call.max_tokens = sparse.max_tokens = PATTERN_MAX_BLOCKS * BLOCK + 1;
    ck_assert_int_eq(table->pattern(device, &call), DEVICE_REFUSED);
    ck_assert_int_eq(table->pattern_attention(device, &sparse), DEVICE_REFUSED);
    call.block_tokens = 0;
    ck_assert_int_eq(table->pattern(device, &call), DEVICE_REFUSED);
    table->close(device);
}

SUITE("patterns")
