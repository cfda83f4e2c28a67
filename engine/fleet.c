#include "engine/fleet.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/system.h"

/* What a replica's thread is asked to do. */
enum job { JOB_NONE, JOB_CALL, JOB_BATCH, JOB_LEAVE };

struct replica_engine {
    struct fleet *fleet;
    int32_t device;
    struct engine *engine;
    struct live *live;
    bool has_thread;
    pthread_t thread;
    pthread_cond_t asked; /* wakes this thread and no other */
    /* Under the fleet's lock. */
    enum job job;
    int (*call)(struct replica_engine *on, void *arguments, struct err *err);
    void *arguments;
    int status;
    struct err err;
    bool in_flight;         /* a batch of its own, told of or not */
    struct completion done; /* once that is over */
};

struct fleet {
    uint32_t n;
    bool has_threads;
    pthread_mutex_t lock;
    pthread_cond_t answered; /* wakes the loop, which alone waits for it */
    struct replica_engine replicas[];
};

/* ---- a replica's thread ---- */

/* With the lock, which is let go of while the device computes. */
static int run_batch(struct replica_engine *on, struct err *err) {
    bool is_over = false;
    int status = 0;
    while (status == 0 && !is_over) {
        pthread_mutex_unlock(&on->fleet->lock);
        status = live_run(on->live, err);
        pthread_mutex_lock(&on->fleet->lock);
        status = status == 0 ? live_look(on->live, &is_over, err) : status;
    }
    if (status == 0) {
        live_complete(on->live, &on->done);
    }
    return status;
}

static void *serve(void *argument) {
    struct replica_engine *on = argument;
    struct fleet *fleet = on->fleet;
    pthread_mutex_lock(&fleet->lock);
    for (;;) {
        while (on->job == JOB_NONE) {
            pthread_cond_wait(&on->asked, &fleet->lock);
        }
        if (on->job == JOB_LEAVE) {
            break;
        }
        on->err = (struct err){0};
        on->status =
            on->job == JOB_CALL ? on->call(on, on->arguments, &on->err) : run_batch(on, &on->err);
        on->job = JOB_NONE;
        pthread_cond_signal(&fleet->answered);
    }
    pthread_mutex_unlock(&fleet->lock);
    return NULL;
}

static void ask(struct replica_engine *on, enum job job) {
    on->job = job;
    pthread_cond_signal(&on->asked);
}

/* Calls `call` in the thread that uses the replica's engine, after a batch that it has under way,
 * and waits for it. */
static int call_on(struct replica_engine *on,
                   int (*call)(struct replica_engine *on, void *arguments, struct err *err),
                   void *arguments, struct err *err) {
    if (!on->has_thread) {
        return call(on, arguments, err);
    }
    while (on->job != JOB_NONE) {
        pthread_cond_wait(&on->fleet->answered, &on->fleet->lock);
    }
    on->call = call;
    on->arguments = arguments;
    ask(on, JOB_CALL);
    while (on->job != JOB_NONE) {
        pthread_cond_wait(&on->fleet->answered, &on->fleet->lock);
    }
    if (on->status != 0) {
        *err = on->err;
    }
    return on->status;
}

/* ---- the executor ---- */

/* What its functions ask of a replica's own executor, in the replica's thread. */
enum asks {
    ASKS_ADMIT,
    ASKS_GROW,
    ASKS_RELEASE,
    ASKS_SWAP_OUT,
    ASKS_DROP,
    ASKS_END,
    ASKS_KEEP_PREFIX,
    ASKS_TAKE_PREFIX,
    ASKS_AUDIT
};

struct asked {
    enum asks what;
    uint32_t slot, first;
    const struct request *request;
    const struct beginning *beginning;
    uint32_t *answer_tokens;
    bool *is_met;
    bool interrupted;
};

