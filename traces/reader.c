#include "traces/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/inputs.h"
#include "sim/base/input/text.h"
#include "sim/base/input/unpack.h"
#include "sim/base/mem.h"
#include "sim/base/wait.h"
#include "traces/decode_trace.h"
#include "traces/format/passed_over.h"
#include "traces/format/survey.h"
#include "traces/json_list.h"
#include "traces/server_log.h"

struct trace {
    char *path;
    FILE *file;
    char *lengths;       /* a table of what was no rows: its text, which is read; else NULL */
    const char *log;     /* the name of the format that the table was made of; NULL: none */
    struct format given; /* by --columns, or guessed; without a name: neither */
    struct condition where[MAX_WHERE];
    int n_where;
    bool is_seekable, any_order, has_turns;
    const struct format *format;
    struct layout layout;
    char *buffer; /* the unread bytes are [begin, end) */
    size_t room, begin, end;
    bool at_end;
    struct line line;
    struct prompt_taker taker;
    char *notes;                /* what was inferred, in sentences */
    struct survey_names unread; /* columns and keys */
    struct trace_row *sorted;   /* [n_sorted] where rows stand in another order; else NULL */
    size_t n_sorted, next_sorted;
    uint64_t n_given;
    struct passed_over passed,
        most;                  /* rows since the first one, and of any earlier pass over the file */
    int64_t first_ns, last_ns; /* as the file counts; last_ns -1 before the first row */
    struct err bad;            /* once set, every further call repeats it */
    bool skips_bad;            /* rows that are none */
    bool names_skip_bad;       /* their errors name the option */
    struct err first_bad;
};

/* Reads the next line into trace->line; `*more` is false at the end of the file. */
static int reader_next_line(struct trace *trace, bool *more, struct err *err);

/* The first line, past a byte order mark; `*begin` is where it stands in the buffer. */
static int reader_first_line(struct trace *trace, size_t *begin, struct err *err);

/* Back before the first row; what was learnt of the file stays. */
static int reader_to_first_row(struct trace *trace, struct err *err);

/* The next row that counts, in the order of the file; `*more` is false at the end. */
static int reader_next_row(struct trace *trace, struct trace_row *row, bool *more, struct err *err);

enum { FIRST_BUFFER_BYTES = 256 << 10 };

/* What server_log.h makes of its files. */
static const struct format served[] = {
    {.name = "served",
     .family = &family_csv,
     .unit_ns = 1,
     .columns = {"start_ns", "input", "output"},
     .zero_output_is_failure = true},
    {.name = "served-lengths",
     .family = &family_csv,
     .unit_ns = 1,
     .columns = {NULL, "input", "output", [COLUMN_SESSION] = "session"},
     .zero_output_is_failure = true},
};

/* ---- the first line ---- */

/* `guess`: what of its names says lengths, though none says a time; NULL: nothing. */
static int unknown_format(const struct trace *trace, const struct format *guess, struct err *err) {
    const char *text = trace->line.text;
    const size_t length = trace->line.length;
    for (const char *other = ";\t|"; length > 0 && *other != '\0'; other++) {
        if (memchr(text, *other, length) != NULL && memchr(text, ',', length) == NULL) {
            return err_world(err, "%s:1: its fields are separated by %s, expected by commas",
                             trace->path,
                             *other == ';'    ? "semicolons"
                             : *other == '\t' ? "tabs"
                                              : "bars");
        }
    }
    char quoted[64], names[256] = "", lengths[256] = "";
    for (size_t i = 0; i < n_formats; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ", formats[i].name);
    }
    if (guess != NULL) {
        snprintf(
            lengths, sizeof lengths,
            "; by their names, as input=%s,output=%s, with time=NAME:UNIT or for lengths alone",
            guess->columns[COLUMN_INPUT], guess->columns[COLUMN_OUTPUT]);
    }
    return err_world(err,
                     "%s:1: found '%s', expected the first line of a known trace format (%s), a "
                     "server's log, or "
                     "`unmask trace convert --columns`%s",
                     trace->path,
                     field_quote(trace->line.text, trace->line.length, quoted, sizeof quoted),
                     names, lengths);
}

