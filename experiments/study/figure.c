#include "experiments/study/figure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/plot/plot.h"
#include "analysis/spread.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/output.h"

static const char *const kind_words[] = {"lines", "bars", "stacked", "table", NULL};
enum { KIND_TABLE = 3 }; /* the others are enum panel_kind */
static const char *const switch_words[] = {"off", "on", NULL};
static const char *const style_words[] = {"both", "line", "points", "steps", "dashed", NULL};

/* ---- keys of [figure] ---- */

static const char *text_of(const struct study *study, const char *key) {
    const char *text = study_text(study, key, NULL);
    return text != NULL ? text : "";
}

static bool is_on(const struct study *study, const char *key) {
    return name_find(switch_words, text_of(study, key)) == 1;
}

static double number_of(const struct study *study, const char *key) {
    double number = 0;
    num_f64(text_of(study, key), &number);
    return number;
}

static int check_keys(const struct study *study, struct err *err) {
    static const char *const switches[] = {"log_x", "log_y", "values", "same_y"};
    static const char *const numbers[] = {"y_line", "y_min", "y_max", "columns", "width", "inches"};
    char place[256];
    double number;
    const char *kind = study_text(study, "kind", place);
    if (kind == NULL || name_find(kind_words, kind) < 0) {
        char hint[NAME_HINT_CHARS];
        return kind == NULL ? err_usage(err, "%s: [figure] lacks 'kind'", study->configs[0].path)
                            : err_usage(err, "%s: '%s' is not lines, bars, stacked or table%s",
                                        place, kind, name_hint(kind, kind_words, hint));
    }
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        const char *text = study_text(study, switches[i], place);
        if (text != NULL && name_find(switch_words, text) < 0) {
            return err_usage(err, "%s: %s is on or off, not '%s'", place, switches[i], text);
        }
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *text = study_text(study, numbers[i], place);
        if (text != NULL && !num_f64(text, &number)) {
            return err_usage(err, "%s: '%s' is not a number for %s", place, text, numbers[i]);
        }
    }
    return study_check_looks(text_of(study, "inches"), text_of(study, "font"), err);
}

int study_check_looks(const char *inches, const char *font, struct err *err) {
    double width = 0;
    if (inches[0] != '\0' && (!num_f64(inches, &width) || width < 1.5 || width > 40)) {
        return err_usage(err, "the width of a figure is 1.5 to 40 inches, not '%s'", inches);
    }
    if (strpbrk(font, "',\"\\") != NULL || strlen(font) > 80) {
        return err_usage(err, "'%s' is not the name of a font", font);
    }
    return 0;
}

bool study_is_table(const struct study *study) {
    return name_find(kind_words, text_of(study, "kind")) == KIND_TABLE;
}

int study_ask(const struct study *study, struct tables *tables, struct err *err) {
    char place[256];
    const char *query = study_text(study, "query", place);
    if (query == NULL || study_text(study, "title", NULL) == NULL) {
        return err_usage(err, "%s: [figure] lacks '%s'", study->configs[0].path,
                         query == NULL ? "query" : "title");
    }
    int status = check_keys(study, err);
    return status != 0 ? status : tables_keep(tables, "drawn", query, place, err);
}

static int read_drawn(struct tables *tables, json_t **rows, struct err *err) {
    return tables_select(tables, "SELECT * FROM drawn ORDER BY rowid", "drawn", rows, err);
}

/* ---- from rows to panels ---- */

/* A figure and what it points to. */
struct sheet {
    struct figure figure;
    json_t *rows, *groups; /* {panel: {series: [row, ...]}} */
    json_t *categories;    /* one array of texts a panel */
    char title[512], provenance[1024];
};

