#include "sim/serve/selection.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/policy/scheduler/course.h"
#include "sim/serve/plan.h"

enum { SELECTION_PATIENCE = 1000 }; /* waits in a row, after which a trial's are longer */

int selection_refuse(const struct lifecycle *life, const char *what, int64_t found, int64_t limit,
                     struct err *err) {
    return err_world(
        err, "scheduler %s broke its promise at %.3f s: %s (%" PRId64 " of at most %" PRId64 ")",
        life->system->scheduler->policy.name, (double)life->now_ns * 1e-9, what, found, limit);
}

enum { RUNS = 1 << REQUEST_RUNNING };
enum { WAITS = 1 << REQUEST_QUEUED | 1 << REQUEST_PREEMPTED };

/* One slot of a scheduler's lists: its replica's own, in one of the states given, listed once
 * unless it is but asked about. */
static int check_listed(const struct lifecycle *life, uint32_t index, uint32_t slot, const char *as,
                        unsigned states, bool asks, struct err *err) {
    const char *name = life->system->scheduler->policy.name;
    double now_s = (double)life->now_ns * 1e-9;
    if (slot >= life->n_slots) {
        return selection_refuse(life, "slot listed", slot, (int64_t)life->n_slots - 1, err);
    }
    const struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    bool is_known = slot < life->n_used;
    if (!is_known || (states >> request->state & 1) == 0 || tracked->replica != index) {
        return err_world(err,
                         "scheduler %s broke its promise at %.3f s: it listed slot %" PRIu32
                         ", which is %s, as a %s request",
                         name, now_s, slot, is_known ? request_state_names[request->state] : "free",
                         as);
    }
    if (!asks && tracked->listed == life->n_decisions) {
        return err_world(
            err, "scheduler %s broke its promise at %.3f s: it listed request %" PRIu64 " twice",
            name, now_s, request->id);
    }
    tracked->listed = asks ? tracked->listed : life->n_decisions;
    return 0;
}

static int check_chunk(const struct lifecycle *life, const struct request *request, uint32_t tokens,
                       struct err *err) {
    bool prefills = request->span.phase == PHASE_PREFILL;
    if (tokens > 0 && (!prefills || tokens >= request->span.queries)) {
        return selection_refuse(life, "tokens of a chunk", tokens,
                                prefills ? (int64_t)request->span.queries - 1 : 0, err);
    }
    uint32_t beyond = tokens - window_whole(request, tokens);
    return beyond == 0 ? 0
                       : selection_refuse(life, "tokens of a chunk after its last whole block",
                                          beyond, 0, err);
}

/* Words about a listed request, which model and decoder allow. */
static int check_words(const struct lifecycle *life, const struct request *request,
                       uint32_t width_tokens, uint32_t threshold_millionths, struct err *err) {
    bool may_be_narrow = request->causal == SEES_CANVAS && window_most(request) == 1;
    uint32_t widest = may_be_narrow ? request->block_tokens : 0;
    uint32_t most = life->threshold_millionths > 0 ? 1000000 : 0;
    if (width_tokens > widest) {
        return selection_refuse(life, "positions of a window", width_tokens, widest, err);
    }
    return threshold_millionths <= most ? 0
                                        : selection_refuse(life, "a threshold in millionths",
                                                           threshold_millionths, most, err);
}