/* --columns names what the header lacks. */
static int missing_column(const struct trace *trace, struct err *err) {
    char quoted[64];
    const char *missing = "";
    for (int i = N_NAMED_COLUMNS - 1; i >= 0; i--) {
        const struct place *place = &trace->layout.at[i];
        missing = place->name != NULL && place->position < 0 ? place->name : missing;
    }
    return err_world(
        err, "%s:1: found '%s', which lacks '%s', a column that --columns names", trace->path,
        field_quote(trace->line.text, trace->line.length, quoted, sizeof quoted), missing);
}

/* A header stays for as long as the trace: its buffer moves on. */
static void keep_header(struct trace *trace, struct record *first) {
    struct layout *layout = &trace->layout;
    int n;
    layout->header = mem_copied(trace->line.text, trace->line.length);
    struct line kept = trace->line;
    kept.text = layout->header;
    if (csv_split(&kept, first, &n)) {
        layout->n_columns = n;
        memcpy(layout->names, first->at, sizeof layout->names);
    } else {
        free(layout->header);
        layout->header = NULL;
    }
    first->line = &trace->line;
}

static bool has_time(const struct format *format) {
    return format->columns[COLUMN_TIME] != NULL;
}

/* A format of the table, or one by the names of the columns: that one, too, where the table has
 * lengths alone and there is a time. */
static int recognise(struct trace *trace, const struct record *first, struct err *err) {
    const struct format *known = trace->log != NULL ? served : formats;
    size_t n_known = trace->log != NULL ? sizeof served / sizeof served[0] : n_formats;
    for (size_t i = 0; i < n_known && trace->format == NULL; i++) {
        bool opens =
            known[i].family->opens == NULL && format_opens(&known[i], first, &trace->layout);
        trace->format = opens ? &known[i] : NULL;
    }
    const struct format *unsure = NULL;
    bool is_open = trace->log == NULL && (trace->format == NULL || !has_time(trace->format));
    if (is_open && (first->object != NULL || trace->layout.header != NULL) &&
        format_guess(first, &trace->layout, &trace->given, err)) {
        /* Lengths alone are not guessed: the time may have another name. */
        unsure = has_time(&trace->given) ? NULL : &trace->given;
        trace->format = unsure == NULL ? &trace->given : trace->format;
        if (trace->format != NULL) {
            (void)format_opens(trace->format, first, &trace->layout);
        }
    }
    if (trace->format == NULL && err->kind == ERR_NONE && trace->log == NULL &&
        family_prompts.opens(&trace->line)) {
        trace->format = &formats[n_formats - 1];
    }
    return err->kind != ERR_NONE   ? err_status(err)
           : trace->format == NULL ? unknown_format(trace, unsure, err)
                                   : 0;
}

static int place_conditions(struct trace *trace, struct err *err) {
    struct layout *layout = &trace->layout;
    layout->conditions = trace->where;
    layout->n_where = trace->n_where;
    for (int i = 0; i < trace->n_where; i++) {
        const char *name = trace->where[i].name;
        layout->where[i] = (struct place){name, -1};
        if (layout->header != NULL &&
            (layout->where[i].position = csv_position(layout, name)) < 0) {
            return err_usage(err, "%s has no column '%s', which --where names", trace->path, name);
        }
    }
    return 0;
}

/* Reads the first line and says of which format the file is. */
static int open_rows(struct trace *trace, struct err *err) {
    size_t begin = 0;
    struct record first = {.line = &trace->line};
    int status = reader_first_line(trace, &begin, err);
    if (status != 0) {
        return status;
    }
    json_error_t ignored;
    first.object =
        json_lenient(trace->line.text, trace->line.length, JSON_REJECT_DUPLICATES, &ignored);
    if (!json_is_object(first.object)) {
        json_decref(first.object);
        first.object = NULL;
        keep_header(trace, &first);
    }
    if (trace->given.name == NULL) {
        status = recognise(trace, &first, err);
    } else {
        trace->format = &trace->given;
        if (!format_opens(&trace->given, &first, &trace->layout) &&
            trace->given.family == &family_csv) {
            status = missing_column(trace, err);
        }
    }
    if (status == 0) {
        status_places(&first, trace->format->family, &trace->layout);
        status = place_conditions(trace, err);
    }
    if (status == 0 && !trace->format->family->has_header) {
        trace->begin = begin;
        trace->line.number = 0;
    }
    json_decref(first.object);
    return status;
}

