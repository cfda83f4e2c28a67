/* Self-speculation: which passes are checked, over how many rows, what a check commits, and what it
 * does not go with. */
#include <jansson.h>
#include <math.h>

#include "sim/decode/process.h"
#include "sim/policy/decoder/speculation.h"
#include "tests/support/cli.h"
#include "tests/support/numbers.h"
#include "tests/support/says.h"

TEST(a_pass_is_checked_where_its_first_drafts_are_expected_to_stand) {
    /* Entropies of 0, log V / 2 and log V: chances of 1, e^-0.5 and e^-1 to stand. */
    const float log_v = logf(1000);
    const uint32_t offset[] = {2, 3, 4, 7};
    const float entropy[] = {0, -log_v / 2, -log_v, 0}, confidence[] = {0.9f, 0.4f, 0.1f, 0.95f};
    const struct decode_seen seen = {
        .n = 4, .offset = offset, .confidence = confidence, .entropy = entropy};
    const double expected = 1 + exp(-0.5) + exp(-1.5);
    struct request request = {0};
    ck_assert_uint_eq(speculation_run(&seen), 3);
    struct speculation state = {.threshold = 0.85, .cost = expected - 0.01};
    ck_assert(speculation_checks(&state, &request, &seen, 1000, NULL));
    state.cost = expected + 0.01;
    ck_assert(!speculation_checks(&state, &request, &seen, 1000, NULL));
    state.cost = 1;
    state.least = expected - 0.99;
    ck_assert(!speculation_checks(&state, &request, &seen, 1000, NULL));
    state = (struct speculation){
        .when = SPECULATE_DYNAMIC, .threshold = 0.85, .cost = expected / 2 - 0.01};
    ck_assert(speculation_checks(&state, &request, &seen, 1000, NULL)); /* two drafts are sure */
    state.threshold = 0.3;
    ck_assert(!speculation_checks(&state, &request, &seen, 1000, NULL));
    /* Checks that are going on stop later than others begin. */
    state = (struct speculation){.threshold = 0.85, .cost = 1, .least = 1, .hysteresis = 0.5};
    state.least = expected - 0.99;
    ck_assert(!speculation_checks(&state, &request, &seen, 1000, NULL));
    request.checks = 1;
    ck_assert(speculation_checks(&state, &request, &seen, 1000, NULL));
    state.least = expected - 0.51;
    ck_assert(speculation_checks(&state, &request, &seen, 1000, NULL));
    state.least = expected - 0.49;
    ck_assert(!speculation_checks(&state, &request, &seen, 1000, NULL));
    /* One more draft than is asked for is enough, and as many are where checks go on alone. */
    const struct decode_seen one = {
        .n = 1, .offset = offset, .confidence = confidence, .entropy = entropy};
    state = (struct speculation){.cost = 1, .hysteresis = 1e-9};
    ck_assert(speculation_checks(&state, &request, &one, 1000, NULL));
    request.checks = 0;
    ck_assert(!speculation_checks(&state, &request, &one, 1000, NULL));
    state = (struct speculation){.when = SPECULATE_SPAN, .span = 3};
    ck_assert(speculation_checks(&state, &request, &seen, 1000, NULL));
    state.span = 4;
    ck_assert(!speculation_checks(&state, &request, &seen, 1000, NULL));
}

