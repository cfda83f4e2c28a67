/* What is made of the tables of commands, options and keys: reference pages, man pages, and the
 * completion of shells. Everything goes to one stream; nothing can fail but writing to it. */
#ifndef UNMASK_EXPERIMENTS_PACKAGE_MANUAL_H
#define UNMASK_EXPERIMENTS_PACKAGE_MANUAL_H

#include <stdbool.h>
#include <stdio.h>

#include "experiments/command/commands.h"

/* docs/reference/commands.md, and a page of docs/reference/commands for each group: the commands
 * that begin with one word. */
void manual_commands(FILE *out);
void manual_groups(FILE *out); /* their names, a line each */
/* False: there is none. */
bool manual_group(const char *group, FILE *out);
/* docs/reference/keys.md. */
void manual_keys(FILE *out);
/* docs/reference/features.md, cautions.md and fields.md. */
void manual_features(FILE *out);
void manual_cautions(FILE *out);
void manual_fields(FILE *out);

/* docs/reference/endpoints.md, of `unmask serve`. */
void manual_endpoints(FILE *out);

/* unmask(1) where `command` is NULL, else the command's own page in roff. */
void manual_page(const struct command *command, FILE *out);

/* experiments/python/unmask/_options.py. */
void manual_python(FILE *out);

/* Completion scripts. Names of things are asked of `unmask list` when they are needed. */
void manual_bash(FILE *out);
void manual_zsh(FILE *out);
void manual_fish(FILE *out);

/* What `unmask list` calls the things that an option's value names; NULL: none. */
const char *manual_values(const struct option *option);

/* Whether an option's value is a file or a folder. */
bool manual_is_path(const struct option *option);

#endif