/* A file that cannot be read twice and has to be: what was read of it and the rest go to a file
 * without a name. */
static int keep_file(struct trace *trace, struct err *err) {
    char bytes[1 << 14];
    size_t n;
    FILE *kept = tmpfile();
    if (kept == NULL) {
        return err_world(err, "%s cannot be kept to be read twice: %s", trace->path,
                         strerror(errno));
    }
    bool is_whole = fwrite(trace->buffer, 1, trace->end, kept) == trace->end;
    while (is_whole && (n = fread(bytes, 1, sizeof bytes, trace->file)) > 0) {
        is_whole = fwrite(bytes, 1, n, kept) == n;
    }
    int cause = !is_whole || ferror(trace->file) || fflush(kept) != 0 ? errno : 0;
    fclose(trace->file);
    trace->file = kept;
    setvbuf(kept, NULL, _IONBF, 0);
    return cause == 0 ? 0
                      : err_world(err, "%s cannot be kept to be read twice: %s", trace->path,
                                  strerror(cause));
}

/* ---- facts of the whole file ---- */

/* Rows as they are; a line that is none ends it, and is told when it is read for its row. */
static int survey_rows(struct trace *trace, struct format_survey *survey, struct err *err) {
    bool more = true;
    while (more) {
        struct record record;
        struct err ignored = {0};
        int status = reader_next_line(trace, &more, err);
        if (status != 0) {
            *err = (struct err){0};
            return 0;
        }
        if (!more) {
            return 0;
        }
        if (trace->format->family->take_apart(&trace->layout, &trace->line, &record, &ignored) !=
            0) {
            if (!trace->skips_bad) {
                return 0;
            }
            continue;
        }
        survey_row(survey, &record);
        json_decref(record.object);
    }
    return 0;
}

static void say_guess(const struct trace *trace, FILE *notes) {
    const struct layout *layout = &trace->layout;
    fprintf(notes, "read by the names of its columns, as --columns ");
    const char *separator = "";
    for (int i = 0; i < N_NAMED_COLUMNS; i++) {
        if (layout->at[i].name != NULL) {
            const char *unit = i == COLUMN_TIME ? unit_word(layout->unit_ns) : NULL;
            fprintf(notes, "%s%s=%s%s%s", separator, column_words[i], layout->at[i].name,
                    unit != NULL ? ":" : "", unit != NULL ? unit : "");
            separator = ",";
        }
    }
    fprintf(notes, " would; ");
}

static int learn(struct trace *trace, const struct trace_reading *how, int64_t unit_ns,
                 struct err *err) {
    struct layout *layout = &trace->layout;
    struct format_survey survey;
    size_t size;
    survey_begin(&survey, trace->format, layout, trace->path);
    survey.unread = trace->unread; /* of the file that was made a table */
    survey_header(&survey);
    if (unit_ns != UNIT_ASKED) {
        bool is_same_tool = layout->think_unit_ns == layout->unit_ns;
        layout->think_unit_ns = is_same_tool && unit_ns > 0 ? unit_ns : layout->think_unit_ns;
        layout->unit_ns = unit_ns;
    }
    bool surveys = survey_is_needed(trace->format, layout);
    int status = 0;
    if (surveys) {
        status = trace->is_seekable ? 0 : keep_file(trace, err);
        status = status == 0 ? reader_to_first_row(trace, err) : status;
        status = status == 0 ? survey_rows(trace, &survey, err) : status;
        status = status == 0 ? reader_to_first_row(trace, err) : status;
    }
    char *found = NULL;
    FILE *notes = mem_stream(&found, &size);
    fputs(trace->notes != NULL ? trace->notes : "", notes);
    status = status == 0 ? survey_settle(&survey, unit_ns, how->hash_tokens, notes, err) : status;
    if (trace->format->by_names) {
        say_guess(trace, notes);
    }
    mem_stream_close(notes);
    free(trace->notes);
    trace->notes = found;
    trace->unread = survey.unread;
    trace->has_turns = !surveys || survey.has_sessions;
    return status;
}

