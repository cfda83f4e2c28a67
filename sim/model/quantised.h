/* What config.json says of quantised weights: the two layouts of fp8 that are read, and the methods
 * that are refused by their names. */
#ifndef UNMASK_SIM_MODEL_QUANTISED_H
#define UNMASK_SIM_MODEL_QUANTISED_H

#include <jansson.h>

#include "sim/base/err.h"
#include "sim/model/storage.h"

/* The type of the weights that products read, by `config`, the file's quantization_config:
 * NUMBER_FP8 with a scale for each 128 x 128, NUMBER_FP8_CHANNEL with one for each row, or for a
 * whole matrix. Read are quant_method fp8 (DeepSeek's and vLLM's form), fbgemm_fp8 and
 * compressed-tensors, each with inputs quantised as they come or not at all. ERR_WORLD naming the
 * method, or the key, of all others; `path` is for the sentence. */
int quantised_type(const json_t *config, const char *path, enum number_type *out, struct err *err);

/* ERR_WORLD where a file hf_quant_config.json next to `path` says that modelopt quantised the
 * weights, as NVIDIA's checkpoints do whose config.json says nothing of it. */
int quantised_beside(const char *path, struct err *err);

#endif
