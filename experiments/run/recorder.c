#include "experiments/run/recorder.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "analysis/identity.h"
#include "experiments/run/tape.h"
#include "sim/base/mem.h"

enum { WRITE_EVERY_S = 1 };

const char recorder_unfinished[] =
    "its recording was cut off, or still goes on: what stands here is what was written until then";

struct recorder {
    struct store *store;
    enum store_level level;
    struct run_facts facts; /* as known at the beginning */
    bool is_measured;       /* the run is a device's, and is written as it goes */

    /* The writing thread's; the caller's where there is none. */
    struct saved_run saved; /* what is written */
    struct sink into;       /* the store's */
    struct tape writing;    /* not empty: could not be written so far */
    struct summary so_far;  /* with what is on it */
    bool has_trouble;       /* it was told that it could not */

    bool is_threaded;
    pthread_t thread;
    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t wake;
    bool ends;
    struct tape tape;
    struct sink onto; /* the tape */
    struct summary summary;
};

/* ---- the run's side ---- */

/* The tape of a run that is written once it is over has a single reader. */
static void lock(struct recorder *recorder) {
    if (recorder->is_threaded) {
        pthread_mutex_lock(&recorder->lock);
    }
}

static void unlock(struct recorder *recorder) {
    if (recorder->is_threaded) {
        pthread_mutex_unlock(&recorder->lock);
    }
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct recorder *recorder = state;
    struct sink add = summary_sink(&recorder->summary);
    lock(recorder);
    int status = recorder->onto.request(recorder->onto.state, record, err);
    if (status == 0 && recorder->is_threaded) {
        status = add.request(add.state, record, err);
    }
    unlock(recorder);
    return status;
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct recorder *recorder = state;
    struct sink add = summary_sink(&recorder->summary);
    int status = 0;
    lock(recorder);
    if (recorder->onto.step != NULL) {
        status = recorder->onto.step(recorder->onto.state, record, err);
    }
    if (status == 0 && recorder->is_threaded) {
        status = add.step(add.state, record, err);
    }
    unlock(recorder);
    return status;
}

static int on_event(void *state, const struct event_record *record, struct err *err) {
    struct recorder *recorder = state;
    lock(recorder);
    int status = recorder->onto.event(recorder->onto.state, record, err);
    unlock(recorder);
    return status;
}

static int on_arrival(void *state, const struct arrival *arrival, struct err *err) {
    struct recorder *recorder = state;
    (void)err;
    lock(recorder);
    tape_arrival(&recorder->tape, arrival);
    unlock(recorder);
    return 0;
}

struct sink recorder_sink(struct recorder *recorder) {
    bool wants_steps = recorder->level >= STORE_STEPS || recorder->is_threaded;
    return (struct sink){
        .state = recorder,
        .request = on_request,
        .step = wants_steps ? on_step : NULL,
        .event = recorder->level >= STORE_EVENTS ? on_event : NULL,
        .arrival = recorder->is_threaded && recorder->level >= STORE_STEPS ? on_arrival : NULL};
}

/* ---- writing ---- */

/* What is new becomes what is written next, unless the last could not be written. */
static void take_new(struct recorder *recorder) {
    if (!tape_is_empty(&recorder->writing)) {
        return;
    }
    summary_fini(&recorder->so_far);
    pthread_mutex_lock(&recorder->lock);
    struct tape empty = recorder->writing;
    recorder->writing = recorder->tape;
    recorder->tape = empty;
    summary_copy(&recorder->summary, &recorder->so_far);
    pthread_mutex_unlock(&recorder->lock);
    summary_finish(&recorder->so_far);
}

static int begin(struct recorder *recorder, const struct run_facts *facts, int64_t *run,
                 struct err *err) {
    *run = recorder->saved.run;
    return *run > 0 ? store_run_continue(recorder->store, &recorder->saved, err)
                    : store_run_begin(recorder->store, facts, recorder->level, run, &recorder->into,
                                      err);
}

