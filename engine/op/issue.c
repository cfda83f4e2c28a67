#include "engine/op/issue_impl.h"

#include "sim/base/num.h"
#include "sim/graph/builder.h"
#include "sim/model/ranks.h"

_Static_assert((int)HEAD_SCRATCH_BYTES == (int)GRAPH_HEAD_SCRATCH_BYTES,
               "the graph plans what the kernels need");

/* ---- where things are ---- */

/* The stores of this layer, of the packed spans from the first on. */
static const int64_t *cache_start(const struct turn_of *t) {
    const struct packed_counts *n = counts(t);
    int64_t n_spans = n->n_plain + n->n_select + n->n_block;
    return wide(t, PACKED_CACHE_START) + t->turn->layer * n_spans;
}

struct candidates issue_candidates(struct issue *issue, int tensor) {
    const struct size *row = &issue->program->graph->tensors[tensor].bytes;
    const int64_t n = issue->rest->n.n_logit_rows;
    int32_t *token = (int32_t *)(void *)tensor_at(issue, tensor);
    float *confidence = (float *)(void *)(token + n);
    const int64_t n_values = row->per / F32_BYTES - 2; /* besides those */
    float *margin = n_values >= 2 ? confidence + n : NULL;
    float *logit = n_values % 2 == 1 ? confidence + n_values * n : NULL;
    return (struct candidates){token, confidence, margin, margin != NULL ? margin + n : NULL,
                               logit};
}

static float *from_row(float *values, int64_t row) {
    return values != NULL ? values + row : NULL;
}

/* Where queries, keys and values lie in a row of the rotated product, or of that part of it which
 * was projected apart. */
struct qkv {
    unsigned char *q, *k, *v;
    int64_t stride;
};

/* From the row at `first` on, with so many channels of queries before its keys. */
static struct qkv split_at(const struct turn_of *t, int tensor, unsigned char *first,
                           int64_t query_channels) {
    int64_t key_bytes = (int64_t)t->model->kv_heads * t->model->head_dim * t->graph->element_bytes;
    unsigned char *k = first + query_channels * t->graph->element_bytes;
    return (struct qkv){first, k, k + key_bytes, row_elements(t, tensor)};
}

static struct qkv split(const struct turn_of *t, int tensor) {
    return split_at(t, tensor, rows_at(t, tensor), (int64_t)t->model->heads * t->model->head_dim);
}

/* Keys and values that were projected apart, of all rows, whatever the turn's. */
static struct qkv split_keys(const struct turn_of *t, int tensor) {
    return split_at(t, tensor, tensor_at(t->issue, tensor), 0);
}

/* ---- operators ---- */

static int issue_embed(const struct turn_of *t) {
    return t->table->embed(t->device,
                           &(struct call_embed){.table = op_weight(t),
                                                .ids = t->issue->room->canvases,
                                                .at = wide(t, PACKED_AT),
                                                .y = output(t, 0),
                                                .n_tokens = (int32_t)t->turn->n_rows,
                                                .n_channels = (int32_t)t->model->hidden,
                                                .n_vocab = (int32_t)model_whole_vocab(t->model),
                                                .dtype = t->dtype});
}

/* With two inputs, the residual stream and what a sublayer adds to it: both outputs are written.
 * With one, the residual is read as it is; the final norm takes the logit rows out of it. */
static int issue_norm(const struct turn_of *t) {
    bool adds = t->op->in[1] >= 0;
    bool picks = t->op->rows == SYM_LOGIT_ROWS;
    const struct call_norm call = {
        .x = rows_at(t, t->op->in[adds ? 1 : 0]),
        .weight = op_weight(t),
        .residual = adds ? rows_at(t, t->op->in[0]) : NULL,
        .rows = picks ? narrow(t, PACKED_ROWS) : NULL,
        .y = rows_at(t, t->op->out[adds ? 1 : 0]),
        .n_rows = (int32_t)t->turn->n_rows,
        .n_channels = (int32_t)t->model->hidden,
        .epsilon = t->issue->weights->constants.norm_epsilon,
        .dtype = t->dtype,
    };
    return t->table->norm(t->device, &call);
}

