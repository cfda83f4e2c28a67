#include "experiments/run/cli/table.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/base/utf8.h"

struct cell {
    char *text;
    json_t *value;
};

struct table {
    char **columns;
    size_t n_columns, column_room;
    struct cell *cells;
    size_t n_cells, room;
};

static void add_column(struct table *table, const char *name, size_t length) {
    ASSERT(table->n_cells == 0);
    table->columns =
        mem_grown(table->columns, table->n_columns, &table->column_room, sizeof *table->columns);
    table->columns[table->n_columns++] = mem_copied(name, length);
}

void table_column(struct table *table, const char *name) {
    add_column(table, name, strlen(name));
}

void table_columns(struct table *table, const char *names) {
    while (*names != '\0') {
        size_t length = strcspn(names, "|");
        add_column(table, names, length);
        names += length + (names[length] == '|');
    }
}

struct table *table_open(const char *columns) {
    struct table *table = mem_zeroed(1, sizeof *table);
    table_columns(table, columns);
    return table;
}

void table_close(struct table *table) {
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i].text);
        json_decref(table->cells[i].value);
    }
    for (size_t c = 0; c < table->n_columns; c++) {
        free(table->columns[c]);
    }
    free(table->columns);
    free(table->cells);
    free(table);
}

/* Safe for a terminal: controls become '?'. Returns it. */
static char *plain(char *text) {
    for (char *at = text; *at != '\0'; at++) {
        if (utf8_is_control(at)) {
            *at = '?';
        }
    }
    return text;
}

/* Takes `value`. */
static void add(struct table *table, const char *text, json_t *value) {
    if (table->n_cells == table->room) {
        table->room = 2 * table->room + 64;
        table->cells = mem_resized(table->cells, table->room, sizeof *table->cells);
    }
    struct cell *cell = &table->cells[table->n_cells++];
    cell->text = plain(mem_text(text));
    cell->value = mem_given(value);
}

void table_text(struct table *table, const char *text) {
    add(table, text != NULL ? text : "-", text != NULL ? json_string(text) : json_null());
}

void table_number(struct table *table, double value, const char *format) {
    char text[64] = "-";
    if (isfinite(value)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, format, value);
#pragma GCC diagnostic pop
    }
    add(table, text, isfinite(value) ? json_real(value) : json_null());
}

int three_decimals(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.2e", value); /* rounded, so that 9.996 is 10.0 */
    const char *e = strchr(text, 'e');
    int exponent = e != NULL ? atoi(e + 1) : 0;
    bool is_whole = !isfinite(value) || value == floor(value);
    return is_whole || exponent >= 2 ? 0 : exponent < -12 ? 14 : 2 - exponent;
}

const char *three_digits(double value, char text[THREE_CHARS]) {
    snprintf(text, THREE_CHARS, "%.*f", three_decimals(value), value);
    return text;
}

void table_three(struct table *table, double value) {
    char text[THREE_CHARS];
    table_shown(table, value, isfinite(value) ? three_digits(value, text) : NULL);
}

static void table_whole(struct table *table, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    add(table, text, json_integer(value));
}

void table_shown(struct table *table, double value, const char *text) {
    add(table, text != NULL ? text : "-", isfinite(value) ? json_real(value) : json_null());
}

static void table_bytes(struct table *table, double bytes) {
    char text[32];
    table_shown(table, bytes, num_format_bytes(text, sizeof text, bytes));
}

void table_add(struct table *table, const char *forms, ...) {
    va_list args;
    va_start(args, forms);
    while (*forms != '\0') {
        char form[16];
        size_t length = strcspn(forms, " ");
        snprintf(form, sizeof form, "%.*s", (int)length, forms);
        forms += length + (forms[length] == ' ');
        switch (form[0]) {
        case 's':
            table_text(table, va_arg(args, const char *));
            break;
        case 'i':
            table_whole(table, va_arg(args, int64_t));
            break;
        case 'u':
            table_whole(table, va_arg(args, uint32_t));
            break;
        case 'b':
            table_bytes(table, (double)va_arg(args, int64_t));
            break;
        case '%':
            table_number(table, va_arg(args, double), form);
            break;
        default:
            ASSERT(form[0] == '-');
            table_text(table, NULL);
        }
    }
    va_end(args);
}