static int refuse_word(const struct lifecycle *life, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse_word(const struct lifecycle *life, struct err *err, const char *format, ...) {
    char text[320];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return err_world(err, "scheduler %s broke its promise at %.3f s: schedule %s",
                     life->system->scheduler->policy.name, (double)life->now_ns * 1e-9, text);
}

/* Whether a refresh may be put off. Beyond its bound it is computed all the same: a trial says so.
 */
static int check_put_off(const struct lifecycle *life, const struct request *request,
                         uint32_t puts_off, struct err *err) {
    const struct cache_policy *cache = life->system->cache;
    if (puts_off == 0) {
        return 0;
    }
    if (puts_off > 1) {
        return selection_refuse(life, "the flag puts_off", puts_off, 1, err);
    }
    if (cache->put_off == NULL) {
        return refuse_word(life, err,
                           "puts a refresh of request %" PRIu64
                           " off, but under cache %s no refresh waits: leave puts_off 0",
                           request->id, cache->policy.name);
    }
    return request->refresh_waits > 0 || !life->asked->is_trial
               ? 0
               : refuse_word(life, err,
                             "puts a refresh of request %" PRIu64
                             " off that cannot wait (it was due %" PRIu32
                             " steps ago): say puts_off only where refresh_waits is above 0",
                             request->id, request->overdue_steps);
}

/* Numbers and flags of a batch, before anything in its lists is looked at. */
static int check_counts(const struct lifecycle *life, const struct batch *batch, struct err *err) {
    const struct {
        const char *what;
        uint32_t found, most;
    } counts[] = {{"requests listed", batch->n, batch->capacity},
                  {"requests admitted of those listed", batch->n_admitted, batch->n},
                  {"requests preempted", batch->n_preempted, batch->capacity},
                  {"requests idle", batch->n_idle, batch->capacity},
                  {"requests rejected", batch->n_rejected, batch->capacity},
                  {"the flag all_running", batch->all_running, 1},
                  {"the flag says", batch->says, 1},
                  {"the flag surest", batch->surest, 1},
                  {"hold, which is no batch_hold", batch->hold, HOLD_CLOSED}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i].found > counts[i].most) {
            return selection_refuse(life, counts[i].what, counts[i].found, counts[i].most, err);
        }
    }
    return 0;
}

static uint32_t n_reasons(const struct scheduler *scheduler) {
    uint32_t n = 0;
    while (scheduler->reject_reasons != NULL && scheduler->reject_reasons[n] != NULL) {
        n++;
    }
    return n > 0 ? n : 1;
}

/* Only what waits leaves by the scheduler's word, for a reason that it has. */
static int check_rejected(const struct lifecycle *life, uint32_t index, const struct batch *batch,
                          uint32_t i, bool asks, struct err *err) {
    const uint32_t slot = batch->rejected[i], most = n_reasons(life->system->scheduler) - 1;
    if (slot < life->n_used && life->requests[slot].state == REQUEST_RUNNING) {
        return refuse_word(life, err,
                           "rejects request %" PRIu64
                           ", which runs: reject it while it waits, or preempt it first",
                           life->requests[slot].id);
    }
    if (check_listed(life, index, slot, "rejected", WAITS, asks, err) != 0) {
        return err_status(err);
    }
    return batch->reasons[i] <= most
               ? 0
               : selection_refuse(life, "the index of a reason", batch->reasons[i], most, err);
}

/* Where something takes part a time to be asked again at lies ahead. */
static int check_wake(const struct lifecycle *life, const struct batch *batch, struct err *err) {
    return batch->wake_ns > life->now_ns
               ? 0
               : refuse_word(life, err,
                             "asks to be called again at %" PRId64
                             " ns, which is not after now (%" PRId64
                             "): name a later time, or leave wake_ns as it is",
                             batch->wake_ns, life->now_ns);
}

/* Every slot of its lists is one that it may name there, and every chunk one that it may take. */
static int check_lists(const struct lifecycle *life, uint32_t index, const struct batch *batch,
                       bool asks, struct err *err) {
    unsigned runs = batch->all_running ? 0 : RUNS;
    int status = check_counts(life, batch, err);
    for (uint32_t i = 0; status == 0 && i < batch->n; i++) {
        uint32_t slot = batch->selected[i];
        bool admits = i >= batch->n - batch->n_admitted;
        status = check_listed(life, index, slot, admits ? "waiting" : "running",
                              admits ? WAITS : runs, asks, err);
        if (status == 0 && batch->chunk_tokens != NULL) {
            status = check_chunk(life, &life->requests[slot], batch->chunk_tokens[i], err);
        }
        if (status == 0 && batch->says) {
            status = check_words(life, &life->requests[slot], batch->width_tokens[i],
                                 batch->threshold_millionths[i], err);
            status = status == 0 && batch->puts_off != NULL
                         ? check_put_off(life, &life->requests[slot], batch->puts_off[i], err)
                         : status;
            status = status == 0 && batch->run_tokens != NULL && batch->run_tokens[i] > 0 &&
                             !life->system->scheduler->says_rows
                         ? refuse_word(life, err,
                                       "says run_tokens, though it does not say that it says_rows")
                         : status;
        }
    }
    for (uint32_t i = 0; status == 0 && i < batch->n_preempted; i++) {
        status = check_listed(life, index, batch->preempted[i], "preempted", runs, asks, err);
    }
    for (uint32_t i = 0; status == 0 && i < batch->n_idle; i++) {
        status = check_listed(life, index, batch->idle[i], "idle", runs, asks, err);
    }
    for (uint32_t i = 0; status == 0 && i < batch->n_rejected; i++) {
        status = check_rejected(life, index, batch, i, asks, err);
    }
    return status;
}