static int ask_own(struct replica_engine *on, void *arguments, struct err *err) {
    const struct asked *a = arguments;
    const struct executor own = live_interface(on->live);
    switch (a->what) {
    case ASKS_ADMIT:
        return own.admit(own.state, 0, a->slot, a->request, a->beginning, err);
    case ASKS_GROW:
        return own.grow(own.state, 0, a->slot, a->request, err);
    case ASKS_SWAP_OUT:
        return own.swap_out(own.state, 0, a->slot, a->request, err);
    case ASKS_KEEP_PREFIX:
        return own.keep_prefix(own.state, 0, a->slot, a->request, a->first, err);
    case ASKS_TAKE_PREFIX:
        return own.take_prefix(own.state, 0, a->slot, a->request, a->first, err);
    case ASKS_END:
        return own.find_end(own.state, 0, a->slot, a->request, a->answer_tokens, a->is_met, err);
    case ASKS_RELEASE:
        own.release(own.state, 0, a->slot);
        break;
    case ASKS_DROP:
        own.drop(own.state, 0, a->slot);
        break;
    case ASKS_AUDIT:
        own.audit(own.state, a->interrupted);
        break;
    }
    return 0;
}

static int ask_replica(struct fleet *fleet, uint32_t replica, struct asked asked, struct err *err) {
    return call_on(&fleet->replicas[replica], ask_own, &asked, err);
}

static int admit(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                 const struct beginning *beginning, struct err *err) {
    return ask_replica(
        state, replica,
        (struct asked){
            .what = ASKS_ADMIT, .slot = slot, .request = request, .beginning = beginning},
        err);
}

static int grow(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                struct err *err) {
    return ask_replica(state, replica,
                       (struct asked){.what = ASKS_GROW, .slot = slot, .request = request}, err);
}

static void release(void *state, uint32_t replica, uint32_t slot) {
    struct err never = {0};
    (void)ask_replica(state, replica, (struct asked){.what = ASKS_RELEASE, .slot = slot}, &never);
}

static int swap_out(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    struct err *err) {
    return ask_replica(state, replica,
                       (struct asked){.what = ASKS_SWAP_OUT, .slot = slot, .request = request},
                       err);
}

static void drop(void *state, uint32_t replica, uint32_t slot) {
    struct err never = {0};
    (void)ask_replica(state, replica, (struct asked){.what = ASKS_DROP, .slot = slot}, &never);
}

static int keep_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    return ask_replica(
        state, replica,
        (struct asked){.what = ASKS_KEEP_PREFIX, .slot = slot, .request = request, .first = first},
        err);
}

static int take_prefix(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err) {
    return ask_replica(
        state, replica,
        (struct asked){.what = ASKS_TAKE_PREFIX, .slot = slot, .request = request, .first = first},
        err);
}

static int find_end(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    uint32_t *answer_tokens, bool *is_met, struct err *err) {
    return ask_replica(state, replica,
                       (struct asked){.what = ASKS_END,
                                      .slot = slot,
                                      .request = request,
                                      .answer_tokens = answer_tokens,
                                      .is_met = is_met},
                       err);
}

static int ask_plan(struct replica_engine *on, void *arguments, struct err *err) {
    const struct submission *const *submission = arguments;
    return live_plan(on->live, *submission, err);
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct fleet *fleet = state;
    struct replica_engine *on = &fleet->replicas[submission->replica];
    int status = call_on(on, ask_plan, &submission, err);
    if (status == 0) {
        on->in_flight = true;
        ask(on, JOB_BATCH);
    }
    return status;
}

/* Of those whose batch is over, the one whose was first; NULL: there is none. One that failed is
 * first of all. */
static struct replica_engine *first_over(struct fleet *fleet, bool *any_in_flight) {
    struct replica_engine *first = NULL;
    *any_in_flight = false;
    for (uint32_t r = 0; r < fleet->n; r++) {
        struct replica_engine *on = &fleet->replicas[r];
        *any_in_flight |= on->in_flight;
        if (on->in_flight && on->job == JOB_NONE &&
            (first == NULL || on->status != 0 ||
             (first->status == 0 && on->done.time_ns < first->done.time_ns))) {
            first = on;
        }
    }
    return first;
}

static int tell(struct replica_engine *on, int64_t until_ns, struct completion *out,
                struct err *err) {
    if (on->status != 0) {
        *err = on->err;
        return on->status;
    }
    *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = until_ns};
    if (on->done.time_ns <= until_ns) {
        on->in_flight = false;
        *out = on->done;
        out->replica = (uint32_t)(on - on->fleet->replicas);
    }
    return 0;
}

