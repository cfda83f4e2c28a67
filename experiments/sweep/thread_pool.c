#include "experiments/sweep/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>

struct thread_pool {
    size_t n;
    atomic_size_t next;
    void (*work)(void *state, size_t i);
    void *state;
};

static void *take_turns(void *opaque) {
    struct thread_pool *pool = opaque;
    for (size_t i; (i = atomic_fetch_add(&pool->next, 1)) < pool->n;) {
        pool->work(pool->state, i);
    }
    return NULL;
}

void thread_pool_run(size_t n, unsigned n_threads, void (*work)(void *state, size_t i),
                     void *state) {
    struct thread_pool pool = {.n = n, .work = work, .state = state};
    pthread_t threads[THREAD_POOL_MOST];
    unsigned started = 0;
    n_threads = n_threads < THREAD_POOL_MOST ? n_threads : THREAD_POOL_MOST;
    n_threads = n_threads < n ? n_threads : (unsigned)n;
    /* The caller works too, and alone when no thread can be had. */
    while (started + 1 < n_threads &&
           pthread_create(&threads[started], NULL, take_turns, &pool) == 0) {
        started++;
    }
    take_turns(&pool);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
}
