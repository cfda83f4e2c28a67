/* Dream's entropy (diffusion_generate, alg = entropy): of the positions that its time grid
 * releases in a step those whose distribution has the least entropy. */
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/decoder/time_grid.h"

static const struct param params[] = {TIME_GRID_RANKED_PARAMS};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    *out = time_grid_rule(opaque, request, RANK_ENTROPY);
}

const struct decoder decoder_entropy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct time_grid_ranked),
               .name = "entropy",
               .doc = "as many as Dream's time grid says, by least entropy; Dream's usual choice",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .count = time_grid_count,
    .rule = rule,
    .reads_statistics = 1,
};
