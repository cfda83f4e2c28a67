#include "engine/calibrate/calibration_stage.h"

#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "engine/calibrate/cool.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"

/* A step is issued, then recorded, then played: the third time is like all later ones. */
enum { WARM_ROUNDS_RECORDED = 3, ROUNDS = 7, ROUNDS_COARSE = 3 };
/* Operator by operator; of long steps, which are seldom fitted, fewer. */
enum { OPERATOR_ROUNDS = 4, OPERATOR_ROUNDS_LONG = 2 };
/* Of steps whose operators are issued one by one. */
enum { ISSUED_ROUNDS = 3 };
/* Where the device rests behind each; of long steps fewer. */
enum { RESTED_ROUNDS = 5, RESTED_ROUNDS_LONG = 2 };
/* One behind the other, for the host's time; the first one's does not count. */
enum { BUSY_ROUNDS = 5, BUSY_ROUNDS_LONG = 2 };
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
    return stop != NULL && *stop ? err_world(err, "interrupted while whole steps were measured")
                                 : 0;
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
        return err_status(err);
    }
    *wall_ns = (double)(request->now_ns(request->clock_state) - start_ns);
    return 0;
}

static bool rests(const struct stage *stage) {
    return stage->request->device->counts_energy;
}

/* The rounds of a step that took so long in its first one. */
static size_t rounds_of(const struct stage *stage, double device_ns) {
    return rests(stage) && calibration_step_is_long(device_ns) ? RESTED_ROUNDS_LONG
           : stage->request->bounds.is_coarse                  ? ROUNDS_COARSE
           : rests(stage)                                      ? RESTED_ROUNDS
                                                               : ROUNDS;
}

/* All steps of the stage, one after the other, as serving meets them: clocks depend on what runs
 * before. Where the device rests it does so between them. Round `round` of their times, NULL:
 * nobody wants to know. */
static int run_round(struct stage *stage, struct calibration_steps *steps, size_t round,
                     double (*wall_ns)[ROUNDS], double (*device_ns)[ROUNDS], double *spent_ns,
                     struct err *err) {
    for (size_t i = 0; i < steps->n; i++) {
        double wall = 0, device = 0;
        if (!stage_runs(stage, &steps->list[i]) ||
            (round > 0 && round >= rounds_of(stage, device_ns[i][0]))) {
            continue;
        }
        stage_fill(stage, &steps->list[i]);
        if (time_step(stage, &wall, &device, err) != 0) {
            return err_status(err);
        }
        if (wall_ns != NULL) {
            wall_ns[i][round] = wall;
            device_ns[i][round] = device;
        }
        *spent_ns += device;
        cool(stage->request->device, device);
    }
    return 0;
}

/* Until every step is launched from its graph and a GPU that does not rest has settled under the
 * load. */
static int warm_up(struct stage *stage, struct calibration_steps *steps, struct err *err) {
    const struct engine_device *device = stage->request->device;
    bool settles = device->facts.capability > 0 && !rests(stage);
    int least = device->table->capture_begin != NULL ? WARM_ROUNDS_RECORDED : 1, status = 0;
    double spent_ns = 0;
    for (int i = 0; status == 0 && (i < least || (settles && spent_ns < settle_ns)); i++) {
        status = run_round(stage, steps, 0, NULL, NULL, &spent_ns, err);
    }
    return status;
}

/* Behind a rest the host takes twice as long as in serving, whose steps follow one another: 0.08 to
 * 0.1 ms, 0.04 there (H100, 2026-11-25). The step's wall time becomes its device time behind a rest
 * and what the host takes without one. */
