/* unmask plot: any field of recorded runs over any other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/plot/plot.h"
#include "experiments/command/commands.h"
#include "experiments/study/figure.h"
#include "experiments/study/plot.h"
#include "sim/base/condition.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/policy/plugin/registry.h"
#include "sim/price/runtime.h"
#include "sim/system/system.h"
#include "sim/system/system_reads.h"

enum { MOST_OUT = 8, PATH_CHARS = 1024 };

static const struct option axis_options[] = {
    {"x", "FIELD", "along the x axis; words make bars", false},
    {"y", "FIELD,...", "along the y axis; several are a panel each", false},
    {"each-request", NULL, "-x and -y are of single requests, such as prompt_tokens and latency_s",
     false},
    {"cdf", "FIELD,...",
     "instead: the share of all requests that stay below each value, such as latency_s", false},
    {"over-time", "FIELD,...",
     "instead: running, waiting, tokens_per_s; with --levels steps also batch, kv_bytes, busy",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option look_options[] = {
    {"by", "FIELD,...", "a line for each value", false},
    {"facet", "FIELD,...", "a panel for each value", false},
    {"where", "CONDITION", "only these runs: SQL over the fields, such as \"rate < 1\"", false},
    {"against", "KEY=VALUE",
     "y less that of the runs with this value and the same seed, such as scheduler=look-ahead",
     false},
    {"look", "WORD", "lines, points, steps or bars (default: lines; bars over words)", false},
    {"log", "AXES", "logarithmic axes: x, y or xy", false},
    {"title", "TEXT", "default: the fields; \"\" for none", false},
    {"x-label", "TEXT", "below the x axis (default: the field, with its unit) [--out != none]",
     false},
    {"y-label", "TEXT", "along the y axis (the same) [--out != none]", false},
    {"name", "LINE=NAME",
     "what the legend calls a line, or the line alone; those that are named come first, in this "
     "order",
     true},
    {"bound", NULL, "next to y what no scheduler could beat, dashed, of runs with `sweep --bound`",
     false},
    {"note", "TEXT",
     "below the figure (default: where its numbers come from); \"\" for none, which prints that "
     "for "
     "a caption [--out != none]",
     false},
    {"width", "INCHES",
     "width of the whole figure as it is printed, where its text has 9 points (default: by its "
     "panels) [--out != none]",
     false},
    {"font", "NAME", "default: sans-serif [--out != none]", false},
    {"out", "FILE", "the plot, as its ending says: .svg, .png, .pdf, .csv; without it a table",
     true},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_plot[] = {axis_options,  look_options,   json_options,
                                                       format_option, verbose_option, NULL};

static const char *const look_words[] = {"lines", "points", "steps", "bars", NULL};
static const char *const log_words[] = {"x", "y", "xy", NULL};

static int read_kind(const struct options *options, struct plot_request *request, struct err *err) {
    static const struct {
        const char *option;
        enum plot_kind kind;
    } ways[] = {{"y", PLOT_FIELDS}, {"cdf", PLOT_CDF}, {"over-time", PLOT_OVER_TIME}};
    const bool each = options_has(options, "each-request");
    const char *fields = NULL, *x = options_text(options, "x");
    int n = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (options_has(options, ways[i].option)) {
            request->kind = ways[i].kind;
            fields = options_text(options, ways[i].option);
            n++;
        }
    }
    if (n > 1) {
        return err_usage(err, "of -y, --cdf and --over-time a plot has one");
    }
    const bool is_over = request->kind == PLOT_FIELDS && n > 0;
    if ((x != NULL) != is_over || (each && !is_over)) {
        return err_usage(err, is_over     ? "-y needs -x"
                              : x != NULL ? "-x goes with -y"
                                          : "--each-request goes with -x and -y");
    }
    request->kind = each ? PLOT_REQUESTS : request->kind;
    int status = plot_list_read(fields, "a plot", &request->y, err);
    status = status != 0 ? status : plot_list_read(x, "x", &request->x, err);
    if (status == 0 && request->x.n > 1) {
        return err_usage(err, "-x: '%s' is more than one field", x);
    }
    return status;
}

static int read_word(const struct options *options, const char *name, const char *const *words,
                     const char **out, struct err *err) {
    char hint[NAME_HINT_CHARS];
    *out = options_text(options, name);
    return *out == NULL || name_find(words, *out) >= 0
               ? 0
               : err_usage(err, "--%s: '%s' is not among its words (`unmask plot --help`)%s", name,
                           *out, name_hint(*out, words, hint));
}

/* Runs that differ in the key are told apart: by their line where nothing else does. */
static int read_against(const struct options *options, struct plot_request *request,
                        struct err *err) {
    char column[FIELD_CHARS];
    const char *text = options_text(options, "against");
    int status = against_read(text, &request->against, err);
    if (status != 0 || text == NULL) {
        return status;
    }
    if (request->kind != PLOT_FIELDS || request->y.n == 0) {
        return err_usage(err, "--against goes with -x and -y of runs");
    }
    struct plot_list *by = &request->by;
    field_column(request->against.key, column);
    const bool is_told = plot_list_has(by, column) || plot_list_has(&request->facets, column) ||
                         plot_list_has(&request->x, column);
    if (!is_told && by->n < PLOT_MOST_FIELDS) {
        snprintf(by->name[by->n], sizeof by->name[0], "%s", request->against.key);
        snprintf(by->column[by->n++], sizeof by->column[0], "%.*s", (int)sizeof by->column[0] - 1,
                 column);
    }
    return 0;
}

