/* A trace format: how the columns or keys of one tool are called, and how a line becomes a row.
 *
 * Formats differ in names and units and stand in one table (reader.c); the two families, CSV with a
 * header and JSON lines, differ in how a line is taken apart and have one file
 * each; prompts are lengths once a tokenizer has counted them. */
#ifndef UNMASK_TRACES_FORMAT_FORMAT_H
#define UNMASK_TRACES_FORMAT_FORMAT_H

#include "sim/input/field.h"
#include "traces/prompts.h"

enum { MAX_COLUMNS = 64, MAX_MUSTS = 2 };

enum column {
    COLUMN_TIME,
    COLUMN_INPUT,
    COLUMN_OUTPUT,
    COLUMN_TENANT,
    COLUMN_PREFIX,
    COLUMN_ANSWER,
    N_COUNTS, /* those from the input on are counts, the others not */
    COLUMN_SESSION = N_COUNTS,
    COLUMN_THINK,
    COLUMN_GROUP,
    N_NAMED_COLUMNS,
};

struct format;

struct trace_row {
    int64_t time_ns; /* as the file counts it, not yet rebased */
    uint32_t input_tokens, output_tokens, tenant, prefix_tokens;
    uint32_t answer_tokens; /* 0 where the file has no such column */
    uint64_t prompt;        /* as an arrival's */
    uint64_t session;       /* likewise */
    uint64_t shares, leaves, prefix_group;
    int64_t think_ns;
    bool failed; /* a failed request, to be skipped and counted */
};

/* Prefixes that were seen, and in which line first. */
struct seen_id {
    uint64_t id, line; /* line 0: a free place */
};
struct seen {
    struct seen_id *ids; /* a hash table of `room` places */
    size_t n, room;
};

/* Where a file's header puts the columns, of CSV; and what earlier rows had, of formats with
 * hash_ids. */
struct layout {
    struct seen *seen;
    int n_columns;
    int position[N_NAMED_COLUMNS]; /* -1 where the file has no such column */
    int must_position[MAX_MUSTS];
};

struct family {
    bool has_header;
    /* Whether a file with this first line is of `format`. */
    bool (*opens)(const struct format *format, const struct line *first, struct layout *layout);
    int (*parse)(const struct format *format, const struct layout *layout, const struct line *line,
                 struct trace_row *row, struct err *err);
    /* Of prompts, in place of parse. */
    int (*take)(const struct line *line, const struct prompt_taker *taker, struct trace_row *row,
                struct err *err);
};

struct format {
    const char *name;
    const struct family *family;
    const char *columns[N_NAMED_COLUMNS]; /* NULL: none (from the tenant on: optional) */
    int64_t unit_ns;                      /* of the time column; 0 for calendar dates */
    int64_t think_unit_ns;                /* of the column with the time to think */
    bool zero_output_is_failure;
    bool needs_all;       /* columns from the tenant on, too */
    uint32_t hash_tokens; /* JSON lines: each of the key hash_ids is so many tokens; 0: has none */
    /* Columns that must hold one value, because others would mean another load. */
    struct {
        const char *column, *value;
    } musts[MAX_MUSTS];
};

extern const struct family family_csv, family_jsonl, family_prompts;

/* A format from "time=NAME:UNIT,input=NAME,output=NAME,..." (reader.h), of JSON lines or CSV; the
 * caller frees its names with format_forget. */
int format_from_columns(const char *columns, bool is_json, struct format *out, struct err *err);
void format_forget(struct format *format);

/* Checks that both families share: an answer is within its output and a shared prefix within its
 * prompt; token counts are at least 1, or the request failed. */
int format_check_parts(const struct line *line, const struct trace_row *row, bool has_answer,
                       struct err *err);
/* The session or group that a text of a file names, never 0. */
uint64_t format_session(const char *text, size_t length);
int format_check_tokens(const struct format *format, const struct line *line, struct trace_row *row,
                        struct err *err);

#endif
