/* The guards: every broken promise is named with its numbers, and the built-in policies break none.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/check/exercise.h"
#include "sim/check/plugin.h"
#include "sim/policy/registry.h"
#include "tests/support/kept.h"
#include "tests/support/says.h"
#include "tests/support/suite.h"

/* A view of four requests: slots 0 and 1 run with 100 query tokens each, 2 and 3 wait with 200
 * query tokens and 1000 bytes of KV each. The policy gives the scripted answer. */
enum { N_SLOTS = 8 };

static struct {
    struct request requests[N_SLOTS];
    struct schedule_view view;
    struct batch answer;
    uint32_t selected[N_SLOTS], chunk_tokens[N_SLOTS], preempted[N_SLOTS], idle[N_SLOTS];
    struct batch estimated; /* its duration is asked for when n > 0 */
    uint32_t foreseen;      /* the passes to come of slot foreseen - 1 are asked for when > 0 */
    struct span step;       /* the duration of a step with two of it is asked for then */
    bool writes_running, writes_now, moves_list, grows;
    int64_t nap_ns; /* of the clock, after each call */
} scene;

static void foresee_nothing(const void *estimator, uint32_t slot, struct pass_ahead *passes,
                            uint32_t capacity, struct outlook *out) {
    (void)estimator, (void)slot, (void)passes, (void)capacity;
    *out = (struct outlook){.to_refresh = UINT32_MAX};
}

static int64_t one_ns_each(const void *estimator, const struct span *const *spans, uint32_t n) {
    (void)estimator, (void)spans;
    return n;
}

static int64_t one_ms(const void *estimator, const struct batch *batch) {
    (void)estimator, (void)batch;
    return 1000000;
}

static void scene_init(void) {
    static const uint32_t running[] = {0, 1}, waiting[] = {2, 3};
    memset(&scene, 0, sizeof scene);
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        scene.requests[i].id = i;
        scene.requests[i].span.queries = i < 2 ? 100 : 200;
        scene.requests[i].kv_bytes = 1000;
        scene.requests[i].kv_held_bytes = i < 2 ? 1000 : 0;
    }
    scene.view =
        MAKE(struct schedule_view, .now_ns = 50, .requests = scene.requests, .running = running,
             .n_running = 2, .waiting = waiting, .n_waiting = 2, .next_arrival_ns = INT64_MAX,
             .running_tokens = 200, .max_batched_tokens = 600, .max_requests = 4,
             .kv_free_bytes = 2000, .kv_total_bytes = 4000, .estimate_ns = one_ms,
             .foresee = foresee_nothing, .estimate_spans_ns = one_ns_each, );
    scene.answer.wake_ns = INT64_MAX;
}

static void scripted_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    if (scene.estimated.n > 0) {
        view->estimate_ns(view->estimator, &scene.estimated);
    }
    if (scene.foreseen > 0) {
        const struct span *const spans[] = {&scene.step, &scene.step};
        struct outlook outlook;
        view->foresee(view->estimator, scene.foreseen - 1, NULL, 0, &outlook);
        ck_assert_uint_eq(outlook.to_refresh, UINT32_MAX);
        ck_assert_int_eq(view->estimate_spans_ns(view->estimator, spans, 2),
                         scene.step.phase < PHASE_COUNT ? 2 : 0);
    }
    if (scene.writes_running) {
        ((uint32_t *)view->running)[1] = 7;
    }
    if (scene.writes_now) {
        ((struct schedule_view *)view)->now_ns++;
    }
    struct batch given = *batch;
    *batch = scene.answer;
    batch->capacity = given.capacity;
    batch->selected = given.selected;
    batch->chunk_tokens = given.chunk_tokens;
    batch->preempted = given.preempted;
    batch->idle = given.idle;
    for (uint32_t i = 0; i < scene.answer.n && i < N_SLOTS; i++) {
        batch->selected[i] = scene.selected[i];
    }
    for (uint32_t i = 0; i < N_SLOTS && scene.chunk_tokens[i] > 0; i++) {
        batch->chunk_tokens[i] = scene.chunk_tokens[i];
    }
    for (uint32_t i = 0; i < scene.answer.n_preempted && i < N_SLOTS; i++) {
        batch->preempted[i] = scene.preempted[i];
    }
    for (uint32_t i = 0; i < scene.answer.n_idle && i < N_SLOTS; i++) {
        batch->idle[i] = scene.idle[i];
    }
    if (scene.moves_list) {
        batch->selected = scene.selected;
    }
}

static const struct scheduler scripted_scheduler = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .name = "scripted",
               .doc = "answers as the test says"},
    .schedule = scripted_schedule,
};

/* The guard's sentence after `calls` calls, "" when every promise was kept. */
static void assert_scene(uint32_t capacity, uint32_t calls, const char *sentence) {
    uint32_t selected[N_SLOTS], chunk_tokens[N_SLOTS], preempted[N_SLOTS], idle[N_SLOTS];
    struct scheduler scheduler = scripted_scheduler;
    struct guard guard;
    char state = 0;
    scheduler.grows = scene.grows;
    guard_init(&guard, &scheduler.policy, &state, N_SLOTS);
    for (uint32_t i = 0; i < calls; i++) {
        struct batch batch =
            MAKE(struct batch, .capacity = capacity, .selected = selected,
                 .chunk_tokens = chunk_tokens, .preempted = preempted, .idle = idle);
        guard.outer.scheduler.schedule(&guard, &scene.view, &batch);
        scene.view.now_ns += scene.nap_ns;
        scene.answer.wake_ns += scene.nap_ns;
        if (guard.err.kind != ERR_NONE) {
            ck_assert(batch.n == 0 && batch.n_admitted == 0 && batch.all_running == 0);
        } else {
            ck_assert(batch.n == scene.answer.n);
            ck_assert(memcmp(selected, scene.selected, batch.n * sizeof *selected) == 0);
            ck_assert(memcmp(chunk_tokens, scene.chunk_tokens, batch.n * sizeof *selected) == 0);
            ck_assert(batch.n_preempted == scene.answer.n_preempted);
            ck_assert(memcmp(preempted, scene.preempted, batch.n_preempted * sizeof *selected) ==
                      0);
            ck_assert(batch.n_idle == scene.answer.n_idle);
            ck_assert(memcmp(idle, scene.idle, batch.n_idle * sizeof *selected) == 0);
        }
    }
    ASSERT_SAYS(guard.err.text, sentence);
    guard_fini(&guard);
}

/* An answer: how many listed slots, how many of them admitted, all_running, and the slots. */
static void answer(uint32_t n, uint32_t n_admitted, uint32_t all_running, const uint32_t *slots) {
    scene_init();
    scene.answer.n = n;
    scene.answer.n_admitted = n_admitted;
    scene.answer.all_running = all_running;
    memcpy(scene.selected, slots, n * sizeof *slots);
}
#define ANSWER(n, n_admitted, all_running, ...)                                                    \
    answer(n, n_admitted, all_running, (const uint32_t[]){__VA_ARGS__})

