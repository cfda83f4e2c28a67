#include "engine/step/warm.h"

#include "sim/base/num.h"

/* Above this size the time that a choice takes is negligible against the step. */
enum { MOST_WARM_TOKENS = 16384 };

/* Sizes apart by no more than a device's choice for one is good for. */
static int64_t next_warm_size(int64_t n_tokens) {
    return n_tokens + (n_tokens < 64 ? 1 : n_tokens < 1024 ? 64 : n_tokens < 8192 ? 256 : 1024);
}

static bool chooses(const struct warming *warming) {
    return warming->issue->device->table->linear_chosen != NULL;
}

static const struct graph *graph_of(const struct warming *warming) {
    return warming->issue->program->graph;
}

/* A product alone: what it reads at the workspace's beginning (its input, and the rows that it adds
 * to), what it writes alone after it. */
struct product {
    struct placement placement;
    struct issue issue;
    struct op_instance instance;
    int64_t read_bytes;
};

static void place(struct product *product, const struct graph *graph, int tensor,
                  int64_t n_tokens) {
    struct placement *placement = &product->placement;
    const int64_t bytes =
        n_tokens * tensor_row_elements(graph, tensor) * tensor_element_bytes(graph, tensor);
    placement->offset_bytes[tensor] = align_up(placement->peak_bytes, PLACEMENT_ALIGN_BYTES);
    placement->bytes[tensor] = bytes;
    placement->peak_bytes = placement->offset_bytes[tensor] + bytes;
}

static void make_product(const struct warming *warming, uint32_t op, int64_t n_tokens,
                         struct product *product) {
    const struct graph *graph = graph_of(warming);
    const int *outs = graph->ops[op].out, stream = added_to(warming->issue, op);
    product->issue = *warming->issue;
    product->issue.placement = &product->placement;
    product->instance = (struct op_instance){
        .op = op, .layer = warming->issue->program->op_layer[op], .n_rows = n_tokens};
    product->placement.peak_bytes = 0;
    place(product, graph, graph->ops[op].in[0], n_tokens);
    if (stream >= 0) {
        place(product, graph, stream, n_tokens);
    }
    product->read_bytes = product->placement.peak_bytes;
    for (int i = 0; stream < 0 && i < OP_MAX_TENSORS && outs[i] >= 0; i++) {
        place(product, graph, outs[i], n_tokens);
    }
}

static bool is_chosen(const struct warming *warming, uint32_t op, int64_t n_tokens) {
    struct product product;
    make_product(warming, op, n_tokens, &product);
    const struct launch l = launch_of(&product.issue, &product.instance);
    return op_launch_of(l.op)->is_chosen(&l);
}

/* Where it fits into room_bytes of the workspace. */
static int warm_product(const struct warming *warming, uint32_t op, int64_t n_tokens,
                        int64_t room_bytes, struct err *err) {
    const struct engine_device *device = warming->issue->device;
    struct product product;
    make_product(warming, op, n_tokens, &product);
    if (product.placement.peak_bytes > room_bytes) {
        return 0;
    }
    int mapped = room_use_workspace(warming->room, product.placement.peak_bytes, err);
    if (mapped != 0) {
        return mapped;
    }
    const struct call_random data = {.y = warming->room->workspace,
                                     .key = op,
                                     .n = product.read_bytes / engine_element_bytes(device),
                                     .spread = 1,
                                     .dtype = device->dtype};
    int status = device->table->random(device->device, &data);
    status = status == DEVICE_OK ? issue_instance(&product.issue, &product.instance) : status;
    return engine_device_err(device, status, "warming up", err);
}

static int64_t most_rows(const struct warming *warming, uint32_t op) {
    const struct step_limits *limits = warming->limits;
    const int64_t most = graph_of(warming)->ops[op].rows == SYM_LOGIT_ROWS ? limits->max_logit_rows
                                                                           : limits->max_tokens;
    return most < MOST_WARM_TOKENS ? most : MOST_WARM_TOKENS;
}

/* Whether a choice is made for the operator. A device without a kernel for gates and ups runs them
 * as a product of their own, whose choice is there once they ran: of more rows than any kernel for
 * few, of fewer than such a device does at a time. */
