/* SparseD's patterns: which blocks of keys each head's blocks of queries keep, and attention to
 * these. */
#include <math.h>
#include <string.h>

#include "engine/op/launch.h"

#include "kernels/rules/pattern.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"

/* The blocks of keys that each head's blocks of queries go on with. */
static int launch_pattern(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    const struct step_limits *limits = &l->packed->limits;
    const struct qkv from = split(l, l->op->in[0]);
    const double divisor = limits->pattern_by_heads
                               ? (double)l->model->heads * model_ranks(l->model)
                               : (double)l->model->head_dim;
    const struct call_pattern call = {
        .q = from.q,
        .k = from.k,
        .start = narrow(l, PACKED_START) + n->n_plain,
        .rest = narrow(l, PACKED_PATTERN_REST),
        .keep = narrow(l, PACKED_PATTERN_KEEP),
        .keep_rest = narrow(l, PACKED_PATTERN_KEEP_REST),
        .cache_start = cache_start(l) + n->n_plain,
        .cache = l->issue->room->pool,
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .n_requests = n->n_select,
        .n_heads = (int32_t)l->model->heads,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .block_tokens = (int32_t)limits->pattern_tokens,
        .max_tokens = n->max_candidates,
        .scale = (float)(1 / sqrt(divisor)),
        .dtype = l->dtype,
    };
    return n->n_select > 0 ? l->table->pattern(l->device, &call) : DEVICE_OK;
}

/* Spans that attend by their patterns. */
static int launch_pattern_attention(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    const int32_t first = n->n_plain + n->n_select;
    const struct qkv from = split(l, l->op->in[0]);
    const struct call_pattern_attention call = {
        .q = from.q,
        .k = from.k,
        .v = from.v,
        .cache = l->issue->room->pool,
        .y = output(l, 0),
        .start = narrow(l, PACKED_START) + first,
        .cache_start = cache_start(l) + first,
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .y_stride = row_elements(l, l->op->out[0]),
        .n_requests = n->n_block,
        .n_tokens = n->n_tokens,
        .n_heads = (int32_t)l->model->heads,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .block_tokens = (int32_t)l->packed->limits.pattern_tokens,
        .max_tokens = n->max_block_tokens,
        .dtype = l->dtype,
    };
    return n->n_block > 0 ? l->table->pattern_attention(l->device, &call) : DEVICE_OK;
}

/* ---- what is measured ---- */

enum { ALIGN_WORDS = 8 }; /* of a head, such that stores begin where others' do */

static int32_t n_blocks_of(const struct trial *trial, int64_t queries) {
    return pattern_n_blocks((int32_t)queries, (int32_t)trial->packed->limits.pattern_tokens);
}

static void give_words(struct trial *trial, struct step_part *part, int32_t n_blocks) {
    trial_give_store(trial, part,
                     align_up((int64_t)n_blocks * pattern_n_words(n_blocks), ALIGN_WORDS));
}

/* Requests that choose a third of all blocks, and of the later half a third among themselves. */
static void fill_choosing(struct trial *trial, const struct calibration_point *point) {
    const uint32_t q = (uint32_t)point->sizes[POINT_Q];
    const int32_t n = n_blocks_of(trial, q);
    for (int64_t r = 0; r < point->sizes[POINT_BATCH]; r++) {
        struct step_part *part = trial_add(
            trial,
            (struct span){.phase = PHASE_REFRESH, .queries = q, .attended_keys = q + q / 2 + 1});
        part->pattern = (struct pattern_choice){n / 2, n / 3 + 1, (n - n / 2) / 3 + 1};
        give_words(trial, part, n);
    }
}

