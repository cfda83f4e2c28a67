/* Selects nothing and always asks to be woken a little later. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->wake_ns = view->now_ns + 1000;
}

BAD_SCHEDULER("postponing");
