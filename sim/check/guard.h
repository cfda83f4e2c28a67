/* A guard: a policy wrapped around another one that checks every promise at every call.
 *
 * `guard.outer` is a descriptor of the inner policy's kind; whoever is handed it, with the guard as
 * its state, calls the inner policy through the checks. The inner policy works on copies, so that
 * what it writes where it may only read does no harm. After the first broken promise `guard.err`
 * holds one sentence with the numbers; an empty batch, or the narrowest valid answer, is returned
 * then and whenever the guard is called again. A guard doubles the cost of a call or more: it is
 * for tests and check-plugin. */
#ifndef UNMASK_SIM_CHECK_GUARD_H
#define UNMASK_SIM_CHECK_GUARD_H

#include "sim/check/any_policy.h"

enum promise {
    PROMISE_READS,      /* what is const stays as it was */
    PROMISE_REPEATABLE, /* same state and same question, same answer */
    /* Schedulers. */
    PROMISE_LIST,
    PROMISE_OWNED,
    PROMISE_TOKENS,
    PROMISE_REQUESTS,
    PROMISE_KV,
    PROMISE_CHUNK,
    PROMISE_PREEMPT,
    PROMISE_HOLD,
    PROMISE_PROGRESS,
    PROMISE_ESTIMATE,
    /* Cache policies. */
    PROMISE_SPAN,
    PROMISE_SPAN_REPEAT,
    PROMISE_ROWS,
    PROMISE_EVICT,
    /* Decoders. */
    PROMISE_COMMIT,
    PROMISE_COUNT_REPEAT,
    PROMISE_FLAGS,
    PROMISE_RULE,
    /* Routers. */
    PROMISE_INDEX,
    PROMISE_COUNT
};

/* The promise in words, and whether policies of `kind` make it. */
const char *promise_text(enum promise promise);
bool promise_concerns(enum promise promise, enum policy_kind kind);

enum {
    /* Empty batches in a row while something could run, after which time passes ever faster until
     * a week is over: who paces a queue may ask to be woken every millisecond, and waits for
     * something. */
    GUARD_MANY_POSTPONED = 1000,
    GUARD_CALLBACK_CHARS = 16,
};
#define GUARD_LONGEST_WAIT_NS (INT64_C(7) * 24 * 3600 * 1000000000)

struct guard_scratch; /* the copies, see guard.c */

struct guard {
    union any_policy outer;
    const struct policy *inner;
    void *inner_state; /* borrowed */
    struct guard_scratch *scratch;

    /* Read from another process while a call is under way. */
    char callback[GUARD_CALLBACK_CHARS]; /* being executed, else "" */
    volatile uint64_t n_calls;           /* of the inner policy */

    uint64_t n_checked[PROMISE_COUNT];
    enum promise broken; /* when err.kind is not ERR_NONE */
    struct err err;
    uint32_t n_postponed;
    int64_t postponed_since_ns; /* of the world's clock */
    struct row_sets facts; /* a cache policy's last answer: what it has to `recent` never changes */
    bool has_facts, keeps_all, keeps_some; /* of a canvas, in some answer */
    uint64_t n_preempted, n_idle;          /* requests, over all decisions */
};

/* `max_slots` bounds slots, batch capacities, block lengths and replicas. `inner` and its state
 * are borrowed until guard_fini. */
void guard_init(struct guard *guard, const struct policy *inner, void *inner_state,
                uint32_t max_slots);
void guard_fini(struct guard *guard);

/* Asks a cache policy once, unchecked, for guard->facts. */
void guard_ask_facts(struct guard *guard, const struct request *request);

#endif
