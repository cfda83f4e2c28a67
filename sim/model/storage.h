/* Number types: what the numbers of a model are stored in, and how many bytes that takes.
 *
 * Weights, activations and cached rows each have a type. fp8 (e4m3) is the type of products: their
 * weights, their inputs and cached keys and values may be in it. Everything else of such a model,
 * the residual stream, norms, biases, the router, the embedding, stays in the wide type. The
 * numbers of fp8 share scales in float32, one for each SCALE_GROUP numbers of a row, or of a head
 * where it has fewer; of a matrix one for each square of as many (arXiv 2412.19437, section 3.3.2).
 * Those of fp8-channel share one for a whole row, of a matrix as of an input.
 */
#ifndef UNMASK_SIM_MODEL_STORAGE_H
#define UNMASK_SIM_MODEL_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/num.h"
#include "sim/model/weight_slot.h"

enum number_type { NUMBER_BF16, NUMBER_F32, NUMBER_FP8, NUMBER_FP8_CHANNEL };
enum { NUMBER_TYPES = NUMBER_FP8_CHANNEL + 1 };
extern const char *const number_words[NUMBER_TYPES + 1]; /* "bf16", ...; NULL ends them */

enum { BF16_BYTES = 2, F32_BYTES = 4, F64_BYTES = 8, FP8_BYTES = 1 };
enum { SCALE_GROUP = 128 }; /* numbers of fp8 that share a scale, in each direction */
enum { FP8_INPUT_ALIGN = 128 };

/* The types of weights, of the inputs of products, of cached rows, of the output head and of all
 * that is not in fp8, each enum number_type. Zeros are bf16 throughout. */
struct storage {
    uint8_t weights, activations, cache, head, wide;
};

static inline bool number_is_fp8(enum number_type type) {
    return type == NUMBER_FP8 || type == NUMBER_FP8_CHANNEL;
}

/* What stands next to numbers of that type where nothing else is said. */
static inline enum number_type number_wide(enum number_type type) {
    return number_is_fp8(type) ? NUMBER_BF16 : type;
}

/* One type throughout. */
static inline struct storage storage_of(enum number_type type) {
    return (struct storage){.weights = (uint8_t)type,
                            .activations = (uint8_t)type,
                            .cache = (uint8_t)type,
                            .head = (uint8_t)type,
                            .wide = (uint8_t)number_wide(type)};
}

static inline bool storage_is(const struct storage *storage, enum number_type type) {
    return storage->weights == type && storage->activations == type && storage->cache == type &&
           storage->head == type;
}

/* Of one number, without its share of a scale. */
static inline int64_t number_bytes(enum number_type type) {
    return type == NUMBER_F32 ? F32_BYTES : number_is_fp8(type) ? FP8_BYTES : BF16_BYTES;
}

/* Of a type of fp8: how many numbers of a row of n, and how many rows of a matrix, share a scale.
 */
static inline int64_t number_scale_columns(enum number_type type, int64_t n) {
    return type == NUMBER_FP8_CHANNEL && n > 0 ? n : SCALE_GROUP;
}

static inline int64_t number_scale_rows(enum number_type type) {
    return type == NUMBER_FP8_CHANNEL ? 1 : SCALE_GROUP;
}

/* A row of n numbers, and a matrix of n rows of k, with their scales. */
static inline int64_t number_row_bytes(enum number_type type, int64_t n) {
    const int64_t scales = number_is_fp8(type) ? ceil_div(n, number_scale_columns(type, n)) : 0;
    return n * number_bytes(type) + scales * F32_BYTES;
}

/* The same row as a product reads it: in fp8 a multiple of FP8_INPUT_ALIGN bytes. */
static inline int64_t number_input_bytes(enum number_type type, int64_t n) {
    const int64_t bytes = number_row_bytes(type, n);
    return number_is_fp8(type) ? ceil_div(bytes, FP8_INPUT_ALIGN) * FP8_INPUT_ALIGN : bytes;
}

static inline int64_t number_matrix_bytes(enum number_type type, int64_t n, int64_t k) {
    const int64_t scales = number_is_fp8(type) ? ceil_div(n, number_scale_rows(type)) *
                                                     ceil_div(k, number_scale_columns(type, k))
                                               : 0;
    return n * k * number_bytes(type) + scales * F32_BYTES;
}

/* Type of the weights in that slot, and of the input that they are multiplied with: of an fp8
 * weight the activations' type, of any other the wide one. */
enum number_type storage_weight(const struct storage *storage, enum weight_slot slot);
enum number_type storage_input(const struct storage *storage, enum weight_slot slot);

#endif
