/* Copies runs from one database to another. */
#include <stdlib.h>
#include <string.h>

#include "analysis/store/protocol.h"
#include "analysis/store/store_impl.h"
#include "sim/base/mem.h"

static const char doing[] = "copy a run (rolled back, earlier runs are intact) into";

/* The rows of a run but for that of `runs`. */
static const struct {
    const char *name, *columns, *order;
} tables[] = {
    {"requests", "number"
#define KEPT(type, name, ...) "," #name
#include "sim/serve/request.def"
     ,
     "number"},
    {"members", "number,batch", "number"},
    {"steps", "tokens,members,symbols,positions,outcomes" STEP_COLUMNS(COLUMN_NAME), "idx"},
    {"swaps", "idx" SWAP_COLUMNS(COLUMN_NAME), "idx"},
    {"events", "number" EVENT_COLUMNS(COLUMN_NAME), "number"},
};

/* Inserts every row of the query, under the number `run` and with the rest as it is. */
static int copy_rows(struct store *to, sqlite3_stmt *query, sqlite3_stmt *insert, int64_t run,
                     struct store *from, struct err *err) {
    int n = sqlite3_column_count(query), rc, failed = 0;
    while (failed == 0 && (rc = sqlite3_step(query)) == SQLITE_ROW) {
        sqlite3_bind_int64(insert, 1, run);
        for (int i = 0; i < n; i++) {
            sqlite3_bind_value(insert, i + 2, sqlite3_column_value(query, i));
        }
        int put = sqlite3_step(insert);
        failed = put == SQLITE_DONE ? 0 : store_fail(to, put, doing, err);
        sqlite3_reset(insert);
    }
    return failed != 0 ? failed : rc == SQLITE_DONE ? 0 : store_fail(from, rc, "read", err);
}

/* "?,?,...", for `n` columns. */
static void write_marks(char *out, size_t size, int n) {
    size_t used = 0;
    for (int i = 0; i < n && used + 3 < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s?", i > 0 ? "," : "");
    }
}

/* One statement reads, the other writes the same columns and the run's number before them. */
static int copy_table(struct store *from, int64_t old, struct store *to, int64_t run,
                      const char *name, const char *columns, const char *order, struct err *err) {
    char sql[1024], marks[256];
    sqlite3_stmt *query = NULL, *insert = NULL;
    snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE run=? ORDER BY %s", columns, name, order);
    int failed = store_prepare(from, sql, &query, err);
    if (failed == 0) {
        sqlite3_bind_int64(query, 1, old);
        write_marks(marks, sizeof marks, sqlite3_column_count(query) + 1);
        snprintf(sql, sizeof sql, "INSERT INTO %s(run,%s) VALUES(%s)", name, columns, marks);
        failed = store_prepare(to, sql, &insert, err);
    }
    failed = failed != 0 ? failed : copy_rows(to, query, insert, run, from, err);
    sqlite3_finalize(query);
    sqlite3_finalize(insert);
    return failed;
}

/* Those columns of `runs` that the database has, all but the number: older ones lack some. */
static int list_columns(struct store *store, char *out, size_t size, struct err *err) {
    static const char *const known[] = {
        "system",  "model",    "gpu",      "profile", "profile_kind", "backend",
        "trace",   "seed",     "config",   "summary", "n_requests",   "trace_provenance",
        "n_steps", "n_events", "identity", "sha256",  "incomplete",   "rows_sha256",
    };
    sqlite3_stmt *query = NULL;
    size_t used = 0;
    int failed = store_prepare(store, "SELECT * FROM runs", &query, err);
    out[0] = '\0';
    for (size_t k = 0; failed == 0 && k < sizeof known / sizeof known[0]; k++) {
        for (int i = 0; i < sqlite3_column_count(query); i++) {
            if (strcmp(sqlite3_column_name(query, i), known[k]) == 0) {
                used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? "," : "",
                                         known[k]);
            }
        }
    }
    sqlite3_finalize(query);
    return failed;
}

static int copy_open(struct store *from, int64_t old, struct store *to, int64_t run,
                     struct err *err) {
    char columns[512];
    int failed = list_columns(from, columns, sizeof columns, err);
    failed = failed != 0 ? failed : copy_table(from, old, to, run, "runs", columns, "run", err);
    for (size_t i = 0; failed == 0 && i < sizeof tables / sizeof tables[0]; i++) {
        failed =
            copy_table(from, old, to, run, tables[i].name, tables[i].columns, tables[i].order, err);
    }
    int64_t n_named = 0;
    if (failed == 0) {
        failed =
            store_ask(from, "SELECT count(*) FROM names WHERE kind='reason' AND name='cancelled'",
                      &n_named, err);
    }
    if (failed == 0 && n_named > 0) {
        failed = store_name_cancelled(to, err);
    }
    return failed;
}

