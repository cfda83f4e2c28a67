/* A decoder of your own: a starting point. It commits every position at least `ratio` times as
 * confident as the most confident one.
 *
 * The rules (sim/policy/decoder.h): set every one of the `n` flags to 0 or 1, at least one of them
 * to 1, and return how many are 1; the same confidences give the same flags. A decoder that does
 * not read confidences exports `count` instead of `choose`. */
#include "sim/policy/decoder.h"

struct state {
    double ratio;
};

static const struct param params[] = {
    {"ratio", PARAM_F64, 0, "1", "0.9", 0, 1, NULL, offsetof(struct state, ratio),
     "share of the best confidence from which a position is committed"},
};

static uint32_t choose(const void *opaque, const struct request *request, const float *confidence,
                       uint32_t n, uint8_t *commit) {
    const struct state *state = opaque;
    (void)request;
    double best = 0;
    for (uint32_t i = 0; i < n; i++) {
        best = (double)confidence[i] > best ? (double)confidence[i] : best;
    }
    uint32_t n_committed = 0;
    for (uint32_t i = 0; i < n; i++) {
        commit[i] = (double)confidence[i] >= state->ratio * best;
        n_committed += commit[i];
    }
    return n_committed;
}

const struct decoder unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "near-best",
               .doc = "positions almost as confident as the best; commits many when all are poor",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .choose = choose,
};
