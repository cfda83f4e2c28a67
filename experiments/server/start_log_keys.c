/* What becomes of the arguments of vLLM and SGLang: a table. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/server/start_log.h"
#include "sim/base/names.h"

/* How a value becomes the system's. */
enum conversion {
    AS_IT_IS,
    SWITCH,   /* True and False */
    INVERTED, /* disable_...: True is off */
    ABOVE_1,  /* a number above 1 is on */
};

static const char parallel[] = "it divides the model by layers, which is not simulated";
static const char quantised[] = "its weights are of another type";
static const char speculates[] = "it speculates";
static const char other_kv[] = "its cache is of another type";
static const char offloads[] = "weights or cache lie in the host's memory";
static const char adapters[] = "it serves adapters";
static const char eager[] = "its steps are no captured graphs";
static const char chunking[] = "prompts are prefilled whole";
static const char ordering[] = "it orders requests otherwise";

#define TAKEN(name, key, conversion)                                                               \
    { name, key, NULL, NULL, LOG_TAKEN, conversion }
#define DIFFERS(name, why, harmless)                                                               \
    { name, NULL, why, harmless, LOG_DIFFERS, AS_IT_IS }
#define NOT_TAKEN(name, why, harmless)                                                             \
    { name, NULL, why, harmless, LOG_NOT_TAKEN, AS_IT_IS }
#define HARMLESS(name)                                                                             \
    { name, NULL, NULL, NULL, LOG_HARMLESS, AS_IT_IS }

/* Names begin or end with * where any argument that goes on so is meant. `harmless`: values,
 * between blanks, that are what unmask assumes, as are None, False, 0 and nothing. */
