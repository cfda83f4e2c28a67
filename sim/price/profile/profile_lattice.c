#include "sim/price/profile/profile_lattice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

/* Where `value` is or belongs among `n` rising ones. */
static size_t place_of(const int64_t *values, size_t n, int64_t value) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        lo = values[mid] < value ? mid + 1 : lo;
        hi = values[mid] < value ? hi : mid;
    }
    return lo;
}

/* The same on an axis: mostly where the row before was, or the place after it. */
static size_t place_near(const struct lattice_axis *axis, size_t before, int64_t value) {
    for (size_t at = before; at < axis->n && at < before + 2; at++) {
        if (axis->values[at] == value) {
            return at;
        }
    }
    return place_of(axis->values, axis->n, value);
}

/* Axes have few values against rows, and rows next to each other mostly the same. */
static void build_axis(struct lattice_axis *axis, size_t i_axis, const struct lattice_row *rows,
                       size_t n_rows) {
    size_t room = 0, at = 0;
    axis->values = NULL;
    axis->n = 0;
    for (size_t i = 0; i < n_rows; i++) {
        const int64_t value = rows[i].at[i_axis];
        if (i > 0 && value == rows[i - 1].at[i_axis]) {
            continue;
        }
        at = place_near(axis, at, value);
        if (at == axis->n || axis->values[at] != value) {
            axis->values = mem_grown(axis->values, axis->n, &room, sizeof *axis->values);
            memmove(axis->values + at + 1, axis->values + at, (axis->n - at) * sizeof value);
            axis->values[at] = value;
            axis->n++;
        }
    }
}

static double *cells(size_t n) {
    double *values = mem_unwritten(n, sizeof *values);
    for (size_t i = 0; i < n; i++) {
        values[i] = NAN;
    }
    return values;
}

/* Columns that few rows have. */
static void make_rare(struct lattice *lattice, const struct lattice_row *rows, size_t n_rows) {
    bool says_hits = false, is_raised = false;
    for (size_t i = 0; i < n_rows; i++) {
        says_hits = says_hits || rows[i].hits > 0;
        is_raised = is_raised || rows[i].warm_us > 0;
    }
    lattice->hits = says_hits ? cells(lattice->n_cells) : NULL;
    lattice->warm_us = is_raised ? cells(lattice->n_cells) : NULL;
}

/* Row `i`, whose cell is taken, and the one before it that took it. */
static enum lattice_trouble find_equals(struct lattice *lattice, const struct lattice_row *rows,
                                        size_t i, struct lattice_row equals[2]) {
    size_t first = 0;
    while (memcmp(rows[first].at, rows[i].at, sizeof rows[i].at) != 0) {
        first++;
    }
    equals[0] = rows[first];
    equals[1] = rows[i];
    lattice_fini(lattice);
    return LATTICE_DUPLICATE;
}

enum lattice_trouble lattice_init(struct lattice *lattice, size_t n_axes,
                                  const struct lattice_row *rows, size_t n_rows,
                                  struct lattice_row equals[2]) {
    *lattice = (struct lattice){.n_axes = n_axes, .n_cells = 1};
    for (size_t a = 0; a < n_axes; a++) {
        ASSERT(lattice->n_cells > 0); /* of a row at least */
        build_axis(&lattice->axes[a], a, rows, n_rows);
        if (lattice->axes[a].n > LATTICE_MAX_CELLS / lattice->n_cells) {
            lattice_fini(lattice);
            return LATTICE_TOO_LARGE;
        }
        lattice->n_cells *= lattice->axes[a].n;
    }
    size_t stride = 1;
    for (size_t a = n_axes; a-- > 0;) {
        lattice->axes[a].stride = stride;
        stride *= lattice->axes[a].n;
    }
    lattice->time_us = cells(lattice->n_cells);
    make_rare(lattice, rows, n_rows);
    size_t indexes[LATTICE_MAX_AXES] = {0};
    for (size_t i = 0; i < n_rows; i++) {
        size_t cell = 0;
        for (size_t a = 0; a < n_axes; a++) {
            indexes[a] = place_near(&lattice->axes[a], indexes[a], rows[i].at[a]);
            cell += indexes[a] * lattice->axes[a].stride;
        }
        if (!isnan(lattice->time_us[cell])) {
            return find_equals(lattice, rows, i, equals);
        }
        lattice->time_us[cell] = rows[i].time_us;
        if (lattice->hits != NULL && rows[i].hits > 0) {
            lattice->hits[cell] = rows[i].hits;
        }
        if (lattice->warm_us != NULL && rows[i].warm_us > 0) {
            lattice->warm_us[cell] = rows[i].warm_us;
        }
    }
    return LATTICE_FINE;
}

void lattice_copy(struct lattice *out, const struct lattice *from) {
    *out = *from;
    for (size_t a = 0; a < from->n_axes; a++) {
        size_t n = from->axes[a].n, size = sizeof *from->axes[a].values;
        out->axes[a].values = memcpy(mem_unwritten(n, size), from->axes[a].values, n * size);
    }
    size_t size = sizeof *from->time_us;
    out->time_us = memcpy(mem_unwritten(from->n_cells, size), from->time_us, from->n_cells * size);
    if (from->hits != NULL) {
        out->hits = memcpy(mem_unwritten(from->n_cells, size), from->hits, from->n_cells * size);
    }
    if (from->warm_us != NULL) {
        out->warm_us =
            memcpy(mem_unwritten(from->n_cells, size), from->warm_us, from->n_cells * size);
    }
}

void lattice_fini(struct lattice *lattice) {
    for (size_t a = 0; a < lattice->n_axes; a++) {
        free(lattice->axes[a].values);
    }
    free(lattice->time_us);
    free(lattice->hits);
    free(lattice->warm_us);
    *lattice = (struct lattice){0};
}
