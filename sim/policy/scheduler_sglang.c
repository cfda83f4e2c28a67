/* SGLang's scheduler for diffusion models: prefills go first and alone; blocks are decoded when
 * there are none. In lockstep, as it began, a batch of blocks is denoised until its slowest one is
 * done, and blocks that are done before are computed along in vain. First done, first out, as it
 * is now, decides anew after every pass. */
#include "sim/policy/growth.h"

static const char *const mode_words[] = {"fdfo", "lockstep", NULL};
enum mode { MODE_FDFO, MODE_LOCKSTEP };

struct state {
    uint32_t mode, prefill_blocks;
};

static const struct param params[] = {
    {"mode", PARAM_WORD, 0, "1", "fdfo", 0, 1, mode_words, offsetof(struct state, mode),
     "first done first out, or the whole batch until its slowest block is done"},
    {"prefill_blocks", PARAM_U32, 0, "blocks", "0", 0, 65536, NULL,
     offsetof(struct state, prefill_blocks), "blocks of a prompt in one pass, at most; 0: any"},
};

static bool prefills(const struct request *request) {
    return request->span.phase == PHASE_PREFILL;
}

static uint32_t chunk_of(const struct state *state, const struct request *request, int64_t tokens) {
    int64_t most = (int64_t)state->prefill_blocks * request->block_tokens;
    bool is_cut = most > 0 && prefills(request) && most < tokens;
    return growth_chunk(request, is_cut ? most : tokens);
}

static void list_prefills(const struct state *state, const struct schedule_view *view,
                          struct batch *batch) {
    int64_t tokens = view->max_batched_tokens, free_bytes = view->kv_free_bytes;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        bool admits = i >= view->n_running;
        uint32_t slot = admits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        if (!admits && !prefills(request)) {
            continue;
        }
        uint32_t chunk = chunk_of(state, request, tokens);
        int64_t growth = request->kv_bytes - request->kv_held_bytes;
        if (chunk == 0 || growth > free_bytes ||
            (admits && view->n_running + batch->n_admitted == view->max_requests)) {
            break;
        }
        batch->chunk_tokens[batch->n] = chunk < request->span.queries ? chunk : 0;
        batch->selected[batch->n++] = slot;
        batch->n_admitted += admits;
        free_bytes -= growth;
        tokens -= chunk;
    }
}

/* At the beginning of a block, its keys and values committed. */
static bool at_border(const struct request *request) {
    return request->step_in_block == 0;
}

static void list_decodes(const struct state *state, const struct schedule_view *view,
                         struct batch *batch) {
    struct growth growth = growth_of(view);
    int64_t tokens = view->max_batched_tokens;
    bool under_way = false;
    for (uint32_t i = 0; i < view->n_running; i++) {
        under_way = under_way || !at_border(&view->requests[view->running[i]]);
    }
    for (uint32_t i = 0; i < growth.n_running; i++) {
        uint32_t slot = view->running[i];
        const struct request *request = &view->requests[slot];
        bool waits = state->mode == MODE_LOCKSTEP && under_way && at_border(request);
        if (request->span.queries > tokens) {
            break;
        }
        /* One that is done has been computed with this batch before, unless it has just begun. */
        if (waits && request->block > 0) {
            batch->idle[batch->n_idle++] = slot;
            tokens -= request->span.queries;
        } else if (!waits && growth_take(&growth, i, batch)) {
            batch->selected[batch->n++] = slot;
            tokens -= request->span.queries;
        }
    }
    /* Nobody idles beside a request that was preempted from among them. */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < batch->n_idle; i++) {
        bool preempted = false;
        for (uint32_t j = 0; j < batch->n_preempted; j++) {
            preempted = preempted || batch->preempted[j] == batch->idle[i];
        }
        if (!preempted) {
            batch->idle[kept++] = batch->idle[i];
        }
    }
    batch->n_idle = kept;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    bool under_way = false;
    for (uint32_t i = 0; i < view->n_running; i++) {
        under_way = under_way || !at_border(&view->requests[view->running[i]]);
    }
    if (!under_way || state->mode == MODE_FDFO) {
        list_prefills(state, view, batch);
    }
    if (batch->n == 0) {
        list_decodes(state, view, batch);
    }
}

const struct scheduler scheduler_sglang = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "sglang",
               .doc = "prefills first; a stream of arrivals holds up everyone's decoding",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .grows = 1,
    .schedule = schedule,
};
