/* Of schedulers that say thresholds or rows (changes_passes): the fewest passes that a request can
 * have under them, whatever they say.
 *
 * - A threshold is no lower than the lowest one that the scheduler's settings allow, and a lower
 *   one commits all that a higher one would: passes are listed at the lowest.
 * - Fewer rows commit no more: passes are listed with all of them. But a pass may have run no more
 *   rows than it commits, at least one, so that each is listed with that many.
 *
 * Both hold of positions that reach the threshold: draws are those of the position and the step
 * (process.h), what is known already is no less, and no position is surer for knowing less. Where
 * none reaches it the surest one is committed, and knowing more can make that another one. So
 * single blocks may take a pass less at a higher threshold or with fewer rows, and the bound is one
 * of the mean, which is not proved either; no run of thousands with random settings beat it. */
#ifndef UNMASK_SIM_BOUND_WORDS_H
#define UNMASK_SIM_BOUND_WORDS_H

#include "sim/system/system.h"

struct words {
    uint32_t threshold_millionths; /* the lowest; 0: the decoder's own */
    bool leaves_rows;              /* passes may run fewer rows than their block has */
};

/* Nothing for schedulers that say none; false where nothing is known of what they say. */
bool words_fewest(const struct system *system, struct words *out);

#endif
