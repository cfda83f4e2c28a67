#include "sim/memory/usage.h"

const char *const tensor_class_names[TENSOR_CLASS_COUNT] = {"residual", "attention", "ffn",
                                                            "logits", "other"};

static bool is_norm(const struct op *op) {
    return op_type_of(op)->memory == MEMORY_NORM;
}

static bool has_attention(const struct graph *graph, uint32_t segment) {
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].segment == segment && op_is_attention(&graph->ops[i])) {
            return true;
        }
    }
    return false;
}

enum tensor_class op_class(const struct graph *graph, uint32_t op) {
    const struct op *self = &graph->ops[op];
    static const enum tensor_class of_loop[CHUNK_KINDS] = {
        [CHUNK_ATTENTION] = TENSOR_ATTENTION,
        [CHUNK_FFN] = TENSOR_FFN,
        [CHUNK_LOGITS] = TENSOR_LOGITS,
    };
    if (self->loop >= 0) {
        return of_loop[graph->loops[self->loop].kind];
    }
    if (!has_attention(graph, self->segment)) {
        bool is_before = is_norm(self) || op_type_of(self)->memory == MEMORY_EMBEDDING;
        return is_before ? TENSOR_OTHER : TENSOR_LOGITS;
    }
    int n_norms = 0;
    for (uint32_t i = 0; i <= op; i++) {
        const struct op *before = &graph->ops[i];
        n_norms += before->segment == self->segment && is_norm(before);
    }
    return n_norms > 1 ? TENSOR_FFN : TENSOR_ATTENTION;
}

enum tensor_class tensor_class(const struct graph *graph, int root) {
    const struct tensor *tensor = &graph->tensors[root];
    return tensor->carried ? TENSOR_RESIDUAL : op_class(graph, (uint32_t)tensor->first_op);
}

static int64_t executions(const struct graph *graph, const struct step_shape *shape,
                          const struct placement *placement, const struct op *op) {
    int64_t rows = shape->sym[op_is_attention(op) ? op->span_n : op->rows];
    int64_t repeat = op_type_of(op)->is_part ? 0 : graph->segments[op->segment].repeat;
    if (op->loop >= 0) {
        return repeat * placement->n_chunks[op->loop];
    }
    return rows > 0 ? repeat : 0;
}

static bool is_live(const struct graph *graph, const struct placement *placement, int tensor,
                    int op) {
    if (placement->offset_bytes[tensor] < 0 || graph->tensors[tensor].alias >= 0) {
        return false;
    }
    int first, last;
    placement_lifetime(graph, placement, tensor, &first, &last);
    return first <= op && op <= last;
}

/* How far into the workspace the tensors reach that are live at `op`. */
static int64_t end_at(const struct graph *graph, const struct placement *placement, int op) {
    int64_t end = 0;
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        int64_t tensor_end = placement->offset_bytes[t] + placement->bytes[t];
        if (is_live(graph, placement, t, op) && tensor_end > end) {
            end = tensor_end;
        }
    }
    return end;
}

static void split_peak(const struct graph *graph, const struct placement *placement,
                       struct usage *out) {
    bool found = false;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        if (end_at(graph, placement, (int)op) == placement->peak_bytes &&
            (!found || out->bytes[op] > out->bytes[out->peak_op])) {
            out->peak_op = op;
            found = true;
        }
    }
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        if (is_live(graph, placement, t, (int)out->peak_op)) {
            out->class_bytes[tensor_class(graph, t)] += placement->bytes[t];
        }
    }
    out->unused_bytes = placement->peak_bytes - out->bytes[out->peak_op];
}

void usage_measure(const struct graph *graph, const struct step_shape *shape,
                   const struct placement *placement, struct usage *out) {
    *out = (struct usage){0};
    double sum = 0;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        for (int t = 0; t < (int)graph->n_tensors; t++) {
            int64_t bytes = is_live(graph, placement, t, (int)op) ? placement->bytes[t] : 0;
            out->bytes[op] += bytes;
            out->logits_bytes[op] += tensor_holds_logits(graph, t) ? bytes : 0;
        }
        out->executions[op] = executions(graph, shape, placement, &graph->ops[op]);
        if (out->executions[op] > 0 && out->bytes[op] > out->most_bytes) {
            out->most_bytes = out->bytes[op];
        }
        out->n_executions += out->executions[op];
        sum += (double)out->executions[op] * (double)out->bytes[op];
    }
    out->mean_bytes = out->n_executions > 0 ? sum / (double)out->n_executions : 0;
    split_peak(graph, placement, out);
}

double usage_peak_to_average(const struct usage *usage) {
    return usage->mean_bytes > 0 ? (double)usage->most_bytes / usage->mean_bytes : 1;
}
