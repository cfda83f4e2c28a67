/* The calls of iteration smoothing. Which tensor an operator's first, second and so on is, the
 * graph builder says. */
#include "engine/op/issue_impl.h"

int issue_softmax(const struct turn_of *t) {
    const struct call_softmax call = {
        .logits = rows_at(t, t->op->in[0]),
        .y = rows_at(t, t->op->out[0]),
        .n_rows = (int32_t)t->turn->n_rows,
        .n_vocab = (int32_t)t->model->vocab,
        .dtype = t->dtype,
    };
    return t->table->softmax(t->device, &call);
}

int issue_keep_expected(const struct turn_of *t) {
    const struct smoothing *smoothing = &t->packed->limits.smoothing;
    const struct call_keep_expected call = {
        .x = input(t, 0),
        .places = narrow(t, PACKED_ROW_PLACES),
        .step = narrow(t, PACKED_STEP),
        .kept = t->issue->room->expected,
        .n_rows = (int32_t)t->turn->n_rows,
        .n_channels = (int32_t)t->model->hidden,
        .weight_init = smoothing->weight_init,
        .weight_growth = smoothing->weight_growth,
        .weight_most = smoothing->weight_most,
        .dtype = t->dtype,
    };
    return t->table->keep_expected(t->device, &call);
}

/* Of all tokens, those that have logits and hold a mask. */
int issue_add_expected(const struct turn_of *t) {
    const struct call_add_expected call = {
        .kept = t->issue->room->expected,
        .places = narrow(t, PACKED_TOKEN_PLACES),
        .at = wide(t, PACKED_AT),
        .canvas = t->issue->room->canvases,
        .y = output(t, 0),
        .n_tokens = counts(t)->n_tokens,
        .n_channels = (int32_t)t->model->hidden,
        .mask_token = (int32_t)t->model->mask_token,
        .dtype = t->dtype,
    };
    return t->table->add_expected(t->device, &call);
}

int issue_next_step(const struct turn_of *t) {
    const struct packed_counts *n = counts(t);
    const struct call_next_step call = {
        .step = narrow(t, PACKED_STEP),
        .first_row = narrow(t, PACKED_FIRST_ROW),
        .least = (const float *)(const void *)narrow(t, PACKED_THRESHOLD),
        .threshold = t->issue->room->thresholds,
        .n_rows = n->n_logit_rows,
        .n_requests = n->n_take + n->n_rule,
        .threshold_decay = t->packed->limits.smoothing.threshold_decay,
    };
    return t->table->next_step(t->device, &call);
}
