#include "experiments/study/measured_step.h"

#include <gsl/gsl_statistics_double.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/decode/block.h"
#include "sim/system/system_step.h"

struct stage {
    const struct asked_step *step;
    struct engine *engine;
    struct live *live;
    uint32_t n;
    struct request *requests;     /* [n], by slot: those of the first kind, then the second's */
    uint32_t *slots, *takes;      /* [n] */
    const struct span **spans;    /* [n] */
    struct planned_block *blocks; /* [n] */
};

/* Slots [first, first + n) as one batch. */
static struct planned_step batch_of(const struct stage *stage, uint32_t first, uint32_t n,
                                    struct step_shape *shape) {
    shape_clear(shape);
    for (uint32_t i = 0; i < n; i++) {
        stage->spans[i] = &stage->requests[first + i].span;
        shape_add(shape->sym, stage->spans[i], 1);
    }
    shape->n_spans = n;
    shape->spans = stage->spans;
    return (struct planned_step){.shape = shape,
                                 .workspace_bytes = stage->step->workspace_bytes,
                                 .requests = stage->requests,
                                 .slots = stage->slots + first,
                                 .n_slots = n,
                                 .blocks = stage->blocks + first,
                                 .is_recorded = true};
}

/* With the memory that the step needs; of steps before it less would do. */
static int admit(struct stage *stage, struct err *err) {
    struct executor executor = live_interface(stage->live);
    uint32_t slot = 0;
    for (int kind = 0; kind < 2; kind++) {
        const struct step_kind *asked = &stage->step->kinds[kind];
        for (uint32_t i = 0; i < asked->n_requests; i++, slot++) {
            stage->requests[slot] = asked->path[0];
            stage->requests[slot].id = slot;
            stage->requests[slot].kv_held_bytes = asked->path[asked->n_path - 1].kv_bytes;
            stage->slots[slot] = slot;
            stage->takes[slot] = 1;
            int status = executor.admit(executor.state, 0, slot, &stage->requests[slot], NULL, err);
            if (status != 0) {
                return status;
            }
        }
    }
    return 0;
}

static void place(struct stage *stage, uint32_t first, uint32_t n, const struct request *at,
                  struct planned_block block) {
    for (uint32_t slot = first; slot < first + n; slot++) {
        stage->requests[slot] = *at;
        stage->requests[slot].id = slot;
        stage->blocks[slot] = block;
    }
}

/* One step of all the requests of a kind, as many at a time as the token budget allows. */
static int run_past_step(struct stage *stage, uint32_t first, uint32_t n, const struct request *at,
                         struct planned_block block, struct err *err) {
    uint32_t most = stage->engine->limits.max_tokens / at->span.queries;
    int status = 0;
    place(stage, first, n, at, block);
    for (uint32_t done = 0; status == 0 && done < n; done += most) {
        struct step_shape shape;
        struct live_times times;
        uint32_t together = n - done < most ? n - done : most;
        const struct planned_step planned = batch_of(stage, first + done, together, &shape);
        status = live_execute(stage->live, &planned, 1, stage->takes, &times, err);
    }
    return status;
}

/* A step of an exact cache that stores keys and values, a prefill in chunks of as many
 * tokens as one step takes. */
static int run_past_rows(struct stage *stage, uint32_t first, uint32_t n, const struct request *at,
                         struct planned_block block, struct err *err) {
    struct request part = *at;
    uint32_t most = window_whole(at, (uint32_t)stage->engine->limits.max_tokens);
    uint32_t left = at->span.queries;
    int status = 0;
    while (status == 0 && left > 0) {
        bool is_last = left <= most;
        part.span.queries = part.span.first_queries = is_last ? left : most;
        part.span.logit_rows = is_last ? at->span.logit_rows : 0;
        status = run_past_step(stage, first, n, &part, block, err);
        part.span.context += part.span.queries;
        part.rows.run.first += part.span.queries;
        left -= part.span.queries;
    }
    return status;
}

static bool leaves_rows(const struct request *request) {
    return request->span.exact &&
           (request->span.phase != PHASE_REUSE || request->causal == SEES_TOKENS);
}

/* Where passes run parts of a block, or leave positions out, each one tells in what state the next
 * finds it. */
static bool follows_blocks(const struct request *request) {
    return rows_leave_out(&request->rows);
}

/* Every request of a kind commits as many positions in its next step. */
static void take(struct stage *stage, uint32_t n_requests, uint32_t n) {
    for (uint32_t i = 0; i < n_requests; i++) {
        stage->takes[i] = n;
    }
}

/* The passes over whole canvases since the block began are what fills the cache, and, where blocks
 * are followed, those between them; exact ones are filled from the beginning on. */
static int bring(struct stage *stage, uint32_t first, const struct step_kind *kind,
                 struct err *err) {
    if (kind->n_requests == 0) {
        return 0;
    }
    const struct request *last = &kind->path[kind->n_path - 1];
    int status = 0;
    for (uint32_t i = 0; status == 0 && i + 1 < kind->n_path; i++) {
        const struct request *at = &kind->path[i];
        bool follows = follows_blocks(at);
        if (follows) {
            take(stage, kind->n_requests, at[1].committed_tokens - at->committed_tokens);
        }
        bool is_here = at->span.exact || window_block(at) == window_block(last);
        bool fills = !at->span.exact && is_here && at->span.context == 0;
        bool in_block = follows && is_here && at->span.phase == PHASE_REUSE;
        if (leaves_rows(at)) {
            status = run_past_rows(stage, first, kind->n_requests, at, step_block(kind, i), err);
        } else if (fills || in_block) {
            status = run_past_step(stage, first, kind->n_requests, at, step_block(kind, i), err);
        }
    }
    place(stage, first, kind->n_requests, last, step_block(kind, kind->n_path - 1));
    take(stage, kind->n_requests, 1);
    return status;
}

