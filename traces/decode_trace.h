/* A decode trace: what each pass over a request's blocks ran and committed and, of runs on a
 * device, its outputs for each position. A SQLite file, so that any program can query it:
 *
 *   about    key, value: block_tokens, the positions of a whole block; source, where the numbers
 *            come from; and whatever else the run that wrote it says of itself.
 *   request  id; prompt_tokens and output_tokens, NULL: not known; answer_tokens, those of its
 *            output up to and including the end of text, NULL: all that it committed.
 *   pass     of `request`, in the order in which it took them: `passes` consecutive equal ones,
 *            and the counts of struct decode_pass (sim/base/decode.h). Where positions are known,
 *            of one pass: the block's first position in the canvas and its length, and what
 *            struct decode_positions says: bitmaps (position i is bit i % 8 of byte i / 8) masked,
 *            run, keep, chosen (OUTCOME_COMMIT), seen, and revised and again, NULL: none;
 *            little-endian arrays, in the order of positions: token
 *            (int32) and confidence, margin, entropy (float32) of those seen;
 *            importance_before and importance_after (float32) of those masked and run. NULL: not
 *            known.
 *
 * A token was settled in a pass where the position was given that very token in the end.
 *
 * Ids count the requests of the source of arrivals from 0; requests that did not finish are left
 * out. Prefills that decide nothing are not in it: they follow from prompt, cache policy and
 * scheduler. Nor are times. Whatever is not so is one sentence that begins with the file's name. */
#ifndef UNMASK_TRACES_DECODE_TRACE_H
#define UNMASK_TRACES_DECODE_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/decode.h"

enum {
    DECODE_TRACE_ID = 0x756d6474, /* SQLite's application_id */
    DECODE_TRACE_VERSION = 3, /* and user_version; 1 lacked unmasked, revised and again, 2 lacked
                                 revisions, how many positions are revised */
    DECODE_MOST_POSITIONS = 1 << 20,
};

struct decode_trace;

enum decode_depth {
    DECODE_COUNTS,    /* what passes ran and committed */
    DECODE_POSITIONS, /* and their outputs for positions */
};

/* The whole file, into memory. ERR_WORLD leaves `*out` unset. */
int decode_trace_read(const char *path, enum decode_depth depth, struct decode_trace **out,
                      struct err *err);
void decode_trace_close(struct decode_trace *trace); /* NULL is fine */

/* Whether a file may be one; and its requests as a table
 * "arrival_us,input_tokens,output_tokens,answer_tokens", malloc'd. ERR_WORLD where it does not know
 * lengths.
 */
bool decode_trace_is(const char *path);
int decode_trace_lengths(const char *path, char **out, struct err *err);

/* From now on request i is the one at place i modulo their number: for a workload that repeats the
 * trace's own requests in their order. */
void decode_trace_repeat(struct decode_trace *trace);

/* Borrows the trace; any number of threads may ask it. */
struct decode_source decode_trace_source(const struct decode_trace *trace);

uint32_t decode_trace_block_tokens(const struct decode_trace *trace);
/* Whether it says where texts ended. */
bool decode_trace_has_answers(const struct decode_trace *trace);

size_t decode_trace_requests(const struct decode_trace *trace);

/* The value of a line of `about`, "" where there is none. */
const char *decode_trace_about(const struct decode_trace *trace, const char *key);

/* Of the request at a place, from 0, in increasing order of ids. */
struct decode_request {
    uint64_t id, tokens;                   /* that its passes commit */
    uint32_t prompt_tokens, output_tokens; /* 0: not known */
    uint32_t answer_tokens;                /* all that is committed where the file does not say */
    uint32_t rows; /* runs of equal passes; where positions are known, passes */
};
struct decode_request decode_trace_request(const struct decode_trace *trace, size_t place);

/* A row's data of positions, read with DECODE_POSITIONS, into the arrays of `out`, which have
 * block_tokens elements each. False where it says nothing of them. */
bool decode_trace_positions(const struct decode_trace *trace, size_t place, uint32_t row,
                            struct decode_positions *out);

/* A number that other passes would not have, whatever the comments say: for noticing that a file is
 * no longer what it was. */
uint64_t decode_trace_digest(const struct decode_trace *trace);

#endif