static int read_request(const struct options *options, struct plot_request *request,
                        struct err *err) {
    const char *log = NULL;
    *request = (struct plot_request){.n_files = options->n_words,
                                     .where = options_text(options, "where"),
                                     .title = options_text(options, "title"),
                                     .x_label = options_text(options, "x-label"),
                                     .y_label = options_text(options, "y-label"),
                                     .inches = options_text(options, "width"),
                                     .font = options_text(options, "font"),
                                     .note = options_text(options, "note"),
                                     .with_bounds = options_has(options, "bound")};
    request->n_names = options_values(options, "name", request->names);
    memcpy(request->files, options->words, sizeof request->files);
    if (request->n_files == 0) {
        return err_usage(err, "plot needs a database, or a file of `sweep --json`");
    }
    int status = study_check_looks(request->inches != NULL ? request->inches : "",
                                   request->font != NULL ? request->font : "", err);
    status = status != 0 ? status : read_kind(options, request, err);
    status =
        status != 0 ? status : plot_list_read(options_text(options, "by"), "by", &request->by, err);
    status = status != 0
                 ? status
                 : plot_list_read(options_text(options, "facet"), "facet", &request->facets, err);
    status = status != 0 ? status : read_against(options, request, err);
    if (status == 0 && request->with_bounds &&
        (request->kind != PLOT_FIELDS || request->y.n == 0 ||
         options_text(options, "against") != NULL)) {
        return err_usage(err, "--bound goes with -x and -y of runs, without --against");
    }
    status = status != 0 ? status : read_word(options, "look", look_words, &request->look, err);
    status = status != 0 ? status : read_word(options, "log", log_words, &log, err);
    request->log_x = log != NULL && log[0] == 'x';
    request->log_y = log != NULL && strchr(log, 'y') != NULL;
    if (request->kind == PLOT_OVER_TIME && request->by.n == 0) {
        return plot_list_read("run", "by", &request->by, err);
    }
    return status;
}

/* ---- files ---- */

static const struct {
    const char *ending;
    unsigned format;
} formats[] = {
    {".svg", FIGURE_SVG}, {".png", FIGURE_PNG}, {".pdf", FIGURE_PDF}, {".csv", FIGURE_CSV}};

static unsigned format_of(const char *path) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (name_ends(path, formats[i].ending)) {
            return formats[i].format;
        }
    }
    return 0;
}

static int check_out(const char *const *paths, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        if (format_of(paths[i]) == 0 || strlen(paths[i]) >= PATH_CHARS) {
            return err_usage(err, "--out: '%s' does not end with .svg, .png, .pdf or .csv",
                             paths[i]);
        }
    }
    return n > MOST_OUT ? err_usage(err, "--out is given at most %d times", MOST_OUT) : 0;
}

static int draw(const struct study *study, struct tables *tables, const char *const *paths,
                size_t n, struct err *err) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++) {
        char stem[PATH_CHARS];
        snprintf(stem, sizeof stem, "%.*s", (int)(strlen(paths[i]) - 4), paths[i]);
        status = study_draw(study, tables, stem, format_of(paths[i]), err);
        if (status == 0) {
            printf("wrote %s\n", paths[i]);
        }
    }
    if (status == 0 && n > 0) {
        study_print_note(study, tables, stdout);
    }
    return status;
}

/* ---- without -y: what there is to be drawn ---- */

/* The doc of the parameter that a column is of, after its prefix; NULL: it is of none. */
static const char *doc_of_param(const char *column, const char *prefix, const struct param *params,
                                size_t n) {
    const char *rest = name_behind(column, prefix);
    for (size_t i = 0; rest != NULL && i < n; i++) {
        char name[FIELD_CHARS];
        if (strcmp(field_column(params[i].name, name), rest) == 0) {
            return params[i].doc;
        }
    }
    return NULL;
}

