#include "sim/memory/freed.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

static bool is_nobodys(const struct freed *freed, uint32_t at) {
    return freed->items[at].owner == FREED_BY_NOBODY;
}

void freed_init(struct freed *freed, uint32_t n_owners, int64_t pool_bytes) {
    /* An item of nobody's between any two owners', and as many again before a move to the front. */
    uint32_t room = 4 * n_owners + 4;
    *freed = (struct freed){.items = mem_zeroed(room, sizeof *freed->items), .room = room};
    freed_add(freed, FREED_BY_NOBODY, pool_bytes);
}

void freed_fini(struct freed *freed) {
    free(freed->items);
    freed->items = NULL;
}

void freed_add(struct freed *freed, uint32_t owner, int64_t bytes) {
    if (bytes == 0) {
        return;
    }
    if (freed->end > freed->begin && is_nobodys(freed, freed->end - 1) &&
        owner == FREED_BY_NOBODY) {
        freed->items[freed->end - 1].bytes += bytes;
        return;
    }
    if (freed->end == freed->room) {
        memmove(freed->items, freed->items + freed->begin,
                (freed->end - freed->begin) * sizeof *freed->items);
        freed->end -= freed->begin;
        freed->begin = 0;
    }
    ASSERT(freed->end < freed->room);
    freed->items[freed->end++] = (struct freed_pages){owner, bytes};
}

void freed_take(struct freed *freed, int64_t bytes) {
    while (bytes > 0) {
        ASSERT(freed->begin < freed->end);
        struct freed_pages *first = &freed->items[freed->begin];
        int64_t taken = bytes < first->bytes ? bytes : first->bytes;
        first->bytes -= taken;
        bytes -= taken;
        freed->begin += first->bytes == 0;
    }
}

static uint32_t find(const struct freed *freed, uint32_t owner) {
    uint32_t at = freed->begin;
    while (at < freed->end && freed->items[at].owner != owner) {
        at++;
    }
    return at;
}

int64_t freed_left(const struct freed *freed, uint32_t owner) {
    uint32_t at = find(freed, owner);
    return at < freed->end ? freed->items[at].bytes : 0;
}

int64_t freed_reclaim(struct freed *freed, uint32_t owner) {
    uint32_t at = find(freed, owner);
    if (at == freed->end) {
        return 0;
    }
    int64_t bytes = freed->items[at].bytes;
    bool joins = at > freed->begin && at + 1 < freed->end && is_nobodys(freed, at - 1) &&
                 is_nobodys(freed, at + 1);
    if (joins) {
        freed->items[at - 1].bytes += freed->items[at + 1].bytes;
    }
    uint32_t rest = at + 1 + joins;
    memmove(freed->items + at, freed->items + rest, (freed->end - rest) * sizeof *freed->items);
    freed->end -= 1 + joins;
    return bytes;
}
