#include "engine/calibrate/exchange.h"

#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "engine/step/forward_parts.h"
#include "sim/base/num.h"
#include "sim/base/zeroed.h"
#include "sim/graph/registrar.h"
#include "sim/model/ranks.h"

enum { ROW_BYTES = 32 }; /* what sizes of exchanges are multiples of */
enum { COPIES_RECORDED = 50, COPIES_ISSUED = 2, MAX_PLAYS = 256 };

struct exchange {
    const struct engine_device *device;
    struct graph graph; /* any of the model's: ranks are driven as forward passes */
    struct step_limits limits;
    struct forward *lead;
    struct ranks *ranks;
};

/* What each rank is to do, what it does it with, and what it found. */
struct task {
    const struct graph *graph; /* of the one operator that exchanges so many bytes */
    int64_t bytes;
    int n_plays, n_copies;
    struct rank_task {
        struct device_graph *recording; /* of the copies; NULL: the calls themselves */
        double us[MAX_PLAYS];
    } * ranks; /* [model_ranks] */
};

/* ---- on each rank ---- */

/* From the workspace's beginning to behind it. */
static int issue(const struct forward *forward, const struct task *task) {
    const int64_t end = align_up(task->bytes, PLACEMENT_ALIGN_BYTES);
    const struct program program = {.graph = task->graph, .evict_op = task->graph->n_ops};
    const struct placement placement = {.offset_bytes = {0, end}, .bytes = {end, end}};
    const struct turn turn = {.n_rows = task->bytes / ROW_BYTES};
    struct issue issue = forward->issue;
    issue.program = &program;
    issue.placement = &placement;
    return issue_turn(&issue, &turn);
}

static int issue_all(const struct forward *forward, const struct task *task, int n_copies) {
    int status = DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < n_copies; i++) {
        status = issue(forward, task);
    }
    return status;
}

static struct rank_task *mine(const struct forward *forward, const struct task *task) {
    return &task->ranks[forward->weights->layout.rank];
}

static int record(const struct forward *forward, const struct task *task) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    int status = table->capture_begin(device);
    if (status == DEVICE_OK) {
        int issued = issue_all(forward, task, task->n_copies);
        status = table->capture_end(device, &mine(forward, task)->recording);
        status = issued != DEVICE_OK ? issued : status;
    }
    return status;
}

/* What may wait for a device is done before any rank waits for another. */
static int prepare(struct forward *forward, const void *arguments, struct err *err) {
    const struct task *task = arguments;
    const struct engine_device *device = forward->device;
    const struct call_random contents = {.y = forward->room.workspace,
                                         .n = task->bytes / engine_element_bytes(device),
                                         .spread = 1,
                                         .dtype = device->dtype};
    int status = device->table->random(device->device, &contents);
    status = status == DEVICE_OK ? issue(forward, task) : status;
    status = status == DEVICE_OK ? device->table->finish(device->device) : status;
    if (status == DEVICE_OK && device->table->capture_begin != NULL) {
        status = record(forward, task);
    }
    return forward_device_err(forward, status, "measuring what ranks exchange", err);
}

/* One play to have all ranks begin together, and the next, which is timed. */
static int play(const struct forward *forward, const struct task *task, double *ns) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    struct device_event *const *marks = forward->room.marks;
    struct device_graph *recording = mine(forward, task)->recording;
    int status = DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < 2; i++) {
        status = recording != NULL ? table->graph_launch(device, recording)
                                   : issue_all(forward, task, task->n_copies);
        if (status == DEVICE_OK) {
            status = table->event_record(device, marks[i == 0 ? MARK_STEP_BEGIN : MARK_STEP_END]);
        }
    }
    status = status == DEVICE_OK ? table->event_wait(device, marks[MARK_STEP_END]) : status;
    return status == DEVICE_OK
               ? table->event_elapsed(device, marks[MARK_STEP_BEGIN], marks[MARK_STEP_END], ns)
               : status;
}

static int play_all(struct forward *forward, const void *arguments, struct err *err) {
    const struct task *task = arguments;
    int status = DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < task->n_plays; i++) {
        double ns = 0;
        status = play(forward, task, &ns);
        mine(forward, task)->us[i] = 1e-3 * ns / task->n_copies;
    }
    return forward_device_err(forward, status, "measuring what ranks exchange", err);
}

