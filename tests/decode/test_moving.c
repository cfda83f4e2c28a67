/* Positions that are inserted and dropped: how many a pass fills, how often a canvas moves, that
 * blocks end, are recorded and played, and what it does not go with. */
#include <jansson.h>

#include "sim/decode/process.h"
#include "sim/policy/decoder/moving.h"
#include "tests/support/cli.h"
#include "tests/support/numbers.h"
#include "tests/support/says.h"

TEST(a_pass_fills_one_position_more_than_were_inserted) {
    const struct decode_rule rule = {
        .kind = DECODE_JOINT, .rank = RANK_CONFIDENCE, .threshold = 0.5f};
    const uint32_t offset[] = {1, 2, 4, 6};
    const float confidence[] = {0.3f, 0.6f, 0.1f, 0.2f};
    const struct decode_seen seen = {.n = 4, .offset = offset, .confidence = confidence};
    static const struct {
        uint8_t added[8], commit[4];
    } cases[] = {{{0}, {0, 1, 0, 0}},
                 {{[1] = 1}, {1, 1, 0, 0}},
                 {{[1] = 1, [4] = 1}, {1, 1, 0, 1}},
                 {{[1] = 1, [2] = 1, [4] = 1, [6] = 1}, {1, 1, 1, 1}}};
    uint8_t commit[4];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t n = moving_fill(&rule, &seen, cases[i].added, commit);
        ck_assert_mem_eq(commit, cases[i].commit, sizeof commit);
        ck_assert_uint_eq(n, (uint32_t)(commit[0] + commit[1] + commit[2] + commit[3]));
    }
    const float sure[] = {0.7f, 0.6f, 0.8f, 0.2f}; /* more are above the threshold */
    const struct decode_seen more = {.n = 4, .offset = offset, .confidence = sure};
    ck_assert_uint_eq(moving_fill(&rule, &more, cases[1].added, commit), 3);
}

TEST(edits_are_of_each_kind_as_often_as_the_process_says) {
    const struct decode_process process = {.insert_share = 0.2, .delete_share = 0.3};
    const struct decode_view view = {.request = 3, .block_length = 10000};
    int n[3] = {0};
    for (uint32_t i = 0; i < view.block_length; i++) {
        n[process_edit_at(&process, 5, &view, i)]++;
    }
    ck_assert_int_gt(n[EDIT_INSERT], 1850);
    ck_assert_int_lt(n[EDIT_INSERT], 2150);
    ck_assert_int_gt(n[EDIT_DELETE], 2850);
    ck_assert_int_lt(n[EDIT_DELETE], 3150);
}

#define ASKED(...)                                                                                 \
    "run", "--gpu", "h100", "--system", "sglang-s", "--workload", "gsm8k", "--requests", "12",     \
        "--json", __VA_ARGS__

static json_int_t steps_of(const char *decoder, const char *confidence) {
    char *said = PRINTS(ASKED("--rate", "1", "--decoder", decoder, "--set", confidence, "--set",
                              "decoder.threshold=0.5", "--set", "decoder.edit_threshold=0"));
    const json_int_t steps = number_in(said, "request_steps");
    ck_assert_int_eq(number_in(said, "completed"), 12);
    ck_assert_int_eq(number_in(said, "tokens_committed"), 12 * 256);
    free(said);
    return steps;
}

/* A process that inserts and drops nothing leaves the joint threshold. */
TEST(a_canvas_that_does_not_move_is_decoded_as_by_the_joint_threshold) {
    ck_assert_int_eq(steps_of("joint-indel", "confidence=kumaraswamy"),
                     steps_of("joint-threshold", "confidence=kumaraswamy"));
    ck_assert_int_gt(steps_of("joint-indel", "confidence=llada2-mini/gsm-plus"),
                     steps_of("joint-threshold", "confidence=llada2-mini/gsm-plus"));
}

