#include "analysis/field.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/num.h"

bool field_is(const struct column *column) {
    return column->label != NULL && column->label[0] != '\0';
}

/* What a name ends with where no table has it; the longest that fits comes first. */
static const struct {
    const char *end, *unit;
} ends[] = {
    {"_req_s", "requests/s"},
    {"_tok_s", "tokens/s"},
    {"_joules", "J"},
    {"_watts", "W"},
    {"_bytes", "bytes"},
    {"_tokens", "tokens"},
    {"_ns", "ns"},
    {"_us", "us"},
    {"_ms", "ms"},
    {"_s", "s"},
};

static bool is_same(char a, char b) {
    return a == b || (a == '.' && b == '_') || (a == '_' && b == '.');
}

/* The field whose name is the longest beginning of `name` that ends at a dot or underscore, and
 * what follows, "" where nothing does. */
static const struct column *find(const char *name, const char **rest) {
    const struct column *found = NULL;
    size_t longest = 0;
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        for (const struct column *c = g->columns; c->name != NULL; c++) {
            size_t n = 0;
            while (c->name[n] != '\0' && is_same(c->name[n], name[n])) {
                n++;
            }
            bool fits = c->name[n] == '\0' && (name[n] == '\0' || is_same(name[n], '.'));
            if (fits && n > longest && field_is(c)) {
                found = c;
                longest = n;
            }
        }
    }
    *rest = found != NULL && name[longest] != '\0' ? name + longest + 1 : "";
    return found;
}

static bool is_member(const char *text) {
    static const char *const members[] = {"mean", "p50", "p90", "p95", "p99", "std", "min", "max"};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (strcmp(text, members[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Fields whose members are named by what follows: of a distribution, or by kind and reason. */
static bool has_members(const struct column *field) {
    size_t n = strlen(field->name);
    return (n > 2 && strcmp(field->name + n - 2, "_s") == 0) || strstr(field->name, "_by_") ||
           strncmp(field->name, "price_", 6) == 0;
}

static const struct column *look_up(const char *name, const char **rest) {
    const struct column *field = find(name, rest);
    bool fits = field != NULL && ((*rest)[0] == '\0' || is_member(*rest) || has_members(field));
    return fits ? field : NULL;
}

const struct column *field_find(const char *name) {
    const char *rest;
    return look_up(name, &rest);
}

static const char *unit_by_end(const char *name, size_t *length) {
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t m = strlen(ends[i].end);
        if (n > m && strcmp(name + n - m, ends[i].end) == 0) {
            *length = n - m;
            return ends[i].unit;
        }
    }
    *length = n;
    return "";
}

const char *field_unit(const char *name) {
    const char *rest;
    size_t length;
    const struct column *field = look_up(name, &rest);
    return field != NULL ? field->unit : unit_by_end(name, &length);
}

const char *field_title(const char *name, char text[FIELD_CHARS]) {
    const char *rest;
    size_t length;
    const struct column *field = look_up(name, &rest);
    if (field == NULL) {
        unit_by_end(name, &length);
        snprintf(text, FIELD_CHARS, "%.*s", (int)length, name);
    } else if (is_member(rest)) {
        snprintf(text, FIELD_CHARS, "%s %s", rest, field->label);
    } else {
        snprintf(text, FIELD_CHARS, "%s%s%s", field->label, rest[0] != '\0' ? ", " : "", rest);
    }
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '_' ? ' ' : *c;
    }
    return text;
}

const char *field_label(const char *name, char text[FIELD_CHARS]) {
    const char *unit = field_unit(name);
    size_t used = strlen(field_title(name, text));
    if (unit[0] != '\0') {
        snprintf(text + used, FIELD_CHARS - used, " (%s)", unit);
    }
    return text;
}

const char *field_spelled(const char *column, char text[FIELD_CHARS]) {
    const char *rest;
    const struct column *field = look_up(column, &rest);
    snprintf(text, FIELD_CHARS, "%s%s%s", field != NULL ? field->name : column,
             field != NULL && rest[0] != '\0' ? "." : "", field != NULL ? rest : "");
    return text;
}

const char *field_column(const char *name, char text[FIELD_CHARS]) {
    snprintf(text, FIELD_CHARS, "%s", name);
    for (char *c = text; *c != '\0'; c++) {
        *c = isalnum((unsigned char)*c) || (*c & 0x80) != 0 ? *c : '_';
    }
    return text;
}

json_t *field_value(const char *text) {
    uint64_t whole;
    double number;
    return text[0] == '\0'                    ? json_null()
           : num_u64(text, INT64_MAX, &whole) ? json_integer((json_int_t)whole)
           : num_f64(text, &number)           ? json_real(number)
                                              : json_string(text);
}
