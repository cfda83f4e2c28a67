/* Decoders: which masked positions a step commits.
 *
 * A decoder either counts (the number of committed positions follows from the request alone) or
 * reads confidences, which the loop draws, replays from a record, or takes from real logits. */
#ifndef UNMASK_SIM_POLICY_DECODER_H
#define UNMASK_SIM_POLICY_DECODER_H

#include <stddef.h>

#include "sim/policy/abi.h"
#include "sim/policy/request.h"

struct decoder {
    struct policy policy;

    /* Counting decoders, else NULL: positions to commit in the next step, from 1 to
     * masked_in_block, and in `*repeat` for how many consecutive steps the same number holds. Where
     * the step runs fewer masked positions, or an eviction leaves fewer, it commits all of these.
     */
    uint32_t (*count)(const void *state, const struct request *request, uint32_t *repeat);

    /* Reading decoders, else NULL: `confidence` has one entry for each of the `n` masked positions
     * of the block in canvas order, each in (0, 1). Sets commit[i] to 1 or 0 and returns how many
     * are 1, at least 1. */
    uint32_t (*choose)(const void *state, const struct request *request, const float *confidence,
                       uint32_t n, uint8_t *commit);

    /* Reading decoders that choose all positions at or above a threshold, and the most confident
     * one in any case, name it here, and the engine decides on the device; NULL for any other rule:
     * it then hands the confidences to `choose`. Counting decoders commit the most confident
     * positions, the earlier one on a tie. */
    float (*threshold)(const void *state);
};

extern const struct decoder *const decoder_table[];
extern const size_t decoder_table_size;

#endif
