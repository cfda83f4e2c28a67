#include "sim/step/graph.h"

/* Queries and what becomes of them, their own keys and values, and the cached ones. */
static struct op_work work(const struct graph *graph, const struct op *op,
                           const struct op_amount *amount) {
    const struct model_heads of = graph_heads(graph, op);
    double heads = of.heads, kv_heads = of.kv_heads;
    double head_bytes = (double)(of.head_dim * graph_element_bytes(graph));
    double cached_bytes =
        (double)number_row_bytes((enum number_type)graph->storage.cache, of.head_dim);
    double own = amount->sum_kv - amount->sum_cached;
    return (struct op_work){
        .flops = 4.0 * amount->sum_q_kv * (heads * (double)of.head_dim),
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

/* Not less by the pair than full attention: what is left out are whole blocks of keys. */
const struct op_type op_type_attention_pattern = {
    .family = FAMILY_ATTENTION,
    .memory = MEMORY_NONE,
    .table = PROFILE_ATTENTION_PATTERN,
    .table_instead = PROFILE_ATTENTION_FULL,
    .work = work,
};

/* Two passes over the keys, the one for every query's peak and sum and the other for the shares:
 * queries times keys twice, as often as attention multiplies, whose values are not read. */
static struct op_work pattern_work(const struct graph *graph, const struct op *op,
                                   const struct op_amount *amount) {
    struct op_work all = work(graph, op, amount);
    all.row_bytes /= 2;
    return all;
}

const struct op_type op_type_pattern = {
    .family = FAMILY_ATTENTION,
    .memory = MEMORY_NONE,
    .table = PROFILE_PATTERN,
    .table_instead = PROFILE_ATTENTION_FULL,
    .work = pattern_work,
};

const struct op_type op_type_attention_prefill = {
    .family = FAMILY_ATTENTION,
    .table = PROFILE_ATTENTION_CAUSAL,
    .work = work,
};
