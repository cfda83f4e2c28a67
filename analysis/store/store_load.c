/* The loading half of the store. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/column.h"
#include "analysis/store/position_bytes.h"
#include "analysis/store/store.h"
#include "analysis/store/store_impl.h"
#include "analysis/store/varint.h"
#include "sim/base/mem.h"

enum { ROW_TEXTS = 14 };

static int damaged(struct store *store, int64_t run, const char *what, struct err *err) {
    return err_world(err, "cannot read run %lld of '%s': the database is damaged (%s)",
                     (long long)run, store->path, what);
}

/* Steps to the row that a query over `runs` has of a run, where there is one; ERR_USAGE when there
 * is no such run. The caller closes the statement in any case. */
static int find_run(struct store *store, int64_t run, const char *sql, sqlite3_stmt **out,
                    struct err *err) {
    int failed = store_prepare(store, sql, out, err);
    if (failed != 0) {
        return failed;
    }
    sqlite3_bind_int64(*out, 1, run);
    int rc = sqlite3_step(*out);
    return rc == SQLITE_ROW    ? 0
           : rc == SQLITE_DONE ? err_usage(err, "'%s' has no run %lld", store->path, (long long)run)
                               : store_fail(store, rc, "read", err);
}

/* A query over one run; ERR_USAGE when there is no such run. */
static int query_run(struct store *store, int64_t run, const char *sql, sqlite3_stmt **out,
                     struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = find_run(store, run, "SELECT 1 FROM runs WHERE run=?", &stmt, err);
    sqlite3_finalize(stmt);
    if (failed == 0) {
        failed = store_prepare(store, sql, out, err);
    }
    if (failed == 0) {
        sqlite3_bind_int64(*out, 1, run);
    }
    return failed;
}

/* After the last row: closes the statement and turns a bad end into a sentence. */
static int end_query(struct store *store, sqlite3_stmt *stmt, int rc, int failed, struct err *err) {
    if (failed == 0 && rc != SQLITE_DONE) {
        failed = store_fail(store, rc, "read", err);
    }
    sqlite3_finalize(stmt);
    return failed;
}

static const char *column_text(sqlite3_stmt *stmt, int column) {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text != NULL ? text : "";
}

/* What a query over `runs` gives, and whether it is what was recorded. */
struct row {
    struct stored_run run;
    char damage[128];
};

/* Columns by name: a database of an older schema lacks some of the last ones. */
static const char *named_text(sqlite3_stmt *stmt, const char *name) {
    for (int i = 0; i < sqlite3_column_count(stmt); i++) {
        if (strcmp(sqlite3_column_name(stmt, i), name) == 0) {
            return column_text(stmt, i);
        }
    }
    return "";
}

static void read_row(sqlite3_stmt *stmt, struct row *row) {
    row->run = (struct stored_run){
        .run = sqlite3_column_int64(stmt, 0),
        .system = column_text(stmt, 1),
        .model = column_text(stmt, 2),
        .gpu = column_text(stmt, 3),
        .profile = column_text(stmt, 4),
        .profile_kind = column_text(stmt, 5),
        .backend = column_text(stmt, 6),
        .trace = column_text(stmt, 7),
        .trace_provenance = column_text(stmt, 8),
        .seed = (uint64_t)sqlite3_column_int64(stmt, 9),
        .config = column_text(stmt, 10),
        .summary = column_text(stmt, 11),
        .n_requests = sqlite3_column_int64(stmt, 12),
        .n_steps = sqlite3_column_int64(stmt, 13),
        .n_events = sqlite3_column_int64(stmt, 14),
        .identity = named_text(stmt, "identity"),
        .rows_sha256 = named_text(stmt, "rows_sha256"),
        .sha256 = named_text(stmt, "sha256"),
    };
    const char *incomplete = named_text(stmt, "incomplete");
    row->run.incomplete = incomplete[0] != '\0' ? incomplete : NULL;
}

/* Of a row with a checksum; without one it is sound when its summary is an object. */
static int check_row(struct store *store, struct row *row, struct err *err) {
    char now[SHA256_HEX_CHARS];
    json_error_t trouble;
    if (row->run.sha256[0] != '\0') {
        int failed = store_digest_row(store, row->run.run, now, err);
        if (failed == 0 && strcmp(now, row->run.sha256) != 0) {
            snprintf(row->damage, sizeof row->damage, "its row is not the one that was recorded");
        }
        return failed;
    }
    json_t *summary = json_loads(row->run.summary, 0, &trouble);
    if (summary == NULL) {
        snprintf(row->damage, sizeof row->damage, "its summary is damaged (%.80s)", trouble.text);
    }
    json_decref(summary);
    return 0;
}

