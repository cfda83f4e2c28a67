/* Trials: every broken promise is named with its numbers, by the loop or because it was asked
 * twice, and the built-in policies break none. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/policy/check/trial.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/policy/plugin/registry.h"
#include "tests/support/batch.h"
#include "tests/support/kept.h"
#include "tests/support/rig.h"
#include "tests/support/says.h"

static const struct policy *named(enum policy_kind kind, const char *name) {
    struct err err = {0};
    const struct policy *policy = policy_find(kind, name, &err);
    ck_assert_msg(policy != NULL, "%s", err.text);
    return policy;
}

/* A policy with another one's callbacks, parameters and state. */
static union any_policy copied(enum policy_kind kind, const char *name) {
    union any_policy copy;
    const struct policy *policy = named(kind, name);
    memcpy(&copy, policy, policy->size);
    return copy;
}

/* ---- what the loop says ---- */

/* Twenty requests at once, as a trial has the loop serve them. */
static void serve_scripted(struct system *system, struct err *err) {
    static struct arrival arrivals[20];
    for (uint32_t i = 0; i < 20; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .prompt_tokens = 100, .output_tokens = 32,
                           .arrival_ns = i, .think_ns = -1);
    }
    struct list_source list = {arrivals, 20, 0};
    struct executor_sim *sim = executor_sim_open(system, system->settings.replicas);
    const struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_sim_interface(sim),
             .source = {&list, list_next, NULL}, .is_trial = true, .seed = 1);
    struct loop_result result;
    (void)loop_run(&request, &result, err);
    executor_sim_close(sim);
    system_close(system);
}

/* The built-in scheduler's batch, spoilt once: when two and more run and wait. */
static const struct scheduler *honest;
static void (*spoil)(const struct schedule_view *view, struct batch *batch);
static bool was_spoilt, prefills_alone, stays_spoilt;
static char said[1024]; /* the sentence */

static void spoilt_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    honest->schedule(state, view, batch);
    bool has_prefill = false;
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct request *request = &view->requests[batch->selected[i]];
        has_prefill |= request->span.phase == PHASE_PREFILL && i < batch->n - batch->n_admitted;
    }
    bool is_time = view->n_running >= 2 && view->n_waiting >= 2 && has_prefill == prefills_alone;
    if (is_time && (!was_spoilt || stays_spoilt)) {
        was_spoilt = true;
        spoil(view, batch);
    }
}

enum world { CANVAS, EXACT, EXACT_PREFILL, EXACT_NO_GROWTH };

static void assert_spoilt(enum world world,
                          void (*deed)(const struct schedule_view *view, struct batch *batch),
                          const char *sentence) {
    static const char *const settings[] = {
        "max_in_system=64",       "max_requests=4",       "page_tokens=16",
        "pool_pages=40",          "decoder=fixed",        "skip_ahead=off",
        "max_batched_tokens=600", "scheduler=continuous", NULL};
    struct system *system =
        rig_system(world == CANVAS ? "dllm-serve" : "sdar", "h200", true, settings);
    const char *name = world == CANVAS || world == EXACT_NO_GROWTH ? "continuous" : "chunked";
    union any_policy policy = copied(POLICY_SCHEDULER, name);
    struct err err = {0};
    honest = (const struct scheduler *)named(POLICY_SCHEDULER, name);
    policy.scheduler.schedule = spoilt_schedule;
    policy_state_free(&system->scheduler->policy, system->scheduler_state);
    system->scheduler = &policy.scheduler;
    system->scheduler_state = policy_state(&policy.policy);
    if (world == EXACT_PREFILL) {
        system->settings.max_batched_tokens = 64;
    }
    spoil = deed;
    was_spoilt = false;
    prefills_alone = world == EXACT_PREFILL;
    serve_scripted(system, &err);
    snprintf(said, sizeof said, "%s", err.text);
    ck_assert_msg(was_spoilt, "%d %s", world, err.text);
    ASSERT_SAYS(err.text, sentence);
}

#define SPOILT(world, deed, sentence) assert_spoilt(world, deed, sentence)
#define DEED(name, ...)                                                                            \
    static void name(const struct schedule_view *view, struct batch *batch) {                      \
        (void)view, (void)batch;                                                                   \
        __VA_ARGS__;                                                                               \
    }

