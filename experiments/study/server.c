#include "experiments/study/server.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/caution.h"
#include "experiments/run/cli/table.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/system.h"
#include "sim/serve/record.h"

/* How many requests are between their first and last tokens at once, at most: what a measured
 * server and its simulation can both be asked. */

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

static int take_request(void *state, const struct request_record *record, struct err *err) {
    struct overlap *overlap = state;
    (void)err;
    if (record->state != REQUEST_DONE || record->first_block_ns < 0) {
        return 0;
    }
    if (overlap->n + 2 > overlap->room) {
        size_t room = 2 * overlap->room + 256;
        overlap->edges = mem_resized(overlap->edges, room, sizeof *overlap->edges);
        overlap->room = room;
    }
    overlap->edges[overlap->n++] = (struct overlap_edge){record->first_block_ns, 1};
    overlap->edges[overlap->n++] = (struct overlap_edge){record->finished_ns, -1};
    return 0;
}

/* A sink that takes the requests that were completed. */
static struct sink overlap_sink(struct overlap *overlap) {
    return (struct sink){.state = overlap, .request = take_request};
}

static int by_time(const void *a, const void *b) {
    const struct overlap_edge *x = a, *y = b;
    return x->time_ns != y->time_ns ? (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns)
                                    : x->change - y->change;
}

/* A request that ends as another begins does not overlap with it. */
static uint32_t overlap_peak(struct overlap *overlap) {
    if (overlap->n > 0) {
        qsort(overlap->edges, overlap->n, sizeof *overlap->edges, by_time);
    }
    int64_t now = 0, peak = 0;
    for (size_t i = 0; i < overlap->n; i++) {
        now += overlap->edges[i].change;
        peak = now > peak ? now : peak;
    }
    return (uint32_t)peak;
}

static void overlap_fini(struct overlap *overlap) {
    free(overlap->edges);
    *overlap = (struct overlap){0};
}

/* Simulated over measured requests at once beyond which another limit is at work than an error of
 * prices; assumed. Of the two shipped servers with their own limits: 128 / 128 and 48 / 50. */
#define SERVER_AT_ONCE_RATIO 1.25

void server_fini(struct server *server) {
    compose_close(server->run);
    summary_fini(&server->measured);
    summary_fini(&server->simulated);
    summary_fini(&server->client);
    timings_fini(&server->source);
    timings_fini(&server->client_source);
    if (server->arrivals >= 0) {
        close(server->arrivals);
    }
    *server = (struct server){.arrivals = -1};
}

/* A limit that the server cannot have had, or one that it had and the run has not. */
static void hold_to_measured(struct server *server) {
    struct warnings *warnings = &server->run->facts.warnings;
    uint32_t limit = server->run->system->budget.max_requests;
    uint32_t measured = server->measured_at_once, simulated = server->simulated_at_once;
    if (limit > 0 && measured > limit) {
        warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)measured / limit,
                     "the server had %u requests between their first and last tokens at once, and "
                     "max_requests = %u lets in fewer: give its --max-num-seqs",
                     measured, limit);
    } else if (simulated > SERVER_AT_ONCE_RATIO * measured) {
        warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)simulated / measured,
                     "the server had at most %u requests between their first and last tokens at "
                     "once, the simulation %u: its --max-num-seqs or --num-gpu-blocks was lower "
                     "than what is assumed here",
                     measured, simulated);
    }
}

/* ---- comparing ---- */

enum statistic { MEAN, P50, P90, P95, P99, N_STATISTICS };

static double statistic_of(const struct distribution *d, enum statistic statistic) {
    const double values[N_STATISTICS] = {d->mean, d->p50, d->p90, d->p95, d->p99};
    return values[statistic];
}

static const struct distribution *distribution_at(const struct summary *summary, size_t i) {
    const struct distribution *all[] = {&summary->ttfb, &summary->tpot, &summary->latency};
    return all[i];
}

