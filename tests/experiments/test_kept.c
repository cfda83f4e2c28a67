/* What exists does not change unseen: the numbers of every shipped system, policy, GPU, model and
 * workload, as tests/golden/runs has them. Who means to change them renews the files (make golden),
 * whose difference says what that reaches. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "experiments/run/limit.h"
#include "sim/base/mem.h"
#include "sim/model/gpu.h"
#include "sim/policy/plugin/registry.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_reads.h"
#include "tests/support/cases.h"
#include "tests/support/cli.h"
#include "tests/support/kept.h"

/* ---- a line of the file ---- */

struct kept_run {
    const char *system, *workload, *gpu, *model;
    struct setting set[MOST_SET + 3];
    uint32_t n_set;
    uint64_t requests; /* 0: the workload's own */
    bool is_bounded;   /* beside what no scheduler could beat */
};

static void put_set(struct kept_run *run, const char *key, const char *value) {
    struct setting *set = &run->set[run->n_set++];
    ck_assert_uint_le(run->n_set, sizeof run->set / sizeof run->set[0]);
    *set = (struct setting){.place = "--set"};
    snprintf(set->key, sizeof set->key, "%s", key);
    snprintf(set->value, sizeof set->value, "%s", value);
}

static struct kept_run run_of(const char *system, const char *name) {
    size_t i = 0;
    while (i < n_cases && strcmp(cases[i].name, name) != 0) {
        i++;
    }
    ck_assert_uint_lt(i, n_cases);
    struct kept_run run = {.system = system, .workload = cases[i].workload, .gpu = cases[i].gpu};
    memcpy(run.set, cases[i].set, sizeof cases[i].set);
    run.n_set = cases[i].n_set;
    return run;
}

/* What was run, how long it took, and the digest of all that came of it. What is refused has no
 * line. */
static void keep(FILE *out, const struct kept_run *run, const char *on) {
    const struct run_request request = {.system = run->system,
                                        .gpu = run->gpu,
                                        .model = run->model,
                                        .workload = run->workload,
                                        .settings = run->set,
                                        .n_settings = run->n_set,
                                        .options = {.seed = 1, .requests = run->requests}};
    static const volatile sig_atomic_t never = 0;
    struct err err = {0};
    struct composition *c = NULL;
    json_t *summary = NULL;
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    const struct sink sink = {.state = &digest, .request = mix_request};
    const struct run_watch watch = {.sinks = &sink, .n_sinks = 1};
    int status = compose_open(&request, &c, &err);
    const bool has_bound =
        status == 0 && run->is_bounded && limit_take(&request, &never, c, &err) == 0;
    err = status == 0 ? (struct err){0} : err;
    status = status == 0 ? compose_run(c, &watch, &err) : status;
    status = status == 0 ? summary_json(&c->summary, &c->facts, &summary, &err) : status;
    if (status == 0) {
        mix_numbers(&digest, summary);
        fprintf(out, "%s on %s%s", run->system, on, has_bound ? ", bound" : "");
        for (uint32_t i = 0; i < run->n_set; i++) {
            if (strcmp(run->set[i].place, "--set") == 0) {
                fprintf(out, ", %s = %s", run->set[i].key, run->set[i].value);
            }
        }
        fprintf(out, ": %.9g s, %016" PRIx64 "\n",
                json_number_value(json_object_get(summary, "makespan_s")), digest);
    }
    json_decref(summary);
    compose_close(c);
}

/* ---- what is run ---- */

struct keeper {
    FILE *out;
    size_t n_systems;
};

/* Each system under two of the cases; neighbours, which are often alike, under others. */
static int keep_system(void *state, const char *name, const char *doc) {
    struct keeper *keeper = state;
    (void)doc;
    if (strcmp(name, "mosaic-bf") != 0) { /* it tries all chunks: half a second */
        const size_t i = keeper->n_systems++;
        const size_t at[] = {i % n_cases, (i + 1 + i / n_cases % (n_cases - 1)) % n_cases};
        for (int k = 0; k < 2; k++) {
            const struct kept_run run = run_of(name, cases[at[k]].name);
            keep(keeper->out, &run, cases[at[k]].name);
        }
    }
    return 0;
}

/* Calls with each word of a list, which is separated by blanks. */
static const char *next_word(const char **rest, char word[64]) {
    const char *at;
    size_t n;
    if (!name_next(rest, " ", &at, &n)) {
        return NULL;
    }
    snprintf(word, 64, "%.*s", (int)n, at);
    return word;
}

