/* Jobs that ask for memory and work without running anything. */
#include <math.h>
#include <stdio.h>

#include "experiments/study/jobs.h"
#include "sim/base/names.h"
#include "sim/memory/usage.h"
#include "sim/step/builder.h"
#include "sim/system/lmax.h"

static int put_row(json_t *row, json_t *numbers, json_t *rows) {
    ASSERT(numbers != NULL);
    json_object_update_missing(row, numbers);
    json_decref(numbers);
    json_array_append(rows, row);
    return 0;
}

/* ---- the longest canvas, and what a given one holds ---- */

static int lmax(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    struct system_request wanted = {.system = job_text(args, "system"),
                                    .gpu = job_text(args, "gpu"),
                                    .model = job_text(args, "model"),
                                    .roofline = true};
    struct lmax found = {0};
    uint64_t canvas = 0, granule = 0, batch = 1;
    double masked = 1;
    const char *share_of = job_text(args, "share_of");
    int of = share_of != NULL ? share_of_index(share_of) : SHARE_OF_CANVAS;
    struct lmax_request request = {.share_of = (enum share_of)of};
    int status = of < 0 ? err_usage(err, "share_of: '%s' is neither canvas nor output", share_of)
                        : job_number(args, "prompt_share", 0, 1e6, &request.prompt_share, err);
    status = status != 0 ? status : job_whole(args, "canvas", LMAX_MOST_TOKENS, &canvas, err);
    status = status != 0 ? status : job_whole(args, "multiple_of", 1 << 20, &granule, err);
    status = status != 0 ? status : job_number(args, "before", 0, 16, &request.before[0], err);
    request.n_before = request.before[0] > 0 ? 1 : 0;
    status = status != 0 ? status : job_whole(args, "batch", LMAX_MOST_BATCH, &batch, err);
    status = status != 0 ? status : job_number(args, "masked", 0, 1, &masked, err);
    if (status == 0 && of == SHARE_OF_CANVAS && request.prompt_share >= 1) {
        status = err_usage(err, "prompt_share: of the canvas it is below 1");
    }
    if (status == 0 && *state == NULL) {
        status = system_open(&wanted, (struct system **)state, err);
    }
    const struct system *system = *state;
    if (status == 0) {
        request.system = system;
        request.canvas_tokens = (uint32_t)canvas;
        request.granule_tokens = (uint32_t)granule;
        request.batch = (uint32_t)batch;
        request.decoded_share = 1 - masked;
        json_object_set_new(row, "gpu_title", json_string(system->gpu->title));
        status = lmax_find(&request, &found, err);
    }
    bool fits = status == 0;
    if (!fits && system != NULL && err->kind == ERR_WORLD) {
        *err = (struct err){0}; /* it does not fit: a row without numbers */
        status = 0;
    }
    job_put(row, "tokens", fits ? found.longest.canvas_tokens : (double)NAN);
    job_put(row, "par", fits ? found.longest.par : (double)NAN);
    job_put(row, "inflation", fits ? lmax_inflation(&found.longest) : (double)NAN);
    return status != 0 ? status : json_array_append(rows, row);
}

static void close_system(void *state) {
    system_close(state);
}

const struct job job_lmax = {
    .name = "lmax",
    .doc = "the longest canvas that fits (unmask plan lmax), or what one of `canvas` tokens holds",
    .required = (const char *const[]){"system", "gpu", "model", "prompt_share", NULL},
    .optional = (const char *const[]){"share_of", "canvas", "multiple_of", "before", "batch",
                                      "masked", NULL},
    .shared = (const char *const[]){"system", "gpu", "model", NULL},
    .close = close_system,
    .fill = lmax,
};

/* ---- what a system divides its device into ---- */

static int budget(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    struct system_request wanted = {.system = job_text(args, "system"),
                                    .gpu = job_text(args, "gpu"),
                                    .model = job_text(args, "model")};
    struct system *system = NULL;
    int status = system_open(&wanted, &system, err);
    if (status == 0) {
        const struct budget *b = &system->budget;
        status = put_row(row,
                         json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "gpu_title",
                                   system->gpu->title, "weights_bytes", b->weights_bytes,
                                   "reserve_bytes", b->reserve_bytes, "activation_bytes",
                                   b->activation_bytes, "logits_bytes", b->logits_bytes,
                                   "pool_bytes", b->pool_bytes, "shares_pool", b->shares_pool),
                         rows);
    }
    system_close(system);
    return status;
}

const struct job job_budget = {
    .name = "budget",
    .doc = "what a system divides its device's memory into, in bytes",
    .required = (const char *const[]){"system", "gpu", NULL},
    .optional = (const char *const[]){"model", NULL},
    .fill = budget,
};

/* ---- what is live in one step of a model ---- */

/* One request's step on fused kernels, its logits at once. Returns the most bytes live while
 * operators of each class run. */