TEST(the_guard_lets_a_valid_decision_through) {
    ANSWER(2, 2, 1, 3, 2);
    assert_scene(4, 3, "");
    ANSWER(3, 2, 0, 1, 2, 3);
    scene.estimated = (struct batch){.n = 2, .n_admitted = 1, .selected = (uint32_t[]){0, 3}};
    assert_scene(4, 3, "");
    ANSWER(0, 0, 0, 0);
    scene.answer.wake_ns = 51;
    assert_scene(4, 3, "");
}

TEST(the_guard_names_a_batch_with_wrong_members) {
    ANSWER(3, 2, 0, 1, 2, 3);
    assert_scene(2, 1, "scheduler scripted writes to selected[2], beyond its capacity of 2");
    ANSWER(0, 0, 1, 0);
    scene.answer.n = 9;
    assert_scene(8, 1, "scheduler scripted lists 9 requests, more than the capacity of 8");
    ANSWER(0, 0, 1, 0);
    scene.moves_list = true;
    assert_scene(4, 1, "scheduler scripted changes the batch's capacity or the place of its lists");
    ANSWER(1, 2, 0, 2);
    assert_scene(4, 1, "scheduler scripted admits 2 requests but lists only 1");
    ANSWER(1, 1, 2, 2);
    assert_scene(4, 1, "scheduler scripted sets all_running to 2, neither 0 nor 1");
    ANSWER(2, 1, 1, 0, 2);
    assert_scene(4, 1,
                 "scheduler scripted sets all_running and yet lists 1 requests before the 1 "
                 "admitted ones");
    ANSWER(1, 1, 1, 5);
    assert_scene(4, 1, "scheduler scripted selects slot 5, which neither runs nor waits");
    ANSWER(1, 1, 1, 4000000000u);
    assert_scene(4, 1, "scheduler scripted selects slot 4000000000, which neither runs nor waits");
    ANSWER(2, 2, 1, 2, 2);
    assert_scene(4, 1, "scheduler scripted selects slot 2 twice");
    ANSWER(2, 1, 0, 2, 3);
    assert_scene(4, 1, "scheduler scripted lists slot 2, which waits, before the admitted ones");
    ANSWER(1, 1, 0, 1);
    assert_scene(4, 1, "scheduler scripted admits slot 1, which runs already");
}

TEST(the_guard_names_a_batch_beyond_the_headroom) {
    ANSWER(2, 2, 1, 2, 3);
    scene.view.max_batched_tokens = 599;
    assert_scene(4, 1,
                 "scheduler scripted takes 600 query tokens into a step, more than "
                 "max_batched_tokens 599");
    ANSWER(2, 2, 1, 2, 3);
    scene.view.max_requests = 3;
    assert_scene(4, 1, "scheduler scripted lets 4 requests run at once, more than max_requests 3");
    ANSWER(2, 2, 1, 2, 3);
    scene.view.kv_free_bytes = 1999;
    assert_scene(4, 1,
                 "scheduler scripted admits requests of 2000 KV bytes, more than the 1999 that are "
                 "free");
    ANSWER(1, 1, 1, 2);
    scene.answer.hold = 3;
    assert_scene(4, 1, "scheduler scripted sets hold to 3, which is no batch_hold");
    ANSWER(1, 1, 1, 2);
    scene.foreseen = 6;
    assert_scene(4, 1,
                 "scheduler scripted asks for the passes of slot 5, which neither runs nor waits");
    ANSWER(1, 1, 1, 2);
    scene.foreseen = 3;
    assert_scene(4, 3, "");
    ANSWER(1, 1, 1, 2);
    scene.foreseen = 1;
    scene.step.phase = PHASE_COUNT;
    assert_scene(4, 1, "scheduler scripted asks for the duration of a step with a span in phase 4");
    ANSWER(1, 1, 1, 2);
    /* Of a question a request may be part twice, but runs or waits. */
    scene.estimated = (struct batch){.n = 3, .selected = (uint32_t[]){0, 0, 2}};
    assert_scene(4, 1,
                 "scheduler scripted asks for the duration of a batch that lists slot 2, which "
                 "waits, before the admitted ones");
}

/* Slot 1 prefills 100 query tokens in blocks of 10 behind slot 0, which decodes 100; both need 500
 * bytes more, and 2000 are free. */
static void growing_answer(uint32_t n, uint32_t n_preempted, uint32_t n_idle) {
    ANSWER(2, 0, 0, 0, 1);
    scene.grows = true;
    scene.answer.n = n;
    scene.answer.n_preempted = n_preempted;
    scene.answer.n_idle = n_idle;
    scene.preempted[0] = scene.idle[0] = 1;
    scene.requests[0].span.phase = PHASE_REUSE;
    for (uint32_t i = 0; i < 4; i++) {
        scene.requests[i].block_tokens = 10;
        scene.requests[i].causal = SEES_BLOCKS;
        scene.requests[i].kv_bytes = i < 2 ? 1500 : 1000;
    }
    scene.view.running_growth_bytes = 1000;
}

TEST(the_guard_lets_growth_chunks_and_preemption_through) {
    growing_answer(2, 0, 0);
    scene.view.kv_free_bytes = 1000;
    scene.selected[0] = 1;
    scene.selected[1] = 0;
    scene.chunk_tokens[0] = 90;
    scene.view.max_batched_tokens = 190;
    scene.answer.loops = 16;
    assert_scene(4, 3, "");
    /* 500 bytes for slot 0 out of the 1000 that slot 1 gives back, and 500 to spare. */
    growing_answer(1, 1, 0);
    scene.view.kv_free_bytes = 0;
    assert_scene(4, 3, "");
    growing_answer(1, 0, 1);
    scene.view.max_batched_tokens = 200;
    scene.view.kv_free_bytes = 500;
    assert_scene(4, 3, "");
    /* One comes for one that goes. */
    growing_answer(2, 1, 0);
    scene.answer.n_admitted = 1;
    scene.selected[1] = 2;
    scene.view.max_requests = 2;
    scene.view.kv_free_bytes = 500;
    assert_scene(4, 3, "");
}

TEST(the_guard_names_chunks_that_are_none) {
    growing_answer(2, 0, 0);
    scene.chunk_tokens[0] = 10;
    assert_scene(4, 1,
                 "scheduler scripted takes a chunk of 10 tokens of a step that is no prefill");
    growing_answer(2, 0, 0);
    scene.selected[0] = 1;
    scene.selected[1] = 0;
    scene.chunk_tokens[0] = 100;
    assert_scene(4, 1, "scheduler scripted takes a chunk of 100 tokens of a prefill that has 100");
    scene.chunk_tokens[0] = 15;
    assert_scene(4, 1,
                 "scheduler scripted takes a chunk of 15 tokens, which are not whole blocks of 10");
    growing_answer(2, 0, 0);
    scene.selected[0] = 1;
    scene.answer.n = 1;
    scene.chunk_tokens[0] = scene.chunk_tokens[1] = 10;
    assert_scene(4, 1, "scheduler scripted sets chunk_tokens[1] but lists only 1 requests");
    assert_scene(1, 1, "scheduler scripted writes to chunk_tokens[1], beyond its capacity of 1");
}

