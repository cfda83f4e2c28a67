/* Live runs of block diffusion and autoregressive models on the CPU: every system that serves them,
 * company, page sizes, chunks, preemption, replays, memory. */
#include "tests/support/chain.h"
#include "tests/support/live.h"

/* Prompts that fill no block, some blocks and a bit, exactly two. */
static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 10},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 7},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 12},
    {.id = 3, .prompt_tokens = 34, .output_tokens = 5},
};
static const struct arrival apart[] = {
    {.id = 2, .arrival_ns = 0, .prompt_tokens = 8, .output_tokens = 12},
    {.id = 3, .arrival_ns = INT64_C(1000000000000), .prompt_tokens = 34, .output_tokens = 5},
    {.id = 0, .arrival_ns = INT64_C(2000000000000), .prompt_tokens = 3, .output_tokens = 10},
    {.id = 1, .arrival_ns = INT64_C(3000000000000), .prompt_tokens = 21, .output_tokens = 7},
};
enum { N = 4 };

/* Logits of the fourth one's model are shifted: passes before a block decide on its first token. */
static const struct {
    const char *name, *model, *blocks;
} systems[] = {
    {"sdar", "sdar-tiny", "block_tokens=4"},   {"lmdeploy", "sdar-tiny", "block_tokens=4"},
    {"sglang", "sdar-tiny", "block_tokens=4"}, {"sdar", "fast-dllm-v2-tiny", "block_tokens=4"},
    {"sdar", "llada2-tiny", "block_tokens=4"}, {"vllm-ar", "qwen2.5-tiny", "block_tokens=1"}};
enum { N_SYSTEMS = 6, N_BLOCKS = 5 };

static char plugin[256];

/* On our own runtime; pages of requests that are preempted are not found again, as the engine does
 * not look for them. */
#define EXACT_SYSTEM(i, ...)                                                                       \
    live_system_of(systems[i].name, systems[i].model,                                              \
                   (const char *const[]){"runtime=unmask", "prefix_caching=off",                   \
                                         systems[i].blocks, __VA_ARGS__, NULL})

/* Everybody has an output, memory was what was planned, and nobody holds any of it. */
static void check_served(const struct system *system, const struct served *served) {
    check_outputs(served, system, together, N);
    check_used_as_planned(served, N);
    ck_assert_int_gt(served->pool_bytes, 0);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->memory.metered_bytes + served->memory.unmapped_bytes,
                     served->memory.planned_bytes);
}

/* The same submissions of the same requests, which commit as much. */
static void same_schedule(const struct served *a, const struct served *b) {
    ck_assert_uint_eq(a->n_steps, b->n_steps);
    for (size_t i = 0; i < a->n_steps; i++) {
        ck_assert_uint_eq(a->steps[i].steps, b->steps[i].steps);
        ck_assert_uint_eq(a->steps[i].n_requests, b->steps[i].n_requests);
    }
    ck_assert_mem_eq(a->ids, b->ids, sizeof a->ids);
    ck_assert_mem_eq(a->commits, b->commits, sizeof a->commits);
}

/* ---- tokens ---- */

static const char *const scopes[] = {"logit_scope=queries", "logit_scope=generation",
                                     "logit_scope=block", "logit_scope=masked"};

static void check_decoder(size_t i, const char *decoder, const char *scope) {
    char text[300];
    snprintf(text, sizeof text, "decoder=%s", decoder);
    bool thresholds = strcmp(decoder, "threshold") == 0;
    struct system *system = EXACT_SYSTEM(i, text, scope, "page_tokens=4",
                                         thresholds ? "decoder.threshold=0.008" : NULL);
    struct served *batched = serve_live(system, together, N);
    struct served *alone = serve_live(system, apart, N);
    check_served(system, batched);
    check_served(system, alone);
    same_tokens(batched, alone, N);
    ck_assert_uint_lt(batched->n_steps, alone->n_steps);
    free(alone);
    free(batched);
    system_close(system);
}

