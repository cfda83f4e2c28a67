/* Limits beside runs: no run of a shipped system is better than what no scheduler can beat. */
#include <math.h>

#include "experiments/run/limit.h"
#include "sim/base/rng.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"

static const char *pick(struct rng *rng, const char *const *words) {
    size_t n = 0;
    while (words[n] != NULL) {
        n++;
    }
    return words[rng_next(rng) % n];
}

static double number(const json_t *object, const char *key, const char *inner) {
    const json_t *value = json_object_get(object, key);
    value = inner != NULL ? json_object_get(value, inner) : value;
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Twenty runs each; UNMASK_LIMIT_RUNS=N: so many. */
TEST_EACH(no_run_is_better_than_its_limit, 2) {
    static const char *const systems[] = {"dllm-serve",
                                          "dllm-serve-published",
                                          "sparse-dllm",
                                          "fast-dllm-published",
                                          "vanilla",
                                          "dllm-cache",
                                          "fast-dllm-prefix",
                                          "sdar",
                                          "lmdeploy",
                                          "sglang",
                                          "focus",
                                          "focus-published",
                                          "dc+",
                                          "dinfer",
                                          "dinfer-smooth",
                                          "fast-dllm-v2",
                                          "vllm-ar",
                                          "mosaic",
                                          "dinfer-credit",
                                          "fast-dllm-moe",
                                          "dkv-cache",
                                          "ablation-engine",
                                          "vllm-measured",
                                          NULL};
    static const char *const gpus[] = {"h200", "l40s", "rtx4090", "a100-80g", "h100", NULL};
    static const char *const workloads[] = {"burst", "gsm8k", "humaneval", "sharegpt", NULL};
    static const char *const limits[] = {"1", "2", "5", "16", "64", NULL};
    static const char *const stops[] = {"off", "block", NULL};
    static const char *const replicas[] = {"1", "1", "1", "2", "3", NULL};
    struct rng rng = rng_stream((uint64_t)_i, "limits");
    const char *wanted = getenv("UNMASK_LIMIT_RUNS");
    int n_run = 0, n = wanted != NULL ? atoi(wanted) : 20;
    for (int i = 0; i < n; i++) {
        struct setting settings[3] = {
            {.key = "max_requests"}, {.key = "replicas"}, {.key = "early_stop"}};
        struct run_request request = {.system = pick(&rng, systems),
                                      .gpu = pick(&rng, gpus),
                                      .workload = pick(&rng, workloads),
                                      .settings = settings,
                                      .n_settings = 3,
                                      .slo = {.latency_ns = INT64_C(8000000000)}};
        snprintf(settings[0].value, sizeof settings[0].value, "%s", pick(&rng, limits));
        snprintf(settings[1].value, sizeof settings[1].value, "%s", pick(&rng, replicas));
        snprintf(settings[2].value, sizeof settings[2].value, "%s", pick(&rng, stops));
        request.options = (struct workload_options){.seed = rng_next(&rng) % 1000,
                                                    .requests = 1 + rng_next(&rng) % 24,
                                                    .rate_per_s = exp(7 * rng_uniform(&rng) - 3)};
        struct bound bound;
        struct err err = {.kind = ERR_NONE};
        json_t *run = NULL;
        if (compose_summary(&request, &run, &err) != 0 || number(run, "completed", NULL) == 0) {
            json_decref(run);
            continue; /* no room, or no prices */
        }
        ck_assert_msg(limit_find(&request, NULL, &bound, &err) == 0, "%s", err.text);
        double throughput = number(run, "throughput_tok_s", NULL);
        double latency = number(run, "latency_s", "mean"), p99 = number(run, "latency_s", "p99");
        double on_time = number(run, "attainment", NULL);
        bool holds = throughput <= bound.throughput_tok_s * (1 + 1e-9) &&
                     latency >= bound.mean_latency_s * (1 - 1e-9) &&
                     p99 >= bound.p99_latency_s * (1 - 1e-9) && on_time <= bound.on_time + 1e-9;
        ck_assert_msg(
            holds, "%s on %s, %s: %g of %g tok/s, %g of %g s, p99 %g of %g s, %g of %g on time",
            request.system, request.gpu, request.workload, throughput, bound.throughput_tok_s,
            latency, bound.mean_latency_s, p99, bound.p99_latency_s, on_time, bound.on_time);
        ck_assert_double_gt(bound.prices.scale, 0.999);
        json_decref(run);
        n_run++;
    }
    ck_assert_int_ge(2 * n_run, n);
}

TEST(bound_prints_limits_and_runs_and_run_prints_them_where_asked) {
    struct output o = CLI("bound", "--gpu", "h200", "--requests", "20", "--rate", "100", "--json",
                          "--systems", "dllm-serve,fast-dllm");
    ck_assert_msg(o.status == 0, "%s", o.err);
    json_t *all = json_loads(o.out, 0, NULL), *systems = json_object_get(all, "systems");
    ck_assert_uint_eq(json_array_size(systems), 2);
    const json_t *bound = json_object_get(json_array_get(systems, 0), "bound");
    double limit = number(bound, "throughput_tok_s", NULL);
    double ran =
        number(json_object_get(json_array_get(systems, 0), "run"), "throughput_tok_s", NULL);
    ck_assert_double_le(ran, limit);
    const json_t *best = json_array_get(json_object_get(bound, "batches"), 0);
    ck_assert_double_gt(number(best, "tokens", NULL), 32);
    ck_assert_double_gt(number(best, "share_of_steps", NULL), 0.1);
    ck_assert_double_gt(ran, limit / 2);
    output_free(&o);
    o = CLI("run", "--gpu", "h200", "--requests", "20", "--rate", "100", "--json", "--bound");
    json_t *run = json_loads(o.out, 0, NULL);
    ck_assert_double_eq(number(json_object_get(run, "bound"), "throughput_tok_s", NULL), limit);
    ck_assert_double_eq(number(run, "throughput_tok_s", NULL), ran);
    json_decref(run);
    json_decref(all);
    output_free(&o);
    o = CLI("compare", "--gpu", "h200", "--requests", "20", "--rate", "100", "--json", "--bound",
            "--systems", "dllm-serve");
    all = json_loads(o.out, 0, NULL);
    bound = json_object_get(json_array_get(all, 0), "bound");
    ck_assert_double_eq(number(bound, "throughput_tok_s", NULL), limit);
    ck_assert_double_eq_tol(number(bound, "throughput_share", NULL), ran / limit, 1e-5);
    json_decref(all);
    output_free(&o);
    o = CLI("bound", "--gpu", "h200", "--systems", "mosaic-torch");
    ck_assert_int_ne(o.status, 0);
    output_free(&o);
}

/* The bound of the one point of a sweep's output; NaN where it has none. */
static double swept(const char *grid, const char *db, const char *bound) {
    struct output o = CLI("sweep", grid, "--db", db, "--json", bound);
    ck_assert_msg(o.status == 0, "%s", o.err);
    json_t *all = json_loads(o.out, 0, NULL);
    const json_t *summary = json_object_get(json_array_get(all, 0), "summary");
    double share = number(json_object_get(summary, "bound"), "throughput_share", NULL);
    json_decref(all);
    output_free(&o);
    return share;
}

TEST(a_sweep_has_bounds_when_they_are_asked_for_whatever_was_recorded) {
    char grid[512], db[512], other[512];
    snprintf(grid, sizeof grid, "%s/grid.ini", scratch_folder);
    snprintf(db, sizeof db, "%s/a.db", scratch_folder);
    snprintf(other, sizeof other, "%s/b.db", scratch_folder);
    FILE *file = fopen(grid, "w");
    ck_assert_ptr_nonnull(file);
    fputs("[sweep]\nsystems = dllm-serve\ngpus = h200\nworkloads = burst\nrequests = 10\n", file);
    fclose(file);
    double share = swept(grid, db, "--bound"); /* recorded with it */
    ck_assert(share > 0 && share <= 1);
    ck_assert(isnan(swept(grid, db, NULL)));
    ck_assert(isnan(swept(grid, other, NULL))); /* recorded without */
    ck_assert_double_eq(swept(grid, other, "--bound"), share);
}

TEST(a_bound_of_a_card_with_clocks_says_that_it_takes_the_highest) {
    static const char line[] = "; at the card's highest clock\n";
    char *clocked = PRINTS("run", "--gpu", "h200", "--requests", "4", "--bound");
    char *other = PRINTS("run", "--gpu", "a100-80g", "--requests", "4", "--bound");
    ck_assert_ptr_nonnull(strstr(clocked, line));
    ck_assert_ptr_null(strstr(other, line));
    free(clocked);
    free(other);
}

/* Another width makes other passes, and not always more; with another threshold the fewest are
 * known: what no scheduler beats at the lowest that is said. */
TEST(there_is_no_bound_of_a_scheduler_that_says_widths) {
    struct output output = CLI("run", "--system", "fast-dllm", "--scheduler", "width-by-load",
                               "--decoder", "threshold", "--requests", "3", "--bound");
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "says widths, thresholds or rows"));
    output_free(&output);
    free(PRINTS("run", "--system", "fast-dllm", "--scheduler", "refresh-spread", "--requests", "3",
                "--bound"));
}

TEST(the_bound_of_a_valve_is_that_of_its_lowest_threshold) {
    char *valve =
        PRINTS("run", "--system", "fast-dllm", "--scheduler", "threshold-valve", "--set",
               "scheduler.threshold=0.6", "--decoder", "threshold", "--requests", "3", "--bound");
    char *lowest = PRINTS("run", "--system", "fast-dllm", "--decoder", "threshold", "--set",
                          "decoder.threshold=0.6", "--requests", "3", "--bound");
    const char *line = strstr(valve, "\nbound "), *other = strstr(lowest, "\nbound ");
    ck_assert_ptr_nonnull(line);
    ck_assert_ptr_nonnull(other);
    ck_assert_int_eq(strncmp(line, other, strcspn(line + 1, "\n") + 2), 0);
    free(valve);
    free(lowest);
}

SUITE("limit")
