/* From the values of a record to a row: the same for every family. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "traces/format/format.h"

/* A row on its way. */
struct reading {
    const struct format *format;
    struct layout *layout;
    const struct record *record;
};

/* Not the space of a number's text, which every row would clear for nothing. */
static void clear(struct value *value) {
    value->kind = VALUE_NONE;
    value->text = NULL;
    value->length = 0;
    value->json = NULL;
}

/* A value's text may be its own: it is filled where it stays. */
static void look_up(const struct reading *r, const struct place *place, struct value *out) {
    clear(out);
    r->format->family->look_up(r->record, place, out);
}

static void column(const struct reading *r, enum column which, struct value *out) {
    clear(out);
    if (r->layout->at[which].name != NULL) {
        look_up(r, &r->layout->at[which], out);
        r->layout->had |= out->kind != VALUE_NONE ? 1u << which : 0;
    }
}

/* The value as it is written, for a sentence. */
static int bad(const struct reading *r, enum column which, const struct value *value,
               const char *expected, struct err *err) {
    const struct line *line = r->record->line;
    const char *name = r->layout->at[which].name;
    if (value->kind == VALUE_NONE) {
        return err_world(err, "%s:%" PRIu64 ": found an object without '%s', expected %s",
                         line->path, line->number, name, expected);
    }
    bool is_json = r->record->object != NULL && value->json != NULL && value->length == 0;
    char *text = is_json || (r->record->object != NULL && value->kind == VALUE_TEXT)
                     ? json_dumps(value->json, JSON_ENCODE_ANY | JSON_COMPACT)
                     : NULL;
    const char *shown = text != NULL ? text : value->text;
    int status =
        field_bad(line, shown, text != NULL ? strlen(text) : value->length, name, expected, err);
    free(text);
    return status;
}

static bool is_numeral(const struct reading *r, const struct value *value) {
    return value->kind == VALUE_NUMBER || (value->kind == VALUE_TEXT && r->record->object == NULL);
}

/* Tables in which some rows lack a number write the others with a point: 12.0 is 12. */
static size_t whole_length(const struct value *value) {
    size_t n = value->length;
    while (n > 0 && value->text[n - 1] == '0') {
        n--;
    }
    bool is_whole = n > 1 && n < value->length && value->text[n - 1] == '.';
    return is_whole ? n - 1 : value->length;
}

static int read_count(const struct reading *r, enum column which, uint32_t *out, struct err *err) {
    struct value value;
    column(r, which, &value);
    *out = 0;
    return is_numeral(r, &value) && field_u32(value.text, whole_length(&value), out)
               ? 0
               : bad(r, which, &value, "a whole number below 2^32", err);
}

/* Those that a file may lack, and JSON lines one by one; of an answer 0 is no count. */
static int read_optional(const struct reading *r, enum column which, uint32_t *out,
                         struct err *err) {
    struct value value;
    column(r, which, &value);
    *out = 0;
    bool is_missing =
        value.kind == VALUE_NONE || (value.kind == VALUE_NULL && r->record->object != NULL);
    return is_missing ? 0 : read_count(r, which, out, err);
}

/* The same, where an empty field of CSV says nothing, too. */
static int read_mark(const struct reading *r, enum column which, uint32_t *out, struct err *err) {
    struct value value;
    column(r, which, &value);
    *out = 0;
    bool is_empty = value.kind <= VALUE_NULL || (value.kind == VALUE_TEXT && value.length == 0);
    return is_empty ? 0 : read_count(r, which, out, err);
}

static int read_time(const struct reading *r, enum column which, int64_t unit_ns, int64_t *out,
                     struct err *err) {
    struct value value;
    column(r, which, &value);
    if (unit_ns == UNIT_DATE) {
        return (value.kind == VALUE_TEXT || value.kind == VALUE_NUMBER) &&
                       field_date_ns(value.text, value.length, out)
                   ? 0
                   : bad(r, which, &value, FIELD_DATE_EXPECTED, err);
    }
    return is_numeral(r, &value) && field_time_ns(value.text, value.length, unit_ns, out)
               ? 0
               : bad(r, which, &value, "a time from 0 to 146 years", err);
}

