/* Attention in its three kinds: spans that attend to themselves, to cached and own keys, and in
 * prefill. */
#include <string.h>

#include "engine/op/launch.h"
#include "sim/base/num.h"

/* Keys and values that were projected apart, of all rows, whatever the instance's. */
static struct qkv split_keys(const struct launch *l, int tensor) {
    return split_at(l, tensor, tensor_at(l->issue, tensor), 0);
}

/* With two inputs, a chunk of queries and all keys and values. */
static int launch_full_attention(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    const bool apart = l->op->in[1] >= 0;
    /* Of all spans, whatever goes on. */
    const bool is_stream = l->packed->features && l->op->rows == SYM_FIRST_TOKENS;
    const struct qkv queries = split(l, l->op->in[0]);
    const struct qkv from = apart ? split_keys(l, l->op->in[1]) : queries;
    const struct call_dense_attention call = {
        .q = queries.q,
        .k = from.k,
        .v = from.v,
        .y = rows_at(l, l->op->out[0]),
        .start = narrow(l, is_stream ? PACKED_STREAM_START : PACKED_START),
        .q_stride = queries.stride,
        .kv_stride = from.stride,
        .y_stride = row_elements(l, l->op->out[0]),
        .n_requests = n->n_plain + n->n_select + (is_stream ? n->n_block + n->n_silent : 0),
        .n_tokens = is_stream ? n->n_stream_tokens : n->n_full_tokens,
        .n_heads = (int32_t)l->model->heads,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .max_tokens = is_stream ? n->max_stream_tokens : n->max_full_tokens,
        .first_query = apart ? (int32_t)l->instance->first_row : 0,
        .n_queries = apart ? (int32_t)l->instance->n_rows : 0,
        .dtype = l->dtype,
    };
    return call.n_requests > 0 ? l->table->dense_attention(l->device, &call) : DEVICE_OK;
}

/* Spans [first, first + n) in pages, at most max_queries queries each. */
static int launch_paged_attention(const struct launch *l, int32_t first, int32_t n,
                                  int32_t max_queries) {
    const struct packed *packed = l->packed;
    const struct qkv from = split(l, l->op->in[0]), kv = pool_rows(l);
    const int32_t max_pages = packed->n.max_pages, page_rows = (int32_t)packed->limits.page_rows;
    const struct call_paged_attention call = {
        .q = from.q,
        .k = kv.k,
        .v = kv.v,
        .y = output(l, 0),
        .start = narrow(l, PACKED_START) + first,
        .extent = narrow(l, PACKED_EXTENT),
        .before = packed->n.checks ? narrow(l, PACKED_BEFORE) : NULL,
        .pages = narrow(l, PACKED_PAGES) + (int64_t)first * max_pages,
        .q_stride = from.stride,
        .kv_stride = kv.stride,
        .y_stride = row_elements(l, l->op->out[0]),
        .n_requests = n,
        .n_tokens = packed->n.n_tokens,
        .n_heads = (int32_t)l->model->heads,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .max_pages = max_pages,
        .page_rows = page_rows,
        .max_queries = max_queries,
        .max_extent = max_pages * page_rows,
        .cache_fp8 = caches_fp8(l),
        .dtype = l->dtype,
        .local_window = (int32_t)l->model->local_window,
        .positions = narrow(l, PACKED_POSITIONS),
    };
    return n > 0 ? l->table->paged_attention(l->device, &call) : DEVICE_OK;
}

static int launch_prefill_attention(const struct launch *l) {
    return launch_paged_attention(l, 0, counts(l)->n_plain, counts(l)->max_full_tokens);
}

static int launch_block_attention(const struct launch *l) {
    if (l->packed->exact) {
        return launch_paged_attention(l, counts(l)->n_plain, counts(l)->n_block,
                                      counts(l)->max_block_tokens);
    }
    const struct packed_counts *n = counts(l);
    const int32_t first = n->n_plain + n->n_select;
    const struct qkv from = split(l, l->op->in[0]);
    const struct call_block_attention call = {
        .q = from.q,
        .k = from.k,
        .v = from.v,
        .cache = l->issue->room->pool,
        .y = output(l, 0),
        .start = narrow(l, PACKED_START) + first,
        .kept = narrow(l, PACKED_KEPT) + first,
        .cache_start = cache_start(l) + first,
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .y_stride = row_elements(l, l->op->out[0]),
        .n_requests = n->n_block,
        .n_heads = (int32_t)l->model->heads,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .max_queries = n->max_block_tokens,
        .own_cached = l->packed->limits.renews_rows,
        .cache_fp8 = caches_fp8(l),
        .dtype = l->dtype,
    };
    return n->n_block > 0 ? l->table->block_attention(l->device, &call) : DEVICE_OK;
}

