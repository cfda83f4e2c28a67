/* The loop with exact keys and values: pages that grow, chunks, preemption, and the schedulers that
 * see to them; the truth of queues with one token a block. */
#include "tests/support/rig.h"

#include "sim/base/num.h"
#include "tests/support/says.h"

/* ---- a run that is watched: every page is somebody's, every position computed when it must ----
 */

enum { MOST_IDS = 2048, MOST_SLOTS = 512, MOST_REPLICAS = 4 };

/* For what is checked at every step: ck_assert writes to a file each time. */
#define MUST(holds)                                                                                \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            ck_abort_msg("not so: %s", #holds);                                                    \
        }                                                                                          \
    } while (0)

struct run {
    struct system *system;
    struct executor inner;
    struct keeper keeper;
    struct loop_result result;
    /* By slot, of those that hold memory; NULL for others. */
    const struct request *holders[MOST_SLOTS];
    uint32_t replica_of[MOST_SLOTS];
    uint32_t n_holders;
    int64_t held_bytes[MOST_REPLICAS]; /* when the batch in flight was submitted */
    /* By request id. */
    uint32_t cached[MOST_IDS], written[MOST_IDS], committed[MOST_IDS];
    uint64_t reported[MOST_IDS]; /* committed tokens by the step records */
    uint64_t n_preempted, n_chunks, n_steps, stop_after_steps;
    bool is_known[MOST_IDS]; /* the active block was run since it began, or was given up */
    bool leaves_out;         /* positions of such a block may stay out */
    bool keeps_steps;        /* all of them, not the last alone */
    volatile sig_atomic_t stop;
};

static int watch_admit(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       const struct beginning *beginning, struct err *err) {
    struct run *run = state;
    (void)err;
    (void)beginning;
    MUST(slot < MOST_SLOTS && run->holders[slot] == NULL);
    run->holders[slot] = request;
    run->replica_of[slot] = replica;
    run->n_holders++;
    run->cached[request->id] = 0;
    run->is_known[request->id] = false;
    run->written[request->id] = 0;
    return 0;
}

static void watch_release(void *state, uint32_t replica, uint32_t slot) {
    struct run *run = state;
    MUST(run->holders[slot] != NULL && run->replica_of[slot] == replica);
    run->holders[slot] = NULL;
    run->n_holders--;
}

/* What the request computes follows from its lengths and from what it committed, and stands behind
 * what it computed since it was admitted. */
static void check_span(struct run *run, const struct request *r) {
    const struct span *span = &r->span;
    uint32_t *cached = &run->cached[r->id];
    MUST(r->committed_tokens >= run->committed[r->id]);
    run->committed[r->id] = r->committed_tokens;
    uint32_t known = r->prompt_tokens + r->committed_tokens;
    if (r->causal == SEES_TOKENS) {
        MUST(span->context == *cached && span->context + span->queries <= known);
        MUST(span->logit_rows == (span->context + span->queries == known));
        *cached += span->queries;
        return;
    }
    uint32_t block = r->block_tokens, start = (known - (window_masked(r) == 0)) / block * block;
    if (run->written[r->id] == start && start > 0) { /* the block before is done */
        *cached = start;
        run->is_known[r->id] = false;
    }
    if (span->phase == PHASE_PREFILL) {
        MUST(span->queries % block == 0);
        MUST(span->context == *cached && *cached + span->queries <= start);
        run->n_chunks += *cached + span->queries < start;
        *cached += span->queries;
        return;
    }
    uint32_t end = r->canvas_tokens - start < block ? r->canvas_tokens : start + block;
    MUST(*cached == start && span->context + span->queries == end);
    /* Policies that leave positions out run all of them once, and again where they were given up.
     */
    MUST(run->is_known[r->id] || span->context == start);
    run->is_known[r->id] = run->leaves_out;
    run->written[r->id] = span->phase == PHASE_COMMIT ? end : 0;
}

static int watch_submit(void *state, const struct submission *submission, struct err *err) {
    struct run *run = state;
    int64_t held_bytes = 0;
    for (uint32_t slot = 0; slot < run->system->settings.max_in_system; slot++) {
        const struct request *request = run->holders[slot];
        if (request != NULL && run->replica_of[slot] == submission->replica) {
            MUST(request->state == REQUEST_RUNNING);
            held_bytes += request->kv_held_bytes;
        }
    }
    MUST(held_bytes <= run->system->budget.pool_bytes);
    run->held_bytes[submission->replica] = held_bytes;
    for (uint32_t i = 0; i < submission->step.n_slots; i++) {
        const struct request *request = &submission->step.requests[submission->step.slots[i]];
        MUST(run->holders[submission->step.slots[i]] == request);
        MUST(request->kv_held_bytes >=
             budget_request_bytes(&run->system->budget,
                                  request->span.context + request->span.queries));
        check_span(run, request);
    }
    return run->inner.submit(run->inner.state, submission, err);
}

static int watch_wait(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    const struct run *run = state;
    return run->inner.wait(run->inner.state, until_ns, out, err);
}

