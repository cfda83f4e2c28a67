/* Requests that are swapped out to the host's memory and brought back: what it costs, that they go
 * on where they were under every cache, and what is refused. */
#include "sim/serve/lifecycle.h"
#include "tests/support/rig.h"
#include "tests/support/says.h"

enum { N = 24 };

/* A scheduler that runs what fits, in order of arrival, and swaps out what it is told to. */
static struct script {
    struct scheduler scheduler;
    struct router router;
    struct rng rng;
    uint32_t swaps_in_ten; /* decisions of ten that swap a running request out, by chance */
    uint32_t swap_at;      /* the decision that swaps the first running request; 0: none */
    uint32_t flag;         /* what is said of it */
    uint32_t stops_at;     /* the decision at which the run is interrupted; 0: none */
    bool takes_waiting, moves;
    uint32_t n_calls, n_swaps;
    uint32_t most_running;
    int64_t host_least_bytes;
    volatile sig_atomic_t stop;
} script;

/* The one that is swapped out, or UINT32_MAX. */
static uint32_t chosen(const struct schedule_view *view) {
    if (script.swap_at > 0) {
        return script.n_calls == script.swap_at ? view->running[0] : UINT32_MAX;
    }
    if (view->n_running == 0 || rng_next(&script.rng) % 10 >= script.swaps_in_ten) {
        return UINT32_MAX;
    }
    const uint32_t slot = view->running[rng_next(&script.rng) % view->n_running];
    return view->requests[slot].kv_held_bytes <= view->host_free_bytes ? slot : UINT32_MAX;
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = 0, bytes = 0;
    (void)state;
    script.n_calls++;
    script.stop = script.n_calls == script.stops_at;
    if (view->host_free_bytes < script.host_least_bytes) {
        script.host_least_bytes = view->host_free_bytes;
    }
    uint32_t out = chosen(view), n_running = view->n_running;
    const bool goes = out != UINT32_MAX && view->n_running + view->n_waiting > 1;
    n_running -= goes;
    bytes -= goes ? view->requests[out].kv_held_bytes : 0;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        const bool waits = i >= view->n_running;
        const uint32_t slot = waits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        const int64_t growth = request->kv_bytes - request->kv_held_bytes;
        ck_assert(request->host_bytes == 0 || request->state == REQUEST_PREEMPTED);
        if ((goes && slot == out) || tokens + request->span.queries > view->max_batched_tokens ||
            bytes + growth > view->kv_free_bytes ||
            (waits && (n_running >= script.most_running || n_running >= view->max_requests))) {
            continue;
        }
        tokens += request->span.queries;
        bytes += growth;
        n_running += waits;
        batch->n_admitted += waits;
        batch->selected[batch->n++] = slot;
    }
    if (goes && batch->n > 0) {
        batch->swaps[batch->n_preempted] = script.flag;
        batch->preempted[batch->n_preempted++] = script.takes_waiting ? view->waiting[0] : out;
        batch->n -= script.takes_waiting ? batch->n_admitted : 0;
        batch->n_admitted = script.takes_waiting ? 0 : batch->n_admitted;
        script.n_swaps++;
    }
}

static void prepare(bool grows) {
    memset(&script, 0, sizeof script);
    script.rng = rng_stream(5, "swaps");
    script.flag = 1;
    script.most_running = UINT32_MAX;
    script.host_least_bytes = INT64_MAX;
    script.scheduler = (struct scheduler){.policy = {.abi = POLICY_ABI,
                                                     .kind = POLICY_SCHEDULER,
                                                     .size = sizeof(struct scheduler),
                                                     .name = "scripted",
                                                     .doc = "swaps what the test says"},
                                          .grows = grows,
                                          .schedule = schedule};
}

static struct loop_result serve(const char *name, const char *const *settings, uint32_t n,
                                uint32_t prompt, uint32_t output, struct keeper *keeper,
                                struct err *err) {
    struct arrival arrivals[N];
    for (uint32_t i = 0; i < n; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .prompt_tokens = prompt + 7 * (i % 5),
                           .output_tokens = output);
    }
    struct system *system = rig_system(name, "l40s", true, settings);
    struct executor_sim *sim = executor_sim_open(system, system->settings.replicas);
    struct list_source list = {arrivals, n, 0};
    struct sink sink = keeper != NULL ? keeper_sink(keeper) : (struct sink){0};
    system->scheduler = script.scheduler.schedule != NULL ? &script.scheduler : system->scheduler;
    system->router = script.router.route != NULL ? &script.router : system->router;
    const struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_sim_interface(sim),
             .source = MAKE(struct arrival_source, .state = &list, .next = list_next),
             .sinks = &sink, .n_sinks = keeper != NULL, .seed = 77, .stop = &script.stop);
    struct loop_result result;
    (void)loop_run(&request, &result, err);
    executor_sim_close(sim);
    system_close(system);
    return result;
}

