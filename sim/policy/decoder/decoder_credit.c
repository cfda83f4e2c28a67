/* dInfer's credit decoder (inclusionAI/dInfer, CreditThresholdParallelDecoder): a token that stays
 * the most likely one earns credit, which raises its logit, and then the threshold decides.
 *
 * dInfer keeps a number for every position of the block and every token, 32 x 157184 x 4 bytes a
 * request. A position has at most one new token a step, so that a list of those that have credit
 * says the same: at most as many as the block has positions. Lists are kept here. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double threshold, slack, alpha, beta, gamma;
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.9", 0, 1, NULL, offsetof(struct state, threshold),
     "confidence, with credit, from which a position is committed"},
    {"slack", PARAM_F64, 0, "1", "1e-5", 0, 1, NULL, offsetof(struct state, slack),
     "commits positions within this of the best, too (dInfer: 1e-5; 0: the best alone)"},
    {"alpha", PARAM_F64, 0, "1", "0.7", 0, 100, NULL, offsetof(struct state, alpha),
     "what a logit grows by for each log(1 + credit) (dInfer: 0.7)"},
    {"beta", PARAM_F64, 0, "1", "0.8", 0, 1, NULL, offsetof(struct state, beta),
     "share of the credit that a step leaves (dInfer: 0.8)"},
    {"gamma", PARAM_F64, 0, "1", "0.2", 0, 100, NULL, offsetof(struct state, gamma),
     "power of the probability that a step's most likely token earns (dInfer: 0.2)"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    (void)request;
    *out = (struct decode_rule){.kind = DECODE_THRESHOLD,
                                .rank = RANK_CONFIDENCE,
                                .threshold = (float)state->threshold,
                                .slack = (float)state->slack};
}

static void credit(const void *opaque, struct decode_credit *out) {
    const struct state *state = opaque;
    *out = (struct decode_credit){
        .alpha = (float)state->alpha, .beta = (float)state->beta, .gamma = (float)state->gamma};
}

const struct decoder decoder_credit = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "credit",
               .doc =
                   "a threshold that tokens pass sooner the longer they lead; needs stored logits",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
    .credit = credit,
};
