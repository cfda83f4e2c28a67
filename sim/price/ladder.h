/* The price ladder: the ordered table of everything that turns a looked-up time into what an
 * operator takes in a step. Each step changes the price so far or leaves it; `unmask explain --why`
 * shows them in this order, each with its factor and what it rests on (sim/price/why.h). What makes
 * a step's price of its operators' is the second table, in sim/price/price.c. */
#ifndef UNMASK_SIM_PRICE_LADDER_H
#define UNMASK_SIM_PRICE_LADDER_H

#include "sim/price/lookup.h"

/* An operator on its way to a price. */
struct priced {
    const struct lookup *lookup;
    const struct step_shape *shape;
    int64_t rows;
    int64_t chunk; /* rows of a chunk; all of them where there is one */
    double repeat; /* executions in a step, each over all rows */
    struct op_amount amount;
    struct op_work work;
    struct op_price price; /* of one execution over all rows, so far */
    struct op_price sum;   /* of all executions, in chunks; from STEP_REPETITIONS on */
};

/* In the order in which they are taken: those of one execution, then those of all. */
enum price_step_id {
    STEP_LOOK_UP,
    STEP_VARLEN,
    STEP_PRODUCT_RATIO,
    STEP_ACTIVATION,
    STEP_MIXTURE,
    STEP_EAGER,
    STEP_EAGER_RATE,
    STEP_DOUBLE,
    STEP_CORRECTION,
    STEP_CORRECTION_HITS,
    STEP_FLOOR,
    STEP_REPETITIONS,
    STEP_CHUNKS,
    STEP_WAIT,
};
enum { PRICE_STEPS = STEP_WAIT + 1 };

struct price_step {
    const char *name;
    const char *says; /* what it does, for people */
    /* Whether it can change the price of such an operator, from what is known when the cost model
     * is opened; the others do without it. */
    bool (*concerns)(const struct lookup *lookup);
    void (*apply)(struct priced *priced);
};
extern const struct price_step price_steps[PRICE_STEPS];

/* All executions of an operator in a step of that shape, without waiting for the host: a step waits
 * once. Zeros where it has no rows, or has none of its own. */
void ladder_price(const struct lookup *lookup, const struct step_shape *shape,
                  struct chunk_rows chunks, struct op_price *out);

/* ladder_price step by step, to the wait: `each` is called after every one that concerns the
 * operator, with the time before it and after it. */
typedef void ladder_fn(void *state, enum price_step_id step, double before_ns, double after_ns,
                       const struct priced *priced);
void ladder_show(const struct lookup *lookup, const struct step_shape *shape,
                 struct chunk_rows chunks, ladder_fn *each, void *state);

/* Time the operator waits for the host in a step. The calibrated wait is that of issued steps: a
 * profile with the time of issuing has measured it. */
double ladder_wait_ns(const struct lookup *lookup, const struct step_shape *shape);

/* ---- from operators to a step ---- */

/* In the order in which they are taken: those of every price, then those that callers add as a step
 * goes. Where the clock falls, host and visit are taken once more. */
enum step_term_id {
    TERM_LAUNCHES,
    TERM_WAITS,
    TERM_HOST,
    TERM_VISIT,
    TERM_PLANS,
    TERM_ISSUED,
    TERM_CLOCK,
};
enum { STEP_TERMS = TERM_CLOCK + 1 };

struct stepped;
struct step_term {
    const char *name, *says;
    void (*apply)(struct stepped *stepped);
};
extern const struct step_term step_terms[STEP_TERMS];

/* A captured step term by term, to the clock that it settles at: device time until the host is in
 * it, from then on all of it. `plan_ns` as cost_add_plans had it. */
typedef void step_fn(void *state, enum step_term_id term, double before_ns, double after_ns);
void cost_show_step(struct cost_model *cost, const struct step_shape *shape,
                    struct chunk_rows chunks, double plan_ns, step_fn *each, void *state);

/* One operator of the graph by ladder_show. */
void cost_show(const struct cost_model *cost, uint32_t op, const struct step_shape *shape,
               struct chunk_rows chunks, ladder_fn *each, void *state);

#endif
