#include "sim/step/graph.h"

/* Queries and what becomes of them, their own keys and values, and the cached ones. */
static struct op_work work(const struct graph *graph, const struct op *op,
                           const struct op_amount *amount) {
    (void)op;
    const struct model *m = graph->model;
    double heads = m->heads, kv_heads = m->kv_heads;
    double head_bytes = (double)(m->head_dim * graph_element_bytes(graph));
    double cached_bytes =
        (double)number_row_bytes((enum number_type)graph->storage.cache, m->head_dim);
    double own = amount->sum_kv - amount->sum_cached;
    return (struct op_work){
        .flops = 4.0 * amount->sum_q_kv * (heads * (double)m->head_dim),
        .row_bytes = head_bytes * 2 * (amount->sum_q * heads + own * kv_heads),
        .cached_bytes = cached_bytes * 2 * amount->sum_cached * kv_heads,
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
