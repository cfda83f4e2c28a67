#include "experiments/study/timings.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/caution.h"
#include "analysis/store/store.h"
#include "sim/base/input/csv.h"
#include "sim/base/mem.h"
#include "sim/base/warning.h"

void timings_fini(struct timings *measured) {
    free(measured->records);
    free(measured->config);
    free(measured->spoilt);
    *measured = (struct timings){0};
}

static void add(struct timings *out, const struct request_record *record) {
    out->records = mem_grown(out->records, out->n, &out->room, sizeof *out->records);
    out->records[out->n++] = *record;
}

void timings_add(struct timings *out, int64_t arrival_ns, int64_t first_ns, int64_t last_ns,
                 uint32_t prompt_tokens, uint32_t output_tokens) {
    const struct request_record record = {.id = out->n,
                                          .state = REQUEST_DONE,
                                          .first_block_tokens = 1,
                                          .arrival_ns = arrival_ns,
                                          .admitted_ns = arrival_ns,
                                          .first_block_ns = first_ns,
                                          .finished_ns = last_ns,
                                          .prompt_tokens = prompt_tokens,
                                          .output_tokens = output_tokens,
                                          .answer_tokens = output_tokens,
                                          .committed_tokens = output_tokens};
    add(out, &record);
}

/* ---- a table ---- */

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

static int read_table(const char *path, struct timings *out, struct err *err) {
    struct csv table;
    bool more;
    int status = csv_open(&table, path, "server", err);
    status = status == 0 ? csv_first(&table, column_names, 1 << COLUMN_START, false, err) : status;
    while (status == 0 && (status = csv_line(&table, &more, err)) == 0 && more) {
        struct request_record record;
        status = read_row(&table, &record, err);
        record.id = out->n;
        if (status == 0) {
            add(out, &record);
        }
    }
    csv_close(&table);
    return status;
}

/* ---- a database ---- */

struct only_run {
    struct timings *out;
    int64_t n, run;
};

/* The sentence, to be freed; NULL: there is none. */
static char *read_spoilt(const char *summary) {
    json_t *read = summary != NULL ? json_loads(summary, 0, NULL) : NULL;
    const struct warnings warnings = caution_read(read);
    char *found = NULL;
    for (unsigned i = 0; i < warnings.n && found == NULL; i++) {
        const struct warning *warning = &warnings.items[i];
        found = warning_spoils_times(warning->code) ? mem_text(warning->text) : NULL;
    }
    json_decref(read);
    return found;
}

static int on_run(void *state, const struct stored_run *run, struct err *err) {
    struct only_run *only = state;
    (void)err;
    only->n++;
    only->run = run->run;
    snprintf(only->out->system, sizeof only->out->system, "%s", run->system);
    snprintf(only->out->model, sizeof only->out->model, "%s", run->model);
    snprintf(only->out->gpu, sizeof only->out->gpu, "%s", run->gpu);
    free(only->out->config);
    only->out->config = run->config != NULL ? mem_text(run->config) : NULL;
    free(only->out->spoilt);
    only->out->spoilt = read_spoilt(run->summary);
    return 0;
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    (void)err;
    add(state, record);
    return 0;
}

static int read_database(const char *path, struct timings *out, struct err *err) {
    struct store *store = NULL;
    struct only_run only = {.out = out};
    int status = store_open(path, STORE_READ, &store, err);
    status = status == 0 ? store_list_runs(store, on_run, &only, err) : status;
    if (status == 0 && only.n != 1) {
        status =
            err_usage(err, "%s holds %" PRId64 " runs: what is compared has one", path, only.n);
    }
    status = status == 0 ? store_check_rows(store, only.run, err) : status;
    status = status == 0 ? store_load_requests(store, only.run, on_request, out, err) : status;
    store_close(store);
    return status;
}

/* ---- which of them ---- */

static enum timings_kind kind_of(const char *path) {
    char head[16] = "";
    struct stat facts;
    /* A pipe, of which a byte read is gone, is a table. */
    FILE *file = stat(path, &facts) == 0 && S_ISREG(facts.st_mode) ? fopen(path, "rb") : NULL;
    if (file == NULL) {
        return TIMINGS_CSV;
    }
    const size_t n = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    return n >= 15 && memcmp(head, "SQLite format 3", 15) == 0 ? TIMINGS_DATABASE
           : head[strspn(head, " \t\r\n")] == '{'              ? TIMINGS_CLIENT
                                                               : TIMINGS_CSV;
}

int timings_read(const char *path, struct timings *out, struct err *err) {
    *out = (struct timings){.kind = kind_of(path)};
    int status = out->kind == TIMINGS_DATABASE ? read_database(path, out, err)
                 : out->kind == TIMINGS_CLIENT ? timings_read_client(path, out, err)
                                               : read_table(path, out, err);
    size_t n_done = 0;
    for (size_t i = 0; i < out->n; i++) {
        n_done += out->records[i].state == REQUEST_DONE;
    }
    return status == 0 && n_done == 0 ? err_world(err, "%s holds no requests", path) : status;
}

int timings_write(const struct timings *measured, int file, struct err *err) {
    FILE *out = fdopen(dup(file), "w");
    if (out == NULL) {
        return err_world(err, "the system has no file for the arrivals");
    }
    fprintf(out, "arrival_us,input_tokens,output_tokens\n");
    for (size_t i = 0; i < measured->n; i++) {
        const struct request_record *r = &measured->records[i];
        fprintf(out, "%" PRId64 ".%03d,%" PRIu32 ",%" PRIu32 "\n", r->arrival_ns / 1000,
                (int)(r->arrival_ns % 1000), r->prompt_tokens, r->output_tokens);
    }
    const bool failed = ferror(out) != 0;
    return fclose(out) != 0 || failed ? err_world(err, "the arrivals could not be written") : 0;
}
