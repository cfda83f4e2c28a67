#include "experiments/study/measured.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/paper.h"
#include "sim/base/datadir.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { MOST_FILES = 8, MOST_COLUMNS = 32, MOST_LINES = 1024, LINE_CHARS = 1024 };

/* ---- the specification ---- */

struct text_key {
    const char *name;
    size_t offset, size;
};
#define KEY(type, field)                                                                           \
    { #field, offsetof(struct type, field), sizeof(((struct type *)0)->field) }

static const struct text_key figure_keys[] = {
    KEY(measured, folder),  KEY(measured, files), KEY(measured, along), KEY(measured, x_label),
    KEY(measured, y_label), KEY(measured, note),  {NULL, 0, 0},
};
static const struct text_key panel_keys[] = {
    KEY(measured_panel, where), KEY(measured_panel, value), {NULL, 0, 0}};
static const struct text_key series_keys[] = {KEY(measured_series, value),
                                              KEY(measured_series, where),
                                              KEY(measured_series, over_value),
                                              KEY(measured_series, over),
                                              {NULL, 0, 0}};
static const struct text_key row_keys[] = {KEY(measured_row, quantity), KEY(measured_row, system),
                                           KEY(measured_row, series),   KEY(measured_row, panel),
                                           KEY(measured_row, pick),     KEY(measured_row, role),
                                           KEY(measured_row, reading),  {NULL, 0, 0}};
static const char *const other_keys[] = {"show", "log_x", "log_y", NULL};
static const char *const show_words[] = {"value", "ratio", "increase", "reduction", "share", NULL};
static const char *const flag_words[] = {"off", "on", NULL};

static int word_of(const char *const *words, const char *text) {
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

static const struct text_key *key_of(const struct text_key *keys, const char *name) {
    for (; keys->name != NULL; keys++) {
        if (strcmp(keys->name, name) == 0) {
            return keys;
        }
    }
    return NULL;
}

/* What stands behind the word that a section begins with; NULL where it is another. */
static const char *named(const char *section, const char *word) {
    size_t n = strlen(word);
    return strncmp(section, word, n) == 0 && section[n] == ' ' ? section + n + 1 : NULL;
}

bool measured_knows(const char *section, const char *key) {
    if (strcmp(section, "figure") == 0) {
        return key_of(figure_keys, key) != NULL || word_of(other_keys, key) >= 0;
    }
    return named(section, "panel") != NULL || named(section, "series") != NULL ||
           named(section, "row") != NULL;
}

static int bad(const struct config *config, const struct config_entry *entry, const char *what,
               struct err *err) {
    return err_usage(err, "%s:%d: '%s' is not %s", config->path, entry->line, entry->value, what);
}

static int take_text(const struct config *config, const struct config_entry *entry,
                     const struct text_key *keys, void *to, struct err *err) {
    const struct text_key *key = key_of(keys, entry->key);
    if (key == NULL) {
        return err_usage(err, "%s:%d: unknown key '%s' in [%s]", config->path, entry->line,
                         entry->key, entry->section);
    }
    if (strlen(entry->value) >= key->size) {
        return err_usage(err, "%s:%d: '%s' has more than %zu characters", config->path, entry->line,
                         entry->key, key->size - 1);
    }
    memcpy((char *)to + key->offset, entry->value, strlen(entry->value) + 1);
    return 0;
}

static int take_figure(const struct config *config, const struct config_entry *entry,
                       struct measured *out, struct err *err) {
    if (strcmp(entry->key, "show") == 0) {
        int show = word_of(show_words, entry->value);
        out->show = (enum measured_show)show;
        return show >= 0 ? 0
                         : bad(config, entry, "value, ratio, increase, reduction or share", err);
    }
    if (strcmp(entry->key, "log_x") == 0 || strcmp(entry->key, "log_y") == 0) {
        int flag = word_of(flag_words, entry->value);
        *(entry->key[4] == 'x' ? &out->log_x : &out->log_y) = flag == 1;
        return flag >= 0 ? 0 : bad(config, entry, "on or off", err);
    }
    return key_of(figure_keys, entry->key) != NULL ? take_text(config, entry, figure_keys, out, err)
                                                   : 0; /* the grid's */
}

/* The same section goes on, or another begins. */
static bool begins(const struct config *config, size_t i) {
    return i == 0 || strcmp(config->entries[i - 1].section, config->entries[i].section) != 0;
}

static int full(const struct config *config, const struct config_entry *entry, struct err *err) {
    return err_usage(err, "%s:%d: [%s] is one section too many", config->path, entry->line,
                     entry->section);
}

static int take_section(const struct config *config, size_t i, struct measured *out,
                        struct err *err) {
    const struct config_entry *entry = &config->entries[i];
    const char *panel = named(entry->section, "panel"), *series = named(entry->section, "series");
    bool is_new = begins(config, i);
    if (panel != NULL) {
        if (is_new && out->n_panels == GRID_MOST) {
            return full(config, entry, err);
        }
        out->n_panels += is_new;
        struct measured_panel *p = &out->panels[out->n_panels - 1];
        snprintf(p->title, sizeof p->title, "%s", panel);
        return take_text(config, entry, panel_keys, p, err);
    }
    if (series != NULL) {
        if (is_new && out->n_series == GRID_MOST) {
            return full(config, entry, err);
        }
        out->n_series += is_new;
        struct measured_series *s = &out->series[out->n_series - 1];
        snprintf(s->name, sizeof s->name, "%s", series);
        return take_text(config, entry, series_keys, s, err);
    }
    if (is_new && out->n_rows == MEASURED_ROWS) {
        return full(config, entry, err);
    }
    out->n_rows += is_new;
    return take_text(config, entry, row_keys, &out->rows[out->n_rows - 1], err);
}

static const char *value_of(const struct measured *m, size_t panel, size_t series) {
    const char *own = m->series[series].value;
    return own[0] != '\0' ? own : m->panels[panel].value;
}

static int check(const struct config *config, const struct measured *m, struct err *err) {
    bool has_folder = m->folder[0] != '\0', has_files = m->files[0] != '\0';
    if (has_folder != has_files || m->along[0] == '\0' || m->n_panels == 0 || m->n_series == 0) {
        return err_usage(err, "%s: a measured figure has folder, files, along, panels and series",
                         config->path);
    }
    for (size_t i = 0; i < m->n_series; i++) {
        const struct measured_series *s = &m->series[i];
        if (m->show != SHOW_VALUE && s->over[0] == '\0') {
            return err_usage(err, "%s: [series %s] is shown over nothing", config->path, s->name);
        }
        for (size_t p = 0; p < m->n_panels; p++) {
            if (value_of(m, p, i)[0] == '\0') {
                return err_usage(err, "%s: neither [series %s] nor [panel %s] has a value",
                                 config->path, s->name, m->panels[p].title);
            }
        }
    }
    for (size_t i = 0; i < m->n_rows; i++) {
        double x;
        const struct measured_row *row = &m->rows[i];
        bool picks = strcmp(row->pick, "min") == 0 || strcmp(row->pick, "max") == 0 ||
                     strcmp(row->pick, "mean") == 0 || num_f64(row->pick, &x);
        bool is_drawn = false;
        for (size_t s = 0; s < m->n_series; s++) {
            is_drawn = is_drawn || strcmp(row->series, m->series[s].name) == 0;
        }
        if (paper_role_of(row->role) < 0) {
            return err_usage(err, "%s: the row of '%s' has the role '%s'", config->path,
                             row->quantity, row->role);
        }
        if (!picks || !is_drawn || row->quantity[0] == '\0') {
            return err_usage(err, "%s: the row of '%s' picks '%s' of the series '%s'", config->path,
                             row->quantity, row->pick, row->series);
        }
    }
    return 0;
}

int measured_read(const struct config *config, struct measured *out, struct err *err) {
    *out = (struct measured){0};
    int status = 0;
    for (size_t i = 0; status == 0 && i < config->n_entries; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (strcmp(entry->section, "figure") == 0) {
            status = take_figure(config, entry, out, err);
        } else if (measured_knows(entry->section, entry->key)) {
            status = take_section(config, i, out, err);
        }
    }
    return status == 0 ? check(config, out, err) : status;
}

/* ---- files ---- */

struct sheet_file {
    char path[2 * MEASURED_TEXT];
    char *text;                             /* owned; cells point into it */
    char *cells[MOST_LINES * MOST_COLUMNS]; /* [n_lines][MOST_COLUMNS]; line 0 is the header */
    size_t n_columns, n_lines;
};

static void file_close(struct sheet_file *file) {
    free(file->text);
}

static size_t column_of(const struct sheet_file *file, const char *name) {
    size_t c = 0;
    while (c < file->n_columns && strcmp(file->cells[c], name) != 0) {
        c++;
    }
    return c;
}

static int read_text(const char *path, char **out, struct err *err) {
    char full_path[1024];
    FILE *file = fopen(data_path(full_path, sizeof full_path, path), "rb");
    long size = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        size = ftell(file);
        rewind(file);
    }
    *out = size >= 0 ? malloc((size_t)size + 1) : NULL;
    bool is_read = *out != NULL && fread(*out, 1, (size_t)size, file) == (size_t)size;
    if (file != NULL) {
        fclose(file);
    }
    if (!is_read) {
        free(*out);
        *out = NULL;
        return err_world(err, "cannot read the measurements %s", full_path);
    }
    (*out)[size] = '\0';
    return 0;
}

static int split_lines(struct sheet_file *file, struct err *err) {
    for (char *line = file->text; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n'), *next = end != NULL ? end + 1 : NULL;
        if (end != NULL) {
            *end = '\0';
        }
        size_t n = 0;
        for (char *cell = line; cell != NULL && n < MOST_COLUMNS; n++) {
            char *comma = strchr(cell, ',');
            if (comma != NULL) {
                *comma = '\0';
            }
            if (file->n_lines < MOST_LINES) {
                file->cells[file->n_lines * MOST_COLUMNS + n] = cell;
            }
            cell = comma != NULL ? comma + 1 : NULL;
        }
        file->n_columns = file->n_lines == 0 ? n : file->n_columns;
        if (n != file->n_columns || file->n_lines == MOST_LINES) {
            return err_world(err, "%s:%zu: expected %zu cells, and at most %d lines", file->path,
                             file->n_lines + 1, file->n_columns, MOST_LINES);
        }
        file->n_lines++;
        line = next;
    }
    return file->n_lines > 1 ? 0 : err_world(err, "%s has no measurements", file->path);
}

static int file_open(const char *path, struct sheet_file *out, struct err *err) {
    memset(out, 0, sizeof *out);
    snprintf(out->path, sizeof out->path, "%s", path);
    int status = read_text(path, &out->text, err);
    return status == 0 ? split_lines(out, err) : status;
}

static const char *cell(const struct sheet_file *file, size_t line, size_t column) {
    return file->cells[line * MOST_COLUMNS + column];
}

/* ---- values ---- */

/* One "a, b" or "a + b" word after another; false after the last. */
static bool next_word(const char **rest, char separator, char *word, size_t size) {
    const char *from = *rest;
    while (from != NULL && *from == ' ') {
        from++;
    }
    if (from == NULL || *from == '\0') {
        return false;
    }
    const char *end = strchr(from, separator);
    size_t n = end != NULL ? (size_t)(end - from) : strlen(from);
    *rest = end != NULL ? end + 1 : NULL;
    while (n > 0 && from[n - 1] == ' ') {
        n--;
    }
    snprintf(word, size, "%.*s", (int)n, from);
    return true;
}

/* Whether a line is among "column=value, ...": not where the file lacks the column. */
static bool is_among(const struct sheet_file *file, size_t line, const char *where) {
    char word[MEASURED_TEXT];
    while (next_word(&where, ',', word, sizeof word)) {
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            return false;
        }
        *equals = '\0';
        size_t column = column_of(file, word);
        if (column == file->n_columns || strcmp(cell(file, line, column), equals + 1) != 0) {
            return false;
        }
    }
    return true;
}

