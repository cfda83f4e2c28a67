#include "engine/calibrate/calibration_price.h"

#include <stdlib.h>

#include "engine/calibrate/calibration_grid.h"
#include "engine/calibrate/quantile.h"
#include "sim/base/mem.h"
#include "sim/price/in_step.h"

static void parts_of(const struct calibration_step *step, struct in_step_part *parts) {
    for (uint32_t i = 0; i < step->n_operators; i++) {
        const struct step_operator *op = &step->operators[i];
        parts[i] = (struct in_step_part){.between_ns = op->between_ns,
                                         .executions = op->between_ns > 0 ? op->executions : 0};
    }
}

static void take_parts(struct calibration_step *step, const struct in_step_part *parts) {
    for (uint32_t i = 0; i < step->n_operators; i++) {
        step->operators[i].measured_ns = parts[i].ns;
    }
}

void calibration_step_share(struct calibration_step *step) {
    struct in_step_part parts[GRAPH_MAX_OPS];
    parts_of(step, parts);
    in_step_share(parts, step->n_operators, step->device_ns);
    take_parts(step, parts);
}

/* The time of an event is the median over steps whose operators were all timed; it is subtracted
 * from the others. */
static void share_all(struct calibration_steps *steps) {
    struct in_step_part parts[GRAPH_MAX_OPS];
    double event_ns[CALIBRATION_MAX_STEPS];
    size_t n = 0;
    for (size_t i = 0; i < steps->n; i++) {
        struct calibration_step *step = &steps->list[i];
        if (!step->is_cut) {
            parts_of(step, parts);
            event_ns[n++] = in_step_event_ns(parts, step->n_operators, step->device_ns);
            calibration_step_share(step);
        }
    }
    const double median_ns = n > 0 ? quantile(event_ns, n, 0.5) : 0;
    for (size_t i = 0; i < steps->n; i++) {
        struct calibration_step *step = &steps->list[i];
        if (step->is_cut) {
            parts_of(step, parts);
            in_step_take_off(parts, step->n_operators, median_ns);
            take_parts(step, parts);
        }
    }
}

/* What a step takes over of its operators' prices. */
typedef void take_prices_fn(const struct graph *graph, const struct step_shape *shape,
                            const struct op_price *prices, struct calibration_step *step);

static void take_rows(const struct graph *graph, const struct step_shape *shape,
                      const struct op_price *prices, struct calibration_step *step) {
    step->operators_ns = step->flops = step->bytes = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        struct step_operator *op = &step->operators[i];
        op->executions = in_step_executions(graph, i, shape, &prices[i]);
        op->priced_ns = prices[i].ns;
        step->operators_ns += prices[i].ns;
        step->flops += power_flops(prices[i].flops, prices[i].fp8_flops);
        step->bytes += prices[i].bytes;
    }
}

static void take_corrected(const struct graph *graph, const struct step_shape *shape,
                           const struct op_price *prices, struct calibration_step *step) {
    (void)shape;
    step->corrected_ns = step->compute_ns = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        step->corrected_ns += prices[i].ns;
        step->compute_ns += prices[i].compute_ns;
    }
}

static void price_step(struct cost_model *cost, const struct graph *graph,
                       const struct system *system, struct calibration_step *step,
                       take_prices_fn *take) {
    struct step_shape shape;
    struct op_price prices[GRAPH_MAX_OPS];
    calibration_step_shape(step, system->model, &shape);
    /* Chunks, of which a fused head has no use. */
    cost_explain(cost, &shape, system->chunks.bound, prices);
    take(graph, &shape, prices, step);
}

static int price_variant(struct calibration_steps *steps, const struct calibration_prices *by,
                         int variant, take_prices_fn *take, struct err *err) {
    const bool fused = variant & VARIANT_IS_FUSED;
    struct runtime runtime = {.varlen = true,
                              .fused = true,
                              .fused_head = fused,
                              .fused_gate_up = fused,
                              .logits_bytes = BF16_BYTES,
                              .host_mode = HOST_SERIAL};
    struct graph_options options = calibration_graph(by->system->model, by->storage, variant);
    struct graph *graph = mem_unwritten(1, sizeof *graph);
    struct cost_model *cost = NULL;
    graph_build(graph, by->system->model, &options);
    int status = cost_open(by->system->gpu, by->profile, NULL, &runtime, graph, &cost, err);
    for (size_t i = 0; status == 0 && i < steps->n; i++) {
        if (calibration_step_variant(&steps->list[i]) == variant) {
            price_step(cost, graph, by->system, &steps->list[i], take);
        }
    }
    cost_close(cost);
    free(graph);
    return status;
}

static int price_all(struct calibration_steps *steps, const struct calibration_prices *by,
                     const struct correction *correction, take_prices_fn *take, struct err *err) {
    struct correction before = {0};
    int status = 0;
    if (by->profile != NULL) {
        before = *profile_correction(by->profile);
        profile_correct(by->profile, correction);
    }
    for (int variant = 0; status == 0 && variant < CALIBRATION_STEP_VARIANTS; variant++) {
        if (calibration_has_graph(by->system->model, variant)) {
            status = price_variant(steps, by, variant, take, err);
        }
    }
    if (by->profile != NULL) {
        profile_correct(by->profile, &before);
    }
    return status;
}

int calibration_price_ahead(struct calibration_steps *steps,
                            const struct calibration_prices *prices, struct err *err) {
    static const struct correction none;
    return price_all(steps, prices, &none, take_rows, err);
}

int calibration_price(struct calibration_steps *steps, const struct calibration_prices *prices,
                      struct err *err) {
    static const struct correction none;
    int status = price_all(steps, prices, &none, take_rows, err);
    share_all(steps);
    return status;
}

int calibration_price_corrected(struct calibration_steps *steps,
                                const struct calibration_prices *prices,
                                const struct correction *correction, struct err *err) {
    return price_all(steps, prices, correction, take_corrected, err);
}
