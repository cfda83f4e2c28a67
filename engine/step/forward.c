#include "engine/step/forward.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/step/forward_parts.h"
#include "engine/step/placed.h"
#include "engine/step/warm.h"
#include "engine/weights/ranks.h"
#include "kernels/bf16.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"

int forward_device_err(const struct forward *forward, int status, const char *what,
                       struct err *err) {
    return engine_device_err(forward->device, status, what, err);
}

int forward_download(const struct forward *forward, void *to, const void *from, int64_t bytes) {
    return to == NULL || bytes == 0
               ? DEVICE_OK
               : forward->device->table->download(forward->device->device, to, from, bytes);
}

/* ---- ranks ---- */

struct forward *forward_of_rank(struct forward *forward, uint32_t rank) {
    return rank == 0 ? forward : forward->others[rank];
}

struct on_ranks {
    struct forward *forward;
    int (*call)(struct forward *forward, const void *arguments, struct err *err);
    const void *arguments;
};

static int call_on_rank(uint32_t rank, const void *arguments, struct err *err) {
    const struct on_ranks *on = arguments;
    return on->call(forward_of_rank(on->forward, rank), on->arguments, err);
}

int forward_on_all_ranks(struct forward *forward,
                         int (*call)(struct forward *forward, const void *arguments,
                                     struct err *err),
                         const void *arguments, struct err *err) {
    const struct on_ranks on = {forward, call, arguments};
    return forward->ranks == NULL ? call(forward, arguments, err)
                                  : ranks_call(forward->ranks, call_on_rank, &on, err);
}

static int open_other(uint32_t rank, const void *lead, struct err *err) {
    struct forward *forward = *(struct forward *const *)lead;
    return rank == 0 ? 0
                     : forward_open(ranks_device(forward->ranks, rank), forward->program.graph,
                                    ranks_weights(forward->ranks, rank), &forward->limits,
                                    &forward->others[rank], err);
}

static int close_other(uint32_t rank, const void *lead, struct err *err) {
    struct forward *forward = *(struct forward *const *)lead;
    (void)err;
    forward_close(forward->others[rank]);
    return 0;
}

int forward_lead(struct forward *forward, struct ranks *ranks, struct err *err) {
    forward->ranks = ranks;
    return ranks_call(ranks, open_other, &forward, err);
}

/* ---- products that a device chooses how to run ---- */

static struct warming warming_of(struct forward *forward) {
    return (struct warming){
        .issue = &forward->issue, .limits = &forward->limits, .room = &forward->room};
}

static int choose(struct forward *forward, const void *step, struct err *err) {
    const struct warming warming = warming_of(forward);
    return warm_step(&warming, step, err);
}

static bool all_ranks_know(struct forward *forward, const struct step *step) {
    const uint32_t n = model_ranks(forward->program.graph->model);
    bool know = true;
    for (uint32_t rank = 0; know && rank < n; rank++) {
        const struct warming warming = warming_of(forward_of_rank(forward, rank));
        know = warm_knows_step(&warming, step);
    }
    return know;
}

/* A device that chooses waits for its queue, and loading what it chose may wait for its peers'.
 * None of the ranks does so while another waits for its part of a sum: all have chosen for a step
 * before the first of them begins it. One may have met products that another has not: a calibration
 * measures them on the first alone. */
int forward_choose_products(struct forward *forward, const struct step *step, struct err *err) {
    return forward->ranks == NULL || all_ranks_know(forward, step)
               ? 0
               : forward_on_all_ranks(forward, choose, step, err);
}

/* Graphs of as many launches as a step has operators. */
static int warm_captures(struct forward *forward, struct err *err) {
    const struct graph *graph = forward->program.graph;
    uint32_t n_launches = 0;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        n_launches += graph->segments[graph->ops[op].segment].repeat;
    }
    int status = room_use_workspace(&forward->room, PLACEMENT_ALIGN_BYTES, err);
    return status != 0
               ? status
               : forward_device_err(forward,
                                    captures_warm(&forward->captures, forward->room.workspace,
                                                  forward->device->dtype, n_launches),
                                    "capturing steps of nothing", err);
}

