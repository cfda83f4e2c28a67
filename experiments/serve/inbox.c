#include "experiments/serve/inbox.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/serve/calls.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/system.h"
#include "sim/policy/window.h"
#include "sim/step/shape.h"

/* How long the loop sleeps at most before it looks whether it is to end, and how long a device is
 * waited for before its inbox is looked at. */
static const int64_t nap_ns = 50000000, device_nap_ns = 500000;

struct client {
    uint64_t connection;
    bool is_busy; /* has a call here */
};

/* A place among arrivals. */
struct order {
    int64_t ns;
    uint64_t id;
};

struct inbox {
    struct inbox_request request;
    struct executor inner;
    struct executor_sim *sim;
    struct http_server *server;
    volatile sig_atomic_t stop;
    /* The loop's thread alone reads and writes these. */
    struct order last_taken, taken_before;
    uint32_t n_flying;    /* steps under way */
    int64_t submitted_ns; /* when a step was submitted last; -1: none was */

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t wake;
    struct tally tally;
    struct call *first, *last; /* posted, in order; CLOCK_VIRTUAL: in that of arrival and id */
    uint64_t *cancelled;       /* ids that the loop has not been told yet, [n_cancelled] */
    size_t n_cancelled, room_cancelled;
    struct calls calls;     /* that the loop has */
    struct client *clients; /* of CLOCK_VIRTUAL, [n_clients] */
    size_t n_clients, room_clients, n_idle;
    uint64_t n_clients_seen, n_ids, n_left;
    bool has_started, is_closing, is_over;
    int64_t zero_ns; /* the machine's clock at time 0 */
    int64_t now_ns;  /* the last time that the loop was told */
    int64_t drain_until_ns;
    struct call **fresh_calls;
    size_t n_fresh, room_fresh;
};

static struct call *find(const struct inbox *inbox, uint64_t id) {
    return calls_find(&inbox->calls, id);
}

/* ---- the clock ---- */

static int64_t machine_now(const struct inbox *inbox) {
    if (inbox->request.clock != CLOCK_REAL || !inbox->has_started) {
        return inbox->now_ns;
    }
    const double run_ns = (double)(monotonic_ns() - inbox->zero_ns) * inbox->request.speed;
    return (int64_t)run_ns > inbox->now_ns ? (int64_t)run_ns : inbox->now_ns;
}

/* When that time of the run is, by the machine's clock. */
static int64_t machine_at(const struct inbox *inbox, int64_t run_ns) {
    return inbox->request.clock == CLOCK_REAL
               ? inbox->zero_ns + (int64_t)((double)run_ns / inbox->request.speed)
               : monotonic_ns();
}

static void start_clock(struct inbox *inbox) {
    if (!inbox->has_started) {
        inbox->has_started = true;
        inbox->zero_ns = monotonic_ns();
    }
}

/* Whether the server is to end: then no call is taken any more, and those that are here may go on
 * for a while. The lock is held. */
static bool is_closing(struct inbox *inbox) {
    if (!inbox->is_closing && *inbox->request.interrupt) {
        inbox->is_closing = true;
        inbox->drain_until_ns = monotonic_ns() + inbox->request.drain_ns;
        if (inbox->server != NULL) {
            pthread_mutex_unlock(&inbox->lock);
            inbox->request.http->refuse_new(inbox->server);
            pthread_mutex_lock(&inbox->lock);
        }
    }
    if (inbox->is_closing && monotonic_ns() >= inbox->drain_until_ns) {
        inbox->stop = 1;
    }
    return inbox->is_closing;
}

/* ---- the source ---- */

/* The lock is held. */
static void begin_streams(struct inbox *inbox) {
    for (size_t i = 0; i < inbox->n_fresh; i++) {
        struct call *call = inbox->fresh_calls[i];
        if (call->state == CALL_TAKEN && call->streams && !call->is_streaming &&
            call->exchange != NULL) {
            call->is_streaming = true;
            inbox->request.http->stream(call->exchange);
        }
    }
    inbox->n_fresh = 0;
}

static void unlink_call(struct inbox *inbox, struct call *call) {
    struct call *before = NULL;
    for (struct call *c = inbox->first; c != call; c = c->next) {
        before = c;
    }
    *(before != NULL ? &before->next : &inbox->first) = call->next;
    inbox->last = inbox->last == call ? before : inbox->last;
    call->next = NULL;
}

