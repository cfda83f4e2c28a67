#include "experiments/study/capacity.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/spread.h"
#include "analysis/summary_output.h"
#include "experiments/run/cli/progress.h"
#include "experiments/run/limit.h"
#include "experiments/run/ranks/pool.h"
#include "experiments/run/ranks/ranks.h"
#include "sim/base/mem.h"

const char *const capacity_limit_words[] = {NULL, "compute", "memory", "admission", "host"};
const char *const capacity_state_words[] = {"found", "none", "unbounded", "failed"};

static const double curve_places[CAPACITY_CURVE] = {0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2};
static const double at_once_per_s = 1e6, waits_share = 0.1, idle_share = 0.5;
/* Twice what runs together: the second half waits as long as the first runs. */
enum { MOST_HALVINGS = 30, EXPECTED_RUNS = 11, FEW_TIMES = 2 };

/* ---- one run ---- */

/* What a run's requests and steps say. */
struct watching {
    const struct objectives *objectives;
    struct served *served;
    size_t n, room;
    size_t most;                      /* requests that may come; 0: it is run to its end */
    size_t n_passed[OBJECTIVES_MOST]; /* requests beyond each bound */
    bool has_company;                 /* a request met another */
    bool is_cut;
    int64_t pool_bytes;
    double waiting_ns, full_ns, steps_ns, gpu_ns;
};

/* Whether this request decides that an objective is missed. Of requests that never met another it
 * is not known whether they would have. */
static bool is_lost_by(struct watching *w, const struct served *served) {
    bool is_lost = false;
    for (size_t i = 0; i < w->objectives->n; i++) {
        w->n_passed[i] += objective_is_passed(w->objectives, i, served);
        is_lost = is_lost || objective_is_lost(&w->objectives->items[i], w->n_passed[i], w->most);
    }
    return is_lost && w->has_company;
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct watching *w = state;
    w->served = mem_grown(w->served, w->n, &w->room, sizeof *w->served);
    w->served[w->n] = served_of(record);
    w->is_cut = w->most > 0 && is_lost_by(w, &w->served[w->n]);
    w->n++;
    return w->is_cut ? err_world(err, "the rest cannot change the verdict") : 0;
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct watching *w = state;
    (void)err;
    double ns = (double)(record->end_ns - record->start_ns);
    w->has_company = w->has_company || record->n_running > 1 || record->n_waiting > 0;
    w->steps_ns += ns;
    w->gpu_ns += (double)record->gpu_ns * record->repeat;
    if (record->n_waiting > 0 && record->n_running > 0) {
        bool is_full = (w->pool_bytes - record->kv_used_bytes) * (int64_t)record->n_running <
                       record->kv_used_bytes;
        w->waiting_ns += ns;
        w->full_ns += is_full ? ns : 0;
    }
    return 0;
}

static enum capacity_limit limit_of(const struct trial *trial) {
    if (trial->queue_share >= waits_share) {
        return trial->full_share > 0.5 ? LIMIT_MEMORY : LIMIT_ADMISSION;
    }
    return trial->gpu_share < idle_share ? LIMIT_HOST : LIMIT_COMPUTE;
}

static int judge(const struct composition *c, const struct watching *w, double bound_per_s,
                 struct trial *out, struct err *err) {
    const struct objectives *objectives = w->objectives;
    const struct summary *s = &c->summary;
    struct offered offered = s->offered;
    offered_judge_by_bound(&offered, bound_per_s);
    out->offered_req_s = offered.rate_req_s;
    out->n_requests = s->requests;
    out->n_together = (uint64_t)s->replicas * s->max_batch;
    out->replicas = s->replicas;
    out->gpus = system_gpus(c->system);
    out->state = offered.state;
    out->is_alone = s->max_batch <= 1 && s->max_waiting == 0;
    for (size_t i = 0; i < objectives->n; i++) {
        const struct objective *o = &objectives->items[i];
        out->values[i] = objective_value(objectives, i, w->served, w->n);
        if (isnan(out->values[i])) {
            return err_usage(err, "--slo: '%s' speaks of no request of this workload", o->text);
        }
    }
    out->is_met = out->state == OFFERED_STEADY && objectives_are_met(objectives, out->values);
    out->attainment = objectives_attainment(objectives, w->served, w->n);
    out->served_req_s = s->throughput_req_s;
    out->attained_req_s = out->attainment * out->offered_req_s;
    out->queue_share = s->latency.mean > 0 ? s->queue.mean / s->latency.mean : 0;
    out->full_share = w->waiting_ns > 0 ? w->full_ns / w->waiting_ns : 0;
    out->gpu_share = w->gpu_ns > 0 && w->steps_ns > 0 ? w->gpu_ns / w->steps_ns : (double)NAN;
    const double joules = run_energy_joules(&c->facts.energy);
    out->joules_per_token =
        joules > 0 && s->answer_tokens > 0 ? joules / (double)s->answer_tokens : (double)NAN;
    out->limit = limit_of(out);
    return 0;
}

