#include "analysis/plot/report.h"

#include <errno.h>
#include <gsl/gsl_cdf.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/identity.h"
#include "analysis/plot/course.h"
#include "analysis/plot/run_fields.h"
#include "analysis/summary_output.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/output.h"

/* The parts of a run that a report's page draws, as JSON: the more runs a page has, the less of
 * each. */

/* What a page keeps of all runs together, and of each at least and at most. */
enum {
    ALL_BINS = 14400,
    LEAST_BINS = 60,
    ALL_QUANTILES = 15600,
    LEAST_QUANTILES = 65,
    MOST_QUANTILES = 200,
    ALL_REQUESTS = 6000,
    LEAST_REQUESTS = 20,
};

static const enum request_field distributions[] = {REQUEST_FIELD_latency_s, REQUEST_FIELD_ttft_s,
                                                   REQUEST_FIELD_queue_s, REQUEST_FIELD_tpot_s};

/* Rounded to `digits` significant digits (4 exceed a screen's resolution); null: no value. */
static json_t *report_number(double value, int digits) {
    char text[32];
    if (!isfinite(value)) {
        return json_null();
    }
    snprintf(text, sizeof text, "%.*g", digits, value);
    value = strtod(text, NULL);
    bool is_whole = fabs(value) < 1e7 && value == floor(value);
    return is_whole ? json_integer((json_int_t)value) : json_real(value);
}

static size_t share_of(size_t all, size_t n_runs, size_t least, size_t most) {
    size_t n = all / (n_runs > 0 ? n_runs : 1);
    return n < least ? least : n > most ? most : n;
}

/* At most `most` of `n` sorted numbers, evenly spaced, with both ends. */
static json_t *thin(const double *values, size_t n, size_t most) {
    size_t n_kept = n < most ? n : most;
    json_t *array = json_array();
    for (size_t i = 0; i < n_kept; i++) {
        json_array_append_new(
            array, report_number(values[n_kept > 1 ? i * (n - 1) / (n_kept - 1) : 0], 4));
    }
    return array;
}

/* {FIELD: {n, values}}: how many completed requests have it, and evenly spaced order statistics. */
static json_t *report_distributions(const struct requests *requests, size_t n_runs) {
    json_t *object = json_object();
    size_t most = share_of(ALL_QUANTILES, n_runs, LEAST_QUANTILES, MOST_QUANTILES);
    for (size_t i = 0; i < sizeof distributions / sizeof distributions[0]; i++) {
        struct series sorted = requests_sorted(requests, distributions[i]);
        json_object_set_new(object, request_field_names[distributions[i]],
                            json_pack("{s:I, s:o}", "n", (json_int_t)sorted.n, "values",
                                      thin(sorted.values, sorted.n, most)));
        free(sorted.values);
    }
    return object;
}

static json_t *report_course(const struct course *course) {
    json_t *object = json_object();
    json_object_set_new(object, "bin_s", json_real(2 * course->bins[COURSE_TIME_S][0]));
    for (int f = COURSE_TIME_S + 1; f < COURSE_FIELD_COUNT; f++) {
        json_t *values = json_array();
        bool any = false;
        for (size_t i = 0; i < course->n_bins; i++) {
            json_array_append_new(values, report_number(course->bins[f][i], 3));
            any = any || isfinite(course->bins[f][i]);
        }
        if (any) {
            json_object_set(object, course_columns[f].name, values);
        }
        json_decref(values);
    }
    return object;
}

struct late {
    double latency_s;
    size_t at;
};

/* Requests that were not completed first, then the slowest; of two alike the earlier. */
static int by_latency(const void *a, const void *b) {
    const struct late *p = a, *q = b;
    double x = isfinite(p->latency_s) ? p->latency_s : (double)INFINITY;
    double y = isfinite(q->latency_s) ? q->latency_s : (double)INFINITY;
    return x != y ? (x < y) - (x > y) : (p->at > q->at) - (p->at < q->at);
}

