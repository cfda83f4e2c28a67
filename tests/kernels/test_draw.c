/* Drawing tokens: the steps of a GPU's thread block, taken one thread after another, against the
 * reference implementation, bit for bit; what is drawn against its distribution; what top_k and
 * top_p keep against PyTorch; and where they end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/draw.h"
#include "sim/base/rng.h"
#include "tests/support/make.h"
#include "tests/support/suite.h"

enum { MOST_VOCAB = 5000 };

/* One row's results. */
struct drawn {
    int32_t token;
    float confidence, margin, entropy;
};

/* The most likely token and its probability, then the draw; `of_block`: by a block's steps. */
static struct drawn draw_of_row(const void *logits, enum kernel_dtype dtype, int32_t n,
                                const struct draw_rule *by, uint64_t bits, bool of_block) {
    struct drawn d;
    const struct call_sample first =
        MAKE(struct call_sample, .logits = logits, .token = &d.token, .confidence = &d.confidence,
             .margin = &d.margin, .entropy = &d.entropy, .n_rows = 1, .n_vocab = n, .dtype = dtype);
    ck_assert(ref_sample(&first));
    const struct call_draw call =
        MAKE(struct call_draw, .logits = logits, .token = &d.token, .confidence = &d.confidence,
             .margin = &d.margin, .entropy = &d.entropy, .bits = &bits, .by = by, .n_rows = 1,
             .n_vocab = n, .dtype = dtype);
    if (of_block) {
        cpu_draw(&call);
    } else {
        ck_assert(ref_draw(&call));
    }
    return d;
}

static struct drawn draw_float(const float *logits, int32_t n, const struct draw_rule *by,
                               uint64_t bits) {
    return draw_of_row(logits, KERNEL_F32, n, by, bits, true);
}

static struct draw_rule rule(double temperature, uint32_t top_k, double top_p) {
    return MAKE(struct draw_rule, .temperature = (float)temperature, .top_k = top_k, .top_p = top_p,
                .draws = true);
}

static uint64_t rng_below(struct rng *rng, uint64_t n) {
    return (uint64_t)(rng_uniform(rng) * (double)n);
}

static struct draw_rule some_rule(struct rng *rng) {
    static const double top_ps[] = {1, 1, 0, 0.3, 0.5, 0.9, 0.999999};
    static const uint32_t top_ks[] = {0, 0, 1, 2, 7, 50, 600, 100000};
    struct draw_rule by =
        rule(exp(3 * rng_uniform(rng) - 2), top_ks[rng_below(rng, 8)], top_ps[rng_below(rng, 7)]);
    by.of = (uint32_t)rng_below(rng, 3);
    by.draws = rng_below(rng, 4) > 0;
    return by;
}

/* Rows of every kind: noise, few distinct values, all alike, one far above, many of -infinity. */
static void fill(struct rng *rng, float *logits, int32_t n) {
    const uint64_t kind = rng_below(rng, 6);
    for (int32_t i = 0; i < n; i++) {
        double x = 12 * (rng_uniform(rng) - 0.5);
        logits[i] = kind == 1   ? (float)rng_below(rng, 3)
                    : kind == 2 ? -1.5f
                    : kind == 5 ? (rng_below(rng, 2) > 0 ? -INFINITY : (float)x)
                                : (float)x;
    }
    if (kind == 3 || kind == 5) {
        logits[rng_below(rng, (uint64_t)n)] = kind == 3 ? 80 : 1;
    }
    for (int32_t i = 0; kind == 4 && i < n; i += 2) {
        logits[i] = -0.0f; /* ties with 0 */
        logits[i < n - 1 ? i + 1 : i] = 0;
    }
}

