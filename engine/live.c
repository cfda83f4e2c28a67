#include "engine/live.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "engine/op/op.h"
#include "engine/session/lead.h"
#include "engine/session/outcome.h"
#include "engine/session/rest.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/system.h"
#include "sim/system/system_step.h"

/* The batch under way. It is over when its last step is, and no longer busy when the loop knows. */
struct flight {
    bool busy, is_over;
    struct submission submission; /* its arrays stay with the loop until the batch is complete */
    uint32_t steps_done;
    int64_t start_ns, end_ns, stall_ns;
    double device_ns; /* of the steps done */
};

/* The machine's clock at time 0, and the time that was skipped since. */
struct live_clock {
    bool has_started;
    int64_t zero_ns, skipped_ns;
};

struct live {
    struct engine *engine;
    struct sessions sessions;
    struct members members; /* of the step under way, */
    struct rest rest;
    struct lead lead;
    struct outcome outcome; /* and what it came to */
    bool skips_idle;
    int64_t swap_ns; /* since when rows are copied to or from the host; -1: none are */
    struct live_clock own_clock, *clock;
    const volatile sig_atomic_t *stop; /* set from outside; may be NULL */
    pthread_mutex_t *policies;         /* held by who calls a policy; NULL: there is one thread */
    bool lets_go;                      /* this one does not hold it: live_run */
    struct flight flight;
    struct placement placement;
    struct step step;
    const int32_t *(*prompt)(void *state, uint64_t id);
    void *prompt_state;
    int (*output)(void *state, uint64_t id, const int32_t *tokens, uint32_t n, struct err *err);
    void *output_state;
    void (*show)(void *state, uint64_t id, const int32_t *tokens, uint32_t n);
    void *show_state;
    struct neighbours *neighbours; /* may be NULL */
    struct end_tokens ends;
    uint32_t *answer_tokens; /* [n_slots]: up to the end that was found; 0: none was */
    struct err output_err;   /* of an output that could not be handed out, told at the next wait */
    int32_t *output_tokens;
};

/* ---- the clock ---- */

int64_t live_now_ns(struct live *live) {
    struct live_clock *clock = live->clock;
    if (!clock->has_started) {
        *clock = (struct live_clock){.has_started = true, .zero_ns = monotonic_ns()};
    }
    return monotonic_ns() - clock->zero_ns + clock->skipped_ns;
}

static bool is_stopped(const struct live *live) {
    return live->stop != NULL && *live->stop;
}

/* Returns the time: until_ns, or an earlier one when the run is to stop. In naps, because a signal
 * between the look at the flag and the sleep would not end it. */
static int64_t sleep_until(struct live *live, int64_t until_ns) {
    enum { NAP_NS = 20000000 };
    int64_t now = live_now_ns(live);
    while (now < until_ns && !is_stopped(live)) {
        int64_t nap_ns = until_ns - now < NAP_NS ? until_ns - now : NAP_NS;
        system_nap(nap_ns);
        now = live_now_ns(live);
    }
    return now < until_ns ? now : until_ns;
}

/* ---- one step ---- */

/* While the device's step waits for it, in whichever thread that is. */
static int evict(void *state, const struct eviction *seen, struct step *out, struct err *err) {
    struct live *live = state;
    if (live->lets_go) {
        pthread_mutex_lock(live->policies);
    }
    const int status = rest_evict(&live->rest, seen, out, err);
    if (live->lets_go) {
        pthread_mutex_unlock(live->policies);
    }
    return status;
}

static int plan_step(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                     struct err *err) {
    if (sessions_settle(&live->sessions, err) != 0 ||
        system_place(live->engine->system, planned->shape, planned->workspace_bytes,
                     &live->placement, err) != 0 ||
        members_plan(&live->members, planned, commits, &live->placement, &live->step, err) != 0) {
        return err_status(err);
    }
    live->step.evict = evict;
    live->step.evict_state = live;
    if (live->lead.parts != NULL) {
        lead_plan(&live->lead, &live->step);
    }
    return 0;
}

/* ---- the executor ---- */

