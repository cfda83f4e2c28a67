#include "engine/weights/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/weights/checkpoint.h"
#include "engine/weights/quantiser.h"
#include "engine/weights/safetensors.h"
#include "kernels/bf16.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"

/* ---- parts ---- */

static void divide_rows(struct part *part, int64_t first, int64_t whole) {
    part->first_row = first;
    part->whole_rows = whole;
}

static void divide_columns(struct part *part, int64_t first, int64_t whole) {
    part->first_column = first;
    part->whole_columns = whole;
}

/* How many ranks have parts of their own of a slot: whole experts. */
static int n_owners(const struct model *model, enum weight_slot slot) {
    return weight_holds_experts(slot) && model->expert_ranks > 1 ? (int)model->expert_ranks : 1;
}

void weight_place_part(const struct weight_layout *layout, struct part *part) {
    const struct model *m = weight_model(layout, part->layer);
    const int64_t rank = layout->rank, ranks = model_ranks(m), head_dim = m->head_dim;
    const int64_t kv_rows = ranks / (m->kv_copies > 0 ? m->kv_copies : 1) * part->n_rows;
    part->first_row = part->first_column = 0;
    part->whole_rows = part->n_rows;
    part->whole_columns = part->n_columns;
    part->number = part->index;
    if (n_owners(m, part->slot) > 1) {
        part->number += (int)rank * weight_part_count(m, part->slot);
        return;
    }
    switch (part->slot) {
    case WEIGHT_QKV:
    case WEIGHT_QKV_BIAS:
        if (part->index == 0) {
            divide_rows(part, rank * part->n_rows, ranks * part->n_rows);
        } else {
            divide_rows(part, model_first_kv_head(m, layout->rank) * head_dim, kv_rows);
        }
        break;
    case WEIGHT_HEAD:
    case WEIGHT_GATE_UP:
    case WEIGHT_EXPERTS_GATE_UP:
    case WEIGHT_SHARED_GATE_UP:
    case WEIGHT_CONDITIONING_GATE_UP:
        divide_rows(part, rank * part->n_rows, ranks * part->n_rows);
        break;
    case WEIGHT_OUTPUT:
    case WEIGHT_DOWN:
    case WEIGHT_EXPERTS_DOWN:
    case WEIGHT_SHARED_DOWN:
    case WEIGHT_CONDITIONING_DOWN:
        divide_columns(part, rank * part->n_columns, ranks * part->n_columns);
        break;
    case WEIGHT_EMBEDDING:
    case WEIGHT_FINAL_NORM:
    case WEIGHT_ATTENTION_NORM:
    case WEIGHT_Q_NORM:
    case WEIGHT_K_NORM:
    case WEIGHT_FFN_NORM:
    case WEIGHT_ROUTER:
    case WEIGHT_EXPERT_BIAS:
    case WEIGHT_CONDITIONING_NORM:
    case WEIGHT_ATTENTION_OUTPUT_NORM:
    case WEIGHT_FFN_OUTPUT_NORM:
    case WEIGHT_EXPERT_NORM:
    case WEIGHT_EXPERT_OUTPUT_NORM:
    case WEIGHT_SHARED_OUTPUT_NORM:
        break;
    }
}

/* Calls `make` for every part of the model, in the order of the block, until one fails. */
static int for_each_part(const struct weight_layout *layout,
                         int (*make)(void *context, const struct part *part), void *context) {
    int status = 0;
    for (uint32_t layer = 0; layer < layout->model->layers; layer++) {
        for (int s = layer == 0 ? 0 : WEIGHT_ATTENTION_NORM; s < WEIGHT_SLOT_COUNT; s++) {
            struct part part = {.slot = (enum weight_slot)s, .layer = layer};
            part.offset_bytes = weight_offset_bytes(layout, part.slot, layer);
            bool is_here = !weight_is_per_layer(part.slot) ||
                           weight_is_of_layer(layout->model, part.slot, layer);
            int n_parts = is_here ? weight_part_count(layout->model, part.slot) : 0;
            for (; status == 0 && part.index < n_parts; part.index++) {
                if (weight_part_shape(weight_model(layout, layer), part.slot, part.index,
                                      &part.n_rows, &part.n_columns)) {
                    weight_place_part(layout, &part);
                    status = make(context, &part);
                    part.offset_bytes +=
                        part.n_rows * part.n_columns * weight_number_bytes(layout, part.slot);
                }
            }
        }
    }
    return status;
}

