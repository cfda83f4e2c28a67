/* Reference implementations of the decoders' rules and of credit. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/rules/credit.h"
#include "kernels/rules/decide.h"
#include "kernels/rules/place.h"

/* The rows of one request. */
struct deciding {
    const struct call_decode *call;
    struct decode_rule rule;
    int32_t request, begin;
};

static bool candidate(const void *of, uint32_t i) {
    const struct deciding *d = of;
    const struct call_decode *call = d->call;
    return !call->canvas || call->canvas[call->position[d->begin + i]] == call->mask_token;
}

static bool follows(const void *of, uint32_t i) {
    const struct deciding *d = of;
    const int64_t *position = d->call->position;
    return !position || position[d->begin + i + 1] == position[d->begin + i] + 1;
}

static float value_of(const struct deciding *d, uint32_t i) {
    const struct call_decode *call = d->call;
    const int32_t row = d->begin + (int32_t)i;
    uint64_t position = 0; /* in the request's canvas */
    if (decide_draws(d->rule.rank, d->rule.temperature)) {
        position =
            (uint64_t)(call->position ? call->position[row] - call->canvas_start[d->request] : row);
    }
    return decide_rank(d->rule.rank, d->rule.temperature, call->confidence, call->margin,
                       call->entropy, row, d->rule.key, position);
}

static float rank_of(const void *of, uint32_t i) {
    const struct deciding *d = of;
    const struct call_decode *call = d->call;
    const float value = value_of(d, i);
    return call->canvas ? decide_place(value, call->token[d->begin + i], call->mask_token) : value;
}

static bool are_numbers(const struct decide_rows *rows, const float *confidence) {
    const struct deciding *d = rows->of;
    for (uint32_t i = 0; i < rows->n; i++) {
        if ((rows->candidate(rows->of, i) || d->rule.kind == DECODE_JOINT) &&
            (isnan(confidence[i]) || isnan(value_of(d, i)))) {
            return false;
        }
    }
    return true;
}

static struct decode_rule rule_of(const struct call_decode *call, int32_t r) {
    const bool thresholds = call->rule == DECODE_THRESHOLD || call->rule == DECODE_HIERARCHICAL ||
                            call->rule == DECODE_JOINT;
    return (struct decode_rule){
        .kind = call->rule,
        .rank = call->rank,
        .threshold = thresholds ? call->threshold[r] : 0,
        .slack = call->slack,
        .low = call->low,
        .factor = call->factor,
        .bound = call->bound,
        .temperature = call->temperature,
        .key = decide_draws(call->rank, call->temperature) ? call->key[r] : 0,
    };
}

/* DECODE_JOINT, before the tokens of rows that were committed are written. */
static void revise(const struct deciding *d, uint32_t n) {
    const struct call_decode *call = d->call;
    for (uint32_t i = 0; i < n; i++) {
        const int32_t row = d->begin + (int32_t)i;
        if (!candidate(d, i) &&
            decide_revises(call->edit, call->confidence[row], call->token[row],
                           call->canvas[call->position[row]], call->mask_token)) {
            call->committed[row] = DECIDE_REVISE;
        }
    }
}

void ref_decode(const struct call_decode *call) {
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int32_t begin = call->first_row[r], end = begin + call->n_rows[r];
        const struct deciding d = {call, rule_of(call, r), r, begin};
        const struct decide_rows rows = {&d, (uint32_t)(end - begin), rank_of, candidate, follows};
        const bool counts =
            call->rule == DECODE_COUNT || (call->rule == DECODE_JOINT && call->take);
        const int32_t take = counts ? call->take[r] : 0;
        int32_t n_committed = DECODE_NOT_NUMBERS;
        memset(call->committed + begin, 0, rows.n);
        if (are_numbers(&rows, call->confidence + begin)) {
            n_committed = (int32_t)decide_commits(&d.rule, &rows, take > 0 ? (uint32_t)take : 0,
                                                  call->committed + begin);
            if (call->rule == DECODE_JOINT) {
                revise(&d, rows.n);
            }
        }
        for (int32_t row = begin; call->canvas && row < end; row++) {
            if (call->committed[row]) {
                call->canvas[call->position[row]] = call->token[row];
            }
        }
        if (call->n_committed) {
            call->n_committed[r] = n_committed;
        }
    }
}