/* Now, or after what was submitted now, which does not know of what comes. */
static int64_t first_free_ns(const struct inbox *inbox) {
    return inbox->now_ns + (inbox->submitted_ns == inbox->now_ns);
}

/* When a call arrives: not before that, and after those that arrived before it, as they do when the
 * record is played again. */
static void set_time(struct inbox *inbox, struct call *call) {
    const struct order *last = &inbox->last_taken;
    struct arrival *arrival = &call->arrival;
    const int64_t now_ns = first_free_ns(inbox);
    if (inbox->request.clock != CLOCK_REAL &&
        (inbox->request.clock != CLOCK_VIRTUAL || arrival->arrival_ns < now_ns)) {
        arrival->arrival_ns = now_ns;
    }
    if (arrival->arrival_ns < last->ns ||
        (arrival->arrival_ns == last->ns && arrival->id < last->id)) {
        arrival->arrival_ns = last->ns + 1;
    }
    inbox->taken_before = inbox->last_taken;
    inbox->last_taken = (struct order){arrival->arrival_ns, arrival->id};
}

/* The first of those posted becomes the loop's. The lock is held. */
static void take(struct inbox *inbox, struct arrival *out) {
    struct call *call = inbox->first;
    unlink_call(inbox, call);
    const bool is_named = inbox->request.clock == CLOCK_VIRTUAL;
    if (!is_named || !call->names_id) {
        call->arrival.id = inbox->n_ids;
    }
    inbox->n_ids = call->arrival.id >= inbox->n_ids ? call->arrival.id + 1 : inbox->n_ids;
    set_time(inbox, call);
    if (inbox->request.arrive != NULL) {
        inbox->request.arrive(inbox->request.state, call);
    }
    call->state = CALL_TAKEN;
    call->is_with_loop = true;
    calls_put(&inbox->calls, call);
    inbox->fresh_calls = mem_grown(inbox->fresh_calls, inbox->n_fresh, &inbox->room_fresh,
                                   sizeof *inbox->fresh_calls);
    inbox->fresh_calls[inbox->n_fresh++] = call;
    *out = call->arrival;
}

/* Of CLOCK_VIRTUAL: whether every client has said what it does next. */
static bool may_pass(const struct inbox *inbox) {
    return inbox->n_clients_seen >= inbox->request.clients && inbox->n_idle == 0 &&
           (inbox->first != NULL || inbox->calls.n > 0);
}

static enum source_reply next_arrival(void *state, struct arrival *out, struct err *err) {
    struct inbox *inbox = state;
    enum source_reply reply = SOURCE_ROW;
    (void)err;
    pthread_mutex_lock(&inbox->lock);
    while (inbox->request.clock == CLOCK_VIRTUAL && !is_closing(inbox) && !may_pass(inbox) &&
           inbox->n_cancelled == 0) {
        begin_streams(inbox);
        system_condition_wait(&inbox->wake, &inbox->lock, nap_ns);
    }
    const bool ends = is_closing(inbox);
    if (inbox->first != NULL) {
        take(inbox, out);
    } else {
        reply = ends ? SOURCE_END : SOURCE_WAIT;
    }
    pthread_mutex_unlock(&inbox->lock);
    return reply;
}

/* In the order of arrival and id. */
static void sort_in(struct inbox *inbox, struct call *call) {
    struct call *before = NULL, *after = inbox->first;
    while (after != NULL && (after->arrival.arrival_ns < call->arrival.arrival_ns ||
                             (after->arrival.arrival_ns == call->arrival.arrival_ns &&
                              after->arrival.id <= call->arrival.id))) {
        before = after;
        after = after->next;
    }
    call->next = after;
    *(before != NULL ? &before->next : &inbox->first) = call;
    inbox->last = after == NULL ? call : inbox->last;
}

