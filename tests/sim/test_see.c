/* What policies see of requests and of what happens, and what they say beyond batches: rejections,
 * refreshes that wait, times to be asked again at, requests held back and moved. */
#include "sim/serve/lifecycle.h"
#include "tests/support/rig.h"
#include "tests/support/says.h"

enum { N = 24 };

/* The next word of a scheduler that otherwise runs what fits, first come first served. */
static struct script {
    struct scheduler scheduler;
    struct router router;
    struct cache_policy cache;
    struct decoder decoder;
    uint32_t hold, loops, puts_off, rejects_after, reason;
    int64_t wake_in_ns; /* 0: it names no time */
    bool rejects_running, sees_all;
    /* What it saw. */
    uint32_t n_calls, n_told[HAPPENED_END + 1];
    int64_t calls_ns[4096];
    uint64_t seed;
    struct request seen[N];
    int64_t told_ns[N];
    int64_t committed[N];
    uint64_t passes[N], tokens[N];
} script;

static void happened(void *state, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        const struct happening *h = &happenings[i];
        const struct request *request = &view->requests[h->slot];
        script.n_told[h->kind]++;
        script.told_ns[request->id] += h->ns;
        script.passes[request->id] += h->steps;
        script.tokens[request->id] += h->query_tokens;
        script.committed[request->id] += h->committed_tokens;
        script.seen[request->id] = *request;
        ck_assert((h->kind == HAPPENED_STEPS) == (h->steps > 0));
        ck_assert(h->kind != HAPPENED_END || request->state == REQUEST_DONE ||
                  request->state == REQUEST_REJECTED || request->state == REQUEST_QUEUED);
    }
}

static bool takes(const struct schedule_view *view, struct batch *batch, uint32_t slot,
                  int64_t *tokens, int64_t *bytes) {
    const struct request *request = &view->requests[slot];
    if (*tokens + request->span.queries > view->max_batched_tokens ||
        *bytes + request->kv_bytes - request->kv_held_bytes > view->kv_free_bytes) {
        return false;
    }
    *tokens += request->span.queries;
    *bytes += request->kv_bytes - request->kv_held_bytes;
    batch->puts_off[batch->n] = script.puts_off != 0 && request->state == REQUEST_RUNNING &&
                                (script.puts_off > 1 || request->refresh_waits > 0);
    batch->selected[batch->n++] = slot;
    return true;
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = 0, bytes = 0;
    (void)state;
    script.seed = view->seed;
    script.calls_ns[script.n_calls++ % 4096] = view->now_ns;
    for (uint32_t i = 0; i < view->n_running; i++) {
        if (script.rejects_running && i == 0) {
            batch->rejected[batch->n_rejected++] = view->running[i];
            continue;
        }
        (void)takes(view, batch, view->running[i], &tokens, &bytes);
    }
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        if (script.rejects_after > 0 && request->priority >= script.rejects_after) {
            batch->reasons[batch->n_rejected] = script.reason;
            batch->rejected[batch->n_rejected++] = view->waiting[i];
        } else if (view->n_running + batch->n_admitted < view->max_requests &&
                   takes(view, batch, view->waiting[i], &tokens, &bytes)) {
            batch->n_admitted++;
        }
    }
    batch->says = script.puts_off != 0;
    batch->hold = script.hold;
    batch->loops = script.loops;
    batch->wake_ns = script.wake_in_ns != 0 ? view->now_ns + script.wake_in_ns : INT64_MAX;
}

static const char *const reasons[] = {"first", "second", NULL};

static void prepare(void) {
    memset(&script, 0, sizeof script);
    script.scheduler = (struct scheduler){.policy = {.abi = POLICY_ABI,
                                                     .kind = POLICY_SCHEDULER,
                                                     .size = sizeof(struct scheduler),
                                                     .name = "scripted",
                                                     .doc = "says what the test says"},
                                          .schedule = schedule,
                                          .happened = happened,
                                          .reject_reasons = reasons};
    script.hold = HOLD_CHANGE;
}

