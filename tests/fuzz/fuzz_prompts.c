/* Any bytes as a file of prompts: one sentence with file and line, or prompts with tokens. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "traces/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *state, const struct prompt *prompt, uint32_t *tokens, struct err *err) {
    (void)state, (void)err;
    ASSERT((prompt->text == NULL) == (prompt->ids != NULL));
    ASSERT(prompt->text == NULL || strlen(prompt->text) == prompt->text_bytes);
    *tokens = prompt->text != NULL ? (uint32_t)prompt->text_bytes : prompt->n_ids;
    for (uint32_t i = 0; i < prompt->n_ids; i++) {
        ASSERT(prompt->ids[i] >= 0);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int file = memfd_create("prompts", 0);
    ASSERT(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    struct trace *trace = NULL;
    struct err err = {0};
    if (trace_open(path, &trace, &err) == 0 && trace_has_prompts(trace)) {
        trace_set_taker(trace, &(struct prompt_taker){.take = take});
        struct arrival_source source = trace_source(trace);
        struct arrival row;
        enum source_reply reply;
        while ((reply = source.next(source.state, &row, &err)) == SOURCE_ROW) {
            ASSERT(row.prompt == row.id + 1 && row.prompt_tokens > 0 && row.output_tokens > 0);
        }
        ASSERT((reply == SOURCE_BAD) == (err.kind != ERR_NONE));
    }
    ASSERT(err.kind == ERR_NONE || strstr(err.text, path) != NULL);
    trace_close(trace);
    close(file);
    return 0;
}
