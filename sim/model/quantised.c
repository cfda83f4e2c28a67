#include "sim/model/quantised.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/text.h"

enum { FOUND_CHARS = 96, PATH_CHARS = 4224 };

struct asked {
    const char *path, *method;
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

/* The sentence about one key, with what stands there where that is short. */
static int refuse(const struct asked *a, const json_t *object, const char *key, const char *read) {
    const json_t *value = json_object_get(object, key);
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const size_t length = text != NULL ? strlen(text) : 0;
    err_world(a->err,
              "%s: the weights are quantised by %s, and %s of quantization_config is %.*s%s; %s",
              a->path, a->method, key, length > FOUND_CHARS ? FOUND_CHARS : (int)length,
              text != NULL ? text : "",
              text == NULL           ? "not there"
              : length > FOUND_CHARS ? "..."
                                     : "",
              read);
    free(text);
    return err_status(a->err);
}

/* A list, or as older files of compressed-tensors have it "128x128". */
static bool is_square(const json_t *value) {
    const char *text = json_string_value(value);
    int64_t high = json_integer_value(json_array_get(value, 0)),
            wide = json_integer_value(json_array_get(value, 1));
    if (text != NULL && sscanf(text, "%" SCNd64 "x%" SCNd64, &high, &wide) != 2) {
        return false;
    }
    return (text != NULL || json_array_size(value) == 2) && high == SCALE_GROUP &&
           wide == SCALE_GROUP;
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
    if (json_is_false(at(weights, "symmetric"))) {
        return refuse(a, weights, "symmetric", "weights without zero points are read");
    }
    if (at(group, "output_activations") != NULL) {
        return refuse(a, group, "output_activations", "outputs that stay wide are read");
    }
    if (strategy != NULL && strcmp(strategy, "block") == 0) {
        *a->out = NUMBER_FP8;
        return is_square(at(weights, "block_structure"))
                   ? 0
                   : refuse(a, weights, "block_structure", "[128, 128] is read");
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
    if (json_object_size(at(config, "transform_config")) > 0) {
        return refuse(a, config, "transform_config",
                      "weights and inputs that are not rotated are read");
    }
    if (!says(at(config, "sparsity_config"), "format", "dense")) {
        return refuse(a, config, "sparsity_config", "weights that are stored whole are read");
    }
    return read_group(a, json_object_iter_value(json_object_iter((json_t *)(uintptr_t)groups)));
}

static const struct {
    const char *name;
    int (*read)(const struct asked *a, const json_t *config);
} methods[] = {
    {"fp8", read_fp8}, {"fbgemm_fp8", read_rows}, {"compressed-tensors", read_compressed}};

int quantised_type(const json_t *config, const char *path, enum number_type *out, struct err *err) {
    const char *method = word_at(config, "quant_method");
    if (method == NULL &&
        (at(config, "load_in_8bit") != NULL || at(config, "load_in_4bit") != NULL)) {
        method = "bitsandbytes"; /* as its files said it before there was a quant_method */
    }
    const struct asked asked = {path, method, out, err};
    if (method == NULL) {
        return err_world(err, "%s: quantization_config names no quant_method", path);
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(methods[i].name, method) == 0) {
            return methods[i].read(&asked, config);
        }
    }
    const char *algorithm = word_at(config, "quant_algo"); /* modelopt's */
    return err_world(err,
                     "%s: the weights are quantised by %s%s%s, which nothing here reads: fp8, "
                     "fbgemm_fp8 and compressed-tensors of fp8 are read",
                     path, method, algorithm != NULL ? ", " : "",
                     algorithm != NULL ? algorithm : "");
}

int quantised_beside(const char *path, struct err *err) {
    static const char name[] = "hf_quant_config.json";
    const char *slash = strrchr(path, '/');
    char beside[PATH_CHARS];
    snprintf(beside, sizeof beside, "%.*s%s", slash != NULL ? (int)(slash + 1 - path) : 0, path,
             name);
    if (access(beside, F_OK) == 0) {
        json_t *root = json_read(beside, "the quantisation", JSON_REJECT_DUPLICATES, err);
        json_t *said = json_object_get(root, "quantization");
        enum number_type type;
        if (at(said, "quant_algo") != NULL) {
            json_object_set_new(said, "quant_method", json_string("modelopt"));
            (void)quantised_type(said, beside, &type, err);
        }
        json_decref(root);
    }
    return err->kind;
}
