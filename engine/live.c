#include "engine/live.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "engine/op/op.h"
#include "engine/session/session.h"
#include "sim/base/monotonic.h"
#include "sim/base/zeroed.h"
#include "sim/cache/blocks.h"
#include "sim/system/system_step.h"

/* The batch under way. It is over when its last step is, and no longer busy when the loop knows. */
struct flight {
    bool busy, is_over;
    struct submission submission; /* its arrays stay with the loop until the batch is complete */
    uint32_t steps_done;
    int64_t start_ns, end_ns;
    double device_ns; /* of the steps done */
};

struct live {
    struct engine *engine;
    struct sessions sessions;
    bool skips_idle, has_started;
    int64_t zero_ns, skipped_ns; /* the machine's clock at time 0; time that was skipped since */
    const volatile sig_atomic_t *stop; /* set from outside; may be NULL */
    struct flight flight;
    struct placement placement;
    struct step step;
    const int32_t *(*prompt)(void *state, uint64_t id);
    void *prompt_state;
    int (*output)(void *state, uint64_t id, const int32_t *tokens, uint32_t n, struct err *err);
    void *output_state;
    struct end_tokens ends;
    struct session_watch watch; /* all zero: nobody watches */
    uint32_t *answer_tokens;    /* [n_slots]: up to the end that was found; 0: none was */
    struct err output_err; /* of an output that could not be handed out, told at the next wait */
    /* Results of the step done last. */
    int32_t *token;                       /* [max_logit_rows] */
    float *confidence, *margin, *entropy; /* the same */
    uint8_t *committed;                   /* the same */
    int32_t *n_committed;                 /* [max_requests] */
    uint32_t *commits;                    /* [max_unrolled, max_requests], as the loop takes them */
    uint32_t *left; /* [max_requests], masked positions behind the steps looked at so far */
    /* Of one request, for decoders that choose on the host. */
    uint32_t *rows, *offsets;
    float *seen[3]; /* confidences, margins, entropies */
    uint8_t *chosen;
    int32_t *output_tokens;
};

/* ---- the clock ---- */

static int64_t now_ns(struct live *live) {
    if (!live->has_started) {
        live->has_started = true;
        live->zero_ns = monotonic_ns();
    }
    return monotonic_ns() - live->zero_ns + live->skipped_ns;
}

static bool is_stopped(const struct live *live) {
    return live->stop != NULL && *live->stop;
}

/* Returns the time: until_ns, or an earlier one when the run is to stop. In naps, because a signal
 * between the look at the flag and the sleep would not end it. */
static int64_t sleep_until(struct live *live, int64_t until_ns) {
    enum { NAP_NS = 20000000 };
    int64_t now = now_ns(live);
    while (now < until_ns && !is_stopped(live)) {
        int64_t nap_ns = until_ns - now < NAP_NS ? until_ns - now : NAP_NS;
        struct timespec nap = {.tv_nsec = nap_ns};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
        now = now_ns(live);
    }
    return now < until_ns ? now : until_ns;
}

/* ---- one step ---- */

static bool host_chooses(const struct live *live) {
    const struct decoder *decoder = live->engine->system->decoder;
    return decoder->choose != NULL;
}

/* Whether somebody has to know which rows a step committed. */
static bool is_watched(const struct live *live) {
    return live->watch.watch.see != NULL;
}

static bool tracks_rows(const struct live *live) {
    return host_chooses(live) || is_watched(live) ||
           live->engine->system->settings.logit_scope == LOGITS_MASKED ||
           sessions_list_positions(live->engine->system);
}

static int plan_step(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                     struct err *err) {
    const struct system *system = live->engine->system;
    int status =
        system_place(system, planned->shape, planned->workspace_bytes, &live->placement, err);
    return status != 0 ? status
                       : sessions_plan(&live->sessions, planned, commits, &live->placement,
                                       &live->step, err);
}

static int start_step(struct live *live, const struct submission *submission, struct err *err) {
    uint32_t at_once = submission->unrolled ? submission->repeat : 1;
    int status = plan_step(live, &submission->step, NULL, err);
    return status == 0 ? forward_submit_times(live->engine->forward, &live->step, at_once, err)
                       : status;
}

