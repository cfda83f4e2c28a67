/* Drawing a token of a row of logits (draw.h), as a thread block does it. draw_row is its work in
 * steps: in CUDA every thread takes its part of each, with a barrier after it; in C one thread
 * takes the parts of all, one after the other. */
#ifndef UNMASK_KERNELS_DECODE_DRAW_ROW_H
#define UNMASK_KERNELS_DECODE_DRAW_ROW_H

#include <stdbool.h>

#include "kernels/calls.h"
#include "kernels/rules/draw.h"

enum { DRAW_TILES = DRAW_MAX_VOCAB / DRAW_THREADS };

/* What the threads of a row share. */
struct draw_work {
    struct draw_sums sums;
    struct draw_bins bins;
    uint32_t tile[DRAW_TILES];
    struct draw_state is;
};

#ifdef __CUDA_ARCH__
#define DRAW_EACH(step)                                                                            \
    do {                                                                                           \
        const int thread = threadIdx.x;                                                            \
        step;                                                                                      \
        __syncthreads();                                                                           \
    } while (0)
#define DRAW_ADD(to, value)  atomicAdd(&(to), value)
#define DRAW_MOST(to, value) atomicMax(&(to), value)
#else
#define DRAW_EACH(step)                                                                            \
    for (int thread = 0; thread < DRAW_THREADS; thread++) {                                        \
        step;                                                                                      \
    }
#define DRAW_ADD(to, value)  ((to) += (value))
#define DRAW_MOST(to, value) ((to) = (to) > (value) ? (to) : (value))
#endif

/* A row of a call, and what its threads know alike. Its tokens are a rank's, counted from 0, where
 * several divide the vocabulary; else all. */
struct draw_row {
    const struct call_draw *call;
    struct draw_rule by;
    const void *logits;
    float top, sharpness;
    uint64_t bits;
    int32_t first;   /* the most likely token; another rank's: below 0 or n_vocab and more */
    int32_t before;  /* tokens of the ranks before */
    int32_t n_whole; /* all ranks' */
    int shift;       /* the lowest bits of a key that tell logits of the dtype apart */
};

RULE_FUNCTION float draw_logit(const struct draw_row *row, int32_t token) {
    float x;
    if (row->call->dtype == KERNEL_F32) {
        x = ((const float *)row->logits)[token];
    } else {
        const uint32_t bits = (uint32_t)((const uint16_t *)row->logits)[token] << 16;
        memcpy(&x, &bits, sizeof x);
    }
    return x;
}

RULE_FUNCTION float draw_below(const struct draw_row *row, int32_t token) {
    return RULE_ADD(draw_logit(row, token), -row->top);
}

RULE_FUNCTION uint32_t draw_rank(const struct draw_row *row, int32_t token) {
    return draw_key(draw_logit(row, token)) >> row->shift;
}

/* The first token of a column; the others follow DRAW_THREADS apart. */
RULE_FUNCTION int32_t draw_first_of(const struct draw_row *row, int32_t column) {
    return (column + DRAW_THREADS - row->before % DRAW_THREADS) % DRAW_THREADS;
}

RULE_FUNCTION bool draw_cuts_by_count(const struct draw_row *row) {
    return row->by.top_k > 0 && row->by.top_k < (uint32_t)row->n_whole;
}

RULE_FUNCTION bool draw_cuts_by_mass(const struct draw_row *row) {
    return row->by.top_p < 1;
}

RULE_FUNCTION bool draw_keeps(const struct draw_row *row, const struct draw_state *is,
                              int32_t token) {
    const uint32_t rank = is->cuts ? draw_rank(row, token) : 1;
    return !is->cuts || rank > is->edge || (rank == is->edge && token < is->edge_end);
}

RULE_FUNCTION void draw_begin(struct draw_work *w, int thread) {
    if (thread == 0) {
        w->sums.of_mass = w->sums.of_weighted = 0;
        w->sums.second = w->sums.unused = 0;
        w->is.cuts = 0;
    }
}