/* Lists `slot` alone. */
static void list_one(struct batch *batch, uint32_t slot, bool admits) {
    *batch = (struct batch){.capacity = batch->capacity,
                            .n = 1,
                            .n_admitted = admits,
                            .selected = batch->selected,
                            .chunk_tokens = batch->chunk_tokens,
                            .preempted = batch->preempted,
                            .idle = batch->idle,
                            .swaps = batch->swaps,
                            .width_tokens = batch->width_tokens,
                            .threshold_millionths = batch->threshold_millionths,
                            .wake_ns = INT64_MAX};
    memset(batch->chunk_tokens, 0, batch->capacity * sizeof *batch->chunk_tokens);
    batch->selected[0] = slot;
}

static void ask(const struct schedule_view *view, struct batch *batch, uint32_t slot,
                uint32_t chunk) {
    (void)batch;
    const struct batch asked = {.n = 1, .selected = &slot, .chunk_tokens = &chunk};
    (void)view->estimate_ns(view->estimator, &asked);
}

DEED(do_nothing, )
DEED(list_too_many, batch->n = batch->capacity + 1)
DEED(admit_too_many, list_one(batch, view->waiting[0], true); batch->n_admitted = 2)
DEED(flag_two, batch->all_running = 2)
DEED(say_two, batch->says = 2)
DEED(hold_three, batch->hold = 3)
DEED(preempt_too_many, batch->n_preempted = batch->capacity + 1)
DEED(idle_too_many, batch->n_idle = batch->capacity + 1)
DEED(list_no_slot, list_one(batch, UINT32_MAX, false))
DEED(list_free_slot, list_one(batch, 60, false))
DEED(list_twice, list_one(batch, view->running[0], false); batch->n = 2;
     batch->selected[1] = view->running[0])
DEED(run_waiting, list_one(batch, view->waiting[0], false))
DEED(admit_running, list_one(batch, view->running[1], true))
DEED(list_beside_all, list_one(batch, view->running[0], false); batch->all_running = 1)
DEED(chunk_a_step, list_one(batch, view->running[0], false); batch->chunk_tokens[0] = 4)
/* Takes this many tokens less of the first listed prefill. */
static void chunk(const struct schedule_view *view, struct batch *batch, uint32_t but) {
    uint32_t i = 0;
    while (view->requests[batch->selected[i]].span.phase != PHASE_PREFILL) {
        i++;
    }
    batch->chunk_tokens[i] = view->requests[batch->selected[i]].span.queries - but;
}

DEED(chunk_parts, chunk(view, batch, 3))
DEED(chunk_all, chunk(view, batch, 0))
DEED(preempt_one, list_one(batch, view->running[0], false); batch->n_preempted = 1;
     batch->preempted[0] = view->running[1])
DEED(preempt_waiting, list_one(batch, view->running[0], false); batch->n_preempted = 1;
     batch->preempted[0] = view->waiting[1])
DEED(preempt_listed, list_one(batch, view->running[0], false); batch->n_preempted = 1;
     batch->preempted[0] = view->running[0])
DEED(preempt_for_nobody, list_one(batch, 0, false); batch->n = 0; batch->n_preempted = 1;
     batch->preempted[0] = view->running[0])
DEED(preempt_beside_all, list_one(batch, 0, false); batch->n = 0; batch->all_running = 1;
     batch->n_preempted = 1; batch->preempted[0] = view->running[0])
DEED(idle_waiting, list_one(batch, view->running[0], false); batch->n_idle = 1;
     batch->idle[0] = view->waiting[0])
DEED(idle_twice, list_one(batch, view->running[0], false); batch->n_idle = 2;
     batch->idle[0] = batch->idle[1] = view->running[1])
DEED(
    admit_all,
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        batch->selected[i] = view->waiting[i];
    } batch->n = batch->n_admitted = view->n_waiting;
    batch->all_running = 1)
DEED(wait_for_nothing, list_one(batch, 0, false); batch->n = 0)
DEED(wait_until_now, list_one(batch, 0, false); batch->n = 0; batch->wake_ns = view->now_ns)
DEED(wait_a_little, list_one(batch, 0, false); batch->n = 0; batch->wake_ns = view->now_ns + 1)
DEED(ask_about_free_slot, ask(view, batch, 60, 0))
DEED(ask_about_waiting, ask(view, batch, view->waiting[1], 0))
DEED(ask_about_chunk, ask(view, batch, view->running[0], 5))
DEED(ask_twice, ask(view, batch, view->running[0], 0); ask(view, batch, view->running[0], 0))

