/* What FOCUS leaves out of a step: the importance of tokens, and the copy of those that go on. */
#include "engine/op/launch.h"

/* Of blocks alone: prefills have no masked tokens, and their importance is not used. */
static int launch_importance(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    const struct qkv from = split(l, l->op->in[0]), kv = pool_rows(l);
    const struct call_importance call = {
        .q = from.q,
        .k = kv.k,
        .kv_rows = narrow(l, PACKED_KV_ROWS),
        .start = narrow(l, PACKED_START) + n->n_plain,
        .masked = l->arrays + l->packed->offset_bytes[PACKED_MASKED],
        .importance = (float *)(void *)output(l, 0),
        .q_stride = from.stride,
        .kv_stride = kv.stride,
        .n_requests = n->n_block,
        .n_heads = (int32_t)l->model->heads,
        .n_kv_heads = (int32_t)l->model->kv_heads,
        .head_size = (int32_t)l->model->head_dim,
        .max_masked = n->max_masked,
        .dtype = l->dtype,
    };
    return n->n_block > 0 && n->max_masked > 0 ? l->table->importance(l->device, &call) : DEVICE_OK;
}

/* Queries and the residual stream of the tokens that go on. */
static int launch_evict(const struct launch *l) {
    const struct qkv from = split(l, l->op->in[2]);
    const int64_t hidden = l->model->hidden, width = (int64_t)l->model->heads * l->model->head_dim;
    const struct call_compact call = {
        .rows = narrow(l, PACKED_KEPT_TOKENS),
        .from = {from.q, input(l, 3)},
        .to = {output(l, 0), output(l, 1)},
        .from_stride = {from.stride, hidden},
        .to_stride = {width, hidden},
        .width = {(int32_t)width, (int32_t)hidden},
        .n_arrays = 2,
        .max_rows = (int32_t)l->instance->n_rows,
        .dtype = l->dtype,
    };
    return l->table->compact(l->device, &call);
}

const struct op_launch op_launch_importance = {.launch = launch_importance};
const struct op_launch op_launch_evict = {.launch = launch_evict, .facts = OP_EVICTS};
