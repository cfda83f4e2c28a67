#include "experiments/run/asked.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "analysis/caution.h"
#include "analysis/offered.h"
#include "engine/device/device.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/ranks/pool.h"
#include "sim/base/condition.h"
#include "sim/base/input/path.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/model/model_config.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_reads.h"

const struct option system_option[] = {
    {"system", "NAME",
     "a configuration of policies (list systems; default: dllm-serve, sdar or vllm-ar, as the "
     "model asks)",
     false},
    {NULL, NULL, NULL, false},
};

const struct option device_options[] = {
    {"model", "NAME",
     "the model (list models), an INI file or a Hugging Face folder; default: that of --weights, "
     "or the system's own",
     false},
    {"gpu", "NAME",
     "the GPU (list gpus) or an INI file (default: l40s; of a live run this machine's)", false},
    {"systems-file", "FILE", "systems of your own, in addition to the shipped ones", false},
    {"profile", "FILE",
     "price by this profile, measured on the GPU that --gpu names; default: the GPU's of the "
     "model, else its own for all (list profiles)",
     false},
    {"roofline", NULL, "price by the data sheet, not by the GPU's profile", false},
    {"price-source", "SOURCE",
     "source of prices: measured by unmask, imported from others, or one: a source that all "
     "systems "
     "compared have (default: the best of each)",
     false},
    {NULL, NULL, NULL, false},
};

const struct option policy_options[] = {
    {"set", "KEY=VALUE",
     "set a key of the system, model.KEY of the model or workload.KEY of the workload", true},
    {"scheduler", "NAME", "short for --set scheduler=NAME; with a slash a plug-in's file", false},
    {"cache", "NAME", "the same for the cache policy", false},
    {"decoder", "NAME", "the same for the decoder", false},
    {"router", "NAME", "the same for the router", false},
    {"planner", "NAME", "the same for the memory planner", false},
    {"runtime", "NAME", "the same for the runtime", false},
    {"host", "NAME", "the same for the host, the machine that the GPU is in (list hosts)", false},
    {"replicas", "N", "identical GPUs, each with the whole model (default: 1)", false},
    {NULL, NULL, NULL, false},
};

const struct option backend_options[] = {
    {"backend", "NAME", "what executes the batches: sim, cpu or cuda (default: sim)", false},
    {"weights", "FOLDER", "a checkpoint for cpu and cuda, or random:SEED (default: random:1)",
     false},
    {"eos", "IDS",
     "on cpu and cuda: the token ids that end a text, separated by commas, or none; default: the "
     "checkpoint's eos_token_id (random weights: none)",
     false},
    {"library", "PATH",
     "the CUDA back end, libunmask_cuda.so (default: next to the program) [--backend = cuda]",
     false},
    {"device", "N",
     "number of the machine's GPU, counted from 0; replicas and ranks have those from it on "
     "(default: 0) [--backend = cuda]",
     false},
    {NULL, NULL, NULL, false},
};

const struct option text_options[] = {
    {"tokenizer", "FOLDER",
     "turn texts into tokens by its tokenizer.json; default: --weights [workload.prompts = on]",
     false},
    {"chat", "NAME",
     "the chat template around every prompt: none, llada, ling, chatml, dream, qwen2.5 or qa; "
     "default: none, and for generate --text that of the folder [workload.prompts = on]",
     false},
    {"reference", "FILE",
     "the --outputs file of another run of the same prompts: prints the share of outputs that "
     "agree",
     false},
    {NULL, NULL, NULL, false},
};

const struct option clock_options[] = {
    {"clock", "WORD", "on cpu and cuda: real, or virtual, which skips idle time (default: real)",
     false},
    {NULL, NULL, NULL, false},
};

