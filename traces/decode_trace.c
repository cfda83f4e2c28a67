#include "traces/decode_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/input/field.h"
#include "sim/base/input/inputs.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/wait.h"
#include "sim/decode/block.h"

enum { N_FLAGS = 5, N_VALUES = 6, N_BLOBS = N_FLAGS + N_VALUES, FIRST_BLOB = 8 };

static const char select_passes[] =
    "SELECT request, passes, committed, processed, kept, reach, start, length, masked, run, keep,"
    " chosen, seen, token, confidence, margin, entropy, importance_before, importance_after, %s"
    " FROM pass ORDER BY request, rowid";
static const char select_counts[] = "SELECT request, passes, committed, processed, kept, reach, %s"
                                    " FROM pass ORDER BY request, rowid";
/* By version: version 1 knew of commits alone, version 2 of what was revised as bitmaps. */
static const char *const other_columns[DECODE_TRACE_VERSION + 1] = {
    [1] = "0, NULL, NULL, 0",
    [2] = "unmasked, revised, again, 0",
    [3] = "unmasked, revised, again, revisions"};
/* Outcomes that have a bitmap where a pass has any. */
static const uint8_t others[] = {OUTCOME_REVISE, OUTCOME_AGAIN};
enum { N_OTHERS = sizeof others / sizeof others[0] };
static const char *const blob_names[N_BLOBS] = {
    "masked",          "run",        "keep",   "chosen",  "seen",
    "token",           "confidence", "margin", "entropy", "importance_before",
    "importance_after"};

/* Equal passes, the first of them the request's pass `first`. */
struct run {
    struct decode_pass pass;
    uint32_t first, n;
    uint32_t start, length; /* length 0: nothing is known of positions */
    bool has_importance;
    bool has[N_OTHERS]; /* bitmaps, after the blobs */
    size_t bytes;       /* where its blobs begin */
};

/* A request's runs are [begin, end). */
struct entry {
    struct decode_request is;
    size_t begin, end;
};

struct about_line {
    char *key, *value;
};

struct decode_trace {
    char *path;
    uint32_t block_tokens;
    uint64_t digest;
    bool has_answers, repeats, takes_back;
    struct entry *entries; /* in increasing order of ids */
    struct run *runs;
    struct about_line *about;
    unsigned char *bytes;
    size_t n_entries, n_runs, n_about, n_bytes;
    size_t room_entries, room_runs, room_about, room_bytes;
};

/* Room for `more` elements. */
static void *grow(void *list, size_t n, size_t more, size_t *room, size_t size) {
    if (n + more > *room) {
        *room = 2 * *room + 64 + more;
        list = mem_resized(list, *room, size);
    }
    return list;
}

/* ---- the file ---- */

struct input {
    sqlite3 *db;
    struct decode_trace *trace;
    enum decode_depth depth;
    int64_t version;
};

/* The column that says how many positions a pass masks again; bitmaps of other outcomes follow. */
static int unmasked_column(const struct input *input) {
    return input->depth == DECODE_POSITIONS ? FIRST_BLOB + N_BLOBS : 6;
}

static int cannot_read(const struct input *input, struct err *err) {
    return err_world(err, "%s cannot be read as a database: %s", input->trace->path,
                     sqlite3_errmsg(input->db));
}

/* Calls take(row) for each row of a query. */
static int for_rows(const struct input *input, const char *sql,
                    int (*take)(const struct input *input, sqlite3_stmt *row, struct err *err),
                    struct err *err) {
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(input->db, sql, -1, &statement, NULL) != SQLITE_OK) {
        return cannot_read(input, err);
    }
    int status = 0, step = SQLITE_ROW;
    while (status == 0 && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        status = take(input, statement, err);
    }
    if (status == 0 && step != SQLITE_DONE) {
        status = cannot_read(input, err);
    }
    sqlite3_finalize(statement);
    return status;
}

static char *copied(const unsigned char *text) {
    char *copy = mem_text(text != NULL ? (const char *)text : "");
    return copy;
}

