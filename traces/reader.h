/* A trace reader: the rows of a file as a source of arrivals.
 *
 * The format is recognised by the first line, never by the file's name; traces/format/formats.c has
 * the table of names and units, docs/reference/formats.md says it for people. Besides:
 *   serving-bench, sglang-log, vllm-log   what benchmarks and servers write (server_log.h)
 *   sharegpt, json-list                   lists in JSON (json_list.h)
 *   a decode trace (decode_trace.h), of which the requests' lengths are read; they arrive at once
 *   csv, json-lines                       none of these, but columns or keys whose names say what
 *                                         they are (format/guess.c); trace_notes says which
 * CSV columns may stand in any order; what is not read is named (trace_unread). answer_tokens, from
 * 1 to the output's, is where the text ends among the output positions; arrivals of a file without
 * it do not say (0). Rows with the same session are turns of a conversation, in the order of the
 * file; the time to think is from the end of the turn before (conversations.h), and a later turn
 * needs no time of arrival. prefix_tokens are those of the prompt with which an earlier one of the
 * same prefix_group began, or else of the tenant.
 *
 * Units of time and of hash ids are those that the format publishes, as far as the rows agree, else
 * what the rows prove (format/survey.h), else they must be asked for: never guessed.
 *
 * Files compressed by gzip or Zstandard are read as what is in them, and JSON lines that cannot be
 * read twice, from a pipe, are kept in a file without a name; lists and logs must be files. Files
 * whose rows stand as requests ended (AIPerf, logs, rows with sessions) are held in memory and
 * given in order of arrival; all others are read in constant memory.
 *
 * Arrival times are rebased: the first row given arrives at 0. A BOM at the start and CR LF line
 * endings are accepted, as is a last line without a newline when it has all its fields. Everything
 * else that is not as it must be ends the reading with one sentence "path:line: found X, expected
 * Y": a cut-off line, an empty line, NUL bytes, a time before the previous row's, numbers negative,
 * not finite or too large, counts of zero tokens, a file without requests. Rows that say that they
 * failed (BurstGPT's with 0 response tokens; a status, where the format has one) are skipped and
 * counted. */
#ifndef UNMASK_TRACES_READER_H
#define UNMASK_TRACES_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arrival.h"
#include "traces/format/prompts.h"

/* A longer line is an error; the reader's buffer grows no further. */
enum { TRACE_MAX_LINE_BYTES = 4 << 20 };

struct trace;

/* Opens the file and recognises its format. ERR_WORLD leaves `*out` unset. */
int trace_open(const char *path, struct trace **out, struct err *err);
void trace_close(struct trace *trace); /* NULL is fine */

/* How a file is to be read. */
struct trace_reading {
    /* "time=NAME:UNIT,input=NAME,output=NAME", and answer, tenant, prefix, session, parent, hashes,
     * group, deadline (in the unit of time), priority, predicted and think=NAME:UNIT: what the
     * columns of a CSV file, or the keys of JSON lines, are called; "a.b" is b in a. UNIT is ns,
     * us, ms, s or date; without time all rows arrive at once. NULL: the format is recognised. */
    const char *columns;
    const char *time_unit; /* s, ms, us, ns or date; NULL: as format and rows say */
    const char *where;     /* "status=ok,model!=x": which rows count; NULL: all */
    uint32_t hash_tokens;  /* what a hash id stands for; 0: as format and rows say */
    bool skip_failed;      /* rows without tokens, or that say so by a status, failed */
    bool skip_bad;         /* rows that are none are left out and counted */
    bool names_skip_bad;   /* whoever is told of such a row can ask for --skip-bad */
    bool sorts; /* rows need not be in order of arrival: they are held in memory and sorted */
    struct prompt_taker counter; /* counts the tokens of a list of conversations */
};
int trace_open_as(const char *path, const struct trace_reading *how, struct trace **out,
                  struct err *err);

/* The rows; ids count them from 0. The source borrows the trace and has no `completed`. */
struct arrival_source trace_source(struct trace *trace);

/* Back to the first row. */
int trace_rewind(struct trace *trace, struct err *err);

/* Who counts the tokens of prompts; before their first row. */
void trace_set_taker(struct trace *trace, const struct prompt_taker *taker);
bool trace_has_prompts(const struct trace *trace);
/* All prompts that the trace gives, once more from the file, which is read as it was asked to. */
int trace_show_prompts(const struct trace *trace, const struct prompt_taker *taker,
                       struct err *err);

const char *trace_path(const struct trace *trace);
const char *trace_format(const struct trace *trace);

/* False where the format holds lengths only: every row then arrives at 0. */
bool trace_has_times(const struct trace *trace);

/* Whether its rows have lengths of answers in addition to those of outputs. */
bool trace_has_answers(const struct trace *trace);

/* Whether its rows are turns of conversations (conversations.h). */
bool trace_has_sessions(const struct trace *trace);

/* Rows that were none, which skip_bad left out since the first row, and what the first of them
 * lacks
 * ("" where there is none). */
uint64_t trace_bad(const struct trace *trace, const char **first);

/* Failed requests passed over since the first row, and rows left out by `where`. */
uint64_t trace_skipped(const struct trace *trace);
uint64_t trace_left_out(const struct trace *trace);

/* What was inferred, in sentences that end with "; "; "" where there is nothing.
 */
const char *trace_notes(const struct trace *trace);

/* How one of these would be read as the time, where the rows have none: "; WHEN is not read;
 * --columns time=WHEN:UNIT,... reads it", or "". Returns `text`. */
const char *trace_hint_of_time(const struct trace *trace, char *text, size_t size);

/* The columns or keys of the file that are not read. */
const char *const *trace_unread(const struct trace *trace, size_t *n);

#endif