/* ---- what is measured ---- */

static void add_spans(struct points *points, struct calibration_point *point, int64_t batch,
                      int64_t q, int64_t kv) {
    const int64_t most = points->bounds->max_tokens, heads = points->graph->model->heads;
    const int64_t sizes[] = {batch, q, kv, heads, point->kv_heads, point->head_dim};
    const int64_t without_kv[] = {batch, q, heads, point->kv_heads, point->head_dim, 0};
    point->n_sizes = kv > 0 ? 6 : 5;
    memcpy(point->sizes, kv > 0 ? sizes : without_kv, sizeof sizes);
    if (batch * q <= most) {
        points_add(points, point);
    }
}

/* Whether this many rows of one layer fit, in whole pages where there are pages. */
static bool rows_fit(const struct points *points, int64_t batch, int64_t rows, bool paged) {
    int64_t spare = paged ? points->bounds->page_rows : 0;
    return batch * (rows + spare) <= points->bounds->max_kv_rows;
}

/* Rows that a query of the operator's layers sees at most: what lies before a window is left out of
 * prices, too. */
static int64_t most_kv_rows(const struct points *points, const struct op *op) {
    const int64_t window = graph_heads(points->graph, op).local_window;
    return window > 0 ? num_smaller(window, points->bounds->max_kv_rows)
                      : points->bounds->max_kv_rows;
}

static void fill_full(struct trial *trial, const struct calibration_point *point) {
    for (int64_t r = 0; r < point->sizes[POINT_BATCH]; r++) {
        trial_add(trial, (struct span){.phase = PHASE_REFRESH,
                                       .queries = (uint32_t)point->sizes[POINT_Q]});
    }
}

static void add_full(struct points *points, const struct op *op) {
    const int64_t max = points->bounds->max_tokens;
    struct sizes batches = {.n = 0}, queries = {.n = 0};
    struct calibration_point point = point_of(points, op);
    point.fill = fill_full;
    SIZES_ADD(&batches, max, 1, 4, 16, 64);
    SIZES_ADD(&queries, max, 32, 128, 512, 2048, 8192);
    if (!points->bounds->is_coarse) {
        SIZES_ADD(&batches, max, 2, 8, 32, 128);
        SIZES_ADD(&queries, max, 64, 96, 192, 256, 384, 768, 1024, 1536, 3072, 4096, 6144);
    }
    if (points_have(points, &point)) {
        return;
    }
    for (size_t i = 0; i < batches.n; i++) {
        for (size_t j = 0; j < queries.n; j++) {
            add_spans(points, &point, batches.values[i], queries.values[j], 0);
        }
    }
    points_end_group(points);
}

/* q queries of each request after rows whose mean is `context`: of a prefill each query sees no
 * further than the model's mask, of a block all of it. */
static void fill_pages(struct trial *trial, const struct calibration_point *point, int64_t context,
                       enum phase phase) {
    const int64_t n = point->sizes[POINT_BATCH];
    const int32_t q = (int32_t)point->sizes[POINT_Q];
    const int32_t block =
        trial->model->mask == MASK_CAUSAL ? 1 : (int32_t)trial->model->block_tokens;
    if (context > 0) {
        trial_spread(trial, n, context);
    }
    for (int64_t r = 0; r < n; r++) {
        const int32_t before = context > 0 ? trial->contexts[r] : 0;
        int32_t *extents = trial->extents + trial->n_tokens;
        trial_add(trial, (struct span){
                             .phase = phase, .queries = (uint32_t)q, .context = (uint32_t)before});
        for (int32_t i = 0; i < q; i++) {
            int32_t end = phase == PHASE_PREFILL ? (i / block + 1) * block : q;
            extents[i] = before + (end < q ? end : q);
        }
    }
    trial_give_pages(trial);
}

static void fill_prefill(struct trial *trial, const struct calibration_point *point) {
    fill_pages(trial, point, point->sizes[POINT_KV] - point->sizes[POINT_Q], PHASE_PREFILL);
}