static int64_t watch_estimate(const void *state, uint32_t replica, const struct step_shape *shape,
                              int64_t workspace_bytes, double *joules) {
    const struct run *run = state;
    return run->inner.estimate_ns(run->inner.state, replica, shape, workspace_bytes, joules);
}

static int watch_step(void *state, const struct step_record *record, struct err *err) {
    struct run *run = state;
    MUST(record->kv_used_bytes == run->held_bytes[record->replica]);
    for (uint32_t i = 0; i < record->n; i++) {
        run->reported[record->request_ids[i]] += record->repeat * record->commit_tokens[i];
    }
    run->n_steps += record->repeat;
    run->stop = run->stop_after_steps > 0 && run->n_steps >= run->stop_after_steps;
    run->keeper.n_steps = run->keeps_steps ? run->keeper.n_steps : 0;
    return keep_step(&run->keeper, record, err);
}

static int watch_event(void *state, const struct event_record *record, struct err *err) {
    struct run *run = state;
    (void)err;
    run->n_preempted += record->kind == EVENT_PREEMPT;
    return 0;
}

static int watch_request(void *state, const struct request_record *record, struct err *err) {
    struct run *run = state;
    return keep_request(&run->keeper, record, err);
}

/* Runs on `inner`, or on the simulated executor when it is NULL. */
static void run_watched(struct run *run, const struct executor *inner, const struct arrival *list,
                        size_t n) {
    struct list_source source = {list, n, 0};
    struct executor_sim *sim = executor_sim_open(run->system, run->system->settings.replicas);
    run->inner = inner != NULL ? *inner : executor_sim_interface(sim);
    const struct sink sink = MAKE(struct sink, .state = run, .request = watch_request,
                                  .step = watch_step, .event = watch_event);
    const struct loop_request request =
        MAKE(struct loop_request, .system = run->system,
             .executor = {.state = run,
                          .wants_spans = run->inner.wants_spans,
                          .admit = watch_admit,
                          .release = watch_release,
                          .submit = watch_submit,
                          .wait = watch_wait,
                          .estimate_ns = watch_estimate},
             .source = {&source, list_next, NULL}, .sinks = &sink, .n_sinks = 1,
             .records_members = true, .seed = 1, .stop = &run->stop);
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &run->result, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(run->n_holders, 0);
    executor_sim_close(sim);
}

static struct run *run_open(const char *name, const char *const *settings, uint32_t pages) {
    struct run *run = calloc(1, sizeof *run);
    run->system = rig_system(name, "a100-80g", true, settings);
    run->system->settings.max_in_system = MOST_SLOTS;
    run->leaves_out = strcmp(run->system->cache->policy.name, "exact") != 0;
    if (pages > 0) {
        run->system->budget.pool_bytes = pages * run->system->budget.unit_bytes;
    }
    return run;
}

static void run_close(struct run *run) {
    keeper_fini(&run->keeper);
    system_close(run->system);
    free(run);
}

static void make_arrivals(struct arrival *list, size_t n, uint64_t seed, double rate,
                          uint32_t most_prompt, uint32_t most_output) {
    struct poisson_source source =
        MAKE(struct poisson_source, .rng = rng_stream(seed, "arrivals"),
             .lengths = rng_stream(seed, "lengths"), .rate = rate, .n = n, .prompt_min = 1,
             .prompt_max = most_prompt, .output_min = 1, .output_max = most_output);
    struct err err = {0};
    for (size_t i = 0; i < n; i++) {
        ck_assert(poisson_next(&source, &list[i], &err) == SOURCE_ROW);
    }
}

static void check_requests(const struct run *run, size_t n) {
    const struct keeper *keeper = &run->keeper;
    uint64_t steps = 0, preemptions = 0;
    MUST(keeper->n_requests == n);
    MUST(run->result.completed + run->result.rejected == n);
    for (size_t i = 0; i < n; i++) {
        const struct request_record *r = &keeper->requests[i];
        steps += r->steps;
        preemptions += r->preemptions;
        MUST(r->state == REQUEST_DONE || r->steps == 0);
        MUST(run->reported[r->id] == (r->state == REQUEST_DONE ? r->output_tokens : 0));
    }
    MUST(steps == run->result.request_steps);
    MUST(preemptions == run->n_preempted);
}

static const char *const schedulers[][2] = {
    {"scheduler=chunked", NULL},
    {"scheduler=lmdeploy", NULL},
    {"scheduler=lmdeploy", "scheduler.trigger=fork"},
    {"scheduler=lmdeploy", "scheduler.multi_loop=off"},
    {"scheduler=sglang", NULL},
    {"scheduler=sglang", "scheduler.mode=lockstep"},
    {"scheduler=sglang", "scheduler.prefill_blocks=2"},
    {"scheduler=phase-multiplexed", NULL},
    {"scheduler=continuous", NULL},
    {"scheduler=static", NULL},
};
enum { N_SCHEDULERS = sizeof schedulers / sizeof schedulers[0], N_GROWING = 7 };

