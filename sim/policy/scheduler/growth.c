#include "sim/policy/scheduler/growth.h"

const char *const preempts_words[] = {"recompute", "swap", NULL};

struct growth growth_of(const struct schedule_view *view, enum preempts preempts) {
    return (struct growth){.view = view,
                           .free_bytes = view->kv_free_bytes,
                           .host_bytes = view->host_free_bytes,
                           .n_running = view->n_running,
                           .swaps = preempts == PREEMPTS_SWAP};
}

bool growth_swaps(const struct growth *growth, const struct request *request) {
    return growth->swaps && request->kv_held_bytes <= growth->host_bytes;
}

void growth_give_back(struct growth *growth, uint32_t slot, struct batch *batch) {
    const struct request *request = &growth->view->requests[slot];
    const int64_t bytes = request->kv_held_bytes;
    if (growth_swaps(growth, request)) {
        batch->swaps[batch->n_preempted] = 1;
        growth->host_bytes -= bytes;
    }
    batch->preempted[batch->n_preempted++] = slot;
    growth->free_bytes += bytes;
}

bool growth_take(struct growth *growth, uint32_t i, struct batch *batch) {
    const struct schedule_view *view = growth->view;
    const struct request *request = &view->requests[view->running[i]];
    int64_t needed = request->kv_bytes - request->kv_held_bytes;
    while (needed > growth->free_bytes) {
        growth_give_back(growth, view->running[--growth->n_running], batch);
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
    return window_whole(request, (uint32_t)tokens);
}

bool growth_fits(const struct growth *growth, const struct request *request) {
    return request->kv_bytes - request->kv_held_bytes <= growth->free_bytes;
}

/* `tokens` of its span run. */
static void list(const struct schedule_view *view, uint32_t slot, uint32_t tokens,
                 struct batch *batch) {
    batch->chunk_tokens[batch->n] = tokens < view->requests[slot].span.queries ? tokens : 0;
    batch->selected[batch->n++] = slot;
}

bool growth_run(struct growth *growth, uint32_t i, uint32_t tokens, struct batch *batch) {
    const bool runs = tokens > 0 && growth_take(growth, i, batch);
    if (runs) {
        list(growth->view, growth->view->running[i], tokens, batch);
    }
    return runs;
}

bool growth_admit(struct growth *growth, uint32_t slot, uint32_t tokens, struct batch *batch) {
    const struct schedule_view *view = growth->view;
    if (tokens == 0 || !growth_fits(growth, &view->requests[slot]) ||
        growth->n_running + batch->n_admitted >= view->max_requests) {
        return false;
    }
    list(view, slot, tokens, batch);
    batch->n_admitted++;
    growth->free_bytes -= view->requests[slot].kv_bytes;
    return true;
}

void growth_list_all(const struct schedule_view *view, enum preempts preempts,
                     struct batch *batch) {
    struct growth growth = growth_of(view, preempts);
    int64_t tokens = view->max_batched_tokens;
    for (uint32_t i = 0; i < growth.n_running; i++) {
        uint32_t chunk = growth_chunk(&view->requests[view->running[i]], tokens);
        tokens -= growth_run(&growth, i, chunk, batch) ? chunk : 0;
    }
    if (batch->n_preempted > 0) {
        return;
    }
    bool fits = true;
    for (uint32_t i = 0; i < view->n_waiting && fits; i++) {
        uint32_t slot = view->waiting[i];
        uint32_t chunk = growth_chunk(&view->requests[slot], tokens);
        fits = growth_admit(&growth, slot, chunk, batch);
        tokens -= chunk;
    }
}

void growth_list_prefills(const struct schedule_view *view, int64_t tokens, uint32_t blocks,
                          struct batch *batch) {
    int64_t free_bytes = view->kv_free_bytes;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        bool admits = i >= view->n_running;
        uint32_t slot = admits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        bool prefills = request->span.phase == PHASE_PREFILL;
        if (!admits && !prefills) {
            continue;
        }
        int64_t most = (int64_t)window_tokens_of(request, blocks);
        bool is_cut = prefills && most > 0 && most < tokens;
        uint32_t chunk = growth_chunk(request, is_cut ? most : tokens);
        int64_t growth = request->kv_bytes - request->kv_held_bytes;
        if (chunk == 0 && batch->n == 0) {
            tokens = chunk = growth_chunk(request, view->max_batched_tokens);
        }
        if (chunk == 0 || growth > free_bytes ||
            (admits && view->n_running + batch->n_admitted == view->max_requests)) {
            break;
        }
        list(view, slot, chunk, batch);
        batch->n_admitted += admits;
        free_bytes -= growth;
        tokens -= chunk;
    }
}
