/* A catalogue: things that INI files describe, one file each, such as models and GPUs.
 *
 * A thing is found by its name, which is its file's in the catalogue's folder of the data folder,
 * or by the path of a file anywhere. Its values are read once a process and stay until it ends, so
 * that what is found may be kept; a file that changed is read again, and is another thing then.
 * Threads may look things up at the same time. */
#ifndef UNMASK_SIM_BASE_INPUT_CATALOGUE_H
#define UNMASK_SIM_BASE_INPUT_CATALOGUE_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/input/config.h"
#include "sim/base/names.h"
#include "sim/base/param.h"
#include "sim/base/warning.h"

/* What every thing begins with. */
struct catalogued {
    const char *name; /* its file's, without folder and ending */
    const char *path; /* as it was given; NULL: found by its name in the data folder */
    /* Keys of a user's file that no command reads of such a thing: lines of "KEY", "VALUE",
     * "FILE:LINE" and the condition of its doc with tabs between; NULL: none. */
    const char *unread;
};

/* A key whose value is text: `const char *` in the thing, NULL where it is optional and not given.
 */
struct catalogue_text {
    const char *key;
    size_t offset;
    bool is_optional;
};

struct catalogue {
    const char *what;    /* how sentences call one */
    const char *section; /* of its files, and the role of these among a run's inputs */
    const char *list;    /* what `unmask list` calls them all */
    const char *folder;  /* of the data folder */
    size_t size;         /* of one */
    const struct catalogue_text *texts; /* ends with a NULL key */
    const struct param *params;         /* one without an initial value must be given */
    size_t n_params, params_offset;     /* of what they are laid out in */
    /* What has to hold between values, or follows from them; may be NULL. `place` is the file. */
    int (*settle)(void *thing, const char *place, struct err *err);
    /* What else conditions of docs may name (sim/base/condition.h); NULL: SECTION.KEY, backend. */
    const char *(*fact)(const void *thing, const char *name);
    /* Reads a file that is no INI file; NULL where there are none. */
    bool (*is_foreign)(const char *path);
    int (*read_foreign)(const char *path, void *thing, struct err *err);
    /* The end of the sentence about an unknown name; NULL: name_hint. */
    const char *(*hint)(const char *word, const char *const *names, char text[NAME_HINT_CHARS]);
    struct catalogue_items *items; /* what was read so far; NULL at first */
};

/* A warning (setting-unused) for each key that `unread` lists. */
void catalogue_warn_of_unread(const char *unread, struct warnings *warnings);

/* The thing of that name, or of the file at that path (with a slash or an ending of .ini or .json).
 * NULL, and a sentence with the nearest name, or with the file's line. */
const void *catalogue_find(struct catalogue *catalogue, const char *name, struct err *err);

/* 0 if there is a thing of that name in the data folder, which is not read; else a sentence. */
int catalogue_check_name(const struct catalogue *catalogue, const char *name, struct err *err);

/* All of the data folder, by name; NULL after the last. NULL and a sentence when one cannot be
 * read. The array is the catalogue's. */
const void *const *catalogue_all(struct catalogue *catalogue, struct err *err);

/* For read_foreign: a copy of a text that stays until the process ends. */
const char *catalogue_keep_text(const char *text);

#endif