const struct option workload_options[] = {
    {"workload", "NAME", "a workload (list workloads), an INI or a trace file (default: burst)",
     false},
    {"arrivals", "PROCESS", "replace the arrival process (list arrivals)", false},
    {"rate", "R", "mean requests per second; a trace is rescaled to it, draws come near it", false},
    {"requests", "N", "how many requests", false},
    {"seed", "N", "seed of all random streams (default: 1) [run.draws = on or sampling = on]",
     false},
    {"input-tokens", "N", "every prompt has this length", false},
    {"output-tokens", "N", "every output has this length", false},
    {"columns", "time=NAME:UNIT,...",
     "what the columns of a trace file are called (trace convert --help)", false},
    {"time-unit", "UNIT",
     "unit of a trace's times: s, ms, us, ns or date; default: as its format says", false},
    {"hash-tokens", "N", "what a trace's hash ids stand for; default: as its rows say", false},
    {"where", "NAME=VALUE,...", "which rows of a trace count; != for those that do not", false},
    {"skip-failed", NULL, "leave out rows of a trace that failed or have no tokens", false},
    {"skip-bad", NULL, "leave out rows of a trace that cannot be read, and say how many", false},
    {NULL, NULL, NULL, false},
};

const struct option objective_options[] = {
    {"slo-latency", "TIME", "objective for goodput, such as 30s", false},
    {"slo-ttft", "TIME", "objective for the first token, which comes with the first block", false},
    {"slo-tpot", "TIME", "objective for the time per output token after the first block", false},
    {NULL, NULL, NULL, false},
};

const struct option record_options[] = {
    {"db", "FILE", "record into this SQLite database", false},
    {"levels", "WORD", "what --db keeps: requests, steps or events (default: requests)", false},
    {NULL, NULL, NULL, false},
};

const struct option job_options[] = {
    {"j", "N", "threads (default: as many as cores)", false},
    {NULL, NULL, NULL, false},
};

/* A workload is a file where its name has a dot, as in the command line. */
static bool names_file(const char *key, const char *value) {
    static const char *const keys[] = {"model", "gpu", "workload", NULL};
    const bool is_listed = name_find(keys, key) >= 0;
    return strchr(value, '/') != NULL
               ? is_listed || system_key_names_file(key)
               : is_listed && (name_ends(value, ".ini") ||
                               (strcmp(key, "workload") == 0 && strchr(value, '.') != NULL));
}

int asked_named_in(const char *file, const char *place, const char *key, const char *value,
                   char *out, size_t size, struct err *err) {
    const bool fits =
        value[0] != '\0' && path_named_in(names_file(key, value) ? file : "", value, out, size);
    return fits ? 0
                : err_usage(
                      err,
                      "%s: '%.80s' is empty, or longer than %zu characters with the file's folder",
                      place, value, size - 1);
}

int asked_set(struct asked *asked, const char *key, const char *value, const char *place,
              struct err *err) {
    if (asked->request.n_settings == ASKED_MOST_SETTINGS) {
        return err_usage(err, "%s: more than %d settings", place, ASKED_MOST_SETTINGS);
    }
    struct setting *setting = &asked->settings[asked->request.n_settings];
    if (strlen(key) >= sizeof setting->key || strlen(value) >= sizeof setting->value) {
        return err_usage(err, "%s: the key has at most %zu characters and the value %zu", place,
                         sizeof setting->key - 1, sizeof setting->value - 1);
    }
    *setting = (struct setting){.said = SAID_BY_COMMAND};
    snprintf(setting->key, sizeof setting->key, "%s", key);
    snprintf(setting->value, sizeof setting->value, "%s", value);
    snprintf(setting->place, sizeof setting->place, "%s", place);
    asked->request.n_settings++;
    return 0;
}

static int read_set(struct asked *asked, const char *text, struct err *err) {
    const char *equals = strchr(text, '=');
    char key[64];
    if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof key) {
        return err_usage(err, "--set: '%s' is not KEY=VALUE", text);
    }
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    if (strcmp(key, "model") == 0) {
        return err_usage(err, "--set: the model is chosen with --model");
    }
    return asked_set(asked, key, equals + 1, "--set", err);
}

