/* Cache policies and decoders: hand-made spans, and promises over random requests. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/rng.h"
#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/registry.h"
#include "sim/policy/router/router.h"
#include "tests/support/suite.h"

static struct request request_at(uint32_t prompt, uint32_t output, uint32_t block,
                                 uint32_t step_in_block) {
    uint32_t begin = 32 * block, length = output - begin < 32 ? output - begin : 32;
    return MAKE(struct request, .prompt_tokens = prompt, .output_tokens = output,
                .canvas_tokens = prompt + output, .block_tokens = 32, .steps_per_block = 32,
                .window.block = block, .window.first = prompt + begin, .window.length = length,
                .window.before = prompt + begin - (block > 0 ? 32 : 0),
                .window.steps = step_in_block, .window.uncached = length,
                .window.masked = length - (step_in_block < length ? step_in_block : 0),
                .steps = 32 * block + step_in_block);
}

static struct span span_of(const char *cache, const struct request *request, uint32_t *holds) {
    struct err err = {0};
    const struct cache_policy *policy =
        (const struct cache_policy *)policy_find(POLICY_CACHE, cache, &err);
    ck_assert_ptr_nonnull(policy);
    void *state = policy_state(&policy->policy);
    struct request planned = *request;
    uint32_t repeat = cache_plan(policy, state, NULL, &planned);
    free(state);
    if (holds != NULL) {
        *holds = repeat;
    }
    return planned.span;
}

TEST(of_a_single_token_nothing_is_left_out) {
    struct request request =
        MAKE(struct request, .prompt_tokens = 40, .output_tokens = 8, .canvas_tokens = 48,
             .block_tokens = 1, .window.block = 3, .window.first = 43, .window.length = 1,
             .window.uncached = 1, .window.masked = 1, .cached_tokens = 42, .window.kept = 1,
             .shifted = 1, .causal = SEES_TOKENS);
    struct span span = span_of("focus", &request, NULL);
    ck_assert_uint_eq(span.queries, 1);
    ck_assert_uint_eq(span.context, 42);
    ck_assert_uint_eq(span.kept_queries, 1);
    ck_assert_uint_eq(span.kept_keys, 43);
}

TEST(none_runs_the_canvas_in_every_step) {
    struct request request = request_at(256, 256, 3, 17);
    struct span span = span_of("none", &request, NULL);
    ck_assert_uint_eq(span.queries, 512);
    ck_assert_uint_eq(span.context, 0);
    ck_assert_uint_eq(span.phase, PHASE_REFRESH);
}

TEST(prefix_recomputes_the_suffix_and_dual_only_the_block) {
    uint32_t holds;
    struct request first = request_at(256, 256, 2, 0), later = request_at(256, 256, 2, 5);
    ck_assert_uint_eq(span_of("prefix", &first, &holds).queries, 512);
    ck_assert_uint_eq(holds, 1);
    struct span prefix = span_of("prefix", &later, &holds);
    ck_assert_uint_eq(prefix.queries, 512 - 320);
    ck_assert_uint_eq(prefix.context, 320);
    struct span dual = span_of("dual", &later, NULL);
    ck_assert_uint_eq(dual.queries, 32);
    ck_assert_uint_eq(dual.context, 480);
    ck_assert_uint_eq(dual.phase, PHASE_REUSE);
}

/* A span with the policy's parameters set, "name=value". */
static struct span span_with(const char *cache, const char *const *texts,
                             const struct request *request, uint32_t *holds) {
    struct err err = {0};
    const struct cache_policy *policy =
        (const struct cache_policy *)policy_find(POLICY_CACHE, cache, &err);
    ck_assert_ptr_nonnull(policy);
    void *state = policy_state(&policy->policy);
    for (; *texts != NULL; texts++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*texts, "="), *texts);
        ck_assert_int_eq(param_set(policy->policy.params, policy->policy.n_params, state, cache,
                                   "test", name, *texts + strlen(name) + 1, &err),
                         0);
    }
    struct request planned = *request;
    *holds = cache_plan(policy, state, NULL, &planned);
    free(state);
    return planned.span;
}
#define SPAN_WITH(cache, request, holds, ...)                                                      \
    span_with(cache, (const char *const[]){__VA_ARGS__, NULL}, request, holds)

