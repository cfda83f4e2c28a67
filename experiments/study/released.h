/* Which released program serves as a system does, and how it is started (released.ini). */
#ifndef UNMASK_EXPERIMENTS_STUDY_RELEASED_H
#define UNMASK_EXPERIMENTS_STUDY_RELEASED_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/supported.h"
#include "sim/system/system.h"

enum { RELEASED_CHARS = 640, RELEASED_NAME_CHARS = 64 };

struct released {
    bool is_published; /* such a program was released, or the paper's implementation was */
    char near[RELEASED_NAME_CHARS]; /* of a design: the nearest published system; "": none */
    char program[96];               /* with its version; "": not known */
    char command[RELEASED_CHARS];   /* with its arguments; "": it has none that are known */
    char file[RELEASED_CHARS];      /* what stands in files that it reads; "": nothing */
};

/* By the name alone: without a command. */
int released_named(const char *name, struct released *out, struct err *err);

/* The same; a system of the file `systems_path` is as near as what it is based on. NULL: no file.
 */
int released_based(const char *name, const char *systems_path, struct released *out,
                   struct err *err);

/* What of a shipped system, with its own model on one GPU, no engine runs; NULL: it runs live. */
int released_lacks(const char *name, const struct feature **out, struct err *err);

/* Three lines at most: which of these shipped systems are designs and which were published, and
 * which of them are simulated only. Names may repeat, be NULL or of no shipped system. */
void released_print(const char *const *systems, size_t n, FILE *out);

/* Of a resolved system, whose file is `systems_path` or NULL. */
int released_of(const struct system *system, const char *systems_path, struct released *out,
                struct err *err);

#endif