START_TEST(company_and_arrival_change_no_token_of_any_system) {
    const char *const decoders[] = {"fixed", "threshold", plugin};
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        for (size_t j = 0; j < 6; j++) {
            check_decoder(i, decoders[j % 3], scopes[(i + j) % 4]);
        }
    }
}
END_TEST

START_TEST(scopes_pages_and_chunks_change_no_token) {
    static const char *const ways[][3] = {
        {"page_tokens=4", "logit_scope=block", "max_batched_tokens=256"},
        {"page_tokens=64", "logit_scope=queries", "max_batched_tokens=256"},
        {"page_tokens=16", "logit_scope=masked", "max_batched_tokens=24"},
        {"page_tokens=256", "logit_scope=generation", "max_batched_tokens=16"},
    };
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        struct served *first = NULL;
        for (size_t way = 0; way < 4; way++) {
            struct system *system = EXACT_SYSTEM(i, "decoder=threshold", "decoder.threshold=0.008",
                                                 ways[way][0], ways[way][1], ways[way][2]);
            struct served *served = serve_live(system, together, N);
            check_served(system, served);
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
}
END_TEST

START_TEST(commit_passes_and_their_logits_change_no_token_of_the_last_block) {
    for (size_t i = 0; i < N_BLOCKS; i++) {
        struct system *all = EXACT_SYSTEM(i, "decoder=fixed"),
                      *fewer = EXACT_SYSTEM(i, "decoder=fixed", "cache.commit_last=off",
                                            "cache.commit_logits=off", "cache.ahead_blocks=1");
        struct served *a = serve_live(all, together, N), *b = serve_live(fewer, together, N);
        check_served(fewer, b);
        same_tokens(a, b, N);
        ck_assert_uint_lt(b->n_steps, a->n_steps);
        free(a);
        free(b);
        system_close(all);
        system_close(fewer);
    }
}
END_TEST

/* The new block's first pass sees the finished one's exact keys and values, because it writes them
 * before anybody reads. Prefilled, preempted and unrolled alike. */
START_TEST(a_finished_block_written_by_the_next_one_s_first_pass_changes_no_token) {
    for (size_t i = 0; i < 12; i++) {
        const char *decoder = i % 2 == 0 ? "decoder=fixed" : "decoder=threshold";
        const char *threshold = i % 2 == 0 ? "page_tokens=4" : "decoder.threshold=0.008";
        const char *scope = scopes[i % 4];
        struct system *plain =
            EXACT_SYSTEM(i % 3, decoder, "page_tokens=4", scope, "cache.ahead_blocks=0", threshold);
        struct system *cross =
            EXACT_SYSTEM(i % 3, decoder, "page_tokens=4", scope, "cache.cross_block=on",
                         "cache.ahead_blocks=0", threshold);
        if (i >= 6) {
            cross->budget.pool_bytes = 20 * cross->budget.unit_bytes;
        }
        struct served *a = serve_live(plain, together, N), *b = serve_live(cross, together, N);
        check_served(cross, b);
        same_tokens(a, b, N);
        if (i < 6) {
            /* 4, 2, 3 and 2 blocks with outputs */
            ck_assert_uint_eq(b->result.request_steps, a->result.request_steps - (3 + 1 + 2 + 1));
            ck_assert_int_eq(b->result.sym[SYM_TOKENS], a->result.sym[SYM_TOKENS]);
        } else {
            ck_assert_uint_gt(b->n_preempted, 0);
        }
        free(a);
        free(b);
        system_close(plain);
        system_close(cross);
    }
}
END_TEST

/* ---- against the forward pass, a request at a time ---- */

static const int32_t *prompt_of(void *state, uint64_t id) {
    const struct chain *requests = state;
    return requests[id].tokens;
}

/* Outputs of a rig that decodes one request after the other, each in pages of its own. */
static void decode_alone(const struct model *model, struct chain requests[N],
                         int32_t outputs[N][LIVE_OUTPUT]) {
    struct graph_options options = exact;
    options.fused_head = true;
    struct step_limits paged = limits;
    paged.page_rows = 16;
    paged.pool_bytes *= 8;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){model, &options, "random:3", NULL, KERNEL_F32, &paged});
    for (int i = 0; i < N; i++) {
        struct chain *c = &requests[i];
        *c = (struct chain){.canvas = (int)(together[i].prompt_tokens + together[i].output_tokens),
                            .prompt = (int)together[i].prompt_tokens,
                            .block = 4,
                            .take = 1};
        chain_start(c, i, rig);
        chain_place(c, 16, 1);
        while (!chain_over(c)) {
            rig_clear(rig);
            chain_add(c, rig);
            rig_step(rig);
            chain_advance(c, rig->n_committed[0]);
        }
        rig_read(rig, i, c->prompt, outputs[i], c->canvas - c->prompt);
    }
    rig_close(rig);
}

