/* FP8: the conversion by its definition, rows with scales, and products of them: the CPU's against
 * the reference implementation, and against the same numbers in single precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/device.h"
#include "kernels/fp8.h"
#include "kernels/ref/cpu_blas.h"
#include "kernels/ref/ref.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

static void fill(float *x, int64_t n, const char *stream) {
    struct rng rng = rng_stream(3, stream);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)((2 * rng_uniform(&rng) - 1) * exp(4 * rng_uniform(&rng)));
    }
}

/* ---- numbers ---- */

TEST(codes_are_the_numbers_of_their_definition) {
    for (int code = 0; code < E4M3_CODES; code++) {
        const int exponent = code >> 3 & 15, fraction = code & 7;
        const double size =
            exponent == 0 ? fraction / 8.0 * 0x1p-6 : (1 + fraction / 8.0) * pow(2, exponent - 7);
        const float value = e4m3_to_float((uint8_t)code);
        if ((code & 127) == 127) {
            ck_assert(isnan(value) && e4m3_from_float(value) == code);
            continue;
        }
        ck_assert_double_eq((double)value, code > 127 ? -size : size);
        ck_assert_int_eq(e4m3_from_float(value), code);
    }
}

/* The nearest of all codes, of two as near the one whose last bit is 0. */
static int nearest(double value) {
    int best = 0;
    for (int code = 1; code < 127; code++) {
        const double now = fabs((double)e4m3_to_float((uint8_t)code) - fabs(value));
        const double then = fabs((double)e4m3_to_float((uint8_t)best) - fabs(value));
        best = now < then || (now == then && code % 2 == 0) ? code : best;
    }
    return best | (signbit(value) ? 128 : 0);
}

TEST(rounding_is_to_nearest_ties_to_even_and_what_is_too_large_is_the_largest) {
    for (int code = 0; code < 126; code++) {
        const float low = e4m3_to_float((uint8_t)code), high = e4m3_to_float((uint8_t)(code + 1));
        const float middle = (low + high) / 2,
                    around[] = {nextafterf(middle, 0), middle, nextafterf(middle, 1000)};
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(e4m3_from_float(around[i]), nearest((double)around[i]));
            ck_assert_int_eq(e4m3_from_float(-around[i]), nearest(-(double)around[i]));
        }
    }
    struct rng rng = rng_stream(1, "e4m3");
    for (int i = 0; i < 2000; i++) {
        const float x = (float)((2 * rng_uniform(&rng) - 1) * exp(14 * rng_uniform(&rng) - 8));
        ck_assert_int_eq(e4m3_from_float(x), nearest((double)x));
    }
    ck_assert_int_eq(e4m3_from_float(INFINITY), 126);
    ck_assert_int_eq(e4m3_from_float(-1e9f), 254);
    ck_assert_int_eq(e4m3_from_float(464), 126);
    ck_assert_int_eq(e4m3_from_float(-0.0f), 128);
    ck_assert_int_eq(e4m3_from_float(1e-38f), 0);
}

/* ---- rows ---- */

enum { K = 200, GROUP = 128, ROWS = 5, ROW_BYTES = 256, MEANT = K + 8 /* of a row's bytes */ };

