#include "engine/calibrate/calibration_price.h"

#include <stdlib.h>

#include "engine/calibrate/calibration_grid.h"
#include "sim/base/mem.h"
#include "sim/cost/in_step.h"

void calibration_step_share(struct calibration_step *step) {
    struct in_step_part parts[GRAPH_MAX_OPS];
    for (uint32_t i = 0; i < step->n_operators; i++) {
        const struct step_operator *op = &step->operators[i];
        parts[i] = (struct in_step_part){.between_ns = op->between_ns,
                                         .executions = op->between_ns > 0 ? op->executions : 0};
    }
    in_step_share(parts, step->n_operators, step->device_ns);
    for (uint32_t i = 0; i < step->n_operators; i++) {
        step->operators[i].measured_ns = parts[i].ns;
    }
}

static void price_step(struct cost_model *cost, const struct graph *graph,
                       const struct system *system, struct calibration_step *step) {
    struct step_shape shape;
    struct op_price prices[GRAPH_MAX_OPS];
    calibration_step_shape(step, system->model, &shape);
    /* Chunks, of which a fused head has no use. */
    cost_explain(cost, &shape, system->chunks.bound, prices);
    step->operators_ns = step->flops = step->bytes = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        struct step_operator *op = &step->operators[i];
        op->executions = in_step_executions(graph, i, &shape, &prices[i]);
        op->priced_ns = prices[i].ns;
        op->moving_ns = prices[i].bytes / system->gpu->best_bandwidth * 1e9;
        step->operators_ns += prices[i].ns;
        step->flops += prices[i].flops;
        step->bytes += prices[i].bytes;
    }
    calibration_step_share(step);
}

static int price_variant(struct calibration_steps *steps, const struct system *system,
                         const struct profile *profile, int64_t element_bytes, int variant,
                         struct err *err) {
    const bool fused = variant & VARIANT_IS_FUSED;
    struct runtime runtime = {.varlen = true,
                              .fused = true,
                              .fused_head = fused,
                              .fused_gate_up = fused,
                              .logits_bytes = BF16_BYTES,
                              .element_bytes = element_bytes,
                              .host_mode = HOST_SERIAL};
    struct graph_options options = calibration_graph(system->model, element_bytes, variant);
    struct graph *graph = mem_unwritten(1, sizeof *graph);
    struct cost_model *cost = NULL;
    graph_build(graph, system->model, &options);
    int status = cost_open(system->gpu, profile, NULL, &runtime, graph, &cost, err);
    for (size_t i = 0; status == 0 && i < steps->n; i++) {
        if (calibration_step_variant(&steps->list[i]) == variant) {
            price_step(cost, graph, system, &steps->list[i]);
        }
    }
    cost_close(cost);
    free(graph);
    return status;
}

int calibration_price(struct calibration_steps *steps, const struct system *system,
                      const struct profile *profile, int64_t element_bytes, struct err *err) {
    int status = 0;
    for (int variant = 0; status == 0 && variant < CALIBRATION_VARIANTS; variant++) {
        if (calibration_has_graph(system->model, variant)) {
            status = price_variant(steps, system, profile, element_bytes, variant, err);
        }
    }
    return status;
}
