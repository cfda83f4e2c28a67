#include "sim/bound/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/sort.h"
#include "sim/memory/chunk_search.h"

static struct chunk_rows chunks_of(const struct system *s, const struct step_shape *shape) {
    struct chunk_rows chunks;
    bool is_given = chunk_rows_given(&s->chunks, &s->graph, shape, &chunks);
    return is_given ? chunks : (struct chunk_rows){{0}};
}

static int check_chunks(const struct system *s, struct err *err) {
    struct step_shape shape;
    struct chunk_rows chunks;
    shape_clear(&shape);
    bool is_given = chunk_rows_given(&s->chunks, &s->graph, &shape, &chunks);
    return is_given || s->runtime.fused
               ? 0
               : err_usage(err,
                           "%s searches for chunks in which the passes of its runtime may take "
                           "less than whole: nothing is proved of it",
                           s->name);
}

/* ---- one symbol ---- */

static bool is_of_symbol(const struct op *op, enum symbol symbol) {
    return !op_is_attention(op) && op->rows == symbol;
}

static double symbol_ns(const struct system *s, enum symbol symbol, int64_t value) {
    struct step_shape shape = {0};
    double ns = 0;
    shape.sym[symbol] = value;
    const struct chunk_rows chunks = chunks_of(s, &shape);
    for (uint32_t i = 0; i < s->graph.n_ops; i++) {
        if (is_of_symbol(&s->graph.ops[i], symbol)) {
            struct op_price price;
            cost_explain_one(s->cost, i, &shape, chunks, &price);
            ns += price.ns;
        }
    }
    return ns;
}

/* The next value that is priced: each one at first, then 0.2 % further. */
static int64_t next_value(int64_t value) {
    return value < PARTS_EXACT ? value + 1 : value + value / 512;
}

static void look_beyond(struct part_point *points, size_t n) {
    for (size_t i = n; i-- > 0;) {
        points[i].beyond_ns =
            i + 1 < n ? fmin(points[i].ns, points[i + 1].beyond_ns) : points[i].ns;
    }
}

static void add_symbol(struct price_parts *parts, enum symbol symbol, int64_t most) {
    struct price_part part = {.coord = symbol, .queries = -1, .is_head = symbol == SYM_LOGIT_ROWS};
    size_t room = 0;
    for (int64_t v = 1; v <= most; v = next_value(v)) {
        double upto = (double)next_value(v) - 1, ns = symbol_ns(parts->system, symbol, v);
        part.points = mem_grown(part.points, part.n, &room, sizeof *part.points);
        part.points[part.n++] = (struct part_point){upto, ns, ns, upto, upto};
    }
    look_beyond(part.points, part.n);
    for (size_t i = 0; i < part.n; i++) {
        part.points[i].ns = part.points[i].beyond_ns;
    }
    parts->parts[parts->n++] = part;
}

static bool has_symbol(const struct graph *graph, enum symbol symbol) {
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (is_of_symbol(&graph->ops[i], symbol)) {
            return true;
        }
    }
    return false;
}

/* ---- attention ---- */

/* Interpolated rows of other GPUs dip between two points of the grid by up to 0.02 % (L40S). */
#define ATTENTION_MARGIN 0.995

/* Values from `least` on, each `ratio` above the one before, up to `most`. */
struct steps {
    double least, most, ratio;
    bool is_whole;
};

static double step_after(const struct steps *steps, double x) {
    double next = steps->is_whole ? fmax(x + 1, floor(x * steps->ratio)) : x * steps->ratio;
    return next;
}

static size_t step_count(const struct steps *steps) {
    double x = steps->least;
    size_t n = 0;
    while (x <= steps->most) {
        x = step_after(steps, x);
        n++;
    }
    return n;
}

/* Sequences, queries of each, and keys that each query sees, on average over a batch. */
struct attention_grid {
    struct steps along[3];
    size_t n[3];
    double *at[3], *ns;
};

