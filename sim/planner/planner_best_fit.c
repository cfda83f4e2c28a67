/* Best-fit: the largest buffer first, each into the smallest gap that holds it.
 *
 * "Greedy by size for offset calculation" of Pisarchyk and Lee (arXiv 2001.03288), which TensorFlow
 * Lite plans with; XLA's global-decreasing-size best-fit heap orders alike. */
#include "sim/planner/planner_order.h"

int plan_best_fit(const struct plan_request *request, void *scratch, struct plan *plan,
                  struct err *err) {
    (void)err;
    order_solve(request->packing, ORDER_BYTES, GAP_SMALLEST, scratch, plan->offset_bytes);
    return 0;
}
