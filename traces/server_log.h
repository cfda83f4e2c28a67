/* What servers and their benchmarks write about requests, which are no rows in order of arrival:
 *
 *   serving-bench  a JSON object with the lists input_lens and output_lens and, where the benchmark
 *                  wrote it, start_times in seconds: `vllm bench serve --save-result
 *                  --save-detailed`, SGLang's bench_serving --output-details
 *   sglang-log     the server's log with --log-requests, as text or JSON: of every line that says
 *                  that a request finished its prompt_tokens, completion_tokens and e2e_latency.
 *                  The arrival is request_received_ts where it is there, else the line's time
 *                  (whole seconds in texts) less the latency; other lines are passed over
 *   vllm-log       vLLM's log with --enable-log-requests and --enable-log-outputs, at level DEBUG
 *                  where prompts stand in lines of that level, and without --max-log-len, which
 *                  would cut their lists: of a request the time of the line that received it
 *                  (whole seconds) and how many prompt_token_ids and output_token_ids it had. Its
 *                  times have no year: a year has a 29th of February where the log has one, and a
 *                  time that goes back by half a year is the next year's
 *
 * They are read whole and given as a CSV table in order of arrival. */
#ifndef UNMASK_TRACES_SERVER_LOG_H
#define UNMASK_TRACES_SERVER_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/err.h"
#include "traces/format/survey.h"

/* The name of the format that the begin of a file shows, or NULL. The stream is
 * rewound. */
const char *server_log_is(FILE *file);

/* "start_ns,input,output", or without the first column where times are not known; in `*notes` what
 * was assumed; both malloc'd. The lists that are not read are added to `unread`. Failed requests
 * have 0 output tokens. ERR_WORLD in one sentence.
 */
int server_log_rows(FILE *file, const char *path, const char *name, char **out, char **notes,
                    struct survey_names *unread, struct err *err);

/* Requests as a server's files tell of them, in any order: shared by their readers. */

struct server_row {
    int64_t start_ns;
    size_t place;                         /* in the file */
    uint32_t input_tokens, output_tokens; /* no output: it failed */
};

struct server_rows {
    struct server_row *items;
    size_t n, room;
    bool has_times;
};

struct server_row *server_rows_add(struct server_rows *rows);

/* Whether a text has a line of vLLM's log about a request. */
bool vllm_log_is(const char *text);

/* vLLM's log (server_log.h); what it takes for granted of the calendar goes to `notes`. ERR_WORLD.
 */
int vllm_log_read(FILE *file, const char *path, struct server_rows *rows, FILE *notes,
                  struct err *err);

#endif
