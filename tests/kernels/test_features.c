/* The plain-C kernels of dLLM-Cache's features: how much rows changed, those that changed most, and
 * what is kept of sublayers' outputs. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "kernels/rules/change.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

enum { HEADS = 2, SIZE = 8, WIDTH = HEADS * SIZE, CHANNELS = 8, ROW = 2 * WIDTH + 2 * CHANNELS };

/* One less the cosine, in double. */
static double distance(const float *a, const float *b, int n) {
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return 1 - ab / (sqrt(aa) * sqrt(bb));
}

static float change_between(const float *is, const float *was, int n) {
    float sums[CHANGE_SUMS];
    double exact[CHANGE_SUMS] = {0};
    for (int i = 0; i < n; i++) {
        const double by = (double)is[i] - (double)was[i];
        exact[0] += by * by;
        exact[1] += by * ((double)is[i] + (double)was[i]);
        exact[2] += (double)was[i] * (double)was[i];
    }
    for (int i = 0; i < CHANGE_SUMS; i++) {
        sums[i] = (float)exact[i];
    }
    return change_of(sums);
}

TEST(a_change_is_one_less_the_cosine_however_small) {
    struct rng rng = rng_stream(3, "changes");
    for (double by = 4; by > 1e-5; by /= 7) {
        float is[40], was[40];
        for (int i = 0; i < 40; i++) {
            was[i] = (float)(2 * rng_uniform(&rng) - 1);
            is[i] = was[i] + (float)(by * (2 * rng_uniform(&rng) - 1));
        }
        const double wanted = distance(is, was, 40);
        ck_assert_double_eq_tol((double)change_between(is, was, 40) / wanted, 1, 1e-4);
    }
    float is[] = {1, 2, 3}, was[] = {2, 4, 6}, back[] = {-1, -2, -3}, nothing[] = {0, 0, 0};
    ck_assert_double_eq_tol((double)change_between(is, was, 3), 0, 1e-7);
    ck_assert_double_eq_tol((double)change_between(is, back, 3), 2, 1e-6);
    ck_assert_float_eq(change_between(is, nothing, 3), 1);
    ck_assert_float_eq(change_between(nothing, is, 3), 1);
    ck_assert_float_eq(change_between(is, is, 3), 0);
}

/* Three requests: one of 5 positions, of which [1, 5) are compared and the first is given; one
 * without a row that runs; one of 4, of which [2, 4) run without comparison. */
struct rows {
    float values[6][WIDTH], bias[WIDTH], pool[13 * ROW], sums[4][CHANGE_SUMS];
    int32_t start[4], value_start[4], compared_start[4], stream_start[4], run_first[3], given[3];
    int32_t kept[3], positions[5], value_rows[5], stream_rows[5];
    int64_t cache_start[3];
};

static void rows_init(struct rows *r) {
    struct rng rng = rng_stream(4, "rows");
    *r = (struct rows){.start = {0, 3, 3, 5},
                       .value_start = {0, 4, 4, 6},
                       .compared_start = {0, 4, 4, 4},
                       .stream_start = {0, 5, 9, 13},
                       .run_first = {1, 3, 2},
                       .given = {1, 0, 2},
                       .kept = {5, 4, 4},
                       .cache_start = {8 * ROW, 0, 4 * ROW}};
    float *const all[] = {&r->values[0][0], r->bias, r->pool};
    const int n[] = {6 * WIDTH, WIDTH, 13 * ROW};
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < n[a]; i++) {
            all[a][i] = (float)(2 * rng_uniform(&rng) - 1);
        }
    }
}

static float *value_at(struct rows *r, int request, int head, int position) {
    const int64_t kept = r->kept[request];
    return r->pool + r->cache_start[request] + kept * WIDTH + (head * kept + position) * SIZE;
}

static struct call_similarity similarity_of(struct rows *r) {
    return MAKE(struct call_similarity, .values = r->values, .bias = r->bias,
                .value_start = r->value_start, .compared_start = r->compared_start,
                .run_first = r->run_first, .given = r->given, .kept = r->kept,
                .cache_start = r->cache_start, .cache = r->pool, .sums = &r->sums[0][0],
                .n_requests = 3, .n_kv_heads = HEADS, .head_size = SIZE, .max_compared = 4,
                .dtype = KERNEL_F32);
}