TEST(pages_and_tokens_are_conserved_over_random_systems) {
    enum { N = 80 };
    static const char *const caches[] = {"cache=exact",     "cache=exact", "cache=delayed",
                                         "cache=neighbour", "cache=focus", "cache=small-blocks"};
    /* The second's logits are shifted, where DC cannot be; the third is autoregressive. */
    static const char *const names[] = {"sdar", "fast-dllm-v2", "vllm-ar"};
    struct rng rng = rng_stream(3, "exact systems");
    uint64_t n_preempted = 0, n_chunks = 0;
    for (uint32_t round = 0; round < 132; round++) {
        const char *const *scheduler = schedulers[round % N_SCHEDULERS];
        bool by_token = round % 3 == 2;
        const char *cache = caches[rig_between(&rng, 0, sizeof caches / sizeof caches[0] - 1)];
        cache = round % 3 == 1 && strcmp(cache, "cache=delayed") == 0 ? "cache=neighbour" : cache;
        uint32_t block = by_token ? 1 : 4u << rig_between(&rng, 0, 3);
        uint32_t page = 1u << rig_between(&rng, 0, 6);
        char tokens[64], blocks[64], steps[64], pages[64];
        uint32_t least = round % N_SCHEDULERS >= N_GROWING ? 512 : block;
        snprintf(tokens, sizeof tokens, "max_batched_tokens=%u", least * rig_between(&rng, 1, 16));
        snprintf(blocks, sizeof blocks, "block_tokens=%u", block);
        snprintf(steps, sizeof steps, "steps_per_block=%u", rig_between(&rng, 1, block));
        snprintf(pages, sizeof pages, "page_tokens=%u", page);
        const char *const settings[] = {
            scheduler[0],
            tokens,
            blocks,
            steps,
            pages,
            round % 2 == 0 ? "decoder=fixed" : "decoder=threshold",
            round % 5 == 0 ? "cache.commit_last=off" : "cache.commit_last=on",
            round % 7 == 0 ? "cache.ahead_blocks=2" : "cache.ahead_blocks=0",
            cache,
            "max_requests=24",
            "prefix_caching=off",
            round % 4 == 0 ? "decides_ahead=on" : "decides_ahead=off",
            scheduler[1],
            NULL};
        struct arrival list[N + 1];
        make_arrivals(list, N, round, 1 + 200 * rng_uniform(&rng), 300, 120);
        /* The last one finds every page given back. */
        list[N] = MAKE(struct arrival, .arrival_ns = INT64_C(1000000000000000), .id = N,
                       .prompt_tokens = 10, .output_tokens = 10);
        uint32_t most = (uint32_t)ceil_div(420 + 2 * block, page);
        struct run *run =
            run_open(names[round % 3], settings, most * rig_between(&rng, 10, 40) / 10);
        run_watched(run, NULL, list, N + 1);
        check_requests(run, N + 1);
        ck_assert_uint_eq(run->result.completed, N + 1);
        const struct kept_step *last = &run->keeper.steps[run->keeper.n_steps - 1];
        ck_assert_int_le(last->record.kv_used_bytes,
                         budget_request_bytes(&run->system->budget, 20));
        n_preempted += run->n_preempted;
        n_chunks += run->n_chunks;
        run_close(run);
    }
    ck_assert_uint_gt(n_preempted, 500);
    ck_assert_uint_gt(n_chunks, 2000);
}

TEST(an_interrupted_run_gives_every_page_back) {
    enum { N = 60 };
    struct arrival list[N];
    make_arrivals(list, N, 4, 1000, 300, 100);
    for (int i = 0; i < N_GROWING; i++) {
        for (uint64_t stop = 1; stop < 400; stop += 57) {
            const char *const settings[] = {schedulers[i][0], "page_tokens=16",
                                            "max_batched_tokens=256", schedulers[i][1], NULL};
            struct run *run = run_open("sdar", settings, 60);
            run->stop_after_steps = stop;
            run_watched(run, NULL, list, N); /* asserts that nobody holds memory */
            ck_assert(run->result.interrupted);
            ck_assert_uint_eq(run->result.completed + run->result.rejected, run->result.arrived);
            run_close(run);
        }
    }
}

TEST(replicas_keep_their_pages_apart) {
    enum { N = 200 };
    struct arrival list[N];
    make_arrivals(list, N, 6, 400, 300, 60);
    for (int i = 0; i < N_SCHEDULERS; i++) {
        const char *const settings[] = {schedulers[i][0],
                                        "replicas=3",
                                        "page_tokens=16",
                                        "router=least-loaded",
                                        "max_batched_tokens=512",
                                        schedulers[i][1],
                                        NULL};
        struct run *run = run_open("sdar", settings, 60);
        run_watched(run, NULL, list, N);
        check_requests(run, N);
        ck_assert_uint_eq(run->result.completed, N);
        run_close(run);
    }
}

static uint64_t n_asked;
static const struct scheduler *asked_scheduler;

