/* The joint threshold on the CPU: the tokens of a plain implementation of its specification
 * (experiments/study/reference/joint_threshold.py), which reads the same checkpoint in float32, in
 * as many passes and with as many tokens replaced. */
#include <jansson.h>

#include "tests/support/cli.h"
#include "traces/decode_trace.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/joint-threshold/tokens.jsonl"
#define MODEL   "experiments/train/models/sdar-2m"

enum { N_PROMPTS = 10, N_SETTINGS = 6 };

static const char *const keys[] = {"threshold", "edit_threshold", "max_post_edit_steps",
                                   "zero_edits", "penalty"};
enum { N_KEYS = 5 };

/* decoder.KEY=VALUE of a setting; one that it does not name is as it is by default. */
static void settings_of(const json_t *line, char settings[N_KEYS][64]) {
    static const char *const defaults[] = {"0.5", "0", "16", "on", "0"};
    for (int i = 0; i < N_KEYS; i++) {
        const json_t *value = json_object_get(line, keys[i]);
        if (json_is_number(value)) {
            snprintf(settings[i], 64, "decoder.%s=%g", keys[i], json_number_value(value));
        } else {
            snprintf(settings[i], 64, "decoder.%s=%s", keys[i],
                     value != NULL ? json_string_value(value) : defaults[i]);
        }
    }
}

static int64_t whole_at(const json_t *line, const char *key, size_t i) {
    return (int64_t)json_integer_value(json_array_get(json_object_get(line, key), i));
}

static void assert_tokens(const json_t *line, const char *outputs) {
    char text[16384];
    FILE *file = fopen(outputs, "r");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
        json_t *got = json_loads(text, 0, NULL);
        const size_t of = (size_t)json_integer_value(json_object_get(got, "number"));
        ck_assert_msg(json_equal(json_object_get(got, "output"),
                                 json_array_get(json_object_get(line, "tokens"), of)),
                      "prompt %zu at %g and %g", of,
                      json_number_value(json_object_get(line, "threshold")),
                      json_number_value(json_object_get(line, "edit_threshold")));
        json_decref(got);
    }
    fclose(file);
}

static void assert_passes(const json_t *line, const char *path) {
    struct decode_trace *trace;
    struct err err = {0};
    ck_assert_int_eq(decode_trace_read(path, DECODE_POSITIONS, &trace, &err), 0);
    const struct decode_source source = decode_trace_source(trace);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        struct decode_pass pass;
        int64_t n = 0, revised = 0;
        for (; source.pass(source.state, i, (uint32_t)n, &pass, &err) == 0; n++) {
            revised += pass.revised;
        }
        ck_assert_int_eq(n, whole_at(line, "passes", i));
        ck_assert_int_eq(revised, whole_at(line, "replaced", i));
    }
    decode_trace_close(trace);
}

/* All requests at once in packed batches, whose prompts are unlike; the run is recorded, and the
 * record played. */
TEST(tokens_passes_and_replaced_tokens_are_those_of_the_specification) {
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
        char settings[N_KEYS][64], run[16];
        ck_assert_ptr_nonnull(setting);
        settings_of(setting, settings);
        free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--weights", MODEL,
                    "--workload", PROMPTS, "--output-tokens", "64", "--eos", "none", "--system",
                    "sglang", "--decoder", "joint-threshold", "--outputs", outputs, "--decode-out",
                    decisions, "--db", db, "--levels", "events", "--set", settings[0], "--set",
                    settings[1], "--set", settings[2], "--set", settings[3], "--set", settings[4],
                    "--set", "runtime.fused_head=off"));
        assert_tokens(setting, outputs);
        assert_passes(setting, decisions);
        snprintf(run, sizeof run, "%zu", n_lines + 1);
        free(PRINTS("replay", "--db", db, "--run", run));
        json_decref(setting);
    }
    fclose(file);
    ck_assert_uint_eq(n_lines, N_SETTINGS);
}

SUITE("live revising")