/* Ranks do the same at the same time: the first one's progress is all of theirs. */
static int warm(struct forward *forward, const void *watch, struct err *err) {
    struct warming warming = warming_of(forward);
    warming.watch = watch;
    int status = warm_products(&warming, err);
    return status == 0 ? warm_captures(forward, err) : status;
}

int forward_warm(struct forward *forward, const struct warm_watch *watch, struct err *err) {
    return forward_on_all_ranks(forward, warm, watch, err);
}

/* ---- canvases and stores ---- */

static int check_range(const struct forward *forward, int64_t first, int64_t n, struct err *err) {
    int64_t end = forward->limits.canvas_tokens;
    return first >= 0 && n >= 0 && first <= end && n <= end - first
               ? 0
               : err_usage(err,
                           "canvas tokens %" PRId64 " to %" PRId64 " are not among the %" PRId64,
                           first, first + n, end);
}

static int check_tokens(const struct forward *forward, const int32_t *tokens, int64_t n,
                        struct err *err) {
    uint32_t vocab = model_whole_vocab(forward->program.graph->model);
    int32_t mask = (int32_t)forward->program.graph->model->mask_token;
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] != mask && (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab)) {
            return err_usage(err, "token %" PRId32 ", but the vocabulary ends at %" PRIu32,
                             tokens[i], vocab - 1);
        }
    }
    return 0;
}

struct canvas_tokens {
    int64_t first, n;
    const int32_t *tokens;
};

static int write_canvas(struct forward *forward, const void *arguments, struct err *err) {
    const struct canvas_tokens *a = arguments;
    return room_write(&forward->room, a->first, a->tokens, a->n, err);
}

int forward_write_canvas(struct forward *forward, int64_t first, const int32_t *tokens, int64_t n,
                         struct err *err) {
    const struct canvas_tokens arguments = {first, n, tokens};
    int status = check_range(forward, first, n, err);
    status = status == 0 ? check_tokens(forward, tokens, n, err) : status;
    return status == 0 ? forward_on_all_ranks(forward, write_canvas, &arguments, err) : status;
}

int forward_read_canvas(struct forward *forward, int64_t first, int32_t *tokens, int64_t n,
                        struct err *err) {
    int status = check_range(forward, first, n, err);
    if (status != 0) {
        return status;
    }
    status = forward_download(forward, tokens, forward->room.canvases + first,
                              n * (int64_t)sizeof *tokens);
    return forward_device_err(forward, status, "reading a canvas", err);
}

struct places {
    int64_t first, n;
    const unsigned char *from; /* of those that are written */
};

static int clear_places(struct forward *forward, const void *arguments, struct err *err) {
    const struct places *a = arguments;
    return room_clear_places(&forward->room, a->first, a->n, err);
}

int forward_clear_places(struct forward *forward, int64_t first, int64_t n, struct err *err) {
    const struct places arguments = {first, n, NULL};
    ASSERT(first >= 0 && n >= 0 && first + n <= forward->limits.places);
    return forward_on_all_ranks(forward, clear_places, &arguments, err);
}

int64_t forward_place_bytes(const struct forward *forward) {
    return room_place_bytes(&forward->room);
}

int forward_read_places(struct forward *forward, int64_t first, int64_t n, unsigned char *to,
                        struct err *err) {
    ASSERT(first >= 0 && n >= 0 && first + n <= forward->limits.places);
    return room_read_places(&forward->room, first, n, to, err);
}

static int write_places(struct forward *forward, const void *arguments, struct err *err) {
    const struct places *a = arguments;
    return room_write_places(&forward->room, a->first, a->n, a->from, err);
}

