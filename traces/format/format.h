/* A trace format: how the columns or keys of one tool are called, and how a line becomes a row.
 *
 * Formats differ in names and units and stand in one table (formats.c); the two families, CSV with
 * a header and JSON lines, differ in how a line is taken apart and how a name is looked up in it,
 * and have one file each; what becomes of the values is the same for both (row.c). Prompts are
 * lengths once a tokenizer has counted them (prompts.c). */
#ifndef UNMASK_TRACES_FORMAT_FORMAT_H
#define UNMASK_TRACES_FORMAT_FORMAT_H

#include <jansson.h>

#include "sim/base/input/field.h"
#include "sim/base/sampling.h"
#include "traces/format/known.h"
#include "traces/format/passed_over.h"
#include "traces/format/prompts.h"

enum { MAX_COLUMNS = 64, MAX_MUSTS = 2, MAX_WHERE = 8, MAX_FAILS = 4 };

enum column {
    COLUMN_TIME,
    COLUMN_INPUT,
    COLUMN_OUTPUT,
    COLUMN_TENANT,
    COLUMN_PREFIX,
    COLUMN_ANSWER,
    COLUMN_SESSION,
    COLUMN_THINK,
    COLUMN_PARENT,   /* of which earlier row's session it is the next turn */
    COLUMN_HASHES,   /* a list of ids, each of a block of the prompt and all before it */
    COLUMN_GROUP,    /* whose prompts begin alike */
    COLUMN_DEADLINE, /* a time, as that of arrival, after it */
    COLUMN_PRIORITY,
    COLUMN_PREDICTED,
    N_NAMED_COLUMNS,
};

/* By enum column, as --columns has them; NULL-ended. */
extern const char *const column_words[];

/* Units of time: nanoseconds, or */
enum { UNIT_DATE = 0, UNIT_ASKED = -1 /* not given by the format, but by the rows or the user */ };

struct format;
struct layout;

struct trace_row {
    int64_t time_ns; /* as the file counts it, not yet rebased */
    uint32_t input_tokens, output_tokens, tenant, prefix_tokens;
    uint32_t answer_tokens; /* 0 where the file has no such column */
    uint64_t prompt;        /* as an arrival's */
    uint64_t session;       /* likewise */
    uint64_t shares, leaves, prefix_group;
    int64_t think_ns;
    int64_t due_ns; /* from the arrival; 0: no deadline */
    uint32_t priority, predicted_tokens;
    struct sampling sampling; /* as an arrival's */
    bool failed;              /* a failed request, to be skipped and counted */
    bool left_out;            /* by --where */
};

/* A value as it stands in a row. */
struct value {
    enum value_kind {
        VALUE_NONE, /* the row has no such key; CSV: the file has no such column */
        VALUE_NULL, /* null, or an empty field */
        VALUE_TEXT, /* CSV: whatever a field holds */
        VALUE_NUMBER,
        VALUE_BOOL,
        VALUE_OTHER /* a list or an object */
    } kind;
    const char *text; /* of text, number and bool, as it is written */
    size_t length;
    const json_t *json; /* of VALUE_OTHER */
    char space[40];     /* what `text` may point to */
};

/* A name that rows are asked for, and where the header has it (-1: nowhere). */
struct place {
    const char *name;
    int position;
};

/* One line taken apart. */
struct record {
    const struct line *line;
    struct field_span at[MAX_COLUMNS]; /* CSV */
    json_t *object;                    /* JSON lines; else NULL */
};

/* --where: rows in which a name has this value (or, `is_not`, another one). */
struct condition {
    char *name, *value;
    bool is_not;
};

struct family {
    bool has_header;
    /* Takes a row apart; ends the reading where it is none. */
    int (*take_apart)(const struct layout *layout, const struct line *line, struct record *record,
                      struct err *err);
    void (*look_up)(const struct record *record, const struct place *place, struct value *out);
    /* Of prompts, in place of these. */
    bool (*opens)(const struct line *first);
    int (*take)(const struct line *line, const struct prompt_taker *taker, struct trace_row *row,
                struct err *err);
};

struct format {
    const char *name;
    const struct family *family;
    const char *columns[N_NAMED_COLUMNS]; /* NULL: none (from the tenant on: optional) */
    int64_t unit_ns;                      /* of the time column, or UNIT_DATE or UNIT_ASKED */
    int64_t think_unit_ns;                /* of the column with the time to think */
    const char *sign;                     /* a name without which it is another format */
    uint32_t hash_tokens; /* what a hash id stands for in the published files; 0: not published */
    bool zero_output_is_failure;
    bool says_failures;   /* by the names of status.c */
    bool whole_units;     /* times with a fraction are another tool's, in an unknown unit */
    bool any_order;       /* rows stand as requests ended: they are sorted by arrival */
    bool prefix_is_apart; /* the prompt's tokens are those after the prefix */
    bool by_user;         /* of --columns: all that it names must be there */
    bool by_names;        /* guessed from the names of columns, which is said */
    /* Columns that must hold one value, because others would mean another load. */
    struct {
        const char *column, *value;
    } musts[MAX_MUSTS];
};

