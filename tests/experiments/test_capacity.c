/* Capacity: the grammar of objectives, what they are of, and the search for the rate. */
#include <jansson.h>
#include <math.h>

#include "analysis/objective.h"
#include "experiments/study/released.h"
#include "sim/system/system_facts.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"

static struct objectives objectives_of(const char *text) {
    struct objectives objectives = {.n = 0};
    struct err err = {.kind = ERR_NONE};
    ck_assert_msg(objectives_add(&objectives, text, &err) == 0, "%s", err.text);
    return objectives;
}

static struct served request(double latency_s, double ttft_s, uint32_t tenant) {
    struct served served = {.tenant = tenant};
    served.seconds[METRIC_LATENCY] = latency_s;
    served.seconds[METRIC_TTFT] = ttft_s;
    served.seconds[METRIC_TPOT] = isfinite(latency_s) ? (double)NAN : latency_s;
    served.seconds[METRIC_QUEUE] = isfinite(latency_s) ? 0 : latency_s;
    return served;
}

TEST(terms_are_read_with_statistic_metric_and_bound) {
    struct objectives all = objectives_of("p99 latency<30s, mean ttft <= 500ms,max queue<2s");
    ck_assert_uint_eq(all.n, 3);
    ck_assert(all.items[0].statistic == STATISTIC_QUANTILE && all.items[0].quantile == 0.99);
    ck_assert_double_eq(all.items[0].bound, 30);
    ck_assert_str_eq(all.items[0].text, "p99 latency<30s");
    ck_assert(all.items[1].statistic == STATISTIC_MEAN && all.items[1].metric == METRIC_TTFT);
    ck_assert_double_eq(all.items[1].bound, 0.5);
    ck_assert(all.items[2].quantile == 1 && all.items[2].metric == METRIC_QUEUE);
    all = objectives_of(" tenant 7: attainment>97.5% ");
    ck_assert(all.items[0].tenant == 7 && all.items[0].statistic == STATISTIC_SHARE);
    ck_assert_double_eq(all.items[0].bound, 0.975);
    ck_assert_str_eq(all.items[0].text, "tenant 7: goodput>97.5%");
}

/* As load generators and fields of results spell them. */
TEST(terms_are_read_however_they_are_spelled) {
    static const char *const alike[] = {
        "p95 TTFT<2s",   "P95_TTFT < 2s", "ttft_p95<2s",     "ttft_s.p95<2 s",
        "p95(ttft)<=2s", "ttft p95 <2s",  "p95 ttft<2000ms", "p95 ttft < 2s; mean queue<1min",
    };
    for (size_t i = 0; i < sizeof alike / sizeof alike[0]; i++) {
        struct objectives o = objectives_of(alike[i]);
        ck_assert_str_eq(o.items[0].name, "p95 ttft");
        ck_assert_double_eq(o.items[0].bound, 2);
        ck_assert(o.items[0].metric == METRIC_TTFT && o.items[0].quantile == 0.95);
    }
    struct objectives o = objectives_of("p99.9 E2EL<1.5h;tenant 3: tpot<50ms, goodput>99%");
    ck_assert_uint_eq(o.n, 3);
    ck_assert_double_eq_tol(o.items[0].quantile, 0.999, 1e-12);
    ck_assert_double_eq(o.items[0].bound, 5400);
    ck_assert(o.items[1].tenant == 3 && o.items[2].tenant == 3);
}

TEST(what_is_no_term_is_refused_with_what_was_found) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"p99 latency", "'p99 latency' lacks its bound"},
        {"p99 latenci<3s", "'latenci' is no metric; did you mean 'latency'?"},
        {"p101 ttft<3s", "'p101' in 'p101 ttft<3s' is no percentile from p0 to p100"},
        {"p99 latency<30", "'30' is not a time"},
        {"p99 latency>30s", "an objective bounds latency from above, latency<30s"},
        {"goodput>99", "'99' is not a share"},
        {"goodput<99%", "an objective bounds goodput from below, goodput>99%"},
        {"goodput>101%", "'101%' is not a share"},
        {"p99 goodput>99%", "goodput has no mean and no percentiles"},
        {"p99 ttft<3s p4",
         "'3s p4' in 'p99 ttft<3s p4' is not a time such as 2.5s or 300ms; terms"},
        {"ttft:2000 tpot:50", "a bound is written ttft<2s"},
        {"goodput>0.95", "above 0 and up to 100%, such as 95%"},
        {"p99 p95 ttft<3s", "'p95' in 'p99 p95 ttft<3s' is no metric"},
        {"p99 ttft p95<3s", "lacks its bound"},
        {"p99 itl<3s",
         "the tokens of a block come together; there are latency (e2e, e2el), ttft, tpot, queue"},
        {"p99 ttft<3s,", "has an empty term"},
        {"", "has an empty term"},
        {"tenant x: p99 ttft<3s", "is not 'tenant N' before the colon"},
        {"class 1: p99 ttft<3s", "is not 'tenant N' before the colon"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct objectives objectives = {.n = 0};
        struct err err = {.kind = ERR_NONE};
        ck_assert_int_eq(objectives_add(&objectives, bad[i].text, &err), ERR_USAGE);
        ASSERT_SAYS(err.text, bad[i].says);
    }
    struct err err = {.kind = ERR_NONE};
    struct objectives each = objectives_of("latency<30s");
    ck_assert_int_eq(objectives_check(&each, &err), ERR_USAGE);
    struct objectives share = objectives_of("mean latency<30s, goodput>99%");
    err = (struct err){.kind = ERR_NONE};
    ck_assert_int_eq(objectives_check(&share, &err), ERR_USAGE); /* a mean bounds no request */
    share = objectives_of("p100 latency<30s, goodput>99%");
    err = (struct err){.kind = ERR_NONE};
    ck_assert_int_eq(objectives_check(&share, &err), 0);
}

