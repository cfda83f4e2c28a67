/* Refreshes spread over steps: bidirectional caches renew a canvas at an interval of steps, and
 * where requests began together their renewals fall on one step, which all of them wait for. Here
 * the full passes of a step come to at most the query tokens of a parameter, as far as refreshes
 * can wait: others are put off, by the batch's word puts_off, within the bound that their cache
 * policy sets. What cannot wait, first passes of blocks and of requests, counts and runs. Otherwise
 * first come first served by the tokens of each step. (dLLM-Serve, arXiv 2512.17077, section 4.4,
 * names the swings between refresh and reuse and packs by them; that refreshes wait is our reading,
 * no paper's.) */
#include "sim/policy/scheduler/concurrency.h"

static const struct param params[] = {
    {"tokens", PARAM_U32, 0, "tokens", "2048", 1, 100000000, NULL, 0,
     "query tokens of a step's full passes, beyond which refreshes that can wait do"},
};

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t left = view->max_batched_tokens, full = *(const uint32_t *)state, kv_bytes = 0;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        const bool must = is_full_pass(&request->span) && request->refresh_waits == 0;
        full -= must ? request->span.queries : 0;
    }
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        const bool admits = i >= view->n_running;
        const uint32_t slot = admits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        const bool has_room = view->n_running + batch->n_admitted < view->max_requests &&
                              kv_bytes + request->kv_bytes <= view->kv_free_bytes;
        if (admits && !(has_room && request->span.queries <= left)) {
            break;
        }
        if (request->span.queries > left) {
            continue;
        }
        const bool can_wait = !admits && request->refresh_waits > 0;
        const bool puts_off = can_wait && request->span.queries > full;
        full -= can_wait && !puts_off ? request->span.queries : 0;
        left -= request->span.queries;
        kv_bytes += admits ? request->kv_bytes : 0;
        batch->n_admitted += admits;
        batch->says |= puts_off;
        batch->puts_off[batch->n] = puts_off;
        batch->selected[batch->n++] = slot;
    }
}

const struct scheduler scheduler_refresh_spread = {
    .policy = SCHEDULER_POLICY("refresh-spread",
                               "lets refreshes wait where a step has many; their rows go staler",
                               uint32_t, params),
    .reads_all = 1,
    .schedule = schedule,
};
