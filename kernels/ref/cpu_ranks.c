#include "kernels/ref/cpu_ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref.h"

struct cpu_ranks {
    pthread_mutex_t lock; /* over all of it */
    pthread_cond_t moved;
    int32_t n, n_left, n_waiting;
    uint64_t round;
    bool is_broken;
    /* What each has brought along; read between two meetings. */
    const struct call_all_reduce *sums[CALL_MAX_RANKS];
    const struct call_all_gather *parts[CALL_MAX_RANKS];
};

struct cpu_ranks *cpu_ranks_open(int32_t n) {
    struct cpu_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks != NULL) {
        pthread_mutex_init(&ranks->lock, NULL);
        pthread_cond_init(&ranks->moved, NULL);
        ranks->n = ranks->n_left = n;
    }
    return ranks;
}

void cpu_ranks_leave(struct cpu_ranks *ranks) {
    pthread_mutex_lock(&ranks->lock);
    bool is_last = --ranks->n_left == 0;
    pthread_mutex_unlock(&ranks->lock);
    if (is_last) {
        pthread_cond_destroy(&ranks->moved);
        pthread_mutex_destroy(&ranks->lock);
        free(ranks);
    }
}

void cpu_ranks_break(struct cpu_ranks *ranks) {
    pthread_mutex_lock(&ranks->lock);
    ranks->is_broken = true;
    pthread_cond_broadcast(&ranks->moved);
    pthread_mutex_unlock(&ranks->lock);
}

/* Until all have come; false when somebody will not. */
static bool meet(struct cpu_ranks *ranks) {
    pthread_mutex_lock(&ranks->lock);
    const uint64_t round = ranks->round;
    if (++ranks->n_waiting == ranks->n) {
        ranks->n_waiting = 0;
        ranks->round++;
        pthread_cond_broadcast(&ranks->moved);
    }
    while (ranks->round == round && !ranks->is_broken) {
        pthread_cond_wait(&ranks->moved, &ranks->lock);
    }
    const bool met = !ranks->is_broken;
    pthread_mutex_unlock(&ranks->lock);
    return met;
}

bool cpu_ranks_reduce(struct cpu_ranks *ranks, int32_t rank, const struct call_all_reduce *call) {
    ranks->sums[rank] = call;
    if (!meet(ranks)) {
        return false;
    }
    ref_all_reduce(ranks->sums, ranks->n, call->n * rank / ranks->n,
                   call->n * (rank + 1) / ranks->n);
    return meet(ranks);
}

bool cpu_ranks_gather(struct cpu_ranks *ranks, int32_t rank, const struct call_all_gather *call) {
    ranks->parts[rank] = call;
    if (!meet(ranks)) {
        return false;
    }
    for (int32_t other = 0; other < ranks->n; other++) {
        memcpy((unsigned char *)call->y + other * call->bytes, ranks->parts[other]->x,
               (size_t)call->bytes);
    }
    return meet(ranks);
}