/* The row's texts outlive its statement, so that the callback may wait: no lock is held then. */
static void keep_texts(struct row *row, char *texts[ROW_TEXTS]) {
    const char **const places[ROW_TEXTS] = {
        &row->run.system,       &row->run.model,     &row->run.gpu,      &row->run.profile,
        &row->run.profile_kind, &row->run.backend,   &row->run.trace,    &row->run.trace_provenance,
        &row->run.config,       &row->run.summary,   &row->run.identity, &row->run.rows_sha256,
        &row->run.sha256,       &row->run.incomplete};
    for (int i = 0; i < ROW_TEXTS; i++) {
        texts[i] = *places[i] != NULL ? mem_text(*places[i]) : NULL;
        *places[i] = texts[i];
    }
}

int store_load_run(struct store *store, int64_t run,
                   int (*each)(void *state, const struct stored_run *run, struct err *err),
                   void *state, struct err *err) {
    struct row row = {.damage = ""};
    char *texts[ROW_TEXTS] = {NULL};
    sqlite3_stmt *stmt = NULL;
    int failed = find_run(store, run, "SELECT * FROM runs WHERE run=?", &stmt, err);
    if (failed == 0) {
        read_row(stmt, &row);
        failed = check_row(store, &row, err);
        row.run.damage = row.damage[0] != '\0' ? row.damage : NULL;
        keep_texts(&row, texts);
    }
    sqlite3_finalize(stmt);
    if (failed == 0) {
        failed = each(state, &row.run, err);
    }
    for (int i = 0; i < ROW_TEXTS; i++) {
        free(texts[i]);
    }
    return failed;
}

static int take_checksum(void *state, const struct stored_run *run, struct err *err) {
    (void)err;
    snprintf(state, SHA256_HEX_CHARS, "%s", run->damage == NULL ? run->rows_sha256 : "");
    return 0;
}

int store_check_rows(struct store *store, int64_t run, struct err *err) {
    char then[SHA256_HEX_CHARS] = "", now[SHA256_HEX_CHARS];
    int failed = store_load_run(store, run, take_checksum, then, err);
    if (failed != 0) {
        return failed;
    }
    if (then[0] == '\0') {
        return store->is_damaged
                   ? err_world(err,
                               "run %lld of '%s' has no checksum, and the database is damaged: it "
                               "is not to be trusted",
                               (long long)run, store->path)
                   : 0;
    }
    failed = store_digest_rows(store, run, now, err);
    return failed != 0              ? failed
           : strcmp(then, now) == 0 ? 0
                                    : err_world(err,
                                                "run %lld of '%s' is damaged: its rows are not "
                                                "those that were recorded",
                                                (long long)run, store->path);
}

/* The numbers of all runs, in order. */
static int list_numbers(struct store *store, int64_t **out, size_t *n, struct err *err) {
    size_t room = 0;
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store, "SELECT run FROM runs ORDER BY run", &stmt, err), rc;
    if (failed != 0) {
        return failed;
    }
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        *out = mem_grown(*out, *n, &room, sizeof **out);
        (*out)[(*n)++] = sqlite3_column_int64(stmt, 0);
    }
    return end_query(store, stmt, rc, 0, err);
}

int store_list_runs(struct store *store,
                    int (*each)(void *state, const struct stored_run *run, struct err *err),
                    void *state, struct err *err) {
    int64_t *numbers = NULL;
    size_t n = 0;
    int failed = list_numbers(store, &numbers, &n, err);
    for (size_t i = 0; failed == 0 && i < n; i++) {
        failed = store_load_run(store, numbers[i], each, state, err);
    }
    free(numbers);
    return failed;
}

/* -1: what an older unmask did not record. */
static int64_t column_integer(sqlite3_stmt *stmt, int column) {
    bool is_known = sqlite3_column_type(stmt, column) != SQLITE_NULL;
    return is_known ? sqlite3_column_int64(stmt, column) : -1;
}

/* Of what may stand in no row: 0 then. */
#define COLUMN_LOAD_SWAP(column, member)                                                           \
    record.member = (__typeof__(record.member))sqlite3_column_int64(stmt, place++);
#define COLUMN_LOAD(column, member)                                                                \
    record.member = (__typeof__(record.member))column_integer(stmt, place++);

static const char load_requests_sql[] = "SELECT run"
#define KEPT(type, name, ...) "," #name
#include "sim/serve/request.def"
                                        " FROM requests WHERE run=? ORDER BY number";

static struct request_record read_request(sqlite3_stmt *stmt) {
    struct request_record record = {0};
    int place = 0;
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->since > 0) {
            /* Any number may stand in a damaged file. */
            const uint64_t value = (uint64_t)column_integer(stmt, ++place);
            column_set_whole(c, &record, (int64_t)(value + (uint64_t)c->less));
        }
    }
    return record;
}