static void counted_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    n_asked++;
    asked_scheduler->schedule(state, view, batch);
}

/* `expected`: for each step its query tokens, those computed and discarded included, and the
 * requests that take part, "8:01 4:0". */
static void check_steps(const char *name, const char *const *settings, uint32_t pages,
                        const struct arrival *list, size_t n, const char *expected) {
    struct run *run = run_open(name, settings, pages);
    struct fixed_executor fixed = {.mean_ns = 1e6};
    const struct executor inner = fixed_interface(&fixed);
    struct scheduler counting = *run->system->scheduler;
    char text[1024] = "";
    size_t used = 0;
    asked_scheduler = run->system->scheduler;
    counting.schedule = counted_schedule;
    run->system->scheduler = &counting;
    run->keeps_steps = true;
    n_asked = 0;
    run_watched(run, &inner, list, n);
    check_requests(run, n);
    for (size_t i = 0; i < run->keeper.n_steps; i++) {
        const struct kept_step *step = &run->keeper.steps[i];
        ck_assert_int_eq(step->record.start_ns, (int64_t)i * 1000000);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 i == 0 ? "%d:" : " %d:", (int)step->sym[SYM_TOKENS]);
        for (uint32_t j = 0; j < step->record.n; j++) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%d", (int)step->ids[j]);
        }
    }
    ck_assert_str_eq(text, expected);
    run_close(run);
}

#define CHECK_STEPS(name, settings, pages, list, expected)                                         \
    check_steps(name, settings, pages, list, sizeof(list) / sizeof((list)[0]), expected)

/* Blocks of 4 in 2 steps, pages of a block. */
#define BY_HAND                                                                                    \
    "block_tokens=4", "steps_per_block=2", "decoder=fixed", "page_tokens=4", "max_requests=8"

TEST(a_block_takes_its_steps_and_a_commit_pass) {
    static const struct arrival list[] = {{.prompt_tokens = 8, .output_tokens = 8}};
    static const char *const settings[] = {BY_HAND, NULL};
    CHECK_STEPS("sdar", settings, 0, list, "8:0 4:0 4:0 4:0 4:0 4:0 4:0");
    static const char *const saving[] = {BY_HAND, "cache.commit_last=off", NULL};
    CHECK_STEPS("sdar", saving, 0, list, "8:0 4:0 4:0 4:0 4:0 4:0");
}

/* Two requests of 3 pages at their ends, in a pool of 5. */
#define TWO_FOR_FIVE                                                                               \
    {                                                                                              \
        {.id = 0, .prompt_tokens = 4, .output_tokens = 8}, {                                       \
            .id = 1, .prompt_tokens = 4, .output_tokens = 8                                        \
        }                                                                                          \
    }

TEST(where_logits_are_shifted_the_pass_before_a_block_decides_its_first_position) {
#define SHIFTED                                                                                    \
    "cache=exact", "scheduler=chunked", "block_tokens=4", "steps_per_block=4", "decoder=fixed",    \
        "page_tokens=4", "max_requests=8"
    static const char *const shifted[] = {SHIFTED, NULL};
    static const char *const saving[] = {SHIFTED, "cache.commit_last=off", NULL};
    static const char *const frugal[] = {SHIFTED, "cache.commit_logits=off", NULL};
    /* The prefill decides one of four, the commit pass one of the next four. */
    static const struct arrival list[] = {{.prompt_tokens = 8, .output_tokens = 8}};
    CHECK_STEPS("fast-dllm-v2", shifted, 0, list, "8:0 4:0 4:0 4:0 4:0 4:0 4:0 4:0 4:0");
    CHECK_STEPS("fast-dllm-v2", frugal, 0, list, "8:0 4:0 4:0 4:0 4:0 4:0 4:0 4:0 4:0");
    /* Where prompt tokens stand in the block, nothing before it decides; the last block is the one
     * position that the commit pass yields. */
    static const struct arrival odd[] = {{.prompt_tokens = 10, .output_tokens = 3}};
    CHECK_STEPS("fast-dllm-v2", shifted, 0, odd, "8:0 4:0 4:0 4:0 1:0");
    CHECK_STEPS("fast-dllm-v2", saving, 0, odd, "8:0 4:0 4:0 4:0");
    /* One output token behind whole blocks is the prefill's. */
    static const struct arrival one[] = {{.prompt_tokens = 8, .output_tokens = 1}};
    CHECK_STEPS("fast-dllm-v2", saving, 0, one, "8:0");
    /* A prefill in chunks yields at its end; one that is computed anew yields nothing more. */
    static const char *const chunks[] = {SHIFTED, "max_batched_tokens=4", NULL};
    CHECK_STEPS("fast-dllm-v2", chunks, 0, one, "4:0 4:0 1:0");
    static const struct arrival two[] = TWO_FOR_FIVE;
    CHECK_STEPS("fast-dllm-v2", shifted, 5, two,
                "8:01 8:01 8:01 8:01 8:01 4:0 4:0 4:0 4:0 8:1 4:1 4:1 4:1 4:1");
#undef SHIFTED
}

