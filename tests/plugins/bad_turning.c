/* Lets requests take turns in the memory where they may be preempted, and each begins anew, for
 * ever. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    int can_turn = view->n_waiting + view->n_running > 0 && view->n_waiting > 0 &&
                   view->requests[view->waiting[0]].causal != SEES_CANVAS;
    int admits = view->n_waiting > 0 && (view->n_running == 0 || can_turn);
    if (view->n_running > 0 && can_turn) {
        batch->preempted[batch->n_preempted++] = view->running[0];
    }
    uint32_t slot = admits ? view->waiting[view->n_waiting - 1] : view->running[0];
    const struct request *request = &view->requests[slot];
    uint32_t most = view->max_batched_tokens / request->block_tokens * request->block_tokens;
    batch->chunk_tokens[0] = request->span.queries > view->max_batched_tokens ? most : 0;
    batch->selected[batch->n++] = slot;
    batch->n_admitted = (uint32_t)admits;
}

BAD_GROWING_SCHEDULER("turning");
