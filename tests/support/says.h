/* Whether a message says what is expected, however it is worded: every number, name, option and
 * path of the expected sentence stands in it, and so do two in five of its longer words. */
#ifndef UNMASK_TESTS_SUPPORT_SAYS_H
#define UNMASK_TESTS_SUPPORT_SAYS_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "tests/support/suite.h"

/* As a whole word. */
static inline bool says_word(const char *text, const char *word, size_t length) {
    for (const char *at = text; *at != '\0'; at++) {
        if (strncmp(at, word, length) == 0 && (at == text || !isalnum((unsigned char)at[-1])) &&
            !isalnum((unsigned char)at[length])) {
            return true;
        }
    }
    return false;
}

static inline bool message_says(const char *text, const char *sentence) {
    size_t n_long = 0, n_found = 0;
    bool quoted = false;
    if ((text[0] == '\0') != (sentence[0] == '\0')) {
        return false;
    }
    for (const char *at = sentence + strspn(sentence, " \n"); *at != '\0';) {
        size_t length = strcspn(at, " \n"), first = strspn(at, "'\"(,;"), last = length;
        quoted = quoted || at[0] == '\'';
        while (last > first && strchr("'\"),;:.?", at[last - 1]) != NULL) {
            last--;
        }
        const char *word = at + first;
        size_t n = last > first ? last - first : 0, fact = strcspn(word, "0123456789_/=[]<");
        bool is_found = n == 0 || says_word(text, word, n);
        if (!is_found && (quoted || fact < n || strncmp(word, "--", 2) == 0)) {
            return false;
        }
        quoted = quoted && memchr(at + 1, '\'', length - 1) == NULL && at[length] != '\0';
        n_long += n >= 5;
        n_found += n >= 5 && is_found;
        at += length;
        at += strspn(at, " \n");
    }
    return 5 * n_found >= 2 * n_long;
}

#define ASSERT_SAYS(text, sentence)                                                                \
    ck_assert_msg(message_says(text, sentence), "\"%s\" does not say \"%s\"", text, sentence)

#endif
