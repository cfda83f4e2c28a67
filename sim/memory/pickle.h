/* Python's pickles of plain data, as json_t: dicts, lists, tuples (as lists), texts, numbers, True,
 * False and None, of protocols 2 to 5. What makes objects of classes or calls functions is refused,
 * so that no pickle executes anything here. A list or dict that stands in a second place, too, is
 * null there: nothing can contain itself. */
#ifndef UNMASK_SIM_MEMORY_PICKLE_H
#define UNMASK_SIM_MEMORY_PICKLE_H

#include <jansson.h>
#include <stdio.h>

#include "sim/base/err.h"

/* NULL: ERR_WORLD with the byte and what was found there. `path` is for sentences. */
json_t *pickle_read(FILE *file, const char *path, struct err *err);

#endif
