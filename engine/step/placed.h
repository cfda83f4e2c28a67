/* Whether a step's placement is one that the engine can obey. */
#ifndef UNMASK_ENGINE_STEP_PLACED_H
#define UNMASK_ENGINE_STEP_PLACED_H

#include "engine/op/program.h"
#include "engine/op/step.h"
#include "sim/base/err.h"

/* Every tensor inside the workspace with room for the step's shape, and nothing that a loop in
 * chunks writes over what its later chunks read. ERR_USAGE naming the first tensor otherwise. */
int placed_check(const struct program *program, const struct step_limits *limits,
                 const struct step *step, struct err *err);

#endif
