/* The kernels' reference implementations against formulas written down independently, on the CPU.
 */
#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/keyed.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

static void fill(float *x, int n, const char *stream) {
    struct rng rng = rng_stream(5, stream);
    for (int i = 0; i < n; i++) {
        x[i] = (float)(2 * rng_uniform(&rng) - 1);
    }
}

TEST(bf16_rounds_to_nearest_even_and_keeps_nan) {
    ck_assert_uint_eq(bf16_from_float(1.0f), 0x3f80);
    ck_assert_uint_eq(bf16_from_float(1.00390625f), 0x3f80); /* half an ulp above 1: to even */
    ck_assert_uint_eq(bf16_from_float(1.01171875f), 0x3f82); /* half an ulp above an odd one */
    ck_assert_uint_eq(bf16_from_float(-INFINITY), 0xff80);
    ck_assert(isnan(bf16_to_float(bf16_from_float(NAN))));
    for (uint32_t bits = 0; bits < 0x7f80; bits++) {
        ck_assert_uint_eq(bf16_from_float(bf16_to_float((uint16_t)bits)), bits);
    }
}

TEST(an_unknown_token_embeds_as_nan) {
    float table[3][2] = {{1, 2}, {3, 4}, {5, 6}}, y[3][2];
    int32_t ids[3] = {2, 3, -1};
    struct call_embed call = {table, ids, NULL, y, 3, 2, 3, KERNEL_F32};
    ref_embed(&call);
    ck_assert(y[0][0] == 5 && y[0][1] == 6);
    ck_assert(isnan(y[1][0]) && isnan(y[1][1]) && isnan(y[2][0]));
}

TEST(embedding_reads_token_ids_where_it_is_told) {
    float table[3][2] = {{1, 2}, {3, 4}, {5, 6}}, y[2][2];
    int32_t canvas[5] = {0, 1, 2, 0, 7};
    int64_t at[2] = {2, 4};
    struct call_embed call = {table, canvas, at, y, 2, 2, 3, KERNEL_F32};
    ref_embed(&call);
    ck_assert(y[0][0] == 5 && y[0][1] == 6 && isnan(y[1][0]));
}

TEST(a_product_adds_before_it_rounds_once) {
    float x[2][3] = {{1, 2, 99}, {3, 4, 99}}, w[2][2] = {{1, 1}, {2, -1}};
    float y[2][3] = {{100, 200, -5}, {300, 400, -5}};
    struct call_linear call = {.x = x,
                               .w = w,
                               .add = y,
                               .y = y,
                               .x_stride = 3,
                               .y_stride = 3,
                               .n_tokens = 2,
                               .n_outputs = 2,
                               .n_inputs = 2,
                               .dtype = KERNEL_F32};
    ref_linear(&call);
    const float added[2][3] = {{103, 200, -5}, {307, 402, -5}};
    ck_assert_mem_eq(y, added, sizeof y);
    call.add = NULL;
    ref_linear(&call);
    const float plain[2][3] = {{3, 0, -5}, {7, 2, -5}};
    ck_assert_mem_eq(y, plain, sizeof y);
    /* 1 + 2^-8 lies between two bf16: rounded before the addition, the 2^-8 would be lost. */
    uint16_t one[2] = {bf16_from_float(1), bf16_from_float(0x1p-4f)}, add[1], z[1];
    add[0] = bf16_from_float(-1);
    struct call_linear round = {.x = one,
                                .w = one,
                                .add = add,
                                .y = z,
                                .x_stride = 2,
                                .y_stride = 1,
                                .n_tokens = 1,
                                .n_outputs = 1,
                                .n_inputs = 2,
                                .dtype = KERNEL_BF16};
    ref_linear(&round);
    ck_assert_float_eq(bf16_to_float(z[0]), 0x1p-8f);
}

TEST(a_sum_may_be_written_over_an_addend) {
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
    struct call_add call = {a, b, b, 3, KERNEL_F32};
    ref_add(&call);
    ck_assert(b[0] == 11 && b[1] == 22 && b[2] == 33);
}

