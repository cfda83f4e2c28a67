/* The matrix of replays: every shipped system recorded, played again and reported, simulated and
 * live, its schedule and its own carried out on the CPU, its decode trace served. A replay compares
 * its summary with the recorded one byte for byte, so that its status says whether it is the same.
 */
#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>

#include "experiments/run/same_batches.h"
#include "sim/base/mem.h"
#include "tests/support/cli.h"
#include "tests/support/database.h"
#include "tests/support/old_schema.h"
#include "tests/support/outputs.h"

enum cell {
    RECORDED,
    PLAYED,
    SMALL,           /* on a model in small */
    CARRIED_OUT,     /* its schedule, by the engine */
    LIVE,            /* executed by the engine */
    LIVE_PLAYED,     /* by its record alone */
    LIVE_AGAIN,      /* and once more by the engine */
    DECODED,         /* its decode trace, simulated */
    DECODED_PLAYED,  /* the record of that */
    DECODED_CARRIED, /* by the engine */
    N_CELLS
};

/* Of 79 systems, at least this number. */
static const struct {
    const char *name;
    int least;
} cells[N_CELLS] = {
    [RECORDED] = {"recorded", 66},
    [PLAYED] = {"played", 66},
    [SMALL] = {"small", 66},
    [CARRIED_OUT] = {"carried out", 40},
    [LIVE] = {"live", 43},
    [LIVE_PLAYED] = {"live, played", 43},
    [LIVE_AGAIN] = {"live, again", 43},
    [DECODED] = {"decoded", 42},
    [DECODED_PLAYED] = {"decoded, played", 42},
    [DECODED_CARRIED] = {"decoded, carried out", 30},
};

/* What is refused is refused for one of these reasons: it is no server, the engine computes
 * something else, or there is nothing of the kind in the record. */
static const char *const reasons[] = {
    "which `unmask plan lmax` models and serving does not",
    "the engine runs packed batches",
    "the engine's attention reads them where they lie",
    "says how many positions a step commits, not of which block",
    "says how many positions a step commits, not which",
    "by how sure the model was of each, which a trace of decisions does not tell",
    "plans by what it learns of each request, which a trace of decisions does not tell",
    "the engine takes the softmax of logits as they are",
    "requests share whole blocks, and the engine whole pages",
    "a kernel draws tokens from them",
    "says how many positions are masked again, and not which, as an engine has to know",
    "the record has counts alone, where a step of request 0 runs some positions",
};

static const struct {
    const char *model, *small, *narrow;
} models[] = {
    {"llada-8b", "llada-tiny", "model.ffn=32"},
    {"sdar-8b", "sdar-tiny", "model.ffn=32"},
    {"llama-3.1-8b", "qwen2.5-tiny", "model.ffn=32"},
    {"qwen2.5-3b", "qwen2.5-tiny", "model.ffn=32"},
    {"qwen3-8b", "qwen2.5-tiny", "model.ffn=32"},
    {"fast-dllm-v2-7b", "fast-dllm-v2-tiny", "model.ffn=32"},
    {"llada-moe", "llada-moe-tiny", "model.expert_ffn=32"},
    {"llada2-mini", "llada2-tiny", "model.ffn=32"},
    {"diffusiongemma", "sdar-tiny", "model.ffn=32"},
};

struct words {
    const char *at[CLI_MOST_ARGS];
    size_t n;
};

static void add(struct words *words, const char *const *more) {
    for (size_t i = 0; more[i] != NULL; i++) {
        words->at[words->n++] = more[i];
    }
    words->at[words->n] = NULL;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Made narrower, so that a step of the engine takes no time. */
static void add_small_model(struct words *words, const char *model) {
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i].model, model) == 0) {
            add(words, WORDS("--model", models[i].small, "--set", models[i].narrow, "--set",
                             "model.hidden=48", "--set", "model.layers=3"));
            return;
        }
    }
    ck_abort_msg("%s has no model in small", model);
}

/* Runs the words; what fails is refused for a reason that is one. */
static bool does(const char *system, enum cell cell, const struct words *words, char **out) {
    struct output output = cli_run(&(const struct child){0}, words->at);
    bool has_reason = false;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        has_reason = has_reason || strstr(output.err, reasons[i]) != NULL;
    }
    ck_assert_msg(output.status == 0 || (output.status == 2 && has_reason), "%s, %s: status %d, %s",
                  system, cells[cell].name, output.status, output.err);
    if (out != NULL && output.status == 0) {
        *out = strdup(output.out);
    }
    output_free(&output);
    return output.status == 0;
}

/* Runs of a system recorded one after the other. */
struct row {
    const char *system, *db;
    bool yes[N_CELLS];
};

static bool record(struct row *row, enum cell cell, const struct words *base,
                   const char *const *more) {
    struct words words = *base;
    (void)remove(row->db);
    add(&words, more);
    add(&words, WORDS("--db", row->db, "--levels", "steps"));
    row->yes[cell] = does(row->system, cell, &words, NULL);
    return row->yes[cell];
}

static void replay(struct row *row, enum cell cell, const char *const *more) {
    struct words words = {0};
    add(&words, WORDS("replay", "--db", row->db, "--run", "1"));
    add(&words, more);
    row->yes[cell] = does(row->system, cell, &words, NULL);
}

static bool renoises(const char *system) {
    return strncmp(system, "diffusiongemma", strlen("diffusiongemma")) == 0;
}

/* What a system cannot do without. */
static void add_needs(struct words *words, const char *system) {
    if (strcmp(system, "load-valve") == 0) {
        add(words, WORDS("--set", "workload.deadline=fixed", "--set", "workload.deadline.time=2s"));
    }
}

