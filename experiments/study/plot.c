#include "experiments/study/plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/offered.h"
#include "analysis/plot/run_fields.h"
#include "analysis/spread.h"
#include "experiments/study/figure.h"
#include "experiments/study/plot_pairs.h"
#include "experiments/study/plot_query.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"

/* Which runs a plot is of, and what it has to say about them. */

/* Whether every run has a value of its own in the column: the seed, or its number. */
bool plot_is_single(const char *column) {
    return strcmp(column, "seed") == 0 || strcmp(column, "run") == 0;
}

bool plot_is_against(const struct plot_request *request) {
    return request->against.key[0] != '\0';
}

/* ---- which runs ---- */

/* One identity is one sample, whoever recorded it how often: a whole run before one that was cut
 * short, of those the longest. What was measured on a device again is another sample, and a double
 * is a copy of its row alone. */
static const char sample_sql[] =
    "SELECT *, row_number() OVER (PARTITION BY sample, tenant, priority ORDER BY incomplete IS NOT "
    "NULL, "
    "completed "
    "DESC, place) > 1 OR (incomplete IS NOT NULL AND has_whole) AS is_double FROM (SELECT *, rowid "
    "AS place, CASE WHEN identity_digest IS NULL THEN rowid WHEN device IS NULL OR incomplete IS "
    "NOT NULL THEN identity_digest ELSE coalesce(\"row\", rowid) END AS sample, max(incomplete IS "
    "NULL) OVER (PARTITION BY coalesce(identity_digest, rowid)) AS has_whole FROM run WHERE (%s))";

static bool names_seed(const struct plot_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        if (plot_is_single(list->column[i])) {
            return true;
        }
    }
    return false;
}

/* Makes of the table `run` the table `chosen`, by the request's condition: doubles of one identity
 * count once, and seeds that draw nothing are one run, unless seeds are what is shown. */
static int plot_choose(const struct plot_request *request, struct tables *tables, struct err *err) {
    char *query = NULL;
    size_t size;
    bool each = names_seed(&request->x) || names_seed(&request->by) || names_seed(&request->facets);
    char *condition = NULL;
    FILE *out = mem_stream(&condition, &size);
    plot_write_condition(out, request->where != NULL ? request->where : "1");
    mem_stream_close(out);
    out = mem_stream(&query, &size);
    fprintf(out, sample_sql, condition);
    mem_stream_close(out);
    free(condition);
    int status = tables_keep(tables, "sample", query, "--where", err);
    free(query);
    if (status != 0) {
        return status;
    }
    status = tables_keep(tables, "sorted",
                         "SELECT *, is_drawn = 0 AND device IS NULL AND row_number() OVER "
                         "(PARTITION BY setup ORDER BY seed, place) > 1 AS is_again FROM sample "
                         "WHERE NOT is_double",
                         "plot", err);
    query = NULL;
    out = mem_stream(&query, &size);
    fprintf(out,
            "SELECT *, dense_rank() OVER (PARTITION BY setup ORDER BY seed) - 1 AS seed_n FROM "
            "sorted WHERE %s ORDER BY place",
            each ? "1" : "is_again IS NOT 1");
    mem_stream_close(out);
    status = status != 0 ? status : tables_keep(tables, "chosen", query, "plot", err);
    free(query);
    return status;
}

/* ---- notes on samples ---- */

/* Whether runs of the table `shown` were offered another rate than they were asked for. */
static bool plot_misses_rates(struct tables *tables) {
    char query[256];
    snprintf(query, sizeof query,
             "SELECT 'yes' AS text FROM shown WHERE rate > 0 GROUP BY setup HAVING "
             "abs(mean(offered_rate_req_s) - min(rate)) > %g * min(rate) LIMIT 1",
             RATE_TOLERANCE);
    char *text = tables_text(tables, query);
    bool misses = text[0] != '\0';
    free(text);
    return misses;
}