static int issue_linear(const struct turn_of *t) {
    const struct call_linear call = {
        .x = rows_at(t, t->op->in[0]),
        .w = op_weight(t),
        .y = rows_at(t, t->op->out[0]),
        .x_stride = row_elements(t, t->op->in[0]),
        .y_stride = row_elements(t, t->op->out[0]),
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_outputs = (int32_t)t->op->n,
        .n_inputs = (int32_t)t->op->k,
        .outputs_before = (int32_t)t->op->weight_rows_before,
        .outputs_after = (int32_t)t->op->weight_rows_after,
        .dtype = t->dtype,
        .alike = model_ranks(t->model) > 1 && t->op->weight == WEIGHT_ROUTER,
        .by_inputs = program_by_inputs(t->issue->program, t->turn->op),
    };
    return t->table->linear(t->device, &call);
}

/* Copies the keys and values that are kept to their requests' stores. */
static int issue_keep(const struct turn_of *t, const struct qkv *from) {
    const struct call_keep call = {
        .k = from->k,
        .v = from->v,
        .start = narrow(t, PACKED_START),
        .owner = narrow(t, PACKED_OWNER),
        .kv_rows = narrow(t, PACKED_KV_ROWS),
        .kept = narrow(t, PACKED_KEPT),
        .cache_start = cache_start(t),
        .cache = t->issue->room->pool,
        .kv_stride = from->stride,
        .n_requests = counts(t)->n_plain + (t->packed->limits.renews_rows ? counts(t)->n_block : 0),
        .n_tokens = counts(t)->n_keeping_tokens,
        .n_kv_heads = (int32_t)t->model->kv_heads,
        .head_size = (int32_t)t->model->head_dim,
        .dtype = t->dtype,
    };
    return t->table->keep(t->device, &call);
}

/* This layer's rows of a pool of pages: keys, and values behind them. */
static struct qkv pool_rows(const struct turn_of *t) {
    const struct packed *packed = t->packed;
    int64_t plane_bytes = packed_plane_elements(packed) * t->graph->element_bytes;
    unsigned char *k = t->issue->room->pool + 2 * (int64_t)t->turn->layer * plane_bytes;
    return (struct qkv){NULL, k, k + plane_bytes, (int64_t)t->model->kv_heads * t->model->head_dim};
}

/* Fresh keys and values go where attention reads them: the rows of the pool, where the graph is
 * exact, else their own places in the product. */
static int issue_rope(const struct turn_of *t) {
    const int rotated = t->op->out[0];
    const struct qkv to = split_at(t, rotated, rows_at(t, rotated), t->op->n);
    const unsigned char *bias = weight(t, WEIGHT_QKV_BIAS);
    const int64_t skipped = (int64_t)t->model->heads * t->model->head_dim - t->op->n;
    const bool exact = t->packed->exact;
    const struct qkv kv = exact ? pool_rows(t) : to;
    const struct call_rope call = {
        .qkv = rows_at(t, t->op->in[0]),
        .bias = bias != NULL ? bias + skipped * t->graph->element_bytes : NULL,
        .q_norm = weight(t, WEIGHT_Q_NORM),
        .k_norm = weight(t, WEIGHT_K_NORM),
        .cos_sin = t->issue->room->cos_sin,
        .positions = narrow(t, PACKED_POSITIONS) + t->turn->first_row,
        .kv_rows = exact ? narrow(t, PACKED_KV_ROWS) + t->turn->first_row : NULL,
        .q = to.q,
        .k = kv.k,
        .v = kv.v,
        .q_stride = to.stride,
        .kv_stride = kv.stride,
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_heads = (int32_t)(t->op->n / t->model->head_dim),
        .n_kv_heads = (int32_t)(t->op->k / t->model->head_dim),
        .head_size = (int32_t)t->model->head_dim,
        .rotary_size = (int32_t)model_rotary_dim(t->model),
        .epsilon = t->issue->weights->constants.norm_epsilon,
        .dtype = t->dtype,
    };
    int status = t->table->rope(t->device, &call);
    const bool keeps = !exact && call.n_kv_heads > 0 && counts(t)->n_keeping_tokens > 0;
    return status == DEVICE_OK && keeps ? issue_keep(t, &to) : status;
}

