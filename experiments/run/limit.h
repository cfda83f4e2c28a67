/* What no schedule can beat (sim/bound/bound.h), of a run as it would be asked for. */
#ifndef UNMASK_EXPERIMENTS_RUN_LIMIT_H
#define UNMASK_EXPERIMENTS_RUN_LIMIT_H

#include <jansson.h>

#include "experiments/run/compose.h"
#include "sim/bound/bound.h"

/* ERR_USAGE where a device decides: there is no telling what its passes will be. */
int limit_find(const struct run_request *request, const volatile sig_atomic_t *stop,
               struct bound *out, struct err *err);

/* The same, before the composition is run: its summary, wherever it goes, then has them as "bound",
 * with what the run reached of them (summary_put_bound). */
int limit_take(const struct run_request *request, const volatile sig_atomic_t *stop,
               struct composition *composition, struct err *err);

/* The limits, the price of each type of pass, and what they hold of. */
json_t *limit_json(const struct bound *bound);

/* The limits of a summary in one line; nothing where it has none. */
void limit_print(const json_t *summary, FILE *out);

/* "selecting refresh": the type of passes at this place of bound->types; of `n` bytes. */
const char *limit_type_name(const struct bound *bound, uint32_t type, char *text, size_t n);

/* Mean price of the type's passes, in ms. */
double limit_price_ms(const struct bound *bound, uint32_t type);

#endif