int forward_write_places(struct forward *forward, int64_t first, int64_t n,
                         const unsigned char *from, struct err *err) {
    const struct places arguments = {first, n, from};
    ASSERT(first >= 0 && n >= 0 && first + n <= forward->limits.places);
    return forward_on_all_ranks(forward, write_places, &arguments, err);
}

static int hold(struct forward *forward, const void *first_byte, struct err *err) {
    return room_hold_pool(&forward->room, *(const int64_t *)first_byte, err);
}

int forward_hold(struct forward *forward, int64_t first_byte, struct err *err) {
    ASSERT(first_byte >= 0 && first_byte <= forward->limits.pool_bytes);
    return forward_on_all_ranks(forward, hold, &first_byte, err);
}

struct store_move {
    int64_t to_bytes, from_bytes, bytes;
};

static int move_store(struct forward *forward, const void *arguments, struct err *err) {
    const struct store_move *a = arguments;
    return room_move(&forward->room, a->to_bytes, a->from_bytes, a->bytes, err);
}

int forward_move_store(struct forward *forward, int64_t to_bytes, int64_t from_bytes, int64_t bytes,
                       struct err *err) {
    int64_t size = forward->limits.pool_bytes;
    if (to_bytes < 0 || from_bytes < 0 || bytes < 0 || bytes > size || to_bytes > size - bytes ||
        from_bytes > size - bytes) {
        return err_usage(err,
                         "a store of %" PRId64 " bytes moves from %" PRId64 " to %" PRId64
                         ", outside the pool of %" PRId64,
                         bytes, from_bytes, to_bytes, size);
    }
    const struct store_move arguments = {to_bytes, from_bytes, bytes};
    return forward_on_all_ranks(forward, move_store, &arguments, err);
}

/* ---- the host's memory ---- */

static int open_host(struct forward *forward, const void *arguments, struct err *err) {
    const int64_t bytes = *(const int64_t *)arguments;
    const struct engine_device *device = forward->device;
    void *memory = NULL;
    char size[32];
    const int status = device->table->allocate_host(device->device, bytes, &memory);
    forward->host = memory;
    return status == DEVICE_OK
               ? 0
               : err_world(err, "no %s of the host's memory for swapping (swap.host_bytes): %s",
                           num_format_bytes(size, sizeof size, (double)bytes),
                           device->table->trouble(device->device));
}

int forward_open_host(struct forward *forward, int64_t bytes, struct err *err) {
    return forward_on_all_ranks(forward, open_host, &bytes, err);
}

static int close_host(struct forward *forward, const void *none, struct err *err) {
    const struct engine_device *device = forward->device;
    (void)none, (void)err;
    if (forward->host != NULL) {
        (void)device->table->swap_wait(device->device);
        device->table->release_host(device->device, forward->host);
        forward->host = NULL;
    }
    return 0;
}

void forward_close_host(struct forward *forward) {
    struct err none = {0};
    (void)forward_on_all_ranks(forward, close_host, NULL, &none);
}

void forward_move_host(struct forward *forward, int64_t to, int64_t from, int64_t bytes) {
    for (uint32_t rank = 0; rank < model_ranks(forward->packed.model); rank++) {
        unsigned char *host = forward_of_rank(forward, rank)->host;
        memmove(host + to, host + from, (size_t)bytes);
    }
}

/* Keys, or values, of a page in one layer. */
static int64_t piece_bytes(const struct packed *packed, bool global) {
    const struct model *model = packed->model;
    const int64_t elements =
        global ? packed->global_row_elements : model->kv_heads * packed->head_elements;
    return packed->limits.page_rows * elements * packed->element_bytes;
}

int64_t forward_page_bytes(const struct forward *forward) {
    const struct packed *packed = &forward->packed;
    const int64_t n_global = model_global_layers(packed->model);
    return 2 * ((packed->model->layers - n_global) * piece_bytes(packed, false) +
                n_global * piece_bytes(packed, true));
}

/* n pieces `pitch` apart in the pool, one after the other in the host's memory; enum device_status.
 */