/* Rates are numbers that can be typed: `unmask run --rate` gives the same run. */
static double typed(double rate_per_s) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", rate_per_s);
    return strtod(text, NULL);
}

/* Whether the summary of this trial is worth keeping. */
static bool is_best(const struct capacity *capacity, const struct search *search,
                    const struct trial *trial) {
    const bool is_higher =
        trial->rate_per_s > search->met.rate_per_s &&
        (search->missed.rate_per_s == 0 || trial->rate_per_s < search->missed.rate_per_s);
    return search->summary == NULL || (trial->is_met && (capacity->fleet_req_s > 0 || is_higher));
}

/* Runs it, and says what came of it. */
static int run(const struct capacity *capacity, struct composition *c, struct watching *watching,
               double bound_per_s, struct trial *out, struct err *err) {
    struct sink sink = {.state = watching, .request = on_request, .step = on_step};
    struct run_watch watch = {.sinks = &sink, .n_sinks = 1, .stop = capacity->stop};
    int status = compose_run(c, &watch, err);
    if (watching->is_cut) {
        *err = (struct err){0};
        out->is_cut = true;
        return 0;
    }
    if (status == 0 && c->result.interrupted) {
        status = err_world(err, "interrupted: the search is not over, and has no answer yet");
    }
    return status != 0 ? status : judge(c, watching, bound_per_s, out, err);
}

int capacity_try(const struct capacity *capacity, struct search *search,
                 const struct run_request *request, double bound_per_s, bool may_cut,
                 struct trial *out, struct err *err) {
    struct composition *c = NULL;
    struct watching watching = {.objectives = capacity->objectives};
    *out = (struct trial){.rate_per_s = request->options.rate_per_s};
    int status = *capacity->stop
                     ? err_world(err, "interrupted: the search is not over, and has no answer yet")
                     : compose_open(request, &c, err);
    if (status == 0 && workload_source(c->workload).completed != NULL) {
        status = err_usage(err,
                           "capacity searches a rate of arrivals, and those of %s follow from the "
                           "ends of other requests: look at `run` or `sweep` over rates",
                           request->workload);
    }
    if (status == 0) {
        watching.pool_bytes = c->system->budget.pool_bytes;
        watching.most = may_cut ? compose_requests(c) : 0;
        search->gpus = system_gpus(c->system);
        status = run(capacity, c, &watching, bound_per_s, out, err);
    }
    if (status == 0 && capacity->fleet_req_s > 0 && search->n_runs == 0) {
        status = released_of(c->system, search->request.systems_path, &search->released, err);
    }
    if (status == 0 && is_best(capacity, search, out)) {
        json_decref(search->summary);
        search->summary = NULL;
        status = summary_json(&c->summary, &c->facts, &search->summary, err);
    }
    compose_close(c);
    free(watching.served);
    search->n_runs++;
    if (status != 0) {
        *out = (struct trial){0};
    }
    return status;
}

static int try_rate(const struct capacity *capacity, struct search *search, double rate_per_s,
                    bool may_cut, struct trial *out, struct err *err) {
    struct run_request request = search->request;
    request.options.rate_per_s = typed(rate_per_s);
    return capacity_try(capacity, search, &request, search->bound_per_s, may_cut, out, err);
}

/* ---- one search ---- */

/* Take in a rate that was tried, between those that are known. */
static void narrow(struct search *search, const struct trial *trial) {
    if (trial->is_met && trial->rate_per_s > search->met.rate_per_s) {
        search->met = *trial;
    } else if (!trial->is_met &&
               (search->missed.rate_per_s == 0 || trial->rate_per_s < search->missed.rate_per_s)) {
        search->missed = *trial;
    }
}

static int bisect(const struct capacity *capacity, struct search *search, struct err *err) {
    enum { NEAR = 3 }; /* halvings before the last one: what misses may be the lowest that does */
    int status = 0;
    while (status == 0 &&
           search->missed.rate_per_s > search->met.rate_per_s * (1 + capacity->tolerance)) {
        struct trial trial;
        double middle = sqrt(search->missed.rate_per_s * search->met.rate_per_s);
        bool may_cut = log(middle / search->met.rate_per_s) > NEAR * log1p(capacity->tolerance);
        status = try_rate(capacity, search, middle, may_cut, &trial, err);
        if (status != 0 || trial.rate_per_s <= search->met.rate_per_s ||
            trial.rate_per_s >= search->missed.rate_per_s) {
            break; /* no number of six digits lies between them */
        }
        narrow(search, &trial);
    }
    return status;
}

