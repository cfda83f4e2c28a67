/* Prices of attention that were asked for before: steps of few requests come back to the same sums
 * of spans. A table of KNOWN_SPANS places for each operator, by a hash of what its price depends
 * on; a price takes the place of an older one. All zero before the first. */
#ifndef UNMASK_SIM_PRICE_KNOWN_SPANS_H
#define UNMASK_SIM_PRICE_KNOWN_SPANS_H

#include <string.h>

#include "sim/price/lookup.h"

enum { KNOWN_SPANS = 1 << 12 };

/* The sums over the operator's spans, and its rows in all and in a chunk. */
struct spans_key {
    int64_t n, q, k, qk, rows, chunk; /* n 0: free */
};

static inline struct spans_key spans_key_of(const struct lookup *lookup,
                                            const struct step_shape *shape,
                                            struct chunk_rows chunks) {
    const struct op *op = lookup->op;
    const int64_t *sym = shape->sym, rows = sym[op->rows];
    const struct graph *graph = lookup->of->graph;
    return (struct spans_key){
        .n = sym[op->span_n],
        .q = sym[op->span_q],
        .k = sym[op->span_k],
        .qk = sym[op->span_qk],
        .rows = rows,
        .chunk = op->loop < 0 ? rows : loop_chunk_rows(graph, op->loop, shape, chunks)};
}

struct known_spans {
    struct spans_key of;
    struct op_price price;
};

/* The key's place in the table, which is its own from now on; whether it was before. */
static inline bool known_spans_find(struct known_spans table[KNOWN_SPANS],
                                    const struct spans_key *key, struct known_spans **place) {
    const uint64_t sums =
        (((uint64_t)key->qk * 31 + (uint64_t)key->k) * 31 + (uint64_t)key->q) * 7 +
        (uint64_t)key->n;
    *place = &table[sums * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (KNOWN_SPANS - 1)];
    if (memcmp(&(*place)->of, key, sizeof *key) == 0) {
        return true;
    }
    (*place)->of = *key;
    return false;
}

#endif
