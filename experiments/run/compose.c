#include "experiments/run/compose.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/identity.h"
#include "experiments/cli/crash.h"
#include "experiments/run/meter.h"
#include "experiments/run/traffic.h"
#include "sim/base/num.h"

enum { MOST_SINKS = 6 };

/* ---- the resolved configuration as a text ---- */

/* A policy of a shared object is named by its file, so that the text finds it again. */
static const char *plugin_path(const struct system *system, const char *key, size_t length) {
    for (uint32_t i = 0; i < system->n_applied; i++) {
        const struct setting *applied = &system->applied[i];
        if (strlen(applied->key) == length && strncmp(applied->key, key, length) == 0 &&
            strchr(applied->value, '/') != NULL) {
            return applied->value;
        }
    }
    return NULL;
}

static void write_system(const struct system *system, FILE *out) {
    char *text = system_text(system);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t key = strcspn(line, " ");
        const char *path = plugin_path(system, line, key);
        if (path != NULL) {
            fprintf(out, "%.*s = %s\n", (int)key, line, path);
        } else {
            fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
        }
    }
    free(text);
}

static void write_run(const struct run_request *request, const struct decode_trace *decode,
                      FILE *out) {
    const struct workload_options *options = &request->options;
    const struct backend_request *backend = &request->backend;
    fprintf(out, "[run]\nsystem = %s\ngpu = %s\nroofline = %s\nbackend = %s\n", request->system,
            request->gpu, request->roofline ? "on" : "off",
            backend->name != NULL ? backend->name : "sim");
    if (backend->name != NULL) {
        fprintf(out, "weights = %s\nclock = %s\n", backend->weights,
                backend->skips_idle ? "virtual" : "real");
        if (backend->eos != NULL) {
            fprintf(out, "eos = %s\n", backend->eos);
        }
    }
    if (request->systems_path != NULL) {
        fprintf(out, "systems = %s\n", request->systems_path);
    }
    if (request->profile_path != NULL) {
        fprintf(out, "profile = %s\n", request->profile_path);
    }
    if (decode != NULL) {
        fprintf(out, "decode = %s\ndecode_digest = %" PRIu64 "\n", request->decode_path,
                decode_trace_digest(decode));
    }
    fprintf(out, "slo_latency = %" PRId64 "\nslo_ttfb = %" PRId64 "\nslo_tpot = %" PRId64 "\n",
            request->slo.latency_ns, request->slo.ttfb_ns, request->slo.tpot_ns);
    fprintf(out,
            "workload = %s\nseed = %" PRIu64 "\nrequests = %" PRIu64 "\nrate = %.17g\n"
            "input_tokens = %" PRIu32 "\noutput_tokens = %" PRIu32 "\n\n[system]\n",
            request->workload, options->seed, options->requests, options->rate_per_s,
            options->input_tokens, options->output_tokens);
}

/* ---- opening ---- */

static const char workload_prefix[] = "workload.";

static bool is_of_workload(const struct setting *setting) {
    return strncmp(setting->key, workload_prefix, sizeof workload_prefix - 1) == 0;
}

/* The GPU that a transferred profile is for begins its source: "GPU, scaled from ...". */
static bool is_source_for(const char *source, const char *gpu) {
    return strncmp(source, gpu, strlen(gpu)) == 0 && source[strlen(gpu)] == ',';
}

static const char *fact_of(const struct profile *profile, const char *wanted) {
    const char *key, *value;
    for (size_t i = 0; profile_fact(profile, i, &key, &value); i++) {
        if (strcmp(key, wanted) == 0) {
            return value;
        }
    }
    return NULL;
}

int compose_check_profile(const struct profile *profile, const char *path, const struct gpu *gpu,
                          struct err *err) {
    if (strcmp(profile_kind(profile), "transferred") == 0) {
        const char *source = profile_source(profile);
        return is_source_for(source, gpu->name)
                   ? 0
                   : err_usage(err, "%s is a profile for %.*s, not for %s", path,
                               (int)strcspn(source, ","), source, gpu->name);
    }
    const char *title = fact_of(profile, "gpu");
    return title == NULL || strcmp(title, gpu->title) == 0
               ? 0
               : err_usage(err, "%s is a profile of '%s', but %s is '%s'", path, title, gpu->name,
                           gpu->title);
}