static const struct known {
    const char *name;
    const char *key; /* LOG_TAKEN */
    const char *why, *harmless;
    enum log_use use;
    enum conversion conversion;
} known[] = {
    TAKEN("max_num_seqs", "max_requests", AS_IT_IS),
    TAKEN("max_running_requests", "max_requests", AS_IT_IS),
    TAKEN("max_num_batched_tokens", "max_batched_tokens", AS_IT_IS),
    TAKEN("chunked_prefill_size", "max_batched_tokens", AS_IT_IS),
    TAKEN("gpu_memory_utilization", "memory_utilization", AS_IT_IS),
    TAKEN("block_size", "page_tokens", AS_IT_IS),
    TAKEN("page_size", "page_tokens", AS_IT_IS),
    TAKEN("tensor_parallel_size", "tensor_parallel", AS_IT_IS),
    TAKEN("tp_size", "tensor_parallel", AS_IT_IS),
    TAKEN("data_parallel_size", "replicas", AS_IT_IS),
    TAKEN("dp_size", "replicas", AS_IT_IS),
    TAKEN("enable_expert_parallel", "expert_parallel", SWITCH),
    TAKEN("ep_size", "expert_parallel", ABOVE_1),
    TAKEN("enable_prefix_caching", "prefix_caching", SWITCH),
    TAKEN("disable_radix_cache", "prefix_caching", INVERTED),
    TAKEN("max_model_len", "context_tokens", AS_IT_IS),
    TAKEN("max_seq_len", "context_tokens", AS_IT_IS),
    TAKEN("context_length", "context_tokens", AS_IT_IS),
    TAKEN("context_len", "context_tokens", AS_IT_IS),
    TAKEN("async_scheduling", "decides_ahead", SWITCH),
    TAKEN("disable_overlap_schedule", "decides_ahead", INVERTED),

    DIFFERS("quantization", quantised, " none unquant "),
    DIFFERS("torchao_config", quantised, NULL),
    DIFFERS("dtype", quantised, " auto half float16 bfloat16 torch.float16 torch.bfloat16 "),
    DIFFERS("load_format", quantised,
            " auto pt safetensors fastsafetensors npcache dummy tensorizer runai_streamer "
            "instanttensor sharded_state mistral hf remote layered "),
    DIFFERS("kv_cache_dtype", other_kv,
            " auto half float16 bfloat16 bf16 torch.float16 torch.bfloat16 "),
    DIFFERS("speculative_config", speculates, NULL),
    DIFFERS("speculative_model", speculates, NULL),
    DIFFERS("speculative_algorithm", speculates, " none "),
    DIFFERS("num_speculative_tokens", speculates, NULL),
    DIFFERS("pipeline_parallel_size", parallel, " 1 "),
    DIFFERS("pp_size", parallel, " 1 "),
    DIFFERS("decode_context_parallel_size", "contexts are divided among GPUs", " 1 "),
    DIFFERS("prefill_context_parallel_size", "contexts are divided among GPUs", " 1 "),
    DIFFERS("enable_dp_attention", "attention is divided by requests", NULL),
    DIFFERS("cpu_offload_gb", offloads, NULL),
    DIFFERS("enable_hierarchical_cache", offloads, NULL),
    DIFFERS("kv_transfer_config", "caches are moved between servers", NULL),
    DIFFERS("disaggregation_mode", "prefill and decoding are servers of their own", " null "),
    DIFFERS("enable_lora", adapters, NULL),
    DIFFERS("lora_modules", adapters, NULL),
    DIFFERS("lora_paths", adapters, NULL),

    NOT_TAKEN("mem_fraction_static",
              "of weights and cache alone; the pool's size is taken where it is logged", NULL),
    NOT_TAKEN("kv_cache_memory_bytes", "the pool's size is taken where it is logged", NULL),
    NOT_TAKEN("num_gpu_blocks_override", "the pool's size is taken where it is logged", NULL),
    NOT_TAKEN("max_total_tokens", "the pool's size is taken where it is logged", NULL),
    NOT_TAKEN("enforce_eager", eager, NULL),
    NOT_TAKEN("disable_cuda_graph", eager, NULL),
    {"enable_chunked_prefill", NULL, chunking, NULL, LOG_NOT_TAKEN, INVERTED},
    NOT_TAKEN("scheduling_policy", ordering, " fcfs "),
    NOT_TAKEN("schedule_policy", ordering, " fcfs "),
    NOT_TAKEN("max_num_partial_prefills", "several prompts are prefilled at once", " 1 "),
    NOT_TAKEN("long_prefill_token_threshold", "chunks of prompts are shorter", NULL),
    NOT_TAKEN("num_scheduler_steps", "several steps follow one decision", " 1 "),
    NOT_TAKEN("max_prefill_tokens", "bounds what is prefilled together", NULL),
    NOT_TAKEN("swap_space", "preempted requests may be moved to the host", " 4 4.0 "),
    NOT_TAKEN("attention_backend", "prices are of the kernels that were measured", NULL),
    NOT_TAKEN("disable_custom_all_reduce", "prices are of what was measured", NULL),
    NOT_TAKEN("hf_overrides", "--model says what the model is", NULL),
    NOT_TAKEN("rope_scaling", "--model says what the model is", NULL),

    HARMLESS("model"),
    HARMLESS("model_tag"),
    HARMLESS("model_path"),
    HARMLESS("served_model_name"),
    HARMLESS("dllm_algorithm*"),
    HARMLESS("tokenizer*"),
    HARMLESS("skip_tokenizer_init"),
    HARMLESS("host"),
    HARMLESS("port"),
    HARMLESS("*_port"),
    HARMLESS("api_key"),
    HARMLESS("ssl_*"),
    HARMLESS("seed"),
    HARMLESS("random_seed"),
    HARMLESS("trust_remote_code"),
    HARMLESS("revision"),
    HARMLESS("download_dir"),
    HARMLESS("chat_template*"),
    HARMLESS("default_chat_template_kwargs"),
    HARMLESS("override_generation_config"),
    HARMLESS("generation_config"),
    HARMLESS("reasoning_parser*"),
    HARMLESS("tool_call_parser"),
    HARMLESS("enable_auto_tool_choice"),
    HARMLESS("disable_log_*"),
    HARMLESS("enable_log_*"),
    HARMLESS("log_*"),
    HARMLESS("uvicorn_log_level"),
    HARMLESS("enable_metrics*"),
};
enum { N_KNOWN = sizeof known / sizeof known[0] };