static const char *word_at(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

static double number_at(const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *category_of(const json_t *row, char text[64]) {
    const json_t *x = json_object_get(row, "x");
    if (json_is_string(x)) {
        return json_string_value(x);
    }
    snprintf(text, 64, "%.15g", number_at(row, "x"));
    return text;
}

/* The array or object under a key, made where there is none. */
static json_t *under(json_t *object, const char *key, json_t *(*make)(void)) {
    if (json_object_get(object, key) == NULL) {
        json_object_set_new(object, key, make());
    }
    return json_object_get(object, key);
}

static json_t *group(const json_t *rows) {
    json_t *groups = json_object();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        json_t *panel = under(groups, word_at(row, "panel"), json_object);
        json_array_append(under(panel, word_at(row, "series"), json_array), row);
    }
    return groups;
}

/* Distinct x of a panel's rows as texts, in the order in which they first appear. */
static json_t *categories_of(json_t *panel) {
    json_t *seen = json_object(), *texts = json_array(), *rows;
    const char *name;
    json_object_foreach(panel, name, rows) {
        for (size_t i = 0; i < json_array_size(rows); i++) {
            char text[64];
            const char *category = category_of(json_array_get(rows, i), text);
            if (json_object_get(seen, category) == NULL) {
                json_object_set_new(seen, category, json_true());
                json_array_append_new(texts, json_string(category));
            }
        }
    }
    json_decref(seen);
    return texts;
}

static size_t place_of(const struct panel *panel, const json_t *row, size_t i) {
    char text[64];
    const char *category = category_of(row, text);
    for (size_t c = 0; panel->kind != PANEL_XY; c++) {
        ASSERT(c < panel->n_categories);
        if (strcmp(panel->categories[c], category) == 0) {
            return c;
        }
    }
    return i;
}

static void lay_series(const char *name, const json_t *rows, const struct panel *panel,
                       struct plot_series *out) {
    const double none = (double)NAN;
    size_t n = panel->kind == PANEL_XY ? json_array_size(rows) : panel->n_categories;
    struct plot_point *points = mem_zeroed(n + 1, sizeof *points);
    for (size_t i = 0; i < n; i++) {
        points[i] = (struct plot_point){none, none, none, none, none};
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        points[place_of(panel, row, i)] =
            (struct plot_point){number_at(row, "x"), number_at(row, "y"), number_at(row, "low"),
                                number_at(row, "high"), number_at(row, "paper")};
    }
    int style = name_find(style_words, word_at(json_array_get(rows, 0), "style"));
    *out = (struct plot_series){.name = name,
                                .points = points,
                                .n = n,
                                .style = style > 0 ? (enum line_style)style : STYLE_LINE_POINTS};
}

/* What a panel shows, without which part of the runs: "throughput (tokens/s)" of "l40s: throughput
 * (tokens/s)". */
static const char *quantity_of(const char *title) {
    const char *at = title;
    for (const char *next = title; (next = strstr(next, ": ")) != NULL; next += 2) {
        at = next + 2;
    }
    return at;
}

static void lay_panel(const struct study *study, const char *title, json_t *series,
                      json_t *categories, struct panel *out) {
    const char *y_label = study_text(study, "y_label", NULL), *name;
    size_t n = json_array_size(categories), s = 0;
    const char **texts = mem_zeroed(n + 1, sizeof *texts);
    struct plot_series *all = mem_zeroed(json_object_size(series) + 1, sizeof *all);
    for (size_t i = 0; i < n; i++) {
        texts[i] = json_string_value(json_array_get(categories, i));
    }
    *out = (struct panel){.kind = (enum panel_kind)name_find(kind_words, text_of(study, "kind")),
                          .title = title,
                          .x_label = text_of(study, "x_label"),
                          .y_label = y_label != NULL ? y_label : quantity_of(title),
                          .series = all,
                          .n_series = json_object_size(series),
                          .categories = texts,
                          .n_categories = n,
                          .log_x = is_on(study, "log_x"),
                          .log_y = is_on(study, "log_y"),
                          .values = is_on(study, "values"),
                          .y_line = number_of(study, "y_line"),
                          .y_min = number_of(study, "y_min"),
                          .y_max = number_of(study, "y_max")};
    json_t *rows;
    json_object_foreach(series, name, rows) {
        lay_series(name, rows, out, &all[s++]);
    }
}

/* All panels compare: one range for all. */
static void share_range(struct panel *panels, size_t n) {
    double min = INFINITY, max = 0;
    for (size_t p = 0; p < n; p++) {
        size_t most = panels[p].n_series > 0 ? panels[p].series[0].n : 0;
        double *sums = mem_zeroed(most + 1, sizeof *sums);
        for (size_t s = 0; s < panels[p].n_series; s++) {
            for (size_t i = 0; i < panels[p].series[s].n; i++) {
                double y = panels[p].series[s].points[i].y;
                bool adds = panels[p].kind == PANEL_STACKED && isfinite(y);
                sums[adds ? i : most] = adds ? sums[i] + y : y;
                min = fmin(min, y); /* of a NaN and a number, the number */
                max = fmax(max, sums[adds ? i : most]);
            }
        }
        free(sums);
    }
    for (size_t p = 0; p < n; p++) {
        panels[p].y_min = panels[p].log_y ? pow(10, floor(log10(min / 1.5))) : 0;
        panels[p].y_max = (panels[p].log_y ? 1.4 : 1.1) * max;
    }
}

/* Each once, where several share what is said of them: "osc, burst: real inputs". */
static void put_sources(json_t *rows, char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(rows) && used < size; i++) {
        const json_t *row = json_array_get(rows, i), *last = json_array_get(rows, i - 1);
        const char *is = word_at(row, "source");
        bool goes_on = i > 0 && strcmp(is, word_at(last, "source")) == 0;
        bool ends = strcmp(is, word_at(json_array_get(rows, i + 1), "source")) != 0;
        used += (size_t)snprintf(out + used, size - used, "%s%s%s%s", goes_on ? ", " : "; ",
                                 word_at(row, "name"), ends ? ": " : "", ends ? is : "");
    }
}

