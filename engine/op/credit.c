#include "engine/op/launch.h"

/* The candidates of the same rows become those of the logits with credit. */
static int launch_credit(const struct launch *l) {
    const struct candidates at = issue_candidates(l->issue, l->op->in[1]);
    const int64_t first = l->instance->first_row;
    const struct decode_credit *credit = &counts(l)->credit;
    const struct call_credit call = {
        .logits = rows_at(l, l->op->in[0]),
        .token = at.token + first,
        .confidence = at.confidence + first,
        .state = l->issue->room->credit,
        .lists = narrow(l, PACKED_ROW_PLACES) + first,
        .position = wide(l, PACKED_TARGETS) + first,
        .canvas = l->issue->room->canvases,
        .n_rows = (int32_t)l->instance->n_rows,
        .n_vocab = (int32_t)l->model->vocab,
        .n_slots = (int32_t)l->packed->limits.credit_slots,
        .mask_token = (int32_t)l->model->mask_token,
        .alpha = credit->alpha,
        .beta = credit->beta,
        .gamma = credit->gamma,
        .dtype = l->dtype,
    };
    return l->table->credit(l->device, &call);
}

static int check(const struct graph *graph, const struct op *op, struct err *err) {
    (void)graph;
    return op->out[2] < 0
               ? 0
               : err_usage(err, "the engine keeps lists of credit, the step graph a matrix: "
                                "set decoder.form = list, which decides alike");
}

const struct op_launch op_launch_credit = {
    .launch = launch_credit, .facts = OP_GIVES_CREDIT, .check = check};
