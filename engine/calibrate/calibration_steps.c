#include "engine/calibrate/calibration_stage.h"

#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/calibrate/calibration_kept.h"
#include "engine/calibrate/cool.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"

/* A coarse calibration takes the second, and one that has little time. */
const struct step_effort step_efforts[EFFORTS] = {
    [EFFORT_FULL] = {3, {7, 0, 4, 0}, {5, 5, 4, 3}, {2, 2, 2, 0}},
    [EFFORT_LESS] = {3, {3, 0, 2, 0}, {3, 3, 2, 2}, {2, 2, 2, 0}},
};
/* As long as a GPU that does not rest is kept busy with steps before they are timed: clocks follow
 * the power that the seconds before took. */
static const double settle_ns = 5e9;

const char *const step_kind_names[HOST_KIND_COUNT] = {
    [HOST_REFRESH] = "refresh", [HOST_REUSE] = "reuse", [HOST_SELECT] = "select"};

static int write_canvases(const struct stage *stage, struct err *err) {
    return forward_write_canvas(stage->forward, 0, stage->tokens, stage->filled_tokens, err);
}

static int is_stopped(const struct stage *stage, struct err *err) {
    const volatile sig_atomic_t *stop = stage->request->stop;
    return stop != NULL && *stop
               ? err_world(err,
                           "interrupted while whole steps were measured; %s keeps them, and the "
                           "same command continues there",
                           stage->request->kept->samples->path)
               : 0;
}

/* What failed, and in which step. */
static int name_step(const struct stage *stage, struct err *err) {
    const struct err first = *err;
    char name[STEP_NAME_CHARS];
    *err = (struct err){0};
    err_set(err, first.kind, first.code, "%.900s, in the step %s", first.text,
            step_name(stage->filled, name));
    return err_status(err);
}

/* A run commits positions, which the next one finds masked again. */
static int time_step(const struct stage *stage, double *wall_ns, double *device_ns,
                     struct err *err) {
    const struct steps_request *request = stage->request;
    const struct step_result result = {.n_committed = stage->n_committed};
    if (is_stopped(stage, err) != 0 || write_canvases(stage, err) != 0) {
        return err_status(err);
    }
    int64_t start_ns = request->now_ns(request->clock_state);
    if (forward_submit(stage->forward, &stage->step, err) != 0 ||
        forward_wait(stage->forward, device_ns, err) != 0 ||
        forward_result(stage->forward, &result, err) != 0) {
        return name_step(stage, err);
    }
    *wall_ns = (double)(request->now_ns(request->clock_state) - start_ns);
    return 0;
}

static bool rests(const struct stage *stage) {
    return stage->request->device->counts_energy;
}

/* How often a step is run that took so long in its first round. */
static const struct step_times_of *often(const struct stage *stage, double device_ns) {
    const struct step_effort *effort = stage->request->effort;
    return !rests(stage)                         ? &effort->of_others
           : calibration_step_is_long(device_ns) ? &effort->of_long
                                                 : &effort->of_rested;
}

static bool is_measured(const struct calibration_step *step) {
    return step->n_operators > 0;
}

/* A step, and the idle time after it. */
static int run_one(struct stage *stage, const struct calibration_step *step, double *wall_ns,
                   double *device_ns, struct err *err) {
    stage_fill(stage, step);
    int status = time_step(stage, wall_ns, device_ns, err);
    if (status == 0) {
        cool(stage->request->device, *device_ns);
    }
    return status;
}

/* All steps of the stage, one after the other, before anything is timed. */
static int run_all(struct stage *stage, const struct calibration_steps *steps, double *spent_ns,
                   struct err *err) {
    for (size_t i = 0; i < steps->n; i++) {
        double wall = 0, device = 0;
        if (!stage_runs(stage, &steps->list[i])) {
            continue;
        }
        if (run_one(stage, &steps->list[i], &wall, &device, err) != 0) {
            return err_status(err);
        }
        *spent_ns += device;
    }
    return 0;
}