/* All tokens, before any is cut off. */
RULE_FUNCTION void draw_sum(const struct draw_row *row, struct draw_work *w, int thread) {
    const bool of_model = row->by.of == DRAW_OF_MODEL,
               weighs = row->call->margin && (row->by.of != DRAW_OF_KEPT ||
                                              !(draw_cuts_by_count(row) || draw_cuts_by_mass(row)));
    const float sharpness = of_model ? 1.0f : row->sharpness;
    unsigned long long mass = 0, of_mass = 0, weighted = 0;
    uint32_t second = 0;
    for (int32_t token = draw_first_of(row, thread); token < row->call->n_vocab;
         token += DRAW_THREADS) {
        const float x = draw_logit(row, token), below = RULE_ADD(x, -row->top);
        mass += draw_mass(below, row->sharpness);
        of_mass += of_model ? draw_mass(below, 1.0f) : 0;
        weighted += weighs ? draw_weighted(below, sharpness) : 0;
        const uint32_t key = draw_key(x);
        second = token != row->first && key > second ? key : second;
    }
    w->sums.mass[thread] = mass;
    DRAW_ADD(w->sums.of_mass, of_mass);
    DRAW_ADD(w->sums.of_weighted, weighted);
    DRAW_MOST(w->sums.second, second);
}

RULE_FUNCTION void draw_total(const struct draw_row *row, struct draw_work *w, int thread) {
    if (thread == 0) {
        unsigned long long mass = 0;
        for (int other = 0; other < DRAW_THREADS; other++) {
            mass += w->sums.mass[other];
        }
        w->is.of_mass = row->by.of == DRAW_OF_MODEL ? w->sums.of_mass : mass;
        w->is.of_weighted = w->sums.of_weighted;
        w->is.second = w->sums.second;
        w->is.kept_mass = mass;
        w->is.n_kept = row->n_whole;
    }
}

/* Begins a search for the last token that is kept, by the number of tokens before it or by their
 * mass. */
RULE_FUNCTION void draw_begin_search(const struct draw_row *row, struct draw_work *w, bool by_mass,
                                     int thread) {
    if (thread == 0) {
        w->is.limit = by_mass ? draw_limit(w->is.kept_mass, row->by.top_p)
                              : (unsigned long long)row->by.top_k - 1;
        w->is.above_mass = 0;
        w->is.above_count = w->is.prefix = 0;
    }
}

RULE_FUNCTION void draw_empty_bins(struct draw_work *w, int thread) {
    if (thread < DRAW_BINS) {
        w->bins.mass[thread] = 0;
        w->bins.count[thread] = 0;
    }
}

/* Of the tokens whose rank begins with the prefix, by its next eight bits. */
RULE_FUNCTION void draw_fill_bins(const struct draw_row *row, struct draw_work *w, int shift,
                                  int thread) {
    for (int32_t token = thread; token < row->call->n_vocab; token += DRAW_THREADS) {
        const uint32_t rank = draw_rank(row, token);
        if ((uint64_t)rank >> (shift + 8) == w->is.prefix) {
            const uint32_t bin = rank >> shift & (DRAW_BINS - 1);
            DRAW_ADD(w->bins.mass[bin], draw_mass(draw_below(row, token), row->sharpness));
            DRAW_ADD(w->bins.count[bin], 1);
        }
    }
}

/* The lowest bin that holds anything and has no more than the limit above it. */
RULE_FUNCTION void draw_pick_bin(struct draw_work *w, bool by_mass, int thread) {
    if (thread == 0) {
        unsigned long long mass = w->is.above_mass;
        uint32_t count = w->is.above_count, found = 0;
        for (int bin = DRAW_BINS - 1; bin >= 0; bin--) {
            if ((by_mass ? mass : count) > w->is.limit) {
                break;
            }
            if (w->bins.count[bin] > 0) {
                found = (uint32_t)bin;
                w->is.above_mass = mass;
                w->is.above_count = count;
            }
            mass += w->bins.mass[bin];
            count += w->bins.count[bin];
        }
        w->is.prefix = w->is.prefix << 8 | found;
    }
}

/* How many tokens of the last bin, which are equally likely, are kept: the first ones. */
RULE_FUNCTION void draw_set_edge(const struct draw_row *row, struct draw_work *w, bool by_mass,
                                 int thread) {
    if (thread == 0) {
        const uint32_t bin = w->is.prefix & (DRAW_BINS - 1), n = w->bins.count[bin];
        const unsigned long long each = w->bins.mass[bin] / n;
        unsigned long long fit = n;
        if (!by_mass) {
            fit = w->is.limit - w->is.above_count + 1;
        } else if (each > 0) {
            fit = (w->is.limit - w->is.above_mass) / each + 1;
        }
        w->is.ties = fit < n ? (uint32_t)fit : n;
        w->is.edge = w->is.prefix;
        w->is.edge_end = w->is.ties < n ? -1 : row->call->n_vocab;
        w->is.kept_mass = w->is.above_mass + w->is.ties * each;
        w->is.n_kept = (int32_t)(w->is.above_count + w->is.ties);
        w->is.cuts = 1;
    }
}

