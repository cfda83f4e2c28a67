/* Which runs of a database are one sample. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/store/store_impl.h"
#include "sim/base/mem.h"

/* A run whose identity another one has, too. */
struct duplicate {
    int64_t run, n_events, n_steps, n_requests;
    char identity[SHA256_HEX_CHARS], sha256[SHA256_HEX_CHARS];
    bool is_whole, is_measured, is_left_out;
};

struct listing {
    struct store *store;
    struct duplicate *duplicates; /* by identity, then run */
    size_t n, room;
    int (*each)(void *state, const struct stored_run *run, struct err *err);
    void *state;
};

bool store_is_measured(const char *backend) {
    return backend[0] != '\0' && strcmp(backend, "sim") != 0;
}

static void take_text(sqlite3_stmt *stmt, int column, char out[SHA256_HEX_CHARS]) {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    snprintf(out, SHA256_HEX_CHARS, "%s", text != NULL ? text : "");
}

static bool has_column(struct store *store, const char *name) {
    return sqlite3_table_column_metadata(store->db, "main", "runs", name, NULL, NULL, NULL, NULL,
                                         NULL) == SQLITE_OK;
}

static int list_duplicates(struct listing *listing, struct err *err) {
    static const char sql[] =
        "SELECT run,identity,n_events,n_steps,n_requests,backend,%s,%s FROM runs"
        " WHERE summary NOT NULL AND identity IN"
        " (SELECT identity FROM runs WHERE identity NOT NULL GROUP BY identity HAVING count(*)>1)"
        " ORDER BY identity,run";
    struct store *store = listing->store;
    char text[sizeof sql + 160];
    sqlite3_stmt *stmt = NULL;
    if (!has_column(store, "identity")) { /* schema 1 */
        return 0;
    }
    bool is_new = has_column(store, "incomplete"); /* schema 5 */
    snprintf(text, sizeof text, sql,
             is_new ? "incomplete"
                    : "CASE WHEN json_valid(summary) THEN json_extract(summary,'$.incomplete') END",
             is_new ? "sha256" : "NULL");
    int failed = store_prepare(store, text, &stmt, err), rc = SQLITE_DONE;
    while (failed == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        listing->duplicates =
            mem_grown(listing->duplicates, listing->n, &listing->room, sizeof *listing->duplicates);
        struct duplicate *duplicate = &listing->duplicates[listing->n++];
        const char *backend = (const char *)sqlite3_column_text(stmt, 5);
        *duplicate =
            (struct duplicate){.run = sqlite3_column_int64(stmt, 0),
                               .n_events = sqlite3_column_int64(stmt, 2),
                               .n_steps = sqlite3_column_int64(stmt, 3),
                               .n_requests = sqlite3_column_int64(stmt, 4),
                               .is_whole = sqlite3_column_type(stmt, 6) == SQLITE_NULL,
                               .is_measured = store_is_measured(backend != NULL ? backend : "")};
        take_text(stmt, 1, duplicate->identity);
        take_text(stmt, 7, duplicate->sha256);
    }
    if (failed == 0 && rc != SQLITE_DONE) {
        failed = store_fail(store, rc, "read", err);
    }
    sqlite3_finalize(stmt);
    return failed;
}

/* Whether a run tells more than another: it is whole, or has more of what was recorded. */
static bool tells_more(const struct duplicate *a, const struct duplicate *b) {
    return a->is_whole != b->is_whole   ? a->is_whole
           : a->n_events != b->n_events ? a->n_events > b->n_events
           : a->n_steps != b->n_steps   ? a->n_steps > b->n_steps
                                        : a->n_requests > b->n_requests;
}

/* Of runs of one identity, one counts. What was measured on a device again is a sample of its own,
 * unless it is the very same record. */
static void judge(struct duplicate *duplicates, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        best = tells_more(&duplicates[i], &duplicates[best]) ? i : best;
    }
    for (size_t i = 0; i < n; i++) {
        bool is_own = duplicates[i].is_measured && duplicates[i].is_whole;
        for (size_t k = 0; is_own && k < i; k++) {
            is_own = duplicates[i].sha256[0] == '\0' ||
                     strcmp(duplicates[i].sha256, duplicates[k].sha256) != 0;
        }
        duplicates[i].is_left_out = i != best && !is_own;
    }
}

static int see_damage(void *state, const struct stored_run *run, struct err *err) {
    (void)err;
    *(bool *)state = run->damage != NULL;
    return 0;
}

/* Runs whose rows are damaged stand for nothing, and are their reader's to report. */
static int leave_damaged(struct listing *listing, struct err *err) {
    size_t n = 0;
    for (size_t i = 0; i < listing->n; i++) {
        bool is_damaged = false;
        int failed = store_load_run(listing->store, listing->duplicates[i].run, see_damage,
                                    &is_damaged, err);
        if (failed != 0) {
            return failed;
        }
        listing->duplicates[n] = listing->duplicates[i];
        n += !is_damaged;
    }
    listing->n = n;
    return 0;
}

static int by_run(const void *a, const void *b) {
    const struct duplicate *x = a, *y = b;
    return (x->run > y->run) - (x->run < y->run);
}

static int pass(void *state, const struct stored_run *run, struct err *err) {
    struct listing *listing = state;
    struct duplicate key = {.run = run->run};
    const struct duplicate *duplicate =
        listing->n == 0
            ? NULL
            : bsearch(&key, listing->duplicates, listing->n, sizeof *listing->duplicates, by_run);
    return duplicate != NULL && duplicate->is_left_out ? 0
                                                       : listing->each(listing->state, run, err);
}

/* Judges all, and says once how many do not count. */
static void settle(struct listing *listing) {
    size_t n_left_out = 0, n;
    for (size_t i = 0; i < listing->n; i += n) {
        const char *identity = listing->duplicates[i].identity;
        for (n = 1;
             i + n < listing->n && strcmp(listing->duplicates[i + n].identity, identity) == 0;) {
            n++;
        }
        judge(listing->duplicates + i, n);
    }
    for (size_t i = 0; i < listing->n; i++) {
        n_left_out += listing->duplicates[i].is_left_out;
    }
    if (n_left_out > 0 && !listing->store->has_told_doubles) {
        fprintf(stderr,
                "unmask: %zu runs of %s are on record more than once, or were cut short and are "
                "whole in another: each counts once\n",
                n_left_out, listing->store->path);
        listing->store->has_told_doubles = true;
    }
    if (listing->n > 0) {
        qsort(listing->duplicates, listing->n, sizeof *listing->duplicates, by_run);
    }
}

int store_list_samples(struct store *store,
                       int (*each)(void *state, const struct stored_run *run, struct err *err),
                       void *state, struct err *err) {
    struct listing listing = {.store = store, .each = each, .state = state};
    int failed = list_duplicates(&listing, err);
    failed = failed != 0 ? failed : leave_damaged(&listing, err);
    if (failed == 0) {
        settle(&listing);
        failed = store_list_runs(store, pass, &listing, err);
    }
    free(listing.duplicates);
    return failed;
}
