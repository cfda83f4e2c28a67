/* A grid of runs: the lists of an INI file, every combination of their values, each under one or
 * several seeds. */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_SWEEP_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_SWEEP_H

#include <stdio.h>

#include "experiments/run/asked.h"
#include "experiments/run/sweep/campaign.h"
#include "experiments/run/sweep/over.h"
#include "experiments/run/sweep/sample.h"

enum { SWEEP_MOST_AXES = 16 };

/* In the order in which the grid runs: the last one varies fastest. */
enum axis_kind {
    AXIS_SYSTEM,
    AXIS_MODEL,
    AXIS_GPU,
    AXIS_WORKLOAD,
    AXIS_RATE,
    AXIS_INPUT,
    AXIS_OUTPUT,
    AXIS_REQUESTS,
    AXIS_SEED,
    AXIS_SET,
};

struct axis {
    enum axis_kind kind;
    char name[64]; /* as its heading: "system", "rate", "cache.retention" */
    char place[160];
    char (*values)[OVER_VALUE_CHARS];
    char (*names)[OVER_NAME_CHARS]; /* as tables show the values, by sweep_settle */
    size_t n;
    char *text; /* as the file has it */
};

struct sweep {
    struct axis axes[SWEEP_MOST_AXES];
    size_t n_axes, n_points, n_seeds;
    struct campaign_point *runs; /* [n_points][n_seeds] */
    struct asked *asked;         /* one a point: its settings */
    struct sample *samples;      /* one a point, by sweep_settle */
    struct warnings *of_prices;  /* the same: one of them says that sources of prices differ */
    struct against against;      /* whom points are compared with; not given: the first system */
    size_t against_axis, against_at; /* its axis, and the place of its value */
    bool has_slo, has_bound;
};

/* Which value of an axis a point has; the value, and its name in tables. */
size_t sweep_place(const struct sweep *sweep, size_t point, size_t i_axis);
const char *sweep_value(const struct sweep *sweep, size_t point, size_t i_axis);
const char *sweep_name(const struct sweep *sweep, size_t point, size_t i_axis);

/* The axis of a key, as tables head it; n_axes: there is none. */
size_t sweep_axis(const struct sweep *sweep, const char *key);

/* Once the runs are there. */
void sweep_settle(struct sweep *sweep);

void sweep_print(const struct sweep *sweep, FILE *out);
json_t *sweep_json(const struct sweep *sweep);

#endif
