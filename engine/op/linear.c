#include "engine/op/launch.h"

#include "sim/model/ranks.h"

/* Tokens' probabilities times the table of embeddings: a rank's tokens'. */
static bool is_expectation(const struct launch *l) {
    return l->op->weight == WEIGHT_EMBEDDING;
}

static const void *matrix_of(const struct launch *l) {
    const unsigned char *w = op_weight(l);
    const int64_t row_bytes = l->op->n * graph_element_bytes(l->graph);
    return is_expectation(l) ? w + first_token(l) * row_bytes : w;
}

static struct call_linear call_of(const struct launch *l) {
    const int stream = added_to(l->issue, l->instance->op);
    unsigned char *y = rows_at(l, stream >= 0 ? stream : l->op->out[0]);
    return (struct call_linear){
        .x = rows_at(l, l->op->in[0]),
        .w = matrix_of(l),
        .add = stream >= 0 ? y : NULL,
        .y = y,
        .x_stride = row_elements(l, l->op->in[0]),
        .y_stride = row_elements(l, l->op->out[0]),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_outputs = (int32_t)l->op->n,
        .n_inputs = (int32_t)l->op->k,
        .outputs_before = (int32_t)l->op->weight_rows_before,
        .outputs_after = (int32_t)l->op->weight_rows_after,
        .dtype = l->dtype,
        .deterministic = model_ranks(l->model) > 1 && l->op->weight == WEIGHT_ROUTER,
        .by_inputs = is_expectation(l),
        .fp8 = op_fp8(l),
    };
}

static int launch_linear(const struct launch *l) {
    const struct call_linear call = call_of(l);
    return l->table->linear(l->device, &call);
}

static bool is_chosen(const struct launch *l) {
    const struct call_linear call = call_of(l);
    return l->table->linear_chosen(l->device, &call);
}

const struct op_launch op_launch_linear = {
    .launch = launch_linear,
    .facts = OP_IS_PRODUCT | OP_IS_CHOSEN_ALONE,
    .is_chosen = is_chosen,
    .sizes = OP_SIZES_PRODUCT,
    .falls = true,
    .weightiness = OP_HEAVY,
};
