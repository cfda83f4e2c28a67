/* A budget of rows for each step: of the masked positions of all requests the b best run, where b
 * makes the positions that the step is expected to commit, over the time that it takes, the most.
 * This is DSpark's rule for verified drafts (arXiv 2607.05147, as merged in vLLM #47808) carried
 * over to masked positions, and ours: all b are tried, since the cost of a step is a staircase; of
 * each request those run that its last step was surest of, one at least; the rows of a step are
 * priced by a table.
 *
 * Where DSpark takes a draft's confidence for its chance, the chance of a masked position is what
 * it has been for positions as sure, as far from what is known (chances.h): the last pass of one
 * that is still masked was below the threshold, after all. Who runs when is as under `chunked`.
 *
 * Its weakness: it looks one step ahead, and a position that waits is not seen by others anew. */
#include <math.h>

#include "sim/policy/scheduler/chances.h"
#include "sim/policy/scheduler/growth.h"

enum { MOST_TOKENS = 8192, BINS = 128, LIKE = 16 };

struct state {
    uint32_t rows, preempts;
    struct chances chances;
    double context;                  /* keys of the requests that the table was made for */
    double cost_ns[MOST_TOKENS + 1]; /* by query tokens of a step; 0: not yet priced */
    uint32_t n_bin[BINS];            /* of this step: rows by what they gain, */
    double gain[BINS];               /* and the sums of these */
    uint8_t bin[MOST_TOKENS];        /* of each row, request after request */
};

static const struct param params[] = {
    PARAM("rows", PARAM_U32, struct state, rows, "tokens", "0", 0, 1000000,
          "masked positions of each request that run, whatever they are worth (0: by the budget)"),
    PREEMPTS_PARAM(struct state, preempts),
};

/* How sure its last pass was, and how many masked positions stand between it and the nearest known
 * one at its left. */
static uint32_t kind_of(float confidence, uint32_t gap) {
    static const float bounds[] = {0, 0.1f, 0.3f, 0.5f, 0.65f, 0.8f, 0.9f};
    uint32_t sure = 0, far = gap < 3 ? gap : gap < 5 ? 3 : gap < 8 ? 4 : gap < 16 ? 5 : 6;
    while (sure < 7 && confidence > bounds[sure]) {
        sure++;
    }
    return 8 * far + sure;
}

struct row {
    float urgency; /* 2 next to what is known at its left, else its last confidence */
    uint32_t offset, kind;
};

/* In the order in which a step takes them. */
static void sort(struct row *rows, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        const struct row row = rows[i];
        uint32_t at = i;
        for (; at > 0 && rows[at - 1].urgency < row.urgency; at--) {
            rows[at] = rows[at - 1];
        }
        rows[at] = row;
    }
}

/* The masked positions of a request whose next step decides on them, learning from its last one. */
static uint32_t look(struct state *state, const struct schedule_view *view, uint32_t slot,
                     struct row *rows) {
    const struct request *request = &view->requests[slot];
    struct chances_told *told = (struct chances_told *)view->own + slot;
    struct masked_seen masked[CHANCES_MOST_POSITIONS];
    uint32_t n = view->look(view->estimator, slot, masked, CHANCES_MOST_POSITIONS), gap = 0;
    const bool decides = request->span.phase == PHASE_REUSE && n <= CHANCES_MOST_POSITIONS;
    n = n < CHANCES_MOST_POSITIONS ? n : CHANCES_MOST_POSITIONS;
    chances_learn(&state->chances, told, request, masked, n);
    for (uint32_t i = 0; i < n; i++) {
        gap = i > 0 && masked[i].offset == masked[i - 1].offset + 1 ? gap + 1 : 0;
        rows[i] = (struct row){gap == 0 ? 2 : masked[i].confidence, masked[i].offset,
                               kind_of(masked[i].confidence, gap)};
    }
    sort(rows, n);
    return decides ? n : 0;
}

static double table_ns(struct state *state, const struct schedule_view *view, uint32_t tokens) {
    double *ns = &state->cost_ns[tokens];
    if (*ns <= 0 && tokens > 0) {
        const uint32_t context = (uint32_t)state->context, rest = tokens % LIKE;
        const struct span like = {.phase = PHASE_REUSE,
                                  .queries = LIKE,
                                  .first_queries = LIKE,
                                  .context = context,
                                  .logit_rows = LIKE,
                                  .exact = 1};
        struct span last = like;
        const struct span *spans[MOST_TOKENS / LIKE + 1];
        uint32_t n = 0;
        last.queries = last.first_queries = last.logit_rows = rest;
        while (n < tokens / LIKE) {
            spans[n++] = &like;
        }
        spans[n] = &last;
        *ns = (double)view->estimate_spans_ns(view->estimator, spans, n + (rest > 0));
    }
    return *ns;
}