static bool is_norm(enum weight_slot slot) {
    switch (slot) {
    case WEIGHT_FINAL_NORM:
    case WEIGHT_ATTENTION_NORM:
    case WEIGHT_FFN_NORM:
    case WEIGHT_Q_NORM:
    case WEIGHT_K_NORM:
    case WEIGHT_CONDITIONING_NORM:
    case WEIGHT_ATTENTION_OUTPUT_NORM:
    case WEIGHT_FFN_OUTPUT_NORM:
    case WEIGHT_EXPERT_NORM:
    case WEIGHT_EXPERT_OUTPUT_NORM:
    case WEIGHT_SHARED_OUTPUT_NORM:
        return true;
    default:
        return false;
    }
}

/* ---- random weights ---- */

struct drawing {
    const struct weights *weights;
    uint64_t seed;
    struct quantiser quantiser; /* of what is in fp8 */
    struct err *err;
};

/* Sharp attention and small embeddings make a mixture's masked tokens, which are all the same one,
 * differ by what they see: else they would all go to the same experts. With head norms around 2,
 * steps of llada-moe-tiny and llada2-tiny hit 98 and 87 % of the experts that random choices would,
 * with 1 and embeddings of variance 1 it is 42 and 38 % (one block of 32 tokens). */
static double norm_centre(const struct model *model, enum weight_slot slot) {
    bool is_of_head = slot == WEIGHT_Q_NORM || slot == WEIGHT_K_NORM;
    return model->experts > 0 && is_of_head ? 2 : 1;
}

/* A uniform draw in (-s, s) has the variance s^2 / 3. An embedding that is the head, too, is drawn
 * as the head: else the stream would be so full of a position's own token that this is what it
 * predicts. Biases are small: what experts are drawn with is no more than a nudge. */
static struct call_random random_of(const struct drawing *d, const struct part *part) {
    const struct model *model = d->weights->layout.model;
    bool is_input = part->slot == WEIGHT_EMBEDDING && !model->tied && model->experts == 0;
    bool is_bias = part->slot == WEIGHT_QKV_BIAS || part->slot == WEIGHT_EXPERT_BIAS;
    int64_t fan_in = is_input ? 1 : is_bias ? model->hidden : part->whole_columns;
    char stream[128];
    snprintf(stream, sizeof stream, "weights %s %d of layer %" PRIu32,
             weight_slot_names[part->slot], part->number, part->layer);
    return (struct call_random){
        .y = d->weights->block + part->offset_bytes,
        .key = rng_stream(d->seed, stream).s[0],
        .first = part_whole_index(part, 0),
        .n = part->n_rows * part->n_columns,
        .run = part->n_columns,
        .stride = part->whole_columns,
        .centre = is_norm(part->slot) ? norm_centre(model, part->slot) : 0,
        .spread = is_norm(part->slot) ? 0.25 : sqrt(3.0 / (double)fan_in),
        .dtype = weight_dtype(part->slot, d->weights->layout.dtype),
    };
}

/* Rows [first, first + n) of a part, to the device's `values`. */
static int draw_rows(void *context, const struct part *part, int64_t first, int64_t n,
                     float *values) {
    struct drawing *d = context;
    const struct engine_device *device = d->weights->device;
    struct call_random call = random_of(d, part);
    call.y = values;
    call.first = part_whole_index(part, first * part->n_columns);
    call.n = n * part->n_columns;
    call.dtype = KERNEL_F32;
    return engine_device_err(device, device->table->random(device->device, &call),
                             "making random weights", d->err);
}

static int draw_part(void *context, const struct part *part) {
    struct drawing *d = context;
    const struct engine_device *device = d->weights->device;
    if (weight_is_fp8(&d->weights->layout, part->slot)) {
        const struct quantiser_source source = {.draws = true, .rows = draw_rows, .context = d};
        return part->index > 0 ? 0 : quantiser_fill(&d->quantiser, part, &source, d->err);
    }
    const struct call_random call = random_of(d, part);
    return engine_device_err(device, device->table->random(device->device, &call),
                             "making random weights", d->err);
}

static int draw_all(struct drawing *d) {
    int status = quantiser_open(&d->quantiser, d->weights, d->err);
    status = status == 0 ? for_each_part(&d->weights->layout, draw_part, d) : status;
    quantiser_close(&d->quantiser);
    return status;
}

/* ---- checkpoints ---- */

