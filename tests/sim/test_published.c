/* Schedulers that papers describe, each with its paper's own result. */
#include "sim/policy/plugin/registry.h"
#include "sim/policy/scheduler/tenants.h"
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

/* What a decision starts may stay in the queue: until it is told that it started, it is next. */
TEST(a_request_that_did_not_start_is_next_again_in_the_next_decision) {
    static struct tenants tenants;
    const struct request requests[] = {{.tenant = 5}, {.tenant = 5}, {.tenant = 9}};
    struct lined own[3] = {{0}};
    uint32_t selected[] = {0, 2};
    const struct schedule_view view = {.requests = requests, .own = own, .n_slots = 3};
    const struct batch batch = {.n = 2, .n_admitted = 2, .selected = selected};
    for (uint32_t i = 0; i < 3; i++) {
        const struct happening came = {.kind = HAPPENED_ARRIVAL, .slot = i};
        tenants_told(&tenants, &view, &came, 0);
    }
    ck_assert_uint_eq(tenants_next(&tenants), 1);
    tenants_start(&tenants, &view, 0, 10);
    ck_assert_uint_eq(tenants_next(&tenants), 3);
    tenants_start(&tenants, &view, 2, 20);
    ck_assert_uint_eq(tenants_next(&tenants), 2);
    tenants_end(&tenants, &view, &batch);
    ck_assert_uint_eq(tenants_next(&tenants), 1);
}

/* ---- those that take turns ---- */

/* Serves requests to the last, all of which are completed or rejected; the keeper's to release. */
static void serve(const char *const *settings, const struct arrival *arrivals, uint32_t n,
                  struct keeper *keeper) {
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct list_source list = {arrivals, n, 0};
    *keeper = (struct keeper){0};
    (void)rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), keeper);
    ck_assert_uint_eq(keeper->n_requests, n);
    system_close(system);
}

/* One at a time, a request each `gap_s` seconds on average. */
static void draw_tails(bool has_tails, double gap_s, struct arrival *arrivals) {
    struct rng rng = rng_stream(5, "tails");
    double now_s = 0;
    for (uint32_t i = 0; i < MOST; i++) {
        const double tokens = fmin(16 * pow(rng_uniform(&rng), -1 / 1.2), 1024);
        now_s += -log(rng_uniform(&rng)) * gap_s;
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = (int64_t)(now_s * 1e9),
                           .prompt_tokens = 64, .output_tokens = has_tails ? (uint32_t)tokens : 64);
    }
}

static double mean_s(const char *scheduler, const char *limit, const struct arrival *arrivals) {
    const char *const settings[] = {scheduler, limit, NULL};
    struct keeper keeper;
    double sum_ns = 0;
    serve(settings, arrivals, MOST, &keeper);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        sum_ns += (double)(keeper.requests[i].finished_ns - keeper.requests[i].arrival_ns);
    }
    keeper_fini(&keeper);
    return sum_ns / MOST * 1e-9;
}

/* FastServe's gain is head-of-line blocking that heavy tails make, and equal lengths do not. */
TEST(levels_shorten_the_mean_latency_under_heavy_tails_and_not_where_all_are_alike) {
    static struct arrival arrivals[MOST];
    draw_tails(true, 1.6, arrivals);
    const double tails = mean_s("scheduler=fast-serve", "scheduler.at_once=1", arrivals),
                 tails_first = mean_s("scheduler=continuous", "max_requests=1", arrivals);
    draw_tails(false, 1.6, arrivals);
    const double alike = mean_s("scheduler=fast-serve", "scheduler.at_once=1", arrivals),
                 alike_first = mean_s("scheduler=continuous", "max_requests=1", arrivals);
    ck_assert_msg(tails < 0.5 * tails_first && alike >= alike_first,
                  "tails %.3f for %.3f s, alike %.3f for %.3f s", tails, tails_first, alike,
                  alike_first);
}

static uint32_t n_on_time(const char *scheduler, const char *limit, const char *more,
                          const struct arrival *arrivals, uint32_t *n_rejected) {
    const char *const settings[] = {scheduler, limit, more, NULL};
    struct keeper keeper;
    uint32_t n = 0;
    serve(settings, arrivals, MOST, &keeper);
    *n_rejected = 0;
    for (size_t i = 0; i < keeper.n_requests; i++) {
        const struct request_record *record = &keeper.requests[i];
        const bool is_done = record->state == REQUEST_DONE;
        n += is_done && record->finished_ns - record->arrival_ns <= arrivals[record->id].due_ns;
        *n_rejected += !is_done;
    }
    keeper_fini(&keeper);
    return n;
}

/* Liu and Layland's optimality: deadlines that some order can meet, here one that preempts, are
 * met by the earliest one first, but for a step that cannot be interrupted. */
