#include "sim/check/exercise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/cache/blocks.h"
#include "sim/check/exercise_parts.h"
#include "sim/decode/block.h"
#include "sim/policy/registry.h"

enum {
    SEED = 1,
    N_WALKS = 200,      /* requests walked to their end */
    N_EXACT_WALKS = 50, /* of a decoder, besides */
    N_ARRIVALS = 3000,  /* routed */
    MAX_REPLICAS = 16,
};

/* One step that commits `commits` positions. */
static void advance(struct request *request, uint32_t commits) {
    request->steps++;
    request->step_in_block++;
    request->passes_in_block++;
    blocks_commit(request, commits);
    if (request->masked_in_block > 0) {
        return;
    }
    if (request->committed_tokens == request->output_tokens) {
        request->state = REQUEST_DONE;
        return;
    }
    blocks_enter(request, request->block + 1);
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
        return exercise_draw(rng, 1, masked);
    default:
        return masked;
    }
}

/* The policy learns that a block begins (n 0), or that a step decided the first n of its `masked`
 * positions; how unsure the model was of them is drawn. */
static void teach(struct guard *guard, struct rng *rng, void *memory, const struct request *request,
                  uint32_t masked, uint32_t n) {
    const struct cache_policy *cache = &guard->outer.cache;
    uint8_t commit[EXERCISE_SLOTS] = {0};
    float entropy[EXERCISE_SLOTS] = {0};
    uint32_t first = request->block_length - masked;
    for (uint32_t i = first; i < first + n; i++) {
        commit[i] = 1;
        entropy[i] = cache->reads_entropy ? 12 * (float)rng_uniform(rng) : 0;
    }
    const struct learned learned = {n, commit, cache->reads_entropy ? entropy : NULL};
    if (cache->learn != NULL) {
        cache->learn(guard, memory, request, &learned);
    }
}

/* How many of the decided positions of the block stand in front, which of its positions a policy
 * that leaves some out finds uncached, and which of them an
 * eviction left: any that it may meet. */
static void draw_positions(struct rng *rng, uint32_t settles, struct request *request) {
    uint32_t masked = request->masked_in_block, length = request->block_length;
    request->known_in_front = masked == 0 ? length : exercise_draw(rng, 0, length - masked);
    if (settles == BLOCK_PARTS) {
        return;
    }
    request->uncached_in_block = request->passes_in_block == 0
                                     ? length
                                     : exercise_draw(rng, masked > 0 ? masked : 1, length);
    request->kept_in_block =
        masked > 0 ? exercise_draw(rng, 1, request->uncached_in_block) : request->uncached_in_block;
    request->reach_in_block = exercise_draw(rng, request->kept_in_block, length);
}

/* One step of a request under an exact policy, of which a prefill is taken whole or in part; now
 * and then it gives its memory back instead. */
static void walk_exact_step(struct guard *guard, struct rng *rng, struct request *request,
                            uint32_t walk) {
    const struct cache_policy *cache = &guard->outer.cache;
    if (walk % 3 == 0 && exercise_draw(rng, 0, 15) == 0) {
        request->cached_tokens = 0;
        request->kv_held_bytes = 0;
        request->uncached_in_block = request->block_length;
        request->passes_in_block = 0;
        request->preemptions++;
    }
    if (guard->facts.settles != BLOCK_WHOLE && request->causal == SEES_BLOCKS &&
        request->cached_tokens >= request->block_start) {
        draw_positions(rng, guard->facts.settles, request);
    }
    (void)cache_plan(cache, guard, NULL, request);
    uint32_t blocks = request->span.queries / request->block_tokens;
    if (guard->err.kind != ERR_NONE) {
        return;
    }
    if (request->span.phase == PHASE_PREFILL && blocks > 1 && exercise_draw(rng, 0, 1) == 1) {
        request->span.queries = exercise_draw(rng, 1, blocks - 1) * request->block_tokens;
        request->span.logit_rows = 0;
    }
    uint32_t commits = blocks_decide(request) ? walk_commits(rng, request, walk) : 0;
    bool yields = blocks_yield(request);
    request->steps++;
    request->step_in_block += request->span.phase != PHASE_PREFILL;
    request->passes_in_block += request->span.phase != PHASE_PREFILL;
    blocks_commit(request, commits);
    blocks_cache(request);
    if (yields && request->span.phase == PHASE_PREFILL) {
        blocks_commit(request, 1);
        yields = false;
    }
    while (request->masked_in_block == 0 && !cache_writes_more(cache, guard, NULL, request)) {
        if (request->committed_tokens == request->output_tokens) {
            request->state = REQUEST_DONE;
            return;
        }
        blocks_enter(request, request->block + 1);
        blocks_commit(request, yields);
        yields = false;
    }
}