TEST(vicinity_warms_up_refreshes_once_a_block_and_runs_what_is_near) {
    uint32_t holds;
    for (uint32_t step = 0; step < 5; step++) { /* four warm-ups, and the pass that is reused */
        struct request request = request_at(256, 256, 0, step);
        ck_assert_uint_eq(span_of("vicinity", &request, &holds).queries, 512);
        ck_assert_uint_eq(holds, 5 - step);
    }
    struct request first = request_at(256, 256, 0, 5), later = request_at(256, 256, 2, 5);
    struct request enters = request_at(256, 256, 2, 0), last = request_at(256, 256, 7, 1);
    struct request short_prompt = request_at(5, 256, 0, 9);
    struct span span = span_of("vicinity", &first, &holds);
    ck_assert_uint_eq(span.queries, 64);
    ck_assert_uint_eq(span.context, 448);
    ck_assert_uint_eq(span.phase, PHASE_REUSE);
    ck_assert_uint_eq(holds, UINT32_MAX);
    ck_assert_uint_eq(span_of("vicinity", &enters, &holds).queries, 512);
    ck_assert_uint_eq(holds, 1);
    ck_assert_uint_eq(span_of("vicinity", &later, &holds).queries, 64);
    ck_assert_uint_eq(span_of("vicinity", &last, &holds).queries, 48);         /* the canvas ends */
    ck_assert_uint_eq(span_of("vicinity", &short_prompt, &holds).queries, 53); /* and begins */
    ck_assert_uint_eq(
        SPAN_WITH("vicinity", &later, &holds, "prefix_look=0", "after_look=7").queries, 39);
    ck_assert_uint_eq(SPAN_WITH("vicinity", &later, &holds, "update_every=4").queries, 64);
    ck_assert_uint_eq(holds, 3);
    later.window.steps = 8;
    ck_assert_uint_eq(SPAN_WITH("vicinity", &later, &holds, "update_every=4").queries, 512);
    ck_assert_uint_eq(holds, 1);
    span = SPAN_WITH("vicinity", &later, &holds, "prefix_look=1000", "after_look=1000");
    ck_assert_uint_eq(span.queries, 512);
    ck_assert_uint_eq(span.context, 0);
    ck_assert_uint_eq(span.phase, PHASE_REFRESH);
}

/* Steps of a block, one letter each: R runs the canvas, S as well and selects of it, - reuses. What
 * the policy says it holds for is what the steps behind it are. */
static void check_schedule(const char *cache, const char *const *settings, const char *expected) {
    for (uint32_t block = 0; block < 2; block++) {
        uint32_t same = 0;
        for (uint32_t step = 0; expected[step] != 0; step++) {
            struct request request = request_at(256, 256, block, step);
            uint32_t holds;
            struct span span = span_with(cache, settings, &request, &holds);
            char found = span.phase == PHASE_REUSE ? '-' : span.select_rows > 0 ? 'S' : 'R';
            ck_assert_msg(found == expected[step], "%s, step %u: %c", cache, step, found);
            ck_assert(found == '-' || span.queries == 512);
            if (same > 0) {
                ck_assert_int_eq(found, '-');
                ck_assert_uint_eq(holds, same);
            }
            same = holds > 1 && holds != UINT32_MAX ? holds - 1 : 0;
        }
    }
}
#define CHECK_SCHEDULE(cache, expected, ...)                                                       \
    check_schedule(cache, (const char *const[]){__VA_ARGS__, NULL}, expected)

/* K_int of dLLM-Serve; 1 is no cache, and what no block reaches is once a block. */
TEST(fixed_intervals_renew_within_a_block) {
    static const char *const caches[] = {"dual", "prefix"};
    for (size_t i = 0; i < 2; i++) {
        CHECK_SCHEDULE(caches[i], "R-----------", "interval_steps=0");
        CHECK_SCHEDULE(caches[i], "R---R---R---", "interval_steps=4");
        CHECK_SCHEDULE(caches[i], "R----R----R-", "interval_steps=5");
        CHECK_SCHEDULE(caches[i], "RRRRRRRRRRRR", "interval_steps=1");
    }
    static const char *const sparse[] = {"sparse-uniform", "sparse-head"};
    for (size_t i = 0; i < 2; i++) {
        CHECK_SCHEDULE(sparse[i], "RS----------", "interval_steps=0");
        CHECK_SCHEDULE(sparse[i], "RS--RS--RS--", "interval_steps=4");
        CHECK_SCHEDULE(sparse[i], "S---S---S---", "interval_steps=4", "delay_steps=0");
        CHECK_SCHEDULE(sparse[i], "SSSSSSSSSSSS", "interval_steps=1", "delay_steps=0");
        CHECK_SCHEDULE(sparse[i], "RRRRRRRRRRRR", "interval_steps=1");
    }
    CHECK_SCHEDULE("vicinity", "R---R---R---", "update_every=4", "warmup_steps=0");
}

/* SparseD: a fifth of the steps and the one behind it see all keys, the latter scores them, and the
 * others see 0.3 of the prompt's blocks and of the output's, one more each. */
