/* The memory of a forward pass: what it allocates on the device and on the host, events of its
 * queue, and tokens and rows on their way. Everything is allocated at opening, but for workspace
 * and pool where limits say that they are mapped. */
#ifndef UNMASK_ENGINE_OP_ROOM_H
#define UNMASK_ENGINE_OP_ROOM_H

#include <stdint.h>

#include "engine/device/device.h"
#include "engine/device/mapping.h"
#include "engine/op/step.h"
#include "engine/weights/rotation.h"
#include "sim/base/err.h"
#include "sim/model/model.h"

enum { ROOM_UPLOADS = 2, ROOM_STAGING_BYTES = 1 << 16 };

/* Moments of the queue: a step's first and last, and after each upload. */
enum room_event {
    EVENT_STEP_BEGIN,
    EVENT_STEP_END,
    EVENT_UPLOADED,
    EVENT_COUNT = EVENT_UPLOADED + ROOM_UPLOADS,
};

struct room {
    const struct engine_device *device;
    struct device_event *events[EVENT_COUNT];
    /* Device memory; where limits say that they share, the two overlap. */
    unsigned char *workspace, *pool;
    struct mapping mapping; /* under both; without a device where they are allocated */
    int64_t pool_bytes, workspace_needed, pool_held; /* the pool is used from there on */
    int32_t *canvases;
    float *cos_sin;        /* [max_positions, D / 2, 2]; then of global layers' heads */
    unsigned char *arrays; /* a step's, packed */
    uint8_t *committed;    /* [max_logit_rows] */
    int32_t *n_committed;  /* [max_requests] */
    int32_t *unrolled; /* [max_unrolled, max_requests], n_committed of steps issued at once; NULL
                          where one is the most */
    /* By place, sizes below; NULL and 0: not kept. */
    int32_t *credit;         /* [places, 2 credit_slots + 2], call_credit's */
    unsigned char *expected; /* [places, hidden], call_keep_expected's; before them zeros, what a
                                row without a place reads */
    unsigned char *expected_memory; /* with that row, which self-conditioning alone has */
    int64_t credit_bytes, expected_bytes;
    float *thresholds; /* [max_requests], a step's, where they change from one to the next */
    void *bounce;      /* pieces of a store that moves over itself */
    int64_t side_bytes, bounce_bytes;
    /* Host memory that copies reach. */
    unsigned char *uploads[ROOM_UPLOADS]; /* steps' arrays, which take turns */
    unsigned char *staging;               /* tokens on their way, logits on their way back */
    int64_t staged_bytes;                 /* of uploads that may not be done */
};

/* array_bytes: the most that a step's arrays take; smooths: expected embeddings are kept. ERR_WORLD
 * with what was wanted when the memory does not suffice. On error nothing needs closing. */
int room_open(struct room *room, const struct engine_device *device, const struct model *model,
              const struct step_limits *limits, int64_t array_bytes, bool smooths,
              const struct rotation *rotation, struct err *err);
void room_close(struct room *room);

/* Empty `n` places from `first` on. */
int room_clear_places(struct room *room, int64_t first, int64_t n, struct err *err);

/* What a place holds, bytes; and what `n` places hold, out of the device and into it: `to` is
 * filled on return, `from` may go at once. */
int64_t room_place_bytes(const struct room *room);
int room_read_places(struct room *room, int64_t first, int64_t n, unsigned char *to,
                     struct err *err);
int room_write_places(struct room *room, int64_t first, int64_t n, const unsigned char *from,
                      struct err *err);

/* Where memory is mapped, maps the workspace's first `bytes` for what is issued next, and the pool
 * from a byte to its end until the next call. ERR_WORLD when the device has too little. */
int room_use_workspace(struct room *room, int64_t bytes, struct err *err);
int room_hold_pool(struct room *room, int64_t first_byte, struct err *err);

/* Tokens into the canvases, from `first` on. */
int room_write(struct room *room, int64_t first, const int32_t *tokens, int64_t n, struct err *err);

/* Bytes of the pool to another place in it; the ranges may overlap. */
int room_move(struct room *room, int64_t to, int64_t from, int64_t bytes, struct err *err);

#endif
