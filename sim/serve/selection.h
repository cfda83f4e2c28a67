/* What a scheduler selected, held to its promises: a user's scheduler is checked in every run. */
#ifndef UNMASK_SIM_SERVE_SELECTION_H
#define UNMASK_SIM_SERVE_SELECTION_H

#include "sim/serve/lifecycle.h"

/* A scheduler may list each of its replica's requests once, and admit and let grow only what there
 * is room for. ERR_WORLD naming the first thing that is not so. */
int selection_check(struct lifecycle *life, const struct replica *replica, uint32_t index,
                    const struct schedule_view *view, const struct batch *batch, struct err *err);

/* ERR_WORLD: "scheduler X broke its promise at T s: WHAT (FOUND of at most LIMIT)". */
int selection_refuse(const struct lifecycle *life, const char *what, int64_t found, int64_t limit,
                     struct err *err);

#endif
