#include "engine/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint.h"
#include "engine/safetensors.h"
#include "kernels/bf16.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"

const char *const weight_slot_names[WEIGHT_SLOT_COUNT] = {
    "embedding", "final norm", "head",   "attention norm", "qkv",     "qkv bias",
    "q norm",    "k norm",     "output", "ffn norm",       "gate up", "down",
};

/* ---- layout ---- */

static int64_t element_bytes(enum kernel_dtype dtype) {
    return dtype == KERNEL_F32 ? F32_BYTES : BF16_BYTES;
}

static int part_count(enum weight_slot slot) {
    return slot == WEIGHT_QKV || slot == WEIGHT_QKV_BIAS ? 3 : slot == WEIGHT_GATE_UP ? 2 : 1;
}

bool weight_part_shape(const struct model *model, enum weight_slot slot, int part, int64_t *n_rows,
                       int64_t *n_columns) {
    int64_t hidden = model->hidden, q_dim = (int64_t)model->heads * model->head_dim;
    int64_t part_dim = part == 0 ? q_dim : (int64_t)model->kv_heads * model->head_dim;
    bool exists = part < part_count(slot);
    *n_columns = 1;
    switch (slot) {
    case WEIGHT_EMBEDDING:
        *n_rows = model->vocab;
        *n_columns = hidden;
        break;
    case WEIGHT_HEAD:
        *n_rows = model->vocab;
        *n_columns = hidden;
        exists = exists && !model->tied;
        break;
    case WEIGHT_FINAL_NORM:
    case WEIGHT_ATTENTION_NORM:
    case WEIGHT_FFN_NORM:
        *n_rows = hidden;
        break;
    case WEIGHT_QKV:
        *n_rows = part_dim;
        *n_columns = hidden;
        break;
    case WEIGHT_QKV_BIAS:
        *n_rows = part_dim;
        exists = exists && model->qkv_bias;
        break;
    case WEIGHT_Q_NORM:
    case WEIGHT_K_NORM:
        *n_rows = model->head_dim;
        exists = exists && model->qk_norm;
        break;
    case WEIGHT_OUTPUT:
        *n_rows = hidden;
        *n_columns = q_dim;
        break;
    case WEIGHT_GATE_UP:
        *n_rows = model->ffn;
        *n_columns = hidden;
        break;
    case WEIGHT_DOWN:
        *n_rows = hidden;
        *n_columns = model->ffn;
        break;
    }
    return exists;
}

static int64_t slot_bytes(const struct weight_layout *layout, enum weight_slot slot) {
    int64_t bytes = 0;
    for (int part = 0; part < part_count(slot); part++) {
        int64_t n_rows, n_columns;
        if (weight_part_shape(layout->model, slot, part, &n_rows, &n_columns)) {
            bytes += n_rows * n_columns * element_bytes(layout->dtype);
        }
    }
    return bytes;
}

int weight_layout_make(struct weight_layout *layout, const struct model *model,
                       enum kernel_dtype dtype, struct err *err) {
    if (model->experts > 0) {
        return err_usage(err, "model '%s' is a mixture of experts, which the engine does not run",
                         model->name);
    }
    *layout = (struct weight_layout){.model = model, .dtype = dtype};
    int64_t end = 0, layers_start = 0;
    for (int slot = 0; slot < WEIGHT_SLOT_COUNT; slot++) {
        layers_start = slot == WEIGHT_ATTENTION_NORM ? end : layers_start;
        int64_t bytes = slot_bytes(layout, (enum weight_slot)slot);
        layout->offset_bytes[slot] = bytes > 0 ? end : -1;
        end += ceil_div(bytes, WEIGHT_ALIGN_BYTES) * WEIGHT_ALIGN_BYTES;
    }
    if (model->tied) {
        layout->offset_bytes[WEIGHT_HEAD] = layout->offset_bytes[WEIGHT_EMBEDDING];
    }
    layout->layer_bytes = end - layers_start;
    layout->bytes = layers_start + model->layers * layout->layer_bytes;
    return 0;
}

/* ---- sources ---- */

enum { PIECE_ELEMENTS = 1 << 16 };

/* One reading: a source, a sink, and the piece on its way between them. */
struct reading {
    const struct weight_layout *layout;
    const struct checkpoint_family *family;
    bool is_random;
    uint64_t seed;
    struct safetensors files;
    const char *folder;
    const struct weight_sink *sink;
    struct err *err;
    float *values;
    uint16_t *rounded;
};