/* Confidences as decoders are promised them: between 0 and 1, neither of them reached. */
static float open_interval(float confidence) {
    return fminf(fmaxf(confidence, FLT_MIN), 1 - FLT_EPSILON / 2);
}

/* Commit what the decoder marked among a member's masked rows, which is as many as it says. */
static int commit_chosen(struct live *live, const struct planned_step *planned, uint32_t member,
                         uint32_t n, struct err *err) {
    uint32_t n_chosen = 0;
    int status = 0;
    for (uint32_t j = 0; status == 0 && j < n; j++) {
        if (live->chosen[j]) {
            n_chosen++;
            status = sessions_commit(&live->sessions, planned, member, live->rows[j],
                                     live->token[live->rows[j]], err);
        }
    }
    if (status == 0 && n_chosen != live->commits[member]) {
        status =
            err_world(err,
                      "decoder %s broke its promise: it says that it commits %" PRIu32
                      " positions and marks %" PRIu32,
                      live->engine->system->decoder->policy.name, live->commits[member], n_chosen);
    }
    return status;
}

/* In the step number `i` of those since the host looked last. */
static int not_numbers(const struct request *request, uint32_t i, struct err *err) {
    return err_world(err, "the logits of request %" PRIu64 " are not numbers in its step %" PRIu32,
                     request->id, request->steps + i + 1);
}

/* What the decoder is shown of the `n` rows in live->rows. */
static struct decode_seen look(struct live *live, const struct request *request, uint32_t member,
                               uint32_t n) {
    bool statistics = live->engine->system->decoder->reads_statistics != 0;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t row = live->rows[j];
        live->offsets[j] = sessions_target(&live->sessions, member, row) - request->block_start;
        live->seen[0][j] = open_interval(live->confidence[row]);
        live->seen[1][j] = live->margin[row];
        live->seen[2][j] = live->entropy[row];
    }
    return (struct decode_seen){.n = n,
                                .first = request->block_start,
                                .offset = live->offsets,
                                .confidence = live->seen[0],
                                .margin = statistics ? live->seen[1] : NULL,
                                .entropy = statistics ? live->seen[2] : NULL};
}

/* The decoder reads what is known of each member's masked positions and chooses. */
static int choose_on_host(struct live *live, const struct planned_step *planned, struct err *err) {
    const struct system *system = live->engine->system;
    const struct step_result result = {.token = live->token,
                                       .confidence = live->confidence,
                                       .margin = live->margin,
                                       .entropy = live->entropy};
    int status = forward_result(live->engine->forward, &result, err);
    for (uint32_t i = 0; status == 0 && i < planned->n_slots; i++) {
        const struct request *request = &planned->requests[planned->slots[i]];
        uint32_t n = sessions_masked_rows(&live->sessions, planned, i, live->rows);
        live->commits[i] = 0;
        if (n == 0) { /* a prefill, a commit pass */
            continue;
        }
        for (uint32_t j = 0; j < n; j++) {
            if (isnan(live->confidence[live->rows[j]])) {
                return not_numbers(request, 0, err);
            }
        }
        const struct decode_seen seen = look(live, request, i, n);
        live->commits[i] =
            system->decoder->choose(system->decoder_state, request, &seen, live->chosen);
        status = commit_chosen(live, planned, i, n, err);
    }
    return status;
}

/* A position that was given the mask's own id looks masked to the device and is decided again; it
 * was counted when it was decided first. */
static uint32_t newly_decided(const struct request *request, uint32_t committed) {
    return committed < request->masked_in_block ? committed : request->masked_in_block;
}

