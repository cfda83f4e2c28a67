#include "sim/serve/loop.h"

#include <inttypes.h>
#include <string.h>

#include "sim/policy/cache/blocks.h"
#include "sim/serve/audit.h"
#include "sim/serve/cancel.h"
#include "sim/serve/carry_out.h"
#include "sim/serve/cluster.h"
#include "sim/serve/fit.h"
#include "sim/serve/lifecycle.h"
#include "sim/serve/report.h"
#include "sim/serve/selection.h"
#include "sim/serve/telling.h"
#include "sim/serve/unroll.h"
#include "sim/system/system_sampling.h"

struct loop {
    struct lifecycle life;
    const struct loop_request *asked;
    struct loop_result *result;
    struct arrival pending; /* the next arrival, when has_pending */
    bool has_pending, source_waits, source_ended;
};

/* ---- arrivals ---- */

static int peek_arrival(struct loop *loop, struct err *err) {
    if (loop->has_pending || loop->source_ended) {
        return 0;
    }
    struct arrival_source *source = &((struct loop_request *)loop->asked)->source;
    switch (source->next(source->state, &loop->pending, err)) {
    case SOURCE_ROW:
        loop->has_pending = true;
        loop->source_waits = false;
        return 0;
    case SOURCE_END:
        loop->source_ended = true;
        return 0;
    case SOURCE_WAIT:
        loop->source_waits = true;
        return 0;
    case SOURCE_BAD:
        break;
    }
    return (int)err->kind;
}

static int check_sampling(const struct loop *loop, struct err *err) {
    struct err why = {0};
    return system_check_sampling(loop->life.system, &loop->pending.sampling, &why) == 0
               ? 0
               : err_usage(err, "request %" PRIu64 ": %s", loop->pending.id, why.text);
}

static int take_arrivals(struct loop *loop, struct err *err) {
    const struct arrival_source *source = &loop->asked->source;
    if (source->back != NULL && loop->has_pending) {
        source->back(source->state, &loop->pending);
        loop->has_pending = false;
    }
    int status = peek_arrival(loop, err);
    while (status == 0 && loop->has_pending && loop->pending.arrival_ns <= loop->life.now_ns) {
        loop->has_pending = false;
        loop->life.next_arrival_ns = INT64_MAX;
        loop->pending.place = source->completed != NULL ? loop->result->arrived + 1 : 0;
        status = check_sampling(loop, err);
        status = status == 0 ? lifecycle_arrive(&loop->life, &loop->pending, err) : status;
        if (status == 0) {
            status = peek_arrival(loop, err);
        }
    }
    return status;
}

static int take_cancellations(struct loop *loop, struct err *err) {
    const struct arrival_source *source = &loop->asked->source;
    uint64_t id;
    while (source->cancelled != NULL && source->cancelled(source->state, &id)) {
        cancel_now(&loop->life, id);
    }
    return loop->life.next_cancel_ns <= loop->life.now_ns ? cancel_due(&loop->life, err) : 0;
}

/* ---- scheduling ---- */

/* Takes a slot out of the waiting list, whose shorter part moves. */
static void leave(struct replica *replica, uint32_t slot) {
    uint32_t *waiting = replica->waiting + replica->head, at = 0;
    while (waiting[at] != slot) {
        at++;
    }
    replica->n_waiting--;
    if (at < replica->n_waiting / 2) {
        memmove(waiting + 1, waiting, at * sizeof *waiting);
        replica->head++;
    } else {
        memmove(waiting + at, waiting + at + 1, (replica->n_waiting - at) * sizeof *waiting);
    }
}

