/* Live runs on the CPU: every cache policy, decoder, scope and layout of the pool; what a request
 * gets does not depend on co-batched requests; memory is what was planned; failures keep what was
 * done. */
#include <time.h>

#include "engine/device/mapping.h"
#include "experiments/run/compose.h"
#include "experiments/study/measured_step.h"
#include "sim/base/monotonic.h"
#include "sim/policy/plugin/registry.h"
#include "tests/support/late_device.h"
#include "tests/support/live.h"
#include "tests/support/says.h"

static const char *const caches[] = {"none",     "prefix",         "dual",
                                     "vicinity", "sparse-uniform", "sparse-head"};
enum { N_CACHES = sizeof caches / sizeof caches[0] };
static const char *const scopes[] = {"queries", "generation", "block", "masked"};

/* Requests of unequal lengths, whose last blocks are shorter. */
static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 9, .output_tokens = 10},
    {.id = 1, .prompt_tokens = 5, .output_tokens = 7},
    {.id = 2, .prompt_tokens = 12, .output_tokens = 4},
};
/* The same, seconds apart in virtual time: each is alone; and in another order. */
static const struct arrival apart[] = {
    {.id = 2, .arrival_ns = 0, .prompt_tokens = 12, .output_tokens = 4},
    {.id = 0, .arrival_ns = INT64_C(1000000000000), .prompt_tokens = 9, .output_tokens = 10},
    {.id = 1, .arrival_ns = INT64_C(2000000000000), .prompt_tokens = 5, .output_tokens = 7},
};
enum { N = 3 };

static struct system *system_of(const char *model, const char *cache, const char *decoder,
                                const char *scope, const char *layout) {
    char texts[4][300];
    snprintf(texts[0], sizeof texts[0], "cache=%s", cache);
    snprintf(texts[1], sizeof texts[1], "decoder=%s", decoder);
    snprintf(texts[2], sizeof texts[2], "logit_scope=%s", scope);
    snprintf(texts[3], sizeof texts[3], "kv=%s", layout);
    const char *settings[12] = {texts[0], texts[1],         texts[2],
                                texts[3], "block_tokens=4", "steps_per_block=4"};
    size_t n = 6;
    if (strcmp(decoder, "threshold") == 0) {
        settings[n++] = "decoder.threshold=0.012";
    }
    if (strcmp(cache, "vicinity") == 0) { /* canvases are short */
        settings[n++] = "cache.prefix_look=3";
        settings[n++] = "cache.after_look=2";
        settings[n++] = "cache.warmup_steps=1";
    }
    return live_system(model, settings);
}

/* Everybody has an output without masks, and memory was what was planned. */
static void check_served(const struct system *system, const struct served *served) {
    check_outputs(served, system, together, N);
    check_used_as_planned(served, N);
    ck_assert_int_eq(served->memory.metered_bytes + served->memory.unmapped_bytes,
                     served->memory.planned_bytes);
    ck_assert_int_gt(served->memory.side_bytes, 0);
}

/* On the CPU, where it always holds, the option is taken and changes nothing. */
TEST(invariance_is_an_option_that_changes_no_token_on_the_cpu) {
    static const char *const settings[] = {"on", "off"};
    struct served *served[4];
    for (int i = 0; i < 4; i++) {
        char text[64];
        snprintf(text, sizeof text, "runtime.batch_invariant=%s", settings[i / 2]);
        struct system *system =
            LIVE_SYSTEM("llada-tiny", "cache=dual", "decoder=threshold", "block_tokens=4",
                        "steps_per_block=4", "decoder.threshold=0.012", text);
        ck_assert(system->runtime.batch_invariant == (i < 2));
        served[i] = serve_live(system, i % 2 ? together : apart, N);
        same_tokens(served[0], served[i], N);
        system_close(system);
    }
    for (int i = 0; i < 4; i++) {
        free(served[i]);
    }
}

