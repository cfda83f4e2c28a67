#include "engine/calibrate/exchange.h"

#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "engine/step/forward_parts.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"
#include "sim/step/registrar.h"

enum { ROW_BYTES = 32 }; /* what sizes of exchanges are multiples of */
enum { COPIES_CAPTURED = 50, COPIES_LAUNCHED = 2, MAX_TIMES = 256 };

struct exchange {
    const struct engine_device *device;
    struct graph graph; /* any of the model's: ranks are driven as forward passes */
    struct step_limits limits;
    struct forward *lead;
    struct ranks *ranks;
};

/* What each rank is to do, what it does it with, and what it found. */
struct task {
    const struct graph *graph; /* of the one operator, which exchanges `bytes` */
    int64_t bytes;
    int n_times, n_copies;
    struct rank_task {
        struct device_graph *copies; /* captured; NULL: they are launched one by one */
        double us[MAX_TIMES];
    } * ranks; /* [model_ranks] */
};

/* ---- on each rank ---- */

/* From the beginning of the workspace to the bytes after it. */
static int issue(const struct forward *forward, const struct task *task) {
    const int64_t end = align_up(task->bytes, PLACEMENT_ALIGN_BYTES);
    const struct program program = {.graph = task->graph, .evict_op = task->graph->n_ops};
    const struct placement placement = {.offset_bytes = {0, end}, .bytes = {end, end}};
    const struct op_instance instance = {.n_rows = task->bytes / ROW_BYTES};
    struct issue issue = forward->issue;
    issue.program = &program;
    issue.placement = &placement;
    return issue_instance(&issue, &instance);
}

static struct rank_task *mine(const struct forward *forward, const struct task *task) {
    return &task->ranks[forward->weights->layout.rank];
}

static int issue_copies(const struct forward *forward, const struct task *task) {
    int status = DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < task->n_copies; i++) {
        status = issue(forward, task);
    }
    return status;
}

static int capture(const struct forward *forward, const struct task *task) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    int status = table->capture_begin(device);
    if (status != DEVICE_OK) {
        return status;
    }
    int issued = issue_copies(forward, task);
    status = table->capture_end(device, &mine(forward, task)->copies);
    return issued != DEVICE_OK ? issued : status;
}

/* What may wait for a device is done before any rank waits for another. */
static int prepare_device(const struct forward *forward, const struct task *task) {
    const struct engine_device *device = forward->device;
    const struct call_random contents = {.y = forward->room.workspace,
                                         .n = task->bytes / engine_element_bytes(device),
                                         .spread = 1,
                                         .dtype = device->dtype};
    int status = device->table->random(device->device, &contents);
    if (status == DEVICE_OK) {
        status = issue(forward, task);
    }
    if (status == DEVICE_OK) {
        status = device->table->finish(device->device);
    }
    bool captures = status == DEVICE_OK && device->table->capture_begin != NULL;
    return captures ? capture(forward, task) : status;
}

static int prepare(struct forward *forward, const void *task, struct err *err) {
    return forward_device_err(forward, prepare_device(forward, task),
                              "measuring what ranks exchange", err);
}

/* Once to have all ranks begin together, and once more, which is timed. */
static int time_copies(const struct forward *forward, const struct task *task, double *ns) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    struct device_event *ends[] = {forward->room.events[EVENT_STEP_BEGIN],
                                   forward->room.events[EVENT_STEP_END]};
    struct device_graph *copies = mine(forward, task)->copies;
    for (int i = 0; i < 2; i++) {
        int status =
            copies != NULL ? table->graph_launch(device, copies) : issue_copies(forward, task);
        if (status == DEVICE_OK) {
            status = table->event_record(device, ends[i]);
        }
        if (status != DEVICE_OK) {
            return status;
        }
    }
    int status = table->event_wait(device, ends[1]);
    return status == DEVICE_OK ? table->event_elapsed(device, ends[0], ends[1], ns) : status;
}

static int time_all(struct forward *forward, const void *arguments, struct err *err) {
    const struct task *task = arguments;
    for (int i = 0; i < task->n_times; i++) {
        double ns = 0;
        int status = time_copies(forward, task, &ns);
        if (status != DEVICE_OK) {
            return forward_device_err(forward, status, "measuring what ranks exchange", err);
        }
        mine(forward, task)->us[i] = 1e-3 * ns / task->n_copies;
    }
    return 0;
}

static int forget(struct forward *forward, const void *arguments, struct err *err) {
    struct rank_task *task = mine(forward, arguments);
    (void)err;
    if (task->copies != NULL) {
        forward->device->table->graph_close(forward->device->device, task->copies);
        task->copies = NULL;
    }
    return 0;
}