/* With two inputs, a chunk of queries and all keys and values. */
static int issue_full_attention(const struct turn_of *t) {
    const struct packed_counts *n = counts(t);
    const bool apart = t->op->in[1] >= 0;
    const struct qkv queries = split(t, t->op->in[0]);
    const struct qkv from = apart ? split_keys(t, t->op->in[1]) : queries;
    const struct call_dense_attention call = {
        .q = queries.q,
        .k = from.k,
        .v = from.v,
        .y = rows_at(t, t->op->out[0]),
        .start = narrow(t, PACKED_START),
        .q_stride = queries.stride,
        .kv_stride = from.stride,
        .y_stride = row_elements(t, t->op->out[0]),
        .n_requests = n->n_plain + n->n_select,
        .n_tokens = n->n_full_tokens,
        .n_heads = (int32_t)t->model->heads,
        .n_kv_heads = (int32_t)t->model->kv_heads,
        .head_size = (int32_t)t->model->head_dim,
        .max_tokens = n->max_full_tokens,
        .first_query = apart ? (int32_t)t->turn->first_row : 0,
        .n_queries = apart ? (int32_t)t->turn->n_rows : 0,
        .dtype = t->dtype,
    };
    return call.n_requests > 0 ? t->table->dense_attention(t->device, &call) : DEVICE_OK;
}

/* Spans [first, first + n) in pages, at most max_queries queries each. */
static int issue_paged_attention(const struct turn_of *t, int32_t first, int32_t n,
                                 int32_t max_queries) {
    const struct packed *packed = t->packed;
    const struct qkv from = split(t, t->op->in[0]), kv = pool_rows(t);
    const int32_t max_pages = packed->n.max_pages, page_rows = (int32_t)packed->limits.page_rows;
    const struct call_paged_attention call = {
        .q = from.q,
        .k = kv.k,
        .v = kv.v,
        .y = output(t, 0),
        .start = narrow(t, PACKED_START) + first,
        .extent = narrow(t, PACKED_EXTENT),
        .pages = narrow(t, PACKED_PAGES) + (int64_t)first * max_pages,
        .q_stride = from.stride,
        .kv_stride = kv.stride,
        .y_stride = row_elements(t, t->op->out[0]),
        .n_requests = n,
        .n_tokens = packed->n.n_tokens,
        .n_heads = (int32_t)t->model->heads,
        .n_kv_heads = (int32_t)t->model->kv_heads,
        .head_size = (int32_t)t->model->head_dim,
        .max_pages = max_pages,
        .page_rows = page_rows,
        .max_queries = max_queries,
        .max_extent = max_pages * page_rows,
        .dtype = t->dtype,
    };
    return n > 0 ? t->table->paged_attention(t->device, &call) : DEVICE_OK;
}

static int issue_prefill_attention(const struct turn_of *t) {
    return issue_paged_attention(t, 0, counts(t)->n_plain, counts(t)->max_full_tokens);
}

