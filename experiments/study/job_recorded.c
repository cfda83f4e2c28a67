/* Jobs that read what was found before: runs of a database, their requests and their course, and
 * what `run --json` and `sweep --json` printed. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/plot/course.h"
#include "analysis/plot/run_fields.h"
#include "analysis/store/store.h"
#include "experiments/study/jobs.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"

enum { PATH_CHARS = 1024, MOST_KEPT = 100000, MOST_JSON_BYTES = 1 << 28 };

/* ---- recorded ---- */

struct taking {
    const json_t *args;
    json_t *row, *rows;
    struct store *store;
    uint64_t most;
    enum request_field field;
};

static int check_damage(const struct stored_run *stored, struct err *err) {
    return stored->damage == NULL
               ? 0
               : err_world(err, "run %lld is damaged: %s", (long long)stored->run, stored->damage);
}

/* By what requests are told apart; GROUPING_COUNT: by nothing. */
static enum grouping told_by(const struct taking *taking) {
    const char *field = job_text(taking->args, "groups");
    int by = 0;
    while (by < GROUPING_COUNT && (field == NULL || strcmp(field, grouping_words[by].field) != 0)) {
        by++;
    }
    return (enum grouping)by;
}

static int put_groups(struct taking *taking, const struct stored_run *stored, json_t *row,
                      struct err *err) {
    struct requests requests;
    if (requests_load(taking->store, stored->run, &requests, err) != 0) {
        return (int)err->kind;
    }
    int status = run_fields_put_groups(&requests, row, err);
    requests_fini(&requests);
    return status;
}

static int take_run(void *state, const struct stored_run *stored, struct err *err) {
    struct taking *taking = state;
    if (check_damage(stored, err) != 0) {
        return (int)err->kind;
    }
    json_t *row = json_copy(taking->row);
    json_object_set_new(row, "config", json_string(stored->config));
    run_fields_put(stored, row);
    json_array_append_new(taking->rows, row);
    const enum grouping by = told_by(taking);
    return by < GROUPING_COUNT && json_object_get(row, grouping_words[by].list) == NULL
               ? put_groups(taking, stored, row, err)
               : 0;
}

/* Calls `each` for every run of the database that `file` names. */
static int read_store(const json_t *args, struct taking *taking,
                      int (*each)(void *state, const struct stored_run *run, struct err *err),
                      struct err *err) {
    char path[PATH_CHARS];
    int status = store_open(job_path(path, sizeof path, job_text(args, "file")), STORE_READ,
                            &taking->store, err);
    status = status == 0 ? store_list_samples(taking->store, each, taking, err) : status;
    store_close(taking->store);
    return status;
}

static int recorded(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    struct taking taking = {.args = args, .row = row, .rows = rows};
    return read_store(args, &taking, take_run, err);
}

const struct job job_recorded = {
    .name = "recorded",
    .doc = "runs that `unmask run --db` or `sweep --db` recorded: the same columns, and the "
           "configuration",
    .required = (const char *const[]){"file", NULL},
    .fill = recorded,
};

/* ---- requests ---- */

static json_t *row_of(const struct taking *taking, const struct stored_run *stored) {
    json_t *row = json_copy(taking->row);
    json_object_set_new(row, "run", json_integer(stored->run));
    return row;
}

/* Order statistics of one field, evenly spaced with the ends. `weight` is the share of the run's
 * requests that each stands for, those without a value among them. */
static void take_sorted(struct taking *taking, const struct stored_run *stored,
                        const struct requests *requests, enum grouping by) {
    struct series sorted = requests_sorted(requests, taking->field);
    size_t n = sorted.n < taking->most ? sorted.n : taking->most;
    for (size_t i = 0; i < n; i++) {
        json_t *row = row_of(taking, stored);
        job_put(row, request_field_names[taking->field],
                sorted.values[n > 1 ? i * (sorted.n - 1) / (n - 1) : sorted.n - 1]);
        job_put(row, "weight", (double)sorted.n / (double)requests->n / (double)n);
        if (by < GROUPING_COUNT) {
            json_object_set_new(row, grouping_words[by].field,
                                json_integer(grouping_key(by, &requests->items[0])));
        }
        json_array_append_new(taking->rows, row);
    }
    free(sorted.values);
}

