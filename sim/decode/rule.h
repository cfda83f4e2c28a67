/* Which masked positions of a block a step commits, as simulations and rollouts apply the rules of
 * kernels/rules/decide.h: decoders are parameters around one of them (sim/policy/decoder). The
 * engine's device runs the kernel of the same rule (kernels/decode/decode.cu). */
#ifndef UNMASK_SIM_DECODE_RULE_H
#define UNMASK_SIM_DECODE_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/rules/decide.h"
#include "sim/base/err.h"

/* A step's output for a block's masked positions, in canvas order. */
struct decode_seen {
    uint32_t n;              /* positions asked for, >= 1 */
    uint32_t first;          /* the block's first position in the canvas */
    const uint32_t *offset;  /* [n], within the block, ascending; where masked positions are
                                missing in between, neighbours they are not */
    const float *confidence; /* [n], in (0, 1) */
    const float *margin;     /* [n], in [0, confidence]; NULL unless asked for */
    const float *entropy;    /* [n], <= 0; the same */
};

/* Sets commit[n] to 1 or 0 and returns how many are 1, at least 1. `count`: of DECODE_COUNT, from 1
 * to n; of DECODE_JOINT, at least. */
uint32_t decode_choose(const struct decode_rule *rule, const struct decode_seen *seen,
                       uint32_t count, uint8_t *commit);

/* ERR_WORLD and a sentence without a subject, such as "names ...", where a decoder that counts, or
 * reads margin and entropy, may not name this rule. */
int decode_rule_check(const struct decode_rule *rule, bool counts, bool has_statistics,
                      struct err *err);

/* Of credit (kernels/rules/credit.h). */
struct decode_credit {
    float alpha, beta, gamma; /* 0.7, 0.8, 0.2 as released */
};

/* Tokens of a position that have credit, where they are a list: no more than the passes it has been
 * in, and so than its block has positions; of longer blocks the least are forgotten. */
enum { CREDIT_MOST_TOKENS = 64 };

/* The probability of a token whose logit its credit raises against unchanged others:
 * p e^b / (p e^b + 1 - p) with b its bonus. */
float credit_raise(const struct decode_credit *credit, float earned, float p);

#endif
