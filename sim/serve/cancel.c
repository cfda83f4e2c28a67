#include "sim/serve/cancel.h"

#include "sim/serve/audit.h"

void cancel_from(struct lifecycle *life, uint32_t slot, int64_t cancel_ns) {
    life->tracked[slot].cancel_ns = cancel_ns;
    if (cancel_ns > 0 && cancel_ns < life->next_cancel_ns) {
        life->next_cancel_ns = cancel_ns;
    }
}

static bool is_in_system(const struct request *request) {
    return request->state == REQUEST_QUEUED || request->state == REQUEST_RUNNING ||
           request->state == REQUEST_PREEMPTED;
}

/* What the router holds back is at no replica: it leaves as if it waited at the first one.
 * `*is_held`: it was held back. */
static int take_held(struct lifecycle *life, uint32_t slot, bool *is_held, struct err *err) {
    uint32_t kept = 0;
    const uint32_t n = life->n_held;
    for (uint32_t i = 0; i < n; i++) {
        if (life->held[i] != slot) {
            life->held_until_ns[kept] = life->held_until_ns[i];
            life->held[kept++] = life->held[i];
        }
    }
    *is_held = kept < n;
    life->n_held = kept;
    if (!*is_held) {
        return 0;
    }
    life->has_changed =
        true; /* the others are asked about again, and when they are due is counted */
    life->replicas[0].outstanding_tokens += life->requests[slot].output_tokens;
    return lifecycle_reject(life, slot, REJECT_CANCELLED, err);
}

static int take_out(struct lifecycle *life, uint32_t slot, struct err *err) {
    const struct replica *replica = &life->replicas[life->tracked[slot].replica];
    bool is_held;
    int status = take_held(life, slot, &is_held, err);
    if (status != 0 || is_held) {
        return status;
    }
    status = lifecycle_take_out(life, slot, REJECT_CANCELLED, err);
    if (status == 0 && !replica->busy) {
        audit_replica(life, replica);
    }
    return status;
}

/* Its step cannot be taken back: it ends as soon as it can. */
static void end_flight(const struct lifecycle *life, uint32_t index) {
    const struct executor *executor = &life->asked->executor;
    if (life->replicas[index].step_ns > 0) {
        executor->cut(executor->state, index, life->now_ns);
    }
}

int cancel_due(struct lifecycle *life, struct err *err) {
    int status = 0;
    if (life->next_cancel_ns > life->now_ns) {
        return 0;
    }
    life->next_cancel_ns = INT64_MAX;
    for (uint32_t slot = 0; status == 0 && slot < life->n_used; slot++) {
        const struct tracked *tracked = &life->tracked[slot];
        const struct request *request = &life->requests[slot];
        if (tracked->cancel_ns <= 0 || !is_in_system(request)) {
            continue;
        }
        const uint32_t index = tracked->replica;
        const bool is_due = tracked->cancel_ns <= life->now_ns;
        const bool computes = request->state == REQUEST_RUNNING && life->replicas[index].busy;
        if (is_due && !computes) {
            status = take_out(life, slot, err);
            continue;
        }
        if (is_due) {
            end_flight(life, index);
        }
        cancel_from(life, slot, tracked->cancel_ns);
    }
    return status;
}

void cancel_now(struct lifecycle *life, uint64_t id) {
    for (uint32_t slot = 0; slot < life->n_used; slot++) {
        if (life->requests[slot].id == id && is_in_system(&life->requests[slot])) {
            cancel_from(life, slot, life->now_ns > 0 ? life->now_ns : 1);
        }
    }
}

/* As if it waited at the first replica. */
int lifecycle_reject_held(struct lifecycle *life, enum reject_reason reason, struct err *err) {
    int status = 0;
    for (; status == 0 && life->n_held > 0; life->n_held--) {
        const uint32_t slot = life->held[life->n_held - 1];
        life->replicas[0].outstanding_tokens += life->requests[slot].output_tokens;
        status = lifecycle_reject(life, slot, reason, err);
    }
    return status;
}