static int forget(struct forward *forward, const void *arguments, struct err *err) {
    struct rank_task *task = mine(forward, arguments);
    (void)err;
    if (task->recording != NULL) {
        forward->device->table->graph_close(forward->device->device, task->recording);
        task->recording = NULL;
    }
    return 0;
}

/* ---- all of them ---- */

/* The median over plays of the slowest rank's. */
static int measure(struct exchange *e, struct task *task, double *us, struct err *err) {
    double *slowest = task->ranks[0].us;
    int status = forward_on_all_ranks(e->lead, play_all, task, err);
    for (int i = 0; status == 0 && i < task->n_plays; i++) {
        for (uint32_t r = 1; r < model_ranks(e->graph.model); r++) {
            slowest[i] = fmax(slowest[i], task->ranks[r].us[i]);
        }
    }
    *us = status == 0 ? gsl_stats_median(slowest, 1, (size_t)task->n_plays) : 0;
    return status;
}

/* The point's operator, over rows of a few bytes. */
static void make_graph(const struct exchange *e, const struct calibration_point *point,
                       struct graph *out) {
    const struct model *model = e->graph.model;
    struct graph graph;
    const struct graph_options options =
        calibration_graph(model, engine_element_bytes(e->device), point->variant);
    graph_build(&graph, model, &options);
    const struct op *op = &graph.ops[point->first_op];
    *out = (struct graph){.model = model, .element_bytes = graph.element_bytes};
    graph_add_segment(out, op->name, 1);
    int part = graph_add_tensor(out, "part", SYM_TOKENS, ROW_BYTES);
    int whole = graph_add_tensor(out, "whole", SYM_TOKENS, ROW_BYTES);
    graph_add_op(out, op->name, op->kind, SYM_TOKENS, (const int[]){part, -1},
                 (const int[]){whole, -1});
}

int exchange_point(struct exchange *e, const struct calibration_point *point, double target_ns,
                   double *us, struct err *err) {
    bool records = e->device->table->capture_begin != NULL;
    struct err ignored = {0};
    struct graph graph;
    make_graph(e, point, &graph);
    struct task task = {.graph = &graph,
                        .bytes = point->sizes[POINT_EXCHANGE_BYTES],
                        .n_plays = 2,
                        .n_copies = records ? COPIES_RECORDED : COPIES_ISSUED,
                        .ranks = zeroed(model_ranks(e->graph.model), sizeof *task.ranks)};
    int status = forward_on_all_ranks(e->lead, prepare, &task, err);
    status = status == 0 ? measure(e, &task, us, err) : status;
    double plays = status == 0 && *us > 0 ? target_ns * 1e-3 / (*us * 2 * task.n_copies) : 0;
    task.n_plays = plays < 3 ? 3 : plays > MAX_PLAYS ? MAX_PLAYS : (int)plays;
    status = status == 0 ? measure(e, &task, us, err) : status;
    (void)forward_on_all_ranks(e->lead, forget, &task, &ignored);
    free(task.ranks);
    return status;
}

struct ranks *exchange_ranks(struct exchange *e) {
    ranks_retire(e->ranks);
    forward_close(e->lead);
    e->lead = NULL;
    return e->ranks;
}

int exchange_open(const struct engine_device *device, const struct weights *weights,
                  const char *source, int64_t max_bytes, struct exchange **out, struct err *err) {
    const struct model *model = weights->layout.model;
    struct exchange *e = zeroed(1, sizeof *e);
    *out = e;
    e->device = device;
    const struct graph_options options =
        calibration_graph(model, engine_element_bytes(device), VARIANT_IS_FUSED);
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
        .device = device, .graph = &e->graph, .limits = &e->limits, .weights = source};
    int status = forward_open(device, &e->graph, weights, &e->limits, &e->lead, err);
    status = status == 0 ? ranks_open(&request, &e->ranks, err) : status;
    if (status != 0) {
        exchange_close(e);
        *out = NULL;
        return status;
    }
    forward_lead(e->lead, e->ranks);
    return 0;
}

void exchange_close(struct exchange *e) {
    if (e != NULL) {
        ranks_close(e->ranks);
        forward_close(e->lead);
        free(e);
    }
}
