/* Files that are mapped and become shorter, as a checkpoint that is downloaded again: reading what
 * is gone is a SIGBUS, which ends the program with a sentence and status 1 instead. */
#ifndef UNMASK_ENGINE_WEIGHTS_TRUNCATED_H
#define UNMASK_ENGINE_WEIGHTS_TRUNCATED_H

#include <stddef.h>

/* `path` is borrowed until truncated_forget. */
void truncated_watch(const char *path, const void *map, size_t size);
void truncated_forget(const void *map);

#endif
