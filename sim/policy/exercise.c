#include "sim/policy/exercise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/policy/registry.h"

enum {
    SEED = 1,
    MAX_SLOTS = 1024,
    N_WORLDS = 60,     /* random ones, besides the edge cases */
    N_WALKS = 200,     /* requests walked to their end */
    N_ARRIVALS = 3000, /* routed */
    MAX_REPLICAS = 16,
    KV_ROW_BYTES = 1024, /* any size serves: only sums against the pool matter */
};

/* Any duration that grows with the tokens of a step serves. */
static const int64_t step_base_ns = 1000000, step_token_ns = 1000;

/* A wake-up further away is brought forward to here: an early question is always allowed. */
static const int64_t longest_sleep_ns = INT64_C(1000000000000);

static uint32_t draw(struct rng *rng, uint32_t from, uint32_t to) {
    return from + (uint32_t)(rng_next(rng) % ((uint64_t)to - from + 1));
}

/* As likely between 1 and 10 as between 10 and 100. */
static uint32_t draw_size(struct rng *rng, uint32_t max) {
    uint32_t bits = 0;
    while (bits < 31 && (max >> bits) > 1) {
        bits++;
    }
    uint32_t top = 1u << draw(rng, 0, bits);
    uint32_t size = draw(rng, top, 2 * top - 1);
    return size < max ? size : max;
}

static void enter_block(struct request *request, uint32_t block_start) {
    uint32_t left = request->canvas_tokens - block_start;
    request->block_start = block_start;
    request->block_length = left < request->block_tokens ? left : request->block_tokens;
    request->masked_in_block = request->block_length;
    request->step_in_block = 0;
}

static struct request make_request(struct rng *rng, uint64_t id, uint32_t max_prompt,
                                   uint32_t max_output) {
    static const uint32_t block_sizes[] = {1, 4, 8, 32, 64, 128};
    struct request request;
    memset(&request, 0, sizeof request);
    request.id = id;
    request.prompt_tokens = draw_size(rng, max_prompt);
    request.output_tokens = draw_size(rng, max_output);
    request.canvas_tokens = request.prompt_tokens + request.output_tokens;
    request.block_tokens = block_sizes[draw(rng, 0, 5)];
    request.steps_per_block = draw(rng, 1, request.block_tokens);
    request.state = REQUEST_QUEUED;
    enter_block(&request, request.prompt_tokens);
    return request;
}

/* One step that commits `commits` positions. */
static void advance(struct request *request, uint32_t commits) {
    request->steps++;
    request->step_in_block++;
    request->masked_in_block -= commits;
    request->committed_tokens += commits;
    if (request->masked_in_block > 0) {
        return;
    }
    if (request->committed_tokens == request->output_tokens) {
        request->state = REQUEST_DONE;
        return;
    }
    request->block++;
    enter_block(request, request->block_start + request->block_length);
}

/* Schedulers: a world is one replica with its limits, its requests and a clock. The progress of its
 * requests follows dLLM-Serve's cache and a fixed decoder, whose steps are wide and narrow. */
struct world {
    uint32_t n_requests, max_batched_tokens, max_requests, max_asks;
    int64_t kv_total_bytes;
    bool shows_next_arrival;

    struct request requests[MAX_SLOTS]; /* the slot is the place in order of arrival */
    uint32_t running[MAX_SLOTS], waiting[MAX_SLOTS], selected[MAX_SLOTS];
    uint32_t n_running, n_waiting, n_arrived;
    int64_t now_ns, kv_used_bytes;

    const struct cache_policy *cache;
    const struct decoder *decoder;
    void *cache_state;
};

static void renew_plan(const struct world *world, struct request *request) {
    uint32_t count_repeat;
    uint32_t repeat = world->cache->plan(world->cache_state, request, &request->span);
    request->commit_tokens = world->decoder->count(NULL, request, &count_repeat);
    uint32_t to_end = request->masked_in_block / request->commit_tokens;
    repeat = repeat < count_repeat ? repeat : count_repeat;
    repeat = repeat < to_end ? repeat : to_end;
    request->steps_to_change = repeat > 0 ? repeat : 1;
}

static int64_t estimate_ns(const void *estimator, const struct batch *batch) {
    const struct world *world = estimator;
    int64_t tokens = 0;
    for (uint32_t i = 0; batch->all_running && i < world->n_running; i++) {
        tokens += world->requests[world->running[i]].span.queries;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        tokens += world->requests[batch->selected[i]].span.queries;
    }
    return step_base_ns + tokens * step_token_ns;
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
        view.running_tokens += world->requests[world->running[i]].span.queries;
    }
    view.max_batched_tokens = world->max_batched_tokens;
    view.max_requests = world->max_requests;
    view.kv_free_bytes = world->kv_total_bytes - world->kv_used_bytes;
    view.kv_total_bytes = world->kv_total_bytes;
    view.estimate_ns = estimate_ns;
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

