/* Freed pages, in the order in which a pool with prefix caching hands them out again.
 *
 * What a request gave back keeps its keys and values until somebody takes the pages: the longest
 * freed first, and of one request's pages the last ones first, so that what is left is the
 * beginning (vLLM V1: KVCacheManager.free and BlockPool). A preempted request that comes back in
 * time computes only what is gone. */
#ifndef UNMASK_SIM_MEMORY_FREED_H
#define UNMASK_SIM_MEMORY_FREED_H

#include <stdint.h>

enum { FREED_BY_NOBODY = UINT32_MAX };

struct freed_pages {
    uint32_t owner; /* a slot, or FREED_BY_NOBODY: contents that no one comes back for */
    int64_t bytes;
};

/* From the longest freed on: items[begin] to items[end - 1]. */
struct freed {
    struct freed_pages *items;
    uint32_t begin, end, room;
};

/* A pool of which everything is free; at most `n_owners` come back at once. */
void freed_init(struct freed *freed, uint32_t n_owners, int64_t pool_bytes);
void freed_fini(struct freed *freed);

/* `owner` gives `bytes` back; it owns none yet. */
void freed_add(struct freed *freed, uint32_t owner, int64_t bytes);

/* Take what has been free for longest. */
void freed_take(struct freed *freed, int64_t bytes);

/* What is left of the owner's pages; and the same, taken back by it. */
int64_t freed_left(const struct freed *freed, uint32_t owner);
int64_t freed_reclaim(struct freed *freed, uint32_t owner);

#endif