static int by_time(const void *a, const void *b) {
    const struct trace_row *x = a, *y = b;
    return x->time_ns != y->time_ns ? (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns)
                                    : (x->prompt > y->prompt) - (x->prompt < y->prompt);
}

/* Rows that stand as requests ended, in order of arrival. */
static int sort_rows(struct trace *trace, struct err *err) {
    size_t room = 0;
    bool more = true;
    int status = 0;
    trace->any_order = true; /* until they are sorted */
    while (status == 0 && more) {
        trace->sorted = mem_grown(trace->sorted, trace->n_sorted, &room, sizeof *trace->sorted);
        struct trace_row *row = &trace->sorted[trace->n_sorted];
        status = reader_next_row(trace, row, &more, err);
        if (status == 0 && more) {
            row->prompt = trace->n_sorted++; /* its place, until they are in order */
        }
    }
    trace->any_order = false;
    qsort(trace->sorted, trace->n_sorted, sizeof *trace->sorted, by_time);
    for (size_t i = 0; i < trace->n_sorted; i++) {
        trace->sorted[i].prompt = 0;
    }
    return status;
}

/* ---- opening ---- */

/* A decode trace, a server's log and a list in JSON become a table; `trace->lengths` stays NULL for
 * other files. */
static int take_table(struct trace *trace, const struct trace_reading *how, struct err *err) {
    bool is_given = how->columns != NULL, is_decode = decode_trace_is(trace->path);
    int status = 0;
    if (!is_decode && !trace->is_seekable) {
        return 0; /* a pipe, whose begin cannot be looked at before it is read */
    }
    if (is_decode) {
        status = decode_trace_lengths(trace->path, &trace->lengths, err);
        if (status == 0 && !inputs_is_still(fileno(trace->file), trace->path)) {
            status = err_world(err, "%s: was replaced while it was read", trace->path);
        }
    } else if (json_list_is(trace->file)) {
        status = json_list_rows(trace->file, trace->path, &how->counter, &trace->lengths,
                                &trace->log, &trace->unread, err);
    } else if (!is_given && (trace->log = server_log_is(trace->file)) != NULL) {
        status = server_log_rows(trace->file, trace->path, trace->log, &trace->lengths,
                                 &trace->notes, &trace->unread, err);
    }
    if (status == 0 && trace->lengths != NULL) {
        fclose(trace->file);
        trace->file = mem_given(fmemopen(trace->lengths, strlen(trace->lengths), "rb"));
    }
    return status;
}

/* The first character that is no blank, nor of a byte order mark. */
static bool is_json(FILE *file) {
    int c;
    if (fseek(file, 0, SEEK_SET) != 0) {
        return ungetc(fgetc(file), file) == '{'; /* of a pipe one character can be looked at */
    }
    while ((c = fgetc(file)) > 0 && strchr(" \t\r\n\xef\xbb\xbf", c) != NULL) {
    }
    clearerr(file);
    return fseek(file, 0, SEEK_SET) == 0 && c == '{';
}

static int read_how(struct trace *trace, const struct trace_reading *how, int64_t *unit_ns,
                    struct err *err) {
    *unit_ns = UNIT_ASKED;
    if (how->time_unit != NULL && !unit_find(how->time_unit, strlen(how->time_unit), unit_ns)) {
        return err_usage(err, "--time-unit: '%s' is none of s, ms, us, ns, date", how->time_unit);
    }
    return how->where != NULL ? conditions_read(how->where, trace->where, &trace->n_where, err) : 0;
}

