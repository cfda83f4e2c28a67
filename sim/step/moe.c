/* Mixtures of experts: products of others' runtimes, and the sorted pairs of our own. */
#include "sim/step/graph.h"

const struct op_type op_type_moe_route = {
    .family = FAMILY_ROUTER,
    .table = PROFILE_MOE,
    .work = op_product_work,
    .within_experts = true,
};

static double pairs_of(const struct op *op, const struct op_amount *amount) {
    return amount->rows * op->experts_active;
}

/* The weights of the experts that are hit. Where gates and ups are one operator with their
 * activation, a token is read once. */
static struct op_work product_work(const struct graph *graph, const struct op *op,
                                   const struct op_amount *amount) {
    const bool activates = op_type_of(op)->activates;
    const double pairs = pairs_of(op, amount), flops = 2 * pairs * (double)(op->n * op->k);
    const int64_t written = graph_element_bytes(graph) * (activates ? op->n / 2 : op->n);
    return (struct op_work){
        .flops = flops,
        .fp8_flops = op_is_fp8(graph, op) ? flops : 0,
        .row_bytes = (activates ? amount->rows : pairs) * (double)op_input_bytes(graph, op) +
                     pairs * (double)written,
        .weight_bytes = amount->n_steps * (double)op_weight_bytes(graph, op) * amount->hits,
    };
}

const struct op_type op_type_moe_linear = {
    .family = FAMILY_EXPERTS,
    .memory = MEMORY_EXPERTS,
    .table = PROFILE_MOE,
    .work = product_work,
};

const struct op_type op_type_moe_gate_up = {
    .family = FAMILY_EXPERTS,
    .table = PROFILE_MOE,
    .work = product_work,
    .activates = true,
    .by_pairs = true,
};

const struct op_type op_type_moe_down = {
    .family = FAMILY_EXPERTS,
    .table = PROFILE_MOE,
    .work = product_work,
    .by_pairs = true,
};

const struct op_type op_type_moe_choose = {
    .pass = PASS_MOE_CHOOSE,
    .wide = WIDE_EXPERTS,
    .work = op_pass_work,
    .within_experts = true,
};

const struct op_type op_type_moe_combine = {
    .pass = PASS_MOE_COMBINE,
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
    .within_experts = true,
};
