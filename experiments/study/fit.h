/* Fitting the calibrated constants, each to its one paper number. */
#ifndef UNMASK_EXPERIMENTS_STUDY_FIT_H
#define UNMASK_EXPERIMENTS_STUDY_FIT_H

#include <stdio.h>

#include "experiments/run/cli/table.h"
#include "sim/base/input/config.h"

struct fit {
    const char *name, *fitted_to; /* borrowed from the config */
    double target;
    double stored, stored_result; /* the file's value, and the throughput it gives */
    double fitted, fitted_result; /* the value found, and its throughput */
    const char *measured; /* the measurement it was read off, where nothing is fitted; NULL */
};

/* Fit every constant of `calibrated` (experiments/study/calibrated.ini). The throughput falls as
 * the constant grows; bisection between 0 and the section's `most`. ERR_WORLD when the target lies
 * outside what that reaches. Returns the number of fits in `out`, which holds `most`. */
int fit_all(const struct config *calibrated, struct fit *out, size_t most, size_t *n,
            struct err *err);

/* A number of an INI file that was fitted again: the last word of [section] KEY. */
struct fitted_number {
    char section[64];
    const char *key;
    double value;
};

/* Copy the file `shipped` to `out`, the numbers in place of its own. ERR_WORLD where it has no such
 * line for one of them. */
int fit_rewrite(const char *shipped, const struct fitted_number *numbers, size_t n, FILE *out,
                struct err *err);

struct table *fit_table(const struct fit *fits, size_t n); /* to be closed */

#endif