TEST(a_row_has_a_scale_for_each_group_by_its_largest_number) {
    float x[ROWS * K];
    uint8_t rows[ROWS * ROW_BYTES], one[ROW_BYTES];
    fill(x, ROWS * K, "row");
    memset(x + 2 * K, 0, GROUP * sizeof *x); /* a group of zeros, one with a NaN, an infinity */
    x[3 * K + 130] = NAN;
    x[4 * K + 1] = INFINITY;
    const struct call_quantise call = {.x = x,
                                       .y = rows,
                                       .x_stride = K,
                                       .n_rows = ROWS,
                                       .n_channels = K,
                                       .group = GROUP,
                                       .dtype = KERNEL_F32};
    ref_quantise(&call);
    ck_assert_int_eq(fp8_row_bytes(K, GROUP), ROW_BYTES);
    ck_assert_int_eq(fp8_row_bytes(K, K), 256);
    ck_assert_int_eq(fp8_row_bytes(252, 252), 256);
    ck_assert_int_eq(fp8_row_bytes(256, 256), 384);
    for (int t = 0; t < ROWS; t++) {
        const uint8_t *row = rows + t * ROW_BYTES;
        fp8_row_from(one, x + t * K, K, GROUP);
        ck_assert_mem_eq(one, row, MEANT);
        for (int g = 0; t < 3 && g < 2; g++) {
            const int first = g * GROUP, end = g == 0 ? GROUP : K;
            const float most = e4m3_most(x + t * K + first, end - first);
            const float scale = fp8_row_scale(row, K, g);
            ck_assert(scale == (most == 0 ? 1 : most / 448));
            for (int i = first; i < end; i++) {
                /* Half of the last place: 2^-4 of a number, 2^-10 of the scale for the smallest. */
                const float error = fabsf(fp8_row_at(row, K, GROUP, i) - x[t * K + i]);
                ck_assert(error <= fmaxf(fabsf(x[t * K + i]) * 0x1.001p-4f, scale * 0x1.001p-10f));
            }
        }
    }
    ck_assert(isnan(fp8_row_at(rows + 3 * ROW_BYTES, K, GROUP, 130)));
    ck_assert(!isnan(fp8_row_at(rows + 3 * ROW_BYTES, K, GROUP, 129)));
    ck_assert(isnan(fp8_row_at(rows + 4 * ROW_BYTES, K, GROUP, 1)));
}

/* Whatever the numbers' type and whether they are wanted, too. */
TEST(a_norm_quantises_the_numbers_that_it_would_write) {
    float x[ROWS * K], weight[K], y[ROWS * K];
    uint8_t rows[ROWS * ROW_BYTES], wanted[sizeof rows];
    for (int i = 0; i < 8; i++) {
        const enum kernel_dtype dtype = i & 1 ? KERNEL_BF16 : KERNEL_F32;
        fill(x, ROWS * K, "normed");
        fill(weight, K, "weight");
        if (dtype == KERNEL_BF16) {
            for (int j = 0; j < ROWS * K; j++) {
                ((uint16_t *)(void *)x)[j] = bf16_from_float(x[j]);
            }
            for (int j = 0; j < K; j++) {
                ((uint16_t *)(void *)weight)[j] = bf16_from_float(weight[j]);
            }
        }
        struct call_norm call =
            MAKE(struct call_norm, .x = x, .weight = weight, .y = y, .n_rows = ROWS,
                 .n_channels = K, .epsilon = 1e-5f, .dtype = dtype, .group = i & 2 ? K : GROUP);
        ref_norm(&call);
        const struct call_quantise apart =
            MAKE(struct call_quantise, .x = y, .y = wanted, .x_stride = K, .n_rows = ROWS,
                 .n_channels = K, .group = call.group, .dtype = dtype);
        memset(wanted, 0, sizeof wanted);
        memset(rows, 0, sizeof rows);
        ref_quantise(&apart);
        call.codes = rows;
        call.y = i & 4 ? NULL : y;
        ref_norm(&call);
        ck_assert_mem_eq(rows, wanted, sizeof rows);
    }
}

/* ---- products ---- */

enum { N = 300, C = 264, TOKENS = 19, EXPERTS = 3, ACTIVE = 2 };

/* Weights of EXPERTS matrices of N rows in fp8 and expanded, and inputs in fp8 and expanded. */
struct numbers {
    uint8_t codes[EXPERTS * N * C];
    float scales[EXPERTS * N * 3];
    float wide[EXPERTS * N * C];
    float x[TOKENS * ACTIVE * C], x_wide[TOKENS * ACTIVE * C];
    uint8_t rows[TOKENS * ACTIVE * (C + 120)]; /* fp8_row_bytes */
    struct call_fp8 fp8;
};