int store_load_requests(struct store *store, int64_t run,
                        int (*each)(void *state, const struct request_record *record,
                                    struct err *err),
                        void *state, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = query_run(store, run, load_requests_sql, &stmt, err);
    if (failed != 0) {
        return failed;
    }
    int rc;
    while (failed == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const struct request_record record = read_request(stmt);
        failed = record.reason < REJECT_REASON_COUNT && record.state < REQUEST_STATE_COUNT
                     ? each(state, &record, err)
                     : damaged(store, run, "a request's state or reason is unknown", err);
    }
    return end_query(store, stmt, rc, failed, err);
}

/* A blob of no bytes has no address. */
static const unsigned char *blob_of(sqlite3_stmt *stmt, int column, const unsigned char **end) {
    static const unsigned char none[1];
    const unsigned char *blob = sqlite3_column_blob(stmt, column);
    blob = blob != NULL ? blob : none;
    *end = blob + (blob != none ? sqlite3_column_bytes(stmt, column) : 0);
    return blob;
}

/* Steps that were recorded before there were patterns, or leading layers, have none of their
 * symbols. */
static bool get_symbols(sqlite3_stmt *stmt, int column, int64_t *sym) {
    const unsigned char *end, *at = blob_of(stmt, column, &end);
    for (int i = 0; i < SYM_COUNT; i++) {
        uint64_t value;
        if ((i == SYM_PATTERN_N || i == SYM_LEAD_FULL_N) && at == end) {
            memset(sym + i, 0, (SYM_COUNT - i) * sizeof *sym);
            return true;
        }
        if (!varint_get(&at, end, &value)) {
            return false;
        }
        sym[i] = (int64_t)value;
    }
    return at == end;
}

/* Room for the members of one step, grown as needed. */
struct batch {
    uint64_t *request_ids;
    uint32_t *commit_tokens;
    struct step_positions positions;
};

static int get_positions(struct store *store, int64_t run, sqlite3_stmt *stmt, int column,
                         struct batch *batch, struct step_record *record, struct err *err) {
    struct step_positions *p = &batch->positions;
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL) {
        return 0;
    }
    const unsigned char *end, *at = blob_of(stmt, column, &end);
    if (!position_bytes_get(at, end, record->n, p)) {
        return damaged(store, run, "a step's positions do not decode", err);
    }
    bool has_others = sqlite3_column_type(stmt, column + 1) != SQLITE_NULL;
    at = has_others ? blob_of(stmt, column + 1, &end) : end;
    if (has_others && !outcome_bytes_get(at, end, record->n, p)) {
        return damaged(store, run, "what became of a step's positions does not decode", err);
    }
    record->positions = p;
    return 0;
}

/* Each member takes two bytes at least, which bounds what a damaged `n` can ask for. */
static int get_members(struct store *store, int64_t run, sqlite3_stmt *stmt, int column,
                       struct batch *batch, struct step_record *record, struct err *err) {
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL) {
        return 0;
    }
    const unsigned char *end, *at = blob_of(stmt, column, &end);
    if (record->n > (size_t)(end - at) / 2) {
        return damaged(store, run, "a step has more requests than its member list", err);
    }
    batch->request_ids =
        mem_resized(batch->request_ids, (size_t)record->n + 1, sizeof *batch->request_ids);
    batch->commit_tokens =
        mem_resized(batch->commit_tokens, (size_t)record->n + 1, sizeof *batch->commit_tokens);
    for (uint32_t i = 0; i < record->n; i++) {
        uint64_t tokens;
        if (!varint_get(&at, end, &batch->request_ids[i]) || !varint_get(&at, end, &tokens) ||
            tokens > UINT32_MAX) {
            return damaged(store, run, "a member list does not decode", err);
        }
        batch->commit_tokens[i] = (uint32_t)tokens;
    }
    if (at != end) {
        return damaged(store, run, "a member list is longer than its step", err);
    }
    record->request_ids = batch->request_ids;
    record->commit_tokens = batch->commit_tokens;
    return 0;
}

int store_load_steps(struct store *store, int64_t run,
                     int (*each)(void *state, const struct step_record *record, struct err *err),
                     void *state, struct err *err) {
    return store_load_steps_of(store, run, INT64_MIN, INT64_MAX, each, state, err);
}

#define OF_STEP(column, member) ",s." #column

