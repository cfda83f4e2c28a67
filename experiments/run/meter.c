#include "experiments/run/meter.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/serve/positions.h"
#include "sim/system/system_step.h"

static void keep_largest(struct metered_step *kept, const struct step_shape *shape,
                         int64_t workspace_bytes, enum symbol symbol) {
    if (shape->sym[symbol] > kept->sym[symbol]) {
        memcpy(kept->sym, shape->sym, sizeof kept->sym);
        kept->workspace_bytes = workspace_bytes;
    }
}

/* As the system places it, whether it fits or not. */
static void place(const struct meter *meter, const struct step_shape *shape,
                  int64_t workspace_bytes, struct placement *out) {
    struct err ignored = {0};
    (void)system_place(meter->request.system, shape, workspace_bytes, out, &ignored);
}

static void keep_memory(struct meter *meter, const struct submission *submission) {
    const struct step_shape *shape = submission->step.shape;
    int64_t workspace_bytes = submission->step.workspace_bytes;
    struct step_shape padded;
    if (!meter->request.system->runtime.varlen) {
        padded = *shape;
        shape_pad(&padded);
        shape = &padded;
    }
    keep_largest(&meter->most_tokens, shape, workspace_bytes, SYM_TOKENS);
    keep_largest(&meter->most_logits, shape, workspace_bytes, SYM_LOGIT_ROWS);
    if (meter->request.places_all) {
        struct placement placement;
        place(meter, shape, workspace_bytes, &placement);
        meter->largest_bytes = placement.peak_bytes > meter->largest_bytes ? placement.peak_bytes
                                                                           : meter->largest_bytes;
    }
}

/* What became of the submission's shape, by which it is priced and compared. */
static void settle(const struct meter *meter, struct metered_flight *flight) {
    const struct planned_step *step = &flight->submission.step;
    flight->shape = *step->shape;
    if (step->blocks != NULL && meter->request.system->rows.chooser == CHOSEN_BY_POLICY) {
        positions_settle(step->requests, step->slots, step->blocks, step->n_slots,
                         flight->shape.sym);
    }
}

/* What `steps` of its steps take by the cost model, after idle_ns of idling. */
static int play(struct executor_sim *pricer, const struct metered_flight *flight, uint32_t steps,
                bool unrolled, int64_t idle_ns, struct completion *priced, struct err *err) {
    struct submission played = flight->submission;
    played.step.shape = &flight->shape;
    played.repeat = steps;
    played.unrolled = unrolled;
    played.stop_ns = INT64_MAX;
    played.swap = (struct swap){0}; /* what its copies took is among what was idle */
    return executor_sim_play(pricer, &played, idle_ns, priced, err);
}

/* The price of one step of what ran, its look-ups counted for every step. Its card idles as long
 * before it as the one that ran it. */
static int price(struct meter *meter, struct metered_flight *flight, const struct completion *done,
                 struct completion *priced, struct err *err) {
    const int64_t since_ns = done->start_ns - flight->end_ns;
    const int64_t idle_ns = since_ns > 0 ? since_ns : 0;
    flight->idle_ns = (double)idle_ns;
    const int status = play(meter->request.pricer, flight, done->steps, flight->submission.unrolled,
                            idle_ns, priced, err);
    if (status == 0) {
        meter->priced_ns += (double)priced->gpu_ns * done->steps;
        flight->end_ns = done->time_ns;
    }
    return status;
}

static double step_wall_ns(const struct completion *done) {
    return (double)(done->time_ns - done->start_ns) / done->steps;
}

static void predict(struct compared_step *compared, const struct completion *priced) {
    compared->predicted_device_ns = (double)priced->gpu_ns;
    compared->predicted_host_ns = (double)priced->host_ns;
    compared->predicted_wall_ns = step_wall_ns(priced);
}

/* Carry out on the device what the record says, some of it operator by operator first, and compare
 * it with the price of single steps. */
