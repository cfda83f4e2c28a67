/* How much memory the parts of a step have in use, whether it is provided by a plan, or an
 * allocator that is asked operator by operator.
 *
 * The peak says what must fit; the peak of each part of the step says what stands in the way, and
 * the peak over the average (PAR: Mosaic, section 5.2) how much of it is needed only for a moment.
 * An operator counts as often as it is executed (usage.h). */
#ifndef UNMASK_SIM_MEMORY_LIVE_H
#define UNMASK_SIM_MEMORY_LIVE_H

#include <stdint.h>

#include "sim/memory/usage.h"

enum live_part {
    PART_ATTENTION, /* embedding, norm, attention and its projections */
    PART_FFN,       /* from the second norm of a layer to its end */
    PART_LOGITS,    /* from the final norm on */
    N_LIVE_PARTS,
};

extern const char *const live_part_names[N_LIVE_PARTS];

/* Which part the operator belongs to. */
enum live_part live_part_of(const struct graph *graph, uint32_t op);

struct live {
    int64_t peak_bytes;
    enum live_part peak_part;         /* the first in which the peak was reached */
    int64_t part_bytes[N_LIVE_PARTS]; /* the peak of each */
    int64_t logits_bytes;             /* the most that logits and their copies hold at once */
    double sum_bytes;                 /* over operators */
    int64_t n_ops;
};

/* An operator ran `n_times` with at most this in use. */
void live_note(struct live *live, enum live_part part, int64_t bytes, int64_t n_times);

/* Peak over average; 0 where nothing was in use. */
double live_par(const struct live *live);

/* What a plan's tensors hold while each operator runs. */
void live_of_placement(const struct graph *graph, const struct step_shape *shape,
                       const struct placement *placement, struct live *out);

#endif
