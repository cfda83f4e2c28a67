/* What service requests have yet to get, for schedulers that order them by it.
 *
 * Service is counted in query tokens: on GPUs that computation binds, full and narrow passes cost
 * about the same a token. What a whole request takes is what its passes to come add up to when it
 * is met first (struct schedule_view's foresee); of one that runs as much is left as of its output.
 * Where a decoder draws, that is the expected service. Policies by the distribution's hazard rate
 * (Gittins) differ from those by its mean only where a request that has run long is expected to run
 * the longer; blocks are drawn each for itself, so that here it is not. */
#ifndef UNMASK_SIM_SCHEDULER_SERVICE_H
#define UNMASK_SIM_SCHEDULER_SERVICE_H

#include "sim/scheduler/scheduler.h"

enum { SERVICE_REMEMBERED = 4096 };

/* A scheduler's own, zeros at first: of requests met before, by the remainder of their ids. */
struct service {
    struct {
        uint64_t id; /* + 1 */
        double tokens, steps;
    } known[SERVICE_REMEMBERED];
};

/* Of all that the request in `slot` has yet to do: query tokens, and the steps that they take. */
double service_left(struct service *service, const struct schedule_view *view, uint32_t slot,
                    double *steps);

#endif
