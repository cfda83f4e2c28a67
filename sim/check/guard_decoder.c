/* The guard of decoders: those that count, name a rule, or choose. */
#include "sim/check/guard_parts.h"

#include <string.h>

static bool count_once(struct guard *guard, const struct request *request, uint32_t fill,
                       uint32_t *n, uint32_t *repeat) {
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    *repeat = fill;
    guard_enter(guard, "count");
    *n = ((const struct decoder *)guard->inner)->count(guard->inner_state, &lent, repeat);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, request) && guard_keeps_state(guard) &&
           guard_keeps(guard, PROMISE_COMMIT, *n >= 1 && *n <= request->masked_in_block,
                       "commits %u of %u masked positions", *n, request->masked_in_block);
}

static bool keeps_count(struct guard *guard, const struct request *request, uint32_t *n,
                        uint32_t *repeat) {
    uint32_t again, repeat_again, masked = request->masked_in_block;
    if (!count_once(guard, request, 0, n, repeat) ||
        !count_once(guard, request, UINT32_MAX, &again, &repeat_again) ||
        !guard_keeps(guard, PROMISE_COUNT_REPEAT, *repeat >= 1,
                     "says that its count holds for 0 steps, or leaves repeat unset") ||
        !guard_keeps(
            guard, PROMISE_REPEATABLE, *n == again && *repeat == repeat_again,
            "counts differently when asked the same again: %u for %u steps, then %u for %u", *n,
            *repeat, again, repeat_again)) {
        return false;
    }
    ASSERT(*n > 0);
    /* While as many as that are masked. */
    uint32_t steps = *repeat < masked / *n ? *repeat : masked / *n;
    const uint32_t after[] = {1, steps / 2, steps - 1};
    for (int i = 0; steps >= 2 && i < 3; i++) {
        struct request moved = guard_later(request, after[i], after[i] * *n);
        uint32_t then, then_repeat;
        if (!count_once(guard, &moved, 0, &then, &then_repeat) ||
            !guard_keeps(
                guard, PROMISE_COUNT_REPEAT, then == *n,
                "says that its count of %u holds for %u steps, but after %u steps it is %u", *n,
                *repeat, after[i], then)) {
            return false;
        }
    }
    return true;
}

uint32_t guarded_count(const void *state, const struct request *request, uint32_t *repeat) {
    struct guard *guard = (struct guard *)state;
    uint32_t n;
    if (guard->err.kind == ERR_NONE && keeps_count(guard, request, &n, repeat)) {
        return n;
    }
    *repeat = 1;
    return 1;
}

/* What the policy is lent of a step: copies of all that it may read. */
static struct decode_seen lend(struct guard_scratch *scratch, const struct decode_seen *seen) {
    const float *const values[N_SEEN_VALUES] = {seen->confidence, seen->margin, seen->entropy};
    memcpy(scratch->offset, seen->offset, seen->n * sizeof *seen->offset);
    for (int i = 0; i < N_SEEN_VALUES; i++) {
        if (values[i] != NULL) {
            memcpy(scratch->seen_values[i], values[i], seen->n * sizeof *values[i]);
        }
    }
    return (struct decode_seen){
        .n = seen->n,
        .first = seen->first,
        .offset = scratch->offset,
        .confidence = scratch->seen_values[0],
        .margin = seen->margin != NULL ? scratch->seen_values[1] : NULL,
        .entropy = seen->entropy != NULL ? scratch->seen_values[2] : NULL,
    };
}

static bool keeps_seen(struct guard *guard, const struct decode_seen *lent,
                       const struct decode_seen *copy, const struct decode_seen *seen) {
    static const char *const names[N_SEEN_VALUES] = {"confidences", "margins", "entropies"};
    const float *const values[N_SEEN_VALUES] = {seen->confidence, seen->margin, seen->entropy};
    if (!guard_keeps(guard, PROMISE_READS, memcmp(lent, copy, sizeof *lent) == 0,
                     "writes to what it is shown of a step, which it may only read") ||
        !guard_keeps(guard, PROMISE_READS,
                     memcmp(guard->scratch->offset, seen->offset, seen->n * sizeof *seen->offset) ==
                         0,
                     "writes to the offsets, which it may only read")) {
        return false;
    }
    for (int i = 0; i < N_SEEN_VALUES; i++) {
        if (values[i] != NULL &&
            !guard_keeps(
                guard, PROMISE_READS,
                memcmp(guard->scratch->seen_values[i], values[i], seen->n * sizeof *values[i]) == 0,
                "writes to the %s, which it may only read", names[i])) {
            return false;
        }
    }
    return true;
}

static bool choose_once(struct guard *guard, const struct request *request,
                        const struct decode_seen *seen, int asking, uint32_t *chosen) {
    struct guard_scratch *scratch = guard->scratch;
    uint8_t *commit = scratch->commit[asking];
    const uint32_t n = seen->n;
    struct request lent;
    struct decode_seen shown = lend(scratch, seen);
    const struct decode_seen copy = shown;
    memcpy(&lent, request, sizeof lent);
    memset(commit, FILL, n + MARGIN);
    guard_enter(guard, "choose");
    *chosen =
        ((const struct decoder *)guard->inner)->choose(guard->inner_state, &lent, &shown, commit);
    guard_leave(guard);
    if (!guard_keeps_request(guard, &lent, request) || !guard_keeps_state(guard) ||
        !keeps_seen(guard, &shown, &copy, seen)) {
        return false;
    }
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!guard_keeps(guard, PROMISE_FLAGS, commit[i] <= 1,
                         "leaves commit[%u] unset or sets it to %u, neither 0 nor 1", i,
                         commit[i])) {
            return false;
        }
        sum += commit[i];
    }
    uint32_t end = n;
    while (end < n + MARGIN && commit[end] == FILL) {
        end++;
    }
    return guard_keeps(guard, PROMISE_FLAGS, end == n + MARGIN,
                       "writes to commit[%u], beyond its %u entries", end, n) &&
           guard_keeps(guard, PROMISE_FLAGS, *chosen == sum, "returns %u but sets %u flags",
                       *chosen, sum) &&
           guard_keeps(guard, PROMISE_COMMIT, sum >= 1, "commits %u of %u masked positions", sum,
                       n);
}

