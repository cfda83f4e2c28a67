/* Which steps are captured graphs: by use, by age, and by their keys. */
#include "sim/price/captured.h"

#include <string.h>

#include "tests/support/suite.h"

static void use_twice(struct captured *captured, uint64_t first, uint64_t last) {
    for (uint64_t key = first; key <= last; key++) {
        ck_assert(captured_issues(captured, key));
        ck_assert(captured_issues(captured, key));
    }
}

static uint32_t place_of(struct captured *captured, uint64_t key, bool new_expected) {
    bool is_new;
    const uint32_t place = captured_find(captured, key, &is_new);
    ck_assert_uint_lt(place, MAX_KNOWN_STEPS);
    ck_assert(is_new == new_expected);
    return place;
}

TEST(a_step_is_issued_twice_and_launched_from_then_on) {
    struct captured captured = {0};
    static const uint64_t keys[] = {0, 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        ck_assert(captured_issues(&captured, keys[i]));
        ck_assert_uint_eq(captured.n_captured, i);
        ck_assert(captured_issues(&captured, keys[i]));
        ck_assert_uint_eq(captured.n_captured, i + 1);
        for (size_t k = 0; k <= i; k++) {
            ck_assert(!captured_issues(&captured, keys[k]));
        }
    }
    ck_assert_uint_eq(captured.n_captured, 3);
}

TEST(of_captured_steps_the_one_used_longest_ago_is_forgotten) {
    struct captured captured = {0};
    use_twice(&captured, 1, MAX_CAPTURED);
    ck_assert_uint_eq(captured.n_captured, MAX_CAPTURED);
    ck_assert(!captured_issues(&captured, 1)); /* used now: 2 is the oldest */
    use_twice(&captured, 1000, 1000);
    ck_assert_uint_eq(captured.n_captured, MAX_CAPTURED);
    for (uint64_t key = 3; key <= MAX_CAPTURED; key++) {
        ck_assert(!captured_issues(&captured, key));
    }
    ck_assert(!captured_issues(&captured, 1000));
    ck_assert(!captured_issues(&captured, 1));
    /* Still known: issued once, not twice. It takes the place of the oldest again, 3. */
    ck_assert(captured_issues(&captured, 2));
    ck_assert(!captured_issues(&captured, 2));
    ck_assert_uint_eq(captured.n_captured, MAX_CAPTURED);
    ck_assert(captured_issues(&captured, 3));
}

TEST(of_steps_seen_once_the_one_used_longest_ago_is_forgotten_and_none_that_is_captured) {
    struct captured captured = {0};
    use_twice(&captured, 1, MAX_CAPTURED);
    const uint64_t once = 1000, n_once = MAX_KNOWN_STEPS - MAX_CAPTURED;
    for (uint64_t key = once; key < once + n_once; key++) {
        ck_assert(captured_issues(&captured, key));
    }
    place_of(&captured, once, false); /* used now: the next is the oldest */
    const uint32_t oldest = place_of(&captured, once + 1, false);
    for (uint64_t key = once + 2; key < once + n_once; key++) {
        place_of(&captured, key, false);
    }
    place_of(&captured, once, false);
    ck_assert_uint_eq(place_of(&captured, 5000, true), oldest);
    place_of(&captured, once, false);
    place_of(&captured, once + 2, false);
    place_of(&captured, once + 1, true);
    for (uint64_t key = 1; key <= MAX_CAPTURED; key++) {
        ck_assert(!captured_issues(&captured, key));
    }
}

TEST(what_is_kept_and_dropped_is_counted_and_what_makes_room_is_said) {
    struct captured captured = {0};
    uint32_t places[MAX_CAPTURED];
    for (uint64_t key = 0; key < MAX_CAPTURED; key++) {
        places[key] = place_of(&captured, key, true);
        ck_assert_uint_eq(captured_keep(&captured, places[key]), MAX_KNOWN_STEPS);
        ck_assert_uint_eq(captured.n_captured, key + 1);
        ck_assert(captured.steps[places[key]].is_captured);
    }
    place_of(&captured, 0, false);
    const uint32_t more = place_of(&captured, 100, true);
    ck_assert_uint_eq(captured_keep(&captured, more), places[1]);
    ck_assert_uint_eq(captured.n_captured, MAX_CAPTURED);
    ck_assert(!captured.steps[places[1]].is_captured && captured.steps[more].is_captured);
    captured_drop(&captured, places[5]);
    ck_assert_uint_eq(captured.n_captured, MAX_CAPTURED - 1);
    ck_assert(!captured.steps[places[5]].is_captured);
    ck_assert_uint_eq(place_of(&captured, 5, false), places[5]);
    ck_assert_uint_eq(captured_keep(&captured, places[5]), MAX_KNOWN_STEPS);
    ck_assert_uint_eq(captured.n_captured, MAX_CAPTURED);
}

