#include "sim/memory/eager.h"

#include <string.h>

#include "sim/base/err.h"

/* Memory asked for; 0 bytes: none. */
struct block {
    uint32_t id;
    int64_t bytes;
    bool is_logits;
};

/* What a tensor of the graph is asked for in: queries, keys and values; gate and up. */
enum { MOST_PIECES = 3 };

/* What the Python variables of the code hold beyond the tensors of the graph. */
struct variables {
    struct block residual;      /* of the layer: after its last sum */
    struct block input, middle; /* the residual before the first and the second sum of the layer */
    struct block cosine, sine;
    struct block logits, results; /* of the step before: logits, and probabilities or picked rows */
    struct block picked;          /* logits of the masked rows */
};

struct run {
    const struct eager_request *request;
    const struct eager_step *step; /* that runs */
    const struct graph *graph;
    bool is_eager; /* operators leave temporaries; else one kernel each */
    struct stream *out;
    struct live *live;
    enum live_part part; /* of the operator that runs */
    int64_t live_bytes, logits_bytes;
    int64_t most_bytes; /* in use since the operator began */
    struct block tensors[GRAPH_MAX_TENSORS][MOST_PIECES];
    struct variables var;
};

/* ---- asking ---- */

static struct block take(struct run *run, int64_t bytes, bool is_logits) {
    struct block block = {run->out->n_ids, bytes, is_logits};
    if (bytes == 0) {
        return block;
    }
    struct stream_event event = stream_event_make(STREAM_ALLOC, block.id, bytes);
    stream_append(run->out, &event);
    run->live_bytes += bytes;
    run->logits_bytes += is_logits ? bytes : 0;
    if (run->live_bytes > run->most_bytes) {
        run->most_bytes = run->live_bytes;
    }
    if (run->logits_bytes > run->live->logits_bytes) {
        run->live->logits_bytes = run->logits_bytes;
    }
    return block;
}

static void drop(struct run *run, struct block *block) {
    if (block->bytes > 0) {
        struct stream_event event = stream_event_make(STREAM_FREE, block->id, 0);
        stream_append(run->out, &event);
        run->live_bytes -= block->bytes;
        run->logits_bytes -= block->is_logits ? block->bytes : 0;
        block->bytes = 0;
    }
}

/* The block has another name from now on. */
static void move(struct block *from, struct block *to) {
    *to = *from;
    from->bytes = 0;
}

static void end_operator(struct run *run) {
    live_note(run->live, run->part, run->most_bytes, 1);
    run->most_bytes = run->live_bytes;
}

static void begin_graph(struct run *run) {
    struct stream_event event = stream_event_make(STREAM_GRAPH, 0, 0);
    stream_append(run->out, &event);
}

/* ---- tensors of the graph ---- */

static struct block *pieces_of(struct run *run, int tensor) {
    return run->tensors[placement_root(run->graph, tensor)];
}

static int64_t bytes_of(const struct run *run, int tensor) {
    return tensor_bytes(run->graph, tensor, &run->step->shape, (struct chunk_rows){0});
}

static void take_tensor(struct run *run, int tensor) {
    const struct tensor *t = &run->graph->tensors[tensor];
    struct block *first = pieces_of(run, tensor);
    if (t->home == HOME_WORKSPACE && t->alias < 0 && !t->carried && first->bytes == 0) {
        *first = take(run, bytes_of(run, tensor), tensor_holds_logits(run->graph, tensor));
    }
}

static void drop_tensor(struct run *run, int tensor) {
    struct block *pieces = pieces_of(run, tensor);
    for (int i = 0; i < MOST_PIECES; i++) {
        drop(run, &pieces[i]);
    }
}

static void take_outputs(struct run *run, const struct op *op) {
    for (int i = 0; i < OP_MAX_TENSORS && op->out[i] >= 0; i++) {
        take_tensor(run, op->out[i]);
    }
}

/* Tensors that this operator is the last to use. In eager code those bound to a variable live on:
 * the first norm's output until the variable gets the second's, the others until the layer ends. */
