/* The reader of databases: a recorded run, damaged in bytes and in values. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "analysis/store/store.h"
#include "experiments/command/commands.h"
#include "experiments/run/recorded.h"
#include "tests/fuzz/reader.h"

enum { MOST_CHANGES = 16, CHANGE_BYTES = 5 };

/* A whole database of one small run, recorded once. */
static const uint8_t *recorded_bytes(const char *path, size_t *size) {
    static uint8_t bytes[1 << 20];
    static size_t n;
    if (n == 0) {
        char *const argv[] = {(char *)"--requests", (char *)"2",
                              (char *)"--roofline", (char *)"--input-tokens",
                              (char *)"8",          (char *)"--model",
                              (char *)"llada-tiny", (char *)"--levels",
                              (char *)"events",     (char *)"--output-tokens",
                              (char *)"8",          (char *)"--db",
                              (char *)path};
        struct options options;
        struct err err = {0};
        unlink(path);
        ASSERT(options_read(command_run.options, sizeof argv / sizeof argv[0], argv, 0, &options,
                            &err) == 0);
        ASSERT(command_run.run(&options, &err) == 0);
        FILE *file = fopen(path, "rb");
        ASSERT(file != NULL);
        n = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        ASSERT(n > 0 && n < sizeof bytes);
    }
    *size = n;
    return bytes;
}

static void bind_value(sqlite3_stmt *update, const uint8_t *value) {
    static const int64_t numbers[] = {
        0,         1,         -1,        2,          7,         255,       1 << 16, INT32_MAX,
        INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX, 1LL << 40, 1LL << 62, -7,      1000000000};
    switch (value[0] % 8) {
    case 0:
        sqlite3_bind_null(update, 1);
        break;
    case 1:
        sqlite3_bind_blob(update, 1, value, 1 + value[1] % 2, SQLITE_TRANSIENT);
        break;
    case 2:
        sqlite3_bind_text(update, 1, value[1] % 2 ? "" : "{\"a\": 1}", -1, SQLITE_STATIC);
        break;
    case 3:
        sqlite3_bind_double(update, 1, value[1] % 2 ? 1e300 : -0.5);
        break;
    default:
        sqlite3_bind_int64(update, 1, numbers[value[1] % 16] ^ (value[0] >> 5 & 1));
    }
}

/* One value of one row. */
static void change_value(sqlite3 *db, const uint8_t change[CHANGE_BYTES]) {
    static const char *const tables[][2] = {{"runs", "run"},
                                            {"requests", "number"},
                                            {"members", "number"},
                                            {"steps", "idx"},
                                            {"events", "number"}};
    const char *table = tables[change[0] % 5][0], *number = tables[change[0] % 5][1];
    char sql[512];
    sqlite3_stmt *all, *update;
    snprintf(sql, sizeof sql, "SELECT * FROM %s", table);
    if (sqlite3_prepare_v2(db, sql, -1, &all, NULL) != SQLITE_OK) {
        return;
    }
    const char *column = sqlite3_column_name(all, change[1] % sqlite3_column_count(all));
    snprintf(sql, sizeof sql,
             "UPDATE %s SET %s = ? WHERE %s = (SELECT %s FROM %s LIMIT 1 OFFSET %d)", table, column,
             number, number, table, change[2] % 16);
    if (sqlite3_prepare_v2(db, sql, -1, &update, NULL) == SQLITE_OK) {
        bind_value(update, change + 3);
        sqlite3_step(update);
        sqlite3_finalize(update);
    }
    sqlite3_finalize(all);
}

/* The first byte: bytes of the file are changed, or values, or these without their checksums. */
static void write_damaged(const char *path, const uint8_t *data, size_t size) {
    size_t n;
    const uint8_t *whole = recorded_bytes(path, &n);
    uint8_t *bytes = malloc(n);
    ASSERT(bytes != NULL);
    memcpy(bytes, whole, n);
    const uint8_t kind = size > 0 ? data[0] % 4 : 1;
    const size_t n_changes =
        size / CHANGE_BYTES < MOST_CHANGES ? size / CHANGE_BYTES : MOST_CHANGES;
    for (size_t i = 0; kind == 0 && i < n_changes; i++) {
        const uint8_t *change = data + i * CHANGE_BYTES;
        bytes[(change[1] | change[2] << 8 | change[3] << 16) % n] = change[4];
    }
    unlink(path);
    FILE *file = fopen(path, "wb");
    ASSERT(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
    free(bytes);
    sqlite3 *db;
    if (kind == 0) {
        return;
    }
    ASSERT(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_exec(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN", NULL, NULL,
                 NULL);
    for (size_t i = 0; i < n_changes; i++) {
        change_value(db, data + i * CHANGE_BYTES);
    }
    if (kind > 1) {
        sqlite3_exec(db, "UPDATE runs SET rows_sha256 = NULL, sha256 = NULL", NULL, NULL, NULL);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
}

static int see_run(void *state, const struct stored_run *run, struct err *err) {
    (void)err;
    *(int64_t *)state = run->run;
    ASSERT(run->damage != NULL || (run->config != NULL && run->summary != NULL));
    return 0;
}

static int see_request(void *state, const struct request_record *record, struct err *err) {
    (void)state, (void)record, (void)err;
    return 0;
}

static int see_step(void *state, const struct step_record *record, struct err *err) {
    (void)err;
    for (uint32_t i = 0; record->request_ids != NULL && i < record->n; i++) {
        *(uint64_t *)state += record->request_ids[i] + record->commit_tokens[i];
    }
    return 0;
}

static int see_event(void *state, const struct event_record *record, struct err *err) {
    (void)state, (void)record, (void)err;
    return 0;
}

static void load_parts(struct store *store, int64_t run) {
    uint64_t sum = 0;
    char *text = NULL;
    struct err err[7] = {{0}};
    (void)went_well(store_load_requests(store, run, see_request, &sum, &err[0]), &err[0], NULL);
    (void)went_well(store_load_steps(store, run, see_step, &sum, &err[1]), &err[1], NULL);
    (void)went_well(store_load_events(store, run, see_event, &sum, &err[2]), &err[2], NULL);
    (void)went_well(store_check_rows(store, run, &err[3]), &err[3], NULL);
    if (went_well(store_load_summary(store, run, &text, &err[4]), &err[4], NULL)) {
        free(text);
    }
    struct recorded *recorded;
    if (went_well(recorded_load(store, run, &recorded, &err[5]), &err[5], NULL)) {
        struct recorded_reader *reader = recorded_reader_open(recorded);
        struct arrival_source source = recorded_source(reader);
        struct replay_record steps = recorded_steps(reader);
        struct replay_step *step;
        struct arrival row;
        while (source.next(source.state, &row, &err[5]) == SOURCE_ROW) {
        }
        while (steps.read(steps.state, &step, &err[6]) == 0 && step != NULL) {
            steps.drop(step);
        }
        recorded_reader_close(reader);
        recorded_close(recorded);
    }
}

static void read_store(const char *path, const uint8_t *data, size_t size) {
    struct store *store;
    struct err err = {0};
    int64_t run = 1;
    write_damaged(path, data, size);
    if (went_well(store_open(path, STORE_READ, &store, &err), &err, path)) {
        store_wait(store, false);
        (void)went_well(store_list_runs(store, see_run, &run, &err), &err, NULL);
        load_parts(store, run);
        store_close(store);
    }
}

const struct reader readers_of_stores[] = {{"store", "runs.db", read_store}, {NULL, NULL, NULL}};