static int issue_block_attention(const struct turn_of *t) {
    if (t->packed->exact) {
        return issue_paged_attention(t, counts(t)->n_plain, counts(t)->n_block,
                                     counts(t)->max_block_tokens);
    }
    const struct packed_counts *n = counts(t);
    const int32_t first = n->n_plain + n->n_select;
    const struct qkv from = split(t, t->op->in[0]);
    const struct call_block_attention call = {
        .q = from.q,
        .k = from.k,
        .v = from.v,
        .cache = t->issue->room->pool,
        .y = output(t, 0),
        .start = narrow(t, PACKED_START) + first,
        .kept = narrow(t, PACKED_KEPT) + first,
        .cache_start = cache_start(t) + first,
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .y_stride = row_elements(t, t->op->out[0]),
        .n_requests = n->n_block,
        .n_heads = (int32_t)t->model->heads,
        .n_kv_heads = (int32_t)t->model->kv_heads,
        .head_size = (int32_t)t->model->head_dim,
        .max_queries = n->max_block_tokens,
        .own_cached = t->packed->limits.renews_rows,
        .dtype = t->dtype,
    };
    return n->n_block > 0 ? t->table->block_attention(t->device, &call) : DEVICE_OK;
}

/* Of blocks alone: prefills have no masked tokens, and nobody asks for their importance. */
static int issue_importance(const struct turn_of *t) {
    const struct packed_counts *n = counts(t);
    const struct qkv from = split(t, t->op->in[0]), kv = pool_rows(t);
    const struct call_importance call = {
        .q = from.q,
        .k = kv.k,
        .kv_rows = narrow(t, PACKED_KV_ROWS),
        .start = narrow(t, PACKED_START) + n->n_plain,
        .masked = t->arrays + t->packed->offset_bytes[PACKED_MASKED],
        .importance = (float *)(void *)output(t, 0),
        .q_stride = from.stride,
        .kv_stride = kv.stride,
        .n_requests = n->n_block,
        .n_heads = (int32_t)t->model->heads,
        .n_kv_heads = (int32_t)t->model->kv_heads,
        .head_size = (int32_t)t->model->head_dim,
        .max_masked = n->max_masked,
        .dtype = t->dtype,
    };
    return n->n_block > 0 && n->max_masked > 0 ? t->table->importance(t->device, &call) : DEVICE_OK;
}

/* Queries and the residual stream of the tokens that go on. */
static int issue_evict(const struct turn_of *t) {
    const struct qkv from = split(t, t->op->in[2]);
    const int64_t hidden = t->model->hidden, width = (int64_t)t->model->heads * t->model->head_dim;
    const struct call_compact call = {
        .rows = narrow(t, PACKED_KEPT_TOKENS),
        .from = {from.q, input(t, 3)},
        .to = {output(t, 0), output(t, 1)},
        .from_stride = {from.stride, hidden},
        .to_stride = {width, hidden},
        .width = {(int32_t)width, (int32_t)hidden},
        .n_arrays = 2,
        .max_rows = (int32_t)t->turn->n_rows,
        .dtype = t->dtype,
    };
    return t->table->compact(t->device, &call);
}

/* Whether heads of several ranks choose together: their scores are added up between two parts of a
 * selection. */
static bool ranks_choose_together(const struct turn_of *t) {
    return model_ranks(t->model) > 1 && t->packed->limits.selects_together;
}

static int issue_selection(const struct turn_of *t, const struct op *select,
                           enum kernel_select_part part) {
    const struct packed_counts *n = counts(t);
    const struct qkv from = split(t, t->issue->program->rotated[t->op->segment]);
    const struct call_select call = {
        .q = from.q,
        .k = from.k,
        .v = from.v,
        .start = narrow(t, PACKED_START) + n->n_plain,
        .block_start = narrow(t, PACKED_BLOCK_START),
        .block_end = narrow(t, PACKED_BLOCK_END),
        .kept = narrow(t, PACKED_KEPT) + n->n_plain,
        .cache_start = cache_start(t) + n->n_plain,
        .score_start = wide(t, PACKED_SCORE_START),
        .cache = t->issue->room->pool,
        .scores = (float *)(void *)tensor_at(t->issue, select->out[0]),
        .indices = (int32_t *)(void *)tensor_at(t->issue, select->out[1]),
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .n_requests = n->n_select,
        .n_heads = (int32_t)t->model->heads,
        .n_kv_heads = (int32_t)t->model->kv_heads,
        .head_size = (int32_t)t->model->head_dim,
        .max_candidates = n->max_candidates,
        .uniform = t->packed->limits.selects_together,
        .part = part,
        .dtype = t->dtype,
    };
    return t->table->select(t->device, &call);
}

