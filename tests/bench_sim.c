/* How fast the simulator is: request-steps and events per second, one thread; and its planners.
 *
 * A request-step is one request's part of one forward pass; an event is a submission to the
 * executor or an arrival. Medians of several runs; recording goes to a temporary database. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "analysis/store.h"
#include "analysis/summary.h"
#include "sim/base/monotonic.h"
#include "sim/graph/builder.h"
#include "sim/memory/instance.h"
#include "sim/memory/placement.h"
#include "sim/serve/executor_sim.h"
#include "sim/serve/loop.h"
#include "traces/workload.h"

enum { RUNS = 9 };

enum recording { RECORD_NOTHING, RECORD_SUMMARY, RECORD_STEPS };

struct measure {
    double seconds;
    uint64_t request_steps, events, steps;
};

static void stop_on(const struct err *err) {
    if (err->kind != ERR_NONE) {
        fprintf(stderr, "bench: %s\n", err->text);
        exit((int)err->kind);
    }
}

static struct sink recording_sink(enum recording recording, struct summary *summary,
                                  struct store *store, struct err *err) {
    struct sink sink = {0};
    if (recording == RECORD_SUMMARY) {
        sink = summary_sink(summary);
    } else if (recording == RECORD_STEPS) {
        struct run_facts facts = run_facts_unknown();
        int64_t run;
        store_run_begin(store, &facts, STORE_STEPS, &run, &sink, err);
        stop_on(err);
    }
    return sink;
}

static struct measure run_once(struct system *system, const char *workload_name,
                               enum recording recording, struct store *store) {
    struct err err = {0};
    struct workload_options options = {.seed = 1};
    struct workload *workload = NULL;
    workload_open(workload_name, &options, &workload, &err);
    stop_on(&err);
    struct executor_sim *sim = executor_sim_open(system, 1);
    struct summary summary;
    summary_init(&summary, NULL);
    struct sink sink = recording_sink(recording, &summary, store, &err);
    struct loop_request request = {.system = system,
                                   .executor = executor_sim_interface(sim),
                                   .source = workload_source(workload),
                                   .sinks = &sink,
                                   .n_sinks = recording != RECORD_NOTHING,
                                   .records_members = recording == RECORD_STEPS,
                                   .seed = 1};
    struct loop_result result;
    int64_t start_ns = monotonic_ns();
    loop_run(&request, &result, &err);
    double seconds = 1e-9 * (double)(monotonic_ns() - start_ns);
    stop_on(&err);
    if (recording == RECORD_STEPS) {
        store_run_rollback(store);
    }
    summary_fini(&summary);
    executor_sim_close(sim);
    workload_close(workload);
    return (struct measure){seconds, result.request_steps, result.submissions + result.arrived,
                            result.steps};
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const struct measure *)a)->seconds, y = ((const struct measure *)b)->seconds;
    return (x > y) - (x < y);
}

static void measure(const char *title, const char *system_name, const char *workload,
                    enum recording recording) {
    struct err err = {0};
    struct system_request request = {.system = system_name, .gpu = "l40s"};
    struct system *system = NULL;
    system_open(&request, &system, &err);
    stop_on(&err);
    struct store *store = NULL;
    char path[] = "/tmp/unmask-bench-XXXXXX.db";
    if (recording == RECORD_STEPS) {
        int fd = mkstemps(path, 3);
        close(fd);
        unlink(path);
        store_open(path, STORE_WRITE, &store, &err);
        stop_on(&err);
    }
    struct measure runs[RUNS];
    run_once(system, workload, recording, store); /* warms caches and price tables */
    for (int i = 0; i < RUNS; i++) {
        runs[i] = run_once(system, workload, recording, store);
    }
    qsort(runs, RUNS, sizeof runs[0], by_seconds);
    const struct measure *median = &runs[RUNS / 2];
    printf("%-44s %8.1f M request-steps/s %7.2f M events/s  (%.1f ms, %.1f requests a step)\n",
           title, (double)median->request_steps / median->seconds * 1e-6,
           (double)median->events / median->seconds * 1e-6, median->seconds * 1e3,
           (double)median->request_steps / (double)median->steps);
    if (store != NULL) {
        store_close(store);
        unlink(path);
    }
    system_close(system);
}

/* ---- planning ---- */

enum { PLANS = 2000 };

/* A refresh step of four requests beside a reuse step of as many, logits in chunks. */
static void plan_step(const char *planner_name, const struct graph *graph) {
    struct err err = {0};
    const struct planner *planner = planner_find(planner_name, &err);
    stop_on(&err);
    struct step_shape shape;
    struct span refresh = {.queries = 768, .first_queries = 768, .logit_rows = 256};
    struct span reuse = {.queries = 32, .first_queries = 32, .context = 768, .logit_rows = 32};
    shape_clear(&shape);
    for (int i = 0; i < 4; i++) {
        shape_add(shape.sym, &refresh, 1);
        shape_add(shape.sym, &reuse, 1);
    }
    const struct chunk_rows chunks = {.of[CHUNK_LOGITS] = 512};
    struct placement placement;
    int64_t start_ns = monotonic_ns();
    for (int i = 0; i < PLANS; i++) {
        placement_make(planner, graph, &shape, chunks, &placement);
    }
    printf("plan of a step, %-28s %8.2f us  (peak / lower bound %.3f)\n", planner_name,
           1e-3 * (double)(monotonic_ns() - start_ns) / PLANS,
           (double)placement.peak_bytes / (double)placement.lower_bound_bytes);
}