static void note_swap(struct live *live, bool copies) {
    live->swap_ns = copies && live->swap_ns < 0 ? live_now_ns(live) : live->swap_ns;
}

static int swap_out(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    struct err *err) {
    struct live *live = state;
    (void)replica;
    note_swap(live, request->host_bytes > 0 || live->sessions.swapped_places != NULL);
    return sessions_swap_out(&live->sessions, slot, request, err);
}

static int keep_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    struct live *live = state;
    (void)replica;
    return sessions_copy_prefix(&live->sessions, slot, request, first, true, err);
}

static int take_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    struct live *live = state;
    (void)replica;
    return sessions_copy_prefix(&live->sessions, slot, request, first, false, err);
}

static void drop(void *state, uint32_t replica, uint32_t slot) {
    struct live *live = state;
    (void)replica;
    sessions_drop(&live->sessions, slot);
}

static int admit(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                 const struct beginning *beginning, struct err *err) {
    struct live *live = state;
    (void)replica;
    const int32_t *prompt =
        live->prompt != NULL ? live->prompt(live->prompt_state, request->id) : NULL;
    live->answer_tokens[slot] = request->preemptions > 0 ? live->answer_tokens[slot] : 0;
    note_swap(live, request->host_bytes > 0 || live->sessions.by_slot[slot].has_places_out);
    return sessions_admit(&live->sessions, slot, request, prompt, beginning, err);
}

static int grow(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                struct err *err) {
    struct live *live = state;
    (void)replica;
    return sessions_grow(&live->sessions, slot, request, err);
}

/* A function that cannot fail: what went wrong is told at the next wait. */
static void hand_out(struct live *live, uint32_t slot) {
    const struct session *session = &live->sessions.by_slot[slot];
    struct err *err = &live->output_err;
    bool is_done = session->request->state == REQUEST_DONE;
    uint32_t answer = live->answer_tokens[slot];
    answer = answer > 0 ? answer : session->request->answer_tokens;
    if (is_done && err->kind == ERR_NONE) {
        (void)sessions_keep_output(&live->sessions, slot, live->output_tokens, err);
    }
    if (live->output != NULL && is_done && err->kind == ERR_NONE &&
        sessions_read(&live->sessions, slot, live->output_tokens, err) == 0) {
        (void)live->output(live->output_state, session->request->id, live->output_tokens,
                           answer > 0 ? answer : session->output_tokens, err);
    }
}

static int find_end(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    uint32_t *answer_tokens, bool *is_met, struct err *err) {
    struct live *live = state;
    (void)replica;
    int status =
        end_tokens_find(&live->ends, &live->sessions, slot, request, answer_tokens, is_met, err);
    live->answer_tokens[slot] = status == 0 ? *answer_tokens : 0;
    return status;
}

static void release(void *state, uint32_t replica, uint32_t slot) {
    struct live *live = state;
    (void)replica;
    hand_out(live, slot);
    sessions_release(&live->sessions, slot);
}

int live_plan(struct live *live, const struct submission *submission, struct err *err) {
    ASSERT(!live->flight.busy && submission->repeat >= 1);
    int status = sessions_settle(&live->sessions, err);
    live->flight = (struct flight){.submission = *submission, .start_ns = live_now_ns(live)};
    live->flight.stall_ns = live->swap_ns < 0 ? 0 : live->flight.start_ns - live->swap_ns;
    live->swap_ns = -1;
    status = status != 0 ? status : plan_step(live, &live->flight.submission.step, NULL, err);
    live->flight.busy = status == 0;
    return status;
}

/* Issues what of the batch the host does not look into. */
static int launch(struct live *live, struct err *err) {
    const struct submission *submission = &live->flight.submission;
    return live->flight.steps_done > 0
               ? forward_again(live->engine->forward, err)
               : forward_submit_times(live->engine->forward, &live->step,
                                      submission->unrolled ? submission->repeat : 1, err);
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct live *live = state;
    int status = live_plan(live, submission, err);
    status = status != 0 ? status : launch(live, err);
    live->flight.busy = status == 0;
    return status;
}

