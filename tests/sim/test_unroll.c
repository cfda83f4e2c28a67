/* Steps that the host starts without a look in between: what they commit is what single steps
 * commit, what finds its block done is counted as waste, and the host is paid once a visit. */
#include "tests/support/live.h"
#include "tests/support/says.h"

enum { N = 3, PROMPT = 40, OUTPUT = 96 };

static const struct arrival arrivals[N] = {
    {.id = 0, .prompt_tokens = PROMPT, .output_tokens = OUTPUT},
    {.id = 1, .prompt_tokens = PROMPT + 7, .output_tokens = OUTPUT - 20},
    {.id = 2, .prompt_tokens = PROMPT - 9, .output_tokens = OUTPUT},
};

struct simulated {
    struct loop_result result;
    uint64_t wasted, wasted_tokens, commit_steps;
};

/* `n` of the arrivals through a system of the file. */
static struct simulated simulate(const char *name, size_t n, const char *const *settings) {
    struct simulated out = {.wasted = 0};
    struct keeper keeper = {0};
    struct system *system = rig_system(name, "h200", true, settings);
    struct list_source list = {arrivals, n, 0};
    out.result =
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, &keeper);
    ck_assert_uint_eq(out.result.completed, n);
    int64_t before_ns = 0;
    for (size_t i = 0; i < keeper.n_steps; i++) {
        const struct step_record *record = &keeper.steps[i].record;
        ck_assert_uint_eq(record->index, i);
        ck_assert_int_ge(record->start_ns, before_ns);
        ck_assert_int_gt(record->end_ns, record->start_ns);
        ck_assert_uint_le(record->wasted_requests, record->n);
        ck_assert((record->wasted_requests > 0) == (record->wasted_tokens > 0));
        before_ns = record->end_ns;
        out.wasted += record->wasted_requests;
        out.wasted_tokens += record->wasted_tokens;
        out.commit_steps += record->n_by_phase[PHASE_COMMIT];
    }
    keeper_fini(&keeper);
    system_close(system);
    return out;
}
#define SIMULATE(name, n, ...) simulate(name, n, (const char *const[]){__VA_ARGS__, NULL})

#define DRAWN                                                                                      \
    "decoder=threshold", "decoder.threshold=0.3", "confidence=sdar-2m/hops",                       \
        "scheduler=continuous", "block_tokens=32"

TEST(useful_steps_are_those_of_a_host_that_looks_each_time) {
    static const char *const caches[] = {"cache=dual", "cache=vicinity", "cache=none"};
    for (int i = 0; i < 3; i++) {
        struct simulated single = SIMULATE("fast-dllm", 1, DRAWN, caches[i]);
        struct simulated four =
            SIMULATE("fast-dllm", 1, DRAWN, caches[i], "unroll.maximum=4", "unroll.expected_tpf=1");
        struct simulated one = SIMULATE("fast-dllm", 1, DRAWN, caches[i], "unroll.maximum=1");
        ck_assert_int_eq(single.result.end_ns, one.result.end_ns);
        ck_assert_uint_eq(single.wasted, 0);
        ck_assert_uint_gt(four.wasted, 0);
        ck_assert_uint_eq(four.result.request_steps, single.result.request_steps + four.wasted);
        ck_assert_int_eq(four.result.sym[SYM_TOKENS],
                         single.result.sym[SYM_TOKENS] + (int64_t)four.wasted_tokens);
        struct simulated three = SIMULATE("fast-dllm", N, DRAWN, caches[i], "unroll.maximum=3");
        struct simulated together = SIMULATE("fast-dllm", N, DRAWN, caches[i]);
        ck_assert_uint_eq(three.result.request_steps, together.result.request_steps + three.wasted);
    }
}

/* Nothing masked is left by a step that had nothing to decide: it wrote what a commit pass writes.
 */
