/* Cells of tables that show samples. */
#ifndef UNMASK_EXPERIMENTS_CLI_SAMPLE_TABLE_H
#define UNMASK_EXPERIMENTS_CLI_SAMPLE_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "experiments/cli/table.h"
#include "experiments/sweep/sample.h"

/* "13.2", "13.2 ±0.4", with a star where it is of the requests that were not rejected. An
 * attainment is shown in per cent. */
void sample_cell(struct table *table, const struct sample *sample, enum quantity quantity,
                 int digits);

/* "1.31x", "~1.02x" where the seeds do not tell the two apart, "1.31x*" where they served different
 * requests; "-" where the ratio would mislead (sample_shows_...). Throughputs are ours over the
 * base's, times the base's over ours: higher is better. */
void sample_ratio_cell(struct table *table, const struct sample *ours, const struct sample *base,
                       enum quantity quantity);

/* What no scheduler can beat: headings, and the cells of a point. `has_slo`: the share of requests
 * on time as well. The line below says what they are. */
void sample_bound_columns(struct table *table, bool has_slo);
void sample_bound_cells(struct table *table, const struct sample *sample, bool has_slo);
void sample_bound_explain(size_t n_seeds, FILE *out);

#endif