static int repeat(struct stage *stage, const struct measuring *measuring, struct measured_step *out,
                  struct err *err) {
    uint32_t rounds = measuring->rounds, warm = measuring->warm_rounds;
    struct step_shape shape;
    const struct planned_step planned = batch_of(stage, 0, stage->n, &shape);
    double *wall = mem_zeroed(rounds, sizeof *wall), *device = mem_zeroed(rounds, sizeof *device);
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < warm + rounds; i++) {
        struct live_times times;
        status = live_execute(stage->live, &planned, 1, stage->takes, &times, err);
        if (i >= warm) {
            wall[i - warm] = times.wall_ns;
            device[i - warm] = times.device_ns;
        }
    }
    if (status == 0) {
        out->rounds = rounds;
        out->device_ns = gsl_stats_median(device, 1, (size_t)rounds);
        out->wall_ns = gsl_stats_median(wall, 1, (size_t)rounds);
        out->spread =
            (gsl_stats_max(wall, 1, rounds) - gsl_stats_min(wall, 1, rounds)) / out->wall_ns;
    }
    free(wall);
    free(device);
    return status;
}

static int repeat_operators(struct stage *stage, uint32_t rounds, struct measured_step *out,
                            struct err *err) {
    uint32_t n_ops = stage->engine->system->graph.n_ops;
    double *one = mem_zeroed(rounds, sizeof *one),
           (*all)[GRAPH_MAX_OPS] = mem_zeroed(rounds, sizeof *all);
    struct step_shape shape;
    const struct planned_step planned = batch_of(stage, 0, stage->n, &shape);
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < rounds; i++) {
        status = live_operators(stage->live, &planned, stage->takes, all[i], err);
    }
    for (uint32_t op = 0; status == 0 && rounds > 0 && op < n_ops; op++) {
        for (uint32_t i = 0; i < rounds; i++) {
            one[i] = all[i][op];
        }
        out->op_ns[op] = gsl_stats_median(one, 1, rounds);
    }
    free(one);
    free(all);
    return status;
}

static int count_experts(struct stage *stage, struct measured_step *out, struct err *err) {
    struct step_shape shape;
    const struct planned_step planned = batch_of(stage, 0, stage->n, &shape);
    return live_experts(stage->live, &planned, stage->takes, &out->experts_hit, err);
}

static int measure(struct stage *stage, const struct measuring *measuring,
                   struct measured_step *out, struct err *err) {
    const struct asked_step *step = stage->step;
    struct placement placement;
    if (admit(stage, err) != 0 || bring(stage, 0, &step->kinds[0], err) != 0 ||
        bring(stage, step->kinds[0].n_requests, &step->kinds[1], err) != 0 ||
        repeat(stage, measuring, out, err) != 0 ||
        repeat_operators(stage, measuring->operator_rounds, out, err) != 0) {
        return err_status(err);
    }
    if (measuring->operator_rounds > 0 && stage->engine->system->model->experts > 0 &&
        count_experts(stage, out, err) != 0) {
        return err_status(err);
    }
    out->workspace_bytes = live_activation_peak_bytes(stage->live);
    out->own_bytes = engine_memory(stage->engine).side_bytes;
    out->n_ranks = stage->engine->system->settings.tensor_parallel;
    int status =
        system_place(stage->engine->system, &step->shape, step->workspace_bytes, &placement, err);
    out->planned_bytes = placement.peak_bytes;
    return status;
}

int step_measure_on(struct engine *engine, const struct asked_step *step,
                    const struct measuring *measuring, struct measured_step *out, struct err *err) {
    struct stage stage = {
        .step = step, .engine = engine, .n = step->kinds[0].n_requests + step->kinds[1].n_requests};
    *out = (struct measured_step){0};
    int status = live_open(engine, 1, true, &stage.live, err);
    if (status == 0) {
        snprintf(out->device, sizeof out->device, "%s", engine->device.facts.name);
        stage.requests = mem_zeroed(stage.n, sizeof *stage.requests);
        stage.slots = mem_zeroed(stage.n, sizeof *stage.slots);
        stage.takes = mem_zeroed(stage.n, sizeof *stage.takes);
        stage.spans = mem_zeroed(stage.n, sizeof *stage.spans);
        stage.blocks = mem_zeroed(stage.n, sizeof *stage.blocks);
        status = measure(&stage, measuring, out, err);
    }
    free(stage.requests);
    free(stage.slots);
    free(stage.takes);
    free(stage.spans);
    free(stage.blocks);
    live_close(stage.live);
    return status;
}

int step_measure(const struct engine_request *request, const struct asked_step *step,
                 const struct measuring *measuring, struct measured_step *out, struct err *err) {
    struct engine *engine = NULL;
    int status = engine_open(request, &engine, err);
    status = status == 0 ? step_measure_on(engine, step, measuring, out, err) : status;
    engine_close(engine);
    return status;
}
