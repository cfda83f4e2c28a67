/* Operator types: what their descriptors promise, and the work that they count. */
#include "sim/step/registrar.h"
#include "tests/support/suite.h"

TEST(every_operator_says_what_it_costs) {
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const struct op_type *type = op_types[kind];
        ck_assert_msg(type != NULL && type->work != NULL, "%s", op_kind_names[kind]);
        ck_assert_msg(type->wide == WIDE_NONE || type->family == FAMILY_PASS,
                      "%s: a pass by two names", op_kind_names[kind]);
        ck_assert_msg(type->activates <=
                          (type->family == FAMILY_PRODUCT || type->family == FAMILY_EXPERTS),
                      "%s", op_kind_names[kind]);
    }
}

/* A graph of two tensors of so many bytes a row and one operator from one to the other. */
static struct op *one_op(struct graph *graph, const struct model *model, enum op_kind kind,
                         int64_t in_bytes, int64_t out_bytes) {
    *graph = (struct graph){
        .model = model,
    };
    graph_add_segment(graph, "all", 1);
    int in = graph_add_cache(graph, "in", SYM_TOKENS, in_bytes);
    int out = graph_add_tensor(graph, "out", SYM_TOKENS, out_bytes);
    return graph_add_op(graph, "op", kind, SYM_TOKENS, (int[]){in, -1}, (int[]){out, -1});
}

static struct op_work work_of(const struct graph *graph, struct op_amount amount) {
    return op_type_of(&graph->ops[0])->work(graph, &graph->ops[0], &amount);
}

TEST(a_pass_is_as_wide_as_what_it_changes) {
    const struct model model = {.hidden = 6, .heads = 4, .kv_heads = 2, .head_dim = 5, .vocab = 11};
    static const struct {
        enum op_kind kind;
        int64_t channels;
    } rows[] = {{OP_ADD, 6},    {OP_RMSNORM, 6},        {OP_KEEP, 10}, {OP_SAMPLE, 11},
                {OP_COMMIT, 1}, {OP_ROPE, 20 + 2 * 10}, {OP_SWIGLU, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct graph graph;
        struct op *op = one_op(&graph, &model, rows[i].kind, 2 * 2 * 8, 2 * 8);
        op->n = 20;
        op->k = 10;
        ck_assert_int_eq(op_pass_of(&graph, op).channels, rows[i].channels);
    }
}

TEST(a_product_reads_its_weight_once_a_step) {
    struct graph graph;
    struct op *op = one_op(&graph, NULL, OP_LINEAR, 2 * 8, 2 * 5);
    op->n = 5;
    op->k = 8;
    struct op_work work = work_of(&graph, (struct op_amount){.rows = 12, .n_steps = 4});
    ck_assert_double_eq(work.flops, 2 * 12 * 5 * 8);
    ck_assert_double_eq(work.row_bytes, 2 * 12 * (5 + 8));
    ck_assert_double_eq(work.weight_bytes, 2 * 4 * 5 * 8);
    op->kind = OP_GATE_UP; /* half of the channels gate the other half */
    op->n = 10;
    work = work_of(&graph, (struct op_amount){.rows = 12, .n_steps = 4});
    ck_assert_double_eq(work.row_bytes, 2 * 12 * (5 + 8));
    op->kind = OP_HEAD; /* logits are never stored */
    work = work_of(&graph, (struct op_amount){.rows = 12, .n_steps = 4});
    ck_assert_double_eq(work.row_bytes, 2 * 12 * 8);
}

TEST(only_experts_with_tokens_are_read) {
    struct graph graph;
    struct op *op = one_op(&graph, NULL, OP_MOE_GATE_UP, 2 * 16, 2 * 2 * 8);
    op->n = 2 * 8;
    op->k = 16;
    op->experts = 8;
    op->experts_active = 2;
    struct op_amount amount = {.rows = 3, .n_steps = 1, .hits = 5};
    struct op_work work = work_of(&graph, amount);
    ck_assert_double_eq(work.flops, 6 * 2 * 2 * 8 * 16);
    ck_assert_double_eq(op_work_bytes(&work), 2 * (3 * 16 + 5 * 2 * 8 * 16 + 6 * 8));
    op->kind = OP_MOE_DOWN;
    op->n = 16;
    op->k = 8;
    work = work_of(&graph, amount);
    ck_assert_double_eq(op_work_bytes(&work), 2 * (6 * 8 + 5 * 8 * 16 + 6 * 16));
}

TEST(attention_reads_a_cached_row_once_for_all_the_queries_that_share_it) {
    const struct model model = {.heads = 32, .kv_heads = 8, .head_dim = 128};
    struct graph graph;
    one_op(&graph, &model, OP_ATTENTION_BLOCK, 2, 2);
    struct op_work work = work_of(
        &graph,
        (struct op_amount){.sum_q = 32, .sum_kv = 544, .sum_cached = 512, .sum_q_kv = 32 * 544});
    ck_assert_double_eq(work.flops, 4.0 * 32 * 544 * 32 * 128);
    ck_assert_double_eq(work.cached_bytes, 2 * 512 * 8 * 256);
    ck_assert_double_eq(work.row_bytes, 2 * 32 * 32 * 256 + 2 * 32 * 8 * 256);
}

TEST(passes_count_every_byte_once) {
    struct graph graph;
    one_op(&graph, NULL, OP_SWIGLU, 2 * 2 * 64, 2 * 64);
    ck_assert_double_eq(work_of(&graph, (struct op_amount){.rows = 10}).row_bytes, 10 * 2 * 3 * 64);
    /* A copy reads what it writes, from the cache, however wide its source is. */
    graph.ops[0].kind = OP_GATHER;
    struct op_work work = work_of(&graph, (struct op_amount){.rows = 10});
    ck_assert_double_eq(work.cached_bytes, 10 * 2 * 64);
    ck_assert_double_eq(op_work_bytes(&work), 2 * 10 * 2 * 64);
    /* What there is one of, whatever the rows, does not count. */
    graph.tensors[0].bytes.symbol = SYM_ONE;
    graph.ops[0].kind = OP_ADD;
    ck_assert_double_eq(work_of(&graph, (struct op_amount){.rows = 10}).row_bytes, 10 * 2 * 64);
}

TEST(probabilities_in_double_precision_take_its_instructions) {
    const struct model model = {.vocab = 100};
    struct graph graph;
    one_op(&graph, &model, OP_SOFTMAX, 2 * 100, 8 * 100);
    ck_assert_double_eq(work_of(&graph, (struct op_amount){.rows = 3}).fp64_flops,
                        2 * 47 * 3 * 100);
    one_op(&graph, &model, OP_SOFTMAX, 2 * 100, 2 * 100);
    ck_assert_double_eq(work_of(&graph, (struct op_amount){.rows = 3}).fp64_flops, 0);
}

SUITE("op")
