/* The pages of prefix caching, against a model that looks at every page; and who begins like whom.
 */
#include <string.h>

#include "sim/base/rng.h"
#include "sim/memory/page_cache.h"
#include "sim/serve/contents.h"
#include "tests/support/suite.h"

/* ck_assert tells another process of itself each time, which is slow. */
#define MUST(holds)                                                                                \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            ck_abort_msg("%s", #holds);                                                            \
        }                                                                                          \
    } while (0)

/* ---- pages ---- */

enum { HOLDERS = 6, LONGEST = 12, MOST_PAGES = 40 };

/* Holder i's canvas is content i, which begins as its parent's does; parents come first. */
static const struct {
    uint32_t parent, shared;
} canvases[HOLDERS] = {{PAGE_NONE, 0}, {0, 4}, {1, 6}, {PAGE_NONE, 0}, {3, 9}, {4, 3}};

static uint32_t content_at(uint32_t canvas, uint32_t number) {
    while (canvases[canvas].parent != PAGE_NONE && number < canvases[canvas].shared) {
        canvas = canvases[canvas].parent;
    }
    return canvas;
}

enum { FREE_LEFT = 1 << 8 }; /* a page of this content that only who left it may take back */

/* What every page should be: found under a content and a number, by whom it is held, since when it
 * is free. */
struct model_page {
    uint32_t content, number;
    bool held[HOLDERS];
    uint64_t writer; /* since when it holds pages to whom it was handed out */
};

struct model {
    struct page_cache cache;
    struct page_holder holders[HOLDERS];
    struct model_page pages[MOST_PAGES];
    uint32_t order[MOST_PAGES], n_free; /* the next to be handed out first */
    uint32_t chain[HOLDERS][LONGEST], length[HOLDERS], found[HOLDERS];
    bool left[HOLDERS];
    int64_t n_contents; /* by the watch */
    uint32_t n_taken_found;
};

static void on_charge(void *state, uint32_t holder, int by) {
    struct model *model = state;
    model->holders[holder].n_charged += (uint32_t)by;
}

/* Of those that hold the page, the one that holds any for longest; HOLDERS: no one does. */
static uint32_t longest_holder(const struct model *model, uint32_t page, uint32_t but) {
    uint32_t longest = HOLDERS;
    for (uint32_t i = 0; i < HOLDERS; i++) {
        bool holds = i != but && model->pages[page].held[i];
        bool is_longer =
            longest == HOLDERS || model->holders[i].since < model->holders[longest].since;
        longest = holds && is_longer ? i : longest;
    }
    return longest;
}

static uint32_t on_heir(void *state, uint32_t replica, const struct page *page, uint32_t leaver) {
    struct model *model = state;
    (void)replica;
    return longest_holder(model, (uint32_t)(page - model->cache.items), leaver);
}

static uint64_t on_since(void *state, uint32_t holder) {
    return ((struct model *)state)->holders[holder].since;
}

static void on_content(void *state, uint32_t replica, uint32_t content, int by) {
    struct model *model = state;
    (void)replica, (void)content;
    model->n_contents += by;
}

static uint32_t model_find(const struct model *model, uint32_t content, uint32_t number) {
    for (uint32_t i = 0; i < model->cache.n; i++) {
        if (model->pages[i].content == content && model->pages[i].number == number) {
            return i;
        }
    }
    return PAGE_NONE;
}

static uint32_t n_holding(const struct model *model, uint32_t page) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < HOLDERS; i++) {
        n += model->pages[page].held[i];
    }
    return n;
}

static void model_unlist(struct model *model, uint32_t page) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < model->n_free; i++) {
        model->order[kept] = model->order[i];
        kept += model->order[i] != page;
    }
    model->n_free = kept;
}

static void model_join(struct model *model, uint32_t holder, uint32_t page) {
    model_unlist(model, page);
    model->pages[page].held[holder] = true;
    model->chain[holder][model->length[holder]++] = page;
}

