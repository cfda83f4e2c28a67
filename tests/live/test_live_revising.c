/* The joint threshold on the CPU: the tokens of a plain implementation of its specification
 * (experiments/study/reference/joint_threshold.py), which reads the same checkpoints in float32, in
 * as many passes and with as many tokens replaced. One of them is trained to replace tokens. */
#include "tests/support/specified.h"

#define PROMPTS "tests/golden/engine/dllm-cache/prompts.jsonl"
#define TOKENS  "tests/golden/engine/joint-threshold/tokens.jsonl"
#define MODEL   "experiments/train/models/sdar-2m"

enum { N_SETTINGS = 16 };

static const char *const keys[] = {"threshold",  "edit_threshold", "max_post_edit_steps",
                                   "zero_edits", "penalty",        "steps"};
enum { N_KEYS = 6 };

static const char *const defaults[N_KEYS] = {"0.5", "0", "16", "on", "0", "0"};

static void decodes_so(const json_t *line, size_t number) {
    const char *const start[] = {"--weights",
                                 specified_model(line, MODEL),
                                 "--workload",
                                 PROMPTS,
                                 "--output-tokens",
                                 "64",
                                 "--system",
                                 "sglang",
                                 "--decoder",
                                 "joint-threshold",
                                 NULL};
    char settings[N_KEYS][SPECIFIED_CHARS];
    int64_t unused;
    const char *set[N_KEYS + 2] = {[N_KEYS] = "runtime.fused_head=off"};
    specified_settings(line, keys, defaults, N_KEYS, settings, set);
    json_decref(specified_run(line, start, set, 32, number, &unused));
}

TEST(tokens_passes_and_replaced_tokens_are_those_of_the_specification) {
    specified_each(TOKENS, N_SETTINGS, decodes_so);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* A prompt and an output that one block holds: whose logits are computed changes no token. */
TEST(a_canvas_of_one_block_is_decoded_alike_under_every_scope) {
    static const char *const scopes[] = {"queries", "block", "generation"};
    static const char *const decoders[][2] = {
        {"decoder=joint-threshold", "decoder.edit_threshold=0"},
        {"decoder=joint-indel", "decoder.insert_token=2000"},
    };
    char prompts[512], first[4096] = "", text[4096];
    snprintf(prompts, sizeof prompts, "%s", scratch_path("short.jsonl"));
    write_text(prompts, "{\"ids\": [5]}\n{\"ids\": [7, 8, 9, 10, 11]}\n");
    for (size_t i = 0; i < 6; i++) {
        const char *outputs = scratch_path("outputs.jsonl");
        char scope[64];
        snprintf(scope, sizeof scope, "logit_scope=%s", scopes[i % 3]);
        free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--weights", MODEL,
                    "--workload", prompts, "--output-tokens", "3", "--eos", "none", "--system",
                    "sglang", "--set", decoders[i / 3][0], "--set", decoders[i / 3][1], "--set",
                    scope, "--set", "runtime.fused_head=off", "--outputs", outputs, "--set",
                    i < 3 ? "decoder.zero_edits=on" : "decoder.delete_token=2001"));
        FILE *file = fopen(outputs, "r");
        ck_assert_ptr_nonnull(file);
        const size_t n = fread(text, 1, sizeof text - 1, file);
        text[n] = '\0';
        fclose(file);
        if (i % 3 == 0) {
            memcpy(first, text, n + 1);
        }
        ck_assert_str_eq(text, first);
    }
}

