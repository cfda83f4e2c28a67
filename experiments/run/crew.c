#include "experiments/run/crew.h"

#include <pthread.h>
#include <stdatomic.h>

struct crew {
    size_t n;
    atomic_size_t next;
    void (*work)(void *state, size_t i);
    void *state;
};

static void *take_turns(void *opaque) {
    struct crew *crew = opaque;
    for (size_t i; (i = atomic_fetch_add(&crew->next, 1)) < crew->n;) {
        crew->work(crew->state, i);
    }
    return NULL;
}

void crew_run(size_t n, unsigned n_threads, void (*work)(void *state, size_t i), void *state) {
    struct crew crew = {.n = n, .work = work, .state = state};
    pthread_t threads[CREW_MOST_THREADS];
    unsigned started = 0;
    n_threads = n_threads < CREW_MOST_THREADS ? n_threads : CREW_MOST_THREADS;
    n_threads = n_threads < n ? n_threads : (unsigned)n;
    /* The caller works too, and alone when no thread can be had. */
    while (started + 1 < n_threads &&
           pthread_create(&threads[started], NULL, take_turns, &crew) == 0) {
        started++;
    }
    take_turns(&crew);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
}