static void model_leave(struct model *model, uint32_t holder, uint32_t page, bool is_first) {
    model->pages[page].held[holder] = false;
    if (n_holding(model, page) == 0) {
        /* Those that were never used come before all. */
        uint32_t unused = model->cache.n - model->cache.n_handed_out;
        uint32_t at = is_first ? unused : model->n_free;
        memmove(model->order + at + 1, model->order + at, (model->n_free - at) * sizeof(uint32_t));
        model->order[at] = page;
        model->n_free++;
    }
}

/* A page that is handed out is a leaf: no page that can be found comes after it. */
static void model_take(struct model *model, uint32_t holder) {
    uint32_t page = model->order[0];
    struct model_page *taken = &model->pages[page];
    if (taken->content < HOLDERS) {
        model->n_taken_found++;
        for (uint32_t canvas = 0; canvas < HOLDERS; canvas++) {
            bool passes = content_at(canvas, taken->number) == taken->content;
            uint32_t next = content_at(canvas, taken->number + 1);
            MUST(!passes || model_find(model, next, taken->number + 1) == PAGE_NONE);
        }
    }
    taken->content = PAGE_NONE;
    taken->writer = model->holders[holder].since;
    model_join(model, holder, page);
}

/* As those read it who lay pages out: [LONGEST]. */
static void check_list(const struct model *model, uint32_t holder) {
    int32_t pages[LONGEST];
    bool writes[LONGEST];
    const struct page_holder *held = &model->holders[holder];
    page_cache_list(&model->cache, held, pages, writes);
    for (uint32_t i = 0; i < holder_pages(held); i++) {
        MUST(pages[i] == (int32_t)model->chain[holder][i]);
        MUST(writes[i] == (model->pages[pages[i]].writer == held->since));
        MUST(writes[i] || i < held->n_found);
    }
}

static void check_model(const struct model *model) {
    const struct page_cache *cache = &model->cache;
    uint32_t n_held = 0, at = cache->first_free;
    int64_t n_contents = 0;
    for (uint32_t i = 0; i < cache->n; i++) {
        n_held += n_holding(model, i) > 0;
        n_contents += model->pages[i].content != PAGE_NONE;
    }
    MUST(cache->n_held == n_held);
    MUST(page_cache_free(cache) == model->n_free);
    MUST(model->n_contents == n_contents);
    for (uint32_t i = 0; i < model->n_free; i++) {
        if (model->order[i] < cache->n_handed_out) {
            MUST(model->order[i] == at);
            at = cache->items[at].next;
        }
    }
    MUST(at == PAGE_NONE);
    for (uint32_t holder = 0; holder < HOLDERS; holder++) {
        uint32_t charged = 0;
        for (uint32_t i = 0; i < model->length[holder]; i++) {
            charged += longest_holder(model, model->chain[holder][i], HOLDERS) == holder;
        }
        MUST(holder_pages(&model->holders[holder]) == model->length[holder]);
        MUST(model->holders[holder].n_charged == charged);
        check_list(model, holder);
    }
    for (uint32_t content = 0; content < HOLDERS; content++) {
        for (uint32_t number = 0; number < LONGEST; number++) {
            MUST(page_cache_find(cache, content, number) == model_find(model, content, number));
        }
    }
}

static void start(struct model *model, uint32_t holder, uint32_t most) {
    struct page_holder *held = &model->holders[holder];
    for (uint32_t k = 0; k < most; k++) {
        uint32_t page = model_find(model, content_at(holder, k), k);
        if (page == PAGE_NONE) {
            break;
        }
        page_cache_hold(&model->cache, held, holder, page);
        model_join(model, holder, page);
        model->found[holder]++;
    }
    while (model->left[holder] && model->length[holder] < LONGEST) {
        uint32_t number = model->length[holder];
        uint32_t page = model_find(model, holder | FREE_LEFT, number);
        bool there = page_cache_reclaim(&model->cache, held, holder, holder);
        MUST(there == (page != PAGE_NONE));
        if (!there) {
            break;
        }
        model->pages[page].content = PAGE_NONE;
        model->pages[page].writer = held->since;
        model_join(model, holder, page);
    }
}

