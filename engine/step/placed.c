#include "engine/step/placed.h"

#include <inttypes.h>

#include "sim/base/num.h"

/* Every tensor of the step inside the workspace, with room for this shape. */
static int check_placement(const struct program *program, const struct step_limits *limits,
                           const struct step *step, struct err *err) {
    const struct graph *graph = program->graph;
    const struct placement *placement = step->placement;
    if (placement->peak_bytes > limits->workspace_bytes) {
        char peak[32], room[32];
        return err_usage(err, "the placement needs %s of workspace, but there are %s",
                         num_format_bytes(peak, sizeof peak, (double)placement->peak_bytes),
                         num_format_bytes(room, sizeof room, (double)limits->workspace_bytes));
    }
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        int64_t offset = placement->offset_bytes[t];
        int64_t needed = tensor_bytes(graph, t, step->shape, placement->chunks);
        if (graph->tensors[t].home == HOME_WORKSPACE &&
            (offset < 0 || offset % PLACEMENT_ALIGN_BYTES != 0 || placement->bytes[t] < needed ||
             offset + placement->bytes[t] > placement->peak_bytes)) {
            return err_usage(err,
                             "the placement gives tensor '%s' %" PRId64 " bytes at %" PRId64
                             " of %" PRId64 ", but this step needs %" PRId64,
                             graph->tensors[t].name, placement->bytes[t], offset,
                             placement->peak_bytes, needed);
        }
    }
    return 0;
}

static bool overlap(const struct placement *placement, int a, int b) {
    const int64_t *start = placement->offset_bytes, *bytes = placement->bytes;
    return start[a] < start[b] + bytes[b] && start[b] < start[a] + bytes[a];
}

/* Whether the operator writes over a tensor that comes from outside the loop; in place is fine. */
static int check_writes(const struct program *program, const struct placement *placement,
                        const struct op *op, int in, struct err *err) {
    const struct graph *graph = program->graph;
    for (int i = 0; i < OP_MAX_TENSORS && op->out[i] >= 0; i++) {
        int out = op->out[i];
        if (graph->tensors[out].home == HOME_WORKSPACE &&
            placement_root(graph, out) != placement_root(graph, in) &&
            overlap(placement, out, in)) {
            return err_usage(err,
                             "the placement puts tensor '%s' over '%s', which later chunks of %s "
                             "still read",
                             graph->tensors[out].name, graph->tensors[in].name,
                             chunk_kind_names[graph->loops[op->loop].kind]);
        }
    }
    return 0;
}

/* Nothing that a loop in chunks writes may lie over what it reads from outside: later chunks need
 * that still. */
static int check_loop(const struct program *program, const struct step *step, int loop,
                      struct err *err) {
    const struct graph *graph = program->graph;
    int first = graph->loops[loop].first_op, last = graph->loops[loop].last_op;
    int status = 0;
    for (int reader = first; status == 0 && reader <= last; reader++) {
        const int *in = graph->ops[reader].in;
        for (int i = 0; status == 0 && i < OP_MAX_TENSORS && in[i] >= 0; i++) {
            const struct tensor *t = &graph->tensors[in[i]];
            bool is_outside = t->home == HOME_WORKSPACE && t->loop != loop;
            for (int op = first; status == 0 && is_outside && op <= last; op++) {
                status = check_writes(program, step->placement, &graph->ops[op], in[i], err);
            }
        }
    }
    return status;
}

int placed_check(const struct program *program, const struct step_limits *limits,
                 const struct step *step, struct err *err) {
    const struct graph *graph = program->graph;
    int status = check_placement(program, limits, step, err);
    for (int loop = 0; status == 0 && loop < (int)graph->n_loops; loop++) {
        if (loop_n_chunks(graph, loop, step->shape, step->placement->chunks) > 1) {
            status = check_loop(program, step, loop, err);
        }
    }
    return status;
}
