#include "engine/calibrate/measure.h"

#include <gsl/gsl_statistics_double.h>
#include <stdlib.h>
#include <string.h>

#include "engine/calibrate/cool.h"
#include "engine/calibrate/narrow.h"
#include "engine/op/issue.h"
#include "engine/op/trial.h"
#include "engine/step/warm.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"

enum { MIN_COPIES = 2, MAX_COPIES = 128 };
enum { MAX_TIMES = 256, FLUSH_CACHES = 3 };
enum { REFERENCE_GPU = 8192, REFERENCE_CPU = 256, REFERENCES_AT_ONCE = 4 };

struct measure {
    const struct engine_device *device;
    const struct weights *weights;
    const struct model *model;
    int64_t element_bytes;
    int64_t flush_bytes;   /* 0: the model stays in the cache */
    int64_t scratch_bytes; /* at the workspace's beginning, what flushing reads and writes */
    int64_t pool_bytes;
    struct graph graphs[CALIBRATION_VARIANTS];
    struct program programs[CALIBRATION_VARIANTS];
    struct trial trial;
    struct packed packed[CALIBRATION_VARIANTS];
    struct room room;
    unsigned char *pool; /* the room's; where a copy's part of it begins is written to the room */
    struct placement placement;
    struct issue issue;
    /* The point under way; written by prepare. */
    const struct calibration_point *point;
    int64_t copy_bytes; /* of the pool that one copy takes */
    int cold;           /* the tensor that every copy finds elsewhere; -1: none */
};

static struct device *device_of(const struct measure *m) {
    return m->device->device;
}

static int check(const struct measure *m, int status, struct err *err) {
    return status == DEVICE_OK ? 0 : engine_device_err(m->device, status, "measuring", err);
}

/* Uniform between -1 and 1. */
static int randomise(const struct measure *m, unsigned char *at, int64_t bytes, struct err *err) {
    const struct call_random call = {.y = at,
                                     .key = hash_text("calibration"),
                                     .n = bytes / m->element_bytes,
                                     .spread = 1,
                                     .dtype = m->device->dtype};
    return check(m, m->device->table->random(device_of(m), &call), err);
}

static const struct graph *graph_of(const struct measure *m) {
    return &m->graphs[m->point->variant];
}

static int randomise_tensor(const struct measure *m, int tensor, struct err *err) {
    unsigned char *at = m->room.workspace + m->placement.offset_bytes[tensor];
    const int64_t bytes = m->placement.bytes[tensor];
    return number_is_fp8(graph_of(m)->tensors[tensor].type) ? narrow_fill(m->device, at, bytes, err)
                                                            : randomise(m, at, bytes, err);
}

static int randomise_pool(const struct measure *m, struct err *err) {
    return m->weights->layout.storage.cache == NUMBER_FP8
               ? narrow_fill(m->device, m->pool, m->pool_bytes, err)
               : randomise(m, m->pool, m->pool_bytes, err);
}

/* ---- a point's step ---- */

static struct packed *packed_of(struct measure *m) {
    return &m->packed[m->point->variant];
}

/* What launches for the point begin with: the operator that writes the indices it reads. */
static uint32_t first_of(const struct measure *m) {
    const struct graph *graph = graph_of(m);
    const uint32_t first = m->point->first_op;
    const struct op *op = &graph->ops[first];
    const int indices = op_launch_of(op)->reads_indices ? op->in[1] : op->picks;
    return indices < 0 ? first : (uint32_t)graph->tensors[indices].first_op;
}

/* Whether it is the residual stream, an input next to a sublayer's fresh output: it was written a
 * sublayer ago. */
static bool is_cold(const struct graph *graph, const struct op *op, int tensor) {
    return graph->tensors[tensor].carried && op->in[0] == tensor && op->in[1] >= 0;
}

