#include "sim/system/system_step.h"

#include <string.h>

static double price_in_chunks(void *state, const struct step_shape *shape,
                              struct chunk_rows chunks) {
    struct step_price price;
    cost_price(state, shape, chunks, &price);
    return price.wall_ns;
}

struct chunk_rule system_chunk_rule(const struct system *s) {
    enum chunk_search search = (enum chunk_search)s->settings.chunk_search;
    return (struct chunk_rule){
        .search = search == CHUNK_SEARCH_LONGEST ? CHUNK_SEARCH_BOTTLENECK : search,
        .bound.of[CHUNK_LOGITS] = s->settings.logit_chunk_rows,
        .counts = {[CHUNK_ATTENTION] = s->settings.attention_chunks,
                   [CHUNK_FFN] = s->settings.ffn_chunks,
                   [CHUNK_LOGITS] = s->settings.logit_chunks},
        .grid = s->settings.chunk_grid,
        .price_ns = price_in_chunks,
        .state = s->cost,
    };
}

static struct chunk_request request_of(const struct system *s, const struct step_shape *shape,
                                       int64_t available_bytes) {
    return (struct chunk_request){&s->chunks, s->planner, &s->graph, shape, available_bytes};
}

int system_place(const struct system *s, const struct step_shape *shape, int64_t available_bytes,
                 struct placement *out, struct err *err) {
    const struct chunk_request request = request_of(s, shape, available_bytes);
    struct chunk_result result;
    chunk_place(&request, out, &result);
    return result.fits ? 0 : chunk_misfit(&request, out, err);
}

/* `result` is of a search alone: without one its counts are whole. */
static struct chunk_rows find_chunks(const struct system *s, const struct step_shape *shape,
                                     int64_t available_bytes, struct chunk_result *result) {
    const struct chunk_request request = request_of(s, shape, available_bytes);
    struct placement placement;
    *result = (struct chunk_result){.counts = {1, 1, 1}};
    if (!chunk_rows_given(&s->chunks, &s->graph, shape, &placement.chunks)) {
        chunk_place(&request, &placement, result);
    }
    return placement.chunks;
}

struct chunk_rows system_chunks(const struct system *s, const struct step_shape *shape,
                                int64_t available_bytes) {
    struct chunk_result result;
    return find_chunks(s, shape, available_bytes, &result);
}

void system_price(const struct system *s, const struct step_shape *shape, int64_t available_bytes,
                  struct step_price *out) {
    struct chunk_result result;
    const struct chunk_rows chunks = find_chunks(s, shape, available_bytes, &result);
    cost_price(s->cost, shape, chunks, out);
    if (s->runtime.host_plan_ns > 0) {
        const struct chunk_request request = request_of(s, shape, available_bytes);
        cost_add_plans(s->cost, (double)chunk_released_plans(&request, result.counts), out);
    }
}