TEST(a_bandit_tells_cases_apart_and_takes_what_has_won_more) {
    ck_assert_uint_eq(bandit_case(2, 1, 32, 0, 0), 0);
    ck_assert_uint_eq(bandit_case(2, 32, 32, 0, 0), 4);
    ck_assert_uint_eq(bandit_case(2, 16, 32, 0, 0), 0); /* 15 of 31 are less than half */
    ck_assert_uint_eq(bandit_case(2, 17, 32, 0, 0), 4);
    ck_assert_uint_eq(bandit_case(2, 1, 32, 16, 0), 2);
    ck_assert_uint_eq(bandit_case(2, 1, 32, 15, 0.5), 1);
    ck_assert_uint_eq(bandit_case(4, 32, 32, 31, 1), 63);
    ck_assert_uint_eq(bandit_case(4, 1, 1, 0, 0), 0);
    struct bandit bandit = {0};
    ck_assert(bandit_checks(&bandit, 5, 1)); /* what was never tried; checks first */
    bandit_learn(&bandit, 6);                /* 3 a pass */
    bandit_learn(&bandit, 100);              /* nothing is due */
    ck_assert(!bandit_checks(&bandit, 5, 1));
    bandit_learn(&bandit, 2);
    ck_assert(bandit_checks(&bandit, 4, 1)); /* another case knows nothing of it */
    bandit_learn(&bandit, 2);
    ck_assert(bandit_checks(&bandit, 5, 0));
    bandit_learn(&bandit, 1); /* 1.75 on average, two tries */
    ck_assert(!bandit_checks(&bandit, 5, 0));
    bandit_learn(&bandit, 1); /* 1.5 on average */
    /* Six passes: 1.75 + x sqrt(log 6 / 2) against 1.5 + the same; then one more of the first. */
    ck_assert(bandit_checks(&bandit, 5, 3));
    bandit_learn(&bandit, 3); /* 1.667, three tries: 1.667 + 0.805 x against 1.5 + 0.986 x */
    ck_assert(bandit_checks(&bandit, 5, 0.5));
    ck_assert(!bandit_checks(&bandit, 5, 3));
}

/* The prompt's tokens of a block are no progress. */
TEST(a_bandit_is_asked_by_the_first_run_and_what_the_request_filled) {
    const float log_v = logf(1000);
    const uint32_t offset[] = {2, 3, 7};
    const float entropy[] = {-0.2f * log_v, -0.9f * log_v, 0}, confidence[] = {0.9f, 0.4f, 0.1f};
    const struct decode_seen seen = {
        .n = 3, .offset = offset, .confidence = confidence, .entropy = entropy};
    const struct speculation state = {.when = SPECULATE_BANDIT, .bins = 2, .explore = 1};
    struct request request = {.window = window_of(0, 96, 8, 3), .prompt_tokens = 98};
    struct bandit bandit = {0};
    ck_assert(speculation_checks(&state, &request, &seen, 1000, &bandit));
    ck_assert_uint_eq(bandit.waits, 1 + 2 * 1 + 1); /* unsure, 3 of 8 filled: the second case */
    request.prompt_tokens = 97;
    ck_assert(speculation_checks(&state, &request, &seen, 1000, &bandit));
    ck_assert_uint_eq(bandit.waits, 1 + 2 * 3 + 1);
}

/* A token that is settled at some confidence is so at every larger one. */
TEST(a_position_has_settled_as_often_as_it_is_sure) {
    int n = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        const bool is = process_is_settled(3, 7, i, 0.6f);
        ck_assert(!is || process_is_settled(3, 7, i, 0.8f));
        ck_assert(process_is_settled(3, 7, i, 1.0f));
        n += is;
    }
    ck_assert_int_gt(n, 550);
    ck_assert_int_lt(n, 650);
}

