/* What an eviction leaves of a step: for each span the queries that go on, in the arrays of a step
 * of their own. */
#ifndef UNMASK_ENGINE_SESSION_REST_H
#define UNMASK_ENGINE_SESSION_REST_H

#include "engine/session/members.h"

struct rest {
    struct members *members; /* NULL: the system's steps evict nothing */
    struct part_arrays left;
    struct span *spans;            /* [max_requests] */
    const struct span **span_list; /* the same */
    struct step_shape shape;
    float *delta; /* [block_tokens] */
};

/* All zero where nothing is evicted. */
void rest_open(struct rest *rest, struct members *members);
void rest_close(struct rest *rest);

/* A step's evict (step.h), with the rest of the members that planned it, whose decisions are those
 * of the rest from then on. */
int rest_evict(void *rest, const struct eviction *seen, struct step *out, struct err *err);

#endif
