/* The answer of policies that renew all rows of a canvas when they see fit: in between, what is
 * masked runs, and what the step before decided, once more. */
#ifndef UNMASK_SIM_CACHE_RENEWAL_H
#define UNMASK_SIM_CACHE_RENEWAL_H

#include "sim/cache/cache.h"

/* A policy's answer, for one step. */
static inline uint32_t renewal_rows(const struct request *request, bool renews,
                                    struct row_sets *rows) {
    uint32_t canvas = request->canvas_tokens, start = request->block_start;
    /* The last of the block before were decided by the step before. */
    bool enters = request->step_in_block == 0 && request->block > 0;
    uint32_t reuses_from = enters ? start - request->block_tokens : start;
    *rows = (struct row_sets){.kind = ROW_KV,
                              .settles = BLOCK_DELAYED,
                              .skips = !renews,
                              .keep = {{0, canvas}},
                              .held = canvas};
    rows_run(rows, renews ? 0 : reuses_from, canvas);
    return 1;
}

#endif
