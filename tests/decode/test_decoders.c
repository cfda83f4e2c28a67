/* Decoders: their rules against plain sorting, the kernels' reference implementations against the
 * rules, on random and on adversarial input; credit; what a decode process says besides
 * confidences. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "kernels/rules/keyed.h"
#include "sim/base/rng.h"
#include "sim/decode/choice.h"
#include "sim/decode/rollout.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/registry.h"
#include "tests/support/suite.h"

enum { MOST = 96, MASK = 7, HELD = 50 };

static uint32_t below(struct rng *rng, uint32_t n) {
    return (uint32_t)(rng_next(rng) % n);
}

/* A block's rows as the device has them: some masked, in order of their positions. */
struct rows {
    uint32_t n, n_masked;
    float confidence[MOST], margin[MOST], entropy[MOST];
    int32_t token[MOST], canvas[3 * MOST], after[3 * MOST];
    int64_t position[MOST], canvas_start;
    uint8_t committed[MOST];
    /* The masked ones. */
    uint32_t row[MOST], offset[MOST];
    float seen_values[3][MOST];
    struct decode_seen seen;
};

enum masks { SOME, ALL, ONE, N_MASKS };
enum values { SPREAD, COARSE, ALIKE, N_VALUES };

static float draw_value(struct rng *rng, enum values values) {
    return values == SPREAD   ? 0.001f + 0.998f * (float)rng_uniform(rng)
           : values == COARSE ? 0.0625f * (float)(1 + below(rng, 15))
                              : 0.5f;
}

static void draw_rows(struct rows *rows, struct rng *rng, uint32_t n, enum masks masks,
                      enum values values) {
    uint32_t only = below(rng, n), position = below(rng, 9);
    *rows = (struct rows){.n = n, .canvas_start = 5};
    for (uint32_t i = 0; i < n; i++) {
        position += 1 + (below(rng, 5) == 0);
        rows->position[i] = rows->canvas_start + position;
        rows->confidence[i] = draw_value(rng, values);
        rows->margin[i] = values == SPREAD ? rows->confidence[i] * (float)rng_uniform(rng)
                                           : 0.5f * rows->confidence[i];
        rows->entropy[i] =
            values == SPREAD ? -2 * (float)rng_uniform(rng) : rows->confidence[i] - 1;
        rows->token[i] = below(rng, 4) == 0 ? HELD : 100 + (int32_t)i;
        bool masked = masks == ALL || (masks == SOME && below(rng, 2)) || i == only;
        rows->canvas[rows->position[i]] = masked ? MASK : HELD;
        if (masked) {
            uint32_t at = rows->n_masked++;
            rows->row[at] = i;
            rows->offset[at] = position;
            rows->seen_values[0][at] = rows->confidence[i];
            rows->seen_values[1][at] = rows->margin[i];
            rows->seen_values[2][at] = rows->entropy[i];
        }
    }
    memcpy(rows->after, rows->canvas, sizeof rows->after);
    rows->seen = MAKE(struct decode_seen, .n = rows->n_masked, .first = 0, .offset = rows->offset,
                      .confidence = rows->seen_values[0], .margin = rows->seen_values[1],
                      .entropy = rows->seen_values[2]);
}

static struct decode_rule draw_rule(struct rng *rng) {
    struct decode_rule rule = MAKE(
        struct decode_rule, .kind = below(rng, DECODE_KINDS), .rank = below(rng, DECODE_RANKS),
        .threshold = (float)rng_uniform(rng) * 1.2f - 0.1f, .slack = below(rng, 2) ? 0.0625f : 0,
        .low = (float)rng_uniform(rng), .factor = 4 * (float)rng_uniform(rng),
        .bound = 4 * (float)rng_uniform(rng), .key = rng_next(rng));
    if (below(rng, 2)) { /* as coarse as values may be, which meet them then */
        rule.threshold = 0.0625f * roundf(16 * rule.threshold);
        rule.low = 0.0625f * roundf(16 * rule.low);
        rule.factor = 0.0625f * roundf(16 * rule.factor);
        rule.bound = 0.0625f * roundf(16 * rule.bound);
    }
    if (rule.kind == DECODE_ENTROPY_BOUNDED) {
        rule.rank = RANK_ENTROPY;
    }
    if (rule.kind == DECODE_JOINT) {
        rule.rank = RANK_CONFIDENCE;
        rule.edit = 0.0625f * (float)below(rng, 17);
    }
    if (rule.kind == DECODE_COUNT && below(rng, 2)) {
        rule.temperature = (float)exp(20 * rng_uniform(rng) - 10);
    }
    if (rule.kind == DECODE_HIERARCHICAL && rule.rank == RANK_ENTROPY) {
        rule.threshold = -rule.threshold;
        rule.low = -rule.low;
    }
    return rule;
}

static float value_of(const struct decode_rule *rule, const struct decode_seen *seen, uint32_t i) {
    const float draw = keyed_draw(rule->key, seen->first + seen->offset[i]);
    const float values[DECODE_RANKS] = {seen->confidence[i], seen->margin[i], seen->entropy[i], 0,
                                        draw};
    const float value = values[rule->rank];
    return rule->temperature > 0
               ? value + rule->temperature *
                             keyed_noise(rule->key, (uint64_t)seen->first + seen->offset[i])
               : value;
}