/* Of all systems, in one database for the report; `model` is the system's own. */
static bool check_served(struct row *row, const char *all, const char *number, char model[64]) {
    struct words words = {0};
    char *text = NULL;
    add(&words, WORDS("run", "--system", row->system, "--roofline", "--requests", "8", "--rate",
                      "4", "--input-tokens", "48", "--output-tokens", "64", "--db", all, "--levels",
                      "events", "--json"));
    add_needs(&words, row->system);
    if (renoises(row->system)) {
        add(&words, WORDS("--gpu", "h200"));
    }
    row->yes[RECORDED] = does(row->system, RECORDED, &words, &text);
    if (!row->yes[RECORDED]) {
        return false;
    }
    json_t *summary = json_loads(text, 0, NULL);
    snprintf(model, 64, "%s", json_string_value(json_object_get(summary, "model")));
    json_decref(summary);
    free(text);
    struct words again = {0};
    add(&again, WORDS("replay", "--db", all, "--run", number));
    row->yes[PLAYED] = does(row->system, PLAYED, &again, NULL);
    return true;
}

static void check_small(struct row *row, const char *model) {
    const char *trace = scratch_path("matrix.decode");
    const char *const engine[] = {"--backend", "cpu",          "--clock", "virtual", "--weights",
                                  "random:7",  "--decode-out", trace,     NULL};
    const char *const cpu[] = {"--backend", "cpu", "--weights", "random:7", NULL};
    struct words words = {0};
    (void)remove(trace);
    add(&words,
        WORDS("run", "--system", row->system, "--gpu", "cpu", "--set", "tensor_parallel=1", "--set",
              "expert_parallel=off", "--set", "storage.weights=f32", "--set", "runtime.engine=on",
              "--requests", "2", "--rate", "50", "--input-tokens", "6", "--output-tokens", "12"));
    add_small_model(&words, model);
    add_needs(&words, row->system);
    if (renoises(row->system)) {
        add(&words, WORDS("--set", "model.uniform_noise=on", "--set", "model.mask_token=4294967295",
                          "--set", "model.causal_prompt=on"));
    }
    if (record(row, SMALL, &words, WORDS(NULL))) {
        replay(row, CARRIED_OUT, cpu);
    }
    if (record(row, LIVE, &words, engine)) {
        replay(row, LIVE_PLAYED, WORDS(NULL));
        replay(row, LIVE_AGAIN, cpu);
        if (record(row, DECODED, &words, WORDS("--decode", trace))) {
            replay(row, DECODED_PLAYED, WORDS(NULL));
            replay(row, DECODED_CARRIED, cpu);
        }
    }
}

TEST(every_system_is_recorded_played_and_carried_out) {
    char all[512];
    char *text = PRINTS("list", "systems", "--json"), model[64], number[16];
    json_t *list = json_loads(text, 0, NULL), *system;
    int n[N_CELLS] = {0};
    size_t i;
    snprintf(all, sizeof all, "%s", scratch_path("all.db"));
    free(text);
    json_array_foreach(json_object_get(json_object_get(list, "systems"), "rows"), i, system) {
        struct row row = {.system = json_string_value(json_object_get(system, "name")),
                          .db = scratch_path("matrix.db")};
        snprintf(number, sizeof number, "%d", n[RECORDED] + 1);
        if (check_served(&row, all, number, model)) {
            check_small(&row, model);
        }
        for (int cell = 0; cell < N_CELLS; cell++) {
            n[cell] += row.yes[cell];
        }
    }
    for (int cell = 0; cell < N_CELLS; cell++) {
        ck_assert_msg(n[cell] >= cells[cell].least, "%s: %d of %zu systems", cells[cell].name,
                      n[cell],
                      json_array_size(json_object_get(json_object_get(list, "systems"), "rows")));
    }
    free(PRINTS("report", all, "--out", scratch_path("all.html")));
    json_decref(list);
}

static void record_and_play(const char *const *words) {
    struct row row = {.system = words[2], .db = scratch_path("one.db")};
    struct words run = {0};
    add(&run, words);
    ck_assert(record(&row, RECORDED, &run, WORDS(NULL)));
    replay(&row, PLAYED, WORDS(NULL));
    ck_assert(row.yes[PLAYED]);
}

static const char *const swapping_runs[][12] = {
    {"--system", "ar", "--set", "scheduler.preempts=swap", "--set", "pool_pages=30", NULL},
    {"--system", "ar", "--set", "scheduler.preempts=swap", "--set", "swap.overlaps=on", "--set",
     "pool_pages=30", "--set", "decides_ahead=on", NULL},
    {"--system", "sdar", "--set", "scheduler.preempts=swap", "--set", "pool_pages=30", NULL},
    {"--system", "dllm-serve", "--set", "max_requests=4", "--scheduler", "swapping", NULL},
    {"--system", "fast-dllm", "--set", "max_requests=2", "--scheduler", "swapping", NULL},
    {"--system", "entropy-cache", "--set", "max_requests=2", "--set", "replicas=2", "--scheduler",
     "swapping", NULL},
};
enum { N_SWAPPING = sizeof swapping_runs / sizeof swapping_runs[0] };

/* What was swapped out and brought back is so again, with the stalls that were recorded; no run of
 * them is better than the bound. */