/* ---- sessions ---- */

uint64_t format_session(const char *text, size_t length) {
    char *name = mem_copied(text, length);
    uint64_t session = hash_text(name);
    free(name);
    return session != 0 ? session : 1;
}

/* 0 where the row names none. */
static int read_name(const struct reading *r, enum column which, uint64_t *out, struct err *err) {
    struct value value;
    column(r, which, &value);
    *out = 0;
    if (value.kind == VALUE_NONE || value.kind == VALUE_NULL) {
        return 0;
    }
    if (value.kind == VALUE_NUMBER) {
        value.length = whole_length(&value);
    }
    bool is_whole = value.kind == VALUE_NUMBER && memchr(value.text, '.', value.length) == NULL;
    if (value.kind != VALUE_TEXT && !is_whole) {
        return bad(r, which, &value, "a text or a whole number", err);
    }
    /* Below 0: none, where numbers name rows. */
    if (which == COLUMN_PARENT && value.text[0] == '-') {
        return 0;
    }
    *out = format_session(value.text, value.length);
    return 0;
}

/* A row that names the one before it is a turn of that one's session. */
static int read_session(const struct reading *r, struct trace_row *row, struct err *err) {
    uint64_t own, parent = 0;
    if (read_name(r, COLUMN_SESSION, &own, err) != 0 ||
        (r->layout->at[COLUMN_PARENT].name != NULL &&
         read_name(r, COLUMN_PARENT, &parent, err) != 0)) {
        return err_status(err);
    }
    row->session = own;
    if (read_name(r, COLUMN_GROUP, &row->prefix_group, err) != 0) {
        return err_status(err);
    }
    if (r->layout->at[COLUMN_PARENT].name != NULL && own != 0) {
        const int64_t *root = known_find(&r->layout->roots, parent);
        bool is_new;
        row->session = parent == 0 ? own : root != NULL ? (uint64_t)*root : parent;
        *known_add(&r->layout->roots, own, &is_new) = (int64_t)row->session;
    }
    row->think_ns = -1;
    struct value think;
    column(r, COLUMN_THINK, &think);
    return think.kind == VALUE_NONE || think.kind == VALUE_NULL
               ? 0
               : read_time(r, COLUMN_THINK, r->layout->think_unit_ns, &row->think_ns, err);
}

/* When it arrives. A later turn of a session need not say: it comes so long after the turn before
 * it has ended as it says, at once where it does not say that either. */
static int read_arrival(const struct reading *r, struct trace_row *row, struct err *err) {
    struct layout *layout = r->layout;
    if (layout->at[COLUMN_TIME].name == NULL) {
        row->time_ns = 0;
        return 0;
    }
    struct value time;
    column(r, COLUMN_TIME, &time);
    bool is_missing = time.kind == VALUE_NONE || time.kind == VALUE_NULL;
    const int64_t *before = row->session != 0 ? known_find(&layout->sessions, row->session) : NULL;
    if (is_missing && before != NULL) {
        row->time_ns = *before;
        row->think_ns = row->think_ns >= 0 ? row->think_ns : 0;
    } else if (read_time(r, COLUMN_TIME, layout->unit_ns, &row->time_ns, err) != 0) {
        return err_status(err);
    }
    if (row->session != 0) {
        bool is_new;
        *known_add(&layout->sessions, row->session, &is_new) = row->time_ns;
    }
    return 0;
}

/* When it should be finished, after it arrives, in the unit of that time. */
static int read_deadline(const struct reading *r, struct trace_row *row, struct err *err) {
    struct value value;
    int64_t deadline_ns = 0;
    column(r, COLUMN_DEADLINE, &value);
    if (value.kind == VALUE_NONE || value.kind == VALUE_NULL ||
        (value.kind == VALUE_TEXT && value.length == 0)) {
        return 0;
    }
    if (read_time(r, COLUMN_DEADLINE, r->layout->unit_ns, &deadline_ns, err) != 0) {
        return err_status(err);
    }
    row->due_ns = deadline_ns - row->time_ns;
    return row->due_ns > 0 ? 0
                           : bad(r, COLUMN_DEADLINE, &value, "a deadline after the arrival", err);
}

