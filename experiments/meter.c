#include "experiments/meter.h"

#include <stdlib.h>
#include <string.h>

static void keep_largest(int64_t kept[SYM_COUNT], const int64_t sym[SYM_COUNT],
                         enum symbol symbol) {
    if (sym[symbol] > kept[symbol]) {
        memcpy(kept, sym, SYM_COUNT * sizeof *kept);
    }
}

static int64_t peak_bytes(const struct meter *meter, const struct step_shape *shape) {
    const struct system *system = meter->request.system;
    struct placement placement;
    placement_make(system->planner, &system->graph, shape, system->settings.logit_chunk_rows,
                   &placement);
    return placement.peak_bytes;
}

static void keep_memory(struct meter *meter, const struct submission *submission) {
    struct step_shape shape = *submission->shape;
    if (!meter->request.system->runtime.varlen) {
        shape_pad(&shape);
    }
    keep_largest(meter->most_tokens, shape.sym, SYM_TOKENS);
    keep_largest(meter->most_logits, shape.sym, SYM_LOGIT_ROWS);
    if (meter->request.places_all) {
        int64_t bytes = peak_bytes(meter, &shape);
        meter->largest_bytes = bytes > meter->largest_bytes ? bytes : meter->largest_bytes;
    }
}

/* The price of one step of what ran, its look-ups counted for every step. */
static int price(struct meter *meter, const struct submission *submission, uint32_t steps,
                 struct completion *priced, struct err *err) {
    struct executor pricer = executor_sim_interface(meter->request.pricer);
    struct submission played = *submission;
    played.repeat = steps;
    played.stop_ns = INT64_MAX;
    int status = pricer.submit(pricer.state, &played, err);
    if (status == 0) {
        status = pricer.wait(pricer.state, INT64_MAX, priced, err);
        meter->priced_ns += (double)priced->gpu_ns * steps;
    }
    return status;
}

/* Carry out on the device what the record says, some of it operator by operator first. */
static int rerun(struct meter *meter, const struct submission *submission,
                 const struct replay_step *step, struct live_times *times, struct err *err) {
    struct live *live = meter->request.rerun;
    struct accuracy *accuracy = meter->request.accuracy;
    double ns[GRAPH_MAX_OPS];
    bool by_operator = accuracy_wants_operators(accuracy);
    int status = by_operator ? live_operators(live, submission, NULL, ns, err) : 0;
    status = status == 0 ? live_execute(live, submission, step->steps, step->commits, times, err)
                         : status;
    if (status == 0 && by_operator) {
        accuracy_add_operators(accuracy, submission->shape, ns, times->device_ns / step->steps);
    }
    return status;
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct meter *meter = state;
    const struct meter_request *request = &meter->request;
    keep_memory(meter, submission);
    int status = request->inner.submit(request->inner.state, submission, err);
    meter->flights[submission->replica] = *submission;
    return status;
}

static double step_wall_ns(const struct completion *done) {
    return (double)(done->time_ns - done->start_ns) / done->steps;
}

/* The accuracy of several replicas lists the steps as they end. */
static int compare(struct meter *meter, const struct submission *submission,
                   const struct completion *done, const struct completion *priced,
                   struct err *err) {
    struct compared_step compared = {
        .steps = done->steps,
        .kind = step_class_of(submission),
        .predicted_device_ns = (double)priced->gpu_ns,
        .predicted_host_ns = (double)priced->host_ns,
        .predicted_wall_ns = step_wall_ns(priced),
        .measured_device_ns = (double)done->gpu_ns,
        .measured_wall_ns = step_wall_ns(done),
    };
    memcpy(compared.sym, submission->shape->sym, sizeof compared.sym);
    if (meter->request.rerun != NULL) {
        struct live_times times;
        int status = rerun(meter, submission, &meter->request.steps[meter->next], &times, err);
        if (status != 0) {
            return status;
        }
        compared.measured_device_ns = times.device_ns / done->steps;
        compared.measured_wall_ns = times.wall_ns / done->steps;
    }
    accuracy_add(meter->request.accuracy, &compared);
    return 0;
}

/* Batches are looked at as they end: by then it is known how many steps they were, and their
 * requests are as they were while they ran. */
static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct meter *meter = state;
    const struct meter_request *request = &meter->request;
    int status = request->inner.wait(request->inner.state, until_ns, out, err);
    if (status != 0 || out->kind != COMPLETION_BATCH) {
        return status;
    }
    const struct submission *submission = &meter->flights[out->replica];
    struct completion priced = {.steps = 1};
    meter->device_ns += (double)out->gpu_ns * out->steps;
    meter->wall_ns += (double)(out->time_ns - out->start_ns);
    if (request->pricer != NULL) {
        status = price(meter, submission, out->steps, &priced, err);
    }
    if (status == 0 && request->accuracy != NULL) {
        status = compare(meter, submission, out, &priced, err);
    }
    meter->next++;
    return status;
}

static int admit(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                 struct err *err) {
    const struct meter *meter = state;
    struct executor device =
        meter->request.rerun != NULL ? live_interface(meter->request.rerun) : meter->request.inner;
    return device.admit != NULL ? device.admit(device.state, replica, slot, request, err) : 0;
}

static void release(void *state, uint32_t replica, uint32_t slot) {
    const struct meter *meter = state;
    struct executor device =
        meter->request.rerun != NULL ? live_interface(meter->request.rerun) : meter->request.inner;
    if (device.release != NULL) {
        device.release(device.state, replica, slot);
    }
}

/* A replay does not know; a schedule that was made by estimates is repeated by the same ones. */
static int64_t estimate_ns(const void *state, const struct step_shape *shape) {
    const struct meter *meter = state;
    struct executor estimator = meter->request.pricer != NULL
                                    ? executor_sim_interface(meter->request.pricer)
                                    : meter->request.inner;
    return estimator.estimate_ns(estimator.state, shape);
}

void meter_init(struct meter *meter, const struct meter_request *request) {
    *meter = (struct meter){.request = *request};
    meter->flights = calloc(request->system->settings.replicas, sizeof *meter->flights);
    ASSERT(meter->flights != NULL);
}

void meter_fini(struct meter *meter) {
    free(meter->flights);
    meter->flights = NULL;
}

struct executor meter_interface(struct meter *meter) {
    const struct meter_request *request = &meter->request;
    return (struct executor){.state = meter,
                             .wants_spans = request->inner.wants_spans || request->rerun != NULL ||
                                            !request->system->runtime.varlen,
                             .wants_members = request->inner.wants_members,
                             .admit = admit,
                             .release = release,
                             .submit = submit,
                             .wait = wait_next,
                             .estimate_ns = estimate_ns};
}

void meter_memory(const struct meter *meter, int64_t *activation_bytes, int64_t *logit_bytes) {
    const struct system *system = meter->request.system;
    const struct graph *graph = &system->graph;
    struct step_shape by_tokens = {0}, by_logits = {0};
    memcpy(by_tokens.sym, meter->most_tokens, sizeof by_tokens.sym);
    memcpy(by_logits.sym, meter->most_logits, sizeof by_logits.sym);
    int64_t a = peak_bytes(meter, &by_tokens), b = peak_bytes(meter, &by_logits);
    *activation_bytes = meter->request.places_all ? meter->largest_bytes : a > b ? a : b;
    *logit_bytes = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensors[t].logits && graph->tensors[t].alias < 0) {
            *logit_bytes +=
                tensor_bytes(&graph->tensors[t], &by_logits, system->settings.logit_chunk_rows);
        }
    }
}