static struct numbers *make_numbers(bool by_channel, bool x_too) {
    struct numbers *m = calloc(1, sizeof *m);
    ck_assert_ptr_nonnull(m);
    const int w_rows = by_channel ? 1 : 128, group = by_channel ? C : 128;
    const int high = (N + w_rows - 1) / w_rows, across = (C + group - 1) / group;
    fill(m->scales, (int64_t)EXPERTS * high * across, "scales");
    struct rng rng = rng_stream(2, "codes");
    for (int e = 0; e < EXPERTS; e++) {
        for (int o = 0; o < N; o++) {
            for (int c = 0; c < C; c++) {
                const int at = (e * N + o) * C + c;
                m->codes[at] = (uint8_t)(rng_uniform(&rng) * 256);
                m->codes[at] = (m->codes[at] & 127) == 127 ? 8 : m->codes[at];
                m->wide[at] = e4m3_to_float(m->codes[at]) *
                              m->scales[(e * high + o / w_rows) * across + c / group];
            }
        }
    }
    fill(m->x, (int64_t)TOKENS * ACTIVE * C, "inputs");
    memcpy(m->x_wide, m->x, sizeof m->x);
    const int64_t bytes = fp8_row_bytes(C, group);
    for (int t = 0; x_too && t < TOKENS * ACTIVE; t++) {
        fp8_row_from(m->rows + t * bytes, m->x + t * C, C, group);
        for (int c = 0; c < C; c++) {
            m->x_wide[t * C + c] = fp8_row_at(m->rows + t * bytes, C, group, c);
        }
    }
    m->fp8 = (struct call_fp8){m->scales, w_rows, group, x_too};
    return m;
}

static struct device *open_device(void) {
    struct device *device = NULL;
    char text[DEVICE_TEXT_CHARS];
    ck_assert_msg(device_cpu.open(0, KERNEL_F32, &device, text) == DEVICE_OK, "%s", text);
    return device;
}

/* As far as rows sums over `length` terms may be apart. */
static void assert_near(const float *got, const float *want, int n_rows, int n, int length) {
    for (int row = 0; row < n_rows; row++) {
        double apart = 0, size = 0;
        for (int i = row * n; i < (row + 1) * n; i++) {
            apart += pow((double)got[i] - (double)want[i], 2);
            size += pow((double)want[i], 2);
        }
        ck_assert(size > 0);
        ck_assert_double_le(sqrt(apart / size), ref_bound(KERNEL_F32, length));
    }
}

/* The same call on fp8, on the expanded numbers and by the reference implementation; what the first
 * two give is the same bits. */
#define TRY(kernel, call, n_rows, n, length)                                                       \
    do {                                                                                           \
        static float narrow[TOKENS * ACTIVE * N], wide[TOKENS * ACTIVE * N];                       \
        static float reference[TOKENS * ACTIVE * N];                                               \
        (call).y = narrow;                                                                         \
        ck_assert_int_eq(device_cpu.kernel(device, &(call)), DEVICE_OK);                           \
        (call).y = reference;                                                                      \
        ref_##kernel(&(call));                                                                     \
        (call).y = wide;                                                                           \
        (call).x = m->x_wide;                                                                      \
        (call).w = m->wide + (int64_t)first * C;                                                   \
        SET_WIDE(call);                                                                            \
        ck_assert_int_eq(device_cpu.kernel(device, &(call)), DEVICE_OK);                           \
        ck_assert_mem_eq(narrow, wide, sizeof narrow);                                             \
        assert_near(narrow, reference, n_rows, n, length);                                         \
    } while (0)

#define FOR_FORMS(m)                                                                               \
    for (int form = 0; form < 4; form++)                                                           \
        for (struct numbers *m = make_numbers(form & 1, form & 2); m != NULL; free(m), m = NULL)

static int64_t stride_of(const struct numbers *m) {
    return m->fp8.x_too ? fp8_row_bytes(C, m->fp8.w_columns) : C;
}

static const void *inputs_of(const struct numbers *m) {
    return m->fp8.x_too ? (const void *)m->rows : (const void *)m->x;
}

#define SET_WIDE(call) ((call).x_stride = C, (call).fp8 = (struct call_fp8){.w_scale = NULL})

