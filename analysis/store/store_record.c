/* The recording half of the store. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/column.h"
#include "analysis/identity.h"
#include "analysis/store/position_bytes.h"
#include "analysis/store/store_impl.h"
#include "analysis/store/varint.h"
#include "analysis/summary_output.h"
#include "sim/base/mem.h"

static const char doing[] = "record this run (rolled back, earlier runs are intact) into";

int store_begin(struct store *store, struct err *err) {
    return sqlite3_get_autocommit(store->db) == 0
               ? 0
               : store_run_sql(store, "BEGIN IMMEDIATE", "record into", err);
}

bool store_was_locked(const struct store *store) {
    return store->was_locked;
}

void store_roll_back(struct store *store) {
    if (sqlite3_get_autocommit(store->db) == 0) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    store->open = (struct saved_run){0};
}

void store_run_rollback(struct store *store) {
    /* SQLite has already rolled back by itself after some errors, a full disk among them. */
    if (store->open.run != 0 && sqlite3_get_autocommit(store->db) == 0) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    store->open = (struct saved_run){0};
}

/* No batch is known to be the last of its replica. */
static void forget_batches(struct store *store) {
    for (uint32_t i = 0; i < store->n_last; i++) {
        store->last[i].number = 0;
    }
}

/* Bound values are ours and complete; run the statement. A failure ends the run. */
static int put_row(struct store *store, sqlite3_stmt *stmt, struct err *err) {
    errno = 0;
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE) {
        sqlite3_reset(stmt);
        return 0;
    }
    int failed = store_fail(store, rc, doing, err);
    sqlite3_reset(stmt);
    store_run_rollback(store);
    return failed;
}

#define COLUMN_VALUE(column, member) (int64_t) r->member,

/* Binds integers from the first place on. */
static void bind_all(sqlite3_stmt *stmt, const int64_t *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sqlite3_bind_int64(stmt, (int)i + 1, values[i]);
    }
}

static int put_request(struct store *store, int64_t number, const struct request_record *r,
                       struct err *err) {
    const int64_t key[] = {store->open.run, number};
    int place = 2;
    bind_all(store->put_request, key, 2);
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->since > 0) {
            const uint64_t value = (uint64_t)column_whole(c, r);
            (void)(c->less > 0 && value == 0
                       ? sqlite3_bind_null(store->put_request, ++place)
                       : sqlite3_bind_int64(store->put_request, ++place,
                                            (int64_t)(value - (uint64_t)c->less)));
        }
    }
    return put_row(store, store->put_request, err);
}

/* Of a request that is under way there is a row below those of requests that have left. */
static int64_t number_under_way(uint64_t id) {
    return -1 - (int64_t)id;
}

static int record_arrival(void *state, const struct arrival *arrival, struct err *err) {
    struct store *store = state;
    struct request_record record = request_record_of(arrival);
    record.prefix_tokens = arrival->prefix_tokens;
    record.state = REQUEST_QUEUED;
    store->open.n_under_way++;
    return put_request(store, number_under_way(arrival->id), &record, err);
}

static int drop_arrival(struct store *store, uint64_t id, struct err *err) {
    const int64_t key[] = {store->open.run, number_under_way(id)};
    bind_all(store->drop_arrival, key, 2);
    int failed = put_row(store, store->drop_arrival, err);
    store->open.n_under_way -= failed == 0 ? sqlite3_changes(store->db) : 0;
    return failed;
}

static int record_request(void *state, const struct request_record *r, struct err *err) {
    struct store *store = state;
    int failed = store->open.n_under_way > 0 ? drop_arrival(store, r->id, err) : 0;
    if (failed == 0 && r->reason == REJECT_CANCELLED) {
        failed = store_name_cancelled(store, err);
    }
    return failed != 0 ? failed : put_request(store, store->open.n_requests++, r, err);
}

static void bytes_reserve(struct bytes *bytes, size_t capacity) {
    if (capacity > bytes->capacity) {
        bytes->capacity = capacity < 2 * bytes->capacity ? 2 * bytes->capacity : capacity;
        bytes->data = mem_resized(bytes->data, bytes->capacity, 1);
    }
}

/* The number in `members` of the record's batch, written only when it differs from the replica's
 * last one; 0 when the record names no members. */