TEST(rejected_requests_are_above_every_bound_and_never_good) {
    struct served served[100];
    for (int i = 0; i < 100; i++) {
        served[i] = request(1 + i / 100.0, 0.1, 0);
    }
    struct objectives o = objectives_of("p90 latency<10s, p99 latency<10s, mean ttft<1s");
    ck_assert_double_eq_tol(objective_value(&o, 0, served, 100), 1.891, 1e-9);
    ck_assert_double_eq(objectives_attainment(&o, served, 100), 1);
    served[3] = served[50] = request(INFINITY, INFINITY, 0);
    ck_assert_double_eq_tol(objective_value(&o, 0, served, 100), 1.911, 1e-9);
    ck_assert(isinf(objective_value(&o, 1, served, 100)) &&
              isinf(objective_value(&o, 2, served, 100)));
    ck_assert_double_eq(objectives_attainment(&o, served, 100), 0.98);
}

/* The value of a term that is known to be lost misses, whatever the requests still to come do. */
TEST(an_objective_is_lost_once_the_rest_cannot_meet_it) {
    struct objectives o = objectives_of("p95 latency<10s, latency<10s, goodput>90%, mean ttft<1s");
    struct served served[101];
    ck_assert(!objective_is_lost(&o.items[0], 5, 100) && objective_is_lost(&o.items[0], 6, 100));
    ck_assert(!objective_is_lost(&o.items[2], 10, 100) && objective_is_lost(&o.items[2], 11, 100));
    ck_assert(!objective_is_lost(&o.items[1], 100, 100));
    ck_assert(!objective_is_lost(&o.items[3], 100, 100));
    ck_assert(!objective_is_lost(&o.items[0], 0, 0) && !objective_is_lost(&o.items[0], 7, 6));
    for (size_t n = 1; n <= 101; n++) {
        for (size_t over = 0; over <= n; over++) {
            size_t passed[4] = {0};
            for (size_t i = 0; i < n; i++) {
                served[i] = request(i < over ? 10.001 : 1, 2, 0);
                for (size_t term = 0; term < o.n; term++) {
                    passed[term] += objective_is_passed(&o, term, &served[i]);
                }
            }
            ck_assert_uint_eq(passed[0], over);
            ck_assert_uint_eq(passed[2], over);
            for (size_t term = 0; term < o.n; term++) {
                const double value = objective_value(&o, term, served, n);
                ck_assert(!objective_is_lost(&o.items[term], passed[term], n) ||
                          !objective_is_met(&o.items[term], value));
            }
        }
    }
    o = objectives_of("tenant 2: p95 latency<10s");
    served[0] = request(20, 1, 1);
    ck_assert(!objective_is_passed(&o, 0, &served[0])); /* another tenant's */
}

TEST(a_request_is_good_within_the_bounds_that_speak_of_it) {
    const struct served served[] = {request(5, 1, 1), request(15, 1, 1), request(5, 3, 2),
                                    request(25, 1, 2)};
    struct objectives o = objectives_of("p50 latency<10s, p99 latency<20s, goodput>50%");
    ck_assert_double_eq(objective_value(&o, 2, served, 4), 0.75); /* the loosest percentile's */
    o = objectives_of("p99 latency<20s, p50 latency<10s, goodput>50%");
    ck_assert_double_eq(objective_value(&o, 2, served, 4), 0.75);
    o = objectives_of("latency<10s, p99 latency<20s, goodput>50%");
    ck_assert_double_eq(objective_value(&o, 2, served, 4), 0.5); /* the term of each request */
    struct err err = {.kind = ERR_NONE};
    o = objectives_of("p99 latency<20s");
    ck_assert_int_eq(objectives_add(&o, "tenant 2: ttft<2s, goodput>50%", &err), 0);
    ck_assert_double_eq(objectives_attainment(&o, served, 4), 0.5);
    ck_assert_double_eq(objective_value(&o, 2, served, 4), 0); /* of tenant 2's two */
    o = objectives_of("mean latency<30s");
    ck_assert(isnan(objectives_attainment(&o, served, 4)));
    o = objectives_of("tenant 9: p99 latency<20s");
    ck_assert(isnan(objective_value(&o, 0, served, 4)));
}

