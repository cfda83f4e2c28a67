/* INI files, read strictly: every entry keeps its line, so that a complaint can name it.
 *
 * The syntax is inih's: [section], key = value, ';' and '#' comments; a line is at most 199 bytes
 * long, and one that begins with a blank goes on with the value of the line before it. A key set
 * twice in a section is an error; a section may be continued. */
#ifndef UNMASK_SIM_BASE_INPUT_CONFIG_H
#define UNMASK_SIM_BASE_INPUT_CONFIG_H

#include <stddef.h>

#include "sim/base/err.h"

struct config_entry {
    char *section, *key, *value; /* owned by the config; section "" before the first header */
    int line;
    const char *place; /* who says so where the file does not; NULL: the file. Borrowed */
};

struct config {
    char *path; /* as given, for messages */
    struct config_entry *entries;
    size_t n_entries;
};

/* Read the file at `path`, or the `size` bytes of `text` under the name `path` (for built-in files
 * and fuzzing). On error nothing needs releasing and `err` says "path:line: ...". */
int config_read(const char *path, struct config *out, struct err *err);
int config_parse(const char *path, const char *text, size_t size, struct config *out,
                 struct err *err);
void config_fini(struct config *config);

/* The value of `key` in `section`, or NULL. */
const struct config_entry *config_find(const struct config *config, const char *section,
                                       const char *key);

/* The entries of a section (NULL: any) with a key (NULL: any), in the order of the file: the one
 * after `last`, the first after NULL; NULL after the last. */
const struct config_entry *config_next(const struct config *config, const char *section,
                                       const char *key, const struct config_entry *last);

/* "path:line" of an entry, or its place, for err sentences. Returns `text`. */
const char *config_place(const struct config *config, const struct config_entry *entry, char *text,
                         size_t size);

#endif
