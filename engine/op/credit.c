#include "engine/op/launch.h"

static struct call_credit credit_of(const struct launch *l, enum kernel_credit_part part) {
    const struct candidates at = launch_candidates(l, l->op->in[1]);
    const int64_t first = l->instance->first_row;
    const struct decode_credit *credit = &counts(l)->credit;
    return (struct call_credit){
        .token = at.token,
        .confidence = at.confidence,
        .state = l->issue->room->credit,
        .lists = narrow(l, PACKED_ROW_PLACES) + first,
        .position = wide(l, PACKED_TARGETS) + first,
        .canvas = l->issue->room->canvases,
        .part = part,
        .n_rows = (int32_t)l->instance->n_rows,
        .n_vocab = (int32_t)l->model->vocab,
        .n_slots = (int32_t)l->packed->limits.credit_slots,
        .mask_token = (int32_t)l->model->mask_token,
        .alpha = credit->alpha,
        .beta = credit->beta,
        .gamma = credit->gamma,
        .dtype = l->dtype,
    };
}

/* The candidates of the same rows become those of the logits with credit: all of a row's, or those
 * of its entries, which ranks have added up. */
static int launch_credit(const struct launch *l) {
    const bool has_entries = l->graph->tensors[l->op->in[0]].single;
    struct call_credit call = credit_of(l, has_entries ? KERNEL_CREDIT_DECIDE : KERNEL_CREDIT_ALL);
    call.logits = has_entries ? NULL : rows_at(l, l->op->in[0]);
    call.entries = has_entries ? (float *)(void *)input(l, 0) : NULL;
    return l->table->credit(l->device, &call);
}

/* A rank's entries of the lists, which all ranks earn alike. */
static int launch_credit_logits(const struct launch *l) {
    struct call_credit call = credit_of(l, KERNEL_CREDIT_EARN);
    call.logits = rows_at(l, l->op->in[0]);
    call.entries = (float *)(void *)output(l, 0);
    call.first_token = first_token(l);
    return l->table->credit(l->device, &call);
}

const struct op_launch op_launch_credit = {.launch = launch_credit, .facts = OP_GIVES_CREDIT};
const struct op_launch op_launch_credit_logits = {.launch = launch_credit_logits,
                                                  .facts = OP_GIVES_CREDIT};
