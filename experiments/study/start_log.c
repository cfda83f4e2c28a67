#include "experiments/study/start_log.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/text.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { MOST_BYTES = 256 << 20, DEFAULT_BLOCK_TOKENS = 16 }; /* vLLM's --block-size on CUDA */

static bool is_of_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- Python's values ---- */

/* The end of a text in quotes, from its opening one. */
static const char *skip_quoted(const char *at) {
    char quote = *at++;
    while (*at != '\0' && *at != quote) {
        at += at[0] == '\\' && at[1] != '\0' ? 2 : 1;
    }
    return *at == '\0' ? at : at + 1;
}

/* The end of a value: the comma, the bracket or the end of the line that ends it. Lines that a
 * terminal broke go on within brackets; `outer`: the value stands within some itself. */
static const char *skip_value(const char *at, bool outer) {
    int depth = 0;
    while (*at != '\0') {
        if (*at == '\'' || *at == '"') {
            at = skip_quoted(at);
            continue;
        }
        if (strchr("([{<", *at) != NULL) {
            depth++;
        } else if (strchr(")]}>", *at) != NULL) {
            if (depth == 0) {
                return at;
            }
            depth--;
        } else if (depth == 0 && (*at == ',' || (*at == '\n' && !outer))) {
            return at;
        }
        at++;
    }
    return at;
}

/* The value without quotes and blanks around it; None is "". */
static void copy_value(const char *from, const char *to, char out[START_LOG_VALUE_CHARS]) {
    while (from < to && isspace((unsigned char)*from)) {
        from++;
    }
    while (to > from && isspace((unsigned char)to[-1])) {
        to--;
    }
    if (to - from >= 2 && (*from == '\'' || *from == '"') && to[-1] == *from) {
        from++;
        to--;
    }
    size_t n = 0;
    for (; from < to && n + 1 < START_LOG_VALUE_CHARS; from++) {
        unsigned char c = (unsigned char)*from;
        out[n++] = c >= ' ' && c != 0x7f ? (char)c : ' ';
    }
    while (n > 0 && ((unsigned char)out[n - 1] & 0x80) != 0 && from < to) {
        n--; /* a letter of several bytes that was cut */
    }
    out[n] = '\0';
    if (strcmp(out, "None") == 0) {
        out[0] = '\0';
    }
}

/* ---- arguments ---- */

static void keep(struct start_log *log, const char *name, size_t length, const char *value,
                 bool is_default) {
    size_t i = 0;
    if (value[0] == '\0' || length == 0 || length >= START_LOG_NAME_CHARS) {
        return;
    }
    while (i < log->n && (strlen(log->arguments[i].name) != length ||
                          memcmp(log->arguments[i].name, name, length) != 0)) {
        i++;
    }
    if (i == START_LOG_MOST) {
        return;
    }
    struct log_argument *a = &log->arguments[i];
    if (i == log->n) {
        log->n++;
        a->is_default = is_default;
    }
    memcpy(a->name, name, length);
    a->name[length] = '\0';
    snprintf(a->value, sizeof a->value, "%s", value);
}

/* "'name': value, ..." or "name=value, ..." up to the bracket that closes it, or to the end of the
 * line where it has none. */
static void take_items(struct start_log *log, const char *at, bool outer, bool is_default) {
    while (*at != '\0') {
        char value[START_LOG_VALUE_CHARS];
        while (*at == ',' || *at == ' ' || (outer && isspace((unsigned char)*at))) {
            at++;
        }
        bool is_quoted = *at == '\'' || *at == '"';
        const char *name = at + is_quoted, *end = name;
        while (is_of_name(*end)) {
            end++;
        }
        at = end + (is_quoted && *end != '\0');
        at += strspn(at, " ");
        if (end == name || (*at != '=' && *at != ':')) {
            return;
        }
        const char *from = at + 1;
        at = skip_value(from, outer);
        copy_value(from, at, value);
        keep(log, name, (size_t)(end - name), value, is_default);
        if (*at != ',') {
            return;
        }
    }
}

/* Where arguments are printed, and whether that is how a start begins. */
static const struct dump {
    const char *mark;
    bool begins, outer, is_default, is_sglang;
} dumps[] = {
    {"non-default args: {", true, true, false, false},
    {"args: Namespace(", true, true, true, false},
    {"server_args=ServerArgs(", true, true, true, true},
    {"server_args={", true, true, true, true},
    {"with config: ", false, false, true, false},
};