/* Without a cache nothing but the rows that go through the head differs between scopes. */
TEST(scopes_change_no_token) {
    struct served *first = NULL;
    for (size_t scope = 0; scope < 4; scope++) {
        struct system *system = system_of("llada-tiny", "none", "fixed", scopes[scope], "pages");
        struct served *served = serve_live(system, together, N);
        if (first != NULL) {
            same_tokens(first, served, N);
            free(served);
        } else {
            first = served;
        }
        system_close(system);
    }
    free(first);
}

/* Windows that end with the block, with the canvas or with both ends of it. */
TEST(vicinity_is_every_other_cache_of_the_kind_where_its_window_is_theirs) {
    static const char *const looks[][3] = {
        {"dual", "cache.prefix_look=0", "cache.after_look=0"},
        {"prefix", "cache.prefix_look=0", "cache.after_look=4096"},
        {"none", "cache.prefix_look=4096", "cache.after_look=4096"},
    };
    struct served *others[3];
    for (int i = 0; i < 3; i++) {
        struct system *system = LIVE_SYSTEM(
            "llada-tiny", "cache=vicinity", looks[i][1], looks[i][2], "cache.warmup_steps=0",
            "decoder=threshold", "block_tokens=4", "decoder.threshold=0.012");
        struct system *other = system_of("llada-tiny", looks[i][0], "threshold", "block", "pages");
        struct served *served = serve_live(system, together, N);
        others[i] = serve_live(other, together, N);
        check_served(system, served);
        same_tokens(served, others[i], N);
        ck_assert_uint_eq(served->result.steps, others[i]->result.steps);
        ck_assert_int_eq(served->result.sym[SYM_TOKENS], others[i]->result.sym[SYM_TOKENS]);
        free(served);
        system_close(system);
        system_close(other);
    }
    ck_assert_mem_ne(others[0]->tokens, others[2]->tokens, sizeof others[0]->tokens);
    for (int i = 0; i < 3; i++) {
        free(others[i]);
    }
}

static uint32_t choose_by_threshold(const void *state, const struct request *request,
                                    const struct decode_seen *seen, uint8_t *commit) {
    struct err err = {0};
    const struct decoder *threshold =
        (const struct decoder *)policy_find(POLICY_DECODER, "threshold", &err);
    struct decode_rule rule;
    threshold->rule(state, request, &rule);
    return decode_choose(&rule, seen, 0, commit);
}

TEST(the_threshold_on_the_device_decides_as_the_rule_on_the_host) {
    uint32_t most = 0, least = UINT32_MAX;
    for (size_t cache = 0; cache < N_CACHES; cache++) {
        struct system *system =
            system_of("llada-tiny", caches[cache], "threshold", "block", "pages");
        struct served *on_device = serve_live(system, together, N);
        struct decoder rule = *system->decoder;
        rule.rule = NULL;
        rule.choose = choose_by_threshold;
        system->decoder = &rule;
        struct served *on_host = serve_live(system, together, N);
        same_tokens(on_device, on_host, N);
        ck_assert_uint_eq(on_device->n_steps, on_host->n_steps);
        for (size_t i = 0; i < on_device->n_steps; i++) {
            ck_assert_uint_eq(on_device->steps[i].n_requests, on_host->steps[i].n_requests);
            for (uint32_t j = 0; j < on_device->steps[i].n_requests; j++) {
                uint32_t commits = on_device->commits[i][j];
                ck_assert_uint_eq(commits, on_host->commits[i][j]);
                most = commits > most ? commits : most;
                least = commits < least ? commits : least;
            }
        }
        free(on_device);
        free(on_host);
        system_close(system);
    }
    /* Some steps commit by the threshold, some the best alone. */
    ck_assert_uint_gt(most, 1);
    ck_assert_uint_eq(least, 1);
}

struct opened {
    struct engine *engine;
    struct live *live;
};

/* `table` NULL: the CPU's. */
static struct opened open_live(const struct system *system, const struct device_table *table) {
    const struct engine_request asked = {
        .backend = BACKEND_CPU, .weights = "random:3", .system = system};
    struct opened opened = {NULL, NULL};
    struct err err = {0};
    ck_assert_msg(engine_open(&asked, &opened.engine, &err) == 0, "%s", err.text);
    ck_assert_msg(live_open(opened.engine, 5, true, &opened.live, &err) == 0, "%s", err.text);
    opened.engine->device.table = table != NULL ? table : opened.engine->device.table;
    return opened;
}

