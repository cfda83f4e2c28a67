/* Live runs held to what a plain implementation of a specification decoded: lines of JSON, one for
 * each setting, with the tokens of every prompt and the passes that it took. */
#ifndef UNMASK_TESTS_SUPPORT_SPECIFIED_H
#define UNMASK_TESTS_SUPPORT_SPECIFIED_H

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/cli.h"
#include "traces/decode_trace.h"

enum { SPECIFIED_PROMPTS = 10 };

static inline int64_t specified_at(const json_t *line, const char *key, size_t i) {
    return (int64_t)json_integer_value(json_array_get(json_object_get(line, key), i));
}

/* The run processed these positions and those that the line says of each prompt. */
static inline void specified_processed(const json_t *line, const json_t *summary,
                                       int64_t positions) {
    for (size_t i = 0; i < SPECIFIED_PROMPTS; i++) {
        positions += specified_at(line, "run", i);
    }
    ck_assert_int_eq(json_integer_value(json_object_get(summary, "tokens_processed")), positions);
}

/* A checkpoint like `model`, whose mask is another token. */
static inline const char *specified_masked(const char *model, json_int_t mask_token) {
    static const char *const links[] = {"model.safetensors", "tokenizer.json"};
    static char folder[512];
    char from[1024], to[1024], here[512], name[32];
    snprintf(from, sizeof from, "%s/config.json", model);
    json_t *config = json_load_file(from, 0, NULL);
    ck_assert_int_eq(json_object_set_new(config, "mask_token_id", json_integer(mask_token)), 0);
    snprintf(name, sizeof name, "masked-%d", (int)mask_token);
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    (void)mkdir(folder, 0777);
    snprintf(to, sizeof to, "%s/config.json", folder);
    ck_assert_int_eq(json_dump_file(config, to, 0), 0);
    json_decref(config);
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        snprintf(from, sizeof from, "%s/%s/%s", here, model, links[i]);
        snprintf(to, sizeof to, "%s/%s", folder, links[i]);
        (void)unlink(to);
        ck_assert_int_eq(symlink(from, to), 0);
    }
    return folder;
}

/* The checkpoint that a line names, or else `initial`, with the mask that it names. */
static inline const char *specified_model(const json_t *line, const char *initial) {
    const json_t *model = json_object_get(line, "model"), *mask;
    const char *folder = model != NULL ? json_string_value(model) : initial;
    mask = json_object_get(line, "mask_token");
    return mask != NULL ? specified_masked(folder, json_integer_value(mask)) : folder;
}

enum { SPECIFIED_CHARS = 64 };

/* decoder.KEY=VALUE of a line, for each of n keys in `settings`, which `list` points to;
 * one that the line does not name is as in `defaults`. */
static inline void specified_settings(const json_t *line, const char *const *keys,
                                      const char *const *defaults, size_t n,
                                      char settings[][SPECIFIED_CHARS], const char **list) {
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(line, keys[i]);
        if (json_is_number(value)) {
            snprintf(settings[i], SPECIFIED_CHARS, "decoder.%s=%g", keys[i],
                     json_number_value(value));
        } else {
            snprintf(settings[i], SPECIFIED_CHARS, "decoder.%s=%s", keys[i],
                     value != NULL ? json_string_value(value) : defaults[i]);
        }
        list[i] = settings[i];
    }
}

/* The outputs of a run are the line's tokens. Returns the prompts' tokens in whole blocks. */
static inline int64_t specified_tokens(const json_t *line, const char *outputs, int64_t block) {
    static char text[16384];
    int64_t whole = 0;
    FILE *file = fopen(outputs, "r");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < SPECIFIED_PROMPTS; i++) {
        ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
        json_t *got = json_loads(text, 0, NULL);
        const size_t of = (size_t)json_integer_value(json_object_get(got, "number"));
        const int64_t prompt = json_integer_value(json_object_get(got, "prompt_tokens"));
        char *said = json_dumps(line, JSON_COMPACT);
        ck_assert_msg(json_equal(json_object_get(got, "output"),
                                 json_array_get(json_object_get(line, "tokens"), of)),
                      "prompt %zu of %.160s", of, said);
        whole += prompt / block * block;
        free(said);
        json_decref(got);
    }
    fclose(file);
    return whole;
}

