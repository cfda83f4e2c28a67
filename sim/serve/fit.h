/* Whether requests fit into the pool and the token budget, with the workspace that they need. */
#ifndef UNMASK_SIM_SERVE_FIT_H
#define UNMASK_SIM_SERVE_FIT_H

#include "sim/serve/lifecycle.h"

/* Why the request, whose first step is planned, could never run, even alone; REJECT_NONE: it could.
 */
enum reject_reason fit_alone(struct lifecycle *life, uint32_t slot);

/* Whether these slots fit as one batch where workspace and cached state share memory. */
bool fit_batch(struct lifecycle *life, const uint32_t *slots, uint32_t n);

#endif
