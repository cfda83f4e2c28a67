/* A format that the user names column by column. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "traces/format/format.h"

const char *const column_words[] = {"time",   "input",    "output",   "tenant",    "prefix",
                                    "answer", "session",  "think",    "parent",    "hashes",
                                    "group",  "deadline", "priority", "predicted", NULL};

static const struct {
    const char *word;
    int64_t ns;
} units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"date", UNIT_DATE}};
enum { N_UNITS = sizeof units / sizeof units[0] };

const char *unit_word(int64_t unit_ns) {
    for (size_t i = 0; i < N_UNITS; i++) {
        if (units[i].ns == unit_ns) {
            return units[i].word;
        }
    }
    return NULL;
}

bool unit_find(const char *word, size_t length, int64_t *unit_ns) {
    for (size_t i = 0; i < N_UNITS; i++) {
        if (strlen(units[i].word) == length && memcmp(units[i].word, word, length) == 0) {
            *unit_ns = units[i].ns;
            return true;
        }
    }
    return false;
}

/* "ts:ms": ends the name where its unit begins. Only times of arrival may be dates. */
static int read_unit(char *name, const char *word, bool is_arrival, bool may_lack, int64_t *unit_ns,
                     struct err *err) {
    char *colon = strrchr(name, ':');
    int64_t found;
    if (colon != NULL && colon > name && unit_find(colon + 1, strlen(colon + 1), &found) &&
        (found != UNIT_DATE || is_arrival)) {
        *colon = '\0';
        *unit_ns = found;
        return 0;
    }
    return may_lack
               ? 0
               : err_usage(err, "--columns: '%s=%s' lacks its unit: %s=NAME:s, or ms, us, ns%s",
                           word, name, word, is_arrival ? ", date" : "");
}

/* "input=prompt_tokens" */
static int read_column(const char *text, size_t length, bool has_unit, struct format *out,
                       struct err *err) {
    const char *equals = memchr(text, '=', length);
    size_t n = equals != NULL ? (size_t)(equals - text) : length;
    char word[16], hint[NAME_HINT_CHARS];
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    int column = name_find(column_words, word);
    if (equals == NULL || column < 0 || n + 1 == length) {
        return err_usage(err,
                         "--columns: '%.*s' is not COLUMN=NAME with time, input, output, "
                         "answer, tenant, prefix, session, think, parent, hashes, group, deadline, "
                         "priority or predicted%s",
                         (int)length, text, column < 0 ? name_hint(word, column_words, hint) : "");
    }
    if (out->columns[column] != NULL) {
        return err_usage(err, "--columns: %s is named twice", word);
    }
    char *name = mem_copied(equals + 1, length - n - 1);
    out->columns[column] = name;
    return column == COLUMN_TIME ? read_unit(name, word, true, has_unit, &out->unit_ns, err)
           : column == COLUMN_THINK
               ? read_unit(name, word, false, has_unit, &out->think_unit_ns, err)
               : 0;
}

int format_from_columns(const char *columns, bool is_json, bool has_unit, struct format *out,
                        struct err *err) {
    *out = (struct format){.name = "columns",
                           .family = is_json ? &family_jsonl : &family_csv,
                           .unit_ns = has_unit ? UNIT_ASKED : 1,
                           .think_unit_ns = UNIT_ASKED,
                           .by_user = true};
    int status = 0;
    const char *word;
    size_t length;
    for (const char *rest = columns; status == 0 && name_next(&rest, ",", &word, &length);) {
        status = read_column(word, length, has_unit, out, err);
    }
    for (int c = COLUMN_INPUT; status == 0 && c <= COLUMN_OUTPUT; c++) {
        if (out->columns[c] == NULL) {
            status = err_usage(err, "--columns: %s is missing", column_words[c]);
        }
    }
    if (status == 0 && out->columns[COLUMN_PARENT] != NULL &&
        out->columns[COLUMN_SESSION] == NULL) {
        status =
            err_usage(err, "--columns: parent needs session=NAME, what a row itself is called");
    }
    if (status != 0) {
        format_forget(out);
    }
    return status;
}

void format_forget(struct format *format) {
    for (int c = 0; c < N_NAMED_COLUMNS; c++) {
        free((char *)format->columns[c]);
        format->columns[c] = NULL;
    }
}

/* ---- which rows count ---- */

int conditions_read(const char *text, struct condition out[MAX_WHERE], int *n, struct err *err) {
    const char *word;
    size_t length;
    *n = 0;
    for (const char *rest = text; rest != NULL && name_next(&rest, ",", &word, &length);) {
        const char *equals = memchr(word, '=', length), *const end = word + length;
        size_t before = equals != NULL ? (size_t)(equals - word) : 0;
        bool is_not = before > 1 && word[before - 1] == '!';
        if (before == 0 || *n == MAX_WHERE) {
            conditions_free(out, *n);
            *n = 0;
            return err_usage(err,
                             "--where: '%.*s' is not NAME=VALUE or NAME!=VALUE, up to %d of them",
                             (int)length, word, MAX_WHERE);
        }
        const char *value = equals + 1;
        value += value < end && *value == '='; /* NAME==VALUE */
        out[*n] = (struct condition){mem_copied(word, before - is_not),
                                     mem_copied(value, (size_t)(end - value)), is_not};
        ++*n;
    }
    return 0;
}

void conditions_free(struct condition conditions[], int n) {
    for (int i = 0; i < n; i++) {
        free(conditions[i].name);
        free(conditions[i].value);
    }
}
