/* A trace reader: the rows of a file as a source of arrivals, in constant memory.
 *
 * The format is recognised by the first line, never by the file's name:
 *   plain          arrival_us,input_tokens,output_tokens[,tenant][,prefix_tokens][,answer_tokens]
 *                  [,session][,think_us][,prefix_group]
 *   plain-lengths  input_tokens,output_tokens[,answer_tokens]
 *   burstgpt       Timestamp,...,Request tokens,Response tokens,... (seconds)
 *   azure          TIMESTAMP,ContextTokens,GeneratedTokens (dates; 2023 and 2024)
 *   vidur          arrived_at,num_prefill_tokens,num_decode_tokens (seconds)
 *   vidur-lengths  num_prefill_tokens,num_decode_tokens,...
 *   splitwise-sim  request_id,request_type,application_id,arrival_timestamp,batch_size,
 *                  prompt_size,token_size (seconds; type 2 and batch size 1 only)
 *   mooncake       JSON lines: timestamp (ms), input_length, output_length, hash_ids, ...: of the
 *                  512 tokens that each of these stands for those are a shared prefix that an
 *                  earlier row had, too
 *   llmservingsim  JSON lines: input_toks, output_toks, arrival_time_ns, ...
 *   prompts        JSON lines of traces/prompts.h, which all arrive at once
 *   serving-bench, sglang-log, vllm-log   what benchmarks and servers write (server_log.h)
 *   a decode trace (decode_trace.h), of which the requests' lengths are read; they arrive at once
 * CSV columns may stand in any order and further ones are ignored. answer_tokens, from 1 to the
 * output's, is where the text ends among the output positions; arrivals of a file without it do not
 * say (0). Rows with the same session are turns of a conversation, in the order of the file;
 * think_us is the time from the end of the turn before (conversations.h). prefix_tokens are those
 * of the prompt with which an earlier one of the same prefix_group began, or else of the tenant.
 *
 * Files compressed by gzip or Zstandard are read as what is in them.
 *
 * Arrival times are rebased: the first row given arrives at 0. A BOM at the start and CR LF line
 * endings are accepted, as is a last line without a newline when it has all its fields. Everything
 * else that is not as it must be ends the reading with one sentence "path:line: found X, expected
 * Y": a cut-off line, an empty line, NUL bytes, a time before the previous row's, numbers negative,
 * not finite or too large, counts of zero tokens, a file without requests. In BurstGPT a row with 0
 * response tokens is a failed request: skipped and counted. */
#ifndef UNMASK_TRACES_READER_H
#define UNMASK_TRACES_READER_H

#include <stdbool.h>

#include "sim/base/arrival.h"
#include "traces/prompts.h"

/* A longer line is an error; the reader's buffer grows no further. */
enum { TRACE_MAX_LINE_BYTES = 4 << 20 };

struct trace;

/* Opens the file and recognises its format. ERR_WORLD leaves `*out` unset. */
int trace_open(const char *path, struct trace **out, struct err *err);
void trace_close(struct trace *trace); /* NULL is fine */

/* How a file is read that is of no known format. */
struct trace_reading {
    /* "time=NAME:UNIT,input=NAME,output=NAME", and answer, tenant, prefix, session,
     * group and think=NAME:UNIT: what the columns of a CSV file, or the keys of JSON lines, are called. UNIT
     * is ns, us, ms, s or date; without time all rows arrive at once. NULL: the format is
     * recognised. */
    const char *columns;
    bool any_order; /* rows need not be in order of arrival, which may then be below 0 */
};
int trace_open_as(const char *path, const struct trace_reading *how, struct trace **out,
                  struct err *err);

/* The rows; ids count them from 0. The source borrows the trace and has no `completed`. */
struct arrival_source trace_source(struct trace *trace);

/* Back to the first row. Fails on what cannot be read twice, such as a pipe. */
int trace_rewind(struct trace *trace, struct err *err);

/* Who counts the tokens of prompts; before their first row. */
void trace_set_taker(struct trace *trace, const struct prompt_taker *taker);
bool trace_has_prompts(const struct trace *trace);

const char *trace_path(const struct trace *trace);
const char *trace_format(const struct trace *trace);

/* False where the format holds lengths only: every row then arrives at 0. */
bool trace_has_times(const struct trace *trace);

/* Whether its rows say how long answers are, beside their outputs. */
bool trace_has_answers(const struct trace *trace);

/* Whether its rows are turns of conversations (conversations.h). */
bool trace_has_sessions(const struct trace *trace);

/* Failed requests passed over since the first row. */
uint64_t trace_skipped(const struct trace *trace);

#endif
