/* Of a kind that does not exist. */
#include "tests/plugins/bad.h"

const struct router unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER + 1,
               .size = sizeof(struct router),
               .name = "wrong-kind",
               .doc = "of no known kind"},
};