/* The same choices by sorting and by the rules' own words. */
static uint32_t naive(const struct decode_rule *rule, const struct decode_seen *seen,
                      uint32_t count, uint8_t *commit) {
    uint32_t order[MOST] = {0}, n = seen->n, taken = 1;
    for (uint32_t i = 0; i < n; i++) { /* stable: equal values stay in order */
        uint32_t at = i;
        for (; at > 0 && value_of(rule, seen, i) > value_of(rule, seen, order[at - 1]); at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    float best = value_of(rule, seen, order[0]), sum = -best;
    float least = rule->slack > 0 ? fminf(rule->threshold, best - rule->slack) : rule->threshold;
    for (bool goes = true; goes && taken < n; taken += goes) {
        float value = value_of(rule, seen, order[taken]);
        sum = sum - value;
        goes = rule->kind == DECODE_COUNT       ? taken < count
               : rule->kind == DECODE_THRESHOLD ? value >= least
               : rule->kind == DECODE_JOINT     ? value > rule->threshold || taken < count
               : rule->kind == DECODE_FACTOR    ? value >= 1.0f - rule->factor / (float)(taken + 2)
                                                : sum < rule->bound;
    }
    memset(commit, 0, n);
    for (uint32_t i = 0; i < taken && rule->kind != DECODE_HIERARCHICAL; i++) {
        commit[order[i]] = 1;
    }
    for (uint32_t i = 0, begin = 0; i < n && rule->kind == DECODE_HIERARCHICAL; i++) {
        if (i + 1 == n || seen->offset[i + 1] != seen->offset[i] + 1) {
            uint32_t leader = begin;
            for (uint32_t j = begin; j <= i; j++) {
                float value = value_of(rule, seen, j);
                leader = value > value_of(rule, seen, leader) ? j : leader;
                commit[j] = value > rule->threshold;
            }
            commit[leader] |= value_of(rule, seen, leader) > rule->low;
            begin = i + 1;
        }
    }
    commit[order[0]] = 1;
    uint32_t sum_of = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum_of += commit[i];
    }
    return sum_of;
}

/* The reference's choice of the same rows. */
static int32_t ref_choice(struct rows *rows, const struct decode_rule *rule, int32_t take,
                          bool has_canvas) {
    const int32_t first = 0, n = (int32_t)rows->n;
    int32_t n_committed = -7;
    struct call_decode call =
        MAKE(struct call_decode, .confidence = rows->confidence, .margin = rows->margin,
             .entropy = rows->entropy, .token = rows->token, .first_row = &first, .n_rows = &n,
             .take = &take, .threshold = &rule->threshold, .key = &rule->key,
             .canvas_start = &rows->canvas_start, .position = has_canvas ? rows->position : NULL,
             .canvas = has_canvas ? rows->after : NULL, .committed = rows->committed,
             .n_committed = &n_committed, .n_requests = 1, .max_rows = n, .mask_token = MASK,
             .rule = (enum decode_kind)rule->kind, .rank = (enum decode_rank)rule->rank,
             .slack = rule->slack, .low = rule->low, .factor = rule->factor, .bound = rule->bound,
             .edit = rule->edit, .temperature = rule->temperature, );
    memset(rows->committed, 9, sizeof rows->committed);
    ref_decode(&call);
    return n_committed;
}

static void assert_alike(struct rows *rows, const struct decode_rule *rule, uint32_t count) {
    uint8_t plain[MOST], chosen[MOST];
    uint32_t n = naive(rule, &rows->seen, count, plain);
    ck_assert_uint_eq(decode_choose(rule, &rows->seen, count, chosen), n);
    ck_assert_mem_eq(chosen, plain, rows->n_masked);
    ck_assert_uint_ge(n, 1);
    ck_assert_int_eq(ref_choice(rows, rule, (int32_t)count, true), (int32_t)n);
    for (uint32_t i = 0, at = 0; i < rows->n; i++) {
        bool masked = at < rows->n_masked && rows->row[at] == i;
        bool taken = masked && plain[at];
        bool revised = rule->kind == DECODE_JOINT && !masked && rows->confidence[i] > rule->edit &&
                       rows->token[i] != HELD;
        ck_assert_uint_eq(rows->committed[i], taken     ? DECIDE_COMMIT
                                              : revised ? DECIDE_REVISE
                                                        : DECIDE_NOTHING);
        ck_assert_int_eq(rows->after[rows->position[i]],
                         taken || revised ? rows->token[i] : rows->canvas[rows->position[i]]);
        at += masked;
    }
}

TEST(rules_reference_and_plain_sorting_choose_alike) {
    struct rng rng = rng_stream(1, "rules");
    struct rows rows;
    for (int round = 0; round < 40000; round++) {
        uint32_t n = 1 + below(&rng, round % 50 == 0 ? MOST : 20);
        draw_rows(&rows, &rng, n, (enum masks)(round % N_MASKS),
                  (enum values)(round / N_MASKS % N_VALUES));
        struct decode_rule rule = draw_rule(&rng);
        assert_alike(&rows, &rule, 1 + below(&rng, rows.n_masked));
    }
}

/* Limits that values meet exactly. */
TEST(values_at_a_limit_fall_on_the_side_that_the_rule_says) {
    const uint32_t offset[4] = {0, 1, 2, 3};
    const float confidence[4] = {0.5f, 0.75f, 0.5f, 0.25f}, entropy[4] = {-1, -0.5f, -1, -2};
    const struct decode_seen seen =
        MAKE(struct decode_seen, .n = 4, .offset = offset, .confidence = confidence,
             .margin = confidence, .entropy = entropy);
    uint8_t commit[4];
    struct decode_rule rule = {.kind = DECODE_THRESHOLD, .threshold = 0.5f};
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 3); /* at it: goes */
    rule = (struct decode_rule){.kind = DECODE_THRESHOLD, .threshold = 2, .slack = 0.25f};
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 3);
    rule = (struct decode_rule){.kind = DECODE_HIERARCHICAL, .threshold = 0.5f, .low = 0.75f};
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 1); /* at them: stays */
    ck_assert(commit[1]);
    /* The second needs 1 - 1.5 / 3, the third 1 - 1.5 / 4. */
    rule = (struct decode_rule){.kind = DECODE_FACTOR, .factor = 1.5f};
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 2);
    ck_assert(commit[1] && commit[0]); /* the earlier one of equals */
    rule =
        (struct decode_rule){.kind = DECODE_ENTROPY_BOUNDED, .rank = RANK_ENTROPY, .bound = 1.5f};
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 1); /* adding up to it: stays */
    rule.bound = 1.625f;
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 2);
}