TEST(what_some_order_can_do_in_time_the_earliest_deadline_first_does_in_time) {
    static const char *const other[] = {"scheduler=fast-serve", "scheduler.at_once=1", NULL};
    static struct arrival arrivals[MOST];
    struct rng rng = rng_stream(8, "slack");
    struct keeper keeper;
    uint32_t n_rejected;
    draw_tails(true, 1.6, arrivals);
    serve(other, arrivals, MOST, &keeper);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        const double slack_s = 0.1 - 5 * log(rng_uniform(&rng));
        const struct request_record *record = &keeper.requests[i];
        arrivals[record->id].due_ns =
            record->finished_ns - record->arrival_ns + (int64_t)(slack_s * 1e9);
    }
    keeper_fini(&keeper);
    ck_assert_uint_eq(
        n_on_time("scheduler=edf", "scheduler.at_once=1", NULL, arrivals, &n_rejected), MOST);
    ck_assert_uint_lt(
        n_on_time("scheduler=continuous", "max_requests=1", NULL, arrivals, &n_rejected),
        MOST * 9 / 10);
}

TEST(admission_keeps_the_earliest_deadline_first_from_working_in_vain_under_overload) {
    static struct arrival arrivals[MOST];
    uint32_t n_rejected, none;
    draw_tails(true, 0.6, arrivals);
    for (uint32_t i = 0; i < MOST; i++) {
        arrivals[i].due_ns = INT64_C(1000000000) + INT64_C(60000000) * arrivals[i].output_tokens;
    }
    const uint32_t with =
        n_on_time("scheduler=edf", "scheduler.at_once=1", NULL, arrivals, &n_rejected);
    const uint32_t without =
        n_on_time("scheduler=edf", "scheduler.at_once=1", "scheduler.slowdown=0", arrivals, &none);
    ck_assert_msg(none == 0 && n_rejected > 0 && with > 3 * without / 2,
                  "%u on time and %u rejected, %u on time and %u rejected", with, n_rejected,
                  without, none);
}

/* Tokens of a request that its reader got, and how much later than they could be read, in all. */
static struct readers {
    struct scheduler scheduler;
    void (*inner)(void *state, const struct schedule_view *view, const struct happening *happenings,
                  uint32_t n);
    struct reader {
        uint32_t tokens;
        double late_s, whole_s;
    } of[MOST];
} readers;

static const double reader_speed = 4.8, reader_first_s = 1;

/* Andes' quality of experience: one less the area by which text is behind what is expected, over
 * all of the area under what is expected. */
static void read_on(const struct request *request, int64_t now_ns) {
    struct reader *reader = &readers.of[request->id];
    const double age_s = (double)(now_ns - request->arrival_ns) * 1e-9 - reader_first_s;
    const uint32_t first = window_first(request), prompt = request->prompt_tokens,
                   tokens = request->state == REQUEST_DONE ? request->output_tokens
                            : first > prompt               ? first - prompt
                                                           : 0;
    for (; reader->tokens < tokens; reader->tokens++) {
        reader->late_s += fmax(0, age_s - reader->tokens / reader_speed);
    }
    const double end_s = fmax(age_s, request->output_tokens / reader_speed);
    reader->whole_s = request->output_tokens * (end_s - request->output_tokens / reader_speed / 2);
}

static void reading(void *state, const struct schedule_view *view,
                    const struct happening *happenings, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        read_on(&view->requests[happenings[i].slot], view->now_ns);
    }
    if (readers.inner != NULL) {
        readers.inner(state, view, happenings, n);
    }
}

static double experience(const char *scheduler, const char *limit, const struct arrival *arrivals,
                         uint32_t n) {
    const char *const settings[] = {scheduler, limit, NULL};
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct list_source list = {arrivals, n, 0};
    double sum = 0;
    readers =
        (struct readers){.scheduler = *system->scheduler, .inner = system->scheduler->happened};
    readers.scheduler.happened = reading;
    system->scheduler = &readers.scheduler;
    (void)rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), NULL);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(readers.of[i].tokens, arrivals[i].output_tokens);
        sum += 1 - readers.of[i].late_s / readers.of[i].whole_s;
    }
    system_close(system);
    return sum / n;
}

TEST(readers_of_a_burst_are_served_better_by_the_pace_at_which_they_read) {
    enum { BURST = 32, CALM = 2 };
    static struct arrival arrivals[MOST];
    for (uint32_t i = 0; i < BURST; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .prompt_tokens = 100, .output_tokens = 256);
    }
    const double paced = experience("scheduler=andes", "scheduler.at_once=4", arrivals, BURST),
                 first = experience("scheduler=continuous", "max_requests=4", arrivals, BURST);
    const double calm = experience("scheduler=andes", "scheduler.at_once=4", arrivals, CALM),
                 calm_first = experience("scheduler=continuous", "max_requests=4", arrivals, CALM);
    ck_assert_msg(paced > 1.3 * first && calm >= 0.99 * calm_first && calm > 0.95,
                  "a burst: %.3f for %.3f; a calm time: %.3f for %.3f", paced, first, calm,
                  calm_first);
}

SUITE("published")
