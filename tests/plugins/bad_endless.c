/* Looks for a free slot for ever. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    volatile uint32_t turns = 0;
    (void)state;
    while (view->n_waiting > 0) {
        turns++;
    }
    batch->all_running = 1;
}

BAD_SCHEDULER("endless");
