#include "sim/serve/audit.h"

#include <string.h>

/* Each slot that was taken is free exactly once. */
static void audit_slots(struct lifecycle *life) {
    uint32_t *times_free = life->together, n = life->n_taken;
    ASSERT(life->n_free == n);
    memset(times_free, 0, n * sizeof *times_free);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = life->free_slots[i];
        ASSERT(slot < n && times_free[slot] == 0);
        times_free[slot] = 1;
    }
}

/* No request waits or runs, and all sums over such requests are zero. */
static void audit_idle(const struct replica *replica) {
    ASSERT(replica->n_running == 0 && replica->n_waiting == 0 && !replica->busy);
    ASSERT(replica->growth_bytes == 0);
    for (int sym = 0; sym < SYM_COUNT; sym++) {
        ASSERT(replica->sym[sym] == (sym == SYM_ONE));
    }
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        ASSERT(replica->n_by_phase[phase] == 0);
    }
}

void audit_replica(struct lifecycle *life, const struct replica *replica) {
    int64_t held_bytes = 0, growth_bytes = 0, sym[SYM_COUNT] = {[SYM_ONE] = 1};
    for (uint32_t i = 0; i < replica->n_running; i++) {
        const struct request *request = &life->requests[replica->running[i]];
        ASSERT(request->state == REQUEST_RUNNING);
        held_bytes += request->kv_held_bytes;
        growth_bytes += request->kv_bytes - request->kv_held_bytes;
        shape_add(sym, &request->span, 1);
    }
    ASSERT(replica->growth_bytes == growth_bytes);
    /* Pages that requests share, and those that stay for later ones, are counted once. */
    ASSERT(sharing_has_pages(life) || replica->kv_used_bytes == held_bytes);
    ASSERT(memcmp(sym, replica->sym, sizeof sym) == 0);
}

void audit_run(struct lifecycle *life) {
    const struct loop_result *result = life->result;
    ASSERT(result->arrived == result->completed + result->rejected);
    audit_slots(life);
    for (uint32_t i = 0; i < life->n_replicas; i++) {
        const struct replica *replica = &life->replicas[i];
        ASSERT(replica->kv_used_bytes == 0 && replica->outstanding_tokens == 0);
        ASSERT(replica->host_used_bytes == 0);
        sharing_audit(life, replica);
        /* An interrupted run may leave sums, and its last batch in flight. */
        if (!result->interrupted) {
            audit_idle(replica);
        }
    }
    const struct executor *executor = &life->asked->executor;
    if (executor->audit != NULL) {
        executor->audit(executor->state, result->interrupted);
    }
}
