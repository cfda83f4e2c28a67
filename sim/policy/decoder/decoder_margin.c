/* Dream's margin (diffusion_generate, alg = topk_margin): of the positions that its time grid
 * releases in a step those whose first token leads the second by most. */
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/decoder/time_grid.h"

static const struct param params[] = {TIME_GRID_RANKED_PARAMS};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    *out = time_grid_rule(opaque, request, RANK_MARGIN);
}

const struct decoder decoder_margin = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_DECODER,
         .size = sizeof(struct decoder),
         .state_bytes = sizeof(struct time_grid_ranked),
         .name = "margin",
         .doc = "as many as Dream's time grid says, by the lead of the first token over the second",
         .params = params,
         .n_params = sizeof params / sizeof params[0]},
    .count = time_grid_count,
    .rule = rule,
    .reads_statistics = 1,
};
