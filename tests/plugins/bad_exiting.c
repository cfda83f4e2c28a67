/* Ends the process instead of returning. */
#include <stdlib.h>

#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    (void)batch;
    exit(3);
}

BAD_SCHEDULER("exiting");