static double number(const json_t *json, const char *key) {
    return json_number_value(json_object_get(json, key));
}

#define SMALL                                                                                      \
    "--gpu", "rtx4090", "--requests", "150", "--input-tokens", "300", "--output-tokens", "64"

/* The i-th configuration, and its first seed. */
static const json_t *config_at(const json_t *json, size_t i) {
    return json_array_get(json_object_get(json, "configurations"), i);
}

static const json_t *seed_at(const json_t *json, size_t config, size_t seed) {
    return json_array_get(json_object_get(config_at(json, config), "by_seed"), seed);
}

/* `within` percent: the coarser, the further is the lowest rate that misses from those that halving
 * tries last, and its run was cut short on the way. */
static void measures_what_a_run_does(const char *within, double widest) {
    json_t *json = json_parsed(
        PRINTS("capacity", SMALL, "--slo", "p99 latency<6s", "--within", within, "--json"));
    static const char *const keys[] = {"at_capacity", "first_missed"};
    double rates[2], offered_rates[2];
    for (int k = 0; k < 2; k++) {
        const json_t *trial = json_object_get(seed_at(json, 0, 0), keys[k]);
        char rate[32];
        rates[k] = number(trial, "rate_req_s");
        snprintf(rate, sizeof rate, "%.9g", rates[k]);
        json_t *run =
            json_parsed(PRINTS("run", SMALL, "--rate", rate, "--slo-latency", "6s", "--json"));
        double p99 = number(json_object_get(run, "latency_s"), "p99");
        ck_assert_double_eq_tol(number(json_object_get(trial, "values"), "p99 latency"), p99, 1e-7);
        ck_assert_double_eq_tol(number(trial, "attainment"), number(run, "attainment"), 1e-8);
        const json_t *offered = json_object_get(run, "offered");
        ck_assert_double_eq_tol(number(trial, "offered_req_s"), number(offered, "rate_req_s"),
                                1e-7);
        ck_assert_double_eq_tol(number(trial, "attained_req_s"),
                                number(run, "attainment") * number(offered, "rate_req_s"), 1e-7);
        ck_assert_str_eq(json_string_value(json_object_get(trial, "state")),
                         json_string_value(json_object_get(offered, "state")));
        offered_rates[k] = number(trial, "offered_req_s");
        ck_assert(k == 0 ? p99 <= 6 : p99 > 6);
        json_decref(run);
    }
    ck_assert(rates[1] > rates[0] && rates[1] <= widest * rates[0]);
    ck_assert_double_eq(number(seed_at(json, 0, 0), "capacity_req_s"), offered_rates[0]);
    ck_assert(widest > 1.1 || json_is_true(json_object_get(seed_at(json, 0, 0), "monotone")));
    ck_assert_uint_eq(json_array_size(json_object_get(seed_at(json, 0, 0), "curve")), 8);
    json_decref(json);
}

TEST(what_it_reports_is_what_a_run_at_that_rate_measures) {
    measures_what_a_run_does("1", 1.0101);
    measures_what_a_run_does("20", 1.2);
    measures_what_a_run_does("50", 1.5);
}

TEST(seeds_are_paired_and_threads_change_nothing) {
#define PAIRED                                                                                     \
    "capacity", SMALL, "--systems", "dllm-serve,sparse-dllm,fast-dllm-prefix", "--slo",            \
        "p95 latency<8s, goodput>90%", "--seeds", "3", "--no-curve", "--json"
    char *one = PRINTS(PAIRED, "-j", "1"), *four = PRINTS(PAIRED, "-j", "4");
    ck_assert_str_eq(one, four);
    free(four);
    json_t *json = json_parsed(one);
    for (size_t i = 0; i < 3; i++) {
        const json_t *capacity = json_object_get(config_at(json, i), "capacity_req_s");
        double sum = 0, differences = 0;
        for (size_t s = 0; s < 3; s++) {
            double ours = number(seed_at(json, i, s), "capacity_req_s");
            sum += ours;
            differences += ours - number(seed_at(json, 0, s), "capacity_req_s");
        }
        ck_assert_double_eq_tol(number(capacity, "mean"), sum / 3, 1e-7);
        ck_assert(number(capacity, "low") < sum / 3 && number(capacity, "high") > sum / 3);
        ck_assert_double_eq_tol(
            number(json_object_get(config_at(json, i), "difference_req_s"), "mean"),
            differences / 3, 1e-7);
    }
    json_decref(json);
}

/* A scheduler that prefills only when four wait: few requests wait for those that decode, many are
 * soon four. */