/* Scores and, but for ranks that choose together, chooses and packs. */
static int issue_select(const struct turn_of *t) {
    return issue_selection(t, t->op,
                           ranks_choose_together(t) ? KERNEL_SELECT_SCORES : KERNEL_SELECT_ALL);
}

/* What the selection of its layer has left to do. */
static int issue_pack(const struct turn_of *t) {
    const struct op *select = t->op;
    if (!ranks_choose_together(t)) {
        return DEVICE_OK;
    }
    while (select->kind != OP_SELECT) {
        select--;
    }
    return issue_selection(t, select, KERNEL_SELECT_SCORED);
}

static int issue_swiglu(const struct turn_of *t) {
    const struct call_swiglu call = {
        .gate_up = rows_at(t, t->op->in[0]),
        .y = rows_at(t, t->op->out[0]),
        .y_stride = row_elements(t, t->op->out[0]),
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_hidden = (int32_t)row_elements(t, t->op->in[0]) / 2,
        .dtype = t->dtype,
    };
    return t->table->swiglu(t->device, &call);
}

static int issue_gate_up(const struct turn_of *t) {
    const struct call_gate_up call = {
        .x = rows_at(t, t->op->in[0]),
        .w = op_weight(t),
        .y = rows_at(t, t->op->out[0]),
        .x_stride = row_elements(t, t->op->in[0]),
        .y_stride = row_elements(t, t->op->out[0]),
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_channels = (int32_t)t->op->k,
        .n_hidden = (int32_t)t->op->n / 2,
        .dtype = t->dtype,
    };
    return t->table->gate_up(t->device, &call);
}

static int issue_add(const struct turn_of *t) {
    const struct call_add call = {.a = rows_at(t, t->op->in[0]),
                                  .b = rows_at(t, t->op->in[1]),
                                  .y = rows_at(t, t->op->out[0]),
                                  .n = t->turn->n_rows * row_elements(t, t->op->out[0]),
                                  .dtype = t->dtype};
    return t->table->add(t->device, &call);
}

static int issue_sample(const struct turn_of *t) {
    const struct candidates to = issue_candidates(t->issue, t->op->out[0]);
    const struct call_sample call = {.logits = rows_at(t, t->op->in[0]),
                                     .token = to.token + t->turn->first_row,
                                     .confidence = to.confidence + t->turn->first_row,
                                     .margin = from_row(to.margin, t->turn->first_row),
                                     .entropy = from_row(to.entropy, t->turn->first_row),
                                     .logit = from_row(to.logit, t->turn->first_row),
                                     .n_rows = (int32_t)t->turn->n_rows,
                                     .n_vocab = (int32_t)t->model->vocab,
                                     .dtype = t->dtype};
    return t->table->sample(t->device, &call);
}

/* Logits in bf16 are rounded as if they were stored, so that the head decides as `sample` does. */
static int issue_head(const struct turn_of *t) {
    const struct candidates to = issue_candidates(t->issue, t->op->out[0]);
    const struct call_head call = {.x = input(t, 0),
                                   .w = op_weight(t),
                                   .token = to.token,
                                   .confidence = to.confidence,
                                   .margin = to.margin,
                                   .entropy = to.entropy,
                                   .logit = to.logit,
                                   .scratch = output(t, 1),
                                   .n_rows = (int32_t)t->turn->n_rows,
                                   .n_channels = (int32_t)t->model->hidden,
                                   .n_vocab = (int32_t)t->model->vocab,
                                   .rounded = t->dtype == KERNEL_BF16,
                                   .dtype = t->dtype};
    return t->table->head(t->device, &call);
}