/* ---- hash ids ---- */

/* The list: JSON's, or its text in a field of CSV. NULL: the row has none. The caller releases it.
 */
static int hash_list(const struct layout *layout, const struct record *record,
                     const struct family *family, json_t **out, struct err *err) {
    struct value value = {.kind = VALUE_NONE};
    *out = NULL;
    if (layout->at[COLUMN_HASHES].name == NULL) {
        return 0;
    }
    family->look_up(record, &layout->at[COLUMN_HASHES], &value);
    if (value.kind == VALUE_NONE || value.kind == VALUE_NULL) {
        return 0;
    }
    json_error_t ignored;
    *out = value.kind == VALUE_OTHER ? json_incref((json_t *)value.json)
           : record->object == NULL  ? json_lenient(value.text, value.length, 0, &ignored)
                                     : NULL;
    if (json_is_array(*out)) {
        return 0;
    }
    json_decref(*out);
    *out = NULL;
    return field_bad(record->line, value.text, value.length, layout->at[COLUMN_HASHES].name,
                     "a list of whole numbers", err);
}

int row_hashes(const struct layout *layout, const struct record *record,
               const struct family *family, uint32_t *n, struct err *err) {
    json_t *ids;
    int status = hash_list(layout, record, family, &ids, err);
    *n = (uint32_t)json_array_size(ids);
    json_decref(ids);
    return status;
}

/* An id is a whole number from 0 or a text. */
static int read_hash(const struct reading *r, const json_t *json, uint64_t *out, struct err *err) {
    struct value value;
    json_value((json_t *)json, &value);
    if (value.kind == VALUE_TEXT ||
        (value.kind == VALUE_NUMBER && strspn(value.text, "0123456789") == value.length)) {
        bool fits = json_is_integer(json);
        *out = fits ? (uint64_t)json_integer_value(json) : format_session(value.text, value.length);
        return 0;
    }
    return bad(r, COLUMN_HASHES, &value, "whole numbers from 0", err);
}

static uint64_t name_line(uint64_t line) {
    return (line * UINT64_C(0xBF58476D1CE4E5B9)) | 1;
}

/* Each id stands for a block of the prompt and all before it: those at the front that an earlier
 * row had are a prefix that both begin with, and the row is named that had the last of them first.
 */
static int read_hashes(const struct reading *r, struct trace_row *row, struct err *err) {
    json_t *ids;
    int status = hash_list(r->layout, r->record, r->format->family, &ids, err);
    bool is_shared = true;
    uint64_t shared = 0;
    for (size_t i = 0; status == 0 && i < json_array_size(ids); i++) {
        uint64_t id = 0;
        bool is_new = true;
        status = read_hash(r, json_array_get(ids, i), &id, err);
        if (status == 0) {
            const uint64_t line = r->record->line->number;
            int64_t *first = known_add(&r->layout->hashes, id, &is_new);
            *first = is_new ? (int64_t)line : *first;
            is_shared = is_shared && *first != (int64_t)line;
            shared += is_shared ? r->layout->hash_tokens : 0;
            row->shares = is_shared ? name_line((uint64_t)*first) : row->shares;
            row->leaves = name_line(line);
        }
    }
    if (ids != NULL) {
        row->prefix_tokens = shared < row->input_tokens ? (uint32_t)shared : row->input_tokens;
    }
    json_decref(ids);
    return status;
}

/* ---- the rest ---- */