/* The part of a slot being read. */
struct part {
    enum weight_slot slot;
    int index;
    uint32_t layer;
    int64_t n_rows, n_columns;
    int64_t offset_bytes;
};

static bool is_norm(enum weight_slot slot) {
    return slot == WEIGHT_FINAL_NORM || slot == WEIGHT_ATTENTION_NORM || slot == WEIGHT_FFN_NORM ||
           slot == WEIGHT_Q_NORM || slot == WEIGHT_K_NORM;
}

/* A uniform draw in (-s, s) has the variance s^2 / 3. No draw is 0: rng_uniform is an odd multiple
 * of 2^-54, never one half. */
static void draw(struct rng *rng, const struct reading *r, const struct part *part, int64_t n) {
    int64_t fan_in = part->slot == WEIGHT_EMBEDDING  ? 1
                     : part->slot == WEIGHT_QKV_BIAS ? r->layout->model->hidden
                                                     : part->n_columns;
    double centre = is_norm(part->slot) ? 1 : 0;
    double spread = is_norm(part->slot) ? 0.25 : sqrt(3.0 / (double)fan_in);
    for (int64_t i = 0; i < n; i++) {
        r->values[i] = (float)(centre + spread * (2 * rng_uniform(rng) - 1));
    }
}

static int put(const struct reading *r, int64_t offset_bytes, int64_t n) {
    const void *data = r->values;
    if (r->layout->dtype == KERNEL_BF16) {
        for (int64_t i = 0; i < n; i++) {
            r->rounded[i] = bf16_from_float(r->values[i]);
        }
        data = r->rounded;
    }
    return r->sink->put(r->sink->context, offset_bytes, data, n * element_bytes(r->layout->dtype),
                        r->err);
}

/* The stored tensor of a part, with the shape it must have. */
static const struct stored_tensor *find_part(const struct reading *r, const struct part *part) {
    char name[256], found[128], wanted[128];
    checkpoint_tensor_name(r->family, part->slot, part->index, part->layer, name, sizeof name);
    const struct stored_tensor *tensor = safetensors_find(&r->files, name);
    if (tensor == NULL) {
        err_world(r->err, "%s: has no tensor '%s', which model '%s' needs", r->folder, name,
                  r->layout->model->name);
        return NULL;
    }
    uint32_t n_dims = part->n_columns > 1 ? 2 : 1;
    const int64_t shape[2] = {part->n_rows, part->n_columns};
    if (tensor->n_dims != n_dims || memcmp(tensor->shape, shape, n_dims * sizeof shape[0]) != 0) {
        err_world(r->err, "%s: tensor '%s' is %s, but model '%s' needs %s", tensor->file, name,
                  stored_shape_text(tensor->shape, tensor->n_dims, found, sizeof found),
                  r->layout->model->name, stored_shape_text(shape, n_dims, wanted, sizeof wanted));
        return NULL;
    }
    return tensor;
}