static void close_live(struct opened *opened) {
    live_close(opened->live);
    engine_close(opened->engine);
}

static int loop_live(const struct opened *opened, struct system *system,
                     const struct arrival *arrivals, size_t n, struct err *err) {
    struct list_source list = {arrivals, n, 0};
    const struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = live_interface(opened->live),
             .source = {.state = &list, .next = list_next}, .seed = 1);
    struct loop_result result;
    return loop_run(&request, &result, err);
}

/* A pool is filled from its end; this many bytes of it hold one small request's rows. */
enum { POOL_END_BYTES = 1 << 22 };

/* What one request leaves in the pool. Both policies keep half of its 16 rows outside a block. */
static void keep_rows(const char *cache, unsigned char rows[POOL_END_BYTES], int64_t *n_bytes) {
    static const struct arrival alone[] = {{.id = 0, .prompt_tokens = 12, .output_tokens = 8}};
    char text[64];
    snprintf(text, sizeof text, "cache=%s", cache);
    struct system *system =
        LIVE_SYSTEM("llada-tiny", text, "cache.retention=0.5", "block_tokens=4");
    struct opened opened = open_live(system, NULL);
    struct err err = {0};
    ck_assert_int_gt(opened.engine->limits.pool_bytes, POOL_END_BYTES);
    unsigned char *end =
        forward_pool(opened.engine->forward) + opened.engine->limits.pool_bytes - POOL_END_BYTES;
    memset(end, 0, POOL_END_BYTES);
    ck_assert_msg(loop_live(&opened, system, alone, 1, &err) == 0, "%s", err.text);
    memcpy(rows, end, POOL_END_BYTES);
    *n_bytes = live_pool_peak_bytes(opened.live);
    close_live(&opened);
    system_close(system);
}

TEST(heads_that_choose_together_keep_other_rows_than_heads_that_choose_alone) {
    static unsigned char uniform[POOL_END_BYTES], again[POOL_END_BYTES], by_head[POOL_END_BYTES];
    int64_t n_bytes[3];
    keep_rows("sparse-uniform", uniform, &n_bytes[0]);
    keep_rows("sparse-uniform", again, &n_bytes[1]);
    keep_rows("sparse-head", by_head, &n_bytes[2]);
    ck_assert_int_gt(n_bytes[0], 0);
    ck_assert_int_le(n_bytes[0], POOL_END_BYTES);
    ck_assert_int_eq(n_bytes[0], n_bytes[2]);
    ck_assert_mem_eq(uniform, again, POOL_END_BYTES);
    ck_assert_mem_ne(uniform, by_head, POOL_END_BYTES);
}

TEST(steps_follow_each_other_and_idle_time_is_skipped) {
    struct system *system = system_of("llada-tiny", "dual", "fixed", "block", "pages");
    struct served *served = serve_live(system, apart, N);
    for (size_t i = 0; i < served->n_steps; i++) {
        const struct replay_step *step = &served->steps[i];
        ck_assert_int_gt(step->end_ns, step->start_ns);
        ck_assert_int_gt(step->gpu_ns, 0);
        ck_assert_int_le(step->gpu_ns * step->steps, step->end_ns - step->start_ns);
        ck_assert(i == 0 || step->start_ns >= served->steps[i - 1].end_ns);
    }
    ck_assert_int_gt(served->result.end_ns, INT64_C(2000000000000));
    ck_assert_int_lt(served->result.end_ns, INT64_C(2100000000000));
    free(served);
    system_close(system);
}

/* Canvases that went leave gaps, of which none may be long enough for a new one. Steps take what
 * they take: where the last request comes before the first is gone, the system has no place for it.
 */
