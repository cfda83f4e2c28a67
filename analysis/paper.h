/* What a paper printed, and how ours compares, row by row.
 *
 * The numbers live in experiments/paper/ as CSV, one value a row. A comparison never hides a row:
 * one we have no number for says so, and a row that a constant was fitted to is marked as a
 * calibration point and left out of the count. */
#ifndef UNMASK_ANALYSIS_PAPER_H
#define UNMASK_ANALYSIS_PAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/err.h"

struct paper_row {
    const char *source; /* section, table or figure */
    const char *gpu, *model, *dataset, *system;
    const char *setting; /* column rate_req_s or setting, as printed; "" where there is none */
    const char *quantity, *unit;
    double value;
    int line; /* in the file, from 1 */
};

struct paper {
    char *path, *text; /* owned; rows point into `text` */
    struct paper_row *rows;
    size_t n_rows;
};

/* Columns are known by their header: source, system, quantity, value and unit must be there; gpu,
 * model, dataset, rate_req_s and setting may be. A bad row is an error with file and line. */
int paper_load(const char *path, struct paper *out, struct err *err);
void paper_fini(struct paper *paper);

/* The only row that matches every text given; NULL matches anything. NULL when there is none or
 * more than one. */
const struct paper_row *paper_find(const struct paper *paper, const char *gpu, const char *dataset,
                                   const char *system, const char *setting, const char *quantity);

/* Our number beside a paper's row. */
struct paper_result {
    const struct paper_row *row;
    double ours;      /* NaN: we have none */
    bool calibration; /* a constant was fitted to this row */
    /* Where the paper leaves open what it measured: which of the readings this is; else "". */
    char reading[96];
};

enum paper_verdict { PAPER_MISSING, PAPER_WITHIN, PAPER_BEYOND };

/* The share by which ours may differ and still count as reproduced. */
#define PAPER_TOLERANCE 0.15

/* Within when |ours / paper - 1| <= PAPER_TOLERANCE, whatever the unit. A quantity that ends in
 * "_over" or "_under" is a bound: within when ours lies on its side of it. */
enum paper_verdict paper_judge(const struct paper_result *result);

/* Calibration points are in none but the last. */
struct paper_tally {
    size_t counted, within, missing, calibration;
};
struct paper_tally paper_tally(const struct paper_result *results, size_t n);

/* ours / paper; where the unit is % the difference in points ("+3.1 points"); "-" when ours is
 * missing or the paper's number is 0. Returns `text`. */
const char *paper_ratio_text(const struct paper_result *result, char *text, size_t size);

enum paper_format { PAPER_TEXT, PAPER_MARKDOWN, PAPER_CSV };

/* The table; text and Markdown end with "N of M rows within 15 % (...)". */
void paper_print(const struct paper_result *results, size_t n, enum paper_format format, FILE *out);

/* The same into a file. */
int paper_write(const struct paper_result *results, size_t n, enum paper_format format,
                const char *path, struct err *err);

#endif
