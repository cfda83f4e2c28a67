/* Bounds: tiny workloads whose best schedule is found by trying all of them, batches of random
 * passes against their prices, and the machine against brute force. */
#include "sim/bound/bound.h"
#include "sim/bound/known.h"
#include "sim/system/system_step.h"
#include "tests/support/rig.h"

/* ---- a tiny workload ---- */

enum { MOST_REQUESTS = 4, MOST_PASSES = 16 };

struct tiny {
    struct system *system;
    struct passes passes;
    struct bound bound;
    struct executor_sim *sim;
    struct executor executor;
    struct pass flat[MOST_REQUESTS][MOST_PASSES]; /* one by one */
    uint32_t n_passes[MOST_REQUESTS];
    int64_t known[1 << (4 * MOST_REQUESTS)][2]; /* best end and sum of ends from here; 0: unknown */
    int64_t latency_ns;                         /* on time: within it; 0: nothing is asked */
};

static const struct {
    const char *name, *gpu;
    const char *settings[6];
} configurations[] = {
    {"dllm-serve", "h200", {"block_tokens=4", "steps_per_block=2"}},
    {"dllm-serve", "l40s", {"block_tokens=4", "steps_per_block=2", "max_requests=2"}},
    {"dllm-serve", "rtx4090", {"block_tokens=8", "steps_per_block=4", "max_batched_tokens=300"}},
    {"dllm-serve", "h200", {"block_tokens=4", "steps_per_block=2", "pool_pages=2"}},
    {"fast-dllm", "a100-80g", {"block_tokens=4", "steps_per_block=2"}},
    {"fast-dllm-published", "l40s", {"block_tokens=4", "steps_per_block=2"}},
    {"dllm-serve-published", "rtx4090", {"block_tokens=4", "steps_per_block=2"}},
    {"vanilla", "h100", {"block_tokens=8", "steps_per_block=2"}},
    {"dllm-cache", "l40s", {"block_tokens=4", "steps_per_block=2"}},
    {"sdar", "h200", {"max_requests=3"}},
    {"lmdeploy", "h100", {0}},
    {"focus", "rtx4090", {0}},
    {"sglang", "h200", {0}},
    {"dinfer", "h200", {0}},
    {"fast-dllm-moe", "h200", {"block_tokens=4", "steps_per_block=2"}},
};
enum { N_CONFIGURATIONS = sizeof configurations / sizeof configurations[0] };

static struct list_source list_of(const struct arrival *arrivals, size_t n) {
    return (struct list_source){.arrivals = arrivals, .n = n};
}

