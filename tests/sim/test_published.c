/* Schedulers that papers describe, each with its paper's own result. */
#include "sim/policy/plugin/registry.h"
#include "tests/support/rig.h"

enum { MOST = 400, PLACES = 4 };

/* A scheduler, and what its tenants were served, watched while both of them wait. */
static struct watch {
    struct scheduler scheduler;
    void (*inner)(void *state, const struct schedule_view *view, const struct happening *happenings,
                  uint32_t n);
    double served[2], low, high;
    uint32_t n_waiting[2];
    bool begun;
} watch;

static void note(const struct request *request, const struct happening *h) {
    const uint32_t tenant = request->tenant;
    const int32_t waits = (h->kind == HAPPENED_ARRIVAL) - (h->kind == HAPPENED_START);
    watch.n_waiting[tenant] += (uint32_t)waits;
    watch.served[tenant] += h->kind == HAPPENED_START ? request->prompt_tokens : 0;
    watch.served[tenant] += 2.0 * h->committed_tokens;
    if (watch.n_waiting[0] == 0 || watch.n_waiting[1] == 0) {
        return;
    }
    const double more = watch.served[0] - watch.served[1];
    watch.low = watch.begun && watch.low < more ? watch.low : more;
    watch.high = watch.begun && watch.high > more ? watch.high : more;
    watch.begun = true;
}

static void watched(void *state, const struct schedule_view *view,
                    const struct happening *happenings, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        note(&view->requests[happenings[i].slot], &happenings[i]);
    }
    if (watch.inner != NULL) {
        watch.inner(state, view, happenings, n);
    }
}

/* The most by which the service of two tenants comes to differ in a time when both wait. */
static double difference(const char *scheduler, const struct arrival *arrivals, uint32_t n) {
    const char *const settings[] = {scheduler, "max_requests=4", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct list_source list = {arrivals, n, 0};
    watch = (struct watch){.scheduler = *system->scheduler, .inner = system->scheduler->happened};
    watch.scheduler.happened = watched;
    system->scheduler = &watch.scheduler;
    const struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), NULL);
    ck_assert_uint_eq(result.completed, n);
    system_close(system);
    return watch.high - watch.low;
}

/* Theorem 4.4 of VTC: at most twice the larger of an input and a batch, as both are weighted. */
TEST(service_of_tenants_that_wait_differs_by_a_bound_under_vtc_and_by_all_under_fcfs) {
    enum { PROMPT = 200, OUTPUT = 64 };
    static struct arrival arrivals[MOST];
    struct rng rng = rng_stream(3, "tenants");
    const double bound = 2.0 * 2 * PLACES * (PROMPT + OUTPUT);
    for (uint32_t i = 0; i < MOST; i++) { /* the first one's come before all of the other's */
        arrivals[i] = MAKE(struct arrival, .id = i, .tenant = i >= MOST / 2,
                           .prompt_tokens = rig_between(&rng, 20, PROMPT),
                           .output_tokens = rig_between(&rng, 8, OUTPUT));
    }
    ck_assert_double_le(difference("scheduler=vtc", arrivals, MOST), bound);
    ck_assert_double_gt(difference("scheduler=continuous", arrivals, MOST), 5 * bound);
}

/* Who asks for long answers starts fewer of them: tokens are shared, not requests. */
TEST(tenants_with_answers_of_unequal_lengths_are_served_as_many_tokens_under_vtc) {
    enum { PROMPT = 64, OUTPUT = 128 };
    static struct arrival arrivals[MOST];
    for (uint32_t i = 0; i < MOST; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .tenant = i % 2, .prompt_tokens = PROMPT,
                           .output_tokens = i % 2 == 0 ? OUTPUT : OUTPUT / 8);
    }
    ck_assert_double_le(difference("scheduler=vtc", arrivals, MOST),
                        2.0 * 2 * PLACES * (PROMPT + OUTPUT));
}

/* A tenant that was away does not catch up on what it did not ask for. */
TEST(a_tenant_that_returns_saves_no_service_up_under_vtc) {
    static struct arrival arrivals[MOST];
    for (uint32_t i = 0; i < MOST; i++) {
        const bool is_late = i >= MOST / 2;
        arrivals[i] = MAKE(struct arrival, .id = i, .tenant = is_late && i % 2 == 1,
                           .arrival_ns = is_late ? INT64_C(5000000000) : 0, .prompt_tokens = 64,
                           .output_tokens = 32);
    }
    ck_assert_double_le(difference("scheduler=vtc", arrivals, MOST), 2.0 * 2 * PLACES * 96);
}

static double mean_latency_s(const char *scheduler, double error) {
    const char *const settings[] = {scheduler, "max_requests=1", NULL};
    static struct arrival arrivals[MOST];
    struct rng rng = rng_stream(5, "tails");
    struct rng errors = rng_stream(6, "errors");
    struct keeper keeper = {0};
    double sum_ns = 0;
    for (uint32_t i = 0; i < MOST; i++) { /* outputs of a Pareto distribution */
        const double tokens = fmin(16 * pow(rng_uniform(&rng), -1 / 1.2), 1024);
        const double normal =
            sqrt(-2 * log(rng_uniform(&errors))) * cos(2 * 3.14159265358979 * rng_uniform(&errors));
        arrivals[i] =
            MAKE(struct arrival, .id = i, .prompt_tokens = 64, .output_tokens = (uint32_t)tokens,
                 .predicted_tokens = (uint32_t)fmax(1, tokens * exp(error * normal)));
    }
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct list_source list = {arrivals, MOST, 0};
    (void)rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), &keeper);
    ck_assert_uint_eq(keeper.n_requests, MOST);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        sum_ns += (double)(keeper.requests[i].finished_ns - keeper.requests[i].arrival_ns);
    }
    keeper_fini(&keeper);
    system_close(system);
    return sum_ns / MOST * 1e-9;
}

TEST(shortest_predicted_is_near_the_oracle_and_worsens_little_by_little) {
    const double oracle = mean_latency_s("scheduler=shortest-left", 0),
                 first = mean_latency_s("scheduler=continuous", 0);
    const double exact = mean_latency_s("scheduler=shortest-predicted", 0),
                 fair = mean_latency_s("scheduler=shortest-predicted", 0.5),
                 poor = mean_latency_s("scheduler=shortest-predicted", 1.5);
    ck_assert_msg(exact <= 1.05 * oracle && exact <= fair && fair <= poor && poor < 0.9 * first &&
                      fair < 1.3 * exact && exact < 0.7 * first,
                  "oracle %.3f, exact %.3f, fair %.3f, poor %.3f, first come %.3f s", oracle, exact,
                  fair, poor, first);
}

SUITE("published")
