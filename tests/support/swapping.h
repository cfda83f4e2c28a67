/* A scheduler that swaps out by chance, for runs on a device: what is swapped out when depends on
 * no time. */
#ifndef UNMASK_TESTS_SUPPORT_SWAPPING_H
#define UNMASK_TESTS_SUPPORT_SWAPPING_H

#include <string.h>

#include "sim/base/rng.h"
#include "sim/policy/scheduler/scheduler.h"

/* Runs what fits, first come first served, and now and then swaps out some running request. */
static struct {
    struct rng rng;
    uint32_t n_calls, n_swaps, rejects_at; /* the decision that rejects what is swapped out; 0 */
} swapping;

static void swapping_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = 0, bytes = 0;
    (void)state;
    swapping.n_calls++;
    uint32_t out = UINT32_MAX, n_running = view->n_running;
    if (view->n_running > 1 && rng_next(&swapping.rng) % 3 == 0) {
        out = view->running[rng_next(&swapping.rng) % view->n_running];
        out = view->requests[out].kv_held_bytes <= view->host_free_bytes ? out : UINT32_MAX;
    }
    if (out != UINT32_MAX) {
        bytes -= view->requests[out].kv_held_bytes;
        n_running--;
    }
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        const bool waits = i >= view->n_running;
        const uint32_t slot = waits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        const int64_t growth = request->kv_bytes - request->kv_held_bytes;
        if (waits && swapping.n_calls == swapping.rejects_at && request->host_bytes > 0) {
            batch->rejected[batch->n_rejected++] = slot;
            continue;
        }
        if (slot == out || tokens + request->span.queries > view->max_batched_tokens ||
            bytes + growth > view->kv_free_bytes ||
            (waits && (n_running == 3 || n_running == view->max_requests ||
                       rng_next(&swapping.rng) % 2 == 0))) {
            continue;
        }
        tokens += request->span.queries;
        bytes += growth;
        n_running += waits;
        batch->n_admitted += waits;
        batch->selected[batch->n++] = slot;
    }
    if (batch->n == 0) { /* no one fits beside: some request goes on */
        batch->selected[batch->n++] = view->n_running > 0 ? view->running[0] : view->waiting[0];
        batch->n_admitted = view->n_running == 0;
    } else if (out != UINT32_MAX) {
        batch->swaps[batch->n_preempted] = 1;
        batch->preempted[batch->n_preempted++] = out;
        swapping.n_swaps++;
    }
}

static const struct scheduler swapping_scheduler = {.policy = {.abi = POLICY_ABI,
                                                               .kind = POLICY_SCHEDULER,
                                                               .size = sizeof(struct scheduler),
                                                               .name = "scripted",
                                                               .doc = "swaps by chance"},
                                                    .schedule = swapping_schedule};

static inline void swapping_begin(uint32_t rejects_at) {
    memset(&swapping, 0, sizeof swapping);
    swapping.rng = rng_stream(9, "swaps");
    swapping.rejects_at = rejects_at;
}

#endif
