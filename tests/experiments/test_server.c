/* Measured servers: how near their simulation comes, and what it stands on. */
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "experiments/study/server.h"
#include "tests/support/asked_server.h"
#include "tests/support/database.h"
#include "tests/support/rig.h"

#define PRO_6000 "experiments/study/reference/vllm_llama31_8b_rtx_pro_6000.csv"
#define RTX_4090 "experiments/study/reference/vllm_llama31_8b_rtx4090.csv"

static void simulate(struct server *server, const char *path, const char *gpu, const char *system) {
    struct err err = {0};
    struct run_request request = {.system = system, .gpu = gpu, .options.seed = 1};
    ck_assert_msg(server_read(path, path, server, &err) == 0, "%s", err.text);
    ck_assert_msg(server_run(server, &request, &err) == 0, "%s", err.text);
}

static double error_of(const struct server *server, const char *name) {
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        if (strcmp(server->quantities[i].name, name) == 0) {
            return server_error(&server->quantities[i]);
        }
    }
    ck_abort_msg("there is no quantity %s", name);
    return NAN;
}

TEST(a_vllm_server_is_met_within_the_aim) {
    struct server server;
    simulate(&server, PRO_6000, "rtx-pro-6000", "vllm-measured");
    ck_assert_uint_eq(server.measured.completed, 300);
    ck_assert_uint_eq(server_within(&server), SERVER_QUANTITIES);
    server_fini(&server);
    simulate(&server, PRO_6000, "rtx-pro-6000", "vllm-measured-uncalibrated");
    ck_assert_uint_ge(server_within(&server), 14);
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        ck_assert_double_lt(fabs(server_error(&server.quantities[i])), 0.095);
    }
    ck_assert_double_lt(fabs(error_of(&server, "TPOT mean")), 0.02);
    ck_assert_double_lt(fabs(error_of(&server, "throughput")), 0.025);
    server_fini(&server);
}

/* docs/vllm.md: nothing fitted. */
TEST(the_documented_commands_give_the_documented_numbers) {
    json_t *object = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--max-num-seqs", "128");
    ck_assert_double_eq_tol(printed_error(object, "TTFT mean"), -0.052, 0.0005);
    ck_assert_double_eq_tol(printed_error(object, "TPOT mean"), -0.014, 0.0005);
    ck_assert_double_eq_tol(printed_error(object, "latency mean"), -0.024, 0.0005);
    ck_assert(!warns_of_limits(object));
    ck_assert_ptr_nonnull(json_object_get(only_run(object), "identity"));
    json_decref(object);
    object = ASKED(RTX_4090, "--gpu", "rtx4090", "--max-num-seqs", "256", "--num-gpu-blocks",
                   "2588", "--gpu-memory-utilization", "0.95");
    ck_assert_double_eq_tol(printed_error(object, "TTFT mean"), 0.043, 0.0005);
    ck_assert_double_eq_tol(printed_error(object, "TPOT mean"), 0.025, 0.0005);
    ck_assert(!warns_of_limits(object));
    json_decref(object);
}

#define STARTED                                                                                    \
    "INFO 04-10 09:00:00 [utils.py:233] non-default args: {'model_tag': 'm', 'max_num_seqs': "     \
    "999, 'seed': 0}\nINFO 04-10 09:00:00 args: Namespace(port=8000, max_num_seqs=128)\n"          \
    "INFO 04-10 09:00:05 [config.py:1901] Chunked prefill is enabled with "                        \
    "max_num_batched_tokens=4096.\n"

