/* First come first served by what it is told alone: it keeps a queue of its own, sums what steps
 * did and checks that requests and view say the same, rejects what is late before it starts, and
 * puts off refreshes while others refresh. It ends the process where it was told otherwise. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/policy/scheduler/scheduler.h"

enum { MOST = 1 << 16 };

struct state {
    uint32_t rejects, puts_off, wakes;
    int64_t wake_ns; /* its last word */
    uint64_t n_happened;
    uint32_t n_waiting, n_running, waiting[MOST]; /* as it was told */
};

/* Of a request: what it was told. */
struct own {
    int64_t ns, tokens;
    uint32_t passes, committed, here, unused;
};

#define check(is) check_at(is, __LINE__)
static void check_at(bool is_so, int line) {
    if (!is_so) {
        fprintf(stderr, "line %d\n", line);
        abort();
    }
}

static void leave(struct state *state, uint32_t slot) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < state->n_waiting; i++) {
        if (state->waiting[i] != slot) {
            state->waiting[kept++] = state->waiting[i];
        }
    }
    state->n_waiting = kept;
}

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    struct own *all = view->own;
    for (uint32_t i = 0; i < n; i++) {
        const struct happening *h = &happenings[i];
        const struct request *request = &view->requests[h->slot];
        struct own *own = &all[h->slot];
        state->n_happened++;
        switch ((enum happening_kind)h->kind) {
        case HAPPENED_ARRIVAL:
            check(own->here == 0 && own->passes == 0 && request->state == REQUEST_QUEUED);
            own->here = 1;
            state->waiting[state->n_waiting++] = h->slot;
            break;
        case HAPPENED_START:
            check(request->state == REQUEST_RUNNING && request->admitted_ns >= 0);
            leave(state, h->slot);
            break;
        case HAPPENED_PREEMPTION:
            check(false); /* it preempts nothing */
            break;
        case HAPPENED_STEPS:
            own->ns += h->ns;
            own->tokens += (int64_t)h->query_tokens;
            own->passes += h->steps;
            own->committed += (uint32_t)h->committed_tokens;
            check(h->steps > 0 && h->ns > 0);
            check(own->ns == request->service_ns && own->passes == request->steps);
            check((uint64_t)own->tokens == request->service_tokens);
            check(own->committed == request->committed_tokens);
            check(request->admitted_ns >= 0);
            break;
        case HAPPENED_END:
            check(own->here == 1);
            if (request->state != REQUEST_DONE) {
                leave(state, h->slot);
            }
            break;
        }
    }
}

/* What waits is what it was told; a system that decides ahead shows the last ones later. */
static void check_queue(const struct state *state, const struct schedule_view *view) {
    check(state->n_waiting >= view->n_waiting);
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        check(state->waiting[i] == view->waiting[i]);
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    const uint32_t n_places = view->max_requests - view->n_running;
    int64_t tokens = 0, free_bytes = view->kv_free_bytes;
    uint32_t n_refresh = 0;
    check_queue(state, view);
    check(state->wakes == 0 || view->n_running == 0 || state->wake_ns != 0);
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        const bool refreshes = request->span.phase == PHASE_REFRESH;
        const bool waits = state->puts_off && request->refresh_waits > 0 && n_refresh > 0;
        const uint32_t queries = waits ? window_length(request) : request->span.queries;
        if (tokens + request->span.queries > view->max_batched_tokens) {
            continue;
        }
        n_refresh += refreshes && !waits;
        tokens += queries;
        batch->puts_off[batch->n] = waits;
        batch->says |= waits;
        batch->selected[batch->n++] = view->running[i];
    }
    for (uint32_t i = 0; i < state->n_waiting;) {
        const uint32_t slot = state->waiting[i];
        const struct request *request = &view->requests[slot];
        if (state->rejects && request->deadline_ns <= view->now_ns) {
            batch->reasons[batch->n_rejected] = request->priority > 0;
            batch->rejected[batch->n_rejected++] = slot;
            i++;
            continue;
        }
        if (batch->n_admitted == n_places || free_bytes < request->kv_bytes ||
            tokens + request->span.queries > view->max_batched_tokens) {
            break;
        }
        tokens += request->span.queries;
        free_bytes -= request->kv_bytes;
        batch->selected[batch->n++] = slot;
        batch->n_admitted++;
        i++;
    }
    if (state->wakes) {
        batch->hold = HOLD_CLOSED;
        state->wake_ns = batch->wake_ns = view->now_ns + 50000000;
    } else {
        batch->hold = HOLD_CHANGE;
    }
}

static const struct param params[] = {
    {"rejects", PARAM_U32, 0, "1", "1", 0, 1, NULL, offsetof(struct state, rejects),
     "1: late requests are rejected"},
    {"puts_off", PARAM_U32, 0, "1", "1", 0, 1, NULL, offsetof(struct state, puts_off),
     "1: refreshes wait for one another"},
    {"wakes", PARAM_U32, 0, "1", "0", 0, 1, NULL, offsetof(struct state, wakes),
     "1: it asks to be called every 50 ms"},
};

static const char *const reasons[] = {"late", "late-and-urgent", NULL};

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "seeing",
               .doc = "goes by what it is told alone",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .request_bytes = sizeof(struct own),
    .schedule = schedule,
    .happened = happened,
    .reject_reasons = reasons,
};