TEST(a_product_in_fp8_is_that_of_the_expanded_numbers) {
    struct device *device = open_device();
    FOR_FORMS(m) {
        for (int first = 0; first < N; first += 70) { /* some rows of the matrix, or all */
            struct call_linear call = {.x = inputs_of(m),
                                       .w = m->codes + first * C,
                                       .x_stride = stride_of(m),
                                       .y_stride = N - first,
                                       .n_tokens = TOKENS,
                                       .n_outputs = N - first,
                                       .n_inputs = C,
                                       .outputs_before = first,
                                       .dtype = KERNEL_F32,
                                       .fp8 = m->fp8};
            TRY(linear, call, TOKENS, N - first, C);
        }
    }
    device_cpu.close(device);
}

TEST(gates_and_ups_in_fp8_are_those_of_the_expanded_numbers) {
    struct device *device = open_device();
    const int first = 0;
    FOR_FORMS(m) {
        struct call_gate_up call = {.x = inputs_of(m),
                                    .w = m->codes,
                                    .x_stride = stride_of(m),
                                    .y_stride = N / 2,
                                    .n_tokens = TOKENS,
                                    .n_channels = C,
                                    .n_hidden = N / 2,
                                    .dtype = KERNEL_F32,
                                    .fp8 = m->fp8};
        TRY(gate_up, call, TOKENS, N / 2, 8 * C); /* gates' errors grow with what they gate */
    }
    device_cpu.close(device);
}

/* Token t goes to experts t mod 3 and the next; expert 0 comes first. */
static void sort_pairs(int32_t *start, int32_t *order) {
    int n = 0;
    for (int e = 0; e < EXPERTS; e++) {
        start[e] = n;
        for (int pair = 0; pair < TOKENS * ACTIVE; pair++) {
            if ((pair / ACTIVE + pair % ACTIVE) % EXPERTS == e) {
                order[n++] = pair;
            }
        }
    }
    start[EXPERTS] = n;
}

TEST(experts_in_fp8_are_those_of_the_expanded_numbers) {
    struct device *device = open_device();
    int32_t start[EXPERTS + 1], order[TOKENS * ACTIVE];
    const int first = 0;
    sort_pairs(start, order);
    FOR_FORMS(m) {
        struct call_moe_gate_up up = {.x = inputs_of(m),
                                      .w = m->codes,
                                      .start = start,
                                      .order = order,
                                      .x_stride = stride_of(m),
                                      .n_tokens = TOKENS,
                                      .n_active = ACTIVE,
                                      .n_experts = EXPERTS,
                                      .n_channels = C,
                                      .n_hidden = N / 2,
                                      .dtype = KERNEL_F32,
                                      .fp8 = m->fp8};
        TRY(moe_gate_up, up, TOKENS * ACTIVE, N / 2, 8 * C);
#undef SET_WIDE
#define SET_WIDE(call) ((call).fp8 = (struct call_fp8){.w_scale = NULL})
        struct call_moe_down down = {.x = inputs_of(m),
                                     .w = m->codes,
                                     .start = start,
                                     .n_tokens = TOKENS,
                                     .n_active = ACTIVE,
                                     .n_experts = EXPERTS,
                                     .n_channels = N,
                                     .n_hidden = C,
                                     .dtype = KERNEL_F32,
                                     .fp8 = m->fp8};
        TRY(moe_down, down, TOKENS * ACTIVE, N, C);
    }
    device_cpu.close(device);
}

TEST(a_head_in_fp8_decides_as_one_of_the_expanded_numbers) {
    struct device *device = open_device();
    static float scratch[HEAD_SCRATCH_BYTES / sizeof(float)];
    FOR_FORMS(m) {
        int32_t token[3][TOKENS];
        float confidence[3][TOKENS];
        for (int i = 0; i < 3; i++) {
            struct call_head call = {.x = i == 1 ? m->x_wide : inputs_of(m),
                                     .w = i == 1 ? (const void *)m->wide : (const void *)m->codes,
                                     .token = token[i],
                                     .confidence = confidence[i],
                                     .scratch = scratch,
                                     .n_rows = TOKENS,
                                     .n_channels = C,
                                     .n_vocab = N,
                                     .dtype = KERNEL_F32};
            if (i != 1) {
                call.fp8 = m->fp8;
            }
            ck_assert(i == 2 ? ref_head(&call) : device_cpu.head(device, &call) == DEVICE_OK);
        }
        ck_assert_mem_eq(token[0], token[1], sizeof token[0]);
        ck_assert_mem_eq(confidence[0], confidence[1], sizeof confidence[0]);
        ck_assert_mem_eq(token[0], token[2], sizeof token[0]);
    }
    device_cpu.close(device);
}

