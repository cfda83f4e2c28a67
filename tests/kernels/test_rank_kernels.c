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

/* Lists that fill up and forget, pass after pass. */
TEST(credit_in_two_parts_is_that_of_whole_rows) {
    enum { PASSES = 12, SLOTS = 3, LIST = 2 * SLOTS + 2 };
    int32_t lists[ROWS], whole_state[ROWS * LIST] = {0}, state[4][ROWS * LIST] = {{0}};
    struct rng rng = rng_stream(5, "credit");
    for (int pass = 0; pass < PASSES; pass++) {
        float logits[ROWS][VOCAB], parts[4][ROWS * VOCAB], confidence[ROWS];
        float entries[ROWS * SLOTS] = {0}, whole_confidence[ROWS];
        int32_t token[ROWS], whole_token[ROWS];
        const int n_ranks = pass % 2 ? 2 : 4, part = VOCAB / n_ranks;
        for (int r = 0; r < ROWS; r++) {
            double wide[VOCAB];
            lists[r] = r == 3 ? -1 : r;
            for (int i = 0; i < VOCAB; i++) {
                logits[r][i] = (float)(i % 16 == 0 ? 6 * rng_uniform(&rng) : rng_uniform(&rng));
                wide[i] = (double)logits[r][i];
                parts[i / part][r * part + i % part] = logits[r][i];
            }
            const struct row row = row_of(wide, VOCAB);
            token[r] = whole_token[r] = row.token;
            confidence[r] = whole_confidence[r] = r == 4 ? NAN : (float)row.confidence;
        }
        struct call_credit call =
            MAKE(struct call_credit, .logits = logits, .token = whole_token,
                 .confidence = whole_confidence, .state = whole_state, .lists = lists,
                 .n_rows = ROWS, .n_vocab = VOCAB, .n_slots = SLOTS, .alpha = 2, .beta = 0.75F,
                 .gamma = 0.5F, .dtype = KERNEL_F32);
        ref_credit(&call);
        for (int rank = 0; rank < 4; rank++) {
            float mine[ROWS * SLOTS];
            call.part = KERNEL_CREDIT_EARN;
            call.state = state[rank];
            call.logits = parts[rank % n_ranks];
            call.first_token = rank % n_ranks * part;
            call.n_vocab = part;
            call.token = token;
            call.confidence = confidence;
            call.entries = mine;
            ref_credit(&call);
            for (int i = 0; rank < n_ranks && i < ROWS * SLOTS; i++) {
                entries[i] += mine[i];
            }
            ck_assert_mem_eq(state[rank], whole_state, sizeof whole_state);
        }
        call.part = KERNEL_CREDIT_DECIDE;
        call.logits = NULL;
        call.entries = entries;
        ref_credit(&call);
        ck_assert_mem_eq(token, whole_token, sizeof token);
        ck_assert_mem_eq(confidence, whole_confidence, sizeof confidence);
    }
    ck_assert_int_eq(whole_state[0], SLOTS); /* some were forgotten */
}

TEST(parts_of_a_softmax_are_those_of_the_whole_row) {
    float logits[ROWS][VOCAB], whole[ROWS][VOCAB], part[ROWS][VOCAB / 2], y[ROWS][VOCAB / 2];
    float top[ROWS], confidence[ROWS];
    struct rng rng = rng_stream(6, "softmax");
    for (int r = 0; r < ROWS; r++) {
        double wide[VOCAB];
        for (int i = 0; i < VOCAB; i++) {
            logits[r][i] = (float)(9 * rng_uniform(&rng));
            wide[i] = (double)logits[r][i];
        }
        const struct row row = row_of(wide, VOCAB);
        top[r] = (float)row.logit;
        confidence[r] = (float)row.confidence;
    }
    ref_softmax(&MAKE(struct call_softmax, .logits = logits, .y = whole, .n_rows = ROWS,
                      .n_vocab = VOCAB, .dtype = KERNEL_F32));
    for (int rank = 0; rank < 2; rank++) {
        for (int r = 0; r < ROWS; r++) {
            memcpy(part[r], logits[r] + rank * VOCAB / 2, sizeof part[r]);
        }
        ref_softmax(&MAKE(struct call_softmax, .logits = part, .y = y, .top = top,
                          .confidence = confidence, .n_rows = ROWS, .n_vocab = VOCAB / 2,
                          .dtype = KERNEL_F32));
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < VOCAB / 2; i++) {
                ck_assert_float_eq_tol(y[r][i], whole[r][rank * VOCAB / 2 + i], 1e-7F);
            }
        }
    }
}

