/* What stands between a plug-in and a run adds nothing and takes nothing: a policy sees through it
 * what it would see without, and its answers arrive as they are. What it must not do is another
 * suite's (tests/experiments/test_plugin_runs.c). */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"
#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/statics.h"
#include "sim/policy/plugin/ward.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"
#include "tests/support/batch.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

enum { CAPACITY = 6, N_SLOTS = 9, LENGTH = 12, HEAD_BYTES = 64 };

static struct rng rng;

static uint32_t draw(uint32_t least, uint32_t most) {
    return least + (uint32_t)(rng_uniform(&rng) * (most - least + 1));
}

static void draw_bytes(void *out, size_t size) {
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)out)[i] = (unsigned char)draw(0, 255);
    }
}

/* As it is called in a run: by a file without static variables, with a state of its own. */
static const struct policy *warded(const struct policy *inner, void **state) {
    const struct policy *outer = ward_policy(inner, suite_plugin("template_scheduler"));
    ck_assert_ptr_eq(ward_policy(inner, "elsewhere"), outer);
    ck_assert_uint_gt(outer->state_bytes, inner->state_bytes);
    *state = mem_zeroed(outer->state_bytes, 1);
    ward_fill_state(outer, *state);
    ward_begin_run(outer, *state);
    return outer;
}

#define POLICY(k, type)                                                                            \
    { .abi = POLICY_ABI, .kind = k, .size = sizeof(struct type), .state_bytes = 24, .name = "t" }

/* ---- schedulers ---- */

/* What the scheduler asks and answers in its next call, and what it is told. */
static struct {
    struct batch asked, answer;
    uint32_t selected[2 * CAPACITY], chunks[2 * CAPACITY], preempted[2 * CAPACITY],
        idle[2 * CAPACITY], widths[2 * CAPACITY], thresholds[2 * CAPACITY], puts_off[2 * CAPACITY],
        rejected[2 * CAPACITY], reasons[2 * CAPACITY], swaps[2 * CAPACITY],
        run_tokens[2 * CAPACITY];
    uint32_t slot, capacity, n_spans;
    struct pass_ahead *passes;
    struct span spans[2 * CAPACITY];
    bool reaches; /* whether the estimators may be reached at all */
    int64_t ns, spans_ns;
    double joules;
    struct outlook outlook;
    uint32_t n_reached, chunks_left;
} script;

static int64_t estimate_ns(const void *estimator, const struct batch *batch) {
    ck_assert_ptr_eq(estimator, &script);
    ck_assert_ptr_eq(batch, &script.asked);
    script.n_reached++;
    return 7;
}

static double estimate_joules(const void *estimator, const struct batch *batch) {
    return (double)estimate_ns(estimator, batch) / 2;
}

static void foresee(const void *estimator, uint32_t slot, struct pass_ahead *passes,
                    uint32_t capacity, struct outlook *out) {
    ck_assert_ptr_eq(estimator, &script);
    ck_assert_ptr_eq(passes, script.passes);
    ck_assert_uint_eq(capacity, script.capacity);
    *out = (struct outlook){.steps = 100 + slot};
}

