/* Measuring one operator at one size on a device, as a step would run it: a step of one operator of
 * a step graph, packed, placed and launched like any other (engine/op).
 *
 * Several copies of the operator are captured as a CUDA graph (on a device that captures nothing
 * they are launched one by one) and run until enough device time has gone by; the answer is the
 * median of the time of one copy. What an operator finds in the L2 cache is what it finds in a
 * step:
 * - weights, cached rows and the residual stream were used a layer or a sublayer ago, since when
 *   more than the cache's size went by. Copies take them from different places: weights from the
 *   model's own layers in turn, the others from one region in turn; and before each time a product
 *   reads more than three times the cache's size. A model that is itself smaller than that stays in
 * the cache from step to step, and then here too.
 * - other inputs are what the operator before has just written; outputs go where the planner put
 *   them in every layer before. Copies share one place for either.
 * Data are random: zeros take less power, and so less time, than any model does. */
#ifndef UNMASK_ENGINE_CALIBRATE_MEASURE_H
#define UNMASK_ENGINE_CALIBRATE_MEASURE_H

#include "engine/calibrate/calibration_grid.h"
#include "engine/weights/weights.h"

struct measure;

/* Copies run together for about this long, as far as their number allows: starting a CUDA graph,
 * some microseconds, is then a small part. What is not captured is queued while it runs. */
static inline double measure_played_ns(bool captures) {
    static const double captured_ns = 4e6, launched_ns = 5e5;
    return captures ? captured_ns : launched_ns;
}

/* `device` and `weights` (in its memory) must outlive it. Allocates on the device what the largest
 * points of the grid need. ERR_WORLD when the memory does not suffice: then a grid of fewer tokens
 * takes less. */
int measure_open(const struct engine_device *device, const struct weights *weights,
                 const struct calibration_bounds *bounds, const struct calibration_grid *grid,
                 struct measure **out, struct err *err);
void measure_close(struct measure *measure); /* NULL is fine */

/* The device memory that this would take, but for some megabytes; nothing is allocated there. */
int measure_need(const struct engine_device *device, const struct weights *weights,
                 const struct calibration_bounds *bounds, const struct calibration_grid *grid,
                 int64_t *bytes, struct err *err);

/* Draw all data anew: operators that work in place have changed them. */
int measure_renew(struct measure *measure, struct err *err);

/* One copy of what the point launches, measured for about `target_ns` of device time. */
int measure_point(struct measure *measure, const struct calibration_point *point, double target_ns,
                  double *us, struct err *err);

/* Experts that the tokens hit of a point whose operator reads which were chosen; 0: of any other.
 * They are drawn alike each time. */
int measure_experts_hit(struct measure *measure, const struct calibration_point *point,
                        uint32_t *out, struct err *err);

/* A product whose time says how fast the device is just now: 8192 cubed on a GPU, 256 on a CPU. */
int64_t measure_reference_size(const struct measure *measure);
int measure_reference(struct measure *measure, double target_ns, double *us, struct err *err);

#endif
