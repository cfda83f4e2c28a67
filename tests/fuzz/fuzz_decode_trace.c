/* Any bytes as a decode trace: one sentence with the file's name, or passes within their bounds
 * that are the same when they are written and read again. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "traces/decode_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_REQUESTS = 64, MOST_PASSES = 64 };

static void check_pass(const struct decode_pass *pass, uint32_t block_tokens) {
    ASSERT(pass->committed <= pass->kept && pass->kept <= pass->processed);
    ASSERT(pass->kept >= 1 && pass->kept <= pass->reach);
    ASSERT(pass->processed <= block_tokens && pass->reach <= block_tokens);
}

/* The first passes of the first requests. */
static void copy(const struct decode_trace *trace, struct decode_log *log) {
    struct decode_source source = decode_trace_source(trace);
    for (uint64_t request = 0; request < MOST_REQUESTS; request++) {
        struct err err = {0};
        struct decode_pass pass;
        uint64_t tokens, sum = 0;
        if (source.tokens(source.state, request, &tokens, &err) != 0) {
            continue;
        }
        for (uint32_t i = 0; i < MOST_PASSES; i++) {
            if (source.pass(source.state, request, i, &pass, &err) != 0) {
                ASSERT(i > 0 && sum == tokens);
                break;
            }
            check_pass(&pass, decode_trace_block_tokens(trace));
            sum += pass.committed;
            decode_log_add(log, request, &pass, 1);
        }
        decode_log_finish(log, request, 0);
    }
}

static int open_bytes(const void *data, size_t size, char path[64]) {
    int file = memfd_create("decode", 0);
    ASSERT(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, 64, "/proc/self/fd/%d", file);
    return file;
}

static char *text_of(const struct decode_trace *trace, size_t *size) {
    char *text;
    struct decode_log *log = decode_log_open(decode_trace_block_tokens(trace));
    copy(trace, log);
    FILE *out = open_memstream(&text, size);
    ASSERT(out != NULL && decode_log_write(log, "", out) && fclose(out) == 0);
    decode_log_close(log);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int file = open_bytes(data, size, path);
    struct decode_trace *trace;
    struct err err = {0};
    if (decode_trace_read(path, &trace, &err) == 0) {
        size_t n, n_again;
        char *text = text_of(trace, &n), again_path[64];
        int again_file = open_bytes(text, n, again_path);
        struct decode_trace *again;
        ASSERT(decode_trace_read(again_path, &again, &err) == 0);
        char *twice = text_of(again, &n_again);
        ASSERT(n == n_again && memcmp(text, twice, n) == 0);
        decode_trace_close(again);
        decode_trace_close(trace);
        close(again_file);
        free(text);
        free(twice);
    } else {
        ASSERT(err.kind == ERR_WORLD && strncmp(err.text, path, strlen(path)) == 0);
    }
    close(file);
    return 0;
}