static void publish(struct model *model, uint32_t holder) {
    uint32_t k = model->found[holder], content = content_at(holder, k);
    uint32_t own = model->chain[holder][k], there = model_find(model, content, k);
    page_cache_publish(&model->cache, &model->holders[holder], holder, content);
    if (there != PAGE_NONE) {
        model_leave(model, holder, own, true);
        model_unlist(model, there);
        model->pages[there].held[holder] = true;
        model->chain[holder][k] = there;
    } else {
        model->pages[own].content = content;
        model->pages[own].number = k;
    }
    model->found[holder]++;
}

static void stop(struct model *model, uint32_t holder, bool returns) {
    page_cache_release(&model->cache, &model->holders[holder], holder,
                       returns ? holder : PAGE_NONE);
    for (uint32_t i = model->length[holder]; i-- > 0;) {
        uint32_t page = model->chain[holder][i];
        model_leave(model, holder, page, false);
        if (i >= model->found[holder] && returns) {
            model->pages[page].content = holder | FREE_LEFT;
            model->pages[page].number = i;
        }
    }
    model->left[holder] = returns;
    model->length[holder] = model->found[holder] = 0;
}

/* Whether pages are about that it left and did not take back. */
static bool left_any(const struct model *model, uint32_t holder) {
    bool any = false;
    for (uint32_t i = 0; i < model->cache.n; i++) {
        any = any || model->pages[i].content == (holder | FREE_LEFT);
    }
    return any;
}

static void run_model(uint64_t seed, uint32_t n_pages) {
    struct model model = {.n_free = n_pages};
    struct rng rng = rng_stream(seed, "pages");
    const struct page_watch watch = {&model, 0, on_charge, on_heir, on_since, on_content};
    page_cache_init(&model.cache, n_pages, &watch);
    for (uint32_t i = 0; i < n_pages; i++) {
        model.pages[i].content = PAGE_NONE;
        model.order[i] = i;
    }
    for (int turn = 0; turn < 3000; turn++) {
        uint32_t holder = (uint32_t)(rng_next(&rng) % HOLDERS);
        uint32_t choice = (uint32_t)(rng_next(&rng) % 4);
        if (model.length[holder] == 0) {
            model.holders[holder].since = (uint64_t)turn + 1;
            start(&model, holder, (uint32_t)(rng_next(&rng) % LONGEST));
            model.left[holder] = false;
        }
        if (choice == 0 && model.length[holder] > 0) {
            stop(&model, holder, rng_next(&rng) % 2 == 0 && !left_any(&model, holder));
        } else if (choice == 1 && model.found[holder] < model.length[holder]) {
            publish(&model, holder);
        } else if (model.n_free > 0 && model.length[holder] < LONGEST - 1) {
            page_cache_take(&model.cache, &model.holders[holder], holder, 1);
            model_take(&model, holder);
        }
        check_model(&model);
    }
    ck_assert_uint_gt(model.n_taken_found, 20);
    ck_assert_uint_le(model.n_taken_found, model.cache.n_evicted);
    page_cache_fini(&model.cache);
}

TEST(pages_are_held_by_many_counted_once_and_handed_out_oldest_leaf_first) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        run_model(seed, 12 + (uint32_t)seed);
    }
}

/* ---- contents ---- */

static struct arrival arrival_of(uint64_t id, uint32_t prompt, uint32_t prefix) {
    return (struct arrival){
        .id = id, .prompt_tokens = prompt, .output_tokens = 8, .prefix_tokens = prefix};
}

static uint32_t arrive(struct contents *contents, const struct arrival *arrival) {
    return contents_arrive(contents, arrival);
}

static uint64_t whose(const struct contents *contents, uint32_t content, uint32_t end) {
    uint32_t until;
    uint32_t at = contents_at(contents, content, end, &until);
    ck_assert_uint_ge(until, end);
    return contents->items[at].id;
}

