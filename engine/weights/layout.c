#include "engine/weights/weights.h"

#include <inttypes.h>

#include "kernels/calls.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"

const char *const weight_slot_names[WEIGHT_SLOT_COUNT] = {
    [WEIGHT_EMBEDDING] = "embedding",
    [WEIGHT_FINAL_NORM] = "final norm",
    [WEIGHT_HEAD] = "head",
    [WEIGHT_CONDITIONING_NORM] = "conditioning norm",
    [WEIGHT_CONDITIONING_GATE_UP] = "conditioning gate up",
    [WEIGHT_CONDITIONING_DOWN] = "conditioning down",
    [WEIGHT_ATTENTION_NORM] = "attention norm",
    [WEIGHT_QKV] = "qkv",
    [WEIGHT_QKV_BIAS] = "qkv bias",
    [WEIGHT_Q_NORM] = "q norm",
    [WEIGHT_K_NORM] = "k norm",
    [WEIGHT_OUTPUT] = "output",
    [WEIGHT_FFN_NORM] = "ffn norm",
    [WEIGHT_ATTENTION_OUTPUT_NORM] = "attention output norm",
    [WEIGHT_FFN_OUTPUT_NORM] = "ffn output norm",
    [WEIGHT_GATE_UP] = "gate up",
    [WEIGHT_DOWN] = "down",
    [WEIGHT_ROUTER] = "router",
    [WEIGHT_EXPERT_BIAS] = "expert bias",
    [WEIGHT_EXPERTS_GATE_UP] = "experts gate up",
    [WEIGHT_EXPERTS_DOWN] = "experts down",
    [WEIGHT_SHARED_GATE_UP] = "shared gate up",
    [WEIGHT_SHARED_DOWN] = "shared down",
    [WEIGHT_EXPERT_NORM] = "expert norm",
    [WEIGHT_EXPERT_OUTPUT_NORM] = "expert output norm",
    [WEIGHT_SHARED_OUTPUT_NORM] = "shared output norm",
};

int64_t weight_number_bytes(const struct weight_layout *layout, enum weight_slot slot) {
    return weight_dtype(slot, layout->dtype) == KERNEL_F32 ? F32_BYTES : BF16_BYTES;
}

int weight_parts_at_once(enum weight_slot slot) {
    bool is_gate_up = slot == WEIGHT_GATE_UP || slot == WEIGHT_EXPERTS_GATE_UP ||
                      slot == WEIGHT_SHARED_GATE_UP || slot == WEIGHT_CONDITIONING_GATE_UP;
    return slot == WEIGHT_QKV || slot == WEIGHT_QKV_BIAS ? 3 : is_gate_up ? 2 : 1;
}

int weight_part_count(const struct model *model, enum weight_slot slot) {
    return weight_parts_at_once(slot) * (weight_holds_experts(slot) ? (int)model->experts : 1);
}

/* Of a SwiGLU of this width: of gates or ups, or what they come back to. */
static bool swiglu_shape(const struct model *model, int64_t width, bool is_down, int64_t *n_rows,
                         int64_t *n_columns) {
    *n_rows = is_down ? model->hidden : width;
    *n_columns = is_down ? width : model->hidden;
    return width > 0;
}

/* Of those that not every model has. */
static bool has_norm(const struct model *model, enum weight_slot slot) {
    const bool mixes = model->experts > 0, shares = model->shared_experts > 0;
    return slot == WEIGHT_CONDITIONING_NORM
               ? model->conditioning_ffn > 0
               : model->output_norms && (mixes || slot < WEIGHT_EXPERT_NORM) &&
                     (shares || slot != WEIGHT_SHARED_OUTPUT_NORM);
}

