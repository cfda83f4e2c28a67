/* Parameters: named, typed, ranged values with units, laid out in their owner's state.
 *
 * A policy, a generator or a runtime declares one table of `struct param`; the command line and the
 * INI files write through it, help prints it, and an unknown key is met with the nearest known one.
 * The table is part of the plug-in ABI: append, never reorder. */
#ifndef UNMASK_SIM_BASE_PARAM_H
#define UNMASK_SIM_BASE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

enum param_type {
    PARAM_U32 = 0,  /* uint32_t */
    PARAM_I64 = 1,  /* int64_t */
    PARAM_F64 = 2,  /* double */
    PARAM_BOOL = 3, /* bool, written on/off */
    PARAM_WORD = 4, /* uint32_t: index into `words` */
};

struct param {
    const char *name;
    enum param_type type;
    uint32_t reserved;
    const char
        *unit; /* "bytes", "ns", "tokens", "rows", "steps", "1"; bytes and ns accept suffixes */
    const char *initial;
    double min, max;          /* inclusive */
    const char *const *words; /* PARAM_WORD: the allowed words, NULL-ended */
    size_t offset;            /* of the value in the owner's state */
    const char *doc;          /* one line; where it ends with a condition in brackets (condition.h),
                                 the value is read only where that holds */
};

/* A row of a table: key and where its value lies in the owner's state; the allowed words instead of
 * unit and range. */
#define PARAM(key, kind, owner, field, unit, initial, min, max, doc)                               \
    { key, kind, 0, unit, initial, min, max, NULL, offsetof(owner, field), doc }
#define PARAM_ONE_OF(key, owner, field, words, initial, doc)                                       \
    { key, PARAM_WORD, 0, "1", initial, 0, 0, words, offsetof(owner, field), doc }

/* Write every initial value into `state`. The tables are ours or checked: a bad initial asserts. */
void param_defaults(const struct param *table, size_t n, void *state);

/* Set `name` to `text`. `owner` ("scheduler phase-multiplexed") and `place` (an INI "file:line" or
 * "--set") go into the sentence. ERR_USAGE when the name is unknown or the value is not allowed. */
int param_set(const struct param *table, size_t n, void *state, const char *owner,
              const char *place, const char *name, const char *text, struct err *err);

/* The value as text, such that param_set reads back the same value. Returns `text`. */
const char *param_text(const struct param *param, const void *state, char *text, size_t size);

/* NULL when `table` has no parameter of that name. */
const struct param *param_find(const struct param *table, size_t n, const char *name);

#endif