TEST_EACH(what_was_swapped_out_is_played, N_SWAPPING) {
    char name[32];
    snprintf(name, sizeof name, "swaps-%d.db", _i);
    const char *db = scratch_path(name);
    const char *timeline = scratch_path("swaps.json");
    struct words run = {0};
    add(&run,
        WORDS("run", "--gpu", "l40s", "--requests", "16", "--rate", "20", "--input-tokens", "100",
              "--output-tokens", "64", "--set", "page_tokens=16", "--set", "swap.host_bytes=8GiB",
              "--json", "--db", db, "--levels", "events", "--timeline", timeline, "--bound"));
    for (const char *const *word = swapping_runs[_i]; *word != NULL; word++) {
        const bool is_own = strcmp(*word, "swapping") == 0;
        add(&run, WORDS(is_own ? suite_plugin("swapping_scheduler") : *word));
    }
    char *ran = cli_text(cli_run(&(const struct child){0}, run.at));
    char *played = PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin", "--json");
    char *lines = scratch_read(timeline);
    json_t *a = json_loads(ran, 0, NULL), *b = json_loads(played, 0, NULL);
    json_t *swap = json_object_get(a, "swap");
    ck_assert_int_gt(json_integer_value(json_object_get(swap, "out")), 3);
    ck_assert(json_equal(json_object_get(swap, "out"), json_object_get(swap, "in")));
    ck_assert(json_equal(swap, json_object_get(b, "swap")));
    ck_assert(json_equal(json_object_get(a, "latency_s"), json_object_get(b, "latency_s")));
    json_t *bound = json_object_get(a, "bound");
    ck_assert(json_real_value(json_object_get(bound, "throughput_share")) < 1);
    ck_assert(json_real_value(json_object_get(bound, "latency_mean_ratio")) > 1);
    ck_assert_ptr_nonnull(strstr(lines, "\"swapped\""));
    json_decref(a);
    json_decref(b);
    free(lines);
    /* A copy has it all, and what was changed since is told. */
    char copy[64];
    snprintf(copy, sizeof copy, "swaps-%d-merged.db", _i);
    const char *merged = scratch_path(copy);
    free(PRINTS("merge", merged, db));
    char *again = PRINTS("replay", "--db", merged, "--run", "1", "--allow-plugin", "--json");
    ck_assert_ptr_nonnull(strstr(again, "\"stall_s\""));
    free(again);
    database_change(merged,
                    "UPDATE swaps SET stall_ns = stall_ns + 1 WHERE idx = (SELECT max(idx) FROM "
                    "swaps)");
    REFUSES(1, "run 1 of 'merged.db' is damaged: its rows are not those that were recorded",
            "replay", "--db", merged, "--run", "1", "--allow-plugin");
    free(ran);
    free(played);
}

/* What a scheduler rejected, put off and waited for, what a router held back and moved, and what a
 * decoder and a cache did by load, is so again. */
TEST(policies_that_see_more_are_played) {
    static const struct {
        const char *kind, *plugin, *more;
    } tried[] = {{"scheduler", "seeing_scheduler", "scheduler.wakes=1"},
                 {"scheduler", "seeing_scheduler", "scheduler.rejects=1"},
                 {"router", "seeing_router", "router.hold=50ms"},
                 {"decoder", "loaded_decoder", "replicas=1"},
                 {"cache", "loaded_cache", "replicas=1"}};
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        char setting[600];
        snprintf(setting, sizeof setting, "%s=%s", tried[i].kind, suite_plugin(tried[i].plugin));
        const char *db = scratch_path("seeing.db");
        const char *const interval =
            strcmp(tried[i].kind, "cache") == 0 ? "replicas=1" : "cache.interval_steps=4";
        char *run =
            PRINTS("run", "--gpu", "l40s", "--workload", "burst", "--requests", "60", "--rate",
                   "1.5", "--set", "max_requests=8", "--set", "replicas=2", "--set", interval,
                   "--set", tried[i].more, "--set", setting, "--set", "workload.deadline=uniform",
                   "--set", "workload.deadline.max=20s", "--set", "workload.priority=uniform",
                   "--db", db, "--levels", "events", "--json");
        char number[16];
        snprintf(number, sizeof number, "%zu", i + 1);
        char *played = PRINTS("replay", "--db", db, "--run", number, "--allow-plugin", "--json");
        json_t *a = json_loads(run, 0, NULL), *b = json_loads(played, 0, NULL);
        static const char *const same[] = {
            "requests",   "completed", "rejected", "rejected_by_reason",
            "makespan_s", "latency_s", "steps"};
        for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
            ck_assert_msg(json_equal(json_object_get(a, same[k]), json_object_get(b, same[k])),
                          "%s: %s", setting, same[k]);
        }
        const bool rejects = strcmp(tried[i].kind, "scheduler") == 0;
        ck_assert_int_eq(json_integer_value(json_object_get(a, "rejected")) > 0, rejects);
        json_decref(a);
        json_decref(b);
        free(run);
        free(played);
    }
}

TEST(small_blocks_are_played_under_every_scheduler) {
    static const char *const schedulers[] = {"static", "continuous", "chunked"};
    for (size_t i = 0; i < sizeof schedulers / sizeof schedulers[0]; i++) {
        record_and_play(WORDS("run", "--system", "fast-dllm-v2", "--requests", "20", "--gpu",
                              "h200", "--scheduler", schedulers[i]));
    }
}

