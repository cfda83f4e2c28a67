#include "traces/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/input/inputs.h"
#include "sim/input/unpack.h"
#include "traces/decode_trace.h"
#include "traces/format/format.h"
#include "traces/server_log.h"

enum { FIRST_BUFFER_BYTES = 256 << 10 };

/* Earlier entries win where one's columns contain another's. */
#define FORMAT(title, how, unit, ...)                                                              \
    .name = title, .family = &family_##how, .unit_ns = unit, .columns = {__VA_ARGS__}
enum { US = 1000, MS = 1000000, S = 1000000000 };

static const struct format formats[] = {
    {FORMAT("plain", csv, US, "arrival_us", "input_tokens", "output_tokens", "tenant",
            "prefix_tokens", "answer_tokens", "session", "think_us", "prefix_group"),
     .think_unit_ns = US},
    {FORMAT("burstgpt", csv, S, "Timestamp", "Request tokens", "Response tokens"),
     .zero_output_is_failure = true},
    {FORMAT("azure", csv, 0, "TIMESTAMP", "ContextTokens", "GeneratedTokens")},
    {FORMAT("vidur", csv, S, "arrived_at", "num_prefill_tokens", "num_decode_tokens")},
    {FORMAT("splitwise-sim", csv, S, "arrival_timestamp", "prompt_size", "token_size",
            "application_id"),
     .musts = {{"request_type", "2"}, {"batch_size", "1"}}},
    {FORMAT("plain-lengths", csv, 1, NULL, "input_tokens", "output_tokens", NULL, NULL,
            "answer_tokens")},
    {FORMAT("vidur-lengths", csv, 1, NULL, "num_prefill_tokens", "num_decode_tokens")},
    {FORMAT("mooncake", jsonl, MS, "timestamp", "input_length", "output_length"),
     .hash_tokens = 512}, /* of the published traces (Mooncake, FAST 2025) */
    {FORMAT("llmservingsim", jsonl, 1, "arrival_time_ns", "input_toks", "output_toks")},
    {FORMAT("prompts", prompts, 1, NULL)},
};

/* What server_log.h makes of its files. */
static const struct format served[] = {
    {FORMAT("served", csv, 1, "start_ns", "input", "output"), .zero_output_is_failure = true},
    {FORMAT("served-lengths", csv, 1, NULL, "input", "output"), .zero_output_is_failure = true},
};

struct trace {
    char *path;
    FILE *file;
    char *
        lengths; /* of a decode trace or a server's log, whose rows are read from here; else NULL */
    const char *log;     /* the name of the log's format; NULL: it is none */
    struct format given; /* by its columns; without a name: none is */
    bool any_order;
    struct seen seen;
    const struct format *format;
    struct layout layout;
    char *buffer; /* the unread bytes are [begin, end) */
    size_t room, begin, end;
    bool at_end;
    struct line line;
    struct prompt_taker taker;
    uint64_t n_given, n_failed;
    int64_t first_ns, last_ns; /* as the file counts; last_ns -1 before the first row */
    struct err bad;            /* once set, every further call repeats it */
};

/* Makes room behind `end` and reads on. */
static int fill(struct trace *trace, struct err *err) {
    if (trace->begin > 0) {
        memmove(trace->buffer, trace->buffer + trace->begin, trace->end - trace->begin);
        trace->end -= trace->begin;
        trace->begin = 0;
    }
    if (trace->end == trace->room) {
        if (trace->room >= TRACE_MAX_LINE_BYTES) {
            return err_world(err,
                             "%s:%" PRIu64 ": found a line longer than %d bytes, expected a "
                             "trace's row",
                             trace->path, trace->line.number + 1, TRACE_MAX_LINE_BYTES);
        }
        trace->room *= 2;
        trace->buffer = mem_resized(trace->buffer, trace->room, 1);
    }
    size_t n = fread(trace->buffer + trace->end, 1, trace->room - trace->end, trace->file);
    if (n == 0 && ferror(trace->file)) {
        return errno == EBADMSG
                   ? err_world(err,
                               "%s: the compressed data is damaged or cut off behind line %" PRIu64,
                               trace->path, trace->line.number)
                   : err_world(err, "cannot read %s: %s", trace->path, strerror(errno));
    }
    trace->at_end = n == 0;
    trace->end += n;
    return 0;
}

/* Reads the next line into trace->line; `*more` is false at the end of the file. */
static int next_line(struct trace *trace, bool *more, struct err *err) {
    size_t searched = 0;
    const char *newline;
    for (;;) {
        const char *from = trace->buffer + trace->begin + searched;
        newline = memchr(from, '\n', trace->end - trace->begin - searched);
        if (newline != NULL || trace->at_end) {
            break;
        }
        searched = trace->end - trace->begin;
        int status = fill(trace, err);
        if (status != 0) {
            return status;
        }
    }
    *more = newline != NULL || trace->end > trace->begin;
    if (!*more) {
        return 0;
    }
    const char *text = trace->buffer + trace->begin;
    size_t length = newline != NULL ? (size_t)(newline - text) : trace->end - trace->begin;
    trace->begin += length + (newline != NULL);
    if (length > 0 && text[length - 1] == '\r') {
        length--;
    }
    trace->line.number++;
    trace->line.text = text;
    trace->line.length = length;
    trace->line.finished = newline != NULL;
    if (memchr(text, '\0', length) != NULL) {
        return err_world(err, "%s:%" PRIu64 ": found a NUL byte, expected text", trace->path,
                         trace->line.number);
    }
    return 0;
}