/* A replica's look at its batch stamps the batch's end with the lock held: ends are in order, and
 * none is before a time that was told. */
static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct fleet *fleet = state;
    struct live *clock = fleet->replicas[0].live;
    for (uint32_t r = 0; r < fleet->n; r++) {
        if (live_trouble(fleet->replicas[r].live, err) != 0) {
            return (int)err->kind;
        }
    }
    for (;;) {
        bool any_in_flight;
        struct replica_engine *over = first_over(fleet, &any_in_flight);
        if (over != NULL) {
            return tell(over, until_ns, out, err);
        }
        if (!any_in_flight) {
            const struct executor own = live_interface(clock);
            return own.wait(own.state, until_ns, out, err);
        }
        const int64_t left_ns = until_ns - live_now_ns(clock);
        if (left_ns <= 0) {
            *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = until_ns};
            return 0;
        }
        const int64_t nap_ns = 20000000;
        system_condition_wait(&fleet->answered, &fleet->lock, left_ns < nap_ns ? left_ns : nap_ns);
    }
}

static int64_t estimate_ns(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t workspace_bytes, double *joules) {
    const struct fleet *fleet = state;
    const struct executor own = live_interface(fleet->replicas[replica].live);
    return own.estimate_ns(own.state, 0, shape, workspace_bytes, joules);
}

static void settle(void *state) {
    struct fleet *fleet = state;
    for (uint32_t r = 0; r < fleet->n; r++) {
        while (fleet->replicas[r].job != JOB_NONE) {
            pthread_cond_wait(&fleet->answered, &fleet->lock);
        }
    }
}

static void audit(void *state, bool interrupted) {
    struct fleet *fleet = state;
    struct err never = {0};
    for (uint32_t r = 0; r < fleet->n; r++) {
        if (!fleet->replicas[r].in_flight) {
            (void)ask_replica(
                fleet, r, (struct asked){.what = ASKS_AUDIT, .interrupted = interrupted}, &never);
        }
    }
}

struct executor fleet_interface(struct fleet *fleet) {
    struct executor executor = live_interface(fleet->replicas[0].live);
    if (fleet->has_threads) {
        executor.state = fleet;
        executor.admit = admit;
        executor.grow = grow;
        executor.release = release;
        executor.swap_out = swap_out;
        executor.drop = drop;
        executor.keep_prefix = keep_prefix;
        executor.take_prefix = take_prefix;
        executor.find_end = executor.find_end != NULL ? find_end : NULL;
        executor.submit = submit;
        executor.wait = wait_next;
        executor.settle = settle;
        executor.audit = audit;
        executor.estimate_ns = estimate_ns;
    }
    return executor;
}

/* ---- what else is asked of a replica ---- */

struct recorded {
    const struct planned_step *planned;
    uint32_t steps;
    const uint32_t *commits;
    struct live_times *times;
    double *ns;
};

static int ask_execute(struct replica_engine *on, void *arguments, struct err *err) {
    const struct recorded *r = arguments;
    return live_execute(on->live, r->planned, r->steps, r->commits, r->times, err);
}

static int ask_operators(struct replica_engine *on, void *arguments, struct err *err) {
    const struct recorded *r = arguments;
    return live_operators(on->live, r->planned, r->commits, r->ns, err);
}

int fleet_execute(struct fleet *fleet, uint32_t replica, const struct planned_step *planned,
                  uint32_t steps, const uint32_t *commits, struct live_times *out,
                  struct err *err) {
    struct recorded recorded = {
        .planned = planned, .steps = steps, .commits = commits, .times = out};
    return call_on(&fleet->replicas[replica], ask_execute, &recorded, err);
}

int fleet_operators(struct fleet *fleet, uint32_t replica, const struct planned_step *planned,
                    const uint32_t *commits, double *ns, struct err *err) {
    struct recorded recorded = {.planned = planned, .commits = commits, .ns = ns};
    return call_on(&fleet->replicas[replica], ask_operators, &recorded, err);
}

static int ask_warm(struct replica_engine *on, void *arguments, struct err *err) {
    const struct warm_watch *const *watch = arguments;
    return live_warm(on->live, *watch, err);
}

