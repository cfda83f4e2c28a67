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

/* Names end in * where any argument that begins so is meant. `harmless`: values, between blanks,
 * that are what unmask assumes, beside None, False, 0 and nothing. */
static const struct known {
    const char *name;
    enum log_use use;
    const char *key; /* LOG_TAKEN */
    enum conversion conversion;
    const char *why, *harmless;
} known[] = {
    {"max_num_seqs", LOG_TAKEN, "max_requests", AS_IT_IS, NULL, NULL},
    {"max_running_requests", LOG_TAKEN, "max_requests", AS_IT_IS, NULL, NULL},
    {"max_num_batched_tokens", LOG_TAKEN, "max_batched_tokens", AS_IT_IS, NULL, NULL},
    {"chunked_prefill_size", LOG_TAKEN, "max_batched_tokens", AS_IT_IS, NULL, NULL},
    {"gpu_memory_utilization", LOG_TAKEN, "memory_utilization", AS_IT_IS, NULL, NULL},
    {"block_size", LOG_TAKEN, "page_tokens", AS_IT_IS, NULL, NULL},
    {"page_size", LOG_TAKEN, "page_tokens", AS_IT_IS, NULL, NULL},
    {"tensor_parallel_size", LOG_TAKEN, "tensor_parallel", AS_IT_IS, NULL, NULL},
    {"tp_size", LOG_TAKEN, "tensor_parallel", AS_IT_IS, NULL, NULL},
    {"data_parallel_size", LOG_TAKEN, "replicas", AS_IT_IS, NULL, NULL},
    {"dp_size", LOG_TAKEN, "replicas", AS_IT_IS, NULL, NULL},
    {"enable_expert_parallel", LOG_TAKEN, "expert_parallel", SWITCH, NULL, NULL},
    {"ep_size", LOG_TAKEN, "expert_parallel", ABOVE_1, NULL, NULL},
    {"enable_prefix_caching", LOG_TAKEN, "prefix_caching", SWITCH, NULL, NULL},
    {"disable_radix_cache", LOG_TAKEN, "prefix_caching", INVERTED, NULL, NULL},
    {"max_model_len", LOG_TAKEN, "context_tokens", AS_IT_IS, NULL, NULL},
    {"max_seq_len", LOG_TAKEN, "context_tokens", AS_IT_IS, NULL, NULL},
    {"context_length", LOG_TAKEN, "context_tokens", AS_IT_IS, NULL, NULL},
    {"context_len", LOG_TAKEN, "context_tokens", AS_IT_IS, NULL, NULL},
    {"async_scheduling", LOG_TAKEN, "decides_ahead", SWITCH, NULL, NULL},
    {"disable_overlap_schedule", LOG_TAKEN, "decides_ahead", INVERTED, NULL, NULL},

    {"quantization", LOG_DIFFERS, NULL, 0, quantised, " none unquant "},
    {"torchao_config", LOG_DIFFERS, NULL, 0, quantised, NULL},
    {"dtype", LOG_DIFFERS, NULL, 0, quantised,
     " auto half float16 bfloat16 torch.float16 torch.bfloat16 "},
    {"load_format", LOG_DIFFERS, NULL, 0, quantised,
     " auto pt safetensors fastsafetensors npcache dummy tensorizer runai_streamer "
     "instanttensor sharded_state mistral hf remote layered "},
    {"kv_cache_dtype", LOG_DIFFERS, NULL, 0, other_kv,
     " auto half float16 bfloat16 bf16 torch.float16 torch.bfloat16 "},
    {"speculative_config", LOG_DIFFERS, NULL, 0, speculates, NULL},
    {"speculative_model", LOG_DIFFERS, NULL, 0, speculates, NULL},
    {"speculative_algorithm", LOG_DIFFERS, NULL, 0, speculates, " none "},
    {"num_speculative_tokens", LOG_DIFFERS, NULL, 0, speculates, NULL},
    {"pipeline_parallel_size", LOG_DIFFERS, NULL, 0, parallel, " 1 "},
    {"pp_size", LOG_DIFFERS, NULL, 0, parallel, " 1 "},
    {"decode_context_parallel_size", LOG_DIFFERS, NULL, 0, "contexts are divided among GPUs",
     " 1 "},
    {"prefill_context_parallel_size", LOG_DIFFERS, NULL, 0, "contexts are divided among GPUs",
     " 1 "},
    {"enable_dp_attention", LOG_DIFFERS, NULL, 0, "attention is divided by requests", NULL},
    {"cpu_offload_gb", LOG_DIFFERS, NULL, 0, offloads, NULL},
    {"enable_hierarchical_cache", LOG_DIFFERS, NULL, 0, offloads, NULL},
    {"kv_transfer_config", LOG_DIFFERS, NULL, 0, "caches are moved between servers", NULL},
    {"disaggregation_mode", LOG_DIFFERS, NULL, 0, "prefill and decoding are servers of their own",
     " null "},
    {"enable_lora", LOG_DIFFERS, NULL, 0, adapters, NULL},
    {"lora_modules", LOG_DIFFERS, NULL, 0, adapters, NULL},
    {"lora_paths", LOG_DIFFERS, NULL, 0, adapters, NULL},

    {"mem_fraction_static", LOG_NOT_TAKEN, NULL, 0,
     "of weights and cache alone; the pool's size is taken where it is logged", NULL},
    {"kv_cache_memory_bytes", LOG_NOT_TAKEN, NULL, 0, "the pool's size is taken where it is logged",
     NULL},
    {"num_gpu_blocks_override", LOG_NOT_TAKEN, NULL, 0,
     "the pool's size is taken where it is logged", NULL},
    {"max_total_tokens", LOG_NOT_TAKEN, NULL, 0, "the pool's size is taken where it is logged",
     NULL},
    {"enforce_eager", LOG_NOT_TAKEN, NULL, 0, eager, NULL},
    {"disable_cuda_graph", LOG_NOT_TAKEN, NULL, 0, eager, NULL},
    {"enable_chunked_prefill", LOG_NOT_TAKEN, NULL, INVERTED, chunking, NULL},
    {"scheduling_policy", LOG_NOT_TAKEN, NULL, 0, ordering, " fcfs "},
    {"schedule_policy", LOG_NOT_TAKEN, NULL, 0, ordering, " fcfs "},
    {"max_num_partial_prefills", LOG_NOT_TAKEN, NULL, 0, "several prompts are prefilled at once",
     " 1 "},
    {"long_prefill_token_threshold", LOG_NOT_TAKEN, NULL, 0, "chunks of prompts are shorter", NULL},
    {"num_scheduler_steps", LOG_NOT_TAKEN, NULL, 0, "several steps follow one decision", " 1 "},
    {"max_prefill_tokens", LOG_NOT_TAKEN, NULL, 0, "bounds what is prefilled together", NULL},
    {"swap_space", LOG_NOT_TAKEN, NULL, 0, "who is preempted may be moved to the host", " 4 4.0 "},
    {"attention_backend", LOG_NOT_TAKEN, NULL, 0, "prices are of the kernels that were measured",
     NULL},
    {"disable_custom_all_reduce", LOG_NOT_TAKEN, NULL, 0, "prices are of what was measured", NULL},
    {"hf_overrides", LOG_NOT_TAKEN, NULL, 0, "--model says what the model is", NULL},
    {"rope_scaling", LOG_NOT_TAKEN, NULL, 0, "--model says what the model is", NULL},

    {"model", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"model_tag", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"model_path", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"served_model_name", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"dllm_algorithm*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"tokenizer*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"skip_tokenizer_init", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"host", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"port", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"*_port", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"api_key", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"ssl_*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"seed", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"random_seed", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"trust_remote_code", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"revision", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"download_dir", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"chat_template*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"default_chat_template_kwargs", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"override_generation_config", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"generation_config", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"reasoning_parser*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"tool_call_parser", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"enable_auto_tool_choice", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"disable_log_*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"enable_log_*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"log_*", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"uvicorn_log_level", LOG_HARMLESS, NULL, 0, NULL, NULL},
    {"enable_metrics*", LOG_HARMLESS, NULL, 0, NULL, NULL},
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