static void take_back(void *state, const struct arrival *row) {
    struct inbox *inbox = state;
    pthread_mutex_lock(&inbox->lock);
    struct call *call = find(inbox, row->id);
    calls_take_away(&inbox->calls, call);
    inbox->last_taken = inbox->taken_before;
    if (inbox->request.arrive_later != NULL) {
        inbox->request.arrive_later(inbox->request.state);
    }
    call->state = CALL_POSTED;
    call->is_with_loop = false;
    for (size_t i = 0; i < inbox->n_fresh; i++) {
        if (inbox->fresh_calls[i] == call) {
            inbox->fresh_calls[i--] = inbox->fresh_calls[--inbox->n_fresh];
        }
    }
    sort_in(inbox, call);
    pthread_mutex_unlock(&inbox->lock);
}

static bool next_cancelled(void *state, uint64_t *id) {
    struct inbox *inbox = state;
    pthread_mutex_lock(&inbox->lock);
    const bool is_any = inbox->n_cancelled > 0;
    if (is_any) {
        *id = inbox->cancelled[--inbox->n_cancelled];
    }
    pthread_mutex_unlock(&inbox->lock);
    return is_any;
}

struct arrival_source inbox_source(struct inbox *inbox) {
    return (struct arrival_source){
        .state = inbox,
        .next = next_arrival,
        .back = inbox->request.clock == CLOCK_VIRTUAL ? take_back : NULL,
        .cancelled = next_cancelled,
    };
}

/* ---- around the executor ---- */

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct inbox *inbox = state;
    int status = inbox->inner.submit(inbox->inner.state, submission, err);
    inbox->n_flying += status == 0;
    inbox->submitted_ns = inbox->now_ns;
    return status;
}

/* A client's word, at what time; INT64_MAX: there is none. The lock is held. */
static int64_t word_ns(const struct inbox *inbox) {
    if (inbox->n_cancelled > 0) {
        return inbox->now_ns;
    }
    if (inbox->first == NULL || inbox->request.clock == CLOCK_VIRTUAL) {
        return INT64_MAX;
    }
    return inbox->request.clock == CLOCK_REAL ? inbox->first->arrival.arrival_ns
                                              : first_free_ns(inbox);
}

/* Of a simulation: sleeps until the first of its events is due, and returns when that is;
 * INT64_MAX: there will be none. */
static int64_t sleep_until_due(struct inbox *inbox, int64_t until_ns) {
    const bool is_real = inbox->request.clock == CLOCK_REAL;
    const bool is_virtual = inbox->request.clock == CLOCK_VIRTUAL;
    for (;;) {
        const bool ends = is_closing(inbox);
        const int64_t end_ns = executor_sim_next_ns(inbox->sim);
        const int64_t spoken_ns = word_ns(inbox);
        int64_t due_ns = end_ns < until_ns ? end_ns : until_ns;
        due_ns = spoken_ns < due_ns ? spoken_ns : due_ns;
        if (inbox->stop) {
            return inbox->now_ns;
        }
        if (due_ns == INT64_MAX && (ends || inbox->calls.n > 0 || is_virtual)) {
            return due_ns; /* over, or nothing that is here goes on */
        }
        if (due_ns < INT64_MAX && (!is_real || due_ns <= machine_now(inbox))) {
            return due_ns;
        }
        int64_t left_ns = nap_ns;
        if (due_ns < INT64_MAX) {
            left_ns = machine_at(inbox, due_ns) - monotonic_ns();
            left_ns = left_ns < 0 ? 0 : left_ns < nap_ns ? left_ns : nap_ns;
        }
        system_condition_wait(&inbox->wake, &inbox->lock, left_ns);
    }
}

static int wait_simulated(struct inbox *inbox, int64_t until_ns, struct completion *out,
                          struct err *err) {
    pthread_mutex_lock(&inbox->lock);
    begin_streams(inbox);
    int64_t due_ns = sleep_until_due(inbox, until_ns);
    int status = inbox->inner.wait(inbox->inner.state, due_ns, out, err);
    inbox->now_ns = out->time_ns > inbox->now_ns ? out->time_ns : inbox->now_ns;
    pthread_mutex_unlock(&inbox->lock);
    return status;
}

/* A device's time is looked at; what it computes is waited for in small pieces. Of several replicas
 * (engine/fleet.h) the loop's thread holds the fleet's lock, and lets go of it in the inner wait
 * alone: it sleeps on the inbox's condition only while none of them computes. */
