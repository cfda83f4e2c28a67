#include "sim/policy/cache/blocks.h"

void blocks_cache(struct request *request) {
    if (request->span.phase == PHASE_COMMIT) {
        window_settle(request);
        request->cached_tokens = window_first(request);
    } else if (request->span.phase == PHASE_PREFILL || request->causal == SEES_TOKENS) {
        request->cached_tokens += request->span.queries;
    } else {
        request->cached_tokens = window_first(request);
    }
}