/* Places all tensors that live while the point's operators run. Returns the workspace's end. */
static int64_t place(struct measure *m) {
    const struct graph *graph = graph_of(m);
    const int first = (int)first_of(m), last = (int)(m->point->first_op + m->point->n_ops) - 1;
    int64_t live[GRAPH_MAX_OPS], end = m->scratch_bytes, *offset = m->placement.offset_bytes;
    placement_measure(graph, &m->trial.shape, (struct chunk_rows){{0}}, &m->placement, live);
    m->cold = -1;
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        if (tensor->home == HOME_WORKSPACE && tensor->alias < 0 && tensor->first_op <= last &&
            tensor->last_op >= first) {
            offset[t] = end;
            end += m->placement.bytes[t];
        }
        m->cold = is_cold(graph, &graph->ops[last], t) ? t : m->cold;
    }
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        if (graph->tensors[t].alias >= 0) {
            offset[t] = offset[placement_root(graph, t)];
        }
    }
    return end;
}

/* The point's step, counted, packed and placed on the host. Returns the workspace that it takes. */
static int64_t make_step(struct measure *m, const struct calibration_point *point,
                         bool keeps_half) {
    m->point = point;
    struct packed *packed = packed_of(m);
    const int64_t row_elements =
        2 * num_larger(m->model->kv_heads * packed->head_elements, packed->global_row_elements);
    m->trial.packed = packed;
    trial_make(&m->trial, point, keeps_half);
    packed->pool_pages = m->trial.n_pages;
    const struct step step = {.shape = &m->trial.shape, .parts = m->trial.parts};
    packed_lay_out(packed, &step);
    m->issue.program = &m->programs[point->variant];
    m->issue.packed = m->issue.rest = packed;
    const int64_t end = place(m);
    const int64_t paged = m->trial.n_pages * packed->limits.page_rows * row_elements;
    m->copy_bytes = (paged + m->trial.store_elements) * packed->element_bytes;
    m->copy_bytes += m->cold >= 0 ? m->placement.bytes[m->cold] : 0;
    m->copy_bytes = align_up(num_larger(m->copy_bytes, 1), PLACEMENT_ALIGN_BYTES);
    return end;
}

/* Candidates are tensors that no operator of the point writes. */
static int upload_candidates(const struct measure *m) {
    const struct device_table *table = m->device->table;
    const int tensor = graph_of(m)->ops[m->point->first_op].in[0];
    unsigned char *to = m->room.workspace + m->placement.offset_bytes[tensor];
    unsigned char *from = m->room.uploads[1];
    const int64_t n = m->trial.n_tokens, width = (int64_t)sizeof *m->trial.tokens;
    memcpy(from, m->trial.tokens, (size_t)(n * width));
    memcpy(from + n * width, m->trial.confidences, (size_t)(n * width));
    return table->upload(device_of(m), to, from, 2 * n * width);
}

/* Patterns are where the first copy's stores are, and all copies read them there: they are few next
 * to the keys. */
static int upload_words(const struct measure *m) {
    return m->device->table->upload(device_of(m), m->pool, m->trial.words,
                                    m->trial.n_words * (int64_t)sizeof *m->trial.words);
}

/* The instance of an operator in the layer that a copy takes: of those that have its weight, in
 * turn. */
static struct op_instance instance_of(const struct measure *m, uint32_t op, int copy) {
    const struct op *o = &graph_of(m)->ops[op];
    if (m->model->local_window > 0) { /* layers of a kind, each of which has the weight */
        struct op_instance own = {
            .op = op, .repetition = (uint32_t)copy % graph_of(m)->segments[o->segment].repeat};
        program_settle(m->issue.program, &m->placement, &m->trial.shape, &own);
        return own;
    }
    const uint32_t first_mixture = model_first_mixture(m->model);
    const bool is_mixture = o->experts > 0 || o->weight >= WEIGHT_ROUTER;
    const bool is_dense = o->weight == WEIGHT_GATE_UP || o->weight == WEIGHT_DOWN;
    const uint32_t first = is_mixture ? first_mixture : 0;
    const uint32_t end = is_dense ? first_mixture : m->model->layers;
    ASSERT(end > first);
    struct op_instance instance = {.op = op};
    program_settle(m->issue.program, &m->placement, &m->trial.shape, &instance);
    instance.layer = first + (uint32_t)copy % (end - first);
    return instance;
}