static json_t *request_json(const struct request_record *record) {
    json_t *row = json_array();
    double values[REQUEST_FIELD_COUNT];
    request_field_values(record, values);
    for (size_t f = 0; f < REQUEST_FIELD_COUNT; f++) {
        json_array_append_new(row, f == REQUEST_FIELD_id ? json_integer((json_int_t)record->id)
                                                         : report_number(values[f], 4));
    }
    bool rejected = record->state == REQUEST_REJECTED && record->reason < REJECT_REASON_COUNT;
    json_array_append_new(row, json_string(record->state == REQUEST_DONE ? "done"
                                           : rejected ? reject_reason_names[record->reason]
                                                      : "under way"));
    return row;
}

/* Rows of REQUEST_FIELD_COUNT numbers and the outcome: all requests, or half as many as fit from
 * those not served and the slowest on, and the other half evenly from the rest. */
static json_t *report_requests(const struct requests *requests, size_t n_runs) {
    const size_t n = requests->n;
    const size_t half = share_of(ALL_REQUESTS, n_runs, LEAST_REQUESTS, ALL_REQUESTS) / 2;
    struct late *order = mem_zeroed(n + 1, sizeof *order);
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        double values[REQUEST_FIELD_COUNT];
        request_field_values(&requests->items[i], values);
        order[i] = (struct late){values[REQUEST_FIELD_latency_s], i};
    }
    qsort(order, n, sizeof *order, by_latency);
    const size_t stride = n > 2 * half ? (size_t)ceil_div((int64_t)(n - half), (int64_t)half) : 1;
    for (size_t place = 0; place < n; place += place < half ? 1 : stride) {
        json_array_append_new(rows, request_json(&requests->items[order[place].at]));
    }
    free(order);
    return rows;
}

/* How many bins a course has, and {bin_s, FIELD: [...]} of those that it knows. */
static size_t report_bins(size_t n_runs) {
    return share_of(ALL_BINS, n_runs, LEAST_BINS, COURSE_MOST_BINS);
}

enum { MOST_SEEDS = 64, PATH_CHARS = 4096 };

struct report {
    struct store *store;
    json_t *runs, *damaged;
    json_t *asked;  /* {key of a configuration: true} */
    json_t *setups; /* {setup: its number} */
    json_t *texts;  /* what runs share, each once: warnings and files read */
    json_t *places; /* {text: its place among them} */
    size_t n_runs;
};

/* ---- a run ---- */

/* The place of a value among the texts that runs share. */
static json_t *place_of(struct report *report, json_t *value) {
    char *key = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *place = json_object_get(report->places, key);
    if (place == NULL) {
        place = json_integer((json_int_t)json_array_size(report->texts));
        json_object_set_new(report->places, key, place);
        json_array_append(report->texts, value);
    }
    free(key);
    return json_incref(place);
}

static json_t *places_of(struct report *report, const json_t *values) {
    json_t *places = json_array();
    for (size_t i = 0; i < json_array_size(values); i++) {
        json_array_append_new(places, place_of(report, json_array_get(values, i)));
    }
    return places;
}

/* The number of a setup, alike for runs that differ in the seed alone; its keys are told apart from
 * what was found. */
static json_t *setup_of(struct report *report, const char *setup) {
    json_t *number = json_object_get(report->setups, setup);
    if (number == NULL) {
        number = json_integer((json_int_t)json_object_size(report->setups));
        json_object_set_new(report->setups, setup, number);
    }
    for (const char *line = setup; *line != '\0';
         line += strcspn(line, "\n"), line += *line == '\n') {
        const char *end = strstr(line, " = ");
        char key[FIELD_CHARS];
        snprintf(key, sizeof key, "%.*s", end != NULL ? (int)(end - line) : 0, line);
        json_object_set_new(report->asked, key, json_true());
    }
    return json_incref(number);
}

