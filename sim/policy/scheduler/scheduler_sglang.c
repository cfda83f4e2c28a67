/* SGLang's scheduler for diffusion models: prefills go first and alone; blocks are decoded when
 * there are none. In lockstep, as it began, a batch of blocks is denoised until its slowest one is
 * done, and blocks that are done before are computed along and discarded. First done, first out, as
 * it is now, decides anew after every pass. */
#include "sim/policy/scheduler/growth.h"

static const char *const mode_words[] = {"fdfo", "lockstep", NULL};
enum mode { MODE_FDFO, MODE_LOCKSTEP };

struct state {
    uint32_t mode, prefill_blocks;
};

static const struct param params[] = {
    {"mode", PARAM_WORD, 0, "1", "fdfo", 0, 1, mode_words, offsetof(struct state, mode),
     "first done first out, or the whole batch until its slowest block is done"},
    {"prefill_blocks", PARAM_U32, 0, "blocks", "0", 0, 65536, NULL,
     offsetof(struct state, prefill_blocks), "most blocks of a prompt in one pass (0: any)"},
};

/* In the middle of a block, not at its beginning nor on the way back to where it was. */
static bool under_way(const struct request *request) {
    return window_steps(request) > 0 && request->span.phase != PHASE_PREFILL;
}

static bool any_under_way(const struct schedule_view *view) {
    uint32_t i = 0;
    while (i < view->n_running && !under_way(&view->requests[view->running[i]])) {
        i++;
    }
    return i < view->n_running;
}

/* Running requests in order; `waits`: those under way alone. Returns the tokens left. */
static int64_t list_blocks(const struct schedule_view *view, struct growth *growth, bool waits,
                           struct batch *batch) {
    int64_t tokens = view->max_batched_tokens;
    for (uint32_t i = 0; i < growth->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        bool takes_part = request->span.phase != PHASE_PREFILL && (!waits || under_way(request));
        if (takes_part && request->span.queries > tokens) {
            break;
        }
        if (takes_part && growth_take(growth, i, batch)) {
            batch->selected[batch->n++] = view->running[i];
            tokens -= request->span.queries;
        }
    }
    return tokens;
}

static void list_decodes(const struct state *state, const struct schedule_view *view,
                         struct batch *batch) {
    struct growth growth = growth_of(view, PREEMPTS_RECOMPUTE);
    bool waits = state->mode == MODE_LOCKSTEP && any_under_way(view);
    int64_t tokens = list_blocks(view, &growth, waits, batch);
    batch->continues = waits && batch->n > 0; /* its passes are one call of the model's worker */
    if (waits && batch->n == 0) {
        list_blocks(view, &growth, false, batch); /* those under way gave their memory back */
        return;
    }
    /* One that is done has been computed with this batch before, unless it has just begun. */
    for (uint32_t i = 0; waits && i < growth.n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        bool is_done = request->span.phase != PHASE_PREFILL && !under_way(request);
        if (is_done && window_block(request) > 0 && request->span.queries <= tokens) {
            batch->idle[batch->n_idle++] = view->running[i];
            tokens -= request->span.queries;
        }
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    if (state->mode == MODE_FDFO || !any_under_way(view)) {
        growth_list_prefills(view, view->max_batched_tokens, state->prefill_blocks, batch);
    }
    if (batch->n == 0) {
        list_decodes(state, view, batch);
    }
}

const struct scheduler scheduler_sglang = {
    .policy = SCHEDULER_POLICY("sglang",
                               "prefills first; a stream of arrivals holds up everyone's decoding",
                               struct state, params),
    .grows = 1,
    .schedule = schedule,
};