/* Characters on the screen: UTF-8 continuation bytes take no room. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static void print_cell(FILE *out, const char *text, int width, int to_right, int is_last) {
    int pad = width - width_of(text);
    if (to_right) {
        fprintf(out, "%*s%s", pad, "", text);
    } else {
        fprintf(out, "%s%*s", text, is_last ? 0 : pad, "");
    }
    fputs(is_last ? "\n" : "  ", out);
}

static bool *columns_of_numbers(const struct table *table) {
    bool *numbers = mem_zeroed(table->n_columns, sizeof *numbers);
    for (size_t i = 0; i < table->n_cells; i++) {
        numbers[i % table->n_columns] |= json_is_number(table->cells[i].value);
    }
    return numbers;
}

static void print_text(const struct table *table, const bool *to_right, FILE *out) {
    size_t n = table->n_columns, n_rows = table->n_cells / n;
    int *widths = mem_zeroed(n, sizeof *widths);
    for (size_t c = 0; c < n; c++) {
        widths[c] = width_of(table->columns[c]);
        for (size_t r = 0; r < n_rows; r++) {
            int width = width_of(table->cells[r * n + c].text);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; c < n; c++) {
        print_cell(out, table->columns[c], widths[c], to_right[c], c + 1 == n);
    }
    for (size_t i = 0; i < n_rows * n; i++) {
        size_t c = i % n;
        print_cell(out, table->cells[i].text, widths[c], to_right[c], c + 1 == n);
    }
    free(widths);
}

/* A text in which each character that means something there is replaced. */
struct replaced {
    const char *from, *to;
};
static const struct replaced in_markdown[] = {{"|", "\\|"}, {NULL, NULL}};
static const struct replaced in_latex[] = {{"\\", "\\textbackslash{}"},
                                           {"&", "\\&"},
                                           {"%", "\\%"},
                                           {"$", "\\$"},
                                           {"#", "\\#"},
                                           {"_", "\\_"},
                                           {"{", "\\{"},
                                           {"}", "\\}"},
                                           {"~", "$\\sim$"},
                                           {"^", "\\textasciicircum{}"},
                                           {"<", "$<$"}, /* other signs in TeX's first fonts */
                                           {">", "$>$"},
                                           {"|", "$|$"},
                                           {"±", "$\\pm$"},
                                           {NULL, NULL}};

/* The first character of a text, or what stands for it; returns the text after it. */
static const char *put_first(const char *text, const struct replaced *table, FILE *out) {
    const struct replaced *r = table;
    while (r->from != NULL && strncmp(text, r->from, strlen(r->from)) != 0) {
        r++;
    }
    if (r->from != NULL) {
        fputs(r->to, out);
        return text + strlen(r->from);
    }
    fputc(*text, out);
    return text + 1;
}

static void put_markdown(const char *text, FILE *out) {
    while (*text != '\0') {
        text = put_first(text, in_markdown, out);
    }
}

/* With a minus before numbers, and a dash where there is none. */
static void put_latex(const char *text, FILE *out) {
    if (strcmp(text, "-") == 0) {
        fputs("--", out);
        return;
    }
    for (char before = ' '; *text != '\0';) {
        const bool is_minus =
            *text == '-' && (before == ' ' || before == '(') && isdigit((unsigned char)text[1]);
        before = *text;
        if (is_minus) {
            fputs("$-$", out);
            text++;
        } else {
            text = put_first(text, in_latex, out);
        }
    }
}

/* Of whole rows. */
static size_t cells_of_rows(const struct table *table) {
    ASSERT(table->n_columns > 0);
    return table->n_cells - table->n_cells % table->n_columns;
}

static void print_markdown(const struct table *table, const bool *to_right, FILE *out) {
    size_t n = table->n_columns;
    for (size_t c = 0; c < n; c++) {
        fputs("| ", out);
        put_markdown(table->columns[c], out);
        fputs(c + 1 < n ? " " : " |\n", out);
    }
    for (size_t c = 0; c < n; c++) {
        fprintf(out, "|%s%s", to_right[c] ? "--:" : "---", c + 1 < n ? "" : "|\n");
    }
    for (size_t i = 0; i < cells_of_rows(table); i++) {
        fputs("| ", out);
        put_markdown(table->cells[i].text, out);
        fputs(i % n + 1 < n ? " " : " |\n", out);
    }
}

static void print_latex(const struct table *table, const bool *to_right, FILE *out) {
    size_t n = table->n_columns;
    fputs("\\begin{tabular}{", out);
    for (size_t c = 0; c < n; c++) {
        fputc(to_right[c] ? 'r' : 'l', out);
    }
    fputs("}\n\\toprule\n", out);
    for (size_t c = 0; c < n; c++) {
        put_latex(table->columns[c], out);
        fputs(c + 1 < n ? " & " : " \\\\\n\\midrule\n", out);
    }
    for (size_t i = 0; i < cells_of_rows(table); i++) {
        put_latex(table->cells[i].text, out);
        fputs(i % n + 1 < n ? " & " : " \\\\\n", out);
    }
    fputs("\\bottomrule\n\\end{tabular}\n", out);
}

