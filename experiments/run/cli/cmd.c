#include "experiments/run/cli/cmd.h"

#include <math.h>
#include <stdlib.h>

#include "analysis/summary.h"
#include "analysis/summary_output.h"
#include "experiments/run/cli/cautions.h"
#include "sim/base/names.h"

const struct option json_options[] = {
    {"json", NULL, "print JSON", false},
    {NULL, NULL, NULL, false},
};

const struct option format_option[] = {
    {"format", "FORMAT", FORMAT_DOC " [--json = none]", false},
    {NULL, NULL, NULL, false},
};

const struct option verbose_option[] = {
    {"verbose", NULL, "every warning in a sentence, not all of them in one line [--json = none]",
     false},
    {NULL, NULL, NULL, false},
};

int cmd_take_output(const struct options *options, struct err *err) {
    const char *word = options_text(options, "format");
    if (options_has(options, "verbose") || options_has(options, "json")) {
        cautions_verbose();
    }
    int format = word != NULL ? name_find(table_format_words, word) : TABLE_TEXT;
    if (format < 0) {
        return err_usage(err, "--format takes text, markdown, latex or csv, not '%s'", word);
    }
    return table_use_format((enum table_format)format, err);
}

int cmd_print_json(json_t *object, struct err *err) {
    char *text = summary_json_text(object, 1);
    json_decref(object);
    if (text == NULL) {
        return err_world(err,
                         "these results are no JSON: a name is no UTF-8 or a number is not finite");
    }
    fputs(text, stdout);
    free(text);
    return 0;
}

int cmd_print_table(const struct options *options, const struct table *table, struct err *err) {
    if (options_has(options, "json")) {
        return cmd_print_json(table_json(table), err);
    }
    table_print(table, stdout);
    return 0;
}

const char *cmd_text(const json_t *summary, const char *key) {
    const char *text = json_string_value(json_object_get(summary, key));
    return text != NULL ? text : "";
}

double cmd_number(const json_t *summary, const char *key, const char *inner) {
    const json_t *value = json_object_get(summary, key);
    value = inner != NULL ? json_object_get(value, inner) : value;
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}
