#include "engine/packed.h"

#include <inttypes.h>
#include <stdlib.h>

int packed_open(struct packed *packed, const struct model *model, const struct step_limits *limits,
                struct err *err) {
    *packed = (struct packed){.model = model, .limits = *limits};
    size_t n_requests = limits->max_requests, n_tokens = limits->max_tokens;
    size_t n_wide = n_requests * model->layers;
    size_t n_narrow = 2 * n_requests + 1 + 3 * n_tokens + limits->max_logit_rows;
    packed->memory = calloc(1, n_wide * sizeof(int64_t) + n_narrow * sizeof(int32_t));
    if (packed->memory == NULL) {
        return err_world(err, "no memory for batches of %" PRIu32 " tokens", limits->max_tokens);
    }
    packed->store_start = packed->memory;
    packed->start = (int32_t *)(packed->store_start + n_wide);
    packed->kept = packed->start + n_requests + 1;
    packed->ids = packed->kept + n_requests;
    packed->positions = packed->ids + n_tokens;
    packed->kv_rows = packed->positions + n_tokens;
    packed->rows = packed->kv_rows + n_tokens;
    return 0;
}

void packed_close(struct packed *packed) {
    free(packed->memory);
    *packed = (struct packed){0};
}

static int64_t store_elements(const struct model *model, int32_t n_rows) {
    return (int64_t)model->layers * model->kv_heads * model->head_dim * n_rows;
}

static int check_store(const struct packed *packed, const struct step *step, uint32_t i,
                       struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    const struct kv_store *kv = &part->kv;
    if (span->context == 0 && part->kv_rows == NULL) {
        return 0;
    }
    if (span->context > 0 && part->kv_rows != NULL) {
        return err_usage(err, "span %" PRIu32 " would write to the rows it reads", i);
    }
    if (span->context > 0 && (int64_t)span->context != kv->n_rows) {
        return err_usage(err,
                         "span %" PRIu32 " attends to %" PRIu32 " cached rows, but its store holds "
                         "%" PRId32,
                         i, span->context, kv->n_rows);
    }
    int64_t n = step->pool != NULL ? step->pool->n_elements : 0;
    if (kv->n_rows < 0 || kv->first < 0 || kv->first % 8 != 0 || kv->first > n ||
        store_elements(packed->model, kv->n_rows) > n - kv->first) {
        return err_usage(err,
                         "the store of span %" PRIu32 ", %" PRId32 " rows from element %" PRId64
                         ", is not inside the pool of %" PRId64 " elements",
                         i, kv->n_rows, kv->first, n);
    }
    for (uint32_t t = 0; part->kv_rows != NULL && t < span->queries; t++) {
        if (part->kv_rows[t] < -1 || part->kv_rows[t] >= kv->n_rows) {
            return err_usage(err,
                             "span %" PRIu32 " keeps token %" PRIu32 " in row %" PRId32
                             " of a store of %" PRId32,
                             i, t, part->kv_rows[t], kv->n_rows);
        }
    }
    return 0;
}

static int check_span(const struct packed *packed, const struct step *step, uint32_t i,
                      struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    if (span->queries == 0 || span->first_queries != span->queries || span->select_rows > 0 ||
        span->pack_rows > 0 || span->value_rows > 0) {
        return err_usage(err,
                         "span %" PRIu32 " has no queries, splits its first layer, selects or "
                         "compares rows; the engine does not run that",
                         i);
    }
    for (uint32_t t = 0; t < span->queries; t++) {
        if (part->ids[t] < 0 || (uint32_t)part->ids[t] >= packed->model->vocab) {
            return err_usage(err,
                             "token %" PRIu32 " of span %" PRIu32 " is %" PRId32
                             ", but the vocabulary ends at %" PRIu32,
                             t, i, part->ids[t], packed->model->vocab - 1);
        }
        if (part->positions[t] < 0 ||
            (uint32_t)part->positions[t] >= packed->limits.max_positions) {
            return err_usage(err,
                             "token %" PRIu32 " of span %" PRIu32 " stands at position %" PRId32
                             ", but positions end at %" PRIu32,
                             t, i, part->positions[t], packed->limits.max_positions - 1);
        }
    }
    for (uint32_t r = 0; part->logit_rows != NULL && r < span->logit_rows; r++) {
        if (part->logit_rows[r] < 0 || (uint32_t)part->logit_rows[r] >= span->queries) {
            return err_usage(err,
                             "span %" PRIu32 " wants the logits of query %" PRId32 " of %" PRIu32,
                             i, part->logit_rows[r], span->queries);
        }
    }
    if (part->logit_rows == NULL && span->logit_rows > span->queries) {
        return err_usage(err,
                         "span %" PRIu32 " wants %" PRIu32 " logit rows of %" PRIu32 " queries", i,
                         span->logit_rows, span->queries);
    }
    return check_store(packed, step, i, err);
}