static int take_about(const struct input *input, sqlite3_stmt *row, struct err *err) {
    struct decode_trace *trace = input->trace;
    (void)err;
    trace->about = grow(trace->about, trace->n_about, 1, &trace->room_about, sizeof *trace->about);
    trace->about[trace->n_about++] = (struct about_line){copied(sqlite3_column_text(row, 0)),
                                                         copied(sqlite3_column_text(row, 1))};
    return 0;
}

/* A whole number from `least` to `most`; `allows_null`: or NULL, which is 0. */
static bool count_of(sqlite3_stmt *row, int column, int64_t least, int64_t most, bool allows_null,
                     int64_t *out) {
    int type = sqlite3_column_type(row, column);
    *out = sqlite3_column_int64(row, column);
    return (type == SQLITE_NULL && allows_null) ||
           (type == SQLITE_INTEGER && *out >= least && *out <= most);
}

static int take_request(const struct input *input, sqlite3_stmt *row, struct err *err) {
    static const char *const names[] = {"id", "prompt_tokens", "output_tokens", "answer_tokens"};
    struct decode_trace *trace = input->trace;
    int64_t value[4];
    for (int i = 0; i < 4; i++) {
        if (!count_of(row, i, i > 0, i > 0 ? UINT32_MAX : INT64_MAX, i > 0, &value[i])) {
            const unsigned char *found = sqlite3_column_text(row, i);
            return err_world(err, "%s: found '%.40s' in %s of a request, expected a whole number",
                             trace->path, found != NULL ? (const char *)found : "NULL", names[i]);
        }
    }
    trace->entries =
        grow(trace->entries, trace->n_entries, 1, &trace->room_entries, sizeof *trace->entries);
    trace->entries[trace->n_entries++] = (struct entry){
        .is = {.id = (uint64_t)value[0],
               .prompt_tokens = (uint32_t)value[1],
               .output_tokens = (uint32_t)value[2],
               .answer_tokens = (uint32_t)value[3]},
    };
    trace->has_answers = trace->has_answers || value[3] > 0;
    return 0;
}

/* ---- passes ---- */

static int find(const struct decode_trace *trace, uint64_t request, struct entry **out,
                struct err *err) {
    if (trace->repeats && trace->n_entries > 0) {
        *out = &trace->entries[request % trace->n_entries];
        return 0;
    }
    size_t begin = 0, end = trace->n_entries;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (trace->entries[middle].is.id < request) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    if (begin == trace->n_entries || trace->entries[begin].is.id != request) {
        return err_world(err, "%s has no request %" PRIu64, trace->path, request);
    }
    *out = &trace->entries[begin];
    return 0;
}

/* Of a row: where it stands in the file, for sentences. */
struct place {
    const char *path;
    uint64_t request, pass;
};