static int unknown_format(const struct trace *trace, struct err *err) {
    char quoted[64], names[256] = "";
    if (trace->given.name != NULL) {
        return err_world(err, "%s:1: found '%s', which lacks a column that --columns names",
                         trace->path,
                         field_quote(trace->line.text, trace->line.length, quoted, sizeof quoted));
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ", formats[i].name);
    }
    return err_world(err,
                     "%s:1: found '%s', expected the first line of a known trace format (%s), a "
                     "server's log, or "
                     "`unmask trace convert --columns`",
                     trace->path,
                     field_quote(trace->line.text, trace->line.length, quoted, sizeof quoted),
                     names);
}

/* Reads the first line and, where it is a row already, leaves it unread. */
static int open_rows(struct trace *trace, struct err *err) {
    bool more;
    int status = next_line(trace, &more, err);
    if (status != 0) {
        return status;
    }
    if (!more) {
        return err_world(err, "%s:1: found an empty file, expected a trace", trace->path);
    }
    size_t line_begin = (size_t)(trace->line.text - trace->buffer);
    if (trace->line.length >= 3 && memcmp(trace->line.text, "\xef\xbb\xbf", 3) == 0) {
        line_begin += 3;
        trace->line.text += 3;
        trace->line.length -= 3;
    }
    bool is_given = trace->given.name != NULL;
    const struct format *known = is_given ? &trace->given : trace->log != NULL ? served : formats;
    size_t n_known = is_given             ? 1
                     : trace->log != NULL ? sizeof served / sizeof served[0]
                                          : sizeof formats / sizeof formats[0];
    trace->format = NULL;
    trace->layout = (struct layout){.seen = &trace->seen};
    for (size_t i = 0; i < n_known && trace->format == NULL; i++) {
        trace->format =
            known[i].family->opens(&known[i], &trace->line, &trace->layout) ? &known[i] : NULL;
    }
    if (trace->format == NULL) {
        return unknown_format(trace, err);
    }
    if (!trace->format->family->has_header) {
        trace->begin = line_begin;
        trace->line.number = 0;
    }
    return 0;
}

/* A decode trace and a server's log become a table; `*lengths` stays NULL for other files. */
static int take_table(const char *path, bool is_given, FILE **file, char **lengths,
                      const char **log, struct err *err) {
    bool is_decode = decode_trace_is(path);
    *log = is_decode || is_given ? NULL : server_log_is(*file);
    int status = is_decode      ? decode_trace_lengths(path, lengths, err)
                 : *log != NULL ? server_log_rows(*file, path, *log, lengths, err)
                                : 0;
    if (status == 0 && *lengths != NULL) {
        fclose(*file);
        *file = mem_given(fmemopen(*lengths, strlen(*lengths), "rb"));
    }
    return status;
}

/* The first character that is no blank, nor of a byte order mark. */
static bool is_json(FILE *file) {
    int c;
    if (fseek(file, 0, SEEK_SET) != 0) {
        return false; /* of a pipe only CSV is read so */
    }
    while ((c = fgetc(file)) != EOF && strchr(" \t\r\n\xef\xbb\xbf", c) != NULL) {
    }
    clearerr(file);
    return fseek(file, 0, SEEK_SET) == 0 && c == '{';
}

int trace_open(const char *path, struct trace **out, struct err *err) {
    return trace_open_as(path, &(const struct trace_reading){0}, out, err);
}

int trace_open_as(const char *path, const struct trace_reading *how, struct trace **out,
                  struct err *err) {
    FILE *file = unpack_open(path);
    if (file == NULL) {
        return err_world(err, "cannot open %s: %s", path, strerror(errno));
    }
    char *lengths = NULL;
    const char *log = NULL;
    struct format given = {0};
    int status = take_table(path, how->columns != NULL, &file, &lengths, &log, err);
    if (status == 0 && how->columns != NULL) {
        status = format_from_columns(how->columns, is_json(file), &given, err);
    }
    if (status != 0) {
        free(lengths);
        fclose(file);
        return status;
    }
    inputs_note("trace", path);
    struct trace *trace = mem_unwritten(1, sizeof *trace);
    *trace = (struct trace){.path = mem_text(path),
                            .file = file,
                            .lengths = lengths,
                            .log = log,
                            .given = given,
                            .any_order = how->any_order,
                            .buffer = mem_unwritten(FIRST_BUFFER_BYTES, 1),
                            .room = FIRST_BUFFER_BYTES,
                            .last_ns = -1};
    /* Our own buffer is the only one. */
    setvbuf(file, NULL, _IONBF, 0);
    trace->line.path = trace->path;
    status = open_rows(trace, err);
    if (status != 0) {
        trace_close(trace);
        return status;
    }
    *out = trace;
    return 0;
}

