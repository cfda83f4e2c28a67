#include "engine/text/answer.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

static char *without_commas(const char *text, size_t n) {
    char *made = mem_unwritten(n + 1, 1);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ',') {
            made[used++] = text[i];
        }
    }
    made[used] = '\0';
    return made;
}

char *answer_of(const char *text) {
    const char *mark = NULL;
    for (const char *at = text; (at = strstr(at, "####")) != NULL; at++) {
        mark = at + 4;
    }
    if (mark == NULL) {
        return NULL;
    }
    while (isspace((unsigned char)*mark)) {
        mark++;
    }
    size_t n = strcspn(mark, "\n");
    while (n > 0 && isspace((unsigned char)mark[n - 1])) {
        n--;
    }
    while (n > 0 && mark[n - 1] == '.') {
        n--;
    }
    return n > 0 ? without_commas(mark, n) : NULL;
}

/* As Python's float() reads it, but for what is not finite and for hexadecimal. */
static bool number_of(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    bool is_plain = text[0] != '\0' && strpbrk(text, "xXpPnN") == NULL;
    while (isspace((unsigned char)*end)) {
        end++;
    }
    return is_plain && *end == '\0' && isfinite(*out);
}

bool answer_is_right(const char *text, const char *expected) {
    char *found = answer_of(text), *wanted = without_commas(expected, strlen(expected));
    double a, b;
    bool is_right = found != NULL && (strcmp(found, wanted) == 0 ||
                                      (number_of(found, &a) && number_of(wanted, &b) && a == b));
    free(found);
    free(wanted);
    return is_right;
}