static int check(const struct packed *packed, const struct step *step, struct err *err) {
    const struct step_shape *shape = step->shape;
    const struct step_limits *limits = &packed->limits;
    if (shape->spans == NULL || shape->n_spans == 0 || shape->n_spans > limits->max_requests) {
        return err_usage(err, "a step of %" PRIu32 " spans, but 1 to %" PRIu32 " are run",
                         shape->n_spans, limits->max_requests);
    }
    struct step_shape sums;
    shape_clear(&sums);
    for (uint32_t i = 0; i < shape->n_spans; i++) {
        shape_add(sums.sym, shape->spans[i], 1);
        int status = check_span(packed, step, i, err);
        if (status != 0) {
            return status;
        }
    }
    for (int symbol = 0; symbol < SYM_COUNT; symbol++) {
        if (sums.sym[symbol] != shape->sym[symbol]) {
            return err_usage(err, "the shape says %s %" PRId64 ", but its spans add up to %" PRId64,
                             symbol_names[symbol], shape->sym[symbol], sums.sym[symbol]);
        }
    }
    if (sums.sym[SYM_TOKENS] > limits->max_tokens ||
        sums.sym[SYM_LOGIT_ROWS] > limits->max_logit_rows) {
        return err_usage(err,
                         "a step of %" PRId64 " tokens and %" PRId64 " logit rows is beyond the "
                         "%" PRIu32 " and %" PRIu32 " that the engine was opened for",
                         sums.sym[SYM_TOKENS], sums.sym[SYM_LOGIT_ROWS], limits->max_tokens,
                         limits->max_logit_rows);
    }
    return 0;
}

/* Append one span's tokens as the packed span `at`. */
static void append(struct packed *packed, const struct step *step, uint32_t i, int32_t at) {
    const struct model *model = packed->model;
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    int32_t first = packed->n_tokens, n = (int32_t)span->queries;
    for (int32_t t = 0; t < n; t++) {
        packed->ids[first + t] = part->ids[t];
        packed->positions[first + t] = part->positions[t];
        packed->kv_rows[first + t] = part->kv_rows != NULL ? part->kv_rows[t] : -1;
    }
    packed->kept[at] = part->kv.n_rows;
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        packed->store_start[layer * packed->limits.max_requests + (uint32_t)at] =
            part->kv.first + (int64_t)layer * model->kv_heads * model->head_dim * part->kv.n_rows;
    }
    packed->n_tokens += n;
    packed->start[at + 1] = packed->n_tokens;
    int32_t *longest = span->context == 0 ? &packed->max_full_tokens : &packed->max_block_tokens;
    *longest = n > *longest ? n : *longest;
}

/* The tokens of the logit rows, in batch order: a span's first token in the packed order is the
 * sum over those of its group before it. */
static void place_rows(struct packed *packed, const struct step *step) {
    int32_t next[2] = {0, packed->n_full_tokens};
    packed->n_logit_rows = 0;
    for (uint32_t i = 0; i < step->shape->n_spans; i++) {
        const struct span *span = step->shape->spans[i];
        const int32_t *wanted = step->parts[i].logit_rows;
        int32_t *first = &next[span->context > 0];
        for (uint32_t r = 0; r < span->logit_rows; r++) {
            packed->rows[packed->n_logit_rows++] =
                *first + (wanted != NULL ? wanted[r] : (int32_t)r);
        }
        *first += (int32_t)span->queries;
    }
}

int packed_fill(struct packed *packed, const struct step *step, struct err *err) {
    int status = check(packed, step, err);
    if (status != 0) {
        return status;
    }
    packed->n_full = packed->n_block = packed->n_tokens = 0;
    packed->max_full_tokens = packed->max_block_tokens = 0;
    packed->start[0] = 0;
    for (uint32_t i = 0; i < step->shape->n_spans; i++) {
        if (step->shape->spans[i]->context == 0) {
            append(packed, step, i, packed->n_full++);
        }
    }
    packed->n_full_tokens = packed->n_tokens;
    for (uint32_t i = 0; i < step->shape->n_spans; i++) {
        if (step->shape->spans[i]->context > 0) {
            append(packed, step, i, packed->n_full + packed->n_block++);
        }
    }
    place_rows(packed, step);
    return 0;
}