/* Serves with what the script names in place of the system's own; the error, if any, in `err`. */
static struct loop_result serve(const char *name, const char *const *settings,
                                const struct arrival *arrivals, uint32_t n, bool is_trial,
                                struct keeper *keeper, struct err *err) {
    struct system *system = rig_system(name, "l40s", true, settings);
    struct executor_sim *sim = executor_sim_open(system, system->settings.replicas);
    struct list_source list = {arrivals, n, 0};
    struct sink sink = keeper != NULL ? keeper_sink(keeper) : (struct sink){0};
    system->scheduler = &script.scheduler;
    system->router = script.router.route != NULL ? &script.router : system->router;
    system->cache = script.cache.plan != NULL ? &script.cache : system->cache;
    system->decoder = script.decoder.rule != NULL ? &script.decoder : system->decoder;
    const struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_sim_interface(sim),
             .source = MAKE(struct arrival_source, .state = &list, .next = list_next),
             .sinks = &sink, .n_sinks = keeper != NULL, .is_trial = is_trial, .seed = 77);
    struct loop_result result;
    (void)loop_run(&request, &result, err);
    executor_sim_close(sim);
    system_close(system);
    return result;
}

static void serves(const char *name, const char *const *settings, const struct arrival *arrivals,
                   uint32_t n, struct keeper *keeper) {
    struct err err = {0};
    const struct loop_result result = serve(name, settings, arrivals, n, false, keeper, &err);
    ck_assert_msg(err.kind == ERR_NONE, "%s", err.text);
    ck_assert_uint_eq(result.completed + result.rejected, n);
}

static void refuses(const char *name, const char *const *settings, const struct arrival *arrivals,
                    uint32_t n, bool is_trial, const char *sentence) {
    struct err err = {0};
    (void)serve(name, settings, arrivals, n, is_trial, NULL, &err);
    ASSERT_SAYS(err.text, sentence);
}

static void fill(struct arrival *arrivals, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = i * INT64_C(40000000),
                           .prompt_tokens = 60 + 7 * (i % 5), .output_tokens = i % 2 == 0 ? 64 : 32,
                           .due_ns = i % 3 == 0 ? 0 : INT64_C(1000000000) * i, .priority = i % 4,
                           .predicted_tokens = 10 * i);
    }
}

static const char *const four_steps[] = {"cache=dual", "cache.interval_steps=4", "max_requests=6",
                                         NULL};

/* ---- seeing ---- */

TEST_EACH(what_happened_adds_up_to_what_requests_say_and_records_keep, 3) {
    static const char *const growing[] = {"block_tokens=8", "max_requests=6", NULL};
    static const char *const slowly[] = {"cache=dual", "skip_ahead=off", NULL};
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    fill(arrivals, N);
    prepare();
    script.scheduler.reads_all = 1;
    serves(_i == 1 ? "sdar" : "dllm-serve",
           _i == 0   ? four_steps
           : _i == 1 ? growing
                     : slowly,
           arrivals, N, &keeper);
    ck_assert_uint_eq(script.seed, 77);
    ck_assert_uint_eq(script.n_told[HAPPENED_ARRIVAL], N);
    ck_assert_uint_eq(script.n_told[HAPPENED_START], N);
    ck_assert_uint_eq(script.n_told[HAPPENED_END], N);
    for (uint32_t i = 0; i < N; i++) {
        const struct request_record *record = keeper_request(&keeper, i);
        const struct request *request = &script.seen[i];
        ck_assert_int_eq(script.told_ns[i], request->service_ns);
        ck_assert_uint_eq(script.tokens[i], request->service_tokens);
        ck_assert_uint_eq(script.tokens[i], record->tokens_processed);
        ck_assert_uint_eq(script.passes[i], record->steps);
        ck_assert_int_eq(script.committed[i], arrivals[i].output_tokens);
        ck_assert_int_eq(request->admitted_ns, record->admitted_ns);
        ck_assert_int_eq(request->first_token_ns, record->first_block_ns);
        ck_assert_int_le(request->service_ns, record->finished_ns - record->admitted_ns);
        ck_assert_int_gt(request->service_ns, 0);
        const int64_t due_ns = arrivals[i].due_ns;
        ck_assert_int_eq(request->deadline_ns,
                         due_ns > 0 ? arrivals[i].arrival_ns + due_ns : INT64_MAX);
        ck_assert_uint_eq(record->deadline_ns,
                          due_ns > 0 ? (uint64_t)(arrivals[i].arrival_ns + due_ns) : 0);
        ck_assert(request->priority == i % 4 && record->priority == i % 4);
        ck_assert(request->predicted_tokens == 10 * i && record->predicted_tokens == 10 * i);
    }
    keeper_fini(&keeper);
}

