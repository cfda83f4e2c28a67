/* The memory budget: how a device is divided before the first request.
 *
 * Device memory = weights + runtime reserve + workspace (the placement's peak at the worst step the
 * system allows) + KV pool. This is dLLM-Serve's offline profiler (arXiv 2512.17077, section 4.2)
 * with the dummy run replaced by placing the step graph: with the logits bounded, the workspace
 * shrinks and the pool grows. Where chunks are searched for, the worst step is chunked only as far
 * as a request of the profiled canvas needs its share of the pool, or else a page. A pool that was
 * sized next to a smaller step leaves a larger one the rest of the device. */
#ifndef UNMASK_SIM_MEMORY_BUDGET_H
#define UNMASK_SIM_MEMORY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/memory/chunk_search.h"
#include "sim/model/gpu.h"

enum kv_layout {
    KV_PAGES, /* fixed pages out of one pool; a request holds as many as its rows need */
    KV_SLAB,  /* each request its own rows, drawn from what workspace and cache share */
};

struct budget_request {
    const struct gpu *gpu;
    const struct graph *graph;
    const struct planner *planner;
    const struct chunk_rule *chunks;
    double memory_utilization;   /* share of the device the system may fill */
    double pool_share;           /* share of what weights and reserve leave */
    int64_t reserve_bytes;       /* CUDA context, library workspaces */
    uint32_t kv_layout;          /* enum kv_layout */
    uint32_t page_tokens;        /* rows of one page */
    uint32_t pool_pages;         /* pages of the pool; 0: as many as memory leaves */
    int64_t row_bytes;           /* one row of cached state over all layers; 0: nothing is cached */
    int64_t local_row_bytes;     /* of that in layers with a window */
    uint32_t local_rows;         /* that these hold of a request, the last ones; 0: all */
    uint32_t most_logit_rows;    /* of a step; 0: its query tokens */
    uint32_t max_batched_tokens; /* query tokens of the worst step */
    uint32_t profiled_tokens;    /* pages: of the step that sizes the pool; at most those */
    uint32_t canvas_tokens;      /* the longest canvas profiled for */
    uint32_t slab_rows;          /* cached rows of a request with that canvas */
    uint32_t output_rows;        /* logit rows of its full pass (slabs) */
    bool selects;                /* full passes score their context */
    uint32_t max_requests;       /* 0: as many as fit (slabs), or no bound of its own (pages) */
};

struct budget {
    int64_t total_bytes, usable_bytes, weights_bytes, reserve_bytes;
    int64_t activation_bytes; /* workspace at the worst step */
    int64_t logits_bytes;     /* what the tensors sized by logits take of it */
    int64_t pool_bytes;       /* slabs: workspace included */
    int64_t unit_bytes;       /* of one page, or of one row */
    uint32_t unit_rows;
    int64_t local_unit_bytes; /* of it what is given back once local_units came after it */
    uint32_t local_units;
    uint32_t max_requests;
    bool shares_pool; /* slabs: workspace and cached state draw on the same pool_bytes */
};

/* ERR_WORLD with the figures when the weights do not fit, or, for pages, weights, the largest step
 * and one page together. A slab system that cannot run the profiled canvas still takes shorter
 * ones. */
int budget_make(const struct budget_request *request, struct budget *out, struct err *err);

/* Bytes a request with `rows` rows of cached state takes from the pool. */
int64_t budget_request_bytes(const struct budget *budget, uint32_t rows);

/* What the workspace of a step may take while requests hold this much cached state. */
int64_t budget_workspace_bytes(const struct budget *budget, int64_t kv_bytes);

#endif
