/* Any rows as a decode trace: one sentence with the file's name, or passes within their bounds that
 * are the same when they are written and read again. The bytes are the cells: how many tokens a
 * block has, then of each row its numbers, and blobs of any length. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/decode/block.h"
#include "tests/fuzz/reader.h"
#include "traces/decode_log.h"
#include "traces/decode_trace.h"

enum { MOST_ROWS = 16, MOST_PASSES = 16, N_NUMBERS = 8, N_BLOBS = 11 };

struct bytes {
    const uint8_t *at;
    size_t n;
};

static uint8_t next(struct bytes *bytes) {
    if (bytes->n == 0) {
        return 0;
    }
    bytes->n--;
    return *bytes->at++;
}

static void run_sql(sqlite3 *db, const char *sql) {
    ASSERT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
}

static void fill_row(sqlite3_stmt *row, struct bytes *bytes) {
    static const uint8_t none[1] = {0};
    sqlite3_reset(row);
    sqlite3_clear_bindings(row);
    for (int i = 1; i <= N_NUMBERS; i++) {
        sqlite3_bind_int(row, i, (int8_t)next(bytes));
    }
    for (int i = N_NUMBERS + 1; i <= N_NUMBERS + N_BLOBS; i++) {
        size_t n = next(bytes) % 64, left = bytes->n;
        n = n < left ? n : left;
        if (n > 0 || next(bytes) % 2 == 0) {
            sqlite3_bind_blob(row, i, n > 0 ? bytes->at : none, (int)n, SQLITE_STATIC);
        }
        bytes->at += n < bytes->n ? n : bytes->n;
        bytes->n -= n < bytes->n ? n : bytes->n;
    }
    ASSERT(sqlite3_step(row) == SQLITE_DONE);
}

static void write_file(const char *path, struct bytes bytes) {
    sqlite3 *db;
    sqlite3_stmt *row;
    char sql[256];
    remove(path);
    ASSERT(sqlite3_open(path, &db) == SQLITE_OK);
    snprintf(sql, sizeof sql,
             "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA application_id = %d; "
             "PRAGMA user_version = 1; BEGIN",
             DECODE_TRACE_ID);
    run_sql(db, sql);
    run_sql(db, "CREATE TABLE about(key, value);"
                "CREATE TABLE request(id, prompt_tokens, output_tokens, answer_tokens);"
                "CREATE TABLE pass(request, passes, committed, processed, kept, reach, start,"
                " length, masked, run, keep, chosen, seen, token, confidence, margin, entropy,"
                " importance_before, importance_after);"
                "INSERT INTO request VALUES(0, 1, 2, NULL), (1, NULL, NULL, 3)");
    snprintf(sql, sizeof sql, "INSERT INTO about VALUES('block_tokens', %u)", next(&bytes));
    run_sql(db, sql);
    ASSERT(sqlite3_prepare_v2(db, "INSERT INTO pass VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                              -1, &row, NULL) == SQLITE_OK);
    for (int i = 0; i < MOST_ROWS && bytes.n > 0; i++) {
        fill_row(row, &bytes);
    }
    sqlite3_finalize(row);
    run_sql(db, "COMMIT");
    sqlite3_close(db);
}

static void check_pass(const struct decode_pass *pass, uint32_t block_tokens) {
    ASSERT(pass->committed <= pass->kept && pass->kept <= pass->processed);
    ASSERT(pass->kept >= 1 && pass->kept <= pass->reach);
    ASSERT(pass->processed <= block_tokens && pass->reach <= block_tokens);
}

static void check_positions(const struct decode_positions *p, uint32_t block_tokens) {
    ASSERT(p->length >= 1 && p->length <= block_tokens);
    for (uint32_t i = 0; i < p->length; i++) {
        ASSERT(p->run[i] || !p->keep[i]);
        ASSERT((p->masked[i] && p->keep[i]) || (!p->seen[i] && p->outcome[i] == OUTCOME_NONE));
    }
}

/* The first passes of each request to a new file. */
static void copy(const struct decode_trace *trace, const char *path) {
    struct decode_source source = decode_trace_source(trace);
    struct decode_positions positions;
    struct decode_log *log;
    struct err err = {0};
    const uint32_t block = decode_trace_block_tokens(trace);
    decode_positions_init(&positions, block);
    ASSERT(decode_log_open(path, block, &log, &err) == 0);
    for (size_t place = 0; place < decode_trace_requests(trace); place++) {
        const struct decode_request is = decode_trace_request(trace, place);
        const struct decode_done done = {is.prompt_tokens, is.output_tokens, 0};
        struct decode_pass pass;
        for (uint32_t row = 0; row < is.rows; row++) {
            if (decode_trace_positions(trace, place, row, &positions)) {
                check_positions(&positions, block);
            }
        }
        for (uint32_t i = 0;
             i < MOST_PASSES && source.pass(source.state, is.id, i, &pass, &err) == 0; i++) {
            check_pass(&pass, block);
            reader_see_int(pass.committed);
            reader_see_int(pass.processed);
            reader_see_int(pass.kept);
            decode_log_add(log, is.id, &pass, 1, NULL);
        }
        decode_log_finish(log, is.id, &done);
    }
    ASSERT(decode_log_close(log, "", &err) == 0);
    decode_positions_fini(&positions);
}

static uint64_t digest_of(const char *path) {
    struct decode_trace *trace;
    struct err err = {0};
    ASSERT(decode_trace_read(path, DECODE_POSITIONS, &trace, &err) == 0);
    uint64_t digest = decode_trace_digest(trace);
    decode_trace_close(trace);
    return digest;
}

void read_decode_rows(const char *path, const uint8_t *data, size_t size) {
    char once[128], twice[128];
    struct decode_trace *trace;
    struct err err = {0};
    reader_beside(path, "once", once);
    reader_beside(path, "twice", twice);
    write_file(path, (struct bytes){data, size});
    if (went_well(decode_trace_read(path, DECODE_POSITIONS, &trace, &err), &err, path)) {
        copy(trace, once);
        decode_trace_close(trace);
        ASSERT(decode_trace_read(once, DECODE_POSITIONS, &trace, &err) == 0);
        copy(trace, twice);
        decode_trace_close(trace);
        ASSERT(digest_of(once) == digest_of(twice));
    }
    remove(once);
    remove(twice);
}