TEST(a_long_canvas_finds_room_between_others) {
    struct arrival arrivals[] = {{.id = 0, .prompt_tokens = 28, .output_tokens = 4},
                                 {.id = 1, .prompt_tokens = 4, .output_tokens = 60},
                                 {.id = 2, .prompt_tokens = 32, .output_tokens = 32}};
    struct system *system = LIVE_SYSTEM("llada-tiny", "cache=prefix", "decoder=fixed",
                                        "block_tokens=4", "context_tokens=64", "max_in_system=2");
    struct served *two = serve_live(system, arrivals, 2), *three = NULL;
    const int64_t first_ns = two->records[0].finished_ns, last_ns = two->records[1].finished_ns;
    ck_assert_int_lt(first_ns, last_ns);
    arrivals[2].arrival_ns = first_ns + (last_ns - first_ns) / 2;
    for (int i = 0; i < 20 && (three == NULL || three->result.rejected > 0); i++) {
        free(three);
        three = serve_live(system, arrivals, 3);
    }
    check_outputs(three, system, arrivals, 3);
    check_used_as_planned(three, 3);
    free(three);
    free(two);
    system_close(system);
}

TEST(arrivals_in_real_time_are_waited_for) {
    enum { LATE_NS = 1500000000 };
    struct system *system = system_of("llada-tiny", "dual", "fixed", "block", "pages");
    struct arrival arrivals[N];
    memcpy(arrivals, together, sizeof arrivals);
    arrivals[2].arrival_ns = LATE_NS;
    struct serving serving = {.system = system, .arrivals = arrivals, .n = N, .waits = true};
    int64_t start_ns = monotonic_ns();
    struct served *served = serve(&serving);
    int64_t wall_ns = monotonic_ns() - start_ns;
    check_served(system, served);
    ck_assert_int_ge(served->result.end_ns, LATE_NS);
    ck_assert_int_ge(wall_ns, served->result.end_ns);
    ck_assert_int_ge(served->steps[served->n_steps - 1].start_ns, LATE_NS);
    ck_assert_uint_eq(served->ids[served->n_steps - 1][0], 2);
    free(served);
    system_close(system);
}

enum { STEPS = 4 };

/* A request before its first step, and the batch of it alone: STEPS steps that commit one each. */
struct first_batch {
    struct request request;
    const struct span *span;
    struct step_shape shape;
    uint32_t slot;
    struct submission submission;
};

static void make_first_batch(const struct system *system, struct first_batch *batch) {
    *batch = (struct first_batch){.request = {.id = 7,
                                              .prompt_tokens = 9,
                                              .output_tokens = 8,
                                              .canvas_tokens = 17,
                                              .block_tokens = STEPS,
                                              .steps_per_block = STEPS,
                                              .state = REQUEST_RUNNING,
                                              .window.first = 9,
                                              .window.length = STEPS,
                                              .window.front = STEPS,
                                              .window.active = STEPS,
                                              .window.masked = STEPS,
                                              .commit_tokens = 1}};
    struct request *request = &batch->request;
    (void)cache_plan(system->cache, system->cache_state, NULL, request);
    request->span.logit_rows =
        system_scope_rows(&system->settings, request->span.logit_rows, request->output_tokens,
                          window_length(request), window_masked(request), true);
    batch->span = &request->span;
    shape_clear(&batch->shape);
    batch->shape.n_spans = 1;
    batch->shape.spans = &batch->span;
    shape_add(batch->shape.sym, batch->span, 1);
    batch->submission = MAKE(struct submission, .repeat = STEPS, .stop_ns = INT64_MAX,
                             .step = {.shape = &batch->shape,
                                      .workspace_bytes = budget_workspace_bytes(&system->budget, 0),
                                      .requests = request,
                                      .slots = &batch->slot,
                                      .n_slots = 1});
}

/* That batch on a late device, submitted. */
struct under_way {
    struct system *system;
    struct device_table table;
    struct opened opened;
    struct executor executor;
    struct first_batch batch;
};