void ref_penalise(const struct call_penalise *call) {
    for (int64_t i = 0; i < call->n_rows; i++) {
        const int64_t row = call->first_row + i;
        const bool follows = row > 0 && call->position[row] == call->position[row - 1] + 1;
        const int32_t token =
            follows ? call->canvas[call->position[row - 1]] - call->first_token : -1;
        if (token >= 0 && token < call->n_vocab) {
            const int64_t at = i * call->n_vocab + token;
            const double logit = ref_load(call->logits, call->dtype, at);
            ref_store(call->logits, call->dtype, at, logit - (double)call->penalty);
        }
    }
}

/* The entry of a token in a list of n, a new one with nothing where it has none. */
static int32_t entry_of(int32_t *tokens, float *earned, int32_t *n, int32_t n_slots,
                        int32_t token) {
    int32_t least = 0;
    for (int32_t e = 0; e < *n; e++) {
        if (tokens[e] == token) {
            return e;
        }
        least = earned[e] < earned[least] ? e : least;
    }
    const int32_t entry = *n < n_slots ? (*n)++ : least;
    tokens[entry] = token;
    earned[entry] = 0;
    return entry;
}

/* What a pass earns. */
static void earn(const struct call_credit *call, int64_t row, int32_t *list) {
    int32_t *tokens = list + 2;
    float *earned = (float *)(void *)(tokens + call->n_slots);
    for (int32_t e = 0; e < list[0]; e++) {
        earned[e] = credit_faded(earned[e], call->beta);
    }
    const int32_t mine = entry_of(tokens, earned, &list[0], call->n_slots, call->token[row]);
    earned[mine] = credit_earned(earned[mine], call->confidence[row], call->gamma);
}

/* The logit of an entry's token; 0 where it is another rank's. */
static double entry_logit(const struct call_credit *call, int64_t row, const int32_t *list,
                          int32_t e) {
    if (call->part == KERNEL_CREDIT_DECIDE) {
        return (double)call->entries[row * call->n_slots + e];
    }
    const int32_t token = list[2 + e] - call->first_token;
    return token >= 0 && token < call->n_vocab
               ? ref_load(call->logits, call->dtype, row * call->n_vocab + token)
               : 0;
}

/* Relative to the logit that was the largest: what all exponentials add up to, and what credit adds
 * to it. */
static void decide(const struct call_credit *call, int64_t row, const int32_t *list) {
    const int32_t *tokens = list + 2;
    const float *earned = (const float *)(const void *)(tokens + call->n_slots);
    int32_t first = 0, token = call->token[row];
    while (tokens[first] != token) {
        first++;
    }
    const double top = entry_logit(call, row, list, first);
    double sum = 1 / (double)call->confidence[row], best = 0;
    for (int32_t e = 0; e < list[0]; e++) {
        const double x = entry_logit(call, row, list, e) - top;
        const double raised = x + credit_bonus(earned[e], call->alpha);
        sum += exp(raised) - exp(x);
        if (e == 0 || raised > best || (raised == best && tokens[e] < token)) {
            best = raised;
            token = tokens[e];
        }
    }
    call->token[row] = token;
    call->confidence[row] = (float)(exp(best) / sum);
}

void ref_credit(const struct call_credit *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        const bool masked = !call->canvas || call->canvas[call->position[row]] == call->mask_token;
        const bool is_counted = call->lists[row] >= 0 && masked && !isnan(call->confidence[row]);
        int32_t *list =
            is_counted ? call->state + (int64_t)call->lists[row] * (2 * call->n_slots + 2) : NULL;
        if (is_counted && call->part != KERNEL_CREDIT_DECIDE) {
            earn(call, row, list);
        }
        for (int32_t e = 0; call->part == KERNEL_CREDIT_EARN && e < call->n_slots; e++) {
            const bool is_entry = is_counted && e < list[0];
            call->entries[row * call->n_slots + e] =
                is_entry ? (float)entry_logit(call, row, list, e) : 0;
        }
        if (is_counted && call->part != KERNEL_CREDIT_EARN) {
            decide(call, row, list);
        }
    }
}