enum { PIECE_ELEMENTS = 1 << 20, N_BUFFERS = 2 };

/* One reading: pieces of stored tensors on their way through buffers that take turns, each of which
 * is free again once its event is reached. */
struct reading {
    const struct weights *weights;
    const struct engine_device *device;
    const struct checkpoint_family *family;
    struct safetensors files;
    struct quantiser quantiser;      /* of what is in fp8 */
    const struct stored_tensor *met; /* of those, the last */
    bool *is_claimed;                /* [n_tensors], while check_surplus runs */
    const char *folder;
    struct err *err;
    float *values; /* [PIECE_ELEMENTS] */
    void *buffers[N_BUFFERS];
    struct device_event *uploaded[N_BUFFERS];
    uint64_t n_pieces; /* so far */
};

static int device_err(const struct reading *r, int status, const char *what) {
    return engine_device_err(r->device, status, what, r->err);
}

/* n values of the slot to `offset_bytes` of the block. */
static int put(struct reading *r, enum weight_slot slot, int64_t offset_bytes, int64_t n) {
    const struct device_table *table = r->device->table;
    struct device *device = r->device->device;
    uint64_t turn = r->n_pieces++ % N_BUFFERS;
    enum kernel_dtype dtype = weight_dtype(slot, r->weights->layout.dtype);
    int status = r->n_pieces > N_BUFFERS ? table->event_wait(device, r->uploaded[turn]) : DEVICE_OK;
    if (status != DEVICE_OK) {
        return device_err(r, status, "waiting for weights to arrive");
    }
    if (dtype == KERNEL_F32) {
        memcpy(r->buffers[turn], r->values, (size_t)n * sizeof *r->values);
    } else {
        uint16_t *rounded = r->buffers[turn];
        for (int64_t i = 0; i < n; i++) {
            rounded[i] = bf16_from_float(r->values[i]);
        }
    }
    status = table->upload(device, r->weights->block + offset_bytes, r->buffers[turn],
                           n * weight_number_bytes(&r->weights->layout, slot));
    status = status == DEVICE_OK ? table->event_record(device, r->uploaded[turn]) : status;
    return device_err(r, status, "uploading weights");
}

/* The stored tensor that a part is, or is some rows of, with the shape it must have; and the first
 * of these rows. */
static const struct stored_tensor *find_part(const struct reading *r, const struct part *part,
                                             int64_t *first_row) {
    char name[256], found[128], wanted[128];
    int64_t n_rows = part->whole_rows;
    *first_row = 0;
    if (checkpoint_stores_whole(r->family, part->slot)) {
        const struct weight_layout *layout = &r->weights->layout;
        struct part beside = *part;
        n_rows = 0;
        for (beside.index = 0; weight_part_shape(layout->model, part->slot, beside.index,
                                                 &beside.n_rows, &beside.n_columns);
             beside.index++) {
            weight_place_part(layout, &beside);
            *first_row = beside.index == part->index ? n_rows : *first_row;
            n_rows += beside.whole_rows;
        }
    }
    if (checkpoint_tensor_name(r->family, part->slot, part->number, part->layer, name,
                               sizeof name) == NULL) {
        err_usage(r->err,
                  "model '%s' has a matrix '%s', and its family names no tensors for it: weights "
                  "are random (random:SEED) or of another model",
                  r->weights->layout.model->name, weight_slot_names[part->slot]);
        return NULL;
    }
    const struct stored_tensor *tensor = safetensors_find(&r->files, name);
    if (tensor == NULL) {
        err_world(r->err, "%s: has no tensor '%s', which model '%s' needs", r->folder, name,
                  r->weights->layout.model->name);
        return NULL;
    }
    if (stored_check_read(tensor, r->err) != 0) {
        return NULL;
    }
    uint32_t n_dims = part->n_columns > 1 ? 2 : 1;
    const int64_t shape[2] = {n_rows, part->whole_columns};
    if (tensor->n_dims != n_dims || memcmp(tensor->shape, shape, n_dims * sizeof shape[0]) != 0) {
        err_world(r->err, "%s: tensor '%s' is %s, but model '%s' needs %s", tensor->file, name,
                  stored_shape_text(tensor->shape, tensor->n_dims, found, sizeof found),
                  r->weights->layout.model->name,
                  stored_shape_text(shape, n_dims, wanted, sizeof wanted));
        return NULL;
    }
    return tensor;
}