/* Of runs whose study has no note: "profile l40s: imported; osc, burst: real inputs, ...". */
static void describe(const struct study *study, struct tables *tables, struct sheet *sheet) {
    char query[320];
    const char *note = text_of(study, "note"), *runs = study_runs(study);
    const size_t size = sizeof sheet->provenance;
    size_t used = (size_t)snprintf(sheet->provenance, size, "%s", note);
    if (used > 0 ||
        !tables_have(tables, runs, "workload,workload_n,trace_provenance,gpu,profile_kind")) {
        return;
    }
    snprintf(query, sizeof query,
             "SELECT 'profile ' || group_concat(p, ', ') AS text FROM (SELECT DISTINCT gpu || ': ' "
             "|| profile_kind AS p FROM \"%s\")",
             runs);
    char *profiles = tables_text(tables, query);
    used = (size_t)snprintf(sheet->provenance, size, "%s", profiles);
    free(profiles);
    snprintf(query, sizeof query,
             "SELECT workload AS name, trace_provenance AS source FROM \"%s\" GROUP BY 1, 2 ORDER "
             "BY min(workload_n)",
             runs);
    json_t *rows = tables_own(tables, query);
    if (used < size) {
        put_sources(rows, sheet->provenance + used, size - used);
    }
    json_decref(rows);
}

const char *const study_printed_note = "printed values are of the unchanged figure";

/* Of how many seeds the error bars are; 0: there are none, or they are of something else. */
static size_t seeds_of_bars(const struct study *study, struct tables *tables) {
    char query[256];
    const char *runs = study_runs(study);
    if (!tables_have(tables, "drawn", "low,high") || !tables_have(tables, runs, "seed,point")) {
        return 0;
    }
    snprintf(
        query, sizeof query,
        "SELECT max(n) AS n FROM (SELECT count(DISTINCT seed) AS n FROM \"%s\" GROUP BY point) "
        "WHERE EXISTS (SELECT 1 FROM drawn WHERE low < high)",
        runs);
    json_t *seeds = tables_own(tables, query);
    double n = number_at(json_array_get(seeds, 0), "n");
    json_decref(seeds);
    return n > 1 ? (size_t)n : 0;
}