/* Takes the admitted slots, in any order, out of the waiting list: few of them one by one. */
static void leave_waiting(struct loop *loop, struct replica *replica, const struct batch *batch) {
    enum { FEW = 8 };
    const uint32_t *admitted = batch->selected + batch->n - batch->n_admitted;
    uint32_t n_first = 0; /* that stand first, in order */
    while (n_first < batch->n_admitted &&
           replica->waiting[replica->head + n_first] == admitted[n_first]) {
        n_first++;
    }
    replica->head += n_first;
    replica->n_waiting -= n_first;
    if (batch->n_admitted - n_first <= FEW) {
        for (uint32_t i = n_first; i < batch->n_admitted; i++) {
            leave(replica, admitted[i]);
        }
    } else {
        uint32_t *waiting = replica->waiting + replica->head, kept = 0;
        for (uint32_t i = 0; i < replica->n_waiting; i++) {
            if (loop->life.requests[waiting[i]].state != REQUEST_RUNNING) {
                waiting[kept++] = waiting[i];
            }
        }
        replica->n_waiting = kept;
    }
    replica->head = replica->n_waiting == 0 ? 0 : replica->head;
}

/* Where workspace and cached state share memory, the last admitted requests that would run out of
 * it, together with those already running, stay in the queue. */
static void shed_misfits(struct loop *loop, const struct replica *replica, struct batch *batch) {
    uint32_t *slots = loop->life.together;
    uint32_t n_running = replica->n_running;
    memcpy(slots, replica->running, n_running * sizeof *slots);
    for (uint32_t i = 0; i < batch->n_preempted; i++) {
        uint32_t at = 0;
        while (slots[at] != batch->preempted[i]) {
            at++;
        }
        slots[at] = slots[--n_running];
    }
    memcpy(slots + n_running, batch->selected + batch->n - batch->n_admitted,
           batch->n_admitted * sizeof *slots);
    while (batch->n_admitted > (n_running == 0) &&
           !fit_batch(&loop->life, slots, n_running + batch->n_admitted)) {
        batch->n--;
        batch->n_admitted--;
        batch->chunk_tokens[batch->n] = 0;
        batch->width_tokens[batch->n] = batch->threshold_millionths[batch->n] = 0;
        batch->puts_off[batch->n] = batch->run_tokens[batch->n] = 0;
    }
}

/* The batch in flight: its members, its shape, and for how many steps it could stand. */
static uint32_t form_batch(struct loop *loop, struct replica *replica, const struct batch *batch) {
    struct lifecycle *life = &loop->life;
    struct step_shape *shape = &replica->shape;
    shape->spans = NULL;
    shape->n_spans = 0;
    if (batch->all_running) {
        replica->batch = replica->running;
        replica->n_batch = replica->n_running;
        memcpy(shape->sym, replica->sym, sizeof shape->sym);
        memcpy(replica->batch_by_phase, replica->n_by_phase, sizeof replica->batch_by_phase);
    } else {
        replica->batch = replica->selected;
        replica->n_batch = batch->n;
        shape_clear(shape);
        memset(replica->batch_by_phase, 0, sizeof replica->batch_by_phase);
        for (uint32_t i = 0; i < batch->n; i++) {
            const struct span *span = &life->requests[batch->selected[i]].span;
            shape_add(shape->sym, span, 1);
            replica->batch_by_phase[span->phase]++;
        }
    }
    uint32_t steps = UINT32_MAX;
    for (uint32_t i = 0; steps > 1 && i < replica->n_batch; i++) {
        uint32_t to_change = life->requests[replica->batch[i]].steps_to_change;
        steps = to_change < steps ? to_change : steps;
    }
    for (uint32_t i = 0; i < replica->n_idle; i++) {
        const struct span *span = &life->requests[replica->idle[i]].span;
        shape_add(shape->sym, span, 1);
        replica->batch_by_phase[span->phase]++;
    }
    if (loop->asked->executor.wants_spans) {
        shape->n_spans = replica->n_batch + replica->n_idle;
        shape->spans = replica->spans;
        for (uint32_t i = 0; i < replica->n_batch; i++) {
            replica->spans[i] = &life->requests[replica->batch[i]].span;
        }
        for (uint32_t i = 0; i < replica->n_idle; i++) {
            replica->spans[replica->n_batch + i] = &life->requests[replica->idle[i]].span;
        }
    }
    for (uint32_t i = 0; replica->blocks != NULL && i < replica->n_batch; i++) {
        replica->blocks[i] = positions_block(&life->positions, replica->batch[i]);
    }
    if (loop->asked->executor.wants_members || loop->asked->records_members) {
        report_members(&loop->life, replica);
    }
    return steps;
}