/* Steps that were started together, some of whose members had nothing left to decide. */
TEST(unrolled_batches_are_played_and_carried_out) {
    static const char *const systems[] = {"dinfer", "dinfer-smooth"};
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        struct row row = {.system = systems[i], .db = scratch_path("unrolled.db")};
        struct words run = {0};
        add(&run,
            WORDS("run", "--system", systems[i], "--gpu", "cpu", "--set", "storage.weights=f32",
                  "--set", "max_requests=4", "--scheduler", "continuous", "--requests", "5",
                  "--rate", "200", "--input-tokens", "8", "--output-tokens", "40"));
        add_small_model(&run, "llada-moe");
        ck_assert(record(&row, SMALL, &run, WORDS(NULL)));
        replay(&row, CARRIED_OUT, WORDS("--backend", "cpu"));
        ck_assert(record(&row, LIVE, &run, WORDS("--backend", "cpu", "--clock", "virtual")));
        replay(&row, LIVE_PLAYED, WORDS(NULL));
        replay(&row, LIVE_AGAIN, WORDS("--backend", "cpu"));
        ck_assert(row.yes[CARRIED_OUT] && row.yes[LIVE_PLAYED] && row.yes[LIVE_AGAIN]);
        record_and_play(WORDS("run", "--system", systems[i], "--replicas", "3", "--requests", "30",
                              "--rate", "100"));
    }
}

/* Who shares a prompt's beginning, and what a preempted request finds of its own, is played; an
 * older record, which does not say it, is not. */
TEST(shared_prefixes_are_played) {
    char rows[4096] = "arrival_us,input_tokens,output_tokens,prefix_tokens\n";
    for (int i = 0; i < 60; i++) {
        size_t used = strlen(rows);
        snprintf(rows + used, sizeof rows - used, "%d,%d,%d,%d\n", 5000 * i, 200 + 3 * i, 40 + i,
                 i % 3 > 0 ? 150 : 0);
    }
    const char *trace = scratch_write("prefixes.csv", rows), *db = scratch_path("prefixes.db");
    char *text = PRINTS("run", "--system", "vllm-ar", "--workload", trace, "--set",
                        "pool_pages=150", "--db", db, "--levels", "steps", "--json");
    json_t *summary = json_loads(text, 0, NULL);
    ck_assert_int_gt(json_integer_value(json_object_get(summary, "preemptions")), 0);
    json_decref(summary);
    free(text);
    free(PRINTS("replay", "--db", db, "--run", "1"));
    old_make(db, old_make_4);
    REFUSES(1,
            "unmask: run 1 cannot be played again: vllm-ar caches prefixes, and an older unmask "
            "did not record what requests shared",
            "replay", "--db", db, "--run", "1");
}

static int64_t integer_of(const char *text, const char *key) {
    json_t *summary = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(summary);
    int64_t value = json_integer_value(json_object_get(summary, key));
    json_decref(summary);
    return value;
}

/* Turns, named groups and hash ids, of block diffusion and token by token, where pages are taken
 * from one another and on replicas that each have their own. */
TEST(blocks_that_requests_share_are_played) {
    char turns[8192] = "arrival_us,input_tokens,output_tokens,prefix_tokens,session,prefix_group\n";
    for (int i = 0; i < 90; i++) {
        size_t used = strlen(turns);
        snprintf(turns + used, sizeof turns - used, "%d,%d,%d,%d,%s%.0d,%s\n", 4000 * i,
                 150 + 40 * (i / 9), 30 + i, i % 3 == 0 && i < 9 ? 140 : 0, i % 9 > 0 ? "s" : "",
                 i % 9, i % 2 == 0 ? "even" : "odd");
    }
    char hashes[16384] = "";
    for (int i = 0; i < 60; i++) {
        size_t used = strlen(hashes);
        snprintf(hashes + used, sizeof hashes - used,
                 "{\"timestamp\": %d, \"input_length\": 1300, \"output_length\": 40, "
                 "\"hash_ids\": [%d, %d, %d]}\n",
                 5 * i, i % 2, 10 + i % 4, 100 + i);
    }
    char *workloads[] = {strdup(scratch_write("turns.csv", turns)),
                         strdup(scratch_write("hashes.jsonl", hashes))};
    static const char *const systems[][4] = {
        {"sdar", "sdar-8b", "pool_pages=60", "2"},
        {"sglang", "llada2-mini", "pool_pages=90", "1"},
        {"sdar", "fast-dllm-v2-7b", "router=prefix-aware", "3"},
        {"vllm-ar", "llama-3.1-8b", "pool_pages=250", "2"}};
    for (size_t i = 0; i < 4; i++) {
        for (size_t w = 0; w < 2; w++) {
            char name[32];
            snprintf(name, sizeof name, "shared-%zu-%zu.db", i, w);
            const char *db = scratch_path(name);
            char *text = PRINTS("run", "--system", systems[i][0], "--model", systems[i][1], "--gpu",
                                "h100", "--workload", workloads[w], "--set", systems[i][2], "--set",
                                "prefix_caching=on", "--replicas", systems[i][3], "--db", db,
                                "--levels", "steps", "--json");
            ck_assert_int_gt(integer_of(text, "prefix_hit_tokens"), 0);
            ck_assert_int_ge(integer_of(text, "prefix_tokens"),
                             integer_of(text, "prefix_hit_tokens"));
            ck_assert_int_gt(integer_of(text, "prefix_hits"), 0);
            free(text);
            free(PRINTS("replay", "--db", db, "--run", "1"));
        }
    }
    free(workloads[0]);
    free(workloads[1]);
    REFUSES(2, "LLaDA-8B Base/Instruct/1.5 is bidirectional: set prefix_caching = off", "run",
            "--system", "dllm-serve", "--set", "prefix_caching=on");
}

