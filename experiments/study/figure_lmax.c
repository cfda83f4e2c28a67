/* Figures of canvases: how long they get, and what their steps hold. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/study/canvases.h"
#include "experiments/study/figure_sheet.h"

static const char *const y_labels[] = {[GRID_LMAX] = "longest canvas (thousand tokens)",
                                       [GRID_PAR] = "peak over average",
                                       [GRID_INFLATION] = "reserved beyond what is in use (%)"};

bool figure_describe_lmax(const struct grid *grid, struct sheet *sheet) {
    static const char *const whats[] = {
        [GRID_LMAX] = "the longest canvas that fits (unmask plan lmax)",
        [GRID_PAR] = "peak over average of the bytes in use over a step's operators, where the "
                     "canvas fits",
        [GRID_INFLATION] = "reserved by the model of PyTorch's allocator without a limit, where "
                           "the canvas fits the GPU"};
    if (!grid_asks_lmax(grid)) {
        return false;
    }
    bool one_share = grid->kind != GRID_LMAX || grid->n_x == 1;
    const char *share = grid->kind != GRID_LMAX ? grid->share : grid->values.word[0];
    snprintf(sheet->provenance, sizeof sheet->provenance,
             "computed: %s; one request, its first step, all outputs masked, prompt %s of the %s",
             whats[grid->kind], one_share ? share : "shares",
             share_of_index(grid->share_of.word[0]) == SHARE_OF_CANVAS ? "canvas" : "output");
    return true;
}

/* ---- drawing ---- */

static double value_of(const struct grid *grid, const struct grid_results *results,
                       struct canvas_place place) {
    const struct canvas *canvas = canvases_at(grid, results, place);
    switch (grid->kind) {
    case GRID_PAR:
        return canvas->par;
    case GRID_INFLATION:
        return 100 * canvas->inflation;
    default:
        return canvas->tokens;
    }
}

/* The same as it is drawn: canvases in thousands. */
static double drawn(const struct grid *grid, const struct grid_results *results,
                    struct canvas_place place) {
    return value_of(grid, results, place) / (grid->kind == GRID_LMAX ? 1000 : 1);
}

/* All panels compare: one range for all. */
static void share_range(const struct grid *grid, struct sheet *sheet) {
    double min = INFINITY, max = 0;
    for (size_t p = 0; p < sheet->n_panels; p++) {
        const struct panel *panel = &sheet->panels[p];
        for (size_t s = 0; s < panel->n_series; s++) {
            for (size_t i = 0; i < panel->series[s].n; i++) {
                min = fmin(min, panel->series[s].y[i]); /* of a NaN and a number, the number */
                max = fmax(max, panel->series[s].y[i]);
            }
        }
    }
    for (size_t p = 0; p < sheet->n_panels; p++) {
        bool is_log = grid->kind == GRID_LMAX;
        sheet->panels[p].y_min = is_log ? pow(10, floor(log10(min / 1.5))) : 0;
        sheet->panels[p].y_max = is_log ? 1.4 * max : 1.12 * max;
    }
}

/* A GPU and a model a panel: bars over the prompt's share, or lines over the canvas. */
static void lay_panel(const struct grid *grid, const struct grid_results *results, size_t gpu,
                      size_t model, struct sheet *sheet) {
    size_t p = gpu * grid->models.n + model;
    bool is_bars = grid->kind == GRID_LMAX;
    for (size_t s = 0; s < grid->systems.n; s++) {
        for (size_t x = 0; x < grid->n_x; x++) {
            struct canvas_place place = {.system = s, .gpu = gpu, .model = model, .x = x};
            sheet->y[p][s][x] = drawn(grid, results, place);
            sheet->names[x] = grid->values.word[x];
            sheet->x[x] = grid->x[x] / 1024;
        }
        sheet->series[p][s] = (struct plot_series){
            .name = grid->labels.word[s], .x = sheet->x, .y = sheet->y[p][s], .n = grid->n_x};
    }
    sheet->panels[p] = (struct panel){.kind = is_bars ? PANEL_BARS : PANEL_XY,
                                      .x_label = is_bars ? "prompt share" : "canvas (Ki tokens)",
                                      .title = sheet->titles[p],
                                      .y_label = y_labels[grid->kind],
                                      .series = sheet->series[p],
                                      .n_series = grid->systems.n,
                                      .categories = sheet->names,
                                      .n_categories = grid->n_x,
                                      .log_x = !is_bars,
                                      .log_y = is_bars};
}

