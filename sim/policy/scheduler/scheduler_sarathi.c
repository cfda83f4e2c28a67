/* Sarathi-Serve (Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with
 * Sarathi-Serve", arXiv 2403.02310, algorithm 3) for blocks: no step takes more than a budget of
 * query tokens besides what decodes, so that no prompt holds up the others. Decoding passes come
 * first, all of them; then prefills of running requests and of waiting ones, in chunks of whole
 * blocks, take what is left. A refresh of a canvas cannot be cut: as many as fit are packed, and
 * one that is wider than the budget is the only one of its step.
 *
 * Differs from `chunked` (vLLM V1) in the order, decoding before any prefill, in the budget, which
 * bounds the time of a step and not its memory, and in that no request starts while a pass of a
 * running one waits. */
#include "sim/policy/scheduler/concurrency.h"
#include "sim/policy/scheduler/growth.h"

static const struct param params[] = {
    {"budget", PARAM_U32, 0, "tokens", "512", 1, 1000000, NULL, 0,
     "query tokens of a step, decoding ones among them, that prefills and refreshes fill up"},
};

/* What a step has left. */
struct left {
    struct growth growth;
    int64_t budget, most; /* query tokens; at most as many as the step may have */
    bool is_filled;       /* some prefill or refresh is in the step */
};

/* Of a prefill or refresh what fits; what cannot be cut to it, where no other is in the step. */
static uint32_t part(const struct left *left, const struct request *request) {
    const uint32_t fits = left->budget > 0 ? growth_chunk(request, left->budget) : 0;
    const bool is_cut = request->span.phase == PHASE_PREFILL && request->block_tokens <= left->most;
    const int64_t least = is_cut ? request->block_tokens : left->most;
    return fits > 0 || left->is_filled || left->budget <= 0 ? fits : growth_chunk(request, least);
}

static void take(struct left *left, const struct request *request, uint32_t tokens) {
    left->budget -= tokens;
    left->most -= tokens;
    left->is_filled = left->is_filled || is_full_pass(&request->span);
}

/* Running requests, those that decode or those that do not; whether any has to wait. */
static bool list_running(struct left *left, const struct schedule_view *view, bool fills,
                         struct batch *batch) {
    bool waits = false;
    for (uint32_t i = 0; i < left->growth.n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (is_full_pass(&request->span) != fills) {
            continue;
        }
        const uint32_t tokens = fills ? part(left, request) : request->span.queries;
        const bool has_room = !fills || batch->n == 0 || growth_fits(&left->growth, request);
        if (tokens <= left->most && has_room && growth_run(&left->growth, i, tokens, batch)) {
            take(left, request, tokens);
        } else {
            waits = true;
        }
    }
    return waits;
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    const uint32_t budget = *(const uint32_t *)state, most = view->max_batched_tokens;
    struct left left = {growth_of(view, PREEMPTS_RECOMPUTE), budget < most ? budget : most, most,
                        false};
    bool waits = list_running(&left, view, false, batch);
    waits = list_running(&left, view, true, batch) || waits || batch->n_preempted > 0;
    for (uint32_t i = 0; i < view->n_waiting && !waits; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        const uint32_t tokens = part(&left, request);
        waits = !growth_admit(&left.growth, view->waiting[i], tokens, batch);
        take(&left, request, tokens);
    }
}

const struct scheduler scheduler_sarathi = {
    .policy = SCHEDULER_POLICY(
        "sarathi", "decodes first, prefills fill up a budget (Sarathi-Serve); prompts wait longer",
        uint32_t, params),
    .grows = 1,
    .schedule = schedule,
};
