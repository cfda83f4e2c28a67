/* A file as one text. */
#ifndef UNMASK_SIM_INPUT_TEXT_H
#define UNMASK_SIM_INPUT_TEXT_H

#include <stddef.h>

#include "sim/base/err.h"

/* Reads the file, notes it among the run's inputs under `role`, and puts a NUL behind it; the
 * caller frees it. NULL and ERR_WORLD where it cannot be read or has more than `most` bytes. */
char *text_read(const char *path, const char *role, size_t most, size_t *size, struct err *err);

#endif