int compose_check_system(const struct system *system, struct err *err) {
    const char *path = system->profile_path;
    int status = system_serves(system, err);
    if (status != 0 || path[0] == '\0') {
        return status;
    }
    status = compose_check_profile(system->profile, path, system->gpu, err);
    const char *dtype = fact_of(system->profile, "dtype");
    if (status == 0 && dtype != NULL && strcmp(dtype, "float32") == 0 &&
        system->runtime.element_bytes != 4) {
        status = err_usage(err,
                           "%s was measured in float32, the system says runtime.element_bytes = "
                           "%" PRId64 ": --set runtime.element_bytes=4",
                           path, system->runtime.element_bytes);
    }
    return status;
}

static int open_workload(const struct run_request *request, FILE *text, struct workload **out,
                         struct err *err) {
    struct setting *settings = calloc(request->n_settings + 1, sizeof *settings);
    ASSERT(settings != NULL);
    uint32_t n = 0;
    for (uint32_t i = 0; i < request->n_settings; i++) {
        const struct setting *setting = &request->settings[i];
        if (is_of_workload(setting)) {
            settings[n] = *setting;
            snprintf(settings[n++].key, sizeof settings->key, "%s",
                     setting->key + sizeof workload_prefix - 1);
        }
    }
    int status = traffic_open(request->workload, settings, n, &request->options, text, out, err);
    free(settings);
    return status;
}

/* Prompt and output of the workload's longest request; of a closed loop, of those it begins with.
 */
static int find_longest_canvas(const struct run_request *request, uint32_t *longest,
                               struct err *err) {
    struct workload *workload = NULL;
    struct arrival arrival;
    *longest = 0;
    int status = open_workload(request, NULL, &workload, err);
    if (status != 0) {
        return status;
    }
    struct arrival_source source = workload_source(workload);
    enum source_reply reply;
    while ((reply = source.next(source.state, &arrival, err)) == SOURCE_ROW) {
        uint32_t canvas = arrival.prompt_tokens + arrival.output_tokens;
        *longest = canvas > *longest ? canvas : *longest;
    }
    workload_close(workload);
    return reply == SOURCE_BAD ? err_status(err) : 0;
}

static int open_system(const struct run_request *request, struct composition *c, struct err *err) {
    struct setting *settings = calloc(request->n_settings + 1, sizeof *settings);
    ASSERT(settings != NULL);
    uint32_t n = 0;
    for (uint32_t i = 0; i < request->n_settings; i++) {
        if (!is_of_workload(&request->settings[i])) {
            settings[n++] = request->settings[i];
        }
    }
    struct system_request wanted = {.system = request->system,
                                    .model = request->model,
                                    .gpu = request->gpu,
                                    .workload = request->workload,
                                    .systems_path = request->systems_path,
                                    .profile_path = request->profile_path,
                                    .overrides = settings,
                                    .n_overrides = n,
                                    .roofline = request->roofline};
    int status = system_open(&wanted, &c->system, err);
    if (status == 0 && request->workload != NULL && system_asks_longest_canvas(c->system)) {
        status = find_longest_canvas(request, &wanted.longest_canvas_tokens, err);
        system_close(c->system);
        c->system = NULL;
        status = status == 0 ? system_open(&wanted, &c->system, err) : status;
    }
    status = status == 0 ? compose_check_system(c->system, err) : status;
    for (uint32_t i = 0; status == 0 && i < c->system->n_applied; i++) {
        const struct setting *applied = &c->system->applied[i];
        if (strchr(applied->value, '/') != NULL) {
            crash_blame(applied->value);
        }
    }
    free(settings);
    return status;
}

/* ---- recorded decisions ---- */

static int read_decode(const char *path, struct composition *c, struct err *err) {
    if (path == NULL) {
        return 0;
    }
    int status = decode_trace_read(path, &c->decode, err);
    if (status == 0) {
        c->decode_source = decode_trace_source(c->decode);
    }
    return status;
}

/* Whether the system can play it: what it says of commits counts, whatever the decoder. */
static int check_decode(const struct composition *c, struct err *err) {
    const struct system *system = c->system;
    if (c->decode == NULL) {
        return 0;
    }
    uint32_t block_tokens = decode_trace_block_tokens(c->decode);
    return block_tokens == system->settings.block_tokens
               ? 0
               : err_usage(err, "%s is of blocks of %" PRIu32 " tokens, the system's have %" PRIu32,
                           c->decode_source.name, block_tokens, system->settings.block_tokens);
}

/* ---- the engine ---- */

void compose_name_device(const struct engine *engine, const struct system *system,
                         char out[COMPOSE_DEVICE_CHARS]) {
    const struct device_facts *facts = &engine->device.facts;
    snprintf(out, COMPOSE_DEVICE_CHARS, "%s%s",
             engine_device_is(facts, system->gpu->name) ? "" : "emulated on ", facts->name);
}

