/* Several blocks at once on the CPU: the tokens of a plain implementation of D2F, MultiBD, d3LLM
 * and DSB (experiments/study/reference/several_blocks.py), which reads the same checkpoints in
 * float32, in as many passes and over as many positions. */
#include <jansson.h>

#include "tests/support/cli.h"
#include "traces/decode_trace.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/several-blocks/tokens.jsonl"
#define MODELS  "experiments/train/models/"

enum { N_PROMPTS = 10, N_SETTINGS = 15 };

/* A setting of a line, and what it is where the line does not name it. */
struct key {
    const char *name, *key, *initial;
};

static const struct key keys[] = {
    {"threshold", "decoder.threshold", NULL}, {"complete", "decoder.complete", NULL},
    {"entropy", "decoder.entropy", NULL},     {"add", "block_add_threshold", NULL},
    {"most", "blocks_in_flight", NULL},       {"static", "static_blocks", "off"},
    {"block", "block_tokens", "32"},          {"sure", "decoder.threshold", NULL},
    {"window", "block_tokens", NULL},         {"prefix", "cache.prefix_window", NULL},
};
enum { N_KEYS = sizeof keys / sizeof keys[0], N_SET = 6 };

static bool is_bidirectional(const json_t *line) {
    return json_object_get(line, "entropy") != NULL || json_object_get(line, "window") != NULL;
}

static const char *system_of(const json_t *line) {
    return json_object_get(line, "window") != NULL ? "dsb"
           : is_bidirectional(line)                ? "d3llm"
                                                   : "multibd";
}

/* As many for a bidirectional model, of which one is said twice. */
static void settings_of(const json_t *line, char settings[N_SET][64]) {
    int n = 0;
    for (int i = 0; i < N_KEYS; i++) {
        const json_t *value = json_object_get(line, keys[i].name);
        const char *word = json_is_string(value) ? json_string_value(value) : keys[i].initial;
        if (json_is_number(value)) {
            snprintf(settings[n++], 64, "%s=%g", keys[i].key, json_number_value(value));
        } else if (word != NULL) {
            snprintf(settings[n++], 64, "%s=%s", keys[i].key, word);
        }
    }
    for (; n < N_SET; n++) {
        snprintf(settings[n], 64, "%s", settings[n - 1]);
    }
}

static int64_t whole_at(const json_t *line, const char *key, size_t i) {
    return (int64_t)json_integer_value(json_array_get(json_object_get(line, key), i));
}

/* Returns how many positions are prefilled: the prompts' whole blocks. */
static int64_t assert_tokens(const json_t *line, const char *outputs) {
    static char text[16384];
    const json_t *said = json_object_get(line, "block");
    const int64_t block = said != NULL ? json_integer_value(said) : 32;
    int64_t prefilled = 0;
    FILE *file = fopen(outputs, "r");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
        json_t *got = json_loads(text, 0, NULL);
        const size_t of = (size_t)json_integer_value(json_object_get(got, "number"));
        const int64_t prompt = json_integer_value(json_object_get(got, "prompt_tokens"));
        ck_assert_msg(json_equal(json_object_get(got, "output"),
                                 json_array_get(json_object_get(line, "tokens"), of)),
                      "prompt %zu", of);
        prefilled += is_bidirectional(line) ? 0 : prompt / block * block;
        json_decref(got);
    }
    fclose(file);
    return prefilled;
}

static void assert_passes(const json_t *line, const char *path) {
    struct decode_trace *trace;
    struct err err = {0};
    ck_assert_int_eq(decode_trace_read(path, DECODE_POSITIONS, &trace, &err), 0);
    const struct decode_source source = decode_trace_source(trace);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        struct decode_pass pass;
        int64_t n = 0;
        while (source.pass(source.state, i, (uint32_t)n, &pass, &err) == 0) {
            n++;
        }
        ck_assert_int_eq(n, whole_at(line, "passes", i));
    }
    decode_trace_close(trace);
}

/* All requests at once in packed batches, whose prompts are unlike; the run is recorded, and the
 * record played. */
TEST(tokens_passes_and_positions_are_those_of_the_specification) {
    static char line[65536];
    char outputs[512], decisions[512], db[512];
    snprintf(outputs, sizeof outputs, "%s", scratch_path("outputs.jsonl"));
    snprintf(decisions, sizeof decisions, "%s", scratch_path("decisions.db"));
    snprintf(db, sizeof db, "%s", scratch_path("runs.db"));
    FILE *file = fopen(TOKENS, "r");
    ck_assert_ptr_nonnull(file);
    size_t n_lines = 0;
    for (; fgets(line, sizeof line, file) != NULL; n_lines++) {
        json_t *setting = json_loads(line, 0, NULL);
        char settings[N_SET][64], run[16];
        ck_assert_ptr_nonnull(setting);
        settings_of(setting, settings);
        const bool is_wide = is_bidirectional(setting);
        char *said =
            PRINTS("run", "--json", "--backend", "cpu", "--clock", "virtual", "--weights",
                   is_wide ? MODELS "llada-2m" : MODELS "sdar-2m", "--workload", PROMPTS,
                   "--output-tokens", "64", "--eos", "none", "--system", system_of(setting),
                   "--outputs", outputs, "--decode-out", decisions, "--db", db, "--levels",
                   "events", "--set", settings[0], "--set", settings[1], "--set", settings[2],
                   "--set", settings[3], "--set", settings[4], "--set", settings[5]);
        json_t *summary = json_loads(said, 0, NULL);
        int64_t positions = assert_tokens(setting, outputs);
        assert_passes(setting, decisions);
        for (size_t i = 0; i < N_PROMPTS; i++) {
            positions += whole_at(setting, "run", i);
        }
        ck_assert_int_eq(json_integer_value(json_object_get(summary, "tokens_processed")),
                         positions);
        snprintf(run, sizeof run, "%zu", n_lines + 1);
        free(PRINTS("replay", "--db", db, "--run", run));
        json_decref(summary);
        json_decref(setting);
        free(said);
    }
    fclose(file);
    ck_assert_uint_eq(n_lines, N_SETTINGS);
}

SUITE("live several")
