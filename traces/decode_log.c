#include "traces/decode_log.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/decode/block.h"
#include "traces/decode_trace.h"

static const char schema[] =
    "CREATE TABLE about(key TEXT, value TEXT);"
    "CREATE TABLE request(id INTEGER PRIMARY KEY, prompt_tokens INTEGER, output_tokens INTEGER,"
    " answer_tokens INTEGER);"
    "CREATE TABLE pass(request INTEGER, passes INTEGER, committed INTEGER, processed INTEGER,"
    " kept INTEGER, reach INTEGER, start INTEGER, length INTEGER, masked BLOB, run BLOB, keep BLOB,"
    " chosen BLOB, seen BLOB, token BLOB, confidence BLOB, margin BLOB, entropy BLOB,"
    " importance_before BLOB, importance_after BLOB, unmasked INTEGER, revised BLOB, again BLOB,"
    " revisions INTEGER);";
static const char insert_request[] = "INSERT INTO request VALUES(?, ?, ?, ?)";
static const char insert_pass[] =
    "INSERT INTO pass VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

enum { N_FLAGS = 5, N_VALUES = 6, N_BLOBS = N_FLAGS + N_VALUES };
/* Outcomes that have a bitmap where a pass has any, after the other columns. */
static const uint8_t others[] = {OUTCOME_REVISE, OUTCOME_AGAIN};
enum { N_OTHERS = sizeof others / sizeof others[0] };

/* Columns, counted from 1. */
enum { FIRST_BLOB = 9, UNMASKED = FIRST_BLOB + N_BLOBS, REVISIONS = UNMASKED + 1 + N_OTHERS };

/* Equal passes; of one whose positions are known, these as they are stored. */
struct row {
    struct decode_pass pass;
    uint32_t n;
    uint32_t start, length;        /* length 0: positions are not known */
    unsigned char *bytes;          /* owned; the blobs one after the other */
    int sizes[N_BLOBS + N_OTHERS]; /* -1: NULL */
};

struct written {
    struct row *rows;
    size_t n, room;
    struct decode_done done;
    bool is_finished;
};

struct decode_log {
    sqlite3 *db;
    sqlite3_stmt *request, *pass;
    char *path;
    struct written *requests; /* by id */
    size_t n;
    uint64_t *finished; /* ids that are to be flushed */
    bool is_kept;
    size_t n_finished, room;
};

static int cannot(const struct decode_log *log, struct err *err) {
    return err_world(err, "cannot write '%s': %s", log->path, sqlite3_errmsg(log->db));
}

static int run_sql(struct decode_log *log, const char *sql, struct err *err) {
    return sqlite3_exec(log->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : cannot(log, err);
}

/* With the journal of a program that was killed, which would be played into the new file. */
static bool remove_old(const char *path) {
    char journal[4096];
    snprintf(journal, sizeof journal, "%s-journal", path);
    return (unlink(journal) == 0 || errno == ENOENT) && (unlink(path) == 0 || errno == ENOENT);
}

/* Unless it is kept, nothing is read from a file that was not closed well: no journal, no waiting
 * for the disk. */
static int prepare(struct decode_log *log, uint32_t block_tokens, struct err *err) {
    char sql[1024];
    int status = run_sql(log, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN", err);
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
             DECODE_TRACE_ID, DECODE_TRACE_VERSION);
    status = status != 0 ? status : run_sql(log, sql, err);
    status = status != 0 ? status : run_sql(log, schema, err);
    snprintf(sql, sizeof sql, "INSERT INTO about VALUES('block_tokens', '%u')", block_tokens);
    status = status != 0 ? status : run_sql(log, sql, err);
    if (status == 0 &&
        (sqlite3_prepare_v2(log->db, insert_request, -1, &log->request, NULL) != SQLITE_OK ||
         sqlite3_prepare_v2(log->db, insert_pass, -1, &log->pass, NULL) != SQLITE_OK)) {
        status = cannot(log, err);
    }
    return status;
}

int decode_log_open(const char *path, uint32_t block_tokens, struct decode_log **out,
                    struct err *err) {
    struct decode_log *log = mem_zeroed(1, sizeof *log);
    struct stat found;
    log->path = mem_text(path);
    int status = 0;
    const bool is_there = stat(path, &found) == 0;
    const bool is_empty = is_there && S_ISREG(found.st_mode) && found.st_size == 0;
    if (is_there && !S_ISREG(found.st_mode)) {
        status = err_world(err, "cannot write '%s': not a file, as a decode trace is", path);
    } else if (!is_empty && !remove_old(path)) {
        status = err_world(err, "cannot write '%s': %s", path, strerror(errno));
    } else if (sqlite3_open(path, &log->db) != SQLITE_OK) {
        status = cannot(log, err);
    }
    status = status != 0 ? status : prepare(log, block_tokens, err);
    if (status != 0) {
        decode_log_drop(log);
        return status;
    }
    *out = log;
    return 0;
}

static void forget(struct written *written) {
    for (size_t i = 0; i < written->n; i++) {
        free(written->rows[i].bytes);
    }
    free(written->rows);
    *written = (struct written){0};
}

void decode_log_drop(struct decode_log *log) {
    if (log == NULL) {
        return;
    }
    for (size_t i = 0; i < log->n; i++) {
        forget(&log->requests[i]);
    }
    sqlite3_finalize(log->request);
    sqlite3_finalize(log->pass);
    sqlite3_close(log->db);
    free(log->requests);
    free(log->finished);
    free(log->path);
    free(log);
}

/* ---- what is kept ---- */

static struct written *written_of(struct decode_log *log, uint64_t request) {
    if (request >= log->n) {
        size_t n = 2 * (size_t)request + 64;
        log->requests = mem_resized(log->requests, n, sizeof *log->requests);
        memset(log->requests + log->n, 0, (n - log->n) * sizeof *log->requests);
        log->n = n;
    }
    return &log->requests[request];
}

/* Which of n values are `wanted`. */
static size_t pack_flags(const uint8_t *values, uint8_t wanted, uint32_t n, unsigned char *out) {
    memset(out, 0, (n + 7) / 8);
    for (uint32_t i = 0; i < n; i++) {
        out[i / 8] |= (unsigned char)((values[i] == wanted) << i % 8);
    }
    return (n + 7) / 8;
}

/* Of four bytes each, those that are flagged. */
static size_t pack_values(const void *values, const uint8_t *of, const uint8_t *and_of, uint32_t n,
                          unsigned char *out) {
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (of[i] && and_of[i]) {
            memcpy(out + at, (const unsigned char *)values + 4 * (size_t)i, 4);
            at += 4;
        }
    }
    return at;
}

