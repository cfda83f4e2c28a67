#include "sim/policy/scheduler/concurrency.h"

#include <math.h>

enum { PASSES_SEEN = 128 };

static const uint32_t tried[CONCURRENCY_TRIED] = {1,  2,  3,  4,  5,  6,  7,  8,  10,  12,  14,
                                                  16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256};

static const double weight_of_new = 0.1; /* in the average over requests */
static const double share_of_running = 0.1;
static const double near_least = 0.1; /* full passes: share that a token may cost more */

/* ---- how many ---- */

/* A step of `full` passes like one and `narrow` ones like the other. */
static double step_ns(const struct schedule_view *view, const struct span *full, uint32_t n_full,
                      const struct span *narrow, uint32_t n_narrow) {
    const struct span *spans[CONCURRENCY_MOST];
    for (uint32_t i = 0; i < n_full + n_narrow; i++) {
        spans[i] = i < n_full ? full : narrow;
    }
    return (double)view->estimate_spans_ns(view->estimator, spans, n_full + n_narrow);
}

/* What a request's passes come to: its usual full and narrow ones, and the share of the former. */
struct mixture {
    const struct span *full, *narrow;
    double share;
};

static struct mixture mixture_of(const struct pass_ahead *passes, uint32_t n) {
    struct mixture mixture = {0};
    uint64_t steps = 0, full_steps = 0;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        steps += passes[i].steps;
        if (is_full_pass(&passes[i].span)) {
            full_steps += passes[i].steps;
            mixture.full = &passes[i].span;
        } else if (passes[i].steps >= longest) {
            longest = passes[i].steps;
            mixture.narrow = &passes[i].span;
        }
    }
    mixture.narrow = mixture.narrow != NULL ? mixture.narrow : mixture.full;
    mixture.full = mixture.full != NULL ? mixture.full : mixture.narrow;
    mixture.share = steps > 0 ? (double)full_steps / (double)steps : 0;
    return mixture;
}

static void price(struct concurrency *c, const struct schedule_view *view, uint32_t slot) {
    struct pass_ahead passes[PASSES_SEEN];
    struct outlook outlook;
    view->foresee(view->estimator, slot, passes, PASSES_SEEN, &outlook);
    uint32_t n = outlook.n_passes < PASSES_SEEN ? outlook.n_passes : PASSES_SEEN;
    struct mixture mixture = mixture_of(passes, n);
    for (int i = 0; mixture.full != NULL && i < CONCURRENCY_TRIED; i++) {
        uint32_t together = tried[i], full = (uint32_t)(together * mixture.share);
        double more = together * mixture.share - full; /* the share of steps with one full more */
        double ns = step_ns(view, mixture.full, full, mixture.narrow, together - full);
        if (more > 0 && full < together) {
            ns += more *
                  (step_ns(view, mixture.full, full + 1, mixture.narrow, together - full - 1) - ns);
        }
        double *cost_ns = &c->cost_ns[i];
        *cost_ns += (c->priced > 0 ? weight_of_new : 1) * (ns / together - *cost_ns);
    }
    c->share_full = mixture.share;
    c->priced = view->requests[slot].id + 1;
}

/* The number of narrow passes in a step comes and goes, over the edges of tiles too. */
static double smoothed_ns(const struct concurrency *c, int i) {
    double before_ns = c->cost_ns[i > 0 ? i - 1 : i];
    double behind_ns = c->cost_ns[i + 1 < CONCURRENCY_TRIED ? i + 1 : i];
    return (before_ns + 2 * c->cost_ns[i] + behind_ns) / 4;
}

uint32_t concurrency_best(struct concurrency *c, const struct schedule_view *view) {
    double there = (double)view->n_running + view->n_waiting, least = 0;
    int best = 0;
    if (view->n_waiting > 0 && c->priced != view->requests[view->waiting[0]].id + 1) {
        price(c, view, view->waiting[0]);
    }
    for (int i = 0; i < CONCURRENCY_TRIED; i++) {
        double until_done = smoothed_ns(c, i) * (there + share_of_running * tried[i]);
        if (i == 0 || until_done < least) {
            least = until_done;
            best = i;
        }
    }
    c->step_ns = c->cost_ns[best] * tried[best];
    return tried[best];
}

/* ---- which of them ---- */