/* A temperature of 0 takes the most likely token; else any of the three draws. */
static int read_sampling(const struct options *options, struct asked *asked, struct err *err) {
    static const char *const names[][2] = {
        {"temperature", "--temperature"}, {"top-k", "--top-k"}, {"top-p", "--top-p"}};
    static const char *const keys[] = {"temperature", "top_k", "top_p"};
    double temperature = 1;
    const char *text = options_text(options, names[0][0]);
    bool is_greedy = text != NULL && num_f64(text, &temperature) && temperature == 0;
    int status = 0;
    for (int i = 0; status == 0 && i < 3; i++) {
        const char *value = options_text(options, names[i][0]);
        if (value != NULL && status == 0) {
            status = asked_set(asked, "sampling", is_greedy ? "off" : "on", names[i][1], err);
        }
        if (value != NULL && status == 0) {
            status = asked_set(asked, keys[i], i == 0 && is_greedy ? "1" : value, names[i][1], err);
        }
    }
    return status;
}

static int read_settings(const struct options *options, struct asked *asked, struct err *err) {
    static const char *const shorts[] = {"scheduler", "cache",   "decoder", "router",
                                         "planner",   "runtime", "host",    "replicas"};
    /* Parts are set before their parameters, so that in --set cache.x=1 --cache y the x is y's. */
    for (size_t i = 0; i < sizeof shorts / sizeof shorts[0]; i++) {
        const char *value = options_text(options, shorts[i]);
        char place[32];
        snprintf(place, sizeof place, "--%s", shorts[i]);
        if (value != NULL && asked_set(asked, shorts[i], value, place, err) != 0) {
            return (int)err->kind;
        }
    }
    if (asked->request.backend.kind == BACKEND_CPU &&
        asked_set(asked, "storage.weights", "f32", "--backend cpu", err) != 0) {
        return (int)err->kind;
    }
    if (read_sampling(options, asked, err) != 0) {
        return (int)err->kind;
    }
    const char *arrivals = options_text(options, "arrivals");
    if (arrivals != NULL &&
        asked_set(asked, "workload.arrivals", arrivals, "--arrivals", err) != 0) {
        return (int)err->kind;
    }
    static const char *const readings[][2] = {
        {"columns", "workload.columns"},         {"time-unit", "workload.time_unit"},
        {"hash-tokens", "workload.hash_tokens"}, {"where", "workload.where"},
        {"skip-failed", "workload.skip_failed"}, {"skip-bad", "workload.skip_bad"}};
    for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++) {
        const char *value = options_text(options, readings[i][0]);
        char place[32];
        snprintf(place, sizeof place, "--%s", readings[i][0]);
        value = options_has(options, readings[i][0]) && value == NULL ? "on" : value;
        if (value != NULL && asked_set(asked, readings[i][1], value, place, err) != 0) {
            return (int)err->kind;
        }
    }
    const char *sets[OPTIONS_MOST_GIVEN];
    size_t n_sets = options_values(options, "set", sets);
    for (size_t i = 0; i < n_sets; i++) {
        if (read_set(asked, sets[i], err) != 0) {
            return (int)err->kind;
        }
    }
    return 0;
}

/* --slo-latency, --slo-ttft and --slo-tpot; asked_read reads them, too. */
static int asked_objectives(const struct options *options, struct slo *slo, struct err *err) {
    int status = options_time(options, "slo-latency", &slo->latency_ns, err);
    status = status != 0 ? status : options_time(options, "slo-ttft", &slo->ttfb_ns, err);
    return status != 0 ? status : options_time(options, "slo-tpot", &slo->tpot_ns, err);
}

static int read_workload(const struct options *options, struct run_request *request,
                         struct err *err) {
    if (options_has(options, "workload")) {
        request->workload = options_text(options, "workload");
    }
    struct workload_options *o = &request->options;
    uint64_t input = 0, output = 0;
    int status = rate_read("--rate", options_text(options, "rate"), &o->rate_per_s, err);
    status =
        status != 0 ? status : options_whole(options, "requests", 1, 1000000000, &o->requests, err);
    status = status != 0 ? status : options_whole(options, "seed", 0, INT64_MAX, &o->seed, err);
    status =
        status != 0 ? status : options_whole(options, "input-tokens", 1, 10000000, &input, err);
    status =
        status != 0 ? status : options_whole(options, "output-tokens", 1, 10000000, &output, err);
    status = status != 0 ? status : asked_objectives(options, &request->slo, err);
    o->input_tokens = (uint32_t)input;
    o->output_tokens = (uint32_t)output;
    return status;
}

