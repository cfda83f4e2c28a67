/* One character of UTF-8 at a time. */
#ifndef UNMASK_SIM_BASE_UTF8_H
#define UNMASK_SIM_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of the character at text[0..n), n > 0, and in *is_valid whether it is one: if not, of
 * what was begun and cannot go on (a maximal subpart, as Unicode recommends to replace by one
 * U+FFFD). */
static inline size_t utf8_next(const char *text, size_t n, bool *is_valid) {
    const unsigned char *at = (const unsigned char *)text;
    unsigned char first = at[0], least = 0x80, most = 0xbf;
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    *is_valid = first < 0x80 || (first >= 0xc2 && first <= 0xf4);
    if (!*is_valid) {
        return 1;
    }
    if (first == 0xe0 || first == 0xf0) { /* longer than need be */
        least = first == 0xe0 ? 0xa0 : 0x90;
    } else if (first == 0xed || first == 0xf4) { /* surrogates; beyond U+10FFFF */
        most = first == 0xed ? 0x9f : 0x8f;
    }
    for (size_t i = 1; i < length; i++) {
        if (i >= n || at[i] < least || at[i] > most) {
            *is_valid = false;
            return i;
        }
        least = 0x80;
        most = 0xbf;
    }
    return length;
}

/* Whether the character at `text` moves a terminal's cursor or worse: C0 and C1 controls, delete.
 */
static inline bool utf8_is_control(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

#endif
