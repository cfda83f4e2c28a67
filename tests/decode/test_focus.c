/* What FOCUS selects, and whole blocks rolled out under it. */
#include "tests/support/blocks.h"

static const struct focus_rule released = {.alpha = 1.5, .history = FOCUS_MEAN_OF_BLOCK};

TEST(the_budget_is_alpha_times_the_mean_rounded_up) {
    ck_assert_uint_eq(focus_target(32, 1, 1.5), 2);
    ck_assert_uint_eq(focus_target(32, 2.4, 1.5), 4);
    ck_assert_uint_eq(focus_target(32, 2, 1.5), 3);
    ck_assert_uint_eq(focus_target(32, 0.2, 1.5), 2); /* no mean below 1 */
    ck_assert_uint_eq(focus_target(32, 1, 0.1), 1);
    ck_assert_uint_eq(focus_target(3, 2.4, 1.5), 3);
    ck_assert_uint_eq(focus_target(0, 2.4, 1.5), 0);
    ck_assert_uint_eq(focus_target(32, 1, 1e300), 32);
}

TEST(the_average_is_the_released_codes_or_either_of_the_papers) {
    struct focus_rule rule = released;
    struct focus_yield yield;
    focus_yield_init(&yield);
    ck_assert_double_eq(yield.mean, 1);
    focus_yield_add(&yield, &rule, 3);
    focus_yield_add(&yield, &rule, 0); /* does not count */
    focus_yield_add(&yield, &rule, 2);
    ck_assert_double_eq(yield.mean, 2.5);
    focus_yield_begin_block(&yield, &rule);
    ck_assert_double_eq(yield.mean, 1);
    rule.history = FOCUS_MEAN;
    focus_yield_add(&yield, &rule, 4);
    focus_yield_begin_block(&yield, &rule);
    focus_yield_add(&yield, &rule, 1);
    ck_assert_double_eq(yield.mean, 2.5);
    rule = (struct focus_rule){.alpha = 1.5, .history = FOCUS_EMA, .ema_weight = 0.25};
    focus_yield_init(&yield);
    focus_yield_add(&yield, &rule, 5);
    ck_assert_double_eq(yield.mean, 2);
    focus_yield_begin_block(&yield, &rule);
    focus_yield_add(&yield, &rule, 2);
    ck_assert_double_eq(yield.mean, 2);
}

/* `block`: m masked, d decoded but not cached, c cached (not pending). Deltas are read as digits;
 * `kept` marks what must stay. */
static void expect_kept(const struct focus_rule *rule, const char *block, const char *digits,
                        double average, int32_t frontier, const char *kept) {
    uint8_t pending[16], masked[16], keep[16];
    float delta[16];
    uint32_t length = (uint32_t)strlen(block), n_kept = 0;
    ck_assert(strlen(digits) == length && strlen(kept) == length);
    for (uint32_t i = 0; i < length; i++) {
        masked[i] = block[i] == 'm';
        pending[i] = block[i] != 'c';
        delta[i] = digits[i] == '?' ? NAN : (float)(digits[i] - '0');
        n_kept += kept[i] == 'x';
    }
    uint32_t n = focus_select(rule, length, pending, masked, delta, average, frontier, keep);
    for (uint32_t i = 0; i < length; i++) {
        ck_assert_msg(keep[i] == (kept[i] == 'x'), "position %u of %s is %u, expected %s", i, block,
                      keep[i], kept);
    }
    ck_assert_uint_eq(n, n_kept);
}

TEST(the_largest_deltas_stay_where_few_stand_out) {
    /* Mean 1.25, deviation 2.05: one position stands out, two are the budget; 4 and 3 are it. */
    expect_kept(&released, "mmmmmmmm", "00010603", 1, 7, "....xxxx");
    /* A tie: the earlier of the three twos. */
    expect_kept(&released, "mmmmmmmm", "20020029", 1, 7, "x.....xx");
}

