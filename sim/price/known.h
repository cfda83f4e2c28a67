/* Answers that were asked for before: steps of few requests come back to the same sums of spans,
 * and so do their prices. Each table has places by a hash of what the answer depends on; an answer
 * takes the place of an older one. All zero before the first. */
#ifndef UNMASK_SIM_PRICE_KNOWN_H
#define UNMASK_SIM_PRICE_KNOWN_H

#include "sim/price/captured.h"
#include "sim/price/price.h"

#define KNOWN_SEEN   (UINT64_C(1) << 62)
#define KNOWN_PRICED (UINT64_C(1) << 63)
enum { KNOWN_STEPS = 1 << 14, KNOWN_SETTLED = 1 << 10, KNOWN_SPANS = 1 << 10 };

/* Prices of steps where nothing but sums and chunks matters, in whole lines of the processor's
 * cache; keys stand apart, since most that are looked at are of other steps. A key is a hash, which
 * two steps share as good as never, and its price is in one of two places side by side. A price is
 * kept when it is asked for a second time: many steps never come back, and to write their prices
 * takes longer than to look for them. */
struct known_steps {
    uint64_t keys[KNOWN_STEPS]; /* 0: free; KNOWN_PRICED is set where the price is there */
    struct {
        _Alignas(64) struct step_price price;
    } of[KNOWN_STEPS];
};

static inline uint64_t known_step_key(const int64_t sym[SYM_COUNT],
                                      const struct chunk_rows *chunks) {
    uint64_t key = captured_sums_hash(sym);
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        key = captured_hash_word(key, (uint64_t)chunks->of[kind]);
    }
    return key | KNOWN_SEEN | KNOWN_PRICED;
}

/* Where the price of a key is, if it is known, or takes the place of another. */
static inline size_t known_step_place(const struct known_steps *known, uint64_t key) {
    const size_t first = key & (KNOWN_STEPS - 1), second = first ^ 1;
    /* Neither the key nor the price is in the processor's cache, mostly: they come together. */
    for (size_t line = 0; line < sizeof known->of[first]; line += 64) {
        __builtin_prefetch((const char *)&known->of[first] + line);
    }
    const bool is_first = (known->keys[first] | KNOWN_PRICED) == key;
    if (is_first || (known->keys[second] | KNOWN_PRICED) == key) {
        return is_first ? first : second;
    }
    return known->keys[first] == 0 || known->keys[second] != 0 ? first : second;
}

/* Sequences, sum q, sum k, sum of (query, key) pairs; where they run in chunks, a chunk's rows and
 * all rows. */
enum { SPAN_SUMS = 6 };

/* Prices of one attention operator: a step's spans of one kind come back while those of other kinds
 * differ. `of` is all that such a price depends on. */
struct known_spans {
    int64_t of[SPAN_SUMS]; /* the first 0: free */
    struct op_price price;
};

/* Where the clock settles under such steps. */
struct known_settled {
    struct power_step of; /* ns 0: free */
    double settled;
};

static inline double known_settled(struct known_settled table[KNOWN_SETTLED],
                                   const struct power *power, const struct power_step *step) {
    struct known_settled *place = &table[captured_hash(step, sizeof *step) & (KNOWN_SETTLED - 1)];
    if (memcmp(&place->of, step, sizeof *step) != 0) {
        *place = (struct known_settled){*step, power_settled(power, step) - 1};
    }
    return place->settled;
}

#endif