/* As decoders and caches see it while the step is under way. */
static void load_members(struct lifecycle *life, const struct replica *replica) {
    const struct replica_load load = lifecycle_load(life, replica);
    for (uint32_t i = 0; i < replica->n_batch; i++) {
        life->requests[replica->batch[i]].load = load;
    }
}

static void evict(void *state, uint32_t slot, const float *delta) {
    struct lifecycle *life = state;
    positions_evict(&life->positions, slot, &life->requests[slot], delta);
}

/* What is copied ahead of the submission. */
static struct swap take_swap(struct replica *replica) {
    replica->flight_swap = replica->swap;
    if (swap_is_any(&replica->swap)) {
        replica->flight_swap.host_used_bytes = replica->host_used_bytes;
    }
    replica->swap = (struct swap){0};
    return replica->flight_swap;
}

/* When repeated steps end: for an arrival that is known, a cancellation, or the scheduler. */
static int64_t stop_of(const struct loop *loop, const struct replica *replica, bool has_others) {
    int64_t stop_ns = replica->stop_ns;
    if (has_others || replica->unrolled) {
        return stop_ns;
    }
    if (replica->ends_at_arrivals && loop->has_pending && loop->pending.arrival_ns < stop_ns) {
        stop_ns = loop->pending.arrival_ns;
    }
    return loop->life.next_cancel_ns < stop_ns ? loop->life.next_cancel_ns : stop_ns;
}

/* Submit the replica's listed members, or all of its running requests, as they stand. */
static int submit_members(struct loop *loop, struct replica *replica, uint32_t index,
                          const struct batch *batch, bool follows, struct err *err) {
    const struct settings *settings = &loop->asked->system->settings;
    uint32_t steps = form_batch(loop, replica, batch);
    const int64_t *sym = replica->shape.sym;
    if (sym[SYM_TOKENS] > settings->max_batched_tokens) {
        return selection_refuse(&loop->life, "query tokens of a step", sym[SYM_TOKENS],
                                settings->max_batched_tokens, err);
    }
    /* With several replicas it is not known which one an arrival goes to, a closed loop's
     * arrivals follow from any one's completions, and clients come when they like: steps in flight
     * are cut when one comes.
     * They are counted from their submission on, so that none is repeated after a copy. */
    const bool has_others = loop->life.n_replicas > 1 || loop->asked->source.cancelled != NULL;
    if (!settings->skip_ahead || batch->hold == HOLD_STEP ||
        (has_others && (loop->asked->executor.cut == NULL || settings->decides_ahead ||
                        swap_is_any(&replica->swap)))) {
        steps = 1;
    }
    uint32_t unrolled = unroll_steps(&loop->life, replica);
    replica->unrolled = unrolled > 1;
    steps = settings->unroll_maximum > 1 ? unrolled : steps;
    replica->ends_at_arrivals = batch->hold == HOLD_CHANGE;
    const int64_t stop_ns = stop_of(loop, replica, has_others);
    if (loop->life.reads_load) {
        load_members(&loop->life, replica);
    }
    struct submission submission = {
        .replica = index,
        .repeat = steps,
        .unrolled = replica->unrolled,
        .follows = follows,
        .swap = take_swap(replica),
        .stop_ns = stop_ns,
        .step =
            {
                .shape = &replica->shape,
                .workspace_bytes =
                    budget_workspace_bytes(&loop->asked->system->budget, replica->kv_used_bytes),
                .requests = loop->life.requests,
                .slots = replica->batch,
                .idle = replica->idle,
                .n_slots = replica->n_batch,
                .n_idle = replica->n_idle,
                .pages = sharing_lists(&loop->life, replica),
                .request_ids = replica->member_ids,
                .blocks = replica->blocks,
                .evict = evict,
                .evict_state = &loop->life,
            },
    };
    replica->busy = true;
    int status = loop->asked->executor.submit(loop->asked->executor.state, &submission, err);
    if (has_others && status == 0) {
        cluster_flies(&loop->life, index, replica->unrolled ? 1 : steps);
    }
    return status;
}

