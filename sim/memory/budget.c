#include "sim/memory/budget.h"

#include <inttypes.h>

#include "sim/base/num.h"

/* Whether the workspace of such a step fits. */
static bool place(const struct budget_request *r, const struct step_shape *shape,
                  int64_t available_bytes, struct placement *out) {
    const struct chunk_request request = {r->chunks, r->planner, r->graph, shape, available_bytes};
    struct chunk_result result;
    chunk_place(&request, out, &result);
    return result.fits;
}

/* Workspace of a step in which `n` full passes of `canvas` tokens run together. */
static bool place_full(const struct budget_request *r, uint32_t n, uint32_t canvas,
                       int64_t available_bytes, struct placement *placement) {
    struct step_shape shape;
    struct span span = {
        .phase = PHASE_REFRESH,
        .queries = canvas,
        .first_queries = canvas,
        .logit_rows = r->output_rows < canvas ? r->output_rows : canvas,
        .select_rows = r->selects ? canvas : 0,
        .pack_rows = r->selects ? canvas : 0,
    };
    shape_clear(&shape);
    for (uint32_t i = 0; i < n; i++) {
        shape_add(shape.sym, &span, 1);
    }
    return place(r, &shape, available_bytes, placement);
}

/* Workspace of the worst step of this many query tokens next to a pool of `pool_bytes`: a logit row
 * and a selected row for each token, and every cached row of the pool attended at once. */
static bool place_worst(const struct budget_request *r, int64_t tokens, int64_t pool_bytes,
                        int64_t available_bytes, struct placement *placement) {
    struct step_shape shape;
    int64_t rows = r->row_bytes > 0 ? pool_bytes / r->row_bytes : 0;
    shape_clear(&shape);
    shape.sym[SYM_TOKENS] = shape.sym[SYM_FIRST_TOKENS] = tokens;
    shape.sym[SYM_FULL_Q] = shape.sym[SYM_BLOCK_Q] = tokens;
    shape.sym[SYM_PREFILL_Q] = shape.sym[SYM_KEPT_TOKENS] = shape.sym[SYM_KEPT_Q] = tokens;
    const bool has_fewer = r->most_logit_rows > 0 && r->most_logit_rows < tokens;
    shape.sym[SYM_LOGIT_ROWS] = shape.sym[SYM_SAMPLED_ROWS] =
        has_fewer ? r->most_logit_rows : tokens;
    shape.sym[SYM_PROJECTED_VALUES] = tokens;
    shape.sym[SYM_SELECT_ROWS] = shape.sym[SYM_PACK_ROWS] = r->selects ? tokens : 0;
    shape.sym[SYM_CONTEXT_ROWS] = rows;
    shape.sym[SYM_BLOCK_K] = shape.sym[SYM_KEPT_K] = rows + tokens;
    return place(r, &shape, available_bytes, placement);
}

static int64_t logits_in(const struct graph *graph, const struct placement *placement) {
    int64_t bytes = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        bytes += tensor_holds_logits(graph, (int)t) ? placement->bytes[t] : 0;
    }
    return bytes;
}

static int out_of_memory(const struct budget_request *r, const struct budget *b, const char *what,
                         int64_t needed, struct err *err) {
    char has[32], needs[32];
    return err_no_room(err, "%s does not fit into %s: %s of usable memory, %s needed for %s",
                       r->graph->model->title, r->gpu->title,
                       num_format_bytes(has, sizeof has, (double)b->usable_bytes),
                       num_format_bytes(needs, sizeof needs, (double)needed), what);
}

static void take_placement(const struct budget_request *r, const struct placement *placement,
                           struct budget *b) {
    b->activation_bytes = placement->peak_bytes;
    b->logits_bytes = logits_in(r->graph, placement);
}

/* One slab per request: as many requests as fit together with their workspace at the profiled
 * canvas. Nothing is set aside for the workspace; batches of longer canvases are checked when they
 * form (budget_batch_fits). */
static int divide_slabs(const struct budget_request *r, int64_t left, struct budget *b,
                        struct err *err) {
    struct placement placement;
    if (left <= 0) {
        return out_of_memory(r, b, "weights and reserve", b->weights_bytes + b->reserve_bytes, err);
    }
    int64_t slab_bytes = r->row_bytes * r->slab_rows;
    uint32_t most = r->max_requests > 0 ? r->max_requests : 4096;
    b->max_requests = 1;
    for (uint32_t n = 2; n <= most; n++) {
        if (!place_full(r, n, r->canvas_tokens, left - n * slab_bytes, &placement)) {
            break;
        }
        b->max_requests = n;
    }
    (void)place_full(r, b->max_requests, r->canvas_tokens, left - b->max_requests * slab_bytes,
                     &placement);
    take_placement(r, &placement, b);
    b->unit_rows = 1;
    b->unit_bytes = r->row_bytes;
    b->pool_bytes = left / PLACEMENT_ALIGN_BYTES * PLACEMENT_ALIGN_BYTES;
    b->shares_pool = true;
    return 0;
}

