/* What a request's steps decide, and what they leave in an exact cache: for those that lead
 * requests through their blocks. */
#ifndef UNMASK_SIM_POLICY_CACHE_BLOCKS_H
#define UNMASK_SIM_POLICY_CACHE_BLOCKS_H

#include <stdbool.h>

#include "sim/policy/window.h"

/* Whether the last of its logit rows speaks of the first position of a block that it does not run:
 * logits are shifted, and that position is masked. A prefill ends before the window, a commit pass
 * with it, before the next block. */
static inline bool blocks_look_ahead(const struct request *request) {
    const struct span *span = &request->span;
    uint32_t end = span->context + span->queries;
    if (request->shifted == 0 || request->causal != SEES_BLOCKS || span->logit_rows == 0) {
        return false;
    }
    return span->phase == PHASE_PREFILL
               ? end == window_first(request) && window_lacks_row(request)
               : span->phase == PHASE_COMMIT && end < request->canvas_tokens &&
                     request->answer_tokens == 0;
}

/* Whether that row decides on the position, whatever the decoder says. */
static inline bool blocks_yield(const struct request *request) {
    return window_begins_decided(request) && blocks_look_ahead(request);
}

/* Whether positions of the active block are committed at the end of request->span. */
static inline bool blocks_decide(const struct request *request) {
    const struct span *span = &request->span;
    return span->phase == PHASE_PREFILL ? span->logit_rows > 0 && !blocks_look_ahead(request)
                                        : span->phase != PHASE_COMMIT;
}

/* After a step with request->span under an exact cache policy: the keys and values it wrote. */
void blocks_cache(struct request *request);

#endif
