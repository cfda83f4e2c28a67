/* Waiting requests by tenants, of which the one with the least counter has its first request next;
 * each tenant's wait in order of arrival. Tenants are counted by their number modulo TENANTS. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_TENANTS_H
#define UNMASK_SIM_POLICY_SCHEDULER_TENANTS_H

#include "sim/policy/scheduler/ranks.h"

enum { TENANTS = 1024 };

/* Part of a scheduler's state, zeros at first. Its memory of each request is a struct lined. */
struct tenants {
    struct ranks waiting; /* tenants that wait, by counter */
    struct ranked ranked[TENANTS];
    struct tenant {
        struct line line; /* of its requests that wait */
        uint32_t next;    /* of these, in the decision under way; link; 0: it is not ranked */
        double counter;
    } of[TENANTS];
    uint32_t last_left;
};

/* Takes up what happened, which adds `cost` to the tenant's counter. The counter of one that comes
 * back is lifted to the least of those that wait, or else to that of the last that left. */
void tenants_told(struct tenants *tenants, const struct schedule_view *view,
                  const struct happening *h, double cost);

/* The link of the request that comes next; 0: none waits. */
uint32_t tenants_next(const struct tenants *tenants);

/* In the decision under way it starts, for `cost`; at its end all is as it was before. */
void tenants_start(struct tenants *tenants, const struct schedule_view *view, uint32_t slot,
                   double cost);
void tenants_end(struct tenants *tenants, const struct schedule_view *view,
                 const struct batch *batch);

#endif