TEST(the_loop_lets_valid_batches_through) {
    for (enum world world = CANVAS; world <= EXACT_PREFILL; world++) {
        SPOILT(world, do_nothing, "");
        SPOILT(world, wait_a_little, "");
        SPOILT(world, ask_twice, "");
    }
    SPOILT(EXACT, preempt_one, "");
}

#define SAYS_BROKE(what) "scheduler broke its promise at s: " what

TEST(the_loop_names_a_batch_with_wrong_members) {
    SPOILT(CANVAS, list_too_many, SAYS_BROKE("requests listed (65 of at most 64)"));
    SPOILT(CANVAS, admit_too_many, SAYS_BROKE("admitted of those listed (2 of at most 1)"));
    SPOILT(CANVAS, flag_two, SAYS_BROKE("the flag all_running (2 of at most 1)"));
    SPOILT(CANVAS, say_two, SAYS_BROKE("the flag says (2 of at most 1)"));
    SPOILT(CANVAS, hold_three, SAYS_BROKE("hold, which is no batch_hold (3 of at most 2)"));
    SPOILT(EXACT, preempt_too_many, SAYS_BROKE("requests preempted (65 of at most 64)"));
    SPOILT(CANVAS, idle_too_many, SAYS_BROKE("requests idle (65 of at most 64)"));
    SPOILT(CANVAS, list_no_slot, SAYS_BROKE("slot listed (4294967295 of at most 63)"));
    SPOILT(CANVAS, list_free_slot, SAYS_BROKE("it listed slot 60, which is free, as a running"));
    SPOILT(CANVAS, list_twice, SAYS_BROKE("it listed request 0 twice"));
    SPOILT(CANVAS, run_waiting, SAYS_BROKE("it listed slot, which is queued, as a running"));
    SPOILT(CANVAS, admit_running, SAYS_BROKE("it listed slot 1, which is running, as a waiting"));
    SPOILT(CANVAS, list_beside_all, SAYS_BROKE("it listed slot 0, which is running, as a running"));
}

TEST(the_loop_names_chunks_that_are_none) {
    SPOILT(EXACT, chunk_a_step, SAYS_BROKE("tokens of a chunk (4 of at most 0)"));
    SPOILT(EXACT_PREFILL, chunk_parts,
           SAYS_BROKE("tokens of a chunk behind its blocks (1 of at most 0)"));
    SPOILT(EXACT_PREFILL, chunk_all, SAYS_BROKE("tokens of a chunk of at most"));
}

TEST(the_loop_names_lists_that_overlap_and_preemption_where_there_is_none) {
    SPOILT(CANVAS, preempt_one, SAYS_BROKE("preempted though their cached state is not exact (1"));
    SPOILT(EXACT_NO_GROWTH, preempt_one,
           SAYS_BROKE("preempted though it does not say that it "
                      "grows (1"));
    SPOILT(EXACT, preempt_waiting, SAYS_BROKE("it listed slot which is queued, as a preempted"));
    SPOILT(EXACT, preempt_listed, SAYS_BROKE("it listed request 0 twice"));
    SPOILT(EXACT, preempt_for_nobody, SAYS_BROKE("preempted while none is selected (1 of at most"));
    SPOILT(EXACT, preempt_beside_all,
           SAYS_BROKE("it listed slot 0, which is running, as a "
                      "preempted"));
    SPOILT(CANVAS, idle_waiting, SAYS_BROKE("it listed slot which is queued, as a idle"));
    SPOILT(CANVAS, idle_twice, SAYS_BROKE("it listed request 1 twice"));
}

TEST(the_loop_names_batches_beyond_the_headroom) {
    SPOILT(CANVAS, admit_all, SAYS_BROKE("bytes of cached state admitted and grown by of at most"));
    SPOILT(EXACT_PREFILL, admit_all, SAYS_BROKE("of at most"));
}

TEST(a_trial_names_waits_for_nothing) {
    SPOILT(CANVAS, wait_for_nothing,
           "scheduler starves at s: it selects nothing and names no "
           "later time although slot 0 could run");
    SPOILT(CANVAS, wait_until_now,
           "scheduler starves at s: it selects nothing and asks to be woken "
           "at ns, which is not after now");
    ck_assert_ptr_nonnull(strstr(said, "which is not after now"));
    stays_spoilt = true;
    SPOILT(CANVAS, wait_a_little, "scheduler starves at s: it selected nothing times in a row");
    stays_spoilt = false;
}