/* `*is_empty`: nothing was submitted, as no one stayed in the batch. */
static int submit_batch(struct loop *loop, struct replica *replica, uint32_t index,
                        struct batch *batch, bool *is_empty, struct err *err) {
    int status = carry_out(&loop->life, replica, batch, err);
    *is_empty = batch->n == 0 && !batch->all_running;
    if (status == 0 && !*is_empty) {
        leave_waiting(loop, replica, batch);
    }
    status = status != 0 ? status : telling_decided(&loop->life, index, batch, err);
    if (status != 0 || *is_empty) {
        return status;
    }
    replica->n_idle = batch->n_idle;
    replica->stop_ns = batch->wake_ns;
    replica->loops_left = batch->loops > 1 && !batch->all_running ? batch->loops - 1 : 0;
    return submit_members(loop, replica, index, batch, batch->continues != 0, err);
}

/* Runs the same members again without asking the scheduler, as far as they still run and as their
 * growth and steps fit. */
static int submit_again(struct loop *loop, struct replica *replica, uint32_t index, bool *again,
                        struct err *err) {
    struct lifecycle *life = &loop->life;
    int64_t growth = 0, tokens = 0;
    uint32_t n = 0;
    *again = false;
    for (uint32_t i = 0; i < replica->n_batch; i++) {
        const struct request *request = &life->requests[replica->batch[i]];
        if (request->state == REQUEST_RUNNING &&
            life->tracked[replica->batch[i]].replica == index) {
            replica->selected[n++] = replica->batch[i];
            growth += request->kv_bytes - request->kv_held_bytes;
            tokens += request->span.queries;
        }
    }
    const struct system *system = loop->asked->system;
    replica->n_batch = n;
    if (n == 0 || tokens > system->settings.max_batched_tokens ||
        growth > system->budget.pool_bytes - replica->kv_used_bytes) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        int status = lifecycle_grow(life, replica, replica->selected[i], err);
        if (status != 0) {
            return status;
        }
    }
    *again = true;
    replica->loops_left--;
    replica->n_idle = 0;
    const struct batch batch = {.n = n, .selected = replica->selected};
    return submit_members(loop, replica, index, &batch, true, err);
}

/* What a system that forms a step while the one before it runs does not know yet: arrivals since
 * that step started, and the memory of requests that ended with it. After a pause it knows all. */
static bool look_ahead(const struct loop *loop, const struct replica *replica,
                       struct schedule_view *view) {
    if (!loop->asked->system->settings.decides_ahead || replica->last_end_ns != view->now_ns ||
        view->n_running == 0) {
        return false;
    }
    const struct request *requests = view->requests;
    while (view->n_waiting > 0 &&
           requests[view->waiting[view->n_waiting - 1]].arrival_ns > replica->last_start_ns) {
        view->n_waiting--;
    }
    view->max_requests -= replica->n_freed < view->max_requests ? replica->n_freed : 0;
    view->kv_free_bytes -= replica->freed_bytes;
    return true;
}

static bool is_empty_batch(const struct replica *replica, const struct batch *batch) {
    return batch->n == 0 && (!batch->all_running || replica->n_running == 0);
}

/* The scheduler's batch for such a view, as far as it fits. Where it listed nothing but requests
 * that were shed, batch->n is 0 and n_admitted is what it was. */