/* What is swapped out fits into the host's memory. Returns how many requests are. */
static int check_swaps(const struct lifecycle *life, const struct replica *replica,
                       const struct batch *batch, uint32_t *n, struct err *err) {
    const int64_t total_bytes = life->system->settings.swap_host_bytes;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < batch->n_preempted; i++) {
        const struct request *request = &life->requests[batch->preempted[i]];
        if (batch->swaps[i] > 1) {
            return selection_refuse(life, "the flag swaps", batch->swaps[i], 1, err);
        }
        if (batch->swaps[i] == 1 && total_bytes == 0) {
            return refuse_word(life, err,
                               "swaps request %" PRIu64
                               " out, but there is no host memory: set swap.host_bytes, or leave "
                               "swaps 0 where host_total_bytes is",
                               request->id);
        }
        *n += batch->swaps[i];
        bytes += batch->swaps[i] == 1 ? request->kv_held_bytes : 0;
    }
    const int64_t free_bytes = total_bytes - replica->host_used_bytes;
    return bytes <= free_bytes ? 0
                               : selection_refuse(life, "bytes swapped out to the host's memory",
                                                  bytes, free_bytes, err);
}

/* Cached state that is not exact was made by earlier passes and cannot be computed anew. */
static int check_preemption(const struct lifecycle *life, const struct replica *replica,
                            const struct batch *batch, struct err *err) {
    uint32_t n_swapped = 0;
    if (check_swaps(life, replica, batch, &n_swapped, err) != 0) {
        return err_status(err);
    }
    const bool all_swapped = n_swapped == batch->n_preempted;
    const char *what = !all_swapped && life->system->rows.kind != ROW_EXACT
                           ? "requests preempted though their cached state is not exact"
                       : !all_swapped && !life->system->scheduler->grows
                           ? "requests preempted though it does not say that it grows"
                       : life->asked->is_trial && batch->n == 0 && !batch->all_running
                           ? "requests preempted while none is selected"
                           : NULL;
    return batch->n_preempted == 0 || what == NULL
               ? 0
               : selection_refuse(life, what, batch->n_preempted, 0, err);
}

int selection_check(struct lifecycle *life, const struct replica *replica, uint32_t index,
                    const struct schedule_view *view, const struct batch *batch, struct err *err) {
    int64_t kv_bytes = batch->all_running ? view->running_growth_bytes : 0;
    life->n_decisions++;
    life->has_words = life->has_words || batch->says != 0;
    if (check_lists(life, index, batch, false, err) != 0 ||
        check_preemption(life, replica, batch, err) != 0 ||
        ((batch->n > 0 || batch->all_running) && check_wake(life, batch, err) != 0)) {
        return (int)err->kind;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct request *request = &life->requests[batch->selected[i]];
        kv_bytes += request->kv_bytes - request->kv_held_bytes;
    }
    for (uint32_t i = 0; i < batch->n_preempted; i++) {
        kv_bytes -= life->requests[batch->preempted[i]].kv_held_bytes;
    }
    if (kv_bytes > view->kv_free_bytes) {
        return selection_refuse(life, "bytes of cached state admitted and grown by", kv_bytes,
                                view->kv_free_bytes, err);
    }
    const int64_t n_running = (int64_t)replica->n_running + batch->n_admitted - batch->n_preempted;
    return n_running <= view->max_requests ? 0
                                           : selection_refuse(life, "requests running at once",
                                                              n_running, view->max_requests, err);
}

/* A step that runs no more than `most` masked positions, 0: all; what it leaves out has rows. */
static void leave_out(const struct request *request, uint32_t most, struct span *span) {
    const uint32_t masked = window_masked(request);
    if (most == 0 || most >= masked || span->phase != PHASE_REUSE) {
        return;
    }
    const uint32_t left = masked - most;
    span->queries -= left;
    span->first_queries -= left;
    span->context += left;
    span->logit_rows -= span->logit_rows < left ? span->logit_rows : left;
}

