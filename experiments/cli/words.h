/* Comma lists of INI files and options. */
#ifndef UNMASK_EXPERIMENTS_CLI_WORDS_H
#define UNMASK_EXPERIMENTS_CLI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

enum { WORDS_MOST = 16, WORDS_CHARS = 64 };

struct words {
    char word[WORDS_MOST][WORDS_CHARS];
    size_t n;
};

/* Split at commas, blanks trimmed; an empty field is an empty word. */
int words_split(const char *text, struct words *out, const char *place, struct err *err);

#endif
