/* Requests as a server's files tell of them, in any order: shared by their readers. */
#ifndef UNMASK_TRACES_SERVER_ROWS_H
#define UNMASK_TRACES_SERVER_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/err.h"

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