/* Two requests of one and two tokens; a third token that is kept nowhere. */
TEST(kept_tokens_go_to_their_rows_keys_before_values) {
    enum { SIZE = 2, HEADS = 2 };
    float k[4][HEADS][SIZE], v[4][HEADS][SIZE], cache[8 + 16 + 16];
    fill(&k[0][0][0], 4 * HEADS * SIZE, "k");
    fill(&v[0][0][0], 4 * HEADS * SIZE, "v");
    for (int i = 0; i < 40; i++) {
        cache[i] = 7;
    }
    int32_t start[3] = {0, 1, 4}, owner[4] = {0, 1, 1, 1}, rows[4] = {0, 1, -1, 0},
            kept[2] = {1, 2};
    int64_t cache_start[2] = {24, 8};
    struct call_keep call = {k, v, start, owner, rows,  kept,      cache_start, cache, HEADS * SIZE,
                             2, 4, HEADS, SIZE,  false, KERNEL_F32};
    ref_keep(&call);
    for (int h = 0; h < HEADS; h++) {
        ck_assert_mem_eq(cache + 24 + h * SIZE, k[0][h], sizeof k[0][h]);
        ck_assert_mem_eq(cache + 28 + h * SIZE, v[0][h], sizeof v[0][h]);
        ck_assert_mem_eq(cache + 8 + (h * 2 + 1) * SIZE, k[1][h], sizeof k[0][h]);
        ck_assert_mem_eq(cache + 8 + (h * 2 + 0) * SIZE, k[3][h], sizeof k[0][h]);
        ck_assert_mem_eq(cache + 16 + (h * 2 + 1) * SIZE, v[1][h], sizeof v[0][h]);
        ck_assert_mem_eq(cache + 16 + (h * 2 + 0) * SIZE, v[3][h], sizeof v[0][h]);
    }
    for (int i = 0; i < 8; i++) {
        ck_assert(cache[i] == 7 && cache[32 + i] == 7);
    }
}