static int64_t estimate_spans_ns(const void *estimator, const struct span *const *spans,
                                 uint32_t n) {
    ck_assert_ptr_eq(estimator, &script);
    ck_assert(n == 0 || spans[n - 1] == &script.spans[n - 1]);
    return 11;
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    const struct span *spans[2 * CAPACITY];
    (void)state;
    ck_assert_uint_eq(batch->capacity, CAPACITY);
    for (uint32_t i = 0; i < CAPACITY; i++) {
        script.chunks_left += batch->chunk_tokens[i] + batch->width_tokens[i];
        script.chunks_left += batch->threshold_millionths[i];
        script.chunks_left += batch->puts_off[i] + batch->reasons[i] + batch->swaps[i];
        script.chunks_left += batch->run_tokens[i];
    }
    for (uint32_t i = 0; i < script.n_spans; i++) {
        spans[i] = &script.spans[i];
    }
    script.ns = view->estimate_ns(view->estimator, &script.asked);
    script.joules = view->estimate_joules(view->estimator, &script.asked);
    view->foresee(view->estimator, script.slot, script.passes, script.capacity, &script.outlook);
    script.spans_ns = view->estimate_spans_ns(view->estimator, spans, script.n_spans);
    ck_assert(view->n_running == 2 && view->n_waiting == 1 && view->now_ns == 5);
    struct batch answer = script.answer;
    answer.selected = batch->selected;
    answer.chunk_tokens = batch->chunk_tokens;
    answer.preempted = batch->preempted;
    answer.idle = batch->idle;
    answer.width_tokens = batch->width_tokens;
    answer.threshold_millionths = batch->threshold_millionths;
    answer.puts_off = batch->puts_off;
    answer.rejected = batch->rejected;
    answer.reasons = batch->reasons;
    answer.swaps = batch->swaps;
    answer.run_tokens = batch->run_tokens;
    answer.capacity = batch->capacity;
    memcpy(batch->selected, script.selected, CAPACITY * sizeof(uint32_t));
    memcpy(batch->preempted, script.preempted, CAPACITY * sizeof(uint32_t));
    memcpy(batch->idle, script.idle, CAPACITY * sizeof(uint32_t));
    uint32_t n = answer.n < CAPACITY ? answer.n : CAPACITY;
    memcpy(batch->chunk_tokens, script.chunks, n * sizeof(uint32_t));
    memcpy(batch->width_tokens, script.widths, (answer.says ? n : 0) * sizeof(uint32_t));
    memcpy(batch->threshold_millionths, script.thresholds,
           (answer.says ? n : 0) * sizeof(uint32_t));
    memcpy(batch->puts_off, script.puts_off, (answer.says ? n : 0) * sizeof(uint32_t));
    memcpy(batch->run_tokens, script.run_tokens, (answer.says ? n : 0) * sizeof(uint32_t));
    memcpy(batch->rejected, script.rejected, CAPACITY * sizeof(uint32_t));
    uint32_t n_rejected = answer.n_rejected < CAPACITY ? answer.n_rejected : CAPACITY;
    memcpy(batch->reasons, script.reasons, n_rejected * sizeof(uint32_t));
    uint32_t n_preempted = answer.n_preempted < CAPACITY ? answer.n_preempted : CAPACITY;
    memcpy(batch->swaps, script.swaps, n_preempted * sizeof(uint32_t));
    *batch = answer;
}

static const struct scheduler scheduler = {.policy = POLICY(POLICY_SCHEDULER, scheduler),
                                           .schedule = schedule};

/* A state in which a request may be foreseen, and others. */
static bool is_there(const struct request *request) {
    return request->block_tokens > 0 && request->state != REQUEST_PENDING &&
           request->state != REQUEST_DONE && request->state != REQUEST_REJECTED;
}

static bool are_below(const uint32_t *slots, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (slots[i] >= CAPACITY) {
            return false;
        }
    }
    return true;
}