TEST(a_step_after_a_block_s_end_is_its_commit_pass) {
    struct simulated single = SIMULATE("sdar", 1, DRAWN);
    struct simulated four = SIMULATE("sdar", 1, DRAWN, "unroll.maximum=4", "unroll.expected_tpf=1");
    ck_assert_uint_gt(single.commit_steps, four.commit_steps);
    ck_assert_uint_eq(four.result.request_steps, single.result.request_steps + four.wasted);
    ck_assert_int_eq(four.result.sym[SYM_TOKENS],
                     single.result.sym[SYM_TOKENS] + (int64_t)four.wasted_tokens);
}

/* One position a step: 32 steps a block, of which the first is a refresh that ends a group. Of the
 * others 4 go together while 8 and more are masked for each. */
TEST(the_host_is_paid_once_a_visit) {
    const char *const off[] = {"runtime.host_reuse_ns=1ms",
                               "runtime.host_refresh_ns=1ms",
                               "runtime.host_request_reuse_ns=0",
                               "runtime.host_request_refresh_ns=0",
                               "block_tokens=32",
                               NULL};
    struct system *system = rig_system("fast-dllm", "h200", true, off);
    static const struct arrival alone = {.prompt_tokens = 64, .output_tokens = 32};
    int64_t end_ns[2];
    for (int i = 0; i < 2; i++) {
        system->settings.unroll_maximum = i == 0 ? 1 : 4;
        struct list_source list = {&alone, 1, 0};
        end_ns[i] =
            rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, NULL)
                .end_ns;
    }
    /* From 31 masked: 3 (31 / 8), 3 (28), 3 (25), 2 (22), 2 (20), 2 (18), 2 (16), then one by one:
     * 7 visits for 17 steps, 14 for those left, and the refresh: 22 instead of 32. */
    int64_t saved_ns = end_ns[0] - end_ns[1]; /* whole nanoseconds a step */
    ck_assert_int_ge(saved_ns, 10 * INT64_C(1000000) - 32);
    ck_assert_int_le(saved_ns, 10 * INT64_C(1000000) + 32);
    system_close(system);
}

TEST(an_overlapping_host_gains_nothing) {
    struct simulated single = SIMULATE("fast-dllm-published", 1, "block_tokens=32");
    struct simulated four =
        SIMULATE("fast-dllm-published", 1, "block_tokens=32", "unroll.maximum=4");
    ck_assert_int_eq(single.result.end_ns, four.result.end_ns);
}

static struct served *serve_with(const char *name, const char *model, const char *const *settings,
                                 uint32_t unroll) {
    static const struct arrival small[N] = {
        {.id = 0, .prompt_tokens = 9, .output_tokens = 30},
        {.id = 1, .prompt_tokens = 5, .output_tokens = 17},
        {.id = 2, .prompt_tokens = 12, .output_tokens = 24},
    };
    struct system *system = live_system_of(name, model, settings);
    system->settings.unroll_maximum = unroll;
    system->settings.unroll_expected_tpf = 1;
    struct serving serving = {.system = system, .arrivals = small, .n = N};
    struct served *served = serve(&serving);
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    ck_assert_uint_eq(served->result.completed, N);
    ck_assert_int_eq(served->activation_bytes, served->planned_activation_bytes);
    ck_assert_int_eq(served->pool_bytes, served->result.kv_peak_bytes);
    system_close(system);
    return served;
}

static void check_live(const char *name, const char *model, const char *const *settings,
                       bool overshoots) {
    struct served *single = serve_with(name, model, settings, 1);
    for (uint32_t unroll = 2; unroll <= 5; unroll += 3) {
        struct served *unrolled = serve_with(name, model, settings, unroll);
        for (uint32_t id = 0; id < N; id++) {
            ck_assert_uint_eq(single->n_tokens[id], unrolled->n_tokens[id]);
            ck_assert_mem_eq(single->tokens[id], unrolled->tokens[id],
                             single->n_tokens[id] * sizeof single->tokens[id][0]);
        }
        ck_assert_uint_ge(unrolled->result.request_steps, single->result.request_steps);
        ck_assert(!overshoots || unroll < 5 ||
                  unrolled->result.request_steps > single->result.request_steps);
        free(unrolled);
    }
    free(single);
}

