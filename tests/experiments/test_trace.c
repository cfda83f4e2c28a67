/* `unmask trace`: formats, columns, compressed files, servers' logs, facts and round trips. */
#include <jansson.h>
#include <math.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/support/cli.h"
#include "tests/support/numbers.h"
#include "tests/support/outputs.h"

static const char plain[] = "arrival_us,input_tokens,output_tokens,tenant,answer_tokens\n"
                            "0,374,44,1,40\n"
                            "1500.25,396,109,2,109\n"
                            "4541877,879,55,1,2\n";

static json_t *facts_of(const char *const *words) {
    return json_parsed(cli_text(cli_run(&(const struct child){0}, words)));
}
#define FACTS(...) facts_of((const char *const[]){"trace", "info", __VA_ARGS__, "--json", NULL})

/* The row of a table whose first cell is `name`. */
static const json_t *row_of(const json_t *json, const char *table, const char *key,
                            const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(json, table), i, row) {
        const json_t *cell = json_object_get(row, key);
        char text[64];
        snprintf(text, sizeof text, "%.15g", json_number_value(cell));
        if (strcmp(json_is_string(cell) ? json_string_value(cell) : text, name) == 0) {
            return row;
        }
    }
    ck_abort_msg("no row %s", name);
    return NULL;
}

static void gives(const char *expected, const char *const *words) {
    char *text = cli_text(cli_run(&(const struct child){0}, words));
    ck_assert_str_eq(text, expected);
    free(text);
}
#define CONVERTS(expected, ...)                                                                    \
    gives(expected, (const char *const[]){"trace", "convert", __VA_ARGS__, NULL})

