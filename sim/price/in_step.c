#include "sim/price/in_step.h"

#include <math.h>

/* A part keeps at least so much of what was timed. */
static const double least = 0.1;

double in_step_event_ns(const struct in_step_part *parts, size_t n, double step_ns) {
    double between_ns = 0, executions = 0;
    for (size_t i = 0; i < n; i++) {
        between_ns += parts[i].executions > 0 ? parts[i].between_ns : 0;
        executions += parts[i].executions;
    }
    return executions > 0 && between_ns > step_ns ? (between_ns - step_ns) / executions : 0;
}

double in_step_take_off(struct in_step_part *parts, size_t n, double event_ns) {
    double sum_ns = 0;
    for (size_t i = 0; i < n; i++) {
        struct in_step_part *part = &parts[i];
        part->ns = part->executions > 0 ? fmax(part->between_ns - event_ns * part->executions,
                                               least * part->between_ns)
                                        : 0;
        sum_ns += part->ns;
    }
    return sum_ns;
}

void in_step_share(struct in_step_part *parts, size_t n, double step_ns) {
    const double sum_ns = in_step_take_off(parts, n, in_step_event_ns(parts, n, step_ns));
    for (size_t i = 0; i < n; i++) {
        parts[i].ns *= sum_ns > 0 ? step_ns / sum_ns : 0;
    }
}

uint32_t in_step_executions(const struct graph *graph, uint32_t op, const struct step_shape *shape,
                            const struct op_price *price) {
    const struct op *of = &graph->ops[op];
    const bool is_unpriced =
        price->executions == 0 && op_type_of(of)->is_part && shape->sym[of->rows] > 0;
    return is_unpriced ? graph->segments[of->segment].repeat : price->executions;
}
