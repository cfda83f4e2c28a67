/* What a decoder takes back of a pass, for those that know how the pass came out: the loop where it
 * draws, the engine where it reads logits. */
#ifndef UNMASK_SIM_POLICY_DECODER_TAKE_BACK_H
#define UNMASK_SIM_POLICY_DECODER_TAKE_BACK_H

#include "sim/policy/decoder/decoder.h"

/* A pass over a window, by position, and room for as many numbers. */
struct take_back {
    uint32_t length, n_fixed;     /* of the window; the prompt's, with what a pass before yielded */
    const uint8_t *masked, *keep; /* as in struct planned_block */
    const float *confidence;
    uint32_t *offsets; /* room */
    float *values;
    uint8_t *again;
};

/* Asks the decoder, which has take_back, about the pass before which `request` stood so. Sets
 * OUTCOME_AGAIN where it says so and leaves other outcomes. */
void take_back_ask(const struct decoder *decoder, const void *state, const struct request *request,
                   const struct take_back *of, uint8_t *outcome);

#endif
