#include "engine/weights/ranks.h"

#include <pthread.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/model/ranks.h"

struct member {
    struct ranks *ranks;
    uint32_t rank;
    pthread_t thread;
    struct engine_device device;
    struct weights weights;
    /* Under the ranks' lock. */
    bool is_asked; /* to do ranks->call; to leave, where there is none */
    int status;
    struct err err;
};

struct ranks {
    struct ranks_request request;     /* its weights only while ranks_open runs */
    uint32_t n;                       /* rank 0 included */
    bool are_joined;                  /* their devices are ranks of one another */
    struct member members[MAX_RANKS]; /* from 1 on */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int (*call)(uint32_t rank, const void *arguments, struct err *err);
    const void *arguments;
};

/* ---- a rank's thread ---- */

/* Others need not wait for a rank that has failed. */
static void break_ranks(struct ranks *ranks) {
    for (uint32_t rank = 0; ranks->are_joined && rank < ranks->n; rank++) {
        const struct engine_device *device = ranks_device(ranks, rank);
        device->table->ranks_break(device->device);
    }
}

static void *serve(void *argument) {
    struct member *m = argument;
    struct ranks *ranks = m->ranks;
    bool leaves = false;
    pthread_mutex_lock(&ranks->lock);
    while (!leaves) {
        while (!m->is_asked) {
            pthread_cond_wait(&ranks->moved, &ranks->lock);
        }
        leaves = ranks->call == NULL;
        pthread_mutex_unlock(&ranks->lock);
        m->err = (struct err){0};
        int status = leaves ? 0 : ranks->call(m->rank, ranks->arguments, &m->err);
        if (status != 0) {
            break_ranks(ranks);
        } else if (leaves) {
            weights_close(&m->weights);
            engine_device_close(&m->device);
        }
        pthread_mutex_lock(&ranks->lock);
        m->status = status;
        m->is_asked = false;
        pthread_cond_broadcast(&ranks->moved);
    }
    pthread_mutex_unlock(&ranks->lock);
    return NULL;
}

/* ---- sending them out, and their return ---- */

static void send_out(struct ranks *ranks,
                     int (*call)(uint32_t rank, const void *arguments, struct err *err),
                     const void *arguments) {
    pthread_mutex_lock(&ranks->lock);
    ranks->call = call;
    ranks->arguments = arguments;
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        ranks->members[rank].is_asked = true;
    }
    pthread_cond_broadcast(&ranks->moved);
    pthread_mutex_unlock(&ranks->lock);
}

static void await(struct ranks *ranks) {
    pthread_mutex_lock(&ranks->lock);
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        while (ranks->members[rank].is_asked) {
            pthread_cond_wait(&ranks->moved, &ranks->lock);
        }
    }
    pthread_mutex_unlock(&ranks->lock);
}

int ranks_call(struct ranks *ranks,
               int (*call)(uint32_t rank, const void *arguments, struct err *err),
               const void *arguments, struct err *err) {
    send_out(ranks, call, arguments);
    int status = call(0, arguments, err);
    if (status != 0) {
        break_ranks(ranks);
    }
    await(ranks);
    for (uint32_t rank = 1; status == 0 && rank < ranks->n; rank++) {
        status = ranks->members[rank].status;
        *err = status != 0 ? ranks->members[rank].err : *err;
    }
    return status;
}

const struct engine_device *ranks_device(const struct ranks *ranks, uint32_t rank) {
    return rank == 0 ? ranks->request.device : &ranks->members[rank].device;
}

const struct weights *ranks_weights(const struct ranks *ranks, uint32_t rank) {
    ASSERT(rank >= 1 && rank < ranks->n);
    return &ranks->members[rank].weights;
}

/* ---- opening and closing ---- */

static int start_threads(struct ranks *ranks, struct err *err) {
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        struct member *m = &ranks->members[rank];
        *m = (struct member){.ranks = ranks, .rank = rank};
        bool started = pthread_create(&m->thread, NULL, serve, m) == 0;
        if (!started) {
            ranks->n = rank; /* those that there are */
            return err_world(err, "no thread for rank %u", rank);
        }
    }
    return 0;
}

static int open_device(uint32_t rank, const void *arguments, struct err *err) {
    struct ranks *ranks = *(struct ranks *const *)arguments;
    struct engine_device *device = &ranks->members[rank].device;
    if (rank == 0) {
        return 0;
    }
    int status = engine_device_another(ranks->request.device, ranks->request.number + (int32_t)rank,
                                       device, err);
    if (status == 0 && device->table->batch_invariant != NULL) {
        device->table->batch_invariant(device->device, ranks->request.batch_invariant);
    }
    return status;
}

static int open_weights(uint32_t rank, const void *arguments, struct err *err) {
    struct ranks *ranks = *(struct ranks *const *)arguments;
    struct member *m = &ranks->members[rank];
    if (rank == 0) {
        return 0;
    }
    const double by = ranks->request.logit_divisor;
    int status = weights_open_stored(&m->weights, &m->device, ranks->request.model,
                                     &ranks->request.storage, rank, ranks->request.weights, err);
    return status == 0 && by > 0 ? weights_divide_logits(&m->weights, by, err) : status;
}

static int join_devices(struct ranks *ranks, struct err *err) {
    const struct engine_device *lead = ranks->request.device;
    struct device *devices[MAX_RANKS];
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        devices[rank] = ranks_device(ranks, rank)->device;
    }
    int status = lead->table->ranks_open(devices, (int32_t)ranks->n);
    ranks->are_joined = status == DEVICE_OK;
    return engine_device_err(lead, status, "joining the ranks", err);
}

int ranks_open(const struct ranks_request *request, struct ranks **out, struct err *err) {
    *out = NULL;
    struct ranks *ranks = mem_zeroed(1, sizeof *ranks);
    ranks->request = *request;
    ranks->n = model_ranks(request->model);
    pthread_mutex_init(&ranks->lock, NULL);
    pthread_cond_init(&ranks->moved, NULL);
    if (start_threads(ranks, err) != 0 || ranks_call(ranks, open_device, &ranks, err) != 0 ||
        join_devices(ranks, err) != 0 || ranks_call(ranks, open_weights, &ranks, err) != 0) {
        ranks_close(ranks);
        return err_status(err);
    }
    ranks->request.weights = NULL;
    *out = ranks;
    return 0;
}

void ranks_close(struct ranks *ranks) {
    if (ranks == NULL) {
        return;
    }
    send_out(ranks, NULL, NULL);
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        pthread_join(ranks->members[rank].thread, NULL);
    }
    pthread_cond_destroy(&ranks->moved);
    pthread_mutex_destroy(&ranks->lock);
    free(ranks);
}