/* Fields inside others as "latency_s.p99"; lists stand elsewhere. */
static void add_flat(json_t *flat, const char *prefix, json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char name[FIELD_CHARS];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        if (json_is_object(value)) {
            add_flat(flat, name, value);
        } else if (!json_is_array(value)) {
            json_object_set(flat, name, value);
        }
    }
}

/* Where an earlier run of the same configuration was made of other files or by another build, the
 * numbers of the two differ for that reason. */
static void put_earlier(const json_t *runs, json_t *object, const json_t *identity) {
    for (size_t i = json_array_size(runs); i-- > 0;) {
        const json_t *earlier = json_array_get(runs, i);
        if (json_equal(json_object_get(earlier, "config"), json_object_get(object, "config"))) {
            struct identity_difference difference =
                identity_compare(json_object_get(earlier, "identity"), identity, true);
            json_object_set(object, "same_as", json_object_get(earlier, "run"));
            json_object_set_new(object, "changed", json_string(difference.text));
            return;
        }
    }
}

/* What a page shows of each tenant and class, after which it is. */
static const char *const group_fields[] = {"requests",      "completed",        "rejected",
                                           "service_share", "throughput_tok_s", "goodput_req_s",
                                           "attainment",    "latency_s.mean",   "latency_s.p99",
                                           "ttft_s.mean",   "ttft_s.p99"};
enum { GROUP_FIELDS = sizeof group_fields / sizeof group_fields[0] };

static const char *group_field(enum grouping by, size_t f) {
    return f == 0 ? grouping_words[by].field : group_fields[f - 1];
}

static json_t *groups_of_kind(const json_t *groups, enum grouping by) {
    json_t *rows = json_array();
    for (size_t i = 0; i < json_array_size(groups); i++) {
        json_t *flat = json_object(), *row = json_array();
        add_flat(flat, "", json_array_get(groups, i));
        for (size_t f = 0; f <= GROUP_FIELDS; f++) {
            const json_t *value = json_object_get(flat, group_field(by, f));
            json_array_append_new(row, json_is_number(value)
                                           ? report_number(json_number_value(value), 4)
                                           : json_null());
        }
        json_array_append_new(rows, row);
        json_decref(flat);
    }
    return rows;
}

/* Of each kind of group the rows, by the name of its list. */
static json_t *report_groups(const json_t *row) {
    json_t *object = json_object();
    for (int by = 0; by < GROUPING_COUNT; by++) {
        const char *list = grouping_words[by].list;
        json_object_set_new(object, list,
                            groups_of_kind(json_object_get(row, list), (enum grouping)by));
    }
    return object;
}

/* And the heads of their columns. */
static json_t *group_names(void) {
    json_t *object = json_object();
    for (int by = 0; by < GROUPING_COUNT; by++) {
        json_t *array = json_array();
        for (size_t f = 0; f <= GROUP_FIELDS; f++) {
            const char *field = group_field((enum grouping)by, f);
            char title[FIELD_CHARS];
            json_array_append_new(
                array, json_pack("[s, s]", field_title(field, title), field_unit(field)));
        }
        json_object_set_new(object, grouping_words[by].list, array);
    }
    return object;
}

/* NULL where a name is not UTF-8. `config` and `identity` are for put_earlier alone. */
static json_t *object_of(struct report *report, const struct stored_run *run,
                         const struct requests *requests, const struct course *course) {
    json_t *row = json_object(), *fields = json_object();
    struct err ignored = {0}; /* groups of a run that was recorded without them */
    run_fields_put(run, row);
    (void)run_fields_put_groups(requests, row, &ignored);
    json_t *identity = json_object_get(row, "identity");
    const char *text = json_string_value(json_object_get(row, "setup"));
    json_t *setup = text != NULL ? setup_of(report, text) : json_null();
    json_object_del(row, "setup");
    json_t *object = json_pack("{s:I, s:s}", "run", (json_int_t)run->run, "config", run->config);
    if (object != NULL) {
        const json_t *warnings = json_object_get(row, "warnings");
        const json_t *inputs = json_object_get(identity, "inputs");
        add_flat(fields, "", row);
        json_object_set(object, "fields", fields);
        json_object_set_new(object, "setup", setup);
        json_object_set_new(object, "warnings", places_of(report, warnings));
        json_object_set_new(object, "inputs", places_of(report, inputs));
        json_object_set_new(object, "distributions",
                            report_distributions(requests, report->n_runs));
        json_object_set_new(object, "course", report_course(course));
        json_object_set_new(object, "requests", report_requests(requests, report->n_runs));
        json_object_set_new(object, "groups", report_groups(row));
        json_object_set_new(object, "n_requests", json_integer((json_int_t)requests->n));
        put_earlier(report->runs, object, identity);
        json_object_set(object, "identity", identity);
    } else {
        json_decref(setup);
    }
    json_decref(fields);
    json_decref(row);
    return object;
}

