/* The picture of a plan: `unmask plan --picture`. */
#ifndef UNMASK_EXPERIMENTS_CLI_PLAN_PICTURE_H
#define UNMASK_EXPERIMENTS_CLI_PLAN_PICTURE_H

#include "experiments/cli/options.h"
#include "experiments/run/step.h"
#include "sim/memory/instance.h"
#include "sim/memory/usage.h"

/* --picture */
extern const struct option picture_options[];

/* Whether what --picture asks for, if it is given, can be drawn; ERR_USAGE before anything is
 * planned. Comparing planners makes no one plan to draw. */
int plan_picture_check(const struct options *options, bool compares, struct err *err);

/* Both do nothing unless --picture is given. */
int plan_picture_of_step(const struct options *options, const struct system *system,
                         const struct asked_step *step, const char *planner,
                         const struct placement *placement, const struct usage *usage,
                         struct err *err);

/* `plan` has the offsets; `capacity_bytes` 0: none was asked for. */
int plan_picture_of_instance(const struct options *options, const char *path, const char *planner,
                             const struct instance *instance, const struct plan *plan,
                             int64_t capacity_bytes, struct err *err);

#endif
