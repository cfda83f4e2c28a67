/* What is to come: a scheduler's view of requests' passes against those that they are then seen to
 * take, and the schedulers that go by it. */
#include "sim/bound/passes.h"
#include "sim/policy/cache/blocks.h"
#include "sim/policy/plugin/registry.h"
#include "sim/policy/scheduler/course.h"
#include "tests/support/rig.h"

/* ---- the passes ---- */

static const struct {
    const char *name;
    const char *settings[4];
    bool is_exact; /* foreseen as it comes to be */
} systems[] = {
    {"vanilla", {"steps_per_block=12"}, true},
    {"fast-dllm", {0}, true},
    {"fast-dllm-prefix-published", {"logit_scope=masked"}, true},
    {"sparse-dllm", {"cache.delay_steps=3", "block_tokens=24"}, true},
    {"dllm-serve", {0}, true},
    {"dllm-serve", {"steps_per_block=7", "decoder=sequential"}, true},
    {"dllm-cache", {0}, true},
    {"sdar", {"decoder=fixed", "early_stop=off"}, true},
    {"lmdeploy", {"decoder=fixed", "early_stop=off"}, true},
    {"fast-dllm-v2", {"decoder=fixed", "cache=exact", "early_stop=off"}, true},
    {"vllm-ar", {"early_stop=off"}, true},
    {"dllm-serve", {"decoder=threshold"}, false},
    {"dc", {0}, false},
    {"focus", {0}, false},
    {"fast-dllm-v2", {0}, false},
    {"dkv-cache", {0}, false},
};
enum { N_SYSTEMS = sizeof systems / sizeof systems[0], ROOM = 4096 };

/* What a request was to run when it stood in the queue for the first time, step by step. */
static struct {
    struct pass_ahead passes[ROOM];
    struct outlook outlook;
    bool is_seen;
} seen;

/* One request after the other, as passes_list has it. */
static void watch(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    if (view->n_running == 0) {
        struct outlook alone;
        view->foresee(view->estimator, view->waiting[0], seen.passes, ROOM, &seen.outlook);
        view->foresee(view->estimator, view->waiting[0], NULL, 0, &alone);
        ck_assert_mem_eq(&alone, &seen.outlook, sizeof alone);
        seen.is_seen = true;
    }
    batch->n_admitted = view->n_running == 0;
    batch->selected[batch->n++] = view->n_running == 0 ? view->waiting[0] : view->running[0];
}

static void foresee(struct system *system, struct arrival arrival) {
    static const struct scheduler watching = {.policy = {.abi = POLICY_ABI,
                                                         .kind = POLICY_SCHEDULER,
                                                         .size = sizeof(struct scheduler),
                                                         .name = "watching"},
                                              .schedule = watch};
    const struct scheduler *own = system->scheduler;
    struct list_source list = {.arrivals = &arrival, .n = 1};
    seen.is_seen = false;
    system->scheduler = &watching;
    struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), NULL);
    system->scheduler = own;
    ck_assert_uint_eq(result.completed, 1);
    ck_assert(seen.is_seen);
}

TEST_EACH(what_a_scheduler_foresees_is_what_the_bound_lists, 2 * N_SYSTEMS) {
    int i = _i / 2;
    struct system *system = rig_system(systems[i].name, "h200", false, systems[i].settings);
    const struct arrival arrival = {.prompt_tokens = _i % 2 == 0 ? 77 : 192, .output_tokens = 100};
    struct list_source list = {.arrivals = &arrival, .n = 1};
    const struct passes_request asked = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 1};
    struct passes passes;
    struct err err = {0};
    ck_assert_msg(passes_list(&asked, &passes, &err) == 0, "%s", err.text);
    foresee(system, arrival);
    ck_assert_uint_eq(seen.outlook.is_exact, systems[i].is_exact);
    uint64_t steps = 0, tokens = 0;
    uint32_t at = 0, within = 0;
    for (size_t p = 0; p < passes.n; p++) {
        steps += passes.items[p].times;
        tokens += (uint64_t)passes.items[p].times * passes.items[p].span.queries;
        for (uint32_t k = 0; systems[i].is_exact && k < passes.items[p].times; k++) {
            ck_assert_uint_lt(at, seen.outlook.n_passes);
            ck_assert_msg(
                memcmp(&passes.items[p].span, &seen.passes[at].span, sizeof(struct span)) == 0,
                "%s: pass %zu is not as foreseen", systems[i].name, p);
            if (++within == seen.passes[at].steps) {
                at++;
                within = 0;
            }
        }
    }
    if (systems[i].is_exact) {
        ck_assert_uint_eq(steps, seen.outlook.steps);
        ck_assert_uint_eq(tokens, seen.outlook.tokens);
    } else { /* before anything is drawn every pass is taken to commit one position */
        ck_assert_uint_ge(seen.outlook.steps, steps);
        ck_assert_uint_le(seen.outlook.steps, 100 + 100 / 4 + 8);
    }
    passes_fini(&passes);
    system_close(system);
}

