/* What decoders of several blocks share: which positions of each are committed. */
#ifndef UNMASK_SIM_POLICY_DECODER_SEVERAL_BLOCKS_H
#define UNMASK_SIM_POLICY_DECODER_SEVERAL_BLOCKS_H

#include "sim/policy/decoder/decoder.h"

/* Marks the positions whose rank[seen->n] is above `least`, and the best one of a block where there
 * is none, if `complete` of the block before is decided, which of what is before the first block in
 * flight is so always. Returns how many are marked, at least 1. */
uint32_t several_blocks_choose(const struct request *request, const struct decode_seen *seen,
                               const float *rank, float least, double complete, uint8_t *commit);

#endif
