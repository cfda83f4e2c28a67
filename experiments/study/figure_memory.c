/* Figures of memory: of systems on a device, of models over the context or the masked tokens. */
#include <inttypes.h>
#include <stdio.h>

#include "experiments/study/figure_sheet.h"
#include "sim/graph/builder.h"
#include "sim/memory/usage.h"
#include "sim/system/system.h"

bool figure_describe_memory(const struct grid *grid, struct sheet *sheet) {
    switch (grid->kind) {
    case GRID_MEMORY:
        snprintf(sheet->provenance, sizeof sheet->provenance,
                 "computed: the step graph of the largest step, placed by the memory planner");
        return true;
    case GRID_CONTEXT:
        snprintf(sheet->provenance, sizeof sheet->provenance,
                 "computed: most live bytes of one request's step on fused kernels; autoregressive "
                 "models decode one token, diffusion models pass the whole context, all of it "
                 "masked");
        return true;
    case GRID_MASKS:
        snprintf(sheet->provenance, sizeof sheet->provenance,
                 "computed: most live bytes of one step over %" PRIu64
                 " tokens on fused kernels, logits of masked tokens only",
                 grid->context_tokens);
        return true;
    default:
        return false;
    }
}

/* What the device is divided into, for each GPU a panel, for each system a bar. */
int figure_lay_memory(const struct grid *grid, struct sheet *sheet, struct err *err) {
    static const char *const parts[] = {"weights", "runtime reserve", "activations",
                                        "logits and copies", "KV pool"};
    enum { N_PARTS = sizeof parts / sizeof parts[0] };
    for (size_t g = 0; g < grid->gpus.n; g++) {
        for (size_t s = 0; s < grid->systems.n; s++) {
            struct system_request request = {.system = grid->systems.word[s],
                                             .gpu = grid->gpus.word[g]};
            struct system *system = NULL;
            if (system_open(&request, &system, err) != 0) {
                return (int)err->kind;
            }
            const struct budget *b = &system->budget;
            /* The workspace's peak, split into what the tensors sized by logits could fill of it
             * and the rest. */
            int64_t logits =
                b->logits_bytes < b->activation_bytes ? b->logits_bytes : b->activation_bytes;
            const int64_t bytes[N_PARTS] = {
                b->weights_bytes, b->reserve_bytes, b->activation_bytes - logits, logits,
                b->pool_bytes - (b->shares_pool ? b->activation_bytes : 0)};
            for (size_t i = 0; i < N_PARTS; i++) {
                sheet->y[g][i][s] = (double)bytes[i] / 0x1p30;
            }
            system_close(system);
        }
        for (size_t i = 0; i < N_PARTS; i++) {
            sheet->series[g][i] =
                (struct plot_series){.name = parts[i], .y = sheet->y[g][i], .n = grid->systems.n};
        }
        for (size_t s = 0; s < grid->systems.n; s++) {
            sheet->names[s] = grid->labels.word[s];
        }
        sheet->panels[g] = (struct panel){.kind = PANEL_STACKED,
                                          .x_label = "",
                                          .title = gpu_find(grid->gpus.word[g], err)->title,
                                          .y_label = "device memory (GiB)",
                                          .series = sheet->series[g],
                                          .n_series = N_PARTS,
                                          .categories = sheet->names,
                                          .n_categories = grid->systems.n};
    }
    sheet->n_panels = grid->gpus.n;
    return 0;
}

/* ---- models ---- */

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

