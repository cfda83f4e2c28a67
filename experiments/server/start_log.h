/* What vLLM logs when it starts, of the settings that decide how it schedules:
 *
 *   non-default args: {..., 'max_num_seqs': 128, ...} or args: Namespace(..., max_num_seqs=128,
 * ...) Chunked prefill is enabled with max_num_batched_tokens=2048. GPU KV cache size: 123,456
 * tokens          (V1)    # GPU blocks: 7716, # CPU blocks: 0   (V0)
 *
 * Of what is said several times the last counts. What a server did not log it decided itself. */
#ifndef UNMASK_EXPERIMENTS_SERVER_START_LOG_H
#define UNMASK_EXPERIMENTS_SERVER_START_LOG_H

#include <stdint.h>

#include "sim/base/err.h"

enum { START_LOG_CHARS = 24 };

/* As they stand in the log, "": not said. */
struct start_log {
    char max_num_seqs[START_LOG_CHARS], max_num_batched_tokens[START_LOG_CHARS],
        gpu_memory_utilization[START_LOG_CHARS], block_size[START_LOG_CHARS];
    uint64_t gpu_blocks; /* pages, with the one that vLLM keeps; 0: not said */
};

/* ERR_WORLD where the file cannot be read or says nothing of these. */
int start_log_read(const char *path, struct start_log *out, struct err *err);

#endif