/* A run is split by its best position; masks that are neighbours are one run. */
TEST(a_run_of_masks_commits_its_best) {
    const uint32_t offset[7] = {0, 1, 2, 5, 6, 8, 9};
    const float confidence[7] = {0.5f, 0.6f, 0.6f, 0.3f, 0.2f, 0.41f, 0.95f};
    const struct decode_seen seen = {.n = 7, .offset = offset, .confidence = confidence};
    const struct decode_rule rule = {.kind = DECODE_HIERARCHICAL, .threshold = 0.92f, .low = 0.4f};
    const uint8_t expected[7] = {0, 1, 0, 0, 0, 0, 1};
    uint8_t commit[7];
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 2);
    ck_assert_mem_eq(commit, expected, 7);
}

TEST(a_row_that_is_no_number_is_refused_and_nothing_is_committed) {
    struct rng rng = rng_stream(2, "not numbers");
    struct rows rows;
    for (int round = 0; round < 4000; round++) {
        draw_rows(&rows, &rng, 1 + below(&rng, 20), (enum masks)(round % N_MASKS), SPREAD);
        struct decode_rule rule = draw_rule(&rng);
        const bool of_masked = round % 4 > 0;
        uint32_t row = rows.row[below(&rng, rows.n_masked)];
        if (!of_masked) { /* a position that is decided already may be anything */
            for (row = 0; row < rows.n && rows.canvas[rows.position[row]] == MASK; row++) {
            }
        }
        if (row == rows.n) {
            continue;
        }
        float *values[] = {rows.confidence, rows.margin, rows.entropy};
        for (int i = 0; i < 3; i++) {
            values[i][row] = round % 2 ? NAN : -NAN;
        }
        int32_t n = ref_choice(&rows, &rule, 1, true);
        if (of_masked || rule.kind == DECODE_JOINT) {
            const uint8_t nothing[MOST] = {0};
            ck_assert_int_eq(n, DECODE_NOT_NUMBERS);
            ck_assert_mem_eq(rows.committed, nothing, rows.n);
            ck_assert_mem_eq(rows.after, rows.canvas, sizeof rows.after);
        } else {
            ck_assert_int_ge(n, 1);
        }
    }
}

/* A row whose token is the mask goes after all others, under every rule; where there is no other
 * the first of them goes. */
TEST(a_row_that_would_stay_masked_decides_last) {
    struct rng rng = rng_stream(4, "mask tokens");
    struct rows rows, others;
    for (int round = 0; round < 8000; round++) {
        draw_rows(&rows, &rng, 1 + below(&rng, 20), ALL, SPREAD);
        struct decode_rule rule = draw_rule(&rng);
        uint32_t n_others = 0, share = 1 + below(&rng, 4);
        rule.slack = 0; /* else a best that is infinitely far takes all */
        rule.temperature = 0;
        rule.rank = rule.rank == RANK_DRAW ? RANK_ORDER : rule.rank;
        for (uint32_t i = 0; i < rows.n; i++) {
            rows.token[i] = below(&rng, share) == 0 ? MASK : HELD;
            n_others += rows.token[i] != MASK;
        }
        others = rows;
        for (uint32_t i = 0; i < rows.n; i++) { /* the same rows, as if the others were all */
            others.canvas[others.position[i]] = rows.token[i] == MASK ? HELD : MASK;
            others.token[i] = HELD;
        }
        memcpy(others.after, others.canvas, sizeof others.after);
        const int32_t take = 1 + (int32_t)below(&rng, n_others > 0 ? n_others : 1);
        const int32_t n = ref_choice(&rows, &rule, take, true);
        if (n_others == 0) {
            ck_assert_int_eq(n, 1);
            ck_assert_int_eq(rows.committed[0], DECIDE_COMMIT);
            ck_assert_int_eq(rows.after[rows.position[0]], MASK);
        } else if (rule.kind != DECODE_HIERARCHICAL) { /* whose runs they part */
            ck_assert_int_eq(n, ref_choice(&others, &rule, take, true));
            for (uint32_t i = 0; i < rows.n; i++) {
                ck_assert_int_eq(rows.committed[i] == DECIDE_COMMIT,
                                 rows.token[i] != MASK && others.committed[i] == DECIDE_COMMIT);
            }
        }
    }
}

