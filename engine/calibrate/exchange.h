/* What ranks exchange, measured: sums over them and gatherings of what each of them has.
 *
 * They are measured as in a step that is a CUDA graph: many of them back to back, captured on a
 * device that captures, of contents in single calls' own memory. A time is that of the slowest
 * rank: in a row of exchanges all take the same. */
#ifndef UNMASK_ENGINE_CALIBRATE_EXCHANGE_H
#define UNMASK_ENGINE_CALIBRATE_EXCHANGE_H

#include "engine/calibrate/calibration_grid.h"
#include "engine/weights/ranks.h"
#include "engine/weights/weights.h"

struct exchange;

/* The ranks of the model that `weights`, rank 0's on `device`, are a share of: opens the others, on
 * the machine's devices after this one, with their own weights from `source`. max_bytes: the
 * largest exchange of one rank. Everything is borrowed. ERR_WORLD where there are too few devices
 * or one lacks memory. */
int exchange_open(const struct engine_device *device, const struct weights *weights,
                  const char *source, int64_t max_bytes, struct exchange **out, struct err *err);
void exchange_close(struct exchange *exchange); /* NULL is fine */

/* Gives up the memory for exchanges: the ranks are the caller's, for another forward pass to lead,
 * until it is closed. */
struct ranks *exchange_ranks(struct exchange *exchange);

/* A point of PROFILE_ALL_REDUCE or PROFILE_ALL_GATHER, for about `target_ns` of device time. */
int exchange_point(struct exchange *exchange, const struct calibration_point *point,
                   double target_ns, double *us, struct err *err);

#endif
