#include "sim/base/param.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"

enum { MAX_NAMES = 64 };

const struct param *param_find(const struct param *table, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

/* Every second one is true. */
static const char *const truths[] = {"off", "on", "false", "true", "0", "1", NULL};

/* True when `text` was a value the parameter allows, which is then stored. */
static bool param_write(const struct param *param, void *state, const char *text) {
    char *slot = (char *)state + param->offset;
    double value = 0;
    switch (param->type) {
    case PARAM_U32:
    case PARAM_I64: {
        if (!num_with_unit(text, param->unit, &value) || value < param->min || value > param->max ||
            value != (double)(int64_t)value) {
            return false;
        }
        int64_t whole = (int64_t)value;
        if (param->type == PARAM_I64) {
            memcpy(slot, &whole, sizeof whole);
        } else {
            uint32_t narrow = (uint32_t)whole;
            memcpy(slot, &narrow, sizeof narrow);
        }
        return true;
    }
    case PARAM_F64:
        if (!num_with_unit(text, param->unit, &value) || value < param->min || value > param->max) {
            return false;
        }
        memcpy(slot, &value, sizeof value);
        return true;
    case PARAM_BOOL: {
        int found = name_find(truths, text);
        bool truth = found % 2 == 1;
        memcpy(slot, &truth, found >= 0 ? sizeof truth : 0);
        return found >= 0;
    }
    case PARAM_WORD: {
        int found = name_find(param->words, text);
        uint32_t word = (uint32_t)found;
        memcpy(slot, &word, found >= 0 ? sizeof word : 0);
        return found >= 0;
    }
    }
    return false;
}

void param_defaults(const struct param *table, size_t n, void *state) {
    for (size_t i = 0; i < n; i++) {
        bool is_written = param_write(&table[i], state, table[i].initial);
        ASSERT(is_written);
    }
}

static int bad_value(const struct param *param, const char *owner, const char *place,
                     const char *text, struct err *err) {
    if (param->type == PARAM_BOOL) {
        return err_unknown(err, "%s: '%s' is not a value for %s of %s: expected on or off", place,
                           text, param->name, owner);
    }
    if (param->type == PARAM_WORD) {
        char words[256] = "";
        for (uint32_t i = 0; param->words[i] != NULL; i++) {
            size_t used = strlen(words);
            snprintf(words + used, sizeof words - used, "%s%s", i == 0 ? "" : ", ",
                     param->words[i]);
        }
        return err_unknown(err, "%s: '%s' is not a value for %s of %s: expected one of %s", place,
                           text, param->name, owner, words);
    }
    char unit[64] = "";
    if (strcmp(param->unit, "1") != 0) {
        snprintf(unit, sizeof unit, " (%s%s)", param->unit,
                 strcmp(param->unit, "ns") == 0 ? ", or with a unit: us, ms, s, min or h" : "");
    }
    return err_unknown(
        err, "%s: '%s' is not a value for %s of %s: expected %s from %.10g to %.10g%s", place, text,
        param->name, owner, param->type == PARAM_F64 ? "a number" : "a whole number", param->min,
        param->max, unit);
}

int param_set(const struct param *table, size_t n, void *state, const char *owner,
              const char *place, const char *name, const char *text, struct err *err) {
    const struct param *param = param_find(table, n, name);
    if (param == NULL) {
        const char *names[MAX_NAMES + 1] = {NULL};
        for (size_t i = 0; i < n && i < MAX_NAMES; i++) {
            names[i] = table[i].name;
        }
        char hint[NAME_HINT_CHARS];
        name_hint(name, names, hint);
        return err_usage(err, "%s: %s has no parameter '%s'%s", place, owner, name, hint);
    }
    if (!param_write(param, state, text)) {
        return bad_value(param, owner, place, text, err);
    }
    return 0;
}

const char *param_text(const struct param *param, const void *state, char *text, size_t size) {
    const char *slot = (const char *)state + param->offset;
    switch (param->type) {
    case PARAM_U32:
    case PARAM_WORD: {
        uint32_t value;
        memcpy(&value, slot, sizeof value);
        if (param->type == PARAM_WORD) {
            snprintf(text, size, "%s", param->words[value]);
        } else {
            snprintf(text, size, "%" PRIu32, value);
        }
        break;
    }
    case PARAM_I64: {
        int64_t value;
        memcpy(&value, slot, sizeof value);
        snprintf(text, size, "%" PRId64, value);
        break;
    }
    case PARAM_F64: {
        double value;
        memcpy(&value, slot, sizeof value);
        snprintf(text, size, "%.17g", value);
        break;
    }
    case PARAM_BOOL: {
        bool value;
        memcpy(&value, slot, sizeof value);
        snprintf(text, size, "%s", value ? "on" : "off");
        break;
    }
    }
    return text;
}
