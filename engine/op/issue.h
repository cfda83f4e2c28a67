/* From an operator of the step graph to the device's calls. */
#ifndef UNMASK_ENGINE_OP_ISSUE_H
#define UNMASK_ENGINE_OP_ISSUE_H

#include "engine/device/device.h"
#include "engine/device/room.h"
#include "engine/step/packed.h"
#include "engine/step/program.h"
#include "engine/weights/weights.h"

/* What a step's calls are made of. */
struct issue {
    const struct engine_device *device;
    const struct program *program;
    const struct weights *weights;
    /* The counts, and where the arrays lie in the room's: of the whole step, and of what is left of
     * it behind an eviction. */
    const struct packed *packed, *rest;
    const struct placement *placement;
    const struct room *room;
    int64_t peak_bytes; /* written here: the end of the furthest tensor that a call was given */
};

/* Issues one turn: returns what the device says, the first status that is not DEVICE_OK. */
int issue_turn(struct issue *issue, const struct turn *turn);

/* Where a step's candidates lie: tokens [R], confidences [R] and, where the graph makes statistics,
 * margins [R] and entropies [R]; behind them logits [R], where they are those of one rank's part of
 * the vocabulary. What is not there is NULL. */
struct candidates {
    int32_t *token;
    float *confidence, *margin, *entropy, *logit;
};
struct candidates issue_candidates(struct issue *issue, int tensor);

#endif
