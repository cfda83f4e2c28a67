#include "sim/decode/block.h"

#include <string.h>

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
    memcpy(pending, block->uncached, block->length);
    return block->n_uncached;
}

uint32_t block_known_in_front(const struct block_state *block) {
    const uint8_t *first = memchr(block->masked, 1, block->length);
    return first != NULL ? (uint32_t)(first - block->masked) : block->length;
}

/* Whether position i, which the pass kept or left out, may be revised or masked again. */
static bool may_change(const struct block_state *block, uint32_t i, bool kept, uint8_t outcome) {
    bool is_decided = !block->masked[i] && i >= block->n_fixed;
    return kept && is_decided && (block->n_masked > 0 || block->is_revised) &&
           outcome < OUTCOME_COUNT;
}

/* Whether all that the pass revised or masked again may change. */
static bool may_all_change(const struct block_state *block, const uint8_t *keep,
                           const uint8_t *outcome) {
    bool all = true;
    for (uint32_t i = 0; i < block->length; i++) {
        all =
            all && (outcome[i] <= OUTCOME_COMMIT || may_change(block, i, keep[i] != 0, outcome[i]));
    }
    return all;
}

/* The loop has no branches, so that compilers take many positions at once. */
bool block_allows(const struct block_state *block, const uint8_t *keep, const uint8_t *outcome) {
    const uint8_t may_run_a_part = block->cache == BLOCK_PARTS && block->n_masked > 0;
    const uint8_t *masked = block->masked, *uncached = block->uncached;
    const uint32_t length = block->length;
    uint8_t wrong = 0, changes = 0;
    for (uint32_t i = 0; i < length; i++) {
        const uint8_t runs = keep[i] != 0, commits = outcome[i] == OUTCOME_COMMIT;
        const uint8_t is_change = outcome[i] > OUTCOME_COMMIT;
        const uint8_t may_be_left = masked[i] | (uncached[i] ^ 1) | may_run_a_part;
        wrong |= runs & (uncached[i] ^ 1);
        wrong |= (runs ^ 1) & (may_be_left ^ 1);
        wrong |= commits & ((runs & masked[i]) ^ 1);
        changes |= is_change;
    }
    return !wrong && (!changes || may_all_change(block, keep, outcome));
}

struct outcomes block_outcomes(const uint8_t *outcome, uint32_t length) {
    uint32_t n_commits = 0, n_revised = 0, n_again = 0;
    for (uint32_t i = 0; i < length; i++) {
        n_commits += outcome[i] == OUTCOME_COMMIT;
        n_revised += outcome[i] == OUTCOME_REVISE;
        n_again += outcome[i] == OUTCOME_AGAIN;
    }
    return (struct outcomes){
        {[OUTCOME_COMMIT] = n_commits, [OUTCOME_REVISE] = n_revised, [OUTCOME_AGAIN] = n_again}};
}

/* For how many commits after their own decided positions were run. */
static void count_later(struct block_state *block, const uint8_t *outcome, uint32_t n_commits) {
    for (uint32_t i = 0; i < block->length; i++) {
        uint32_t later = block->later[i] + n_commits;
        bool begins = block->masked[i] || outcome[i] > OUTCOME_COMMIT;
        block->later[i] = begins ? 0 : (uint16_t)later;
    }
}

/* Positions first .. end, run in this pass, need not run again but where it changed them, or where
 * they are masked, or the ones `ahead` of them. */
static void settle(struct block_state *block, const uint8_t *keep, const uint8_t *outcome,
                   uint32_t first, uint32_t end, uint32_t ahead) {
    const uint8_t *masked = block->masked;
    uint8_t *uncached = block->uncached;
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) {
        const bool is_settled = (keep[i] != 0) & (outcome[i] <= OUTCOME_COMMIT) & (masked[i] == 0) &
                                (masked[i + ahead] == 0);
        uncached[i] = (uint8_t)(uncached[i] & !is_settled);
        n += is_settled;
    }
    block->n_uncached -= n;
}

/* As `settle`, of those that others followed enough of. */
static void settle_later(struct block_state *block, const uint8_t *keep, const uint8_t *outcome,
                         uint32_t n_commits) {
    for (uint32_t i = 0; i < block->length; i++) {
        if (block->later[i] + n_commits >= block->recent) {
            settle(block, keep, outcome, i, i + 1, 0);
        }
    }
}

/* What the pass, which commits n_commits, ran: how far it reached, and what of it has been run in
 * decoded form and may be left out. */
static void note_run(struct block_state *block, const uint8_t *keep, const uint8_t *outcome,
                     uint32_t n_commits) {
    const bool in_whole = block->cache == BLOCK_WHOLE || block->cache == BLOCK_PARTS;
    const uint32_t length = block->length;
    int32_t last = (int32_t)length - 1;
    while (last > block->frontier && !keep[last]) {
        last--;
    }
    block->frontier = last > block->frontier ? last : block->frontier;
    if (in_whole) {
        settle(block, keep, outcome, 0, block->n_masked == 0 && !block->is_revised ? length : 0, 0);
    } else if (block->cache == BLOCK_NEIGHBOUR) {
        settle(block, keep, outcome, 0, length - 1, 1);
        if (!block->waits || block->n_masked == 0) {
            settle(block, keep, outcome, length - 1, length, 0);
        }
    } else if (block->recent > 0) {
        settle_later(block, keep, outcome, n_commits);
    } else {
        settle(block, keep, outcome, 0, length, 0);
    }
}

bool block_try(struct block_state *block, const uint8_t *keep, const uint8_t *outcome,
               struct outcomes *found) {
    if (!block_allows(block, keep, outcome)) {
        return false;
    }
    *found = block_outcomes(outcome, block->length);
    const uint32_t n_commits = block->recent > 0 ? found->n[OUTCOME_COMMIT] : 0;
    note_run(block, keep, outcome, n_commits);
    if (block->recent > 0) {
        count_later(block, outcome, n_commits);
    }
    const bool changes = found->n[OUTCOME_REVISE] + found->n[OUTCOME_AGAIN] > 0;
    block->is_revised = block->is_revised && (block->n_masked > 0 || changes);
    const uint32_t length = block->length;
    uint8_t *masked = block->masked;
    for (uint32_t i = 0; i < length; i++) {
        const uint8_t stays = outcome[i] == OUTCOME_NONE, again = outcome[i] == OUTCOME_AGAIN;
        masked[i] = (masked[i] & stays) | again;
    }
    block->n_masked += found->n[OUTCOME_AGAIN] - found->n[OUTCOME_COMMIT];
    block->passes++;
    return true;
}

struct outcomes block_pass(struct block_state *block, const uint8_t *keep, const uint8_t *outcome) {
    struct outcomes found = {{0}};
    const bool is_allowed = block_try(block, keep, outcome, &found);
    ASSERT(is_allowed);
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