/* The quantity at `index` of one side; names and tolerances besides. */
static double quantity_of(const struct summary *summary, size_t index,
                          struct server_quantity *out) {
    static const char *const names[] = {
        "TTFT mean",   "TTFT p50",    "TTFT p90",    "TTFT p95", "TTFT p99",     "TPOT mean",
        "TPOT p50",    "TPOT p90",    "TPOT p95",    "TPOT p99", "latency mean", "latency p50",
        "latency p90", "latency p95", "latency p99", "makespan", "throughput",
    };
    enum { MAKESPAN = 3 * N_STATISTICS };
    bool is_percentile = index < MAKESPAN && index % N_STATISTICS != MEAN;
    out->name = names[index];
    out->unit = index <= MAKESPAN ? "s" : "tok/s";
    out->tolerance = is_percentile ? SERVER_PERCENTILE_TOLERANCE : SERVER_MEAN_TOLERANCE;
    if (index < MAKESPAN) {
        return statistic_of(distribution_at(summary, index / N_STATISTICS),
                            (enum statistic)(index % N_STATISTICS));
    }
    return index == MAKESPAN ? summary->makespan_s : summary->throughput_tok_s;
}

/* A client that does not say when it asked knows no makespan. */
static double client_quantity(const struct server *server, size_t index,
                              struct server_quantity *out) {
    const double value = quantity_of(&server->client, index, out);
    const bool spans = index >= SERVER_QUANTITIES - 2;
    return server->client_source.n == 0 || (spans && server->client_source.lacks_arrivals)
               ? (double)NAN
               : value;
}

static int compare(struct server *server, struct err *err) {
    const struct summary *summary = &server->simulated;
    if (summary->completed != server->measured.completed) {
        return err_world(err,
                         "%s completed %llu of the %llu requests of %s, %llu rejected: nothing to "
                         "compare",
                         server->run->facts.system, (unsigned long long)summary->completed,
                         (unsigned long long)server->measured.completed, server->name,
                         (unsigned long long)server->run->summary.rejected);
    }
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        struct server_quantity *quantity = &server->quantities[i];
        quantity->client = client_quantity(server, i, quantity);
        quantity->measured = quantity_of(&server->measured, i, quantity);
        quantity->simulated = quantity_of(summary, i, quantity);
    }
    return 0;
}

/* ---- the same requests on both sides ---- */

static const struct request_record *record_of(const struct timings *measured, uint64_t id) {
    for (size_t i = id < measured->n ? (size_t)id : 0; i < measured->n; i++) {
        if (measured->records[i].id == id) {
            return &measured->records[i];
        }
    }
    for (size_t i = 0; i < measured->n && i < id; i++) {
        if (measured->records[i].id == id) {
            return &measured->records[i];
        }
    }
    return NULL;
}

/* Of the simulated requests those that the server had done. Where what was measured counts one
 * token at the first event, so do they. */
static int take_simulated(void *state, const struct request_record *record, struct err *err) {
    struct server *server = state;
    const struct request_record *measured = record_of(&server->source, record->id);
    const struct sink sink = summary_sink(&server->simulated);
    if (measured == NULL || measured->state != REQUEST_DONE) {
        return 0;
    }
    struct request_record counted = *record;
    if (server->source.kind != TIMINGS_DATABASE || server->client_source.n > 0) {
        counted.first_block_tokens = 1;
    }
    return sink.request(sink.state, &counted, err);
}

int server_run(struct server *server, const struct run_request *request, struct err *err) {
    struct run_request replay = *request;
    struct overlap overlap = {0};
    const struct sink sinks[] = {overlap_sink(&overlap),
                                 {.state = server, .request = take_simulated}};
    const struct run_watch watch = {.sinks = sinks, .n_sinks = 2};
    if (server->source.lacks_arrivals) {
        return err_usage(err,
                         "%s does not say when its requests were sent: give the server's own "
                         "record besides, --measured DATABASE --client FILE",
                         server->name);
    }
    replay.workload = server->path;
    replay.takes_record = true;
    summary_init(&server->simulated, NULL);
    int status = compose_open(&replay, &server->run, err);
    status = status == 0 ? compose_run(server->run, &watch, err) : status;
    summary_finish(&server->simulated);
    server->simulated_at_once = overlap_peak(&overlap);
    overlap_fini(&overlap);
    if (status != 0) {
        return status;
    }
    hold_to_measured(server);
    return compare(server, err);
}