/* What the log says is what the arguments would have said, and an argument counts before it. */
TEST(the_log_of_a_server_s_start_gives_its_arguments) {
    const char *log = scratch_write("start.log", STARTED);
    json_t *logged = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--log", log);
    json_t *said = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--max-num-seqs", "128",
                         "--max-num-batched-tokens", "4096");
    ck_assert_double_eq(printed_error(logged, "TTFT p95"), printed_error(said, "TTFT p95"));
    ck_assert(!warns_of_limits(logged));
    json_decref(logged);
    json_decref(said);
    logged = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--log", log, "--max-num-seqs", "64");
    ck_assert(warns_of_limits(logged));
    json_decref(logged);
    REFUSES(1, "found no max_num_seqs, max_num_batched_tokens", "validate", "--measured", PRO_6000,
            "--log", scratch_write("empty.log", "INFO my_max_num_seqs=3 max_num_seqs is large\n"));
}

TEST(limits_that_the_server_cannot_have_had_are_warned_of) {
    json_t *object = ASKED(PRO_6000, "--gpu", "rtx-pro-6000");
    ck_assert_double_lt(printed_error(object, "TTFT mean"), -0.8);
    ck_assert(warns_of_limits(object));
    json_decref(object);
    object = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--max-num-seqs", "64");
    ck_assert(warns_of_limits(object));
    json_decref(object);
}

/* Nothing is fitted here; the aim is missed, and no more than this. */
TEST(a_server_without_memory_is_met_within_a_few_percent) {
    struct server server;
    simulate(&server, RTX_4090, "rtx4090", "vllm-measured");
    ck_assert_double_lt(fabs(error_of(&server, "TTFT mean")), 0.05);
    ck_assert_double_lt(fabs(error_of(&server, "TPOT mean")), 0.03);
    ck_assert_double_lt(fabs(error_of(&server, "latency mean")), 0.045);
    ck_assert_double_lt(fabs(error_of(&server, "throughput")), 0.035);
    ck_assert_uint_eq(server.run->system->n_calibrated, 0);
    ck_assert_int_eq(server.run->system->budget.pool_bytes, INT64_C(2587) * 16 * 131072);
    server_fini(&server);
}

/* Mean latency and time to the first token of requests 150 to 299. */
struct later {
    double n, latency_s, ttft_s;
};

static int add_later(void *state, const struct request_record *record, struct err *err) {
    struct later *later = state;
    (void)err;
    if (record->id >= 150) {
        later->n++;
        later->latency_s += (double)(record->finished_ns - record->arrival_ns) * 1e-9;
        later->ttft_s += (double)(record->first_block_ns - record->arrival_ns) * 1e-9;
    }
    return 0;
}

TEST(the_half_of_the_requests_that_nothing_was_fitted_to_is_met) {
    struct later simulated = {0}, measured = {0};
    struct composition *composition = NULL;
    struct err err = {0};
    const struct run_request request = {
        .system = "vllm-measured", .gpu = "rtx-pro-6000", .workload = PRO_6000, .options.seed = 1};
    const struct sink sink = {.state = &simulated, .request = add_later};
    const struct run_watch watch = {.sinks = &sink, .n_sinks = 1};
    ck_assert_int_eq(compose_open(&request, &composition, &err), 0);
    ck_assert_int_eq(compose_run(composition, &watch, &err), 0);
    compose_close(composition);
    FILE *file = fopen(PRO_6000, "r");
    char line[256];
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    for (uint64_t id = 0; fgets(line, sizeof line, file) != NULL; id++) {
        long long arrival, first, last;
        ck_assert_int_eq(
            sscanf(line, "%lld,%*d,%*d,%*d,%*d,%*d,%lld,%lld", &arrival, &first, &last), 3);
        struct request_record record =
            MAKE(struct request_record, .id = id, .arrival_ns = 1000 * arrival,
                 .first_block_ns = 1000 * first, .finished_ns = 1000 * last);
        add_later(&measured, &record, &err);
    }
    fclose(file);
    ck_assert_double_eq(simulated.n, 150);
    ck_assert_double_eq(measured.n, 150);
    ck_assert_double_eq_tol(simulated.latency_s / measured.latency_s, 1, 0.01);
    ck_assert_double_eq_tol(simulated.ttft_s / measured.ttft_s, 1, 0.015);
}

