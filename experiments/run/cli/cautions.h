/* What several results warn of, for people: one line that counts, or with --verbose each sentence
 * once. JSON has all of it (analysis/caution.h). */
#ifndef UNMASK_EXPERIMENTS_RUN_CLI_CAUTIONS_H
#define UNMASK_EXPERIMENTS_RUN_CLI_CAUTIONS_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/warning.h"

/* From now on every sentence is printed. */
void cautions_verbose(void);

/* Starts zeroed. */
struct cautions {
    json_t *lines;                   /* {"code: sentence": [name, ...]}, as they first came */
    size_t n_of[WARNING_CODE_COUNT]; /* how many results warn so */
    size_t n_none;                   /* how many have no result at all */
    size_t n;                        /* results */
};

/* The warnings of one more result; `name` tells it from the others. */
void cautions_add(struct cautions *cautions, const char *name, const struct warnings *warnings);

/* That `n_of` of the results warn so, where only that is known. cautions->n is the caller's. */
void cautions_count(struct cautions *cautions, enum warning_code code, size_t n_of);

/* What is said of all results together. */
void cautions_of_all(struct cautions *cautions, const struct warnings *warnings);

/* "2 cautions: saturated (2 of 3), host assumed; --verbose explains"; with --verbose a line for
 * each sentence, with the names of the results where it is not of all. Nothing where there is
 * nothing to say. Releases what was added. */
void cautions_print(struct cautions *cautions, FILE *out);

/* Of one result. */
void caution_print(const struct warnings *warnings, FILE *out);

#endif
