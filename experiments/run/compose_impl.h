/* The inside of a composition, shared by compose*.c alone. */
#ifndef UNMASK_EXPERIMENTS_RUN_COMPOSE_IMPL_H
#define UNMASK_EXPERIMENTS_RUN_COMPOSE_IMPL_H

#include <stdio.h>
#include <string.h>

#include "experiments/run/compose.h"

/* Of a GPU whose memory is not what its file says, how much it has; at the end of the text. */
void compose_write_memory(const struct system *system, FILE *out);

/* The sections [run] and [system] of the resolved configuration. */
void compose_write_run(const struct run_request *request, const struct decode_trace *decode,
                       FILE *out);
void compose_write_system(const struct system *system, FILE *out);

/* Each opens one part of `c`, which compose_close releases whatever became of it. */
int compose_open_system(const struct run_request *request, struct composition *c, struct err *err);
int compose_read_decode(const char *path, struct composition *c, struct err *err);
int compose_open_engine(struct composition *c, const struct backend_request *backend, double *fits,
                        struct err *err); /* fits: as engine_request has it */

/* The requests of the run that the workload names, where it is a database. */
int compose_open_traffic(const struct run_request *request, struct composition *c, struct err *err);

/* A number that other requests would not have. */
uint64_t compose_traffic_digest(const struct recorded *traffic);

/* ERR_USAGE where the system cannot play the decode trace. */
int compose_check_decode(struct composition *c, struct err *err);

/* A warning for each setting of the user's that nothing of the run, which is over, has read. */
void compose_warn_of_unused(struct composition *c);

/* What is known of a run before it begins. */
void compose_state_facts(struct composition *c);

/* The workload and its rate: what it was offered, 0 where that is not known yet. */
void compose_name_trace(struct composition *c, double offered_req_s);

struct compose_figure {
    const char *name;
    enum figure_unit unit;
};
extern const struct compose_figure compose_figures[ENGINE_FIGURES];

/* Steps that were measured, or are measured now, are compared with the cost model's prices. */
static inline bool compose_is_measured(const struct composition *c) {
    return c->fleet != NULL || !c->recorded->is_simulated;
}

#endif