TEST(a_system_that_misses_at_lower_rates_is_found_out) {
    json_t *json = json_parsed(
        PRINTS("capacity", "--gpu", "a100-80g", "--system", "lmdeploy", "--set",
               "scheduler.trigger=fork", "--set", "scheduler.waiting_requests=4", "--set",
               "scheduler.running_share=0", "--requests", "400", "--input-tokens", "200",
               "--output-tokens", "512", "--slo", "p95 ttft<4s", "--json"));
    const json_t *seed = seed_at(json, 0, 0);
    double capacity = number(seed, "capacity_req_s"), highest = number(seed, "highest_met_req_s");
    ck_assert(json_is_false(json_object_get(seed, "monotone")));
    ck_assert(highest > 3 && capacity < 0.5 && capacity > 0);
    const json_t *note = json_object_get(config_at(json, 0), "note");
    ASSERT_SAYS(json_string_value(note), "not monotone: seed 1 misses and meets again");
    json_decref(json);
}

TEST(what_no_rate_and_what_every_rate_meets_is_said) {
    json_t *json = json_parsed(PRINTS("capacity", SMALL, "--slo", "p99 latency<100ms", "--json"));
    ck_assert_str_eq(json_string_value(json_object_get(config_at(json, 0), "state")), "none");
    ck_assert_double_eq(number(seed_at(json, 0, 0), "capacity_req_s"), 0);
    /* Halving ends where requests are alone. */
    const json_t *missed = json_object_get(seed_at(json, 0, 0), "first_missed");
    ck_assert(number(missed, "rate_req_s") > 1e-3 && number(missed, "queue_share") < 1e-9);
    json_decref(json);
    json = json_parsed(PRINTS("capacity", SMALL, "--slo", "p99 latency<9000s", "--json"));
    ck_assert_str_eq(json_string_value(json_object_get(config_at(json, 0), "state")), "unbounded");
    ck_assert(json_is_null(json_object_get(seed_at(json, 0, 0), "capacity_req_s")));
    json_decref(json);
}

static const char *word(const json_t *json, const char *key) {
    const char *text = json_string_value(json_object_get(json, key));
    return text != NULL ? text : "";
}

/* Objectives so loose that saturation alone limits the rate. */
TEST(no_answer_is_above_what_no_scheduler_sustains_or_not_known_to_be_steady) {
    static const char *const arrivals[] = {"poisson", "gamma", "bursts"};
    for (size_t i = 0; i < 3; i++) {
        json_t *json = json_parsed(PRINTS(
            "capacity", "--requests", "400", "--arrivals", arrivals[i], "--slo", "p99 latency<600s",
            "--set", "max_requests=4", "--seeds", "2", "--no-curve", "--json"));
        double bound = number(config_at(json, 0), "bound_req_s");
        ck_assert(bound > 0);
        for (size_t s = 0; s < 2; s++) {
            const json_t *seed = seed_at(json, 0, s);
            ck_assert(number(seed, "capacity_req_s") > 0.5 * bound &&
                      number(seed, "capacity_req_s") <= 1.02 * bound);
            ck_assert_str_eq(word(json_object_get(seed, "at_capacity"), "state"), "steady");
            ck_assert(strcmp(word(json_object_get(seed, "first_missed"), "state"), "steady") != 0);
        }
        ck_assert(number(json_object_get(config_at(json, 0), "capacity_req_s"), "mean") <= bound);
        ck_assert_str_ne(word(config_at(json, 0), "misses_first"), "");
        json_decref(json);
    }
}

TEST(requests_too_few_for_the_replicas_are_told) {
    static const char *const requests[] = {"300", "8000"};
    for (size_t i = 0; i < 2; i++) {
        struct output output =
            CLI("capacity", "--set", "replicas=16", "--set", "max_requests=16", "--requests",
                requests[i], "--slo", "p95 latency<60s", "--no-curve", "--verbose");
        bool is_few = i == 0;
        ck_assert_int_eq(output.status, 0);
        ck_assert_int_eq(strstr(output.out, "few-requests") != NULL, is_few);
        output_free(&output);
    }
    char *text = PRINTS("capacity", SMALL, "--slo", "p99 latency<9000s", "--no-curve");
    ASSERT_SAYS(text, "none, even all at once");
    ASSERT_SAYS(text, "all 150 requests come at once");
    free(text);
}

TEST(requests_that_are_rejected_miss_their_percentile) {
    char rows[4096] = "arrival_us,input_tokens,output_tokens\n";
    for (int i = 0; i < 60; i++) {
        size_t used = strlen(rows);
        snprintf(rows + used, sizeof rows - used, "%d,%d,64\n", i * 1000000,
                 i % 20 == 7 ? 200000 : 300);
    }
    const char *path = scratch_write("long.csv", rows);
    json_t *json = json_parsed(
        PRINTS("capacity", "--workload", path, "--slo", "p99 latency<60s", "--no-curve", "--json"));
    ck_assert_str_eq(json_string_value(json_object_get(config_at(json, 0), "state")), "none");
    json_decref(json);
    json = json_parsed(
        PRINTS("capacity", "--workload", path, "--slo", "p90 latency<4s", "--no-curve", "--json"));
    const json_t *trial = json_object_get(seed_at(json, 0, 0), "at_capacity");
    ck_assert(number(seed_at(json, 0, 0), "capacity_req_s") > 0);
    ck_assert(number(trial, "attainment") >= 0.9 && number(trial, "attainment") <= 57.0 / 60);
    json_decref(json);
}