#define HEAD "arrival_us,input_tokens,output_tokens,first_token_us,last_token_us\n"

static void complains(const char *text, const char *sentence) {
    const char *path = scratch_write("server.csv", text);
    struct server server;
    struct err err = {0};
    ck_assert_int_eq(server_read(path, path, &server, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "%s", err.text);
    server_fini(&server);
}

TEST(a_bad_measurement_is_one_sentence_with_its_place) {
    complains("", ":1: found an empty file, expected a header");
    complains("arrival_us,input_tokens,output_tokens,first_token_us\n",
              ":1: no column 'last_token_us'");
    complains("arrival_us,arrival_us,input_tokens,output_tokens,first_token_us,last_token_us\n",
              ":1: more than one column 'arrival_us'");
    complains(HEAD, " holds no requests");
    complains(HEAD "0,1,1,5\n", ":2: found 4 fields, expected 5 as in the header");
    complains(HEAD "0,1,1,5,6\n1,1,1,5,6", ":3: found an unfinished last line, expected a newline");
    complains(HEAD "x,1,1,5,6\n", ":2: found 'x' in arrival_us, expected a time in microseconds");
    complains(HEAD "-1,1,1,5,6\n", ":2: found '-1' in arrival_us, expected a time");
    complains(HEAD "0,0,1,5,6\n", ":2: found '0' in input_tokens, expected a whole number from 1");
    complains(HEAD "0,1,1.5,5,6\n", ":2: found '1.5' in output_tokens, expected a whole number");
    complains(HEAD "9,1,1,5,6\n",
              ":2: found '5' in first_token_us, expected a time in microseconds, not before the "
              "arrival");
    complains(HEAD "0,1,1,5,nan\n",
              ":2: found 'nan' in last_token_us, expected a time in microseconds, not before the "
              "first token's");
    complains("scheduled_us," HEAD "0,1,1,1,5,6\n",
              ":2: found '0' in scheduled_us, expected a time in microseconds, not before the "
              "arrival");
}

/* Two requests, one second apart, of which the second has one token; and one that failed. */
static void tells_the_same(const char *name, const char *text) {
    const char *path = scratch_write(name, text);
    struct server server;
    struct err err = {0};
    ck_assert_msg(server_read(path, path, &server, &err) == 0, "%s", err.text);
    ck_assert_int_eq(server.source.kind, TIMINGS_CLIENT);
    ck_assert_uint_eq(server.source.n, 2);
    ck_assert_uint_eq(server.source.n_failed, 1);
    ck_assert_uint_eq(server.measured.prompt_tokens, 15);
    ck_assert_double_eq_tol(server.measured.ttfb.mean, 0.35, 1e-6);
    ck_assert_double_eq_tol(server.measured.latency.mean, 0.75, 1e-6);
    ck_assert_double_eq_tol(server.measured.tpot.mean, 0.2, 1e-6);
    ck_assert_double_eq_tol(server.measured.makespan_s, 1.5, 1e-6);
    struct run_request request = {.system = "sdar", .gpu = "h100"};
    ck_assert_msg(server_run(&server, &request, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(server.simulated.completed, 2);
    server_fini(&server);
}

#define VLLM                                                                                       \
    "{\"ttfts\": [0.2, 0.5, 0], \"itls\": [[0.2, 0.3, 0.3], [], []], \"errors\": [\"\", \"\", "    \
    "\"refused\"], \"input_lens\": [10, 5, 3], \"output_lens\": [5, 1, 0]"

TEST(clients_results_are_read) {
    tells_the_same("vllm.json", VLLM ", \"start_times\": [7.5, 8.5, 8.6]}");
    /* SGLang's file grows by a line a run. */
    tells_the_same("sglang.jsonl", "{\"ttfts\": [1], \"itls\": [[]], \"input_lens\": [1], "
                                   "\"output_lens\": [1], \"start_times\": [1]}\n" VLLM
                                   ", \"start_times\": [7.5, 8.5, 8.6]}\n");
    tells_the_same("profile_export.jsonl",
                   "{\"metadata\": {\"request_start_ns\": 2000000000, \"benchmark_phase\": "
                   "\"profiling\"}, \"metrics\": {\"time_to_first_token\": {\"value\": 500, "
                   "\"unit\": \"ms\"}, \"request_latency\": {\"value\": 0.5, \"unit\": \"sec\"}, "
                   "\"usage_prompt_tokens\": {\"value\": 5}, \"usage_completion_tokens\": "
                   "{\"value\": 1}}, \"error\": null}\n"
                   "{\"metadata\": {\"benchmark_phase\": \"warmup\"}, \"metrics\": {}}\n"
                   "{\"metadata\": {\"request_start_ns\": 1000000000}, \"metrics\": "
                   "{\"time_to_first_token\": {\"value\": 200, \"unit\": \"ms\"}, "
                   "\"request_latency\": {\"value\": 1000000000, \"unit\": \"ns\"}, "
                   "\"input_sequence_length\": {\"value\": 10, \"unit\": \"tokens\"}, "
                   "\"output_sequence_length\": {\"value\": 5, \"unit\": \"tokens\"}}}\n"
                   "{\"metadata\": {\"was_cancelled\": true}, \"metrics\": {}}\n");
    tells_the_same("guidellm.json",
                   "{\"benchmarks\": [{}, {\"requests\": {\"errored\": [{}], \"incomplete\": [], "
                   "\"successful\": [{\"info\": {\"timings\": {\"request_start\": 100.5, "
                   "\"first_token_iteration\": 100.7, \"last_token_iteration\": 101.5}}, "
                   "\"prompt_tokens\": 10, \"output_tokens\": 5}, {\"start_time\": 101.5, "
                   "\"first_token_time\": 102, \"last_token_time\": 102, \"input_metrics\": "
                   "{\"text_tokens\": 5}, \"output_metrics\": {\"text_tokens\": 1}}]}}]}");
}

TEST(a_client_that_does_not_say_when_it_asked_stands_beside_a_record_alone) {
    const char *path = scratch_write("vllm.json", VLLM "}");
    struct server server;
    struct err err = {0};
    struct run_request request = {.system = "sdar", .gpu = "h100"};
    ck_assert_int_eq(server_read(path, path, &server, &err), 0);
    ck_assert(server.source.lacks_arrivals);
    ck_assert_int_eq(server_run(&server, &request, &err), ERR_USAGE);
    server_fini(&server);
    const char *rows = scratch_write("server.csv", HEAD "0,10,5,200000,1000000\n"
                                                        "1000000,5,1,1500000,1500000\n");
    err = (struct err){0};
    ck_assert_int_eq(server_read(rows, rows, &server, &err), 0);
    ck_assert_int_eq(server_read_client(path, &server, &err), 0);
    ck_assert_msg(server_run(&server, &request, &err) == 0, "%s", err.text);
    ck_assert_double_eq_tol(server.quantities[0].client, 0.35, 1e-6);
    ck_assert_double_eq_tol(server.quantities[0].measured, 0.35, 1e-6);
    ck_assert(isnan(server.quantities[SERVER_QUANTITIES - 1].client));
    server_fini(&server);
}

TEST(a_bad_result_of_a_client_is_one_sentence) {
    complains("{\"x\": 1}", "its JSON is no list of requests of GuideLLM");
    complains("{\"benchmarks\": []}", "holds no requests that were answered");
    complains("{\"benchmarks\": [}", "byte ");
    complains("{\"ttfts\": [1], \"itls\": [[1]], \"input_lens\": [0], \"output_lens\": [1]}",
              "request 0 has no numbers of prompt and output tokens");
    complains("{\"ttfts\": [-1], \"itls\": [[1]], \"input_lens\": [1], \"output_lens\": [1]}",
              "request 0 has no times");
    complains("{\"ttfts\": [1, 1], \"itls\": [[1], []], \"input_lens\": [1, 1], \"output_lens\": "
              "[2, 1], \"start_times\": [1]}",
              "request 1 has no start, which others have");
    complains("{\"ttfts\": [1, 1], \"itls\": [[1], []], \"input_lens\": [1, 1], \"output_lens\": "
              "[2, 1], \"start_times\": [1, 1e12]}",
              "years apart");
}

TEST(both_sides_count_alike) {
    const char *path = scratch_write("server.csv", "last_token_us,first_token_us,output_tokens,"
                                                   "arrival_us,input_tokens,whatever\r\n"
                                                   "5000000,1000000,5,0,10,x\r\n"
                                                   "3000000.5,3000000.5,1,1000000,10,y\r\n");
    struct server server;
    struct err err = {0};
    ck_assert_msg(server_read(path, path, &server, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(server.measured.completed, 2);
    ck_assert_double_eq_tol(server.measured.ttfb.mean, (1 + 2.0000005) / 2, 1e-9);
    ck_assert_double_eq_tol(server.measured.latency.mean, (5 + 2.0000005) / 2, 1e-9);
    ck_assert_uint_eq(server.measured.tpot.n, 1); /* of one token there is none */
    ck_assert_double_eq_tol(server.measured.tpot.mean, 1, 1e-9);
    ck_assert_double_eq_tol(server.measured.makespan_s, 5, 1e-9);
    ck_assert_double_eq_tol(server.measured.throughput_tok_s, 6 / 5.0, 1e-9);
    server_fini(&server);
}

TEST(a_record_whose_times_are_others_too_is_taken_if_it_is_asked_for) {
    static const char *const codes[] = {"device-shared", "device-slowed", "process-stopped"};
    for (size_t i = 0; i < 3; i++) {
        const char *path = scratch_path("served.db");
        char statement[512];
        (void)remove(path);
        free(PRINTS("run", "--system", "fast-dllm", "--model", "llada-tiny", "--gpu", "h200",
                    "--requests", "2", "--input-tokens", "6", "--output-tokens", "32", "--db",
                    path));
        free(PRINTS("validate", "--measured", path));
        snprintf(statement, sizeof statement,
                 "UPDATE runs SET sha256 = NULL, summary = json_insert(summary, '$.warnings[#]', "
                 "json('{\"code\": \"%s\", \"value\": 1, \"text\": \"as it was\"}'))",
                 codes[i]);
        database_change(path, statement);
        REFUSES(1, "its times are not the device's own: as it was (--shared takes it)", "validate",
                "--measured", path);
        free(PRINTS("validate", "--measured", path, "--shared"));
    }
}

TEST(the_command_compares_and_says_why_it_cannot) {
    const char *path =
        scratch_write("server.csv", HEAD "0,100,4,30000,90000\n20000,50,3,60000,90000\n");
    char *text = PRINTS("validate", "--measured", path, "--gpu", "rtx4090");
    ck_assert_ptr_nonnull(strstr(text, "2 requests of "));
    ck_assert_ptr_nonnull(
        strstr(text, "vllm-ar: vllm-ar, llama-3.1-8b on rtx4090, prices imported"));
    free(text);
    text = PRINTS("validate", "--measured", path, "--gpu", "rtx4090", "--json");
    json_error_t error;
    json_t *object = json_loads(text, 0, &error);
    ck_assert_ptr_nonnull(object);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "requests")), 2);
    json_decref(object);
    free(text);
    REFUSES(2, "validate needs --measured FILE", "validate");
    struct output former = CLI("server", "--measured", path, "--gpu", "rtx4090", "--json");
    ck_assert_int_eq(former.status, 0);
    ck_assert_ptr_nonnull(strstr(former.err, "validate"));
    object = json_loads(former.out, 0, &error);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "requests")), 2);
    json_decref(object);
    output_free(&former);
    REFUSES(1, "cannot open nowhere.csv: No such file or directory", "validate", "--measured",
            "nowhere.csv");
    struct output output =
        CLI("validate", "--measured", path, "--gpu", "rtx4090", "--set", "context_tokens=60");
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "1 rejected: nothing to compare"));
    output_free(&output);
    char study[512];
    snprintf(
        study, sizeof study,
        "[figure]\ntitle = x\nkind = table\nquery = SELECT time, side, count(*) AS n, max(seconds) "
        "AS most FROM server WHERE side IS NOT NULL GROUP BY time, side\n[server]\nfile = "
        "%s\nsystem = vllm-ar\ngpu = rtx4090\nset max_requests = 1\n",
        path);
    text = PRINTS("figure", scratch_write("study.ini", study));
    ck_assert_ptr_nonnull(strstr(text, "latency  measured   2       0.09\n"));
    ck_assert_ptr_nonnull(strstr(text, "ttft     simulated  2"));
    free(text);
}

