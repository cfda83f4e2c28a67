/* From a study's tables to a figure, and to a comparison with what a paper printed.
 *
 * `query` of [figure] answers rows with the columns panel, series, x and y, and, where there is
 * something to say, low, high (ends of an error bar), paper (a printed value) and style (line,
 * points, dashed or steps). Panels, series and categories stand in the order in which they first
 * appear. The answer is the table `drawn`.
 *
 * `compare` answers rows with the columns id, of a row of the table `printed`, and ours, and, where
 * the paper leaves open what it measured, reading and role. `printed` has the rows of `paper` for
 * which the condition `rows` holds; every one of them is in the comparison. */
#ifndef UNMASK_EXPERIMENTS_STUDY_FIGURE_H
#define UNMASK_EXPERIMENTS_STUDY_FIGURE_H

#include <stdio.h>

#include "analysis/paper/paper.h"
#include "experiments/study/study.h"

/* The tables `paper` and, of the rows that the study compares with, `printed`. */
int study_print(const struct study *study, const struct paper *paper, struct tables *tables,
                struct err *err);

/* Ask the study's query: the table `drawn`. */
int study_ask(const struct study *study, struct tables *tables, struct err *err);

/* Draw it as STEM.svg, .png, .pdf and .csv, those of the `formats` (analysis/plot/plot.h); of the
 * kind `table` STEM.csv alone. */
int study_draw(const struct study *study, struct tables *tables, const char *stem, unsigned formats,
               struct err *err);

/* What would stand below the figure, where the study has another note: for its caption. */
void study_print_note(const struct study *study, struct tables *tables, FILE *out);

/* Whether a width in inches ("": none is given) and a font ("") can be a figure's; ERR_USAGE. */
int study_check_looks(const char *inches, const char *font, struct err *err);
bool study_is_table(const struct study *study);

/* Ours for every row of `printed`. Rows to which a constant of experiments/study/calibrated.ini was
 * fitted are marked. The results are the caller's to free. */
int study_compare(const struct study *study, struct tables *tables, const struct paper *paper,
                  const struct config *calibrated, struct paper_result **out, size_t *n,
                  struct err *err);

/* The note on the printed values of a changed figure. */
extern const char *const study_printed_note;

/* What the error bars of `drawn` are, where they are of several seeds; a line. */
void study_print_spread(const struct study *study, struct tables *tables, FILE *out);

/* How many of the runs in the table warn of what, and how many have no result
 * (experiments/run/cli/cautions.h). Nothing where `runs` is NULL. */
void study_print_warnings(struct tables *tables, const char *runs, FILE *out);

#endif