TEST(expected_passes_commit_what_passes_have_committed) {
    struct request request = {.prompt_tokens = 32,
                              .output_tokens = 64,
                              .canvas_tokens = 96,
                              .block_tokens = 32,
                              .steps_per_block = 32,
                              .causal = SEES_CANVAS};
    struct err err = {0};
    const struct policy *cache = policy_find(POLICY_CACHE, "dual", &err);
    const struct policy *decoder = policy_find(POLICY_DECODER, "threshold", &err);
    void *state = policy_state(cache);
    struct course course = {.cache = (const struct cache_policy *)cache,
                            .decoder = (const struct decoder *)decoder,
                            .cache_state = state,
                            .tokens_per_pass = 2.5};
    struct outlook outlook;
    struct pass_ahead passes[4];
    window_enter(&request, 0);
    course_foresee(&course, &request, passes, 4, &outlook);
    /* 32 positions at 2.5 a pass: 13 passes, the first of them over the canvas. */
    ck_assert_uint_eq(outlook.steps, 26);
    ck_assert_uint_eq(outlook.n_blocks, 2);
    ck_assert_uint_eq(outlook.to_refresh, 0);
    ck_assert_uint_eq(outlook.tokens, 2 * (96 + 12 * 32));
    ck_assert_uint_eq(outlook.n_passes, 4);
    ck_assert_uint_eq(passes[1].steps, 12);
    ck_assert_uint_eq(passes[3].block, 1);
    ck_assert_uint_eq(request.committed_tokens, 0);
    free(state);
}

/* ---- who goes by it ---- */

struct outcome {
    double mean_s, p99_s, makespan_s;
    int64_t finished_ns[400]; /* by id */
    uint32_t n;
};

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static struct outcome serve_under(const char *gpu, const char *const *settings,
                                  const struct arrival *arrivals, uint32_t n) {
    struct system *system = rig_system("dllm-serve", gpu, false, settings);
    struct keeper keeper = {0};
    struct list_source list = {.arrivals = arrivals, .n = n};
    struct outcome outcome = {.n = n};
    double latency_s[400];
    (void)rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), &keeper);
    ck_assert_uint_eq(keeper.n_requests, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct request_record *request = &keeper.requests[i];
        ck_assert_uint_eq(request->state, REQUEST_DONE);
        outcome.finished_ns[request->id] = request->finished_ns;
        latency_s[i] = (double)(request->finished_ns - request->arrival_ns) * 1e-9;
        outcome.mean_s += latency_s[i] / n;
        double end_s = (double)request->finished_ns * 1e-9;
        outcome.makespan_s = end_s > outcome.makespan_s ? end_s : outcome.makespan_s;
    }
    qsort(latency_s, n, sizeof *latency_s, by_value);
    outcome.p99_s = latency_s[n - 1 - n / 100];
    keeper_fini(&keeper);
    system_close(system);
    return outcome;
}

static void draw(struct arrival *arrivals, uint32_t n, double rate, uint32_t least_output,
                 uint32_t most_output) {
    struct poisson_source source = {.rng = rng_stream(1, "arrivals"),
                                    .lengths = rng_stream(1, "lengths"),
                                    .rate = rate,
                                    .n = n,
                                    .prompt_min = 100,
                                    .prompt_max = 600,
                                    .output_min = least_output,
                                    .output_max = most_output};
    struct err err = {0};
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(poisson_next(&source, &arrivals[i], &err), SOURCE_ROW);
    }
}

TEST(look_ahead_has_a_shorter_tail_at_no_less_throughput) {
    enum { N = 300 };
    static const char *const ours[] = {"scheduler=look-ahead", NULL};
    static const char *const step_by_step[] = {"scheduler=look-ahead", "skip_ahead=off", NULL};
    struct arrival arrivals[N];
    draw(arrivals, N, 0.9, 256, 256);
    struct outcome greedy = serve_under("l40s", NULL, arrivals, N);
    struct outcome ahead = serve_under("l40s", ours, arrivals, N);
    struct outcome slow = serve_under("l40s", step_by_step, arrivals, N);
    ck_assert_msg(ahead.p99_s < 0.85 * greedy.p99_s, "%g of %g s", ahead.p99_s, greedy.p99_s);
    ck_assert_msg(ahead.makespan_s < 1.01 * greedy.makespan_s, "%g of %g s", ahead.makespan_s,
                  greedy.makespan_s);
    ck_assert_mem_eq(ahead.finished_ns, slow.finished_ns, sizeof slow.finished_ns);
}