/* Where a file's header puts the columns needed, and what was found in its rows so far. */
struct layout {
    char *header; /* CSV: a copy of its line, of which the fields below are; else NULL */
    struct field_span names[MAX_COLUMNS];
    int n_columns;
    struct place at[N_NAMED_COLUMNS], musts[MAX_MUSTS], fails[MAX_FAILS], where[MAX_WHERE];
    int n_fails, n_where;
    const struct condition *conditions; /* [n_where] */
    char unwanted[PASSED_OVER_CHARS]; /* why the last row was left out, as "its status is '500'" */
    int64_t unit_ns, think_unit_ns;   /* in force */
    uint32_t hash_tokens;
    bool skips_failed;     /* asked for */
    bool named_tenants;    /* texts: numbered as they come */
    uint32_t n_tenants;    /* of these */
    struct known hashes;   /* of an id the line in which it was first */
    struct known sessions; /* of each the time of its last turn */
    struct known roots;    /* of a row's own id: its session */
    struct known tenants;
    uint32_t had; /* a bit for each column that some row had */
    int64_t last_ns;
};

extern const struct family family_csv, family_jsonl, family_prompts;

/* The formats that are recognised, in order: earlier ones win where one's columns contain
 * another's. */
extern const struct format formats[];
extern const size_t n_formats;

/* Whether a first line (CSV: the header) is of the format; if so, `layout` says where. CSV needs
 * layout->names, JSON lines `first`. */
bool format_opens(const struct format *format, const struct record *first, struct layout *layout);

/* A CSV line taken apart; false where it is none. */
bool csv_split(const struct line *line, struct record *record, int *n_fields);
/* The column of the header, or -1: none or several. */
int csv_position(const struct layout *layout, const char *name);
/* A key, or a path of keys with dots between them (a number is a place in a list); NULL: none. */
json_t *json_at(const json_t *object, const char *path);
void json_value(json_t *json, struct value *out);

/* The JSON of a text; NaN, Infinity and whole numbers beyond 64 bits, which JSON has not but tools
 * write, are texts. NULL: it is none. */
json_t *json_lenient(const char *text, size_t length, size_t flags, json_error_t *error);

/* Whether --where wants a record; else why not, in the layout (row.c). */
bool row_is_wanted(const struct family *family, struct layout *layout, const struct record *record);
/* A row from a record (row.c). */
int row_read(const struct format *format, struct layout *layout, const struct record *record,
             struct trace_row *row, struct err *err);
/* How many ids of how many tokens each a row has; 0: none. */
int row_hashes(const struct layout *layout, const struct record *record,
               const struct family *family, uint32_t *n, struct err *err);

/* Whether a row says that its request failed, by what it has of the names that tell (status.c).
 * ERR_WORLD: a word that is neither. */
int status_read(const struct layout *layout, const struct record *record,
                const struct family *family, bool *failed, struct err *err);
/* Which of these names a first row has. */
void status_places(const struct record *first, const struct family *family, struct layout *layout);

/* A format from "time=NAME:UNIT,input=NAME,output=NAME,..." (reader.h), of JSON lines or CSV; the
 * caller frees its names with format_forget. With `has_unit` times need none. */
int format_from_columns(const char *columns, bool is_json, bool has_unit, struct format *out,
                        struct err *err);
void format_forget(struct format *format);
/* Guesses which columns or keys a first line has by their names; the caller frees likewise. False:
 * no. `error` is filled where two are equally near. */
bool format_guess(const struct record *first, const struct layout *layout, struct format *out,
                  struct err *err);
/* "ns", "us", "ms", "s", "date"; NULL where there is none. */
const char *unit_word(int64_t unit_ns);
bool unit_find(const char *word, size_t length, int64_t *unit_ns);

/* "status=ok,model!=x"; the caller frees with conditions_free. ERR_USAGE. */
int conditions_read(const char *text, struct condition out[MAX_WHERE], int *n, struct err *err);
void conditions_free(struct condition conditions[], int n);

/* The session or group that a text of a file names, never 0. */
uint64_t format_session(const char *text, size_t length);

#endif
