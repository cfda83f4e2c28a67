/* A decoder that names a rule instead of choosing, so that the engine decides on the device: a
 * threshold that falls from step to step of a block. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double first, last, step;
};

static const struct param params[] = {
    {"first", PARAM_F64, 0, "1", "1", 0, 1, NULL, offsetof(struct state, first),
     "threshold of a block's first step"},
    {"last", PARAM_F64, 0, "1", "0.8", 0, 1, NULL, offsetof(struct state, last),
     "threshold that it falls to"},
    {"step", PARAM_F64, 0, "1", "0.02", 0, 1, NULL, offsetof(struct state, step),
     "how far it falls a step"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    double threshold = state->first - state->step * window_steps(request);
    *out = (struct decode_rule){.kind = DECODE_THRESHOLD,
                                .threshold =
                                    (float)(threshold > state->last ? threshold : state->last)};
}

const struct decoder unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "falling",
               .doc = "a threshold that falls as a block goes on; slow in short blocks",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
};
