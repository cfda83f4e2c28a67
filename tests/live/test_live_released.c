/* dLLM-Cache, SparseD, and dKV-Cache and FOCUS where logits are shifted, on the CPU: the tokens of
 * plain implementations (experiments/study/reference), which read the same checkpoint in float32.
 */
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

enum { N_SET = 8 };

/* The lines of a file: settings and the tokens that each gives. */
struct reference {
    const char *tokens, *weights;
    void (*set)(const json_t *line, char settings[N_SET][64]); /* the first one is the system */
    bool (*is_slow)(size_t number, const json_t *line); /* left out but under UNMASK_MATRIX=all */
    bool of_all_prompts;                                /* in any case */
    size_t n_lines;
};

static double number_of(const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    ck_assert_msg(json_is_number(value), "%s", key);
    return json_number_value(value);
}

static const char *word_of(const json_t *line, const char *key) {
    const char *word = json_string_value(json_object_get(line, key));
    ck_assert_msg(word != NULL, "%s", key);
    return word;
}

/* Numbers of the cache, under their names there. */
static void set_numbers(const json_t *line, const char *system, const char *const keys[3],
                        char settings[N_SET][64]) {
    snprintf(settings[0], 64, "%s", system);
    for (int i = 0; i < 3; i++) {
        snprintf(settings[1 + i], 64, "cache.%s=%g", keys[i], number_of(line, keys[i]));
    }
}

/* All requests at once in packed batches, whose prompts are unlike. */
static void decodes_as(const struct reference *reference, const json_t *line, const char *prompts,
                       bool all) {
    const char *outputs = scratch_path("outputs.jsonl");
    char set[N_SET][64] = {{0}}, text[16384];
    reference->set(line, set);
    for (int i = 1; i < N_SET; i++) { /* as many for each: one is said twice */
        if (set[i][0] == '\0') {
            memcpy(set[i], set[i - 1], sizeof set[i]);
        }
    }
    free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--weights", reference->weights,
                "--workload", prompts, "--output-tokens", "64", "--eos", "none", "--system", set[0],
                "--outputs", outputs, "--set", set[1], "--set", set[2], "--set", set[3], "--set",
                set[4], "--set", set[5], "--set", set[6], "--set", set[7]));
    FILE *file = fopen(outputs, "r");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < (all ? N_PROMPTS : N_SENSITIVE); i++) {
        ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
        json_t *got = json_loads(text, 0, NULL);
        const size_t number = (size_t)json_integer_value(json_object_get(got, "number"));
        const size_t of = all ? number : sensitive[number];
        ck_assert_msg(json_equal(json_object_get(got, "output"),
                                 json_array_get(json_object_get(line, "tokens"), of)),
                      "prompt %zu under %s %s %s %s", of, set[0], set[1], set[2], set[3]);
        json_decref(got);
    }
    fclose(file);
}

