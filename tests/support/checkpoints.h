/* What test_weights.c and test_weights_fit.c share. */
#ifndef UNMASK_TESTS_SUPPORT_CHECKPOINTS_H
#define UNMASK_TESTS_SUPPORT_CHECKPOINTS_H

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/weights/checkpoint.h"
#include "engine/weights/safetensors.h"
#include "engine/weights/truncated.h"
#include "kernels/bf16.h"
#include "kernels/rules/keyed.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"

enum { FILE_BYTES = 1 << 24 };

/* Length, header, then `data_bytes` bytes of `data` (or zeros). Returns the whole size. */
static inline size_t make_file(unsigned char *file, const char *header, const void *data,
                               size_t data_bytes) {
    size_t n = strlen(header);
    ck_assert(8 + n + data_bytes <= FILE_BYTES);
    for (int i = 0; i < 8; i++) {
        file[i] = (unsigned char)((uint64_t)n >> 8 * i);
    }
    memcpy(file + 8, header, n);
    memset(file + 8 + n, 0, data_bytes);
    if (data != NULL) {
        memcpy(file + 8 + n, data, data_bytes);
    }
    return 8 + n + data_bytes;
}

static char folder[80];

/* A folder of its own for a test. */
static inline void enter_folder(void) {
    snprintf(folder, sizeof folder, "%s/XXXXXX", scratch_folder);
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void write_file(const char *name, const void *bytes, size_t size) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static inline void write_text(const char *name, const char *text) {
    write_file(name, text, strlen(text));
}

/* The sentence about the folder, with its own name written as "DIR". */
static inline const char *shorten(const char *sentence) {
    static char text[1024];
    size_t used = 0;
    for (const char *at = sentence; *at != '\0' && used + 4 < sizeof text;) {
        if (strncmp(at, folder, strlen(folder)) == 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "DIR");
            at += strlen(folder);
        } else {
            text[used++] = *at++;
        }
    }
    text[used] = '\0';
    return text;
}

static const struct model dream = {"dream-test", .family = "Dream", .layers = 2,   .hidden = 6,
                                   .heads = 3,   .kv_heads = 1,     .head_dim = 2, .ffn = 5,
                                   .vocab = 7,   .qkv_bias = true};
static const struct model llada = {"llada-test",  .family = "llada", .layers = 1,
                                   .hidden = 4,   .heads = 2,        .kv_heads = 2,
                                   .head_dim = 2, .ffn = 3,          .vocab = 5};

/* One changed thing of a checkpoint that is otherwise sound. */
struct damage {
    const char *missing;  /* a tensor that is left out */
    const char *reshaped; /* a tensor that is written as one row */
    const char *extra;    /* a tensor of one number that is added */
    const char *type;     /* of the extra one, of four bytes; NULL: F32 */
    int head;             /* of a tied model: 1: its embedding again, 2: other numbers */
    const char *config;
};

static const char dream_config[] =
    "{\"model_type\":\"Dream\",\"rope_theta\":10000,\"rms_norm_eps\":0.5}";

/* A number that tells the tensor and the element apart. */
static inline float mark(enum weight_slot slot, int part, uint32_t layer, int64_t i) {
    return (float)(((int)slot * 16 + part) * 4 + (int)layer) * 512 + (float)i;
}

/* Parts that a layer has of a slot. */
static inline int parts_of(const struct model *model, enum weight_slot slot, uint32_t layer) {
    bool is_here = !weight_is_per_layer(slot) || weight_is_of_layer(model, slot, layer);
    return is_here ? weight_part_count(model, slot) : 0;
}

/* Rows of all parts of a slot together. */
static inline int64_t rows_of(const struct model *model, enum weight_slot slot) {
    int64_t sum = 0, n_rows, n_columns;
    for (int part = 0; weight_part_shape(model, slot, part, &n_rows, &n_columns); part++) {
        sum += n_rows;
    }
    return sum;
}

static inline void write_checkpoint(const struct model *model, const struct damage *damage) {
    static char header[1 << 16];
    static float data[FILE_BYTES / 4];
    static unsigned char file[FILE_BYTES];
    struct err err = {0};
    struct checkpoint_family opened, *family = &opened;
    ck_assert_msg(checkpoint_family_open(model, family, &err) == 0, "%s", err.text);
    size_t used = (size_t)snprintf(header, sizeof header, "{");
    int64_t n = 0;
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        for (int s = 0; s < WEIGHT_SLOT_COUNT; s++) {
            enum weight_slot slot = (enum weight_slot)s;
            bool is_whole = checkpoint_stores_whole(family, slot);
            for (int part = 0; part < parts_of(model, slot, layer); part++) {
                int64_t n_rows, n_columns;
                char name[128], shape[64];
                bool exists = weight_part_shape(model, slot, part, &n_rows, &n_columns);
                bool again = slot == WEIGHT_HEAD && part == 0 && damage->head > 0;
                if ((!exists && !again) || (layer > 0 && !weight_is_per_layer(slot))) {
                    continue;
                }
                checkpoint_tensor_name(family, slot, part, layer, name, sizeof name);
                if (damage->missing != NULL && strcmp(name, damage->missing) == 0) {
                    continue;
                }
                int64_t dims[2] = {is_whole ? rows_of(model, slot) : n_rows, n_columns};
                uint32_t n_dims = n_columns > 1 ? 2 : 1;
                if (damage->reshaped != NULL && strcmp(name, damage->reshaped) == 0) {
                    dims[1] *= dims[0];
                    dims[0] = 1;
                    n_dims = 2;
                }
                stored_shape_text(dims, n_dims, shape, sizeof shape);
                int64_t size = n_rows * n_columns, stored = dims[0] * dims[1];
                if (!is_whole || part == 0) {
                    used += (size_t)snprintf(header + used, sizeof header - used,
                                             "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,"
                                             "\"data_offsets\":[%ld,%ld]}",
                                             n > 0 ? "," : "", name, shape, (long)(4 * n),
                                             (long)(4 * (n + stored)));
                }
                for (int64_t i = 0; i < size; i++) {
                    bool copies = again && damage->head == 1;
                    data[n++] = mark(copies ? WEIGHT_EMBEDDING : slot, part, layer, i);
                }
            }
        }
    }
    if (damage->extra != NULL) {
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 ",\"%s\":{\"dtype\":\"%s\",\"shape\":[1],"
                                 "\"data_offsets\":[%ld,%ld]}",
                                 damage->extra, damage->type != NULL ? damage->type : "F32",
                                 (long)(4 * n), (long)(4 * n + 4));
        n++;
    }
    checkpoint_family_close(family);
    snprintf(header + used, sizeof header - used, "}");
    write_file("model.safetensors", file, make_file(file, header, data, (size_t)(4 * n)));
    write_text("config.json", damage->config);
}