static struct system *vllm(const char *const *settings) {
    return rig_system("vllm-ar", "rtx-pro-6000", false, settings);
}

static struct loop_result serve(struct system *system, const struct arrival *arrivals, size_t n,
                                struct keeper *keeper) {
    struct list_source list = {.arrivals = arrivals, .n = n};
    struct arrival_source source = {.state = &list, .next = list_next};
    return rig_run(system, source, keeper);
}

TEST(who_arrives_during_a_step_waits_for_one_step_more) {
    const struct arrival arrivals[] = {
        {.id = 0, .prompt_tokens = 64, .output_tokens = 40},
        {.id = 1, .arrival_ns = 100000000, .prompt_tokens = 64, .output_tokens = 4}};
    int64_t admitted_ns[2];
    for (int ahead = 0; ahead < 2; ahead++) {
        struct keeper keeper = {0};
        struct system *system =
            vllm((const char *const[]){ahead ? "decides_ahead=on" : "decides_ahead=off", NULL});
        serve(system, arrivals, 2, &keeper);
        ck_assert_uint_eq(keeper.n_requests, 2);
        ck_assert_uint_eq(keeper.requests[0].id, 1);
        admitted_ns[ahead] = keeper.requests[0].admitted_ns;
        size_t during = 0;
        while (keeper.steps[during].record.end_ns <= arrivals[1].arrival_ns) {
            during++;
        }
        /* The step that runs when it arrives is followed by one that was put together before. */
        ck_assert_int_eq(admitted_ns[ahead], keeper.steps[during + (size_t)ahead].record.end_ns);
        keeper_fini(&keeper);
        system_close(system);
    }
    ck_assert_int_gt(admitted_ns[1], admitted_ns[0]);
}