/* Once, until records are written again: the run goes on, and its memory grows. */
static void tell_trouble(struct recorder *recorder, const struct err *err) {
    const bool is_trouble = err->kind != ERR_NONE && !store_was_locked(recorder->store);
    if (is_trouble && !recorder->has_trouble) {
        fprintf(stderr, "unmask: nothing is recorded for now, and is kept in memory: %s\n",
                err->text);
    } else if (recorder->has_trouble && err->kind == ERR_NONE) {
        fprintf(stderr, "unmask: it is recorded again\n");
    }
    recorder->has_trouble = is_trouble || (recorder->has_trouble && err->kind != ERR_NONE);
}

/* One batch; what cannot be written is tried again. */
static void write_batch(struct recorder *recorder) {
    struct err err = {0};
    int64_t run;
    take_new(recorder);
    if (!tape_is_empty(&recorder->writing) && begin(recorder, &recorder->facts, &run, &err) == 0) {
        int status = tape_play(&recorder->writing, &recorder->into, &err);
        status = status != 0 ? status
                             : store_run_save(recorder->store, &recorder->so_far, &recorder->facts,
                                              &recorder->saved, &err);
        if (status == 0) {
            tape_clear(&recorder->writing);
        }
        store_run_rollback(recorder->store);
    }
    tell_trouble(recorder, &err);
}

static void *write_on(void *state) {
    struct recorder *recorder = state;
    store_wait(recorder->store, false);
    pthread_mutex_lock(&recorder->lock);
    while (!recorder->ends) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += WRITE_EVERY_S;
        pthread_cond_timedwait(&recorder->wake, &recorder->lock, &until);
        if (!recorder->ends) {
            pthread_mutex_unlock(&recorder->lock);
            write_batch(recorder);
            pthread_mutex_lock(&recorder->lock);
        }
    }
    pthread_mutex_unlock(&recorder->lock);
    store_wait(recorder->store, true);
    return NULL;
}

/* Signals are the main thread's. Without a thread all is written at the end. */
static void start_thread(struct recorder *recorder) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    recorder->is_threaded = pthread_create(&recorder->thread, NULL, write_on, recorder) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void recorder_end(struct recorder *recorder) {
    if (recorder->is_threaded) {
        pthread_mutex_lock(&recorder->lock);
        recorder->ends = true;
        pthread_cond_signal(&recorder->wake);
        pthread_mutex_unlock(&recorder->lock);
        pthread_join(recorder->thread, NULL);
        recorder->is_threaded = false;
    }
}

struct recorder *recorder_open(struct store *store, const struct run_facts *facts,
                               const struct slo *slo, enum store_level level, bool as_it_goes) {
    struct recorder *recorder = mem_zeroed(1, sizeof *recorder);
    recorder->store = store;
    recorder->level = level;
    recorder->facts = *facts;
    recorder->facts.incomplete = recorder_unfinished;
    recorder->onto = tape_sink(&recorder->tape, level);
    recorder->tape.beside = recorder->writing.beside = store != NULL ? store_path(store) : NULL;
    summary_init(&recorder->summary, slo);
    pthread_mutex_init(&recorder->lock, NULL);
    pthread_cond_init(&recorder->wake, NULL);
    recorder->is_measured = as_it_goes;
    if (as_it_goes) {
        start_thread(recorder);
    }
    return recorder;
}

/* ---- the end, by the protocol ---- */

static enum protocol_answer answer(const struct recording *r, int status) {
    return status == 0                            ? PROTOCOL_YES
           : store_was_locked(r->recorder->store) ? PROTOCOL_LOCKED
                                                  : PROTOCOL_FAILED;
}

enum protocol_answer recording_begin(struct recording *r, bool waits) {
    recorder_end(r->recorder);
    r->err = (struct err){0};
    r->run = r->recorder->saved.run;
    store_wait(r->recorder->store, waits);
    int status = store_begin(r->recorder->store, &r->err);
    store_wait(r->recorder->store, true);
    return answer(r, status);
}