TEST(the_guard_names_lists_that_overlap_or_overflow) {
    growing_answer(2, 1, 0);
    assert_scene(4, 1, "scheduler scripted preempts slot 1 twice");
    growing_answer(1, 1, 1);
    assert_scene(4, 1, "scheduler scripted idles slot 1 twice");
    growing_answer(1, 1, 0);
    scene.preempted[0] = 2;
    assert_scene(4, 1, "scheduler scripted preempts slot 2, which waits");
    growing_answer(1, 0, 1);
    scene.idle[0] = 6;
    assert_scene(4, 1, "scheduler scripted idles slot 6, which neither runs nor waits");
    growing_answer(0, 1, 0);
    scene.answer.all_running = 1;
    assert_scene(4, 1, "scheduler scripted preempts slot 1, which takes part by all_running");
    growing_answer(1, 9, 0);
    assert_scene(8, 1, "scheduler scripted preempts 9 requests, more than the capacity of 8");
    growing_answer(1, 0, 9);
    assert_scene(8, 1, "scheduler scripted lets 9 requests idle, more than the capacity of 8");
    growing_answer(1, 2, 0);
    assert_scene(1, 1, "scheduler scripted writes to preempted[1], beyond its capacity of 1");
    growing_answer(1, 0, 2);
    assert_scene(1, 1, "scheduler scripted writes to idle[1], beyond its capacity of 1");
}

TEST(the_guard_names_growth_beyond_the_memory) {
    growing_answer(2, 0, 0);
    scene.view.kv_free_bytes = 999;
    assert_scene(4, 1,
                 "scheduler scripted lets running requests grow by 1000 KV bytes and admits 0, "
                 "more than the 999 that are free and 0 given back");
    growing_answer(0, 0, 0);
    scene.answer.all_running = 1;
    scene.view.kv_free_bytes = 999;
    assert_scene(4, 1,
                 "scheduler scripted lets running requests grow by 1000 KV bytes and admits 0, "
                 "more than the 999 that are free and 0 given back");
    growing_answer(2, 1, 0);
    scene.answer.n_admitted = 1;
    scene.selected[1] = 2;
    scene.view.kv_free_bytes = 499;
    assert_scene(4, 1,
                 "scheduler scripted lets running requests grow by 500 KV bytes and admits 1000, "
                 "more than the 499 that are free and 1000 given back");
    scene.view.kv_free_bytes = 500;
    scene.view.max_requests = 1;
    assert_scene(4, 1, "scheduler scripted lets 2 requests run at once, more than max_requests 1");
    growing_answer(1, 1, 0);
    scene.grows = false;
    assert_scene(4, 1,
                 "scheduler scripted preempts 1 requests though it does not say that it grows");
    growing_answer(0, 1, 0);
    scene.answer.wake_ns = 51;
    assert_scene(4, 1, "scheduler scripted preempts 1 requests and selects none");
    growing_answer(1, 0, 1);
    scene.view.max_batched_tokens = 199;
    assert_scene(4, 1,
                 "scheduler scripted takes 200 query tokens into a step, more than "
                 "max_batched_tokens 199");
}

TEST(a_prefill_in_chunks_and_memory_to_give_back_are_no_excuse_to_wait) {
    growing_answer(0, 0, 0);
    scene.view.kv_free_bytes = 0;
    scene.view.max_batched_tokens = 10;
    assert_scene(4, 1,
                 "scheduler scripted selects nothing and names no later time although slot 1 "
                 "could run");
    scene.grows = false;
    assert_scene(4, 1, "");
}

/* Waits a nanosecond longer each time; the turn is kept in the state, as it must be. */
static void turning_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    batch->wake_ns = view->now_ns + ++*(uint32_t *)state;
}

TEST(asking_twice_moves_the_state_of_a_scheduler_once) {
    struct scheduler turning = scripted_scheduler;
    turning.policy.state_bytes = sizeof(uint32_t);
    turning.schedule = turning_schedule;
    uint32_t turn = 0;
    struct guard guard;
    scene_init();
    guard_init(&guard, &turning.policy, &turn, N_SLOTS);
    for (uint32_t i = 1; i <= 12; i++) {
        /* A parameter may be set between two calls. */
        if (i == 4) {
            turn = 9;
            i = 10;
        }
        struct batch batch =
            MAKE(struct batch, .selected = scene.selected, .chunk_tokens = scene.chunk_tokens,
                 .preempted = scene.preempted, .idle = scene.idle);
        guard.outer.scheduler.schedule(&guard, &scene.view, &batch);
        ASSERT_SAYS(guard.err.text, "");
        ck_assert_int_eq(batch.wake_ns, 50 + i);
        ck_assert_uint_eq(turn, i);
    }
    guard_fini(&guard);
}

TEST(the_guard_names_starvation) {
    ANSWER(0, 0, 0, 0);
    assert_scene(4, 1,
                 "scheduler scripted selects nothing and names no later time although slot 0 "
                 "could run");
    ANSWER(0, 0, 1, 0);
    scene.view.n_running = 0;
    assert_scene(4, 1,
                 "scheduler scripted selects nothing and names no later time although slot 2 "
                 "could run");
    ANSWER(0, 0, 0, 0);
    scene.answer.wake_ns = 50;
    assert_scene(4, 1,
                 "scheduler scripted selects nothing and asks to be woken at 50 ns, which is not "
                 "after now (50)");
    scene.answer.wake_ns = 51;
    assert_scene(4, 2 * GUARD_MANY_POSTPONED, "");
    /* A wait is no starvation by its number of naps, nor by its length, but by both. */
    ANSWER(0, 0, 0, 0);
    scene.answer.wake_ns = 51;
    scene.nap_ns = GUARD_LONGEST_WAIT_NS / 4;
    assert_scene(4, GUARD_MANY_POSTPONED - 1, "");
    scene.nap_ns = GUARD_LONGEST_WAIT_NS / GUARD_MANY_POSTPONED - 1;
    assert_scene(4, GUARD_MANY_POSTPONED + 1, "");
    scene.nap_ns++;
    assert_scene(4, GUARD_MANY_POSTPONED + 1,
                 "scheduler scripted starves: it selected nothing for 604800 s, again and again, "
                 "although slot 0 could run");
    ANSWER(0, 0, 0, 0); /* all there is, which the others could give back */
    scene.requests[0].kv_bytes = scene.view.kv_total_bytes;
    assert_scene(4, 1,
                 "scheduler scripted selects nothing and names no later time although slot 0 "
                 "could run");
    /* Nothing runs and the first in the queue does not fit: that is not starvation. */
    ANSWER(0, 0, 0, 0);
    scene.view.n_running = 0;
    scene.requests[2].kv_bytes = 2001;
    assert_scene(4, 1001, "");
}

TEST(the_guard_names_writes_to_the_view) {
    ANSWER(0, 0, 1, 0);
    scene.writes_running = true;
    assert_scene(4, 1,
                 "scheduler scripted writes to running[1] of the view, which it may only read");
    ANSWER(0, 0, 1, 0);
    scene.writes_now = true;
    assert_scene(4, 1, "scheduler scripted writes to the view, which it may only read");
}

/* A cache policy that answers as the test says, on a request in the middle of its second block. */
static struct {
    struct request request;
    struct cache_policy cache;
    struct row_sets rows;
    uint32_t repeat;
    bool writes_request, writes_state, writes_memory, leaves_n_chosen, grows_rows, shrinks_rows,
        changes_rows, reads_rows;
} cached;