TEST(a_place_that_a_step_frees_is_taken_one_step_later) {
    const struct arrival arrivals[] = {{.id = 0, .prompt_tokens = 64, .output_tokens = 8},
                                       {.id = 1, .prompt_tokens = 64, .output_tokens = 40},
                                       {.id = 2, .prompt_tokens = 64, .output_tokens = 4}};
    for (int ahead = 0; ahead < 2; ahead++) {
        struct keeper keeper = {0};
        struct system *system = vllm((const char *const[]){
            ahead ? "decides_ahead=on" : "decides_ahead=off", "max_requests=2", NULL});
        serve(system, arrivals, 3, &keeper);
        ck_assert_uint_eq(keeper.requests[0].id, 0);
        ck_assert_uint_eq(keeper.requests[1].id, 2);
        int64_t freed_ns = keeper.requests[0].finished_ns;
        size_t next = 0;
        while (keeper.steps[next].record.start_ns < freed_ns) {
            next++;
        }
        ck_assert_int_eq(keeper.requests[1].admitted_ns,
                         ahead ? keeper.steps[next].record.end_ns : freed_ns);
        keeper_fini(&keeper);
        system_close(system);
    }
}

TEST(a_shared_prefix_is_not_computed_again) {
    const struct arrival arrivals[] = {
        {.id = 0, .prompt_tokens = 100, .output_tokens = 4},
        {.id = 1, .prompt_tokens = 100, .output_tokens = 4, .prefix_tokens = 70},
        {.id = 2, .prompt_tokens = 64, .output_tokens = 4, .prefix_tokens = 64}};
    const uint64_t cached[2][3] = {{0, 0, 0}, {0, 64, 48}}; /* whole pages, never a whole prompt */
    for (int caches = 0; caches < 2; caches++) {
        struct keeper keeper = {0};
        struct system *system =
            vllm((const char *const[]){caches ? "prefix_caching=on" : "prefix_caching=off", NULL});
        serve(system, arrivals, 3, &keeper);
        for (size_t i = 0; i < 3; i++) {
            const struct request_record *record = &keeper.requests[i];
            ck_assert_uint_eq(record->tokens_processed,
                              record->prompt_tokens + 3 - cached[caches][record->id]);
        }
        keeper_fini(&keeper);
        system_close(system);
    }
}

