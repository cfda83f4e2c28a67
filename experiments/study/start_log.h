/* What vLLM or SGLang logged when it started: its arguments, and what it made of them.
 *
 *   vLLM    non-default args: {'max_num_seqs': 128, ...}      args: Namespace(max_num_seqs=128,
 * ...) Initializing a V1 LLM engine (v0.10.2) with config: model='m', quantization=None, ...
 *           Chunked prefill is enabled with max_num_batched_tokens=2048.
 *           GPU KV cache size: 123,456 tokens (V1)            # GPU blocks: 7716 (V0)
 *   SGLang  server_args=ServerArgs(model_path='m', tp_size=2, ...)
 *           max_total_num_tokens=421472, ..., max_running_requests=48, context_len=40960
 *
 * Dictionaries of arguments begin a start anew; of what is said several times after that the last
 * counts, except that None says nothing. Start_log_keys.c has what becomes of each argument. What a
 * server did not log it decided itself. */
#ifndef UNMASK_EXPERIMENTS_STUDY_START_LOG_H
#define UNMASK_EXPERIMENTS_STUDY_START_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"

enum {
    START_LOG_NAME_CHARS = 64,
    START_LOG_VALUE_CHARS = 160, /* longer values are cut */
    START_LOG_MOST = 640,        /* arguments; further ones are passed over */
};

/* What becomes of an argument. */
enum log_use {
    LOG_TAKEN,     /* it sets a key of the system */
    LOG_NOT_TAKEN, /* it changes what the server does, within what a comparison can bear */
    LOG_DIFFERS,   /* another server: weights, their or the cache's type, speculation, ... */
    LOG_HARMLESS,  /* of no consequence for time and memory, or the value that unmask assumes */
    LOG_UNKNOWN,
};

/* An argument as it stands in the log, without quotes. */
struct log_argument {
    char name[START_LOG_NAME_CHARS], value[START_LOG_VALUE_CHARS];
    enum log_use use;
    const char *key;                /* LOG_TAKEN: of the system */
    char set[START_LOG_NAME_CHARS]; /* and its value there */
    const char *why;                /* LOG_NOT_TAKEN and LOG_DIFFERS: what it means */
    bool is_default;                /* LOG_UNKNOWN: of a dump of all arguments */
};

struct start_log {
    struct log_argument arguments[START_LOG_MOST];
    size_t n;
    bool is_sglang;
    bool decodes_blocks;               /* SGLang with a dllm_algorithm */
    uint64_t pool_tokens, pool_blocks; /* of the KV cache, as logged; 0: not said */
};

/* ERR_WORLD where the file cannot be read or says none of what is listed above. `out` needs no
 * release. */
int start_log_read(const char *path, struct start_log *out, struct err *err);

/* The pages of the pool, of `block_tokens` tokens each, with the one that vLLM keeps; 0: not said.
 */
uint64_t start_log_pages(const struct start_log *log, uint64_t block_tokens);

/* The argument that sets a key of the system, NULL where none does. */
const struct log_argument *start_log_taken(const struct start_log *log, const char *key);

/* "quantization = fp8 and kv_cache_dtype = fp8_e5m2": the arguments of one use. Returns `text`;
 * "" where there is none. */
const char *start_log_list(const struct start_log *log, enum log_use use, char *text, size_t size);

/* What was taken, not taken, differs and is unknown. */
void start_log_print(const struct start_log *log, FILE *out);
json_t *start_log_json(const struct start_log *log);

/* ---- of start_log_keys.c ---- */

/* Says what becomes of each argument. */
void start_log_judge(struct start_log *log);

#endif
