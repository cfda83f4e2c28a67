/* From a grid's results to a figure and a paper-versus-ours table. */
#ifndef UNMASK_EXPERIMENTS_STUDY_FIGURE_H
#define UNMASK_EXPERIMENTS_STUDY_FIGURE_H

#include <stdio.h>

#include "analysis/paper.h"
#include "analysis/spread.h"
#include "experiments/study/grid.h"

/* Draw STEM.svg, STEM.png and STEM.csv. `paper` marks the printed values where they belong to a
 * drawn series. */
int figure_draw(const struct grid *grid, const struct grid_results *results,
                const struct paper *paper, const char *stem, struct err *err);

/* Ours beside every row of `paper` whose source is among the grid's. Returns how many were written
 * to `out`, which holds `most`. Rows to which a constant of experiments/calibrated.ini was fitted
 * are marked. */
size_t figure_compare(const struct grid *grid, const struct grid_results *results,
                      const struct paper *paper, const struct config *calibrated,
                      struct paper_result *out, size_t most);

enum metric {
    METRIC_THROUGHPUT,
    METRIC_LATENCY,
    METRIC_STD,
    METRIC_SPAN,
    METRIC_SPEEDUP,
    METRIC_FORWARD,
    METRIC_TPF
};

/* One number of one point; speed-up is throughput over the baseline's at the same place. */
double figure_value(const struct grid *grid, const struct grid_results *results, enum metric metric,
                    size_t system, size_t workload, size_t x);

/* How far it moves from seed to seed: its mean, and half of the 95 % interval on either side (NaN
 * for one seed). Of speed-ups, both systems met the same seeds. */
struct spread figure_spread(const struct grid *grid, const struct grid_results *results,
                            enum metric metric, size_t system, size_t workload, size_t x);

/* A line for each code of warnings: how many of the figure's runs carry it. */
void figure_print_warnings(const struct grid *grid, const struct grid_results *results, FILE *out);

/* Index of the best baseline (largest throughput) at a place; the last system is not one, nor,
 * unless all did, a system that rejected requests. */
size_t figure_best_baseline(const struct grid *grid, const struct grid_results *results,
                            size_t workload, size_t x);

#endif
