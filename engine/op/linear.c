#include "engine/op/launch.h"

#include "sim/model/ranks.h"

static struct call_linear call_of(const struct launch *l) {
    return (struct call_linear){
        .x = rows_at(l, l->op->in[0]),
        .w = op_weight(l),
        .y = rows_at(l, l->op->out[0]),
        .x_stride = row_elements(l, l->op->in[0]),
        .y_stride = row_elements(l, l->op->out[0]),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_outputs = (int32_t)l->op->n,
        .n_inputs = (int32_t)l->op->k,
        .outputs_before = (int32_t)l->op->weight_rows_before,
        .outputs_after = (int32_t)l->op->weight_rows_after,
        .dtype = l->dtype,
        .deterministic = model_ranks(l->model) > 1 && l->op->weight == WEIGHT_ROUTER,
        /* Tokens' probabilities times the table of embeddings. */
        .by_inputs = l->op->weight == WEIGHT_EMBEDDING,
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
