/* LMDeploy's scheduler (PyTorch engine): a step prefills or decodes, never both. It prefills when
 * little runs, when much waits, and at the latest after a given number of decoding steps; the fork
 * that FOCUS was measured in goes by the number of waiting requests instead. Several steps of
 * decoding may follow each other without it being asked (multi-loop). A request that needs memory
 * takes it from the one admitted last, which computes its keys and values again. */
#include "sim/policy/scheduler/growth.h"

enum trigger { TRIGGER_CURRENT, TRIGGER_FORK };
static const char *const trigger_words[] = {"current", "fork", NULL};

struct state {
    uint32_t trigger, prefill_interval, max_prefill_tokens, waiting_requests;
    double running_share;
    bool multi_loop;
    uint32_t n_decodes; /* steps of decoding since the last prefill */
};

static const struct param params[] = {
    {"trigger", PARAM_WORD, 0, "1", "current", 0, 1, trigger_words, offsetof(struct state, trigger),
     "rule by which it prefills though requests could decode: LMDeploy's now, or FOCUS's fork's"},
    {"prefill_interval", PARAM_U32, 0, "steps", "16", 1, 65536, NULL,
     offsetof(struct state, prefill_interval),
     "current: decoding steps without a prefill, at most [scheduler.trigger = current]"},
    {"max_prefill_tokens", PARAM_U32, 0, "tokens", "8192", 1, 1e8, NULL,
     offsetof(struct state, max_prefill_tokens),
     "query tokens of a prefill; current: as many waiting start one"},
    {"waiting_requests", PARAM_U32, 0, "1", "4", 1, 65536, NULL,
     offsetof(struct state, waiting_requests),
     "fork: as many waiting requests start a prefill [scheduler.trigger = fork]"},
    {"running_share", PARAM_F64, 0, "1", "0.5", 0, 1, NULL, offsetof(struct state, running_share),
     "fewer running requests than this share of max_requests start a prefill"},
    {"multi_loop", PARAM_BOOL, 0, "1", "on", 0, 1, NULL, offsetof(struct state, multi_loop),
     "min(16, 2 (64 / block)) steps of decoding a decision; one where the block is beyond 64"},
};

static bool prefills(const struct request *request) {
    return request->span.phase == PHASE_PREFILL;
}

/* Tokens that wait to be prefilled, of running requests in chunks and of waiting ones. */
static bool wants_prefill(const struct state *state, const struct schedule_view *view,
                          uint32_t n_decoding) {
    int64_t tokens = 0;
    for (uint32_t i = 0; i < view->n_waiting && tokens < state->max_prefill_tokens; i++) {
        tokens += view->requests[view->waiting[i]].span.queries;
    }
    if (n_decoding < state->running_share * view->max_requests) {
        return true;
    }
    return state->trigger == TRIGGER_FORK
               ? view->n_waiting >= state->waiting_requests
               : state->n_decodes >= state->prefill_interval || tokens >= state->max_prefill_tokens;
}

static void list_decodes(const struct state *state, const struct schedule_view *view,
                         struct batch *batch) {
    struct growth growth = growth_of(view, PREEMPTS_RECOMPUTE);
    int64_t tokens = view->max_batched_tokens;
    uint32_t block = 0;
    for (uint32_t i = 0; i < growth.n_running; i++) {
        uint32_t slot = view->running[i];
        const struct request *request = &view->requests[slot];
        if (!prefills(request) && request->span.queries <= tokens &&
            growth_take(&growth, i, batch)) {
            batch->selected[batch->n++] = slot;
            tokens -= request->span.queries;
            block = request->block_tokens;
        }
    }
    uint32_t loops = block > 0 && block <= 64 ? 2 * (64 / block) : 1;
    batch->loops = !state->multi_loop ? 1 : loops < 16 ? loops : 16;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    uint32_t n_decoding = 0;
    for (uint32_t i = 0; i < view->n_running; i++) {
        n_decoding += !prefills(&view->requests[view->running[i]]);
    }
    if (n_decoding == 0 || wants_prefill(state, view, n_decoding)) {
        uint32_t tokens = view->max_batched_tokens;
        tokens = state->max_prefill_tokens < tokens ? state->max_prefill_tokens : tokens;
        growth_list_prefills(view, tokens, 0, batch);
    }
    if (batch->n > 0) {
        state->n_decodes = 0;
        return;
    }
    list_decodes(state, view, batch);
    state->n_decodes += batch->loops > 0 ? batch->loops : 1;
}

const struct scheduler scheduler_lmdeploy = {
    .policy = SCHEDULER_POLICY("lmdeploy",
                               "prefills or decodes, never both; each waits while the other runs",
                               struct state, params),
    .grows = 1,
    .schedule = schedule,
};
