/* Fast-dLLM's confidence threshold: every masked position of the block at or above the threshold is
 * committed, the most confident one always (arXiv 2505.22618, section 3.3). */
#include "sim/policy/decoder.h"

struct state {
    double threshold;
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.9", 0, 1, NULL, offsetof(struct state, threshold),
     "confidence from which a position is committed"},
};

static float threshold(const void *opaque) {
    const struct state *state = opaque;
    return (float)state->threshold; /* confidences are single precision */
}

static uint32_t choose(const void *opaque, const struct request *request, const float *confidence,
                       uint32_t n, uint8_t *commit) {
    const float least = threshold(opaque);
    (void)request;
    uint32_t n_committed = 0, best = 0;
    for (uint32_t i = 0; i < n; i++) {
        commit[i] = confidence[i] >= least;
        n_committed += commit[i];
        best = confidence[i] > confidence[best] ? i : best;
    }
    if (n_committed == 0) {
        commit[best] = 1;
        n_committed = 1;
    }
    return n_committed;
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
    .choose = choose,
    .threshold = threshold,
};
