#include "analysis/paper/paper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/output.h"

enum { MAX_COLUMNS = 32 };

enum column {
    COLUMN_SOURCE,
    COLUMN_GPU,
    COLUMN_MODEL,
    COLUMN_DATASET,
    COLUMN_SYSTEM,
    COLUMN_SETTING,
    COLUMN_QUANTITY,
    COLUMN_VALUE,
    COLUMN_UNIT,
    COLUMN_ROLE,
    COLUMN_COMPARE,
    COLUMN_CAUSE,
    COLUMN_COUNT,
};

static const char *const paper_role_words[PAPER_N_ROLES + 1] = {"counted", "calibration", "derived",
                                                                "bound",   "appendix",    NULL};
static const char *const paper_compare_words[PAPER_N_COMPARES + 1] = {"equal", "at-most",
                                                                      "at-least", "points", NULL};

static const struct {
    const char *name, *other_name;
    bool required;
} columns[COLUMN_COUNT] = {
    [COLUMN_SOURCE] = {"source", NULL, true},
    [COLUMN_GPU] = {"gpu", NULL, false},
    [COLUMN_MODEL] = {"model", NULL, false},
    [COLUMN_DATASET] = {"dataset", NULL, false},
    [COLUMN_SYSTEM] = {"system", NULL, true},
    [COLUMN_SETTING] = {"rate_req_s", "setting", false},
    [COLUMN_QUANTITY] = {"quantity", NULL, true},
    [COLUMN_VALUE] = {"value", NULL, true},
    [COLUMN_UNIT] = {"unit", NULL, true},
    [COLUMN_ROLE] = {"role", NULL, false},
    [COLUMN_COMPARE] = {"compare", NULL, false},
    [COLUMN_CAUSE] = {"cause", NULL, false},
};

static int read_header(struct csv *csv, int places[COLUMN_COUNT], struct err *err) {
    const char *path = csv->line.path;
    bool more;
    if (csv_line(csv, &more, err) != 0) {
        return err_status(err);
    }
    csv->n_fields = more ? csv_cut(csv, err) : 0;
    if (csv->n_fields < 1 || csv->n_fields > CSV_MOST_FIELDS) {
        return err_world(err, "%s:1: there is no readable header", path);
    }
    for (int c = 0; c < COLUMN_COUNT; c++) {
        places[c] = -1;
        for (int f = 0; f < csv->n_fields; f++) {
            bool other =
                columns[c].other_name != NULL && strcmp(csv->fields[f], columns[c].other_name) == 0;
            if (strcmp(csv->fields[f], columns[c].name) == 0 || other) {
                places[c] = f;
            }
        }
        if (columns[c].required && places[c] < 0) {
            return err_world(err, "%s:1: column '%s' is missing", path, columns[c].name);
        }
    }
    return 0;
}

/* The index of a word; 0, the default, for an empty one; -1 for one that is not among them. */
static int word_index(const char *text, const char *const *words) {
    for (int i = 0; text[0] != '\0' && words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            return i;
        }
    }
    return text[0] == '\0' ? 0 : -1;
}

int paper_role_of(const char *word) {
    return word_index(word, paper_role_words);
}

const char *paper_role_name(enum paper_role role) {
    return paper_role_words[role];
}

static int read_row(struct csv *csv, const int places[COLUMN_COUNT], struct paper_row *out,
                    struct err *err) {
    const char *path = csv->line.path;
    int line_number = (int)csv->line.number;
    if (csv_row(csv, err) != 0) {
        return err_status(err);
    }
    const char *texts[COLUMN_COUNT];
    for (int c = 0; c < COLUMN_COUNT; c++) {
        texts[c] = places[c] >= 0 ? csv->fields[places[c]] : "";
    }
    *out = (struct paper_row){
        .source = texts[COLUMN_SOURCE],
        .gpu = texts[COLUMN_GPU],
        .model = texts[COLUMN_MODEL],
        .dataset = texts[COLUMN_DATASET],
        .system = texts[COLUMN_SYSTEM],
        .setting = texts[COLUMN_SETTING],
        .quantity = texts[COLUMN_QUANTITY],
        .unit = texts[COLUMN_UNIT],
        .cause = texts[COLUMN_CAUSE],
        .line = line_number,
    };
    if (!num_f64(texts[COLUMN_VALUE], &out->value)) {
        return err_world(err, "%s:%d: value '%s' is not a number", path, line_number,
                         texts[COLUMN_VALUE]);
    }
    int role = paper_role_of(texts[COLUMN_ROLE]);
    int compare = word_index(texts[COLUMN_COMPARE], paper_compare_words);
    if (role < 0) {
        return err_world(err,
                         "%s:%d: role '%s' is not counted, calibration, derived, bound or "
                         "appendix",
                         path, line_number, texts[COLUMN_ROLE]);
    }
    if (compare < 0) {
        return err_world(err, "%s:%d: compare '%s' is not equal, at-most, at-least or points", path,
                         line_number, texts[COLUMN_COMPARE]);
    }
    out->role = (enum paper_role)role;
    out->compare = (enum paper_compare)compare;
    return 0;
}

