#include "experiments/study/score.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/run/cli/options.h"
#include "experiments/study/tables.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/output.h"

enum { MOST_PAPERS = 16, PATH_CHARS = 1024, ID_CHARS = 96 };

static const char *const class_words[SCORE_N_CLASSES + 1] = {"ours",    "contradicts", "unknown",
                                                             "derived", "instead",     NULL};
static const char *const class_names[SCORE_N_CLASSES] = {
    [SCORE_OURS] = "ours",
    [SCORE_CONTRADICTS] = "the paper contradicts itself",
    [SCORE_UNKNOWN] = "cannot be known",
    [SCORE_DERIVED] = "follows from other rows",
    [SCORE_INSTEAD] = "ours, in place of what left",
};

struct score {
    const struct config *papers, *causes;
    char *folder;
    struct tables *tables;
    json_t *printed;                /* every row of every paper */
    json_t *by_id;                  /* {id: the row}, borrowing none */
    json_t *found;                  /* every result, in the order of the figures */
    json_t *gone;                   /* {id: class} of rows whose cause's calculation holds */
    const char *names[MOST_PAPERS]; /* of papers with a result, in their order */
    size_t n_names;
};

static const char *text_at(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

static double number_at(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key)); /* 0 where there is none */
}

static const char *id_text(const char *file, int line, char id[ID_CHARS]) {
    snprintf(id, ID_CHARS, "%s:%d", file, line);
    return id;
}

/* ---- what was printed ---- */

static int check_cause(const struct score *score, const char *path, const struct paper_row *row,
                       struct err *err) {
    if (row->cause[0] != '\0' && config_find(score->causes, row->cause, "class") == NULL) {
        return err_world(err, "%s:%d: the cause '%s' is no section of %s", path, row->line,
                         row->cause, score->causes->path);
    }
    return 0;
}

static int read_file(struct score *score, const char *paper_name, const char *file,
                     struct err *err) {
    char path[PATH_CHARS], id[ID_CHARS];
    struct paper paper = {0};
    snprintf(path, sizeof path, "%s/%s", score->folder, file);
    int status = paper_load(path, &paper, err);
    for (size_t i = 0; status == 0 && i < paper.n_rows; i++) {
        const struct paper_row *row = &paper.rows[i];
        status = check_cause(score, path, row, err);
        json_t *made = json_pack(
            "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:s, s:i}", "id",
            id_text(file, row->line, id), "paper", paper_name, "cause", row->cause, "source",
            row->source, "gpu", row->gpu, "model", row->model, "dataset", row->dataset, "system",
            row->system, "setting", row->setting, "value", row->value, "quantity", row->quantity,
            "unit", row->unit, "points", row->compare == PAPER_POINTS);
        json_array_append(score->printed, made);
        json_object_set_new(score->by_id, id, made);
    }
    paper_fini(&paper);
    return status;
}

