/* Runs all that fits, and begins no step sooner than `pause` after the one before: until then it
 * asks to be woken every millisecond. That is slow, and no starvation. */
#include "tests/plugins/first_fits.h"

struct state {
    int64_t pause_ns, next_ns;
};

static const struct param params[] = {{"pause", PARAM_I64, 0, "ns", "2 s", 0, 1e15, NULL,
                                       offsetof(struct state, pause_ns),
                                       "from the begin of a step to that of the next"}};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    struct taken used = {0, 0};
    if (view->now_ns < state->next_ns) {
        batch->wake_ns = view->now_ns + 1000000;
        return;
    }
    select_running(view, &used, batch);
    admit_waiting(view, UINT32_MAX, &used, batch);
    if (batch->n > 0) {
        state->next_ns = view->now_ns + state->pause_ns;
    }
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "paced",
               .doc = "one step at a time, with pauses in which nothing runs",
               .params = params,
               .n_params = 1},
    .schedule = schedule};
