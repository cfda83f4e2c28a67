/* What a command of the command line is, and what commands share to print. */
#ifndef UNMASK_EXPERIMENTS_RUN_CLI_CMD_H
#define UNMASK_EXPERIMENTS_RUN_CLI_CMD_H

#include <jansson.h>

#include "experiments/run/cli/options.h"
#include "experiments/run/cli/table.h"

struct command {
    const char *name;
    const char *words; /* what follows the name in the usage line */
    const char *doc;   /* one line */
    const char *more;  /* paragraphs for --help, or NULL */
    const struct option *const *options;
    size_t max_words;
    bool takes_ranks; /* started by mpirun or srun, all ranks do it together (ranks/ranks.h) */
    /* Prints results on standard output. The value is the exit status, with `err` filled. */
    int (*run)(const struct options *options, struct err *err);
};

/* What --format is for, of commands without --json, too. */
#define FORMAT_DOC "tables as text, or alone as markdown, latex or csv"

/* --json, shared by all commands that report; --format, by those that print tables; --verbose, by
 * those that warn. */
extern const struct option json_options[], format_option[], verbose_option[];

/* Has tables printed as --format says, and all warnings where --verbose or --json does. */
int cmd_take_output(const struct options *options, struct err *err);

/* Takes `object`: prints it as `run --json` prints its summary. */
int cmd_print_json(json_t *object, struct err *err);

/* As JSON where --json was given, else for people. */
int cmd_print_table(const struct options *options, const struct table *table, struct err *err);

/* The text under `key` of a summary; "" where there is none. */
const char *cmd_text(const json_t *summary, const char *key);

/* The number under `key` of a summary, or under `inner` of that object; NaN where there is none. */
double cmd_number(const json_t *summary, const char *key, const char *inner);

#endif
