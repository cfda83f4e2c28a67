/* First-fit: each buffer at the lowest place that is free for its whole life.
 *
 * Mosaic adopts "a first-fit heuristic" (section 4.5) and leaves the order open. Its released
 * planner takes buffers as they are born; the other reading takes the largest first. Births lose
 * more: a late large buffer finds the memory already cut up. */
#include "sim/planner/planner_order.h"

int plan_first_fit(const struct plan_request *request, void *scratch, struct plan *plan,
                   struct err *err) {
    (void)err;
    order_solve(request->packing, ORDER_BIRTH, GAP_LOWEST, scratch, plan->offset_bytes);
    return 0;
}

int plan_first_fit_size(const struct plan_request *request, void *scratch, struct plan *plan,
                        struct err *err) {
    (void)err;
    order_solve(request->packing, ORDER_BYTES, GAP_LOWEST, scratch, plan->offset_bytes);
    return 0;
}
