#include "engine/calibrate/calibration_steps.h"

#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "engine/calibrate/cool.h"
#include "engine/op/trial.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"

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
enum { STORE_ALIGN_ELEMENTS = 8 };

const char *const step_kind_names[HOST_KIND_COUNT] = {
    [HOST_REFRESH] = "refresh", [HOST_REUSE] = "reuse", [HOST_SELECT] = "select"};

/* ---- shapes ---- */

/* A selection keeps half of its candidates. */
static uint32_t kept_rows(const struct step_side *side, const struct model *model) {
    uint32_t context = side->canvas_tokens - model->block_tokens;
    return side->kind == HOST_SELECT ? (context + 1) / 2 : context;
}

/* Positions of a canvas: an autoregressive model decides on the one behind. */
static uint32_t canvas_room(const struct step_side *side, const struct model *model) {
    return side->canvas_tokens + (model->mask == MASK_CAUSAL);
}

static struct span exact_span_of(const struct step_side *side, const struct model *model) {
    uint32_t block = model->block_tokens;
    bool prefills = side->kind == HOST_REFRESH, is_causal = model->mask == MASK_CAUSAL;
    uint32_t queries = prefills ? side->canvas_tokens : block;
    return (struct span){.phase = prefills ? PHASE_PREFILL : PHASE_REUSE,
                         .queries = queries,
                         .first_queries = queries,
                         .context = side->canvas_tokens - queries,
                         .logit_rows = is_causal  ? 1
                                       : prefills ? 0
                                                  : block,
                         .exact = 1};
}

struct step_side calibration_side_one(const struct step_side *side, const struct model *model,
                                      uint32_t r) {
    const uint32_t n = side->n_requests, block = model->block_tokens;
    struct step_side one = {side->kind, 1, side->canvas_tokens};
    if (side->kind == HOST_REUSE) {
        const uint32_t context = (uint32_t)((side->canvas_tokens - block) * trial_share(n, r));
        const uint32_t step = calibration_is_exact(model) ? block : 1;
        const uint32_t least = step > 1 ? block : 1, most = model->max_positions - block;
        one.canvas_tokens = block + (context > most ? most : context) / step * step;
        one.canvas_tokens = one.canvas_tokens < block + least ? block + least : one.canvas_tokens;
    }
    return one;
}

static struct span span_of(const struct step_side *side, const struct model *model) {
    if (calibration_is_exact(model)) {
        return exact_span_of(side, model);
    }
    uint32_t block = model->block_tokens, context = side->canvas_tokens - block;
    bool reuses = side->kind == HOST_REUSE;
    uint32_t queries = reuses ? block : side->canvas_tokens;
    struct span span = {.phase = reuses ? PHASE_REUSE : PHASE_REFRESH,
                        .queries = queries,
                        .first_queries = queries,
                        .context = reuses ? context : 0,
                        .logit_rows = block};
    if (side->kind == HOST_SELECT) {
        span.select_rows = context;
        span.pack_rows = kept_rows(side, model);
    }
    return span;
}

void calibration_step_shape(const struct calibration_step *step, const struct model *model,
                            struct step_shape *shape) {
    shape_clear(shape);
    for (uint32_t side = 0; side < step->n_sides; side++) {
        for (uint32_t r = 0; r < step->sides[side].n_requests; r++) {
            const struct step_side one = calibration_side_one(&step->sides[side], model, r);
            const struct span span = span_of(&one, model);
            shape_add(shape->sym, &span, 1);
        }
        shape->n_spans += step->sides[side].n_requests;
    }
}

/* ---- running ---- */

/* One graph, opened, and the arrays of its steps. */
struct stage {
    const struct steps_request *request;
    int variant; /* of the graphs, which says what steps it runs */
    const struct model *model;
    struct graph graph;
    struct forward *forward;
    struct step_limits limits;
    int64_t element_bytes;
    struct chunk_rows chunks;
    struct span *spans;            /* [max_requests] */
    const struct span **span_list; /* the same */
    struct step_part *parts;       /* the same */
    int32_t *n_committed;          /* the same */
    /* Of a canvas: numbers from 0 on, which positions and pages are; where each position's block
     * ends; and the rows of positions of which those behind the first block are kept. */
    int32_t *numbers, *ends, *kept_rows;
    int32_t *tokens;       /* [canvas_tokens] */
    int64_t filled_tokens; /* of them the step's */
    struct placement placement;
    struct step_shape shape;
    struct step step;
};

static bool is_of_stage(const struct stage *stage, const struct calibration_step *step) {
    return calibration_step_variant(step) == stage->variant;
}

static int64_t side_pages(const struct stage *stage, const struct step_side *side) {
    return ceil_div(side->canvas_tokens, stage->limits.page_rows);
}

/* What a request holds of the pool: its store, or its pages. */
static int64_t store_elements(const struct stage *stage, const struct step_side *side) {
    const struct model *m = stage->model;
    if (calibration_is_exact(m)) {
        int64_t rows = side_pages(stage, side) * stage->limits.page_rows;
        return 2LL * m->layers * m->kv_heads * m->head_dim * rows;
    }
    int64_t n = 2LL * m->layers * m->kv_heads * m->head_dim * kept_rows(side, m);
    return align_up(n, STORE_ALIGN_ELEMENTS);
}

