/* The simulated executor: a virtual clock and the cost model. */
#ifndef UNMASK_SIM_SERVE_EXECUTOR_SIM_H
#define UNMASK_SIM_SERVE_EXECUTOR_SIM_H

#include "sim/serve/executor.h"
#include "sim/system/system.h"

struct executor_sim;

/* How steps were priced, over all replicas; a step counts as often as it ran. */
struct pricing {
    uint64_t lookups[PRICE_MATCH_COUNT];
    double device_ns, host_ns;
    double work_joules;     /* of one rank's card, idling not counted; 0 where the profile knows no
                               power */
    struct price_time time; /* cost_shares says what it rests on */
};

/* A runtime that is not varlen pads every batch to its longest request. `system` is borrowed. */
struct executor_sim *executor_sim_open(const struct system *system, uint32_t n_replicas);
/* When the first of the steps in flight ends; INT64_MAX: none is. */
int64_t executor_sim_next_ns(const struct executor_sim *sim);
void executor_sim_close(struct executor_sim *sim);

struct executor executor_sim_interface(struct executor_sim *sim);

/* Submits and waits for the end, of an executor with nothing in flight; the submission's card has
 * idled for so long, which counts where its clock is known. */
int executor_sim_play(struct executor_sim *sim, const struct submission *submission,
                      int64_t idle_ns, struct completion *out, struct err *err);

const struct pricing *executor_sim_pricing(const struct executor_sim *sim);

#endif
