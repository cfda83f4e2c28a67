/* A figure of which something was changed, next to the figure as it is. */
#ifndef UNMASK_EXPERIMENTS_STUDY_CHANGED_H
#define UNMASK_EXPERIMENTS_STUDY_CHANGED_H

#include "experiments/study/figure.h"

/* What a study found, with its tables filled and asked. */
struct finding_of_study {
    struct tables *tables;
    struct paper_result *rows; /* ours for every printed row, [n] */
    size_t n;
};

/* A line for every printed row: ours unchanged, ours changed, printed; without a printed row one
 * for every point that is drawn. `out` is the caller's to close. ERR_USAGE as tables_select. */
int changed_table(const struct finding_of_study *before, const struct finding_of_study *now,
                  struct table **out, struct err *err);

#endif