/* The sum of columns; false where one of them is missing or empty. */
static bool sum_of(const struct sheet_file *file, size_t line, const char *columns, double *out) {
    char word[MEASURED_TEXT];
    *out = 0;
    while (next_word(&columns, '+', word, sizeof word)) {
        double value;
        size_t column = column_of(file, word);
        if (column == file->n_columns || !num_f64(cell(file, line, column), &value)) {
            return false;
        }
        *out += value;
    }
    return true;
}

static bool x_of(const struct sheet_file *file, size_t line, const char *along, double *out) {
    char word[MEASURED_TEXT];
    while (next_word(&along, ',', word, sizeof word)) {
        size_t column = column_of(file, word);
        if (column < file->n_columns) {
            return num_f64(cell(file, line, column), out);
        }
    }
    return false;
}

struct files {
    struct sheet_file file[MOST_FILES];
    size_t n;
};

/* Appends what lines of panel and series measure at x, or at any where x is NaN, then with the x's
 * themselves. */
static size_t collect(const struct files *files, const struct measured *m, const char *panel,
                      const char *where, const char *columns, double at, double *out) {
    size_t n = 0;
    for (size_t f = 0; f < files->n; f++) {
        const struct sheet_file *file = &files->file[f];
        for (size_t line = 1; line < file->n_lines && n < MOST_LINES; line++) {
            double x, value;
            if (is_among(file, line, panel) && is_among(file, line, where) &&
                x_of(file, line, m->along, &x) && sum_of(file, line, columns, &value) &&
                (isnan(at) || x == at)) {
                out[n++] = isnan(at) ? x : value;
            }
        }
    }
    return n;
}

