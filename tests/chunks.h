/* What the suites of chunks share: random graphs, shapes and chunks. */
#ifndef UNMASK_TESTS_CHUNKS_H
#define UNMASK_TESTS_CHUNKS_H

#include "sim/base/rng.h"
#include "sim/graph/builder.h"
#include "sim/memory/chunk_search.h"
#include "tests/rig.h"

static const struct chunk_rows whole = {{0}};

static inline bool coin(struct rng *rng) {
    return rng_uniform(rng) < 0.5;
}

static inline void random_graph(struct rng *rng, struct graph *graph) {
    struct graph_options options = {.fused = coin(rng),
                                    .gathers_cache = coin(rng),
                                    .splits_first_layer = coin(rng),
                                    .selects = coin(rng),
                                    .compares_values = coin(rng),
                                    .logits_bytes = coin(rng) ? 2 : 4,
                                    .copy_bytes = coin(rng) ? 8 : 0,
                                    .softmax_bytes = coin(rng) ? 8 : 0,
                                    .fused_head = rng_uniform(rng) < 0.2,
                                    .fused_gate_up = coin(rng),
                                    .engine = coin(rng)};
    graph_build(graph, &model_table[rng_next(rng) % model_table_size], &options);
}

static inline struct step_shape random_shape(struct rng *rng) {
    struct step_shape shape;
    uint32_t longest = coin(rng) ? 300 : 30000;
    shape_clear(&shape);
    for (uint32_t i = rig_between(rng, 1, 6); i > 0; i--) {
        uint32_t canvas = rig_between(rng, 2, longest), queries = rig_between(rng, 1, canvas);
        struct span span = {.queries = queries,
                            .first_queries = canvas,
                            .context = canvas - queries,
                            .logit_rows = rig_between(rng, 0, queries),
                            .select_rows = rig_between(rng, 0, canvas),
                            .pack_rows = rig_between(rng, 0, canvas),
                            .value_rows = rig_between(rng, 0, canvas)};
        shape_add(shape.sym, &span, 1);
    }
    return shape;
}

static inline struct chunk_rows random_chunks(struct rng *rng) {
    struct chunk_rows chunks;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        chunks.of[kind] = rng_uniform(rng) < 0.3 ? 0 : rig_between(rng, 1, 5000);
    }
    return chunks;
}

#endif