int fleet_warm(struct fleet *fleet, const struct warm_watch *watch, struct err *err) {
    int status = 0;
    for (uint32_t r = 0; status == 0 && r < fleet->n; r++) {
        status = call_on(&fleet->replicas[r], ask_warm, &watch, err);
    }
    return status;
}

static int ask_energy(struct replica_engine *on, void *arguments, struct err *err) {
    double *joules = arguments;
    (void)err;
    *joules = engine_energy_j(on->engine);
    return 0;
}

double fleet_energy_j(struct fleet *fleet) {
    double sum_j = 0;
    struct err never = {0};
    for (uint32_t r = 0; r < fleet->n && (r == 0 || sum_j > 0); r++) {
        double one_j = 0;
        (void)call_on(&fleet->replicas[r], ask_energy, &one_j, &never);
        sum_j = one_j > 0 ? sum_j + one_j : 0;
    }
    return sum_j;
}

struct engine_memory fleet_memory(const struct fleet *fleet) {
    struct engine_memory sum = {0};
    for (uint32_t r = 0; r < fleet->n; r++) {
        const struct engine_memory one = engine_memory(fleet->replicas[r].engine);
        sum.planned_bytes += one.planned_bytes;
        sum.metered_bytes += one.metered_bytes;
        sum.unmapped_bytes += one.unmapped_bytes;
        sum.is_mapped |= one.is_mapped;
        sum.mapped_peak_bytes += one.mapped_peak_bytes;
        sum.lent_bytes += one.lent_bytes;
        sum.mapping_calls += one.mapping_calls;
        sum.mapping_ns += one.mapping_ns;
        sum.side_bytes += one.side_bytes;
    }
    return sum;
}

void fleet_facts(const struct fleet *fleet, uint32_t most, const struct device_facts **out,
                 uint32_t *n) {
    *n = 0;
    for (uint32_t r = 0; r < fleet->n; r++) {
        uint32_t more;
        engine_facts(fleet->replicas[r].engine, most - *n, out + *n, &more);
        *n += more;
    }
}

int64_t fleet_activation_peak_bytes(const struct fleet *fleet) {
    int64_t most = 0;
    for (uint32_t r = 0; r < fleet->n; r++) {
        const int64_t one = live_activation_peak_bytes(fleet->replicas[r].live);
        most = one > most ? one : most;
    }
    return most;
}

int64_t fleet_pool_peak_bytes(const struct fleet *fleet) {
    int64_t most = 0;
    for (uint32_t r = 0; r < fleet->n; r++) {
        const int64_t one = live_pool_peak_bytes(fleet->replicas[r].live);
        most = one > most ? one : most;
    }
    return most;
}

uint32_t fleet_replicas(const struct fleet *fleet) {
    return fleet->n;
}

struct live *fleet_live(const struct fleet *fleet, uint32_t replica) {
    ASSERT(replica < fleet->n);
    return fleet->replicas[replica].live;
}

struct engine *fleet_engine(const struct fleet *fleet, uint32_t replica) {
    ASSERT(replica < fleet->n);
    return fleet->replicas[replica].engine;
}

void fleet_set_stop(struct fleet *fleet, const volatile sig_atomic_t *stop) {
    for (uint32_t r = 0; r < fleet->n; r++) {
        live_set_stop(fleet->replicas[r].live, stop);
    }
}

void fleet_set_ends(struct fleet *fleet, const struct end_tokens *ends) {
    for (uint32_t r = 0; r < fleet->n; r++) {
        live_set_ends(fleet->replicas[r].live, ends);
    }
}

/* ---- opening and closing ---- */

/* Replicas on the host's processor share its memory, which is taken as it is written: each engine
 * by itself finds room. What they write in any case is weights, tables and staging. */
static int check_host_memory(const struct replica_engine *first, uint32_t n, struct err *err) {
    const struct engine_device *device = &first->engine->device;
    struct device_facts facts = {0};
    int status = engine_device_err(device, device->table->facts(device->device, &facts),
                                   "asking for its free memory", err);
    const int64_t each =
        first->engine->system->budget.weights_bytes + engine_memory(first->engine).side_bytes;
    if (status != 0 || facts.capability != 0 || (n - 1) * each <= facts.free_bytes) {
        return status;
    }
    char needs[32], has[32];
    return err_world(err,
                     "%" PRIu32 " replicas plan %s more memory than the first one on this "
                     "machine, which has %s free",
                     n, num_format_bytes(needs, sizeof needs, (double)((n - 1) * each)),
                     num_format_bytes(has, sizeof has, (double)facts.free_bytes));
}

