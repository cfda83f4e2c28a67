#include "sim/check/guard.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/check/guard_parts.h"

void guard_init(struct guard *guard, const struct policy *inner, void *inner_state,
                uint32_t max_slots) {
    struct guard_scratch *scratch = mem_zeroed(1, sizeof *scratch);
    memset(guard, 0, sizeof *guard);
    guard->inner = inner;
    guard->inner_state = inner_state;
    guard->scratch = scratch;
    scratch->max_slots = max_slots;
    scratch->requests = mem_zeroed(max_slots, sizeof *scratch->requests);
    scratch->running = mem_zeroed(max_slots, sizeof(uint32_t));
    scratch->waiting = mem_zeroed(max_slots, sizeof(uint32_t));
    scratch->owner = mem_zeroed(max_slots, 1);
    scratch->seen = mem_zeroed(max_slots, sizeof(uint64_t));
    scratch->replicas = mem_zeroed(max_slots, sizeof *scratch->replicas);
    scratch->offset = mem_zeroed(max_slots, sizeof(uint32_t));
    for (int i = 0; i < N_SEEN_VALUES; i++) {
        scratch->seen_values[i] = mem_zeroed(max_slots, sizeof(float));
    }
    for (int i = 0; i < 2; i++) {
        for (int list = 0; list < N_BATCH_LISTS; list++) {
            scratch->lists[i][list] = mem_zeroed((size_t)max_slots + MARGIN, sizeof(uint32_t));
        }
        scratch->commit[i] = mem_zeroed((size_t)max_slots + MARGIN, 1);
    }
    for (int i = 0; i < N_BLOCK_FLAGS; i++) {
        scratch->flags[i] = mem_zeroed(max_slots, 1);
    }
    scratch->state = mem_zeroed(inner->state_bytes, 1);
    memcpy(scratch->state, inner_state, inner->state_bytes);
    switch ((enum policy_kind)inner->kind) {
    case POLICY_SCHEDULER:
        guard->outer.scheduler = *(const struct scheduler *)inner;
        guard->outer.scheduler.schedule = guarded_schedule;
        scratch->own = mem_zeroed(max_slots + 1, guard->outer.scheduler.request_bytes + MARGIN);
        break;
    case POLICY_CACHE: {
        struct cache_policy *outer = &guard->outer.cache;
        *outer = *(const struct cache_policy *)inner;
        scratch->memory[0] = mem_zeroed((size_t)outer->memory_bytes + MARGIN, 1);
        scratch->memory[1] = mem_zeroed((size_t)outer->memory_bytes + MARGIN, 1);
        outer->plan = guarded_plan;
        outer->evict = outer->evict != NULL ? guarded_evict : NULL;
        outer->learn = outer->learn != NULL ? guarded_learn : NULL;
        break;
    }
    case POLICY_DECODER:
        guard->outer.decoder = *(const struct decoder *)inner;
        guard->outer.decoder.count = guard->outer.decoder.count != NULL ? guarded_count : NULL;
        guard->outer.decoder.choose = guard->outer.decoder.choose != NULL ? guarded_choose : NULL;
        guard->outer.decoder.rule = guard->outer.decoder.rule != NULL ? guarded_rule : NULL;
        guard->outer.decoder.credit = guard->outer.decoder.credit != NULL ? guarded_credit : NULL;
        break;
    case POLICY_ROUTER:
        guard->outer.router = *(const struct router *)inner;
        guard->outer.router.route = guarded_route;
        break;
    }
}

void guard_fini(struct guard *guard) {
    struct guard_scratch *scratch = guard->scratch;
    free(scratch->requests);
    free(scratch->running);
    free(scratch->waiting);
    free(scratch->owner);
    free(scratch->seen);
    free(scratch->replicas);
    free(scratch->offset);
    for (int i = 0; i < N_SEEN_VALUES; i++) {
        free(scratch->seen_values[i]);
    }
    for (int i = 0; i < 2; i++) {
        for (int list = 0; list < N_BATCH_LISTS; list++) {
            free(scratch->lists[i][list]);
        }
        free(scratch->commit[i]);
        free(scratch->memory[i]);
    }
    for (int i = 0; i < N_BLOCK_FLAGS; i++) {
        free(scratch->flags[i]);
    }
    free(scratch->state);
    free(scratch->own);
    free(scratch);
    guard->scratch = NULL;
}
