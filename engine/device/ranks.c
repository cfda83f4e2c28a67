#include "engine/device/ranks.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine/step/forward.h"
#include "sim/model/ranks.h"

/* What a rank's thread is to do next. */
enum errand {
    ERRAND_NONE,
    ERRAND_OPEN_DEVICE,
    ERRAND_OPEN_WEIGHTS,
    ERRAND_OPEN_FORWARD,
    ERRAND_CALL,
    ERRAND_RETIRE,
    ERRAND_LEAVE
};

struct member {
    struct ranks *ranks;
    uint32_t rank;
    pthread_t thread;
    struct engine_device device;
    struct weights weights;
    struct forward *forward;
    /* Under the ranks' lock. */
    enum errand errand;
    int status;
    struct err err;
};

struct ranks {
    struct ranks_request request;     /* its weights only while ranks_open runs */
    uint32_t n;                       /* rank 0 included */
    struct member members[MAX_RANKS]; /* from 1 on */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    /* Of ERRAND_CALL. */
    int (*call)(struct forward *forward, const void *arguments, struct err *err);
    const void *arguments;
};

/* ---- a rank's thread ---- */

static int open_device(struct member *m) {
    const struct ranks_request *request = &m->ranks->request;
    int status = engine_device_another(request->device, (int32_t)m->rank, &m->device, &m->err);
    if (status == 0 && m->device.table->batch_invariant != NULL) {
        m->device.table->batch_invariant(m->device.device, request->batch_invariant);
    }
    return status;
}

static int open_weights(struct member *m) {
    const struct ranks_request *request = &m->ranks->request;
    return weights_open_rank(&m->weights, &m->device, request->graph->model, m->rank,
                             request->weights, &m->err);
}

static int open_forward(struct member *m) {
    const struct ranks_request *request = &m->ranks->request;
    return forward_open(&m->device, request->graph, &m->weights, request->limits, &m->forward,
                        &m->err);
}

static void retire(struct member *m) {
    forward_close(m->forward);
    m->forward = NULL;
}

static void close_all(struct member *m) {
    retire(m);
    weights_close(&m->weights);
    engine_device_close(&m->device);
}

/* Others need not wait for a rank that has failed. */
static void break_ranks(struct ranks *ranks) {
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        const struct engine_device *device =
            rank == 0 ? ranks->request.device : &ranks->members[rank].device;
        if (device->device != NULL) {
            device->table->ranks_break(device->device);
        }
    }
}

static int run(struct member *m, enum errand errand) {
    struct ranks *ranks = m->ranks;
    int status = 0;
    switch (errand) {
    case ERRAND_OPEN_DEVICE:
        status = open_device(m);
        break;
    case ERRAND_OPEN_WEIGHTS:
        status = open_weights(m);
        break;
    case ERRAND_OPEN_FORWARD:
        status = open_forward(m);
        break;
    case ERRAND_CALL:
        status = ranks->call(m->forward, ranks->arguments, &m->err);
        if (status != 0) {
            break_ranks(ranks);
        }
        break;
    case ERRAND_RETIRE:
        retire(m);
        break;
    case ERRAND_LEAVE:
        close_all(m);
        break;
    case ERRAND_NONE:
        break;
    }
    return status;
}

static void *serve(void *argument) {
    struct member *m = argument;
    struct ranks *ranks = m->ranks;
    enum errand errand = ERRAND_NONE;
    pthread_mutex_lock(&ranks->lock);
    while (errand != ERRAND_LEAVE) {
        while (m->errand == ERRAND_NONE) {
            pthread_cond_wait(&ranks->moved, &ranks->lock);
        }
        errand = m->errand;
        pthread_mutex_unlock(&ranks->lock);
        m->err = (struct err){0};
        int status = run(m, errand);
        pthread_mutex_lock(&ranks->lock);
        m->status = status;
        m->errand = ERRAND_NONE;
        pthread_cond_broadcast(&ranks->moved);
    }
    pthread_mutex_unlock(&ranks->lock);
    return NULL;
}

/* ---- sending them out, and their return ---- */

