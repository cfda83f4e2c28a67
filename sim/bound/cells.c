#include "sim/bound/cells.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/mem.h"

enum { INTERVALS = 4 };

/* A row that is being put together. */
struct row {
    int columns[3 + PASS_TYPES + PARTS_MOST + PASS_TYPES * 2];
    double factors[3 + PASS_TYPES + PARTS_MOST + PASS_TYPES * 2];
    int n;
};

static void row_add(struct row *row, int column, double factor) {
    if (column > 0 && factor != 0) {
        ASSERT(row->n + 1 < (int)(sizeof row->columns / sizeof row->columns[0]));
        row->columns[++row->n] = column;
        row->factors[row->n] = factor;
    }
}

/* `factor` times the cell's sum of a coordinate. */
static void row_add_coord(const struct finder *f, const struct cell *cell, struct row *row, int c,
                          double factor) {
    for (int t = 0; t < PASS_TYPES; t++) {
        const struct pass_type *type = &f->types[t];
        if ((cell->types >> t & 1) != 0) {
            row_add(row, pass_type_varies(type, c) ? cell->sums[t][c] : cell->passes[t],
                    factor * (double)type->most[c]);
        }
    }
}

/* sum >= least. All rows are of this kind, so that all dual values are >= 0. */
static int put_row(struct finder *f, const struct row *row, double least) {
    int i = glp_add_rows(f->lp, 1);
    glp_set_row_bnds(f->lp, i, GLP_LO, least, 0);
    glp_set_mat_row(f->lp, i, row->n, row->columns, row->factors);
    return i;
}

static int put_column(struct finder *f, double cost) {
    int i = glp_add_cols(f->lp, 1);
    glp_set_col_bnds(f->lp, i, GLP_LO, 0, 0);
    glp_set_obj_coef(f->lp, i, cost);
    return i;
}

/* ---- hulls ---- */

/* Least and most of a coordinate in a batch of the cell. */
static void coord_range(const struct finder *f, const struct cell *cell, int c, double range[2]) {
    range[0] = range[1] = 0;
    for (int t = 0; t < PASS_TYPES; t++) {
        if ((cell->types >> t & 1) != 0) {
            range[0] += (double)f->types[t].least[c];
            range[1] += cell->most_of[t] * (double)f->types[t].most[c];
        }
    }
    if (c == SYM_TOKENS) {
        range[0] = fmax(range[0], cell->tokens[0]);
        range[1] = fmin(range[1], cell->tokens[1]);
    }
}

/* Appends `point` to the vertices and removes those that it makes concave. */
static void hull_take(struct hull *hull, struct vertex point) {
    while (hull->n > 0 && hull->points[hull->n - 1].at >= point.at) {
        hull->n--; /* as far along, and no lower: points come with `ns` rising */
        point.ns = fmin(point.ns, hull->points[hull->n].ns);
    }
    while (hull->n > 1) {
        const struct vertex *a = &hull->points[hull->n - 2], *b = &hull->points[hull->n - 1];
        if ((b->ns - a->ns) * (point.at - a->at) < (point.ns - a->ns) * (b->at - a->at)) {
            break;
        }
        hull->n--;
    }
    hull->points[hull->n++] = point;
}

/* Which of a part's points batches of a cell can be at. */
struct reach {
    size_t first, end;
    bool of_attention;
    double queries[2];
};

static struct reach reach_of(const struct finder *f, const struct cell *cell,
                             const struct price_part *part, const double range[2]) {
    struct reach reach = {.first = part_first(part, range[0]), .end = part->n};
    reach.of_attention = part->queries >= 0;
    if (reach.of_attention) {
        coord_range(f, cell, part->queries, reach.queries);
        reach.queries[1] = fmin(reach.queries[1], cell->tokens[1]) * 1.0000001;
    } else {
        const size_t last = part_first(part, range[1]);
        reach.end = last < part->n ? last + 1 : part->n;
    }
    return reach;
}

static bool is_reached(const struct reach *reach, const struct part_point *point) {
    return !reach->of_attention ||
           (point->least <= reach->queries[1] && point->most >= reach->queries[0]);
}

/* The lower convex hull of a part over the batches of a cell. A point that takes no less than one
 * after it counts for as much as that one, and is then no vertex unless it is the first. */
