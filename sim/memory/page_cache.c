#include "sim/memory/page_cache.h"

#include <stdlib.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

/* Of pages whose keys and values are not final: only the holder that gave them back may reclaim
 * them. */
static const uint32_t unfinished = UINT32_C(1) << 31;

void page_cache_init(struct page_cache *cache, uint32_t n, const struct page_watch *watch) {
    *cache = (struct page_cache){
        .n = n, .n_buckets = 1, .first_free = PAGE_NONE, .last_free = PAGE_NONE, .watch = *watch};
    while (cache->n_buckets < n) {
        cache->n_buckets *= 2;
    }
    cache->items = mem_unwritten(n + 1, sizeof *cache->items);
    /* Zero is an empty bucket: places are counted from 1, so that unused memory stays untouched. */
    cache->buckets = mem_zeroed(cache->n_buckets, sizeof *cache->buckets);
}

void page_cache_fini(struct page_cache *cache) {
    free(cache->items);
    free(cache->buckets);
}

/* ---- what can be found ---- */

static uint32_t *bucket_of(const struct page_cache *cache, uint32_t content, uint32_t number) {
    uint64_t mixed = ((uint64_t)content << 32 | number) * UINT64_C(0x9E3779B97F4A7C15);
    return &cache->buckets[(mixed ^ mixed >> 32) & (cache->n_buckets - 1)];
}

uint32_t page_cache_find(const struct page_cache *cache, uint32_t content, uint32_t number) {
    uint32_t at = *bucket_of(cache, content, number);
    while (at != 0 &&
           (cache->items[at - 1].content != content || cache->items[at - 1].number != number)) {
        at = cache->items[at - 1].bucket_next;
    }
    return at != 0 ? at - 1 : PAGE_NONE;
}

static void list_content(struct page_cache *cache, uint32_t page, uint32_t content,
                         uint32_t number) {
    uint32_t *bucket = bucket_of(cache, content, number);
    struct page *item = &cache->items[page];
    item->content = content;
    item->number = number;
    item->bucket_next = *bucket;
    *bucket = page + 1;
    cache->watch.content(cache->watch.state, cache->watch.replica, content, 1);
}

static void forget_content(struct page_cache *cache, uint32_t page) {
    struct page *item = &cache->items[page];
    uint32_t *link = bucket_of(cache, item->content, item->number), content = item->content;
    while (*link != page + 1) {
        link = &cache->items[*link - 1].bucket_next;
    }
    *link = item->bucket_next;
    item->content = PAGE_NONE;
    cache->watch.content(cache->watch.state, cache->watch.replica, content, -1);
}

/* ---- what is free ---- */

static void list_free(struct page_cache *cache, uint32_t page, bool is_first) {
    struct page *item = &cache->items[page];
    item->prev = is_first ? PAGE_NONE : cache->last_free;
    item->next = is_first ? cache->first_free : PAGE_NONE;
    *(item->prev != PAGE_NONE ? &cache->items[item->prev].next : &cache->first_free) = page;
    *(item->next != PAGE_NONE ? &cache->items[item->next].prev : &cache->last_free) = page;
    cache->n_listed++;
}

static void unlist_free(struct page_cache *cache, uint32_t page) {
    struct page *item = &cache->items[page];
    *(item->prev != PAGE_NONE ? &cache->items[item->prev].next : &cache->first_free) = item->next;
    *(item->next != PAGE_NONE ? &cache->items[item->next].prev : &cache->last_free) = item->prev;
    cache->n_listed--;
}

static uint32_t hand_out(struct page_cache *cache) {
    if (cache->n_handed_out < cache->n) {
        cache->items[cache->n_handed_out] = (struct page){.content = PAGE_NONE};
        return cache->n_handed_out++;
    }
    uint32_t page = cache->first_free;
    ASSERT(page != PAGE_NONE);
    unlist_free(cache, page);
    if (cache->items[page].content != PAGE_NONE) {
        cache->n_evicted++;
        forget_content(cache, page);
    }
    return page;
}

/* ---- who holds what ---- */

static void join(struct page_cache *cache, struct page_holder *holder, uint32_t id, uint32_t page) {
    struct page *item = &cache->items[page];
    const struct page_watch *watch = &cache->watch;
    bool is_first = item->n_holders == 0;
    if (!is_first && watch->since(watch->state, item->charged) > holder->since) {
        watch->charge(watch->state, item->charged, -1);
        is_first = true;
    }
    item->charged = is_first ? id : item->charged;
    holder->n_charged += is_first;
    item->n_holders++;
    cache->n_held += item->n_holders == 1;
    if (item->n_holders == 1 && item->content != PAGE_NONE) {
        cache->watch.content(cache->watch.state, cache->watch.replica, item->content, 0);
    }
}