int compose_end_tokens(const struct backend_request *backend, const struct model *model,
                       struct end_tokens *out, struct err *err) {
    return backend->eos != NULL ? end_tokens_parse(backend->eos, "--eos", model, out, err)
                                : end_tokens_read(backend->weights, model, out, err);
}

static int open_engine(struct composition *c, const struct backend_request *backend,
                       struct err *err) {
    if (backend->name == NULL) {
        return 0;
    }
    struct engine_request request = {.device = backend->name,
                                     .library = backend->library,
                                     .weights = backend->weights,
                                     .system = c->system};
    int status = compose_end_tokens(backend, c->system->whole, &c->ends, err);
    status = status == 0 ? engine_open(&request, &c->engine, err) : status;
    if (status == 0) {
        const struct device_facts *facts = &c->engine->device.facts;
        snprintf(c->device, sizeof c->device, "%s", facts->name);
        c->emulates = !engine_device_is(facts, c->system->gpu->name);
        status = live_open(c->engine, c->seed, backend->skips_idle, &c->live, err);
    }
    if (status == 0) {
        live_set_ends(c->live, &c->ends);
    }
    return status != 0 ? status : live_warm(c->live, err);
}

static void state_decisions(struct composition *c) {
    const struct system *system = c->system;
    struct run_decisions *decisions = &c->facts.decisions;
    const char *source = "the decoder commits by number, whatever the model says";
    if (c->decode != NULL) {
        source = c->decode_source.name;
    } else if (c->engine != NULL) {
        source = "the device's own";
    } else if (system_draws(system)) {
        *decisions = (struct run_decisions){true, system->confidence, system_decisions(system)};
        return;
    }
    decisions->from = provenance_of(PROVENANCE_MEASURED, source);
}

static void state_facts(struct composition *c) {
    const struct system *system = c->system;
    struct run_facts *facts = &c->facts;
    *facts = run_facts_unknown();
    facts->system = system->name;
    facts->model = system->model->name;
    facts->gpu = system->gpu->name;
    facts->profile = system->profile_path[0] != '\0' ? system->profile_path : system->gpu->name;
    facts->profile_kind = system_profile_kind(system);
    facts->prices = (struct run_prices){.from = system_prices(system)};
    if (system->behind != NULL && cost_ops_behind(system->cost) > 0) {
        facts->prices.behind = profile_kind(system->behind);
    }
    if (system->settings.tensor_parallel > 1) {
        facts->tensor_parallel = system->settings.tensor_parallel;
        facts->gpus = system_gpus(system);
        facts->collectives = system_collectives(system, c->collectives, sizeof c->collectives);
    }
    c->host = system_host(system);
    facts->host = (struct run_host){.name = c->host.name,
                                    .kind = provenance_words[c->host.provenance.kind],
                                    .source = c->host.provenance.source,
                                    .factor = c->host.factor};
    facts->backend = "sim";
    facts->trace = c->trace;
    facts->trace_provenance = c->provenance;
    state_decisions(c);
    facts->answers_kind = provenance_words[c->answers.kind];
    facts->answers_source = c->answers.source;
    facts->seed = c->seed;
    facts->weights_bytes = system->budget.weights_bytes;
    facts->reserve_bytes = system->budget.reserve_bytes;
    const struct budget *budget = &system->budget;
    facts->kv_pool_bytes =
        budget->pool_bytes - (budget->shares_pool ? budget->activation_bytes : 0);
    facts->config = c->config;
    facts->identity = c->identity;
    for (uint32_t i = 0; i < system->n_calibrated; i++) {
        const struct calibrated *calibrated = &system->calibrated[i];
        c->constants[i] =
            (struct run_figure){calibrated->name, calibrated->value, "1", calibrated->fitted_to};
    }
    facts->constants = c->constants;
    facts->n_constants = system->n_calibrated;
}

/* What else is known before the run; the summary adds to it (analysis/caution.h). A device that
 * executes the run has its own host and decides itself. */
static void state_warnings(struct composition *c) {
    c->facts.is_drawn = c->facts.decisions.drawn || workload_draws(c->workload);
    if (c->live == NULL) {
        system_warn_of_host(c->system, &c->facts.warnings);
    }
    system_warn_of_settings(c->system, &c->facts.warnings);
    if (!c->says_answers) {
        warnings_add(&c->facts.warnings, WARNING_ANSWERS_ASSUMED, (double)NAN,
                     "answers are %s (workload.answer, or a trace's answer_tokens)",
                     c->answers.source);
    }
}

