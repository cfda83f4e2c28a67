/* Writes to nowhere as soon as something waits. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    volatile uint32_t *volatile nowhere = NULL;
    (void)state;
    if (view->n_waiting > 0) {
        *nowhere = 1;
    }
    batch->all_running = 1;
}

BAD_SCHEDULER("crashing");
