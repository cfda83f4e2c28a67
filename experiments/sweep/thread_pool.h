/* A thread pool: numbered pieces of work shared out to threads. */
#ifndef UNMASK_EXPERIMENTS_SWEEP_THREAD_POOL_H
#define UNMASK_EXPERIMENTS_SWEEP_THREAD_POOL_H

#include <stddef.h>

enum { THREAD_POOL_MOST = 256 };

/* Calls work(state, i) once for every i < n, each from one of `n_threads` threads, lower numbers
 * begun first. Returns when all are done. */
void thread_pool_run(size_t n, unsigned n_threads, void (*work)(void *state, size_t i),
                     void *state);

#endif
