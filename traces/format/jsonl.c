/* JSON lines: one object a line. A name may be a path into it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "traces/format/format.h"

/* ---- JSON as tools write it ---- */

/* Marks a text as what stood bare in the file; JSON texts of tools do not begin with it. */
static const char bare_mark = '\x01';

/* How long the bare word at `text` is that no JSON has, else 0: a number that is none, or a whole
 * number that 64 bits do not hold. */
static size_t bare_word(const char *text, size_t length) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i]);
        if (n <= length && memcmp(text, words[i], n) == 0) {
            return n;
        }
    }
    size_t sign = length > 0 && text[0] == '-', n = sign;
    while (n < length && text[n] >= '0' && text[n] <= '9') {
        n++;
    }
    bool is_whole = n == length || strchr(".eE", text[n]) == NULL;
    return n - sign > 18 && n - sign <= 40 && is_whole ? n : 0;
}

/* The text with each such word as a JSON text of its own. */
static char *with_texts(const char *text, size_t length, size_t *size) {
    char *out;
    FILE *file = mem_stream(&out, size);
    bool is_text = false, follows_value = false;
    for (size_t i = 0; i < length; i++) {
        size_t n = is_text || follows_value ? 0 : bare_word(text + i, length - i);
        if (n > 0) {
            fprintf(file, "\"\\u%04x%.*s\"", (unsigned)bare_mark, (int)n, text + i);
            i += n - 1;
            follows_value = true;
            continue;
        }
        fputc(text[i], file);
        if (is_text && text[i] == '\\' && i + 1 < length) {
            fputc(text[++i], file);
        } else if (text[i] == '"') {
            is_text = !is_text;
        }
        follows_value = !is_text && strchr("[,: \t\r\n", text[i]) == NULL;
    }
    mem_stream_close(file);
    return out;
}

json_t *json_lenient(const char *text, size_t length, size_t flags, json_error_t *error) {
    json_t *json = json_loadb(text, length, flags, error);
    if (json != NULL) {
        return json;
    }
    json_error_t ignored;
    size_t size;
    char *other = with_texts(text, length, &size);
    json = json_loadb(other, size, flags, &ignored);
    /* Where it ends, counted from the text's end. */
    error->position =
        json != NULL ? (int)(length - (size - (size_t)ignored.position)) : error->position;
    free(other);
    return json;
}

/* ---- names ---- */

json_t *json_at(const json_t *object, const char *path) {
    json_t *found = json_object_get(object, path);
    if (found != NULL) {
        return found;
    }
    for (const char *dot = strchr(path, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        char *key = mem_copied(path, (size_t)(dot - path));
        json_t *inner = json_is_array(object) ? json_array_get(object, (size_t)atoi(key))
                                              : json_object_get(object, key);
        free(key);
        found = inner != NULL ? json_at(inner, dot + 1) : NULL;
        if (found != NULL) {
            return found;
        }
    }
    return json_is_array(object) && path[strspn(path, "0123456789")] == '\0' && *path != '\0'
               ? json_array_get(object, (size_t)atoi(path))
               : NULL;
}

/* The shortest of the usual ways to write a double that reads as the same. */
static void write_real(double real, char space[40]) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(space, 36, "%.*g", digits, real);
        if (strtod(space, NULL) == real) {
            break;
        }
    }
    if (strpbrk(space, ".en") == NULL) {
        size_t used = strlen(space);
        snprintf(space + used, 40 - used, ".0"); /* it was written as no whole number */
    }
}

void json_value(json_t *json, struct value *out) {
    out->json = json;
    out->text = out->space;
    out->length = 0;
    out->kind = VALUE_OTHER;
    if (json == NULL || json_is_null(json)) {
        out->kind = json == NULL ? VALUE_NONE : VALUE_NULL;
    } else if (json_is_string(json)) {
        const char *text = json_string_value(json);
        bool is_bare = text[0] == bare_mark;
        out->text = text + is_bare;
        out->length = json_string_length(json) - is_bare;
        bool is_number = strspn(out->text, "-0123456789") == out->length;
        out->kind = !is_bare ? VALUE_TEXT : is_number ? VALUE_NUMBER : VALUE_OTHER;
    } else if (json_is_boolean(json)) {
        out->kind = VALUE_BOOL;
        out->text = json_is_true(json) ? "true" : "false";
        out->length = strlen(out->text);
    } else if (json_is_number(json)) {
        out->kind = VALUE_NUMBER;
        if (json_is_integer(json)) {
            snprintf(out->space, sizeof out->space, "%" JSON_INTEGER_FORMAT,
                     json_integer_value(json));
        } else {
            write_real(json_real_value(json), out->space);
        }
        out->length = strlen(out->space);
    }
}

/* ---- rows ---- */

static int jsonl_take_apart(const struct layout *layout, const struct line *line,
                            struct record *record, struct err *err) {
    (void)layout;
    json_error_t reason;
    record->line = line;
    record->object = json_lenient(line->text, line->length, JSON_REJECT_DUPLICATES, &reason);
    if (json_is_object(record->object)) {
        return 0;
    }
    char quoted[64];
    json_decref(record->object);
    record->object = NULL;
    return err_world(err, "%s:%" PRIu64 ": found '%s'%s, expected a JSON object", line->path,
                     line->number, field_quote(line->text, line->length, quoted, sizeof quoted),
                     line->finished ? "" : " in an unfinished last line");
}

static void jsonl_look_up(const struct record *record, const struct place *place,
                          struct value *out) {
    json_value(json_at(record->object, place->name), out);
}

const struct family family_jsonl = {.take_apart = jsonl_take_apart, .look_up = jsonl_look_up};