static uint32_t scripted_plan(const void *state, const void *memory, const struct request *request,
                              struct row_sets *rows) {
    struct row_sets given = *rows;
    *rows = cached.rows;
    rows->held += cached.grows_rows ? request->block : 0;
    rows->held -= cached.shrinks_rows ? request->block : 0;
    if (cached.leaves_n_chosen) {
        rows->n_chosen = given.n_chosen;
    }
    if (cached.changes_rows && request->step_in_block > 4) {
        rows->head.first++;
    }
    rows->held += cached.reads_rows && request->rows.held == 0;
    if (cached.writes_request) {
        ((struct request *)request)->kv_rows++;
    }
    if (cached.writes_state) {
        ++*(char *)state;
    }
    if (cached.writes_memory) {
        ++*(uint64_t *)memory;
    }
    return cached.repeat;
}

static uint32_t keep_all(const void *state, const void *memory, const struct eviction_view *view,
                         uint8_t *keep) {
    (void)state, (void)memory;
    memcpy(keep, view->pending, view->length);
    return view->length;
}

static void cached_init(void) {
    memset(&cached, 0, sizeof cached);
    cached.request = MAKE(struct request, .id = 5, .prompt_tokens = 36, .output_tokens = 64,
                          .canvas_tokens = 100, .block_tokens = 32, .block = 1, .block_start = 68,
                          .block_length = 32, .step_in_block = 2, .steps = 20,
                          .masked_in_block = 30, .uncached_in_block = 32, .kept_in_block = 32,
                          .reach_in_block = 32, .committed_tokens = 34);
    cached.rows = (struct row_sets){
        .kind = ROW_KV, .run = {68, 100}, .head = {68, 100}, .keep = {{0, 68}}, .held = 100};
    cached.request.rows = cached.rows;
    cached.repeat = UINT32_MAX;
    cached.cache = MAKE(struct cache_policy,
                        .policy = {.abi = POLICY_ABI,
                                   .kind = POLICY_CACHE,
                                   .size = sizeof(struct cache_policy),
                                   .state_bytes = 1,
                                   .name = "scripted",
                                   .doc = "answers as the test says"},
                        .memory_bytes = 8, .plan = scripted_plan);
}

static void assert_cached(const char *sentence) {
    struct guard guard;
    struct row_sets rows;
    char state = 0;
    uint64_t memory = 3;
    guard_init(&guard, &cached.cache.policy, &state, N_SLOTS);
    uint32_t repeat = guard.outer.cache.plan(&guard, &memory, &cached.request, &rows);
    ASSERT_SAYS(guard.err.text, sentence);
    ck_assert_uint_eq(repeat, sentence[0] == '\0' ? cached.repeat : 1);
    guard_fini(&guard);
}

#define CACHED(spoil, sentence)                                                                    \
    do {                                                                                           \
        cached_init();                                                                             \
        spoil;                                                                                     \
        assert_cached(sentence);                                                                   \
    } while (0)

TEST(the_guard_names_each_broken_promise_of_a_cache_policy) {
    CACHED((void)0, "");
    CACHED(cached.rows.kind = 5, "cache scripted has rows of kind 5, which is no row_kind");
    CACHED(cached.rows.chooser = 6, "cache scripted names chooser 6, which is no row_chooser");
    CACHED(cached.rows.settles = 4, "cache scripted settles by rule 4, which is no block_cache");
    CACHED(cached.rows.skips = 2, "cache scripted sets rows.skips to 2, neither 0 nor 1");
    CACHED(cached.rows.run.end = 68,
           "cache scripted runs [68, 68) without the whole active block [68, 100)");
    CACHED(cached.rows.run.first = 69,
           "cache scripted runs [69, 100) without the whole active block [68, 100)");
    CACHED(cached.rows.run.end = 101,
           "cache scripted sets rows.run to [68, 101) on a canvas of 100 tokens");
    CACHED(cached.rows.keep[1].first = 1,
           "cache scripted sets rows.keep[1] to [1, 0) on a canvas of 100 tokens");
    CACHED((cached.rows.keep[1] = (struct range){67, 68}),
           "cache scripted keeps [0, 68) and then [67, 68), which is out of order");
    CACHED(cached.rows.head.first = 70,
           "cache scripted puts [70, 100) through the head without the whole active block "
           "[68, 100)");
    CACHED(cached.rows.head.first = 67,
           "cache scripted puts [67, 100) through the head but runs [68, 100)");
    CACHED(cached.rows.n_chosen = 5, "cache scripted chooses 5 of 0 positions that run");
    CACHED((cached.rows.chooser = CHOSEN_BY_HEAD, cached.rows.n_chosen = 69),
           "cache scripted chooses 69 of 68 rows");
    CACHED((cached.rows.chooser = CHOSEN_BY_HEAD, cached.rows.n_chosen = 5,
            cached.rows.run.first = 60),
           "cache scripted chooses of 68 rows in a step that runs 8 of them");
    CACHED((cached.rows.chooser = CHOSEN_BY_CHANGE, cached.rows.n_chosen = 33),
           "cache scripted chooses 33 of 32 positions that run");
    CACHED((cached.rows.chooser = CHOSEN_FOR_HEADS, cached.rows.kind = ROW_FEATURES,
            cached.rows.n_chosen = 1),
           "cache scripted has heads choose among rows of kind 2, which is not ROW_KV");
    CACHED((cached.rows.chooser = CHOSEN_FOR_HEADS, cached.rows.n_chosen = 8,
            cached.request.rows.n_chosen = 9),
           "cache scripted reads 8 chosen rows of 9");
    CACHED(cached.rows.held = 67, "cache scripted keeps 68 rows but holds 67");
    CACHED(cached.rows.kind = ROW_NONE,
           "cache scripted keeps 68 rows and holds 100 though its kind of row is ROW_NONE");
    CACHED(cached.rows.chooser = CHOSEN_BY_POLICY,
           "cache scripted evicts positions but keeps no exact rows");
    CACHED(cached.rows.settles = BLOCK_PARTS,
           "cache scripted runs a block in parts but keeps no exact rows");
    CACHED(cached.rows.settles = BLOCK_DELAYED,
           "cache scripted leaves positions out but keeps 68 rows of a canvas of 100 tokens");
    CACHED(cached.rows.evict_layer = 1, "cache scripted sets rows.evict_layer to 1 with chooser 0");
    CACHED(cached.rows.recent = 1, "cache scripted sets rows.recent to 1 and settles by rule 0");
    CACHED(cached.rows.attends = 1,
           "cache scripted attends to 1 keys of a canvas of 100 tokens, with rows of kind 1");
    CACHED(cached.rows.chooser = CHOSEN_BY_SCORE,
           "cache scripted names chooser 5 for rows of kind 1: CHOSEN_BY_SCORE goes with "
           "ROW_PATTERN");
    CACHED(cached.request.steps = 0, "cache scripted reads 68 rows before any step wrote them");
    CACHED(cached.request.rows.keep[0].end = 36,
           "cache scripted reads the rows of [0, 68) and [0, 0), where those of [0, 36) and "
           "[0, 0) are kept");
    CACHED(cached.cache.evict = keep_all,
           "cache scripted has the callback evict but does not name it as chooser");
    CACHED(cached.grows_rows = true,
           "cache scripted holds 100 rows at the start of a request and 101 in its block 1");
    CACHED(cached.leaves_n_chosen = true, "cache scripted leaves rows.n_chosen unset");
    CACHED(cached.reads_rows = true, "cache scripted plans differently when asked the same again: "
                                     "rows.held 100, then 101");
    CACHED(cached.repeat = 0, "cache scripted says that its row sets hold for 0 steps");
    CACHED(cached.changes_rows = true,
           "cache scripted says that its row sets hold for 4294967295 steps, but after 15 steps "
           "and 15 commits rows.head.first is 69 instead of 68");
    CACHED((cached.changes_rows = true, cached.repeat = 3), "");
    CACHED((cached.changes_rows = true, cached.repeat = 4),
           "cache scripted says that its row sets hold for 4 steps, but after 3 steps and 3 "
           "commits rows.head.first is 69 instead of 68");
    CACHED(cached.writes_request = true,
           "cache scripted writes to request 5, which it may only read");
    CACHED(cached.writes_state = true,
           "cache scripted writes to its state, which this callback may only read");
    CACHED(cached.writes_memory = true,
           "cache scripted writes to its memory of request 5, which plan may only read");
}