double server_error(const struct server_quantity *quantity) {
    return quantity->simulated / quantity->measured - 1;
}

/* Where nothing was measured, such as tokens after the first, there is nothing to miss. */
static bool is_within(const struct server_quantity *quantity) {
    return !(fabs(server_error(quantity)) > quantity->tolerance);
}

size_t server_within(const struct server *server) {
    size_t n = 0;
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        n += is_within(&server->quantities[i]);
    }
    return n;
}

/* ---- printing ---- */

static void print_left_out(const struct server *server, FILE *out) {
    const size_t n_left = server->source.n + server->source.n_failed - server->measured.completed;
    if (n_left > 0) {
        fprintf(out, "%zu more were not answered whole, and are not compared\n", n_left);
    }
    if (server->client_source.n > 0) {
        fprintf(out, "client: %zu requests that it saw answered, %zu that it did not\n",
                server->client_source.n, server->client_source.n_failed);
    }
}

void server_print(const struct server *server, FILE *out) {
    const struct composition *run = server->run;
    const struct run_facts *facts = &run->facts;
    char pool[32], peak[32];
    struct table *table = table_open("quantity|unit|measured");
    const bool has_client = server->client_source.n > 0;
    if (has_client) {
        table_column(table, "client");
    }
    table_column(table, facts->system);
    table_column(table, "error");
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        const struct server_quantity *quantity = &server->quantities[i];
        table_add(table, "s s %.5g", quantity->name, quantity->unit, quantity->measured);
        if (has_client) {
            table_number(table, quantity->client, "%.5g");
        }
        table_number(table, quantity->simulated, "%.5g");
        table_number(table, 100 * server_error(quantity),
                     is_within(quantity) ? "%+.1f %% " : "%+.1f %%*");
    }
    fprintf(out, "%llu requests of %s, %llu output tokens; *: beyond the aim\n",
            (unsigned long long)server->measured.completed, server->name,
            (unsigned long long)server->measured.tokens_committed);
    print_left_out(server, out);
    fprintf(out, "\n");
    table_print(table, out);
    table_close(table);
    fprintf(out,
            "\n%s: %s, %s on %s, prices %s\n%zu of %d quantities within 3 %% (means, makespan, "
            "throughput) and 5 %% (percentiles)\n",
            facts->system, facts->system, facts->model, facts->gpu, facts->profile_kind,
            server_within(server), SERVER_QUANTITIES);
    fprintf(out,
            "KV pool %s, peak %s; at most %u requests in a step, %llu preemptions\n"
            "at once between first and last token: measured %u, simulated %u requests\n",
            num_format_bytes(pool, sizeof pool, (double)run->system->budget.pool_bytes),
            num_format_bytes(peak, sizeof peak, (double)run->summary.kv_peak_bytes),
            run->summary.max_batch, (unsigned long long)run->summary.preemptions,
            server->measured_at_once, server->simulated_at_once);
    for (uint32_t i = 0; i < run->system->n_calibrated; i++) {
        const struct calibrated *constant = &run->system->calibrated[i];
        fprintf(out, "calibrated   %s = %.6g (fitted to %s)\n", constant->name, constant->value,
                constant->fitted_to);
    }
    compose_print_warnings(run, out);
}