static void name_trace(struct composition *c, const struct run_request *request) {
    double rate = workload_rate_per_s(c->workload);
    if (rate > 0) {
        snprintf(c->trace, sizeof c->trace, "%s at %.6g req/s", request->workload, rate);
    } else {
        snprintf(c->trace, sizeof c->trace, "%s", request->workload);
    }
    if (c->decode != NULL) {
        snprintf(c->provenance, sizeof c->provenance, "%s, decisions from %s",
                 workload_provenance(c->workload), c->decode_source.name);
    } else if (system_draws(c->system) && request->backend.name == NULL) {
        snprintf(c->provenance, sizeof c->provenance, "%s, %s confidences",
                 workload_provenance(c->workload),
                 provenance_words[system_decisions(c->system).kind]);
    } else {
        snprintf(c->provenance, sizeof c->provenance, "%s", workload_provenance(c->workload));
    }
}

/* Who says where texts end: a decode trace that recorded it, else the workload. */
static void name_answers(struct composition *c) {
    static const char nobody[] = "taken to fill the output: nobody says where texts end";
    char ids[128], source[192];
    c->answers = workload_answers(c->workload);
    c->says_answers = workload_says_answers(c->workload);
    if (!c->says_answers && c->system->model->mask == MASK_CAUSAL) {
        c->says_answers = true;
        snprintf(c->answers.source, sizeof c->answers.source,
                 "an autoregressive model stops at its end of text: outputs are answers");
    }
    if (c->ends.n > 0) {
        snprintf(source, sizeof source, "the model's tokens that end a text: %s",
                 end_tokens_text(&c->ends, ids, sizeof ids));
        c->answers = provenance_of(PROVENANCE_MEASURED, source);
        c->says_answers = true;
    } else if (c->decode != NULL) {
        c->says_answers = decode_trace_has_answers(c->decode);
        c->answers = c->says_answers ? provenance_of(PROVENANCE_MEASURED, c->decode_source.name)
                                     : provenance_of(PROVENANCE_ASSUMED, nobody);
    }
}

static void name_settings(struct composition *c, const struct run_request *request) {
    size_t used = 0;
    for (uint32_t i = 0; i < request->n_settings && used < sizeof c->settings; i++) {
        used += (size_t)snprintf(c->settings + used, sizeof c->settings - used, "%s%s=%s",
                                 i > 0 ? ", " : "", request->settings[i].key,
                                 request->settings[i].value);
    }
}

int compose_open(const struct run_request *request, struct composition **out, struct err *err) {
    struct composition *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    summary_init(&c->summary, &request->slo);
    c->seed = request->options.seed;
    size_t size;
    FILE *text = open_memstream(&c->config, &size);
    ASSERT(text != NULL);
    struct inputs inputs = {0}, *before = inputs_collect(&inputs);
    int status = read_decode(request->decode_path, c, err);
    write_run(request, c->decode, text);
    status = status != 0 ? status : open_system(request, c, err);
    status = status != 0 ? status : check_decode(c, err);
    if (status == 0) {
        write_system(c->system, text);
        fprintf(text, "\n[workload]\n");
        status = open_workload(request, text, &c->workload, err);
    }
    fclose(text);
    status = status != 0 ? status : open_engine(c, &request->backend, err);
    (void)inputs_collect(before);
    c->identity = status == 0 ? identity_json(c->config, &inputs) : NULL;
    inputs_fini(&inputs);
    if (status != 0) {
        compose_close(c);
        return status;
    }
    name_trace(c, request);
    name_answers(c);
    name_settings(c, request);
    state_facts(c);
    state_warnings(c);
    if (c->live != NULL) {
        c->facts.host.name = NULL;
        c->facts.backend = request->backend.name;
        c->facts.weights = request->backend.weights;
        c->facts.device = c->device;
        c->facts.emulated = c->emulates;
        c->facts.clock = request->backend.skips_idle ? "virtual" : "real";
    }
    *out = c;
    return 0;
}

/* ---- a run that was recorded ---- */

static const char *recorded_text(const struct recorded *recorded, const char *key) {
    const struct config_entry *entry = config_find(&recorded->config, "run", key);
    return entry != NULL ? entry->value : NULL;
}

static int64_t recorded_ns(const struct recorded *recorded, const char *key) {
    uint64_t ns = 0;
    const char *text = recorded_text(recorded, key);
    return text != NULL && num_u64(text, INT64_MAX, &ns) ? (int64_t)ns : 0;
}

static uint32_t recorded_settings(const struct recorded *recorded, struct setting *out) {
    const struct config *config = &recorded->config;
    uint32_t n = 0;
    for (size_t i = 0; i < config->n_entries; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (strcmp(entry->section, "system") == 0 && strcmp(entry->key, "model") != 0) {
            snprintf(out[n].key, sizeof out[n].key, "%s", entry->key);
            snprintf(out[n].value, sizeof out[n].value, "%s", entry->value);
            config_place(config, entry, out[n].place, sizeof out[n].place);
            n++;
        }
    }
    return n;
}

