/* Commits nothing when no position is certain. */
#include "tests/plugins/bad.h"

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    uint32_t n_committed = 0;
    (void)state;
    (void)request;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = seen->confidence[i] > 0.9f;
        n_committed += commit[i];
    }
    return n_committed;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "greedy"), .choose = choose};