static int ask(struct loop *loop, uint32_t index, const struct schedule_view *view, bool is_ahead,
               struct batch *batch, struct err *err) {
    struct replica *replica = &loop->life.replicas[index];
    const struct system *system = loop->asked->system;
    struct said *said = &loop->life.said;
    if (said->n_swaps > 0) {
        memset(said->swaps, 0, said->n_swaps * sizeof *said->swaps);
    }
    *batch = (struct batch){.selected = replica->selected,
                            .capacity = loop->life.n_slots,
                            .wake_ns = INT64_MAX,
                            .chunk_tokens = said->chunk_tokens,
                            .width_tokens = said->width_tokens,
                            .threshold_millionths = said->threshold_millionths,
                            .puts_off = said->puts_off,
                            .run_tokens = said->run_tokens,
                            .rejected = said->rejected,
                            .reasons = said->reasons,
                            .preempted = said->preempted,
                            .swaps = said->swaps,
                            .idle = replica->idle};
    system->scheduler->schedule(replica->scheduler_state, view, batch);
    said->n_swaps = batch->n_preempted < batch->capacity ? batch->n_preempted : batch->capacity;
    if (err->kind != ERR_NONE) { /* it asked what cannot be answered */
        return (int)err->kind;
    }
    batch->n_preempted = is_ahead && is_empty_batch(replica, batch) ? 0 : batch->n_preempted;
    int status = selection_check(&loop->life, replica, index, view, batch, err);
    if (status == 0 && system->budget.shares_pool) {
        uint32_t n_admitted = batch->n_admitted;
        shed_misfits(loop, replica, batch);
        batch->n_admitted = batch->n == 0 && !batch->all_running ? n_admitted : batch->n_admitted;
    }
    return status;
}

/* Nothing is left in the lists that hold words about requests. To set nothing in a page that was
 * never written is slow, where the processor does it by a masked store. */
static void clear_words(const struct said *said, const struct batch *batch, uint32_t n) {
    if (n == 0) {
        return;
    }
    memset(said->chunk_tokens, 0, n * sizeof *said->chunk_tokens);
    if (batch->says) {
        memset(said->width_tokens, 0, n * sizeof *said->width_tokens);
        memset(said->threshold_millionths, 0, n * sizeof *said->threshold_millionths);
        memset(said->puts_off, 0, n * sizeof *said->puts_off);
        memset(said->run_tokens, 0, n * sizeof *said->run_tokens);
    }
}

/* One decision; `*again`: another one is due at once. */
static int decide(struct loop *loop, uint32_t index, bool *again, struct err *err) {
    struct replica *replica = &loop->life.replicas[index];
    int status = sharing_refresh(&loop->life, replica, err);
    *again = false;
    if (status != 0) {
        return status;
    }
    const struct estimator estimator = {&loop->life, replica, loop->asked->is_trial ? err : NULL};
    struct schedule_view view = telling_view(&loop->life, replica, &estimator);
    struct batch batch;
    bool is_ahead = look_ahead(loop, replica, &view);
    status = ask(loop, index, &view, is_ahead, &batch, err);
    if (status == 0 && is_ahead && is_empty_batch(replica, &batch) && batch.n_rejected == 0) {
        view = telling_view(&loop->life, replica, &estimator); /* nothing to decide ahead of */
        status = ask(loop, index, &view, false, &batch, err);
    }
    if (status == 0 && batch.n_rejected > 0) {
        loop->life.has_changed = loop->life.has_moved = true;
        status = lifecycle_reject_listed(&loop->life, replica, &batch, err);
        if (status != 0 || is_empty_batch(replica, &batch)) {
            clear_words(&loop->life.said, &batch, 0);
            *again = replica->n_running + replica->n_waiting > 0;
            return status;
        }
    }
    if (status == 0 && batch.n == 0 && batch.n_admitted > 0) {
        /* All that it lists was shed, and what runs holds the memory: one of these it is, then. */
        view.n_waiting = 0;
        status = ask(loop, index, &view, false, &batch, err);
    }
    if (status != 0) {
        return status;
    }
    if (is_empty_batch(replica, &batch)) {
        return selection_postpone(&loop->life, replica, batch.wake_ns, err);
    }
    replica->wake_ns = INT64_MAX;
    replica->n_postponed = 0;
    bool is_empty;
    const uint32_t n_listed = batch.n;
    status = submit_batch(loop, replica, index, &batch, &is_empty, err);
    clear_words(&loop->life.said, &batch, n_listed);
    /* Only where a request was preempted whose pages an admission counted on: one request fewer
     * runs. */
    ASSERT(status != 0 || !is_empty || batch.n_preempted > 0);
    *again = is_empty;
    return status;
}