/* ---- all of them ---- */

/* The median of the slowest rank's times. */
static int measure(struct exchange *e, struct task *task, double *us, struct err *err) {
    double *slowest = task->ranks[0].us;
    if (forward_on_all_ranks(e->lead, time_all, task, err) != 0) {
        return err_status(err);
    }
    for (int i = 0; i < task->n_times; i++) {
        for (uint32_t r = 1; r < model_ranks(e->graph.model); r++) {
            slowest[i] = fmax(slowest[i], task->ranks[r].us[i]);
        }
    }
    *us = gsl_stats_median(slowest, 1, (size_t)task->n_times);
    return 0;
}

/* Twice to see how long it takes, then as often as the target allows. */
static int measure_task(struct exchange *e, struct task *task, double target_ns, double *us,
                        struct err *err) {
    task->n_times = 2;
    if (forward_on_all_ranks(e->lead, prepare, task, err) != 0 || measure(e, task, us, err) != 0) {
        return err_status(err);
    }
    double times = *us > 0 ? target_ns * 1e-3 / (*us * 2 * task->n_copies) : 0;
    task->n_times = times < 3 ? 3 : times > MAX_TIMES ? MAX_TIMES : (int)times;
    return measure(e, task, us, err);
}

/* The point's operator, over rows of a few bytes. */
static void make_graph(const struct exchange *e, const struct calibration_point *point,
                       struct graph *out) {
    const struct model *model = e->graph.model;
    struct graph graph;
    const struct graph_options options =
        calibration_graph(model, &e->graph.storage, point->variant);
    graph_build(&graph, model, &options);
    const struct op *op = &graph.ops[point->first_op];
    *out = (struct graph){.model = model, .storage = graph.storage};
    graph_add_segment(out, op->name, 1);
    int part = graph_add_tensor(out, "part", SYM_TOKENS, ROW_BYTES);
    int whole = graph_add_tensor(out, "whole", SYM_TOKENS, ROW_BYTES);
    graph_add_op(out, op->name, op->kind, SYM_TOKENS, (const int[]){part, -1},
                 (const int[]){whole, -1});
}

int exchange_point(struct exchange *e, const struct calibration_point *point, double target_ns,
                   double *us, struct err *err) {
    const bool captures = e->device->table->capture_begin != NULL;
    struct err ignored = {0};
    struct graph graph;
    make_graph(e, point, &graph);
    struct task task = {.graph = &graph,
                        .bytes = point->sizes[POINT_EXCHANGE_BYTES],
                        .n_copies = captures ? COPIES_CAPTURED : COPIES_LAUNCHED,
                        .ranks = mem_zeroed(model_ranks(e->graph.model), sizeof *task.ranks)};
    int status = measure_task(e, &task, target_ns, us, err);
    (void)forward_on_all_ranks(e->lead, forget, &task, &ignored);
    free(task.ranks);
    return status;
}

struct ranks *exchange_ranks(struct exchange *e) {
    forward_close(e->lead);
    e->lead = NULL;
    return e->ranks;
}

int exchange_open(const struct engine_device *device, const struct weights *weights,
                  const char *source, int64_t max_bytes, struct exchange **out, struct err *err) {
    const struct model *model = weights->layout.model;
    struct exchange *e = mem_zeroed(1, sizeof *e);
    *out = e;
    e->device = device;
    const struct graph_options options =
        calibration_graph(model, &weights->layout.storage, VARIANT_IS_FUSED);
    graph_build(&e->graph, model, &options);
    e->limits = (struct step_limits){.max_requests = 1,
                                     .max_tokens = model->block_tokens,
                                     .max_logit_rows = model->block_tokens,
                                     .max_unrolled = 1,
                                     .max_positions = model->block_tokens,
                                     .canvas_tokens = model->block_tokens,
                                     .workspace_bytes = (1 + model_ranks(model)) *
                                                        align_up(max_bytes, PLACEMENT_ALIGN_BYTES),
                                     .page_rows = 4};
    const struct ranks_request request = {
        .device = device, .model = model, .storage = weights->layout.storage, .weights = source};
    if (forward_open(device, &e->graph, weights, &e->limits, &e->lead, err) != 0 ||
        ranks_open(&request, &e->ranks, err) != 0 || forward_lead(e->lead, e->ranks, err) != 0) {
        exchange_close(e);
        *out = NULL;
        return err_status(err);
    }
    return 0;
}

void exchange_close(struct exchange *e) {
    if (e != NULL) {
        forward_close(e->lead);
        ranks_close(e->ranks);
        free(e);
    }
}
