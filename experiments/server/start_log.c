#include "experiments/server/start_log.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/input/text.h"

enum { MOST_BYTES = 256 << 20, DEFAULT_BLOCK_TOKENS = 16 }; /* vLLM's --block-size on CUDA */

static bool is_of_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* The number behind the last "key=" or "'key': " of a text. */
static void find_last(const char *text, const char *key, char out[START_LOG_CHARS]) {
    size_t length = strlen(key);
    for (const char *at = text; (at = strstr(at, key)) != NULL; at += length) {
        const char *value = at + length;
        bool is_whole = at == text || !is_of_name(at[-1]);
        value += *value == '\'' || *value == '"';
        if (!is_whole || (*value != '=' && *value != ':')) {
            continue;
        }
        value += 1 + strspn(value + 1, " ");
        size_t n = strspn(value, "0123456789.");
        n -= n > 0 && value[n - 1] == '.'; /* the end of a sentence */
        if (n > 0 && n < START_LOG_CHARS) {
            memcpy(out, value, n);
            out[n] = '\0';
        }
    }
}

/* The whole number behind the last `words`, which may have commas; 0: there is none. */
static uint64_t find_count(const char *text, const char *words) {
    uint64_t found = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words)) {
        char digits[START_LOG_CHARS];
        size_t n = 0;
        for (const char *c = at + strlen(words);
             n + 1 < sizeof digits && (isdigit((unsigned char)*c) || (*c == ',' && n > 0)); c++) {
            digits[n] = *c;
            n += *c != ',';
        }
        digits[n] = '\0';
        uint64_t count;
        found = n > 0 && num_u64(digits, UINT32_MAX, &count) ? count : found;
    }
    return found;
}

int start_log_read(const char *path, struct start_log *out, struct err *err) {
    size_t size;
    char *text = text_read(path, "server log", MOST_BYTES, &size, err);
    *out = (struct start_log){0};
    if (text == NULL) {
        return err_status(err);
    }
    find_last(text, "max_num_seqs", out->max_num_seqs);
    find_last(text, "max_num_batched_tokens", out->max_num_batched_tokens);
    find_last(text, "gpu_memory_utilization", out->gpu_memory_utilization);
    find_last(text, "block_size", out->block_size);
    uint64_t block_tokens = DEFAULT_BLOCK_TOKENS;
    (void)num_u64(out->block_size, UINT32_MAX, &block_tokens);
    out->gpu_blocks = find_count(text, "# GPU blocks: ");
    uint64_t tokens = find_count(text, "GPU KV cache size: ");
    if (out->gpu_blocks == 0 && block_tokens > 0) {
        out->gpu_blocks = tokens / block_tokens;
    }
    free(text);
    return out->max_num_seqs[0] != '\0' || out->max_num_batched_tokens[0] != '\0' ||
                   out->gpu_memory_utilization[0] != '\0' || out->gpu_blocks > 0
               ? 0
               : err_world(err,
                           "%s: found no max_num_seqs, max_num_batched_tokens, "
                           "gpu_memory_utilization, 'GPU KV cache size' or '# GPU blocks', "
                           "expected what vLLM logs when it starts",
                           path);
}
