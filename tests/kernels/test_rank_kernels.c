/* The kernels of ranks: what they make of parts is what one device makes of the whole. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

enum { ROWS = 5, VOCAB = 64 };

/* What a row comes to over a vocabulary or a part of it; entropy is the sum of p log p. */
struct row {
    int32_t token;
    double confidence, margin, entropy, logit;
};

static struct row row_of(const double *logits, int64_t n) {
    struct row row = {.logit = -INFINITY};
    double sum = 0, second = 0;
    for (int i = 0; i < n; i++) {
        if (logits[i] > row.logit) {
            row.token = i;
            row.logit = logits[i];
        }
    }
    for (int i = 0; i < n; i++) {
        sum += exp(logits[i] - row.logit);
    }
    for (int i = 0; i < n; i++) {
        double p = exp(logits[i] - row.logit) / sum;
        row.entropy += p * log(p);
        second = i != row.token ? fmax(second, p) : second;
    }
    row.confidence = 1 / sum;
    row.margin = row.confidence - second;
    return row;
}

static void gather(const double logits[ROWS][VOCAB], int n_ranks, bool statistics, float *out) {
    int64_t part = VOCAB / n_ranks, n_fields = statistics ? 5 : 3;
    for (int64_t rank = 0; rank < n_ranks; rank++) {
        for (int r = 0; r < ROWS; r++) {
            struct row row = row_of(logits[r] + rank * part, part);
            float *to = out + rank * n_fields * ROWS + r;
            memcpy(to, &row.token, sizeof row.token);
            to[ROWS] = (float)row.confidence;
            if (statistics) {
                to[2 * ROWS] = (float)row.margin;
                to[3 * ROWS] = (float)row.entropy;
            }
            to[(n_fields - 1) * ROWS] = (float)row.logit;
        }
    }
}

TEST(candidates_of_parts_combine_to_the_whole_rows) {
    double logits[ROWS][VOCAB];
    struct rng rng = rng_stream(7, "logits");
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < VOCAB; i++) {
            logits[r][i] = 6 * rng_uniform(&rng);
        }
    }
    logits[0][3] = logits[0][40] = 9;     /* a tie between parts: the lower rank's */
    logits[1][50] = 30;                   /* hardly anything beside it */
    logits[2][9] = logits[2][8] + 0.0625; /* the second of all beside the first */
    for (int n_ranks = 1; n_ranks <= CALL_MAX_RANKS; n_ranks *= 2) {
        for (int statistics = 0; statistics < 2; statistics++) {
            float gathered[CALL_MAX_RANKS * 5 * ROWS], confidence[ROWS], margin[ROWS],
                entropy[ROWS];
            int32_t token[ROWS];
            gather((const double(*)[VOCAB])logits, n_ranks, statistics, gathered);
            ref_combine(&MAKE(struct call_combine, .gathered = gathered, .token = token,
                              .confidence = confidence, .margin = statistics ? margin : NULL,
                              .entropy = statistics ? entropy : NULL, .n_ranks = n_ranks,
                              .n_rows = ROWS, .n_vocab = VOCAB / n_ranks));
            for (int r = 0; r < ROWS; r++) {
                struct row whole = row_of(logits[r], VOCAB);
                ck_assert_int_eq(token[r], whole.token);
                ck_assert_double_eq_tol((double)confidence[r], whole.confidence, 1e-6);
                if (statistics) {
                    ck_assert_double_eq_tol((double)margin[r], whole.margin, 1e-6);
                    ck_assert_double_eq_tol((double)entropy[r], whole.entropy, 1e-5);
                }
            }
        }
    }
}

TEST(a_part_that_is_no_number_leaves_no_number) {
    float gathered[2 * 5] = {0, NAN, NAN, NAN, 1, 0, 0.5F, 0.25F, -1, 2}, confidence, margin,
                       entropy;
    int32_t token;
    ref_combine(&MAKE(struct call_combine, .gathered = gathered, .token = &token,
                      .confidence = &confidence, .margin = &margin, .entropy = &entropy,
                      .n_ranks = 2, .n_rows = 1, .n_vocab = 4));
    ck_assert_float_nan(confidence);
    ck_assert_float_nan(margin);
    ck_assert_float_nan(entropy);
}

/* Two ranks of two heads each: their scores added up in between choose as four heads do. */
TEST(a_selection_in_two_parts_is_that_of_all_heads) {
    enum { HEADS = 4, SIZE = 8, TOKENS = 20, BEGIN = 6, END = 10, KEPT = 5 };
    enum { CHANNELS = HEADS * SIZE, CANDIDATES = TOKENS - (END - BEGIN) };
    float q[TOKENS * CHANNELS], k[TOKENS * CHANNELS];
    float whole_scores[HEADS * CANDIDATES] = {0}, cache[2 * HEADS * KEPT * SIZE];
    int32_t whole[HEADS * CANDIDATES];
    const int32_t start[] = {0, TOKENS}, begin = BEGIN, end = END, kept = KEPT;
    const int64_t zero = 0;
    struct rng rng = rng_stream(3, "keys");
    for (int i = 0; i < TOKENS * CHANNELS; i++) {
        q[i] = (float)rng_uniform(&rng) - 0.5F;
        k[i] = (float)rng_uniform(&rng) - 0.5F;
    }
    struct call_select call =
        MAKE(struct call_select, .q = q, .k = k, .v = k, .start = start, .block_start = &begin,
             .block_end = &end, .kept = &kept, .cache_start = &zero, .score_start = &zero,
             .cache = cache, .scores = whole_scores, .indices = whole, .q_stride = CHANNELS,
             .kv_stride = CHANNELS, .n_requests = 1, .n_heads = HEADS, .n_kv_heads = HEADS,
             .head_size = SIZE, .max_candidates = CANDIDATES, .uniform = true, .dtype = KERNEL_F32);
    ck_assert(ref_select(&call));
    float scores[2][HEADS * CANDIDATES] = {{0}};
    int32_t indices[2][HEADS * CANDIDATES];
    struct call_select parts[2] = {call, call};
    for (int rank = 0; rank < 2; rank++) {
        struct call_select *part = &parts[rank];
        part->n_heads = part->n_kv_heads = HEADS / 2;
        part->q = q + rank * CHANNELS / 2;
        part->k = part->v = k + rank * CHANNELS / 2;
        part->scores = scores[rank];
        part->indices = indices[rank];
        part->part = KERNEL_SELECT_SCORES;
        indices[rank][0] = -1;
        ck_assert(ref_select(part));
        ck_assert_int_eq(indices[rank][0], -1); /* nothing is chosen yet */
    }
    for (int i = 0; i < CANDIDATES; i++) {
        scores[0][i] = scores[1][i] = scores[0][i] + scores[1][i];
    }
    for (int rank = 0; rank < 2; rank++) {
        parts[rank].part = KERNEL_SELECT_SCORED;
        ck_assert(ref_select(&parts[rank]));
        ck_assert_mem_eq(indices[rank], whole, KEPT * sizeof *whole);
    }
}

SUITE("rank kernels")