TEST(prompt_tokens_that_fill_no_block_stand_fixed_in_the_first) {
    /* 8 of 10 are prefilled; of the first block 2 positions are left, which one step decides. */
    static const struct arrival list[] = {{.prompt_tokens = 10, .output_tokens = 6}};
    static const char *const settings[] = {BY_HAND, NULL};
    CHECK_STEPS("sdar", settings, 0, list, "8:0 4:0 4:0 4:0 4:0 4:0");
    /* The last block is shorter: 2 + 3 positions of a canvas of 5 + 6. */
    static const struct arrival odd[] = {{.prompt_tokens = 5, .output_tokens = 6}};
    CHECK_STEPS("sdar", settings, 0, odd, "4:0 4:0 4:0 4:0 3:0 3:0 3:0");
}

TEST(a_prompt_shorter_than_a_block_is_never_prefilled) {
    static const struct arrival list[] = {{.prompt_tokens = 3, .output_tokens = 5}};
    static const char *const settings[] = {BY_HAND, NULL};
    CHECK_STEPS("sdar", settings, 0, list, "4:0 4:0 4:0 4:0 4:0");
    static const char *const lmdeploy[] = {BY_HAND, "scheduler=lmdeploy", NULL};
    CHECK_STEPS("sdar", lmdeploy, 0, list, "4:0 4:0 4:0 4:0 4:0");
}

TEST(a_long_prompt_is_taken_in_chunks_beside_others) {
    static const struct arrival tokens[] = {
        {.id = 0, .prompt_tokens = 10, .output_tokens = 3},
        {.arrival_ns = 500000, .id = 1, .prompt_tokens = 4, .output_tokens = 2}};
    static const char *by_token[] = {"max_batched_tokens=8", "prefix_caching=off",
                                     "decides_ahead=off", NULL};
    CHECK_STEPS("vllm-ar", by_token, 0, tokens, "8:0 6:01 2:01 1:0");
    /* Who decides while a step runs learns of its arrivals a step later. */
    by_token[2] = "decides_ahead=on";
    CHECK_STEPS("vllm-ar", by_token, 0, tokens, "8:0 2:0 5:01 2:01");
    /* 16 prompt tokens in steps of 11, of which 8 are whole blocks; the other's 12 wait until
     * tokens are left and are taken block by block, beside a block that is denoised. */
    static const struct arrival blocks[] = {{.id = 0, .prompt_tokens = 16, .output_tokens = 4},
                                            {.id = 1, .prompt_tokens = 12, .output_tokens = 4}};
    static const char *const by_block[] = {BY_HAND, "max_batched_tokens=11", NULL};
    CHECK_STEPS("sdar", by_block, 0, blocks, "8:0 8:0 8:01 8:01 8:01 4:1 4:1 4:1");
}

#define TWO_FOR_FIVE_STEPS "8:01 8:01 8:01 8:01 4:0 4:0 4:0 8:1 4:1 4:1 4:1"

TEST(who_lacks_a_page_gives_way_and_computes_its_committed_tokens_anew) {
    static const struct arrival list[] = TWO_FOR_FIVE;
    static const char *const chunked[] = {BY_HAND, NULL};
    /* After the first block, request 1 has no page for its second: it gives its two back, waits for
     * the end of request 0, and prefills prompt and first block, 8 tokens. */
    CHECK_STEPS("sdar", chunked, 5, list, TWO_FOR_FIVE_STEPS);
    static const char *const sglang[] = {BY_HAND, "scheduler=sglang", NULL};
    CHECK_STEPS("sdar", sglang, 5, list, TWO_FOR_FIVE_STEPS);
    /* It comes back before a third that arrived with it and never ran. */
    static const struct arrival three[] = {{.id = 0, .prompt_tokens = 4, .output_tokens = 8},
                                           {.id = 1, .prompt_tokens = 4, .output_tokens = 8},
                                           {.id = 2, .prompt_tokens = 4, .output_tokens = 4}};
    CHECK_STEPS("sdar", chunked, 5, three, "8:01 8:01 8:01 8:01 4:0 4:0 4:0 12:12 8:12 8:12 8:12");
}

TEST(loops_stop_where_growth_does_not_fit) {
    static const struct arrival list[] = TWO_FOR_FIVE;
    static const char *const settings[] = {BY_HAND, "scheduler=lmdeploy", NULL};
    CHECK_STEPS("sdar", settings, 5, list, TWO_FOR_FIVE_STEPS);
    /* A prefill, a block of both, a block of the first, the other's prefill and block. */
    ck_assert_uint_eq(n_asked, 5);
}