static void leave(struct page_cache *cache, struct page_holder *holder, uint32_t id, uint32_t page,
                  bool is_first) {
    struct page *item = &cache->items[page];
    ASSERT(item->n_holders > 0);
    const struct page_watch *watch = &cache->watch;
    item->n_holders--;
    holder->n_charged -= item->charged == id;
    if (item->n_holders > 0 && item->charged == id) {
        item->charged = watch->heir(watch->state, watch->replica, item, id);
        watch->charge(watch->state, item->charged, 1);
    }
    if (item->n_holders > 0) {
        return;
    }
    cache->n_held--;
    list_free(cache, page, is_first);
    if (item->content != PAGE_NONE) {
        cache->watch.content(cache->watch.state, cache->watch.replica, item->content, 0);
    }
}

static void add_found(struct page_cache *cache, struct page_holder *holder, uint32_t page) {
    cache->items[page].before = holder->n_found > 0 ? holder->last_found : PAGE_NONE;
    holder->last_found = page;
    holder->n_found++;
}

static void add_own(struct page_cache *cache, struct page_holder *holder, uint32_t page) {
    struct page *item = &cache->items[page];
    item->writer = (uint32_t)holder->since;
    item->next = PAGE_NONE;
    item->prev = holder->n_own > 0 ? holder->last_own : PAGE_NONE;
    *(holder->n_own > 0 ? &cache->items[holder->last_own].next : &holder->first_own) = page;
    holder->last_own = page;
    holder->n_own++;
}

void page_cache_list(const struct page_cache *cache, const struct page_holder *holder,
                     int32_t *pages, bool *writes) {
    uint32_t page = holder->last_found;
    for (uint32_t i = holder->n_found; i > 0; i--) {
        pages[i - 1] = (int32_t)page;
        page = cache->items[page].before;
    }
    page = holder->first_own;
    for (uint32_t i = 0; i < holder->n_own; i++) {
        pages[holder->n_found + i] = (int32_t)page;
        page = cache->items[page].next;
    }
    for (uint32_t i = 0; i < holder_pages(holder); i++) {
        writes[i] = cache->items[pages[i]].writer == (uint32_t)holder->since;
    }
}

void page_cache_hold(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                     uint32_t page) {
    const struct page *item = &cache->items[page];
    ASSERT(holder->n_own == 0 && item->content != PAGE_NONE && item->number == holder->n_found);
    if (item->n_holders == 0) {
        unlist_free(cache, page);
    }
    join(cache, holder, id, page);
    add_found(cache, holder, page);
}

void page_cache_take(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                     uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = hand_out(cache);
        join(cache, holder, id, page);
        add_own(cache, holder, page);
    }
}

void page_cache_publish(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                        uint32_t content) {
    ASSERT(holder->n_own > 0);
    uint32_t page = holder->first_own, there = page_cache_find(cache, content, holder->n_found);
    holder->first_own = cache->items[page].next;
    holder->n_own--;
    if (holder->n_own > 0) {
        cache->items[holder->first_own].prev = PAGE_NONE;
    }
    if (there != PAGE_NONE) {
        leave(cache, holder, id, page, true);
        if (cache->items[there].n_holders == 0) {
            unlist_free(cache, there);
        }
        join(cache, holder, id, there);
        page = there;
    } else {
        list_content(cache, page, content, holder->n_found);
    }
    add_found(cache, holder, page);
}

void page_cache_release(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                        uint32_t content) {
    uint32_t page = holder->last_own;
    for (; holder->n_own > 0; holder->n_own--) {
        uint32_t prev = cache->items[page].prev;
        leave(cache, holder, id, page, false);
        if (content != PAGE_NONE) {
            uint32_t number = holder->n_found + holder->n_own - 1;
            list_content(cache, page, content, number | unfinished);
        }
        page = prev;
    }
    for (; holder->n_found > 0; holder->n_found--) {
        page = holder->last_found;
        holder->last_found = cache->items[page].before;
        leave(cache, holder, id, page, false);
    }
}

bool page_cache_reclaim(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                        uint32_t content) {
    uint32_t page = page_cache_find(cache, content, holder_pages(holder) | unfinished);
    if (page == PAGE_NONE) {
        return false;
    }
    forget_content(cache, page);
    unlist_free(cache, page);
    join(cache, holder, id, page);
    add_own(cache, holder, page);
    return true;
}
