/* The kernels' twins against formulas written down independently, on the CPU. */
#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/twin.h"
#include "kernels/work.h"
#include "sim/base/rng.h"
#include "tests/suite.h"

static void fill(float *x, int n, const char *stream) {
    struct rng rng = rng_stream(5, stream);
    for (int i = 0; i < n; i++) {
        x[i] = (float)(2 * rng_uniform(&rng) - 1);
    }
}

START_TEST(bf16_rounds_to_nearest_even_and_keeps_nan) {
    ck_assert_uint_eq(bf16_from_float(1.0f), 0x3f80);
    ck_assert_uint_eq(bf16_from_float(1.00390625f), 0x3f80); /* half an ulp above 1: to even */
    ck_assert_uint_eq(bf16_from_float(1.01171875f), 0x3f82); /* half an ulp above an odd one */
    ck_assert_uint_eq(bf16_from_float(-INFINITY), 0xff80);
    ck_assert(isnan(bf16_to_float(bf16_from_float(NAN))));
    for (uint32_t bits = 0; bits < 0x7f80; bits++) {
        ck_assert_uint_eq(bf16_from_float(bf16_to_float((uint16_t)bits)), bits);
    }
}
END_TEST

START_TEST(an_unknown_token_embeds_as_nan) {
    float table[3][2] = {{1, 2}, {3, 4}, {5, 6}}, y[3][2];
    int32_t ids[3] = {2, 3, -1};
    struct call_embed call = {table, ids, y, 3, 2, 3, KERNEL_F32};
    twin_embed(&call);
    ck_assert(y[0][0] == 5 && y[0][1] == 6);
    ck_assert(isnan(y[1][0]) && isnan(y[1][1]) && isnan(y[2][0]));
}
END_TEST

START_TEST(a_norm_adds_scales_and_writes_the_sum_back) {
    float x[2][4] = {{1, 2, 3, 4}, {0, 0, 1, 0}}, residual[2][4] = {{1, 0, -3, 0}, {0, 0, 1, 0}};
    float weight[4] = {1, 2, 1, 0.5f}, y[2][4], gathered[1][4];
    struct call_norm call = {x, weight, residual, NULL, y, 2, 4, 0, KERNEL_F32};
    int32_t rows[1] = {1};
    struct call_norm gather = {x, weight, residual, rows, gathered, 1, 4, 0, KERNEL_F32};
    twin_norm(&gather); /* first: it must leave the residual alone */
    ck_assert(residual[1][2] == 1);
    twin_norm(&call);
    const double rms = sqrt((4 + 4 + 0 + 16) / 4.0); /* of 2, 2, 0, 4 */
    ck_assert(residual[0][0] == 2 && residual[0][2] == 0 && residual[1][2] == 2);
    ck_assert_double_eq_tol(y[0][0], 2 / rms, 1e-6);
    ck_assert_double_eq_tol(y[0][1], 4 / rms, 1e-6);
    ck_assert_double_eq_tol(y[0][3], 2 / rms, 1e-6);
    ck_assert_mem_eq(gathered[0], y[1], sizeof y[1]);
}
END_TEST

START_TEST(swiglu_gates_in_place) {
    float x[1][4] = {{0.5f, -2, 3, 4}};
    struct call_swiglu call = {x, x, 4, 1, 2, KERNEL_F32};
    twin_swiglu(&call);
    ck_assert_double_eq_tol(x[0][0], 0.5 / (1 + exp(-0.5)) * 3, 1e-6);
    ck_assert_double_eq_tol(x[0][1], -2 / (1 + exp(2.0)) * 4, 1e-6);
    ck_assert(x[0][2] == 3 && x[0][3] == 4);
}
END_TEST

