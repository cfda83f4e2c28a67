/* FOCUS's Table 2: what one layer computes for the tokens of a step against cached ones, counted
 * from the step graph. */
#include <stdio.h>

#include "experiments/study/figure_sheet.h"
#include "sim/base/num.h"
#include "sim/graph/builder.h"

enum part { PART_PROJECTIONS, PART_ATTENTION, PART_FFN };
enum { N_PARTS = PART_FFN + 1 };
static const char *const part_names[N_PARTS] = {"attention projections", "attention over keys",
                                                "FFN"};

/* Which of the table's parts an operator is, or -1. */
static int part_of(const struct op *op) {
    switch (op_type_of(op)->family) {
    case FAMILY_ATTENTION:
        return PART_ATTENTION;
    case FAMILY_PRODUCT:
        return op->loop >= 0 ? PART_FFN : PART_PROJECTIONS;
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

int figure_lay_work(const struct grid *grid, struct sheet *sheet, struct err *err) {
    for (size_t x = 0; x < grid->n_x; x++) {
        sheet->names[x] = grid->values.word[x];
    }
    for (size_t m = 0; m < grid->models.n; m++) {
        const struct model *model = model_find(grid->models.word[m], err);
        if (model == NULL) {
            return (int)err->kind;
        }
        if (model->experts > 0) {
            return err_usage(err,
                             "%s is a mixture of experts: its layers' products are not of one "
                             "size",
                             model->title);
        }
        for (size_t x = 0; x < grid->n_x; x++) {
            double gflop[N_PARTS] = {0};
            count_layer(model, (uint32_t)grid->x[x], (uint32_t)grid->context_tokens, gflop);
            for (int part = 0; part < N_PARTS; part++) {
                sheet->y[m][part][x] = gflop[part];
            }
        }
        for (int part = 0; part < N_PARTS; part++) {
            sheet->series[m][part] = (struct plot_series){
                .name = part_names[part], .y = sheet->y[m][part], .n = grid->n_x};
        }
        sheet->panels[m] = (struct panel){.kind = PANEL_STACKED,
                                          .x_label = "tokens of a step",
                                          .title = model->title,
                                          .y_label = "one layer (GFLOP)",
                                          .series = sheet->series[m],
                                          .n_series = N_PARTS,
                                          .categories = sheet->names,
                                          .n_categories = grid->n_x};
    }
    sheet->n_panels = grid->models.n;
    return 0;
}

bool figure_describe_work(const struct grid *grid, struct sheet *sheet) {
    if (grid->kind != GRID_WORK) {
        return false;
    }
    snprintf(sheet->provenance, sizeof sheet->provenance,
             "computed from step graphs, %llu cached tokens; the paper counts as many key heads as "
             "query heads (8 h^2) and an FFN of two products (4 d h)",
             (unsigned long long)grid->context_tokens);
    return true;
}
