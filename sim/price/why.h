/* Why an operator, or a step, has its price: every step of the ladder that changed it, with its
 * factor and what it rests on. For people; prices do without it. */
#ifndef UNMASK_SIM_PRICE_WHY_H
#define UNMASK_SIM_PRICE_WHY_H

#include "sim/price/price.h"

struct why_rung {
    const char *name, *says;
    double before_ns, after_ns; /* `before_ns` 0: nothing was priced before it */
    /* Where `setting` is NULL. Of a setting only the system knows who said it. */
    struct provenance from;
    const char *setting; /* "runtime.product_ratio" */
};

/* A step that changes nothing is no rung. */
enum { WHY_MOST_RUNGS = 16 };
struct why {
    struct why_rung rungs[WHY_MOST_RUNGS];
    uint32_t n;
    double ns;
    /* Of the looked-up price; unchanged where the floor raises the price. */
    enum provenance_kind kind;
    bool is_raised;
};

/* Operator `op` of the graph, all executions, with its wait for the host: the last rung ends at
 * what cost_explain says. No rung where the step has no rows of it. */
void why_operator(const struct cost_model *cost, uint32_t op, const struct step_shape *shape,
                  struct chunk_rows chunks, struct why *out);

/* The step from the sum of its operators on, at the clock that it settles at. `price`: the step's,
 * with the plans that were added. */
void why_step(struct cost_model *cost, const struct step_shape *shape, struct chunk_rows chunks,
              const struct step_price *price, struct why *out);

#endif