TEST(the_front_has_whom_nobody_beats_at_no_more_cost) {
    json_t *json = json_parsed(PRINTS("capacity", SMALL, "--systems", "fast-dllm-prefix,dllm-serve",
                                      "--over", "replicas=1,2", "--price", "rtx4090=0.5,l40s=9",
                                      "--slo", "p95 latency<8s", "--no-curve", "--json"));
    double capacities[4];
    static const double costs[] = {0.5, 1, 0.5, 1};
    for (size_t i = 0; i < 4; i++) {
        const json_t *config = config_at(json, i);
        capacities[i] = number(json_object_get(config, "capacity_req_s"), "mean");
        ck_assert_double_eq(number(config, "cost"), costs[i]);
        ck_assert_double_eq_tol(number(config, "dollars_per_1000_requests"),
                                costs[i] / 3.6 / capacities[i], 1e-6);
    }
    ck_assert(capacities[1] > capacities[0] && capacities[3] > capacities[2]);
    for (size_t i = 0; i < 4; i++) {
        bool is_beaten = capacities[i] < capacities[(i + 2) % 4];
        ck_assert_int_eq(json_is_true(json_object_get(config_at(json, i), "on_front")), !is_beaten);
    }
    json_decref(json);
}

TEST(tenants_have_objectives_of_their_own) {
    char rows[8192] = "arrival_us,input_tokens,output_tokens,tenant\n";
    for (int i = 0; i < 120; i++) {
        size_t used = strlen(rows);
        snprintf(rows + used, sizeof rows - used, "%d,%d,64,%d\n", i * 1000000, 200 + 9 * i,
                 1 + i % 2);
    }
    const char *path = scratch_write("tenants.csv", rows);
    char *loose = PRINTS("capacity", "--workload", path, "--slo", "tenant 1: p95 latency<6s",
                         "--no-curve", "--json");
    char *tight = PRINTS("capacity", "--workload", path, "--slo", "tenant 1: p95 latency<6s",
                         "--slo", "tenant 2: p95 latency<2s", "--no-curve", "--json");
    json_t *one = json_parsed(loose), *both = json_parsed(tight);
    double most = number(seed_at(one, 0, 0), "capacity_req_s");
    double less = number(seed_at(both, 0, 0), "capacity_req_s");
    ck_assert(less > 0 && less < 0.9 * most);
    ck_assert_str_eq(json_string_value(json_object_get(config_at(both, 0), "misses_first")),
                     "tenant 2: p95 latency<2s");
    json_decref(one);
    json_decref(both);
    REFUSES(2, "'tenant 3: p95 latency<9s' speaks of no request", "capacity", "--workload", path,
            "--slo", "tenant 3: p95 latency<9s");
}

TEST(files_and_table_have_every_configuration) {
    char folder[256], path[300];
    snprintf(folder, sizeof folder, "%s", scratch_path("capacity"));
    char *text = PRINTS("capacity", SMALL, "--systems", "dllm-serve,vanilla", "--slo",
                        "p95 latency<8s", "--out", folder);
    ck_assert(strstr(text, "\ndllm-serve ") != NULL && strstr(text, "\nvanilla ") != NULL);
    free(text);
    static const char *const files[] = {"capacity.svg", "capacity.pdf", "capacity.png",
                                        "capacity.csv"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        ck_assert_msg(access(path, R_OK) == 0, "%s", path);
    }
    snprintf(path, sizeof path, "%s/capacity-rates.csv", folder);
    char *rates = scratch_read(path);
    ck_assert(strncmp(rates, "system,seed,role,rate_req_s,offered_req_s,met,state,p95 latency_s,",
                      66) == 0);
    ck_assert(strstr(rates, "\ndllm-serve,1,capacity,") != NULL &&
              strstr(rates, "\ndllm-serve,1,first_missed,") != NULL);
    free(rates);
}

