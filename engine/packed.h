/* A step's batch as the kernels want it: checked, and packed into one run of tokens.
 *
 * Spans that attend to themselves come first, those with cached context after them, each group in
 * batch order, so that either attention is one call over consecutive requests. Logit rows keep the
 * batch's order; they are found by index. Host arrays; the CUDA back end copies them over. */
#ifndef UNMASK_ENGINE_PACKED_H
#define UNMASK_ENGINE_PACKED_H

#include <stdint.h>

#include "engine/step.h"
#include "sim/base/err.h"
#include "sim/model/model.h"

struct packed {
    const struct model *model;
    struct step_limits limits;
    /* Written by packed_fill. */
    int32_t n_full, n_block;         /* spans of either group */
    int32_t n_tokens, n_full_tokens; /* all; those of the first group */
    int32_t n_logit_rows;
    int32_t max_full_tokens, max_block_tokens; /* of one span */
    int32_t *start;                            /* [max_requests + 1], packed spans' first tokens */
    int32_t *ids, *positions;                  /* [max_tokens] */
    int32_t *rows;                             /* [max_logit_rows], the token of each logit row */
    int32_t *kv_rows;                          /* [max_tokens], row of its span's store, or -1 */
    int32_t *kept;        /* [max_requests], rows of each packed span's store */
    int64_t *store_start; /* [layers, max_requests], element where a packed span's rows lie */
    void *memory;         /* owns the arrays */
};

/* On error nothing needs releasing. */
int packed_open(struct packed *packed, const struct model *model, const struct step_limits *limits,
                struct err *err);
void packed_close(struct packed *packed);

/* ERR_USAGE with the span and what is wrong with it; allocates nothing. */
int packed_fill(struct packed *packed, const struct step *step, struct err *err);

#endif