static void start_batch(struct under_way *run, int n_queries, uint32_t repeat, int64_t stop_ns) {
    struct err err = {0};
    run->system = system_of("llada-tiny", "none", "fixed", "block", "pages");
    run->table = late_device(n_queries);
    run->opened = open_live(run->system, &run->table);
    live_set_stop(run->opened.live, &late.is_raised);
    run->executor = live_interface(run->opened.live);
    make_first_batch(run->system, &run->batch);
    run->batch.submission.repeat = repeat;
    run->batch.submission.stop_ns = stop_ns;
    ck_assert_msg(run->executor.admit(run->opened.live, 0, 0, &run->batch.request, NULL, &err) ==
                          0 &&
                      run->executor.submit(run->opened.live, &run->batch.submission, &err) == 0,
                  "%s", err.text);
}

static void end_batch(struct under_way *run) {
    close_live(&run->opened);
    system_close(run->system);
}

static struct completion await(const struct under_way *run, int64_t until_ns) {
    struct completion done;
    struct err err = {0};
    ck_assert_msg(run->executor.wait(run->opened.live, until_ns, &done, &err) == 0, "%s", err.text);
    return done;
}

/* Far off, and yet a time at which the executor looks whether the device is done. */
static const int64_t far_ns = INT64_C(3600000000000);

static void check_steps(const struct under_way *run, int64_t until_ns, uint32_t steps) {
    struct completion done = await(run, until_ns);
    ck_assert_int_eq(done.kind, COMPLETION_BATCH);
    ck_assert_uint_eq(done.steps, steps);
    ck_assert_uint_eq(done.decided.commits[0], 1);
    ck_assert_int_gt(done.time_ns, done.start_ns);
    ck_assert_int_eq(late.n_waited, (int)steps);
}

TEST(a_batch_runs_all_its_steps_unless_it_is_to_stop_at_a_border) {
    static struct under_way run;
    for (int i = 0; i < 2; i++) { /* waiting, and asking */
        const int64_t until_ns = i == 0 ? INT64_MAX : far_ns;
        start_batch(&run, 3, STEPS, far_ns);
        check_steps(&run, until_ns, STEPS);
        ck_assert_int_eq(late.n_asked, i == 0 ? 0 : 3 * STEPS);
        ck_assert_int_eq(await(&run, INT64_MAX).kind, COMPLETION_IDLE);
        end_batch(&run);
        start_batch(&run, 3, STEPS, 1); /* over before the first border */
        check_steps(&run, until_ns, 1);
        end_batch(&run);
        start_batch(&run, 3, STEPS, far_ns);
        late.raise_at = 2; /* while the second step is under way */
        check_steps(&run, until_ns, 2);
        end_batch(&run);
    }
}

TEST(an_arrival_during_a_step_is_told_before_its_completion) {
    static struct under_way run;
    static const int n_queries[] = {100, 1}; /* under way still; done, but noticed later */
    for (int i = 0; i < 2; i++) {
        start_batch(&run, n_queries[i], 1, INT64_MAX);
        for (int64_t arrival_ns = 1; arrival_ns <= 2; arrival_ns++) {
            struct completion arrival = await(&run, arrival_ns);
            ck_assert_int_eq(arrival.kind, COMPLETION_TIME);
            ck_assert_int_eq(arrival.time_ns, arrival_ns);
        }
        /* Asked once a wait, until it is done. */
        ck_assert_int_eq(late.n_asked, i == 0 ? 2 : 1);
        ck_assert_int_eq(late.n_waited, i);
        struct completion done = await(&run, INT64_MAX);
        ck_assert_int_eq(done.kind, COMPLETION_BATCH);
        ck_assert_uint_eq(done.steps, 1);
        ck_assert_int_gt(done.time_ns, 2);
        ck_assert_int_eq(late.n_waited, 1);
        end_batch(&run);
    }
}

TEST(closing_waits_for_the_step_under_way) {
    static struct under_way run;
    start_batch(&run, 100, STEPS, INT64_MAX);
    ck_assert_int_eq(await(&run, 1).kind, COMPLETION_TIME);
    ck_assert(late.n_left > 0 && late.n_waited == 0);
    live_close(run.opened.live);
    ck_assert_int_eq(late.n_left, 0);
    ck_assert_int_eq(late.n_waited, 1);
    engine_close(run.opened.engine);
    system_close(run.system);
}

