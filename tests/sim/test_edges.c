/* What falls on an edge: arrivals on the borders of steps with replicas, what routers see of them,
 * and whom schedulers take first of those that are alike. */
#include "sim/policy/scheduler/concurrency.h"
#include "tests/support/rig.h"

enum { N = 24 };

static struct loop_result run(const char *name, const char *const *settings,
                              struct arrival *arrivals, uint32_t n, const struct router *router,
                              struct keeper *keeper) {
    struct system *system = rig_system(name, "l40s", true, settings);
    struct list_source list = {arrivals, n, 0};
    system->router = router != NULL ? router : system->router;
    struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), keeper);
    system_close(system);
    return result;
}

static void order_by_id(struct keeper *keeper) {
    for (size_t i = 1; i < keeper->n_requests; i++) {
        for (size_t j = i; j > 0 && keeper->requests[j - 1].id > keeper->requests[j].id; j--) {
            struct request_record other = keeper->requests[j];
            keeper->requests[j] = keeper->requests[j - 1];
            keeper->requests[j - 1] = other;
        }
    }
}

/* Requests of one long and one short output by turns, the earlier ones at once. */
static void fill(struct arrival *arrivals, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .prompt_tokens = 60 + 7 * (i % 5),
                           .output_tokens = i % 2 == 0 ? 64 : 32);
    }
}

/* Arrivals at, right before and right after borders of steps that others are in the middle of are
 * met at the same step whether identical steps are simulated one by one or at once. */
TEST_EACH(an_arrival_on_a_border_with_replicas_is_not_skipped, 6) {
    static const char *const replicas[] = {"replicas=1", "replicas=2", "replicas=3"};
    const char *const name = _i < 3 ? "dllm-serve" : "sdar";
    const char *const on[] = {replicas[_i % 3], "skip_ahead=on", NULL};
    const char *const off[] = {replicas[_i % 3], "skip_ahead=off", NULL};
    struct arrival arrivals[N];
    struct keeper alone = {0};
    fill(arrivals, N);
    const uint32_t n_first = 3;
    run(name, off, arrivals, n_first, NULL, &alone);
    ck_assert_uint_gt(alone.n_steps, 50);
    for (int64_t beside_ns = -1; beside_ns <= 1; beside_ns++) {
        struct keeper steps = {0}, skips = {0};
        for (uint32_t i = n_first; i < N; i++) {
            const struct kept_step *step = &alone.steps[2 * (i - n_first) + 5];
            arrivals[i].arrival_ns = step->record.end_ns + beside_ns;
        }
        for (uint32_t i = n_first + 1; i < N; i++) { /* replicas end their steps in any order */
            struct arrival *a = &arrivals[i - 1], *b = &arrivals[i];
            b->arrival_ns = b->arrival_ns < a->arrival_ns ? a->arrival_ns : b->arrival_ns;
        }
        struct loop_result a = run(name, off, arrivals, N, NULL, &steps);
        struct loop_result b = run(name, on, arrivals, N, NULL, &skips);
        ck_assert_uint_le(b.submissions, a.submissions);
        ck_assert_uint_eq(steps.n_requests, N);
        order_by_id(&steps);
        order_by_id(&skips);
        ck_assert_mem_eq(steps.requests, skips.requests, N * sizeof *steps.requests);
        keeper_fini(&steps);
        keeper_fini(&skips);
    }
    keeper_fini(&alone);
}

/* ---- what routers see ---- */

static struct {
    struct replica_view views[8][2];
    uint32_t n, places[8];
} seen;

static uint32_t look(void *state, const struct request *request, const struct route_view *view,
                     int64_t *until_ns) {
    (void)state, (void)until_ns;
    ck_assert(view->n == 2 && request->id < 8);
    memcpy(seen.views[request->id], view->replicas, sizeof seen.views[0]);
    return seen.places[request->id];
}

static const struct router looking = {.policy = {.abi = POLICY_ABI,
                                                 .kind = POLICY_ROUTER,
                                                 .size = sizeof(struct router),
                                                 .name = "looking",
                                                 .doc = "sends requests where the test says"},
                                      .route = look};

