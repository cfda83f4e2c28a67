/* SGLang's rounds: how often its scheduler is paid for, what a cached token adds to that, and
 * blocks of a mean number of passes that is no whole number. */
#include "tests/support/live.h"

enum { PROMPT = 64, BLOCK = 32, N_BLOCKS = 8 };

static const struct arrival arrivals[] = {
    {.id = 0, .prompt_tokens = PROMPT, .output_tokens = N_BLOCKS * BLOCK},
};

static struct loop_result simulate(const char *const *settings) {
    struct keeper keeper = {0};
    struct system *system = rig_system("sglang-published", "h20", true, settings);
    struct list_source list = {arrivals, 1, 0};
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, &keeper);
    ck_assert_uint_eq(result.completed, 1);
    keeper_fini(&keeper);
    system_close(system);
    return result;
}
#define SIMULATE(...) simulate((const char *const[]){__VA_ARGS__, NULL})

/* What the second settings take longer than the first, in whole milliseconds. */
static int64_t longer_ms(struct loop_result less, struct loop_result more) {
    ck_assert_int_eq((more.end_ns - less.end_ns) % 1000000, 0);
    return (more.end_ns - less.end_ns) / 1000000;
}

#define NONE "runtime.host_visit_ns=0", "runtime.host_visit_cached_ns=0", "prefix_caching=off"
#define ROUND                                                                                      \
    "runtime.host_visit_ns=1000000", "runtime.host_visit_cached_ns=0", "prefix_caching=off"

TEST(a_round_is_a_pass_where_the_first_done_leaves_and_a_block_in_lockstep) {
    for (int skips = 0; skips < 2; skips++) {
        const char *skip = skips ? "skip_ahead=on" : "skip_ahead=off";
        struct loop_result free_rounds = SIMULATE(skip, "decoder.steps=4", NONE);
        struct loop_result rounds = SIMULATE(skip, "decoder.steps=4", ROUND);
        struct loop_result free_blocks =
            SIMULATE(skip, "decoder.steps=4", "scheduler.mode=lockstep", NONE);
        struct loop_result blocks =
            SIMULATE(skip, "decoder.steps=4", "scheduler.mode=lockstep", ROUND);
        const int64_t n_prefills = PROMPT / BLOCK;
        ck_assert_int_eq(free_blocks.end_ns, free_rounds.end_ns);
        ck_assert_int_eq(longer_ms(free_blocks, blocks), n_prefills + N_BLOCKS);
        ck_assert_int_ge(longer_ms(free_rounds, rounds), n_prefills + 4 * N_BLOCKS);
        ck_assert_int_eq(longer_ms(free_rounds, rounds), (int64_t)rounds.request_steps);
    }
}

TEST(cached_tokens_are_paid_for_while_prefixes_are_shared) {
#define CACHED "runtime.host_visit_cached_ns=1000000", "runtime.host_visit_ns=0"
    struct loop_result none = SIMULATE("decoder.steps=1", NONE);
    struct loop_result off = SIMULATE("decoder.steps=1", CACHED, "prefix_caching=off");
    struct loop_result on = SIMULATE("decoder.steps=1", CACHED, "prefix_caching=on");
    int64_t rows = 0;
    ck_assert_int_eq(off.end_ns, none.end_ns);
    for (int64_t block = 0; block < PROMPT / BLOCK; block++) {
        rows += block * BLOCK;
    }
    for (int64_t block = 0; block < N_BLOCKS; block++) {
        rows += 2 * (PROMPT + block * BLOCK); /* a step and a commit pass */
    }
    ck_assert_int_eq(longer_ms(none, on), rows);
}

/* Matching and entering prefixes is 72 % of the host's time with 4 Ki tokens of prompt and half of
 * 1.5 Ki of answer in each of 128 rows (#33322). */
TEST(cached_tokens_take_the_printed_share_of_a_round) {
    static const char *const names[] = {"sglang-published", "sglang-published-q"};
    for (int i = 0; i < 2; i++) {
        struct system *system = rig_system(names[i], "h20", true, NULL);
        const struct runtime *r = &system->runtime;
        double cached_ns = 128.0 * (4096 + 768) * r->host_visit_cached_ns;
        double other_ns = r->host_visit_ns + 128 * r->host_request_ns[HOST_REUSE];
        ck_assert_double_eq_tol(cached_ns / (cached_ns + other_ns), 0.72, 0.002);
        system_close(system);
    }
}

/* Passes of all blocks, less their commit passes and the prompt's. */
static int64_t steps_of(const char *mean) {
    struct loop_result result = SIMULATE(mean, NONE);
    return (int64_t)result.request_steps - PROMPT / BLOCK - N_BLOCKS;
}

TEST(a_mean_number_of_steps_is_kept_over_the_blocks) {
    ck_assert_int_eq(steps_of("decoder.steps=1"), N_BLOCKS);
    ck_assert_int_eq(steps_of("decoder.steps=4"), 4 * N_BLOCKS);
    ck_assert_int_eq(steps_of("decoder.steps=3.5"), 7 * N_BLOCKS / 2);
    ck_assert_int_eq(steps_of("decoder.steps=3.25"), 13 * N_BLOCKS / 4);
    ck_assert_int_eq(steps_of("decoder.steps=0.5"), N_BLOCKS); /* at least one */
    ck_assert_int_eq(steps_of("decoder.steps=0"), BLOCK * N_BLOCKS);
    ck_assert_int_eq(steps_of("decoder.steps=1000"), BLOCK * N_BLOCKS);
}

SUITE("rounds")