static void tiny_open(struct tiny *tiny, int configuration, const struct arrival *arrivals,
                      size_t n, int64_t latency_ns) {
    struct err err = {0};
    memset(tiny, 0, sizeof *tiny);
    tiny->system = rig_system(configurations[configuration].name, configurations[configuration].gpu,
                              false, configurations[configuration].settings);
    tiny->latency_ns = latency_ns;
    struct list_source list = list_of(arrivals, n), again = list;
    struct passes_request request = {
        .system = tiny->system, .source = {.state = &list, .next = list_next}, .seed = 3};
    ck_assert_msg(passes_list(&request, &tiny->passes, &err) == 0, "%s", err.text);
    request.source.state = &again;
    ck_assert_msg(bound_find(&request, latency_ns, &tiny->bound, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(tiny->passes.n_requests, n);
    ck_assert_double_gt(tiny->bound.prices.scale, 0.9999);
    for (size_t r = 0; r < n; r++) {
        const struct passenger *passenger = &tiny->passes.requests[r];
        for (size_t i = 0; i < passenger->n; i++) {
            const struct pass *pass = &tiny->passes.items[passenger->first + i];
            for (uint32_t k = 0; k < pass->times; k++) {
                ck_assert_uint_lt(tiny->n_passes[r], MOST_PASSES);
                tiny->flat[r][tiny->n_passes[r]++] = *pass;
            }
        }
    }
    tiny->sim = executor_sim_open(tiny->system, 1);
    tiny->executor = executor_sim_interface(tiny->sim);
}

static void tiny_close(struct tiny *tiny) {
    executor_sim_close(tiny->sim);
    passes_fini(&tiny->passes);
    system_close(tiny->system);
}

/* What a step takes that runs these passes; -1: no batch may hold them. */
static int64_t price(const struct system *system, const struct executor *executor,
                     const struct pass *const *passes, uint32_t n) {
    struct step_shape shape;
    const struct span *spans[64];
    int64_t kv_bytes = 0;
    shape_clear(&shape);
    for (uint32_t i = 0; i < n; i++) {
        shape_add(shape.sym, &passes[i]->span, 1);
        spans[i] = &passes[i]->span;
        kv_bytes += passes[i]->kv_bytes;
    }
    shape.spans = spans;
    shape.n_spans = n;
    bool fits = kv_bytes <= system->budget.pool_bytes &&
                shape.sym[SYM_TOKENS] <= system->settings.max_batched_tokens &&
                (system->budget.max_requests == 0 || n <= system->budget.max_requests);
    double joules;
    return !fits
               ? -1
               : executor->estimate_ns(executor->state, 0, &shape,
                                       budget_workspace_bytes(&system->budget, kv_bytes), &joules);
}

/* The price of the step in which these requests go on, from the passes that they have done. */
static int64_t step_ns(const struct tiny *tiny, const uint32_t *done, unsigned who) {
    const struct pass *passes[MOST_REQUESTS];
    uint32_t n = 0;
    for (uint32_t r = 0; r < MOST_REQUESTS; r++) {
        if ((who >> r & 1) != 0) {
            passes[n++] = &tiny->flat[r][done[r]];
        }
    }
    return price(tiny->system, &tiny->executor, passes, n);
}

/* ---- all at once ---- */

/* The least time until all are done, and the least sum of times at which each is. */
static const int64_t *best_from(struct tiny *tiny, const uint32_t *done) {
    size_t key = 0;
    unsigned left = 0;
    uint32_t n_left = 0;
    for (uint32_t r = 0; r < MOST_REQUESTS; r++) {
        key = key * 16 + done[r];
        if (done[r] < tiny->n_passes[r]) {
            left |= 1u << r;
            n_left++;
        }
    }
    int64_t *best = tiny->known[key];
    if (left == 0 || best[0] > 0) {
        return best;
    }
    best[0] = best[1] = INT64_MAX;
    for (unsigned who = 1; who <= left; who++) {
        int64_t ns = (who & ~left) != 0 ? -1 : step_ns(tiny, done, who);
        if (ns < 0) {
            continue;
        }
        uint32_t next[MOST_REQUESTS];
        for (uint32_t r = 0; r < MOST_REQUESTS; r++) {
            next[r] = done[r] + (who >> r & 1);
        }
        const int64_t *then = best_from(tiny, next);
        best[0] = ns + then[0] < best[0] ? ns + then[0] : best[0];
        best[1] = n_left * ns + then[1] < best[1] ? n_left * ns + then[1] : best[1];
    }
    return best;
}

TEST_EACH(no_schedule_of_requests_that_come_at_once_is_better_and_the_best_is_near,
          2 * N_CONFIGURATIONS) {
    static struct tiny tiny;
    struct rng rng = rng_stream((uint64_t)_i, "tiny");
    struct arrival arrivals[MOST_REQUESTS] = {0};
    const uint32_t none[MOST_REQUESTS] = {0};
    bool is_equal = _i < N_CONFIGURATIONS;
    for (uint32_t r = 0; r < MOST_REQUESTS; r++) {
        arrivals[r] = arrivals[0];
        if (r == 0 || !is_equal) {
            arrivals[r].prompt_tokens = rig_between(&rng, 20, 200);
            arrivals[r].output_tokens = rig_between(&rng, 2, 8);
        }
        arrivals[r].id = r;
    }
    tiny_open(&tiny, _i % N_CONFIGURATIONS, arrivals, MOST_REQUESTS, 0);
    const int64_t *best = best_from(&tiny, none);
    double end_s = (double)best[0] * 1e-9, mean_s = (double)best[1] * 1e-9 / MOST_REQUESTS;
    const char *name = configurations[_i % N_CONFIGURATIONS].name;
    ck_assert_msg(tiny.bound.makespan_s <= end_s * (1 + 1e-9), "%s: %g of %g s", name,
                  tiny.bound.makespan_s, end_s);
    ck_assert_msg(tiny.bound.mean_latency_s <= mean_s * (1 + 1e-9), "%s: %g of %g s", name,
                  tiny.bound.mean_latency_s, mean_s);
    /* Four requests are few for an average over batches. */
    ck_assert_msg(tiny.bound.makespan_s > 0.75 * end_s, "%s: %g of %g s", name,
                  tiny.bound.makespan_s, end_s);
    ck_assert_msg(tiny.bound.mean_latency_s > 0.65 * mean_s, "%s: %g of %g s", name,
                  tiny.bound.mean_latency_s, mean_s);
    tiny_close(&tiny);
}

/* Where a limit or the pool lets one run at a time, the bound is nearly what that takes. */
TEST_EACH(one_at_a_time_takes_the_sum_of_all_passes, 2) {
    const char *const settings[] = {"block_tokens=4", "steps_per_block=2",
                                    _i == 0 ? "max_requests=1" : "pool_pages=1", NULL};
    struct system *system = rig_system("dllm-serve", "h200", false, settings);
    struct arrival arrivals[12];
    for (uint32_t r = 0; r < 12; r++) {
        arrivals[r] = MAKE(struct arrival, .id = r, .prompt_tokens = 90, .output_tokens = 8);
    }
    struct err err = {0};
    struct list_source list = list_of(arrivals, 12), again = list;
    struct passes_request request = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 3};
    struct passes passes;
    struct bound bound;
    ck_assert_msg(passes_list(&request, &passes, &err) == 0, "%s", err.text);
    request.source.state = &again;
    ck_assert_msg(bound_find(&request, 0, &bound, &err) == 0, "%s", err.text);
    struct executor_sim *sim = executor_sim_open(system, 1);
    const struct executor executor = executor_sim_interface(sim);
    double all_s = 0;
    for (size_t i = 0; i < passes.n; i++) {
        const struct pass *pass = &passes.items[i];
        all_s += 1e-9 * (double)pass->times * (double)price(system, &executor, &pass, 1);
    }
    ck_assert_msg(bound.makespan_s <= all_s * (1 + 1e-9) && bound.makespan_s > 0.93 * all_s,
                  "%g of %g s", bound.makespan_s, all_s);
    /* On average half of them are before each. */
    ck_assert_msg(bound.mean_latency_s > 0.93 * all_s * 13 / 24, "%g of %g s", bound.mean_latency_s,
                  all_s * 13 / 24);
    executor_sim_close(sim);
    passes_fini(&passes);
    system_close(system);
}

/* ---- one after the other ---- */

/* The best of all schedules: the end, the sum of latencies, the one at (n - 1) 0.99 of them,
 * rounded down, and how many are on time. */
struct best {
    int64_t end_ns, sum_ns, p99_ns, on_time;
    int64_t ns[MOST_REQUESTS]; /* the latencies, rising */
    uint32_t n;
};

static void take_latency(struct best *so_far, int64_t ns) {
    uint32_t at = so_far->n++;
    for (; at > 0 && so_far->ns[at - 1] > ns; at--) {
        so_far->ns[at] = so_far->ns[at - 1];
    }
    so_far->ns[at] = ns;
}

static void try_all(const struct tiny *tiny, uint32_t *done, int64_t now_ns, struct best so_far,
                    struct best *best) {
    unsigned here = 0, left = 0;
    int64_t next_ns = INT64_MAX;
    for (uint32_t r = 0; r < tiny->passes.n_requests; r++) {
        int64_t arrival_ns = tiny->passes.requests[r].arrival_ns;
        if (done[r] < tiny->n_passes[r]) {
            left |= 1u << r;
            here |= arrival_ns <= now_ns ? 1u << r : 0;
            next_ns = arrival_ns > now_ns && arrival_ns < next_ns ? arrival_ns : next_ns;
        }
    }
    if (left == 0) {
        best->end_ns = now_ns < best->end_ns ? now_ns : best->end_ns;
        best->sum_ns = so_far.sum_ns < best->sum_ns ? so_far.sum_ns : best->sum_ns;
        best->on_time = so_far.on_time > best->on_time ? so_far.on_time : best->on_time;
        int64_t p99_ns = so_far.ns[(so_far.n - 1) * 99 / 100];
        best->p99_ns = p99_ns < best->p99_ns ? p99_ns : best->p99_ns;
        return;
    }
    if (next_ns < INT64_MAX) {
        try_all(tiny, done, next_ns, so_far, best);
    }
    for (unsigned who = 1; who <= here; who++) {
        int64_t ns = (who & ~here) != 0 ? -1 : step_ns(tiny, done, who);
        if (ns < 0) {
            continue;
        }
        struct best then = so_far;
        for (uint32_t r = 0; r < tiny->passes.n_requests; r++) {
            done[r] += who >> r & 1;
            if ((who >> r & 1) != 0 && done[r] == tiny->n_passes[r]) {
                int64_t latency_ns = now_ns + ns - tiny->passes.requests[r].arrival_ns;
                then.sum_ns += latency_ns;
                take_latency(&then, latency_ns);
                then.on_time += latency_ns <= tiny->latency_ns;
            }
        }
        try_all(tiny, done, now_ns + ns, then, best);
        for (uint32_t r = 0; r < tiny->passes.n_requests; r++) {
            done[r] -= who >> r & 1;
        }
    }
}

TEST_EACH(no_schedule_of_requests_that_come_one_after_the_other_is_better, N_CONFIGURATIONS) {
    enum { MOST_TRIED = 9 }; /* passes, of all requests together */
    static struct tiny tiny;
    struct rng rng = rng_stream((uint64_t)_i, "staggered");
    struct arrival arrivals[3] = {0};
    uint32_t done[MOST_REQUESTS] = {0}, n_passes = MOST_TRIED + 1;
    int64_t latency_ns = rig_between(&rng, 10, 200) * INT64_C(1000000);
    for (uint32_t r = 0; r < 3; r++) {
        arrivals[r].id = r;
        arrivals[r].prompt_tokens = rig_between(&rng, 20, 200);
        arrivals[r].output_tokens = rig_between(&rng, 2, 3);
        int64_t gap_ns = rig_between(&rng, 0, 60) * INT64_C(1000000);
        arrivals[r].arrival_ns = r == 0 ? 5 : arrivals[r - 1].arrival_ns + gap_ns;
    }
    for (uint32_t n = 3; n > 0 && n_passes > MOST_TRIED; n--) {
        tiny_open(&tiny, _i % N_CONFIGURATIONS, arrivals, n, latency_ns);
        n_passes = tiny.n_passes[0] + tiny.n_passes[1] + tiny.n_passes[2];
        if (n_passes > MOST_TRIED) {
            tiny_close(&tiny);
        }
    }
    ck_assert_uint_le(n_passes, MOST_TRIED);
    double n = (double)tiny.passes.n_requests;
    struct best best = {.end_ns = INT64_MAX, .sum_ns = INT64_MAX, .p99_ns = INT64_MAX};
    try_all(&tiny, done, arrivals[0].arrival_ns, (struct best){0}, &best);
    const char *name = configurations[_i % N_CONFIGURATIONS].name;
    double end_s = (double)(best.end_ns - arrivals[0].arrival_ns) * 1e-9;
    double mean_s = (double)best.sum_ns * 1e-9 / n;
    ck_assert_msg(tiny.bound.makespan_s <= end_s * (1 + 1e-9), "%s: %g of %g s", name,
                  tiny.bound.makespan_s, end_s);
    ck_assert_msg(tiny.bound.mean_latency_s <= mean_s * (1 + 1e-9), "%s: %g of %g s", name,
                  tiny.bound.mean_latency_s, mean_s);
    double p99_s = (double)best.p99_ns * 1e-9;
    ck_assert_msg(tiny.bound.p99_latency_s <= p99_s * (1 + 1e-9), "%s: %g of %g s", name,
                  tiny.bound.p99_latency_s, p99_s);
    ck_assert_msg(tiny.bound.on_time * n >= (double)best.on_time - 1e-9, "%s: %g of %d", name,
                  n * tiny.bound.on_time, (int)best.on_time);
    tiny_close(&tiny);
}

/* ---- batches ---- */

/* Passes of many requests, and their prices. */
struct many {
    struct system *system;
    struct passes passes;
    struct pass_type types[PASS_TYPES];
    struct price_parts parts;
    struct prices prices;
};

static void many_open(struct many *many, int configuration, uint64_t n) {
    struct err err = {0};
    many->system = rig_system(configurations[configuration].name, configurations[configuration].gpu,
                              false, configurations[configuration].settings);
    struct poisson_source source = {.rng = rng_stream(7, "arrivals"),
                                    .lengths = rng_stream(7, "lengths"),
                                    .rate = 1,
                                    .n = n,
                                    .prompt_min = 30,
                                    .prompt_max = 700,
                                    .output_min = 8,
                                    .output_max = 64};
    const struct passes_request request = {
        .system = many->system, .source = {.state = &source, .next = poisson_next}, .seed = 3};
    ck_assert_msg(passes_list(&request, &many->passes, &err) == 0, "%s", err.text);
    passes_sum(&many->passes, many->system, many->types);
    ck_assert_int_eq(
        parts_open(many->system, many->types, many->passes.n_requests, &many->parts, &err), 0);
    ck_assert_int_eq(prices_find(&many->parts, many->types, &many->prices, &err), 0);
}

static void many_close(struct many *many) {
    parts_close(&many->parts);
    passes_fini(&many->passes);
    system_close(many->system);
}

TEST_EACH(no_batch_takes_less_than_its_passes_prices, N_CONFIGURATIONS) {
    struct many many;
    many_open(&many, _i, 60);
    struct executor_sim *sim = executor_sim_open(many.system, 1);
    struct executor executor = executor_sim_interface(sim);
    struct rng rng = rng_stream((uint64_t)_i, "batches");
    double nearest = 0, alone_at_least = 1;
    uint32_t n_tried = 0;
    for (int i = 0; i < 2000; i++) {
        const struct pass *batch[60];
        uint32_t n = rig_between(&rng, 1, i % 3 == 0 ? 60 : 6);
        uint64_t first = rng_next(&rng);
        n = n < many.passes.n_requests ? n : (uint32_t)many.passes.n_requests;
        for (uint32_t k = 0; k < n; k++) { /* no two of a request; often of one kind */
            const struct passenger *from =
                &many.passes.requests[(first + k) % many.passes.n_requests];
            uint64_t at = i % 2 == 0 ? rng_next(&rng) % from->n : first % from->n;
            batch[k] = &many.passes.items[from->first + at];
        }
        int64_t ns = price(many.system, &executor, batch, n);
        double price_ns = 0, alone_ns = 0;
        for (uint32_t k = 0; k < n; k++) {
            price_ns += price_of(&many.prices, batch[k]);
            alone_ns = fmax(alone_ns, parts_alone_ns(&many.parts, batch[k]));
        }
        if (ns >= 0) {
            n_tried++;
            ck_assert_msg(price_ns <= (double)ns * (1 + 1e-9), "%u passes: %g of %g ns", n,
                          price_ns, (double)ns);
            ck_assert_msg(alone_ns <= (double)ns * (1 + 1e-9), "%u passes: one alone %g of %g ns",
                          n, alone_ns, (double)ns);
            nearest = fmax(nearest, price_ns / (double)ns);
            alone_at_least = n == 1 ? fmin(alone_at_least, alone_ns / (double)ns) : alone_at_least;
        }
    }
    ck_assert_uint_gt(n_tried, 100);
    ck_assert_msg(nearest > 0.8, "no batch is near its price: %g", nearest);
    /* A step of one pass is what is known of it alone, padding apart. */
    ck_assert_msg(alone_at_least > (many.system->runtime.varlen ? 0.925 : 0.69), "%g",
                  alone_at_least);
    executor_sim_close(sim);
    many_close(&many);
}

/* Together they hold passes of each type as often as the workload has them, or more. */
TEST_EACH(the_best_batches_are_of_the_workloads_passes, N_CONFIGURATIONS) {
    struct many many;
    many_open(&many, _i, 60);
    double share = 0, passes[PASS_TYPES] = {0}, steps = 0, all = 0;
    ck_assert_uint_gt(many.prices.n_best, 0);
    for (uint32_t i = 0; i < many.prices.n_best; i++) {
        const struct best_batch *batch = &many.prices.best[i];
        share += batch->share;
        ck_assert(i == 0 || batch->share <= many.prices.best[i - 1].share);
        ck_assert_double_le(batch->tokens, many.system->settings.max_batched_tokens * (1 + 1e-6));
        for (int t = 0; t < PASS_TYPES; t++) {
            passes[t] += batch->share * batch->passes[t];
        }
    }
    ck_assert_msg(share > 0.95 && share < 1 + 1e-9, "%g", share);
    for (int t = 0; t < PASS_TYPES; t++) {
        all += many.types[t].n;
        steps = many.types[t].n > 0 ? fmax(steps, many.types[t].n / fmax(passes[t], 1e-9)) : steps;
    }
    for (int t = 0; t < PASS_TYPES; t++) {
        ck_assert_double_ge(steps * passes[t], many.types[t].n * 0.999);
    }
    ck_assert_double_le(steps, all * 1.05); /* no step holds less than a pass */
    many_close(&many);
}

TEST_EACH(the_listed_passes_are_those_of_every_schedule, 3) {
    static const char *const schedulers[] = {"phase-multiplexed", "continuous", "static"};
    char setting[48];
    snprintf(setting, sizeof setting, "scheduler=%s", schedulers[_i]);
    const char *const settings[] = {setting, "block_tokens=4", "steps_per_block=3", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", false, settings);
    struct err err = {0};
    struct passes passes;
    struct pass_type types[PASS_TYPES];
    struct arrival arrivals[20];
    for (uint32_t i = 0; i < 20; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .arrival_ns = i * INT64_C(70000000),
                           .prompt_tokens = 30 + 17 * i, .output_tokens = 5 + i);
    }
    struct list_source list = list_of(arrivals, 20), again = list;
    const struct passes_request request = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 3};
    ck_assert_msg(passes_list(&request, &passes, &err) == 0, "%s", err.text);
    passes_sum(&passes, system, types);
    struct executor_sim *sim = executor_sim_open(system, 1);
    const struct loop_request loop = {.system = system,
                                      .executor = executor_sim_interface(sim),
                                      .source = {.state = &again, .next = list_next},
                                      .seed = 3};
    struct loop_result result;
    ck_assert_msg(loop_run(&loop, &result, &err) == 0, "%s", err.text);
    for (int c = SYM_REQUESTS; c < SYM_COUNT; c++) {
        double total = 0;
        for (int t = 0; t < PASS_TYPES; t++) {
            total += types[t].total[c];
        }
        ck_assert_double_eq(total, (double)result.sym[c]);
    }
    executor_sim_close(sim);
    passes_fini(&passes);
    system_close(system);
}