TEST(a_trial_names_questions_about_batches_that_are_none) {
    SPOILT(CANVAS, ask_about_free_slot,
           SAYS_BROKE("it listed slot 60, which is free, as a running "
                      "request, in a batch that it asks the duration "
                      "of"));
    SPOILT(CANVAS, ask_about_waiting,
           SAYS_BROKE("which is queued, as a running request, in a "
                      "batch that it asks the duration of"));
    SPOILT(EXACT, ask_about_chunk,
           SAYS_BROKE("tokens of a chunk (5 of at most 0), in a batch that "
                      "it asks the duration of"));
}

/* ---- cache policies in the loop ---- */

static const struct cache_policy *honest_cache;
static void (*spoil_rows)(const struct request *request, struct row_sets *rows, uint32_t *holds);

static uint32_t spoilt_plan(const void *state, const void *memory, const struct request *request,
                            struct row_sets *rows) {
    uint32_t holds = honest_cache->plan(state, memory, request, rows);
    if (request->prompt_tokens == 100) { /* no question of those that make the system */
        spoil_rows(request, rows, &holds);
    }
    return holds;
}

static uint32_t no_evict(const void *state, const void *memory, const struct eviction_view *view,
                         uint8_t *keep) {
    (void)state, (void)memory;
    memset(keep, 0, view->length);
    return 0;
}

static void assert_rows(const char *system_name, const char *cache, bool evicts,
                        void (*deed)(const struct request *request, struct row_sets *rows,
                                     uint32_t *holds),
                        const char *sentence) {
    char setting[64];
    const char *const settings[] = {setting, "max_in_system=64", "decoder=fixed", "block_tokens=8",
                                    NULL};
    snprintf(setting, sizeof setting, "cache=%s", cache);
    struct system *system = rig_system(system_name, "h200", true, settings);
    union any_policy policy = copied(POLICY_CACHE, cache);
    struct err err = {0};
    honest_cache = (const struct cache_policy *)named(POLICY_CACHE, cache);
    policy.cache.plan = spoilt_plan;
    policy.cache.evict = evicts ? no_evict : policy.cache.evict;
    system->cache = &policy.cache;
    spoil_rows = deed;
    serve_scripted(system, &err);
    ASSERT_SAYS(err.text, sentence);
}

#define ROWS(name, ...)                                                                            \
    static void name(const struct request *request, struct row_sets *rows, uint32_t *holds) {      \
        (void)request, (void)rows, (void)holds;                                                    \
        __VA_ARGS__;                                                                               \
    }

ROWS(rows_as_they_are, )
ROWS(
    rows_of_another_kind, if (request->steps > 0) { rows->kind = ROW_FEATURES; })
ROWS(
    rows_chosen_otherwise, if (request->steps > 0) { rows->chooser = CHOSEN_BY_CHANGE; })
ROWS(
    rows_of_all, if (request->steps == 0) {
        rows->keep[0] = (struct range){0, request->canvas_tokens};
        rows->keep[1] = (struct range){0, 0};
    })
ROWS(
    rows_in_another_place, if (window_steps(request) > 0) { rows->keep[0].end -= 1; })
ROWS(rows_before_a_step,
     rows->run = rows->head = (struct range){window_first(request), window_end(request)})
ROWS(rows_without_a_step, *holds = 0)
ROWS(more_rows_in_time, rows->held += window_block(request) == 1)
ROWS(fewer_rows_in_time, rows->held += window_block(request) == 1 ? 0 : 20)
ROWS(most_rows_in_the_middle, rows->held += window_block(request) == 3 ? 100 : 0)

TEST(the_loop_names_rows_that_do_not_fit_those_before) {
    assert_rows("dllm-serve", "dual", false, rows_as_they_are, "");
    assert_rows("dllm-serve", "dual", false, rows_of_another_kind,
                "cache dual broke its promise at s: it sets rows.kind to 2 and once to 1, which is "
                "the same in all answers");
    assert_rows("dllm-serve", "dual", false, rows_chosen_otherwise,
                "cache dual broke its promise: it sets rows.chooser to 4 and once to 0");
    assert_rows("dllm-serve", "dual", false, rows_of_all,
                "cache dual broke its promise: it keeps all of a canvas in one answer and a part "
                "of it in another");
    assert_rows("dllm-serve", "dual", true, rows_as_they_are,
                "cache dual broke its promise: it has the callback evict but does not name it as "
                "chooser");
    assert_rows("dllm-serve", "dual", false, rows_in_another_place,
                "cache dual broke its promise: it reads the rows of [0, where those of are kept");
    assert_rows("dllm-serve", "dual", false, rows_before_a_step,
                "cache dual broke its promise: it reads rows before any step wrote them");
    assert_rows("dllm-serve", "dual", false, rows_without_a_step,
                "cache dual broke its promise: the steps a span holds is 0, expected 1");
    assert_rows("dllm-serve", "dual", false, more_rows_in_time,
                "cache dual broke its promise: it holds 133 rows in block 1 of a request and 132 "
                "in its last block");
    assert_rows("sdar", "exact", false, rows_as_they_are, "");
    assert_rows("sdar", "exact", false, fewer_rows_in_time,
                "cache exact broke its promise: it holds rows after");
    assert_rows("sdar", "exact", false, most_rows_in_the_middle,
                "cache exact broke its promise: it holds rows in block 3 of a request and in its "
                "last block");
}