static int schedule_replica(struct loop *loop, uint32_t index, struct err *err) {
    struct replica *replica = &loop->life.replicas[index];
    if (replica->loops_left > 0 && replica->stop_ns > loop->life.now_ns) {
        bool goes_on;
        int status = submit_again(loop, replica, index, &goes_on, err);
        if (status != 0 || goes_on) {
            return status;
        }
    }
    replica->loops_left = 0;
    loop->life.next_arrival_ns = loop->has_pending ? loop->pending.arrival_ns : INT64_MAX;
    bool again = true;
    int status = 0;
    while (status == 0 && again) {
        status = decide(loop, index, &again, err);
    }
    return status;
}

/* Those that are due, the lower ones first: a bit stays while its replica is idle and has work. */
static int schedule_idle(struct loop *loop, struct err *err) {
    struct lifecycle *life = &loop->life;
    for (uint32_t word = 0; word <= life->n_replicas / 64; word++) {
        for (uint64_t bits = life->due[word]; bits != 0; bits &= bits - 1) {
            const uint32_t index = 64 * word + (uint32_t)__builtin_ctzll(bits);
            struct replica *replica = &life->replicas[index];
            bool has_work = replica->n_running + replica->n_waiting > 0;
            bool is_due = replica->wake_ns == INT64_MAX || replica->wake_ns <= life->now_ns;
            if (!replica->busy && has_work && is_due) {
                int status = schedule_replica(loop, index, err);
                cluster_changed(life, index);
                if (status != 0) {
                    return status;
                }
            }
            if (replica->busy || !has_work) {
                life->due[word] &= ~(bits & -bits);
            }
        }
    }
    return 0;
}

/* ---- completions ---- */

/* Accounts for the steps of an unrolled submission one by one: each commits what it did and has a
 * record of its own. */
static int advance_unrolled(struct loop *loop, struct replica *replica,
                            const struct completion *done, const struct moment *moment,
                            struct err *err) {
    const struct executor *executor = &loop->asked->executor;
    int64_t wall_ns = done->time_ns - done->start_ns;
    int status = 0;
    for (uint32_t s = 0; status == 0 && s < done->steps; s++) {
        struct decided known = done->decided;
        known.commits = known.commits != NULL ? known.commits + (size_t)s * moment->n : NULL;
        if (executor->unroll != NULL) {
            status = executor->unroll(executor->state, done->replica, s, &known, err);
        }
        struct completion one = *done;
        one.steps = 1;
        one.stall_ns = s == 0 ? done->stall_ns : 0;
        one.joules = done->joules / done->steps;
        one.start_ns = done->start_ns + wall_ns * s / done->steps;
        one.time_ns = done->start_ns + wall_ns * (s + 1) / done->steps;
        replica->steps_ahead = done->steps - 1 - s;
        replica->wasted_requests = 0;
        replica->wasted_tokens = 0;
        if (executor->wants_members || loop->asked->records_members) {
            report_members(&loop->life, replica);
        }
        const int64_t one_ns = one.time_ns - one.start_ns;
        status =
            status == 0 ? lifecycle_advance(&loop->life, replica, 1, one_ns, &known, err) : status;
        if (status == 0 && loop->life.wants_steps) {
            status = report_step(&loop->life, replica, &one, moment, err);
        }
        loop->result->submissions++;
    }
    replica->wasted_requests = 0;
    replica->wasted_tokens = 0;
    return status;
}

