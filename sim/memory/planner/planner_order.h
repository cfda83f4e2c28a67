/* Placing buffers one after the other: what the greedy planners share.
 *
 * Each buffer goes into a gap between those that are already placed and live with it, or above
 * them. The order and the choice of the gap make the planner. */
#ifndef UNMASK_SIM_MEMORY_PLANNER_PLANNER_ORDER_H
#define UNMASK_SIM_MEMORY_PLANNER_PLANNER_ORDER_H

#include "sim/base/num.h"
#include "sim/memory/planner/planner.h"

/* Pieces of the scratch memory that a planner asked for, 16-byte aligned. Without memory the pieces
 * are NULL and only their sum is of interest. */
struct scratch {
    char *memory;
    size_t taken_bytes;
};
void *scratch_take(struct scratch *scratch, size_t count, size_t size);
#define SCRATCH_TAKE(scratch, field, count)                                                        \
    ((field) = scratch_take((scratch), (count), sizeof *(field)))

enum { BUFFER_ORDER_COUNT = ORDER_CROWD + 1, ORDER_KEYS_PER_BUFFER = 2 };

/* Sort distinct items in place: no recursion, no memory. */
void order_sort(uint32_t *items, uint32_t n,
                bool (*comes_before)(const void *state, uint32_t a, uint32_t b), const void *state);

/* Indices of all buffers in this order. `keys` is scratch. Ties go to the larger
 * buffer, then to the lower index. */
void order_make(const struct packing *packing, enum buffer_order kind, uint32_t *order,
                double *keys);

/* Places in this order; `by_offset` is scratch for one index a buffer. Returns the peak. */
int64_t order_place(const struct packing *packing, const uint32_t *order, enum gap_choice choice,
                    uint32_t *by_offset, int64_t *offset_bytes);

/* What the planners with one order share: memory for it, and placing by it. */
size_t order_scratch_bytes(const struct packing *packing);
void order_solve(const struct packing *packing, enum buffer_order kind, enum gap_choice choice,
                 void *memory, int64_t *offset_bytes);

int64_t offsets_peak(const struct packing *packing, const int64_t *offset_bytes);

/* Offsets and peaks of plans pushed down as far as they go are multiples of this: the greatest
 * common divisor of the sizes where all alignments divide that, else of sizes and alignments. 0
 * when nothing has bytes. */
int64_t packing_granule(const struct packing *packing);

#endif