/* Whether a prompt's text ends: passes over blocks after the end decide nothing that is read, and
 * are not among its decisions. */
static inline bool specified_ends(const json_t *line, size_t i) {
    const json_t *tokens = json_array_get(json_object_get(line, "tokens"), i);
    const json_t *last = json_array_get(tokens, json_array_size(tokens) - 1);
    return json_object_get(line, "end") != NULL && json_equal(last, json_object_get(line, "end"));
}

/* The decisions of a run are as many passes as the line says and, where it says how many tokens
 * were replaced, as many of those. */
static inline void specified_passes(const json_t *line, const char *path) {
    struct decode_trace *trace;
    struct err err = {0};
    ck_assert_int_eq(decode_trace_read(path, DECODE_POSITIONS, &trace, &err), 0);
    const struct decode_source source = decode_trace_source(trace);
    const bool says_replaced = json_object_get(line, "replaced") != NULL;
    for (size_t i = 0; i < SPECIFIED_PROMPTS; i++) {
        struct decode_pass pass;
        int64_t n = 0, revised = 0;
        for (; source.pass(source.state, i, (uint32_t)n, &pass, &err) == 0; n++) {
            revised += pass.revised;
        }
        const int64_t passes = specified_at(line, "passes", i);
        ck_assert_msg(n == passes || (specified_ends(line, i) && n < passes),
                      "%lld passes of prompt %zu, not %lld", (long long)n, i, (long long)passes);
        ck_assert_int_eq(revised, says_replaced ? specified_at(line, "replaced", i) : 0);
    }
    decode_trace_close(trace);
}

/* Runs what a line of `path` says, to an end of text where it names that token as "end", recorded,
 * all requests at once in packed batches, and plays the record. `start` and `settings` end with
 * NULL and are options and KEY=VALUEs. Returns the summary.
 */
static inline json_t *specified_run(const json_t *line, const char *const *start,
                                    const char *const *settings, int64_t block, size_t number,
                                    int64_t *whole) {
    static char outputs[512], decisions[512], db[512], end[16];
    const bool ends = json_object_get(line, "end") != NULL;
    const char *words[CLI_MOST_ARGS + 1] = {"run",      "--json",  "--backend", "cpu",
                                            "--clock",  "virtual", "--eos",     ends ? end : "none",
                                            "--levels", "events"};
    char run[16];
    size_t n = 10;
    snprintf(end, sizeof end, "%lld", (long long)json_integer_value(json_object_get(line, "end")));
    snprintf(outputs, sizeof outputs, "%s", scratch_path("outputs.jsonl"));
    snprintf(decisions, sizeof decisions, "%s", scratch_path("decisions.db"));
    snprintf(db, sizeof db, "%s", scratch_path("runs.db"));
    const char *const files[] = {"--outputs", outputs, "--decode-out", decisions, "--db", db, NULL};
    const char *const *const lists[] = {files, start};
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; lists[l][i] != NULL; i++) {
            words[n++] = lists[l][i];
        }
    }
    for (size_t i = 0; settings[i] != NULL; i++) {
        words[n++] = "--set";
        words[n++] = settings[i];
    }
    ck_assert_uint_lt(n, CLI_MOST_ARGS);
    char *said = cli_text(cli_run(&(const struct child){0}, words));
    json_t *summary = json_loads(said, 0, NULL);
    free(said);
    *whole = specified_tokens(line, outputs, block);
    specified_passes(line, decisions);
    snprintf(run, sizeof run, "%zu", number);
    free(PRINTS("replay", "--db", db, "--run", run));
    return summary;
}

/* Calls `each` with every line, numbered from 1, of which there are n_lines. */
static inline void specified_each(const char *path, size_t n_lines,
                                  void (*each)(const json_t *line, size_t number)) {
    static char text[65536];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t n = 0;
    while (fgets(text, sizeof text, file) != NULL) {
        json_t *line = json_loads(text, 0, NULL);
        ck_assert_ptr_nonnull(line);
        each(line, ++n);
        json_decref(line);
    }
    fclose(file);
    ck_assert_uint_eq(n, n_lines);
}

#endif
