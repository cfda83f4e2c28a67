#include "sim/check/world.h"

#include <string.h>

#include "sim/base/num.h"
#include "sim/cache/blocks.h"
#include "sim/check/guard_parts.h"
#include "sim/scheduler/course.h"

/* Any duration that grows with the tokens of a step serves, times the world's slowness. */
static const int64_t step_base_ns = 1000000, step_token_ns = 1000;

enum { ASKS = 250, EXACT_ASKS = 400 }; /* decisions of a world that need not come to its end */

/* A wake-up further away is brought forward to here: an early question is always allowed. */
static const int64_t longest_sleep_ns = INT64_C(1000000000000);

static void renew_memory(const struct world *world, struct request *request) {
    const struct rules *rules = &world->rules;
    struct row_sets rows;
    (void)cache_rows(rules->cache, rules->cache_state, NULL, request, &rows);
    request->kv_rows =
        rules->grows ? rows.held : cache_most_held(rules->cache, rules->cache_state, request);
    request->kv_bytes = ceil_div(request->kv_rows, rules->page_rows) * rules->page_rows *
                        (int64_t)EXERCISE_KV_ROW_BYTES;
}

static struct course course_of(const struct world *world) {
    const struct rules *rules = &world->rules;
    return (struct course){
        .cache = rules->cache, .decoder = rules->decoder, .cache_state = rules->cache_state};
}

static void renew_plan(const struct world *world, struct request *request) {
    const struct course course = course_of(world);
    course_plan(&course, request);
    if (request->span.exact && world->rules.grows) {
        renew_memory(world, request);
    }
}

static void take_steps(const struct world *world, struct request *request, uint32_t steps) {
    struct course course = course_of(world);
    if (!course_take(&course, request, steps)) {
        request->state = REQUEST_DONE;
    }
}

static int64_t step_ns(const struct world *world, int64_t tokens) {
    return world->slowness * (step_base_ns + tokens * step_token_ns);
}

static int64_t estimate_ns(const void *estimator, const struct batch *batch) {
    const struct world *world = estimator;
    int64_t tokens = 0;
    for (uint32_t i = 0; batch->all_running && i < world->n_running; i++) {
        tokens += world->requests[world->running[i]].span.queries;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t chunk = batch->chunk_tokens != NULL ? batch->chunk_tokens[i] : 0;
        tokens += chunk > 0 ? chunk : world->requests[batch->selected[i]].span.queries;
    }
    for (uint32_t i = 0; i < batch->n_idle; i++) {
        tokens += world->requests[batch->idle[i]].span.queries;
    }
    return step_ns(world, tokens);
}

/* So many watts all the time. */
static double estimate_joules(const void *estimator, const struct batch *batch) {
    static const double watts = 500;
    return watts * 1e-9 * (double)estimate_ns(estimator, batch);
}

static int64_t estimate_spans_ns(const void *estimator, const struct span *const *spans,
                                 uint32_t n) {
    int64_t tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        tokens += spans[i]->queries;
    }
    return n > 0 ? step_ns(estimator, tokens) : 0;
}

static void foresee(const void *estimator, uint32_t slot, struct pass_ahead *passes,
                    uint32_t capacity, struct outlook *out) {
    const struct world *world = estimator;
    struct course course = course_of(world);
    course_foresee(&course, &world->requests[slot], passes, capacity, out);
    out->is_exact = 1;
}

static int64_t next_arrival_ns(const struct world *world) {
    return world->n_arrived < world->n_requests ? world->requests[world->n_arrived].arrival_ns
                                                : INT64_MAX;
}

static void receive(struct world *world) {
    while (next_arrival_ns(world) <= world->now_ns) {
        world->waiting[world->n_waiting++] = world->n_arrived++;
    }
}

static void ask(struct guard *guard, const struct world *world, struct batch *batch) {
    struct schedule_view view;
    memset(&view, 0, sizeof view);
    view.now_ns = world->now_ns;
    view.requests = world->requests;
    view.running = world->running;
    view.n_running = world->n_running;
    view.waiting = world->waiting;
    view.n_waiting = world->n_waiting;
    view.next_arrival_ns = world->shows_next_arrival ? next_arrival_ns(world) : INT64_MAX;
    for (uint32_t i = 0; i < world->n_running; i++) {
        const struct request *request = &world->requests[world->running[i]];
        view.running_tokens += request->span.queries;
        view.running_growth_bytes += request->kv_bytes - request->kv_held_bytes;
    }
    view.max_batched_tokens = world->max_batched_tokens;
    view.max_requests = world->max_requests;
    view.kv_free_bytes = world->kv_total_bytes - world->kv_used_bytes;
    view.kv_total_bytes = world->kv_total_bytes;
    view.estimate_ns = estimate_ns;
    view.estimate_joules = estimate_joules;
    view.foresee = foresee;
    view.estimate_spans_ns = estimate_spans_ns;
    view.estimator = world;
    view.own = world->own;
    view.n_slots = EXERCISE_SLOTS;
    guard->outer.scheduler.schedule(guard, &view, batch);
}

