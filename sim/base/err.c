#include "sim/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/utf8.h"

/* What a file or a user wrote may hold anything: line ends, sequences that a terminal obeys, bytes
 * that are no text, and the end of the sentence may cut a character in two. */
static void make_printable(char *text) {
    for (size_t n = strlen(text), length; n > 0; text += length, n -= length) {
        bool is_valid;
        length = utf8_next(text, n, &is_valid);
        if (!is_valid || utf8_is_control(text)) {
            memset(text, '?', length);
        }
    }
}

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
    make_printable(err->text);
}

_Noreturn void assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "unmask: internal error: %s does not hold at %s:%d; please report it\n",
            condition, file, line);
    abort();
}
