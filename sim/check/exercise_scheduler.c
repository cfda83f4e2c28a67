/* Schedulers in closed worlds: one replica with its limits, its requests and a clock, whose
 * progress follows a cache policy and a fixed decoder as in the serving loop. */
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/cache/blocks.h"
#include "sim/check/exercise_parts.h"
#include "sim/policy/registry.h"
#include "sim/scheduler/course.h"

enum {
    N_WORLDS = 60,         /* random ones, besides the edge cases */
    N_EXACT_WORLDS = 60,   /* the same, where memory grows */
    EXACT_WORLD_ASKS = 400 /* decisions of one of these */
};

/* Any duration that grows with the tokens of a step serves. */
static const int64_t step_base_ns = 1000000, step_token_ns = 1000;

/* A wake-up further away is brought forward to here: an early question is always allowed. */
static const int64_t longest_sleep_ns = INT64_C(1000000000000);

/* What the requests of a world follow. */
struct rules {
    const struct cache_policy *cache;
    void *cache_state;
    const struct decoder *decoder;
    uint32_t causal, block_tokens; /* 0: a length of its own for each request */
    uint32_t page_rows;            /* rows of which memory is made */
};

struct world {
    struct rules rules;
    uint32_t n_requests, max_batched_tokens, max_requests, max_asks;
    int64_t kv_total_bytes;
    bool shows_next_arrival;

    struct request requests[EXERCISE_SLOTS]; /* the slot is the place in order of arrival */
    uint32_t running[EXERCISE_SLOTS], waiting[EXERCISE_SLOTS];
    uint32_t selected[EXERCISE_SLOTS], chunk_tokens[EXERCISE_SLOTS]; /* the batch's lists */
    uint32_t preempted[EXERCISE_SLOTS], idle[EXERCISE_SLOTS];
    uint32_t n_running, n_waiting, n_arrived;
    int64_t now_ns, kv_used_bytes;
};

static void renew_memory(const struct world *world, struct request *request) {
    const struct rules *rules = &world->rules;
    struct row_sets rows;
    (void)cache_rows(rules->cache, rules->cache_state, NULL, request, &rows);
    request->kv_rows = rows.held;
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
    if (request->span.exact) {
        renew_memory(world, request);
    }
}

static void take_steps(const struct world *world, struct request *request, uint32_t steps) {
    struct course course = course_of(world);
    if (!course_take(&course, request, steps)) {
        request->state = REQUEST_DONE;
    }
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
    return step_base_ns + tokens * step_token_ns;
}

/* So many watts all the time. */
static double estimate_joules(const void *estimator, const struct batch *batch) {
    static const double watts = 500;
    return watts * 1e-9 * (double)estimate_ns(estimator, batch);
}

static int64_t estimate_spans_ns(const void *estimator, const struct span *const *spans,
                                 uint32_t n) {
    (void)estimator;
    int64_t tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        tokens += spans[i]->queries;
    }
    return n > 0 ? step_base_ns + tokens * step_token_ns : 0;
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
                            const uint32_t *members, uint32_t n, int64_t step_ns) {
    uint32_t steps = batch->hold == HOLD_STEP ? 1 : UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to_change = world->requests[members[i]].steps_to_change;
        steps = steps < to_change ? steps : to_change;
    }
    int64_t arrival_ns = next_arrival_ns(world);
    if (batch->hold == HOLD_CHANGE && arrival_ns != INT64_MAX) {
        int64_t until = (arrival_ns - world->now_ns + step_ns - 1) / step_ns;
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
                        uint32_t n, int64_t step_ns) {
    uint32_t steps = batch_steps(world, batch, members, n, step_ns);
    world->now_ns += steps * step_ns;
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
    int64_t step_ns = estimate_ns(world, batch);
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
    run_members(world, batch, members, n, step_ns);
    for (uint32_t loop = 1; loop < batch->loops && keep_members(world, members, &n); loop++) {
        run_members(world, batch, members, n, step_ns);
    }
}

/* Requests of up to `max_prompt` and `max_output` tokens, `mean_gap_ns` apart (0: all at once), and
 * limits that let each of them run alone. */