static void walk_exact(struct guard *guard, struct rng *rng) {
    static const uint32_t block_sizes[] = {1, 1, 4, 8, 16, 32, 64, 128};
    for (uint32_t walk = 0; walk < N_WALKS && guard->err.kind == ERR_NONE; walk++) {
        uint32_t causal = walk % 8 == 0 ? SEES_TOKENS : SEES_BLOCKS;
        struct request request =
            exercise_exact_request(rng, walk, walk % 5 == 0 ? 64 : 8192, walk % 8 == 0 ? 64 : 512,
                                   causal, block_sizes[walk % 8]);
        request.shifted = causal == SEES_BLOCKS && walk % 7 >= 4;
        request.kv_rows = guard->facts.held;
        request.kv_bytes = (int64_t)request.kv_rows * EXERCISE_KV_ROW_BYTES;
        request.state = REQUEST_RUNNING;
        while (request.state != REQUEST_DONE && guard->err.kind == ERR_NONE) {
            walk_exact_step(guard, rng, &request, walk);
        }
    }
}

/* A block's positions while an evicting policy leads it to its end. */
struct walked_block {
    uint8_t pending[EXERCISE_SLOTS], masked[EXERCISE_SLOTS], keep[EXERCISE_SLOTS];
    float delta[EXERCISE_SLOTS];
    int32_t frontier;
};

/* Growth of importance: spread, all alike, none at all, one far above the rest. */
static void draw_deltas(struct rng *rng, struct walked_block *block, uint32_t length,
                        uint32_t walk) {
    uint32_t one = exercise_draw(rng, 0, length - 1);
    for (uint32_t i = 0; i < length; i++) {
        float spread = 2 * (float)rng_uniform(rng) - 1;
        float drawn[] = {spread, 0.25f, 0, i == one ? 100 : 0.01f * spread};
        block->pending[i] = block->masked[i] || exercise_draw(rng, 0, 3) == 0;
        block->delta[i] = block->masked[i] ? drawn[walk % 4] : 0;
    }
}

/* One step: some of the masked positions that stay are committed. */
static void walk_evicting_step(struct guard *guard, struct rng *rng, struct request *request,
                               struct walked_block *block, void *memory, uint32_t walk) {
    const struct cache_policy *cache = &guard->outer.cache;
    uint32_t length = request->block_length, n = 0;
    draw_deltas(rng, block, length, walk);
    const struct eviction_view view = {.request = request,
                                       .length = length,
                                       .pending = block->pending,
                                       .masked = block->masked,
                                       .delta = block->delta,
                                       .frontier = block->frontier};
    cache->evict(guard, memory, &view, block->keep);
    for (uint32_t i = 0; i < length; i++) {
        block->frontier =
            block->keep[i] && (int32_t)i > block->frontier ? (int32_t)i : block->frontier;
        if (block->keep[i] && block->masked[i] && (n == 0 || exercise_draw(rng, 0, 2) == 0)) {
            block->masked[i] = 0;
            n++;
        }
    }
    blocks_commit(request, n);
    request->step_in_block++;
    request->passes_in_block++;
    request->steps++;
    teach(guard, rng, memory, request, request->masked_in_block + n, n);
}