/* All steps of the stage, one after the other, as serving meets them: clocks depend on what runs
 * before. Where the device rests it does so between them. Steps that were measured to the end and
 * rounds that were taken before are left out. */
static int run_round(struct stage *stage, const struct calibration_steps *steps, size_t round,
                     struct err *err) {
    struct steps_kept *kept = stage->request->kept;
    for (size_t i = 0; i < steps->n; i++) {
        struct step_times *times = &kept->times[i];
        if (!stage_runs(stage, &steps->list[i]) || is_measured(&steps->list[i]) ||
            !isnan(times->device_ns[round]) ||
            (round > 0 && round >= often(stage, times->device_ns[0])->rounds)) {
            continue;
        }
        double wall = 0, device = 0;
        if (run_one(stage, &steps->list[i], &wall, &device, err) != 0) {
            return err_status(err);
        }
        times->wall_ns[round] = wall;
        times->device_ns[round] = device;
        if (steps_keep_round(kept, steps, i, round, err) != 0) {
            return err_status(err);
        }
    }
    return samples_sync(kept->samples, err);
}

/* Until every step is launched from its graph and the clock of a GPU that does not idle is stable
 * under load. */
static int warm_up(struct stage *stage, struct calibration_steps *steps, struct err *err) {
    const struct engine_device *device = stage->request->device;
    bool settles = device->facts.capability > 0 && !rests(stage);
    size_t least = device->table->capture_begin != NULL ? stage->request->effort->warm : 1;
    double spent_ns = 0;
    int status = 0;
    for (size_t i = 0; status == 0 && (i < least || (settles && spent_ns < settle_ns)); i++) {
        status = run_all(stage, steps, &spent_ns, err);
    }
    return status;
}

/* After idling the host takes twice as long as in serving, where steps follow one another: 0.08 to
 * 0.1 ms against 0.04 (H100, 2026-11-25). The step's wall time becomes its device time after idling
 * plus the host time without idling. */
static int measure_busy(const struct stage *stage, struct calibration_step *step, struct err *err) {
    double host_ns[STEP_MOST_ROUNDS], wall = 0, device = 0;
    const size_t n = often(stage, step->device_ns)->busy;
    for (size_t round = 0; round < n; round++) {
        if (time_step(stage, &wall, &device, err) != 0) {
            return err_status(err);
        }
        host_ns[round] = fmax(wall - device, 0);
    }
    step->wall_ns = step->device_ns + gsl_stats_median(host_ns + 1, 1, n - 1);
    cool(stage->request->device, (double)n * device);
    return 0;
}

/* One operator instance after another, and what each operator took up to then; hits: how many
 * experts tokens went to instead, for which the host waits. */
static int time_operators(const struct stage *stage, double until_ns, double ns[GRAPH_MAX_OPS],
                          double *hits, struct err *err) {
    const struct step_result result = {.n_committed = stage->n_committed};
    if (is_stopped(stage, err) != 0) {
        return err_status(err);
    }
    if (write_canvases(stage, err) != 0 || forward_begin(stage->forward, &stage->step, err) != 0 ||
        (hits != NULL ? forward_finish_counting(stage->forward, hits, err)
                      : forward_finish_instances(stage->forward, err)) != 0 ||
        forward_instance_times(stage->forward, until_ns, ns, err) != 0) {
        return name_step(stage, err);
    }
    return forward_result(stage->forward, &result, err);
}

static int64_t rows_of(const struct stage *stage, const struct op *op) {
    if (op->span_n != SYM_ONE) {
        return stage->shape.sym[op->span_q];
    }
    return op->loop < 0 ? stage->shape.sym[op->rows]
                        : loop_chunk_rows(&stage->graph, op->loop, &stage->shape, stage->chunks);
}

/* The shortest times of some rounds: where the host is late, at different operators each round, the
 * device waits for it. An operator without rows launches nothing: the time between its events is
 * that of the events themselves. */
