/* How far off a run with transferred prices may be: by as much as transfers between two GPUs that
 * were both measured came out, on whole runs. */
#ifndef UNMASK_ANALYSIS_TRANSFERRED_H
#define UNMASK_ANALYSIS_TRANSFERRED_H

#include <stdbool.h>

#include "analysis/summary.h"

/* What the GPU itself would do if the transfer errs as the measured ones did at their worst. */
struct transferred {
    double low_tok_s, high_tok_s;         /* of the throughput */
    double low_latency_s, high_latency_s; /* of the mean latency; NaN where nothing completed */
};
extern const char transferred_source[]; /* what the errors were measured on */

/* Of a simulated run that is finished; false where other GPUs' measurements price less than a
 * twentieth of the operators' time. */
bool transferred_interval(const struct summary *summary, const struct run_facts *facts,
                          struct transferred *out);

#endif
