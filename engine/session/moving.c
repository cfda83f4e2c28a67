#include "engine/session/moving.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

void moving_open(struct moving *moving, const struct joint_indel *numbers, uint32_t n_slots,
                 uint32_t window, uint32_t vocab, uint32_t mask) {
    const size_t most = (size_t)window + numbers->max_post_edit_steps + 2;
    *moving = (struct moving){.numbers = numbers,
                              .width = window,
                              .vocab = vocab,
                              .most_updates = (uint32_t)most,
                              .mask = (int32_t)mask};
    moving->states = mem_reserved(n_slots, sizeof *moving->states);
    moving->original = mem_reserved((size_t)n_slots * window, 1);
    moving->contents = mem_reserved(n_slots * most * window, sizeof *moving->contents);
    moving->tried = mem_reserved(n_slots * most * window, sizeof *moving->tried);
    moving->best = mem_zeroed(window, sizeof *moving->best);
    moving->excluded = mem_zeroed(most + 3, sizeof *moving->excluded);
    moving->p = mem_zeroed(window, sizeof *moving->p);
    moving->writes = mem_zeroed(window, 1);
    moving->moved = mem_zeroed(2 * (size_t)window, sizeof *moving->moved);
    moving->moved_original = mem_zeroed(2 * (size_t)window, 1);
}

void moving_close(struct moving *moving) {
    mem_released(moving->states);
    mem_released(moving->original);
    mem_released(moving->contents);
    mem_released(moving->tried);
    free(moving->best);
    free(moving->excluded);
    free(moving->p);
    free(moving->writes);
    free(moving->moved);
    free(moving->moved_original);
    *moving = (struct moving){0};
}

/* Of a slot's update `u`. */
static int32_t *update_of(const struct moving *m, int32_t *of, uint32_t slot, uint32_t u) {
    return of + ((size_t)slot * m->most_updates + u) * m->width;
}

static int32_t best_but(const struct moving *m, const float *logits, const int32_t *excluded,
                        uint32_t n) {
    int32_t best = -1;
    for (uint32_t i = 0; i < m->vocab; i++) {
        bool is_out = false;
        for (uint32_t k = 0; k < n; k++) {
            is_out = is_out || excluded[k] == (int32_t)i;
        }
        best = !is_out && (best < 0 || logits[i] > logits[best]) ? (int32_t)i : best;
    }
    return best >= 0 ? best : 0;
}

/* In single precision, as SGLang has it: what is nearly certain is as certain. */
static float probability(const struct moving *m, const float *logits, int32_t token) {
    double top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < m->vocab; i++) {
        top = fmax(top, (double)logits[i]);
    }
    for (uint32_t i = 0; i < m->vocab; i++) {
        sum += exp((double)logits[i] - top);
    }
    return (float)(exp((double)logits[token] - top) / sum);
}

/* What a pass sees of a block. */
struct seen {
    const float *logits;
    const int32_t *tokens;
    uint8_t *original;
    uint32_t n_original, n_masked;
    bool is_last;
};

static bool is_masked(const struct moving *m, const struct moving_block *block,
                      const struct seen *seen, uint32_t i) {
    return i >= block->n_fixed && seen->tokens[i] == m->mask;
}

static const float *row(const struct moving *m, const struct seen *seen, uint32_t i) {
    return seen->logits + (size_t)i * m->vocab;
}

/* The most likely tokens; an original mask becomes none again before the last pass. */
static void read_rows(struct moving *m, const struct moving_block *block, const struct seen *seen) {
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        const bool resolves = !seen->is_last && seen->original[i] && is_masked(m, block, seen, i);
        m->best[i] = best_but(m, row(m, seen, i), NULL, 0);
        if (resolves && m->best[i] == m->mask) {
            m->best[i] = best_but(m, row(m, seen, i), &m->mask, 1);
        }
        m->p[i] = probability(m, row(m, seen, i), m->best[i]);
    }
}

/* Marks the `n` most confident masked positions. */
static void fill_surest(struct moving *m, const struct moving_block *block, const struct seen *seen,
                        uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        int64_t surest = -1;
        for (uint32_t i = block->n_fixed; i < block->length; i++) {
            if (is_masked(m, block, seen, i) && !m->writes[i] &&
                (surest < 0 || m->p[i] > m->p[surest])) {
                surest = i;
            }
        }
        if (surest >= 0) {
            m->writes[surest] = 1;
        }
    }
}

/* Marks the masks that are filled, and says whether original ones are left. */
static bool fill(struct moving *m, const struct moving_block *block, const struct seen *seen) {
    const uint32_t need = 1 + seen->n_masked - seen->n_original;
    const bool all = seen->is_last || seen->n_original == 0;
    uint32_t n_sure = 0, left = 0;
    memset(m->writes, 0, block->length);
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        n_sure += is_masked(m, block, seen, i) && (double)m->p[i] > m->numbers->threshold;
    }
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        m->writes[i] = is_masked(m, block, seen, i) &&
                       (all || (n_sure >= need && (double)m->p[i] > m->numbers->threshold));
    }
    if (!all && n_sure < need) {
        fill_surest(m, block, seen, need);
    }
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        left += seen->original[i] && is_masked(m, block, seen, i) && !m->writes[i];
    }
    return left > 0;
}

/* Marks the tokens that are replaced; returns how many positions are written at all. */
static uint32_t edit(struct moving *m, const struct moving_block *block, const struct seen *seen) {
    uint32_t n = 0;
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        if (!is_masked(m, block, seen, i)) {
            m->writes[i] =
                (double)m->p[i] > m->numbers->edit_threshold && m->best[i] != seen->tokens[i];
        }
        n += m->writes[i];
    }
    return n;
}

