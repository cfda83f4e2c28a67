/* Commits the first position, undoes that in the next pass, and goes on from left to right: the
 * third pass of a block sees what the first saw. */
#include "sim/policy/decoder/decoder.h"

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    (void)state;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = i == 0 && window_steps(request) != 1;
    }
    return commit[0];
}

static uint32_t take_back(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again) {
    (void)state;
    for (uint32_t i = 0; i < kept->n; i++) {
        again[i] = window_steps(request) == 1;
    }
    return window_steps(request) == 1 ? kept->n : 0;
}

const struct decoder unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .name = "undoing",
               .doc = "from left to right, after a step back"},
    .choose = choose,
    .take_back = take_back,
};
