/* unmask validate: a measured server's requests, simulated and compared. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "experiments/study/server.h"
#include "experiments/study/start_log.h"
#include "sim/base/input/config.h"
#include "sim/base/mem.h"
#include "sim/system/system_facts.h"

static const struct option own_options[] = {
    {"measured", "FILE",
     "the requests and when the server answered them: a record of `serve --db`, a CSV, or what "
     "GuideLLM, AIPerf, vLLM or SGLang wrote",
     false},
    {"client", "FILE", "what a client of the same traffic wrote, as a column besides", false},
    {"log", "FILE",
     "what vLLM or SGLang logged when it started: its arguments, as far as they are not given",
     false},
    {"anyway", NULL,
     "print errors though the log says that weights, types or speculation differ [--log != none]",
     false},
    {"shared", NULL, "take a record that is marked: its times are not the device's own", false},
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
    own_options,  system_option, device_options, policy_options,
    json_options, format_option, verbose_option, NULL,
};

/* The server's own arguments under its own names, and the keys that they set. */
static const struct {
    const char *option, *key;
} own_arguments[] = {
    {"max-num-seqs", "max_requests"},
    {"max-num-batched-tokens", "max_batched_tokens"},
    {"gpu-memory-utilization", "memory_utilization"},
    {"block-size", "page_tokens"},
};

static bool is_set(const struct asked *asked, const char *key) {
    return setting_find(asked->settings, asked->request.n_settings, key) != NULL;
}

/* What the log says, where neither an option nor --set says it. */
static int take_log(const struct start_log *log, struct asked *asked, struct err *err) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < log->n; i++) {
        const struct log_argument *a = &log->arguments[i];
        if (a->use == LOG_TAKEN && start_log_taken(log, a->key) == a && !is_set(asked, a->key)) {
            char place[96];
            snprintf(place, sizeof place, "the log's %s", a->name);
            status = asked_set(asked, a->key, a->set, place, err);
        }
    }
    return status;
}

static const char *value_of(const struct asked *asked, const char *key) {
    const struct setting *found = setting_find(asked->settings, asked->request.n_settings, key);
    return found != NULL ? found->value : "0";
}

/* A pool that is given is all of the KV cache, but for the page that vLLM keeps. */
static int take_pool(const struct options *options, const struct start_log *log,
                     struct asked *asked, struct err *err) {
    uint64_t block_tokens = strtoull(value_of(asked, "page_tokens"), NULL, 10);
    uint64_t pages = start_log_pages(log, block_tokens);
    bool is_given = options_has(options, "num-gpu-blocks");
    int status = options_whole(options, "num-gpu-blocks", 2, UINT32_MAX, &pages, err);
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, pages - (is_given || !log->is_sglang));
    if (status == 0 && pages > 1 && !is_set(asked, "page_tokens") && log->is_sglang) {
        status = asked_set(asked, "page_tokens", "1", "the log's page_size", err);
    }
    return status == 0 && pages > 1 && !is_set(asked, "pool_pages")
               ? asked_set(asked, "pool_pages", text,
                           is_given ? "--num-gpu-blocks" : "the log's KV cache", err)
               : status;
}

static int read_engine(const struct options *options, const struct start_log *log,
                       struct asked *asked, struct err *err) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < sizeof own_arguments / sizeof own_arguments[0]; i++) {
        const char *value = options_text(options, own_arguments[i].option);
        char place[64];
        snprintf(place, sizeof place, "--%s", own_arguments[i].option);
        status = value != NULL ? asked_set(asked, own_arguments[i].key, value, place, err) : 0;
    }
    status = status != 0 ? status : take_log(log, asked, err);
    return status != 0 ? status : take_pool(options, log, asked, err);
}

/* Errors would be another server's where weights, types or speculation differ. */
static int check_log(const struct options *options, const struct start_log *log, struct err *err) {
    char differs[640];
    start_log_list(log, LOG_DIFFERS, differs, sizeof differs);
    if (differs[0] == '\0' || options_has(options, "anyway")) {
        return 0;
    }
    if (!options_has(options, "json")) {
        start_log_print(log, stdout);
    }
    return err_usage(err,
                     "%s: the server ran with %s, which is not simulated: errors would be those of "
                     "another server (--anyway prints them)",
                     options_text(options, "log"), differs);
}