TEST(every_written_format_is_read_again) {
    const char *path = scratch_write("plain.csv", plain);
    json_t *facts = FACTS(path);
    ck_assert_double_eq(number(facts, "tenants"), 2);
    json_decref(facts);
    CONVERTS(plain, path);
    static const struct {
        const char *name, *text, *again;
    } formats[] = {
        {"vidur",
         "arrived_at,num_prefill_tokens,num_decode_tokens\n0,374,44\n0.00150025,396,109\n"
         "4.541877,879,55\n",
         "arrival_us,input_tokens,output_tokens\n0,374,44\n1500.25,396,109\n4541877,879,55\n"},
        /* In whole milliseconds, as the format has them. */
        {"mooncake",
         "{\"timestamp\": 0, \"input_length\": 374, \"output_length\": 44}\n"
         "{\"timestamp\": 2, \"input_length\": 396, \"output_length\": 109}\n"
         "{\"timestamp\": 4542, \"input_length\": 879, \"output_length\": 55}\n",
         "arrival_us,input_tokens,output_tokens\n0,374,44\n2000,396,109\n4542000,879,55\n"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        CONVERTS(formats[i].text, path, "--to", formats[i].name);
        const char *other = scratch_write("other", formats[i].text);
        CONVERTS(formats[i].again, other);
    }
    CONVERTS("input_tokens,output_tokens,answer_tokens\n374,44,40\n396,109,109\n879,55,2\n", path,
             "--to", "plain-lengths");
    const char *lengths = scratch_write("lengths", "input_tokens,output_tokens\n1,2\n");
    CONVERTS("input_tokens,output_tokens\n1,2\n", lengths, "--to", "plain-lengths");
    REFUSES(2, "has lengths alone, and plain wants times", "trace", "convert", lengths);
}

TEST(a_file_that_was_written_serves_the_same_requests) {
    const char *out = scratch_path("burst.csv");
    char *text = PRINTS("trace", "convert", "burst", "--requests", "50", "--rate", "2", "--seed",
                        "3", "--out", out);
    free(text);
    text = PRINTS("run", "--workload", out, "--json");
    json_t *ours = json_loads(text, 0, NULL);
    free(text);
    text = PRINTS("run", "--workload", "burst", "--requests", "50", "--rate", "2", "--seed", "3",
                  "--json");
    json_t *theirs = json_loads(text, 0, NULL);
    free(text);
    /* The first arrival is moved to 0. */
    ck_assert_double_eq_tol(number(json_object_get(ours, "latency_s"), "p99"),
                            number(json_object_get(theirs, "latency_s"), "p99"), 1e-6);
    ck_assert_double_eq_tol(number(ours, "makespan_s"), number(theirs, "makespan_s"), 1e-6);
    json_decref(ours);
    json_decref(theirs);
}

static const char *write_bytes(const char *name, const void *bytes, size_t n) {
    const char *path = scratch_write(name, "");
    FILE *file = fopen(path, "wb");
    ck_assert(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
    return path;
}

TEST(compressed_files_are_read_as_what_is_in_them) {
    unsigned char packed[2][1024];
    z_stream gzip = {.next_in = (unsigned char *)plain,
                     .avail_in = sizeof plain - 1,
                     .next_out = packed[0],
                     .avail_out = sizeof packed[0]};
    ck_assert(deflateInit2(&gzip, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK &&
              deflate(&gzip, Z_FINISH) == Z_STREAM_END && deflateEnd(&gzip) == Z_OK);
    size_t sizes[2] = {gzip.total_out,
                       ZSTD_compress(packed[1], sizeof packed[1], plain, sizeof plain - 1, 3)};
    ck_assert(!ZSTD_isError(sizes[1]));
    for (int i = 0; i < 2; i++) {
        const char *path = write_bytes(i == 0 ? "t.csv.gz" : "t", packed[i], sizes[i]);
        CONVERTS(plain, path);
        char *text = PRINTS("run", "--workload", path, "--requests", "9"); /* which rewinds it */
        free(text);
        for (size_t n = 5; n < sizes[i]; n += i == 0 ? 1 : 7) { /* wherever it is cut off */
            path = write_bytes("cut", packed[i], n);
            REFUSES(1, "the compressed data is damaged or cut off", "trace", "info", path);
        }
    }
    packed[0][30] ^= 0x55;
    const char *path = write_bytes("bad.gz", packed[0], sizes[0]);
    struct output output = CLI("trace", "info", path);
    ck_assert_int_eq(output.status, 1);
    output_free(&output);
}

TEST(columns_of_ones_own_are_named) {
    const char *csv = scratch_write("own.csv", "user,when,prompt_tokens,completion_tokens,x\n"
                                               "7,1000.5,374,44,a b\n8,1002,396,109,\n");
    CONVERTS("arrival_us,input_tokens,output_tokens,tenant\n0,374,44,7\n1500,396,109,8\n", csv,
             "--columns", "time=when:ms,input=prompt_tokens,output=completion_tokens,tenant=user");
    const char *json = scratch_write(
        "own.jsonl", "{\"at\": \"2025-05-27T20:00:16.5\", \"in\": 12, \"out\": 5, \"hit\": 4}\n"
                     "{\"at\": \"2025-05-27T20:00:14\", \"in\": 10, \"out\": 6, \"hit\": 0}\n");
#define OWN "time=at:date,input=in,output=out,prefix=hit"
    CONVERTS("arrival_us,input_tokens,output_tokens,prefix_tokens\n0,10,6,0\n2500000,12,5,4\n",
             json, "--sort", "--columns", OWN);
    REFUSES(1, "own.jsonl:2: found an arrival 2.5 s before the previous row's", "trace", "info",
            json, "--columns", OWN);
    REFUSES(1, "own.csv:1: found a line which lacks a column that --columns names", "trace", "info",
            csv, "--columns", "input=prompt_tokens,output=completion");
    REFUSES(1,
            "own.csv:1: expected the first line of a known trace format, a server's log, or "
            "`unmask trace convert --columns`",
            "trace", "info", csv);
    const char *quoted = scratch_write("quoted.csv", "\"in\",text,out\n\"5\",\"a, \"\"b\"\"\",7\n"
                                                     "6,\"\",\"8\"\n");
    CONVERTS("input_tokens,output_tokens\n5,7\n6,8\n", quoted, "--to", "plain-lengths", "--columns",
             "input=in,output=out");
    REFUSES(1, "quoted.csv:2: found a quote that is not closed", "trace", "info",
            scratch_write("quoted.csv", "in,text,out\n5,\"a, b,7\n"), "--columns",
            "input=in,output=out");
    static const char *const bad[][2] = {
        {"time=when,input=a,output=b", "'time=when' lacks its unit"},
        {"time=when:h,input=a,output=b", "'time=when:h' lacks its unit"},
        {"input=a", "output is missing"},
        {"inputs=a,output=b", "'inputs=a' is not COLUMN=NAME; did you mean 'input'?"},
        {"input=a,output=", "'output=' is not COLUMN=NAME"},
        {"input=a,input=b,output=c", "input is named twice"},
        {"", "'' is not COLUMN=NAME"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        REFUSES(2, bad[i][1], "trace", "info", csv, "--columns", bad[i][0]);
    }
}

TEST(results_of_serving_benchmarks_are_traces) {
    const char *vllm = scratch_write(
        "bench.json", "{\"date\": \"20250527\", \"backend\": \"vllm\", \"duration\": 3.5, "
                      "\"input_lens\": [12, 20, 7, 9], \"output_lens\": [5, 0, 6, 3], "
                      "\"ttfts\": [0.1, 0, 0.1, 0.1], \"itls\": [[0.1], [], [], []], "
                      "\"start_times\": [102.25, 101, 100.125, 100.5], \"errors\": [\"\", \"x\"]}");
    CONVERTS("arrival_us,input_tokens,output_tokens\n0,7,6\n375000,9,3\n2125000,12,5\n", vllm);
    json_t *json = FACTS(vllm);
    ck_assert_double_eq(number(json, "failed"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json, "format")), "serving-bench");
    json_decref(json);
    const char *sglang = scratch_write("bench.jsonl", "{\"backend\": \"sglang\", \"input_lens\": "
                                                      "[12, 20], \"output_lens\": [5, 8]}\n");
    CONVERTS("input_tokens,output_tokens\n12,5\n20,8\n", sglang, "--to", "plain-lengths");
    char *info = PRINTS("trace", "info",
                        scratch_write("bench_more.json",
                                      "{\"input_lens\": [12, 20], \"output_lens\": [5, 6], "
                                      "\"deadlines\": [1, 2], \"percentiles\": [1]}"));
    ck_assert_msg(strstr(info, "columns not read: deadlines\n") != NULL, "%s", info);
    free(info);
    REFUSES(1, "found 2 input_lens, 1 output_lens", "trace", "info",
            scratch_write("b", "{\"input_lens\": [1, 2], \"output_lens\": [5]}"));
    REFUSES(1, "element 1 of the lists is no number", "trace", "info",
            scratch_write("b", "{\"input_lens\": [1, \"2\"], \"output_lens\": [5, 6]}"));
    REFUSES(1, "b:1: found no whole JSON object", "trace", "info",
            scratch_write("b", "{\"input_lens\": [1, 2], \"output_lens\""));
    REFUSES(1, "found several results", "trace", "info",
            scratch_write("b", "{\"input_lens\": [1], \"output_lens\": [5]}\n"
                               "{\"input_lens\": [1], \"output_lens\": [5]}\n"));
}

TEST(request_logs_of_vllm_are_traces) {
    /* Streamed in pieces; two prompts of one completion; one that is never answered. */
    const char *text = scratch_write(
        "vllm.log",
        "(APIServer pid=7) INFO 11-20 10:00:00 [launcher.py:29] Available routes are:\n"
        "(APIServer pid=7) DEBUG 11-20 10:00:05 [logger.py:40] Request chatcmpl-aa details: "
        "prompt: 'Say prompt_token_ids: [1, 2] twice\\n', prompt_token_ids: [5, 6, 7, 128009], "
        "prompt_embeds shape: None.\n"
        "(APIServer pid=7) INFO 11-20 10:00:05 [logger.py:46] Received request chatcmpl-aa: "
        "params: SamplingParams(n=1, max_tokens=64), lora_request: None.\n"
        "(APIServer pid=7) INFO 11-20 10:00:06 [logger.py:46] Generated response chatcmpl-aa "
        "(streaming delta): output: 'a', output_token_ids: [9], finish_reason: None\n"
        "(APIServer pid=7) INFO 11-20 10:00:06 [logger.py:46] Generated response chatcmpl-aa "
        "(streaming delta): output: 'b', output_token_ids: [10, 11], finish_reason: stop\n"
        "(APIServer pid=7) INFO 11-20 10:00:06 [logger.py:46] Generated response chatcmpl-aa "
        "(streaming complete): output: 'ab', output_token_ids: None, finish_reason: "
        "streaming_complete\n"
        "INFO 11-20 10:00:09 [logger.py:42] Received request cmpl-b-0: prompt: 'x', params: "
        "SamplingParams(n=1), prompt_token_ids: [3, 4], prompt_embeds shape: None, lora_request: "
        "None.\n"
        "INFO 11-20 10:00:09 [logger.py:42] Received request cmpl-b-1: prompt: 'y', params: "
        "SamplingParams(n=1), prompt_token_ids: [3, 4, 5], prompt_embeds shape: None, "
        "lora_request: None.\n"
        "INFO 11-20 10:00:10 [logger.py:42] Generated response cmpl-b: output: 'q', "
        "output_token_ids: [1, 2, 3, 4], finish_reason: length\n"
        "INFO 11-20 10:00:10 [logger.py:42] Generated response cmpl-b: output: 'q', "
        "output_token_ids: [1, 2], finish_reason: length\n"
        "INFO 11-20 10:00:11 [logger.py:42] Received request cmpl-c-0: prompt: 'never', params: "
        "SamplingParams(n=1), prompt_token_ids: [3], prompt_embeds shape: None, lora_request: "
        "None.\n");
    CONVERTS("arrival_us,input_tokens,output_tokens\n0,4,3\n4000000,2,4\n4000000,3,2\n", text);
    REFUSES(
        1, "found 1 requests and 0 with output_token_ids", "trace", "info",
        scratch_write("v", "INFO 11-20 10:00:05 [logger.py:46] Received request a: params: x\n"));
    REFUSES(1, "found request a without its prompt_token_ids", "trace", "info",
            scratch_write("v", "INFO 11-20 10:00:05 [logger.py:46] Received request a: params: x\n"
                               "INFO 11-20 10:00:06 [logger.py:46] Generated response a: output: "
                               "'q', output_token_ids: [1], finish_reason: stop\n"));
    REFUSES(1, "v:2: found a request without its time", "trace", "info",
            scratch_write("v", "INFO 11-20 10:00:05 [logger.py:46] Received request a: params: x\n"
                               "[logger.py:46] Received request b: params: x\n"));
    REFUSES(1, "v:2: found an unfinished last line", "trace", "info",
            scratch_write("v", "INFO 11-20 10:00:05 [logger.py:46] Received request a: params: x\n"
                               "INFO 11-20 10:00:06 [logger.py:46] Generated resp"));
}

TEST(conversations_are_read_told_and_written) {
    const char *text = scratch_write("talk.csv", "when,who,in,out,pause\n0,a,10,5,\n1,b,12,6,\n"
                                                 "2,a,40,5,1.5\n3,,9,5,\n");
    const char *columns = "time=when:s,input=in,output=out,session=who,think=pause:s";
    CONVERTS("arrival_us,input_tokens,output_tokens,session,think_us\n"
             "0,10,5,12638187200555641996,\n1000000,12,6,12638190499090526629,\n"
             "2000000,40,5,12638187200555641996,1500000\n3000000,9,5,,\n",
             text, "--columns", columns);
    char *info = PRINTS("trace", "info", text, "--columns", columns);
    ck_assert_ptr_nonnull(strstr(info, "2 conversations of 1.5 turns in the mean"));
    free(info);
    REFUSES(2, "'think=pause' lacks its unit: think=NAME:s", "trace", "info", text, "--columns",
            "input=in,output=out,session=who,think=pause");
    REFUSES(1, "'x' in think_us", "trace", "info",
            scratch_write("t", "arrival_us,input_tokens,output_tokens,session,think_us\n"
                               "0,1,1,a,x\n"));
}

TEST(request_logs_of_sglang_are_traces) {
    const char *text = scratch_write(
        "server.log",
        "[2025-05-27 20:00:01] server_args=ServerArgs(model_path='m')\n"
        "[2025-05-27 20:00:10] Receive: obj=GenerateReqInput(rid='a', text='hi')\n"
        "[2025-05-27 20:00:14 TP0] Finish: obj=GenerateReqInput(rid='a', text=\"'prompt_tokens': "
        "1\"), out={'text': 'x', 'meta_info': {'id': 'a', 'prompt_tokens': 320, "
        "'completion_tokens': 220, 'cached_tokens': 80, 'e2e_latency': 3.5}}\n"
        "[2025-05-27 20:00:15] Decode batch. #running-req: 1\n"
        "[2025-05-27 20:00:16] Finish: obj=GenerateReqInput(rid='b'), out={'meta_info': "
        "{'prompt_tokens': 7, 'completion_tokens': 0, 'e2e_latency': 0.5}}\n"
        "[2025-05-27 20:00:15] Finish: obj=GenerateReqInput(rid='c'), out={'meta_info': "
        "{'prompt_tokens': 30, 'completion_tokens': 22, 'e2e_latency': 5.0}}\n");
    CONVERTS("arrival_us,input_tokens,output_tokens\n0,30,22\n500000,320,220\n", text);
    const char *json = scratch_write(
        "server.jsonl",
        "{\"timestamp\": \"2025-05-27T20:00:10.5\", \"event\": \"request.received\", \"rid\": "
        "\"a\"}\n"
        "{\"timestamp\": \"2025-05-27T20:00:14.25\", \"event\": \"request.finished\", \"out\": "
        "{\"meta_info\": {\"prompt_tokens\": 3, \"completion_tokens\": 4, \"e2e_latency\": 2}}}\n"
        "{\"timestamp\": \"2025-05-27T20:00:15\", \"event\": \"request.finished\", \"out\": "
        "{\"meta_info\": {\"prompt_tokens\": 5, \"completion_tokens\": 6, \"e2e_latency\": 2}}}\n");
    CONVERTS("arrival_us,input_tokens,output_tokens\n0,3,4\n750000,5,6\n", json);
    static const char head[] = "[2025-05-27 20:00:01] server_args=ServerArgs(model_path='m')\n";
    static const char *const bad[][2] = {
        {"", "found no finished request"},
        {"[2025-05-27 20:00:16] Finish: obj=G(), out={'prompt_tokens': 7, 'e2e_latency': 1.0}\n",
         "log:2: found a finished request without prompt_tokens and completion_tokens"},
        {"[2025-05-27 20:00:16] Finish: obj=G(), out={'prompt_tokens': 7, 'completion_tokens': "
         "3}\n",
         "log:2: found a finished request without its time and e2e_latency"},
        {"[2025-05-27 20:00:16] Finish: obj=G(), out={'prompt_tokens': 7, 'completion_tok",
         "log:2: found an unfinished last line"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char whole[512];
        snprintf(whole, sizeof whole, "%s%s", head, bad[i][0]);
        REFUSES(1, bad[i][1], "trace", "info", scratch_write("log", whole));
    }
}

TEST(hash_ids_are_prefixes_that_prefix_caching_uses) {
    const char *path = scratch_write(
        "mooncake.jsonl",
        "{\"timestamp\": 0, \"input_length\": 1500, \"output_length\": 4, \"hash_ids\": [0, 1, "
        "2]}\n"
        "{\"timestamp\": 60000, \"input_length\": 1100, \"output_length\": 4, \"hash_ids\": [0, 1, "
        "5]}\n"
        "{\"timestamp\": 120000, \"input_length\": 1500, \"output_length\": 4, \"hash_ids\": [0, "
        "1, "
        "2]}\n"
        "{\"timestamp\": 180000, \"input_length\": 900, \"output_length\": 4, \"hash_ids\": [9, "
        "1]}\n");
    CONVERTS("arrival_us,input_tokens,output_tokens,prefix_tokens\n0,1500,4,0\n60000000,1100,4,1024"
             "\n120000000,1500,4,1500\n180000000,900,4,0\n",
             path);
    json_t *json = FACTS(path);
    ck_assert_double_eq(number(json, "shared_prompt_tokens"), 2524);
    json_decref(json);
    double tokens[2];
    static const char *const caching[] = {"prefix_caching=off", "prefix_caching=on"};
    for (int i = 0; i < 2; i++) {
        char *text = PRINTS("run", "--system", "vllm-ar", "--gpu", "h100", "--workload", path,
                            "--set", caching[i], "--json");
        json = json_loads(text, 0, NULL);
        free(text);
        tokens[i] = number(json, "tokens_processed");
        json_decref(json);
    }
    ck_assert(tokens[0] - tokens[1] > 2400 && tokens[0] - tokens[1] <= 2524);
    REFUSES(1, "hash:1: found -1 in hash_ids", "trace", "info",
            scratch_write("hash", "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 4, "
                                  "\"hash_ids\": [-1]}\n"));
}

/* A replica has of a conversation what it computed itself: one that goes elsewhere starts anew. */
TEST(a_prefix_is_where_the_turn_before_was_served) {
    const char *path = scratch_write("talks.csv", "arrival_us,input_tokens,output_tokens,session\n"
                                                  "0,500,16,a\n"         /* round robin: 0 */
                                                  "20000000,600,16,a\n"  /* 1 */
                                                  "40000000,700,16,b\n"  /* 0 */
                                                  "60000000,800,16,b\n"  /* 1 */
                                                  "80000000,16,16,b\n"); /* too short to share */
    static const struct {
        const char *router, *replicas;
        double shared; /* of 516 and 716, whole pages of 16 */
    } cases[] = {{"router=round-robin", "1", 512 + 704},
                 {"router=round-robin", "2", 0},
                 {"router=prefix-aware", "2", 512 + 704},
                 {"router=prefix-aware", "200", 512 + 704}};
    double most = 0;
    for (int i = -1; i < 4; i++) {
        char *text = PRINTS("run", "--system", "vllm-ar", "--gpu", "h100", "--workload", path,
                            "--set", i < 0 ? "prefix_caching=off" : "prefix_caching=on", "--set",
                            i < 0 ? "router=round-robin" : cases[i].router, "--replicas",
                            i < 0 ? "1" : cases[i].replicas, "--json");
        json_t *json = json_loads(text, 0, NULL);
        free(text);
        double tokens = number(json, "tokens_processed");
        most = i < 0 ? tokens : most;
        ck_assert_double_eq_tol(most - tokens, i < 0 ? 0 : cases[i].shared, 0.5);
        json_decref(json);
    }
}

TEST(facts_are_those_of_the_rows) {
    char rows[16384] = "arrival_us,input_tokens,output_tokens\n";
    for (int i = 0; i < 401; i++) { /* one a second, by fours */
        size_t used = strlen(rows);
        snprintf(rows + used, sizeof rows - used, "%d,%d,50\n", i / 4 * 4000000,
                 i % 10 == 0 ? 3000 : 100);
    }
    const char *path = scratch_write("rows.csv", rows);
    json_t *json = FACTS(path, "--context", "3000");
    ck_assert_double_eq(number(json, "requests"), 401);
    ck_assert_double_eq_tol(number(json, "rate_req_s"), 1, 1e-9);
    const json_t *gap = row_of(json, "distributions", "of a request", "gap_s");
    ck_assert_double_eq_tol(number(gap, "mean"), 1, 1e-9);
    ck_assert_double_eq_tol(number(gap, "cv"), sqrt(3), 0.01); /* 0 three times, then 4 */
    const json_t *second = row_of(json, "windows", "window_s", "1");
    ck_assert_double_eq_tol(number(second, "dispersion"), 3, 0.02);
    ck_assert_double_eq(number(second, "most"), 4);
    const json_t *context = row_of(json, "contexts", "context", "3000");
    ck_assert_double_eq(number(context, "dropped"), 41);
    ck_assert_double_eq(number(context, "dropped if truncated"), 0);
    ck_assert_double_eq(number(row_of(json, "contexts", "context", "4096"), "dropped"), 0);
    json_decref(json);
    struct output output = CLI("trace", "convert", path, "--context", "3000");
    ck_assert(output.status == 0 && strstr(output.err, "360 rows as plain; 41 longer") != NULL);
    output_free(&output);
    json = FACTS("burst", "--rate", "4", "--requests", "4000");
    ck_assert_double_eq_tol(number(json, "rate_req_s"), 4, 0.2);
    ck_assert_double_eq_tol(number(row_of(json, "windows", "window_s", "1"), "dispersion"), 1,
                            0.15);
    json_decref(json);
}

static char *said_by(const char *const *words) {
    struct output output = cli_run(&(const struct child){0}, words);
    ck_assert_msg(output.status == 0, "%s", output.err);
    free(output.out);
    return output.err;
}
#define SAYS(sentence, ...)                                                                        \
    do {                                                                                           \
        char *said = said_by((const char *const[]){__VA_ARGS__, NULL});                            \
        ASSERT_SAYS(said, sentence);                                                               \
        free(said);                                                                                \
    } while (0)

/* The warning of a run with this code; NULL: there is none. The caller releases the run. */
static const json_t *warning_of(const json_t *run, const char *code) {
    size_t i;
    json_t *warning;
    json_array_foreach(json_object_get(run, "warnings"), i, warning) {
        if (strcmp(json_string_value(json_object_get(warning, "code")), code) == 0) {
            return warning;
        }
    }
    return NULL;
}

TEST(what_is_not_read_is_named_in_every_output) {
    const char *path =
        scratch_write("images.csv", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
                                    "2025-01-01 00:00:00.0000000,4,1000,20\n"
                                    "2025-01-01 00:00:01.0000000,0,200,30\n");
    char *info = PRINTS("trace", "info", path);
    ck_assert_ptr_nonnull(strstr(info, "columns not read: NumImages\n"));
    free(info);
    json_t *facts = FACTS(path);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(facts, "unread"), 0)),
                     "NumImages");
    json_decref(facts);
    SAYS("columns not read: NumImages", "trace", "convert", path);
    json_t *run = json_parsed(PRINTS("run", "--workload", path, "--json"));
    const json_t *warning = warning_of(run, "columns-unread");
    ck_assert_ptr_nonnull(warning);
    ck_assert_double_eq(number(warning, "value"), 1);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(warning, "text")), "NumImages"));
    json_decref(run);
    run = json_parsed(PRINTS("run", "--workload", "burst-replay", "--requests", "5", "--json"));
    ck_assert_ptr_null(warning_of(run, "columns-unread")); /* its file passes them over */
    json_decref(run);
}