START_TEST(requests_get_the_tokens_of_the_forward_pass_whatever_the_scheduler) {
    static struct chain requests[N];
    static int32_t outputs[N][LIVE_OUTPUT];
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        struct system *system = EXACT_SYSTEM(i, "decoder=fixed", "max_batched_tokens=32");
        decode_alone(system->model, requests, outputs);
        struct serving serving = {.system = system,
                                  .arrivals = together,
                                  .n = N,
                                  .prompt = prompt_of,
                                  .prompt_state = requests};
        struct served *served = serve(&serving);
        ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
        check_served(system, served);
        for (uint32_t id = 0; id < N; id++) {
            ck_assert_mem_eq(served->tokens[id], outputs[id],
                             together[id].output_tokens * sizeof outputs[id][0]);
        }
        free(served);
        system_close(system);
    }
}
END_TEST

/* ---- preemption ---- */

START_TEST(requests_that_are_preempted_and_computed_anew_get_the_same_tokens) {
    const char *const decoders[] = {"decoder=fixed", "decoder=threshold"};
    for (size_t i = 0; i < 2 * N_SYSTEMS; i++) {
        const char *threshold = i % 2 == 1 ? "decoder.threshold=0.008" : NULL;
        struct system *roomy = EXACT_SYSTEM(i / 2, decoders[i % 2], "page_tokens=4",
                                            "cache.ahead_blocks=0", threshold);
        struct system *narrow = EXACT_SYSTEM(i / 2, decoders[i % 2], "page_tokens=4",
                                             "cache.ahead_blocks=0", threshold);
        /* Room for all at first, and for the longest alone; not for all to the end. */
        narrow->budget.pool_bytes = 20 * narrow->budget.unit_bytes;
        struct served *calm = serve_live(roomy, together, N);
        struct served *pressed = serve_live(narrow, together, N);
        check_served(roomy, calm);
        check_served(narrow, pressed);
        ck_assert_uint_eq(calm->n_preempted, 0);
        ck_assert_msg(pressed->n_preempted > 0, "%s", systems[i / 2].name);
        same_tokens(calm, pressed, N);
        free(calm);
        free(pressed);
        system_close(roomy);
        system_close(narrow);
    }
}
END_TEST

/* At any step: of running, waiting and preempted requests alike. */
START_TEST(a_run_that_is_stopped_gives_every_page_back) {
    uint32_t n_preempted = 0;
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        for (size_t stop = 1; stop < 40; stop += 4) {
            struct system *system = EXACT_SYSTEM(i, "decoder=threshold", "page_tokens=4",
                                                 "cache.ahead_blocks=0", "decoder.threshold=0.008");
            system->budget.pool_bytes = 20 * system->budget.unit_bytes;
            struct serving serving = {
                .system = system, .arrivals = together, .n = N, .stop_after = stop};
            struct served *served = serve(&serving);
            ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
            const struct loop_result *result = &served->result;
            ck_assert(result->interrupted || result->completed == N);
            ck_assert_uint_eq(result->completed + result->rejected, result->arrived);
            ck_assert_uint_eq(served->n_outputs, result->completed);
            ck_assert_int_gt(served->pool_bytes, 0);
            ck_assert_int_eq(served->pool_left_bytes, 0);
            n_preempted += served->n_preempted;
            free(served);
            system_close(system);
        }
    }
    ck_assert_uint_gt(n_preempted, 0);
}
END_TEST

/* ---- schedules ---- */