TEST(without_masks_nothing_is_committed_and_without_a_canvas_every_row_counts) {
    struct rng rng = rng_stream(3, "masks");
    struct rows rows;
    for (int round = 0; round < 2000; round++) {
        draw_rows(&rows, &rng, 1 + below(&rng, 20), ALL, COARSE);
        struct decode_rule rule = draw_rule(&rng);
        int32_t take = 1 + (int32_t)below(&rng, rows.n);
        for (uint32_t i = 0; i < rows.n; i++) {
            rows.after[rows.position[i]] = HELD;
            rows.token[i] = HELD; /* nothing to replace */
        }
        ck_assert_int_eq(ref_choice(&rows, &rule, take, true), 0);
        for (uint32_t i = 0; i < rows.n; i++) {
            ck_assert_uint_eq(rows.committed[i], 0);
            rows.offset[i] = i;
        }
        uint8_t plain[MOST];
        int32_t n = (int32_t)naive(&rule, &rows.seen, (uint32_t)take, plain);
        ck_assert_int_eq(ref_choice(&rows, &rule, take, false), n);
        ck_assert_mem_eq(rows.committed, plain, rows.n);
    }
}

TEST(draws_are_uniform) {
    struct rng rng = rng_stream(4, "draws");
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t key = rng_next(&rng), position = rng_next(&rng) >> below(&rng, 60);
        float draw = keyed_draw(key, position);
        ck_assert(draw >= 0 && draw < 1);
        sum += (double)draw;
    }
    ck_assert_double_eq_tol(sum / 100000, 0.5, 0.005);
}

TEST(noise_is_gumbels) {
    struct rng rng = rng_stream(5, "noise");
    enum { N = 200000 };
    double sum = 0, squares = 0, least = 0, most = 0;
    for (int i = 0; i < N; i++) {
        uint64_t key = rng_next(&rng), position = rng_next(&rng) >> below(&rng, 60);
        float noise = keyed_noise(key, position);
        double u = (double)(2 * (keyed_bits(key, position) >> 41) + 1) * 0x1p-24;
        double exact = -log(-log(u)), scale = fmax(1, fabs(exact));
        ck_assert_double_eq_tol((double)noise, exact, 4e-7 * scale);
        sum += (double)noise;
        squares += (double)noise * (double)noise;
        least = fmin(least, (double)noise);
        most = fmax(most, (double)noise);
    }
    double mean = sum / N, variance = squares / N - mean * mean;
    ck_assert_double_eq_tol(mean, 0.5772156649, 4 * 1.2825 / sqrt(N));
    ck_assert_double_eq_tol(variance, M_PI * M_PI / 6, 0.03);
    ck_assert(least < -2.2 && least > -2.83 && most > 10 && most < 16.7);
}

/* Two of four by the softmax of their values over a temperature, drawn one after the other without
 * the first: the six pairs against their probabilities, chi-square at 5 degrees of freedom, which
 * is over 20.5 once in a thousand times. */
static double chi_square_of_pairs(struct decode_rule rule, const struct decode_seen *seen,
                                  const float *value, const double *p_or_null) {
    enum { N_DRAWS = 60000 };
    double p[4], sum = 0, misfit = 0;
    int counts[16] = {0};
    for (int i = 0; i < 4; i++) {
        p[i] = p_or_null != NULL ? p_or_null[i]
                                 : exp((double)(value[i] - value[0]) / (double)rule.temperature);
        sum += p[i];
    }
    for (uint64_t id = 0; id < N_DRAWS; id++) {
        uint8_t commit[4];
        rule.key = rng_key(1, id, 3);
        ck_assert_uint_eq(decode_choose(&rule, seen, 2, commit), 2);
        counts[commit[0] + 2 * commit[1] + 4 * commit[2] + 8 * commit[3]]++;
    }
    for (int i = 0; i < 4; i++) {
        for (int j = i + 1; j < 4; j++) {
            double a = p[i] / sum, b = p[j] / sum;
            double expected = N_DRAWS * (a * b / (1 - a) + b * a / (1 - b));
            double off = counts[(1 << i) + (1 << j)] - expected;
            misfit += off * off / expected;
        }
    }
    return misfit;
}

TEST(a_temperature_draws_positions_without_replacement) {
    const uint32_t offset[4] = {0, 2, 3, 9};
    const float confidence[4] = {0.5f, 0.75f, 0.25f, 0.625f}, margin[4] = {0.1f, 0.6f, 0.05f, 0.3f},
                entropy[4] = {-1.5f, -0.5f, -3, -1};
    const struct decode_seen seen =
        MAKE(struct decode_seen, .n = 4, .first = 64, .offset = offset, .confidence = confidence,
             .margin = margin, .entropy = entropy);
    const float *values[] = {confidence, margin, entropy};
    const float temperatures[] = {0.2f, 1, 5};
    for (uint32_t rank = 0; rank <= RANK_ENTROPY; rank++) {
        struct decode_rule rule = {.kind = DECODE_COUNT, .rank = rank};
        uint8_t commit[4];
        for (int t = 0; t < 3; t++) {
            rule.temperature = temperatures[t];
            ck_assert_double_lt(chi_square_of_pairs(rule, &seen, values[rank], NULL), 20.5);
        }
        const double uniform[4] = {1, 1, 1, 1};
        rule.temperature = 1e6f;
        ck_assert_double_lt(chi_square_of_pairs(rule, &seen, values[rank], uniform), 20.5);
        ck_assert_double_gt(
            chi_square_of_pairs(rule, &seen, values[rank], (const double[4]){1, 1.1, 1, 1}), 20.5);
        rule.temperature = 1e-4f; /* the best two, whatever is drawn */
        for (rule.key = 0; rule.key < 2000; rule.key++) {
            ck_assert_uint_eq(decode_choose(&rule, &seen, 2, commit), 2);
            ck_assert(commit[1] && commit[3]);
        }
    }
}