TEST(unrolling_changes_no_token_of_a_live_run) {
    static const char *const caches[] = {"cache=dual", "cache=vicinity", "cache=prefix",
                                         "cache=sparse-head", "cache=none"};
    for (int i = 0; i < 5; i++) {
        check_live("fast-dllm", "llada-tiny",
                   (const char *const[]){caches[i], "decoder=threshold", "block_tokens=8",
                                         "decoder.threshold=0.012", LIVE_WIDE, NULL},
                   true);
        check_live("fast-dllm", "llada-tiny",
                   (const char *const[]){caches[i], "decoder=fixed", "block_tokens=8", NULL},
                   false);
    }
}

TEST(unrolling_changes_no_token_of_any_rule) {
    static const char *const rules[][2] = {
        {"decoder=factor", "decoder.factor=40"},
        {"decoder=hierarchical", "decoder.low_threshold=0.01"},
        {"decoder=credit", "decoder.threshold=0.012"},
        {"decoder=entropy-bounded", "decoder.bound=8"},
        {"decoder=entropy", "decoder.epsilon=0.001"},
        {"decoder=origin", "decoder.seed=3"},
    };
    for (int i = 0; i < 6; i++) {
        check_live("fast-dllm", "llada-tiny",
                   (const char *const[]){"cache=vicinity", "block_tokens=8", rules[i][0],
                                         rules[i][1], NULL},
                   false);
    }
}

TEST(unrolling_changes_no_token_of_exact_blocks) {
    check_live("sdar", "sdar-tiny",
               (const char *const[]){"runtime=unmask", "decoder=threshold", "page_tokens=4",
                                     "decoder.threshold=0.008", "block_tokens=8", NULL},
               false);
    check_live("sdar", "sdar-tiny",
               (const char *const[]){"runtime=unmask", "decoder=threshold", "page_tokens=4",
                                     "decoder.threshold=0.008", "block_tokens=8",
                                     "cache.cross_block=on", NULL},
               false);
    check_live("vllm-ar", "qwen2.5-tiny",
               (const char *const[]){"runtime=unmask", "prefix_caching=off", "page_tokens=4", NULL},
               false);
}

static int spoil_after;

static int spoil_sample(struct device *device, const struct call_sample *call) {
    int status = device_cpu.sample(device, call);
    for (int32_t row = 0; spoil_after == 0 && row < call->n_rows; row++) {
        call->confidence[row] = NAN;
    }
    spoil_after--;
    return status;
}

TEST(logits_that_are_no_numbers_end_an_unrolled_run_in_their_step) {
    static const struct arrival alone = {.prompt_tokens = 9, .output_tokens = 14};
    struct device_table spoiled = device_cpu;
    spoiled.sample = spoil_sample;
    struct system *system =
        LIVE_SYSTEM("llada-tiny", "cache=dual", "decoder=threshold", "decoder.threshold=1",
                    "block_tokens=14", "unroll.maximum=4", "unroll.expected_tpf=1");
    spoil_after = 2;
    struct serving serving = {.system = system, .arrivals = &alone, .n = 1, .table = &spoiled};
    struct served *served = serve(&serving);
    ck_assert_int_eq(served->err.kind, ERR_WORLD);
    ck_assert_str_eq(served->err.text, "the logits of request 0 are not numbers in its step 3");
    free(served);
    system_close(system);
}

