/* The picture of a plan, `--picture FILE.svg`: buffers as rectangles, offset over time, with the
 * live bytes and the levels that they are held to. A rectangle's name and size show where the mouse
 * points.
 */
#ifndef UNMASK_EXPERIMENTS_COMMAND_PLAN_PICTURE_H
#define UNMASK_EXPERIMENTS_COMMAND_PLAN_PICTURE_H

#include "experiments/run/cli/options.h"
#include "sim/step/graph.h"

/* --picture */
extern const struct option picture_options[];

enum { PLAN_NAME_CHARS = 96 };

struct plan_block {
    char name[PLAN_NAME_CHARS];
    unsigned kind;    /* of `kinds` */
    int64_t from, to; /* live from `from` up to, not including, `to` */
    int64_t low_bytes, bytes;
};

struct plan_map {
    char title[320];
    const char *x_label;
    const char *const *times;  /* names of the times from 0 on; NULL: numbers */
    const struct graph *graph; /* whose segments are marked off; NULL: none */
    const char *const *kinds;
    unsigned n_kinds;
    struct plan_block *blocks; /* at least one */
    size_t n_blocks;
    int64_t peak_bytes, lower_bound_bytes, capacity_bytes; /* 0: none was asked for */
};

/* Whether what --picture asks for, if it is given, can be drawn; ERR_USAGE before anything is
 * planned. Comparing planners makes no one plan to draw. */
int plan_picture_check(const struct options *options, bool compares, struct err *err);

/* Does nothing unless --picture is given. */
int plan_picture_draw(const struct options *options, const struct plan_map *map, struct err *err);

#endif
