#include "experiments/sweep/campaign.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/identity.h"
#include "analysis/summary_output.h"
#include "experiments/cli/progress.h"
#include "experiments/run/recorder.h"
#include "experiments/sweep/claims.h"
#include "experiments/sweep/thread_pool.h"
#include "sim/base/mem.h"

/* Results that cannot be recorded now are kept up to so many bytes; then the sweep waits. */
enum { WAIT_US = 50000, MOST_KEPT_BYTES = 256 << 20 };

/* A run between its end and its turn to be recorded. */
struct pending {
    struct composition *composition; /* NULL: nothing to record */
    struct recorder *recorder;
    char digest[SHA256_HEX_CHARS]; /* of its identity; "": not known yet, or it has none */
    bool is_done;
    bool is_elsewhere; /* another program runs it */
};

/* A run that the database held before. */
struct known {
    char config[SHA256_HEX_CHARS]; /* digest of the configuration */
    int64_t run;
    bool is_damaged;
};

struct work {
    struct campaign *campaign;
    struct store *store;   /* NULL: nothing is recorded */
    struct claims *claims; /* NULL: nothing is shared */
    struct known *known;   /* by configuration, then run */
    size_t n_known, room_known;
    struct pending *pending;
    size_t *round;        /* points to be tried */
    pthread_mutex_t lock; /* over everything below, the store and the claims */
    const char **own;     /* digests that this campaign runs: a hash table of room_own places */
    size_t room_own;
    size_t n_recorded; /* points before this one are recorded or have nothing to record */
    size_t kept_bytes; /* on tapes whose turn has come and that could not be recorded */
    size_t n_done;
    struct progress progress;
    struct err store_err; /* the last one of recording */
};

/* ---- what the database held ---- */

static void digest_config(const char *config, char out[SHA256_HEX_CHARS]) {
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, config, strlen(config));
    sha256_hex(&sha, out);
}

static int keep_known(void *state, const struct stored_run *run, struct err *err) {
    struct work *work = state;
    (void)err;
    if (work->n_known == work->room_known) {
        work->room_known = 2 * work->room_known + 64;
        work->known = mem_resized(work->known, work->room_known, sizeof *work->known);
    }
    struct known *known = &work->known[work->n_known++];
    known->run = run->run;
    known->is_damaged = run->damage != NULL;
    digest_config(run->config, known->config);
    return 0;
}

static int by_config(const void *a, const void *b) {
    const struct known *x = a, *y = b;
    int order = strcmp(x->config, y->config);
    return order != 0 ? order : (x->run > y->run) - (x->run < y->run);
}

/* The latest run of a configuration, or NULL. */
static const struct known *find_known(const struct work *work, const char *config) {
    struct known after = {.run = INT64_MAX};
    digest_config(config, after.config);
    size_t low = 0, high = work->n_known;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_config(&work->known[middle], &after) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct known *last = low > 0 ? &work->known[low - 1] : NULL;
    return last != NULL && strcmp(last->config, after.config) == 0 ? last : NULL;
}

/* False where the summary is none: then the point is run again. */
static bool take_stored(struct campaign_point *point, const char *summary) {
    json_error_t trouble;
    point->summary = json_loads(summary, 0, &trouble);
    point->was_stored = point->summary != NULL;
    return point->was_stored;
}

/* ---- where a point is run ---- */

enum place_of_run { RUN_HERE, RUN_BEFORE, RUN_ELSEWHERE };

/* Where a digest stands among those that this campaign runs, or the free place for it. */
static const char **own_place(const struct work *work, const char *digest) {
    size_t at = (size_t)strtoull(digest + SHA256_HEX_CHARS - 9, NULL, 16) % work->room_own;
    while (work->own[at] != NULL && strcmp(work->own[at], digest) != 0) {
        at = (at + 1) % work->room_own;
    }
    return &work->own[at];
}