TEST(compared_values_replace_the_cached_ones_and_nothing_else_does) {
    struct rows r, before;
    rows_init(&r);
    before = r;
    const struct call_similarity call = similarity_of(&r);
    ref_similarity(&call);
    for (int i = 0; i < 4; i++) {
        float is[WIDTH], was[WIDTH];
        for (int c = 0; c < WIDTH; c++) {
            is[c] = r.values[i][c] + r.bias[c];
            was[c] = value_at(&before, 0, c / SIZE, 1 + i)[c % SIZE];
            ck_assert_float_eq(value_at(&r, 0, c / SIZE, 1 + i)[c % SIZE], i == 0 ? was[c] : is[c]);
            *(value_at(&r, 0, c / SIZE, 1 + i) + c % SIZE) = was[c];
        }
        if (i == 0) { /* given */
            ck_assert_mem_eq(r.sums[0], ((float[CHANGE_SUMS]){0}), sizeof r.sums[0]);
        } else {
            ck_assert_double_eq_tol((double)change_of(r.sums[i]), distance(is, was, WIDTH), 1e-6);
        }
    }
    ck_assert_mem_eq(r.pool, before.pool, sizeof r.pool);
}

TEST(the_rows_that_changed_most_are_picked_in_order) {
    static const float changes[] = {9, 0.5f, 0.25f, 0.5f}; /* of right angles, the first is given */
    struct rows r;
    rows_init(&r);
    for (int wanted = 1; wanted <= 4; wanted++) {
        static const int32_t positions[][4] = {{1}, {1, 2}, {1, 2, 4}, {1, 2, 3, 4}};
        for (int i = 0; i < 4; i++) { /* lengths 1 and 1, a cosine of 1 - change */
            r.sums[i][0] = 2 * changes[i];
            r.sums[i][1] = 0;
            r.sums[i][2] = 1;
        }
        r.start[1] = r.start[2] = wanted;
        r.start[3] = wanted + 2;
        int32_t lists[3][6];
        memset(lists, 0xff, sizeof lists);
        const struct call_pick call =
            MAKE(struct call_pick, .sums = &r.sums[0][0], .start = r.start,
                 .value_start = r.value_start, .compared_start = r.compared_start,
                 .stream_start = r.stream_start, .run_first = r.run_first, .given = r.given,
                 .positions = lists[0], .value_rows = lists[1], .stream_rows = lists[2],
                 .n_requests = 3, .max_compared = 4, .max_queries = wanted);
        ref_pick(&call);
        for (int i = 0; i < wanted; i++) {
            ck_assert_int_eq(lists[0][i], positions[wanted - 1][i]);
            ck_assert_int_eq(lists[1][i], positions[wanted - 1][i] - 1);
            ck_assert_int_eq(lists[2][i], positions[wanted - 1][i]);
        }
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(lists[0][wanted + i], 2 + i);
            ck_assert_int_eq(lists[1][wanted + i], 4 + i);
            ck_assert_int_eq(lists[2][wanted + i], 9 + 2 + i);
        }
    }
}

TEST(a_feature_is_kept_by_position_and_added_from_there) {
    static const int32_t owner[] = {2, 0, 0}, rows[] = {3, 4, 0};
    for (int feature = 0; feature < 2; feature++) {
        struct rows r, before;
        rows_init(&r);
        before = r;
        float x[3][CHANNELS], y[3][CHANNELS];
        for (int i = 0; i < 3 * CHANNELS; i++) {
            x[i / CHANNELS][i % CHANNELS] = (float)i;
            y[i / CHANNELS][i % CHANNELS] = 1000;
        }
        const struct call_keep_feature keep = MAKE(
            struct call_keep_feature, .x = x, .owner = owner, .rows = rows, .kept = r.kept,
            .cache_start = r.cache_start, .cache = r.pool, .before = 2 * WIDTH + feature * CHANNELS,
            .n_tokens = 3, .n_channels = CHANNELS, .dtype = KERNEL_F32);
        const struct call_add_feature add = MAKE(
            struct call_add_feature, .cache = r.pool, .owner = owner, .rows = rows, .kept = r.kept,
            .cache_start = r.cache_start, .y = y, .before = 2 * WIDTH + feature * CHANNELS,
            .n_tokens = 3, .n_channels = CHANNELS, .dtype = KERNEL_F32);
        ref_keep_feature(&keep);
        ref_add_feature(&add);
        for (int t = 0; t < 3; t++) {
            float *at = r.pool + r.cache_start[owner[t]] +
                        r.kept[owner[t]] * (2 * WIDTH + feature * CHANNELS) + rows[t] * CHANNELS;
            float *old = before.pool + (at - r.pool);
            for (int c = 0; c < CHANNELS; c++) {
                ck_assert_float_eq(at[c], x[t][c]);
                ck_assert_float_eq(y[t][c], 1000 + x[t][c]);
                old[c] = at[c];
            }
        }
        ck_assert_mem_eq(r.pool, before.pool, sizeof r.pool);
    }
}

SUITE("features' reference kernels")
