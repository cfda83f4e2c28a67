#include "sim/memory/live.h"

const char *const live_part_names[N_LIVE_PARTS] = {"attention", "FFN", "logits"};

enum live_part live_part_of(const struct graph *graph, uint32_t op) {
    switch (op_class(graph, op)) {
    case TENSOR_FFN:
        return PART_FFN;
    case TENSOR_LOGITS:
        return PART_LOGITS;
    case TENSOR_OTHER:
        return graph->ops[op].segment == graph->n_segments - 1 ? PART_LOGITS : PART_ATTENTION;
    default:
        return PART_ATTENTION;
    }
}

void live_note(struct live *live, enum live_part part, int64_t bytes, int64_t n_times) {
    if (bytes > live->peak_bytes) {
        live->peak_bytes = bytes;
        live->peak_part = part;
    }
    if (bytes > live->part_bytes[part]) {
        live->part_bytes[part] = bytes;
    }
    live->sum_bytes += (double)bytes * (double)n_times;
    live->n_ops += n_times;
}

double live_par(const struct live *live) {
    return live->sum_bytes > 0 ? (double)live->peak_bytes * (double)live->n_ops / live->sum_bytes
                               : 0;
}

void live_of_placement(const struct graph *graph, const struct step_shape *shape,
                       const struct placement *placement, struct live *out) {
    struct usage usage;
    *out = (struct live){0};
    usage_measure(graph, shape, placement, &usage);
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        if (usage.executions[op] > 0) {
            int64_t logits_bytes = usage.logits_bytes[op];
            live_note(out, live_part_of(graph, op), usage.bytes[op], usage.executions[op]);
            out->logits_bytes = logits_bytes > out->logits_bytes ? logits_bytes : out->logits_bytes;
        }
    }
}
