/* The serving loop: conservation, budgets, hand-made schedules, queueing truth. */
#include "sim/serve/executor_replay.h"
#include "sim/system/system_step.h"
#include "tests/support/played.h"
#include "tests/support/rig.h"
#include "tests/support/says.h"

static struct poisson_source random_source(struct rng *rng, uint64_t seed, uint64_t n) {
    uint32_t prompt = rig_between(rng, 1, 600), output = rig_between(rng, 1, 300);
    return MAKE(struct poisson_source, .rng = rng_stream(seed, "arrivals"),
                .lengths = rng_stream(seed, "lengths"), .rate = 0.2 + 20 * rng_uniform(rng), .n = n,
                .prompt_min = 1, .prompt_max = 2 * prompt, .output_min = 1,
                .output_max = 2 * output);
}

static void check_conservation(const struct system *system, const struct loop_result *result,
                               const struct keeper *keeper, uint64_t n) {
    const struct settings *settings = &system->settings;
    ck_assert_uint_eq(result->arrived, n);
    ck_assert_uint_eq(result->completed + result->rejected, n);
    ck_assert_uint_eq(keeper->n_requests, n);
    uint64_t request_steps = 0, processed = 0;
    int64_t tokens = 0, end_ns = 0;
    char *seen = calloc(n, 1);
    for (size_t i = 0; i < n; i++) {
        const struct request_record *r = &keeper->requests[i];
        ck_assert(r->id < n && !seen[r->id]);
        seen[r->id] = 1;
        request_steps += r->steps;
        processed += r->tokens_processed;
        if (r->state == REQUEST_DONE) {
            ck_assert(r->arrival_ns <= r->admitted_ns && r->admitted_ns < r->first_block_ns &&
                      r->first_block_ns <= r->finished_ns);
            ck_assert(r->first_block_tokens >= 1 && r->first_block_tokens <= r->committed_tokens);
        } else {
            ck_assert_uint_ne(r->reason, REJECT_NONE);
            ck_assert_uint_eq(r->steps, 0);
        }
    }
    free(seen);
    for (size_t i = 0; i < keeper->n_steps; i++) {
        const struct kept_step *step = &keeper->steps[i];
        ck_assert_int_le(step->sym[SYM_TOKENS], settings->max_batched_tokens);
        ck_assert_int_le(step->record.kv_used_bytes, system->budget.pool_bytes);
        ck_assert(system->budget.max_requests == 0 ||
                  step->record.n <= system->budget.max_requests);
        ck_assert_int_eq(step->sym[SYM_REQUESTS], step->record.n);
        struct step_shape shape = {.n_spans = 0};
        struct placement placement;
        memcpy(shape.sym, step->sym, sizeof shape.sym);
        struct err err = {0};
        int64_t cached_bytes = step->record.kv_used_bytes;
        int64_t workspace_bytes = budget_workspace_bytes(&system->budget, cached_bytes);
        ck_assert_msg(system_place(system, &shape, workspace_bytes, &placement, &err) == 0, "%s",
                      err.text);
        ck_assert_int_le(placement.peak_bytes +
                             (system->budget.shares_pool ? step->record.kv_used_bytes : 0),
                         system->budget.shares_pool ? system->budget.pool_bytes
                                                    : system->budget.activation_bytes);
        ck_assert_int_ge(step->record.start_ns, end_ns); /* one replica: steps never overlap */
        end_ns = step->record.end_ns;
        tokens += step->record.repeat * step->sym[SYM_TOKENS];
        ck_assert(cost_power(system->cost) != NULL ? step->record.joules > 0
                                                   : step->record.joules == 0);
    }
    ck_assert_uint_eq(request_steps, result->request_steps);
    ck_assert_int_eq((int64_t)processed, tokens);
    ck_assert_int_le(result->kv_peak_bytes, system->budget.pool_bytes);
}

TEST(requests_tokens_and_memory_are_conserved_over_random_systems) {
    static const char *const systems[] = {"vanilla",
                                          "fast-dllm",
                                          "fast-dllm-prefix",
                                          "dllm-cache",
                                          "sparse-dllm",
                                          "dllm-serve",
                                          "ablation-engine",
                                          "fast-dllm-published",
                                          "vanilla-published",
                                          "dllm-cache-published",
                                          "dllm-serve-published"};
    struct rng rng = rng_stream(11, "random systems");
    for (uint64_t round = 0; round < 60; round++) {
        char block[64], tokens[64], pages[64], steps[64], retention[64];
        snprintf(block, sizeof block, "block_tokens=%u", 1u << rig_between(&rng, 0, 6));
        snprintf(tokens, sizeof tokens, "max_batched_tokens=%u", rig_between(&rng, 300, 20000));
        snprintf(pages, sizeof pages, "page_tokens=%u", rig_between(&rng, 1, 512));
        snprintf(steps, sizeof steps, "steps_per_block=%u", rig_between(&rng, 1, 64));
        snprintf(retention, sizeof retention, "memory_utilization=%.3f",
                 0.75 + 0.2 * rng_uniform(&rng));
        const char *decoder = rng_uniform(&rng) < 0.3 ? "decoder=threshold" : "decoder=fixed";
        const char *scope = rng_uniform(&rng) < 0.2 ? "logit_scope=masked" : "logit_scope=block";
        const char *misfit = rng_uniform(&rng) < 0.5 ? "skip_ahead=on" : "skip_ahead=off";
        const char *const settings[] = {block,   tokens, pages,  steps, retention,
                                        decoder, scope,  misfit, NULL};
        const char *name = systems[rng_next(&rng) % (sizeof systems / sizeof systems[0])];
        struct system *system = rig_system(name, "l40s", true, settings);
        struct poisson_source source = random_source(&rng, round, 150);
        struct keeper keeper = {0};
        struct loop_result result = rig_run(
            system, (struct arrival_source){.state = &source, .next = poisson_next}, &keeper);
        check_conservation(system, &result, &keeper, 150);
        keeper_fini(&keeper);
        system_close(system);
    }
}