static double median_of(const struct files *files, const struct measured *m, const char *panel,
                        const char *where, const char *columns, double at) {
    double *values = malloc(MOST_LINES * sizeof *values);
    ASSERT(values != NULL);
    size_t n = collect(files, m, panel, where, columns, at, values);
    gsl_sort(values, 1, n);
    double median = n > 0 ? gsl_stats_median_from_sorted_data(values, 1, n) : (double)NAN;
    free(values);
    return median;
}

static double shown(enum measured_show show, double value, double over) {
    switch (show) {
    case SHOW_VALUE:
        return value;
    case SHOW_RATIO:
        return value / over;
    case SHOW_INCREASE:
        return 100 * (value / over - 1);
    case SHOW_REDUCTION:
        return 100 * (1 - value / over);
    case SHOW_SHARE:
        return 100 * value / over;
    }
    return NAN;
}

/* The x's of all series, ascending. */
static int find_x(const struct files *files, const struct measured *m, struct measured_values *out,
                  struct err *err) {
    double *all = malloc(MOST_LINES * sizeof *all);
    ASSERT(all != NULL);
    for (size_t p = 0; p < m->n_panels; p++) {
        for (size_t s = 0; s < m->n_series; s++) {
            size_t n = collect(files, m, m->panels[p].where, m->series[s].where, value_of(m, p, s),
                               (double)NAN, all);
            for (size_t i = 0; i < n; i++) {
                size_t at = 0;
                while (at < out->n_x && out->x[at] != all[i]) {
                    at++;
                }
                if (at == GRID_MOST) {
                    free(all);
                    return err_usage(err, "a measured figure has at most %d places along '%s'",
                                     GRID_MOST, m->along);
                }
                out->n_x += at == out->n_x;
                out->x[at] = all[i];
            }
        }
    }
    free(all);
    gsl_sort(out->x, 1, out->n_x);
    return out->n_x > 0 ? 0 : err_world(err, "no measurement is among the figure's series");
}