void trace_close(struct trace *trace) {
    if (trace != NULL) {
        fclose(trace->file);
        free(trace->lengths);
        free(trace->seen.ids);
        format_forget(&trace->given);
        free(trace->buffer);
        free(trace->path);
        free(trace);
    }
}

int trace_rewind(struct trace *trace, struct err *err) {
    if (fseek(trace->file, 0, SEEK_SET) != 0) {
        return err_world(err, "cannot read %s a second time: %s", trace->path, strerror(errno));
    }
    clearerr(trace->file);
    free(trace->seen.ids);
    trace->seen = (struct seen){0};
    trace->begin = trace->end = 0;
    trace->at_end = false;
    trace->line.number = 0;
    trace->n_given = trace->n_failed = 0;
    trace->last_ns = -1;
    trace->bad = (struct err){0};
    return open_rows(trace, err);
}

static int check_order(struct trace *trace, const struct trace_row *row, struct err *err) {
    if (row->time_ns < trace->last_ns && !trace->any_order) {
        return err_world(err,
                         "%s:%" PRIu64 ": found an arrival %.9g s before the previous row's, "
                         "expected rows in order of arrival",
                         trace->path, trace->line.number,
                         (double)(trace->last_ns - row->time_ns) * 1e-9);
    }
    trace->last_ns = row->time_ns;
    return 0;
}

/* The next row that did not fail; `*more` is false at the end. */
static int next_row(struct trace *trace, struct trace_row *row, bool *more, struct err *err) {
    do {
        int status = next_line(trace, more, err);
        if (status != 0 || !*more) {
            return status;
        }
        if (trace->line.length == 0) {
            return err_world(err, "%s:%" PRIu64 ": found an empty line, expected a request",
                             trace->path, trace->line.number);
        }
        const struct family *family = trace->format->family;
        status = family->take != NULL
                     ? family->take(&trace->line, &trace->taker, row, err)
                     : family->parse(trace->format, &trace->layout, &trace->line, row, err);
        if (status == 0) {
            status = check_order(trace, row, err);
        }
        if (status != 0) {
            return status;
        }
        trace->n_failed += row->failed;
    } while (row->failed);
    return 0;
}

static enum source_reply give_row(void *state, struct arrival *out, struct err *err) {
    struct trace *trace = state;
    if (trace->bad.kind != ERR_NONE) {
        err_set(err, trace->bad.kind, trace->bad.code, "%s", trace->bad.text);
        return SOURCE_BAD;
    }
    struct trace_row row = {0};
    bool more = false;
    int status = next_row(trace, &row, &more, &trace->bad);
    if (status == 0 && !more && trace->n_given == 0) {
        status = err_world(&trace->bad,
                           "%s:%" PRIu64 ": found the end of the file (%" PRIu64
                           " failed requests before it), expected at least one request",
                           trace->path, trace->line.number + 1, trace->n_failed);
    }
    if (status != 0) {
        err_set(err, trace->bad.kind, trace->bad.code, "%s", trace->bad.text);
        return SOURCE_BAD;
    }
    if (!more) {
        return SOURCE_END;
    }
    if (trace->n_given == 0) {
        trace->first_ns = row.time_ns;
    }
    *out = (struct arrival){.arrival_ns = row.time_ns - trace->first_ns,
                            .id = trace->n_given++,
                            .prompt_tokens = row.input_tokens,
                            .output_tokens = row.output_tokens,
                            .answer_tokens = row.answer_tokens,
                            .prompt = row.prompt,
                            .tenant = row.tenant,
                            .prefix_tokens = row.prefix_tokens,
                            .session = row.session,
                            .shares = row.shares,
                            .leaves = row.leaves,
                            .prefix_group = row.prefix_group,
                            .think_ns = row.think_ns};
    return SOURCE_ROW;
}

void trace_set_taker(struct trace *trace, const struct prompt_taker *taker) {
    trace->taker = *taker;
}

bool trace_has_prompts(const struct trace *trace) {
    return trace->format->family->take != NULL;
}

struct arrival_source trace_source(struct trace *trace) {
    return (struct arrival_source){.state = trace, .next = give_row};
}

const char *trace_path(const struct trace *trace) {
    return trace->path;
}

const char *trace_format(const struct trace *trace) {
    return trace->log != NULL ? trace->log : trace->format->name;
}

bool trace_has_times(const struct trace *trace) {
    return trace->format->columns[COLUMN_TIME] != NULL || trace_has_prompts(trace);
}

static bool has_column(const struct trace *trace, enum column column) {
    return trace->format->columns[column] != NULL &&
           (!trace->format->family->has_header || trace->layout.position[column] >= 0);
}

bool trace_has_answers(const struct trace *trace) {
    return has_column(trace, COLUMN_ANSWER);
}

bool trace_has_sessions(const struct trace *trace) {
    return has_column(trace, COLUMN_SESSION);
}

uint64_t trace_skipped(const struct trace *trace) {
    return trace->n_failed;
}
