#include "sim/graph/graph.h"

/* Queries and what becomes of them, the queries' own keys and values, and the cached ones. */
static struct op_work work(const struct graph *graph, const struct op *op,
                           const struct op_amount *amount) {
    (void)op;
    const struct model *m = graph->model;
    double row_bytes = (double)m->head_dim * (double)graph->element_bytes;
    double cached = amount->sum_kv > amount->sum_q ? amount->sum_kv - amount->sum_q : 0;
    return (struct op_work){
        .flops = 4.0 * amount->sum_q_kv * ((double)m->heads * (double)m->head_dim),
        .row_bytes =
            row_bytes * 2 *
            (amount->sum_q * (double)m->heads + (amount->sum_kv - cached) * (double)m->kv_heads),
        .cached_bytes = row_bytes * 2 * cached * (double)m->kv_heads,
    };
}

const struct op_type op_type_attention_full = {
    .family = FAMILY_ATTENTION,
    .memory = MEMORY_ATTENTION,
    .table = PROFILE_ATTENTION_FULL,
    .work = work,
    .is_variable = true,
};

const struct op_type op_type_attention_block = {
    .family = FAMILY_ATTENTION,
    .memory = MEMORY_NONE, /* another way to the same output as full attention */
    .table = PROFILE_ATTENTION_BLOCK,
    .work = work,
    .decodes = true,
};

const struct op_type op_type_attention_prefill = {
    .family = FAMILY_ATTENTION,
    .table = PROFILE_ATTENTION_CAUSAL,
    .work = work,
};
