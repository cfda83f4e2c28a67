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

static enum op_memory memory_of(const struct run *run, int op) {
    return op_type_of(&run->graph->ops[op])->memory;
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
        bool is_variable = maker >= 0 && run->is_eager &&
                           op_type_of(&run->graph->ops[maker])->is_variable &&
                           run->graph->ops[maker].segment < run->graph->n_segments - 1;
        if (tensor->last_op == op && !is_variable && !tensor->carried &&
            !tensor_holds_logits(run->graph, t)) {
            drop_tensor(run, t);
        }
    }
}

/* ---- operators ---- */

static int64_t in_float32(const struct run *run, int64_t bytes) {
    return bytes / graph_element_bytes(run->graph) * F32_BYTES;
}

static void run_outputs(struct run *run, int index) {
    take_outputs(run, &run->graph->ops[index]);
}

static void run_nothing(struct run *run, int index) {
    (void)run;
    (void)index;
}

static void run_embedding(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    int64_t table_bytes =
        run->step->shape.sym[SYM_TOKENS] * (int64_t)run->graph->model->head_dim * F32_BYTES;
    run->var.residual = take(run, bytes_of(run, op->out[0]), false);
    run->var.cosine = take(run, table_bytes, false);
    run->var.sine = take(run, table_bytes, false);
}

static void run_norm(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
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
        if (maker >= 0 && memory_of(run, maker) == MEMORY_NORM) {
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

static void run_rotation(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
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

static void run_attention(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    const struct model_heads heads = graph_heads(run->graph, op);
    struct block keys = {0}, values = {0};
    if (run->is_eager && heads.kv_heads < heads.heads) {
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
    enum op_memory next = index + 1 < (int)g->n_ops ? memory_of(run, index + 1) : MEMORY_OUTPUTS;
    struct block *pieces = pieces_of(run, op->out[0]);
    int64_t bytes = bytes_of(run, op->out[0]);
    if (next == MEMORY_ROTATION) {
        const struct model_heads heads = graph_heads(g, op);
        int64_t kv_bytes = bytes * heads.kv_heads / (heads.heads + 2 * heads.kv_heads);
        pieces[0] = take(run, bytes - 2 * kv_bytes, false);
        pieces[1] = take(run, kv_bytes, false);
        pieces[2] = take(run, kv_bytes, false);
    } else if (next == MEMORY_ACTIVATION && run->is_eager) {
        struct block gate = take(run, bytes / 2, false);
        pieces[0] = take(run, bytes / 2, false);
        drop(run, &gate);
        pieces[1] = take(run, bytes / 2, false);
    } else if (next == MEMORY_ACTIVATION) {
        pieces[0] = take(run, bytes / 2, false);
        pieces[1] = take(run, bytes / 2, false);
    } else {
        take_outputs(run, op);
    }
}

static void run_activation(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    take_outputs(run, op);
    drop(run, &pieces_of(run, op->in[0])[1]);
}

/* The weighted sum over a token's experts ends the second product. */
static void run_experts(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    bool is_last = memory_of(run, index - 1) == MEMORY_ACTIVATION;
    struct block outputs = {0};
    if (is_last) {
        outputs = take(run, bytes_of(run, op->out[0]) * op->experts_active, false);
    }
    take_outputs(run, op);
    drop(run, &outputs);
}

static void run_sum(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
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

static void run_head_product(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    take_outputs(run, op);
    drop_tensor(run, op->in[0]);
    drop(run, &run->var.logits);
    if (run->graph->model->shifted_logits) {
        shift_and_pick(run, op->out[0]);
    }
}

/* A slice of the logits is a view of them; a cast is a copy. */
static void run_cast(struct run *run, int index) {
    const struct op *op = &run->graph->ops[index];
    const struct tensor *tensors = run->graph->tensors;
    const bool is_view = tensors[op->in[0]].bytes.per == tensors[op->out[0]].bytes.per &&
                         tensors[op->in[0]].bytes.symbol != tensors[op->out[0]].bytes.symbol;
    if (!run->graph->model->shifted_logits && !is_view) {
        run_outputs(run, index);
    }
}

static void run_softmax(struct run *run, int index) {
    const struct graph *g = run->graph;
    int logits = g->ops[index].in[0];
    if (g->model->shifted_logits) {
        return;
    }
    run_outputs(run, index);
    drop(run, &run->var.results);
    if (memory_of(run, g->tensors[logits].first_op) == MEMORY_CAST) {
        drop_tensor(run, logits);
    }
}

static void run_sample(struct run *run, int index) {
    if (run->graph->model->shifted_logits) {
        sample_picked(run, run->graph->ops[index].in[0]);
    }
    run_outputs(run, index);
}

/* ---- steps ---- */

/* What operators ask for before the head, and in it. */
typedef void run_fn(struct run *run, int index);
static run_fn *const in_trunk[MEMORY_COUNT] = {
    [MEMORY_OUTPUTS] = run_outputs,       [MEMORY_NONE] = run_nothing,
    [MEMORY_EMBEDDING] = run_embedding,   [MEMORY_NORM] = run_norm,
    [MEMORY_ROTATION] = run_rotation,     [MEMORY_ATTENTION] = run_attention,
    [MEMORY_PRODUCT] = run_product,       [MEMORY_EXPERTS] = run_experts,
    [MEMORY_ACTIVATION] = run_activation, [MEMORY_SUM] = run_sum,
    [MEMORY_CAST] = run_outputs,          [MEMORY_SOFTMAX] = run_outputs,
    [MEMORY_SAMPLE] = run_outputs,
};
static run_fn *const in_head[MEMORY_COUNT] = {
    [MEMORY_NORM] = run_norm,       [MEMORY_PRODUCT] = run_head_product, [MEMORY_CAST] = run_cast,
    [MEMORY_SOFTMAX] = run_softmax, [MEMORY_SAMPLE] = run_sample,
};

static void run_operator(struct run *run, int index) {
    enum op_memory memory = memory_of(run, index);
    if (op_type_of(&run->graph->ops[index])->is_part) {
        return;
    }
    run->part = live_part_of(run->graph, (uint32_t)index);
    run_fn *run_it = run->part != PART_LOGITS  ? in_trunk[memory]
                     : in_head[memory] != NULL ? in_head[memory]
                                               : run_outputs;
    run_it(run, index);
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
        enum op_memory maker = is_kept ? memory_of(run, g->tensors[t].first_op) : MEMORY_OUTPUTS;
        if (maker == MEMORY_PRODUCT) {
            move(pieces_of(run, t), &var->logits);
        } else if (maker == MEMORY_SOFTMAX && !g->model->shifted_logits) {
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