static int read_papers(struct score *score, struct err *err) {
    const struct config_entry *entry = NULL;
    while ((entry = config_next(score->papers, NULL, "files", entry)) != NULL) {
        struct words files;
        int status = words_split(entry->value, &files, score->papers->path, err);
        for (size_t f = 0; status == 0 && f < files.n; f++) {
            status = read_file(score, entry->section, files.word[f], err);
        }
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

/* Every cause has a class, words and, but for ours, a calculation. */
static int check_causes(const struct config *causes, struct err *err) {
    char place[256];
    const struct config_entry *entry = NULL;
    while ((entry = config_next(causes, NULL, NULL, entry)) != NULL) {
        const struct config_entry *class = config_find(causes, entry->section, "class");
        int named = class != NULL ? name_find(class_words, class->value) : -1;
        bool shows = config_find(causes, entry->section, "shown") != NULL;
        config_place(causes, entry, place, sizeof place);
        if (named < 0 || config_find(causes, entry->section, "says") == NULL) {
            return err_usage(err,
                             "%s: [%s] lacks 'says' or a 'class' of ours, contradicts, "
                             "unknown, derived or instead",
                             place, entry->section);
        }
        if (shows == (named == SCORE_OURS)) {
            return err_usage(err,
                             "%s: [%s]: a row leaves by the query 'shown', and none of the "
                             "class ours does",
                             place, entry->section);
        }
    }
    return 0;
}

struct score *score_open(const struct config *papers, const struct config *causes,
                         const char *folder, struct err *err) {
    struct score *score = mem_zeroed(1, sizeof *score);
    *score = (struct score){.papers = papers,
                            .causes = causes,
                            .folder = mem_text(folder),
                            .tables = tables_open(),
                            .printed = json_array(),
                            .by_id = json_object(),
                            .found = json_array(),
                            .gone = json_object()};
    if (check_causes(causes, err) != 0 || read_papers(score, err) != 0) {
        score_close(score);
        return NULL;
    }
    return score;
}

void score_close(struct score *score) {
    if (score != NULL) {
        tables_close(score->tables);
        json_decref(score->printed);
        json_decref(score->by_id);
        json_decref(score->found);
        json_decref(score->gone);
        free(score->folder);
        free(score);
    }
}

/* ---- ours compared with it ---- */

static int know_paper(struct score *score, const char *name, struct err *err) {
    size_t i = 0;
    while (i < score->n_names && strcmp(score->names[i], name) != 0) {
        i++;
    }
    if (i == MOST_PAPERS) {
        return err_usage(err, "scores are kept of at most %d papers", MOST_PAPERS);
    }
    score->names[i] = name;
    score->n_names = i == score->n_names ? i + 1 : score->n_names;
    return 0;
}

/* Whether a result of that row has that role already: a printed number stands there once. */
static bool has_result(const struct score *score, const char *id, const char *role) {
    size_t i;
    json_t *row;
    json_array_foreach(score->found, i, row) {
        if (strcmp(text_at(row, "id"), id) == 0 && strcmp(text_at(row, "role"), role) == 0) {
            return true;
        }
    }
    return false;
}

static void add_result(struct score *score, const json_t *printed,
                       const struct paper_result *result) {
    char off[32];
    const char *id = text_at(printed, "id"), *role = paper_role_name(result->role);
    bool is_again = has_result(score, id, role);
    bool has_ours = isfinite(result->ours);
    json_array_append_new(
        score->found, json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:i, s:f, s:s}", "id", id, "paper",
                                text_at(printed, "paper"), "cause", text_at(printed, "cause"),
                                "role", is_again ? paper_role_name(PAPER_APPENDIX) : role, "ours",
                                has_ours ? json_real(result->ours) : json_null(), "reading",
                                result->reading, "verdict", (int)paper_judge(result), "distance",
                                has_ours ? paper_distance(result) : 0, "off",
                                paper_ratio_text(result, off, sizeof off)));
}

int score_add(struct score *score, const char *file, const struct paper_result *results, size_t n,
              struct err *err) {
    char id[ID_CHARS];
    for (size_t i = 0; i < n; i++) {
        id_text(file, results[i].row->line, id);
        if (json_object_get(score->by_id, id) == NULL && read_file(score, file, file, err) != 0) {
            return err_status(err);
        }
        const json_t *printed = json_object_get(score->by_id, id);
        if (know_paper(score, text_at(printed, "paper"), err) != 0) {
            return err_status(err);
        }
        add_result(score, printed, &results[i]);
    }
    return 0;
}

/* ---- what the causes show ---- */

/* Whether one of the values between `low` and `high` is within of a printed one. */
static bool reaches(double low, double high, double printed, bool is_points) {
    double nearest = fmin(fmax(printed, low), high);
    return fabs(nearest - printed) <=
           (is_points ? PAPER_POINTS_TOLERANCE : PAPER_TOLERANCE * fabs(printed));
}

/* Whether two values show that a row is of its class. */
static bool holds(enum score_class class, const json_t *answer, const json_t *row) {
    bool is_points = number_at(row, "points") != 0;
    const json_t *given = json_object_get(answer, "printed");
    double printed = json_number_value(given != NULL ? given : json_object_get(row, "value"));
    double one = number_at(answer, "one"), other = number_at(answer, "other");
    bool is_fitted = number_at(answer, "fitted") != 0;
    double apart = fabs(one - other), near = PAPER_TOLERANCE * fabs(one);
    double least = fmin(fabs(one), fabs(other)), most = fmax(fabs(one), fabs(other));
    if (class == SCORE_INSTEAD) {
        return true;
    }
    if (!json_is_number(json_object_get(answer, "one")) ||
        !json_is_number(json_object_get(answer, "other"))) {
        return false;
    }
    if (class == SCORE_DERIVED) {
        return is_points ? apart <= PAPER_POINTS_TOLERANCE : apart <= near;
    }
    if (class == SCORE_UNKNOWN &&
        !reaches(fmin(one, other), fmax(one, other), printed, is_points)) {
        return false;
    }
    if (is_points) {
        return apart > (is_fitted ? 1 : 2) * PAPER_POINTS_TOLERANCE;
    }
    return is_fitted ? apart > near : most * (1 - PAPER_TOLERANCE) > least * (1 + PAPER_TOLERANCE);
}

