/* Admits the first waiting request twice. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    for (uint32_t i = 0; view->n_waiting > 0 && i < 2 && i < batch->capacity; i++) {
        batch->selected[batch->n++] = view->waiting[0];
        batch->n_admitted++;
    }
}

BAD_SCHEDULER("double-selecting");