static void draw_script(struct request *requests) {
    static struct pass_ahead passes[2];
    memset(&script, 0, sizeof script);
    for (uint32_t i = 0; i < 2 * CAPACITY; i++) {
        /* Mostly slots that there are; the last of them, and the first that there is not. */
        script.selected[i] = draw(0, 3) > 0 ? draw(0, CAPACITY - 1) : CAPACITY - draw(0, 1);
        script.idle[i] = draw(0, 5) > 0 ? draw(0, CAPACITY - 1) : CAPACITY - draw(0, 1);
        script.preempted[i] = draw(0, 99);
        script.chunks[i] = draw(1, 99);
        script.widths[i] = draw(1, 99);
        script.thresholds[i] = draw(1, 99);
        script.puts_off[i] = draw(1, 99);
        script.rejected[i] = draw(1, 99);
        script.reasons[i] = draw(1, 99);
        script.swaps[i] = draw(1, 99);
        script.run_tokens[i] = draw(1, 99);
        script.spans[i].phase =
            draw(0, 9) > 0 ? draw(0, PHASE_COUNT - 1) : PHASE_COUNT - draw(0, 1);
    }
    script.asked = (struct batch){.all_running = draw(0, 1),
                                  .n = draw(0, CAPACITY),
                                  .n_idle = draw(0, 2),
                                  .selected = script.selected,
                                  .idle = script.idle};
    script.answer = (struct batch){.n = draw(0, CAPACITY + 2),
                                   .n_preempted = draw(0, CAPACITY + 2),
                                   .n_idle = draw(0, CAPACITY + 2),
                                   .n_rejected = draw(0, CAPACITY + 2),
                                   .n_admitted = draw(0, 3),
                                   .hold = draw(0, 2),
                                   .wake_ns = draw(0, 1000),
                                   .all_running = draw(0, 1),
                                   .loops = draw(0, 9),
                                   .says = draw(0, 1)};
    script.slot = draw(0, CAPACITY);
    script.capacity = draw(0, 2);
    script.passes = draw(0, 1) == 0 ? NULL : passes;
    script.n_spans = draw(0, CAPACITY + 1);
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        requests[i].block_tokens = draw(0, 1);
        requests[i].state = draw(0, REQUEST_REJECTED);
    }
}

static void check_told(const struct request *requests) {
    const struct batch *asked = &script.asked;
    uint32_t n = asked->n + asked->n_idle + (asked->all_running ? 2 : 0);
    bool is_fine = n <= CAPACITY && are_below(script.selected, asked->n) &&
                   are_below(script.idle, asked->n_idle);
    ck_assert_int_eq(script.ns, is_fine ? 7 : 0);
    ck_assert_double_eq(script.joules, is_fine ? 3.5 : 0);
    ck_assert_uint_eq(script.n_reached, is_fine ? 2 : 0);
    bool is_foreseen = script.slot < CAPACITY && is_there(&requests[script.slot]) &&
                       (script.passes != NULL || script.capacity == 0);
    ck_assert_uint_eq(script.outlook.steps, is_foreseen ? 100 + script.slot : 0);
    ck_assert_uint_eq(script.outlook.to_refresh, is_foreseen ? 0 : UINT32_MAX);
    bool are_spans = script.n_spans <= CAPACITY;
    for (uint32_t i = 0; i < script.n_spans; i++) {
        are_spans = are_spans && script.spans[i].phase < PHASE_COUNT;
    }
    ck_assert_int_eq(script.spans_ns, are_spans ? 11 : 0);
}

static void check_list(const uint32_t *found, const uint32_t *said, uint32_t n) {
    ck_assert_mem_eq(found, said, (n < CAPACITY ? n : CAPACITY) * sizeof *found);
}

