/* One source of prices for what is compared: choosing one, and saying where there are several. */
#ifndef UNMASK_EXPERIMENTS_RUN_PRICES_H
#define UNMASK_EXPERIMENTS_RUN_PRICES_H

#include <jansson.h>

#include "experiments/run/compose.h"

/* For --price-source one: the first of measured, imported and roofline by which every request has
 * prices; requests that no source prices (they fit nowhere, or make no sense) have no say. Writes
 * it into all of them. `request(state, i)` is one of `n`. Fails where a file cannot be read that
 * another source does not need. */
int prices_take_one(struct run_request *(*request)(void *state, size_t i), void *state, size_t n,
                    struct err *err);

/* Warns where the prices of `ours`, a run's summary as JSON, are not of the kernels and the kind
 * that those of `base` are of, and by how much two such sources differ for the same step where one
 * of the runs has both. Either summary may be NULL: there is no run. Returns whether it warned:
 * once is enough for all that is compared. */
bool prices_warn(const json_t *ours, const char *ours_name, const json_t *base,
                 const char *base_name, struct warnings *out);

#endif
