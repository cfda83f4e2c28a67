/* Keeps its turn in a global variable, so that the same question gets another answer. */
#include "tests/plugins/bad.h"

static uint32_t turn;

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    batch->wake_ns = view->now_ns + 1 + turn++ % 2;
}

BAD_SCHEDULER("forgetful");
