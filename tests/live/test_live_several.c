/* Several blocks at once on the CPU: the tokens of a plain implementation of D2F, MultiBD, d3LLM
 * and DSB (experiments/study/reference/several_blocks.py), which reads the same checkpoints in
 * float32, in as many passes and over as many positions. */
#include "sim/decode/block.h"
#include "tests/support/specified.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/several-blocks/tokens.jsonl"
#define MODELS  "experiments/train/models/"

enum { N_SETTINGS = 38 };

/* A setting of a line, and what it is where the line does not name it. */
struct key {
    const char *name, *key, *initial;
};

static const struct key keys[] = {
    {"threshold", "decoder.threshold", NULL},  {"complete", "decoder.complete", NULL},
    {"entropy", "decoder.entropy", NULL},      {"add", "block_add_threshold", NULL},
    {"most", "blocks_in_flight", NULL},        {"static", "static_blocks", "off"},
    {"block", "block_tokens", "32"},           {"sure", "decoder.threshold", NULL},
    {"window", "block_tokens", NULL},          {"prefix", "cache.prefix_window", NULL},
    {"shifted", "model.shifted_logits", NULL},
};
enum { N_KEYS = sizeof keys / sizeof keys[0], N_SET = 7 };

/* Diffulex's stability of tokens that are not replaced is 1 for a block that is complete and 0
 * before, so that whatever share it asks for it waits for that. */
static double joins_at(const json_t *line, double add) {
    return json_number_value(json_object_get(line, "stability")) > 0 ? 1 : add;
}

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
            const double number = json_number_value(value);
            const bool adds = strcmp(keys[i].name, "add") == 0;
            snprintf(settings[n++], 64, "%s=%g", keys[i].key,
                     adds ? joins_at(line, number) : number);
        } else if (word != NULL) {
            snprintf(settings[n++], 64, "%s=%s", keys[i].key, word);
        }
    }
    for (; n < N_SET; n++) {
        snprintf(settings[n], 64, "%s", settings[n - 1]);
    }
}

/* What a row said where a position was committed is its token, in a later pass, too. */
static void records_tokens(const json_t *line, const char *path) {
    struct decode_trace *trace;
    struct err err = {0};
    struct decode_positions p;
    ck_assert_int_eq(decode_trace_read(path, DECODE_POSITIONS, &trace, &err), 0);
    decode_positions_init(&p, 1024);
    for (size_t i = 0; i < SPECIFIED_PROMPTS; i++) {
        const struct decode_request of = decode_trace_request(trace, i);
        const json_t *tokens = json_array_get(json_object_get(line, "tokens"), i);
        for (uint32_t row = 0; row < of.rows; row++) {
            ck_assert(decode_trace_positions(trace, i, row, &p));
            for (uint32_t at = 0; at < p.length; at++) {
                const json_t *token = json_array_get(tokens, p.start + at - of.prompt_tokens);
                ck_assert(p.outcome[at] != OUTCOME_COMMIT || token == NULL ||
                          p.token[at] == json_integer_value(token));
            }
        }
    }
    decode_positions_fini(&p);
    decode_trace_close(trace);
}

static void decodes_so(const json_t *line, size_t number) {
    char settings[N_SET][64];
    const json_t *block = json_object_get(line, "block");
    const bool is_wide = is_bidirectional(line);
    int64_t positions = 0;
    settings_of(line, settings);
    const char *const start[] = {
        "--weights",
        specified_model(line, is_wide ? MODELS "llada-2m" : MODELS "sdar-2m"),
        "--workload",
        PROMPTS,
        "--output-tokens",
        "64",
        "--system",
        system_of(line),
        NULL};
    const char *const set[] = {settings[0], settings[1], settings[2], settings[3],
                               settings[4], settings[5], settings[6], NULL};
    json_t *summary = specified_run(
        line, start, set, block != NULL ? json_integer_value(block) : 32, number, &positions);
    specified_processed(line, summary, is_wide ? 0 : positions); /* those prefilled */
    json_decref(summary);
    records_tokens(line, scratch_path("decisions.db"));
}

TEST(tokens_passes_and_positions_are_those_of_the_specification) {
    specified_each(TOKENS, N_SETTINGS, decodes_so);
}

/* What follows an end of text may be decided before it, and is no end itself: a record is played by
 * where the run ended. */
TEST(a_text_is_played_to_where_it_was_decided) {
    static const char *const systems[] = {"d2f", "multibd"};
    for (int i = 0; i < 2; i++) {
        char db[512], run[16];
        snprintf(db, sizeof db, "%s", scratch_path("ended.db"));
        snprintf(run, sizeof run, "%d", i + 1);
        free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--eos", "220", "--weights",
                    MODELS "sdar-2m", "--workload", PROMPTS, "--output-tokens", "64", "--system",
                    systems[i], "--set", "block_tokens=16", "--set", "decoder.threshold=1", "--set",
                    "block_add_threshold=0.5", "--set", "blocks_in_flight=4", "--db", db,
                    "--levels", "events"));
        free(PRINTS("replay", "--db", db, "--run", run));
    }
}

/* A window slides by what the device decided, also where no one asks what that was. */
TEST(a_run_that_is_not_recorded_decodes_the_same) {
    const char *const systems[] = {"dsb", "dsb-greedy", "multibd"};
    for (int i = 0; i < 3; i++) {
        const char *const weights = i < 2 ? MODELS "llada-2m" : MODELS "sdar-2m";
        char *texts[2];
        for (int recorded = 0; recorded < 2; recorded++) {
            char outputs[512], decisions[512];
            snprintf(outputs, sizeof outputs, "%s", scratch_path("alone.jsonl"));
            snprintf(decisions, sizeof decisions, "%s", scratch_path("alone.db"));
            const char *words[] = {"run",
                                   "--backend",
                                   "cpu",
                                   "--clock",
                                   "virtual",
                                   "--eos",
                                   "none",
                                   "--weights",
                                   weights,
                                   "--system",
                                   systems[i],
                                   "--workload",
                                   PROMPTS,
                                   "--output-tokens",
                                   "64",
                                   "--set",
                                   "decoder.threshold=0.9",
                                   "--outputs",
                                   outputs,
                                   recorded ? "--decode-out" : NULL,
                                   decisions,
                                   NULL};
            free(cli_text(cli_run(&(const struct child){0}, words)));
            FILE *file = fopen(outputs, "r");
            ck_assert_ptr_nonnull(file);
            texts[recorded] = cli_read(file);
            fclose(file);
        }
        ck_assert_str_eq(texts[0], texts[1]);
        free(texts[0]);
        free(texts[1]);
    }
}

SUITE("live several")