TEST(what_makes_no_sense_is_refused) {
    REFUSES(2, "--slo is missing", "capacity");
    REFUSES(2, "no system is called 'nope*'", "capacity", "--systems", "nope*", "--slo",
            "p99 latency<8s");
    REFUSES(2, "there is no paper 'nope'", "capacity", "--systems", "paper:nope", "--slo",
            "p99 latency<8s");
    REFUSES(2, "unknown system 'nope'", "capacity", SMALL, "--systems", "dllm-serve,nope", "--slo",
            "p99 latency<8s", "--no-curve");
    /* Before a search that would take hours. */
    REFUSES(2, "--price: the price of 'rtx4090' is missing", "capacity", "--requests", "500000000",
            "--gpu", "rtx4090", "--slo", "p99 latency<8s", "--price", "l40s=2");
    REFUSES(2, "--price takes GPU=PRICE, such as l40s=0.9, in dollars an hour, not 'l40s=free'",
            "capacity", "--requests", "500000000", "--slo", "p99 latency<8s", "--price",
            "l40s=free");
    REFUSES(2, "--over: 'gpu' is given twice: all its values are one list, gpu=A,B,...", "capacity",
            "--requests", "500000000", "--slo", "p99 latency<8s", "--over", "gpu=l40s", "--over",
            "gpu=h100");
    /* a card of one's own by its name; the file's path is its name, too */
    char own[600];
    snprintf(own, sizeof own, "gpu=%s,l40s",
             scratch_write("mine.ini", "[gpu]\nsource = me\nsms = 100\ncompute_capability = 90\n"
                                       "memory = 80GiB\npeak_bf16_flops = 1e14\n"
                                       "peak_bandwidth = 1e12\n"));
    REFUSES(2, "--price: the price of 'l40s' is missing", "capacity", "--requests", "500000000",
            "--slo", "p99 latency<8s", "--over", own, "--price", "mine=2");
    REFUSES(2, "--price: 'l40s' has two prices", "capacity", "--requests", "500000000", "--slo",
            "p99 latency<8s", "--price", "l40s=2,h100=3,l40s=2");
    REFUSES(2, "--price takes GPU=PRICE, such as l40s=0.9, in dollars an hour, not '2.5'",
            "capacity", "--requests", "500000000", "--slo", "p99 latency<8s", "--price", "2.5");
    REFUSES(2, "--over: 'replicas' is not KEY=A,B,...", "capacity", "--over", "replicas", "--slo",
            "p99 latency<8s");
}

TEST(a_configuration_that_fails_is_told_beside_those_that_do_not) {
    char over[512];
    snprintf(over, sizeof over, "cache=none,%s", suite_plugin("bad_late_cache"));
    setenv("UNMASK_CRIME", "held", 1);
    struct output output =
        CLI("capacity", "--roofline", "--system", "vanilla", "--over", over, "--requests", "3010",
            "--input-tokens", "32", "--output-tokens", "4", "--slo", "p99 latency<30s");
    ck_assert_int_eq(output.status, 1);
    ASSERT_SAYS(output.err, "vanilla has no result: cache late broke its promise");
    ASSERT_SAYS(output.out, "none");
    output_free(&output);
}

TEST(arrivals_that_follow_from_ends_have_no_rate_to_search) {
    const char *talks = scratch_write(
        "talks.ini", "[workload]\nrequests = 50\narrivals = sessions\nrate = 1\ninput = fixed\n"
                     "output = fixed\n");
    REFUSES(2, "follow from the ends of other requests", "capacity", "--workload", talks, "--slo",
            "p95 ttft<2s");
}

/* All of 3 seeds' 100 requests met it: Wilson's interval of 300 of 300 begins at 98.7 %. */
TEST(an_attainment_of_all_requests_has_an_interval_of_their_number) {
    char *text = PRINTS("capacity", "--gpu", "l40s", "--requests", "100", "--slo",
                        "p99 latency<60s", "--seeds", "3", "--no-curve");
    ck_assert_msg(strstr(text, "100.0 (98.7 to 100)") != NULL, "%s", text);
    free(text);
}

/* ---- fleets ---- */

#define FLEET                                                                                      \
    "capacity", "--rate", "3", "--slo", "p95 ttft<2s", "--requests", "400", "--output-tokens", "128"

/* The fleet is met at its size by a run of its own, and one replica fewer misses. */
TEST(the_fewest_replicas_meet_the_rate_and_one_fewer_misses) {
    json_t *json =
        json_parsed(PRINTS(FLEET, "--system", "dllm-serve", "--price", "l40s=0.5", "--json"));
    const json_t *config = config_at(json, 0), *seed = seed_at(json, 0, 0);
    const double replicas = number(config, "replicas");
    ck_assert(replicas > 1 && number(config, "gpus") == replicas);
    ck_assert_double_eq_tol(number(config, "cost"), 0.5 * replicas, 1e-9);
    ck_assert_double_eq_tol(number(config, "dollars_per_1000_requests"),
                            0.5 * replicas / 3600 / 3 * 1000, 1e-9);
    ck_assert_double_ge(number(seed, "requests"), 400);
    for (int fewer = 0; fewer < 2; fewer++) {
        char count[16], requests[16];
        snprintf(count, sizeof count, "%.0f", replicas - fewer);
        snprintf(requests, sizeof requests, "%.0f", number(seed, "requests"));
        json_t *run =
            json_parsed(PRINTS("run", "--rate", "3", "--system", "dllm-serve", "--output-tokens",
                               "128", "--replicas", count, "--requests", requests, "--json"));
        const double p95 = number(json_object_get(run, "ttft_s"), "p95");
        const json_t *trial = json_object_get(seed, fewer ? "first_missed" : "at_capacity");
        ck_assert_double_eq_tol(number(json_object_get(trial, "values"), "p95 ttft"), p95, 1e-6);
        ck_assert((p95 < 2) == !fewer);
        json_decref(run);
    }
    /* Beside the design stands what was published, which takes more. */
    const json_t *released = json_object_get(config, "released");
    ck_assert_str_eq(json_string_value(json_object_get(config, "is")), "design");
    ck_assert_str_eq(json_string_value(json_object_get(released, "nearest")),
                     "dllm-serve-published");
    ck_assert_str_eq(json_string_value(json_object_get(config_at(json, 1), "system")),
                     "dllm-serve-published");
    ck_assert_str_eq(json_string_value(json_object_get(config_at(json, 1), "is")), "published");
    ck_assert(number(config_at(json, 1), "replicas") > replicas);
    ck_assert(json_is_true(json_object_get(config, "cheapest")) && /* each of its kind */
              json_is_true(json_object_get(config_at(json, 1), "cheapest")));
    json_decref(json);
}

