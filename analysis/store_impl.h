/* What the recording and the loading half of the store share; nobody else includes this. */
#ifndef UNMASK_ANALYSIS_STORE_IMPL_H
#define UNMASK_ANALYSIS_STORE_IMPL_H

#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>

#include "analysis/store.h"

/* A growing run of bytes. */
struct bytes {
    unsigned char *data;
    size_t n, capacity;
};

/* The last batch of one replica, to notice that it did not change. */
struct last_members {
    struct bytes batch;
    int64_t number; /* in table members; 0: none yet */
};

struct store {
    char *path;
    sqlite3 *db;
    bool has_identities, has_answers;  /* schema 2; schema 3 */
    bool has_positions;                /* schema 4 */
    const volatile sig_atomic_t *stop; /* of store_be_patient */
    unsigned waited_ms;
    sqlite3_stmt *put_request, *put_members, *put_step, *put_event;
    struct last_members *last; /* by replica */
    uint32_t n_last;
    struct bytes scratch, bits;

    /* The open run; 0: none. */
    int64_t run;
    int64_t n_requests, n_members, n_steps, n_events;
};

/* Turn an SQLite result into one sentence: "cannot <doing> ...". Returns the err kind. */
int store_fail(struct store *store, int rc, const char *doing, struct err *err);

/* Prepare one statement; 0 or an err kind. */
int store_prepare(struct store *store, const char *sql, sqlite3_stmt **out, struct err *err);

#endif