TEST(sparse_attention_sees_all_keys_then_scores_them_and_then_sees_what_it_chose) {
    uint32_t holds;
    for (uint32_t step = 0; step < 256; step++) { /* int(0.2 x 256) + 1 = 52 */
        struct request request = request_at(2048, 256, step / 32, step % 32);
        struct span span = span_of("sparse-attention", &request, &holds);
        ck_assert_uint_eq(span.queries, 2304);
        ck_assert_uint_eq(span.logit_rows, 2304);
        ck_assert_uint_eq(span.context, 0);
        ck_assert_uint_eq(span.phase, PHASE_REFRESH);
        /* 18 blocks, the last 2 of output: 5 + 1 of them all and 0 + 1 of these. */
        uint32_t keys = step < 52 ? 0 : step == 52 ? 2304 + 256 : 7 * 128;
        ck_assert_uint_eq(span.attended_keys, keys);
        ck_assert_uint_eq(holds, step < 52 ? 52 - step : step == 52 ? 1 : UINT32_MAX);
    }
    struct request later = request_at(2048, 256, 7, 3);
    ck_assert_uint_eq(SPAN_WITH("sparse-attention", &later, &holds, "select=1").attended_keys,
                      2304);
    ck_assert_uint_eq(SPAN_WITH("sparse-attention", &later, &holds, "skip=1").attended_keys, 0);
    ck_assert_uint_eq(
        SPAN_WITH("sparse-attention", &later, &holds, "pattern_tokens=32", "select=0.5")
            .attended_keys,
        (36 + 1 + 4 + 1) * 32);
}

static struct row_pattern pattern_with(struct request request, const char *tokens,
                                       const char *select) {
    struct err err = {0};
    const struct cache_policy *cache =
        (const struct cache_policy *)policy_find(POLICY_CACHE, "sparse-attention", &err);
    void *state = policy_state(&cache->policy);
    const char *const settings[][2] = {{"pattern_tokens", tokens}, {"select", select}};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(param_set(cache->policy.params, cache->policy.n_params, state, "cache",
                                   "test", settings[i][0], settings[i][1], &err),
                         0);
    }
    (void)cache_plan(cache, state, NULL, &request);
    ck_assert_int_eq(rows_check(&request.rows, &request, &err), 0);
    free(state);
    return request.rows.pattern;
}

/* As in the released code: the block in which the prompt ends is the prompt's unless it is the
 * last, and the share, which is taken of all blocks, is rounded down before one is added. */
TEST(a_pattern_divides_prompt_and_output_as_released) {
    static const struct {
        uint32_t prompt, output;
        const char *tokens, *select;
        uint32_t rest, keep, keep_rest;
    } cases[] = {
        {2048, 256, "128", "0.3", 16, 6, 1}, {2049, 256, "128", "0.3", 17, 6, 1},
        {100, 20, "128", "0.3", 0, 1, 1},    {120, 20, "128", "0.3", 1, 1, 1},
        {100, 28, "32", "0.5", 3, 3, 1},     {90, 64, "16", "0.29", 6, 3, 2},
        {90, 64, "16", "1", 6, 10, 4},       {90, 64, "16", "0", 6, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct row_pattern got = pattern_with(
            request_at(cases[i].prompt, cases[i].output, 0, 0), cases[i].tokens, cases[i].select);
        ck_assert_msg(got.rest == cases[i].rest && got.keep == cases[i].keep &&
                          got.keep_rest == cases[i].keep_rest,
                      "%zu: %u, %u, %u", i, got.rest, got.keep, got.keep_rest);
    }
}

/* As in Python, the share of all steps is rounded once. */
TEST(a_pattern_is_chosen_in_the_released_step) {
    uint32_t holds;
    struct request request = request_at(64, 100, 0, 0);
    request.steps_per_block = 25; /* 4 blocks: int(0.29 x 100) + 1 */
    (void)SPAN_WITH("sparse-attention", &request, &holds, "skip=0.29");
    ck_assert_uint_eq(holds, 29);
    (void)SPAN_WITH("sparse-attention", &request, &holds, "skip=0");
    ck_assert_uint_eq(holds, 1);
    (void)SPAN_WITH("sparse-attention", &request, &holds, "skip=1");
    ck_assert_uint_eq(holds, 101);
}

TEST(a_request_that_was_preempted_chooses_its_pattern_anew) {
    uint32_t holds;
    struct request request = request_at(2048, 256, 7, 0);
    request.preemptions = 1;
    ck_assert_uint_gt(span_of("sparse-attention", &request, &holds).attended_keys, 2304);
    ck_assert_uint_eq(holds, 1);
    request = request_at(2048, 256, 7, 3);
    request.preemptions = 1;
    request.window.passes = 3;
    ck_assert_uint_eq(span_of("sparse-attention", &request, &holds).attended_keys, 7 * 128);
    request = request_at(2048, 256, 0, 0);
    request.preemptions = 1;
    ck_assert_uint_eq(span_of("sparse-attention", &request, &holds).attended_keys, 0);
}

TEST(bad_settings_of_a_pattern_are_refused) {
    static const char *const bad[][2] = {{"skip", "-0.1"},
                                         {"skip", "1.5"},
                                         {"select", "1.01"},
                                         {"pattern_tokens", "0"},
                                         {"scores", "size"}};
    const struct cache_policy *cache = (const struct cache_policy *)policy_find(
        POLICY_CACHE, "sparse-attention", &(struct err){0});
    void *state = policy_state(&cache->policy);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        ck_assert_int_eq(param_set(cache->policy.params, cache->policy.n_params, state, "cache",
                                   "test", bad[i][0], bad[i][1], &err),
                         ERR_USAGE);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i][0]));
    }
    free(state);
}