/* What graph and memory are made for stays as it was in the answer before. */
TEST(the_guard_names_an_answer_of_another_kind) {
    static const char *const sentences[] = {
        "cache scripted sets rows.kind to 2 and once to 1, which is the same in all answers",
        "cache scripted sets rows.chooser to 4 and once to 0, which is the same in all answers",
        "cache scripted keeps all of a canvas in one answer and a part of it in another"};
    for (int i = 0; i < 3; i++) {
        struct guard guard;
        struct row_sets rows;
        char state = 0;
        uint64_t memory = 3;
        cached_init();
        guard_init(&guard, &cached.cache.policy, &state, N_SLOTS);
        (void)guard.outer.cache.plan(&guard, &memory, &cached.request, &rows);
        ASSERT_SAYS(guard.err.text, "");
        cached.rows.kind = i == 0 ? ROW_FEATURES : ROW_KV;
        cached.rows.chooser = i == 1 ? CHOSEN_BY_CHANGE : CHOSEN_BY_NOBODY;
        cached.rows.keep[0].end = i == 2 ? 100 : 68;
        cached.request.rows = cached.rows;
        (void)guard.outer.cache.plan(&guard, &memory, &cached.request, &rows);
        ASSERT_SAYS(guard.err.text, sentences[i]);
        ck_assert_int_eq(guard.broken, PROMISE_SPAN);
        guard_fini(&guard);
    }
}

/* The same request under an exact policy, with its first block committed. */
static void exact_init(void) {
    cached_init();
    cached.request.prompt_tokens = 32;
    cached.request.output_tokens = 68;
    cached.request.causal = SEES_BLOCKS;
    cached.request.block_start = 64;
    cached.request.cached_tokens = 64;
    cached.request.passes_in_block = 2;
    cached.rows = MAKE(struct row_sets, .kind = ROW_EXACT, .run = {64, 96}, .skips = 1,
                       .head = {64, 96}, .keep = {{0, 96}}, .held = 100);
}

/* In a prefill of 48 positions behind 16. */
static void exact_prefill(void) {
    exact_init();
    cached.request.cached_tokens = 16;
    cached.rows.run = (struct range){16, 64};
    cached.rows.head = (struct range){64, 64};
    cached.rows.keep[0].end = 64;
    cached.rows.skips = 0;
    cached.repeat = 1;
}

/* Where the block has no masked position left. */
static void exact_commit(void) {
    exact_init();
    cached.request.masked_in_block = 0;
    cached.rows.head = (struct range){96, 96};
    cached.repeat = 1;
}

/* With a part of the block alone. */
static void exact_part(void) {
    exact_init();
    cached.request.known_in_front = 2;
    cached.rows.settles = BLOCK_PARTS;
    cached.rows.run = cached.rows.head = (struct range){64, 72};
    cached.rows.skips = 0;
    cached.repeat = 1;
}

#define EXACT(init, spoil, sentence)                                                               \
    do {                                                                                           \
        init();                                                                                    \
        spoil;                                                                                     \
        assert_cached(sentence);                                                                   \
    } while (0)

TEST(the_guard_names_each_broken_promise_of_an_exact_cache_policy) {
    EXACT(exact_init, (void)0, "");
    EXACT(exact_init, cached.rows.keep[0].end = 97,
          "cache scripted keeps 97 rows from 0 on, not the 96 of what is before the block and of "
          "it");
    EXACT(exact_init, cached.rows.run.end = 94,
          "cache scripted runs [64, 94) of the block [64, 96) though it runs whole blocks");
    EXACT(exact_init, (cached.rows.run = (struct range){60, 96}),
          "cache scripted runs [60, 96), which is not of the block [64, 96)");
    EXACT(exact_init, cached.rows.head.end = 95,
          "cache scripted puts [64, 95) through the head where it decides on [64, 96)");
    EXACT(exact_init, cached.rows.held = 95, "cache scripted keeps 96 rows but holds 95");
    EXACT(exact_init, cached.grows_rows = true, "");
    EXACT(exact_init, cached.shrinks_rows = true,
          "cache scripted holds 100 rows in block 0 of a request and 99 in block 1");
    EXACT(exact_init,
          (cached.shrinks_rows = true, cached.request.block = 0,
           cached.request.block_start = cached.request.cached_tokens = 32,
           cached.rows.run = cached.rows.head = (struct range){32, 64},
           cached.rows.keep[0].end = 64),
          "cache scripted holds 100 rows in block 0 of a request and 98 in its last block");
    EXACT(exact_init, (cached.rows.chooser = CHOSEN_BY_POLICY, cached.rows.evict_layer = 1),
          "cache scripted names its callback evict as chooser but has none");
    EXACT(exact_init, (cached.rows.chooser = CHOSEN_BY_POLICY, cached.cache.evict = keep_all),
          "cache scripted sets rows.evict_layer to 0 with chooser 1");
    EXACT(exact_init,
          (cached.rows.chooser = CHOSEN_BY_POLICY, cached.rows.evict_layer = 1,
           cached.cache.evict = keep_all),
          "");
    EXACT(exact_prefill, (void)0, "");
    EXACT(exact_prefill, cached.rows.run.end = 63,
          "cache scripted runs [16, 63) where the rows of [16, 64) are missing");
    EXACT(exact_prefill, cached.rows.run.first = 15,
          "cache scripted runs [15, 64) where the rows of [16, 64) are missing");
    EXACT(exact_prefill, cached.rows.run.end = 96,
          "cache scripted runs [16, 96) where the rows of [16, 64) are missing");
    EXACT(exact_prefill, cached.rows.skips = 1,
          "cache scripted leaves positions of the block out of a prefill");
    EXACT(exact_prefill, cached.rows.head.first = 15,
          "cache scripted puts [15, 64) through the head but runs [16, 64)");
    EXACT(exact_prefill, cached.rows.keep[0].first = 1,
          "cache scripted keeps 63 rows from 1 on, not the 64 of what is before the block");
    EXACT(exact_commit, (void)0, "");
    EXACT(exact_commit, cached.rows.run.first = 96, "");
    EXACT(exact_commit, cached.request.uncached_in_block = 0, "");
    EXACT(exact_commit, (cached.request.uncached_in_block = 0, cached.rows.skips = 0),
          "cache scripted runs [64, 96) though every row is final");
    EXACT(exact_commit, (cached.request.cached_tokens = 0, cached.rows.run.first = 96),
          "cache scripted runs [96, 96) where the rows of [0, 64) are missing");
    EXACT(exact_init, cached.rows.run.first = 96,
          "cache scripted runs [96, 96), which is not of the block [64, 96)");
    EXACT(exact_part, (void)0, "");
    EXACT(exact_part, cached.request.known_in_front = 8,
          "cache scripted runs [64, 72) of a block whose first masked position is 72");
    EXACT(exact_part, cached.request.passes_in_block = 0,
          "cache scripted runs [64, 72) of the block [64, 96) where the others have no rows");
    EXACT(exact_part, cached.request.masked_in_block = 0,
          "cache scripted runs [64, 72) of the block [64, 96) where none is masked");
}

