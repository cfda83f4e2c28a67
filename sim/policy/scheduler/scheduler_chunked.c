/* Prefill and decode in one step, as vLLM's V1 scheduler mixes them for autoregressive models:
 * running requests first, in order of admission, then waiting ones while tokens and memory last; a
 * prefill that does not fit whole is taken in chunks. A request that lacks memory takes it from the
 * request admitted last, which computes its keys and values anew later or, as vLLM's
 * --preemption-mode swap had it, is swapped out to the host's memory while that has room. It stands
 * at the head of the queue, so that no one starts before it is back.
 *
 * For block diffusion it is what neither LMDeploy nor SGLang has: blocks of some requests are
 * denoised while others prefill (chunks are whole blocks). */
#include "sim/policy/scheduler/growth.h"

struct state {
    uint32_t preempts; /* enum preempts */
};

static const struct param params[] = {
    PREEMPTS_PARAM(struct state, preempts),
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    growth_list_all(view, state->preempts, batch);
}

const struct scheduler scheduler_chunked = {
    .policy = SCHEDULER_POLICY(
        "chunked", "prefill in chunks, in the steps that decode (vLLM V1); long prompts slow all",
        struct state, params),
    .grows = 1,
    .schedule = schedule,
};