/* ---- asked twice ---- */

/* A policy of any kind that answers as the test says. */
static struct {
    struct row_sets rows;
    uint32_t n, repeat, turn;
    uint8_t flags[6];
    struct decode_rule rule;
    struct decode_credit credit;
    bool turns, leaves, slows, grows;
} says;

/* 1 in every second call of a policy that turns. */
static uint32_t turn(void) {
    return says.turns ? says.turn++ % 2 : 0;
}

static void said_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    batch->wake_ns = view->now_ns + ++*(uint32_t *)state + turn();
    batch->selected[0] = 0;
    batch->n_idle = says.grows ? turn() : 0;
}

static uint32_t said_plan(const void *state, const void *memory, const struct request *request,
                          struct row_sets *rows) {
    const struct row_sets given = *rows;
    (void)state, (void)memory;
    *rows = says.rows;
    rows->n_chosen = says.leaves ? given.n_chosen : rows->n_chosen;
    rows->held += turn() + (says.grows && request->rows.held == 0);
    rows->head.first += says.slows && window_steps(request) > 4;
    return says.repeat;
}

static uint32_t said_evict(const void *state, const void *memory, const struct eviction_view *view,
                           uint8_t *keep) {
    (void)state, (void)memory;
    memcpy(keep, says.flags, view->length);
    keep[1] ^= (uint8_t)turn();
    return says.n;
}

static void said_learn(const void *state, void *memory, const struct request *request,
                       const struct learned *learned) {
    (void)state, (void)request;
    *(uint64_t *)memory += learned->n + turn();
}

static uint32_t said_count(const void *state, const struct request *request, uint32_t *repeat) {
    (void)state;
    *repeat = says.leaves ? *repeat : says.repeat;
    return says.n - (says.slows && window_steps(request) > 0) - turn();
}

static uint32_t said_choose(const void *state, const struct request *request,
                            const struct decode_seen *seen, uint8_t *commit) {
    (void)state, (void)request;
    memcpy(commit, says.flags, seen->n);
    if (turn() == 1) {
        commit[0] = 1;
        commit[1] = 0;
    }
    return says.n;
}

static void said_rule(const void *state, const struct request *request, struct decode_rule *out) {
    (void)state;
    *out = says.rule;
    out->threshold += (float)turn();
    out->factor += says.grows ? (float)window_steps(request) : 0;
}

static void said_credit(const void *state, struct decode_credit *out) {
    (void)state;
    *out = says.credit;
    out->gamma += (float)turn();
}

static uint32_t said_route(void *state, const struct request *request,
                           const struct route_view *view, int64_t *until_ns) {
    (void)state, (void)request, (void)until_ns;
    return view->n == 1 ? 0 : says.n + turn();
}

static struct twice twice;

static void wrap(union any_policy *policy, enum policy_kind kind, size_t size) {
    policy->policy = (struct policy){.abi = POLICY_ABI,
                                     .kind = kind,
                                     .size = (uint32_t)size,
                                     .state_bytes = sizeof(uint32_t),
                                     .name = "scripted",
                                     .doc = "answers as the test says"};
    memset(&twice, 0, sizeof twice);
    twice.most_decisions = UINT64_MAX;
    twice_wrap(&twice, policy);
}