/* As sure as its draft, a check accepts; less sure, by chance. */
TEST(a_draft_is_accepted_by_its_probability_in_the_check_over_its_own) {
    enum { N = 1000 };
    static uint8_t masked[N], wanted[N];
    static float seen[N], room[N];
    const struct decode_process process = process_kumaraswamy(2, 2);
    struct decode_view view = {.request = 5, .block_length = N, .masked = masked};
    memset(masked, 1, sizeof masked);
    process_confidence(&process, 9, &view, seen);
    view.wanted = wanted;
    int n = 0;
    double least = 0, most = 0;
    for (uint32_t i = 0; i < N; i++) {
        const float surer = 0.999f, c = seen[i];
        wanted[i] = 1;
        ck_assert(process_accepts(&process, 9, &view, &view, i, c, room));
        ck_assert(process_accepts(&process, 9, &view, &view, i, c * 0.999f, room) ||
                  process_is_settled(9, 5, i, c) != process_is_settled(9, 5, i, c * 0.999f));
        n += process_accepts(&process, 9, &view, &view, i, surer, room);
        const bool agree = process_is_settled(9, 5, i, c) == process_is_settled(9, 5, i, surer);
        least += agree ? (double)(c / surer) : 0;
        most += agree ? (double)(c / surer) : 1 - (double)c;
        wanted[i] = 0;
    }
    ck_assert_double_lt(least, 0.6 * N);
    ck_assert_double_gt(n, least - 60);
    ck_assert_double_lt(n, most + 60);
}

#define ASKED(...)                                                                                 \
    "run", "--gpu", "h100", "--system", "lmdeploy", "--model", "llada2-mini", "--workload",        \
        "math", "--requests", "8", "--json", __VA_ARGS__

static json_int_t steps_of(const char *decoder, const char *cost, json_int_t *tokens) {
    char *said = PRINTS(ASKED("--rate", "1", "--decoder", decoder, "--set", "decoder.threshold=0.7",
                              "--set", cost));
    const json_int_t steps = number_in(said, "request_steps");
    ck_assert_int_eq(number_in(said, "completed"), 8);
    *tokens = number_in(said, "tokens_processed");
    free(said);
    return steps;
}

/* The drafts of a pass are those that a threshold is applied to where it is not checked. */
TEST(a_model_that_never_checks_is_a_threshold) {
    json_int_t plain = 0, never = 0, always = 0;
    const json_int_t steps = steps_of("threshold", "temperature=1", &plain);
    ck_assert_int_eq(steps_of("self-speculation", "decoder.cost=100000", &never), steps);
    ck_assert_int_eq(never, plain);
    const json_int_t checked = steps_of("self-speculation", "decoder.cost=0", &always);
    ck_assert(checked != steps);
    /* Drafts of 32 rows and checks of 64 take turns, and a pass of 32 stores the block. */
    ck_assert_int_gt(always, 42 * checked);
    ck_assert_int_lt(always, 48 * checked);
}

/* Whether checks go on is a request's own: one after another are decoded as all at once. */
TEST(a_request_begins_without_checks) {
    static const char *const rates[] = {"0.001", "10000"};
    static const char *const sets[][3] = {
        {"decoder.cost=0", "decoder.least=8", "decoder.hysteresis=8"},
        {"decoder.when=bandit", "decoder.bins=3", "decoder.explore=2"}};
    json_int_t steps[4] = {0};
    for (int i = 0; i < 4; i++) {
        const char *const *set = sets[i / 2];
        char *said =
            PRINTS(ASKED("--rate", rates[i % 2], "--decoder", "self-speculation", "--set", set[0],
                         "--set", set[1], "--set", set[2], "--set", "max_batched_tokens=65536"));
        steps[i] = number_in(said, "request_steps");
        ck_assert_int_eq(number_in(said, "preemptions"), 0);
        free(said);
    }
    ck_assert_int_eq(steps[0], steps[1]);
    ck_assert_int_eq(steps[2], steps[3]);
    ck_assert_int_ne(steps[0], steps[2]);
}

/* One that never explores takes no more passes than one that only does, and both check some. */
TEST(a_bandit_that_has_learned_takes_fewer_passes) {
    static const char *const explore[] = {"decoder.explore=0.1", "decoder.explore=100000"};
    json_int_t steps[2] = {0};
    for (int i = 0; i < 2; i++) {
        char *said = PRINTS(ASKED("--rate", "1", "--decoder", "self-speculation", "--set",
                                  "decoder.when=bandit", "--set", explore[i]));
        steps[i] = number_in(said, "request_steps");
        free(said);
    }
    ck_assert_int_lt(steps[0], steps[1]);
}

