/* One request's first step on a system that stands for itself: as `unmask plan latency` and the
 * figures of step times ask for it. */
#ifndef UNMASK_EXPERIMENTS_STEPS_FIRST_STEP_H
#define UNMASK_EXPERIMENTS_STEPS_FIRST_STEP_H

#include "experiments/steps/step.h"

/* Opens the system for canvases of up to this many tokens, beyond the model's positions too. The
 * first step decides on all outputs, which are masked: the scope `masked`, which would count one
 * block of them, becomes `generation`. `on_engine`: as the engine runs it. */
int first_step_open(const struct system_request *wanted, uint32_t longest_tokens, bool on_engine,
                    struct system **out, struct err *err);

/* The outputs of a canvas of which the prompt has that share: at least one position. */
uint32_t first_step_outputs(uint32_t canvas_tokens, double prompt_share);

/* What attention, FFN and logits take of the sum over operators, out of one time for each: norms
 * and additions outside of the loops are in none. */
struct step_parts {
    double attention_ns, ffn_ns, logits_ns, sum_ns;
};
struct step_parts step_parts_of(const struct graph *graph, const double op_ns[GRAPH_MAX_OPS]);

#endif
