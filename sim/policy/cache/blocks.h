/* What a request's steps decide, and what they leave in an exact cache: for those that lead
 * requests through their blocks. */
#ifndef UNMASK_SIM_POLICY_CACHE_BLOCKS_H
#define UNMASK_SIM_POLICY_CACHE_BLOCKS_H

#include <stdbool.h>

#include "sim/policy/window.h"

/* Whether the last of its logit rows decides on the first position of a block, whatever the decoder
 * says: logits are shifted, and the pass is followed by a block of which nothing is decided yet. A
 * prefill ends before the active block, a commit pass with it, before the next. */
static inline bool blocks_yield(const struct request *request) {
    const struct span *span = &request->span;
    uint32_t end = span->context + span->queries;
    if (request->shifted == 0 || request->causal != SEES_BLOCKS || span->logit_rows == 0) {
        return false;
    }
    return span->phase == PHASE_PREFILL
               ? end == window_first(request) && window_decided(request) == 0
               : span->phase == PHASE_COMMIT && end < request->canvas_tokens &&
                     request->answer_tokens == 0;
}

/* Whether positions of the active block are committed at the end of request->span. */
static inline bool blocks_decide(const struct request *request) {
    const struct span *span = &request->span;
    return span->phase == PHASE_PREFILL ? span->logit_rows > 0 && !blocks_yield(request)
                                        : span->phase != PHASE_COMMIT;
}

/* After a step with request->span under an exact cache policy: the keys and values it wrote. */
void blocks_cache(struct request *request);

#endif
