/* Twins of the decoders' rules and of credit. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/rules/keyed.h"

/* The rows of one request, and what they are compared by. */
struct deciding {
    const struct call_decode *call;
    int32_t request, begin, end;
};

static bool candidate(const struct call_decode *call, int64_t row) {
    return !call->canvas || call->canvas[call->position[row]] == call->mask_token;
}

/* The position of a row in its request's canvas. */
static uint64_t place(const struct deciding *d, int32_t row) {
    const struct call_decode *call = d->call;
    return (uint64_t)(call->position ? call->position[row] - call->canvas_start[d->request] : row);
}

static float value(const struct deciding *d, int32_t row) {
    const struct call_decode *call = d->call;
    switch (call->rank) {
    case KERNEL_RANK_CONFIDENCE:
        return call->confidence[row];
    case KERNEL_RANK_MARGIN:
        return call->margin[row];
    case KERNEL_RANK_ENTROPY:
        return call->entropy[row];
    case KERNEL_RANK_ORDER:
        return 0;
    case KERNEL_RANK_DRAW:
        return keyed_draw(call->key[d->request], place(d, row));
    }
    return 0;
}

static float rank(const struct deciding *d, int32_t row) {
    const struct call_decode *call = d->call;
    const float plain = value(d, row);
    return call->temperature > 0
               ? keyed_noised(plain, call->temperature, call->key[d->request], place(d, row))
               : plain;
}

/* Candidates of the rows first .. end that are taken before this one. */
static int32_t n_before(const struct deciding *d, int32_t first, int32_t end, int32_t row) {
    const float mine = rank(d, row);
    int32_t n = 0;
    for (int32_t other = first; other < end; other++) {
        const float its = rank(d, other);
        n += candidate(d->call, other) && (its > mine || (its == mine && other < row));
    }
    return n;
}

/* The candidate that comes after row `last` in order of rank, the first one after -1; -1: none. */
static int32_t next_row(const struct deciding *d, int32_t last) {
    int32_t next = -1;
    for (int32_t row = d->begin; row < d->end; row++) {
        const float mine = rank(d, row), its = last < 0 ? mine : rank(d, last);
        const bool after = last < 0 || mine < its || (mine == its && row > last);
        if (candidate(d->call, row) && after && (next < 0 || mine > rank(d, next))) {
            next = row;
        }
    }
    return next;
}

static bool are_numbers(const struct deciding *d) {
    for (int32_t row = d->begin; row < d->end; row++) {
        if (candidate(d->call, row) && (isnan(d->call->confidence[row]) || isnan(rank(d, row)))) {
            return false;
        }
    }
    return true;
}

/* How many are committed in order of their rank; of thresholds, those at or above it. */
static int32_t n_in_order(const struct deciding *d) {
    const struct call_decode *call = d->call;
    if (call->rule == KERNEL_TAKE) {
        return call->take[d->request];
    }
    const int32_t first = next_row(d, -1);
    int32_t n = 0;
    float sum = 0;
    for (int32_t row = first; row >= 0; row = next_row(d, row)) {
        const float mine = rank(d, row);
        bool goes = n == 0;
        if (call->rule == KERNEL_THRESHOLD) {
            goes = goes || mine >= call->threshold[d->request] ||
                   (call->slack > 0 && mine >= rank(d, first) - call->slack);
        } else if (call->rule == KERNEL_FACTOR) {
            goes = goes || mine >= 1.0f - call->factor / (float)(n + 2);
        } else {
            sum -= mine;
            goes = goes || sum < call->bound;
        }
        if (!goes) {
            return n;
        }
        n++;
    }
    return n;
}

static bool neighbours(const struct call_decode *call, int32_t row) {
    return candidate(call, row) && candidate(call, row + 1) &&
           (!call->position || call->position[row + 1] == call->position[row] + 1);
}

static bool of_runs(const struct deciding *d, int32_t row) {
    const struct call_decode *call = d->call;
    int32_t first = row, end = row + 1;
    while (first > d->begin && neighbours(call, first - 1)) {
        first--;
    }
    while (end < d->end && neighbours(call, end - 1)) {
        end++;
    }
    const float mine = rank(d, row);
    return mine > call->threshold[d->request] || n_before(d, d->begin, d->end, row) == 0 ||
           (mine > call->low && n_before(d, first, end, row) == 0);
}

static int32_t decide(const struct deciding *d) {
    const struct call_decode *call = d->call;
    const bool in_runs = call->rule == KERNEL_HIERARCHICAL;
    const int32_t n_taken = in_runs ? 0 : n_in_order(d);
    int32_t n_committed = 0;
    for (int32_t row = d->begin; row < d->end; row++) {
        call->committed[row] =
            candidate(call, row) &&
            (in_runs ? of_runs(d, row) : n_before(d, d->begin, d->end, row) < n_taken);
        n_committed += call->committed[row];
    }
    for (int32_t row = d->begin; call->canvas && row < d->end; row++) { /* all are chosen by now */
        if (call->committed[row]) {
            call->canvas[call->position[row]] = call->token[row];
        }
    }
    return n_committed;
}

void ref_decode(const struct call_decode *call) {
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int32_t begin = call->first_row[r], end = begin + call->n_rows[r];
        const struct deciding d = {call, r, begin, end};
        int32_t n_committed = DECODE_NOT_NUMBERS;
        if (are_numbers(&d)) {
            n_committed = decide(&d);
        } else {
            for (int32_t row = begin; row < end; row++) {
                call->committed[row] = 0;
            }
        }
        if (call->n_committed) {
            call->n_committed[r] = n_committed;
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

void ref_credit(const struct call_credit *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        const bool masked = !call->canvas || call->canvas[call->position[row]] == call->mask_token;
        if (call->lists[row] < 0 || !masked || isnan(call->confidence[row])) {
            continue;
        }
        int32_t *list = call->state + (int64_t)call->lists[row] * (2 * call->n_slots + 2);
        int32_t *tokens = list + 2;
        float *earned = (float *)(void *)(tokens + call->n_slots);
        for (int32_t e = 0; e < list[0]; e++) {
            earned[e] *= call->beta;
        }
        const double p = (double)call->confidence[row];
        const int64_t first = row * call->n_vocab;
        const double top = ref_load(call->logits, call->dtype, first + call->token[row]);
        const int32_t mine = entry_of(tokens, earned, &list[0], call->n_slots, call->token[row]);
        earned[mine] += (float)pow(p, (double)call->gamma);
        /* Relative to the logit that was the largest: what all exponentials add up to, and what
         * credit adds to it. */
        double sum = 1 / p, best = 0;
        int32_t token = call->token[row];
        for (int32_t e = 0; e < list[0]; e++) {
            const double x = ref_load(call->logits, call->dtype, first + tokens[e]) - top;
            const double raised = x + (double)call->alpha * log1p((double)earned[e]);
            sum += exp(raised) - exp(x);
            if (e == 0 || raised > best || (raised == best && tokens[e] < token)) {
                best = raised;
                token = tokens[e];
            }
        }
        call->token[row] = token;
        call->confidence[row] = (float)(exp(best) / sum);
    }
}
