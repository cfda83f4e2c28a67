/* A cost model from inside: what opening one (open.c) leaves for the pricing of steps (price.c). */
#ifndef UNMASK_SIM_PRICE_COST_MODEL_H
#define UNMASK_SIM_PRICE_COST_MODEL_H

#include "sim/price/known.h"
#include "sim/price/lookup.h"
#include "sim/price/price.h"

/* Every operator but attention depends on one symbol. The sum over the operators of a symbol is
 * remembered for each value below TABLE_VALUES, in the chunks it was last asked for; larger ones
 * are computed each time. */
enum { TABLE_VALUES = 1 << 17 };

struct known_price {
    double ns; /* 0: not yet known */
    double compute_ns, flops_j, bytes_j;
    struct chunk_rows chunks;
    uint16_t lookups[PRICE_MATCH_COUNT];
    float match_ns[PRICE_MATCH_COUNT], behind_ns, link_ns; /* for shares alone: floats will do */
};

/* A step's host time and launches by what is in it, all layers together. */
struct host_terms {
    double step_ns, launches, request_ns, request_launches;
};

struct cost_model {
    struct lookup_shared pricing;
    const struct profile *profile;
    const struct power *power;            /* the profile's; NULL: it has none */
    struct lookup lookups[GRAPH_MAX_OPS]; /* of each operator */
    uint32_t n_behind;
    bool knows_issued;
    enum provenance_kind kind, behind_kind; /* PROVENANCE_ROOFLINE where there is no such profile */
    enum symbol used[SYM_COUNT];            /* that some operator depends on alone, in order */
    uint32_t n_used;
    struct known_price *known[SYM_COUNT];           /* TABLE_VALUES entries, for used symbols */
    uint32_t attention[GRAPH_MAX_OPS], n_attention; /* operators priced from span sums */
    struct known_steps *steps;                      /* NULL: some operator goes by every span */
    struct known_spans *spans;     /* KNOWN_SPANS of each attention operator; NULL: the same */
    struct known_settled *settled; /* of steps, where the profile knows the card's power */
    const struct lookup *waiting;  /* the operator that waits; NULL: none */
    struct host_terms host[HOST_KIND_COUNT];
    double n_executions; /* operators of one step, repetitions counted */
};

#endif
