/* What the programs that serve on a GPU say of themselves: a line for each comparison, then the
 * count of failures. */
#ifndef UNMASK_TESTS_GPU_TOLD_H
#define UNMASK_TESTS_GPU_TOLD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/base/err.h"

static int n_passed, n_failed;

__attribute__((format(printf, 2, 3))) static inline void check(bool good, const char *format, ...) {
    va_list list;
    n_passed += good;
    n_failed += !good;
    va_start(list, format);
    printf("%s ", good ? "ok    " : "FAILED");
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

static inline void must(int status, const struct err *err) {
    if (status != 0) {
        printf("FAILED %s\n", err->text);
        exit(1);
    }
}

/* The program's status. */
static inline int told(void) {
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed > 0;
}

#endif