static void hull_make(const struct finder *f, const struct cell *cell,
                      const struct price_part *part, struct hull *hull) {
    double range[2], least_ns = INFINITY;
    coord_range(f, cell, part->coord, range);
    const struct reach reach = reach_of(f, cell, part, range);
    const size_t room = reach.end > reach.first ? reach.end - reach.first : 0;
    struct vertex *kept = mem_unwritten(room + 1, sizeof *kept), *next = kept + room + 1;
    size_t first = reach.first, taken = reach.end;
    for (size_t i = reach.end; i-- > reach.first;) {
        const struct part_point *point = &part->points[i];
        if (point->ns < least_ns && is_reached(&reach, point)) {
            least_ns = point->ns;
            taken = i;
            *--next = (struct vertex){point->at, point->ns};
        }
    }
    while (first < taken && !is_reached(&reach, &part->points[first])) {
        first++;
    }
    if (first < taken) {
        *--next = (struct vertex){part->points[first].at, least_ns};
    }
    const size_t n = (size_t)(kept + room + 1 - next);
    hull->points = mem_unwritten(n + 1, sizeof *hull->points);
    if (range[0] <= 0) {
        hull->points[hull->n++] = (struct vertex){0, 0};
    }
    for (size_t i = 0; i < n; i++) {
        hull_take(hull, next[i]);
    }
    free(kept);
}

struct line hull_line(const struct hull *hull, double u) {
    size_t i = 1;
    if (hull->n == 0) {
        return (struct line){0};
    }
    if (hull->n == 1) {
        return (struct line){.level = hull->points[0].ns};
    }
    while (i + 1 < hull->n && hull->points[i].at < u) {
        i++;
    }
    const struct vertex *a = &hull->points[i - 1], *b = &hull->points[i];
    double slope = (b->ns - a->ns) / (b->at - a->at);
    return (struct line){.level = a->ns - slope * a->at, .slope = slope};
}

void cells_put_line(struct finder *f, const struct cell *cell, struct hull *hull, int coord,
                    double u) {
    struct line line = hull_line(hull, u);
    for (size_t i = 0; i < hull->n_lines; i++) {
        if (hull->lines[i].level == line.level && hull->lines[i].slope == line.slope) {
            return;
        }
    }
    struct row row = {.n = 0};
    row_add(&row, hull->column, 1);
    row_add(&row, cell->steps, -line.level / CELL_NS);
    row_add_coord(f, cell, &row, coord, -line.slope / CELL_NS);
    line.row = put_row(f, &row, 0);
    hull->lines = mem_grown(hull->lines, hull->n_lines, &hull->lines_room, sizeof *hull->lines);
    hull->lines[hull->n_lines++] = line;
}

/* ---- cells ---- */

static bool is_padded_mix(const struct finder *f, const struct cell *cell) {
    return !f->parts->system->runtime.varlen && (cell->types & (cell->types - 1)) != 0;
}

/* What a step's price has besides its parts. A step may be half a nanosecond shorter. */
static void set_fixed_price(const struct finder *f, struct cell *cell) {
    const struct price_parts *parts = f->parts;
    double unrolled = fmax(1, parts->system->settings.unroll_maximum);
    double visits = parts->system->runtime.host_mode == HOST_SERIAL ? 1 / unrolled : 1;
    unsigned kinds = 0;
    bool waits = false;
    for (int t = 0; t < PASS_TYPES; t++) {
        if ((cell->types >> t & 1) != 0) {
            kinds |= 1u << f->types[t].kind;
            waits = waits || f->types[t].waits;
        }
    }
    cell->host = parts_host(parts, kinds);
    double launches_ns = cell->host.launches_ns, host_ns = cell->host.step_ns;
    for (int t = 0; t < PASS_TYPES; t++) {
        if ((cell->types >> t & 1) != 0) {
            enum host_kind kind = f->types[t].kind;
            cell->type_ns[t] = cell->host.request_launches_ns[kind];
            cell->host_type_ns[t] = visits * cell->host.request_ns[kind];
        }
    }
    /* host_part has one request of each kind in it already. */
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        if ((kinds >> kind & 1) != 0) {
            launches_ns -= cell->host.request_launches_ns[kind];
            host_ns -= cell->host.request_ns[kind];
        }
    }
    bool is_mix = is_padded_mix(f, cell);
    cell->step_ns = parts->step_ns - 0.5 + launches_ns + (waits && !is_mix ? parts->wait_ns : 0);
    cell->host_ns = visits * host_ns;
}

static void put_columns(struct finder *f, struct cell *cell) {
    bool is_serial = f->parts->system->runtime.host_mode == HOST_SERIAL;
    double device = is_serial ? 1 : 0;
    cell->steps = put_column(f, device * (cell->step_ns + cell->host_ns) / CELL_NS);
    cell->wall = is_serial ? 0 : put_column(f, 1);
    for (int t = 0; t < PASS_TYPES; t++) {
        if ((cell->types >> t & 1) == 0) {
            continue;
        }
        double ns = device * (cell->type_ns[t] + cell->host_type_ns[t]);
        cell->passes[t] = put_column(f, ns / CELL_NS);
        for (int c = 0; c < PASS_COORDS; c++) {
            cell->sums[t][c] = f->total[t][c] > 0 ? put_column(f, 0) : 0;
        }
    }
    for (uint32_t i = 0; i < f->parts->n; i++) {
        const struct price_part *part = &f->parts->parts[i];
        bool prefills = false;
        for (int t = 0; t < PASS_TYPES; t++) {
            prefills =
                prefills || ((cell->types >> t & 1) != 0 && f->types[t].phase == PHASE_PREFILL);
        }
        bool is_lost = is_padded_mix(f, cell) && parts_lost_in_padding(part->coord);
        double range[2];
        coord_range(f, cell, part->coord, range);
        if (!is_lost && range[1] > 0 && !(part->misses_prefill && prefills)) {
            hull_make(f, cell, part, &cell->hulls[i]);
            cell->hulls[i].column = put_column(f, device);
        }
    }
}

