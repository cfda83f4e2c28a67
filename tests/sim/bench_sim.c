/* How fast the simulator is: request-steps and events per second, one thread.
 *
 * A request-step is one request's part of one forward pass; an event is a submission to the
 * executor or an arrival. Medians of several runs; recording goes to a temporary database. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "analysis/store/store.h"
#include "analysis/summary.h"
#include "sim/base/monotonic.h"
#include "sim/decode/focus.h"
#include "sim/decode/process.h"
#include "sim/decode/process_file.h"
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
        sink.arrival = NULL; /* live runs alone record them (recorder.c) */
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

/* A step of one request's block whose positions are all masked. */
static void measure_draws(void) {
    enum { BLOCK = 32, STEPS = 200000 };
    struct err err = {0};
    struct decode_process process;
    decode_process_find("sdar-8b/sharegpt", &process, &err);
    stop_on(&err);
    uint8_t masked[BLOCK], keep[BLOCK];
    float confidence[BLOCK], delta[BLOCK];
    memset(masked, 1, sizeof masked);
    struct decode_view view = {.block_length = BLOCK, .masked = masked};
    const struct focus_rule rule = {.alpha = 1.5};
    int64_t at_ns[4] = {monotonic_ns()};
    for (int what = 0; what < 3; what++) {
        for (view.request = 0; view.request < STEPS; view.request++) {
            if (what == 0) {
                process_confidence(&process, 1, &view, confidence);
            } else if (what == 1) {
                process_delta(&process, 1, &view, delta);
            } else {
                focus_select(&rule, BLOCK, masked, masked, delta, 2.5, -1, keep);
            }
        }
        at_ns[what + 1] = monotonic_ns();
    }
    printf(
        "a block of 32, one step: confidences %.2f us, deltas %.2f us, FOCUS's selection %.2f us\n",
        1e-3 * (double)(at_ns[1] - at_ns[0]) / STEPS, 1e-3 * (double)(at_ns[2] - at_ns[1]) / STEPS,
        1e-3 * (double)(at_ns[3] - at_ns[2]) / STEPS);
}

/* A scheduler whose decisions, and what it is told before them, are timed while most wait. */
static struct {
    struct scheduler scheduler;
    const struct scheduler *inner;
    int64_t decides_ns, told_ns;
    uint64_t n, n_told;
    bool counts;
} timed;

static void timed_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    const int64_t start_ns = monotonic_ns();
    timed.inner->schedule(state, view, batch);
    timed.counts = view->n_running + view->n_waiting >= 900;
    if (timed.counts) {
        timed.decides_ns += monotonic_ns() - start_ns;
        timed.n++;
    }
}

static void timed_happened(void *state, const struct schedule_view *view,
                           const struct happening *happenings, uint32_t n) {
    const int64_t start_ns = monotonic_ns();
    if (timed.inner->happened != NULL) {
        timed.inner->happened(state, view, happenings, n);
    }
    if (timed.counts) {
        timed.told_ns += monotonic_ns() - start_ns;
        timed.n_told += n;
    }
}

static enum source_reply next_of_thousand(void *state, struct arrival *out, struct err *err) {
    uint32_t *id = state;
    (void)err;
    *out = (struct arrival){.id = *id,
                            .tenant = *id,
                            .prompt_tokens = 64 + *id * 7 % 193,
                            .output_tokens = 32 + *id * 13 % 225,
                            .predicted_tokens = 1 + *id * 13 % 225,
                            .due_ns = INT64_C(1000000000000)};
    return (*id)++ < 1000 ? SOURCE_ROW : SOURCE_END;
}

/* A thousand requests at once, each of a tenant of its own, until a hundred of them are done. */
static void measure_decisions(const struct scheduler *scheduler) {
    const char *name = scheduler->policy.name;
    const bool in_blocks = scheduler->says_rows != 0 || (scheduler->needs & NEEDS_THRESHOLD) != 0;
    struct err err = {0};
    struct setting setting = {.key = "scheduler", .place = "bench"};
    struct system_request request = {.system = in_blocks ? "dc+" : "dllm-serve",
                                     .gpu = "l40s",
                                     .overrides = &setting,
                                     .n_overrides = 1};
    struct system *system = NULL;
    uint32_t id = 0;
    snprintf(setting.value, sizeof setting.value, "%s", name);
    system_open(&request, &system, &err);
    stop_on(&err);
    memset(&timed, 0, sizeof timed);
    timed.inner = system->scheduler;
    timed.scheduler = *timed.inner;
    timed.scheduler.schedule = timed_schedule;
    timed.scheduler.happened = timed_happened;
    system->scheduler = &timed.scheduler;
    struct executor_sim *sim = executor_sim_open(system, 1);
    struct loop_request asked = {.system = system,
                                 .executor = executor_sim_interface(sim),
                                 .source = {&id, next_of_thousand, NULL},
                                 .seed = 1};
    struct loop_result result;
    loop_run(&asked, &result, &err);
    stop_on(&err);
    printf("%-24s %6.0f ns a decision, %4.0f ns to be told of a change (%llu decisions)\n", name,
           (double)timed.decides_ns / (double)timed.n, (double)timed.told_ns / (double)timed.n_told,
           (unsigned long long)timed.n);
    executor_sim_close(sim);
    system_close(system);
}

int main(void) {
    printf("simulator speed, one thread, medians of %d runs, LLaDA-8B on an L40S\n", RUNS);
    measure("burst, dllm-serve, no recording", "dllm-serve", "burst", RECORD_NOTHING);
    measure("burst, dllm-serve, summary", "dllm-serve", "burst", RECORD_SUMMARY);
    measure("burst, dllm-serve, every step to SQLite", "dllm-serve", "burst", RECORD_STEPS);
    measure("burst, dllm-serve-published, summary", "dllm-serve-published", "burst",
            RECORD_SUMMARY);
    measure("burst, fast-dllm-published, summary", "fast-dllm-published", "burst", RECORD_SUMMARY);
    measure("burst, dllm-cache-published, summary", "dllm-cache-published", "burst",
            RECORD_SUMMARY);
    measure_draws();
    printf("a thousand requests in the system\n");
    for (size_t i = 0; i < scheduler_table_size; i++) {
        measure_decisions(scheduler_table[i]);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("peak memory %.0f MB\n", (double)usage.ru_maxrss / 1024);
    return 0;
}
