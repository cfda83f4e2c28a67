/* Ends of text: who stops where, what lies behind an end, who sees it when, and runs that agree. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/policy/plugin/registry.h"
#include "tests/support/rig.h"
#include "traces/decode_log.h"
#include "traces/decode_trace.h"

struct ended {
    struct loop_result result;
    struct keeper keeper;
};

static struct ended run_with(struct system *system, const struct arrival *arrivals, size_t n,
                             uint64_t seed, const struct decode_source *decode,
                             const struct sink *more) {
    struct ended run = {.keeper = {0}};
    struct list_source list = {arrivals, n, 0};
    struct executor_sim *sim = executor_sim_open(system, system->settings.replicas);
    struct sink sinks[2] = {keeper_sink(&run.keeper), more != NULL ? *more : (struct sink){0}};
    struct loop_request request = MAKE(
        struct loop_request, .system = system, .executor = executor_sim_interface(sim),
        .source = {.state = &list, .next = list_next}, .sinks = sinks,
        .n_sinks = 1 + (more != NULL), .records_members = true, .seed = seed, .decode = decode);
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &run.result, &err) == 0, "%s", err.text);
    executor_sim_close(sim);
    return run;
}

static struct ended run_system(const char *name, const char *const *settings,
                               const struct arrival *arrivals, size_t n) {
    struct system *system = rig_system(name, "h200", true, settings);
    struct ended run = run_with(system, arrivals, n, 1, NULL, NULL);
    system_close(system);
    return run;
}

#define RUN(name, arrivals, n, ...)                                                                \
    run_system(name, (const char *const[]){__VA_ARGS__, NULL}, arrivals, n)

/* Blocks of 32: the end is in the second of eight. */
static const struct arrival one[] = {
    {.id = 0, .prompt_tokens = 64, .output_tokens = 256, .answer_tokens = 40}};

TEST(a_request_whose_text_ends_leaves_with_its_block_under_early_stop_and_not_without) {
    struct ended off = RUN("dllm-serve", one, 1, "early_stop=off"),
                 on = RUN("dllm-serve", one, 1, "early_stop=block"),
                 at = RUN("dllm-serve", one, 1, "early_stop=position");
    const struct request_record *a = off.keeper.requests, *b = on.keeper.requests,
                                *c = at.keeper.requests;
    ck_assert_uint_eq(a->steps, 256);
    ck_assert_uint_eq(a->committed_tokens, 256);
    ck_assert_uint_eq(b->steps, 64);
    ck_assert_uint_eq(b->committed_tokens, 64);
    ck_assert_uint_eq(c->steps, 40); /* a token a step, counted from left to right */
    ck_assert_uint_eq(c->committed_tokens, 40);
    ck_assert_int_lt(b->finished_ns, a->finished_ns);
    ck_assert_int_lt(c->finished_ns, b->finished_ns);
    ck_assert_uint_eq(a->answer_tokens, 40);
    ck_assert_uint_eq(b->answer_tokens, 40);
    ck_assert_uint_eq(c->answer_tokens, 40);
    ck_assert_int_eq(a->first_block_ns, b->first_block_ns);
    keeper_fini(&off.keeper);
    keeper_fini(&on.keeper);
    keeper_fini(&at.keeper);
}

TEST(blocks_behind_the_end_are_counted_as_such) {
    struct ended off = RUN("dllm-serve", one, 1, "early_stop=off", "skip_ahead=off"),
                 on = RUN("dllm-serve", one, 1, "early_stop=block");
    uint64_t tokens = 0;
    ck_assert_uint_eq(off.keeper.n_steps, 256);
    for (size_t i = 64; i < 256; i++) {
        tokens += (uint64_t)off.keeper.steps[i].sym[SYM_TOKENS];
    }
    ck_assert_uint_eq(off.keeper.requests->steps_after_end, 192);
    ck_assert_uint_eq(off.keeper.requests->tokens_after_end, tokens);
    ck_assert_uint_eq(on.keeper.requests->steps_after_end, 0);
    ck_assert_uint_eq(on.keeper.requests->tokens_after_end, 0);
    keeper_fini(&off.keeper);
    keeper_fini(&on.keeper);
}

TEST(a_threshold_decodes_a_block_behind_the_end_in_one_pass) {
    static const struct arrival canvas[] = {
        {.id = 0, .prompt_tokens = 100, .output_tokens = 1024, .answer_tokens = 200}};
    struct ended run =
        RUN("fast-dllm-moe", canvas, 1, "block_tokens=64", "confidence=llada-moe/gsm8k");
    ck_assert_uint_eq(run.keeper.requests->steps_after_end, 12);
    ck_assert_uint_eq(run.keeper.requests->tokens_after_end, 12 * (100 + 1024));
    ck_assert_uint_gt(run.keeper.requests->steps, 12 + 200 / 64 + 10);
    keeper_fini(&run.keeper);
}