TEST(a_preempted_request_computes_what_was_taken_of_it_and_no_more) {
    struct arrival arrivals[24];
    uint64_t processed[2], needed = 0;
    for (uint32_t i = 0; i < 24; i++) {
        arrivals[i] = (struct arrival){
            .id = i, .prompt_tokens = 200 + 10 * i, .output_tokens = 300 + 7 * (i % 5)};
        needed += arrivals[i].prompt_tokens + arrivals[i].output_tokens - 1;
    }
    for (int caches = 0; caches < 2; caches++) {
        struct keeper keeper = {0};
        struct system *system = vllm((const char *const[]){
            caches ? "prefix_caching=on" : "prefix_caching=off", "pool_pages=300", NULL});
        struct loop_result result = serve(system, arrivals, 24, &keeper);
        uint64_t preemptions = 0;
        processed[caches] = 0;
        for (size_t i = 0; i < keeper.n_requests; i++) {
            processed[caches] += keeper.requests[i].tokens_processed;
            preemptions += keeper.requests[i].preemptions;
        }
        ck_assert_uint_eq(result.completed, 24);
        ck_assert_uint_gt(preemptions, 0);
        ck_assert_uint_gt(processed[caches], needed);
        ck_assert_int_le(result.kv_peak_bytes, system->budget.pool_bytes);
        keeper_fini(&keeper);
        system_close(system);
    }
    ck_assert_uint_lt(processed[1], processed[0]);
}