int live_run(struct live *live, struct err *err) {
    double device_ns;
    live->lets_go = live->policies != NULL;
    int status = launch(live, err);
    live->lets_go = false;
    return status != 0 ? status : forward_wait(live->engine->forward, &device_ns, err);
}

void live_complete(struct live *live, struct completion *out) {
    struct flight *flight = &live->flight;
    int64_t device_ns = llround(flight->device_ns / flight->steps_done);
    int64_t wall_ns = (flight->end_ns - flight->start_ns) / flight->steps_done;
    flight->busy = false;
    *out = (struct completion){
        .kind = COMPLETION_BATCH,
        .time_ns = flight->end_ns,
        .steps = flight->steps_done,
        .start_ns = flight->start_ns,
        .gpu_ns = device_ns,
        .host_ns = wall_ns > device_ns ? wall_ns - device_ns : 0,
        .stall_ns = flight->stall_ns,
        .decided = {.commits = live->outcome.commits,
                    .positions =
                        outcome_tracks_rows(&live->outcome) && !flight->submission.unrolled},
    };
}

static int show_canvases(struct live *live, struct err *err) {
    const struct planned_step *step = &live->flight.submission.step;
    int status = 0;
    for (uint32_t i = 0; live->show != NULL && status == 0 && i < step->n_slots; i++) {
        const struct session *session = &live->sessions.by_slot[step->slots[i]];
        status = sessions_read(&live->sessions, step->slots[i], live->output_tokens, err);
        if (status == 0) {
            live->show(live->show_state, session->request->id, live->output_tokens,
                       session->output_tokens);
        }
    }
    return status;
}

/* Of steps of one shape, all together device_ns long. */
static void note_step(struct live *live, const struct step_shape *shape, uint32_t n,
                      double device_ns) {
    ASSERT(n > 0);
    for (uint32_t i = 0; live->neighbours != NULL && i < n; i++) {
        neighbours_step(live->neighbours, shape->sym, SYM_COUNT, device_ns / n);
    }
}

int live_look(struct live *live, bool *is_over, struct err *err) {
    struct flight *flight = &live->flight;
    double device_ns = 0;
    const struct submission *submission = &flight->submission;
    bool at_once = submission->unrolled;
    int status = at_once
                     ? outcome_wait_unrolled(&live->outcome, submission->repeat, &device_ns, err)
                     : outcome_wait(&live->outcome, false, &device_ns, err);
    status = status == 0 ? show_canvases(live, err) : status;
    flight->device_ns += device_ns;
    flight->steps_done += at_once ? submission->repeat : 1;
    note_step(live, submission->step.shape, at_once ? submission->repeat : 1, device_ns);
    flight->end_ns = live_now_ns(live);
    flight->is_over = flight->steps_done == flight->submission.repeat ||
                      flight->end_ns >= flight->submission.stop_ns || is_stopped(live);
    flight->busy = status == 0;
    *is_over = flight->is_over;
    return status;
}

/* A step is done: the batch is over, or its next step starts. */
static int pass_border(struct live *live, struct err *err) {
    bool is_over;
    const int status = live_look(live, &is_over, err);
    return status == 0 && !is_over ? launch(live, err) : status;
}

/* What is due before the batch's end is told first, although it may have been noticed later. */
static int wait_busy(struct live *live, int64_t until_ns, struct completion *out, struct err *err) {
    struct flight *flight = &live->flight;
    for (;;) {
        bool is_done = true;
        int status = until_ns == INT64_MAX || flight->is_over
                         ? 0
                         : forward_done(live->engine->forward, &is_done, err);
        if (status == 0 && is_done && !flight->is_over) {
            status = pass_border(live, err);
        }
        if (status != 0) {
            flight->busy = false;
            return status;
        }
        if (flight->is_over && flight->end_ns <= until_ns) {
            live_complete(live, out);
            return 0;
        }
        if (flight->is_over || live_now_ns(live) >= until_ns) {
            *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = until_ns};
            return 0;
        }
    }
}

int live_trouble(const struct live *live, struct err *err) {
    if (live->output_err.kind != ERR_NONE) {
        *err = live->output_err;
    }
    return (int)live->output_err.kind;
}

