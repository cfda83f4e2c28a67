/* What a system makes of a step: where its tensors live, in which chunks it runs, what it costs.
 *
 * The one answer that admission, price, meter and engine go by. `available_bytes` is what the
 * step's workspace may take (budget_workspace_bytes). */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_STEP_H
#define UNMASK_SIM_SYSTEM_SYSTEM_STEP_H

#include "sim/system/system.h"

/* ERR_WORLD when the plan needs more than there is; it is in `out` all the same. */
int system_place(const struct system *system, const struct step_shape *shape,
                 int64_t available_bytes, struct placement *out, struct err *err);

/* The chunks of that placement, and the price of the step in them. */
struct chunk_rows system_chunks(const struct system *system, const struct step_shape *shape,
                                int64_t available_bytes);
void system_price(const struct system *system, const struct step_shape *shape,
                  int64_t available_bytes, struct step_price *out);

/* How the settings say to chunk; of `longest` the search that the longest canvas is found with. The
 * cost model must be open. */
struct chunk_rule system_chunk_rule(const struct system *system);

#endif
