/* Everyone has a turn: who has waited longest starts, and what has run for `turn` steps goes to the
 * host's memory where that makes room for it, and waits after the others. Its turn starts anew when
 * it is back. Works under any cache policy; without host memory no one gives way. */
#include "tests/plugins/first_fits.h"

struct state {
    uint32_t turn;
};

/* Of a request: its steps when its turn began, and when it was swapped out, 0: never. */
struct own {
    int64_t out_ns;
    uint32_t since, unused;
};

static const struct param params[] = {{"turn", PARAM_U32, 0, "steps", "8", 1, 65536, NULL,
                                       offsetof(struct state, turn),
                                       "that a request takes before it may be swapped out"}};

/* The one that waits the longest. */
static uint32_t next_waiting(const struct schedule_view *view) {
    const struct own *own = view->own;
    uint32_t next = view->waiting[0];
    int64_t next_ns = INT64_MAX;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        const uint32_t slot = view->waiting[i];
        const int64_t out_ns = own[slot].out_ns;
        const int64_t since_ns = out_ns > 0 ? out_ns : view->requests[slot].arrival_ns;
        if (since_ns < next_ns) {
            next = slot;
            next_ns = since_ns;
        }
    }
    return next;
}

/* A running request whose turn is over, and with whose memory the next one could start. */
static uint32_t gives_way(const struct state *state, const struct schedule_view *view,
                          const struct request *next) {
    const struct own *own = view->own;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (request->steps - own[view->running[i]].since >= state->turn &&
            request->kv_held_bytes <= view->host_free_bytes &&
            next->kv_bytes <= view->kv_free_bytes + request->kv_held_bytes) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    struct own *own = view->own;
    struct taken used = {0, 0};
    uint32_t out = UINT32_MAX;
    const uint32_t next = view->n_waiting > 0 ? next_waiting(view) : UINT32_MAX;
    if (next != UINT32_MAX && view->host_total_bytes > 0) {
        const struct request *request = &view->requests[next];
        bool fits =
            request->kv_bytes <= view->kv_free_bytes && view->n_running < view->max_requests;
        out = fits ? UINT32_MAX : gives_way(state, view, request);
    }
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        int64_t growth = request->kv_bytes - request->kv_held_bytes;
        if (i != out && used.tokens + request->span.queries <= view->max_batched_tokens &&
            used.bytes + growth <= view->kv_free_bytes) {
            batch->selected[batch->n++] = view->running[i];
            used.tokens += request->span.queries;
            used.bytes += growth;
        }
    }
    if (next == UINT32_MAX) {
        return;
    }
    const struct request *request = &view->requests[next];
    int64_t free_bytes = view->kv_free_bytes - used.bytes;
    free_bytes += out != UINT32_MAX ? view->requests[view->running[out]].kv_held_bytes : 0;
    const bool starts = request->kv_bytes <= free_bytes &&
                        used.tokens + request->span.queries <= view->max_batched_tokens &&
                        view->n_running + 1 <= view->max_requests + (out != UINT32_MAX);
    if (starts) {
        batch->selected[batch->n++] = next;
        batch->n_admitted = 1;
        own[next].since = request->steps;
    }
    if (starts && out != UINT32_MAX) {
        batch->swaps[0] = 1;
        batch->preempted[batch->n_preempted++] = view->running[out];
        own[view->running[out]].out_ns = view->now_ns;
    } else if (batch->n == 0 && view->n_running > 0) { /* it was to give way to no one */
        batch->selected[batch->n++] = view->running[out != UINT32_MAX ? out : 0];
    }
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "swapping",
               .doc = "turns of some steps; who waits longest pays the copies of all before it",
               .params = params,
               .n_params = 1},
    .request_bytes = sizeof(struct own),
    .schedule = schedule};