bool plot_list_has(const struct plot_list *list, const char *column) {
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->column[i], column) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds what a query answers, where it answers. */
static void add_answer(FILE *out, struct tables *tables, const char *query) {
    char *text = tables_text(tables, query);
    if (text[0] != '\0') {
        fprintf(out, "%s%s", ftell(out) > 0 ? "; " : "", text);
    }
    free(text);
}

/* "generated arrivals, assumed lengths, calibrated confidences or assumed confidences": what runs
 * say of their requests, once, with each way in which their confidences came about. */
static void add_provenance(FILE *out, struct tables *tables) {
    add_answer(
        out, tables,
        "SELECT group_concat(body || coalesce(', ' || ends, ''), '; ') AS text FROM (SELECT "
        "body, group_concat(nullif(end, ''), ' or ') AS ends FROM (SELECT DISTINCT CASE WHEN "
        "at > 0 THEN substr(t, 1, at - 1) ELSE t END AS body, CASE WHEN at > 0 THEN "
        "substr(t, at + 2) ELSE '' END AS end FROM (SELECT t, CASE WHEN t LIKE "
        "'%, % confidences' THEN length(rtrim(substr(t, 1, length(t) - 12), "
        "'abcdefghijklmnopqrstuvwxyz')) - 1 ELSE 0 END AS at FROM (SELECT DISTINCT "
        "trace_provenance AS t FROM told))) GROUP BY body ORDER BY body)");
}

static void add_spread(FILE *out, const struct plot_request *request, struct tables *tables) {
    char note[SPREAD_NOTE_CHARS];
    char *most = tables_text(tables, "SELECT max(n) || '' AS text FROM (SELECT count(DISTINCT "
                                     "seed) AS n FROM shown GROUP BY setup)");
    size_t n = (size_t)atoi(most);
    free(most);
    if (plot_is_against(request)) {
        char name[AGAINST_NAME_CHARS];
        fprintf(out, "%sdifferences to %s, paired by seed%s", ftell(out) > 0 ? "; " : "",
                against_name(&request->against, request->against.value, name),
                n > 1 ? ": not distinguishable where the interval holds 0" : "");
    }
    if (request->kind == PLOT_FIELDS && n > 1) {
        add_answer(out, tables,
                   "SELECT 'not every point has as many seeds' AS text FROM (SELECT min(n) AS "
                   "least, max(n) AS most FROM (SELECT count(DISTINCT seed) AS n FROM shown GROUP "
                   "BY setup)) WHERE least < most");
        fprintf(out, "%spoints and error bars: %s", ftell(out) > 0 ? "; " : "",
                spread_note(n, note));
    } else if (request->kind != PLOT_OVER_TIME && n > 1) {
        fprintf(out, "%srequests of %zu seeds together", ftell(out) > 0 ? "; " : "", n);
    }
}

static void add_rates(FILE *out, const struct plot_request *request, struct tables *tables) {
    bool is_x = request->kind == PLOT_FIELDS && plot_list_has(&request->x, "rate");
    if ((is_x || plot_list_has(&request->by, "rate") || plot_list_has(&request->facets, "rate")) &&
        plot_misses_rates(tables)) {
        if (!is_x) {
            fprintf(out, "%srates are those asked for", ftell(out) > 0 ? "; " : "");
        }
        add_answer(out, tables,
                   "SELECT 'rates that were offered are up to ' || round(100 * max(abs("
                   "offered_rate_req_s / rate - 1)), 1) || ' % off those asked for' AS text FROM "
                   "shown WHERE rate > 0");
    }
}

/* Where prices and requests of the table `shown` come from, what its intervals are, which runs
 * count once, how far drawn decisions are off: one line, to be freed by the caller. */