/* With an edit threshold that no confidence is above nothing is edited, and none is kept. */
TEST(a_decoder_that_edits_nothing_is_a_threshold) {
    char *said = PRINTS(ASKED("--rate", "1", "--decoder", "joint-indel", "--set",
                              "decoder.threshold=1", "--set", "decoder.edit_threshold=1"));
    ck_assert_int_eq(number_in(said, "completed"), 12);
    free(said);
}

TEST(recorded_steps_are_played_with_preemptions_too) {
    char path[512], trace[512];
    snprintf(path, sizeof path, "%s", scratch_path("runs.db"));
    snprintf(trace, sizeof trace, "%s", scratch_path("decisions.db"));
    char *said = PRINTS(ASKED("--rate", "50", "--decoder", "joint-indel", "--set", "pool_pages=14",
                              "--db", path, "--levels", "events", "--decode-out", trace));
    ck_assert_int_gt(number_in(said, "preemptions"), 0);
    free(PRINTS("replay", "--db", path, "--run", "1"));
    free(said);
    REFUSES(2,
            "unmask: says how many positions a step commits, not where some were inserted or "
            "dropped: it is not played with decoder joint-indel",
            ASKED("--rate", "50", "--decoder", "joint-indel", "--decode", trace));
}

TEST(each_thing_that_does_not_fit_is_refused_with_one_sentence) {
#define WITH(...) "run", "--gpu", "h100", "--requests", "1", "--rate", "1", __VA_ARGS__
    REFUSES(2, "unmask: decoder joint-indel is for block-causal models",
            WITH("--system", "vanilla", "--decoder", "joint-indel"));
    REFUSES(2,
            "unmask: decoder joint-indel replaces tokens above 0.8 and fills masks above 0.5: set "
            "the edit threshold to the other one at most",
            WITH("--system", "sdar", "--decoder", "joint-indel", "--set",
                 "decoder.edit_threshold=0.8"));
#define TOKENS(gone, put)                                                                          \
    WITH("--system", "sdar", "--model", "llada2-mini", "--decoder", "joint-indel", "--set",        \
         "decoder.delete_token=" gone, "--set", "decoder.insert_token=" put)
    REFUSES(2,
            "unmask: decoder joint-indel would drop and insert positions by the same token: set "
            "decoder.delete_token or decoder.insert_token to another than 7",
            TOKENS("7", "7"));
    REFUSES(2, "unmask: decoder.insert_token = 156895 is the mask of LLaDA2.0-mini",
            TOKENS("7", "156895"));
    REFUSES(2, "unmask: decoder.delete_token = 157184 is no token of LLaDA2.0-mini",
            TOKENS("157184", "8"));
    free(PRINTS(TOKENS("7", "157183")));
    /* What the decoder does not say the model does. */
#define OF_MODEL(...)                                                                              \
    WITH("--system", "sdar", "--model", "llada2-mini", "--decoder", "joint-indel", "--set",        \
         "model.delete_token=156930", "--set", "model.insert_token=156931", "--set", __VA_ARGS__)
    REFUSES(2,
            "unmask: decoder joint-indel would drop and insert positions by the same token: set "
            "decoder.delete_token or decoder.insert_token to another than 156931",
            OF_MODEL("decoder.delete_token=156931"));
    REFUSES(2,
            "unmask: decoder joint-indel would drop and insert positions by the same token: set "
            "decoder.delete_token or decoder.insert_token to another than 156930",
            OF_MODEL("decoder.insert_token=156930"));
    free(PRINTS(OF_MODEL("decoder.insert_token=156932")));
    REFUSES(2,
            "unmask: decoder joint-indel does not run live, for it has a canvas that moves without "
            "tokens that insert and delete",
            WITH("--system", "sdar", "--decoder", "joint-indel", "--backend", "cpu", "--weights",
                 "experiments/train/models/sdar-2m"));
}

SUITE("moving")