TEST(an_answer_as_long_as_its_output_changes_nothing) {
    static const char *const systems[] = {"lmdeploy", "fast-dllm-v2", "dinfer", "focus"};
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        struct arrival said[1] = {one[0]}, unsaid[1] = {one[0]};
        said->answer_tokens = 256;
        unsaid->answer_tokens = 0;
        struct ended a = RUN(systems[i], said, 1, "early_stop=block"),
                     b = RUN(systems[i], unsaid, 1, "early_stop=off");
        ck_assert_mem_eq(a.keeper.requests, b.keeper.requests, sizeof *a.keeper.requests);
        keeper_fini(&a.keeper);
        keeper_fini(&b.keeper);
    }
}

/* The last block of a text that ends writes its exact rows where any last block does. */
TEST(the_block_of_the_end_is_a_last_block) {
    static const struct arrival list[] = {
        {.id = 0, .prompt_tokens = 8, .output_tokens = 16, .answer_tokens = 6}};
#define BY_COUNT "decoder=fixed", "block_tokens=4", "steps_per_block=2", "early_stop=block"
    struct ended commits = RUN("sdar", list, 1, BY_COUNT),
                 saves = RUN("sdar", list, 1, BY_COUNT, "cache.commit_last=off"),
                 crosses = RUN("sdar", list, 1, BY_COUNT, "cache.commit_last=off",
                               "cache.cross_block=on"),
                 plain = RUN("sdar", list, 1, BY_COUNT, "cache.cross_block=on");
    /* A prefill, two blocks of two steps, and a commit pass behind the first, each or none. */
    ck_assert_uint_eq(commits.keeper.requests->steps, 1 + 3 + 3);
    ck_assert_uint_eq(saves.keeper.requests->steps, 1 + 3 + 2);
    ck_assert_uint_eq(crosses.keeper.requests->steps, 1 + 2 + 2);
    ck_assert_uint_eq(plain.keeper.requests->steps, 1 + 2 + 3);
    keeper_fini(&commits.keeper);
    keeper_fini(&saves.keeper);
    keeper_fini(&crosses.keeper);
    keeper_fini(&plain.keeper);
}

enum { MANY = 60 };

static void random_arrivals(struct arrival *arrivals, uint64_t seed) {
    struct rng rng = rng_stream(seed, "answers");
    int64_t at_ns = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t output = rig_between(&rng, 1, 200);
        at_ns += rig_between(&rng, 0, 40000000);
        arrivals[i] = MAKE(struct arrival, .arrival_ns = at_ns, .id = i,
                           .prompt_tokens = rig_between(&rng, 1, 300), .output_tokens = output,
                           .answer_tokens = rig_between(&rng, 1, output));
    }
}

static const char *const random_systems[] = {
    "dllm-serve", "fast-dllm",    "vanilla", "sparse-dllm", "dllm-cache",
    "sdar",       "lmdeploy",     "sglang",  "dc+",         "focus",
    "vllm-ar",    "fast-dllm-v2", "dinfer",  "dinfer-0.8",  "dinfer-block-diffusion",
    "dkv-cache"};
static const char *const stops[] = {"early_stop=off", "early_stop=block", "early_stop=position"};

/* Where the block ends that holds output position `answer` - 1, as far as the canvas goes. */
static uint32_t block_end(const struct system *system, const struct request_record *r) {
    uint32_t block = system->settings.block_tokens;
    uint32_t before = system_causality(system->model) == SEES_BLOCKS ? r->prompt_tokens % block : 0;
    uint32_t end = (before + r->answer_tokens + block - 1) / block * block - before;
    return end < r->output_tokens ? end : r->output_tokens;
}

