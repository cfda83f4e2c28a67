/* A decode trace: what each pass over a request's blocks ran and committed, as a file.
 *
 *   # unmask decode trace
 *   # block_tokens: 32
 *   # source: any further lines of this form say where the numbers come from
 *   request,committed,processed,kept,reach,passes
 *   0,3,32,32,32,1
 *   0,1,29,12,17,2
 *
 * Where texts ended before their outputs did, the header goes on with ",answer": in every row of a
 * request its output tokens up to and including the end of text, no more than its rows commit. Then
 * they commit all of its output, or less where the system stopped early.
 *
 * A row stands for `passes` consecutive equal passes of a request, in the order in which it took
 * them; the columns are those of struct decode_pass (sim/base/decode.h). Requests stand in
 * increasing order of their ids, the positions in the source of arrivals; those that did not finish
 * are left out. Prefills that decide nothing are not in it: they follow from prompt, cache policy
 * and scheduler. Nor are times.
 *
 * The first line and the header are as above, block_tokens (the positions of a whole block) is said
 * once, and every other line before the header begins with '#'. A BOM and CR LF line endings are
 * accepted. Everything else that is not so is one sentence "path:line: found X, expected Y". */
#ifndef UNMASK_TRACES_DECODE_TRACE_H
#define UNMASK_TRACES_DECODE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/decode.h"

#define DECODE_TRACE_HEAD "# unmask decode trace"

/* ---- reading ---- */

struct decode_trace;

/* The whole file, into memory. ERR_WORLD leaves `*out` unset. */
int decode_trace_read(const char *path, struct decode_trace **out, struct err *err);
void decode_trace_close(struct decode_trace *trace); /* NULL is fine */

/* Borrows the trace; any number of threads may ask it. */
struct decode_source decode_trace_source(const struct decode_trace *trace);

uint32_t decode_trace_block_tokens(const struct decode_trace *trace);
/* Whether it says where texts ended. */
bool decode_trace_has_answers(const struct decode_trace *trace);

size_t decode_trace_requests(const struct decode_trace *trace);

/* What its "# source:" line says, "" where it has none. */
const char *decode_trace_provenance(const struct decode_trace *trace);

/* A number that other passes would not have, whatever the comments say: for noticing that a file is
 * no longer what it was. */
uint64_t decode_trace_digest(const struct decode_trace *trace);

/* ---- writing ---- */

struct decode_log;

struct decode_log *decode_log_open(uint32_t block_tokens);
void decode_log_close(struct decode_log *log); /* NULL is fine */

/* `n` > 0 equal passes of a request, after those it already has. Ids are small: they count requests
 * from 0. */
void decode_log_add(struct decode_log *log, uint64_t request, const struct decode_pass *pass,
                    uint32_t n);

/* Its passes are to be written; more of them may follow. `answer_tokens`: its output up to and
 * including the end of text, 0 where that is all of it. */
void decode_log_finish(struct decode_log *log, uint64_t request, uint32_t answer_tokens);

/* The trace. `comments`: lines "KEY: VALUE" that go before the header, or "". Returns whether `out`
 * took all of it; errno says why not. */
bool decode_log_write(const struct decode_log *log, const char *comments, FILE *out);

#endif
