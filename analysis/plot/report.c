#include "analysis/plot/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/caution.h"
#include "analysis/identity.h"
#include "analysis/output.h"
#include "analysis/plot/course.h"
#include "analysis/plot/plot.h"
#include "sim/base/num.h"

enum { CDF_POINTS = 256, PATH_BYTES = 4096, BACKEND_CHARS = 512 };

struct report {
    struct store *store;
    FILE *out;
    char folder[1024];   /* for gnuplot's files */
    struct shown *shown; /* the runs whose sections are written */
    size_t n_shown, room_shown;
};

struct shown {
    int64_t run;
    char *config;
    json_t *identity;
};

static void cell(FILE *out, const char *text) {
    fputs("<td>", out);
    output_xml_text(out, text);
    fputs("</td>", out);
}

static void number_cell(FILE *out, const json_t *value) {
    if (json_is_integer(value)) {
        fprintf(out, "<td class=n>%lld</td>", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        fprintf(out, "<td class=n>%.5g</td>", json_real_value(value));
    } else {
        fputs("<td class=n>&ndash;</td>", out);
    }
}

static int load_summary(const struct report *report, const struct stored_run *run, json_t **out,
                        struct err *err) {
    json_error_t error;
    *out = json_loads(run->summary, 0, &error);
    if (*out == NULL) {
        return err_world(err, "cannot read run %lld of '%s': its summary is damaged (%s)",
                         (long long)run->run, store_path(report->store), error.text);
    }
    return 0;
}

static bool is_incomplete(const json_t *summary) {
    return json_is_string(json_object_get(summary, "incomplete"));
}

/* What executed the run: "sim", or "cuda on NVIDIA H200, clock real". */
static void describe_backend(const struct stored_run *run, const json_t *summary, char *out,
                             size_t size) {
    const char *device = json_string_value(json_object_get(summary, "device"));
    const char *clock = json_string_value(json_object_get(summary, "clock"));
    bool is_emulated = json_is_true(json_object_get(summary, "emulated"));
    snprintf(out, size, "%s%s%s%s%s", run->backend,
             device == NULL ? ""
             : is_emulated  ? ", emulated on "
                            : " on ",
             device != NULL ? device : "", clock != NULL ? ", clock " : "",
             clock != NULL ? clock : "");
}

static int table_row(void *state, const struct stored_run *run, struct err *err) {
    struct report *report = state;
    json_t *summary;
    int failed = load_summary(report, run, &summary, err);
    if (failed != 0) {
        return failed;
    }
    FILE *out = report->out;
    fprintf(out, "<tr><td class=n><a href=\"#run%lld\">%lld</a></td>", (long long)run->run,
            (long long)run->run);
    cell(out, run->system);
    cell(out, run->model);
    cell(out, run->gpu);
    char backend[BACKEND_CHARS];
    describe_backend(run, summary, backend, sizeof backend);
    cell(out, backend);
    fputs("<td>", out);
    output_xml_text(out, run->profile);
    fputs(": <b>", out);
    output_xml_text(out, run->profile_kind);
    fputs("</b></td>", out);
    fputs("<td>", out);
    output_xml_text(out, run->trace);
    if (run->trace_provenance[0] != '\0') {
        fputs(": ", out);
        output_xml_text(out, run->trace_provenance);
    }
    fputs("</td>", out);
    const json_t *latency = json_object_get(summary, "latency_s");
    if (is_incomplete(summary)) {
        cell(out, "incomplete");
    } else {
        number_cell(out, json_object_get(summary, "completed"));
    }
    number_cell(out, json_object_get(summary, "rejected"));
    number_cell(out, json_object_get(summary, "throughput_tok_s"));
    number_cell(out, json_object_get(latency, "mean"));
    number_cell(out, json_object_get(latency, "p50"));
    number_cell(out, json_object_get(latency, "p99"));
    char codes[WARNING_CODES_CHARS];
    struct warnings warnings = caution_read(summary);
    cell(out, caution_codes(&warnings, codes, sizeof codes));
    fputs("</tr>\n", out);
    json_decref(summary);
    return 0;
}

/* Nested objects become rows "key.member". */
static void summary_rows(FILE *out, const char *prefix, json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        if (json_is_object(value)) {
            summary_rows(out, name, value);
            continue;
        }
        if (json_is_array(value)) {
            continue; /* the warnings, which stand above */
        }
        fputs("<tr>", out);
        cell(out, name);
        if (json_is_string(value)) {
            cell(out, json_string_value(value));
        } else {
            number_cell(out, value);
        }
        fputs("</tr>\n", out);
    }
}