static const struct decoder *decoder_named(const char *name) {
    struct err err = {0};
    const struct decoder *decoder = (const struct decoder *)policy_find(POLICY_DECODER, name, &err);
    ck_assert_msg(decoder != NULL, "%s", err.text);
    return decoder;
}

TEST(the_first_of_equally_sure_positions_of_a_small_block_is_committed) {
    static const float confidence[] = {0.2f, 0.4f, 0.4f, 0.9f};
    const struct decode_seen seen = {.n = 4, .confidence = confidence};
    const struct request request = {.window.length = 32,
                                    .window.masked = 27}; /* 3 of the first 8 */
    const struct decoder *decoder = decoder_named("small-blocks");
    void *state = policy_state(&decoder->policy);
    uint8_t commit[4];
    ck_assert_uint_eq(decoder->choose(state, &request, &seen, commit), 1);
    ck_assert(!commit[0] && commit[1] && !commit[2] && !commit[3]);
    free(state);
}

/* The released code's numbers (dream-org/Dream), with at least one a step. */
TEST(dreams_time_grid_releases_what_the_released_code_does) {
    static const char *const names[] = {"maskgit-plus", "margin", "entropy"};
    for (int i = 0; i < 3; i++) {
        const struct decoder *decoder = decoder_named(names[i]);
        void *state = policy_state(&decoder->policy);
        for (uint32_t n = 1; n <= 64; n++) {
            for (uint32_t steps = 1; steps <= 70; steps += 3) {
                struct request request = {
                    .window.length = n, .steps_per_block = steps, .window.masked = n};
                while (window_masked(&request) > 0) {
                    double t = 1 - (1 - 1e-3) * window_steps(&request) / steps;
                    double s = 1 - (1 - 1e-3) * (window_steps(&request) + 1) / steps;
                    bool is_last = window_steps(&request) + 1 == steps;
                    double share = is_last ? 1 : 1 - s / t;
                    uint32_t expected = (uint32_t)(window_masked(&request) * share + 1e-9);
                    uint32_t repeat, count = decoder->count(state, &request, &repeat);
                    ck_assert_uint_eq(count, expected > 0 ? expected : 1);
                    ck_assert_uint_eq(repeat, 1);
                    request.window.masked -= count;
                    request.window.steps++;
                }
                ck_assert_uint_le(window_steps(&request), steps);
            }
        }
        free(state);
    }
}

/* alg_temp reaches the rule, with a key of its own for every request and step; 0 leaves the rule as
 * it is without. */
TEST(dreams_decoders_draw_by_alg_temp) {
    static const struct {
        const char *name;
        uint32_t rank;
    } ranked[] = {
        {"maskgit-plus", RANK_CONFIDENCE}, {"margin", RANK_MARGIN}, {"entropy", RANK_ENTROPY}};
    for (int i = 0; i < 3; i++) {
        const struct decoder *decoder = decoder_named(ranked[i].name);
        void *state = policy_state(&decoder->policy);
        struct request request = {.id = 7, .window.length = 8, .steps_per_block = 8};
        struct decode_rule rule = decoder_rule(decoder, state, &request);
        ck_assert(rule.temperature == 0 && rule.key == 0);
        ck_assert_uint_eq(rule.rank, ranked[i].rank);
        struct err err = {0};
        const struct policy *policy = &decoder->policy;
        ck_assert_int_eq(param_set(policy->params, policy->n_params, state, "decoder", "test",
                                   "alg_temp", "0.25", &err),
                         0);
        rule = decoder_rule(decoder, state, &request);
        ck_assert(rule.temperature == 0.25f);
        ck_assert_uint_eq(rule.rank, ranked[i].rank);
        request.window.steps++;
        const struct decode_rule next = decoder_rule(decoder, state, &request);
        request.id++;
        const struct decode_rule other = decoder_rule(decoder, state, &request);
        ck_assert(rule.key != next.key && next.key != other.key && rule.key != other.key);
        free(state);
    }
}

TEST(origin_releases_its_share_at_random_and_everything_at_the_end) {
    const struct decoder *origin = decoder_named("origin");
    void *state = policy_state(&origin->policy);
    uint32_t offset[MOST];
    float confidence[MOST];
    uint8_t commit[MOST];
    for (uint32_t i = 0; i < MOST; i++) {
        offset[i] = i;
        confidence[i] = 0.5f;
    }
    struct decode_seen seen = {.n = MOST, .offset = offset, .confidence = confidence};
    double sum = 0;
    for (uint64_t id = 0; id < 2000; id++) {
        struct request request = {.id = id, .steps_per_block = 8, .window.length = MOST};
        struct decode_rule rule = decoder_rule(origin, state, &request);
        sum += decode_choose(&rule, &seen, 0, commit);
        request.window.steps = 7;
        rule = decoder_rule(origin, state, &request);
        ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), MOST);
    }
    ck_assert_double_eq_tol(sum / 2000, MOST * (1 - 1e-3) / 8, 0.3);
    free(state);
}

