/* A sheet: what a figure's plain data points into, while it is laid out and drawn. */
#ifndef UNMASK_EXPERIMENTS_FIGURE_SHEET_H
#define UNMASK_EXPERIMENTS_FIGURE_SHEET_H

#include "analysis/plot.h"
#include "experiments/grid.h"

struct sheet {
    struct panel panels[GRID_MOST];
    size_t n_panels;
    struct plot_series series[GRID_MOST][GRID_MOST];
    double y[GRID_MOST][GRID_MOST][GRID_MOST], paper[GRID_MOST][GRID_MOST][GRID_MOST];
    const char *names[GRID_MOST];
    char titles[GRID_MOST][256], y_labels[GRID_MOST][128];
    char provenance[1024];
};

/* The figures of memory: nothing is run, step graphs are measured. */
int figure_lay_memory(const struct grid *grid, struct sheet *sheet, struct err *err);
int figure_lay_context(const struct grid *grid, struct sheet *sheet, struct err *err);
int figure_lay_masks(const struct grid *grid, struct sheet *sheet, struct err *err);

/* Their provenance; false for the other kinds. */
bool figure_describe_memory(const struct grid *grid, struct sheet *sheet);

#endif