TEST(a_scheduler_asks_and_answers_as_if_nothing_stood_between) {
    static struct request requests[N_SLOTS];
    void *state;
    const struct scheduler *outer = (const struct scheduler *)warded(&scheduler.policy, &state);
    const uint32_t running[2] = {0, 1}, waiting[1] = {2};
    rng = rng_stream(1, "ward");
    for (int i = 0; i < 3000; i++) {
        uint32_t lists[BATCH_LISTS][CAPACITY] = {{0}};
        struct batch batch = batch_over(lists[0], CAPACITY, CAPACITY);
        draw_script(requests);
        const struct schedule_view view = {.now_ns = 5,
                                           .requests = requests,
                                           .running = running,
                                           .n_running = 2,
                                           .waiting = waiting,
                                           .n_waiting = 1,
                                           .estimate_ns = estimate_ns,
                                           .estimate_joules = estimate_joules,
                                           .foresee = foresee,
                                           .estimate_spans_ns = estimate_spans_ns,
                                           .estimator = &script};
        outer->schedule(state, &view, &batch);
        check_told(requests);
        ck_assert_uint_eq(script.chunks_left, 0); /* of the call before */
        check_list(lists[0], script.selected, script.answer.n);
        check_list(lists[1], script.chunks, script.answer.n);
        check_list(lists[2], script.preempted, script.answer.n_preempted);
        check_list(lists[3], script.idle, script.answer.n_idle);
        check_list(lists[4], script.widths, script.answer.says ? script.answer.n : 0);
        check_list(lists[5], script.thresholds, script.answer.says ? script.answer.n : 0);
        check_list(lists[6], script.puts_off, script.answer.says ? script.answer.n : 0);
        check_list(lists[7], script.rejected, script.answer.n_rejected);
        check_list(lists[8], script.reasons, script.answer.n_rejected);
        check_list(lists[9], script.swaps, script.answer.n_preempted);
        check_list(lists[10], script.run_tokens, script.answer.says ? script.answer.n : 0);
        script.answer.capacity = CAPACITY;
        script.answer.selected = lists[0];
        script.answer.chunk_tokens = lists[1];
        script.answer.preempted = lists[2];
        script.answer.idle = lists[3];
        script.answer.width_tokens = lists[4];
        script.answer.threshold_millionths = lists[5];
        script.answer.puts_off = lists[6];
        script.answer.rejected = lists[7];
        script.answer.reasons = lists[8];
        script.answer.swaps = lists[9];
        script.answer.run_tokens = lists[10];
        ck_assert_mem_eq(&batch, &script.answer, sizeof batch);
    }
    free(state);
}

/* Fills its lists to their ends, with other numbers each time. */
static uint32_t n_filled;

static void fill(void *state, const struct schedule_view *view, struct batch *batch) {
    uint32_t *const lists[] = {batch->selected, batch->chunk_tokens, batch->preempted,
                               batch->idle,     batch->width_tokens, batch->threshold_millionths,
                               batch->puts_off, batch->rejected,     batch->reasons,
                               batch->swaps,    batch->run_tokens};
    (void)state, (void)view;
    n_filled++;
    for (uint32_t i = 0; i < batch->capacity; i++) {
        for (uint32_t l = 0; l < BATCH_LISTS; l++) {
            lists[l][i] = 10 * i + l + n_filled;
        }
    }
    batch->n = batch->n_preempted = batch->n_idle = batch->n_rejected = batch->capacity;
    batch->says = 1;
}

static const struct scheduler filling = {.policy = POLICY(POLICY_SCHEDULER, scheduler),
                                         .schedule = fill};

/* One after the other, so that each finds the lists of the one before. */
TEST(lists_are_of_any_capacity) {
    enum { MOST = 5000 };
    static const uint32_t capacities[] = {1, 1023, 1024, 1025, MOST, 6, 2048, 2048, 3};
    static uint32_t lists[BATCH_LISTS][MOST];
    void *state;
    const struct scheduler *outer = (const struct scheduler *)warded(&filling.policy, &state);
    for (size_t c = 0; c < sizeof capacities / sizeof capacities[0]; c++) {
        struct batch batch = batch_over(lists[0], MOST, capacities[c]);
        const struct schedule_view view = {.now_ns = 5};
        outer->schedule(state, &view, &batch);
        for (uint32_t l = 0; l < BATCH_LISTS; l++) {
            bool all = true;
            for (uint32_t i = 0; i < capacities[c]; i++) {
                all = all && lists[l][i] == 10 * i + l + n_filled;
            }
            ck_assert_msg(all, "list %u of %u", l, capacities[c]);
        }
        ck_assert_uint_eq(n_filled, c + 1);
    }
    free(state);
}

/* ---- the others: what they saw, and drawn answers ---- */