static void print_csv(const struct table *table, FILE *out) {
    size_t n = table->n_columns;
    for (size_t c = 0; c < n; c++) {
        output_csv_text(out, table->columns[c]);
        fputc(c + 1 < n ? ',' : '\n', out);
    }
    for (size_t i = 0; i < cells_of_rows(table); i++) {
        const json_t *value = table->cells[i].value;
        if (json_is_integer(value)) {
            fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        } else if (json_is_real(value)) {
            fprintf(out, "%.9g", json_real_value(value));
        } else if (!json_is_null(value)) {
            output_csv_text(out, table->cells[i].text);
        }
        fputc(i % n + 1 < n ? ',' : '\n', out);
    }
}

const char *const table_format_words[] = {"text", "markdown", "latex", "csv", NULL};

/* Once before the first table. */
static enum table_format used = TABLE_TEXT;
static FILE *tables; /* where they are printed; NULL: on standard output */
static size_t n_printed;

int table_use_format(enum table_format format, struct err *err) {
    if (format == TABLE_TEXT) {
        return 0;
    }
    fflush(stdout);
    int output = dup(STDOUT_FILENO);
    tables = output < 0 ? NULL : fdopen(output, "w");
    if (tables == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return err_world(err, "cannot print tables apart: %s", strerror(errno));
    }
    used = format;
    return 0;
}

bool table_is_text(void) {
    return used == TABLE_TEXT;
}

bool table_is_csv(void) {
    return used == TABLE_CSV;
}

bool table_flush(void) {
    return tables == NULL || (fflush(tables) == 0 && !ferror(tables));
}

void table_print(const struct table *table, FILE *out) {
    bool *numbers = columns_of_numbers(table);
    if (used == TABLE_TEXT || out != stdout) {
        print_text(table, numbers, out);
    } else {
        fputs(n_printed++ > 0 ? "\n" : "", tables);
        if (used == TABLE_MARKDOWN) {
            print_markdown(table, numbers, tables);
        } else if (used == TABLE_LATEX) {
            print_latex(table, numbers, tables);
        } else {
            print_csv(table, tables);
        }
    }
    free(numbers);
}

json_t *table_json(const struct table *table) {
    size_t n = table->n_columns;
    json_t *rows = json_array();
    for (size_t r = 0; r < table->n_cells / n; r++) {
        json_t *row = json_object();
        for (size_t c = 0; c < n; c++) {
            json_object_set(row, table->columns[c], table->cells[r * n + c].value);
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

void said_add(struct said *said, const char *name, char *text) {
    char *rest = NULL;
    said->lines = said->lines != NULL ? said->lines : json_object();
    said->n++;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (json_object_get(said->lines, line) == NULL) {
            json_object_set_new(said->lines, line, json_array());
        }
        json_array_append_new(json_object_get(said->lines, line), json_string(name));
    }
}

/* How wide the first word of a line is: what it is about. */
enum { LABEL_CHARS = 13 };

/* "(a; b)", of those of whom a line is where it is not of all; a name may hold commas. */
static void print_line(const char *line, const json_t *names, size_t n, FILE *out) {
    const bool is_of_some = json_array_size(names) < n;
    fputs(line, out);
    for (size_t i = 0; is_of_some && i < json_array_size(names); i++) {
        fprintf(out, "%s%s", i == 0 ? " (" : "; ", json_string_value(json_array_get(names, i)));
    }
    fputs(is_of_some ? ")\n" : "\n", out);
}

/* Whether an earlier line than that at `at` begins so. */
static bool is_begun(json_t *lines, void *at) {
    const char *label = json_object_iter_key(at);
    for (void *i = json_object_iter(lines); i != at; i = json_object_iter_next(lines, i)) {
        if (strncmp(json_object_iter_key(i), label, LABEL_CHARS) == 0) {
            return true;
        }
    }
    return false;
}

/* Lines about the same stand together, where the first of them came. */
void said_print(struct said *said, FILE *out) {
    json_t *lines = said->lines;
    for (void *i = json_object_iter(lines); i != NULL; i = json_object_iter_next(lines, i)) {
        const char *label = json_object_iter_key(i);
        for (void *k = is_begun(lines, i) ? NULL : i; k != NULL;
             k = json_object_iter_next(lines, k)) {
            if (strncmp(json_object_iter_key(k), label, LABEL_CHARS) == 0) {
                print_line(json_object_iter_key(k), json_object_iter_value(k), said->n, out);
            }
        }
    }
    json_decref(lines);
    *said = (struct said){0};
}