/* A GPU a panel, a model a group of bars: where the axis has one value. */
static void lay_models(const struct grid *grid, const struct grid_results *results, size_t gpu,
                       struct sheet *sheet) {
    for (size_t s = 0; s < grid->systems.n; s++) {
        for (size_t m = 0; m < grid->models.n; m++) {
            struct canvas_place place = {.system = s, .gpu = gpu, .model = m};
            sheet->y[gpu][s][m] = drawn(grid, results, place);
            sheet->names[m] = grid->models.word[m];
        }
        sheet->series[gpu][s] = (struct plot_series){
            .name = grid->labels.word[s], .y = sheet->y[gpu][s], .n = grid->models.n};
    }
    sheet->panels[gpu] = (struct panel){.kind = PANEL_BARS,
                                        .x_label = "",
                                        .title = sheet->titles[gpu],
                                        .y_label = y_labels[grid->kind],
                                        .series = sheet->series[gpu],
                                        .n_series = grid->systems.n,
                                        .categories = sheet->names,
                                        .n_categories = grid->models.n,
                                        .log_y = grid->kind == GRID_LMAX,
                                        .values = grid->kind != GRID_LMAX};
}

int figure_lay_lmax(const struct grid *grid, const struct grid_results *results,
                    struct sheet *sheet, struct err *err) {
    bool one_value = grid->n_x == 1;
    size_t most = GRID_MOST / (one_value ? 1 : grid->models.n);
    if (grid->gpus.n > most) {
        return err_usage(err, "figure %s: at most %d panels", grid->name, GRID_MOST);
    }
    for (size_t g = 0; g < grid->gpus.n; g++) {
        const struct gpu *gpu = gpu_find(grid->gpus.word[g], err);
        for (size_t m = 0; gpu != NULL && !one_value && m < grid->models.n; m++) {
            char *title = sheet->titles[g * grid->models.n + m];
            snprintf(title, sizeof sheet->titles[0], "%s, %s", grid->models.word[m],
                     grid->gpus.word[g]);
            lay_panel(grid, results, g, m, sheet);
        }
        if (gpu == NULL) {
            return (int)err->kind;
        }
        if (one_value) {
            snprintf(sheet->titles[g], sizeof sheet->titles[g], "%s", gpu->title);
            lay_models(grid, results, g, sheet);
        }
    }
    sheet->n_panels = grid->gpus.n * (one_value ? 1 : grid->models.n);
    sheet->n_columns = one_value ? 0 : grid->models.n;
    share_range(grid, sheet);
    return 0;
}

/* ---- beside the paper ---- */

/* The rows that a paper's row becomes. */
struct rows {
    const struct grid *grid;
    const struct grid_results *results;
    const struct paper_row *row;
    struct paper_result *out;
    size_t n, most;
};

static const char *share_text(const struct grid *grid, size_t share_of) {
    return share_of_index(grid->share_of.word[share_of]) == SHARE_OF_CANVAS ? "r_p prompt/canvas"
                                                                            : "r_p prompt/output";
}

static struct paper_result *add_row(struct rows *rows, double ours) {
    ASSERT(rows->n < rows->most);
    struct paper_result *result = &rows->out[rows->n++];
    *result = (struct paper_result){.row = rows->row, .ours = ours};
    return result;
}

static bool stands_for(const struct grid *grid, size_t system, const char *name) {
    return system < grid->systems.n && strcmp(grid->paper_systems.word[system], name) == 0;
}

/* Numbers over the GPUs, models and values of the axis. */
struct spread {
    double sum, min, max;
    size_t n;
};

static void spread_add(struct spread *spread, double value) {
    if (isfinite(value)) {
        spread->min = spread->n == 0 || value < spread->min ? value : spread->min;
        spread->max = spread->n == 0 || value > spread->max ? value : spread->max;
        spread->sum += value;
        spread->n++;
    }
}

static double mean(const struct spread *spread) {
    return spread->n > 0 ? spread->sum / (double)spread->n : NAN;
}

/* The next place of the same system and reading; false after the last. */
static bool next_place(const struct grid *grid, struct canvas_place *place) {
    if (++place->x < grid->n_x) {
        return true;
    }
    place->x = 0;
    if (++place->model < grid->models.n) {
        return true;
    }
    place->model = 0;
    return ++place->gpu < grid->gpus.n;
}

/* What `over` has at a place for one of what `under` has: longer canvases, or how much higher a
 * peak. Places at which one of them does not fit do not count. */
static void add_ratios(const struct rows *rows, size_t over, size_t under, size_t share_of,
                       struct spread *out) {
    struct canvas_place place = {.share_of = share_of};
    do {
        place.system = over;
        double above = value_of(rows->grid, rows->results, place);
        place.system = under;
        spread_add(out, above / value_of(rows->grid, rows->results, place));
    } while (next_place(rows->grid, &place));
}

/* Mean quotients, for every system that stands for ours and for the other. */
static void compare_canvases(struct rows *rows, const char *other) {
    const struct grid *grid = rows->grid;
    for (size_t r = 0; r < grid->share_of.n; r++) {
        for (size_t ours = 0; ours < grid->systems.n; ours++) {
            for (size_t s = 0; s < grid->systems.n; s++) {
                if (stands_for(grid, ours, rows->row->system) && stands_for(grid, s, other)) {
                    struct spread ratios = {0};
                    add_ratios(rows, ours, s, r, &ratios);
                    struct paper_result *row = add_row(rows, mean(&ratios));
                    snprintf(row->reading, sizeof row->reading, "%s over %s, %s",
                             grid->systems.word[ours], grid->systems.word[s], share_text(grid, r));
                }
            }
        }
    }
}