/* Rows of channels are added up in the graph's elements. What is said of tokens is single
 * precision, as many numbers as make whole vectors: the last of them are nobody's. */
static int issue_all_reduce(const struct turn_of *t) {
    enum { VECTOR = 8 };
    const bool is_single = t->graph->tensors[t->op->out[0]].single;
    const int64_t width = t->graph->tensors[t->op->out[0]].bytes.per / F32_BYTES;
    const struct call_all_reduce call = {.x = is_single ? input(t, 0) : rows_at(t, t->op->in[0]),
                                         .y = is_single ? output(t, 0) : rows_at(t, t->op->out[0]),
                                         .n = is_single ? align_up(t->turn->n_rows * width, VECTOR)
                                                        : t->turn->n_rows *
                                                              row_elements(t, t->op->out[0]),
                                         .dtype = is_single ? KERNEL_F32 : t->dtype};
    return t->table->all_reduce(t->device, &call);
}

static int issue_all_gather(const struct turn_of *t) {
    const struct call_all_gather call = {.x = input(t, 0),
                                         .y = output(t, 0),
                                         .bytes = t->turn->n_rows *
                                                  t->graph->tensors[t->op->in[0]].bytes.per};
    return t->table->all_gather(t->device, &call);
}

static int issue_combine(const struct turn_of *t) {
    const struct candidates to = issue_candidates(t->issue, t->op->out[0]);
    const struct call_combine call = {.gathered = input(t, 0),
                                      .token = to.token,
                                      .confidence = to.confidence,
                                      .margin = to.margin,
                                      .entropy = to.entropy,
                                      .n_ranks = (int32_t)model_ranks(t->model),
                                      .n_rows = (int32_t)t->turn->n_rows,
                                      .n_vocab = (int32_t)t->model->vocab};
    return t->table->combine(t->device, &call);
}

/* The candidates of the same rows become those of the logits with credit. */
static int issue_credit(const struct turn_of *t) {
    const struct candidates at = issue_candidates(t->issue, t->op->in[1]);
    const int64_t first = t->turn->first_row;
    const struct decode_credit *credit = &counts(t)->credit;
    const struct call_credit call = {
        .logits = rows_at(t, t->op->in[0]),
        .token = at.token + first,
        .confidence = at.confidence + first,
        .state = t->issue->room->credit,
        .lists = narrow(t, PACKED_ROW_PLACES) + first,
        .position = wide(t, PACKED_TARGETS) + first,
        .canvas = t->issue->room->canvases,
        .n_rows = (int32_t)t->turn->n_rows,
        .n_vocab = (int32_t)t->model->vocab,
        .n_slots = (int32_t)t->packed->limits.credit_slots,
        .mask_token = (int32_t)t->model->mask_token,
        .alpha = credit->alpha,
        .beta = credit->beta,
        .gamma = credit->gamma,
        .dtype = t->dtype,
    };
    return t->table->credit(t->device, &call);
}

static const float *thresholds(const struct turn_of *t) {
    return t->packed->smooths ? t->issue->room->thresholds
                              : (const float *)(const void *)narrow(t, PACKED_THRESHOLD);
}