static int measure_busy(const struct stage *stage, struct calibration_step *step, struct err *err) {
    double host_ns[BUSY_ROUNDS], wall = 0, device = 0;
    const size_t n = calibration_step_is_long(step->device_ns) ? BUSY_ROUNDS_LONG : BUSY_ROUNDS;
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
    if (is_stopped(stage, err) != 0 || write_canvases(stage, err) != 0 ||
        forward_begin(stage->forward, &stage->step, err) != 0 ||
        (hits != NULL ? forward_finish_counting(stage->forward, hits, err)
                      : forward_finish_instances(stage->forward, err)) != 0 ||
        forward_instance_times(stage->forward, until_ns, ns, err) != 0) {
        return err_status(err);
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

/* The shortest times of some rounds: where the host falls behind, which it does at other operators
 * each round, the device waits for it. An operator without rows launches nothing: what lies between
 * its events is theirs. */
static int measure_operators(struct stage *stage, struct calibration_step *step, struct err *err) {
    double ns[GRAPH_MAX_OPS] = {0};
    step->is_cut = rests(stage) && calibration_step_is_long(step->device_ns);
    const double until_ns = step->is_cut ? CALIBRATION_LOOK_NS : INFINITY;
    const size_t rounds = step->is_cut ? OPERATOR_ROUNDS_LONG : OPERATOR_ROUNDS;
    stage_fill(stage, step);
    step->n_operators = stage->graph.n_ops;
    for (size_t round = 0; round < rounds; round++) {
        double one[GRAPH_MAX_OPS] = {0};
        if (time_operators(stage, until_ns, one, NULL, err) != 0) {
            return err_status(err);
        }
        double all_ns = 0;
        for (uint32_t i = 0; i < step->n_operators; i++) {
            ns[i] = round == 0 ? one[i] : fmin(ns[i], one[i]);
            all_ns += one[i];
        }
        cool(stage->request->device, all_ns);
    }
    double hits = 0, any_ns[GRAPH_MAX_OPS];
    if (stage->model->experts > 0 && time_operators(stage, INFINITY, any_ns, &hits, err) != 0) {
        return err_status(err);
    }
    for (uint32_t i = 0; i < step->n_operators; i++) {
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
    steps->idle_w = steps->idle_w > 0 ? steps->idle_w : hold_idle_w(&hold);
    for (size_t i = 0; status == 0 && steps->idle_w > 0 && i < steps->n; i++) {
        struct calibration_step *step = &steps->list[i];
        if (stage_runs(stage, step) && step->may_be_held) {
            stage_fill(stage, step);
            status = hold_step(&hold, steps->idle_w, &step->held, err);
        }
    }
    return status;
}

/* What steps take whose operators are issued one by one, where steps are captured at all. Of a GPU
 * that rests the short ones: the clock does not come into it. */
static int measure_issued(struct stage *stage, struct calibration_steps *steps, struct err *err) {
    double ns[ISSUED_ROUNDS] = {0}, wall_ns = 0;
    if (!rests(stage) || stage->request->device->table->capture_begin == NULL) {
        return 0;
    }
    int status = forward_captures(stage->forward, false, err);
    for (size_t i = 0; status == 0 && i < steps->n; i++) {
        struct calibration_step *step = &steps->list[i];
        if (!stage_runs(stage, step) || calibration_step_is_long(step->device_ns)) {
            continue;
        }
        stage_fill(stage, step);
        for (size_t round = 0; round < ISSUED_ROUNDS; round++) {
            if (time_step(stage, &wall_ns, &ns[round], err) != 0) {
                return err_status(err);
            }
            cool(stage->request->device, ns[round]);
        }
        step->issued_ns = gsl_stats_median(ns, 1, ISSUED_ROUNDS);
    }
    return status == 0 ? forward_captures(stage->forward, true, err) : status;
}

static int measure_all(struct stage *stage, struct calibration_steps *steps, struct err *err) {
    const struct steps_request *request = stage->request;
    size_t rounds = rounds_of(stage, 0);
    double(*wall_ns)[ROUNDS] = mem_zeroed(steps->n, sizeof *wall_ns);
    double(*device_ns)[ROUNDS] = mem_zeroed(steps->n, sizeof *device_ns), spent_ns = 0;
    int status = warm_up(stage, steps, err);
    for (size_t round = 0; status == 0 && round < rounds; round++) {
        status = run_round(stage, steps, round, wall_ns, device_ns, &spent_ns, err);
    }
    for (size_t i = 0; status == 0 && i < steps->n; i++) {
        struct calibration_step *step = &steps->list[i];
        if (stage_runs(stage, step)) {
            size_t n = rounds_of(stage, device_ns[i][0]);
            step->wall_ns = gsl_stats_median(wall_ns[i], 1, n);
            step->device_ns = gsl_stats_median(device_ns[i], 1, n);
            if (rests(stage)) {
                stage_fill(stage, &steps->list[i]);
                status = measure_busy(stage, step, err);
            }
            status = status == 0 ? measure_operators(stage, step, err) : status;
            if (request->done != NULL) {
                request->done(request->done_state);
            }
        }
    }
    free(wall_ns);
    free(device_ns);
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
        steps->activation_peak_bytes = num_larger(steps->activation_peak_bytes, peak_bytes);
        steps->activation_planned_bytes =
            num_larger(steps->activation_planned_bytes, stage->limits.workspace_bytes);
    }
    stage_close(stage);
    free(stage);
    return status;
}

int calibration_steps_measure(struct calibration_steps *steps, const struct steps_request *request,
                              struct err *err) {
    int status = 0;
    for (int variant = 0; status == 0 && variant < CALIBRATION_VARIANTS; variant++) {
        if (calibration_has_graph(request->weights->layout.model, variant)) {
            status = measure_stage(steps, request, variant, err);
        }
    }
    return status;
}
