#include "engine/cpu.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/packed.h"
#include "engine/product.h"
#include "kernels/twin.h"
#include "sim/base/num.h"

struct cpu {
    struct program program;
    const struct weights *weights;
    struct step_limits limits;
    struct packed packed;
    float *cos_sin;           /* [max_positions, D / 2, 2] */
    unsigned char *workspace; /* CPU_STRETCH x limits.workspace_bytes */
    /* The step under way; written by cpu_begin and cpu_next. */
    const struct step *step;
    const struct step_result *result;
    struct turn turn;
};

/* ---- where things are ---- */

static float *tensor_at(const struct cpu *cpu, int tensor) {
    return (float *)(void *)(cpu->workspace +
                             CPU_STRETCH * cpu->step->placement->offset_bytes[tensor]);
}

/* The turn's first row of a tensor; of a chunk of logits, the chunk's first. */
static float *rows_at(const struct cpu *cpu, int tensor) {
    const struct graph *graph = cpu->program.graph;
    int64_t first = graph->tensors[tensor].logits ? 0 : cpu->turn.first_row;
    return tensor_at(cpu, tensor) + first * tensor_row_elements(graph, tensor);
}

static const float *weight_at(const struct cpu *cpu, enum weight_slot slot) {
    return weights_at(cpu->weights, slot, cpu->turn.layer);
}

static const float *op_weight(const struct cpu *cpu) {
    return weight_at(cpu, (enum weight_slot)cpu->program.weight[cpu->turn.op]);
}

/* ---- operators ---- */

static void run_embed(const struct cpu *cpu, const struct op *op) {
    const struct model *model = cpu->program.graph->model;
    twin_embed(&(struct call_embed){.table = op_weight(cpu),
                                    .ids = cpu->packed.ids,
                                    .y = tensor_at(cpu, op->out[0]),
                                    .n_tokens = (int32_t)cpu->turn.n_rows,
                                    .n_channels = (int32_t)model->hidden,
                                    .n_vocab = (int32_t)model->vocab,
                                    .dtype = KERNEL_F32});
}

/* With two inputs, the residual stream and what a sublayer adds to it: both outputs are written.
 * With one, the residual is read as it is; the final norm takes the logit rows out of it. */
static void run_norm(const struct cpu *cpu, const struct op *op) {
    bool adds = op->in[1] >= 0;
    bool picks = op->rows == SYM_LOGIT_ROWS;
    twin_norm(&(struct call_norm){.x = tensor_at(cpu, op->in[adds ? 1 : 0]),
                                  .weight = op_weight(cpu),
                                  .residual = adds ? tensor_at(cpu, op->in[0]) : NULL,
                                  .rows = picks ? cpu->packed.rows : NULL,
                                  .y = tensor_at(cpu, op->out[adds ? 1 : 0]),
                                  .n_rows = (int32_t)cpu->turn.n_rows,
                                  .n_channels = (int32_t)cpu->program.graph->model->hidden,
                                  .epsilon = cpu->weights->constants.norm_epsilon,
                                  .dtype = KERNEL_F32});
}

static void run_linear(const struct cpu *cpu, const struct op *op) {
    const struct graph *graph = cpu->program.graph;
    cpu_product(&(struct product){.x = rows_at(cpu, op->in[0]),
                                  .w = op_weight(cpu),
                                  .y = rows_at(cpu, op->out[0]),
                                  .n_tokens = cpu->turn.n_rows,
                                  .n_outputs = op->n,
                                  .n_inputs = op->k,
                                  .x_stride = tensor_row_elements(graph, op->in[0]),
                                  .y_stride = tensor_row_elements(graph, op->out[0])});
}

/* Where queries, keys and values lie in a row of the rotated product. */
struct qkv {
    float *q, *k, *v;
    int64_t stride;
};

static struct qkv split(const struct cpu *cpu, int tensor) {
    const struct model *model = cpu->program.graph->model;
    float *q = tensor_at(cpu, tensor), *k = q + (int64_t)model->heads * model->head_dim;
    return (struct qkv){q, k, k + (int64_t)model->kv_heads * model->head_dim,
                        tensor_row_elements(cpu->program.graph, tensor)};
}

static int64_t first_store(const struct cpu *cpu) {
    return (int64_t)cpu->turn.layer * cpu->limits.max_requests;
}