/* Replica 0 prefills a long prompt in chunks, replica 1 decodes. */
TEST(requests_that_prefill_and_refresh_are_about_to_run_whole) {
    static const char *const chunks[] = {"replicas=2", "max_batched_tokens=256", NULL};
    static const char *const whole[] = {"replicas=2", NULL};
    struct arrival arrivals[] = {
        {.prompt_tokens = 20, .output_tokens = 300},
        {.id = 1, .arrival_ns = 2000000000, .prompt_tokens = 8000, .output_tokens = 8},
        {.id = 2, .arrival_ns = 2001000000, .prompt_tokens = 20, .output_tokens = 8}};
    memset(&seen, 0, sizeof seen);
    seen.places[0] = 1;
    run("vllm-ar", chunks, arrivals, 3, &looking, NULL);
    const struct replica_view *views = seen.views[2];
    ck_assert(views[0].n_running == 1 && views[1].n_running == 1);
    ck_assert(views[0].n_whole == 1 && views[1].n_whole == 0);
    /* By load alone it would go where the prefill is. */
    ck_assert_uint_lt(views[0].outstanding_tokens, views[1].outstanding_tokens);
    static const char *const aware[] = {"replicas=2", "max_batched_tokens=256",
                                        "router=phase-aware", NULL};
    struct keeper keeper = {0};
    run("vllm-ar", aware, arrivals, 3, NULL, &keeper);
    order_by_id(&keeper);
    ck_assert_uint_ne(keeper.requests[0].replica, keeper.requests[1].replica);
    ck_assert_uint_eq(keeper.requests[2].replica, keeper.requests[0].replica);
    keeper_fini(&keeper);
    /* A first pass over a canvas, which takes some milliseconds. */
    arrivals[2].arrival_ns = arrivals[1].arrival_ns + 1000;
    arrivals[1].prompt_tokens = 2000;
    run("dllm-serve", whole, arrivals, 3, &looking, NULL);
    ck_assert(seen.views[2][0].n_running == 1 && seen.views[2][0].n_whole == 1);
}

/* What a conversation left is that conversation's, also where nothing changed meanwhile. */
TEST(only_its_own_turn_sees_what_a_conversation_left) {
    static const char *const settings[] = {"replicas=2", "prefix_caching=on", NULL};
    struct arrival arrivals[] = {
        {.prompt_tokens = 512, .output_tokens = 8, .session = 7},
        {.id = 1,
         .arrival_ns = 60000000000,
         .prompt_tokens = 600,
         .output_tokens = 8,
         .prefix_tokens = 512,
         .session = 7},
        {.id = 2, .arrival_ns = 60000000001, .prompt_tokens = 100, .output_tokens = 8}};
    memset(&seen, 0, sizeof seen);
    seen.places[1] = 1;
    run("vllm-ar", settings, arrivals, 3, &looking, NULL);
    ck_assert(seen.views[1][0].shared_tokens > 0 && seen.views[1][1].shared_tokens == 0);
    ck_assert(seen.views[2][0].shared_tokens == 0 && seen.views[2][1].shared_tokens == 0);
}

/* ---- whom schedulers take first ---- */

/* Ids in the order in which they were done. */
static void serve_one_by_one(const char *const *settings, struct arrival *arrivals, uint32_t n,
                             uint64_t *ids) {
    struct keeper keeper = {0};
    run("dllm-serve", settings, arrivals, n, NULL, &keeper);
    ck_assert_uint_eq(keeper.n_requests, n);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = keeper.requests[i].id;
    }
    keeper_fini(&keeper);
}