/* A bit for each block of queries and block of keys, in whole words, as many as can be counted. */
TEST(a_pattern_holds_a_bit_for_each_pair_of_blocks) {
    struct err err = {0};
    const struct cache_policy *cache =
        (const struct cache_policy *)policy_find(POLICY_CACHE, "sparse-attention", &err);
    void *state = policy_state(&cache->policy);
    struct request request = request_at(2048, 256, 0, 0);
    (void)cache_plan(cache, state, NULL, &request);
    ck_assert_uint_eq(request.rows.held, 24); /* 18 words, in whole eights */
    ck_assert_int_eq(param_set(cache->policy.params, cache->policy.n_params, state, "cache", "test",
                               "pattern_tokens", "1", &err),
                     0);
    request = request_at(400000, 400000, 0, 0);
    (void)cache_plan(cache, state, NULL, &request);
    ck_assert_uint_eq(request.rows.held, UINT32_MAX);
    free(state);
}

/* Attention over the pairs that are left, and nothing else, becomes cheaper. */
TEST(attention_by_a_pattern_costs_the_pairs_that_are_left) {
    int64_t all[SYM_COUNT] = {0}, some[SYM_COUNT] = {0};
    struct span span = {.phase = PHASE_REFRESH, .queries = 100, .first_queries = 100};
    shape_add(all, &span, 1);
    span.attended_keys = 30;
    shape_add(some, &span, 1);
    ck_assert_int_eq(all[SYM_FULL_QK], 10000);
    ck_assert_int_eq(some[SYM_FULL_QK], 0);
    ck_assert_int_eq(some[SYM_PATTERN_QK], 3000);
    ck_assert_int_eq(some[SYM_PATTERN_Q], all[SYM_FULL_Q]);
    ck_assert_int_eq(some[SYM_TOKENS], all[SYM_TOKENS]);
    struct span scores = span;
    scores.attended_keys = 130;
    memset(some, 0, sizeof some);
    shape_add(some, &scores, 1);
    ck_assert_int_eq(some[SYM_FULL_QK], 10000);
    ck_assert_int_eq(some[SYM_SCORED_QK], 13000);
    ck_assert_int_eq(some[SYM_PATTERN_QK], 0);
    struct span full = {.phase = PHASE_REFRESH, .queries = 80, .first_queries = 80};
    const struct span *spans[] = {&span, &full};
    struct step_shape shape = {.n_spans = 2, .spans = spans};
    shape_pad(&shape);
    ck_assert_int_eq(shape.sym[SYM_PATTERN_QK], 2 * 100 * 80);
}

/* One pass over the finished block and the next, where otherwise each had its own; nothing else
 * differs. */
TEST(a_cross_block_update_takes_the_place_of_commit_passes) {
    uint32_t holds;
    struct request request =
        MAKE(struct request, .prompt_tokens = 40, .output_tokens = 100, .canvas_tokens = 140,
             .block_tokens = 32, .steps_per_block = 32, .causal = SEES_BLOCKS, .window.block = 1,
             .window.first = 64, .window.length = 32, .window.masked = 32, .window.uncached = 32,
             .window.before = 32, .cached_tokens = 32);
    struct span span = SPAN_WITH("exact", &request, &holds, "cross_block=on");
    ck_assert_uint_eq(span.phase, PHASE_REUSE);
    ck_assert_uint_eq(span.queries, 64);
    ck_assert_uint_eq(span.context, 32);
    ck_assert_uint_eq(span.logit_rows, 32);
    ck_assert_uint_eq(holds, 1);
    span = SPAN_WITH("exact", &request, &holds, "cross_block=off");
    ck_assert_uint_eq(span.phase, PHASE_PREFILL);
    ck_assert_uint_eq(span.queries, 32);
    request.window.masked = 0; /* it was preempted when all was decided */
    span = SPAN_WITH("exact", &request, &holds, "cross_block=on");
    ck_assert_uint_eq(span.phase, PHASE_PREFILL);
    request.window.masked = 32;
    request.cached_tokens = 0; /* it was preempted: two blocks are missing */
    span = SPAN_WITH("exact", &request, &holds, "cross_block=on");
    ck_assert_uint_eq(span.phase, PHASE_PREFILL);
    ck_assert_uint_eq(span.queries, 64);
    request.cached_tokens = 64;
    request.window.passes = 1;
    span = SPAN_WITH("exact", &request, &holds, "cross_block=on");
    ck_assert_uint_eq(span.queries, 32);
    ck_assert_uint_eq(span.context, 64);
    ck_assert_uint_eq(holds, UINT32_MAX);
    request.window.masked = 0;
    ck_assert_uint_eq(SPAN_WITH("exact", &request, &holds, "cross_block=on").queries, 0);
    ck_assert_uint_eq(SPAN_WITH("exact", &request, &holds, "cross_block=off").queries, 32);
    request.canvas_tokens = 96; /* the last block has no other to write it */
    span = SPAN_WITH("exact", &request, &holds, "cross_block=on");
    ck_assert_uint_eq(span.phase, PHASE_COMMIT);
    ck_assert_uint_eq(span.queries, 32);
    ck_assert_uint_eq(
        SPAN_WITH("exact", &request, &holds, "cross_block=on", "commit_last=off").queries, 0);
}

