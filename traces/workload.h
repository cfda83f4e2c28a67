/* A workload: an INI file that says which requests arrive when, opened as a source of arrivals.
 *
 *   [workload]
 *   requests = 2000              how many; 0 or absent: the trace once
 *   arrivals = poisson           a process of generate.h, or "trace"
 *   arrivals.cv = 2              its parameters
 *   rate = 1.0                   mean requests per second; a trace is rescaled to it
 *   trace = ../samples/x.csv     relative to the INI file; how it is read (traces/reader.h):
 *   columns = time=ts:s,...      what its columns or keys are called
 *   time_unit = s                of its times: s, ms, us, ns or date
 *   hash_tokens = 64             how many tokens each of its hash ids stands for
 *   where = status=ok            which of its rows count
 *   skip_failed = on             rows without tokens failed and are left out
 *   sort = on                    its rows need not be in order of arrival
 *   passes_over = Model, x       columns that are not read and need no warning
 *   lengths = trace              whole pairs: the trace's rows in order, or "resample": drawn
 *   input = lognormal            a model of lengths.h for the prompts, in place of the pairs'
 *   input.mean = 380             its parameters; `output` likewise
 *   answer = output              a model of lengths.h for the answers, see below
 *   answer.tokens = 200          its parameters
 *   tenant = zipf                a model of marks.h for whose requests are; its parameters follow,
 *   tenant.count = 10            as those of `priority`, `deadline` and `predicted`
 *   context = 4096               prompt and output together; absent: no limit
 *   over_context = drop          or "truncate" the prompt
 *   provenance.lengths = real    real, estimated, synthetic or assumed; required
 *   provenance.arrivals = real   the same words; required with arrivals = trace
 *   provenance.answers = real    the same words; required with an answer that is not fixed
 *   note = ...
 *
 * An answer is the output up to and including the end of text: all of the output and known to be so
 * ("output"), "fixed", a "share" of the output, as the "trace" has it (its answer_tokens, else its
 * outputs), or drawn from another model. Without the key it is as the trace's answer_tokens say,
 * else all of the output, which is assumed.
 *
 * arrivals = sessions draws conversations (conversations.h): arrivals.turns of them in the mean,
 * arrivals.think_ns apart; `input` is a turn's prompt after the conversation so far. Turns of a
 * trace with sessions follow one another as well, at times of their own where the trace says how
 * long people think. classes = A, B puts several workloads together (classes.h).
 *
 * The trace may be a file of prompts (traces/format/prompts.h), whose tokens the taker counts; they
 * keep their lengths. Unknown keys are errors that name the nearest. A trace shorter than
 * `requests` is repeated, each round one mean gap after the last row. Requests over the context are
 * dropped before arrival times are given out, so that the rate is the rate of what is served. A
 * file that does not end in .ini is a trace, replayed once as it stands. */
#ifndef UNMASK_TRACES_WORKLOAD_H
#define UNMASK_TRACES_WORKLOAD_H

#include <stdbool.h>

#include "sim/base/arrival.h"
#include "sim/base/input/config.h"
#include "sim/base/param.h"
#include "sim/base/provenance.h"
#include "traces/format/prompts.h"
#include "traces/lengths.h"

/* The command line's values in place of the file's; 0 leaves the file's. The seed always counts. */
struct workload_options {
    uint64_t seed, requests;
    double rate_per_s;
    uint32_t input_tokens, output_tokens; /* every prompt or output has this length */
    uint32_t answer_tokens;               /* and every answer, or its whole output */
    uint32_t context_tokens;
    struct prompt_taker taker; /* who counts the tokens of prompts */
    bool is_class;             /* of another workload: has no classes itself */
};

struct workload;

/* The keys of its file that are numbers or one of several words. */
extern const struct param workload_params[];
extern const size_t workload_n_params;

/* A word with a '/' or a '.' is a path; any other names traces/workloads/NAME.ini in the data
 * directory. The workload keeps a trace file open. */
int workload_open(const char *path_or_name, const struct workload_options *options,
                  struct workload **out, struct err *err);
void workload_close(struct workload *workload); /* NULL is fine */

/* Whether a word names a trace as it stands: a path that does not end in .ini. */
bool workload_is_trace(const char *path_or_name);

/* Which lengths a key is about, enum length_side; -1: none. */
int workload_side(const char *key);

/* The same as workload_open from a file already read; traces are sought relative to config->path.
 */
int workload_from_config(const struct config *config, const char *name,
                         const struct workload_options *options, struct workload **out,
                         struct err *err);

/* The requests, with ids from 0. One source a workload: it moves on. */
struct arrival_source workload_source(struct workload *workload);

/* How many requests the source will give; 0 when only its end will tell. */
uint64_t workload_requests(const struct workload *workload);
/* The mean rate asked for, or 0: as the trace has it, or as the process needs none. */
double workload_rate_per_s(const struct workload *workload);

/* Whether requests may have deadlines: they are drawn, or a trace may say them. */
bool workload_may_have_deadlines(const struct workload *workload);

/* Whether another seed gives other requests: arrivals or lengths are drawn. */
bool workload_draws(const struct workload *workload);

/* Its trace where that is a file of prompts, or NULL. */
const struct trace *workload_prompts(const struct workload *workload);

const char *workload_name(const struct workload *workload);
const char *workload_note(const struct workload *workload); /* "" where there is none */

/* Such as "generated arrivals, assumed inputs, fixed outputs". */
const char *workload_provenance(const struct workload *workload);

/* Where the lengths of its answers come from: assumed where nothing tells them from the outputs,
 * which answers on a fixed canvas seldom fill. */
struct provenance workload_answers(const struct workload *workload);

/* False where answer lengths are not known, so that they are assumed to fill their outputs. */
bool workload_says_answers(const struct workload *workload);

/* In how many rounds its trace's rows are gone through: above 1 they are repeated. */
double workload_rounds(const struct workload *workload);

/* What was inferred from its trace, in sentences; "" where there is nothing. Returns `text`. */
const char *workload_notes(const struct workload *workload, char *text, size_t size);

/* Columns or keys of its trace that are not read, "a, b and 3 more", without those that it passes
 * over; how many in `*n`. Returns `text`. */
const char *workload_unread(const struct workload *workload, char *text, size_t size, size_t *n);

/* Requests dropped and prompts truncated so far, and trace rows passed over: failed ones, those
 * that `where` leaves out, and those that cannot be read. */
struct workload_counts {
    uint64_t n_dropped, n_truncated, n_failed, n_left_out, n_bad;
    const uint64_t *dropped_ids; /* the first n_listed, as the lengths' source numbers its rows */
    uint64_t n_listed;
};

struct workload_counts workload_counts(const struct workload *workload);

/* One paragraph for people: name, provenance, note, and what was dropped so far. Returns `text`. */
const char *workload_describe(const struct workload *workload, char *text, size_t size);

/* The names of the shipped workloads in alphabetical order, NULL-ended; free each and the list. */
char **workload_names(struct err *err);

#endif