TEST(several_loops_ask_the_scheduler_once) {
    static const struct arrival list[] = {{.prompt_tokens = 4, .output_tokens = 64}};
    static const char *const settings[][10] = {
        {BY_HAND, "scheduler=lmdeploy", NULL},
        {BY_HAND, "scheduler=lmdeploy", "scheduler.multi_loop=off", NULL}};
    char expected[49 * 4 + 1] = "4:0";
    for (int i = 1; i < 49; i++) {
        memcpy(expected + 4 * i - 1, " 4:0", 5);
    }
    for (int off = 0; off < 2; off++) {
        CHECK_STEPS("sdar", settings[off], 0, list, expected);
        ck_assert_uint_eq(n_asked, off ? 49 : 4); /* a prefill and 3 times 16 steps */
    }
}

/* get_num_loops of LMDeploy: twice as many steps as blocks fit into the 64 tokens of its pages. */
TEST(a_visit_of_lmdeploy_is_of_as_many_steps_as_its_pages_hold_blocks) {
    static const struct {
        uint32_t block, visits; /* of 15 steps and a commit pass */
    } of[] = {{16, 2}, {32, 4}, {64, 8}, {128, 16}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        char block[32], page[32], expected[17 * 6] = "";
        const char *const settings[] = {
            block, page, "steps_per_block=15", "decoder=fixed", "scheduler=lmdeploy", NULL};
        const struct arrival list[] = {
            {.prompt_tokens = of[i].block, .output_tokens = of[i].block}};
        snprintf(block, sizeof block, "block_tokens=%u", of[i].block);
        snprintf(page, sizeof page, "page_tokens=%u", of[i].block);
        for (size_t n = 0, used = 0; n < 17; n++) {
            used += (size_t)snprintf(expected + used, sizeof expected - used,
                                     n == 0 ? "%u:0" : " %u:0", of[i].block);
        }
        CHECK_STEPS("sdar", settings, 0, list, expected);
        ck_assert_uint_eq(n_asked, 1 + of[i].visits);
    }
}

/* Request 1 has but 2 positions to decide in its first block and is done a step before. */
#define FAST_AND_SLOW                                                                              \
    {                                                                                              \
        {.id = 0, .prompt_tokens = 4, .output_tokens = 8}, {                                       \
            .id = 1, .prompt_tokens = 6, .output_tokens = 6                                        \
        }                                                                                          \
    }

TEST(lockstep_computes_finished_blocks_along_and_first_done_first_out_does_not) {
    static const struct arrival list[] = FAST_AND_SLOW;
    static const char *const lockstep[] = {BY_HAND, "scheduler=sglang", "scheduler.mode=lockstep",
                                           NULL};
    CHECK_STEPS("sdar", lockstep, 0, list, "8:01 8:01 8:01 8:0 8:01 8:01 8:01");
    static const char *const fdfo[] = {BY_HAND, "scheduler=sglang", NULL};
    CHECK_STEPS("sdar", fdfo, 0, list, "8:01 8:01 8:01 8:01 8:01 8:01 4:0");
}

/* Admits the first request and takes 8 of its prefill a step, for up to 5 steps; or worse. */
enum deed {
    IN_LOOPS,
    CUTS_A_BLOCK,
    CUTS_A_STEP,
    CUTS_NOTHING,
    GIVES_WAY,
    PREEMPTS_WHO_WAITS,
    PREEMPTS_WHAT_RUNS
};
static enum deed deed;

static void misbehave(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    n_asked++;
    uint32_t slot = view->n_running > 0 ? view->running[0] : view->waiting[0];
    const struct request *request = &view->requests[slot];
    bool prefills = request->span.phase == PHASE_PREFILL;
    static const uint32_t chunks[] = {8, 6, 8, 20, 0, 8, 8};
    if (deed == GIVES_WAY && view->n_running > 0) {
        batch->preempted[batch->n_preempted++] = view->running[0];
        slot = view->waiting[0];
    }
    if (view->n_running > 0 && deed >= PREEMPTS_WHO_WAITS) {
        batch->preempted[batch->n_preempted++] =
            deed == PREEMPTS_WHO_WAITS ? view->waiting[0] : slot;
    }
    batch->n_admitted = view->n_running == 0 || deed == GIVES_WAY;
    batch->selected[batch->n++] = slot;
    batch->chunk_tokens[0] = prefills && request->span.queries > 8 ? chunks[deed] : 0;
    if (deed == CUTS_A_STEP && !prefills) {
        batch->chunk_tokens[0] = 1;
    }
    batch->loops = deed == IN_LOOPS ? 5 : 1;
}

static const struct scheduler misbehaving = {
    .policy = {.name = "bad"}, .grows = 1, .schedule = misbehave};

/* The sentence about two requests of 20 + 4 tokens, in a system with steps of at most 10. */
static void assert_misdeed(enum deed which, const char *name, const char *const *settings,
                           const char *sentence) {
    static const struct arrival list[] = {{.id = 0, .prompt_tokens = 20, .output_tokens = 4},
                                          {.id = 1, .prompt_tokens = 20, .output_tokens = 4}};
    struct list_source source = {list, 2, 0};
    struct system *system = rig_system(name, "a100-80g", true, settings);
    struct fixed_executor fixed = {.mean_ns = 1e6};
    struct loop_request request = {.system = system,
                                   .executor = fixed_interface(&fixed),
                                   .source = {&source, list_next, NULL}};
    struct loop_result result;
    struct err err = {0};
    deed = which;
    n_asked = 0;
    system->scheduler = &misbehaving;
    loop_run(&request, &result, &err);
    ASSERT_SAYS(err.text, sentence);
    ck_assert(sentence[0] != '\0' || result.completed == 2);
    system_close(system);
}

