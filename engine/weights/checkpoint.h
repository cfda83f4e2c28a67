/* Checkpoint folders as their makers publish them: what a family of models calls its tensors, and
 * the few constants its config.json adds to the model. */
#ifndef UNMASK_ENGINE_WEIGHTS_CHECKPOINT_H
#define UNMASK_ENGINE_WEIGHTS_CHECKPOINT_H

#include <stddef.h>

#include "engine/weights/weights.h"
#include "sim/base/err.h"
#include "sim/model/family.h"

enum { CHECKPOINT_NAME_CHARS = 64 };

struct checkpoint_family {
    const struct model *model;
    struct family family;
    char layers[CHECKPOINT_NAME_CHARS];  /* what a layer's tensor names begin with */
    char experts[CHECKPOINT_NAME_CHARS]; /* in a layer, what an expert's begin with */
    /* A slot of several parts that has one name alone is stored as one matrix, part after part. */
    char names[WEIGHT_SLOT_COUNT][WEIGHT_MAX_PARTS][CHECKPOINT_NAME_CHARS];
};

/* That of a model. ERR_USAGE naming the families when it belongs to none; on success the caller
 * runs checkpoint_family_close. */
int checkpoint_family_open(const struct model *model, struct checkpoint_family *out,
                           struct err *err);
void checkpoint_family_close(struct checkpoint_family *family);

/* The name of a part of a slot. Returns `text`, or NULL where the family has none. */
const char *checkpoint_tensor_name(const struct checkpoint_family *family, enum weight_slot slot,
                                   int part, uint32_t layer, char *text, size_t size);

bool checkpoint_stores_whole(const struct checkpoint_family *family, enum weight_slot slot);

/* The model's, or those of the family's published models. */
struct weight_constants checkpoint_constants(const struct checkpoint_family *family);

/* Those of folder/config.json, which must say of the model what the model is. */
int checkpoint_read_constants(const struct checkpoint_family *family, const char *folder,
                              struct weight_constants *out, struct err *err);

#endif
