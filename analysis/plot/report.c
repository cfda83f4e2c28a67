#include "analysis/plot/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/identity.h"
#include "analysis/plot/course.h"
#include "analysis/summary_output.h"
#include "sim/base/output.h"
#include "sim/input/datadir.h"

enum { MOST_REQUESTS = 256 /* of a distribution */, PATH_CHARS = 4096 };

struct report {
    struct store *store;
    json_t *runs, *damaged;
};

/* At most MOST_REQUESTS of `n` numbers, ends included. */
static json_t *thin(const double *values, size_t n) {
    size_t n_kept = n < MOST_REQUESTS ? n : MOST_REQUESTS;
    json_t *array = json_array();
    for (size_t i = 0; i < n_kept; i++) {
        json_array_append_new(array,
                              json_real(values[n_kept > 1 ? i * (n - 1) / (n_kept - 1) : 0]));
    }
    return array;
}

static json_t *course_json(const struct course *course) {
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "latency_s",
        thin(course->latency_s.values, course->latency_s.n), "ttfb_s",
        thin(course->ttfb_s.values, course->ttfb_s.n), "time_s", thin(course->time_s, COURSE_BINS),
        "tokens_per_s", thin(course->tokens_per_s, COURSE_BINS), "running",
        thin(course->running, COURSE_BINS), "waiting", thin(course->waiting, COURSE_BINS));
}

/* Where an earlier run of the same configuration was made of other files or by another build, the
 * numbers of the two differ for that reason. */
static void put_earlier(const json_t *runs, const struct stored_run *run, json_t *object) {
    for (size_t i = json_array_size(runs); i-- > 0;) {
        const json_t *earlier = json_array_get(runs, i);
        if (strcmp(json_string_value(json_object_get(earlier, "config")), run->config) == 0) {
            struct identity_difference difference = identity_compare(
                json_object_get(json_object_get(earlier, "summary"), "identity"),
                json_object_get(json_object_get(object, "summary"), "identity"), true);
            json_object_set(object, "same_as", json_object_get(earlier, "run"));
            json_object_set_new(object, "changed", json_string(difference.text));
            return;
        }
    }
}

/* NULL where a name is not UTF-8. */
static json_t *object_of(const struct stored_run *run, const struct course *course) {
    json_t *summary = json_loads(run->summary, 0, NULL);
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "run",
                     (json_int_t)run->run, "system", run->system, "model", run->model, "gpu",
                     run->gpu, "backend", run->backend, "profile", run->profile, "profile_kind",
                     run->profile_kind, "trace", run->trace, "trace_provenance",
                     run->trace_provenance, "config", run->config, "summary", summary, "course",
                     course_json(course));
}

/* A run that is damaged takes none of the others away. */
static int add_run(void *state, const struct stored_run *run, struct err *err) {
    struct report *report = state;
    struct course course = {0};
    struct err damage = {0};
    json_t *object = NULL;
    (void)err;
    if (run->damage != NULL) {
        err_world(&damage, "%s", run->damage);
    } else if (store_check_rows(report->store, run->run, &damage) == 0 &&
               course_load(report->store, run, &course, &damage) == 0) {
        object = object_of(run, &course);
        course_fini(&course);
        if (object == NULL) {
            err_world(&damage, "its summary is no object, or a name is not UTF-8");
        }
    }
    if (object == NULL) {
        json_array_append_new(report->damaged, json_pack("{s:I, s:s}", "run", (json_int_t)run->run,
                                                         "damage", damage.text));
        return 0;
    }
    put_earlier(report->runs, run, object);
    json_array_append_new(report->runs, object);
    return 0;
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
    struct report report = {.store = store, .runs = json_array(), .damaged = json_array()};
    int failed = output_may_replace(path, "<!DOCTYPE html>", "a page", err);
    failed = failed != 0 ? failed : store_list_runs(store, add_run, &report, err);
    json_t *data = json_pack("{s:s, s:o, s:O}", "database", store_path(store), "runs", report.runs,
                             "damaged", report.damaged);
    failed = failed != 0 ? failed : write_page(data, path, err);
    failed = failed != 0 ? failed : say_damaged(&report, err);
    json_decref(data);
    json_decref(report.damaged);
    return failed;
}