/* A run of the trace is a run of what convert makes of it, and says what was taken for granted. */
TEST(units_and_blocks_are_the_same_in_every_command) {
    const char *path = scratch_write(
        "replay.jsonl",
        "{\"timestamp\":0.0,\"input_length\":256,\"output_length\":8,\"hash_ids\":[7,8,9,10]}\n"
        "{\"timestamp\":2.5,\"input_length\":256,\"output_length\":8,\"hash_ids\":[7,11,12,13]}\n");
    static const char rows[] =
        "arrival_us,input_tokens,output_tokens,prefix_tokens\n0,256,8,0\n2500000,256,8,64\n";
    REFUSES(2, "replay.jsonl:1: 0.0 in timestamp --time-unit s or ms", "trace", "convert", path);
    REFUSES(2, "replay.jsonl:1: 0.0 in timestamp --time-unit s or ms", "run", "--workload", path);
    REFUSES(2, "--hash-tokens 512: 4 hash ids for 256 tokens; 64 would fit", "run", "--workload",
            path, "--time-unit", "s", "--hash-tokens", "512");
    CONVERTS(rows, path, "--time-unit", "s");
    CONVERTS(rows, path, "--time-unit", "s", "--hash-tokens", "64");
    SAYS("a hash id stands for 64 tokens", "trace", "convert", path, "--time-unit", "s");
    json_t *run =
        json_parsed(PRINTS("run", "--workload", path, "--time-unit", "s", "--system", "vllm-ar",
                           "--gpu", "h100", "--set", "prefix_caching=on", "--json"));
    json_t *same =
        json_parsed(PRINTS("run", "--workload", scratch_write("plain.csv", rows), "--system",
                           "vllm-ar", "--gpu", "h100", "--set", "prefix_caching=on", "--json"));
    ck_assert_ptr_nonnull(warning_of(run, "trace-assumed"));
    ck_assert_ptr_null(warning_of(same, "trace-assumed"));
    ck_assert_double_eq(number(run, "tokens_processed"), number(same, "tokens_processed"));
    ck_assert(json_equal(json_object_get(run, "latency_s"), json_object_get(same, "latency_s")));
    json_decref(run);
    json_decref(same);
}