/* A part's tensor, where in it the part begins, and the scales of one in fp8. */
static int find_stored(const struct reading *r, const struct part *part, struct stored_part *out) {
    *out = (struct stored_part){.part = part};
    out->tensor = find_part(r, part, &out->rows_before);
    return out->tensor == NULL ? err_status(r->err)
                               : stored_scales_find(&r->files, out->tensor, &out->scales, r->err);
}

static int read_rows(void *context, const struct part *part, int64_t first, int64_t n,
                     float *values) {
    struct reading *r = context;
    struct stored_part stored;
    int status = find_stored(r, part, &stored);
    if (status == 0) {
        stored_part_read(&stored, first * part->n_columns, n * part->n_columns, values);
    }
    return status;
}

/* The scales of rows [first, first + n) of a part as the checkpoint has them; none where it is not
 * in fp8. */
static int read_scales(void *context, const struct part *part, int64_t first, int64_t n,
                       enum number_type type, float *scales) {
    struct reading *r = context;
    struct stored_part stored;
    int status = find_stored(r, part, &stored);
    if (status != 0) {
        return status;
    }
    const struct stored_tensor *tensor = stored.tensor, *met = r->met != NULL ? r->met : tensor;
    r->met = tensor;
    return (tensor->dtype == STORED_E4M3) == (met->dtype == STORED_E4M3)
               ? stored_part_scales(&stored, first, n, type, scales, r->err)
               : err_world(r->err,
                           "%s: '%s' is %s and '%s' %s: weights in fp8 are read where all that "
                           "products read are; leave storage.weights out, and they are expanded",
                           r->folder, met->name, met->dtype_name, tensor->name, tensor->dtype_name);
}

static int read_codes(void *context, const struct part *part, int64_t first, int64_t n,
                      uint8_t *codes) {
    struct reading *r = context;
    struct stored_part stored;
    int status = find_stored(r, part, &stored);
    if (status == 0) {
        stored_part_codes(&stored, first * part->n_columns, n * part->n_columns, codes);
    }
    return status;
}

static int read_part(void *context, const struct part *part) {
    struct reading *r = context;
    struct stored_part stored;
    if (weight_is_fp8(&r->weights->layout, part->slot)) {
        const struct quantiser_source source = {false, read_rows, read_scales, read_codes, r};
        return part->index > 0 ? 0 : quantiser_fill(&r->quantiser, part, &source, r->err);
    }
    int64_t n = part->n_rows * part->n_columns;
    int64_t width = weight_number_bytes(&r->weights->layout, part->slot);
    int status = find_stored(r, part, &stored);
    for (int64_t first = 0; status == 0 && first < n; first += PIECE_ELEMENTS) {
        int64_t piece = n - first < PIECE_ELEMENTS ? n - first : PIECE_ELEMENTS;
        stored_part_read(&stored, first, piece, r->values);
        status = put(r, part->slot, part->offset_bytes + first * width, piece);
    }
    return status;
}

/* A tied model's checkpoint may hold the embedding a second time, as the head. */
static bool is_embedding_again(const struct reading *r, const struct stored_tensor *tensor) {
    char head[256], embedding[256];
    checkpoint_tensor_name(r->family, WEIGHT_HEAD, 0, 0, head, sizeof head);
    checkpoint_tensor_name(r->family, WEIGHT_EMBEDDING, 0, 0, embedding, sizeof embedding);
    const struct stored_tensor *first = safetensors_find(&r->files, embedding);
    return r->weights->layout.model->tied && strcmp(tensor->name, head) == 0 && first != NULL &&
           stored_equal(first, tensor);
}

/* Another rank's experts are the model's too. */
static int claim_part(void *context, const struct part *part) {
    const struct reading *r = context;
    const struct model *model = r->weights->layout.model;
    for (int owner = 0; owner < n_owners(model, part->slot); owner++) {
        char name[256];
        int number = part->index + owner * weight_part_count(model, part->slot);
        checkpoint_tensor_name(r->family, part->slot, number, part->layer, name, sizeof name);
        const struct stored_tensor *tensor = safetensors_find(&r->files, name);
        if (tensor != NULL) {
            r->is_claimed[tensor - r->files.tensors] = true;
            stored_scales_claim(&r->files, tensor, r->is_claimed);
        }
    }
    return 0;
}

/* Stored with the weights by some: rotary frequencies, which follow from its constants, and
 * buffers of whole numbers, such as position_ids. */