/* ---- refreshes that wait ---- */

/* All that runs takes part, as many at once as `places`; of refreshes that can wait `share` do. */
static struct {
    double share;
    uint32_t places, n_put_off;
} patience;

static void wait_at_will(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->says = 1;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting && batch->n < patience.places; i++) {
        const bool admits = i >= view->n_running;
        const uint32_t slot = admits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        struct rng rng = rng_stream(request->id * 1000 + request->steps, "waits");
        const bool puts_off = request->refresh_waits > 0 && rng_uniform(&rng) <= patience.share;
        patience.n_put_off += puts_off;
        batch->n_admitted += admits;
        batch->puts_off[batch->n] = puts_off;
        batch->selected[batch->n++] = slot;
    }
}

/* By the passes of a scheduler that lets none wait, seven of these would beat the bound. */
TEST_EACH(no_scheduler_that_puts_refreshes_off_is_better, 30) {
    enum { N = 6 };
    static const char *const caches[][2] = {
        {"cache=dual", "cache.interval_steps=2"},        {"cache=prefix", "cache.interval_steps=3"},
        {"cache=dkv-decode", "cache.interval_steps=2"},  {"cache=paced", "cache.renew_tokens=2"},
        {"cache=sparse-head", "cache.interval_steps=3"},
    };
    const struct scheduler scheduler = {.policy = {.abi = POLICY_ABI,
                                                   .kind = POLICY_SCHEDULER,
                                                   .size = sizeof scheduler,
                                                   .name = "patient"},
                                        .reads_all = 1,
                                        .schedule = wait_at_will};
    const char *const settings[] = {caches[_i % 5][0], caches[_i % 5][1], "block_tokens=16",
                                    "steps_per_block=16", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", false, settings);
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    struct bound bound;
    struct err err = {0};
    double sum_s = 0;
    system->scheduler = &scheduler;
    patience.share = _i / 5 % 3 / 2.0;
    patience.places = _i < 15 ? 1 : N;
    patience.n_put_off = 0;
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i] =
            MAKE(struct arrival, .id = i, .prompt_tokens = 500 + 100 * i, .output_tokens = 32 + i);
    }
    struct list_source list = list_of(arrivals, N), again = list;
    const struct passes_request request = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 3};
    ck_assert_msg(bound_find(&request, 0, &bound, &err) == 0, "%s", err.text);
    const struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &again, .next = list_next), &keeper);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        sum_s += (double)keeper.requests[i].finished_ns * 1e-9;
    }
    ck_assert_uint_eq(result.completed, N);
    ck_assert_int_eq(patience.n_put_off > 0, patience.share > 0);
    ck_assert_double_ge((double)result.end_ns * 1e-9, 0.9999999 * bound.makespan_s);
    ck_assert_double_ge(sum_s / N, 0.9999999 * bound.mean_latency_s);
    keeper_fini(&keeper);
    system_close(system);
}

