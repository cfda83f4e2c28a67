/* Live runs of caches that leave positions of a block out or evict some in the middle of a step, on
 * the CPU: DC, DC+ and FOCUS. */
#include <unistd.h>

#include "tests/support/live.h"

static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 13},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 9},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 16},
};
static const struct arrival apart[] = {
    {.id = 2, .arrival_ns = 0, .prompt_tokens = 8, .output_tokens = 16},
    {.id = 0, .arrival_ns = INT64_C(1000000000000), .prompt_tokens = 3, .output_tokens = 13},
    {.id = 1, .arrival_ns = INT64_C(2000000000000), .prompt_tokens = 21, .output_tokens = 9},
};
enum { N = 3 };

static char plugin[256];

#define SYSTEM(name, ...)                                                                          \
    live_system_of(name, "sdar-tiny",                                                              \
                   (const char *const[]){"block_tokens=8", "page_tokens=4", __VA_ARGS__, NULL})

static void check_served(const struct served *served) {
    check_used_as_planned(served, N);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->memory.metered_bytes, served->memory.planned_bytes);
}

static const char *const names[] = {"dc", "dc+", "focus"};

START_TEST(company_and_arrival_change_no_token) {
    static const char *const scopes[] = {"logit_scope=queries", "logit_scope=masked",
                                         "logit_scope=block", "logit_scope=generation"};
    const char *const decoders[] = {"fixed", "threshold", plugin};
    for (size_t i = 0; i < 12; i++) {
        char decoder[300];
        snprintf(decoder, sizeof decoder, "decoder=%s", decoders[i / 3 % 3]);
        bool thresholds = strcmp(decoder, "decoder=threshold") == 0;
        struct system *system = SYSTEM(names[i % 3], decoder, scopes[i % 4],
                                       thresholds ? "decoder.threshold=0.006" : "kv=pages");
        struct served *batched = serve_live(system, together, N),
                      *alone = serve_live(system, apart, N);
        check_served(batched);
        check_served(alone);
        ck_assert(has_same_tokens(batched, alone));
        ck_assert_uint_lt(batched->n_steps, alone->n_steps);
        free(batched);
        free(alone);
        system_close(system);
    }
}
END_TEST

/* A budget that nobody exceeds: FOCUS is the cache that it stands on. */
START_TEST(focus_that_keeps_everybody_is_its_delayed_cache) {
    struct system *plain = SYSTEM("dc+", "decoder.threshold=0.006"),
                  *focus = SYSTEM("focus", "cache.alpha=1e6", "decoder.threshold=0.006"),
                  *tight = SYSTEM("focus", "cache.alpha=0.01", "decoder.threshold=0.006");
    struct served *a = serve_live(plain, together, N), *b = serve_live(focus, together, N),
                  *c = serve_live(tight, together, N);
    ck_assert(has_same_tokens(a, b));
    ck_assert(!has_same_tokens(a, c));
    check_served(c);
    free(a);
    free(b);
    free(c);
    system_close(plain);
    system_close(focus);
    system_close(tight);
}
END_TEST

/* Blocks that are decoded in one pass and run once more, without prompt tokens in them, which would
 * be left out before: what is left out makes no difference. */
START_TEST(blocks_of_one_pass_are_those_of_plain_block_diffusion) {
    static const struct arrival whole[] = {
        {.id = 0, .prompt_tokens = 8, .output_tokens = 20},
        {.id = 1, .prompt_tokens = 24, .output_tokens = 9},
        {.id = 2, .prompt_tokens = 16, .output_tokens = 16},
    };
    struct system *plain = SYSTEM("sdar", "decoder.threshold=0");
    struct served *expected = serve_live(plain, whole, N);
    for (size_t i = 0; i < 2; i++) {
        struct system *system = SYSTEM(names[i], "decoder.threshold=0");
        struct served *served = serve_live(system, whole, N);
        check_served(served);
        ck_assert(has_same_tokens(expected, served));
        free(served);
        system_close(system);
    }
    free(expected);
    system_close(plain);
}
END_TEST

/* Fewer tokens run than where whole blocks do. */
START_TEST(positions_are_left_out) {
    uint64_t tokens[4];
    for (size_t i = 0; i < 4; i++) {
        struct system *system = SYSTEM(i == 3 ? "lmdeploy" : names[i], "decoder=fixed");
        struct served *served = serve_live(system, apart, N);
        const int64_t *sym = served->result.sym;
        tokens[i] = (uint64_t)sym[SYM_TOKENS];
        /* What the device evicted is known only after a step: its sums are of what was kept. */
        ck_assert(i == 2 ? sym[SYM_KEPT_Q] > 0 && sym[SYM_KEPT_Q] < sym[SYM_BLOCK_Q]
                         : sym[SYM_KEPT_Q] == 0);
        free(served);
        system_close(system);
    }
    ck_assert_uint_lt(tokens[0], tokens[1]);
    ck_assert_uint_lt(tokens[1], tokens[3]);
}
END_TEST

START_TEST(requests_that_are_preempted_go_on) {
    for (size_t i = 0; i < 3; i++) {
        struct system *system = SYSTEM(names[i], "cache.ahead_blocks=0", "decoder.threshold=0.006");
        system->budget.pool_bytes = 12 * system->budget.unit_bytes;
        struct served *served = serve_live(system, together, N);
        check_served(served);
        ck_assert_uint_gt(served->n_preempted, 0);
        free(served);
        system_close(system);
    }
}
END_TEST

/* Simulated and live alike: the decoder wants the whole block at once, and gets what FOCUS left of
 * it. */