/* Of every block of queries `keep` blocks of keys, spread, and other ones for each head. */
static void write_pattern(const struct trial *trial, uint32_t *words, int32_t n, int32_t keep) {
    for (int64_t head = 0; head < trial->model->heads; head++) {
        for (int64_t block = 0; block < n; block++) {
            uint32_t *of = pattern_words_of(words, sizeof *words, 0, n, head, block);
            for (int64_t i = 0; i < keep; i++) {
                const int64_t kept = (head + block + i * n / keep) % n;
                of[kept / PATTERN_WORD_BITS] |= UINT32_C(1) << kept % PATTERN_WORD_BITS;
            }
        }
    }
}

static void fill_attending(struct trial *trial, const struct calibration_point *point) {
    const uint32_t q = (uint32_t)point->sizes[POINT_Q], kv = (uint32_t)point->sizes[POINT_KV];
    const int32_t n = n_blocks_of(trial, q), keep = n_blocks_of(trial, kv);
    const int64_t per_head = align_up((int64_t)n * pattern_n_words(n), ALIGN_WORDS);
    const int64_t n_words = per_head * trial->model->heads;
    const int64_t n_requests = point->sizes[POINT_BATCH];
    trial->words = mem_resized(trial->words, (size_t)(n_requests * n_words), sizeof *trial->words);
    memset(trial->words, 0, (size_t)(n_requests * n_words) * sizeof *trial->words);
    trial->n_words = n_requests * n_words;
    for (int64_t r = 0; r < n_requests; r++) {
        struct step_part *part = trial_add(
            trial, (struct span){.phase = PHASE_REFRESH, .queries = q, .attended_keys = kv});
        give_words(trial, part, n);
        write_pattern(trial, trial->words + r * n_words, n, keep);
    }
}

/* Requests of some lengths; where they attend by patterns also of shares of their keys, in whole
 * blocks. */
static void add_points(struct points *points, struct calibration_point *point, bool by_keys) {
    const struct model *m = points->graph->model;
    const int64_t max = points->bounds->max_tokens, least = PATTERN_TOKENS;
    struct sizes batches = {.n = 0}, queries = {.n = 0};
    SIZES_ADD(&batches, max, 1, 4, 16);
    SIZES_ADD(&queries, max, 128, 512, 2048, 8192);
    if (!points->bounds->is_coarse) {
        SIZES_ADD(&queries, max, 256, 1024, 4096, 16384);
    }
    const int64_t by = points->bounds->is_coarse ? 4 : 2;
    for (size_t i = 0; i < batches.n; i++) {
        for (size_t j = 0; j < queries.n; j++) {
            const int64_t batch = batches.values[i], q = queries.values[j];
            for (int64_t kv = q; batch * q <= max && kv >= least && 8 * kv >= q; kv /= by) {
                const int64_t sizes[] = {batch, q, kv, m->heads, m->kv_heads, m->head_dim};
                const int64_t without[] = {batch, q, m->heads, m->kv_heads, m->head_dim, 0};
                memcpy(point->sizes, by_keys ? sizes : without, sizeof sizes);
                point->n_sizes = by_keys ? 6 : 5;
                if (by_keys || kv == q) {
                    points_add(points, point);
                }
            }
        }
    }
    points_end_group(points);
}

static void add_choosing(struct points *points, const struct op *op) {
    struct calibration_point point = point_of(points, op);
    point.fill = fill_choosing;
    if (!points_have(points, &point)) {
        add_points(points, &point, false);
    }
}

static void add_attending(struct points *points, const struct op *op) {
    struct calibration_point point = point_of(points, op);
    point.fill = fill_attending;
    if (!points_have(points, &point)) {
        add_points(points, &point, true);
    }
}

const struct op_launch op_launch_pattern = {
    .launch = launch_pattern,
    .facts = OP_PATTERNS,
    .sizes = OP_SIZES_OWN,
    .points = add_choosing,
    .weightiness = OP_HEAVY,
};
const struct op_launch op_launch_attention_pattern = {
    .launch = launch_pattern_attention,
    .sizes = OP_SIZES_OWN,
    .points = add_attending,
    .weightiness = OP_HEAVY,
};
