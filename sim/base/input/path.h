/* Paths that a file names: they begin at that file's folder. */
#ifndef UNMASK_SIM_BASE_INPUT_PATH_H
#define UNMASK_SIM_BASE_INPUT_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* `path` as `file` names it, as the program opens it: from that file's folder on, without a leading
 * "./". As it stands where it is absolute, or where the file has no folder: one of the working
 * directory, or what a shell hands over by /dev/stdin or <(...) and that does not name itself.
 * False where `out` is too small. */
bool path_named_in(const char *file, const char *path, char *out, size_t size);

#endif
