#include "experiments/command/commands.h"

#define COMMAND(name) &command_##name,
const struct command *const commands[COMMANDS_MOST + 1] = {
#include "experiments/command/commands.def"
};
