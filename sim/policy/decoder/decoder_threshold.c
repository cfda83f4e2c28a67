/* Fast-dLLM's confidence threshold: every masked position of the block at or above the threshold is
 * committed, the most confident one always (arXiv 2505.22618, section 3.3). With a slack, those as
 * near to the best go with it: dInfer's form of the rule. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double threshold, slack;
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.9", 0, 1, NULL, offsetof(struct state, threshold),
     "confidence from which a position is committed"},
    {"slack", PARAM_F64, 0, "1", "0", 0, 1, NULL, offsetof(struct state, slack),
     "commits positions within this of the best, too (dInfer: 1e-5; 0: the best alone)"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    (void)request;
    *out = (struct decode_rule){.kind = DECODE_THRESHOLD,
                                .rank = RANK_CONFIDENCE,
                                .threshold = (float)state->threshold,
                                .slack = (float)state->slack};
}

const struct decoder decoder_threshold = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "threshold",
               .doc = "every position at or above a confidence, the best one always",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
};