RULE_FUNCTION void draw_empty_tiles(struct draw_work *w, int thread) {
    for (int tile = thread; tile < DRAW_TILES; tile += DRAW_THREADS) {
        w->tile[tile] = 0;
    }
}

RULE_FUNCTION void draw_fill_tiles(const struct draw_row *row, struct draw_work *w, int thread) {
    for (int32_t token = thread; token < row->call->n_vocab; token += DRAW_THREADS) {
        if (draw_rank(row, token) == w->is.edge) {
            DRAW_ADD(w->tile[token / DRAW_THREADS], 1);
        }
    }
}

/* The end of the equally likely tokens that are kept. */
RULE_FUNCTION void draw_set_edge_end(const struct draw_row *row, struct draw_work *w, int thread) {
    if (thread == 0) {
        uint32_t left = w->is.ties;
        int32_t tile = 0;
        while (w->tile[tile] < left) {
            left -= w->tile[tile++];
        }
        int32_t token = tile * DRAW_THREADS;
        while (left > 0) {
            left -= draw_rank(row, token++) == w->is.edge;
        }
        w->is.edge_end = token;
    }
}

RULE_FUNCTION void draw_find_edge_end(const struct draw_row *row, struct draw_work *w) {
    if (w->is.cuts && w->is.edge_end < 0) {
        DRAW_EACH(draw_empty_tiles(w, thread));
        DRAW_EACH(draw_fill_tiles(row, w, thread));
        DRAW_EACH(draw_set_edge_end(row, w, thread));
    }
}

RULE_FUNCTION void draw_cut(const struct draw_row *row, struct draw_work *w, bool by_mass) {
    DRAW_EACH(draw_begin_search(row, w, by_mass, thread));
    for (int shift = 24 - row->shift; shift >= 0; shift -= 8) {
        DRAW_EACH(draw_empty_bins(w, thread));
        DRAW_EACH(draw_fill_bins(row, w, shift, thread));
        DRAW_EACH(draw_pick_bin(w, by_mass, thread));
    }
    DRAW_EACH(draw_set_edge(row, w, by_mass, thread));
}

RULE_FUNCTION void draw_begin_kept(struct draw_work *w, int thread) {
    if (thread == 0) {
        w->sums.of_mass = w->sums.of_weighted = 0;
    }
}

RULE_FUNCTION void draw_sum_kept(const struct draw_row *row, struct draw_work *w, int thread) {
    const bool weighs = row->by.of == DRAW_OF_KEPT && row->call->margin;
    unsigned long long mass = 0, weighted = 0;
    for (int32_t token = draw_first_of(row, thread); token < row->call->n_vocab;
         token += DRAW_THREADS) {
        if (draw_keeps(row, &w->is, token)) {
            const float below = draw_below(row, token);
            mass += draw_mass(below, row->sharpness);
            weighted += weighs ? draw_weighted(below, row->sharpness) : 0;
        }
    }
    w->sums.mass[thread] = mass;
    DRAW_ADD(w->sums.of_weighted, weighted);
}

RULE_FUNCTION void draw_total_kept(const struct draw_row *row, struct draw_work *w, int thread) {
    if (thread == 0 && row->by.of == DRAW_OF_KEPT) {
        w->is.of_weighted = w->sums.of_weighted;
    }
}

/* The column in which the random number falls, and what it leaves of the target. */
RULE_FUNCTION int32_t draw_find_column(const struct draw_row *row, const struct draw_work *w,
                                       unsigned long long *left) {
    int32_t column = 0;
    *left = draw_target(w->is.kept_mass, row->bits);
    while (*left >= w->sums.mass[column]) {
        *left -= w->sums.mass[column++];
    }
    return column;
}

/* The kept token of a column. */
RULE_FUNCTION int32_t draw_find(const struct draw_row *row, const struct draw_work *w,
                                int32_t column, unsigned long long left) {
    for (int32_t token = draw_first_of(row, column);; token += DRAW_THREADS) {
        if (draw_keeps(row, &w->is, token)) {
            const unsigned long long mass = draw_mass(draw_below(row, token), row->sharpness);
            if (left < mass) {
                return token;
            }
            left -= mass;
        }
    }
}

