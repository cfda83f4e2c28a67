#include "sim/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void err_set(struct err *err, enum err_kind kind, enum err_code code, const char *format, ...) {
    if (err->kind != ERR_NONE) {
        return;
    }
    va_list args;
    va_start(args, format);
    err->kind = kind;
    err->code = code;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
}

_Noreturn void assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "unmask: internal error: %s does not hold at %s:%d; please report it\n",
            condition, file, line);
    abort();
}
