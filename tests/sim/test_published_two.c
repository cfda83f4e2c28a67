/* Schedulers and routers that papers describe and that go by load, each with its paper's result. */
#include "sim/policy/plugin/registry.h"
#include "sim/policy/router/router.h"
#include "tests/support/rig.h"

/* A run of these arrivals; the keeper has its requests and steps. */
static struct loop_result serve(const char *name, const char *gpu, const char *const *settings,
                                const struct arrival *arrivals, size_t n, struct keeper *keeper) {
    struct system *system = rig_system(name, gpu, false, settings);
    struct list_source list = {arrivals, n, 0};
    *keeper = (struct keeper){0};
    const struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), keeper);
    ck_assert_uint_eq(result.completed, n);
    system_close(system);
    return result;
}

static double mean_latency_s(const char *name, const char *const *settings,
                             const struct arrival *arrivals, size_t n) {
    struct keeper keeper;
    double sum_ns = 0;
    (void)serve(name, "l40s", settings, arrivals, n, &keeper);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        sum_ns += (double)(keeper.requests[i].finished_ns - keeper.requests[i].arrival_ns);
    }
    keeper_fini(&keeper);
    return sum_ns / (double)n * 1e-9;
}

static double step_ns(const struct step_record *step) {
    return (double)(step->end_ns - step->start_ns) / step->repeat;
}

/* ---- Sarathi-Serve ---- */

/* The longest step in which some request decodes, in ms, while prompts of this length come. */
static double longest_ms(const char *scheduler, uint32_t prompt_tokens) {
    enum { N = 12, DECODING = 8 };
    const char *const settings[] = {scheduler, "max_batched_tokens=16384", NULL};
    struct arrival arrivals[N];
    struct keeper keeper;
    double longest_ns = 0;
    for (uint32_t i = 0; i < N; i++) {
        const bool is_long = i >= DECODING;
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = is_long ? 200000000 + i : 0,
                           .prompt_tokens = is_long ? prompt_tokens : 32,
                           .output_tokens = is_long ? 32 : 512);
    }
    (void)serve("sdar", "h200", settings, arrivals, N, &keeper);
    for (size_t i = 0; i < keeper.n_steps; i++) {
        const struct step_record *step = &keeper.steps[i].record;
        if (step->n_by_phase[PHASE_REUSE] > 0) {
            longest_ns = fmax(longest_ns, step_ns(step));
        }
    }
    keeper_fini(&keeper);
    return longest_ns * 1e-6;
}

/* Stall-free: the time between tokens does not grow with the prompts of others (its figures 1 and
 * 5), where mixing without a budget lets it. */
TEST(a_budget_keeps_steps_flat_under_sarathi_however_long_prompts_are) {
    const double brief = longest_ms("scheduler=sarathi", 512),
                 extended = longest_ms("scheduler=sarathi", 7680);
    const double mixed_brief = longest_ms("scheduler=chunked", 512),
                 mixed_extended = longest_ms("scheduler=chunked", 7680);
    ck_assert_msg(extended < 1.6 * brief && mixed_extended > 3 * mixed_brief &&
                      mixed_extended > 5 * extended,
                  "%.2f and %.2f ms, without a budget %.2f and %.2f ms", brief, extended,
                  mixed_brief, mixed_extended);
}

/* Decoding goes first, and what prefills fill up is the budget less that. */
TEST(no_step_of_sarathi_has_more_tokens_than_its_budget) {
    enum { N = 40, BUDGET = 256 };
    static const char *const settings[] = {"scheduler=sarathi", "scheduler.budget=256", NULL};
    struct arrival arrivals[N];
    struct keeper keeper;
    int64_t most = 0;
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = i * INT64_C(20000000),
                           .prompt_tokens = 100 + 37 * i, .output_tokens = 64);
    }
    (void)serve("sdar", "h200", settings, arrivals, N, &keeper);
    for (size_t i = 0; i < keeper.n_steps; i++) {
        most = keeper.steps[i].sym[SYM_TOKENS] > most ? keeper.steps[i].sym[SYM_TOKENS] : most;
    }
    keeper_fini(&keeper);
    ck_assert_int_eq(most, BUDGET);
}

/* ---- refreshes that are spread ---- */

struct swing {
    uint32_t most, first; /* full passes in a step but the first, and requests in that */
    double longest_ns;    /* of the steps but the first */
};

