/* What the suites of chunks share: random graphs, and steps of a few or of many tokens. */
#ifndef UNMASK_TESTS_SUPPORT_CHUNKS_H
#define UNMASK_TESTS_SUPPORT_CHUNKS_H

#include "sim/graph/builder.h"
#include "sim/memory/chunk_search.h"
#include "tests/support/random_step.h"

static const struct chunk_rows whole = {{0}};

static inline bool coin(struct rng *rng) {
    return rng_uniform(rng) < 0.5;
}

static inline void random_graph(struct rng *rng, struct graph *graph) {
    struct graph_options options =
        MAKE(struct graph_options, .fused = coin(rng), .gathers_cache = coin(rng),
             .splits_first_layer = coin(rng), .selects = coin(rng), .compares_values = coin(rng),
             .logits_bytes = coin(rng) ? 2 : 4, .copy_bytes = coin(rng) ? 8 : 0,
             .softmax_bytes = coin(rng) ? 8 : 0, .fused_head = rng_uniform(rng) < 0.2,
             .fused_gate_up = coin(rng), .engine = coin(rng));
    if (rng_uniform(rng) < 0.3) {
        options.query_chunks = options.fused = true;
        options.gathers_cache = options.splits_first_layer = false;
        options.selects = options.compares_values = false;
    }
    graph_build(graph, any_model(rng), &options);
}

static inline struct step_shape short_or_long(struct rng *rng) {
    return random_shape(rng, 6, coin(rng) ? 300 : 30000);
}

#endif