static bool is_buffer(const struct stored_tensor *tensor) {
    return stored_is_whole(tensor) || name_ends(tensor->name, "rotary_emb.inv_freq");
}

/* A checkpoint with more layers, biases, head norms or anything else than the model is another
 * model's. */
static int check_surplus(struct reading *r) {
    const struct model *model = r->weights->layout.model;
    int status = 0;
    r->is_claimed = mem_zeroed(r->files.n_tensors + 1, sizeof *r->is_claimed);
    for_each_part(&r->weights->layout, claim_part, r);
    for (size_t i = 0; status == 0 && i < r->files.n_tensors; i++) {
        const char *name = r->files.tensors[i].name;
        if (r->is_claimed[i] || is_buffer(&r->files.tensors[i]) ||
            is_embedding_again(r, &r->files.tensors[i])) {
            continue;
        }
        status = stored_is_of_quantising(&r->files.tensors[i])
                     ? err_world(r->err,
                                 "%s: holds a tensor '%s' of a quantisation that nothing here "
                                 "reads: weights in F8_E4M3 have one scale for each 128 x 128, "
                                 "each row or in all, and inputs are quantised as they come",
                                 r->folder, name)
                     : err_world(r->err,
                                 "%s: holds a tensor '%s', for which model '%s' has no place: "
                                 "this is another model",
                                 r->folder, name, model->name);
    }
    free(r->is_claimed);
    return status;
}

static int open_buffers(struct reading *r) {
    const struct device_table *table = r->device->table;
    struct device *device = r->device->device;
    int64_t bytes = (int64_t)PIECE_ELEMENTS * F32_BYTES; /* the widest there are */
    r->values = mem_unwritten(PIECE_ELEMENTS, sizeof *r->values);
    int status = DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < N_BUFFERS; i++) {
        status = table->allocate_host(device, bytes, &r->buffers[i]);
        status = status == DEVICE_OK ? table->event_open(device, &r->uploaded[i]) : status;
    }
    return device_err(r, status, "making room to read the weights through");
}

static void close_buffers(struct reading *r) {
    for (int i = 0; i < N_BUFFERS; i++) {
        if (r->uploaded[i] != NULL) {
            r->device->table->event_close(r->device->device, r->uploaded[i]);
        }
        r->device->table->release_host(r->device->device, r->buffers[i]);
    }
    free(r->values);
}

static int read_files(struct reading *r) {
    int status = safetensors_open(r->folder, &r->files, r->err);
    if (status != 0) {
        return status;
    }
    status = check_surplus(r);
    status = status == 0 ? open_buffers(r) : status;
    status = status == 0 ? quantiser_open(&r->quantiser, r->weights, r->err) : status;
    status = status == 0 ? for_each_part(&r->weights->layout, read_part, r) : status;
    if (status == 0) {
        status = device_err(r, r->device->table->finish(r->device->device), "uploading weights");
    }
    quantiser_close(&r->quantiser);
    close_buffers(r);
    safetensors_close(&r->files);
    return status;
}

/* ---- opening ---- */

const char *weights_seed(const char *source) {
    return name_behind(source, "random:");
}

/* "random" alone is a folder only where there is one. */
static bool lacks_seed(const char *source) {
    return strcmp(source, "random") == 0 && access(source, F_OK) != 0;
}

static int fill(struct weights *weights, const struct checkpoint_family *family, const char *source,
                struct err *err) {
    const char *seed = weights_seed(source);
    if (seed != NULL) {
        struct drawing drawing = {.weights = weights, .err = err};
        if (!num_u64(seed, UINT64_MAX, &drawing.seed)) {
            return err_usage(err,
                             "weights '%s': random weights are written random:SEED, a whole number",
                             source);
        }
        weights->constants = checkpoint_constants(family);
        return draw_all(&drawing);
    }
    if (lacks_seed(source)) {
        return err_usage(err,
                         "weights '%s': there is no such folder; random weights are written "
                         "random:SEED, such as random:1",
                         source);
    }
    struct reading reading = {.weights = weights,
                              .device = weights->device,
                              .family = family,
                              .folder = source,
                              .err = err};
    int status = checkpoint_read_constants(family, source, &weights->constants, err);
    return status != 0 ? status : read_files(&reading);
}

/* Drivers of Windows, and of WSL2 with them, give away memory of the host where the device's does
 * not suffice, and everything is slow: what is free is asked first. */
