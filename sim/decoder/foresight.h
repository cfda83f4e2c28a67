/* Foresight: what a step will decide, known before it. Decoders that look at nothing the model says
 * choose the same positions on the host, before a step, and on the device, after it. */
#ifndef UNMASK_SIM_DECODER_FORESIGHT_H
#define UNMASK_SIM_DECODER_FORESIGHT_H

#include <stdbool.h>

#include "sim/decoder/decoder.h"

/* Memory for blocks of up to so many positions, owned. */
struct foresight {
    uint32_t *offset;
    uint8_t *picked;
    uint8_t *next; /* by position */
};

/* Whether the decoder's choice follows from requests alone: positions in order, or by draws. */
bool foresight_has(const struct decoder *decoder, const void *state);

void foresight_init(struct foresight *foresight, uint32_t most_positions);
void foresight_fini(struct foresight *foresight);

/* Flags of the positions that the request's next step decides, if it runs them: [block_length],
 * until the next call. `masked`: those that are masked before it, one at least. */
const uint8_t *foresight_next(struct foresight *foresight, const struct decoder *decoder,
                              const void *state, const struct request *request,
                              const uint8_t *masked);

#endif