static int check_head(struct trace *trace, struct err *err) {
    char head[TEXT_HEAD_BYTES];
    if (!trace->is_seekable) {
        return 0; /* a pipe, whose begin cannot be looked at before it is read */
    }
    const size_t n = fread(head, 1, sizeof head, trace->file);
    clearerr(trace->file);
    if (text_is_foreign(trace->path, head, n, err)) {
        return err_status(err);
    }
    return fseek(trace->file, 0, SEEK_SET) == 0
               ? 0
               : err_world(err, "cannot read %s: %s", trace->path, strerror(errno));
}

static int open_file(struct trace *trace, const struct trace_reading *how, struct err *err) {
    int64_t unit_ns;
    int status = read_how(trace, how, &unit_ns, err);
    trace->is_seekable = fseek(trace->file, 0, SEEK_SET) == 0;
    if (!trace->is_seekable) {
        setvbuf(trace->file, NULL, _IONBF, 0); /* before anything is read */
    }
    status = status == 0 ? check_head(trace, err) : status;
    status = status == 0 ? take_table(trace, how, err) : status;
    if (status == 0 && how->columns != NULL) {
        status = format_from_columns(how->columns, is_json(trace->file), how->time_unit != NULL,
                                     &trace->given, err);
    }
    if (status != 0) {
        return status;
    }
    if (trace->is_seekable) {
        setvbuf(trace->file, NULL, _IONBF, 0); /* our own buffer is the only one */
    }
    trace->layout.skips_failed = how->skip_failed;
    trace->skips_bad = how->skip_bad;
    trace->names_skip_bad = how->names_skip_bad;
    status = open_rows(trace, err);
    if (status == 0 && trace->format->family->take == NULL) {
        status = learn(trace, how, unit_ns, err);
    }
    if (status != 0 || trace->format->family->take != NULL) {
        return status;
    }
    bool is_talk = trace->format->family == &family_jsonl && trace_has_sessions(trace);
    bool sorts = how->sorts || (!trace->format->by_user && (trace->format->any_order || is_talk));
    return sorts ? sort_rows(trace, err) : 0;
}

int trace_open(const char *path, struct trace **out, struct err *err) {
    return trace_open_as(path, &(const struct trace_reading){0}, out, err);
}

int trace_open_as(const char *path, const struct trace_reading *how, struct trace **out,
                  struct err *err) {
    FILE *file = unpack_open(path, "trace");
    if (file == NULL) {
        return err_world(err, "cannot open %s: %s", path, strerror(errno));
    }
    struct trace *trace = mem_zeroed(1, sizeof *trace);
    *trace = (struct trace){.path = mem_text(path),
                            .file = file,
                            .buffer = mem_unwritten(FIRST_BUFFER_BYTES, 1),
                            .room = FIRST_BUFFER_BYTES,
                            .last_ns = -1};
    trace->line.path = trace->path;
    int status = open_file(trace, how, err);
    if (status != 0) {
        trace_close(trace);
        return status;
    }
    *out = trace;
    return 0;
}

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

