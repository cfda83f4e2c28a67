/* Reading what was measured of a server's requests. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/server/overlap.h"
#include "experiments/server/server.h"
#include "traces/field.h"

enum column {
    COLUMN_ARRIVAL,
    COLUMN_INPUT,
    COLUMN_OUTPUT,
    COLUMN_FIRST,
    COLUMN_LAST,
    COLUMN_START
};
enum { N_COLUMNS = COLUMN_START + 1, MOST_FIELDS = 64 };

static const char *const column_names[N_COLUMNS] = {
    "arrival_us",     "input_tokens",  "output_tokens",
    "first_token_us", "last_token_us", "scheduled_us", /* the only one that may be missing */
};

struct table_file {
    FILE *file;
    char *text;
    size_t room;
    struct line line;
    char *fields[MOST_FIELDS];
    int n_fields, n_columns;
    int position[N_COLUMNS];
};

/* The next line in fields; `*ended` at the end of the file. */
static int next_line(struct table_file *table, bool *ended, struct err *err) {
    errno = 0;
    ssize_t length = getline(&table->text, &table->room, table->file);
    *ended = length < 0;
    if (length < 0) {
        return errno == 0 ? 0
                          : err_world(err, "cannot read %s: %s", table->line.path, strerror(errno));
    }
    table->line.number++;
    char *end = table->text + length - 1;
    if (*end != '\n') {
        return err_world(err, "%s:%" PRIu64 ": the line does not end: the file was cut off",
                         table->line.path, table->line.number);
    }
    *end = '\0';
    if (end > table->text && end[-1] == '\r') {
        end[-1] = '\0';
    }
    table->n_fields = 0;
    for (char *rest = table->text; rest != NULL; table->n_fields++) {
        char *field = strsep(&rest, ",");
        if (table->n_fields < MOST_FIELDS) {
            table->fields[table->n_fields] = field;
        }
    }
    return 0;
}

static int read_head(struct table_file *table, struct err *err) {
    bool ended;
    int status = next_line(table, &ended, err);
    if (status != 0) {
        return status;
    }
    if (ended || table->n_fields > MOST_FIELDS) {
        return err_world(err, "%s:1: expected the header of a server's requests", table->line.path);
    }
    table->n_columns = table->n_fields;
    for (int column = 0; column < N_COLUMNS; column++) {
        int n = 0;
        table->position[column] = -1;
        for (int i = 0; i < table->n_fields; i++) {
            if (strcmp(table->fields[i], column_names[column]) == 0) {
                table->position[column] = i;
                n++;
            }
        }
        if (n > 1 || (n == 0 && column != COLUMN_START)) {
            return err_world(err,
                             "%s:1: %s column '%s'; expected arrival_us, input_tokens, "
                             "output_tokens, first_token_us, last_token_us",
                             table->line.path, n == 0 ? "no" : "more than one",
                             column_names[column]);
        }
    }
    return 0;
}

static int bad_field(const struct table_file *table, enum column column, const char *expected,
                     struct err *err) {
    const char *text = table->fields[table->position[column]];
    return field_bad(&table->line, text, strlen(text), column_names[column], expected, err);
}

/* A time that is not before `earliest_ns`. */
static int read_time(const struct table_file *table, enum column column, int64_t earliest_ns,
                     const char *expected, int64_t *out, struct err *err) {
    const char *text = table->fields[table->position[column]];
    bool is_time = field_time_ns(text, strlen(text), 1000, out);
    return is_time && *out >= earliest_ns ? 0 : bad_field(table, column, expected, err);
}

static int read_count(const struct table_file *table, enum column column, uint32_t *out,
                      struct err *err) {
    const char *text = table->fields[table->position[column]];
    return field_u32(text, strlen(text), out) && *out > 0
               ? 0
               : bad_field(table, column, "a whole number from 1 to 2^32 - 1", err);
}

static int read_row(const struct table_file *table, struct request_record *out, struct err *err) {
    *out = (struct request_record){.state = REQUEST_DONE, .first_block_tokens = 1};
    if (table->n_fields != table->n_columns) {
        return err_world(err, "%s:%" PRIu64 ": found %d field%s, expected %d as in the header",
                         table->line.path, table->line.number, table->n_fields,
                         table->n_fields == 1 ? "" : "s", table->n_columns);
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

static int read_rows(struct table_file *table, struct summary *out, struct overlap *overlap,
                     struct err *err) {
    struct sink sink = summary_sink(out), beside = overlap_sink(overlap);
    bool ended = false;
    int status = read_head(table, err);
    while (status == 0 && !ended) {
        struct request_record record;
        status = next_line(table, &ended, err);
        if (status != 0 || ended) {
            break;
        }
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
    struct table_file table = {.file = fopen(path, "r"), .line = {.path = path}};
    if (table.file == NULL) {
        return err_world(err, "cannot read %s: %s", path, strerror(errno));
    }
    struct overlap overlap = {0};
    int status = read_rows(&table, &server->measured, &overlap, err);
    server->measured_at_once = overlap_peak(&overlap);
    overlap_fini(&overlap);
    free(table.text);
    fclose(table.file);
    if (status == 0) {
        summary_finish(&server->measured);
    }
    return status;
}