static uint32_t miscount(const void *state, const struct request *request,
                         const struct decode_seen *seen, uint8_t *commit) {
    (void)state, (void)request;
    for (uint32_t i = 0; i < seen->n; i++) {
        ck_assert(seen->confidence[i] > 0 && seen->confidence[i] < 1);
        commit[i] = i < 2;
    }
    return 1;
}

TEST(a_decoder_whose_count_is_not_what_it_marks_ends_the_run) {
    struct system *system = system_of("llada-tiny", "none", "threshold", "block", "pages");
    struct decoder liar = *system->decoder;
    liar.rule = NULL;
    liar.choose = miscount;
    system->decoder = &liar;
    struct serving serving = {.system = system, .arrivals = together, .n = N};
    struct served *served = serve(&serving);
    ck_assert_int_eq(served->err.kind, ERR_WORLD);
    ck_assert_str_eq(served->err.text, "decoder threshold broke its promise: it says that it "
                                       "commits 1 positions and marks 2");
    free(served);
    system_close(system);
}

/* Counts the outputs it is given and refuses one. */
struct failing_output {
    uint32_t n, fail_at;
};

static int take_or_fail(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                        struct err *err) {
    struct failing_output *output = state;
    (void)id, (void)tokens, (void)n;
    return ++output->n == output->fail_at ? err_world(err, "no room for output %u", output->n) : 0;
}

/* Requests that end one after the other, and at once. */
TEST(an_output_that_cannot_be_handed_out_ends_the_run_whichever_it_is) {
    static const struct arrival alike[N] = {{.id = 0, .prompt_tokens = 9, .output_tokens = 4},
                                            {.id = 1, .prompt_tokens = 9, .output_tokens = 4},
                                            {.id = 2, .prompt_tokens = 9, .output_tokens = 4}};
    struct system *system = system_of("llada-tiny", "dual", "fixed", "block", "pages");
    for (uint32_t i = 0; i < 2 * (N + 1); i++) {
        const uint32_t n = i / 2 + 1;
        struct opened opened = open_live(system, NULL);
        struct failing_output output = {.fail_at = n};
        struct err err = {0};
        char sentence[64];
        live_set_output(opened.live, take_or_fail, &output);
        int status = loop_live(&opened, system, i % 2 == 0 ? together : alike, N, &err);
        snprintf(sentence, sizeof sentence, "no room for output %u", n);
        ck_assert_int_eq(status, n <= N ? ERR_WORLD : 0);
        ASSERT_SAYS(err.text, n <= N ? sentence : "");
        ck_assert_uint_eq(output.n, n <= N ? n : N); /* and none after it */
        close_live(&opened);
    }
    system_close(system);
}

static int linears_left;

static int failing_linear(struct device *device, const struct call_linear *call) {
    return linears_left-- > 0 ? device_cpu.linear(device, call) : DEVICE_FAILED;
}

/* The CPU's table, whose products fail after so many. */
static struct device_table failing_after(int n) {
    struct device_table table = device_cpu;
    linears_left = n;
    table.linear = failing_linear;
    return table;
}

TEST(a_device_that_fails_ends_the_run_with_a_sentence) {
    struct system *system = system_of("llada-tiny", "dual", "fixed", "block", "pages");
    for (int n = 0; n < 60; n += 7) {
        struct device_table table = failing_after(n);
        struct serving serving = {.system = system, .arrivals = together, .n = N, .table = &table};
        struct served *served = serve(&serving);
        ck_assert_int_eq(served->err.kind, ERR_WORLD);
        ck_assert_uint_gt(strlen(served->err.text), 0);
        ck_assert_uint_lt(served->result.completed, N);
        free(served);
    }
    system_close(system);
}

/* A small run on the CPU, in real time or not, and the store that keeps it. */
struct kept_run {
    char path[32];
    struct composition *composition;
    struct store *store;
    struct sink sink;
    int64_t run;
};