TEST(dkv_runs_what_is_masked_and_what_was_just_decoded) {
    uint32_t holds;
    struct request request = request_at(256, 256, 2, 8);
    ck_assert_uint_eq(span_of("dkv-decode", &request, &holds).queries, 512);
    ck_assert_uint_eq(holds, 1);
    request.window.steps = 9;
    request.window.masked = 20;
    request.window.uncached = 23; /* three were decoded by the step before */
    struct span span = span_of("dkv-decode", &request, &holds);
    ck_assert_uint_eq(span.phase, PHASE_REUSE);
    ck_assert_uint_eq(span.queries, 23 + 160);
    ck_assert_uint_eq(span.context, 512 - 183);
    ck_assert_uint_eq(SPAN_WITH("dkv-decode", &request, &holds, "interval_steps=3").queries, 512);
    ck_assert_uint_eq(SPAN_WITH("dkv-decode", &request, &holds, "first_steps=9").queries, 183);
    ck_assert_uint_eq(SPAN_WITH("dkv-decode", &request, &holds, "first_steps=10").queries, 512);
    ck_assert_uint_eq(span_of("dkv-prefill", &request, &holds).queries, 256);
    ck_assert_uint_eq(span_of("dkv-pd", &request, &holds).queries, 183);
    request.window.steps = 12;
    ck_assert_uint_eq(span_of("dkv-pd", &request, &holds).queries, 256);
    ck_assert_uint_eq(span_of("dkv-pd", &request, &holds).context, 256);
    request.window.steps = 16;
    ck_assert_uint_eq(span_of("dkv-pd", &request, &holds).queries, 512);
}

/* All of it at first and once enough was decoded; in between what is masked, and in a block's first
 * step the block before, whose last tokens were decided by the step before. */
TEST(paced_renews_by_what_was_decoded) {
    struct err err = {0};
    const struct cache_policy *paced =
        (const struct cache_policy *)policy_find(POLICY_CACHE, "paced", &err);
    void *state = policy_state(&paced->policy);
    uint64_t memory = 0;
    struct request request = request_at(256, 256, 0, 0);
    (void)cache_plan(paced, state, &memory, &request);
    ck_assert_uint_eq(request.span.phase, PHASE_REFRESH);
    paced->learn(state, &memory, &request, &(struct learned){.n = 15});
    request = request_at(256, 256, 2, 3);
    request.window.uncached = 30;
    (void)cache_plan(paced, state, &memory, &request);
    ck_assert_uint_eq(request.span.phase, PHASE_REUSE);
    ck_assert_uint_eq(request.span.queries, 192 - 2);
    request = request_at(256, 256, 3, 0);
    (void)cache_plan(paced, state, &memory, &request);
    ck_assert_uint_eq(request.rows.run.first, 256 + 2 * 32);
    ck_assert_uint_eq(request.span.context, 256 + 2 * 32);
    paced->learn(state, &memory, &request, &(struct learned){.n = 1});
    (void)cache_plan(paced, state, &memory, &request);
    ck_assert_uint_eq(request.span.phase, PHASE_REFRESH);
    paced->learn(state, &memory, &request, &(struct learned){.n = 3});
    ck_assert_uint_eq(memory, 3);
    free(state);
}

/* All of it at first and behind a step that decided a token whose entropy was above the bound, of
 * those that it decided alone. */