static void drop_last_used(struct run *run, int op) {
    for (int t = 0; t < (int)run->graph->n_tensors; t++) {
        const struct tensor *tensor = &run->graph->tensors[t];
        int maker = tensor->first_op;
        bool is_variable =
            maker >= 0 && run->is_eager &&
            (run->graph->ops[maker].kind == OP_RMSNORM || run->graph->ops[maker].kind == OP_ROPE ||
             run->graph->ops[maker].kind == OP_ATTENTION_FULL) &&
            run->graph->ops[maker].segment < run->graph->n_segments - 1;
        if (tensor->last_op == op && !is_variable && !tensor->carried &&
            !tensor_holds_logits(run->graph, t)) {
            drop_tensor(run, t);
        }
    }
}

/* ---- operators ---- */

static int64_t in_float32(const struct run *run, int64_t bytes) {
    return bytes / run->graph->element_bytes * F32_BYTES;
}

static void run_norm(struct run *run, const struct op *op) {
    if (!run->is_eager) {
        take_outputs(run, op);
        return;
    }
    int64_t bytes = bytes_of(run, op->out[0]), wide_bytes = in_float32(run, bytes);
    struct block wide = take(run, wide_bytes, false), square = take(run, wide_bytes, false);
    drop(run, &square);
    struct block scaled = take(run, wide_bytes, false);
    drop(run, &wide);
    struct block narrowed = take(run, bytes, false);
    take_tensor(run, op->out[0]);
    drop(run, &narrowed);
    drop(run, &scaled);
    for (int t = 0; t < op->out[0]; t++) {
        int maker = run->graph->tensors[t].first_op;
        if (maker >= 0 && run->graph->ops[maker].kind == OP_RMSNORM) {
            drop_tensor(run, t);
        }
    }
}

static struct block rotate(struct run *run, int64_t bytes) {
    int64_t wide_bytes = in_float32(run, bytes);
    struct block wide = take(run, wide_bytes, false), negated = take(run, wide_bytes / 2, false);
    struct block turned = take(run, wide_bytes, false);
    drop(run, &negated);
    struct block by_cosine = take(run, wide_bytes, false), by_sine = take(run, wide_bytes, false);
    struct block sum = take(run, wide_bytes, false);
    drop(run, &by_cosine);
    drop(run, &by_sine);
    struct block rotated = take(run, bytes, false);
    drop(run, &sum);
    drop(run, &wide);
    drop(run, &turned);
    return rotated;
}

static void run_rotation(struct run *run, const struct op *op) {
    if (!run->is_eager) {
        return; /* in place */
    }
    struct block *before = pieces_of(run, op->in[0]), *after = pieces_of(run, op->out[0]);
    after[0] = rotate(run, before[0].bytes);
    after[1] = rotate(run, before[1].bytes);
    move(&before[2], &after[2]);
    drop(run, &before[1]);
    drop(run, &before[0]);
}

static void run_attention(struct run *run, const struct op *op) {
    const struct model *m = run->graph->model;
    struct block keys = {0}, values = {0};
    if (run->is_eager && m->kv_heads < m->heads) {
        keys = take(run, bytes_of(run, op->out[0]), false);
        values = take(run, bytes_of(run, op->out[0]), false);
    }
    take_outputs(run, op);
    drop(run, &keys);
    drop(run, &values);
}

/* Products of their own where the graph has one: what follows tells which they are. */
static void run_product(struct run *run, int index) {
    const struct graph *g = run->graph;
    const struct op *op = &g->ops[index];
    enum op_kind next = index + 1 < (int)g->n_ops ? g->ops[index + 1].kind : OP_COMMIT;
    struct block *pieces = pieces_of(run, op->out[0]);
    int64_t bytes = bytes_of(run, op->out[0]);
    if (next == OP_ROPE) {
        int64_t kv_bytes = bytes * g->model->kv_heads / (g->model->heads + 2 * g->model->kv_heads);
        pieces[0] = take(run, bytes - 2 * kv_bytes, false);
        pieces[1] = take(run, kv_bytes, false);
        pieces[2] = take(run, kv_bytes, false);
    } else if (next == OP_SWIGLU && run->is_eager) {
        struct block gate = take(run, bytes / 2, false);
        pieces[0] = take(run, bytes / 2, false);
        drop(run, &gate);
        pieces[1] = take(run, bytes / 2, false);
    } else if (next == OP_SWIGLU) {
        pieces[0] = take(run, bytes / 2, false);
        pieces[1] = take(run, bytes / 2, false);
    } else {
        take_outputs(run, op);
    }
}

