/* Names and words by which tools say that a request failed. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "sim/base/num.h"
#include "traces/format/format.h"

enum meaning {
    IS_STATUS,  /* a word, or a code of HTTP */
    IS_ERROR,   /* what went wrong; null, empty or false: nothing */
    IS_SUCCESS, /* true, or failed */
};

static const struct {
    const char *name;
    enum meaning meaning;
} tells[] = {
    {"status", IS_STATUS},
    {"status_code", IS_STATUS},
    {"http_status", IS_STATUS},
    {"http_status_code", IS_STATUS},
    {"response_code", IS_STATUS},
    {"response.status_code", IS_STATUS},
    {"response.status", IS_STATUS},
    {"state", IS_STATUS},
    {"error", IS_ERROR},
    {"error_message", IS_ERROR},
    {"error_code", IS_ERROR},
    {"exception", IS_ERROR},
    {"failed", IS_ERROR},
    {"is_error", IS_ERROR},
    {"cancelled", IS_ERROR},
    {"was_cancelled", IS_ERROR},
    {"metadata.was_cancelled", IS_ERROR},
    {"success", IS_SUCCESS},
    {"succeeded", IS_SUCCESS},
    {"ok", IS_SUCCESS},
};
enum { N_TELLS = sizeof tells / sizeof tells[0] };

static const char *const good_words[] = {
    "ok",   "success", "succeeded", "successful", "complete", "completed", "finished",
    "done", "true",    "yes",       "t",          "y",        NULL};
static const char *const bad_words[] = {
    "error",      "err",       "fail",      "failed",    "failure", "timeout",      "timed_out",
    "timedout",   "timed out", "cancelled", "canceled",  "aborted", "abort",        "rejected",
    "dropped",    "expired",   "killed",    "throttled", "oom",     "rate_limited", "false",
    "incomplete", "no",        "f",         "n",         NULL};

static bool is_among(const char *const *words, const struct value *value) {
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strlen(words[i]) == value->length &&
            strncasecmp(words[i], value->text, value->length) == 0) {
            return true;
        }
    }
    return false;
}

void status_places(const struct record *first, const struct family *family, struct layout *layout) {
    layout->n_fails = 0;
    for (int i = 0; i < N_TELLS && layout->n_fails < MAX_FAILS; i++) {
        struct place place = {tells[i].name, -1};
        if (family->has_header) {
            place.position = csv_position(layout, tells[i].name);
        }
        bool has = family->has_header ? place.position >= 0
                                      : json_at(first->object, tells[i].name) != NULL;
        if (has) {
            layout->fails[layout->n_fails++] = place;
        }
    }
}

static enum meaning meaning_of(const char *name) {
    for (int i = 0; i < N_TELLS; i++) {
        if (strcmp(tells[i].name, name) == 0) {
            return tells[i].meaning;
        }
    }
    return IS_STATUS;
}

/* 1 good, 0 bad, -1: neither. */
static int judge(enum meaning meaning, const struct value *value) {
    if (value->kind == VALUE_NONE || value->kind == VALUE_NULL) {
        return 1;
    }
    if (meaning == IS_ERROR) {
        static const char *const nothing[] = {"false", "none", "null", "0", "no", NULL};
        return is_among(nothing, value) || (value->kind == VALUE_TEXT && value->length == 0);
    }
    uint32_t code;
    if (value->kind != VALUE_BOOL && field_u32(value->text, value->length, &code)) {
        return meaning == IS_SUCCESS ? code != 0 : code == 0 || (code >= 200 && code < 300);
    }
    return value->kind == VALUE_OTHER    ? -1
           : is_among(good_words, value) ? 1
           : is_among(bad_words, value)  ? 0
                                         : -1;
}

int status_read(const struct layout *layout, const struct record *record,
                const struct family *family, bool *failed, struct err *err) {
    *failed = false;
    for (int i = 0; i < layout->n_fails; i++) {
        struct value value = {.kind = VALUE_NONE};
        family->look_up(record, &layout->fails[i], &value);
        int good = judge(meaning_of(layout->fails[i].name), &value);
        if (good < 0) {
            return field_bad(record->line, value.text, value.length, layout->fails[i].name,
                             "a word such as ok, error or timeout, or a code of HTTP (--where "
                             "says which rows count)",
                             err);
        }
        *failed = *failed || good == 0;
    }
    return 0;
}