static int find_chosen(const struct warming *warming, uint32_t op, bool *chosen, struct err *err) {
    enum { TRIED_TOKENS = 256 };
    const int facts = op_launch_of(&graph_of(warming)->ops[op])->facts;
    const int64_t most = most_rows(warming, op), n = most < TRIED_TOKENS ? most : TRIED_TOKENS;
    *chosen = facts & OP_IS_CHOSEN_ALONE;
    if (*chosen || !(facts & OP_IS_PRODUCT)) {
        return 0;
    }
    int status = warm_product(warming, op, n, warming->limits->workspace_bytes, err);
    *chosen = status == 0 && is_chosen(warming, op, n);
    return status;
}

static uint64_t n_warm_sizes(const struct warming *warming, uint32_t op) {
    uint64_t count = 0;
    for (int64_t n = 1; n <= most_rows(warming, op); n = next_warm_size(n)) {
        count++;
    }
    return count;
}

/* The device waits for a choice, so that what is told is what is done. */
static int warm_sizes(const struct warming *warming, uint32_t op, uint64_t *n_done,
                      uint64_t n_total, struct err *err) {
    const struct warm_watch *watch = warming->watch;
    int status = 0;
    for (int64_t n = 1; status == 0 && n <= most_rows(warming, op); n = next_warm_size(n)) {
        status = warm_product(warming, op, n, warming->limits->workspace_bytes, err);
        ++*n_done;
        if (status == 0 && watch != NULL) {
            status = watch->told(watch->state, *n_done, n_total, err);
        }
    }
    return status;
}

int warm_products(const struct warming *warming, struct err *err) {
    const uint32_t n_ops = chooses(warming) ? graph_of(warming)->n_ops : 0;
    bool chosen[GRAPH_MAX_OPS];
    uint64_t n_done = 0, n_total = 0;
    int status = 0;
    for (uint32_t op = 0; status == 0 && op < n_ops; op++) {
        status = find_chosen(warming, op, &chosen[op], err);
        n_total += status == 0 && chosen[op] ? n_warm_sizes(warming, op) : 0;
    }
    for (uint32_t op = 0; status == 0 && op < n_ops; op++) {
        status = chosen[op] ? warm_sizes(warming, op, &n_done, n_total, err) : 0;
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

/* Whole chunks and the last one; after an eviction any number up to all, of two million tokens at
 * most: larger ones are chosen for when they come. */
static void step_sizes(const struct warming *warming, uint32_t op, const struct step *step,
                       struct step_sizes *sizes) {
    const struct graph *graph = graph_of(warming);
    const struct op *o = &graph->ops[op];
    int64_t rows = step->shape->sym[o->rows], tokens = step->shape->sym[SYM_TOKENS];
    sizes->count = 0;
    if (op >= warming->issue->program->evict_op) {
        for (int64_t n = 1; n < tokens && sizes->count + 1 < MOST_STEP_SIZES;
             n = next_warm_size(n)) {
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
 * elsewhere the product after them has the same rows and is chosen for with them. */
bool warm_knows_step(const struct warming *warming, const struct step *step) {
    const struct graph *graph = graph_of(warming);
    struct step_sizes sizes;
    for (uint32_t op = 0; chooses(warming) && op < graph->n_ops; op++) {
        if (op_launch_of(&graph->ops[op])->facts & OP_IS_CHOSEN_ALONE) {
            step_sizes(warming, op, step, &sizes);
            for (size_t i = 0; i < sizes.count; i++) {
                if (!is_chosen(warming, op, sizes.n[i])) {
                    return false;
                }
            }
        }
    }
    return true;
}

int warm_step(const struct warming *warming, const struct step *step, struct err *err) {
    const struct engine_device *device = warming->issue->device;
    const struct graph *graph = graph_of(warming);
    /* Rows that requests keep may lie after the step's own workspace. */
    int64_t room_bytes = warming->limits->shares_pool ? step->placement->peak_bytes
                                                      : warming->limits->workspace_bytes;
    struct step_sizes sizes;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        if (!(op_launch_of(&graph->ops[op])->facts & OP_IS_PRODUCT)) {
            continue;
        }
        step_sizes(warming, op, step, &sizes);
        for (size_t i = 0; i < sizes.count; i++) {
            if (!is_chosen(warming, op, sizes.n[i]) &&
                warm_product(warming, op, sizes.n[i], room_bytes, err) != 0) {
                return err_status(err);
            }
        }
    }
    return engine_device_err(device, device->table->finish(device->device), "warming up", err);
}