static double attention_ns(const struct price_parts *parts, uint32_t i_op, double n, double q,
                           double keys, double most_q) {
    const struct system *s = parts->system;
    const struct op *op = &s->graph.ops[i_op];
    struct op_price price;
    struct step_shape shape = {0};
    /* Whole numbers that are no more than asked; sum q_i k_i <= most_q x sum k_i. */
    double sum_q = floor(n * q * (1 + 1e-12)), sum_qk = floor(sum_q * keys * (1 + 1e-12));
    shape.sym[op->span_n] = (int64_t)n;
    shape.sym[op->span_k] = (int64_t)fmax(n, floor(sum_qk / most_q));
    shape.sym[op->span_qk] = (int64_t)sum_qk;
    shape.sym[op->span_q] = (int64_t)sum_q;
    /* Attention after an eviction gets the same shape as the attention before it. */
    for (uint32_t i = 0; i < s->graph.n_ops; i++) {
        const struct op *other = &s->graph.ops[i];
        if (i != i_op && op_is_attention(other) && other->span_n == op->span_n) {
            shape.sym[other->span_k] = shape.sym[op->span_k];
            shape.sym[other->span_qk] = shape.sym[op->span_qk];
            shape.sym[other->span_q] = shape.sym[op->span_q];
        }
    }
    cost_explain_one(s->cost, i_op, &shape, chunks_of(s, &shape), &price);
    return ATTENTION_MARGIN * price.ns;
}

static void price_grid(const struct price_parts *parts, uint32_t i_op, struct attention_grid *g) {
    size_t n_points = 1;
    for (int a = 0; a < 3; a++) {
        g->n[a] = step_count(&g->along[a]);
        g->at[a] = mem_unwritten(g->n[a] + 1, sizeof(double));
        g->at[a][0] = g->along[a].least;
        for (size_t i = 0; i < g->n[a]; i++) {
            g->at[a][i + 1] = step_after(&g->along[a], g->at[a][i]);
        }
        n_points *= g->n[a];
    }
    g->ns = mem_unwritten(n_points, sizeof(double));
    double *ns = g->ns;
    for (size_t i = 0; i < g->n[0]; i++) {
        for (size_t j = 0; j < g->n[1]; j++) {
            for (size_t k = 0; k < g->n[2]; k++) {
                *ns++ = attention_ns(parts, i_op, g->at[0][i], g->at[1][j], g->at[2][k],
                                     g->along[1].most);
            }
        }
    }
    /* No point is above one that is no less in all three. */
    size_t stride[3] = {g->n[1] * g->n[2], g->n[2], 1};
    for (int a = 0; a < 3; a++) {
        for (size_t p = n_points; p-- > 0;) {
            if (p / stride[a] % g->n[a] + 1 < g->n[a]) {
                g->ns[p] = fmin(g->ns[p], g->ns[p + stride[a]]);
            }
        }
    }
}

/* The upper end of the cell that begins at a point of the grid. */
static double cell_end(const struct attention_grid *g, int a, size_t i) {
    double end = g->at[a][i + 1] - (g->along[a].is_whole ? 1 : 0);
    return fmin(end, fmax(g->along[a].most, g->at[a][i]));
}

static void take_points(const struct attention_grid *g, struct price_part *part) {
    const size_t n_points = g->n[0] * g->n[1] * g->n[2];
    struct part_point *points = mem_unwritten(n_points, sizeof *points);
    struct sort_item *places = mem_unwritten(n_points, sizeof *places);
    size_t n = 0;
    for (size_t i = 0; i < g->n[0]; i++) {
        for (size_t j = 0; j < g->n[1]; j++) {
            double least = g->at[0][i] * g->at[1][j];
            double most = cell_end(g, 0, i) * cell_end(g, 1, j);
            for (size_t k = 0; k < g->n[2]; k++, n++) {
                points[n] = (struct part_point){
                    .at = most * cell_end(g, 2, k), .ns = g->ns[n], .least = least, .most = most};
                places[n] = (struct sort_item){sort_key(points[n].at), n};
            }
        }
    }
    sort_items(places, n_points);
    part->points = mem_unwritten(n_points, sizeof *part->points);
    part->n = n_points;
    for (size_t i = 0; i < n_points; i++) {
        part->points[i] = points[places[i].place];
    }
    free(places);
    free(points);
    look_beyond(part->points, part->n);
}