static void check_ends(const struct system *system, const struct ended *run,
                       const struct arrival *arrivals) {
    uint64_t processed = 0, commits = 0, committed = 0;
    ck_assert_uint_eq(run->result.completed, MANY);
    for (size_t i = 0; i < run->keeper.n_requests; i++) {
        const struct request_record *r = &run->keeper.requests[i];
        uint32_t wanted = arrivals[r->id].answer_tokens;
        ck_assert_uint_eq(r->answer_tokens, wanted);
        switch (system->settings.early_stop) {
        case STOP_NEVER:
            ck_assert_uint_eq(r->committed_tokens, r->output_tokens);
            break;
        case STOP_BLOCK:
            ck_assert_uint_eq(r->committed_tokens, block_end(system, r));
            ck_assert_uint_eq(r->steps_after_end, 0);
            break;
        default:
            ck_assert_uint_ge(r->committed_tokens, wanted);
            ck_assert_uint_le(r->committed_tokens, block_end(system, r));
            ck_assert_uint_eq(r->steps_after_end, 0);
        }
        ck_assert_uint_le(r->tokens_after_end, r->tokens_processed);
        processed += r->tokens_processed;
        committed += r->committed_tokens;
    }
    (void)commits;
    uint64_t in_steps = 0;
    for (size_t i = 0; i < run->keeper.n_steps; i++) {
        in_steps +=
            (uint64_t)run->keeper.steps[i].sym[SYM_TOKENS] * run->keeper.steps[i].record.repeat;
    }
    ck_assert_uint_ge(in_steps, processed);
    ck_assert_uint_ge(processed, committed > 0);
}

TEST(every_text_ends_where_it_should_under_every_system) {
    static struct arrival arrivals[MANY];
    for (size_t s = 0; s < sizeof random_systems / sizeof random_systems[0]; s++) {
        for (size_t i = 0; i < 3; i++) {
            const char *const settings[] = {stops[i], NULL};
            struct system *system = rig_system(random_systems[s], "h200", true, settings);
            random_arrivals(arrivals, s + 100 * i);
            struct ended run = run_with(system, arrivals, MANY, s, NULL, NULL);
            check_ends(system, &run, arrivals);
            keeper_fini(&run.keeper);
            system_close(system);
        }
    }
}

TEST(skipping_ahead_changes_nothing_where_texts_end) {
    static struct arrival arrivals[MANY];
    random_arrivals(arrivals, 7);
    for (size_t s = 0; s < sizeof random_systems / sizeof random_systems[0]; s++) {
        for (size_t i = 0; i < 3; i++) {
            const char *const on[] = {stops[i], "skip_ahead=on", NULL}, *const off[] = {
                                                                            stops[i],
                                                                            "skip_ahead=off", NULL};
            struct ended a = run_system(random_systems[s], on, arrivals, MANY),
                         b = run_system(random_systems[s], off, arrivals, MANY);
            ck_assert_uint_eq(a.result.steps, b.result.steps);
            ck_assert_int_eq(a.result.end_ns, b.result.end_ns);
            ck_assert_mem_eq(a.keeper.requests, b.keeper.requests,
                             MANY * sizeof *a.keeper.requests);
            keeper_fini(&a.keeper);
            keeper_fini(&b.keeper);
        }
    }
}

/* The scheduler that it stands before. */
static const struct scheduler *watched;
static uint64_t n_seen_ended;

static void watch(void *state, const struct schedule_view *view, struct batch *batch) {
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        uint32_t slot = i < view->n_running ? view->running[i] : view->waiting[i - view->n_running];
        const struct request *r = &view->requests[slot];
        if (r->answer_tokens > 0) {
            /* Decoded, all of it: what is left is to write its rows. */
            ck_assert_uint_eq(window_masked(r), 0);
            ck_assert_uint_le(r->prompt_tokens + r->answer_tokens, window_end(r));
            ck_assert_uint_ge(r->committed_tokens, r->answer_tokens);
            n_seen_ended++;
        }
    }
    watched->schedule(state, view, batch);
}

static const struct decoder *watched_decoder;

static void watch_rule(const void *state, const struct request *request, struct decode_rule *out) {
    ck_assert_uint_eq(request->answer_tokens, 0);
    watched_decoder->rule(state, request, out);
}

TEST(policies_see_an_end_only_once_it_is_decoded) {
    static struct arrival arrivals[MANY];
    static const char *const settings[] = {"early_stop=block", NULL};
    struct system *system = rig_system("lmdeploy", "h200", true, settings);
    random_arrivals(arrivals, 11);
    watched = system->scheduler;
    watched_decoder = system->decoder;
    struct scheduler scheduler = *watched;
    struct decoder decoder = *watched_decoder;
    scheduler.schedule = watch;
    decoder.rule = watch_rule;
    system->scheduler = &scheduler;
    system->decoder = &decoder;
    struct ended run = run_with(system, arrivals, MANY, 1, NULL, NULL);
    ck_assert_uint_gt(n_seen_ended, 0);
    keeper_fini(&run.keeper);
    system->scheduler = watched;
    system->decoder = watched_decoder;
    system_close(system);
}

