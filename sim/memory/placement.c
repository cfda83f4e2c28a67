#include "sim/memory/placement.h"

#include <string.h>

#include "sim/base/num.h"
#include "sim/step/registrar.h"

_Static_assert(GRAPH_MAX_BYTES <= PACKING_MAX_BYTES, "a checked graph can be packed");

int placement_root(const struct graph *graph, int tensor) {
    while (graph->tensors[tensor].alias >= 0) {
        tensor = graph->tensors[tensor].alias;
    }
    return tensor;
}

/* Where in the list of operators a tensor's life, which starts or ends inside a loop that comes in
 * chunks, starts or ends. The loop's own tensors are made anew by every chunk. */
static void live_through_loops(const struct graph *graph, const struct placement *placement,
                               int root, int *first_op, int *last_op) {
    for (int i = 0; i < (int)graph->n_loops; i++) {
        const struct chunk_loop *loop = &graph->loops[i];
        if (placement->n_chunks[i] <= 1 || graph->tensors[root].loop == i) {
            continue;
        }
        if (*first_op >= loop->first_op && *first_op <= loop->last_op) {
            *first_op = loop->first_op;
        }
        if (*last_op >= loop->first_op && *last_op <= loop->last_op) {
            *last_op = loop->last_op;
        }
    }
}

void placement_lifetime(const struct graph *graph, const struct placement *placement, int root,
                        int *first_op, int *last_op) {
    const struct tensor *tensor = &graph->tensors[root];
    *first_op = tensor->carried ? 0 : tensor->first_op;
    *last_op = tensor->last_op;
    live_through_loops(graph, placement, root, first_op, last_op);
}

static bool is_placed(const struct graph *graph, int tensor) {
    const struct tensor *t = &graph->tensors[tensor];
    return t->home == HOME_WORKSPACE && t->alias < 0 && t->first_op >= 0;
}

static bool live_together(const struct graph *graph, const struct placement *placement, int a,
                          int b) {
    int a_first, a_last, b_first, b_last;
    placement_lifetime(graph, placement, a, &a_first, &a_last);
    placement_lifetime(graph, placement, b, &b_first, &b_last);
    return a_first <= b_last && b_first <= a_last;
}

/* The problem of a step, and which tensor each of its buffers is. */
struct step_packing {
    struct packing packing;
    struct packing_buffer buffers[GRAPH_MAX_TENSORS];
    int tensors[GRAPH_MAX_TENSORS];
    int64_t offset_bytes[GRAPH_MAX_TENSORS];
};

/* Carried tensors are born before the first operator: time 0. */
static void make_packing(const struct graph *graph, const struct placement *placement,
                         struct step_packing *out) {
    out->packing = (struct packing){out->buffers, 0};
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        if (!is_placed(graph, t)) {
            continue;
        }
        int first_op, last_op;
        placement_lifetime(graph, placement, t, &first_op, &last_op);
        uint32_t i = out->packing.n_buffers++;
        out->tensors[i] = t;
        out->buffers[i] = (struct packing_buffer){
            .first_time = graph->tensors[t].carried ? 0 : first_op + 1,
            .last_time = last_op + 1,
            .bytes = placement->bytes[t],
            .align_bytes = PLACEMENT_ALIGN_BYTES,
        };
    }
}

static void measure_tensors(const struct graph *graph, const struct step_shape *shape,
                            struct chunk_rows chunks, struct placement *out) {
    memset(out, 0, sizeof *out);
    out->chunks = chunks;
    for (int i = 0; i < (int)graph->n_loops; i++) {
        out->n_chunks[i] = (uint32_t)loop_n_chunks(graph, i, shape, chunks);
    }
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        int64_t bytes = tensor_bytes(graph, t, shape, chunks);
        out->bytes[t] = align_up(bytes, PLACEMENT_ALIGN_BYTES);
        out->offset_bytes[t] = -1;
    }
}

void placement_measure(const struct graph *graph, const struct step_shape *shape,
                       struct chunk_rows chunks, struct placement *out, int64_t *live) {
    measure_tensors(graph, shape, chunks, out);
    memset(live, 0, graph->n_ops * sizeof *live);
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        int first_op, last_op;
        placement_lifetime(graph, out, t, &first_op, &last_op);
        for (int op = first_op; is_placed(graph, t) && op <= last_op; op++) {
            live[op] += out->bytes[t];
        }
    }
}

static void take_plan(const struct graph *graph, const struct step_packing *problem,
                      const struct plan *plan, struct placement *out) {
    out->peak_bytes = plan->peak_bytes;
    out->lower_bound_bytes = plan->lower_bound_bytes;
    out->proven_bound_bytes = plan->proven_bound_bytes;
    out->n_nodes = plan->n_nodes;
    out->stopped = plan->stopped;
    for (uint32_t i = 0; i < problem->packing.n_buffers; i++) {
        out->offset_bytes[problem->tensors[i]] = plan->offset_bytes[i];
    }
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        if (graph->tensors[t].alias >= 0) {
            out->offset_bytes[t] = out->offset_bytes[placement_root(graph, t)];
        }
    }
}

/* The exact search wants 24 bytes for each pair of buffers live together and 36 for each member of
 * a section; of n intervals these are at most n * n / 2 and (n + 1) * (n + 1) / 4. */
enum { SCRATCH_BYTES = 32 * GRAPH_MAX_TENSORS * GRAPH_MAX_TENSORS };

void placement_make(const struct planner *planner, const struct graph *graph,
                    const struct step_shape *shape, struct chunk_rows chunks,
                    struct placement *out) {
    _Alignas(16) char scratch[SCRATCH_BYTES];
    struct step_packing problem;
    struct plan plan = {.offset_bytes = problem.offset_bytes};
    struct err err = {0};
    measure_tensors(graph, shape, chunks, out);
    make_packing(graph, out, &problem);
    struct plan_request request = {.packing = &problem.packing, .max_nodes = PLACEMENT_MAX_NODES};
    ASSERT(planner_scratch_bytes(planner, &problem.packing) <= sizeof scratch);
    int status = planner_solve(planner, &request, scratch, &plan, &err);
    ASSERT(status == 0);
    take_plan(graph, &problem, &plan, out);
}

int placement_try(const struct planner *planner, const struct plan_request *request,
                  const struct graph *graph, const struct step_shape *shape,
                  struct chunk_rows chunks, struct placement *out, struct err *err) {
    struct step_packing problem;
    struct plan plan = {.offset_bytes = problem.offset_bytes};
    measure_tensors(graph, shape, chunks, out);
    make_packing(graph, out, &problem);
    struct plan_request asked = *request;
    asked.packing = &problem.packing;
    int status = planner_solve(planner, &asked, NULL, &plan, err);
    if (status == 0) {
        take_plan(graph, &problem, &plan, out);
    }
    return status;
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
            if (is_placed(graph, b) && live_together(graph, placement, a, b) && a_start < b_end &&
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
