/* Ranks on the CPU: threads that meet, each of which adds up its part of a sum for all of them. */
#ifndef UNMASK_KERNELS_REF_CPU_RANKS_H
#define UNMASK_KERNELS_REF_CPU_RANKS_H

#include <stdbool.h>

#include "kernels/calls.h"

struct cpu_ranks;

/* NULL when memory is out. Each of the n ranks leaves it once, and the last closes it. */
struct cpu_ranks *cpu_ranks_open(int32_t n);
void cpu_ranks_leave(struct cpu_ranks *ranks);

/* Whoever waits, or will, is told false. */
void cpu_ranks_break(struct cpu_ranks *ranks);

/* By each rank's thread; false when ranks will not come. */
bool cpu_ranks_reduce(struct cpu_ranks *ranks, int32_t rank, const struct call_all_reduce *call);
bool cpu_ranks_gather(struct cpu_ranks *ranks, int32_t rank, const struct call_all_gather *call);

#endif
