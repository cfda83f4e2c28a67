/* Cache policies that keep the whole canvas: what the greedy one lists, what decoders foretell, and
 * the guard around both. */
#include "kernels/ref/ref.h"
#include "sim/base/rng.h"
#include "sim/check/guard.h"
#include "sim/decode/block.h"
#include "sim/decoder/foresight.h"
#include "sim/policy/registry.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

static const struct policy *named(enum policy_kind kind, const char *name) {
    struct err err = {0};
    const struct policy *policy = policy_find(kind, name, &err);
    ck_assert_msg(policy != NULL, "%s", err.text);
    return policy;
}

/* ---- what decoders foretell ---- */

enum { BLOCK = 48, ROUNDS = 200 };

/* What the reference implementation of the device's kernel commits of the same positions, whatever
 * the model says. */
static void commit_on_device(const struct decode_rule *rule, const struct request *request,
                             const uint8_t *masked, int32_t take, struct rng *rng,
                             uint8_t committed[BLOCK]) {
    const int64_t canvas_start = 1000;
    const int32_t first = 0, n = (int32_t)request->block_length;
    int32_t canvas[2000], token[BLOCK], n_committed;
    int64_t position[BLOCK];
    float confidence[BLOCK];
    for (int32_t i = 0; i < n; i++) {
        position[i] = canvas_start + request->block_start + i;
        canvas[position[i]] = masked[i] ? 7 : 1;
        token[i] = 3;
        confidence[i] = (float)rng_uniform(rng);
    }
    const struct call_decode call = {.confidence = confidence,
                                     .token = token,
                                     .first_row = &first,
                                     .n_rows = &n,
                                     .take = &take,
                                     .threshold = &rule->threshold,
                                     .key = &rule->key,
                                     .canvas_start = &canvas_start,
                                     .position = position,
                                     .canvas = canvas,
                                     .committed = committed,
                                     .n_committed = &n_committed,
                                     .n_requests = 1,
                                     .max_rows = n,
                                     .mask_token = 7,
                                     .rule = (enum kernel_rule)rule->kind,
                                     .rank = (enum kernel_rank)rule->rank};
    ref_decode(&call);
    ck_assert_int_ge(n_committed, 1);
}

START_TEST(what_is_foretold_is_what_the_device_decides) {
    static const char *const names[] = {"random", "origin", "sequential"};
    struct rng rng = rng_stream(8, "foresight");
    struct foresight foresight;
    foresight_init(&foresight, BLOCK);
    for (int i = 0; i < 3 * ROUNDS; i++) {
        const struct decoder *decoder = (const struct decoder *)named(POLICY_DECODER, names[i % 3]);
        void *state = policy_state(&decoder->policy);
        uint8_t masked[BLOCK] = {0}, committed[BLOCK] = {0};
        uint32_t repeat, n = 1 + (uint32_t)(rng_next(&rng) % BLOCK);
        struct request request = {.id = rng_next(&rng),
                                  .block_start = (uint32_t)(rng_next(&rng) % 900),
                                  .block_length = n,
                                  .steps_per_block = 1 + (uint32_t)(rng_next(&rng) % n)};
        request.step_in_block = (uint32_t)(rng_next(&rng) % request.steps_per_block);
        for (uint32_t p = 0; p < n; p++) {
            masked[p] = p == 0 || rng_next(&rng) % 3 > 0;
            request.masked_in_block += masked[p];
        }
        ck_assert(foresight_has(decoder, state));
        const uint8_t *next = foresight_next(&foresight, decoder, state, &request, masked);
        const struct decode_rule rule = decoder_rule(decoder, state, &request);
        uint32_t take = decoder->count != NULL ? decoder->count(state, &request, &repeat) : 0;
        commit_on_device(&rule, &request, masked, (int32_t)take, &rng, committed);
        ck_assert_mem_eq(next, committed, n);
        free(state);
    }
    foresight_fini(&foresight);
}
END_TEST