static int read_counts(const struct input *input, sqlite3_stmt *row, const struct place *place,
                       struct run *run, struct err *err) {
    const struct decode_trace *trace = input->trace;
    const int unmasked = unmasked_column(input), revisions = unmasked + 1 + N_OTHERS;
    struct decode_pass *pass = &run->pass;
    const uint32_t block = trace->block_tokens;
    const struct {
        const char *name, *of;
        int column;
        uint32_t *out;
        const uint32_t *least, *most;
    } columns[] = {
        {"processed", ", the positions of a block", 3, &pass->processed, NULL, &block},
        {"kept", ", the positions processed", 4, &pass->kept, NULL, &pass->processed},
        {"reach", ", from the positions kept to those of a block", 5, &pass->reach, &pass->kept,
         &block},
        {"committed", ", the positions kept", 2, &pass->committed, NULL, &pass->kept},
        {"unmasked", ", the positions kept", unmasked, &pass->unmasked, NULL, &pass->kept},
        {"revisions", ", the positions kept", revisions, &pass->revised, NULL, &pass->kept},
        {"passes", "", 1, &run->n, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        bool may_be_none = columns[i].column == 2 || columns[i].column >= unmasked;
        int64_t least = columns[i].least != NULL ? *columns[i].least : !may_be_none;
        int64_t most = columns[i].most != NULL ? *columns[i].most : UINT32_MAX, value;
        if (!count_of(row, columns[i].column, least, most, false, &value)) {
            const unsigned char *found = sqlite3_column_text(row, columns[i].column);
            return err_world(err,
                             "%s: pass %" PRIu64 " of request %" PRIu64
                             ": found '%.40s' in %s, expected %" PRId64 " to %" PRId64 "%s",
                             place->path, place->pass, place->request,
                             found != NULL ? (const char *)found : "NULL", columns[i].name, least,
                             most, columns[i].of);
        }
        *columns[i].out = (uint32_t)value;
    }
    return 0;
}

static bool flag(const unsigned char *bits, uint32_t i) {
    return bits[i / 8] >> i % 8 & 1;
}

/* What each bitmap is a part of, and how many positions the arrays are of. */
static const char *wrong_flags(const unsigned char *bits[N_FLAGS], uint32_t length,
                               uint32_t *n_seen, uint32_t *n_asked) {
    *n_seen = *n_asked = 0;
    for (uint32_t i = 0; i < length; i++) {
        bool masked = flag(bits[0], i), run = flag(bits[1], i), keep = flag(bits[2], i);
        if (keep && !run) {
            return "keeps a position that it does not run";
        }
        if (flag(bits[3], i) && !(masked && keep)) {
            return "commits a position that is not masked, or not kept";
        }
        if (flag(bits[4], i) && !(masked && keep)) {
            return "has seen a position that is not masked, or not kept";
        }
        *n_seen += flag(bits[4], i);
        *n_asked += masked && run;
    }
    return NULL;
}

/* Bitmaps of what is revised and masked again, of positions that are decided and kept. */
static const char *wrong_others(const unsigned char *bits[N_FLAGS], const unsigned char *other,
                                uint32_t length) {
    for (uint32_t i = 0; other != NULL && i < length; i++) {
        if (flag(other, i) && (flag(bits[0], i) || !flag(bits[2], i))) {
            return "revises or masks again a position that is masked, or not kept";
        }
    }
    return NULL;
}

static int wrong_blob(const struct place *place, const char *name, struct err *err) {
    return err_world(err,
                     "%s: pass %" PRIu64 " of request %" PRIu64 ": %s is not as long as "
                     "its positions ask for",
                     place->path, place->pass, place->request, name);
}

/* After the other blobs of a row, whose bitmaps have n bytes. */
static int read_others(const struct input *input, sqlite3_stmt *row, const struct place *place,
                       const unsigned char *bits[N_FLAGS], uint32_t n, struct run *run,
                       struct err *err) {
    struct decode_trace *trace = input->trace;
    for (int i = 0; i < N_OTHERS; i++) {
        const int column = unmasked_column(input) + 1 + i;
        const unsigned char *other = sqlite3_column_blob(row, column);
        const int bytes = sqlite3_column_bytes(row, column);
        run->has[i] = sqlite3_column_type(row, column) != SQLITE_NULL;
        if (run->has[i] && bytes != (int)n) {
            return wrong_blob(place, "a bitmap of outcomes", err);
        }
        const char *wrong = wrong_others(bits, run->has[i] ? other : NULL, run->length);
        if (wrong != NULL) {
            return err_world(err, "%s: pass %" PRIu64 " of request %" PRIu64 " %s", place->path,
                             place->pass, place->request, wrong);
        }
        if (run->has[i]) {
            trace->bytes = grow(trace->bytes, trace->n_bytes, n, &trace->room_bytes, 1);
            memcpy(trace->bytes + trace->n_bytes, other, n);
            trace->n_bytes += n;
        }
    }
    return 0;
}

static int read_positions(const struct input *input, sqlite3_stmt *row, const struct place *place,
                          struct run *run, struct err *err) {
    struct decode_trace *trace = input->trace;
    int64_t start, length;
    const unsigned char *bits[N_FLAGS];
    uint32_t n[3]; /* bytes of a bitmap; seen; asked for */
    if (sqlite3_column_type(row, FIRST_BLOB) == SQLITE_NULL) {
        return 0;
    }
    if (!count_of(row, 6, 0, UINT32_MAX - trace->block_tokens, false, &start) ||
        !count_of(row, 7, 1, trace->block_tokens, false, &length) || run->n != 1) {
        return err_world(err,
                         "%s: pass %" PRIu64 " of request %" PRIu64
                         ": positions are those of one pass over a block of at most %" PRIu32,
                         place->path, place->pass, place->request, trace->block_tokens);
    }
    n[0] = (uint32_t)(length + 7) / 8;
    for (int i = 0; i < N_FLAGS; i++) {
        bits[i] = sqlite3_column_blob(row, FIRST_BLOB + i);
        if (sqlite3_column_bytes(row, FIRST_BLOB + i) != (int)n[0]) {
            return wrong_blob(place, blob_names[i], err);
        }
    }
    const char *wrong = wrong_flags(bits, (uint32_t)length, &n[1], &n[2]);
    if (wrong != NULL) {
        return err_world(err, "%s: pass %" PRIu64 " of request %" PRIu64 " %s", place->path,
                         place->pass, place->request, wrong);
    }
    run->start = (uint32_t)start;
    run->length = (uint32_t)length;
    run->bytes = trace->n_bytes;
    run->has_importance = sqlite3_column_type(row, FIRST_BLOB + N_BLOBS - 1) != SQLITE_NULL;
    for (int i = 0; i < N_BLOBS; i++) {
        bool is_importance = i >= N_BLOBS - 2;
        uint32_t wanted = i < N_FLAGS ? n[0] : 4 * n[is_importance ? 2 : 1];
        wanted = is_importance && !run->has_importance ? 0 : wanted;
        if (sqlite3_column_bytes(row, FIRST_BLOB + i) != (int)wanted) {
            return wrong_blob(place, blob_names[i], err);
        }
        trace->bytes = grow(trace->bytes, trace->n_bytes, wanted, &trace->room_bytes, 1);
        if (wanted > 0) {
            memcpy(trace->bytes + trace->n_bytes, sqlite3_column_blob(row, FIRST_BLOB + i), wanted);
        }
        trace->n_bytes += wanted;
    }
    return read_others(input, row, place, bits, n[0], run, err);
}

static int take_pass(const struct input *input, sqlite3_stmt *row, struct err *err) {
    struct decode_trace *trace = input->trace;
    struct entry *entry;
    int64_t id;
    if (!count_of(row, 0, 0, INT64_MAX, false, &id)) {
        return err_world(err, "%s: found a pass of no request", trace->path);
    }
    int status = find(trace, (uint64_t)id, &entry, err);
    if (status != 0) {
        return status;
    }
    bool is_first = entry->is.rows == 0;
    const struct run *last = is_first ? NULL : &trace->runs[trace->n_runs - 1];
    struct run run = {.first = is_first ? 0 : last->first + last->n};
    const struct place place = {trace->path, (uint64_t)id, (uint64_t)run.first + 1};
    status = read_counts(input, row, &place, &run, err);
    if (status == 0 && run.n > UINT32_MAX - run.first) {
        status = err_world(
            err, "%s: found more than 4294967295 passes of request %" PRId64 ", expected no more",
            trace->path, id);
    }
    if (status == 0 && input->depth == DECODE_POSITIONS) {
        status = read_positions(input, row, &place, &run, err);
    }
    if (status != 0) {
        return status;
    }
    trace->runs = grow(trace->runs, trace->n_runs, 1, &trace->room_runs, sizeof *trace->runs);
    trace->runs[trace->n_runs++] = run;
    entry->begin = is_first ? trace->n_runs - 1 : entry->begin;
    entry->end = trace->n_runs;
    entry->is.rows++;
    uint64_t unmasked = (uint64_t)run.n * run.pass.unmasked;
    entry->is.tokens += (uint64_t)run.n * run.pass.committed;
    if (unmasked > entry->is.tokens) {
        return err_world(err,
                         "%s: pass %" PRIu64 " of request %" PRIu64
                         " masks more positions again than were committed",
                         place.path, place.pass, place.request);
    }
    entry->is.tokens -= unmasked;
    trace->takes_back = trace->takes_back || unmasked > 0;
    return 0;
}

/* ---- the whole ---- */

static void take_digest(struct decode_trace *trace, uint64_t value) {
    for (int i = 0; i < 64; i += 8) {
        trace->digest = (trace->digest ^ (value >> i & 0xff)) * UINT64_C(0x100000001b3);
    }
}

/* Where texts end at all, those that fill their output say so. */
static int finish_requests(struct decode_trace *trace, struct err *err) {
    for (size_t i = 0; i < trace->n_entries; i++) {
        struct entry *entry = &trace->entries[i];
        struct decode_request *is = &entry->is;
        if (i > 0 && is->id == entry[-1].is.id) {
            return err_world(err, "%s: found request %" PRIu64 " twice", trace->path, is->id);
        }
        if (is->answer_tokens > is->tokens) {
            return err_world(err,
                             "%s: found the end of request %" PRIu64 " after %" PRIu64
                             " committed tokens, expected the %" PRIu32 " of its answer",
                             trace->path, is->id, is->tokens, is->answer_tokens);
        }
        if (trace->has_answers && is->answer_tokens == 0) {
            is->answer_tokens = is->tokens < UINT32_MAX ? (uint32_t)is->tokens : UINT32_MAX;
        }
        for (size_t r = entry->begin; r < entry->end; r++) {
            const struct run *run = &trace->runs[r];
            const uint64_t values[] = {
                is->id, run->pass.committed, run->pass.processed, run->pass.kept, run->pass.reach,
                run->n, trace->block_tokens};
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                take_digest(trace, values[v]);
            }
            if (run->pass.unmasked > 0) {
                take_digest(trace, run->pass.unmasked);
            }
            if (run->pass.revised > 0) {
                take_digest(trace, ~(uint64_t)run->pass.revised);
            }
            if (trace->has_answers) {
                take_digest(trace, is->answer_tokens);
            }
        }
    }
    return 0;
}

