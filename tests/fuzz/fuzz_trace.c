/* Any bytes as a trace: read to the end or to one sentence, and the same a second time. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "traces/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t read_rows(struct trace *trace, struct err *err) {
    struct arrival_source source = trace_source(trace);
    struct arrival row;
    uint64_t n = 0;
    int64_t last_ns = 0;
    enum source_reply reply;
    while ((reply = source.next(source.state, &row, err)) == SOURCE_ROW) {
        ASSERT(row.id == n && row.arrival_ns >= last_ns);
        ASSERT(row.prompt_tokens > 0 && row.output_tokens > 0);
        last_ns = row.arrival_ns;
        n++;
    }
    ASSERT(reply == (err->kind == ERR_NONE ? SOURCE_END : SOURCE_BAD));
    ASSERT(err->kind != ERR_NONE || n > 0);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int file = memfd_create("trace", 0);
    ASSERT(file >= 0 && write(file, data, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    struct trace *trace;
    struct err err = {0};
    if (trace_open(path, &trace, &err) == 0) {
        uint64_t n = read_rows(trace, &err), n_skipped = trace_skipped(trace);
        struct err again = {0};
        ASSERT(trace_rewind(trace, &again) == 0);
        ASSERT(read_rows(trace, &again) == n && trace_skipped(trace) == n_skipped);
        ASSERT(strcmp(err.text, again.text) == 0);
        trace_close(trace);
    } else {
        ASSERT(err.kind == ERR_WORLD && strncmp(err.text, path, strlen(path)) == 0);
    }
    close(file);
    return 0;
}
