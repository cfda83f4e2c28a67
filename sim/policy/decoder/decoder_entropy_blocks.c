/* d3LLM (hao-ai-lab/d3LLM generate_multi_block; SGLang's full_attn_multi_block): in every block
 * that is in flight the positions of less entropy than a bound are committed, and of the first
 * block the least where it has none. */
#include "sim/policy/decoder/several_blocks.h"

struct state {
    double entropy;
};

static const struct param params[] = {
    {"entropy", PARAM_F64, 0, "nats", "0.45", 0, 1000, NULL, offsetof(struct state, entropy),
     "entropy below which a position is committed (d3LLM: 0.4 to 0.5)"},
};

static uint32_t choose(const void *opaque, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    const struct state *state = opaque;
    return several_blocks_choose(request, seen, seen->entropy, -(float)state->entropy, 2, commit);
}

const struct decoder decoder_entropy_blocks = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "entropy-blocks",
               .doc = "positions below an entropy in every block in flight (d3LLM); as rash",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .choose = choose,
    .reads_statistics = 1,
};