static int ask(struct score *score, const char *cause, enum score_class class, struct err *err) {
    const struct config_entry *shown = config_find(score->causes, cause, "shown");
    char place[256];
    json_t *answers = NULL, *answer;
    size_t i;
    config_place(score->causes, shown, place, sizeof place);
    int status = tables_select(score->tables, shown->value, place, &answers, err);
    json_array_foreach(answers, i, answer) {
        const char *id = text_at(answer, "id");
        const json_t *row = json_object_get(score->by_id, id);
        bool is_its = row != NULL && strcmp(text_at(row, "cause"), cause) == 0;
        if (is_its && holds(class, answer, row)) {
            json_object_set_new(score->gone, id, json_integer(class));
        }
    }
    json_decref(answers);
    return status;
}

/* Those in the place of others come last: they ask which have left. */
static int ask_all(struct score *score, bool instead, struct err *err) {
    const struct config_entry *entry = NULL;
    int status = 0;
    while (status == 0 && (entry = config_next(score->causes, NULL, "class", entry)) != NULL) {
        int class = name_find(class_words, entry->value);
        if (class != SCORE_OURS && (class == SCORE_INSTEAD) == instead) {
            status = ask(score, entry->section, (enum score_class) class, err);
        }
    }
    return status;
}

/* A table keeps its columns where there is no row: the first one, of no id, stands for them. */
static int add_table(struct score *score, const char *name, const json_t *rows, json_t *first,
                     struct err *err) {
    json_array_insert_new(
        first, 0,
        json_pack("{s:s, s:n, s:n, s:n, s:s}", "id", "", "ours", "reading", "role", "class", ""));
    json_array_extend(first, (json_t *)(uintptr_t)rows);
    int status = tables_add(score->tables, name, first, err);
    json_decref(first);
    return status;
}

int score_judge(struct score *score, struct err *err) {
    json_t *left = json_array(), *class;
    const char *id;
    int status = tables_add(score->tables, "printed", score->printed, err);
    status = status != 0 ? status : add_table(score, "found", score->found, json_array(), err);
    status = status != 0 ? status : ask_all(score, false, err);
    json_object_foreach(score->gone, id, class) {
        json_array_append_new(left, json_pack("{s:s, s:s}", "id", id, "class",
                                              class_words[json_integer_value(class)]));
    }
    status = status != 0 ? status : add_table(score, "gone", left, json_array(), err);
    json_decref(left);
    return status != 0 ? status : ask_all(score, true, err);
}

enum score_class score_class_of(const struct score *score, const char *id) {
    return (enum score_class)json_integer_value(json_object_get(score->gone, id));
}

/* ---- counting ---- */

/* What one result is in the end. */
struct judged {
    enum paper_role role;
    enum score_class class;
    enum paper_verdict verdict;
};

static struct judged judge(const struct score *score, const json_t *found) {
    struct judged judged = {.role = (enum paper_role)paper_role_of(text_at(found, "role")),
                            .verdict = (enum paper_verdict)number_at(found, "verdict")};
    enum score_class class = score_class_of(score, text_at(found, "id"));
    if (judged.role == PAPER_COUNTED && class == SCORE_DERIVED) {
        judged.role = PAPER_DERIVED;
    } else if (judged.role == PAPER_COUNTED && class != SCORE_INSTEAD) {
        judged.class = class;
    } else if (judged.role == PAPER_DERIVED && class == SCORE_INSTEAD) {
        judged.role = PAPER_COUNTED;
        judged.class = class;
    }
    return judged;
}

static void count(const struct judged *judged, struct score_line *line) {
    bool is_within = judged->verdict == PAPER_WITHIN;
    switch (judged->role) {
    case PAPER_CALIBRATION:
        line->calibration++;
        return;
    case PAPER_DERIVED:
        line->derived++;
        return;
    case PAPER_BOUND:
        line->bound++;
        return;
    case PAPER_APPENDIX:
        line->appendix++;
        return;
    default:
        break;
    }
    if (judged->verdict == PAPER_MISSING) {
        line->missing++;
        return;
    }
    bool has_left = judged->class == SCORE_CONTRADICTS || judged->class == SCORE_UNKNOWN;
    line->contradicts += judged->class == SCORE_CONTRADICTS;
    line->unknown += judged->class == SCORE_UNKNOWN;
    line->counted += !has_left;
    line->within += !has_left && is_within;
    line->with_left += judged->class != SCORE_INSTEAD;
    line->within_left += judged->class != SCORE_INSTEAD && is_within;
}

