/* Portfolio: the best of several orders and gap choices, then a short local search from there.
 *
 * The search moves a buffer that ends at the peak to an earlier place in the order, or swaps two
 * buffers, and keeps what is no worse. It ends at the lower bound, at the capacity asked for, or
 * after a fixed number of tries; its random numbers start from a constant. */
#include <string.h>

#include "sim/base/rng.h"
#include "sim/memory/planner/planner_order.h"

enum { LOCAL_TRIES = 256 };

/* Placing costs up to the square of the number of buffers: fewer tries for many of them. */
static uint32_t tries_for(uint64_t n) {
    const uint64_t most_pairs = UINT64_C(1) << 28;
    uint64_t tries = most_pairs / (n * n);
    return tries < LOCAL_TRIES ? (uint32_t)tries : LOCAL_TRIES;
}

struct portfolio {
    const struct packing *packing;
    int64_t target_bytes, peak_bytes;
    int64_t *best_offset_bytes; /* of the plan */
    int64_t *offset_bytes;      /* of the latest try */
    double *keys;
    uint32_t *order, *best_order, *by_offset;
};

static size_t lay_out(struct portfolio *p, uint32_t n, void *memory) {
    struct scratch scratch = {memory, 0};
    SCRATCH_TAKE(&scratch, p->offset_bytes, n);
    SCRATCH_TAKE(&scratch, p->keys, ORDER_KEYS_PER_BUFFER * (size_t)n);
    SCRATCH_TAKE(&scratch, p->order, n);
    SCRATCH_TAKE(&scratch, p->best_order, n);
    SCRATCH_TAKE(&scratch, p->by_offset, n);
    return scratch.taken_bytes;
}

size_t plan_portfolio_scratch_bytes(const struct packing *packing) {
    struct portfolio p;
    return lay_out(&p, packing->n_buffers, NULL);
}

/* Place by p->order; true when that is no worse than the best so far, which it then becomes. */
static bool try_order(struct portfolio *p, enum gap_choice choice) {
    uint32_t n = p->packing->n_buffers;
    int64_t peak = order_place(p->packing, p->order, choice, p->by_offset, p->offset_bytes);
    if (peak > p->peak_bytes) {
        return false;
    }
    p->peak_bytes = peak;
    memcpy(p->best_offset_bytes, p->offset_bytes, n * sizeof p->offset_bytes[0]);
    memcpy(p->best_order, p->order, n * sizeof p->order[0]);
    return true;
}

/* Change p->order, which is the best one, a little. */
static void change_order(struct portfolio *p, struct rng *rng) {
    uint32_t n = p->packing->n_buffers;
    uint32_t from = (uint32_t)(rng_next(rng) % n), to = (uint32_t)(rng_next(rng) % n);
    if (rng_next(rng) % 2 == 0) {
        uint32_t held = p->order[from];
        p->order[from] = p->order[to];
        p->order[to] = held;
        return;
    }
    for (from = 0; from + 1 < n; from++) {
        uint32_t buffer = p->order[from];
        if (p->best_offset_bytes[buffer] + p->packing->buffers[buffer].bytes == p->peak_bytes) {
            break;
        }
    }
    uint32_t highest = p->order[from];
    for (to = from == 0 ? 0 : to % from; from > to; from--) {
        p->order[from] = p->order[from - 1];
    }
    p->order[to] = highest;
}

int plan_portfolio(const struct plan_request *request, void *memory, struct plan *plan,
                   struct err *err) {
    (void)err;
    uint32_t n = request->packing->n_buffers;
    if (n == 0) {
        return 0;
    }
    struct portfolio p = {.packing = request->packing,
                          .peak_bytes = INT64_MAX,
                          .target_bytes = plan->lower_bound_bytes,
                          .best_offset_bytes = plan->offset_bytes};
    lay_out(&p, n, memory);
    if (request->capacity_bytes > p.target_bytes) {
        p.target_bytes = request->capacity_bytes;
    }
    enum gap_choice choice = GAP_LOWEST;
    for (int kind = 0; kind < BUFFER_ORDER_COUNT && p.peak_bytes > p.target_bytes; kind++) {
        order_make(p.packing, (enum buffer_order)kind, p.order, p.keys);
        for (int gap = GAP_LOWEST; gap <= GAP_SMALLEST && p.peak_bytes > p.target_bytes; gap++) {
            choice = try_order(&p, (enum gap_choice)gap) ? (enum gap_choice)gap : choice;
        }
    }
    struct rng rng = rng_stream(1, "planner portfolio");
    uint32_t n_tries = tries_for(n);
    for (uint32_t i = 0; i < n_tries && p.peak_bytes > p.target_bytes; i++) {
        memcpy(p.order, p.best_order, n * sizeof p.order[0]);
        change_order(&p, &rng);
        try_order(&p, choice);
    }
    return 0;
}
