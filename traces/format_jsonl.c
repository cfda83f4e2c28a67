/* JSON lines: one object a line, the same keys in every line; further keys are ignored. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "traces/format.h"

static bool jsonl_opens(const struct format *format, const struct line *first,
                        struct layout *layout) {
    (void)layout;
    json_t *object = json_loadb(first->text, first->length, JSON_REJECT_DUPLICATES, NULL);
    bool opens = json_is_object(object);
    for (int i = 0; i < N_NAMED_COLUMNS && opens; i++) {
        opens = format->columns[i] == NULL || i >= COLUMN_TENANT ||
                json_object_get(object, format->columns[i]) != NULL;
    }
    json_decref(object);
    return opens;
}

/* The value as it would be written, for a sentence. */
static int bad_value(const struct line *line, const json_t *value, const char *key,
                     const char *expected, struct err *err) {
    if (value == NULL) {
        return err_world(err, "%s:%" PRIu64 ": found an object without '%s', expected %s",
                         line->path, line->number, key, expected);
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *shown = text != NULL ? text : "";
    int status = field_bad(line, shown, strlen(shown), key, expected, err);
    free(text);
    return status;
}

static int read_count(const struct line *line, const json_t *object, const char *key, uint32_t *out,
                      struct err *err) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT32_MAX) {
        return bad_value(line, value, key, "a whole number below 2^32", err);
    }
    *out = (uint32_t)json_integer_value(value);
    return 0;
}

static int read_time(const struct line *line, const json_t *object, const char *key,
                     int64_t unit_ns, int64_t *out, struct err *err) {
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) <= FIELD_MAX_NS / unit_ns) {
        *out = json_integer_value(value) * unit_ns;
        return 0;
    }
    double ns = json_is_real(value) ? json_real_value(value) * (double)unit_ns : -1;
    if (!(ns >= 0 && ns <= (double)FIELD_MAX_NS)) {
        return bad_value(line, value, key, "a time from 0 to 146 years", err);
    }
    *out = llround(ns);
    return 0;
}

static int jsonl_parse(const struct format *format, const struct layout *layout,
                       const struct line *line, struct trace_row *row, struct err *err) {
    (void)layout;
    json_error_t reason;
    json_t *object = json_loadb(line->text, line->length, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(object)) {
        char quoted[64];
        json_decref(object);
        return err_world(err, "%s:%" PRIu64 ": found '%s'%s, expected a JSON object", line->path,
                         line->number, field_quote(line->text, line->length, quoted, sizeof quoted),
                         line->finished ? "" : " in an unfinished last line");
    }
    row->tenant = row->prefix_tokens = row->answer_tokens = 0;
    int status =
        read_time(line, object, format->columns[COLUMN_TIME], format->unit_ns, &row->time_ns, err);
    if (status == 0) {
        status = read_count(line, object, format->columns[COLUMN_INPUT], &row->input_tokens, err);
    }
    if (status == 0) {
        status = read_count(line, object, format->columns[COLUMN_OUTPUT], &row->output_tokens, err);
    }
    json_decref(object);
    return status != 0 ? status : format_check_tokens(format, line, row, err);
}

const struct family family_jsonl = {.opens = jsonl_opens, .parse = jsonl_parse};
