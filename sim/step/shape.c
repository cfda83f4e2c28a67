#include "sim/step/shape.h"

#include <stdbool.h>
#include <string.h>

#include "sim/base/err.h"

const char *const phase_names[PHASE_COUNT] = {"prefill", "refresh", "reuse", "commit"};

const char *const symbol_names[SYM_COUNT] = {
    "one",          "requests",     "tokens",       "first_tokens",  "logit_rows",
    "context_rows", "select_rows",  "pack_rows",    "value_rows",    "kept_tokens",
    "prefill_n",    "prefill_q",    "prefill_k",    "prefill_qk",    "full_n",
    "full_q",       "full_qk",      "block_n",      "block_q",       "block_k",
    "block_qk",     "kept_q",       "kept_k",       "kept_qk",       "first_n",
    "first_qk",     "refresh_n",    "select_n",     "sampled_rows",  "projected_values",
    "picked_rows",  "pattern_n",    "pattern_q",    "pattern_qk",    "scored_n",
    "scored_q",     "scored_qk",    "lead_full_n",  "lead_full_q",   "lead_full_qk",
    "lead_block_n", "lead_block_q", "lead_block_k", "lead_block_qk",
};

void shape_clear(struct step_shape *shape) {
    memset(shape, 0, sizeof *shape);
    shape->sym[SYM_ONE] = 1;
}

static void add_leading(int64_t sym[SYM_COUNT], const struct span *span, int64_t times) {
    const int64_t q = span->first_queries, k = span->lead_keys;
    const bool is_full = k == q;
    sym[is_full ? SYM_LEAD_FULL_N : SYM_LEAD_BLOCK_N] += times;
    sym[is_full ? SYM_LEAD_FULL_Q : SYM_LEAD_BLOCK_Q] += times * q;
    sym[is_full ? SYM_LEAD_FULL_QK : SYM_LEAD_BLOCK_QK] += times * q * k;
    sym[SYM_LEAD_BLOCK_K] += is_full ? 0 : times * k;
}

void shape_add(int64_t sym[SYM_COUNT], const struct span *span, int64_t times) {
    int64_t q = span->queries, context = span->context, first = span->first_queries;
    const int64_t attended = span->attended_keys;
    sym[SYM_REQUESTS] += times;
    sym[SYM_TOKENS] += times * q;
    sym[SYM_FIRST_TOKENS] += times * first;
    sym[SYM_LOGIT_ROWS] += times * span->logit_rows;
    sym[SYM_CONTEXT_ROWS] += times * context;
    sym[SYM_SAMPLED_ROWS] +=
        times * (span->sampled_rows > 0 ? span->sampled_rows : span->logit_rows);
    sym[SYM_PROJECTED_VALUES] += times * (span->value_rows > 0 ? span->value_rows : q);
    if (span->value_rows > 0) {
        sym[SYM_VALUE_ROWS] += times * span->value_rows;
        sym[SYM_PICKED_ROWS] += times * q;
    }
    if (span->lead_keys > 0) {
        add_leading(sym, span, times);
    }
    if (span->phase == PHASE_PREFILL && span->lead_keys == 0) {
        sym[SYM_KEPT_TOKENS] += times * q;
        sym[SYM_PREFILL_N] += times;
        sym[SYM_PREFILL_Q] += times * q;
        sym[SYM_PREFILL_K] += times * (context + q);
        sym[SYM_PREFILL_QK] += times * (q * context + q * (q + 1) / 2);
    } else if (context == 0 && !span->exact && attended > 0 && attended <= q) {
        sym[SYM_PATTERN_N] += times;
        sym[SYM_PATTERN_Q] += times * q;
        sym[SYM_PATTERN_QK] += times * q * attended;
    } else if (context == 0 && !span->exact) {
        sym[SYM_FULL_N] += times;
        sym[SYM_FULL_Q] += times * q;
        sym[SYM_FULL_QK] += times * q * q;
        if (attended > 0) {
            sym[SYM_SCORED_N] += times;
            sym[SYM_SCORED_Q] += times * q;
            sym[SYM_SCORED_QK] += times * q * attended;
        }
    } else if (q > 0) { /* else nothing attends */
        sym[SYM_BLOCK_N] += times;
        sym[SYM_BLOCK_Q] += times * q;
        sym[SYM_BLOCK_K] += times * (context + q);
        sym[SYM_BLOCK_QK] += times * q * (context + q);
        if (span->kept_keys > 0) {
            int64_t kept = span->kept_queries, kept_keys = span->kept_keys;
            sym[SYM_KEPT_TOKENS] += times * kept;
            sym[SYM_KEPT_Q] += times * kept;
            sym[SYM_KEPT_K] += times * kept_keys;
            sym[SYM_KEPT_QK] += times * kept * kept_keys;
        }
    }
    sym[SYM_FIRST_N] += times;
    sym[SYM_FIRST_QK] += times * first * first;
    if (span->select_rows > 0) {
        sym[SYM_SELECT_ROWS] += times * span->select_rows;
        sym[SYM_PACK_ROWS] += times * span->pack_rows;
        sym[SYM_SELECT_N] += times;
    } else if (span->phase == PHASE_REFRESH || span->phase == PHASE_PREFILL) {
        sym[SYM_REFRESH_N] += times;
    }
}

/* Many sums are 0, and vectors of products of 64 bits take longer than one after the other. */
void shape_add_up(int64_t sum[SYM_COUNT], const int64_t sym[SYM_COUNT], uint32_t steps) {
#pragma GCC unroll 8
    for (int i = 0; i < SYM_COUNT; i++) {
        if (sym[i] != 0) {
            sum[i] += steps * sym[i];
        }
    }
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

void shape_pad(struct step_shape *shape) {
    ASSERT(shape->spans != NULL && shape->n_spans > 0);
    struct span widest = {0};
    uint32_t keys = 0, attended = 0;
    for (uint32_t i = 0; i < shape->n_spans; i++) {
        const struct span *span = shape->spans[i];
        widest.phase = larger(widest.phase, span->phase);
        widest.queries = larger(widest.queries, span->queries);
        widest.first_queries = larger(widest.first_queries, span->first_queries);
        keys = larger(keys, span->queries + span->context);
        widest.logit_rows = larger(widest.logit_rows, span->logit_rows);
        widest.select_rows = larger(widest.select_rows, span->select_rows);
        widest.pack_rows = larger(widest.pack_rows, span->pack_rows);
        widest.value_rows = larger(widest.value_rows, span->value_rows);
        widest.sampled_rows = larger(widest.sampled_rows, span->sampled_rows);
        widest.exact = larger(widest.exact, span->exact);
        widest.kept_queries = larger(widest.kept_queries, span->kept_queries);
        widest.kept_keys = larger(widest.kept_keys, span->kept_keys);
        widest.lead_keys = larger(widest.lead_keys, span->lead_keys);
        widest.attended_keys = larger(widest.attended_keys, span->attended_keys);
        attended = larger(attended, span->attended_keys > 0 ? span->attended_keys : span->queries);
    }
    widest.context = keys - widest.queries;
    widest.attended_keys = widest.attended_keys > 0 ? attended : 0;
    memset(shape->sym, 0, sizeof shape->sym);
    shape->sym[SYM_ONE] = 1;
    shape_add(shape->sym, &widest, shape->n_spans);
}
