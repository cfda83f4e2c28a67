/* No reuse: every buffer its own memory, what a runtime that frees nothing within a step holds. */
#include "sim/planner/planner_order.h"

int plan_no_reuse(const struct plan_request *request, void *scratch, struct plan *plan,
                  struct err *err) {
    (void)scratch;
    (void)err;
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