static void pack(const struct decode_positions *p, struct row *row) {
    const uint8_t *const flags[N_FLAGS] = {p->masked, p->run, p->keep, p->outcome, p->seen};
    const void *const values[N_VALUES] = {p->token,   p->confidence, p->margin,
                                          p->entropy, p->before,     p->after};
    size_t at = 0;
    row->start = p->start;
    row->length = p->length;
    row->bytes = mem_unwritten(N_BLOBS, 4 * (size_t)p->length);
    for (int i = 0; i < N_BLOBS; i++) {
        size_t size = 0;
        bool is_importance = i >= N_BLOBS - 2;
        if (i < N_FLAGS) {
            size = pack_flags(flags[i], flags[i] == p->outcome ? OUTCOME_COMMIT : 1, p->length,
                              row->bytes + at);
        } else if (!is_importance) {
            size = pack_values(values[i - N_FLAGS], p->seen, p->seen, p->length, row->bytes + at);
        } else if (p->has_importance) {
            size = pack_values(values[i - N_FLAGS], p->masked, p->run, p->length, row->bytes + at);
        }
        row->sizes[i] = is_importance && !p->has_importance ? -1 : (int)size;
        at += size;
    }
    const struct outcomes found = block_outcomes(p->outcome, p->length);
    for (int i = 0; i < N_OTHERS; i++) {
        bool is_there = found.n[others[i]] > 0;
        row->sizes[N_BLOBS + i] = -1;
        if (is_there) {
            size_t size = pack_flags(p->outcome, others[i], p->length, row->bytes + at);
            row->sizes[N_BLOBS + i] = (int)size;
            at += size;
        }
    }
    row->bytes = mem_resized(row->bytes, at, 1);
}

static bool is_equal(const struct decode_pass *a, const struct decode_pass *b) {
    return a->committed == b->committed && a->processed == b->processed && a->kept == b->kept &&
           a->reach == b->reach && a->unmasked == b->unmasked && a->revised == b->revised;
}

void decode_log_add(struct decode_log *log, uint64_t request, const struct decode_pass *pass,
                    uint32_t n, const struct decode_positions *positions) {
    struct written *written = written_of(log, request);
    struct row *last = written->n > 0 ? &written->rows[written->n - 1] : NULL;
    if (last != NULL && positions == NULL && last->length == 0 && is_equal(&last->pass, pass) &&
        n <= UINT32_MAX - last->n) {
        last->n += n;
        return;
    }
    written->rows = mem_grown(written->rows, written->n, &written->room, sizeof *written->rows);
    struct row *row = &written->rows[written->n++];
    *row = (struct row){.pass = *pass, .n = n};
    if (positions != NULL) {
        ASSERT(n == 1);
        pack(positions, row);
    }
}

void decode_log_finish(struct decode_log *log, uint64_t request, const struct decode_done *done) {
    struct written *written = written_of(log, request);
    written->is_finished = true;
    written->done = *done;
    if (log->n_finished == log->room) {
        log->room = 2 * log->room + 64;
        log->finished = mem_resized(log->finished, log->room, sizeof *log->finished);
    }
    log->finished[log->n_finished++] = request;
}

/* ---- what is written ---- */