TEST(chunks_and_preemption_out_of_place_are_named_in_one_sentence) {
    static const char *const settings[] = {BY_HAND, "max_batched_tokens=10", NULL};
    static const char *const bidirectional[] = {"block_tokens=4", "max_batched_tokens=40", NULL};
    assert_misdeed(CUTS_A_BLOCK, "sdar", settings,
                   "scheduler bad broke its promise at 0.000 s: tokens of a chunk after its "
                   "last whole block (2 of at most 0)");
    assert_misdeed(CUTS_NOTHING, "sdar", settings,
                   "scheduler bad broke its promise at 0.000 s: tokens of a chunk (20 of at most "
                   "19)");
    assert_misdeed(CUTS_A_STEP, "sdar", settings,
                   "scheduler bad broke its promise at 0.003 s: tokens of a chunk (1 of at most "
                   "0)");
    assert_misdeed(GIVES_WAY, "dllm-serve", bidirectional,
                   "scheduler bad broke its promise at 0.001 s: requests preempted though their "
                   "cached state is not exact (1 of at most 0)");
    assert_misdeed(
        PREEMPTS_WHO_WAITS, "sdar", settings,
        "scheduler bad broke its promise at 0.001 s: it listed slot 1, which is waiting, "
        "as a preempted request");
    assert_misdeed(PREEMPTS_WHAT_RUNS, "sdar", settings,
                   "scheduler bad broke its promise at 0.001 s: it listed request 0 twice");
}

TEST(loops_stop_where_what_is_left_of_a_prefill_is_wider_than_a_step) {
    static const char *const settings[] = {BY_HAND, "max_batched_tokens=10", NULL};
    assert_misdeed(IN_LOOPS, "sdar", settings, "");
    /* Of each request 8 of 20, where 12 are left; then 8, 4 and the three steps of the block. */
    ck_assert_uint_eq(n_asked, 4);
}

TEST(lmdeploy_and_sglang_never_prefill_beside_decoding_and_chunked_does) {
    enum { N = 150 };
    struct arrival list[N];
    make_arrivals(list, N, 8, 300, 300, 60);
    for (int i = 0; i < N_GROWING; i++) {
        const char *const settings[] = {schedulers[i][0], "page_tokens=16",
                                        "max_batched_tokens=256", schedulers[i][1], NULL};
        struct run *run = run_open("sdar", settings, 100);
        for (size_t j = 0; j < N; j++) {
            list[j].prompt_tokens += 4; /* every one has something to prefill */
        }
        run->keeps_steps = true;
        run_watched(run, NULL, list, N);
        uint64_t n_mixed = 0, n_idle = 0;
        for (size_t j = 0; j < run->keeper.n_steps; j++) {
            const struct step_record *step = &run->keeper.steps[j].record;
            uint32_t n_prefill = step->n_by_phase[PHASE_PREFILL];
            uint32_t n_decode = step->n_by_phase[PHASE_REUSE] + step->n_by_phase[PHASE_COMMIT];
            n_mixed += n_prefill > 0 && n_decode > 0;
            n_idle += n_prefill + n_decode - step->n;
        }
        bool is_chunked = strcmp(schedulers[i][0], "scheduler=chunked") == 0;
        bool is_lockstep = schedulers[i][1] != NULL && strstr(schedulers[i][1], "lockstep") != NULL;
        ck_assert_msg(is_chunked ? n_mixed > 100 : n_mixed == 0, "%s: %lu", schedulers[i][0],
                      (unsigned long)n_mixed);
        ck_assert_msg(is_lockstep ? n_idle > 100 : n_idle == 0, "%s: %lu", schedulers[i][0],
                      (unsigned long)n_idle);
        run_close(run);
    }
}

TEST(skipping_ahead_changes_nothing_but_the_number_of_submissions) {
    enum { N = 100 };
    struct arrival list[N];
    make_arrivals(list, N, 9, 100, 300, 100);
    for (int i = 0; i < N_SCHEDULERS; i++) {
        struct run *runs[2];
        for (int skip = 0; skip < 2; skip++) {
            const char *const settings[] = {schedulers[i][0],
                                            skip ? "skip_ahead=on" : "skip_ahead=off",
                                            "page_tokens=16",
                                            "max_batched_tokens=512",
                                            "decoder=fixed",
                                            schedulers[i][1],
                                            NULL};
            runs[skip] = run_open("sdar", settings, 120);
            run_watched(runs[skip], NULL, list, N);
        }
        ck_assert(i < N_GROWING || runs[0]->result.submissions > runs[1]->result.submissions);
        ck_assert_uint_eq(runs[0]->result.steps, runs[1]->result.steps);
        ck_assert_int_eq(runs[0]->result.end_ns, runs[1]->result.end_ns);
        ck_assert_int_eq(
            memcmp(runs[0]->result.sym, runs[1]->result.sym, sizeof runs[0]->result.sym), 0);
        ck_assert_int_eq(memcmp(runs[0]->keeper.requests, runs[1]->keeper.requests,
                                N * sizeof(struct request_record)),
                         0);
        run_close(runs[0]);
        run_close(runs[1]);
    }
}