/* A policy that evicts as the test says from a block of six: position 0 is committed and cached, 1
 * committed and not yet cached, 2 to 5 are masked. */
static struct {
    uint8_t keep[6];
    uint32_t returned;
    bool writes_behind, writes_delta, writes_memory, alternates, remembers_too_much;
    uint32_t turn;
} evicted;

static uint32_t scripted_evict(const void *state, const void *memory,
                               const struct eviction_view *view, uint8_t *keep) {
    (void)state;
    memcpy(keep, evicted.keep, view->length);
    if (evicted.writes_behind) {
        keep[view->length + 2] = 1;
    }
    if (evicted.writes_delta) {
        ((float *)view->delta)[3] = 0;
    }
    if (evicted.writes_memory) {
        ++*(uint64_t *)memory;
    }
    if (evicted.alternates && evicted.turn++ % 2 == 1) {
        keep[2] = 0;
        keep[3] = 1;
    }
    return evicted.returned;
}

static void scripted_learn(const void *state, void *memory, const struct request *request,
                           const struct learned *learned) {
    (void)state, (void)request;
    uint64_t *remembered = memory;
    remembered[evicted.remembers_too_much ? 1 : 0] +=
        learned->n + (evicted.alternates ? evicted.turn++ : 0);
}

static void assert_evicted(const char *sentence, const char *learning) {
    static const uint8_t pending[] = {0, 1, 1, 1, 1, 1}, masked[] = {0, 0, 1, 1, 1, 1};
    static const float delta[] = {0, 0, 0.5f, 0.25f, 0, -1};
    struct cache_policy cache =
        MAKE(struct cache_policy,
             .policy = {.abi = POLICY_ABI,
                        .kind = POLICY_CACHE,
                        .size = sizeof cache,
                        .name = "scripted",
                        .doc = "answers as the test says"},
             .memory_bytes = 8, .evict = scripted_evict, .learn = scripted_learn);
    const struct request request = {.id = 3, .block_length = 6, .masked_in_block = 4};
    const struct eviction_view view = {&request, 6, pending, masked, delta, -1};
    struct guard guard;
    char state = 0;
    uint8_t keep[6];
    uint64_t memory = 40;
    evicted.turn = 0;
    guard_init(&guard, &cache.policy, &state, N_SLOTS);
    uint32_t kept = guard.outer.cache.evict(&guard, &memory, &view, keep);
    ASSERT_SAYS(guard.err.text, sentence);
    ck_assert_uint_eq(kept, sentence[0] == '\0' ? evicted.returned : 5);
    ck_assert_int_eq(memcmp(keep, sentence[0] == '\0' ? evicted.keep : pending, 6), 0);
    if (sentence[0] == '\0') {
        const struct learned learned = {.n = 2, .commit = (const uint8_t[6]){0, 0, 1, 0, 1, 0}};
        guard.outer.cache.learn(&guard, &memory, &request, &learned);
        ASSERT_SAYS(guard.err.text, learning);
        ck_assert_uint_eq(memory, learning[0] == '\0' ? 42 : 40);
    }
    guard_fini(&guard);
}

#define EVICTED(spoil, sentence, learning)                                                         \
    do {                                                                                           \
        memset(&evicted, 0, sizeof evicted);                                                       \
        memcpy(evicted.keep, (const uint8_t[]){0, 1, 1, 0, 1, 0}, 6);                              \
        evicted.returned = 3;                                                                      \
        spoil;                                                                                     \
        assert_evicted(sentence, learning);                                                        \
    } while (0)

TEST(the_guard_names_each_broken_promise_of_an_eviction) {
    EVICTED((void)0, "", "");
    EVICTED(evicted.keep[3] = 2,
            "cache scripted leaves keep[3] unset or sets it to 2, neither 0 nor 1", "");
    EVICTED((evicted.keep[0] = 1, evicted.returned = 4),
            "cache scripted keeps position 0, which does not run in this step", "");
    EVICTED((evicted.keep[1] = 0, evicted.returned = 2),
            "cache scripted evicts position 1, which is committed and not yet cached", "");
    EVICTED((evicted.keep[2] = evicted.keep[4] = 0, evicted.returned = 1),
            "cache scripted keeps none of the masked positions, which leaves nothing to commit",
            "");
    EVICTED(evicted.returned = 4, "cache scripted returns 4 but keeps 3 positions", "");
    EVICTED(evicted.writes_behind = true, "cache scripted writes to keep[8], beyond its 6 entries",
            "");
    EVICTED(evicted.writes_delta = true,
            "cache scripted writes to what it is shown of the block, which it may only read", "");
    EVICTED(evicted.writes_memory = true,
            "cache scripted writes to what it is shown of the block, which it may only read", "");
    EVICTED(evicted.alternates = true,
            "cache scripted evicts differently when asked the same again: 3 positions kept, then 3",
            "");
    EVICTED(evicted.remembers_too_much = true, "",
            "cache scripted writes to byte 8 of its memory, beyond its memory_bytes of 8");
}

/* A decoder that answers as the test says about three masked positions. */
static struct {
    uint32_t n, repeat, returned;
    uint8_t commit[4];
    bool slows_down, leaves_repeat, writes_confidence, writes_behind;
    bool writes_offset, writes_entropy, writes_seen;
    uint32_t turn_every, turn;
} decoded;

static uint32_t scripted_count(const void *state, const struct request *request, uint32_t *repeat) {
    (void)state;
    *repeat = decoded.leaves_repeat ? *repeat : decoded.repeat;
    bool turns = decoded.turn_every > 0 && decoded.turn++ % 2 == 1;
    return decoded.n - ((decoded.slows_down && request->step_in_block > 0) || turns ? 1 : 0);
}