/* Copy the keys and values that are kept to their requests' stores. */
static void keep_rows(const struct cpu *cpu, const struct qkv *from) {
    const struct model *model = cpu->program.graph->model;
    const struct packed *packed = &cpu->packed;
    int64_t size = model->head_dim;
    for (int32_t r = 0; r < packed->n_full; r++) {
        for (int32_t t = packed->start[r]; t < packed->start[r + 1]; t++) {
            for (int64_t head = 0; packed->kv_rows[t] >= 0 && head < model->kv_heads; head++) {
                int64_t to = packed->store_start[first_store(cpu) + r] +
                             (head * packed->kept[r] + packed->kv_rows[t]) * size;
                int64_t at = t * from->stride + head * size;
                memcpy((float *)cpu->step->pool->k + to, from->k + at, (size_t)size * F32_BYTES);
                memcpy((float *)cpu->step->pool->v + to, from->v + at, (size_t)size * F32_BYTES);
            }
        }
    }
}

static void run_rope(const struct cpu *cpu, const struct op *op) {
    const struct model *model = cpu->program.graph->model;
    const struct qkv to = split(cpu, op->out[0]);
    twin_rope(&(struct call_rope){.qkv = tensor_at(cpu, op->in[0]),
                                  .bias = weight_at(cpu, WEIGHT_QKV_BIAS),
                                  .q_norm = weight_at(cpu, WEIGHT_Q_NORM),
                                  .k_norm = weight_at(cpu, WEIGHT_K_NORM),
                                  .cos_sin = cpu->cos_sin,
                                  .positions = cpu->packed.positions,
                                  .q = to.q,
                                  .k = to.k,
                                  .v = to.v,
                                  .q_stride = to.stride,
                                  .kv_stride = to.stride,
                                  .n_tokens = (int32_t)cpu->turn.n_rows,
                                  .n_heads = (int32_t)model->heads,
                                  .n_kv_heads = (int32_t)model->kv_heads,
                                  .head_size = (int32_t)model->head_dim,
                                  .epsilon = cpu->weights->constants.norm_epsilon,
                                  .dtype = KERNEL_F32});
    keep_rows(cpu, &to);
}

static void run_full_attention(const struct cpu *cpu, const struct op *op) {
    const struct model *model = cpu->program.graph->model;
    const struct qkv from = split(cpu, op->in[0]);
    cpu_dense_attention(&(struct call_dense_attention){
        .q = from.q,
        .k = from.k,
        .v = from.v,
        .y = tensor_at(cpu, op->out[0]),
        .start = cpu->packed.start,
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .y_stride = tensor_row_elements(cpu->program.graph, op->out[0]),
        .n_requests = cpu->packed.n_full,
        .n_tokens = cpu->packed.n_full_tokens,
        .n_heads = (int32_t)model->heads,
        .n_kv_heads = (int32_t)model->kv_heads,
        .head_size = (int32_t)model->head_dim,
        .max_tokens = cpu->packed.max_full_tokens,
        .dtype = KERNEL_F32});
}

static void run_block_attention(const struct cpu *cpu, const struct op *op) {
    const struct model *model = cpu->program.graph->model;
    const struct packed *packed = &cpu->packed;
    if (packed->n_block == 0) {
        return;
    }
    const struct qkv from = split(cpu, op->in[0]);
    cpu_block_attention(&(struct call_block_attention){
        .q = from.q,
        .k = from.k,
        .v = from.v,
        .k_cache = cpu->step->pool->k,
        .v_cache = cpu->step->pool->v,
        .y = tensor_at(cpu, op->out[0]),
        .start = packed->start + packed->n_full,
        .kept = packed->kept + packed->n_full,
        .cache_start = packed->store_start + first_store(cpu) + packed->n_full,
        .q_stride = from.stride,
        .kv_stride = from.stride,
        .y_stride = tensor_row_elements(cpu->program.graph, op->out[0]),
        .n_requests = packed->n_block,
        .n_heads = (int32_t)model->heads,
        .n_kv_heads = (int32_t)model->kv_heads,
        .head_size = (int32_t)model->head_dim,
        .max_queries = packed->max_block_tokens,
        .dtype = KERNEL_F32});
}

static void run_swiglu(const struct cpu *cpu, const struct op *op) {
    const struct graph *graph = cpu->program.graph;
    twin_swiglu(&(struct call_swiglu){.gate_up = tensor_at(cpu, op->in[0]),
                                      .y = tensor_at(cpu, op->out[0]),
                                      .y_stride = tensor_row_elements(graph, op->out[0]),
                                      .n_tokens = (int32_t)cpu->turn.n_rows,
                                      .n_hidden = (int32_t)graph->model->ffn,
                                      .dtype = KERNEL_F32});
}

