/* The job that simulates a measured server's requests: distributions of both sides, and numbers. */
#include <stdio.h>

#include "experiments/study/jobs.h"
#include "experiments/study/server.h"

enum { MOST_POINTS = 400, N_TIMES = 3 };

/* The share of requests up to each of at most MOST_POINTS values, which are sorted. */
static void put_distribution(const struct series *values, const char *time, const char *side,
                             const json_t *row, json_t *rows) {
    size_t n = values->n < MOST_POINTS ? values->n : MOST_POINTS;
    for (size_t i = 0; i < n; i++) {
        size_t at = n == values->n ? i : i * (values->n - 1) / (MOST_POINTS - 1);
        json_t *own = json_copy((json_t *)(uintptr_t)row);
        json_object_set_new(own, "time", json_string(time));
        json_object_set_new(own, "side", json_string(side));
        job_put(own, "seconds", values->values[at]);
        job_put(own, "percent", 100 * ((double)at + 1) / (double)values->n);
        json_array_append_new(rows, own);
    }
}

static void put_quantity(const struct server_quantity *quantity, const json_t *row, json_t *rows) {
    json_t *own = json_copy((json_t *)(uintptr_t)row);
    json_object_set_new(own, "quantity", json_string(quantity->name));
    json_object_set_new(own, "unit", json_string(quantity->unit));
    job_put(own, "measured", quantity->measured);
    job_put(own, "simulated", quantity->simulated);
    job_put(own, "error", server_error(quantity));
    json_array_append_new(rows, own);
}

static int simulate(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    static const char *const times[N_TIMES] = {"ttft", "tpot", "latency"};
    struct setting settings[JOB_MOST_SETTINGS];
    struct run_request request = {.system = job_text(args, "system"),
                                  .gpu = job_text(args, "gpu"),
                                  .model = job_text(args, "model"),
                                  .options = {.seed = 1},
                                  .settings = settings};
    struct server server;
    char path[1024];
    const char *file = job_text(args, "file");
    (void)state;
    int status = server_read(job_path(path, sizeof path, file), file, &server, err);
    status = status != 0 ? status : job_settings(args, settings, &request.n_settings, err);
    status = status != 0 ? status : server_run(&server, &request, err);
    if (status == 0) {
        const struct summary *ours = &server.simulated, *theirs = &server.measured;
        const struct series *simulated[] = {&ours->ttfb_s, &ours->tpot_s, &ours->latency_s};
        const struct series *measured[] = {&theirs->ttfb_s, &theirs->tpot_s, &theirs->latency_s};
        for (size_t i = 0; i < N_TIMES; i++) {
            put_distribution(simulated[i], times[i], "simulated", row, rows);
            put_distribution(measured[i], times[i], "measured", row, rows);
        }
        for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
            put_quantity(&server.quantities[i], row, rows);
        }
    }
    server_fini(&server);
    return status;
}

const struct job job_server = {
    .name = "server",
    .doc = "a measured server's requests, simulated (unmask validate): distributions and numbers",
    .required = (const char *const[]){"file", "system", "gpu", NULL},
    .optional = (const char *const[]){"model", NULL},
    .takes_settings = true,
    .fill = simulate,
};