static void ask_cache(void) {
    union any_policy policy = {
        .cache = {.memory_bytes = 8, .plan = said_plan, .evict = said_evict, .learn = said_learn}};
    const struct request request =
        MAKE(struct request, .id = 5, .prompt_tokens = 36, .output_tokens = 64,
             .canvas_tokens = 100, .block_tokens = 32, .window.block = 1, .window.first = 68,
             .window.length = 32, .window.steps = 2, .steps = 20, .window.masked = 30,
             .window.uncached = 32, .window.kept = 32, .window.reach = 32, .committed_tokens = 34);
    const uint8_t pending[] = {0, 1, 1, 1, 1, 1}, masked[] = {0, 0, 1, 1, 1, 1};
    const float delta[6] = {0};
    const struct eviction_view view = {&request, 6, pending, masked, delta, -1};
    const struct learned learned = {.n = 2, .outcome = masked};
    struct row_sets rows;
    uint8_t keep[6];
    uint64_t memory = 40;
    uint32_t state = 0;
    wrap(&policy, POLICY_CACHE, sizeof policy.cache);
    (void)policy.cache.plan(&state, &memory, &request, &rows);
    (void)policy.cache.evict(&state, &memory, &view, keep);
    policy.cache.learn(&state, &memory, &request, &learned);
}

static void ask_decoder(bool counts) {
    union any_policy policy = {
        .decoder = {.count = counts ? said_count : NULL, .choose = counts ? NULL : said_choose}};
    const struct request request = {.window.masked = counts ? 12 : 3, .window.length = 12};
    const float confidence[] = {0.5f, 0.6f, 0.7f};
    const uint32_t offset[] = {0, 1, 5};
    const struct decode_seen seen = {.n = 3, .offset = offset, .confidence = confidence};
    uint8_t commit[3];
    uint32_t state = 0, repeat = 7;
    wrap(&policy, POLICY_DECODER, sizeof policy.decoder);
    if (counts) {
        (void)policy.decoder.count(&state, &request, &repeat);
    } else {
        ck_assert_uint_ge(policy.decoder.choose(&state, &request, &seen, commit), 1);
    }
}

static void ask_rule(bool counts, bool has_statistics) {
    union any_policy policy = {.decoder = {.count = counts ? said_count : NULL,
                                           .rule = said_rule,
                                           .credit = said_credit,
                                           .reads_statistics = has_statistics}};
    const struct request request = {.window.masked = 3, .window.length = 12};
    struct decode_rule rule;
    struct decode_credit credit;
    uint32_t state = 0;
    wrap(&policy, POLICY_DECODER, sizeof policy.decoder);
    policy.decoder.rule(&state, &request, &rule);
    policy.decoder.credit(&state, &credit);
}

static void ask_router(void) {
    union any_policy policy = {.router = {.route = said_route}};
    const struct request request = {.id = 1};
    const struct replica_view replicas[2] = {{.n_running = 1}, {.n_running = 2}};
    const struct route_view view = {.replicas = replicas, .n = 2};
    int64_t until_ns = INT64_MAX;
    uint32_t state = 0;
    wrap(&policy, POLICY_ROUTER, sizeof policy.router);
    ck_assert_uint_lt(policy.router.route(&state, &request, &view, &until_ns), 2);
}

static void ask_scheduler(void) {
    union any_policy policy = {.scheduler = {.schedule = said_schedule}};
    const struct schedule_view view = {.now_ns = 50};
    uint32_t lists[BATCH_LISTS][8] = {{0}}, state = 0;
    wrap(&policy, POLICY_SCHEDULER, sizeof policy.scheduler);
    for (uint32_t i = 1; i <= 3 && twice.err.kind == ERR_NONE; i++) {
        struct batch batch = batch_over(lists[0], 8, 8);
        policy.scheduler.schedule(&state, &view, &batch);
        ck_assert_uint_eq(state, i); /* asked twice, it goes on once */
    }
}

/* An honest answer, spoilt. */
#define TWICE(asks, spoils, sentence)                                                              \
    do {                                                                                           \
        memset(&says, 0, sizeof says);                                                             \
        says.rows = (struct row_sets){                                                             \
            .kind = ROW_KV, .run = {68, 100}, .head = {68, 100}, .keep = {{0, 68}}, .held = 100};  \
        says.n = 3;                                                                                \
        says.repeat = 4;                                                                           \
        memcpy(says.flags, (const uint8_t[]){1, 1, 1, 0, 0, 0}, 6);                                \
        says.rule = (struct decode_rule){.kind = DECODE_THRESHOLD, .threshold = 0.9f};             \
        spoils;                                                                                    \
        asks;                                                                                      \
        ASSERT_SAYS(twice.err.text, sentence);                                                     \
    } while (0)

