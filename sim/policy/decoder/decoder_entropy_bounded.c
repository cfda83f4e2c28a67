/* SDAR's entropy_bounded (JetAstra/SDAR generate.py; the entropy bound of Ben-Hamu et al., arXiv
 * 2505.24857): positions in order of their entropy, as long as what they add up to, which bounds
 * the error of deciding on them at once, stays below the bound. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double bound;
};

static const struct param params[] = {
    {"bound", PARAM_F64, 0, "nats", "0.35", 0, 1000, NULL, offsetof(struct state, bound),
     "entropy of the positions that a step commits, below which it stays (SDAR: 0.35)"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    (void)request;
    *out = (struct decode_rule){
        .kind = DECODE_ENTROPY_BOUNDED, .rank = RANK_ENTROPY, .bound = (float)state->bound};
}

const struct decoder decoder_entropy_bounded = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "entropy-bounded",
               .doc = "positions of least entropy up to a sum; one at a time where all are unsure",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
    .reads_statistics = 1,
};