/* A row's bits are the same whatever else is in the call, and on the bf16 device the product is the
 * reference implementation's. */
TEST(a_row_of_a_product_in_fp8_does_not_depend_on_the_others) {
    struct device *device = open_device();
    FOR_FORMS(m) {
        static float all[TOKENS * N], one[N];
        struct call_linear call = {.x = inputs_of(m),
                                   .w = m->codes,
                                   .y = all,
                                   .x_stride = stride_of(m),
                                   .y_stride = N,
                                   .n_tokens = TOKENS,
                                   .n_outputs = N,
                                   .n_inputs = C,
                                   .dtype = KERNEL_F32,
                                   .fp8 = m->fp8};
        ck_assert_int_eq(device_cpu.linear(device, &call), DEVICE_OK);
        call.y = one;
        call.n_tokens = 1;
        for (int t = 0; t < TOKENS; t++) {
            const int64_t bytes = m->fp8.x_too ? 1 : (int64_t)sizeof(float);
            call.x = (const unsigned char *)inputs_of(m) + t * call.x_stride * bytes;
            ck_assert_int_eq(device_cpu.linear(device, &call), DEVICE_OK);
            ck_assert_mem_eq(one, all + t * N, sizeof one);
        }
    }
    device_cpu.close(device);
}

/* ---- cached rows ---- */

enum { HEADS = 4, KV = 2, D = 160, TOTAL = 9, KEPT = 6, WIDE = D + 8, PAGE = 4 };

/* Keys and values of TOTAL tokens, queries, and what is cached of the first KEPT of them. */
static float q[TOTAL][HEADS][D], k[TOTAL][KV][D], v[TOTAL][KV][D];
static uint8_t narrow[2 * KV * KEPT * WIDE];
static float expanded[2 * KV][KEPT][D];

/* The numbers of a cached head. */
static void expand_head(float *to, const uint8_t *from, struct fp8_place place) {
    for (int d = 0; d < D; d++) {
        to[d] = e4m3_to_float(from[place.codes + d]) *
                fp8_scale_at(from + place.scales, d / FP8_HEAD_GROUP);
    }
}

/* A cached head is what these numbers are as a row. */
static void assert_head(const uint8_t *cached, struct fp8_place place, const float *numbers) {
    uint8_t want[WIDE];
    fp8_row_from(want, numbers, D, FP8_HEAD_GROUP);
    ck_assert_mem_eq(cached + place.codes, want, D);
    ck_assert_mem_eq(cached + place.scales, want + D, WIDE - D);
}

static void put_head(uint8_t *cached, struct fp8_place place, const float *numbers) {
    uint8_t row[WIDE];
    fp8_row_from(row, numbers, D, FP8_HEAD_GROUP);
    memcpy(cached + place.codes, row, D);
    memcpy(cached + place.scales, row + D, WIDE - D);
}

static void fill_heads(void) {
    fill(&q[0][0][0], TOTAL * HEADS * D, "q");
    fill(&k[0][0][0], TOTAL * KV * D, "k");
    fill(&v[0][0][0], TOTAL * KV * D, "v");
}

