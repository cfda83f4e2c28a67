/* Shared prefixes where a position sees the whole canvas (BiCache, arXiv 2606.07571, and its
 * released code): what leading layers make of a prefix that runs by itself is kept for requests to
 * come.
 *
 * A replica keeps as many tokens of them as settings.prefix_store_tokens says, each prefix in one
 * piece, named by content (contents.h); the one used longest ago makes room. A request that is
 * admitted takes a copy of what is there; one that finds nothing runs its prefix by itself first,
 * which is then kept. */
#ifndef UNMASK_SIM_SERVE_KEPT_PREFIXES_H
#define UNMASK_SIM_SERVE_KEPT_PREFIXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

struct lifecycle;
struct replica;

struct kept_prefix {
    uint32_t content; /* used (contents.h) */
    uint32_t tokens, first;
    uint64_t used; /* when last, by the replica's count */
};

/* Of a replica, in order of `first`. */
struct kept_prefixes {
    struct kept_prefix *items;
    size_t n, room;
    uint64_t n_uses;
    bool changed; /* since those that wait were looked at */
};

void kept_prefixes_fini_replica(struct lifecycle *life, struct replica *replica);

/* A request waits at a replica, for the first time or again: if its prefix is kept the step after
 * the one that would run it by itself is planned. */
int kept_prefixes_wait(struct lifecycle *life, uint32_t slot, struct err *err);

/* The same of all that wait there, if what is kept has changed. */
int kept_prefixes_refresh(struct lifecycle *life, struct replica *replica, struct err *err);

/* It is admitted, and takes what was found. */
int kept_prefixes_take(struct lifecycle *life, struct replica *replica, uint32_t slot,
                       struct err *err);

/* The step that ran its prefix by itself is done. */
int kept_prefixes_keep(struct lifecycle *life, struct replica *replica, uint32_t slot,
                       struct err *err);

#endif