static void price(void *state, const struct schedule_view *view, struct batch *batch) {
    struct pass_ahead passes[64];
    schedule(state, view, batch);
    for (uint32_t i = 0; i < view->n_running && script.sees_all; i++) {
        struct outlook outlook;
        const uint32_t slot = view->running[i];
        view->foresee(view->estimator, slot, passes, 64, &outlook);
        int64_t sum_ns = 0;
        for (uint32_t k = 0; k < outlook.n_passes && k < 64; k++) {
            sum_ns += passes[k].steps * view_pass_ns(view, &passes[k]);
        }
        uint32_t slots[] = {slot};
        const struct batch alone = {.n = 1, .selected = slots};
        ck_assert_int_eq(view_pass_ns(view, &passes[0]),
                         view->estimate_ns(view->estimator, &alone));
        ck_assert_int_eq(view_rest_ns(view, slot, passes, 64), sum_ns);
        ck_assert_int_ge(view_rest_ns(view, slot, passes, 1), sum_ns / 100);
        script.sees_all = i + 1 < view->n_running;
    }
}

TEST(what_is_left_of_a_request_has_a_price) {
    struct arrival arrivals[N];
    fill(arrivals, N);
    prepare();
    script.scheduler.schedule = price;
    script.sees_all = true;
    serves("dllm-serve", four_steps, arrivals, N, NULL);
    ck_assert(!script.sees_all);
}

/* ---- rejecting ---- */

TEST(a_scheduler_rejects_what_waits_for_a_reason_of_its_own) {
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    fill(arrivals, N);
    prepare();
    script.rejects_after = 2;
    script.reason = 1;
    serves("dllm-serve", four_steps, arrivals, N, &keeper);
    for (uint32_t i = 0; i < N; i++) {
        const struct request_record *record = keeper_request(&keeper, i);
        const bool goes = i % 4 >= 2;
        ck_assert_uint_eq(record->state, goes ? REQUEST_REJECTED : REQUEST_DONE);
        ck_assert_uint_eq(record->reason, goes ? REJECT_OWN + 1 : REJECT_NONE);
        ck_assert(!goes || (record->admitted_ns < 0 && record->finished_ns >= 0));
    }
    ck_assert_uint_eq(script.n_told[HAPPENED_END], N);
    ck_assert_uint_eq(script.n_told[HAPPENED_START], N / 2);
    ck_assert_str_eq(reject_reason_name(REJECT_OWN + 1, reasons), "second");
    ck_assert_str_eq(reject_reason_name(REJECT_OWN, NULL), "scheduler");
    ck_assert_str_eq(reject_reason_name(REJECT_KV, reasons), "kv");
    ck_assert(!reject_reason_is_named(REJECT_OWN + 2, reasons));
    keeper_fini(&keeper);
    prepare(); /* all of them: nothing is left to select */
    script.rejects_after = 1;
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i].priority = 1;
    }
    serves("dllm-serve", four_steps, arrivals, N, NULL);
    ck_assert_uint_eq(script.n_told[HAPPENED_START], 0);
}

TEST(what_runs_is_not_rejected_nor_for_a_reason_that_there_is_not) {
    struct arrival arrivals[N];
    fill(arrivals, N);
    prepare();
    script.rejects_running = true;
    refuses("dllm-serve", four_steps, arrivals, N, false,
            "scheduler scripted broke its promise at s: schedule rejects request 0, which runs: "
            "reject it while it waits, or preempt it first");
    prepare();
    script.rejects_after = 1;
    script.reason = 2;
    refuses("dllm-serve", four_steps, arrivals, N, false,
            "scheduler scripted broke its promise at s: the index of a reason (2 of at most 1)");
}

/* ---- refreshes that wait ---- */

TEST_EACH(a_refresh_waits_until_its_bound_and_not_longer, 4) {
    static const char *const caches[] = {"cache=dual", "cache=prefix", "cache=dkv-decode",
                                         "cache=sparse-head"};
    const char *const settings[] = {caches[_i], "cache.interval_steps=4", NULL};
    struct arrival arrivals[1];
    uint32_t refreshes[3];
    fill(arrivals, 1); /* two blocks of 32 steps each */
    for (uint32_t puts_off = 0; puts_off < 3; puts_off++) {
        struct keeper keeper = {0};
        prepare();
        script.scheduler.reads_all = 1;
        script.puts_off = puts_off; /* 2: also where it cannot wait, in a run that is no trial */
        serves("dllm-serve", settings, arrivals, 1, &keeper);
        refreshes[puts_off] = keeper.requests[0].refresh_steps;
        ck_assert_uint_eq(keeper.requests[0].steps, 64);
        keeper_fini(&keeper);
    }
    /* At steps 0, 4, 8 ...; or at 0, 8, 16, where one is due at 4 and waits for 4 steps, the next
     * at 8 is that one, and the one at 12 waits. Two passes each under sparse caches: the
     * one that makes up for them, and the second of those that are due then. */
    const bool is_sparse = _i == 3;
    ck_assert_uint_eq(refreshes[0], is_sparse ? 32 : 16);
    ck_assert_uint_eq(refreshes[1], is_sparse ? 2 * (2 + 3 * 2) : 8);
    ck_assert_uint_eq(refreshes[2], refreshes[1]);
}