/* Requests of one length come one by one while the first is served. */
TEST(of_requests_that_are_alike_and_of_late_ones_the_earlier_goes_first) {
    static const char *const orders[][5] = {
        {"max_requests=1", "scheduler=shortest-left", NULL},
        {"max_requests=1", "scheduler=shortest-left", "scheduler.patience=0 s", NULL},
        {"max_requests=1", "scheduler=least-slack", "scheduler.latency=100000 s",
         "scheduler.patience=100000 s", NULL},
        {"max_requests=1", "scheduler=least-slack", "scheduler.latency=1 ns",
         "scheduler.patience=100000 s", NULL},
        {"max_requests=1", "scheduler=least-slack", "scheduler.latency=1 ns",
         "scheduler.patience=1 s", NULL},
        {"max_requests=1", "scheduler=look-ahead", NULL},
        {"max_requests=1", "scheduler=phase-multiplexed", NULL},
    };
    struct arrival arrivals[N];
    uint64_t ids[N];
    for (int at_once = 0; at_once < 2; at_once++) {
        for (uint32_t i = 0; i < N; i++) {
            arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = at_once ? 0 : i * 1000000,
                               .prompt_tokens = 50, .output_tokens = 32);
        }
        for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
            serve_one_by_one(orders[i], arrivals, N, ids);
            for (uint32_t k = 0; k < N; k++) {
                ck_assert_msg(ids[k] == k, "%s, place %u: %llu", orders[i][1], k,
                              (unsigned long long)ids[k]);
            }
        }
    }
}

/* Long and short ones by turns, all late: in the order of arrival, whatever they have left. Those
 * of another tenant, who are in time, go before all of them. */
TEST(late_requests_go_by_arrival_and_behind_those_in_time) {
    static const char *const settings[] = {"max_requests=1",
                                           "scheduler=least-slack",
                                           "scheduler.latency=1 ns",
                                           "scheduler.latency_1=100000 s",
                                           "scheduler.patience=100000 s",
                                           NULL};
    struct arrival arrivals[N];
    uint64_t ids[N];
    fill(arrivals, N);
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i].arrival_ns = i * 1000000;
        arrivals[i].tenant = i >= N - 4;
        arrivals[i].output_tokens = i >= N - 4 ? 32 : arrivals[i].output_tokens;
    }
    serve_one_by_one(settings, arrivals, N, ids);
    ck_assert_uint_eq(ids[0], 0); /* nothing else was there */
    for (uint32_t k = 1; k < N; k++) {
        ck_assert_msg(ids[k] == (k < 5 ? N - 5 + k : k - 4), "place %u: %llu", k,
                      (unsigned long long)ids[k]);
    }
}

/* Of several lengths, all at once and all late. */
TEST(of_late_requests_that_came_at_once_the_first_goes_first) {
    static const char *const settings[] = {"max_requests=1", "scheduler=least-slack",
                                           "scheduler.latency=1 ns", "scheduler.patience=100000 s",
                                           NULL};
    struct arrival arrivals[N];
    uint64_t ids[N];
    fill(arrivals, N);
    serve_one_by_one(settings, arrivals, N, ids);
    for (uint32_t k = 5; k < N; k++) { /* the first were in time at the first decision */
        ck_assert_msg(ids[k] > ids[k - 1] || k < 6, "place %u: %llu", k,
                      (unsigned long long)ids[k]);
    }
}

/* Of requests that are in time the one with the least left to its objective: the earlier one, but
 * a long one before a short one that came a little earlier. */
TEST(the_least_slack_is_the_objective_less_the_steps_to_come) {
    static const char *const settings[] = {"max_requests=1", "scheduler=least-slack",
                                           "scheduler.latency=100000 s",
                                           "scheduler.patience=100000 s", NULL};
    struct arrival arrivals[] = {
        {.prompt_tokens = 50, .output_tokens = 32},
        {.id = 1, .arrival_ns = 1000000, .prompt_tokens = 50, .output_tokens = 32},
        {.id = 2, .arrival_ns = 2000000, .prompt_tokens = 50, .output_tokens = 256},
        {.id = 3, .arrival_ns = 3000000, .prompt_tokens = 50, .output_tokens = 128}};
    static const uint64_t expected[] = {0, 2, 3, 1};
    uint64_t ids[4];
    serve_one_by_one(settings, arrivals, 4, ids);
    ck_assert_mem_eq(ids, expected, sizeof expected);
}

/* ---- orders that are kept, beside orders made anew ---- */

/* shortest-left and least-slack as they are told: the keys of all requests at every decision, of
 * which the least 512 may take part, and all that run. */
struct plain {
    struct concurrency concurrency;
    bool by_slack;
    int64_t patience_ns, latency_ns[4];
};

