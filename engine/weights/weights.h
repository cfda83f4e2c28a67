/* The weights of a model as the kernels want them: one block of matrices, fused where one product
 * serves several projections (queries, keys and values; gate and up).
 *
 * They live on a device. A layout says where each matrix lies; it is the same on every device.
 * Weights come out of a checkpoint folder of safetensors, in pieces through two small buffers, so
 * that no second copy is made on the host; or the device makes random ones, at any size. Matrices
 * are [output channels, input channels], row-major. */
#ifndef UNMASK_ENGINE_WEIGHTS_WEIGHTS_H
#define UNMASK_ENGINE_WEIGHTS_WEIGHTS_H

#include <stdint.h>

#include "engine/device/device.h"
#include "engine/weights/rotation.h"
#include "sim/base/err.h"
#include "sim/model/model.h"
#include "sim/model/storage.h"
#include "sim/model/weight_slot.h"

enum {
    WEIGHT_MAX_PARTS = 3, /* of one expert, where the slot holds experts */
    WEIGHT_ALIGN_BYTES = 512,
};
extern const char *const weight_slot_names[WEIGHT_SLOT_COUNT];

struct weight_layout {
    const struct model *model;
    uint32_t rank;           /* of model_ranks(model) */
    enum kernel_dtype dtype; /* of what is not in fp8 */
    struct storage storage;
    /* Of weights outside the layers, in the block; of a layer's weights, from the layer's first
     * byte. -1 where the model has no such weight. */
    int64_t offset_bytes[WEIGHT_SLOT_COUNT];
    int64_t layers_bytes;                     /* what comes before the layers */
    int64_t dense_layer_bytes, mixture_bytes; /* a layer of either kind */
    /* The same of layers with heads of their own, which see everything where others have a window;
     * and the model as their heads have it. */
    int64_t global_offset_bytes[WEIGHT_SLOT_COUNT], global_layer_bytes;
    struct model global_kind;
    int64_t bytes;
};

/* The model as a layer's heads have it. */
static inline const struct model *weight_model(const struct weight_layout *layout, uint32_t layer) {
    return model_is_global(layout->model, layer) ? &layout->global_kind : layout->model;
}

/* What a checkpoint's configuration says and the model table does not. */
struct weight_constants {
    struct rotation rotation;
    float norm_epsilon;
};

/* Rank 0's, which is all there is where the model is not divided; what storage does not have in fp8
 * is in the dtype. ERR_USAGE when the router is one that the kernels do not run. */
int weight_layout_make(struct weight_layout *layout, const struct model *model,
                       enum kernel_dtype dtype, const struct storage *storage, struct err *err);

/* SEED of `random:SEED`, which asks for random weights; NULL where `source` is a folder. */
const char *weights_seed(const char *source);

static inline bool weight_is_per_layer(enum weight_slot slot) {
    return slot >= WEIGHT_ATTENTION_NORM;
}

/* Whether a layer may have such a weight, by its kind. */
static inline bool weight_is_of_layer(const struct model *model, enum weight_slot slot,
                                      uint32_t layer) {
    bool is_mixture = layer >= model_first_mixture(model);
    return slot < WEIGHT_GATE_UP || is_mixture == (slot >= WEIGHT_ROUTER);
}

/* Of a slot's numbers in a layout of this dtype. */
static inline enum kernel_dtype weight_dtype(enum weight_slot slot, enum kernel_dtype dtype) {
    return slot == WEIGHT_EXPERT_BIAS ? KERNEL_F32 : dtype;
}

/* Bytes of one number of a slot, and the rank whose part of a divided model is meant (of a tied
 * head: where it begins in the embedding). */
int64_t weight_number_bytes(const struct weight_layout *layout, enum weight_slot slot);
void weight_layout_set_rank(struct weight_layout *layout, uint32_t rank);

/* Whether a slot's matrices are in fp8, and the scales that such have for each number of rows and
 * columns; its matrices, one for each expert: how many, and their rows and columns. */
bool weight_is_fp8(const struct weight_layout *layout, enum weight_slot slot);
struct weight_matrices {
    enum number_type type;
    int64_t n, n_rows, n_columns;
};
struct weight_matrices weight_matrices_of(const struct weight_layout *layout,
                                          enum weight_slot slot);

/* -1 where the layer has no such weight. */
int64_t weight_offset_bytes(const struct weight_layout *layout, enum weight_slot slot,
                            uint32_t layer);

static inline bool weight_holds_experts(enum weight_slot slot) {
    return slot == WEIGHT_EXPERTS_GATE_UP || slot == WEIGHT_EXPERTS_DOWN;
}

/* How many parts a slot has: queries, keys and values are the three of QKV, gates and ups those of
 * gate-up, for each expert in turn where the slot holds experts. */
int weight_part_count(const struct model *model, enum weight_slot slot);
/* Of one expert, where the slot holds experts. */
int weight_parts_at_once(enum weight_slot slot);

/* Rows and columns of a part. False where the model has none. Vectors have one column. */
bool weight_part_shape(const struct model *model, enum weight_slot slot, int part, int64_t *n_rows,
                       int64_t *n_columns);

struct weights {
    struct weight_layout layout;
    struct weight_constants constants;
    const struct engine_device *device;
    unsigned char *block; /* owned, in the device's memory */
};

/* `source` is a checkpoint folder or "random:SEED". Random matrices are uniform with variance
 * 1 / (input channels), norms lie around 1 (a mixture's head norms around 2, so that its tokens go
 * to different experts), and each part has its own key, so that a seed means the same numbers on
 * every device, rounded to its dtype. `device` must outlive the weights. On error nothing needs
 * releasing. */
int weights_open(struct weights *weights, const struct engine_device *device,
                 const struct model *model, const char *source, struct err *err);
/* Those of another rank of the same model. */
int weights_open_rank(struct weights *weights, const struct engine_device *device,
                      const struct model *model, uint32_t rank, const char *source,
                      struct err *err);
/* The same, with numbers of fp8 where storage has them: those of a checkpoint in fp8 with scales of
 * the same layout are taken as they are; all others are quantised. A checkpoint in fp8 that is
 * opened in wider numbers is expanded. */
int weights_open_stored(struct weights *weights, const struct engine_device *device,
                        const struct model *model, const struct storage *storage, uint32_t rank,
                        const char *source, struct err *err);
void weights_close(struct weights *weights);

/* Divides all logits, through the final norm, whose weights are rounded to their dtype again. */
int weights_divide_logits(struct weights *weights, double by, struct err *err);

/* NULL where the model has no such weight. */
static inline const void *weights_at(const struct weights *weights, enum weight_slot slot,
                                     uint32_t layer) {
    int64_t offset = weight_offset_bytes(&weights->layout, slot, layer);
    return offset < 0 ? NULL : weights->block + offset;
}

/* The scales of a slot in fp8, those of each matrix in turn; NULL where it is not in fp8. */
const float *weights_scales_at(const struct weights *weights, enum weight_slot slot,
                               uint32_t layer);

#endif