/* A router's logits are what its tokens go by: those that an earlier point left there may send all
 * of them to the same experts. Drawn anew, a token's experts are as good as random. */
static int draw_logits(const struct measure *m, struct err *err) {
    const struct op *op = &graph_of(m)->ops[first_of(m)];
    const bool chooses = (op_launch_of(op)->facts & OP_CHOOSES_EXPERTS) != 0;
    return chooses ? randomise_tensor(m, op->in[0], err) : 0;
}

/* Inputs in fp8 are no numbers where an earlier point left something else. */
static int draw_narrow(const struct measure *m, struct err *err) {
    const int tensor = graph_of(m)->ops[m->point->first_op].in[0];
    return number_is_fp8(graph_of(m)->tensors[tensor].type)
               ? randomise_tensor(m, placement_root(graph_of(m), tensor), err)
               : 0;
}

/* Packs and uploads what the point's launches read. */
static int prepare(struct measure *m, const struct calibration_point *point, bool keeps_half,
                   struct err *err) {
    const struct device_table *table = m->device->table;
    make_step(m, point, keeps_half);
    const struct step step = {.shape = &m->trial.shape, .parts = m->trial.parts};
    packed_fill(packed_of(m), &step, NULL, m->room.uploads[0]);
    int status =
        table->upload(device_of(m), m->room.arrays, m->room.uploads[0], packed_of(m)->bytes);
    if (status == DEVICE_OK && m->trial.has_candidates) {
        status = upload_candidates(m);
    }
    if (status == DEVICE_OK && m->trial.n_words > 0) {
        status = upload_words(m);
    }
    if (status == DEVICE_OK && (draw_logits(m, err) != 0 || draw_narrow(m, err) != 0)) {
        return err_status(err);
    }
    if (status == DEVICE_OK && first_of(m) < point->first_op) {
        const struct op_instance instance = instance_of(m, first_of(m), 0);
        status = issue_instance(&m->issue, &instance);
    }
    if (status != DEVICE_OK) {
        return check(m, status, err);
    }
    if (m->trial.has_tokens &&
        room_write(&m->room, 0, m->trial.tokens, m->trial.n_tokens, err) != 0) {
        return err_status(err);
    }
    return check(m, table->finish(device_of(m)), err);
}

int measure_experts_hit(struct measure *m, const struct calibration_point *point, uint32_t *out,
                        struct err *err) {
    *out = 0;
    if (point->op != PROFILE_MOE) {
        return 0;
    }
    if (prepare(m, point, true, err) != 0) {
        return err_status(err);
    }
    const struct op *chooses = &graph_of(m)->ops[first_of(m)];
    return check(m,
                 op_count_experts(m->device,
                                  m->room.workspace + m->placement.offset_bytes[chooses->out[2]],
                                  chooses->experts, out),
                 err);
}

/* One copy of the point's launches, its part of the pool its own as far as the pool reaches. */
static int launch_copy(struct measure *m, int copy) {
    const struct calibration_point *point = m->point;
    const int64_t places = m->trial.n_words > 0 ? 1 : num_larger(m->pool_bytes / m->copy_bytes, 1);
    m->room.pool = m->pool + copy % places * m->copy_bytes;
    if (m->cold >= 0) {
        m->placement.offset_bytes[m->cold] = m->room.pool - m->room.workspace;
    }
    for (uint32_t i = 0; i < point->n_ops; i++) {
        const struct op_instance instance = instance_of(m, point->first_op + i, copy);
        int status = issue_instance(&m->issue, &instance);
        if (status != DEVICE_OK) {
            return status;
        }
    }
    return DEVICE_OK;
}

