/* Estimates for what a scheduler considers, and checks of what it selected: a user's scheduler is
 * held to its promises in every run. */
#ifndef UNMASK_SIM_SERVE_SELECTION_H
#define UNMASK_SIM_SERVE_SELECTION_H

#include "sim/serve/lifecycle.h"

struct estimator {
    const struct lifecycle *life;
    const struct replica *replica;
    struct err *err; /* of a question that is none, in a trial; else NULL */
};

/* A scheduler's estimates (state: struct estimator); 0 for an empty batch. */
int64_t selection_estimate_ns(const void *opaque, const struct batch *batch);
double selection_estimate_joules(const void *opaque, const struct batch *batch);

/* A scheduler's view of what is to come (scheduler.h): passes of the request in `slot`, and the
 * duration of a step of such. */
void selection_foresee(const void *opaque, uint32_t slot, struct pass_ahead *passes,
                       uint32_t capacity, struct outlook *out);
int64_t selection_estimate_spans_ns(const void *opaque, const struct span *const *spans,
                                    uint32_t n);

/* The masked positions of a request's window (scheduler.h). */
uint32_t selection_look(const void *opaque, uint32_t slot, struct masked_seen *out,
                        uint32_t capacity);

/* A scheduler may list each of its replica's requests once, and admit and let grow only what there
 * is room for. ERR_WORLD naming the first thing that is not so. */
int selection_check(struct lifecycle *life, const struct replica *replica, uint32_t index,
                    const struct schedule_view *view, const struct batch *batch, struct err *err);

/* ERR_WORLD: "scheduler X broke its promise at T s: WHAT (FOUND of at most LIMIT)". */
int selection_refuse(const struct lifecycle *life, const char *what, int64_t found, int64_t limit,
                     struct err *err);

/* Nothing is selected although an idle replica could run its first request: that may not go on for
 * ever. */
int selection_postpone(const struct lifecycle *life, struct replica *replica, int64_t wake_ns,
                       struct err *err);

#endif