TEST(a_pool_of_more_pages_than_fit_is_refused) {
    REFUSES(1,
            "a pool of 99999 pages does not fit into NVIDIA GeForce RTX 4090 24 GB: memory leaves "
            "2528",
            "run", "--system", "vllm-ar", "--gpu", "rtx4090", "--set", "pool_pages=99999");
}

/* One sequence alone takes 20 ns a key beside the smallest pass, a batch of 64 takes 4 ns a key and
 * sequence by itself and 6 beside a pass. */
static struct profile *made_up_profile(void) {
    static const char text[] =
        "# kind: imported\n# source: a test\n"
        "attention_causal,1,16,16,32,8,128,5\nattention_causal,1,512,512,32,8,128,50\n"
        "attention_decode,1,1,16,32,8,128,1\nattention_decode,1,1,8192,32,8,128,40\n"
        "attention_decode,64,1,16,32,8,128,4.096\nattention_decode,64,1,8192,32,8,128,2097.152\n"
        "attention_mixed,1,16,1024,32,8,128,30\nattention_mixed,1,16,8192,32,8,128,173.36\n"
        "attention_mixed,64,16,1024,32,8,128,398.216\n"
        "attention_mixed,64,512,1024,32,8,128,443.216\n"
        "attention_mixed,64,16,8192,32,8,128,3150.728\n"
        "attention_mixed,64,512,8192,32,8,128,3195.728\n";
    const struct profile_peaks peaks = {.flops = 1e18, .bandwidth = 1e18, .sms = 100};
    struct profile *profile = NULL;
    struct err err = {0};
    ck_assert_msg(profile_parse("made-up", text, sizeof text - 1, &peaks, &profile, &err) == 0,
                  "%s", err.text);
    return profile;
}

