#include "sim/step/op.h"

#include "sim/model/ranks.h"
#include "sim/step/graph.h"

const char *const op_kind_names[OP_KIND_COUNT] = {
#define OP(id, file, name) [OP_##id] = (name),
#include "sim/step/ops.def"
};

const struct op_type *const op_types[OP_KIND_COUNT] = {
#define OP(id, file, name) [OP_##id] = &op_type_##file,
#include "sim/step/ops.def"
};

static int64_t row_bytes_of(const struct graph *graph, int tensor) {
    if (tensor < 0 || graph->tensors[tensor].bytes.symbol == SYM_ONE) {
        return 0;
    }
    return graph->tensors[tensor].bytes.per;
}

struct op_work op_pass_work(const struct graph *graph, const struct op *op,
                            const struct op_amount *amount) {
    int64_t bytes = 0;
    for (int i = 0; i < OP_MAX_TENSORS; i++) {
        bytes += row_bytes_of(graph, op->in[i]) + row_bytes_of(graph, op->out[i]);
    }
    return (struct op_work){.row_bytes = amount->rows * (double)bytes};
}

bool op_is_fp8(const struct graph *graph, const struct op *op) {
    return number_is_fp8(storage_weight(&graph->storage, (enum weight_slot)op->weight)) &&
           number_is_fp8(storage_input(&graph->storage, (enum weight_slot)op->weight));
}

const char *const profile_type_words[PROFILE_TYPES + 1] = {"bf16",     "f32",         "fp8",
                                                           "fp8-bf16", "fp8-channel", NULL};

static bool names_fp8(const struct graph *graph, const int list[OP_MAX_TENSORS]) {
    bool names = false;
    for (int i = 0; i < OP_MAX_TENSORS && list[i] >= 0; i++) {
        names = names || number_is_fp8(graph->tensors[list[i]].type);
    }
    return names;
}

enum profile_type op_wide_type(const struct graph *graph) {
    return graph_wide(graph) == NUMBER_F32 ? PROFILE_F32 : PROFILE_BF16;
}

enum profile_type op_profile_type(const struct graph *graph, const struct op *op) {
    const enum weight_slot slot = (enum weight_slot)op->weight;
    bool is_stored = false; /* in fp8, and multiplied with something wider */
    switch (op_type_of(op)->family) {
    case FAMILY_PRODUCT:
    case FAMILY_ROUTER:
    case FAMILY_EXPERTS:
        is_stored = number_is_fp8(storage_weight(&graph->storage, slot));
        break;
    case FAMILY_ATTENTION:
        is_stored = graph->storage.cache == NUMBER_FP8;
        break;
    case FAMILY_PASS:
        is_stored = names_fp8(graph, op->in) || names_fp8(graph, op->out);
        break;
    case FAMILY_EXCHANGE:
        break;
    }
    const bool by_channel = storage_weight(&graph->storage, slot) == NUMBER_FP8_CHANNEL;
    return !is_stored                                    ? op_wide_type(graph)
           : !op_is_product(op) || !op_is_fp8(graph, op) ? PROFILE_FP8_BF16
           : by_channel                                  ? PROFILE_FP8_CHANNEL
                                                         : PROFILE_FP8;
}

int64_t op_weight_bytes(const struct graph *graph, const struct op *op) {
    return number_matrix_bytes(storage_weight(&graph->storage, (enum weight_slot)op->weight), op->n,
                               op->k);
}

int64_t op_input_bytes(const struct graph *graph, const struct op *op) {
    return number_input_bytes(storage_input(&graph->storage, (enum weight_slot)op->weight), op->k);
}

int64_t op_plain_row_bytes(const struct graph *graph, const struct op *op) {
    return op_input_bytes(graph, op) + graph_element_bytes(graph) * op->n;
}

struct op_work op_product_work(const struct graph *graph, const struct op *op,
                               const struct op_amount *amount) {
    const bool activates = op_type_of(op)->activates;
    const int64_t written = activates && names_fp8(graph, op->out) /* the wide ones are room */
                                ? graph->tensors[op->out[1]].bytes.per
                                : graph_element_bytes(graph) * (activates ? op->n / 2 : op->n);
    const double flops = 2 * amount->rows * (double)(op->n * op->k);
    return (struct op_work){
        .flops = flops,
        .fp8_flops = op_is_fp8(graph, op) ? flops : 0,
        .row_bytes = amount->rows * (double)(op_input_bytes(graph, op) + written),
        .weight_bytes = amount->n_steps * (double)op_weight_bytes(graph, op),
    };
}

struct op_work op_no_work(const struct graph *graph, const struct op *op,
                          const struct op_amount *amount) {
    (void)graph, (void)op, (void)amount;
    return (struct op_work){0};
}

struct op_pass op_pass_of(const struct graph *graph, const struct op *op) {
    const struct op_type *type = op_type_of(op);
    const struct model *m = graph->model;
    const struct model_heads heads = graph_heads(graph, op);
    bool is_of_two = type->pass_of_two != 0 && op->in[1] >= 0;
    const int64_t channels[] = {
        [WIDE_ONE] = 1,
        [WIDE_HIDDEN] = m->hidden,
        [WIDE_KV] = heads_kv_dim(&heads),
        [WIDE_VOCAB] = m->vocab,
        [WIDE_EXPERTS] = model_routed_experts(m),
        [WIDE_ROTATED] = op->n + 2 * op->k,
        [WIDE_GATED] = op->in[0] < 0
                           ? 0
                           : graph->tensors[op->in[0]].bytes.per / graph_element_bytes(graph) / 2,
    };
    return (struct op_pass){is_of_two ? type->pass_of_two : type->pass, channels[type->wide]};
}

struct op_size op_size_of(const struct graph *graph, const struct op *op) {
    if (op_is_attention(op)) {
        const struct model_heads heads = graph_heads(graph, op);
        return (struct op_size){heads_q_dim(&heads), heads_kv_dim(&heads)};
    }
    if (op->n > 0 || op->k > 0) {
        return (struct op_size){op->n, op->k};
    }
    struct op_work work = op_type_of(op)->work(graph, op, &(struct op_amount){.rows = 1});
    return (struct op_size){(int64_t)op_work_bytes(&work), 0};
}