static void measure_step(const struct model *model, const struct span *span,
                         int64_t most_bytes[TENSOR_CLASS_COUNT]) {
    const struct graph_options options = {.fused = true, .logits_bytes = BF16_BYTES};
    struct graph graph;
    struct step_shape shape;
    struct placement placement;
    struct usage usage;
    graph_build(&graph, model, &options);
    shape_clear(&shape);
    shape_add(shape.sym, span, 1);
    placement_make(&planner_table[0], &graph, &shape, (struct chunk_rows){{0}}, &placement);
    usage_measure(&graph, &shape, &placement, &usage);
    for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
        most_bytes[c] = 0;
    }
    for (uint32_t op = 0; op < graph.n_ops; op++) {
        enum tensor_class class = op_class(&graph, op);
        if (usage.executions[op] > 0 && usage.bytes[op] > most_bytes[class]) {
            most_bytes[class] = usage.bytes[op];
        }
    }
}

/* Autoregressive models decode one token; diffusion models pass the whole context. */
static int live(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    uint64_t context = 0;
    double masked = 1;
    int status = job_whole(args, "context", 1 << 24, &context, err);
    status = status != 0 ? status : job_number(args, "masked", 0, 1, &masked, err);
    const struct model *model = status == 0 ? model_find(job_text(args, "model"), err) : NULL;
    if (model == NULL) {
        return err_status(err);
    }
    bool decodes = model->mask == MASK_CAUSAL;
    uint32_t queries = decodes ? 1 : (uint32_t)context;
    const struct span span = {.phase = decodes ? PHASE_REUSE : PHASE_REFRESH,
                              .queries = queries,
                              .first_queries = queries,
                              .context = decodes ? (uint32_t)context - 1 : 0,
                              .logit_rows = decodes ? 1 : (uint32_t)(masked * (double)context)};
    int64_t most[TENSOR_CLASS_COUNT];
    measure_step(model, &span, most);
    int64_t cache = decodes ? (int64_t)context * model_kv_bytes_per_token(model, NUMBER_BF16) : 0;
    return put_row(row,
                   json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "model_title", model->title,
                             "logit_row_bytes", model_logits_bytes_per_row(model, BF16_BYTES),
                             "weights_bytes", model_weights_bytes(model, &(struct storage){0}),
                             "cache_bytes", cache, "ffn_bytes", most[TENSOR_FFN], "attention_bytes",
                             most[TENSOR_ATTENTION], "logits_bytes", most[TENSOR_LOGITS]),
                   rows);
}

const struct job job_live = {
    .name = "live",
    .doc = "most live bytes of one request's step while operators of each class run",
    .required = (const char *const[]){"model", "context", NULL},
    .optional = (const char *const[]){"masked", NULL},
    .fill = live,
};

/* ---- what the sampler of a model of uniform noise holds ---- */

/* Its temporaries all at once, as code without a plan may hold them; placed by when they are read;
 * the same in chunks of a canvas; our kernels', which store logits and probabilities alone, and in
 * chunks; or nothing as wide as the vocabulary. */
enum sampler_way { WAY_ALL, WAY_PLANNED, WAY_CHUNKED, WAY_OWN, WAY_OWN_CHUNKED, WAY_NEVER };
static const char *const sampler_ways[] = {"all",         "planned", "chunked", "own",
                                           "own-chunked", "never",   NULL};

static const struct graph_options sampler_options[] = {
    [WAY_ALL] = {.fused = true, .exact = true, .logits_bytes = 4, .sampler_bytes = 4},
    [WAY_PLANNED] = {.fused = true, .exact = true, .logits_bytes = 4, .sampler_bytes = 4},
    [WAY_CHUNKED] = {.fused = true, .exact = true, .logits_bytes = 4, .sampler_bytes = 4},
    [WAY_OWN] = {.fused = true, .exact = true, .logits_bytes = BF16_BYTES},
    [WAY_OWN_CHUNKED] = {.fused = true, .exact = true, .logits_bytes = BF16_BYTES},
    [WAY_NEVER] = {.fused = true, .exact = true, .fused_head = true},
};

/* The workspace of a denoising step of `requests` canvases, and of it the tensors as wide as the
 * vocabulary. */
static int sampler_bytes(const struct model *model, enum sampler_way way, uint32_t requests,
                         int64_t *peak, int64_t *widest, struct err *err) {
    const uint32_t canvas = model->block_tokens;
    const bool chunks = way == WAY_CHUNKED || way == WAY_OWN_CHUNKED;
    const struct chunk_rows rows = {{[CHUNK_LOGITS] = chunks ? canvas : 0}};
    const struct span span = {.phase = PHASE_REUSE,
                              .queries = canvas,
                              .first_queries = canvas,
                              .context = canvas,
                              .logit_rows = canvas,
                              .exact = 1};
    struct graph graph;
    struct step_shape shape;
    struct placement placement;
    int status = graph_try(&graph, model, &sampler_options[way], err);
    const struct planner *planner = status == 0 ? planner_find("exact", err) : NULL;
    if (planner == NULL) {
        return err_status(err);
    }
    *widest = 0;
    shape_clear(&shape);
    shape_add(shape.sym, &span, requests);
    for (int t = 0; t < (int)graph.n_tensors; t++) {
        const bool is_wide = tensor_holds_logits(&graph, t);
        graph.tensors[t].last_op =
            way == WAY_ALL && is_wide ? (int)graph.n_ops - 1 : graph.tensors[t].last_op;
        *widest += is_wide ? tensor_bytes(&graph, t, &shape, rows) : 0;
    }
    placement_make(planner, &graph, &shape, rows, &placement);
    *peak = placement.peak_bytes;
    return 0;
}

