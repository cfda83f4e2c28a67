#include "experiments/run/recorder.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "experiments/run/tape.h"
#include "sim/base/mem.h"

enum { WRITE_EVERY_S = 1 };

const char recorder_unfinished[] =
    "its recording was cut off, or still goes on: what stands here is what was written until then";

struct recorder {
    struct store *store;
    enum store_level level;
    struct run_facts facts; /* as known at the beginning */

    /* The writing thread's; the caller's where there is none. */
    struct saved_run saved; /* what is written */
    struct sink into;       /* the store's */
    struct tape writing;    /* not empty: could not be written so far */
    struct summary so_far;  /* with what is on it */

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

/* Nobody else looks at the tape of a run that is written once it is over. */
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
    if (as_it_goes) {
        start_thread(recorder);
    }
    return recorder;
}

/* `text` is the summary's; NULL: it is made of `summary`. */
static int finish(struct recorder *recorder, const struct summary *summary, const char *text,
                  const struct run_facts *facts, int64_t *run, struct err *err) {
    recorder_end(recorder);
    int status = begin(recorder, facts, run, err);
    status = status != 0 ? status : tape_play(&recorder->writing, &recorder->into, err);
    status = status != 0 ? status : tape_play(&recorder->tape, &recorder->into, err);
    if (status == 0 && text == NULL) {
        status = store_run_commit(recorder->store, summary, facts, err);
    } else if (status == 0) {
        status = store_run_commit_text(recorder->store, text, facts->incomplete, err);
    }
    if (status != 0) {
        store_run_rollback(recorder->store);
        *run = recorder->saved.run;
    }
    return status;
}

int recorder_finish(struct recorder *recorder, const struct summary *summary,
                    const struct run_facts *facts, int64_t *run, struct err *err) {
    return finish(recorder, summary, NULL, facts, run, err);
}

int recorder_finish_text(struct recorder *recorder, const char *summary,
                         const struct run_facts *facts, int64_t *run, struct err *err) {
    return finish(recorder, NULL, summary, facts, run, err);
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
