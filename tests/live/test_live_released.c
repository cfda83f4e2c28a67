/* dLLM-Cache and SparseD on the CPU: the tokens of plain implementations of their released code
 * (experiments/study/reference), which read the same checkpoint in float32. */
#include <jansson.h>

#include "tests/support/cli.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define MODEL   "experiments/train/models/llada-2m"

/* Prompts whose tokens old features change soonest. */
static const size_t sensitive[] = {3, 7};
enum { N_SENSITIVE = 2, N_PROMPTS = 10 };

/* All of the prompts, or those, in a file of the test's own. */
static void take_prompts(bool all, const char *to) {
    char line[16384];
    FILE *in = fopen(PROMPTS, "r"), *out = fopen(to, "w");
    ck_assert(in != NULL && out != NULL);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof line, in));
        if (all || i == sensitive[0] || i == sensitive[1]) {
            fputs(line, out);
        }
    }
    fclose(in);
    fclose(out);
}

/* A system, and the lines of its file: settings and the tokens that each gives. */
struct reference {
    const char *system, *tokens;
    const char *keys[3];
    bool (*is_slow)(size_t number, const json_t *line); /* left out but under UNMASK_MATRIX=all */
    size_t n_lines;
};

static const char *setting_of(const json_t *line, const char *key, char text[64]) {
    const json_t *value = json_object_get(line, key);
    ck_assert_msg(json_is_number(value), "%s", key);
    snprintf(text, 64, "cache.%s=%g", key, json_number_value(value));
    return text;
}

/* All requests at once in packed batches, whose prompts are unlike. */
static void decodes_as(const struct reference *reference, const json_t *line, const char *prompts,
                       bool all) {
    const char *outputs = scratch_path("outputs.jsonl");
    char settings[3][64], text[16384];
    free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--weights", MODEL, "--workload",
                prompts, "--output-tokens", "64", "--eos", "none", "--system", reference->system,
                "--outputs", outputs, "--set", setting_of(line, reference->keys[0], settings[0]),
                "--set", setting_of(line, reference->keys[1], settings[1]), "--set",
                setting_of(line, reference->keys[2], settings[2])));
    FILE *file = fopen(outputs, "r");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < (all ? N_PROMPTS : N_SENSITIVE); i++) {
        ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
        json_t *got = json_loads(text, 0, NULL);
        const size_t number = (size_t)json_integer_value(json_object_get(got, "number"));
        const size_t of = all ? number : sensitive[number];
        ck_assert_msg(json_equal(json_object_get(got, "output"),
                                 json_array_get(json_object_get(line, "tokens"), of)),
                      "prompt %zu under %s %s %s", of, settings[0], settings[1], settings[2]);
        json_decref(got);
    }
    fclose(file);
}

/* UNMASK_MATRIX=all takes every setting and prompt. */
static void gives_the_tokens(const struct reference *reference) {
    static char line[65536];
    char prompts[512];
    const char *matrix = getenv("UNMASK_MATRIX");
    const bool all = matrix != NULL && strcmp(matrix, "all") == 0;
    size_t n_lines = 0;
    snprintf(prompts, sizeof prompts, "%s", scratch_path("prompts.jsonl"));
    take_prompts(all, prompts);
    FILE *file = fopen(reference->tokens, "r");
    ck_assert_ptr_nonnull(file);
    for (; fgets(line, sizeof line, file) != NULL; n_lines++) {
        json_t *setting = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(setting);
        if (all || !reference->is_slow(n_lines, setting)) {
            decodes_as(reference, setting, prompts, all);
        }
        json_decref(setting);
    }
    fclose(file);
    ck_assert_uint_eq(n_lines, reference->n_lines);
}

/* Those that renew everything in every step and those by which whole outputs move have the tokens
 * of a run without a cache. */
static bool is_no_cache(size_t number, const json_t *line) {
    return number < 3 || json_real_value(json_object_get(line, "transfer_ratio")) >= 1;
}

TEST(features_give_the_tokens_of_the_released_code) {
    gives_the_tokens(&(struct reference){
        .system = "dllm-cache",
        .tokens = "tests/golden/engine/dllm-cache/tokens.jsonl",
        .keys = {"transfer_ratio", "prompt_interval_steps", "output_interval_steps"},
        .is_slow = is_no_cache,
        .n_lines = 15});
}

/* A few sizes of blocks; those that keep everything, or attend to all keys in every step, have the
 * tokens of a run without a pattern. */
static bool is_more(size_t number, const json_t *line) {
    (void)line;
    return number % 2 == 1 || number == 2 || number >= 9;
}

TEST(patterns_give_the_tokens_of_the_released_code) {
    gives_the_tokens(&(struct reference){.system = "sparsed",
                                         .tokens = "tests/golden/engine/sparsed/tokens.jsonl",
                                         .keys = {"skip", "select", "pattern_tokens"},
                                         .is_slow = is_more,
                                         .n_lines = 11});
}

SUITE("live: released code")
