/* Never selects anything and never names a time. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    batch->hold = HOLD_CHANGE;
}

BAD_SCHEDULER("starving");
