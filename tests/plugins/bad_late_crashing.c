/* One request at a time, and a write to nowhere when more wait than any exercise shows. */
#include "tests/plugins/bad.h"

enum { MOST_WAITING = 4000 };

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    volatile uint32_t *volatile nowhere = NULL;
    (void)state;
    if (view->n_waiting > MOST_WAITING) {
        *nowhere = 1;
    }
    batch->all_running = 1;
    if (view->n_running == 0) {
        for (uint32_t i = 0; i < view->n_waiting && batch->n == 0; i++) {
            const struct request *request = &view->requests[view->waiting[i]];
            if (request->span.queries <= view->max_batched_tokens &&
                request->kv_bytes <= view->kv_free_bytes) {
                batch->selected[batch->n++] = view->waiting[i];
                batch->n_admitted = 1;
            }
        }
    }
}

BAD_SCHEDULER("late-crashing");
