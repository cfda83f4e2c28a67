/* Weights in fp8 on their way to the device: strips of a matrix's rows, quantised there, or taken
 * as a checkpoint stores them. Private to this folder. */
#ifndef UNMASK_ENGINE_WEIGHTS_QUANTISER_H
#define UNMASK_ENGINE_WEIGHTS_QUANTISER_H

#include "engine/weights/safetensors.h"
#include "engine/weights/weights.h"

/* The part of a slot that is being made. */
struct part {
    enum weight_slot slot;
    int index;
    int number; /* its index among those of all ranks */
    uint32_t layer;
    int64_t n_rows, n_columns;
    int64_t offset_bytes;
    /* What it is part of, where the model is divided among ranks: all rows or all columns. */
    int64_t whole_rows, whole_columns, first_row, first_column;
};

/* Where a rank's part lies in the model's. */
void weight_place_part(const struct weight_layout *layout, struct part *part);

/* Elements of a part that are contiguous in the whole tensor. */
static inline int64_t part_run_elements(const struct part *part) {
    return part->n_columns == part->whole_columns ? part->n_rows * part->n_columns
                                                  : part->n_columns;
}

/* Where element i of a part lies in what it is part of. */
static inline int64_t part_whole_index(const struct part *part, int64_t i) {
    int64_t row = part->first_row + i / part->n_columns;
    return row * part->whole_columns + part->first_column + i % part->n_columns;
}

/* ---- what checkpoints store ---- */

/* The scales of a tensor in fp8: `tensor` has one for each `rows` x `columns` of its numbers. NULL:
 * it is not in fp8. */
struct stored_scales {
    const struct stored_tensor *tensor;
    int64_t rows, columns, wide; /* wide: scales of a row */
};

/* Whether its name is that of a scale, zero point, packed weight or the like, of any method. */
bool stored_is_of_quantising(const struct stored_tensor *tensor);

/* Those of a weight "X.weight": "X.weight_scale_inv", one for each 128 x 128, or "X.weight_scale",
 * one for each row or one in all. ERR_WORLD: there are none; they have another shape or type; one
 * is no finite number of at least 0. */
int stored_scales_find(const struct safetensors *files, const struct stored_tensor *tensor,
                       struct stored_scales *out, struct err *err);
/* Marks the scales of a weight, by the files' index, where it has some. */
void stored_scales_claim(const struct safetensors *files, const struct stored_tensor *tensor,
                         bool *is_claimed);

/* A part, and the tensor that it begins rows_before rows into. */
struct stored_part {
    const struct part *part;
    const struct stored_tensor *tensor;
    int64_t rows_before;
    struct stored_scales scales;
};

/* Elements [first, first + n), those in fp8 times their scales. */
void stored_part_read(const struct stored_part *stored, int64_t first, int64_t n, float *values);
/* The same as they are stored, of a tensor in fp8. */
void stored_part_codes(const struct stored_part *stored, int64_t first, int64_t n, uint8_t *codes);
/* The scales of rows [first, first + n), for each of the type's columns in turn; a negative first
 * one where the part is not in fp8. ERR_WORLD where the tensor's are of another layout. */
int stored_part_scales(const struct stored_part *stored, int64_t first, int64_t n,
                       enum number_type type, float *scales, struct err *err);

/* ---- quantising ---- */

struct quantiser {
    const struct weights *weights;
    float *values; /* a strip of rows, and codes or scales of one, of the host's memory from which
                      is uploaded */
    void *buffer;
    float *scales; /* those of a strip */
    void *drawn;   /* the device's, a strip */
};

/* Where a part's numbers come from: read to the host, or drawn on the device, to `values`. */
struct quantiser_source {
    bool draws;
    int (*rows)(void *context, const struct part *part, int64_t first, int64_t n, float *values);
    /* Those of a checkpoint, and where it has some the codes that they are of; NULL: all are made
     * here. */
    int (*scales)(void *context, const struct part *part, int64_t first, int64_t n,
                  enum number_type type, float *scales);
    int (*codes)(void *context, const struct part *part, int64_t first, int64_t n, uint8_t *codes);
    void *context;
};

/* Opens nothing where the layout has nothing in fp8. On error the caller closes it, too. */
int quantiser_open(struct quantiser *q, const struct weights *weights, struct err *err);
void quantiser_close(struct quantiser *q);
/* All matrices of the slot and layer of `first`, its first part. */
int quantiser_fill(struct quantiser *q, const struct part *first,
                   const struct quantiser_source *source, struct err *err);

#endif