static int check_free(const struct weights *weights, struct err *err) {
    const struct engine_device *device = weights->device;
    struct device_facts facts = {0};
    int status = engine_device_err(device, device->table->facts(device->device, &facts),
                                   "asking for its free memory", err);
    if (status != 0 || facts.capability == 0 || weights->layout.bytes <= facts.free_bytes) {
        return status;
    }
    char need[32], has[32];
    return err_world(err, "the weights of %s take %s, and %s of the device's memory are free",
                     weights->layout.model->name,
                     num_format_bytes(need, sizeof need, (double)weights->layout.bytes),
                     num_format_bytes(has, sizeof has, (double)facts.free_bytes));
}

enum { FP8_CAPABILITY = 89 }; /* of the first GPU that multiplies fp8 */

static int check_products(const struct weights *weights, struct err *err) {
    const struct device_facts *facts = &weights->device->facts;
    const bool multiplies = facts->capability == 0 || facts->capability >= FP8_CAPABILITY;
    return multiplies || !number_is_fp8((enum number_type)weights->layout.storage.activations)
               ? 0
               : err_usage(err,
                           "%s has no products of fp8: set storage.activations = bf16, and weights "
                           "are expanded",
                           facts->name);
}

int weights_open(struct weights *weights, const struct engine_device *device,
                 const struct model *model, const char *source, struct err *err) {
    return weights_open_rank(weights, device, model, 0, source, err);
}

int weights_open_rank(struct weights *weights, const struct engine_device *device,
                      const struct model *model, uint32_t rank, const char *source,
                      struct err *err) {
    const struct storage storage = storage_of(engine_number(device));
    return weights_open_stored(weights, device, model, &storage, rank, source, err);
}

int weights_open_stored(struct weights *weights, const struct engine_device *device,
                        const struct model *model, const struct storage *storage, uint32_t rank,
                        const char *source, struct err *err) {
    ASSERT(rank < model_ranks(model));
    *weights = (struct weights){.device = device};
    int status = weight_layout_make(&weights->layout, model, device->dtype, storage, err);
    if (status != 0) {
        return status;
    }
    weight_layout_set_rank(&weights->layout, rank);
    status = check_products(weights, err);
    status = status == 0 ? check_free(weights, err) : status;
    if (status != 0) {
        return status;
    }
    void *block;
    status = device->table->allocate(device->device, weights->layout.bytes, &block);
    if (status != DEVICE_OK) {
        char size[32], doing[128];
        num_format_bytes(size, sizeof size, (double)weights->layout.bytes);
        snprintf(doing, sizeof doing, "making room for %s of weights", size);
        return engine_device_err(device, status, doing, err);
    }
    weights->block = block;
    struct checkpoint_family family;
    status = checkpoint_family_open(model, &family, err);
    if (status == 0) {
        status = fill(weights, &family, source, err);
        checkpoint_family_close(&family);
    }
    if (status != 0) {
        weights_close(weights);
    }
    return status;
}

static void divide(void *row, int64_t n, double by, enum kernel_dtype dtype) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == KERNEL_F32) {
            float *value = (float *)row + i;
            *value = (float)((double)*value / by);
        } else {
            uint16_t *bits = (uint16_t *)row + i;
            *bits = bf16_from_float((float)((double)bf16_to_float(*bits) / by));
        }
    }
}

int weights_divide_logits(struct weights *weights, double by, struct err *err) {
    const struct weight_layout *layout = &weights->layout;
    const struct device_table *table = weights->device->table;
    struct device *device = weights->device->device;
    const int64_t n = layout->model->hidden;
    const int64_t bytes = n * weight_number_bytes(layout, WEIGHT_FINAL_NORM);
    unsigned char *at = weights->block + weight_offset_bytes(layout, WEIGHT_FINAL_NORM, 0);
    void *row = NULL;
    int status = table->allocate_host(device, bytes, &row);
    status = status == DEVICE_OK ? table->download(device, row, at, bytes) : status;
    if (status == DEVICE_OK) {
        divide(row, n, by, weight_dtype(WEIGHT_FINAL_NORM, layout->dtype));
        status = table->upload(device, at, row, bytes);
        status = status == DEVICE_OK ? table->finish(device) : status;
    }
    if (row != NULL) {
        table->release_host(device, row);
    }
    return engine_device_err(weights->device, status, "dividing logits by the temperature", err);
}

void weights_close(struct weights *weights) {
    if (weights->device != NULL) {
        weights->device->table->release(weights->device->device, weights->block);
    }
    *weights = (struct weights){0};
}
