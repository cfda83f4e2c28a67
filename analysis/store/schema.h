/* The tables of a results database, as SQL; `unmask` schema number 7.
 *
 * Schema 1 had no `identity`, schema 2 did not know where texts end, schema 3 did not know which
 * positions a step kept and committed, schema 4 had no checksums and did not know which prefixes
 * requests found (prefix_tokens NULL), schema 5 not what they shared with whom (shared_tokens,
 * shared_with and session NULL), schema 6 not by which request's end an arrival became known. They
 * are read as they are, and changed to 7 when something is recorded.
 *
 * Rows of a run are clustered by (run, number), so that recording appends and reading scans.
 * Integers in blobs are LEB128 varints. A step's batch is kept once in `members` as long as it does
 * not change on its replica: pairs of request id and tokens it commits in one step. A step's
 * `positions` are those of its members, where they were followed: of each the length of its active
 * block, 0 where the step was none of it, and a bit for each position that it kept behind an
 * eviction, then for each that it committed, the lowest bit of a byte first; behind those of all
 * members, under cache policies that read them, the entropies of what was committed
 * (analysis/store/position_bytes.h); NULL: only counts.
 * Of a request, `session` is the conversation that it is a turn of, `follows` the id of the one by
 * whose end it became known, and `place`, where some follow, its place in the order of arrival;
 * NULL: there is none. Requests that have left are numbered from 0 in that order. A run of a device
 * that is recorded while it goes on, with its steps, has a row for each request under way as well,
 * of number -1 - id and in state queued, which goes when the request leaves. What the policies
 * decided, admissions, rejections and batches, is the view `decisions`. `identity` is the digest of
 * what a run was made of, whose parts stand in its summary (analysis/identity.h); NULL: it is not
 * known. `incomplete` says why a run was cut short; NULL: it is whole. `rows_sha256` is over the
 * run's rows in the other tables, NULL while it is being recorded, and `sha256` over its row in
 * `runs`, without its number (analysis/store/store_digest.c); NULL: an older unmask recorded it. */
#ifndef UNMASK_ANALYSIS_STORE_SCHEMA_H
#define UNMASK_ANALYSIS_STORE_SCHEMA_H

enum {
    SCHEMA_APPLICATION_ID = 0x756e6d6b, /* "unmk" */
    SCHEMA_VERSION = 7,
};

static const char schema_sql[] =
    "CREATE TABLE runs(run INTEGER PRIMARY KEY, system TEXT NOT NULL, model TEXT NOT NULL,"
    " gpu TEXT NOT NULL, profile TEXT NOT NULL, profile_kind TEXT NOT NULL,"
    " backend TEXT NOT NULL, trace TEXT NOT NULL, trace_provenance TEXT NOT NULL,"
    " seed INTEGER NOT NULL, config TEXT NOT NULL, summary TEXT,"
    " n_requests INTEGER, n_steps INTEGER, n_events INTEGER, identity TEXT, incomplete TEXT,"
    " rows_sha256 TEXT, sha256 TEXT);"
    "CREATE INDEX runs_by_identity ON runs(identity);"
    "CREATE TABLE requests(run INTEGER NOT NULL, number INTEGER NOT NULL, id INTEGER NOT NULL,"
    " replica INTEGER, tenant INTEGER, prompt_tokens INTEGER, output_tokens INTEGER,"
    " arrival_ns INTEGER, admitted_ns INTEGER, first_block_ns INTEGER, finished_ns INTEGER,"
    " state INTEGER, reason INTEGER, steps INTEGER, refresh_steps INTEGER, preemptions INTEGER,"
    " first_block_tokens INTEGER, tokens_processed INTEGER, answer_tokens INTEGER,"
    " committed_tokens INTEGER, steps_after_end INTEGER, tokens_after_end INTEGER,"
    " prefix_tokens INTEGER, shared_tokens INTEGER, shared_with INTEGER, session INTEGER,"
    " follows INTEGER, place INTEGER,"
    " PRIMARY KEY(run, number)) WITHOUT ROWID;"
    "CREATE TABLE members(run INTEGER NOT NULL, number INTEGER NOT NULL, batch BLOB NOT NULL,"
    " PRIMARY KEY(run, number)) WITHOUT ROWID;"
    "CREATE TABLE steps(run INTEGER NOT NULL, idx INTEGER NOT NULL, replica INTEGER,"
    " repeat INTEGER, start_ns INTEGER, end_ns INTEGER, gpu_ns INTEGER, host_ns INTEGER,"
    " requests INTEGER, prefill INTEGER, refresh INTEGER, reuse INTEGER, commits INTEGER,"
    " tokens INTEGER, symbols BLOB, kv_used_bytes INTEGER, running INTEGER, waiting INTEGER,"
    " members INTEGER, positions BLOB, PRIMARY KEY(run, idx)) WITHOUT ROWID;"
    "CREATE TABLE events(run INTEGER NOT NULL, number INTEGER NOT NULL, time_ns INTEGER,"
    " request INTEGER, kind INTEGER, replica INTEGER, detail INTEGER,"
    " PRIMARY KEY(run, number)) WITHOUT ROWID;"
    "CREATE TABLE names(kind TEXT NOT NULL, value INTEGER NOT NULL, name TEXT NOT NULL,"
    " PRIMARY KEY(kind, value)) WITHOUT ROWID;"
    "CREATE VIEW decisions AS SELECT run, time_ns, replica, request, name AS decision, detail"
    " FROM events JOIN names ON names.kind = 'event' AND value = events.kind"
    " WHERE name IN ('admit', 'preempt', 'reject')"
    " UNION ALL SELECT run, start_ns, replica, NULL, 'batch', requests FROM steps;";

