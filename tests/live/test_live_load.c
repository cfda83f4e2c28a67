/* Live runs of schedulers that say which masked positions run, on the CPU. */
#include "tests/support/live.h"

static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 13},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 9},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 16},
};
enum { N = 3 };

#define SYSTEM(...)                                                                                \
    live_system_of("sdar", "sdar-tiny",                                                            \
                   (const char *const[]){"block_tokens=8", "page_tokens=4",                        \
                                         "decoder.threshold=0.03", __VA_ARGS__, NULL})

static const char *const caches[] = {"cache=exact", "cache=delayed", "cache=neighbour"};

/* Rows that all run, a width of the whole block and a threshold that stays give the plain system's
 * tokens; fewer rows give others, and all memory back. */
TEST(equal_settings_give_the_plain_systems_tokens) {
    for (size_t c = 0; c < 3; c++) {
        struct system *plain = SYSTEM(caches[c], "scheduler=chunked");
        struct served *expected = serve_live(plain, together, N);
        struct system *const equal[] = {
            SYSTEM(caches[c], "scheduler=row-budget", "scheduler.rows=8"),
            SYSTEM(caches[c], "scheduler=width-by-rate", "scheduler.least=8", "scheduler.most=8"),
            SYSTEM(caches[c], "scheduler=deadline-valve", "scheduler.low=0.03",
                   "scheduler.high=0.03")};
        for (size_t i = 0; i < 3; i++) {
            struct served *served = serve_live(equal[i], together, N);
            ck_assert_msg(has_same_tokens(expected, served), "%s, %zu", caches[c], i);
            ck_assert_mem_eq(served->result.sym, expected->result.sym, sizeof served->result.sym);
            free(served);
            system_close(equal[i]);
        }
        struct system *few = SYSTEM(caches[c], "scheduler=row-budget", "scheduler.rows=2");
        struct served *served = serve_live(few, together, N);
        check_used_as_planned(served, N);
        ck_assert_int_eq(served->pool_left_bytes, 0);
        ck_assert(!has_same_tokens(expected, served));
        ck_assert_uint_lt((uint64_t)served->result.sym[SYM_TOKENS] * expected->result.request_steps,
                          (uint64_t)expected->result.sym[SYM_TOKENS] *
                              served->result.request_steps);
        free(served);
        free(expected);
        system_close(few);
        system_close(plain);
    }
}

/* Decoded from left to right, a position a pass, a window of one position is an autoregressive pass
 * over what is before it: what comes after is not seen, whatever its length. */
TEST(what_no_pass_has_run_is_not_seen) {
    static const struct arrival brief[] = {{.id = 0, .prompt_tokens = 8, .output_tokens = 3}},
                                longer[] = {{.id = 0, .prompt_tokens = 8, .output_tokens = 8}};
    struct system *narrow = SYSTEM("scheduler=width-by-rate", "scheduler.least=1",
                                   "scheduler.most=1", "decoder.threshold=1"),
                  *wide = SYSTEM("scheduler=chunked", "decoder.threshold=1");
    struct served *a = serve_live(narrow, brief, 1), *b = serve_live(narrow, longer, 1);
    ck_assert_mem_eq(a->tokens[0], b->tokens[0], 3 * sizeof a->tokens[0][0]);
    struct served *c = serve_live(wide, brief, 1), *d = serve_live(wide, longer, 1);
    ck_assert_mem_ne(c->tokens[0], d->tokens[0], 3 * sizeof c->tokens[0][0]);
    free(a);
    free(b);
    free(c);
    free(d);
    system_close(narrow);
    system_close(wide);
}

SUITE("live_load")