static int reader_next_line(struct trace *trace, bool *more, struct err *err) {
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

static int reader_first_line(struct trace *trace, size_t *begin, struct err *err) {
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

static int reader_to_first_row(struct trace *trace, struct err *err) {
    size_t begin = 0;
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
    trace->most = passed_over_most(&trace->passed, &trace->most);
    trace->passed = (struct passed_over){0};
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

/* Of prompts, whose keys --where may name. */
static int take_prompt(struct trace *trace, struct trace_row *row, struct err *err) {
    struct record record;
    if (trace->layout.n_where > 0) {
        int status = family_jsonl.take_apart(&trace->layout, &trace->line, &record, err);
        if (status != 0) {
            return status;
        }
        *row = (struct trace_row){0};
        row->left_out = !row_is_wanted(&family_jsonl, &trace->layout, &record);
        json_decref(record.object);
        if (row->left_out) {
            return 0;
        }
    }
    return trace->format->family->take(&trace->line, &trace->taker, row, err);
}

static int read_row(struct trace *trace, struct trace_row *row, struct err *err) {
    const struct family *family = trace->format->family;
    struct record record;
    if (family->take != NULL) {
        return take_prompt(trace, row, err);
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

/* The row of the line that was read. */
static int read_line(struct trace *trace, struct trace_row *row, struct err *err) {
    if (trace->line.length == 0) {
        return err_world(err, "%s:%" PRIu64 ": found an empty line, expected a request",
                         trace->path, trace->line.number);
    }
    int status = read_row(trace, row, err);
    return status == 0 && !row->left_out && !row->failed ? check_order(trace, row, err) : status;
}

/* Whether a row that is none is left out, of which the first is kept. */
static bool leave_bad_out(struct trace *trace, struct err *err) {
    if (trace->skips_bad) {
        if (trace->passed.bad++ == 0) {
            trace->first_bad = *err;
        }
        *err = (struct err){0};
    } else if (trace->names_skip_bad && strstr(err->text, "--skip-") == NULL) {
        const struct err bad = *err;
        *err = (struct err){0};
        err_set(err, bad.kind, bad.code, "%s (--skip-bad leaves out rows that cannot be read)",
                bad.text);
    }
    return trace->skips_bad;
}

static int reader_next_row(struct trace *trace, struct trace_row *row, bool *more,
                           struct err *err) {
    for (;;) {
        int status = reader_next_line(trace, more, err);
        if (status != 0) {
            return status;
        }
        if (!*more) {
            return check_had(trace, err);
        }
        status = read_line(trace, row, err);
        if (status != 0 && leave_bad_out(trace, err)) {
            continue;
        }
        if (status != 0 || (!row->failed && !row->left_out)) {
            return status;
        }
        trace->passed.failed += row->failed;
        if (row->left_out && trace->passed.left_out == 0) {
            memcpy(trace->passed.first, trace->layout.unwanted, sizeof trace->passed.first);
        }
        trace->passed.left_out += row->left_out;
    }
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
        status = passed_over_all(&trace->passed, trace->path, trace->line.number + 1,
                                 trace->first_bad.text, &trace->bad);
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
                            .think_ns = row.think_ns,
                            .due_ns = row.due_ns,
                            .priority = row.priority,
                            .predicted_tokens = row.predicted_tokens,
                            .sampling = row.sampling};
    return SOURCE_ROW;
}

void trace_set_taker(struct trace *trace, const struct prompt_taker *taker) {
    trace->taker = *taker;
}

bool trace_has_prompts(const struct trace *trace) {
    return trace->format->family->take != NULL;
}

int trace_show_prompts(const struct trace *trace, const struct prompt_taker *taker,
                       struct err *err) {
    struct trace *again = NULL;
    struct arrival row;
    enum source_reply reply = SOURCE_BAD;
    ASSERT(trace_has_prompts(trace));
    if (trace_open(trace->path, &again, err) == 0) {
        again->skips_bad = trace->skips_bad;
        again->names_skip_bad = trace->names_skip_bad;
        again->layout.conditions = trace->where;
        again->layout.n_where = trace->layout.n_where;
        memcpy(again->layout.where, trace->layout.where, sizeof again->layout.where);
        again->taker = *taker;
        while ((reply = give_row(again, &row, err)) == SOURCE_ROW) {
        }
    }
    trace_close(again);
    return reply == SOURCE_BAD ? err_status(err) : 0;
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

uint64_t trace_bad(const struct trace *trace, const char **first) {
    const uint64_t n = passed_over_most(&trace->passed, &trace->most).bad;
    *first = n > 0 ? trace->first_bad.text : "";
    return n;
}

uint64_t trace_skipped(const struct trace *trace) {
    return passed_over_most(&trace->passed, &trace->most).failed;
}

uint64_t trace_left_out(const struct trace *trace) {
    return passed_over_most(&trace->passed, &trace->most).left_out;
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
