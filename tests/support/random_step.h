/* Steps drawn at random: what is asked of the model, and in which chunks its loops come. */
#ifndef UNMASK_TESTS_SUPPORT_RANDOM_STEP_H
#define UNMASK_TESTS_SUPPORT_RANDOM_STEP_H

#include "sim/base/rng.h"
#include "sim/memory/chunk_search.h"
#include "sim/model/model.h"
#include "sim/step/builder.h"
#include "tests/support/rig.h"

static inline const struct model *any_model(struct rng *rng) {
    struct err err = {0};
    const struct model *const *models = model_all(&err);
    size_t n = 0;
    while (models[n] != NULL) {
        n++;
    }
    return models[rng_next(rng) % n];
}

static inline struct graph_options random_options(struct rng *rng) {
    return MAKE(struct graph_options, .fused = rng_uniform(rng) < 0.5,
                .gathers_cache = rng_uniform(rng) < 0.5,
                .splits_first_layer = rng_uniform(rng) < 0.5, .selects = rng_uniform(rng) < 0.5,
                .compares_values = rng_uniform(rng) < 0.5, .logits_bytes = 2,
                .copy_bytes = rng_uniform(rng) < 0.5 ? 8 : 0,
                .softmax_bytes = rng_uniform(rng) < 0.5 ? 8 : 0);
}

/* From 1 to `most` requests with canvases of up to `longest` tokens. */
static inline struct step_shape random_shape(struct rng *rng, uint32_t most, uint32_t longest) {
    struct step_shape shape;
    shape_clear(&shape);
    for (uint32_t i = rig_between(rng, 1, most); i > 0; i--) {
        uint32_t canvas = rig_between(rng, 2, longest), queries = rig_between(rng, 1, canvas);
        struct span span = MAKE(
            struct span, .phase = PHASE_REFRESH, .queries = queries, .first_queries = canvas,
            .context = canvas - queries, .logit_rows = rig_between(rng, 0, queries),
            .select_rows = rig_between(rng, 0, canvas), .pack_rows = rig_between(rng, 0, canvas),
            .value_rows = rig_between(rng, 0, canvas));
        shape_add(shape.sym, &span, 1);
    }
    return shape;
}

/* Of each kind all rows at once, or at most so many. */
static inline struct chunk_rows random_chunks(struct rng *rng, uint32_t most) {
    struct chunk_rows chunks;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        chunks.of[kind] = rng_uniform(rng) < 0.4 ? 0 : rig_between(rng, 1, most);
    }
    return chunks;
}

/* What the suites of chunks share: random graphs, and steps of a few or of many tokens. */

static const struct chunk_rows no_chunks = {{0}};

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

/* A pass over so many tokens that all have logits. */
static inline struct step_shape full_pass(uint32_t tokens) {
    struct step_shape shape;
    struct span span = {
        .phase = PHASE_REFRESH, .queries = tokens, .first_queries = tokens, .logit_rows = tokens};
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    return shape;
}

#endif
