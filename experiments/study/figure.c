#include "experiments/study/figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/study/figure_sheet.h"
#include "experiments/study/point.h"

static bool rejected(const struct point *point) {
    return (point->codes >> WARNING_REJECTED & 1U) != 0;
}

size_t figure_best_baseline(const struct grid *grid, const struct grid_results *results,
                            size_t workload, size_t x) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < grid->systems.n; i++) {
        const struct point *point = grid_point(grid, results, i, workload, x);
        const struct point *other = grid_point(grid, results, best, workload, x);
        bool is_whole = !rejected(point), beats = point->throughput > other->throughput;
        if (is_whole == !rejected(other) ? beats : is_whole) {
            best = i;
        }
    }
    return best;
}

static double number_of(const struct point *point, const struct point *base, enum metric metric) {
    switch (metric) {
    case METRIC_THROUGHPUT:
        return point->throughput;
    case METRIC_LATENCY:
        return point->avg_latency;
    case METRIC_STD:
        return point->latency_std;
    case METRIC_SPAN:
        return point->latency_span;
    case METRIC_SPEEDUP:
        return point->throughput / base->throughput;
    case METRIC_FORWARD:
        return point->ms_per_forward;
    case METRIC_TPF:
        return point->tpf;
    }
    return NAN;
}

double figure_value(const struct grid *grid, const struct grid_results *results, enum metric metric,
                    size_t system, size_t workload, size_t x) {
    return number_of(grid_point(grid, results, system, workload, x),
                     grid_point(grid, results, grid->baseline, workload, x), metric);
}

struct spread figure_spread(const struct grid *grid, const struct grid_results *results,
                            enum metric metric, size_t system, size_t workload, size_t x) {
    const struct point *runs = grid_seeds(grid, results, system, workload, x);
    const struct point *base = grid_seeds(grid, results, grid->baseline, workload, x);
    double values[FIGURE_MOST_SEEDS];
    for (size_t seed = 0; seed < grid->n_seeds; seed++) {
        values[seed] = number_of(&runs[seed], &base[seed], metric);
    }
    struct spread spread = spread_of(values, grid->n_seeds);
    double half = spread.high - spread.mean;
    spread.mean = figure_value(grid, results, metric, system, workload, x);
    spread.low = spread.mean - half;
    spread.high = spread.mean + half;
    return spread;
}

/* Fills in one value of a panel with its interval. */
static void lay_value(const struct grid *grid, const struct grid_results *results,
                      enum metric metric, const size_t place[3], const size_t at[3],
                      struct sheet *sheet) {
    struct spread spread = figure_spread(grid, results, metric, place[0], place[1], place[2]);
    sheet->y[at[0]][at[1]][at[2]] = spread.mean;
    sheet->low[at[0]][at[1]][at[2]] = spread.low;
    sheet->high[at[0]][at[1]][at[2]] = spread.high;
}

void figure_print_warnings(const struct grid *grid, const struct grid_results *results, FILE *out) {
    size_t n = grid_n_points(grid);
    bool is_drawn = false;
    for (int code = 0; grid_runs(grid) && code < WARNING_CODE_COUNT; code++) {
        size_t n_warned = 0;
        for (size_t i = 0; i < n; i++) {
            n_warned += results->runs[i].codes >> code & 1U;
            is_drawn = is_drawn || results->runs[i].is_drawn;
        }
        if (n_warned > 0) {
            fprintf(out, "%-13s%s: %zu of %zu runs\n", "warning", warning_words[code], n_warned, n);
        }
    }
    if (is_drawn && grid->n_seeds == 1) {
        fprintf(out,
                "%-13s%s: one seed does not tell how far a number would move with another "
                "one (--seeds N)\n",
                "warning", warning_words[WARNING_FEW_SEEDS]);
    }
}

struct metric_text {
    const char *word, *label, *quantity;
    enum metric metric;
};

static const struct metric_text metric_texts[] = {
    {"throughput", "throughput (tokens/s)", "throughput", METRIC_THROUGHPUT},
    {"avg_latency", "mean latency (s)", "avg_latency", METRIC_LATENCY},
    {"speedup", "speed-up over ", "speedup_vs_Sparse-dLLM", METRIC_SPEEDUP},
    {"ms_per_forward", "time of a forward pass (ms)", "ms_per_forward", METRIC_FORWARD},
    {"tpf", "tokens per forward pass", "tpf", METRIC_TPF},
};

static const struct metric_text *metric_of(const char *word, struct err *err) {
    for (size_t i = 0; i < sizeof metric_texts / sizeof metric_texts[0]; i++) {
        if (strcmp(metric_texts[i].word, word) == 0) {
            return &metric_texts[i];
        }
    }
    err_usage(err,
              "unknown metric '%s' in a figure: expected throughput, avg_latency, speedup, "
              "ms_per_forward or tpf",
              word);
    return NULL;
}

