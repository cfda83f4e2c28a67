/* Made for another version of the descriptors. */
#include "tests/plugins/bad.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    batch->all_running = 1;
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI + 1,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .name = "wrong-abi",
               .doc = "made for another program"},
    .schedule = schedule,
};