/* The wall of a step is no less than either. */
static void put_walls(struct finder *f, struct cell *cell) {
    const struct price_parts *parts = f->parts;
    bool by_layers = parts->system->runtime.host_mode == HOST_BY_LAYERS;
    bool overlaps = parts->system->runtime.host_mode == HOST_OVERLAPS;
    double sync = overlaps ? cell->host.sync_ns : 0;
    for (int side = 0; cell->wall > 0 && side < 2; side++) {
        struct row row = {.n = 0};
        row_add(&row, cell->wall, 1);
        row_add(&row, cell->steps, -(side == 0 ? cell->step_ns + sync : cell->host_ns) / CELL_NS);
        for (int t = 0; t < PASS_TYPES; t++) {
            double ns = cell->host.after_ns[f->types[t].kind] +
                        (side == 0 ? cell->type_ns[t] : cell->host_type_ns[t]);
            row_add(&row, cell->passes[t], -ns / CELL_NS);
        }
        for (uint32_t i = 0; i < parts->n; i++) {
            bool is_in = side == 0 || (by_layers && parts->parts[i].is_head);
            row_add(&row, cell->hulls[i].column, is_in ? -1 : 0);
        }
        cell->walls[side] = put_row(f, &row, 0);
    }
}

/* What a batch of the cell is: within its tokens, the pool and the limit of requests, with a pass
 * of each type at least, whose coordinates are within the type's. */
static void put_limits(struct finder *f, struct cell *cell) {
    const struct system *s = f->parts->system;
    struct row most = {.n = 0}, least = {.n = 0}, memory = {.n = 0}, requests = {.n = 0};
    row_add_coord(f, cell, &most, SYM_TOKENS, -1);
    row_add(&most, cell->steps, cell->tokens[1]);
    cell->most_tokens = put_row(f, &most, 0);
    row_add_coord(f, cell, &least, SYM_TOKENS, 1);
    row_add(&least, cell->steps, -cell->tokens[0]);
    cell->least_tokens = put_row(f, &least, 0);
    row_add_coord(f, cell, &memory, PASS_KV, -1.0 / (double)(s->budget.pool_bytes + 1));
    if (memory.n > 0) {
        row_add(&memory, cell->steps, 1);
        cell->memory = put_row(f, &memory, 0);
    }
    row_add(&requests, cell->steps, f->parts->most_requests);
    for (int t = 0; t < PASS_TYPES; t++) {
        struct row present = {.n = 0}, all = {.n = 0};
        if (cell->passes[t] == 0) {
            continue;
        }
        row_add(&requests, cell->passes[t], -1);
        row_add(&present, cell->passes[t], 1);
        row_add(&present, cell->steps, -1);
        cell->present[t] = put_row(f, &present, 0);
        row_add(&all, cell->passes[t], -1);
        row_add(&all, cell->steps, cell->most_of[t]);
        cell->most[t] = put_row(f, &all, 0);
        for (int c = 0; c < PASS_COORDS; c++) {
            const struct pass_type *type = &f->types[t];
            struct row low = {.n = 0}, high = {.n = 0};
            if (cell->sums[t][c] > 0) {
                row_add(&low, cell->sums[t][c], 1);
                row_add(&low, cell->passes[t], -(double)type->least[c] / (double)type->most[c]);
                put_row(f, &low, 0);
                row_add(&high, cell->sums[t][c], -1);
                row_add(&high, cell->passes[t], 1);
                put_row(f, &high, 0);
            }
        }
    }
    cell->requests = put_row(f, &requests, 0);
}

static void put_cell(struct finder *f, struct cell *cell) {
    set_fixed_price(f, cell);
    put_columns(f, cell);
    put_walls(f, cell);
    put_limits(f, cell);
    for (uint32_t i = 0; i < f->parts->n; i++) {
        double range[2];
        coord_range(f, cell, f->parts->parts[i].coord, range);
        for (int at = 0; cell->hulls[i].column > 0 && at < 3; at++) {
            cells_put_line(f, cell, &cell->hulls[i], f->parts->parts[i].coord,
                           range[0] + (range[1] - range[0]) * at / 2);
        }
    }
}

