/* Knee admission: as phase-multiplexed (dLLM-Serve), but no more requests run than are worth it.
 *
 * Running requests share every step. As long as steps are bound by what they read anyway, one
 * request more costs them little; beyond the knee of that curve it costs what the others do, makes
 * nothing faster and all slower. Let c(n) be a request's share of the time while n like it run side
 * by side, by estimate_ns of their steps. N requests, n at a time, are served in N c(n), each of
 * them in n c(n); (N + n) c(n) / 2, half of the sum, is their mean latency. As many run as make it
 * least.
 *
 * N is AHEAD times those who are here, for others follow them, and NEXT at least: both were chosen
 * on the figure admission-knee. c(n) is a mean over requests seen lately, each priced in reuse by
 * itself and in its full passes by the first one that waits. Until one is in reuse, one runs. */
#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

#define AHEAD 6.0
#define NEXT  250.0
enum { MOST_TRIED = 512, REMEMBERED = 64 };

struct state {
    double cost_ns[MOST_TRIED + 1]; /* c(n) of one cycle of steps; 0 where n is not tried */
    double kv_bytes;                /* of a request, in the mean */
    uint64_t priced;                /* id + 1 of the request that was priced last */
    uint32_t n_priced;
    uint32_t n_full; /* full passes in front of those in reuse */
};

/* A step of n requests like the one in the slot. */
static double step_ns(const struct schedule_view *view, const struct batch *batch, uint32_t slot,
                      uint32_t n) {
    struct batch asked = {.capacity = batch->capacity, .selected = batch->selected};
    bool is_waiting = view->requests[slot].state != REQUEST_RUNNING;
    for (; asked.n < n; asked.n++) {
        asked.selected[asked.n] = slot;
    }
    asked.n_admitted = is_waiting ? n : 0;
    return (double)view->estimate_ns(view->estimator, &asked);
}

/* Steps from the first full pass of a request to the next; of exact caches there is one in all. */
static uint32_t cycle_of(const struct request *request) {
    uint32_t blocks = window_blocks(request);
    uint32_t steps = request->steps_per_block * (request->span.phase == PHASE_PREFILL ? blocks : 1);
    return steps > 0 ? steps : 1;
}

/* The numbers of requests that are tried: all at first, then one in 32. */
static uint32_t next_tried(uint32_t n) {
    uint32_t step = 1;
    while (n >= 64 * step) {
        step *= 2;
    }
    return n + step;
}

/* Takes what each of n requests costs in a cycle of steps into the means. */
static void price(struct state *state, const struct schedule_view *view, const struct batch *batch,
                  uint32_t reuse) {
    uint32_t waits = view->waiting[0];
    const struct request *full = &view->requests[waits], *runs = &view->requests[reuse];
    uint32_t before = window_steps(runs);
    state->n_full = state->n_priced == 0 || before < state->n_full ? before : state->n_full;
    uint32_t n_full = state->n_full > 0 ? state->n_full : 1;
    double cycle = cycle_of(full), reuses = cycle > n_full ? cycle - n_full : 0;
    double weight = 1.0 / (1 + (state->n_priced < REMEMBERED ? state->n_priced : REMEMBERED));
    double full_ns = 0;
    state->kv_bytes += weight * ((double)runs->kv_bytes - state->kv_bytes);
    for (uint32_t n = 1; n <= MOST_TRIED && n <= batch->capacity; n = next_tried(n)) {
        if (n == 1 || n * (int64_t)full->span.queries <= view->max_batched_tokens) {
            full_ns = step_ns(view, batch, waits, n) / n;
        }
        double ns = n_full * full_ns + reuses * step_ns(view, batch, reuse, n) / n;
        double *cost = &state->cost_ns[n];
        *cost = *cost > 0 ? *cost + weight * (ns - *cost) : ns;
    }
    state->priced = runs->id + 1;
    state->n_priced++;
}

/* The number of requests with the least mean latency. */
static uint32_t find_knee(const struct state *state, const struct schedule_view *view) {
    double to_serve = AHEAD * (view->n_running + view->n_waiting), least_ns = 0;
    uint32_t best = 1;
    to_serve = to_serve > NEXT ? to_serve : NEXT;
    for (uint32_t n = 1; n <= MOST_TRIED && state->cost_ns[n] > 0; n = next_tried(n)) {
        double latency_ns = (to_serve + n) * state->cost_ns[n];
        if (n > 1 && n * state->kv_bytes > (double)view->kv_total_bytes) {
            break;
        }
        if (n == 1 || latency_ns < least_ns) {
            least_ns = latency_ns;
            best = n;
        }
    }
    return best;
}

/* How many requests may run. Until one is in reuse, one does; where none ever is, all. */
static uint32_t most_of(struct state *state, const struct schedule_view *view,
                        const struct batch *batch) {
    bool is_behind = false;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (request->span.phase == PHASE_REUSE) {
            if (state->priced != request->id + 1) {
                price(state, view, batch, view->running[i]);
            }
            break;
        }
        is_behind = is_behind || request->steps > 0;
    }
    return state->n_priced > 0 ? find_knee(state, view) : is_behind ? UINT32_MAX : 1;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = 0, kv_bytes = 0;
    uint32_t most = view->n_waiting > 0 ? most_of(opaque, view, batch) : 0;
    most = most < view->max_requests ? most : view->max_requests;
    batch->hold = HOLD_CHANGE;
    if (view->running_tokens <= view->max_batched_tokens) {
        batch->all_running = 1;
        tokens = view->running_tokens;
    }
    for (uint32_t i = 0; !batch->all_running && i < view->n_running; i++) {
        int64_t queries = view->requests[view->running[i]].span.queries;
        if (tokens + queries > view->max_batched_tokens) {
            break;
        }
        batch->selected[batch->n++] = view->running[i];
        tokens += queries;
    }
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        tokens += request->span.queries;
        kv_bytes += request->kv_bytes;
        if (view->n_running + batch->n_admitted >= most) {
            break; /* more of them may once others arrive */
        }
        if (tokens > view->max_batched_tokens || kv_bytes > view->kv_free_bytes) {
            batch->hold = HOLD_CLOSED;
            break;
        }
        batch->selected[batch->n++] = view->waiting[i];
        batch->n_admitted++;
    }
}

const struct scheduler scheduler_knee = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "knee",
               .doc =
                   "phase-multiplexed for as few requests as keep steps worth it; samples lengths"},
    .schedule = schedule,
};