static int complete(struct loop *loop, const struct completion *done, struct err *err) {
    struct replica *replica = &loop->life.replicas[done->replica];
    struct loop_result *result = loop->result;
    replica->busy = false;
    loop->life.has_changed = loop->life.has_moved = true;
    loop->life.n_holds = 0;
    cluster_changed(&loop->life, done->replica);
    cluster_due(&loop->life, done->replica);
    if (loop->asked->system->rows.chooser == CHOSEN_BY_POLICY &&
        loop->asked->executor.decides_positions && done->decided.positions &&
        replica->blocks != NULL) {
        positions_settle(loop->life.requests, replica->batch, replica->blocks, replica->n_batch,
                         replica->shape.sym);
    }
    result->busy_ns += done->time_ns - done->start_ns;
    result->steps += done->steps;
    result->request_steps += (uint64_t)done->steps * replica->n_batch;
    shape_add_up(result->sym, replica->shape.sym, done->steps);
    const struct moment moment = {replica->n_batch, replica->n_running, replica->n_waiting,
                                  replica->kv_used_bytes};
    bool by_step = replica->unrolled && loop->asked->system->decoder->count == NULL;
    const int64_t wall_ns = done->time_ns - done->start_ns;
    telling_begin(&loop->life, replica);
    lifecycle_took_part(&loop->life, replica, done->start_ns);
    int status = by_step ? advance_unrolled(loop, replica, done, &moment, err)
                         : lifecycle_advance(&loop->life, replica, done->steps, wall_ns,
                                             &done->decided, err);
    replica->last_start_ns = done->time_ns - (done->time_ns - done->start_ns) / done->steps;
    replica->last_end_ns = done->time_ns;
    replica->n_freed = moment.n_running - replica->n_running;
    replica->freed_bytes = moment.kv_used_bytes - replica->kv_used_bytes;
    if (status == 0 && !by_step && loop->life.wants_steps) {
        status = report_step(&loop->life, replica, done, &moment, err);
    }
    result->submissions += !by_step;
    loop->life.next_arrival_ns = loop->has_pending ? loop->pending.arrival_ns : INT64_MAX;
    return status != 0
               ? status
               : telling_steps(&loop->life, done->replica, moment.n, done->steps, wall_ns, err);
}

/* ---- the loop ---- */

/* The next arrival, or the time at which an idle replica wants to be asked again. */
static int64_t next_time(const struct loop *loop) {
    const struct lifecycle *life = &loop->life;
    int64_t next = loop->has_pending ? loop->pending.arrival_ns : INT64_MAX;
    next = life->held_soonest_ns < next ? life->held_soonest_ns : next;
    if (life->next_cancel_ns > life->now_ns && life->next_cancel_ns < next) {
        next = life->next_cancel_ns;
    }
    for (uint32_t word = 0; word <= life->n_replicas / 64; word++) {
        for (uint64_t bits = life->due[word]; bits != 0; bits &= bits - 1) {
            const struct replica *replica =
                &life->replicas[64 * word + (uint32_t)__builtin_ctzll(bits)];
            if (!replica->busy && replica->wake_ns < next && replica->wake_ns > life->now_ns) {
                next = replica->wake_ns;
            }
        }
    }
    return next;
}