/* Narrow passes that fall just over the edge of a tile wait for the next step. */
TEST(steps_that_end_at_an_edge_serve_what_is_there_sooner) {
    enum { N = 100 };
    static const char *const ours[] = {"scheduler=look-ahead", NULL};
    static const char *const none[] = {"scheduler=look-ahead", "scheduler.put_off=0", NULL};
    struct arrival arrivals[N];
    draw(arrivals, N, 1000, 256, 256);
    struct outcome any = serve_under("l40s", none, arrivals, N);
    struct outcome at_edges = serve_under("l40s", ours, arrivals, N);
    ck_assert_msg(at_edges.makespan_s < 0.97 * any.makespan_s, "%g of %g s", at_edges.makespan_s,
                  any.makespan_s);
}

TEST(shortest_left_has_a_lower_mean_and_patience_bounds_what_it_costs_the_long) {
    enum { N = 200, LONG = 3 };
    static const char *const patient[] = {"scheduler=shortest-left", "scheduler.patience=100000 s",
                                          NULL};
    static const char *const guarded[] = {"scheduler=shortest-left", "scheduler.patience=60 s",
                                          NULL};
    struct arrival arrivals[N];
    draw(arrivals, N, 2, 32, 256);
    arrivals[LONG].prompt_tokens = 2000;
    arrivals[LONG].output_tokens = 1024;
    struct outcome greedy = serve_under("l40s", NULL, arrivals, N);
    struct outcome shortest = serve_under("l40s", patient, arrivals, N);
    struct outcome bounded = serve_under("l40s", guarded, arrivals, N);
    ck_assert_msg(shortest.mean_s < 0.8 * greedy.mean_s, "%g of %g s", shortest.mean_s,
                  greedy.mean_s);
    ck_assert_int_lt(bounded.finished_ns[LONG], shortest.finished_ns[LONG]);
    /* After a minute nobody overtakes it: its own 1024 steps in company, and what was begun. */
    int64_t left_ns =
        bounded.finished_ns[LONG] - arrivals[LONG].arrival_ns - 60 * INT64_C(1000000000);
    ck_assert_int_lt(left_ns, 150 * INT64_C(1000000000));
    /* With no patience at all requests go in the order of their arrival. */
    static const char *const none[] = {"scheduler=shortest-left", "scheduler.patience=0 s",
                                       "max_requests=1", NULL};
    struct outcome in_order = serve_under("l40s", none, arrivals, 20);
    for (uint32_t i = 1; i < 20; i++) {
        ck_assert_int_gt(in_order.finished_ns[i], in_order.finished_ns[i - 1]);
    }
}

static uint32_t count_on_time(const struct outcome *outcome, const struct arrival *arrivals,
                              uint32_t tenant, double objective_s) {
    uint32_t on_time = 0;
    for (uint32_t i = 0; i < outcome->n; i++) {
        double latency_s = (double)(outcome->finished_ns[i] - arrivals[i].arrival_ns) * 1e-9;
        on_time += arrivals[i].tenant == tenant && latency_s <= objective_s;
    }
    return on_time;
}

TEST(least_slack_serves_each_tenant_by_its_own_objective) {
    enum { N = 200 };
    static const char *const classes[] = {"scheduler=least-slack", "scheduler.latency=200 s",
                                          "scheduler.latency_1=30 s", NULL};
    static const char *const blind[] = {"scheduler=least-slack", "scheduler.latency=200 s", NULL};
    struct arrival arrivals[N];
    draw(arrivals, N, 2, 64, 256);
    uint32_t n_urgent = 0;
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i].tenant = i % 4 == 0;
        n_urgent += arrivals[i].tenant;
    }
    struct outcome greedy = serve_under("l40s", NULL, arrivals, N);
    struct outcome by_class = serve_under("l40s", classes, arrivals, N);
    struct outcome alike = serve_under("l40s", blind, arrivals, N);
    uint32_t on_time = count_on_time(&by_class, arrivals, 1, 30);
    ck_assert_msg(on_time > 0.9 * n_urgent, "%u of %u", on_time, n_urgent);
    ck_assert_uint_lt(count_on_time(&alike, arrivals, 1, 30), on_time);
    ck_assert_uint_lt(count_on_time(&greedy, arrivals, 1, 30), on_time);
    ck_assert_uint_eq(count_on_time(&by_class, arrivals, 0, 200), N - n_urgent);
}

SUITE("ahead")