/* Sentences and lines that state one or a few numbers, whole words before '='. */
static const char *const stated[] = {"max_num_batched_tokens",
                                     "max_num_seqs",
                                     "gpu_memory_utilization",
                                     "block_size",
                                     "max_running_requests",
                                     "chunked_prefill_size",
                                     "context_len"};

static void take_stated(struct start_log *log, const char *line) {
    for (size_t i = 0; i < sizeof stated / sizeof stated[0]; i++) {
        size_t length = strlen(stated[i]);
        for (const char *at = line; (at = strstr(at, stated[i])) != NULL; at += length) {
            char value[START_LOG_VALUE_CHARS];
            bool is_whole = at == line || !is_of_name(at[-1]);
            const char *from = at + length;
            if (!is_whole || (*from != '=' && *from != ':')) {
                continue;
            }
            from += 1 + strspn(from + 1, " ");
            size_t n = strspn(from, "0123456789.");
            n -= n > 0 && from[n - 1] == '.'; /* the end of a sentence */
            copy_value(from, from + n, value);
            keep(log, stated[i], length, value, true);
        }
    }
}

/* The whole number after `words`, which may have commas; 0: there is none. */
static uint64_t count_behind(const char *line, const char *words) {
    const char *at = strstr(line, words);
    char digits[24];
    size_t n = 0;
    for (const char *c = at != NULL ? at + strlen(words) : "";
         n + 1 < sizeof digits && (isdigit((unsigned char)*c) || (*c == ',' && n > 0)); c++) {
        digits[n] = *c;
        n += *c != ',';
    }
    digits[n] = '\0';
    uint64_t count = 0;
    return n > 0 && num_u64(digits, UINT32_MAX, &count) ? count : 0;
}

static void take_pool(struct start_log *log, const char *line) {
    static const char *const tokens[] = {
        "GPU KV cache size: ", "max_total_num_tokens=", "KV Cache is allocated. #tokens: "};
    uint64_t blocks = count_behind(line, "# GPU blocks: ");
    log->pool_blocks = blocks > 0 ? blocks : log->pool_blocks;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        uint64_t count = count_behind(line, tokens[i]);
        log->pool_tokens = count > 0 ? count : log->pool_tokens;
        log->is_sglang |= count > 0 && i > 0;
    }
}

/* Colours of a terminal become blanks. */
static void drop_colours(char *text) {
    for (char *at = text; (at = strchr(at, '\033')) != NULL;) {
        size_t n = at[1] == '[' ? 2 + strspn(at + 2, "0123456789;") : 1;
        n += at[1] == '[' && isalpha((unsigned char)at[n]);
        memset(at, ' ', n);
    }
}

static void take_line(struct start_log *log, char *line, const char *end) {
    for (size_t i = 0; i < sizeof dumps / sizeof dumps[0]; i++) {
        const struct dump *dump = &dumps[i];
        const char *at = strstr(line, dump->mark);
        if (at == NULL || at >= end) {
            continue;
        }
        if (dump->begins) {
            *log = (struct start_log){.is_sglang = dump->is_sglang};
        }
        take_items(log, at + strlen(dump->mark), dump->outer, dump->is_default);
        return;
    }
    char kept = *end;
    line[end - line] = '\0';
    take_stated(log, line);
    take_pool(log, line);
    line[end - line] = kept;
}

int start_log_read(const char *path, struct start_log *out, struct err *err) {
    size_t size;
    char *text = text_read(path, "server log", MOST_BYTES, &size, err);
    *out = (struct start_log){0};
    if (text == NULL) {
        return err_status(err);
    }
    drop_colours(text);
    for (char *line = text; *line != '\0';) {
        char *end = line + strcspn(line, "\n");
        take_line(out, line, end);
        line = *end == '\n' ? end + 1 : end;
    }
    free(text);
    start_log_judge(out);
    return out->n > 0 || out->pool_tokens > 0 || out->pool_blocks > 0
               ? 0
               : err_world(err,
                           "%s: found no max_num_seqs, max_num_batched_tokens, "
                           "gpu_memory_utilization, 'GPU KV cache size', 'non-default args' or "
                           "'server_args', expected what vLLM or SGLang logs when it starts",
                           path);
}

uint64_t start_log_pages(const struct start_log *log, uint64_t block_tokens) {
    uint64_t tokens = block_tokens > 0 ? block_tokens
                      : log->is_sglang ? 1 /* its page_size where nothing is said */
                                       : DEFAULT_BLOCK_TOKENS;
    return log->pool_blocks > 0 ? log->pool_blocks : log->pool_tokens / tokens;
}