static int measure_operators(struct stage *stage, struct calibration_step *step, struct err *err) {
    double ns[GRAPH_MAX_OPS] = {0};
    step->is_cut = rests(stage) && calibration_step_is_long(step->device_ns);
    const double until_ns = step->is_cut ? CALIBRATION_LOOK_NS : INFINITY;
    const size_t rounds = often(stage, step->device_ns)->operators;
    const uint32_t n_operators = stage->graph.n_ops;
    stage_fill(stage, step);
    for (size_t round = 0; round < rounds; round++) {
        double one[GRAPH_MAX_OPS] = {0};
        if (time_operators(stage, until_ns, one, NULL, err) != 0) {
            return err_status(err);
        }
        double all_ns = 0;
        for (uint32_t i = 0; i < n_operators; i++) {
            ns[i] = round == 0 ? one[i] : fmin(ns[i], one[i]);
            all_ns += one[i];
        }
        cool(stage->request->device, all_ns);
    }
    double hits = 0, any_ns[GRAPH_MAX_OPS];
    if (stage->model->experts > 0 && time_operators(stage, INFINITY, any_ns, &hits, err) != 0) {
        return err_status(err);
    }
    for (uint32_t i = 0; i < n_operators; i++) {
        const struct op *op = &stage->graph.ops[i];
        const bool is_of_experts = op_type_of(op)->family == FAMILY_EXPERTS;
        const int64_t rows = rows_of(stage, op);
        step->operators[i] =
            (struct step_operator){.kind = op->kind,
                                   .key = correction_key_of(op_size_of(&stage->graph, op)),
                                   .rows = rows,
                                   .between_ns = rows > 0 ? ns[i] : 0,
                                   .experts_hit = is_of_experts ? hits : 0};
    }
    step->n_operators = n_operators;
    return 0;
}

/* A stage whose step is filled in. */
static int run_once(void *state, double *device_ns, struct err *err) {
    double wall_ns;
    return time_step(state, &wall_ns, device_ns, err);
}

/* Where the device rests and says what it draws. */
static int hold_all(struct stage *stage, struct calibration_steps *steps, struct err *err) {
    const struct steps_request *request = stage->request;
    const struct hold_request hold = {.device = request->device,
                                      .run = run_once,
                                      .state = stage,
                                      .now_ns = request->now_ns,
                                      .clock_state = request->clock_state};
    int status = 0;
    if (!rests(stage)) {
        return 0;
    }
    if (steps->idle_w <= 0) {
        steps->idle_w = hold_idle_w(&hold);
        status = steps_keep_idle(request->kept, steps, err);
    }
    for (size_t i = 0; status == 0 && steps->idle_w > 0 && i < steps->n; i++) {
        struct calibration_step *step = &steps->list[i];
        if (stage_runs(stage, step) && step->may_be_held && step->held.held_ns <= 0) {
            stage_fill(stage, step);
            status = hold_step(&hold, steps->idle_w, &step->held, err);
            status = status == 0 ? steps_keep_held(request->kept, steps, i, err) : status;
        }
    }
    return status;
}

/* What steps take whose operators are issued one by one, where steps are captured at all. Of a GPU
 * that rests the short ones: the clock does not come into it. */
static int measure_issued(struct stage *stage, struct calibration_steps *steps, struct err *err) {
    double ns[STEP_MOST_ROUNDS] = {0}, wall_ns = 0;
    if (!rests(stage) || stage->request->device->table->capture_begin == NULL) {
        return 0;
    }
    int status = forward_captures(stage->forward, false, err);
    for (size_t i = 0; status == 0 && i < steps->n; i++) {
        struct calibration_step *step = &steps->list[i];
        const size_t rounds = often(stage, step->device_ns)->issued;
        if (!stage_runs(stage, step) || rounds == 0 || step->issued_ns > 0) {
            continue;
        }
        stage_fill(stage, step);
        for (size_t round = 0; round < rounds; round++) {
            if (time_step(stage, &wall_ns, &ns[round], err) != 0) {
                return err_status(err);
            }
            cool(stage->request->device, ns[round]);
        }
        step->issued_ns = gsl_stats_median(ns, 1, rounds);
        if (steps_keep_issued(stage->request->kept, steps, i, err) != 0) {
            return err_status(err);
        }
    }
    return status == 0 ? forward_captures(stage->forward, true, err) : status;
}

