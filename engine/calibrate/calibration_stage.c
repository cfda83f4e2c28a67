#include "engine/calibrate/calibration_stage.h"

#include <stdlib.h>

#include "engine/calibrate/narrow.h"
#include "engine/op/trial.h"
#include "kernels/fp8.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"

enum { STORE_ALIGN_ELEMENTS = 8 };

/* ---- shapes ---- */

/* A selection keeps half of its candidates. */
static uint32_t kept_rows(const struct step_side *side, const struct model *model) {
    uint32_t context = side->canvas_tokens - model->block_tokens;
    return side->kind == HOST_SELECT ? (context + 1) / 2 : context;
}

/* Positions of a canvas: an autoregressive model decides on one more, after the last. */
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

/* ---- stages ---- */

bool stage_runs(const struct stage *stage, const struct calibration_step *step) {
    return calibration_step_variant(step) == stage->variant;
}

static int64_t side_pages(const struct stage *stage, const struct step_side *side) {
    return ceil_div(side->canvas_tokens, stage->limits.page_rows);
}

/* A row of all layers, keys and values, in elements of the pool. */
static int64_t row_elements(const struct stage *stage) {
    const struct model *m = stage->model;
    const int64_t head = fp8_head_elements(m->head_dim, stage->graph.storage.cache == NUMBER_FP8);
    const int64_t n_global = model_global_layers(m);
    return 2 * ((m->layers - n_global) * m->kv_heads * head +
                n_global * m->global_kv_heads * m->global_head_dim);
}

/* What a request holds of the pool: its store, or its pages. */
static int64_t store_elements(const struct stage *stage, const struct step_side *side) {
    const struct model *m = stage->model;
    if (calibration_is_exact(m)) {
        int64_t rows = side_pages(stage, side) * stage->limits.page_rows;
        return row_elements(stage) * rows;
    }
    return align_up(row_elements(stage) * kept_rows(side, m), STORE_ALIGN_ELEMENTS);
}

static void place(struct stage *stage, const struct calibration_step *step) {
    calibration_step_shape(step, stage->model, &stage->shape);
    placement_make(stage->request->planner, &stage->graph, &stage->shape, stage->chunks,
                   &stage->placement);
}

/* Room for the largest of the steps that this graph runs. */
static void make_limits(struct stage *stage, const struct calibration_steps *steps) {
    struct step_limits *limits = &stage->limits;
    limits->page_rows = (uint32_t)stage->request->bounds.page_rows;
    for (size_t i = 0; i < steps->n; i++) {
        const struct calibration_step *step = &steps->list[i];
        int64_t canvas_tokens = 0, pool_bytes = 0;
        if (!stage_runs(stage, step)) {
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
                    (uint32_t)num_larger(limits->max_positions, canvas_room(&one, stage->model));
            }
        }
        const int64_t *sym = stage->shape.sym;
        limits->max_requests = (uint32_t)num_larger(limits->max_requests, sym[SYM_REQUESTS]);
        limits->max_tokens = (uint32_t)num_larger(limits->max_tokens, sym[SYM_TOKENS]);
        limits->max_logit_rows = (uint32_t)num_larger(limits->max_logit_rows, sym[SYM_LOGIT_ROWS]);
        limits->canvas_tokens = num_larger(limits->canvas_tokens, canvas_tokens);
        limits->places = stage->model->conditioning_ffn > 0 ? limits->max_logit_rows : 0;
        limits->pool_bytes = num_larger(limits->pool_bytes, pool_bytes);
        limits->workspace_bytes = num_larger(limits->workspace_bytes, stage->placement.peak_bytes);
    }
}