TEST(entropy_renews_by_how_unsure_the_model_was_of_what_it_decided) {
    struct err err = {0};
    const struct cache_policy *cache =
        (const struct cache_policy *)policy_find(POLICY_CACHE, "entropy", &err);
    void *state = policy_state(&cache->policy);
    uint64_t memory = 0;
    uint8_t commit[32] = {[3] = 1, [7] = 1};
    float entropy[32] = {[3] = 0.2f, [7] = 0.9f, [9] = 4};
    const struct learned begins = {0}, decided = {2, commit, entropy};
    struct request request = request_at(256, 256, 0, 0);
    (void)cache_plan(cache, state, &memory, &request);
    ck_assert_uint_eq(request.span.phase, PHASE_REFRESH);
    for (uint32_t k = 1; k < 5; k++) { /* the block before runs while k are not decided here */
        ck_assert_int_eq(param_set(cache->policy.params, cache->policy.n_params, state, "entropy",
                                   "test", "recent_tokens", (char[2]){(char)('0' + k), 0}, &err),
                         0);
        for (uint32_t step = 0; step < 5; step++) {
            request = request_at(256, 256, 2, step);
            (void)cache_plan(cache, state, &memory, &request);
            ck_assert_uint_eq(request.rows.run.first, step < k ? 256 + 32 : 256 + 64);
            ck_assert_uint_eq(request.rows.recent, k);
        }
    }
    request = request_at(256, 256, 0, 1);
    request.window.uncached = 30;
    cache->learn(state, &memory, &request, &decided);
    (void)cache_plan(cache, state, &memory, &request);
    ck_assert_uint_eq(request.span.phase, PHASE_REUSE);
    entropy[7] = 1.1f;
    cache->learn(state, &memory, &request, &decided);
    cache->learn(state, &memory, &request, &begins);
    (void)cache_plan(cache, state, &memory, &request);
    ck_assert_uint_eq(request.span.phase, PHASE_REFRESH);
    free(state);
}

TEST(sparse_runs_two_full_passes_a_block_and_keeps_half_of_the_context) {
    static const char *const names[] = {"sparse-uniform", "sparse-head"};
    for (int i = 0; i < 2; i++) {
        struct request step0 = request_at(256, 256, 1, 0), step1 = request_at(256, 256, 1, 1),
                       step2 = request_at(256, 256, 1, 2);
        struct span span = span_of(names[i], &step0, NULL);
        ck_assert_uint_eq(span.queries, 512);
        ck_assert_uint_eq(span.select_rows, 0);
        span = span_of(names[i], &step1, NULL);
        ck_assert_uint_eq(span.queries, 512);
        ck_assert_uint_eq(span.select_rows, 480);
        ck_assert_uint_eq(span.pack_rows, 240);
        span = span_of(names[i], &step2, NULL);
        ck_assert_uint_eq(span.queries, 32);
        ck_assert_uint_eq(span.context, 240);
    }
}

TEST(dllm_cache_follows_its_two_intervals) {
    struct request request = request_at(256, 256, 0, 0);
    struct span both = span_of("dllm-cache", &request, NULL);
    ck_assert_uint_eq(both.queries, 512);
    ck_assert_uint_eq(both.value_rows, 0);
    request.steps = 7; /* the output's turn */
    struct span output = span_of("dllm-cache", &request, NULL);
    ck_assert_uint_eq(output.queries, 256);
    ck_assert_uint_eq(output.context, 256);
    ck_assert_uint_eq(output.phase, PHASE_REFRESH);
    request.steps = 100; /* the prompt's turn; 100 is no multiple of 7 */
    struct span prompt = span_of("dllm-cache", &request, NULL);
    ck_assert_uint_eq(prompt.queries, 256 + 64);
    uint32_t holds;
    request.steps = 8;
    struct span between = span_of("dllm-cache", &request, &holds);
    ck_assert_uint_eq(between.queries, 64);
    ck_assert_uint_eq(between.value_rows, 256);
    ck_assert_uint_eq(between.phase, PHASE_REUSE);
    ck_assert_uint_eq(between.first_queries, 512);
    ck_assert_uint_eq(between.logit_rows, 512);
    ck_assert_uint_eq(holds, 6); /* steps 8 to 13 */
    request.preemptions = 1;     /* and with it all features lost */
    struct span anew = span_of("dllm-cache", &request, &holds);
    ck_assert_uint_eq(anew.queries, 512);
    ck_assert_uint_eq(anew.value_rows, 0);
    ck_assert_uint_eq(holds, 1);
    window_advance(&request, 1, 1);
    between = span_of("dllm-cache", &request, &holds);
    ck_assert_uint_eq(between.queries, 64);
}

/* Of 200 + 30 positions after `steps` steps, by an own ratio. */
static struct span span_by_ratio(const char *ratio, uint32_t steps) {
    struct err err = {0};
    const struct cache_policy *cache =
        (const struct cache_policy *)policy_find(POLICY_CACHE, "dllm-cache", &err);
    ck_assert_msg(cache != NULL, "%s", err.text);
    void *state = policy_state(&cache->policy);
    ck_assert_int_eq(param_set(cache->policy.params, cache->policy.n_params, state, "cache",
                               "--set", "transfer_ratio", ratio, &err),
                     0);
    struct request request = request_at(200, 30, 0, 0);
    request.steps = steps;
    cache_plan(cache, state, NULL, &request);
    ck_assert_msg(rows_check(&request.rows, &request, &err) == 0, "%s", err.text);
    free(state);
    return request.span;
}

