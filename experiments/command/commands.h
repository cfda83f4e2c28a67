/* All commands, one descriptor each. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_COMMANDS_H
#define UNMASK_EXPERIMENTS_COMMAND_COMMANDS_H

#include "experiments/run/cli/cmd.h"

extern const struct command command_list, command_run, command_compare, command_explain,
    command_plan, command_profile, command_replay, command_report, command_sweep,
    command_check_plugin, command_figure, command_fit, command_generate, command_transfer,
    command_allocator, command_calibrate, command_accuracy, command_lmax, command_server,
    command_latency, command_sensitivity, command_capacity, command_bound, command_trace_info,
    command_trace_convert, command_plot, command_merge, command_cite, command_profile_pack,
    command_profile_add, command_serve, command_validate;

/* What the program runs, and what its manual and shells' completion are made of. */

enum { COMMANDS_MOST = 64 };

/* NULL after the last. */
extern const struct command *const commands[COMMANDS_MOST + 1];

#endif