/* Each model a panel, each context a bar of weights, cache and activations. */
int figure_lay_context(const struct grid *grid, struct sheet *sheet, struct err *err) {
    static const char *const parts[] = {"weights", "KV cache", "activations"};
    enum { N_PARTS = sizeof parts / sizeof parts[0] };
    for (size_t x = 0; x < grid->n_x; x++) {
        sheet->names[x] = grid->values.word[x];
    }
    double highest = 0;
    for (size_t m = 0; m < grid->models.n; m++) {
        const struct model *model = model_find(grid->models.word[m], err);
        if (model == NULL) {
            return (int)err->kind;
        }
        bool decodes = model->mask == MASK_CAUSAL;
        for (size_t x = 0; x < grid->n_x; x++) {
            uint32_t context = (uint32_t)grid->x[x];
            const struct span span = {.phase = decodes ? PHASE_REUSE : PHASE_REFRESH,
                                      .queries = decodes ? 1 : context,
                                      .first_queries = decodes ? 1 : context,
                                      .context = decodes ? context - 1 : 0,
                                      .logit_rows = decodes ? 1 : context};
            int64_t most_bytes[TENSOR_CLASS_COUNT], activations = 0;
            measure_step(model, &span, most_bytes);
            for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
                activations = most_bytes[c] > activations ? most_bytes[c] : activations;
            }
            int64_t cache = decodes ? context * model_kv_bytes_per_token(model) : 0;
            sheet->y[m][0][x] = (double)model_weights_bytes(model) / 0x1p30;
            sheet->y[m][1][x] = (double)cache / 0x1p30;
            sheet->y[m][2][x] = (double)activations / 0x1p30;
            double sum = sheet->y[m][0][x] + sheet->y[m][1][x] + sheet->y[m][2][x];
            highest = sum > highest ? sum : highest;
        }
        for (size_t i = 0; i < N_PARTS; i++) {
            sheet->series[m][i] =
                (struct plot_series){.name = parts[i], .y = sheet->y[m][i], .n = grid->n_x};
        }
        sheet->panels[m] = (struct panel){.kind = PANEL_STACKED,
                                          .x_label = "context (tokens)",
                                          .title = model->title,
                                          .y_label = "device memory (GiB)",
                                          .series = sheet->series[m],
                                          .n_series = N_PARTS,
                                          .categories = sheet->names,
                                          .n_categories = grid->n_x};
    }
    for (size_t m = 0; m < grid->models.n; m++) {
        sheet->panels[m].y_max = 1.06 * highest; /* bars of all panels compare */
    }
    sheet->n_panels = grid->models.n;
    return 0;
}

/* Each model a panel, each part of the step a line over the share of masked tokens. */
int figure_lay_masks(const struct grid *grid, struct sheet *sheet, struct err *err) {
    static const struct {
        const char *name;
        enum tensor_class class;
    } parts[] = {{"FFN", TENSOR_FFN}, {"attention", TENSOR_ATTENTION}, {"logits", TENSOR_LOGITS}};
    enum { N_PARTS = sizeof parts / sizeof parts[0] };
    for (size_t m = 0; m < grid->models.n; m++) {
        const struct model *model = model_find(grid->models.word[m], err);
        if (model == NULL) {
            return (int)err->kind;
        }
        for (size_t x = 0; x < grid->n_x; x++) {
            uint32_t context = (uint32_t)grid->context_tokens;
            const struct span span = {.phase = PHASE_REFRESH,
                                      .queries = context,
                                      .first_queries = context,
                                      .logit_rows = (uint32_t)(grid->x[x] * context)};
            int64_t most_bytes[TENSOR_CLASS_COUNT];
            measure_step(model, &span, most_bytes);
            for (size_t i = 0; i < N_PARTS; i++) {
                sheet->y[m][i][x] = (double)most_bytes[parts[i].class] / 0x1p30;
            }
        }
        for (size_t i = 0; i < N_PARTS; i++) {
            sheet->series[m][i] = (struct plot_series){
                .name = parts[i].name, .x = grid->x, .y = sheet->y[m][i], .n = grid->n_x};
        }
        sheet->panels[m] = (struct panel){.kind = PANEL_XY,
                                          .x_label = "share of masked tokens",
                                          .title = model->title,
                                          .y_label = "most live bytes (GiB)",
                                          .series = sheet->series[m],
                                          .n_series = N_PARTS};
    }
    sheet->n_panels = grid->models.n;
    return 0;
}
