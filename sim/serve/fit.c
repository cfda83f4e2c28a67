#include "sim/serve/fit.h"

#include "sim/system/system_step.h"

/* A pass over the whole canvas, which needs the most workspace. */
static struct span widest_span(const struct system *system, uint32_t canvas, uint32_t output) {
    const struct settings *settings = &system->settings;
    return (struct span){
        .phase = PHASE_REFRESH,
        .queries = canvas,
        .first_queries = canvas,
        .logit_rows = system_scope_rows(settings, canvas, output, settings->block_tokens,
                                        settings->block_tokens, true),
        .select_rows = rows_are_chosen(&system->rows) ? canvas : 0,
        .pack_rows = rows_are_chosen(&system->rows) ? canvas : 0,
        .value_rows = system->rows.chooser != CHOSEN_BY_CHANGE ? 0
                      : system->runtime.engine                 ? canvas
                                                               : output,
        .sampled_rows = settings->sample_scope == SAMPLES_OUTPUT ? output : 0,
    };
}

bool fit_batch(struct lifecycle *life, const uint32_t *slots, uint32_t n) {
    const struct system *system = life->system;
    if (!system->budget.shares_pool) {
        return true;
    }
    struct step_shape shape;
    struct placement placement;
    shape_clear(&shape);
    uint32_t canvas = 0, output = 0;
    int64_t kv_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct request *request = &life->requests[slots[i]];
        canvas = request->canvas_tokens > canvas ? request->canvas_tokens : canvas;
        output = request->output_tokens > output ? request->output_tokens : output;
        kv_bytes += request->kv_bytes;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct request *request = &life->requests[slots[i]];
        bool padded = !system->runtime.varlen;
        struct span span = widest_span(system, padded ? canvas : request->canvas_tokens,
                                       padded ? output : request->output_tokens);
        shape_add(shape.sym, &span, 1);
    }
    struct err ignored = {0};
    int64_t available_bytes = budget_workspace_bytes(&system->budget, kv_bytes);
    return system_place(system, &shape, available_bytes, &placement, &ignored) == 0;
}

/* Whether the request could run alone; remembers the longest canvas that could. */
static bool runs_alone(struct lifecycle *life, uint32_t slot) {
    int64_t canvas = life->requests[slot].canvas_tokens;
    if (canvas <= life->widest_fitting_canvas) {
        return true;
    }
    if (!fit_batch(life, &slot, 1)) {
        return false;
    }
    life->widest_fitting_canvas = canvas;
    return true;
}

enum reject_reason fit_alone(struct lifecycle *life, uint32_t slot) {
    const struct system *system = life->system;
    const struct request *request = &life->requests[slot];
    uint32_t rows =
        cache_most_held(system->cache, system->cache_state, request) + system_check_rows(system);
    if (budget_request_bytes(&system->budget, rows) > system->budget.pool_bytes) {
        return REJECT_KV;
    }
    bool in_chunks = system->scheduler->grows && request->span.phase == PHASE_PREFILL;
    uint32_t queries = in_chunks ? request->block_tokens : request->span.queries;
    if (queries > system->settings.max_batched_tokens) {
        return REJECT_TOKENS;
    }
    return runs_alone(life, slot) ? REJECT_NONE : REJECT_ACTIVATION;
}