/* The decisions [first, first + n), which all take a number, or all go by the rule. */
static int issue_decisions(const struct turn_of *t, int32_t first, int32_t n, int32_t max_rows,
                           enum decode_kind rule) {
    const struct packed_counts *of = counts(t);
    const struct candidates from = issue_candidates(t->issue, t->op->in[0]);
    const struct call_decode call = {
        .confidence = from.confidence,
        .margin = from.margin,
        .entropy = from.entropy,
        .token = from.token,
        .first_row = narrow(t, PACKED_FIRST_ROW) + first,
        .n_rows = narrow(t, PACKED_N_ROWS) + first,
        .take = narrow(t, PACKED_TAKE) + first,
        .threshold = thresholds(t) + first,
        .key = (const uint64_t *)(const void *)(wide(t, PACKED_KEY) + first),
        .canvas_start = wide(t, PACKED_CANVAS) + first,
        .position = wide(t, PACKED_TARGETS),
        .canvas = t->issue->room->canvases,
        .committed = t->issue->room->committed,
        .n_committed = t->issue->room->n_committed + first,
        .n_requests = n,
        .max_rows = max_rows,
        .mask_token = (int32_t)t->model->mask_token,
        .rule = rule,
        .rank = (enum decode_rank)of->rank,
        .slack = of->slack,
        .low = of->low,
        .factor = of->factor,
        .bound = of->bound,
        .temperature = rule == DECODE_COUNT ? of->temperature : 0,
    };
    return n > 0 ? t->table->decode(t->device, &call) : DEVICE_OK;
}

static int issue_commit(const struct turn_of *t) {
    const struct packed_counts *n = counts(t);
    int status = t->table->clear(t->device, t->issue->room->committed, n->n_logit_rows);
    if (status == DEVICE_OK && t->packed->smooths) {
        status = issue_next_step(t);
    }
    if (status == DEVICE_OK) {
        status = issue_decisions(t, 0, n->n_take, n->max_take_rows, DECODE_COUNT);
    }
    if (status == DEVICE_OK) {
        status =
            issue_decisions(t, n->n_take, n->n_rule, n->max_rule_rows, (enum decode_kind)n->rule);
    }
    return status;
}

int issue_turn(struct issue *issue, const struct turn *turn) {
    static int (*const issuers[OP_KIND_COUNT])(const struct turn_of *) = {
        [OP_EMBED] = issue_embed,
        [OP_RMSNORM] = issue_norm,
        [OP_LINEAR] = issue_linear,
        [OP_ROPE] = issue_rope,
        [OP_ATTENTION_FULL] = issue_full_attention,
        [OP_ATTENTION_BLOCK] = issue_block_attention,
        [OP_ATTENTION_PREFILL] = issue_prefill_attention,
        [OP_IMPORTANCE] = issue_importance,
        [OP_EVICT] = issue_evict,
        [OP_SELECT] = issue_select,
        [OP_PACK] = issue_pack,
        [OP_SWIGLU] = issue_swiglu,
        [OP_GATE_UP] = issue_gate_up,
        [OP_MOE_CHOOSE] = issue_moe_choose,
        [OP_MOE_GATE_UP] = issue_moe_gate_up,
        [OP_MOE_DOWN] = issue_moe_down,
        [OP_MOE_COMBINE] = issue_moe_combine,
        [OP_ADD] = issue_add,
        [OP_HEAD] = issue_head,
        [OP_SAMPLE] = issue_sample,
        [OP_CREDIT] = issue_credit,
        [OP_SOFTMAX] = issue_softmax,
        [OP_KEEP_EXPECTED] = issue_keep_expected,
        [OP_ADD_EXPECTED] = issue_add_expected,
        [OP_COMMIT] = issue_commit,
        [OP_ALL_REDUCE] = issue_all_reduce,
        [OP_ALL_GATHER] = issue_all_gather,
        [OP_COMBINE] = issue_combine,
    };
    const struct graph *graph = issue->program->graph;
    const bool is_rest = turn->op >= issue->program->evict_op;
    const struct turn_of t = {
        .issue = issue,
        .packed = is_rest ? issue->rest : issue->packed,
        .arrays = issue->room->arrays + (is_rest ? issue->packed->max_bytes : 0),
        .turn = turn,
        .op = &graph->ops[turn->op],
        .graph = graph,
        .model = graph->model,
        .table = issue->device->table,
        .device = issue->device->device,
        .dtype = issue->device->dtype,
    };
    ASSERT(issuers[t.op->kind] != NULL);
    return turn->n_rows > 0 ? issuers[t.op->kind](&t) : DEVICE_OK;
}