static char *plot_note(const struct plot_request *request, struct tables *tables) {
    static const char *const of_all[] = {
        "SELECT n || ' of ' || n_all || ' runs saturated: latencies there say how long the run "
        "was' AS "
        "text FROM (SELECT count(*) AS n_all, sum(offered_state IS 'saturated') AS n FROM told) "
        "WHERE n > 0",
        "SELECT 'of ' || n || ' of ' || n_all || ' runs it cannot be told whether they are "
        "saturated' "
        "AS text "
        "FROM (SELECT count(*) AS n_all, sum(offered_state IS 'cannot tell' OR offered_state IS "
        "'unknown') AS n FROM told) WHERE n > 0",
        "SELECT n || ' of ' || n_all || ' runs rejected requests' AS text FROM (SELECT count(*) AS "
        "n_all, sum(rejected > 0) AS n FROM told) WHERE n > 0",
        "SELECT n || ' runs are on record more than once and count once' AS text FROM (SELECT "
        "count(*) AS n FROM sample WHERE is_double) WHERE n > 0",
        "SELECT 'seeds that draw nothing are one run, without an interval' AS text FROM sorted "
        "WHERE "
        "is_again AND place NOT IN (SELECT place FROM chosen) LIMIT 1",
        "SELECT 'decisions are drawn, error ' || group_concat(e, ' or ') AS text FROM (SELECT "
        "DISTINCT decisions_error AS e FROM told WHERE decisions_error IS NOT NULL)"};
    char *note = NULL;
    size_t size;
    FILE *out = mem_stream(&note, &size);
    add_answer(
        out, tables,
        "SELECT 'profile ' || group_concat(p, ', ') AS text FROM (SELECT DISTINCT gpu || ': ' "
        "|| profile_kind AS p FROM told)");
    add_provenance(out, tables);
    add_spread(out, request, tables);
    add_rates(out, request, tables);
    for (size_t i = 0; i < sizeof of_all / sizeof of_all[0]; i++) {
        add_answer(out, tables, of_all[i]);
    }
    mem_stream_close(out);
    return note;
}

/* Requests, or values of a distribution, of one run at least and at most, and of all. */
enum { LEAST_REQUESTS = 50, MOST_REQUESTS = 1000, ALL_REQUESTS = 100000 };

int plot_list_read(const char *text, const char *option, struct plot_list *out, struct err *err) {
    const char *word;
    size_t length;
    *out = (struct plot_list){.n = 0};
    for (const char *rest = text; text != NULL && name_next(&rest, ",", &word, &length);) {
        if (length == 0 || length >= sizeof out->column[0] || out->n == PLOT_MOST_FIELDS) {
            return err_usage(err, "%s: '%s' is not a list of at most %d fields", option, text,
                             PLOT_MOST_FIELDS);
        }
        char name[FIELD_CHARS], column[FIELD_CHARS];
        snprintf(name, sizeof name, "%.*s", (int)length, word);
        snprintf(out->name[out->n], sizeof out->name[0], "%.*s", (int)length, word);
        snprintf(out->column[out->n++], sizeof out->column[0], "%s", field_column(name, column));
    }
    return 0;
}

/* ---- tables ---- */