static int wait_device(struct inbox *inbox, int64_t until_ns, struct completion *out,
                       struct err *err) {
    for (;;) {
        pthread_mutex_lock(&inbox->lock);
        begin_streams(inbox);
        const bool ends = is_closing(inbox), is_spoken = word_ns(inbox) < INT64_MAX;
        const bool is_flying = inbox->n_flying > 0;
        int64_t now_ns = live_now_ns(inbox->request.live);
        now_ns = now_ns > inbox->now_ns ? now_ns : inbox->now_ns;
        now_ns = now_ns < until_ns ? now_ns : until_ns;
        const bool is_over = until_ns == INT64_MAX && (ends || inbox->calls.n > 0);
        if (!is_spoken && !is_flying && now_ns < until_ns && !is_over && !inbox->stop) {
            const int64_t left_ns = until_ns - now_ns;
            system_condition_wait(&inbox->wake, &inbox->lock, left_ns < nap_ns ? left_ns : nap_ns);
            pthread_mutex_unlock(&inbox->lock);
            continue;
        }
        if ((is_spoken && !is_flying) || (inbox->stop && !is_flying) || (!is_flying && !is_over)) {
            inbox->now_ns = now_ns;
            pthread_mutex_unlock(&inbox->lock);
            *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = now_ns};
            return 0;
        }
        pthread_mutex_unlock(&inbox->lock);
        const int64_t piece_ns = now_ns + device_nap_ns;
        const int64_t to_ns = is_over && !is_flying ? until_ns
                              : is_spoken           ? now_ns
                              : piece_ns < until_ns ? piece_ns
                                                    : until_ns;
        int status = inbox->inner.wait(inbox->inner.state, to_ns, out, err);
        if (status != 0) {
            return status;
        }
        pthread_mutex_lock(&inbox->lock);
        inbox->n_flying -= out->kind == COMPLETION_BATCH;
        inbox->now_ns = out->time_ns > inbox->now_ns ? out->time_ns : inbox->now_ns;
        out->time_ns = inbox->now_ns;
        const bool is_told = out->kind != COMPLETION_TIME || is_spoken || out->time_ns >= until_ns;
        pthread_mutex_unlock(&inbox->lock);
        if (is_told) {
            return 0;
        }
    }
}

static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct inbox *inbox = state;
    return inbox->request.clock == CLOCK_DEVICE ? wait_device(inbox, until_ns, out, err)
                                                : wait_simulated(inbox, until_ns, out, err);
}

/* The rest is the inner one's. */
static int admit(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                 const struct beginning *beginning, struct err *err) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    return inner->admit(inner->state, replica, slot, request, beginning, err);
}

static int grow(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                struct err *err) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    return inner->grow(inner->state, replica, slot, request, err);
}

static void release(void *state, uint32_t replica, uint32_t slot) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    inner->release(inner->state, replica, slot);
}

static int swap_out(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    struct err *err) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    return inner->swap_out(inner->state, replica, slot, request, err);
}

static void drop(void *state, uint32_t replica, uint32_t slot) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    inner->drop(inner->state, replica, slot);
}

static int keep_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    return inner->keep_prefix(inner->state, replica, slot, request, first, err);
}

static int take_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    return inner->take_prefix(inner->state, replica, slot, request, first, err);
}

static int find_end(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    uint32_t *answer_tokens, bool *is_met, struct err *err) {
    struct inbox *inbox = state;
    int status = 0;
    *answer_tokens = 0;
    *is_met = false;
    if (inbox->inner.find_end != NULL) {
        status = inbox->inner.find_end(inbox->inner.state, replica, slot, request, answer_tokens,
                                       is_met, err);
    }
    pthread_mutex_lock(&inbox->lock);
    struct call *call = find(inbox, request->id);
    if (call != NULL && status == 0 && call->stops != NULL) {
        const uint32_t known =
            window_first(request) + window_known(request) - request->prompt_tokens;
        const uint32_t end = *answer_tokens > 0 ? *answer_tokens : known;
        const uint32_t stop = inbox->request.stop(inbox->request.state, call, end);
        *answer_tokens = stop > 0 ? stop : *answer_tokens;
    }
    if (call != NULL && status == 0) {
        call->end_tokens = *answer_tokens;
    }
    pthread_mutex_unlock(&inbox->lock);
    return status;
}

