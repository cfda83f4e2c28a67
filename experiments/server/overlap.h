/* How many requests are between their first and last tokens at once, at most: what a measured
 * server and its simulation can both be asked. */
#ifndef UNMASK_EXPERIMENTS_SERVER_OVERLAP_H
#define UNMASK_EXPERIMENTS_SERVER_OVERLAP_H

#include <stddef.h>

#include "sim/serve/record.h"

/* A moment at which there is one request more, or less. */
struct overlap_edge {
    int64_t time_ns;
    int change;
};

/* Starts zeroed. */
struct overlap {
    struct overlap_edge *edges;
    size_t n, room;
};

/* A sink that takes the requests that were completed. */
struct sink overlap_sink(struct overlap *overlap);

/* A request that ends as another begins does not overlap with it. */
uint32_t overlap_peak(struct overlap *overlap);

void overlap_fini(struct overlap *overlap);

#endif