static double printed(const struct grid *grid, const struct paper *paper,
                      const struct metric_text *metric, size_t system, size_t workload, size_t x) {
    const char *dataset = grid->workload_labels.word[workload], *setting = NULL;
    if (grid->axis == AXIS_BATCH || grid->axis == AXIS_BLOCK) {
        return NAN; /* its rows stand in the table alone */
    }
    if (grid->axis == AXIS_RATE) {
        setting = grid->rates.word[x];
    } else {
        dataset = x < grid->x_names.n ? grid->x_names.word[x] : "";
    }
    const struct paper_row *row = paper_find(paper, grid->paper_gpu, dataset,
                                             grid->labels.word[system], setting, metric->quantity);
    if (row == NULL && grid->axis == AXIS_RATE && x + 1 == grid->n_x) {
        row = paper_find(paper, grid->paper_gpu, dataset, grid->labels.word[system], "saturation",
                         metric->quantity);
    }
    if (row == NULL && metric->metric == METRIC_SPEEDUP) {
        row = paper_find(paper, grid->paper_gpu, dataset, grid->labels.word[system], NULL,
                         metric->quantity);
    }
    return row != NULL ? row->value : NAN;
}

/* "profile l40s: imported; osc, burst: real inputs, ..." */
static void describe(const struct grid *grid, const struct grid_results *results,
                     struct sheet *sheet) {
    if (grid->kind == GRID_MEASURED || figure_describe_memory(grid, sheet) ||
        figure_describe_lmax(grid, sheet) || figure_describe_decode(grid, sheet) ||
        figure_describe_work(grid, sheet)) {
        return;
    }
    size_t used = (size_t)snprintf(sheet->provenance, sizeof sheet->provenance, "profile %s",
                                   grid_point(grid, results, 0, 0, 0)->profile);
    for (size_t w = 0; w < grid->workloads.n && used < sizeof sheet->provenance; w++) {
        const char *is = grid_point(grid, results, 0, w, 0)->provenance;
        const char *before = w > 0 ? grid_point(grid, results, 0, w - 1, 0)->provenance : "";
        const char *behind =
            w + 1 < grid->workloads.n ? grid_point(grid, results, 0, w + 1, 0)->provenance : "";
        bool is_last = strcmp(is, behind) != 0;
        used += (size_t)snprintf(sheet->provenance + used, sizeof sheet->provenance - used,
                                 "%s%s%s%s", strcmp(is, before) == 0 ? ", " : "; ",
                                 grid->workloads.word[w], is_last ? ": " : "", is_last ? is : "");
    }
}

/* One panel per metric, workloads as groups, systems as bars. */
static int lay_bars(const struct grid *grid, const struct grid_results *results,
                    const struct paper *paper, struct sheet *sheet, struct err *err) {
    for (size_t w = 0; w < grid->workloads.n; w++) {
        sheet->names[w] = grid->workload_labels.word[w];
    }
    for (size_t p = 0; p < grid->metrics.n; p++) {
        const struct metric_text *metric = metric_of(grid->metrics.word[p], err);
        if (metric == NULL) {
            return (int)err->kind;
        }
        snprintf(sheet->y_labels[p], sizeof sheet->y_labels[p], "%s%s", metric->label,
                 metric->metric == METRIC_SPEEDUP ? grid->labels.word[grid->baseline] : "");
        for (size_t s = 0; s < grid->systems.n; s++) {
            for (size_t w = 0; w < grid->workloads.n; w++) {
                lay_value(grid, results, metric->metric, (size_t[]){s, w, 0}, (size_t[]){p, s, w},
                          sheet);
                sheet->paper[p][s][w] = printed(grid, paper, metric, s, w, 0);
            }
            sheet->series[p][s] = (struct plot_series){.name = grid->labels.word[s],
                                                       .y = sheet->y[p][s],
                                                       .low = sheet->low[p][s],
                                                       .high = sheet->high[p][s],
                                                       .paper = sheet->paper[p][s],
                                                       .n = grid->workloads.n};
        }
        sheet->panels[p] = (struct panel){.kind = PANEL_BARS,
                                          .x_label = "",
                                          .title = sheet->y_labels[p],
                                          .y_label = sheet->y_labels[p],
                                          .series = sheet->series[p],
                                          .n_series = grid->systems.n,
                                          .categories = sheet->names,
                                          .n_categories = grid->workloads.n,
                                          .values = true};
    }
    sheet->n_panels = grid->metrics.n;
    return 0;
}

