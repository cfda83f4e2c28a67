/* The threshold falls from 0.95 to 0.5 as the replica fills: a valve. */
#include "sim/policy/decoder/decoder.h"

static void rule(const void *state, const struct request *request, struct decode_rule *out) {
    const struct replica_load *load = &request->load;
    const uint32_t n = load->n_running + load->n_waiting;
    (void)state;
    *out = (struct decode_rule){.kind = DECODE_THRESHOLD, .threshold = n < 8 ? 0.95f : 0.5f};
}

const struct decoder unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                 .kind = POLICY_DECODER,
                                                 .size = sizeof(struct decoder),
                                                 .state_bytes = 8,
                                                 .name = "loaded",
                                                 .doc = "less sure under load"},
                                      .rule = rule,
                                      .reads_load = 1};