void study_print_spread(const struct study *study, struct tables *tables, FILE *out) {
    char note[SPREAD_NOTE_CHARS];
    size_t n = seeds_of_bars(study, tables);
    if (n > 0) {
        fprintf(out, "error bars: %s\n", spread_note(n, note));
    }
}

static void add_note(struct sheet *sheet, const char *before, const char *text) {
    size_t used = strlen(sheet->provenance);
    snprintf(sheet->provenance + used, sizeof sheet->provenance - used, "%s%s%s",
             used > 0 ? "; " : "", before, text);
}

/* What the bars are, and what the printed values are not. */
static void describe_marks(const struct study *study, struct tables *tables, struct sheet *sheet) {
    char note[SPREAD_NOTE_CHARS];
    size_t n = seeds_of_bars(study, tables);
    if (n > 0) {
        add_note(sheet, "error bars: ", spread_note(n, note));
    }
    if (study->changed[0] != '\0' && study_text(study, "paper", NULL) != NULL) {
        add_note(sheet, "", study_printed_note);
    }
}

/* How far the processes are from measured decisions that its runs and rollouts draw from. */
static void describe_decisions(const struct study *study, struct tables *tables,
                               struct sheet *sheet) {
    const char *written[8];
    size_t n_written = 0;
    json_t *found[8];
    for (size_t t = 0; t < study->n_tables && t < 8; t++) {
        char query[160];
        found[t] = NULL;
        if (!tables_have(tables, study_table_name(study, t), "decisions_error")) {
            continue; /* it draws nothing */
        }
        snprintf(query, sizeof query,
                 "SELECT DISTINCT decisions_error AS error FROM \"%s\" WHERE decisions_error IS "
                 "NOT NULL",
                 study_table_name(study, t));
        found[t] = tables_own(tables, query);
        for (size_t i = 0; i < json_array_size(found[t]) && n_written < 8; i++) {
            const char *error = word_at(json_array_get(found[t], i), "error");
            size_t used = strlen(sheet->provenance), at = 0;
            while (at < n_written && strcmp(written[at], error) != 0) {
                at++;
            }
            if (at == n_written) {
                written[n_written++] = error;
                snprintf(sheet->provenance + used, sizeof sheet->provenance - used, "%s%s%s",
                         used > 0 ? "; " : "",
                         n_written == 1 ? "decisions are drawn, error " : "or ", error);
            }
        }
    }
    for (size_t t = 0; t < study->n_tables && t < 8; t++) {
        json_decref(found[t]);
    }
}

/* As many panels next to each other as are wide enough for their labels, of a figure that is to be
 * printed at `inches`. */
static size_t fitting_columns(size_t columns, double inches) {
    const double least_px = 200;
    while (columns > 1 && inches * 96 / (double)columns < least_px) {
        columns--;
    }
    return columns;
}