/* Shape of a batch that has not been submitted. */
static void hypothetical_shape(const struct lifecycle *life, const struct replica *replica,
                               const struct batch *batch, struct step_shape *shape) {
    shape_clear(shape);
    shape->spans = life->asked_spans;
    if (batch->all_running) {
        memcpy(shape->sym, replica->sym, sizeof shape->sym);
        for (uint32_t i = 0; i < replica->n_running; i++) {
            life->asked_spans[shape->n_spans++] = &life->requests[replica->running[i]].span;
        }
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct span *span = &life->requests[batch->selected[i]].span;
        struct span taken = *span;
        if (batch->chunk_tokens != NULL && batch->chunk_tokens[i] > 0) {
            taken.queries = taken.first_queries = batch->chunk_tokens[i];
            taken.logit_rows = 0;
        }
        if (batch->says && batch->puts_off != NULL && batch->puts_off[i] != 0) {
            (void)plan_put_off(life, batch->selected[i], &taken);
        }
        if (batch->says && batch->run_tokens != NULL) {
            leave_out(&life->requests[batch->selected[i]], batch->run_tokens[i], &taken);
        }
        shape_add(shape->sym, &taken, 1);
        life->asked_spans[shape->n_spans++] = span;
    }
    for (uint32_t i = 0; i < batch->n_idle; i++) {
        const struct span *span = &life->requests[batch->idle[i]].span;
        shape_add(shape->sym, span, 1);
        life->asked_spans[shape->n_spans++] = span;
    }
}

/* Whether there can be such a batch, in which a request may stand for several. */
static bool may_ask(const struct estimator *estimator, const struct batch *batch) {
    const struct lifecycle *life = estimator->life;
    struct batch asked = *batch;
    struct err fault = {0};
    asked.capacity = life->n_slots;
    if (check_lists(life, (uint32_t)(estimator->replica - life->replicas), &asked, true, &fault) ==
        0) {
        return true;
    }
    err_world(estimator->err, "%s, in a batch that it asks the duration of", fault.text);
    return false;
}

static int64_t estimate(const struct estimator *estimator, const struct batch *batch,
                        double *joules) {
    const struct lifecycle *life = estimator->life;
    const struct executor *executor = &life->asked->executor;
    struct step_shape shape;
    int64_t kv_bytes = estimator->replica->kv_used_bytes;
    uint32_t n_running = batch->all_running ? estimator->replica->n_running : 0;
    *joules = 0;
    if (estimator->err != NULL && !may_ask(estimator, batch)) {
        return 0;
    }
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
    plan_scope(system, window_masked(request), request);
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
    out->is_exact =
        !positions_wanted(system) && !life->has_words && system->settings.early_stop == STOP_NEVER;
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
    shape.spans = life->asked_spans;
    for (uint32_t i = 0; i < n; i++) {
        shape_add(shape.sym, spans[i], 1);
        life->asked_spans[shape.n_spans++] = spans[i];
    }
    return executor->estimate_ns(
        executor->state, (uint32_t)(replica - life->replicas), &shape,
        budget_workspace_bytes(&life->system->budget, replica->kv_used_bytes), &joules);
}

uint32_t selection_look(const void *opaque, uint32_t slot, struct masked_seen *out,
                        uint32_t capacity) {
    const struct lifecycle *life = ((const struct estimator *)opaque)->life;
    return life->has_positions ? positions_look(&life->positions, slot, out, capacity) : 0;
}

/* A slot that could take part in the next step, or UINT32_MAX. A running request always can, where
 * others could give their memory back for it. Of the queue only the first counts: waiting after a
 * request that does not fit is first come first served, not starvation. */
static uint32_t runnable_slot(const struct lifecycle *life, const struct replica *replica,
                              bool *in_chunks) {
    const struct system *system = life->system;
    const uint32_t most = system->budget.max_requests;
    const int64_t total_bytes = system->budget.pool_bytes,
                  free_bytes = total_bytes - replica->kv_used_bytes;
    const bool has_place = most == 0 || replica->n_running < most;
    const uint32_t n_first = has_place && replica->n_waiting > 0;
    for (uint32_t i = 0; i < replica->n_running + n_first; i++) {
        const bool runs = i < replica->n_running;
        uint32_t slot = runs ? replica->running[i] : replica->waiting[replica->head];
        const struct request *request = &life->requests[slot];
        uint32_t whole = request->span.queries, least = whole;
        if (system->scheduler->grows && request->span.phase == PHASE_PREFILL) {
            least = request->block_tokens < whole ? request->block_tokens : whole;
        }
        *in_chunks = whole > system->settings.max_batched_tokens;
        if (least <= system->settings.max_batched_tokens &&
            request->kv_bytes <= (runs ? total_bytes : free_bytes)) {
            return slot;
        }
    }
    return UINT32_MAX;
}

