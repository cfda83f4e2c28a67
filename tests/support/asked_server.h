/* `unmask validate`, asked by a test, and what of its answer suites look at. */
#ifndef UNMASK_TESTS_SUPPORT_ASKED_SERVER_H
#define UNMASK_TESTS_SUPPORT_ASKED_SERVER_H

#include <jansson.h>

#include "tests/support/cli.h"

/* What the program prints of a server, given the arguments that this was started with. */
static inline json_t *asked_for(const char *const *words) {
    const char *all[CLI_MOST_ARGS] = {"validate", "--json", "--measured"};
    size_t n = 3;
    for (size_t i = 0; words[i] != NULL; i++) {
        all[n++] = words[i];
    }
    char *text = cli_text(cli_run(&(const struct child){0}, all));
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(object);
    free(text);
    return object;
}

static inline const json_t *only_run(const json_t *object) {
    return json_array_get(json_object_get(object, "runs"), 0);
}

static inline double printed_error(const json_t *object, const char *quantity) {
    const json_t *numbers = json_object_get(only_run(object), "quantities");
    return json_number_value(json_object_get(json_object_get(numbers, quantity), "error"));
}

static inline bool warns_of_limits(const json_t *object) {
    size_t i;
    json_t *warning;
    json_array_foreach(json_object_get(only_run(object), "warnings"), i, warning) {
        if (strcmp(json_string_value(json_object_get(warning, "code")), "setting-assumed") == 0) {
            return true;
        }
    }
    return false;
}

#define ASKED(...) asked_for((const char *const[]){__VA_ARGS__, NULL})

#endif