static void warning_list(FILE *out, const json_t *summary) {
    struct warnings warnings = caution_read(summary);
    if (warnings.n == 0) {
        return;
    }
    fputs("<ul>", out);
    for (unsigned i = 0; i < warnings.n; i++) {
        fprintf(out, "<li><b>%s:</b> ", warning_words[warnings.items[i].code]);
        output_xml_text(out, warnings.items[i].text);
        fputs("</li>", out);
    }
    fputs("</ul>\n", out);
}

/* At most CDF_POINTS of the sorted values with their shares, ends included. */
static size_t thin_cdf(const struct series *sorted, double *x, double *y) {
    size_t n = sorted->n < CDF_POINTS ? sorted->n : CDF_POINTS;
    for (size_t i = 0; i < n; i++) {
        size_t at = n > 1 ? i * (sorted->n - 1) / (n - 1) : 0;
        x[i] = sorted->values[at];
        y[i] = (double)(at + 1) / (double)sorted->n;
    }
    return n;
}

/* The SVG element of a file, without the XML prologue that HTML does not take. */
static int copy_svg(FILE *out, const char *path, struct err *err) {
    FILE *in = fopen(path, "r");
    if (in == NULL) {
        return err_world(err, "cannot read '%s': %s", path, strerror(errno));
    }
    char line[8192];
    bool inside = false;
    while (fgets(line, sizeof line, in) != NULL) {
        char *start = inside ? line : strstr(line, "<svg");
        if (start != NULL) {
            inside = true;
            fputs(start, out);
        }
    }
    int read_error = ferror(in);
    fclose(in);
    return read_error || !inside ? err_world(err, "'%s' holds no SVG", path) : 0;
}

static int draw_course(struct report *report, const struct stored_run *run, const char *backend,
                       const struct course *course, struct err *err) {
    double latency_x[CDF_POINTS], latency_y[CDF_POINTS], ttfb_x[CDF_POINTS], ttfb_y[CDF_POINTS];
    struct plot_series cdf[] = {
        {.name = "latency", .x = latency_x, .y = latency_y, .style = STYLE_LINE},
        {.name = "time to first block", .x = ttfb_x, .y = ttfb_y, .style = STYLE_LINE},
    };
    cdf[0].n = thin_cdf(&course->latency_s, latency_x, latency_y);
    cdf[1].n = thin_cdf(&course->ttfb_s, ttfb_x, ttfb_y);
    const struct plot_series tokens[] = {{.name = "committed tokens",
                                          .x = course->time_s,
                                          .y = course->tokens_per_s,
                                          .n = COURSE_BINS,
                                          .style = STYLE_STEPS}};
    const struct plot_series counts[] = {
        {.name = "running",
         .x = course->time_s,
         .y = course->running,
         .n = COURSE_BINS,
         .style = STYLE_STEPS},
        {.name = "waiting",
         .x = course->time_s,
         .y = course->waiting,
         .n = COURSE_BINS,
         .style = STYLE_STEPS},
    };
    const struct panel panels[] = {
        {.title = "Latency",
         .x_label = "Latency (s)",
         .y_label = "Share of requests",
         .series = cdf,
         .n_series = 2,
         .y_max = 1.02},
        {.title = "Throughput",
         .x_label = "Time (s)",
         .y_label = "Tokens per second",
         .series = tokens,
         .n_series = 1},
        {.title = "Requests",
         .x_label = "Time (s)",
         .y_label = "Requests",
         .series = counts,
         .n_series = 2},
    };
    char title[256], note[512 + BACKEND_CHARS], stem[PATH_BYTES], svg[PATH_BYTES + 8];
    snprintf(title, sizeof title, "Run %lld: %s on %s", (long long)run->run, run->system, run->gpu);
    snprintf(note, sizeof note, "executed by %s; profile %s: %s; trace %s%s%s", backend,
             run->profile, run->profile_kind, run->trace,
             run->trace_provenance[0] != '\0' ? ": " : "", run->trace_provenance);
    const struct figure figure = {
        .title = title, .provenance = note, .panels = panels, .n_panels = 3, .panel_width = 400};
    snprintf(stem, sizeof stem, "%s/course", report->folder);
    snprintf(svg, sizeof svg, "%s.svg", stem);
    int failed = figure_write(&figure, stem, FIGURE_SVG, err);
    if (failed == 0) {
        failed = copy_svg(report->out, svg, err);
    }
    unlink(svg);
    return failed;
}

