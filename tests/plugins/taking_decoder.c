/* Commits the surest position a pass, none in every fourth, and takes the least sure one back in
 * every fifth of a block's first passes: masked, decided, masked again, decided again. */
#include "sim/policy/decoder/decoder.h"

enum { NONE_EVERY = 4, BACK_EVERY = 5 };

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    uint32_t best = 0, commits = window_steps(request) % NONE_EVERY != NONE_EVERY - 1;
    (void)state;
    for (uint32_t i = 0; i < seen->n; i++) {
        best = seen->confidence[i] > seen->confidence[best] ? i : best;
        commit[i] = 0;
    }
    commit[best] = (uint8_t)commits;
    return commits;
}

static uint32_t take_back(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again) {
    uint32_t worst = 0, steps = window_steps(request);
    uint32_t takes = steps % BACK_EVERY == BACK_EVERY - 1 && steps < 2 * window_length(request);
    (void)state;
    for (uint32_t i = 0; i < kept->n; i++) {
        worst = kept->confidence[i] < kept->confidence[worst] ? i : worst;
        again[i] = 0;
    }
    again[worst] = (uint8_t)takes;
    return takes;
}

const struct decoder unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .name = "taking",
               .doc = "takes the least sure position back now and then"},
    .choose = choose,
    .take_back = take_back,
};
