/* unmask serve: an OpenAI-compatible server before a simulation or an engine. */
#include "experiments/serve/serve.h"

#include <string.h>
#include <unistd.h>

#include "analysis/summary_output.h"
#include "experiments/command/commands.h"
#include "experiments/command/summary_tables.h"
#include "experiments/run/asked.h"
#include "sim/base/num.h"

static const struct option own_options[] = {
    {"listen", "ADDRESS:PORT", "where (default: 127.0.0.1:8000; port 0: a free one)", false},
    {"name", "NAME", "what clients call the model; default: its own name", false},
    {"tokenizer", "FOLDER",
     "its tokenizer.json turns texts into tokens and back; default: that of --weights, else none: "
     "then prompts are token ids",
     false},
    {"chat", "NAME", "the chat template around messages (run --help); default: the folder's",
     false},
    {"text", "WORD",
     "text of a simulated reply: lorem, or echo, the prompt once more (default: lorem)", false},
    {"answers", "MODEL,KEY=VALUE",
     "how long simulated answers are, a model of a workload's `answer`, such as "
     "lognormal,mean=200; default: as max_tokens says",
     false},
    {"output-tokens", "N", "max_tokens of requests that do not say (default: 256)", false},
    {"seed", "N", "seed of all random streams (default: 1)", false},
    {"clock", "WORD",
     "clock of a simulation: real, or virtual, which stands until every client has said what it "
     "does next (default: real)",
     false},
    {"speed", "X",
     "speed of the real clock: X seconds of the run in one, or max, as fast as it can (default: 1)",
     false},
    {"clients", "N",
     "connections that have sent a request before the virtual clock starts (default: 1)", false},
    {"queue", "N", "requests at once, then 429 (default: the system's max_in_system)", false},
    {"api-key-file", "FILE", "ask for the key in its first line; no one else may read the file",
     false},
    {"max-body", "BYTES", "largest body of a request; others get 413 (default: 1048576)", false},
    {"max-header", "BYTES", "largest header of a request; others get 431 (default: 32768)", false},
    {"connections", "N", "at once (default: 1024)", false},
    {"request-timeout", "TIME",
     "in which a request has to be there whole, or a part of a reply be taken (default: 30s)",
     false},
    {"drain", "TIME", "in which requests may end once the server is asked to (default: 30s)",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_serve[] = {
    own_options,     system_option,     device_options, policy_options,
    backend_options, objective_options, record_options, json_options,
    format_option,   verbose_option,    NULL,
};

static int read_clock(const struct options *options, struct serve_request *out, struct err *err) {
    const char *clock = options_text(options, "clock"), *speed = options_text(options, "speed");
    const bool is_device = out->run->backend.kind != BACKEND_SIM;
    const bool is_virtual = clock != NULL && strcmp(clock, "virtual") == 0;
    uint64_t clients = 1;
    if (clock != NULL && !is_virtual && strcmp(clock, "real") != 0) {
        return err_usage(err, "--clock: '%s' is neither real nor virtual", clock);
    }
    if (is_device && (is_virtual || speed != NULL)) {
        return err_usage(err, "--clock virtual and --speed are of simulations: a device takes its "
                              "own time");
    }
    if (speed != NULL && is_virtual) {
        return err_usage(err, "--speed is of the real clock");
    }
    if (options_has(options, "clients") && !is_virtual) {
        return err_usage(err, "--clients is of --clock virtual");
    }
    out->speed = 1;
    out->clock = is_virtual ? CLOCK_VIRTUAL : CLOCK_REAL;
    if (speed != NULL && strcmp(speed, "max") == 0) {
        out->clock = CLOCK_FAST;
    } else if (speed != NULL &&
               (!num_f64(speed, &out->speed) || !(out->speed >= 1e-3) || !(out->speed <= 1e6))) {
        return err_usage(err, "--speed: '%s' is neither a number from 0.001 to 1000000 nor max",
                         speed);
    }
    int status = options_whole(options, "clients", 1, 100000, &clients, err);
    out->clients = (uint32_t)clients;
    return status;
}

static int read_limits(const struct options *options, struct serve_request *out, struct err *err) {
    uint64_t body = 1048576, header = 32768, connections = 1024, queue = 0, tokens = 256;
    out->limits.request_ns = out->drain_ns = INT64_C(30000000000);
    int status = options_whole(options, "max-body", 256, INT32_MAX, &body, err);
    status =
        status != 0 ? status : options_whole(options, "max-header", 4096, 1 << 20, &header, err);
    status =
        status != 0 ? status : options_whole(options, "connections", 1, 100000, &connections, err);
    status = status != 0 ? status : options_whole(options, "queue", 1, 1000000, &queue, err);
    status =
        status != 0 ? status : options_whole(options, "output-tokens", 1, 10000000, &tokens, err);
    status = status != 0 ? status
                         : options_time(options, "request-timeout", &out->limits.request_ns, err);
    status = status != 0 ? status : options_time(options, "drain", &out->drain_ns, err);
    out->limits.body_bytes = body;
    out->limits.header_bytes = header;
    out->limits.connections = (uint32_t)connections;
    out->capacity = (uint32_t)queue;
    out->output_tokens = (uint32_t)tokens;
    return status;
}

static int read_text(const struct options *options, struct serve_request *out, struct err *err) {
    const char *text = options_text(options, "text");
    const struct run_request *run = out->run;
    static char beside[300];
    out->name = options_text(options, "name");
    out->tokenizer = options_text(options, "tokenizer");
    out->chat = options_text(options, "chat");
    out->answers = options_text(options, "answers");
    out->echoes = text != NULL && strcmp(text, "echo") == 0;
    if (text != NULL && !out->echoes && strcmp(text, "lorem") != 0) {
        return err_usage(err, "--text: '%s' is neither lorem nor echo", text);
    }
    if (run->backend.kind != BACKEND_SIM && (text != NULL || out->answers != NULL)) {
        return err_usage(err, "--text and --answers are of simulations: an engine decodes its own");
    }
    if (out->tokenizer == NULL && run->backend.kind != BACKEND_SIM &&
        !backend_has_random_weights(&run->backend)) {
        snprintf(beside, sizeof beside, "%s/tokenizer.json", run->backend.weights);
        out->tokenizer = access(beside, R_OK) == 0 ? run->backend.weights : NULL;
    }
    return out->chat != NULL && out->tokenizer == NULL
               ? err_usage(err, "--chat is of a server with --tokenizer")
               : 0;
}

static int read_request(const struct options *options, const struct asked *asked,
                        struct serve_request *out, struct err *err) {
    *out = (struct serve_request){.run = &asked->request, .listen = "127.0.0.1:8000"};
    out->key_file = options_text(options, "api-key-file");
    out->db = options_text(options, "db");
    if (options_has(options, "listen")) {
        out->listen = options_text(options, "listen");
    }
    int status = asked_level(options, &out->level, err);
    status = status != 0 ? status : read_clock(options, out, err);
    status = status != 0 ? status : read_limits(options, out, err);
    return status != 0 ? status : read_text(options, out, err);
}

static int print(const struct options *options, const struct composition *run, struct err *err) {
    json_t *object = NULL;
    if (run->summary.requests == 0) {
        return 0;
    }
    if (summary_json(&run->summary, &run->facts, &object, err) != 0) {
        return err_status(err);
    }
    if (options_has(options, "json")) {
        return cmd_print_json(object, err);
    }
    summary_print(&run->summary, &run->facts, stdout);
    compose_print(run, stdout);
    compose_print_warnings(run, stdout);
    summary_tables(object);
    json_decref(object);
    return 0;
}

static int run(const struct options *options, struct err *err) {
    struct asked asked;
    struct serve_request request;
    struct composition *served = NULL;
    int status = asked_read_served(options, &asked, err);
    status = status != 0 ? status : asked_systems_file(options, &asked, err);
    /* A server's tokenizer is its own business: no file of prompts is read. */
    asked.request.questions = (struct questions_request){0};
    status = status != 0 ? status : read_request(options, &asked, &request, err);
    status = status != 0 ? status : serve_run(&request, &served, err);
    status = status != 0 ? status : print(options, served, err);
    compose_close(served);
    return status;
}

const struct command command_serve = {
    .name = "serve",
    .words = "",
    .doc = "answer OpenAI's requests with a simulated server's timing, or an engine's",
    .more =
        "POST /v1/completions and /v1/chat/completions, GET /v1/models, /health and /metrics.\n"
        "Simulated, a reply's blocks come when the system, model and GPU would have them; its\n"
        "tokens are words. The clock starts with the first request. A client that leaves frees\n"
        "what its request held at the end of its step. What the system cannot honour is refused.\n"
        "--db records the traffic, which `run --workload THAT.db` serves again under whatever\n"
        "system. SIGTERM or Ctrl-C ends it: requests under way may end, then the summary is\n"
        "printed.",
    .options = options_of_serve,
    .run = run,
};
