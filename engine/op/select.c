/* Which rows a request keeps, and their copy to its store. */
#include "engine/op/launch.h"

#include "sim/base/num.h"
#include "sim/model/ranks.h"

/* Whether heads of several ranks choose together: their scores are added up between two parts of a
 * selection. */
static bool ranks_choose_together(const struct launch *l) {
    return model_ranks(l->model) > 1 && l->packed->limits.selects_together;
}

static int launch_selection(const struct launch *l, const struct op *select,
                            enum kernel_select_part part) {
    const struct packed_counts *n = counts(l);
    const struct op *attention = select;
    while (!(op_launch_of(attention)->facts & OP_IS_LAYER)) {
        attention--;
    }
    const struct qkv from = split(l, attention->in[0]);
    const struct call_select call = {
        .q = from.q,
        .k = from.k,
        .v = from.v,
        .start = narrow(l, PACKED_START) + n->n_plain,
        .block_start = narrow(l, PACKED_BLOCK_START),
        .block_end = narrow(l, PACKED_BLOCK_END),
        .kept = narrow(l, PACKED_KEPT) + n->n_plain,
        .cache_start = cache_start(l) + n->n_plain,
        .score_start = wide(l, PACKED_SCORE_START),
        .cache = l->issue->room->pool,
        .scores = (float *)(void *)tensor_at(l->issue, select->out[0]),
        .indices = (int32_t *)(void *)tensor_at(l->issue, select->out[1]),
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .n_requests = n->n_select,
        .n_heads = (int32_t)l->model->heads,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .max_candidates = n->max_candidates,
        .uniform = l->packed->limits.selects_together,
        .cache_fp8 = caches_fp8(l),
        .part = part,
        .dtype = l->dtype,
    };
    return l->table->select(l->device, &call);
}

/* Scores and, but for ranks that choose together, chooses and packs. */
static int launch_select(const struct launch *l) {
    return launch_selection(l, l->op,
                            ranks_choose_together(l) ? KERNEL_SELECT_SCORES : KERNEL_SELECT_ALL);
}

/* What the selection of its layer has left to do. */
static int launch_pack(const struct launch *l) {
    const struct op *select = l->op;
    if (!ranks_choose_together(l)) {
        return DEVICE_OK;
    }
    while (!(op_launch_of(select)->facts & OP_SELECTS)) {
        select--;
    }
    return launch_selection(l, select, KERNEL_SELECT_SCORED);
}

static int check(const struct graph *graph, const struct op *op, struct err *err) {
    (void)graph;
    return op->out[1] >= 0 ? 0
                           : err_usage(err,
                                       "the step graph is not built for the engine: '%s' has no "
                                       "place for the tokens it keeps",
                                       op->name);
}

/* ---- what is measured ---- */

/* Requests of canvases of at most SELECT_CANVAS_TOKENS, as many as the candidates make. */
static int64_t n_requests(int64_t n_candidates, int64_t block_tokens) {
    return ceil_div(n_candidates, SELECT_CANVAS_TOKENS - block_tokens);
}

/* The active block comes first, then the candidates, divided equally among the requests. */
static void fill_candidates(struct trial *trial, int64_t n_candidates) {
    const uint32_t block = trial->model->block_tokens;
    const int64_t n = n_requests(n_candidates, block);
    for (int64_t r = 0; r < n; r++) {
        uint32_t candidates = (uint32_t)(n_candidates * (r + 1) / n - n_candidates * r / n);
        uint32_t kept = trial->keeps_half && candidates > 1 ? candidates / 2 : 1;
        struct step_part *part = trial_add(trial, (struct span){.phase = PHASE_REFRESH,
                                                                .queries = block + candidates,
                                                                .select_rows = candidates,
                                                                .pack_rows = kept});
        part->block_end = block;
        trial_give_store(trial, part, kept);
    }
}

static void fill_select(struct trial *trial, const struct calibration_point *point) {
    fill_candidates(trial, point->n_rows);
}

static void fill_pack(struct trial *trial, const struct calibration_point *point) {
    fill_candidates(trial, 2 * point->n_rows);
}

/* Candidates of a selection, or half as many rows packed; whole canvases are the most there are. */
static void add_rows(struct points *points, struct calibration_point *point) {
    const int64_t block = points->graph->model->block_tokens, max = points->bounds->max_tokens;
    const int64_t whole = max / SELECT_CANVAS_TOKENS * (SELECT_CANVAS_TOKENS - block);
    const bool packs = point->is_difference;
    struct sizes all, rows = {.n = 0};
    sizes_of_pass(&all, max, points->bounds->is_coarse);
    sizes_add(&all, whole > 0 ? whole : max - block, max);
    for (size_t i = 0; i < all.n; i++) {
        int64_t value = packs ? all.values[i] / 2 : all.values[i];
        int64_t candidates = packs ? 2 * value : value;
        if (value > 0 && candidates + n_requests(candidates, block) * block <= max) {
            sizes_add(&rows, value, max);
        }
    }
    points_add_sizes(points, point, &rows, false);
}

static void add_select(struct points *points, const struct op *op) {
    struct calibration_point point = point_of(points, op);
    point.fill = fill_select;
    add_rows(points, &point);
}

/* What a selection that keeps half of its candidates takes beyond one that keeps a single row. */
static void add_pack(struct points *points, const struct op *op) {
    struct calibration_point point = point_of(points, op);
    while (!(op_launch_of(op)->facts & OP_SELECTS)) {
        op--;
    }
    point.first_op = (uint32_t)(op - points->graph->ops);
    point.is_difference = true;
    point.fill = fill_pack;
    add_rows(points, &point);
}

const struct op_launch op_launch_select = {
    .launch = launch_select,
    .facts = OP_SELECTS,
    .symbols = OP_OVER(SYM_SELECT_ROWS),
    .check = check,
    .sizes = OP_SIZES_OWN,
    .points = add_select,
};
const struct op_launch op_launch_pack = {
    .launch = launch_pack,
    .symbols = OP_OVER(SYM_PACK_ROWS),
    .sizes = OP_SIZES_OWN,
    .points = add_pack,
};
