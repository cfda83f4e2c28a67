/* A format that the user names column by column. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "traces/format/format.h"

/* By enum column. */
static const char *const column_words[] = {"time",   "input",   "output", "tenant", "prefix",
                                           "answer", "session", "think",  "group",  NULL};

static const struct {
    const char *word;
    int64_t ns;
} units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"date", 0}};

/* "ts:ms": ends the name where its unit begins. Only times of arrival may be dates. */
static int read_unit(char *name, const char *word, bool may_be_date, int64_t *unit_ns,
                     struct err *err) {
    char *colon = strrchr(name, ':');
    for (size_t i = 0; colon != NULL && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(colon + 1, units[i].word) == 0 && colon > name &&
            (units[i].ns > 0 || may_be_date)) {
            *colon = '\0';
            *unit_ns = units[i].ns;
            return 0;
        }
    }
    return err_usage(err, "--columns: '%s=%s' lacks its unit: %s=NAME:s, or ms, us, ns%s", word,
                     name, word, may_be_date ? ", date" : "");
}

/* "input=prompt_tokens" */
static int read_column(const char *text, size_t length, struct format *out, struct err *err) {
    const char *equals = memchr(text, '=', length);
    size_t n = equals != NULL ? (size_t)(equals - text) : length;
    char word[16], hint[NAME_HINT_CHARS];
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    int column = name_find(column_words, word);
    if (equals == NULL || column < 0 || n + 1 == length) {
        return err_usage(err,
                         "--columns: '%.*s' is not COLUMN=NAME with time, input, output, "
                         "answer, tenant, prefix, session, think or group%s",
                         (int)length, text, column < 0 ? name_hint(word, column_words, hint) : "");
    }
    if (out->columns[column] != NULL) {
        return err_usage(err, "--columns: %s is named twice", word);
    }
    char *name = mem_copied(equals + 1, length - n - 1);
    out->columns[column] = name;
    return column == COLUMN_TIME    ? read_unit(name, word, true, &out->unit_ns, err)
           : column == COLUMN_THINK ? read_unit(name, word, false, &out->think_unit_ns, err)
                                    : 0;
}

int format_from_columns(const char *columns, bool is_json, struct format *out, struct err *err) {
    *out = (struct format){.name = "columns",
                           .family = is_json ? &family_jsonl : &family_csv,
                           .unit_ns = 1,
                           .needs_all = true};
    int status = 0;
    const char *word;
    size_t length;
    for (const char *rest = columns; status == 0 && name_next(&rest, ",", &word, &length);) {
        status = read_column(word, length, out, err);
    }
    for (int c = COLUMN_INPUT; status == 0 && c <= COLUMN_OUTPUT; c++) {
        if (out->columns[c] == NULL) {
            status = err_usage(err, "--columns: %s is missing", column_words[c]);
        }
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
