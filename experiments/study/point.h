/* One run of a figure's grid, reduced to the numbers that figures show. */
#ifndef UNMASK_EXPERIMENTS_STUDY_POINT_H
#define UNMASK_EXPERIMENTS_STUDY_POINT_H

#include "experiments/run/compose.h"

/* Times in seconds, throughput in committed tokens per second, tpf in tokens per forward pass of a
 * request. ms_per_forward: tpf over tokens of a second, where one request runs at a time the
 * milliseconds of a step. */
struct point {
    double tpf, ms_per_forward;
    double throughput, avg_latency, latency_std, latency_min, latency_max, latency_span;
    char profile[160], provenance[256]; /* "l40s: imported", "real inputs, ..." */
    unsigned codes;                     /* bits by enum warning_code */
    bool is_drawn;                      /* another seed gives another run */
};

/* The means of the same point under several seeds; texts are the first one's, codes of all. */
struct point point_mean(const struct point *points, size_t n);

int point_run(const struct run_request *request, struct point *out, struct err *err);

#endif