/* Nothing is under way. */
static void wait_idle(struct live *live, int64_t until_ns, struct completion *out) {
    int64_t now = live_now_ns(live);
    *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = until_ns};
    if (until_ns == INT64_MAX) {
        *out = (struct completion){.kind = COMPLETION_IDLE, .time_ns = now};
    } else if (until_ns > now && live->skips_idle) {
        live->clock->skipped_ns += until_ns - now;
    } else if (until_ns > now) {
        out->time_ns = sleep_until(live, until_ns);
        if (live->neighbours != NULL) {
            neighbours_idle(live->neighbours, out->time_ns - now);
        }
    }
}

static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct live *live = state;
    int status = live_trouble(live, err);
    if (status == 0 && live->flight.busy) {
        status = wait_busy(live, until_ns, out, err);
    } else if (status == 0) {
        wait_idle(live, until_ns, out);
    }
    return status;
}

/* The same whole nanoseconds as in a simulation, whose estimates decide alike. */
static int64_t estimate_ns(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t workspace_bytes, double *joules) {
    const struct live *live = state;
    struct step_price price;
    (void)replica;
    system_price(live->engine->system, shape, workspace_bytes, &price);
    *joules = 0;
    return price.wall_ns < 1 ? 1 : llround(price.wall_ns);
}

static void audit(void *state, bool interrupted) {
    struct live *live = state;
    (void)interrupted;
    sessions_audit(&live->sessions);
}

struct executor live_interface(struct live *live) {
    return (struct executor){
        .state = live,
        .wants_spans = true,
        .shares_prefixes = true,
        .shares_pages = true,
        .tells_tokens = true,
        .unrolls = !outcome_is_watched(&live->outcome),
        .wants_positions = outcome_tracks_rows(&live->outcome),
        .decides_positions = outcome_tracks_rows(&live->outcome),
        .admit = admit,
        .grow = grow,
        .release = release,
        .swap_out = swap_out,
        .drop = drop,
        .keep_prefix = keep_prefix,
        .take_prefix = take_prefix,
        .find_end = live->ends.n > 0 ? find_end : NULL,
        .submit = submit,
        .wait = wait_next,
        .audit = audit,
        .estimate_ns = estimate_ns,
    };
}

/* ---- recorded submissions ---- */

int live_execute(struct live *live, const struct planned_step *planned, uint32_t steps,
                 const uint32_t *commits, struct live_times *out, struct err *err) {
    int64_t start_ns = monotonic_ns();
    *out = (struct live_times){0};
    int status = plan_step(live, planned, commits, err);
    for (uint32_t i = 0; status == 0 && i < steps; i++) {
        double device_ns = 0;
        status = i == 0 ? forward_submit(live->engine->forward, &live->step, err)
                        : forward_again(live->engine->forward, err);
        if (status == 0) {
            status = outcome_wait(&live->outcome, commits != NULL, &device_ns, err);
        }
        out->device_ns += device_ns;
        note_step(live, planned->shape, 1, device_ns);
    }
    out->wall_ns = (double)(monotonic_ns() - start_ns);
    return status;
}

/* hits NULL: experts hit are not counted, and nothing waits. */
static int one_by_one(struct live *live, const struct planned_step *planned,
                      const uint32_t *commits, double *hits, struct err *err) {
    struct forward *forward = live->engine->forward;
    int status = plan_step(live, planned, commits, err);
    if (status == 0 && commits == NULL) {
        members_decide_nothing(&live->members);
    }
    const bool restores = commits == NULL && forward_reads_overwritten(forward);
    status = status == 0 && restores ? forward_set_aside(forward, err) : status;
    status = status == 0 ? forward_begin(forward, &live->step, err) : status;
    if (status == 0) {
        status = hits == NULL ? forward_finish_instances(forward, err)
                              : forward_finish_counting(forward, hits, err);
    }
    return status == 0 && restores ? forward_put_back(forward, err) : status;
}

int live_operators(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                   double *ns, struct err *err) {
    int status = one_by_one(live, planned, commits, NULL, err);
    status =
        status == 0 ? forward_instance_times(live->engine->forward, INFINITY, ns, err) : status;
    return status == 0 && commits != NULL ? outcome_read(&live->outcome, true, err) : status;
}