static struct swing swing_of(const char *scheduler) {
    enum { N = 12, PROMPT = 400, OUTPUT = 64 };
    const char *settings[] = {scheduler,
                              "cache=dual",
                              "cache.interval_steps=8",
                              "block_tokens=64",
                              "max_batched_tokens=16384",
                              NULL,
                              NULL};
    struct arrival arrivals[N];
    struct keeper keeper;
    struct swing swing = {0};
    settings[5] = strstr(scheduler, "spread") != NULL ? "scheduler.tokens=1000" : NULL;
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i] =
            MAKE(struct arrival, .id = i, .prompt_tokens = PROMPT, .output_tokens = OUTPUT);
    }
    (void)serve("fast-dllm", "l40s", settings, arrivals, N, &keeper);
    swing.first = keeper.steps[0].record.n;
    for (size_t i = 1; i < keeper.n_steps; i++) {
        const struct step_record *step = &keeper.steps[i].record;
        const uint32_t n = step->n_by_phase[PHASE_REFRESH];
        swing.most = n > swing.most ? n : swing.most;
        swing.longest_ns = fmax(swing.longest_ns, step_ns(step));
    }
    keeper_fini(&keeper);
    return swing;
}

TEST(refreshes_of_requests_that_began_together_are_spread) {
    const struct swing apart = swing_of("scheduler=refresh-spread"),
                       together = swing_of("scheduler=phase-multiplexed");
    ck_assert_uint_eq(apart.first, together.first); /* as many begin */
    ck_assert_uint_eq(together.most, 12);
    ck_assert_uint_eq(apart.most, 2); /* of 464 tokens each: the cache lets them wait long enough */
    ck_assert_double_lt(apart.longest_ns, 0.4 * together.longest_ns);
}

/* ---- words by load ---- */

enum { LOADED = 48 };

static void burst(struct arrival *arrivals, int64_t every_ns) {
    for (uint32_t i = 0; i < LOADED; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = i * every_ns,
                           .prompt_tokens = 128, .output_tokens = 256);
    }
}

/* Where a pass commits as many positions whatever the window's width, its other rows cost time once
 * steps are bound by what they compute: narrow windows are the faster ones then, and alone requests
 * keep wide ones, which renew the canvas less often. */
TEST(windows_are_narrow_under_load_alone) {
    static const char *const wide[] = {"scheduler=continuous", "block_tokens=128",
                                       "steps_per_block=128", NULL},
                             *const by_load[] = {"scheduler=width-by-load", "scheduler.width=32",
                                                 "block_tokens=128", "steps_per_block=128", NULL};
    struct arrival arrivals[LOADED];
    burst(arrivals, INT64_C(100000000000));
    ck_assert_double_eq(mean_latency_s("fast-dllm", wide, arrivals, LOADED),
                        mean_latency_s("fast-dllm", by_load, arrivals, LOADED));
    burst(arrivals, 1000000000);
    const double fixed_s = mean_latency_s("fast-dllm", wide, arrivals, LOADED),
                 by_load_s = mean_latency_s("fast-dllm", by_load, arrivals, LOADED);
    ck_assert_msg(by_load_s < 0.7 * fixed_s, "%.2f s, always wide %.2f s", by_load_s, fixed_s);
}

/* DiLaServe: a lower threshold is what keeps requests on time beyond the load that the configured
 * one can serve; below it nothing changes. */
TEST(the_valve_opens_under_load_alone_and_lets_more_requests_through) {
    static const char *const fixed[] = {"scheduler=continuous", "decoder=threshold", NULL},
                             *const valve[] = {"scheduler=threshold-valve", "decoder=threshold",
                                               "scheduler.threshold=0.6", NULL},
                             *const shut[] = {"scheduler=threshold-valve", "decoder=threshold",
                                              "scheduler.threshold=0.95", NULL};
    struct arrival arrivals[LOADED];
    burst(arrivals, INT64_C(100000000000));
    ck_assert_double_eq(mean_latency_s("fast-dllm", fixed, arrivals, LOADED),
                        mean_latency_s("fast-dllm", valve, arrivals, LOADED));
    burst(arrivals, 10000000);
    const double fixed_s = mean_latency_s("fast-dllm", fixed, arrivals, LOADED),
                 valve_s = mean_latency_s("fast-dllm", valve, arrivals, LOADED);
    ck_assert_msg(valve_s < 0.8 * fixed_s, "%.2f s, without %.2f s", valve_s, fixed_s);
    /* Of twelve the last one opens it, for those that run as well. */
    const double few_s = mean_latency_s("fast-dllm", fixed, arrivals, 12),
                 opened_s = mean_latency_s("fast-dllm", valve, arrivals, 12);
    ck_assert_msg(opened_s < 0.58 * few_s, "%.2f s, without %.2f s", opened_s, few_s);
    ck_assert_double_eq(fixed_s, mean_latency_s("fast-dllm", shut, arrivals, LOADED));
}

/* ---- routers ---- */

static const struct router *router_of(const char *name) {
    struct err err = {0};
    return (const struct router *)(const void *)policy_find(POLICY_ROUTER, name, &err);
}