static double median_of(const double rounds[STEP_MOST_ROUNDS], size_t n) {
    double sorted[STEP_MOST_ROUNDS];
    memcpy(sorted, rounds, n * sizeof *sorted);
    return gsl_stats_median(sorted, 1, n);
}

/* A step after its rounds. */
static int measure_step(struct stage *stage, struct calibration_steps *steps, size_t i,
                        struct err *err) {
    const struct steps_request *request = stage->request;
    struct calibration_step *step = &steps->list[i];
    const struct step_times *times = &request->kept->times[i];
    const size_t n = often(stage, times->device_ns[0])->rounds;
    step->wall_ns = median_of(times->wall_ns, n);
    step->device_ns = median_of(times->device_ns, n);
    stage_fill(stage, step);
    if ((rests(stage) && measure_busy(stage, step, err) != 0) ||
        measure_operators(stage, step, err) != 0 ||
        steps_keep_whole(request->kept, steps, i, err) != 0) {
        return err_status(err);
    }
    if (request->done != NULL) {
        request->done(request->done_state);
    }
    return 0;
}

static int measure_all(struct stage *stage, struct calibration_steps *steps, struct err *err) {
    int status = warm_up(stage, steps, err);
    for (size_t round = 0; status == 0 && round < STEP_MOST_ROUNDS; round++) {
        status = run_round(stage, steps, round, err);
    }
    for (size_t i = 0; status == 0 && i < steps->n; i++) {
        if (stage_runs(stage, &steps->list[i]) && !is_measured(&steps->list[i])) {
            status = measure_step(stage, steps, i, err);
        }
    }
    status = status == 0 ? measure_issued(stage, steps, err) : status;
    return status == 0 ? hold_all(stage, steps, err) : status;
}

static int measure_stage(struct calibration_steps *steps, const struct steps_request *request,
                         int variant, struct err *err) {
    struct stage *stage = mem_zeroed(1, sizeof *stage);
    stage->request = request;
    stage->variant = variant;
    int status = stage_open(stage, steps, err);
    status = status == 0 ? measure_all(stage, steps, err) : status;
    if (status == 0) {
        int64_t peak_bytes = forward_workspace_peak(stage->forward);
        status = steps_keep_stage(request->kept, variant, peak_bytes, stage->limits.workspace_bytes,
                                  err);
        steps->activation_peak_bytes = num_larger(steps->activation_peak_bytes, peak_bytes);
        steps->activation_planned_bytes =
            num_larger(steps->activation_planned_bytes, stage->limits.workspace_bytes);
    }
    stage_close(stage);
    free(stage);
    return status;
}

/* An earlier run that had less time may have finished the stage without some of its steps. */
static bool stage_is_done(const struct calibration_steps *steps,
                          const struct steps_request *request, int variant) {
    bool is_done = request->kept->planned_bytes[variant] > 0;
    for (size_t i = 0; i < steps->n; i++) {
        is_done = is_done && (calibration_step_variant(&steps->list[i]) != variant ||
                              is_measured(&steps->list[i]));
    }
    return is_done;
}

int calibration_steps_measure(struct calibration_steps *steps, const struct steps_request *request,
                              struct err *err) {
    int status = 0;
    for (int variant = 0; status == 0 && variant < CALIBRATION_STEP_VARIANTS; variant++) {
        if (calibration_has_graph(request->weights->layout.model, variant) &&
            !stage_is_done(steps, request, variant)) {
            status = measure_stage(steps, request, variant, err);
        }
    }
    for (size_t i = 0; status == 0 && i < steps->n; i++) {
        ASSERT(is_measured(&steps->list[i]) && steps->list[i].wall_ns > 0);
    }
    return status;
}
