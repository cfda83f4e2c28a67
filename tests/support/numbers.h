/* Numbers in what a command printed as JSON. */
#ifndef UNMASK_TESTS_SUPPORT_NUMBERS_H
#define UNMASK_TESTS_SUPPORT_NUMBERS_H

#include <jansson.h>

#include "tests/support/suite.h"

/* A member that is a number. */
static inline double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s", key);
    return json_number_value(value);
}

/* A member of the object in a text; 0 where it has none. */
static inline json_int_t number_in(const char *text, const char *key) {
    json_t *run = json_loads(text, 0, NULL);
    const json_int_t n = json_integer_value(json_object_get(run, key));
    json_decref(run);
    return n;
}

#endif