TEST(keyed_numbers_are_uniform_and_independent_of_their_neighbours) {
    enum { N = 100000, BINS = 16 };
    int bins[BINS] = {0};
    double product = 0, across = 0;
    for (uint64_t i = 0; i < N; i++) {
        const double u = uniform_keyed(42, i);
        ck_assert(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
        product += (u - 0.5) * (uniform_keyed(42, i + 1) - 0.5);
        across += (u - 0.5) * (uniform_keyed(43, i) - 0.5);
    }
    double chi_squared = 0;
    for (int i = 0; i < BINS; i++) {
        chi_squared += pow(bins[i] - (double)N / BINS, 2) / ((double)N / BINS);
    }
    ck_assert_double_lt(chi_squared, 37.7); /* 15 degrees of freedom, 0.1 % */
    /* The mean of N products of independent centred uniforms: deviation 1 / (12 sqrt N). */
    ck_assert_double_lt(fabs(product / N), 4 / (12 * sqrt(N)));
    ck_assert_double_lt(fabs(across / N), 4 / (12 * sqrt(N)));
}

TEST(random_arrays_may_be_made_in_pieces) {
    float all[64], part[40];
    struct call_random call = {all, 9, 100, 64, 3, 0.5, KERNEL_F32, 0, 0};
    ref_random(&call);
    for (int i = 0; i < 64; i++) {
        ck_assert(all[i] >= 2.5f && all[i] <= 3.5f);
    }
    call = (struct call_random){part, 9, 124, 40, 3, 0.5, KERNEL_F32, 0, 0};
    ref_random(&call);
    ck_assert_mem_eq(part, all + 24, sizeof part);
    call.key = 10;
    ref_random(&call);
    ck_assert_mem_ne(part, all + 24, sizeof part);
}

TEST(a_norm_adds_scales_and_writes_the_sum_back) {
    float x[2][4] = {{1, 2, 3, 4}, {0, 0, 1, 0}}, residual[2][4] = {{1, 0, -3, 0}, {0, 0, 1, 0}};
    float weight[4] = {1, 2, 1, 0.5f}, y[2][4], gathered[1][4];
    struct call_norm call = MAKE(struct call_norm, .x = x, .weight = weight, .residual = residual,
                                 .y = y, .n_rows = 2, .n_channels = 4, .dtype = KERNEL_F32);
    int32_t rows[1] = {1};
    struct call_norm gather =
        MAKE(struct call_norm, .x = x, .weight = weight, .residual = residual, .rows = rows,
             .y = gathered, .n_rows = 1, .n_channels = 4, .dtype = KERNEL_F32);
    ref_norm(&gather); /* first: it must leave the residual alone */
    ck_assert(residual[1][2] == 1);
    ref_norm(&call);
    const double rms = sqrt((4 + 4 + 0 + 16) / 4.0); /* of 2, 2, 0, 4 */
    ck_assert(residual[0][0] == 2 && residual[0][2] == 0 && residual[1][2] == 2);
    ck_assert_double_eq_tol(y[0][0], 2 / rms, 1e-6);
    ck_assert_double_eq_tol(y[0][1], 4 / rms, 1e-6);
    ck_assert_double_eq_tol(y[0][3], 2 / rms, 1e-6);
    ck_assert_mem_eq(gathered[0], y[1], sizeof y[1]);
}

TEST(swiglu_gates_in_place) {
    float x[1][4] = {{0.5f, -2, 3, 4}};
    struct call_swiglu call = {.gate_up = x, .y = x, .y_stride = 4, .n_tokens = 1, .n_hidden = 2};
    call.dtype = KERNEL_F32;
    ref_swiglu(&call);
    ck_assert_double_eq_tol(x[0][0], 0.5 / (1 + exp(-0.5)) * 3, 1e-6);
    ck_assert_double_eq_tol(x[0][1], -2 / (1 + exp(2.0)) * 4, 1e-6);
    ck_assert(x[0][2] == 3 && x[0][3] == 4);
}

/* Rotation is a complex product; a query rotated at m and a key at n meet at m - n only. */
TEST(rotated_products_depend_on_the_distance_alone) {
    enum { SIZE = 8, POSITIONS = 40 };
    float turns[POSITIONS * SIZE], qkv[2][3 * SIZE], q[2][SIZE], k[2][SIZE], v[2][SIZE];
    ref_cos_sin(turns, POSITIONS, SIZE, 10000);
    fill(qkv[0], 3 * SIZE, "rope");
    memcpy(qkv[1], qkv[0], sizeof qkv[0]);
    double products[2];
    for (int shift = 0; shift < 2; shift++) {
        int32_t positions[2] = {3 + 17 * shift, 9 + 17 * shift};
        struct call_rope call =
            MAKE(struct call_rope, .qkv = qkv, .cos_sin = turns, .positions = positions, .q = q,
                 .k = k, .v = v, .q_stride = SIZE, .kv_stride = SIZE, .n_tokens = 2, .n_heads = 1,
                 .n_kv_heads = 1, .head_size = SIZE, .dtype = KERNEL_F32);
        ref_rope(&call);
        products[shift] = 0;
        for (int d = 0; d < SIZE; d++) {
            products[shift] += (double)q[0][d] * (double)k[1][d];
        }
        ck_assert_mem_eq(v[0], qkv[0] + 2 * SIZE, sizeof v[0]);
    }
    ck_assert_double_eq_tol(products[0], products[1], 1e-5);
    const double angle = 20 * pow(10000, -2.0 / SIZE); /* pair 1 of the first token, at 20 */
    ck_assert_double_eq_tol(q[0][1], qkv[0][1] * cos(angle) - qkv[0][5] * sin(angle), 1e-5);
    ck_assert_double_eq_tol(q[0][5], qkv[0][5] * cos(angle) + qkv[0][1] * sin(angle), 1e-5);
}

TEST(rope_adds_the_bias_before_it_normalises_a_head) {
    enum { SIZE = 4 };
    float turns[SIZE], qkv[3 * SIZE], bias[3 * SIZE], q_norm[SIZE] = {1, 2, 3, 4}, q[SIZE];
    float kv[2][2][SIZE] = {{{0}}};
    int32_t positions[1] = {0}, rows[1] = {1};
    ref_cos_sin(turns, 1, SIZE, 10000); /* position 0 does not turn */
    fill(qkv, 3 * SIZE, "qkv");
    fill(bias, 3 * SIZE, "bias");
    struct call_rope call = {.qkv = qkv,
                             .bias = bias,
                             .q_norm = q_norm,
                             .cos_sin = turns,
                             .positions = positions,
                             .kv_rows = rows,
                             .q = q,
                             .k = kv[0],
                             .v = kv[1],
                             .q_stride = SIZE,
                             .kv_stride = SIZE,
                             .n_tokens = 1,
                             .n_heads = 1,
                             .n_kv_heads = 1,
                             .head_size = SIZE,
                             .epsilon = 0.01f,
                             .dtype = KERNEL_F32};
    ref_rope(&call);
    double squares = 0;
    for (int i = 0; i < SIZE; i++) {
        squares += pow((double)qkv[i] + (double)bias[i], 2);
    }
    for (int i = 0; i < SIZE; i++) {
        const double x = (double)qkv[i] + (double)bias[i];
        ck_assert_double_eq_tol(q[i], x / sqrt(squares / SIZE + 0.01) * (i + 1), 1e-6);
        ck_assert_double_eq_tol(kv[0][1][i], (double)qkv[SIZE + i] + (double)bias[SIZE + i], 1e-6);
    }
    /* A token without a row of keys and values has a query all the same. */
    float before[2][2][SIZE], first[SIZE];
    memcpy(before, kv, sizeof before);
    memcpy(first, q, sizeof first);
    memset(q, 0, sizeof q);
    rows[0] = -1;
    ref_rope(&call);
    ck_assert_mem_eq(kv, before, sizeof kv);
    ck_assert_mem_eq(q, first, sizeof q);
}

TEST(channels_beyond_the_rotary_size_pass_through) {
    enum { SIZE = 8, ROTARY = 4, POSITIONS = 9 };
    float turns[POSITIONS * ROTARY], qkv[3 * SIZE], q[SIZE], k[SIZE], v[SIZE];
    int32_t positions[1] = {7};
    ref_cos_sin(turns, POSITIONS, ROTARY, 10000);
    fill(qkv, 3 * SIZE, "partial");
    const struct call_rope call =
        MAKE(struct call_rope, .qkv = qkv, .cos_sin = turns, .positions = positions, .q = q, .k = k,
             .v = v, .q_stride = SIZE, .kv_stride = SIZE, .n_tokens = 1, .n_heads = 1,
             .n_kv_heads = 1, .head_size = SIZE, .rotary_size = ROTARY, .dtype = KERNEL_F32);
    ref_rope(&call);
    for (int i = 0; i < ROTARY / 2; i++) {
        const double angle = 7 * pow(10000, -2.0 * i / ROTARY);
        const double a = (double)qkv[i], b = (double)qkv[i + ROTARY / 2];
        ck_assert_double_eq_tol(q[i], a * cos(angle) - b * sin(angle), 1e-6);
        ck_assert_double_eq_tol(q[i + ROTARY / 2], b * cos(angle) + a * sin(angle), 1e-6);
    }
    ck_assert_mem_eq(q + ROTARY, qkv + ROTARY, (SIZE - ROTARY) * sizeof q[0]);
    ck_assert_mem_eq(k + ROTARY, qkv + SIZE + ROTARY, (SIZE - ROTARY) * sizeof k[0]);
    ck_assert_mem_eq(v, qkv + 2 * SIZE, sizeof v);
}

TEST(attention_averages_values_by_softmax_within_each_request) {
    enum { SIZE = 4, HEADS = 4, KV_HEADS = 2, TOKENS = 7 };
    float q[TOKENS][HEADS][SIZE], k[TOKENS][KV_HEADS][SIZE], v[TOKENS][KV_HEADS][SIZE];
    float y[TOKENS][HEADS][SIZE];
    int32_t start[3] = {0, 3, TOKENS};
    fill(&q[0][0][0], TOKENS * HEADS * SIZE, "q");
    fill(&k[0][0][0], TOKENS * KV_HEADS * SIZE, "k");
    fill(&v[0][0][0], TOKENS * KV_HEADS * SIZE, "v");
    struct call_dense_attention call = {
        q,        k,    v, y, start, HEADS * SIZE, KV_HEADS * SIZE, HEADS * SIZE, 2, TOKENS, HEADS,
        KV_HEADS, SIZE, 4, 0, 0,     KERNEL_F32};
    ck_assert(ref_dense_attention(&call));
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < HEADS; h++) {
            for (int d = 0; d < SIZE; d++) {
                double above = 0, below = 0;
                for (int j = start[t >= 3]; j < start[1 + (t >= 3)]; j++) {
                    double dot = 0;
                    for (int e = 0; e < SIZE; e++) {
                        dot += (double)q[t][h][e] * (double)k[j][h / 2][e];
                    }
                    above += exp(dot / 2) * (double)v[j][h / 2][d];
                    below += exp(dot / 2);
                }
                ck_assert_double_eq_tol(y[t][h][d], above / below, 1e-6);
            }
        }
    }
}

