/* JSON lines: one object a line, the same keys in every line; further keys are ignored. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "traces/format/format.h"

static bool jsonl_opens(const struct format *format, const struct line *first,
                        struct layout *layout) {
    (void)layout;
    json_t *object = json_loadb(first->text, first->length, JSON_REJECT_DUPLICATES, NULL);
    bool opens = json_is_object(object);
    for (int i = 0; i < N_NAMED_COLUMNS && opens; i++) {
        opens = format->columns[i] == NULL || (i >= COLUMN_TENANT && !format->needs_all) ||
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
    if (unit_ns == 0) {
        const char *date = json_string_value(value);
        return date != NULL && field_date_ns(date, strlen(date), out)
                   ? 0
                   : bad_value(line, value, key, "a date and time such as 2023-11-16 18:15:46.68",
                               err);
    }
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

/* The line in which an id was first: this one, where it was not there before. */
static uint64_t first_line(struct seen *seen, uint64_t id, uint64_t line) {
    if (2 * seen->n >= seen->room) {
        struct seen larger = {.room = 2 * seen->room + 1024};
        larger.ids = mem_zeroed(larger.room, sizeof *larger.ids);
        for (size_t i = 0; i < seen->room; i++) {
            if (seen->ids[i].line != 0) {
                (void)first_line(&larger, seen->ids[i].id, seen->ids[i].line);
            }
        }
        free(seen->ids);
        *seen = larger;
    }
    ASSERT(seen->room > 0);
    size_t at = (size_t)(id * UINT64_C(0x9E3779B97F4A7C15) >> 20) % seen->room;
    while (seen->ids[at].line != 0 && seen->ids[at].id != id) {
        at = (at + 1) % seen->room;
    }
    if (seen->ids[at].line == 0) {
        seen->n++;
        seen->ids[at] = (struct seen_id){id, line};
    }
    return seen->ids[at].line;
}

static uint64_t name_line(uint64_t line) {
    return (line * UINT64_C(0xBF58476D1CE4E5B9)) | 1;
}

/* Each id stands for a block of the prompt and all before it: those at the front that an earlier
 * row had are a prefix that both begin with, and the row is named that had the last of them first.
 */
static int read_hashes(const struct line *line, const json_t *object, uint32_t hash_tokens,
                       struct seen *seen, struct trace_row *row, struct err *err) {
    const json_t *ids = json_object_get(object, "hash_ids");
    bool is_shared = true;
    uint64_t shared = 0;
    row->shares = row->leaves = 0;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0) {
            return bad_value(line, id, "hash_ids", "whole numbers from 0", err);
        }
        uint64_t first = first_line(seen, (uint64_t)json_integer_value(id), line->number);
        is_shared = is_shared && first != line->number;
        shared += is_shared ? hash_tokens : 0;
        row->shares = is_shared ? name_line(first) : row->shares;
        row->leaves = name_line(line->number);
    }
    if (ids != NULL && !json_is_array(ids)) {
        return bad_value(line, ids, "hash_ids", "a list of whole numbers", err);
    }
    row->prefix_tokens = shared < row->input_tokens ? (uint32_t)shared : row->input_tokens;
    return 0;
}

/* The name of a session or a group is a text or a whole number; null and a missing key are none. */
static int read_name(const struct line *line, const json_t *object, const char *key, uint64_t *name,
                     struct err *err) {
    const json_t *value = key != NULL ? json_object_get(object, key) : NULL;
    *name = 0;
    if (json_is_string(value)) {
        *name = format_session(json_string_value(value), json_string_length(value));
    } else if (json_is_integer(value)) {
        char text[32];
        int n = snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        *name = format_session(text, (size_t)n);
    } else if (value != NULL && !json_is_null(value)) {
        return bad_value(line, value, key, "a text or a whole number", err);
    }
    return 0;
}

static int read_session(const struct format *format, const struct line *line, const json_t *object,
                        struct trace_row *row, struct err *err) {
    const char *think = format->columns[COLUMN_THINK];
    row->think_ns = -1;
    if (read_name(line, object, format->columns[COLUMN_SESSION], &row->session, err) != 0 ||
        read_name(line, object, format->columns[COLUMN_GROUP], &row->prefix_group, err) != 0) {
        return err_status(err);
    }
    const json_t *value = think != NULL ? json_object_get(object, think) : NULL;
    return value == NULL || json_is_null(value)
               ? 0
               : read_time(line, object, think, format->think_unit_ns, &row->think_ns, err);
}

static int jsonl_parse(const struct format *format, const struct layout *layout,
                       const struct line *line, struct trace_row *row, struct err *err) {
    json_error_t reason;
    json_t *object = json_loadb(line->text, line->length, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(object)) {
        char quoted[64];
        json_decref(object);
        return err_world(err, "%s:%" PRIu64 ": found '%s'%s, expected a JSON object", line->path,
                         line->number, field_quote(line->text, line->length, quoted, sizeof quoted),
                         line->finished ? "" : " in an unfinished last line");
    }
    uint32_t *const counts[N_COUNTS] = {
        [COLUMN_INPUT] = &row->input_tokens,   [COLUMN_OUTPUT] = &row->output_tokens,
        [COLUMN_TENANT] = &row->tenant,        [COLUMN_PREFIX] = &row->prefix_tokens,
        [COLUMN_ANSWER] = &row->answer_tokens,
    };
    const char *time = format->columns[COLUMN_TIME];
    int status =
        time != NULL ? read_time(line, object, time, format->unit_ns, &row->time_ns, err) : 0;
    status = status == 0 ? read_session(format, line, object, row, err) : status;
    for (int c = COLUMN_INPUT; status == 0 && c < N_COUNTS; c++) {
        *counts[c] = 0;
        if (format->columns[c] != NULL) {
            status = read_count(line, object, format->columns[c], counts[c], err);
        }
    }
    status = status == 0 && format->hash_tokens > 0
                 ? read_hashes(line, object, format->hash_tokens, layout->seen, row, err)
                 : status;
    status = status == 0
                 ? format_check_parts(line, row, format->columns[COLUMN_ANSWER] != NULL, err)
                 : status;
    json_decref(object);
    return status != 0 ? status : format_check_tokens(format, line, row, err);
}

const struct family family_jsonl = {.opens = jsonl_opens, .parse = jsonl_parse};
