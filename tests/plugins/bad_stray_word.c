/* Says a width of a request that it does not list. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    if (view->n_running == 0) {
        batch->n = batch->n_admitted = batch->says = 1;
        batch->selected[0] = view->waiting[0];
        batch->width_tokens[1] = batch->capacity > 1 ? 4 : 0;
    }
}

BAD_SCHEDULER("stray-word");
