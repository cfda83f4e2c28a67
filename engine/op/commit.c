#include "engine/op/launch.h"
#include "sim/base/rng.h"

static const float *thresholds(const struct launch *l) {
    return l->packed->smooths ? l->issue->room->thresholds
                              : (const float *)(const void *)narrow(l, PACKED_THRESHOLD);
}

/* The decisions [first, first + n), which all take a number, or all go by the rule. */
static int launch_decisions(const struct launch *l, int32_t first, int32_t n, int32_t max_rows,
                            enum decode_kind rule) {
    const struct packed_counts *of = counts(l);
    const struct candidates from = issue_candidates(l->issue, l->op->in[0]);
    const struct call_decode call = {
        .confidence = from.confidence,
        .margin = from.margin,
        .entropy = from.entropy,
        .token = from.token,
        .first_row = narrow(l, PACKED_FIRST_ROW) + first,
        .n_rows = narrow(l, PACKED_N_ROWS) + first,
        .take = narrow(l, PACKED_TAKE) + first,
        .threshold = thresholds(l) + first,
        .key = (const uint64_t *)(const void *)(wide(l, PACKED_KEY) + first),
        .canvas_start = wide(l, PACKED_CANVAS) + first,
        .position = wide(l, PACKED_TARGETS),
        .canvas = l->issue->room->canvases,
        .committed = l->issue->room->committed,
        .n_committed = l->issue->room->n_committed + first,
        .n_requests = n,
        .max_rows = max_rows,
        .mask_token = (int32_t)l->model->mask_token,
        .rule = rule,
        .rank = (enum decode_rank)of->rank,
        .slack = of->slack,
        .low = of->low,
        .factor = of->factor,
        .bound = of->bound,
        .edit = of->edit,
        .temperature = rule == DECODE_COUNT ? of->temperature : 0,
    };
    return n > 0 ? l->table->decode(l->device, &call) : DEVICE_OK;
}

static int launch_commit(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    int status = l->table->clear(l->device, l->issue->room->committed, n->n_logit_rows);
    if (status == DEVICE_OK) {
        status = launch_decisions(l, 0, n->n_take, n->max_take_rows, DECODE_COUNT);
    }
    if (status == DEVICE_OK) {
        status =
            launch_decisions(l, n->n_take, n->n_rule, n->max_rule_rows, (enum decode_kind)n->rule);
    }
    return status;
}

/* A block of each request, of which it commits one position. Every position stays masked, because
 * the mask token is what is committed there. */
static void fill(struct trial *trial, const struct calibration_point *point) {
    const int64_t block = trial->model->block_tokens;
    for (int64_t left = point->n_rows; left > 0; left -= block) {
        uint32_t n = (uint32_t)(left < block ? left : block);
        struct step_part *part =
            trial_add(trial, (struct span){.phase = PHASE_REFRESH, .queries = n, .logit_rows = n});
        part->decision = (struct decision){.n_rows = n, .take = 1};
    }
    trial->has_tokens = trial->has_candidates = true;
    for (int64_t i = 0; i < trial->n_tokens; i++) {
        trial->tokens[i] = (int32_t)trial->model->mask_token;
        trial->confidences[i] = (float)rng_keyed(1, 0, 0, (uint64_t)i);
    }
}

const struct op_launch op_launch_commit = {
    .launch = launch_commit, .facts = OP_COMMITS, .sizes = OP_SIZES_PASS, .fill = fill};
