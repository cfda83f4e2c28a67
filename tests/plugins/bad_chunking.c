/* One request at a time, every step of which it cuts in two, prefill or not. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    if (view->n_running + view->n_waiting == 0) {
        return;
    }
    uint32_t slot = view->n_running > 0 ? view->running[0] : view->waiting[0];
    const struct request *request = &view->requests[slot];
    uint32_t half = request->span.queries / 2, block = request->block_tokens;
    half = half < view->max_batched_tokens ? half : view->max_batched_tokens;
    if (request->kv_bytes > view->kv_total_bytes ||
        (request->causal == SEES_CANVAS && request->span.queries > view->max_batched_tokens)) {
        return;
    }
    if (request->causal != SEES_CANVAS) {
        bool is_one_block = request->span.phase == PHASE_PREFILL && half < block;
        batch->chunk_tokens[0] = is_one_block ? 0 : half < block ? half : half / block * block;
    }
    batch->selected[batch->n++] = slot;
    batch->n_admitted = view->n_running == 0;
}

BAD_GROWING_SCHEDULER("chunking");