static int record_members(struct store *store, const struct step_record *r, int64_t *number,
                          struct err *err) {
    *number = 0;
    if (r->request_ids == NULL || r->commit_tokens == NULL) {
        return 0;
    }
    if (r->replica >= store->n_last) {
        struct last_members *last = mem_resized(store->last, (size_t)r->replica + 1, sizeof *last);
        memset(last + store->n_last, 0, (r->replica + 1 - store->n_last) * sizeof *last);
        store->last = last;
        store->n_last = r->replica + 1;
    }
    struct bytes *batch = &store->scratch;
    bytes_reserve(batch, 2 * (size_t)MAX_VARINT_BYTES * r->n + 1);
    unsigned char *at = batch->data;
    for (uint32_t i = 0; i < r->n; i++) {
        at += varint_put(at, r->request_ids[i]);
        at += varint_put(at, r->commit_tokens[i]);
    }
    batch->n = (size_t)(at - batch->data);
    struct last_members *last = &store->last[r->replica];
    if (last->number != 0 && last->batch.n == batch->n &&
        memcmp(last->batch.data, batch->data, batch->n) == 0) {
        *number = last->number;
        return 0;
    }
    struct bytes old = last->batch;
    last->batch = *batch;
    *batch = old;
    last->number = ++store->open.n_members;
    *number = last->number;
    sqlite3_bind_int64(store->put_members, 1, store->open.run);
    sqlite3_bind_int64(store->put_members, 2, last->number);
    sqlite3_bind_blob(store->put_members, 3, last->batch.data, (int)last->batch.n, SQLITE_STATIC);
    return put_row(store, store->put_members, err);
}

/* What the step kept of its members' windows, and what became of their positions. */
static void record_positions(struct store *store, const struct step_record *r, int column) {
    const struct step_positions *positions = r->positions;
    struct bytes *bits = &store->bits;
    sqlite3_bind_null(store->put_step, column);
    sqlite3_bind_null(store->put_step, column + 1);
    if (positions == NULL) {
        return;
    }
    size_t most = position_bytes_most(positions, r->n);
    bytes_reserve(bits, 2 * most);
    unsigned char *others = bits->data + most;
    size_t n_others = outcome_bytes_put(others, positions, r->n);
    bits->n = position_bytes_put(bits->data, positions, r->n);
    sqlite3_bind_blob(store->put_step, column, bits->data, (int)bits->n, SQLITE_STATIC);
    if (n_others > 0) {
        sqlite3_bind_blob(store->put_step, column + 1, others, (int)n_others, SQLITE_STATIC);
    }
}

static int record_swap(struct store *store, const struct step_record *r, struct err *err) {
    const int64_t values[] = {store->open.run, (int64_t)r->index, SWAP_COLUMNS(COLUMN_VALUE)};
    bind_all(store->put_swap, values, sizeof values / sizeof values[0]);
    return put_row(store, store->put_swap, err);
}

static int record_step(void *state, const struct step_record *r, struct err *err) {
    struct store *store = state;
    int64_t members;
    int failed = record_members(store, r, &members, err);
    failed = failed == 0 && swap_is_any(&r->swap) ? record_swap(store, r, err) : failed;
    if (failed != 0) {
        return failed;
    }
    unsigned char symbols[SYM_COUNT * MAX_VARINT_BYTES], *end = symbols;
    for (int i = 0; i < SYM_COUNT; i++) {
        end += varint_put(end, (uint64_t)r->sym[i]);
    }
    sqlite3_stmt *stmt = store->put_step;
    const int64_t values[] = {store->open.run, STEP_COLUMNS(COLUMN_VALUE) r->sym[SYM_TOKENS],
                              members};
    enum { N_VALUES = sizeof values / sizeof values[0] };
    bind_all(stmt, values, N_VALUES);
    sqlite3_bind_blob(stmt, N_VALUES + 1, symbols, (int)(end - symbols), SQLITE_STATIC);
    record_positions(store, r, N_VALUES + 2);
    store->open.n_steps++;
    return put_row(store, stmt, err);
}