/* The CPU in either dtype; closed at the end of a test by close_devices. */
static struct engine_device devices[KERNEL_F32 + 1];

static inline const struct engine_device *device(enum kernel_dtype dtype) {
    struct err err = {0};
    if (devices[dtype].device == NULL) {
        ck_assert_int_eq(engine_device_start(&device_cpu, dtype, &devices[dtype], &err), 0);
    }
    return &devices[dtype];
}

/* Nothing is left on them. */
static inline void close_devices(void) {
    for (int dtype = 0; dtype <= KERNEL_F32; dtype++) {
        if (devices[dtype].device != NULL) {
            ck_assert_int_eq(device_cpu.allocated_bytes(devices[dtype].device), 0);
            engine_device_close(&devices[dtype]);
        }
    }
}

static inline const char *checkpoint_error(const struct model *model, const struct damage *damage) {
    struct err err = {0};
    struct weights weights;
    write_checkpoint(model, damage);
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), model, folder, &err), ERR_WORLD);
    ck_assert_ptr_null(weights.block);
    return shorten(err.text);
}

/* Shapes as each family has them: head norms, biases, tied heads. */
static const struct {
    struct model model;
    const char *config;
} families[] = {
    {{.name = "sdar-test", .family = "sdar", .qk_norm = true, .tied = true},
     "\"model_type\":\"sdar\""},
    {{.name = "sdar-test", .family = "sdar", .qk_norm = true},
     "\"model_type\":\"sdar\",\"rope_scaling\":null"},
    {{.name = "fast-test", .family = "Fast_dLLM_Qwen", .qkv_bias = true},
     "\"model_type\":\"Fast_dLLM_Qwen\""},
    {{.name = "qwen2.5-test", .family = "qwen2", .qkv_bias = true, .tied = true},
     "\"model_type\":\"qwen2\",\"rope_scaling\":{\"rope_type\":\"default\"}"},
    {{.name = "llada-test", .family = "llada", .qk_norm = true},
     "\"model_type\":\"llada\",\"qk_norm\":true,\"n_layers\":2"},
    {{.name = "llama-test", .family = "llama"},
     "\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
     "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":8192}"},
};

/* Two layers of so few channels that a checkpoint is written out by hand. */
static inline struct model small_model(struct model model) {
    model.layers = 2;
    model.hidden = 6;
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 2;
    model.vocab = 7;
    return model;
}

static inline struct model family_model(size_t i) {
    struct model model = small_model(families[i].model);
    model.ffn = 5;
    return model;
}

static inline const char *family_config(const char *facts) {
    static char text[512];
    snprintf(text, sizeof text, "{%s,\"rope_theta\":5e5,\"rms_norm_eps\":1e-5}", facts);
    return text;
}

/* Shapes as the mixtures have them: groups, a bias, an expert that is shared, a dense layer first,
 * one matrix of queries, keys and values. */
static const struct {
    struct model model;
    const char *config;
    int64_t n_numbers;
} mixtures[] = {
    {{.name = "llada-moe-test", .family = "lladamoe", .router = ROUTER_SOFTMAX, .qk_norm = true},
     "\"model_type\":\"lladamoe\"",
     2 * (160 + 4 * 6 + 4 * 54)},
    {{.name = "sdar-moe-test", .family = "sdar_moe", .router = ROUTER_SOFTMAX, .qk_norm = true},
     "\"model_type\":\"sdar_moe\"",
     2 * (160 + 4 * 6 + 4 * 54)},
    {{.name = "llada2-test",
      .family = "llada2_moe",
      .router = ROUTER_SIGMOID_GROUPED,
      .qk_norm = true,
      .ffn = 5,
      .shared_experts = 2,
      .shared_ffn = 2,
      .dense_layers = 1,
      .expert_bias = true},
     "\"model_type\":\"llada2_moe\"",
     2 * 160 + 3 * 30 + 4 * 6 + 4 + 4 * 54 + 3 * 24},
};

static inline struct model mixture_model(size_t i) {
    struct model model = small_model(mixtures[i].model);
    model.experts = 4;
    model.experts_active = 2;
    model.expert_ffn = 3;
    return model;
}

#endif
