/* The joint threshold on the CPU: the tokens of a plain implementation of its specification
 * (experiments/study/reference/joint_threshold.py), which reads the same checkpoints in float32, in
 * as many passes and with as many tokens replaced. One of them is trained to replace tokens. */
#include "tests/support/specified.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/joint-threshold/tokens.jsonl"
#define MODEL   "experiments/train/models/sdar-2m"

enum { N_SETTINGS = 8 };

static const char *const keys[] = {"threshold", "edit_threshold", "max_post_edit_steps",
                                   "zero_edits", "penalty"};
enum { N_KEYS = 5 };

static const char *const defaults[N_KEYS] = {"0.5", "0", "16", "on", "0"};

static void decodes_so(const json_t *line, size_t number) {
    const char *const start[] = {"--weights",
                                 specified_model(line, MODEL),
                                 "--workload",
                                 PROMPTS,
                                 "--output-tokens",
                                 "64",
                                 "--system",
                                 "sglang",
                                 "--decoder",
                                 "joint-threshold",
                                 NULL};
    char settings[N_KEYS][SPECIFIED_CHARS];
    int64_t unused;
    specified_settings(line, keys, defaults, N_KEYS, settings);
    const char *const set[] = {settings[0], settings[1], settings[2],
                               settings[3], settings[4], "runtime.fused_head=off",
                               NULL};
    json_decref(specified_run(line, start, set, 32, number, &unused));
}

TEST(tokens_passes_and_replaced_tokens_are_those_of_the_specification) {
    specified_each(TOKENS, N_SETTINGS, decodes_so);
}

SUITE("live revising")
