/* The weights of a model as the kernels want them: one block of matrices, fused where one product
 * serves several projections (queries, keys and values; gate and up).
 *
 * They live on a device. A layout says where each matrix lies; it is the same on every device.
 * Weights come out of a checkpoint folder of safetensors, in pieces through two small buffers, so
 * that no second copy is made on the host; or the device makes random ones, at any size. Matrices
 * are [output channels, input channels], row-major. */
#ifndef UNMASK_ENGINE_WEIGHTS_H
#define UNMASK_ENGINE_WEIGHTS_H

#include <stdint.h>

#include "engine/device.h"
#include "engine/rotation.h"
#include "sim/base/err.h"
#include "sim/model/model.h"

/* One rank of several that hold a model together has its heads of queries, keys and values and its
 * part of the width and the vocabulary; the embedding is everyone's in full (sim/model/ranks.h).
 * Shapes: C hidden, H and G query and key-value heads of size D, F the SwiGLU width, V vocabulary.
 */
enum weight_slot {
    /* One of each. */
    WEIGHT_EMBEDDING,  /* [V, C], of all ranks */
    WEIGHT_FINAL_NORM, /* [C] */
    WEIGHT_HEAD,       /* [V, C]; a tied model's lies in its embedding */
    /* One of each a layer. */
    WEIGHT_ATTENTION_NORM, /* [C] */
    WEIGHT_QKV,            /* [(H + 2 G) D, C]: queries, keys, values */
    WEIGHT_QKV_BIAS,       /* [(H + 2 G) D], where the model has biases */
    WEIGHT_Q_NORM,         /* [D], where the model normalises its heads */
    WEIGHT_K_NORM,         /* [D] */
    WEIGHT_OUTPUT,         /* [C, H D] */
    WEIGHT_FFN_NORM,       /* [C] */
    WEIGHT_GATE_UP,        /* [2 F, C]: the gates, then the ups */
    WEIGHT_DOWN,           /* [C, F] */
};
enum {
    WEIGHT_SLOT_COUNT = WEIGHT_DOWN + 1,
    WEIGHT_MAX_PARTS = 3,
    WEIGHT_ALIGN_BYTES = 512,
};
extern const char *const weight_slot_names[WEIGHT_SLOT_COUNT];

struct weight_layout {
    const struct model *model;
    uint32_t rank; /* of model_ranks(model) */
    enum kernel_dtype dtype;
    int64_t offset_bytes[WEIGHT_SLOT_COUNT]; /* of layer 0; -1 where the model has no such weight */
    int64_t layer_bytes;                     /* from a layer's matrix to the next layer's */
    int64_t bytes;
};

/* What a checkpoint's configuration says and the model table does not. */
struct weight_constants {
    struct rotation rotation;
    float norm_epsilon;
};

/* Rank 0's, which is all there is where the model is not divided. ERR_USAGE when the model has
 * parts the engine does not run (mixtures of experts). */
int weight_layout_make(struct weight_layout *layout, const struct model *model,
                       enum kernel_dtype dtype, struct err *err);

static inline bool weight_is_per_layer(enum weight_slot slot) {
    return slot >= WEIGHT_ATTENTION_NORM;
}

static inline int64_t weight_offset_bytes(const struct weight_layout *layout, enum weight_slot slot,
                                          uint32_t layer) {
    int64_t repeated = weight_is_per_layer(slot) ? layer * layout->layer_bytes : 0;
    return layout->offset_bytes[slot] < 0 ? -1 : layout->offset_bytes[slot] + repeated;
}

/* Rows and columns of a part of a slot: queries, keys and values are the three parts of QKV.
 * False where the slot has no such part. Vectors have one column. */
bool weight_part_shape(const struct model *model, enum weight_slot slot, int part, int64_t *n_rows,
                       int64_t *n_columns);

struct weights {
    struct weight_layout layout;
    struct weight_constants constants;
    const struct engine_device *device;
    unsigned char *block; /* owned, in the device's memory */
};

/* `source` is a checkpoint folder or "random:SEED". Random matrices are uniform with variance
 * 1 / (input channels), norms lie around 1, and each part has its own key, so that a seed means the
 * same numbers on every device, rounded to its dtype. `device` must outlive the weights. On error
 * nothing needs releasing. */
int weights_open(struct weights *weights, const struct engine_device *device,
                 const struct model *model, const char *source, struct err *err);
/* Those of another rank of the same model. */
int weights_open_rank(struct weights *weights, const struct engine_device *device,
                      const struct model *model, uint32_t rank, const char *source,
                      struct err *err);
void weights_close(struct weights *weights);

/* NULL where the model has no such weight. */
static inline const void *weights_at(const struct weights *weights, enum weight_slot slot,
                                     uint32_t layer) {
    int64_t offset = weight_offset_bytes(&weights->layout, slot, layer);
    return offset < 0 ? NULL : weights->block + offset;
}

#endif