static int log_step(void *state, const struct step_record *record, struct err *err) {
    (void)err;
    for (uint32_t i = 0; i < record->n; i++) {
        struct decode_pass pass = record->passes[i];
        pass.committed = record->commit_tokens[i];
        if (pass.processed > 0) {
            decode_log_add(state, record->request_ids[i], &pass, record->repeat, NULL);
        }
    }
    return 0;
}

static int log_request(void *state, const struct request_record *record, struct err *err) {
    (void)err;
    bool ends = record->answer_tokens < record->output_tokens;
    const struct decode_done done = {record->prompt_tokens, record->output_tokens,
                                     ends ? record->answer_tokens : 0};
    decode_log_finish(state, record->id, &done);
    return 0;
}

static const char *log_path(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/unmask_text_end_%d", (int)getpid());
    return path;
}

static struct decode_log *open_log(const struct system *system) {
    struct decode_log *log;
    struct err err = {0};
    ck_assert_msg(decode_log_open(log_path(), system->settings.block_tokens, &log, &err) == 0, "%s",
                  err.text);
    return log;
}

static struct decode_trace *read_log(struct decode_log *log) {
    struct err err = {0};
    struct decode_trace *trace;
    ck_assert_msg(decode_log_close(log, "", &err) == 0, "%s", err.text);
    ck_assert_msg(decode_trace_read(log_path(), DECODE_COUNTS, &trace, &err) == 0, "%s", err.text);
    remove(log_path());
    return trace;
}

TEST(a_decode_trace_carries_the_ends_with_it) {
    static const char *const systems[] = {"lmdeploy", "focus", "fast-dllm-v2", "dinfer-0.8",
                                          "fast-dllm-moe"};
    static struct arrival arrivals[MANY], unsaid[MANY];
    random_arrivals(arrivals, 13);
    memcpy(unsaid, arrivals, sizeof unsaid);
    for (size_t i = 0; i < MANY; i++) {
        unsaid[i].answer_tokens = 0;
    }
    for (size_t s = 0; s < sizeof systems / sizeof systems[0]; s++) {
        struct system *system = rig_system(systems[s], "h200", true, NULL);
        struct decode_log *log = open_log(system);
        const struct sink sink = {.state = log, .step = log_step, .request = log_request};
        struct ended drawn = run_with(system, arrivals, MANY, 1, NULL, &sink);
        struct decode_trace *trace = read_log(log);
        const struct decode_source source = decode_trace_source(trace);
        ck_assert(decode_trace_has_answers(trace));
        /* Another seed, and a workload that says nothing of answers. */
        struct ended played = run_with(system, unsaid, MANY, 99, &source, NULL);
        ck_assert_msg(drawn.result.steps == played.result.steps, "%s", systems[s]);
        ck_assert_int_eq(drawn.result.end_ns, played.result.end_ns);
        ck_assert_mem_eq(drawn.keeper.requests, played.keeper.requests,
                         MANY * sizeof *drawn.keeper.requests);
        keeper_fini(&drawn.keeper);
        keeper_fini(&played.keeper);
        decode_trace_close(trace);
        system_close(system);
    }
}

TEST(a_trace_that_stops_short_is_not_for_a_system_that_does_not) {
    static const char *const on[] = {"early_stop=block", NULL}, *const off[] = {"early_stop=off",
                                                                                NULL};
    static const struct arrival list[] = {
        {.id = 0, .prompt_tokens = 8, .output_tokens = 64, .answer_tokens = 6}};
    struct system *stopping = rig_system("lmdeploy", "h200", true, on);
    struct decode_log *log = open_log(stopping);
    const struct sink sink = {.state = log, .step = log_step, .request = log_request};
    struct ended run = run_with(stopping, list, 1, 1, NULL, &sink);
    struct decode_trace *trace = read_log(log);
    const struct decode_source source = decode_trace_source(trace);
    struct system *going_on = rig_system("lmdeploy", "h200", true, off);
    struct list_source again = {list, 1, 0};
    struct executor_sim *sim = executor_sim_open(going_on, 1);
    struct loop_request request =
        MAKE(struct loop_request, .system = going_on, .executor = executor_sim_interface(sim),
             .source = {.state = &again, .next = list_next}, .seed = 1, .decode = &source);
    struct loop_result result;
    struct err err = {0};
    ck_assert_int_eq(loop_run(&request, &result, &err), ERR_WORLD);
    executor_sim_close(sim);
    keeper_fini(&run.keeper);
    decode_trace_close(trace);
    system_close(stopping);
    system_close(going_on);
}

SUITE("text end")