TEST(skipping_ahead_changes_nothing_but_the_number_of_submissions) {
    static const char *const systems[] = {"dllm-serve", "fast-dllm", "ablation-engine",
                                          "dllm-cache"};
    for (size_t s = 0; s < sizeof systems / sizeof systems[0]; s++) {
        struct keeper kept[2] = {{0}};
        struct loop_result results[2];
        for (int skip = 0; skip < 2; skip++) {
            const char *const settings[] = {skip ? "skip_ahead=on" : "skip_ahead=off", NULL};
            struct system *system = rig_system(systems[s], "l40s", true, settings);
            struct rng rng = rng_stream(5, "skip");
            struct poisson_source source = random_source(&rng, 7, 120);
            results[skip] =
                rig_run(system, (struct arrival_source){.state = &source, .next = poisson_next},
                        &kept[skip]);
            system_close(system);
        }
        ck_assert_uint_gt(results[0].submissions, results[1].submissions);
        ck_assert_uint_eq(results[0].steps, results[1].steps);
        ck_assert_int_eq(results[0].end_ns, results[1].end_ns);
        ck_assert_int_eq(memcmp(results[0].sym, results[1].sym, sizeof results[0].sym), 0);
        for (size_t i = 0; i < kept[0].n_requests; i++) {
            ck_assert_int_eq(
                memcmp(&kept[0].requests[i], &kept[1].requests[i], sizeof kept[0].requests[i]), 0);
        }
        keeper_fini(&kept[0]);
        keeper_fini(&kept[1]);
    }
}

/* With replicas, routers that look at load, and arrivals that follow completions. */
struct closed_source {
    uint32_t n_clients, n, next;
    int64_t due_ns[64];
    uint32_t n_due;
};

static enum source_reply closed_next(void *state, struct arrival *out, struct err *err) {
    struct closed_source *source = state;
    (void)err;
    if (source->next == source->n) {
        return SOURCE_END;
    }
    int64_t at_ns = 0;
    if (source->next >= source->n_clients) {
        if (source->n_due == 0) {
            return SOURCE_WAIT;
        }
        at_ns = source->due_ns[0];
        source->n_due--;
        memmove(source->due_ns, source->due_ns + 1, source->n_due * sizeof source->due_ns[0]);
    }
    *out = (struct arrival){
        .arrival_ns = at_ns, .id = source->next++, .prompt_tokens = 200, .output_tokens = 64};
    return SOURCE_ROW;
}

static void closed_completed(void *state, uint64_t id, int64_t now_ns) {
    struct closed_source *source = state;
    (void)id;
    source->due_ns[source->n_due++] = now_ns;
}

static struct loop_result run_closed(const char *name, const char *router, const char *skip,
                                     struct keeper *keeper, struct system **system) {
    const char *const settings[] = {"replicas=4", router, skip, NULL};
    struct closed_source source = {.n_clients = 20, .n = 120};
    *system = rig_system(name, "l40s", true, settings);
    return rig_run(*system,
                   (struct arrival_source){
                       .state = &source, .next = closed_next, .completed = closed_completed},
                   keeper);
}

/* The same with arrivals that follow nothing. */
static struct loop_result run_open(const char *name, const char *router, const char *skip,
                                   struct keeper *keeper, struct system **system) {
    const char *const settings[] = {"replicas=5", router, skip, NULL};
    struct rng rng = rng_stream(5, "open");
    struct poisson_source source = random_source(&rng, 7, 150);
    *system = rig_system(name, "l40s", true, settings);
    return rig_run(*system, (struct arrival_source){.state = &source, .next = poisson_next},
                   keeper);
}

