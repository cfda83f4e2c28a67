#include "sim/base/names.h"

#include <ctype.h>
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

static size_t lesser(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Letters to change, insert, remove, or swap with the next one. */
static size_t edit_distance(const char *a, const char *b) {
    size_t rows[3][NAME_CHARS + 1], n = strlen(b), i;
    if (n > NAME_CHARS) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n; j++) {
        rows[0][j] = j;
    }
    for (i = 1; a[i - 1] != '\0'; i++) {
        size_t *row = rows[i % 3];
        const size_t *before = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            row[j] =
                lesser(before[j - 1] + (a[i - 1] != b[j - 1]), lesser(row[j - 1], before[j]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = lesser(row[j], second[j - 2] + 1);
            }
        }
    }
    return rows[(i + 2) % 3][n];
}

/* Whether `word` stands in `name` and begins one of its words, in small letters or capitals. */
static bool stands_in(const char *word, const char *name) {
    for (const char *start = name; *name != '\0'; name++) {
        size_t n = 0;
        if (name > start && isalpha((unsigned char)name[-1]) && isalpha((unsigned char)*name)) {
            continue;
        }
        while (word[n] != '\0' &&
               tolower((unsigned char)word[n]) == tolower((unsigned char)name[n])) {
            n++;
        }
        if (word[n] == '\0') {
            return true;
        }
    }
    return false;
}

/* The shortest name of which `word` is a part; NULL where there is none. */
static const char *name_around(const char *word, const char *const *names) {
    const char *best = NULL;
    for (; *names != NULL; names++) {
        if (stands_in(word, *names) && (best == NULL || strlen(*names) < strlen(best))) {
            best = *names;
        }
    }
    return best;
}

/* The shortest name in which all parts of `word` between bars stand, in whatever order:
 * latency_p99_s for p99_latency. NULL where there is none, or the word has one part. */
static const char *name_of_parts(const char *word, const char *const *names) {
    const char *best = NULL;
    for (; *names != NULL && strpbrk(word, "_-") != NULL; names++) {
        bool has_all = true;
        for (const char *at = word; has_all && *at != '\0'; at += strspn(at, "_-")) {
            char part[NAME_CHARS];
            const size_t length = strcspn(at, "_-");
            snprintf(part, sizeof part, "%.*s", (int)length, at);
            has_all = length < sizeof part && stands_in(part, *names);
            at += length;
        }
        if (has_all && (best == NULL || strlen(*names) < strlen(best))) {
            best = *names;
        }
    }
    return best;
}

const char *name_nearest(const char *word, const char *const *names) {
    enum { TELLING_CHARS = 3, LONG_CHARS = 8, SLIP = 2 };
    const size_t length = strlen(word);
    const char *around = length >= TELLING_CHARS ? name_around(word, names) : NULL, *best = NULL;
    around = around != NULL || length < LONG_CHARS ? around : name_of_parts(word, names);
    size_t best_distance = length / 2 + 1;
    for (; *names != NULL; names++) {
        size_t distance = edit_distance(word, *names);
        if (distance < best_distance) {
            best = *names;
            best_distance = distance;
        }
    }
    const bool is_slip = length >= LONG_CHARS && best_distance <= SLIP;
    return around != NULL && !is_slip ? around : best;
}

const char *name_hint(const char *word, const char *const *names, char text[NAME_HINT_CHARS]) {
    const char *near = name_nearest(word, names);
    text[0] = '\0';
    if (near != NULL) {
        snprintf(text, NAME_HINT_CHARS, "; did you mean '%.64s'?", near);
    }
    return text;
}
