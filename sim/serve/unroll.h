/* Loop unrolling (dInfer, arXiv 2510.08666): the host starts several steps of a batch one after the
 * other without looking at their results. A request whose block is done meanwhile runs the same
 * span again until the host looks. */
#ifndef UNMASK_SIM_SERVE_UNROLL_H
#define UNMASK_SIM_SERVE_UNROLL_H

#include "sim/policy/cache/blocks.h"
#include "sim/serve/lifecycle.h"

/* How many steps of the batch in flight run before the host looks again: dInfer's rule over all
 * masked positions of the batch, limited to steps in which no span and no decoder's rule changes.
 * Decoders that count know themselves when a block ends. */
uint32_t unroll_steps(const struct lifecycle *life, const struct replica *replica);

/* Whether the request's span decides on nothing because its block was done before. */
static inline bool unroll_block_was_done(const struct lifecycle *life,
                                         const struct request *request) {
    return life->system->decoder->count == NULL && blocks_decide(request) &&
           !window_is_open(request);
}

/* An unrolled step of a request whose block was done before is discarded, unless it is the pass
 * that writes the block's exact keys and values. Where logits are shifted that pass has a token to
 * yield, and runs in addition. */
int unroll_pass(struct lifecycle *life, struct replica *replica, uint32_t slot, struct err *err);

#endif