START_TEST(decoders_that_look_at_what_the_model_says_foretell_nothing) {
    for (size_t i = 0; i < decoder_table_size; i++) {
        const struct decoder *decoder = decoder_table[i];
        const char *name = decoder->policy.name;
        void *state = policy_state(&decoder->policy);
        bool is_blind = strcmp(name, "random") == 0 || strcmp(name, "origin") == 0 ||
                        strcmp(name, "sequential") == 0;
        ck_assert_msg(foresight_has(decoder, state) == is_blind, "%s", name);
        free(state);
    }
}
END_TEST

/* Every position is as likely to be decided first, and the order stays what it is. */
START_TEST(a_random_order_is_drawn_once_for_a_request) {
    const struct decoder *decoder = (const struct decoder *)named(POLICY_DECODER, "random");
    void *state = policy_state(&decoder->policy);
    struct foresight foresight;
    uint32_t first[8] = {0};
    foresight_init(&foresight, BLOCK);
    for (uint64_t id = 0; id < 4000; id++) {
        struct request request = {.id = id, .block_length = 8, .steps_per_block = 8};
        uint8_t masked[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        uint32_t repeat;
        request.masked_in_block = 8;
        ck_assert_uint_eq(decoder->count(state, &request, &repeat), 1);
        ck_assert_uint_eq(repeat, UINT32_MAX);
        const uint64_t key = decoder_rule(decoder, state, &request).key;
        const uint8_t *next = foresight_next(&foresight, decoder, state, &request, masked);
        for (uint32_t p = 0; p < 8; p++) {
            first[p] += next[p];
        }
        request.step_in_block = 5;
        ck_assert(decoder_rule(decoder, state, &request).key == key);
    }
    for (uint32_t p = 0; p < 8; p++) { /* 500 on average, 21 its deviation */
        ck_assert_uint_ge(first[p], 400);
        ck_assert_uint_le(first[p], 600);
    }
    foresight_fini(&foresight);
    free(state);
}
END_TEST

/* ---- what the greedy policy lists ---- */

static void lists(const char *window, const char *masked, const char *next, const char *expected) {
    const struct cache_policy *cache =
        (const struct cache_policy *)named(POLICY_CACHE, "dkv-greedy");
    struct request request = {.block_length = (uint32_t)strlen(masked)};
    uint8_t flags[3][16], runs[16];
    char shown[17] = {0};
    void *state = policy_state(&cache->policy);
    struct err err = {0};
    ck_assert_int_eq(param_set(cache->policy.params, cache->policy.n_params, state, "dkv-greedy",
                               "test", "window", window, &err),
                     0);
    uint32_t n_expected = 0;
    for (uint32_t i = 0; i < request.block_length; i++) {
        flags[0][i] = masked[i] != '.'; /* m masked, d just decided, . final */
        flags[1][i] = masked[i] == 'm';
        flags[2][i] = next[i] == 'n';
        n_expected += expected[i] == 'x';
    }
    const struct listing_view view = {&request, request.block_length, flags[0], flags[1], flags[2]};
    ck_assert_uint_eq(cache->list(state, &view, runs), n_expected);
    for (uint32_t i = 0; i < request.block_length; i++) {
        shown[i] = runs[i] ? 'x' : '-';
    }
    ck_assert_str_eq(shown, expected);
    free(state);
}

START_TEST(greedy_lists_what_comes_next_what_was_decided_and_masked_neighbours) {
    lists("4", "mmmmmmmmmmmm", "-----n------", "---xxxxx----");
    lists("3", "mmmmmmmmmmmm", "-----n------", "---xxxx-----"); /* to the left first */
    lists("1", "mmmmmmmmmmmm", "-----n------", "----xx------");
    lists("0", "mmmmmmmmmmmm", "-----n------", "-----x------");
    lists("4", "mmmm.mm...mm", "-----n------", "-xxx-xx-----"); /* the nearest that are masked */
    lists("4", "mmmmmmmmmmmm", "n-----------", "xxxxx-------"); /* all on one side */
    lists("4", "mmm.........", "n-----------", "xxx---------"); /* as many as there are */
    lists("2", "dmmmmmmmmm.d", "--n--n------", "xxxxxxx----x"); /* of each its own */
    lists("2", "dmmmmmmmmm.d", "--nn--------", "xxxxxxx----x");
    lists("65536", "d.mmmmmmmm.d", "---n--------", "x-xxxxxxxx-x");
}
END_TEST

/* ---- the guard ---- */

enum { N_SLOTS = 16 };

/* A policy that answers as the test says of a block of six behind a prompt of four, a step in:
 * position 0 of the block is final, 1 was just decided, 2 to 5 are masked, 3 comes next. */
static struct {
    struct span span;
    uint32_t rows, first, end;
    uint8_t runs[6];
    uint32_t returned;
    bool writes_behind, writes_next, alternates;
    uint32_t turn;
} scripted;

static uint32_t scripted_plan(const void *state, const struct request *request, struct span *span) {
    (void)state;
    (void)request;
    *span = scripted.span;
    return 1;
}

static uint32_t scripted_rows(const void *state, const struct request *request) {
    (void)state;
    (void)request;
    return scripted.rows;
}

static void scripted_window(const void *state, const struct request *request, uint32_t *first,
                            uint32_t *end) {
    (void)state;
    (void)request;
    *first = scripted.first;
    *end = scripted.end;
}

static uint32_t scripted_list(const void *state, const struct listing_view *view, uint8_t *runs) {
    (void)state;
    memcpy(runs, scripted.runs, view->length);
    if (scripted.writes_behind) {
        runs[view->length + 2] = 1;
    }
    if (scripted.writes_next) {
        ((uint8_t *)view->next)[4] = 1;
    }
    if (scripted.alternates && scripted.turn++ % 2 == 1) {
        runs[4] = !runs[4];
    }
    return scripted.returned;
}

static const struct cache_policy scripted_cache = {.policy = {.abi = POLICY_ABI,
                                                              .kind = POLICY_CACHE,
                                                              .size = sizeof scripted_cache,
                                                              .name = "scripted",
                                                              .doc = "answers as the test says"},
                                                   .row = CACHE_ROW_KV,
                                                   .keeps = KEEPS_CANVAS,
                                                   .leaves_out = BLOCK_DELAYED,
                                                   .foresees = 1,
                                                   .plan = scripted_plan,
                                                   .rows_held = scripted_rows,
                                                   .window = scripted_window,
                                                   .list = scripted_list};

static const struct request request_of_six = {.id = 3,
                                              .prompt_tokens = 4,
                                              .output_tokens = 9,
                                              .canvas_tokens = 13,
                                              .block_tokens = 6,
                                              .block_start = 4,
                                              .block_length = 6,
                                              .step_in_block = 1,
                                              .passes_in_block = 1,
                                              .masked_in_block = 4,
                                              .uncached_in_block = 3};

static void start_script(void) {
    memset(&scripted, 0, sizeof scripted);
    memcpy(scripted.runs, (const uint8_t[]){0, 1, 1, 1, 0, 0}, 6);
    scripted.returned = 3;
    scripted.rows = 13;
    scripted.first = 4;
    scripted.end = 13;
    scripted.span = (struct span){.phase = PHASE_REUSE, /* three of the block, three behind it */
                                  .queries = 6,
                                  .first_queries = 6,
                                  .context = 7,
                                  .logit_rows = 6};
}

static void assert_listed(const char *sentence) {
    static const uint8_t pending[] = {0, 1, 1, 1, 1, 1}, masked[] = {0, 0, 1, 1, 1, 1};
    static const uint8_t next[] = {0, 0, 0, 1, 0, 0};
    const struct listing_view view = {&request_of_six, 6, pending, masked, next};
    struct guard guard;
    char state = 0;
    uint8_t runs[6];
    guard_init(&guard, &scripted_cache.policy, &state, N_SLOTS);
    uint32_t n = guard.outer.cache.list(&guard, &view, runs);
    ck_assert_str_eq(guard.err.text, sentence);
    ck_assert_uint_eq(n, sentence[0] == '\0' ? scripted.returned : 5);
    ck_assert_mem_eq(runs, sentence[0] == '\0' ? scripted.runs : pending, 6);
    ck_assert(sentence[0] == '\0' || guard.broken == PROMISE_RUNS ||
              guard.broken == PROMISE_READS || guard.broken == PROMISE_REPEATABLE);
    guard_fini(&guard);
}

#define LISTED(spoil, sentence)                                                                    \
    do {                                                                                           \
        start_script();                                                                            \
        spoil;                                                                                     \
        assert_listed(sentence);                                                                   \
    } while (0)

START_TEST(the_guard_names_each_broken_promise_of_a_list) {
    LISTED((void)0, "");
    LISTED(scripted.runs[3] = 2,
           "cache scripted leaves runs[3] unset or sets it to 2, neither 0 nor 1");
    LISTED(scripted.runs[0] = 1,
           "cache scripted lists position 0, whose keys and values are final");
    LISTED(scripted.runs[1] = 0,
           "cache scripted leaves out position 1, which was decided and not run since");
    LISTED(scripted.runs[3] = 0, "cache scripted leaves out position 3, which the step decides");
    LISTED(scripted.returned = 4, "cache scripted returns 4 but lists 3 positions");
    LISTED(scripted.writes_behind = true, "cache scripted writes to runs[8], beyond its 6 entries");
    LISTED(scripted.writes_next = true,
           "cache scripted writes to what it is shown of the block, which it may only read");
    LISTED((scripted.alternates = true, scripted.turn = 0),
           "cache scripted lists differently when asked the same again: 3 positions, then 3");
}
END_TEST

static void assert_planned(const char *sentence, struct request request) {
    struct guard guard;
    char state = 0;
    struct span span;
    guard_init(&guard, &scripted_cache.policy, &state, N_SLOTS);
    guard.outer.cache.plan(&guard, &request, &span);
    ck_assert_str_eq(guard.err.text, sentence);
    guard_fini(&guard);
}

#define PLANNED(spoil, sentence)                                                                   \
    do {                                                                                           \
        struct request request = request_of_six;                                                   \
        start_script();                                                                            \
        spoil;                                                                                     \
        assert_planned(sentence, request);                                                         \
    } while (0)

START_TEST(the_guard_names_each_broken_promise_of_a_policy_that_keeps_the_canvas) {
    PLANNED((void)0, "");
    PLANNED((scripted.span.queries = scripted.span.first_queries = 9, scripted.span.context = 4),
            ""); /* all of the window */
    PLANNED((scripted.span.queries = scripted.span.first_queries = 13, scripted.span.context = 0),
            ""); /* and of the canvas */
    PLANNED(scripted.rows = 12, "cache scripted holds 12 rows where it keeps a canvas of 13 "
                                "tokens");
    PLANNED(scripted.span.context = 6, "cache scripted attends to 6 cached rows besides 6 queries, "
                                       "where it keeps a canvas of 13 tokens");
    PLANNED(request.step_in_block = request.passes_in_block = 0,
            "cache scripted reuses 7 rows in a block's first step");
    PLANNED(request.uncached_in_block = 4,
            "cache scripted plans 6 queries in a window of 9 positions, 2 of which it leaves out");
    PLANNED(scripted.first = 5, "cache scripted names the window [5, 13) of a canvas of 13 tokens");
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        what_is_foretold_is_what_the_device_decides,
        decoders_that_look_at_what_the_model_says_foretell_nothing,
        a_random_order_is_drawn_once_for_a_request,
        greedy_lists_what_comes_next_what_was_decided_and_masked_neighbours,
        the_guard_names_each_broken_promise_of_a_list,
        the_guard_names_each_broken_promise_of_a_policy_that_keeps_the_canvas,
    };
    return SUITE_RUN("canvas", tests);
}
