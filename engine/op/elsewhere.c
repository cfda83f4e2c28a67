/* Operators that the engine does not run: those of other runtimes, which are simulated. */
#include "engine/op/op.h"

const struct op_launch op_launch_gather = {.why_not =
                                               "our attention reads cached rows where they lie"};
const struct op_launch op_launch_moe_route = {
    .why_not = "our router is a product and a choice of experts"};
const struct op_launch op_launch_moe_linear = {
    .why_not = "our experts' products are over pairs in the order of their experts"};