/* Every policy of a kind in each of the systems under each of the cases. */
static void keep_policies(FILE *out, enum policy_kind kind, const char *systems, const char *names,
                          const char *key, const char *value) {
    char system[64], of[64];
    while (next_word(&systems, system) != NULL) {
        for (const char *rest = names; next_word(&rest, of) != NULL;) {
            for (size_t i = 0; i < policy_count(kind); i++) {
                struct kept_run run = run_of(system, of);
                put_set(&run, policy_kind_names[kind], policy_at(kind, i)->name);
                if (key != NULL) {
                    put_set(&run, key, value);
                }
                keep(out, &run, of);
            }
        }
    }
}

/* A key at some of its values, in each of the systems under each of the cases. */
static void keep_values(FILE *out, const char *systems, const char *names, const char *key,
                        const char *values) {
    char system[64], of[64], value[64];
    while (next_word(&systems, system) != NULL) {
        for (const char *rest = names; next_word(&rest, of) != NULL;) {
            for (const char *more = values; next_word(&more, value) != NULL;) {
                struct kept_run run = run_of(system, of);
                put_set(&run, key, value);
                keep(out, &run, of);
            }
        }
    }
}

/* A few systems of which no two find their limits alike: to find them takes longest. */
static void keep_bounds(FILE *out, const char *systems) {
    char system[64];
    while (next_word(&systems, system) != NULL) {
        struct kept_run run = run_of(system, "burst");
        run.is_bounded = true;
        keep(out, &run, "burst");
    }
}

static void keep_gpus(FILE *out, const char *systems) {
    struct err err = {0};
    char system[64];
    while (next_word(&systems, system) != NULL) {
        for (const struct gpu *const *all = gpu_all(&err); *all != NULL; all++) {
            if (strcmp((*all)->name, "cpu") == 0) {
                continue; /* it has the memory of the machine */
            }
            struct kept_run run = run_of(system, "burst");
            run.gpu = (*all)->name;
            keep(out, &run, run.gpu);
            put_set(&run, "tensor_parallel", "4");
            keep(out, &run, run.gpu);
        }
    }
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_ini(const struct dirent *entry) {
    return strstr(entry->d_name, ".ini") != NULL;
}

/* Each file of a folder as a workload, or as the model of a system. */
static void keep_files(FILE *out, const char *folder, const char *system, bool is_model) {
    struct dirent **found;
    int n = scandir(folder, &found, is_ini, by_name);
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        char name[300];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(found[i]->d_name, "."), found[i]->d_name);
        struct kept_run run = run_of(system, "burst");
        run.model = is_model ? name : NULL;
        run.workload = is_model ? run.workload : name;
        run.requests = is_model ? 0 : 40;
        run.gpu = "h100";
        keep(out, &run, found[i]->d_name);
        free(found[i]);
    }
    free(found);
}

static const char exact[] = "sdar sglang lmdeploy focus vllm-ar";

static void keep_systems(FILE *out) {
    struct err err = {0};
    struct keeper keeper = {.out = out};
    ck_assert_msg(system_list(keep_system, &keeper, &err) == 0, "%s", err.text);
}

static void keep_schedulers(FILE *out) {
    keep_policies(out, POLICY_SCHEDULER, "dllm-serve focus sglang", "burst growing queue", NULL,
                  NULL);
    keep_policies(out, POLICY_SCHEDULER, "sdar", "sessions growing", "prefix_caching", "on");
}

static void keep_other_policies(FILE *out) {
    keep_policies(out, POLICY_CACHE, "fast-dllm dc+", "growing mixed", NULL, NULL);
    keep_policies(out, POLICY_DECODER, "native dllm-serve sdar", "burst", NULL, NULL);
    keep_policies(out, POLICY_ROUTER, exact, "sessions", "replicas", "3");
    keep_policies(out, POLICY_ROUTER, "sdar dllm-serve", "sessions", "prefix_caching", "on");
    keep_values(out, exact, "sessions growing queue", "prefix_caching", "on");
}

static void keep_limits(FILE *out) {
    keep_bounds(out, "sdar focus dinfer vllm-ar dllm-serve fast-dllm fast-dllm-published vanilla "
                     "dllm-cache lmdeploy sglang fast-dllm-moe dllm-serve-published");
}

static void keep_all_gpus(FILE *out) {
    keep_gpus(out, "dllm-serve sdar dinfer");
}

static void keep_all_files(FILE *out) {
    keep_files(out, "traces/workloads", "dllm-serve", false);
    keep_files(out, "traces/workloads", "sdar", false);
    keep_files(out, "sim/model/models", "dllm-serve", true);
    keep_files(out, "sim/model/models", "sdar", true);
}

