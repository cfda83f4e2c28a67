/* `unmask plan --instance FILE`: where the buffers of a file lie. */
#ifndef UNMASK_EXPERIMENTS_PLAN_PLAN_INSTANCE_H
#define UNMASK_EXPERIMENTS_PLAN_PLAN_INSTANCE_H

#include "experiments/cli/options.h"

/* The exit status, with `err` filled. ERR_USAGE where an option is about a step. */
int plan_instance_run(const struct options *options, struct err *err);

#endif