TEST(a_blocks_steps_give_the_bits_of_the_reference) {
    static float logits[MOST_VOCAB];
    static uint16_t rounded[MOST_VOCAB];
    struct rng rng = rng_stream(3, "draws");
    for (int round = 0; round < 1500; round++) {
        const int32_t most = round % 10 == 0 ? MOST_VOCAB : 600;
        const int32_t n = 1 + (int32_t)rng_below(&rng, (uint64_t)most);
        const struct draw_rule by = some_rule(&rng);
        const bool is_half = round % 2 > 0;
        fill(&rng, logits, n);
        for (int32_t i = 0; i < n; i++) {
            rounded[i] = bf16_from_float(logits[i]);
        }
        const void *row = is_half ? (const void *)rounded : logits;
        const enum kernel_dtype dtype = is_half ? KERNEL_BF16 : KERNEL_F32;
        const uint64_t bits = round % 7 == 0 ? UINT64_MAX : keyed_mix((uint64_t)round);
        const struct drawn a = draw_of_row(row, dtype, n, &by, bits, true);
        const struct drawn b = draw_of_row(row, dtype, n, &by, bits, false);
        ck_assert_msg(memcmp(&a, &b, sizeof a) == 0,
                      "round %d: token %d, not %d; %.9g %.9g %.9g, not %.9g %.9g %.9g", round,
                      a.token, b.token, (double)a.confidence, (double)a.margin, (double)a.entropy,
                      (double)b.confidence, (double)b.margin, (double)b.entropy);
        ck_assert(a.confidence >= 0 && a.confidence <= 1 && a.margin >= 0 && a.margin <= 1 &&
                  a.entropy <= 1e-6f);
    }
}

TEST(a_rule_that_asks_for_nothing_leaves_a_row_as_it_is) {
    const float logits[] = {1, 3, 2};
    struct draw_rule by = rule(1, 0, 1);
    by.draws = false;
    for (int of_block = 0; of_block < 2; of_block++) {
        int32_t token = 2;
        float confidence = 0.125f, margin = 0.25f, entropy = -1;
        const struct call_draw call =
            MAKE(struct call_draw, .logits = logits, .token = &token, .confidence = &confidence,
                 .margin = &margin, .entropy = &entropy, .by = &by, .n_rows = 1, .n_vocab = 3,
                 .dtype = KERNEL_F32);
        ck_assert(of_block ? (cpu_draw(&call), true) : ref_draw(&call));
        ck_assert(token == 2 && confidence == 0.125f && margin == 0.25f && entropy == -1);
    }
}

/* ---- over ranks ---- */

enum { PART_ROWS = 3 };

/* What a rank has of some rows while they are drawn. */
struct partner {
    float logits[PART_ROWS * MOST_VOCAB];
    uint16_t rounded[PART_ROWS * MOST_VOCAB];
    int32_t token[PART_ROWS];
    float confidence[PART_ROWS], margin[PART_ROWS], entropy[PART_ROWS];
    struct draw_state state[PART_ROWS];
    struct draw_sums sent[PART_ROWS]; /* the largest of what is sent */
};

/* All parts on all ranks, which gather after each. */
static void draw_by_ranks(struct partner *partners, int n_ranks, struct call_draw_part call) {
    static struct draw_sums received[CALL_MAX_RANKS * PART_ROWS];
    const int bytes = call.of.dtype == KERNEL_F32 ? 4 : 2;
    for (call.part = 0;; call.part++) {
        const enum draw_step step = draw_part_of(call.part, call.cuts, bytes).step;
        const size_t size = PART_ROWS * (step == DRAW_SEARCH ? sizeof(struct draw_bins)
                                         : step == DRAW_FIND ? sizeof(struct draw_found)
                                                             : sizeof(struct draw_sums));
        for (call.rank = 0; call.rank < n_ranks; call.rank++) {
            struct partner *p = &partners[call.rank];
            call.of.logits = bytes == 4 ? (const void *)p->logits : p->rounded;
            call.of.token = p->token;
            call.of.confidence = p->confidence;
            call.of.margin = p->margin;
            call.of.entropy = p->entropy;
            call.state = p->state;
            call.sent = step == DRAW_FINISH ? NULL : p->sent;
            call.received = call.part > 0 ? received : NULL;
            ref_draw_part(&call);
        }
        if (step == DRAW_FINISH) {
            return;
        }
        for (int rank = 0; rank < n_ranks; rank++) {
            memcpy((unsigned char *)received + (size_t)rank * size, partners[rank].sent, size);
        }
    }
}