/* A counting decoder's word is held against what the device committed. */
static int check_count(const struct live *live, const struct request *request, uint32_t commits,
                       struct err *err) {
    uint32_t counted = request->commit_tokens;
    bool counts = live->engine->system->decoder->count != NULL && !blocks_yield(request);
    bool may_lack = session_is_listed(&live->sessions, request);
    return !counts || commits == counted || (commits < counted && may_lack)
               ? 0
               : err_world(err,
                           "the device committed %" PRIu32 " positions of request %" PRIu64
                           ", its decoder counts %" PRIu32,
                           commits, request->id, request->commit_tokens);
}

/* What the device decided, unless the caller had the word. */
static int read_decisions(struct live *live, const struct planned_step *planned, bool decided,
                          struct err *err) {
    bool settles = tracks_rows(live) && !planned->is_recorded;
    const struct step_result result = {.committed = settles ? live->committed : NULL,
                                       .n_committed = live->n_committed};
    int status = forward_result(live->engine->forward, &result, err);
    if (status == 0 && settles) {
        sessions_settle(&live->sessions, planned, live->committed);
    }
    for (uint32_t i = 0; status == 0 && i < planned->n_slots; i++) {
        const struct request *request = &planned->requests[planned->slots[i]];
        if (live->n_committed[i] == DECODE_NOT_NUMBERS) {
            return not_numbers(request, 0, err);
        }
        live->commits[i] = (uint32_t)live->n_committed[i];
        status = decided ? 0 : check_count(live, request, live->commits[i], err);
        if (!decided) {
            live->commits[i] = newly_decided(request, live->commits[i]);
        }
    }
    return status;
}

/* What each of the steps that were issued at once decided: [steps, members]. */
static int finish_unrolled(struct live *live, const struct planned_step *planned, uint32_t n_steps,
                           double *device_ns, struct err *err) {
    uint32_t n = planned->n_slots;
    int status = forward_wait(live->engine->forward, device_ns, err);
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        live->left[i] = planned->requests[planned->slots[i]].masked_in_block;
    }
    for (uint32_t s = 0; status == 0 && s < n_steps; s++) {
        status = forward_committed(live->engine->forward, s, live->n_committed, err);
        for (uint32_t i = 0; status == 0 && i < n; i++) {
            const struct request *request = &planned->requests[planned->slots[i]];
            if (live->n_committed[i] == DECODE_NOT_NUMBERS) {
                return not_numbers(request, s, err);
            }
            uint32_t committed = (uint32_t)live->n_committed[i];
            committed = committed < live->left[i] ? committed : live->left[i];
            live->commits[(size_t)s * n + i] = committed;
            live->left[i] -= committed;
        }
    }
    return status;
}

/* `decided`: the caller said how many positions each member commits. */
static int finish_step(struct live *live, const struct planned_step *planned, bool decided,
                       double *device_ns, struct err *err) {
    int status = forward_wait(live->engine->forward, device_ns, err);
    if (status != 0) {
        return status;
    }
    status = host_chooses(live) && !decided ? choose_on_host(live, planned, err)
                                            : read_decisions(live, planned, decided, err);
    if (status == 0) {
        sessions_pass(planned, live->commits);
    }
    return status == 0 && is_watched(live) && !planned->is_recorded
               ? session_watch_step(&live->watch, &live->sessions, planned, err)
               : status;
}

/* ---- the executor ---- */

static int admit(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                 struct err *err) {
    struct live *live = state;
    (void)replica;
    const int32_t *prompt =
        live->prompt != NULL ? live->prompt(live->prompt_state, request->id) : NULL;
    live->answer_tokens[slot] = request->preemptions > 0 ? live->answer_tokens[slot] : 0;
    return sessions_admit(&live->sessions, slot, request, prompt, err);
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
    if (live->output != NULL && is_done && err->kind == ERR_NONE &&
        sessions_read(&live->sessions, slot, live->output_tokens, err) == 0) {
        (void)live->output(live->output_state, session->request->id, live->output_tokens,
                           answer > 0 ? answer : session->output_tokens, err);
    }
}

static int find_end(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    uint32_t *answer_tokens, struct err *err) {
    struct live *live = state;
    (void)replica;
    int status = end_tokens_find(&live->ends, &live->sessions, slot, request, answer_tokens, err);
    live->answer_tokens[slot] = status == 0 ? *answer_tokens : 0;
    return status;
}