static double plain_key(const struct plain *plain, const struct schedule_view *view, uint32_t slot,
                        double service[2]) {
    const struct request *request = &view->requests[slot];
    const int64_t age_ns = view->now_ns - request->arrival_ns;
    const double share = 1 - (double)request->committed_tokens / request->output_tokens;
    if (age_ns > plain->patience_ns) {
        return (double)-age_ns;
    }
    if (service[1] <= 0) {
        struct outlook outlook;
        view->foresee(view->estimator, slot, NULL, 0, &outlook);
        service[0] = (double)outlook.tokens / share;
        service[1] = (double)outlook.steps / share;
    }
    if (!plain->by_slack) {
        return share * service[0];
    }
    const double slack_ns = (double)(plain->latency_ns[request->tenant] - age_ns) -
                            share * service[1] * plain->concurrency.step_ns;
    return slack_ns >= 0 ? slack_ns : 1e18 - (double)age_ns;
}

static void plain_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    static struct candidate all[4096], taken[4096];
    struct plain *plain = state;
    double(*services)[2] = view->own;
    const uint32_t most = concurrency_best(&plain->concurrency, view);
    uint32_t n = 0, n_taken = 0;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        const bool waits = i >= view->n_running;
        const uint32_t slot = waits ? view->waiting[i - view->n_running] : view->running[i];
        const double key = plain_key(plain, view, slot, services[slot]);
        uint32_t place = n++;
        for (; place > 0 && all[place - 1].key > key; place--) {
            all[place] = all[place - 1];
        }
        all[place] = (struct candidate){key, slot, waits};
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i < CONCURRENCY_RANKED || !all[i].waits) {
            taken[n_taken++] = all[i];
        }
    }
    concurrency_list(&plain->concurrency, view, taken, n_taken, most, batch);
}

static const struct scheduler plain_scheduler = {.policy = {.abi = POLICY_ABI,
                                                            .kind = POLICY_SCHEDULER,
                                                            .size = sizeof(struct scheduler),
                                                            .state_bytes = sizeof(struct plain),
                                                            .name = "plain",
                                                            .doc = "ranks all requests anew"},
                                                 .request_bytes = 2 * sizeof(double),
                                                 .schedule = plain_schedule};

/* Requests of all lengths and three tenants; under some loads all at once, under some in bursts. */
static void draw_any(struct rng *rng, struct arrival *arrivals, uint32_t n, int64_t gap_ns) {
    int64_t now_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        now_ns += gap_ns > 0 && rng_uniform(rng) < 0.7
                      ? (int64_t)(-log(rng_uniform(rng)) * (double)gap_ns)
                      : 0;
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = now_ns, .tenant = i % 3,
                           .prompt_tokens = rig_between(rng, 1, i % 7 == 0 ? 900 : 90),
                           .output_tokens = rig_between(rng, 1, i % 5 == 0 ? 300 : 60));
    }
}

/* Serves the arrivals, with a part of the memory, under the scheduler that the settings name or the
 * plain one. */
static void serve(const char *name, const char *const *settings, const struct plain *plain,
                  struct arrival *arrivals, uint32_t n, double part, struct keeper *keeper) {
    struct system *system = rig_system(name, "l40s", true, settings);
    struct list_source list = {arrivals, n, 0};
    if (plain != NULL) {
        free(system->scheduler_state);
        system->scheduler = &plain_scheduler;
        system->scheduler_state = malloc(sizeof *plain);
        memcpy(system->scheduler_state, plain, sizeof *plain);
    }
    system->budget.pool_bytes = (int64_t)((double)system->budget.pool_bytes * part);
    rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), keeper);
    system_close(system);
}

/* Whether orders that are kept decide as the plain one does, to the step, by the keys of a variant.
 */
