/* Shares with their intervals, and the test for pairs. */
#include <math.h>
#include <string.h>

#include "analysis/quality.h"
#include "tests/support/suite.h"

static void is_near(double value, double expected) {
    ck_assert_msg(fabs(value - expected) < 5e-5, "%.6f, expected %.6f", value, expected);
}

/* Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81 of 263, 15 of 148, 0 of 20 and
 * 1 of 29. */
TEST(a_share_has_the_interval_of_wilson) {
    static const struct {
        uint64_t n, of;
        double low, high;
    } cases[] = {{81, 263, 0.2553, 0.3662},
                 {15, 148, 0.0624, 0.1605},
                 {0, 20, 0, 0.1611},
                 {1, 29, 0.0061, 0.1718}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct share share = quality_share(cases[i].n, cases[i].of);
        is_near(share.value, (double)cases[i].n / (double)cases[i].of);
        is_near(share.low, cases[i].low);
        is_near(share.high, cases[i].high);
        struct share rest = quality_share(cases[i].of - cases[i].n, cases[i].of);
        is_near(rest.low, 1 - cases[i].high);
        is_near(rest.high, 1 - cases[i].low);
    }
    struct share nothing = quality_share(0, 0);
    ck_assert(isnan(nothing.value) && isnan(nothing.low) && isnan(nothing.high));
    ck_assert(quality_share(0, 7).low == 0 && quality_share(7, 7).high == 1);
}

/* By hand: 2 (C(11,0) + C(11,1)) / 2^11. */
TEST(seeds_are_added_up) {
    const struct quality one = {.served = 9, .judged = 8, .right = 5, .compared = 7, .agreed = 3};
    struct quality sum = {0};
    json_t *summary = json_pack("{s:o}", "quality", quality_json(&one, 1, 1, 1));
    quality_add(&sum, summary);
    quality_add(&sum, summary);
    ck_assert(sum.served == 18 && sum.judged == 16 && sum.right == 10 && sum.compared == 14 &&
              sum.agreed == 6);
    json_decref(summary);
}

TEST(pairs_are_compared_by_mcnemars_exact_test) {
    struct mcnemar test = {0};
    mcnemar_add(&test, "1111111110-1", "000000000110");
    ck_assert_uint_eq(test.pairs, 11);
    ck_assert_uint_eq(test.gained, 10);
    ck_assert_uint_eq(test.lost, 1);
    mcnemar_finish(&test);
    is_near(test.p, 2 * 12.0 / 2048);
    test = (struct mcnemar){0};
    mcnemar_add(&test, "1100", "1010");
    mcnemar_add(&test, "1", "-");
    mcnemar_finish(&test);
    ck_assert(test.pairs == 4 && test.gained == 1 && test.lost == 1 && test.p == 1);
    test = (struct mcnemar){0};
    mcnemar_finish(&test);
    ck_assert(test.p == 1);
}

TEST(what_is_not_known_is_null) {
    const struct quality quality = {.served = 2, .marks = "--"};
    json_t *object = quality_json(&quality, 0, 10, 100);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "served")), 2);
    static const char *const unknown[] = {"accuracy",     "accuracy_low",         "agreement",
                                          "answer_tok_s", "tokens_run_per_right", "right_req_s"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        ck_assert_msg(json_is_null(json_object_get(object, unknown[i])), "%s", unknown[i]);
    }
    json_decref(object);
    const struct quality known = {.served = 4, .judged = 4, .right = 1, .marks = "0100"};
    object = quality_json(&known, 2, 10, 100);
    ck_assert(json_real_value(json_object_get(object, "accuracy")) == 0.25);
    ck_assert(json_real_value(json_object_get(object, "answer_tok_s")) == 5);
    ck_assert(json_real_value(json_object_get(object, "right_req_s")) == 0.5);
    ck_assert(json_real_value(json_object_get(object, "tokens_run_per_right")) == 100);
    json_decref(object);
}

SUITE("quality")