TEST(a_rank_penalises_its_own_tokens) {
    enum { PART = 4, N = 3 };
    const int32_t canvas[] = {5, 2, 7, 5};
    const int64_t position[] = {1, 2, 3};
    for (int rank = 0; rank < 2; rank++) {
        float logits[N][PART] = {{0}};
        ref_penalise(&MAKE(struct call_penalise, .logits = logits, .position = position,
                           .canvas = canvas, .penalty = 1, .n_rows = N, .n_vocab = PART,
                           .first_token = rank * PART, .dtype = KERNEL_F32));
        for (int i = 0; i < N * PART; i++) {
            const bool falls = rank == 0 ? i == PART + 2 : i == 2 * PART + 3;
            ck_assert_float_eq(logits[i / PART][i % PART], falls ? -1.0F : 0.0F);
        }
    }
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

/* A canvas's rows: what ranks find of their parts is what one finds of whole rows. */
TEST(renoised_parts_are_those_of_whole_rows) {
    enum { N = 9, V = 96, MOST = 4 };
    static float whole[N * V], divided[N * V];
    static struct renoise_part parts[MOST * N];
    struct draw_rule by[N];
    uint64_t key[N];
    struct rng rng = rng_stream(5, "renoise");
    int32_t token[2][N], drawn[2][N];
    float entropy[2][N], confidence[N];
    for (int row = 0; row < N; row++) {
        by[row] = (struct draw_rule){.temperature = 0.3f + 0.2f * (float)row, .top_p = 1};
        key[row] = rng_next(&rng);
        for (int i = 0; i < V; i++) { /* some rows of few numbers, many of them alike */
            const double u = rng_uniform(&rng);
            whole[row * V + i] = (float)(row % 2 ? 8 * u : floor(4 * u));
        }
    }
    const struct call_renoise one = MAKE(
        struct call_renoise, .logits = whole, .by = by, .key = key, .token = token[0],
        .drawn = drawn[0], .entropy = entropy[0], .n_rows = N, .n_vocab = V, .dtype = KERNEL_F32);
    ref_renoise(&one);
    for (int n = 2; n <= MOST; n *= 2) {
        for (int i = 0; i < N * V; i++) {
            divided[(i % V / (V / n) * N + i / V) * (V / n) + i % V % (V / n)] = whole[i];
        }
        for (int rank = 0; rank < n; rank++) {
            const struct call_renoise part =
                MAKE(struct call_renoise, .logits = divided + rank * N * (V / n), .by = by,
                     .key = key, .n_rows = N, .n_vocab = V / n, .dtype = KERNEL_F32,
                     .part = parts + rank * N, .first_token = rank * (V / n));
            ref_renoise(&part);
        }
        for (int row = 0; row < N; row++) {
            confidence[row] = row == 3 ? NAN : 2;
        }
        const struct call_renoise_combine all =
            MAKE(struct call_renoise_combine, .parts = parts, .by = by, .token = token[1],
                 .drawn = drawn[1], .confidence = confidence, .entropy = entropy[1], .n_rows = N,
                 .n_ranks = n);
        ref_renoise_combine(&all);
        ck_assert_mem_eq(token[0], token[1], sizeof token[0]);
        ck_assert_mem_eq(drawn[0], drawn[1], sizeof drawn[0]);
        for (int row = 0; row < N; row++) {
            double sum = 0;
            const float *of = whole + row * V;
            for (int i = 0; i < V; i++) {
                sum += exp((double)(of[i] - of[token[0][row]]) / (double)by[row].temperature);
            }
            ck_assert_float_eq_tol(entropy[0][row], entropy[1][row], 1e-6F);
            ck_assert(row == 3 ? isnan(confidence[row])
                               : fabs((double)confidence[row] * sum - 1) < 1e-6);
        }
    }
}

SUITE("rank kernels")