/* What a replay cannot find out again stands in the recorded summary. */
static void recall_engine(struct composition *c, const struct recorded *recorded) {
    const json_t *figures = json_object_get(recorded->summary, "engine");
    struct run_facts *facts = &c->facts;
    const char *name;
    json_t *value;
    /* Every key of the recorded configuration looks as if set by hand. */
    const json_t *host = json_object_get(recorded->summary, "host");
    facts->host = (struct run_host){.name = json_string_value(json_object_get(host, "name")),
                                    .kind = json_string_value(json_object_get(host, "kind")),
                                    .source = json_string_value(json_object_get(host, "source")),
                                    .factor = json_number_value(json_object_get(host, "factor"))};
    facts->is_drawn = json_is_true(json_object_get(recorded->summary, "is_drawn"));
    struct warnings warnings = caution_read(recorded->summary);
    for (unsigned i = 0; i < warnings.n; i++) {
        const struct warning *warning = &warnings.items[i];
        if (!caution_is_of_summary(warning->code)) {
            warnings_add(&facts->warnings, warning->code, warning->value, "%s", warning->text);
        }
    }
    const json_t *answers = json_object_get(recorded->summary, "answers");
    facts->answers_kind = json_string_value(json_object_get(answers, "kind"));
    facts->answers_source = json_string_value(json_object_get(answers, "source"));
    facts->backend = recorded->backend;
    facts->device = json_string_value(json_object_get(recorded->summary, "device"));
    facts->emulated = json_is_true(json_object_get(recorded->summary, "emulated"));
    facts->weights = json_string_value(json_object_get(recorded->summary, "weights"));
    facts->clock = json_string_value(json_object_get(recorded->summary, "clock"));
    facts->engine = c->figures;
    json_object_foreach((json_t *)figures, name, value) {
        if (facts->n_engine < ENGINE_FIGURES) {
            size_t length = strlen(name);
            bool is_time = length > 2 && strcmp(name + length - 2, "_s") == 0;
            const char *unit = json_is_integer(value)           ? "bytes"
                               : is_time                        ? "s"
                               : strstr(name, "_calls") != NULL ? "calls"
                                                                : "1";
            c->figures[facts->n_engine++] =
                (struct run_figure){name, json_number_value(value), unit, ""};
        }
    }
}

/* A replay decides as the run did, by whatever that went by. */
static void recall_decisions(struct composition *c, const struct recorded *recorded) {
    const json_t *said = json_object_get(recorded->summary, "decisions");
    const char *source = json_string_value(json_object_get(said, "source"));
    const char *kind = json_string_value(json_object_get(said, "kind"));
    int found = kind != NULL ? provenance_find(kind) : PROVENANCE_MEASURED;
    if (source != NULL && found >= 0) {
        c->facts.decisions = (struct run_decisions){
            json_is_true(json_object_get(said, "drawn")),
            json_string_value(json_object_get(said, "process")),
            provenance_of((enum provenance_kind)found, source),
        };
    }
}

/* The decode trace that the run played, as long as it still is the same, or the one it wrote. */
static int recall_decode(struct composition *c, const struct recorded *recorded, struct err *err) {
    const char *digest = recorded_text(recorded, "decode_digest");
    char now[32];
    if (recorded->decode_path != NULL) {
        struct inputs *before = inputs_collect(NULL); /* the run wrote this file, it read none */
        int given = read_decode(recorded->decode_path, c, err);
        (void)inputs_collect(before);
        return given != 0 ? given : check_decode(c, err);
    }
    int status = read_decode(recorded_text(recorded, "decode"), c, err);
    if (status != 0 || c->decode == NULL) {
        return status;
    }
    snprintf(now, sizeof now, "%" PRIu64, decode_trace_digest(c->decode));
    return digest != NULL && strcmp(digest, now) == 0
               ? check_decode(c, err)
               : err_world(err, "%s has other passes than when run %" PRId64 " played it",
                           c->decode_source.name, recorded->run);
}

/* Steps that were measured, or are measured now, are compared with what the model says of them. */
static bool is_measured(const struct composition *c) {
    return c->live != NULL || strcmp(c->recorded->backend, "sim") != 0;
}

/* The run keeps its identity. What is read now is held to what was read then. */
static void recall_identity(struct composition *c, const struct recorded *recorded,
                            const struct inputs *inputs) {
    json_t *then = json_object_get(recorded->summary, "identity");
    json_t *now = identity_json("", inputs);
    struct identity_difference difference = identity_compare(then, now, false);
    snprintf(c->changed, sizeof c->changed, "%s", difference.text);
    c->identity = json_incref(then);
    json_decref(now);
}

