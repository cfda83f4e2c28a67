/* The protocol by which programs share one database: docs/sharing.md is its page.
 *
 * A point is a run that somebody asked for; programs that ask for the same one know it by its
 * identity. To a program a point is *open*, then *claimed* by it (it runs it) or *elsewhere*
 * (another program has claimed it), then *ended*, and last *recorded* or *given back*: its result
 * is kept, and whoever wants to may run and record it. What holds:
 *
 * 1. A claim is asked for without waiting, and released once its point is recorded or given back.
 * 2. Before a program waits for points of others it records all that have ended here, and gives
 *    back what it cannot record. Who waits holds no claim.
 * 3. Who has a database's write lock waits for nothing but readers of that database, at its
 *    commit, and then reads no other one. Who reads does not wait.
 * 4. Whether a point is recorded is asked inside the transaction that would record it.
 *
 * So every wait goes from claims to locks, no two programs wait for each other, and none records a
 * point twice, with claims or without. The code does one step at a time over an interface: a
 * sweep's threads go through it under their lock, and tests/analysis/test_protocol.c drives several
 * programs through every order of their steps. */
#ifndef UNMASK_ANALYSIS_STORE_PROTOCOL_H
#define UNMASK_ANALYSIS_STORE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>

enum protocol_answer {
    PROTOCOL_YES,    /* it is so, or it is done */
    PROTOCOL_NO,     /* it is not; another program has the claim */
    PROTOCOL_LOCKED, /* another program has the database's lock, and it was not waited for */
    PROTOCOL_FAILED, /* a full disk, a database that was replaced, no locks, ... */
};

/* Each is one step, between two of which others may do theirs. */
struct protocol_ops {
    /* Whether the database has the point, whose result is then taken. LOCKED and FAILED: unknown,
     * so that the point is run. */
    enum protocol_answer (*look)(void *state, size_t point);
    enum protocol_answer (*claim)(void *state, size_t point); /* never waits */
    void (*release)(void *state, size_t point);
    /* The transaction: the write lock is had by `begin` and gone after `commit` or `roll_back`. */
    enum protocol_answer (*begin)(void *state, size_t point, bool waits);
    enum protocol_answer (*holds)(void *state, size_t point); /* whether it is recorded already */
    /* Around `put`, where what is put is read from another database; else NULL. */
    enum protocol_answer (*open_source)(void *state, size_t point);
    void (*close_source)(void *state, size_t point);
    enum protocol_answer (*put)(void *state, size_t point);
    enum protocol_answer (*commit)(void *state, size_t point, bool waits);
    void (*roll_back)(void *state, size_t point);
    void (*pause)(void *state); /* before others' points are looked at again */
};

enum point_state {
    POINT_OPEN,
    POINT_CLAIMED,    /* is to be run here, or runs */
    POINT_ELSEWHERE,  /* another program has claimed it */
    POINT_ENDED,      /* has a result that is not recorded */
    POINT_GIVEN_BACK, /* the same, and others may run it */
    POINT_RECORDED,   /* by anybody */
    POINT_OVER,       /* there is nothing to record */
};

struct protocol_point {
    unsigned char state; /* enum point_state */
    bool has_claim;
};

/* What a program can be at. */
enum protocol_job {
    PROTOCOL_TURN,      /* `point`: found in the database, claimed, or elsewhere */
    PROTOCOL_OVER,      /* `point` has ended with nothing to record */
    PROTOCOL_PUT,       /* record `point`, which has ended; waits */
    PROTOCOL_PUT_READY, /* record what has ended, in order; up to the first that cannot be now */
    PROTOCOL_WAIT,      /* record or give back all that has ended, then pause */
    PROTOCOL_FINISH,    /* record what can be recorded, release the rest */
};

struct protocol {
    const struct protocol_ops *ops;
    void *state;
    struct protocol_point *points; /* the caller's; starts zeroed */
    size_t n;
    size_t n_put;  /* points before this one were recorded in order, or were elsewhere then */
    size_t n_late; /* points before it that have ended since */

    /* The job that it is at. */
    enum protocol_job job;
    unsigned char at; /* protocol.c */
    bool waits, is_put;
    size_t point;
};

/* What is asked for is done by calling protocol_step until it returns false; false: there is
 * nothing to be done. `waits` is for PUT_READY: whether locks are waited for. */
bool protocol_ask(struct protocol *protocol, enum protocol_job job, size_t point, bool waits);
bool protocol_step(struct protocol *protocol);

/* Both; returns what `point` is then. */
enum point_state protocol_do(struct protocol *protocol, enum protocol_job job, size_t point,
                             bool waits);

/* A point that was run here, claimed or not, has ended with something to record. */
void protocol_ended(struct protocol *protocol, size_t point);

#endif
