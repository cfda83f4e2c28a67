#include "sim/memory/chunk_search.h"

#include <inttypes.h>
#include <string.h>

#include "sim/base/num.h"

/* ---- counts and rows ---- */

/* Rows of the longest loop of a kind. */
static int64_t longest(const struct graph *graph, const struct step_shape *shape,
                       enum chunk_kind kind) {
    int64_t rows = 0;
    for (uint32_t i = 0; i < graph->n_loops; i++) {
        const struct chunk_loop *loop = &graph->loops[i];
        int64_t n = loop->kind == kind ? shape->sym[loop->rows] : 0;
        rows = n > rows ? n : rows;
    }
    return rows;
}

static int64_t smaller_bound(int64_t a, int64_t b) {
    return a == 0 || (b > 0 && b < a) ? b : a;
}

static struct chunk_rows rows_of(const struct chunk_rule *rule, const struct graph *graph,
                                 const struct step_shape *shape,
                                 const uint32_t counts[CHUNK_KINDS]) {
    struct chunk_rows chunks = rule->bound;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        int64_t rows = counts[kind] <= 1
                           ? 0
                           : ceil_div(longest(graph, shape, (enum chunk_kind)kind), counts[kind]);
        chunks.of[kind] = smaller_bound(chunks.of[kind], rows);
    }
    return chunks;
}

bool chunk_rows_given(const struct chunk_rule *rule, const struct graph *graph,
                      const struct step_shape *shape, struct chunk_rows *out) {
    static const uint32_t whole[CHUNK_KINDS] = {1, 1, 1};
    bool is_counted = rule->search == CHUNK_SEARCH_ALWAYS;
    *out = rows_of(rule, graph, shape, is_counted ? rule->counts : whole);
    return is_counted || rule->search == CHUNK_SEARCH_NONE;
}

/* ---- what is live ---- */

/* Bytes live at one time at most, by what holds them: the operators of each kind of loop, and all
 * others (index CHUNK_KINDS). Chunks of one kind change nothing for another. */
struct peaks {
    int64_t of[CHUNK_KINDS + 1];
};

static int64_t largest(const struct peaks *peaks) {
    int64_t bytes = 0;
    for (int holder = 0; holder <= CHUNK_KINDS; holder++) {
        bytes = peaks->of[holder] > bytes ? peaks->of[holder] : bytes;
    }
    return bytes;
}

/* Of the tensors that loops make anew for every chunk. */
static int64_t own_bytes(const struct graph *graph, const struct placement *measured, int op) {
    int64_t bytes = 0;
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        bool is_live = tensor->first_op <= op && op <= tensor->last_op;
        bytes += tensor->loop >= 0 && tensor->alias < 0 && is_live ? measured->bytes[t] : 0;
    }
    return bytes;
}

/* `with_own`: the loops' own tensors count. */
static struct peaks measure(const struct graph *graph, const struct step_shape *shape,
                            struct chunk_rows chunks, bool with_own) {
    struct placement measured;
    int64_t live[GRAPH_MAX_OPS];
    struct peaks peaks = {{0}};
    placement_measure(graph, shape, chunks, &measured, live);
    for (int op = 0; op < (int)graph->n_ops; op++) {
        int loop = graph->ops[op].loop;
        int holder = loop < 0 ? CHUNK_KINDS : (int)graph->loops[loop].kind;
        int64_t bytes = live[op] - (with_own ? 0 : own_bytes(graph, &measured, op));
        peaks.of[holder] = bytes > peaks.of[holder] ? bytes : peaks.of[holder];
    }
    return peaks;
}

/* ---- the searches ---- */

/* One search under way. */
struct search {
    const struct chunk_request *request;
    struct placement *placement;
    struct chunk_result *result;
};

static struct chunk_rows rows_now(const struct search *s) {
    const struct chunk_request *r = s->request;
    return rows_of(r->rule, r->graph, r->shape, s->result->counts);
}

/* With the counts as they are. */
static void make_plan(struct search *s, struct placement *out) {
    const struct chunk_request *r = s->request;
    placement_make(r->planner, r->graph, r->shape, rows_now(s), out);
    s->result->n_plans++;
}

static bool plan_fits(struct search *s) {
    make_plan(s, s->placement);
    s->result->fits = s->placement->peak_bytes <= s->request->available_bytes;
    return s->result->fits;
}

/* The most chunks that make a difference. */
static uint32_t most_chunks(const struct search *s, enum chunk_kind kind) {
    int64_t rows = longest(s->request->graph, s->request->shape, kind);
    return (uint32_t)(rows < CHUNK_MOST ? rows : CHUNK_MOST);
}

static int64_t peak_of(const struct search *s, enum chunk_kind kind, uint32_t count) {
    uint32_t counts[CHUNK_KINDS];
    const struct chunk_request *r = s->request;
    memcpy(counts, s->result->counts, sizeof counts);
    counts[kind] = count;
    struct chunk_rows chunks = rows_of(r->rule, r->graph, r->shape, counts);
    return measure(r->graph, r->shape, chunks, true).of[kind];
}

/* The fewest chunks of a kind with which the bytes live in its loops are available, or the most
 * there are. From 2 chunks on these never grow with their number: adding chunks one by one to
 * whichever kind holds the peak ends up here too, but makes a plan for each. */
