/* What PyTorch asks of its allocator in a denoising step: an allocation stream (stream.h) made from
 * the step graph instead of being recorded.
 *
 * Where the graph knows a tensor, its size and its last use come from there. What it does not know
 * comes from the released code and from the recording of a LLaDA-shaped model
 * (experiments/study/reference/record_allocations.py, tests/golden/allocations.tar.gz), event by
 * event:
 *
 *   norms         in float32: the input widened, its square, the scaled copy, the narrowed one
 *   rotation      in float32 (modeling_llada.py, rope_full_precision), queries then keys; Dream and
 *                 LLaDA-MoE rotate in bfloat16, which holds less
 *   grouped heads keys and values repeated for every query head (modeling_dream.py, repeat_kv)
 *   FFN           gate, activated gate, up, product: three at once
 *   experts       all chosen experts of a token side by side, their outputs before they are summed,
 *                 as vLLM's fused_moe keeps them; the released loop over experts holds less
 *   variables     queries, keys, values, attention's output and the second norm's live until the
 *                 layer returns, its input until the caller has the output
 *   LLaDA         all rows are sampled, with the copy and the probabilities that the graph has
 *   Dream         logits shifted by concatenation, the masked rows picked out of them, and of these
 *                 softmax, sum with epsilon, logarithm (generation_utils.py, alg = entropy, the
 *                 README's choice), all as wide as the logits
 *
 * Not in it: a few vectors of one number a token, and what libraries allocate for themselves. */
#ifndef UNMASK_SIM_MEMORY_EAGER_H
#define UNMASK_SIM_MEMORY_EAGER_H

#include "sim/memory/live.h"
#include "sim/memory/stream.h"

struct eager_step {
    struct step_shape shape; /* without cached rows */
    int64_t masked_rows;     /* of the logit rows; Dream picks them out */
};

struct eager_request {
    const struct graph *graph;
    const struct eager_step *steps; /* in their order */
    uint32_t n_steps;               /* >= 1 */
    /* A script samples in the body of its loop, where logits, probabilities and picked rows live
     * until the next step assigns them anew; a function for the step drops them when it returns. */
    bool keeps_results;
};

/* Append the steps to an initialised stream. Every layer and the head begin a compiled
 * graph. live[0] gets what is in use while the operators of the first step run, live[1] of the
 * second, which meets what the first left; where there is one step, both are its. */
void eager_steps(const struct eager_request *request, struct stream *out, struct live live[2]);

/* Whether a step with fewer masked rows asks for the same as one with more. */
bool eager_ignores_masks(const struct graph *graph);

#endif