int paper_load(const char *path, struct paper *out, struct err *err) {
    struct paper paper = {.path = mem_text(path)};
    int places[COLUMN_COUNT], failed = csv_open(&paper.csv, paper.path, "paper", err);
    size_t room = 0;
    bool more;
    paper.csv.is_quoted = paper.csv.is_open_end = true;
    failed = failed == 0 ? read_header(&paper.csv, places, err) : failed;
    while (failed == 0 && (failed = csv_line(&paper.csv, &more, err)) == 0 && more) {
        if (paper.csv.line.length > 0) {
            paper.rows = mem_grown(paper.rows, paper.n_rows, &room, sizeof *paper.rows);
            failed = read_row(&paper.csv, places, &paper.rows[paper.n_rows++], err);
        }
    }
    if (failed != 0) {
        paper_fini(&paper);
        return failed;
    }
    *out = paper;
    return 0;
}

void paper_fini(struct paper *paper) {
    free(paper->path);
    csv_close(&paper->csv);
    free(paper->rows);
    *paper = (struct paper){0};
}

enum paper_verdict paper_judge(const struct paper_result *result) {
    double ours = result->ours, printed = result->row->value;
    if (!isfinite(ours)) {
        return PAPER_MISSING;
    }
    bool within;
    switch (result->row->compare) {
    case PAPER_AT_MOST:
        within = ours <= printed;
        break;
    case PAPER_AT_LEAST:
        within = ours >= printed;
        break;
    case PAPER_POINTS:
        within = fabs(ours - printed) <= PAPER_POINTS_TOLERANCE;
        break;
    default:
        within = fabs(ours - printed) <= PAPER_TOLERANCE * fabs(printed);
    }
    return within ? PAPER_WITHIN : PAPER_BEYOND;
}

double paper_distance(const struct paper_result *result) {
    double apart = fabs(result->ours - result->row->value), printed = fabs(result->row->value);
    bool is_points = result->row->compare == PAPER_POINTS;
    return apart / (is_points || printed == 0 ? PAPER_POINTS_TOLERANCE : PAPER_TOLERANCE * printed);
}

bool paper_is_two_sided(const struct paper_row *row) {
    if (row->compare == PAPER_POINTS) {
        return fabs(row->value) > PAPER_POINTS_TOLERANCE;
    }
    bool is_ratio = strcmp(row->unit, "x") == 0;
    return row->compare == PAPER_EQUAL &&
           (!is_ratio || fabs(1 - row->value) > PAPER_TOLERANCE * fabs(row->value));
}

/* The result that stands for the row of result `i`. */
static size_t declared_of(const struct paper_result *results, size_t n, size_t i,
                          const char *declared) {
    size_t first = n;
    for (size_t j = 0; j < n; j++) {
        if (results[j].row == results[i].row) {
            first = j < first ? j : first;
            if (declared[0] != '\0' && strstr(results[j].reading, declared) != NULL) {
                return j;
            }
        }
    }
    return first;
}

void paper_settle(struct paper_result *results, size_t n, const char *declared,
                  enum paper_role all) {
    for (size_t i = 0; i < n; i++) {
        struct paper_result *result = &results[i];
        if (result->role == PAPER_COUNTED) {
            result->role = result->row->role;
        }
        if (result->role != PAPER_CALIBRATION &&
            (all == PAPER_APPENDIX || declared_of(results, n, i, declared) != i)) {
            result->role = PAPER_APPENDIX;
        }
        if (result->role == PAPER_COUNTED && !paper_is_two_sided(result->row)) {
            result->role = PAPER_BOUND;
        }
    }
}