TEST(released_programs_are_started_with_arguments_of_their_fleet) {
#define SERVER "--system", "vllm-ar", "--gpu", "h100", "--roofline", "--set", "max_requests=64"
    char *text = PRINTS(FLEET, SERVER, "--over", "tensor_parallel=1,2", "--seeds", "2");
    ASSERT_SAYS(text, "vLLM 0.19.0, ");
    ASSERT_SAYS(text, "vllm serve meta-llama/Llama-3.1-8B --tensor");
    ASSERT_SAYS(text, "--tensor-parallel-size 2 --max-num-seqs 64 --max-num-batched-tokens 2048 "
                      "--gpu-memory-utilization 0.9 --enable-prefix-caching\n");
    ASSERT_SAYS(text, "GPUs by seed");
    free(text);
    text = PRINTS(FLEET, SERVER, "--set", "prefix_caching=off");
    ASSERT_SAYS(text, " --no-enable-prefix-caching\n");
    json_t *json = json_parsed(PRINTS(FLEET, SERVER, "--over", "tensor_parallel=1,2", "--json"));
    ck_assert(json_is_true(json_object_get(config_at(json, 0), "cheapest")) &&
              json_is_false(json_object_get(config_at(json, 1), "cheapest")));
    json_decref(json);
    ck_assert_ptr_null(strstr(text, "{"));
    free(text);
    text = PRINTS(FLEET, "--system", "sdar", "--roofline");
    ASSERT_SAYS(text, "sdar: no released program is configured so; the nearest that is published: "
                      "lmdeploy-published");
    ASSERT_SAYS(text, "--dllm-block-length 32 --dllm-unmasking-strategy low_confidence_dynamic "
                      "--dllm-confidence-threshold 0.9\n");
    free(text);
    /* The same server at another threshold; one whose arguments are not known; models that have
     * another name elsewhere, of which there is no one line. */
    text =
        PRINTS(FLEET, "--systems", "lmdeploy-published-0.8,dc-published,dllm-serve", "--roofline");
    ASSERT_SAYS(text, "1 replica by: lmdeploy serve api_server JetLM/SDAR-8B-Chat-b32 ");
    ASSERT_SAYS(text, "--dllm-confidence-threshold 0.8\n");
    ASSERT_SAYS(
        text, "dc-published: no command is known that starts FOCUS's fork of LMDeploy at 8f06592");
    ASSERT_SAYS(text, "MODEL_PATH=./GSAI-ML/LLaDA-8B-Instruct uvicorn server.app:app --workers 1; "
                      "server/app.py: EngineWorker(MODEL_PATH, tensor_parallel_size=1, ");
    ASSERT_SAYS(text, "retention_ratio=0.5, ");
    ck_assert_ptr_null(strstr(text, ": , seed"));
    free(text);
    text = PRINTS(FLEET, "--system", "focus-published", "--roofline", "--set", "cache.alpha=1.8");
    ASSERT_SAYS(text, "--dllm-enable-delayed-cache --dllm-enable-focus --dllm-focus-alpha 1.8\n");
    free(text);
}

/* A published system that serves another model is no comparison, and is told. */
TEST(the_nearest_published_system_is_told_with_its_model) {
    char *text = PRINTS(FLEET, "--system", "sglang", "--roofline");
    ASSERT_SAYS(text, "published: sglang-published, of llada2-mini, another model");
    free(text);
    text = PRINTS(FLEET, "--system", "sglang", "--roofline", "--model", "sdar-8b");
    ASSERT_SAYS(text, "published: sglang-published\n");
    free(text);
}

/* A system of one's own is as near as what it is based on, over several steps. */
TEST(a_system_of_ones_own_is_near_what_its_base_is) {
    const char *file = scratch_write("own.ini", "[mine]\nbase = dllm-serve\n[later]\nbase = mine\n"
                                                "[copy]\nbase = lmdeploy-published\n");
    struct released released;
    struct err err = {.kind = ERR_NONE};
    ck_assert_int_eq(released_based("later", file, &released, &err), 0);
    ck_assert(!released.is_published);
    ck_assert_str_eq(released.near, "dllm-serve-published");
    ck_assert_int_eq(released_based("copy", file, &released, &err), 0);
    ck_assert_str_eq(released.near, "lmdeploy-published");
    ck_assert_int_eq(released_based("none", file, &released, &err), 0);
    ck_assert_str_eq(released.near, "");
    char *text = PRINTS(FLEET, "--systems", "later", "--systems-file", file, "--roofline");
    ASSERT_SAYS(text, "later: no released program is configured so; the nearest that is published: "
                      "dllm-serve-published");
    ASSERT_SAYS(text, "\ndllm-serve-published  published");
    free(text);
}