/* The cells of some types: by query tokens, each interval as many times the one before; the first
 * begins where batches do, at nothing where passes run no more than their first layer. */
static void make_cells(struct finder *f, unsigned types) {
    double least = 0, most = 0, begin = 0;
    for (int t = 0; t < PASS_TYPES; t++) {
        if ((types >> t & 1) != 0) {
            least += fmax(1, (double)f->types[t].least[SYM_TOKENS]);
            most += f->parts->most_of[t] * (double)f->types[t].most[SYM_TOKENS];
            begin += (double)f->types[t].least[SYM_TOKENS];
        }
    }
    most = begin < least ? fmax(most, least) : most;
    most = fmin(most, f->parts->system->settings.max_batched_tokens);
    int n = most < least ? 0 : most < 1.2 * least ? 1 : INTERVALS;
    for (int i = 0; i < n; i++) {
        struct cell *cell = &f->cells[f->n_cells];
        *cell = (struct cell){.types = types};
        cell->tokens[0] = i == 0 ? begin : least * pow(most / least, (double)i / n);
        cell->tokens[1] = i + 1 < n ? least * pow(most / least, (double)(i + 1) / n) : most;
        double reach = 0;
        for (int t = 0; t < PASS_TYPES; t++) {
            const struct pass_type *type = &f->types[t];
            const double own = (double)type->least[SYM_TOKENS], others = begin - own;
            double by_tokens = own > 0 ? floor((cell->tokens[1] - others) / own) : INFINITY;
            cell->most_of[t] = fmax(1, fmin(f->parts->most_of[t], by_tokens));
            reach += (types >> t & 1) != 0 ? cell->most_of[t] * (double)type->most[SYM_TOKENS] : 0;
        }
        f->n_cells += reach >= cell->tokens[0]; /* else no batch is in it */
    }
}

/* Every pass is in some cell, with all that it has. */
static void put_demand(struct finder *f) {
    for (int t = 0; t < PASS_TYPES; t++) {
        const struct pass_type *type = &f->types[t];
        struct row count = {.n = 0};
        if (type->n == 0) {
            continue;
        }
        f->count[t] = put_row(f, &count, type->n / f->n_passes);
        for (int c = 0; c < PASS_COORDS; c++) {
            bool is_read = c == SYM_TOKENS || c == PASS_KV;
            for (uint32_t i = 0; i < f->parts->n; i++) {
                is_read = is_read || f->parts->parts[i].coord == c;
            }
            if (is_read && pass_type_varies(type, c)) {
                struct row total = {.n = 0};
                f->total[t][c] =
                    put_row(f, &total, type->total[c] / f->n_passes / (double)type->most[c]);
            }
        }
    }
}

/* The demand's rows are filled once all columns are there. */
static void fill_demand(struct finder *f) {
    int *columns = mem_unwritten(f->n_cells + 1, sizeof *columns);
    double *ones = mem_unwritten(f->n_cells + 1, sizeof *ones);
    for (int t = 0; t < PASS_TYPES; t++) {
        for (int c = -1; c < PASS_COORDS; c++) {
            int row = c < 0 ? f->count[t] : f->total[t][c], n = 0;
            for (size_t i = 0; row > 0 && i < f->n_cells; i++) {
                const struct cell *cell = &f->cells[i];
                int column = c < 0 ? cell->passes[t] : cell->sums[t][c];
                if (column > 0) {
                    columns[++n] = column;
                    ones[n] = 1;
                }
            }
            if (row > 0) {
                glp_set_mat_row(f->lp, row, n, columns, ones);
            }
        }
    }
    free(columns);
    free(ones);
}

void cells_make(struct finder *f) {
    unsigned all = 0;
    f->lp = glp_create_prob();
    f->cells = mem_zeroed(((size_t)1 << PASS_TYPES) * INTERVALS, sizeof *f->cells);
    for (int t = 0; t < PASS_TYPES; t++) {
        all |= f->types[t].n > 0 ? 1u << t : 0;
        f->n_passes += f->types[t].n;
    }
    for (unsigned types = 1; types <= all; types++) {
        if ((types & ~all) == 0) {
            make_cells(f, types);
        }
    }
    put_demand(f);
    for (size_t i = 0; i < f->n_cells; i++) {
        put_cell(f, &f->cells[i]);
    }
    fill_demand(f);
}

void cells_fini(struct finder *f) {
    for (size_t i = 0; i < f->n_cells; i++) {
        for (uint32_t p = 0; p < f->parts->n; p++) {
            free(f->cells[i].hulls[p].lines);
            free(f->cells[i].hulls[p].points);
        }
    }
    free(f->cells);
    glp_delete_prob(f->lp);
    glp_free_env(); /* of this thread */
}