static int order(enum grouping by, const struct request_record *x, const struct request_record *y) {
    const uint32_t a = grouping_key(by, x), b = grouping_key(by, y);
    return a != b ? (a > b) - (a < b) : (x->id > y->id) - (x->id < y->id);
}

static int by_tenant(const void *a, const void *b) {
    return order(BY_TENANT, a, b);
}

static int by_priority(const void *a, const void *b) {
    return order(BY_PRIORITY, a, b);
}

/* The same of each group's. */
static void take_sorted_by(enum grouping by, struct taking *taking, const struct stored_run *stored,
                           struct requests *all) {
    if (all->n > 0) {
        qsort(all->items, all->n, sizeof *all->items, by == BY_TENANT ? by_tenant : by_priority);
    }
    for (size_t from = 0, n; from < all->n; from += n) {
        const uint32_t key = grouping_key(by, &all->items[from]);
        for (n = 1; from + n < all->n && grouping_key(by, &all->items[from + n]) == key; n++) {
        }
        const struct requests own = {.items = all->items + from, .n = n};
        take_sorted(taking, stored, &own, by);
    }
}

/* At most the wanted number, evenly spaced in the order in which they left. */
static void take_all(struct taking *taking, const struct stored_run *stored,
                     const struct requests *requests) {
    size_t n = requests->n < taking->most ? requests->n : taking->most;
    for (size_t k = 0; k < n; k++) {
        const struct request_record *record = &requests->items[k * requests->n / n];
        json_t *row = row_of(taking, stored);
        double values[REQUEST_FIELD_COUNT];
        request_field_values(record, values);
        for (size_t f = 0; f < REQUEST_FIELD_COUNT; f++) {
            job_put(row, request_field_names[f], values[f]);
        }
        json_object_set_new(row, "is_done", json_integer(record->state == REQUEST_DONE));
        json_array_append_new(taking->rows, row);
    }
}

static int take_requests(void *state, const struct stored_run *stored, struct err *err) {
    struct taking *taking = state;
    struct requests requests;
    if (check_damage(stored, err) != 0 ||
        requests_load(taking->store, stored->run, &requests, err) != 0) {
        return (int)err->kind;
    }
    const enum grouping by = told_by(taking);
    if (taking->field < REQUEST_FIELD_COUNT && by < GROUPING_COUNT) {
        take_sorted_by(by, taking, stored, &requests);
    } else if (taking->field < REQUEST_FIELD_COUNT) {
        take_sorted(taking, stored, &requests, by);
    } else {
        take_all(taking, stored, &requests);
    }
    requests_fini(&requests);
    return 0;
}

static int requests(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    struct taking taking = {
        .args = args, .row = row, .rows = rows, .most = MOST_KEPT, .field = REQUEST_FIELD_COUNT};
    const char *field = job_text(args, "field");
    int found = field != NULL ? name_find(request_field_names, field) : REQUEST_FIELD_COUNT;
    if (found < 0) {
        char hint[NAME_HINT_CHARS];
        return err_usage(err, "a request has no field '%s'%s", field,
                         name_hint(field, request_field_names, hint));
    }
    taking.field = (enum request_field)found;
    int status = job_whole(args, "most", MOST_KEPT, &taking.most, err);
    return status != 0 ? status : read_store(args, &taking, take_requests, err);
}

const struct job job_requests = {
    .name = "requests",
    .doc =
        "the requests of recorded runs; of one `field` its order statistics; at most `most` a run",
    .required = (const char *const[]){"file", NULL},
    .optional = (const char *const[]){"field", "most", NULL},
    .fill = requests,
};

/* ---- course ---- */

static int take_course(void *state, const struct stored_run *stored, struct err *err) {
    struct taking *taking = state;
    struct requests requests;
    struct course course;
    if (check_damage(stored, err) != 0 ||
        requests_load(taking->store, stored->run, &requests, err) != 0) {
        return (int)err->kind;
    }
    int status = course_load(taking->store, stored, &requests, COURSE_MOST_BINS, &course, err);
    requests_fini(&requests);
    for (size_t i = 0; status == 0 && i < course.n_bins; i++) {
        json_t *row = row_of(taking, stored);
        for (size_t f = 0; f < COURSE_FIELD_COUNT; f++) {
            job_put(row, course_columns[f].name, course.bins[f][i]);
        }
        json_array_append_new(taking->rows, row);
    }
    return status;
}

