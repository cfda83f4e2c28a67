/* Experts chosen by block on the CPU: the tokens of a plain implementation of both rules
 * (experiments/study/reference/block_experts.py), which reads the same checkpoints in float32:
 * one of random weights, and one that is trained so. */
#include "tests/support/specified.h"

#define FOLDER "tests/golden/engine/block-experts"
#define TEXTS  "tests/golden/engine/dllm-cache/prompts.jsonl"

enum { N_SETTINGS = 10 };

static double number_of(const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    return value != NULL ? json_number_value(value) : 0;
}

static void decodes_so(const json_t *line, size_t number) {
    const char *const model = specified_model(line, FOLDER);
    const bool is_trained = strcmp(model, FOLDER) != 0;
    const char *const start[] = {"--weights",
                                 model,
                                 "--workload",
                                 is_trained ? TEXTS : FOLDER "/prompts.jsonl",
                                 "--output-tokens",
                                 is_trained ? "64" : "24",
                                 "--system",
                                 "sglang",
                                 NULL};
    char settings[3][64];
    int64_t unused;
    snprintf(settings[0], 64, "model.block_routing=%s",
             json_string_value(json_object_get(line, "routing")));
    snprintf(settings[1], 64, "model.block_experts=%g", number_of(line, "experts"));
    snprintf(settings[2], 64, "model.block_expert_share=%g", number_of(line, "share"));
    const char *const set[] = {settings[0],
                               settings[1],
                               settings[2],
                               "decoder=threshold",
                               is_trained ? "decoder.threshold=0.9" : "decoder.threshold=0.05",
                               NULL};
    json_decref(specified_run(line, start, set, is_trained ? 32 : 8, number, &unused));
}

TEST(tokens_and_passes_are_those_of_the_specification) {
    specified_each(FOLDER "/tokens.jsonl", N_SETTINGS, decodes_so);
}

SUITE("live block experts")