static void open_arrays(struct stage *stage) {
    const struct step_limits *limits = &stage->limits;
    const int32_t block = (int32_t)stage->model->block_tokens;
    const int64_t row_bytes = row_elements(stage) * stage->element_bytes;
    const int64_t pages =
        limits->page_rows > 0 ? limits->pool_bytes / row_bytes / limits->page_rows : 0;
    const size_t n = (size_t)num_larger(num_larger(limits->max_positions, pages), limits->places);
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

/* All that needs no device. */
static void prepare(struct stage *stage, const struct model *model,
                    const struct calibration_steps *steps) {
    const struct steps_request *request = stage->request;
    stage->model = model;
    stage->chunks = request->chunks;
    struct graph_options options =
        calibration_graph(model, &request->weights->layout.storage, stage->variant);
    graph_build(&stage->graph, model, &options);
    stage->element_bytes = graph_cache_element_bytes(&stage->graph);
    make_limits(stage, steps);
}

struct stage_need stage_need(const struct calibration_steps *steps, const struct model *model,
                             const struct steps_request *request) {
    struct stage *stage = mem_unwritten(1, sizeof *stage);
    struct stage_need most = {0, 0};
    for (int variant = 0; variant < CALIBRATION_STEP_VARIANTS; variant++) {
        if (calibration_has_graph(model, variant)) {
            *stage = (struct stage){.request = request, .variant = variant};
            prepare(stage, model, steps);
            most.workspace_bytes = num_larger(most.workspace_bytes, stage->limits.workspace_bytes);
            most.pool_bytes = num_larger(most.pool_bytes, stage->limits.pool_bytes);
        }
    }
    free(stage);
    return most;
}

int stage_open(struct stage *stage, const struct calibration_steps *steps, struct err *err) {
    const struct steps_request *request = stage->request;
    prepare(stage, request->weights->layout.model, steps);
    const struct step_limits *limits = &stage->limits;
    open_arrays(stage);
    int status = forward_open(request->device, &stage->graph, request->weights, limits,
                              &stage->forward, err);
    if (status == 0 && request->ranks != NULL) {
        status = forward_lead(stage->forward, request->ranks, err);
    }
    if (status == 0 && limits->places > 0) { /* nothing is expected of them yet */
        status = forward_clear_places(stage->forward, 0, limits->places, err);
    }
    if (status != 0) {
        return status;
    }
    /* What blocks attend to. */
    const struct engine_device *device = request->device;
    if (stage->graph.storage.cache == NUMBER_FP8) {
        return narrow_fill(device, forward_pool(stage->forward), limits->pool_bytes, err);
    }
    const struct call_random data = {.y = forward_pool(stage->forward),
                                     .n = limits->pool_bytes / engine_element_bytes(device),
                                     .spread = 1,
                                     .dtype = device->dtype};
    return engine_device_err(device, device->table->random(device->device, &data),
                             "filling the pool", err);
}

void stage_close(struct stage *stage) {
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
        const bool is_masked =
            t >= first && t < end && (end - 1 - t) % 2 == 0 && !stage->model->uniform_noise;
        stage->tokens[canvas + t] = is_masked ? (int32_t)stage->model->mask_token
                                              : (int32_t)(u * model_whole_vocab(stage->model));
    }
}

/* What the requests before have taken. */
struct place {
    int64_t canvas, store, page, row;
};

/* The active block is the canvas's first; a refresh keeps all positions after it. */
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

/* The active block is the canvas's last, or the token after it. */
static struct step_part exact_part_of(const struct stage *stage, const struct step_side *side,
                                      const struct span *span, const struct place *at) {
    const bool is_causal = stage->model->mask == MASK_CAUSAL;
    const uint32_t end = canvas_room(side, stage->model), decided = span->logit_rows;
    fill_canvas(stage, at->canvas, end, end - decided, end);
    return (struct step_part){
        .canvas = at->canvas,
        .positions = stage->numbers + span->context,
        .logit_rows = is_causal ? stage->numbers + span->queries - 1 : NULL,
        .targets = is_causal ? stage->numbers + span->context + span->queries : NULL,
        .decision = {.n_rows = decided, .take = 1},
        .drawing = {.top_p = 1, .temperature = 1, .draws = true},
        /* As in serving, every row's expectation is kept and read. */
        .row_places = stage->limits.places > 0 ? stage->numbers + at->row : NULL,
        .kv_pages = {.pages = stage->numbers + at->page,
                     .n_pages = (int32_t)side_pages(stage, side),
                     .extent = stage->ends + span->context}};
}

void stage_fill(struct stage *stage, const struct calibration_step *step) {
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
            at.row += span->logit_rows;
        }
    }
    stage->filled_tokens = at.canvas;
    stage->filled = step;
    stage->shape.spans = stage->span_list;
    stage->step = (struct step){
        .placement = &stage->placement, .shape = &stage->shape, .parts = stage->parts};
}