/* Single queries among the rows of FlashAttention-2 are priced by the length of each, which a
 * replay needs, too. */
TEST(prices_by_the_length_of_each_request_are_played) {
    char rows[1024] = "arrival_us,input_tokens,output_tokens\n";
    for (int i = 0; i < 12; i++) {
        size_t used = strlen(rows);
        snprintf(rows + used, sizeof rows - used, "%d,%d,30\n", 5000 * i, 20 + 300 * (i % 4));
    }
    const char *trace = scratch_write("lengths.csv", rows), *db = scratch_path("lengths.db");
    free(PRINTS("run", "--system", "vllm-measured-uncalibrated", "--gpu", "rtx4090", "--workload",
                trace, "--db", db, "--levels", "steps"));
    free(PRINTS("replay", "--db", db, "--run", "1"));
}

/* Where a step may have millions of tokens there is a place for as many requests as the setting
 * can be, not more. */
TEST(what_a_system_sets_itself_is_played) {
    const char *db = scratch_path("places.db");
    free(PRINTS("run", "--system", "fast-dllm-prefix-published", "--decoder", "credit", "--gpu",
                "l4", "--requests", "3", "--db", db, "--levels", "steps"));
    free(PRINTS("replay", "--db", db, "--run", "1"));
}

/* Where there is no checksum, a database may say anything: sentences. */
TEST(steps_and_requests_that_cannot_be_are_refused) {
    static const char *const damages[] = {"UPDATE steps SET end_ns = start_ns - 1",
                                          "UPDATE steps SET end_ns = 0",
                                          "UPDATE steps SET repeat = 0",
                                          "UPDATE steps SET gpu_ns = -5",
                                          "UPDATE steps SET host_ns = -1",
                                          "UPDATE steps SET start_ns = -1",
                                          "UPDATE steps SET end_ns = 9223372036854775807",
                                          "UPDATE steps SET requests = 0",
                                          "UPDATE requests SET prompt_tokens = 0",
                                          "UPDATE requests SET output_tokens = 0",
                                          "UPDATE requests SET arrival_ns = -1 << 62"};
    const char *db = scratch_path("impossible.db");
    char sql[256];
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        remove(db);
        free(PRINTS("run", "--requests", "3", "--db", db, "--levels", "steps"));
        snprintf(sql, sizeof sql, "%s; UPDATE runs SET sha256 = NULL, rows_sha256 = NULL",
                 damages[i]);
        database_change(db, sql);
        REFUSES(1, "is damaged: its ", "replay", "--db", db, "--run", "1");
    }
}

TEST(positions_that_no_pass_can_have_run_are_refused) {
    const char *db = scratch_path("positions.db");
    free(PRINTS("run", "--system", "focus", "--requests", "1", "--input-tokens", "8",
                "--output-tokens", "64", "--db", db, "--levels", "steps"));
    database_change(db, "UPDATE steps SET positions = (SELECT positions FROM steps AS before"
                        " WHERE before.idx = 3) WHERE idx = 4;"
                        "UPDATE runs SET sha256 = NULL, rows_sha256 = NULL");
    REFUSES(1, "a run of focus has request 0 run or commit other positions", "replay", "--db", db,
            "--run", "1");
}

/* The order of arrivals that become known by the ends of others is in the record; so is whose turn
 * each is, which routers go by. */
TEST(closed_loops_and_conversations_are_played_on_every_router) {
    static const char *const routers[] = {"round-robin", "least-loaded", "power-of-two",
                                          "phase-aware", "prefix-aware"};
    char loops[512], talks[512], all[512], both[2048];
    snprintf(loops, sizeof loops, "%s",
             scratch_write("loops.ini", "[workload]\nrequests = 24\narrivals = closed-loop\n"
                                        "arrivals.clients = 3\ninput = fixed\n"
                                        "input.tokens = 64\noutput = fixed\noutput.tokens = 64\n"
                                        "provenance.lengths = synthetic\n"));
    snprintf(talks, sizeof talks, "%s",
             scratch_write("talks.ini", "[workload]\nrequests = 40\narrivals = sessions\n"
                                        "rate = 20\narrivals.think_ns = 200ms\ninput = fixed\n"
                                        "input.tokens = 64\noutput = fixed\noutput.tokens = 32\n"
                                        "provenance.lengths = synthetic\n"));
    snprintf(both, sizeof both, "[workload]\nclasses = %s, %s, %s\n", loops, talks, loops);
    snprintf(all, sizeof all, "%s", scratch_write("both.ini", both));
    for (size_t i = 0; i < sizeof routers / sizeof routers[0]; i++) {
        const char *const workloads[] = {loops, talks, all};
        for (size_t j = 0; j < 3; j++) {
            record_and_play(WORDS("run", "--system", "vllm-ar", "--replicas", i == 0 ? "1" : "3",
                                  "--router", routers[i], "--workload", workloads[j]));
        }
    }
}