/* Errors would be those of what else happened. */
static int check_spoilt(const struct options *options, const struct timings *source,
                        struct err *err) {
    return source->spoilt == NULL || options_has(options, "shared")
               ? 0
               : err_world(err,
                           "%s is left out, for its times are not the device's own: %s (--shared "
                           "takes it)",
                           options_text(options, "measured"), source->spoilt);
}

static int simulate(const struct start_log *log, struct server *server, struct asked *asked,
                    struct err *err) {
    char differs[640];
    int status = server_run(server, &asked->request, err);
    start_log_list(log, LOG_DIFFERS, differs, sizeof differs);
    if (status != 0 && compose_says_no_memory(err) && differs[0] != '\0') {
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, "; the server ran with %.400s",
                 differs);
    } else if (status == 0 && differs[0] != '\0') {
        warnings_add(&server->run->facts.warnings, WARNING_SETTING_ASSUMED, (double)NAN,
                     "the server ran with %.200s, which is not simulated: errors are of both",
                     differs);
    }
    return status;
}

static int print(const struct options *options, const struct start_log *log,
                 const struct server *server, struct err *err) {
    bool has_log = options_has(options, "log");
    if (options_has(options, "json")) {
        json_t *object = server_json(server);
        if (has_log) {
            json_object_set_new(object, "log", start_log_json(log));
        }
        return cmd_print_json(object, err);
    }
    server_print(server, stdout);
    if (has_log) {
        start_log_print(log, stdout);
    }
    return 0;
}

/* ---- a record ---- */

/* Keys that follow from the device, and those that say how much memory is given to it. */
static bool is_of_device(const char *key) {
    return strncmp(key, "runtime.host_", 13) == 0 || strncmp(key, "host", 4) == 0 ||
           strcmp(key, "memory_utilization") == 0;
}

/* Whether it, or what it is a parameter of, is among the first `n` settings. */
static bool is_answered(const struct asked *asked, uint32_t n, const char *key) {
    char part[64];
    snprintf(part, sizeof part, "%.*s", (int)strcspn(key, "."), key);
    return setting_find(asked->settings, n, key) != NULL ||
           setting_find(asked->settings, n, part) != NULL;
}

/* The keys in which the recorded system differs from the one of its name, as if they were set. */
static int take_changed(const struct config *recorded, const struct config *plain,
                        struct asked *asked, struct err *err) {
    const uint32_t n_own = asked->request.n_settings; /* the user's */
    int status = 0;
    const struct config_entry *entry = NULL;
    while (status == 0 && (entry = config_next(recorded, "system", NULL, entry)) != NULL) {
        if (strcmp(entry->key, "model") == 0 || is_of_device(entry->key) ||
            is_answered(asked, n_own, entry->key)) {
            continue;
        }
        const struct config_entry *usual = config_find(plain, "", entry->key);
        if (usual == NULL || strcmp(usual->value, entry->value) != 0) {
            status = asked_set(asked, entry->key, entry->value, "the record's", err);
        }
    }
    return status;
}

/* The system of that name without settings, as a configuration. */
static int read_plain(const struct asked *asked, struct config *out, struct err *err) {
    const struct run_request *request = &asked->request;
    const struct system_request plain = {
        .system = request->system,
        .model = request->model,
        .gpu = request->gpu,
        .systems_path = request->systems_path,
        .fills_gaps = true,
    };
    struct system *system = NULL;
    int status = system_open(&plain, &system, err);
    if (status == 0) {
        char *text = system_text(system);
        status = config_parse("the system", text, strlen(text), out, err);
        free(text);
    }
    system_close(system);
    return status;
}

