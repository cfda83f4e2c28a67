/* Self-speculation on the CPU: the tokens of a plain implementation of its specification
 * (experiments/study/reference/self_speculation.py), which reads the same checkpoint in float32, in
 * as many passes. */
#include <math.h>

#include "engine/session/drafts.h"
#include "tests/support/specified.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/self-speculation/tokens.jsonl"
#define MODEL   "experiments/train/models/sdar-2m"

enum { N_SETTINGS = 17, N_KEYS = 10 };

static const char *const keys[N_KEYS] = {"threshold", "cost",   "least",      "span", "seed",
                                         "when",      "accept", "hysteresis", "bins", "explore"};

static const char *const defaults[N_KEYS] = {"0.85",   "1",     "0", "8", "1",
                                             "static", "ratio", "0", "2", "1"};

static void decodes_so(const json_t *line, size_t number) {
    static const char *const start[] = {
        "--weights", MODEL,       "--workload",       PROMPTS, "--output-tokens", "64", "--system",
        "sglang",    "--decoder", "self-speculation", NULL};
    char settings[N_KEYS][SPECIFIED_CHARS];
    int64_t positions;
    const bool is_drawn = json_object_get(line, "sampling") != NULL;
    const char *set[N_KEYS + 3] = {[N_KEYS] = "runtime.fused_head=off",
                                   is_drawn ? "sampling=on" : "sampling=off"};
    specified_settings(line, keys, defaults, N_KEYS, settings, set);
    json_t *summary = specified_run(line, start, set, 32, number, &positions);
    specified_processed(line, summary, positions);
    json_decref(summary);
}

TEST(tokens_passes_and_checks_are_those_of_the_specification) {
    specified_each(TOKENS, N_SETTINGS, decodes_so);
}

/* Whatever a chance is compared with, what is no number decides nothing: a row that nothing wrote
 * ends the run instead of being drawn from. */
TEST(chances_that_are_no_numbers_are_told_and_not_decided_by) {
    enum { VOCAB = 8 };
    const struct speculation numbers = {.accept = ACCEPT_RATIO, .seed = 1};
    const struct drafts_check check = {.request = 3, .slot = 1, .first = 40, .decided = 1};
    static const float none[] = {NAN, INFINITY, -INFINITY};
    struct drafts drafts;
    drafts_open(&drafts, &numbers, 2, 4, VOCAB);
    for (int broken = 0; broken < 2; broken++) {
        for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
            const bool all = none[i] < 0; /* one logit of -infinity is a token that cannot be */
            float rows[2][VOCAB] = {{3, 1, 0, 2, -1, 0, 1, 2}, {2, 1, 0, 3, -1, 0, 1, 2}};
            int32_t token = -7;
            bool accepts = false;
            drafts_note(&drafts, 1, 2, 0, rows[0]);
            ck_assert(drafts_accept(&drafts, &numbers, &check, 2, 3, rows[1], &token, &accepts));
            ck_assert(token >= 0 && token < VOCAB);
            for (int t = all ? 0 : 5; t < (all ? VOCAB : 6); t++) {
                rows[broken][t] = none[i];
            }
            drafts_note(&drafts, 1, 2, 0, rows[0]);
            token = -7;
            ck_assert(!drafts_accept(&drafts, &numbers, &check, 2, 3, rows[1], &token, &accepts));
            ck_assert_int_eq(token, -7);
        }
    }
    drafts_close(&drafts);
}

SUITE("live speculation")
