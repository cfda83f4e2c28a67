/* Answers that were asked for before: steps of few requests come back to the same sums of spans,
 * and so do their prices. Each table has places by a hash of what the answer depends on, all of
 * which stands beside it; an answer takes the place of an older one. All zero before the first. */
#ifndef UNMASK_SIM_PRICE_KNOWN_H
#define UNMASK_SIM_PRICE_KNOWN_H

#include <string.h>

#include "sim/price/price.h"

enum { KNOWN_STEPS = 1 << 13, KNOWN_SETTLED = 1 << 10 };

/* What spreads keys over the upper half of a word. */
static const uint64_t known_spread = UINT64_C(0x9e3779b97f4a7c15);

/* The price of a step where nothing but its sums and chunks matters. */
struct known_step {
    struct {
        int64_t sym[SYM_COUNT];
        struct chunk_rows chunks;
    } of;
    bool is_known;
    struct step_price price;
};

static inline struct known_step *known_step_place(struct known_step table[KNOWN_STEPS],
                                                  const int64_t sym[SYM_COUNT]) {
    static const enum symbol telling[] = {SYM_TOKENS,     SYM_LOGIT_ROWS, SYM_CONTEXT_ROWS,
                                          SYM_PREFILL_QK, SYM_FULL_QK,    SYM_BLOCK_K,
                                          SYM_BLOCK_QK,   SYM_SELECT_N};
    uint64_t sums = 0;
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++) {
        sums = sums * UINT64_C(0xff51afd7ed558ccd) + (uint64_t)sym[telling[i]];
    }
    return &table[sums * known_spread >> 32 & (KNOWN_STEPS - 1)];
}

static inline bool known_step_is(const struct known_step *place, const int64_t sym[SYM_COUNT],
                                 const struct chunk_rows *chunks) {
    return place->is_known && memcmp(place->of.sym, sym, sizeof place->of.sym) == 0 &&
           memcmp(&place->of.chunks, chunks, sizeof *chunks) == 0;
}

static inline void known_step_keep(struct known_step *place, const int64_t sym[SYM_COUNT],
                                   const struct chunk_rows *chunks,
                                   const struct step_price *price) {
    place->is_known = true;
    memcpy(place->of.sym, sym, sizeof place->of.sym);
    place->of.chunks = *chunks;
    place->price = *price;
}

/* Where the clock settles under such steps. */
struct known_settled {
    struct power_step of; /* ns 0: free */
    double settled;
};

static inline double known_settled(struct known_settled table[KNOWN_SETTLED],
                                   const struct power *power, const struct power_step *step) {
    uint64_t words[sizeof *step / sizeof(uint64_t)], sum = 0;
    memcpy(words, step, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        sum = (sum + words[i]) * known_spread;
    }
    struct known_settled *place = &table[sum >> 32 & (KNOWN_SETTLED - 1)];
    if (memcmp(&place->of, step, sizeof *step) != 0) {
        *place = (struct known_settled){*step, power_settled(power, step) - 1};
    }
    return place->settled;
}

#endif
