#include "sim/base/names.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NAME_CHARS = 64 };

int name_find(const char *const *names, const char *word) {
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

const char *name_behind(const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

bool name_next(const char **rest, const char *marks, const char **word, size_t *length) {
    static const char blanks[] = " \t\n";
    if (*rest == NULL) {
        return false;
    }
    const char *end = *rest + strcspn(*rest, marks), *start = *rest + strspn(*rest, blanks);
    *rest = *end != '\0' ? end + 1 : NULL;
    start = start < end ? start : end;
    while (end > start && strchr(blanks, end[-1]) != NULL) {
        end--;
    }
    *word = start;
    *length = (size_t)(end - start);
    return true;
}

bool name_ends(const char *text, const char *ending) {
    size_t length = strlen(text), n = strlen(ending);
    return length > n && strcmp(text + length - n, ending) == 0;
}

static size_t edit_distance(const char *a, const char *b) {
    size_t row[NAME_CHARS + 1];
    size_t n = strlen(b);
    if (n > NAME_CHARS) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            size_t insert = row[j - 1] + 1;
            size_t remove = row[j] + 1;
            diagonal = row[j];
            row[j] = change < insert ? (change < remove ? change : remove)
                                     : (insert < remove ? insert : remove);
        }
    }
    return row[n];
}

const char *name_nearest(const char *word, const char *const *names) {
    const char *best = NULL;
    size_t best_distance = strlen(word) / 2 + 1;
    for (; *names != NULL; names++) {
        size_t distance = edit_distance(word, *names);
        if (distance < best_distance) {
            best = *names;
            best_distance = distance;
        }
    }
    return best;
}

const char *name_hint(const char *word, const char *const *names, char text[NAME_HINT_CHARS]) {
    const char *near = name_nearest(word, names);
    text[0] = '\0';
    if (near != NULL) {
        snprintf(text, NAME_HINT_CHARS, "; did you mean '%.64s'?", near);
    }
    return text;
}
