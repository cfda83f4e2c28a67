#include "experiments/run/sweep/campaign.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "analysis/summary_output.h"
#include "experiments/run/limit.h"
#include "experiments/run/ranks/ranks.h"
#include "experiments/run/sweep/campaign_impl.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"

/* Results that cannot be recorded now are kept up to this many bytes; then the sweep waits. */
enum { MOST_KEPT_BYTES = 256 << 20 };
/* Until a sweep that waits for another one says so again. */
#define TELL_AFTER_NS INT64_C(10000000000)

void campaign_point_fini(struct campaign_point *point) {
    json_decref(point->summary);
    free(point->notes);
    free(point->requests);
    point->summary = NULL;
    point->notes = NULL;
    point->requests = NULL;
}

/* ---- running ---- */

/* Through its text, so that a fresh summary has the digits of a recorded one. */
static int take_fresh(struct campaign_point *point, const struct composition *composition) {
    json_t *object = NULL;
    int status = summary_json(&composition->summary, &composition->facts, &object, &point->err);
    if (status != 0) {
        return status;
    }
    char *text = summary_json_text(object, 0);
    json_error_t trouble;
    point->summary = text != NULL ? json_loads(text, 0, &trouble) : NULL;
    free(text);
    json_decref(object);
    size_t size;
    FILE *notes = mem_stream(&point->notes, &size);
    compose_print(composition, notes);
    mem_stream_close(notes);
    return 0;
}

static int keep_request(void *state, const struct request_record *record, struct err *err) {
    struct campaign_point *point = state;
    (void)err;
    if (point->n_requests == point->requests_room) {
        size_t room = 2 * point->requests_room + 256;
        point->requests = mem_resized(point->requests, room, sizeof *point->requests);
        point->requests_room = room;
    }
    point->requests[point->n_requests++] = *record;
    return 0;
}

/* Runs what is composed, and returns whether it is to be recorded: what came to its end, what a
 * device did until it was cut short, and what was served until the rest starved. */
static bool run_composed(struct work *work, struct campaign_point *point, struct pending *pending,
                         struct composition *composition) {
    const struct campaign *campaign = work->campaign;
    bool is_live = compose_is_live(composition);
    struct sink sinks[2];
    uint32_t n_sinks = 0;
    if (campaign->db != NULL) {
        pending->recorder = recorder_open(work->store, &composition->facts,
                                          &composition->summary.slo, campaign->level, is_live);
        sinks[n_sinks++] = recorder_sink(pending->recorder);
    }
    if (campaign->keeps_requests) {
        sinks[n_sinks++] = (struct sink){.state = point, .request = keep_request};
    }
    struct run_watch watch = {.sinks = sinks,
                              .n_sinks = n_sinks,
                              .records_members =
                                  campaign->db != NULL && campaign->level >= STORE_STEPS,
                              .stop = campaign->stop};
    int status = compose_run(composition, &watch, &point->err);
    if (pending->recorder != NULL) {
        recorder_end(pending->recorder);
    }
    if (status == 0 && composition->result.interrupted) {
        status = err_world(&point->err, "interrupted before it was over");
    }
    status = status != 0 ? status : take_fresh(point, composition);
    return campaign->db != NULL && (status == 0 || point->err.code == ERR_STARVES ||
                                    (is_live && composition->summary.submissions > 0));
}

static int take_bound(const struct work *work, struct campaign_point *point,
                      struct composition *composition) {
    const struct campaign *campaign = work->campaign;
    return campaign->bounds ? limit_take(&point->request, campaign->stop, composition, &point->err)
                            : 0;
}

/* The points of a campaign read one content of a file: numbers of two are not compared with each
 * other. A content that is not known is no other one. */
static int read_the_same(struct work *work, const json_t *identity, struct err *err) {
    const json_t *inputs = json_object_get(identity, "inputs"), *input;
    size_t i;
    int status = 0;
    pthread_mutex_lock(&work->lock);
    json_array_foreach(inputs, i, input) {
        const char *path = json_string_value(json_object_get(input, "path"));
        json_t *sha256 = json_object_get(input, "sha256");
        const json_t *before = path != NULL ? json_object_get(work->contents, path) : NULL;
        if (path != NULL && before == NULL && json_is_string(sha256)) {
            json_object_set(work->contents, path, sha256);
        } else if (before != NULL && json_is_string(sha256) && !json_equal(before, sha256)) {
            status = err_world(err,
                               "%s was replaced while this program ran, and earlier points read "
                               "what it was before: run those again that are missing",
                               path);
            break;
        }
    }
    pthread_mutex_unlock(&work->lock);
    return status;
}