static void decode_so(const char *model, const char *const set[4], bool is_watched, char *text,
                      size_t chars) {
    char outputs[512], kept[512], steps[64];
    snprintf(outputs, sizeof outputs, "%s", scratch_path("outputs.jsonl"));
    snprintf(kept, sizeof kept, "%s", scratch_path(is_watched ? "watched.db" : "kept.db"));
    (void)unlink(kept);
    char *said = PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--json", "--weights",
                        model, "--workload", PROMPTS, "--output-tokens", "64", "--eos", "none",
                        "--system", set[0], "--set", set[1], "--set", set[2], "--set", set[3],
                        "--outputs", outputs, is_watched ? "--decode-out" : "--db", kept);
    json_t *summary = json_loads(said, 0, NULL);
    FILE *file = fopen(outputs, "r");
    ck_assert_ptr_nonnull(file);
    const size_t n = fread(text, 1, chars - 1, file);
    text[n] = '\0';
    fclose(file);
    snprintf(steps, sizeof steps, "%lld steps",
             (long long)json_integer_value(json_object_get(summary, "request_steps")));
    strncat(text, steps, chars - 1 - n);
    json_decref(summary);
    free(said);
}

/* Models that would give positions their own mask, one of them many to the last: which logits are
 * computed, and who looks, changes no token and no step. Where only masked rows are computed a
 * position that had to be given the mask is not decided again. */
TEST(a_mask_for_a_token_is_decided_again_whatever_is_computed) {
    static const struct {
        int mask;
        const char *set[4];
        bool is_watched;
    } runs[] = {
        {220, {"sdar", "decoder=fixed", "steps_per_block=16", "logit_scope=block"}, false},
        {220, {"sdar", "decoder=fixed", "steps_per_block=16", "logit_scope=block"}, true},
        {544, {"sdar", "decoder=threshold", "decoder.threshold=0.3", "logit_scope=block"}, false},
        {544, {"sdar", "decoder=threshold", "decoder.threshold=0.3", "logit_scope=masked"}, true}};
    static char first[65536], text[65536];
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        decode_so(specified_masked(MODEL, runs[i].mask), runs[i].set, runs[i].is_watched, text,
                  sizeof text);
        if (i % 2 == 0) {
            memcpy(first, text, sizeof text);
        }
        ck_assert_msg(strcmp(text, first) == 0, "%d %s", runs[i].mask, runs[i].set[3]);
    }
}

/* What a block has before it is over may still change: a text that would end there goes on, and is
 * the one of a server that looks at blocks which are over. */
TEST(an_end_of_text_counts_once_its_token_is_final) {
    static const char *const decoders[][6] = {
        {"decoder=joint-threshold", "decoder.threshold=0.1", "decoder.edit_threshold=0"},
        {"decoder=joint-indel", "decoder.threshold=0.1", "decoder.delete_token=15",
         "decoder.insert_token=220", "runtime.fused_head=off"},
        {"decoder=renoise", "decoder.max_steps=7", "decoder.entropy_bound=5",
         "model.uniform_noise=on", "model.mask_token=4294967295", "model.causal_prompt=on"},
    };
    char outputs[512], db[512], first[16384] = "", text[16384];
    snprintf(outputs, sizeof outputs, "%s", scratch_path("outputs.jsonl"));
    for (size_t i = 0; i < 6; i++) {
        const char *const *set = decoders[i / 2];
        const char *last = set[5] != NULL ? set[5] : set[0], *fifth = set[4] ? set[4] : set[0];
        snprintf(db, sizeof db, "%s", scratch_path("runs.db"));
        free(PRINTS(
            "run", "--backend", "cpu", "--clock", "virtual", "--weights", MODEL, "--workload",
            PROMPTS, "--output-tokens", "32", "--eos", "16,17,20,2045", "--system", "sdar", "--set",
            i % 2 > 0 ? "early_stop=position" : "early_stop=block", "--set", set[0], "--set",
            set[1], "--set", set[2], "--set", set[3] != NULL ? set[3] : set[0], "--set", fifth,
            "--set", last, "--db", db, "--levels", "events", "--outputs", outputs));
        FILE *file = fopen(outputs, "r");
        ck_assert_ptr_nonnull(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        if (i % 2 == 0) {
            memcpy(first, text, sizeof text);
            continue;
        }
        char run[16];
        snprintf(run, sizeof run, "%zu", i + 1);
        free(PRINTS("replay", "--db", db, "--run", run));
        ck_assert_str_eq(text, first);
    }
}

SUITE("live revising")
