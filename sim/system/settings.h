/* Settings: a system's configuration besides its policies, its planner and its runtime. */
#ifndef UNMASK_SIM_SYSTEM_SETTINGS_H
#define UNMASK_SIM_SYSTEM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/param.h"
#include "sim/decode/smooth.h"
#include "sim/model/model.h"
#include "sim/policy/request.h"

enum logit_scope {
    LOGITS_QUERIES,    /* every row that leaves the trunk, as the released baselines do */
    LOGITS_GENERATION, /* the output region in a block's first pass, else the block */
    LOGITS_BLOCK,      /* the active block */
    LOGITS_MASKED,     /* the active block's masked positions */
};

/* What a step hands on to the next one. */
enum iteration {
    ITERATION_PLAIN,  /* the canvas */
    ITERATION_SMOOTH, /* and its predictions for masked positions (sim/decode/smooth.h) */
};

/* What a token's confidence is its probability in. */
enum probabilities {
    PROBABILITIES_RELEASED, /* as the code released with the model has it */
    PROBABILITIES_TEMPERED,
    PROBABILITIES_MODEL,
    PROBABILITIES_KEPT,
};

/* When a request ends whose text does. */
enum early_stop {
    STOP_NEVER,    /* every output position is decoded */
    STOP_BLOCK,    /* with the block that holds the end of text */
    STOP_POSITION, /* as soon as that position and all before it are decoded */
    STOP_WINDOW,   /* with the blocks in flight once an end of text is decided in any of them */
};

/* Where the tensors of a step come from. */
enum step_allocator {
    ALLOCATOR_PLANNED, /* one buffer, placed by the planner */
    ALLOCATOR_TORCH,   /* eager PyTorch asks its caching allocator for each */
    ALLOCATOR_TORCH_EXPANDABLE,
    ALLOCATOR_TORCH_COMPILE, /* so does torch.compile's code, layer by layer */
};
extern const char *const step_allocator_words[]; /* ends with NULL */

/* The keys of a system that are not a policy's or the runtime's (table system_params). */
enum sample_scope {
    SAMPLES_LOGITS, /* every row of logits */
    SAMPLES_OUTPUT, /* those of the output region */
};

/* Whose choice of experts is priced. */
enum expert_router {
    ROUTER_TRAINED,
    ROUTER_RANDOM, /* random weights', as live runs without a checkpoint have */
};

enum profile_canvas {
    PROFILE_CONTEXT,
    PROFILE_WORKLOAD, /* the longest request of the workload, where one is known */
};

enum { SETTINGS_MOST_REQUESTS = 65536 }; /* that max_requests can be */

/* Number types, of struct storage: of weights one of number_words; of the others one of
 * storage_words, whose first goes by the weights, or by the GPU. */
struct storage_settings {
    uint32_t weights, activations, cache, head, wide;
};

struct settings {
    struct storage_settings storage;
    uint32_t block_tokens;          /* 0: the model's */
    uint32_t blocks_in_flight;      /* of a request, at most */
    double block_add_threshold;     /* share of a block that is decided before the next one is */
    bool window_slides;             /* by position, not by block */
    bool static_blocks;             /* as many run in every step, decided on or not */
    uint32_t steps_per_block;       /* 0: as many as the block has positions */
    uint32_t context_tokens;        /* 0: the model's maximum, at most 32768 */
    uint32_t profile_canvas_tokens; /* canvas of the profiling run; 0: as profile_canvas says */
    uint32_t profile_canvas;        /* enum profile_canvas */
    bool profile_whole_canvases;    /* pages: the profiled step holds whole canvases alone */
    uint32_t max_batched_tokens, max_requests, replicas, max_in_system;
    uint32_t page_tokens, pool_pages, kv_layout, logit_scope, sample_scope;
    uint32_t allocator; /* enum step_allocator */
    uint32_t chunk_search, chunk_grid, attention_chunks, ffn_chunks, logit_chunks;
    uint32_t layers;          /* of the model's that run; 0: all */
    uint32_t tensor_parallel; /* GPUs that hold a replica together */
    bool expert_parallel;
    double experts_hit;
    uint32_t expert_router; /* enum expert_router */
    double evict_wait_ns;   /* see struct graph_options */
    int64_t logit_chunk_rows, reserve_bytes, moe_reserve_bytes;
    double memory_utilization, pool_share;
    /* Steps that the host starts without looking at what they come to (arXiv 2510.08666). */
    uint32_t unroll_maximum, unroll_expected_tpf;
    uint32_t early_stop; /* enum early_stop */
    uint32_t iteration;  /* enum iteration */
    struct smoothing smoothing;
    int64_t swap_host_bytes; /* of the host's memory, for each GPU's requests; 0: none */
    bool swap_overlaps;
    bool skip_ahead;
    bool decides_ahead;
    bool prefix_caching;
    uint32_t prefix_store_tokens; /* leading layers: of shared prefixes that a replica keeps */
    bool beyond_positions;
    double confidence_drop; /* taken from the logits of what a decode process draws */
    double temperature;     /* that logits are divided by */
    bool sampling;
    uint32_t top_k, probabilities; /* enum probabilities; 0: resolved by the model */
    double top_p;
};
extern const struct param system_params[];
extern const size_t system_n_params;

/* What the model's mask means for the requests that it serves. */
enum causality system_causality(const struct model *model);

/* Logit rows within the scope, of `rows` that leave the trunk; `first_pass`: a block's first pass
 * over the whole canvas. */
/* Positions that a request has in flight at most: entries by position of its window. */
static inline uint32_t settings_window_tokens(const struct settings *settings) {
    const uint32_t block = settings->block_tokens;
    return block * settings->blocks_in_flight;
}

uint32_t system_scope_rows(const struct settings *settings, uint32_t rows, uint32_t output_tokens,
                           uint32_t block_tokens, uint32_t masked, bool first_pass);

/* How many of `logit_rows` are sampled, as in struct span. */
uint32_t system_sampled_rows(const struct settings *settings, uint32_t logit_rows,
                             uint32_t output_tokens);

#endif
