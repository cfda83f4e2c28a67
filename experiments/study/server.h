/* A real server's requests compared with the same requests simulated.
 *
 * What was measured is trace and measurement in one (timings.h): a server's own record, or a
 * client's file. Both sides go through the same summary: time to the first token is ttfb (a block
 * of an autoregressive model is a token), tpot is exclusive of the first token, or of the first
 * block where a server's record says how long that was. What a client of the same traffic wrote
 * can stand next to a server's record. */
#ifndef UNMASK_EXPERIMENTS_STUDY_SERVER_H
#define UNMASK_EXPERIMENTS_STUDY_SERVER_H

#include <jansson.h>
#include <stdio.h>

#include "experiments/run/compose.h"
#include "experiments/study/timings.h"

/* How near a simulated server is meant to come: means, throughput and makespan; percentiles. */
#define SERVER_MEAN_TOLERANCE       0.03
#define SERVER_PERCENTILE_TOLERANCE 0.05

enum { SERVER_QUANTITIES = 17 };

/* One number of both sides, times in seconds. */
struct server_quantity {
    const char *name, *unit;
    double measured, simulated, tolerance;
    double client; /* NaN: there is none, or it does not say */
};

/* A measured server and what a run made of its requests. */
struct server {
    char path[256];
    const char *name; /* of the file, for people; borrowed */
    struct timings source;
    struct summary measured;      /* of its requests that were done */
    struct summary simulated;     /* of the same requests */
    struct timings client_source; /* n = 0: there is none */
    struct summary client;
    int arrivals;                                 /* an open file of a client's; -1: none */
    struct composition *run;                      /* NULL: none so far */
    uint32_t measured_at_once, simulated_at_once; /* requests between first and last token, most */
    struct server_quantity quantities[SERVER_QUANTITIES];
};

/* Read the measurement at `path`, called `name`. ERR_WORLD as timings_read. The caller runs
 * server_fini whatever came of it. */
int server_read(const char *path, const char *name, struct server *server, struct err *err);
/* And what a client of it wrote. */
int server_read_client(const char *path, struct server *server, struct err *err);
void server_fini(struct server *server);

/* Simulate the requests of the file, `request` without its workload, and compare. Where as many
 * requests at once as were measured contradict the run's limits, it gets a warning. ERR_WORLD where
 * not every request was completed. */
int server_run(struct server *server, const struct run_request *request, struct err *err);

/* simulated / measured - 1. */
double server_error(const struct server_quantity *quantity);

/* How many quantities are within their tolerances. */
size_t server_within(const struct server *server);

/* The table, and where the numbers of the run come from. */
void server_print(const struct server *server, FILE *out);
json_t *server_json(const struct server *server);

#endif
