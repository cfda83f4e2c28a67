#include "sim/model/quantised.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct asked {
    const char *path;
    enum number_type *out;
    struct err *err;
};

/* NULL where there is none, or null. */
static const json_t *at(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static const char *word_at(const json_t *object, const char *key) {
    return json_string_value(at(object, key));
}

/* Whether it says nothing of the key, or this. */
static bool says(const json_t *object, const char *key, const char *word) {
    const char *found = word_at(object, key);
    return at(object, key) == NULL || (found != NULL && strcmp(found, word) == 0);
}

/* The sentence about one key, with what stands there. */
static int refuse(const struct asked *a, const json_t *object, const char *key, const char *read) {
    const json_t *value = json_object_get(object, key);
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    err_world(a->err, "%s: %s of quantization_config is %s; %s", a->path, key,
              text != NULL ? text : "not there", read);
    free(text);
    return err_status(a->err);
}

static bool is_square(const json_t *value) {
    return json_array_size(value) == 2 &&
           json_integer_value(json_array_get(value, 0)) == SCALE_GROUP &&
           json_integer_value(json_array_get(value, 1)) == SCALE_GROUP;
}

/* DeepSeek's: scales of squares, where it says weight_block_size; vLLM's: of whole matrices. */
static int read_fp8(const struct asked *a, const json_t *config) {
    const json_t *block = at(config, "weight_block_size");
    if (block != NULL && !is_square(block)) {
        return refuse(a, config, "weight_block_size", "[128, 128] is read");
    }
    if (!says(config, "fmt", "e4m3")) {
        return refuse(a, config, "fmt", "e4m3 is read");
    }
    if (at(config, "scale_fmt") != NULL) {
        return refuse(a, config, "scale_fmt", "scales in float32 are read");
    }
    if (!says(config, "activation_scheme", "dynamic")) {
        return refuse(a, config, "activation_scheme",
                      "inputs are quantised as they come: dynamic is read");
    }
    *a->out = block != NULL ? NUMBER_FP8 : NUMBER_FP8_CHANNEL;
    return 0;
}

static int read_rows(const struct asked *a, const json_t *config) {
    (void)config;
    *a->out = NUMBER_FP8_CHANNEL;
    return 0;
}

/* Weights and inputs of one group of layers. */
static int read_group(const struct asked *a, const json_t *group) {
    const json_t *weights = at(group, "weights"), *inputs = at(group, "input_activations");
    const char *strategy = word_at(weights, "strategy");
    const bool is_fp8 =
        json_integer_value(at(weights, "num_bits")) == 8 && says(weights, "type", "float");
    if (!is_fp8 || at(weights, "type") == NULL) {
        return refuse(a, group, "weights", "floats of 8 bits (e4m3) are read");
    }
    if (inputs != NULL &&
        (json_integer_value(at(inputs, "num_bits")) != 8 || !says(inputs, "type", "float") ||
         !json_is_true(at(inputs, "dynamic")))) {
        return refuse(a, group, "input_activations",
                      "floats of 8 bits, quantised as they come (dynamic), are read");
    }
    if (strategy != NULL && strcmp(strategy, "block") == 0 &&
        is_square(at(weights, "block_structure"))) {
        *a->out = NUMBER_FP8;
        return 0;
    }
    if (strategy == NULL || (strcmp(strategy, "channel") != 0 && strcmp(strategy, "tensor") != 0)) {
        return refuse(a, weights, "strategy", "channel, tensor and blocks of 128 x 128 are read");
    }
    *a->out = NUMBER_FP8_CHANNEL;
    return 0;
}

static int read_compressed(const struct asked *a, const json_t *config) {
    const json_t *groups = at(config, "config_groups");
    if (json_object_size(groups) != 1) {
        return refuse(a, config, "config_groups", "one group is read");
    }
    if (at(config, "kv_cache_scheme") != NULL) {
        return refuse(a, config, "kv_cache_scheme",
                      "cached rows are quantised as they come (storage.cache)");
    }
    return read_group(a, json_object_iter_value(json_object_iter((json_t *)(uintptr_t)groups)));
}

static const struct {
    const char *name;
    int (*read)(const struct asked *a, const json_t *config);
} methods[] = {
    {"fp8", read_fp8}, {"fbgemm_fp8", read_rows}, {"compressed-tensors", read_compressed}};

int quantised_type(const json_t *config, const char *path, enum number_type *out, struct err *err) {
    const struct asked asked = {path, out, err};
    const char *method = word_at(config, "quant_method");
    if (method == NULL) {
        return err_world(err, "%s: quantization_config names no quant_method", path);
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(methods[i].name, method) == 0) {
            return methods[i].read(&asked, config);
        }
    }
    return err_world(err,
                     "%s: the weights are quantised by %s, which nothing here reads: fp8, "
                     "fbgemm_fp8 and compressed-tensors of fp8 are read",
                     path, method);
}
