#include "engine/step/warm.h"

#include "sim/base/num.h"
#include "sim/model/ranks.h"

/* Longer steps wait for a choice without noticing. */
enum { MOST_WARM_TOKENS = 16384 };

/* Sizes apart by no more than a device's choice for one is good for, beyond the smallest ones. */
static int64_t next_warm_size(int64_t n_tokens) {
    return n_tokens + (n_tokens < 64 ? 32 : n_tokens < 1024 ? 64 : n_tokens < 8192 ? 256 : 1024);
}

/* Behind an eviction ranks have chosen for any number of tokens before they begin. */
static int64_t next_size_behind(int64_t n_tokens) {
    return n_tokens < 64 ? n_tokens + 1 : next_warm_size(n_tokens);
}

static struct call_linear product_of(const struct warming *warming, uint32_t op, int64_t n_tokens) {
    const struct program *program = warming->program;
    const struct op *o = &program->graph->ops[op];
    return (struct call_linear){
        .w = weights_at(warming->weights, (enum weight_slot)o->weight, program->op_layer[op]),
        .x_stride = o->k,
        .y_stride = o->n,
        .n_tokens = (int32_t)n_tokens,
        .n_outputs = (int32_t)o->n,
        .n_inputs = (int32_t)o->k,
        .dtype = warming->device->dtype,
        .by_inputs = program_by_inputs(program, op),
        .alike = model_ranks(program->graph->model) > 1 && o->weight == WEIGHT_ROUTER};
}

static bool is_chosen(const struct warming *warming, uint32_t op, int64_t n_tokens) {
    const struct engine_device *device = warming->device;
    const struct call_linear product = product_of(warming, op, n_tokens);
    return device->table->linear_chosen(device->device, &product);
}

static bool is_product(const struct op *op) {
    return op->kind == OP_LINEAR || op->kind == OP_GATE_UP;
}

/* Gates and ups may be a product and an activation behind it, as the device has it. */
static int run_product(const struct warming *warming, uint32_t op,
                       const struct call_linear *product) {
    const struct engine_device *device = warming->device;
    const struct call_gate_up gate_up = {.x = product->x,
                                         .w = product->w,
                                         .y = product->y,
                                         .x_stride = product->x_stride,
                                         .y_stride = product->n_outputs / 2,
                                         .n_tokens = product->n_tokens,
                                         .n_channels = product->n_inputs,
                                         .n_hidden = product->n_outputs / 2,
                                         .dtype = product->dtype};
    return warming->program->graph->ops[op].kind == OP_GATE_UP
               ? device->table->gate_up(device->device, &gate_up)
               : device->table->linear(device->device, product);
}

/* Where it fits into so much of the workspace. */
static int warm_product(const struct warming *warming, uint32_t op, int64_t n_tokens,
                        int64_t room_bytes, struct err *err) {
    const struct engine_device *device = warming->device;
    struct call_linear product = product_of(warming, op, n_tokens);
    int64_t element_bytes = engine_element_bytes(device);
    int64_t x_bytes = align_up(n_tokens * product.n_inputs * element_bytes, PLACEMENT_ALIGN_BYTES);
    int64_t bytes = x_bytes + n_tokens * product.n_outputs * element_bytes;
    if (bytes > room_bytes) {
        return 0;
    }
    int mapped = room_use_workspace(warming->room, bytes, err);
    if (mapped != 0) {
        return mapped;
    }
    const struct call_random data = {.y = warming->room->workspace,
                                     .key = op,
                                     .n = n_tokens * product.n_inputs,
                                     .spread = 1,
                                     .dtype = device->dtype};
    product.x = warming->room->workspace;
    product.y = warming->room->workspace + x_bytes;
    int status = device->table->random(device->device, &data);
    status = status == DEVICE_OK ? run_product(warming, op, &product) : status;
    return engine_device_err(device, status, "warming up", err);
}