static int read_part(const struct reading *r, const struct part *part) {
    const struct stored_tensor *tensor = NULL;
    struct rng rng = {{0}};
    if (!r->is_random) {
        tensor = find_part(r, part);
        if (tensor == NULL) {
            return err_status(r->err);
        }
    } else {
        char stream[128];
        snprintf(stream, sizeof stream, "weights %s %d of layer %" PRIu32,
                 weight_slot_names[part->slot], part->index, part->layer);
        rng = rng_stream(r->seed, stream);
    }
    int64_t n = part->n_rows * part->n_columns;
    for (int64_t first = 0; first < n; first += PIECE_ELEMENTS) {
        int64_t piece = n - first < PIECE_ELEMENTS ? n - first : PIECE_ELEMENTS;
        if (tensor != NULL) {
            stored_read(tensor, first, piece, r->values);
        } else {
            draw(&rng, r, part, piece);
        }
        int status = put(r, part->offset_bytes + first * element_bytes(r->layout->dtype), piece);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

static int read_slot(const struct reading *r, enum weight_slot slot, uint32_t layer) {
    struct part part = {
        .slot = slot, .layer = layer, .offset_bytes = weight_offset_bytes(r->layout, slot, layer)};
    for (; part.index < part_count(slot); part.index++) {
        if (!weight_part_shape(r->layout->model, slot, part.index, &part.n_rows, &part.n_columns)) {
            continue;
        }
        int status = read_part(r, &part);
        if (status != 0) {
            return status;
        }
        part.offset_bytes += part.n_rows * part.n_columns * element_bytes(r->layout->dtype);
    }
    return 0;
}

static int read_slots(const struct reading *r) {
    int status = 0;
    for (int slot = 0; !weight_is_per_layer((enum weight_slot)slot) && status == 0; slot++) {
        status = read_slot(r, (enum weight_slot)slot, 0);
    }
    for (uint32_t layer = 0; layer < r->layout->model->layers && status == 0; layer++) {
        for (int slot = WEIGHT_ATTENTION_NORM; slot < WEIGHT_SLOT_COUNT && status == 0; slot++) {
            status = read_slot(r, (enum weight_slot)slot, layer);
        }
    }
    return status;
}

/* A checkpoint with more layers, biases or head norms than the model is another model's. */
static int check_surplus(const struct reading *r) {
    const struct model *model = r->layout->model;
    char name[256];
    for (int slot = WEIGHT_ATTENTION_NORM; slot < WEIGHT_SLOT_COUNT; slot++) {
        uint32_t layer = r->layout->offset_bytes[slot] < 0 ? 0 : model->layers;
        checkpoint_tensor_name(r->family, (enum weight_slot)slot, 0, layer, name, sizeof name);
        if (safetensors_find(&r->files, name) != NULL) {
            return err_world(r->err,
                             "%s: holds a tensor '%s', for which model '%s' has no place: this is "
                             "another model",
                             r->folder, name, model->name);
        }
    }
    return 0;
}

static int read_checkpoint(struct reading *r, struct weight_constants *constants) {
    int status = checkpoint_constants(r->family, r->folder, constants, r->err);
    if (status != 0) {
        return status;
    }
    status = safetensors_open(r->folder, &r->files, r->err);
    if (status != 0) {
        return status;
    }
    status = check_surplus(r);
    status = status == 0 ? read_slots(r) : status;
    safetensors_close(&r->files);
    return status;
}

int weights_read(const struct weight_layout *layout, const char *source,
                 const struct weight_sink *sink, struct weight_constants *constants,
                 struct err *err) {
    static const char random_prefix[] = "random:";
    struct reading r = {.layout = layout, .folder = source, .sink = sink, .err = err};
    r.family = checkpoint_family_find(layout->model, err);
    if (r.family == NULL) {
        return err_status(err);
    }
    r.is_random = strncmp(source, random_prefix, sizeof random_prefix - 1) == 0;
    if (r.is_random && !num_u64(source + sizeof random_prefix - 1, UINT64_MAX, &r.seed)) {
        return err_usage(
            err, "weights '%s': random weights are written random:SEED, a whole number", source);
    }
    r.values = malloc(PIECE_ELEMENTS * sizeof *r.values);
    r.rounded = malloc(PIECE_ELEMENTS * sizeof *r.rounded);
    int status;
    if (r.values == NULL || r.rounded == NULL) {
        status = err_world(err, "no memory to read the weights through");
    } else if (r.is_random) {
        *constants = r.family->constants;
        status = read_slots(&r);
    } else {
        status = read_checkpoint(&r, constants);
    }
    free(r.values);
    free(r.rounded);
    return status;
}

/* ---- host memory ---- */

static int put_host(void *context, int64_t offset_bytes, const void *data, int64_t bytes,
                    struct err *err) {
    (void)err;
    memcpy((unsigned char *)context + offset_bytes, data, (size_t)bytes);
    return 0;
}

int weights_open(struct weights *weights, const struct model *model, const char *source,
                 enum kernel_dtype dtype, struct err *err) {
    *weights = (struct weights){0};
    int status = weight_layout_make(&weights->layout, model, dtype, err);
    if (status != 0) {
        return status;
    }
    weights->block = aligned_alloc(WEIGHT_ALIGN_BYTES, (size_t)weights->layout.bytes);
    if (weights->block == NULL) {
        char size[32];
        return err_world(err, "no memory for the %s of weights of model '%s'",
                         num_format_bytes(size, sizeof size, (double)weights->layout.bytes),
                         model->name);
    }
    const struct weight_sink sink = {weights->block, put_host};
    status = weights_read(&weights->layout, source, &sink, &weights->constants, err);
    if (status != 0) {
        weights_close(weights);
    }
    return status;
}

void weights_close(struct weights *weights) {
    free(weights->block);
    *weights = (struct weights){0};
}
