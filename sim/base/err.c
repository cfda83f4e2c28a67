#include "sim/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int err_fill(struct err *err, enum err_kind kind, const char *format, va_list args) {
    if (err->kind == ERR_NONE) {
        err->kind = kind;
        vsnprintf(err->text, sizeof err->text, format, args);
    }
    return (int)err->kind;
}

int err_world(struct err *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int kind = err_fill(err, ERR_WORLD, format, args);
    va_end(args);
    return kind;
}

int err_usage(struct err *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int kind = err_fill(err, ERR_USAGE, format, args);
    va_end(args);
    return kind;
}

_Noreturn void assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "unmask: internal error: %s does not hold at %s:%d; please report it\n",
            condition, file, line);
    abort();
}
