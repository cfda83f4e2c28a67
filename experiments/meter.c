#include "experiments/meter.h"

#include <string.h>

static void keep_largest(int64_t kept[SYM_COUNT], const int64_t sym[SYM_COUNT],
                         enum symbol symbol) {
    if (sym[symbol] > kept[symbol]) {
        memcpy(kept, sym, SYM_COUNT * sizeof *kept);
    }
}

/* Prices what the record says was run: all its steps, wherever they stopped. */
static int price(struct meter *meter, const struct submission *submission, struct err *err) {
    const struct replay_step *step = &meter->steps[meter->next++];
    struct submission played = *submission;
    struct executor pricer = executor_sim_interface(meter->pricer);
    struct completion done;
    played.repeat = step->steps;
    played.stop_ns = INT64_MAX;
    int status = pricer.submit(pricer.state, &played, err);
    if (status == 0) {
        status = pricer.wait(pricer.state, INT64_MAX, &done, err);
        meter->priced_ns += (double)done.gpu_ns * step->steps;
        meter->recorded_ns += (double)step->gpu_ns * step->steps;
    }
    return status;
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct meter *meter = state;
    struct step_shape shape = *submission->shape;
    if (!meter->varlen) {
        shape_pad(&shape);
    }
    keep_largest(meter->most_tokens, shape.sym, SYM_TOKENS);
    keep_largest(meter->most_logits, shape.sym, SYM_LOGIT_ROWS);
    int status = meter->inner.submit(meter->inner.state, submission, err);
    return status == 0 && meter->pricer != NULL ? price(meter, submission, err) : status;
}

static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct meter *meter = state;
    return meter->inner.wait(meter->inner.state, until_ns, out, err);
}

static int64_t estimate_ns(const void *state, const struct step_shape *shape) {
    const struct meter *meter = state;
    if (meter->pricer != NULL) {
        struct executor pricer = executor_sim_interface(meter->pricer);
        return pricer.estimate_ns(pricer.state, shape);
    }
    return meter->inner.estimate_ns(meter->inner.state, shape);
}

void meter_init(struct meter *meter, struct executor inner, const struct system *system,
                const struct replay_step *steps, struct executor_sim *pricer) {
    *meter = (struct meter){.inner = inner,
                            .system = system,
                            .steps = steps,
                            .pricer = pricer,
                            .varlen = system->runtime.varlen};
}

struct executor meter_interface(struct meter *meter) {
    return (struct executor){.state = meter,
                             .wants_spans = meter->inner.wants_spans || !meter->varlen,
                             .wants_members = meter->inner.wants_members,
                             .submit = submit,
                             .wait = wait_next,
                             .estimate_ns = estimate_ns};
}

static int64_t peak_bytes(const struct meter *meter, const int64_t sym[SYM_COUNT]) {
    const struct system *system = meter->system;
    struct step_shape shape = {0};
    struct placement placement;
    memcpy(shape.sym, sym, sizeof shape.sym);
    placement_make(system->planner, &system->graph, &shape, system->settings.logit_chunk_rows,
                   &placement);
    return placement.peak_bytes;
}

void meter_memory(const struct meter *meter, int64_t *activation_bytes, int64_t *logit_bytes) {
    const struct graph *graph = &meter->system->graph;
    int64_t by_tokens = peak_bytes(meter, meter->most_tokens);
    int64_t by_logits = peak_bytes(meter, meter->most_logits);
    *activation_bytes = by_tokens > by_logits ? by_tokens : by_logits;
    struct step_shape shape = {0};
    memcpy(shape.sym, meter->most_logits, sizeof shape.sym);
    *logit_bytes = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensors[t].logits && graph->tensors[t].alias < 0) {
            *logit_bytes +=
                tensor_bytes(&graph->tensors[t], &shape, meter->system->settings.logit_chunk_rows);
        }
    }
}