static void run_add(const struct cpu *cpu, const struct op *op) {
    const float *a = tensor_at(cpu, op->in[0]), *b = tensor_at(cpu, op->in[1]);
    float *y = tensor_at(cpu, op->out[0]);
    int64_t n = cpu->turn.n_rows * tensor_row_elements(cpu->program.graph, op->out[0]);
    for (int64_t i = 0; i < n; i++) {
        y[i] = a[i] + b[i];
    }
}

/* A candidate as it lies in the workspace. */
struct candidate {
    int32_t token;
    float confidence;
};

static struct candidate *candidates_at(const struct cpu *cpu, int tensor) {
    return (struct candidate *)(void *)tensor_at(cpu, tensor);
}

static void run_sample(const struct cpu *cpu, const struct op *op) {
    int64_t n = cpu->program.graph->model->vocab;
    const float *logits = rows_at(cpu, op->in[0]);
    struct candidate *candidates = candidates_at(cpu, op->out[0]) + cpu->turn.first_row;
    for (int64_t row = 0; row < cpu->turn.n_rows; row++, logits += n) {
        int64_t best = 0;
        for (int64_t token = 1; token < n; token++) {
            best = logits[token] > logits[best] ? token : best;
        }
        double sum = 0;
        for (int64_t token = 0; token < n; token++) {
            sum += exp((double)logits[token] - (double)logits[best]);
        }
        candidates[row] = (struct candidate){(int32_t)best, (float)(1 / sum)};
        if (cpu->result->logits != NULL) {
            memcpy(cpu->result->logits + (cpu->turn.first_row + row) * n, logits,
                   (size_t)n * sizeof *logits);
        }
    }
}

/* The decision is the decoder's; here candidates leave the workspace. */
static void run_commit(const struct cpu *cpu, const struct op *op) {
    const struct candidate *candidates = candidates_at(cpu, op->in[0]);
    for (int64_t row = 0; row < cpu->turn.n_rows; row++) {
        cpu->result->token[row] = candidates[row].token;
        cpu->result->confidence[row] = candidates[row].confidence;
    }
}

static void run_turn(const struct cpu *cpu) {
    static void (*const runners[OP_KIND_COUNT])(const struct cpu *, const struct op *) = {
        [OP_EMBED] = run_embed,
        [OP_RMSNORM] = run_norm,
        [OP_LINEAR] = run_linear,
        [OP_ROPE] = run_rope,
        [OP_ATTENTION_FULL] = run_full_attention,
        [OP_ATTENTION_BLOCK] = run_block_attention,
        [OP_SWIGLU] = run_swiglu,
        [OP_ADD] = run_add,
        [OP_SAMPLE] = run_sample,
        [OP_COMMIT] = run_commit,
    };
    const struct op *op = &cpu->program.graph->ops[cpu->turn.op];
    ASSERT(runners[op->kind] != NULL);
    runners[op->kind](cpu, op);
}

/* ---- steps ---- */

/* Every tensor of the step inside the workspace, with room for this shape. */
static int check_placement(const struct cpu *cpu, const struct step *step, struct err *err) {
    const struct graph *graph = cpu->program.graph;
    const struct placement *placement = step->placement;
    if (placement->peak_bytes > cpu->limits.workspace_bytes) {
        char peak[32], room[32];
        return err_usage(err, "the placement needs %s of workspace, but there are %s",
                         num_format_bytes(peak, sizeof peak, (double)placement->peak_bytes),
                         num_format_bytes(room, sizeof room, (double)cpu->limits.workspace_bytes));
    }
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        int64_t offset = placement->offset_bytes[t];
        int64_t needed = tensor_bytes(&graph->tensors[t], step->shape, placement->logit_chunk_rows);
        if (graph->tensors[t].home == HOME_WORKSPACE &&
            (offset < 0 || offset % PLACEMENT_ALIGN_BYTES != 0 || placement->bytes[t] < needed ||
             offset + placement->bytes[t] > placement->peak_bytes)) {
            return err_usage(err,
                             "the placement gives tensor '%s' %" PRId64 " bytes at %" PRId64
                             " of %" PRId64 ", but this step needs %" PRId64,
                             graph->tensors[t].name, placement->bytes[t], offset,
                             placement->peak_bytes, needed);
        }
    }
    return 0;
}

/* Between chunks of logits the inputs of the operators that make them are still needed, which the
 * tensors' lifetimes do not say: nothing that these operators write may lie over them. */