static void run_activation(struct run *run, const struct op *op) {
    take_outputs(run, op);
    drop(run, &pieces_of(run, op->in[0])[1]);
}

/* The weighted sum over a token's experts ends the second product. */
static void run_experts(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    bool is_last = run->graph->ops[index - 1].kind == OP_SWIGLU;
    struct block outputs = {0};
    if (is_last) {
        outputs = take(run, bytes_of(run, op->out[0]) * op->experts_active, false);
    }
    take_outputs(run, op);
    drop(run, &outputs);
}

static void run_sum(struct run *run, const struct op *op) {
    struct variables *var = &run->var;
    if (!run->is_eager || !run->graph->tensors[op->out[0]].carried) {
        return; /* in place */
    }
    move(&var->residual, var->input.bytes == 0 ? &var->input : &var->middle);
    var->residual = take(run, bytes_of(run, op->out[0]), false);
}

/* ---- the head ---- */

static int64_t picked_bytes(const struct run *run, int logits) {
    return run->step->masked_rows * run->graph->tensors[logits].bytes.per;
}

/* Logit i predicts token i + 1: all rows are copied one further, the masked ones picked out. */
static void shift_and_pick(struct run *run, int logits) {
    struct block *held = pieces_of(run, logits);
    struct block shifted = take(run, held->bytes, true);
    drop(run, held);
    *held = shifted;
    end_operator(run);
    run->var.picked = take(run, picked_bytes(run, logits), true);
    drop(run, &run->var.results);
    end_operator(run);
}

/* Confidence by negative entropy. */
static void sample_picked(struct run *run, int logits) {
    int64_t bytes = picked_bytes(run, logits);
    struct block probabilities = take(run, bytes, true);
    end_operator(run);
    struct block sum = take(run, bytes, true), logarithm = take(run, bytes, true);
    drop(run, &sum);
    end_operator(run);
    struct block product = take(run, bytes, true);
    drop(run, &product);
    drop(run, &logarithm);
    drop(run, &probabilities);
}

static void run_head(struct run *run, const struct op *op) {
    bool shifts = run->graph->model->shifted_logits;
    struct variables *var = &run->var;
    switch (op->kind) {
    case OP_LINEAR:
        take_outputs(run, op);
        drop_tensor(run, op->in[0]);
        drop(run, &var->logits);
        if (shifts) {
            shift_and_pick(run, op->out[0]);
        }
        break;
    case OP_CAST:
        if (!shifts) {
            take_outputs(run, op);
        }
        break;
    case OP_SOFTMAX:
        if (!shifts) {
            take_outputs(run, op);
            drop(run, &var->results);
            if (run->graph->ops[run->graph->tensors[op->in[0]].first_op].kind == OP_CAST) {
                drop_tensor(run, op->in[0]);
            }
        }
        break;
    case OP_SAMPLE:
        if (shifts) {
            sample_picked(run, op->in[0]);
        }
        take_outputs(run, op);
        break;
    default:
        take_outputs(run, op);
        break;
    }
}

/* ---- steps ---- */

