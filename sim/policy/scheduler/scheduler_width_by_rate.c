/* The width of what is decoded at once of a block, by load, as Optimus has it for trained blocks
 * (arXiv 2605.24832, of which the abstract alone could be read: a closed loop sets how much of a
 * block is decoded at once from how saturated the GPU is; the loop here is ours). Of each request's
 * masked positions the left-most `width` run. Before each step the widths from `least` to `most`,
 * powers of two and half as much again, are compared: what a step so wide is expected to commit, by
 * how often positions so far from the first masked one were committed before (chances.h), over what
 * it takes. Another width is taken where it is better by `hysteresis`, so that it does not swing.
 * Who runs when is as under `chunked`.
 *
 * Its weakness: one width for all requests, and beyond it nothing new is learned. */
#include "sim/policy/scheduler/chances.h"
#include "sim/policy/scheduler/growth.h"

struct state {
    uint32_t least, most, preempts;
    double hysteresis;
    struct chances chances;
    uint32_t width; /* 0: none was chosen yet */
};

static const struct param params[] = {
    PARAM("least", PARAM_U32, struct state, least, "tokens", "4", 1, 65536, "smallest width"),
    PARAM("most", PARAM_U32, struct state, most, "tokens", "32", 1, 65536,
          "largest width; from block_tokens on the whole block"),
    PARAM("hysteresis", PARAM_F64, struct state, hysteresis, "1", "0.02", 0, 10,
          "share by which another width has to be better"),
    PREEMPTS_PARAM(struct state, preempts),
};

static uint32_t kind_of(uint32_t rank) {
    return rank < 32 ? rank : rank < 64 ? 32 + (rank - 32) / 8 : rank < 256 ? 36 : 37;
}

/* Its masked positions, where its next step decides on them. */
static uint32_t look(struct state *state, const struct schedule_view *view, uint32_t slot,
                     struct masked_seen *masked) {
    const struct request *request = &view->requests[slot];
    uint32_t n = view->look(view->estimator, slot, masked, CHANCES_MOST_POSITIONS);
    const uint32_t known = n < CHANCES_MOST_POSITIONS ? n : CHANCES_MOST_POSITIONS;
    chances_learn(&state->chances, (struct chances_told *)view->own + slot, request, masked, known);
    return request->span.phase == PHASE_REUSE ? known : 0;
}

/* Positions that a pass over the first n masked ones is expected to commit, out[n]. */
static void expect(const struct state *state, double *out) {
    double none = 1, sum = 0;
    out[0] = 0;
    for (uint32_t rank = 0; rank < CHANCES_MOST_POSITIONS; rank++) {
        const double chance = chances_of(&state->chances, kind_of(rank));
        none *= 1 - chance;
        sum += chance;
        out[rank + 1] = sum + none;
    }
}

/* What a step that is so wide commits in a second, by what is expected of the first n masked. */
static double rate(const struct schedule_view *view, struct batch *batch, const uint32_t *masked,
                   const double *expected, uint32_t width) {
    double commits = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t n = masked[i] < width ? masked[i] : width;
        batch->run_tokens[i] = n < masked[i] ? n : 0;
        commits += expected[n];
    }
    const double ns = (double)view->estimate_ns(view->estimator, batch);
    return ns > 0 ? 1e9 * commits / ns : 0;
}

/* Powers of two, and half as much again: 4, 6, 8, 12, ... */
static uint32_t next_width(uint32_t width) {
    const uint32_t more = width / 2;
    return (width & (width - 1)) == 0 && more > 0 ? width + more : width > 2 ? width / 3 * 4 : 2;
}

static void choose(struct state *state, const struct schedule_view *view, struct batch *batch,
                   const uint32_t *masked) {
    double expected[CHANCES_MOST_POSITIONS + 1], best = 0, now = 0;
    uint32_t best_width = state->width;
    expect(state, expected);
    for (uint32_t width = state->least; width <= state->most; width = next_width(width)) {
        const double r = rate(view, batch, masked, expected, width);
        now = width == state->width ? r : now;
        best_width = r > best ? width : best_width;
        best = r > best ? r : best;
    }
    state->width = best > (1 + state->hysteresis) * now ? best_width : state->width;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    struct masked_seen seen[CHANCES_MOST_POSITIONS];
    uint32_t *masked = batch->idle; /* no one is idle: room for a number of each listed request */
    growth_list_all(view, state->preempts, batch);
    batch->says = 1;
    for (uint32_t i = 0; i < batch->n; i++) {
        masked[i] = look(state, view, batch->selected[i], seen);
    }
    choose(state, view, batch, masked);
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t slot = batch->selected[i], n = look(state, view, slot, seen);
        const uint32_t width = n < state->width ? n : state->width;
        batch->run_tokens[i] = width < n ? width : 0;
        for (uint32_t k = 0; k < width; k++) {
            chances_tell((struct chances_told *)view->own + slot, &view->requests[slot],
                         seen[k].offset, kind_of(k));
        }
    }
}

const struct scheduler scheduler_width_by_rate = {
    .policy = SCHEDULER_POLICY("width-by-rate",
                               "as many left-most masked positions of a block run as pay at this "
                               "load; one width for all",
                               struct state, params),
    .grows = 1,
    .changes_passes = 1,
    .says_rows = 1,
    .request_bytes = sizeof(struct chances_told),
    .schedule = schedule,
};