static const char *doc_of_policy(const char *column) {
    const char *doc = NULL;
    for (int kind = POLICY_SCHEDULER; doc == NULL && kind <= POLICY_ROUTER; kind++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%s_", policy_kind_names[kind]);
        for (size_t i = 0; doc == NULL && i < policy_count((enum policy_kind)kind); i++) {
            const struct policy *policy = policy_at((enum policy_kind)kind, i);
            doc = doc_of_param(column, prefix, policy->params, policy->n_params);
        }
    }
    return doc;
}

/* Of columns that are no fields of plots: what they say of a run, by longest beginning. */
static const struct {
    const char *begins, *doc;
} of_runs[] = {
    {"system", "everything that serves, under one name"},
    {"model", "the model's name"},
    {"gpu", "the GPU's name"},
    {"backend", "what executed the steps"},
    {"host", "the machine that the GPU is in"},
    {"trace_provenance", "what of the workload is recorded and what is drawn"},
    {"trace", "what arrived"},
    {"policies_", "the policy's name, a plug-in's from its file"},
    {"workload_", "as the workload was described"},
    {"workload", "what arrived, as it was asked for"},
};

/* What a column of runs is: a field, a key of the configuration, or a fact of the run. */
static const char *meaning_of(const char *column, char text[FIELD_CHARS]) {
    const struct column *field = field_find(column);
    const char *doc = field != NULL ? field->doc : NULL;
    doc = doc != NULL ? doc : doc_of_param(column, "", system_params, system_n_params);
    doc = doc != NULL ? doc : doc_of_param(column, "runtime_", runtime_params, runtime_n_params);
    doc = doc != NULL ? doc : doc_of_param(column, "host_", host_params, host_n_params);
    doc = doc != NULL ? doc : doc_of_policy(column);
    for (size_t i = 0; doc == NULL && i < sizeof of_runs / sizeof of_runs[0]; i++) {
        size_t n = strlen(of_runs[i].begins);
        bool is_part = of_runs[i].begins[n - 1] == '_';
        bool fits = strncmp(column, of_runs[i].begins, n) == 0 && (is_part || column[n] == '\0');
        doc = fits ? of_runs[i].doc : NULL;
    }
    doc = doc != NULL ? doc : system_part_doc(column);
    doc = doc != NULL ? doc : "a key of the configuration, or a fact of the run";
    snprintf(text, FIELD_CHARS, "%.*s", (int)condition_doc_length(doc), doc);
    return text;
}

/* Numbers with their range, and words that differ between runs. */
static int print_fields(const struct options *options, struct tables *tables, struct err *err) {
    json_t *rows = NULL, *value;
    const char *key;
    int status = tables_select(tables, "SELECT * FROM chosen LIMIT 1", "fields", &rows, err);
    struct table *table = table_open("field|unit|values|least|most|meaning");
    json_object_foreach(json_array_get(rows, 0), key, value) {
        char query[4 * FIELD_CHARS], name[FIELD_CHARS];
        json_t *found = NULL;
        snprintf(query, sizeof query,
                 "SELECT count(DISTINCT \"%s\") AS n, min(\"%s\") AS least, max(\"%s\") AS most"
                 " FROM chosen",
                 key, key, key);
        status = status != 0 ? status : tables_select(tables, query, "fields", &found, err);
        const json_t *row = json_array_get(found, 0), *least = json_object_get(row, "least");
        json_int_t n = json_integer_value(json_object_get(row, "n"));
        static const char *const others[] = {"config",   "setup",  "warnings",  "row",
                                             "sample",   "place",  "has_whole", "is_double",
                                             "is_again", "seed_n", NULL};
        bool is_long = name_find(others, key) >= 0 || strncmp(key, "identity_", 9) == 0;
        const struct column *field = field_find(key);
        if (n > 0 && !is_long && (n > 1 || (field != NULL && json_is_number(least)))) {
            bool is_number = json_is_number(least);
            table_add(table, "s s i", field_spelled(key, name), field_unit(key), (int64_t)n);
            table_number(table, is_number ? json_number_value(least) : (double)NAN, "%.6g");
            table_number(table,
                         is_number ? json_number_value(json_object_get(row, "most")) : (double)NAN,
                         "%.6g");
            table_text(table, meaning_of(key, name));
        }
        json_decref(found);
    }
    status = status != 0 ? status : cmd_print_table(options, table, err);
    table_close(table);
    json_decref(rows);
    return status;
}