static int record_event(void *state, const struct event_record *r, struct err *err) {
    struct store *store = state;
    const int64_t values[] = {store->open.run, store->open.n_events++, EVENT_COLUMNS(COLUMN_VALUE)};
    bind_all(store->put_event, values, sizeof values / sizeof values[0]);
    return put_row(store, store->put_event, err);
}

/* Write the row of the run with what is known now; it is completed on commit. */
static int put_run(struct store *store, const struct run_facts *f, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store,
                               "INSERT INTO runs(system,model,gpu,profile,profile_kind,backend,"
                               "trace,trace_provenance,config,seed,identity)"
                               " VALUES(?,?,?,?,?,?,?,?,?,?,?)",
                               &stmt, err);
    if (failed != 0) {
        return failed;
    }
    const char *const texts[] = {f->system,       f->model,   f->gpu,   f->profile,
                                 f->profile_kind, f->backend, f->trace, f->trace_provenance,
                                 f->config};
    enum { N_TEXTS = sizeof texts / sizeof texts[0] };
    for (int i = 0; i < N_TEXTS; i++) {
        sqlite3_bind_text(stmt, i + 1, texts[i], -1, SQLITE_STATIC);
    }
    sqlite3_bind_int64(stmt, N_TEXTS + 1, (int64_t)f->seed);
    const char *digest = identity_digest(f->identity);
    if (digest[0] != '\0') {
        sqlite3_bind_text(stmt, N_TEXTS + 2, digest, -1, SQLITE_STATIC);
    }
    failed = put_row(store, stmt, err);
    sqlite3_finalize(stmt);
    store->open.run = sqlite3_last_insert_rowid(store->db);
    return failed;
}

static const char put_request_sql[] = "INSERT INTO requests(run,number"
#define KEPT(type, name, ...) "," #name
#include "sim/serve/request.def"
                                      ") VALUES(?,?"
#define KEPT(...) ",?"
#include "sim/serve/request.def"
                                      ")";

static int prepare_recording(struct store *store, struct err *err) {
    const struct {
        sqlite3_stmt **out;
        const char *sql;
    } statements[] = {
        {&store->put_request, put_request_sql},
        {&store->put_members, "INSERT INTO members VALUES(?,?,?)"},
        {&store->put_step, "INSERT INTO steps(run" STEP_COLUMNS(
                               COLUMN_NAME) ",tokens,members,symbols,positions,outcomes) "
                                            "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
        {&store->put_swap,
         "INSERT INTO swaps(run,idx" SWAP_COLUMNS(COLUMN_NAME) ") VALUES(?,?,?,?,?,?,?,?)"},
        {&store->drop_arrival, "DELETE FROM requests WHERE run=? AND number=?"},
        {&store->put_event,
         "INSERT INTO events(run,number" EVENT_COLUMNS(COLUMN_NAME) ") VALUES(?,?,?,?,?,?,?)"},
    };
    int failed = 0;
    for (size_t i = 0; failed == 0 && i < sizeof statements / sizeof statements[0]; i++) {
        if (*statements[i].out == NULL) {
            failed = store_prepare(store, statements[i].sql, statements[i].out, err);
        }
    }
    return failed;
}

int store_run_begin(struct store *store, const struct run_facts *facts, enum store_level level,
                    int64_t *run, struct sink *out, struct err *err) {
    ASSERT(store->open.run == 0);
    int failed = store_begin(store, err);
    if (failed != 0) {
        return failed;
    }
    store->open = (struct saved_run){.run = -1}; /* without a number so far */
    forget_batches(store);
    failed = prepare_recording(store, err);
    if (failed == 0) {
        failed = put_run(store, facts, err);
    }
    if (failed != 0) {
        store_run_rollback(store);
        return failed;
    }
    *run = store->open.run;
    *out = (struct sink){
        .state = store,
        .request = record_request,
        .step = level >= STORE_STEPS ? record_step : NULL,
        .event = level >= STORE_EVENTS ? record_event : NULL,
        .arrival = level >= STORE_STEPS ? record_arrival : NULL,
    };
    return 0;
}

int store_run_continue(struct store *store, const struct saved_run *saved, struct err *err) {
    ASSERT(store->open.run == 0 && saved->run > 0);
    int failed = store_begin(store, err);
    if (failed == 0) {
        store->open = *saved;
        forget_batches(store);
    }
    return failed;
}

/* Texts and counts from the first place on, then the run's number; NULL texts are NULLs. */
static int update_row(struct store *store, const char *sql, const char *const *texts, int n_texts,
                      struct err *err) {
    const int64_t counts[] = {store->open.n_requests, store->open.n_steps, store->open.n_events};
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store, sql, &stmt, err);
    if (failed != 0) {
        store_run_rollback(store);
        return failed;
    }
    int n_counts = sqlite3_bind_parameter_count(stmt) - n_texts - 1;
    for (int i = 0; i < n_texts; i++) {
        sqlite3_bind_text(stmt, i + 1, texts[i], -1, SQLITE_STATIC);
    }
    for (int i = 0; i < n_counts; i++) {
        sqlite3_bind_int64(stmt, n_texts + i + 1, counts[i]);
    }
    sqlite3_bind_int64(stmt, n_texts + n_counts + 1, store->open.run);
    failed = put_row(store, stmt, err);
    sqlite3_finalize(stmt);
    return failed;
}