static void run_operator(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    run->part = live_part_of(run->graph, (uint32_t)index);
    if (op->kind == OP_RMSNORM) {
        run_norm(run, op);
    } else if (run->part == PART_LOGITS) {
        run_head(run, op);
    } else if (op->kind == OP_EMBED) {
        int64_t table_bytes =
            run->step->shape.sym[SYM_TOKENS] * (int64_t)run->graph->model->head_dim * F32_BYTES;
        run->var.residual = take(run, bytes_of(run, op->out[0]), false);
        run->var.cosine = take(run, table_bytes, false);
        run->var.sine = take(run, table_bytes, false);
    } else if (op->kind == OP_ROPE) {
        run_rotation(run, op);
    } else if (op->kind == OP_ATTENTION_FULL) {
        run_attention(run, op);
    } else if (op->kind == OP_LINEAR) {
        run_product(run, index);
    } else if (op->kind == OP_MOE_LINEAR) {
        run_experts(run, index);
    } else if (op->kind == OP_SWIGLU) {
        run_activation(run, op);
    } else if (op->kind == OP_ADD) {
        run_sum(run, op);
    } else if (op->kind != OP_ATTENTION_BLOCK) {
        take_outputs(run, op);
    }
    drop_last_used(run, index);
    end_operator(run);
}

static void end_layer(struct run *run, uint32_t segment) {
    drop(run, &run->var.middle);
    for (int t = 0; t < (int)run->graph->n_tensors; t++) {
        int maker = run->graph->tensors[t].first_op;
        if (maker >= 0 && run->graph->ops[maker].segment == segment) {
            drop_tensor(run, t);
        }
    }
    drop(run, &run->var.input);
}

static void end_step(struct run *run) {
    const struct graph *g = run->graph;
    struct variables *var = &run->var;
    drop(run, &var->residual);
    drop(run, &var->cosine);
    drop(run, &var->sine);
    for (int t = 0; t < (int)g->n_tensors; t++) {
        bool is_kept = tensor_holds_logits(g, t) && run->request->keeps_results;
        enum op_kind maker = is_kept ? g->ops[g->tensors[t].first_op].kind : OP_COMMIT;
        if (maker == OP_LINEAR) {
            move(pieces_of(run, t), &var->logits);
        } else if (maker == OP_SOFTMAX && !g->model->shifted_logits) {
            move(pieces_of(run, t), &var->results);
        } else {
            drop_tensor(run, t);
        }
    }
    if (run->request->keeps_results && var->picked.bytes > 0) {
        move(&var->picked, &var->results);
    }
    drop(run, &var->picked);
}

static void run_step(struct run *run) {
    const struct graph *g = run->graph;
    for (uint32_t s = 0; s < g->n_segments; s++) {
        for (uint32_t i = 0; i < g->segments[s].repeat; i++) {
            begin_graph(run);
            for (int op = 0; op < (int)g->n_ops; op++) {
                if (g->ops[op].segment == s) {
                    run_operator(run, op);
                }
            }
            if (s > 0 && s < g->n_segments - 1) {
                end_layer(run, s);
            }
        }
    }
    end_step(run);
}

/* Whether the graph has an operator with temporaries of eager code. */
static bool is_eager_graph(const struct graph *graph) {
    bool is_eager = false;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        is_eager |= graph->ops[i].temporary_bytes > 0;
    }
    return is_eager;
}

bool eager_ignores_masks(const struct graph *graph) {
    return !graph->model->shifted_logits;
}

void eager_steps(const struct eager_request *request, struct stream *out, struct live live[2]) {
    ASSERT(request->n_steps > 0);
    struct live of_step;
    struct run run = {.request = request,
                      .graph = request->graph,
                      .is_eager = is_eager_graph(request->graph),
                      .out = out,
                      .live = &of_step};
    for (uint32_t i = 0; i < request->n_steps; i++) {
        run.step = &request->steps[i];
        ASSERT(run.step->shape.sym[SYM_CONTEXT_ROWS] == 0);
        of_step = (struct live){0};
        run.most_bytes = run.live_bytes;
        run_step(&run);
        if (i == 0) {
            live[0] = live[1] = of_step;
        } else if (i == 1) {
            live[1] = of_step;
        }
    }
    drop(&run, &run.var.logits);
    drop(&run, &run.var.results);
}