static int check_near(void *state, const char *name, const char *doc) {
    struct released released, near;
    struct err err = {.kind = ERR_NONE};
    (void)doc;
    ck_assert_int_eq(released_named(name, &released, &err), 0);
    *(size_t *)state += 1;
    ck_assert_msg((released.near[0] == '\0') == released.is_published, "%s has no nearest", name);
    if (!released.is_published) {
        ck_assert_int_eq(released_named(released.near, &near, &err), 0);
        ck_assert_msg(near.is_published, "%s is near %s", name, released.near);
    }
    return 0;
}

TEST(every_design_has_a_published_system_that_is_nearest) {
    size_t n = 0;
    struct err err = {.kind = ERR_NONE};
    ck_assert_int_ge(system_list(check_near, &n, &err), 0);
    ck_assert_uint_gt(n, 70);
}

/* Bars as tall as the table's numbers, a group for each configuration and a bar for each system. */
/* What cannot be is of its system's kind all the same, and a model is named once. */
TEST(a_fleet_that_cannot_be_is_a_row_of_its_kind) {
    struct output output =
        CLI("capacity", "--rate", "1", "--slo", "p95 ttft<8s", "--requests", "100", "--systems",
            "dllm-serve,lmdeploy-published", "--over", "model=llada-8b,sdar-8b", "--gpu", "h100");
    ck_assert_int_eq(output.status, 0);
    char *row = strstr(output.out, "\nlmdeploy-published");
    ck_assert_ptr_nonnull(row);
    row[1 + strcspn(row + 1, "\n")] = '\0';
    ck_assert_msg(strstr(row, "  published  ") != NULL, "%s", row);
    const char *model = strstr(output.out, "  model ");
    ck_assert_ptr_nonnull(model);
    ck_assert_ptr_null(strstr(model + 1, "  model "));
    output_free(&output);
    /* The first of its configurations cannot be, the second is a design with a neighbour. */
    char *text =
        PRINTS("capacity", "--rate", "1", "--slo", "p95 ttft<8s", "--requests", "100", "--systems",
               "dllm-serve", "--over", "model=sdar-8b,llada-8b", "--gpu", "h100");
    ck_assert_ptr_nonnull(strstr(text, "\ndesign       dllm-serve: no released program"));
    free(text);
}

TEST(fleets_are_drawn_with_their_cost_and_size) {
    const char *folder = scratch_path("fleets");
    char line[256], path[1024];
    json_t *json = json_parsed(PRINTS(FLEET, "--over", "gpu=l40s,h100", "--price",
                                      "l40s=0.5,h100=2", "--json", "--out", folder));
    snprintf(path, sizeof path, "%s/fleets.csv", folder);
    char *csv = scratch_read(path);
    for (size_t i = 0; i < 4; i++) {
        const json_t *config = config_at(json, i);
        const char *system = json_string_value(json_object_get(config, "system"));
        const char *gpu = json_string_value(json_object_get(config, "gpu"));
        snprintf(line, sizeof line, "cost,%s,%s,%.9g,,,\n", system, gpu, number(config, "cost"));
        ASSERT_SAYS(csv, line);
        snprintf(line, sizeof line, "size,%s,%s,%.9g,,,\n", system, gpu,
                 number(config, "replicas"));
        ASSERT_SAYS(csv, line);
    }
    json_decref(json);
    free(csv);
    free(PRINTS(FLEET, "--system", "dllm-serve", "--seeds", "2", "--out", folder));
    csv = scratch_read(path);
    ck_assert_ptr_null(strstr(csv, ",-")); /* no bar reaches below none */
    ck_assert_ptr_null(strstr(csv, "cost,dllm-serve,,0"));
    free(csv);
}

TEST(a_fleet_that_cannot_be_is_refused) {
    REFUSES(1, "no number of replicas meets p95 ttft<1ms", "capacity", "--rate", "1", "--slo",
            "p95 ttft<1ms", "--system", "sdar", "--requests", "100", "--roofline");
    REFUSES(1, "and 1024 are the most", "capacity", "--rate", "90000", "--slo", "p95 ttft<1s",
            "--system", "sdar", "--requests", "100", "--roofline");
    REFUSES(2, "the price of 'h100' is missing", FLEET, "--over", "gpu=l40s,h100", "--price",
            "l40s=1");
    REFUSES(2, "replicas are what capacity --rate finds", FLEET, "--over", "replicas=1,2");
    REFUSES(2, "replicas are what capacity --rate finds", FLEET, "--replicas", "2");
    REFUSES(2, "'0' is not a number above 0", "capacity", "--rate", "0", "--slo", "p95 ttft<1s");
}

SUITE("capacity")