/* The lowest rate that misses is reported: by a whole run. */
static int complete_missed(const struct capacity *capacity, struct search *search,
                           struct err *err) {
    return search->missed.is_cut
               ? try_rate(capacity, search, search->missed.rate_per_s, false, &search->missed, err)
               : 0;
}

/* A rate that is met and one above it that is not, from a first one on. */
static int bracket(const struct capacity *capacity, struct search *search, double rate_per_s,
                   struct err *err) {
    for (int i = 0; i < MOST_HALVINGS; i++) {
        struct trial trial;
        int status = try_rate(capacity, search, rate_per_s, true, &trial, err);
        if (status != 0) {
            return status;
        }
        narrow(search, &trial);
        if (search->met.rate_per_s > 0 && search->missed.rate_per_s > 0) {
            return 0;
        }
        bool is_hopeless = trial.is_alone && trial.state != OFFERED_UNKNOWN;
        if (!trial.is_met && is_hopeless) {
            break;
        }
        rate_per_s = trial.is_met ? 2 * rate_per_s : rate_per_s / 2;
        if (rate_per_s >= at_once_per_s || rate_per_s < 1e-6) {
            break;
        }
    }
    search->state = search->met.rate_per_s > 0 ? CAPACITY_UNBOUNDED : CAPACITY_NONE;
    return 0;
}

static int search_one(const struct capacity *capacity, struct search *search, struct err *err) {
    struct trial trial;
    int status = try_rate(capacity, search, at_once_per_s, false, &trial, err);
    search->n_requests = trial.n_requests;
    search->n_together = trial.n_together;
    bool all_met = status == 0 && objectives_are_met(capacity->objectives, trial.values);
    if (status != 0 || all_met || trial.served_req_s <= 0) {
        search->state = all_met ? CAPACITY_UNBOUNDED : CAPACITY_NONE;
        search->missed = all_met ? search->missed : trial;
        return status;
    }
    status = bracket(capacity, search, trial.served_req_s, err);
    return status != 0 || search->state != CAPACITY_FOUND ? status : bisect(capacity, search, err);
}

/* What the curve says against the capacity: higher rates that are met, lower ones that are not. */
static int search_again(const struct capacity *capacity, struct search *search, struct err *err) {
    struct trial below = {0};
    search->highest_met_req_s = search->met.offered_req_s;
    for (size_t i = 0; i < CAPACITY_CURVE; i++) {
        const struct trial *trial = &search->curve[i];
        double rate = trial->rate_per_s;
        if (rate > 0 && trial->is_met && trial->offered_req_s > search->highest_met_req_s) {
            search->highest_met_req_s = trial->offered_req_s;
        }
        if (rate > 0 && !trial->is_met && rate < search->met.rate_per_s && below.rate_per_s == 0) {
            below = *trial;
        }
    }
    if (below.rate_per_s == 0) {
        return 0;
    }
    search->missed = below;
    search->met = (struct trial){0};
    for (size_t i = 0; i < CAPACITY_CURVE; i++) {
        if (search->curve[i].rate_per_s < below.rate_per_s) {
            narrow(search, &search->curve[i]);
        }
    }
    int status =
        search->met.rate_per_s == 0 ? bracket(capacity, search, below.rate_per_s / 2, err) : 0;
    return status != 0 || search->state != CAPACITY_FOUND ? status : bisect(capacity, search, err);
}

/* ---- all of them ---- */

struct finding {
    struct capacity *capacity;
    double *means; /* by configuration; NaN: not known */
    pthread_mutex_t lock;
    struct progress progress;
    size_t n_runs;
    enum { BISECTING, DRAWING, CHECKING } stage;
};

static void count(struct finding *finding, size_t n) {
    pthread_mutex_lock(&finding->lock);
    finding->n_runs += n;
    progress_update(&finding->progress, finding->n_runs);
    pthread_mutex_unlock(&finding->lock);
}

static void fail(struct search *search, const struct err *err) {
    search->state = CAPACITY_FAILED;
    search->err = *err;
    search->has_no_room = compose_says_no_memory(err);
}

static double find_bound(const struct capacity *capacity, const struct search *search) {
    struct bound bound;
    struct err ignored = {0};
    bool is_found = limit_find(&search->request, capacity->stop, &bound, &ignored) == 0;
    return is_found ? bound.saturated_req_s : (double)NAN;
}

