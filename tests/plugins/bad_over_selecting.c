/* Admits the whole queue whatever the limits are. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        batch->selected[batch->n++] = view->waiting[i];
    }
    batch->n_admitted = batch->n;
}

BAD_SCHEDULER("over-selecting");