/* Steps 100 (the prompt's turn) and 8 (nobody's): as many queries, and values that are compared, as
 * the released code has, which rounds down. */
TEST(dllm_cache_compares_nothing_at_a_ratio_of_nothing) {
    static const struct {
        const char *ratio;
        uint32_t of_prompt, prompt_values, between, values;
    } cases[] = {
        {"0", 200, 0, 0, 0},
        {"0.03", 200, 230, 0, 0},
        {"0.25", 207, 230, 7, 30},
        {"1", 230, 230, 30, 30},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct span prompt = span_by_ratio(cases[i].ratio, 100);
        const struct span between = span_by_ratio(cases[i].ratio, 8);
        ck_assert_uint_eq(prompt.queries, cases[i].of_prompt);
        ck_assert_uint_eq(prompt.value_rows, cases[i].prompt_values);
        ck_assert_uint_eq(prompt.phase, PHASE_REFRESH);
        ck_assert_uint_eq(prompt.context, 230 - prompt.queries);
        ck_assert_uint_eq(between.queries, cases[i].between);
        ck_assert_uint_eq(between.value_rows, cases[i].values);
        ck_assert_uint_eq(between.phase, PHASE_REUSE);
        ck_assert_uint_eq(between.context, 230 - between.queries);
        ck_assert_uint_eq(between.first_queries, 230);
        ck_assert_uint_eq(span_by_ratio(cases[i].ratio, 7).queries, 30);
    }
}

/* Tokens through the trunk for one block of 32 steps, against the closed forms. */
static uint64_t tokens_of_block(const char *cache, uint32_t block) {
    uint64_t tokens = 0;
    for (uint32_t step = 0; step < 32; step++) {
        struct request request = request_at(256, 256, block, step);
        tokens += span_of(cache, &request, NULL).queries;
    }
    return tokens;
}

TEST(tokens_per_block_follow_the_closed_forms) {
    const uint64_t l = 512, t = 32, b = 32;
    ck_assert_uint_eq(tokens_of_block("none", 2), t * l);
    ck_assert_uint_eq(tokens_of_block("prefix", 2), l + (t - 1) * (l - 320));
    ck_assert_uint_eq(tokens_of_block("dual", 2), l + (t - 1) * b);
    ck_assert_uint_eq(tokens_of_block("sparse-head", 2), 2 * l + (t - 2) * b);
    ck_assert_uint_eq(tokens_of_block("vicinity", 2), l + (t - 1) * (b + 32));
    ck_assert_uint_eq(tokens_of_block("vicinity", 0), 5 * l + (t - 5) * (b + 32));
}

TEST(the_fixed_decoder_commits_every_position_in_the_given_steps) {
    struct err err = {0};
    const struct decoder *fixed =
        (const struct decoder *)policy_find(POLICY_DECODER, "fixed", &err);
    void *state = policy_state(&fixed->policy);
    for (uint32_t n = 1; n <= 40; n++) {
        for (uint32_t t = 1; t <= 48; t++) {
            struct request request = {.window.length = n, .steps_per_block = t, .window.masked = n};
            uint32_t steps = 0;
            while (window_masked(&request) > 0) {
                uint32_t repeat, count = fixed->count(state, &request, &repeat);
                ck_assert(count >= 1 && count <= window_masked(&request) && repeat >= 1);
                request.window.masked -= count;
                request.window.steps++;
                steps++;
            }
            ck_assert_uint_eq(steps, t < n ? t : n);
        }
    }
    free(state);
}

TEST(the_threshold_decoder_commits_what_qualifies_and_the_best_one_always) {
    struct err err = {0};
    const struct decoder *threshold =
        (const struct decoder *)policy_find(POLICY_DECODER, "threshold", &err);
    void *state = policy_state(&threshold->policy);
    struct request request = {.window.masked = 4};
    uint8_t commit[4];
    const float some[4] = {0.95f, 0.2f, 0.9f, 0.899f};
    const uint32_t offset[4] = {0, 1, 2, 3};
    struct decode_seen seen = {.n = 4, .offset = offset, .confidence = some};
    struct decode_rule rule = decoder_rule(threshold, state, &request);
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 2);
    ck_assert(commit[0] && !commit[1] && commit[2] && !commit[3]);
    const float none[4] = {0.1f, 0.4f, 0.4f, 0.3f};
    seen.confidence = none;
    ck_assert_uint_eq(decode_choose(&rule, &seen, 0, commit), 1);
    ck_assert(!commit[0] && commit[1] && !commit[2] && !commit[3]); /* ties to the left */
    free(state);
}

