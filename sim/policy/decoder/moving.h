/* A decoder whose canvas moves (DECODER_MOVES), for those who follow its positions: which masked
 * ones it fills. */
#ifndef UNMASK_SIM_POLICY_DECODER_MOVING_H
#define UNMASK_SIM_POLICY_DECODER_MOVING_H

#include "sim/policy/decoder/decoder.h"

struct joint_indel {
    double threshold, edit_threshold;
    uint32_t max_post_edit_steps;
    uint32_t delete_token, insert_token; /* 0: the model's; it may have none */
};

/* Marks what a pass fills of seen->n masked positions, at least 1; added[window]: those of the
 * window that were masked since its start. */
uint32_t moving_fill(const struct decode_rule *rule, const struct decode_seen *seen,
                     const uint8_t *added, uint8_t *commit);

#endif