struct score_line score_line(const struct score *score, const char *paper) {
    struct score_line line = {0};
    size_t i;
    json_t *found;
    json_array_foreach(score->found, i, found) {
        if (paper == NULL || strcmp(paper, text_at(found, "paper")) == 0) {
            struct judged judged = judge(score, found);
            count(&judged, &line);
        }
    }
    return line;
}

bool score_has_rows(const struct score *score) {
    return score->n_names > 0;
}

/* ---- printing ---- */

static const char *share_text(size_t within, size_t of, enum paper_format format, char text[16]) {
    double share = of > 0 ? (double)within / (double)of : 0;
    text[0] = '\0';
    if (of > 0) {
        snprintf(text, 16, format == PAPER_CSV ? "%.4f" : "%.0f %%",
                 format == PAPER_CSV ? share : 100 * share);
    }
    return text;
}

static void print_line(const char *paper, const struct score_line *l, enum paper_format format,
                       FILE *out) {
    static const char *const formats[] = {
        [PAPER_TEXT] = "%-10s  %7zu  %6zu  %5s  %9zu  %6zu  %5s  %11zu  %7zu  %5zu  %7zu  %11zu  "
                       "%8zu  %7zu\n",
        [PAPER_MARKDOWN] = "| %s | %zu | %zu | %s | %zu | %zu | %s | %zu | %zu | %zu | %zu | %zu "
                           "| %zu | %zu |\n",
        [PAPER_CSV] = "%s,%zu,%zu,%s,%zu,%zu,%s,%zu,%zu,%zu,%zu,%zu,%zu,%zu\n"};
    char share[16], share_left[16];
    fprintf(out, formats[format], paper, l->counted, l->within,
            share_text(l->within, l->counted, format, share), l->with_left, l->within_left,
            share_text(l->within_left, l->with_left, format, share_left), l->contradicts,
            l->unknown, l->bound, l->derived, l->calibration, l->appendix, l->missing);
}

void score_print(const struct score *score, enum paper_format format, FILE *out) {
    static const char *const headings[] = {
        [PAPER_TEXT] = "paper       counted  within  share  with left  within  share  contradicts  "
                       "unknown  bound  derived  calibration  appendix  not run\n",
        [PAPER_MARKDOWN] = "| paper | counted | within 15 % | share | with those that left | "
                           "within 15 % | share | left: contradict | left: unknown | bound | "
                           "derived | calibration | appendix | not run |\n"
                           "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        [PAPER_CSV] = "paper,counted,within_15_percent,share,with_left,with_left_within,"
                      "with_left_share,contradicts,unknown,bound,derived,calibration,appendix,"
                      "not_run\n"};
    fputs(headings[format], out);
    for (size_t i = 0; i < score->n_names; i++) {
        struct score_line line = score_line(score, score->names[i]);
        print_line(score->names[i], &line, format, out);
    }
    struct score_line all = score_line(score, NULL);
    print_line("all", &all, format, out);
}

static void add_line(struct table *table, const char *paper, const struct score_line *l) {
    char share[16], share_left[16];
    table_add(table, "s i i s i i s i i i i i i i", paper, (int64_t)l->counted, (int64_t)l->within,
              share_text(l->within, l->counted, PAPER_TEXT, share), (int64_t)l->with_left,
              (int64_t)l->within_left,
              share_text(l->within_left, l->with_left, PAPER_TEXT, share_left),
              (int64_t)l->contradicts, (int64_t)l->unknown, (int64_t)l->bound, (int64_t)l->derived,
              (int64_t)l->calibration, (int64_t)l->appendix, (int64_t)l->missing);
}

struct table *score_table(const struct score *score) {
    struct table *table =
        table_open("paper|counted|within 15 %|share|with those that left|of these within 15 %|"
                   "their share|left: contradict|left: unknown|bound|derived|calibration|"
                   "appendix|not run");
    for (size_t i = 0; i < score->n_names; i++) {
        struct score_line line = score_line(score, score->names[i]);
        add_line(table, score->names[i], &line);
    }
    struct score_line all = score_line(score, NULL);
    add_line(table, "all", &all);
    return table;
}

/* Rows of one cause that are alike in what became of them. */
struct bundle {
    size_t rows, within;
    double distance; /* of the farthest that is missed */
    const char *off;
};

