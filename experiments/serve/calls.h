/* Calls by the id of their requests: a table of twice as many places as there may be. */
#ifndef UNMASK_EXPERIMENTS_SERVE_CALLS_H
#define UNMASK_EXPERIMENTS_SERVE_CALLS_H

#include "experiments/serve/call.h"

struct calls {
    struct call **by_id; /* [n_places], a power of two, owned; the calls are not */
    uint32_t n_places, n;
};

void calls_open(struct calls *calls, uint32_t capacity);
void calls_close(struct calls *calls);

struct call *calls_find(const struct calls *calls, uint64_t id); /* NULL: there is none */
void calls_put(struct calls *calls, struct call *call);
void calls_take_away(struct calls *calls, const struct call *call); /* it is there */

void call_free(struct call *call); /* NULL is fine */

#endif