/* Turns that wait for others, prompts that share blocks, and arrivals at one time. */
static void write_mixtures(void) {
    scratch_write("turns.csv",
                  "arrival_us,input_tokens,output_tokens,session,think_us,tenant\n"
                  "0,120,48,a,,1\n0,64,32,b,,2\n0,64,32,,,3\n"
                  "400000,260,64,a,300000,1\n400000,33,16,c,,2\n"
                  "900000,150,40,b,,2\n900000,420,64,a,0,1\n900000,90,40,c,100000,2\n");
    scratch_write(
        "blocks.jsonl",
        "{\"timestamp\":0,\"input_length\":1100,\"output_length\":40,\"hash_ids\":[1,2,3]}\n"
        "{\"timestamp\":200,\"input_length\":1500,\"output_length\":24,\"hash_ids\":[1,2,4]}\n"
        "{\"timestamp\":200,\"input_length\":700,\"output_length\":64,\"hash_ids\":[5,6]}\n"
        "{\"timestamp\":900,\"input_length\":1536,\"output_length\":32,\"hash_ids\":[1,2,4]}\n"
        "{\"timestamp\":1400,\"input_length\":1030,\"output_length\":8,\"hash_ids\":[5,6,7]}\n");
    scratch_write("rounds.ini", "[workload]\nrequests = 13\narrivals = trace\nrate = 3\ntrace = "
                                "blocks.jsonl\nlengths = trace\nprovenance.arrivals = real\n"
                                "provenance.lengths = real\n");
    scratch_write("talks.ini",
                  "[workload]\nrequests = 8\narrivals = sessions\narrivals.turns = 3\n"
                  "arrivals.think_ns = 200ms\nrate = 2\ninput = fixed\ninput.tokens = "
                  "90\noutput = fixed\noutput.tokens = 48\nprovenance.lengths = assumed\n");
    scratch_write("clients.ini",
                  "[workload]\nrequests = 12\narrivals = closed-loop\n"
                  "arrivals.clients = 4\ninput = fixed\ninput.tokens = 200\noutput = "
                  "fixed\noutput.tokens = 32\nprovenance.lengths = assumed\n");
    scratch_write("classes.ini", "[workload]\nclasses = talks.ini, clients.ini, rounds.ini\n");
    scratch_write("ties.ini", "[workload]\nrequests = 16\narrivals = all-at-once\ninput = fixed\n"
                              "input.tokens = 64\noutput = fixed\noutput.tokens = 32\n"
                              "provenance.lengths = assumed\n");
}

static void keep_mixtures(FILE *out) {
    static const char *const workloads[] = {"turns.csv",   "rounds.ini",  "talks.ini",
                                            "clients.ini", "classes.ini", "ties.ini"};
    static const char *const routers[][2] = {
        {"1", "round-robin"}, {"3", "round-robin"}, {"3", "least-loaded"}, {"2", "prefix-aware"}};
    write_mixtures();
    for (size_t w = 0; w < sizeof workloads / sizeof workloads[0]; w++) {
        for (size_t r = 0; r < sizeof routers / sizeof routers[0]; r++) {
            char system[64];
            for (const char *rest = "sdar dllm-serve sglang vllm-ar";
                 next_word(&rest, system) != NULL;) {
                struct kept_run run = {
                    .system = system, .workload = scratch_path(workloads[w]), .gpu = "h100"};
                put_set(&run, "replicas", routers[r][0]);
                put_set(&run, "router", routers[r][1]);
                put_set(&run, "prefix_caching", w % 2 == 0 || r == 3 ? "on" : "off");
                put_set(&run, "max_requests", r == 1 ? "2" : "16");
                keep(out, &run, workloads[w]);
            }
        }
    }
}

/* Shared prompts where memory is scarce: what is found, lent, given back and found again. */
static void keep_scarce(FILE *out) {
    static const char *const workloads[] = {"turns.csv", "rounds.ini", "classes.ini"};
    static const char *const sizes[][2] = {{"16", "99"}, {"32", "50"}, {"64", "25"}};
    write_mixtures();
    for (size_t w = 0; w < sizeof workloads / sizeof workloads[0]; w++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char system[64];
            for (const char *rest = "sdar sglang vllm-ar focus";
                 next_word(&rest, system) != NULL;) {
                struct kept_run run = {
                    .system = system, .workload = scratch_path(workloads[w]), .gpu = "h100"};
                put_set(&run, "prefix_caching", "on");
                put_set(&run, "page_tokens", sizes[i][0]);
                put_set(&run, "pool_pages", sizes[i][1]);
                keep(out, &run, workloads[w]);
            }
        }
    }
}

