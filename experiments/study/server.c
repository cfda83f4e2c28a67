#include "experiments/study/server.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "experiments/cli/table.h"
#include "sim/base/input/csv.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
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
    *server = (struct server){0};
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

static int compare(struct server *server, struct err *err) {
    const struct summary *summary = &server->run->summary;
    if (summary->completed != server->measured.completed) {
        return err_world(err,
                         "%s completed %llu of the %llu requests of %s, %llu rejected: nothing to "
                         "compare",
                         server->run->facts.system, (unsigned long long)summary->completed,
                         (unsigned long long)server->measured.completed, server->name,
                         (unsigned long long)summary->rejected);
    }
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        struct server_quantity *quantity = &server->quantities[i];
        quantity->measured = quantity_of(&server->measured, i, quantity);
        quantity->simulated = quantity_of(summary, i, quantity);
    }
    return 0;
}

int server_run(struct server *server, const struct run_request *request, struct err *err) {
    struct run_request replay = *request;
    struct overlap overlap = {0};
    const struct sink sink = overlap_sink(&overlap);
    const struct run_watch watch = {.sinks = &sink, .n_sinks = 1};
    replay.workload = server->path;
    int status = compose_open(&replay, &server->run, err);
    status = status == 0 ? compose_run(server->run, &watch, err) : status;
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

void server_print(const struct server *server, FILE *out) {
    const struct composition *run = server->run;
    const struct run_facts *facts = &run->facts;
    char pool[32], peak[32];
    struct table *table = table_open("quantity|unit|measured");
    table_column(table, facts->system);
    table_column(table, "error");
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        const struct server_quantity *quantity = &server->quantities[i];
        table_add(table, "s s %.5g %.5g", quantity->name, quantity->unit, quantity->measured,
                  quantity->simulated);
        table_number(table, 100 * server_error(quantity),
                     is_within(quantity) ? "%+.1f %% " : "%+.1f %%*");
    }
    fprintf(out, "%llu requests of %s, %llu output tokens; *: beyond the aim\n\n",
            (unsigned long long)server->measured.completed, server->name,
            (unsigned long long)server->measured.tokens_committed);
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
        json_object_set_new(numbers, quantity->name,
                            json_pack("{s:f, s:f, s:f, s:b}", "measured", quantity->measured,
                                      "simulated", quantity->simulated, "error",
                                      server_error(quantity), "within", (int)is_within(quantity)));
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

/* Reading what was measured of a server's requests. */

enum column {
    COLUMN_ARRIVAL,
    COLUMN_INPUT,
    COLUMN_OUTPUT,
    COLUMN_FIRST,
    COLUMN_LAST,
    COLUMN_START
};

static const char *const column_names[] = {
    "arrival_us",
    "input_tokens",
    "output_tokens",
    "first_token_us",
    "last_token_us",
    "scheduled_us",
    /* the only one that may be missing */ NULL,
};

/* A time that is not before `earliest_ns`. */
static int read_time(const struct csv *table, enum column column, int64_t earliest_ns,
                     const char *expected, int64_t *out, struct err *err) {
    const char *text = csv_field(table, (int)column);
    bool is_time = field_time_ns(text, strlen(text), 1000, out);
    return is_time && *out >= earliest_ns ? 0 : csv_bad(table, (int)column, expected, err);
}

static int read_count(const struct csv *table, enum column column, uint32_t *out, struct err *err) {
    const char *text = csv_field(table, (int)column);
    return field_u32(text, strlen(text), out) && *out > 0
               ? 0
               : csv_bad(table, (int)column, "a whole number from 1 to 2^32 - 1", err);
}

static int read_row(struct csv *table, struct request_record *out, struct err *err) {
    *out = (struct request_record){.state = REQUEST_DONE, .first_block_tokens = 1};
    if (csv_row(table, err) != 0) {
        return (int)err->kind;
    }
    int status =
        read_time(table, COLUMN_ARRIVAL, 0, "a time in microseconds", &out->arrival_ns, err);
    if (status == 0) {
        status = read_count(table, COLUMN_INPUT, &out->prompt_tokens, err);
    }
    if (status == 0) {
        status = read_count(table, COLUMN_OUTPUT, &out->output_tokens, err);
        out->answer_tokens = out->committed_tokens = out->output_tokens;
    }
    if (status == 0) {
        status =
            read_time(table, COLUMN_FIRST, out->arrival_ns,
                      "a time in microseconds, not before the arrival", &out->first_block_ns, err);
    }
    if (status == 0) {
        status = read_time(table, COLUMN_LAST, out->first_block_ns,
                           "a time in microseconds, not before the first token's",
                           &out->finished_ns, err);
    }
    out->admitted_ns = out->arrival_ns;
    if (status == 0 && table->position[COLUMN_START] >= 0) {
        status =
            read_time(table, COLUMN_START, out->arrival_ns,
                      "a time in microseconds, not before the arrival", &out->admitted_ns, err);
    }
    return status;
}

static int read_rows(struct csv *table, struct summary *out, struct overlap *overlap,
                     struct err *err) {
    struct sink sink = summary_sink(out), beside = overlap_sink(overlap);
    bool more;
    int status = csv_first(table, column_names, 1 << COLUMN_START, false, err);
    while (status == 0 && (status = csv_line(table, &more, err)) == 0 && more) {
        struct request_record record;
        status = read_row(table, &record, err);
        status = status != 0 ? status : sink.request(sink.state, &record, err);
        status = status != 0 ? status : beside.request(beside.state, &record, err);
    }
    return status == 0 && out->completed == 0
               ? err_world(err, "%s holds no requests", table->line.path)
               : status;
}

int server_read(const char *path, const char *name, struct server *server, struct err *err) {
    *server = (struct server){.name = name};
    snprintf(server->path, sizeof server->path, "%s", path);
    summary_init(&server->measured, NULL);
    struct csv table;
    struct overlap overlap = {0};
    int status = csv_open(&table, path, "server", err);
    status = status == 0 ? read_rows(&table, &server->measured, &overlap, err) : status;
    server->measured_at_once = overlap_peak(&overlap);
    overlap_fini(&overlap);
    csv_close(&table);
    if (status == 0) {
        summary_finish(&server->measured);
    }
    return status;
}