bool weight_part_shape(const struct model *model, enum weight_slot slot, int part, int64_t *n_rows,
                       int64_t *n_columns) {
    int64_t hidden = model->hidden, q_dim = (int64_t)model->heads * model->head_dim;
    int64_t part_dim = part == 0 ? q_dim : (int64_t)model->kv_heads * model->head_dim;
    bool exists = part < weight_part_count(model, slot);
    *n_columns = 1;
    switch (slot) {
    case WEIGHT_EMBEDDING:
        *n_rows = model_whole_vocab(model);
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
        exists = exists && !(part == 2 && model_values_are_keys(model));
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
    case WEIGHT_ATTENTION_OUTPUT_NORM:
    case WEIGHT_FFN_OUTPUT_NORM:
    case WEIGHT_EXPERT_NORM:
    case WEIGHT_EXPERT_OUTPUT_NORM:
    case WEIGHT_SHARED_OUTPUT_NORM:
    case WEIGHT_CONDITIONING_NORM:
        *n_rows = hidden;
        exists = exists && has_norm(model, slot);
        break;
    case WEIGHT_CONDITIONING_GATE_UP:
    case WEIGHT_CONDITIONING_DOWN:
        exists = swiglu_shape(model, model->conditioning_ffn, slot == WEIGHT_CONDITIONING_DOWN,
                              n_rows, n_columns) &&
                 exists;
        break;
    case WEIGHT_GATE_UP:
    case WEIGHT_DOWN:
        exists = swiglu_shape(model, model_first_mixture(model) > 0 ? model->ffn : 0,
                              slot == WEIGHT_DOWN, n_rows, n_columns) &&
                 exists;
        break;
    case WEIGHT_ROUTER:
        *n_rows = model_routed_experts(model);
        *n_columns = hidden;
        exists = exists && model->experts > 0;
        break;
    case WEIGHT_EXPERT_BIAS:
        *n_rows = model_routed_experts(model);
        exists = exists && model->expert_bias;
        break;
    case WEIGHT_EXPERTS_GATE_UP:
    case WEIGHT_EXPERTS_DOWN:
        exists = swiglu_shape(model, model->expert_ffn, slot == WEIGHT_EXPERTS_DOWN, n_rows,
                              n_columns) &&
                 exists;
        break;
    case WEIGHT_SHARED_GATE_UP:
    case WEIGHT_SHARED_DOWN:
        exists = swiglu_shape(model, (int64_t)model->shared_experts * model->shared_ffn,
                              slot == WEIGHT_SHARED_DOWN, n_rows, n_columns) &&
                 exists;
        break;
    }
    return exists;
}

bool weight_is_fp8(const struct weight_layout *layout, enum weight_slot slot) {
    return number_is_fp8(storage_weight(&layout->storage, slot));
}

struct weight_matrices weight_matrices_of(const struct weight_layout *layout,
                                          enum weight_slot slot) {
    const int at_once = weight_parts_at_once(slot);
    struct weight_matrices all = {.type = storage_weight(&layout->storage, slot)};
    for (int part = 0; part < at_once; part++) {
        int64_t n_rows = 0, n_columns = 0;
        if (weight_part_shape(layout->model, slot, part, &n_rows, &n_columns)) {
            all.n = weight_part_count(layout->model, slot) / at_once;
            all.n_rows += n_rows;
            all.n_columns = n_columns;
        }
    }
    return all;
}

/* In a layer of that kind. */
static int64_t slot_bytes(const struct weight_layout *layout, const struct model *kind,
                          enum weight_slot slot) {
    int64_t bytes = 0;
    if (weight_is_fp8(layout, slot)) {
        const struct weight_matrices all = weight_matrices_of(layout, slot);
        return all.n * number_matrix_bytes(all.type, all.n_rows, all.n_columns);
    }
    for (int part = 0; part < weight_part_count(kind, slot); part++) {
        int64_t n_rows, n_columns;
        if (weight_part_shape(kind, slot, part, &n_rows, &n_columns)) {
            bytes += n_rows * n_columns * weight_number_bytes(layout, slot);
        }
    }
    return bytes;
}

void weight_layout_set_rank(struct weight_layout *layout, uint32_t rank) {
    const struct model *model = layout->model;
    layout->rank = rank;
    if (model->tied) {
        layout->offset_bytes[WEIGHT_HEAD] = layout->offset_bytes[WEIGHT_EMBEDDING] +
                                            (int64_t)rank * model->vocab * model->hidden *
                                                weight_number_bytes(layout, WEIGHT_EMBEDDING);
    }
}

static int check_router(const struct model *model, struct err *err) {
    uint32_t experts = model_routed_experts(model), active = model_most_active(model);
    bool fits = experts <= MOE_MAX_EXPERTS && active <= MOE_MAX_ACTIVE &&
                model->expert_groups <= MOE_MAX_GROUPS;
    return fits ? 0
                : err_usage(err,
                            "model '%s' chooses %" PRIu32 " of %" PRIu32 " experts in %" PRIu32
                            " groups; the engine runs at most %d of %d in %d",
                            model->name, active, experts, model->expert_groups, MOE_MAX_ACTIVE,
                            MOE_MAX_EXPERTS, MOE_MAX_GROUPS);
}