/* Returns the composition when it is to be recorded. */
static struct composition *run_point(struct work *work, size_t i) {
    struct campaign_point *point = &work->campaign->points[i];
    struct pending *pending = &work->pending[i];
    struct composition *composition = NULL;
    if (*work->campaign->stop) {
        (void)err_world(&point->err, "interrupted before it began");
        return NULL;
    }
    bool is_kept = false;
    if (compose_open(&point->request, &composition, &point->err) == 0 &&
        read_the_same(work, composition->identity, &point->err) == 0) {
        enum place_of_run place = (ranks_is_helper() ? campaign_ask_for_turn : campaign_turn)(
            work, i, composition->config, composition->identity);
        point->was_shared = place == RUN_BEFORE && pending->has_waited;
        is_kept = place == RUN_HERE && take_bound(work, point, composition) == 0 &&
                  run_composed(work, point, pending, composition);
    }
    point->has_no_room = compose_says_no_memory(&point->err);
    if (!is_kept) {
        recorder_close(pending->recorder);
        pending->recorder = NULL;
        compose_close(composition);
    }
    return is_kept ? composition : NULL;
}

void campaign_drop_records(struct pending *pending) {
    recorder_close(pending->recorder);
    compose_close(pending->composition);
    handed_close(pending->handed);
    pending->recorder = NULL;
    pending->composition = NULL;
    pending->handed = NULL;
}

size_t campaign_kept_bytes(const struct pending *pending) {
    return pending->recorder != NULL ? recorder_bytes(pending->recorder)
                                     : handed_bytes(pending->handed);
}

/* At the end: what could be recorded is, and nothing is claimed any more. */
static void put_away_rest(struct work *work) {
    struct campaign *campaign = work->campaign;
    (void)protocol_do(&work->protocol, PROTOCOL_FINISH, campaign->n, true);
    for (size_t i = 0; i < campaign->n; i++) {
        campaign->points[i].is_unrecorded = campaign_has_records(&work->pending[i]);
        campaign->n_unrecorded += campaign->points[i].is_unrecorded;
        campaign_drop_records(&work->pending[i]);
    }
    campaign->record_err = work->store_err;
}

/* Whether a point that another program ran is claimed for this one now. */
static bool has_come_back(struct work *work, size_t i) {
    struct campaign_point *point = &work->campaign->points[i];
    pthread_mutex_lock(&work->lock);
    enum point_state state = protocol_do(&work->protocol, PROTOCOL_TURN, i, true);
    if (state == POINT_RECORDED) {
        point->was_shared = true;
        progress_update(&work->progress, ++work->n_done);
    }
    work->has_seen_one = work->has_seen_one || state != POINT_ELSEWHERE;
    pthread_mutex_unlock(&work->lock);
    return state == POINT_CLAIMED;
}

/* A point is over, here or on another rank, or another program runs it. */
void campaign_come_in(struct work *work, size_t i, struct composition *composition,
                      struct handed *handed) {
    struct pending *pending = &work->pending[i];
    pthread_mutex_lock(&work->lock);
    enum point_state state = campaign_state(work, i);
    pending->composition = composition;
    pending->handed = handed;
    work->kept_bytes += campaign_kept_bytes(pending);
    if (campaign_has_records(pending)) {
        protocol_ended(&work->protocol, i);
    } else if (state <= POINT_CLAIMED || work->campaign->points[i].err.kind != ERR_NONE) {
        /* Others may try it at once. */
        (void)protocol_do(&work->protocol, PROTOCOL_OVER, i, false);
    }
    (void)protocol_do(&work->protocol, PROTOCOL_PUT_READY, i, work->kept_bytes > MOST_KEPT_BYTES);
    work->n_done += state != POINT_ELSEWHERE;
    progress_update(&work->progress, work->n_done);
    pthread_mutex_unlock(&work->lock);
}

static void work_on(void *state, size_t index) {
    struct work *work = state;
    size_t i = work->round[index];
    struct pending *pending = &work->pending[i];
    if (pending->has_waited && !*work->campaign->stop && !has_come_back(work, i)) {
        return;
    }
    struct composition *composition = run_point(work, i);
    if (ranks_is_helper()) {
        pending->composition = composition;
    } else {
        campaign_come_in(work, i, composition, NULL);
    }
}

/* The points that are elsewhere; returns how many. */
static size_t list_elsewhere(struct work *work) {
    size_t n = 0;
    for (size_t i = 0; !ranks_is_helper() && i < work->campaign->n; i++) {
        if (campaign_state(work, i) == POINT_ELSEWHERE) {
            work->pending[i].has_waited = true;
            work->round[n++] = i;
        }
    }
    return n;
}