/* Rotation is a complex product; a query rotated at m and a key at n meet at m - n only. */
START_TEST(rotated_products_depend_on_the_distance_alone) {
    enum { SIZE = 8, POSITIONS = 40 };
    float turns[POSITIONS * SIZE], qkv[2][3 * SIZE], q[2][SIZE], k[2][SIZE], v[2][SIZE];
    twin_cos_sin(turns, POSITIONS, SIZE, 10000);
    fill(qkv[0], 3 * SIZE, "rope");
    memcpy(qkv[1], qkv[0], sizeof qkv[0]);
    double products[2];
    for (int shift = 0; shift < 2; shift++) {
        int32_t positions[2] = {3 + 17 * shift, 9 + 17 * shift};
        struct call_rope call = {.qkv = qkv,
                                 .cos_sin = turns,
                                 .positions = positions,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .q_stride = SIZE,
                                 .kv_stride = SIZE,
                                 .n_tokens = 2,
                                 .n_heads = 1,
                                 .n_kv_heads = 1,
                                 .head_size = SIZE,
                                 .dtype = KERNEL_F32};
        twin_rope(&call);
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
END_TEST

START_TEST(rope_adds_the_bias_before_it_normalises_a_head) {
    enum { SIZE = 4 };
    float turns[SIZE], qkv[3 * SIZE], bias[3 * SIZE], q_norm[SIZE] = {1, 2, 3, 4}, q[SIZE];
    float kv[2][2][SIZE];
    int32_t positions[1] = {0}, rows[1] = {1};
    twin_cos_sin(turns, 1, SIZE, 10000); /* position 0 does not turn */
    fill(qkv, 3 * SIZE, "qkv");
    fill(bias, 3 * SIZE, "bias");
    struct call_rope call = {qkv,   bias, q_norm, NULL, turns, positions, rows, q,     kv[0],
                             kv[1], SIZE, SIZE,   1,    1,     1,         SIZE, 0.01f, KERNEL_F32};
    twin_rope(&call);
    double squares = 0;
    for (int i = 0; i < SIZE; i++) {
        squares += pow((double)qkv[i] + (double)bias[i], 2);
    }
    for (int i = 0; i < SIZE; i++) {
        const double x = (double)qkv[i] + (double)bias[i];
        ck_assert_double_eq_tol(q[i], x / sqrt(squares / SIZE + 0.01) * (i + 1), 1e-6);
        ck_assert_double_eq_tol(kv[0][1][i], (double)qkv[SIZE + i] + (double)bias[SIZE + i], 1e-6);
    }
}
END_TEST

START_TEST(attention_averages_values_by_softmax_within_each_request) {
    enum { SIZE = 4, HEADS = 4, KV_HEADS = 2, TOKENS = 7 };
    float q[TOKENS][HEADS][SIZE], k[TOKENS][KV_HEADS][SIZE], v[TOKENS][KV_HEADS][SIZE];
    float y[TOKENS][HEADS][SIZE];
    int32_t start[3] = {0, 3, TOKENS};
    fill(&q[0][0][0], TOKENS * HEADS * SIZE, "q");
    fill(&k[0][0][0], TOKENS * KV_HEADS * SIZE, "k");
    fill(&v[0][0][0], TOKENS * KV_HEADS * SIZE, "v");
    struct call_dense_attention call = {
        q,      k,     v,        y,    start, HEADS * SIZE, KV_HEADS * SIZE, HEADS * SIZE, 2,
        TOKENS, HEADS, KV_HEADS, SIZE, 4,     KERNEL_F32};
    ck_assert(twin_dense_attention(&call));
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
END_TEST

/* A cache that holds the rest of a request, and the block beside it, are the whole request. */
START_TEST(block_attention_over_a_full_cache_is_dense_attention) {
    enum { SIZE = 8, HEADS = 4, KV_HEADS = 2, TOKENS = 11, BLOCK = 3 };
    float q[TOKENS][HEADS][SIZE], k[TOKENS][KV_HEADS][SIZE], v[TOKENS][KV_HEADS][SIZE];
    float dense[TOKENS][HEADS][SIZE], block[BLOCK][HEADS][SIZE];
    float k_cache[5 + TOKENS * KV_HEADS * SIZE], v_cache[5 + TOKENS * KV_HEADS * SIZE];
    int32_t all[2] = {0, TOKENS}, fresh[2] = {0, BLOCK}, kept[1] = {TOKENS - BLOCK};
    int64_t cache_start[1] = {5};
    fill(&q[0][0][0], TOKENS * HEADS * SIZE, "q");
    fill(&k[0][0][0], TOKENS * KV_HEADS * SIZE, "k");
    fill(&v[0][0][0], TOKENS * KV_HEADS * SIZE, "v");
    for (int h = 0; h < KV_HEADS; h++) { /* the first tokens are cached, the last are the block */
        for (int t = 0; t < kept[0]; t++) {
            memcpy(k_cache + 5 + (h * kept[0] + t) * SIZE, k[t][h], sizeof k[t][h]);
            memcpy(v_cache + 5 + (h * kept[0] + t) * SIZE, v[t][h], sizeof v[t][h]);
        }
    }
    struct call_dense_attention whole = {
        q, k,      v,     dense,    all,  HEADS * SIZE, KV_HEADS * SIZE, HEADS * SIZE,
        1, TOKENS, HEADS, KV_HEADS, SIZE, TOKENS,       KERNEL_F32};
    struct call_block_attention part = {.q = q[kept[0]],
                                        .k = k[kept[0]],
                                        .v = v[kept[0]],
                                        .k_cache = k_cache,
                                        .v_cache = v_cache,
                                        .y = block,
                                        .start = fresh,
                                        .kept = kept,
                                        .cache_start = cache_start,
                                        .q_stride = HEADS * SIZE,
                                        .kv_stride = KV_HEADS * SIZE,
                                        .y_stride = HEADS * SIZE,
                                        .n_requests = 1,
                                        .n_heads = HEADS,
                                        .n_kv_heads = KV_HEADS,
                                        .head_size = SIZE,
                                        .max_queries = BLOCK,
                                        .dtype = KERNEL_F32};
    ck_assert(twin_dense_attention(&whole) && twin_block_attention(&part));
    ck_assert_mem_eq(block, dense[kept[0]], sizeof block);
}
END_TEST

START_TEST(kept_tokens_follow_the_released_rule) {
    ck_assert_int_eq(twin_kept_tokens(7, 0.5), 3);
    ck_assert_int_eq(twin_kept_tokens(7, 0.01), 1);
    ck_assert_int_eq(twin_kept_tokens(7, 1), 7);
    ck_assert_int_eq(twin_kept_tokens(7, 2), 7);
}
END_TEST

START_TEST(selection_pools_across_the_block_and_keeps_token_order) {
    enum { SIZE = 2, TOKENS = 8 };
    /* Block tokens 3 and 4; mean query (1, 0): a key's first element is its score, over sqrt 2. */
    float q[TOKENS][SIZE] = {{0, 0}, {0, 0}, {0, 0}, {2, 1}, {0, -1}, {0, 0}, {0, 0}, {0, 0}};
    float k[TOKENS][SIZE] = {{1, 0}, {2, 0}, {9, 0}, {99, 0}, {99, 0}, {3, 0}, {1, 0}, {5, 0}};
    float v[TOKENS][SIZE], k_cache[3][SIZE], v_cache[3][SIZE], scores[6];
    int32_t start[2] = {0, TOKENS}, begin[1] = {3}, end[1] = {5}, kept[1] = {3}, indices[6];
    int64_t cache_start[1] = {0};
    fill(&v[0][0], TOKENS * SIZE, "v");
    struct call_select call = {q,           k,       v,       start,  begin,   end,       kept,
                               cache_start, k_cache, v_cache, scores, indices, SIZE,      SIZE,
                               1,           1,       1,       SIZE,   6,       KERNEL_F32};
    ck_assert(twin_select(&call));
    const float first[6] = {1, 2, 9, 3, 1, 5};
    for (int i = 0; i < 6; i++) {
        ck_assert_double_eq_tol(scores[i], first[i] / sqrt(2.0), 1e-6);
    }
    /* Pooled: 2 9 9 9 5 5. The three nines are tokens 1, 2 and, past the block, 5. */
    const int32_t expected[3] = {1, 2, 5};
    ck_assert_mem_eq(indices, expected, sizeof expected);
    for (int i = 0; i < 3; i++) {
        ck_assert_mem_eq(k_cache[i], k[expected[i]], sizeof k_cache[i]);
        ck_assert_mem_eq(v_cache[i], v[expected[i]], sizeof v_cache[i]);
    }
    kept[0] = 4; /* tokens 6 and 7 tie for the last place: the earlier one has it */
    float wider_k[4][SIZE], wider_v[4][SIZE];
    call.k_cache = wider_k;
    call.v_cache = wider_v;
    ck_assert(twin_select(&call));
    ck_assert_int_eq(indices[3], 6);
}
END_TEST

START_TEST(a_group_scores_a_key_by_its_best_head) {
    enum { SIZE = 2, TOKENS = 3 };
    float q[TOKENS][2][SIZE] = {{{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}, {{1, 0}, {0, 1}}};
    float k[TOKENS][SIZE] = {{-4, 3}, {2, -1}, {0, 0}}, v[TOKENS][SIZE] = {{0, 0}, {0, 0}, {0, 0}};
    float k_cache[1][SIZE], v_cache[1][SIZE], scores[2];
    int32_t start[2] = {0, TOKENS}, begin[1] = {2}, end[1] = {3}, kept[1] = {1}, indices[2];
    int64_t cache_start[1] = {0};
    struct call_select call = {q,           k,       v,       start,  begin,   end,       kept,
                               cache_start, k_cache, v_cache, scores, indices, 2 * SIZE,  SIZE,
                               1,           2,       1,       SIZE,   2,       KERNEL_F32};
    ck_assert(twin_select(&call));
    ck_assert_double_eq_tol(scores[0], 3 / sqrt(2.0), 1e-6);
    ck_assert_double_eq_tol(scores[1], 2 / sqrt(2.0), 1e-6);
}
END_TEST

START_TEST(the_head_returns_the_first_best_token_and_its_probability) {
    float x[2][2] = {{1, 0}, {0, 1}}, w[4][2] = {{1, 3}, {2, 3}, {2, 1}, {0, 0}}, confidence[2];
    int32_t token[2];
    struct call_head call = {.x = x,
                             .w = w,
                             .token = token,
                             .confidence = confidence,
                             .n_rows = 2,
                             .n_channels = 2,
                             .n_vocab = 4,
                             .dtype = KERNEL_F32};
    ck_assert(twin_head(&call));
    ck_assert_int_eq(token[0], 1);
    ck_assert_int_eq(token[1], 0);
    ck_assert_double_eq_tol(confidence[0], exp(2) / (exp(1) + 2 * exp(2) + 1), 1e-6);
    w[0][1] = 2.999f; /* below the other 3, unless logits are rounded to bf16 */
    ck_assert(twin_head(&call));
    ck_assert_int_eq(token[1], 1);
    call.rounded = true;
    ck_assert(twin_head(&call));
    ck_assert_int_eq(token[1], 0);
}
END_TEST

START_TEST(decoders_commit_the_surest_rows_and_at_least_one) {
    const float confidence[7] = {0.5f, 0.9f, 0.9f, 0.1f, 0.3f, 0.2f, 0.3f};
    const int32_t token[7] = {10, 11, 12, 13, 14, 15, 16}, start[4] = {0, 4, 4, 7};
    const int32_t take[3] = {1, 5, 9};
    const int64_t position[7] = {6, 5, 4, 3, 2, 1, 0};
    int32_t canvas[7] = {0};
    uint8_t committed[7];
    struct call_decode call = {confidence, token,     start, take, position,
                               canvas,     committed, 3,     4,    0};
    twin_decode(&call);
    const uint8_t fixed[7] = {0, 1, 0, 0, 1, 1, 1};
    ck_assert_mem_eq(committed, fixed, sizeof fixed);
    const int32_t written[7] = {16, 15, 14, 0, 0, 11, 0};
    ck_assert_mem_eq(canvas, written, sizeof written);
    call.take = NULL;
    call.threshold = 0.5f;
    twin_decode(&call);
    const uint8_t above[7] = {1, 1, 1, 0, 1, 0, 0}; /* none above in the last: its first best */
    ck_assert_mem_eq(committed, above, sizeof above);
}
END_TEST

START_TEST(the_bound_grows_with_the_dtype_and_the_length) {
    ck_assert_double_eq(twin_bound(KERNEL_BF16, 0), 0x1p-7);
    ck_assert(twin_bound(KERNEL_F32, 100) < twin_bound(KERNEL_F32, 1000));
    ck_assert(twin_bound(KERNEL_F32, 4096) < twin_bound(KERNEL_BF16, 4096));
}
END_TEST

START_TEST(work_counts_every_byte_once) {
    struct call_norm norm = {.n_rows = 10, .n_channels = 64, .dtype = KERNEL_BF16};
    ck_assert_double_eq(work_norm(&norm).bytes, 2 * 10 * 64 * 2 + 64 * 2);
    struct call_head head = {.n_rows = 3, .n_channels = 64, .n_vocab = 100, .dtype = KERNEL_F32};
    ck_assert_double_eq(work_head(&head).flops, 2 * 3 * 64 * 100);
    ck_assert_double_eq(work_head(&head).bytes, 103 * 64 * 4 + 3 * 8);
    /* 32 queries over 512 kept keys, 32 heads of 128 in bf16: 512 bytes a key and head. */
    struct call_block_attention block = {
        .n_heads = 32, .n_kv_heads = 32, .head_size = 128, .dtype = KERNEL_BF16};
    ck_assert_double_eq(work_block_attention(&block, 32, 512, 32 * 544).bytes,
                        544 * 512 * 32 + 2 * 32 * 256 * 32);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        bf16_rounds_to_nearest_even_and_keeps_nan,
        an_unknown_token_embeds_as_nan,
        a_norm_adds_scales_and_writes_the_sum_back,
        swiglu_gates_in_place,
        rotated_products_depend_on_the_distance_alone,
        rope_adds_the_bias_before_it_normalises_a_head,
        attention_averages_values_by_softmax_within_each_request,
        block_attention_over_a_full_cache_is_dense_attention,
        kept_tokens_follow_the_released_rule,
        selection_pools_across_the_block_and_keeps_token_order,
        a_group_scores_a_key_by_its_best_head,
        the_head_returns_the_first_best_token_and_its_probability,
        decoders_commit_the_surest_rows_and_at_least_one,
        the_bound_grows_with_the_dtype_and_the_length,
        work_counts_every_byte_once,
    };
    return SUITE_RUN("twins", tests);
}