/* ---- what `to` holds ---- */

static int ask_exists(sqlite3_stmt *query, struct store *store, bool *out, struct err *err) {
    int rc = sqlite3_step(query);
    *out = rc == SQLITE_ROW;
    sqlite3_finalize(query);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_fail(store, rc, "read", err);
}

/* The very same record; an older unmask gave it no checksum. */
static int holds_record(struct store *to, const struct stored_run *run, bool *out,
                        struct err *err) {
    sqlite3_stmt *query = NULL;
    bool has_sum = run->sha256[0] != '\0';
    int failed = store_prepare(to,
                               has_sum ? "SELECT 1 FROM runs WHERE sha256=?1"
                                       : "SELECT 1 FROM runs WHERE sha256 IS NULL AND config=?1"
                                         " AND summary=?2 AND seed=?3",
                               &query, err);
    if (failed != 0) {
        return failed;
    }
    sqlite3_bind_text(query, 1, has_sum ? run->sha256 : run->config, -1, SQLITE_STATIC);
    if (!has_sum) {
        sqlite3_bind_text(query, 2, run->summary, -1, SQLITE_STATIC);
        sqlite3_bind_int64(query, 3, (int64_t)run->seed);
    }
    return ask_exists(query, to, out, err);
}

/* A run of `to`, of the identity of the one that is copied. */
struct kin {
    int64_t run, n_requests, n_steps;
    bool is_whole;
};

static int list_kin(struct store *to, const struct stored_run *run, struct kin **out, size_t *n,
                    struct err *err) {
    sqlite3_stmt *query = NULL;
    size_t room = 0;
    int failed = store_prepare(to,
                               "SELECT run,coalesce(n_requests,0),coalesce(n_steps,0),incomplete"
                               " IS NULL FROM runs WHERE identity=?",
                               &query, err),
        rc = SQLITE_DONE;
    if (failed == 0) {
        sqlite3_bind_text(query, 1, run->identity, -1, SQLITE_STATIC);
    }
    while (failed == 0 && (rc = sqlite3_step(query)) == SQLITE_ROW) {
        *out = mem_grown(*out, *n, &room, sizeof **out);
        (*out)[(*n)++] =
            (struct kin){sqlite3_column_int64(query, 0), sqlite3_column_int64(query, 1),
                         sqlite3_column_int64(query, 2), sqlite3_column_int(query, 3)};
    }
    failed = failed == 0 && rc != SQLITE_DONE ? store_fail(to, rc, "read", err) : failed;
    sqlite3_finalize(query);
    return failed;
}

/* Whether the first n_requests requests and n_steps steps of both runs are the same. */
static int begins_alike(struct store *a, int64_t run_a, struct store *b, int64_t run_b,
                        int64_t n_requests, int64_t n_steps, bool *out, struct err *err) {
    char of_a[SHA256_HEX_CHARS], of_b[SHA256_HEX_CHARS];
    int failed = store_digest_head(a, run_a, n_requests, n_steps, of_a, err);
    failed = failed != 0 ? failed : store_digest_head(b, run_b, n_requests, n_steps, of_b, err);
    *out = failed == 0 && strcmp(of_a, of_b) == 0;
    return failed;
}

static int drop_run(struct store *to, int64_t run, struct err *err) {
    static const char *const names[] = {"requests", "members", "steps", "swaps", "events", "runs"};
    int failed = 0;
    for (size_t i = 0; failed == 0 && i < sizeof names / sizeof names[0]; i++) {
        char sql[80];
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE run=%lld", names[i], (long long)run);
        failed = store_run_sql(to, sql, doing, err);
    }
    return failed;
}

struct copying {
    struct store *from, *to;
    const struct stored_run *run;
    bool was_held;
    struct err *err;
};

/* Snapshots of a run under way: an earlier one gives way to a later one. `from` is read, too. */
static int find_snapshot(struct copying *c, const struct kin *kin, bool *is_later,
                         bool *is_earlier) {
    const struct stored_run *run = c->run;
    bool is_alike = false;
    int failed = 0;
    *is_later = *is_earlier = false;
    if (run->incomplete != NULL && kin->n_requests >= run->n_requests &&
        kin->n_steps >= run->n_steps) {
        failed = begins_alike(c->from, run->run, c->to, kin->run, run->n_requests, run->n_steps,
                              &is_alike, c->err);
        *is_later = is_alike;
    } else if (!kin->is_whole && kin->n_requests <= run->n_requests) {
        failed = begins_alike(c->from, run->run, c->to, kin->run, kin->n_requests, kin->n_steps,
                              &is_alike, c->err);
        *is_earlier = is_alike;
    }
    return failed;
}

