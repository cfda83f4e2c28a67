/* How tokens are drawn and confidences taken, for the simulator and the kernels alike: a system's
 * settings, the same for all requests and steps. */
#ifndef UNMASK_KERNELS_RULES_DRAW_RULE_H
#define UNMASK_KERNELS_RULES_DRAW_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* Whose probability a token's is. */
enum draw_of {
    DRAW_OF_TEMPERED, /* the logits' over the temperature (LMDeploy) */
    DRAW_OF_MODEL,    /* the logits' as they are (LLaDA, Fast-dLLM, dInfer) */
    DRAW_OF_KEPT,     /* of the former, what top_k and top_p leave (Dream, SDAR) */
};

struct draw_rule {
    double top_p;      /* 0 to 1; 1: all */
    float temperature; /* above 0 */
    uint32_t top_k;    /* 0: all */
    uint32_t of;       /* enum draw_of */
    bool draws;        /* not: the most likely token */
};

#endif
