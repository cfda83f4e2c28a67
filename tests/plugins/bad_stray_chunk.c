/* Cuts a prefill that it does not list. */
#include "tests/plugins/first_fits.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct taken used = {0, 0};
    (void)state;
    select_running(view, &used, batch);
    admit_waiting(view, UINT32_MAX, &used, batch);
    if (batch->n < batch->capacity) {
        batch->chunk_tokens[batch->n] = 32;
    }
}

const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                   .kind = POLICY_SCHEDULER,
                                                   .size = sizeof(struct scheduler),
                                                   .state_bytes = 8,
                                                   .name = "stray-chunk",
                                                   .doc = "cuts what it does not list"},
                                        .schedule = schedule};