int asked_path(const struct options *options, const char *name, const char **path,
               struct err *err) {
    enum { MOST_PATH_CHARS = 160 }; /* a line of the recorded configuration has 199 */
    *path = options_text(options, name);
    if (*path != NULL && strlen(*path) > MOST_PATH_CHARS) {
        return err_usage(err, "--%s: the path has more than %d characters", name, MOST_PATH_CHARS);
    }
    return 0;
}

int asked_systems_file(const struct options *options, struct asked *asked, struct err *err) {
    asked->request.compared = options_text(options, "systems");
    return asked_path(options, "systems-file", &asked->request.systems_path, err);
}

int asked_systems(const struct options *options, const char **out, struct err *err) {
    const char *text = options_text(options, "systems"), *one = options_text(options, "system");
    *out = text != NULL ? text : one != NULL ? one : "dllm-serve";
    return text != NULL && one != NULL ? err_usage(err, "--system and --systems exclude each other")
                                       : 0;
}

int asked_system_names(const char *text, char names[][ASKED_NAME_CHARS], size_t *n,
                       struct err *err) {
    const char *word;
    size_t length;
    *n = 0;
    for (const char *rest = text; name_next(&rest, ",", &word, &length); (*n)++) {
        if (length == 0 || length >= ASKED_NAME_CHARS || *n == ASKED_MOST_SYSTEMS) {
            return err_usage(err, "--systems: expected at most %d names of 1 to %d characters",
                             ASKED_MOST_SYSTEMS, ASKED_NAME_CHARS - 1);
        }
        snprintf(names[*n], ASKED_NAME_CHARS, "%.*s", (int)length, word);
    }
    return 0;
}

/* Roofline has an option of its own. */
static int read_price_source(const struct options *options, struct asked *asked, struct err *err) {
    static const char *const words[] = {"best", "measured", "imported", "one", NULL};
    static const enum price_source of[] = {PRICES_BEST, PRICES_MEASURED, PRICES_IMPORTED,
                                           PRICES_BEST};
    struct run_request *request = &asked->request;
    const char *text = options_text(options, "price-source");
    if (text == NULL) {
        return 0;
    }
    const int found = name_find(words, text);
    if (found < 0) {
        return err_usage(err, "--price-source: '%s' is neither best, measured, imported nor one",
                         text);
    }
    if (found > 0 && (request->roofline || request->profile_path != NULL)) {
        return err_usage(err, "--price-source and --%s exclude each other",
                         request->roofline ? "roofline" : "profile");
    }
    request->price_source = of[found];
    asked->asks_one_source = strcmp(text, "one") == 0;
    return 0;
}

/* --profile, which asked_read takes too; a usage error with --roofline. */
static int asked_profile(const struct options *options, struct asked *asked, struct err *err) {
    struct run_request *request = &asked->request;
    int status = asked_path(options, "profile", &request->profile_path, err);
    if (status == 0 && request->roofline && request->profile_path != NULL) {
        return err_usage(err, "--profile and --roofline exclude each other");
    }
    return status != 0 ? status : read_price_source(options, asked, err);
}

static int read_clock(const struct options *options, struct backend_request *out, struct err *err) {
    static const char *const clocks[] = {"real", "virtual", NULL};
    const char *clock = options_text(options, "clock");
    if (clock == NULL) {
        return 0;
    }
    if (out->kind == BACKEND_SIM) {
        return err_usage(err, "--clock is for the back ends cpu and cuda");
    }
    int found = name_find(clocks, clock);
    out->skips_idle = found == 1;
    return found >= 0 ? 0 : err_usage(err, "--clock: '%s' is neither real nor virtual", clock);
}

/* Before anything is made of its model, which would be another one's. */
static int check_weights(const char *weights, struct err *err) {
    bool is_random = strncmp(weights, "random:", strlen("random:")) == 0;
    return is_random || access(weights, F_OK) == 0
               ? 0
               : err_world(err, "--weights: cannot open '%s': %s", weights, strerror(errno));
}

int asked_device(const struct options *options, int32_t *out, struct err *err) {
    uint64_t device = 0;
    int status = options_whole(options, "device", 0, 255, &device, err);
    *out = (int32_t)device;
    return status;
}

