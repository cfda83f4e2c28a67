/* What the policies with exact keys and values share: prefill, a block's passes, its commit pass,
 * and the rows they hold. */
#ifndef UNMASK_SIM_POLICY_CACHE_EXACT_H
#define UNMASK_SIM_POLICY_CACHE_EXACT_H

#include <stdbool.h>

#include "sim/policy/cache/cache.h"

struct exact_state {
    uint32_t ahead_blocks;
    bool commit_last, commit_logits;
};

/* The entries of a parameter table whose state begins with an exact_state. */
#define EXACT_PARAMS                                                                               \
    {"ahead_blocks",                                                                               \
     PARAM_U32,                                                                                    \
     0,                                                                                            \
     "blocks",                                                                                     \
     "0",                                                                                          \
     0,                                                                                            \
     1024,                                                                                         \
     NULL,                                                                                         \
     offsetof(struct exact_state, ahead_blocks),                                                   \
     "blocks after the active one with memory of their own [block_tokens > 1 and grows = on]"},    \
        {"commit_last",                                                                            \
         PARAM_BOOL,                                                                               \
         0,                                                                                        \
         "1",                                                                                      \
         "on",                                                                                     \
         0,                                                                                        \
         1,                                                                                        \
         NULL,                                                                                     \
         offsetof(struct exact_state, commit_last),                                                \
         "the last block, too, is computed to its end before its request is done [block_tokens > " \
         "1]"},                                                                                    \
    {                                                                                              \
        "commit_logits", PARAM_BOOL, 0, "1", "on", 0, 1, NULL,                                     \
            offsetof(struct exact_state, commit_logits),                                           \
            "a commit pass goes through the output head whole, though at most one row is read "    \
            "[block_tokens > 1 and cache.cross_block != on or block_tokens > 1 and "               \
            "cache.commit_last = on]"                                                              \
    }

/* Whether no block follows the active one, as far as that is known. */
static inline bool exact_is_last(const struct request *request) {
    return window_end(request) == request->canvas_tokens || request->answer_tokens > 0;
}

/* The answer of any policy whose state begins with an exact_state, and for how many steps. */
uint32_t exact_plan(const void *state, const struct request *request, struct row_sets *rows);

#endif