static void place(struct stage *stage, const struct calibration_step *step) {
    calibration_step_shape(step, stage->model, &stage->shape);
    placement_make(stage->request->planner, &stage->graph, &stage->shape, stage->chunks,
                   &stage->placement);
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Room for the largest of the steps that this graph runs. */
static void make_limits(struct stage *stage, const struct calibration_steps *steps) {
    struct step_limits *limits = &stage->limits;
    limits->page_rows = (uint32_t)stage->request->bounds.page_rows;
    for (size_t i = 0; i < steps->n; i++) {
        const struct calibration_step *step = &steps->list[i];
        int64_t canvas_tokens = 0, pool_bytes = 0;
        if (!is_of_stage(stage, step)) {
            continue;
        }
        place(stage, step);
        for (uint32_t side = 0; side < step->n_sides; side++) {
            for (uint32_t r = 0; r < step->sides[side].n_requests; r++) {
                const struct step_side one =
                    calibration_side_one(&step->sides[side], stage->model, r);
                canvas_tokens += canvas_room(&one, stage->model);
                pool_bytes += store_elements(stage, &one) * stage->element_bytes;
                limits->max_positions =
                    (uint32_t)larger(limits->max_positions, canvas_room(&one, stage->model));
            }
        }
        const int64_t *sym = stage->shape.sym;
        limits->max_requests = (uint32_t)larger(limits->max_requests, sym[SYM_REQUESTS]);
        limits->max_tokens = (uint32_t)larger(limits->max_tokens, sym[SYM_TOKENS]);
        limits->max_logit_rows = (uint32_t)larger(limits->max_logit_rows, sym[SYM_LOGIT_ROWS]);
        limits->canvas_tokens = larger(limits->canvas_tokens, canvas_tokens);
        limits->pool_bytes = larger(limits->pool_bytes, pool_bytes);
        limits->workspace_bytes = larger(limits->workspace_bytes, stage->placement.peak_bytes);
    }
}

static void open_arrays(struct stage *stage) {
    const struct step_limits *limits = &stage->limits;
    const int32_t block = (int32_t)stage->model->block_tokens;
    const struct model *m = stage->model;
    const int64_t row_bytes = 2LL * m->layers * m->kv_heads * m->head_dim * stage->element_bytes;
    const int64_t pages =
        limits->page_rows > 0 ? limits->pool_bytes / row_bytes / limits->page_rows : 0;
    const size_t n = (size_t)larger(limits->max_positions, pages);
    stage->spans = mem_zeroed(limits->max_requests, sizeof *stage->spans);
    stage->span_list = mem_zeroed(limits->max_requests, sizeof *stage->span_list);
    stage->parts = mem_zeroed(limits->max_requests, sizeof *stage->parts);
    stage->n_committed = mem_zeroed(limits->max_requests, sizeof *stage->n_committed);
    stage->tokens = mem_zeroed((size_t)limits->canvas_tokens, sizeof *stage->tokens);
    stage->numbers = mem_zeroed(n, sizeof *stage->numbers);
    stage->ends = mem_zeroed(n, sizeof *stage->ends);
    stage->kept_rows = mem_zeroed(n, sizeof *stage->kept_rows);
    for (int32_t i = 0; i < (int32_t)n; i++) {
        stage->numbers[i] = i;
        stage->ends[i] = (i / block + 1) * block;
        stage->kept_rows[i] = i < block ? -1 : i - block;
    }
}

static int open_stage(struct stage *stage, const struct calibration_steps *steps, struct err *err) {
    const struct steps_request *request = stage->request;
    stage->model = request->weights->layout.model;
    stage->element_bytes = request->device->dtype == KERNEL_F32 ? F32_BYTES : BF16_BYTES;
    stage->chunks = request->chunks;
    struct graph_options options =
        calibration_graph(stage->model, stage->element_bytes, stage->variant);
    graph_build(&stage->graph, stage->model, &options);
    make_limits(stage, steps);
    const struct step_limits *limits = &stage->limits;
    open_arrays(stage);
    int status = forward_open(request->device, &stage->graph, request->weights, limits,
                              &stage->forward, err);
    if (status == 0 && request->ranks != NULL) {
        status = forward_lead(stage->forward, request->ranks, err);
    }
    if (status != 0) {
        return status;
    }
    /* What blocks attend to. */
    const struct engine_device *device = request->device;
    const struct call_random data = {.y = forward_pool(stage->forward),
                                     .n = limits->pool_bytes / engine_element_bytes(device),
                                     .spread = 1,
                                     .dtype = device->dtype};
    return engine_device_err(device, device->table->random(device->device, &data),
                             "filling the pool", err);
}

static void close_stage(struct stage *stage) {
    forward_close(stage->forward);
    free(stage->spans);
    free(stage->span_list);
    free(stage->parts);
    free(stage->n_committed);
    free(stage->numbers);
    free(stage->ends);
    free(stage->kept_rows);
    free(stage->tokens);
}

/* Of the positions under decision every second one is still masked, the last one always: what a
 * block is on average while it is served. Masks choose their experts alike and other tokens do not:
 * LLaDA2.0-mini's steps over one block take 6.5 to 8 ms of an H100 by how many are left. */
static void fill_canvas(const struct stage *stage, int64_t canvas, uint32_t n, uint32_t first,
                        uint32_t end) {
    for (uint32_t t = 0; t < n; t++) {
        double u = rng_keyed(3, (uint64_t)canvas, 0, t);
        const bool is_masked = t >= first && t < end && (end - 1 - t) % 2 == 0;
        stage->tokens[canvas + t] = is_masked ? (int32_t)stage->model->mask_token
                                              : (int32_t)(u * model_whole_vocab(stage->model));
    }
}

/* What the requests before have taken. */
struct place {
    int64_t canvas, store, page;
};

/* The active block is the canvas's first; a refresh keeps all that lies behind it. */
static struct step_part part_of(const struct stage *stage, const struct step_side *side,
                                const struct place *at) {
    const uint32_t block = stage->model->block_tokens;
    fill_canvas(stage, at->canvas, side->canvas_tokens, 0, block);
    return (struct step_part){
        .canvas = at->canvas,
        .positions = stage->numbers,
        .kv_rows = side->kind == HOST_REFRESH ? stage->kept_rows : NULL,
        .decision = {.n_rows = block, .take = 1},
        .kv = {.first = at->store, .n_rows = (int32_t)kept_rows(side, stage->model)},
        .block_end = block};
}

/* The active block is the canvas's last, or the token behind it. */
static struct step_part exact_part_of(const struct stage *stage, const struct step_side *side,
                                      const struct span *span, const struct place *at) {
    const bool is_causal = stage->model->mask == MASK_CAUSAL;
    const uint32_t end = canvas_room(side, stage->model), decided = span->logit_rows;
    fill_canvas(stage, at->canvas, end, end - decided, end);
    return (struct step_part){.canvas = at->canvas,
                              .positions = stage->numbers + span->context,
                              .logit_rows = is_causal ? stage->numbers + span->queries - 1 : NULL,
                              .targets =
                                  is_causal ? stage->numbers + span->context + span->queries : NULL,
                              .decision = {.n_rows = decided, .take = 1},
                              .kv_pages = {.pages = stage->numbers + at->page,
                                           .n_pages = (int32_t)side_pages(stage, side),
                                           .extent = stage->ends + span->context}};
}

static void fill_step(struct stage *stage, const struct calibration_step *step) {
    struct place at = {0};
    const bool is_exact = calibration_is_exact(stage->model);
    place(stage, step);
    stage->shape.n_spans = 0;
    for (uint32_t i = 0; i < step->n_sides; i++) {
        for (uint32_t r = 0; r < step->sides[i].n_requests; r++) {
            const struct step_side one = calibration_side_one(&step->sides[i], stage->model, r);
            const uint32_t n = stage->shape.n_spans++;
            struct span *span = &stage->spans[n];
            *span = span_of(&one, stage->model);
            stage->parts[n] =
                is_exact ? exact_part_of(stage, &one, span, &at) : part_of(stage, &one, &at);
            stage->span_list[n] = span;
            at.canvas += canvas_room(&one, stage->model);
            at.store += store_elements(stage, &one);
            at.page += is_exact ? side_pages(stage, &one) : 0;
        }
    }
    stage->filled_tokens = at.canvas;
    stage->shape.spans = stage->span_list;
    stage->step = (struct step){
        .placement = &stage->placement, .shape = &stage->shape, .parts = stage->parts};
}

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
        double wall, device;
        if (!is_of_stage(stage, &steps->list[i]) ||
            (round > 0 && round >= rounds_of(stage, device_ns[i][0]))) {
            continue;
        }
        fill_step(stage, &steps->list[i]);
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
    fill_step(stage, step);
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
        if (is_of_stage(stage, step) && step->may_be_held) {
            fill_step(stage, step);
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
        if (!is_of_stage(stage, step) || calibration_step_is_long(step->device_ns)) {
            continue;
        }
        fill_step(stage, step);
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
        if (is_of_stage(stage, step)) {
            size_t n = rounds_of(stage, device_ns[i][0]);
            step->wall_ns = gsl_stats_median(wall_ns[i], 1, n);
            step->device_ns = gsl_stats_median(device_ns[i], 1, n);
            if (rests(stage)) {
                fill_step(stage, &steps->list[i]);
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
    int status = open_stage(stage, steps, err);
    status = status == 0 ? measure_all(stage, steps, err) : status;
    if (status == 0) {
        int64_t peak_bytes = forward_workspace_peak(stage->forward);
        steps->activation_peak_bytes = larger(steps->activation_peak_bytes, peak_bytes);
        steps->activation_planned_bytes =
            larger(steps->activation_planned_bytes, stage->limits.workspace_bytes);
    }
    close_stage(stage);
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