static void assert_refused(const char *system_name, const char *const *texts,
                           const char *sentence) {
    struct setting settings[4];
    uint32_t n = 0;
    for (; texts[n] != NULL; n++) {
        const char *equals = strchr(texts[n], '=');
        settings[n] = (struct setting){.place = "test"};
        snprintf(settings[n].key, sizeof settings[n].key, "%.*s", (int)(equals - texts[n]),
                 texts[n]);
        snprintf(settings[n].value, sizeof settings[n].value, "%s", equals + 1);
    }
    struct system_request request =
        MAKE(struct system_request, .system = system_name, .gpu = "h200", .overrides = settings,
             .n_overrides = n, .roofline = true);
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_int_eq(system_open(&request, &system, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, sentence);
}

TEST(what_follows_from_each_step_s_commits_is_refused) {
    assert_refused("focus", (const char *const[]){"unroll.maximum=4", NULL},
                   "unroll.maximum = 4 starts steps before what those before them commit is known, "
                   "and cache = focus runs what is left: set unroll.maximum = 1");
    assert_refused("fast-dllm",
                   (const char *const[]){"unroll.maximum=2", "logit_scope=masked", NULL},
                   "unroll.maximum = 2 starts steps before what those before them commit is known, "
                   "and logit_scope = masked runs what is left: set unroll.maximum = 1");
    assert_refused(
        "dinfer-block-diffusion",
        (const char *const[]){"unroll.maximum=3", "decoder=entropy-blocks", NULL},
        "unroll.maximum = 3 starts steps together, and decoder entropy-blocks chooses on "
        "the host after each: set unroll.maximum = 1");
    assert_refused("fast-dllm", (const char *const[]){"unroll.maximum=0", NULL},
                   "test: '0' is not a value for unroll.maximum of the system: expected a whole "
                   "number from 1 to 64 (steps)");
}

/* Whatever host_mode says of launches, and whether steps are skipped ahead or not. */
TEST(a_visit_of_the_host_is_paid_each_time_that_the_scheduler_is_asked) {
    enum { VISIT_NS = 1000000, LOOPS = 4 };
#define ASKED(...)                                                                                 \
    SIMULATE("lmdeploy", 1, "decoder=fixed", "steps_per_block=8", "block_tokens=32", mode,         \
             __VA_ARGS__)
    static const char *const modes[] = {"runtime.host_mode=serial", "runtime.host_mode=overlaps",
                                        "runtime.host_mode=by-layers", "runtime.host_mode=loops"};
    static const char *const terms[] = {"runtime.host_visit_ns=1000000",
                                        "runtime.host_visit_request_ns=1000000"};
    for (int i = 0; i < 8; i++) {
        const char *mode = modes[i % 4], *visit = terms[i / 4];
        struct simulated none = ASKED("scheduler.multi_loop=off");
        struct simulated each = ASKED("scheduler.multi_loop=off", visit);
        struct simulated stepped = ASKED("scheduler.multi_loop=off", visit, "skip_ahead=off");
        struct simulated looped = ASKED("scheduler.multi_loop=on");
        struct simulated some = ASKED("scheduler.multi_loop=on", visit);
        int64_t steps = (int64_t)each.result.request_steps;
        ck_assert_int_gt(steps / LOOPS, 2);
        ck_assert_int_eq(each.result.end_ns - none.result.end_ns, steps * VISIT_NS);
        ck_assert_int_eq(stepped.result.end_ns, each.result.end_ns);
        ck_assert_int_eq(looped.result.end_ns, none.result.end_ns);
        int64_t visits = (some.result.end_ns - looped.result.end_ns) / VISIT_NS;
        ck_assert_int_eq((some.result.end_ns - looped.result.end_ns) % VISIT_NS, 0);
        ck_assert_int_ge(visits, steps / LOOPS);
        ck_assert_int_le(visits, steps / LOOPS + LOOPS);
    }
}

/* As often as the host looks: unrolled steps are one visit. */
TEST(unrolled_steps_are_one_visit) {
#define UNROLLED(...)                                                                              \
    SIMULATE("fast-dllm", 1, DRAWN, "unroll.maximum=4", "unroll.expected_tpf=1", __VA_ARGS__)
    struct simulated none = UNROLLED("runtime.host_visit_ns=0");
    struct simulated paid = UNROLLED("runtime.host_visit_ns=1000000");
    int64_t more = paid.result.end_ns - none.result.end_ns;
    ck_assert_int_gt(more, 0);
    ck_assert_int_le(more, (int64_t)paid.result.request_steps * 1000000 / 2);
}

SUITE("unroll")
