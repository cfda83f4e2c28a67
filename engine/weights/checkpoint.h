/* Checkpoint folders as their makers publish them: what a family of models calls its tensors, and
 * the few constants its config.json adds to the model table. */
#ifndef UNMASK_ENGINE_WEIGHTS_CHECKPOINT_H
#define UNMASK_ENGINE_WEIGHTS_CHECKPOINT_H

#include <stddef.h>

#include "engine/weights/weights.h"
#include "sim/base/err.h"

struct checkpoint_family {
    const char *name;       /* what the names of its models begin with, before the first '-' */
    bool is_mixture;        /* of experts: a family of its own */
    const char *model_type; /* in config.json */
    struct weight_constants constants; /* of the published models */
    const char *layers;                /* what a layer's tensor names begin with */
    const char *experts;               /* in a layer, what an expert's begin with */
    /* A slot of several parts that has one name alone is stored as one matrix, part behind part. */
    const char *names[WEIGHT_SLOT_COUNT][WEIGHT_MAX_PARTS];
    const char *source;
};

/* ERR_USAGE naming the families when the model belongs to none. */
const struct checkpoint_family *checkpoint_family_find(const struct model *model, struct err *err);

/* The name of a part of a slot. Returns `text`, or NULL where the family has none. */
const char *checkpoint_tensor_name(const struct checkpoint_family *family, enum weight_slot slot,
                                   int part, uint32_t layer, char *text, size_t size);

bool checkpoint_stores_whole(const struct checkpoint_family *family, enum weight_slot slot);

/* Read folder/config.json, which must be of this family. */
int checkpoint_constants(const struct checkpoint_family *family, const char *folder,
                         struct weight_constants *out, struct err *err);

#endif