/* One call: all that was passed, compared where it arrives, and all that is answered. */
static struct {
    struct request request;
    uint64_t state[3], memory[2], new_memory[2];
    bool has_memory, has_lists;
    struct row_sets rows;
    struct eviction_view eviction;
    struct learned learned;
    struct decode_seen seen;
    struct decode_rule rule;
    struct decode_credit credit;
    struct replica_view replicas[3];
    uint8_t bytes[2][LENGTH], marks[LENGTH];
    float floats[3][LENGTH];
    uint32_t offsets[LENGTH], n, repeat;
} call;

static void draw_call(uint64_t *own_state) {
    draw_bytes(&call, sizeof call);
    call.has_memory = draw(0, 1) == 0;
    call.has_lists = draw(0, 1) == 0;
    call.request.window.length = LENGTH;
    for (size_t i = 0; i < LENGTH; i++) {
        call.bytes[0][i] = (uint8_t)draw(0, 1);
        call.bytes[1][i] = (uint8_t)draw(0, 1);
        call.marks[i] = (uint8_t)draw(i == 0, 1);
        call.floats[0][i] = (float)draw(0, 9);
        call.floats[1][i] = (float)draw(0, 9);
        call.floats[2][i] = (float)draw(0, 9);
    }
    call.n = 0;
    for (size_t i = 0; i < LENGTH; i++) {
        call.n += call.marks[i];
    }
    call.eviction = (struct eviction_view){&call.request, LENGTH,         call.bytes[0],
                                           call.bytes[1], call.floats[0], (int32_t)draw(0, 9)};
    call.learned = (struct learned){call.n, call.bytes[0], call.has_lists ? call.floats[0] : NULL};
    call.seen = (struct decode_seen){LENGTH,
                                     draw(0, 99),
                                     call.offsets,
                                     call.floats[0],
                                     call.has_lists ? call.floats[1] : NULL,
                                     call.has_lists ? call.floats[2] : NULL};
    memcpy(own_state, call.state, sizeof call.state);
}

static void check_seen(const void *state, const void *memory, const struct request *request) {
    ck_assert_mem_eq(state, call.state, sizeof call.state);
    ck_assert_mem_eq(request, &call.request, sizeof call.request);
    ck_assert_int_eq(memory != NULL, call.has_memory);
    if (memory != NULL) {
        ck_assert_mem_eq(memory, call.memory, sizeof call.memory);
    }
}

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    check_seen(state, memory, request);
    *rows = call.rows;
    return call.repeat;
}

static uint32_t evict(const void *state, const void *memory, const struct eviction_view *view,
                      uint8_t *keep) {
    check_seen(state, memory, view->request);
    ck_assert(view->length == LENGTH && view->frontier == call.eviction.frontier);
    ck_assert_mem_eq(view->pending, call.bytes[0], LENGTH);
    ck_assert_mem_eq(view->masked, call.bytes[1], LENGTH);
    ck_assert_mem_eq(view->delta, call.floats[0], sizeof call.floats[0]);
    memcpy(keep, call.marks, LENGTH);
    return call.n;
}

static void learn(const void *state, void *memory, const struct request *request,
                  const struct learned *learned) {
    check_seen(state, memory, request);
    ck_assert_uint_eq(learned->n, call.n);
    ck_assert_mem_eq(learned->outcome, call.bytes[0], LENGTH);
    ck_assert_int_eq(learned->entropy != NULL, call.has_lists);
    if (learned->entropy != NULL) {
        ck_assert_mem_eq(learned->entropy, call.floats[0], sizeof call.floats[0]);
    }
    memcpy(memory, call.new_memory, sizeof call.new_memory);
}

static const struct cache_policy cache = {.policy = POLICY(POLICY_CACHE, cache_policy),
                                          .memory_bytes = sizeof call.memory,
                                          .plan = plan,
                                          .put_off = plan,
                                          .evict = evict,
                                          .learn = learn};