static void release(void *state, uint32_t replica, uint32_t slot) {
    struct live *live = state;
    (void)replica;
    hand_out(live, slot);
    sessions_release(&live->sessions, slot);
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct live *live = state;
    ASSERT(!live->flight.busy && submission->repeat >= 1);
    live->flight = (struct flight){.submission = *submission, .start_ns = now_ns(live)};
    int status = start_step(live, submission, err);
    live->flight.busy = status == 0;
    return status;
}

static void complete(struct live *live, struct completion *out) {
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
        .decided = {.commits = live->commits,
                    .positions = tracks_rows(live) && !flight->submission.unrolled},
    };
}

/* A step is done: the batch is over, or its next step starts. */
static int pass_border(struct live *live, struct err *err) {
    struct flight *flight = &live->flight;
    double device_ns = 0;
    const struct submission *submission = &flight->submission;
    bool at_once = submission->unrolled;
    int status = at_once
                     ? finish_unrolled(live, &submission->step, submission->repeat, &device_ns, err)
                     : finish_step(live, &submission->step, false, &device_ns, err);
    flight->device_ns += device_ns;
    flight->steps_done += at_once ? submission->repeat : 1;
    flight->end_ns = now_ns(live);
    flight->is_over = flight->steps_done == flight->submission.repeat ||
                      flight->end_ns >= flight->submission.stop_ns || is_stopped(live);
    return status == 0 && !flight->is_over ? forward_again(live->engine->forward, err) : status;
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
            complete(live, out);
            return 0;
        }
        if (flight->is_over || now_ns(live) >= until_ns) {
            *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = until_ns};
            return 0;
        }
    }
}

static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct live *live = state;
    if (live->output_err.kind != ERR_NONE) {
        *err = live->output_err;
        return (int)err->kind;
    }
    if (live->flight.busy) {
        return wait_busy(live, until_ns, out, err);
    }
    int64_t now = now_ns(live);
    *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = until_ns};
    if (until_ns == INT64_MAX) {
        *out = (struct completion){.kind = COMPLETION_IDLE, .time_ns = now};
    } else if (until_ns > now && live->skips_idle) {
        live->skipped_ns += until_ns - now;
    } else if (until_ns > now) {
        out->time_ns = sleep_until(live, until_ns);
    }
    return 0;
}

/* The same whole nanoseconds as in a simulation, whose estimates decide alike. */
static int64_t estimate_ns(const void *state, const struct step_shape *shape,
                           int64_t workspace_bytes) {
    const struct live *live = state;
    struct step_price price;
    system_price(live->engine->system, shape, workspace_bytes, &price);
    return price.wall_ns < 1 ? 1 : llround(price.wall_ns);
}

struct executor live_interface(struct live *live) {
    return (struct executor){
        .state = live,
        .wants_spans = true,
        .unrolls = !is_watched(live),
        .wants_positions = tracks_rows(live),
        .decides_positions = tracks_rows(live),
        .admit = admit,
        .grow = grow,
        .release = release,
        .find_end = live->ends.n > 0 ? find_end : NULL,
        .submit = submit,
        .wait = wait_next,
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
            status = finish_step(live, planned, commits != NULL, &device_ns, err);
        }
        out->device_ns += device_ns;
    }
    out->wall_ns = (double)(monotonic_ns() - start_ns);
    return status;
}

/* The experts that choices of a step have hit, all together. */
struct hits {
    double sum;
    uint32_t n_choices;
};