/* What cannot be read now is run. */
static bool take_recorded(struct work *work, struct campaign_point *point, const char *digest) {
    char *summary = NULL;
    struct err ignored = {0};
    (void)store_find_summary(work->store, digest, &summary, &ignored);
    bool is_taken = summary != NULL && take_stored(point, summary);
    free(summary);
    return is_taken;
}

/* Under the lock. What this campaign runs itself is run as often as it was asked for, so that the
 * order in which threads come does not matter. */
static enum place_of_run where_to_run(struct work *work, struct campaign_point *point,
                                      const struct pending *pending) {
    const char *digest = pending->digest;
    if (digest[0] == '\0' || *own_place(work, digest) != NULL) {
        return RUN_HERE;
    }
    if (take_recorded(work, point, digest)) {
        return RUN_BEFORE;
    }
    if (!claims_take(work->claims, digest)) {
        return RUN_ELSEWHERE;
    }
    /* Its owner may have recorded it and gone between our look and our claim. */
    if (take_recorded(work, point, digest)) {
        claims_drop(work->claims, digest);
        return RUN_BEFORE;
    }
    *own_place(work, digest) = digest;
    return RUN_HERE;
}

/* Under the lock, of a point to be run here: what an earlier run of the same configuration says
 * of it. Returns whether that run stands for it. */
static bool recall(struct work *work, struct campaign_point *point,
                   const struct composition *composition) {
    const struct known *known = find_known(work, composition->config);
    char *text = NULL;
    json_error_t trouble;
    if (known != NULL && known->is_damaged) {
        snprintf(point->stale, sizeof point->stale, "what was recorded of it is damaged");
        return false;
    }
    struct err ignored = {0};
    if (known == NULL || store_load_summary(work->store, known->run, &text, &ignored) != 0) {
        return false;
    }
    json_t *summary = json_loads(text, 0, &trouble);
    struct identity_difference difference =
        identity_compare(json_object_get(summary, "identity"), composition->identity, true);
    bool stands = work->campaign->any_build && !difference.inputs && take_stored(point, text);
    if (!stands && point->stale[0] == '\0') {
        snprintf(point->stale, sizeof point->stale, "%s", difference.text);
    }
    json_decref(summary);
    free(text);
    return stands;
}