TEST_EACH(skipping_ahead_is_exact_with_replicas_and_closed_loops_too, 16) {
    static const char *const systems[] = {"dllm-serve", "fast-dllm"};
    static const char *const routers[] = {"router=least-loaded", "router=round-robin",
                                          "router=power-of-two", "router=phase-aware"};
    struct loop_result (*const run)(const char *, const char *, const char *, struct keeper *,
                                    struct system **) = _i < 8 ? run_closed : run_open;
    struct keeper on = {0}, off = {0};
    struct system *system;
    struct loop_result a = run(systems[_i % 2], routers[_i / 2 % 4], "skip_ahead=on", &on, &system);
    system_close(system);
    struct loop_result b =
        run(systems[_i % 2], routers[_i / 2 % 4], "skip_ahead=off", &off, &system);
    system_close(system);
    ck_assert_uint_gt(b.submissions, a.submissions + a.submissions / 2);
    ck_assert_uint_eq(b.submissions, b.steps);
    ck_assert_uint_eq(b.completed + b.rejected, b.arrived);
    ck_assert_uint_eq(on.n_requests, b.arrived);
    ck_assert_uint_eq(a.steps, b.steps);
    ck_assert_int_eq(a.end_ns, b.end_ns);
    ck_assert_int_eq(a.busy_ns, b.busy_ns);
    ck_assert_mem_eq(a.sym, b.sym, sizeof a.sym);
    ck_assert_uint_eq(on.n_requests, off.n_requests);
    ck_assert_mem_eq(on.requests, off.requests, on.n_requests * sizeof *on.requests);
    keeper_fini(&on);
    keeper_fini(&off);
}

/* Where several steps are simulated at once, one that arrives at the end of a step is seen there.
 */
TEST(an_arrival_on_the_border_of_two_steps_is_not_skipped) {
    struct arrival arrivals[2] = {{.prompt_tokens = 100, .output_tokens = 64},
                                  {.id = 1, .prompt_tokens = 50, .output_tokens = 32}};
    struct keeper kept[3] = {{0}};
    for (int i = 0; i < 3; i++) { /* the first alone, step by step; then with the second */
        const char *const settings[] = {i < 2 ? "skip_ahead=off" : "skip_ahead=on", NULL};
        struct system *system = rig_system("dllm-serve", "l40s", true, settings);
        struct list_source list = {arrivals, i == 0 ? 1 : 2, 0};
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, &kept[i]);
        system_close(system);
        if (i == 0) {
            arrivals[1].arrival_ns = kept[0].steps[5].record.start_ns;
        }
    }
    ck_assert_uint_eq(kept[1].n_requests, 2);
    for (int id = 0; id < 2; id++) {
        ck_assert_mem_eq(&kept[1].requests[id], &kept[2].requests[id], sizeof kept[1].requests[0]);
    }
    for (int i = 0; i < 3; i++) {
        keeper_fini(&kept[i]);
    }
}

struct expected_step {
    int64_t start_ms;
    uint32_t n;
    uint64_t ids[3];
};

static void check_schedule(const char *const *settings, const struct arrival *arrivals, size_t n,
                           const struct expected_step *expected, size_t n_expected) {
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct fixed_executor fixed = {.mean_ns = 1e6};
    struct list_source list = {arrivals, n, 0};
    struct keeper keeper = {0};
    struct sink sink = keeper_sink(&keeper);
    struct loop_request request = MAKE(
        struct loop_request, .system = system, .executor = fixed_interface(&fixed),
        .source = {&list, list_next, NULL}, .sinks = &sink, .n_sinks = 1, .records_members = true);
    struct loop_result result;
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &result, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(keeper.n_steps, n_expected);
    for (size_t i = 0; i < n_expected; i++) {
        const struct kept_step *step = &keeper.steps[i];
        ck_assert_int_eq(step->record.start_ns, expected[i].start_ms * 1000000);
        ck_assert_uint_eq(step->record.n, expected[i].n);
        for (uint32_t j = 0; j < expected[i].n; j++) {
            ck_assert_uint_eq(step->ids[j], expected[i].ids[j]);
        }
    }
    keeper_fini(&keeper);
    system_close(system);
}

/* Blocks of 4 in 2 steps, one block each: dual cache, so a request is one refresh of 12 tokens and
 * one reuse of 4. */
#define THREE_REQUESTS                                                                             \
    {                                                                                              \
        {.arrival_ns = 0, .id = 0, .prompt_tokens = 8, .output_tokens = 4},                        \
            {.arrival_ns = 500000, .id = 1, .prompt_tokens = 8, .output_tokens = 4}, {             \
            .arrival_ns = 600000, .id = 2, .prompt_tokens = 8, .output_tokens = 4                  \
        }                                                                                          \
    }

TEST(static_runs_a_batch_to_completion_before_the_next) {
    static const struct arrival arrivals[] = THREE_REQUESTS;
    static const char *const settings[] = {"scheduler=static",  "cache=dual",     "block_tokens=4",
                                           "steps_per_block=2", "max_requests=2", NULL};
    static const struct expected_step expected[] = {
        {0, 1, {0}}, {1, 1, {0}}, {2, 2, {1, 2}}, {3, 2, {1, 2}}};
    check_schedule(settings, arrivals, 3, expected, 4);
}