/* The head of a column for readers: its axis' label. */
static void put_head(FILE *query, const char *column, const char *label) {
    fprintf(query, ", %s AS \"", column);
    for (const char *c = label != NULL && label[0] != '\0' ? label : column; *c != '\0'; c++) {
        fputs(*c == '"' ? "\"\"" : (char[]){*c, '\0'}, query);
    }
    fputs("\"", query);
}

static int show(const struct options *options, const struct study *study, struct tables *tables,
                struct err *err) {
    const char *format = options_text(options, "format");
    const char *x = study_text(study, "x_label", NULL), *y = study_text(study, "y_label", NULL);
    const bool is_data = options_has(options, "json") || /* programs read x and y */
                         (format != NULL && strcmp(format, "csv") == 0) ||
                         (x != NULL && y != NULL && strcmp(x, y) == 0);
    char *query = NULL;
    size_t size;
    FILE *out = mem_stream(&query, &size);
    fputs("SELECT panel, series", out);
    put_head(out, "x", is_data ? "x" : x);
    put_head(out, "y", is_data ? "y" : y);
    fputs(", low, high", out);
    if (options_has(options, "against")) {
        fputs(", CASE WHEN low > 0 OR high < 0 THEN 'differs' WHEN low IS NOT NULL THEN "
              "'not distinguishable' WHEN y = 0 THEN 'equal' END AS verdict",
              out);
    }
    fputs(" FROM drawn ORDER BY rowid", out);
    mem_stream_close(out);
    struct table *table = NULL;
    int status = tables_show(tables, query, &table, err);
    free(query);
    status = status != 0 ? status : cmd_print_table(options, table, err);
    table_close(table);
    return status;
}

static int run(const struct options *options, struct err *err) {
    const char *paths[OPTIONS_MOST_GIVEN];
    struct plot_request request;
    size_t n_out = options_values(options, "out", paths);
    int status = read_request(options, &request, err);
    status = status != 0 ? status : check_out(paths, n_out, err);
    struct tables *tables = tables_open();
    struct study study = {.n_configs = 0};
    status = status != 0 ? status : plot_fill(&request, tables, err);
    if (status == 0 && request.y.n == 0) {
        status = print_fields(options, tables, err);
    } else if (status == 0) {
        status = plot_ask(&request, tables, &study, err);
        bool writes = n_out > 0;
        status = status != 0 ? status
                 : writes    ? draw(&study, tables, paths, n_out, err)
                             : show(options, &study, tables, err);
        if (status == 0 && n_out == 0 && !options_has(options, "json")) {
            printf("%s\n", study_text(&study, "note", NULL));
        }
        if (status == 0 && !options_has(options, "json")) {
            study_print_warnings(tables, "told", stdout);
            status = tables_failed(tables, err);
        }
    }
    study_close(&study);
    tables_close(tables);
    return status;
}

const struct command command_plot = {
    .name = "plot",
    .words = "DB|FILE...",
    .doc = "any field of recorded runs over any other, distributions, and what happened over time",
    .more =
        "Of databases (`run --db`, `sweep --db`) or of what `sweep --json` and `run --json`\n"
        "printed (- is standard input). Without -y it prints the fields that there are, with\n"
        "units; they are called as in `run --json`, and so are keys of the configuration\n"
        "(rate, cache.retention). Runs that differ in the seed alone are one point: their\n"
        "mean, with the interval that holds the true mean with 95 %. Others are never\n"
        "averaged: --by, --facet or --where must tell them apart, also by build or inputs (the\n"
        "contents of files). A run on record twice counts once, and seeds that draw nothing are\n"
        "one run. --by tenant draws each tenant's requests by themselves, --by priority those of\n"
        "each priority. Along x a rate stands at what was offered, where that is more than\n"
        "0.5 % off what was asked for. With --against scheduler=look-ahead y is what a run has "
        "more\n"
        "than the run of that scheduler with the same seed at the same place. A distribution is of "
        "all requests of a run: where some\n"
        "were rejected it ends below 100 %.\n"
        "\n"
        "  unmask plot r.db -x rate -y latency_s.p99 --by system --facet workload --out p.svg\n"
        "  unmask plot r.db -x prompt_tokens -y ttft_s --each-request --by system --out "
        "points.svg\n"
        "  unmask plot r.db --cdf latency_s --by system --where \"rate = 0.4\" --out cdf.pdf\n"
        "  unmask plot r.db --over-time running,waiting --out time.png",
    .options = options_of_plot,
    .max_words = PLOT_MOST_FILES,
    .run = run,
};