static void assert_alike(const char *name, const char *const *more, bool by_slack, int variant,
                         struct arrival *arrivals, uint32_t n, double part) {
    static const int64_t patience_s[] = {600, 15, 100000}, latency_s[] = {60, 10, 3};
    const int64_t s = 1000000000, latency_ns = latency_s[variant] * s;
    char patience[64], latency[64], other[64];
    snprintf(patience, sizeof patience, "scheduler.patience=%d s", (int)patience_s[variant]);
    snprintf(latency, sizeof latency, "scheduler.latency=%d s", (int)latency_s[variant]);
    snprintf(other, sizeof other, "scheduler.latency_2=%d s", 3 * (int)latency_s[variant]);
    const char *settings[12] = {by_slack ? "scheduler=least-slack" : "scheduler=shortest-left",
                                patience};
    uint32_t n_settings = 2;
    for (; *more != NULL; more++) {
        settings[n_settings++] = *more;
    }
    settings[n_settings++] = by_slack ? latency : NULL;
    settings[n_settings++] = by_slack ? other : NULL;
    struct plain plain = {.by_slack = by_slack,
                          .patience_ns = patience_s[variant] * s,
                          .latency_ns = {latency_ns, latency_ns, 3 * latency_ns}};
    plain.concurrency.put_off = 16;
    struct keeper kept = {0}, anew = {0};
    serve(name, settings, NULL, arrivals, n, part, &kept);
    serve(name, settings, &plain, arrivals, n, part, &anew);
    ck_assert_uint_eq(kept.n_steps, anew.n_steps);
    ck_assert_uint_eq(kept.n_requests, anew.n_requests);
    for (size_t i = 0; i < kept.n_steps; i++) {
        const struct step_record *a = &kept.steps[i].record, *b = &anew.steps[i].record;
        ck_assert(a->n == b->n && a->end_ns == b->end_ns);
        ck_assert_mem_eq(kept.steps[i].ids, anew.steps[i].ids,
                         (a->n < 64 ? a->n : 64) * sizeof(uint64_t));
    }
    ck_assert_mem_eq(kept.requests, anew.requests, kept.n_requests * sizeof *kept.requests);
    keeper_fini(&kept);
    keeper_fini(&anew);
}

TEST_EACH(an_order_that_is_kept_decides_as_one_made_anew, 24) {
    enum { MOST = 900 };
    static const char *const names[] = {"dllm-serve", "sdar", "fast-dllm"};
    static const char *const more[][2] = {{NULL}, {NULL}, {"max_batched_tokens=2000", NULL}};
    static const int64_t gaps_ns[] = {0, 3000000, 60000000, 400000000};
    static struct arrival arrivals[MOST];
    const uint32_t n = _i / 6 == 0 ? MOST : 250;
    struct rng rng = rng_stream((uint64_t)_i + 1, "orders");
    draw_any(&rng, arrivals, n, gaps_ns[_i / 6]);
    for (int variant = 0; variant < 3; variant++) {
        assert_alike(names[_i / 2 % 3], more[variant], _i % 2 == 1, variant, arrivals, n, 1);
    }
}

/* Where slabs and workspace share memory some of what is admitted stays in the queue. */
TEST_EACH(what_is_admitted_in_vain_keeps_its_place_in_the_order, 2) {
    static const char *const more[] = {"kv=slab", "cache=dual", "logit_scope=generation", NULL};
    static struct arrival arrivals[60];
    for (int part = 1; part <= 8; part++) {
        struct rng rng = rng_stream((uint64_t)part, "slabs");
        draw_any(&rng, arrivals, 60, 20000000);
        assert_alike("ablation-engine", more, _i == 1, 0, arrivals, 60, part / 100.0);
    }
}

/* What waits may come to need less while it waits: pages that others leave are its, too. */
TEST_EACH(what_prefix_caching_changes_of_a_request_that_waits_is_seen, 4) {
    static const char *const more[] = {"prefix_caching=on", NULL};
    static struct arrival arrivals[150];
    struct rng rng = rng_stream((uint64_t)_i, "prefixes");
    draw_any(&rng, arrivals, 150, 5000000);
    for (int i = 0; i < 150; i++) {
        arrivals[i].prefix_tokens = arrivals[i].prompt_tokens * (uint32_t)(i % 3) / 2;
    }
    assert_alike(_i < 2 ? "sdar" : "vllm-ar", more, _i % 2 == 1, 1, arrivals, 150, 0.05);
}

SUITE("edges")