TEST(continuous_joins_at_step_borders_and_charges_the_canvas_for_life) {
    static const struct arrival arrivals[] = THREE_REQUESTS;
    static const char *const settings[] = {"scheduler=continuous",  "cache=dual",
                                           "block_tokens=4",        "steps_per_block=2",
                                           "max_batched_tokens=24", NULL};
    /* Two canvases of 12 fill 24 tokens; the third waits until the first is done. */
    static const struct expected_step expected[] = {
        {0, 1, {0}}, {1, 2, {0, 1}}, {2, 2, {1, 2}}, {3, 1, {2}}};
    check_schedule(settings, arrivals, 3, expected, 4);
}

TEST(phase_multiplexed_fills_the_headroom_of_reuse) {
    static const struct arrival arrivals[] = THREE_REQUESTS;
    static const char *const settings[] = {
        "scheduler=phase-multiplexed", "cache=dual", "block_tokens=4", "steps_per_block=2",
        "max_batched_tokens=28",       NULL};
    /* At 1 ms request 0 takes 4 tokens, so both refreshes of 12 fit into 28. */
    static const struct expected_step expected[] = {{0, 1, {0}}, {1, 3, {0, 1, 2}}, {2, 2, {1, 2}}};
    check_schedule(settings, arrivals, 3, expected, 3);
}

TEST(phase_multiplexed_stops_at_the_first_misfit_unless_told_to_skip) {
    static const struct arrival arrivals[] = {
        {.arrival_ns = 0, .id = 0, .prompt_tokens = 8, .output_tokens = 4},
        {.arrival_ns = 500000, .id = 1, .prompt_tokens = 20, .output_tokens = 4},
        {.arrival_ns = 600000, .id = 2, .prompt_tokens = 8, .output_tokens = 4}};
    const char *settings[] = {"scheduler=phase-multiplexed",
                              "cache=dual",
                              "block_tokens=4",
                              "steps_per_block=2",
                              "max_batched_tokens=24",
                              "scheduler.stop_at_misfit=on",
                              NULL};
    /* 4 + 24 exceed 24 tokens: request 1 waits, and with it request 2 although 4 + 12 would fit. */
    static const struct expected_step stopping[] = {
        {0, 1, {0}}, {1, 1, {0}}, {2, 1, {1}}, {3, 2, {1, 2}}, {4, 1, {2}}};
    check_schedule(settings, arrivals, 3, stopping, 5);
    settings[5] = "scheduler.stop_at_misfit=off";
    static const struct expected_step skipping[] = {
        {0, 1, {0}}, {1, 2, {0, 2}}, {2, 1, {2}}, {3, 1, {1}}, {4, 1, {1}}};
    check_schedule(settings, arrivals, 3, skipping, 5);
}

/* One server, one step a request: mean wait in the queue in units of the mean service time. */
static double mean_wait(double load, bool exponential, uint64_t n, double *little) {
    static const char *const settings[] = {"scheduler=static", "cache=none", "block_tokens=1",
                                           "max_requests=1", NULL};
    struct system *system = rig_system("vanilla", "l40s", true, settings);
    struct fixed_executor fixed = {
        .mean_ns = 1e6, .exponential = exponential, .rng = rng_stream(4, "service")};
    struct poisson_source source =
        MAKE(struct poisson_source, .rng = rng_stream(9, "arrivals"),
             .lengths = rng_stream(9, "lengths"), .rate = load * 1000, .n = n, .prompt_min = 1,
             .prompt_max = 1, .output_min = 1, .output_max = 1);
    struct keeper keeper = {0};
    struct sink sink = {.state = &keeper, .request = keep_request};
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = fixed_interface(&fixed),
             .source = {&source, poisson_next, NULL}, .sinks = &sink, .n_sinks = 1);
    struct loop_result result;
    struct err err = {0};
    ck_assert_int_eq(loop_run(&request, &result, &err), 0);
    double wait = 0, time_in_system = 0;
    for (size_t i = 0; i < keeper.n_requests; i++) {
        const struct request_record *r = &keeper.requests[i];
        wait += (double)(r->admitted_ns - r->arrival_ns);
        time_in_system += (double)(r->finished_ns - r->arrival_ns);
    }
    /* Little: requests in the system over time = arrival rate x mean time in it; the left side is
     * the area under the number in the system, the right side the times of the requests. */
    double area = 0;
    int64_t in_system = 0, last_ns = 0;
    size_t a = 0, d = 0;
    while (d < keeper.n_requests) {
        int64_t arrival = a < keeper.n_requests ? keeper.requests[a].arrival_ns : INT64_MAX;
        int64_t departure = keeper.requests[d].finished_ns;
        int64_t now = arrival <= departure ? arrival : departure;
        area += (double)in_system * (double)(now - last_ns);
        in_system += arrival <= departure ? 1 : -1;
        a += arrival <= departure;
        d += arrival > departure;
        last_ns = now;
    }
    *little = area / time_in_system;
    keeper_fini(&keeper);
    system_close(system);
    return wait / (double)n / 1e6;
}

TEST(a_deterministic_server_waits_as_m_d_1_says) {
    static const double loads[] = {0.3, 0.6, 0.8};
    for (int i = 0; i < 3; i++) {
        double little, load = loads[i];
        double measured = mean_wait(load, false, 400000, &little);
        double expected = load / (2 * (1 - load)); /* Pollaczek-Khinchine */
        ck_assert_double_eq_tol(measured / expected, 1, 0.02);
        ck_assert_double_eq_tol(little, 1, 1e-9);
    }
}

