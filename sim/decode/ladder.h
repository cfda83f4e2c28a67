/* The tokens of a position as a decode process has them, the most likely one first: it has
 * probability p, each next one a share q of what is left (process.h), or less, so that the second
 * has no more than the first. Which of them a temperature, top_k and top_p leave, and which is
 * drawn, as kernels/rules/draw.h does it on logits. */
#ifndef UNMASK_SIM_DECODE_LADDER_H
#define UNMASK_SIM_DECODE_LADDER_H

#include "kernels/rules/draw_rule.h"

struct ladder {
    double p, q;
    double n;    /* tokens that are kept; INFINITY: all */
    double mass; /* of these */
};

/* Of a distribution at the rule's temperature. */
struct ladder ladder_of(const struct draw_rule *rule, double p, double q);

/* p at a temperature of 1 of what has p, and had a share q, at one of 1 / s. */
double ladder_untempered(double p, double q, double s);

/* The place of the kept token in which a uniform number falls; the first is 0. */
double ladder_draw(const struct ladder *ladder, double u);

/* A kept token's probability among them, the first's less the second's, and sum p log p. */
double ladder_probability(const struct ladder *ladder, double place);
double ladder_margin(const struct ladder *ladder);
double ladder_entropy(const struct ladder *ladder);

#endif
