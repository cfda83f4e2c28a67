/* All commands, one descriptor each. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_COMMANDS_H
#define UNMASK_EXPERIMENTS_COMMAND_COMMANDS_H

#include "experiments/run/cli/cmd.h"

#define COMMAND(name) extern const struct command command_##name;
#include "experiments/command/commands.def"

/* What the program runs, and what its manual and shells' completion are made of. */

enum { COMMANDS_MOST = 64 };

/* NULL after the last. */
extern const struct command *const commands[COMMANDS_MOST + 1];

#endif
