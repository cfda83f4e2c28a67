/* Requests that join those that run at step borders while every one of them is charged its whole
 * canvas for life; what is common to schedulers that differ in who joins next. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_ADMISSION_H
#define UNMASK_SIM_POLICY_SCHEDULER_ADMISSION_H

#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

/* A batch under way: query tokens and bytes that are charged so far. */
struct admission {
    const struct schedule_view *view;
    struct batch *batch;
    int64_t tokens, kv_bytes;
};

/* All that run take part, until something changes. */
struct admission admission_begin(const struct schedule_view *view, struct batch *batch);

/* Admits a waiting request; false: it does not fit. One whose canvas exceeds what a step may have,
 * as under exact caches it can, is admitted where nothing else runs. */
bool admission_take(struct admission *admission, uint32_t slot);

#endif
