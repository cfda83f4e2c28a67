/* The output head and what is read off its logits. */
#include "kernels/rules/draw.h"
#include "sim/step/graph.h"
/* Its logits are never stored: what it moves is hidden states and weights. */
static struct op_work head_work(const struct graph *graph, const struct op *op,
                                const struct op_amount *amount) {
    struct op_work work = op_product_work(graph, op, amount);
    work.row_bytes = amount->rows * (double)op_input_bytes(graph, op);
    return work;
}

const struct op_type op_type_head = {
    .family = FAMILY_PRODUCT,
    .table = PROFILE_HEAD,
    .work = head_work,
};

/* Double-precision instructions of a logit in PyTorch's softmax, whose kernel passes over a row
 * three times: 1 for the largest, 19 for the sum of exponentials (what nvcc 13 makes of exp() and
 * the sum for sm_90), 18 and a division (9, assumed) for exponential over sum. Data sheets count an
 * instruction as 2 FLOPs. */
enum { FP64_OF_SOFTMAX = 47 };

static struct op_work softmax_work(const struct graph *graph, const struct op *op,
                                   const struct op_amount *amount) {
    struct op_work work = op_pass_work(graph, op, amount);
    const struct model *m = graph->model;
    if (graph->tensors[op->out[0]].bytes.per ==
        model_logits_bytes_per_row(m, (int64_t)sizeof(double))) {
        work.fp64_flops = 2.0 * FP64_OF_SOFTMAX * amount->rows * (double)m->vocab;
    }
    return work;
}

const struct op_type op_type_softmax = {
    .memory = MEMORY_SOFTMAX,
    .eager = {4, 2, 14.6},
    .pass = PASS_SOFTMAX,
    .wide = WIDE_VOCAB,
    .work = softmax_work,
};

const struct op_type op_type_sample = {
    .memory = MEMORY_SAMPLE,
    .eager = {2, 2, 13.6},
    .pass = PASS_SAMPLE,
    .wide = WIDE_VOCAB,
    .work = op_pass_work,
};

const struct op_type op_type_commit = {
    .pass = PASS_DECODE,
    .wide = WIDE_ONE,
    .work = op_pass_work,
};

/* A few numbers a row, which profiles have within the commit. */
const struct op_type op_type_next_step = {
    .memory = MEMORY_NONE,
    .work = op_no_work,
    .is_part = true,
};

/* A graph names logits as often as they are read. */
const struct op_type op_type_draw = {
    .pass = PASS_DRAW,
    .wide = WIDE_VOCAB,
    .work = op_pass_work,
};

/* A search reads a rank's logits as a sum of them does; a token is found in one column of them. */
static struct op_work draw_part_work(const struct graph *graph, const struct op *op,
                                     const struct op_amount *amount) {
    struct op_work work = op_pass_work(graph, op, amount);
    const struct draw_part part =
        draw_part_of((int)op->part, op->cuts, (int)graph_element_bytes(graph));
    if (part.step == DRAW_FIND || part.step == DRAW_FINISH) {
        work.row_bytes -= amount->rows * (double)graph->tensors[op->in[0]].bytes.per;
    }
    return work;
}

const struct op_type op_type_draw_part = {
    .work = draw_part_work,
};

/* A list of credit is read and written whole, at most, and no more logits are read than it has
 * entries. */
static struct op_work credit_work(const struct graph *graph, const struct op *op,
                                  const struct op_amount *amount) {
    const struct tensor *tensors = graph->tensors;
    int64_t list = 2 * tensors[op->in[1]].bytes.per + 3 * tensors[op->in[2]].bytes.per;
    return (struct op_work){.row_bytes = amount->rows * (double)list};
}

const struct op_type op_type_credit = {
    .work = credit_work,
};

const struct op_type op_type_credit_logits = {
    .work = credit_work,
};