static void work_on(void *state, size_t index) {
    struct finding *finding = state;
    struct capacity *capacity = finding->capacity;
    struct search *search = &capacity->searches[index];
    struct err err = {0};
    size_t before = search->n_runs;
    int status = 0;
    if (finding->stage == BISECTING) {
        search->bound_per_s = find_bound(capacity, search);
        status = capacity->fleet_req_s > 0 ? fleet_find(capacity, search, &err)
                                           : search_one(capacity, search, &err);
    } else if (search->state == CAPACITY_FOUND && finding->stage == CHECKING) {
        status = search_again(capacity, search, &err);
    } else if (search->state == CAPACITY_FOUND) {
        double mean = finding->means[index / capacity->n_seeds];
        for (size_t i = 0; i < CAPACITY_CURVE && status == 0 && mean > 0; i++) {
            status =
                try_rate(capacity, search, curve_places[i] * mean, false, &search->curve[i], &err);
        }
    }
    status = status != 0 ? status : complete_missed(capacity, search, &err);
    if (status != 0) {
        fail(search, &err);
    }
    count(finding, search->n_runs - before);
}

/* Between ranks: a search as far as it is, there and back, and the mean that the curve is around.
 */
static void put(void *state, size_t index, struct parcel *out) {
    const struct finding *finding = state;
    const struct search *search = &finding->capacity->searches[index];
    parcel_put(out, search, sizeof *search);
    parcel_put_json(out, search->summary);
    parcel_put(out, &finding->means[index / finding->capacity->n_seeds], sizeof(double));
}

static void take(void *state, size_t index, struct parcel *in) {
    struct finding *finding = state;
    struct search *search = &finding->capacity->searches[index], before = *search;
    parcel_take(in, search, sizeof *search);
    search->request = before.request;
    json_decref(before.summary);
    search->summary = parcel_take_json(in);
    parcel_take(in, &finding->means[index / finding->capacity->n_seeds], sizeof(double));
    if (!ranks_is_helper()) {
        count(finding, search->n_runs - before.n_runs);
    }
}

double search_capacity(const struct search *search) {
    return search->state == CAPACITY_FOUND  ? search->met.offered_req_s
           : search->state == CAPACITY_NONE ? 0
                                            : (double)NAN;
}

bool search_has_few_requests(const struct search *search) {
    return search->n_requests < FEW_TIMES * search->n_together;
}

static void average(struct finding *finding) {
    const struct capacity *capacity = finding->capacity;
    for (size_t i = 0; i < capacity->n_configs; i++) {
        finding->means[i] = 0;
        for (size_t s = 0; s < capacity->n_seeds; s++) {
            finding->means[i] += search_capacity(&capacity->searches[i * capacity->n_seeds + s]) /
                                 (double)capacity->n_seeds;
        }
    }
}

static int verdict(const struct capacity *capacity, struct err *err) {
    size_t n = capacity->n_configs * capacity->n_seeds;
    const struct search *failed = NULL;
    for (size_t i = n; i-- > 0;) {
        const struct search *search = &capacity->searches[i];
        failed = search->state == CAPACITY_FAILED ? search : failed;
        n -= search->state == CAPACITY_FAILED;
    }
    if (*capacity->stop) {
        return err_world(err, "interrupted: the search is not over, and has no answer yet");
    }
    if (n == 0 && failed != NULL) {
        *err = failed->err;
        return err_status(err);
    }
    return 0;
}

int capacity_find(struct capacity *capacity, unsigned n_threads, struct err *err) {
    size_t n = capacity->n_configs * capacity->n_seeds;
    struct finding finding = {.capacity = capacity,
                              .means = mem_zeroed(capacity->n_configs, sizeof(double))};
    pthread_mutex_init(&finding.lock, NULL);
    progress_start(&finding.progress, "runs",
                   n * (EXPECTED_RUNS + (capacity->curves ? CAPACITY_CURVE : 0)));
    for (int stage = BISECTING; stage <= (capacity->curves ? CHECKING : BISECTING); stage++) {
        finding.stage = stage;
        pool_run(&(struct pool){.n = n,
                                .n_threads = n_threads,
                                .state = &finding,
                                .work = work_on,
                                .put = put,
                                .take = take});
        average(&finding);
    }
    double wall_s = progress_end(&finding.progress);
    int status = verdict(capacity, err);
    if (status == 0 && !ranks_is_helper()) {
        fprintf(stderr, "unmask: %zu run%s in %.3g s\n", finding.n_runs,
                finding.n_runs == 1 ? "" : "s", wall_s);
    }
    free(finding.means);
    pthread_mutex_destroy(&finding.lock);
    return status;
}

void capacity_fini(struct capacity *capacity) {
    for (size_t i = 0; i < capacity->n_configs * capacity->n_seeds; i++) {
        json_decref(capacity->searches[i].summary);
        capacity->searches[i].summary = NULL;
    }
}