int live_experts(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                 double *hit, struct err *err) {
    int status = one_by_one(live, planned, commits, hit, err);
    return status == 0 && commits != NULL ? outcome_read(&live->outcome, true, err) : status;
}

int64_t live_activation_peak_bytes(const struct live *live) {
    return forward_workspace_peak(live->engine->forward);
}

int64_t live_pool_peak_bytes(const struct live *live) {
    return sessions_pool_peak_bytes(&live->sessions);
}

int64_t live_pool_bytes(const struct live *live) {
    return sessions_pool_bytes(&live->sessions);
}

/* ---- opening ---- */

void live_join(struct live *live, struct live *of, pthread_mutex_t *policies) {
    live->clock = of->clock;
    live->sessions.beginnings = of->sessions.beginnings;
    live->policies = policies;
}

void live_set_stop(struct live *live, const volatile sig_atomic_t *stop) {
    live->stop = stop;
}

void live_set_neighbours(struct live *live, struct neighbours *neighbours) {
    live->neighbours = neighbours;
}

void live_set_prompt(struct live *live, const int32_t *(*prompt)(void *state, uint64_t id),
                     void *state) {
    live->prompt = prompt;
    live->prompt_state = state;
}

void live_set_ends(struct live *live, const struct end_tokens *ends) {
    live->ends = *ends;
}

void live_set_watch(struct live *live, const struct position_watch *watch) {
    outcome_watch(&live->outcome, watch);
}

void live_set_show(struct live *live,
                   void (*show)(void *state, uint64_t id, const int32_t *tokens, uint32_t n),
                   void *state) {
    live->show = show;
    live->show_state = state;
}

void live_set_output(struct live *live,
                     int (*output)(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                                   struct err *err),
                     void *state) {
    live->output = output;
    live->output_state = state;
}

int live_open(struct engine *engine, uint64_t seed, bool skips_idle, struct live **out,
              struct err *err) {
    const struct step_limits *limits = &engine->limits;
    struct live *live = mem_zeroed(1, sizeof *live);
    live->engine = engine;
    live->swap_ns = -1;
    live->clock = &live->own_clock;
    live->skips_idle = skips_idle;
    int status = sessions_open(&live->sessions, engine->system, engine->forward, limits, seed, err);
    if (status != 0) {
        live_close(live);
        return status;
    }
    members_open(&live->members, &live->sessions);
    outcome_open(&live->outcome, &live->members, engine->forward);
    if (rows_leave_out(&engine->system->rows)) {
        rest_open(&live->rest, &live->members);
    }
    if (engine->system->rows.lead_layers > 0) {
        lead_open(&live->lead, limits);
    }
    live->answer_tokens =
        mem_reserved(engine->system->settings.max_in_system, sizeof *live->answer_tokens);
    live->output_tokens = mem_zeroed(limits->max_positions, sizeof *live->output_tokens);
    *out = live;
    return 0;
}

/* What is warmed up takes all the power that a card may draw: its clock is back within a fifth of a
 * second of rest (H200, 2026-11-23), and first steps would otherwise take a quarter longer. */
int live_warm(struct live *live, const struct warm_watch *watch, struct err *err) {
    const struct timespec rest = {.tv_nsec = 300000000};
    int status = forward_warm(live->engine->forward, watch, err);
    if (status == 0 && live->engine->device.counts_energy) {
        nanosleep(&rest, NULL);
    }
    return status;
}

void live_close(struct live *live) {
    if (live == NULL) {
        return;
    }
    if (live->flight.busy) {
        /* The results of a step that an interrupted run leaves under way are discarded. */
        struct err ignored = {0};
        double device_ns;
        (void)forward_wait(live->engine->forward, &device_ns, &ignored);
    }
    outcome_close(&live->outcome);
    rest_close(&live->rest);
    lead_close(&live->lead);
    members_close(&live->members);
    sessions_close(&live->sessions);
    mem_released(live->answer_tokens);
    free(live->output_tokens);
    free(live);
}