/* The statement begins anew with everything NULL. */
static void restart(sqlite3_stmt *statement) {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

static void bind_known(sqlite3_stmt *statement, int column, uint32_t value) {
    if (value > 0) {
        sqlite3_bind_int64(statement, column, value);
    }
}

static int write_row(struct decode_log *log, uint64_t request, const struct row *row,
                     struct err *err) {
    sqlite3_stmt *statement = log->pass;
    const struct decode_pass *pass = &row->pass;
    const sqlite3_int64 counts[] = {(sqlite3_int64)request, row->n,     pass->committed,
                                    pass->processed,        pass->kept, pass->reach};
    int column = 1;
    restart(statement);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        sqlite3_bind_int64(statement, column++, counts[i]);
    }
    if (row->length > 0) {
        const unsigned char *at = row->bytes;
        sqlite3_bind_int64(statement, column++, row->start);
        sqlite3_bind_int64(statement, column++, row->length);
        for (int i = 0; i < N_BLOBS + N_OTHERS; i++) {
            if (row->sizes[i] >= 0) {
                int to = i < N_BLOBS ? FIRST_BLOB + i : UNMASKED + 1 + i - N_BLOBS;
                sqlite3_bind_blob(statement, to, at, row->sizes[i], SQLITE_STATIC);
                at += row->sizes[i];
            }
        }
    }
    sqlite3_bind_int64(statement, UNMASKED, pass->unmasked);
    sqlite3_bind_int64(statement, REVISIONS, pass->revised);
    return sqlite3_step(statement) == SQLITE_DONE ? 0 : cannot(log, err);
}

int decode_log_flush(struct decode_log *log, struct err *err) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < log->n_finished; i++) {
        uint64_t id = log->finished[i];
        struct written *written = &log->requests[id];
        restart(log->request);
        sqlite3_bind_int64(log->request, 1, (sqlite3_int64)id);
        bind_known(log->request, 2, written->done.prompt_tokens);
        bind_known(log->request, 3, written->done.output_tokens);
        bind_known(log->request, 4, written->done.answer_tokens);
        status = sqlite3_step(log->request) == SQLITE_DONE ? 0 : cannot(log, err);
        for (size_t r = 0; status == 0 && r < written->n; r++) {
            status = write_row(log, id, &written->rows[r], err);
        }
        forget(written);
    }
    log->n_finished = 0;
    return status;
}

static int write_about(struct decode_log *log, const char *about, struct err *err) {
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(log->db, "INSERT INTO about VALUES(?, ?)", -1, &statement, NULL) !=
        SQLITE_OK) {
        return cannot(log, err);
    }
    int status = 0;
    for (const char *line = about; status == 0 && *line != '\0';) {
        int length = (int)strcspn(line, "\n");
        const char *colon = memchr(line, ':', (size_t)length);
        ASSERT(colon != NULL);
        const char *value = colon + 1 + (colon[1] == ' ');
        restart(statement);
        sqlite3_bind_text(statement, 1, line, (int)(colon - line), SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, value, (int)(line + length - value), SQLITE_STATIC);
        status = sqlite3_step(statement) == SQLITE_DONE ? 0 : cannot(log, err);
        line += length + (line[length] == '\n');
    }
    sqlite3_finalize(statement);
    return status;
}

int decode_log_keep(struct decode_log *log, const char *about, struct err *err) {
    log->is_kept = true;
    int status = write_about(log, about, err);
    return status != 0 ? status : run_sql(log, "COMMIT; PRAGMA journal_mode = DELETE; BEGIN", err);
}

int decode_log_save(struct decode_log *log, struct err *err) {
    int status = decode_log_flush(log, err);
    return status != 0 ? status : run_sql(log, "COMMIT; BEGIN", err);
}

int decode_log_close(struct decode_log *log, const char *about, struct err *err) {
    int status = decode_log_flush(log, err);
    if (status == 0 && log->is_kept) {
        status = run_sql(log, "DELETE FROM about WHERE key <> 'block_tokens'", err);
    }
    status = status != 0 ? status : write_about(log, about, err);
    status = status != 0 ? status : run_sql(log, "COMMIT", err);
    decode_log_drop(log);
    return status;
}

int decode_log_may_replace(const char *path, struct err *err) {
    struct stat found;
    if (path[0] == '\0') {
        return err_usage(err, "a decode trace needs the name of a file");
    }
    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0) {
        return 0; /* whatever else is wrong shows when it is opened */
    }
    unsigned char head[72] = {0};
    const unsigned id = DECODE_TRACE_ID;
    const unsigned char big_endian[] = {id >> 24 & 255, id >> 16 & 255, id >> 8 & 255, id & 255};
    FILE *file = fopen(path, "rb");
    bool is_one = file != NULL && fread(head, 1, sizeof head, file) == sizeof head &&
                  memcmp(head + 68, big_endian, sizeof big_endian) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return is_one ? 0
                  : err_usage(err, "'%s' exists and is not a decode trace: it is not overwritten",
                              path);
}
