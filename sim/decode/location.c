#include "sim/decode/location.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum {
    COLUMN_PROCESS,
    COLUMN_MODEL,
    COLUMN_BENCHMARK,
    COLUMN_WORKLOADS,
    COLUMN_SHAPE,
    COLUMN_COUNTS,
    COLUMN_PRINTED,
    COLUMN_THRESHOLD,
    COLUMN_BLOCK,
    COLUMN_TEMPERATURE,
    COLUMN_ANSWER,
    COLUMN_FROM,
    COLUMN_SOURCE,
    COLUMN_DOMAIN,
    COLUMN_LOCATION,
    COLUMN_ERROR,
};
static const char *const columns[] = {"process",
                                      "model",
                                      "benchmark",
                                      "workloads",
                                      "shape",
                                      "counts",
                                      "printed",
                                      "threshold",
                                      "block_tokens",
                                      "temperature",
                                      "answer_tokens",
                                      "transferred_from",
                                      "source",
                                      "domain",
                                      "location",
                                      "error",
                                      NULL};

static const char structured[] = "structured";

static const char *const counts[] = {"per-pass", "run-per-token", NULL};

/* What a row was fitted to; nothing where it was transferred. */
static int read_printed(const struct csv *csv, struct location *row, struct err *err) {
    row->printed = (double)NAN;
    if (row->transferred_from[0] != '\0') {
        return 0;
    }
    int kind = name_find(counts, csv_field(csv, COLUMN_COUNTS));
    if (kind < 0) {
        return csv_bad(csv, COLUMN_COUNTS, "per-pass or run-per-token", err);
    }
    row->runs_per_token = kind == 1;
    return csv_number(csv, COLUMN_PRINTED, 1, 1e6, &row->printed, err);
}

static int read_conditions(const struct csv *csv, struct decode_conditions *at, struct err *err) {
    int64_t block = 0, answer = 0;
    bool fills = csv_field(csv, COLUMN_ANSWER)[0] == '\0';
    bool failed = csv_number(csv, COLUMN_THRESHOLD, 0, 1, &at->threshold, err) != 0 ||
                  csv_whole(csv, COLUMN_BLOCK, 1, 65536, &block, err) != 0 ||
                  csv_number(csv, COLUMN_TEMPERATURE, 0.01, 100, &at->temperature, err) != 0 ||
                  (!fills && csv_whole(csv, COLUMN_ANSWER, 1, 1 << 20, &answer, err) != 0);
    at->block_tokens = (uint32_t)block;
    at->answer_tokens = (uint32_t)answer;
    return failed ? err_status(err) : 0;
}

static int read_row(struct csv *csv, struct location *row, struct err *err) {
    if (csv_row(csv, err) != 0) {
        return err_status(err);
    }
    *row = (struct location){.process = csv_field(csv, COLUMN_PROCESS),
                             .model = csv_field(csv, COLUMN_MODEL),
                             .benchmark = csv_field(csv, COLUMN_BENCHMARK),
                             .workloads = csv_field(csv, COLUMN_WORKLOADS),
                             .shape = csv_field(csv, COLUMN_SHAPE),
                             .transferred_from = csv_field(csv, COLUMN_FROM),
                             .source = csv_field(csv, COLUMN_SOURCE),
                             .error = csv_field(csv, COLUMN_ERROR),
                             .line = csv->line.number};
    const char *domain = csv_field(csv, COLUMN_DOMAIN);
    row->is_structured = strcmp(domain, structured) == 0;
    if (domain[0] != '\0' && !row->is_structured) {
        return csv_bad(csv, COLUMN_DOMAIN, "structured, or nothing", err);
    }
    const char *slash = strchr(row->process, '/');
    if (slash == NULL || slash == row->process || slash[1] == '\0') {
        return csv_bad(csv, COLUMN_PROCESS, "MODEL/TASK", err);
    }
    int status = read_printed(csv, row, err);
    status = status != 0 ? status : read_conditions(csv, &row->at, err);
    return status != 0 ? status : csv_number(csv, COLUMN_LOCATION, -100, 100, &row->location, err);
}

static int read_rows(struct locations *out, struct err *err) {
    size_t room = 0;
    bool more = true;
    int status = csv_first(&out->csv, columns, 0, true, err);
    while (status == 0 && (status = csv_line(&out->csv, &more, err)) == 0 && more) {
        if (out->n == room) {
            room = 2 * room + 16;
            out->rows = mem_resized(out->rows, room, sizeof *out->rows);
        }
        struct location *row = &out->rows[out->n];
        status = read_row(&out->csv, row, err);
        if (status == 0 && location_find(out, row->process) != NULL) {
            status = csv_bad(&out->csv, COLUMN_PROCESS, "a name of its own", err);
        }
        out->n += status == 0;
    }
    return status;
}

int locations_open(const char *path, struct locations *out, struct err *err) {
    *out = (struct locations){0};
    if (csv_open(&out->csv, path, "decode locations", err) != 0) {
        return err_status(err);
    }
    if (read_rows(out, err) != 0) {
        locations_close(out);
        return err_status(err);
    }
    return 0;
}

void locations_close(struct locations *locations) {
    csv_close(&locations->csv);
    free(locations->rows);
    *locations = (struct locations){0};
}

const struct location *location_find(const struct locations *locations, const char *process) {
    for (size_t i = 0; i < locations->n; i++) {
        if (strcmp(locations->rows[i].process, process) == 0) {
            return &locations->rows[i];
        }
    }
    return NULL;
}

static bool lists(const char *list, const char *word) {
    const char *at;
    size_t size;
    while (name_next(&list, " ", &at, &size)) {
        if (size > 0 && size == strlen(word) && strncmp(at, word, size) == 0) {
            return true;
        }
    }
    return false;
}

const struct location *location_of(const struct locations *locations, const char *model,
                                   const char *workload, const struct location *last) {
    size_t length = strlen(model);
    for (size_t i = last == NULL ? 0 : (size_t)(last - locations->rows) + 1; i < locations->n;
         i++) {
        const struct location *row = &locations->rows[i];
        if (strncmp(row->process, model, length) == 0 && row->process[length] == '/' &&
            lists(row->workloads, workload)) {
            return row;
        }
    }
    return NULL;
}
