/* A scheduler of one request at a time, and a crime when more wait than any exercise shows. */
#include "tests/plugins/crime.h"

enum { MOST_WAITING = 4000 };

struct state {
    uint64_t number;
};

static void write_to(const void *place) {
    ((volatile char *)(uintptr_t)place)[0]++;
}

static void crime(struct state *state, const struct schedule_view *view, struct batch *batch) {
    uint32_t first = view->waiting[0];
    common_crime(view);
    if (is_crime("write-request")) {
        write_to(&view->requests[first].prompt_tokens);
    } else if (is_crime("write-waiting")) {
        write_to(view->waiting);
    } else if (is_crime("write-view")) {
        write_to(&view->kv_free_bytes);
    } else if (is_crime("oob-selected")) {
        batch->selected[batch->capacity] = 0;
    } else if (is_crime("oob-chunks")) {
        batch->chunk_tokens[batch->capacity] = 0;
    } else if (is_crime("oob-idle")) {
        batch->idle[batch->capacity + 100] = 0;
    } else if (is_crime("oob-view")) {
        batch->wake_ns = (int64_t)view->waiting[100000000];
    } else if (is_crime("oob-state")) {
        state[1].number = 7;
    } else if (is_crime("count")) {
        batch->n = batch->capacity + 1;
    } else if (is_crime("admitted")) {
        batch->n = 1;
        batch->n_admitted = 7;
    } else if (is_crime("twice")) {
        batch->selected[0] = batch->selected[1] = first;
        batch->n = batch->n_admitted = 2;
    } else if (is_crime("slot")) {
        batch->selected[0] = UINT32_MAX;
        batch->n = batch->n_admitted = 1;
    } else if (is_crime("chunk")) {
        batch->selected[0] = first;
        batch->n = batch->n_admitted = 1;
        batch->chunk_tokens[0] = UINT32_MAX;
    } else if (is_crime("preempt")) {
        batch->preempted[0] = 3;
        batch->n_preempted = UINT32_MAX;
    } else if (is_crime("capacity")) {
        batch->capacity++;
    } else if (is_crime("list")) {
        batch->selected = (uint32_t *)(uintptr_t)view->waiting;
    } else if (is_crime("estimate")) {
        struct batch asked = *batch;
        asked.n = UINT32_MAX;
        batch->wake_ns = view->now_ns + view->estimate_ns(view->estimator, &asked);
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    int is_late = view->n_waiting > MOST_WAITING;
    if (is_late && is_crime("each-ns")) {
        batch->wake_ns = view->now_ns + 1;
        return;
    }
    if (is_late && is_crime("starve")) {
        return;
    }
    batch->all_running = 1;
    if (view->n_running == 0) {
        for (uint32_t i = 0; i < view->n_waiting && batch->n == 0; i++) {
            const struct request *request = &view->requests[view->waiting[i]];
            if (request->span.queries <= view->max_batched_tokens &&
                request->kv_bytes <= view->kv_free_bytes) {
                batch->selected[batch->n++] = view->waiting[i];
                batch->n_admitted = 1;
            }
        }
    }
    if (is_late) {
        crime(opaque, view, batch);
    }
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "late",
               .doc = "breaks a promise when nobody expects it"},
    .schedule = schedule};
