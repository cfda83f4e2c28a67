/* Fresh keys and values to their requests' stores. */
#include "engine/op/launch.h"

static int launch_keep(const struct launch *l) {
    const struct qkv from = split(l, l->op->in[0]);
    const struct call_keep call = {
        .k = from.k,
        .v = from.v,
        .start = narrow(l, PACKED_START),
        .owner = narrow(l, PACKED_OWNER),
        .kv_rows =
            l->op->picks >= 0 ? picks_in(l, l->op->picks).positions : narrow(l, PACKED_KV_ROWS),
        .kept = narrow(l, PACKED_KEPT),
        .cache_start = cache_start(l),
        .cache = l->issue->room->pool,
        .kv_stride = from.stride,
        .n_requests = counts(l)->n_plain + (l->packed->limits.renews_rows ? counts(l)->n_block : 0),
        .n_tokens = counts(l)->n_keeping_tokens,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .cache_fp8 = caches_fp8(l),
        .dtype = l->dtype,
    };
    return call.n_tokens > 0 ? l->table->keep(l->device, &call) : DEVICE_OK;
}

/* Every token is kept in the order in which it stands. */
static void fill(struct trial *trial, const struct calibration_point *point) {
    for (int64_t left = point->n_rows; left > 0; left -= SELECT_CANVAS_TOKENS) {
        uint32_t n = (uint32_t)(left < SELECT_CANVAS_TOKENS ? left : SELECT_CANVAS_TOKENS);
        struct step_part *part =
            trial_add(trial, (struct span){.phase = PHASE_REFRESH, .queries = n});
        part->kv_rows = part->positions;
        trial_give_store(trial, part, n);
    }
}

const struct op_launch op_launch_keep = {.launch = launch_keep,
                                         .symbols = OP_OVER_TOKENS | OP_OVER(SYM_FULL_Q) |
                                                    OP_OVER(SYM_LEAD_FULL_Q),
                                         .sizes = OP_SIZES_PASS,
                                         .fill = fill};