/* Rows that ranks divide, and what one device draws of them. */
struct divided {
    int n_ranks;
    int32_t part, n; /* tokens of a rank, of all */
    enum kernel_dtype dtype;
    bool cuts;
    struct draw_rule by[PART_ROWS];
    uint64_t bits[PART_ROWS];
    float top[PART_ROWS];
    struct drawn whole[PART_ROWS];
};

static void divide_row(struct divided *d, struct partner *partners, struct rng *rng, int row,
                       bool is_number) {
    static float logits[MOST_VOCAB];
    static uint16_t rounded[MOST_VOCAB];
    struct drawn first, *whole = &d->whole[row];
    fill(rng, logits, d->n);
    for (int32_t i = 0; i < d->n; i++) {
        struct partner *p = &partners[i / d->part];
        const int64_t at = (int64_t)row * d->part + i % d->part;
        p->logits[at] = logits[i];
        p->rounded[at] = rounded[i] = bf16_from_float(logits[i]);
    }
    const void *values = d->dtype == KERNEL_BF16 ? (const void *)rounded : logits;
    const struct call_sample sample =
        MAKE(struct call_sample, .logits = values, .token = &first.token,
             .confidence = &first.confidence, .margin = &first.margin, .entropy = &first.entropy,
             .logit = &d->top[row], .n_rows = 1, .n_vocab = d->n, .dtype = d->dtype);
    ck_assert(ref_sample(&sample));
    first.confidence = is_number ? first.confidence : NAN;
    for (int rank = 0; rank < d->n_ranks; rank++) {
        partners[rank].token[row] = first.token;
        partners[rank].confidence[row] = first.confidence;
        partners[rank].margin[row] = first.margin;
        partners[rank].entropy[row] = first.entropy;
    }
    *whole = first;
    const struct call_draw call = MAKE(
        struct call_draw, .logits = values, .token = &whole->token,
        .confidence = &whole->confidence, .margin = &whole->margin, .entropy = &whole->entropy,
        .bits = &d->bits[row], .by = &d->by[row], .n_rows = 1, .n_vocab = d->n, .dtype = d->dtype);
    ck_assert(ref_draw(&call));
}

static struct divided divide(struct partner *partners, struct rng *rng, int round) {
    struct divided d = {.n_ranks = 1 << rng_below(rng, 4),
                        .dtype = round % 2 > 0 ? KERNEL_BF16 : KERNEL_F32,
                        .cuts = round % 3 > 0};
    const int32_t most = (round % 10 == 0 ? MOST_VOCAB : 1200) / d.n_ranks;
    d.part = 1 + (int32_t)rng_below(rng, (uint64_t)most);
    d.n = d.part * d.n_ranks;
    for (int row = 0; row < PART_ROWS; row++) {
        d.by[row] = some_rule(rng);
        d.by[row].top_k = d.cuts ? d.by[row].top_k : 0;
        d.by[row].top_p = d.cuts ? d.by[row].top_p : 1;
        d.by[row].temperature = rng_below(rng, 4) > 0 ? d.by[row].temperature : 1;
        d.bits[row] = keyed_bits(31, (uint64_t)(round * PART_ROWS + row));
        divide_row(&d, partners, rng, row, row < 2 || round % 5 > 0);
    }
    return d;
}

TEST(ranks_that_divide_a_vocabulary_draw_the_bits_of_one_device) {
    static struct partner partners[CALL_MAX_RANKS];
    struct rng rng = rng_stream(29, "parts");
    for (int round = 0; round < 150; round++) {
        const struct divided d = divide(partners, &rng, round);
        draw_by_ranks(partners, d.n_ranks,
                      MAKE(struct call_draw_part,
                           .of = MAKE(struct call_draw, .bits = d.bits, .by = d.by,
                                      .n_rows = PART_ROWS, .n_vocab = d.part, .dtype = d.dtype),
                           .logit = d.top, .n_ranks = d.n_ranks, .cuts = d.cuts));
        for (int at = 0; at < d.n_ranks * PART_ROWS; at++) {
            const int rank = at / PART_ROWS, row = at % PART_ROWS;
            const struct partner *p = &partners[rank];
            const struct drawn got = {p->token[row], p->confidence[row], p->margin[row],
                                      p->entropy[row]};
            ck_assert_msg(memcmp(&got, &d.whole[row], sizeof got) == 0,
                          "round %d, rank %d of %d, row %d: token %d, not %d", round, rank,
                          d.n_ranks, row, got.token, d.whole[row].token);
        }
    }
}