int warm_products(const struct warming *warming, struct err *err) {
    const struct graph *graph = warming->program->graph;
    int64_t room_bytes = warming->limits->workspace_bytes;
    int status = 0;
    if (warming->device->table->linear_chosen == NULL) {
        return 0;
    }
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        bool is_linear = graph->ops[op].kind == OP_LINEAR;
        int64_t most = graph->ops[op].rows == SYM_LOGIT_ROWS ? warming->limits->max_logit_rows
                                                             : warming->limits->max_tokens;
        most = most < MOST_WARM_TOKENS ? most : MOST_WARM_TOKENS;
        bool is_any = model_ranks(graph->model) > 1 && op >= warming->program->evict_op;
        for (int64_t n = is_any ? 1 : 32; is_linear && status == 0 && n <= most;
             n = is_any ? next_size_behind(n) : next_warm_size(n)) {
            status = warm_product(warming, op, n, room_bytes, err);
        }
    }
    return status;
}

/* ---- one step ---- */

enum { MOST_STEP_SIZES = 2048 };

/* Numbers of tokens that a step runs one of its products over. */
struct step_sizes {
    int64_t n[MOST_STEP_SIZES];
    size_t count;
};

static void add_size(struct step_sizes *sizes, int64_t n) {
    ASSERT(sizes->count < MOST_STEP_SIZES);
    sizes->n[sizes->count] = n;
    sizes->count += n > 0;
}

/* Whole chunks and the last one; behind an eviction any number up to all. */
static void step_sizes(const struct warming *warming, uint32_t op, const struct step *step,
                       struct step_sizes *sizes) {
    const struct graph *graph = warming->program->graph;
    const struct op *o = &graph->ops[op];
    int64_t rows = step->shape->sym[o->rows], tokens = step->shape->sym[SYM_TOKENS];
    sizes->count = 0;
    if (op >= warming->program->evict_op) {
        for (int64_t n = 1; n < tokens; n = next_size_behind(n)) {
            add_size(sizes, n);
        }
        add_size(sizes, tokens);
    } else if (rows > 0) {
        int64_t chunk = o->loop < 0
                            ? rows
                            : loop_chunk_rows(graph, o->loop, step->shape, step->placement->chunks);
        add_size(sizes, chunk);
        add_size(sizes, rows % chunk);
    }
}

/* Gates and ups are not asked about: a device with a kernel for both has nothing to choose, and
 * elsewhere the product behind them has the same rows and is chosen for with them. */
bool warm_knows_step(const struct warming *warming, const struct step *step) {
    const struct graph *graph = warming->program->graph;
    struct step_sizes sizes;
    bool knows = true;
    for (uint32_t op = 0; warming->device->table->linear_chosen != NULL && op < graph->n_ops;
         op++) {
        if (graph->ops[op].kind == OP_LINEAR) {
            step_sizes(warming, op, step, &sizes);
            for (size_t i = 0; knows && i < sizes.count; i++) {
                knows = is_chosen(warming, op, sizes.n[i]);
            }
        }
    }
    return knows;
}

int warm_step(const struct warming *warming, const struct step *step, struct err *err) {
    const struct engine_device *device = warming->device;
    const struct graph *graph = warming->program->graph;
    /* Rows that requests keep may lie behind the step's own workspace. */
    int64_t room_bytes = warming->limits->shares_pool ? step->placement->peak_bytes
                                                      : warming->limits->workspace_bytes;
    struct step_sizes sizes;
    int status = 0;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        sizes.count = 0;
        if (is_product(&graph->ops[op])) {
            step_sizes(warming, op, step, &sizes);
        }
        for (size_t i = 0; status == 0 && i < sizes.count; i++) {
            status = is_chosen(warming, op, sizes.n[i])
                         ? 0
                         : warm_product(warming, op, sizes.n[i], room_bytes, err);
        }
    }
    return status != 0 ? status
                       : engine_device_err(device, device->table->finish(device->device),
                                           "warming up", err);
}