const struct log_argument *start_log_taken(const struct start_log *log, const char *key) {
    const struct log_argument *found = NULL;
    for (size_t i = 0; i < log->n; i++) {
        const struct log_argument *a = &log->arguments[i];
        found = a->use == LOG_TAKEN && strcmp(a->key, key) == 0 ? a : found;
    }
    return found;
}

/* ---- telling ---- */

static size_t count(const struct start_log *log, enum log_use use) {
    size_t n = 0;
    for (size_t i = 0; i < log->n; i++) {
        n += log->arguments[i].use == use;
    }
    return n;
}

const char *start_log_list(const struct start_log *log, enum log_use use, char *text, size_t size) {
    size_t n = count(log, use), told = 0, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < log->n && used < size; i++) {
        const struct log_argument *a = &log->arguments[i];
        if (a->use == use) {
            told++;
            used += (size_t)snprintf(text + used, size - used, "%s%s = %s",
                                     told == 1   ? ""
                                     : told == n ? " and "
                                                 : ", ",
                                     a->name, a->value);
        }
    }
    return text;
}

enum { MOST_SHOWN = 12 };

static void print_unknown(const struct start_log *log, FILE *out) {
    size_t shown = 0, left = 0;
    for (size_t i = 0; i < log->n; i++) {
        const struct log_argument *a = &log->arguments[i];
        if (a->use != LOG_UNKNOWN || a->is_default || shown == MOST_SHOWN) {
            left += a->use == LOG_UNKNOWN;
            continue;
        }
        fprintf(out, "%-12s%s = %s\n", shown++ == 0 ? "unknown" : "", a->name, a->value);
    }
    if (left > 0) {
        fprintf(out, "%-12s%s%zu more of the arguments that it printed\n",
                shown == 0 ? "unknown" : "", shown == 0 ? "" : "and ", left);
    }
}

void start_log_print(const struct start_log *log, FILE *out) {
    static const struct {
        enum log_use use;
        const char *head;
    } parts[] = {{LOG_TAKEN, "taken"}, {LOG_NOT_TAKEN, "not taken"}, {LOG_DIFFERS, "differs"}};
    fprintf(out, "\nof %s's log\n", log->is_sglang ? "SGLang" : "vLLM");
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        bool is_first = true;
        for (size_t i = 0; i < log->n; i++) {
            const struct log_argument *a = &log->arguments[i];
            if (a->use == parts[p].use) {
                fprintf(out, "%-12s%s = %s", is_first ? parts[p].head : "", a->name, a->value);
                fprintf(out, a->use == LOG_TAKEN ? " (%s)\n" : ": %s\n",
                        a->use == LOG_TAKEN ? a->key : a->why);
                is_first = false;
            }
        }
    }
    if (log->pool_blocks > 0 || log->pool_tokens > 0) {
        fprintf(out, "%-12s%" PRIu64 " %s (pool_pages)\n", "pool",
                log->pool_blocks > 0 ? log->pool_blocks : log->pool_tokens,
                log->pool_blocks > 0 ? "pages" : "tokens");
    }
    print_unknown(log, out);
}

json_t *start_log_json(const struct start_log *log) {
    json_t *lists[LOG_UNKNOWN + 1];
    for (int use = 0; use <= LOG_UNKNOWN; use++) {
        lists[use] = json_array();
    }
    for (size_t i = 0; i < log->n; i++) {
        const struct log_argument *a = &log->arguments[i];
        json_t *object = json_pack("{s:s, s:s, s:s*, s:s*}", "name", a->name, "value", a->value,
                                   "key", a->use == LOG_TAKEN ? a->key : NULL, "why", a->why);
        json_array_append_new(lists[a->use], object);
    }
    json_decref(lists[LOG_HARMLESS]);
    return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "program",
                     log->is_sglang ? "SGLang" : "vLLM", "pool_tokens",
                     (json_int_t)log->pool_tokens, "pool_pages", (json_int_t)log->pool_blocks,
                     "taken", lists[LOG_TAKEN], "not_taken", lists[LOG_NOT_TAKEN], "differs",
                     lists[LOG_DIFFERS], "unknown", lists[LOG_UNKNOWN]);
}

/* What becomes of the arguments of vLLM and SGLang: a table. */

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
