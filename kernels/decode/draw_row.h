/* Drawing a token of a row of logits (draw.h), as a thread block does it. draw_row is its work in
 * steps: in CUDA every thread takes its part of each, with a barrier after it; in C one thread
 * takes the parts of all, one after the other. */
#ifndef UNMASK_KERNELS_DECODE_DRAW_ROW_H
#define UNMASK_KERNELS_DECODE_DRAW_ROW_H

#include <stdbool.h>

#include "kernels/calls.h"
#include "kernels/rules/draw.h"

enum { DRAW_BINS = 256, DRAW_TILES = DRAW_MAX_VOCAB / DRAW_THREADS };

/* What the threads of a row share. */
struct draw_work {
    unsigned long long thread_mass[DRAW_THREADS], bin_mass[DRAW_BINS];
    uint32_t bin_count[DRAW_BINS], tile[DRAW_TILES];
    /* Of all tokens at the temperature; of the distribution that confidences are of, with the sum
     * of mass times (largest - logit) / temperature, in 2^-40; of kept tokens. */
    unsigned long long mass, of_mass, of_weighted, kept_mass;
    unsigned long long limit, above_mass; /* of a search */
    uint32_t above_count, prefix, second, edge, ties;
    int32_t n_kept, edge_end; /* of the tokens as likely as the last that is kept, those below */
    bool cuts;                /* some tokens are not kept */
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

/* A row of a call, and what its threads know alike. */
struct draw_row {
    const struct call_draw *call;
    const void *logits;
    float top, sharpness;
    uint64_t bits;
    int32_t first; /* the most likely token */
    int shift;     /* the lowest bits of a key that tell logits of the dtype apart */
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

RULE_FUNCTION bool draw_keeps(const struct draw_row *row, const struct draw_work *w,
                              int32_t token) {
    const uint32_t rank = w->cuts ? draw_rank(row, token) : 1;
    return !w->cuts || rank > w->edge || (rank == w->edge && token < w->edge_end);
}

RULE_FUNCTION void draw_begin(struct draw_work *w, int thread) {
    if (thread == 0) {
        w->of_mass = w->of_weighted = 0;
        w->second = 0;
        w->cuts = false;
    }
}

/* All tokens, before any is cut off. */
RULE_FUNCTION void draw_sum(const struct draw_row *row, struct draw_work *w, int thread) {
    const struct call_draw *call = row->call;
    const bool of_model = call->by.of == DRAW_OF_MODEL, of_all = call->by.of != DRAW_OF_KEPT;
    const float sharpness = of_model ? 1.0f : row->sharpness;
    unsigned long long mass = 0, of_mass = 0, weighted = 0;
    uint32_t second = 0;
    for (int32_t token = thread; token < call->n_vocab; token += DRAW_THREADS) {
        const float x = draw_logit(row, token), below = RULE_ADD(x, -row->top);
        mass += draw_mass(below, row->sharpness);
        of_mass += of_model ? draw_mass(below, 1.0f) : 0;
        weighted += of_all && call->margin ? draw_weighted(below, sharpness) : 0;
        const uint32_t key = draw_key(x);
        second = token != row->first && key > second ? key : second;
    }
    w->thread_mass[thread] = mass;
    DRAW_ADD(w->of_mass, of_mass);
    DRAW_ADD(w->of_weighted, weighted);
    DRAW_MOST(w->second, second);
}

RULE_FUNCTION void draw_total(const struct draw_row *row, struct draw_work *w, int thread) {
    if (thread == 0) {
        w->mass = 0;
        for (int other = 0; other < DRAW_THREADS; other++) {
            w->mass += w->thread_mass[other];
        }
        w->of_mass = row->call->by.of == DRAW_OF_MODEL ? w->of_mass : w->mass;
        w->kept_mass = w->mass;
        w->n_kept = row->call->n_vocab;
    }
}

RULE_FUNCTION void draw_empty_bins(struct draw_work *w, int thread) {
    if (thread < DRAW_BINS) {
        w->bin_mass[thread] = 0;
        w->bin_count[thread] = 0;
    }
}

/* Of the tokens whose rank begins with the prefix, by its next eight bits. */
RULE_FUNCTION void draw_fill_bins(const struct draw_row *row, struct draw_work *w, int shift,
                                  int thread) {
    for (int32_t token = thread; token < row->call->n_vocab; token += DRAW_THREADS) {
        const uint32_t rank = draw_rank(row, token);
        if ((uint64_t)rank >> (shift + 8) == w->prefix) {
            const uint32_t bin = rank >> shift & (DRAW_BINS - 1);
            DRAW_ADD(w->bin_mass[bin], draw_mass(draw_below(row, token), row->sharpness));
            DRAW_ADD(w->bin_count[bin], 1);
        }
    }
}

/* The lowest bin that holds anything and has no more than the limit above it. */
RULE_FUNCTION void draw_pick_bin(struct draw_work *w, bool by_mass, int thread) {
    if (thread == 0) {
        unsigned long long mass = w->above_mass;
        uint32_t count = w->above_count, found = 0;
        for (int bin = DRAW_BINS - 1; bin >= 0; bin--) {
            if ((by_mass ? mass : count) > w->limit) {
                break;
            }
            if (w->bin_count[bin] > 0) {
                found = (uint32_t)bin;
                w->above_mass = mass;
                w->above_count = count;
            }
            mass += w->bin_mass[bin];
            count += w->bin_count[bin];
        }
        w->prefix = w->prefix << 8 | found;
    }
}

/* How many tokens of the last bin, which are equally likely, are kept: the first ones. */
RULE_FUNCTION void draw_set_edge(const struct draw_row *row, struct draw_work *w, bool by_mass,
                                 int thread) {
    if (thread == 0) {
        const uint32_t bin = w->prefix & (DRAW_BINS - 1), n = w->bin_count[bin];
        const unsigned long long each = w->bin_mass[bin] / n;
        unsigned long long fit = n;
        if (!by_mass) {
            fit = w->limit - w->above_count + 1;
        } else if (each > 0) {
            fit = (w->limit - w->above_mass) / each + 1;
        }
        w->ties = fit < n ? (uint32_t)fit : n;
        w->edge = w->prefix;
        w->edge_end = w->ties < n ? -1 : row->call->n_vocab;
        w->kept_mass = w->above_mass + w->ties * each;
        w->n_kept = (int32_t)(w->above_count + w->ties);
        w->cuts = true;
    }
}

RULE_FUNCTION void draw_empty_tiles(struct draw_work *w, int thread) {
    for (int tile = thread; tile < DRAW_TILES; tile += DRAW_THREADS) {
        w->tile[tile] = 0;
    }
}

RULE_FUNCTION void draw_fill_tiles(const struct draw_row *row, struct draw_work *w, int thread) {
    for (int32_t token = thread; token < row->call->n_vocab; token += DRAW_THREADS) {
        if (draw_rank(row, token) == w->edge) {
            DRAW_ADD(w->tile[token / DRAW_THREADS], 1);
        }
    }
}

/* The end of the equally likely tokens that are kept. */
RULE_FUNCTION void draw_set_edge_end(const struct draw_row *row, struct draw_work *w, int thread) {
    if (thread == 0) {
        uint32_t left = w->ties;
        int32_t tile = 0;
        while (w->tile[tile] < left) {
            left -= w->tile[tile++];
        }
        int32_t token = tile * DRAW_THREADS;
        while (left > 0) {
            left -= draw_rank(row, token++) == w->edge;
        }
        w->edge_end = token;
    }
}

/* Cuts off by the number of tokens before the last, or by their mass. */
RULE_FUNCTION void draw_cut(const struct draw_row *row, struct draw_work *w, bool by_mass) {
    DRAW_EACH(if (thread == 0) {
        w->limit = by_mass ? draw_limit(w->kept_mass, row->call->by.top_p)
                           : (unsigned long long)row->call->by.top_k - 1;
        w->above_mass = 0;
        w->above_count = w->prefix = 0;
    });
    for (int shift = 24 - row->shift; shift >= 0; shift -= 8) {
        DRAW_EACH(draw_empty_bins(w, thread));
        DRAW_EACH(draw_fill_bins(row, w, shift, thread));
        DRAW_EACH(draw_pick_bin(w, by_mass, thread));
    }
    DRAW_EACH(draw_set_edge(row, w, by_mass, thread));
}

RULE_FUNCTION void draw_sum_kept(const struct draw_row *row, struct draw_work *w, int thread) {
    const bool weighs = row->call->by.of == DRAW_OF_KEPT && row->call->margin;
    unsigned long long mass = 0, weighted = 0;
    for (int32_t token = thread; token < row->call->n_vocab; token += DRAW_THREADS) {
        if (draw_keeps(row, w, token)) {
            const float below = draw_below(row, token);
            mass += draw_mass(below, row->sharpness);
            weighted += weighs ? draw_weighted(below, row->sharpness) : 0;
        }
    }
    w->thread_mass[thread] = mass;
    DRAW_ADD(w->of_weighted, weighted);
}

/* The kept token in which the random number falls. */
RULE_FUNCTION int32_t draw_find(const struct draw_row *row, const struct draw_work *w) {
    unsigned long long left = draw_target(w->kept_mass, row->bits);
    int32_t token = 0;
    while (left >= w->thread_mass[token]) {
        left -= w->thread_mass[token++];
    }
    for (;; token += DRAW_THREADS) {
        if (draw_keeps(row, w, token)) {
            const unsigned long long mass = draw_mass(draw_below(row, token), row->sharpness);
            if (left < mass) {
                return token;
            }
            left -= mass;
        }
    }
}

RULE_FUNCTION void draw_finish(const struct draw_row *row, struct draw_work *w, int64_t at,
                               int thread) {
    const struct call_draw *call = row->call;
    if (thread != 0) {
        return;
    }
    const int32_t token = call->by.draws ? draw_find(row, w) : row->first;
    const bool is_kept = call->by.of == DRAW_OF_KEPT;
    const float sharpness = call->by.of == DRAW_OF_MODEL ? 1.0f : row->sharpness;
    const bool has_second = (is_kept ? w->n_kept : call->n_vocab) > 1;
    const float second = RULE_ADD(draw_unkey(w->second), -row->top);
    const struct draw_results results = draw_results_of(
        draw_mass(draw_below(row, token), sharpness), has_second ? draw_mass(second, sharpness) : 0,
        is_kept ? w->kept_mass : w->of_mass, w->of_weighted);
    call->token[at] = token;
    call->confidence[at] = results.confidence;
    if (call->margin) {
        call->margin[at] = results.margin;
        call->entropy[at] = results.entropy;
    }
}

/* Row `at` of a call, by all threads of a block. Where the most likely token's confidence is no
 * number nothing is drawn. */
RULE_FUNCTION void draw_row(const struct call_draw *call, int64_t at, struct draw_work *w) {
    if (call->confidence[at] != call->confidence[at]) {
        return;
    }
    const int64_t bytes = call->dtype == KERNEL_F32 ? 4 : 2;
    struct draw_row row;
    row.call = call;
    row.logits = (const char *)call->logits + at * call->n_vocab * bytes;
    row.sharpness = RULE_DIVIDE(1.0f, call->by.temperature);
    row.first = call->token[at];
    row.shift = call->dtype == KERNEL_F32 ? 0 : 16;
    row.top = draw_logit(&row, row.first);
    row.bits = call->by.draws ? call->bits[at] : 0;
    DRAW_EACH(draw_begin(w, thread));
    DRAW_EACH(draw_sum(&row, w, thread));
    DRAW_EACH(draw_total(&row, w, thread));
    if (call->by.top_k > 0 && call->by.top_k < (uint32_t)call->n_vocab) {
        draw_cut(&row, w, false);
    }
    if (call->by.top_p < 1) {
        draw_cut(&row, w, true);
    }
    if (w->cuts && w->edge_end < 0) {
        DRAW_EACH(draw_empty_tiles(w, thread));
        DRAW_EACH(draw_fill_tiles(&row, w, thread));
        DRAW_EACH(draw_set_edge_end(&row, w, thread));
    }
    if (w->cuts || call->by.of == DRAW_OF_KEPT) {
        DRAW_EACH(draw_sum_kept(&row, w, thread));
    }
    DRAW_EACH(draw_finish(&row, w, at, thread));
}

#endif
