/* A machine that works off jobs one at a time, may leave any of them for another, and knows all
 * that is to come: what no schedule of the passes can beat.
 *
 * A job is a request, released at its arrival, as large as the prices of its passes; R replicas are
 * one machine that is R times as fast. By (1) of prices.h, whatever a schedule does in a step the
 * machine does in the same time, so that it is done with each set of jobs no later:
 * - shortest remaining job first ends the jobs with the least sum of completion times (Schrage,
 *   1968), and any order that never idles ends the last one first;
 * - a request needs the time of its own passes, one after the other, whatever else runs;
 * - both together: with M the mean of the times at which a job is worked on, a request is done at
 *   M + tail or later, tail the mean over its work of the time that its own passes need from there
 *   on. The sum of all M is least when the smallest job goes first (Goemans, 1997);
 * - with one bound for all latencies, deadlines come in the order of the arrivals, and the most
 * jobs are on time if each time one is late that one goes without which the rest is done first
 * (Kise, Ibaraki, Mine, 1978). */
#ifndef UNMASK_SIM_BOUND_MACHINE_H
#define UNMASK_SIM_BOUND_MACHINE_H

#include <stddef.h>
#include <stdint.h>

struct machine_job {
    double release_ns, work_ns;
    double alone_ns; /* of its own passes, one after the other */
    double tail_ns;
};

struct machine_limits {
    double mean_latency_ns; /* the best of the three; and each of them */
    double mean_by_work_ns, mean_by_passes_ns, mean_by_both_ns;
    double end_ns; /* at which the last request is done */
};

/* `jobs` by release. */
void machine_run(const struct machine_job *jobs, size_t n, double speed,
                 struct machine_limits *out);

/* How many are done within `latency_ns` of their release, at most. */
size_t machine_on_time(const struct machine_job *jobs, size_t n, double speed, double latency_ns);

/* What the q-quantile of latencies is at least: of n in rising order the one at (n - 1) q, rounded
 * down, as no more are on time within less. Up to 0.05 % less than what can be said. `speed` 0: by
 * the times alone. */
double machine_quantile(const struct machine_job *jobs, size_t n, double speed, double q);

#endif
