#include "sim/check/guard_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/cache/blocks.h"
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
    snprintf(guard->callback, sizeof guard->callback, "%s", callback);
}

void guard_leave(struct guard *guard) {
    guard->callback[0] = '\0';
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
