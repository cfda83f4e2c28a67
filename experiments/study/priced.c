#include "experiments/study/priced.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/run/first_step.h"
#include "sim/base/num.h"
#include "sim/system/system_step.h"

/* One step's place among the figure's lists. */
struct place {
    const char *share, *count;
    uint32_t canvas_tokens;
};

static void print_line(const struct system *s, const struct place *place,
                       const struct step_shape *shape, struct chunk_rows chunks, FILE *csv) {
    struct step_price price;
    struct op_price ops[GRAPH_MAX_OPS];
    double op_ns[GRAPH_MAX_OPS];
    cost_price(s->cost, shape, chunks, &price);
    cost_explain(s->cost, shape, chunks, ops);
    for (uint32_t op = 0; op < s->graph.n_ops; op++) {
        op_ns[op] = ops[op].ns;
    }
    struct step_parts parts = step_parts_of(&s->graph, op_ns);
    fprintf(csv, "%s,%s,%s,%s,%s,%" PRIu32 ",%.6f,%.6f,%.6f,%.6f\n", s->name, s->model->name,
            s->gpu->name, place->share, place->count, place->canvas_tokens, price.wall_ns * 1e-6,
            parts.attention_ns * 1e-6, parts.ffn_ns * 1e-6, parts.logits_ns * 1e-6);
}

static int price_step(struct system *s, const struct place *place, FILE *csv, struct err *err) {
    struct asked_step step;
    struct placement placement = {0};
    double share = 0;
    num_f64(place->share, &share);
    uint32_t outputs = first_step_outputs(place->canvas_tokens, share);
    int status = step_first(s, place->canvas_tokens - outputs, outputs, &step, err);
    if (status == 0 && s->settings.allocator == ALLOCATOR_PLANNED) {
        status = system_place(s, &step.shape, step.workspace_bytes, &placement, err);
    }
    if (status == 0) {
        print_line(s, place, &step.shape, placement.chunks, csv);
    }
    step_fini(&step);
    if (status != 0 && err->kind == ERR_WORLD) {
        *err = (struct err){0}; /* it does not fit */
        status = 0;
    }
    return status;
}

static void chunk_always(struct system *s, const char *text) {
    uint64_t count = 0;
    if (num_u64(text, CHUNK_MOST, &count) && count > 0) {
        s->chunks.search = CHUNK_SEARCH_ALWAYS;
        for (int kind = 0; kind < CHUNK_KINDS; kind++) {
            s->chunks.counts[kind] = (uint32_t)count;
        }
    }
}

static int price_system(const struct grid *grid, const char *name, const char *gpu,
                        const char *model, FILE *csv, struct err *err) {
    const struct system_request wanted = {.system = name, .gpu = gpu, .model = model};
    struct system *system = NULL;
    uint32_t longest = 0;
    for (size_t x = 0; x < grid->n_x; x++) {
        longest = grid->x[x] > longest ? (uint32_t)grid->x[x] : longest;
    }
    int status = first_step_open(&wanted, longest, false, &system, err);
    size_t n_counts = grid->counts.n > 0 ? grid->counts.n : 1;
    for (size_t i = 0; status == 0 && i < grid->shares.n * grid->n_x * n_counts; i++) {
        const struct place place = {.share = grid->shares.word[i / grid->n_x / n_counts],
                                    .count =
                                        grid->counts.n > 0 ? grid->counts.word[i % n_counts] : "",
                                    .canvas_tokens = (uint32_t)grid->x[i / n_counts % grid->n_x]};
        chunk_always(system, place.count);
        status = price_step(system, &place, csv, err);
    }
    system_close(system);
    return status;
}

int priced_csv(const struct grid *grid, char **out, struct err *err) {
    size_t size;
    FILE *csv = open_memstream(out, &size);
    ASSERT(csv != NULL);
    fputs("system,model,gpu,prompt_share,chunks,canvas,priced_ms,attention_ms,ffn_ms,logits_ms\n",
          csv);
    int status = 0;
    size_t n_places = grid->gpus.n * grid->models.n;
    for (size_t i = 0; status == 0 && i < grid->systems.n * n_places; i++) {
        status = price_system(grid, grid->systems.word[i / n_places],
                              grid->gpus.word[i / grid->models.n % grid->gpus.n],
                              grid->models.word[i % grid->models.n], csv, err);
    }
    fclose(csv);
    if (status != 0) {
        free(*out);
        *out = NULL;
    }
    return status;
}