/* Measured and simulated numbers by quantity, and what was run. */
static json_t *run_json(const struct server *server) {
    const struct composition *run = server->run;
    json_t *numbers = json_object(), *constants = json_object();
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        const struct server_quantity *quantity = &server->quantities[i];
        json_t *number = json_pack("{s:f, s:f, s:f, s:b}", "measured", quantity->measured,
                                   "simulated", quantity->simulated, "error",
                                   server_error(quantity), "within", (int)is_within(quantity));
        if (server->client_source.n > 0) {
            json_object_set_new(number, "client",
                                isnan(quantity->client) ? json_null()
                                                        : json_real(quantity->client));
        }
        json_object_set_new(numbers, quantity->name, number);
    }
    for (uint32_t i = 0; i < run->system->n_calibrated; i++) {
        const struct calibrated *constant = &run->system->calibrated[i];
        json_object_set_new(constants, constant->name, json_real(constant->value));
    }
    struct warnings warnings = caution_of(&run->summary, &run->facts);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:I, s:O}", "label",
                     run->facts.system, "system", run->facts.system, "model", run->facts.model,
                     "gpu", run->facts.gpu, "profile_kind", run->facts.profile_kind, "within",
                     (json_int_t)server_within(server), "calibrated", constants, "quantities",
                     numbers, "warnings", caution_json(&warnings), "at_once",
                     (json_int_t)server->simulated_at_once, "identity", run->identity);
}

json_t *server_json(const struct server *server) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:[o]}", "measured", server->name, "at_once",
                     (json_int_t)server->measured_at_once, "requests",
                     (json_int_t)server->measured.completed, "output_tokens",
                     (json_int_t)server->measured.tokens_committed, "of",
                     (json_int_t)SERVER_QUANTITIES, "runs", run_json(server));
}

/* ---- reading what was measured ---- */

static int summarize(const struct timings *source, struct summary *out, struct overlap *overlap,
                     struct err *err) {
    const struct sink sink = summary_sink(out), beside = overlap_sink(overlap);
    int status = 0;
    summary_init(out, NULL);
    for (size_t i = 0; status == 0 && i < source->n; i++) {
        const struct request_record *record = &source->records[i];
        if (record->state == REQUEST_DONE) {
            status = sink.request(sink.state, record, err);
            status = status == 0 ? beside.request(beside.state, record, err) : status;
        }
    }
    if (status == 0) {
        summary_finish(out);
    }
    return status;
}

/* A client's file is no workload, a CSV and a database are. */
static int keep_arrivals(struct server *server, const char *path, struct err *err) {
    if (server->source.kind != TIMINGS_CLIENT) {
        snprintf(server->path, sizeof server->path, "%s", path);
        return 0;
    }
    server->arrivals = system_memory_file();
    if (server->arrivals < 0) {
        return err_world(err, "the system has no file for the arrivals of %s", path);
    }
    snprintf(server->path, sizeof server->path, "/dev/fd/%d", server->arrivals);
    return timings_write(&server->source, server->arrivals, err);
}

int server_read(const char *path, const char *name, struct server *server, struct err *err) {
    struct overlap overlap = {0};
    *server = (struct server){.name = name, .arrivals = -1};
    int status = timings_read(path, &server->source, err);
    status = status == 0 ? summarize(&server->source, &server->measured, &overlap, err) : status;
    server->measured_at_once = overlap_peak(&overlap);
    overlap_fini(&overlap);
    return status == 0 ? keep_arrivals(server, path, err) : status;
}

/* As a client does, the record counts one token at the first block, too. */
static int count_as_client(struct server *server, struct err *err) {
    struct overlap overlap = {0};
    for (size_t i = 0; i < server->source.n; i++) {
        server->source.records[i].first_block_tokens = 1;
    }
    summary_fini(&server->measured);
    int status = summarize(&server->source, &server->measured, &overlap, err);
    overlap_fini(&overlap);
    return status;
}

int server_read_client(const char *path, struct server *server, struct err *err) {
    struct overlap overlap = {0};
    int status = timings_read(path, &server->client_source, err);
    if (status == 0 && server->client_source.kind != TIMINGS_CLIENT) {
        status = err_usage(err, "--client: %s is no result of a client", path);
    }
    status =
        status == 0 ? summarize(&server->client_source, &server->client, &overlap, err) : status;
    overlap_fini(&overlap);
    return status == 0 ? count_as_client(server, err) : status;
}
