/* What a server logged when it started: read as every version prints it, applied, told or refused.
 */
#include "experiments/study/start_log.h"
#include "tests/support/asked_server.h"

static const char PRO_6000[] = "experiments/study/reference/vllm_llama31_8b_rtx_pro_6000.csv";

/* Lines as vLLM 0.9 to 0.25, V0 and SGLang write them, shortened. */
#define V1_HEAD "(APIServer pid=1) INFO 06-01 09:20:16 [utils.py:278] non-default args: "
#define V1_CONFIG                                                                                  \
    "INFO 09-03 16:28:23 [core.py:75] Initializing a V1 LLM engine (v0.10.2) with config: "        \
    "model='m', speculative_config=None, dtype=torch.bfloat16, max_seq_len=8192, "                 \
    "tensor_parallel_size=2, quantization=%s, kv_cache_dtype=%s, "                                 \
    "compilation_config={'level': 3, 'max_num_seqs': 9, 'x': [1, (2, '}')]}, "                     \
    "enable_prefix_caching=True\n"
#define NAMESPACE                                                                                  \
    "INFO 07-02 api_server.py:712] args: Namespace(host=None, model='m', lora_modules=None, "      \
    "quantization=%s, load_format='auto', dtype='auto', kv_cache_dtype='auto', "                   \
    "max_model_len=4096, tensor_parallel_size=4, max_num_seqs=64, rope_scaling={'factor': 4.0}, "  \
    "speculative_model=%s, swap_space=4, config_format=<ConfigFormat.AUTO: 'auto'>)\n"
#define SGLANG                                                                                     \
    "[2026-03-04 15:12:54] server_args=ServerArgs(model_path='m', host='127.0.0.1', dtype="        \
    "'auto', quantization=%s, kv_cache_dtype='auto', mem_fraction_static=0.9, "                    \
    "max_running_requests=None, chunked_prefill_size=4096, page_size=1, tp_size=2, "               \
    "speculative_algorithm=%s, disable_radix_cache=True, random_seed=7, model_loader_extra_"       \
    "config='{}', served_model_name=\"it's\")\n[2026-03-04 15:13:14] "                             \
    "max_total_num_tokens=421472, chunked_prefill_size=4096, max_running_requests=48, "            \
    "context_len=40960\n"

static struct start_log *read_log(const char *text) {
    static struct start_log log;
    struct err err = {0};
    ck_assert_msg(start_log_read(scratch_write("s.log", text), &log, &err) == 0, "%s", err.text);
    return &log;
}

static const char *taken(const struct start_log *log, const char *key) {
    const struct log_argument *argument = start_log_taken(log, key);
    return argument != NULL ? argument->set : "";
}

static const char *list(const struct start_log *log, enum log_use use) {
    static char text[512];
    return start_log_list(log, use, text, sizeof text);
}

TEST(arguments_are_read_as_each_version_prints_them) {
    char text[2048];
    struct start_log *log = read_log(
        V1_HEAD
        "{'model': \"/it's\", 'served_model_name': ['a', 'max_num_seqs'], 'dtype': 'float16', "
        "'override_generation_config': {'top_k': 20, 'max_num_seqs': 3}, "
        "'tensor_parallel_size': 2, 'enable_prefix_caching': False, 'async_scheduling': "
        "True,\n 'max_num_batched_tokens': 8192, 'data_parallel_size': 4, 'new_thing': 'x'}\n"
        "GPU KV cache size: 1,600 tokens\n");
    ck_assert_str_eq(taken(log, "tensor_parallel"), "2");
    ck_assert_str_eq(taken(log, "prefix_caching"), "off");
    ck_assert_str_eq(taken(log, "decides_ahead"), "on");
    ck_assert_str_eq(taken(log, "max_batched_tokens"), "8192");
    ck_assert_str_eq(taken(log, "replicas"), "4");
    ck_assert_str_eq(taken(log, "max_requests"), "");
    ck_assert_str_eq(list(log, LOG_DIFFERS), "");
    ck_assert_str_eq(list(log, LOG_UNKNOWN), "new_thing = x");

    snprintf(text, sizeof text, V1_CONFIG, "None", "auto");
    log = read_log(text);
    ck_assert_str_eq(taken(log, "context_tokens"), "8192");
    ck_assert_str_eq(taken(log, "prefix_caching"), "on");
    ck_assert_str_eq(taken(log, "max_requests"), "");
    ck_assert_str_eq(list(log, LOG_DIFFERS), "");

    snprintf(text, sizeof text, NAMESPACE, "None", "None");
    log = read_log(text);
    ck_assert_str_eq(taken(log, "tensor_parallel"), "4");
    ck_assert_str_eq(taken(log, "max_requests"), "64");
    ck_assert_str_eq(list(log, LOG_DIFFERS), "");

    snprintf(text, sizeof text, SGLANG, "None", "None");
    log = read_log(text);
    ck_assert(log->is_sglang);
    ck_assert_str_eq(taken(log, "tensor_parallel"), "2");
    ck_assert_str_eq(taken(log, "prefix_caching"), "off");
    ck_assert_str_eq(taken(log, "max_requests"), "48");
    ck_assert_uint_eq(start_log_pages(log, 1), 421472);
    ck_assert_str_eq(list(log, LOG_DIFFERS), "");
}