int compose_recorded(const struct recorded *recorded, const struct backend_request *backend,
                     uint32_t operators_every, struct composition **out, struct err *err) {
    const struct config_entry *model = config_find(&recorded->config, "system", "model");
    const char *roofline = recorded_text(recorded, "roofline");
    struct run_request request = {.system = recorded_text(recorded, "system"),
                                  .gpu = recorded_text(recorded, "gpu"),
                                  .model = model != NULL ? model->value : NULL,
                                  .systems_path = recorded_text(recorded, "systems"),
                                  .profile_path = recorded_text(recorded, "profile"),
                                  .roofline = roofline != NULL && strcmp(roofline, "on") == 0,
                                  .slo = {recorded_ns(recorded, "slo_latency"),
                                          recorded_ns(recorded, "slo_ttfb"),
                                          recorded_ns(recorded, "slo_tpot")}};
    if (request.system == NULL || request.gpu == NULL) {
        return err_world(err, "%s names no system or no GPU", recorded->config.path);
    }
    struct composition *c = calloc(1, sizeof *c);
    struct setting *settings = calloc(recorded->config.n_entries + 1, sizeof *settings);
    ASSERT(c != NULL && settings != NULL);
    summary_init(&c->summary, &request.slo);
    c->recorded = recorded;
    c->seed = recorded->seed;
    request.settings = settings;
    request.n_settings = recorded_settings(recorded, settings);
    struct inputs inputs = {0}, *before = inputs_collect(&inputs);
    int status = open_system(&request, c, err);
    free(settings);
    status = status != 0 ? status : recall_decode(c, recorded, err);
    (void)inputs_collect(before);
    recall_identity(c, recorded, &inputs);
    inputs_fini(&inputs);
    if (status == 0 && c->system->settings.prefix_caching &&
        strcmp(recorded->backend, "sim") == 0) {
        status = err_world(err,
                           "run %lld cannot be played again: %s caches prefixes, and what requests "
                           "shared is not recorded (record with --set prefix_caching=off)",
                           (long long)recorded->run, c->system->name);
    }
    if (status == 0 && c->system->settings.unroll_maximum > 1) {
        status = err_world(err,
                           "run %lld cannot be played again: %s unrolls, and which steps the host "
                           "started together is not recorded (record with --set unroll.maximum=1)",
                           (long long)recorded->run, c->system->name);
    }
    status = status != 0 ? status : open_engine(c, backend, err);
    if (status != 0) {
        compose_close(c);
        return status;
    }
    snprintf(c->trace, sizeof c->trace, "%s", recorded->trace);
    snprintf(c->provenance, sizeof c->provenance, "%s", recorded->trace_provenance);
    state_facts(c);
    recall_engine(c, recorded);
    recall_decisions(c, recorded);
    if (is_measured(c)) {
        accuracy_init(&c->accuracy, c->system, recorded->n_steps, operators_every);
    }
    *out = c;
    return 0;
}

void compose_close(struct composition *c) {
    if (c == NULL) {
        return;
    }
    summary_fini(&c->summary);
    accuracy_fini(&c->accuracy);
    live_close(c->live);
    engine_close(c->engine);
    workload_close(c->workload);
    decode_trace_close(c->decode);
    system_close(c->system);
    json_decref(c->identity);
    free(c->config);
    free(c);
}

/* ---- running ---- */

static int list_rejected(void *state, const struct request_record *record, struct err *err) {
    struct composition *c = state;
    (void)err;
    struct rejected_list *list = &c->rejected[record->reason];
    if (record->state == REQUEST_REJECTED && list->n < REJECTED_MOST_LISTED) {
        list->ids[list->n++] = record->id;
    }
    return 0;
}

static void settle_facts(struct composition *c, const struct meter *meter) {
    const struct system *system = c->system;
    struct run_facts *facts = &c->facts;
    facts->kv_peak_bytes = c->result.kv_peak_bytes;
    meter_memory(meter, &facts->activation_peak_bytes, &facts->logit_peak_bytes);
    facts->price_exact = c->pricing.lookups[PROFILE_EXACT];
    facts->price_interpolated = c->pricing.lookups[PROFILE_INTERPOLATED];
    facts->price_extrapolated = c->pricing.lookups[PROFILE_EXTRAPOLATED];
    facts->price_roofline = c->pricing.lookups[PRICE_ROOFLINE];
    facts->price_shares = cost_shares(system->cost, &c->pricing.time);
    double flops = 0, bytes = 0;
    if (c->result.steps > 0 && c->summary.makespan_s > 0) {
        cost_work(system->cost, c->result.sym, (double)c->result.steps, &flops, &bytes);
        double gpu_s = c->summary.makespan_s * system->settings.replicas;
        facts->mfu = flops / (gpu_s * gpu_roof_flops(system->gpu));
        facts->bandwidth_util = bytes / (gpu_s * system->gpu->peak_bandwidth);
    }
}