/* A cache that holds the rest of a request, and the block beside it, are the whole request. */
TEST(block_attention_over_a_full_cache_is_dense_attention) {
    enum { SIZE = 8, HEADS = 4, KV_HEADS = 2, TOKENS = 11, BLOCK = 3 };
    float q[TOKENS][HEADS][SIZE], k[TOKENS][KV_HEADS][SIZE], v[TOKENS][KV_HEADS][SIZE];
    float dense[TOKENS][HEADS][SIZE], block[BLOCK][HEADS][SIZE];
    enum { PART = (TOKENS - BLOCK) * KV_HEADS * SIZE };
    float cache[8 + 2 * PART];
    int32_t all[2] = {0, TOKENS}, fresh[2] = {0, BLOCK}, kept[1] = {TOKENS - BLOCK};
    int64_t cache_start[1] = {8};
    fill(&q[0][0][0], TOKENS * HEADS * SIZE, "q");
    fill(&k[0][0][0], TOKENS * KV_HEADS * SIZE, "k");
    fill(&v[0][0][0], TOKENS * KV_HEADS * SIZE, "v");
    for (int h = 0; h < KV_HEADS; h++) { /* the first tokens are cached, the last are the block */
        for (int t = 0; t < kept[0]; t++) {
            memcpy(cache + 8 + (h * kept[0] + t) * SIZE, k[t][h], sizeof k[t][h]);
            memcpy(cache + 8 + PART + (h * kept[0] + t) * SIZE, v[t][h], sizeof v[t][h]);
        }
    }
    struct call_dense_attention whole = {q,
                                         k,
                                         v,
                                         dense,
                                         all,
                                         HEADS * SIZE,
                                         KV_HEADS * SIZE,
                                         HEADS * SIZE,
                                         1,
                                         TOKENS,
                                         HEADS,
                                         KV_HEADS,
                                         SIZE,
                                         TOKENS,
                                         0,
                                         0,
                                         KERNEL_F32};
    struct call_block_attention part =
        MAKE(struct call_block_attention, .q = q[kept[0]], .k = k[kept[0]], .v = v[kept[0]],
             .cache = cache, .y = block, .start = fresh, .kept = kept, .cache_start = cache_start,
             .q_stride = HEADS * SIZE, .kv_stride = KV_HEADS * SIZE, .y_stride = HEADS * SIZE,
             .n_requests = 1, .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_size = SIZE,
             .max_queries = BLOCK, .dtype = KERNEL_F32);
    ck_assert(ref_dense_attention(&whole) && ref_block_attention(&part));
    ck_assert_mem_eq(block, dense[kept[0]], sizeof block);
    /* With its own rows in the cache, too, a block's tokens may be any of the request's. */
    float all_rows[2 * TOKENS * KV_HEADS * SIZE], scattered[BLOCK][HEADS][SIZE];
    const int from[BLOCK] = {1, 4, 9}, n_all[1] = {TOKENS};
    const int64_t zero[1] = {0};
    for (int h = 0; h < KV_HEADS; h++) {
        for (int t = 0; t < TOKENS; t++) {
            memcpy(all_rows + (h * TOKENS + t) * SIZE, k[t][h], sizeof k[t][h]);
            memcpy(all_rows + ((KV_HEADS + h) * TOKENS + t) * SIZE, v[t][h], sizeof v[t][h]);
        }
    }
    for (int t = 0; t < BLOCK; t++) {
        memcpy(scattered[t], q[from[t]], sizeof scattered[t]);
    }
    part.q = scattered;
    part.k = part.v = NULL;
    part.cache = all_rows;
    part.kept = n_all;
    part.cache_start = zero;
    part.own_cached = true;
    ck_assert(ref_block_attention(&part));
    for (int t = 0; t < BLOCK; t++) {
        ck_assert_mem_eq(block[t], dense[from[t]], sizeof block[t]);
    }
}

