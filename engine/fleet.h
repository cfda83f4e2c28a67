/* A fleet: the replicas of one system, each an engine and a live executor of its own, under one
 * executor with one clock.
 *
 * One replica is run by the caller's thread. Of several each has a thread, which alone uses its
 * engine: their steps run at the same time, while one lock is held by whoever works on requests or
 * calls a policy, as the loop does all the time except while it waits for a replica. The host's
 * work is therefore one thread's at a time, where a server has a process for each replica.
 *
 * Replica r has the machine's devices from `device + r * tensor_parallel` on. */
#ifndef UNMASK_ENGINE_FLEET_H
#define UNMASK_ENGINE_FLEET_H

#include "engine/live.h"

struct fleet;

struct fleet_request {
    struct engine_request engine; /* of the first replica; the others have its weights */
    const int32_t *devices;       /* the first device of each instead; NULL: as above */
    uint64_t seed;
    bool skips_idle;
};

/* As many as the system has. What `request` points to is borrowed, and the system must outlive the
 * fleet. ERR_WORLD where a replica has no device, or what engine_open and live_open refuse. */
int fleet_open(const struct fleet_request *request, struct fleet **out, struct err *err);
void fleet_close(struct fleet *fleet); /* NULL is fine */

struct executor fleet_interface(struct fleet *fleet);

uint32_t fleet_replicas(const struct fleet *fleet);
/* For reading, and for live_set_* before anything is admitted; two that all replicas are told. */
struct live *fleet_live(const struct fleet *fleet, uint32_t replica);
struct engine *fleet_engine(const struct fleet *fleet, uint32_t replica);

void fleet_set_stop(struct fleet *fleet, const volatile sig_atomic_t *stop);
void fleet_set_ends(struct fleet *fleet, const struct end_tokens *ends);

/* live_warm of each. */
int fleet_warm(struct fleet *fleet, const struct warm_watch *watch, struct err *err);

/* live_execute and live_operators on a replica. */
int fleet_execute(struct fleet *fleet, uint32_t replica, const struct planned_step *planned,
                  uint32_t steps, const uint32_t *commits, struct live_times *out, struct err *err);
int fleet_operators(struct fleet *fleet, uint32_t replica, const struct planned_step *planned,
                    const uint32_t *commits, double *ns, struct err *err);

/* engine_memory and engine_energy_j of all together, and the devices of all, at most `most`. */
struct engine_memory fleet_memory(const struct fleet *fleet);
double fleet_energy_j(struct fleet *fleet);
void fleet_facts(const struct fleet *fleet, uint32_t most, const struct device_facts **out,
                 uint32_t *n);

/* The most of any replica, as budgets and records have it. */
int64_t fleet_activation_peak_bytes(const struct fleet *fleet);
int64_t fleet_pool_peak_bytes(const struct fleet *fleet);

#endif