TEST(every_cache_policy_holds_the_rows_it_attends) {
    struct rng rng = rng_stream(1, "rows held");
    for (size_t i = 0; i < cache_table_size; i++) {
        const struct cache_policy *policy = cache_table[i];
        void *state = policy_state(&policy->policy);
        for (int round = 0; round < 2000; round++) {
            uint32_t prompt = 1 + (uint32_t)(rng_next(&rng) % 900);
            uint32_t output = 1 + (uint32_t)(rng_next(&rng) % 500);
            uint32_t block = (uint32_t)(rng_next(&rng) % ((output + 31) / 32));
            struct request request =
                request_at(prompt, output, block, (uint32_t)(rng_next(&rng) % 40));
            uint32_t holds = cache_plan(policy, state, NULL, &request);
            struct span span = request.span;
            ck_assert_uint_ge(holds, 1);
            ck_assert_uint_ge(span.queries, request.rows.kind == ROW_FEATURES ? 0 : 1);
            ck_assert_uint_ge(span.first_queries, span.queries);
            ck_assert_uint_le(span.context + span.queries, request.canvas_tokens);
            if (span.phase == PHASE_REUSE) {
                ck_assert_uint_le(span.context, request.rows.held);
            }
            ck_assert_uint_le(span.pack_rows, request.rows.held);
        }
        free(state);
    }
}

static uint32_t route(const struct router *router, const struct request *request,
                      const struct replica_view *replicas, uint32_t n) {
    const struct route_view view = {.replicas = replicas, .n = n};
    int64_t until_ns = INT64_MAX;
    return router->route(NULL, request, &view, &until_ns);
}

TEST(the_first_of_the_least_loaded_replicas_is_chosen) {
    static const struct replica_view replicas[] = {
        {.outstanding_tokens = 5}, {.outstanding_tokens = 3}, {.outstanding_tokens = 3}};
    struct err err = {0};
    const struct router *router =
        (const struct router *)policy_find(POLICY_ROUTER, "least-loaded", &err);
    ck_assert_uint_eq(route(router, &(struct request){0}, replicas, 3), 1);
}

TEST(the_power_of_two_takes_the_emptier_of_two_and_both_halves_of_the_rest) {
    enum { N = 8, DRAWS = 4000 };
    struct replica_view replicas[N] = {{.outstanding_tokens = 0}};
    unsigned chosen[N] = {0};
    struct err err = {0};
    const struct router *router =
        (const struct router *)policy_find(POLICY_ROUTER, "power-of-two", &err);
    for (uint32_t i = 0; i < N; i++) {
        replicas[i].outstanding_tokens = i;
    }
    for (uint64_t id = 0; id < DRAWS; id++) {
        chosen[route(router, &(struct request){.id = id}, replicas, N)]++;
    }
    for (uint32_t i = 0; i < N; i++) { /* the i-th least of N is taken with (N-1-i) of N(N-1)/2 */
        double expected = DRAWS * 2.0 * (N - 1 - i) / (N * (N - 1));
        ck_assert_double_le(fabs(chosen[i] - expected),
                            4 * sqrt(expected + 1) + (i + 1 == N ? -4 : 0));
    }
    ck_assert_uint_eq(route(router, &(struct request){.id = 3}, replicas, 1), 0);
}

TEST(the_phase_aware_router_looks_at_whole_canvases_then_at_load) {
    static const struct replica_view replicas[] = {{.n_waiting = 1, .n_whole = 1},
                                                   {.n_whole = 1, .outstanding_tokens = 9},
                                                   {.n_waiting = 1, .outstanding_tokens = 4},
                                                   {.n_waiting = 1, .outstanding_tokens = 4}};
    struct err err = {0};
    const struct router *router =
        (const struct router *)policy_find(POLICY_ROUTER, "phase-aware", &err);
    ck_assert_uint_eq(route(router, &(struct request){0}, replicas, 4), 2);
    ck_assert_uint_eq(route(router, &(struct request){0}, replicas, 2), 1);
}

TEST(the_prefix_aware_router_goes_home_unless_that_costs_more_than_the_prefix) {
    struct replica_view replicas[] = {{.outstanding_tokens = 30},
                                      {.outstanding_tokens = 10},
                                      {.outstanding_tokens = 50, .shared_tokens = 40}};
    struct err err = {0};
    const struct router *router =
        (const struct router *)policy_find(POLICY_ROUTER, "prefix-aware", &err);
    ck_assert_uint_eq(route(router, &(struct request){0}, replicas, 3), 2);
    replicas[2].outstanding_tokens = 51;
    ck_assert_uint_eq(route(router, &(struct request){0}, replicas, 3), 1);
    replicas[2] = (struct replica_view){.outstanding_tokens = 5};
    ck_assert_uint_eq(route(router, &(struct request){0}, replicas, 2), 1);
}

SUITE("policy")