static int launch_copies(struct measure *m, int n_copies) {
    int status = DEVICE_OK;
    for (int copy = 0; status == DEVICE_OK && copy < n_copies; copy++) {
        status = launch_copy(m, copy);
    }
    return status;
}

/* ---- opening ---- */

/* The most rows of hidden channels that flushing reads at once. */
static int64_t flush_rows(const struct measure *m) {
    return ceil_div(m->flush_bytes, m->model->hidden * m->element_bytes) / 8 * 8;
}

/* Memory for the largest point, and of its arrays. */
static struct step_limits find_limits(struct measure *m, const struct calibration_bounds *bounds,
                                      const struct calibration_grid *grid, int64_t *array_bytes) {
    const int64_t size = measure_reference_size(m), square = size * size * m->element_bytes;
    int64_t workspace = 2 * square, pool = num_larger(m->flush_bytes, square);
    int64_t arrays = 2 * bounds->max_tokens * (int64_t)sizeof *m->trial.tokens;
    for (size_t i = 0; i < grid->n; i++) {
        if (!calibration_point_is_exchange(&grid->points[i])) {
            workspace = num_larger(workspace, make_step(m, &grid->points[i], true));
            arrays = num_larger(arrays, packed_of(m)->bytes);
            pool = num_larger(pool, m->copy_bytes);
        }
    }
    m->pool_bytes = align_up(pool, PLACEMENT_ALIGN_BYTES);
    *array_bytes = arrays;
    return (struct step_limits){.max_requests = (uint32_t)bounds->max_tokens,
                                .max_tokens = (uint32_t)bounds->max_tokens,
                                .max_logit_rows = (uint32_t)bounds->max_tokens,
                                .max_positions = TRIAL_MAX_POSITIONS,
                                .canvas_tokens = bounds->max_tokens,
                                .workspace_bytes = workspace,
                                .pool_bytes = m->pool_bytes};
}

/* A device that chooses a product's kernel by trying chooses for a range of sizes, on the first of
 * them that it meets. It meets those that a live run begins with, in the same order: on 32
 * multiprocessors of an H100 kernels chosen for 1,152 tokens were 5 to 10 % slower than those that
 * a live run had chosen for 1,280 (2026-11-28). */
static int choose_products(struct measure *m, const struct step_limits *limits, struct err *err) {
    m->issue.program = &m->programs[0];
    const struct warming warming = {.issue = &m->issue, .limits = limits, .room = &m->room};
    return warm_products(&warming, err);
}

static int open_room(struct measure *m, const struct calibration_bounds *bounds,
                     const struct calibration_grid *grid, struct err *err) {
    int64_t array_bytes;
    const struct step_limits limits = find_limits(m, bounds, grid, &array_bytes);
    int status = room_open(&m->room, m->device, m->model, &limits, array_bytes, false,
                           &m->weights->constants.rotation, err);
    m->pool = m->room.pool;
    return status == 0 ? choose_products(m, &limits, err) : status;
}

static int open_graphs(struct measure *m, const struct calibration_bounds *bounds,
                       struct err *err) {
    const struct step_limits limits = {.max_requests = (uint32_t)bounds->max_tokens,
                                       .max_tokens = (uint32_t)bounds->max_tokens,
                                       .max_logit_rows = (uint32_t)bounds->max_tokens,
                                       .max_stream_tokens = (uint32_t)bounds->max_tokens,
                                       .max_positions = TRIAL_MAX_POSITIONS,
                                       .pattern_tokens = PATTERN_TOKENS,
                                       .page_rows = (uint32_t)bounds->page_rows};
    for (int variant = 0; variant < CALIBRATION_VARIANTS; variant++) {
        const struct graph_options options =
            calibration_graph(m->model, &m->weights->layout.storage, variant);
        if (calibration_has_points(m->model, &m->weights->layout.storage, variant)) {
            graph_build(&m->graphs[variant], m->model, &options);
            if (program_make(&m->programs[variant], &m->graphs[variant], err) != 0 ||
                packed_open(&m->packed[variant], &m->graphs[variant], &limits, err) != 0) {
                return err_status(err);
            }
        }
    }
    return 0;
}

