/* What no schedule of a workload can beat on a system: its throughput, its mean latency, how many
 * of its requests are on time.
 *
 * Allowed is every scheduler, admission and order, with the system's cache policy, decoder,
 * runtime, memory and limits as they are (passes.h says why that fixes the passes), in which every
 * request that can be served is. Of schedulers that say thresholds or rows it is whatever words
 * these say (words.h). Where decisions or the workload are drawn, the bound is of this
 * seed's draws, which every schedule meets alike; its mean over seeds bounds the expectation. What
 * is proved is proved of the simulator's prices (parts.h says how far they are looked at). */
#ifndef UNMASK_SIM_BOUND_BOUND_H
#define UNMASK_SIM_BOUND_BOUND_H

#include "sim/bound/machine.h"
#include "sim/bound/passes.h"
#include "sim/bound/prices.h"

struct bound {
    size_t requests;
    uint64_t rejected, tokens, n_passes;
    double work_s;           /* the prices of all passes together, over the replicas */
    double makespan_s;       /* at least, from the first arrival to the last end */
    double throughput_tok_s; /* at most, of this workload as it arrives */
    double saturated_tok_s;  /* at most, however its requests arrive, */
    double saturated_req_s;  /* and the rate at which such requests can be served */
    double mean_latency_s;   /* at least: the largest of these three (machine.h) */
    double mean_by_work_s, mean_by_passes_s, mean_by_both_s;
    double p99_latency_s;  /* at least */
    double on_time;        /* at most, the share of requests; NaN: nothing was asked */
    bool at_highest_clock; /* the profile knows clocks, and a power limit may not leave that one */
    bool is_closed; /* arrivals follow from completions: mean_by_passes_s alone is of any use */
    struct prices prices;
    struct pass_type types[PASS_TYPES];
};

/* `latency_ns`: the longest latency that is on time; 0: no objective. */
int bound_find(const struct passes_request *request, int64_t latency_ns, struct bound *out,
               struct err *err);

#endif
