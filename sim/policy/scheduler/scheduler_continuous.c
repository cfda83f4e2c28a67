/* Continuous batching with request-level provision: requests join at step borders in arrival order
 * while every one of them is charged its whole canvas for life, as a scheduler made for
 * autoregressive models does; the headroom of reuse steps stays unused. A request whose canvas
 * exceeds what a step may have, as under exact caches it can, runs alone. */
#include "sim/policy/scheduler/admission.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct admission admission = admission_begin(view, batch);
    (void)state;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        if (!admission_take(&admission, view->waiting[i])) {
            batch->hold = HOLD_CLOSED;
            break;
        }
    }
}

const struct scheduler scheduler_continuous = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .name = "continuous",
               .doc = "first come first served at step borders; charges the canvas for life"},
    .schedule = schedule,
};