TEST(a_repeated_and_a_rescaled_trace_say_so) {
    const char *path = scratch_write("two.csv", "arrival_us,input_tokens,output_tokens\n"
                                                "0,64,8\n1000000,64,8\n");
    static const struct {
        const char *requests, *rate;
        double rounds; /* 0: no warning */
    } cases[] = {{"2", NULL, 0}, {"10", NULL, 5}, {"3", "2", 1.5}, {"2", "2", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *run =
            json_parsed(PRINTS("run", "--workload", path, "--requests", cases[i].requests, "--json",
                               cases[i].rate != NULL ? "--rate" : NULL, cases[i].rate));
        const json_t *warning = warning_of(run, "repeated");
        ck_assert((warning != NULL) == (cases[i].rounds > 0));
        ck_assert(warning == NULL || number(warning, "value") == cases[i].rounds);
        const char *says = json_string_value(json_object_get(run, "trace_provenance"));
        ck_assert((strstr(says, "rescaled") != NULL) == (cases[i].rate != NULL));
        json_decref(run);
    }
}

TEST(rows_that_are_left_out_are_counted_in_every_output) {
    const char *path =
        scratch_write("failed.csv", "arrival_time_us,input_tokens,output_tokens,status,model\n"
                                    "0,9,1,ok,a\n1,9,0,timeout,a\n2,8,1,ok,b\n");
    SAYS("left out: 1 failed row, 1 row by --where", "trace", "convert", path, "--where",
         "model=a");
    char *info = PRINTS("trace", "info", path, "--where", "model!=b");
    ck_assert_ptr_nonnull(strstr(info, "\nleft out: 1 failed row, 1 row by --where\n"));
    free(info);
    json_t *facts = FACTS(path, "--where", "model=a");
    ck_assert(number(facts, "failed") == 1 && number(facts, "left_out") == 1);
    json_decref(facts);
    char *run = PRINTS("run", "--workload", path, "--where", "model=a");
    ck_assert_ptr_nonnull(
        strstr(run, "Skipped 1 failed row of the trace. Left out 1 row of the trace by `where`."));
    free(run);
    /* Of a whole round, however few rows of the last one were wanted. */
    path = scratch_write(
        "rounds.jsonl",
        "{\"t\":0,\"in\":9,\"out\":1,\"code\":200}\n{\"t\":1,\"in\":9,\"out\":1,\"code\":200}\n"
        "{\"t\":2,\"in\":9,\"out\":1,\"code\":500}\n{\"t\":3,\"in\":9,\"out\":1,\"code\":200}\n");
    run = PRINTS("run", "--workload", path, "--columns", "time=t:s,input=in,output=out", "--where",
                 "code=200", "--requests", "4");
    ck_assert_ptr_nonnull(strstr(run, "Left out 1 row of the trace by `where`."));
    free(run);
}

TEST(lengths_alone_say_what_might_be_their_time) {
    const char *when = scratch_write("when.csv", "when,input_tokens,output_tokens\n0,100,20\n");
    REFUSES(2,
            "found only lengths; 'when' is not read: --columns "
            "time=when:UNIT,input=input_tokens,output=output_tokens",
            "run", "--workload", when);
    REFUSES(2, "has lengths alone, and plain wants times; 'when' is not read: --columns", "trace",
            "convert", when);
    const char *named = scratch_write("named.csv", "timestamp_s,input_tokens,output_tokens\n"
                                                   "0.0,100,20\n1.5,80,30\n");
    CONVERTS("arrival_us,input_tokens,output_tokens\n0,100,20\n1500000,80,30\n", named);
    SAYS("--columns time=timestamp_s:s,input=input_tokens,output=output_tokens", "trace", "convert",
         named);
    const char *offline = scratch_write(
        "offline.jsonl", "{\"request_id\":0,\"input_length\":100,\"output_length\":20}\n"
                         "{\"request_id\":1,\"input_length\":80,\"output_length\":30}\n");
    json_t *run =
        json_parsed(PRINTS("run", "--workload", offline, "--arrivals", "all-at-once", "--json"));
    ck_assert_double_eq(number(run, "requests"), 2);
    json_decref(run);
}

TEST(texts_have_the_lengths_that_a_tokenizer_counts) {
    const char *talks = scratch_write(
        "talks.json",
        "[{\"conversations\":[{\"from\":\"human\",\"value\":\"hello there\"},{\"from\":"
        "\"gpt\",\"value\":\"Hi\"}]}]");
    REFUSES(2, "ShareGPT's JSON --tokenizer", "trace", "info", talks);
    char *text = PRINTS("trace", "convert", talks, "--to", "plain-lengths", "--tokenizer",
                        "experiments/train/models/sdar-2m");
    unsigned input = 0, output = 0;
    ck_assert_int_eq(sscanf(text, "input_tokens,output_tokens\n%u,%u\n", &input, &output), 2);
    ck_assert(input >= 2 && input <= 11 && output >= 1 && output <= 2);
    free(text);
    json_t *facts =
        FACTS(scratch_write("batch.jsonl",
                            "{\"custom_id\":\"a\",\"body\":{\"messages\":[{\"role\":\"user\","
                            "\"content\":\"hello there\"}],\"max_tokens\":9}}\n"),
              "--tokenizer", "experiments/train/models/sdar-2m");
    ck_assert_double_eq(number(facts, "prompt_tokens"), input);
    ck_assert_double_eq(number(facts, "output_tokens"), 9);
    json_decref(facts);
}

TEST(the_help_of_a_group_lists_its_verbs) {
    char *text = PRINTS("trace", "--help");
    ck_assert(strstr(text, "trace info ") != NULL && strstr(text, "trace convert ") != NULL);
    free(text);
    text = PRINTS("plan", "--help");
    ck_assert(strstr(text, "plan lmax ") != NULL && strstr(text, "plan latency ") != NULL &&
              strstr(text, "plan allocator ") != NULL && strstr(text, "--instance") != NULL);
    free(text);
}

TEST(what_makes_no_sense_is_refused) {
    const char *path = scratch_write("plain.csv", plain);
    REFUSES(2, "expected one trace file, workload or INI file", "trace", "info");
    REFUSES(2, "no format 'azure' is written", "trace", "convert", path, "--to", "azure");
    REFUSES(2, "--rate and --seed are a workload's", "trace", "info", path, "--rate", "2");
    REFUSES(2, "--columns and --sort are for files", "trace", "info", "burst", "--sort");
    REFUSES(1, "no request fits into a context of 20 tokens", "trace", "convert", path, "--context",
            "20");
    REFUSES(1, "cannot open nope.csv", "trace", "info", "nope.csv");
    REFUSES(2, "has prompts, which have no lengths", "trace", "info",
            scratch_write("prompts.jsonl", "{\"id\": \"a\", \"prompt\": \"x\"}\n"));
}

/* A row of another kind, an empty one, one that is cut off, one that came before the last. */
TEST(rows_that_cannot_be_read_are_left_out_and_counted_where_asked) {
    const char *path = scratch_write("bad.csv", "arrival_us,input_tokens,output_tokens\n0,100,20\n"
                                                "5,abc,20\n9,100,20\n\n12,100\n8,100,7\n"
                                                "15,100,30\n");
    struct output output = CLI("trace", "convert", path, "--skip-bad");
    ck_assert_int_eq(output.status, 0);
    ck_assert_str_eq(output.out, "arrival_us,input_tokens,output_tokens\n0,100,20\n9,100,20\n"
                                 "15,100,30\n");
    ck_assert_ptr_nonnull(strstr(output.err, "left out 4 rows that cannot be read; the first: "));
    ck_assert_ptr_nonnull(strstr(output.err, "bad.csv:3: found 'abc' in input_tokens"));
    output_free(&output);
    REFUSES(1, "bad.csv:3: found 'abc' in input_tokens", "trace", "convert", path);
    REFUSES(1, "(--skip-bad leaves out rows that cannot be read)", "trace", "convert", path);
    /* So does every command that serves a trace. */
    REFUSES(1, "(--skip-bad leaves out rows that cannot be read)", "run", "--workload", path);
    output = CLI("run", "--workload", path, "--skip-bad", "--json");
    ck_assert_int_eq(output.status, 0);
    ASSERT_SAYS(output.out, "\"completed\": 3");
    output_free(&output);
    output = CLI("compare", "--systems", "dllm-serve", "--workload", path, "--skip-bad");
    ck_assert_int_eq(output.status, 0);
    ASSERT_SAYS(output.out, "Left out 4 rows of the trace that cannot be read.");
    output_free(&output);
    path = scratch_write("worse.csv", "arrival_us,input_tokens,output_tokens\nx\n");
    REFUSES(1, "no row is left: 1 cannot be read, the first: worse.csv:2: found 1 field", "trace",
            "info", path, "--skip-bad");
    path =
        scratch_write("bad.jsonl", "{\"timestamp\":0,\"input_length\":5,\"output_length\":6,"
                                   "\"hash_ids\":[1]}\n{\"timestamp\":\n"
                                   "{\"timestamp\":7000,\"input_length\":500,\"output_length\":6,"
                                   "\"hash_ids\":[2]}\n");
    output = CLI("trace", "info", path, "--skip-bad", "--time-unit", "ms", "--hash-tokens", "512");
    ck_assert_int_eq(output.status, 0);
    ck_assert_ptr_nonnull(strstr(output.out, "2 requests in 7 s"));
    ck_assert_ptr_nonnull(strstr(output.err, "left out 1 row that cannot be read"));
    output_free(&output);
}

SUITE("trace")
