/* explain --why: every step of the ladder that changed an operator's price, and the step's. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_EXPLAIN_WHY_H
#define UNMASK_EXPERIMENTS_COMMAND_EXPLAIN_WHY_H

#include <jansson.h>

#include "experiments/steps/step.h"

/* ERR_USAGE unless an operator of the graph is so called: SEGMENT/NAME as in the table, the name or
 * the kind alone, or "all". */
int why_check(const struct system *system, const char *asked, struct err *err);

/* The operators of that name that the step runs, and the step from their sum on. `price` is its
 * price with the plans. */
json_t *why_json(const struct system *system, const struct asked_step *step,
                 const struct step_price *price, const char *asked);
void why_print(const struct system *system, const struct asked_step *step,
               const struct step_price *price, const char *asked);

#endif
