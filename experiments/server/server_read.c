/* Reading what was measured of a server's requests. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/server/overlap.h"
#include "experiments/server/server.h"
#include "sim/input/csv.h"

enum column {
    COLUMN_ARRIVAL,
    COLUMN_INPUT,
    COLUMN_OUTPUT,
    COLUMN_FIRST,
    COLUMN_LAST,
    COLUMN_START
};

static const char *const column_names[] = {
    "arrival_us",
    "input_tokens",
    "output_tokens",
    "first_token_us",
    "last_token_us",
    "scheduled_us",
    /* the only one that may be missing */ NULL,
};

/* A time that is not before `earliest_ns`. */
static int read_time(const struct csv *table, enum column column, int64_t earliest_ns,
                     const char *expected, int64_t *out, struct err *err) {
    const char *text = csv_field(table, (int)column);
    bool is_time = field_time_ns(text, strlen(text), 1000, out);
    return is_time && *out >= earliest_ns ? 0 : csv_bad(table, (int)column, expected, err);
}

static int read_count(const struct csv *table, enum column column, uint32_t *out, struct err *err) {
    const char *text = csv_field(table, (int)column);
    return field_u32(text, strlen(text), out) && *out > 0
               ? 0
               : csv_bad(table, (int)column, "a whole number from 1 to 2^32 - 1", err);
}

static int read_row(struct csv *table, struct request_record *out, struct err *err) {
    *out = (struct request_record){.state = REQUEST_DONE, .first_block_tokens = 1};
    if (csv_row(table, err) != 0) {
        return (int)err->kind;
    }
    int status =
        read_time(table, COLUMN_ARRIVAL, 0, "a time in microseconds", &out->arrival_ns, err);
    if (status == 0) {
        status = read_count(table, COLUMN_INPUT, &out->prompt_tokens, err);
    }
    if (status == 0) {
        status = read_count(table, COLUMN_OUTPUT, &out->output_tokens, err);
        out->answer_tokens = out->committed_tokens = out->output_tokens;
    }
    if (status == 0) {
        status =
            read_time(table, COLUMN_FIRST, out->arrival_ns,
                      "a time in microseconds, not before the arrival", &out->first_block_ns, err);
    }
    if (status == 0) {
        status = read_time(table, COLUMN_LAST, out->first_block_ns,
                           "a time in microseconds, not before the first token's",
                           &out->finished_ns, err);
    }
    out->admitted_ns = out->arrival_ns;
    if (status == 0 && table->position[COLUMN_START] >= 0) {
        status =
            read_time(table, COLUMN_START, out->arrival_ns,
                      "a time in microseconds, not before the arrival", &out->admitted_ns, err);
    }
    return status;
}

static int read_rows(struct csv *table, struct summary *out, struct overlap *overlap,
                     struct err *err) {
    struct sink sink = summary_sink(out), beside = overlap_sink(overlap);
    bool more;
    int status = csv_first(table, column_names, 1 << COLUMN_START, false, err);
    while (status == 0 && (status = csv_line(table, &more, err)) == 0 && more) {
        struct request_record record;
        status = read_row(table, &record, err);
        status = status != 0 ? status : sink.request(sink.state, &record, err);
        status = status != 0 ? status : beside.request(beside.state, &record, err);
    }
    return status == 0 && out->completed == 0
               ? err_world(err, "%s holds no requests", table->line.path)
               : status;
}

int server_read(const char *path, const char *name, struct server *server, struct err *err) {
    *server = (struct server){.name = name};
    snprintf(server->path, sizeof server->path, "%s", path);
    summary_init(&server->measured, NULL);
    struct csv table;
    struct overlap overlap = {0};
    int status = csv_open(&table, path, "server", err);
    status = status == 0 ? read_rows(&table, &server->measured, &overlap, err) : status;
    server->measured_at_once = overlap_peak(&overlap);
    overlap_fini(&overlap);
    csv_close(&table);
    if (status == 0) {
        summary_finish(&server->measured);
    }
    return status;
}
