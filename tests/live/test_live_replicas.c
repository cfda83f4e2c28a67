/* Several replicas on the CPU, each an engine of its own: whoever serves a request, it has the same
 * tokens, in the memory that is planned for each. */
#include <stdatomic.h>

#include "tests/support/live.h"
#include "tests/support/says.h"

static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 13, .output_tokens = 30},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 27},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 32},
    {.id = 3, .prompt_tokens = 34, .output_tokens = 25},
};
enum { N = 4 };

static const struct {
    const char *system, *model, *settings[3];
} kinds[] = {
    {"dllm-serve", "llada-tiny", {"replicas=2", "router=round-robin", "page_tokens=4"}},
    {"dllm-serve", "llada-tiny", {"replicas=3", "router=phase-aware", "cache=dual"}},
    {"fast-dllm", "dream-tiny", {"replicas=2", "router=power-of-two", "tensor_parallel=2"}},
    {"sdar", "llada2-tiny", {"replicas=2", "router=tenant-affinity", "block_tokens=4"}},
    {"focus", "sdar-tiny", {"replicas=2", "router=least-loaded", "block_tokens=8"}},
    {"focus", "sdar-tiny", {"replicas=4", "router=prefix-aware", "scheduler=continuous"}},
    {"entropy-cache", "llada-tiny", {"replicas=2", "router=round-robin", "kv=slab"}},
    {"dllm-cache", "llada-tiny", {"replicas=2", "router=round-robin", "scheduler=continuous"}},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static struct system *open_kind(int i, bool is_alone) {
    const char *const settings[] = {"runtime=unmask", kinds[i].settings[2], kinds[i].settings[1],
                                    is_alone ? "replicas=1" : kinds[i].settings[0], NULL};
    return live_system_of(kinds[i].system, kinds[i].model, settings);
}

static uint32_t n_serving(const struct served *served) {
    uint32_t seen = 0;
    for (size_t id = 0; id < N; id++) {
        seen |= UINT32_C(1) << served->records[id].replica;
    }
    return (uint32_t)__builtin_popcount(seen);
}

TEST_EACH(a_request_has_the_same_tokens_on_whichever_replica, N_KINDS) {
    struct system *alone = open_kind(_i, true), *several = open_kind(_i, false);
    struct served *one = serve_live(alone, together, N);
    struct served *many = serve_live(several, together, N);
    check_used_as_planned(many, N);
    check_outputs(many, several, together, N);
    same_tokens(one, many, N);
    ck_assert_uint_eq(n_serving(one), 1);
    ck_assert_uint_ge(n_serving(many), 2);
    ck_assert_int_eq(many->pool_left_bytes, 0);
    ck_assert_int_eq(many->memory.planned_bytes, many->memory.metered_bytes);
    ck_assert_int_eq(many->memory.planned_bytes,
                     one->memory.planned_bytes * several->settings.replicas);
    free(one);
    free(many);
    system_close(alone);
    system_close(several);
}

/* Some begins before another's has ended. */
TEST(steps_of_replicas_overlap) {
    struct system *system = open_kind(0, false);
    struct served *served = serve_live(system, together, N);
    uint32_t n_overlaps = 0;
    for (size_t i = 0; i < served->n_steps; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct replay_step *a = &served->steps[i], *b = &served->steps[j];
            n_overlaps += a->start_ns < b->end_ns && b->start_ns < a->end_ns;
        }
    }
    ck_assert_uint_gt(n_overlaps, 0);
    free(served);
    system_close(system);
}

TEST(a_run_of_replicas_that_is_stopped_ends_at_step_borders) {
    struct system *system = open_kind(0, false);
    struct served *whole = serve_live(system, together, N);
    struct served *part =
        serve(&(struct serving){.system = system, .arrivals = together, .n = N, .stop_after = 5});
    ck_assert_msg(part->err.kind == ERR_NONE, "%s", part->err.text);
    ck_assert(part->result.interrupted && !whole->result.interrupted);
    ck_assert_uint_ge(part->n_steps, 5);
    ck_assert_uint_lt(part->n_steps, whole->n_steps);
    free(whole);
    free(part);
    system_close(system);
}

static atomic_int products_left;

static int failing_linear(struct device *device, const struct call_linear *call) {
    return atomic_fetch_sub(&products_left, 1) > 0 ? device_cpu.linear(device, call)
                                                   : DEVICE_FAILED;
}

TEST(a_replica_that_fails_ends_the_run_with_its_sentence) {
    struct system *system = open_kind(0, false);
    struct device_table table = device_cpu;
    table.linear = failing_linear;
    for (int n = 20; n < 200; n += 60) {
        products_left = n;
        struct served *served = serve(
            &(struct serving){.system = system, .arrivals = together, .n = N, .table = &table});
        ck_assert_int_eq(served->err.kind, ERR_WORLD);
        ASSERT_SAYS(served->err.text, "the cpu device failed while");
        ck_assert_uint_lt(served->result.completed, N);
        free(served);
    }
    system_close(system);
}

SUITE("live replicas")