TEST(a_step_is_told_by_everything_but_what_its_requests_attend_to) {
    static const enum symbol attended[] = {SYM_CONTEXT_ROWS, SYM_PREFILL_K, SYM_PREFILL_QK,
                                           SYM_BLOCK_K,      SYM_BLOCK_QK,  SYM_KEPT_K,
                                           SYM_KEPT_QK};
    struct step_shape shape = {.n_spans = 3};
    for (int i = 0; i < SYM_COUNT; i++) {
        shape.sym[i] = 100 + 7 * i;
    }
    const uint64_t key = captured_key(&shape, 0);
    for (int i = 0; i < SYM_COUNT; i++) {
        bool is_left_out = false;
        for (size_t k = 0; k < sizeof attended / sizeof *attended; k++) {
            is_left_out |= (int)attended[k] == i;
        }
        struct step_shape other = shape;
        other.sym[i]++;
        ck_assert_msg((captured_key(&other, 0) == key) == is_left_out, "%s", symbol_names[i]);
    }
    struct step_shape same = shape;
    same.n_spans = 0;
    ck_assert_uint_eq(captured_key(&same, 0), key);
}

/* Two blocks and a full pass, by what the spans are but not their sums. */
static uint64_t key_of(const struct span spans[3], uint32_t page_rows) {
    const struct span *list[] = {&spans[0], &spans[1], &spans[2]};
    struct step_shape shape = {.n_spans = 3, .spans = list};
    shape.sym[SYM_TOKENS] = 64;
    return captured_key(&shape, page_rows);
}

TEST(the_longest_of_its_spans_tell_a_step_where_they_are_known) {
    static const struct span spans[] = {
        {.phase = PHASE_REUSE, .queries = 20, .context = 300, .logit_rows = 20},
        {.phase = PHASE_REUSE, .queries = 12, .context = 100, .logit_rows = 12},
        {.phase = PHASE_REFRESH, .queries = 32, .logit_rows = 16, .select_rows = 9}};
    const uint64_t key = key_of(spans, 0), in_pages = key_of(spans, 64);
    struct span other[3];
    ck_assert(key != in_pages);
    memcpy(other, spans, sizeof other);
    other[0].queries = 19; /* the longest block */
    ck_assert(key_of(other, 0) != key);
    memcpy(other, spans, sizeof other);
    other[1].phase = PHASE_COMMIT; /* which decides nothing */
    ck_assert(key_of(other, 0) != key);
    memcpy(other, spans, sizeof other);
    other[1].queries = 13; /* another one, or what it attends to */
    other[1].context = 250;
    ck_assert_uint_eq(key_of(other, 0), key);
    ck_assert_uint_eq(key_of(other, 64), in_pages);
    other[0].context = 511 - 20; /* 8 pages, as 320 rows have; then 16 */
    ck_assert_uint_eq(key_of(other, 64), in_pages);
    other[0].context = 513 - 20;
    ck_assert(key_of(other, 64) != in_pages);
    ck_assert_uint_eq(key_of(other, 0), key);
    memcpy(other, spans, sizeof other);
    other[2].queries = 33;
    ck_assert(key_of(other, 0) != key);
    other[2] = spans[2];
    other[2].select_rows = 10;
    ck_assert(key_of(other, 0) != key);
    other[2] = spans[2];
    other[0].logit_rows = 21;
    ck_assert(key_of(other, 0) != key);
    /* Where keys are exact, a prefill behind a context is a full pass. */
    memcpy(other, spans, sizeof other);
    for (int i = 0; i < 3; i++) {
        other[i].exact = 1;
    }
    const uint64_t exact = key_of(other, 0);
    other[0].phase = PHASE_PREFILL;
    ck_assert(key_of(other, 0) != exact);
}

TEST(hashes_differ_with_each_byte_and_length) {
    unsigned char bytes[83]; /* twice the words that are hashed side by side, and more */
    uint64_t hashes[1 + sizeof bytes + 8 * sizeof bytes];
    size_t n = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(1 + 37 * i);
    }
    hashes[n++] = captured_hash(bytes, sizeof bytes);
    ck_assert_uint_eq(hashes[0], captured_hash(bytes, sizeof bytes));
    for (size_t length = 0; length < sizeof bytes; length++) {
        hashes[n++] = captured_hash(bytes, length);
    }
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        hashes[n++] = captured_hash(bytes, sizeof bytes);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            ck_assert_msg(hashes[i] != hashes[k], "%zu and %zu", k, i);
        }
    }
}

TEST(words_that_change_places_have_another_hash) {
    enum { N = 10 };
    uint64_t words[N];
    for (uint64_t i = 0; i < N; i++) {
        words[i] = i;
    }
    const uint64_t hash = captured_hash(words, sizeof words);
    for (int a = 0; a < N; a++) {
        for (int b = 0; b < a; b++) {
            words[a] = (uint64_t)b;
            words[b] = (uint64_t)a;
            ck_assert_uint_ne(captured_hash(words, sizeof words), hash);
            words[a] = (uint64_t)a;
            words[b] = (uint64_t)b;
        }
    }
}

SUITE("captured")