static void fill_world(struct world *world, struct rng *rng, uint32_t n, uint32_t max_prompt,
                       uint32_t max_output, uint32_t mean_gap_ns) {
    const struct rules rules = world->rules;
    memset(world, 0, sizeof *world);
    world->rules = rules;
    world->n_requests = n;
    world->max_asks = world->rules.causal != SEES_CANVAS ? EXACT_WORLD_ASKS : 250;
    world->max_requests = exercise_size(rng, 64);
    int64_t arrival_ns = 1;
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &world->requests[i];
        *request = rules.block_tokens > 0 ? exercise_exact_request(rng, i, max_prompt, max_output,
                                                                   rules.causal, rules.block_tokens)
                                          : exercise_request(rng, i, max_prompt, max_output);
        request->arrival_ns = arrival_ns;
        arrival_ns += mean_gap_ns > 0 ? exercise_draw(rng, 0, 2 * mean_gap_ns) : 0;
        renew_memory(world, request);
        renew_plan(world, request);
        struct request last = *request;
        blocks_enter_last(&last);
        renew_memory(world, &last);
        uint32_t widest = rules.block_tokens > 0 ? rules.block_tokens : request->canvas_tokens;
        if (widest > world->max_batched_tokens) {
            world->max_batched_tokens = widest;
        }
        if (last.kv_bytes > world->kv_total_bytes) {
            world->kv_total_bytes = last.kv_bytes;
        }
    }
}

static void run_world(struct guard *guard, struct world *world) {
    guard->n_postponed = 0;
    /* Long enough asleep for the guard to call it starvation. */
    uint32_t sleeps_left = 2 * GUARD_MAX_POSTPONED;
    for (uint32_t asked = 0; asked < world->max_asks;) {
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
        if (wake_ns == INT64_MAX || sleeps_left-- == 0) {
            return;
        }
        int64_t sleep_ns = wake_ns - world->now_ns;
        world->now_ns += sleep_ns < longest_sleep_ns ? sleep_ns : longest_sleep_ns;
    }
}

enum edge {
    EDGE_EMPTY,      /* no request at all */
    EDGE_ALONE,      /* one that fits exactly */
    EDGE_TOO_WIDE,   /* one whose step exceeds the token budget */
    EDGE_TOO_LARGE,  /* one whose KV exceeds the pool */
    EDGE_FULL_POOL,  /* the pool holds one request, many wait */
    EDGE_ONE_AT_ONE, /* max_requests 1 */
    EDGE_QUEUE,      /* a thousand at once */
    EDGE_NARROW,     /* the widest canvas fills the token budget */
    EDGE_COUNT
};

static void run_edge(struct guard *guard, struct world *world, struct rng *rng, enum edge edge) {
    static const uint32_t n_requests[EDGE_COUNT] = {0, 1, 1, 1, 20, 20, 1000, 40};
    fill_world(world, rng, n_requests[edge], 4096, 256, 0);
    switch (edge) {
    case EDGE_TOO_WIDE:
        world->max_batched_tokens--;
        break;
    case EDGE_TOO_LARGE:
        world->kv_total_bytes--;
        break;
    case EDGE_ONE_AT_ONE:
        world->max_requests = 1;
        world->kv_total_bytes *= 20;
        world->max_batched_tokens *= 4;
        break;
    case EDGE_FULL_POOL:
        world->max_requests = 64;
        world->max_batched_tokens *= 4;
        break;
    case EDGE_QUEUE:
        world->max_requests = 256;
        world->max_batched_tokens *= 8;
        world->kv_total_bytes *= 64;
        break;
    case EDGE_NARROW:
        world->max_requests = 64;
        world->kv_total_bytes *= 40;
        break;
    default:
        break;
    }
    run_world(guard, world);
}

/* Worlds whose requests hold all they need from the start: dLLM-Serve's cache, whose steps are wide
 * and narrow. */
static void run_worlds(struct guard *guard, struct world *world, struct rng *rng) {
    for (int edge = 0; edge < EDGE_COUNT && guard->err.kind == ERR_NONE; edge++) {
        run_edge(guard, world, rng, (enum edge)edge);
    }
    for (int i = 0; i < N_WORLDS && guard->err.kind == ERR_NONE; i++) {
        uint32_t gap_ns = exercise_size(rng, 500000000);
        fill_world(world, rng, exercise_draw(rng, 1, 80), 1u << exercise_draw(rng, 0, 13), 512,
                   gap_ns);
        world->max_batched_tokens *= exercise_draw(rng, 1, 8);
        world->kv_total_bytes *= exercise_draw(rng, 1, 32);
        world->shows_next_arrival = exercise_draw(rng, 0, 1) == 1;
        run_world(guard, world);
    }
}

