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
    rows_run(rows, renews ? 0 : reuses_from, canvas);
    return 1;
}

#endif