int store_load_steps_of(struct store *store, int64_t run, int64_t first, int64_t end,
                        int (*each)(void *state, const struct step_record *record, struct err *err),
                        void *state, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = query_run(
        store, run,
        "SELECT s.run" STEP_COLUMNS(OF_STEP)
            SWAP_COLUMNS(COLUMN_NAME) ",symbols,batch,positions,outcomes FROM steps s"
                                      " LEFT JOIN members m ON m.run=s.run AND m.number=s.members"
                                      " LEFT JOIN swaps w ON w.run=s.run AND w.idx=s.idx"
                                      " WHERE s.run=? AND s.idx>=? AND s.idx<? ORDER BY s.idx",
        &stmt, err);
    if (failed != 0) {
        return failed;
    }
    sqlite3_bind_int64(stmt, 2, first);
    sqlite3_bind_int64(stmt, 3, end);
    struct batch batch = {0};
    int rc;
    while (failed == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        int64_t sym[SYM_COUNT];
        struct step_record record = {.sym = sym};
        int place = 1;
        STEP_COLUMNS(COLUMN_LOAD)
        SWAP_COLUMNS(COLUMN_LOAD_SWAP)
        failed = get_symbols(stmt, place, sym)
                     ? get_members(store, run, stmt, place + 1, &batch, &record, err)
                     : damaged(store, run, "a step's symbols do not decode", err);
        failed =
            failed != 0 ? failed : get_positions(store, run, stmt, place + 2, &batch, &record, err);
        if (failed == 0) {
            failed = each(state, &record, err);
        }
    }
    positions_free(&batch.positions);
    free(batch.request_ids);
    free(batch.commit_tokens);
    return end_query(store, stmt, rc, failed, err);
}

int store_load_events(struct store *store, int64_t run,
                      int (*each)(void *state, const struct event_record *record, struct err *err),
                      void *state, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = query_run(
        store, run,
        "SELECT run" EVENT_COLUMNS(COLUMN_NAME) " FROM events WHERE run=? ORDER BY number", &stmt,
        err);
    if (failed != 0) {
        return failed;
    }
    int rc;
    while (failed == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct event_record record = {0};
        int place = 1;
        EVENT_COLUMNS(COLUMN_LOAD)
        failed = record.kind < EVENT_KIND_COUNT
                     ? each(state, &record, err)
                     : damaged(store, run, "an event's kind is unknown", err);
    }
    return end_query(store, stmt, rc, failed, err);
}

/* The first cell of the answer, to be freed by the caller; NULL where there is no row. */
static int take_text(struct store *store, sqlite3_stmt *stmt, char **out, struct err *err) {
    int rc = sqlite3_step(stmt), failed = 0;
    *out = rc == SQLITE_ROW ? mem_text(column_text(stmt, 0)) : NULL;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        failed = store_fail(store, rc, "read", err);
    }
    sqlite3_finalize(stmt);
    return failed;
}

static int load_text(struct store *store, int64_t run, const char *sql, char **out,
                     struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = query_run(store, run, sql, &stmt, err);
    return failed != 0 ? failed : take_text(store, stmt, out, err);
}

int store_load_config(struct store *store, int64_t run, char **out, struct err *err) {
    return load_text(store, run, "SELECT config FROM runs WHERE run=?", out, err);
}

int store_load_summary(struct store *store, int64_t run, char **out, struct err *err) {
    return load_text(store, run, "SELECT summary FROM runs WHERE run=?", out, err);
}

/* A run that is said to have an identity. */
struct wanted {
    const char *identity;
    int64_t run; /* 0: none is known */
    char *summary;
};

static int take_wanted(void *state, const struct stored_run *run, struct err *err) {
    struct wanted *wanted = state;
    (void)err;
    if (run->damage == NULL && strcmp(run->identity, wanted->identity) == 0) {
        wanted->run = run->run;
        wanted->summary = mem_text(run->summary);
    }
    return 0;
}

int store_find_whole(struct store *store, const char *identity, enum store_level level,
                     int64_t *run, char **summary, struct err *err) {
    struct wanted wanted = {.identity = identity};
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store,
                               "SELECT run FROM runs WHERE identity=?1 AND summary NOT NULL"
                               " AND incomplete IS NULL AND (?2<1 OR n_steps>0)"
                               " AND (?2<2 OR n_events>0) ORDER BY run DESC",
                               &stmt, err);
    if (failed == 0) {
        sqlite3_bind_text(stmt, 1, identity, -1, SQLITE_STATIC);
        sqlite3_bind_int(stmt, 2, (int)level);
    }
    int rc = SQLITE_DONE;
    while (failed == 0 && wanted.run == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        failed = store_load_run(store, sqlite3_column_int64(stmt, 0), take_wanted, &wanted, err);
        rc = SQLITE_DONE;
    }
    *run = wanted.run;
    if (summary != NULL) {
        *summary = wanted.summary;
    } else {
        free(wanted.summary);
    }
    return end_query(store, stmt, rc, failed, err);
}

int store_find_summary(struct store *store, const char *identity, char **out, struct err *err) {
    int64_t run;
    return store_find_whole(store, identity, STORE_REQUESTS, &run, out, err);
}