/* Numbers are as they are; texts are numbered as they come. */
static int read_tenant(const struct reading *r, struct trace_row *row, struct err *err) {
    struct layout *layout = r->layout;
    if (!layout->named_tenants) {
        return read_optional(r, COLUMN_TENANT, &row->tenant, err);
    }
    struct value value;
    column(r, COLUMN_TENANT, &value);
    if (value.kind != VALUE_TEXT && value.kind != VALUE_NUMBER && value.kind != VALUE_NULL &&
        value.kind != VALUE_NONE) {
        return bad(r, COLUMN_TENANT, &value, "a text or a whole number", err);
    }
    bool is_named = value.kind == VALUE_TEXT || value.kind == VALUE_NUMBER, is_new;
    int64_t *number = known_add(&layout->tenants,
                                is_named ? format_session(value.text, value.length) : 0, &is_new);
    if (is_new) {
        *number = layout->n_tenants++;
    }
    row->tenant = (uint32_t)*number;
    return 0;
}

static int read_prefix(const struct reading *r, struct trace_row *row, struct err *err) {
    int status = read_optional(r, COLUMN_PREFIX, &row->prefix_tokens, err);
    if (status != 0 || !r->format->prefix_is_apart) {
        return status;
    }
    if (row->prefix_tokens > UINT32_MAX - row->input_tokens) {
        return field_bad(r->record->line, "too many", 8, r->layout->at[COLUMN_PREFIX].name,
                         "less than 2^32 tokens with the prompt's others", err);
    }
    row->input_tokens += row->prefix_tokens;
    return 0;
}

static bool equals(const struct value *value, const char *text) {
    bool is_empty = value->kind == VALUE_NONE || value->kind == VALUE_NULL;
    if (is_empty || value->kind == VALUE_OTHER) {
        return is_empty && (text[0] == '\0' || strcmp(text, "null") == 0);
    }
    char *own = mem_copied(value->text, value->length);
    double a, b;
    bool is_equal =
        strcmp(own, text) == 0 || (num_f64(own, &a) && num_f64(text, &b) && !(a < b || a > b));
    free(own);
    return is_equal;
}

/* Where JSON has a name within an object: "metadata.phase". */
static void find_within(const struct record *record, const char *name, char *out, size_t size) {
    const char *key;
    json_t *value;
    out[0] = '\0';
    json_object_foreach(record->object, key, value) {
        if (json_object_get(value, name) != NULL) {
            snprintf(out, size, "; it has %.30s.%.40s", key, name);
        }
    }
}

static void say_unwanted(const struct record *record, const struct condition *condition,
                         const struct value *value, char out[PASSED_OVER_CHARS]) {
    char within[PASSED_OVER_CHARS];
    find_within(record, condition->name, within, sizeof within);
    if (value->kind == VALUE_NONE || value->kind == VALUE_NULL || value->kind == VALUE_OTHER) {
        snprintf(out, PASSED_OVER_CHARS, "it has no %.30s%.80s", condition->name, within);
    } else {
        snprintf(out, PASSED_OVER_CHARS, "its %.40s is '%.*s'", condition->name,
                 (int)(value->length < 40 ? value->length : 40), value->text);
    }
}

bool row_is_wanted(const struct family *family, struct layout *layout,
                   const struct record *record) {
    for (int i = 0; i < layout->n_where; i++) {
        struct value value;
        clear(&value);
        family->look_up(record, &layout->where[i], &value);
        if (equals(&value, layout->conditions[i].value) == layout->conditions[i].is_not) {
            say_unwanted(record, &layout->conditions[i], &value, layout->unwanted);
            return false;
        }
    }
    return true;
}

static int check_musts(const struct reading *r, struct err *err) {
    for (int i = 0; i < MAX_MUSTS && r->format->musts[i].column != NULL; i++) {
        struct value value;
        look_up(r, &r->layout->musts[i], &value);
        if (!equals(&value, r->format->musts[i].value)) {
            return field_bad(r->record->line, value.text, value.length, r->format->musts[i].column,
                             r->format->musts[i].value, err);
        }
    }
    return 0;
}

