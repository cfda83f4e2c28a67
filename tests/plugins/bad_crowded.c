/* Fills the machine before it runs what is in it, and looks at so many requests alone: many that
 * wait and do not fit hide all that run. */
#include "tests/plugins/bad.h"

enum { LOOKED_AT = 256 };

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    uint32_t n = view->n_waiting + view->n_running;
    for (uint32_t i = 0; i < n && i < LOOKED_AT && batch->n == 0; i++) {
        int waits = i < view->n_waiting;
        uint32_t slot = waits ? view->waiting[i] : view->running[i - view->n_waiting];
        const struct request *request = &view->requests[slot];
        int fits = request->kv_bytes <= view->kv_free_bytes && view->n_running < view->max_requests;
        if (request->span.queries <= view->max_batched_tokens && (!waits || fits)) {
            batch->selected[batch->n++] = slot;
            batch->n_admitted = waits;
        }
    }
}

BAD_SCHEDULER("crowded");
