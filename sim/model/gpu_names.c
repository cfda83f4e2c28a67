#include "sim/model/gpu_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "sim/model/gpu.h"

enum { BARE_CHARS = 128 };

/* Letters and digits in small letters, without the maker and the brand. */
static size_t bare(const char *name, size_t n, char out[BARE_CHARS]) {
    static const char *const brands[] = {"nvidia", "geforce"};
    size_t used = 0;
    for (size_t i = 0; i < n && used + 1 < BARE_CHARS; i++) {
        if (isalnum((unsigned char)name[i])) {
            out[used++] = (char)tolower((unsigned char)name[i]);
        }
    }
    out[used] = '\0';
    for (size_t i = 0; i < sizeof brands / sizeof brands[0]; i++) {
        const size_t n_brand = strlen(brands[i]);
        if (used > n_brand && strncmp(out, brands[i], n_brand) == 0) {
            used -= n_brand;
            memmove(out, out + n_brand, used + 1);
        }
    }
    return used;
}

bool gpu_names_equal(const char *a, size_t n_a, const char *b, size_t n_b) {
    char bare_a[BARE_CHARS], bare_b[BARE_CHARS];
    return bare(a, n_a, bare_a) > 0 && bare(b, n_b, bare_b) > 0 && strcmp(bare_a, bare_b) == 0;
}

bool gpu_is_called(const struct gpu *gpu, const char *device) {
    const char *rest = gpu->device, *word = NULL;
    size_t length = 0;
    while (rest != NULL && name_next(&rest, ",", &word, &length)) {
        if (gpu_names_equal(word, length, device, strlen(device))) {
            return true;
        }
    }
    return false;
}

/* Whether `longer` is `shorter` with one character more, which stands next to its like. */
static bool has_one_doubled(const char *longer, const char *shorter) {
    if (strlen(longer) != strlen(shorter) + 1) {
        return false;
    }
    size_t at = 0;
    while (shorter[at] != '\0' && longer[at] == shorter[at]) {
        at++;
    }
    return at > 0 && longer[at] == longer[at - 1] && strcmp(longer + at + 1, shorter + at) == 0;
}

static bool has_two_swapped(const char *a, const char *b) {
    if (strlen(a) != strlen(b)) {
        return false;
    }
    size_t at = 0;
    while (a[at] != '\0' && a[at] == b[at]) {
        at++;
    }
    return a[at] != '\0' && a[at + 1] != '\0' && a[at] == b[at + 1] && a[at + 1] == b[at] &&
           strcmp(a + at + 2, b + at + 2) == 0;
}

static bool is_slip(const char *word, const char *name) {
    char a[BARE_CHARS], b[BARE_CHARS];
    (void)bare(word, strlen(word), a);
    (void)bare(name, strlen(name), b);
    return has_one_doubled(a, b) || has_one_doubled(b, a) || has_two_swapped(a, b);
}

/* "a100" of "a100-80g": whole parts, that "l4" is not the beginning of "l40s". */
static bool begins(const char *word, const char *name) {
    const char *dash = strchr(name, '-');
    for (; dash != NULL; dash = strchr(dash + 1, '-')) {
        if (gpu_names_equal(word, strlen(word), name, (size_t)(dash - name))) {
            return true;
        }
    }
    return false;
}

const char *gpu_hint(const char *word, const char *const *names, char text[NAME_HINT_CHARS]) {
    size_t used = 0;
    text[0] = '\0';
    for (int by_beginning = 1; by_beginning >= 0 && used == 0; by_beginning--) {
        for (size_t i = 0; names[i] != NULL && used < NAME_HINT_CHARS; i++) {
            if (by_beginning != 0 ? begins(word, names[i]) : is_slip(word, names[i])) {
                int n = snprintf(text + used, NAME_HINT_CHARS - used, "%s'%.32s'",
                                 used == 0 ? "; did you mean " : " or ", names[i]);
                used += n > 0 ? (size_t)n : 0;
            }
        }
    }
    if (used > 0 && used + 1 < NAME_HINT_CHARS) {
        snprintf(text + used, NAME_HINT_CHARS - used, "?");
    } else if (used == 0) {
        snprintf(text, NAME_HINT_CHARS, "; a card of your own is a file, --gpu ./mine.ini");
    }
    return text;
}
