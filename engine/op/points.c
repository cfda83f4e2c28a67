#include "engine/op/points.h"

#include <stdlib.h>
#include <string.h>

#include "engine/op/op.h"
#include "sim/base/mem.h"

/* ---- sizes ---- */

void sizes_add(struct sizes *sizes, int64_t value, int64_t max) {
    size_t at = 0;
    while (at < sizes->n && sizes->values[at] < value) {
        at++;
    }
    if (value > max || (at < sizes->n && sizes->values[at] == value)) {
        return;
    }
    ASSERT(sizes->n < MOST_SIZES);
    memmove(&sizes->values[at + 1], &sizes->values[at], (sizes->n - at) * sizeof sizes->values[0]);
    sizes->values[at] = value;
    sizes->n++;
}

void sizes_add_list(struct sizes *sizes, const int64_t *values, size_t n, int64_t max) {
    for (size_t i = 0; i < n; i++) {
        sizes_add(sizes, values[i], max);
    }
}

static void add_range(struct sizes *sizes, int64_t first, int64_t last, int64_t by, int64_t max) {
    for (int64_t value = first; value <= last; value += by) {
        sizes_add(sizes, value, max);
    }
}

/* A library's kernels work on tiles of 64 to 256 rows: a point stands on either side of each edge,
 * where the time jumps, as aiconfigurator's tables have it. */
static void sizes_of_product(struct sizes *sizes, int64_t max, bool is_coarse) {
    sizes->n = 0;
    SIZES_ADD(sizes, max, 1, 8, 32, 64, 65, 128, 256, 512, 1024, 2048, 4096, 8192, 16384);
    if (!is_coarse) {
        SIZES_ADD(sizes, max, 2, 4, 16, 24, 129, 192, 193, 385);
        add_range(sizes, 32, 512, 32, max);
        add_range(sizes, 576, 1024, 64, max);
        add_range(sizes, 1152, 4096, 128, max);
        add_range(sizes, 4608, 8192, 512, max);
        add_range(sizes, 9216, 16384, 1024, max);
        add_range(sizes, 257, 3073, 256, max);
    }
    sizes_add(sizes, max, max);
}

/* Straight lines lie between them. */
void sizes_of_pass(struct sizes *sizes, int64_t max, bool is_coarse) {
    sizes->n = 0;
    SIZES_ADD(sizes, max, 1, 32, 256, 1024, 4096, 16384);
    if (!is_coarse) {
        SIZES_ADD(sizes, max, 2, 4, 8, 16, 48, 64, 96, 128, 192, 384, 512, 768, 1536, 2048, 3072,
                  6144, 8192, 12288);
    }
    sizes_add(sizes, max, max);
}

/* ---- points ---- */

struct calibration_point point_of(const struct points *points, const struct op *op) {
    const struct op_type *type = op_type_of(op);
    const struct op_launch *how = op_launch_of(op);
    const struct model *m = points->graph->model;
    struct calibration_point point = {
        .op = type->wide != WIDE_NONE ? PROFILE_PASS : type->table,
        .type = op_profile_type(points->graph, op),
        .is_heavy = how->weightiness == OP_HEAVY,
        .variant = points->variant,
        .first_op = (uint32_t)(op - points->graph->ops),
        .n_ops = how->n_measured > 0 ? how->n_measured : 1,
        .fill = how->fill,
    };
    if (type->wide != WIDE_NONE) {
        const struct op_pass pass = op_pass_of(points->graph, op);
        point.pass = pass.pass;
        point.sizes[POINT_PASS_CHANNELS] = pass.channels;
        point.n_sizes = 2;
    } else if (type->family == FAMILY_EXPERTS) {
        const int64_t sizes[] = {0, m->hidden, m->expert_ffn, m->experts_active, m->experts};
        memcpy(point.sizes, sizes, sizeof sizes);
        point.n_sizes = 5;
    } else if (type->family == FAMILY_PRODUCT) {
        point.sizes[POINT_GEMM_N] = op->n;
        point.sizes[POINT_GEMM_K] = op->k;
        point.n_sizes = 3;
    } else if (type->family == FAMILY_EXCHANGE) {
        point.n_sizes = 2;
    } else if (type->family == FAMILY_ATTENTION) {
        const struct model_heads heads = graph_heads(points->graph, op);
        point.head_dim = heads.head_dim;
        point.kv_heads = heads.kv_heads;
    }
    return point;
}