static void remove_slot(uint32_t *slots, uint32_t *n, uint32_t slot) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        if (slots[i] != slot) {
            slots[kept++] = slots[i];
        }
    }
    *n = kept;
}

/* Steps for which the batch stands: the loop's rule, on this world's clock. */
static uint32_t batch_steps(const struct world *world, const struct batch *batch,
                            const uint32_t *members, uint32_t n, int64_t one_ns) {
    uint32_t steps = batch->hold == HOLD_STEP ? 1 : UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to_change = world->requests[members[i]].steps_to_change;
        steps = steps < to_change ? steps : to_change;
    }
    int64_t arrival_ns = next_arrival_ns(world);
    if (batch->hold == HOLD_CHANGE && arrival_ns != INT64_MAX) {
        int64_t until = (arrival_ns - world->now_ns + one_ns - 1) / one_ns;
        steps = until < steps ? (uint32_t)until : steps;
    }
    return steps;
}

static void grow(struct world *world, struct request *request) {
    world->kv_used_bytes += request->kv_bytes - request->kv_held_bytes;
    request->kv_held_bytes = request->kv_bytes;
}

static void preempt(struct world *world, uint32_t slot) {
    struct request *request = &world->requests[slot];
    remove_slot(world->running, &world->n_running, slot);
    memmove(world->waiting + 1, world->waiting, world->n_waiting * sizeof *world->waiting);
    world->waiting[0] = slot;
    world->n_waiting++;
    world->kv_used_bytes -= request->kv_held_bytes;
    request->kv_held_bytes = 0;
    request->passes_in_block = 0;
    request->uncached_in_block = request->block_length;
    request->cached_tokens = 0;
    request->state = REQUEST_PREEMPTED;
    request->preemptions++;
    renew_plan(world, request);
}

static void admit(struct world *world, uint32_t slot) {
    remove_slot(world->waiting, &world->n_waiting, slot);
    world->running[world->n_running++] = slot;
    world->requests[slot].state = REQUEST_RUNNING;
}

/* The members run for as long as the batch stands. */
static void run_members(struct world *world, const struct batch *batch, const uint32_t *members,
                        uint32_t n, int64_t one_ns) {
    uint32_t steps = batch_steps(world, batch, members, n, one_ns);
    world->now_ns += steps * one_ns;
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &world->requests[members[i]];
        take_steps(world, request, steps);
        if (request->state == REQUEST_DONE) {
            remove_slot(world->running, &world->n_running, members[i]);
            world->kv_used_bytes -= request->kv_held_bytes;
        } else {
            renew_plan(world, request);
        }
    }
}

/* Those still running once more, where their growth fits. */
static bool keep_members(struct world *world, uint32_t *members, uint32_t *n) {
    int64_t growth = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        const struct request *request = &world->requests[members[i]];
        if (request->state == REQUEST_RUNNING) {
            members[kept++] = members[i];
            growth += request->kv_bytes - request->kv_held_bytes;
        }
    }
    *n = kept;
    if (kept == 0 || growth > world->kv_total_bytes - world->kv_used_bytes) {
        return false;
    }
    for (uint32_t i = 0; i < kept; i++) {
        grow(world, &world->requests[members[i]]);
    }
    return true;
}