static void run_batch(struct world *world, const struct batch *batch) {
    uint32_t members[MAX_SLOTS], n = 0;
    int64_t step_ns = estimate_ns(world, batch);
    for (uint32_t i = 0; batch->all_running == 1 && i < world->n_running; i++) {
        members[n++] = world->running[i];
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t slot = batch->selected[i];
        members[n++] = slot;
        if (i >= batch->n - batch->n_admitted) {
            remove_slot(world->waiting, &world->n_waiting, slot);
            world->running[world->n_running++] = slot;
            world->kv_used_bytes += world->requests[slot].kv_bytes;
            world->requests[slot].state = REQUEST_RUNNING;
        }
    }
    uint32_t steps = batch_steps(world, batch, members, n, step_ns);
    world->now_ns += steps * step_ns;
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &world->requests[members[i]];
        for (uint32_t step = 0; step < steps; step++) {
            advance(request, request->commit_tokens);
        }
        if (request->state == REQUEST_DONE) {
            remove_slot(world->running, &world->n_running, members[i]);
            world->kv_used_bytes -= request->kv_bytes;
        } else {
            renew_plan(world, request);
        }
    }
}

/* Requests of up to `max_prompt` and `max_output` tokens, `mean_gap_ns` apart (0: all at once), and
 * limits that let each of them run alone. */
static void fill_world(struct world *world, struct rng *rng, uint32_t n, uint32_t max_prompt,
                       uint32_t max_output, uint32_t mean_gap_ns) {
    const struct cache_policy *cache = world->cache;
    const struct decoder *decoder = world->decoder;
    void *cache_state = world->cache_state;
    memset(world, 0, sizeof *world);
    world->cache = cache;
    world->decoder = decoder;
    world->cache_state = cache_state;
    world->n_requests = n;
    world->max_asks = 250;
    world->max_requests = draw_size(rng, 64);
    int64_t arrival_ns = 1;
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &world->requests[i];
        *request = make_request(rng, i, max_prompt, max_output);
        request->arrival_ns = arrival_ns;
        arrival_ns += mean_gap_ns > 0 ? draw(rng, 0, 2 * mean_gap_ns) : 0;
        request->kv_rows = cache->rows_held(cache_state, request);
        request->kv_bytes = (int64_t)request->kv_rows * KV_ROW_BYTES;
        renew_plan(world, request);
        if (request->canvas_tokens > world->max_batched_tokens) {
            world->max_batched_tokens = request->canvas_tokens;
        }
        if (request->kv_bytes > world->kv_total_bytes) {
            world->kv_total_bytes = request->kv_bytes;
        }
    }
}