/* What a step has taken, and what is left. */
struct taken {
    const struct schedule_view *view;
    bool is_in[2 * CONCURRENCY_RANKED]; /* by candidate */
    const struct span *spans[CONCURRENCY_MOST];
    uint32_t n, n_admitted;
    int64_t tokens, kv_bytes; /* left */
    bool is_closed;           /* one that waits did not fit: none after it is admitted */
    bool is_put_off;          /* one that runs has to wait for a later step */
};

static const struct span *span_of(const struct taken *taken, const struct candidate *candidate) {
    return &taken->view->requests[candidate->slot].span;
}

/* Takes the candidate if it fits. */
static bool take(struct taken *taken, const struct candidate *candidates, uint32_t i) {
    const struct candidate *candidate = &candidates[i];
    const struct schedule_view *view = taken->view;
    const struct request *request = &view->requests[candidate->slot];
    bool fits = request->span.queries <= taken->tokens;
    if (candidate->waits) {
        fits = fits && !taken->is_closed && request->kv_bytes <= taken->kv_bytes &&
               view->n_running + taken->n_admitted < view->max_requests;
        taken->is_closed = !fits;
    }
    if (!fits) {
        taken->is_put_off = taken->is_put_off || !candidate->waits;
        return false;
    }
    taken->is_in[i] = true;
    taken->spans[taken->n++] = &request->span;
    taken->tokens -= request->span.queries;
    taken->kv_bytes -= candidate->waits ? request->kv_bytes : 0;
    taken->n_admitted += candidate->waits;
    return true;
}

/* How many of the last `n` spans, full passes, to take with the others: as many as bring a token of
 * theirs to about the least. */
static uint32_t count_paying(const struct taken *trial, uint32_t n) {
    const struct schedule_view *view = trial->view;
    uint32_t n_beside = trial->n - n, pay = n;
    double token_ns[CONCURRENCY_MOST] = {0}, least_ns = 0, tokens = 0;
    double beside_ns = (double)view->estimate_spans_ns(view->estimator, trial->spans, n_beside);
    for (uint32_t k = 0; k < n; k++) {
        tokens += trial->spans[n_beside + k]->queries;
        token_ns[k] =
            ((double)view->estimate_spans_ns(view->estimator, trial->spans, n_beside + k + 1) -
             beside_ns) /
            tokens;
        least_ns = k == 0 || token_ns[k] < least_ns ? token_ns[k] : least_ns;
    }
    while (pay > 1 && token_ns[pay - 1] > (1 + near_least) * least_ns) {
        pay--;
    }
    return pay;
}

/* Full passes, in order; those that it does not pay to take now go into a later step. */
static void take_full(struct taken *taken, const struct candidate *candidates, uint32_t n,
                      uint32_t most, double share_full) {
    uint32_t order[CONCURRENCY_MOST], found = 0;
    struct taken trial = *taken;
    for (uint32_t i = 0; i < n && trial.n < most; i++) {
        if (!trial.is_in[i] && take(&trial, candidates, i)) {
            order[found++] = i;
        }
    }
    uint32_t pay = found > 1 ? count_paying(&trial, found) : found;
    /* As many as come to be due in a step, at any rate. */
    uint32_t due = (uint32_t)ceil(share_full * trial.n);
    pay = pay > due ? pay : due < found ? due : found;
    for (uint32_t k = 0; k < pay; k++) {
        (void)take(taken, candidates, order[k]);
    }
    taken->is_put_off = trial.is_put_off || pay < found;
}

/* The spans of what is taken; after the first `*n_kept`, those that may be put off, with their
 * candidates in `last`: narrow passes of running requests, except the first one taken. */
static uint32_t split(const struct taken *taken, const struct candidate *candidates, uint32_t n,
                      const struct span **spans, uint32_t *last, uint32_t *n_kept) {
    uint32_t n_last = 0;
    *n_kept = 0;
    for (uint32_t i = 0, seen = 0; i < n; i++) {
        bool stays = candidates[i].waits || is_full_pass(span_of(taken, &candidates[i]));
        if (taken->is_in[i] && (seen++ == 0 || stays)) {
            spans[(*n_kept)++] = span_of(taken, &candidates[i]);
        } else if (taken->is_in[i]) {
            last[n_last++] = i;
        }
    }
    for (uint32_t k = 0; k < n_last; k++) {
        spans[*n_kept + k] = span_of(taken, &candidates[last[k]]);
    }
    return n_last;
}