/* Sequences of the operator in a batch, and what they have at least and at most. */
static bool attention_range(const struct price_parts *parts, const struct pass_type *types,
                            const struct op *op, struct steps along[3]) {
    double sequences = 0, q[2] = {INFINITY, 0}, keys[2] = {INFINITY, 0};
    for (int t = 0; t < PASS_TYPES; t++) {
        const struct pass_type *type = &types[t];
        if (type->n == 0 || type->most[op->span_n] == 0) {
            continue;
        }
        sequences += parts->most_of[t];
        double least_q = fmax(1, (double)type->least[op->span_q]);
        double most_q = (double)type->most[op->span_q];
        q[0] = fmin(q[0], least_q);
        q[1] = fmax(q[1], most_q);
        /* Of equal passes this is what they have; of others bounds of it. */
        keys[0] = fmin(keys[0], fmax(1, (double)type->least[op->span_qk] / most_q));
        keys[1] = fmax(keys[1], (double)type->most[op->span_qk] / least_q);
    }
    along[0] = (struct steps){1, fmin(sequences, parts->most_requests), 1.02, true};
    along[1] = (struct steps){q[0], q[1], 1.02, false};
    along[2] = (struct steps){keys[0], keys[1], 1.02, false};
    return sequences > 0 && q[1] > 0;
}

static void add_attention(struct price_parts *parts, const struct pass_type *types, uint32_t i_op) {
    enum { MOST_POINTS = 200000 };
    const struct system *s = parts->system;
    const struct op *op = &s->graph.ops[i_op];
    struct attention_grid grid;
    struct price_part part = {.coord = op->span_qk, .queries = op->span_q};
    if (!attention_range(parts, types, op, grid.along)) {
        return;
    }
    /* Lengths that differ in queries and in keys take a coarser grid. */
    while (step_count(&grid.along[0]) * step_count(&grid.along[1]) * step_count(&grid.along[2]) >
           MOST_POINTS) {
        for (int a = 0; a < 3; a++) {
            grid.along[a].ratio = 1 + 1.2 * (grid.along[a].ratio - 1);
        }
    }
    part.misses_prefill = s->runtime.varlen_attention && op_type_of(op)->decodes;
    price_grid(parts, i_op, &grid);
    take_points(&grid, &part);
    for (int a = 0; a < 3; a++) {
        free(grid.at[a]);
    }
    free(grid.ns);
    parts->parts[parts->n++] = part;
}

/* ---- all of it ---- */

/* How many passes of a type a batch holds at most: by memory, by query tokens, by the requests that
 * there are. */
static void find_limits(struct price_parts *parts, const struct pass_type *types,
                        size_t n_requests) {
    const struct system *s = parts->system;
    double most = (double)n_requests;
    most = s->budget.max_requests > 0 ? fmin(most, s->budget.max_requests) : most;
    for (int t = 0; t < PASS_TYPES; t++) {
        const struct pass_type *type = &types[t];
        if (type->n == 0) {
            continue;
        }
        double by_tokens = type->least[SYM_TOKENS] > 0 ? (double)s->settings.max_batched_tokens /
                                                             (double)type->least[SYM_TOKENS]
                                                       : INFINITY;
        double by_memory = type->least[PASS_KV] > 0
                               ? (double)s->budget.pool_bytes / (double)type->least[PASS_KV]
                               : INFINITY;
        parts->most_of[t] = fmax(1, floor(fmin(most, fmin(by_tokens, by_memory))));
    }
    parts->most_requests = fmax(1, most);
}