/* ---- admission ---- */

/* By an imported profile, which no calibration of ours moves: on the A100 0.77 of the mean. */
static double mean_latency_s(const char *const *settings, double *makespan_s) {
    enum { N = 80 };
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    struct system *system = rig_system("dllm-serve", "a100-80g", false, settings);
    double sum_s = 0;
    for (uint32_t i = 0; i < N; i++) {
        arrivals[i] = MAKE(struct arrival, .id = i, .prompt_tokens = 256, .output_tokens = 64);
    }
    struct list_source list = list_of(arrivals, N);
    struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), &keeper);
    for (size_t i = 0; i < keeper.n_requests; i++) {
        sum_s += (double)keeper.requests[i].finished_ns * 1e-9;
    }
    ck_assert_uint_eq(result.completed, N);
    *makespan_s = (double)result.end_ns * 1e-9;
    keeper_fini(&keeper);
    system_close(system);
    return sum_s / N;
}

TEST(knee_admission_has_a_lower_mean_and_gives_little_throughput_for_it) {
    static const char *const knee[] = {"scheduler=knee", NULL};
    double all_s, knee_s, all_mean_s = mean_latency_s(NULL, &all_s);
    double knee_mean_s = mean_latency_s(knee, &knee_s);
    ck_assert_msg(knee_mean_s < 0.8 * all_mean_s, "%g of %g s", knee_mean_s, all_mean_s);
    ck_assert_msg(knee_s < 1.1 * all_s, "%g of %g s", knee_s, all_s);
}