int asked_backend(const struct options *options, struct backend_request *out, struct err *err) {
    static const char *const alone[] = {"weights", "library", "eos",
                                        "device",  "outputs", "reference"};
    const char *name = options_text(options, "backend");
    int kind = name != NULL ? name_find(backend_names, name) : BACKEND_SIM;
    *out = (struct backend_request){0};
    if (kind < 0) {
        return err_usage(err, "--backend: this program has no '%s'; it has: sim, cpu, cuda", name);
    }
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) {
        if (kind == BACKEND_SIM && options_has(options, alone[i])) {
            return err_usage(err, "--%s is for the back ends cpu and cuda", alone[i]);
        }
    }
    if (kind == BACKEND_SIM) {
        return 0;
    }
    out->kind = (enum backend)kind;
    out->weights = "random:1";
    out->eos = options_text(options, "eos");
    int status = asked_device(options, &out->device, err);
    status = status == 0 ? asked_path(options, "library", &out->library, err) : status;
    if (status == 0 && options_has(options, "weights")) {
        status = asked_path(options, "weights", &out->weights, err);
        status = status != 0 ? status : check_weights(out->weights, err);
    }
    return status;
}

const struct model *asked_model_of_weights(const char *weights, char *path, struct err *err) {
    enum { PATH_CHARS = 256 };
    bool fits =
        weights != NULL && snprintf(path, PATH_CHARS, "%s/config.json", weights) < (int)PATH_CHARS;
    if (!fits || access(path, R_OK) != 0) {
        return NULL;
    }
    const struct model *model = model_find(path, err);
    return model != NULL ? model_recognise(model, err) : NULL;
}

static const char *const serving[] = {
    [MASK_BIDIRECTIONAL] = "dllm-serve", [MASK_BLOCK_CAUSAL] = "sdar", [MASK_CAUSAL] = "vllm-ar"};

const char *asked_system_for(const struct model *model) {
    return serving[model != NULL ? model->mask : MASK_BIDIRECTIONAL];
}

/* The same of a model whose attention --set changes; a word that names none is refused later. */
static const char *system_for(const struct model *model, const struct options *options) {
    const char *sets[OPTIONS_MOST_GIVEN], *system = asked_system_for(model);
    const size_t n = options_values(options, "set", sets);
    for (size_t i = 0; i < n; i++) {
        const char *value = name_behind(sets[i], "model.attention=");
        const int mask = value != NULL ? name_find(attention_mask_names, value) : -1;
        system = mask >= 0 ? serving[mask] : system;
    }
    return system;
}

/* The model that is named or that the weights are of, and where no system is named one that serves
 * it. */
static int read_model(const struct options *options, struct asked *asked, struct err *err) {
    struct run_request *request = &asked->request;
    const char *weights = request->backend.kind != BACKEND_SIM ? request->backend.weights : NULL;
    const struct model *model = request->model != NULL
                                    ? model_find(request->model, err)
                                    : asked_model_of_weights(weights, asked->config_path, err);
    if (err->kind != ERR_NONE) {
        return (int)err->kind;
    }
    if (request->model == NULL && model != NULL) {
        request->model = model->path != NULL ? model->path : model->name;
    }
    if (!options_has(options, "system")) {
        request->system = system_for(model, options);
    }
    return 0;
}

/* The card of a live run on a GPU where no other is named. A machine without one is refused when
 * the engine is opened, after all other checks of the command line. */
static int name_machines_gpu(const struct backend_request *backend, const char **gpu,
                             struct err *err) {
    struct engine_device device;
    struct err none = {0};
    if (engine_device_open_at(backend->kind, backend->library, backend->device, &device, &none) !=
        0) {
        return 0;
    }
    int status = engine_find_gpu(&device.facts, gpu, err);
    engine_device_close(&device);
    return status;
}

