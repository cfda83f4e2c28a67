/* Says that it takes fewer positions back than it marks. */
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
    again[0] = kept->n > 0;
    return 0;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "back-count"),
                                      .choose = choose, .take_back = take_back};