static bool is_database(const char *path) {
    char head[16] = "";
    FILE *file = strcmp(path, "-") != 0 ? fopen(path, "rb") : NULL;
    size_t n = file != NULL ? fread(head, 1, sizeof head, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    return n == sizeof head && memcmp(head, "SQLite format 3", sizeof head) == 0;
}

/* Whether SQL names the column, as a word of its own outside of texts. */
static bool sql_names(const char *sql, const char *column) {
    static const char of_words[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    for (size_t length; sql != NULL && *sql != '\0'; sql += length) {
        length = strspn(sql, of_words);
        if (length == strlen(column) && strncmp(sql, column, length) == 0) {
            return true;
        }
        if (*sql == '\'') {
            length = 1 + strcspn(sql + 1, "'");
            length += sql[length] == '\'';
        } else if (length == 0) {
            length = 1;
        }
    }
    return false;
}

static bool names_group(const struct plot_request *request, const char *field) {
    return plot_list_has(&request->by, field) || plot_list_has(&request->facets, field) ||
           (request->kind == PLOT_FIELDS && plot_list_has(&request->x, field)) ||
           sql_names(request->where, field);
}

/* By what runs are told apart; GROUPING_COUNT: by nothing. Shares of service are of tenants where
 * nothing else is named. */
enum grouping plot_told_by(const struct plot_request *request) {
    for (int by = 0; by < GROUPING_COUNT; by++) {
        if (names_group(request, grouping_words[by].field)) {
            return (enum grouping)by;
        }
    }
    return request->kind == PLOT_FIELDS && (plot_list_has(&request->y, "service_share") ||
                                            plot_list_has(&request->y, "service_tokens"))
               ? BY_TENANT
               : GROUPING_COUNT;
}

static const char *told_field(const struct plot_request *request) {
    const enum grouping by = plot_told_by(request);
    return by < GROUPING_COUNT ? grouping_words[by].field : "";
}

/* Requests are not told apart by two fields at once. */
static int check_groups(const struct plot_request *request, struct err *err) {
    const char *first = told_field(request);
    for (int by = 0; first[0] != '\0' && by < GROUPING_COUNT; by++) {
        const char *field = grouping_words[by].field;
        if (strcmp(field, first) != 0 && names_group(request, field)) {
            return err_usage(err, "runs are told apart by '%s' or by '%s', not by both at once",
                             first, field);
        }
    }
    return first[0] != '\0' && request->kind == PLOT_OVER_TIME
               ? err_usage(err, "the course of a run is not told apart by %s", first)
               : 0;
}

/* Appends what a job finds in a file; `field` and `most` are keys of the job `requests`, `groups`
 * of all of them. */
static int read_file(const struct job *job, const char *path, const char *field, size_t most,
                     const char *groups, json_t *rows, struct err *err) {
    void *state = NULL;
    char number[32];
    snprintf(number, sizeof number, "%zu", most);
    json_t *args = json_pack("{s:s, s:s, s:s, s:s}", "file", path, "field", field, "most", number,
                             "groups", groups);
    json_t *row = json_pack("{s:s}", "file", path);
    int status = args == NULL || row == NULL ? err_usage(err, "the name of a file is not UTF-8")
                                             : job->fill(&state, args, row, rows, err);
    json_decref(args);
    json_decref(row);
    return status;
}

/* Columns that queries below name, of runs that lack them. */
static void put_absent(json_t *row) {
    static const char *const names[] = {"identity_digest",
                                        "device",
                                        "incomplete",
                                        "completed",
                                        "is_drawn",
                                        "row",
                                        "offered_rate_req_s",
                                        "rate",
                                        "requests",
                                        "offered_state",
                                        "rejected",
                                        "decisions_error",
                                        "gpu",
                                        "profile_kind",
                                        "trace_provenance",
                                        "seed",
                                        "tenant",
                                        "priority",
                                        "setup"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (json_object_get(row, names[i]) == NULL) {
            json_object_set_new(row, names[i], json_null());
        }
    }
}

static int add_runs(const struct plot_request *request, struct tables *tables, size_t *n,
                    struct err *err) {
    json_t *rows = json_array();
    int status = 0;
    for (size_t f = 0; status == 0 && f < request->n_files; f++) {
        const char *path = request->files[f];
        bool is_db = is_database(path);
        if (!is_db && request->kind != PLOT_FIELDS) {
            status = err_usage(err,
                               "'%s' is no database: single requests and the course of time are "
                               "recorded by `run --db` and `sweep --db`",
                               path);
            break;
        }
        status = read_file(is_db ? &job_recorded : &job_json, path, "", 0, told_field(request),
                           rows, err);
    }
    if (plot_told_by(request) < GROUPING_COUNT) {
        json_t *groups = run_fields_by_group(rows, plot_told_by(request));
        json_decref(rows);
        rows = groups;
    }
    *n = json_array_size(rows);
    run_fields_name_policies(rows);
    for (size_t i = 0; i < *n; i++) {
        put_absent(json_array_get(rows, i));
    }
    status = status != 0 ? status : tables_add(tables, "run", rows, err);
    json_decref(rows);
    return status;
}

/* What a job finds in all files: the table of its name, of_FIELD of a distribution. */
static int add_parts(const struct plot_request *request, const struct job *job, const char *field,
                     size_t n_runs, struct tables *tables, struct err *err) {
    char name[160];
    json_t *rows = json_array();
    size_t most = ALL_REQUESTS / n_runs;
    most = most > MOST_REQUESTS ? MOST_REQUESTS : most < LEAST_REQUESTS ? LEAST_REQUESTS : most;
    int status = 0;
    for (size_t f = 0; status == 0 && f < request->n_files; f++) {
        status = read_file(job, request->files[f], field, most, told_field(request), rows, err);
    }
    snprintf(name, sizeof name, "%s%s", field[0] != '\0' ? "of_" : job->name, field);
    status = status != 0 ? status : tables_add(tables, name, rows, err);
    json_decref(rows);
    return status;
}

int plot_fill(const struct plot_request *request, struct tables *tables, struct err *err) {
    size_t n_runs = 0;
    int status = check_groups(request, err);
    status = status != 0 ? status : add_runs(request, tables, &n_runs, err);
    if (status != 0) {
        return status;
    }
    if (n_runs == 0) {
        return err_usage(err, "there is no run in '%s'", request->files[0]);
    }
    status = plot_choose(request, tables, err);
    if (status == 0 && request->kind == PLOT_OVER_TIME) {
        status = add_parts(request, &job_course, "", n_runs, tables, err);
    }
    if (status == 0 && request->kind == PLOT_REQUESTS) {
        status = add_parts(request, &job_requests, "", n_runs, tables, err);
    }
    for (size_t i = 0; status == 0 && request->kind == PLOT_CDF && i < request->y.n; i++) {
        status = add_parts(request, &job_requests, request->y.column[i], n_runs, tables, err);
    }
    return status;
}

/* ---- fields ---- */

/* One row of a table, whose keys are its columns; NULL where it has none. */
static json_t *first_row(struct tables *tables, const char *table) {
    char query[256];
    snprintf(query, sizeof query, "SELECT * FROM \"%s\" LIMIT 1", table);
    json_t *rows = tables_own(tables, query);
    json_t *row = json_incref(json_array_get(rows, 0));
    json_decref(rows);
    return row;
}

/* Whether a column is one of those that a part of its name may mean: its end, "p99", or its
 * beginning, "latency". */
static bool is_meant(const char *column, const char *name, bool by_end) {
    char part[FIELD_CHARS + 1], spelled[FIELD_CHARS];
    snprintf(part, sizeof part, by_end ? ".%s" : "%s_", name);
    return by_end ? name_ends(field_spelled(column, spelled), part)
                  : strncmp(column, part, strlen(part)) == 0;
}

/* What was meant by `name`: each field that ends so, else each that begins so, else the nearest. */
static const char *field_hint(const char *name, const char *column, const char *const *columns,
                              char text[FIELD_CHARS]) {
    char spelled[FIELD_CHARS];
    size_t used = 0;
    text[0] = '\0';
    for (int by_end = 1; by_end >= 0 && used == 0; by_end--) {
        for (size_t i = 0; columns[i] != NULL && used < FIELD_CHARS / 2; i++) {
            if (is_meant(columns[i], by_end ? name : column, by_end)) {
                int n = snprintf(text + used, FIELD_CHARS - used, "%s'%.60s'",
                                 used == 0 ? "; did you mean " : ", ",
                                 field_spelled(columns[i], spelled));
                used += n > 0 ? (size_t)n : 0;
            }
        }
    }
    const char *near = used == 0 ? name_nearest(column, columns) : NULL;
    if (near != NULL) {
        snprintf(text, FIELD_CHARS, "; did you mean '%.200s'?", field_spelled(near, spelled));
    } else if (used > 0 && used + 1 < FIELD_CHARS) {
        snprintf(text + used, FIELD_CHARS - used, "?");
    }
    return text;
}

static int check_list(const struct plot_list *list, const json_t *row, const char *of,
                      struct err *err) {
    size_t n = 0;
    const char *key;
    json_t *value;
    char hint[FIELD_CHARS];
    const char **names = mem_zeroed(json_object_size(row) + 1, sizeof *names);
    json_object_foreach((json_t *)(uintptr_t)row, key, value) {
        names[n++] = key;
    }
    for (size_t i = 0; i < list->n && err->kind == ERR_NONE; i++) {
        if (name_find(names, list->column[i]) < 0) {
            err_usage(err, "%s has no field '%s'%s", of, list->name[i],
                      field_hint(list->name[i], list->column[i], names, hint));
        }
    }
    free(names);
    return (int)err->kind;
}

static int check_bounds(const struct plot_request *request, const json_t *run, struct err *err) {
    bool has_field = false, has_bound = false;
    for (size_t i = 0; i < request->y.n; i++) {
        const char *bound = plot_bound_of(request->y.column[i]);
        has_field = has_field || bound != NULL;
        has_bound = has_bound || (bound != NULL && json_object_get(run, bound) != NULL);
    }
    return has_bound    ? 0
           : !has_field ? err_usage(err, "--bound: throughput_tok_s, latency_s.mean and "
                                         "latency_s.p99 have bounds, and -y names none of them")
                        : err_usage(err, "--bound: these runs have none on record: `unmask sweep "
                                         "--bound` records it");
}

static int check_fields(const struct plot_request *request, struct tables *tables,
                        struct err *err) {
    json_t *run = first_row(tables, "chosen"), *part = NULL;
    if (tables_failed(tables, err) != 0) {
        return (int)err->kind;
    }
    if (run == NULL) {
        return err_usage(err, "--where: no run is so that %s", request->where);
    }
    int status = check_list(&request->by, run, "a run", err);
    status = status != 0 ? status : check_list(&request->facets, run, "a run", err);
    if (status == 0 && plot_is_against(request)) {
        struct plot_list key;
        status = plot_list_read(request->against.key, "--against", &key, err);
        status = status != 0 ? status : check_list(&key, run, "a run", err);
    }
    if (status == 0 && request->with_bounds) {
        status = check_bounds(request, run, err);
    }
    if (request->kind == PLOT_FIELDS) {
        status = status != 0 ? status : check_list(&request->x, run, "a run", err);
        status = status != 0 ? status : check_list(&request->y, run, "a run", err);
    } else if (request->kind == PLOT_OVER_TIME) {
        part = first_row(tables, "course");
        status = status != 0 ? status : check_list(&request->y, part, "the course of a run", err);
    } else if (request->kind == PLOT_REQUESTS) {
        part = first_row(tables, "requests");
        status = status != 0 ? status : check_list(&request->x, part, "a request", err);
        status = status != 0 ? status : check_list(&request->y, part, "a request", err);
    }
    json_decref(part);
    json_decref(run);
    return status;
}

/* ---- tables of the query ---- */

static int keep(struct tables *tables, const char *name,
                void (*write)(FILE *out, const struct plot_request *request),
                const struct plot_request *request, struct err *err) {
    char *query = NULL;
    size_t size;
    FILE *out = mem_stream(&query, &size);
    write(out, request);
    mem_stream_close(out);
    int status = tables_keep(tables, name, query, "plot", err);
    free(query);
    return status;
}

/* ---- what cannot be drawn ---- */

/* The name of the first line in which two setups differ. */
static void find_difference(const char *a, const char *b, char *out, size_t size) {
    size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
    while (a[n] != '\0' && b[m] != '\0' && n == m && strncmp(a, b, n) == 0) {
        a += n + 1;
        b += m + 1;
        n = strcspn(a, "\n");
        m = strcspn(b, "\n");
    }
    const char *equals = strstr(a, " = ");
    snprintf(out, size, "%.*s", equals != NULL ? (int)(equals - a) : 3, equals != NULL ? a : "run");
}

static int check_any(const struct plot_request *request, struct tables *tables, struct err *err) {
    char *any = tables_text(tables, "SELECT 'yes' AS text FROM points WHERE y IS NOT NULL LIMIT 1");
    if (tables_failed(tables, err) == 0 && any[0] == '\0') {
        err_usage(err, request->kind == PLOT_OVER_TIME
                           ? "no run has steps on record (`run --db FILE --levels steps`)"
                           : "no run has a number in all of these fields");
    }
    free(any);
    return (int)err->kind;
}

static int check_mixed(const struct plot_request *request, struct tables *tables, struct err *err) {
    bool shares = request->kind == PLOT_FIELDS; /* a place; else a whole curve */
    json_t *rows = NULL;
    char query[512], key[128] = "run";
    if (request->kind == PLOT_REQUESTS ||
        (shares && request->look != NULL && strcmp(request->look, "points") == 0)) {
        return 0;
    }
    snprintf(query, sizeof query,
             "SELECT panel, series, min(setup) AS one, max(setup) AS other FROM points GROUP BY "
             "panel, series%s HAVING one <> other ORDER BY min(place) LIMIT 1",
             shares ? ", x" : "");
    if (tables_select(tables, query, "plot", &rows, err) != 0) {
        return (int)err->kind;
    }
    const json_t *row = json_array_get(rows, 0);
    if (row != NULL) {
        const char *series = json_string_value(json_object_get(row, "series"));
        if (request->kind != PLOT_OVER_TIME) {
            find_difference(json_string_value(json_object_get(row, "one")),
                            json_string_value(json_object_get(row, "other")), key, sizeof key);
        }
        err_usage(err,
                  "runs that differ in '%s' would be one %s%s%s%s: give --by %s, --facet %s or "
                  "--where",
                  key, shares ? "point" : "curve",
                  series != NULL && series[0] != '\0' ? " of '" : "", series != NULL ? series : "",
                  series != NULL && series[0] != '\0' ? "'" : "", key, key);
    }
    json_decref(rows);
    return (int)err->kind;
}

/* ---- the study ---- */

static void put(struct config *config, const char *key, const char *value) {
    config->entries = mem_resized(config->entries, config->n_entries + 1, sizeof *config->entries);
    config->entries[config->n_entries++] = (struct config_entry){
        .section = mem_text("figure"), .key = mem_text(key), .value = mem_text(value)};
}

static void put_note(const struct plot_request *request, struct tables *tables,
                     struct config *config) {
    char *note = plot_note(request, tables);
    put(config, "note", note);
    free(note);
}

static void put_labels(const struct plot_request *request, struct tables *tables,
                       struct config *config) {
    char label[FIELD_CHARS], title[8 * FIELD_CHARS];
    size_t used = 0;
    for (size_t i = 0; i < request->y.n && used < sizeof title; i++) {
        used += (size_t)snprintf(title + used, sizeof title - used, "%s%s", i > 0 ? ", " : "",
                                 field_title(request->y.column[i], label));
    }
    if (request->kind == PLOT_CDF) {
        put(config, "x_label",
            request->y.n == 1 ? plot_axis_label(request->y.column[0], label) : "");
        put(config, "y_label", "requests (%)");
        put(config, "y_min", "0");
        put(config, "y_max", "100");
        snprintf(title + used, sizeof title - used, " of requests");
    } else {
        const char *x = request->kind == PLOT_OVER_TIME ? "time_s" : request->x.column[0];
        bool is_offered = strcmp(x, "rate") == 0 && plot_misses_rates(tables);
        put(config, "x_label",
            request->x_label != NULL
                ? request->x_label
                : plot_axis_label(is_offered ? "offered_rate_req_s" : x, label));
        if (request->y.n == 1) {
            char of_y[2 * FIELD_CHARS];
            snprintf(of_y, sizeof of_y, "%s%s", plot_is_against(request) ? "difference of " : "",
                     plot_axis_label(request->y.column[0], label));
            put(config, "y_label", request->y_label != NULL ? request->y_label : of_y);
        }
        used +=
            (size_t)snprintf(title + used, sizeof title - used, " over %s", field_title(x, label));
        if (plot_is_against(request) && used < sizeof title) {
            char name[AGAINST_NAME_CHARS];
            snprintf(title + used, sizeof title - used, ", compared with %s",
                     against_name(&request->against, request->against.value, name));
        }
    }
    put(config, "title", request->title != NULL ? request->title : title);
}

static bool is_over_words(struct tables *tables) {
    char *text = tables_text(tables, "SELECT 'yes' AS text FROM points WHERE typeof(x) = 'text'");
    bool is = text[0] != '\0';
    free(text);
    return is;
}

/* How many panels stand side by side. */
static void put_columns(struct tables *tables, struct config *config) {
    char *text = tables_text(
        tables, "SELECT CASE WHEN n < 4 THEN n WHEN n = 4 THEN 2 ELSE 3 END || '' AS text "
                "FROM (SELECT count(DISTINCT panel) AS n FROM points)");
    put(config, "columns", text);
    free(text);
}

static void put_query(const struct plot_request *request, struct tables *tables, bool bars,
                      struct config *config) {
    char *query = NULL;
    size_t size;
    FILE *out = mem_stream(&query, &size);
    fputs("SELECT panel, ", out);
    plot_write_names(out, request, tables, false);
    fputs(" AS series, x, y, low, high, style FROM points ORDER BY min(place) OVER (PARTITION BY "
          "panel), field, ",
          out);
    plot_write_names(out, request, tables, true);
    fputs(bars ? ", place, style"
               : ", min(place) OVER (PARTITION BY panel, points.series), style = 'dashed', x, y",
          out);
    mem_stream_close(out);
    put(config, "query", query);
    free(query);
}

static void put_figure(const struct plot_request *request, struct tables *tables,
                       struct config *config) {
    bool bars =
        request->kind == PLOT_FIELDS &&
        (request->look != NULL ? strcmp(request->look, "bars") == 0 : is_over_words(tables));
    put(config, "kind", bars ? "bars" : "lines");
    put(config, "values", bars ? "on" : "off");
    put(config, "log_x", request->log_x ? "on" : "off");
    put(config, "log_y", request->log_y ? "on" : "off");
    put_labels(request, tables, config);
    put_columns(tables, config);
    put_note(request, tables, config);
    if (request->inches != NULL) {
        put(config, "inches", request->inches);
    }
    if (request->font != NULL) {
        put(config, "font", request->font);
    }
    put_query(request, tables, bars, config);
}

/* What is told of runs is told of each once, whose groups may be shown. */
static const char told_sql[] =
    "SELECT *, max(rejected) AS most_rejected FROM shown GROUP BY file, run ORDER BY place";

int plot_ask(struct plot_request *request, struct tables *tables, struct study *out,
             struct err *err) {
    *out = (struct study){.name = "plot", .n_configs = 1};
    out->configs[0].path = mem_text("plot");
    int status = check_fields(request, tables, err);
    status = status != 0 ? status : keep(tables, "shown", plot_write_runs, request, err);
    if (status == 0 && plot_is_against(request)) {
        status = plot_pair(request, tables, err);
    }
    status = status != 0 ? status : tables_keep(tables, "told", told_sql, "plot", err);
    status = status != 0 ? status : keep(tables, "points", plot_write_points, request, err);
    status = status != 0 ? status : check_any(request, tables, err);
    status = status != 0 ? status : check_mixed(request, tables, err);
    status = status != 0 ? status : plot_check_names(request, tables, err);
    if (status != 0) {
        return status;
    }
    put_figure(request, tables, &out->configs[0]);
    out->note = request->note;
    status = tables_failed(tables, err);
    return status != 0 ? status : study_ask(out, tables, err);
}