static void find_y(const struct files *files, const struct measured *m,
                   struct measured_values *out) {
    for (size_t p = 0; p < m->n_panels; p++) {
        for (size_t s = 0; s < m->n_series; s++) {
            const struct measured_series *series = &m->series[s];
            const char *panel = m->panels[p].where, *columns = value_of(m, p, s);
            const char *below = series->over_value[0] != '\0' ? series->over_value : columns;
            for (size_t x = 0; x < out->n_x; x++) {
                double at = out->x[x], over = 1;
                double value = median_of(files, m, panel, series->where, columns, at);
                if (m->show != SHOW_VALUE) {
                    over = median_of(files, m, panel, series->over, below, at);
                }
                out->y[p][s][x] = shown(m->show, value, over);
            }
        }
    }
}

static int take_text_as_file(const char *text, struct sheet_file *out, struct err *err) {
    memset(out, 0, sizeof *out);
    snprintf(out->path, sizeof out->path, "priced steps");
    out->text = strdup(text);
    ASSERT(out->text != NULL);
    return split_lines(out, err);
}

int measured_find(const struct measured *m, const char *priced, struct measured_values *out,
                  struct err *err) {
    struct files *files = calloc(1, sizeof *files);
    const char *rest = m->files;
    char name[MEASURED_TEXT], path[2 * MEASURED_TEXT];
    int status = 0;
    ASSERT(files != NULL);
    *out = (struct measured_values){.n_x = 0};
    if (priced != NULL) {
        status = take_text_as_file(priced, &files->file[files->n++], err);
    }
    while (status == 0 && next_word(&rest, ',', name, sizeof name)) {
        if (files->n == MOST_FILES) {
            status = err_usage(err, "a measured figure reads at most %d files", MOST_FILES);
            break;
        }
        snprintf(path, sizeof path, "%s/%s", m->folder, name);
        status = file_open(path, &files->file[files->n++], err);
    }
    status = status == 0 ? find_x(files, m, out, err) : status;
    if (status == 0) {
        find_y(files, m, out);
    }
    for (size_t f = 0; f < files->n; f++) {
        file_close(&files->file[f]);
    }
    free(files);
    return status;
}

double measured_pick(const struct measured *m, const struct measured_values *values,
                     const struct measured_row *row) {
    double at = NAN, found[GRID_MOST * GRID_MOST];
    size_t n = 0;
    bool is_at = num_f64(row->pick, &at);
    for (size_t p = 0; p < m->n_panels; p++) {
        for (size_t s = 0; s < m->n_series; s++) {
            bool counts = strcmp(row->series, m->series[s].name) == 0 &&
                          (row->panel[0] == '\0' || strcmp(row->panel, m->panels[p].title) == 0);
            for (size_t x = 0; counts && x < values->n_x; x++) {
                double y = values->y[p][s][x];
                if (!isnan(y) && (!is_at || values->x[x] == at)) {
                    found[n++] = y;
                }
            }
        }
    }
    if (n == 0) {
        return NAN;
    }
    return strcmp(row->pick, "min") == 0   ? gsl_stats_min(found, 1, n)
           : strcmp(row->pick, "max") == 0 ? gsl_stats_max(found, 1, n)
                                           : gsl_stats_mean(found, 1, n);
}