/* hits NULL: nobody asks, and nothing waits. */
static int turn_by_turn(struct live *live, const struct planned_step *planned,
                        const uint32_t *commits, struct hits *hits, struct err *err) {
    struct forward *forward = live->engine->forward;
    const struct graph *graph = &live->engine->system->graph;
    int status = plan_step(live, planned, commits, err);
    if (status == 0 && commits == NULL) {
        sessions_decide_nothing(&live->sessions, planned);
    }
    status = status == 0 ? forward_begin(forward, &live->step, err) : status;
    if (status == 0 && hits == NULL) {
        return forward_finish_turns(forward, err);
    }
    while (status == 0 && forward_turn(forward) != NULL) {
        const struct turn turn = *forward_turn(forward);
        status = forward_next(forward, err);
        if (status == 0 && op_launch_of(&graph->ops[turn.op])->facts & OP_CHOOSES_EXPERTS) {
            uint32_t hit = 0;
            status = forward_experts_hit(forward, &turn, &hit, err);
            hits->sum += hit;
            hits->n_choices++;
        }
    }
    return status;
}

int live_operators(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                   double *ns, struct err *err) {
    int status = turn_by_turn(live, planned, commits, NULL, err);
    status = status == 0 ? forward_turn_times(live->engine->forward, ns, err) : status;
    return status == 0 && commits != NULL ? read_decisions(live, planned, true, err) : status;
}

int live_experts(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                 double *hit, struct err *err) {
    struct hits hits = {0};
    int status = turn_by_turn(live, planned, commits, &hits, err);
    *hit = hits.n_choices > 0 ? hits.sum / hits.n_choices : 0;
    return status == 0 && commits != NULL ? read_decisions(live, planned, true, err) : status;
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

void live_set_stop(struct live *live, const volatile sig_atomic_t *stop) {
    live->stop = stop;
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
    session_watch_open(&live->watch, watch, &live->engine->limits,
                       live->engine->system->settings.block_tokens);
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
    struct live *live = zeroed(1, sizeof *live);
    live->engine = engine;
    live->skips_idle = skips_idle;
    int status = sessions_open(&live->sessions, engine->system, engine->forward, limits, seed, err);
    if (status != 0) {
        live_close(live);
        return status;
    }
    uint32_t block = engine->system->settings.block_tokens;
    live->token = zeroed(limits->max_logit_rows, sizeof *live->token);
    live->confidence = zeroed(limits->max_logit_rows, sizeof *live->confidence);
    live->margin = zeroed(limits->max_logit_rows, sizeof *live->margin);
    live->entropy = zeroed(limits->max_logit_rows, sizeof *live->entropy);
    live->committed = zeroed(limits->max_logit_rows, sizeof *live->committed);
    live->n_committed = zeroed(limits->max_requests, sizeof *live->n_committed);
    size_t unrolled = limits->max_unrolled > 1 ? limits->max_unrolled : 1;
    live->commits = zeroed(unrolled * limits->max_requests, sizeof *live->commits);
    live->left = zeroed(limits->max_requests, sizeof *live->left);
    live->answer_tokens =
        zeroed(engine->system->settings.max_in_system, sizeof *live->answer_tokens);
    live->rows = zeroed(block, sizeof *live->rows);
    live->offsets = zeroed(block, sizeof *live->offsets);
    for (int i = 0; i < 3; i++) {
        live->seen[i] = zeroed(block, sizeof *live->seen[i]);
    }
    live->chosen = zeroed(block, sizeof *live->chosen);
    live->output_tokens = zeroed(limits->max_positions, sizeof *live->output_tokens);
    *out = live;
    return 0;
}

int live_warm(struct live *live, struct err *err) {
    return forward_warm(live->engine->forward, err);
}

void live_close(struct live *live) {
    if (live == NULL) {
        return;
    }
    if (live->flight.busy) {
        /* An interrupted run leaves a step under way, whose results nobody waits for. */
        struct err ignored = {0};
        double device_ns;
        (void)forward_wait(live->engine->forward, &device_ns, &ignored);
    }
    sessions_close(&live->sessions);
    session_watch_close(&live->watch);
    free(live->token);
    free(live->confidence);
    free(live->committed);
    free(live->n_committed);
    free(live->commits);
    free(live->left);
    free(live->rows);
    free(live->margin);
    free(live->entropy);
    free(live->offsets);
    for (int i = 0; i < 3; i++) {
        free(live->seen[i]);
    }
    free(live->chosen);
    free(live->answer_tokens);
    free(live->output_tokens);
    free(live);
}
