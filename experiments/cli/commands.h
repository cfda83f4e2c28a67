/* All commands: what the program runs, and what its manual and shells' completion are made of. */
#ifndef UNMASK_EXPERIMENTS_CLI_COMMANDS_H
#define UNMASK_EXPERIMENTS_CLI_COMMANDS_H

#include "experiments/cli/cmd.h"

enum { COMMANDS_MOST = 64 };

/* NULL after the last. */
extern const struct command *const commands[COMMANDS_MOST + 1];

#endif