/* Drafts that are all settled are what a check would choose: a block is drafted, checked, stored.
 */
TEST(drafts_that_stand_are_committed_by_one_check) {
    json_int_t steps[2] = {0};
    for (int never = 0; never < 2; never++) {
        char *said = PRINTS(ASKED("--rate", "1", "--decoder", "self-speculation", "--set",
                                  "confidence_drop=-30", "--set",
                                  never ? "decoder.cost=100000" : "decoder.cost=0"));
        steps[never] = number_in(said, "request_steps");
        free(said);
    }
    const json_int_t n_blocks = steps[0] - steps[1];
    ck_assert_int_gt(n_blocks, 8);
    ck_assert_int_eq(steps[1], 8 + 2 * n_blocks); /* each prompt is a step */
}

TEST(a_check_runs_twice_the_rows_of_a_draft) {
    static const char *const rows[] = {"32 query tokens, 32 logit rows",
                                       "64 query tokens, 32 logit rows",
                                       "32 query tokens, 32 logit rows"};
    static const char *const steps[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++) {
        char *said =
            PRINTS("explain", "--gpu", "h100", "--system", "lmdeploy", "--model", "llada2-mini",
                   "--decoder", "self-speculation", "--set", "decoder.cost=0", "--step", steps[i]);
        ck_assert_msg(strstr(said, rows[i]) != NULL, "step %s: %.400s", steps[i], said);
        free(said);
    }
}

/* Drafts outlive the loss of keys and values. */
TEST(recorded_steps_are_played_with_preemptions_too) {
    static const char *const when[] = {"decoder.when=static", "decoder.when=bandit"};
    static const char *const runs[] = {"1", "2"};
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("runs.db"));
    for (int i = 0; i < 2; i++) {
        char *said =
            PRINTS(ASKED("--rate", "50", "--decoder", "self-speculation", "--set", "pool_pages=14",
                         "--set", when[i], "--db", path, "--levels", "events"));
        ck_assert_int_gt(number_in(said, "preemptions"), 0);
        free(PRINTS("replay", "--db", path, "--run", runs[i]));
        free(said);
    }
}

TEST(each_thing_that_does_not_fit_is_refused_with_one_sentence) {
#define WITH(...)                                                                                  \
    "run", "--gpu", "h100", "--requests", "1", "--rate", "1", "--decoder", "self-speculation",     \
        __VA_ARGS__
    REFUSES(2,
            "unmask: decoder self-speculation checks with blocks of one token what blocks of many "
            "drafted, with logits of their own positions, and LLaDA-8B Base/Instruct/1.5 is "
            "bidirectional",
            WITH("--system", "vanilla"));
    REFUSES(2,
            "unmask: decoder self-speculation runs twice the rows of a block, and 2 x block_tokens "
            "= 8 are more than max_batched_tokens = 7",
            WITH("--system", "sdar", "--set", "max_batched_tokens=7"));
    REFUSES(2,
            "unmask: decoder self-speculation drafts and checks a whole block: set sampling = off",
            WITH("--system", "sdar", "--set", "sampling=on", "--set", "decoder.accept=same"));
    REFUSES(2,
            "unmask: decoder self-speculation drafts and checks a whole block: set sampling = off, "
            "or decoder.accept = ratio with temperature = 1",
            WITH("--system", "sdar", "--set", "sampling=on", "--set", "temperature=0.5"));
    REFUSES(2,
            "unmask: decoder self-speculation drafts and checks a whole block: set cache = exact",
            WITH("--system", "focus"));
    REFUSES(2, "unmask: decoder self-speculation does not run live, for it has drafts accepted by",
            WITH("--system", "sdar", "--backend", "cpu", "--weights",
                 "experiments/train/models/sdar-2m", "--set", "runtime.fused_head=on"));
}

SUITE("speculation")