static uint32_t count(const void *state, const struct request *request, uint32_t *repeat) {
    call.has_memory = false;
    check_seen(state, NULL, request);
    *repeat = call.repeat;
    return call.n;
}

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    check_seen(state, NULL, request);
    ck_assert(seen->n == LENGTH && seen->first == call.seen.first);
    ck_assert_mem_eq(seen->offset, call.offsets, sizeof call.offsets);
    ck_assert_mem_eq(seen->confidence, call.floats[0], sizeof call.floats[0]);
    ck_assert(call.has_lists || (seen->margin == NULL && seen->entropy == NULL));
    if (call.has_lists) {
        ck_assert_mem_eq(seen->margin, call.floats[1], sizeof call.floats[1]);
        ck_assert_mem_eq(seen->entropy, call.floats[2], sizeof call.floats[2]);
    }
    memcpy(commit, call.marks, LENGTH);
    return call.n;
}

static void rule(const void *state, const struct request *request, struct decode_rule *out) {
    check_seen(state, NULL, request);
    *out = call.rule;
}

static void credit(const void *state, struct decode_credit *out) {
    check_seen(state, NULL, &call.request);
    *out = call.credit;
}

static const struct decoder decoder = {.policy = POLICY(POLICY_DECODER, decoder),
                                       .count = count,
                                       .choose = choose,
                                       .rule = rule,
                                       .credit = credit};

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    check_seen(state, NULL, request);
    ck_assert(view->n_held == call.repeat && *until_ns == INT64_MAX);
    ck_assert_mem_eq(view->replicas, call.replicas, view->n * sizeof *view->replicas);
    *until_ns = call.n;
    return call.n % 3 == 0 ? ROUTE_HOLD : call.n % view->n;
}

static uint32_t move(void *state, const struct route_view *view, struct route_move *moves,
                     uint32_t capacity) {
    check_seen(state, NULL, &call.request);
    ck_assert_uint_eq(view->n, 3);
    for (uint32_t i = 0; i < capacity; i++) {
        moves[i] = (struct route_move){call.n, i};
    }
    return capacity;
}

static const struct router router = {
    .policy = POLICY(POLICY_ROUTER, router), .route = route, .move = move};

/* A plug-in's own state stands in that of its ward, behind a head. */
static uint64_t *own_of(void *state) {
    return (uint64_t *)((char *)state + HEAD_BYTES);
}

TEST(a_cache_policy_sees_and_answers_as_if_nothing_stood_between) {
    void *state;
    const struct cache_policy *outer = (const struct cache_policy *)warded(&cache.policy, &state);
    rng = rng_stream(2, "ward");
    for (int i = 0; i < 500; i++) {
        struct row_sets rows;
        uint64_t memory[2];
        uint8_t keep[LENGTH];
        draw_call(own_of(state));
        void *lent = call.has_memory ? call.memory : NULL;
        ck_assert_uint_eq(outer->plan(state, lent, &call.request, &rows), call.repeat);
        ck_assert_mem_eq(&rows, &call.rows, sizeof rows);
        ck_assert_uint_eq(outer->put_off(state, lent, &call.request, &rows), call.repeat);
        ck_assert_mem_eq(&rows, &call.rows, sizeof rows);
        ck_assert_uint_eq(outer->evict(state, lent, &call.eviction, keep), call.n);
        ck_assert_mem_eq(keep, call.marks, LENGTH);
        memcpy(memory, call.memory, sizeof memory);
        call.has_memory = true;
        outer->learn(state, memory, &call.request, &call.learned);
        ck_assert_mem_eq(memory, call.new_memory, sizeof memory);
    }
    free(state);
}

