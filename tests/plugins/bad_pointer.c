/* Exports a pointer to its descriptor instead of the descriptor. */
#include "tests/plugins/bad.h"

static const struct router router = {POLICY(POLICY_ROUTER, router, "pointer")};

const struct router *const unmask_policy = &router;