static void measure_engine(struct composition *c, const struct meter *meter) {
    struct engine_memory memory = engine_memory(c->engine);
    const struct run_figure figures[ENGINE_FIGURES] = {
        {"device_s", meter->device_ns * 1e-9, "s", ""},
        {"wall_s", meter->wall_ns * 1e-9, "s", ""},
        {"overhead", meter->wall_ns > 0 ? 1 - meter->device_ns / meter->wall_ns : 0, "1", ""},
        {"planned_bytes", (double)memory.planned_bytes, "bytes", ""},
        {"metered_bytes", (double)memory.metered_bytes, "bytes", ""},
        {"side_bytes", (double)memory.side_bytes, "bytes", ""},
        {"activation_peak_bytes", (double)live_activation_peak_bytes(c->live), "bytes", ""},
        {"kv_peak_bytes", (double)live_pool_peak_bytes(c->live), "bytes", ""},
        {"mapped_peak_bytes", (double)memory.mapped_peak_bytes, "bytes", ""},
        {"lent_bytes", (double)memory.lent_bytes, "bytes", ""},
        {"mapping_calls", (double)memory.mapping_calls, "calls", ""},
        {"mapping_s", (double)memory.mapping_ns * 1e-9, "s", ""},
    };
    memcpy(c->figures, figures, sizeof figures);
    c->facts.engine = c->figures;
    c->facts.n_engine = memory.is_mapped ? ENGINE_FIGURES : UNMAPPED_FIGURES;
}

static bool differs(const char *what, int64_t planned, int64_t metered, struct err *err) {
    if (planned != metered) {
        err_world(err, "%s: %" PRId64 " bytes were planned, %" PRId64 " metered", what, planned,
                  metered);
    }
    return planned != metered;
}

int compose_check_memory(const struct composition *c, struct err *err) {
    struct engine_memory memory = engine_memory(c->engine);
    bool bad = differs("device memory", memory.planned_bytes,
                       memory.metered_bytes + memory.unmapped_bytes, err) ||
               differs("peak of the activations", c->facts.activation_peak_bytes,
                       live_activation_peak_bytes(c->live), err) ||
               differs("peak of the cached rows", c->facts.kv_peak_bytes,
                       live_pool_peak_bytes(c->live), err);
    return bad ? (int)err->kind : 0;
}

static int run_loop(struct composition *c, struct meter *meter, struct arrival_source source,
                    const struct run_watch *watch, struct err *err) {
    struct sink sinks[MOST_SINKS] = {summary_sink(&c->summary),
                                     {.state = c, .request = list_rejected}};
    uint32_t n_sinks = 2;
    ASSERT(n_sinks + watch->n_sinks <= MOST_SINKS);
    for (uint32_t i = 0; i < watch->n_sinks; i++) {
        sinks[n_sinks++] = watch->sinks[i];
    }
    struct loop_request loop = {.system = c->system,
                                .executor = meter_interface(meter),
                                .source = source,
                                .sinks = sinks,
                                .n_sinks = n_sinks,
                                .records_members = watch->records_members,
                                .seed = c->seed,
                                .decode = c->decode != NULL ? &c->decode_source : NULL,
                                .stop = watch->stop,
                                .progress = watch->progress,
                                .progress_state = watch->progress_state};
    return loop_run(&loop, &c->result, err);
}

/* What becomes of a run, whole or not. */
static void settle(struct composition *c, const struct meter *meter,
                   const struct executor_sim *sim) {
    c->pricing = *executor_sim_pricing(sim);
    c->priced_ns = meter->priced_ns;
    c->recorded_ns = meter->device_ns;
    summary_finish(&c->summary);
    settle_facts(c, meter);
    /* The makespan of a run that was cut short is not that of the steps played. */
    c->accuracy.idle_ns =
        c->result.interrupted ? (double)NAN : c->summary.makespan_s * 1e9 - meter->wall_ns;
    if (compose_is_live(c)) {
        measure_engine(c, meter);
    }
}