static struct profile_spans singles(int64_t n, double keys) {
    return (struct profile_spans){.n_seqs = n,
                                  .sum_q = (double)n,
                                  .sum_kv = (double)n * keys,
                                  .sum_q_kv = (double)n * keys,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128};
}

TEST(beside_a_prefill_single_queries_take_what_the_call_takes_beyond_it) {
    struct profile *profile = made_up_profile();
    struct profile_spans spans = singles(64, 1024);
    enum profile_match match;
    double ns = profile_attention_mixed(profile, &spans, 512, &match);
    ck_assert_double_eq_tol(ns, 64 * 1024 * 6, 1);
    ck_assert_int_eq(match, PROFILE_EXACT);
    spans = singles(64, 2048);
    ns = profile_attention_mixed(profile, &spans, 512, &match);
    ck_assert_double_eq_tol(ns, 64 * 2048 * 6, 1);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    profile_close(profile);
}

TEST(the_longest_sequences_outlast_the_rest) {
    struct profile *profile = made_up_profile();
    struct profile_spans spans = singles(64, 1000);
    double uniform_ns = 4 * spans.sum_kv;
    /* 20 ns a key alone, of which the batch pays 4 anyhow; 8 of them to the second, 12 to the
     * third. From five on none is missing. */
    const uint32_t one[PROFILE_STRAGGLERS] = {5000, 1000, 1000};
    const uint32_t two[PROFILE_STRAGGLERS] = {5000, 3000, 1000, 1000};
    const uint32_t many[PROFILE_STRAGGLERS] = {5000, 5000, 5000, 5000, 5000, 1000};
    ck_assert_double_eq_tol(profile_stragglers(profile, &spans, uniform_ns, one), 4000 * 16, 1);
    ck_assert_double_eq_tol(profile_stragglers(profile, &spans, uniform_ns, two),
                            2000 * 16 + 2000 * 12, 1);
    ck_assert_double_eq_tol(profile_stragglers(profile, &spans, uniform_ns, many), 0, 1);
    profile_close(profile);
}

/* 100 multiprocessors take 160 heads of sequences before the kernel stops splitting: 20 of 8. */
TEST(only_a_batch_that_fills_the_device_has_stragglers) {
    enum { MOST = 21 };
    struct profile *profile = made_up_profile();
    struct span spans[MOST];
    const struct span *list[MOST];
    for (uint32_t i = 0; i < MOST; i++) {
        spans[i] = MAKE(struct span, .phase = PHASE_REUSE, .queries = 1, .first_queries = 1,
                        .context = i == 3 ? 7999 : 999, .exact = 1);
        list[i] = &spans[i];
    }
    for (uint32_t n = 19; n <= MOST; n++) {
        struct step_shape shape;
        enum profile_match match = PROFILE_EXACT;
        shape_clear(&shape);
        for (uint32_t i = 0; i < n; i++) {
            shape_add(shape.sym, &spans[i], 1);
        }
        shape.spans = list;
        shape.n_spans = n;
        struct profile_spans sums = singles(n, (double)shape.sym[SYM_BLOCK_K] / n);
        double ns = profile_varlen_single_ns(profile, &shape, &sums, 1e5, &match);
        double alone_ns = 7000 * (20 - 1e5 / sums.sum_kv);
        ck_assert_double_eq_tol(ns, n < 20 ? 1e5 : 1e5 + alone_ns, 1);
        shape.spans = NULL; /* lengths nobody asked for */
        ck_assert_double_eq(profile_varlen_single_ns(profile, &shape, &sums, 1e5, &match), 1e5);
    }
    profile_close(profile);
}

SUITE("server")
