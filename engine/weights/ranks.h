/* Ranks: the devices that hold one model together, and their weights, driven in step.
 *
 * Rank 0 is the caller's own, driven by its thread; each other rank has a device and weights of its
 * own, and a thread that alone uses them. What all are to do they do at once, meeting in the step
 * graph's collective operators. What is done on a rank is the caller's: nothing here knows of
 * forward passes, which engine/step/forward.h keeps in step by it. */
#ifndef UNMASK_ENGINE_WEIGHTS_RANKS_H
#define UNMASK_ENGINE_WEIGHTS_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device.h"
#include "engine/weights/weights.h"
#include "sim/base/err.h"

struct ranks;

struct ranks_request {
    const struct engine_device *device; /* rank 0's, of whose kind the others are */
    int32_t number;                     /* of it among the machine's devices */
    const struct model *model;          /* a rank's share of it */
    struct storage storage;             /* of the weights */
    const char *weights;                /* as weights_open takes it */
    double logit_divisor;               /* of weights_divide_logits; 0: they are as they are */
    bool batch_invariant;
};

/* Opens ranks 1 to model_ranks(model) - 1 on the machine's next devices, and makes them and rank
 * 0's device ranks of one another. Device and model must outlive them. ERR_WORLD where there are
 * fewer devices, or a rank cannot be opened. */
int ranks_open(const struct ranks_request *request, struct ranks **out, struct err *err);

/* NULL is fine. Before rank 0's device is closed. */
void ranks_close(struct ranks *ranks);

/* Calls `call` once for each rank, for rank 0 by this thread, for the others by theirs, all at
 * once; returns when all have. Where one fails no rank waits for it any longer; the sentence is
 * that of the first, by number, which did not fail for want of another. */
int ranks_call(struct ranks *ranks,
               int (*call)(uint32_t rank, const void *arguments, struct err *err),
               const void *arguments, struct err *err);

/* A rank's; of those from 1 on, for its own thread. */
const struct engine_device *ranks_device(const struct ranks *ranks, uint32_t rank);
const struct weights *ranks_weights(const struct ranks *ranks, uint32_t rank);

#endif