/* Memory that grows: who runs out of it, and prompts that do not fit into a step. */
enum exact_edge {
    EXACT_EMPTY,   /* no request at all */
    EXACT_ALONE,   /* one that fits exactly, its prompt in many chunks */
    EXACT_TIGHT,   /* the pool holds one request's last block, many wait */
    EXACT_CHUNKS,  /* room for all, and for a block a step */
    EXACT_CRAMPED, /* neither */
    EXACT_QUEUE,   /* a thousand at once */
    EXACT_EDGE_COUNT
};

static void run_exact_edge(struct guard *guard, struct world *world, struct rng *rng,
                           enum exact_edge edge) {
    static const uint32_t n_requests[EXACT_EDGE_COUNT] = {0, 1, 20, 40, 40, 1000};
    fill_world(world, rng, n_requests[edge], 300, 64, 0);
    world->max_requests = 64;
    switch (edge) {
    case EXACT_TIGHT:
        world->max_batched_tokens *= 64;
        break;
    case EXACT_CHUNKS:
        world->kv_total_bytes *= 64;
        break;
    case EXACT_QUEUE:
        world->max_batched_tokens *= 32;
        world->kv_total_bytes *= 8;
        break;
    default:
        break;
    }
    run_world(guard, world);
}

static void run_exact_worlds(struct guard *guard, struct world *world, struct rng *rng) {
    static const uint32_t block_sizes[] = {1, 4, 8, 16, 32, 64}, page_sizes[] = {1, 16, 64};
    struct rules *rules = &world->rules;
    for (uint32_t i = 0; i < 6 * EXACT_EDGE_COUNT && guard->err.kind == ERR_NONE; i++) {
        rules->block_tokens = block_sizes[i % 6];
        rules->causal = rules->block_tokens == 1 ? SEES_TOKENS : SEES_BLOCKS;
        rules->page_rows = page_sizes[i / 6 % 3];
        run_exact_edge(guard, world, rng, (enum exact_edge)(i / 6));
    }
    for (uint32_t i = 0; i < N_EXACT_WORLDS && guard->err.kind == ERR_NONE; i++) {
        rules->block_tokens = block_sizes[exercise_draw(rng, 0, 5)];
        rules->causal =
            rules->block_tokens == 1 && exercise_draw(rng, 0, 3) > 0 ? SEES_TOKENS : SEES_BLOCKS;
        rules->page_rows = page_sizes[exercise_draw(rng, 0, 2)];
        uint32_t gap_ns = exercise_size(rng, 50000000);
        fill_world(world, rng, exercise_draw(rng, 1, 80), 1u << exercise_draw(rng, 0, 12), 128,
                   gap_ns);
        world->max_batched_tokens = exercise_draw(rng, 1, 16) * world->max_batched_tokens +
                                    exercise_draw(rng, 0, rules->block_tokens - 1);
        world->kv_total_bytes =
            world->kv_total_bytes / 4 * exercise_draw(rng, 4, 24) + world->kv_total_bytes % 4;
        world->shows_next_arrival = exercise_draw(rng, 0, 1) == 1;
        run_world(guard, world);
    }
}

static void set_cache(struct rules *rules, const char *name) {
    struct err err = {0};
    const struct policy *cache = policy_find(POLICY_CACHE, name, &err);
    ASSERT(cache != NULL);
    *rules = (struct rules){.cache = (const struct cache_policy *)cache,
                            .cache_state = policy_state(cache),
                            .decoder = rules->decoder,
                            .page_rows = 1};
}

void exercise_scheduler(struct guard *guard, struct rng *rng) {
    struct world *world = mem_zeroed(1, sizeof *world);
    struct err err = {0};
    const struct policy *decoder = policy_find(POLICY_DECODER, "fixed", &err);
    ASSERT(decoder != NULL && decoder->state_bytes == 0);
    world->rules.decoder = (const struct decoder *)decoder;
    set_cache(&world->rules, "sparse-head");
    run_worlds(guard, world, rng);
    free(world->rules.cache_state);
    if (guard->outer.scheduler.grows == 1) {
        set_cache(&world->rules, "exact");
        run_exact_worlds(guard, world, rng);
        free(world->rules.cache_state);
    }
    free(world);
}