static void show(struct report *report, const struct stored_run *run, json_t *identity) {
    if (report->n_shown == report->room_shown) {
        report->room_shown = 2 * report->room_shown + 64;
        report->shown = realloc(report->shown, report->room_shown * sizeof *report->shown);
        ASSERT(report->shown != NULL);
    }
    struct shown *shown = &report->shown[report->n_shown++];
    *shown = (struct shown){run->run, strdup(run->config), json_incref(identity)};
    ASSERT(shown->config != NULL);
}

/* Who ran it on what files, and where an earlier run of the same configuration was made of other
 * ones: their numbers differ for that reason. */
static void identity_section(struct report *report, const struct stored_run *run,
                             const json_t *summary) {
    FILE *out = report->out;
    json_t *identity = json_object_get(summary, "identity"), *input;
    size_t i, before = report->n_shown;
    char text[256];
    identity_describe(identity, text, sizeof text);
    fputs("<p>Identity: ", out);
    output_xml_text(out, identity != NULL ? text : "not known, an older unmask recorded it");
    fputs("</p>\n", out);
    while (before > 0 && strcmp(report->shown[before - 1].config, run->config) != 0) {
        before--;
    }
    const struct shown *same = before > 0 ? &report->shown[before - 1] : NULL;
    if (same != NULL) {
        struct identity_difference difference = identity_compare(same->identity, identity, true);
        fprintf(out, "<p><b>The configuration is that of run %lld</b>", (long long)same->run);
        if (difference.text[0] != '\0') {
            fputs(", but: ", out);
            output_xml_text(out, difference.text);
        }
        fputs("</p>\n", out);
    }
    fputs("<details><summary>Files read</summary><table>\n", out);
    json_array_foreach(json_object_get(identity, "inputs"), i, input) {
        fputs("<tr>", out);
        cell(out, json_string_value(json_object_get(input, "role")));
        cell(out, json_string_value(json_object_get(input, "path")));
        const char *sha256 = json_string_value(json_object_get(input, "sha256"));
        cell(out, sha256 != NULL ? sha256 : "not known");
        fputs("</tr>\n", out);
    }
    fputs("</table></details>\n", out);
    show(report, run, identity);
}