/* ---- the machine ---- */

enum { MOST_JOBS = 5 };

/* The least sum of completion times in slots of one, by trying all. */
static int least_sum(const int *release, const int *left, int n, int now) {
    int best = INT32_MAX, rest[MOST_JOBS];
    bool waits = false, is_over = true;
    for (int i = 0; i < n; i++) {
        waits = waits || (left[i] > 0 && release[i] > now);
        is_over = is_over && left[i] == 0;
    }
    if (is_over) {
        return 0;
    }
    for (int i = 0; i < n; i++) {
        if (left[i] > 0 && release[i] <= now) {
            memcpy(rest, left, sizeof rest);
            rest[i]--;
            int sum = (rest[i] == 0 ? now + 1 : 0) + least_sum(release, rest, n, now + 1);
            best = sum < best ? sum : best;
        }
    }
    return best == INT32_MAX && waits ? least_sum(release, left, n, now + 1) : best;
}

/* The largest set of jobs of which all are on time, first come first served. */
static size_t most_on_time(const struct machine_job *jobs, int n, double latency) {
    size_t most = 0;
    for (unsigned set = 0; set < 1u << n; set++) {
        double now = 0;
        size_t on_time = 0, size = 0;
        for (int i = 0; i < n; i++) {
            if ((set >> i & 1) != 0) {
                now = fmax(now, jobs[i].release_ns) + jobs[i].work_ns;
                on_time += now <= jobs[i].release_ns + latency && jobs[i].alone_ns <= latency;
                size++;
            }
        }
        most = on_time == size && size > most ? size : most;
    }
    return most;
}

