#include "engine/device/shared_pages.h"

#include <stdlib.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

void shared_pages_open(struct shared_pages *pages, int32_t n, uint32_t n_owners, int32_t most) {
    const size_t n_entries = (size_t)n_owners * (size_t)most;
    *pages = (struct shared_pages){.n = n, .most = most};
    pages->tables = mem_reserved(n_entries, sizeof *pages->tables);
    pages->writes = mem_reserved(n_entries, sizeof *pages->writes);
    pages->held = mem_reserved(n_owners, sizeof *pages->held);
    pages->n_holders = mem_zeroed((size_t)n, sizeof *pages->n_holders);
}

void shared_pages_close(struct shared_pages *pages) {
    mem_released(pages->tables);
    mem_released(pages->writes);
    mem_released(pages->held);
    free(pages->n_holders);
    *pages = (struct shared_pages){0};
}

void shared_pages_give(struct shared_pages *pages, uint32_t owner) {
    const int32_t *table = shared_pages_of(pages, owner);
    int32_t *held = &pages->held[owner];
    while (*held > 0) {
        uint32_t *n_holders = &pages->n_holders[table[--*held]];
        ASSERT(*n_holders > 0);
        pages->n_used -= --*n_holders == 0;
    }
}

static void take(struct shared_pages *pages, const struct page_lists *lists,
                 const struct page_list *list) {
    const int64_t first = (int64_t)list->owner * pages->most;
    const uint32_t n = holder_pages(list->holder);
    ASSERT(n <= (uint32_t)pages->most);
    page_cache_list(lists->cache, list->holder, pages->tables + first, pages->writes + first);
    for (uint32_t i = 0; i < n; i++) {
        const int32_t page = pages->tables[first + i];
        ASSERT(page >= 0 && page < pages->n);
        pages->n_used += pages->n_holders[page]++ == 0;
    }
    pages->held[list->owner] = (int32_t)n;
}

void shared_pages_follow(struct shared_pages *pages, const struct page_lists *lists) {
    for (uint32_t i = 0; i < lists->n; i++) {
        shared_pages_give(pages, lists->items[i].owner);
    }
    for (uint32_t i = 0; i < lists->n; i++) {
        take(pages, lists, &lists->items[i]);
    }
    for (uint32_t i = 0; i < lists->n; i++) {
        const struct page_list *list = &lists->items[i];
        const int32_t *table = shared_pages_of(pages, list->owner);
        for (uint32_t own = list->holder->n_found; own < holder_pages(list->holder); own++) {
            ASSERT(pages->n_holders[table[own]] == 1);
        }
    }
    ASSERT((uint32_t)pages->n_used == lists->cache->n_held);
    pages->most_used = pages->n_used > pages->most_used ? pages->n_used : pages->most_used;
}