/* dInfer's own words: a matrix, the softmax of all logits. */
struct matrix {
    double earned[9];
    float alpha, beta, gamma;
};

static void softmax_best(const double *logits, int32_t n, int32_t *best, double *p) {
    double sum = 0;
    *best = 0;
    for (int32_t i = 1; i < n; i++) {
        *best = logits[i] > logits[*best] ? i : *best;
    }
    for (int32_t i = 0; i < n; i++) {
        sum += exp(logits[i] - logits[*best]);
    }
    *p = 1 / sum;
}

static void matrix_pass(struct matrix *m, const float *logits, int32_t *token, double *p) {
    double raised[9];
    for (int32_t i = 0; i < 9; i++) {
        m->earned[i] *= (double)m->beta;
        raised[i] = (double)logits[i];
    }
    softmax_best(raised, 9, token, p);
    m->earned[*token] += pow(*p, (double)m->gamma);
    for (int32_t i = 0; i < 9; i++) {
        raised[i] += (double)m->alpha * log(1 + m->earned[i]);
    }
    softmax_best(raised, 9, token, p);
}

TEST(lists_of_credit_are_the_matrix_that_dinfer_keeps) {
    enum { V = 9, SLOTS = 9 };
    struct rng rng = rng_stream(5, "credit");
    for (int round = 0; round < 300; round++) {
        struct matrix m = {.alpha = 1.5f * (float)rng_uniform(&rng),
                           .beta = (float)rng_uniform(&rng),
                           .gamma = (float)rng_uniform(&rng)};
        int32_t state[2 * (2 * SLOTS + 2)] = {0}, token[2], other[2] = {3, 3};
        const int32_t lists[2] = {1, -1};
        float logits[2][V], confidence[2];
        for (int pass = 0; pass < 12; pass++) {
            for (int32_t i = 0; i < V; i++) {
                logits[0][i] = logits[1][i] = (float)(6 * rng_uniform(&rng));
            }
            struct call_sample sample =
                MAKE(struct call_sample, .logits = logits, .token = token, .confidence = confidence,
                     .n_rows = 2, .n_vocab = V, .dtype = KERNEL_F32);
            ck_assert(ref_sample(&sample));
            other[0] = token[1];
            struct call_credit call =
                MAKE(struct call_credit, .logits = logits, .token = token, .confidence = confidence,
                     .state = state, .lists = lists, .n_rows = 2, .n_vocab = V, .n_slots = SLOTS,
                     .alpha = m.alpha, .beta = m.beta, .gamma = m.gamma, .dtype = KERNEL_F32);
            const float before = confidence[1];
            ref_credit(&call);
            int32_t expected;
            double p;
            matrix_pass(&m, logits[0], &expected, &p);
            ck_assert_int_eq(token[0], expected);
            ck_assert_double_eq_tol((double)confidence[0], p, 2e-6);
            ck_assert(token[1] == other[0] && confidence[1] == before); /* it has no list */
        }
        for (int i = 0; i < 2 * SLOTS + 2; i++) {
            ck_assert_int_eq(state[i], 0); /* list 0 is nobody's */
        }
    }
}

TEST(credit_is_for_masked_positions_and_a_full_list_forgets_the_least) {
    enum { V = 8, SLOTS = 2 };
    int32_t state[2 * SLOTS + 2] = {0}, token = 0, canvas = 50;
    const int32_t list = 0;
    const int64_t position = 0;
    float logits[V] = {0}, confidence = 0.5f;
    struct call_credit call =
        MAKE(struct call_credit, .logits = logits, .token = &token, .confidence = &confidence,
             .state = state, .lists = &list, .position = &position, .canvas = &canvas, .n_rows = 1,
             .n_vocab = V, .n_slots = SLOTS, .mask_token = MASK, .alpha = 0.7f, .beta = 0.8f,
             .gamma = 0.2f, .dtype = KERNEL_F32);
    ref_credit(&call);
    ck_assert(state[0] == 0 && confidence == 0.5f);
    canvas = MASK;
    confidence = NAN;
    ref_credit(&call);
    ck_assert(state[0] == 0 && isnan(confidence));
    for (int32_t t = 0; t < 3; t++) {
        memset(logits, 0, sizeof logits);
        logits[t] = 9;
        token = t;
        confidence = 0.9f;
        ref_credit(&call);
        ck_assert_int_eq(token, t);
        ck_assert(confidence > 0.9f && confidence < 1);
    }
    ck_assert_int_eq(state[0], SLOTS);
    ck_assert((state[2] == 2 && state[3] == 1) || (state[2] == 1 && state[3] == 2));
}

TEST(credit_raises_a_probability_against_unchanged_others) {
    const struct decode_credit credit = {.alpha = 0.7f, .beta = 0.8f, .gamma = 0.2f};
    ck_assert_float_eq(credit_raise(&credit, 0, 0.3f), 0.3f);
    double p = 0.3, b = 0.7 * log(1 + 2.0);
    ck_assert_double_eq_tol((double)credit_raise(&credit, 2, 0.3f),
                            p * exp(b) / (p * exp(b) + 1 - p), 1e-6);
    ck_assert_float_le(credit_raise(&credit, 1e6f, 1 - FLT_EPSILON / 2), 1 - FLT_EPSILON / 2);
}