static void lay(const struct study *study, struct sheet *sheet) {
    size_t n = json_object_size(sheet->groups), p = 0, bars = 0;
    struct panel *panels = mem_zeroed(n, sizeof *panels);
    sheet->categories = json_array();
    const char *title;
    json_t *series;
    json_object_foreach(sheet->groups, title, series) {
        json_t *texts = categories_of(series);
        json_array_append_new(sheet->categories, texts);
        lay_panel(study, title, series, texts, &panels[p]);
        size_t n_bars = panels[p].n_series * panels[p].n_categories;
        bars = panels[p].kind == PANEL_BARS && n_bars > bars ? n_bars : bars;
        p++;
    }
    if (is_on(study, "same_y")) {
        share_range(panels, n);
    }
    /* Room for the title, or for the numbers over grouped bars. */
    size_t columns = (size_t)number_of(study, "columns");
    double inches = number_of(study, "inches");
    num_f64(study->inches != NULL ? study->inches : "", &inches);
    columns = inches > 0 ? fitting_columns(columns > 0 ? columns : n, inches) : columns;
    int width = inches > 0 ? (int)(inches * 96) / (int)columns : (int)number_of(study, "width"),
        bars_width = 130 + 34 * (int)bars;
    bool is_wide = panels[0].kind == PANEL_BARS && panels[0].values;
    const char *font = study->font != NULL ? study->font : text_of(study, "font");
    snprintf(sheet->title, sizeof sheet->title, "%s%s", text_of(study, "title"), study->changed);
    sheet->figure =
        (struct figure){.title = sheet->title,
                        .provenance = study->note != NULL ? study->note : sheet->provenance,
                        .panels = panels,
                        .n_panels = n,
                        .n_columns = columns,
                        .font = font[0] != '\0' ? font : NULL,
                        .panel_width = width > 0                     ? width
                                       : is_wide && bars_width > 640 ? bars_width
                                       : is_wide || n == 1           ? 640
                                                                     : 0};
}

static void tear_up(struct sheet *sheet) {
    for (size_t p = 0; p < sheet->figure.n_panels; p++) {
        const struct panel *panel = &sheet->figure.panels[p];
        for (size_t s = 0; s < panel->n_series; s++) {
            free((void *)(uintptr_t)panel->series[s].points);
        }
        free((void *)(uintptr_t)panel->series);
        free((void *)(uintptr_t)panel->categories);
    }
    free((void *)(uintptr_t)sheet->figure.panels);
    json_decref(sheet->categories);
    json_decref(sheet->groups);
    json_decref(sheet->rows);
}

/* The rows as they are: a line each, after one of the columns' names. */
static int write_rows(const json_t *rows, const char *stem, struct err *err) {
    char path[1024];
    snprintf(path, sizeof path, "%s.csv", stem);
    struct output output;
    if (output_open(path, &output, err) != 0) {
        return err_status(err);
    }
    FILE *out = output.file;
    for (size_t i = 0; i <= json_array_size(rows); i++) {
        const char *key, *comma = "";
        json_t *value;
        json_object_foreach(json_array_get(rows, i > 0 ? i - 1 : 0), key, value) {
            fputs(comma, out);
            if (i > 0 && json_is_number(value)) {
                fprintf(out, "%.9g", json_number_value(value));
            } else if (i == 0 || json_is_string(value)) {
                output_csv_text(out, i == 0 ? key : json_string_value(value));
            }
            comma = ",";
        }
        fputc('\n', out);
    }
    return output_close(&output, true, err);
}

static void describe_all(const struct study *study, struct tables *tables, struct sheet *sheet) {
    describe(study, tables, sheet);
    describe_marks(study, tables, sheet);
    describe_decisions(study, tables, sheet);
}

void study_print_note(const struct study *study, struct tables *tables, FILE *out) {
    struct sheet sheet = {.rows = NULL};
    describe_all(study, tables, &sheet);
    if (study->note != NULL && sheet.provenance[0] != '\0') {
        fprintf(out, "%-13s%s\n", "caption", sheet.provenance);
    }
}

int study_draw(const struct study *study, struct tables *tables, const char *stem, unsigned formats,
               struct err *err) {
    struct sheet sheet = {.categories = NULL};
    if (read_drawn(tables, &sheet.rows, err) != 0) {
        return (int)err->kind;
    }
    if (json_array_size(sheet.rows) == 0) {
        json_decref(sheet.rows);
        return err_usage(err, "%s: the query answers no row", study->configs[0].path);
    }
    if (study_is_table(study)) {
        int written = write_rows(sheet.rows, stem, err);
        json_decref(sheet.rows);
        return written;
    }
    sheet.groups = group(sheet.rows);
    describe_all(study, tables, &sheet);
    lay(study, &sheet);
    int status = tables_failed(tables, err);
    status = status != 0 ? status : figure_write(&sheet.figure, stem, formats, err);
    tear_up(&sheet);
    return status;
}
