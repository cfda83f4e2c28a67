/* Tokens that are drawn, live on the CPU: by seed, whoever else is in the batch, at a temperature
 * towards none as without, as right as they were; and who refuses it. The matrix of live runs has
 * more of them. */
#include <jansson.h>

#include "tests/support/cli.h"
#include "tests/support/live.h"

#define MODEL   "experiments/train/models/sdar-2m"
#define PROMPTS "experiments/train/models/sdar-2m/reference.jsonl"
#define GENERATE                                                                                   \
    "generate", "--backend", "cpu", "--weights", MODEL, "--system", "sdar", "--prompts", PROMPTS,  \
        "--output-tokens", "96", "--json"

/* Texts in one, and how many of them are right. */
static char *texts_of(const char *printed, int64_t *right) {
    json_t *root = json_loads(printed, 0, NULL), *prompts = json_object_get(root, "prompts");
    char *texts;
    size_t size, i;
    FILE *out = open_memstream(&texts, &size);
    json_t *prompt;
    json_array_foreach(prompts, i, prompt) {
        fprintf(out, "%s\n", json_string_value(json_object_get(prompt, "text")));
    }
    fclose(out);
    ck_assert_uint_eq(i, 12);
    *right = json_integer_value(json_object_get(json_object_get(root, "quality"), "right"));
    json_decref(root);
    return texts;
}

static char *generated(const char *const *more, int64_t *right) {
    const char *words[CLI_MOST_ARGS] = {GENERATE};
    size_t n = 0;
    while (words[n] != NULL) {
        n++;
    }
    for (size_t i = 0; more[i] != NULL; i++) {
        words[n++] = more[i];
    }
    struct output output = cli_run(&(struct child){0}, words);
    ck_assert_msg(output.status == 0, "%s", output.err);
    char *texts = texts_of(output.out, right);
    free(output.out);
    free(output.err);
    return texts;
}
#define GENERATED(right, ...) generated((const char *const[]){__VA_ARGS__, NULL}, right)

TEST(a_seed_draws_the_same_again_and_another_others) {
    int64_t right;
    char *greedy = GENERATED(&right, "--temperature", "0");
    char *plain = GENERATED(&right, "--seed", "1");
    ck_assert_str_eq(greedy, plain);
    char *first = GENERATED(&right, "--temperature", "1.5", "--seed", "3");
    char *again =
        GENERATED(&right, "--temperature", "1.5", "--seed", "3", "--set", "max_requests=1");
    char *other = GENERATED(&right, "--temperature", "1.5", "--seed", "4");
    ck_assert_str_eq(first, again);
    ck_assert_str_ne(first, other);
    ck_assert_str_ne(first, greedy);
    free(greedy);
    free(plain);
    free(first);
    free(again);
    free(other);
}

/* Confidences of the model's own distribution, so that the threshold decides as without. */
TEST(one_token_no_mass_and_no_temperature_decode_as_the_most_likely_token) {
    static const char *const settings[][2] = {
        {"--top-k", "1"}, {"--top-p", "0"}, {"--temperature", "0.01"}};
    int64_t right, n_right;
    char *greedy = GENERATED(&right, "--temperature", "0");
    for (size_t i = 0; i < 3; i++) {
        char *drawn =
            GENERATED(&n_right, settings[i][0], settings[i][1], "--set", "probabilities=model");
        ck_assert_str_eq(drawn, greedy);
        free(drawn);
    }
    free(greedy);
}

/* 9 of 12 is what the most likely tokens give but for one. */
TEST(a_trained_model_answers_right_at_the_temperatures_that_papers_use) {
    int64_t right, drawn;
    free(GENERATED(&right, "--temperature", "0"));
    free(GENERATED(&drawn, "--temperature", "0.5", "--top-p", "0.95"));
    ck_assert_int_ge(drawn, right - 2);
    free(GENERATED(&drawn, "--temperature", "30"));
    ck_assert_int_le(drawn, 1);
}

TEST(what_does_not_go_with_sampling_is_refused) {
#define REFUSED(why, ...) REFUSES(2, why, GENERATE, "--temperature", "1", "--set", __VA_ARGS__)
    REFUSED("tokens are drawn from logits that exist, in planned steps: set runtime.fused_head = "
            "off and allocator = planned",
            "runtime.fused_head=on");
    REFUSED("unroll.maximum = 4 starts steps together, and each draws tokens of its own: set "
            "unroll.maximum = 1",
            "unroll.maximum=4");
    REFUSED("a decoder that gives credit reads the most likely tokens and their probabilities: it "
            "does not go with sampling, top_k and top_p",
            "decoder=credit");
    REFUSES(2,
            "top_k and top_p change nothing of the most likely token: set sampling = on, or "
            "probabilities = kept",
            GENERATE, "--temperature", "0", "--top-p", "0.9");
    REFUSES(2,
            "without sampling probabilities = model means a temperature of 1, not 0.8: set "
            "sampling = on or temperature = 1",
            GENERATE, "--set", "temperature=0.8", "--set", "probabilities=model");
    REFUSES(2, "logits are divided before they are computed, and both are of logits as they are",
            GENERATE, "--set", "temperature=0.8", "--set", "iteration=smooth", "--set",
            "decoder=credit");
}

/* A trace says what was drawn; it is played, and no process is fitted to it. */
TEST(a_trace_of_drawn_tokens_is_played_and_not_fitted) {
    const char *trace = scratch_path("drawn.db");
    free(PRINTS(GENERATE, "--temperature", "1.5", "--decode-out", trace));
    char *played =
        PRINTS("run", "--system", "sdar", "--model", "sdar-tiny", "--gpu", "h100", "--roofline",
               "--set", "block_tokens=32", "--decode", trace, "--workload", trace, "--json");
    ck_assert_ptr_nonnull(strstr(played, "\"completed\": 12"));
    free(played);
    REFUSES(1,
            "drawn.db: tokens are drawn at temperature 1.5, top_k 0, top_p 1: a process is "
            "fitted to, and judged by, the most likely tokens at temperature 1",
            "fit", "decode", "--from", trace);
}

SUITE("sampling")