static bool fits(const char *pattern, const char *name) {
    size_t n = strlen(pattern);
    if (pattern[0] == '*') {
        return name_ends(name, pattern + 1);
    }
    return pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0 : strcmp(pattern, name) == 0;
}

static const struct known *find(const char *name) {
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (fits(known[i].name, name)) {
            return &known[i];
        }
    }
    return NULL;
}

static bool is_true(const char *value) {
    return strcmp(value, "True") == 0 || strcmp(value, "true") == 0;
}

static bool is_false(const char *value) {
    return strcmp(value, "False") == 0 || strcmp(value, "false") == 0;
}

/* Values by which an argument says that there is nothing of the kind. */
static bool is_nothing(const char *value) {
    char *end;
    double number = strtod(value, &end);
    return value[0] == '\0' || is_false(value) || strcmp(value, "{}") == 0 ||
           strcmp(value, "[]") == 0 || (end != value && *end == '\0' && number == 0);
}

static bool is_harmless(const struct known *k, const char *value) {
    char word[START_LOG_VALUE_CHARS + 2];
    snprintf(word, sizeof word, " %s ", value);
    for (char *c = word; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    return is_nothing(value) || (k->harmless != NULL && strstr(k->harmless, word) != NULL);
}

/* Into a->set; false where the value says nothing, such as a chunk of -1 tokens. */
static bool convert(const struct known *k, struct log_argument *a) {
    bool is_switch = is_true(a->value) || is_false(a->value);
    switch (k->conversion) {
    case AS_IT_IS:
        snprintf(a->set, sizeof a->set, "%.63s", a->value);
        return isdigit((unsigned char)a->value[0]) && !is_nothing(a->value);
    case SWITCH:
    case INVERTED:
        snprintf(a->set, sizeof a->set, "%s",
                 is_true(a->value) == (k->conversion == SWITCH) ? "on" : "off");
        return is_switch;
    case ABOVE_1:
        snprintf(a->set, sizeof a->set, "%s", strtod(a->value, NULL) > 1 ? "on" : "off");
        return isdigit((unsigned char)a->value[0]) != 0;
    }
    return false;
}

static void judge(struct log_argument *a) {
    const struct known *k = find(a->name);
    a->use = k != NULL ? k->use : LOG_UNKNOWN;
    if (k == NULL || k->use == LOG_HARMLESS) {
        return;
    }
    a->key = k->key;
    a->why = k->why;
    if (k->use == LOG_TAKEN) {
        a->use = convert(k, a) ? LOG_TAKEN : LOG_HARMLESS;
    } else if (k->conversion == INVERTED ? is_true(a->value) : is_harmless(k, a->value)) {
        a->use = LOG_HARMLESS;
    }
}

/* Names of checkpoints say what their weights are, whether or not an argument does. */
static bool names_quantised(const char *value) {
    static const char *const marks[] = {"fp8",   "fp4",   "awq",  "gptq",  "gguf", "int4",
                                        "int8",  "w4a16", "w8a8", "w8a16", "w4a4", "bnb-4bit",
                                        "-4bit", "-8bit", "exl2", "exl3"};
    char lower[START_LOG_VALUE_CHARS];
    size_t n = strlen(value);
    for (size_t i = 0; i <= n; i++) {
        lower[i] = (char)tolower((unsigned char)value[i]);
    }
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (strstr(lower, marks[i]) != NULL) {
            return true;
        }
    }
    return false;
}

void start_log_judge(struct start_log *log) {
    for (size_t i = 0; i < log->n; i++) {
        struct log_argument *a = &log->arguments[i];
        judge(a);
        bool is_model = strcmp(a->name, "model") == 0 || strcmp(a->name, "model_path") == 0;
        if (is_model && names_quantised(a->value)) {
            a->use = LOG_DIFFERS;
            a->why = quantised;
        }
        log->decodes_blocks |= strcmp(a->name, "dllm_algorithm") == 0 && !is_nothing(a->value);
    }
}
