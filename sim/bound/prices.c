#include "sim/bound/prices.h"

#include <math.h>

#include "sim/base/mem.h"
#include "sim/bound/cells.h"

enum { MOST_ROUNDS = 60 };

/* ---- solving ---- */

/* The solver's numbers are looked at again: what it fails at, the certificate costs. */
static int solve(struct finder *f, struct err *err) {
    glp_smcp control;
    glp_init_smcp(&control);
    control.msg_lev = GLP_MSG_OFF;
    control.meth = GLP_DUALP;
    control.it_lim = 200000;
    int status = glp_simplex(f->lp, &control);
    if (status != 0) {
        glp_std_basis(f->lp);
        status = glp_simplex(f->lp, &control);
    }
    bool is_solved = status == 0 && glp_get_status(f->lp) == GLP_OPT;
    return is_solved ? 0 : err_world(err, "the prices of passes: the solver ended with %d", status);
}

/* The cell's sum of a coordinate in the solution. */
static double sum_of(const struct finder *f, const struct cell *cell, int coord) {
    double sum = 0;
    for (int t = 0; t < PASS_TYPES; t++) {
        const struct pass_type *type = &f->types[t];
        int column = pass_type_varies(type, coord) ? cell->sums[t][coord] : cell->passes[t];
        sum += column > 0 ? (double)type->most[coord] * glp_get_col_prim(f->lp, column) : 0;
    }
    return sum;
}

/* Lines of the hulls where the solution is below them; how many. */
static int put_violated(struct finder *f) {
    static const double tolerance = 1e-6, seldom = 1e-12;
    int before = glp_get_num_rows(f->lp);
    for (size_t i = 0; i < f->n_cells; i++) {
        struct cell *cell = &f->cells[i];
        double steps = glp_get_col_prim(f->lp, cell->steps);
        for (uint32_t p = 0; steps > seldom && p < f->parts->n; p++) {
            struct hull *hull = &cell->hulls[p];
            int coord = f->parts->parts[p].coord;
            double sum = sum_of(f, cell, coord);
            struct line line = hull_line(hull, sum / steps);
            double ns = line.level + line.slope * sum / steps;
            if (hull->column > 0 &&
                glp_get_col_prim(f->lp, hull->column) / steps * CELL_NS < ns * (1 - tolerance)) {
                cells_put_line(f, cell, hull, coord, sum / steps);
            }
        }
    }
    return glp_get_num_rows(f->lp) - before;
}

/* ---- the certificate ---- */

static double dual(const struct finder *f, int row) {
    return row > 0 ? fmax(0, glp_get_row_dual(f->lp, row)) : 0;
}

/* A step of the cell takes at least `step` + sum of `type` + sum of `unit` x coordinate. */
struct floor_of_cell {
    double step, type[PASS_TYPES], unit[PASS_COORDS];
};

static struct floor_of_cell floor_of(const struct finder *f, const struct cell *cell) {
    const struct price_parts *parts = f->parts;
    enum host_mode mode = (enum host_mode)parts->system->runtime.host_mode;
    double device = 1, host = 1, head = 1; /* shares of the two walls that count */
    if (mode != HOST_SERIAL) {
        double sides[2] = {dual(f, cell->walls[0]), dual(f, cell->walls[1])};
        device = sides[0] + sides[1] > 0 ? sides[0] / (sides[0] + sides[1]) : 1;
        host = 1 - device;
        head = mode == HOST_BY_LAYERS ? 1 : device;
    }
    double sync = mode == HOST_OVERLAPS ? cell->host.sync_ns : 0;
    struct floor_of_cell out = {.step = device * (cell->step_ns + sync) + host * cell->host_ns};
    for (int t = 0; t < PASS_TYPES; t++) {
        out.type[t] = device * cell->type_ns[t] + host * cell->host_type_ns[t] +
                      cell->host.after_ns[f->types[t].kind];
    }
    for (uint32_t p = 0; p < parts->n; p++) {
        const struct hull *hull = &cell->hulls[p];
        double weight = 0, share = parts->parts[p].is_head ? head : device;
        for (size_t i = 0; i < hull->n_lines; i++) {
            weight += dual(f, hull->lines[i].row);
        }
        /* Part of a part is less than it. */
        double down = weight > share ? share / weight : 1;
        for (size_t i = 0; i < hull->n_lines; i++) {
            double of = down * dual(f, hull->lines[i].row);
            out.step += of * hull->lines[i].level;
            out.unit[parts->parts[p].coord] += of * hull->lines[i].slope;
        }
    }
    return out;
}