/* From each version to the next: what changes a database, and a view of it as if it were changed.
 * Columns that `runs` lacks are read as NULL, without a view. */
static const struct {
    const char *change, *view;
} schema_steps[SCHEMA_VERSION] = {
    [1] = {"ALTER TABLE runs ADD COLUMN identity TEXT;"
           "CREATE INDEX runs_by_identity ON runs(identity);",
           ""},
    /* Then every text filled its output. */
    [2] = {"ALTER TABLE requests ADD COLUMN answer_tokens INTEGER;"
           "ALTER TABLE requests ADD COLUMN committed_tokens INTEGER;"
           "ALTER TABLE requests ADD COLUMN steps_after_end INTEGER;"
           "ALTER TABLE requests ADD COLUMN tokens_after_end INTEGER;"
           "UPDATE requests SET answer_tokens=output_tokens, committed_tokens=output_tokens,"
           " steps_after_end=0, tokens_after_end=0;",
           "CREATE TEMP VIEW requests AS SELECT *, output_tokens AS answer_tokens,"
           " output_tokens AS committed_tokens, 0 AS steps_after_end, 0 AS tokens_after_end,"
           " NULL AS prefix_tokens, NULL AS shared_tokens, NULL AS shared_with, NULL AS session,"
           " NULL AS follows, NULL AS place"
           " FROM main.requests;"},
    /* Then steps had counts alone. */
    [3] = {"ALTER TABLE steps ADD COLUMN positions BLOB;",
           "CREATE TEMP VIEW steps AS SELECT *, NULL AS positions FROM main.steps;"},
    /* Then nothing could be told of a run that is cut off, or damaged. */
    [4] = {"ALTER TABLE runs ADD COLUMN incomplete TEXT;"
           "ALTER TABLE runs ADD COLUMN rows_sha256 TEXT;"
           "ALTER TABLE runs ADD COLUMN sha256 TEXT;"
           "ALTER TABLE requests ADD COLUMN prefix_tokens INTEGER;"
           "UPDATE runs SET incomplete=CASE WHEN json_valid(summary)"
           " THEN json_extract(summary,'$.incomplete') END;",
           "CREATE TEMP VIEW IF NOT EXISTS requests AS SELECT *, NULL AS prefix_tokens,"
           " NULL AS shared_tokens, NULL AS shared_with, NULL AS session, NULL AS follows,"
           " NULL AS place FROM main.requests;"},
    /* Then what was shared was always found. */
    [5] = {"ALTER TABLE requests ADD COLUMN shared_tokens INTEGER;"
           "ALTER TABLE requests ADD COLUMN shared_with INTEGER;"
           "ALTER TABLE requests ADD COLUMN session INTEGER;",
           "CREATE TEMP VIEW IF NOT EXISTS requests AS SELECT *, NULL AS shared_tokens,"
           " NULL AS shared_with, NULL AS session, NULL AS follows, NULL AS place"
           " FROM main.requests;"},
    /* Then arrivals had no order but that of their times. */
    [6] = {"ALTER TABLE requests ADD COLUMN follows INTEGER;"
           "ALTER TABLE requests ADD COLUMN place INTEGER;",
           "CREATE TEMP VIEW IF NOT EXISTS requests AS SELECT *, NULL AS follows, NULL AS place"
           " FROM main.requests;"},
};

#endif
