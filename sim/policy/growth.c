#include "sim/policy/growth.h"

struct growth growth_of(const struct schedule_view *view) {
    return (struct growth){view, view->kv_free_bytes, view->n_running};
}

bool growth_take(struct growth *growth, uint32_t i, struct batch *batch) {
    const struct schedule_view *view = growth->view;
    const struct request *request = &view->requests[view->running[i]];
    int64_t needed = request->kv_bytes - request->kv_held_bytes;
    while (needed > growth->free_bytes) {
        uint32_t slot = view->running[--growth->n_running];
        batch->preempted[batch->n_preempted++] = slot;
        growth->free_bytes += view->requests[slot].kv_held_bytes;
        if (growth->n_running == i) {
            return false;
        }
    }
    growth->free_bytes -= needed;
    return true;
}

uint32_t growth_chunk(const struct request *request, int64_t tokens) {
    uint32_t queries = request->span.queries;
    if (queries <= tokens) {
        return queries;
    }
    if (request->span.phase != PHASE_PREFILL) {
        return 0;
    }
    return (uint32_t)tokens / request->block_tokens * request->block_tokens;
}
