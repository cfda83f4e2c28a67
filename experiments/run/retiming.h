/* When the requests of a recorded run would have been served, had its steps taken other times: the
 * same batches in the same order, so that what is left is the times' doing.
 *
 * A step starts when the one before it on its replica has ended and the last of its requests has
 * arrived, and then as long after as it did in the record: what the scheduler waits for stays. */
#ifndef UNMASK_EXPERIMENTS_RUN_RETIMING_H
#define UNMASK_EXPERIMENTS_RUN_RETIMING_H

#include "analysis/summary.h"
#include "sim/serve/executor.h"

/* Steps back to back, as recorded and as timed anew; nanoseconds from the start of the run. */
struct retimed_steps {
    int64_t start_ns, end_ns;
    double new_start_ns, new_end_ns;
};

struct retiming_lane {
    struct retimed_steps *steps; /* in their order */
    size_t n, room;
};

struct retiming {
    struct retiming_lane *lanes; /* [n_lanes], of each replica */
    uint32_t n_lanes;
    struct summary summary; /* of the requests; finished by retiming_finish */
};

void retiming_init(struct retiming *retiming, uint32_t n_replicas);
void retiming_fini(struct retiming *retiming);

/* Steps of this submission that ran from start to end in the record take `ns` together. In their
 * order; before the records of the requests that they finish. */
void retiming_add(struct retiming *retiming, const struct submission *submission, int64_t start_ns,
                  int64_t end_ns, double ns);

/* A request at its new times; admission, which is between steps, is left as it was. */
void retiming_request(struct retiming *retiming, const struct request_record *record);

/* Derives the summary's last fields. */
void retiming_finish(struct retiming *retiming);

#endif
