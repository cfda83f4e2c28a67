/* A scheduler of your own: a starting point. It admits the shortest jobs first, with a bound on how
 * long a request may be overtaken.
 *
 *   cc -std=c11 -shared -fPIC -I. -o my_scheduler.so tests/plugins/template_scheduler.c
 *   unmask check-plugin ./my_scheduler.so
 *
 * The rules stand in sim/policy/scheduler/scheduler.h. A callback reads the view, writes the batch
 * and its own state and nothing else: no allocation, no files, no clock, no global variables. Asked
 * twice with the same state and view it decides the same.
 *
 * With block-causal and autoregressive models, too, this one has every request hold from the start
 * what it will ever need, and runs a prompt in one piece. A scheduler that sets `.grows = 1` lets
 * requests start with less, sees to their growth (kv_bytes - kv_held_bytes of those it lists),
 * preempts others for it, and takes prefills in chunks, which it has to where a prompt is longer
 * than a step may be: sim/policy/scheduler/scheduler_chunked.c. One that sets `.request_bytes` has
 * so much memory of each request, zeros when it arrives, at view->own:
 * sim/policy/scheduler/order.c. */
#include "sim/policy/scheduler/scheduler.h"

/* One for each replica: zeroed, then the parameters' initial values are written. */
struct state {
    int64_t patience_ns;
    uint32_t max_admitted;
};

static const struct param params[] = {
    {"patience", PARAM_I64, 0, "ns", "30 s", 0, 1e15, NULL, offsetof(struct state, patience_ns),
     "a request that waited longer is not overtaken any more"},
    {"max_admitted", PARAM_U32, 0, "1", "16", 1, 1024, NULL, offsetof(struct state, max_admitted),
     "requests admitted in one decision, at most"},
};

struct room { /* what the step leaves free */
    int64_t tokens, kv_bytes;
    uint32_t requests;
};

static int is_admitted(const struct batch *batch, uint32_t slot) {
    uint32_t i = batch->n - batch->n_admitted;
    while (i < batch->n && batch->selected[i] != slot) {
        i++;
    }
    return i < batch->n;
}

/* What a request has yet to compute: the query tokens of its passes to come, as its cache policy
 * and its decoder plan them (expected ones where outlook.is_exact is 0). */
static uint64_t tokens_left(const struct schedule_view *view, uint32_t slot) {
    struct outlook outlook;
    view->foresee(view->estimator, slot, NULL, 0, &outlook);
    return outlook.tokens;
}

/* The waiting slot to admit next, or UINT32_MAX: the least to compute, ties to the earlier. */
static uint32_t next_slot(const struct state *state, const struct schedule_view *view,
                          const struct batch *batch, const struct room *room) {
    uint32_t best = UINT32_MAX;
    uint64_t fewest = UINT64_MAX;
    for (uint32_t i = 0; room->requests > 0 && i < view->n_waiting; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        if (is_admitted(batch, view->waiting[i])) {
            continue;
        }
        int fits = request->span.queries <= room->tokens && request->kv_bytes <= room->kv_bytes;
        if (view->now_ns - request->arrival_ns > state->patience_ns) {
            return fits ? view->waiting[i] : best;
        }
        uint64_t tokens = fits ? tokens_left(view, view->waiting[i]) : UINT64_MAX;
        if (tokens < fewest) {
            best = view->waiting[i];
            fewest = tokens;
        }
    }
    return best;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    struct room room = {view->max_batched_tokens, view->kv_free_bytes,
                        view->max_requests - view->n_running};
    /* Running requests first; the admitted ones stand at the end of the list. */
    if (view->running_tokens <= room.tokens) {
        batch->all_running = 1;
        room.tokens -= view->running_tokens;
    } else {
        for (uint32_t i = 0; i < view->n_running; i++) {
            uint32_t queries = view->requests[view->running[i]].span.queries;
            if (queries <= room.tokens) {
                batch->selected[batch->n++] = view->running[i];
                room.tokens -= queries;
            }
        }
    }
    while (batch->n_admitted < state->max_admitted) {
        uint32_t slot = next_slot(state, view, batch, &room);
        if (slot == UINT32_MAX) {
            break;
        }
        batch->selected[batch->n++] = slot;
        batch->n_admitted++;
        room.requests--;
        room.tokens -= view->requests[slot].span.queries;
        room.kv_bytes -= view->requests[slot].kv_bytes;
    }
    batch->hold = HOLD_CHANGE; /* ask again when a span changes, a request ends or one arrives */
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "shortest-first",
               .doc = "least to compute first, patience bounded; needs output lengths",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .schedule = schedule,
};