static int rerun(struct meter *meter, struct metered_flight *flight, uint32_t s, struct err *err) {
    const struct submission *submission = &flight->submission;
    struct fleet *fleet = meter->request.rerun;
    const uint32_t on = submission->replica;
    struct accuracy *accuracy = meter->request.accuracy;
    struct compared_step *compared = &flight->compared;
    const struct replay_step *step =
        executor_replay_step(meter->request.replay, submission->replica, s);
    double ns[GRAPH_MAX_OPS];
    bool by_operator = accuracy_wants_operators(accuracy);
    struct planned_step planned = submission->step;
    struct live_times times;
    struct completion priced;
    planned.is_recorded = step->positions != NULL;
    /* What the record's card idled is not what this one does: nothing is waited for, and where
     * there are several each rests while the others carry out their steps. */
    if (flight->carried_ns != 0) {
        compared->idle_ns = (double)(monotonic_ns() - flight->carried_ns);
    }
    int status = by_operator ? fleet_operators(fleet, on, &planned, NULL, ns, err) : 0;
    status = status == 0
                 ? fleet_execute(fleet, on, &planned, step->steps, step->commits, &times, err)
                 : status;
    flight->carried_ns = monotonic_ns();
    status = status == 0 ? play(meter->rerun_pricer, flight, step->steps, false,
                                (int64_t)compared->idle_ns, &priced, err)
                         : status;
    if (status != 0) {
        return status;
    }
    predict(compared, &priced);
    compared->steps = step->steps;
    compared->measured_device_ns = times.device_ns / step->steps;
    compared->measured_wall_ns = times.wall_ns / step->steps;
    if (by_operator) {
        accuracy_add_operators(accuracy, submission, ns, compared);
    }
    accuracy_add(accuracy, compared);
    accuracy_time(accuracy, submission, compared, step->start_ns, step->end_ns);
    return 0;
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct meter *meter = state;
    const struct meter_request *request = &meter->request;
    keep_memory(meter, submission);
    int status = request->inner.submit(request->inner.state, submission, err);
    meter->flights[submission->replica].submission = *submission;
    return status;
}

/* The accuracy of several replicas lists the steps as they end. */
static int compare(struct meter *meter, struct metered_flight *flight,
                   const struct completion *done, const struct completion *priced,
                   struct err *err) {
    const struct submission *submission = &flight->submission;
    const bool reruns = meter->request.rerun != NULL;
    struct compared_step *compared = &flight->compared;
    *compared = (struct compared_step){
        .steps = done->steps,
        .kind = step_class_of(submission),
        .unrolled = submission->unrolled && !reruns,
        .measured_device_ns = (double)done->gpu_ns,
        .measured_wall_ns = step_wall_ns(done),
        .idle_ns = flight->idle_ns,
    };
    memcpy(compared->sym, flight->shape.sym, sizeof compared->sym);
    if (!reruns) {
        predict(compared, priced);
        accuracy_add(meter->request.accuracy, compared);
        accuracy_time(meter->request.accuracy, submission, compared, done->start_ns, done->time_ns);
        return 0;
    }
    /* Of unrolled steps each follows from the one before: unroll has them one by one. */
    const bool by_step = submission->unrolled && meter->request.system->decoder->count == NULL;
    return by_step ? 0 : rerun(meter, flight, 0, err);
}

/* Where the record has counts alone it is the device that has decided which. */
static bool decides_now(const struct meter *meter, const struct metered_flight *flight) {
    return meter->request.rerun != NULL && flight->submission.step.blocks != NULL;
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
    struct metered_flight *flight = &meter->flights[out->replica];
    struct completion priced = {.steps = 1};
    if (request->pricer != NULL || request->accuracy != NULL) {
        settle(meter, flight);
    }
    meter->device_ns += (double)out->gpu_ns * out->steps;
    meter->wall_ns += (double)(out->time_ns - out->start_ns);
    if (request->pricer != NULL) {
        status = price(meter, flight, out, &priced, err);
    }
    if (status == 0 && request->accuracy != NULL) {
        status = compare(meter, flight, out, &priced, err);
    }
    out->decided.positions |= decides_now(meter, flight);
    return status;
}

static int unroll(void *state, uint32_t replica, uint32_t s, struct decided *out, struct err *err) {
    struct meter *meter = state;
    const struct executor *inner = &meter->request.inner;
    struct metered_flight *flight = &meter->flights[replica];
    int status = inner->unroll(inner->state, replica, s, out, err);
    if (status == 0 && meter->request.rerun != NULL) {
        status = rerun(meter, flight, s, err);
        out->positions |= decides_now(meter, flight);
    }
    return status;
}

/* Who holds the requests' memory. */
static struct executor holder(const struct meter *meter) {
    return meter->request.rerun != NULL ? fleet_interface(meter->request.rerun)
                                        : meter->request.inner;
}

static int admit(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                 const struct beginning *beginning, struct err *err) {
    struct executor device = holder(state);
    return device.admit != NULL ? device.admit(device.state, replica, slot, request, beginning, err)
                                : 0;
}

static int grow(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                struct err *err) {
    struct executor device = holder(state);
    return device.grow != NULL ? device.grow(device.state, replica, slot, request, err) : 0;
}

static int swap_out(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    struct err *err) {
    struct executor device = holder(state);
    return device.swap_out != NULL ? device.swap_out(device.state, replica, slot, request, err) : 0;
}

static void drop(void *state, uint32_t replica, uint32_t slot) {
    struct executor device = holder(state);
    if (device.drop != NULL) {
        device.drop(device.state, replica, slot);
    }
}

static void release(void *state, uint32_t replica, uint32_t slot) {
    struct executor device = holder(state);
    if (device.release != NULL) {
        device.release(device.state, replica, slot);
    }
}