/* A scheduler that looks at the next arrival sees it when the recorded run did. */
TEST(a_scheduler_that_reads_the_next_arrival_is_played) {
    const char *plugin = suite_plugin("waits_for_next"), *db = scratch_path("next.db");
    const char *loops = scratch_write("next.ini", "[workload]\nrequests = 60\n"
                                                  "arrivals = closed-loop\narrivals.clients = 9\n"
                                                  "arrivals.think_ns = 2s\ninput = uniform\n"
                                                  "input.min = 16\ninput.max = 200\n"
                                                  "output = uniform\noutput.min = 16\n"
                                                  "output.max = 90\n"
                                                  "provenance.lengths = synthetic\n");
    free(
        PRINTS("run", "--scheduler", plugin, "--workload", loops, "--db", db, "--levels", "steps"));
    free(PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin"));
}

TEST(a_run_with_its_bound_is_played) {
    record_and_play(WORDS("run", "--system", "dllm-serve", "--requests", "3", "--bound"));
    const char *db = scratch_path("bounds.db");
    free(PRINTS("compare", "--systems", "dllm-serve,fast-dllm", "--requests", "5", "--bound",
                "--db", db, "--levels", "steps"));
    free(PRINTS("replay", "--db", db, "--run", "1"));
    free(PRINTS("replay", "--db", db, "--run", "2"));
    /* Too short to tell, but for the bound: a difference of two numbers, one of them recorded. */
    const char *const seeds[] = {"1", "9", "11"};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        record_and_play(WORDS("run", "--gpu", "l40s", "--requests", "40", "--rate", "0.83",
                              "--bound", "--seed", seeds[i]));
    }
}

/* It took no steps: there is nothing else to record, at any level. */
TEST(a_run_that_rejected_every_request_is_played) {
    const char *const levels[] = {"requests", "steps"};
    for (int i = 0; i < 2; i++) {
        const char *db = scratch_path("rejected.db");
        remove(db);
        struct output run =
            CLI("run", "--system", "dc", "--set", "decoder.threshold=0.9", "--gpu", "b200",
                "--workload", "sharegpt", "--requests", "1", "--rate", "0.2", "--seed", "6",
                "--set", "pool_pages=5", "--db", db, "--levels", levels[i]);
        ck_assert_int_eq(run.status, 1); /* which a script sees */
        ck_assert_ptr_nonnull(strstr(run.err, "no request was completed: all 1 were rejected"));
        ck_assert_ptr_nonnull(strstr(run.out, "kv 1"));
        output_free(&run);
        char *text = PRINTS("replay", "--db", db, "--run", "1");
        ck_assert_ptr_nonnull(strstr(text, "0 submissions played as recorded"));
        free(text);
    }
}

/* The host's CPU has the machine's memory where its own does not do; a replay has what the run had,
 * whatever the machine. */
TEST(a_run_on_the_machines_memory_is_played_with_as_much) {
    const char *db = scratch_path("machine.db");
    struct output run = CLI("run", "--gpu", "cpu", "--model", "sdar-1.7b", "--set",
                            "storage.weights=f32", "--requests", "1", "--input-tokens", "16",
                            "--output-tokens", "16", "--db", db, "--levels", "steps");
    if (run.status != 0) { /* a small machine, which the sentence is then about */
        ck_assert_ptr_nonnull(strstr(run.err, "does not fit into the host's CPU"));
        output_free(&run);
        return;
    }
    output_free(&run);
    free(PRINTS("replay", "--db", db, "--run", "1"));
    database_change(db,
                    "UPDATE runs SET config = substr(config, 1, instr(config, 'gpu_memory = ') - 1)"
                    " || 'gpu_memory = 20401094656', sha256 = NULL");
    REFUSES(1, "its summary differs from the recorded one, first in 'kv_pool_bytes'", "replay",
            "--db", db, "--run", "1");
}

/* A model of single tokens under a policy that evicts: none is, and none is priced so. */
TEST(a_single_token_is_not_evicted_when_it_is_played) {
    record_and_play(WORDS("run", "--system", "vllm-measured", "--cache", "focus", "--decoder",
                          "small-blocks", "--gpu", "h100", "--requests", "20", "--rate", "20"));
}

/* Of what took no time no error is known, in any table. */
TEST(a_live_run_whose_steps_took_no_time_is_played) {
    const char *db = scratch_path("instant.db");
    free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--model", "llada-tiny",
                "--requests", "2", "--input-tokens", "8", "--output-tokens", "8", "--db", db,
                "--levels", "steps"));
    database_change(db, "UPDATE steps SET end_ns = start_ns, gpu_ns = 0;"
                        "UPDATE runs SET sha256 = NULL, rows_sha256 = NULL");
    REFUSES(1, "the replay of run 1 took the same steps but its summary differs", "replay", "--db",
            db, "--run", "1");
}

/* With prompts, whose right answers the record counts. */
TEST(a_trained_model_asked_prompts_is_played) {
    static const char *const models_of[][2] = {{"lmdeploy", "sdar-2m"}, {"fast-dllm", "llada-2m"}};
    for (size_t i = 0; i < 2; i++) {
        char weights[128];
        snprintf(weights, sizeof weights, "experiments/train/models/%s", models_of[i][1]);
        struct row row = {.system = models_of[i][0], .db = scratch_path("prompts.db")};
        struct words run = {0};
        add(&run, WORDS("run", "--system", row.system, "--weights", weights, "--backend", "cpu",
                        "--clock", "virtual", "--workload", "experiments/train/prompts/easy.jsonl",
                        "--requests", "6", "--decoder", "threshold", "--output-tokens", "32"));
        ck_assert(record(&row, LIVE, &run, WORDS(NULL)));
        replay(&row, LIVE_PLAYED, WORDS(NULL));
        replay(&row, LIVE_AGAIN, WORDS("--backend", "cpu", "--weights", weights));
        ck_assert(row.yes[LIVE_PLAYED] && row.yes[LIVE_AGAIN]);
    }
}