/* The row of the run as it is to be, its checksum last. */
static int complete_row(struct store *store, const char *summary, const char *incomplete,
                        const char *rows_sha256, struct err *err) {
    char sha256[SHA256_HEX_CHARS];
    int failed = update_row(store,
                            "UPDATE runs SET summary=?1,incomplete=?2,rows_sha256=?3,n_requests=?4,"
                            "n_steps=?5,n_events=?6,trace=CASE WHEN json_valid(?1) THEN "
                            "coalesce(json_extract(?1,'$.trace'),trace) ELSE trace END "
                            "WHERE run=?7",
                            (const char *const[]){summary, incomplete, rows_sha256}, 3, err);
    failed = failed != 0 ? failed : store_digest_row(store, store->open.run, sha256, err);
    return failed != 0 ? failed
                       : update_row(store, "UPDATE runs SET sha256=? WHERE run=?",
                                    (const char *const[]){sha256}, 1, err);
}

/* `summary` is a text of JSON. */
static int end_transaction(struct store *store, const char *summary, const char *incomplete,
                           bool is_last, struct err *err) {
    if (store->open.run == 0) {
        return err_world(err, "'%s' holds nothing of this run: it was rolled back after an error",
                         store->path);
    }
    char rows_sha256[SHA256_HEX_CHARS];
    int failed = is_last ? store_digest_rows(store, store->open.run, rows_sha256, err) : 0;
    if (failed == 0) {
        failed = complete_row(store, summary, incomplete, is_last ? rows_sha256 : NULL, err);
    }
    return failed != 0 ? failed : store_run_sql(store, "COMMIT", doing, err);
}

/* To be freed by the caller; NULL on an error. */
static char *text_of(const struct summary *summary, const struct run_facts *facts,
                     struct err *err) {
    json_t *object = NULL;
    char *text =
        summary_json(summary, facts, &object, err) == 0 ? summary_json_text(object, 0) : NULL;
    json_decref(object);
    return text;
}

int store_run_save(struct store *store, const struct summary *summary,
                   const struct run_facts *facts, struct saved_run *out, struct err *err) {
    ASSERT(facts->incomplete != NULL);
    char *text = text_of(summary, facts, err);
    int failed = text != NULL ? end_transaction(store, text, facts->incomplete, false, err)
                              : err_status(err);
    if (failed == 0) {
        *out = store->open;
        store->open = (struct saved_run){0};
    }
    store_run_rollback(store);
    free(text);
    return failed;
}

int store_run_commit_text(struct store *store, const char *summary, const char *incomplete,
                          struct err *err) {
    int failed = end_transaction(store, summary, incomplete, true, err);
    store->open.run = failed == 0 ? 0 : store->open.run;
    store_run_rollback(store);
    return failed;
}

int store_run_commit(struct store *store, const struct summary *summary,
                     const struct run_facts *facts, struct err *err) {
    char *text = text_of(summary, facts, err);
    if (text == NULL) {
        store_run_rollback(store);
        return err_status(err);
    }
    int failed = store_run_commit_text(store, text, facts->incomplete, err);
    free(text);
    return failed;
}
