/* Live runs of FOCUS whose steps the device decides, beside the same runs decided by the host. */
#include "sim/base/rng.h"
#include "tests/support/live.h"

enum { N = 4 };

static char plugin[256];

static struct system *focus_system(const char *const *settings, uint32_t n, const char *bucket) {
    const char *all[LIVE_SETTINGS] = {"page_tokens=4", bucket};
    for (uint32_t i = 0; i < n; i++) {
        all[2 + i] = settings[i];
    }
    return live_system_of("focus", "sdar-tiny", all);
}

#define FOCUS(bucket, ...)                                                                         \
    focus_system((const char *const[]){__VA_ARGS__},                                               \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), bucket)

static struct served *serve_on(struct system *system, const struct arrival *arrivals,
                               const struct device_table *table) {
    struct serving serving = {.system = system, .arrivals = arrivals, .n = N, .table = table};
    struct served *served = serve(&serving);
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    ck_assert_uint_eq(served->result.completed, N);
    ck_assert_int_eq(served->activation_bytes, served->planned_activation_bytes);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    return served;
}

/* Tokens, steps, what each of them committed, and every sum over their shapes. */
static void check_equal(const struct served *a, const struct served *b) {
    ck_assert_mem_eq(a->tokens, b->tokens, sizeof a->tokens);
    ck_assert_uint_eq(a->n_steps, b->n_steps);
    ck_assert_mem_eq(a->ids, b->ids, sizeof a->ids);
    ck_assert_mem_eq(a->commits, b->commits, sizeof a->commits);
    ck_assert_mem_eq(a->result.sym, b->result.sym, sizeof a->result.sym);
    ck_assert_uint_eq(a->n_preempted, b->n_preempted);
}

static void draw_arrivals(struct rng *rng, struct arrival *arrivals) {
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i] = (struct arrival){
            .id = i,
            .prompt_tokens = 1 + (uint32_t)(rng_next(rng) % 24),
            .output_tokens = 1 + (uint32_t)(rng_next(rng) % 40),
        };
    }
}

/* Whatever the rule, the decoder, the block and the unit of the sizes; some of them preempted. */
START_TEST(the_device_decides_as_the_host_does) {
    static const char *const
        alphas[] = {"cache.alpha=0.5", "cache.alpha=1", "cache.alpha=1.5", "cache.alpha=2.3"},
        *const histories[] = {"cache.history=block", "cache.history=mean", "cache.history=ema"},
        *const surges[] = {"cache.surge=mean-std", "cache.surge=std"},
        *const blocks[] = {"block_tokens=4", "block_tokens=8", "block_tokens=16"},
        *const scopes[] = {"logit_scope=queries", "logit_scope=masked", "logit_scope=block",
                           "logit_scope=generation"},
        *const decoders[] = {"decoder.threshold=0.006", "decoder.threshold=0.02",
                             "decoder.threshold=0.9"},
        *const ends[] = {"cache.commit_last=off", "cache.commit_logits=off", "kv=pages"},
        *const units[] = {"runtime.kept_bucket=1", "runtime.kept_bucket=6",
                          "runtime.kept_bucket=64"};
    struct rng rng = rng_stream(7, "device");
    uint32_t n_preempted = 0, n_evicted = 0;
    for (int round = 0; round < 24; round++) {
        struct arrival arrivals[N];
        draw_arrivals(&rng, arrivals);
        const char *settings[] = {
            alphas[rng_next(&rng) % 4], histories[rng_next(&rng) % 3], surges[rng_next(&rng) % 2],
            blocks[rng_next(&rng) % 3], scopes[rng_next(&rng) % 4], ends[rng_next(&rng) % 3],
            "decoder=fixed", round % 3 == 0 ? "steps_per_block=16" : "steps_per_block=32",
            "cache.ahead_blocks=0",
            /* several steps a decision, and a visit of the device */
            round % 5 < 3 ? "scheduler.multi_loop=on" : "scheduler.multi_loop=off"};
        if (round % 2 == 0) {
            settings[6] = "decoder=threshold";
            settings[7] = decoders[rng_next(&rng) % 3];
        }
        struct served *served[2];
        for (int host = 0; host < 2; host++) {
            struct system *system =
                focus_system(settings, 10, host ? "runtime.kept_bucket=0" : units[round % 3]);
            ck_assert_int_eq(system->runtime.kept_bucket == 0, host);
            if (round % 4 == 1) {
                system->budget.pool_bytes = 18 * system->budget.unit_bytes;
            }
            served[host] = serve_on(system, arrivals, NULL);
            system_close(system);
        }
        check_equal(served[0], served[1]);
        n_preempted += served[0]->n_preempted;
        n_evicted += served[0]->result.sym[SYM_KEPT_Q] < served[0]->result.sym[SYM_BLOCK_Q];
        free(served[0]);
        free(served[1]);
    }
    ck_assert_uint_gt(n_preempted, 0);
    ck_assert_uint_gt(n_evicted, 12);
}
END_TEST

/* What the device cannot decide the host does: policies of others, steps with a prefill. */
START_TEST(who_the_device_does_not_know_asks_the_host) {
    static const struct arrival arrivals[N] = {
        {.id = 0, .prompt_tokens = 3, .output_tokens = 13},
        {.id = 1, .prompt_tokens = 21, .output_tokens = 9},
        {.id = 2, .arrival_ns = 1, .prompt_tokens = 8, .output_tokens = 16},
        {.id = 3, .arrival_ns = 1, .prompt_tokens = 40, .output_tokens = 16},
    };
    char decoder[300];
    snprintf(decoder, sizeof decoder, "decoder=%s", plugin);
    struct system *asks = FOCUS("runtime.kept_bucket=64", decoder, "block_tokens=8");
    ck_assert_int_eq(asks->runtime.kept_bucket, 0);
    system_close(asks);
    struct served *served[2];
    for (int host = 0; host < 2; host++) {
        struct system *mixed =
            FOCUS(host ? "runtime.kept_bucket=0" : "runtime.kept_bucket=64", "scheduler=chunked",
                  "block_tokens=8", "decoder.threshold=0.006");
        served[host] = serve_on(mixed, arrivals, NULL);
        system_close(mixed);
    }
    check_equal(served[0], served[1]);
    free(served[0]);
    free(served[1]);
}
END_TEST

int main(void) {
    const char *folder = getenv("UNMASK_PLUGINS");
    snprintf(plugin, sizeof plugin, "%s/template_decoder.so",
             folder != NULL ? folder : "build/plugins");
    const TTest *const tests[] = {
        the_device_decides_as_the_host_does,
        who_the_device_does_not_know_asks_the_host,
    };
    return SUITE_RUN("live_device", tests);
}