int parts_open(const struct system *system, const struct pass_type types[PASS_TYPES],
               size_t n_requests, struct price_parts *out, struct err *err) {
    *out = (struct price_parts){.system = system};
    if (check_chunks(system, err) != 0) {
        return err_status(err);
    }
    find_limits(out, types, n_requests);
    for (int c = 0; c < SYM_COUNT; c++) {
        double most = 0;
        for (int t = 0; t < PASS_TYPES; t++) {
            most += out->most_of[t] * (double)types[t].most[c];
        }
        most = c == SYM_TOKENS ? fmin(most, system->settings.max_batched_tokens) : most;
        if (c != SYM_ONE && most > 0 && has_symbol(&system->graph, (enum symbol)c)) {
            add_symbol(out, (enum symbol)c, (int64_t)most);
        }
    }
    out->step_ns = symbol_ns(system, SYM_ONE, 1);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        const struct op *op = &system->graph.ops[i];
        if (op_is_attention(op)) {
            add_attention(out, types, i);
        }
        if (op_type_of(op)->waits != NULL) {
            out->wait_ns = system->runtime.host_factor * op->wait_ns;
        }
    }
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        out->alone[kind] = parts_host(out, 1u << kind);
    }
    return 0;
}

void parts_close(struct price_parts *parts) {
    for (uint32_t i = 0; i < parts->n; i++) {
        free(parts->parts[i].points);
    }
    *parts = (struct price_parts){0};
}

/* ---- host ---- */

static void probe_shape(const int64_t n[HOST_KIND_COUNT], struct step_shape *shape) {
    *shape = (struct step_shape){0};
    shape->sym[SYM_REFRESH_N] = n[HOST_REFRESH];
    shape->sym[SYM_SELECT_N] = n[HOST_SELECT];
    shape->sym[SYM_REQUESTS] = n[HOST_REFRESH] + n[HOST_SELECT] + n[HOST_REUSE];
}

/* Times of the host and of launches for n[kind] requests of each kind. */
static void probe_host(const struct system *s, const int64_t n[HOST_KIND_COUNT], double *host_ns,
                       double *launches_ns) {
    static const enum symbol counts[] = {SYM_REQUESTS, SYM_REFRESH_N, SYM_SELECT_N};
    struct step_shape shape;
    struct step_price price;
    probe_shape(n, &shape);
    cost_price(s->cost, &shape, chunks_of(s, &shape), &price);
    *host_ns = price.host_ns;
    if (s->runtime.host_mode == HOST_BY_LAYERS) { /* which the price has in it */
        *host_ns -=
            s->runtime.host_factor * s->runtime.host_look_ns * (double)shape.sym[SYM_REQUESTS];
    }
    *host_ns -= price.loop_host_ns;
    *launches_ns = price.device_ns - price.loop_device_ns;
    for (int i = 0; i < 3; i++) {
        *launches_ns -= symbol_ns(s, counts[i], shape.sym[counts[i]]);
    }
    *launches_ns = *launches_ns > 1e-6 ? *launches_ns : 0;
}

/* What a request adds to a step that neither host nor device had before: its look, or its turn of
 * the loop. */
static double after_ns(const struct system *s, enum host_kind kind) {
    const struct runtime *r = &s->runtime;
    int64_t n[HOST_KIND_COUNT] = {0};
    struct step_shape shape;
    struct step_price price;
    if (r->host_mode != HOST_LOOPS) {
        return r->host_mode == HOST_BY_LAYERS ? r->host_factor * r->host_look_ns : 0;
    }
    n[kind] = 1;
    probe_shape(n, &shape);
    cost_price(s->cost, &shape, chunks_of(s, &shape), &price);
    return price.loop_ns;
}