static uint32_t fewest_chunks(const struct search *s, enum chunk_kind kind) {
    int64_t available_bytes = s->request->available_bytes;
    uint32_t low = 2, high = most_chunks(s, kind);
    if (high <= 1 || peak_of(s, kind, 1) <= available_bytes) {
        return 1;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (peak_of(s, kind, middle) <= available_bytes) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* The kind of which one more chunk lowers the plan most, or whose loops hold more where that is the
 * same; -1: there are no more. */
static int best_kind(struct search *s, const struct peaks *live) {
    struct placement plan;
    int64_t best_bytes = INT64_MAX;
    int best = -1;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        if (s->result->counts[kind] >= most_chunks(s, (enum chunk_kind)kind)) {
            continue;
        }
        s->result->counts[kind]++;
        make_plan(s, &plan);
        s->result->counts[kind]--;
        bool is_lower = plan.peak_bytes < best_bytes;
        bool is_same = plan.peak_bytes == best_bytes && live->of[kind] > live->of[best];
        if (is_lower || is_same) {
            best = kind;
            best_bytes = plan.peak_bytes;
        }
    }
    return best;
}

/* A planner that leaves gaps may end above the bytes live at one time even where these are
 * available: then there is nothing for it but to try. */
static void search_bottleneck(struct search *s) {
    const struct chunk_request *r = s->request;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        s->result->counts[kind] = fewest_chunks(s, (enum chunk_kind)kind);
    }
    while (!plan_fits(s)) {
        struct peaks live = measure(r->graph, r->shape, rows_now(s), true);
        int kind = largest(&live) > r->available_bytes ? -1 : best_kind(s, &live);
        if (kind < 0) {
            break;
        }
        s->result->counts[kind]++;
    }
}

/* The next combination, the last kind's number first; false after the last. */
static bool next_counts(uint32_t counts[CHUNK_KINDS], const uint32_t most[CHUNK_KINDS]) {
    for (int kind = CHUNK_KINDS - 1; kind >= 0; kind--) {
        if (counts[kind] < most[kind]) {
            counts[kind]++;
            return true;
        }
        counts[kind] = 1;
    }
    return false;
}

static uint32_t most_combined(const struct chunk_request *request, enum chunk_kind kind) {
    int64_t rows = longest(request->graph, request->shape, kind);
    uint32_t most = rows < request->rule->grid ? (uint32_t)rows : request->rule->grid;
    return most < 1 ? 1 : most;
}

/* Only what may be cheaper, and has no more live than is available, is worth a plan. */
static void search_all(struct search *s) {
    const struct chunk_request *r = s->request;
    uint32_t *counts = s->result->counts, best[CHUNK_KINDS] = {0};
    uint32_t most[CHUNK_KINDS];
    double best_ns = 0;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        most[kind] = most_combined(r, (enum chunk_kind)kind);
    }
    do {
        struct chunk_rows chunks = rows_now(s);
        double ns = r->rule->price_ns(r->rule->state, r->shape, chunks);
        struct peaks peaks = measure(r->graph, r->shape, chunks, true);
        if ((best[0] == 0 || ns < best_ns) && largest(&peaks) <= r->available_bytes &&
            plan_fits(s)) {
            memcpy(best, counts, sizeof best);
            best_ns = ns;
        }
    } while (next_counts(counts, most));
    memcpy(counts, best[0] > 0 ? best : most, sizeof best);
    (void)plan_fits(s);
}

void chunk_place(const struct chunk_request *request, struct placement *out,
                 struct chunk_result *result) {
    struct search search = {.request = request, .placement = out, .result = result};
    *result = (struct chunk_result){.counts = {1, 1, 1}};
    switch (request->rule->search) {
    case CHUNK_SEARCH_NONE:
        (void)plan_fits(&search);
        break;
    case CHUNK_SEARCH_BOTTLENECK:
        search_bottleneck(&search);
        break;
    case CHUNK_SEARCH_BRUTE_FORCE:
        search_all(&search);
        break;
    case CHUNK_SEARCH_ALWAYS:
        memcpy(result->counts, request->rule->counts, sizeof result->counts);
        (void)plan_fits(&search);
        break;
    case CHUNK_SEARCH_LONGEST:
        ASSERT(false);
    }
}

uint64_t chunk_released_plans(const struct chunk_request *request,
                              const uint32_t counts[CHUNK_KINDS]) {
    uint64_t n_added = 0, n_combined = 1;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        n_added += counts[kind] - 1;
        n_combined *= most_combined(request, (enum chunk_kind)kind);
    }
    switch (request->rule->search) {
    case CHUNK_SEARCH_BOTTLENECK:
        return 1 + n_added + 1;
    case CHUNK_SEARCH_BRUTE_FORCE:
        return n_combined + 1;
    case CHUNK_SEARCH_NONE:
    case CHUNK_SEARCH_ALWAYS:
    case CHUNK_SEARCH_LONGEST:
        break;
    }
    return 1;
}

int chunk_misfit(const struct chunk_request *request, const struct placement *placement,
                 struct err *err) {
    struct chunk_rows least = {{0}};
    char needs[32], has[32], floor[32];
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        int64_t rows = longest(request->graph, request->shape, (enum chunk_kind)kind);
        least.of[kind] = rows > 0 ? ceil_div(rows, CHUNK_MOST) : 0;
    }
    struct peaks peaks = measure(request->graph, request->shape, least, false);
    return err_world(err,
                     "a step of %" PRId64
                     " tokens does not fit: its plan needs %s of workspace, %s are "
                     "available; the floor without chunkable tensors is %s",
                     request->shape->sym[SYM_TOKENS],
                     num_format_bytes(needs, sizeof needs, (double)placement->peak_bytes),
                     num_format_bytes(has, sizeof has, (double)request->available_bytes),
                     num_format_bytes(floor, sizeof floor, (double)largest(&peaks)));
}
