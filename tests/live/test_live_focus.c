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

#define SYSTEM(name, ...)                                                                          \
    live_system_of(name, "sdar-tiny",                                                              \
                   (const char *const[]){"block_tokens=8", "page_tokens=4", __VA_ARGS__, NULL})

static void check_served(const struct served *served) {
    check_used_as_planned(served, N);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->memory.metered_bytes, served->memory.planned_bytes);
}

static const char *const names[] = {"dc", "dc+", "focus"};

/* A budget that nobody exceeds: FOCUS is the cache that it stands on. */
TEST(focus_that_keeps_everybody_is_its_delayed_cache) {
    struct system *plain = SYSTEM("dc+", "decoder.threshold=0.006"),
                  *focus = SYSTEM("focus", "cache.alpha=1e6", "decoder.threshold=0.006"),
                  *tight = SYSTEM("focus", "cache.alpha=0.01", "decoder.threshold=0.006");
    struct served *a = serve_live(plain, together, N), *b = serve_live(focus, together, N),
                  *c = serve_live(tight, together, N);
    ck_assert(has_same_tokens(a, b));
    ck_assert(!has_same_tokens(a, c));
    check_served(c);
    static const char *const others[][3] = {
        /* in another layer, or by another predictor */
        {"cache.layer=3", "cache.alpha=1e6", NULL},
        {"cache.choice=left", "cache.k=8", NULL},
        {"cache.choice=random", "cache.k=0", "cache.alpha=1e6"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct system *other =
            SYSTEM("focus", "decoder.threshold=0.006", others[i][0], others[i][1], others[i][2]);
        struct served *d = serve_live(other, together, N);
        ck_assert(has_same_tokens(a, d));
        free(d);
        system_close(other);
    }
    free(a);
    free(b);
    free(c);
    system_close(plain);
    system_close(focus);
    system_close(tight);
}

/* Blocks that are decoded in one pass and run once more, without prompt tokens in them, which would
 * be left out before: what is left out makes no difference. */
TEST(blocks_of_one_pass_are_those_of_plain_block_diffusion) {
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

/* Fewer tokens run than where whole blocks do. */
TEST(positions_are_left_out) {
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

/* Simulated and live alike: the decoder wants the whole block at once, and gets what FOCUS left of
 * it. */
TEST(a_count_of_more_than_an_eviction_leaves_commits_what_is_left) {
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

/* The same code from a shared object: the core knows a policy by its answers alone. Live and
 * simulated, with what the steps cost. */
TEST(a_plug_in_does_what_the_built_in_does) {
    static const struct {
        const char *system, *model, *plugin, *name;
    } pairs[] = {{"focus", "sdar-tiny", "copy_focus", "focus"},
                 {"dkv-cache", "llada-tiny", "copy_dkv", "dkv-decode"},
                 {"dsb", "llada-tiny", "copy_sliding", "sliding"}};
    for (int i = 0; i < 6; i++) {
        const struct cache_policy *caches[2];
        struct served *served[2];
        for (int copy = 0; copy < 2; copy++) {
            char cache[300];
            snprintf(cache, sizeof cache, "cache=%s", suite_plugin(pairs[i / 2].plugin));
            struct system *system = live_system_of(
                pairs[i / 2].system, pairs[i / 2].model,
                (const char *const[]){"block_tokens=8", "decoder=threshold",
                                      "decoder.threshold=0.006", copy ? cache : NULL, NULL});
            ck_assert_int_eq(strcmp(system->cache->policy.name, pairs[i / 2].name), 0);
            caches[copy] = system->cache;
            served[copy] = serve(&(struct serving){
                .system = system, .arrivals = together, .n = N, .simulates = i % 2 == 1});
            ck_assert_msg(served[copy]->err.kind == ERR_NONE, "%s", served[copy]->err.text);
            system_close(system);
        }
        ck_assert(caches[0] != caches[1]);
        ck_assert(i % 2 == 1 || has_same_tokens(served[0], served[1]));
        ck_assert_mem_eq(served[0]->commits, served[1]->commits, sizeof served[0]->commits);
        ck_assert_mem_eq(served[0]->result.sym, served[1]->result.sym,
                         sizeof served[0]->result.sym);
        ck_assert(i % 2 == 0 || served[0]->result.end_ns == served[1]->result.end_ns);
        free(served[0]);
        free(served[1]);
    }
}

SUITE("live_focus")