void compose_describe_missing(const struct composition *c, char *out, size_t size) {
    uint64_t wanted = c->workload != NULL ? workload_requests(c->workload) : 0;
    out[0] = '\0';
    if (wanted == 0) {
        snprintf(out, size, "how many had not arrived is not known");
    } else if (c->summary.requests < wanted) {
        snprintf(out, size, "%" PRIu64 " of the %" PRIu64 " wanted had not arrived",
                 wanted - c->summary.requests, wanted);
    }
}

static void note_incomplete(struct composition *c, int status, const struct err *err) {
    if (status != 0) {
        snprintf(c->incomplete, sizeof c->incomplete, "%s", err->text);
    } else if (c->result.interrupted) {
        char missing[96];
        compose_describe_missing(c, missing, sizeof missing);
        snprintf(c->incomplete, sizeof c->incomplete, "interrupted%s%s",
                 missing[0] != '\0' ? ": " : "", missing);
    }
    c->facts.incomplete = c->incomplete[0] != '\0' ? c->incomplete : NULL;
}

int compose_run(struct composition *c, const struct run_watch *watch, struct err *err) {
    const struct system *system = c->system;
    uint32_t n_replicas = system->settings.replicas;
    struct executor_sim *sim = executor_sim_open(system, n_replicas);
    struct executor_replay *replay = NULL;
    struct recorded_reader reader = {c->recorded, 0};
    struct meter_request request = {.inner = executor_sim_interface(sim), .system = system};
    struct arrival_source source;
    if (c->recorded != NULL) {
        replay = executor_replay_open(c->recorded->steps, c->recorded->n_steps, n_replicas);
        request.inner = executor_replay_interface(replay);
        request.pricer = sim;
        request.places_all = strcmp(c->recorded->backend, "sim") != 0;
        request.steps = c->recorded->steps;
        request.rerun = c->live;
        request.accuracy = is_measured(c) ? &c->accuracy : NULL;
        source = recorded_source(&reader);
    } else {
        source = workload_source(c->workload);
    }
    if (compose_is_live(c)) {
        live_set_stop(c->live, watch->stop);
        request.inner = live_interface(c->live);
        request.pricer = sim;
        request.places_all = true;
    }
    struct meter meter;
    meter_init(&meter, &request);
    int status = run_loop(c, &meter, source, watch, err);
    if (status == 0 || compose_is_live(c)) {
        settle(c, &meter, sim);
    }
    if (compose_is_live(c)) {
        note_incomplete(c, status, err);
    }
    meter_fini(&meter);
    executor_replay_close(replay);
    executor_sim_close(sim);
    return status;
}

bool compose_says_no_memory(const struct err *err) {
    return err->code == ERR_NO_ROOM;
}

/* ---- for people ---- */

static void print_rejected(const struct composition *c, FILE *out) {
    for (int reason = REJECT_NONE + 1; reason < REJECT_REASON_COUNT; reason++) {
        const struct rejected_list *list = &c->rejected[reason];
        uint64_t n = c->summary.rejected_by_reason[reason];
        if (n == 0) {
            continue;
        }
        fprintf(out, "%-13s%" PRIu64 " for %s: request", "rejected", n,
                reject_reason_names[reason]);
        for (uint32_t i = 0; i < list->n; i++) {
            fprintf(out, "%s %" PRIu64, i > 0 ? "," : "", list->ids[i]);
        }
        fprintf(out, "%s\n", n > list->n ? ", ..." : "");
    }
}

void compose_print(const struct composition *c, FILE *out) {
    char text[2048];
    print_rejected(c, out);
    if (c->settings[0] != '\0') {
        fprintf(out, "%-13s%s\n", "settings", c->settings);
    }
    fprintf(out, "%-13s%s: %s\n", c->facts.device != NULL ? "predictions from " : "prices from",
            system_profile_kind(c->system), system_profile_source(c->system));
    system_print_provenance(c->system, out);
    if (c->workload != NULL) {
        fprintf(out, "%-13s%s\n", "workload", workload_describe(c->workload, text, sizeof text));
    }
    if (c->decode != NULL) {
        const char *source = decode_trace_provenance(c->decode);
        fprintf(out, "%-13splayed from %s, %zu requests%s%s\n", "decisions", c->decode_source.name,
                decode_trace_requests(c->decode), source[0] != '\0' ? ": " : "", source);
    } else if (c->facts.decisions.drawn && c->facts.device == NULL) {
        const struct run_decisions *decisions = &c->facts.decisions;
        fprintf(out, "%-13sdrawn by %s, %s: %s\n", "decisions", decisions->process,
                provenance_words[decisions->from.kind], decisions->from.source);
    }
}

void compose_print_warnings(const struct composition *c, const char *about, FILE *out) {
    struct warnings warnings = caution_of(&c->summary, &c->facts);
    caution_print(&warnings, about, out);
}
