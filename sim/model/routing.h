/* How many experts the tokens of a step hit.
 *
 * Where each token chose at random, n tokens would hit E (1 - (1 - A / E)^n) of E experts. Tokens
 * of one block choose alike under a trained router: they count as n^exponent such draws, by which
 * the one printed number, 69.5 of 256 at blocks of 32 (LLaDA2.0-mini, arXiv 2605.30876v2, Table 2),
 * gives those printed for blocks of 8, 16 and 24 (Table 4: 31.8, 48.8, 60.6) 4.5, 4.8 and 2.7 %
 * too low.
 *
 * Blocks of different requests like some experts better than others, all of them the same ones. A
 * block hits an expert with a chance of its own, which is of the beta distribution over the
 * experts: its mean is what one block hits, its `spread` s what two blocks hit together, a measured
 * number, and n blocks hit
 *
 *     E (1 - B(m s, (1 - m) s + n) / B(m s, (1 - m) s))        m: the share that one block hits
 *
 * Where two blocks were not counted they choose independently of each other: assumed.
 *
 * Where a block's tokens choose among the experts that the block admits (block_routing of the
 * model), one block hits no more than those; blocks of different requests then choose apart, too.
 */
#ifndef UNMASK_SIM_MODEL_ROUTING_H
#define UNMASK_SIM_MODEL_ROUTING_H

#include "sim/base/provenance.h"
#include "sim/model/model.h"

struct expert_routing {
    double exponent;     /* 1: chance */
    double block_tokens; /* tokens that choose alike */
    double spread;       /* 0: blocks choose independently */
    bool is_random;      /* as random weights choose: rows that were measured with such weights
                            hold what those hit, other prices go by chance */
    bool is_by_block;    /* a block's tokens hit fewer than they would choose themselves */
    struct provenance provenance;
};

/* That of a mixture where `asked` experts are hit by a block: 0: as printed for the model, chance
 * where nothing is or its weights are random; what chance has, or more: chance. ERR_USAGE for fewer
 * than a token's. */
int routing_make(const struct model *whole, double asked, bool has_random_weights,
                 struct expert_routing *out, struct err *err);

/* Experts hit in a layer, of all of them or of one rank's. */
double routing_hits(const struct expert_routing *routing, uint32_t experts, uint32_t experts_active,
                    double n_tokens);

#endif
