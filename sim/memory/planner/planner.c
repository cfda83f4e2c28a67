#include "sim/memory/planner/planner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/memory/planner/planner_order.h"

/* No reuse: every buffer its own memory, what a runtime that frees nothing within a step holds. */
static int plan_no_reuse(const struct plan_request *request, void *scratch, struct plan *plan,
                         struct err *err) {
    (void)scratch, (void)err;
    int64_t end = 0;
    for (uint32_t i = 0; i < request->packing->n_buffers; i++) {
        const struct packing_buffer *b = &request->packing->buffers[i];
        if (b->bytes > 0) {
            plan->offset_bytes[i] = align_up(end, b->align_bytes);
            end = plan->offset_bytes[i] + b->bytes;
        }
    }
    return 0;
}

/* First-fit puts each buffer at the lowest place that is free for its whole life. Mosaic adopts "a
 * first-fit heuristic" (section 4.5) and leaves the order open. Its released planner takes buffers
 * as they are born; the other reading takes the largest first. Births lose more: a late large
 * buffer finds the memory already cut up. Best-fit is "greedy by size for offset calculation" of
 * Pisarchyk and Lee (arXiv 2001.03288). */
const struct planner planner_table[] = {
    {"first-fit", "birth order, lowest gap between live tensors (Mosaic)", ORDER_BIRTH, GAP_LOWEST,
     NULL, NULL},
    {"first-fit-size", "largest first, lowest gap: the other reading of Mosaic's first-fit",
     ORDER_BYTES, GAP_LOWEST, NULL, NULL},
    {"best-fit", "largest first, smallest gap that holds it (TensorFlow Lite, XLA)", ORDER_BYTES,
     GAP_SMALLEST, NULL, NULL},
    {"portfolio", "the best of ten greedy plans, then a short local search", 0, 0,
     plan_portfolio_scratch_bytes, plan_portfolio},
    {"exact", "search for the lowest plan, with proof, within a budget of nodes (MiniMalloc)", 0, 0,
     plan_exact_scratch_bytes, plan_exact},
    {"no-reuse", "every tensor of a layer keeps its own memory", 0, 0, NULL, plan_no_reuse},
};
const size_t planner_table_size = sizeof planner_table / sizeof planner_table[0];

const struct planner *planner_find(const char *name, struct err *err) {
    const char *names[sizeof planner_table / sizeof planner_table[0] + 1] = {NULL};
    for (size_t i = 0; i < planner_table_size; i++) {
        if (strcmp(planner_table[i].name, name) == 0) {
            return &planner_table[i];
        }
        names[i] = planner_table[i].name;
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    err_unknown(err, "unknown planner '%s'%s (`unmask list planners` prints them all)", name, hint);
    return NULL;
}

static int64_t packing_lower_bound(const struct packing *packing) {
    int64_t most = 0;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        /* The sum only grows where a buffer begins. */
        int64_t time = packing->buffers[i].first_time, live = 0;
        for (uint32_t j = 0; j < packing->n_buffers; j++) {
            const struct packing_buffer *b = &packing->buffers[j];
            live += b->first_time <= time && time <= b->last_time ? b->bytes : 0;
        }
        most = live > most ? live : most;
    }
    return most;
}

size_t planner_scratch_bytes(const struct planner *planner, const struct packing *packing) {
    return planner->scratch_bytes != NULL ? planner->scratch_bytes(packing)
           : planner->solve == NULL       ? order_scratch_bytes(packing)
                                          : 0;
}

static int solve(const struct planner *planner, const struct plan_request *request, void *scratch,
                 struct plan *plan, struct err *err) {
    const struct packing *packing = request->packing;
    plan->lower_bound_bytes = plan->proven_bound_bytes = packing_lower_bound(packing);
    plan->n_nodes = 0;
    plan->stopped = false;
    memset(plan->offset_bytes, 0, packing->n_buffers * sizeof plan->offset_bytes[0]);
    int status = 0;
    if (planner->solve != NULL) {
        status = planner->solve(request, scratch, plan, err);
    } else {
        order_solve(packing, planner->order, planner->gap, scratch, plan->offset_bytes);
    }
    plan->peak_bytes = offsets_peak(packing, plan->offset_bytes);
    return status;
}

int planner_solve(const struct planner *planner, const struct plan_request *request, void *scratch,
                  struct plan *plan, struct err *err) {
    size_t size = planner_scratch_bytes(planner, request->packing);
    if (scratch != NULL || size == 0) {
        return solve(planner, request, scratch, plan, err);
    }
    void *own = mem_unwritten(size, 1);
    int status = solve(planner, request, own, plan, err);
    free(own);
    return status;
}

int plan_verify(const struct packing *packing, const struct plan *plan, struct err *err) {
    int64_t end = 0;
    for (uint32_t a = 0; a < packing->n_buffers; a++) {
        const struct packing_buffer *buffer = &packing->buffers[a];
        int64_t a_start = plan->offset_bytes[a], a_end = a_start + buffer->bytes;
        if (a_start < 0 || a_start % buffer->align_bytes != 0) {
            return err_world(err, "buffer %" PRIu32 " lies at %" PRId64 ", not aligned to %" PRId64,
                             a, a_start, buffer->align_bytes);
        }
        end = a_end > end ? a_end : end;
        for (uint32_t b = 0; b < a; b++) {
            int64_t b_start = plan->offset_bytes[b], b_end = b_start + packing->buffers[b].bytes;
            if (packing_live_together(buffer, &packing->buffers[b]) && a_start < b_end &&
                b_start < a_end) {
                return err_world(
                    err, "buffers %" PRIu32 " and %" PRIu32 " overlap while both are live", b, a);
            }
        }
    }
    if (end != plan->peak_bytes) {
        return err_world(err, "the peak is not the end of the last buffer");
    }
    if (end < plan->proven_bound_bytes || plan->proven_bound_bytes < plan->lower_bound_bytes) {
        return err_world(err, "the peak lies below what is said to be proven");
    }
    return 0;
}