static int open_replica(struct replica_engine *on, void *arguments, struct err *err) {
    const struct fleet_request *asked = arguments;
    struct engine_request engine = asked->engine;
    engine.device = on->device;
    struct err why = {0};
    int status = engine_open(&engine, &on->engine, &why);
    status = status != 0 ? status
                         : live_open(on->engine, asked->seed, asked->skips_idle, &on->live, &why);
    if (status != 0) {
        const uint32_t replica = (uint32_t)(on - on->fleet->replicas);
        char which[40] = "";
        snprintf(which, replica > 0 ? sizeof which : 1, "replica %" PRIu32 " of %" PRIu32 ": ",
                 replica, on->fleet->n);
        err_set(err, why.kind, why.code, "%s%s", which, why.text);
    }
    return status;
}

static int close_replica(struct replica_engine *on, void *arguments, struct err *err) {
    (void)arguments;
    (void)err;
    live_close(on->live);
    engine_close(on->engine);
    on->live = NULL;
    on->engine = NULL;
    return 0;
}

static int start_thread(struct replica_engine *on, struct err *err) {
    pthread_cond_init(&on->asked, NULL);
    on->has_thread = pthread_create(&on->thread, NULL, serve, on) == 0;
    if (!on->has_thread) {
        pthread_cond_destroy(&on->asked);
        return err_world(err, "no thread for replica %u", (uint32_t)(on - on->fleet->replicas));
    }
    return 0;
}

int fleet_open(const struct fleet_request *request, struct fleet **out, struct err *err) {
    const struct settings *settings = &request->engine.system->settings;
    const uint32_t n = settings->replicas;
    struct fleet *fleet = mem_zeroed(1, sizeof *fleet + n * sizeof fleet->replicas[0]);
    struct fleet_request asked = *request;
    fleet->n = n;
    fleet->has_threads = n > 1;
    pthread_mutex_init(&fleet->lock, NULL);
    system_condition_init(&fleet->answered);
    pthread_mutex_lock(&fleet->lock);
    for (uint32_t r = 0; r < n; r++) {
        const int32_t stride = (int32_t)(r * settings->tensor_parallel);
        fleet->replicas[r].fleet = fleet;
        fleet->replicas[r].device =
            request->devices != NULL ? request->devices[r] : request->engine.device + stride;
    }
    int status = 0;
    for (uint32_t r = 0; status == 0 && r < n; r++) {
        struct replica_engine *on = &fleet->replicas[r];
        status = fleet->has_threads ? start_thread(on, err) : 0;
        status = status == 0 ? call_on(on, open_replica, &asked, err) : status;
        status = status == 0 && r == 0 && n > 1 ? check_host_memory(on, n, err) : status;
        if (status == 0 && fleet->has_threads) {
            live_join(on->live, fleet->replicas[0].live, &fleet->lock);
        }
    }
    if (status != 0) {
        fleet_close(fleet);
        return status;
    }
    *out = fleet;
    return 0;
}

/* A batch under way is waited for. */
static void leave(struct replica_engine *on) {
    struct fleet *fleet = on->fleet;
    struct err never = {0};
    (void)call_on(on, close_replica, NULL, &never);
    if (on->has_thread) {
        ask(on, JOB_LEAVE);
        pthread_mutex_unlock(&fleet->lock);
        pthread_join(on->thread, NULL);
        pthread_cond_destroy(&on->asked);
        pthread_mutex_lock(&fleet->lock);
    }
}

void fleet_close(struct fleet *fleet) {
    if (fleet == NULL) {
        return;
    }
    for (uint32_t r = 0; r < fleet->n; r++) {
        leave(&fleet->replicas[r]);
    }
    pthread_mutex_unlock(&fleet->lock);
    pthread_cond_destroy(&fleet->answered);
    pthread_mutex_destroy(&fleet->lock);
    free(fleet);
}
