/* LLaDA2.2's insert and delete on the CPU: the tokens of a plain implementation of their
 * specification (experiments/study/reference/joint_indel.py), which reads the same checkpoints in
 * float32, in as many passes and with as many tokens replaced. One of them is trained for it. */
#include "tests/support/specified.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/joint-indel/tokens.jsonl"
#define MODEL   "experiments/train/models/sdar-2m"

enum { N_SETTINGS = 10, N_KEYS = 5 };

/* decoder.KEY=VALUE of a setting; tokens that it does not name are those of the model's
 * config.json.
 */
static void settings_of(const json_t *line, char settings[N_KEYS][64]) {
    static const char *const keys[N_KEYS] = {"threshold", "edit_threshold", "max_post_edit_steps",
                                             "delete", "insert"};
    for (int i = 0; i < N_KEYS; i++) {
        const json_t *value = json_object_get(line, keys[i]);
        snprintf(settings[i], 64, "decoder.%s%s=%g", keys[i], i >= 3 ? "_token" : "",
                 value != NULL ? json_number_value(value)
                 : i >= 3      ? 0
                               : 16);
    }
}

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
                                 "joint-indel",
                                 NULL};
    char settings[N_KEYS][64];
    int64_t unused;
    settings_of(line, settings);
    const char *const set[] = {settings[0], settings[1], settings[2],
                               settings[3], settings[4], "runtime.fused_head=off",
                               NULL};
    json_decref(specified_run(line, start, set, 32, number, &unused));
}

TEST(tokens_passes_and_replaced_tokens_are_those_of_the_specification) {
    specified_each(TOKENS, N_SETTINGS, decodes_so);
}

SUITE("live moving")
