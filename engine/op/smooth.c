/* Iteration smoothing, and self-conditioning, which keeps what a step expects as it is. Which
 * tensor an operator's first, second and so on is, the graph builder says. */
#include "engine/op/launch.h"

/* A rank's part of whole rows goes by what all ranks have found of them. */
static int launch_softmax(const struct launch *l) {
    const bool is_whole = l->op->in[1] < 0;
    struct candidates of = {.logit = NULL};
    if (!is_whole) {
        of = launch_candidates(l, l->op->in[1]);
    }
    const struct call_softmax call = {
        .logits = rows_at(l, l->op->in[0]),
        .y = rows_at(l, l->op->out[0]),
        .top = of.logit,
        .confidence = of.confidence,
        .n_rows = (int32_t)l->instance->n_rows,
        .n_vocab = (int32_t)l->model->vocab,
        .dtype = l->dtype,
        .by = l->model->uniform_noise ? draw_rules(l) : NULL,
    };
    return l->table->softmax(l->device, &call);
}

static int launch_keep_expected(const struct launch *l) {
    static const struct smoothing as_it_is = {.weight_init = 1, .weight_most = 1};
    const struct smoothing *smoothing =
        l->model->conditioning_ffn > 0 ? &as_it_is : &l->packed->limits.smoothing;
    const struct call_keep_expected call = {
        .x = input(l, 0),
        .places = narrow(l, PACKED_ROW_PLACES),
        .step = narrow(l, PACKED_STEP),
        .kept = l->issue->room->expected,
        .n_rows = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .weight_init = smoothing->weight_init,
        .weight_growth = smoothing->weight_growth,
        .weight_most = smoothing->weight_most,
        .dtype = l->dtype,
    };
    return l->table->keep_expected(l->device, &call);
}

/* What went through an FFN, to the rows that it is of. */
static int launch_condition(const struct launch *l) {
    const struct call_condition call = {
        .x = input(l, 1),
        .rows = narrow(l, PACKED_ROWS),
        .y = output(l, 0),
        .n_rows = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .dtype = l->dtype,
    };
    return l->table->condition(l->device, &call);
}

/* Of all tokens, those that have logits and hold a mask. */
static int launch_add_expected(const struct launch *l) {
    if (l->model->conditioning_ffn > 0) {
        return launch_condition(l);
    }
    const struct call_add_expected call = {
        .kept = l->issue->room->expected,
        .places = narrow(l, PACKED_TOKEN_PLACES),
        .at = wide(l, PACKED_AT),
        .canvas = l->issue->room->canvases,
        .y = output(l, 0),
        .n_tokens = counts(l)->n_stream_tokens,
        .n_channels = (int32_t)l->model->hidden,
        .mask_token = (int32_t)l->model->mask_token,
        .dtype = l->dtype,
    };
    return l->table->add_expected(l->device, &call);
}

/* Before a step's decisions, which go by the room's thresholds then; after its embeddings are kept,
 * which go by the steps before. */
static int launch_next_step(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    const struct call_next_step call = {
        .step = narrow(l, PACKED_STEP),
        .first_row = narrow(l, PACKED_FIRST_ROW),
        .least = (const float *)(const void *)narrow(l, PACKED_THRESHOLD),
        .threshold = l->issue->room->thresholds,
        .n_rows = n->n_logit_rows,
        .n_requests = n->n_take + n->n_rule,
        .threshold_decay = l->packed->limits.smoothing.threshold_decay,
    };
    return l->table->next_step(l->device, &call);
}

/* Probabilities that runtimes hold in another width are theirs. */
static int check_softmax(const struct graph *graph, const struct op *op, struct err *err) {
    const int64_t row_bytes = graph->model->vocab * graph_element_bytes(graph);
    return graph->tensors[op->out[0]].bytes.per == row_bytes ? 0 : op_refuse(op, NULL, err);
}

const struct op_launch op_launch_softmax = {
    .launch = launch_softmax, .check = check_softmax, .sizes = OP_SIZES_PASS};
/* Both move what a sum does, whose rows they are priced by. */
const struct op_launch op_launch_keep_expected = {
    .launch = launch_keep_expected, .facts = OP_SMOOTHS, .sizes = OP_SIZES_NONE};
const struct op_launch op_launch_add_expected = {.launch = launch_add_expected,
                                                 .sizes = OP_SIZES_NONE};
const struct op_launch op_launch_next_step = {.launch = launch_next_step, .sizes = OP_SIZES_NONE};