TEST(an_exponential_server_waits_as_m_m_1_says) {
    static const double loads[] = {0.3, 0.6, 0.8};
    for (int i = 0; i < 3; i++) {
        double little, load = loads[i];
        double measured = mean_wait(load, true, 400000, &little);
        double expected = load / (1 - load);
        ck_assert_double_eq_tol(measured / expected, 1, 0.03);
        ck_assert_double_eq_tol(little, 1, 1e-9);
    }
}

static struct replay_step *steps_of(const struct keeper *keeper) {
    struct replay_step *steps = calloc(keeper->n_steps, sizeof *steps);
    for (size_t i = 0; i < keeper->n_steps; i++) {
        const struct kept_step *kept = &keeper->steps[i];
        steps[i] =
            MAKE(struct replay_step, .replica = kept->record.replica, .steps = kept->record.repeat,
                 .n_requests = kept->record.n, .start_ns = kept->record.start_ns,
                 .end_ns = kept->record.end_ns, .gpu_ns = kept->record.gpu_ns,
                 .host_ns = kept->record.host_ns, .request_ids = kept->ids);
    }
    return steps;
}

static const struct scheduler *postponed;
static const int64_t asked_again_ns = 7000000;

static void schedule_late(void *state, const struct schedule_view *view, struct batch *batch) {
    if (view->now_ns >= asked_again_ns) {
        postponed->schedule(state, view, batch);
    } else {
        batch->wake_ns = asked_again_ns;
    }
}

TEST(a_scheduler_is_asked_again_when_it_wants_to_be) {
    static const struct arrival alone = {.prompt_tokens = 64, .output_tokens = 64};
    struct system *system = rig_system("fast-dllm", "h200", true, NULL);
    struct list_source list = {&alone, 1, 0};
    struct keeper keeper = {0};
    struct scheduler late;
    postponed = system->scheduler;
    memcpy(&late, postponed, sizeof late);
    late.schedule = schedule_late;
    system->scheduler = &late;
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, &keeper);
    ck_assert_uint_eq(result.completed, 1);
    ck_assert_int_eq(keeper.requests[0].admitted_ns, asked_again_ns);
    system->scheduler = postponed;
    keeper_fini(&keeper);
    system_close(system);
}

TEST(an_estimate_is_the_price_of_the_step) {
    struct system *system = rig_system("fast-dllm", "l40s", true, NULL);
    struct executor_sim *sim = executor_sim_open(system, 1);
    const struct executor executor = executor_sim_interface(sim);
    int64_t estimates[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t queries = i == 0 ? 32 : 4096;
        const struct span span = {
            .phase = PHASE_REFRESH, .queries = queries, .first_queries = queries, .logit_rows = 32};
        struct step_shape shape;
        struct step_price price;
        shape_clear(&shape);
        shape_add(shape.sym, &span, 1);
        system_price(system, &shape, system->budget.activation_bytes, &price);
        double joules = -1;
        estimates[i] = executor.estimate_ns(executor.state, 0, &shape,
                                            system->budget.activation_bytes, &joules);
        ck_assert_double_eq(joules, 0);
        ck_assert_double_eq_tol((double)estimates[i], price.wall_ns, 1);
    }
    ck_assert_int_gt(estimates[1], 2 * estimates[0]);
    executor_sim_close(sim);
    system_close(system);
}

TEST(a_replay_repeats_the_run_and_notices_another_schedule) {
    static const char *const settings[] = {"max_requests=60", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct rng rng = rng_stream(5, "replay");
    struct poisson_source first = random_source(&rng, 3, 100), second = first;
    struct keeper recorded = {0}, repeated = {0};
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &first, .next = poisson_next}, &recorded);
    struct replay_step *steps = steps_of(&recorded);
    struct played played = {steps, recorded.n_steps, 0};
    struct replay_record record = played_record(&played);
    struct executor_replay *replay = executor_replay_open(&record, 1);
    struct sink sink = keeper_sink(&repeated);
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_replay_interface(replay),
             .source = {&second, poisson_next, NULL}, .sinks = &sink, .n_sinks = 1,
             .records_members = true, .seed = 1);
    const struct executor *executor = &request.executor;
    const struct replay_step *last = &steps[recorded.n_steps - 1];
    struct loop_result again;
    struct err err = {0};
    double joules;
    ck_assert_int_eq(executor->estimate_ns(executor->state, 0, NULL, 0, &joules), 1);
    ck_assert_msg(loop_run(&request, &again, &err) == 0, "%s", err.text);
    ck_assert_int_eq(memcmp(&result, &again, sizeof result), 0);
    ck_assert_uint_eq(recorded.n_steps, repeated.n_steps);
    ck_assert_int_eq(executor->estimate_ns(executor->state, 0, NULL, 0, &joules),
                     (last->end_ns - last->start_ns) / last->steps);
    executor_replay_close(replay);

    steps[recorded.n_steps / 2].n_requests++;
    played.next = 0;
    replay = executor_replay_open(&record, 1);
    request.executor = executor_replay_interface(replay);
    struct poisson_source third = {0};
    rng = rng_stream(5, "replay");
    third = random_source(&rng, 3, 100);
    request.source.state = &third;
    ck_assert_int_eq(loop_run(&request, &again, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "the replay diverges at submission"));
    executor_replay_close(replay);
    free(steps);
    keeper_fini(&recorded);
    keeper_fini(&repeated);
    system_close(system);
}