START_TEST(a_live_run_takes_the_steps_that_the_simulator_takes) {
    for (size_t i = 0; i < 2 * N_SYSTEMS; i++) {
        struct system *system =
            EXACT_SYSTEM(i / 2, "decoder=fixed", "page_tokens=4", "max_batched_tokens=32");
        if (i % 2 == 1) {
            system->budget.pool_bytes = 20 * system->budget.unit_bytes;
        }
        struct serving serving = {
            .system = system, .arrivals = together, .n = N, .simulates = true};
        struct served *simulated = serve(&serving);
        ck_assert_msg(simulated->err.kind == ERR_NONE, "%s", simulated->err.text);
        struct served *live = serve_live(system, together, N);
        same_schedule(simulated, live);
        ck_assert_uint_eq(simulated->n_preempted, live->n_preempted);
        ck_assert_int_eq(simulated->result.kv_peak_bytes, live->pool_bytes);
        ck_assert_int_eq(simulated->planned_activation_bytes, live->activation_bytes);
        free(simulated);
        free(live);
        system_close(system);
    }
}
END_TEST

START_TEST(a_recorded_schedule_played_on_the_device_gives_the_same_tokens_and_memory) {
    const char *const decoders[] = {"decoder=fixed", "decoder=threshold"};
    for (size_t i = 0; i < 2 * N_SYSTEMS; i++) {
        struct system *system = EXACT_SYSTEM(i / 2, decoders[i % 2], "page_tokens=4",
                                             i % 2 == 1 ? "decoder.threshold=0.008" : NULL);
        system->budget.pool_bytes = 20 * system->budget.unit_bytes;
        struct served *live = serve_live(system, together, N);
        struct accuracy accuracy;
        accuracy_init(&accuracy, system, live->n_steps, 2);
        struct serving serving = {
            .system = system, .arrivals = together, .n = N, .played = live, .accuracy = &accuracy};
        struct served *played = serve(&serving);
        ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
        check_served(system, played);
        same_tokens(live, played, N);
        ck_assert_uint_eq(played->n_steps, live->n_steps);
        ck_assert_int_eq(played->result.end_ns, live->result.end_ns);
        ck_assert_int_eq(played->planned_activation_bytes, live->activation_bytes);
        ck_assert_uint_eq(accuracy.n_steps, live->n_steps);
        ck_assert_uint_eq(accuracy.n_by_operator, (live->n_steps + 1) / 2);
        accuracy_fini(&accuracy);
        free(played);
        free(live);
        system_close(system);
    }
}
END_TEST

/* Drawn confidences let more positions be committed than the threshold itself would. */
START_TEST(a_simulated_schedule_commits_on_the_device_as_many_positions_as_it_says) {
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        struct system *system =
            EXACT_SYSTEM(i, "decoder=threshold", "decoder.threshold=0.5", "page_tokens=16");
        struct serving serving = {
            .system = system, .arrivals = together, .n = N, .simulates = true};
        struct served *simulated = serve(&serving);
        ck_assert_msg(simulated->err.kind == ERR_NONE, "%s", simulated->err.text);
        struct accuracy accuracy;
        accuracy_init(&accuracy, system, simulated->n_steps, 0);
        serving.simulates = false;
        serving.played = simulated;
        serving.accuracy = &accuracy;
        struct served *played = serve(&serving);
        ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
        check_served(system, played);
        accuracy_fini(&accuracy);
        free(played);
        free(simulated);
        system_close(system);
    }
}
END_TEST

/* ---- mapped memory ---- */

START_TEST(mapping_memory_changes_no_token) {
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        struct system *system = EXACT_SYSTEM(i, "decoder=fixed");
        struct served *allocated = serve_live(system, together, N);
        system->runtime.vmm = true;
        struct served *mapped = serve_live(system, together, N);
        check_served(system, mapped);
        ck_assert(mapped->memory.is_mapped);
        same_tokens(allocated, mapped, N);
        free(allocated);
        free(mapped);
        system_close(system);
    }
}
END_TEST

/* ---- members that run idle ---- */