TEST(cached_rows_in_fp8_are_attended_to_as_the_numbers_that_they_are) {
    const int32_t all[2] = {0, TOTAL}, start[2] = {0, TOTAL - KEPT}, owner[TOTAL] = {0},
                  rows[TOTAL] = {0, 1, 2, 3, 4, 5, -1, -1, -1}, kept[1] = {KEPT};
    const int64_t cache_start[1] = {0};
    static float y[3][TOTAL - KEPT][HEADS][D];
    struct device *device = open_device();
    fill_heads();
    ck_assert_int_eq(fp8_head_elements(D, true), WIDE);
    const struct call_keep keep = {.k = k,
                                   .v = v,
                                   .start = all,
                                   .owner = owner,
                                   .kv_rows = rows,
                                   .kept = kept,
                                   .cache_start = cache_start,
                                   .cache = narrow,
                                   .kv_stride = KV * D,
                                   .n_requests = 1,
                                   .n_tokens = TOTAL,
                                   .n_kv_heads = KV,
                                   .head_size = D,
                                   .cache_fp8 = true,
                                   .dtype = KERNEL_F32};
    ref_keep(&keep);
    for (int row = 0; row < KEPT; row++) {
        for (int head = 0; head < KV; head++) {
            for (int of = 0; of < 2; of++) {
                const struct fp8_place place = fp8_packed(KV, KEPT, D, of * KV + head, row);
                assert_head(narrow, place, of == 0 ? k[row][head] : v[row][head]);
                expand_head(expanded[of * KV + head][row], narrow, place);
            }
        }
    }
    for (int own_cached = 0; own_cached < 2; own_cached++) {
        for (int i = 0; i < 3; i++) {
            const struct call_block_attention call = {.q = q[KEPT],
                                                      .k = k[KEPT],
                                                      .v = v[KEPT],
                                                      .cache = i == 1 ? (const void *)expanded
                                                                      : (const void *)narrow,
                                                      .y = y[i],
                                                      .start = start,
                                                      .kept = kept,
                                                      .cache_start = cache_start,
                                                      .q_stride = HEADS * D,
                                                      .kv_stride = KV * D,
                                                      .y_stride = HEADS * D,
                                                      .n_requests = 1,
                                                      .n_heads = HEADS,
                                                      .n_kv_heads = KV,
                                                      .head_size = D,
                                                      .max_queries = TOTAL - KEPT,
                                                      .own_cached = own_cached,
                                                      .cache_fp8 = i != 1,
                                                      .dtype = KERNEL_F32};
            ck_assert(i == 2 ? ref_block_attention(&call)
                             : device_cpu.block_attention(device, &call) == DEVICE_OK);
        }
        ck_assert_mem_eq(y[0], y[1], sizeof y[0]);
        assert_near(&y[0][0][0][0], &y[2][0][0][0], TOTAL - KEPT, HEADS * D, 4 * D);
    }
    device_cpu.close(device);
}

/* Rows of a pool of pages: token t's is row 4 (t / 4 swapped with its neighbour) + t mod 4. */
TEST(pages_in_fp8_are_attended_to_as_the_numbers_that_they_are) {
    enum { PAGES = 4 };
    static uint8_t pool[2][PAGES * PAGE][KV * WIDE];
    static float wide[2][PAGES * PAGE][KV][D], y[3][TOTAL][HEADS][D];
    const int32_t start[2] = {0, TOTAL}, pages[PAGES] = {1, 0, 3, 2};
    int32_t extent[TOTAL];
    struct device *device = open_device();
    fill_heads();
    for (int t = 0; t < TOTAL; t++) {
        const int row = pages[t / PAGE] * PAGE + t % PAGE;
        extent[t] = t + 1;
        for (int head = 0; head < KV; head++) {
            for (int of = 0; of < 2; of++) {
                const struct fp8_place place = fp8_paged(KV, D, head);
                put_head(pool[of][row], place, of == 0 ? k[t][head] : v[t][head]);
                expand_head(wide[of][row][head], pool[of][row], place);
            }
        }
    }
    for (int i = 0; i < 3; i++) {
        const struct call_paged_attention call = {
            .q = q,
            .k = i == 1 ? (const void *)wide[0] : (const void *)pool[0],
            .v = i == 1 ? (const void *)wide[1] : (const void *)pool[1],
            .y = y[i],
            .start = start,
            .extent = extent,
            .pages = pages,
            .q_stride = HEADS * D,
            .kv_stride = KV * (i == 1 ? D : WIDE),
            .y_stride = HEADS * D,
            .n_requests = 1,
            .n_tokens = TOTAL,
            .n_heads = HEADS,
            .n_kv_heads = KV,
            .head_size = D,
            .max_pages = PAGES,
            .page_rows = PAGE,
            .max_queries = TOTAL,
            .max_extent = PAGES * PAGE,
            .cache_fp8 = i != 1,
            .dtype = KERNEL_F32};
        ck_assert(i == 2 ? ref_paged_attention(&call)
                         : device_cpu.paged_attention(device, &call) == DEVICE_OK);
    }
    ck_assert_mem_eq(y[0], y[1], sizeof y[0]);
    assert_near(&y[0][0][0][0], &y[2][0][0][0], TOTAL, HEADS * D, 4 * D);
    device_cpu.close(device);
}