static const struct decode_process middling = {.location = 1.5,
                                               .distance = 3,
                                               .gap = 4,
                                               .context = 1,
                                               .position_spread = 2,
                                               .step_spread = 1,
                                               .tail_spread = 1};

TEST(margin_and_entropy_are_those_of_a_distribution) {
    enum { B = 64, TAIL = 4000 };
    uint8_t masked[B];
    float confidence[B], margin[B], entropy[B];
    for (uint32_t i = 0; i < B; i++) {
        masked[i] = i % 3 > 0;
    }
    for (uint64_t request = 0; request < 20; request++) {
        struct decode_view view =
            MAKE(struct decode_view, .request = request, .block_start = B, .block_length = B,
                 .step_in_block = (uint32_t)request % 5, .masked = masked);
        struct decode_process process = middling;
        process.independent = request % 2;
        process.a = 2;
        process.b = 1;
        process_confidence(&process, 3, &view, confidence);
        process_statistics(&process, 3, &view, confidence, margin, entropy);
        for (uint32_t i = 0; i < B; i++) {
            if (!masked[i]) {
                ck_assert(margin[i] == 0 && entropy[i] == 0);
                continue;
            }
            double p = (double)confidence[i];
            ck_assert(margin[i] >= 0 && margin[i] <= confidence[i] && entropy[i] <= 0);
            ck_assert(isfinite(entropy[i]));
            /* Where the second is not cut, q follows from the margin, and the entropy from q. */
            double q = (p - (double)margin[i]) / (1 - p);
            if (margin[i] > 0 && p < 0.99 && q > 0.02) {
                double sum = p * log(p), left = 1 - p;
                for (int k = 0; k < TAIL && left * q > 1e-300; k++) {
                    sum += left * q * log(left * q);
                    left *= 1 - q;
                }
                ck_assert_double_eq_tol((double)entropy[i], sum, 1e-3 * (1 - sum));
            }
        }
    }
}

/* Draws depend on request, position and step alone: not on what else is masked. */
TEST(statistics_and_credit_do_not_depend_on_other_positions) {
    enum { B = 16 };
    const struct decode_credit credit = {.alpha = 0.7f, .beta = 0.8f, .gamma = 0.2f};
    struct decode_process process = middling;
    process.distance = process.context = 0;
    float results[2][3], earned[2][2 * B] = {{0}};
    for (int way = 0; way < 2; way++) {
        uint8_t masked[B], all[B];
        float confidence[B], margin[B], entropy[B];
        memset(all, 1, sizeof all);
        for (uint32_t i = 0; i < B; i++) {
            masked[i] = way == 0 || i == 9;
        }
        struct decode_view view =
            MAKE(struct decode_view, .request = 4, .block_start = 32, .block_length = B,
                 .step_in_block = 2, .step = way ? 2 : 77, .masked = masked);
        process_confidence(&process, 3, &view, confidence);
        process_statistics(&process, 3, &view, confidence, margin, entropy);
        process_credit(&credit, 3, &view, all, earned[way], confidence);
        results[way][0] = confidence[9];
        results[way][1] = margin[9];
        results[way][2] = entropy[9];
    }
    ck_assert_mem_eq(results[0], results[1], sizeof results[0]);
    ck_assert_mem_eq(&earned[0][18], &earned[1][18], 2 * sizeof(float));
    for (uint32_t i = 0; i < 2 * B; i++) {
        ck_assert(i / 2 == 9 || earned[1][i] == 0);
    }
}

/* A position has settled on its token as often as its confidence says. */
TEST(the_most_likely_token_is_the_settled_one_as_often_as_confidence_says) {
    enum { B = 64, BINS = 5 };
    const struct decode_credit credit = {.alpha = 0, .beta = 1, .gamma = 0};
    double settled[BINS] = {0}, n[BINS] = {0}, sum[BINS] = {0};
    uint8_t all[B];
    memset(all, 1, sizeof all);
    for (uint64_t request = 0; request < 400; request++) {
        float confidence[B], earned[2 * B] = {0}, before[B];
        struct decode_view view = {.request = request, .block_length = B, .masked = all};
        process_confidence(&middling, 3, &view, confidence);
        memcpy(before, confidence, sizeof before);
        process_credit(&credit, 3, &view, all, earned, confidence);
        for (uint32_t i = 0; i < B; i++) {
            int bin = (int)(before[i] * BINS);
            settled[bin] += (double)earned[2 * i];
            sum[bin] += (double)before[i];
            n[bin]++;
            ck_assert(earned[2 * i] + earned[2 * i + 1] == 1);
        }
    }
    for (int bin = 0; bin < BINS; bin++) {
        ck_assert_double_gt(n[bin], 300);
        ck_assert_double_eq_tol(settled[bin] / n[bin], sum[bin] / n[bin], 0.06);
    }
}

/* As to draw confidences, round them to single precision and take the largest. In the steps named
 * the largest two of all 4,096 round to one number, and the earlier has the smaller draw. */