/* By what share of its time the worst batch of the cell falls short of its passes' prices. */
static double shortfall(const struct finder *f, const struct cell *cell,
                        const struct prices *prices) {
    struct floor_of_cell at_least = floor_of(f, cell);
    double memory_bytes = (double)(f->parts->system->budget.pool_bytes + 1);
    double most_tokens = dual(f, cell->most_tokens) * CELL_NS;
    double least_tokens = dual(f, cell->least_tokens) * CELL_NS;
    double memory = dual(f, cell->memory) * CELL_NS;
    double requests = dual(f, cell->requests) * CELL_NS;
    double left = at_least.step - most_tokens * cell->tokens[1] + least_tokens * cell->tokens[0] -
                  memory - requests * f->parts->most_requests;
    for (int t = 0; t < PASS_TYPES; t++) {
        const struct pass_type *type = &f->types[t];
        if ((cell->types >> t & 1) == 0) {
            continue;
        }
        double present = dual(f, cell->present[t]) * CELL_NS;
        double most = dual(f, cell->most[t]) * CELL_NS;
        double worst = at_least.type[t] - prices->pass_ns[t] + requests - present + most;
        left += present - most * cell->most_of[t];
        for (int c = 0; c < PASS_COORDS; c++) {
            double unit = at_least.unit[c] - prices->unit_ns[t][c] +
                          (c == SYM_TOKENS ? most_tokens - least_tokens : 0) +
                          (c == PASS_KV ? memory / memory_bytes : 0);
            worst += fmin(unit * (double)type->least[c], unit * (double)type->most[c]);
        }
        left += worst * (worst < 0 ? cell->most_of[t] : 1);
    }
    double least_ns = fmax(1, cell->step_ns); /* no step takes less */
    for (uint32_t p = 0; p < f->parts->n; p++) {
        const struct hull *hull = &cell->hulls[p];
        least_ns += hull->n > 0 ? hull->points[0].ns : 0;
    }
    return left < 0 ? -left / least_ns : 0;
}

static void take_prices(const struct finder *f, struct prices *out) {
    for (int t = 0; t < PASS_TYPES; t++) {
        out->pass_ns[t] = dual(f, f->count[t]) * CELL_NS;
        for (int c = 0; c < PASS_COORDS; c++) {
            double most = (double)f->types[t].most[c];
            out->unit_ns[t][c] = f->total[t][c] > 0 ? dual(f, f->total[t][c]) * CELL_NS / most : 0;
        }
    }
    double worst = 0;
    for (size_t i = 0; i < f->n_cells; i++) {
        worst = fmax(worst, shortfall(f, &f->cells[i], out));
    }
    out->scale = 1 / (1 + worst);
    for (int t = 0; t < PASS_TYPES; t++) {
        out->pass_ns[t] *= out->scale;
        for (int c = 0; c < PASS_COORDS; c++) {
            out->unit_ns[t][c] *= out->scale;
        }
    }
}

static void take_best(const struct finder *f, struct prices *out) {
    static const double seldom = 1e-3;
    double all = 0;
    for (size_t i = 0; i < f->n_cells; i++) {
        all += glp_get_col_prim(f->lp, f->cells[i].steps);
    }
    for (size_t i = 0; i < f->n_cells; i++) {
        const struct cell *cell = &f->cells[i];
        double steps = glp_get_col_prim(f->lp, cell->steps);
        struct best_batch batch = {.share = all > 0 ? steps / all : 0};
        if (batch.share < seldom) {
            continue;
        }
        batch.tokens = sum_of(f, cell, SYM_TOKENS) / steps;
        for (int t = 0; t < PASS_TYPES; t++) {
            int column = cell->passes[t];
            batch.passes[t] = column > 0 ? glp_get_col_prim(f->lp, column) / steps : 0;
        }
        uint32_t at = out->n_best < BEST_BATCHES ? out->n_best++ : BEST_BATCHES;
        for (; at > 0 && out->best[at - 1].share < batch.share; at--) {
            if (at < BEST_BATCHES) {
                out->best[at] = out->best[at - 1];
            }
        }
        if (at < BEST_BATCHES) {
            out->best[at] = batch;
        }
    }
}

/* The solver ends the program where it has no memory; so do we, with a sentence. */
static void end(void *state) {
    (void)state;
    mem_out(0);
}

int prices_find(const struct price_parts *parts, const struct pass_type types[PASS_TYPES],
                struct prices *out, struct err *err) {
    glp_error_hook(end, NULL);
    glp_term_out(GLP_OFF);
    struct finder f = {.parts = parts, .types = types};
    *out = (struct prices){.scale = 1};
    cells_make(&f);
    int status = f.n_passes > 0 ? solve(&f, err) : 0;
    while (status == 0 && f.n_passes > 0 && ++out->n_rounds < MOST_ROUNDS && put_violated(&f) > 0) {
        status = solve(&f, err);
    }
    if (status == 0 && f.n_passes > 0) {
        take_prices(&f, out);
        take_best(&f, out);
    }
    out->n_cells = (uint32_t)f.n_cells;
    out->n_rows = (uint32_t)glp_get_num_rows(f.lp);
    cells_fini(&f);
    return status;
}

double price_of(const struct prices *prices, const struct pass *pass) {
    uint32_t type = pass_type_of(pass);
    double ns = prices->pass_ns[type];
    int64_t at[PASS_COORDS];
    pass_coords(pass, at);
    for (int c = 0; c < PASS_COORDS; c++) {
        ns += prices->unit_ns[type][c] * (double)at[c];
    }
    return ns;
}