/* Equal requests on equal replicas finish at the same nanosecond, again and again. */
TEST(a_replay_stands_ties_between_replicas) {
    struct keeper recorded = {0}, repeated = {0};
    struct system *system;
    struct loop_result result =
        run_closed("fast-dllm", "router=round-robin", "skip_ahead=on", &recorded, &system);
    struct replay_step *steps = steps_of(&recorded);
    struct played played = {steps, recorded.n_steps, 0};
    struct replay_record record = played_record(&played);
    struct executor_replay *replay = executor_replay_open(&record, 4);
    struct closed_source source = {.n_clients = 20, .n = 120};
    struct sink sink = keeper_sink(&repeated);
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_replay_interface(replay),
             .source = {&source, closed_next, closed_completed}, .sinks = &sink, .n_sinks = 1,
             .records_members = true, .seed = 1);
    struct loop_result again;
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &again, &err) == 0, "%s", err.text);
    ck_assert_int_eq(memcmp(&result, &again, sizeof result), 0);
    executor_replay_close(replay);
    free(steps);
    keeper_fini(&recorded);
    keeper_fini(&repeated);
    system_close(system);
}

TEST(replicas_share_the_load_and_conserve_requests) {
    static const char *const settings[] = {"replicas=4", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct rng rng = rng_stream(6, "replicas");
    struct poisson_source source = random_source(&rng, 4, 400);
    source.rate = 50;
    struct keeper keeper = {0};
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &source, .next = poisson_next}, &keeper);
    ck_assert_uint_eq(result.completed, 400);
    uint32_t by_replica[4] = {0};
    for (size_t i = 0; i < keeper.n_requests; i++) {
        by_replica[keeper.requests[i].replica]++;
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_gt(by_replica[i], 60);
    }
    keeper_fini(&keeper);
    system_close(system);
}

TEST(what_can_never_run_is_rejected_with_its_reason) {
    static const struct arrival arrivals[] = {
        {.id = 0, .prompt_tokens = 4000, .output_tokens = 200},
        {.id = 1, .prompt_tokens = 2000, .output_tokens = 100},
        {.id = 2, .prompt_tokens = 100, .output_tokens = 32}};
    static const char *const settings[] = {"max_batched_tokens=1000", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct list_source list = {arrivals, 3, 0};
    struct keeper keeper = {0};
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, &keeper);
    ck_assert_uint_eq(result.completed, 1);
    ck_assert_uint_eq(keeper.requests[0].reason, REJECT_CONTEXT);
    ck_assert_uint_eq(keeper.requests[1].reason, REJECT_TOKENS);
    keeper_fini(&keeper);
    system_close(system);
    /* Float64 logits of 3,900 positions do not fit beside the weights on 24 GB. */
    struct system *small = rig_system("fast-dllm-published", "rtx4090", true, NULL);
    static const struct arrival wide[] = {{.id = 0, .prompt_tokens = 3644, .output_tokens = 256},
                                          {.id = 1, .prompt_tokens = 100, .output_tokens = 32}};
    list = (struct list_source){wide, 2, 0};
    keeper = (struct keeper){0};
    result = rig_run(small, (struct arrival_source){.state = &list, .next = list_next}, &keeper);
    ck_assert_uint_eq(result.completed, 1);
    ck_assert_uint_eq(keeper.requests[0].reason, REJECT_ACTIVATION);
    keeper_fini(&keeper);
    system_close(small);
}

/* A model is never quite sure, and never less sure than of nothing at all. */
TEST(rows_are_renewed_by_the_entropy_of_what_was_decided) {
    static const struct arrival arrivals[] = {{.id = 0, .prompt_tokens = 64, .output_tokens = 128},
                                              {.id = 1, .prompt_tokens = 32, .output_tokens = 96}};
    static const char *const settings[][4] = {
        {"cache=entropy", "decoder=threshold", "cache.bound_nats=0", NULL},
        {"cache=entropy", "decoder=threshold", "cache.bound_nats=1", NULL},
        {"cache=entropy", "decoder=threshold", "cache.bound_nats=100", NULL}};
    for (int i = 0; i < 3; i++) {
        struct system *system = rig_system("fast-dllm", "l40s", true, settings[i]);
        struct list_source list = {arrivals, 2, 0};
        struct keeper keeper = {0};
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, &keeper);
        for (size_t r = 0; r < keeper.n_requests; r++) {
            const struct request_record *request = &keeper.requests[r];
            ck_assert_uint_gt(request->steps, 8);
            ck_assert_int_eq(request->refresh_steps == request->steps, i == 0);
            ck_assert_int_eq(request->refresh_steps == 1, i == 2);
        }
        keeper_fini(&keeper);
        system_close(system);
    }
}

