/* A file as one text, and its lines: how all inputs are read but for traces of millions of rows
 * (traces/reader.h), checkpoints and databases. */
#ifndef UNMASK_SIM_INPUT_TEXT_H
#define UNMASK_SIM_INPUT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

/* Reads the file, notes it among the run's inputs under `role` (NULL: not), and puts a NUL behind
 * it; the caller frees it. NULL and ERR_WORLD where it cannot be read, holds a NUL byte or has more
 * than `most` bytes, so that a device or a pipe without an end is refused soon. */
char *text_read(const char *path, const char *role, size_t most, size_t *size, struct err *err);

/* What stands in the place of a large file in a clone without Git LFS. Whether the n bytes that a
 * file begins with are such a pointer; if so, `err` has the sentence. */
bool text_is_lfs_pointer(const char *path, const void *bytes, size_t n, struct err *err);

/* The next line of a text, ended in place without its LF or CR LF; NULL behind the last. `*rest`
 * begins as the text, which ends with NUL; `*length`, where asked for, is the line's. */
char *text_line(char **rest, size_t *length);

#endif
