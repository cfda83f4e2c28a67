#include "sim/check/guard.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/cache/blocks.h"
#include "sim/check/guard_parts.h"
#include "sim/policy/registry.h"

static const struct {
    uint32_t kinds; /* 1 << enum policy_kind */
    const char *text;
} promises[PROMISE_COUNT] = {
#define ONLY(kind) (1u << (kind))
#define ANY                                                                                        \
    (ONLY(POLICY_SCHEDULER) | ONLY(POLICY_CACHE) | ONLY(POLICY_DECODER) | ONLY(POLICY_ROUTER))
    [PROMISE_READS] = {ANY, "never writes to what it may only read"},
    [PROMISE_REPEATABLE] = {ANY, "gives the same answer to the same question"},
    [PROMISE_LIST] = {ONLY(POLICY_SCHEDULER), "keeps its list within bounds and its counts true"},
    [PROMISE_OWNED] = {ONLY(POLICY_SCHEDULER), "lists running and waiting requests, none twice"},
    [PROMISE_TOKENS] = {ONLY(POLICY_SCHEDULER), "stays within max_batched_tokens"},
    [PROMISE_REQUESTS] = {ONLY(POLICY_SCHEDULER), "stays within max_requests"},
    [PROMISE_KV] = {ONLY(POLICY_SCHEDULER),
                    "admits and lets grow only what fits into the free KV memory"},
    [PROMISE_CHUNK] = {ONLY(POLICY_SCHEDULER), "takes chunks of prefills alone, in whole blocks"},
    [PROMISE_PREEMPT] = {ONLY(POLICY_SCHEDULER), "preempts only where it says that requests grow"},
    [PROMISE_HOLD] = {ONLY(POLICY_SCHEDULER), "names a known hold"},
    [PROMISE_PROGRESS] = {ONLY(POLICY_SCHEDULER),
                          "selects something or names a later time when something could run"},
    [PROMISE_ESTIMATE] = {ONLY(POLICY_SCHEDULER), "asks for estimates of valid batches only"},
    [PROMISE_SPAN] = {ONLY(POLICY_CACHE), "answers with row sets that fit the request"},
    [PROMISE_SPAN_REPEAT] = {ONLY(POLICY_CACHE), "keeps its row sets for as many steps as it says"},
    [PROMISE_ROWS] = {ONLY(POLICY_CACHE),
                      "holds enough rows, reads what is kept, and keeps it in its place"},
    [PROMISE_EVICT] = {ONLY(POLICY_CACHE),
                       "evicts masked positions alone, and leaves one to commit"},
    [PROMISE_COMMIT] = {ONLY(POLICY_DECODER), "commits at least one masked position, at most all"},
    [PROMISE_COUNT_REPEAT] = {ONLY(POLICY_DECODER), "keeps a count for as many steps as it says"},
    [PROMISE_FLAGS] = {ONLY(POLICY_DECODER), "sets every flag to 0 or 1 and returns their sum"},
    [PROMISE_RULE] = {ONLY(POLICY_DECODER), "names a rule that there is, with numbers in range"},
    [PROMISE_INDEX] = {ONLY(POLICY_ROUTER), "chooses a replica that exists"},
#undef ANY
#undef ONLY
};

const char *promise_text(enum promise promise) {
    return promises[promise].text;
}

bool promise_concerns(enum promise promise, enum policy_kind kind) {
    return (promises[promise].kinds >> kind & 1u) != 0;
}

bool guard_keeps(struct guard *guard, enum promise promise, bool kept, const char *format, ...) {
    guard->n_checked[promise]++;
    if (!kept && guard->err.kind == ERR_NONE) {
        char text[512];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        guard->broken = promise;
        err_world(&guard->err, "%s %s %s", policy_kind_names[guard->inner->kind],
                  guard->inner->name, text);
    }
    return kept;
}

void guard_enter(struct guard *guard, const char *callback) {
    guard->n_calls++;
    guard->callback = callback;
}

void guard_leave(struct guard *guard) {
    guard->callback = NULL;
}

bool guard_keeps_state(struct guard *guard) {
    return guard_keeps(
        guard, PROMISE_READS,
        memcmp(guard->inner_state, guard->scratch->state, guard->inner->state_bytes) == 0,
        "writes to its state, which this callback may only read");
}

bool guard_keeps_request(struct guard *guard, const struct request *given,
                         const struct request *original) {
    return guard_keeps(guard, PROMISE_READS, memcmp(given, original, sizeof *given) == 0,
                       "writes to request %llu, which it may only read",
                       (unsigned long long)original->id);
}

struct request guard_later(const struct request *request, uint32_t steps, uint32_t commits) {
    struct request copy;
    memcpy(&copy, request, sizeof copy);
    copy.steps += steps;
    copy.step_in_block += steps;
    copy.passes_in_block += steps;
    blocks_commit(&copy, commits);
    return copy;
}

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
    free(scratch);
    guard->scratch = NULL;
}
