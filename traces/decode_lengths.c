/* The requests of a decode trace as a table of lengths, for workloads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/mem.h"
#include "traces/decode_trace.h"

bool decode_trace_is(const char *path) {
    static const char head[] = "SQLite format 3";
    char found[sizeof head];
    struct stat about;
    FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    bool is = file != NULL && fread(found, 1, sizeof head, file) == sizeof head &&
              memcmp(found, head, sizeof head) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return is;
}

int decode_trace_lengths(const char *path, char **out, struct err *err) {
    struct decode_trace *trace;
    size_t size;
    int status = decode_trace_read(path, DECODE_COUNTS, &trace, err);
    if (status != 0) {
        return status;
    }
    FILE *text = mem_stream(out, &size);
    fprintf(text, "arrival_us,input_tokens,output_tokens,answer_tokens\n");
    for (size_t i = 0; status == 0 && i < decode_trace_requests(trace); i++) {
        const struct decode_request is = decode_trace_request(trace, i);
        if (is.prompt_tokens == 0 || is.output_tokens == 0) {
            status = err_world(err, "%s does not say how long its prompts and outputs are", path);
        }
        fprintf(text, "0,%" PRIu32 ",%" PRIu32 ",%" PRIu32 "\n", is.prompt_tokens, is.output_tokens,
                is.answer_tokens > 0 ? is.answer_tokens : is.output_tokens);
    }
    mem_stream_close(text);
    if (status != 0) {
        free(*out);
    }
    decode_trace_close(trace);
    return status;
}