struct paper_tally paper_tally(const struct paper_result *results, size_t n) {
    struct paper_tally tally = {0};
    for (size_t i = 0; i < n; i++) {
        enum paper_verdict verdict = paper_judge(&results[i]);
        switch (results[i].role) {
        case PAPER_CALIBRATION:
            tally.calibration++;
            break;
        case PAPER_DERIVED:
            tally.derived++;
            break;
        case PAPER_BOUND:
            tally.bound++;
            break;
        case PAPER_APPENDIX:
            tally.appendix++;
            break;
        default:
            tally.missing += verdict == PAPER_MISSING;
            tally.counted += verdict != PAPER_MISSING;
            tally.within += verdict == PAPER_WITHIN;
        }
    }
    return tally;
}

const char *paper_ratio_text(const struct paper_result *result, char *text, size_t size) {
    double ours = result->ours, printed = result->row->value;
    bool is_percent = strcmp(result->row->unit, "%") == 0;
    if (!isfinite(ours) || (printed == 0 && !is_percent)) {
        snprintf(text, size, "-");
    } else if (is_percent) {
        snprintf(text, size, "%+.1f points", ours - printed);
    } else {
        snprintf(text, size, "%.3f", ours / printed);
    }
    return text;
}

enum { N_CELLS = 7, CELL_BYTES = 256 };
static const char *const headings[N_CELLS] = {"source",     "row",  "paper",      "ours",
                                              "ours/paper", "role", "within 15 %"};
static const bool is_number[N_CELLS] = {[2] = true, [3] = true, [4] = true};

static void number_text(double value, const char *unit, char *text, size_t size) {
    snprintf(text, size, "%.5g%s%s", value, unit[0] != '\0' ? " " : "", unit);
}

const char *paper_label(const struct paper_result *result, char *text, size_t size) {
    const struct paper_row *row = result->row;
    const char *const parts[] = {row->gpu,    row->model,   row->dataset,
                                 row->system, row->setting, row->quantity};
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i][0] != '\0' && strcmp(parts[i], "-") != 0 && n < size - 1) {
            n += (size_t)snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", parts[i]);
        }
    }
    if (result->reading[0] != '\0' && n < size - 1) {
        snprintf(text + n, size - n, " (%s)", result->reading);
    }
    return text;
}

static void fill_cells(const struct paper_result *result, char cells[N_CELLS][CELL_BYTES]) {
    static const char *const verdicts[] = {"not run", "yes", "no"};
    const struct paper_row *row = result->row;
    snprintf(cells[0], CELL_BYTES, "%s", row->source);
    paper_label(result, cells[1], CELL_BYTES);
    static const char *const bounds[PAPER_N_COMPARES] = {"", "<= ", ">= ", ""};
    size_t n = (size_t)snprintf(cells[2], CELL_BYTES, "%s", bounds[row->compare]);
    number_text(row->value, row->unit, cells[2] + n, CELL_BYTES - n);
    if (isfinite(result->ours)) {
        number_text(result->ours, row->unit, cells[3], CELL_BYTES);
    } else {
        snprintf(cells[3], CELL_BYTES, "-");
    }
    paper_ratio_text(result, cells[4], CELL_BYTES);
    bool has_cause = row->cause != NULL && row->cause[0] != '\0' && result->role != PAPER_APPENDIX;
    snprintf(cells[5], CELL_BYTES, "%s%s%s%s", paper_role_words[result->role],
             has_cause ? " (" : "", has_cause ? row->cause : "", has_cause ? ")" : "");
    snprintf(cells[6], CELL_BYTES, "%s", verdicts[paper_judge(result)]);
}

static void print_text(const struct paper_result *results, size_t n, FILE *out) {
    char cells[N_CELLS][CELL_BYTES];
    int widths[N_CELLS];
    for (int c = 0; c < N_CELLS; c++) {
        widths[c] = (int)strlen(headings[c]);
    }
    for (size_t i = 0; i < n; i++) {
        fill_cells(&results[i], cells);
        for (int c = 0; c < N_CELLS; c++) {
            widths[c] = (int)strlen(cells[c]) > widths[c] ? (int)strlen(cells[c]) : widths[c];
        }
    }
    for (size_t i = 0; i <= n; i++) {
        if (i > 0) {
            fill_cells(&results[i - 1], cells);
        }
        for (int c = 0; c < N_CELLS; c++) {
            const char *text = i > 0 ? cells[c] : headings[c];
            int width = c == N_CELLS - 1 ? 0 : is_number[c] ? widths[c] : -widths[c];
            fprintf(out, "%s%*s", c > 0 ? "  " : "", width, text);
        }
        fputc('\n', out);
    }
}

