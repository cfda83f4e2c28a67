/* The job that prices the first step of a request: as `unmask plan latency` answers, without what
 * is timed on a host, so that the same study gives the same bytes anywhere. */
#include <stdio.h>
#include <stdlib.h>

#include "experiments/study/jobs.h"
#include "experiments/study/step.h"
#include "sim/base/mem.h"
#include "sim/system/system_step.h"

/* Milliseconds as `unmask plan latency --csv` writes them. */
static void put_ms(json_t *row, const char *key, double ns) {
    char text[64];
    snprintf(text, sizeof text, "%.6f", ns * 1e-6);
    job_put(row, key, strtod(text, NULL));
}

static void put_price(const struct system *s, const struct asked_step *step,
                      struct chunk_rows chunks, json_t *row) {
    const struct step_shape *shape = &step->shape;
    struct step_price price;
    struct op_price ops[GRAPH_MAX_OPS];
    double op_ns[GRAPH_MAX_OPS];
    system_price(s, shape, step->workspace_bytes, &price);
    cost_explain(s->cost, shape, chunks, ops);
    for (uint32_t op = 0; op < s->graph.n_ops; op++) {
        op_ns[op] = ops[op].ns;
    }
    struct step_parts parts = step_parts_of(&s->graph, op_ns);
    put_ms(row, "priced_ms", price.wall_ns);
    put_ms(row, "planning_ms", price.plan_ns);
    put_ms(row, "attention_ms", parts.attention_ns);
    put_ms(row, "ffn_ms", parts.ffn_ns);
    put_ms(row, "logits_ms", parts.logits_ns);
}

static void chunk_always(struct system *s, uint64_t count) {
    s->chunks.search = CHUNK_SEARCH_ALWAYS;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        s->chunks.counts[kind] = (uint32_t)count;
    }
}

/* A step that does not fit gives no row. */
static int price_step(struct system *s, uint32_t canvas_tokens, double share, json_t *row,
                      json_t *rows, struct err *err) {
    struct asked_step step;
    struct placement placement = {0};
    uint32_t outputs = first_step_outputs(canvas_tokens, share);
    int status = step_first(s, canvas_tokens - outputs, outputs, &step, err);
    if (status == 0 && s->settings.allocator == ALLOCATOR_PLANNED) {
        status = system_place(s, &step.shape, step.workspace_bytes, &placement, err);
    }
    if (status == 0) {
        put_price(s, &step, placement.chunks, row);
        json_array_append(rows, row);
    }
    step_fini(&step);
    if (status != 0 && err->kind == ERR_WORLD) {
        *err = (struct err){0};
        status = 0;
    }
    return status;
}

/* A system that is open for canvases up to a length. */
struct opened {
    struct system *system;
    uint64_t longest;
};

static void close_opened(void *state) {
    struct opened *opened = state;
    if (opened != NULL) {
        system_close(opened->system);
        free(opened);
    }
}

static int open_for(void **state, const json_t *args, uint64_t canvas, struct err *err) {
    const struct system_request wanted = {.system = job_text(args, "system"),
                                          .gpu = job_text(args, "gpu"),
                                          .model = job_text(args, "model")};
    struct opened *opened = *state;
    if (opened != NULL && opened->longest >= canvas) {
        return 0;
    }
    close_opened(opened);
    *state = opened = mem_zeroed(1, sizeof *opened);
    opened->longest = canvas;
    return first_step_open(&wanted, (uint32_t)canvas, false, &opened->system, err);
}

static int latency(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    uint64_t canvas = 0, count = 0;
    double share = 0;
    int status = job_whole(args, "canvas", 1 << 24, &canvas, err);
    status = status != 0 ? status : job_whole(args, "chunks", CHUNK_MOST, &count, err);
    status = status != 0 ? status : job_number(args, "prompt_share", 0, 0.999999, &share, err);
    status = status != 0 ? status : open_for(state, args, canvas, err);
    if (status != 0) {
        return status;
    }
    struct system *system = ((struct opened *)*state)->system;
    if (count > 0) {
        chunk_always(system, count);
    }
    return price_step(system, (uint32_t)canvas, share, row, rows, err);
}

const struct job job_latency = {
    .name = "latency",
    .doc = "the price of a request's first step (unmask plan latency), in milliseconds",
    .required = (const char *const[]){"system", "gpu", "model", "prompt_share", "canvas", NULL},
    .optional = (const char *const[]){"chunks", NULL},
    .shared = (const char *const[]){"system", "gpu", "model", NULL},
    .close = close_opened,
    .fill = latency,
};
