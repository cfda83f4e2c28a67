/* Rotation, and fresh keys and values to where they are kept. */
#include "engine/op/launch.h"

#include "sim/base/num.h"

/* Copies the keys and values that are kept to their requests' stores. */
static int launch_keep(const struct launch *l) {
    const int rotated = l->op->out[0];
    const struct qkv from = split_at(l, rotated, rows_at(l, rotated), l->op->n);
    const struct call_keep call = {
        .k = from.k,
        .v = from.v,
        .start = narrow(l, PACKED_START),
        .owner = narrow(l, PACKED_OWNER),
        .kv_rows = narrow(l, PACKED_KV_ROWS),
        .kept = narrow(l, PACKED_KEPT),
        .cache_start = cache_start(l),
        .cache = l->issue->room->pool,
        .kv_stride = from.stride,
        .n_requests = counts(l)->n_plain + (l->packed->limits.renews_rows ? counts(l)->n_block : 0),
        .n_tokens = counts(l)->n_keeping_tokens,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .dtype = l->dtype,
    };
    return l->table->keep(l->device, &call);
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
        .bias = bias != NULL ? bias + skipped * l->graph->element_bytes : NULL,
        .q_norm = weight(l, WEIGHT_Q_NORM),
        .k_norm = weight(l, WEIGHT_K_NORM),
        .cos_sin = l->issue->room->cos_sin,
        .positions = narrow(l, PACKED_POSITIONS) + l->turn->first_row,
        .kv_rows = exact ? narrow(l, PACKED_KV_ROWS) + l->turn->first_row : NULL,
        .q = to.q,
        .k = kv.k,
        .v = kv.v,
        .q_stride = to.stride,
        .kv_stride = kv.stride,
        .n_tokens = (int32_t)l->turn->n_rows,
        .n_heads = (int32_t)(l->op->n / l->model->head_dim),
        .n_kv_heads = (int32_t)(l->op->k / l->model->head_dim),
        .head_size = (int32_t)l->model->head_dim,
        .rotary_size = (int32_t)model_rotary_dim(l->model),
        .epsilon = l->issue->weights->constants.norm_epsilon,
        .dtype = l->dtype,
    };
    int status = l->table->rope(l->device, &call);
    const bool keeps = !exact && call.n_kv_heads > 0 && counts(l)->n_keeping_tokens > 0;
    return status == DEVICE_OK && keeps ? launch_keep(l) : status;
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

/* Every token is kept in the order in which it stands. */
static void fill_keep(struct trial *trial, const struct calibration_point *point) {
    for (int64_t left = point->n_rows; left > 0; left -= SELECT_CANVAS_TOKENS) {
        uint32_t n = (uint32_t)(left < SELECT_CANVAS_TOKENS ? left : SELECT_CANVAS_TOKENS);
        struct step_part *part =
            trial_add(trial, (struct span){.phase = PHASE_REFRESH, .queries = n});
        part->kv_rows = part->positions;
        trial_give_store(trial, part, n);
    }
}

/* The second pass that the operator is where it keeps rows, behind the rotation. */
static void add_keep(struct points *points, const struct op *op) {
    struct calibration_point point = point_of(points, op);
    point.pass = PASS_KEEP;
    point.sizes[POINT_PASS_CHANNELS] = op->k;
    point.part = launch_keep;
    point.fill = fill_keep;
    if (!(op_facts(points->graph) & OP_IS_PAGED)) {
        points_add_rows(points, &point);
    }
}

const struct op_launch op_launch_rope = {
    .launch = launch_rope, .sizes = OP_SIZES_PASS, .fill = fill, .points = add_keep};