static void plan_steps(void) {
    struct err err = {0};
    const struct model *model = model_find("llada-8b", &err);
    stop_on(&err);
    struct graph graph;
    struct graph_options options = {.gathers_cache = true, .logits_bytes = 2, .copy_bytes = 8};
    graph_build(&graph, model, &options);
    for (size_t i = 0; i < planner_table_size; i++) {
        plan_step(planner_table[i].name, &graph);
    }
}

/* A pass over so many tokens of Fast-dLLM, whole and in a part of what it then takes. */
static void search_step(const struct system *system, uint32_t tokens, double part) {
    static const char *const names[] = {"none", "bottleneck", "brute-force"};
    struct step_shape shape;
    struct span span = {.queries = tokens, .first_queries = tokens, .logit_rows = tokens};
    struct chunk_rule rule = system->chunks;
    struct placement placement;
    struct chunk_result result;
    struct chunk_request request = {&rule, system->planner, &system->graph, &shape, INT64_MAX};
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    chunk_place(&request, &placement, &result);
    request.available_bytes = (int64_t)(part * (double)placement.peak_bytes);
    for (int search = 0; search < 3; search++) {
        int n = search == CHUNK_SEARCH_BRUTE_FORCE ? 10 : PLANS;
        rule.search = (enum chunk_search)search;
        int64_t start_ns = monotonic_ns();
        for (int i = 0; i < n; i++) {
            chunk_place(&request, &placement, &result);
        }
        double us = 1e-3 * (double)(monotonic_ns() - start_ns) / n;
        double ms = 1e-6 * rule.price_ns(rule.state, &shape, placement.chunks);
        printf("chunk search, %6u tokens in %2.0f %%, %-11s %9.1f us %4u plans, %2u ffn and %2u "
               "logit chunks, %s, step %.1f ms\n",
               tokens, 100 * part, names[search], us, result.n_plans, result.counts[CHUNK_FFN],
               result.counts[CHUNK_LOGITS], result.fits ? "fits" : "does not fit", ms);
    }
}

static void search_steps(void) {
    struct err err = {0};
    struct system_request request = {.system = "fast-dllm", .gpu = "l40s"};
    struct system *system = NULL;
    system_open(&request, &system, &err);
    stop_on(&err);
    search_step(system, 2048, 0.5);
    search_step(system, 32768, 0.5);
    search_step(system, 32768, 0.23);
    search_step(system, 131072, 0.3);
    search_step(system, 131072, 0.1);
    system_close(system);
}

/* A file of buffers into the capacity that its name ends with, as MiniMalloc's do. */
static void plan_file(const char *path) {
    struct err err = {0};
    struct instance instance;
    instance_read(path, &instance, &err);
    stop_on(&err);
    const char *name = strrchr(path, '/');
    const char *dot = strchr(name == NULL ? path : name, '.');
    struct plan_request request = {.packing = &instance.packing,
                                   .capacity_bytes = dot == NULL ? 0 : atoll(dot + 1)};
    struct plan plan = {.offset_bytes =
                            calloc(instance.packing.n_buffers, sizeof *plan.offset_bytes)};
    for (size_t i = 0; i < planner_table_size; i++) {
        int64_t start_ns = monotonic_ns();
        planner_solve(&planner_table[i], &request, NULL, &plan, &err);
        double seconds = 1e-9 * (double)(monotonic_ns() - start_ns);
        stop_on(&err);
        printf("%s, %-14s %6.3f of the lower bound %10.3f ms %9llu nodes%s\n", path,
               planner_table[i].name, (double)plan.peak_bytes / (double)plan.lower_bound_bytes,
               seconds * 1e3, (unsigned long long)plan.n_nodes, plan.stopped ? ", stopped" : "");
    }
    free(plan.offset_bytes);
    instance_fini(&instance);
}

/* With arguments: the planners on these files. */
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        plan_file(argv[i]);
    }
    if (argc > 1) {
        return 0;
    }
    plan_steps();
    search_steps();
    printf("simulator speed, one thread, medians of %d runs, LLaDA-8B on an L40S\n", RUNS);
    measure("burst, dllm-serve, no recording", "dllm-serve", "burst", RECORD_NOTHING);
    measure("burst, dllm-serve, summary", "dllm-serve", "burst", RECORD_SUMMARY);
    measure("burst, dllm-serve, every step to SQLite", "dllm-serve", "burst", RECORD_STEPS);
    measure("burst, dllm-serve-published, summary", "dllm-serve-published", "burst",
            RECORD_SUMMARY);
    measure("burst, fast-dllm-published, summary", "fast-dllm-published", "burst", RECORD_SUMMARY);
    measure("burst, dllm-cache-published, summary", "dllm-cache-published", "burst",
            RECORD_SUMMARY);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("peak memory %.0f MB\n", (double)usage.ru_maxrss / 1024);
    return 0;
}