/* With and without a prefix. */
static void add_prefill(struct points *points, const struct op *op) {
    const int64_t max = points->bounds->max_tokens, max_kv = most_kv_rows(points, op);
    struct sizes batches = {.n = 0}, queries = {.n = 0}, prefixes = {.n = 0};
    struct calibration_point point = point_of(points, op);
    point.fill = fill_prefill;
    SIZES_ADD(&batches, max, 1, 4, 16);
    SIZES_ADD(&queries, max, 32, 128, 512, 2048, 8192);
    SIZES_ADD(&prefixes, max_kv, 0, 1024, 8192);
    if (!points->bounds->is_coarse) {
        SIZES_ADD(&batches, max, 2, 8, 32);
        SIZES_ADD(&queries, max, 64, 256, 1024, 4096);
        SIZES_ADD(&prefixes, max_kv, 256, 4096, 16384);
    }
    if (points_have(points, &point)) {
        return;
    }
    for (size_t i = 0; i < batches.n; i++) {
        for (size_t j = 0; j < queries.n; j++) {
            for (size_t k = 0; k < prefixes.n; k++) {
                int64_t batch = batches.values[i], kv = prefixes.values[k] + queries.values[j];
                if (kv <= max_kv && rows_fit(points, batch, kv, true)) {
                    add_spans(points, &point, batch, queries.values[j], kv);
                }
            }
        }
    }
    points_end_group(points);
}

static void fill_block(struct trial *trial, const struct calibration_point *point) {
    const int64_t n = point->sizes[POINT_BATCH], context = point->sizes[POINT_KV];
    if (trial->is_exact) {
        fill_pages(trial, point, context, PHASE_REUSE);
        return;
    }
    trial_spread(trial, n, context);
    for (int64_t r = 0; r < n; r++) {
        const uint32_t rows = (uint32_t)trial->contexts[r];
        struct step_part *part =
            trial_add(trial, (struct span){.phase = PHASE_REUSE,
                                           .queries = (uint32_t)point->sizes[POINT_Q],
                                           .context = rows});
        trial_give_store(trial, part, rows);
    }
}

/* Queries of a block, or the single token of a model without blocks; fewer, as many as are left
 * when the others need no more, and more, where a pass takes all positions after the kept prefix.
 */
static void block_queries(const struct points *points, bool paged, struct sizes *queries) {
    const int64_t max = points->bounds->max_tokens;
    const struct model *model = points->graph->model;
    sizes_add(queries, model->block_tokens, max);
    if (points->bounds->is_coarse || model->mask == MASK_CAUSAL) {
        return;
    }
    SIZES_ADD(queries, max, 4, 8, 16, 64);
    if (paged) {
        SIZES_ADD(queries, max, 1, 2, 32);
    } else { /* all positions after a kept prefix */
        SIZES_ADD(queries, max, 128, 256, 512, 1024, 2048);
    }
}

/* One group for each number of queries. */
static void add_block(struct points *points, const struct op *op) {
    const int64_t max = points->bounds->max_tokens, max_kv_rows = points->bounds->max_kv_rows;
    const int64_t max_kv = most_kv_rows(points, op);
    const bool paged = op_facts(points->graph) & OP_IS_PAGED;
    struct sizes batches = {.n = 0}, queries = {.n = 0}, kv = {.n = 0};
    struct calibration_point point = point_of(points, op);
    point.fill = fill_block;
    SIZES_ADD(&batches, max, 1, 4, 16, 64, 256);
    block_queries(points, paged, &queries);
    SIZES_ADD(&kv, max_kv, 32, 256, 1024, 4096);
    if (max_kv < max_kv_rows) { /* a whole window */
        sizes_add(&kv, max_kv, max_kv);
    }
    if (!points->bounds->is_coarse) {
        SIZES_ADD(&batches, max, 2, 8, 32, 128);
        SIZES_ADD(&kv, max_kv, 64, 128, 512, 2048, 8192);
    }
    if (points_have(points, &point)) {
        return;
    }
    for (size_t j = 0; j < queries.n; j++) {
        for (size_t i = 0; i < batches.n; i++) {
            for (size_t k = 0; k < kv.n; k++) {
                int64_t batch = batches.values[i], q = queries.values[j];
                if (rows_fit(points, batch, kv.values[k] + (paged ? q : 0), paged)) {
                    add_spans(points, &point, batch, q, kv.values[k]);
                }
            }
        }
        points_end_group(points);
    }
}

const struct op_launch op_launch_attention_full = {
    .launch = launch_full_attention,
    .facts = OP_IS_LAYER,
    .sizes = OP_SIZES_OWN,
    .points = add_full,
    .weightiness = OP_HEAVY,
};
const struct op_launch op_launch_attention_prefill = {
    .launch = launch_prefill_attention,
    .facts = OP_IS_LAYER | OP_IS_PAGED,
    .sizes = OP_SIZES_OWN,
    .points = add_prefill,
    .weightiness = OP_HEAVY,
};
const struct op_launch op_launch_attention_block = {
    .launch = launch_block_attention,
    .sizes = OP_SIZES_OWN,
    .points = add_block,
    .weightiness = OP_MIDDLING,
};