static int read_head(struct input *input, struct err *err) {
    struct decode_trace *trace = input->trace;
    sqlite3_stmt *statement;
    int64_t id = 0, version = 0;
    for (int i = 0; i < 2; i++) {
        const char *sql = i == 0 ? "PRAGMA application_id" : "PRAGMA user_version";
        if (sqlite3_prepare_v2(input->db, sql, -1, &statement, NULL) != SQLITE_OK ||
            sqlite3_step(statement) != SQLITE_ROW) {
            int status = cannot_read(input, err);
            sqlite3_finalize(statement);
            return status;
        }
        *(i == 0 ? &id : &version) = sqlite3_column_int64(statement, 0);
        sqlite3_finalize(statement);
    }
    if (id != DECODE_TRACE_ID) {
        return err_world(err, "%s is not a decode trace", trace->path);
    }
    if (version < 1 || version > DECODE_TRACE_VERSION) {
        return err_world(err, "%s is a decode trace of version %" PRId64 ", expected 1 to %d",
                         trace->path, version, DECODE_TRACE_VERSION);
    }
    input->version = version;
    int status = for_rows(input, "SELECT key, value FROM about ORDER BY rowid", take_about, err);
    uint64_t tokens;
    if (status == 0 &&
        (!num_u64(decode_trace_about(trace, "block_tokens"), DECODE_MOST_POSITIONS, &tokens) ||
         tokens == 0)) {
        status = err_world(err, "%s: found block_tokens '%.40s', expected 1 to %d", trace->path,
                           decode_trace_about(trace, "block_tokens"), DECODE_MOST_POSITIONS);
    }
    trace->block_tokens = status == 0 ? (uint32_t)tokens : 0;
    return status;
}

