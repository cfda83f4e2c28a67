/* The trained checkpoints of the tree on the CPU: their outputs are those of the reference decode
 * (experiments/train/decode.py), and they answer as many of a hundred held-out problems right as
 * they did. */
#include <jansson.h>

#include "tests/support/cli.h"

#define MODELS  "experiments/train/models/"
#define PROMPTS "experiments/train/prompts/"

enum { END_OF_TEXT = 2045 };

/* A mixture whose blocks choose their experts together is decoded as it was trained. */
static json_t *generate(const char *weights, const char *system, const char *prompts,
                        const char *output_tokens) {
    const bool is_mixture = strstr(weights, "llada2") != NULL;
    const char *const routing =
                          is_mixture ? "model.block_routing=largest" : "model.block_routing=none",
                      *const experts =
                          is_mixture ? "model.block_experts=6" : "decoder.threshold=0.9";
    char *text =
        PRINTS("generate", "--backend", "cpu", "--weights", weights, "--system", system,
               "--decoder", "threshold", "--set", "decoder.threshold=0.9", "--set", routing,
               "--set", experts, "--prompts", prompts, "--output-tokens", output_tokens, "--json");
    json_t *printed = json_loads(text, 0, NULL);
    ck_assert_msg(printed != NULL, "%s", text);
    free(text);
    return printed;
}

static void decodes_as_the_reference(const char *weights, const char *system) {
    char path[256], line[16384];
    snprintf(path, sizeof path, "%s/reference.jsonl", weights);
    json_t *printed = generate(weights, system, path, "96");
    json_t *prompts = json_object_get(printed, "prompts");
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t n = 0;
    for (; fgets(line, sizeof line, file) != NULL; n++) {
        json_t *reference = json_loads(line, 0, NULL), *got = json_array_get(prompts, n);
        json_t *expected = json_object_get(reference, "output");
        json_array_append_new(expected, json_integer(END_OF_TEXT));
        ck_assert_msg(json_equal(expected, json_object_get(got, "output")), "%s on %s: not %s",
                      weights, system, json_string_value(json_object_get(reference, "id")));
        ck_assert_str_eq(json_string_value(json_object_get(got, "text")),
                         json_string_value(json_object_get(reference, "text")));
        ck_assert(json_equal(json_object_get(reference, "right"), json_object_get(got, "right")));
        json_decref(reference);
    }
    fclose(file);
    ck_assert_uint_eq(n, 12);
    ck_assert_uint_eq(json_array_size(prompts), n);
    json_decref(printed);
}

TEST(a_trained_checkpoint_decodes_as_the_reference) {
    decodes_as_the_reference(MODELS "sdar-2m", "sdar");
    decodes_as_the_reference(MODELS "llada-2m", "vanilla");
    decodes_as_the_reference(MODELS "sdar-2m-all", "sdar");
    decodes_as_the_reference(MODELS "sdar-2m-indel", "sdar");
    decodes_as_the_reference(MODELS "llada2-2m", "sdar");
}

/* The first hundred lines of a file of prompts in a file of the test's own. */
static void take_hundred(const char *from, const char *to) {
    char line[16384];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    ck_assert(in != NULL && out != NULL);
    for (int i = 0; i < 100; i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof line, in));
        fputs(line, out);
    }
    fclose(in);
    fclose(out);
}

static void answers(const char *weights, const char *system, const char *task, const char *tokens,
                    int right) {
    char from[256];
    const char *to = scratch_path(task);
    snprintf(from, sizeof from, PROMPTS "%s.jsonl", task);
    take_hundred(from, to);
    json_t *printed = generate(weights, system, to, tokens);
    json_t *quality = json_object_get(printed, "quality");
    ck_assert_int_eq(json_integer_value(json_object_get(quality, "judged")), 100);
    ck_assert_int_eq(json_integer_value(json_object_get(quality, "right")), right);
    json_decref(printed);
}

TEST(a_trained_checkpoint_answers_a_hundred_problems_as_it_did) {
    answers(MODELS "sdar-2m", "sdar", "easy", "96", 97);
    answers(MODELS "llada-2m", "vanilla", "hops", "32", 100);
}

SUITE("live_trained")