/* Puts the last narrow passes off, as many as make a token of the step cheapest. */
static void put_off_dear(struct taken *taken, const struct candidate *candidates, uint32_t n,
                         uint32_t most) {
    const struct schedule_view *view = taken->view;
    const struct span *spans[CONCURRENCY_MOST];
    uint32_t last[CONCURRENCY_MOST], n_kept, best = 0;
    uint32_t n_last = split(taken, candidates, n, spans, last, &n_kept);
    double tokens = (double)view->max_batched_tokens - (double)taken->tokens, least_ns = INFINITY;
    for (uint32_t off = 0; off <= n_last && off <= most && n_last > 0; off++) {
        uint32_t left = n_kept + n_last - off;
        double ns = (double)view->estimate_spans_ns(view->estimator, spans, left) / tokens;
        if (ns < least_ns) {
            least_ns = ns;
            best = off;
        }
        tokens -= left > 0 ? spans[left - 1]->queries : 0;
    }
    for (uint32_t off = 0; off < best; off++) {
        taken->is_in[last[n_last - 1 - off]] = false;
        taken->is_put_off = true;
    }
}

void concurrency_list(const struct concurrency *c, const struct schedule_view *view,
                      const struct candidate *candidates, uint32_t n, uint32_t most,
                      struct batch *batch) {
    struct taken taken = {
        .view = view, .tokens = view->max_batched_tokens, .kv_bytes = view->kv_free_bytes};
    most = most < batch->capacity ? most : batch->capacity;
    n = n < 2 * CONCURRENCY_RANKED ? n : 2 * CONCURRENCY_RANKED;
    /* The first one that may run has its place whatever the others cost; then narrow passes. */
    for (uint32_t i = 0; i < n && taken.n == 0; i++) {
        (void)take(&taken, candidates, i);
    }
    for (uint32_t i = 0; i < n && taken.n < most; i++) {
        if (!is_full_pass(span_of(&taken, &candidates[i])) && !taken.is_in[i]) {
            (void)take(&taken, candidates, i);
        }
    }
    take_full(&taken, candidates, n, most, c->share_full);
    put_off_dear(&taken, candidates, n, c->put_off);
    for (int admits = 0; admits < 2; admits++) {
        for (uint32_t i = 0; i < n; i++) {
            if (taken.is_in[i] && candidates[i].waits == (admits == 1)) {
                batch->selected[batch->n++] = candidates[i].slot;
            }
        }
    }
    batch->n_admitted = taken.n_admitted;
    batch->hold = taken.is_put_off ? HOLD_STEP : HOLD_CHANGE;
}

/* Appends those that wait to those that run, in the order of their keys, as long as they count:
 * none is admitted beyond the `most` that may take part, nor after the first CONCURRENCY_RANKED.
 */
static uint32_t merge(const struct order_use *use, const struct candidate *runs, uint32_t n_runs,
                      uint32_t most, struct candidate *candidates) {
    struct order_walk walk = {0};
    struct candidate waits;
    uint32_t n = 0, r = 0, n_waits = 0;
    bool any_waits = order_next(use, &walk, &waits);
    while (r < n_runs || any_waits) {
        if (!any_waits || (r < n_runs && runs[r].key <= waits.key)) {
            candidates[n++] = runs[r++];
        } else {
            candidates[n++] = waits;
            n_waits++;
            any_waits = order_next(use, &walk, &waits);
        }
        /* Narrow passes are listed before full ones, and may be admitted from after them. */
        bool counts = n_waits < most || use->order->n_narrow > 0;
        any_waits = any_waits && counts && n < CONCURRENCY_RANKED;
    }
    return n;
}

void concurrency_schedule(struct concurrency *c, const struct order_use *use, struct batch *batch) {
    struct candidate runs[CONCURRENCY_RANKED], candidates[2 * CONCURRENCY_RANKED];
    uint32_t most = concurrency_best(c, use->view);
    order_sync(use);
    uint32_t n_runs = order_running(use, runs, CONCURRENCY_RANKED);
    uint32_t n = merge(use, runs, n_runs, most, candidates);
    concurrency_list(c, use->view, candidates, n, most, batch);
    order_admit(use, batch);
}