/* A policy that renews by entropies, which the record holds: drawn ones, and those of logits. */
TEST(a_policy_that_reads_entropies_is_played) {
    struct row row = {.system = "dllm-serve", .db = scratch_path("entropy.db")};
    struct words drawn = {0}, live = {0};
    const char *const *reads =
        WORDS("--cache", "entropy", "--decoder", "threshold", "--requests", "4", "--set");
    add(&drawn, WORDS("run", "--system", row.system));
    add(&drawn, reads);
    add(&drawn, WORDS("cache.bound_nats=0.5"));
    ck_assert(record(&row, RECORDED, &drawn, WORDS(NULL)));
    replay(&row, PLAYED, WORDS(NULL));
    add(&live, WORDS("run", "--system", row.system, "--backend", "cpu", "--clock", "virtual",
                     "--model", "llada-tiny", "--input-tokens", "12", "--output-tokens", "18",
                     "--set", "decoder.threshold=0.012", "--set", "block_tokens=6"));
    add(&live, reads);
    add(&live, WORDS("cache.bound_nats=6.465"));
    ck_assert(record(&row, LIVE, &live, WORDS(NULL)));
    replay(&row, LIVE_PLAYED, WORDS(NULL));
    replay(&row, LIVE_AGAIN, WORDS("--backend", "cpu"));
    ck_assert(row.yes[PLAYED] && row.yes[LIVE_PLAYED] && row.yes[LIVE_AGAIN]);
}

/* Models so narrow that a step of the engine takes little. */
#define NARROW "--set", "model.hidden=128", "--set", "model.ffn=64"

/* A decoder that commits, commits none, takes back and commits again: drawn, recorded, played,
 * carried out by the engine; live, played, once more by the engine; and its decode trace. */
TEST(what_a_decoder_takes_back_is_played) {
    static const char *const systems[][2] = {
        {"dllm-serve", "llada-tiny"}, {"entropy-cache", "llada-tiny"}, {"focus", "sdar-tiny"}};
    char db[512], trace[512];
    snprintf(db, sizeof db, "%s", scratch_path("taken.db"));
    snprintf(trace, sizeof trace, "%s", scratch_path("taken.decode"));
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        const char *const *base =
            WORDS("run", "--system", systems[i][0], "--model", systems[i][1], "--gpu", "cpu",
                  "--decoder", suite_plugin("taking_decoder"), "--requests", "2", "--rate", "50",
                  "--input-tokens", "6", "--output-tokens", "16", "--set", "block_tokens=8",
                  "--set", "storage.weights=f32", "--db", db, "--levels", "steps", NARROW);
        const char *const *live =
            WORDS("--backend", "cpu", "--clock", "virtual", "--decode-out", trace);
        for (int is_live = 0; is_live < 2; is_live++) {
            struct words run = {0};
            (void)remove(db);
            add(&run, base);
            add(&run, is_live ? live : WORDS(NULL));
            ck_assert(does(systems[i][0], is_live ? LIVE : RECORDED, &run, NULL));
            ck_assert_int_gt(sql_integer(db, "SELECT count(outcomes) FROM steps"), 0);
            free(PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin"));
            free(PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin", "--backend", "cpu"));
        }
        ck_assert_int_eq(sql_integer(trace, "SELECT sum(committed - unmasked) FROM pass"), 2 * 16);
        ck_assert_int_gt(sql_integer(trace, "SELECT sum(unmasked) FROM pass"), 0);
        if (strcmp(systems[i][0], "entropy-cache") == 0) {
            continue; /* plans by what a trace does not tell */
        }
        (void)remove(db);
        free(PRINTS("run", "--system", systems[i][0], "--model", systems[i][1], "--gpu", "cpu",
                    "--requests", "2", "--input-tokens", "6", "--output-tokens", "16", "--set",
                    "block_tokens=8", "--set", "storage.weights=f32", "--decode", trace, "--db", db,
                    "--levels", "steps", NARROW));
        free(PRINTS("replay", "--db", db, "--run", "1"));
        REFUSES(2,
                "says how many positions are masked again, and not which, as an engine has to know",
                "replay", "--db", db, "--run", "1", "--backend", "cpu");
    }
}

/* A scheduler that says width and threshold: drawn, recorded and played, and live. */
TEST(windows_of_any_width_are_played) {
    char db[512], trace[512];
    snprintf(db, sizeof db, "%s", scratch_path("words.db"));
    snprintf(trace, sizeof trace, "%s", scratch_path("words.decode"));
    static const char *const systems[] = {"dllm-serve", "sparse-dllm", "dkv-cache"};
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        const char *const *base = WORDS(
            "run", "--system", systems[i], "--model", "llada-tiny", "--gpu", "cpu", "--scheduler",
            suite_plugin("wording_scheduler"), "--set", "scheduler.threshold=0.01", "--decoder",
            "threshold", "--requests", "6", "--rate", "1000", "--input-tokens", "8",
            "--output-tokens", "24", "--set", "block_tokens=8", "--set", "max_requests=2", "--set",
            "storage.weights=f32", "--db", db, "--levels", "steps", "--decode-out", trace, NARROW);
        const char *const *live = WORDS("--backend", "cpu", "--clock", "virtual");
        for (int is_live = 0; is_live < 2; is_live++) {
            struct words run = {0};
            (void)remove(db);
            add(&run, base);
            add(&run, is_live ? live : WORDS(NULL));
            ck_assert(does(systems[i], is_live ? LIVE : RECORDED, &run, NULL));
            free(PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin"));
            free(PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin", "--backend", "cpu"));
        }
        ck_assert_int_gt(sql_integer(trace, "SELECT count(*) FROM pass WHERE length = 2"), 0);
        ck_assert_int_gt(sql_integer(trace, "SELECT count(*) FROM pass WHERE length = 8"), 0);
    }
    struct output output =
        CLI("run", "--system", "dllm-serve", "--scheduler", suite_plugin("wording_scheduler"),
            "--set", "scheduler.threshold=0.5", "--requests", "20", "--rate", "5");
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "a threshold in millionths (500000 of at most 0)"));
    output_free(&output);
}