/* What conditions beside keys speak of, of each system. */
static int keep_facts_of(void *state, const char *name, const char *doc) {
    const struct kept_run run = run_of(name, "burst");
    const struct run_request request = {
        .system = name, .gpu = run.gpu, .workload = run.workload, .options = {.seed = 1}};
    struct keeper *keeper = state;
    struct err err = {0};
    struct composition *c = NULL;
    (void)doc;
    if (compose_open(&request, &c, &err) == 0) {
        fprintf(keeper->out, "%s:", name);
        for (size_t i = 0; system_fact_doc(i) != NULL; i++) {
            char text[FACT_CHARS];
            fprintf(keeper->out, " %s", system_fact(c->system, system_fact_doc(i)->name, text));
        }
        fputs("\n", keeper->out);
        compose_close(c);
    }
    return 0;
}

static void keep_facts(FILE *out) {
    struct err err = {0};
    struct keeper keeper = {.out = out};
    ck_assert_msg(system_list(keep_facts_of, &keeper, &err) == 0, "%s", err.text);
}

/* Whose prices a system has on each card where these or those are asked for, and what a block costs
 * by them against others'. */
static void keep_prices(FILE *out) {
    struct err err = {0};
    char system[64];
    for (const char *rest = "sdar dllm-serve dinfer"; next_word(&rest, system) != NULL;) {
        for (const struct gpu *const *all = gpu_all(&err); *all != NULL; all++) {
            for (int of = PRICES_BEST; of < PRICE_SOURCES; of++) {
                const struct kept_run run = run_of(system, "burst");
                const struct run_request request = {.system = system,
                                                    .gpu = (*all)->name,
                                                    .price_source = (enum price_source)of,
                                                    .workload = run.workload,
                                                    .options = {.seed = 1}};
                struct composition *c = NULL;
                struct err refused = {0};
                if (strcmp((*all)->name, "cpu") != 0 && compose_open(&request, &c, &refused) == 0) {
                    const struct run_prices *prices = &c->facts.prices;
                    const double over[] = {prices->over_imported, prices->over_roofline};
                    fprintf(out, "%s on %s, %s: %s, %s, %s", system, (*all)->name,
                            price_source_words[of], prices->of,
                            prices->kernels != NULL ? prices->kernels : "-",
                            prices->behind != NULL ? prices->behind : "-");
                    for (int i = 0; i < 2; i++) {
                        fprintf(out, isnan(over[i]) ? ", -" : ", %.6g", over[i]);
                    }
                    fputs("\n", out);
                    compose_close(c);
                }
            }
        }
    }
}

static void check_runs(const char *path, void (*keep_some)(FILE *out)) {
    char *now;
    size_t size;
    FILE *out = mem_stream(&now, &size);
    read_cases();
    keep_some(out);
    mem_stream_close(out);
    config_fini(&data);
    kept_same(path, now);
    free(now);
}

TEST(the_numbers_of_systems_are_those_that_were_kept) {
    check_runs("tests/golden/runs/systems.txt", keep_systems);
}

TEST(the_numbers_of_schedulers_are_those_that_were_kept) {
    check_runs("tests/golden/runs/schedulers.txt", keep_schedulers);
}

TEST(the_numbers_of_other_policies_are_those_that_were_kept) {
    check_runs("tests/golden/runs/policies.txt", keep_other_policies);
}

TEST(the_limits_of_systems_are_those_that_were_kept) {
    check_runs("tests/golden/runs/limits.txt", keep_limits);
}

TEST(the_numbers_of_gpus_are_those_that_were_kept) {
    check_runs("tests/golden/runs/gpus.txt", keep_all_gpus);
}

TEST(the_numbers_of_models_and_workloads_are_those_that_were_kept) {
    check_runs("tests/golden/runs/files.txt", keep_all_files);
}

TEST(the_numbers_of_rounds_classes_sessions_and_ties_are_those_that_were_kept) {
    check_runs("tests/golden/runs/mixtures.txt", keep_mixtures);
}

TEST(the_numbers_of_prompts_shared_where_memory_is_scarce_are_those_that_were_kept) {
    check_runs("tests/golden/runs/scarce.txt", keep_scarce);
}

TEST(the_sources_of_prices_are_those_that_were_kept) {
    check_runs("tests/golden/runs/prices.txt", keep_prices);
}

TEST(the_facts_of_systems_are_those_that_were_kept) {
    check_runs("tests/golden/runs/facts.txt", keep_facts);
}

SUITE("kept")