TEST(kept_tokens_follow_the_released_rule) {
    ck_assert_int_eq(ref_kept_tokens(7, 0.5), 3);
    ck_assert_int_eq(ref_kept_tokens(7, 0.01), 1);
    ck_assert_int_eq(ref_kept_tokens(7, 1), 7);
    ck_assert_int_eq(ref_kept_tokens(7, 2), 7);
}

TEST(selection_pools_across_the_block_and_keeps_token_order) {
    enum { SIZE = 2, TOKENS = 8 };
    /* Block tokens 3 and 4; mean query (1, 0): a key's first element is its score, over sqrt 2. */
    float q[TOKENS][SIZE] = {{0, 0}, {0, 0}, {0, 0}, {2, 1}, {0, -1}, {0, 0}, {0, 0}, {0, 0}};
    float k[TOKENS][SIZE] = {{1, 0}, {2, 0}, {9, 0}, {99, 0}, {99, 0}, {3, 0}, {1, 0}, {5, 0}};
    float v[TOKENS][SIZE], cache[2][3][SIZE], scores[6];
    int32_t start[2] = {0, TOKENS}, begin[1] = {3}, end[1] = {5}, kept[1] = {3}, indices[6];
    int64_t cache_start[1] = {0}, score_start[1] = {0};
    fill(&v[0][0], TOKENS * SIZE, "v");
    struct call_select call =
        MAKE(struct call_select, .q = q, .k = k, .v = v, .start = start, .block_start = begin,
             .block_end = end, .kept = kept, .cache_start = cache_start, .score_start = score_start,
             .cache = cache, .scores = scores, .indices = indices, .q_stride = SIZE,
             .kv_stride = SIZE, .n_requests = 1, .n_heads = 1, .n_kv_heads = 1, .head_size = SIZE,
             .max_candidates = 6, .dtype = KERNEL_F32);
    ck_assert(ref_select(&call));
    const float first[6] = {1, 2, 9, 3, 1, 5};
    for (int i = 0; i < 6; i++) {
        ck_assert_double_eq_tol(scores[i], first[i] / sqrt(2.0), 1e-6);
    }
    /* Pooled: 2 9 9 9 5 5. The three nines are tokens 1, 2 and, past the block, 5. */
    const int32_t expected[3] = {1, 2, 5};
    ck_assert_mem_eq(indices, expected, sizeof expected);
    for (int i = 0; i < 3; i++) {
        ck_assert_mem_eq(cache[0][i], k[expected[i]], sizeof cache[0][i]);
        ck_assert_mem_eq(cache[1][i], v[expected[i]], sizeof cache[1][i]);
    }
    kept[0] = 4; /* tokens 6 and 7 tie for the last place: the earlier one has it */
    float wider[2][4][SIZE];
    call.cache = wider;
    ck_assert(ref_select(&call));
    ck_assert_int_eq(indices[3], 6);
}

