/* A request's decisions recalled from a decode trace, in place of positions that are kept and
 * confidences that are drawn: its k-th pass commits, processes and keeps what the trace's k-th row
 * says, whatever executes it and whoever schedules it. */
#ifndef UNMASK_SIM_SERVE_RECALL_H
#define UNMASK_SIM_SERVE_RECALL_H

#include <stdbool.h>

#include "sim/base/decode.h"
#include "sim/policy/window.h"

/* All zero: nothing is recalled yet. Written by the functions below. */
struct recall {
    bool is_open, lost;
    uint32_t index;                        /* of the next pass */
    uint32_t committed, unmasked, revised; /* by it; masked again by it; given another token */
    /* Of all passes; and of these, or of those that the server never came to, the answer. */
    uint32_t tokens, answer_tokens;
};

/* A request enters the queue. ERR_WORLD when the trace lacks it or has another length for it; where
 * its text ended a trace may stop short of the output, for a server that stops as well. */
int recall_open(struct recall *recall, const struct decode_source *source,
                const struct request *request, bool stops, struct err *err);

/* Keys and values of the block are lost: the next pass runs all of it. What the trace evicts it
 * still evicts; how far what is kept then reaches it does not say, and the trace's word stands. */
void recall_forget(struct recall *recall);

/* Before the request's next step is planned: sets what of the block it runs and what stays of that.
 * ERR_WORLD when the trace's pass is not one of the block as it stands. */
int recall_plan(struct recall *recall, const struct decode_source *source, struct request *request,
                struct err *err);

/* From the planned pass on, how many of the trace's, at most `most`, run, keep and commit what it
 * does. */
uint32_t recall_repeats(const struct recall *recall, const struct decode_source *source,
                        const struct request *request, uint32_t most);

/* `passes` of them are done. */
void recall_skip(struct recall *recall, uint32_t passes);

/* The pass that was planned is done. Returns how many positions it committed; recall->unmasked is
 * how many it masked again. */
uint32_t recall_pass(struct recall *recall);

#endif
