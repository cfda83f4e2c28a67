/* Pages of a pool that several requests may have at once: the loop says who has which
 * (sim/memory/page_cache.h), and here they are laid out as the kernels read them, and counted.
 *
 * A page that several have is written by the one that it was handed out to; its rows are the same
 * for all of them. */
#ifndef UNMASK_ENGINE_DEVICE_SHARED_PAGES_H
#define UNMASK_ENGINE_DEVICE_SHARED_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/memory/page_cache.h"

struct shared_pages {
    int32_t n, n_used, most_used; /* all, those that anyone has, the most at once so far */
    int32_t *tables;              /* [owners, most], in the order of an owner's rows */
    bool *writes;        /* [owners, most], whether the owner writes its rows of the page */
    int32_t *held;       /* [owners], pages in each table */
    uint32_t *n_holders; /* [n] */
    int32_t most;        /* that one owner may have */
};

void shared_pages_open(struct shared_pages *pages, int32_t n, uint32_t n_owners, int32_t most);
void shared_pages_close(struct shared_pages *pages);

/* The tables become what the lists say; owners that they do not name keep theirs. It is a mistake
 * of ours if a page is written by one owner while another writes or reads it, or if the lists'
 * cache counts other pages as held than these. */
void shared_pages_follow(struct shared_pages *pages, const struct page_lists *lists);

/* An owner gives up all of its pages. */
void shared_pages_give(struct shared_pages *pages, uint32_t owner);

static inline const int32_t *shared_pages_of(const struct shared_pages *pages, uint32_t owner) {
    return pages->tables + (int64_t)owner * pages->most;
}
static inline const bool *shared_pages_writes(const struct shared_pages *pages, uint32_t owner) {
    return pages->writes + (int64_t)owner * pages->most;
}

#endif
