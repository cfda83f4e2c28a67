#include "analysis/store/schema.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/column.h"
#include "sim/base/mem.h"

#define SWAPS                                                                                      \
    "CREATE TABLE swaps(run INTEGER NOT NULL, idx INTEGER NOT NULL, out_requests INTEGER,"         \
    " in_requests INTEGER, out_bytes INTEGER, in_bytes INTEGER, stall_ns INTEGER,"                 \
    " host_used_bytes INTEGER, PRIMARY KEY(run, idx)) WITHOUT ROWID;"

static const char before_requests[] =
    "CREATE TABLE runs(run INTEGER PRIMARY KEY, system TEXT NOT NULL, model TEXT NOT NULL,"
    " gpu TEXT NOT NULL, profile TEXT NOT NULL, profile_kind TEXT NOT NULL,"
    " backend TEXT NOT NULL, trace TEXT NOT NULL, trace_provenance TEXT NOT NULL,"
    " seed INTEGER NOT NULL, config TEXT NOT NULL, summary TEXT,"
    " n_requests INTEGER, n_steps INTEGER, n_events INTEGER, identity TEXT, incomplete TEXT,"
    " rows_sha256 TEXT, sha256 TEXT);"
    "CREATE INDEX runs_by_identity ON runs(identity);";
static const char after_requests[] =
    "CREATE TABLE members(run INTEGER NOT NULL, number INTEGER NOT NULL, batch BLOB NOT NULL,"
    " PRIMARY KEY(run, number)) WITHOUT ROWID;"
    "CREATE TABLE steps(run INTEGER NOT NULL, idx INTEGER NOT NULL, replica INTEGER,"
    " repeat INTEGER, start_ns INTEGER, end_ns INTEGER, gpu_ns INTEGER, host_ns INTEGER,"
    " requests INTEGER, prefill INTEGER, refresh INTEGER, reuse INTEGER, commits INTEGER,"
    " tokens INTEGER, symbols BLOB, kv_used_bytes INTEGER, running INTEGER, waiting INTEGER,"
    " members INTEGER, positions BLOB, outcomes BLOB, PRIMARY KEY(run, idx)) WITHOUT ROWID;" SWAPS
    "CREATE TABLE events(run INTEGER NOT NULL, number INTEGER NOT NULL, time_ns INTEGER,"
    " request INTEGER, kind INTEGER, replica INTEGER, detail INTEGER,"
    " PRIMARY KEY(run, number)) WITHOUT ROWID;"
    "CREATE TABLE names(kind TEXT NOT NULL, value INTEGER NOT NULL, name TEXT NOT NULL,"
    " PRIMARY KEY(kind, value)) WITHOUT ROWID;"
    "CREATE VIEW decisions AS SELECT run, time_ns, replica, request, name AS decision, detail"
    " FROM events JOIN names ON names.kind = 'event' AND value = events.kind"
    " WHERE name IN ('admit', 'preempt', 'reject')"
    " UNION ALL SELECT run, start_ns, replica, NULL, 'batch', requests FROM steps;";

/* What changed in other tables than `requests`, by the version that it was changed from. Columns
 * that `runs` lacks are read as NULL, without a view. */
static const char *const changes[] = {
    [1] = "ALTER TABLE runs ADD COLUMN identity TEXT;"
          "CREATE INDEX runs_by_identity ON runs(identity);",
    /* Then steps had counts alone. */
    [3] = "ALTER TABLE steps ADD COLUMN positions BLOB;",
    /* Then nothing could be told of a run that is cut off, or damaged. */
    [4] = "ALTER TABLE runs ADD COLUMN incomplete TEXT;"
          "ALTER TABLE runs ADD COLUMN rows_sha256 TEXT;"
          "ALTER TABLE runs ADD COLUMN sha256 TEXT;"
          "UPDATE runs SET incomplete=CASE WHEN json_valid(summary)"
          " THEN json_extract(summary,'$.incomplete') END;",
    /* Then what a step decided stayed so. */
    [7] = "ALTER TABLE steps ADD COLUMN outcomes BLOB;",
    /* Then nothing was swapped out. */
    [9] = SWAPS,
};
enum {
    N_CHANGES = sizeof changes / sizeof changes[0],
    STEPS_HAVE_POSITIONS = 4,
    STEPS_HAVE_OUTCOMES = 8,
    STEPS_HAVE_SWAPS = 10
};

int64_t schema_version(void) {
    int64_t version = N_CHANGES;
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        version = c->since > version ? c->since : version;
    }
    return version;
}

/* The columns of one schema after the other, each as they stand. */
static void put_requests(FILE *out) {
    fprintf(out, "CREATE TABLE requests(run INTEGER NOT NULL, number INTEGER NOT NULL,");
    for (int64_t version = 1; version <= schema_version(); version++) {
        for (const struct column *c = request_columns; c->name != NULL; c++) {
            if (c->since == version) {
                fprintf(out, " %s INTEGER%s,", c->name,
                        strcmp(c->name, "id") == 0 ? " NOT NULL" : "");
            }
        }
    }
    fprintf(out, " PRIMARY KEY(run, number)) WITHOUT ROWID;");
}

char *schema_create(void) {
    char *sql;
    size_t size;
    FILE *out = mem_stream(&sql, &size);
    fprintf(out, "%s", before_requests);
    put_requests(out);
    fprintf(out, "%s", after_requests);
    mem_stream_close(out);
    return sql;
}

char *schema_change(int64_t version) {
    char *sql;
    size_t size;
    FILE *out = mem_stream(&sql, &size);
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->since == version + 1) {
            fprintf(out, "ALTER TABLE requests ADD COLUMN %s INTEGER;", c->name);
        }
    }
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->since == version + 1 && c->before[0] != '\0') {
            fprintf(out, "UPDATE requests SET %s=%s;", c->name, c->before);
        }
    }
    fprintf(out, "%s", version < N_CHANGES && changes[version] != NULL ? changes[version] : "");
    mem_stream_close(out);
    return sql;
}

char *schema_views(int64_t version) {
    char *sql;
    size_t size;
    FILE *out = mem_stream(&sql, &size);
    if (version < STEPS_HAVE_OUTCOMES) {
        fprintf(out, "CREATE TEMP VIEW steps AS SELECT *%s, NULL AS outcomes FROM main.steps;",
                version < STEPS_HAVE_POSITIONS ? ", NULL AS positions" : "");
    }
    if (version < STEPS_HAVE_SWAPS) {
        fprintf(out, "CREATE TEMP VIEW swaps AS SELECT 0 AS run, 0 AS idx, 0 AS out_requests, 0 AS "
                     "in_requests, 0 AS out_bytes, 0 AS in_bytes, 0 AS stall_ns, 0 AS "
                     "host_used_bytes WHERE 0;");
    }
    if (version < schema_version()) {
        fprintf(out, "CREATE TEMP VIEW requests AS SELECT *");
        for (const struct column *c = request_columns; c->name != NULL; c++) {
            if (c->since > version) {
                fprintf(out, ", %s AS %s", c->before[0] != '\0' ? c->before : "NULL", c->name);
            }
        }
        fprintf(out, " FROM main.requests;");
    }
    mem_stream_close(out);
    return sql;
}