enum misdeed { LISTS_TWICE, LISTS_FINISHED, OVERFILLS, STARVES };
static enum misdeed misdeed;

static void misbehave(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    if (misdeed == STARVES) {
        return;
    }
    if (view->n_waiting > 0) {
        uint32_t n = misdeed == OVERFILLS ? view->n_waiting : 1;
        for (uint32_t i = 0; i < n; i++) {
            batch->selected[batch->n++] = view->waiting[i];
        }
        if (misdeed == LISTS_TWICE) {
            batch->selected[batch->n++] = view->waiting[0];
        }
        if (misdeed == LISTS_FINISHED) {
            batch->selected[batch->n++] = 100;
        }
        batch->n_admitted = batch->n;
    }
}

TEST(a_scheduler_that_breaks_its_promise_is_named_in_one_sentence) {
    static const struct scheduler bad = {.policy = {.name = "bad"}, .schedule = misbehave};
    static const char *const sentences[] = {
        "scheduler bad broke its promise at 0.000 s: it listed request 0 twice",
        "scheduler bad broke its promise at 0.000 s: it listed slot 100, which is free, as a "
        "waiting request",
        "scheduler bad broke its promise at 0.000 s: query tokens of a step (18 of at most 8)",
        "scheduler bad starves at 0.000 s: 3 requests wait and 0 hold memory, nothing was selected "
        "and no later time was named"};
    static const struct arrival arrivals[] = {{.id = 0, .prompt_tokens = 4, .output_tokens = 2},
                                              {.id = 1, .prompt_tokens = 4, .output_tokens = 2},
                                              {.id = 2, .prompt_tokens = 4, .output_tokens = 2}};
    static const char *const settings[] = {"max_batched_tokens=8", NULL};
    for (misdeed = LISTS_TWICE; misdeed <= STARVES; misdeed++) {
        struct system *system = rig_system("dllm-serve", "l40s", true, settings);
        system->scheduler = &bad;
        struct list_source list = {arrivals, 3, 0};
        struct fixed_executor fixed = {.mean_ns = 1e6};
        struct loop_request request = {.system = system,
                                       .executor = fixed_interface(&fixed),
                                       .source = {&list, list_next, NULL}};
        struct loop_result result;
        struct err err = {0};
        ck_assert_int_eq(loop_run(&request, &result, &err), ERR_WORLD);
        ASSERT_SAYS(err.text, sentences[misdeed]);
        system_close(system);
    }
}

/* Begins no step sooner than this after the one before, and asks every millisecond until then. */
static const int64_t pace_ns = INT64_C(110) * 1000000000;
static int64_t paced_next_ns;
static uint32_t paced_waits;

static void pace(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    if (view->now_ns < paced_next_ns) {
        batch->wake_ns = view->now_ns + 1000000;
        paced_waits++;
        return;
    }
    batch->n_admitted = view->n_running == 0;
    batch->selected[batch->n++] = view->n_running == 0 ? view->waiting[0] : view->running[0];
    paced_next_ns = view->now_ns + pace_ns;
}

/* However often it asks to be woken: over 100,000 times before a step, which takes no moment and no
 * hour. */
