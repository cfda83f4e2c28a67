/* Nothing that ships starves: every scheduler with every cache policy serves every request of each
 * load to its end. UNMASK_MATRIX=all in the environment (make starvation) runs every cell,
 * otherwise each pair meets one load, and those that rank what waits all of them. */
#include <inttypes.h>

#include "sim/base/mem.h"
#include "sim/policy/plugin/registry.h"
#include "tests/support/kept.h"
#include "tests/support/rig.h"

enum load {
    LOAD_ONCE,  /* a thousand at once */
    LOAD_OVER,  /* ten times as many as can be served */
    LOAD_THREE, /* memory for three requests, and a step that is no wider than the widest of them */
    LOAD_LONG,  /* one long request among many short ones */
    LOAD_ALIKE, /* all alike, three at a time, so that only their order tells them apart */
    LOAD_COUNT
};
static const char *const load_names[LOAD_COUNT] = {"a thousand at once", "ten times too many",
                                                   "memory for three", "one long among short",
                                                   "all alike"};

enum {
    MOST = 1000,
    MOST_PROMPT = 200,
    MOST_CANVAS = MOST_PROMPT + 32,
    PAGE_TOKENS = 16,
    LONG_PROMPT = 1500,
    LONG_OUTPUT = 160
};

/* Of prompts of 8 to 200 tokens and outputs of 8 to 32, `gap_ns` apart on average. */
static uint32_t draw(enum load load, int64_t gap_ns, struct arrival *arrivals) {
    static const uint32_t n_requests[LOAD_COUNT] = {MOST, 300, 60, 150, 90};
    struct rng rng = rng_stream(7, "starvation");
    int64_t now_ns = 0;
    for (uint32_t i = 0; i < n_requests[load]; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = now_ns, .tenant = i % 3,
                           .prompt_tokens = rig_between(&rng, 8, MOST_PROMPT),
                           .output_tokens = rig_between(&rng, 8, 32));
        now_ns += gap_ns > 0 ? (int64_t)(-log(rng_uniform(&rng)) * (double)gap_ns) : 0;
        if (load == LOAD_ALIKE) {
            arrivals[i].prompt_tokens = 64;
            arrivals[i].output_tokens = 16;
            arrivals[i].arrival_ns = i / 3 * gap_ns;
        }
    }
    if (load == LOAD_LONG) {
        arrivals[3].prompt_tokens = LONG_PROMPT;
        arrivals[3].output_tokens = LONG_OUTPUT;
    }
    return n_requests[load];
}

static bool is_exact(const struct policy *cache) {
    static const char *const names[] = {"exact", "delayed", "neighbour", "focus", "small-blocks"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        found = found || strcmp(cache->name, names[i]) == 0;
    }
    return found;
}

/* Schedulers that say widths are for models that see their canvas, those that say which positions
 * run for others, whose caches leave that to them; those that set thresholds want a decoder with
 * one, which the exact system alone has. */
static bool goes_with(const struct policy *policy, const struct policy *cache) {
    const struct scheduler *scheduler = (const struct scheduler *)policy;
    const bool chooses =
        strcmp(cache->name, "focus") == 0 || strcmp(cache->name, "small-blocks") == 0;
    return ((scheduler->needs & NEEDS_CANVAS) == 0 || !is_exact(cache)) &&
           ((scheduler->needs & NEEDS_THRESHOLD) == 0 || is_exact(cache)) &&
           (!scheduler->says_rows || (is_exact(cache) && !chooses));
}

static struct system *open_pair(const struct policy *scheduler, const struct policy *cache,
                                enum load load) {
    static char texts[4][64];
    const char *settings[8] = {texts[0], texts[1], "page_tokens=16"};
    uint32_t n = 3;
    snprintf(texts[0], sizeof texts[0], "scheduler=%s", scheduler->name);
    snprintf(texts[1], sizeof texts[1], "cache=%s", cache->name);
    bool is_slab = strcmp(cache->name, "dllm-cache") == 0;
    if (load == LOAD_THREE) {
        snprintf(texts[2], sizeof texts[2], "pool_pages=%d",
                 3 * ((MOST_CANVAS + PAGE_TOKENS - 1) / PAGE_TOKENS));
        snprintf(texts[3], sizeof texts[3], "max_batched_tokens=%d",
                 is_exact(cache) ? MOST_PROMPT : MOST_CANVAS);
        settings[n++] = is_slab ? "max_requests=3" : texts[2];
        settings[n++] = texts[3];
    }
    if (is_slab) {
        settings[n++] = "kv=slab";
    }
    settings[n] = NULL;
    return rig_system(is_exact(cache) ? "sdar" : "dllm-serve", "l40s", true, settings);
}