uint32_t guarded_choose(const void *state, const struct request *request,
                        const struct decode_seen *seen, uint8_t *commit) {
    struct guard *guard = (struct guard *)state;
    struct guard_scratch *scratch = guard->scratch;
    const uint32_t n = seen->n;
    ASSERT(n >= 1 && n <= scratch->max_slots);
    uint32_t first, second;
    if (guard->err.kind == ERR_NONE && choose_once(guard, request, seen, 0, &first) &&
        choose_once(guard, request, seen, 1, &second) &&
        guard_keeps(guard, PROMISE_REPEATABLE,
                    memcmp(scratch->commit[0], scratch->commit[1], n) == 0,
                    "chooses differently when asked the same again: %u positions, then %u", first,
                    second)) {
        memcpy(commit, scratch->commit[0], n);
        return first;
    }
    memset(commit, 0, n);
    commit[0] = 1;
    return 1;
}

static bool rule_once(struct guard *guard, const struct request *request, struct decode_rule *out) {
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    memset(out, 0, sizeof *out);
    guard_enter(guard, "rule");
    ((const struct decoder *)guard->inner)->rule(guard->inner_state, &lent, out);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, request) && guard_keeps_state(guard);
}

static bool is_number(float x, float least, float most) {
    return x >= least && x <= most;
}

static bool keeps_rule(struct guard *guard, const struct decode_rule *rule) {
    const struct decoder *decoder = (const struct decoder *)guard->inner;
    bool counts = decoder->count != NULL;
    bool ranks_by_statistics = rule->rank == RANK_MARGIN || rule->rank == RANK_ENTROPY;
    return guard_keeps(guard, PROMISE_RULE, rule->kind < DECODE_KINDS && rule->rank < DECODE_RANKS,
                       "names rule %u by rank %u, of %d and %d", rule->kind, rule->rank,
                       DECODE_KINDS, DECODE_RANKS) &&
           guard_keeps(guard, PROMISE_RULE, (rule->kind == DECODE_COUNT) == counts,
                       counts ? "counts, but names a rule that does not"
                              : "names a rule that counts, but lacks the callback count") &&
           guard_keeps(guard, PROMISE_RULE, rule->kind == DECODE_COUNT || rule->temperature == 0,
                       "draws by temperature, but does not count") &&
           guard_keeps(guard, PROMISE_RULE,
                       rule->kind != DECODE_ENTROPY_BOUNDED || rule->rank == RANK_ENTROPY,
                       "bounds entropy, but ranks by another thing") &&
           guard_keeps(guard, PROMISE_RULE, !ranks_by_statistics || decoder->reads_statistics == 1,
                       "ranks by margin or entropy, but does not say that it reads them") &&
           guard_keeps(guard, PROMISE_RULE,
                       is_number(rule->threshold, -1e9f, 1e9f) && is_number(rule->slack, 0, 1e9f) &&
                           is_number(rule->low, -1e9f, 1e9f) && is_number(rule->factor, 0, 1e9f) &&
                           is_number(rule->bound, 0, 1e9f) && is_number(rule->temperature, 0, 1e9f),
                       "leaves a number of its rule unset, or out of range");
}

/* All numbers but threshold and key. */
static bool same_constants(const struct decode_rule *a, const struct decode_rule *b) {
    const float of_a[] = {a->slack, a->low, a->factor, a->bound, a->temperature};
    const float of_b[] = {b->slack, b->low, b->factor, b->bound, b->temperature};
    return a->kind == b->kind && a->rank == b->rank && memcmp(of_a, of_b, sizeof of_a) == 0;
}

void guarded_rule(const void *state, const struct request *request, struct decode_rule *out) {
    struct guard *guard = (struct guard *)state;
    struct decode_rule again, later;
    struct request moved = guard_later(request, 1, 0);
    if (guard->err.kind == ERR_NONE && rule_once(guard, request, out) && keeps_rule(guard, out) &&
        rule_once(guard, request, &again) &&
        guard_keeps(guard, PROMISE_REPEATABLE,
                    same_constants(out, &again) && out->threshold == again.threshold &&
                        out->key == again.key,
                    "names another rule when asked the same again") &&
        rule_once(guard, &moved, &later) &&
        guard_keeps(guard, PROMISE_RULE, same_constants(out, &later),
                    "changes more than threshold and key of its rule from step to step")) {
        return;
    }
    *out = (struct decode_rule){.kind = DECODE_COUNT};
}

void guarded_credit(const void *state, struct decoder_credit *out) {
    struct guard *guard = (struct guard *)state;
    memset(out, 0, sizeof *out);
    if (guard->err.kind == ERR_NONE) {
        guard_enter(guard, "credit");
        ((const struct decoder *)guard->inner)->credit(guard->inner_state, out);
        guard_leave(guard);
        (void)(guard_keeps_state(guard) &&
               guard_keeps(guard, PROMISE_RULE,
                           is_number(out->rule.alpha, 0, 1e9f) && is_number(out->rule.beta, 0, 1) &&
                               is_number(out->rule.gamma, 0, 1e9f) && out->matrix <= 1,
                           "gives credit with numbers out of range"));
    }
}