static void walk_evictions(struct guard *guard, struct rng *rng) {
    const struct cache_policy *cache = &guard->outer.cache;
    struct walked_block *block = mem_zeroed(1, sizeof *block);
    void *memory = mem_zeroed(1, (size_t)cache->memory_bytes + 1);
    for (uint32_t walk = 0; walk < N_WALKS && guard->err.kind == ERR_NONE; walk++) {
        uint32_t block_tokens = 1u << exercise_draw(rng, 0, 7);
        struct request request =
            exercise_exact_request(rng, walk, 64, 256, SEES_BLOCKS, block_tokens);
        memset(memory, 0, cache->memory_bytes);
        while (request.committed_tokens < request.output_tokens && guard->err.kind == ERR_NONE) {
            uint32_t fixed = request.block_length - request.masked_in_block;
            block->frontier = -1;
            memset(block->masked, 0, fixed);
            memset(block->masked + fixed, 1, request.masked_in_block);
            teach(guard, rng, memory, &request, request.masked_in_block, 0);
            while (request.masked_in_block > 0 && guard->err.kind == ERR_NONE) {
                walk_evicting_step(guard, rng, &request, block, memory, walk);
            }
            if (request.committed_tokens < request.output_tokens) {
                blocks_enter(&request, request.block + 1);
            }
        }
    }
    free(memory);
    free(block);
}

/* A request under a policy for models that see their canvas, to its end. */
static void walk_canvas(struct guard *guard, struct rng *rng, void *memory, uint32_t walk) {
    const struct cache_policy *cache = &guard->outer.cache;
    struct request request = exercise_request(rng, walk, 32768, 512);
    request.state = REQUEST_RUNNING;
    memset(memory, 0, cache->memory_bytes);
    while (request.state != REQUEST_DONE && guard->err.kind == ERR_NONE) {
        if (request.step_in_block == 0) {
            teach(guard, rng, memory, &request, request.masked_in_block, 0);
        }
        if (guard->facts.settles != BLOCK_WHOLE) {
            draw_positions(rng, guard->facts.settles, &request);
        }
        (void)cache_plan(cache, guard, memory, &request);
        uint32_t commits = walk_commits(rng, &request, walk);
        teach(guard, rng, memory, &request, request.masked_in_block, commits);
        advance(&request, commits);
    }
}

static void exercise_cache(struct guard *guard, struct rng *rng) {
    const struct cache_policy *cache = &guard->outer.cache;
    struct rng first = rng_stream(SEED, "facts");
    const struct request request = exercise_request(&first, 0, 4096, 512);
    guard_ask_facts(guard, &request);
    if (guard->facts.kind == ROW_EXACT) {
        walk_exact(guard, rng);
        if (cache->evict != NULL) {
            walk_evictions(guard, rng);
        }
        return;
    }
    void *memory = mem_zeroed(1, (size_t)cache->memory_bytes + 1);
    for (uint32_t walk = 0; walk < N_WALKS && guard->err.kind == ERR_NONE; walk++) {
        walk_canvas(guard, rng, memory, walk);
    }
    free(memory);
}

/* What a step says of the masked positions. */
struct exercise_step {
    uint32_t offset[EXERCISE_SLOTS];
    float confidence[EXERCISE_SLOTS], margin[EXERCISE_SLOTS], entropy[EXERCISE_SLOTS];
    uint8_t commit[EXERCISE_SLOTS];
};

/* Confidences spread, all alike, all hopeless, all certain. */
static float draw_confidence(struct rng *rng, uint32_t walk, uint32_t i) {
    switch (walk % 4) {
    case 0:
        return 0.001f + 0.998f * (float)rng_uniform(rng);
    case 1:
        return 0.5f;
    case 2:
        return 1e-6f * (float)(1 + i % 3);
    default:
        return 0.999999f;
    }
}