/* A run that is damaged takes none of the others away. */
static int add_run(void *state, const struct stored_run *run, struct err *err) {
    struct report *report = state;
    struct requests requests = {0};
    struct course course;
    struct err damage = {0};
    json_t *object = NULL;
    (void)err;
    size_t n_bins = report_bins(report->n_runs);
    if (run->damage != NULL) {
        err_world(&damage, "%s", run->damage);
    } else if (store_check_rows(report->store, run->run, &damage) == 0 &&
               requests_load(report->store, run->run, &requests, &damage) == 0 &&
               course_load(report->store, run, &requests, n_bins, &course, &damage) == 0) {
        object = object_of(report, run, &requests, &course);
        if (object == NULL) {
            err_world(&damage, "its summary is no object, or a name is not UTF-8");
        }
    }
    requests_fini(&requests);
    json_array_append_new(object != NULL ? report->runs : report->damaged,
                          object != NULL ? object
                                         : json_pack("{s:I, s:s}", "run", (json_int_t)run->run,
                                                     "damage", damage.text));
    return 0;
}

/* ---- all runs ---- */

static int count_run(void *state, const struct stored_run *run, struct err *err) {
    (void)run, (void)err;
    ++*(size_t *)state;
    return 0;
}

static void name_policies(const json_t *runs) {
    json_t *rows = json_array();
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_array_append(rows, json_object_get(json_array_get(runs, i), "fields"));
    }
    run_fields_name_policies(rows);
    json_decref(rows);
}

/* Whether all runs have this value. */
static bool is_common(const json_t *runs, const char *key, const json_t *value) {
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *fields = json_object_get(json_array_get(runs, i), "fields");
        if (!json_equal(json_object_get(fields, key), value)) {
            return false;
        }
    }
    return true;
}

/* What all runs have alike is said once; of the rest each has its values in the order of `keys`. */
static void share_fields(const json_t *runs, json_t *data) {
    json_t *all = json_object(), *common = json_object(), *keys = json_array(),
           *names = json_object(), *value;
    const char *key;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_object_update_missing(all, json_object_get(json_array_get(runs, i), "fields"));
    }
    json_object_foreach(all, key, value) {
        char title[FIELD_CHARS];
        if (is_common(runs, key, value)) {
            json_object_set(common, key, value);
        } else {
            json_array_append_new(keys, json_string(key));
        }
        json_object_set_new(names, key,
                            json_pack("[s, s]", field_title(key, title), field_unit(key)));
    }
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i), *values = json_array();
        for (size_t k = 0; k < json_array_size(keys); k++) {
            value = json_object_get(json_object_get(run, "fields"),
                                    json_string_value(json_array_get(keys, k)));
            json_array_append(values, value != NULL ? value : json_null());
        }
        json_object_set_new(run, "values", values);
        json_object_del(run, "fields");
        json_object_del(run, "config");
        json_object_del(run, "identity");
    }
    json_object_set_new(data, "common", common);
    json_object_set_new(data, "keys", keys);
    json_object_set_new(data, "names", names);
    json_decref(all);
}