/* Says at first that others run points, then after 10, 20, 40, ... s in which none has ended. */
static void tell_waiting(struct work *work, size_t n) {
    int64_t now_ns = monotonic_ns();
    if (work->tell_at_ns == 0) {
        fprintf(stderr, "unmask: %zu points are run by another sweep on %s\n", n,
                work->campaign->db);
    } else if (!work->has_seen_one && now_ns >= work->tell_at_ns) {
        fprintf(stderr,
                "unmask: %zu points are run by another sweep on %s, which has ended none for %lld "
                "s: is it stopped?\n",
                n, work->campaign->db, (long long)((now_ns - work->waits_since_ns) / 1000000000));
        work->tell_at_ns = now_ns + (now_ns - work->waits_since_ns);
    }
    if (work->has_seen_one || work->waits_since_ns == 0) {
        work->waits_since_ns = now_ns;
        work->tell_at_ns = now_ns + TELL_AFTER_NS;
    }
}

/* First every point, then again and again those that another program had claimed. Points that run
 * elsewhere delay no others: those that come back are recorded as they end. */
static void run_rounds(struct work *work, unsigned n_threads, bool is_shared) {
    const struct campaign *campaign = work->campaign;
    size_t n = 0;
    for (size_t i = 0; i < campaign->n; i++) {
        work->round[n] = i;
        n += campaign_has(campaign, i);
        work->points[i].state = campaign_has(campaign, i) ? POINT_OPEN : POINT_OVER;
    }
    for (bool is_first = true; n > 0; is_first = false) {
        struct pool pool = {.n = n, .n_threads = n_threads, .state = work, .work = work_on};
        if (is_first && is_shared) {
            pool.put = campaign_put;
            pool.take = campaign_take;
            pool.answer = campaign_answer_turn;
        }
        work->has_seen_one = false;
        pool_run(&pool);
        n = list_elsewhere(work);
        if (n > 0) {
            tell_waiting(work, n);
            (void)protocol_do(&work->protocol, PROTOCOL_WAIT, campaign->n, true);
        }
    }
    for (size_t i = 0; i < campaign->n; i++) { /* other ranks did not end them */
        if (campaign_state(work, i) <= POINT_CLAIMED) {
            (void)err_world(&campaign->points[i].err, "interrupted before it began");
            (void)protocol_do(&work->protocol, PROTOCOL_OVER, i, false);
        }
    }
}

/* A recorded run has its bound in it or not, whichever was asked for then. */
static void bound_stored(void *state, size_t i) {
    const struct campaign *campaign = state;
    struct campaign_point *point = &campaign->points[i];
    struct bound bound;
    if (!point->was_stored ||
        (json_object_get(point->summary, "bound") != NULL) == campaign->bounds) {
        return;
    }
    if (!campaign->bounds) {
        json_object_del(point->summary, "bound");
    } else if (limit_find(&point->request, campaign->stop, &bound, &point->err) == 0) {
        json_t *object = limit_json(&bound);
        (void)summary_put_bound(point->summary, object);
        json_decref(object);
    } else {
        json_decref(point->summary);
        point->summary = NULL;
    }
}

static int open_store(struct work *work, struct err *err) {
    const struct campaign *campaign = work->campaign;
    if (campaign->db == NULL || ranks_is_helper()) {
        return 0;
    }
    store_stop_on(campaign->stop);
    int status = store_open(campaign->db, STORE_WRITE, &work->store, err);
    if (status != 0) {
        return status;
    }
    if (!campaign->resumes) {
        return 0;
    }
    status = store_list_runs(work->store, campaign_keep_known, work, err);
    campaign_sort_known(work);
    return status != 0 ? status : claims_open(campaign->db, &work->claims, err);
}

static int verdict(const struct campaign *campaign, struct err *err) {
    const struct err *first = NULL;
    size_t n = 0, n_wrong = 0;
    for (size_t i = 0; i < campaign->n; i++) {
        const struct campaign_point *point = &campaign->points[i];
        const bool is_wrong = point->err.kind == ERR_USAGE;
        first = is_wrong && first == NULL ? &point->err : first;
        n += campaign_has(campaign, i);
        n_wrong += is_wrong;
    }
    if (first == NULL || (campaign->takes_some && n_wrong < n)) {
        return 0;
    }
    *err = *first;
    return (int)err->kind;
}

