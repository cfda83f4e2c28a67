/* check-plugin: load a user's policy in a child process, exercise it, and say what it did wrong.
 *
 * A crash or an endless loop ends the child, not the caller. The same file gives the same report.
 * Any thread may call it: the child is a new process of the same program, not a fork.
 * Who has a gate (sim/policy/plugin/plugin.h) asks it first: the child loads what it is given.
 */
#ifndef UNMASK_SIM_POLICY_PLUGIN_CHECK_PLUGIN_H
#define UNMASK_SIM_POLICY_PLUGIN_CHECK_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/err.h"

/* For one callback, or for loading: seconds of the processor's time; and seconds in all, for one
 * that waits. */
enum { CHECK_CALL_LIMIT_S = 2, CHECK_WAIT_LIMIT_S = 10 };

/* Who is given each situation that was tried, in order, as a row. */
struct check_rows {
    void *state;
    void (*add)(void *state, const char *situation, bool is_kept, uint64_t n_calls);
};

/* 0 when the plug-in at `path` keeps every promise of its kind. Else ERR_WORLD (ERR_USAGE when
 * `path` holds no slash) and one sentence: why it is refused, the first broken promise with its
 * numbers, the signal it crashed with, or the callback it did not return from. `report` is given
 * one line for each promise with the number of checks; nothing when the plug-in is refused.
 * `rows` is given the same, or is NULL. */
int check_plugin(const char *path, FILE *report, const struct check_rows *rows, struct err *err);

#endif
