/* A sheet: what a figure's plain data points into, while it is laid out and drawn. */
#ifndef UNMASK_EXPERIMENTS_STUDY_FIGURE_SHEET_H
#define UNMASK_EXPERIMENTS_STUDY_FIGURE_SHEET_H

#include "analysis/paper.h"
#include "analysis/plot.h"
#include "experiments/study/grid.h"

struct sheet {
    struct panel panels[GRID_MOST];
    size_t n_panels, n_columns; /* 0 columns: all panels side by side */
    struct plot_series series[GRID_MOST][GRID_MOST];
    double y[GRID_MOST][GRID_MOST][GRID_MOST], paper[GRID_MOST][GRID_MOST][GRID_MOST];
    double low[GRID_MOST][GRID_MOST][GRID_MOST], high[GRID_MOST][GRID_MOST][GRID_MOST];
    const char *names[GRID_MOST];
    double x[GRID_MOST]; /* where the axis is not drawn in the grid's unit */
    char titles[GRID_MOST][256], y_labels[GRID_MOST][128];
    char provenance[1024];
};

/* The figures of memory: nothing is run, step graphs are measured. */
int figure_lay_memory(const struct grid *grid, struct sheet *sheet, struct err *err);
int figure_lay_context(const struct grid *grid, struct sheet *sheet, struct err *err);
int figure_lay_masks(const struct grid *grid, struct sheet *sheet, struct err *err);

/* What a layer computes. */
int figure_lay_work(const struct grid *grid, struct sheet *sheet, struct err *err);
bool figure_describe_work(const struct grid *grid, struct sheet *sheet);

/* Their provenance; false for the other kinds. */
bool figure_describe_memory(const struct grid *grid, struct sheet *sheet);

/* The figures of what `unmask plan lmax` finds: the same two, and ours beside a row of the paper,
 * once for each reading of what it measured; returns how many were written to `out`, which holds
 * `most`. */
int figure_lay_lmax(const struct grid *grid, const struct grid_results *results,
                    struct sheet *sheet, struct err *err);
bool figure_describe_lmax(const struct grid *grid, struct sheet *sheet);
size_t figure_compare_lmax(const struct grid *grid, const struct grid_results *results,
                           const struct paper_row *row, struct paper_result *out, size_t most);

/* The figures of decode processes and of eviction, the same three. */
int figure_lay_decode(const struct grid *grid, const struct grid_results *results,
                      const struct paper *paper, struct sheet *sheet);
int figure_lay_steps(const struct grid *grid, const struct grid_results *results,
                     struct sheet *sheet);
int figure_lay_decoders(const struct grid *grid, const struct grid_results *results,
                        const struct paper *paper, struct sheet *sheet);
size_t figure_compare_decoders(const struct grid *grid, const struct grid_results *results,
                               const struct paper_row *row, struct paper_result *out, size_t most);
int figure_lay_eviction(const struct grid *grid, struct sheet *sheet);
bool figure_describe_decode(const struct grid *grid, struct sheet *sheet);
size_t figure_compare_decode(const struct grid *grid, const struct grid_results *results,
                             const struct paper_row *row, struct paper_result *out, size_t most);

/* The figures of raw measurements; the sheet's provenance too. */
void figure_lay_measured(const struct grid *grid, const struct grid_results *results,
                         struct sheet *sheet);
size_t figure_compare_measured(const struct grid *grid, const struct grid_results *results,
                               const struct paper_row *row, struct paper_result *out, size_t most);

#endif