static int read_all(struct input *input, struct err *err) {
    char sql[512];
    int status = read_head(input, err);
    status = status != 0 ? status
                         : for_rows(input,
                                    "SELECT id, prompt_tokens, output_tokens, answer_tokens"
                                    " FROM request ORDER BY id",
                                    take_request, err);
    const char *passes = input->depth == DECODE_POSITIONS ? select_passes : select_counts;
    if (status == 0) {
        snprintf(sql, sizeof sql, passes, other_columns[input->version]);
        status = for_rows(input, sql, take_pass, err);
    }
    return status != 0 ? status : finish_requests(input->trace, err);
}

int decode_trace_read(const char *path, enum decode_depth depth, struct decode_trace **out,
                      struct err *err) {
    const int wait = wait_begin();
    FILE *file = fopen(path, "rb");
    wait_end(wait);
    if (file == NULL) {
        return err_world(err, "cannot open %s: %s", path, strerror(errno));
    }
    char head[TEXT_HEAD_BYTES];
    const size_t n = fread(head, 1, sizeof head, file);
    fclose(file);
    if (text_is_foreign(path, head, n, err)) {
        return err_status(err);
    }
    const int held = inputs_hold("decode trace", path);
    struct decode_trace *trace = mem_zeroed(1, sizeof *trace);
    *trace = (struct decode_trace){.path = mem_text(path), .digest = UINT64_C(0xcbf29ce484222325)};
    struct input input = {.trace = trace, .depth = depth};
    /* A file may come from anybody: it defines nothing that runs here. What a killed program left
     * half done is undone, for which it has to be written where that is allowed. */
    int status =
        sqlite3_open_v2(path, &input.db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
                sqlite3_db_config(input.db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) == SQLITE_OK &&
                sqlite3_db_config(input.db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL) == SQLITE_OK
            ? read_all(&input, err)
            : cannot_read(&input, err);
    sqlite3_close(input.db);
    const int replaced = inputs_release(held, path, err);
    status = status != 0 ? status : replaced;
    if (status != 0) {
        decode_trace_close(trace);
        return status;
    }
    *out = trace;
    return 0;
}

void decode_trace_repeat(struct decode_trace *trace) {
    trace->repeats = true;
}

void decode_trace_close(struct decode_trace *trace) {
    if (trace == NULL) {
        return;
    }
    for (size_t i = 0; i < trace->n_about; i++) {
        free(trace->about[i].key);
        free(trace->about[i].value);
    }
    free(trace->about);
    free(trace->path);
    free(trace->entries);
    free(trace->runs);
    free(trace->bytes);
    free(trace);
}

/* ---- asking ---- */

static int tokens_of(const void *state, uint64_t request, uint64_t *out, struct err *err) {
    struct entry *entry;
    int status = find(state, request, &entry, err);
    *out = status == 0 ? entry->is.tokens : 0;
    return status;
}

static int answer_of(const void *state, uint64_t request, uint64_t *out, struct err *err) {
    struct entry *entry;
    int status = find(state, request, &entry, err);
    *out = status == 0 ? entry->is.answer_tokens : 0;
    return status;
}

static int pass_of(const void *state, uint64_t request, uint32_t index, struct decode_pass *out,
                   struct err *err) {
    const struct decode_trace *trace = state;
    struct entry *entry;
    int status = find(trace, request, &entry, err);
    if (status != 0) {
        return status;
    }
    const struct run *last = entry->is.rows > 0 ? &trace->runs[entry->end - 1] : NULL;
    uint32_t n = last != NULL ? last->first + last->n : 0;
    if (index >= n) {
        return err_world(err,
                         "%s ends after %" PRIu32 " passes of request %" PRIu64
                         ", which is not done by then",
                         trace->path, n, request);
    }
    size_t begin = entry->begin, end = entry->end;
    while (end - begin > 1) {
        size_t middle = begin + (end - begin) / 2;
        if (trace->runs[middle].first <= index) {
            begin = middle;
        } else {
            end = middle;
        }
    }
    *out = trace->runs[begin].pass;
    return 0;
}

struct decode_source decode_trace_source(const struct decode_trace *trace) {
    return (struct decode_source){.state = trace,
                                  .name = trace->path,
                                  .takes_back = trace->takes_back,
                                  .tokens = tokens_of,
                                  .answer = answer_of,
                                  .pass = pass_of};
}

uint32_t decode_trace_block_tokens(const struct decode_trace *trace) {
    return trace->block_tokens;
}

bool decode_trace_has_answers(const struct decode_trace *trace) {
    return trace->has_answers;
}

size_t decode_trace_requests(const struct decode_trace *trace) {
    return trace->n_entries;
}

const char *decode_trace_about(const struct decode_trace *trace, const char *key) {
    for (size_t i = 0; i < trace->n_about; i++) {
        if (strcmp(trace->about[i].key, key) == 0) {
            return trace->about[i].value;
        }
    }
    return "";
}

uint64_t decode_trace_digest(const struct decode_trace *trace) {
    return trace->digest;
}

struct decode_request decode_trace_request(const struct decode_trace *trace, size_t place) {
    ASSERT(place < trace->n_entries);
    return trace->entries[place].is;
}

/* ---- positions ---- */

static const unsigned char *unpack_values(const unsigned char *from, const uint8_t *of,
                                          const uint8_t *and_of, uint32_t n, void *out) {
    for (uint32_t i = 0; i < n; i++) {
        bool is_there = of[i] && and_of[i];
        memset((unsigned char *)out + 4 * (size_t)i, 0, 4);
        memcpy((unsigned char *)out + 4 * (size_t)i, from, is_there ? 4 : 0);
        from += is_there ? 4 : 0;
    }
    return from;
}

bool decode_trace_positions(const struct decode_trace *trace, size_t place, uint32_t row,
                            struct decode_positions *out) {
    const struct entry *entry = &trace->entries[place];
    ASSERT(place < trace->n_entries && row < entry->is.rows);
    const struct run *run = &trace->runs[entry->begin + row];
    uint8_t *const flags[N_FLAGS] = {out->masked, out->run, out->keep, out->outcome, out->seen};
    void *const values[N_VALUES] = {out->token,   out->confidence, out->margin,
                                    out->entropy, out->before,     out->after};
    if (run->length == 0) {
        return false;
    }
    const unsigned char *from = trace->bytes + run->bytes;
    out->start = run->start;
    out->length = run->length;
    out->has_importance = run->has_importance;
    for (int i = 0; i < N_FLAGS; i++) {
        for (uint32_t at = 0; at < run->length; at++) {
            flags[i][at] = flag(from, at);
        }
        from += (run->length + 7) / 8;
    }
    for (int i = 0; i < N_VALUES; i++) {
        bool is_importance = i >= N_VALUES - 2;
        if (!is_importance || run->has_importance) {
            from = is_importance
                       ? unpack_values(from, out->masked, out->run, run->length, values[i])
                       : unpack_values(from, out->seen, out->seen, run->length, values[i]);
        } else {
            memset(values[i], 0, 4 * (size_t)run->length);
        }
    }
    for (int i = 0; i < N_OTHERS; i++) {
        for (uint32_t at = 0; run->has[i] && at < run->length; at++) {
            out->outcome[at] = flag(from, at) ? others[i] : out->outcome[at];
        }
        from += run->has[i] ? (run->length + 7) / 8 : 0;
    }
    return true;
}

/* The requests of a decode trace as a table of lengths, for workloads. */

bool decode_trace_is(const char *path) {
    static const char head[] = "SQLite format 3";
    char found[sizeof head];
    struct stat about;
    FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    bool is = file != NULL && fread(found, 1, sizeof head, file) == sizeof head &&
              memcmp(found, head, sizeof head) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return is;
}

int decode_trace_lengths(const char *path, char **out, struct err *err) {
    struct decode_trace *trace;
    size_t size;
    int status = decode_trace_read(path, DECODE_COUNTS, &trace, err);
    if (status != 0) {
        return status;
    }
    FILE *text = mem_stream(out, &size);
    fprintf(text, "arrival_us,input_tokens,output_tokens,answer_tokens\n");
    for (size_t i = 0; status == 0 && i < decode_trace_requests(trace); i++) {
        const struct decode_request is = decode_trace_request(trace, i);
        if (is.prompt_tokens == 0 || is.output_tokens == 0) {
            status = err_world(err, "%s does not say how long its prompts and outputs are", path);
        }
        fprintf(text, "0,%" PRIu32 ",%" PRIu32 ",%" PRIu32 "\n", is.prompt_tokens, is.output_tokens,
                is.answer_tokens > 0 ? is.answer_tokens : is.output_tokens);
    }
    mem_stream_close(text);
    if (status != 0) {
        free(*out);
    }
    decode_trace_close(trace);
    return status;
}
