/* SDAR's sequential strategy (JetAstra/SDAR generate.py): the same numbers as `fixed`, from left to
 * right. */
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/decoder/even_steps.h"

static uint32_t count(const void *state, const struct request *request, uint32_t *repeat) {
    (void)state;
    return even_steps_count(request, repeat);
}

static void rule(const void *state, const struct request *request, struct decode_rule *out) {
    (void)state;
    (void)request;
    *out = (struct decode_rule){.kind = DECODE_COUNT, .rank = RANK_ORDER};
}

const struct decoder decoder_sequential = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .name = "sequential",
               .doc =
                   "the same number of positions in every step, from left to right, sure or not"},
    .count = count,
    .rule = rule,
};