TEST(a_paced_cache_lets_its_renewals_wait) {
    static const char *const settings[] = {"cache=paced", "cache.renew_tokens=8", NULL};
    struct arrival arrivals[1];
    uint32_t refreshes[2];
    fill(arrivals, 1);
    for (uint32_t puts_off = 0; puts_off < 2; puts_off++) {
        struct keeper keeper = {0};
        prepare();
        script.scheduler.reads_all = 1;
        script.puts_off = puts_off;
        serves("dllm-serve", settings, arrivals, 1, &keeper);
        refreshes[puts_off] = keeper.requests[0].refresh_steps;
        keeper_fini(&keeper);
    }
    ck_assert_uint_gt(refreshes[0], refreshes[1] + refreshes[1] / 2);
    ck_assert_uint_gt(refreshes[1], 1);
}

TEST(no_refresh_waits_under_exact_caches_nor_beyond_its_bound_in_a_trial) {
    struct arrival arrivals[N];
    fill(arrivals, N);
    prepare();
    script.puts_off = 2;
    refuses("sdar", NULL, arrivals, N, false,
            "scheduler scripted broke its promise at s: schedule puts a refresh of request 0 off, "
            "but under cache exact no refresh waits: leave puts_off 0");
    prepare();
    script.scheduler.reads_all = 1;
    script.puts_off = 2;
    refuses("dllm-serve", four_steps, arrivals, N, true,
            "scheduler scripted broke its promise at s: schedule puts a refresh of request 0 off "
            "that cannot wait (it was due 0 steps ago): say puts_off only where refresh_waits is "
            "above 0");
}

/* ---- being asked at a time ---- */

TEST_EACH(a_scheduler_is_asked_at_its_time_whatever_runs, 4) {
    static const char *const on[] = {"cache=dual", "skip_ahead=on", NULL};
    static const char *const two[] = {"cache=dual", "replicas=2", NULL};
    static const int64_t every_ns = 100000000;
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    fill(arrivals, N);
    prepare();
    script.hold = _i < 2 ? HOLD_CLOSED : HOLD_STEP;
    script.loops = _i == 2 ? 1000 : 0;
    script.hold = _i == 3 ? HOLD_CLOSED : script.hold;
    script.wake_in_ns = every_ns;
    serves("dllm-serve", _i == 3 ? two : on, arrivals, _i == 1 ? 1 : N, &keeper);
    int64_t longest_ns = 0;
    for (size_t i = 0; i < keeper.n_steps; i++) {
        const struct step_record *step = &keeper.steps[i].record;
        const int64_t each_ns = (step->end_ns - step->start_ns) / step->repeat;
        longest_ns = each_ns > longest_ns ? each_ns : longest_ns;
    }
    ck_assert_uint_gt(script.n_calls, 10);
    for (uint32_t i = 1; i < script.n_calls && _i != 3; i++) {
        ck_assert_int_lt(script.calls_ns[i] - script.calls_ns[i - 1], every_ns + longest_ns);
    }
    /* And not more often where nothing else happens. */
    ck_assert(_i != 1 || script.n_calls <= keeper.requests[0].finished_ns / every_ns + 8);
    keeper_fini(&keeper);
}

TEST(nobody_is_asked_in_the_past) {
    struct arrival arrivals[N];
    fill(arrivals, N);
    prepare();
    script.wake_in_ns = -1;
    refuses("dllm-serve", four_steps, arrivals, N, false,
            "scheduler scripted broke its promise at s: schedule asks to be called again at -1 ns, "
            "which is not after now (0): name a later time, or leave wake_ns as it is");
}

/* ---- load ---- */

static uint32_t most_running, most_waiting, n_unknown, n_loads;
static struct replica_load loads[8192];