/* Chi-square of 100,000 draws against probabilities; at most 5.5 standard deviations above its mean
 * (of some 30 degrees of freedom). */
static void check_distribution(const float *logits, int32_t n, const struct draw_rule *by,
                               const double *p) {
    enum { DRAWS = 100000 };
    static uint32_t count[MOST_VOCAB];
    memset(count, 0, sizeof count);
    for (uint64_t i = 0; i < DRAWS; i++) {
        const uint64_t key = rng_key(17, i / 100, i % 100);
        const struct drawn d = draw_float(logits, n, by, keyed_bits(key, i % 32));
        count[d.token]++;
    }
    double chi = 0, freedom = -1;
    for (int32_t i = 0; i < n; i++) {
        ck_assert_msg(p[i] > 0 || count[i] == 0, "token %d was cut off", i);
        if (p[i] > 0) {
            const double expected = DRAWS * p[i];
            ck_assert_double_gt(expected, 5);
            chi += (count[i] - expected) * (count[i] - expected) / expected;
            freedom++;
        }
    }
    ck_assert_double_lt(chi, freedom + 5.5 * sqrt(2 * freedom));
    ck_assert_double_gt(chi, fmax(0, freedom - 5.5 * sqrt(2 * freedom)));
}

/* Probabilities of a row without ties under a rule, in doubles; returns how many are kept. */
static int32_t kept_of(const float *logits, int32_t n, const struct draw_rule *by, double *p) {
    double all = 0, kept = 0, before = 0;
    int32_t n_kept = 0, most = by->top_k > 0 && by->top_k < (uint32_t)n ? (int32_t)by->top_k : n;
    int32_t order[64];
    for (int32_t i = 0; i < n; i++) {
        int32_t at = i;
        for (; at > 0 && logits[order[at - 1]] < logits[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
        p[i] = exp((double)logits[i] / (double)by->temperature);
    }
    for (int32_t i = 0; i < most; i++) {
        all += p[order[i]];
    }
    for (; n_kept < most && before <= by->top_p * all; n_kept++) {
        before += p[order[n_kept]];
    }
    kept = before;
    for (int32_t i = 0; i < n; i++) {
        p[order[i]] = i < n_kept ? p[order[i]] / kept : 0;
    }
    return n_kept;
}

TEST(tokens_are_drawn_by_their_probabilities) {
    static const struct draw_rule rules[] = {
        {1, 1, 0, 0, true},   {1, 0.5f, 0, 0, true},    {1, 2, 0, 0, true},     {1, 1, 7, 0, true},
        {0.8, 1, 0, 0, true}, {0.9, 0.7f, 12, 0, true}, {0.5, 1.5f, 0, 0, true}};
    float logits[32];
    double p[32];
    struct rng rng = rng_stream(5, "distribution");
    for (int32_t i = 0; i < 32; i++) {
        logits[i] = (float)(2.5 * rng_uniform(&rng));
    }
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const int32_t n = kept_of(logits, 32, &rules[i], p);
        ck_assert(i < 3 ? n == 32 : n < 32 && n > 1);
        check_distribution(logits, 32, &rules[i], p);
    }
}

TEST(confidence_margin_and_entropy_are_of_the_distribution_that_is_asked_for) {
    float logits[24];
    double p[24], model[24];
    struct rng rng = rng_stream(7, "confidences");
    for (int32_t i = 0; i < 24; i++) {
        logits[i] = (float)(6 * rng_uniform(&rng));
    }
    for (uint32_t of = 0; of < 3; of++) {
        struct draw_rule by = rule(0.7, 9, 0.9);
        const struct draw_rule whole = rule(of == DRAW_OF_MODEL ? 1 : 0.7, 0, 1);
        by.of = of;
        (void)kept_of(logits, 24, of == DRAW_OF_KEPT ? &by : &whole, model);
        double best = 0, second = 0, entropy = 0;
        for (int32_t i = 0; i < 24; i++) {
            second = model[i] > best ? best : fmax(second, model[i]);
            best = fmax(best, model[i]);
            entropy += model[i] > 0 ? model[i] * log(model[i]) : 0;
        }
        ck_assert_int_lt(kept_of(logits, 24, &by, p), 9);
        for (uint64_t i = 0; i < 200; i++) {
            by.draws = i % 4 > 0;
            const struct drawn d = draw_float(logits, 24, &by, keyed_mix(i));
            ck_assert(p[d.token] > 0);
            ck_assert_double_eq_tol((double)d.confidence, model[d.token], 2e-6);
            ck_assert_double_eq_tol((double)d.margin, best - second, 2e-6);
            ck_assert_double_eq_tol((double)d.entropy, entropy, 2e-6);
            ck_assert(by.draws || (double)d.confidence > best - 2e-6);
        }
    }
}

/* What a rule keeps of a row, found by drawing at every place: as many tokens as `kept` names. */
static void keeps(const float *logits, int32_t n, struct draw_rule by, const char *kept) {
    by.draws = true;
    char drawn[64] = "";
    for (uint64_t i = 0; i < 64; i++) {
        drawn[draw_float(logits, n, &by, (uint64_t)i << 58 | UINT64_C(1) << 57).token] = 'x';
    }
    for (int32_t i = 0; i < n; i++) {
        drawn[i] = drawn[i] == 'x' ? 'x' : '.';
    }
    ck_assert_str_eq(drawn, kept);
}

TEST(cuts_have_exact_edges) {
    static const float four[] = {1, 1, 1, 1}, tied[] = {0, 2, 2, 2, 0}, steps[] = {3, 2, 1, 0};
    /* Before the third of four equal tokens is exactly one half. */
    keeps(four, 4, rule(1, 0, 0.5), "xxx.");
    keeps(four, 4, rule(1, 0, 0.4999999), "xx..");
    keeps(four, 4, rule(1, 2, 0.5), "xx..");
    keeps(four, 4, rule(1, 2, 0.49), "x...");
    /* Of equal tokens the lower id stays. */
    keeps(tied, 5, rule(1, 2, 1), ".xx..");
    keeps(tied, 5, rule(1, 4, 1), "xxxx.");
    keeps(tied, 5, rule(1, 0, 0), ".x...");
    keeps(steps, 4, rule(1, 4, 1), "xxxx");
    keeps(steps, 4, rule(1, 400, 1), "xxxx");
    /* 0.644 0.237 0.087 0.032 */
    keeps(steps, 4, rule(1, 0, 0.64), "x...");
    keeps(steps, 4, rule(1, 0, 0.65), "xx..");
    keeps(steps, 4, rule(1, 0, 0.89), "xxx.");
    keeps(steps, 4, rule(0.5, 0, 0.89), "xx..");
}

TEST(one_token_no_mass_and_no_temperature_are_the_most_likely_token) {
    static float logits[700];
    struct rng rng = rng_stream(11, "argmax");
    const struct draw_rule rules[] = {
        rule(1, 1, 1), rule(1, 0, 0), rule(1e-6, 0, 1), {1, 3, 0, 0, false}};
    for (int round = 0; round < 200; round++) {
        int32_t best = 0;
        for (int32_t i = 0; i < 700; i++) {
            logits[i] = (float)rng_below(&rng, round % 2 > 0 ? 50 : 1000000);
            best = logits[i] > logits[best] ? i : best;
        }
        const size_t n = round % 2 > 0 ? 2 : 4; /* without a temperature equals stay equal */
        for (size_t i = 0; i < n; i++) {
            ck_assert_int_eq(draw_float(logits, 700, &rules[i], keyed_mix((uint64_t)round)).token,
                             best);
        }
    }
}

TEST(logits_that_are_no_numbers_stay_refused) {
    const float rows[][3] = {{1, NAN, 2}, {1, INFINITY, 2}, {-INFINITY, -INFINITY, -INFINITY}};
    const struct draw_rule by = rule(1, 2, 0.5);
    for (size_t i = 0; i < 3; i++) {
        ck_assert(isnan(draw_of_row(rows[i], KERNEL_F32, 3, &by, 1, true).confidence));
        ck_assert(isnan(draw_of_row(rows[i], KERNEL_F32, 3, &by, 1, false).confidence));
    }
}

TEST(a_row_is_drawn_alike_whatever_else_is_in_the_call) {
    enum { ROWS = 9, VOCAB = 1030 };
    static float logits[ROWS][VOCAB];
    int32_t token[ROWS];
    float confidence[ROWS];
    uint64_t bits[ROWS];
    struct rng rng = rng_stream(13, "rows");
    struct draw_rule by[ROWS];
    for (int row = 0; row < ROWS; row++) {
        by[row] = some_rule(&rng);
        fill(&rng, logits[row], VOCAB);
        bits[row] = keyed_bits(23, (uint64_t)row);
    }
    const struct call_sample first =
        MAKE(struct call_sample, .logits = logits, .token = token, .confidence = confidence,
             .n_rows = ROWS, .n_vocab = VOCAB, .dtype = KERNEL_F32);
    const struct call_draw call =
        MAKE(struct call_draw, .logits = logits, .token = token, .confidence = confidence,
             .bits = bits, .by = by, .n_rows = ROWS, .n_vocab = VOCAB, .dtype = KERNEL_F32);
    ck_assert(ref_sample(&first));
    cpu_draw(&call);
    for (int row = 0; row < ROWS; row++) {
        const struct drawn alone = draw_float(logits[row], VOCAB, &by[row], bits[row]);
        ck_assert_int_eq(alone.token, token[row]);
        ck_assert_float_eq(alone.confidence, confidence[row]);
    }
}

TEST(a_target_is_the_share_of_a_mass_that_bits_say) {
    ck_assert_uint_eq(draw_target(1000, 0), 0);
    ck_assert_uint_eq(draw_target(1000, UINT64_MAX), 999);
    ck_assert_uint_eq(draw_target(1000, UINT64_C(1) << 63), 500);
    ck_assert_uint_eq(draw_target(UINT64_C(3) << 60, UINT64_C(1) << 62), UINT64_C(3) << 58);
    ck_assert_uint_eq(draw_target(UINT64_MAX, UINT64_MAX), UINT64_MAX - 1);
    ck_assert_uint_eq(draw_target(UINT64_C(0xfedcba9876543210), UINT64_C(0x123456789abcdef1)),
                      UINT64_C(0x121fa00ad77d7423));
}

/* A line: temperature, top_k, top_p, logits, the tokens that are kept, -1 (kept.py beside it).
 * Tokens of less than a 2048th of the mass may be missed. */
TEST(what_is_kept_is_what_numpy_keeps) {
    FILE *file = fopen("tests/golden/sampling/kept.txt", "r");
    ck_assert_ptr_nonnull(file);
    int n_rows = 0, n_logits, kept;
    for (struct draw_rule by = rule(1, 0, 1);
         fscanf(file, "%f %u %lf %d", &by.temperature, &by.top_k, &by.top_p, &n_logits) == 4;
         n_rows++) {
        float logits[64];
        bool is_kept[64] = {false}, is_drawn[64] = {false};
        ck_assert_int_le(n_logits, 64);
        for (int i = 0; i < n_logits; i++) {
            ck_assert_int_eq(fscanf(file, "%f", &logits[i]), 1);
        }
        while (fscanf(file, "%d", &kept) == 1 && kept >= 0) {
            is_kept[kept] = true;
        }
        for (uint64_t i = 0; i < 4096; i++) {
            is_drawn[draw_float(logits, n_logits, &by, i << 52 | UINT64_C(1) << 51).token] = true;
        }
        for (int i = 0; i < n_logits; i++) {
            double sum = 0;
            for (int j = 0; j < n_logits; j++) {
                sum += is_kept[j] ? exp((double)((logits[j] - logits[i]) / by.temperature)) : 0;
            }
            ck_assert_msg(is_drawn[i] <= is_kept[i], "row %d: token %d is not kept", n_rows, i);
            ck_assert_msg(!is_kept[i] || is_drawn[i] || sum > 2048, "row %d: token %d is kept",
                          n_rows, i);
        }
    }
    fclose(file);
    ck_assert_int_eq(n_rows, 60);
}

SUITE("drawing tokens")