static int copy_pieces(const struct forward *forward, bool is_out, unsigned char *host,
                       unsigned char *rows, int64_t bytes, int64_t pitch, int64_t n) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    return is_out ? table->swap_out(device, host, rows, bytes, pitch, n)
                  : table->swap_in(device, rows, host, bytes, pitch, n);
}

/* Layers that are alike have their planes one after the other. */
static int copy_page(const struct forward *forward, bool is_out, unsigned char *host,
                     int32_t page) {
    const struct packed *packed = &forward->packed;
    const struct model *model = packed->model;
    const uint32_t every = model->global_every;
    int status = DEVICE_OK;
    ASSERT(page >= 0 && page < packed->pool_pages);
    for (uint32_t layer = 0, end; status == DEVICE_OK && layer < model->layers; layer = end) {
        const bool global = model_is_global(model, layer);
        end = every == 0 ? model->layers : global ? layer + 1 : layer + every - 1;
        const int64_t bytes = piece_bytes(packed, global), n = 2 * (int64_t)(end - layer);
        status = copy_pieces(forward, is_out, host,
                             forward->room.pool +
                                 packed_layer_start(packed, layer) * packed->element_bytes +
                                 page * bytes,
                             bytes, packed->pool_pages * bytes, n);
        host += n * bytes;
    }
    return status;
}

static int swap(struct forward *forward, const void *arguments, struct err *err) {
    const struct row_copy *copy = arguments;
    const int64_t page_bytes = forward_page_bytes(forward);
    unsigned char *host = forward->host + copy->host;
    int status = DEVICE_OK;
    ASSERT(copy->bytes == 0 ||
           (copy->first >= 0 && copy->first + copy->bytes <= forward->limits.pool_bytes));
    if (copy->bytes > 0) {
        status = copy_pieces(forward, copy->is_out, host, forward->room.pool + copy->first,
                             copy->bytes, copy->bytes, 1);
    }
    for (int64_t i = 0; status == DEVICE_OK && i < copy->n_pages; i++) {
        status = copy_page(forward, copy->is_out, host + i * page_bytes, copy->pages[i]);
    }
    return forward_device_err(
        forward, status, copy->is_out ? "swapping a request out" : "bringing a request back", err);
}

int forward_swap(struct forward *forward, const struct row_copy *copy, struct err *err) {
    return forward_on_all_ranks(forward, swap, copy, err);
}

static int wait_for_swaps(struct forward *forward, const void *none, struct err *err) {
    (void)none;
    const int status = forward->device->table->swap_wait(forward->device->device);
    return forward_device_err(forward, status, "swapping requests", err);
}

int forward_swap_wait(struct forward *forward, struct err *err) {
    return forward_on_all_ranks(forward, wait_for_swaps, NULL, err);
}

/* ---- facts ---- */

unsigned char *forward_workspace(struct forward *forward) {
    return forward->room.workspace;
}

unsigned char *forward_pool(struct forward *forward) {
    return forward->room.pool;
}

int64_t forward_workspace_peak(const struct forward *forward) {
    return forward->issue.peak_bytes;
}

int64_t forward_side_bytes(const struct forward *forward) {
    return forward->room.side_bytes;
}

const struct mapping *forward_mapping(const struct forward *forward) {
    return forward->room.mapping.device != NULL ? &forward->room.mapping : NULL;
}

/* ---- opening ---- */

static int check_weights(const struct engine_device *device, const struct graph *graph,
                         const struct weights *weights, struct err *err) {
    const struct model *model = graph->model;
    if (weights->layout.model != model) {
        return err_usage(err, "the weights are of model '%s', the step graph of '%s'",
                         weights->layout.model->name, model->name);
    }
    if (weights->device != device) {
        return err_usage(err, "the weights are on another device");
    }
    if (graph->storage.wide != engine_number(device)) {
        return err_usage(err, "the %s device computes in %s, the step graph does not",
                         device->table->name, number_words[engine_number(device)]);
    }
    if (weights->layout.storage.weights != graph->storage.weights ||
        weights->layout.storage.head != graph->storage.head) {
        return err_usage(err, "the weights are of other types than the step graph's");
    }
    return 0;
}