static void see_load(const struct request *request) {
    const struct replica_load *load = &request->load;
    most_running = load->n_running > most_running ? load->n_running : most_running;
    most_waiting = load->n_waiting > most_waiting ? load->n_waiting : most_waiting;
    n_unknown += load->kv_total_bytes == 0;
    loads[n_loads++ % 8192] = *load;
    ck_assert(load->kv_total_bytes == 0 || load->kv_free_bytes <= load->kv_total_bytes);
}

static void rule(const void *state, const struct request *request, struct decode_rule *out) {
    (void)state;
    see_load(request);
    *out = (struct decode_rule){.kind = DECODE_THRESHOLD,
                                .threshold = request->load.n_running >= 4 ? 0.01f : 0.99f};
}

/* As many ran as the step that then began says. */
static void check_load(const struct keeper *keeper, const struct replica_load *load) {
    for (size_t i = 0; i < keeper->n_steps && load->now_ns > 0; i++) {
        const struct step_record *step = &keeper->steps[i].record;
        if (step->start_ns == load->now_ns) {
            ck_assert_uint_eq(load->n_running, step->n_running);
            return;
        }
    }
    ck_assert_int_eq(load->now_ns, 0); /* the first, or asked what kind of rule it is */
}

TEST_EACH(a_decoder_sees_load_when_its_steps_begin, 2) {
    static const char *const few[] = {"max_requests=2", NULL};
    static const char *const many[] = {"max_requests=8", NULL};
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    fill(arrivals, N);
    prepare();
    most_running = most_waiting = n_unknown = n_loads = 0;
    script.decoder = (struct decoder){.policy = {.abi = POLICY_ABI,
                                                 .kind = POLICY_DECODER,
                                                 .size = sizeof(struct decoder),
                                                 .name = "valve",
                                                 .doc = "less sure under load"},
                                      .rule = rule,
                                      .reads_load = 1};
    serves("dllm-serve", _i == 0 ? few : many, arrivals, N, &keeper);
    ck_assert_uint_eq(most_running, _i == 0 ? 2 : most_running);
    ck_assert(_i == 0 || (most_running >= 4 && most_running <= 8));
    ck_assert(_i == 1 || most_waiting > 0);
    ck_assert_uint_le(n_unknown, 1); /* asked what kind of rule it is */
    for (uint32_t i = 0; i < n_loads && i < 8192; i++) {
        check_load(&keeper, &loads[i]);
    }
    uint64_t steps = 0;
    for (size_t i = 0; i < keeper.n_requests; i++) {
        steps += keeper.requests[i].steps;
    }
    ck_assert(_i == 0 || steps < N * 40); /* the valve opened */
    keeper_fini(&keeper);
}

/* ---- routers ---- */

static struct {
    uint32_t most; /* at the first replica, all others are held back */
    int64_t until_ns;
    uint32_t move_to, n_route, n_held_most;
    bool moves_running, moves_all;
} routed;

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    (void)state;
    routed.n_route++;
    routed.n_held_most = view->n_held > routed.n_held_most ? view->n_held : routed.n_held_most;
    ck_assert(*until_ns == INT64_MAX && view->seed == 77 && request->state == REQUEST_QUEUED);
    if (view->replicas[0].n_running + view->replicas[0].n_waiting < routed.most) {
        return 0;
    }
    *until_ns = routed.until_ns != 0 ? view->now_ns + routed.until_ns : INT64_MAX;
    return ROUTE_HOLD;
}

static uint32_t move(void *state, const struct route_view *view, struct route_move *moves,
                     uint32_t capacity) {
    const struct replica_view *first = &view->replicas[0];
    (void)state;
    ck_assert_uint_ge(capacity, N);
    for (uint32_t i = 0; i < 1024 && routed.moves_running; i++) {
        if (view->requests[i].state == REQUEST_RUNNING) {
            moves[0] = (struct route_move){i, 1};
            return 1;
        }
    }
    const uint32_t there = routed.move_to == 1 ? view->replicas[1].n_waiting : 0;
    if (!routed.moves_all || first->n_waiting <= there) {
        return 0;
    }
    ck_assert_uint_eq(view->requests[first->waiting[0]].state, REQUEST_QUEUED);
    moves[0] = (struct route_move){first->waiting[0], routed.move_to};
    return 1;
}

static void prepare_router(uint32_t most) {
    prepare();
    memset(&routed, 0, sizeof routed);
    routed.most = most;
    routed.move_to = 1;
    script.router = (struct router){.policy = {.abi = POLICY_ABI,
                                               .kind = POLICY_ROUTER,
                                               .size = sizeof(struct router),
                                               .name = "scripted",
                                               .doc = "says what the test says"},
                                    .route = route,
                                    .move = move};
}