TEST(who_decides_otherwise_when_asked_again_is_named) {
    TWICE(ask_scheduler(), (void)0, "");
    TWICE(ask_scheduler(), says.turns = true,
          "scheduler scripted decides differently when asked the same again: wake_ns is 51, then "
          "52");
    TWICE(ask_router(), says.n = 1, "");
    TWICE(ask_router(), says.n = 2, "router scripted chooses replica 2 of 2, counted from 0");
    TWICE(ask_router(), (says.n = 0, says.turns = true),
          "router scripted chooses replica 0, then 1 when asked the same again");
}

TEST(who_plans_otherwise_when_asked_again_is_named) {
    TWICE(ask_cache(), (void)0, "");
    TWICE(ask_cache(), says.leaves = true, "cache scripted leaves rows.n_chosen unset");
    TWICE(ask_cache(), says.turns = true,
          "cache scripted plans differently when asked the same again: rows.held 100, then 101");
    TWICE(ask_cache(), says.grows = true,
          "cache scripted plans differently when asked the same again: rows.held 100, then 101");
    TWICE(ask_cache(), (says.slows = true, says.repeat = UINT32_MAX),
          "cache scripted says that its row sets hold for 4294967295 steps, but after 15 steps and "
          "15 commits rows.head.first is 69 instead of 68");
    TWICE(ask_cache(), (says.slows = true, says.repeat = 3), "");
    TWICE(ask_cache(), says.slows = true,
          "cache scripted says that its row sets hold for 4 steps, but after 3 steps and 3 commits "
          "rows.head.first is 69 instead of 68");
    TWICE(ask_cache(), says.flags[3] = 2,
          "cache scripted leaves keep[3] unset or sets it to 2, neither 0 nor 1");
    TWICE(ask_cache(), says.n = 4, "cache scripted returns 4 but keeps 3 positions");
}

TEST(who_decodes_otherwise_when_asked_again_is_named) {
    TWICE(ask_decoder(true), (void)0, "");
    TWICE(ask_decoder(true), says.repeat = 0,
          "decoder scripted says that its count holds for 0 steps, or leaves repeat unset");
    TWICE(ask_decoder(true), says.leaves = true,
          "decoder scripted says that its count holds for 0 steps, or leaves repeat unset");
    TWICE(ask_decoder(true), says.slows = true,
          "decoder scripted says that its count of 3 holds for 4 steps, but after 1 steps it is 2");
    TWICE(ask_decoder(true), (says.slows = true, says.repeat = 1), "");
    TWICE(ask_decoder(true), says.turns = true,
          "decoder scripted counts differently when asked the same again: 3 for 4 steps, then 2 "
          "for 4");
    TWICE(ask_decoder(false), (void)0, "");
    TWICE(ask_decoder(false), (memset(says.flags, 0, 6), says.n = 0),
          "decoder scripted commits 0 of 3 masked positions");
    TWICE(ask_decoder(false), says.n = 2, "decoder scripted returns 2 but sets 3 flags");
    TWICE(ask_decoder(false), says.flags[2] = 255,
          "decoder scripted leaves commit[2] unset or sets it to 255, neither 0 nor 1");
    TWICE(ask_decoder(false),
          (says.turns = true, memcpy(says.flags, (const uint8_t[]){0, 1, 0}, 3), says.n = 1),
          "decoder scripted chooses differently when asked the same again: 1 positions, then 1");
}

TEST(a_rule_that_is_none_is_named) {
    TWICE(ask_rule(false, false), (void)0, "");
    TWICE(ask_rule(false, false), says.rule.kind = 9,
          "decoder scripted names rule 9 by rank 0, of 5 and 5");
    TWICE(ask_rule(false, false), says.rule.rank = 5,
          "decoder scripted names rule 1 by rank 5, of 5 and 5");
    TWICE(ask_rule(true, false), (void)0,
          "decoder scripted counts, but names a rule that does not");
    TWICE(ask_rule(false, false), says.rule.kind = DECODE_COUNT,
          "decoder scripted names a rule that counts, but lacks the callback count");
    TWICE(ask_rule(true, false), says.rule.kind = DECODE_COUNT, "");
    TWICE(ask_rule(true, false), (says.rule.kind = DECODE_COUNT, says.rule.temperature = 1), "");
    TWICE(ask_rule(true, false), (says.rule.kind = DECODE_COUNT, says.rule.temperature = NAN),
          "decoder scripted leaves a number of its rule unset, or out of range");
    TWICE(ask_rule(false, false), says.rule.temperature = 1,
          "decoder scripted draws by temperature, but does not count");
    TWICE(ask_rule(false, false), says.rule.kind = DECODE_ENTROPY_BOUNDED,
          "decoder scripted bounds entropy, but ranks by another thing");
    TWICE(ask_rule(false, false), says.rule.rank = RANK_MARGIN,
          "decoder scripted ranks by margin or entropy, but does not say that it reads them");
    TWICE(ask_rule(false, true), says.rule.rank = RANK_MARGIN, "");
    TWICE(ask_rule(false, false), says.rule.slack = -1,
          "decoder scripted leaves a number of its rule unset, or out of range");
    TWICE(ask_rule(false, false), says.rule.low = NAN,
          "decoder scripted leaves a number of its rule unset, or out of range");
    TWICE(ask_rule(false, false), says.turns = true,
          "decoder scripted names another rule when asked the same again");
    TWICE(ask_rule(false, false), says.grows = true,
          "decoder scripted changes more than threshold and key of its rule from step to step");
    TWICE(ask_rule(false, false), says.credit.beta = 1.5f,
          "decoder scripted gives credit with numbers out of range");
    TWICE(ask_rule(false, false), says.credit.gamma = -1,
          "decoder scripted gives credit with numbers out of range");
}

