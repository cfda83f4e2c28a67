#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/wait.h"
#include "traces/reader_impl.h"

/* Makes room after `end` and reads on. */
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
    const int wait = wait_begin();
    size_t n = fread(trace->buffer + trace->end, 1, trace->room - trace->end, trace->file);
    wait_end(wait);
    if (n == 0 && ferror(trace->file)) {
        return errno == EBADMSG
                   ? err_world(err,
                               "%s: the compressed data is damaged or cut off after line %" PRIu64,
                               trace->path, trace->line.number)
                   : err_world(err, "cannot read %s: %s", trace->path, strerror(errno));
    }
    trace->at_end = n == 0;
    trace->end += n;
    return 0;
}

int reader_next_line(struct trace *trace, bool *more, struct err *err) {
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

int reader_first_line(struct trace *trace, size_t *begin, struct err *err) {
    bool more;
    int status = reader_next_line(trace, &more, err);
    if (status != 0) {
        return status;
    }
    if (!more) {
        return err_world(err, "%s:1: found an empty file, expected a trace", trace->path);
    }
    *begin = (size_t)(trace->line.text - trace->buffer);
    if (trace->line.length >= 3 && memcmp(trace->line.text, "\xef\xbb\xbf", 3) == 0) {
        *begin += 3;
        trace->line.text += 3;
        trace->line.length -= 3;
    }
    return 0;
}

int reader_to_first_row(struct trace *trace, struct err *err) {
    size_t begin;
    if (fseek(trace->file, 0, SEEK_SET) != 0) {
        return err_world(err, "cannot read %s a second time: %s", trace->path, strerror(errno));
    }
    clearerr(trace->file);
    known_clear(&trace->layout.hashes);
    known_clear(&trace->layout.sessions);
    known_clear(&trace->layout.roots);
    known_clear(&trace->layout.tenants);
    trace->layout.n_tenants = 0;
    trace->layout.had = 0;
    trace->layout.last_ns = 0;
    trace->begin = trace->end = 0;
    trace->at_end = false;
    trace->line.number = 0;
    int status = reader_first_line(trace, &begin, err);
    if (status == 0 && !trace->format->family->has_header) {
        trace->begin = begin;
        trace->line.number = 0;
    }
    return status;
}

void trace_close(struct trace *trace) {
    if (trace != NULL) {
        struct format_survey names = {.unread = trace->unread};
        survey_end(&names);
        fclose(trace->file);
        known_clear(&trace->layout.hashes);
        known_clear(&trace->layout.sessions);
        known_clear(&trace->layout.roots);
        known_clear(&trace->layout.tenants);
        conditions_free(trace->where, trace->n_where);
        format_forget(&trace->given);
        free(trace->layout.header);
        free(trace->lengths);
        free(trace->notes);
        free(trace->sorted);
        free(trace->buffer);
        free(trace->path);
        free(trace);
    }
}

int trace_rewind(struct trace *trace, struct err *err) {
    trace->n_given = trace->next_sorted = 0;
    trace->last_ns = -1;
    trace->bad = (struct err){0};
    if (trace->sorted != NULL) {
        return 0;
    }
    trace->n_failed = trace->n_left_out = 0;
    return reader_to_first_row(trace, err);
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

static int read_row(struct trace *trace, struct trace_row *row, struct err *err) {
    const struct family *family = trace->format->family;
    struct record record;
    if (family->take != NULL) {
        return family->take(&trace->line, &trace->taker, row, err);
    }
    int status = family->take_apart(&trace->layout, &trace->line, &record, err);
    if (status != 0) {
        return status;
    }
    status = row_read(trace->format, &trace->layout, &record, row, err);
    json_decref(record.object);
    return status;
}

/* At the end: --columns names what no row has. */
static int check_had(const struct trace *trace, struct err *err) {
    for (int i = COLUMN_TENANT; trace->format->by_user && i < N_NAMED_COLUMNS; i++) {
        const struct place *place = &trace->layout.at[i];
        if (place->name != NULL && trace->format->family == &family_jsonl && i != COLUMN_HASHES &&
            (trace->layout.had & 1u << i) == 0) {
            return err_world(err, "%s: no row has '%s', which --columns names for %s", trace->path,
                             place->name, column_words[i]);
        }
    }
    return 0;
}

int reader_next_row(struct trace *trace, struct trace_row *row, bool *more, struct err *err) {
    do {
        int status = reader_next_line(trace, more, err);
        if (status != 0) {
            return status;
        }
        if (!*more) {
            return check_had(trace, err);
        }
        if (trace->line.length == 0) {
            return err_world(err, "%s:%" PRIu64 ": found an empty line, expected a request",
                             trace->path, trace->line.number);
        }
        status = read_row(trace, row, err);
        if (status == 0 && !row->left_out && !row->failed) {
            status = check_order(trace, row, err);
        }
        if (status != 0) {
            return status;
        }
        trace->n_failed += row->failed;
        trace->n_left_out += row->left_out;
    } while (row->failed || row->left_out);
    return 0;
}

/* The same from the rows in order, where they had to be put so. */
static int take_row(struct trace *trace, struct trace_row *row, bool *more, struct err *err) {
    if (trace->sorted == NULL) {
        return reader_next_row(trace, row, more, err);
    }
    *more = trace->next_sorted < trace->n_sorted;
    if (*more) {
        *row = trace->sorted[trace->next_sorted++];
    }
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
    int status = take_row(trace, &row, &more, &trace->bad);
    if (status == 0 && !more && trace->n_given == 0) {
        status = err_world(&trace->bad,
                           "%s:%" PRIu64 ": found the end of the file (%" PRIu64
                           " failed requests before it%s), expected at least one request",
                           trace->path, trace->line.number + 1, trace->n_failed,
                           trace->n_left_out > 0 ? ", others left out by --where" : "");
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
    const struct place *place = &trace->layout.at[column];
    return trace->format->family->take == NULL && place->name != NULL &&
           (!trace->format->family->has_header || place->position >= 0);
}

bool trace_has_answers(const struct trace *trace) {
    return has_column(trace, COLUMN_ANSWER);
}

bool trace_has_sessions(const struct trace *trace) {
    return has_column(trace, COLUMN_SESSION) && trace->has_turns;
}

uint64_t trace_skipped(const struct trace *trace) {
    return trace->n_failed;
}

uint64_t trace_left_out(const struct trace *trace) {
    return trace->n_left_out;
}

const char *trace_notes(const struct trace *trace) {
    return trace->notes != NULL ? trace->notes : "";
}

const char *const *trace_unread(const struct trace *trace, size_t *n) {
    *n = trace->unread.n;
    return (const char *const *)trace->unread.items;
}

const char *trace_hint_of_time(const struct trace *trace, char *text, size_t size) {
    const struct place *at = trace->layout.at;
    text[0] = '\0';
    if (trace->log == NULL && trace->unread.n > 0 && !trace_has_prompts(trace) &&
        at[COLUMN_INPUT].name != NULL) {
        const char *name = trace->unread.items[0];
        snprintf(
            text, size,
            "; '%.64s' is not read: --columns time=%.64s:UNIT,input=%.64s,output=%.64s would, if "
            "it is the time",
            name, name, at[COLUMN_INPUT].name, at[COLUMN_OUTPUT].name);
    }
    return text;
}