static uint32_t scripted_choose(const void *state, const struct request *request,
                                const struct decode_seen *seen, uint8_t *commit) {
    (void)state, (void)request;
    memcpy(commit, decoded.commit, seen->n);
    if (decoded.writes_behind) {
        commit[seen->n + 1] = 1;
    }
    if (decoded.writes_confidence) {
        ((float *)seen->confidence)[0] = 0;
    }
    if (decoded.writes_offset) {
        ((uint32_t *)seen->offset)[0] = 7;
    }
    if (decoded.writes_entropy) {
        ((float *)seen->entropy)[2] = 7;
    }
    if (decoded.writes_seen) {
        ((struct decode_seen *)seen)->n = 1;
    }
    if (decoded.turn_every > 0 && decoded.turn++ % 2 == 1) {
        commit[0] = 1;
        commit[1] = 0;
    }
    return decoded.returned;
}

static const struct policy scripted_decoder = {.abi = POLICY_ABI,
                                               .kind = POLICY_DECODER,
                                               .size = sizeof(struct decoder),
                                               .name = "scripted",
                                               .doc = "answers as the test says",
                                               .state_bytes = 1};

static void assert_decoded(bool counts, const char *sentence) {
    const struct decoder decoder =
        MAKE(struct decoder, .policy = scripted_decoder, .count = counts ? scripted_count : NULL,
             .choose = counts ? NULL : scripted_choose);
    const struct request request = {.masked_in_block = counts ? 12 : 3, .block_length = 12};
    const float confidence[] = {0.5f, 0.6f, 0.7f}, entropy[] = {-1, -2, -3};
    const uint32_t offset[] = {0, 1, 5};
    const struct decode_seen seen =
        MAKE(struct decode_seen, .n = 3, .offset = offset, .confidence = confidence,
             .margin = confidence, .entropy = entropy);
    uint8_t commit[3];
    uint32_t repeat = 7;
    struct guard guard;
    char state = 0;
    guard_init(&guard, &decoder.policy, &state, N_SLOTS);
    if (counts) {
        guard.outer.decoder.count(&guard, &request, &repeat);
    } else {
        guard.outer.decoder.choose(&guard, &request, &seen, commit);
    }
    ASSERT_SAYS(guard.err.text, sentence);
    guard_fini(&guard);
}

#define DECODED(counts, spoil, sentence)                                                           \
    do {                                                                                           \
        memset(&decoded, 0, sizeof decoded);                                                       \
        decoded.n = 3;                                                                             \
        decoded.repeat = 4;                                                                        \
        decoded.commit[1] = 1;                                                                     \
        decoded.returned = 1;                                                                      \
        spoil;                                                                                     \
        assert_decoded(counts, sentence);                                                          \
    } while (0)

TEST(the_guard_names_each_broken_promise_of_a_decoder) {
    DECODED(true, (void)0, "");
    DECODED(true, decoded.n = 0, "decoder scripted commits 0 of 12 masked positions");
    DECODED(true, decoded.n = 13, "decoder scripted commits 13 of 12 masked positions");
    DECODED(true, decoded.repeat = 0,
            "decoder scripted says that its count holds for 0 steps, or leaves repeat unset");
    DECODED(true, decoded.leaves_repeat = true,
            "decoder scripted says that its count holds for 0 steps, or leaves repeat unset");
    DECODED(true, decoded.slows_down = true,
            "decoder scripted says that its count of 3 holds for 4 steps, but after 1 steps it is "
            "2");
    DECODED(true, (decoded.slows_down = true, decoded.repeat = 1), "");
    DECODED(true, decoded.turn_every = 2,
            "decoder scripted counts differently when asked the same again: 3 for 4 steps, then 2 "
            "for 4");
    DECODED(false, (void)0, "");
    DECODED(false, (decoded.commit[1] = 0, decoded.returned = 0),
            "decoder scripted commits 0 of 3 masked positions");
    DECODED(false, decoded.returned = 2, "decoder scripted returns 2 but sets 1 flags");
    DECODED(false, decoded.commit[2] = 255,
            "decoder scripted leaves commit[2] unset or sets it to 255, neither 0 nor 1");
    DECODED(false, decoded.writes_behind = true,
            "decoder scripted writes to commit[4], beyond its 3 entries");
    DECODED(false, decoded.writes_confidence = true,
            "decoder scripted writes to the confidences, which it may only read");
    DECODED(false, decoded.writes_offset = true,
            "decoder scripted writes to the offsets, which it may only read");
    DECODED(false, decoded.writes_entropy = true,
            "decoder scripted writes to the entropies, which it may only read");
    DECODED(false, decoded.writes_seen = true,
            "decoder scripted writes to what it is shown of a step, which it may only read");
    DECODED(false, decoded.turn_every = 2,
            "decoder scripted chooses differently when asked the same again: 1 positions, then 1");
}

/* A decoder that names a rule as the test says. */
static struct {
    struct decode_rule rule;
    struct decoder_credit credit;
    bool counts, reads_statistics, turns, grows, writes_request, writes_state;
    uint32_t n_asked;
} ruled;

static uint32_t ruled_count(const void *state, const struct request *request, uint32_t *repeat) {
    (void)state, (void)request;
    *repeat = 1;
    return 1;
}

static void scripted_rule(const void *state, const struct request *request,
                          struct decode_rule *out) {
    *out = ruled.rule;
    out->threshold += ruled.turns ? (float)ruled.n_asked++ : 0;
    out->factor += ruled.grows ? (float)request->step_in_block : 0;
    if (ruled.writes_request) {
        ((struct request *)request)->steps = 77;
    }
    if (ruled.writes_state) {
        *(char *)state = 77;
    }
}

static void scripted_credit(const void *state, struct decoder_credit *out) {
    (void)state;
    *out = ruled.credit;
}

static void assert_ruled(const char *sentence) {
    const struct decoder decoder =
        MAKE(struct decoder, .policy = scripted_decoder, .count = ruled.counts ? ruled_count : NULL,
             .rule = scripted_rule, .credit = scripted_credit,
             .reads_statistics = ruled.reads_statistics);
    const struct request request = {.masked_in_block = 3, .block_length = 12};
    struct decode_rule rule;
    struct decoder_credit credit;
    struct guard guard;
    char state = 0;
    guard_init(&guard, &decoder.policy, &state, N_SLOTS);
    guard.outer.decoder.rule(&guard, &request, &rule);
    if (!ruled.writes_state) { /* which would be seen there, too */
        guard.outer.decoder.credit(&guard, &credit);
    }
    ASSERT_SAYS(guard.err.text, sentence);
    guard_fini(&guard);
}

#define RULED(spoil, sentence)                                                                     \
    do {                                                                                           \
        memset(&ruled, 0, sizeof ruled);                                                           \
        ruled.rule.kind = DECODE_THRESHOLD;                                                        \
        ruled.rule.threshold = 0.9f;                                                               \
        spoil;                                                                                     \
        assert_ruled(sentence);                                                                    \
    } while (0)

