/* A real server's requests beside the same requests simulated.
 *
 * One CSV is trace and measurement: arrival_us, input_tokens and output_tokens as every trace
 * reader takes them, and when each request's first and last tokens left the server, in microseconds
 * from the same moment as the arrivals. Both sides go through the same summary: time to the first
 * token is ttfb (a block of an autoregressive model is a token), tpot is exclusive of the first
 * token. */
#ifndef UNMASK_EXPERIMENTS_SERVER_SERVER_H
#define UNMASK_EXPERIMENTS_SERVER_SERVER_H

#include <jansson.h>
#include <stdio.h>

#include "experiments/run/compose.h"

/* How near a simulated server is meant to come: means, throughput and makespan; percentiles. */
#define SERVER_MEAN_TOLERANCE       0.03
#define SERVER_PERCENTILE_TOLERANCE 0.05

enum { SERVER_MOST_RUNS = 16, SERVER_QUANTITIES = 17 };

/* One number of both sides, times in seconds. */
struct server_quantity {
    const char *name, *unit;
    double measured, tolerance;
    double simulated[SERVER_MOST_RUNS];
};

/* A measured server and what each run made of its requests. */
struct server {
    char path[256];
    const char *name; /* of the file, for people; borrowed */
    struct summary measured;
    uint32_t measured_at_once; /* requests between their first and last tokens, at most */
    struct composition *runs[SERVER_MOST_RUNS];
    const char *labels[SERVER_MOST_RUNS]; /* borrowed */
    uint32_t at_once[SERVER_MOST_RUNS];   /* as measured_at_once */
    size_t n_runs;
    struct server_quantity quantities[SERVER_QUANTITIES]; /* of server_compare */
};

/* Read the measurement at `path`, called `name`. ERR_WORLD says "path:line: found X, expected Y".
 * The caller runs server_fini whatever came of it. */
int server_read(const char *path, const char *name, struct server *server, struct err *err);
void server_fini(struct server *server);

/* Simulate the requests of the file: `request` without its workload. Where as many requests at once
 * as were measured contradict the run's limits, it gets a warning. */
int server_add_run(struct server *server, const struct run_request *request, const char *label,
                   struct err *err);

/* Fill in the quantities. ERR_WORLD where a run has not completed every request. */
int server_compare(struct server *server, struct err *err);

/* simulated / measured - 1. */
double server_error(const struct server_quantity *quantity, size_t run);

/* How many quantities of a run are within their tolerances. */
size_t server_within(const struct server *server, size_t run);

/* The table, and where the numbers of each run come from. */
void server_print(const struct server *server, FILE *out);
json_t *server_json(const struct server *server); /* NULL when memory is out */

/* STEM.svg, .png and .csv: the distributions of all requests; STEM-server.csv and .md: the table.
 */
int server_draw(const struct server *server, const char *title, const char *stem, struct err *err);

#endif
