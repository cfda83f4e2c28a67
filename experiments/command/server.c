/* unmask server: a measured server's requests, simulated and compared. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/cli/asked.h"
#include "experiments/cli/cmd.h"
#include "experiments/server/server.h"
#include "experiments/server/start_log.h"
#include "sim/base/mem.h"

static const struct option own_options[] = {
    {"measured", "FILE", "the requests and when the server answered them", false},
    {"log", "FILE",
     "what vLLM logged when it started: the settings below, as far as they are not given", false},
    {"max-num-seqs", "N", "vLLM's own: requests at once (max_requests); default: the system's",
     false},
    {"max-num-batched-tokens", "N",
     "vLLM's own: tokens of a step (max_batched_tokens); default: the system's", false},
    {"num-gpu-blocks", "N",
     "what vLLM logs at its start: pages, of which it keeps one (pool_pages); default: what memory "
     "leaves",
     false},
    {"gpu-memory-utilization", "X",
     "vLLM's own: share of the memory (memory_utilization); default: the system's", false},
    {"block-size", "N", "vLLM's own: tokens of a page (page_tokens); default: the system's", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_server[] = {
    own_options, system_option, device_options, policy_options, json_options, NULL,
};

/* The server's own arguments, under its own names; an option counts before the log. A pool that is
 * given is all of the KV cache. */
static int read_engine(const struct options *options, const struct start_log *log,
                       struct asked *asked, struct err *err) {
    const struct {
        const char *option, *key, *logged;
    } named[] = {
        {"max-num-seqs", "max_requests", log->max_num_seqs},
        {"max-num-batched-tokens", "max_batched_tokens", log->max_num_batched_tokens},
        {"gpu-memory-utilization", "memory_utilization", log->gpu_memory_utilization},
        {"block-size", "page_tokens", log->block_size},
    };
    int status = 0;
    for (size_t i = 0; status == 0 && i < sizeof named / sizeof named[0]; i++) {
        const char *given = options_text(options, named[i].option);
        const char *value = given != NULL ? given : named[i].logged;
        char place[64];
        snprintf(place, sizeof place, "%s%s", given != NULL ? "--" : "the log's ", named[i].option);
        status = value[0] != '\0' ? asked_set(asked, named[i].key, value, place, err) : 0;
    }
    uint64_t blocks = log->gpu_blocks;
    status = status != 0 ? status
                         : options_whole(options, "num-gpu-blocks", 2, UINT32_MAX, &blocks, err);
    if (status == 0 && blocks > 1) {
        char pages[24];
        snprintf(pages, sizeof pages, "%" PRIu64, blocks - 1);
        status = asked_set(asked, "pool_pages", pages, "--num-gpu-blocks", err);
    }
    return status;
}

static int run(const struct options *options, struct err *err) {
    const char *path = options_text(options, "measured");
    if (path == NULL) {
        return err_usage(err, "server needs --measured FILE");
    }
    struct asked asked;
    struct start_log log = {0};
    struct server *server = mem_unwritten(1, sizeof *server);
    int status = server_read(path, path, server, err);
    status = status != 0 ? status : asked_read(options, &asked, err);
    status = status != 0 ? status : asked_systems_file(options, &asked, err);
    if (status == 0 && options_has(options, "log")) {
        status = start_log_read(options_text(options, "log"), &log, err);
    }
    status = status != 0 ? status : read_engine(options, &log, &asked, err);
    if (status == 0) {
        asked.request.system = options_has(options, "system") ? asked.request.system : "vllm-ar";
        status = server_run(server, &asked.request, err);
    }
    if (status == 0 && options_has(options, "json")) {
        status = cmd_print_json(server_json(server), err);
    } else if (status == 0) {
        server_print(server, stdout);
    }
    server_fini(server);
    free(server);
    return status;
}

const struct command command_server = {
    .name = "server",
    .words = "",
    .doc = "simulates the requests of a measured server and compares",
    .more =
        "FILE is a CSV with a header: arrival_us, input_tokens, output_tokens, first_token_us and\n"
        "last_token_us in any order, all times in microseconds from one moment; prefix_tokens\n"
        "(how much of the prompt an earlier prompt began with) and scheduled_us are optional.\n"
        "Both sides count alike: TTFT from the arrival, TPOT without the first token. A server's\n"
        "limits decide its TTFT: give the arguments that it was started with, or its log. A "
        "warning says so\n"
        "where the requests that it had at once contradict those assumed. Default system: "
        "vllm-ar.\n"
        "A study with a [server] draws it (experiments/studies/vllm).",
    .options = options_of_server,
    .run = run,
};