/* ---- who never runs again ---- */

/* As chunked, but that what it preempted waits until no one else is there. */
static void set_aside(void *state, const struct schedule_view *view, struct batch *batch) {
    static uint32_t others[1024];
    struct schedule_view shown = *view;
    shown.n_waiting = 0;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        if (view->requests[view->waiting[i]].state != REQUEST_PREEMPTED) {
            others[shown.n_waiting++] = view->waiting[i];
        }
    }
    shown.waiting = others;
    honest->schedule(state, shown.n_waiting + view->n_running > 0 ? &shown : view, batch);
}

TEST(a_preempted_request_that_never_runs_again_while_others_come_is_named) {
    static struct trial trial;
    union any_policy policy = copied(POLICY_SCHEDULER, "chunked");
    honest = (const struct scheduler *)named(POLICY_SCHEDULER, "chunked");
    policy.scheduler.schedule = set_aside;
    trial_run(&trial, "chunked", &policy);
    ck_assert_msg(strstr(trial.err.text, "scheduler chunked passes over request ") != NULL &&
                      strstr(trial.err.text, "growing: one long among short") != NULL,
                  "%s", trial.err.text);
}

/* ---- built-in policies ---- */

TEST(every_built_in_policy_keeps_its_promises) {
    static struct trial trial;
    char *now;
    size_t size;
    FILE *out = mem_stream(&now, &size);
    for (int i = POLICY_SCHEDULER; i <= POLICY_ROUTER; i++) {
        enum policy_kind kind = (enum policy_kind)i;
        for (size_t j = 0; j < policy_count(kind); j++) {
            const struct policy *policy = policy_at(kind, j);
            union any_policy copy = copied(kind, policy->name);
            struct err err = {0};
            ck_assert_msg(plugin_validate(policy, "built-in", &err) == 0, "%s", err.text);
            trial_run(&trial, policy->name, &copy);
            ck_assert_msg(trial.err.kind == ERR_NONE, "%s", trial.err.text);
            const struct twice *twice_of = &trial.twice;
            fprintf(out,
                    "%s %s: %" PRIu64 " calls, %" PRIu64 " preempted, %" PRIu64 " idle, %" PRIu64
                    " chunks, %" PRIu64 " evictions\n",
                    policy_kind_names[kind], policy->name, twice_of->n_calls, twice_of->n_preempted,
                    twice_of->n_idle, twice_of->n_chunks, twice_of->n_evictions);
            ck_assert_uint_ge(twice_of->n_calls, 2000);
            ck_assert(strcmp(policy->name, "focus") != 0 || twice_of->n_evictions > 10000);
            /* Growing schedulers are brought to chunks and to preemption. */
            if (kind == POLICY_SCHEDULER && copy.scheduler.grows == 1) {
                ck_assert_uint_ge(twice_of->n_chunks, 300);
                /* Of fewer systems that go with it. */
                ck_assert_uint_ge(twice_of->n_preempted,
                                  (copy.scheduler.needs | copy.scheduler.says_rows) != 0 ? 10 : 30);
                ck_assert(strcmp(policy->name, "chunked") != 0 || twice_of->n_swapped >= 10);
            }
        }
    }
    mem_stream_close(out);
    kept_same("tests/golden/runs/trials.txt", now);
    free(now);
}

SUITE("trial")