/* Places the slots [first, end) one after the other from `at` on. Returns where they end. */
static int64_t place_slots(const struct weight_layout *layout, const struct model *kind, int first,
                           int end, int64_t at, int64_t *offset_bytes) {
    for (int slot = first; slot < end; slot++) {
        int64_t bytes = slot_bytes(layout, kind, (enum weight_slot)slot);
        offset_bytes[slot] = bytes > 0 ? at : -1;
        at += align_up(bytes, WEIGHT_ALIGN_BYTES);
    }
    return at;
}

/* Of a model some of whose layers see everything, whose layers are all dense or all mixtures. */
static int64_t local_layer_bytes(const struct weight_layout *layout) {
    return layout->model->experts > 0 ? layout->mixture_bytes : layout->dense_layer_bytes;
}

static void place_global_layer(struct weight_layout *layout) {
    const struct model *kind = &layout->global_kind;
    const bool mixes = kind->experts > 0;
    int64_t *at = layout->global_offset_bytes;
    int64_t common = place_slots(layout, kind, WEIGHT_ATTENTION_NORM, WEIGHT_GATE_UP, 0, at);
    layout->global_layer_bytes = place_slots(layout, kind, mixes ? WEIGHT_ROUTER : WEIGHT_GATE_UP,
                                             mixes ? WEIGHT_SLOT_COUNT : WEIGHT_ROUTER, common, at);
}

/* Layers of both kinds begin with the same weights. */
int weight_layout_make(struct weight_layout *layout, const struct model *model,
                       enum kernel_dtype dtype, const struct storage *storage, struct err *err) {
    *layout = (struct weight_layout){.model = model, .dtype = dtype, .storage = *storage};
    int status = check_router(model, err);
    if (status != 0) {
        return status;
    }
    int64_t *at = layout->offset_bytes;
    layout->layers_bytes = place_slots(layout, model, 0, WEIGHT_ATTENTION_NORM, 0, at);
    int64_t common = place_slots(layout, model, WEIGHT_ATTENTION_NORM, WEIGHT_GATE_UP, 0, at);
    layout->dense_layer_bytes =
        place_slots(layout, model, WEIGHT_GATE_UP, WEIGHT_ROUTER, common, at);
    layout->mixture_bytes =
        place_slots(layout, model, WEIGHT_ROUTER, WEIGHT_SLOT_COUNT, common, at);
    layout->global_kind = model_of_kind(model, model->global_every > 0);
    place_global_layer(layout);
    weight_layout_set_rank(layout, 0);
    uint32_t n_dense = model_first_mixture(model), n_global = model_global_layers(model);
    layout->bytes = layout->layers_bytes + n_dense * layout->dense_layer_bytes +
                    (model->layers - n_dense) * layout->mixture_bytes +
                    n_global * (layout->global_layer_bytes - local_layer_bytes(layout));
    return 0;
}

int64_t weight_offset_bytes(const struct weight_layout *layout, enum weight_slot slot,
                            uint32_t layer) {
    const struct model *model = layout->model;
    int64_t offset = layout->offset_bytes[slot];
    if (offset < 0 || !weight_is_per_layer(slot)) {
        return offset;
    }
    if (model->global_every > 0) {
        const uint32_t n_global = layer / model->global_every;
        const int64_t first = layout->layers_bytes + n_global * layout->global_layer_bytes +
                              (layer - n_global) * local_layer_bytes(layout);
        const bool global = model_is_global(model, layer);
        return weight_is_of_layer(model, slot, layer)
                   ? first + (global ? layout->global_offset_bytes[slot] : offset)
                   : -1;
    }
    uint32_t first_mixture = model_first_mixture(model);
    uint32_t n_dense = layer < first_mixture ? layer : first_mixture;
    return weight_is_of_layer(model, slot, layer)
               ? layout->layers_bytes + n_dense * layout->dense_layer_bytes +
                     (layer - n_dense) * layout->mixture_bytes + offset
               : -1;
}

const float *weights_scales_at(const struct weights *weights, enum weight_slot slot,
                               uint32_t layer) {
    const struct weight_matrices all = weight_matrices_of(&weights->layout, slot);
    const unsigned char *codes = weights_at(weights, slot, layer);
    return codes == NULL || !weight_is_fp8(&weights->layout, slot)
               ? NULL
               : (const float *)(const void *)(codes + all.n * all.n_rows * all.n_columns);
}