static struct loop_result serves(const char *name, const char *const *settings, uint32_t n,
                                 uint32_t prompt, uint32_t output, struct keeper *keeper) {
    struct err err = {0};
    struct loop_result result = serve(name, settings, n, prompt, output, keeper, &err);
    ck_assert_msg(err.kind == ERR_NONE, "%s", err.text);
    return result;
}

static void refuses(const char *name, const char *const *settings, const char *sentence) {
    struct err err = {0};
    (void)serve(name, settings, 4, 60, 64, NULL, &err);
    ASSERT_SAYS(err.text, sentence);
}

/* ---- what it costs ---- */

/* Of Qwen3-8B a token's keys and values are 36 layers x 2 x 8 heads x 128 x 2 bytes, and a request
 * of 40 + 24 tokens holds four pages of 16: 9,437,184 bytes. Copies are taken to
 * reach 0.873 of an L40S's link, 31.5 GB/s. */
static const int64_t page_bytes = INT64_C(16) * 36 * 2 * 8 * 128 * 2, copy_ns = 343177;

TEST(a_card_whose_copies_were_measured_is_priced_by_them) {
    struct err err = {0};
    const struct gpu *h200 = gpu_find("h200", &err), *h100 = gpu_find("h100", &err);
    ck_assert_double_eq_tol(gpu_copy_ns(h200, 55000000), 1e6, 1);
    ck_assert_double_eq_tol(gpu_copy_ns(h100, 54999000), 1e6, 1);
    ck_assert_double_eq(gpu_copy_ns(h100, 0), 0);
}

/* The second request takes the place of the first after one step, and runs to its end. */
static struct loop_result take_turns(const char *overlaps, struct keeper *keeper) {
    const char *const settings[] = {"page_tokens=16", "pool_pages=7", "swap.host_bytes=1GiB",
                                    "skip_ahead=off", overlaps,       NULL};
    prepare(false);
    script.swap_at = 2;
    script.most_running = 1;
    return serves("ar", settings, 2, 40, 24, keeper);
}

TEST(a_copy_takes_its_bytes_over_the_link_before_the_step) {
    struct keeper keeper = {0};
    const struct loop_result result = take_turns("swap.overlaps=off", &keeper);
    ck_assert_uint_eq(result.completed, 2);
    struct swap sum = {0};
    int64_t end_ns = 0, stalls_ns = 0;
    for (size_t i = 0; i < keeper.n_steps; i++) {
        const struct step_record *r = &keeper.steps[i].record;
        ck_assert_int_eq(r->start_ns, end_ns + r->swap.stall_ns);
        ck_assert_int_eq(r->swap.stall_ns, swap_is_any(&r->swap) ? copy_ns : 0);
        if (swap_is_any(&r->swap)) {
            ck_assert_int_eq(r->swap.host_used_bytes, r->swap.n_out > 0 ? 4 * page_bytes : 0);
        }
        sum.n_out += r->swap.n_out;
        sum.n_in += r->swap.n_in;
        sum.out_bytes += r->swap.out_bytes;
        sum.in_bytes += r->swap.in_bytes;
        stalls_ns += r->swap.stall_ns;
        end_ns = r->end_ns;
    }
    ck_assert(keeper.steps[1].record.swap.n_out == 1 && keeper.steps[1].record.swap.n_in == 0);
    ck_assert(sum.n_out == 1 && sum.n_in == 1);
    ck_assert_int_eq(sum.out_bytes, 4 * page_bytes);
    ck_assert_int_eq(sum.in_bytes, 4 * page_bytes);
    ck_assert_int_eq(stalls_ns, 2 * copy_ns);
    ck_assert_int_eq(result.busy_ns, result.end_ns - 2 * copy_ns);
    keeper_fini(&keeper);
}

