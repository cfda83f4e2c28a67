/* Fast-dLLM's factor decoder (arXiv 2505.22618, section 3.3 and its code's
 * get_transfer_index_dynamic): how confident a position has to be grows with how many are committed
 * together. In order of confidence the n-th is, as long as (n + 1) (1 - confidence) stays within
 * the factor. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double factor;
};

static const struct param params[] = {
    {"factor", PARAM_F64, 0, "1", "1", 0, 1000, NULL, offsetof(struct state, factor),
     "what (n + 1) (1 - confidence) may be for the n-th position of a step"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    (void)request;
    *out = (struct decode_rule){
        .kind = DECODE_FACTOR, .rank = RANK_CONFIDENCE, .factor = (float)state->factor};
}

const struct decoder decoder_factor = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "factor",
               .doc = "the more positions at once, the surer each; blind to where they are",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
};
