/* Options: the words after a command on the command line, checked against the command's table.
 *
 * `--name value` and `--name=value` are the same; names of one letter are written -j 4 or -j4; "--"
 * ends the options. An unknown name is met with the nearest known one. */
#ifndef UNMASK_EXPERIMENTS_RUN_CLI_OPTIONS_H
#define UNMASK_EXPERIMENTS_RUN_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/err.h"

struct option {
    const char *name;
    const char *value; /* what stands for the value in the help; NULL: a flag */
    const char *doc;
    bool repeats; /* may be given more than once */
};

enum { OPTIONS_MOST_GIVEN = 128, OPTIONS_MOST_WORDS = 1024 };

struct given {
    const struct option *option;
    const char *value; /* NULL for a flag */
};

/* Borrows the texts of argv and the tables. */
struct options {
    struct given given[OPTIONS_MOST_GIVEN]; /* in order */
    size_t n_given;
    const char *words[OPTIONS_MOST_WORDS]; /* what is no option */
    size_t n_words;
};

/* Groups of options; each group ends with a NULL name, the list with NULL. At most `max_words`
 * words that are no options are taken. */
int options_read(const struct option *const *groups, int argc, char *const *argv, size_t max_words,
                 struct options *out, struct err *err);

/* ERR_USAGE where an option has no effect with the others given: its doc ends with a
 * condition (sim/base/condition.h) over options, `--planner = exact`, of which those that were not
 * given are `none` and flags `on`. */
int options_check_read(const struct options *options, struct err *err);

/* The value given for `name`, or NULL; and whether it was given at all. */
const char *options_text(const struct options *options, const char *name);
bool options_has(const struct options *options, const char *name);

/* All values given for an option that repeats, in order; `out` holds OPTIONS_MOST_GIVEN. */
size_t options_values(const struct options *options, const char *name, const char **out);

/* Leave `*out` as it is when the option was not given. ERR_USAGE with the range otherwise. */
int options_whole(const struct options *options, const char *name, uint64_t min, uint64_t max,
                  uint64_t *out, struct err *err);
int options_positive(const struct options *options, const char *name, double *out, struct err *err);
/* A time with an optional unit, in ns. */
int options_time(const struct options *options, const char *name, int64_t *out, struct err *err);

/* The options with their documentation, for --help. */
void options_help(const struct option *const *groups, FILE *out);

/* Comma lists of INI files and options. */

enum { WORDS_MOST = 16, WORDS_CHARS = 64 };

struct words {
    char word[WORDS_MOST][WORDS_CHARS];
    size_t n;
};

/* Split at commas, blanks trimmed; an empty field is an empty word. */
int words_split(const char *text, struct words *out, const char *place, struct err *err);

#endif
