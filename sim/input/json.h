/* A JSON file, read as all inputs are (sim/input/text.h). */
#ifndef UNMASK_SIM_INPUT_JSON_H
#define UNMASK_SIM_INPUT_JSON_H

#include <jansson.h>

#include "sim/base/err.h"

/* The file's value, noted among the run's inputs under `role` (NULL: not); the caller's. NULL and
 * ERR_WORLD, "path:line: ...", where it cannot be read or is not sound. `flags` are jansson's. */
json_t *json_read(const char *path, const char *role, size_t flags, struct err *err);

#endif