enum protocol_answer recording_holds(struct recording *r) {
    const char *digest = identity_digest(r->facts->identity);
    int64_t run = 0;
    if (r->recorder->is_measured || digest[0] == '\0') {
        return PROTOCOL_NO;
    }
    int status =
        store_find_whole(r->recorder->store, digest, r->recorder->level, &run, NULL, &r->err);
    r->was_held = status == 0 && run > 0;
    r->run = r->was_held ? run : r->run;
    return status != 0 ? answer(r, status) : r->was_held ? PROTOCOL_YES : PROTOCOL_NO;
}

enum protocol_answer recording_put(struct recording *r) {
    int status = begin(r->recorder, r->facts, &r->run, &r->err);
    status = status != 0 ? status : tape_play(&r->recorder->writing, &r->recorder->into, &r->err);
    status = status != 0 ? status : tape_play(&r->recorder->tape, &r->recorder->into, &r->err);
    return answer(r, status);
}

enum protocol_answer recording_commit(struct recording *r, bool waits) {
    struct store *store = r->recorder->store;
    store_wait(store, waits);
    int status = r->text == NULL
                     ? store_run_commit(store, r->summary, r->facts, &r->err)
                     : store_run_commit_text(store, r->text, r->facts->incomplete, &r->err);
    store_wait(store, true);
    return answer(r, status);
}

void recording_roll_back(struct recording *r) {
    store_roll_back(r->recorder->store);
    r->run = r->was_held ? r->run : r->recorder->saved.run;
}

static enum protocol_answer one_begin(void *state, size_t point, bool waits) {
    (void)point;
    return recording_begin(state, waits);
}

static enum protocol_answer one_holds(void *state, size_t point) {
    (void)point;
    return recording_holds(state);
}

static enum protocol_answer one_put(void *state, size_t point) {
    (void)point;
    return recording_put(state);
}

static enum protocol_answer one_commit(void *state, size_t point, bool waits) {
    (void)point;
    return recording_commit(state, waits);
}

static void one_roll_back(void *state, size_t point) {
    (void)point;
    recording_roll_back(state);
}

int recorder_finish(struct recording *recording, struct err *err) {
    static const struct protocol_ops ops = {.begin = one_begin,
                                            .holds = one_holds,
                                            .put = one_put,
                                            .commit = one_commit,
                                            .roll_back = one_roll_back};
    struct protocol_point point = {.state = POINT_ENDED};
    struct protocol protocol = {.ops = &ops, .state = recording, .points = &point, .n = 1};
    if (protocol_do(&protocol, PROTOCOL_PUT, 0, true) == POINT_RECORDED) {
        return 0;
    }
    *err = recording->err;
    return err_status(err);
}

void recorder_put(const struct recorder *recorder, struct parcel *out) {
    const struct tape *tape = &recorder->tape;
    parcel_put(out, &tape->size, sizeof tape->size);
    parcel_put(out, tape->bytes, tape->size);
}

void recorder_take(struct recorder *recorder, struct parcel *in) {
    struct tape *tape = &recorder->tape;
    parcel_take(in, &tape->size, sizeof tape->size);
    tape->room = tape->size;
    tape->bytes = mem_unwritten(tape->room, 1);
    parcel_take(in, tape->bytes, tape->size);
}

size_t recorder_bytes(const struct recorder *recorder) {
    return recorder->tape.room + recorder->writing.room;
}

void recorder_close(struct recorder *recorder) {
    if (recorder == NULL) {
        return;
    }
    recorder_end(recorder);
    tape_fini(&recorder->writing);
    tape_fini(&recorder->tape);
    summary_fini(&recorder->so_far);
    summary_fini(&recorder->summary);
    pthread_mutex_destroy(&recorder->lock);
    pthread_cond_destroy(&recorder->wake);
    free(recorder);
}
