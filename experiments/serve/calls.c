#include "experiments/serve/calls.h"

#include <stdlib.h>

#include "sim/base/mem.h"

void call_free(struct call *call) {
    if (call != NULL) {
        free(call->prompt);
        free(call->echo);
        free(call->stops);
        free(call->blocks);
        free(call->tokens);
        free(call->pending);
        free(call);
    }
}

void calls_open(struct calls *calls, uint32_t capacity) {
    *calls = (struct calls){.n_places = 64};
    while (calls->n_places < 2 * capacity) {
        calls->n_places *= 2;
    }
    calls->by_id = mem_zeroed(calls->n_places, sizeof *calls->by_id);
}

void calls_close(struct calls *calls) {
    free(calls->by_id);
}

static uint32_t place_of(const struct calls *calls, uint64_t id) {
    return (uint32_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (calls->n_places - 1);
}

struct call *calls_find(const struct calls *calls, uint64_t id) {
    uint32_t at = place_of(calls, id);
    while (calls->by_id[at] != NULL && calls->by_id[at]->arrival.id != id) {
        at = (at + 1) & (calls->n_places - 1);
    }
    return calls->by_id[at];
}

void calls_put(struct calls *calls, struct call *call) {
    uint32_t at = place_of(calls, call->arrival.id);
    while (calls->by_id[at] != NULL) {
        at = (at + 1) & (calls->n_places - 1);
    }
    calls->by_id[at] = call;
    calls->n++;
}

/* Those after it move up. */
void calls_take_away(struct calls *calls, const struct call *call) {
    const uint32_t mask = calls->n_places - 1;
    uint32_t at = place_of(calls, call->arrival.id);
    while (calls->by_id[at] != call) {
        at = (at + 1) & mask;
    }
    for (uint32_t next = (at + 1) & mask; calls->by_id[next] != NULL; next = (next + 1) & mask) {
        const uint32_t home = place_of(calls, calls->by_id[next]->arrival.id);
        if (((next - home) & mask) >= ((next - at) & mask)) {
            calls->by_id[at] = calls->by_id[next];
            at = next;
        }
    }
    calls->by_id[at] = NULL;
    calls->n--;
}
