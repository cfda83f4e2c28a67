#include "experiments/run/ranks/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "experiments/run/cli/interrupt.h"
#include "experiments/run/ranks/ranks.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"

static const int64_t patience_ns = 300000000, soon_ns = 30000, late_ns = 20000000;

/* Of a thread of a helper: what it has to say, and what it was told. */
struct talk {
    struct rank_message *said, *heard;
};

struct running {
    const struct pool *pool;
    atomic_size_t next;
    atomic_uint n_ended;  /* threads */
    size_t n_outstanding; /* pieces that helpers work on */
    /* Of a helper. */
    struct talk *talks; /* one a thread */
    pthread_mutex_t lock;
    pthread_cond_t has_said, has_heard;
};

/* How many pools were shared with other ranks, this one included. */
static uint32_t n_pools;

/* A thread of a helper, for pool_ask. */
static _Thread_local struct running *own;
static _Thread_local uint32_t own_thread;

/* ---- threads ---- */

struct starting {
    struct running *running;
    uint32_t thread;
    void (*turns)(struct running *running, uint32_t thread);
};

static void *start_thread(void *opaque) {
    struct starting *starting = opaque;
    struct running *running = starting->running;
    starting->turns(running, starting->thread);
    pthread_mutex_lock(&running->lock);
    atomic_fetch_add(&running->n_ended, 1);
    pthread_cond_signal(&running->has_said);
    pthread_mutex_unlock(&running->lock);
    return NULL;
}

static void take_turns(struct running *running, uint32_t thread) {
    const struct pool *pool = running->pool;
    (void)thread;
    for (size_t i; (i = atomic_fetch_add(&running->next, 1)) < pool->n;) {
        pool->work(pool->state, i);
    }
}

struct workers {
    pthread_t threads[POOL_MOST_THREADS];
    struct starting starting[POOL_MOST_THREADS];
    unsigned n;
};

/* As many as can be had. */
static void start(struct running *running, unsigned n,
                  void (*turns)(struct running *running, uint32_t thread),
                  struct workers *workers) {
    for (workers->n = 0; workers->n < n; workers->n++) {
        struct starting *starting = &workers->starting[workers->n];
        *starting = (struct starting){running, workers->n, turns};
        if (pthread_create(&workers->threads[workers->n], NULL, start_thread, starting) != 0) {
            break;
        }
    }
}

static void join(struct workers *workers) {
    while (workers->n > 0) {
        pthread_join(workers->threads[--workers->n], NULL);
    }
}

/* ---- rank 0 ---- */

/* The result of a piece, and the next piece for whoever sent it. */
static void hand_out(struct running *running, struct rank_message *message) {
    const struct pool *pool = running->pool;
    struct rank_message reply = {.word = RANK_NONE, .pool = message->pool};
    reply.thread = message->thread;
    if (message->has_result) {
        pool->take(pool->state, message->piece, &message->parcel);
        running->n_outstanding--;
    }
    size_t i = atomic_fetch_add(&running->next, 1);
    if (i < pool->n) {
        reply.word = RANK_PIECE;
        reply.piece = i;
        pool->put(pool->state, i, &reply.parcel);
        running->n_outstanding++;
    }
    ranks_send(message->from, &reply);
    parcel_fini(&reply.parcel);
}

static void reply_to(struct running *running, struct rank_message *message) {
    struct rank_message reply = {.pool = message->pool, .thread = message->thread};
    if (message->pool < n_pools) { /* of a pool that is over */
        reply.word = RANK_NONE;
        ranks_send(message->from, &reply);
    } else if (message->word == RANK_NEXT) {
        hand_out(running, message);
    } else {
        const struct pool *pool = running->pool;
        reply.word = RANK_ANSWER;
        pool->answer(pool->state, &message->parcel, &reply.parcel);
        ranks_send(message->from, &reply);
        parcel_fini(&reply.parcel);
    }
    ranks_free(message);
}

/* Who is here before rank 0 waits until it comes to the pool. */
static void hear(struct running *running, struct rank_message *message) {
    if (message->pool > n_pools) {
        ranks_keep(message);
    } else {
        reply_to(running, message);
    }
}

static void hear_kept(struct running *running) {
    struct rank_message *message = ranks_kept();
    while (message != NULL) {
        struct rank_message *next = message->next;
        hear(running, message);
        message = next;
    }
}

/* Until every piece is done, or for a while after an interrupt. */
static void serve(struct running *running, unsigned n_threads) {
    int64_t last_ns = monotonic_ns(), interrupted_ns = 0;
    hear_kept(running);
    while (atomic_load(&running->n_ended) < n_threads || running->n_outstanding > 0) {
        struct rank_message *message = ranks_receive();
        int64_t now_ns = monotonic_ns();
        if (message != NULL) {
            hear(running, message);
            last_ns = now_ns;
            continue;
        }
        if (interrupt_is_caught()) {
            interrupted_ns = interrupted_ns > 0 ? interrupted_ns : now_ns;
            if (now_ns - interrupted_ns > patience_ns &&
                atomic_load(&running->n_ended) == n_threads) {
                break;
            }
        }
        ranks_rest(now_ns - last_ns);
    }
}

static void lead(struct running *running) {
    struct workers workers;
    start(running, running->pool->n_threads, take_turns, &workers);
    if (workers.n == 0) {
        take_turns(running, 0);
    }
    serve(running, workers.n);
    join(&workers);
}

/* ---- a helper ---- */

