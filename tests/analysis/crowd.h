/* Several programs that go through analysis/store/protocol.h on databases that exist only here, in
 * every order of their steps, and with trouble at each: another program's lock, a full disk, a
 * death, an interrupt. A world is a handful of bytes, so that all that can be come to are kept. */
#ifndef UNMASK_TESTS_ANALYSIS_CROWD_H
#define UNMASK_TESTS_ANALYSIS_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CROWD_IDS = 3, CROWD_PROGRAMS = 3, CROWD_DATABASES = 2 };

/* A program: a sweep over points of these identities, or a merge from the other database. */
struct crowd_plan {
    bool is_merge;
    uint8_t to; /* database 0 or 1 */
    uint8_t n_points;
    uint8_t ids[CROWD_IDS]; /* of its points, by their place */
    uint8_t n_at_once;      /* points that it runs at the same time */
};

/* What may happen, how often in all. */
struct crowd_trouble {
    uint8_t locks, deaths, stops;
    uint8_t fulls;      /* 1: the disk is full from some step on, 2: and later not any more */
    bool has_no_claims; /* the file system has no locks of that kind */
};

struct crowd {
    uint8_t n_programs;
    struct crowd_plan plans[CROWD_PROGRAMS];
    struct crowd_trouble trouble;
    uint8_t recorded[CROWD_DATABASES]; /* bits of the identities that they hold at first */
};

struct crowd_found {
    uint64_t n_states, n_ends;
    const char *wrong; /* NULL: nothing; else it stops there */
    char how[1024];    /* the steps that lead to it */
};

/* `most`: states. */
struct crowd_found crowd_explore(const struct crowd *crowd, uint64_t most);

/* ---- between crowd.c and crowd_explore.c ---- */

enum phase { WORKS, LAST, DONE, DEAD };

/* Bytes alone, so that equal worlds are equal in memory. */
struct program {
    uint8_t state[CROWD_IDS]; /* of its points */
    uint8_t has_claim[CROWD_IDS];
    uint8_t n_put, n_late, job, at, waits, is_put, point; /* as in struct protocol */
    uint8_t phase, next; /* `next`: place of the point that it looks at next in its round */
    uint8_t is_stopped, results;
};

/* As SQLite's: one writer; while it commits there are no readers, and no new ones. `put` is what
 * is not committed, an identity + 1. */
struct database {
    uint8_t count[CROWD_IDS], writer, is_pending, readers, put;
};

struct world {
    struct database databases[CROWD_DATABASES];
    uint8_t owner[CROWD_IDS]; /* of the claim on an identity */
    uint8_t runs[CROWD_IDS];
    uint8_t is_full, n_locks, n_deaths, n_stops, n_fulls;
    struct program programs[CROWD_PROGRAMS];
};

/* One step of one program. */
struct going {
    const struct crowd *crowd;
    struct world *world;
    uint8_t who;
    bool is_blocked;    /* the step cannot be done now */
    bool is_unfinished; /* it has begun to wait */
    bool is_private; /* no other program can tell that it was done: the next one follows at once */
    const char *wrong;
};

/* What can happen in a world: first what must not be needed for coming to an end. */
enum crowd_move { DEATH = 0, STOP = 3, FULL = 6, LOCK = 7, DROP = 13, STEP = 15, N_MOVES = 18 };

void crowd_begin(const struct crowd *crowd, struct world *world);
/* False: it cannot happen. */
bool crowd_happen(struct going *going, int move);
/* Programs of equal plans in one order, so that worlds that differ in their names are one. */
void crowd_sort(const struct crowd *crowd, struct world *world);
bool crowd_all_are_done(const struct crowd *crowd, const struct world *world);
/* Of a world in which all are; NULL: it is as it must be. */
const char *crowd_judge(const struct crowd *crowd, const struct world *world);

#endif