TEST(the_machine_does_what_trying_everything_finds) {
    struct rng rng = rng_stream(5, "jobs");
    for (int round = 0; round < 300; round++) {
        struct machine_job jobs[MOST_JOBS];
        int release[MOST_JOBS], left[MOST_JOBS], n = (int)rig_between(&rng, 1, MOST_JOBS);
        double released = 0, by_both = 0;
        for (int i = 0; i < n; i++) {
            release[i] = (i > 0 ? release[i - 1] : 0) + (int)rig_between(&rng, 0, 3);
            left[i] = (int)rig_between(&rng, 1, 3);
            released += release[i];
            jobs[i] = MAKE(struct machine_job, .release_ns = release[i], .work_ns = left[i],
                           .alone_ns = left[i], .tail_ns = left[i] / 2.0);
        }
        struct machine_limits limits;
        machine_run(jobs, (size_t)n, 1, &limits);
        int sum = least_sum(release, left, n, 0);
        ck_assert_double_eq_tol(limits.mean_by_work_ns, (sum - released) / n, 1e-9);
        by_both = limits.mean_by_both_ns; /* alone it is the job's own time */
        ck_assert_double_le(by_both, limits.mean_by_work_ns + 1e-9);
        double latency = rig_between(&rng, 1, 9);
        ck_assert_uint_eq(machine_on_time(jobs, (size_t)n, 1, latency),
                          most_on_time(jobs, n, latency));
        double least = 1, q = rig_between(&rng, 0, 99) / 100.0;
        while (most_on_time(jobs, n, least) < 1 + (size_t)((n - 1) * q)) {
            least++;
        }
        double found = machine_quantile(jobs, (size_t)n, 1, q);
        ck_assert_msg(found <= least && found > 0.999 * least, "%g of %g", found, least);
        machine_run(jobs, (size_t)n, 2, &limits); /* in half the time */
        ck_assert_double_le(limits.mean_by_work_ns, (sum - released) / n);
    }
}