TEST(the_surest_positions_are_those_whose_confidences_are_the_largest) {
    enum { N = 4096, STEPS = 300 };
    static const uint32_t equal_in[] = {1016, 1431, 14957, 19330, 26026, 37104, 56532};
    enum { N_EQUAL = sizeof equal_in / sizeof equal_in[0] };
    static uint8_t masked[N], wanted[N], surest[N], picked[N];
    static double draws[N];
    static uint32_t offset[N], places[N];
    static float confidence[N], seen_confidence[N];
    const struct decode_process processes[] = {process_kumaraswamy(2, 1), process_kumaraswamy(1, 1),
                                               process_kumaraswamy(3.5, 1)};
    const struct decode_rule rule = {.kind = DECODE_COUNT, .rank = RANK_CONFIDENCE};
    for (uint32_t k = 0; k < STEPS + N_EQUAL; k++) {
        const bool is_equal = k >= STEPS;
        const struct decode_process *process = &processes[is_equal ? 0 : k % 3];
        const uint32_t length = is_equal ? N : 1 + k % 70, taken = is_equal ? 1 : 1 + k % 4;
        struct decode_view view = {.block_length = length,
                                   .step = is_equal ? equal_in[k - STEPS] : k,
                                   .masked = masked,
                                   .wanted = k % 5 == 0 ? NULL : wanted};
        for (uint32_t i = 0; i < length; i++) {
            masked[i] = is_equal || rng_keyed(1, k, 0, i) < 0.5;
            wanted[i] = masked[i] && (is_equal || rng_keyed(1, k, 1, i) < 0.7);
        }
        ck_assert(process_ranks_by_draws(process, &view));
        process_confidence(process, 7, &view, confidence);
        struct decode_seen seen = {.offset = places, .confidence = seen_confidence};
        for (uint32_t i = 0; i < length; i++) {
            places[seen.n] = i;
            seen_confidence[seen.n] = confidence[i];
            seen.n += confidence[i] > 0;
        }
        process_surest(process, 7, &view, taken, draws, offset, surest);
        if (seen.n > 0) {
            (void)decode_choose(&rule, &seen, taken < seen.n ? taken : seen.n, picked);
        }
        for (uint32_t i = 0; i < seen.n; i++) {
            ck_assert_uint_eq(surest[places[i]], picked[i]);
            surest[places[i]] = 0;
        }
        for (uint32_t i = 0; i < length; i++) {
            ck_assert_uint_eq(surest[i], 0);
        }
    }
}

TEST(confidences_that_do_not_grow_with_their_draws_are_not_told_by_them) {
    struct decode_process process = process_kumaraswamy(2, 1);
    struct decode_view view = {.block_length = 32, .behind_text = 1};
    ck_assert(!process_ranks_by_draws(&process, &view));
    view.behind_text = 0;
    const struct draw_rule draws = {.draws = true, .top_p = 1};
    view.drawing = &draws;
    ck_assert(!process_ranks_by_draws(&process, &view));
    view.drawing = NULL;
    ck_assert(process_ranks_by_draws(&process, &view));
    process.b = 2;
    ck_assert(!process_ranks_by_draws(&process, &view));
    ck_assert(!process_ranks_by_draws(&middling, &view));
}

static double steps_of(const struct rollout_rule *rule) {
    struct rollout sums = {0};
    for (uint64_t request = 0; request < 60; request++) {
        rollout_request(&middling, 9, request, rule, 4, &sums);
    }
    ck_assert_uint_eq(sums.decoded, (uint64_t)60 * 4 * rule->block_tokens);
    return rollout_tokens_per_step(&sums);
}

/* One process answers for all of them. */
TEST(rollouts_take_every_rule) {
    struct rollout_rule rule = {.block_tokens = 32,
                                .rule = {.kind = DECODE_THRESHOLD, .threshold = 0.9f}};
    double plain = steps_of(&rule);
    ck_assert_double_gt(plain, 1.5);
    rule.credits = true;
    rule.credit = (struct decode_credit){.alpha = 0, .beta = 0.8f, .gamma = 0.2f};
    ck_assert_double_eq(steps_of(&rule), plain);
    rule.credit.alpha = 0.7f;
    ck_assert_double_gt(steps_of(&rule), plain);
    rule.credits = false;
    rule.rule = (struct decode_rule){.kind = DECODE_HIERARCHICAL, .threshold = 0.9f, .low = 0.999f};
    ck_assert_double_eq_tol(steps_of(&rule), plain, 0.02 * plain);
    rule.rule.low = 0.62f;
    ck_assert_double_gt(steps_of(&rule), plain);
    rule.rule = (struct decode_rule){.kind = DECODE_FACTOR, .factor = 0};
    ck_assert_double_eq(steps_of(&rule), 1);
    rule.rule.factor = 1;
    ck_assert_double_gt(steps_of(&rule), 1.2);
    rule.rule =
        (struct decode_rule){.kind = DECODE_ENTROPY_BOUNDED, .rank = RANK_ENTROPY, .bound = 0.35f};
    ck_assert_double_gt(steps_of(&rule), 1);
    for (uint32_t rank = 0; rank < DECODE_RANKS; rank++) {
        rule.rule = (struct decode_rule){.kind = DECODE_COUNT, .rank = rank};
        rule.count = 4;
        ck_assert_double_eq(steps_of(&rule), 4);
    }
}

SUITE("decoders")
