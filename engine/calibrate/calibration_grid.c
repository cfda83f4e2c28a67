#include "engine/calibrate/calibration_grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/step/program.h"
#include "engine/weights/weights.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"

enum { MOST_SIZES = 160, EXCHANGE_LEAST_BYTES = 32 };

/* Rising sizes without repetition. */
struct sizes {
    int64_t values[MOST_SIZES];
    size_t n;
};

static void add_size(struct sizes *sizes, int64_t value, int64_t max) {
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

static void add_range(struct sizes *sizes, int64_t first, int64_t last, int64_t by, int64_t max) {
    for (int64_t value = first; value <= last; value += by) {
        add_size(sizes, value, max);
    }
}

static void add_list(struct sizes *sizes, const int64_t *values, size_t n, int64_t max) {
    for (size_t i = 0; i < n; i++) {
        add_size(sizes, values[i], max);
    }
}

#define ADD_LIST(sizes, max, ...)                                                                  \
    add_list(sizes, (const int64_t[]){__VA_ARGS__},                                                \
             sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), max)

/* Rows of a product. A library's kernels work on tiles of 64 to 256 rows: a point stands on either
 * side of each edge, where the time jumps, as aiconfigurator's tables have it. */
static void product_rows(struct sizes *rows, int64_t max, bool is_coarse) {
    rows->n = 0;
    ADD_LIST(rows, max, 1, 8, 32, 64, 65, 128, 256, 512, 1024, 2048, 4096, 8192, 16384);
    if (!is_coarse) {
        ADD_LIST(rows, max, 2, 4, 16, 24, 129, 192, 193);
        add_range(rows, 32, 512, 32, max);
        add_range(rows, 576, 1024, 64, max);
        add_range(rows, 1152, 4096, 128, max);
        add_range(rows, 4608, 8192, 512, max);
        add_range(rows, 9216, 16384, 1024, max);
        add_range(rows, 257, 3073, 256, max);
        add_range(rows, 385, 385, 1, max);
    }
    add_size(rows, max, max);
}

/* Rows of what is one pass over memory, or streams the head's weights: straight lines between. */
static void pass_rows(struct sizes *rows, int64_t max, bool is_coarse) {
    rows->n = 0;
    ADD_LIST(rows, max, 1, 32, 256, 1024, 4096, 16384);
    if (!is_coarse) {
        ADD_LIST(rows, max, 2, 4, 8, 16, 48, 64, 96, 128, 192, 384, 512, 768, 1536, 2048, 3072,
                 6144, 8192, 12288);
    }
    add_size(rows, max, max);
}

/* ---- points ---- */

struct builder {
    struct calibration_grid *grid;
    const struct calibration_bounds *bounds;
    const struct model *model;
    bool failed;
};

static void add_point(struct builder *b, const struct calibration_point *point) {
    struct calibration_grid *grid = b->grid;
    if (grid->n == grid->capacity) {
        size_t capacity = grid->capacity == 0 ? 256 : 2 * grid->capacity;
        struct calibration_point *points = realloc(grid->points, capacity * sizeof *points);
        if (points == NULL) {
            b->failed = true;
            return;
        }
        grid->points = points;
        grid->capacity = capacity;
    }
    grid->points[grid->n] = *point;
    grid->points[grid->n++].group = grid->n_groups;
}

