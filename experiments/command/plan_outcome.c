#include "experiments/command/plan_outcome.h"

#include <string.h>

#include "sim/base/num.h"

static int read_planners(const char *name, struct asked_plan *out, struct err *err) {
    if (strcmp(name, "all") == 0) {
        ASSERT(planner_table_size <= PLAN_MOST_PLANNERS);
        out->compares = true;
        for (size_t i = 0; i < planner_table_size; i++) {
            out->planners[out->n_planners++] = &planner_table[i];
        }
        return 0;
    }
    out->planners[0] = planner_find(name, err);
    out->n_planners = 1;
    return out->planners[0] == NULL ? err_status(err) : 0;
}

int plan_read_asked(const struct options *options, const char *planner, struct asked_plan *out,
                    struct err *err) {
    *out = (struct asked_plan){0};
    int status = options_whole(options, "nodes", 1, INT64_MAX, &out->request.max_nodes, err);
    return status == 0 ? read_planners(planner, out, err) : status;
}

double plan_gap_percent(const struct plan_outcome *o) {
    return o->lower_bound_bytes == 0
               ? 0
               : 100 * ((double)o->peak_bytes / (double)o->lower_bound_bytes - 1);
}

int64_t plan_best_bound(const struct plan_outcome *outcomes, size_t n) {
    int64_t bound = 0;
    for (size_t i = 0; i < n; i++) {
        bound = outcomes[i].proven_bound_bytes > bound ? outcomes[i].proven_bound_bytes : bound;
    }
    return bound;
}

const char *plan_result_of(const struct plan_outcome *o, int64_t bound, int64_t capacity_bytes) {
    if (o->peak_bytes == bound) {
        return "optimal";
    }
    if (o->peak_bytes <= capacity_bytes) {
        return "fits";
    }
    return o->stopped ? "out of nodes" : NULL;
}

struct table *plan_comparison(const struct plan_outcome *outcomes, size_t n,
                              int64_t capacity_bytes) {
    struct table *table = table_open("planner|peak_bytes|peak|gap_%|nodes|result");
    int64_t bound = plan_best_bound(outcomes, n);
    for (size_t i = 0; i < n; i++) {
        const struct plan_outcome *o = &outcomes[i];
        table_add(table, "s i b %.2f i s", o->planner, o->peak_bytes, o->peak_bytes,
                  plan_gap_percent(o), (int64_t)o->n_nodes,
                  plan_result_of(o, bound, capacity_bytes));
    }
    return table;
}

void plan_print_times(const struct plan_outcome *outcomes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char text[32];
        fprintf(stderr, "planner %s: %s\n", outcomes[i].planner,
                num_format_ns(text, sizeof text, outcomes[i].seconds * 1e9));
    }
}
