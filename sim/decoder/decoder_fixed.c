/* LLaDA's low-confidence remasking with a fixed schedule (ML-GSAI/LLaDA generate.py; SDAR's
 * low_confidence_static). */
#include "sim/decoder/decoder.h"
#include "sim/decoder/even_steps.h"

static uint32_t count(const void *state, const struct request *request, uint32_t *repeat) {
    (void)state;
    return even_steps_count(request, repeat);
}

const struct decoder decoder_fixed = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .name = "fixed",
               .doc = "the same number of positions in every step, the most confident first"},
    .count = count,
};