static int64_t step_ns(const void *state, uint32_t replica) {
    const struct executor *inner = &((const struct inbox *)state)->inner;
    return inner->step_ns(inner->state, replica);
}

static void cut(void *state, uint32_t replica, int64_t now_ns) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    inner->cut(inner->state, replica, now_ns);
}

static int unroll(void *state, uint32_t replica, uint32_t s, struct decided *out, struct err *err) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    return inner->unroll(inner->state, replica, s, out, err);
}

static void settle(void *state) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    inner->settle(inner->state);
}

static void audit(void *state, bool interrupted) {
    const struct executor *inner = &((struct inbox *)state)->inner;
    inner->audit(inner->state, interrupted);
}

static int64_t estimate_ns(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t workspace_bytes, double *joules) {
    const struct executor *inner = &((const struct inbox *)state)->inner;
    return inner->estimate_ns(inner->state, replica, shape, workspace_bytes, joules);
}

struct executor inbox_around(void *state, struct executor inner, struct executor_sim *sim) {
    struct inbox *inbox = state;
    inbox->inner = inner;
    inbox->sim = sim;
    struct executor outer = inner;
    outer.state = inbox;
    outer.submit = submit;
    outer.wait = wait_next;
    outer.estimate_ns = inner.estimate_ns != NULL ? estimate_ns : NULL;
    outer.admit = inner.admit != NULL ? admit : NULL;
    outer.grow = inner.grow != NULL ? grow : NULL;
    outer.release = inner.release != NULL ? release : NULL;
    outer.swap_out = inner.swap_out != NULL ? swap_out : NULL;
    outer.drop = inner.drop != NULL ? drop : NULL;
    outer.keep_prefix = inner.keep_prefix != NULL ? keep_prefix : NULL;
    outer.take_prefix = inner.take_prefix != NULL ? take_prefix : NULL;
    outer.find_end = inbox->request.live != NULL ? find_end : NULL;
    outer.step_ns = inner.step_ns != NULL ? step_ns : NULL;
    outer.cut = inner.cut != NULL ? cut : NULL;
    outer.unroll = inner.unroll != NULL ? unroll : NULL;
    outer.settle = inner.settle != NULL ? settle : NULL;
    outer.audit = inner.audit != NULL ? audit : NULL;
    return outer;
}

/* ---- the sink ---- */

static void wake_call(struct inbox *inbox, const struct call *call) {
    if (call->exchange != NULL) {
        inbox->request.http->wake(call->exchange);
    }
}

/* Of CLOCK_VIRTUAL: its client has no call here from now on, or has one. */
static void set_busy(struct inbox *inbox, uint64_t connection, bool is_busy) {
    for (size_t i = 0; i < inbox->n_clients; i++) {
        struct client *client = &inbox->clients[i];
        if (client->connection == connection && client->is_busy != is_busy) {
            client->is_busy = is_busy;
            inbox->n_idle += is_busy ? (size_t)-1 : 1;
        }
    }
}

static void set_running(struct inbox *inbox, struct call *call, bool is_running) {
    inbox->tally.n_running += (uint64_t)is_running - (uint64_t)call->is_running;
    call->is_running = is_running;
}

/* The loop is done with it. The lock is held. */
static void let_go(struct inbox *inbox, struct call *call) {
    calls_take_away(&inbox->calls, call);
    set_running(inbox, call, false);
    call->is_with_loop = false;
    inbox->tally.n_in_system--;
    set_busy(inbox, call->connection, false);
    for (size_t i = 0; i < inbox->n_fresh; i++) {
        if (inbox->fresh_calls[i] == call) {
            inbox->fresh_calls[i--] = inbox->fresh_calls[--inbox->n_fresh];
        }
    }
    if (!call->is_with_http) {
        call_free(call);
    }
}

static void end_block(struct inbox *inbox, struct call *call, uint32_t end_tokens, int64_t now_ns) {
    if (call->n_blocks > 0 && call->blocks[call->n_blocks - 1].end_tokens >= end_tokens) {
        return;
    }
    call->blocks =
        mem_grown(call->blocks, call->n_blocks, &call->room_blocks, sizeof *call->blocks);
    call->blocks[call->n_blocks++] = (struct call_block){end_tokens, machine_at(inbox, now_ns)};
}

