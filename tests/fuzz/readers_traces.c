/* Readers of requests: traces, prompts, workloads, decode traces. */
#include <stdio.h>

#include "sim/base/input/config.h"
#include "sim/base/input/datadir.h"
#include "tests/fuzz/reader.h"
#include "traces/decode_trace.h"
#include "traces/reader.h"
#include "traces/workload.h"
#include "traces/workload_parts.h"

enum { MOST_ROWS = 200 };

/* All that a row says. */
static void see_row(const struct arrival *row) {
    const int64_t all[] = {(int64_t)row->id,
                           row->arrival_ns,
                           row->prompt_tokens,
                           row->output_tokens,
                           row->answer_tokens,
                           row->prefix_tokens,
                           row->tenant,
                           (int64_t)row->session,
                           (int64_t)row->shares,
                           (int64_t)row->leaves,
                           (int64_t)row->prefix_group,
                           row->think_ns,
                           (int64_t)row->follows};
    reader_see(all, sizeof all);
}

static uint64_t read_rows(struct trace *trace, struct err *err) {
    struct arrival_source source = trace_source(trace);
    struct arrival row;
    uint64_t n = 0;
    int64_t last_ns = 0;
    enum source_reply reply;
    while ((reply = source.next(source.state, &row, err)) == SOURCE_ROW) {
        ASSERT(row.id == n && row.arrival_ns >= last_ns);
        see_row(&row);
        ASSERT(row.prompt_tokens > 0 && row.output_tokens > 0);
        last_ns = row.arrival_ns;
        n++;
    }
    ASSERT(reply == (err->kind == ERR_NONE ? SOURCE_END : SOURCE_BAD));
    ASSERT(err->kind != ERR_NONE || n > 0);
    return n;
}

/* As a user may say that it should be read. */
static const struct trace_reading readings[] = {
    {.sorts = true, .skip_failed = true},
    {.time_unit = "ms", .hash_tokens = 16, .sorts = true},
    {.where = "status=ok", .skip_failed = true},
    {.columns = "time=arrival_us:us,input=input_tokens,output=output_tokens,session=session",
     .sorts = true},
    {.columns = "time=timestamp:s,input=input_length,output=output_length,hashes=hash_ids,"
                "parent=parent_chat_id",
     .time_unit = "s",
     .hash_tokens = 512},
};

static void read_as(const char *path, const struct trace_reading *how) {
    struct trace *trace;
    struct err err = {0};
    if (went_well(trace_open_as(path, how, &trace, &err), &err, NULL)) {
        (void)read_rows(trace, &err);
        reader_see_int((int64_t)trace_skipped(trace));
        reader_see_int(err.kind);
        trace_close(trace);
    }
}

/* Read to the end or to one sentence, and the same a second time. */
static void read_trace(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct trace *trace;
    struct err err = {0}, again = {0};
    if (went_well(trace_open(path, &trace, &err), &err, path)) {
        uint64_t n = read_rows(trace, &err), n_skipped = trace_skipped(trace);
        size_t n_unread;
        (void)trace_unread(trace, &n_unread);
        reader_see_int((int64_t)n_skipped);
        reader_see_int((int64_t)n_unread);
        reader_see_int(trace_has_answers(trace));
        reader_see_text(trace_format(trace));
        reader_see_int(err.kind);
        ASSERT(trace_rewind(trace, &again) == 0);
        ASSERT(read_rows(trace, &again) == n && trace_skipped(trace) == n_skipped);
        ASSERT(strcmp(err.text, again.text) == 0);
        trace_close(trace);
    }
    for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++) {
        read_as(path, &readings[i]);
    }
}

static int take(void *state, const struct prompt *prompt, uint32_t *tokens, struct err *err) {
    (void)state, (void)err;
    ASSERT((prompt->text == NULL) == (prompt->ids != NULL));
    ASSERT(prompt->text == NULL || strlen(prompt->text) == prompt->text_bytes);
    *tokens = prompt->text != NULL ? (uint32_t)prompt->text_bytes : prompt->n_ids;
    for (uint32_t i = 0; i < prompt->n_ids; i++) {
        ASSERT(prompt->ids[i] >= 0);
    }
    return 0;
}

static void read_prompts(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct trace *trace = NULL;
    struct err err = {0};
    if (trace_open(path, &trace, &err) == 0 && trace_has_prompts(trace)) {
        trace_set_taker(trace, &(struct prompt_taker){.take = take});
        struct arrival_source source = trace_source(trace);
        struct arrival row;
        enum source_reply reply;
        while ((reply = source.next(source.state, &row, &err)) == SOURCE_ROW) {
            see_row(&row);
            ASSERT(row.prompt == row.id + 1 && row.prompt_tokens > 0 && row.output_tokens > 0);
        }
        ASSERT((reply == SOURCE_BAD) == (err.kind != ERR_NONE));
    }
    ASSERT(err.kind == ERR_NONE || strstr(err.text, path) != NULL);
    trace_close(trace);
}

static void draw_rows(struct workload *workload) {
    struct arrival_source source = workload_source(workload);
    struct err err = {0};
    struct arrival row;
    int64_t last_ns = 0;
    for (uint64_t n = 0; n < MOST_ROWS; n++) {
        enum source_reply reply = source.next(source.state, &row, &err);
        ASSERT((reply == SOURCE_BAD) == (err.kind != ERR_NONE));
        if (reply == SOURCE_WAIT) {
            ASSERT(source.completed != NULL && n > 0);
            source.completed(source.state, n - 1, last_ns);
            reply = source.next(source.state, &row, &err);
        }
        if (reply != SOURCE_ROW) {
            return;
        }
        see_row(&row);
        ASSERT((row.id == n || source.back != NULL) && row.arrival_ns >= last_ns);
        ASSERT(row.prompt_tokens > 0 && row.output_tokens > 0);
        last_ns = row.arrival_ns;
        if (source.back != NULL) {
            source.back(source.state, &row);
            ASSERT(source.next(source.state, &row, &err) == SOURCE_ROW);
            ASSERT(row.arrival_ns == last_ns);
            source.completed(source.state, row.id, last_ns);
        }
    }
}

/* An INI file under a name that finds the shipped samples. */
static void read_workload(const char *unused, const uint8_t *data, size_t size) {
    (void)unused;
    struct config config;
    struct err err = {0};
    char path[4096];
    data_path(path, sizeof path, "traces/workloads/x.ini");
    if (!went_well(config_parse(path, (const char *)data, size, &config, &err), &err, path)) {
        return;
    }
    struct workload_options options = {.seed = 1};
    struct workload *workload;
    if (went_well(workload_from_config(&config, "x", &options, &workload, &err), &err, NULL)) {
        char text[128];
        workload_describe(workload, text, sizeof text);
        reader_see_text(text);
        for (size_t i = 0; i < config.n_entries; i++) {
            char name[160], fact[FACT_CHARS];
            snprintf(name, sizeof name, "workload.%.140s", config.entries[i].key);
            reader_see_text(workload_fact(workload, name, fact));
        }
        draw_rows(workload);
        workload_close(workload);
    }
    config_fini(&config);
}

const struct reader readers_of_traces[] = {
    {"trace", "trace.csv", read_trace},
    {"prompts", "prompts.jsonl", read_prompts},
    {"workload", NULL, read_workload},
    {"decode-trace", "decode.db", read_decode_rows},
    {NULL, NULL, NULL},
};
