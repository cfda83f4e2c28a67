/* Pages of a thread pool: nobody's twice, none lost, whatever is taken and given back. */
#include "engine/device/pages.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

enum { N_PAGES = 40, N_OWNERS = 7, MOST = 12 };

/* Every page is free or one owner's. */
static void check_pages(const struct pages *pages) {
    int seen[N_PAGES] = {0}, used = 0;
    for (int32_t i = 0; i < pages->n_free; i++) {
        seen[pages->free[i]]++;
    }
    for (uint32_t owner = 0; owner < N_OWNERS; owner++) {
        for (int32_t i = 0; i < pages->held[owner]; i++) {
            seen[pages_of(pages, owner)[i]]++;
            used++;
        }
    }
    for (int i = 0; i < N_PAGES; i++) {
        ck_assert_int_eq(seen[i], 1);
    }
    ck_assert_int_eq(used + pages->n_free, N_PAGES);
    ck_assert_int_ge(pages->most_used, used);
}

TEST(pages_are_nobodys_or_one_owners_whatever_happens) {
    struct pages pages;
    struct rng rng = rng_stream(3, "pages");
    int n_refused = 0;
    pages_open(&pages, N_PAGES, N_OWNERS, MOST);
    for (int i = 0; i < 5000; i++) {
        uint32_t owner = (uint32_t)(rng_next(&rng) % N_OWNERS);
        int64_t n = (int64_t)(rng_next(&rng) % (MOST + 2));
        if (rng_next(&rng) % 4 == 0) {
            pages_give(&pages, owner);
            ck_assert_int_eq(pages.held[owner], 0);
            continue;
        }
        int32_t before[MOST], held = pages.held[owner], n_free = pages.n_free;
        memcpy(before, pages_of(&pages, owner), sizeof before);
        bool fits = n <= MOST && n - held <= n_free;
        ck_assert(pages_grow(&pages, owner, n) == fits);
        n_refused += !fits;
        ck_assert_int_eq(pages.held[owner], fits && n > held ? n : held);
        ck_assert_mem_eq(before, pages_of(&pages, owner), (size_t)held * sizeof *before);
        check_pages(&pages);
    }
    ck_assert_int_gt(n_refused, 100);
    ck_assert_int_eq(pages.most_used, N_PAGES);
    for (uint32_t owner = 0; owner < N_OWNERS; owner++) {
        ck_assert(owner == 0 || pages.held[owner] == 0 || !pages_are_whole(&pages));
        pages_give(&pages, owner);
    }
    ck_assert(pages_are_whole(&pages) && pages_are_whole(&pages));
    pages.free[3] = pages.free[5]; /* one is lost, another there twice */
    ck_assert(!pages_are_whole(&pages));
    pages_close(&pages);
}

TEST(the_lowest_pages_are_taken_first) {
    struct pages pages;
    pages_open(&pages, N_PAGES, N_OWNERS, MOST);
    ck_assert(pages_grow(&pages, 2, 3) && pages_grow(&pages, 0, 1) && pages_grow(&pages, 2, 4));
    const int32_t *table = pages_of(&pages, 2);
    ck_assert(table[0] == 0 && table[1] == 1 && table[2] == 2 && table[3] == 4);
    ck_assert_int_eq(pages_of(&pages, 0)[0], 3);
    ck_assert_int_eq(pages.most_used, 5);
    pages_close(&pages);
}

SUITE("pages")