/* A step of one request alone takes longer than its copy. */
TEST(copies_beside_a_pass_take_what_goes_beyond_it) {
    struct keeper before = {0}, beside = {0};
    const int64_t before_ns = take_turns("swap.overlaps=off", &before).end_ns;
    const int64_t beside_ns = take_turns("swap.overlaps=on", &beside).end_ns;
    const struct step_record *step = &beside.steps[1].record;
    ck_assert_int_gt(step->end_ns - step->start_ns, copy_ns);
    ck_assert_int_eq(step->swap.stall_ns, 0);
    ck_assert_int_eq(step->swap.out_bytes, 4 * page_bytes);
    ck_assert_int_eq(beside_ns, before_ns - 2 * copy_ns);
    keeper_fini(&before);
    keeper_fini(&beside);
    /* 8,000 tokens and their answer are 503 pages, whose copy takes longer than a step. */
    const char *const settings[] = {"page_tokens=16",           "pool_pages=510",
                                    "skip_ahead=off",           "swap.host_bytes=8GiB",
                                    "swap.overlaps=on",         "context_tokens=16384",
                                    "max_batched_tokens=16384", NULL};
    struct keeper keeper = {0};
    prepare(false);
    script.swap_at = 2;
    script.most_running = 1;
    serves("ar", settings, 2, 8000, 40, &keeper);
    const struct step_record *first = &keeper.steps[0].record, *back = NULL;
    for (size_t i = 0; i < keeper.n_steps; i++) {
        back = keeper.steps[i].record.swap.n_in > 0 ? &keeper.steps[i].record : back;
    }
    ck_assert_ptr_nonnull(back);
    ck_assert_int_eq(first->swap.stall_ns, 0);
    const int64_t whole_ns = llround(503 * (double)page_bytes / (0.873 * 31.5));
    ck_assert_int_eq(back->swap.in_bytes, 503 * page_bytes);
    ck_assert_int_eq(back->swap.stall_ns, whole_ns - (back->end_ns - back->start_ns));
    ck_assert_int_gt(back->swap.stall_ns, 0);
    keeper_fini(&keeper);
}

/* Where workspace and cached state share memory for one request: the one that goes makes room. */
TEST(a_slab_that_is_swapped_out_makes_room_for_the_next) {
    const char *const settings[] = {"scheduler=continuous",
                                    "max_requests=8",
                                    "context_tokens=2048",
                                    "skip_ahead=off",
                                    "memory_utilization=0.38",
                                    "swap.host_bytes=8GiB",
                                    NULL};
    struct keeper keeper = {0};
    prepare(false);
    script.swap_at = 2;
    const struct loop_result result = serves("fast-dllm", settings, 2, 1900, 64, &keeper);
    ck_assert_uint_eq(result.completed, 2);
    for (size_t i = 0; i < keeper.n_steps; i++) {
        ck_assert_uint_eq(keeper.steps[i].record.n, 1);
        ck_assert_uint_eq(keeper.steps[i].record.swap.n_out, i == 1);
    }
    keeper_fini(&keeper);
}

/* ---- where it goes on ---- */