static void count_finish(struct tally *tally, const struct request_record *r, bool has_ended) {
    tally->finished[has_ended ? FINISH_STOP : FINISH_LENGTH]++;
    tally->prompt_tokens += r->prompt_tokens;
    tally->generation_tokens += r->answer_tokens;
    tally->cached_tokens += r->prefix_tokens;
    tally_add(&tally->ttft_s, (double)(r->first_block_ns - r->arrival_ns) * 1e-9);
    tally_add(&tally->latency_s, (double)(r->finished_ns - r->arrival_ns) * 1e-9);
    if (r->answer_tokens > r->first_block_tokens) {
        tally_add(&tally->tpot_s, (double)(r->finished_ns - r->first_block_ns) * 1e-9 /
                                      (r->answer_tokens - r->first_block_tokens));
    }
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct inbox *inbox = state;
    (void)err;
    pthread_mutex_lock(&inbox->lock);
    struct call *call = find(inbox, record->id);
    if (call == NULL) {
        pthread_mutex_unlock(&inbox->lock);
        return 0;
    }
    struct tally *tally = &inbox->tally;
    if (record->state == REQUEST_DONE) {
        call->answer_tokens = record->answer_tokens;
        call->cached_tokens = (uint32_t)record->prefix_tokens;
        call->has_ended = record->answer_tokens < record->output_tokens;
        call->state = CALL_DONE;
        end_block(inbox, call, record->answer_tokens, record->finished_ns);
        count_finish(tally, record, call->has_ended);
    } else {
        call->state = CALL_REFUSED;
        call->reason = record->reason;
        if (inbox->request.leave != NULL) {
            inbox->request.leave(inbox->request.state, call);
        }
        inbox->n_left += record->reason == REJECT_SHUTDOWN;
        *(record->reason == REJECT_CANCELLED ? &tally->cancelled : &tally->refused[REFUSED_LOOP]) +=
            1;
    }
    if (call->streams && !call->is_streaming && call->state == CALL_DONE &&
        call->exchange != NULL) {
        call->is_streaming = true;
        inbox->request.http->stream(call->exchange);
    }
    wake_call(inbox, call);
    let_go(inbox, call);
    pthread_mutex_unlock(&inbox->lock);
    return 0;
}

static int on_event(void *state, const struct event_record *record, struct err *err) {
    struct inbox *inbox = state;
    (void)err;
    pthread_mutex_lock(&inbox->lock);
    inbox->tally.preemptions += record->kind == EVENT_PREEMPT;
    struct call *call = find(inbox, record->request);
    if (call != NULL && (record->kind == EVENT_ADMIT || record->kind == EVENT_PREEMPT)) {
        set_running(inbox, call, record->kind == EVENT_ADMIT);
    }
    if (call != NULL && record->kind == EVENT_BLOCK_DONE) {
        const uint32_t said = call->end_tokens > 0 ? call->end_tokens : call->arrival.answer_tokens;
        const uint32_t most = said > 0 ? said : call->arrival.output_tokens;
        end_block(inbox, call, record->output_tokens < most ? record->output_tokens : most,
                  record->time_ns);
        if (call->is_streaming) {
            wake_call(inbox, call);
        }
    }
    pthread_mutex_unlock(&inbox->lock);
    return 0;
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct inbox *inbox = state;
    (void)err;
    uint64_t committed = 0;
    for (uint32_t i = 0; record->commit_tokens != NULL && i < record->n; i++) {
        committed += record->commit_tokens[i];
    }
    pthread_mutex_lock(&inbox->lock);
    struct tally *tally = &inbox->tally;
    tally->steps += record->repeat;
    tally->request_steps += (uint64_t)record->repeat * record->n;
    tally->positions += record->repeat * (uint64_t)record->sym[SYM_TOKENS];
    tally->committed += record->repeat * committed;
    tally->kv_used_bytes = record->kv_used_bytes;
    pthread_mutex_unlock(&inbox->lock);
    return 0;
}

