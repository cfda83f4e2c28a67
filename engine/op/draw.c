#include "engine/op/launch.h"

/* The candidates of the same rows become those that are drawn, or their confidences tempered. */
static int launch_draw(const struct launch *l) {
    const struct candidates at = issue_candidates(l->issue, l->op->in[1]);
    const int64_t first = l->instance->first_row;
    const struct call_draw call = {
        .logits = rows_at(l, l->op->in[0]),
        .token = at.token + first,
        .confidence = at.confidence + first,
        .margin = at.margin != NULL ? at.margin + first : NULL,
        .entropy = at.margin != NULL ? at.entropy + first : NULL,
        .bits = (const uint64_t *)(const void *)wide(l, PACKED_DRAWS) + first,
        .by = l->packed->limits.drawing,
        .n_rows = (int32_t)l->instance->n_rows,
        .n_vocab = (int32_t)l->model->vocab,
        .dtype = l->dtype,
    };
    return l->table->draw(l->device, &call);
}

const struct op_launch op_launch_draw = {.launch = launch_draw, .facts = OP_DRAWS};
