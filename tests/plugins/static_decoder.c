/* Counts the questions that it is asked in a static variable, and commits two positions in every
 * third step. The same question, asked again, is the same question. */
#include "sim/policy/decoder/decoder.h"

static uint32_t count(const void *state, const struct request *request, uint32_t *repeat) {
    static uint64_t last, n_questions;
    uint64_t question = request->id << 32 | (request->steps + 1);
    (void)state;
    n_questions += last != question;
    last = question;
    *repeat = 1;
    return window_masked(request) > 1 && n_questions % 3 == 0 ? 2 : 1;
}

const struct decoder unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .name = "counting",
               .doc = "commits more in every third step, which it counts"},
    .count = count};