static int check_chunks(const struct cpu *cpu, const struct step *step, struct err *err) {
    const struct graph *graph = cpu->program.graph;
    const struct placement *placement = step->placement;
    int64_t chunk = placement->logit_chunk_rows;
    if (chunk == 0 || chunk >= step->shape->sym[SYM_LOGIT_ROWS]) {
        return 0;
    }
    for (int in = 0; in < (int)graph->n_tensors; in++) {
        if (!program_feeds_chunks(&cpu->program, in)) {
            continue;
        }
        for (int out = 0; out < (int)graph->n_tensors; out++) {
            int64_t start = placement->offset_bytes[out], end = start + placement->bytes[out];
            if (program_made_in_chunks(&cpu->program, out) &&
                start < placement->offset_bytes[in] + placement->bytes[in] &&
                placement->offset_bytes[in] < end) {
                return err_usage(err,
                                 "the placement puts tensor '%s' over '%s', which later chunks of "
                                 "logits still read",
                                 graph->tensors[out].name, graph->tensors[in].name);
            }
        }
    }
    return 0;
}

int cpu_begin(struct cpu *cpu, const struct step *step, const struct step_result *result,
              struct err *err) {
    int status = packed_fill(&cpu->packed, step, err);
    status = status == 0 ? check_placement(cpu, step, err) : status;
    status = status == 0 ? check_chunks(cpu, step, err) : status;
    if (status == 0) {
        cpu->step = step;
        cpu->result = result;
        program_start(&cpu->program, step->placement, step->shape, &cpu->turn);
    }
    return status;
}

const struct turn *cpu_turn(const struct cpu *cpu) {
    return &cpu->turn;
}

bool cpu_next(struct cpu *cpu) {
    run_turn(cpu);
    return program_next(&cpu->program, cpu->step->placement, cpu->step->shape, &cpu->turn);
}

int cpu_step(struct cpu *cpu, const struct step *step, const struct step_result *result,
             struct err *err) {
    int status = cpu_begin(cpu, step, result, err);
    while (status == 0 && cpu_next(cpu)) {
    }
    return status;
}

unsigned char *cpu_workspace(struct cpu *cpu) {
    return cpu->workspace;
}

/* ---- opening ---- */

static int check_model(const struct graph *graph, const struct weights *weights, struct err *err) {
    const struct model *model = graph->model;
    if (weights->layout.model != model) {
        return err_usage(err, "the weights are of model '%s', the step graph of '%s'",
                         weights->layout.model->name, model->name);
    }
    if (weights->layout.dtype != KERNEL_F32) {
        return err_usage(err, "the cpu back end takes float32 weights");
    }
    if (model->mask != MASK_BIDIRECTIONAL) {
        return err_usage(err, "the cpu back end runs bidirectional models, which '%s' is not",
                         model->name);
    }
    return 0;
}

/* The logits' elements are float32 here, two bytes or more before stretching. */
static int check_logits(const struct graph *graph, struct err *err) {
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensors[t].logits &&
            graph->tensors[t].bytes.per < (int64_t)BF16_BYTES * graph->model->vocab) {
            return err_usage(err, "the cpu back end needs logits of 2 bytes or more in the graph");
        }
    }
    return 0;
}

int cpu_open(const struct graph *graph, const struct weights *weights,
             const struct step_limits *limits, struct cpu **out, struct err *err) {
    *out = NULL;
    struct cpu *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL) {
        return err_world(err, "no memory for the cpu back end");
    }
    cpu->weights = weights;
    cpu->limits = *limits;
    int status = check_model(graph, weights, err);
    status = status == 0 ? check_logits(graph, err) : status;
    status = status == 0 ? program_make(&cpu->program, graph, err) : status;
    status = status == 0 ? packed_open(&cpu->packed, graph->model, limits, err) : status;
    if (status == 0) {
        size_t head_bytes = (size_t)graph->model->head_dim * F32_BYTES;
        cpu->cos_sin = malloc(limits->max_positions * head_bytes);
        cpu->workspace =
            aligned_alloc(PLACEMENT_ALIGN_BYTES, (size_t)(CPU_STRETCH * limits->workspace_bytes));
        if (cpu->cos_sin == NULL || cpu->workspace == NULL) {
            char size[32];
            double bytes = (double)(CPU_STRETCH * limits->workspace_bytes) +
                           (double)limits->max_positions * (double)head_bytes;
            status = err_world(err, "no memory for the %s that the cpu back end works in",
                               num_format_bytes(size, sizeof size, bytes));
        } else {
            twin_cos_sin(cpu->cos_sin, (int32_t)limits->max_positions,
                         (int32_t)graph->model->head_dim, weights->constants.rope_theta);
        }
    }
    if (status != 0) {
        cpu_close(cpu);
        return status;
    }
    *out = cpu;
    return 0;
}

void cpu_close(struct cpu *cpu) {
    if (cpu != NULL) {
        packed_close(&cpu->packed);
        free(cpu->cos_sin);
        free(cpu->workspace);
        free(cpu);
    }
}
