/* A lattice: the measured times of one operator on the grid of its sizes.
 *
 * Up to four axes of rising values and one time per cell, in microseconds; NAN where nothing was
 * measured. Dense storage makes "remove this row" one assignment and a lookup a few binary
 * searches. */
#ifndef UNMASK_SIM_PRICE_PROFILE_PROFILE_LATTICE_H
#define UNMASK_SIM_PRICE_PROFILE_PROFILE_LATTICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LATTICE_MAX_AXES = 4 };

/* Bounds memory against a malicious file: 2^22 cells are 32 MiB. */
enum { LATTICE_MAX_CELLS = 1 << 22 };

struct lattice_axis {
    int64_t *values; /* rising, distinct */
    size_t n;
    size_t stride; /* cells between neighbours on this axis */
};

struct lattice {
    struct lattice_axis axes[LATTICE_MAX_AXES]; /* the last one is contiguous */
    size_t n_axes;
    double *time_us; /* n_cells */
    double *hits;    /* n_cells: experts that a row of a mixture hits, NAN: it does not say; NULL:
                        none does */
    double *warm_us; /* n_cells: what was timed on a warm cache of a row that is raised, NAN: it is
                        not; NULL: none is */
    size_t n_cells;
};

/* One measured row: coordinates in axis order and its time. */
struct lattice_row {
    int64_t at[LATTICE_MAX_AXES];
    double time_us;
    double hits;    /* 0: the row does not say */
    double warm_us; /* 0: the row is not raised */
    int line;       /* in the file */
};

/* The measured neighbours of a value on one line of the lattice; `exact` when cell `lo` is at the
 * value. -1 where there is no neighbour. Indexes are along the axis. */
struct lattice_bracket {
    ptrdiff_t lo, hi;
    bool exact;
};

enum lattice_trouble { LATTICE_FINE, LATTICE_TOO_LARGE, LATTICE_DUPLICATE };

/* Build from `rows`, whose times are numbers. LATTICE_DUPLICATE leaves the two equal rows in
 * `equals`. Unless LATTICE_FINE, nothing needs releasing. */
enum lattice_trouble lattice_init(struct lattice *lattice, size_t n_axes,
                                  const struct lattice_row *rows, size_t n_rows,
                                  struct lattice_row equals[2]);
void lattice_copy(struct lattice *out, const struct lattice *from);
void lattice_fini(struct lattice *lattice);

/* The index of `value` on an axis, or -1; and of the last value that is not above `x`, or -1. */
ptrdiff_t lattice_index(const struct lattice *lattice, size_t axis, int64_t value);
ptrdiff_t lattice_floor(const struct lattice *lattice, size_t axis, double x);

/* Neighbours of `x` on the line through cell `base` (whose index on `axis` is 0). */
struct lattice_bracket lattice_around(const struct lattice *lattice, size_t base, size_t axis,
                                      double x);

/* The value of an axis at a cell. */
static inline int64_t lattice_value(const struct lattice *lattice, size_t cell, size_t axis) {
    const struct lattice_axis *line = &lattice->axes[axis];
    return line->values[cell / line->stride % line->n];
}

#endif