static bool has_class(const struct calibration_grid *grid, const struct calibration_point *wanted) {
    for (size_t i = 0; i < grid->n; i++) {
        const struct calibration_point *point = &grid->points[i];
        bool is_product = wanted->op == PROFILE_GEMM || wanted->op == PROFILE_HEAD ||
                          wanted->op == PROFILE_GATE_UP; /* the same columns in all three */
        if (point->op == wanted->op &&
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

/* The point's class at each of `rows`, which go to the column `at`. */
static void add_rows(struct builder *b, struct calibration_point *point, size_t at,
                     const struct sizes *rows) {
    if (has_class(b->grid, point)) {
        return;
    }
    bool falls = point->op == PROFILE_GEMM;
    for (size_t i = 0; i < rows->n; i++) {
        point->sizes[at] = rows->values[falls ? rows->n - 1 - i : i];
        add_point(b, point);
    }
    b->grid->n_groups++;
}

static bool selection_fits(const struct builder *b, int64_t n_candidates) {
    int64_t block = b->model->block_tokens;
    return n_candidates + calibration_select_requests(n_candidates, block) * block <=
           b->bounds->max_tokens;
}

/* Candidates of a selection, or half as many rows packed; whole canvases are the most there are. */
static void selection_rows(const struct builder *b, bool packs, struct sizes *rows) {
    int64_t block = b->model->block_tokens, max = b->bounds->max_tokens;
    struct sizes all;
    pass_rows(&all, max, b->bounds->is_coarse);
    int64_t whole = max / SELECT_CANVAS_TOKENS * (SELECT_CANVAS_TOKENS - block);
    add_size(&all, whole > 0 ? whole : max - block, max);
    rows->n = 0;
    for (size_t i = 0; i < all.n; i++) {
        int64_t value = packs ? all.values[i] / 2 : all.values[i];
        if (value > 0 && selection_fits(b, packs ? 2 * value : value)) {
            add_size(rows, value, max);
        }
    }
}

static void add_pass(struct builder *b, enum profile_pass pass, int64_t channels) {
    const struct calibration_bounds *bounds = b->bounds;
    struct sizes rows;
    pass_rows(&rows, pass == PASS_SAMPLE ? bounds->max_logit_rows : bounds->max_tokens,
              bounds->is_coarse);
    if (pass == PASS_SELECT || pass == PASS_PACK) {
        selection_rows(b, pass == PASS_PACK, &rows);
    }
    struct calibration_point point = {
        .op = PROFILE_PASS, .pass = pass, .sizes = {channels}, .weight = -1};
    add_rows(b, &point, POINT_PASS_ROWS, &rows);
}

static void add_product(struct builder *b, const struct graph *graph, const struct op *op,
                        int weight) {
    const struct calibration_bounds *bounds = b->bounds;
    struct sizes rows;
    product_rows(&rows, op->rows == SYM_LOGIT_ROWS ? bounds->max_logit_rows : bounds->max_tokens,
                 bounds->is_coarse);
    struct calibration_point point = {.op = PROFILE_GEMM,
                                      .sizes = {0, op->n, op->k},
                                      .weight = weight,
                                      .x_stride = tensor_row_elements(graph, op->in[0])};
    add_rows(b, &point, POINT_GEMM_M, &rows);
}

/* Our own products with what follows them. */
static void add_fused(struct builder *b, const struct graph *graph, const struct op *op,
                      int weight) {
    bool is_head = op->kind == OP_HEAD;
    struct sizes rows;
    if (is_head) {
        pass_rows(&rows, b->bounds->max_tokens, b->bounds->is_coarse);
    } else {
        product_rows(&rows, b->bounds->max_tokens, b->bounds->is_coarse);
    }
    struct calibration_point point = {.op = is_head ? PROFILE_HEAD : PROFILE_GATE_UP,
                                      .sizes = {0, op->n, op->k},
                                      .weight = weight,
                                      .x_stride = tensor_row_elements(graph, op->in[0])};
    add_rows(b, &point, POINT_FUSED_ROWS, &rows);
}

/* Both products of the experts, after one another. */
static void add_experts(struct builder *b, int weight) {
    const struct model *m = b->model;
    struct sizes rows;
    product_rows(&rows, b->bounds->max_tokens, b->bounds->is_coarse);
    struct calibration_point point = {
        .op = PROFILE_MOE,
        .sizes = {0, m->hidden, m->expert_ffn, m->experts_active, m->experts},
        .weight = weight};
    add_rows(b, &point, POINT_MOE_TOKENS, &rows);
}

static void add_full(struct builder *b) {
    const struct model *m = b->model;
    int64_t max = b->bounds->max_tokens;
    struct sizes batches = {0}, queries = {0};
    ADD_LIST(&batches, max, 1, 4, 16, 64);
    ADD_LIST(&queries, max, 32, 128, 512, 2048, 8192);
    if (!b->bounds->is_coarse) {
        ADD_LIST(&batches, max, 2, 8, 32, 128);
        ADD_LIST(&queries, max, 64, 96, 192, 256, 384, 768, 1024, 1536, 3072, 4096, 6144);
    }
    struct calibration_point point = {.op = PROFILE_ATTENTION_FULL, .weight = -1};
    if (has_class(b->grid, &point)) {
        return;
    }
    for (size_t i = 0; i < batches.n; i++) {
        for (size_t j = 0; j < queries.n; j++) {
            int64_t batch = batches.values[i], q = queries.values[j];
            const int64_t sizes[] = {batch, q, m->heads, m->kv_heads, m->head_dim};
            memcpy(point.sizes, sizes, sizeof sizes);
            if (batch * q <= max) {
                add_point(b, &point);
            }
        }
    }
    b->grid->n_groups++;
}

/* Rows of the ring that a batch's keys take, in whole pages where there are pages. */
static bool rows_fit(const struct builder *b, int64_t batch, int64_t kv) {
    int64_t spare = calibration_is_exact(b->model) ? b->bounds->page_rows : 0;
    return batch * (kv + spare) <= b->bounds->max_kv_rows;
}

/* Prefill, with and without a prefix. */
static void add_causal(struct builder *b) {
    const struct model *m = b->model;
    int64_t max = b->bounds->max_tokens, max_kv = b->bounds->max_kv_rows;
    struct sizes batches = {0}, queries = {0}, prefixes = {0};
    ADD_LIST(&batches, max, 1, 4, 16);
    ADD_LIST(&queries, max, 32, 128, 512, 2048, 8192);
    ADD_LIST(&prefixes, max_kv, 0, 1024, 8192);
    if (!b->bounds->is_coarse) {
        ADD_LIST(&batches, max, 2, 8, 32);
        ADD_LIST(&queries, max, 64, 256, 1024, 4096);
        ADD_LIST(&prefixes, max_kv, 256, 4096, 16384);
    }
    struct calibration_point point = {.op = PROFILE_ATTENTION_CAUSAL, .weight = -1};
    if (has_class(b->grid, &point)) {
        return;
    }
    for (size_t i = 0; i < batches.n; i++) {
        for (size_t j = 0; j < queries.n; j++) {
            for (size_t k = 0; k < prefixes.n; k++) {
                int64_t batch = batches.values[i], q = queries.values[j];
                int64_t kv = prefixes.values[k] + q;
                const int64_t sizes[] = {batch, q, kv, m->heads, m->kv_heads, m->head_dim};
                memcpy(point.sizes, sizes, sizeof sizes);
                if (batch * q <= max && rows_fit(b, batch, kv)) {
                    add_point(b, &point);
                }
            }
        }
    }
    b->grid->n_groups++;
}

/* Queries of a block, or the single token of a model without blocks; of one that has exact keys and
 * values also fewer, as many as are left when the others need no more. */
static void block_queries(const struct builder *b, struct sizes *queries) {
    int64_t max = b->bounds->max_tokens;
    bool is_exact = calibration_is_exact(b->model);
    add_size(queries, b->model->block_tokens, max);
    if (b->bounds->is_coarse || b->model->mask == MASK_CAUSAL) {
        return;
    }
    ADD_LIST(queries, max, 4, 8, 16, 64);
    if (is_exact) {
        ADD_LIST(queries, max, 1, 2, 32);
    }
}

/* One group for each number of queries. */
static void add_block(struct builder *b) {
    const struct model *m = b->model;
    int64_t max = b->bounds->max_tokens, max_kv = b->bounds->max_kv_rows;
    bool is_exact = calibration_is_exact(m);
    struct sizes batches = {0}, queries = {0}, kv = {0};
    ADD_LIST(&batches, max, 1, 4, 16, 64, 256);
    block_queries(b, &queries);
    ADD_LIST(&kv, max_kv, 32, 256, 1024, 4096);
    if (!b->bounds->is_coarse) {
        ADD_LIST(&batches, max, 2, 8, 32, 128);
        ADD_LIST(&kv, max_kv, 64, 128, 512, 2048, 8192);
    }
    struct calibration_point point = {.op = PROFILE_ATTENTION_BLOCK, .weight = -1};
    if (has_class(b->grid, &point)) {
        return;
    }
    for (size_t j = 0; j < queries.n; j++) {
        for (size_t i = 0; i < batches.n; i++) {
            for (size_t k = 0; k < kv.n; k++) {
                int64_t batch = batches.values[i], q = queries.values[j];
                const int64_t sizes[] = {batch,    q,           kv.values[k],
                                         m->heads, m->kv_heads, m->head_dim};
                memcpy(point.sizes, sizes, sizeof sizes);
                if (batch * q <= max && rows_fit(b, batch, kv.values[k] + (is_exact ? q : 0))) {
                    add_point(b, &point);
                }
            }
        }
        b->grid->n_groups++;
    }
}

/* What a rank has of a sum or a gathering, from the least that devices add up on. */
static void add_exchange(struct builder *b, enum profile_op op, int64_t max_bytes) {
    struct calibration_point point = {.op = op, .sizes = {model_ranks(b->model)}, .weight = -1};
    if (has_class(b->grid, &point)) {
        return;
    }
    for (int64_t bytes = EXCHANGE_LEAST_BYTES; bytes < max_bytes;
         bytes *= b->bounds->is_coarse ? 4 : 2) {
        point.sizes[POINT_EXCHANGE_BYTES] = bytes;
        add_point(b, &point);
    }
    point.sizes[POINT_EXCHANGE_BYTES] = align_up(max_bytes, EXCHANGE_LEAST_BYTES);
    add_point(b, &point);
    b->grid->n_groups++;
}

int64_t calibration_most_exchanged(const struct calibration_grid *grid) {
    int64_t most = 0;
    for (size_t i = 0; i < grid->n; i++) {
        int64_t bytes = grid->points[i].sizes[POINT_EXCHANGE_BYTES];
        most = calibration_point_is_exchange(&grid->points[i]) && bytes > most ? bytes : most;
    }
    return most;
}

/* ---- graphs to points ---- */

struct graph_options calibration_graph(const struct model *model, int64_t element_bytes,
                                       bool selects, bool is_fused) {
    return (struct graph_options){.fused = true,
                                  .engine = true,
                                  .exact = calibration_is_exact(model),
                                  .selects = selects,
                                  .fused_head = is_fused,
                                  .fused_gate_up = is_fused,
                                  .element_bytes = element_bytes,
                                  .logits_bytes = BF16_BYTES};
}

/* The pass that an operator is; the rotation is two where it keeps rows, behind it. Exact keys and
 * values it writes to where they are kept. */
static bool add_passes_of(struct builder *b, const struct graph *graph, const struct op *op) {
    const struct model *m = b->model;
    int64_t kv_channels = (int64_t)m->kv_heads * m->head_dim;
    switch (op->kind) {
    case OP_EMBED:
        add_pass(b, PASS_EMBED, m->hidden);
        return true;
    case OP_RMSNORM:
        add_pass(b, op->in[1] >= 0 ? PASS_NORM_ADD : PASS_NORM, m->hidden);
        return true;
    case OP_ROPE:
        add_pass(b, PASS_ROPE, ((int64_t)m->heads + 2LL * m->kv_heads) * m->head_dim);
        if (!calibration_is_exact(m)) {
            add_pass(b, PASS_KEEP, kv_channels);
        }
        return true;
    case OP_SELECT:
        add_pass(b, PASS_SELECT, kv_channels);
        return true;
    case OP_PACK:
        add_pass(b, PASS_PACK, kv_channels);
        return true;
    case OP_SWIGLU:
        add_pass(b, PASS_SWIGLU, tensor_row_elements(graph, op->in[0]) / 2);
        return true;
    case OP_ADD:
        add_pass(b, PASS_ADD, m->hidden);
        return true;
    case OP_SAMPLE:
        add_pass(b, PASS_SAMPLE, m->vocab);
        return true;
    case OP_COMMIT:
        add_pass(b, PASS_DECODE, 1);
        return true;
    case OP_MOE_CHOOSE:
        add_pass(b, PASS_MOE_CHOOSE, model_routed_experts(m));
        return true;
    case OP_MOE_COMBINE:
        add_pass(b, PASS_MOE_COMBINE, m->hidden);
        return true;
    case OP_ALL_REDUCE:
        add_exchange(b, PROFILE_ALL_REDUCE,
                     b->bounds->max_tokens * m->hidden * graph->element_bytes);
        return true;
    case OP_ALL_GATHER:
        add_exchange(b, PROFILE_ALL_GATHER,
                     b->bounds->max_tokens * graph->tensors[op->in[0]].bytes.per);
        return true;
    case OP_COMBINE:
        return true; /* a candidate of each rank: the least of passes */
    default:
        return false;
    }
}

/* Which operators a walk over the graphs takes: light ones first, so that few groups follow the
 * time that the device takes to settle under load. */
enum walk { WALK_PASSES, WALK_BLOCK, WALK_HEAVY };
enum { WALKS = WALK_HEAVY + 1 };

static bool add_op(struct builder *b, const struct program *program, uint32_t i, enum walk walk) {
    const struct op *op = &program->graph->ops[i];
    bool heavy = op->kind == OP_LINEAR || op->kind == OP_ATTENTION_FULL ||
                 op->kind == OP_ATTENTION_PREFILL || op->kind == OP_HEAD ||
                 op->kind == OP_GATE_UP || op->kind == OP_MOE_GATE_UP || op->kind == OP_MOE_DOWN;
    bool block = op->kind == OP_ATTENTION_BLOCK;
    if (walk != (heavy ? WALK_HEAVY : block ? WALK_BLOCK : WALK_PASSES)) {
        return true;
    }
    switch (op->kind) {
    case OP_LINEAR:
        add_product(b, program->graph, op, op->weight);
        return true;
    case OP_HEAD:
    case OP_GATE_UP:
        add_fused(b, program->graph, op, op->weight);
        return true;
    case OP_MOE_GATE_UP:
        add_experts(b, op->weight);
        return true;
    case OP_MOE_DOWN:
        return true; /* with gates and ups */
    case OP_ATTENTION_FULL:
        add_full(b);
        return true;
    case OP_ATTENTION_PREFILL:
        add_causal(b);
        return true;
    case OP_ATTENTION_BLOCK:
        add_block(b);
        return true;
    default:
        return add_passes_of(b, program->graph, op);
    }
}

static int walk_graph(struct builder *b, int64_t element_bytes, int variant, enum walk walk,
                      struct err *err) {
    struct graph graph;
    struct program program;
    struct graph_options options =
        calibration_graph(b->model, element_bytes, variant & 1, variant & 2);
    graph_build(&graph, b->model, &options);
    int status = program_make(&program, &graph, err);
    for (uint32_t i = 0; status == 0 && i < graph.n_ops; i++) {
        if (!add_op(b, &program, i, walk)) {
            status = err_usage(err, "the operator '%s' (%s) of %s cannot be measured",
                               graph.ops[i].name, op_kind_names[graph.ops[i].kind], b->model->name);
        }
    }
    return status;
}

int calibration_grid_make(struct calibration_grid *grid, const struct model *model,
                          int64_t element_bytes, const struct calibration_bounds *bounds,
                          struct err *err) {
    enum { VARIANTS = 4 };
    *grid = (struct calibration_grid){0};
    struct builder b = {.grid = grid, .bounds = bounds, .model = model};
    int status = 0;
    for (int walk = 0; status == 0 && walk < WALKS; walk++) {
        for (int variant = 0; status == 0 && variant < VARIANTS; variant++) {
            if (calibration_is_exact(model) && variant & 1) {
                continue; /* nothing selects */
            }
            status = walk_graph(&b, element_bytes, variant, (enum walk)walk, err);
        }
    }
    if (status == 0 && b.failed) {
        status = err_world(err, "no memory for the points of a calibration");
    }
    if (status != 0) {
        calibration_grid_close(grid);
    }
    return status;
}

void calibration_grid_close(struct calibration_grid *grid) {
    free(grid->points);
    *grid = (struct calibration_grid){0};
}

/* ---- one point ---- */

const char *calibration_point_text(const struct calibration_point *point,
                                   char text[POINT_TEXT_CHARS]) {
    static const size_t n_sizes[PROFILE_OPS] = {[PROFILE_GEMM] = 3,
                                                [PROFILE_ATTENTION_FULL] = 5,
                                                [PROFILE_ATTENTION_CAUSAL] = 6,
                                                [PROFILE_ATTENTION_BLOCK] = 6,
                                                [PROFILE_PASS] = 2,
                                                [PROFILE_HEAD] = 3,
                                                [PROFILE_GATE_UP] = 3,
                                                [PROFILE_MOE] = 5,
                                                [PROFILE_ALL_REDUCE] = 2,
                                                [PROFILE_ALL_GATHER] = 2};
    bool is_pass = point->op == PROFILE_PASS;
    int at = snprintf(text, POINT_TEXT_CHARS, "%s%s%s", profile_op_name(point->op),
                      is_pass ? "," : "", is_pass ? profile_pass_names[point->pass] : "");
    for (size_t i = 0; i < n_sizes[point->op]; i++) {
        at += snprintf(text + at, (size_t)(POINT_TEXT_CHARS - at), ",%" PRId64, point->sizes[i]);
    }
    return text;
}

bool calibration_point_is_heavy(const struct calibration_point *point) {
    return point->op == PROFILE_GEMM || point->op == PROFILE_ATTENTION_FULL ||
           point->op == PROFILE_ATTENTION_CAUSAL || point->op == PROFILE_HEAD ||
           point->op == PROFILE_GATE_UP || point->op == PROFILE_MOE;
}

int64_t calibration_select_requests(int64_t n_candidates, int64_t block_tokens) {
    return ceil_div(n_candidates, SELECT_CANVAS_TOKENS - block_tokens);
}
