/* Prefixes that a server finds in its clients' prompts. */
#include <stdlib.h>
#include <string.h>

#include "experiments/run/prefixes.h"
#include "sim/base/rng.h"
#include "tests/support/rig.h"

enum { MOST = 64, NAMES = 4097 };

struct kept {
    int32_t tokens[2 * MOST];
    uint32_t n;
};

static uint32_t common(const struct kept *kept, const int32_t *prompt, uint32_t n) {
    uint32_t same = 0;
    while (same < n && same < kept->n && kept->tokens[same] == prompt[same]) {
        same++;
    }
    return same;
}

TEST(a_prompt_is_told_with_whom_it_begins_token_by_token) {
    struct prefixes *prefixes = prefixes_open();
    struct kept *kept = calloc(NAMES, sizeof *kept);
    struct rng rng = rng_stream(3, "prefixes");

    uint32_t n_shared = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        int32_t prompt[MOST], answer[MOST];
        struct arrival arrival = {.id = i, .prompt_tokens = 1 + (uint32_t)(rng_next(&rng) % MOST)};
        const uint32_t n_answer = (uint32_t)(rng_next(&rng) % MOST);
        for (uint32_t t = 0; t < MOST; t++) { /* few beginnings, which part at some token */
            prompt[t] = (int32_t)(t < 16 ? i % 5 : rng_next(&rng) % 40 == 0 ? i : 7);
            answer[t] = (int32_t)(rng_next(&rng) % 3);
        }
        prefixes_arrive(prefixes, prompt, answer, n_answer, &arrival);
        const struct arrival first = arrival;
        if (i % 7 == 0) { /* it is given again */
            prefixes_take_back(prefixes);
            prefixes_arrive(prefixes, prompt, answer, n_answer, &arrival);
            ck_assert_uint_eq(arrival.prefix_tokens, first.prefix_tokens);
            ck_assert_uint_eq(arrival.shares, first.shares);
        }
        ck_assert_int_eq(arrival.leaves > 0, arrival.prompt_tokens >= 16);
        ck_assert_int_eq(arrival.shares > 0, arrival.prefix_tokens > 0);
        if (arrival.shares > 0) {
            const struct kept *other = &kept[arrival.shares];
            ck_assert_uint_ge(arrival.prefix_tokens, 16);
            ck_assert_uint_eq(arrival.prefix_tokens, common(other, prompt, arrival.prompt_tokens));
            n_shared++;
        }
        if (arrival.leaves > 0) {
            struct kept *own = &kept[arrival.leaves];
            memcpy(own->tokens, prompt, arrival.prompt_tokens * sizeof *prompt);
            memcpy(own->tokens + arrival.prompt_tokens, answer, n_answer * sizeof *answer);
            own->n = arrival.prompt_tokens + n_answer;
        }
        if (i % 11 == 0 && arrival.leaves > 0) { /* it never ran */
            prefixes_forget(prefixes, arrival.leaves);
            kept[arrival.leaves].n = 0;
        }
    }
    ck_assert_uint_gt(n_shared, 10000);
    prefixes_close(prefixes);
    free(kept);
}

TEST(a_prompt_goes_on_from_an_earlier_answer_and_short_ones_share_nothing) {
    struct prefixes *prefixes = prefixes_open();
    int32_t tokens[60];
    for (int32_t t = 0; t < 60; t++) {
        tokens[t] = t;
    }
    struct arrival first = {.prompt_tokens = 20}, next = {.prompt_tokens = 60};
    struct arrival few = {.prompt_tokens = 15};
    prefixes_arrive(prefixes, tokens, tokens + 20, 25, &first);
    prefixes_arrive(prefixes, tokens, NULL, 0, &next);
    prefixes_arrive(prefixes, tokens, NULL, 0, &few);
    ck_assert_uint_eq(next.prefix_tokens, 45);
    ck_assert_uint_eq(next.shares, first.leaves);
    ck_assert(few.shares == 0 && few.leaves == 0 && few.prefix_tokens == 0);
    prefixes_close(prefixes);
}

/* Of a device, whose answers are known once they are decoded. */
TEST(a_prompt_goes_on_from_an_answer_that_came_later) {
    struct prefixes *prefixes = prefixes_open();
    int32_t tokens[60];
    for (int32_t t = 0; t < 60; t++) {
        tokens[t] = t;
    }
    struct arrival first = {.id = 3, .prompt_tokens = 20}, other = first,
                   next = {.prompt_tokens = 60};
    prefixes_arrive(prefixes, tokens, NULL, 0, &first);
    prefixes_arrive(prefixes, tokens, NULL, 0, &next);
    ck_assert_uint_eq(next.prefix_tokens, 20);
    prefixes_forget(prefixes, next.leaves);
    other = first;
    other.id = 4; /* not the one that left it */
    prefixes_answer(prefixes, &other, tokens + 20, 25);
    prefixes_arrive(prefixes, tokens, NULL, 0, &next);
    ck_assert_uint_eq(next.prefix_tokens, 20);
    prefixes_forget(prefixes, next.leaves);
    prefixes_answer(prefixes, &first, tokens + 20, 25);
    prefixes_arrive(prefixes, tokens, NULL, 0, &next);
    ck_assert_uint_eq(next.prefix_tokens, 45);
    ck_assert_uint_eq(next.shares, first.leaves);
    prefixes_close(prefixes);
}

SUITE("prefixes")
