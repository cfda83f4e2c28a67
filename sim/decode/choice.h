/* The outcome of a pass for the masked positions of a block, drawn from a decode process, as
 * decoders read it: a packed list of only the positions that the pass keeps.
 *
 *     choice_see(&choice, &asked, &seen);           seen->n of them, 0: nothing to choose from
 *     ... marks in choice.picked, by decode_choose or a policy's own code ...
 *     choice_mark(&choice, length, outcome);        the same by position of the block */
#ifndef UNMASK_SIM_DECODE_CHOICE_H
#define UNMASK_SIM_DECODE_CHOICE_H

#include "sim/decode/block.h"
#include "sim/decode/process.h"
#include "sim/decode/rule.h"
#include "sim/decode/smooth.h"

/* Memory for blocks up to a given length, owned. */
struct choice {
    float *confidence, *margin, *entropy; /* by position */
    float *values[3];                     /* the same of the positions that are asked for */
    uint32_t *offset, n;                  /* their places in the block, and how many they are */
    uint8_t *picked;
    double *draws;
};

/* Of a pass. */
struct choice_asked {
    const struct decode_process *process;
    const struct smoothing *smoothing; /* NULL: none */
    uint32_t smoothing_step; /* steps before; 0 in a block's first, which has nothing to add */
    uint64_t seed;
    const struct decode_view *view;
    const struct block_state *block;
    uint32_t waiting;                   /* its last positions, which are not decided on yet */
    const uint8_t *keep;                /* [length], positions whose logits are made */
    bool reads_statistics;              /* margin and entropy, too */
    const struct decode_credit *credit; /* NULL: none is given */
    float *earned;                      /* [length, 2], process_credit's; of this block */
};

void choice_init(struct choice *choice, uint32_t most_positions);
void choice_fini(struct choice *choice);

/* The arrays of `seen` are the choice's own, until the next pass. Credit is given once a call. */
void choice_see(struct choice *choice, const struct choice_asked *asked, struct decode_seen *seen);

/* Marks in `outcome` the `most` positions that are surest, where nothing else is asked of them: no
 * statistics, credit or smoothing, and process_ranks_by_draws. */
void choice_surest(struct choice *choice, const struct choice_asked *asked, uint32_t most,
                   uint8_t *outcome);

/* Sets the outcome of every position of the block, a commit or none; returns how many are commits.
 */
uint32_t choice_mark(const struct choice *choice, uint32_t length, uint8_t *outcome);

#endif