static int limit_pages(const struct budget_request *r, struct budget *b, struct err *err) {
    int64_t asked_bytes = r->pool_pages * b->unit_bytes;
    if (asked_bytes > b->pool_bytes) {
        return err_no_room(
            err, "a pool of %" PRIu32 " pages does not fit into %s: memory leaves %" PRId64,
            r->pool_pages, r->gpu->title, b->pool_bytes / b->unit_bytes);
    }
    b->pool_bytes = asked_bytes > 0 ? asked_bytes : b->pool_bytes;
    return 0;
}

/* The largest step, next to a pool that was sized by a smaller one. */
static int place_beyond(const struct budget_request *r, struct budget *b, struct err *err) {
    int64_t left = b->total_bytes - b->weights_bytes - b->reserve_bytes - b->pool_bytes;
    struct placement placement;
    if (r->profiled_tokens == r->max_batched_tokens) {
        return 0;
    }
    if (!place_worst(r, r->max_batched_tokens, b->pool_bytes, left, &placement)) {
        return out_of_memory(r, b,
                             "weights, reserve, the pool and the workspace of the largest step",
                             b->total_bytes - left + placement.peak_bytes, err);
    }
    take_placement(r, &placement, b);
    return 0;
}

/* One pool of pages: what the worst step's workspace leaves. That workspace grows with the pool
 * where a runtime gathers cached rows, so the pool shrinks until both fit. */
static int divide_pages(const struct budget_request *r, int64_t left, struct budget *b,
                        struct err *err) {
    struct placement placement;
    b->unit_rows = r->page_tokens;
    b->unit_bytes = r->row_bytes * r->page_tokens;
    b->max_requests = r->max_requests;
    b->local_unit_bytes = r->local_rows > 0 ? r->local_row_bytes * r->page_tokens : 0;
    b->local_units = (uint32_t)ceil_div(r->local_rows, r->page_tokens) + 1; /* begins inside one */
    int64_t available = left - budget_request_bytes(b, r->slab_rows);
    if (!place_worst(r, r->profiled_tokens, 0, available, &placement)) {
        available = left - b->unit_bytes;
        (void)place_worst(r, r->profiled_tokens, 0, available, &placement);
    }
    int64_t pool = left - placement.peak_bytes;
    for (int i = 0; i < 64 && pool >= b->unit_bytes && pool >= 0; i++) {
        (void)place_worst(r, r->profiled_tokens, pool, available, &placement);
        int64_t excess = placement.peak_bytes + pool - left;
        if (excess <= 0) {
            take_placement(r, &placement, b);
            b->pool_bytes = b->unit_bytes > 0 ? pool / b->unit_bytes * b->unit_bytes : pool;
            int status = limit_pages(r, b, err);
            return status == 0 ? place_beyond(r, b, err) : status;
        }
        pool -= (excess + 1) / 2 + b->unit_bytes;
    }
    return out_of_memory(r, b, "weights, reserve, the workspace of the largest step and a page",
                         b->weights_bytes + b->reserve_bytes + placement.peak_bytes + b->unit_bytes,
                         err);
}

int budget_make(const struct budget_request *r, struct budget *out, struct err *err) {
    *out = (struct budget){
        .total_bytes = r->gpu->memory_bytes,
        .usable_bytes = (int64_t)(r->memory_utilization * (double)r->gpu->memory_bytes),
        .weights_bytes = model_weights_bytes(r->graph->model, &r->graph->storage),
        .reserve_bytes = r->reserve_bytes,
    };
    int64_t left = out->usable_bytes - out->weights_bytes - out->reserve_bytes;
    left = (int64_t)(r->pool_share * (double)left);
    return r->kv_layout == KV_SLAB ? divide_slabs(r, left, out, err)
                                   : divide_pages(r, left, out, err);
}

int64_t budget_request_bytes(const struct budget *budget, uint32_t rows) {
    if (budget->unit_bytes == 0 || rows == 0) {
        return 0;
    }
    const int64_t units = ceil_div(rows, budget->unit_rows);
    const int64_t passed = units > budget->local_units ? units - budget->local_units : 0;
    return units * budget->unit_bytes - passed * budget->local_unit_bytes;
}

int64_t budget_workspace_bytes(const struct budget *budget, int64_t kv_bytes) {
    return budget->shares_pool ? budget->pool_bytes - kv_bytes : budget->activation_bytes;
}
