#include "sim/memory/live.h"

const char *const live_part_names[N_LIVE_PARTS] = {"attention", "FFN", "logits"};

enum live_part live_part_of(const struct graph *graph, uint32_t op) {
    const struct op *self = &graph->ops[op];
    if (self->segment == graph->n_segments - 1) {
        return PART_LOGITS;
    }
    int n_norms = 0;
    for (uint32_t i = 0; i <= op; i++) {
        const struct op *other = &graph->ops[i];
        n_norms += other->segment == self->segment && other->kind == OP_RMSNORM;
    }
    return n_norms < 2 ? PART_ATTENTION : PART_FFN;
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

void live_of_placement(const struct graph *graph, const struct placement *placement,
                       struct live *out) {
    *out = (struct live){0};
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        int64_t bytes = 0, logits_bytes = 0;
        for (int t = 0; t < (int)graph->n_tensors; t++) {
            int first, last;
            placement_lifetime(graph, placement, t, &first, &last);
            bool is_placed = placement->offset_bytes[t] >= 0 && graph->tensors[t].alias < 0;
            if (is_placed && first <= (int)op && (int)op <= last) {
                bytes += placement->bytes[t];
                logits_bytes += tensor_holds_logits(graph, t) ? placement->bytes[t] : 0;
            }
        }
        live_note(out, live_part_of(graph, op), bytes,
                  graph->segments[graph->ops[op].segment].repeat);
        out->logits_bytes = logits_bytes > out->logits_bytes ? logits_bytes : out->logits_bytes;
    }
}