/* The loop has it: what the endpoint took until then is over. */
static int on_arrival(void *state, const struct arrival *arrival, struct err *err) {
    struct inbox *inbox = state;
    (void)err;
    pthread_mutex_lock(&inbox->lock);
    const struct call *call = find(inbox, arrival->id);
    if (call != NULL) {
        tally_add(&inbox->tally.taken_s, (double)(monotonic_ns() - call->whole_ns) * 1e-9);
    }
    pthread_mutex_unlock(&inbox->lock);
    return 0;
}

struct sink inbox_sink(struct inbox *inbox) {
    return (struct sink){.state = inbox,
                         .request = on_request,
                         .step = on_step,
                         .event = on_event,
                         .arrival = on_arrival};
}

/* ---- a device's tokens ---- */

const int32_t *inbox_prompt(void *state, uint64_t id) {
    struct inbox *inbox = state;
    pthread_mutex_lock(&inbox->lock);
    const struct call *call = find(inbox, id);
    const int32_t *prompt = call != NULL ? call->prompt : NULL;
    pthread_mutex_unlock(&inbox->lock);
    return prompt;
}

/* What of it a client may be reading stays as it is. */
static void take_tokens(struct inbox *inbox, uint64_t id, const int32_t *tokens, uint32_t n,
                        bool is_whole) {
    pthread_mutex_lock(&inbox->lock);
    struct call *call = find(inbox, id);
    if (call != NULL && call->tokens != NULL &&
        (is_whole || call->streams || call->stops != NULL)) {
        const bool is_read = call->streams && call->n_blocks > 0;
        const uint32_t from = is_read ? call->blocks[call->n_blocks - 1].end_tokens : 0;
        const uint32_t room = call->arrival.output_tokens;
        for (uint32_t i = from; i < n && i < room; i++) {
            call->tokens[i] = tokens[i];
        }
    }
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_show(void *state, uint64_t id, const int32_t *tokens, uint32_t n) {
    take_tokens(state, id, tokens, n, false);
}

int inbox_output(void *state, uint64_t id, const int32_t *tokens, uint32_t n, struct err *err) {
    (void)err;
    struct inbox *inbox = state;
    take_tokens(inbox, id, tokens, n, true);
    pthread_mutex_lock(&inbox->lock);
    const struct call *call = find(inbox, id);
    if (call != NULL && inbox->request.answer != NULL) {
        inbox->request.answer(inbox->request.state, call, tokens, n);
    }
    pthread_mutex_unlock(&inbox->lock);
    return 0;
}

/* ---- the thread of HTTP ---- */

static void note_client(struct inbox *inbox, uint64_t connection) {
    for (size_t i = 0; i < inbox->n_clients; i++) {
        if (inbox->clients[i].connection == connection) {
            set_busy(inbox, connection, true);
            return;
        }
    }
    inbox->clients =
        mem_grown(inbox->clients, inbox->n_clients, &inbox->room_clients, sizeof *inbox->clients);
    inbox->clients[inbox->n_clients++] = (struct client){connection, true};
    inbox->n_clients_seen++;
}

static bool has_id(const struct inbox *inbox, uint64_t id) {
    for (const struct call *c = inbox->first; c != NULL; c = c->next) {
        if (c->arrival.id == id) {
            return true;
        }
    }
    return find(inbox, id) != NULL;
}

enum posted inbox_post(struct inbox *inbox, struct call *call) {
    const bool is_virtual = inbox->request.clock == CLOCK_VIRTUAL;
    enum posted posted = POSTED;
    pthread_mutex_lock(&inbox->lock);
    if (inbox->is_closing || inbox->is_over) {
        posted = POST_CLOSING;
    } else if (inbox->tally.n_in_system >= inbox->request.capacity) {
        posted = POST_FULL;
    } else if (is_virtual && has_id(inbox, call->arrival.id)) {
        posted = POST_ID_TAKEN;
    }
    if (posted == POSTED) {
        start_clock(inbox);
        inbox->tally.n_in_system++;
        call->state = CALL_POSTED;
        call->is_with_http = true;
        if (is_virtual) {
            note_client(inbox, call->connection);
            sort_in(inbox, call);
        } else {
            call->arrival.arrival_ns = machine_now(inbox);
            call->next = NULL;
            *(inbox->last != NULL ? &inbox->last->next : &inbox->first) = call;
            inbox->last = call;
        }
        pthread_cond_signal(&inbox->wake);
    }
    pthread_mutex_unlock(&inbox->lock);
    return posted;
}

static void cancel(struct inbox *inbox, struct call *call) {
    if (call->is_with_loop) {
        inbox->cancelled = mem_grown(inbox->cancelled, inbox->n_cancelled, &inbox->room_cancelled,
                                     sizeof *inbox->cancelled);
        inbox->cancelled[inbox->n_cancelled++] = call->arrival.id;
        pthread_cond_signal(&inbox->wake);
    } else if (call->state == CALL_POSTED) {
        unlink_call(inbox, call);
        set_busy(inbox, call->connection, false);
        inbox->tally.n_in_system--;
        inbox->tally.cancelled++;
    }
}

void inbox_over(struct inbox *inbox, struct call *call, bool is_cut) {
    pthread_mutex_lock(&inbox->lock);
    call->exchange = NULL;
    call->is_with_http = false;
    if (is_cut) {
        cancel(inbox, call);
    }
    if (!call->is_with_loop) {
        call_free(call);
    }
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_left(struct inbox *inbox, uint64_t connection) {
    pthread_mutex_lock(&inbox->lock);
    for (size_t i = 0; i < inbox->n_clients; i++) {
        if (inbox->clients[i].connection == connection) {
            inbox->n_idle -= !inbox->clients[i].is_busy;
            inbox->clients[i] = inbox->clients[--inbox->n_clients];
            pthread_cond_signal(&inbox->wake);
            break;
        }
    }
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_lock(struct inbox *inbox) {
    pthread_mutex_lock(&inbox->lock);
}

void inbox_unlock(struct inbox *inbox) {
    pthread_mutex_unlock(&inbox->lock);
}

struct tally *inbox_tally(struct inbox *inbox) {
    return &inbox->tally;
}

bool inbox_is_closing(struct inbox *inbox) {
    pthread_mutex_lock(&inbox->lock);
    const bool is_closing_now = inbox->is_closing || inbox->is_over;
    pthread_mutex_unlock(&inbox->lock);
    return is_closing_now;
}

uint64_t inbox_n_left(struct inbox *inbox) {
    pthread_mutex_lock(&inbox->lock);
    const uint64_t n = inbox->n_left;
    pthread_mutex_unlock(&inbox->lock);
    return n;
}

/* ---- opening and ending ---- */

const volatile sig_atomic_t *inbox_stop(const struct inbox *inbox) {
    return &inbox->stop;
}

void inbox_attach(struct inbox *inbox, struct http_server *server) {
    pthread_mutex_lock(&inbox->lock);
    inbox->server = server;
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_end(struct inbox *inbox, void (*refuse)(void *state, struct call *call), void *state) {
    pthread_mutex_lock(&inbox->lock);
    inbox->is_over = true;
    for (uint32_t i = 0; i < inbox->calls.n_places; i++) {
        while (inbox->calls.by_id[i] != NULL) { /* a run that failed left it */
            struct call *call = inbox->calls.by_id[i];
            call->state = CALL_REFUSED;
            inbox->n_left++;
            if (call->exchange != NULL) {
                refuse(state, call);
            }
            let_go(inbox, call);
        }
    }
    while (inbox->first != NULL) {
        struct call *call = inbox->first;
        unlink_call(inbox, call);
        call->state = CALL_REFUSED;
        inbox->n_left++;
        inbox->tally.n_in_system--;
        refuse(state, call);
    }
    pthread_mutex_unlock(&inbox->lock);
}

struct inbox *inbox_open(const struct inbox_request *request) {
    struct inbox *inbox = mem_zeroed(1, sizeof *inbox);
    inbox->request = *request;
    inbox->submitted_ns = inbox->last_taken.ns = inbox->taken_before.ns = -1;
    tally_init(&inbox->tally);
    pthread_mutex_init(&inbox->lock, NULL);
    system_condition_init(&inbox->wake);
    calls_open(&inbox->calls, request->capacity);
    return inbox;
}

void inbox_close(struct inbox *inbox) {
    if (inbox != NULL) {
        pthread_mutex_destroy(&inbox->lock);
        pthread_cond_destroy(&inbox->wake);
        calls_close(&inbox->calls);
        free(inbox->cancelled);
        free(inbox->clients);
        free(inbox->fresh_calls);
        free(inbox);
    }
}