static struct kept_run keep_run(bool skips_idle) {
    struct kept_run kept = {.path = "/tmp/unmask-live-XXXXXX"};
    ck_assert_int_ge(mkstemp(kept.path), 0);
    remove(kept.path);
    static struct setting settings[8];
    const char *const texts[][2] = {
        {"storage.weights", "f32"},    {"reserve_bytes", "16MiB"}, {"memory_utilization", "0.04"},
        {"max_batched_tokens", "256"}, {"cache", "dual"},          {"steps_per_block", "2"},
        {"block_tokens", "4"}};
    for (size_t i = 0; i < 7; i++) {
        snprintf(settings[i].key, sizeof settings[i].key, "%s", texts[i][0]);
        snprintf(settings[i].value, sizeof settings[i].value, "%s", texts[i][1]);
    }
    const struct run_request request = MAKE(
        struct run_request, .system = "dllm-serve", .gpu = "cpu", .model = "llada-tiny",
        .roofline = true, .workload = "burst",
        .options =
            {.seed = 1, .requests = 6, .rate_per_s = 1000, .input_tokens = 9, .output_tokens = 8},
        .settings = settings, .n_settings = 7,
        .backend = {.kind = BACKEND_CPU, .weights = "random:1", .skips_idle = skips_idle});
    struct err err = {0};
    ck_assert_msg(compose_open(&request, &kept.composition, &err) == 0, "%s", err.text);
    ck_assert_msg(store_open(kept.path, STORE_WRITE, &kept.store, &err) == 0, "%s", err.text);
    ck_assert_int_eq(store_run_begin(kept.store, &kept.composition->facts, STORE_STEPS, &kept.run,
                                     &kept.sink, &err),
                     0);
    return kept;
}

/* A card that draws 30 W, by a counter that was not reset before. */
static void counting_vitals(struct device *device, struct device_vitals *out) {
    (void)device;
    *out = (struct device_vitals){.energy_j = 7.25e5 + 30e-9 * (double)monotonic_ns()};
}

TEST(a_run_whose_energy_was_measured_is_the_same_when_it_is_played_again) {
    struct kept_run kept = keep_run(false);
    struct composition *live = kept.composition, *again = NULL;
    struct recorded *recorded = NULL;
    struct err err = {0};
    struct device_table table = device_cpu;
    table.vitals = counting_vitals;
    fleet_engine(live->fleet, 0)->device.table = &table;
    const struct run_watch watch = {.sinks = &kept.sink, .n_sinks = 1, .records_members = true};
    ck_assert_msg(compose_run(live, &watch, &err) == 0, "%s", err.text);
    const double measured_j = live->facts.energy.measured_j;
    ck_assert_double_ge(measured_j, 0.99 * 30 * live->summary.makespan_s);
    ck_assert_int_eq(store_run_commit(kept.store, &live->summary, &live->facts, &err), 0);
    const struct backend_request priced = {0};
    const struct run_watch unwatched = {0};
    ck_assert_msg(recorded_load(kept.store, kept.run, &recorded, &err) == 0, "%s", err.text);
    ck_assert_msg(compose_recorded(recorded, &priced, 0, &again, &err) == 0, "%s", err.text);
    ck_assert_msg(compose_run(again, &unwatched, &err) == 0, "%s", err.text);
    ck_assert_msg(again->facts.energy.measured_j == measured_j, "%.17g, not %.17g",
                  again->facts.energy.measured_j, measured_j);
    compose_close(live);
    compose_close(again);
    recorded_close(recorded);
    store_close(kept.store);
    remove(kept.path);
}

