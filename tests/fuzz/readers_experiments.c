/* Readers of experiments: studies, sweeps, claims, papers' numbers, measured steps and servers,
 * files of outputs. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/paper/paper.h"
#include "experiments/command/commands.h"
#include "experiments/run/accuracy.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/questions.h"
#include "experiments/serve/ask.h"
#include "experiments/study/server.h"
#include "experiments/study/start_log.h"
#include "experiments/study/study.h"
#include "sim/base/input/datadir.h"
#include "tests/fuzz/reader.h"

static void see_json(json_t *json) {
    char *text = json_dumps(json, JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    reader_see_text(text);
    free(text);
    json_decref(json);
}

static void read_study(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    const struct study_changes changes = {0};
    struct study study = {0};
    struct err err = {0};
    if (went_well(study_open(path, &changes, &study, &err), &err, NULL)) {
        char place[256];
        reader_see_text(study_text(&study, "plot", place));
        (void)study_runs(&study);
    }
    study_close(&study);
}

/* A command, interrupted before it runs anything. */
static void try_command(const struct command *command, int argc, char *const *argv) {
    struct options options;
    struct err err = {0};
    ASSERT(options_read(command->options, argc, argv, command->max_words, &options, &err) == 0);
    if (!*interrupt_catch()) {
        ASSERT(raise(SIGINT) == 0 && *interrupt_catch());
    }
    (void)went_well(command->run(&options, &err), &err, NULL);
}

static void read_sweep(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    char *const argv[] = {(char *)path, (char *)"-j1"};
    try_command(&command_sweep, 2, argv);
}

static void read_claims(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    char *const argv[] = {(char *)"--file", (char *)path, (char *)"-j1"};
    try_command(&command_sensitivity, 3, argv);
}

static void read_paper(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct paper paper;
    struct err err = {0};
    if (!went_well(paper_load(path, &paper, &err), &err, path)) {
        return;
    }
    for (size_t i = 0; i < paper.n_rows; i++) {
        reader_see_text(paper.rows[i].system);
        ASSERT(paper.rows[i].system != NULL && paper.rows[i].line > 1);
    }
    paper_fini(&paper);
}

static void read_steps(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    static struct system *system;
    const struct system_request request = {
        .system = "dllm-serve", .model = "llada-tiny", .gpu = "l40s", .roofline = true};
    struct accuracy accuracy;
    struct err err = {0};
    ASSERT(system != NULL || system_open(&request, &system, &err) == 0);
    if (went_well(accuracy_read(path, system, &accuracy, &err), &err, path)) {
        see_json(accuracy_json(&accuracy));
        accuracy_fini(&accuracy);
    }
}

static void read_server(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct server server = {0};
    struct err err = {0};
    if (went_well(server_read(path, "x", &server, &err), &err, path)) {
        reader_see_int((int64_t)server.measured.completed);
        reader_see_double(server.measured.latency.mean);
        reader_see_double(server.measured.ttfb.mean);
    }
    server_fini(&server);
}

static void read_start_log(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct start_log log;
    struct err err = {0};
    if (went_well(start_log_read(path, &log, &err), &err, path)) {
        char *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);
        ASSERT(out != NULL);
        start_log_print(&log, out);
        fclose(out);
        reader_see_text(text);
        free(text);
        see_json(start_log_json(&log));
    }
}

/* A reference to prompts of which two were asked. */
static void read_outputs(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    static const int32_t ids[] = {1, 2, 3};
    const struct questions_request request = {.reference = path};
    struct questions *questions;
    struct err err = {0};
    ASSERT(questions_open(&request, &questions, &err) == 0);
    struct prompt_taker taker = questions_taker(questions);
    for (uint64_t number = 0; number < 2; number++) {
        const struct prompt prompt = {.number = number,
                                      .path = "prompts",
                                      .line = number + 1,
                                      .id = number == 0 ? "first" : "2",
                                      .ids = ids,
                                      .n_ids = 3};
        uint32_t tokens;
        ASSERT(taker.take(taker.state, &prompt, &tokens, &err) == 0 && tokens == 3);
    }
    (void)went_well(questions_read_reference(questions, &err), &err, path);
    questions_close(questions);
}

/* A body that a client sent, to both endpoints, of a simulation and of a device. */
static void ask(const struct ask_facts *facts, bool is_chat, const uint8_t *data, size_t size) {
    struct ask asked;
    struct ask_error error;
    if (ask_read(facts, is_chat, (const char *)data, size, &asked, &error)) {
        ASSERT(asked.prompt.n > 0 && asked.output_tokens > 0);
        ASSERT(asked.prompt.n + asked.output_tokens <= facts->context_tokens);
        reader_see_int((int64_t)asked.prompt.n);
        reader_see_int(asked.output_tokens);
        reader_see_int(asked.streams + 2 * asked.wants_usage + 4 * asked.has_seed);
        for (const char *stop = asked.stops; stop != NULL && *stop != '\0';
             stop += strlen(stop) + 1) {
            reader_see_text(stop);
        }
        free(asked.prompt.ids);
        free(asked.stops);
        return;
    }
    size_t n;
    char *text = ask_error_text(&error, &n);
    json_t *object = json_loads(text, 0, NULL);
    ASSERT(error.status >= 400 && error.status <= 404 && object != NULL && n == strlen(text));
    reader_see_int(error.status);
    reader_see_text(error.param);
    json_decref(object);
    free(text);
}

static void read_request_body(const char *path, const uint8_t *data, size_t size) {
    static struct replies replies;
    struct err err = {0};
    (void)path;
    if (replies.tokenizer == NULL) {
        static char folder[1024];
        const struct replies_request wanted = {
            .tokenizer = data_path(folder, sizeof folder, "experiments/train/models/llada-2m")};
        ASSERT(replies_open(&wanted, &replies, &err) == 0);
    }
    const struct replies none = {.chat = &chat_table[0]};
    static const struct model model;
    static const struct system greedy = {.name = "s", .model = &model},
                               draws = {.name = "s", .model = &model, .settings.sampling = true};
    const struct ask_facts simulated = {.model = "m",
                                        .context_tokens = 256,
                                        .vocab = 1000,
                                        .default_tokens = 16,
                                        .takes_arrivals = false,
                                        .system = &greedy,
                                        .replies = &replies};
    struct ask_facts device = simulated, timed = simulated;
    device.is_device = device.looks_for_ends = true;
    device.system = &draws;
    timed.takes_arrivals = true;
    timed.replies = &none;
    for (int is_chat = 0; is_chat < 2; is_chat++) {
        ask(&simulated, is_chat, data, size);
        ask(&device, is_chat, data, size);
        ask(&timed, is_chat, data, size);
    }
}

const struct reader readers_of_experiments[] = {
    {"study", "x.ini", read_study},
    {"sweep", "x.ini", read_sweep},
    {"claims", "x.ini", read_claims},
    {"paper", "x.csv", read_paper},
    {"steps", "x.csv", read_steps},
    {"server", "x.csv", read_server},
    {"start-log", "x.log", read_start_log},
    {"outputs", "x.jsonl", read_outputs},
    {"request-body", NULL, read_request_body},
    {NULL, NULL, NULL},
};