/* "3 to 7, 9", of the points that were not recorded. */
static void list_unrecorded(const struct campaign *campaign, char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0, n; i < campaign->n && used + 64 < size; i += n) {
        for (n = 0; i + n < campaign->n && campaign->points[i + n].is_unrecorded; n++) {
        }
        if (n > 0) {
            used += (size_t)snprintf(out + used, size - used, "%s%zu", used > 0 ? ", " : "", i + 1);
        }
        if (n > 1) {
            used += (size_t)snprintf(out + used, size - used, " to %zu", i + n);
        }
        n += n == 0;
    }
}

int campaign_check_recorded(const struct campaign *campaign, int status, struct err *err) {
    char points[256];
    struct err late = {0};
    if (campaign->n_unrecorded == 0) {
        return status;
    }
    list_unrecorded(campaign, points, sizeof points);
    err_world(&late, "%zu of %zu runs were not recorded (%s): %s", campaign->n_unrecorded,
              campaign->n, points, campaign->record_err.text);
    if (status != 0) {
        fprintf(stderr, "unmask: %s\n", late.text);
        return status;
    }
    *err = late;
    return (int)late.kind;
}

/* "216 runs", or "15 of 216 runs" where the others were not run, as after an interrupt. */
static void say_runs(const struct campaign *campaign, double wall_s) {
    size_t n = 0, n_done = 0;
    for (size_t i = 0; i < campaign->n; i++) {
        bool is_done = campaign->points[i].summary != NULL ||
                       (campaign->points[i].err.kind != ERR_NONE && !*campaign->stop);
        n += campaign_has(campaign, i);
        n_done += campaign_has(campaign, i) && is_done;
    }
    if (n_done < n) {
        fprintf(stderr, "unmask: %zu of %zu runs in %.3g s\n", n_done, n, wall_s);
    } else {
        fprintf(stderr, "unmask: %zu run%s in %.3g s\n", n, n == 1 ? "" : "s", wall_s);
    }
}

/* As many threads as there are files for: each run has up to FILES_EACH open, the program SPARE. */
static unsigned threads_for_files(unsigned n_threads) {
    enum { FILES_EACH = 3, SPARE = 10 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return n_threads;
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    rlim_t most = limit.rlim_cur > SPARE + FILES_EACH ? (limit.rlim_cur - SPARE) / FILES_EACH : 1;
    return most < n_threads ? (unsigned)most : n_threads;
}

int campaign_run(struct campaign *campaign, unsigned n_threads, struct err *err) {
    struct work work = {.campaign = campaign,
                        .pending = mem_zeroed(campaign->n + 1, sizeof *work.pending),
                        .round = mem_zeroed(campaign->n + 1, sizeof *work.round),
                        .points = mem_zeroed(campaign->n + 1, sizeof *work.points),
                        .room_own = 2 * campaign->n + 1,
                        .contents = json_object()};
    work.protocol = (struct protocol){
        .ops = &campaign_ops, .state = &work, .points = work.points, .n = campaign->n};
    work.own = mem_zeroed(work.room_own, sizeof *work.own);
    pthread_mutex_init(&work.lock, NULL);
    bool is_live = campaign->n > 0 && campaign->points[0].request.backend.kind != BACKEND_SIM;
    n_threads = is_live ? 1 : threads_for_files(n_threads); /* a device is one run's at a time */
    progress_start(&work.progress, "runs", campaign->n);
    int status = open_store(&work, err);
    if (status == 0) {
        run_rounds(&work, n_threads, !is_live);
        struct pool bounds = {
            .n = campaign->n, .n_threads = n_threads, .state = campaign, .work = bound_stored};
        if (!ranks_is_helper()) {
            pool_run(&bounds);
        }
        put_away_rest(&work);
        status = verdict(campaign, err);
    }
    double wall_s = progress_end(&work.progress);
    if (status == 0 && !ranks_is_helper()) {
        say_runs(campaign, wall_s);
        if (campaign->n_held > 0 && !campaign->resumes) {
            fprintf(stderr, "unmask: %zu of them are in %s already, and are not recorded again\n",
                    campaign->n_held, campaign->db);
        }
    }
    free(work.known);
    free(work.pending);
    free(work.round);
    free(work.own);
    free(work.points);
    json_decref(work.contents);
    store_close(work.store);
    claims_close(work.claims); /* last: see claims.h */
    pthread_mutex_destroy(&work.lock);
    return status;
}

void campaign_fini(struct campaign *campaign) {
    for (size_t i = 0; i < campaign->n; i++) {
        campaign_point_fini(&campaign->points[i]);
    }
}
