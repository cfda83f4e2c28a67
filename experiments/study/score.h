/* The score of each paper: how many of its printed facts ours are within 15 % of.
 *
 * Counted is a fact that can be missed on both sides, that nothing was fitted to and that follows
 * from no other counted row, once, however many figures show it. The column `cause` of a row
 * of experiments/study/paper names a section of causes.ini, which has `class`, `says` and, but for
 * the class ours, `shown`: a query that answers for each of its rows `id` and two values, `one` and
 * `other`, of the same quantity. The class of a row holds only where these values show it:
 *
 *   contradicts  two printed values no number can be within 15 % of at once
 *   unknown      ours at two values of what was not printed, as far apart, and the printed
 *                value is within 15 % (15 points) of one between them: some value explains it
 *   derived      the row itself, and the same from other printed rows, within 15 %
 *   instead      (no values) the row counts in the place of rows that have left
 *
 * As far apart is a factor of 1.15 / 0.85, or 30 points; where a constant was fitted to
 * what `other` comes from (`fitted`), 15 % of `one`. The printed value is the row's, or `printed`
 * where the two are of another quantity. Whether ours hits the row has no part in it.
 *
 * The queries read the tables `printed` (every row of every paper: id, paper, cause and the columns
 * of its file), `found` (every number of ours: id, ours, reading, role) and, of the class instead,
 * `gone` (id, class). */
#ifndef UNMASK_EXPERIMENTS_STUDY_SCORE_H
#define UNMASK_EXPERIMENTS_STUDY_SCORE_H

#include "analysis/paper/paper.h"
#include "experiments/run/cli/table.h"
#include "sim/base/input/config.h"

enum score_class {
    SCORE_OURS,
    SCORE_CONTRADICTS,
    SCORE_UNKNOWN,
    SCORE_DERIVED,
    SCORE_INSTEAD,
    SCORE_N_CLASSES
};

struct score; /* opaque */

/* `papers` (papers.ini) says which files of `folder` (experiments/study/paper) are of which paper;
 * both configs are borrowed. NULL, and the reason in `err`, where a file or a cause cannot be read.
 */
struct score *score_open(const struct config *papers, const struct config *causes,
                         const char *folder, struct err *err);
void score_close(struct score *score); /* NULL is fine */

/* Adds the results of one figure, whose rows are of `file`: one that papers.ini does not
 * list is a paper of its own. */
int score_add(struct score *score, const char *file, const struct paper_result *results, size_t n,
              struct err *err);

/* Runs every cause's query; once, after the last figure. */
int score_judge(struct score *score, struct err *err);

/* What a printed row is by its cause's calculation: ours where it stays. `id` is "FILE:LINE". */
enum score_class score_class_of(const struct score *score, const char *id);

/* Of a paper, or of all where `paper` is NULL. */
struct score_line {
    size_t counted, within;        /* what remains */
    size_t with_left, within_left; /* with the rows that left, and without those in their place */
    size_t contradicts, unknown;   /* rows that left */
    size_t bound, derived, calibration, appendix, missing;
};
struct score_line score_line(const struct score *score, const char *paper);

/* Whether there is a row of any paper. */
bool score_has_rows(const struct score *score);

/* A line for each paper and one for all; as a table with the same columns. */
void score_print(const struct score *score, enum paper_format format, FILE *out);
struct table *score_table(const struct score *score);

/* A line for each cause with rows that left, stand in for others or are missed, and how far the
 * farthest of the missed is off. */
void score_print_causes(const struct score *score, enum paper_format format, FILE *out);
struct table *score_causes_table(const struct score *score);

#endif