/* Built-in schedulers that say words about each member, or cut prefills: likewise. */
TEST_EACH(what_schedulers_of_papers_say_is_played, 4) {
    static const char *const asked[][12] = {
        {"--system", "dllm-serve", "--model", "llada-tiny", "--scheduler", "refresh-spread",
         "--set", "scheduler.tokens=1", "--set", "cache.interval_steps=2"},
        {"--system", "fast-dllm", "--model", "llada-tiny", "--scheduler", "width-by-load", "--set",
         "scheduler.width=2", "--set", "scheduler.from=3", "--decoder"},
        {"--system", "fast-dllm", "--model", "llada-tiny", "--scheduler", "threshold-valve",
         "--set", "scheduler.threshold=0.01", "--set", "scheduler.from=3", "--decoder"},
        {"--system", "sdar", "--model", "sdar-tiny", "--scheduler", "sarathi", "--set",
         "scheduler.budget=8"},
    };
    char db[512];
    snprintf(db, sizeof db, "%s", scratch_path("said.db"));
    for (int is_live = 0; is_live < 2; is_live++) {
        struct words run = {0};
        (void)remove(db);
        add(&run, WORDS("run", "--gpu", "cpu", "--requests", "6", "--rate", "1000",
                        "--input-tokens", "24", "--output-tokens", "24", "--set", "max_requests=4",
                        "--set", "storage.weights=f32", "--db", db, "--levels", "steps", NARROW));
        add(&run, asked[_i]);
        add(&run, asked[_i][10] != NULL ? WORDS("threshold") : WORDS(NULL));
        add(&run, _i < 3 ? WORDS("--set", "block_tokens=8") : WORDS(NULL));
        add(&run, _i == 1 || _i == 2 ? WORDS("--set", "scheduler.to=2") : WORDS(NULL));
        add(&run, is_live ? WORDS("--backend", "cpu", "--clock", "virtual") : WORDS(NULL));
        ck_assert(does(asked[_i][1], is_live ? LIVE : RECORDED, &run, NULL));
        free(PRINTS("replay", "--db", db, "--run", "1"));
        free(PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu"));
    }
}

/* What is masked again is so to the model: the pass after it sees what the one before it saw. */
TEST(a_token_that_is_taken_back_leaves_the_canvas) {
    char trace[512];
    snprintf(trace, sizeof trace, "%s", scratch_path("undone.decode"));
    free(PRINTS("run", "--system", "vanilla", "--model", "llada-tiny", "--backend", "cpu",
                "--clock", "virtual", "--decoder", suite_plugin("undoing_decoder"), "--requests",
                "1", "--input-tokens", "6", "--output-tokens", "8", "--set", "block_tokens=8",
                "--decode-out", trace));
    ck_assert_int_eq(sql_integer(trace, "SELECT count(*) FROM pass"), 10);
    ck_assert_int_eq(sql_integer(trace, "SELECT count(*) FROM pass a, pass b WHERE a.rowid = 1 AND "
                                        "b.rowid = 3 AND a.confidence = b.confidence AND "
                                        "a.token = b.token AND a.masked = b.masked"),
                     1);
    ck_assert_int_eq(sql_integer(trace, "SELECT count(*) FROM pass a, pass b WHERE a.rowid = 1 AND "
                                        "b.rowid = 2 AND a.confidence = b.confidence"),
                     0);
}

/* A trace of what a decoder counts changes nothing, the number of submissions included. */
TEST(a_trace_of_counted_steps_gives_the_same_run) {
    const char *trace = scratch_path("counted.csv");
    static const char *const keys[] = {"submissions", "steps", "makespan_s", "tokens_processed",
                                       "request_steps"};
    char *text =
        PRINTS("run", "--system", "fast-dllm", "--requests", "30", "--decode-out", trace, "--json");
    json_t *drawn = json_loads(text, 0, NULL);
    free(text);
    text = PRINTS("run", "--system", "fast-dllm", "--requests", "30", "--decode", trace, "--json");
    json_t *played = json_loads(text, 0, NULL);
    free(text);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ck_assert(json_equal(json_object_get(drawn, keys[i]), json_object_get(played, keys[i])));
    }
    json_decref(drawn);
    json_decref(played);
}

/* All and none are said of all and none alone. */
TEST(a_share_of_batches_is_never_rounded_to_all_or_none) {
    static const struct {
        uint64_t n, n_equal;
        const char *said;
    } cases[] = {
        {64, 64, "64 of 64 equal (100 %)"},        {64, 0, "0 of 64 equal (0 %)"},
        {256, 64, "64 of 256 equal (25 %)"},       {9999, 9998, "9998 of 9999 equal (99.9 %)"},
        {1000, 998, "998 of 1000 equal (99.8 %)"}, {9999, 1, "1 of 9999 equal (0.1 %)"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct same_batches same = {.run = 1, .n = cases[i].n, .n_equal = cases[i].n_equal};
        char *text = NULL;
        size_t size;
        FILE *out = mem_stream(&text, &size);
        same_batches_print(&same, out);
        mem_stream_close(out);
        ck_assert_msg(strstr(text, cases[i].said) != NULL, "%s", text);
        free(text);
    }
}

SUITE("replay")
