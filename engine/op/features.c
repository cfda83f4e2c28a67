/* Features (dLLM-Cache): by how much values changed, the rows that go on, what sublayers gave of
 * them, and what is kept of all. */
#include "engine/op/launch.h"

#include "kernels/rules/change.h"

static int32_t n_spans(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    return n->n_plain + n->n_block + n->n_silent;
}

static int launch_similarity(const struct launch *l) {
    const int64_t before = ((int64_t)l->model->heads + l->model->kv_heads) * l->model->head_dim;
    const unsigned char *bias = weight(l, WEIGHT_QKV_BIAS);
    const struct call_similarity call = {
        .values = input(l, 0),
        .bias = bias != NULL ? bias + before * graph_element_bytes(l->graph) : NULL,
        .value_start = narrow(l, PACKED_VALUE_START),
        .compared_start = narrow(l, PACKED_COMPARED_START),
        .run_first = narrow(l, PACKED_RUN_FIRST),
        .given = narrow(l, PACKED_GIVEN),
        .kept = narrow(l, PACKED_KEPT),
        .cache_start = cache_start(l),
        .cache = l->issue->room->pool,
        .sums = (float *)(void *)output(l, 1),
        .n_requests = n_spans(l),
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .max_compared = counts(l)->max_compared,
        .dtype = l->dtype,
    };
    return l->table->similarity(l->device, &call);
}

/* The rows' numbers, their input, and their values after the places of queries and keys. */
static int launch_pick(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    const struct picks picks = picks_in(l, l->op->out[0]);
    const struct call_pick call = {
        .sums = (float *)(void *)input(l, 0),
        .start = narrow(l, PACKED_START),
        .value_start = narrow(l, PACKED_VALUE_START),
        .compared_start = narrow(l, PACKED_COMPARED_START),
        .stream_start = narrow(l, PACKED_STREAM_START),
        .run_first = narrow(l, PACKED_RUN_FIRST),
        .given = narrow(l, PACKED_GIVEN),
        .positions = picks.positions,
        .value_rows = picks.value_rows,
        .stream_rows = picks.stream_rows,
        .n_requests = n_spans(l),
        .max_compared = n->max_compared,
        .max_queries =
            n->max_full_tokens > n->max_block_tokens ? n->max_full_tokens : n->max_block_tokens,
    };
    int status = l->table->pick(l->device, &call);
    const struct call_compact rows = {
        .rows = picks.value_rows,
        .from = {input(l, 1), input(l, 2)},
        .to = {output(l, 1), split(l, l->op->out[2]).v},
        .from_stride = {row_elements(l, l->op->in[1]), row_elements(l, l->op->in[2])},
        .to_stride = {row_elements(l, l->op->out[1]), row_elements(l, l->op->out[2])},
        .width = {(int32_t)row_elements(l, l->op->in[1]), (int32_t)row_elements(l, l->op->in[2])},
        .n_arrays = 2,
        .max_rows = (int32_t)l->instance->n_rows,
        .dtype = l->dtype,
    };
    return status == DEVICE_OK ? l->table->compact(l->device, &rows) : status;
}

/* Elements of a store's row that come before the feature. */
static int64_t elements_before(const struct launch *l) {
    return 2LL * l->model->kv_heads * l->model->head_dim +
           (int64_t)l->op->feature * l->model->hidden;
}

static int launch_keep_feature(const struct launch *l) {
    const struct call_keep_feature call = {
        .x = input(l, 0),
        .owner = narrow(l, PACKED_OWNER),
        .rows = picks_in(l, l->op->picks).positions,
        .kept = narrow(l, PACKED_KEPT),
        .cache_start = cache_start(l),
        .cache = l->issue->room->pool,
        .before = elements_before(l),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .dtype = l->dtype,
    };
    return l->table->keep_feature(l->device, &call);
}

static int launch_add_feature(const struct launch *l) {
    const struct call_add_feature call = {
        .cache = l->issue->room->pool,
        .owner = narrow(l, PACKED_STREAM_OWNER),
        .rows = narrow(l, PACKED_POSITIONS),
        .kept = narrow(l, PACKED_KEPT),
        .cache_start = cache_start(l),
        .y = output(l, 0),
        .before = elements_before(l),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .dtype = l->dtype,
    };
    return l->table->add_feature(l->device, &call);
}

/* Other runtimes keep no sums. */
static int check_similarity(const struct graph *graph, const struct op *op, struct err *err) {
    return op->out[1] >= 0 &&
                   graph->tensors[op->out[1]].bytes.per == (int64_t)CHANGE_SUMS * F32_BYTES
               ? 0
               : op_refuse(op, "the step graph is not built for the engine", err);
}

/* ---- what is measured ---- */

/* Outputs that are compared are at most this long: how long a choice takes grows with the square.
 */
enum { COMPARED_TOKENS = 256 };

/* Outputs without prompts, of which a single row goes on. */
static void fill_compared(struct trial *trial, const struct calibration_point *point) {
    for (int64_t left = point->n_rows; left > 0; left -= COMPARED_TOKENS) {
        const uint32_t n = (uint32_t)(left < COMPARED_TOKENS ? left : COMPARED_TOKENS);
        struct step_part *part = trial_add(trial, (struct span){.phase = PHASE_REUSE,
                                                                .queries = 1,
                                                                .first_queries = n,
                                                                .context = n - 1,
                                                                .value_rows = n});
        trial_give_store(trial, part, n);
    }
}

/* All rows go on. */
static void fill_given(struct trial *trial, const struct calibration_point *point) {
    for (int64_t left = point->n_rows; left > 0; left -= SELECT_CANVAS_TOKENS) {
        const uint32_t n = (uint32_t)(left < SELECT_CANVAS_TOKENS ? left : SELECT_CANVAS_TOKENS);
        struct step_part *part =
            trial_add(trial, (struct span){.phase = PHASE_REFRESH, .queries = n});
        part->run.given = (int32_t)n;
        trial_give_store(trial, part, n);
    }
}

/* With the choice that follows, but where ranks add up their sums before it. */
static void add_similarity(struct points *points, const struct op *op) {
    struct calibration_point point = point_of(points, op);
    struct sizes sizes;
    point.fill = fill_compared;
    point.n_ops = op_launch_of(op + 1)->facts & OP_PICKS ? 2 : 1;
    sizes_of_pass(&sizes, points->bounds->max_tokens, points->bounds->is_coarse);
    points_add_sizes(points, &point, &sizes, false);
}

const struct op_launch op_launch_similarity = {
    .launch = launch_similarity,
    .symbols = OP_OVER(SYM_VALUE_ROWS),
    .check = check_similarity,
    .sizes = OP_SIZES_OWN,
    .points = add_similarity,
};
const struct op_launch op_launch_pick = {
    .launch = launch_pick, .facts = OP_PICKS, .sizes = OP_SIZES_PASS, .fill = fill_given};
const struct op_launch op_launch_keep_feature = {
    .launch = launch_keep_feature, .sizes = OP_SIZES_PASS, .fill = fill_given};
const struct op_launch op_launch_add_feature = {
    .launch = launch_add_feature, .sizes = OP_SIZES_PASS, .fill = fill_given};
