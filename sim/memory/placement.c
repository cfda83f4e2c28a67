#include "sim/memory/placement.h"

#include <stdbool.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"

int placement_root(const struct graph *graph, int tensor) {
    while (graph->tensors[tensor].alias >= 0) {
        tensor = graph->tensors[tensor].alias;
    }
    return tensor;
}

void placement_lifetime(const struct graph *graph, int root, int *first_op, int *last_op) {
    const struct tensor *tensor = &graph->tensors[root];
    *first_op = tensor->carried ? 0 : tensor->first_op;
    *last_op = tensor->last_op;
}

static bool is_placed(const struct graph *graph, int tensor) {
    const struct tensor *t = &graph->tensors[tensor];
    return t->home == HOME_WORKSPACE && t->alias < 0 && t->first_op >= 0;
}

static bool live_together(const struct graph *graph, int a, int b) {
    int a_first, a_last, b_first, b_last;
    placement_lifetime(graph, a, &a_first, &a_last);
    placement_lifetime(graph, b, &b_first, &b_last);
    return a_first <= b_last && b_first <= a_last;
}

static int64_t max_live_bytes(const struct graph *graph, const struct placement *placement) {
    int64_t most = 0;
    for (int op = 0; op < (int)graph->n_ops; op++) {
        int64_t live = 0;
        for (int t = 0; t < (int)graph->n_tensors; t++) {
            int first, last;
            placement_lifetime(graph, t, &first, &last);
            if (is_placed(graph, t) && first <= op && op <= last) {
                live += placement->bytes[t];
            }
        }
        most = live > most ? live : most;
    }
    return most;
}

void placement_make(const struct planner *planner, const struct graph *graph,
                    const struct step_shape *shape, int64_t logit_chunk_rows,
                    struct placement *out) {
    memset(out, 0, sizeof *out);
    out->logit_chunk_rows = logit_chunk_rows;
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        int64_t bytes = tensor_bytes(&graph->tensors[t], shape, logit_chunk_rows);
        out->bytes[t] = ceil_div(bytes, PLACEMENT_ALIGN_BYTES) * PLACEMENT_ALIGN_BYTES;
        out->offset_bytes[t] = -1;
    }
    out->lower_bound_bytes = max_live_bytes(graph, out);
    planner->place(graph, shape, out);
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        if (graph->tensors[t].alias >= 0) {
            out->offset_bytes[t] = out->offset_bytes[placement_root(graph, t)];
        }
    }
}

/* The lowest gap among the tensors already placed that hold memory at the same time. */
static int64_t lowest_gap(const struct graph *graph, const struct placement *placement,
                          int tensor) {
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int other = 0; other < (int)graph->n_tensors; other++) {
            int64_t start = placement->offset_bytes[other];
            if (other == tensor || start < 0 || !is_placed(graph, other) ||
                !live_together(graph, tensor, other)) {
                continue;
            }
            if (offset < start + placement->bytes[other] &&
                start < offset + placement->bytes[tensor]) {
                offset = start + placement->bytes[other];
                moved = true;
            }
        }
    }
    return offset;
}

/* Birth order, lowest gap: Mosaic's first-fit in its released reading. */
static void place_first_fit(const struct graph *graph, const struct step_shape *shape,
                            struct placement *placement) {
    (void)shape;
    for (int op = -1; op < (int)graph->n_ops; op++) {
        for (int t = 0; t < (int)graph->n_tensors; t++) {
            int birth = graph->tensors[t].carried ? -1 : graph->tensors[t].first_op;
            if (birth != op || !is_placed(graph, t)) {
                continue;
            }
            placement->offset_bytes[t] = lowest_gap(graph, placement, t);
            int64_t end = placement->offset_bytes[t] + placement->bytes[t];
            placement->peak_bytes = end > placement->peak_bytes ? end : placement->peak_bytes;
        }
    }
}

/* Every tensor its own memory: what a runtime that frees nothing within a step would hold. */
static void place_no_reuse(const struct graph *graph, const struct step_shape *shape,
                           struct placement *placement) {
    (void)shape;
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        if (is_placed(graph, t)) {
            placement->offset_bytes[t] = placement->peak_bytes;
            placement->peak_bytes += placement->bytes[t];
        }
    }
}

const struct planner planner_table[] = {
    {"first-fit", "birth order, lowest gap between live tensors (Mosaic)", place_first_fit},
    {"no-reuse", "every tensor of a layer keeps its own memory", place_no_reuse},
};
const size_t planner_table_size = sizeof planner_table / sizeof planner_table[0];

const struct planner *planner_find(const char *name, struct err *err) {
    const char *names[sizeof planner_table / sizeof planner_table[0] + 1] = {NULL};
    for (size_t i = 0; i < planner_table_size; i++) {
        if (strcmp(planner_table[i].name, name) == 0) {
            return &planner_table[i];
        }
        names[i] = planner_table[i].name;
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    err_usage(err, "unknown planner '%s'%s (`unmask list planners` prints them all)", name, hint);
    return NULL;
}

int placement_verify(const struct graph *graph, const struct placement *placement,
                     struct err *err) {
    int64_t end = 0;
    for (int a = 0; a < (int)graph->n_tensors; a++) {
        if (!is_placed(graph, a)) {
            continue;
        }
        int64_t a_start = placement->offset_bytes[a], a_end = a_start + placement->bytes[a];
        if (a_start < 0) {
            return err_world(err, "tensor '%s' was given no place", graph->tensors[a].name);
        }
        end = a_end > end ? a_end : end;
        for (int b = 0; b < a; b++) {
            int64_t b_start = placement->offset_bytes[b], b_end = b_start + placement->bytes[b];
            if (is_placed(graph, b) && live_together(graph, a, b) && a_start < b_end &&
                b_start < a_end) {
                return err_world(err, "tensors '%s' and '%s' overlap while both are live",
                                 graph->tensors[a].name, graph->tensors[b].name);
            }
        }
    }
    if (end != placement->peak_bytes || end < placement->lower_bound_bytes) {
        return err_world(err, "the peak is not the end of the last tensor");
    }
    return 0;
}
