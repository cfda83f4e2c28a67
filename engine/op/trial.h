/* A trial: the requests that an operator is launched for when it is measured alone, as spans and
 * parts of a step that is packed like any other. */
#ifndef UNMASK_ENGINE_OP_TRIAL_H
#define UNMASK_ENGINE_OP_TRIAL_H

#include "engine/op/packed.h"
#include "engine/op/points.h"
#include "engine/op/step.h"
#include "sim/model/model.h"

/* A request has no later position than this; longer ones begin again. */
enum { TRIAL_MAX_POSITIONS = 4096 };

struct trial {
    const struct model *model;
    const struct packed *packed; /* of the graph that is measured next; the caller's */
    int64_t page_rows, max_requests, max_tokens;
    bool is_exact;   /* keys and values lie in pages */
    bool keeps_half; /* a selection keeps half of its candidates, else one row a request */
    /* Owned; written by trial_start and those that fill it. */
    struct span *spans;            /* [max_requests] */
    const struct span **span_list; /* the same */
    struct step_part *parts;       /* the same */
    int32_t *positions;            /* [max_tokens], from 0 on */
    int32_t *extents;              /* [max_tokens], of exact keys and values */
    int32_t *pages;                /* [max_pages] */
    int32_t *contexts;             /* [max_requests] */
    int64_t max_pages;
    struct step_shape shape;
    int64_t n_tokens;
    /* What one layer has of the pool. */
    int64_t n_pages, store_elements;
    /* Tokens that the canvas holds, and what the candidates are; as far as an operator reads them.
     */
    int32_t *tokens; /* [max_tokens] */
    bool has_tokens;
    float *confidences; /* [max_tokens], of candidates that are the canvas's own tokens */
    bool has_candidates;
    /* What the stores of spans that attend by patterns hold from the first one on: words, as many
     * as the stores' elements take; as far as an operator reads them. */
    uint32_t *words; /* [n_words] */
    int64_t n_words;
};

void trial_open(struct trial *trial, const struct model *model,
                const struct calibration_bounds *bounds);
void trial_close(struct trial *trial);

/* The trial of a point. */
void trial_make(struct trial *trial, const struct calibration_point *point, bool keeps_half);

/* One more request with this many queries and this much context: its part, to be completed. */
struct step_part *trial_add(struct trial *trial, struct span span);

/* Its store of n_rows rows, or of a pattern's words of a head, after the stores given before. */
void trial_give_store(struct trial *trial, struct step_part *part, int64_t n_rows);
/* Pages to all requests, as those that grow side by side take them: everybody's first, then
 * everybody's second. */
void trial_give_pages(struct trial *trial);

/* Contexts of a batch are never equal: that of the r-th of n over their mean, from 0.6 to 1.4,
 * mixed. */
double trial_share(int64_t n, int64_t r);

/* n of them into trial->contexts, of the sum that they have at `mean` each. */
void trial_spread(struct trial *trial, int64_t n, int64_t mean);

/* n_rows tokens, all with logits. */
void trial_fill_rows(struct trial *trial, const struct calibration_point *point);

#endif