static const struct {
    const char *system, *setting;
    bool grows;
} kinds[] = {
    {"dllm-serve", "cache=dual", false},    {"dllm-serve", "kv=pages", false},
    {"dllm-serve", "cache=paced", false},   {"dllm-serve", "decoder=threshold", false},
    {"fast-dllm", "kv=slab", false},        {"entropy-cache", "max_requests=0", false},
    {"dkv-cache", "max_requests=0", false}, {"vanilla", "max_requests=0", false},
    {"sdar", "block_tokens=8", true},       {"sdar", "block_tokens=8", false},
    {"dc+", "max_requests=0", true},        {"focus", "max_requests=0", true},
    {"ar", "max_requests=0", true},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* Whatever is swapped out when, each request takes the passes that it would have taken. */
TEST_EACH(what_was_swapped_out_goes_on_where_it_was, N_KINDS) {
    const char *const settings[] = {"skip_ahead=off", "swap.host_bytes=8GiB", kinds[_i].setting,
                                    NULL};
    struct keeper plain = {0}, swapped = {0};
    prepare(kinds[_i].grows);
    script.most_running = 6;
    serves(kinds[_i].system, settings, N, 60, 64, &plain);
    prepare(kinds[_i].grows);
    script.most_running = 6;
    script.swaps_in_ten = 8;
    serves(kinds[_i].system, settings, N, 60, 64, &swapped);
    ck_assert_uint_gt(script.n_swaps, 5);
    uint32_t n_preempted = 0;
    for (uint32_t i = 0; i < N; i++) {
        const struct request_record *a = keeper_request(&plain, i),
                                    *b = keeper_request(&swapped, i);
        ck_assert_uint_eq(a->steps, b->steps);
        ck_assert_uint_eq(a->refresh_steps, b->refresh_steps);
        ck_assert_uint_eq(a->tokens_processed, b->tokens_processed);
        ck_assert_uint_eq(a->committed_tokens, b->committed_tokens);
        ck_assert_uint_eq(b->state, REQUEST_DONE);
        n_preempted += b->preemptions;
    }
    struct swap sum = {0};
    for (size_t i = 0; i < swapped.n_steps; i++) {
        const struct swap *swap = &swapped.steps[i].record.swap;
        sum.n_out += swap->n_out;
        sum.n_in += swap->n_in;
        sum.out_bytes += swap->out_bytes;
        sum.in_bytes += swap->in_bytes;
    }
    ck_assert(n_preempted == script.n_swaps && sum.n_out == n_preempted && sum.n_in == n_preempted);
    ck_assert_int_eq(sum.out_bytes, sum.in_bytes);
    keeper_fini(&plain);
    keeper_fini(&swapped);
}

/* ---- preempts = swap ---- */

/* Every token once, but for the host's memory, which holds one request: others are computed anew.
 */
TEST(chunked_swaps_while_the_host_has_room_and_computes_anew_else) {
    static const char *const sizes[] = {"swap.host_bytes=8GiB", "swap.host_bytes=20MiB",
                                        "swap.host_bytes=1"};
    uint64_t tokens[3], n_swapped[3] = {0}, n_preempted[3] = {0};
    for (int i = 0; i < 3; i++) {
        const char *const settings[] = {"page_tokens=16", "pool_pages=26", sizes[i],
                                        "scheduler.preempts=swap", NULL};
        struct keeper keeper = {0};
        memset(&script, 0, sizeof script);
        serves("ar", settings, N, 60, 64, &keeper);
        tokens[i] = keeper_tokens(&keeper);
        for (size_t k = 0; k < keeper.n_steps; k++) {
            n_swapped[i] += keeper.steps[k].record.swap.n_out;
            ck_assert_int_le(keeper.steps[k].record.swap.host_used_bytes,
                             i == 0 ? INT64_C(8) << 30 : INT64_C(20) << 20);
        }
        for (uint32_t k = 0; k < N; k++) {
            n_preempted[i] += keeper_request(&keeper, k)->preemptions;
        }
        keeper_fini(&keeper);
    }
    uint64_t once = 0; /* the last token of an output is no query */
    for (uint32_t i = 0; i < N; i++) {
        once += 60 + 7 * (i % 5) + 63;
    }
    ck_assert_uint_eq(tokens[0], once);
    ck_assert(n_swapped[0] == n_preempted[0] && n_swapped[0] > 10);
    ck_assert(n_swapped[1] > 0 && n_swapped[1] < n_preempted[1] && tokens[1] > once);
    ck_assert(n_swapped[2] == 0 && n_preempted[2] > 0 && tokens[2] > tokens[1]);
}

/* Under fast-serve requests of short answers come after long ones of which each has a place. */
static void preempt_for_turns(const char *name, const char *host, uint64_t *n_preempted,
                              uint64_t *n_swapped) {
    static const char how[] = "scheduler.preempts=swap";
    const char *const settings[] = {"scheduler=fast-serve",
                                    "scheduler.quantum=64",
                                    "scheduler.aging=1ms",
                                    "max_requests=2",
                                    how,
                                    host,
                                    NULL};
    struct keeper keeper = {0};
    memset(&script, 0, sizeof script);
    *n_preempted = *n_swapped = 0;
    ck_assert_uint_eq(serves(name, settings, N, 60, 96, &keeper).completed, N);
    for (size_t k = 0; k < keeper.n_steps; k++) {
        *n_swapped += keeper.steps[k].record.swap.n_out;
    }
    for (uint32_t k = 0; k < N; k++) {
        *n_preempted += keeper_request(&keeper, k)->preemptions;
    }
    keeper_fini(&keeper);
}

TEST(schedulers_of_turns_swap_whatever_the_cache_and_compute_exact_rows_anew_else) {
    uint64_t n_preempted, n_swapped;
    preempt_for_turns("dllm-serve", "swap.host_bytes=8GiB", &n_preempted, &n_swapped);
    ck_assert(n_swapped > 0 && n_swapped == n_preempted);
    preempt_for_turns("dllm-serve", "swap.host_bytes=1MiB", &n_preempted, &n_swapped);
    ck_assert(n_swapped == 0 && n_preempted == 0);
    preempt_for_turns("sdar", "swap.host_bytes=8GiB", &n_preempted, &n_swapped);
    ck_assert(n_swapped > 0 && n_swapped == n_preempted);
    preempt_for_turns("sdar", "swap.host_bytes=1MiB", &n_preempted, &n_swapped);
    ck_assert(n_swapped == 0 && n_preempted > 0);
}

static void opens_not(const char *name, const char *gpu, const char *const *words,
                      const char *sentence) {
    struct setting settings[8];
    uint32_t n = 0;
    for (; words[n] != NULL; n++) {
        settings[n] = (struct setting){.place = "test"};
        snprintf(settings[n].key, sizeof settings[n].key, "%.*s", (int)strcspn(words[n], "="),
                 words[n]);
        snprintf(settings[n].value, sizeof settings[n].value, "%s", strchr(words[n], '=') + 1);
    }
    const struct system_request request = {
        .system = name, .gpu = gpu, .overrides = settings, .n_overrides = n, .roofline = true};
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_int_ne(system_open(&request, &system, &err), 0);
    ASSERT_SAYS(err.text, sentence);
}

TEST(a_system_says_what_it_lacks) {
    static const char *const no_memory[] = {"scheduler.preempts=swap", NULL};
    static const char *const shares[] = {"prefix_caching=on", "swap.host_bytes=1GiB", NULL};
    opens_not("ar", "l40s", no_memory,
              "scheduler.preempts = swap moves requests to the host's memory, and there is none: "
              "set swap.host_bytes (such as 64GiB), or scheduler.preempts = recompute");
    opens_not("ar", "l40s", shares,
              "swap.host_bytes is for requests whose pages are their own, and prefix_caching "
              "shares them: set prefix_caching = off");
}

/* ---- what is refused ---- */

static const char *const some[] = {"max_requests=3", "swap.host_bytes=8GiB", NULL};
static const char *const little[] = {"max_requests=3", "swap.host_bytes=1MiB", NULL};
static const char *const none[] = {"max_requests=3", NULL};

TEST(what_cannot_be_swapped_is_said) {
    prepare(false);
    script.swap_at = 3;
    refuses("dllm-serve", none,
            "scheduler scripted broke its promise at s: schedule swaps request 0 out, but there is "
            "no host memory: set swap.host_bytes, or leave swaps 0 where host_total_bytes is");
    prepare(false);
    script.swap_at = 3;
    refuses("dllm-serve", little,
            "scheduler scripted broke its promise at s: bytes swapped out to the host's memory");
    prepare(false);
    script.swap_at = 3;
    script.flag = 2;
    refuses("dllm-serve", some,
            "scheduler scripted broke its promise at s: the flag swaps (2 of at most 1)");
    prepare(false);
    script.swap_at = 3;
    script.takes_waiting = true;
    refuses("dllm-serve", some,
            "scheduler scripted broke its promise at s: it listed slot 3, which is queued, as a "
            "preempted request");
    prepare(false);
    script.swap_at = 3;
    script.flag = 0;
    refuses("dllm-serve", some,
            "scheduler scripted broke its promise at s: requests preempted though their cached "
            "state is not exact (1 of at most 0)");
}

static uint32_t to_first(void *state, const struct request *request, const struct route_view *view,
                         int64_t *until_ns) {
    (void)state, (void)view, (void)request, (void)until_ns;
    return 0;
}

static uint32_t move_swapped(void *state, const struct route_view *view, struct route_move *moves,
                             uint32_t capacity) {
    (void)state, (void)capacity;
    const struct replica_view *first = &view->replicas[0];
    for (uint32_t i = 0; i < first->n_waiting; i++) {
        if (view->requests[first->waiting[i]].state == REQUEST_PREEMPTED) {
            moves[0] = (struct route_move){.slot = first->waiting[i], .to = 1};
            return 1;
        }
    }
    return 0;
}

TEST(what_is_swapped_out_stays_with_its_replica) {
    static const char *const two[] = {"max_requests=3", "swap.host_bytes=8GiB", "replicas=2", NULL};
    prepare(false);
    script.swap_at = 3;
    script.router = (struct router){.policy = {.abi = POLICY_ABI,
                                               .kind = POLICY_ROUTER,
                                               .size = sizeof(struct router),
                                               .name = "scripted",
                                               .doc = "moves what was swapped out"},
                                    .route = to_first,
                                    .move = move_swapped};
    refuses("dllm-serve", two,
            "router scripted broke its promise at s: move names request 0, which lies in the "
            "host's memory of its replica: what is swapped out is brought back where it was "
            "(host_bytes is 0 of all others)");
}

/* What is left in the host's memory goes with the requests that leave (the loop's audit). */
TEST(an_interrupted_run_leaves_nothing_behind) {
    prepare(false);
    script.swap_at = 3;
    script.most_running = 2;
    script.stops_at = 4;
    const struct loop_result result = serves("dllm-serve", some, 6, 60, 64, NULL);
    ck_assert(result.interrupted && script.n_swaps == 1 && result.rejected > 0);
}

SUITE("swap")