/* Keys are quantised after they were rotated, in single precision. */
TEST(rotated_keys_and_values_are_cached_in_fp8) {
    enum { T = 3, ROWS_OF_POOL = 4 };
    static float qkv[T][HEADS + 2 * KV][D], cos_sin[16 * D], queries[2][T][HEADS][D];
    static float wide[2][ROWS_OF_POOL][KV][D], k_norm[D];
    static uint8_t cached[2][ROWS_OF_POOL][KV * WIDE];
    const int32_t positions[T] = {3, 9, 1}, rows[T] = {2, -1, 0};
    fill(&qkv[0][0][0], sizeof qkv / sizeof(float), "qkv");
    fill(k_norm, D, "k norm");
    for (int rotary = D; rotary >= 64; rotary -= D - 64) {
        ref_cos_sin(cos_sin, 16, rotary, 10000);
        for (int fp8 = 0; fp8 < 2; fp8++) {
            const struct call_rope call = {.qkv = qkv,
                                           .k_norm = k_norm,
                                           .cos_sin = cos_sin,
                                           .positions = positions,
                                           .kv_rows = rows,
                                           .q = queries[fp8],
                                           .k = fp8 ? (void *)cached[0] : (void *)wide[0],
                                           .v = fp8 ? (void *)cached[1] : (void *)wide[1],
                                           .q_stride = HEADS * D,
                                           .kv_stride = KV * (fp8 ? WIDE : D),
                                           .n_tokens = T,
                                           .n_heads = HEADS,
                                           .n_kv_heads = KV,
                                           .head_size = D,
                                           .rotary_size = rotary,
                                           .epsilon = 1e-5f,
                                           .kv_fp8 = fp8,
                                           .dtype = KERNEL_F32};
            ref_rope(&call);
        }
        ck_assert_mem_eq(queries[0], queries[1], sizeof queries[0]);
        for (int t = 0; t < T; t += 2) {
            for (int i = 0; i < 2 * KV; i++) {
                assert_head(cached[i % 2][rows[t]], fp8_paged(KV, D, i / 2),
                            wide[i % 2][rows[t]][i / 2]);
            }
        }
    }
}

/* What a selection packs are the rows that keeping the same tokens would. */
TEST(chosen_rows_are_packed_in_fp8) {
    const int32_t start[2] = {0, TOTAL}, block_start[1] = {2}, block_end[1] = {4}, kept[1] = {3};
    const int64_t cache_start[1] = {0}, score_start[1] = {0};
    static uint8_t packed[2 * KV * 3 * WIDE];
    float scores[KV * TOTAL];
    int32_t indices[KV * TOTAL];
    fill_heads();
    const struct call_select call = {.q = q,
                                     .k = k,
                                     .v = v,
                                     .start = start,
                                     .block_start = block_start,
                                     .block_end = block_end,
                                     .kept = kept,
                                     .cache_start = cache_start,
                                     .score_start = score_start,
                                     .cache = packed,
                                     .scores = scores,
                                     .indices = indices,
                                     .q_stride = HEADS * D,
                                     .kv_stride = KV * D,
                                     .n_requests = 1,
                                     .n_heads = HEADS,
                                     .n_kv_heads = KV,
                                     .head_size = D,
                                     .max_candidates = TOTAL,
                                     .cache_fp8 = true,
                                     .dtype = KERNEL_F32};
    struct device *device = open_device();
    ck_assert_int_eq(device_cpu.select(device, &call), DEVICE_OK);
    device_cpu.close(device);
    for (int head = 0; head < KV; head++) {
        for (int i = 0; i < 3; i++) {
            const int token = indices[head * (TOTAL - 2) + i];
            assert_head(packed, fp8_packed(KV, 3, D, head, i), k[token][head]);
            assert_head(packed, fp8_packed(KV, 3, D, KV + head, i), v[token][head]);
        }
    }
}

SUITE("fp8")