static int course(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    struct taking taking = {.args = args, .row = row, .rows = rows};
    return read_store(args, &taking, take_course, err);
}

const struct job job_course = {
    .name = "course",
    .doc = "what happened over time in recorded runs, in 200 equal stretches each",
    .required = (const char *const[]){"file", NULL},
    .fill = course,
};

/* ---- json ---- */

/* The axes of a sweep's point; all but the seed are the setup, with the file, since its other
 * options are not known, and what the run was made of. */
static void put_point(const json_t *point, const json_t *summary, json_t *row) {
    char *setup = NULL;
    size_t size;
    const char *key;
    json_t *value;
    FILE *out = mem_stream(&setup, &size);
    json_object_foreach((json_t *)(uintptr_t)point, key, value) {
        const char *text = json_string_value(value);
        json_object_set_new(row, key, job_cell(text != NULL ? text : ""));
        if (strcmp(key, "seed") != 0) {
            fprintf(out, "%s = %s\n", key, text != NULL ? text : "");
        }
    }
    fprintf(out, "file = %s\n", json_string_value(json_object_get(row, "file")));
    run_fields_put_identity(json_object_get(summary, "identity"), out, row);
    mem_stream_close(out);
    json_object_set_new(row, "setup", json_string(setup));
    free(setup);
}

static void take_summary(struct taking *taking, const json_t *point, json_t *summary) {
    json_t *row = json_copy(taking->row);
    json_object_set_new(row, "run", json_integer((json_int_t)json_array_size(taking->rows) + 1));
    put_point(point, summary, row);
    if (point == NULL) { /* unknown which runs differ in the seed alone */
        json_object_set_new(row, "setup", json_sprintf("run %zu", json_array_size(taking->rows)));
    }
    json_object_update_missing(row, summary);
    if (json_object_get(row, "seed") == NULL) { /* nor is there one where a point has no result */
        json_object_set_new(row, "seed", json_null());
    }
    json_array_append_new(taking->rows, row);
}

/* A summary, or a point of a sweep with one or several. */
static int take_result(struct taking *taking, json_t *result, struct err *err) {
    const json_t *point = json_object_get(result, "point"), *runs = json_object_get(result, "runs");
    json_t *summary = json_object_get(result, "summary");
    if (!json_is_object(result) ||
        (point == NULL && json_object_get(result, "latency_s") == NULL)) {
        return err_usage(err,
                         "'%s' is neither what `run --json` printed nor what `sweep --json` did",
                         job_text(taking->args, "file"));
    }
    for (size_t i = 0; i < json_array_size(runs); i++) {
        take_summary(taking, point, json_array_get(runs, i));
    }
    if (runs == NULL) {
        take_summary(taking, point, summary != NULL ? summary : result);
    }
    return 0;
}

static int json(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    char path[PATH_CHARS];
    size_t size;
    json_error_t error;
    struct taking taking = {.args = args, .row = row, .rows = rows};
    const char *name = job_text(args, "file");
    bool is_input = strcmp(name, "-") == 0;
    char *text = text_read(is_input ? "/dev/stdin" : job_path(path, sizeof path, name), "results",
                           MOST_JSON_BYTES, &size, err);
    if (text == NULL) {
        return (int)err->kind;
    }
    json_t *all = json_loadb(text, size, 0, &error);
    free(text);
    if (all == NULL) {
        return err_world(err, "%s:%d: %s", name, error.line, error.text);
    }
    int status = json_is_array(all) ? 0 : take_result(&taking, all, err);
    for (size_t i = 0; status == 0 && i < json_array_size(all); i++) {
        status = take_result(&taking, json_array_get(all, i), err);
    }
    json_decref(all);
    return status;
}

const struct job job_json = {
    .name = "json",
    .doc = "runs that `run --json` or `sweep --json` printed, with the same columns",
    .required = (const char *const[]){"file", NULL},
    .fill = json,
};
