/* What a cache policy's row sets ask of model, runtime and settings, and which of them these cannot
 * give. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_ROWS_H
#define UNMASK_SIM_SYSTEM_SYSTEM_ROWS_H

#include "sim/system/system.h"

/* What is the same in all answers of the policy: system->rows. */
void system_ask_rows(struct system *system);

/* Whether all of a canvas is kept, so that steps that reuse rows renew some of them. */
bool system_keeps_canvas(const struct system *system);

/* The symbol of the rows that steps store with a pass of its own, SYM_ONE where none do. */
enum symbol system_stored_rows(const struct system *system);

/* ERR_USAGE, where the model, the runtime or a setting cannot go with the policy's row sets. */
int system_refuse_rows(const struct system *system, struct err *err);

#endif