static void close_packed(struct measure *m) {
    for (int variant = 0; variant < CALIBRATION_VARIANTS; variant++) {
        packed_close(&m->packed[variant]);
    }
}

int measure_renew(struct measure *m, struct err *err) {
    int status = randomise(m, m->room.workspace, m->pool - m->room.workspace, err);
    return status == 0 ? randomise_pool(m, err) : status;
}

/* All that needs no device memory. */
static int open_host(const struct engine_device *device, const struct weights *weights,
                     const struct calibration_bounds *bounds, struct measure *m, struct err *err) {
    const int64_t flush_bytes = FLUSH_CACHES * device->facts.l2_bytes;
    m->device = device;
    m->weights = weights;
    m->model = weights->layout.model;
    m->element_bytes = engine_element_bytes(device);
    m->flush_bytes = weights->layout.bytes > flush_bytes ? flush_bytes : 0;
    m->scratch_bytes = align_up(m->model->hidden * m->element_bytes, PLACEMENT_ALIGN_BYTES) +
                       align_up(flush_rows(m) * m->element_bytes, PLACEMENT_ALIGN_BYTES);
    m->issue = (struct issue){.device = device,
                              .weights = weights,
                              .packed = &m->packed[0],
                              .rest = &m->packed[0],
                              .placement = &m->placement,
                              .room = &m->room,
                              .has_one_layer = true};
    trial_open(&m->trial, m->model, bounds);
    return open_graphs(m, bounds, err);
}

int measure_need(const struct engine_device *device, const struct weights *weights,
                 const struct calibration_bounds *bounds, const struct calibration_grid *grid,
                 int64_t *bytes, struct err *err) {
    struct measure *m = mem_zeroed(1, sizeof *m);
    int status = open_host(device, weights, bounds, m, err);
    if (status == 0) {
        int64_t array_bytes;
        const struct step_limits limits = find_limits(m, bounds, grid, &array_bytes);
        *bytes = limits.workspace_bytes + limits.pool_bytes + array_bytes;
    }
    trial_close(&m->trial);
    close_packed(m);
    free(m);
    return status;
}

int measure_open(const struct engine_device *device, const struct weights *weights,
                 const struct calibration_bounds *bounds, const struct calibration_grid *grid,
                 struct measure **out, struct err *err) {
    struct measure *m = mem_zeroed(1, sizeof *m);
    *out = m;
    if (open_host(device, weights, bounds, m, err) != 0 || open_room(m, bounds, grid, err) != 0 ||
        measure_renew(m, err) != 0) {
        measure_close(m);
        *out = NULL;
        return err_status(err);
    }
    return 0;
}

void measure_close(struct measure *m) {
    if (m != NULL) {
        trial_close(&m->trial);
        close_packed(m);
        room_close(&m->room);
        free(m);
    }
}

/* ---- time ---- */

/* Read `n_outputs` rows of a matrix as wide as the hidden size, for the sake of reading them. */
static int read_rows(const struct measure *m, const void *w, int64_t n_outputs) {
    const int64_t hidden = m->model->hidden;
    unsigned char *x = m->room.workspace;
    const struct call_linear call = {
        .x = x,
        .w = w,
        .y = x + align_up(hidden * m->element_bytes, PLACEMENT_ALIGN_BYTES),
        .x_stride = hidden,
        .y_stride = n_outputs,
        .n_tokens = 1,
        .n_outputs = (int32_t)n_outputs,
        .n_inputs = (int32_t)hidden,
        .dtype = m->device->dtype};
    return m->device->table->linear(device_of(m), &call);
}

