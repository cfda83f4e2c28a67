/* One run, reduced to the numbers that constants are fitted to. */
#ifndef UNMASK_EXPERIMENTS_STUDY_POINT_H
#define UNMASK_EXPERIMENTS_STUDY_POINT_H

#include "experiments/run/compose.h"

/* Throughput in answer tokens per second, tpf in answer tokens per forward pass of a request.
 * ms_per_forward: tokens per forward pass over tokens per second, where one request runs at a time
 * the milliseconds of a step. */
struct point {
    double tpf, ms_per_forward, throughput;
};

int point_run(const struct run_request *request, struct point *out, struct err *err);

#endif
