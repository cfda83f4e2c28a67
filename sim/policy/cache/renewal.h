/* When a cache renews its rows, and what runs where all rows of a canvas are renewed at once. */
#ifndef UNMASK_SIM_POLICY_CACHE_RENEWAL_H
#define UNMASK_SIM_POLICY_CACHE_RENEWAL_H

#include "sim/policy/cache/cache.h"

/* Steps of the block until the next renewal at a fixed interval, 0: this step is one. A block's
 * first step is one always; interval_steps 0: it alone (UINT32_MAX in the others). */
static inline uint32_t renewal_in(const struct request *request, uint32_t interval_steps) {
    uint32_t step = window_steps(request);
    if (step == 0 || request->overdue_steps > 0) {
        return 0;
    }
    if (interval_steps == 0) {
        return UINT32_MAX;
    }
    return step % interval_steps == 0 ? 0 : interval_steps - step % interval_steps;
}

/* The setting, of a policy whose state has that field. */
#define RENEWAL_PARAM(state)                                                                       \
    {                                                                                              \
        "interval_steps", PARAM_U32, 0, "steps", "0", 0, 1000000, NULL,                            \
            offsetof(state, interval_steps), "steps of a block between renewals (0: one a block)"  \
    }

/* Runs all of the canvas, or of what is listed (`skips`) the rows that decide from `first` on, all
 * of which go through the head. */
static inline void rows_run_listed(struct row_sets *rows, const struct request *request,
                                   uint32_t first) {
    const struct range run = {first, request->canvas_tokens};
    const struct range listed = range_deciding(run, rows_are_before(rows, request));
    rows_run(rows, listed.first, listed.end);
}

/* The answer of policies that renew all rows when they see fit: in between, what is masked runs,
 * and once more what the step before decided, or, where recent is not 0, the latest steps that
 * decided as many together. Of the block before all of it runs while this one has not decided as
 * many. For one step. */
static inline uint32_t renewal_rows(const struct request *request, bool renews, uint32_t recent,
                                    struct row_sets *rows) {
    uint32_t canvas = request->canvas_tokens, start = window_first(request);
    uint32_t decided = window_decided(request);
    bool looks_back =
        window_block(request) > 0 && (recent > 0 ? decided < recent : window_steps(request) == 0);
    uint32_t reuses_from = looks_back ? window_before(request) : start;
    *rows = (struct row_sets){.kind = ROW_KV,
                              .settles = BLOCK_DELAYED,
                              .recent = recent,
                              .skips = !renews,
                              .keep = {{0, canvas}},
                              .held = canvas};
    rows_run_listed(rows, request, renews ? 0 : reuses_from);
    return 1;
}

#endif
