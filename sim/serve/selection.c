#include "sim/serve/selection.h"

#include <inttypes.h>
#include <string.h>

#include "sim/check/guard.h"
#include "sim/scheduler/course.h"
#include "sim/serve/plan.h"

int selection_refuse(const struct lifecycle *life, const char *what, int64_t found, int64_t limit,
                     struct err *err) {
    return err_world(
        err, "scheduler %s broke its promise at %.3f s: %s (%" PRId64 " of at most %" PRId64 ")",
        life->system->scheduler->policy.name, (double)life->now_ns * 1e-9, what, found, limit);
}

/* One slot of a scheduler's lists: its replica's own, in one of the states given, listed once. */
static int check_listed(struct lifecycle *life, uint32_t index, uint32_t slot, const char *as,
                        unsigned states, struct err *err) {
    const char *name = life->system->scheduler->policy.name;
    double now_s = (double)life->now_ns * 1e-9;
    if (slot >= life->n_slots) {
        return selection_refuse(life, "slot listed", slot, (int64_t)life->n_slots - 1, err);
    }
    const struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    bool is_known = slot < life->n_used;
    if (!is_known || (states >> request->state & 1) == 0 || tracked->record.replica != index) {
        return err_world(err,
                         "scheduler %s broke its promise at %.3f s: it listed slot %" PRIu32
                         ", which is %s, as a %s request",
                         name, now_s, slot, is_known ? request_state_names[request->state] : "free",
                         as);
    }
    if (tracked->listed == life->n_decisions) {
        return err_world(
            err, "scheduler %s broke its promise at %.3f s: it listed request %" PRIu64 " twice",
            name, now_s, request->id);
    }
    tracked->listed = life->n_decisions;
    return 0;
}

static int check_chunk(const struct lifecycle *life, const struct request *request, uint32_t tokens,
                       struct err *err) {
    bool prefills = request->span.phase == PHASE_PREFILL;
    if (tokens > 0 && (!prefills || tokens >= request->span.queries)) {
        return selection_refuse(life, "tokens of a chunk", tokens,
                                prefills ? (int64_t)request->span.queries - 1 : 0, err);
    }
    uint32_t beyond = tokens % request->block_tokens;
    return beyond == 0 ? 0
                       : selection_refuse(life, "tokens of a chunk after its last whole block",
                                          beyond, 0, err);
}

int selection_check(struct lifecycle *life, const struct replica *replica, uint32_t index,
                    const struct schedule_view *view, const struct batch *batch, struct err *err) {
    enum { RUNS = 1 << REQUEST_RUNNING };
    enum { WAITS = 1 << REQUEST_QUEUED | 1 << REQUEST_PREEMPTED };
    int64_t kv_bytes = batch->all_running ? view->running_growth_bytes : 0;
    int status = 0;
    life->n_decisions++;
    if (batch->n > batch->capacity || batch->n_admitted > batch->n) {
        return selection_refuse(life, "requests listed", batch->n, batch->capacity, err);
    }
    /* Cached state that is not exact was made by earlier passes and cannot be computed anew. */
    if (batch->n_preempted > 0 && life->system->rows.kind != ROW_EXACT) {
        return selection_refuse(life, "requests preempted though their cached state is not exact",
                                batch->n_preempted, 0, err);
    }
    if (batch->n_preempted > batch->capacity || batch->n_idle > batch->capacity) {
        return selection_refuse(life, "requests preempted or idle",
                                batch->n_preempted > batch->n_idle ? batch->n_preempted
                                                                   : batch->n_idle,
                                batch->capacity, err);
    }
    for (uint32_t i = 0; status == 0 && i < batch->n; i++) {
        uint32_t slot = batch->selected[i];
        bool admits = i >= batch->n - batch->n_admitted;
        unsigned states = admits ? WAITS : batch->all_running ? 0 : RUNS;
        status = check_listed(life, index, slot, admits ? "waiting" : "running", states, err);
        if (status == 0) {
            const struct request *request = &life->requests[slot];
            kv_bytes += request->kv_bytes - request->kv_held_bytes;
            status = check_chunk(life, request, batch->chunk_tokens[i], err);
        }
    }
    for (uint32_t i = 0; status == 0 && i < batch->n_preempted; i++) {
        unsigned states = batch->all_running ? 0 : RUNS;
        status = check_listed(life, index, batch->preempted[i], "preempted", states, err);
        if (status == 0) {
            kv_bytes -= life->requests[batch->preempted[i]].kv_held_bytes;
        }
    }
    for (uint32_t i = 0; status == 0 && i < batch->n_idle; i++) {
        unsigned states = batch->all_running ? 0 : RUNS;
        status = check_listed(life, index, batch->idle[i], "idle", states, err);
    }
    if (status != 0) {
        return status;
    }
    if (kv_bytes > view->kv_free_bytes) {
        return selection_refuse(life, "bytes of cached state admitted", kv_bytes,
                                view->kv_free_bytes, err);
    }
    if (replica->n_running + batch->n_admitted > view->max_requests + batch->n_preempted) {
        return selection_refuse(life, "requests running at once",
                                (int64_t)replica->n_running + batch->n_admitted -
                                    batch->n_preempted,
                                view->max_requests, err);
    }
    return 0;
}