static int compare_kin(struct copying *c) {
    struct kin *kin = NULL;
    size_t n = 0;
    int failed = list_kin(c->to, c->run, &kin, &n, c->err);
    for (size_t i = 0; failed == 0 && i < n && !c->was_held; i++) {
        bool is_later, is_earlier;
        failed = find_snapshot(c, &kin[i], &is_later, &is_earlier);
        c->was_held = is_later;
        if (failed == 0 && is_earlier) {
            failed = drop_run(c->to, kin[i].run, c->err);
        }
    }
    free(kin);
    return failed;
}

/* ---- one run, by the protocol ---- */

static enum protocol_answer answer(int failed, const struct store *store) {
    return failed == 0 ? PROTOCOL_YES : store_was_locked(store) ? PROTOCOL_LOCKED : PROTOCOL_FAILED;
}

static enum protocol_answer copy_begin(void *state, size_t point, bool waits) {
    struct copying *c = state;
    (void)point, (void)waits;
    return answer(store_begin(c->to, c->err), c->to);
}

static enum protocol_answer copy_holds(void *state, size_t point) {
    struct copying *c = state;
    const struct stored_run *run = c->run;
    int64_t whole = 0;
    (void)point;
    bool is_sample =
        run->incomplete == NULL && run->identity[0] != '\0' && !store_is_measured(run->backend);
    enum store_level level = run->n_events > 0  ? STORE_EVENTS
                             : run->n_steps > 0 ? STORE_STEPS
                                                : STORE_REQUESTS;
    int failed = holds_record(c->to, run, &c->was_held, c->err);
    if (failed == 0 && !c->was_held && is_sample) {
        failed = store_find_whole(c->to, run->identity, level, &whole, NULL, c->err);
        c->was_held = whole > 0;
    }
    return failed != 0 ? answer(failed, c->to) : c->was_held ? PROTOCOL_YES : PROTOCOL_NO;
}

/* A transaction of reading, so that a run under way is copied as it was at one moment. */
static enum protocol_answer copy_open_source(void *state, size_t point) {
    struct copying *c = state;
    (void)point;
    return answer(store_run_sql(c->from, "BEGIN;SELECT 1 FROM runs LIMIT 1", "read", c->err),
                  c->from);
}

static void copy_close_source(void *state, size_t point) {
    const struct copying *c = state;
    (void)point;
    store_roll_back(c->from);
}

/* Nothing is waited for while `from` is read: pages that do not fit into the cache stay there. */
static enum protocol_answer copy_put(void *state, size_t point) {
    struct copying *c = state;
    int64_t run = 0;
    (void)point;
    store_wait(c->to, false);
    int failed = c->run->identity[0] != '\0' ? compare_kin(c) : 0;
    if (failed == 0 && !c->was_held) {
        failed = store_ask(c->to, "SELECT 1 + coalesce(max(run), 0) FROM runs", &run, c->err);
        failed = failed != 0 ? failed : copy_open(c->from, c->run->run, c->to, run, c->err);
    }
    store_wait(c->to, true);
    return answer(failed, c->to);
}

static enum protocol_answer copy_commit(void *state, size_t point, bool waits) {
    struct copying *c = state;
    (void)point, (void)waits;
    return answer(store_run_sql(c->to, "COMMIT", doing, c->err), c->to);
}

static void copy_roll_back(void *state, size_t point) {
    const struct copying *c = state;
    (void)point;
    store_roll_back(c->to);
}

int store_copy_run(struct store *from, const struct stored_run *run, struct store *to,
                   bool *was_held, struct err *err) {
    static const struct protocol_ops ops = {.begin = copy_begin,
                                            .holds = copy_holds,
                                            .open_source = copy_open_source,
                                            .put = copy_put,
                                            .close_source = copy_close_source,
                                            .commit = copy_commit,
                                            .roll_back = copy_roll_back};
    struct copying copying = {.from = from, .to = to, .run = run, .err = err};
    struct protocol_point point = {.state = POINT_ENDED};
    struct protocol protocol = {.ops = &ops, .state = &copying, .points = &point, .n = 1};
    ASSERT(to->open.run == 0);
    enum point_state state = protocol_do(&protocol, PROTOCOL_PUT, 0, true);
    *was_held = copying.was_held;
    return state == POINT_RECORDED ? 0 : err_status(err);
}