/* One panel per workload, a line per system over the axis. */
static int lay_lines(const struct grid *grid, const struct grid_results *results,
                     const struct paper *paper, struct sheet *sheet, struct err *err) {
    static const char *const x_labels[] = {"arrival rate (requests/s)", "prompt length (tokens)",
                                           "output length (tokens)", "batch size (requests)",
                                           "block (tokens)"};
    const struct metric_text *metric = metric_of(grid->metrics.word[0], err);
    if (metric == NULL) {
        return (int)err->kind;
    }
    bool is_speedup = metric->metric == METRIC_SPEEDUP;
    snprintf(sheet->y_labels[0], sizeof sheet->y_labels[0], "%s%s", metric->label,
             is_speedup ? grid->labels.word[grid->baseline] : "");
    for (size_t w = 0; w < grid->workloads.n; w++) {
        size_t n_series = 0;
        for (size_t s = 0; s < grid->systems.n; s++) {
            if (is_speedup && s == grid->baseline) {
                continue; /* it is 1 everywhere */
            }
            for (size_t x = 0; x < grid->n_x; x++) {
                lay_value(grid, results, metric->metric, (size_t[]){s, w, x}, (size_t[]){w, s, x},
                          sheet);
                sheet->paper[w][s][x] = printed(grid, paper, metric, s, w, x);
            }
            sheet->series[w][n_series++] = (struct plot_series){.name = grid->labels.word[s],
                                                                .x = grid->x,
                                                                .y = sheet->y[w][s],
                                                                .low = sheet->low[w][s],
                                                                .high = sheet->high[w][s],
                                                                .paper = sheet->paper[w][s],
                                                                .n = grid->n_x};
        }
        sheet->panels[w] = (struct panel){.kind = PANEL_XY,
                                          .title = grid->workload_labels.word[w],
                                          .x_label = x_labels[grid->axis],
                                          .y_label = sheet->y_labels[0],
                                          .series = sheet->series[w],
                                          .n_series = n_series};
    }
    sheet->n_panels = grid->workloads.n;
    return 0;
}

/* Gains of the last system over the best baseline in standard deviation and tail span. */
static void lay_jitter(const struct grid *grid, const struct grid_results *results,
                       struct sheet *sheet) {
    static const struct {
        const char *name;
        enum metric metric;
    } gains[] = {{"standard deviation", METRIC_STD}, {"tail span (max - min)", METRIC_SPAN}};
    size_t last = grid->systems.n - 1;
    for (size_t i = 0; i < 2; i++) {
        for (size_t w = 0; w < grid->workloads.n; w++) {
            size_t best = figure_best_baseline(grid, results, w, 0);
            sheet->names[w] = grid->workload_labels.word[w];
            sheet->y[0][i][w] = figure_value(grid, results, gains[i].metric, best, w, 0) /
                                figure_value(grid, results, gains[i].metric, last, w, 0);
        }
        sheet->series[0][i] = (struct plot_series){
            .name = gains[i].name, .y = sheet->y[0][i], .n = grid->workloads.n};
    }
    sheet->panels[0] = (struct panel){.kind = PANEL_BARS,
                                      .x_label = "",
                                      .title = "best baseline / dLLM-Serve; higher is steadier",
                                      .y_label = "gain over the best baseline",
                                      .series = sheet->series[0],
                                      .n_series = 2,
                                      .categories = sheet->names,
                                      .n_categories = grid->workloads.n,
                                      .values = true,
                                      .y_line = 1};
    sheet->n_panels = 1;
}

int figure_draw(const struct grid *grid, const struct grid_results *results,
                const struct paper *paper, const char *stem, struct err *err) {
    struct sheet *sheet = calloc(1, sizeof *sheet);
    ASSERT(sheet != NULL);
    int status = 0;
    switch (grid->kind) {
    case GRID_BARS:
        status = lay_bars(grid, results, paper, sheet, err);
        break;
    case GRID_LINES:
        status = lay_lines(grid, results, paper, sheet, err);
        break;
    case GRID_JITTER:
        lay_jitter(grid, results, sheet);
        break;
    case GRID_MEMORY:
        status = figure_lay_memory(grid, sheet, err);
        break;
    case GRID_CONTEXT:
        status = figure_lay_context(grid, sheet, err);
        break;
    case GRID_WORK:
        status = figure_lay_work(grid, sheet, err);
        break;
    case GRID_MASKS:
        status = figure_lay_masks(grid, sheet, err);
        break;
    case GRID_LMAX:
    case GRID_PAR:
    case GRID_INFLATION:
        status = figure_lay_lmax(grid, results, sheet, err);
        break;
    case GRID_DECODE:
        status = figure_lay_decode(grid, results, paper, sheet);
        break;
    case GRID_STEPS:
        status = figure_lay_steps(grid, results, sheet);
        break;
    case GRID_DECODERS:
        status = figure_lay_decoders(grid, results, paper, sheet);
        break;
    case GRID_EVICTION:
        status = figure_lay_eviction(grid, sheet);
        break;
    case GRID_SERVER: /* drawn by server_draw */
        break;
    case GRID_MEASURED:
        figure_lay_measured(grid, results, sheet);
        break;
    }
    if (status == 0) {
        describe(grid, results, sheet);
        int bars = (int)(grid->systems.n * grid->workloads.n), bars_width = 130 + 34 * bars;
        struct figure figure = {.title = grid->title,
                                .provenance = sheet->provenance,
                                .panels = sheet->panels,
                                .n_panels = sheet->n_panels,
                                .n_columns = sheet->n_columns,
                                /* Room for the title, or for the numbers over grouped bars. */
                                .panel_width =
                                    grid->kind == GRID_DECODE || grid->kind == GRID_DECODERS ? 900
                                    : grid->kind == GRID_BARS && bars_width > 640     ? bars_width
                                    : grid->kind == GRID_BARS || sheet->n_panels == 1 ? 640
                                                                                      : 0};
        status = figure_write(&figure, stem, FIGURE_ALL, err);
    }
    free(sheet);
    return status;
}