TEST(the_guard_names_each_broken_promise_of_a_rule) {
    RULED((void)0, "");
    RULED(ruled.rule.kind = 9, "decoder scripted names rule 9 by rank 0, of 5 and 5");
    RULED(ruled.rule.rank = 5, "decoder scripted names rule 1 by rank 5, of 5 and 5");
    RULED(ruled.counts = true, "decoder scripted counts, but names a rule that does not");
    RULED(ruled.rule.kind = DECODE_COUNT,
          "decoder scripted names a rule that counts, but lacks the callback count");
    RULED((ruled.counts = true, ruled.rule.kind = DECODE_COUNT), "");
    RULED((ruled.counts = true, ruled.rule.kind = DECODE_COUNT, ruled.rule.temperature = 1), "");
    RULED(ruled.rule.temperature = 1, "decoder scripted draws by temperature, but does not count");
    RULED((ruled.counts = true, ruled.rule.kind = DECODE_COUNT, ruled.rule.temperature = NAN),
          "decoder scripted leaves a number of its rule unset, or out of range");
    RULED(ruled.rule.kind = DECODE_ENTROPY_BOUNDED,
          "decoder scripted bounds entropy, but ranks by another thing");
    RULED(ruled.rule.rank = RANK_MARGIN,
          "decoder scripted ranks by margin or entropy, but does not say that it reads them");
    RULED((ruled.rule.rank = RANK_MARGIN, ruled.reads_statistics = true), "");
    RULED(ruled.rule.slack = -1,
          "decoder scripted leaves a number of its rule unset, or out of range");
    RULED(ruled.rule.low = NAN,
          "decoder scripted leaves a number of its rule unset, or out of range");
    RULED(ruled.turns = true, "decoder scripted names another rule when asked the same again");
    RULED(ruled.grows = true, "decoder scripted changes more than threshold and key of its rule "
                              "from step to step");
    RULED(ruled.writes_request = true,
          "decoder scripted writes to request 0, which it may only read");
    RULED(ruled.writes_state = true,
          "decoder scripted writes to its state, which this callback may only read");
    RULED(ruled.credit.rule.beta = 1.5f, "decoder scripted gives credit with numbers out of range");
    RULED(ruled.credit.matrix = 2, "decoder scripted gives credit with numbers out of range");
}

static uint32_t routed;
static bool writes_replicas, alternates;

static uint32_t scripted_route(void *state, const struct request *request,
                               const struct replica_view *replicas, uint32_t n) {
    (void)state, (void)request;
    if (writes_replicas) {
        ((struct replica_view *)replicas)[n - 1].n_running++;
    }
    return alternates ? routed++ % 2 : routed;
}

static void assert_routed(const char *sentence) {
    const struct router router = MAKE(struct router,
                                      .policy = {.abi = POLICY_ABI,
                                                 .kind = POLICY_ROUTER,
                                                 .size = sizeof(struct router),
                                                 .name = "scripted",
                                                 .doc = "answers as the test says"},
                                      .route = scripted_route);
    const struct request request = {.id = 1};
    const struct replica_view replicas[2] = {{.n_running = 1}, {.n_running = 2}};
    struct guard guard;
    char state = 0;
    guard_init(&guard, &router.policy, &state, N_SLOTS);
    ck_assert_uint_lt(guard.outer.router.route(&guard, &request, replicas, 2), 2);
    ASSERT_SAYS(guard.err.text, sentence);
    guard_fini(&guard);
}

TEST(the_guard_names_each_broken_promise_of_a_router) {
    routed = 1;
    assert_routed("");
    routed = 2;
    assert_routed("router scripted chooses replica 2 of 2, counted from 0");
    routed = 0;
    alternates = true;
    assert_routed("router scripted chooses replica 0, then 1 when asked the same again");
    alternates = false;
    writes_replicas = true;
    assert_routed("router scripted writes to the view of the replicas, which it may only read");
}

/* ---- built-in policies ---- */

static const struct scheduler *watched;
static uint64_t shown; /* a digest of all that it saw */

static void mix(uint64_t number) {
    shown = (shown ^ number) * UINT64_C(0x100000001b3);
}

static void watching_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = 0, growth_bytes = 0;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        tokens += request->span.queries;
        growth_bytes += request->kv_bytes - request->kv_held_bytes;
        mix(view->running[i]);
    }
    ck_assert_int_eq(view->running_tokens, tokens);
    ck_assert_int_eq(view->running_growth_bytes, growth_bytes);
    ck_assert(view->kv_free_bytes >= 0 && view->kv_free_bytes <= view->kv_total_bytes);
    mix(view->n_waiting);
    for (uint32_t i = 0; i < view->n_waiting && i < 4; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        mix(request->prompt_tokens ^ (uint64_t)request->output_tokens << 32);
        mix((uint64_t)request->arrival_ns ^ request->span.queries);
    }
    mix((uint64_t)view->now_ns);
    mix((uint64_t)view->next_arrival_ns);
    mix((uint64_t)tokens);
    mix((uint64_t)view->kv_free_bytes);
    mix((uint64_t)view->kv_total_bytes);
    mix(view->max_batched_tokens ^ (uint64_t)view->max_requests << 32);
    watched->schedule(state, view, batch);
}

/* What a policy was asked in its exercise, as its report says it, too. */
static void keep_exercise(FILE *out, const struct policy *policy, const struct exercise *exercise) {
    fprintf(out, "%s %s: %" PRIu64 " calls, %" PRIu64 " preempted, %" PRIu64 " idle; checks",
            policy_kind_names[policy->kind], policy->name, exercise->n_calls, exercise->n_preempted,
            exercise->n_idle);
    for (int i = 0; i < PROMISE_COUNT; i++) {
        fprintf(out, " %" PRIu64, exercise->n_checked[i]);
    }
    if (policy->kind == POLICY_SCHEDULER) {
        fprintf(out, "; shown %016" PRIx64, shown);
    }
    fputs("\n", out);
}

/* Schedulers are shown the sums over what runs. */
static void exercise_one(const struct policy *policy, struct exercise *exercise) {
    struct scheduler watching;
    if (policy->kind == POLICY_SCHEDULER) {
        watched = (const struct scheduler *)policy;
        watching = *watched;
        watching.schedule = watching_schedule;
        shown = UINT64_C(0xcbf29ce484222325);
        policy = &watching.policy;
    }
    exercise_policy(exercise, policy);
    ck_assert_msg(exercise->guard.err.kind == ERR_NONE, "%s", exercise->guard.err.text);
}

TEST(every_built_in_policy_keeps_its_promises) {
    static struct exercise exercise;
    char *now;
    size_t size;
    FILE *out = mem_stream(&now, &size);
    for (int i = POLICY_SCHEDULER; i <= POLICY_ROUTER; i++) {
        enum policy_kind kind = (enum policy_kind)i;
        for (size_t j = 0; j < policy_count(kind); j++) {
            const struct policy *policy = policy_at(kind, j);
            struct err err = {0};
            ck_assert_msg(plugin_validate(policy, "built-in", &err) == 0, "%s", err.text);
            exercise_one(policy, &exercise);
            keep_exercise(out, policy, &exercise);
            ck_assert_uint_ge(exercise.n_calls, 3000);
            ck_assert(strcmp(policy->name, "focus") != 0 ||
                      exercise.n_checked[PROMISE_EVICT] > 10000);
            /* Growing schedulers are brought to chunks and to preemption. */
            if (kind == POLICY_SCHEDULER && ((const struct scheduler *)policy)->grows == 1) {
                ck_assert_uint_ge(exercise.n_checked[PROMISE_CHUNK], 300);
                ck_assert(exercise.n_preempted >= 30 && exercise.n_preempted <= exercise.n_calls);
            }
        }
    }
    mem_stream_close(out);
    kept_same("tests/golden/runs/exercises.txt", now);
    free(now);
}

SUITE("guard")