static int starved(const struct loop *loop, struct err *err) {
    uint64_t waiting = 0, running = 0;
    for (uint32_t i = 0; i < loop->life.n_replicas; i++) {
        waiting += loop->life.replicas[i].n_waiting;
        running += loop->life.replicas[i].n_running;
    }
    if (waiting + running == 0) {
        return loop->life.n_held == 0
                   ? 0
                   : err_starves(err,
                                 "router %s starves at %.3f s: %" PRIu32
                                 " requests are held back, nothing runs or arrives any more, and "
                                 "route named no time in until_ns",
                                 loop->asked->system->router->policy.name,
                                 (double)loop->life.now_ns * 1e-9, loop->life.n_held);
    }
    return err_starves(err,
                       "scheduler %s starves at %.3f s: %" PRIu64 " requests wait and %" PRIu64
                       " hold memory, nothing was selected and no later time was named",
                       loop->asked->system->scheduler->policy.name,
                       (double)loop->life.now_ns * 1e-9, waiting, running);
}

static int reject_all(struct loop *loop, struct err *err) {
    if (lifecycle_reject_held(&loop->life, REJECT_SHUTDOWN, err) != 0) {
        return err_status(err);
    }
    for (uint32_t i = 0; i < loop->life.n_replicas; i++) {
        struct replica *replica = &loop->life.replicas[i];
        const uint32_t *lists[] = {replica->running, replica->waiting + replica->head};
        uint32_t counts[] = {replica->n_running, replica->n_waiting};
        for (int list = 0; list < 2; list++) {
            for (uint32_t j = 0; j < counts[list]; j++) {
                int status = lifecycle_reject(&loop->life, lists[list][j], REJECT_SHUTDOWN, err);
                if (status != 0) {
                    return status;
                }
            }
        }
    }
    return 0;
}

static int run_turns(struct loop *loop, struct err *err) {
    enum { PROGRESS_TURNS = 8192 };
    for (uint64_t turn = 0;; turn++) {
        int status = take_arrivals(loop, err);
        status = status != 0 ? status : take_cancellations(loop, err);
        status = status != 0 ? status : lifecycle_ask_held(&loop->life, err);
        status = status != 0 ? status : lifecycle_ask_moves(&loop->life, err);
        status = status != 0 ? status : schedule_idle(loop, err);
        if (status != 0) {
            return status;
        }
        if (loop->asked->stop != NULL && *loop->asked->stop) {
            loop->result->interrupted = true;
            return reject_all(loop, err);
        }
        if (turn % PROGRESS_TURNS == PROGRESS_TURNS - 1 && loop->asked->progress != NULL) {
            loop->asked->progress(loop->asked->progress_state,
                                  loop->result->completed + loop->result->rejected,
                                  loop->life.now_ns);
        }
        struct completion done;
        status =
            loop->asked->executor.wait(loop->asked->executor.state, next_time(loop), &done, err);
        if (status != 0) {
            return status;
        }
        if (done.kind == COMPLETION_IDLE) {
            return starved(loop, err);
        }
        if (done.kind == COMPLETION_CUT) {
            loop->result->interrupted = true;
            return reject_all(loop, err);
        }
        ASSERT(done.time_ns >= loop->life.now_ns);
        loop->life.now_ns = done.time_ns;
        /* All completions of this moment are taken before anything is scheduled. */
        while (status == 0 && done.kind == COMPLETION_BATCH) {
            status = complete(loop, &done, err);
            if (status == 0) {
                status = loop->asked->executor.wait(loop->asked->executor.state, loop->life.now_ns,
                                                    &done, err);
            }
        }
        if (status != 0) {
            return status;
        }
    }
}

int loop_run(const struct loop_request *request, struct loop_result *result, struct err *err) {
    *result = (struct loop_result){0};
    struct loop loop = {.asked = request, .result = result};
    lifecycle_init(&loop.life, request, result);
    int status = run_turns(&loop, err);
    if (status != 0 && err->code == ERR_STARVES) {
        struct err late = {0}; /* the first cause is told */
        (void)reject_all(&loop, &late);
    }
    result->end_ns = loop.life.now_ns;
    if (request->executor.settle != NULL) {
        request->executor.settle(request->executor.state);
    }
    if (status == 0) {
        audit_run(&loop.life);
    }
    lifecycle_fini(&loop.life);
    return status;
}