/* The positions that are left are some of the block's. */
static struct decode_seen draw_step(struct exercise_step *step, struct rng *rng, uint32_t walk,
                                    const struct request *request, bool statistics) {
    uint32_t n = request->masked_in_block, offset = request->block_length - n;
    for (uint32_t i = 0; i < n; i++) {
        step->offset[i] = i > 0 ? step->offset[i - 1] + 1 : 0;
        bool skips = offset > 0 && walk % 3 > 0 && rng_uniform(rng) < 0.3;
        step->offset[i] += skips;
        offset -= skips;
        step->confidence[i] = draw_confidence(rng, walk, i);
        step->margin[i] = step->confidence[i] * (float)rng_uniform(rng);
        step->entropy[i] = -4 * (1 - step->confidence[i]);
    }
    return (struct decode_seen){.n = n,
                                .first = request->block_start,
                                .offset = step->offset,
                                .confidence = step->confidence,
                                .margin = statistics ? step->margin : NULL,
                                .entropy = statistics ? step->entropy : NULL};
}

static uint32_t exercise_choice(struct guard *guard, struct rng *rng, uint32_t walk,
                                const struct request *request, struct exercise_step *step) {
    const struct decoder *decoder = &guard->outer.decoder;
    struct decode_seen seen = draw_step(step, rng, walk, request, decoder->reads_statistics != 0);
    if (decoder->choose != NULL) {
        return decoder->choose(guard, request, &seen, step->commit);
    }
    struct decode_rule rule = decoder_rule(decoder, guard, request);
    return guard->err.kind == ERR_NONE ? decode_choose(&rule, &seen, 1, step->commit) : 1;
}

static void exercise_decoder(struct guard *guard, struct rng *rng) {
    const struct decoder *decoder = &guard->outer.decoder;
    struct exercise_step step;
    if (decoder->credit != NULL) {
        struct decoder_credit credit;
        decoder->credit(guard, &credit);
    }
    for (uint32_t walk = 0; walk < N_WALKS + N_EXACT_WALKS && guard->err.kind == ERR_NONE; walk++) {
        struct request request = exercise_request(rng, walk, 4096, 512);
        request.state = REQUEST_RUNNING;
        if (walk >= N_WALKS) { /* blocks with prompt tokens among them */
            request.causal = SEES_BLOCKS;
            blocks_enter(&request, 0);
        }
        while (request.state != REQUEST_DONE && guard->err.kind == ERR_NONE) {
            uint32_t commits, repeat;
            if (decoder->count != NULL) {
                commits = decoder->count(guard, &request, &repeat);
                (void)decoder_rule(decoder, guard, &request);
            } else {
                commits = exercise_choice(guard, rng, walk, &request, &step);
            }
            advance(&request, commits);
        }
    }
}

static void exercise_router(struct guard *guard, struct rng *rng) {
    struct replica_view replicas[MAX_REPLICAS];
    for (uint32_t i = 0; i < N_ARRIVALS && guard->err.kind == ERR_NONE; i++) {
        uint32_t n = exercise_draw(rng, 1, MAX_REPLICAS);
        bool idle = i % 10 == 0;
        memset(replicas, 0, sizeof replicas);
        for (uint32_t j = 0; j < n && !idle; j++) {
            replicas[j].n_running = exercise_draw(rng, 0, 64);
            replicas[j].n_waiting = exercise_draw(rng, 0, 1000);
            replicas[j].kv_free_bytes =
                (int64_t)exercise_draw(rng, 0, 1000) * EXERCISE_KV_ROW_BYTES;
            replicas[j].outstanding_tokens = exercise_draw(rng, 0, 1000000);
            replicas[j].n_whole = exercise_draw(rng, 0, replicas[j].n_running);
        }
        struct request request = exercise_request(rng, i, 32768, 512);
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
        int status = param_set(policy->params, policy->n_params, state, policy->name, "variant",
                               param->name, text, err);
        ASSERT(status == 0);
        snprintf(exercise->variant, sizeof exercise->variant, "%s = %s", param->name, text);
    }
    struct guard *guard = &exercise->guard;
    guard_init(guard, policy, state, EXERCISE_SLOTS);
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
    exercise->n_preempted += guard->n_preempted;
    exercise->n_idle += guard->n_idle;
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