TEST(what_cannot_be_simulated_differs) {
    char text[2048];
    snprintf(text, sizeof text, V1_CONFIG, "compressed-tensors", "fp8_e4m3");
    ck_assert_str_eq(list(read_log(text), LOG_DIFFERS),
                     "quantization = compressed-tensors and kv_cache_dtype = fp8_e4m3");
    snprintf(text, sizeof text, NAMESPACE, "'awq'", "'/models/draft'");
    ck_assert_str_eq(list(read_log(text), LOG_DIFFERS),
                     "quantization = awq and speculative_model = /models/draft");
    snprintf(text, sizeof text, SGLANG, "'fp8'", "'EAGLE'");
    ck_assert_str_eq(list(read_log(text), LOG_DIFFERS),
                     "quantization = fp8 and speculative_algorithm = EAGLE");
    ck_assert_str_eq(
        list(read_log(V1_HEAD "{'model': 'neuralmagic/Qwen2.5-VL-72B-FP8-Dynamic'}"), LOG_DIFFERS),
        "model = neuralmagic/Qwen2.5-VL-72B-FP8-Dynamic");
    ck_assert_str_eq(
        list(read_log(V1_HEAD "{'pipeline_parallel_size': 2, 'dtype': 'float32'}"), LOG_DIFFERS),
        "pipeline_parallel_size = 2 and dtype = float32");
}

/* A second start in one file begins anew; colours, other languages and cut lines do no harm. */
TEST(the_last_start_counts_however_it_is_written) {
    struct start_log *log = read_log(V1_HEAD "{'quantization': 'fp8', 'max_num_seqs': 3}\n" V1_HEAD
                                             "{'max_num_batched_tokens': 512}\n");
    ck_assert_str_eq(list(log, LOG_DIFFERS), "");
    ck_assert_str_eq(taken(log, "max_requests"), "");
    log = read_log("\033[1;36m(APIServer pid=1)\033[0;0m non-default args: "
                   "{'model': '\xe6\xa8\xa1', 'max_num_seqs': 3, 'max_model_len': 51");
    ck_assert_str_eq(taken(log, "max_requests"), "3");
    log = read_log("\033[1;36mmax_num_seqs=64\033[0m, \033[mblock_size=32\n");
    ck_assert_str_eq(taken(log, "max_requests"), "64");
    ck_assert_str_eq(taken(log, "page_tokens"), "32");
}

/* The same table and lists; errors that would be another server's are refused. */
TEST(a_log_is_applied_and_told_or_refused) {
    const char *log = scratch_write(
        "start.log", V1_HEAD "{'tensor_parallel_size': 2, 'max_num_seqs': 128, 'seed': 0, "
                             "'enforce_eager': True, 'enable_prefix_caching': False, 'odd': 3}\n");
    json_t *object = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--log", log);
    json_t *said = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--max-num-seqs", "128", "--set",
                         "tensor_parallel=2", "--set", "prefix_caching=off");
    ck_assert_double_eq(printed_error(object, "TTFT p95"), printed_error(said, "TTFT p95"));
    const json_t *told = json_object_get(object, "log");
    ck_assert_uint_eq(json_array_size(json_object_get(told, "taken")), 3);
    ck_assert_uint_eq(json_array_size(json_object_get(told, "not_taken")), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(told, "unknown")), 1);
    json_decref(said);
    /* What --set says counts before the log. */
    json_t *set =
        ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--log", log, "--set", "tensor_parallel=1");
    said = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--max-num-seqs", "128", "--set",
                 "prefix_caching=off");
    ck_assert_double_eq(printed_error(set, "TTFT p95"), printed_error(said, "TTFT p95"));
    json_decref(set);
    json_decref(said);
    json_decref(object);

    log = scratch_write("fp8.log", V1_HEAD "{'quantization': 'fp8', 'max_num_seqs': 128, "
                                           "'kv_cache_dtype': 'fp8_e5m2'}\n"
                                           "GPU KV cache size: 620,944 tokens\n");
    REFUSES(2, "quantization = fp8 and kv_cache_dtype = fp8_e5m2, which is not simulated",
            "validate", "--measured", PRO_6000, "--gpu", "rtx-pro-6000", "--log", log);
    REFUSES(1,
            "a pool of 38808 pages does not fit: memory leaves 35523; the server ran with "
            "quantization = fp8 and kv_cache_dtype = fp8_e5m2",
            "validate", "--measured", PRO_6000, "--gpu", "rtx-pro-6000", "--log", log, "--anyway");
    object = ASKED(PRO_6000, "--gpu", "rtx-pro-6000", "--log", log, "--anyway", "--num-gpu-blocks",
                   "20000");
    ck_assert(warns_of_limits(object)); /* setting-assumed: of what differs */
    json_decref(object);
    REFUSES(2, "--anyway does nothing here: it is read where --log", "validate", "--measured",
            PRO_6000, "--anyway");
}

TEST(pages_are_counted_from_what_either_engine_logs) {
    struct start_log log;
    struct err err = {0};
    const char *path =
        scratch_write("v1.log", "block_size=32\nGPU KV cache size: 494,784 tokens\n");
    ck_assert_int_eq(start_log_read(path, &log, &err), 0);
    ck_assert_uint_eq(start_log_pages(&log, 32), 494784 / 32);
    path = scratch_write("v1.log", "INFO GPU KV cache size: 1,600 tokens\n");
    ck_assert_int_eq(start_log_read(path, &log, &err), 0);
    ck_assert_uint_eq(start_log_pages(&log, 0), 100);
    path = scratch_write("v0.log", "# GPU blocks: 2588, # CPU blocks: 0\n");
    ck_assert_int_eq(start_log_read(path, &log, &err), 0);
    ck_assert_uint_eq(start_log_pages(&log, 0), 2588);
}

SUITE("start_log")