RULE_FUNCTION float draw_sharpness_of(const struct draw_row *row) {
    return row->by.of == DRAW_OF_MODEL ? 1.0f : row->sharpness;
}

/* By a thread: the results of row `at`, of a token with its mass. */
RULE_FUNCTION void draw_finish(const struct draw_row *row, const struct draw_state *is, int64_t at,
                               const struct draw_found *found) {
    const struct call_draw *call = row->call;
    const bool is_kept = row->by.of == DRAW_OF_KEPT;
    const bool has_second = (is_kept ? is->n_kept : row->n_whole) > 1;
    const float second = RULE_ADD(draw_unkey(is->second), -row->top);
    const struct draw_results results =
        draw_results_of(found->mass, has_second ? draw_mass(second, draw_sharpness_of(row)) : 0,
                        is_kept ? is->kept_mass : is->of_mass, is->of_weighted);
    call->token[at] = found->token;
    call->confidence[at] = results.confidence;
    if (call->margin) {
        call->margin[at] = results.margin;
        call->entropy[at] = results.entropy;
    }
}

RULE_FUNCTION void draw_finish_whole(const struct draw_row *row, const struct draw_work *w,
                                     int64_t at, int thread) {
    if (thread != 0) {
        return;
    }
    unsigned long long left = 0;
    struct draw_found found = {0, row->first, 0};
    if (row->by.draws) {
        const int32_t column = draw_find_column(row, w, &left);
        found.token = draw_find(row, w, column, left);
    }
    found.mass = draw_mass(draw_below(row, found.token), draw_sharpness_of(row));
    draw_finish(row, &w->is, at, &found);
}

/* Row `at` of a call; the row has its most likely token and that one's logit yet to come. False
 * where nothing is to be done: the most likely token's confidence is no number, or it is what the
 * rule asks for. */
RULE_FUNCTION bool draw_row_of(const struct call_draw *call, int64_t at, struct draw_row *row) {
    const int64_t bytes = call->dtype == KERNEL_F32 ? 4 : 2;
    row->call = call;
    row->by = call->by[at];
    row->logits = (const char *)call->logits + at * call->n_vocab * bytes;
    row->sharpness = RULE_DIVIDE(1.0f, row->by.temperature);
    row->bits = row->by.draws ? call->bits[at] : 0;
    row->shift = call->dtype == KERNEL_F32 ? 0 : 16;
    row->before = 0;
    row->n_whole = call->n_vocab;
    return call->confidence[at] == call->confidence[at] && !draw_is_idle(&row->by);
}

/* Row `at` of a call, by all threads of a block. */
RULE_FUNCTION void draw_row(const struct call_draw *call, int64_t at, struct draw_work *w) {
    struct draw_row row;
    if (!draw_row_of(call, at, &row)) {
        return;
    }
    row.first = call->token[at];
    row.top = draw_logit(&row, row.first);
    DRAW_EACH(draw_begin(w, thread));
    DRAW_EACH(draw_sum(&row, w, thread));
    DRAW_EACH(draw_total(&row, w, thread));
    if (draw_cuts_by_count(&row)) {
        draw_cut(&row, w, false);
    }
    if (draw_cuts_by_mass(&row)) {
        draw_cut(&row, w, true);
    }
    if (w->is.cuts) {
        draw_find_edge_end(&row, w);
        DRAW_EACH(draw_begin_kept(w, thread));
        DRAW_EACH(draw_sum_kept(&row, w, thread));
        DRAW_EACH(draw_total_kept(&row, w, thread));
    }
    DRAW_EACH(draw_finish_whole(&row, w, at, thread));
}

/* ---- over ranks ---- */

RULE_FUNCTION void draw_take_sums(const struct call_draw_part *call, int64_t at,
                                  struct draw_work *w, int thread) {
    const struct draw_sums *from = (const struct draw_sums *)call->received + at;
    unsigned long long mass = 0, of_mass = 0, of_weighted = 0;
    uint32_t second = 0;
    for (int64_t rank = 0; rank < call->n_ranks; rank++, from += call->of.n_rows) {
        mass += from->mass[thread];
        if (thread == 0) {
            of_mass += from->of_mass;
            of_weighted += from->of_weighted;
            second = from->second > second ? from->second : second;
        }
    }
    w->sums.mass[thread] = mass;
    if (thread == 0) {
        w->sums.of_mass = of_mass;
        w->sums.of_weighted = of_weighted;
        w->sums.second = second;
    }
}

