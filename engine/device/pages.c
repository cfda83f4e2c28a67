#include "engine/device/pages.h"

#include <stdlib.h>

#include "sim/base/mem.h"

void pages_open(struct pages *pages, int32_t n, uint32_t n_owners, int32_t most) {
    *pages = (struct pages){.n = n, .n_free = n, .most = most};
    pages->free = mem_zeroed((size_t)n, sizeof *pages->free);
    pages->tables = mem_reserved((size_t)n_owners * (size_t)most, sizeof *pages->tables);
    pages->held = mem_reserved(n_owners, sizeof *pages->held);
    for (int32_t i = 0; i < n; i++) {
        pages->free[i] = n - 1 - i;
    }
}

void pages_close(struct pages *pages) {
    free(pages->free);
    mem_released(pages->tables);
    mem_released(pages->held);
    *pages = (struct pages){0};
}

bool pages_grow(struct pages *pages, uint32_t owner, int64_t n) {
    int32_t *table = pages->tables + (int64_t)owner * pages->most;
    int32_t *held = &pages->held[owner];
    if (n > pages->most || n - *held > pages->n_free) {
        return false;
    }
    while (*held < n) {
        table[(*held)++] = pages->free[--pages->n_free];
    }
    int32_t used = pages->n - pages->n_free;
    pages->most_used = used > pages->most_used ? used : pages->most_used;
    return true;
}

void pages_give(struct pages *pages, uint32_t owner) {
    const int32_t *table = pages_of(pages, owner);
    int32_t *held = &pages->held[owner];
    while (*held > 0) {
        pages->free[pages->n_free++] = table[--*held];
    }
}

bool pages_are_whole(struct pages *pages) {
    int32_t *free = pages->free;
    bool is_whole = pages->n_free == pages->n;
    /* A page that was seen has its mark at its own index: that entry's bits are flipped. */
    for (int32_t i = 0; is_whole && i < pages->n; i++) {
        int32_t page = free[i] < 0 ? ~free[i] : free[i];
        is_whole = page < pages->n && free[page] >= 0;
        if (is_whole) {
            free[page] = ~free[page];
        }
    }
    for (int32_t i = 0; i < pages->n; i++) {
        free[i] = free[i] < 0 ? ~free[i] : free[i];
    }
    return is_whole;
}