/* With one bound for all, whichever are on time can be so in the order of their release. */
TEST(the_most_jobs_are_on_time_that_any_choice_of_them_allows) {
    enum { MOST = 8 };
    struct rng rng = rng_stream(4, "on time");
    for (int i = 0; i < 3000; i++) {
        struct machine_job jobs[MOST];
        size_t n = rig_between(&rng, 1, MOST), most = 0;
        double release_ns = 0, speed = rig_between(&rng, 1, 2);
        const double latency_ns = rig_between(&rng, 4, 16);
        for (size_t k = 0; k < n; k++) {
            release_ns += rig_between(&rng, 0, 6);
            jobs[k] = (struct machine_job){.release_ns = release_ns,
                                           .work_ns = rig_between(&rng, 1, 12),
                                           .alone_ns = rig_between(&rng, 1, 17)};
        }
        for (unsigned who = 0; who < 1u << n; who++) {
            double now_ns = 0;
            size_t n_done = 0;
            bool all = true;
            for (size_t k = 0; k < n; k++) {
                if ((who >> k & 1) != 0) {
                    now_ns = fmax(now_ns, jobs[k].release_ns) + jobs[k].work_ns / speed;
                    all = all && now_ns <= jobs[k].release_ns + latency_ns &&
                          jobs[k].alone_ns <= latency_ns;
                    n_done++;
                }
            }
            most = all && n_done > most ? n_done : most;
        }
        size_t found = machine_on_time(jobs, n, speed, latency_ns);
        ck_assert_msg(found == most, "case %d: %zu of %zu, not %zu", i, found, n, most);
    }
}