/* A rung over the last one before it that stands for another in the paper. */
static void compare_rungs(struct rows *rows, bool largest) {
    const struct grid *grid = rows->grid;
    for (size_t r = 0; r < grid->share_of.n; r++) {
        for (size_t rung = 1; rung < grid->systems.n; rung++) {
            if (!stands_for(grid, rung, rows->row->system)) {
                continue;
            }
            size_t before = rung;
            while (before > 0 && stands_for(grid, before, rows->row->system)) {
                before--;
            }
            struct spread ratios = {0};
            add_ratios(rows, rung, before, r, &ratios);
            double ratio = largest ? ratios.max : ratios.min;
            struct paper_result *row = add_row(rows, ratios.n > 0 ? 100 * (ratio - 1) : NAN);
            snprintf(row->reading, sizeof row->reading, "%s over %s, %s", grid->systems.word[rung],
                     grid->systems.word[before], share_text(grid, r));
        }
    }
}

/* How many times lower the ratio of ours is: than each baseline's, and than all of theirs, each of
 * the paper's baselines counted once, by the first that stands for it. */
static void compare_pars(struct rows *rows) {
    const struct grid *grid = rows->grid;
    size_t ours = 0;
    while (ours < grid->systems.n && !stands_for(grid, ours, rows->row->system)) {
        ours++;
    }
    for (size_t r = 0; r < grid->share_of.n && ours < grid->systems.n; r++) {
        struct spread all = {0};
        for (size_t s = 0; s < grid->systems.n; s++) {
            const char *name = grid->paper_systems.word[s];
            if (stands_for(grid, s, rows->row->system)) {
                continue;
            }
            struct spread ratios = {0};
            add_ratios(rows, s, ours, r, &ratios);
            if (s == 0 || !stands_for(grid, s - 1, name)) {
                add_ratios(rows, s, ours, r, &all);
            }
            struct paper_result *row = add_row(rows, mean(&ratios));
            snprintf(row->reading, sizeof row->reading, "%s over %s, %s", grid->systems.word[s],
                     grid->systems.word[ours], share_text(grid, r));
        }
        struct paper_result *row = add_row(rows, mean(&all));
        snprintf(row->reading, sizeof row->reading, "one of each baseline over %s, %s",
                 grid->systems.word[ours], share_text(grid, r));
    }
}

/* The least or the most over everything drawn. */
static void compare_inflation(struct rows *rows, bool largest) {
    const struct grid *grid = rows->grid;
    for (size_t r = 0; r < grid->share_of.n; r++) {
        struct spread shares = {0};
        for (size_t s = 0; s < grid->systems.n; s++) {
            struct canvas_place place = {.system = s, .share_of = r};
            bool asked = stands_for(grid, s, rows->row->system);
            while (asked) {
                spread_add(&shares, value_of(grid, rows->results, place));
                asked = next_place(grid, &place);
            }
        }
        struct paper_result *row = add_row(rows, shares.n == 0 ? NAN
                                                 : largest     ? shares.max
                                                               : shares.min);
        snprintf(row->reading, sizeof row->reading, "all of them, %s", share_text(grid, r));
    }
}

/* For every model: the paper does not name its own. */
static void compare_models(struct rows *rows) {
    const struct grid *grid = rows->grid;
    for (size_t s = 0; s < grid->systems.n; s++) {
        for (size_t m = 0; m < grid->models.n && stands_for(grid, s, rows->row->system); m++) {
            struct canvas_place place = {.system = s, .model = m};
            struct paper_result *row = add_row(rows, value_of(grid, rows->results, place));
            snprintf(row->reading, sizeof row->reading, "%s, %s", grid->systems.word[s],
                     grid->models.word[m]);
        }
    }
}

size_t figure_compare_lmax(const struct grid *grid, const struct grid_results *results,
                           const struct paper_row *row, struct paper_result *out, size_t most) {
    struct rows rows = {.grid = grid, .results = results, .row = row, .out = out, .most = most};
    const char *quantity = row->quantity;
    if (strncmp(quantity, "Lmax_vs_", 8) == 0) {
        compare_canvases(&rows, quantity + 8);
    } else if (strncmp(quantity, "Lmax_gain_", 10) == 0) {
        compare_rungs(&rows, strcmp(quantity + 10, "max") == 0);
    } else if (strcmp(quantity, "peak_to_average_ratio_reduction") == 0) {
        compare_pars(&rows);
    } else if (strncmp(quantity, "inflation_", 10) == 0) {
        compare_inflation(&rows, strcmp(quantity + 10, "max") == 0);
    } else if (strcmp(quantity, "reserved_over_theoretical_peak") == 0) {
        compare_models(&rows);
    }
    if (rows.n == 0) {
        add_row(&rows, NAN); /* a printed row of which nothing here speaks */
    }
    return rows.n;
}
