/* One test program a module: its tests are those that it defines, in their order. */
#ifndef UNMASK_TESTS_SUPPORT_SUITE_H
#define UNMASK_TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/make.h"

/* Check notes the place of each assertion that holds, by a call of the kernel: half of the time of
 * suites that assert in loops. Once for each line tells as well where a test was when it died. */
static inline void suite_mark(const char *file, int line) {
    static bool is_marked[1 << 14];
    bool *marked = &is_marked[line % (1 << 14)];
    if (!*marked) {
        *marked = true;
        _mark_point(file, line);
    }
}
#define _mark_point(file, line) suite_mark(file, line)

static struct suite_test {
    const TTest *test;
    int begin, end; /* values of _i */
} suite_tests[256];
static size_t suite_n_tests;

static inline void suite_add(const TTest *test, int begin, int end) {
    if (suite_n_tests == sizeof suite_tests / sizeof suite_tests[0]) {
        abort();
    }
    suite_tests[suite_n_tests++] = (struct suite_test){test, begin, end};
}

/* A test that runs for every _i below n, or once; defining it is enough. */
#define TEST_EACH(name, n)                                                                         \
    static void name(int _i CK_ATTRIBUTE_UNUSED);                                                  \
    __attribute__((constructor)) static void name##_add(void) {                                    \
        static const TTest test = {#name, name, __FILE__, __LINE__};                               \
        suite_add(&test, 0, n);                                                                    \
    }                                                                                              \
    static void name(int _i CK_ATTRIBUTE_UNUSED)
#define TEST(name) TEST_EACH(name, 1)

/* Runs the tests; the exit status of the program. CK_FORK=no in the environment keeps them in one
 * process (debuggers). */
static inline int suite_run(const char *name) {
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 300);
    for (size_t i = 0; i < suite_n_tests; i++) {
        const struct suite_test *each = &suite_tests[i];
        _tcase_add_test(tcase, each->test, 0, 0, each->begin, each->end);
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Leaves the tests that the arguments name, in the order of the suite; all without arguments. */
static inline void suite_select(int argc, char **argv) {
    size_t n = 0;
    int found = 0;
    for (size_t i = 0; i < suite_n_tests; i++) {
        bool asked = argc == 1;
        for (int k = 1; k < argc; k++) {
            asked |= strcmp(argv[k], suite_tests[i].test->name) == 0;
        }
        found += asked;
        if (asked) {
            suite_tests[n++] = suite_tests[i];
        }
    }
    suite_n_tests = n;
    if (argc > 1 && found != argc - 1) {
        fprintf(stderr, "%s: not each of the names is one of a test\n", argv[0]);
        exit(2);
    }
}

/* A program's arguments are the tests to run; default: all. */
#define SUITE(name)                                                                                \
    int main(int argc, char **argv) {                                                              \
        suite_select(argc, argv);                                                                  \
        return suite_run(name);                                                                    \
    }

/* The path from the root on of a plug-in built from tests/plugins; lives as long as the process. */
static inline const char *suite_plugin(const char *name) {
    static char paths[8][1024], here[512];
    static int next;
    const char *folder = getenv("UNMASK_PLUGINS");
    folder = folder != NULL ? folder : "build/plugins";
    char *path = paths[next++ % 8];
    bool is_relative = folder[0] != '/' && getcwd(here, sizeof here) != NULL;
    snprintf(path, sizeof paths[0], "%s%s%.400s/%s.so", is_relative ? here : "",
             is_relative ? "/" : "", folder, name);
    return path;
}

#endif
