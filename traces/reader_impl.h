/* The inside of a trace, shared by the file that opens it and the one that reads its rows. */
#ifndef UNMASK_TRACES_READER_IMPL_H
#define UNMASK_TRACES_READER_IMPL_H

#include <stdio.h>

#include "traces/format/survey.h"
#include "traces/reader.h"

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
    uint64_t n_given, n_failed, n_left_out;
    int64_t first_ns, last_ns; /* as the file counts; last_ns -1 before the first row */
    struct err bad;            /* once set, every further call repeats it */
};

/* Reads the next line into trace->line; `*more` is false at the end of the file. */
int reader_next_line(struct trace *trace, bool *more, struct err *err);

/* The first line, past a byte order mark; `*begin` is where it stands in the buffer. */
int reader_first_line(struct trace *trace, size_t *begin, struct err *err);

/* Back before the first row; what was learnt of the file stays. */
int reader_to_first_row(struct trace *trace, struct err *err);

/* The next row that counts, in the order of the file; `*more` is false at the end. */
int reader_next_row(struct trace *trace, struct trace_row *row, bool *more, struct err *err);

#endif