static void settle_inner(void *state) {
    const struct meter *meter = state;
    const struct executor *inner = &meter->request.inner;
    if (inner->settle != NULL) {
        inner->settle(inner->state);
    }
}

static void audit(void *state, bool interrupted) {
    struct executor device = holder(state);
    if (device.audit != NULL) {
        device.audit(device.state, interrupted);
    }
}

static int64_t step_ns(const void *state, uint32_t replica) {
    const struct executor *inner = &((const struct meter *)state)->request.inner;
    return inner->step_ns(inner->state, replica);
}

static void cut(void *state, uint32_t replica, int64_t now_ns) {
    const struct executor *inner = &((struct meter *)state)->request.inner;
    inner->cut(inner->state, replica, now_ns);
}

static int keep_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    struct executor device = holder(state);
    return device.keep_prefix != NULL
               ? device.keep_prefix(device.state, replica, slot, request, first, err)
               : 0;
}

static int take_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    struct executor device = holder(state);
    return device.take_prefix != NULL
               ? device.take_prefix(device.state, replica, slot, request, first, err)
               : 0;
}

static int find_end(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    uint32_t *answer_tokens, bool *is_met, struct err *err) {
    const struct executor *inner = &((struct meter *)state)->request.inner;
    return inner->find_end(inner->state, replica, slot, request, answer_tokens, is_met, err);
}

/* A replay does not know; a schedule that was made by estimates is repeated by the same ones. */
static int64_t estimate_ns(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t workspace_bytes, double *joules) {
    const struct meter *meter = state;
    struct executor estimator = meter->request.pricer != NULL
                                    ? executor_sim_interface(meter->request.pricer)
                                    : meter->request.inner;
    return estimator.estimate_ns(estimator.state, replica, shape, workspace_bytes, joules);
}

void meter_init(struct meter *meter, const struct meter_request *request) {
    *meter = (struct meter){.request = *request};
    const uint32_t n_replicas = request->system->settings.replicas;
    meter->flights = mem_zeroed(n_replicas, sizeof *meter->flights);
    if (request->rerun != NULL) {
        meter->rerun_pricer = executor_sim_open(request->system, n_replicas);
    }
}

void meter_fini(struct meter *meter) {
    free(meter->flights);
    meter->flights = NULL;
    executor_sim_close(meter->rerun_pricer);
    meter->rerun_pricer = NULL;
}

struct executor meter_interface(struct meter *meter) {
    const struct meter_request *request = &meter->request;
    const bool prices_spans =
        request->pricer != NULL && executor_sim_interface(request->pricer).wants_spans;
    return (struct executor){
        .state = meter,
        .wants_spans = request->inner.wants_spans || request->rerun != NULL || prices_spans,
        .wants_members = request->inner.wants_members,
        .wants_positions =
            request->inner.wants_positions ||
            (request->rerun != NULL && fleet_interface(request->rerun).wants_positions),
        .decides_positions = request->inner.decides_positions,
        .unrolls = request->inner.unrolls,
        .shares_prefixes = request->inner.shares_prefixes,
        .shares_pages = request->inner.shares_pages || request->rerun != NULL,
        .tells_tokens = request->inner.tells_tokens || request->rerun != NULL,
        .admit = admit,
        .grow = grow,
        .release = release,
        .swap_out = swap_out,
        .drop = drop,
        .keep_prefix = keep_prefix,
        .take_prefix = take_prefix,
        .find_end = request->inner.find_end != NULL ? find_end : NULL,
        .submit = submit,
        .wait = wait_next,
        .unroll = request->inner.unroll != NULL ? unroll : NULL,
        .step_ns = step_ns,
        .cut = request->inner.cut != NULL ? cut : NULL,
        .settle = settle_inner,
        .audit = audit,
        .estimate_ns = estimate_ns};
}

void meter_memory(const struct meter *meter, int64_t *activation_bytes, int64_t *logit_bytes) {
    const struct graph *graph = &meter->request.system->graph;
    struct step_shape by_tokens = {0}, by_logits = {0};
    struct placement a, b;
    memcpy(by_tokens.sym, meter->most_tokens.sym, sizeof by_tokens.sym);
    memcpy(by_logits.sym, meter->most_logits.sym, sizeof by_logits.sym);
    place(meter, &by_tokens, meter->most_tokens.workspace_bytes, &a);
    place(meter, &by_logits, meter->most_logits.workspace_bytes, &b);
    int64_t larger_bytes = a.peak_bytes > b.peak_bytes ? a.peak_bytes : b.peak_bytes;
    *activation_bytes = meter->request.places_all ? meter->largest_bytes : larger_bytes;
    *logit_bytes = 0;
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        if (tensor_holds_logits(graph, t) && graph->tensors[t].alias < 0) {
            *logit_bytes += tensor_bytes(graph, t, &by_logits, b.chunks);
        }
    }
}
