#include "sim/decode/block.h"

#include "sim/base/err.h"

void block_begin(struct block_state *block, enum block_cache cache, uint32_t length,
                 uint32_t n_fixed, uint8_t *masked, uint8_t *uncached) {
    ASSERT(n_fixed <= length);
    *block = (struct block_state){.cache = cache,
                                  .length = length,
                                  .n_fixed = n_fixed,
                                  .n_masked = length - n_fixed,
                                  .n_uncached = length,
                                  .frontier = -1,
                                  .masked = masked,
                                  .uncached = uncached};
    for (uint32_t i = 0; i < length; i++) {
        masked[i] = i >= n_fixed;
        uncached[i] = 1;
    }
}

uint32_t block_pending(const struct block_state *block, uint8_t *pending) {
    for (uint32_t i = 0; i < block->length; i++) {
        pending[i] = block->uncached[i];
    }
    return block->n_uncached;
}

uint32_t block_known_in_front(const struct block_state *block) {
    uint32_t n = 0;
    while (n < block->length && !block->masked[n]) {
        n++;
    }
    return n;
}

/* Whether position i, run in this pass, which commits n_chosen, has been run in decoded form and
 * may be left out. */
static bool is_ready(const struct block_state *block, uint32_t i, uint32_t n_chosen) {
    switch (block->cache) {
    case BLOCK_WHOLE:
    case BLOCK_PARTS:
        return block->n_masked == 0;
    case BLOCK_DELAYED:
        return !block->masked[i] &&
               (block->recent == 0 || block->later[i] + n_chosen >= block->recent);
    case BLOCK_NEIGHBOUR:
        return !block->masked[i] && (i + 1 == block->length || !block->masked[i + 1]);
    }
    return false;
}

/* Whether position i, which the pass kept or left out, may be revised or masked again. */
static bool may_change(const struct block_state *block, uint32_t i, bool kept, uint8_t outcome) {
    bool is_decided = !block->masked[i] && i >= block->n_fixed && block->n_masked > 0;
    return kept && is_decided && outcome < OUTCOME_COUNT;
}

bool block_allows(const struct block_state *block, const uint8_t *keep, const uint8_t *outcome) {
    bool may_run_a_part = block->cache == BLOCK_PARTS && block->n_masked > 0;
    for (uint32_t i = 0; i < block->length; i++) {
        bool is_kept_well = keep[i] ? block->uncached[i]
                                    : block->masked[i] || !block->uncached[i] || may_run_a_part;
        bool comes_out_well = outcome[i] <= OUTCOME_COMMIT
                                  ? outcome[i] == OUTCOME_NONE || (keep[i] && block->masked[i])
                                  : may_change(block, i, keep[i] != 0, outcome[i]);
        if (!is_kept_well || !comes_out_well) {
            return false;
        }
    }
    return true;
}

struct outcomes block_outcomes(const uint8_t *outcome, uint32_t length) {
    struct outcomes found = {{0}};
    for (uint32_t i = 0; i < length; i++) {
        if (outcome[i] != OUTCOME_NONE && outcome[i] < OUTCOME_COUNT) {
            found.n[outcome[i]]++;
        }
    }
    return found;
}

/* For how many commits after their own decided positions were run. */
static void count_later(struct block_state *block, const uint8_t *outcome, uint32_t n_commits) {
    for (uint32_t i = 0; i < block->length; i++) {
        uint32_t later = block->later[i] + n_commits;
        bool begins = block->masked[i] || outcome[i] > OUTCOME_COMMIT;
        block->later[i] = begins ? 0 : (uint16_t)later;
    }
}

struct outcomes block_pass(struct block_state *block, const uint8_t *keep, const uint8_t *outcome) {
    struct outcomes found = {{0}};
    ASSERT(block_allows(block, keep, outcome));
    uint32_t n_commits =
        block->recent > 0 ? block_outcomes(outcome, block->length).n[OUTCOME_COMMIT] : 0;
    for (uint32_t i = 0; i < block->length; i++) {
        if (keep[i]) {
            block->frontier = (int32_t)i > block->frontier ? (int32_t)i : block->frontier;
            if (outcome[i] <= OUTCOME_COMMIT && is_ready(block, i, n_commits)) {
                block->uncached[i] = 0;
                block->n_uncached--;
            }
        }
    }
    if (block->recent > 0) {
        count_later(block, outcome, n_commits);
    }
    for (uint32_t i = 0; i < block->length; i++) {
        if (outcome[i] != OUTCOME_NONE) {
            found.n[outcome[i]]++;
            block->masked[i] = outcome[i] == OUTCOME_AGAIN;
        }
    }
    block->n_masked += found.n[OUTCOME_AGAIN] - found.n[OUTCOME_COMMIT];
    block->passes++;
    return found;
}

void block_forget(struct block_state *block) {
    for (uint32_t i = 0; i < block->length; i++) {
        block->uncached[i] = 1;
    }
    block->n_uncached = block->length;
    block->frontier = -1;
}

bool block_is_done(const struct block_state *block) {
    return block->n_uncached == 0;
}