/* Who paces a queue may ask to be woken every millisecond for as long as it takes: in a trial for a
 * week, which passes ever faster. */
static bool is_starving(uint32_t n_postponed, int64_t waited_ns, bool is_trial) {
    enum { MANY = 100000, MOST = 10000000 };
    static const int64_t blink_ns = 100000000, long_ns = INT64_C(3600000000000);
    static const int64_t week_ns = INT64_C(7) * 24 * 3600 * 1000000000;
    return is_trial ? n_postponed > SELECTION_PATIENCE && waited_ns > week_ns
                    : n_postponed > MANY &&
                          (waited_ns < blink_ns || waited_ns > long_ns || n_postponed > MOST);
}

/* When a trial asks again that was put off again and again: later by a tenth of a millisecond each
 * time, and twice as late of those in a row. */
static int64_t patient_ns(const struct replica *replica, int64_t now_ns, int64_t wake_ns) {
    static const int64_t more_ns = 100000;
    int64_t in_all = (int64_t)replica->n_waits - SELECTION_PATIENCE,
            in_row = (int64_t)replica->n_postponed - SELECTION_PATIENCE;
    int64_t least_ns = in_all > 0 ? in_all * more_ns : 0;
    int64_t doubled_ns = in_row > 0 ? INT64_C(1) << (in_row < 50 ? in_row : 50) : 0;
    least_ns = now_ns + (least_ns > doubled_ns ? least_ns : doubled_ns);
    return wake_ns < least_ns ? least_ns : wake_ns;
}

/* In a trial nothing is selected for a reason, or until a time. */
static int check_wait(const struct lifecycle *life, struct replica *replica, int64_t wake_ns,
                      struct err *err) {
    const char *name = life->system->scheduler->policy.name;
    bool in_chunks;
    uint32_t slot = runnable_slot(life, replica, &in_chunks);
    if (wake_ns <= life->now_ns) {
        return err_starves(err,
                           "scheduler %s starves at %.3f s: it selects nothing and asks to be "
                           "woken at %" PRId64 " ns, which is not after now (%" PRId64 ")",
                           name, (double)life->now_ns * 1e-9, wake_ns, life->now_ns);
    }
    if (slot != UINT32_MAX && wake_ns == INT64_MAX) {
        return err_starves(err,
                           "scheduler %s starves at %.3f s: it selects nothing and names no later "
                           "time although slot %" PRIu32 " could run%s",
                           name, (double)life->now_ns * 1e-9, slot,
                           in_chunks ? " in chunks (chunk_tokens), which a scheduler that grows "
                                       "has to take of a prefill wider than a step"
                                     : "");
    }
    replica->n_postponed = slot == UINT32_MAX ? 0 : replica->n_postponed;
    replica->n_waits++;
    return 0;
}

int selection_postpone(const struct lifecycle *life, struct replica *replica, int64_t wake_ns,
                       struct err *err) {
    const bool is_trial = life->asked->is_trial;
    if (is_trial && check_wait(life, replica, wake_ns, err) != 0) {
        return (int)err->kind;
    }
    if (replica->n_postponed == 0) {
        replica->postponed_since_ns = life->now_ns;
    }
    replica->wake_ns = is_trial ? patient_ns(replica, life->now_ns, wake_ns) : wake_ns;
    replica->n_postponed = wake_ns != INT64_MAX ? replica->n_postponed + 1 : 0;
    int64_t waited_ns = life->now_ns - replica->postponed_since_ns;
    return !is_starving(replica->n_postponed, waited_ns, is_trial)
               ? 0
               : err_starves(err,
                             "scheduler %s starves at %.3f s: it selected nothing %" PRIu32
                             " times in a row, for %.6g s, and named a later time, while %" PRIu32
                             " requests wait and %" PRIu32 " hold memory",
                             life->system->scheduler->policy.name, (double)life->now_ns * 1e-9,
                             replica->n_postponed, (double)waited_ns * 1e-9, replica->n_waiting,
                             replica->n_running);
}
