/* Fast-dLLM v2 (arXiv 2509.26328): a block is decoded small block by small block, from left to
 * right. Of the masked positions of the first small block that has any, all above the threshold are
 * committed, and the most confident one always. */
#include "sim/policy/decoder/decoder.h"

#include "sim/policy/cache/small_blocks.h"

struct state {
    double threshold;
    struct small_blocks small;
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.9", 0, 1, NULL, offsetof(struct state, threshold),
     "confidence above which a position is committed (0.9 in its README, 0.95 the function's own)"},
    SMALL_BLOCKS_PARAM(struct state, small),
};

static uint32_t choose(const void *opaque, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    const struct state *state = opaque;
    const float *confidence = seen->confidence;
    uint32_t n_small = small_block_end(&state->small, request) - (window_decided(request));
    uint32_t n_committed = 0, best = 0;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = i < n_small && confidence[i] > (float)state->threshold;
        n_committed += commit[i];
        best = i < n_small && confidence[i] > confidence[best] ? i : best;
    }
    if (n_committed == 0) {
        commit[best] = 1;
        n_committed = 1;
    }
    return n_committed;
}

const struct decoder decoder_small_blocks = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "small-blocks",
               .doc = "a threshold within one small block of the block at a time (Fast-dLLM v2)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .choose = choose,
};