/* Mixes when each request began and ended into a digest. */
static int mix_times(void *state, const struct request_record *record, struct err *err) {
    const uint64_t all[] = {record->id, (uint64_t)record->admitted_ns,
                            (uint64_t)record->first_block_ns, (uint64_t)record->finished_ns,
                            record->preemptions};
    uint64_t *digest = state;
    (void)err;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *digest = (*digest ^ all[i]) * UINT64_C(0x100000001b3);
    }
    return 0;
}

static FILE *kept; /* a line of each that is served */

/* Serves the load; fails unless every request is served. The time that it took. */
static int64_t serve(const struct policy *scheduler, const struct policy *cache, enum load load,
                     int64_t gap_ns) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    const struct sink sink = {.state = &digest, .request = mix_times};
    static struct arrival arrivals[MOST];
    struct system *system = open_pair(scheduler, cache, load);
    struct list_source list = {arrivals, draw(load, gap_ns, arrivals), 0};
    struct executor_sim *sim = executor_sim_open(system, 1);
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_sim_interface(sim),
             .source = {&list, list_next, NULL}, .sinks = &sink, .n_sinks = 1, .seed = 1);
    struct loop_result result;
    struct err err = {0};
    int status = loop_run(&request, &result, &err);
    ck_assert_msg(status == 0 && result.completed == list.n, "%s with %s, %s: %llu of %zu, %s",
                  scheduler->name, cache->name, load_names[load],
                  (unsigned long long)result.completed, list.n, err.text);
    fprintf(kept, "%s, %s, %s: %.9g s, %016" PRIx64 "\n", scheduler->name, cache->name,
            load_names[load], (double)result.end_ns * 1e-9, digest);
    executor_sim_close(sim);
    system_close(system);
    return result.end_ns;
}

static void check_pair(const struct policy *scheduler, const struct policy *cache, enum load load) {
    /* Sixty at once take so long, each. */
    int64_t each_ns =
        load != LOAD_ONCE && load != LOAD_THREE ? serve(scheduler, cache, LOAD_THREE, 0) / 60 : 0;
    serve(scheduler, cache, load, load == LOAD_OVER ? each_ns / 10 : each_ns / 2);
}

TEST(every_scheduler_serves_all_requests_with_every_cache) {
    const char *asked = getenv("UNMASK_MATRIX");
    const bool all = asked != NULL && strcmp(asked, "all") == 0;
    char *now;
    size_t size;
    kept = mem_stream(&now, &size);
    for (size_t i = 0; i < policy_count(POLICY_SCHEDULER); i++) {
        for (size_t j = 0; j < policy_count(POLICY_CACHE); j++) {
            for (int load = 0; load < LOAD_COUNT; load++) {
                const struct policy *policy = policy_at(POLICY_SCHEDULER, i);
                const bool ranks = ((const struct scheduler *)policy)->request_bytes > 0;
                const bool is_due = all || ranks || (i + j) % LOAD_COUNT == (size_t)load;
                if (is_due && goes_with(policy, policy_at(POLICY_CACHE, j))) {
                    check_pair(policy, policy_at(POLICY_CACHE, j), (enum load)load);
                }
            }
        }
    }
    mem_stream_close(kept);
    if (!all) {
        kept_same("tests/golden/runs/matrix.txt", now);
    }
    free(now);
}

/* Starts the last of those that wait, alone; where none fits the first that runs goes on. */
static void start_last(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    uint32_t slot = view->n_waiting > 0 ? view->waiting[view->n_waiting - 1] : 0;
    bool starts = view->n_waiting > 0 && view->n_running < view->max_requests &&
                  view->requests[slot].kv_bytes <= view->kv_free_bytes;
    if (starts || view->n_running > 0) {
        batch->selected[batch->n++] = starts ? slot : view->running[0];
        batch->n_admitted = starts;
    }
}

/* Slabs and workspace share memory: what a scheduler starts may not fit next to what it pauses. */
TEST(what_runs_goes_on_where_all_that_was_to_start_does_not_fit) {
    static const struct scheduler starting = {.policy = {.abi = POLICY_ABI,
                                                         .kind = POLICY_SCHEDULER,
                                                         .size = sizeof(struct scheduler),
                                                         .name = "starting",
                                                         .doc = "starts what came last"},
                                              .schedule = start_last};
    static const char *const settings[] = {"kv=slab", "cache=dual", "logit_scope=generation", NULL};
    static struct arrival arrivals[MOST];
    struct system *system = rig_system("ablation-engine", "l40s", true, settings);
    for (int part = 1; part <= 40; part++) {
        struct list_source list = {arrivals, draw(LOAD_THREE, 0, arrivals), 0};
        int64_t pool_bytes = system->budget.pool_bytes;
        system->scheduler = &starting;
        system->budget.pool_bytes = pool_bytes / 400 * part;
        struct loop_result result =
            rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), NULL);
        ck_assert_uint_eq(result.completed + result.rejected, list.n);
        system->budget.pool_bytes = pool_bytes;
    }
    system_close(system);
}

SUITE("starvation")