/* Says `message` to rank 0 and returns its reply. */
static struct rank_message *exchange(struct running *running, uint32_t thread,
                                     struct rank_message *message) {
    struct talk *talk = &running->talks[thread];
    message->pool = n_pools;
    message->thread = thread;
    pthread_mutex_lock(&running->lock);
    talk->said = message;
    pthread_cond_signal(&running->has_said);
    while (talk->heard == NULL) {
        pthread_cond_wait(&running->has_heard, &running->lock);
    }
    struct rank_message *reply = talk->heard;
    talk->heard = NULL;
    pthread_mutex_unlock(&running->lock);
    return reply;
}

static void take_pieces(struct running *running, uint32_t thread) {
    const struct pool *pool = running->pool;
    struct rank_message next = {.word = RANK_NEXT};
    own = running;
    own_thread = thread;
    while (true) {
        struct rank_message *piece = exchange(running, thread, &next);
        bool has_piece = piece->word == RANK_PIECE;
        parcel_clear(&next.parcel);
        if (has_piece) {
            next.has_result = 1;
            next.piece = piece->piece;
            pool->take(pool->state, piece->piece, &piece->parcel);
            pool->work(pool->state, piece->piece);
            pool->put(pool->state, piece->piece, &next.parcel);
        }
        ranks_free(piece);
        if (!has_piece) {
            break;
        }
    }
    parcel_fini(&next.parcel);
}

bool pool_ask(const struct parcel *question, struct parcel *answer) {
    struct rank_message ask = {.word = RANK_ASK, .parcel = *question};
    struct rank_message *reply = exchange(own, own_thread, &ask);
    bool is_answered = reply->word == RANK_ANSWER;
    *answer = reply->parcel;
    free(reply);
    return is_answered;
}

static void tell(struct running *running, uint32_t thread, struct rank_message *message) {
    running->talks[thread].heard = message;
    pthread_cond_broadcast(&running->has_heard);
}

/* There are no more pieces, nor answers. */
static void tell_none(struct running *running, uint32_t thread) {
    struct rank_message *none = mem_zeroed(1, sizeof *none);
    none->word = RANK_NONE;
    tell(running, thread, none);
}

/* Under the lock: what threads have said goes out; returns how many wait for a reply. */
static unsigned send_said(struct running *running, unsigned n_threads, bool *waits) {
    unsigned n_waiting = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        struct talk *talk = &running->talks[i];
        if (talk->said != NULL && !ranks_are_dismissed()) {
            ranks_send(0, talk->said);
        }
        waits[i] = waits[i] || talk->said != NULL;
        talk->said = NULL;
        if (waits[i] && ranks_are_dismissed()) {
            waits[i] = false;
            tell_none(running, i);
        }
        n_waiting += waits[i];
    }
    return n_waiting;
}

/* Under the lock: what rank 0 says goes to its thread, or to all of them when the command is over.
 */
static void take_in(struct running *running, struct rank_message *message, bool *waits) {
    if (message->word == RANK_STOP) {
        interrupt_now();
        ranks_free(message);
    } else {
        waits[message->thread] = false;
        tell(running, message->thread, message);
    }
}

/* Under the lock: until a thread says something, or it is time to look what rank 0 says. While all
 * work there is nothing to hear but that the command is over. */
static void wait_for_words(struct running *running, bool any_waits) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += any_waits ? soon_ns : late_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&running->has_said, &running->lock, &until);
}

/* The messages of this rank, in its main thread, until all threads have ended. */
static void carry_messages(struct running *running, unsigned n_threads) {
    bool waits[POOL_MOST_THREADS] = {false};
    pthread_mutex_lock(&running->lock);
    while (atomic_load(&running->n_ended) < n_threads) {
        unsigned n_waiting = send_said(running, n_threads, waits);
        struct rank_message *message = ranks_are_dismissed() ? NULL : ranks_receive();
        if (message != NULL) {
            take_in(running, message, waits);
        } else {
            wait_for_words(running, n_waiting > 0);
        }
    }
    pthread_mutex_unlock(&running->lock);
}

static void help(struct running *running) {
    struct workers workers;
    running->talks = mem_zeroed(POOL_MOST_THREADS, sizeof *running->talks);
    start(running, running->pool->n_threads, take_pieces, &workers);
    carry_messages(running, workers.n);
    join(&workers);
    free(running->talks);
}

/* ---- both ---- */

void pool_run(const struct pool *pool) {
    struct running running = {.pool = pool};
    bool is_shared = pool->put != NULL && ranks_n() > 1;
    if (ranks_is_helper() && (!is_shared || ranks_are_dismissed())) {
        return;
    }
    pthread_mutex_init(&running.lock, NULL);
    pthread_cond_init(&running.has_said, NULL);
    pthread_cond_init(&running.has_heard, NULL);
    n_pools += is_shared;
    if (ranks_is_helper()) {
        help(&running);
    } else if (is_shared) {
        lead(&running);
    } else {
        /* The caller works too, and alone when no thread can be had. */
        struct workers workers;
        size_t n = pool->n_threads < pool->n ? pool->n_threads : pool->n;
        start(&running, n > 1 ? (unsigned)n - 1 : 0, take_turns, &workers);
        take_turns(&running, 0);
        join(&workers);
    }
    pthread_mutex_destroy(&running.lock);
    pthread_cond_destroy(&running.has_said);
    pthread_cond_destroy(&running.has_heard);
}