TEST(a_group_scores_a_key_by_its_best_head) {
    enum { SIZE = 2, TOKENS = 3 };
    float q[TOKENS][2][SIZE] = {{{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}, {{1, 0}, {0, 1}}};
    float k[TOKENS][SIZE] = {{-4, 3}, {2, -1}, {0, 0}}, v[TOKENS][SIZE] = {{0, 0}, {0, 0}, {0, 0}};
    float cache[2][1][SIZE], scores[2];
    int32_t start[2] = {0, TOKENS}, begin[1] = {2}, end[1] = {3}, kept[1] = {1}, indices[2];
    int64_t cache_start[1] = {0}, score_start[1] = {0};
    struct call_select call =
        MAKE(struct call_select, .q = q, .k = k, .v = v, .start = start, .block_start = begin,
             .block_end = end, .kept = kept, .cache_start = cache_start, .score_start = score_start,
             .cache = cache, .scores = scores, .indices = indices, .q_stride = 2 * SIZE,
             .kv_stride = SIZE, .n_requests = 1, .n_heads = 2, .n_kv_heads = 1, .head_size = SIZE,
             .max_candidates = 2, .dtype = KERNEL_F32);
    ck_assert(ref_select(&call));
    ck_assert_double_eq_tol(scores[0], 3 / sqrt(2.0), 1e-6);
    ck_assert_double_eq_tol(scores[1], 2 / sqrt(2.0), 1e-6);
    call.uniform = true; /* the mean over the heads: (-4 + 3) / 2 and (2 - 1) / 2 */
    ck_assert(ref_select(&call));
    ck_assert_double_eq_tol(scores[0], -0.5 / sqrt(2.0), 1e-6);
    ck_assert_double_eq_tol(scores[1], 0.5 / sqrt(2.0), 1e-6);
}

/* Two requests of 3 and 2 candidates, two key-value heads that prefer different tokens. */
TEST(uniform_selection_keeps_one_choice_for_all_heads) {
    enum { SIZE = 2, TOKENS = 7, HEADS = 2 };
    float q[TOKENS][HEADS][SIZE] = {{{0}}}, k[TOKENS][HEADS][SIZE] = {{{0}}};
    float cache[16], scores[HEADS * 5];
    int32_t start[3] = {0, 4, 7}, begin[2] = {3, 0}, end[2] = {4, 1}, kept[2] = {1, 1};
    int32_t indices[HEADS * 5];
    int64_t cache_start[2] = {8, 0}, score_start[2] = {0, 3};
    q[3][0][0] = q[3][1][0] = q[4][0][0] = q[4][1][0] = 1;
    k[0][0][0] = 4, k[0][1][0] = -4; /* head 0's favourite, on the whole a loser */
    k[2][0][0] = -1, k[2][1][0] = 3; /* head 1's favourite, the best sum after pooling */
    k[6][0][0] = 1, k[6][1][0] = 1;
    struct call_select call =
        MAKE(struct call_select, .q = q, .k = k, .v = k, .start = start, .block_start = begin,
             .block_end = end, .kept = kept, .cache_start = cache_start, .score_start = score_start,
             .cache = cache, .scores = scores, .indices = indices, .q_stride = HEADS * SIZE,
             .kv_stride = HEADS * SIZE, .n_requests = 2, .n_heads = HEADS, .n_kv_heads = HEADS,
             .head_size = SIZE, .max_candidates = 3, .dtype = KERNEL_F32);
    ck_assert(ref_select(&call));
    ck_assert_int_eq(indices[0], 0); /* head 0 of the first request */
    ck_assert_int_eq(indices[3], 1); /* head 1: tokens 1 and 2 tie after pooling */
    ck_assert_int_eq(indices[6], 1); /* the second request's first candidate, past its block */
    scores[3] = 9;                   /* the second head's row is not read any more */
    call.uniform = true;
    ck_assert(ref_select(&call));
    ck_assert_int_eq(indices[0], 1);
    ck_assert_int_eq(indices[3], 1);
    ck_assert_double_eq_tol(scores[2], 1 / sqrt(2.0), 1e-6);
    ck_assert_double_eq_tol(scores[HEADS * 3 + 1], 1 / sqrt(2.0), 1e-6);
}

TEST(the_head_returns_the_first_best_token_and_its_probability) {
    float x[2][2] = {{1, 0}, {0, 1}}, w[4][2] = {{1, 3}, {2, 3}, {2, 1}, {0, 0}}, confidence[2];
    int32_t token[2];
    struct call_head call =
        MAKE(struct call_head, .x = x, .w = w, .token = token, .confidence = confidence,
             .n_rows = 2, .n_channels = 2, .n_vocab = 4, .dtype = KERNEL_F32);
    ck_assert(ref_head(&call));
    ck_assert_int_eq(token[0], 1);
    ck_assert_int_eq(token[1], 0);
    ck_assert_double_eq_tol(confidence[0], exp(2) / (exp(1) + 2 * exp(2) + 1), 1e-6);
    w[0][1] = 2.999f; /* below the other 3, unless logits are rounded to bf16 */
    ck_assert(ref_head(&call));
    ck_assert_int_eq(token[1], 1);
    call.rounded = true;
    ck_assert(ref_head(&call));
    ck_assert_int_eq(token[1], 0);
}

TEST(a_sample_is_the_head_of_logits_that_exist) {
    float logits[2][3] = {{0, 2, 2}, {-1, -3, -2}}, confidence[2];
    int32_t token[2];
    struct call_sample call =
        MAKE(struct call_sample, .logits = logits, .token = token, .confidence = confidence,
             .n_rows = 2, .n_vocab = 3, .dtype = KERNEL_F32);
    ck_assert(ref_sample(&call));
    ck_assert(token[0] == 1 && token[1] == 0);
    ck_assert_double_eq_tol(confidence[0], 1 / (2 + exp(-2)), 1e-6);
    ck_assert_double_eq_tol(confidence[1], 1 / (1 + exp(-2) + exp(-1)), 1e-6);
}

TEST(a_softmax_overflows_for_no_logit_and_tells_what_is_not_a_number) {
    float logits[3][3] = {{0, 800, 800}, {-900, -900, -900}, {1, NAN, 2}}, y[3][3];
    const struct call_softmax call = MAKE(struct call_softmax, .logits = logits, .y = y,
                                          .n_rows = 3, .n_vocab = 3, .dtype = KERNEL_F32);
    ref_softmax(&call);
    ck_assert(y[0][0] == 0 && y[0][1] == 0.5f && y[0][2] == 0.5f);
    ck_assert_float_eq_tol(y[1][2], 1 / 3.0f, 1e-6f);
    ck_assert(isnan(y[2][0]) && isnan(y[2][1]) && isnan(y[2][2]));
}

TEST(decoders_commit_the_surest_rows_and_at_least_one) {
    const float confidence[7] = {0.5f, 0.9f, 0.9f, 0.1f, 0.3f, 0.2f, 0.3f};
    const int32_t token[7] = {10, 11, 12, 13, 14, 15, 16};
    const int32_t first[3] = {0, 4, 4}, n_rows[3] = {4, 0, 3}, take[3] = {1, 5, 9};
    const int64_t position[7] = {6, 5, 4, 3, 2, 1, 0};
    int32_t canvas[7] = {0}, n_committed[3];
    uint8_t committed[7];
    struct call_decode call =
        MAKE(struct call_decode, .confidence = confidence, .token = token, .first_row = first,
             .n_rows = n_rows, .take = take, .position = position, .canvas = canvas,
             .committed = committed, .n_committed = n_committed, .n_requests = 3, .max_rows = 4,
             .rule = DECODE_COUNT);
    ref_decode(&call);
    const uint8_t fixed[7] = {0, 1, 0, 0, 1, 1, 1};
    ck_assert_mem_eq(committed, fixed, sizeof fixed);
    const int32_t written[7] = {16, 15, 14, 0, 0, 11, 0}, counts[3] = {1, 0, 3};
    ck_assert_mem_eq(canvas, written, sizeof written);
    ck_assert_mem_eq(n_committed, counts, sizeof counts);
    call.take = NULL;
    call.canvas = NULL;
    call.position = NULL;
    const float threshold[3] = {0.5f, 0.5f, 0.5f};
    call.rule = DECODE_THRESHOLD;
    call.threshold = threshold;
    ref_decode(&call);
    const uint8_t above[7] = {1, 1, 1, 0, 1, 0, 0}; /* none above in the last: its first best */
    ck_assert_mem_eq(committed, above, sizeof above);
}

/* The masks of request 0 stand at rows 1 and 3; request 1 has none left; rows 4 and 7 are no
 * request's. */
TEST(decoders_choose_among_masked_positions_only) {
    const float confidence[8] = {0.9f, 0.2f, 0.8f, 0.1f, 0.5f, 0.9f, 0.9f, 0.5f};
    const int32_t token[8] = {1, 2, 3, 4, 5, 6, 7, 8}, first[2] = {0, 5}, n_rows[2] = {4, 2};
    const int64_t position[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int32_t canvas[8] = {50, 99, 50, 99, 99, 50, 50, 99}, n_committed[2];
    uint8_t committed[8];
    const float threshold[2] = {0.5f, 0.5f};
    memset(committed, 7, sizeof committed);
    struct call_decode call =
        MAKE(struct call_decode, .confidence = confidence, .token = token, .first_row = first,
             .n_rows = n_rows, .position = position, .canvas = canvas, .committed = committed,
             .n_committed = n_committed, .n_requests = 2, .max_rows = 4, .mask_token = 99,
             .rule = DECODE_THRESHOLD, .threshold = threshold);
    ref_decode(&call);
    const uint8_t chosen[8] = {0, 1, 0, 0, 7, 0, 0, 7};
    const int32_t after[8] = {50, 2, 50, 99, 99, 50, 50, 99};
    ck_assert_mem_eq(committed, chosen, sizeof chosen);
    ck_assert_mem_eq(canvas, after, sizeof after);
    ck_assert(n_committed[0] == 1 && n_committed[1] == 0);
}

TEST(the_bound_grows_with_the_dtype_and_the_length) {
    ck_assert_double_eq(ref_bound(KERNEL_BF16, 0), 0x1p-7);
    ck_assert(ref_bound(KERNEL_F32, 100) < ref_bound(KERNEL_F32, 1000));
    ck_assert(ref_bound(KERNEL_F32, 4096) < ref_bound(KERNEL_BF16, 4096));
}

SUITE("reference")