/* The sizes that tell a class from others of its table: all but the rows of products and passes,
 * the heads of attention, none of exchanges, which a model has one class of. */
bool points_have(const struct points *points, const struct calibration_point *wanted) {
    const struct calibration_grid *grid = points->grid;
    bool is_product = wanted->op == PROFILE_GEMM || wanted->op == PROFILE_HEAD ||
                      wanted->op == PROFILE_GATE_UP; /* the same columns in all three */
    for (size_t i = 0; i < grid->n; i++) {
        const struct calibration_point *point = &grid->points[i];
        if (point->op == wanted->op && point->type == wanted->type &&
            point->head_dim == wanted->head_dim && point->kv_heads == wanted->kv_heads &&
            (wanted->op != PROFILE_PASS ||
             (point->pass == wanted->pass &&
              point->sizes[POINT_PASS_CHANNELS] == wanted->sizes[POINT_PASS_CHANNELS])) &&
            (!is_product || (point->sizes[POINT_GEMM_N] == wanted->sizes[POINT_GEMM_N] &&
                             point->sizes[POINT_GEMM_K] == wanted->sizes[POINT_GEMM_K]))) {
            return true;
        }
    }
    return false;
}

void points_add(struct points *points, const struct calibration_point *point) {
    struct calibration_grid *grid = points->grid;
    if (grid->n == grid->capacity) {
        size_t capacity = grid->capacity == 0 ? 256 : 2 * grid->capacity;
        grid->points = mem_resized(grid->points, capacity, sizeof *grid->points);
        grid->capacity = capacity;
    }
    grid->points[grid->n] = *point;
    grid->points[grid->n++].group = grid->n_groups;
}

void points_add_sizes(struct points *points, struct calibration_point *point,
                      const struct sizes *sizes, bool falls) {
    const int column = point->op == PROFILE_PASS ? POINT_PASS_ROWS : POINT_GEMM_M;
    if (points_have(points, point)) {
        return;
    }
    for (size_t i = 0; i < sizes->n; i++) {
        point->n_rows = point->sizes[column] = sizes->values[falls ? sizes->n - 1 - i : i];
        points_add(points, point);
    }
    points_end_group(points);
}

/* Of stored logits there is less room than of tokens. */
static int64_t most_rows(const struct points *points, const struct op *op) {
    return tensor_holds_logits(points->graph, op->in[0]) ||
                   tensor_holds_logits(points->graph, op->out[0])
               ? points->bounds->max_logit_rows
               : points->bounds->max_tokens;
}

static void points_add_rows(struct points *points, struct calibration_point *point) {
    const struct op *op = &points->graph->ops[point->first_op];
    const struct op_launch *how = op_launch_of(op);
    struct sizes sizes;
    if (how->sizes == OP_SIZES_PRODUCT) {
        sizes_of_product(&sizes, most_rows(points, op), points->bounds->is_coarse);
    } else {
        sizes_of_pass(&sizes, most_rows(points, op), points->bounds->is_coarse);
    }
    points_add_sizes(points, point, &sizes, how->falls);
}

/* What is done to the input of the rows that are decided on, once a step: it is priced by what its
 * like in the layers take. */
static bool is_before_layers(const struct op *op) {
    return op->segment == 0 && op->rows == SYM_LOGIT_ROWS;
}

void points_add_op(struct points *points, const struct op *op) {
    const struct op_launch *how = op_launch_of(op);
    if (is_before_layers(op)) {
        return;
    }
    if (how->sizes == OP_SIZES_PASS || how->sizes == OP_SIZES_PRODUCT) {
        struct calibration_point point = point_of(points, op);
        points_add_rows(points, &point);
    }
    if (how->points != NULL) {
        how->points(points, op);
    }
}
