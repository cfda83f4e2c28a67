/* Never admits what it cannot serve within two minutes of its arrival, and never says so: such
 * requests wait for ever. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    static const int64_t objective_ns = 120000000000;
    (void)state;
    if (view->running_tokens <= view->max_batched_tokens) {
        batch->all_running = 1;
    } else {
        batch->selected[batch->n++] = view->running[0];
    }
    for (uint32_t i = 0; i < view->n_waiting && view->n_running == 0 && batch->n == 0; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        if (view->now_ns - request->arrival_ns <= objective_ns &&
            request->span.queries <= view->max_batched_tokens &&
            request->kv_bytes <= view->kv_free_bytes) {
            batch->selected[batch->n++] = view->waiting[i];
            batch->n_admitted = 1;
        }
    }
}

BAD_SCHEDULER("refusing");
