/* What a forward pass consists of, and what those share that issue its steps. */
#ifndef UNMASK_ENGINE_STEP_FORWARD_PARTS_H
#define UNMASK_ENGINE_STEP_FORWARD_PARTS_H

#include "engine/op/issue.h"
#include "engine/op/packed.h"
#include "engine/op/room.h"
#include "engine/step/captures.h"
#include "engine/step/forward.h"
#include "engine/step/instance_times.h"
#include "engine/weights/ranks.h"
#include "sim/model/ranks.h"

struct forward {
    const struct engine_device *device;
    struct ranks *ranks;               /* that it leads, as rank 0; NULL: it is alone, or led */
    struct forward *others[MAX_RANKS]; /* owned: theirs, from 1 on */
    struct program program;
    const struct weights *weights;
    struct step_limits limits;
    struct packed packed, rest; /* the rest: after an eviction, or leading layers, where the graph
                                   has any */
    struct join_copy *join_copies; /* [max_requests, JOIN_COPIES], where it has these */
    struct captures captures;
    struct room room;
    unsigned char *host;  /* that rows are swapped to, or NULL */
    unsigned char *aside; /* what the pool held, of its host memory; NULL: nothing is set aside */
    int32_t *n_committed; /* [max_requests], by decision */
    float *importance;    /* [2, max_tokens], where the graph evicts */
    /* The step issued last. */
    uint64_t n_steps, n_uploads;
    struct step step; /* where the graph evicts; what it points to is read until then */
    struct placement placement;
    struct step_shape shape; /* its sums; the spans stay with the caller */
    struct step_key key;
    struct issue issue;
    struct op_instance
        instance; /* what comes next, while it is taken one operator instance after another */
    bool is_stepping;
    struct instance_times times; /* of its instances so far */
    double op_ns[GRAPH_MAX_OPS]; /* of the step whose instances were timed last, on this rank */
};

/* By this forward pass and by those that it leads. */
int forward_on_all_ranks(struct forward *forward,
                         int (*call)(struct forward *forward, const void *arguments,
                                     struct err *err),
                         const void *arguments, struct err *err);

/* Has every rank choose how to run the step's products, where they are several and it has not. */
int forward_choose_products(struct forward *forward, const struct step *step, struct err *err);

/* Everything before the first operator, and the events around all of them. */
int forward_prepare(struct forward *forward, const struct step *step, struct err *err);
int forward_begin_step(struct forward *forward, struct err *err);
int forward_end_step(struct forward *forward, struct err *err);

/* At the eviction: lets the host decide which positions stay, and tells all ranks. */
int forward_evict(struct forward *forward, struct err *err);

/* Bytes of the device's memory, once what was issued is done; enum device_status. */
int forward_download(const struct forward *forward, void *to, const void *from, int64_t bytes);

/* The device's trouble as a sentence; 0 where there is none. */
int forward_device_err(const struct forward *forward, int status, const char *what,
                       struct err *err);

/* Issues one instance. */
int forward_issue(struct forward *forward, const struct op_instance *instance, struct err *err);

#endif
