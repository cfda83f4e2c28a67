/* Cells of tables that show samples. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_SAMPLE_CELLS_H
#define UNMASK_EXPERIMENTS_COMMAND_SAMPLE_CELLS_H

#include <stdbool.h>
#include <stdio.h>

#include "experiments/run/cli/table.h"
#include "experiments/run/sweep/sample.h"

/* The units of a table's times, by the largest of each column. */
struct sample_units {
    double per_s[N_QUANTITIES]; /* how many of the unit a second has */
    const char *names[N_QUANTITIES];
};
struct sample_units sample_units_of(const struct sample *samples, size_t n);

/* "mean_s"; of others the quantity's own heading. */
void sample_heading(struct table *table, const struct sample_units *units, enum quantity quantity);

/* Three significant digits: "13.2", "13.2 ±0.4", "98.0 (92.1 to 99.5)" of a share, which is in per
 * cent; with a star where it is of the requests that were not rejected. */
void sample_cell(struct table *table, const struct sample_units *units, const struct sample *sample,
                 enum quantity quantity);

/* Whether some sample is of several runs, so that its means have intervals. */
bool samples_have_intervals(const struct sample *samples, size_t n);

/* What the columns of ratios are, over `base`. */
void sample_explain_ratios(const char *base, FILE *out);

/* What ± and the like mean below a table of samples; nothing where no mean has an interval. */
void sample_explain(const struct sample *samples, size_t n, size_t n_seeds, FILE *out);

/* Whether a column has to say at which rate requests came: some sample was not offered the rate
 * that was asked for. */
bool samples_miss_rates(const struct sample *samples, size_t n);
/* The mean rate that the runs were offered, and that was asked for; NaN: not known. */
double sample_offered(const struct sample *sample);
double sample_asked(const struct sample *sample);

/* "1.31x", "~1.02x" where the seeds do not tell the two apart, "1.31x*" where they served different
 * requests; "-" where the ratio would mislead (sample_shows_...). Throughputs are ours over the
 * base's, times the base's over ours: higher is better. */
void sample_ratio_cell(struct table *table, const struct sample *ours, const struct sample *base,
                       enum quantity quantity);

/* "-0.75 (-1.99 to +0.49) ~": ours less the base's, seed by seed, with its interval; ~ where that
 * has 0 in it. */
void sample_difference_cell(struct table *table, const struct sample_units *units,
                            const struct sample *ours, const struct sample *base,
                            enum quantity quantity);

/* What no scheduler can beat: headings, and the cells of a point. `has_slo`: the share of requests
 * on time as well. The line below says what they are. */
void sample_bound_columns(struct table *table, bool has_slo);
void sample_bound_cells(struct table *table, const struct sample *sample, bool has_slo);
void sample_bound_explain(size_t n_seeds, FILE *out);

/* Which of the samples' systems are designs, and which were published (experiments/study). */
void sample_print_released(const struct sample *samples, size_t n, FILE *out);

#endif
