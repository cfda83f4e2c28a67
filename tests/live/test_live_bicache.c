/* BiCache on the CPU: the tokens of a plain implementation of it (experiments/study/reference/
 * bicache.py), which reads the same checkpoint in float32, whether prompts run one by one, each
 * taking over what those before it kept, or together. */
#include "tests/support/specified.h"

#define FOLDER "tests/golden/engine/bicache/"

enum { N_SETTINGS = 6, MOST = 12 };

static const struct {
    const char *name, *key;
} keys[] = {{"depth", "cache.depth"},
            {"interval", "cache.interval_steps"},
            {"sure", "decoder.threshold"},
            {"share", "cache.share"},
            {"block", "block_tokens"}};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* As the line says and then `more`. Returns the summary. */
static json_t *run(const json_t *line, const char *const *more, size_t number) {
    static const char *const start[] = {"--weights",
                                        "experiments/train/models/llada-2m",
                                        "--workload",
                                        FOLDER "prompts.jsonl",
                                        "--output-tokens",
                                        "64",
                                        "--system",
                                        "bicache",
                                        "--decoder",
                                        "threshold",
                                        NULL};
    char text[N_KEYS][64];
    const char *set[MOST];
    const json_t *block = json_object_get(line, "block");
    int64_t positions;
    int n = 0;
    for (int i = 0; i < N_KEYS; i++) {
        const json_t *value = json_object_get(line, keys[i].name);
        if (value != NULL || keys[i].key == keys[N_KEYS - 1].key) {
            snprintf(text[i], sizeof text[i], "%s=%g", keys[i].key,
                     value != NULL ? json_number_value(value) : 32);
            set[n++] = text[i];
        }
    }
    for (; *more != NULL; more++) {
        set[n++] = *more;
    }
    set[n] = NULL;
    return specified_run(line, start, set, block != NULL ? json_integer_value(block) : 32, number,
                         &positions);
}

static uint64_t number_of(const json_t *summary, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(summary, key));
}

static void one_by_one(const json_t *line, size_t number) {
    static const char *const more[] = {"max_requests=1", "prefix_store_tokens=5000", NULL};
    json_t *summary = run(line, more, number);
    if (json_object_get(line, "share") == NULL) {
        ck_assert_uint_gt(number_of(summary, "prefix_hits"), 0);
    }
    json_decref(summary);
}

static void together(const json_t *line, size_t number) {
    static const char *const more[] = {"max_requests=16", "prefix_store_tokens=5000", NULL};
    json_decref(run(line, more, number));
}

/* What is kept gives way, also what a request under way has a copy of: where rows are renewed a few
 * times in a prompt, neither in each pass nor never. */
static void with_little_room(const json_t *line, size_t number) {
    static const char *const more[] = {"max_requests=3", "prefix_store_tokens=100", NULL};
    static size_t n_runs;
    const json_int_t interval = json_integer_value(json_object_get(line, "interval"));
    (void)number;
    if (interval > 1 && interval < 8) {
        json_decref(run(line, more, ++n_runs));
    }
}

TEST(prompts_one_by_one_have_the_tokens_of_the_specification) {
    specified_each(FOLDER "tokens.jsonl", N_SETTINGS, one_by_one);
}

TEST(prompts_together_have_the_same) {
    specified_each(FOLDER "tokens.jsonl", N_SETTINGS, together);
}

TEST(prompts_whose_prefixes_give_way_have_the_same) {
    specified_each(FOLDER "tokens.jsonl", N_SETTINGS, with_little_room);
}

SUITE("live bicache")