static int sampler(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    uint64_t requests = 0;
    int64_t peak = 0, widest = 0;
    int status = job_whole(args, "requests", 4096, &requests, err);
    const struct model *model = status == 0 ? model_find(job_text(args, "model"), err) : NULL;
    const int way = name_find(sampler_ways, job_text(args, "way"));
    if (model == NULL) {
        return err_status(err);
    }
    if (!model->uniform_noise || way < 0 || requests == 0) {
        return err_usage(err, "a sampler's memory is of a model of uniform noise, of at least one "
                              "request, and way is all, planned, chunked, own, own-chunked or "
                              "never");
    }
    status = sampler_bytes(model, (enum sampler_way)way, (uint32_t)requests, &peak, &widest, err);
    return status != 0 ? status
                       : put_row(row,
                                 json_pack("{s:s, s:I, s:I}", "model_title", model->title,
                                           "peak_bytes", peak, "wide_bytes", widest),
                                 rows);
}

const struct job job_sampler = {
    .name = "sampler",
    .doc = "the workspace of a step that samples `requests` canvases of random tokens, by `way`",
    .required = (const char *const[]){"model", "requests", "way", NULL},
    .fill = sampler,
};

/* ---- what one layer computes ---- */

enum { PART_PROJECTIONS, PART_OVER_KEYS, PART_FEED_FORWARD, N_PARTS };

/* Which part of a layer an operator is, or -1. */
static int part_of(const struct op *op) {
    switch (op_type_of(op)->family) {
    case FAMILY_ATTENTION:
        return PART_OVER_KEYS;
    case FAMILY_PRODUCT:
        return op->loop >= 0 ? PART_FEED_FORWARD : PART_PROJECTIONS;
    default:
        return -1;
    }
}

static double flops_of(const struct graph *graph, const struct op *op,
                       const int64_t sym[SYM_COUNT]) {
    struct op_amount amount = {
        .rows = (double)sym[op->rows], .n_steps = 1, .sum_q_kv = (double)sym[op->span_qk]};
    return op_type_of(op)->work(graph, op, &amount).flops;
}

/* GFLOP of the layer that repeats, by part. */
static void count_layer(const struct model *model, uint32_t queries, uint32_t context,
                        double gflop[N_PARTS]) {
    static const struct graph_options options = {
        .fused = true, .exact = true, .logits_bytes = BF16_BYTES};
    const struct span span = {.phase = PHASE_REUSE,
                              .queries = queries,
                              .first_queries = queries,
                              .context = context,
                              .exact = 1};
    struct graph graph;
    struct step_shape shape;
    graph_build(&graph, model, &options);
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    for (uint32_t i = 0; i < graph.n_ops; i++) {
        bool repeats = graph.segments[graph.ops[i].segment].repeat > 1;
        int part = repeats ? part_of(&graph.ops[i]) : -1;
        if (part >= 0) {
            gflop[part] += flops_of(&graph, &graph.ops[i], shape.sym) * 1e-9;
        }
    }
}

static int layer(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    uint64_t queries = 0, context = 0;
    double gflop[N_PARTS] = {0};
    int status = job_whole(args, "queries", 1 << 24, &queries, err);
    status = status != 0 ? status : job_whole(args, "context", 1 << 24, &context, err);
    const struct model *model = status == 0 ? model_find(job_text(args, "model"), err) : NULL;
    if (model == NULL) {
        return err_status(err);
    }
    if (model->experts > 0) {
        return err_usage(err,
                         "%s is a mixture of experts: its layers' products are not of one size",
                         model->name);
    }
    count_layer(model, (uint32_t)queries, (uint32_t)context, gflop);
    return put_row(row,
                   json_pack("{s:s, s:f, s:f, s:f}", "model_title", model->title,
                             "projections_gflop", gflop[PART_PROJECTIONS], "attention_gflop",
                             gflop[PART_OVER_KEYS], "ffn_gflop", gflop[PART_FEED_FORWARD]),
                   rows);
}

const struct job job_layer = {
    .name = "layer",
    .doc = "what one layer computes for `queries` tokens over `context` cached ones, in GFLOP",
    .required = (const char *const[]){"model", "queries", "context", NULL},
    .fill = layer,
};
