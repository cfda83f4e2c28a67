/* One test program a module: it defines its cases and calls suite_run from main. */
#ifndef UNMASK_TESTS_SUPPORT_SUITE_H
#define UNMASK_TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Adds every named test function to one case and runs it; the exit status of the program.
 * CK_FORK=no in the environment keeps it in one process (sanitizers, debuggers). */
static inline int suite_run(const char *name, const TTest *const *tests, size_t n_tests) {
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 120);
    for (size_t i = 0; i < n_tests; i++) {
        tcase_add_test(tcase, tests[i]);
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define SUITE_RUN(name, tests) suite_run(name, tests, sizeof(tests) / sizeof((tests)[0]))

#endif