/* An answer is within its output and a shared prefix within its prompt. */
static int check_parts(const struct reading *r, const struct trace_row *row, bool has_answer,
                       struct err *err) {
    const struct line *line = r->record->line;
    if (has_answer && (row->answer_tokens == 0 || row->answer_tokens > row->output_tokens)) {
        return err_world(err,
                         "%s:%" PRIu64 ": found %" PRIu32
                         " answer_tokens, expected 1 to the output's %" PRIu32,
                         line->path, line->number, row->answer_tokens, row->output_tokens);
    }
    return row->prefix_tokens <= row->input_tokens
               ? 0
               : err_world(err,
                           "%s:%" PRIu64 ": found %" PRIu32 " prefix_tokens, expected at most the "
                           "prompt's %" PRIu32,
                           line->path, line->number, row->prefix_tokens, row->input_tokens);
}

/* Token counts are at least 1, or the request failed. */
static int check_tokens(const struct reading *r, struct trace_row *row, struct err *err) {
    row->failed = row->output_tokens == 0 && r->format->zero_output_is_failure;
    if (row->failed || (row->input_tokens > 0 && row->output_tokens > 0)) {
        return 0;
    }
    enum column which = row->input_tokens == 0 ? COLUMN_INPUT : COLUMN_OUTPUT;
    return field_bad(r->record->line, "0", 1, r->layout->at[which].name,
                     "at least 1 token (--skip-failed leaves such rows out)", err);
}

/* With --skip-failed: no tokens, or no count of them. */
static bool has_no_tokens(const struct reading *r) {
    for (int c = COLUMN_INPUT; c <= COLUMN_OUTPUT; c++) {
        struct value value;
        column(r, (enum column)c, &value);
        uint32_t n = 0;
        bool is_count = is_numeral(r, &value) && field_u32(value.text, whole_length(&value), &n);
        if (value.kind == VALUE_NONE || value.kind == VALUE_NULL || (is_count && n == 0)) {
            return true;
        }
    }
    return false;
}

/* What is left out of the trace, and why. */
static int leave_out(const struct reading *r, struct trace_row *row, struct err *err) {
    row->left_out = !row_is_wanted(r->format->family, r->layout, r->record);
    if (row->left_out) {
        return 0;
    }
    bool failed = false;
    if ((r->format->says_failures || r->layout->skips_failed) &&
        status_read(r->layout, r->record, r->format->family, &failed, err) != 0) {
        return err_status(err);
    }
    row->failed = failed || (r->layout->skips_failed && has_no_tokens(r));
    return 0;
}

int row_read(const struct format *format, struct layout *layout, const struct record *record,
             struct trace_row *row, struct err *err) {
    struct reading r = {format, layout, record};
    *row = (struct trace_row){.think_ns = -1, .time_ns = layout->last_ns};
    int status = leave_out(&r, row, err);
    if (status != 0 || row->left_out || row->failed) {
        return status;
    }
    struct value answer;
    column(&r, COLUMN_ANSWER, &answer);
    bool has_answer = answer.kind > VALUE_NULL ||
                      (record->object == NULL && layout->at[COLUMN_ANSWER].position >= 0);
    if ((status = check_musts(&r, err)) != 0 || (status = read_session(&r, row, err)) != 0 ||
        (status = read_arrival(&r, row, err)) != 0 ||
        (status = read_count(&r, COLUMN_INPUT, &row->input_tokens, err)) != 0 ||
        (status = read_count(&r, COLUMN_OUTPUT, &row->output_tokens, err)) != 0 ||
        (status = read_tenant(&r, row, err)) != 0 || (status = read_prefix(&r, row, err)) != 0 ||
        (status = read_optional(&r, COLUMN_ANSWER, &row->answer_tokens, err)) != 0 ||
        (status = read_deadline(&r, row, err)) != 0 ||
        (status = read_mark(&r, COLUMN_PRIORITY, &row->priority, err)) != 0 ||
        (status = read_mark(&r, COLUMN_PREDICTED, &row->predicted_tokens, err)) != 0 ||
        (status = read_hashes(&r, row, err)) != 0 ||
        (status = check_parts(&r, row, has_answer, err)) != 0) {
        return status;
    }
    layout->last_ns = row->time_ns;
    return check_tokens(&r, row, err);
}
