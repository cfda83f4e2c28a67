#include "sim/serve/telling.h"

struct schedule_view telling_view(const struct lifecycle *life, const struct replica *replica,
                                  const struct estimator *estimator) {
    const struct system *system = life->system;
    const struct lent *lent = &life->lent;
    uint32_t max_requests = system->budget.max_requests;
    return (struct schedule_view){
        .now_ns = life->now_ns,
        .requests = lent_read(lent, life->requests),
        .running = lent_read(lent, replica->running),
        .n_running = replica->n_running,
        .waiting = lent_read(lent, replica->waiting + replica->head),
        .n_waiting = replica->n_waiting,
        .next_arrival_ns = life->next_arrival_ns,
        .running_tokens = replica->sym[SYM_TOKENS],
        .running_growth_bytes = replica->growth_bytes,
        .max_batched_tokens = system->settings.max_batched_tokens,
        .max_requests = max_requests > 0 ? max_requests : UINT32_MAX,
        .kv_free_bytes = system->budget.pool_bytes - replica->kv_used_bytes,
        .kv_total_bytes = system->budget.pool_bytes,
        .host_free_bytes = system->settings.swap_host_bytes - replica->host_used_bytes,
        .host_total_bytes = system->settings.swap_host_bytes,
        .host_bandwidth = gpu_host_bandwidth(system->gpu),
        .estimate_ns = selection_estimate_ns,
        .estimate_joules = selection_estimate_joules,
        .foresee = selection_foresee,
        .estimate_spans_ns = selection_estimate_spans_ns,
        .look = selection_look,
        .estimator = estimator,
        .own = life->own,
        .n_slots = life->n_slots,
        .replica = (uint32_t)(replica - life->replicas),
        .n_replicas = life->n_replicas,
        .seed = life->asked->seed,
        .threshold_millionths = life->threshold_millionths,
    };
}

static int tell(struct lifecycle *life, uint32_t index, uint32_t n, struct err *err) {
    struct replica *replica = &life->replicas[index];
    const struct estimator estimator = {life, replica, life->asked->is_trial ? err : NULL};
    const struct schedule_view view = telling_view(life, replica, &estimator);
    life->system->scheduler->happened(replica->scheduler_state, &view, life->happenings, n);
    return (int)err->kind;
}

int telling_one(struct lifecycle *life, uint32_t index, enum happening_kind kind, uint32_t slot,
                struct err *err) {
    if (life->happenings == NULL) {
        return 0;
    }
    life->happenings[0] = (struct happening){.kind = kind, .slot = slot};
    return tell(life, index, 1, err);
}

int telling_decided(struct lifecycle *life, uint32_t index, const struct batch *batch,
                    struct err *err) {
    uint32_t n = 0;
    if (life->happenings == NULL || batch->n_preempted + batch->n_admitted == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < batch->n_preempted; i++) {
        life->happenings[n++] =
            (struct happening){.kind = HAPPENED_PREEMPTION, .slot = batch->preempted[i]};
    }
    for (uint32_t i = batch->n - batch->n_admitted; i < batch->n; i++) {
        life->happenings[n++] =
            (struct happening){.kind = HAPPENED_START, .slot = batch->selected[i]};
    }
    return tell(life, index, n, err);
}

void telling_begin(struct lifecycle *life, const struct replica *replica) {
    for (uint32_t i = 0; life->happenings != NULL && i < replica->n_batch; i++) {
        const struct request *request = &life->requests[replica->batch[i]];
        life->happenings[i] = (struct happening){
            .kind = HAPPENED_STEPS,
            .slot = replica->batch[i],
            .committed_tokens = -(int32_t)request->committed_tokens,
            .query_tokens = request->service_tokens,
        };
    }
}

int telling_steps(struct lifecycle *life, uint32_t index, uint32_t n, uint32_t steps, int64_t ns,
                  struct err *err) {
    uint32_t n_all = n;
    for (uint32_t i = 0; life->happenings != NULL && i < n; i++) {
        struct happening *happening = &life->happenings[i];
        const struct request *request = &life->requests[happening->slot];
        happening->steps = steps;
        happening->ns = ns;
        happening->committed_tokens += (int32_t)request->committed_tokens;
        happening->query_tokens = request->service_tokens - happening->query_tokens;
        if (request->state == REQUEST_DONE) {
            life->happenings[n_all++] =
                (struct happening){.kind = HAPPENED_END, .slot = happening->slot};
        }
    }
    return life->happenings != NULL ? tell(life, index, n_all, err) : 0;
}
