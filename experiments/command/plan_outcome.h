/* What planners are asked and what they answer, of a step's tensors or of a file's buffers. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_PLAN_OUTCOME_H
#define UNMASK_EXPERIMENTS_COMMAND_PLAN_OUTCOME_H

#include "experiments/run/cli/options.h"
#include "experiments/run/cli/table.h"
#include "sim/memory/planner/planner.h"

enum { PLAN_MOST_PLANNERS = 16 };

/* Which planners are asked for, and with what. */
struct asked_plan {
    const struct planner *planners[PLAN_MOST_PLANNERS];
    size_t n_planners;
    bool compares; /* --planner all */
    struct plan_request request;
};

/* What is reported of a plan, of a step or of a file. */
struct plan_outcome {
    const char *planner;
    int64_t peak_bytes, lower_bound_bytes, proven_bound_bytes;
    uint64_t n_nodes;
    bool stopped;
    double seconds;
};

/* --nodes and the planner of that name, or all of them. */
int plan_read_asked(const struct options *options, const char *planner, struct asked_plan *out,
                    struct err *err);

/* How far the peak is above its lower bound. */
double plan_gap_percent(const struct plan_outcome *outcome);

/* What any of the planners has proven holds for all. */
int64_t plan_best_bound(const struct plan_outcome *outcomes, size_t n);

/* "optimal", "fits", "out of nodes", or NULL. */
const char *plan_result_of(const struct plan_outcome *outcome, int64_t bound,
                           int64_t capacity_bytes);

/* A row a planner. The caller closes it. */
struct table *plan_comparison(const struct plan_outcome *outcomes, size_t n,
                              int64_t capacity_bytes);

/* How long each took, on standard error. */
void plan_print_times(const struct plan_outcome *outcomes, size_t n);

#endif