TEST(a_fixed_number_is_the_largest_the_smallest_or_drawn) {
    struct focus_rule rule = released;
    rule.k = 2;
    rule.choice = FOCUS_TOP; /* 9 stands out and would be enough of the rule's own */
    expect_kept(&rule, "mmmmmmmm", "02345619", 1, 7, "....xxxx");
    rule.choice = FOCUS_BOTTOM; /* and their left neighbours */
    expect_kept(&rule, "mmmmmmmm", "95037088", 1, 7, ".xx.xx..");
    rule.choice = FOCUS_LEFT;
    expect_kept(&rule, "mmmmmmmm", "02345619", 1, 7, "xx......");
    rule.k = 0; /* alpha times the mean: ceil(1.5 x 2) */
    expect_kept(&rule, "mmmmmmmm", "02345619", 2, 7, "xxx.....");
    rule.choice = FOCUS_TOP;
    expect_kept(&rule, "mmmmmmmm", "02345619", 2, 7, "...xxxxx");
    rule.k = 2;
    rule.choice = FOCUS_RANDOM;
    uint32_t seen[8] = {0};
    const uint8_t all[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const float delta[8] = {9};
    for (rule.key = 0; rule.key < 4000; rule.key++) {
        uint8_t keep[8];
        focus_select(&rule, 8, all, all, delta, 1, 7, keep);
        for (uint32_t i = 0; i < 8; i++) {
            seen[i] += keep[i] && (i == 7 || keep[i + 1] == 0);
        }
    }
    for (uint32_t i = 0; i < 6; i++) { /* drawn, and neither of the next two: 4000 x 1/4 x 5/7 */
        ck_assert(seen[i] > 620 && seen[i] < 810);
    }
}

TEST(all_that_stand_out_stay_where_they_fill_the_budget) {
    /* Mean 2.25, deviation 3.9: three nines stand out, the budget is two. */
    expect_kept(&released, "mmmmmmmmmmmm", "090009000900", 1, 11, "xx..xx..xx..");
    /* Eq. 5's deviation alone, the mean not added: the fives stand out as well. */
    struct focus_rule paper = released;
    paper.std_alone = true;
    expect_kept(&released, "mmmmmmmmmmmm", "090509050900", 1, 11, "xx..xx..xx..");
    expect_kept(&paper, "mmmmmmmmmmmm", "090509050900", 1, 11, "xxxxxxxxxx..");
    /* No spread at all: every position stands out. */
    expect_kept(&released, "mmmmmm", "333333", 1, 5, "xxxxxx");
}

TEST(the_left_neighbour_of_a_selected_position_stays_if_it_is_masked) {
    expect_kept(&released, "mmmmmmmm", "00090008", 1, 7, "..xx..xx");
    /* Decoded neighbours stay for another reason, cached ones are not run. */
    expect_kept(&released, "mmcmmmdmm", "000900080", 1, 8, "...x..xx.");
    /* What was added by this rule adds no further one, nor is position 0 given one. */
    expect_kept(&released, "mmmmmmmm", "90000900", 1, 7, "x...xx..");
}

TEST(unprocessed_positions_left_of_the_right_most_kept_one_stay) {
    expect_kept(&released, "mmmmmmmm", "00900900", 1, -1, "xxxxxx..");
    expect_kept(&released, "mmmmmmmm", "00900900", 1, 2, ".xxxxx..");
    expect_kept(&released, "mmmmmmmm", "00900900", 1, 3, ".xx.xx..");
    /* Cached positions stay out; decoded ones are in anyway. */
    expect_kept(&released, "dmcmmmmm", "00000099", 1, 1, "x..xxxxx");
}

TEST(decoded_positions_always_stay_and_nothing_is_evicted_within_the_budget) {
    expect_kept(&released, "dmmmmmdd", "00900900", 1, 7, "xxx.xxxx"); /* 2 and 5 with neighbours */
    expect_kept(&released, "dddmmddd", "00000900", 1, 7, "xxxxxxxx");
    expect_kept(&released, "ddcddccd", "00000900", 1, 7, "xx.xx..x");
    expect_kept(&released, "mmmmmmmm", "00000900", 5, 7, "xxxxxxxx");
}

TEST(deltas_that_are_not_numbers_evict_nothing) {
    expect_kept(&released, "mmdmmm", "??????", 1, 5, "xxxxxx");
}

/* The rule once more, from its definition with sets. */
static uint32_t kept_by_definition(const struct focus_rule *rule, uint32_t length,
                                   const uint8_t *pending, const uint8_t *masked,
                                   const float *delta, double average, int32_t frontier,
                                   uint8_t *keep) {
    uint32_t at[MOST], n = 0, n_kept = 0;
    double sum = 0, squares = 0;
    bool in[MOST] = {false}, selected[MOST] = {false};
    for (uint32_t i = 0; i < length; i++) {
        if (pending[i] && masked[i]) {
            at[n++] = i;
            sum += delta[i];
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        squares += pow(delta[at[k]] - sum / n, 2);
    }
    uint32_t target = n == 0 ? 0 : (uint32_t)fmin(n, fmax(1, ceil(rule->alpha * fmax(average, 1))));
    double least = sqrt(squares / n) + (rule->std_alone ? 0 : sum / n);
    uint32_t n_standing_out = 0;
    for (uint32_t k = 0; k < n; k++) {
        n_standing_out += delta[at[k]] >= least;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t rank = 0;
        for (uint32_t j = 0; j < n; j++) {
            rank += delta[at[j]] > delta[at[k]] || (delta[at[j]] == delta[at[k]] && j < k);
        }
        selected[at[k]] =
            n <= target || (n_standing_out >= target ? delta[at[k]] >= least : rank < target);
    }
    int64_t rightmost = -1;
    for (uint32_t k = 0; k < n; k++) {
        in[at[k]] = selected[at[k]] || (at[k] + 1 < length && selected[at[k] + 1]);
        rightmost = in[at[k]] ? at[k] : rightmost;
    }
    for (uint32_t i = 0; i < length; i++) {
        bool is_placeholder = masked[i] && (int64_t)i < rightmost && (int64_t)i > frontier;
        keep[i] = pending[i] && (in[i] || !masked[i] || is_placeholder);
        n_kept += keep[i];
    }
    return n_kept;
}

TEST(random_blocks_are_selected_by_the_definition) {
    struct rng rng = rng_stream(3, "selections");
    for (int round = 0; round < 20000; round++) {
        uint8_t pending[MOST], masked[MOST], keep[MOST], expected[MOST];
        float delta[MOST];
        uint32_t length = 1 + below(&rng, round % 10 == 0 ? MOST : 64);
        double share = rng_uniform(&rng);
        for (uint32_t i = 0; i < length; i++) {
            masked[i] = rng_uniform(&rng) < share;
            pending[i] = masked[i] || rng_uniform(&rng) < 0.5;
            delta[i] = (float)(round % 2 == 0 ? rng_uniform(&rng) - 0.5 : below(&rng, 4));
        }
        struct focus_rule rule = released;
        rule.alpha = 0.5 + 2 * rng_uniform(&rng);
        rule.std_alone = round % 3 == 0;
        double average = (round % 4 == 0 ? 40 : 6) * rng_uniform(&rng);
        int32_t frontier = (int32_t)below(&rng, length + 1) - 1;
        ck_assert_uint_eq(
            focus_select(&rule, length, pending, masked, delta, average, frontier, keep),
            kept_by_definition(&rule, length, pending, masked, delta, average, frontier, expected));
        ck_assert_int_eq(memcmp(keep, expected, length), 0);
    }
}

static struct rollout roll(const struct decode_process *process, struct rollout_rule rule,
                           uint32_t n_requests) {
    struct rollout sums = {0};
    for (uint32_t r = 0; r < n_requests; r++) {
        rollout_request(process, 17, r, &rule, 4, &sums);
    }
    ck_assert_uint_eq(sums.blocks, 4 * n_requests);
    ck_assert_uint_eq(sums.decoded, (uint64_t)4 * n_requests * rule.block_tokens);
    return sums;
}

static const struct rollout_rule plain = {.block_tokens = B,
                                          .rule = {.kind = DECODE_THRESHOLD, .threshold = 0.9F},
                                          .focus = {.alpha = 1.5}};

static uint32_t naive_threshold(const uint8_t *masked, const uint8_t *keep, const float *confidence,
                                float threshold, uint8_t *chosen) {
    uint32_t n = 0, best = B;
    for (uint32_t i = 0; i < B; i++) {
        bool asked = keep[i] && masked[i];
        chosen[i] = asked && confidence[i] >= threshold;
        n += chosen[i];
        best = asked && (best == B || confidence[i] > confidence[best]) ? i : best;
    }
    if (n == 0 && best < B) {
        chosen[best] = 1;
        n = 1;
    }
    return n;
}

TEST(a_rollout_is_the_rules_one_after_another) {
    struct rollout_rule rule =
        MAKE(struct rollout_rule, .block_tokens = B, .cache = BLOCK_NEIGHBOUR, .evicts = true,
             .focus = {.alpha = 1.5}, .rule = {.kind = DECODE_THRESHOLD, .threshold = 0.8F});
    struct rollout sums = {0};
    rollout_request(&middling, 23, 5, &rule, 3, &sums);
    uint64_t passes = 0, processed = 0, kept = 0;
    for (uint32_t b = 0; b < 3; b++) {
        uint8_t masked[B], uncached[B], pending[B], keep[B], chosen[B];
        float confidence[B], delta[B];
        double decoded = 0, steps = 0;
        struct block_state block;
        block_begin(&block, BLOCK_NEIGHBOUR, B, 0, masked, uncached);
        for (uint32_t step = 0; !block_is_done(&block); step++) {
            struct decode_view view =
                MAKE(struct decode_view, .request = 5, .block_start = B * b, .block_length = B,
                     .step_in_block = step, .masked = masked);
            process_confidence(&middling, 23, &view, confidence);
            process_delta(&middling, 23, &view, delta);
            processed += block_pending(&block, pending);
            kept += focus_select(&released, B, pending, masked, delta,
                                 steps > 0 ? decoded / steps : 1, block.frontier, keep);
            uint32_t n = naive_threshold(masked, keep, confidence, 0.8F, chosen);
            decoded += n;
            steps += n > 0;
            block_pass(&block, keep, chosen);
            passes++;
        }
    }
    ck_assert_uint_eq(sums.passes, passes);
    ck_assert_uint_eq(sums.processed, processed);
    ck_assert_uint_eq(sums.kept, kept);
}

TEST(a_threshold_of_0_commits_all_at_once) {
    struct rollout_rule rule = plain;
    rule.rule.threshold = 0;
    struct rollout sums = roll(&middling, rule, 20);
    ck_assert_uint_eq(sums.of_count[B], sums.blocks);
    ck_assert_uint_eq(sums.passes, 2 * sums.blocks);
    ck_assert_double_eq(rollout_redundancy(&sums), 2);
}

TEST(a_threshold_of_1_commits_one_by_one) {
    struct rollout_rule rule = plain;
    rule.rule.threshold = 1;
    struct rollout sums = roll(&middling, rule, 20);
    ck_assert_uint_eq(sums.passes, (B + 1) * sums.blocks);
}

TEST(a_lower_threshold_never_needs_more_steps) {
    struct rng rng = rng_stream(4, "thresholds");
    for (int round = 0; round < 12; round++) {
        struct decode_process process = random_process(&rng);
        uint64_t passes = 0;
        for (int t = 0; t <= 10; t++) {
            struct rollout_rule rule = plain;
            rule.rule.threshold = 0.1F * (float)t;
            struct rollout sums = roll(&process, rule, 100);
            ck_assert_uint_ge(sums.passes, passes);
            passes = sums.passes;
        }
    }
}

TEST(caches_and_a_budget_for_all_commit_the_same_tokens_in_the_same_steps) {
    struct rng rng = rng_stream(5, "caches");
    for (int round = 0; round < 30; round++) {
        struct decode_process process = random_process(&rng);
        struct rollout_rule rule = plain;
        rule.block_tokens = 1 + below(&rng, 64);
        struct rollout whole = roll(&process, rule, 5);
        ck_assert_uint_eq(whole.processed, whole.passes * rule.block_tokens);
        uint64_t most = whole.kept;
        for (int way = 0; way < 3; way++) {
            struct rollout_rule other = rule;
            other.cache = way == 0 ? BLOCK_NEIGHBOUR : way == 1 ? BLOCK_DELAYED : BLOCK_NEIGHBOUR;
            other.evicts = way == 2;
            other.focus.alpha = 1e9;
            struct rollout sums = roll(&process, other, 5);
            ck_assert_int_eq(memcmp(sums.of_count, whole.of_count, sizeof sums.of_count), 0);
            ck_assert_uint_eq(sums.passes, whole.passes);
            if (way < 2) { /* DC runs no more than DC+, which runs no more than plain */
                ck_assert_uint_le(sums.kept, most);
                most = sums.kept;
            }
            ck_assert_uint_ge(sums.kept, 2 * sums.decoded);
        }
    }
}

TEST(every_block_ends_within_its_length_and_the_commit_pass) {
    struct rng rng = rng_stream(6, "ends");
    for (int round = 0; round < 60; round++) {
        struct decode_process process = random_process(&rng);
        process.independent = round % 10 == 0;
        process.a = process.b = 1;
        struct rollout_rule rule = plain;
        rule.block_tokens = 1 + below(&rng, 64);
        rule.rule.threshold = (float)rng_uniform(&rng);
        rule.cache = BLOCK_NEIGHBOUR;
        rule.evicts = true;
        rule.focus.alpha = 1 + rng_uniform(&rng);
        rule.focus.history = (enum focus_history)(round % 3);
        rule.focus.ema_weight = 0.3;
        for (uint32_t r = 0; r < 5; r++) {
            struct rollout sums = {0};
            rollout_request(&process, 1, r, &rule, 1, &sums);
            ck_assert_uint_le(sums.passes, rule.block_tokens + 1);
            ck_assert_uint_le(sums.kept, sums.processed);
            ck_assert_uint_eq(sums.of_count[0], 0);
        }
    }
}

/* Eviction can only lose decodable tokens: it keeps less per token and takes no fewer steps. */
TEST(eviction_saves_positions_and_costs_steps) {
    struct rollout_rule rule = plain;
    struct rollout whole = roll(&middling, rule, 200);
    rule.cache = BLOCK_NEIGHBOUR;
    struct rollout neighbour = roll(&middling, rule, 200);
    rule.evicts = rule.ranks = true;
    struct rollout focus = roll(&middling, rule, 200);
    ck_assert_double_lt(rollout_redundancy(&neighbour), rollout_redundancy(&whole));
    ck_assert_double_lt(rollout_redundancy(&focus), 0.8 * rollout_redundancy(&neighbour));
    ck_assert_uint_ge(focus.passes, whole.passes);
    /* Deltas that follow the confidences exactly find more of the decodable tokens. */
    struct decode_process exact = middling;
    exact.delta_noise = 0;
    struct rollout told = roll(&exact, rule, 200);
    ck_assert_uint_lt(told.passes, focus.passes);
    ck_assert_double_gt(rollout_top_quintile(&told), rollout_top_quintile(&focus));
}

SUITE("focus")
