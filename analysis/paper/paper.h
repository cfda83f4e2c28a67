/* What a paper printed, and how ours compares, row by row.
 *
 * The numbers live in experiments/study/paper/ as CSV, one value a row. A comparison never hides a
 * row: one we have no number for says so. Every row has a role, and only those that nothing was
 * fitted to and that stand for themselves are counted. */
#ifndef UNMASK_ANALYSIS_PAPER_PAPER_H
#define UNMASK_ANALYSIS_PAPER_PAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/input/csv.h"

/* What a row is evidence of. */
enum paper_role {
    PAPER_COUNTED,     /* independent: nothing was fitted to it */
    PAPER_CALIBRATION, /* a constant was fitted to it, or it follows from such a fit */
    PAPER_DERIVED,     /* a quotient or mean of other rows, or one of them printed again */
    PAPER_BOUND,       /* can be missed on one side alone, or not by doing nothing */
    PAPER_APPENDIX,    /* another reading of a printed number than the declared one */
    PAPER_N_ROLES,
};

/* The role that a word names, counted for ""; -1 where it names none. */
int paper_role_of(const char *word);
const char *paper_role_name(enum paper_role role);

/* How ours has to stand to what was printed: a bound is judged as a bound, a share of a whole in
 * points. */
enum paper_compare { PAPER_EQUAL, PAPER_AT_MOST, PAPER_AT_LEAST, PAPER_POINTS, PAPER_N_COMPARES };

struct paper_row {
    const char *source; /* section, table or figure */
    const char *gpu, *model, *dataset, *system;
    const char *setting; /* column rate_req_s or setting, as printed; "" where there is none */
    const char *quantity, *unit;
    double value;
    int line; /* in the file, from 1 */
    enum paper_role role;
    enum paper_compare compare;
    const char *cause; /* of causes.ini, "" where there is none; or NULL */
};

struct paper {
    char *path;     /* owned */
    struct csv csv; /* rows point into its bytes */
    struct paper_row *rows;
    size_t n_rows;
};

/* Columns are known by their header: source, system, quantity, value and unit must be there; gpu,
 * model, dataset, rate_req_s, setting, cause, compare (default: equal) and role (default: counted)
 * may be. A bad row is an error with file and line. */
int paper_load(const char *path, struct paper *out, struct err *err);
void paper_fini(struct paper *paper);

/* Our number for a paper's row. */
struct paper_result {
    const struct paper_row *row;
    double ours;          /* NaN: we have none */
    enum paper_role role; /* of this reading; the row's unless the figure knows better */
    /* Where the paper leaves open what it measured: which of the readings this is; else "". */
    char reading[96];
};

enum paper_verdict { PAPER_MISSING, PAPER_WITHIN, PAPER_BEYOND };

/* The share by which ours may differ and still count as reproduced. */
#define PAPER_TOLERANCE 0.15

#define PAPER_POINTS_TOLERANCE 15.0 /* of a share of a whole, in points of % */

/* Within when |ours / paper - 1| <= PAPER_TOLERANCE, whatever the unit; of a bound, when ours lies
 * on its side of it; of points, when ours is within PAPER_POINTS_TOLERANCE. */
enum paper_verdict paper_judge(const struct paper_result *result);

/* How far off ours is, as a share of what may be: 1 is the edge. Of a bound and where the paper's
 * number is 0, of PAPER_TOLERANCE of it. */
double paper_distance(const struct paper_result *result);

/* Whether a row can be missed on both sides: not a bound, and not a number, in points or `x`, so
 * near to no effect (0 points, 1 x) that no effect at all would be within. */
bool paper_is_two_sided(const struct paper_row *row);

/* Settles the roles of a figure's results: of the readings of one row the one that contains
 * `declared` stands for it, or the first where `declared` is "" or in none of them; the others are
 * appendix unless they are calibration points. Rows whose own role is not counted keep it; a
 * counted one that is not two-sided is a bound.
 * With `all` as PAPER_APPENDIX the whole figure is one. */
void paper_settle(struct paper_result *results, size_t n, const char *declared,
                  enum paper_role all);

/* Of each row is in one of them; `within` are among `counted`. */
struct paper_tally {
    size_t counted, within, missing, calibration, derived, bound, appendix;
};
struct paper_tally paper_tally(const struct paper_result *results, size_t n);

/* "L40S, OSC, dLLM-Serve, 1.0, throughput", with the reading. Returns `text`. */
const char *paper_label(const struct paper_result *result, char *text, size_t size);

/* ours / paper; where the unit is % the difference in points ("+3.1 points"); "-" when ours is
 * missing or the paper's number is 0. Returns `text`. */
const char *paper_ratio_text(const struct paper_result *result, char *text, size_t size);

enum paper_format { PAPER_TEXT, PAPER_MARKDOWN, PAPER_CSV };

/* The table; text and Markdown end with "N of M rows within 15 %" and the rows by role, whatever
 * their cause (experiments/study/score.h), which is named after the role. */
void paper_print(const struct paper_result *results, size_t n, enum paper_format format, FILE *out);

/* The same into a file. */
int paper_write(const struct paper_result *results, size_t n, enum paper_format format,
                const char *path, struct err *err);

#endif