/* Shape of a batch that has not been submitted. */
static void hypothetical_shape(const struct lifecycle *life, const struct replica *replica,
                               const struct batch *batch, struct step_shape *shape) {
    shape_clear(shape);
    shape->spans = replica->spans;
    if (batch->all_running) {
        memcpy(shape->sym, replica->sym, sizeof shape->sym);
        for (uint32_t i = 0; i < replica->n_running; i++) {
            replica->spans[shape->n_spans++] = &life->requests[replica->running[i]].span;
        }
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct span *span = &life->requests[batch->selected[i]].span;
        struct span taken = *span;
        if (batch->chunk_tokens != NULL && batch->chunk_tokens[i] > 0) {
            taken.queries = taken.first_queries = batch->chunk_tokens[i];
            taken.logit_rows = 0;
        }
        shape_add(shape->sym, &taken, 1);
        replica->spans[shape->n_spans++] = span;
    }
    for (uint32_t i = 0; i < batch->n_idle; i++) {
        const struct span *span = &life->requests[batch->idle[i]].span;
        shape_add(shape->sym, span, 1);
        replica->spans[shape->n_spans++] = span;
    }
}

static int64_t estimate(const struct estimator *estimator, const struct batch *batch,
                        double *joules) {
    const struct lifecycle *life = estimator->life;
    const struct executor *executor = &life->asked->executor;
    struct step_shape shape;
    int64_t kv_bytes = estimator->replica->kv_used_bytes;
    uint32_t n_running = batch->all_running ? estimator->replica->n_running : 0;
    *joules = 0;
    if ((uint64_t)batch->n + batch->n_idle + n_running > life->n_slots) {
        return INT64_MAX;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct request *request = &life->requests[batch->selected[i]];
        kv_bytes += request->kv_bytes - request->kv_held_bytes;
    }
    hypothetical_shape(life, estimator->replica, batch, &shape);
    return shape.n_spans == 0
               ? 0
               : executor->estimate_ns(
                     executor->state, (uint32_t)(estimator->replica - life->replicas), &shape,
                     budget_workspace_bytes(&life->system->budget, kv_bytes), joules);
}

int64_t selection_estimate_ns(const void *opaque, const struct batch *batch) {
    double joules;
    return estimate(opaque, batch, &joules);
}

double selection_estimate_joules(const void *opaque, const struct batch *batch) {
    double joules;
    (void)estimate(opaque, batch, &joules);
    return joules;
}

/* ---- what is to come ---- */

/* Positions that a pass commits where the decoder does not count: the mean of the replica's passes
 * so far; 1 before the first. */
static double tokens_per_pass(const struct replica *replica) {
    return replica->n_deciding > 0 ? (double)replica->n_decided / (double)replica->n_deciding : 1;
}

static uint32_t adjust(const void *system, struct request *request, uint32_t holds) {
    plan_scope(system, request->masked_in_block, request);
    return plan_holds(system, request, holds);
}

void selection_foresee(const void *opaque, uint32_t slot, struct pass_ahead *passes,
                       uint32_t capacity, struct outlook *out) {
    const struct estimator *estimator = opaque;
    const struct lifecycle *life = estimator->life;
    const struct system *system = life->system;
    struct course course = {.cache = system->cache,
                            .decoder = system->decoder,
                            .cache_state = system->cache_state,
                            .decoder_state = system->decoder_state,
                            .tokens_per_pass = tokens_per_pass(estimator->replica),
                            .adjust = adjust,
                            .adjust_state = system};
    course_foresee(&course, &life->requests[slot], passes, capacity, out);
    out->is_exact = !positions_wanted(system) && system->settings.early_stop == STOP_NEVER;
}

int64_t selection_estimate_spans_ns(const void *opaque, const struct span *const *spans,
                                    uint32_t n) {
    const struct estimator *estimator = opaque;
    const struct lifecycle *life = estimator->life;
    const struct executor *executor = &life->asked->executor;
    const struct replica *replica = estimator->replica;
    struct step_shape shape;
    double joules;
    if (n == 0 || n > life->n_slots) {
        return n == 0 ? 0 : INT64_MAX;
    }
    shape_clear(&shape);
    shape.spans = replica->spans;
    for (uint32_t i = 0; i < n; i++) {
        shape_add(shape.sym, spans[i], 1);
        replica->spans[shape.n_spans++] = spans[i];
    }
    return executor->estimate_ns(
        executor->state, (uint32_t)(replica - life->replicas), &shape,
        budget_workspace_bytes(&life->system->budget, replica->kv_used_bytes), &joules);
}

/* Who paces a queue may ask to be woken every millisecond for as long as it takes. */
static bool is_starving(uint32_t n_postponed, int64_t waited_ns) {
    enum { MANY = 100000, MOST = 10000000 };
    static const int64_t blink_ns = 100000000, long_ns = INT64_C(3600000000000);
    return n_postponed > MANY &&
           (waited_ns < blink_ns || waited_ns > long_ns || n_postponed > MOST);
}

int selection_postpone(const struct lifecycle *life, struct replica *replica, int64_t wake_ns,
                       struct err *err) {
    if (replica->n_postponed == 0) {
        replica->postponed_since_ns = life->now_ns;
    }
    replica->wake_ns = wake_ns;
    replica->n_postponed = wake_ns != INT64_MAX ? replica->n_postponed + 1 : 0;
    int64_t waited_ns = life->now_ns - replica->postponed_since_ns;
    return !is_starving(replica->n_postponed, waited_ns)
               ? 0
               : err_starves(err,
                             "scheduler %s starves at %.3f s: it selected nothing %" PRIu32
                             " times in a row, for %.6g s, and named a later time, while %" PRIu32
                             " requests wait and %" PRIu32 " hold memory",
                             life->system->scheduler->policy.name, (double)life->now_ns * 1e-9,
                             replica->n_postponed, (double)waited_ns * 1e-9, replica->n_waiting,
                             replica->n_running);
}
