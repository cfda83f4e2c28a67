/* Several blocks at once: in every block that is in flight all positions above a threshold are
 * committed, and its best one where there is none, if the block before it is decided far enough; a
 * block after one that is not may commit nothing. D2F (SJTU-DENG-Lab/Discrete-Diffusion-Forcing
 * eval_llada.py: skip_threshold and decoded_token_threshold) and MultiBD (Diffulex's multi_bd
 * sampler: accept and semi_complete). The prompt's positions in a block count as decided.
 *
 * Which blocks are in flight say blocks_in_flight, block_add_threshold and static_blocks. */
#include "sim/policy/decoder/several_blocks.h"

struct several_blocks {
    double threshold, complete;
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.9", 0, 1, NULL, offsetof(struct several_blocks, threshold),
     "confidence above which a position is committed (D2F: 0.9; MultiBD: 0.95)"},
    {"complete", PARAM_F64, 0, "1", "0.95", 0, 1, NULL, offsetof(struct several_blocks, complete),
     "share of the block before that is decided from where on a block commits in every step (D2F: "
     "0.95; MultiBD: 0.9) [blocks_in_flight > 1]"},
};

static uint32_t choose(const void *opaque, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    const struct several_blocks *state = opaque;
    return several_blocks_choose(request, seen, seen->confidence, (float)state->threshold,
                                 state->complete, commit);
}

const struct decoder decoder_several_blocks = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct several_blocks),
               .name = "several-blocks",
               .doc = "a threshold in every block in flight; later blocks may be decided too soon",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .choose = choose,
};
