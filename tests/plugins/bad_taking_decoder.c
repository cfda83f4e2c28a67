/* Takes back whatever it commits, for ever. */
#include "tests/plugins/bad.h"

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    (void)state;
    (void)request;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = i == 0;
    }
    return 1;
}

static uint32_t take_back(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again) {
    (void)state;
    (void)request;
    for (uint32_t i = 0; i < kept->n; i++) {
        again[i] = 1;
    }
    return kept->n;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "taking-all"),
                                      .choose = choose, .take_back = take_back};