RULE_FUNCTION void draw_take_bins(const struct call_draw_part *call, int64_t at,
                                  struct draw_work *w, int thread) {
    const struct draw_bins *from = (const struct draw_bins *)call->received + at;
    draw_empty_bins(w, thread);
    for (int64_t rank = 0; thread < DRAW_BINS && rank < call->n_ranks; rank++) {
        w->bins.mass[thread] += from->mass[thread];
        w->bins.count[thread] += from->count[thread];
        from += call->of.n_rows;
    }
}

/* Of the equally likely tokens that are kept, a rank's own: lower ranks' come first. */
RULE_FUNCTION void draw_share_edge(const struct call_draw_part *call, int64_t at,
                                   struct draw_work *w, int thread) {
    if (thread != 0) {
        return;
    }
    const struct draw_bins *from = (const struct draw_bins *)call->received + at;
    const uint32_t bin = w->is.edge & (DRAW_BINS - 1);
    for (int32_t rank = 0; rank < call->rank; rank++, from += call->of.n_rows) {
        const uint32_t theirs = from->count[bin];
        w->is.ties -= theirs < w->is.ties ? theirs : w->is.ties;
    }
    const uint32_t own = from->count[bin];
    w->is.ties = own < w->is.ties ? own : w->is.ties;
    w->is.edge_end = w->is.ties < own ? -1 : call->of.n_vocab;
}

RULE_FUNCTION bool draw_searches(const struct draw_row *row, const struct draw_part *part) {
    return part->by_mass ? draw_cuts_by_mass(row) : draw_cuts_by_count(row);
}

/* What all ranks sent after the part before, which all of them go on from alike. */
RULE_FUNCTION void draw_take(const struct call_draw_part *call, const struct draw_row *row,
                             int64_t at, const struct draw_part *before, struct draw_work *w) {
    if (before->step == DRAW_SEARCH && draw_searches(row, before)) {
        DRAW_EACH(draw_take_bins(call, at, w, thread));
        DRAW_EACH(draw_pick_bin(w, before->by_mass, thread));
        if (before->shift == 0) {
            DRAW_EACH(draw_set_edge(row, w, before->by_mass, thread));
            DRAW_EACH(draw_share_edge(call, at, w, thread));
        }
    } else if (before->step == DRAW_SUM) {
        DRAW_EACH(draw_take_sums(call, at, w, thread));
        DRAW_EACH(draw_total(row, w, thread));
    } else if (before->step == DRAW_SUM_KEPT) {
        DRAW_EACH(draw_take_sums(call, at, w, thread));
        DRAW_EACH(draw_total_kept(row, w, thread));
    }
}

/* The token, where it is a rank's own; its number is of the whole vocabulary. */
RULE_FUNCTION struct draw_found draw_find_own(const struct call_draw_part *call,
                                              const struct draw_row *row, int64_t at,
                                              const struct draw_work *w) {
    struct draw_found found = {0, -1, 0};
    int32_t token = row->first;
    if (row->by.draws) {
        const struct draw_sums *from = (const struct draw_sums *)call->received + at;
        unsigned long long left = 0;
        const int32_t column = draw_find_column(row, w, &left);
        int32_t rank = 0;
        for (; left >= from->mass[column]; rank++, from += call->of.n_rows) {
            left -= from->mass[column];
        }
        token = rank == call->rank ? draw_find(row, w, column, left) : -1;
    }
    if (token >= 0 && token < call->of.n_vocab) {
        found.mass = draw_mass(draw_below(row, token), draw_sharpness_of(row));
        found.token = token + row->before;
    }
    return found;
}

/* What a rank sends of row `at` becomes 0 where nothing is drawn. */
RULE_FUNCTION void draw_send_nothing(const struct call_draw_part *call, int64_t at,
                                     enum draw_step step, int thread) {
    if (step == DRAW_SUM || step == DRAW_SUM_KEPT) {
        ((struct draw_sums *)call->sent)[at].mass[thread] = 0;
    } else if (step == DRAW_SEARCH && thread < DRAW_BINS) {
        ((struct draw_bins *)call->sent)[at].mass[thread] = 0;
        ((struct draw_bins *)call->sent)[at].count[thread] = 0;
    } else if (step == DRAW_FIND && thread == 0) {
        ((struct draw_found *)call->sent)[at].token = -1;
    }
}