/* The last pass writes neither masks nor tokens that move. */
static void scrub(struct moving *m, const struct moving_block *block, const struct seen *seen) {
    const int32_t out[] = {m->mask, (int32_t)m->numbers->delete_token,
                           (int32_t)m->numbers->insert_token};
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        if (m->writes[i] &&
            (m->best[i] == out[0] || m->best[i] == out[1] || m->best[i] == out[2])) {
            m->best[i] = best_but(m, row(m, seen, i), out, 3);
        }
    }
}

/* A content that was there before: the least confident position that would change takes a token
 * that it was not given yet. */
static void vary(struct moving *m, const struct moving_block *block, const struct seen *seen) {
    const struct moving_state *state = &m->states[block->slot];
    int64_t least = -1;
    bool was_there = false;
    for (uint32_t u = 0; u < state->n_updates && !was_there; u++) {
        was_there = memcmp(update_of(m, m->contents, block->slot, u), seen->tokens,
                           block->length * sizeof *seen->tokens) == 0;
    }
    for (uint32_t i = block->n_fixed; was_there && i < block->length; i++) {
        if (m->writes[i] && m->best[i] != seen->tokens[i] && (least < 0 || m->p[i] < m->p[least])) {
            least = i;
        }
    }
    if (least < 0) {
        return;
    }
    uint32_t n = 0;
    for (uint32_t u = 0; u < state->n_updates; u++) {
        m->excluded[n++] = update_of(m, m->tried, block->slot, u)[least];
    }
    if (seen->original[least] && seen->tokens[least] == m->mask) {
        m->excluded[n++] = m->mask;
    }
    m->best[least] = best_but(m, row(m, seen, (uint32_t)least), m->excluded, n);
}

/* The block's content before the update, and what it writes. */
static void note(struct moving *m, const struct moving_block *block, const struct seen *seen) {
    struct moving_state *state = &m->states[block->slot];
    ASSERT(state->n_updates < m->most_updates);
    int32_t *tried = update_of(m, m->tried, block->slot, state->n_updates);
    memcpy(update_of(m, m->contents, block->slot, state->n_updates), seen->tokens,
           block->length * sizeof *seen->tokens);
    for (uint32_t i = 0; i < block->length; i++) {
        tried[i] = i >= block->n_fixed && m->writes[i] ? m->best[i] : -1;
    }
    state->n_updates++;
}

/* Writes, drops and inserts. */
static void apply(struct moving *m, const struct moving_block *block, const struct seen *seen,
                  int32_t *tokens) {
    uint32_t n = block->n_fixed;
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        const int32_t token = m->writes[i] ? m->best[i] : tokens[i];
        const bool is_written = m->writes[i] != 0;
        if (is_written && token == (int32_t)m->numbers->delete_token) {
            continue;
        }
        if (is_written && token == (int32_t)m->numbers->insert_token) {
            m->moved[n] = m->mask;
            m->moved_original[n++] = 0;
        }
        m->moved_original[n] = seen->original[i];
        m->moved[n++] =
            is_written && token == (int32_t)m->numbers->insert_token ? tokens[i] : token;
    }
    for (; n < block->length; n++) {
        m->moved[n] = m->mask;
        m->moved_original[n] = 0;
    }
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        tokens[i] = m->moved[i];
        seen->original[i] = m->moved_original[i];
    }
}

/* The state of a block, from its start on. */
static struct moving_state *enter(struct moving *m, const struct moving_block *block,
                                  const int32_t *tokens, uint8_t *original) {
    struct moving_state *state = &m->states[block->slot];
    if (!state->is_known || state->request != block->request || state->first != block->first) {
        *state = (struct moving_state){
            .request = block->request, .first = block->first, .is_known = true};
        for (uint32_t i = 0; i < block->length; i++) {
            original[i] = i >= block->n_fixed && tokens[i] == m->mask;
        }
    }
    return state;
}

static bool is_at_limit(const struct moving *m, const struct moving_state *state,
                        uint32_t n_original, uint32_t length) {
    const uint32_t most = m->numbers->max_post_edit_steps;
    return (most > 0 && state->n_post >= most) || (most == 0 && n_original == 0) ||
           state->n_updates + 1 > length + most;
}

void moving_pass(struct moving *m, const struct moving_block *block, const float *logits,
                 int32_t *tokens) {
    uint8_t *original = m->original + (size_t)block->slot * m->width;
    struct moving_state *state = enter(m, block, tokens, original);
    struct seen seen = {.logits = logits, .tokens = tokens, .original = original};
    if (state->is_finished) {
        return;
    }
    for (uint32_t i = block->n_fixed; i < block->length; i++) {
        seen.n_masked += tokens[i] == m->mask;
        seen.n_original += tokens[i] == m->mask && original[i];
    }
    state->n_post += seen.n_original == 0;
    seen.is_last = is_at_limit(m, state, seen.n_original, block->length);
    read_rows(m, block, &seen);
    const bool are_left = fill(m, block, &seen);
    if (m->numbers->max_post_edit_steps == 0 && seen.n_original > 0 && !are_left) {
        seen.is_last = true;
        (void)fill(m, block, &seen);
    }
    if (edit(m, block, &seen) == 0) {
        state->is_finished = true;
        return;
    }
    if (seen.is_last) {
        scrub(m, block, &seen);
    } else {
        vary(m, block, &seen);
    }
    note(m, block, &seen);
    apply(m, block, &seen, tokens);
    state->is_finished = seen.is_last;
}