static void send_out(struct ranks *ranks, enum errand errand) {
    pthread_mutex_lock(&ranks->lock);
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        ranks->members[rank].errand = errand;
    }
    pthread_cond_broadcast(&ranks->moved);
    pthread_mutex_unlock(&ranks->lock);
}

static void await(struct ranks *ranks) {
    pthread_mutex_lock(&ranks->lock);
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        while (ranks->members[rank].errand != ERRAND_NONE) {
            pthread_cond_wait(&ranks->moved, &ranks->lock);
        }
    }
    pthread_mutex_unlock(&ranks->lock);
}

/* The first rank's failure after rank 0's. */
static int first_failure(const struct ranks *ranks, int status, struct err *err) {
    for (uint32_t rank = 1; status == 0 && rank < ranks->n; rank++) {
        status = ranks->members[rank].status;
        if (status != 0) {
            *err = ranks->members[rank].err;
        }
    }
    return status;
}

static int do_all(struct ranks *ranks, enum errand errand, struct err *err) {
    send_out(ranks, errand);
    await(ranks);
    return first_failure(ranks, 0, err);
}

int ranks_call(struct ranks *ranks, struct forward *lead,
               int (*call)(struct forward *forward, const void *arguments, struct err *err),
               const void *arguments, struct err *err) {
    ranks->call = call;
    ranks->arguments = arguments;
    send_out(ranks, ERRAND_CALL);
    int status = call(lead, arguments, err);
    if (status != 0) {
        break_ranks(ranks);
    }
    await(ranks);
    return first_failure(ranks, status, err);
}

struct forward *ranks_forward(const struct ranks *ranks, uint32_t rank) {
    ASSERT(rank >= 1 && rank < ranks->n);
    return ranks->members[rank].forward;
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

static int join_devices(struct ranks *ranks, struct err *err) {
    const struct engine_device *lead = ranks->request.device;
    struct device *devices[MAX_RANKS] = {lead->device};
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        devices[rank] = ranks->members[rank].device.device;
    }
    return engine_device_err(lead, lead->table->ranks_open(devices, (int32_t)ranks->n),
                             "joining the ranks", err);
}

int ranks_open(const struct ranks_request *request, struct ranks **out, struct err *err) {
    *out = NULL;
    struct ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) {
        return err_world(err, "no memory for the ranks");
    }
    ranks->request = *request;
    ranks->n = model_ranks(request->graph->model);
    pthread_mutex_init(&ranks->lock, NULL);
    pthread_cond_init(&ranks->moved, NULL);
    int status = start_threads(ranks, err);
    status = status == 0 ? do_all(ranks, ERRAND_OPEN_DEVICE, err) : status;
    status = status == 0 ? join_devices(ranks, err) : status;
    status = status == 0 ? do_all(ranks, ERRAND_OPEN_WEIGHTS, err) : status;
    status = status == 0 ? do_all(ranks, ERRAND_OPEN_FORWARD, err) : status;
    ranks->request.weights = NULL;
    if (status != 0) {
        ranks_close(ranks);
        return status;
    }
    *out = ranks;
    return 0;
}

void ranks_retire(struct ranks *ranks) {
    struct err none = {0};
    (void)do_all(ranks, ERRAND_RETIRE, &none);
}

int ranks_reopen(struct ranks *ranks, const struct graph *graph, const struct step_limits *limits,
                 struct err *err) {
    ASSERT(ranks->members[1].forward == NULL &&
           graph->model == ranks->members[1].weights.layout.model);
    ranks->request.graph = graph;
    ranks->request.limits = limits;
    return do_all(ranks, ERRAND_OPEN_FORWARD, err);
}

void ranks_close(struct ranks *ranks) {
    if (ranks == NULL) {
        return;
    }
    send_out(ranks, ERRAND_LEAVE);
    for (uint32_t rank = 1; rank < ranks->n; rank++) {
        pthread_join(ranks->members[rank].thread, NULL);
    }
    pthread_cond_destroy(&ranks->moved);
    pthread_mutex_destroy(&ranks->lock);
    free(ranks);
}
