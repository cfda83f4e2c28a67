/* Makes the first waiting request smaller so that it fits. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    if (view->n_waiting > 0) {
        ((struct request *)view->requests)[view->waiting[0]].kv_bytes = 0;
    }
}

BAD_SCHEDULER("view-writing");
