/* What is read off logits: each row's best token and how sure the model is of it. */
#include "engine/op/launch.h"
#include "sim/step/builder.h"

_Static_assert((int)HEAD_SCRATCH_BYTES == (int)GRAPH_HEAD_SCRATCH_BYTES,
               "the graph plans what the kernels need");

/* Of the rows that are sampled next. */
static int penalise(const struct launch *l) {
    const struct call_penalise call = {.logits = rows_at(l, l->op->in[0]),
                                       .position = wide(l, PACKED_TARGETS),
                                       .canvas = l->issue->room->canvases,
                                       .penalty = counts(l)->penalty,
                                       .first_row = (int32_t)l->instance->first_row,
                                       .n_rows = (int32_t)l->instance->n_rows,
                                       .n_vocab = (int32_t)l->model->vocab,
                                       .first_token = first_token(l),
                                       .dtype = l->dtype};
    return call.penalty > 0 ? l->table->penalise(l->device, &call) : DEVICE_OK;
}

static int softcap(const struct launch *l) {
    const struct call_softcap call = {.logits = rows_at(l, l->op->in[0]),
                                      .n_rows = (int32_t)l->instance->n_rows,
                                      .n_vocab = (int32_t)l->model->vocab,
                                      .cap = (float)l->model->logit_softcap,
                                      .dtype = l->dtype};
    return call.cap > 0 ? l->table->softcap(l->device, &call) : DEVICE_OK;
}

static int launch_sample(const struct launch *l) {
    const struct candidates to = launch_candidates(l, l->op->out[0]);
    const struct call_sample call = {.logits = rows_at(l, l->op->in[0]),
                                     .token = to.token,
                                     .confidence = to.confidence,
                                     .margin = to.margin,
                                     .entropy = to.entropy,
                                     .logit = to.logit,
                                     .n_rows = (int32_t)l->instance->n_rows,
                                     .n_vocab = (int32_t)l->model->vocab,
                                     .dtype = l->dtype};
    int status = softcap(l);
    status = status == DEVICE_OK ? penalise(l) : status;
    return status == DEVICE_OK ? l->table->sample(l->device, &call) : status;
}

/* Logits in bf16 are rounded as if they were stored, so that the head decides as `sample` does. */
static int launch_head(const struct launch *l) {
    const struct candidates to = issue_candidates(l->issue, l->op->out[0]);
    const struct call_head call = {.x = input(l, 0),
                                   .w = op_weight(l),
                                   .token = to.token,
                                   .confidence = to.confidence,
                                   .margin = to.margin,
                                   .entropy = to.entropy,
                                   .logit = to.logit,
                                   .scratch = output(l, 1),
                                   .n_rows = (int32_t)l->instance->n_rows,
                                   .n_channels = (int32_t)l->model->hidden,
                                   .n_vocab = (int32_t)l->model->vocab,
                                   .rounded = l->dtype == KERNEL_BF16,
                                   .dtype = l->dtype,
                                   .fp8 = op_fp8(l)};
    return l->table->head(l->device, &call);
}

const struct op_launch op_launch_sample = {
    .launch = launch_sample, .facts = OP_READS_LOGITS, .sizes = OP_SIZES_PASS};
const struct op_launch op_launch_head = {
    .launch = launch_head, .sizes = OP_SIZES_PRODUCT, .weightiness = OP_HEAVY};