static struct bundle bundle_of(const struct score *score, const char *paper, const char *cause,
                               enum score_class class) {
    struct bundle bundle = {.off = "-"};
    size_t i;
    json_t *found;
    json_array_foreach(score->found, i, found) {
        struct judged judged = judge(score, found);
        bool is_of = strcmp(paper, text_at(found, "paper")) == 0 &&
                     strcmp(cause, text_at(found, "cause")) == 0;
        if (!is_of || judged.role != PAPER_COUNTED || judged.class != class ||
            judged.verdict == PAPER_MISSING) {
            continue;
        }
        bundle.rows++;
        bundle.within += judged.verdict == PAPER_WITHIN;
        if (judged.verdict == PAPER_BEYOND && number_at(found, "distance") >= bundle.distance) {
            bundle.distance = number_at(found, "distance");
            bundle.off = text_at(found, "off");
        }
    }
    return bundle;
}

/* Where the lines go: into a table, or to a file in a format. */
struct causes_out {
    struct table *table; /* NULL: a file */
    enum paper_format format;
    FILE *out;
};

static void print_bundle(const struct score *score, const char *paper, const char *cause,
                         enum score_class class, const struct causes_out *to) {
    static const char *const formats[] = {
        [PAPER_TEXT] = "%-10s  %-26s  %-30s  %4zu  %6zu  %13s  %s\n",
        [PAPER_MARKDOWN] = "| %s | `%s` | %s | %zu | %zu | %s | %s |\n",
        [PAPER_CSV] = "%s,%s,%s,%zu,%zu,%s,"};
    const struct config_entry *says = config_find(score->causes, cause, "says");
    const struct config_entry *is_class = config_find(score->causes, cause, "class");
    bool explains = is_class == NULL || class != SCORE_OURS ||
                    strcmp(is_class->value, class_words[SCORE_OURS]) == 0;
    char text[128];
    snprintf(text, sizeof text, "%s%s",
             explains ? "" : "not explained by: ", says != NULL ? says->value : "not found out");
    struct bundle bundle = bundle_of(score, paper, cause, class);
    if (bundle.rows == 0 || (class == SCORE_OURS && bundle.within == bundle.rows)) {
        return;
    }
    /* Of ours the hits have no cause: what is listed are misses. */
    size_t rows = class == SCORE_OURS ? bundle.rows - bundle.within : bundle.rows;
    size_t within = class == SCORE_OURS ? 0 : bundle.within;
    cause = cause[0] != '\0' ? cause : "-";
    if (to->table != NULL) {
        table_add(to->table, "s s s i i s s", paper, cause, class_names[class], (int64_t)rows,
                  (int64_t)within, bundle.off, text);
        return;
    }
    fprintf(to->out, formats[to->format], paper, cause, class_names[class], rows, within,
            bundle.off, text);
    if (to->format == PAPER_CSV) {
        output_csv_text(to->out, text);
        fputc('\n', to->out);
    }
}

static void print_bundles(const struct score *score, const struct causes_out *to) {
    static const enum score_class order[] = {SCORE_OURS, SCORE_CONTRADICTS, SCORE_UNKNOWN,
                                             SCORE_INSTEAD};
    for (size_t p = 0; p < score->n_names; p++) {
        for (size_t c = 0; c < sizeof order / sizeof order[0]; c++) {
            const struct config_entry *entry = NULL;
            while ((entry = config_next(score->causes, NULL, "class", entry)) != NULL) {
                print_bundle(score, score->names[p], entry->section, order[c], to);
            }
            print_bundle(score, score->names[p], "", order[c], to);
        }
    }
}

struct table *score_causes_table(const struct score *score) {
    struct causes_out to = {.table =
                                table_open("paper|cause|class|rows|within 15 %|farthest miss|why")};
    print_bundles(score, &to);
    return to.table;
}

void score_print_causes(const struct score *score, enum paper_format format, FILE *out) {
    static const char *const headings[] = {
        [PAPER_TEXT] = "paper       cause                       class                           "
                       "rows  within  farthest miss  why\n",
        [PAPER_MARKDOWN] = "| paper | cause | class | rows | within 15 % | farthest miss | why |\n"
                           "|---|---|---|--:|--:|--:|---|\n",
        [PAPER_CSV] = "paper,cause,class,rows,within_15_percent,farthest_miss,why\n"};
    const struct causes_out to = {.format = format, .out = out};
    fputs(headings[format], out);
    print_bundles(score, &to);
}
