/* unmask server: a measured server's requests, simulated and compared. */
#include <stdlib.h>

#include "experiments/asked.h"
#include "experiments/cmd.h"
#include "experiments/server.h"

static const struct option own_options[] = {
    {"measured", "FILE", "the requests and when the server answered them", false},
    {"out", "STEM", "write STEM.svg, .png, .csv, -server.csv and -server.md", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_server[] = {
    own_options, system_option, device_options, policy_options, json_options, NULL,
};

static int report(const struct options *options, struct server *server, const char *label,
                  struct err *err) {
    const char *out = options_text(options, "out");
    int status = server_compare(server, err);
    if (status == 0 && options_has(options, "json")) {
        status = cmd_print_json(server_json(server), err);
    } else if (status == 0) {
        server_print(server, stdout);
    }
    return status != 0 || out == NULL ? status : server_draw(server, label, out, err);
}

static int run(const struct options *options, struct err *err) {
    const char *path = options_text(options, "measured");
    if (path == NULL) {
        return err_usage(err, "server needs --measured FILE");
    }
    struct asked asked;
    struct server *server = malloc(sizeof *server);
    ASSERT(server != NULL);
    int status = server_read(path, path, server, err);
    status = status != 0 ? status : asked_read(options, &asked, err);
    status = status != 0 ? status : asked_systems_file(options, "systems", &asked, err);
    if (status == 0) {
        asked.request.system = options_has(options, "system") ? asked.request.system : "vllm-ar";
        status = server_add_run(server, &asked.request, asked.request.system, err);
    }
    status = status != 0 ? status : report(options, server, asked.request.system, err);
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
        "last_token_us in any order, all times in microseconds from one moment; prefix_tokens "
        "(the\n"
        "beginning that an earlier prompt had, too) and scheduled_us may be. The system is "
        "vllm-ar\n"
        "unless given. Both sides count alike: TTFT from the arrival, TPOT without the first "
        "token.",
    .options = options_of_server,
    .run = run,
};
