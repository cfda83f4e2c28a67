/* Cache policies: what each step of a request computes and what it may take from cached state. */
#ifndef UNMASK_SIM_POLICY_CACHE_CACHE_H
#define UNMASK_SIM_POLICY_CACHE_CACHE_H

#include <stddef.h>

#include "sim/policy/abi.h"
#include "sim/policy/rows.h"
#include "sim/policy/window.h"

/* A block's positions before a step, as an evicting policy sees them. */
struct eviction_view {
    const struct request *request;
    uint32_t length;                 /* of the block */
    const uint8_t *pending, *masked; /* [length], 1: run in this step; still masked */
    const float *delta; /* [length], growth of each masked position's importance from the layer
                           before evict_layer to it, else 0 */
    int32_t frontier;   /* right-most position kept so far in this block, -1: none */
};

/* What a step of a request decided, in its window. */
struct learned {
    uint32_t n; /* positions committed; 0: the block begins, and there is nothing else */
    const uint8_t *outcome; /* [window_length], an enum position_outcome */
    const float *entropy;   /* [window_length], of the distributions that those committed were taken
                               from, in nats; NULL unless the policy reads it */
};

enum { CACHE_MAX_MEMORY_BYTES = 4096 }; /* of a request */

/* What a cache policy serves in addition to blocks, one after the other. */
enum cache_way {
    CACHE_OF_BLOCKS, /* nothing else */
    CACHE_SLIDES,    /* windows that slide, too (window_slides) */
    CACHE_LEADS, /* shared prefixes, which leading layers take over: how many, the system says in
                    its state, which is struct bicache; not for a user's own */
};

struct cache_policy {
    struct policy policy;
    uint32_t memory_bytes;  /* what it remembers of each request, zeros at first */
    uint32_t reads_entropy; /* 1: learn reads entropies, which the head then computes as well */
    uint32_t reads_load;    /* 1: it reads request->load */

    /* The row sets of the request's next step, every field of them, and for how many consecutive
     * steps they hold, >= 1, unless the block ends before. A pure function of the arguments.
     * `memory` is what learn wrote. The answer
     * may be written where request->rows stands, of which a policy therefore reads nothing.
     *
     * Models that see their canvas (ROW_NONE, ROW_KV, ROW_FEATURES): a step runs the active block,
     * and puts it through the head. What a step reads, one before it has written. Memory is the
     * same over a request's life.
     *
     * Others (ROW_EXACT): what of [cached_tokens, block_start) is missing runs first, of which the
     * scheduler may take less, or, where that is the block before, together with the active block;
     * then the block. Kept is what is before the block, and with it the block. They are asked once
     * more when the block has no masked position left: for a pass that writes its final rows, or
     * with nothing to run when there is nothing more to do. A prefill commits nothing unless it has
     * a position in the head; a commit pass nothing of its own block. Where logits are shifted, a
     * pass over all that is before a block commits that block's first position, if the last
     * position is in the head (blocks.h): prefill and commit pass alike. Memory never shrinks, and
     * is the most in the last block. */
    uint32_t (*plan)(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows);

    /* NULL: no refresh waits. Else the row sets of the step that the request takes in place of the
     * refresh that `plan` has just answered, where that can be put off, as plan writes them, of a
     * step that is no refresh; they hold for one step. Returns the staleness bound, how many steps
     * the refresh can be put off by in all, counted from when it was due; 0, and nothing is read of
     * the rows: this one cannot wait. While a refresh is put off request->overdue_steps is above 0,
     * and plan answers the refresh at every step. Never of exact rows. Pure, as plan is. */
    uint32_t (*put_off)(const void *state, const void *memory, const struct request *request,
                        struct row_sets *rows);

    /* CHOSEN_BY_POLICY, else NULL: which of the pending positions continue after layer evict_layer.
     * Sets keep[i] to 1 or 0, 1 where a pending position is not masked, and returns how many are 1,
     * at least one masked one among them. */
    uint32_t (*evict)(const void *state, const void *memory, const struct eviction_view *view,
                      uint8_t *keep);

    /* May be NULL. A block of the request begins, or a step of it committed something. A simulation
     * takes entropies from the confidences that it draws, by the decode process's assumed shape of
     * a distribution (sim/decode/process.h). */
    void (*learn)(const void *state, void *memory, const struct request *request,
                  const struct learned *learned);
    uint32_t way; /* enum cache_way */
};

/* The answer to the request's next step; returns for how many steps it holds. memory NULL: nothing
 * was learned. */
uint32_t cache_rows(const struct cache_policy *cache, const void *state, const void *memory,
                    const struct request *request, struct row_sets *rows);

/* As the callback put_off; 0 where the policy has none. */
uint32_t cache_put_off(const struct cache_policy *cache, const void *state, const void *memory,
                       const struct request *request, struct row_sets *rows);

/* The rows that the request needs in its last block, the most of all. */
uint32_t cache_most_held(const struct cache_policy *cache, const void *state,
                         const struct request *request);

/* Whether an exact cache has rows of the request's block left to write, of which nothing is masked.
 */
bool cache_writes_more(const struct cache_policy *cache, const void *state, const void *memory,
                       const struct request *request);

/* The answer, and the span made of it, into the request; returns for how many steps it holds. */
uint32_t cache_plan(const struct cache_policy *cache, const void *state, const void *memory,
                    struct request *request);

extern const struct cache_policy *const cache_table[];
extern const size_t cache_table_size;

#endif