/* UNMASK_MATRIX=all takes every setting and prompt. */
static void gives_the_tokens(const struct reference *reference) {
    static char line[65536];
    char prompts[512];
    const char *matrix = getenv("UNMASK_MATRIX");
    const bool all = (matrix != NULL && strcmp(matrix, "all") == 0) || reference->of_all_prompts;
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

static void set_features(const json_t *line, char settings[N_SET][64]) {
    static const char *const keys[] = {"transfer_ratio", "prompt_interval_steps",
                                       "output_interval_steps"};
    set_numbers(line, "dllm-cache", keys, settings);
}

TEST(features_give_the_tokens_of_the_released_code) {
    gives_the_tokens(&(struct reference){.tokens = "tests/golden/engine/dllm-cache/tokens.jsonl",
                                         .weights = MODEL,
                                         .set = set_features,
                                         .is_slow = is_no_cache,
                                         .n_lines = 15});
}

/* A few sizes of blocks; those that keep everything, or attend to all keys in every step, have the
 * tokens of a run without a pattern. */
static bool is_more(size_t number, const json_t *line) {
    (void)line;
    return number % 2 == 1 || number == 2 || number >= 9;
}

static void set_patterns(const json_t *line, char settings[N_SET][64]) {
    static const char *const keys[] = {"skip", "select", "pattern_tokens"};
    set_numbers(line, "sparsed", keys, settings);
}

TEST(patterns_give_the_tokens_of_the_released_code) {
    gives_the_tokens(&(struct reference){.tokens = "tests/golden/engine/sparsed/tokens.jsonl",
                                         .weights = MODEL,
                                         .set = set_patterns,
                                         .is_slow = is_more,
                                         .n_lines = 11});
}

/* dKV-Cache's code for Dream: a canvas without blocks, as many positions a step as its time grid
 * has. */
static void set_delayed(const json_t *line, char settings[N_SET][64]) {
    const char *variant = word_of(line, "variant"), *by = word_of(line, "by");
    const bool is_pd = strcmp(variant, "pd") == 0, is_prefill = strcmp(variant, "prefill") == 0;
    const double interval = number_of(line, "interval_steps");
    snprintf(settings[0], 64, "dkv-cache");
    snprintf(settings[1], 64, "model.shifted_logits=on");
    snprintf(settings[2], 64, "block_tokens=64");
    snprintf(settings[3], 64, "steps_per_block=%g", number_of(line, "steps"));
    snprintf(settings[4], 64, "decoder=%s",
             strcmp(by, "maskgit_plus") == 0  ? "maskgit-plus"
             : strcmp(by, "topk_margin") == 0 ? "margin"
                                              : "entropy");
    snprintf(settings[5], 64, "cache=dkv-%s", is_pd || is_prefill ? variant : "decode");
    if (!is_prefill) {
        snprintf(settings[6], 64, "cache.interval_steps=%g", interval);
    }
    /* Dream's code begins to reuse in the second step; the others renew the prompt never. */
    snprintf(settings[is_prefill ? 6 : 7], 64,
             is_pd || is_prefill ? "cache.prompt_interval_steps=1000000" : "cache.first_steps=1");
}

static bool is_like_another(size_t number, const json_t *line) {
    (void)line;
    return number == 2 || number == 4 || number == 5 || number == 9;
}

TEST(delayed_rows_give_the_tokens_of_the_released_code_where_logits_are_shifted) {
    gives_the_tokens(&(struct reference){.tokens = "tests/golden/engine/dkv-cache/tokens.jsonl",
                                         .weights = MODEL,
                                         .set = set_delayed,
                                         .is_slow = is_like_another,
                                         .n_lines = 10});
}

/* DC+ and FOCUS in blocks, of which nothing was released where logits are shifted. */
static void set_focus(const json_t *line, char settings[N_SET][64]) {
    const bool evicts = strcmp(word_of(line, "system"), "focus") == 0;
    snprintf(settings[0], 64, "%s", word_of(line, "system"));
    snprintf(settings[1], 64, "model.shifted_logits=on");
    snprintf(settings[2], 64, "block_tokens=%g", number_of(line, "block"));
    snprintf(settings[3], 64, "decoder=threshold");
    snprintf(settings[4], 64, "decoder.threshold=%g", number_of(line, "threshold"));
    if (evicts) {
        snprintf(settings[5], 64, "cache.alpha=%g", number_of(line, "alpha"));
    } else { /* on in both systems: the commit pass has a row in the head in either case */
        snprintf(settings[5], 64, "cache.commit_logits=off");
    }
}

TEST(rows_before_positions_decide_in_blocks_as_written_down_in_python) {
    gives_the_tokens(&(struct reference){.tokens = "tests/golden/engine/focus-shifted/tokens.jsonl",
                                         .weights = "experiments/train/models/sdar-2m",
                                         .set = set_focus,
                                         .of_all_prompts = true,
                                         .n_lines = 7});
}

SUITE("live: released code")