static void run_batch(struct world *world, const struct batch *batch) {
    uint32_t members[EXERCISE_SLOTS], n = 0;
    int64_t one_ns = estimate_ns(world, batch);
    for (uint32_t i = 0; i < batch->n_preempted; i++) {
        preempt(world, batch->preempted[i]);
    }
    for (uint32_t i = 0; batch->all_running == 1 && i < world->n_running; i++) {
        members[n++] = world->running[i];
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t slot = batch->selected[i];
        struct request *request = &world->requests[slot];
        members[n++] = slot;
        if (i >= batch->n - batch->n_admitted) {
            admit(world, slot);
        }
        if (batch->chunk_tokens[i] > 0) {
            request->span.queries = request->span.first_queries = batch->chunk_tokens[i];
            request->span.logit_rows = request->commit_tokens = 0;
            request->steps_to_change = 1;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        grow(world, &world->requests[members[i]]);
    }
    ASSERT(world->kv_used_bytes <= world->kv_total_bytes);
    run_members(world, batch, members, n, one_ns);
    for (uint32_t loop = 1; loop < batch->loops && keep_members(world, members, &n); loop++) {
        run_members(world, batch, members, n, one_ns);
    }
}

void world_enter(struct world *world, struct request *request) {
    const struct rules *rules = &world->rules;
    blocks_enter(request, 0);
    renew_memory(world, request);
    renew_plan(world, request);
    struct request last = *request;
    blocks_enter_last(&last);
    renew_memory(world, &last);
    uint32_t widest = rules->block_tokens == 0 ? request->canvas_tokens
                      : rules->grows           ? rules->block_tokens
                                               : request->span.queries;
    if (widest > world->max_batched_tokens) {
        world->max_batched_tokens = widest;
    }
    if (last.kv_bytes > world->kv_total_bytes) {
        world->kv_total_bytes = last.kv_bytes;
    }
}

void world_fill(struct world *world, struct rng *rng, uint32_t n, uint32_t max_prompt,
                uint32_t max_output, uint32_t mean_gap_ns) {
    const struct rules rules = world->rules;
    const size_t begin = offsetof(struct world, n_requests);
    int64_t now_ns = world->now_ns;
    memset((char *)world + begin, 0, sizeof *world - begin);
    world->now_ns = now_ns;
    if (world->own != NULL) {
        memset(world->own, 0, EXERCISE_SLOTS * world->own_bytes);
    }
    world->slowness = 1;
    world->n_requests = n;
    world->max_asks = world->rules.causal != SEES_CANVAS ? EXACT_ASKS : ASKS;
    world->max_requests = exercise_size(rng, 64);
    int64_t arrival_ns = world->now_ns + 1; /* static variables may know how late it was */
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &world->requests[i];
        *request = rules.block_tokens > 0 ? exercise_exact_request(rng, i, max_prompt, max_output,
                                                                   rules.causal, rules.block_tokens)
                                          : exercise_request(rng, i, max_prompt, max_output);
        request->arrival_ns = arrival_ns;
        arrival_ns += mean_gap_ns > 0 ? exercise_draw(rng, 0, 2 * mean_gap_ns) : 0;
        world_enter(world, request);
    }
}

uint32_t world_asks_to_end(const struct world *world) {
    uint64_t steps = 0;
    for (uint32_t i = 0; i < world->n_requests; i++) {
        struct outlook outlook;
        foresee(world, i, NULL, 0, &outlook);
        steps += outlook.steps + world->requests[i].canvas_tokens / world->requests[i].block_tokens;
    }
    return (uint32_t)(4 * steps + 1000);
}

/* After the last decision: nobody is left behind where there was time for all. */
static void look_at_end(struct guard *guard, const struct world *world, uint32_t asked) {
    uint32_t undone = 0, oldest = 0;
    for (uint32_t i = world->n_requests; i-- > 0;) {
        bool is_done = world->requests[i].state == REQUEST_DONE;
        undone += !is_done;
        oldest = is_done ? oldest : i;
    }
    (void)guard_keeps(guard, PROMISE_PROGRESS, undone == 0,
                      "starves: %u of %u requests are not done after %u decisions, the oldest of "
                      "them in slot %u, and nothing else is to come",
                      undone, world->n_requests, asked, oldest);
}

/* Who asks to be woken again and again is woken later every time. */
static int64_t sleep_of(const struct guard *guard, int64_t wanted_ns) {
    uint32_t n = guard->n_postponed,
             doublings = n > GUARD_MANY_POSTPONED ? n - GUARD_MANY_POSTPONED : 0;
    int64_t least_ns = doublings < 40 ? INT64_C(1) << doublings : longest_sleep_ns;
    int64_t sleep_ns = doublings == 0 || wanted_ns > least_ns ? wanted_ns : least_ns;
    return sleep_ns < longest_sleep_ns ? sleep_ns : longest_sleep_ns;
}

void world_run(struct guard *guard, struct world *world) {
    guard->n_postponed = 0;
    memcpy(guard->inner_state, world->first_state, guard->inner->state_bytes);
    uint32_t sleeps_left = 2000; /* long enough for the guard to call it starvation */
    uint32_t asked = 0;
    while (asked < world->max_asks) {
        struct batch batch = {.capacity = world->max_requests,
                              .selected = world->selected,
                              .chunk_tokens = world->chunk_tokens,
                              .preempted = world->preempted,
                              .idle = world->idle};
        receive(world);
        ask(guard, world, &batch);
        if (guard->err.kind != ERR_NONE) {
            return;
        }
        if (batch.n > 0 || (batch.all_running == 1 && world->n_running > 0)) {
            run_batch(world, &batch);
            asked++;
            continue;
        }
        int64_t arrival_ns = next_arrival_ns(world);
        int64_t wake_ns = batch.wake_ns < arrival_ns ? batch.wake_ns : arrival_ns;
        if (wake_ns == INT64_MAX) {
            break;
        }
        if (sleeps_left-- == 0) {
            return;
        }
        world->now_ns += sleep_of(guard, wake_ns - world->now_ns);
    }
    if (world->ends) {
        look_at_end(guard, world, asked);
    }
}
