/* Knee admission: as phase-multiplexed (dLLM-Serve), but no more requests run than are worth it.
 *
 * Who runs shares every step. As long as steps are bound by what they read anyway, one request more
 * costs them little; beyond the knee of that curve it costs what the others do, makes nothing
 * faster and everybody slower. `cycle_ns` is what a request costs when n alike run side by side,
 * each with a full pass every so many steps, by estimate_ns of such steps; as many run as bring
 * that to within NEAR of the least, of all numbers that memory and the token budget allow. Priced
 * by the first running request in reuse and the first one that waits, anew whenever the former is
 * another; lengths that differ much make that a sample. */
#include <stdbool.h>

#include "sim/scheduler/scheduler.h"

#define NEAR 0.1
enum { MOST_TRIED = 512 };

struct state {
    uint64_t priced;    /* id + 1 of the request that `most` was found by; 0: none yet */
    uint32_t most, pad; /* that run */
};

/* A step of `reuses` passes like that of one running request and `full` like a waiting one's. */
static double step_ns(const struct schedule_view *view, const struct batch *batch, uint32_t runs,
                      uint32_t reuses, uint32_t waits, uint32_t full) {
    struct batch asked = {
        .capacity = batch->capacity, .selected = batch->selected, .n_admitted = full};
    for (; asked.n < reuses + full; asked.n++) {
        asked.selected[asked.n] = asked.n < reuses ? runs : waits;
    }
    return (double)view->estimate_ns(view->estimator, &asked);
}

/* Steps from one full pass of a request to the next; of exact caches there is one in all. */
static uint32_t cycle_of(const struct request *request) {
    uint32_t blocks = (request->output_tokens + request->block_tokens - 1) / request->block_tokens;
    uint32_t steps = request->steps_per_block * (request->span.phase == PHASE_PREFILL ? blocks : 1);
    return steps > 0 ? steps : 1;
}

/* What each of n requests costs a cycle of steps, over which their full passes are spread. */
static double cycle_ns(const struct schedule_view *view, const struct batch *batch, uint32_t reuse,
                       uint32_t n) {
    uint32_t waits = view->waiting[0], cycle = cycle_of(&view->requests[waits]);
    uint32_t full = (n + cycle - 1) / cycle, mixed = n < cycle ? n : cycle;
    double ns = mixed * step_ns(view, batch, reuse, n - full, waits, full);
    return (ns + (cycle - mixed) * step_ns(view, batch, reuse, n, waits, 0)) / n;
}

/* The number of requests beyond which a cycle gets hardly cheaper. */
static uint32_t find_knee(const struct schedule_view *view, const struct batch *batch,
                          uint32_t reuse) {
    const struct request *waits = &view->requests[view->waiting[0]];
    double costs_ns[MOST_TRIED + 1], least_ns = 0;
    uint32_t cycle = cycle_of(waits), n = 1;
    for (; n <= MOST_TRIED && n <= view->max_requests && n <= batch->capacity; n++) {
        uint32_t full = (n + cycle - 1) / cycle;
        int64_t tokens = (int64_t)full * waits->span.queries +
                         (int64_t)(n - full) * view->requests[reuse].span.queries;
        if (n > 1 && (tokens > view->max_batched_tokens ||
                      n * view->requests[reuse].kv_bytes > view->kv_total_bytes)) {
            break;
        }
        bool is_even = n <= cycle || n % cycle == 0; /* else some steps have a full pass more */
        costs_ns[n] = is_even ? cycle_ns(view, batch, reuse, n) : 0;
        least_ns = is_even && (n == 1 || costs_ns[n] < least_ns) ? costs_ns[n] : least_ns;
    }
    for (uint32_t i = 1; i < n; i++) {
        if (costs_ns[i] > 0 && costs_ns[i] <= (1 + NEAR) * least_ns) {
            return i;
        }
    }
    return 1;
}

/* How many requests may run. Until one is in reuse, one does; where none ever is, all. */
static uint32_t find_most(struct state *state, const struct schedule_view *view,
                          const struct batch *batch) {
    bool is_behind = false;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (request->span.phase == PHASE_REUSE) {
            if (state->priced != request->id + 1) {
                state->priced = request->id + 1;
                state->most = find_knee(view, batch, view->running[i]);
            }
            return state->most;
        }
        is_behind = is_behind || request->steps > 0;
    }
    return state->priced > 0 ? state->most : is_behind ? UINT32_MAX : 1;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = 0, kv_bytes = 0;
    uint32_t most = view->n_waiting > 0 ? find_most(opaque, view, batch) : 0;
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
        if (view->n_running + batch->n_admitted >= most || tokens > view->max_batched_tokens ||
            kv_bytes > view->kv_free_bytes) {
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