/* [name, title, unit] of each column that a page shows. */
static json_t *names_json(const struct column *columns) {
    json_t *array = json_array();
    for (const struct column *c = columns; c->name != NULL; c++) {
        char title[FIELD_CHARS];
        if (c->label != NULL) {
            json_array_append_new(
                array,
                json_pack("[s, s, s]", c->name, field_title(c->name, title), field_unit(c->name)));
        }
    }
    return array;
}

/* Half of a 95 % interval of n numbers is this times std / sqrt(n); Student's t. For
 * analysis/spread.h in the page's own words. */
static json_t *student_json(void) {
    json_t *array = json_pack("[n, n]");
    for (int n = 2; n <= MOST_SEEDS; n++) {
        json_array_append_new(array, report_number(gsl_cdf_tdist_Pinv(0.975, n - 1), 5));
    }
    return array;
}

/* The page up to "@DATA@", the data, and what follows; "<" would end their element. */
static void fill_page(const json_t *data, FILE *page, FILE *out) {
    static const char mark[] = "@DATA@";
    char line[4096];
    while (fgets(line, sizeof line, page) != NULL) {
        char *at = strstr(line, mark), *text = at != NULL ? summary_json_text(data, 0) : NULL;
        fprintf(out, "%.*s", at != NULL ? (int)(at - line) : (int)strlen(line), line);
        for (const char *c = text; c != NULL && *c != '\0'; c++) {
            fputs(*c == '<' ? "\\u003c" : (char[]){*c, '\0'}, out);
        }
        fputs(at != NULL ? at + strlen(mark) : "", out);
        free(text);
    }
}

static int write_page(const json_t *data, const char *path, struct err *err) {
    char shipped[PATH_CHARS];
    struct output out;
    FILE *page = fopen(data_path(shipped, sizeof shipped, "analysis/plot/report.html"), "r");
    if (page == NULL) {
        return err_world(err, "cannot read '%s': %s", shipped, strerror(errno));
    }
    int failed = output_open(path, &out, err);
    if (failed == 0) {
        fill_page(data, page, out.file);
        failed = output_close(&out, true, err);
    }
    fclose(page);
    return failed;
}

static int say_damaged(const struct report *report, struct err *err) {
    const json_t *first = json_array_get(report->damaged, 0);
    const char *damage = json_string_value(json_object_get(first, "damage"));
    return first == NULL
               ? 0
               : err_world(err,
                           "%zu runs of '%s' are damaged and left out; the first is run %lld: %s",
                           json_array_size(report->damaged), store_path(report->store),
                           (long long)json_integer_value(json_object_get(first, "run")),
                           damage != NULL ? damage : "");
}

int report_write(struct store *store, const char *path, struct err *err) {
    struct report report = {.store = store,
                            .runs = json_array(),
                            .damaged = json_array(),
                            .asked = json_object(),
                            .setups = json_object(),
                            .texts = json_array(),
                            .places = json_object()};
    int failed = output_may_replace(path, "<!DOCTYPE html>", "a page", err);
    failed = failed != 0 ? failed : store_list_samples(store, count_run, &report.n_runs, err);
    failed = failed != 0 ? failed : store_list_samples(store, add_run, &report, err);
    json_t *data =
        json_pack("{s:s, s:O, s:O, s:O, s:O}", "database", store_path(store), "runs", report.runs,
                  "damaged", report.damaged, "texts", report.texts, "asked", report.asked);
    json_object_set_new(data, "of_requests", names_json(request_columns));
    json_object_set_new(data, "of_course", names_json(course_columns));
    json_object_set_new(data, "of_groups", group_names());
    json_object_set_new(data, "student", student_json());
    if (failed == 0) {
        name_policies(report.runs);
        share_fields(report.runs, data);
        failed = write_page(data, path, err);
    }
    failed = failed != 0 ? failed : say_damaged(&report, err);
    json_decref(data);
    json_decref(report.runs);
    json_decref(report.damaged);
    json_decref(report.asked);
    json_decref(report.setups);
    json_decref(report.texts);
    json_decref(report.places);
    return failed;
}
