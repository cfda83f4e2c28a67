#include "experiments/command/commands.h"

/* In the order of the help: questions, looking inside, real devices and servers, policies and fits.
 */
const struct command *const commands[COMMANDS_MOST + 1] = {
    &command_run,          &command_compare,       &command_sweep,
    &command_capacity,     &command_bound,         &command_figure,
    &command_plot,         &command_report,        &command_explain,
    &command_plan,         &command_lmax,          &command_latency,
    &command_allocator,    &command_profile,       &command_transfer,
    &command_accuracy,     &command_profile_pack,  &command_profile_add,
    &command_trace_info,   &command_trace_convert, &command_list,
    &command_calibrate,    &command_generate,      &command_replay,
    &command_serve,        &command_validate,      &command_server,
    &command_check_plugin, &command_fit,           &command_sensitivity,
    &command_merge,        &command_cite,          NULL,
};