RULE_FUNCTION void draw_send_sums(const struct call_draw_part *call, int64_t at,
                                  const struct draw_work *w, int thread) {
    struct draw_sums *to = (struct draw_sums *)call->sent + at;
    to->mass[thread] = w->sums.mass[thread];
    if (thread == 0) {
        to->of_mass = w->sums.of_mass;
        to->of_weighted = w->sums.of_weighted;
        to->second = w->sums.second;
    }
}

RULE_FUNCTION void draw_send_bins(const struct call_draw_part *call, int64_t at,
                                  const struct draw_work *w, int thread) {
    if (thread < DRAW_BINS) {
        struct draw_bins *to = (struct draw_bins *)call->sent + at;
        to->mass[thread] = w->bins.mass[thread];
        to->count[thread] = w->bins.count[thread];
    }
}

/* The part itself. */
RULE_FUNCTION void draw_do(const struct call_draw_part *call, const struct draw_row *row,
                           int64_t at, const struct draw_part *part, bool begins,
                           struct draw_work *w) {
    if (part->step == DRAW_SUM) {
        DRAW_EACH(draw_begin(w, thread));
        DRAW_EACH(draw_sum(row, w, thread));
        DRAW_EACH(draw_send_sums(call, at, w, thread));
    } else if (part->step == DRAW_SEARCH && draw_searches(row, part)) {
        if (begins) {
            DRAW_EACH(draw_begin_search(row, w, part->by_mass, thread));
        }
        DRAW_EACH(draw_empty_bins(w, thread));
        DRAW_EACH(draw_fill_bins(row, w, part->shift, thread));
        DRAW_EACH(draw_send_bins(call, at, w, thread));
    } else if (part->step == DRAW_SUM_KEPT) {
        draw_find_edge_end(row, w);
        DRAW_EACH(draw_begin_kept(w, thread));
        DRAW_EACH(draw_sum_kept(row, w, thread));
        DRAW_EACH(draw_send_sums(call, at, w, thread));
    } else if (part->step == DRAW_FIND) {
        DRAW_EACH(if (thread == 0) {
            ((struct draw_found *)call->sent)[at] = draw_find_own(call, row, at, w);
        });
    } else {
        DRAW_EACH(draw_send_nothing(call, at, part->step, thread));
    }
}

/* The rank that has the token says so to all. */
RULE_FUNCTION void draw_finish_part(const struct call_draw_part *call, const struct draw_row *row,
                                    int64_t at, const struct draw_state *is) {
    const struct draw_found *from = (const struct draw_found *)call->received + at;
    while (from->token < 0) {
        from += call->of.n_rows;
    }
    draw_finish(row, is, at, from);
}

/* A part of row `at` of a call, by all threads of a block. */
RULE_FUNCTION void draw_part_row(const struct call_draw_part *call, int64_t at,
                                 struct draw_work *w) {
    const int bytes = call->of.dtype == KERNEL_F32 ? 4 : 2;
    const struct draw_part part = draw_part_of(call->part, call->cuts, bytes),
                           before = draw_part_of(call->part - 1, call->cuts, bytes);
    struct draw_row row;
    if (!draw_row_of(&call->of, at, &row)) {
        DRAW_EACH(draw_send_nothing(call, at, part.step, thread));
        return;
    }
    row.before = call->rank * call->of.n_vocab;
    row.n_whole = call->n_ranks * call->of.n_vocab;
    row.first = call->of.token[at] - row.before;
    row.top = call->logit[at];
    if (part.step != DRAW_SUM) {
        DRAW_EACH(if (thread == 0) { w->is = call->state[at]; });
        draw_take(call, &row, at, &before, w);
    }
    if (part.step == DRAW_FINISH) {
        DRAW_EACH(if (thread == 0) { draw_finish_part(call, &row, at, &w->is); });
        return;
    }
    draw_do(call, &row, at, &part, before.step != DRAW_SEARCH || before.by_mass != part.by_mass, w);
    DRAW_EACH(if (thread == 0) { call->state[at] = w->is; });
}

#endif