static void run_world(struct guard *guard, struct world *world) {
    guard->n_postponed = 0;
    /* Long enough asleep for the guard to call it starvation. */
    uint32_t sleeps_left = 2 * GUARD_MAX_POSTPONED;
    for (uint32_t asked = 0; asked < world->max_asks;) {
        struct batch batch = {.capacity = world->max_requests, .selected = world->selected};
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

static void exercise_scheduler(struct guard *guard, struct rng *rng) {
    struct world *world = calloc(1, sizeof *world);
    struct err err = {0};
    const struct policy *cache = policy_find(POLICY_CACHE, "sparse-head", &err);
    const struct policy *decoder = policy_find(POLICY_DECODER, "fixed", &err);
    ASSERT(world != NULL && cache != NULL && decoder != NULL && decoder->state_bytes == 0);
    void *cache_state = policy_state(cache);
    world->cache = (const struct cache_policy *)cache;
    world->decoder = (const struct decoder *)decoder;
    world->cache_state = cache_state;
    for (int edge = 0; edge < EDGE_COUNT && guard->err.kind == ERR_NONE; edge++) {
        run_edge(guard, world, rng, (enum edge)edge);
    }
    for (int i = 0; i < N_WORLDS && guard->err.kind == ERR_NONE; i++) {
        uint32_t gap_ns = draw_size(rng, 500000000);
        fill_world(world, rng, draw(rng, 1, 80), 1u << draw(rng, 0, 13), 512, gap_ns);
        world->max_batched_tokens *= draw(rng, 1, 8);
        world->kv_total_bytes *= draw(rng, 1, 32);
        world->shows_next_arrival = draw(rng, 0, 1) == 1;
        run_world(guard, world);
    }
    free(cache_state);
    free(world);
}

/* How many positions a step of a walk commits: LLaDA's schedule, one, a random share, all. */
static uint32_t walk_commits(struct rng *rng, const struct request *request, uint32_t walk) {
    uint32_t masked = request->masked_in_block;
    uint32_t share = (uint32_t)ceil_div(request->block_length, request->steps_per_block);
    switch (walk % 4) {
    case 0:
        return share < masked ? share : masked;
    case 1:
        return 1;
    case 2:
        return draw(rng, 1, masked);
    default:
        return masked;
    }
}

static void exercise_cache(struct guard *guard, struct rng *rng) {
    for (uint32_t walk = 0; walk < N_WALKS && guard->err.kind == ERR_NONE; walk++) {
        struct request request = make_request(rng, walk, 32768, 512);
        request.kv_rows = guard->outer.cache.rows_held(guard, &request);
        request.kv_bytes = (int64_t)request.kv_rows * KV_ROW_BYTES;
        request.state = REQUEST_RUNNING;
        while (request.state != REQUEST_DONE && guard->err.kind == ERR_NONE) {
            guard->outer.cache.plan(guard, &request, &request.span);
            advance(&request, walk_commits(rng, &request, walk));
        }
    }
}

/* Confidences of a step: spread, all alike, all hopeless, all certain. */
static void draw_confidences(struct rng *rng, uint32_t walk, float *confidence, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        switch (walk % 4) {
        case 0:
            confidence[i] = 0.001f + 0.998f * (float)rng_uniform(rng);
            break;
        case 1:
            confidence[i] = 0.5f;
            break;
        case 2:
            confidence[i] = 1e-6f * (float)(1 + i % 3);
            break;
        default:
            confidence[i] = 0.999999f;
            break;
        }
    }
}

static void exercise_decoder(struct guard *guard, struct rng *rng) {
    float confidence[MAX_SLOTS];
    uint8_t commit[MAX_SLOTS];
    for (uint32_t walk = 0; walk < N_WALKS && guard->err.kind == ERR_NONE; walk++) {
        struct request request = make_request(rng, walk, 4096, 512);
        request.state = REQUEST_RUNNING;
        while (request.state != REQUEST_DONE && guard->err.kind == ERR_NONE) {
            uint32_t commits, repeat, masked = request.masked_in_block;
            if (guard->outer.decoder.count != NULL) {
                commits = guard->outer.decoder.count(guard, &request, &repeat);
            } else {
                draw_confidences(rng, walk, confidence, masked);
                commits = guard->outer.decoder.choose(guard, &request, confidence, masked, commit);
            }
            advance(&request, commits);
        }
    }
}

static void exercise_router(struct guard *guard, struct rng *rng) {
    struct replica_view replicas[MAX_REPLICAS];
    for (uint32_t i = 0; i < N_ARRIVALS && guard->err.kind == ERR_NONE; i++) {
        uint32_t n = draw(rng, 1, MAX_REPLICAS);
        bool idle = i % 10 == 0;
        memset(replicas, 0, sizeof replicas);
        for (uint32_t j = 0; j < n && !idle; j++) {
            replicas[j].n_running = draw(rng, 0, 64);
            replicas[j].n_waiting = draw(rng, 0, 1000);
            replicas[j].kv_free_bytes = (int64_t)draw(rng, 0, 1000) * KV_ROW_BYTES;
            replicas[j].outstanding_tokens = draw(rng, 0, 1000000);
        }
        struct request request = make_request(rng, i, 32768, 512);
        guard->outer.router.route(guard, &request, replicas, n);
    }
}

/* One variant: `param` set to `text`, or the initial values when it is NULL. */
static void run_variant(struct exercise *exercise, const struct policy *policy,
                        const struct param *param, const char *text) {
    struct err *err = &exercise->guard.err;
    void *state = policy_state(policy);
    exercise->variant[0] = '\0';
    if (param != NULL) {
        ASSERT(param_set(policy->params, policy->n_params, state, policy->name, "variant",
                         param->name, text, err) == 0);
        snprintf(exercise->variant, sizeof exercise->variant, "%s = %s", param->name, text);
    }
    struct guard *guard = &exercise->guard;
    guard_init(guard, policy, state, MAX_SLOTS);
    struct rng rng = rng_stream(SEED, "exercise");
    switch ((enum policy_kind)policy->kind) {
    case POLICY_SCHEDULER:
        exercise_scheduler(guard, &rng);
        break;
    case POLICY_CACHE:
        exercise_cache(guard, &rng);
        break;
    case POLICY_DECODER:
        exercise_decoder(guard, &rng);
        break;
    case POLICY_ROUTER:
        exercise_router(guard, &rng);
        break;
    }
    if (err->kind != ERR_NONE) {
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, " (call %llu%s%s)",
                 (unsigned long long)guard->n_calls, param != NULL ? ", with " : "",
                 exercise->variant);
    }
    for (int i = 0; i < PROMISE_COUNT; i++) {
        exercise->n_checked[i] += guard->n_checked[i];
    }
    exercise->n_calls += guard->n_calls;
    guard_fini(guard);
    free(state);
}

void exercise_policy(struct exercise *exercise, const struct policy *policy) {
    memset(exercise, 0, sizeof *exercise);
    run_variant(exercise, policy, NULL, NULL);
    for (uint64_t i = 0; i < policy->n_params; i++) {
        static const char *const truths[] = {"on", "off", NULL};
        const struct param *param = &policy->params[i];
        bool is_word = param->type == PARAM_WORD;
        const char *const *words = is_word ? param->words : truths;
        for (uint32_t j = 0; (is_word || param->type == PARAM_BOOL) && words[j] != NULL; j++) {
            if (exercise->guard.err.kind == ERR_NONE) {
                run_variant(exercise, policy, param, words[j]);
            }
        }
    }
}
