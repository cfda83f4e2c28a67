/* A file as one text, and its lines: how all inputs are read but for traces of millions of rows
 * (traces/reader.h), checkpoints and databases. */
#ifndef UNMASK_SIM_BASE_INPUT_TEXT_H
#define UNMASK_SIM_BASE_INPUT_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

/* Reads the file, notes it among the run's inputs under `role` (NULL: not), and appends a NUL; the
 * caller frees it. NULL and ERR_WORLD where it cannot be read, holds a NUL byte or has more than
 * `most` bytes, so that a device or a pipe without an end is refused soon. */
char *text_read(const char *path, const char *role, size_t most, size_t *size, struct err *err);

/* Whether the n bytes that a file begins with are those of a Git LFS pointer, which stands in the
 * place of a large file in a clone without LFS, or of an archive or table that unmask does not
 * read; if so, `err` has the sentence. TEXT_HEAD_BYTES are enough. */
enum { TEXT_HEAD_BYTES = 64 };
bool text_is_foreign(const char *path, const void *bytes, size_t n, struct err *err);

/* The next line of a text, ended in place without its LF or CR LF; NULL after the last. `*rest`
 * begins as the text, which ends with NUL; `*length`, where asked for, is the line's. */
char *text_line(char **rest, size_t *length);

/* A JSON file, read as all inputs are (sim/base/input/text.h). */

/* The file's value, noted among the run's inputs under `role` (NULL: not); the caller's. NULL and
 * ERR_WORLD, "path:line: ...", where it cannot be read or is not sound. `flags` are jansson's. */
json_t *json_read(const char *path, const char *role, size_t flags, struct err *err);

#endif