TEST(a_decoder_and_a_router_see_and_answer_as_if_nothing_stood_between) {
    void *state, *routes;
    const struct decoder *outer = (const struct decoder *)warded(&decoder.policy, &state);
    const struct router *chooser = (const struct router *)warded(&router.policy, &routes);
    rng = rng_stream(3, "ward");
    for (int i = 0; i < 500; i++) {
        uint32_t repeat;
        uint8_t commit[LENGTH];
        struct decode_rule out;
        struct decode_credit credits;
        draw_call(own_of(state));
        memcpy(own_of(routes), call.state, sizeof call.state);
        ck_assert_uint_eq(outer->count(state, &call.request, &repeat), call.n);
        ck_assert_uint_eq(repeat, call.repeat);
        ck_assert_uint_eq(outer->choose(state, &call.request, &call.seen, commit), call.n);
        ck_assert_mem_eq(commit, call.marks, LENGTH);
        outer->rule(state, &call.request, &out);
        ck_assert_mem_eq(&out, &call.rule, sizeof out);
        outer->credit(state, &credits);
        ck_assert_mem_eq(&credits, &call.credit, sizeof credits);
        uint32_t n = draw(1, 3);
        struct route_view view = {.replicas = call.replicas, .n = n, .n_held = call.repeat};
        struct route_move moves[5];
        int64_t until_ns = INT64_MAX;
        ck_assert_uint_eq(chooser->route(routes, &call.request, &view, &until_ns),
                          call.n % 3 == 0 ? ROUTE_HOLD : call.n % n);
        ck_assert_int_eq(until_ns, call.n);
        view.n = 3;
        ck_assert_uint_eq(chooser->move(routes, &view, moves, 5), 5);
        ck_assert(moves[4].slot == call.n && moves[4].to == 4);
    }
    free(state);
    free(routes);
}

/* Its parameters stand where it has them: behind the head, too. */
TEST(parameters_and_callbacks_are_the_policys_own) {
    static const struct param params[] = {
        {.name = "a", .type = PARAM_U32, .offset = 4, .initial = "7"},
        {.name = "b", .type = PARAM_U32, .offset = 12, .initial = "9"}};
    struct cache_policy few = {.policy = POLICY(POLICY_CACHE, cache_policy), .plan = plan};
    few.policy.params = params;
    few.policy.n_params = 2;
    void *state;
    const struct cache_policy *outer = (const struct cache_policy *)warded(&few.policy, &state);
    ck_assert(outer->plan != NULL && outer->evict == NULL && outer->learn == NULL);
    ck_assert_uint_eq(outer->policy.n_params, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(outer->policy.params[i].name, params[i].name);
        ck_assert_uint_eq(outer->policy.params[i].offset - params[i].offset, HEAD_BYTES);
    }
    free(state);
}

/* ---- static variables ---- */

#ifdef __linux__
/* The first `most` bytes of a plug-in, one of which may be changed, as a file. */
static const char *cut_file(const char *plugin, size_t most, size_t at, int byte) {
    const char *path = scratch_path("cut.so");
    FILE *in = fopen(suite_plugin(plugin), "rb"), *out = fopen(path, "wb");
    ck_assert(in != NULL && out != NULL);
    int c;
    for (size_t i = 0; i < most && (c = fgetc(in)) != EOF; i++) {
        fputc(i == at && byte >= 0 ? byte : c, out);
    }
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
    return path;
}