static enum place_of_run take_turn(struct work *work, struct campaign_point *point,
                                   struct pending *pending, const struct composition *composition) {
    if (work->claims == NULL) {
        return RUN_HERE;
    }
    pthread_mutex_lock(&work->lock);
    snprintf(pending->digest, sizeof pending->digest, "%s", identity_digest(composition->identity));
    enum place_of_run place = where_to_run(work, point, pending);
    if (place == RUN_HERE && recall(work, point, composition)) {
        claims_drop(work->claims, pending->digest);
        place = RUN_BEFORE;
    }
    pthread_mutex_unlock(&work->lock);
    return place;
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

/* Runs what is composed, and returns whether it is to be recorded: what came to its end, and what a
 * device did until it was cut short. */
static bool run_composed(struct work *work, struct campaign_point *point, struct pending *pending,
                         struct composition *composition) {
    const struct campaign *campaign = work->campaign;
    bool is_live = compose_is_live(composition);
    struct sink sinks[2];
    uint32_t n_sinks = 0;
    if (work->store != NULL) {
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
                                  work->store != NULL && campaign->level >= STORE_STEPS,
                              .stop = campaign->stop};
    int status = compose_run(composition, &watch, &point->err);
    if (pending->recorder != NULL) {
        recorder_end(pending->recorder);
    }
    if (status == 0 && composition->result.interrupted) {
        status = err_world(&point->err, "interrupted");
    }
    status = status != 0 ? status : take_fresh(point, composition);
    return work->store != NULL &&
           (status == 0 || (is_live && composition->summary.submissions > 0));
}

/* Returns the composition when it is to be recorded. */
static struct composition *run_point(struct work *work, struct campaign_point *point,
                                     struct pending *pending) {
    struct composition *composition = NULL;
    bool waited = pending->is_elsewhere;
    pending->is_elsewhere = false;
    if (*work->campaign->stop) {
        (void)err_world(&point->err, "interrupted");
        return NULL;
    }
    bool is_kept = false;
    if (compose_open(&point->request, &composition, &point->err) == 0) {
        enum place_of_run place = take_turn(work, point, pending, composition);
        pending->is_elsewhere = place == RUN_ELSEWHERE;
        point->was_shared = place == RUN_BEFORE && waited;
        is_kept = place == RUN_HERE && run_composed(work, point, pending, composition);
    }
    point->has_no_room = compose_says_no_memory(&point->err);
    if (!is_kept) {
        recorder_close(pending->recorder);
        pending->recorder = NULL;
        compose_close(composition);
    }
    return is_kept ? composition : NULL;
}

/* What is left to do of a point that is over. False: it could not be recorded and is kept. */
static bool put_away(struct work *work, struct pending *pending) {
    if (pending->composition != NULL) {
        const struct composition *c = pending->composition;
        struct err err = {0};
        int64_t run;
        if (recorder_finish(pending->recorder, &c->summary, &c->facts, &run, &err) != 0) {
            work->store_err = err;
            return false;
        }
    }
    if (work->claims != NULL && pending->digest[0] != '\0' && !pending->is_elsewhere) {
        claims_drop(work->claims, pending->digest);
    }
    recorder_close(pending->recorder);
    compose_close(pending->composition);
    pending->recorder = NULL;
    pending->composition = NULL;
    return true;
}

static size_t kept_bytes(const struct pending *pending) {
    return pending->recorder != NULL ? recorder_bytes(pending->recorder) : 0;
}

static bool is_ready(const struct work *work) {
    return work->n_recorded < work->campaign->n && work->pending[work->n_recorded].is_done;
}

/* Put away every point whose turn has come: without waiting for locks, unless much is kept. */
static void put_away_ready(struct work *work, bool waits) {
    if (work->store != NULL) {
        store_wait(work->store, waits || work->kept_bytes > MOST_KEPT_BYTES);
    }
    while (is_ready(work)) {
        size_t bytes = kept_bytes(&work->pending[work->n_recorded]);
        if (!put_away(work, &work->pending[work->n_recorded])) {
            break;
        }
        work->kept_bytes -= work->kept_bytes < bytes ? work->kept_bytes : bytes;
        work->n_recorded++;
    }
    if (work->store != NULL) {
        store_wait(work->store, true);
    }
}

/* At the end: those that came back late, and those that could not be recorded before. */
static void put_away_rest(struct work *work) {
    struct campaign *campaign = work->campaign;
    put_away_ready(work, true);
    if (work->store != NULL) {
        store_wait(work->store, false); /* what could not be had is not waited for again */
    }
    for (size_t i = 0; i < campaign->n; i++) {
        campaign->points[i].is_unrecorded =
            work->pending[i].composition != NULL && !put_away(work, &work->pending[i]);
        campaign->n_unrecorded += campaign->points[i].is_unrecorded;
        recorder_close(work->pending[i].recorder);
        compose_close(work->pending[i].composition);
    }
    campaign->record_err = work->store_err;
}

/* Whether a point that another program ran has become ours to run, or is over. */
static bool has_come_back(struct work *work, size_t i) {
    struct pending *pending = &work->pending[i];
    struct campaign_point *point = &work->campaign->points[i];
    pthread_mutex_lock(&work->lock);
    bool is_over = take_recorded(work, point, pending->digest);
    bool is_free = !is_over && claims_take(work->claims, pending->digest);
    if (is_free) {
        claims_drop(work->claims, pending->digest); /* taken again with its composition */
    }
    if (is_over) {
        point->was_shared = true;
        pending->is_elsewhere = false;
        progress_update(&work->progress, ++work->n_done);
    }
    pthread_mutex_unlock(&work->lock);
    return is_free;
}

static void work_on(void *state, size_t index) {
    struct work *work = state;
    size_t i = work->round[index];
    struct pending *pending = &work->pending[i];
    if (pending->is_elsewhere && !*work->campaign->stop && !has_come_back(work, i)) {
        return;
    }
    struct composition *composition = run_point(work, &work->campaign->points[i], pending);
    pthread_mutex_lock(&work->lock);
    pending->composition = composition;
    pending->is_done = true;
    work->kept_bytes += kept_bytes(pending);
    bool had_its_turn = i < work->n_recorded;                     /* it was elsewhere then */
    bool is_over = composition == NULL && !pending->is_elsewhere; /* others may try it at once */
    if (had_its_turn || is_over) {
        (void)put_away(work, pending);
    }
    put_away_ready(work, false);
    work->n_done += !pending->is_elsewhere;
    progress_update(&work->progress, work->n_done);
    pthread_mutex_unlock(&work->lock);
}

/* First every point, then again and again those that another program had claimed. Points that are
 * elsewhere hold nobody up: those that come back are recorded as they end. */
static void run_rounds(struct work *work, unsigned n_threads) {
    size_t n = work->campaign->n;
    for (size_t i = 0; i < n; i++) {
        work->round[i] = i;
    }
    for (bool is_first = true; n > 0; is_first = false) {
        thread_pool_run(n, n_threads, work_on, work);
        size_t n_before = n;
        n = 0;
        for (size_t i = 0; i < n_before; i++) {
            if (work->pending[work->round[i]].is_elsewhere) {
                work->round[n++] = work->round[i];
            }
        }
        if (n > 0 && is_first) {
            fprintf(stderr, "unmask: %zu points are run by another sweep on %s\n", n,
                    work->campaign->db);
        }
        if (n > 0 && n == n_before) {
            usleep(WAIT_US);
        }
    }
}

static int open_store(struct work *work, struct err *err) {
    const struct campaign *campaign = work->campaign;
    if (campaign->db == NULL) {
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
    status = store_list_runs(work->store, keep_known, work, err);
    if (work->n_known > 0) {
        qsort(work->known, work->n_known, sizeof *work->known, by_config);
    }
    return status != 0 ? status : claims_open(campaign->db, &work->claims, err);
}

static int verdict(const struct campaign *campaign, struct err *err) {
    for (size_t i = 0; i < campaign->n; i++) {
        if (campaign->points[i].err.kind == ERR_USAGE) {
            *err = campaign->points[i].err;
            return (int)err->kind;
        }
    }
    return 0;
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

int campaign_run(struct campaign *campaign, unsigned n_threads, struct err *err) {
    struct work work = {.campaign = campaign,
                        .pending = mem_zeroed(campaign->n + 1, sizeof *work.pending),
                        .round = mem_zeroed(campaign->n + 1, sizeof *work.round),
                        .room_own = 2 * campaign->n + 1};
    work.own = mem_zeroed(work.room_own, sizeof *work.own);
    pthread_mutex_init(&work.lock, NULL);
    if (campaign->n > 0 && campaign->points[0].request.backend.kind != BACKEND_SIM) {
        n_threads = 1; /* a device is one run's at a time */
    }
    progress_start(&work.progress, "runs", campaign->n);
    int status = open_store(&work, err);
    if (status == 0) {
        run_rounds(&work, n_threads);
        put_away_rest(&work);
        status = verdict(campaign, err);
    }
    double wall_s = progress_end(&work.progress);
    if (status == 0) {
        fprintf(stderr, "unmask: %zu runs in %.3g s\n", campaign->n, wall_s);
    }
    free(work.known);
    free(work.pending);
    free(work.round);
    free(work.own);
    claims_close(work.claims);
    store_close(work.store);
    pthread_mutex_destroy(&work.lock);
    return status;
}

void campaign_fini(struct campaign *campaign) {
    for (size_t i = 0; i < campaign->n; i++) {
        json_decref(campaign->points[i].summary);
        free(campaign->points[i].notes);
        free(campaign->points[i].requests);
        campaign->points[i].requests = NULL;
        campaign->points[i].summary = NULL;
        campaign->points[i].notes = NULL;
    }
}
