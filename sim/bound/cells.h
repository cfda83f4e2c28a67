/* The cells of batches, and the LP that they are rows and columns of (prices.h says what it is).
 *
 * A column of the LP is a share of all passes' number; a row says that a sum of columns is no less
 * than something, so that all dual values are >= 0. */
#ifndef UNMASK_SIM_BOUND_CELLS_H
#define UNMASK_SIM_BOUND_CELLS_H

#include <glpk.h>

#include "sim/bound/parts.h"

#define CELL_NS 1e6 /* the LP counts in ms */

/* A line below a part: at u it takes level + slope u or more. */
struct line {
    double level, slope;
    int row;
};

struct vertex {
    double at, ns;
};

struct hull {
    struct line *lines; /* those that are rows of the LP */
    size_t n_lines, lines_room;
    struct vertex *points;
    size_t n;
    int column; /* 0: the part is none of this cell's */
};

/* Batches that hold exactly these types of passes and a number of query tokens in this range. */
struct cell {
    unsigned types;
    double tokens[2], most_of[PASS_TYPES];
    double step_ns, type_ns[PASS_TYPES]; /* the device's beyond the parts */
    double host_ns, host_type_ns[PASS_TYPES];
    struct host_part host;
    struct hull hulls[PARTS_MOST];
    int steps, passes[PASS_TYPES], sums[PASS_TYPES][PASS_COORDS], wall; /* columns; 0: none */
    int most_tokens, least_tokens, memory, requests, walls[2];          /* rows */
    int present[PASS_TYPES], most[PASS_TYPES];
};

struct finder {
    const struct price_parts *parts;
    const struct pass_type *types;
    glp_prob *lp;
    struct cell *cells;
    size_t n_cells;
    double n_passes; /* the LP's right sides are shares of it */
    int count[PASS_TYPES], total[PASS_TYPES][PASS_COORDS]; /* rows: every pass is in some cell */
};

/* Whether passes of the type differ in the coordinate. */
static inline bool pass_type_varies(const struct pass_type *type, int c) {
    return type->least[c] < type->most[c];
}

/* Writes the LP for f->parts and f->types, with three lines of each hull; cells_fini releases it.
 */
void cells_make(struct finder *f);
void cells_fini(struct finder *f);

/* The line of the hull's segment over u, or of its nearest end; and as a row, if it is none yet. */
struct line hull_line(const struct hull *hull, double u);
void cells_put_line(struct finder *f, const struct cell *cell, struct hull *hull, int coord,
                    double u);

#endif
