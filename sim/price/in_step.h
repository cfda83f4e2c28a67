/* Operators' times in a whole step, where they could only be timed one execution at a time. */
#ifndef UNMASK_SIM_PRICE_IN_STEP_H
#define UNMASK_SIM_PRICE_IN_STEP_H

#include <stddef.h>

#include "sim/price/price.h"

struct in_step_part {
    double between_ns; /* between events, over all executions */
    double executions; /* 0: it has launched nothing, and what lies between its events is theirs */
    double ns;         /* written: its part of the step; their sum is the step's time */
};

/* Events between executions take time, as much for a short one as for a long one: what all parts
 * together take more than the whole step is taken off in equal shares, one an execution. (2 to 3.5
 * us on H100s and H200s. Shares in proportion to time have long products up to 15 % too quick, the
 * more so the shorter their step: the same operator over as many rows then differs by 1.2 to 1.7 %
 * from step to step in eleven calibrations of LLaDA-8B, by 0.9 to 1.4 with equal ones;
 * experiments/gpu/results/2026-11-25-grid-96.) What little is left of the shortest, and what parts
 * take less than the step, is shared in proportion. */
void in_step_share(struct in_step_part *parts, size_t n, double step_ns);

/* Its halves, for a step of which not all was timed. What an event takes by a step that was; and
 * the parts with that taken off, not scaled: their sum. */
double in_step_event_ns(const struct in_step_part *parts, size_t n, double step_ns);
double in_step_take_off(struct in_step_part *parts, size_t n, double event_ns);

/* How often the graph's operator runs in a step of that shape: as it is priced; a part of a wider
 * operator that has no price of its own runs all the same. */
uint32_t in_step_executions(const struct graph *graph, uint32_t op, const struct step_shape *shape,
                            const struct op_price *price);

#endif
