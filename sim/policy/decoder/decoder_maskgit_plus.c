/* Dream's maskgit-plus (diffusion_generate, alg = maskgit_plus): of the positions that its time
 * grid releases in a step those whose most likely token is the likeliest. */
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/decoder/time_grid.h"

static const struct param params[] = {TIME_GRID_RANKED_PARAMS};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    *out = time_grid_rule(opaque, request, RANK_CONFIDENCE);
}

const struct decoder decoder_maskgit_plus = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_DECODER,
         .size = sizeof(struct decoder),
         .state_bytes = sizeof(struct time_grid_ranked),
         .name = "maskgit-plus",
         .doc = "as many as Dream's time grid says, the most confident; ignores how sure they are",
         .params = params,
         .n_params = sizeof params / sizeof params[0]},
    .count = time_grid_count,
    .rule = rule,
};
