#include "experiments/campaign.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/crew.h"
#include "experiments/progress.h"
#include "experiments/tape.h"

/* A run between its end and its turn to be recorded. */
struct pending {
    struct composition *composition; /* NULL: nothing to record */
    struct tape tape;
    bool is_done;
};

struct known {
    char *config, *summary;
};

struct work {
    struct campaign *campaign;
    struct store *store; /* NULL: nothing is recorded */
    struct known *known; /* what the database held before */
    size_t n_known, room_known;
    struct pending *pending;
    pthread_mutex_t lock; /* over everything below, and the store */
    size_t n_recorded;    /* points before this one are recorded or have nothing to record */
    size_t n_done;
    struct progress progress;
    struct err store_err;
};

static int keep_known(void *state, const struct stored_run *run, struct err *err) {
    struct work *work = state;
    if (work->n_known == work->room_known) {
        work->room_known = 2 * work->room_known + 64;
        work->known = realloc(work->known, work->room_known * sizeof *work->known);
        ASSERT(work->known != NULL);
    }
    if (run->summary == NULL) {
        return 0;
    }
    struct known *known = &work->known[work->n_known++];
    known->config = strdup(run->config);
    known->summary = strdup(run->summary);
    return known->config != NULL && known->summary != NULL
               ? 0
               : err_world(err, "out of memory while reading the runs of the database");
}

static const struct known *find_known(const struct work *work, const char *config) {
    for (size_t i = 0; i < work->n_known; i++) {
        if (strcmp(work->known[i].config, config) == 0) {
            return &work->known[i];
        }
    }
    return NULL;
}

static int take_known(struct campaign_point *point, const struct known *known) {
    json_error_t trouble;
    point->summary = json_loads(known->summary, 0, &trouble);
    point->was_stored = point->summary != NULL;
    return point->was_stored
               ? 0
               : err_world(&point->err, "a recorded summary is no JSON: %s", trouble.text);
}

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
    FILE *notes = open_memstream(&point->notes, &size);
    if (point->summary == NULL || notes == NULL) {
        return err_world(&point->err, "out of memory");
    }
    compose_print(composition, notes);
    fclose(notes);
    return 0;
}

/* Returns the composition when it is to be recorded. */
static struct composition *run_point(struct work *work, struct campaign_point *point,
                                     struct tape *tape) {
    struct campaign *campaign = work->campaign;
    struct composition *composition = NULL;
    if (*campaign->stop) {
        (void)err_world(&point->err, "interrupted");
        return NULL;
    }
    int status = compose_open(&point->request, &composition, &point->err);
    const struct known *known =
        status == 0 && campaign->resumes ? find_known(work, composition->config) : NULL;
    if (known != NULL) {
        (void)take_known(point, known);
        compose_close(composition);
        return NULL;
    }
    struct sink sink = tape_sink(tape, campaign->level);
    struct run_watch watch = {.sinks = &sink,
                              .n_sinks = work->store != NULL,
                              .records_members =
                                  work->store != NULL && campaign->level >= STORE_STEPS,
                              .stop = campaign->stop};
    if (status == 0) {
        status = compose_run(composition, &watch, &point->err);
    }
    if (status == 0 && composition->result.interrupted) {
        status = err_world(&point->err, "interrupted");
    }
    if (status == 0) {
        status = take_fresh(point, composition);
    }
    point->has_no_room = compose_says_no_memory(&point->err);
    if (status != 0 || work->store == NULL) {
        compose_close(composition);
        return NULL;
    }
    return composition;
}

static int record(struct work *work, const struct pending *pending, struct err *err) {
    const struct composition *c = pending->composition;
    struct sink sink = {0};
    int64_t run;
    int status = store_run_begin(work->store, &c->facts, work->campaign->level, &run, &sink, err);
    if (status != 0) {
        return status;
    }
    status = tape_play(&pending->tape, &sink, err);
    if (status == 0) {
        return store_run_commit(work->store, &c->summary, &c->facts, err);
    }
    store_run_rollback(work->store);
    return status;
}

/* Record every finished run whose turn has come. */
static void record_ready(struct work *work) {
    while (work->n_recorded < work->campaign->n && work->pending[work->n_recorded].is_done) {
        struct pending *pending = &work->pending[work->n_recorded++];
        if (pending->composition != NULL && work->store_err.kind == ERR_NONE) {
            (void)record(work, pending, &work->store_err);
        }
        compose_close(pending->composition);
        pending->composition = NULL;
        tape_fini(&pending->tape);
    }
}

static void work_on(void *state, size_t i) {
    struct work *work = state;
    struct pending *pending = &work->pending[i];
    struct composition *composition = run_point(work, &work->campaign->points[i], &pending->tape);
    pthread_mutex_lock(&work->lock);
    pending->composition = composition;
    pending->is_done = true;
    record_ready(work);
    progress_update(&work->progress, ++work->n_done);
    pthread_mutex_unlock(&work->lock);
}

static int open_store(struct work *work, struct err *err) {
    const struct campaign *campaign = work->campaign;
    if (campaign->db == NULL) {
        return 0;
    }
    int status = store_open(campaign->db, STORE_WRITE, &work->store, err);
    return status == 0 && campaign->resumes ? store_list_runs(work->store, keep_known, work, err)
                                            : status;
}

static int verdict(const struct campaign *campaign, const struct err *store_err, struct err *err) {
    if (store_err->kind != ERR_NONE) {
        *err = *store_err;
        return (int)err->kind;
    }
    for (size_t i = 0; i < campaign->n; i++) {
        if (campaign->points[i].err.kind == ERR_USAGE) {
            *err = campaign->points[i].err;
            return (int)err->kind;
        }
    }
    return 0;
}

int campaign_run(struct campaign *campaign, unsigned n_threads, struct err *err) {
    struct work work = {.campaign = campaign,
                        .pending = calloc(campaign->n + 1, sizeof *work.pending)};
    ASSERT(work.pending != NULL);
    pthread_mutex_init(&work.lock, NULL);
    progress_start(&work.progress, "runs", campaign->n);
    int status = open_store(&work, err);
    if (status == 0) {
        crew_run(campaign->n, n_threads, work_on, &work);
        status = verdict(campaign, &work.store_err, err);
    }
    double wall_s = progress_end(&work.progress);
    if (status == 0) {
        fprintf(stderr, "unmask: %zu runs in %.3g s\n", campaign->n, wall_s);
    }
    for (size_t i = 0; i < work.n_known; i++) {
        free(work.known[i].config);
        free(work.known[i].summary);
    }
    free(work.known);
    free(work.pending);
    store_close(work.store);
    pthread_mutex_destroy(&work.lock);
    return status;
}

void campaign_fini(struct campaign *campaign) {
    for (size_t i = 0; i < campaign->n; i++) {
        json_decref(campaign->points[i].summary);
        free(campaign->points[i].notes);
        campaign->points[i].summary = NULL;
        campaign->points[i].notes = NULL;
    }
}