TEST(prompts_begin_like_the_longest_earlier_one_of_their_group) {
    struct contents contents;
    contents_init(&contents, 4);
    struct arrival first = arrival_of(0, 500, 0), second = arrival_of(1, 400, 300),
                   other = arrival_of(2, 400, 300), longer = arrival_of(3, 900, 800),
                   last = arrival_of(4, 900, 850);
    other.tenant = 7;
    uint32_t a = arrive(&contents, &first), b = arrive(&contents, &second);
    ck_assert_uint_eq(whose(&contents, a, 1), 1);
    ck_assert_uint_eq(whose(&contents, b, 300), 1);
    ck_assert_uint_eq(whose(&contents, b, 301), 2);
    /* Another tenant's first. */
    ck_assert_uint_eq(whose(&contents, arrive(&contents, &other), 1), 3);
    /* No earlier prompt is as long as it shares: all of the longest. */
    uint32_t c = arrive(&contents, &longer);
    ck_assert_uint_eq(whose(&contents, c, 500), 1);
    ck_assert_uint_eq(whose(&contents, c, 501), 4);
    uint32_t d = arrive(&contents, &last);
    ck_assert_uint_eq(whose(&contents, d, 500), 1);
    ck_assert_uint_eq(whose(&contents, d, 850), 4);
    ck_assert_uint_eq(whose(&contents, d, 851), 5);
    contents_fini(&contents);
}

TEST(a_prompt_begins_with_what_is_left_under_a_name) {
    struct contents contents;
    contents_init(&contents, 4);
    struct arrival first = arrival_of(0, 100, 0), second = arrival_of(1, 200, 108),
                   third = arrival_of(2, 300, 208), strange = arrival_of(3, 50, 20),
                   again = arrival_of(4, 50, 20);
    first.leaves = 11;
    second.shares = 11, second.leaves = 12;
    third.shares = 12;
    strange.shares = again.shares = 99;
    (void)arrive(&contents, &first);
    (void)arrive(&contents, &second);
    uint32_t c = arrive(&contents, &third);
    ck_assert_uint_eq(whose(&contents, c, 108), 1);
    ck_assert_uint_eq(whose(&contents, c, 109), 2);
    ck_assert_uint_eq(whose(&contents, c, 209), 3);
    uint32_t d = arrive(&contents, &strange), e = arrive(&contents, &again);
    ck_assert_uint_eq(whose(&contents, d, 20), whose(&contents, e, 20));
    ck_assert_uint_ne(whose(&contents, d, 21), whose(&contents, e, 21));
    contents_fini(&contents);
}

/* However many names there are: each that shares under one begins like who left it last. */
TEST(thousands_of_names_lead_each_to_its_own) {
    enum { N = 3000, NAMES = 1100 };
    struct contents contents;
    uint32_t left[NAMES] = {0};
    contents_init(&contents, 4);
    for (uint32_t i = 0; i < N; i++) {
        struct arrival arrival = arrival_of(i, 100, i < NAMES ? 0 : 50);
        uint32_t name = i * 7919 % NAMES;
        arrival.leaves = 1 + name * UINT64_C(1000003);
        arrival.shares = i < NAMES ? 0 : arrival.leaves;
        arrival.tenant = i; /* of no one's group */
        uint32_t content = arrive(&contents, &arrival);
        ck_assert_uint_eq(whose(&contents, content, 51), i + 1);
        ck_assert_uint_eq(whose(&contents, content, 50),
                          i < NAMES ? i + 1 : whose(&contents, left[name], 50));
        left[name] = content;
    }
    contents_fini(&contents);
}

TEST(contents_that_no_one_needs_are_used_again) {
    struct contents contents;
    contents_init(&contents, 4);
    for (uint64_t i = 0; i < 100000; i++) {
        struct arrival arrival = arrival_of(i, 10 + (uint32_t)(i % 1000), i % 3 == 0 ? 5 : 0);
        contents_drop(&contents, arrive(&contents, &arrival));
    }
    ck_assert_uint_lt(contents.n, 16);
    contents_fini(&contents);
}

SUITE("page_cache")
