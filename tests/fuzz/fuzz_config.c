/* Any bytes as an INI file and as a workload: refused with one sentence, or a source whose first
 * rows are in order. */
#include "sim/input/config.h"
#include "sim/input/datadir.h"
#include "traces/workload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ROWS = 200 };

static void draw_rows(struct workload *workload) {
    struct arrival_source source = workload_source(workload);
    struct err err = {0};
    struct arrival row;
    int64_t last_ns = 0;
    for (uint64_t n = 0; n < MAX_ROWS; n++) {
        enum source_reply reply = source.next(source.state, &row, &err);
        ASSERT((reply == SOURCE_BAD) == (err.kind != ERR_NONE));
        if (reply == SOURCE_WAIT) {
            ASSERT(source.completed != NULL && n > 0);
            source.completed(source.state, n - 1, last_ns);
            reply = source.next(source.state, &row, &err);
        }
        if (reply != SOURCE_ROW) {
            return;
        }
        ASSERT(row.id == n && row.arrival_ns >= last_ns);
        ASSERT(row.prompt_tokens > 0 && row.output_tokens > 0);
        last_ns = row.arrival_ns;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config config;
    struct err err = {0};
    /* Under this name the shipped samples are found. */
    char path[4096];
    data_path(path, sizeof path, "traces/workloads/x.ini");
    if (config_parse(path, (const char *)data, size, &config, &err) != 0) {
        ASSERT(err.kind == ERR_USAGE && err.text[0] != '\0');
        return 0;
    }
    struct workload_options options = {.seed = 1};
    struct workload *workload;
    if (workload_from_config(&config, "x", &options, &workload, &err) == 0) {
        char text[128];
        workload_describe(workload, text, sizeof text);
        draw_rows(workload);
        workload_close(workload);
    } else {
        ASSERT(err.kind != ERR_NONE && err.text[0] != '\0');
    }
    config_fini(&config);
    return 0;
}
