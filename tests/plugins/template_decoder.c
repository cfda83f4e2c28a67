/* A decoder of your own: a starting point. It commits every position at least `ratio` times as
 * confident as the most confident one.
 *
 * The rules (sim/policy/decoder/decoder.h): set every one of the `seen->n` flags to 0 or 1, at
 * least one of them to 1, and return how many are 1; what is seen again gives the same flags. With
 * reads_statistics = 1 margins and entropies are seen, too. A decoder that reads nothing exports
 * `count` instead of `choose`; one that is a rule of sim/decode/rule.h with numbers of its own
 * exports `rule`, which the engine then applies on the device. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double ratio;
};

static const struct param params[] = {
    {"ratio", PARAM_F64, 0, "1", "0.9", 0, 1, NULL, offsetof(struct state, ratio),
     "share of the best confidence from which a position is committed"},
};

static uint32_t choose(const void *opaque, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    const struct state *state = opaque;
    const float *confidence = seen->confidence;
    (void)request;
    double best = 0;
    for (uint32_t i = 0; i < seen->n; i++) {
        best = (double)confidence[i] > best ? (double)confidence[i] : best;
    }
    uint32_t n_committed = 0;
    for (uint32_t i = 0; i < seen->n; i++) {
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