static int run_section(void *state, const struct stored_run *run, struct err *err) {
    struct report *report = state;
    FILE *out = report->out;
    json_t *summary;
    int failed = load_summary(report, run, &summary, err);
    if (failed != 0) {
        return failed;
    }
    fprintf(out, "<h2 id=\"run%lld\">Run %lld: ", (long long)run->run, (long long)run->run);
    output_xml_text(out, run->system);
    fputs(", ", out);
    output_xml_text(out, run->model);
    fputs(" on ", out);
    output_xml_text(out, run->gpu);
    char backend[BACKEND_CHARS];
    describe_backend(run, summary, backend, sizeof backend);
    fputs(" (", out);
    output_xml_text(out, backend);
    fputs(")</h2>\n", out);
    if (is_incomplete(summary)) {
        fputs("<p><b>Incomplete:</b> ", out);
        output_xml_text(out, json_string_value(json_object_get(summary, "incomplete")));
        fputs("</p>\n", out);
    }
    warning_list(out, summary);
    identity_section(report, run, summary);
    struct course course;
    failed = course_load(report->store, run, &course, err);
    if (failed == 0) {
        failed = draw_course(report, run, backend, &course, err);
        course_fini(&course);
    }
    fputs("<details><summary>Summary</summary><table>\n", out);
    summary_rows(out, "", summary);
    fputs("</table></details>\n<details><summary>Configuration</summary><pre>", out);
    output_xml_text(out, run->config);
    fputs("</pre></details>\n", out);
    json_decref(summary);
    return failed;
}

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>unmask: results"
    "</title>\n<style>\n"
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1240px;padding:0 1em;"
    "color:#222}\n"
    "table{border-collapse:collapse;margin:1em 0}th,td{padding:.25em .7em;border-bottom:1px solid "
    "#ddd;text-align:left}\n"
    ".n{text-align:right;font-variant-numeric:tabular-nums}pre{background:#f5f5f5;padding:1em;"
    "overflow:auto}\n"
    "svg{max-width:100%;height:auto}details{margin:.5em 0}summary{cursor:pointer}\n"
    "</style></head><body>\n<h1>unmask: results</h1>\n";

static int write_page(struct report *report, struct err *err) {
    FILE *out = report->out;
    fputs(head, out);
    fputs("<p>Database: ", out);
    output_xml_text(out, store_path(report->store));
    fputs("</p>\n<table><tr><th class=n>run<th>system<th>model<th>GPU<th>executed "
          "by<th>profile<th>trace"
          "<th class=n>completed<th class=n>rejected<th class=n>tok/s<th class=n>mean latency, s"
          "<th class=n>p50, s<th class=n>p99, s<th>warnings</tr>\n",
          out);
    int failed = store_list_runs(report->store, table_row, report, err);
    fputs("</table>\n", out);
    if (failed == 0) {
        failed = store_list_runs(report->store, run_section, report, err);
    }
    fputs("</body></html>\n", out);
    return failed;
}

/* The page is made whole first, so that `path` is touched only when there is one. */
/* Written beside `path` and renamed over it: a full disk leaves the old page. */
static int copy_page(FILE *page, const char *path, struct err *err) {
    char beside[4096];
    int size = snprintf(beside, sizeof beside, "%s.part", path);
    if (size < 0 || (size_t)size >= sizeof beside) {
        return err_usage(err, "'%s' is too long for the name of a file", path);
    }
    FILE *out = fopen(beside, "w");
    if (out == NULL) {
        return err_world(err, "cannot write '%s': %s", path, strerror(errno));
    }
    rewind(page);
    char buffer[1 << 16];
    size_t n;
    while ((n = fread(buffer, 1, sizeof buffer, page)) > 0) {
        fwrite(buffer, 1, n, out);
    }
    int failed = ferror(page) || ferror(out);
    failed = fclose(out) != 0 || failed;
    if (failed || rename(beside, path) != 0) {
        err_world(err, "cannot write '%s': %s", path, strerror(errno));
        remove(beside);
        return err_status(err);
    }
    return 0;
}

int report_write(struct store *store, const char *path, struct err *err) {
    if (output_may_replace(path, "<!DOCTYPE html>", "a page", err) != 0) {
        return (int)err->kind;
    }
    struct report report = {.store = store, .out = tmpfile()};
    const char *folder = getenv("TMPDIR");
    snprintf(report.folder, sizeof report.folder, "%s/unmask-report-XXXXXX",
             folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    if (report.out == NULL || mkdtemp(report.folder) == NULL) {
        int failed = err_world(err, "cannot make a temporary file: %s", strerror(errno));
        if (report.out != NULL) {
            fclose(report.out);
        }
        return failed;
    }
    int failed = write_page(&report, err);
    for (size_t i = 0; i < report.n_shown; i++) {
        free(report.shown[i].config);
        json_decref(report.shown[i].identity);
    }
    free(report.shown);
    rmdir(report.folder);
    if (failed == 0) {
        failed = copy_page(report.out, path, err);
    }
    fclose(report.out);
    return failed;
}
