/* Comma lists of INI files and options. */
#ifndef UNMASK_EXPERIMENTS_CLI_WORDS_H
#define UNMASK_EXPERIMENTS_CLI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

enum { GRID_MOST = 16, GRID_WORD = 64 };

struct words {
    char word[GRID_MOST][GRID_WORD];
    size_t n;
};

/* Split at commas, blanks trimmed; an empty field is an empty word. */
int words_split(const char *text, struct words *out, const char *place, struct err *err);

#endif
