/* Schedulers in closed worlds (world.h). */
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/check/world.h"
#include "sim/policy/registry.h"

enum {
    N_WORLDS = 60,      /* random ones, besides the edge cases */
    N_EXACT_WORLDS = 60 /* the same, where memory grows */
};

/* Overload, to its end, on slow clocks: what a queue and minutes do to keys and limits. */
enum load {
    LOAD_ONCE,  /* hundreds at once, memory for a part of them */
    LOAD_OVER,  /* ten times as many as can be served, as fast as they come */
    LOAD_THREE, /* memory for three requests */
    LOAD_LONG,  /* one long request among many short ones, more of which come all the time */
    LOAD_COUNT
};

static void run_load(struct guard *guard, struct world *world, struct rng *rng, enum load load,
                     int64_t slowness) {
    static const uint32_t n_requests[LOAD_COUNT] = {900, 120, 30, 80};
    static const uint32_t gaps_ns[LOAD_COUNT] = {0, 400000, 0, 1000000};
    enum { LONG_SLOT = 5, LEAST_TOKENS = 256 };
    uint32_t gap_ns = gaps_ns[load] * (uint32_t)(slowness < 1000 ? slowness : 1000);
    world_fill(world, rng, n_requests[load], 200, 8, gap_ns);
    if (load == LOAD_LONG) {
        struct request *request = &world->requests[LONG_SLOT];
        request->prompt_tokens = 3000;
        request->output_tokens = 500;
        request->canvas_tokens = request->prompt_tokens + request->output_tokens;
        world_enter(world, request);
    }
    world->max_requests = load == LOAD_ONCE ? 256 : 64;
    world->max_batched_tokens *= load == LOAD_LONG ? 1 : 4;
    if (world->max_batched_tokens < LEAST_TOKENS) {
        world->max_batched_tokens =
            LEAST_TOKENS; /* steps of a token each have worlds of their own */
    }
    world->kv_total_bytes *= load == LOAD_THREE ? 3 : load == LOAD_LONG ? 1 : 24;
    world->slowness = slowness;
    world->ends = true;
    world->max_asks = world_asks_to_end(world);
    world_run(guard, world);
}

static void run_loads(struct guard *guard, struct world *world, struct rng *rng, int64_t slowness) {
    for (int load = 0; load < LOAD_COUNT && guard->err.kind == ERR_NONE; load++) {
        run_load(guard, world, rng, (enum load)load, slowness);
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
    world_fill(world, rng, n_requests[edge], 4096, 256, 0);
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
    world_run(guard, world);
}

/* Worlds whose requests hold all they need from the start: dLLM-Serve's cache, whose steps are wide
 * and narrow. */
static void run_worlds(struct guard *guard, struct world *world, struct rng *rng) {
    for (int edge = 0; edge < EDGE_COUNT && guard->err.kind == ERR_NONE; edge++) {
        run_edge(guard, world, rng, (enum edge)edge);
    }
    for (int i = 0; i < N_WORLDS && guard->err.kind == ERR_NONE; i++) {
        uint32_t gap_ns = exercise_size(rng, 500000000);
        world_fill(world, rng, exercise_draw(rng, 1, 80), 1u << exercise_draw(rng, 0, 13), 512,
                   gap_ns);
        world->max_batched_tokens *= exercise_draw(rng, 1, 8);
        world->kv_total_bytes *= exercise_draw(rng, 1, 32);
        world->shows_next_arrival = exercise_draw(rng, 0, 1) == 1;
        world_run(guard, world);
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
    world_fill(world, rng, n_requests[edge], 300, 64, 0);
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
    world_run(guard, world);
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
        world_fill(world, rng, exercise_draw(rng, 1, 80), 1u << exercise_draw(rng, 0, 12), 128,
                   gap_ns);
        world->max_batched_tokens = exercise_draw(rng, 1, 16) * world->max_batched_tokens +
                                    exercise_draw(rng, 0, rules->block_tokens - 1);
        world->kv_total_bytes =
            world->kv_total_bytes / 4 * exercise_draw(rng, 4, 24) + world->kv_total_bytes % 4;
        world->shows_next_arrival = exercise_draw(rng, 0, 1) == 1;
        world_run(guard, world);
    }
}

static void set_cache(struct rules *rules, const char *name, bool grows) {
    struct err err = {0};
    const struct policy *cache = policy_find(POLICY_CACHE, name, &err);
    ASSERT(cache != NULL);
    *rules = (struct rules){.cache = (const struct cache_policy *)cache,
                            .cache_state = policy_state(cache),
                            .decoder = rules->decoder,
                            .page_rows = 1,
                            .grows = grows};
}

void exercise_scheduler(struct guard *guard, struct rng *rng) {
    struct world *world = mem_zeroed(1, sizeof *world);
    struct rules *rules = &world->rules;
    struct err err = {0};
    /* Counts as `fixed` does, and has no settings. */
    const struct policy *decoder = policy_find(POLICY_DECODER, "sequential", &err);
    ASSERT(decoder != NULL && decoder->state_bytes == 0);
    const bool grows = guard->outer.scheduler.grows == 1;
    rules->decoder = (const struct decoder *)decoder;
    world->own_bytes = guard->outer.scheduler.request_bytes;
    void *first_state = mem_copied(guard->inner_state, guard->inner->state_bytes);
    world->first_state = first_state;
    world->own = world->own_bytes > 0 ? mem_zeroed(EXERCISE_SLOTS, world->own_bytes) : NULL;
    set_cache(rules, "sparse-head", false);
    run_worlds(guard, world, rng);
    run_loads(guard, world, rng, 30);
    run_loads(guard, world, rng, 3000);
    free(rules->cache_state);
    set_cache(rules, "exact", grows);
    if (grows) {
        run_exact_worlds(guard, world, rng);
    }
    *rules = (struct rules){.cache = rules->cache,
                            .cache_state = rules->cache_state,
                            .decoder = rules->decoder,
                            .causal = SEES_BLOCKS,
                            .block_tokens = 32,
                            .page_rows = 16,
                            .grows = grows};
    run_loads(guard, world, rng, 300);
    free(rules->cache_state);
    free(first_state);
    free(world->own);
    free(world);
}