/* What a record says was served, where no option does: names, and the settings of its system. */
static int take_served(const struct options *options, const struct timings *source,
                       struct asked *asked, struct err *err) {
    struct run_request *request = &asked->request;
    if (source->kind != TIMINGS_DATABASE) {
        return 0;
    }
    const bool is_another =
        options_has(options, "system") && strcmp(request->system, source->system) != 0;
    struct config recorded = {0}, plain = {0};
    int status = source->config == NULL ? 0
                                        : config_parse("the record", source->config,
                                                       strlen(source->config), &recorded, err);
    const struct config_entry *model = config_find(&recorded, "system", "model");
    request->system = options_has(options, "system") ? request->system : source->system;
    request->gpu = options_has(options, "gpu") ? request->gpu : source->gpu;
    if (!options_has(options, "model")) {
        request->model = source->model;
        if (status == 0 && model != NULL && strchr(model->value, '/') != NULL) {
            snprintf(asked->config_path, sizeof asked->config_path, "%s", model->value);
            request->model = asked->config_path;
        }
    }
    if (status == 0 && source->config != NULL && !is_another) {
        status = read_plain(asked, &plain, err);
        status = status == 0 ? take_changed(&recorded, &plain, asked, err) : status;
    }
    config_fini(&recorded);
    config_fini(&plain);
    return status;
}

static int run(const struct options *options, struct err *err) {
    const char *path = options_text(options, "measured");
    if (path == NULL) {
        return err_usage(err, "validate needs --measured FILE");
    }
    struct asked asked;
    struct start_log *log = mem_zeroed(1, sizeof *log);
    struct server *server = mem_unwritten(1, sizeof *server);
    int status = server_read(path, path, server, err);
    status = status == 0 ? check_spoilt(options, &server->source, err) : status;
    if (status == 0 && options_has(options, "client")) {
        status = server_read_client(options_text(options, "client"), server, err);
    }
    status = status != 0 ? status : asked_read(options, &asked, err);
    status = status != 0 ? status : asked_systems_file(options, &asked, err);
    if (status == 0 && options_has(options, "log")) {
        status = start_log_read(options_text(options, "log"), log, err);
        status = status != 0 ? status : check_log(options, log, err);
    }
    status = status != 0 ? status : read_engine(options, log, &asked, err);
    if (status == 0) {
        status = take_served(options, &server->source, &asked, err);
    }
    if (status == 0) {
        const char *serving = log->decodes_blocks ? "sglang" : "vllm-ar";
        const bool is_known = options_has(options, "system") || server->source.system[0] != '\0';
        asked.request.system = is_known ? asked.request.system : serving;
        status = simulate(log, server, &asked, err);
    }
    status = status != 0 ? status : print(options, log, server, err);
    server_fini(server);
    free(server);
    free(log);
    return status;
}

const struct command command_validate = {
    .name = "validate",
    .words = "",
    .doc = "simulates the requests of a measured server and compares",
    .more =
        "FILE is one of these, and says itself which:\n"
        "  a database   what `serve --db` recorded; its system and settings, model and GPU, "
        "where no option names others\n"
        "  a CSV        with a header: arrival_us, input_tokens, output_tokens, first_token_us "
        "and\n"
        "               last_token_us in any order, all times in microseconds from one moment;\n"
        "               prefix_tokens (how much of the prompt an earlier prompt began with) and\n"
        "               scheduled_us are optional\n"
        "  GuideLLM's   JSON, of which the last benchmark counts\n"
        "  AIPerf's     profile_export.jsonl\n"
        "  vLLM's       JSON of `vllm bench serve --save-result --save-detailed`\n"
        "  SGLang's     JSON lines of bench_serving --output-details, of which the last counts\n"
        "--client puts the numbers of such a client next to those of a record of the same "
        "traffic.\n"
        "Both sides count alike: TTFT from the arrival, TPOT without the first token, or without\n"
        "the first block where the record of the server says how long that was. A server's\n"
        "limits decide its TTFT: give the arguments that it was started with, or its log, of\n"
        "which it prints what was taken, not taken, differs and is unknown. A warning says so\n"
        "where the requests that it had at once contradict those assumed. Default system:\n"
        "vllm-ar, or the record's.\n"
        "A study with a [server] draws it (experiments/study/studies/vllm).",
    .options = options_of_server,
    .run = run,
};

static int run_as_server(const struct options *options, struct err *err) {
    fprintf(stderr, "unmask: `server` is called `validate` now\n");
    return run(options, err);
}

const struct command command_server = {
    .name = "server",
    .words = "",
    .doc = "the former name of validate",
    .options = options_of_server,
    .run = run_as_server,
};