/* Blocks that are done wait for the slowest, computed along: a run's tokens are those of any other
 * schedule, its steps those of the simulator, and it is played again. */
START_TEST(requests_that_run_idle_are_computed_along_and_change_nothing) {
    static const struct {
        const char *system, *model;
    } lines[] = {{"sglang", "sdar-tiny"},
                 {"sglang", "fast-dllm-v2-tiny"},
                 {"dc", "sdar-tiny"},
                 {"focus", "sdar-tiny"}};
    for (size_t i = 0; i < 8; i++) {
        const char *const settings[] = {
            "scheduler=sglang", "scheduler.mode=lockstep", "block_tokens=4", "decoder=fixed",
            "page_tokens=4",    "cache.ahead_blocks=0",    "skip_ahead=off", NULL};
        struct system *system = live_system_of(lines[i / 2].system, lines[i / 2].model, settings);
        if (i % 2 == 1) {
            system->budget.pool_bytes = 20 * system->budget.unit_bytes;
        }
        struct served *live = serve_live(system, together, N),
                      *alone = serve_live(system, apart, N);
        check_served(system, live);
        same_tokens(live, alone, N);
        uint64_t n_idle = (uint64_t)live->result.sym[SYM_REQUESTS] - live->result.request_steps;
        ck_assert_uint_gt(n_idle, 0);
        ck_assert_int_eq(alone->result.sym[SYM_REQUESTS], (int64_t)alone->result.request_steps);
        struct serving serving = {
            .system = system, .arrivals = together, .n = N, .simulates = true};
        struct served *simulated = i < 6 ? serve(&serving) : NULL;
        if (simulated != NULL) {
            same_schedule(simulated, live);
            ck_assert_mem_eq(simulated->result.sym, live->result.sym, sizeof live->result.sym);
        }
        if (i < 4) {
            struct accuracy accuracy;
            accuracy_init(&accuracy, system, live->n_steps, 0);
            serving = (struct serving){.system = system,
                                       .arrivals = together,
                                       .n = N,
                                       .played = live,
                                       .accuracy = &accuracy};
            struct served *played = serve(&serving);
            ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
            same_tokens(live, played, N);
            accuracy_fini(&accuracy);
            free(played);
        }
        free(simulated);
        free(live);
        free(alone);
        system_close(system);
    }
}
END_TEST

/* ---- what is refused ---- */

START_TEST(pages_that_the_kernels_do_not_take_are_refused_when_the_engine_opens) {
    struct system *system = EXACT_SYSTEM(0, "page_tokens=24");
    const struct engine_request asked = {.device = "cpu", .weights = "random:3", .system = system};
    struct engine *engine = NULL;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&asked, &engine, &err), ERR_USAGE);
    ck_assert_str_eq(err.text,
                     "pages of 24 rows, but the kernels take a power of two from 4 to 256");
    system_close(system);
}
END_TEST

int main(void) {
    const char *folder = getenv("UNMASK_PLUGINS");
    snprintf(plugin, sizeof plugin, "%s/template_decoder.so",
             folder != NULL ? folder : "build/plugins");
    const TTest *const tests[] = {
        company_and_arrival_change_no_token_of_any_system,
        scopes_pages_and_chunks_change_no_token,
        commit_passes_and_their_logits_change_no_token_of_the_last_block,
        a_finished_block_written_by_the_next_one_s_first_pass_changes_no_token,
        requests_get_the_tokens_of_the_forward_pass_whatever_the_scheduler,
        requests_that_are_preempted_and_computed_anew_get_the_same_tokens,
        a_run_that_is_stopped_gives_every_page_back,
        a_live_run_takes_the_steps_that_the_simulator_takes,
        a_recorded_schedule_played_on_the_device_gives_the_same_tokens_and_memory,
        a_simulated_schedule_commits_on_the_device_as_many_positions_as_it_says,
        mapping_memory_changes_no_token,
        requests_that_run_idle_are_computed_along_and_change_nothing,
        pages_that_the_kernels_do_not_take_are_refused_when_the_engine_opens,
    };
    return SUITE_RUN("live_exact", tests);
}
