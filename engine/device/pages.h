/* Pages of a pool: which are free, and which each owner has, in the order of its rows. */
#ifndef UNMASK_ENGINE_DEVICE_PAGES_H
#define UNMASK_ENGINE_DEVICE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct pages {
    int32_t n, n_free, most_used; /* all, those without an owner, the most in use so far */
    int32_t *free;                /* [n], the next one to be taken last */
    int32_t *tables;              /* [owners, most] */
    int32_t *held;                /* [owners], pages in each table */
    int32_t most;                 /* that one owner may have */
};

/* At first the lowest pages are taken first. Exits when memory runs out. */
void pages_open(struct pages *pages, int32_t n, uint32_t n_owners, int32_t most);
void pages_close(struct pages *pages);

/* An owner gets as many as it lacks of `n` pages; false, and nothing is changed, when too few are
 * free or the owner may not have that many. */
bool pages_grow(struct pages *pages, uint32_t owner, int64_t n);

/* An owner gives all of its pages back. */
void pages_give(struct pages *pages, uint32_t owner);

/* Whether every page is free, and free once. */
bool pages_are_whole(struct pages *pages);

static inline const int32_t *pages_of(const struct pages *pages, uint32_t owner) {
    return pages->tables + (int64_t)owner * pages->most;
}

#endif