START_TEST(a_count_of_more_than_an_eviction_leaves_commits_what_is_left) {
    for (int simulates = 0; simulates < 2; simulates++) {
        struct system *system = SYSTEM("focus", "decoder=fixed", "steps_per_block=1");
        struct serving serving = {
            .system = system, .arrivals = together, .n = N, .simulates = simulates};
        struct served *served = serve(&serving);
        ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
        ck_assert_uint_eq(served->result.completed, N);
        uint32_t n_partial = 0, tokens[N] = {0};
        for (size_t i = 0; i < served->n_steps; i++) {
            for (uint32_t j = 0; j < served->steps[i].n_requests; j++) {
                tokens[served->ids[i][j]] += served->commits[i][j];
                n_partial += served->commits[i][j] > 0 && served->commits[i][j] < 5;
            }
        }
        for (uint32_t id = 0; id < N; id++) {
            ck_assert_uint_eq(tokens[id], together[id].output_tokens);
        }
        ck_assert_uint_gt(n_partial, 0);
        free(served);
        system_close(system);
    }
}
END_TEST

/* ---- recorded schedules ---- */

/* A live run's passes, written and read again. */
static struct decode_trace *trace_of(const struct decode_log *log) {
    char path[] = "/tmp/unmask-live-XXXXXX";
    struct decode_trace *trace = NULL;
    struct err err = {0};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(fd, "w");
    ck_assert(decode_log_write(log, "", file) && fclose(file) == 0);
    ck_assert_msg(decode_trace_read(path, &trace, &err) == 0, "%s", err.text);
    unlink(path);
    return trace;
}

/* With its decode trace a live run is played to the token; what the engine measures before it runs
 * a step changes nothing. */
START_TEST(a_schedule_played_with_its_decisions_gives_the_same_tokens) {
    const char *const decoders[] = {"decoder=threshold", "decoder=fixed"};
    for (size_t i = 0; i < 12; i++) {
        bool thresholds = i / 3 % 2 == 0;
        struct system *system =
            SYSTEM(names[i % 3], decoders[!thresholds], "steps_per_block=3", "cache.ahead_blocks=0",
                   thresholds ? "decoder.threshold=0.006" : "kv=pages");
        if (i >= 6) {
            system->budget.pool_bytes = 12 * system->budget.unit_bytes;
        }
        struct serving serving = {
            .system = system, .arrivals = together, .n = N, .passes = decode_log_open(8)};
        struct served *live = serve(&serving);
        ck_assert_msg(live->err.kind == ERR_NONE, "%s", live->err.text);
        ck_assert(i < 6 || live->n_preempted > 0);
        struct decode_trace *trace = trace_of(serving.passes);
        struct decode_source source = decode_trace_source(trace);
        struct accuracy accuracy;
        accuracy_init(&accuracy, system, live->n_steps, 2);
        decode_log_close(serving.passes);
        serving = (struct serving){.system = system,
                                   .arrivals = together,
                                   .n = N,
                                   .played = live,
                                   .accuracy = &accuracy,
                                   .decode = &source};
        struct served *played = serve(&serving);
        ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
        ck_assert_uint_eq(played->n_outputs, N);
        ck_assert_msg(has_same_tokens(live, played), "%s", names[i % 3]);
        ck_assert_uint_eq(played->n_steps, live->n_steps);
        ck_assert_mem_eq(played->result.sym, live->result.sym, sizeof live->result.sym);
        ck_assert_int_eq(played->pool_left_bytes, 0);
        accuracy_fini(&accuracy);
        decode_trace_close(trace);
        free(played);
        free(live);
        system_close(system);
    }
}
END_TEST

/* Simulated decisions are not those of the model: as many positions run, stay and are committed as
 * they say. */
START_TEST(a_simulated_schedule_is_carried_out_in_its_sizes) {
    for (size_t i = 0; i < 6; i++) {
        struct system *system =
            SYSTEM(names[i % 3], "cache.ahead_blocks=0", "decoder.threshold=0.7");
        if (i >= 3) {
            system->budget.pool_bytes = 12 * system->budget.unit_bytes;
        }
        struct serving serving = {
            .system = system, .arrivals = together, .n = N, .simulates = true};
        struct served *simulated = serve(&serving);
        ck_assert_msg(simulated->err.kind == ERR_NONE, "%s", simulated->err.text);
        struct accuracy accuracy;
        accuracy_init(&accuracy, system, simulated->n_steps, 3);
        serving.simulates = false;
        serving.played = simulated;
        serving.accuracy = &accuracy;
        struct served *played = serve(&serving);
        ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
        ck_assert_uint_eq(played->n_outputs, N);
        for (uint32_t id = 0; id < N; id++) {
            for (uint32_t t = 0; t < together[id].output_tokens; t++) {
                ck_assert_int_ne(played->tokens[id][t], (int)system->model->mask_token);
            }
        }
        ck_assert_uint_eq(accuracy.n_steps, simulated->n_steps);
        ck_assert_uint_eq(accuracy.n_by_operator, (simulated->n_steps + 2) / 3);
        accuracy_fini(&accuracy);
        free(simulated);
        free(played);
        system_close(system);
    }
}
END_TEST

int main(void) {
    const char *folder = getenv("UNMASK_PLUGINS");
    snprintf(plugin, sizeof plugin, "%s/template_decoder.so",
             folder != NULL ? folder : "build/plugins");
    const TTest *const tests[] = {
        company_and_arrival_change_no_token,
        focus_that_keeps_everybody_is_its_delayed_cache,
        blocks_of_one_pass_are_those_of_plain_block_diffusion,
        positions_are_left_out,
        requests_that_are_preempted_go_on,
        a_count_of_more_than_an_eviction_leaves_commits_what_is_left,
        a_schedule_played_with_its_decisions_gives_the_same_tokens,
        a_simulated_schedule_is_carried_out_in_its_sizes,
    };
    return SUITE_RUN("live_focus", tests);
}
