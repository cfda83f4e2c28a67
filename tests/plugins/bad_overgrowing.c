/* Lets running requests grow whatever memory is left. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = view->max_batched_tokens, free_bytes = view->kv_free_bytes;
    (void)state;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        int admits = i >= view->n_running;
        uint32_t slot = admits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        int64_t queries = request->span.queries;
        if (queries > tokens && request->span.phase == PHASE_PREFILL) {
            queries = tokens / request->block_tokens * request->block_tokens;
        }
        if (queries > tokens || queries == 0) {
            continue;
        }
        if (admits) {
            free_bytes -= request->kv_bytes;
            if (free_bytes < 0 || view->n_running + batch->n_admitted == view->max_requests) {
                break;
            }
        }
        tokens -= queries;
        batch->chunk_tokens[batch->n] = queries < request->span.queries ? (uint32_t)queries : 0;
        batch->selected[batch->n++] = slot;
        batch->n_admitted += admits;
    }
}

BAD_GROWING_SCHEDULER("overgrowing");