/* What system_open takes of it. */
static int read_system(const struct options *options, bool has_clock, struct asked *asked,
                       struct err *err) {
    struct run_request *request = &asked->request;
    *request = (struct run_request){.system = "dllm-serve",
                                    .gpu = "l40s",
                                    .model = options_text(options, "model"),
                                    .roofline = options_has(options, "roofline"),
                                    .workload = "burst",
                                    .options = {.seed = 1},
                                    .settings = asked->settings};
    if (options_has(options, "system")) {
        request->system = options_text(options, "system");
    }
    int status = asked_backend(options, &request->backend, err);
    if (status == 0 && has_clock) {
        status = read_clock(options, &request->backend, err);
    }
    if (options_has(options, "gpu")) {
        request->gpu = options_text(options, "gpu");
    } else if (request->backend.kind == BACKEND_CPU) {
        request->gpu = backend_names[BACKEND_CPU];
    } else if (status == 0 && request->backend.kind == BACKEND_CUDA) {
        status = name_machines_gpu(&request->backend, &request->gpu, err);
    }
    request->questions = (struct questions_request){.weights = request->backend.weights,
                                                    .chat = options_text(options, "chat")};
    status =
        status != 0 ? status : asked_path(options, "tokenizer", &request->questions.tokenizer, err);
    status =
        status != 0 ? status : asked_path(options, "reference", &request->questions.reference, err);
    status = status != 0 ? status : read_model(options, asked, err);
    status = status != 0 ? status : asked_profile(options, asked, err);
    return status != 0 ? status : read_settings(options, asked, err);
}

/* Options of whose condition only the run can tell whether it holds. */
static void keep_stated(const struct options *options, struct asked *asked) {
    struct run_request *request = &asked->request;
    for (size_t i = 0; i < options->n_given; i++) {
        const struct given *given = &options->given[i];
        char text[CONDITION_CHARS];
        const char *condition = condition_of(given->option->doc, text);
        if (condition != NULL && condition[0] != '-') {
            ASSERT(request->n_stated < ASKED_MOST_STATED);
            asked->stated[request->n_stated++] =
                (struct stated_option){given->option->name, given->value, given->option->doc};
        }
    }
    request->stated = asked->stated;
}

int asked_read(const struct options *options, struct asked *asked, struct err *err) {
    int status = read_system(options, true, asked, err);
    keep_stated(options, asked);
    return status != 0 ? status : read_workload(options, &asked->request, err);
}

int asked_read_served(const struct options *options, struct asked *asked, struct err *err) {
    int status = read_system(options, false, asked, err);
    keep_stated(options, asked);
    asked->request.workload = "served";
    asked->request.is_served = true;
    return status != 0 ? status : read_workload(options, &asked->request, err);
}

int asked_read_system(const struct options *options, struct asked *asked, struct system **out,
                      struct err *err) {
    int status = read_system(options, true, asked, err);
    if (status == 0) {
        status = asked_systems_file(options, asked, err);
    }
    if (status != 0) {
        return status;
    }
    struct system_request wanted = compose_system_request(&asked->request);
    wanted.statistics = options_has(options, "decode-out");
    status = system_open(&wanted, out, err);
    if (status == 0 && (status = compose_check_system(*out, err)) != 0) {
        system_close(*out);
        *out = NULL;
    }
    return status;
}

void asked_say_unread(const struct system *system, const char *backend) {
    const struct system_in in = {system, backend};
    const struct facts facts = {system_in_fact, &in};
    struct warnings warnings = {0};
    system_warn_of_unread(system, &facts, &warnings);
    caution_print(&warnings, stderr);
}

int asked_level(const struct options *options, enum store_level *level, struct err *err) {
    static const char *const words[] = {"requests", "steps", "events", NULL};
    const char *text = options_text(options, "levels");
    *level = STORE_REQUESTS;
    if (text == NULL) {
        return 0;
    }
    if (!options_has(options, "db")) {
        return err_usage(err, "--levels says what --db keeps, but there is no --db");
    }
    int found = name_find(words, text);
    *level = found >= 0 ? (enum store_level)found : STORE_REQUESTS;
    return found >= 0
               ? 0
               : err_usage(err, "--levels: '%s' is neither requests, steps nor events", text);
}

int asked_threads(const struct options *options, unsigned *n_threads, struct err *err) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n = cores > 0 ? (uint64_t)cores : 1;
    int status = options_whole(options, "j", 1, POOL_MOST_THREADS, &n, err);
    *n_threads = n < POOL_MOST_THREADS ? (unsigned)n : POOL_MOST_THREADS;
    return status;
}
