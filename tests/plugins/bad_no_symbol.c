/* Exports a descriptor under a name nobody looks for. */
#include "tests/plugins/bad.h"

const struct router my_policy = {POLICY(POLICY_ROUTER, router, "no-symbol")};