TEST(a_schedule_without_arrivals_under_way_is_as_slow_as_its_steps) {
    enum { N = 60 };
    struct arrival list[N];
    make_arrivals(list, N, 10, 100, 200, 60);
    for (size_t j = 0; j < N; j++) {
        list[j].arrival_ns = 0;
    }
    for (int i = 0; i < N_SCHEDULERS; i++) {
        int64_t end_ns[2];
        for (int slow = 0; slow < 2; slow++) {
            const char *const settings[] = {schedulers[i][0], "page_tokens=16",
                                            "max_batched_tokens=512", schedulers[i][1], NULL};
            struct run *run = run_open("sdar", settings, 60);
            struct fixed_executor fixed = {.mean_ns = slow ? 3e6 : 1e6};
            const struct executor inner = fixed_interface(&fixed);
            run_watched(run, &inner, list, N);
            ck_assert_uint_eq(run->result.completed, N);
            ck_assert_int_eq(run->result.end_ns,
                             (int64_t)run->result.steps * (int64_t)fixed.mean_ns);
            end_ns[slow] = run->result.end_ns;
            run_close(run);
        }
        ck_assert_int_eq(end_ns[1], 3 * end_ns[0]);
    }
}

static struct keeper serve_alone(struct poisson_source source) {
    static const char *const settings[] = {"max_requests=1", "decides_ahead=off",
                                           "prefix_caching=off", NULL};
    struct system *system = rig_system("vllm-ar", "a100-80g", true, settings);
    struct fixed_executor fixed = {.mean_ns = 1e6};
    struct keeper keeper = {0};
    struct sink sink = {.state = &keeper, .request = keep_request};
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = fixed_interface(&fixed),
             .source = {&source, poisson_next, NULL}, .sinks = &sink, .n_sinks = 1);
    struct loop_result result;
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &result, &err) == 0, "%s", err.text);
    system_close(system);
    return keeper;
}

TEST(one_token_a_request_waits_as_m_d_1_says) {
    enum { BATCHES = 50, PER_BATCH = 6000 };
    static const double loads[] = {0.3, 0.6, 0.8};
    for (int i = 0; i < 3; i++) {
        double load = loads[i], mean = 0, square = 0;
        struct keeper keeper =
            serve_alone(MAKE(struct poisson_source, .rng = rng_stream(12, "arrivals"),
                             .lengths = rng_stream(12, "lengths"), .rate = load * 1000,
                             .n = (uint64_t)BATCHES * PER_BATCH, .prompt_min = 1, .prompt_max = 1,
                             .output_min = 1, .output_max = 1));
        for (int b = 0; b < BATCHES; b++) {
            double batch = 0;
            for (int j = 0; j < PER_BATCH; j++) {
                const struct request_record *r = &keeper.requests[b * PER_BATCH + j];
                batch += (double)(r->admitted_ns - r->arrival_ns) / 1e6 / PER_BATCH;
            }
            mean += batch / BATCHES;
            square += batch * batch / BATCHES;
        }
        double error = sqrt((square - mean * mean) / (BATCHES - 1)); /* of the mean */
        double expected = load / (2 * (1 - load));                   /* Pollaczek-Khinchine */
        ck_assert_double_lt(error, 0.03 * expected);
        ck_assert_double_eq_tol(mean, expected, 2.68 * error); /* 99 %, Student's t of 49 */
        keeper_fini(&keeper);
    }
}

TEST(longer_outputs_queue_as_lindley_says_to_the_nanosecond) {
    struct poisson_source source =
        MAKE(struct poisson_source, .rng = rng_stream(13, "arrivals"),
             .lengths = rng_stream(13, "lengths"), .rate = 150, .n = 20000, .prompt_min = 1,
             .prompt_max = 40, .output_min = 1, .output_max = 10);
    struct keeper keeper = serve_alone(source);
    int64_t end_ns = 0;
    MUST(keeper.n_requests == 20000);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        const struct request_record *r = &keeper.requests[i];
        int64_t start_ns = r->arrival_ns > end_ns ? r->arrival_ns : end_ns;
        end_ns = start_ns + r->output_tokens * INT64_C(1000000);
        MUST(r->admitted_ns == start_ns);
        MUST(r->first_block_ns == start_ns + 1000000);
        MUST(r->finished_ns == end_ns);
        MUST(r->tokens_processed == r->prompt_tokens + r->output_tokens - 1);
    }
    keeper_fini(&keeper);
}

SUITE("exact")