/* Read enough weights to flush the cache: the embedding's and, where it is too small, those of the
 * last layers, which few copies reach. */
static int flush(const struct measure *m) {
    int64_t rows = flush_rows(m);
    const uint32_t layers = m->model->layers, first_mixture = model_first_mixture(m->model);
    int status = DEVICE_OK;
    for (uint32_t layer = layers; status == DEVICE_OK && rows > 0; layer--) {
        const bool is_embedding = layer == layers, is_mixture = layer >= first_mixture;
        const enum weight_slot slot = is_embedding ? WEIGHT_EMBEDDING
                                      : is_mixture ? WEIGHT_EXPERTS_GATE_UP
                                                   : WEIGHT_GATE_UP;
        int64_t n = is_embedding ? m->model->vocab
                    : is_mixture ? 2LL * m->model->experts * m->model->expert_ffn
                                 : 2LL * m->model->ffn;
        n = n < rows ? n : rows;
        status = read_rows(m, weights_at(m->weights, slot, layer), n);
        rows = layer > 0 ? rows - n : 0;
    }
    return status;
}

/* Some copies of the point's launches, timed together. */
struct copies {
    struct device_graph *graph; /* NULL: the launches themselves */
    int n;
};

/* What wears is drawn anew before each time, so that none meets numbers too small for a model. */
static int renew_inputs(const struct measure *m, struct err *err) {
    const struct op *op = &graph_of(m)->ops[m->point->first_op];
    return op_launch_of(op)->wears
               ? randomise_tensor(m, placement_root(graph_of(m), op->in[0]), err)
               : 0;
}

/* Between two events: what `run` launches. */
static int time_between(const struct measure *m, int (*run)(void *state), void *state, double *ns) {
    const struct device_table *table = m->device->table;
    struct device_event *from = m->room.events[EVENT_STEP_BEGIN],
                        *to = m->room.events[EVENT_STEP_END];
    int status = table->event_record(device_of(m), from);
    if (status == DEVICE_OK) {
        status = run(state);
    }
    if (status == DEVICE_OK) {
        status = table->event_record(device_of(m), to);
    }
    if (status == DEVICE_OK) {
        status = table->event_wait(device_of(m), to);
    }
    return status == DEVICE_OK ? table->event_elapsed(device_of(m), from, to, ns) : status;
}

struct timed {
    struct measure *m;
    const struct copies *copies;
};

static int run_copies(void *state) {
    const struct timed *timed = state;
    struct measure *m = timed->m;
    return timed->copies->graph != NULL
               ? m->device->table->graph_launch(device_of(m), timed->copies->graph)
               : launch_copies(m, timed->copies->n);
}

static int time_copies(struct measure *m, const struct copies *copies, double *ns,
                       struct err *err) {
    struct timed timed = {m, copies};
    int status = renew_inputs(m, err);
    if (status != 0) {
        return status;
    }
    status = flush(m);
    status = status == DEVICE_OK ? time_between(m, run_copies, &timed, ns) : status;
    cool(m->device, *ns);
    return check(m, status, err);
}

static int capture(struct measure *m, struct copies *copies, struct err *err) {
    const struct device_table *table = m->device->table;
    if (table->capture_begin == NULL) {
        return 0;
    }
    int status = table->capture_begin(device_of(m));
    if (status == DEVICE_OK) {
        int launched = launch_copies(m, copies->n);
        status = table->capture_end(device_of(m), &copies->graph);
        status = launched != DEVICE_OK ? launched : status;
    }
    return check(m, status, err);
}

static int count_copies(const struct measure *m, double once_ns) {
    bool captures = m->device->table->capture_begin != NULL;
    double copies = measure_played_ns(captures) / (once_ns > 1 ? once_ns : 1);
    int least = captures ? MIN_COPIES : 1;
    return copies < least ? least : copies > MAX_COPIES ? MAX_COPIES : (int)copies;
}

