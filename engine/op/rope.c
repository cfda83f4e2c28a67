/* Rotation. */
#include "engine/op/launch.h"

/* Layers that see everything where others have a window have heads, and a table, of their own. */
static const float *cos_sin_of(const struct launch *l) {
    const bool global = l->graph->segments[l->op->segment].global;
    return l->issue->room->cos_sin +
           (global ? (int64_t)l->packed->limits.max_positions * model_rotary_dim(l->graph->model)
                   : 0);
}

/* Fresh keys and values go where attention reads them: the rows of the pool, where the graph is
 * exact, else their own places in the product. */
static int launch_rope(const struct launch *l) {
    const int rotated = l->op->out[0];
    const struct qkv to = split_at(l, rotated, rows_at(l, rotated), l->op->n);
    const unsigned char *bias = weight(l, WEIGHT_QKV_BIAS);
    const int64_t skipped = (int64_t)l->model->heads * l->model->head_dim - l->op->n;
    const bool exact = l->packed->exact;
    const struct qkv kv = exact ? pool_rows(l) : to;
    const struct call_rope call = {
        .qkv = rows_at(l, l->op->in[0]),
        .bias = bias != NULL ? bias + skipped * graph_element_bytes(l->graph) : NULL,
        .q_norm = weight(l, WEIGHT_Q_NORM),
        .k_norm = weight(l, WEIGHT_K_NORM),
        .cos_sin = cos_sin_of(l),
        .positions = (l->op->picks >= 0 ? picks_in(l, l->op->picks).positions
                                        : narrow(l, PACKED_POSITIONS)) +
                     l->instance->first_row,
        .kv_rows = exact ? narrow(l, PACKED_KV_ROWS) + l->instance->first_row : NULL,
        .q = to.q,
        .k = kv.k,
        .v = kv.v,
        .q_stride = to.stride,
        .kv_stride = kv.stride,
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_heads = (int32_t)(l->op->n / l->model->head_dim),
        .n_kv_heads = (int32_t)(l->op->k / l->model->head_dim),
        .head_size = (int32_t)l->model->head_dim,
        .rotary_size = (int32_t)model_rotary_dim(l->model),
        .epsilon = l->issue->weights->constants.norm_epsilon,
        .kv_fp8 = exact && caches_fp8(l),
        .dtype = l->dtype,
        .values_are_keys = model_values_are_keys(l->model),
        .norm_values = l->model->output_norms,
    };
    return l->table->rope(l->device, &call);
}

/* Exact keys and values are written to the pool. */
static void fill(struct trial *trial, const struct calibration_point *point) {
    trial_fill_rows(trial, point);
    if (trial->is_exact) {
        trial_give_pages(trial);
        for (uint32_t i = 0; i < trial->shape.n_spans; i++) {
            trial->parts[i].kv_pages.reads_only = false;
        }
    }
}

const struct op_launch op_launch_rope = {
    .launch = launch_rope, .sizes = OP_SIZES_PASS, .fill = fill};
