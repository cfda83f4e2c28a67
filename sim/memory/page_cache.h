/* The pages of one replica under prefix caching: who holds them, what is in them, and which is
 * handed out next.
 *
 * A page whose keys and values are final can be found by its content and its place in a canvas, and
 * several requests may hold it: it is in the pool once. A page without a holder keeps its content
 * until it is handed out again: the longest free one first, and of those that one request gave back
 * together the last ones first, so that what is left of a prompt is its beginning (vLLM V1:
 * KVCacheManager.free and BlockPool; SGLang's radix cache evicts the least recently used leaf,
 * which is the same page). A page that is held is never handed out.
 *
 * Each page that is held is charged to the holder that holds pages for longest. If they give theirs
 * back in the reverse order of that, as schedulers do who preempt the one admitted last, what each
 * gives back is what it was charged with.
 *
 * The pages of a holder are first those that can be found, in order from its canvas's start, then
 * its own, which no other holder can find yet. A found page has the same page before it in every
 * canvas (contents.h), which is why one link is enough for all of its holders. */
#ifndef UNMASK_SIM_MEMORY_PAGE_CACHE_H
#define UNMASK_SIM_MEMORY_PAGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { PAGE_NONE = UINT32_MAX };

struct page {
    uint32_t content, number; /* under which it is found; content PAGE_NONE: it is not */
    uint32_t before;          /* of a found page: the one before it in its holders' canvases */
    uint32_t prev, next;      /* among its holder's own pages, or among the free ones */
    uint32_t n_holders;
    uint32_t charged; /* the one of them that holds pages for longest */
    uint32_t writer;  /* the lower half of `since` of the holder that it was handed out to last */
    uint32_t bucket_next;
};

struct page_holder {
    uint32_t n_found, last_found;
    uint32_t n_own, first_own, last_own;
    uint32_t
        n_charged;  /* of all its pages, those that no one has held who holds pages for longer */
    uint64_t since; /* when it began to hold pages, by the caller's count; no two alike */
};

/* All who hold pages of a replica. */
struct page_lists {
    const struct page_cache *cache;
    struct page_list {
        uint32_t owner;
        const struct page_holder *holder;
    } * items;
    uint32_t n;
};

/* Callbacks on changes; they may not change pages themselves. */
struct page_watch {
    void *state;
    uint32_t replica;
    /* `holder` is charged with a page more or less, through no doing of its own. */
    void (*charge)(void *state, uint32_t holder, int by);
    /* Of the holders of a found page but for `leaver`, the one that holds pages for longest. */
    uint32_t (*heir)(void *state, uint32_t replica, const struct page *page, uint32_t leaver);
    /* When a holder began to hold pages. */
    uint64_t (*since)(void *state, uint32_t holder);
    /* A page of this content can be found that could not be, or the reverse (by 1, -1); or it is
     * held or free now, and was not (0). */
    void (*content)(void *state, uint32_t replica, uint32_t content, int by);
};

struct page_cache {
    struct page *items;
    uint32_t n, n_held;
    uint32_t n_handed_out; /* at least once: those from here on have never been used */
    uint32_t n_listed, first_free, last_free;
    uint32_t *buckets; /* a hash table of found pages, `n_buckets` of them, a power of two */
    uint32_t n_buckets;
    uint64_t n_evicted; /* found pages that were handed out again */
    struct page_watch watch;
};

void page_cache_init(struct page_cache *cache, uint32_t n, const struct page_watch *watch);
void page_cache_fini(struct page_cache *cache);

/* PAGE_NONE: no page of the content has this number. */
uint32_t page_cache_find(const struct page_cache *cache, uint32_t content, uint32_t number);

static inline bool page_cache_is_held(const struct page_cache *cache, uint32_t page) {
    return cache->items[page].n_holders > 0;
}
static inline uint32_t page_cache_free(const struct page_cache *cache) {
    return cache->n - cache->n_held;
}
static inline uint32_t holder_pages(const struct page_holder *holder) {
    return holder->n_found + holder->n_own;
}

/* Its pages in the order of its canvas: [holder_pages]; and of each whether its rows are written by
 * the holder itself, which they are not if another had the page first. */
void page_cache_list(const struct page_cache *cache, const struct page_holder *holder,
                     int32_t *pages, bool *writes);

/* `holder`, whose id is `id` and who has no pages of its own yet, holds a found page as well, which
 * is the next one of its canvas. */
void page_cache_hold(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                     uint32_t page);

/* `n` free pages, of which there are as many, become its own. */
void page_cache_take(struct page_cache *cache, struct page_holder *holder, uint32_t id, uint32_t n);

/* The first of its own pages is found as its next one from now on. Where there is such a page
 * already, it holds that one, and its own is free, with nothing in it. */
void page_cache_publish(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                        uint32_t content);

/* It gives all its pages back. Those of its own can be found under `content` and the place that
 * they had in its canvas, but only by page_cache_reclaim; PAGE_NONE: no more. */
void page_cache_release(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                        uint32_t content);

/* Its own page again, if that was not handed out since: the next one of its canvas. */
bool page_cache_reclaim(struct page_cache *cache, struct page_holder *holder, uint32_t id,
                        uint32_t content);

#endif