static const char *const two_replicas[] = {"cache=dual", "replicas=2", "max_requests=2", NULL};

TEST(a_router_holds_requests_back_until_something_changes) {
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    fill(arrivals, N);
    prepare_router(3);
    serves("dllm-serve", two_replicas, arrivals, N, &keeper);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_uint_eq(keeper_request(&keeper, i)->replica, 0);
        ck_assert_uint_eq(keeper_request(&keeper, i)->state, REQUEST_DONE);
    }
    for (uint32_t i = 1; i < N; i++) { /* in the order of their arrival */
        ck_assert_int_le(keeper_request(&keeper, i - 1)->admitted_ns,
                         keeper_request(&keeper, i)->admitted_ns);
    }
    ck_assert_uint_gt(routed.n_held_most, 5);
    keeper_fini(&keeper);
}

TEST(a_router_is_asked_again_at_its_time) {
    struct arrival arrivals[N];
    fill(arrivals, N);
    prepare_router(3);
    routed.until_ns = 10000000;
    serves("dllm-serve", two_replicas, arrivals, N, NULL);
    const uint32_t often = routed.n_route;
    prepare_router(3);
    serves("dllm-serve", two_replicas, arrivals, N, NULL);
    ck_assert_uint_gt(often, routed.n_route + N);
}

TEST(a_router_that_holds_back_for_ever_is_named) {
    struct arrival arrivals[N];
    fill(arrivals, N);
    prepare_router(0);
    refuses("dllm-serve", two_replicas, arrivals, N, false,
            "router scripted starves at s: 24 requests are held back, nothing runs or arrives any "
            "more, and route named no time in until_ns");
    prepare_router(0);
    routed.until_ns = 1000;
    refuses("dllm-serve", two_replicas, arrivals, 1, true,
            "router scripted starves at s: route held requests back 20001 times in a row, for s, "
            "while no step ended, the last time request 0");
    prepare_router(0);
    routed.until_ns = -5;
    refuses("dllm-serve", two_replicas, arrivals, 1, false,
            "router scripted broke its promise at s: route holds request 0 back until -5 ns, which "
            "is not after now (0): name a later time in until_ns, or leave it as it is");
}

TEST(a_router_moves_what_waits) {
    struct arrival arrivals[N];
    struct keeper stays = {0}, moves = {0};
    fill(arrivals, N);
    prepare_router(UINT32_MAX);
    serves("dllm-serve", two_replicas, arrivals, N, &stays);
    prepare_router(UINT32_MAX);
    routed.moves_all = true;
    serves("dllm-serve", two_replicas, arrivals, N, &moves);
    uint32_t n_moved = 0;
    int64_t last_ns[2] = {0, 0};
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_uint_eq(keeper_request(&stays, i)->replica, 0);
        n_moved += keeper_request(&moves, i)->replica == 1;
        last_ns[0] = stays.requests[i].finished_ns;
        last_ns[1] = moves.requests[i].finished_ns;
    }
    ck_assert_uint_gt(n_moved, N / 4);
    ck_assert_int_lt(last_ns[1], last_ns[0]);
    ck_assert_uint_eq(script.n_told[HAPPENED_ARRIVAL], N + n_moved);
    ck_assert_uint_eq(script.n_told[HAPPENED_END], N + n_moved);
    keeper_fini(&stays);
    keeper_fini(&moves);
}

TEST(only_what_waits_moves_to_another_replica) {
    struct arrival arrivals[N];
    fill(arrivals, N);
    prepare_router(UINT32_MAX);
    routed.moves_running = true;
    refuses(
        "dllm-serve", two_replicas, arrivals, N, false,
        "router scripted broke its promise at s: move names request 0, which runs: only waiting "
        "requests move, to another replica");
    prepare_router(UINT32_MAX);
    routed.moves_all = true;
    routed.move_to = 0;
    refuses("dllm-serve", two_replicas, arrivals, N, false,
            "router scripted broke its promise at s: move names request 0, which waits there "
            "already: only waiting requests move, to another replica");
    prepare_router(UINT32_MAX);
    routed.moves_all = true;
    routed.move_to = 2;
    refuses("dllm-serve", two_replicas, arrivals, N, false,
            "router scripted broke its promise at s: move names slot 0 and replica 2, of which "
            "there are 1 and 2");
}

SUITE("see")