static void print_markdown(const struct paper_result *results, size_t n, FILE *out) {
    for (int c = 0; c < N_CELLS; c++) {
        fprintf(out, "| %s ", headings[c]);
    }
    fputs("|\n", out);
    for (int c = 0; c < N_CELLS; c++) {
        fputs(is_number[c] ? "|--:" : "|---", out);
    }
    fputs("|\n", out);
    for (size_t i = 0; i < n; i++) {
        char cells[N_CELLS][CELL_BYTES];
        fill_cells(&results[i], cells);
        for (int c = 0; c < N_CELLS; c++) {
            fputs("| ", out);
            for (const char *t = cells[c]; *t != '\0'; t++) {
                fputs(*t == '|' ? "\\|" : (char[]){*t, '\0'}, out);
            }
            fputc(' ', out);
        }
        fputs("|\n", out);
    }
    fputc('\n', out);
}

static void print_csv(const struct paper_result *results, size_t n, FILE *out) {
    static const char *const verdicts[] = {"", "yes", "no"};
    fputs("source,gpu,model,dataset,system,setting,quantity,unit,paper,ours,ratio,difference,"
          "role,compare,within_15_percent,reading,cause\n",
          out);
    for (size_t i = 0; i < n; i++) {
        const struct paper_result *result = &results[i];
        const struct paper_row *row = result->row;
        const char *const texts[] = {row->source, row->gpu,     row->model,    row->dataset,
                                     row->system, row->setting, row->quantity, row->unit};
        for (size_t c = 0; c < sizeof texts / sizeof texts[0]; c++) {
            output_csv_text(out, texts[c]);
            fputc(',', out);
        }
        fprintf(out, "%.9g,", row->value);
        if (!isfinite(result->ours)) {
            fputs(",,,", out);
        } else if (row->value == 0) {
            fprintf(out, "%.9g,,%.9g,", result->ours, result->ours);
        } else {
            fprintf(out, "%.9g,%.9g,%.9g,", result->ours, result->ours / row->value,
                    result->ours - row->value);
        }
        fprintf(out, "%s,%s,%s,", paper_role_words[result->role], paper_compare_words[row->compare],
                verdicts[paper_judge(result)]);
        output_csv_text(out, result->reading);
        fprintf(out, ",%s\n", row->cause != NULL ? row->cause : "");
    }
}

void paper_print(const struct paper_result *results, size_t n, enum paper_format format,
                 FILE *out) {
    if (format == PAPER_CSV) {
        print_csv(results, n, out);
        return;
    }
    if (format == PAPER_TEXT) {
        print_text(results, n, out);
    } else {
        print_markdown(results, n, out);
    }
    struct paper_tally tally = paper_tally(results, n);
    fprintf(out, "%zu of %zu rows within 15 %%", tally.within, tally.counted);
    const struct {
        const char *name;
        size_t n;
    } others[] = {{"calibration", tally.calibration},
                  {"derived", tally.derived},
                  {"bound", tally.bound},
                  {"appendix", tally.appendix},
                  {"not run", tally.missing}};
    const char *before = "; not counted: ";
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].n > 0) {
            fprintf(out, "%s%zu %s", before, others[i].n, others[i].name);
            before = ", ";
        }
    }
    size_t n_caused = 0;
    for (size_t i = 0; i < n; i++) {
        n_caused += results[i].role == PAPER_COUNTED && results[i].row->cause != NULL &&
                    results[i].row->cause[0] != '\0';
    }
    if (n_caused > 0) {
        fprintf(out,
                "\nof these %zu %s a cause in brackets: some leave the paper's score "
                "(`unmask figure --scores`)",
                n_caused, n_caused == 1 ? "has" : "have");
    }
    fputc('\n', out);
}

int paper_write(const struct paper_result *results, size_t n, enum paper_format format,
                const char *path, struct err *err) {
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    paper_print(results, n, format, out.file);
    return output_close(&out, true, err);
}