TEST(a_run_whose_device_failed_keeps_its_rows_and_is_never_called_whole) {
    struct kept_run kept = keep_run(true);
    struct composition *composition = kept.composition;
    struct store *store = kept.store;
    struct recorded *recorded = NULL;
    const int64_t run = kept.run;
    struct err err = {0};
    struct device_table table = failing_after(58); /* 16 a step */
    fleet_engine(composition->fleet, 0)->device.table = &table;
    struct run_watch watch = {.sinks = &kept.sink, .n_sinks = 1, .records_members = true};
    ck_assert_int_eq(compose_run(composition, &watch, &err), ERR_WORLD);
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", err.text);
    ck_assert_str_eq(composition->facts.incomplete, sentence);
    uint64_t n_submissions = composition->summary.submissions;
    ck_assert_uint_gt(n_submissions, 2);
    ck_assert_int_eq(store_run_commit(store, &composition->summary, &composition->facts, &err), 0);
    /* What was metered is not what was planned, once the plan is changed. */
    struct err mismatch = {0};
    composition->facts.kv_peak_bytes++;
    ck_assert_int_eq(compose_check_memory(composition, &mismatch), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(mismatch.text, "peak of the cached rows: "));
    composition->facts.kv_peak_bytes--;
    mismatch = (struct err){0};
    ck_assert_int_eq(compose_check_memory(composition, &mismatch), 0);
    compose_close(composition);
    /* It is played as far as it goes: five of the six requests were under way then, or waited. */
    err = (struct err){0};
    const struct backend_request priced = {0};
    const struct run_watch unwatched = {0};
    ck_assert_msg(recorded_load(store, run, &recorded, &err) == 0, "%s", err.text);
    ck_assert_str_eq(recorded->incomplete, sentence);
    ck_assert_msg(compose_recorded(recorded, &priced, 0, &composition, &err) == 0, "%s", err.text);
    ck_assert_msg(compose_run(composition, &unwatched, &err) == 0, "%s", err.text);
    ck_assert(composition->is_played_out);
    ck_assert_uint_eq(composition->result.submissions, n_submissions);
    ck_assert_uint_eq(composition->summary.requests, recorded->n_arrivals);
    ck_assert_str_eq(composition->facts.incomplete, sentence);
    compose_close(composition);
    recorded_close(recorded);
    store_close(store);
    remove(kept.path);
}

TEST(what_the_engine_does_not_run_is_refused_when_it_opens) {
    static const char *const cases[][3] = {
        {"runtime=hf-eager", "kv=slab",
         "runtime hf-eager does not run live, for it has padded batches: the engine runs packed "
         "batches; set runtime = unmask"},
        {"storage.weights=bf16", "kv=pages",
         "the cpu back end computes in float32; set storage.weights = f32"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct system *system = LIVE_SYSTEM("llada-tiny", cases[i][0], cases[i][1]);
        struct engine_request asked = {
            .backend = BACKEND_CPU, .weights = "random:3", .system = system};
        struct engine *engine = NULL;
        struct err err = {0};
        ck_assert_int_eq(engine_open(&asked, &engine, &err), ERR_USAGE);
        ASSERT_SAYS(err.text, cases[i][2]);
        system_close(system);
    }
}

static int64_t n_decided;

static int count_decode(struct device *device, const struct call_decode *call) {
    for (int32_t i = 0; i < call->n_requests; i++) {
        n_decided += call->n_rows[i];
    }
    return device_cpu.decode(device, call);
}

/* Once whole and once operator by operator: each time all of it. */
TEST(a_step_that_is_timed_operator_by_operator_decides_what_it_decides_whole) {
    struct system *system =
        LIVE_SYSTEM("llada-tiny", "cache=dual", "decoder=threshold", "block_tokens=8");
    struct engine_request request = {
        .backend = BACKEND_CPU, .weights = "random:3", .system = system};
    struct device_table counting = device_cpu;
    counting.decode = count_decode;
    static struct asked_step step;
    struct engine *engine = NULL;
    struct err err = {0};
    int64_t n[2];
    ck_assert_msg(engine_open(&request, &engine, &err) == 0, "%s", err.text);
    engine->device.table = &counting;
    ck_assert_msg(step_first(system, 9, 16, &step, &err) == 0, "%s", err.text);
    for (uint32_t by_operator = 0; by_operator < 2; by_operator++) {
        const struct measuring measuring = {.rounds = 1, .operator_rounds = by_operator};
        struct measured_step measured;
        n_decided = 0;
        int status = step_measure_on(engine, &step, &measuring, &measured, &err);
        ck_assert_msg(status == 0, "%s", err.text);
        n[by_operator] = n_decided;
    }
    ck_assert_int_gt(n[0], 0);
    ck_assert_int_eq(n[1], 2 * n[0]);
    step_fini(&step);
    engine_close(engine);
    system_close(system);
}

SUITE("live")
