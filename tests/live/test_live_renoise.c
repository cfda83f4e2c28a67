/* Canvases of random tokens on the CPU: the tokens of a plain implementation of entropy-bounded
 * renoising (experiments/study/reference/renoise.py), which reads the same checkpoint in float32,
 * in as many passes; and what the engine does not run. */
#include <jansson.h>

#include "tests/support/cli.h"
#include "tests/support/says.h"
#include "traces/decode_trace.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/renoise/tokens.jsonl"
#define WEIGHTS "experiments/train/models/sdar-2m"

enum { N_PROMPTS = 10, N_SETTINGS = 7, N_SET = 6 };

/* A setting of a line, and what it is where the line does not name it. */
static const struct {
    const char *name, *key, *initial;
} keys[N_SET] = {
    {"block", "block_tokens", "32"},
    {"entropy_bound", "decoder.entropy_bound", "0.1"},
    {"confidence_threshold", "decoder.confidence_threshold", "0.005"},
    {"t_min", "decoder.t_min", "0.4"},
    {"t_max", "decoder.t_max", "0.8"},
    {"max_steps", "decoder.max_steps", "48"},
};

static void settings_of(const json_t *line, char settings[N_SET][64]) {
    for (int i = 0; i < N_SET; i++) {
        const json_t *value = json_object_get(line, keys[i].name);
        if (value != NULL) {
            snprintf(settings[i], 64, "%s=%g", keys[i].key, json_number_value(value));
        } else {
            snprintf(settings[i], 64, "%s=%s", keys[i].key, keys[i].initial);
        }
    }
}

static void assert_tokens(const json_t *line, const char *outputs) {
    static char text[16384];
    FILE *file = fopen(outputs, "r");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
        json_t *got = json_loads(text, 0, NULL);
        const size_t of = (size_t)json_integer_value(json_object_get(got, "number"));
        ck_assert_msg(json_equal(json_object_get(got, "output"),
                                 json_array_get(json_object_get(line, "tokens"), of)),
                      "prompt %zu", of);
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
        int64_t n = 0, n_commits = 0;
        while (source.pass(source.state, i, (uint32_t)n, &pass, &err) == 0) {
            n++;
            n_commits += pass.committed > 0;
        }
        const json_int_t block = json_integer_value(json_object_get(line, "block"));
        const int64_t n_canvases = (64 + block - 1) / block,
                      of_line =
                          json_integer_value(json_array_get(json_object_get(line, "passes"), i));
        ck_assert_int_eq(n, of_line + n_canvases); /* and one that stores each */
        ck_assert_int_eq(n_commits, n_canvases);
    }
    decode_trace_close(trace);
}

#define RUN_OF(weights, ...)                                                                       \
    "run", "--json", "--backend", "cpu", "--clock", "virtual", "--weights", weights, "--workload", \
        PROMPTS, "--output-tokens", "64", "--eos", "none", "--system", "sdar", "--set",            \
        "early_stop=off", "--decoder", "renoise", "--set", "model.uniform_noise=on", "--set",      \
        "model.mask_token=4294967295", "--set", "model.causal_prompt=on", __VA_ARGS__
#define RUN(...) RUN_OF(WEIGHTS, __VA_ARGS__)

/* All requests at once in packed batches, whose prompts are unlike; the run is recorded, and the
 * record played. */
TEST(tokens_and_passes_are_those_of_the_specification) {
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
        const json_t *model = json_object_get(setting, "model");
        free(PRINTS(RUN_OF(model != NULL ? json_string_value(model) : WEIGHTS, "--outputs", outputs,
                           "--decode-out", decisions, "--db", db, "--levels", "events", "--set",
                           settings[0], "--set", settings[1], "--set", settings[2], "--set",
                           settings[3], "--set", settings[4], "--set", settings[5])));
        assert_tokens(setting, outputs);
        assert_passes(setting, decisions);
        snprintf(run, sizeof run, "%zu", n_lines + 1);
        free(PRINTS("replay", "--db", db, "--run", run));
        json_decref(setting);
    }
    fclose(file);
    ck_assert_uint_eq(n_lines, N_SETTINGS);
}

/* Requests that wait have slots, too, beyond as many as run at once. */
TEST(two_at_a_time_are_decoded_as_all_at_once) {
    static char line[65536];
    char outputs[512];
    snprintf(outputs, sizeof outputs, "%s", scratch_path("outputs.jsonl"));
    FILE *file = fopen(TOKENS, "r");
    ck_assert(file != NULL && fgets(line, sizeof line, file) != NULL && fclose(file) == 0);
    json_t *setting = json_loads(line, 0, NULL);
    char settings[N_SET][64];
    settings_of(setting, settings);
    free(PRINTS(RUN("--outputs", outputs, "--set", "max_requests=2", "--set", settings[0], "--set",
                    settings[1], "--set", settings[2], "--set", settings[3], "--set", settings[4],
                    "--set", settings[5])));
    assert_tokens(setting, outputs);
    json_decref(setting);
}

TEST(what_the_engine_does_not_run_is_refused_with_one_sentence) {
    REFUSES(2, "a kernel draws tokens from them", RUN("--set", "logit_chunk_rows=64"));
    REFUSES(2, "a kernel draws tokens from them", RUN("--set", "runtime.fused_head=on"));
    REFUSES(2, "names no tensors for it: weights are random (random:SEED) or of another model",
            RUN("--set", "model.conditioning_ffn=64"));
    REFUSES(2, "a request's pages hold rows of all layers",
            RUN("--set", "model.local_window=64", "--set", "model.global_every=5", "--set",
                "model.global_kv_heads=1", "--set", "model.global_head_dim=64"));
}

SUITE("live renoise")