/* The median of the times of one copy, until the target is reached. */
static int time_often(struct measure *m, const struct copies *copies, double target_ns, double *us,
                      struct err *err) {
    double times[MAX_TIMES] = {0}, total_ns = 0;
    int n = 0;
    while (n < MAX_TIMES && (n == 0 || total_ns < target_ns)) {
        int status = time_copies(m, copies, &times[n], err);
        if (status != 0) {
            return status;
        }
        total_ns += times[n++];
    }
    *us = 1e-3 * gsl_stats_median(times, 1, (size_t)n) / copies->n;
    return 0;
}

/* The prepared point: once for the device to choose its kernels, once to see how long it takes,
 * then many copies at a time. */
static int time_point(struct measure *m, double target_ns, double *us, struct err *err) {
    struct copies copies = {.n = 1};
    double once_ns = 0;
    if (time_copies(m, &copies, &once_ns, err) != 0 ||
        time_copies(m, &copies, &once_ns, err) != 0) {
        return err_status(err);
    }
    copies.n = count_copies(m, once_ns);
    int status = capture(m, &copies, err);
    if (status == 0) {
        status = time_often(m, &copies, target_ns, us, err);
    }
    if (copies.graph != NULL) {
        m->device->table->graph_close(device_of(m), copies.graph);
    }
    return status;
}

int measure_point(struct measure *m, const struct calibration_point *point, double target_ns,
                  double *us, struct err *err) {
    /* A profile's times are above 0; a part of a call may seem to take none. */
    static const double shortest_us = 1e-3;
    double less_us = 0;
    if (point->is_difference &&
        (prepare(m, point, false, err) != 0 || time_point(m, target_ns, &less_us, err) != 0)) {
        return err_status(err);
    }
    if (prepare(m, point, point->is_difference, err) != 0 ||
        time_point(m, target_ns, us, err) != 0) {
        return err_status(err);
    }
    *us = *us - less_us > shortest_us ? *us - less_us : shortest_us;
    return 0;
}

int64_t measure_reference_size(const struct measure *m) {
    return m->device->facts.capability > 0 ? REFERENCE_GPU : REFERENCE_CPU;
}

static int run_reference(const struct measure *m, int times) {
    const int64_t size = measure_reference_size(m);
    unsigned char *x = m->room.workspace;
    const struct call_linear call = {.x = x,
                                     .w = m->pool,
                                     .y = x + size * size * m->element_bytes,
                                     .x_stride = size,
                                     .y_stride = size,
                                     .n_tokens = (int32_t)size,
                                     .n_outputs = (int32_t)size,
                                     .n_inputs = (int32_t)size,
                                     .dtype = m->device->dtype};
    int status = DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < times; i++) {
        status = m->device->table->linear(device_of(m), &call);
    }
    return status;
}

/* Several, so that the device has the next one queued. */
static int run_references(void *state) {
    return run_reference(state, REFERENCES_AT_ONCE);
}

int measure_reference(struct measure *m, double target_ns, double *us, struct err *err) {
    double times[MAX_TIMES], total_ns = 0, ns = 0;
    size_t n = 0;
    int status = run_reference(m, 1); /* chooses its kernel */
    while (status == DEVICE_OK && (n == 0 || total_ns < target_ns)) {
        status = time_between(m, run_references, m, &ns);
        cool(m->device, ns);
        times[n++ % MAX_TIMES] = ns / REFERENCES_AT_ONCE;
        total_ns += ns > 1 ? ns : 1;
    }
    if (status == DEVICE_OK) {
        *us = 1e-3 * gsl_stats_median(times, 1, n < MAX_TIMES ? n : MAX_TIMES);
    }
    return check(m, status, err);
}