/* ---- what is known of passes ---- */

/* Prompts of six requests grow by 10 tokens from one to the next. */
static struct bound bound_of(const char *gpu, const char *known_as, int64_t apart_ns,
                             uint32_t prompt_tokens, bool is_reversed) {
    const char *const settings[] = {"block_tokens=4", "steps_per_block=2", NULL};
    struct system *system = rig_system("dllm-serve", gpu, false, settings);
    struct arrival arrivals[6];
    for (uint32_t r = 0; r < 6; r++) {
        arrivals[r] = MAKE(struct arrival, .id = r, .arrival_ns = r * apart_ns,
                           .prompt_tokens = prompt_tokens + 10 * (is_reversed ? 5 - r : r),
                           .output_tokens = 8);
    }
    struct err err = {0};
    struct list_source list = list_of(arrivals, 6);
    const struct passes_request request = {.system = system,
                                           .source = {.state = &list, .next = list_next},
                                           .seed = 3,
                                           .known_as = known_as};
    struct bound bound;
    ck_assert_msg(bound_find(&request, 50000000, &bound, &err) == 0, "%s", err.text);
    system_close(system);
    return bound;
}

static bool is_same(const struct bound *a, const struct bound *b) {
    return a->makespan_s == b->makespan_s && a->mean_latency_s == b->mean_latency_s &&
           a->p99_latency_s == b->p99_latency_s && a->saturated_tok_s == b->saturated_tok_s &&
           a->on_time == b->on_time && a->mean_by_both_s == b->mean_by_both_s &&
           memcmp(&a->prices, &b->prices, sizeof a->prices) == 0;
}

/* Other arrivals share it, other passes and other systems do not, and it is forgotten in time. */
TEST(a_bound_from_what_is_known_of_its_passes_is_the_one_found_anew) {
    const struct {
        const char *gpu;
        int64_t apart_ns;
        uint32_t prompt_tokens;
        bool is_reversed; /* the same passes, of other requests */
    } asked[] = {{"h200", 0, 90, false},
                 {"h200", 40000000, 90, false},
                 {"h200", 1000000, 90, true},
                 {"h200", 0, 91, false},
                 {"l40s", 0, 90, false}};
    for (size_t i = 0; i < 2 * sizeof asked / sizeof asked[0]; i++) {
        const size_t at = i / 2;
        const struct bound known = bound_of(asked[at].gpu, asked[at].gpu, asked[at].apart_ns,
                                            asked[at].prompt_tokens, asked[at].is_reversed);
        const struct bound anew = bound_of(asked[at].gpu, NULL, asked[at].apart_ns,
                                           asked[at].prompt_tokens, asked[at].is_reversed);
        ck_assert_msg(is_same(&known, &anew), "%zu", i);
    }
    /* A system that goes by another one's name shows that nothing was found anew. */
    const struct bound h200 = bound_of("h200", "h200", 0, 90, false),
                       as = bound_of("l40s", "h200", 0, 90, false);
    ck_assert(is_same(&h200, &as));
    for (uint32_t i = 0; i < KNOWN_MOST; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        (void)bound_of("h200", name, 0, 90, false);
    }
    const struct bound forgotten = bound_of("l40s", "h200", 0, 90, false);
    ck_assert(!is_same(&h200, &forgotten));
}

SUITE("bound")
