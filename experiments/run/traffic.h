/* Traffic: a workload with what the command line says in place of its file's words. */
#ifndef UNMASK_EXPERIMENTS_RUN_TRAFFIC_H
#define UNMASK_EXPERIMENTS_RUN_TRAFFIC_H

#include <stdio.h>

#include "sim/system/system.h"
#include "traces/workload.h"

/* Opens the workload or trace `name`. `settings` replace keys of its INI file (for a trace: of the
 * INI that would replay it); a new arrival process drops the parameters of the one before, and the
 * rate where it takes none. What is in force goes to `text` as key = value lines, unless it is
 * NULL. */
int traffic_open(const char *name, const struct setting *settings, uint32_t n_settings,
                 const struct workload_options *options, FILE *text, struct workload **out,
                 struct err *err);

#endif
