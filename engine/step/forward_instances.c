/* A step one instance at a time. */
#include <math.h>

#include "engine/step/forward_parts.h"

/* As many as a step of this placement has; an eviction changes their rows. */
static size_t count_instances(const struct forward *forward) {
    struct op_instance instance;
    size_t n = 0;
    program_start(&forward->program, &forward->placement, &forward->shape, &instance);
    do {
        n++;
    } while (program_next(&forward->program, &forward->placement, &forward->shape, &instance));
    return n;
}

static int begin(struct forward *forward, const void *step, struct err *err) {
    int status = forward_prepare(forward, step, err);
    if (status != 0) {
        return status;
    }
    program_start(&forward->program, &forward->placement, &forward->shape, &forward->instance);
    forward->is_stepping = true;
    status = forward_device_err(
        forward, instance_times_begin(&forward->times, forward->device, count_instances(forward)),
        "making events", err);
    return status == 0 ? forward_begin_step(forward, err) : status;
}

int forward_begin(struct forward *forward, const struct step *step, struct err *err) {
    int status = forward_choose_products(forward, step, err);
    return status == 0 ? forward_on_all_ranks(forward, begin, step, err) : status;
}

const struct op_instance *forward_instance(const struct forward *forward) {
    return forward->is_stepping ? &forward->instance : NULL;
}

static int next(struct forward *forward, const void *nothing, struct err *err) {
    (void)nothing;
    ASSERT(forward->is_stepping);
    int status = forward_issue(forward, &forward->instance, err);
    if (status == 0) {
        status = forward_device_err(
            forward, instance_times_end(&forward->times, forward->device, forward->instance.op),
            "ending an operator", err);
    }
    if (status == 0 && !program_next(&forward->program, &forward->placement, &forward->shape,
                                     &forward->instance)) {
        forward->is_stepping = false;
        status = forward_end_step(forward, err);
    }
    return status;
}

/* Until the host has a word, or to the end. */
static int several(struct forward *forward, const void *nothing, struct err *err) {
    int status = 0;
    do {
        status = next(forward, nothing, err);
    } while (status == 0 && forward->is_stepping &&
             forward->instance.op != forward->program.evict_op);
    return status;
}

static int after_eviction(struct forward *forward,
                          int (*call)(struct forward *forward, const void *nothing,
                                      struct err *err),
                          struct err *err) {
    int status =
        forward->instance.op == forward->program.evict_op ? forward_evict(forward, err) : 0;
    return status == 0 ? forward_on_all_ranks(forward, call, NULL, err) : status;
}

int forward_next(struct forward *forward, struct err *err) {
    return after_eviction(forward, next, err);
}

int forward_finish_instances(struct forward *forward, struct err *err) {
    int status = 0;
    while (status == 0 && forward->is_stepping) {
        status = after_eviction(forward, several, err);
    }
    return status;
}

/* ---- what is measured before it is carried out ---- */

bool forward_reads_overwritten(const struct forward *forward) {
    return forward->packed.features;
}

static int set_aside(struct forward *forward, const void *none, struct err *err) {
    const struct engine_device *device = forward->device;
    const struct room *room = &forward->room;
    const int64_t bytes = room->pool_bytes - room->pool_held;
    void *memory = NULL;
    (void)none;
    ASSERT(forward->aside == NULL);
    if (bytes == 0) {
        return 0;
    }
    int status = device->table->allocate_host(device->device, bytes, &memory);
    forward->aside = memory;
    status = status == DEVICE_OK
                 ? forward_download(forward, memory, room->pool + room->pool_held, bytes)
                 : status;
    return forward_device_err(forward, status, "setting cached rows aside", err);
}

int forward_set_aside(struct forward *forward, struct err *err) {
    return forward_on_all_ranks(forward, set_aside, NULL, err);
}

static int put_back(struct forward *forward, const void *none, struct err *err) {
    const struct engine_device *device = forward->device;
    const struct room *room = &forward->room;
    (void)none;
    if (forward->aside == NULL) {
        return 0;
    }
    int status = device->table->upload(device->device, room->pool + room->pool_held, forward->aside,
                                       room->pool_bytes - room->pool_held);
    status = status == DEVICE_OK ? device->table->finish(device->device) : status;
    device->table->release_host(device->device, forward->aside);
    forward->aside = NULL;
    return forward_device_err(forward, status, "putting cached rows back", err);
}

int forward_put_back(struct forward *forward, struct err *err) {
    return forward_on_all_ranks(forward, put_back, NULL, err);
}

static int read_times(struct forward *forward, const void *until_ns, struct err *err) {
    int status =
        instance_times_sum(&forward->times, forward->device, forward->room.events[EVENT_STEP_BEGIN],
                           *(const double *)until_ns, forward->op_ns);
    return forward_device_err(forward, status, "reading an operator's time", err);
}

/* Of a sum or a gathering the rank that comes last waits for no one; of all else the slowest one
 * keeps the others waiting. */
static double of_all_ranks(struct forward *forward, uint32_t op) {
    const struct graph *graph = forward->program.graph;
    const bool is_exchange = op_launch_of(&graph->ops[op])->facts & OP_IS_EXCHANGE;
    double ns = forward->op_ns[op];
    for (uint32_t r = 1; forward->ranks != NULL && r < model_ranks(graph->model); r++) {
        double its_ns = forward_of_rank(forward, r)->op_ns[op];
        ns = is_exchange ? fmin(ns, its_ns) : fmax(ns, its_ns);
    }
    return ns;
}

int forward_instance_times(struct forward *forward, double until_ns, double *ns, struct err *err) {
    ASSERT(!forward->is_stepping);
    int status = forward_on_all_ranks(forward, read_times, &until_ns, err);
    for (uint32_t op = 0; status == 0 && op < forward->program.graph->n_ops; op++) {
        ns[op] = of_all_ranks(forward, op);
    }
    return status;
}

int forward_experts_hit(struct forward *forward, const struct op_instance *instance, uint32_t *out,
                        struct err *err) {
    const struct op *op = &forward->program.graph->ops[instance->op];
    ASSERT(op_launch_of(op)->facts & OP_CHOOSES_EXPERTS);
    int status = op_count_experts(
        forward->device, forward->room.workspace + forward->placement.offset_bytes[op->out[2]],
        op->experts, out);
    return forward_device_err(forward, status, "reading which experts were chosen", err);
}

int forward_finish_counting(struct forward *forward, double *experts_hit, struct err *err) {
    double sum = 0, n = 0;
    int status = 0;
    while (status == 0 && forward_instance(forward) != NULL) {
        const struct op_instance instance = *forward_instance(forward);
        const struct op *op = &forward->program.graph->ops[instance.op];
        uint32_t hit = 0;
        status = forward_next(forward, err);
        if (status == 0 && op_launch_of(op)->facts & OP_CHOOSES_EXPERTS) {
            status = forward_experts_hit(forward, &instance, &hit, err);
            sum += hit;
            n++;
        }
    }
    *experts_hit = n > 0 ? sum / n : 0;
    return status;
}