static uint32_t choose(const struct router *router, void *state, const struct request *request,
                       const struct replica_view *replicas, uint32_t n) {
    const struct route_view view = {.replicas = replicas, .n = n};
    int64_t until_ns = INT64_MAX;
    return router->route(state, request, &view, &until_ns);
}

/* Queues of one server each, arrivals at `rate` a server and service of rate 1, both exponential:
 * the share of time that a queue has at least i requests, into tails[i]. NULL: a drawn queue. */
enum { QUEUES = 100, TAILS = 8 };

static void queues(const struct router *router, double rate, double tails[TAILS]) {
    static struct replica_view replicas[QUEUES];
    struct rng rng = rng_stream(7, "queues");
    uint64_t id = 0, n_seen = 0;
    memset(replicas, 0, sizeof replicas);
    memset(tails, 0, TAILS * sizeof *tails);
    for (uint32_t turn = 0; turn < 2000000; turn++) {
        if (rng_uniform(&rng) * (1 + rate) < rate) {
            const struct request request = {.id = id++};
            const uint32_t at = router != NULL ? choose(router, NULL, &request, replicas, QUEUES)
                                               : rig_between(&rng, 0, QUEUES - 1);
            replicas[at].outstanding_tokens++;
        } else {
            struct replica_view *served = &replicas[rig_between(&rng, 0, QUEUES - 1)];
            served->outstanding_tokens -= served->outstanding_tokens > 0;
        }
        for (uint32_t q = 0; turn > 200000 && turn % 100 == 0 && q < QUEUES; q++, n_seen++) {
            for (uint64_t i = 0; i < TAILS && i <= replicas[q].outstanding_tokens; i++) {
                tails[i]++;
            }
        }
    }
    for (uint32_t i = 0; i < TAILS; i++) {
        tails[i] /= (double)n_seen;
    }
}

/* Mitzenmacher 2001, theorem 1: with two choices the share of queues with i requests or more is
 * rate^(2^i - 1), with one rate^i. */
TEST(two_choices_cut_the_longest_queues_exponentially) {
    double one[TAILS], two[TAILS];
    const double rate = 0.8;
    queues(NULL, rate, one);
    queues(router_of("power-of-two"), rate, two);
    for (uint32_t i = 1; i < 5; i++) {
        const double expected = pow(rate, pow(2, i) - 1);
        ck_assert_msg(fabs(one[i] - pow(rate, i)) < 0.04, "%u: %g", i, one[i]);
        ck_assert_msg(fabs(two[i] - expected) < 0.02 + 0.1 * expected, "%u: %g, not %g", i, two[i],
                      expected);
    }
    ck_assert_double_lt(two[6], 0.001);
    ck_assert_double_gt(one[6], 0.2);
}

/* SGLang's: cache hits while loads are in balance, and balance where they are not. */
TEST(a_prefix_is_followed_until_its_replica_is_busier_than_it_is_worth) {
    const struct router *router = router_of("prefix-aware");
    struct replica_view replicas[3] = {{.outstanding_tokens = 900},
                                       {.outstanding_tokens = 1000, .shared_tokens = 200},
                                       {.outstanding_tokens = 1000}};
    const struct request request = {0};
    ck_assert_uint_eq(choose(router, NULL, &request, replicas, 3), 1);
    replicas[1].outstanding_tokens = 1101;
    ck_assert_uint_eq(choose(router, NULL, &request, replicas, 3), 0);
}

/* Mirrokni et al. 2018: no load is beyond (1 + slack) times the mean, and a tenant's requests stay
 * together where that allows it. */
TEST(a_tenant_stays_at_its_replica_within_a_bound_on_load) {
    enum { N = 8, REQUESTS = 4000, TENANTS = 64 };
    const struct router *router = router_of("tenant-affinity");
    void *state = policy_state(&router->policy); /* slack 0.25 */
    struct replica_view replicas[N] = {{0}};
    uint32_t homes[TENANTS], at_home = 0;
    struct rng rng = rng_stream(5, "tenants");
    for (uint32_t t = 0; t < TENANTS; t++) {
        const struct request request = {.tenant = t};
        homes[t] = choose(router, state, &request, replicas, N); /* all are empty */
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const double u = rng_uniform(&rng);
        const struct request request = {.id = i, .tenant = (uint32_t)(TENANTS * u * u)};
        const uint32_t at = choose(router, state, &request, replicas, N);
        replicas[at].n_waiting++;
        at_home += at == homes[request.tenant];
        ck_assert_uint_le(replicas[at].n_waiting, (uint32_t)ceil(1.25 * (i + 1) / N));
    }
    ck_assert_uint_gt(at_home, REQUESTS / 2);
    policy_state_free(&router->policy, state);
}

SUITE("published, by load")
