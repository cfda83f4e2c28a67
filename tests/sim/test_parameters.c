/* Parameters of policies that no shipped system sets: another value serves otherwise. Those of
 * shipped systems are moved by tests/experiments/test_settings.c. */
#include "tests/support/rig.h"

enum { MOST = 160, TENANTS = 8 };

static const struct {
    const char *system, *policy, *value, *other;
    const char *more[3]; /* what the policy needs to have something to decide */
} moved[] = {
    {"dllm-serve", "scheduler=vtc", "input_weight=1", "input_weight=0", {"max_requests=4"}},
    {"dllm-serve", "scheduler=vtc", "output_weight=2", "output_weight=0", {"max_requests=4"}},
    {"sdar", "scheduler=andes", "speed=4.8", "speed=400", {"scheduler.at_once=4"}},
    {"sdar", "scheduler=andes", "first=1s", "first=100s", {"scheduler.at_once=4"}},
    {"sdar", "scheduler=andes", "margin=2s", "margin=0", {"scheduler.at_once=4"}},
    {"sdar", "scheduler=deadline-valve", "gain=8", "gain=0.001", {"decoder=threshold"}},
    {"dllm-serve", "scheduler=least-slack", "latency_1=0", "latency_1=1s", {"max_requests=4"}},
    {"dllm-serve", "scheduler=least-slack", "latency_2=0", "latency_2=1s", {"max_requests=4"}},
    {"dllm-serve", "scheduler=least-slack", "latency_3=0", "latency_3=1s", {"max_requests=4"}},
    {"dllm-serve", "scheduler=least-slack", "latency_4=0", "latency_4=1s", {"max_requests=4"}},
    {"dllm-serve", "scheduler=least-slack", "latency_5=0", "latency_5=1s", {"max_requests=4"}},
    {"dllm-serve", "scheduler=least-slack", "latency_6=0", "latency_6=1s", {"max_requests=4"}},
    {"dllm-serve", "scheduler=least-slack", "latency_7=0", "latency_7=1s", {"max_requests=4"}},
    {"dllm-serve",
     "scheduler=phase-multiplexed",
     "stop_at_misfit=on",
     "stop_at_misfit=off",
     {"max_batched_tokens=1500"}},
    {"focus", "cache=focus", "ema_weight=0.1", "ema_weight=1", {"cache.history=ema"}},
    {"dllm-serve", "cache=vicinity", "update_every=0", "update_every=2", {NULL}},
    {"dllm-serve",
     "router=tenant-affinity",
     "slack=0.25",
     "slack=100",
     {"replicas=4", "max_requests=4"}},
};

/* A burst of tenants' requests of many lengths, some of which will be late. */
static void draw(struct arrival *arrivals) {
    struct rng rng = rng_stream(7, "parameters");
    for (uint32_t i = 0; i < MOST; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = (int64_t)i * 20000000,
                           .tenant = rig_between(&rng, 0, TENANTS - 1),
                           .prompt_tokens = rig_between(&rng, 20, 900),
                           .output_tokens = rig_between(&rng, 32, 256),
                           .due_ns = (int64_t)rig_between(&rng, 1, 20) * 1000000000);
    }
}

/* When each request was done, in ns from the start. */
static void serve(size_t at, const char *parameter, int64_t *finished) {
    static struct arrival arrivals[MOST];
    const char *dot = strchr(moved[at].policy, '=');
    char key[96];
    snprintf(key, sizeof key, "%.*s.%s", (int)(dot - moved[at].policy), moved[at].policy,
             parameter);
    const char *settings[6] = {moved[at].policy, key};
    memcpy(settings + 2, moved[at].more, sizeof moved[at].more);
    struct system *system = rig_system(moved[at].system, "h200", false, settings);
    struct list_source list = {arrivals, MOST, 0};
    struct keeper keeper = {0};
    draw(arrivals);
    const struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), &keeper);
    ck_assert_uint_eq(result.completed, MOST);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        finished[keeper.requests[i].id] = keeper.requests[i].finished_ns;
    }
    keeper_fini(&keeper);
    system_close(system);
}

TEST_EACH(another_value_of_a_parameter_serves_otherwise, sizeof moved / sizeof moved[0]) {
    int64_t value[MOST], same[MOST], other[MOST];
    serve((size_t)_i, moved[_i].value, value);
    serve((size_t)_i, moved[_i].value, same);
    serve((size_t)_i, moved[_i].other, other);
    ck_assert_mem_eq(value, same, sizeof value);
    ck_assert_msg(memcmp(value, other, sizeof value) != 0, "%s: %s and %s serve alike",
                  moved[_i].policy, moved[_i].value, moved[_i].other);
}

SUITE("parameters")
