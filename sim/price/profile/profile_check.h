/* Leave-one-out errors of a profile's lookups: each measured row is removed, predicted from the
 * rest, and compared. The honest answer to "how good are the times between the rows?". For what is
 * priced by another shape's rows, whole shapes are removed: products of one (n, k), experts of one
 * shape and of one mixture in all its widths, attention of one head layout. */
#ifndef UNMASK_SIM_PRICE_PROFILE_PROFILE_CHECK_H
#define UNMASK_SIM_PRICE_PROFILE_PROFILE_CHECK_H

#include <stddef.h>
#include <stdio.h>

#include "sim/base/err.h"
#include "sim/price/profile/profile.h"

/* Relative errors, predicted / measured - 1. */
struct profile_errors {
    size_t n;
    double median_abs, p90_abs;
    double median; /* signed: the bias */
};

/* Of `n` signed errors, which are sorted in place and lose their signs. */
struct profile_errors profile_errors_of(double *errors, size_t n);

enum profile_check_row {
    CHECK_GEMM,       /* m >= 16 */
    CHECK_GEMM_SMALL, /* m < 16 */
    CHECK_GEMM_NEW_M, /* as if no row had this m; m >= 16 in these three */
    CHECK_GEMM_NEW_N,
    CHECK_GEMM_NEW_K,
    CHECK_CAUSAL,
    CHECK_CAUSAL_LONG, /* kv >= 512 */
    CHECK_DECODE,
    CHECK_MOE,
    CHECK_ELEMENTWISE,
    CHECK_ALL_REDUCE,
    CHECK_ALL_GATHER,
    CHECK_FULL,
    CHECK_BLOCK,
    CHECK_PASS,
    CHECK_HEAD,
    CHECK_GATE_UP,
    CHECK_MIXED,
    CHECK_ATTENTION_PATTERN,
    CHECK_PATTERN,
    CHECK_GEMM_SHAPE, /* as if nothing had this n and k; m >= 16 */
    CHECK_MOE_SHAPE,
    CHECK_MOE_MIXTURE, /* nor any width of the same mixture */
    CHECK_CAUSAL_HEADS,
    CHECK_DECODE_HEADS,
    CHECK_FULL_HEADS,
    CHECK_BLOCK_HEADS,
    CHECK_ROWS,
};

struct profile_check {
    struct {
        const char *name;
        struct profile_errors interior; /* the rest encloses the row */
        struct profile_errors frontier; /* it does not: utilisation was held */
    } rows[CHECK_ROWS];
    /* The table's own scatter, no lookup involved: products of at least 4096 rows take twice the
     * time for twice the rows, so a row is compared with the geometric mean of its half and its
     * double. Empty where the table ends before. */
    struct profile_errors noise;
};

/* Removes and restores rows, one or a shape at a time: `profile` is as before on return. */
void profile_check(struct profile *profile, struct profile_check *out);

#endif
