#include "sim/cost/floor.h"

double floor_bytes(const struct graph *graph, const struct op *op, double rows, double hits) {
    double matrix = (double)(graph->element_bytes * op->n * op->k);
    switch (op->kind) {
    case OP_LINEAR:
    case OP_HEAD:
    case OP_GATE_UP:
    case OP_MOE_ROUTE:
        return matrix;
    case OP_MOE_LINEAR:
    case OP_MOE_GATE_UP:
    case OP_MOE_DOWN:
        return matrix * hits;
    case OP_GATHER:
        return rows * (double)graph->tensors[op->out[0]].bytes.per;
    default:
        return 0;
    }
}

double floor_span_bytes(const struct graph *graph, const struct op *op,
                        const int64_t sym[SYM_COUNT]) {
    const struct model *model = graph->model;
    int64_t cached = sym[op->span_k] - sym[op->span_q];
    int64_t row_bytes = 2 * graph->element_bytes * model->kv_heads * model->head_dim;
    return cached > 0 ? (double)(cached * row_bytes) : 0;
}

double floor_ns(const struct gpu *gpu, double flops, double bytes) {
    if (gpu->compute_capability == 0) {
        return 0;
    }
    double compute_ns = flops / gpu_roof_flops(gpu) * 1e9;
    double memory_ns = bytes / gpu->peak_bandwidth * 1e9;
    return compute_ns > memory_ns ? compute_ns : memory_ns;
}
