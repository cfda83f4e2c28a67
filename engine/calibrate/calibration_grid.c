#include "engine/calibrate/calibration_grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/op/op.h"

struct graph_options calibration_graph(const struct model *model, const struct storage *storage,
                                       int variant) {
    const bool features = variant == VARIANT_HAS_FEATURES,
               is_set = variant < CALIBRATION_STEP_VARIANTS;
    const bool selects = is_set && (variant & VARIANT_SELECTS) != 0;
    const bool fuses = is_set && (variant & VARIANT_IS_FUSED) != 0;
    const bool keeps = is_set && !calibration_is_exact(model) && !selects;
    /* Where a step tells the next one what it expects, logits are stored. */
    const bool stores_logits = model->conditioning_ffn > 0;
    return (struct graph_options){.fused = true,
                                  .engine = true,
                                  .exact = calibration_is_exact(model),
                                  .selects = selects,
                                  .splits_first_layer = features,
                                  .compares_values = features,
                                  .has_patterns = variant == VARIANT_HAS_PATTERNS,
                                  .stored_rows = keeps ? SYM_FULL_Q : SYM_ONE,
                                  .fused_head = fuses && !stores_logits,
                                  .fused_gate_up = fuses,
                                  .storage = *storage,
                                  .statistics = model->uniform_noise,
                                  .logits_bytes = BF16_BYTES};
}

bool calibration_has_graph(const struct model *model, int variant) {
    return !calibration_is_exact(model) ||
           (variant < CALIBRATION_STEP_VARIANTS && !(variant & VARIANT_SELECTS));
}

bool calibration_has_points(const struct model *model, const struct storage *storage, int variant) {
    const bool has_fp8 = number_is_fp8((enum number_type)storage->activations) ||
                         number_is_fp8((enum number_type)storage->cache);
    return calibration_has_graph(model, variant) && !(has_fp8 && variant == VARIANT_HAS_FEATURES);
}

/* The operators of one graph that are as heavy as this. */
static int walk(struct points *points, enum op_weightiness weightiness, struct err *err) {
    const struct graph *graph = points->graph;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        int status = op_check(graph, op, err);
        if (status != 0) {
            return status;
        }
        if (op_launch_of(op)->sizes == OP_SIZES_UNKNOWN) {
            return err_usage(err, "the operator '%s' (%s) of %s cannot be measured", op->name,
                             op_kind_names[op->kind], graph->model->name);
        }
        if (op_launch_of(op)->weightiness == weightiness) {
            points_add_op(points, op);
        }
    }
    return 0;
}

static int add_all(struct points *points, struct graph *graph, const struct model *model,
                   const struct storage *storage, struct err *err) {
    for (int weightiness = 0; weightiness < OP_WEIGHTS; weightiness++) {
        for (int variant = 0; variant < CALIBRATION_VARIANTS; variant++) {
            if (!calibration_has_points(model, storage, variant)) {
                continue;
            }
            const struct graph_options options = calibration_graph(model, storage, variant);
            graph_build(graph, model, &options);
            points->variant = variant;
            int status = walk(points, (enum op_weightiness)weightiness, err);
            if (status != 0) {
                return status;
            }
        }
    }
    return 0;
}

int calibration_grid_make(struct calibration_grid *grid, const struct model *model,
                          const struct storage *storage, const struct calibration_bounds *bounds,
                          struct err *err) {
    struct graph graph; /* one of the model's after the other */
    struct points points = {.grid = grid, .bounds = bounds, .graph = &graph};
    *grid = (struct calibration_grid){0};
    int status = add_all(&points, &graph, model, storage, err);
    if (status != 0) {
        calibration_grid_close(grid);
    }
    return status;
}

void calibration_grid_close(struct calibration_grid *grid) {
    free(grid->points);
    *grid = (struct calibration_grid){0};
}

int64_t calibration_most_exchanged(const struct calibration_grid *grid) {
    int64_t most = 0;
    for (size_t i = 0; i < grid->n; i++) {
        int64_t bytes = grid->points[i].sizes[POINT_EXCHANGE_BYTES];
        most = calibration_point_is_exchange(&grid->points[i]) && bytes > most ? bytes : most;
    }
    return most;
}

const char *calibration_point_type(const struct calibration_point *point) {
    static const char *const columns[PROFILE_TYPES] = {[PROFILE_FP8] = ",fp8",
                                                       [PROFILE_FP8_BF16] = ",fp8-bf16",
                                                       [PROFILE_FP8_CHANNEL] = ",fp8-channel"};
    return columns[point->type] != NULL ? columns[point->type] : "";
}

const char *calibration_point_text(const struct calibration_point *point,
                                   char text[POINT_TEXT_CHARS]) {
    bool is_pass = point->op == PROFILE_PASS;
    int at = snprintf(text, POINT_TEXT_CHARS, "%s%s%s", profile_op_name(point->op),
                      is_pass ? "," : "", is_pass ? profile_pass_names[point->pass] : "");
    for (uint32_t i = 0; i < point->n_sizes; i++) {
        at += snprintf(text + at, (size_t)(POINT_TEXT_CHARS - at), ",%" PRId64, point->sizes[i]);
    }
    return text;
}
