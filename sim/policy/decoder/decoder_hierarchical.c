/* dInfer's hierarchical decoder (inclusionAI/dInfer, HierarchyDecoder): a run of neighbouring
 * masked positions is split by its best position, if that is above the low threshold, so that
 * commits spread over the block and the next step's positions are next to known ones; what is above
 * the threshold is committed anyhow. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double threshold, low;
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.92", 0, 1, NULL, offsetof(struct state, threshold),
     "confidence above which a position is committed (0.92 in dInfer's script)"},
    {"low_threshold", PARAM_F64, 0, "1", "0.62", 0, 1, NULL, offsetof(struct state, low),
     "confidence above which the best of a run is (0.62 in dInfer's script, 0.4 the class's own)"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    (void)request;
    *out = (struct decode_rule){.kind = DECODE_HIERARCHICAL,
                                .rank = RANK_CONFIDENCE,
                                .threshold = (float)state->threshold,
                                .low = (float)state->low};
}

const struct decoder decoder_hierarchical = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "hierarchical",
               .doc =
                   "the best of every run of masks above a low threshold; bold where runs are many",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
};