/* What a step takes besides what the table says of its tokens. */
static double beside_ns(struct state *state, const struct schedule_view *view,
                        const struct batch *batch, uint32_t tokens) {
    double context = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        context += view->requests[batch->selected[i]].span.context;
    }
    state->context = state->context > 0 ? state->context : 1 + context / batch->n;
    return (double)view->estimate_ns(view->estimator, batch) - table_ns(state, view, tokens);
}

/* How many rows beyond one a request: of all numbers the one of the most gain in a unit of time.
 * `others`: the step's other query tokens, `n_requests`: what these rows commit at least. */
static uint32_t best_budget(struct state *state, const struct schedule_view *view, double ns,
                            uint32_t others, double value) {
    uint32_t best = 0, b = 0;
    double most = value / (ns + table_ns(state, view, others));
    for (uint32_t bin = BINS; bin-- > 0;) {
        for (uint32_t i = 0; i < state->n_bin[bin]; i++) {
            value += state->gain[bin] / state->n_bin[bin];
            const double rate = value / (ns + table_ns(state, view, others + ++b));
            best = rate > most ? b : best;
            most = rate > most ? rate : most;
        }
    }
    return best;
}

/* Counts a request's rows by what each adds, in their order; the first one runs in any case. */
static void count(struct state *state, const struct row *rows, uint32_t n, uint8_t *bin) {
    double chances[CHANCES_MOST_POSITIONS], gains[CHANCES_MOST_POSITIONS];
    for (uint32_t i = 0; i < n; i++) {
        chances[i] = chances_of(&state->chances, rows[i].kind);
    }
    chances_gains(chances, n, gains);
    for (uint32_t i = 1; i < n; i++) {
        bin[i] = (uint8_t)fmin(BINS - 1, gains[i] * BINS);
        state->n_bin[bin[i]]++;
        state->gain[bin[i]] += gains[i];
    }
}

/* Of a request's rows how many run: those of better bins, and of the last one while the budget
 * lasts. */
static uint32_t take(const uint8_t *bin, uint32_t n, uint32_t last, uint32_t *left) {
    uint32_t taken = n > 0;
    while (taken < n && (bin[taken] > last || (bin[taken] == last && *left > 0))) {
        *left -= bin[taken] == last;
        taken++;
    }
    return taken;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    struct row rows[CHANCES_MOST_POSITIONS];
    uint32_t tokens = 0, more = 0, n_deciding = 0;
    growth_list_all(view, state->preempts, batch);
    for (int bin = 0; bin < BINS; bin++) {
        state->n_bin[bin] = 0;
        state->gain[bin] = 0;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t slot = batch->selected[i], n = look(state, view, slot, rows);
        const uint32_t chunk = batch->chunk_tokens[i];
        tokens += chunk > 0 ? chunk : view->requests[slot].span.queries;
        if (n > 0 && more + n <= MOST_TOKENS) {
            count(state, rows, n, state->bin + more);
            more += n;
            n_deciding++;
        }
    }
    uint32_t left = UINT32_MAX, last = 0;
    if (state->rows == 0 && n_deciding > 0 && tokens <= MOST_TOKENS) {
        left = best_budget(state, view, beside_ns(state, view, batch, tokens),
                           tokens - (more - n_deciding), n_deciding);
        for (last = BINS; last > 0 && left >= state->n_bin[last - 1]; last--) {
            left -= state->n_bin[last - 1];
        }
        last = last > 0 ? last - 1 : 0;
    }
    for (uint32_t i = 0, at = 0; i < batch->n; i++) {
        const uint32_t slot = batch->selected[i], n = look(state, view, slot, rows);
        const bool is_counted = n > 0 && at + n <= MOST_TOKENS;
        uint32_t taken = is_counted ? take(state->bin + at, n, last, &left) : n;
        taken = state->rows > 0 && state->rows < taken ? state->rows : taken;
        at += is_counted ? n : 0;
        batch->run_tokens[i] = taken < n ? taken : 0;
        for (uint32_t k = 0; k < taken; k++) {
            chances_tell((struct chances_told *)view->own + slot, &view->requests[slot],
                         rows[k].offset, rows[k].kind);
        }
    }
    batch->says = batch->surest = 1;
}

const struct scheduler scheduler_row_budget = {
    .policy = SCHEDULER_POLICY("row-budget",
                               "the masked positions worth their time run, of all requests; looks "
                               "one step ahead",
                               struct state, params),
    .grows = 1,
    .changes_passes = 1,
    .says_rows = 1,
    .request_bytes = sizeof(struct chances_told),
    .schedule = schedule,
};
