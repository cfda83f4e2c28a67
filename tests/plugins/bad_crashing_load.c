/* Crashes before anybody asks it anything. */
#include <stdlib.h>

#include "tests/plugins/bad.h"

__attribute__((constructor)) static void at_load(void) {
    abort();
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    batch->all_running = 1;
}

BAD_SCHEDULER("crashing-load");
