/* Rows of a trace that are none of its requests, counted by why. */
#ifndef UNMASK_TRACES_FORMAT_PASSED_OVER_H
#define UNMASK_TRACES_FORMAT_PASSED_OVER_H

#include <stdint.h>

#include "sim/base/err.h"

enum { PASSED_OVER_CHARS = 128 };

struct passed_over {
    uint64_t failed, left_out;     /* by --where */
    uint64_t bad;                  /* cannot be read */
    char first[PASSED_OVER_CHARS]; /* why --where leaves out the first */
};

/* Of two passes over a file, the more of each. */
struct passed_over passed_over_most(const struct passed_over *a, const struct passed_over *b);

/* ERR_WORLD: no row is left, for these reasons. `line` is the one after the last, `first_bad` what
 * was wrong with the first that cannot be read. */
int passed_over_all(const struct passed_over *passed, const char *path, uint64_t line,
                    const char *first_bad, struct err *err);

#endif
