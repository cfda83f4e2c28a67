/* The program of a step graph: which products add their outputs to the residual stream. */
#include "engine/op/program.h"
#include "sim/system/system.h"
#include "tests/support/suite.h"

/* The first product that adds; n_ops: none does. `at` is the product, at + 1 what would add. */
static uint32_t first_adding(const struct graph *graph) {
    static struct program program;
    struct err err = {0};
    ck_assert_msg(program_make(&program, graph, &err) == 0, "%s", err.text);
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (program.added_to[i] >= 0) {
            ck_assert_int_eq(program.added_to[i], graph->ops[i + 1].in[0]);
            return i;
        }
    }
    return graph->n_ops;
}

static void read_by_another(struct graph *graph, uint32_t at) {
    int n = 0;
    while (graph->ops[at + 2].in[n] >= 0) {
        n++;
    }
    ck_assert_int_lt(n + 1, OP_MAX_TENSORS);
    graph->ops[at + 2].in[n] = graph->ops[at].out[0];
    graph->ops[at + 2].in[n + 1] = -1;
}

static void read_twice_by_the_sum(struct graph *graph, uint32_t at) {
    graph->ops[at + 1].in[2] = graph->ops[at].out[0];
    graph->ops[at + 1].in[3] = -1;
}

static void sum_of_other_rows(struct graph *graph, uint32_t at) {
    graph->ops[at + 1].rows = SYM_LOGIT_ROWS;
}

static void sum_elsewhere(struct graph *graph, uint32_t at) {
    graph->ops[at + 1].out[0] = graph->ops[at].in[0];
}

/* As a norm reads more than what it adds. */
static void sum_of_others(struct graph *graph, uint32_t at) {
    graph->ops[at + 1].in[1] = graph->ops[at].in[0];
    graph->ops[at + 1].in[2] = graph->ops[at].out[0];
    graph->ops[at + 1].in[3] = -1;
}

static void product_of_picked_rows(struct graph *graph, uint32_t at) {
    graph->ops[at].picks = graph->ops[at].in[0];
}

static void sum_of_picked_rows(struct graph *graph, uint32_t at) {
    graph->ops[at + 1].picks = graph->ops[at].in[0];
}

static void stream_of_wider_rows(struct graph *graph, uint32_t at) {
    graph->tensors[graph->ops[at + 1].in[0]].bytes.per *= 2;
}

static void sum_of_another_segment(struct graph *graph, uint32_t at) {
    for (uint32_t i = at + 1; i < graph->n_ops; i++) {
        graph->ops[i].segment++;
    }
}

static void weights_by_squares(struct graph *graph, uint32_t at) {
    (void)at;
    graph->storage.weights = NUMBER_FP8;
}

static void (*const changes[])(struct graph *graph, uint32_t at) = {
    read_by_another,        read_twice_by_the_sum,  sum_of_other_rows,  sum_elsewhere,
    sum_of_others,          product_of_picked_rows, sum_of_picked_rows, stream_of_wider_rows,
    sum_of_another_segment, weights_by_squares,
};
enum { N_CHANGES = sizeof changes / sizeof changes[0] };

TEST_EACH(a_product_adds_what_one_sum_alone_reads, N_CHANGES) {
    const struct system_request asked = {
        .system = "fast-dllm", .model = "llada-tiny", .gpu = "cpu", .roofline = true};
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_msg(system_open(&asked, &system, &err) == 0, "%s", err.text);
    static struct graph graph;
    graph = system->graph;
    const uint32_t at = first_adding(&graph);
    ck_assert_uint_lt(at + 2, graph.n_ops);
    changes[_i](&graph, at);
    const uint32_t other = first_adding(&graph);
    ck_assert_uint_ne(other, at);
    if (changes[_i] == weights_by_squares) { /* a sum alone, no norm's */
        ck_assert_uint_lt(other + 1, graph.n_ops);
        ck_assert_int_eq(graph.ops[other + 1].kind, OP_ADD);
    }
    system_close(system);
}

SUITE("program")
