/* Iteration smoothing (dInfer's IterSmooth, arXiv 2510.08666 and its released code): a step's
 * prediction for a masked position is not discarded, but enters the next step as its input,
 *
 *     embedding = embed(mask) + w sum over tokens of softmax(logits) embed(token)
 *     w = min(weight_init + weight_growth i, weight_most)
 *     threshold = max(1 - threshold_decay i, the decoder's)
 *
 * i: steps of the request, over all blocks, before the one that made the prediction, or that
 * decides. The logits are the model's own, the mask's id among them, at temperature 1. The engine
 * computes this of the positions of the active block (the released code, of all that a step runs);
 * the first step over a block has nothing to add. Its effect on a model's confidence is not
 * published: in a simulation x of sim/decode/process.h grows by gain w, which is assumed. */
#ifndef UNMASK_SIM_DECODE_SMOOTH_H
#define UNMASK_SIM_DECODE_SMOOTH_H

#include <stdint.h>

struct smoothing {
    double weight_init, weight_growth, weight_most;
    double threshold_decay;
    double gain;
};

/* Of the embedding that enters step i, 0 for the first. */
double smoothing_weight(const struct smoothing *smoothing, uint32_t i);

/* What a position's confidence has to reach in step i, for a decoder with this threshold. */
float smoothing_threshold(const struct smoothing *smoothing, uint32_t i, float threshold);

/* confidence[n], of which those that are 0 stay 0: as smoothing leaves them in step i. */
void smoothing_raise(const struct smoothing *smoothing, uint32_t i, uint32_t n, float *confidence);

#endif