struct host_part parts_host(const struct price_parts *parts, unsigned kinds) {
    const struct system *s = parts->system;
    const struct runtime *r = &s->runtime;
    struct host_part out = {.sync_ns = 0};
    int64_t n[HOST_KIND_COUNT];
    bool is_mixed = (kinds & (kinds - 1)) != 0, reuses = kinds == 1u << HOST_REUSE;
    double layers = (double)s->graph.model->layers;
    double sync_ns[] = {r->host_sync_ns[HOST_REFRESH],
                        r->host_sync_ns[HOST_REUSE] + r->host_sync_layer_ns * layers};
    out.sync_ns =
        r->host_factor * (is_mixed && !r->varlen ? fmin(sync_ns[0], sync_ns[1]) : sync_ns[reuses]);
    for (int k = 0; k < HOST_KIND_COUNT; k++) {
        out.after_ns[k] = after_ns(s, (enum host_kind)k);
    }
    if (is_mixed && !r->varlen) {
        return out;
    }
    for (int k = 0; k < HOST_KIND_COUNT; k++) {
        n[k] = kinds >> k & 1;
    }
    probe_host(s, n, &out.step_ns, &out.launches_ns);
    for (int k = 0; k < HOST_KIND_COUNT; k++) {
        if (n[k] == 0) {
            continue;
        }
        double host_ns, launches_ns;
        n[k] = 2;
        probe_host(s, n, &host_ns, &launches_ns);
        n[k] = 1;
        out.request_ns[k] = host_ns - out.step_ns;
        out.request_launches_ns[k] = out.launches_ns > 0 ? launches_ns - out.launches_ns : 0;
    }
    return out;
}

/* ---- a pass alone ---- */

size_t part_first(const struct price_part *part, double at) {
    size_t lo = 0, hi = part->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (part->points[mid].at < at) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static double part_at_least(const struct price_part *part, double at) {
    const size_t first = part_first(part, at);
    return at > 0 && first < part->n ? part->points[first].beyond_ns : 0;
}

bool parts_lost_in_padding(int coord) {
    switch (coord) {
    case SYM_CONTEXT_ROWS:
    case SYM_REFRESH_N:
    case SYM_BLOCK_N:
    case SYM_BLOCK_Q:
    case SYM_BLOCK_K:
    case SYM_BLOCK_QK:
    case SYM_KEPT_TOKENS:
    case SYM_KEPT_Q:
    case SYM_KEPT_K:
    case SYM_KEPT_QK:
        return true;
    default:
        return false;
    }
}

/* Device and host together, of a step of one request of a kind; `head_ns` is part of the device's.
 */
static double wall_ns(const struct system *system, double device_ns, double head_ns,
                      const struct host_part *host, enum host_kind kind) {
    double host_ns = host->step_ns, after_ns = host->after_ns[kind];
    double unrolled = system->settings.unroll_maximum;
    switch ((enum host_mode)system->runtime.host_mode) {
    case HOST_SERIAL:
        return device_ns + host_ns / fmax(1, unrolled);
    case HOST_OVERLAPS:
        return fmax(device_ns + host->sync_ns, host_ns);
    case HOST_BY_LAYERS:
        return fmax(device_ns - head_ns, host_ns) + head_ns + after_ns;
    case HOST_LOOPS:
        return fmax(device_ns, host_ns) + after_ns;
    }
    return device_ns;
}

double parts_alone_ns(const struct price_parts *parts, const struct pass *pass) {
    const struct system *s = parts->system;
    bool is_padded = !s->runtime.varlen && parts->most_requests > 1;
    double device_ns = parts->step_ns, head_ns = 0;
    int64_t at[PASS_COORDS];
    pass_coords(pass, at);
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct price_part *part = &parts->parts[i];
        if (!(is_padded && parts_lost_in_padding(part->coord)) && !part->misses_prefill) {
            double ns = part_at_least(part, (double)at[part->coord]);
            device_ns += ns;
            head_ns += part->is_head ? ns : 0;
        }
    }
    if (is_padded) {
        return device_ns;
    }
    enum host_kind kind = pass_host_kind(pass);
    const struct host_part *host = &parts->alone[kind];
    return wall_ns(s, device_ns + host->launches_ns, head_ns, host, kind);
}