TEST(a_scheduler_that_waits_for_a_time_does_not_starve) {
    static const struct scheduler paced = {.policy = {.name = "paced"}, .schedule = pace};
    static const struct arrival arrivals[] = {{.id = 0, .prompt_tokens = 16, .output_tokens = 32}};
    static const char *const settings[] = {"block_tokens=32", "steps_per_block=2", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    system->scheduler = &paced;
    struct list_source list = {arrivals, 1, 0};
    struct fixed_executor fixed = {.mean_ns = 1e6};
    struct loop_request request = {
        .system = system, .executor = fixed_interface(&fixed), .source = {&list, list_next, NULL}};
    struct loop_result result;
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &result, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(result.completed, 1);
    ck_assert_uint_gt(paced_waits, 100000);
    system_close(system);
}

/* ---- pauses ---- */

enum { N_PAUSED = 40 };

/* The longest time between two steps of each request, others between them, found in the steps that
 * were told. */
static void pauses_of(const struct keeper *keeper, int64_t longest_ns[N_PAUSED]) {
    int64_t last_ns[N_PAUSED] = {0}, ends_ns[2] = {0};
    memset(longest_ns, 0, N_PAUSED * sizeof *longest_ns);
    for (size_t i = 0; i < keeper->n_steps; i++) {
        const struct kept_step *step = &keeper->steps[i];
        for (uint32_t j = 0; j < step->record.n; j++) {
            const uint64_t id = step->ids[j];
            const bool was_there = last_ns[id] == 0 || last_ns[id] == ends_ns[step->record.replica];
            const int64_t pause_ns = was_there ? 0 : step->record.start_ns - last_ns[id];
            longest_ns[id] = pause_ns > longest_ns[id] ? pause_ns : longest_ns[id];
            last_ns[id] = step->record.end_ns;
        }
        ends_ns[step->record.replica] = step->record.end_ns;
    }
}

/* Passed over, swapped out, computed anew, decided for several replicas, and never. */
TEST(the_longest_pause_of_a_request_is_that_of_its_steps) {
    static const struct {
        const char *system, *settings[5];
        bool pauses;
    } cases[] = {
        {"dllm-serve", {"scheduler=continuous", "max_requests=4"}, false},
        {"dllm-serve", {"scheduler=shortest-left", "max_requests=6"}, true},
        {"dllm-serve", {"scheduler=fast-serve", "scheduler.at_once=3", "replicas=2"}, true},
        {"sdar", {"scheduler=andes", "pool_pages=30", "scheduler.at_once=4"}, true},
        {"sdar",
         {"scheduler=andes", "pool_pages=30", "scheduler.preempts=swap", "swap.host_bytes=1GiB"},
         true},
        {"sdar", {"scheduler=chunked", "pool_pages=24", "unroll.maximum=4"}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct system *system = rig_system(cases[i].system, "l40s", true, cases[i].settings);
        struct rng rng = rng_stream(i, "pauses");
        struct poisson_source source = random_source(&rng, i, N_PAUSED);
        struct keeper keeper = {0};
        int64_t longest_ns[N_PAUSED], most_ns = 0;
        source.rate = 3;
        (void)rig_run(system, MAKE(struct arrival_source, .state = &source, .next = poisson_next),
                      &keeper);
        pauses_of(&keeper, longest_ns);
        for (size_t j = 0; j < keeper.n_requests; j++) {
            const struct request_record *record = &keeper.requests[j];
            ck_assert_int_eq(record->pause_ns, longest_ns[record->id]);
            most_ns = record->pause_ns > most_ns ? record->pause_ns : most_ns;
        }
        ck_assert_msg((most_ns > 0) == cases[i].pauses, "case %zu: %lld ns", i, (long long)most_ns);
        keeper_fini(&keeper);
        system_close(system);
    }
}

/* The first request takes one step, the other one all of its. */
static void pass_over(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    const uint32_t *slots = view->n_waiting > 0 ? view->waiting : view->running;
    const uint32_t n = view->n_waiting > 0 ? view->n_waiting : view->n_running;
    for (uint32_t i = 0; i < n; i++) {
        if (view->requests[slots[i]].id > 0 || view->requests[slots[i]].steps == 0) {
            batch->selected[batch->n++] = slots[i];
        }
    }
    batch->n_admitted = view->n_waiting > 0 ? batch->n : 0;
}

TEST(a_request_that_never_runs_again_is_paused_until_the_run_ends) {
    static const struct scheduler one_sided = {.policy = {.name = "one-sided"},
                                               .schedule = pass_over};
    static const struct arrival arrivals[] = {{.id = 0, .prompt_tokens = 4, .output_tokens = 16},
                                              {.id = 1, .prompt_tokens = 4, .output_tokens = 8}};
    struct system *system = rig_system("dllm-serve", "l40s", true, NULL);
    struct list_source list = {arrivals, 2, 0};
    struct fixed_executor fixed = {.mean_ns = 1e6};
    struct keeper keeper = {0};
    const struct sink sink = keeper_sink(&keeper);
    struct loop_result result;
    struct err err = {0};
    system->scheduler = &one_sided;
    const struct loop_request request = {.system = system,
                                         .executor = fixed_interface(&fixed),
                                         .source = {&list, list_next, NULL},
                                         .sinks = &sink,
                                         .n_sinks = 1};
    ck_assert_int_eq(loop_run(&request, &result, &err), ERR_WORLD);
    ck_assert_uint_eq(keeper.n_requests, 2);
    ck_assert_uint_eq(keeper.requests[1].reason, REJECT_SHUTDOWN);
    ck_assert_int_eq(keeper.requests[0].pause_ns, 0);
    ck_assert_int_eq(keeper.requests[1].pause_ns, result.end_ns - 1000000);
    keeper_fini(&keeper);
    system_close(system);
}

/* One position a step: its token runs once more, decoded, in the step after; all of them in every
 * eighth step of a block. */
TEST(a_delayed_cache_of_a_whole_canvas_runs_decoded_tokens_once_more) {
    static const struct arrival alone = {.prompt_tokens = 64, .output_tokens = 64};
    const char *const settings[] = {"cache=dkv-decode", "block_tokens=32", NULL};
    struct system *system = rig_system("fast-dllm", "h200", true, settings);
    struct list_source list = {&alone, 1, 0};
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, NULL);
    int64_t tokens = 0;
    for (int64_t behind = 32; behind >= 0; behind -= 32) {
        for (int64_t step = 0; step < 32; step++) {
            tokens += step % 8 == 0 ? 128 : 32 - step + 1 + behind;
        }
    }
    ck_assert_uint_eq(result.completed, 1);
    ck_assert_uint_eq(result.steps, 64);
    ck_assert_int_eq(result.sym[SYM_TOKENS], tokens);
    system_close(system);
}

SUITE("loop")