#ifndef __SANITIZE_ADDRESS__ /* which adds variables to every object */
TEST(a_file_says_whether_it_has_static_variables) {
    static const struct {
        const char *name;
        enum statics_found found;
    } files[] = {{"template_scheduler", STATICS_NONE}, {"template_cache", STATICS_NONE},
                 {"template_decoder", STATICS_NONE},   {"template_rule", STATICS_NONE},
                 {"state_scheduler", STATICS_NONE},    {"static_scheduler", STATICS_SOME},
                 {"static_decoder", STATICS_SOME},     {"static_router", STATICS_SOME}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ck_assert_msg(statics_in_file(suite_plugin(files[i].name)) == files[i].found, "%s",
                      files[i].name);
    }
    /* Of what is no object, of another kind or cut off nobody knows. */
    ck_assert_int_eq(statics_in_file(scratch_path("none")), STATICS_UNKNOWN);
    ck_assert_int_eq(statics_in_file("/tmp"), STATICS_UNKNOWN);
    ck_assert_int_eq(statics_in_file(scratch_write("text", "")), STATICS_UNKNOWN);
    ck_assert_int_eq(statics_in_file(scratch_write("text", "#!/bin/sh\n")), STATICS_UNKNOWN);
    for (size_t at = 0; at < 5; at++) { /* the four letters of ELF, and its class */
        ck_assert_int_eq(statics_in_file(cut_file("static_scheduler", SIZE_MAX, at, 1)),
                         STATICS_UNKNOWN);
    }
    ck_assert_int_eq(statics_in_file(cut_file("static_scheduler", SIZE_MAX, 0, -1)), STATICS_SOME);
    struct stat facts;
    ck_assert_int_eq(stat(suite_plugin("static_scheduler"), &facts), 0);
    for (size_t most = 1; most < (size_t)facts.st_size; most += 1 + most / 3) {
        ck_assert_int_eq(statics_in_file(cut_file("static_scheduler", most, 0, -1)),
                         STATICS_UNKNOWN);
    }
}
#endif

/* Whether an address stands in memory that is mapped from the file and can be written. */
static bool can_be_written(const char *address, const char *file) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    bool found = false;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t from, end;
        char mode[8];
        found = found || (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &from, &end, mode) == 3 &&
                          (uintptr_t)address >= from && (uintptr_t)address < end &&
                          mode[1] == 'w' && (file == NULL || strstr(line, file) != NULL));
    }
    fclose(maps);
    return found;
}

TEST(static_variables_are_kept_and_told_apart) {
    void *object = dlopen(suite_plugin("static_scheduler"), RTLD_NOW | RTLD_LOCAL);
    ck_assert_ptr_nonnull(object);
    struct statics statics;
    statics_of(dlsym(object, "unmask_policy"), &statics);
    ck_assert(statics.n > 0 && statics.n <= STATICS_MOST_RANGES);
    size_t bytes = 0;
    for (unsigned i = 0; i < statics.n; i++) {
        const struct statics_range *range = &statics.ranges[i];
        ck_assert(range->bytes > 0 && can_be_written(range->at, NULL) &&
                  can_be_written(range->at + range->bytes - 1, NULL));
        bytes += range->bytes;
    }
    ck_assert_uint_eq(statics.bytes, bytes);
    ck_assert(can_be_written(statics.ranges[0].at, "static_scheduler.so"));
    char *before = mem_zeroed(bytes, 1), *after = mem_zeroed(bytes, 1);
    statics_keep(&statics, before);
    ck_assert_uint_eq(statics_changed(&statics, before), 0);
    /* The last bytes are variables that begin as zeros. */
    struct statics_range *last = &statics.ranges[statics.n - 1];
    last->at[last->bytes - 1] += 1;
    last->at[last->bytes - 3] += 1;
    ck_assert_uint_eq(statics_changed(&statics, before), 2);
    statics_keep(&statics, after);
    ck_assert_int_eq(after[bytes - 1] - before[bytes - 1], 1);
    last->at[last->bytes - 1] -= 1;
    last->at[last->bytes - 3] -= 1;
    ck_assert_uint_eq(statics_changed(&statics, before), 0);
    ck_assert_uint_eq(statics_changed(&statics, after), 2);
    free(before);
    free(after);
    statics_of(&scheduler, &statics); /* this program's are others */
    for (unsigned i = 0; i < statics.n; i++) {
        ck_assert(!can_be_written(statics.ranges[i].at, "static_scheduler.so"));
    }
    dlclose(object);
}
#endif

SUITE("ward")
