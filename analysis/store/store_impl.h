/* Declarations that the parts of the store share; not for other modules. */
#ifndef UNMASK_ANALYSIS_STORE_STORE_IMPL_H
#define UNMASK_ANALYSIS_STORE_STORE_IMPL_H

#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>

#include "analysis/store/store.h"
#include "sim/base/input/sha256.h"

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
    char *path; /* as it was given; SQLite has store_name's */
    sqlite3 *db;
    bool fails_at_once; /* where another program has a lock */
    bool was_stopped;   /* before the wait began */
    bool was_locked;    /* the last failure was a lock of another program */
    bool has_told_doubles;
    bool is_damaged; /* the file's structure; it is only read */
    sqlite3_stmt *put_request, *put_members, *put_step, *put_swap, *put_event, *drop_arrival;
    struct last_members *last; /* by replica */
    uint32_t n_last;
    struct bytes scratch, bits;

    struct saved_run open; /* as it is in the open transaction */
};

/* The integers of a record: the column, and the member that it holds. Those of requests are
 * sim/serve/request.def's. */
#define STEP_COLUMNS(X)                                                                            \
    X(idx, index)                                                                                  \
    X(replica, replica)                                                                            \
    X(repeat, repeat)                                                                              \
    X(start_ns, start_ns)                                                                          \
    X(end_ns, end_ns)                                                                              \
    X(gpu_ns, gpu_ns)                                                                              \
    X(host_ns, host_ns)                                                                            \
    X(requests, n)                                                                                 \
    X(prefill, n_by_phase[PHASE_PREFILL])                                                          \
    X(refresh, n_by_phase[PHASE_REFRESH])                                                          \
    X(reuse, n_by_phase[PHASE_REUSE])                                                              \
    X(commits, n_by_phase[PHASE_COMMIT])                                                           \
    X(kv_used_bytes, kv_used_bytes)                                                                \
    X(running, n_running)                                                                          \
    X(waiting, n_waiting)
/* Of the table `swaps`, after its idx. */
#define SWAP_COLUMNS(X)                                                                            \
    X(out_requests, swap.n_out)                                                                    \
    X(in_requests, swap.n_in)                                                                      \
    X(out_bytes, swap.out_bytes)                                                                   \
    X(in_bytes, swap.in_bytes)                                                                     \
    X(stall_ns, swap.stall_ns)                                                                     \
    X(host_used_bytes, swap.host_used_bytes)
#define EVENT_COLUMNS(X)                                                                           \
    X(time_ns, time_ns) X(request, request) X(kind, kind) X(replica, replica) X(detail, detail)
#define COLUMN_NAME(column, ...) "," #column

/* Turn an SQLite result into one sentence: "cannot <doing> ...". Returns the err kind. */
int store_fail(struct store *store, int rc, const char *doing, struct err *err);

/* Prepare one statement; 0 or an err kind. */
int store_prepare(struct store *store, const char *sql, sqlite3_stmt **out, struct err *err);

/* The single integer of a query. */
int store_ask(struct store *store, const char *sql, int64_t *out, struct err *err);

/* The name by which all programs open the file, to be freed by the caller. Says where there is
 * none: the file has other names in other folders. */
char *store_name(const char *path, bool will_write);

/* Whether runs of this back end took a device's time, and differ in it when they are made again. */
bool store_is_measured(const char *backend);

/* Run statements without results. */
int store_name_cancelled(struct store *store, struct err *err); /* the reason, among `names` */
int store_run_sql(struct store *store, const char *sql, const char *doing, struct err *err);

/* The checksum of a run's row in `runs`, and of its rows in the other tables. */
int store_digest_row(struct store *store, int64_t run, char out[SHA256_HEX_CHARS], struct err *err);
int store_digest_rows(struct store *store, int64_t run, char out[SHA256_HEX_CHARS],
                      struct err *err);
/* The digest of the times of a run's first requests; of its first steps where n_requests is 0. */
int store_digest_head(struct store *store, int64_t run, int64_t n_requests, int64_t n_steps,
                      char out[SHA256_HEX_CHARS], struct err *err);

#endif