/* The graph is built for the model's mask. */
static int check_mask(const struct forward *forward, struct err *err) {
    const struct model *model = forward->program.graph->model;
    bool is_exact = op_facts(forward->program.graph) & OP_IS_PAGED;
    return is_exact == (model->mask != MASK_BIDIRECTIONAL)
               ? 0
               : err_usage(err, "model '%s' is %s, the step graph is for %s models", model->name,
                           is_exact ? "bidirectional" : "causal",
                           is_exact ? "causal" : "bidirectional");
}

static int check_logits(const struct graph *graph, struct err *err) {
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (tensor_holds_logits(graph, (int)t) &&
            graph->tensors[t].bytes.per < graph_element_bytes(graph) * graph->model->vocab) {
            return err_usage(
                err, "the step graph's logits are narrower than its elements, %" PRId64 " bytes",
                graph_element_bytes(graph));
        }
    }
    return 0;
}

int forward_open(const struct engine_device *device, const struct graph *graph,
                 const struct weights *weights, const struct step_limits *limits,
                 struct forward **out, struct err *err) {
    *out = NULL;
    struct forward *forward = mem_zeroed(1, sizeof *forward);
    forward->device = device;
    forward->weights = weights;
    forward->limits = *limits;
    forward->issue = (struct issue){.device = device,
                                    .program = &forward->program,
                                    .weights = weights,
                                    .packed = &forward->packed,
                                    .rest = &forward->packed,
                                    .placement = &forward->placement,
                                    .room = &forward->room};
    int status = check_weights(device, graph, weights, err);
    status = status == 0 ? check_logits(graph, err) : status;
    status = status == 0 ? program_make(&forward->program, graph, err) : status;
    status = status == 0 ? check_mask(forward, err) : status;
    status = status == 0 ? packed_open(&forward->packed, graph, limits, err) : status;
    bool evicts = status == 0 && forward->packed.evicts;
    bool has_rest = evicts || (status == 0 && forward->packed.joins);
    if (has_rest) {
        status = packed_open(&forward->rest, graph, limits, err);
        forward->issue.rest = &forward->rest;
        forward->join_copies =
            mem_zeroed((size_t)limits->max_requests * JOIN_COPIES, sizeof *forward->join_copies);
        forward->issue.join_copies = forward->join_copies;
    }
    if (evicts) {
        forward->importance =
            mem_zeroed(2 * (size_t)limits->max_tokens, sizeof *forward->importance);
    }
    if (status == 0) {
        int64_t array_bytes = (has_rest ? 2 : 1) * forward->packed.max_bytes;
        status = room_open(&forward->room, device, graph->model, limits, array_bytes,
                           forward->packed.smooths, &weights->constants.rotation, err);
    }
    if (status == 0) {
        forward->n_committed = mem_zeroed(limits->max_requests, sizeof *forward->n_committed);
        captures_open(&forward->captures, device->table, device->device);
    }
    if (status != 0) {
        forward_close(forward);
        return status;
    }
    *out = forward;
    return 0;
}

void forward_close(struct forward *forward) {
    struct err none = {0};
    if (forward == NULL) {
        return;
    }
    if (forward->ranks != NULL) {
        (void)ranks_call(forward->ranks, close_other, &forward, &none);
    }
    captures_close(&forward->captures);
    if (forward->aside != NULL) {
        forward->device->table->release_host(forward->device->device, forward->aside);
    }
    room_close(&forward->room);
    packed_close(&forward->packed);
    packed_close(&forward->rest);
    free(forward->importance);
    free(forward->join_copies);
    instance_times_close(&forward->times, forward->device);
    free(forward->n_committed);
    free(forward);
}
