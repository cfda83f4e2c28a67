/* Opening a run: its system, its workload, its engine, and what is known before it begins. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "analysis/identity.h"
#include "analysis/offered.h"
#include "engine/step/warm.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/progress.h"
#include "experiments/run/compose_impl.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/decode/process_file.h"
#include "sim/price/transfer.h"
#include "sim/system/system.h"
#include "sim/system/system_facts.h"
#include "traces/generate.h"
#include "traces/marks.h"
#include "traces/reader.h"
#include "traces/workload.h"

/* Traffic: a workload with what the command line says in place of its file's words. */

enum { PATH_CHARS = 4096 };

/* The INI that replays a trace as it stands. */
static int config_of_trace(const char *path, struct config *out, struct err *err) {
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    char text[256];
    int size = snprintf(text, sizeof text,
                        "[workload]\narrivals = trace\nlengths = trace\nprovenance.arrivals = "
                        "traced\nprovenance.lengths = traced\ntrace = %s\n",
                        base);
    if (size < 0 || (size_t)size >= sizeof text) {
        return err_usage(err, "%s: the name of the trace is too long", path);
    }
    return config_parse(path, text, (size_t)size, out, err);
}

/* Returns `path`: the file that a word names, or where a workload of that name lies. */
static const char *file_of(const char *name, char *path, size_t size) {
    if (strchr(name, '/') != NULL || strchr(name, '.') != NULL) {
        snprintf(path, size, "%s", name);
        return path;
    }
    char relative[PATH_CHARS];
    snprintf(relative, sizeof relative, "traces/workloads/%s.ini", name);
    return data_path(path, size, relative);
}

static bool names_a_file(const char *name) {
    char path[PATH_CHARS];
    return access(file_of(name, path, sizeof path), F_OK) == 0;
}

static int read_config(const char *name, struct config *out, struct err *err) {
    char path[PATH_CHARS];
    return workload_is_trace(name) ? config_of_trace(name, out, err)
                                   : config_read(file_of(name, path, sizeof path), out, err);
}

static void drop(struct config *config, const char *key, bool is_prefix) {
    size_t length = strlen(key);
    for (size_t i = 0; i < config->n_entries;) {
        struct config_entry *entry = &config->entries[i];
        if (is_prefix ? strncmp(entry->key, key, length) != 0 : strcmp(entry->key, key) != 0) {
            i++;
            continue;
        }
        free(entry->section);
        free(entry->key);
        free(entry->value);
        config->n_entries--;
        memmove(entry, entry + 1, (config->n_entries - i) * sizeof *entry);
    }
}

static char *copy(const char *text) {
    char *made = mem_text(text);
    return made;
}

static void replace(struct config *config, const char *key, const char *value, const char *place) {
    drop(config, key, false);
    config->entries = mem_resized(config->entries, config->n_entries + 1, sizeof *config->entries);
    config->entries[config->n_entries++] =
        (struct config_entry){copy("workload"), copy(key), copy(value), 0, place};
}

/* The parameter that follows says which model it is of. */
static void put_model(struct config *config, const char *key, const char *model,
                      const char *place) {
    const struct config_entry *entry = config_find(config, "workload", key);
    if (entry == NULL || strcmp(entry->value, model) != 0) {
        replace(config, key, model, place);
    }
}

/* Keys that say more than themselves. */
enum { ARRIVALS, LENGTHS, OUTPUT_TOKENS, ANSWER_TOKENS, ANSWER_SHARE };
static const char *const keys[] = {"arrivals",      "lengths",      "output.tokens",
                                   "answer.tokens", "answer.share", NULL};

static void apply_arrivals(struct config *config, const struct setting *setting) {
    const struct process *process = process_find(setting->value);
    drop(config, "arrivals.", true);
    if (process != NULL && !process->has_rate) {
        drop(config, "rate", false);
    }
    if (process != NULL) {
        drop(config, "provenance.arrivals", false);
    } else if (config_find(config, "workload", "provenance.arrivals") == NULL) {
        replace(config, "provenance.arrivals", "traced", setting->place);
    }
}

static void apply(struct config *config, const struct setting *setting) {
    const char *key = setting->key, *place = setting->place;
    int what = name_find(keys, key), side = workload_side(key);
    if (what == ARRIVALS) {
        apply_arrivals(config, setting);
    }
    const struct config_entry *output = config_find(config, "workload", "output");
    /* What is stated is stated of lengths that are not fixed. */
    bool stays_fixed =
        what == OUTPUT_TOKENS && output != NULL && strcmp(output->value, "fixed") == 0;
    if (!stays_fixed && (side == LENGTH_INPUT || side == LENGTH_OUTPUT || what == LENGTHS)) {
        /* The file's provenance of lengths no longer holds. */
        replace(config, "provenance.lengths", "assumed", place);
        drop(config, "note", false);
    }
    if (marks_find(key) >= 0 && strchr(key, '.') == NULL) {
        char params[32];
        snprintf(params, sizeof params, "%s.", key);
        drop(config, params, true);
    }
    if (side == LENGTH_ANSWER) {
        replace(config, "provenance.answers", "assumed", place);
    }
    if (what == ANSWER_TOKENS || what == ANSWER_SHARE) {
        put_model(config, "answer", what == ANSWER_TOKENS ? "fixed" : "share", place);
    }
    replace(config, key, setting->value, place);
}

static void write_text(const struct config *config, FILE *text) {
    for (size_t i = 0; i < config->n_entries; i++) {
        fprintf(text, "%s = %s\n", config->entries[i].key, config->entries[i].value);
    }
}

/* Opens the workload or trace `name`. `settings` replace keys of its INI file (for a trace: of the
 * INI that would replay it); a new arrival process drops the parameters of the one before, and the
 * rate where it takes none. What is in force goes to `text` as key = value lines, unless it is
 * NULL. */
static int traffic_open(const char *name, const struct setting *settings, uint32_t n_settings,
                        const struct workload_options *options, FILE *text, struct workload **out,
                        struct err *err) {
    struct config config;
    int status = 0;
    /* An unknown name is the workloads' to refuse: they know the nearest. */
    if (n_settings == 0 || !names_a_file(name)) {
        status = workload_open(name, options, out, err);
    }
    if (status != 0) {
        return status;
    }
    status = read_config(name, &config, err);
    if (status != 0) {
        return status;
    }
    for (uint32_t i = 0; i < n_settings; i++) {
        apply(&config, &settings[i]);
    }
    if (n_settings > 0) {
        status = workload_from_config(&config, name, options, out, err);
    }
    if (status == 0 && text != NULL) {
        write_text(&config, text);
    }
    config_fini(&config);
    return status;
}

/* KEY of workload.KEY; NULL for a key of the system. */
static const char *workload_key(const struct setting *setting) {
    return name_behind(setting->key, "workload.");
}

/* ERR_USAGE when a profile says that it is another GPU's. */
static int check_profile(const struct profile *profile, const char *path, const struct gpu *gpu,
                         struct err *err) {
    if (profile_kind(profile) == PROVENANCE_TRANSFERRED) {
        const char *target = profile_note(profile, "for");
        return target != NULL && strcmp(target, gpu->name) == 0
                   ? 0
                   : err_usage(err, "%s is a profile for %s, not for %s", path,
                               target != NULL ? target : "a GPU that it does not name", gpu->name);
    }
    const char *title = profile_note(profile, "gpu");
    return title == NULL || strcmp(title, gpu->title) == 0
               ? 0
               : err_usage(err, "%s is a profile of '%s', but %s is '%s'", path, title, gpu->name,
                           gpu->title);
}

int compose_open_profile(const struct gpu *gpu, const char *path, struct profile **out,
                         struct err *err) {
    struct profile_peaks peaks = profile_peaks_of(gpu);
    if (path == NULL) {
        return profile_open_shipped(gpu, out, err);
    }
    int status = profile_open(path, &peaks, out, err);
    if (status == 0 && check_profile(*out, path, gpu, err) != 0) {
        profile_close(*out);
        *out = NULL;
        status = err_status(err);
    }
    return status;
}

int compose_check_system(const struct system *system, struct err *err) {
    const char *path = system->profile_path;
    int status = system_serves(system, err);
    if (status != 0 || path[0] == '\0') {
        return status;
    }
    status = check_profile(system->profile, path, system->gpu, err);
    if (status == 0 && profile_type(system->profile) == PROFILE_F32 &&
        system->graph.storage.wide != NUMBER_F32) {
        status = err_usage(err,
                           "%s was measured in float32, the system's numbers are %s: --set "
                           "storage.weights=f32",
                           path, number_words[system->graph.storage.wide]);
    }
    return status;
}

static int open_workload(const struct run_request *request, struct composition *c, FILE *text,
                         struct workload **out, struct err *err) {
    struct workload_options options = request->options;
    options.taker = questions_taker(c->questions);
    struct setting *settings = mem_zeroed(request->n_settings + 1, sizeof *settings);
    uint32_t n = 0;
    for (uint32_t i = 0; i < request->n_settings; i++) {
        const struct setting *setting = &request->settings[i];
        if (workload_key(setting) != NULL) {
            settings[n] = *setting;
            snprintf(settings[n++].key, sizeof settings->key, "%s", workload_key(setting));
        }
    }
    int status = traffic_open(request->workload, settings, n, &options, text, out, err);
    free(settings);
    return status;
}

/* Prompt and output of the workload's longest request; what waits for another to end is asked for
 * as if that had ended. */
static int find_longest_canvas(const struct run_request *request, struct composition *c,
                               uint32_t *longest, struct err *err) {
    struct workload *workload = NULL;
    struct arrival arrival;
    *longest = 0;
    int status = open_workload(request, c, NULL, &workload, err);
    if (status != 0) {
        return status;
    }
    struct arrival_source source = workload_source(workload);
    enum source_reply reply;
    while ((reply = source.next(source.state, &arrival, err)) == SOURCE_ROW) {
        if (source.completed != NULL) {
            source.completed(source.state, arrival.id, arrival.arrival_ns);
        }
        uint32_t canvas = arrival.prompt_tokens + arrival.output_tokens;
        *longest = canvas > *longest ? canvas : *longest;
    }
    workload_close(workload);
    return reply == SOURCE_BAD ? err_status(err) : 0;
}

int compose_open_system(const struct run_request *request, struct composition *c, struct err *err) {
    struct setting *settings = mem_zeroed(request->n_settings + 1, sizeof *settings);
    uint32_t n = 0;
    for (uint32_t i = 0; i < request->n_settings; i++) {
        if (workload_key(&request->settings[i]) == NULL) {
            settings[n++] = request->settings[i];
        }
    }
    struct system_request wanted = compose_system_request(request);
    wanted.workload = request->workload;
    wanted.overrides = settings;
    wanted.n_overrides = n;
    int status = system_open(&wanted, &c->system, err);
    if (status == 0 && request->workload != NULL && c->traffic == NULL && !request->is_served &&
        system_asks_longest_canvas(c->system)) {
        status = find_longest_canvas(request, c, &wanted.longest_canvas_tokens, err);
        system_close(c->system);
        c->system = NULL;
        status = status == 0 ? system_open(&wanted, &c->system, err) : status;
    }
    status = status == 0 ? compose_check_system(c->system, err) : status;
    free(settings);
    return status;
}

/* ---- recorded decisions ---- */

int compose_read_decode(const char *path, struct composition *c, struct err *err) {
    if (path == NULL) {
        return 0;
    }
    int status = decode_trace_read(path, DECODE_COUNTS, &c->decode, err);
    if (status == 0) {
        c->decode_source = decode_trace_source(c->decode);
    }
    return status;
}

/* Whether the system can play it: its recorded commits count, whatever the decoder; only whether a
 * pass may commit none is the decoder's to say. */
int compose_check_decode(struct composition *c, struct err *err) {
    const struct system *system = c->system;
    if (c->decode == NULL) {
        return 0;
    }
    if (system->settings.blocks_in_flight > 1) {
        return err_usage(err,
                         "%s says how many positions a step commits, not of which block: it is not "
                         "played with blocks_in_flight = %" PRIu32,
                         c->decode_source.name, system->settings.blocks_in_flight);
    }
    if (system->settings.window_slides) {
        return err_usage(err,
                         "%s says how many positions a step commits, not which: it is not played "
                         "with window_slides = on",
                         c->decode_source.name);
    }
    if (system->speculates || system->moves) {
        return err_usage(err,
                         "%s says how many positions a step commits, not %s: it is not played with "
                         "decoder %s",
                         c->decode_source.name,
                         system->moves ? "where some were inserted or dropped"
                                       : "what they were drafted as",
                         system->decoder->policy.name);
    }
    c->decode_source.takes_back = c->decode_source.takes_back || system->decoder->take_back != NULL;
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
             engine_device_is(facts, system->gpu) ? "" : "emulated on ", facts->name);
}

int compose_end_tokens(const struct backend_request *backend, const struct model *model,
                       struct end_tokens *out, struct err *err) {
    return backend->eos != NULL ? end_tokens_parse(backend->eos, "--eos", model, out, err)
                                : end_tokens_read(backend->weights, model, out, err);
}

static int tell_warming(void *state, uint64_t n_done, uint64_t n_total, struct err *err) {
    struct progress *progress = state;
    progress->n_total = n_total;
    progress_update(progress, n_done);
    return interrupt_is_caught() ? err_world(err,
                                             "interrupted before the first step: %" PRIu64
                                             " of %" PRIu64 " sizes of products had been tried",
                                             n_done, n_total)
                                 : 0;
}

/* Seconds on a card of one's own, and minutes on one that other programs fill. */
static int warm(struct fleet *fleet, struct err *err) {
    struct progress progress;
    const struct warm_watch watch = {.told = tell_warming, .state = &progress};
    progress_start(&progress, "sizes of products tried", 0);
    const int status = fleet_warm(fleet, &watch, err);
    progress_end(&progress);
    return status;
}

int compose_open_engine(struct composition *c, const struct backend_request *backend, double *fits,
                        struct err *err) {
    if (backend->kind == BACKEND_SIM) {
        return 0;
    }
    const struct fleet_request request = {.engine = {.backend = backend->kind,
                                                     .library = backend->library,
                                                     .device = backend->device,
                                                     .weights = backend->weights,
                                                     .system = c->system,
                                                     .fits = fits},
                                          .seed = c->seed,
                                          .skips_idle = backend->skips_idle};
    int status = compose_end_tokens(backend, c->system->whole, &c->ends, err);
    status = status == 0 ? fleet_open(&request, &c->fleet, err) : status;
    if (status != 0) {
        return status;
    }
    const struct device_facts *facts = &fleet_engine(c->fleet, 0)->device.facts;
    snprintf(c->device, sizeof c->device, "%s", facts->name);
    c->emulates = !engine_device_is(facts, c->system->gpu);
    fleet_set_ends(c->fleet, &c->ends);
    return warm(c->fleet, err);
}

/* Where the profile and the library say which kernels they are of. */
static void warn_of_kernels(struct composition *c) {
    const struct profile *profile = c->system->profile;
    const char *measured = profile != NULL ? profile_note(profile, "kernels") : NULL;
    const char *loaded = fleet_engine(c->fleet, 0)->device.build;
    if (measured == NULL || loaded == NULL) {
        return;
    }
    enum build_age age = engine_build_age(measured, loaded);
    if (age != BUILD_SAME) {
        warnings_add(&c->facts.warnings, WARNING_PRICES_OTHER_BUILD, (double)NAN,
                     "predictions are of kernels of %s, the library's are %s, of %s: `unmask "
                     "calibrate` measures them",
                     measured, age == BUILD_NEWER ? "newer" : "others", loaded);
    }
}

static void state_decisions(struct composition *c) {
    const struct system *system = c->system;
    struct run_decisions *decisions = &c->facts.decisions;
    const char *source = system->renoises
                             ? "the published passes of 2,115 canvases, in decoder renoise"
                             : "the decoder commits by number, whatever the model says";
    if (c->decode != NULL) {
        source = c->decode_source.name;
    } else if (c->fleet != NULL) {
        source = "the device's own";
    } else if (system_draws(system)) {
        const bool smooths = system->settings.iteration == ITERATION_SMOOTH;
        const char *const names[] = {smooths ? "smooth" : system->cache->policy.name,
                                     system->cache->policy.name, system->decoder->policy.name,
                                     NULL};
        *decisions = (struct run_decisions){true, system->confidence, system_decisions(system),
                                            decode_process_error(&system->process, names)};
        return;
    }
    decisions->from = provenance_of(PROVENANCE_MEASURED, source);
}

static json_t *policies_of(const struct system *system) {
    json_t *object = json_object();
    for (int kind = 0; kind < SYSTEM_POLICY_KINDS; kind++) {
        struct policy_facts policy;
        system_policy_facts(system, kind, &policy);
        json_object_set_new(object, policy.kind,
                            json_pack("{s:s, s:s?, s:s?}", "name", policy.name, "file", policy.file,
                                      "changed",
                                      policy.changed[0] != '\0' ? policy.changed : NULL));
    }
    return object;
}

void compose_state_facts(struct composition *c) {
    const struct system *system = c->system;
    struct run_facts *facts = &c->facts;
    *facts = run_facts_unknown();
    facts->system = system->name;
    facts->model = system->model->name;
    facts->gpu = system->gpu->name;
    facts->profile = system->profile_name;
    facts->profile_kind = system_profile_kind(system);
    facts->prices =
        (struct run_prices){.from = system_prices(system),
                            .of = price_source_words[system_price_source(system)],
                            .kernels = system_price_kernels(system, c->kernels, sizeof c->kernels),
                            .asked = price_source_words[system->price_source],
                            .over_imported = system_price_ratio(system, PRICES_IMPORTED),
                            .over_roofline = system_price_ratio(system, PRICES_ROOFLINE)};
    if (system->behind != NULL && cost_ops_behind(system->cost) > 0) {
        facts->prices.behind = provenance_words[profile_kind(system->behind)];
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
    facts->backend = backend_names[BACKEND_SIM];
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
    c->policies = policies_of(system);
    facts->policies = c->policies;
    for (uint32_t i = 0; i < system->n_calibrated; i++) {
        const struct calibrated *calibrated = &system->calibrated[i];
        c->constants[i] = (struct run_figure){calibrated->name, calibrated->value, UNIT_NONE,
                                              calibrated->fitted_to};
    }
    facts->constants = c->constants;
    facts->n_constants = system->n_calibrated;
}

/* What of a trace is other than its file says, or not in the run at all. */
static void warn_of_trace(struct composition *c) {
    char text[WARNING_CHARS];
    size_t n;
    double rounds = workload_rounds(c->workload);
    if (workload_notes(c->workload, text, sizeof text)[0] != '\0') {
        warnings_add(&c->facts.warnings, WARNING_TRACE_ASSUMED, (double)NAN, "%s", text);
    }
    workload_unread(c->workload, text, sizeof text - 64, &n);
    if (n > 0) {
        warnings_add(&c->facts.warnings, WARNING_COLUMNS_UNREAD, (double)n,
                     "columns of the trace that are not read: %s", text);
    }
    if (rounds > 1) {
        warnings_add(&c->facts.warnings, WARNING_REPEATED, rounds,
                     "the trace's rows are gone through %.3g times to make the requests", rounds);
    }
}

/* What else is known before the run; the summary adds to it (analysis/caution.h). A device that
 * executes the run has its own host and decides itself. */
static void state_warnings(struct composition *c) {
    c->facts.is_drawn =
        c->facts.decisions.drawn || (c->workload != NULL && workload_draws(c->workload));
    if (c->fleet == NULL) {
        system_warn_of_host(c->system, &c->facts.warnings);
    }
    system_warn_of_settings(c->system, &c->facts.warnings);
    if (c->facts.decisions.drawn) {
        system_warn_of_decisions(c->system, &c->facts.warnings);
    }
    if (c->workload != NULL) {
        warn_of_trace(c);
    }
    if (!c->says_answers) {
        warnings_add(&c->facts.warnings, WARNING_ANSWERS_ASSUMED, (double)NAN,
                     "answers are %s (workload.answer, or a trace's answer_tokens)",
                     c->answers.source);
    }
}

void compose_name_trace(struct composition *c, double offered_req_s) {
    char rate[RATE_CHARS];
    if (c->workload != NULL) { /* a replay repeats what was recorded */
        rate_text(c->facts.asked_req_s, offered_req_s, rate);
        snprintf(c->trace, sizeof c->trace, "%s%s%s", workload_name(c->workload),
                 rate[0] != '\0' ? " at " : "", rate);
    }
}

static void name_provenance(struct composition *c, const struct run_request *request) {
    const char *arrivals = c->traffic != NULL    ? "arrivals and lengths as recorded"
                           : c->workload != NULL ? workload_provenance(c->workload)
                                                 : "arrivals and lengths as clients sent them";
    if (c->decode != NULL) {
        snprintf(c->provenance, sizeof c->provenance, "%s, decisions from %s", arrivals,
                 c->decode_source.name);
    } else if (system_draws(c->system) && request->backend.kind == BACKEND_SIM) {
        snprintf(c->provenance, sizeof c->provenance, "%s, %s confidences", arrivals,
                 provenance_words[system_decisions(c->system).kind]);
    } else {
        snprintf(c->provenance, sizeof c->provenance, "%s", arrivals);
    }
}

/* Where the end of each text comes from: a decode trace that recorded it, else the workload. */
static void name_answers(struct composition *c) {
    static const char no_data[] = "assumed to fill the output: no end-of-text data";
    char ids[128], source[192];
    if (c->workload != NULL) {
        c->answers = workload_answers(c->workload);
        c->says_answers = workload_says_answers(c->workload);
    } else {
        c->answers = provenance_of(PROVENANCE_ASSUMED,
                                   c->traffic != NULL ? "as recorded" : "as --answers draws them");
        c->says_answers = true;
    }
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
                                     : provenance_of(PROVENANCE_ASSUMED, no_data);
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

/* All prompts of the workload's file, before anything is run: their tokens are part of what is
 * asked, and what is wrong with them is told at once. */
static int read_questions(struct composition *c, struct err *err) {
    const struct trace *prompts = c->workload != NULL ? workload_prompts(c->workload) : NULL;
    if (prompts == NULL) {
        return c->questions->request.reference == NULL
                   ? 0
                   : err_usage(err,
                               "--reference is for workloads whose trace is a file of prompts");
    }
    const struct prompt_taker taker = questions_taker(c->questions);
    int status = trace_show_prompts(prompts, &taker, err);
    status = status != 0 ? status : questions_check(c->questions, c->system->whole, err);
    return status != 0 ? status : questions_read_reference(c->questions, err);
}

void compose_close(struct composition *c) {
    if (c == NULL) {
        return;
    }
    summary_fini(&c->summary);
    accuracy_fini(&c->accuracy);
    fleet_close(c->fleet);
    questions_close(c->questions);
    workload_close(c->workload);
    recorded_close(c->traffic);
    store_close(c->traffic_store);
    decode_trace_close(c->decode);
    system_close(c->system);
    json_decref(c->identity);
    json_decref(c->policies);
    json_decref(c->bound);
    free(c->config);
    free(c);
}

/* Where requests come from, and what the configuration says of it. */
static int open_requests(const struct run_request *request, struct composition *c, FILE *text,
                         struct err *err) {
    int status = 0;
    compose_write_system(c->system, text);
    fprintf(text, "\n[workload]\n");
    if (request->is_served) { /* no two runs of clients are one */
        fprintf(text, "served_at = %" PRId64 "\n", (int64_t)time(NULL));
    } else if (c->traffic != NULL) {
        fprintf(text, "requests_digest = %" PRIu64 "\n", compose_traffic_digest(c->traffic));
    } else {
        status = open_workload(request, c, text, &c->workload, err);
    }
    compose_write_memory(c->system, text);
    return status;
}

int compose_check_names(const struct run_request *request, bool *can_be, struct err *err) {
    struct composition *c = mem_zeroed(1, sizeof *c);
    struct err trouble = {0};
    int status = questions_open(&request->questions, &c->questions, &trouble);
    status = status != 0 ? status : compose_open_system(request, c, &trouble);
    if (status == 0) {
        status = open_workload(request, c, NULL, &c->workload, &trouble);
        /* A file that cannot be read stays so. */
        trouble.code = trouble.kind == ERR_WORLD ? ERR_UNKNOWN : trouble.code;
    }
    *can_be = status == 0;
    questions_close(c->questions);
    workload_close(c->workload);
    system_close(c->system);
    free(c);
    if (trouble.code == ERR_UNKNOWN) {
        *err = trouble;
        err->kind = ERR_USAGE;
        return ERR_USAGE;
    }
    return 0;
}

static int check_deadlines(const struct composition *c, struct err *err) {
    const struct scheduler *scheduler = c->system->scheduler;
    return (scheduler->needs & NEEDS_DEADLINES) == 0 || c->workload == NULL ||
                   workload_may_have_deadlines(c->workload)
               ? 0
               : err_usage(err,
                           "scheduler %s goes by deadlines, and no request of %s has one: set "
                           "workload.deadline (`unmask list marks` has what draws them)",
                           scheduler->policy.name, workload_name(c->workload));
}

static int open_once(const struct run_request *request, double *fits, struct composition **out,
                     struct err *err) {
    struct composition *c = mem_zeroed(1, sizeof *c);
    summary_init(&c->summary, &request->slo);
    c->seed = request->options.seed;
    c->stated = request->stated;
    c->n_stated = request->n_stated;
    c->backend = request->backend.kind;
    size_t size;
    FILE *text = mem_stream(&c->config, &size);
    struct inputs inputs = {0}, *before = inputs_collect(&inputs);
    int status = questions_open(&request->questions, &c->questions, err);
    status = status != 0 ? status : compose_read_decode(request->decode_path, c, err);
    if (status == 0 && c->decode != NULL && request->workload != NULL &&
        strcmp(request->workload, request->decode_path) == 0) {
        decode_trace_repeat(c->decode);
    }
    compose_write_run(request, c->decode, text);
    status = status != 0 ? status : compose_open_traffic(request, c, err);
    status = status != 0 ? status : compose_open_system(request, c, err);
    c->summary.own_reasons = status == 0 ? c->system->scheduler->reject_reasons : NULL;
    status = status != 0 ? status : compose_check_decode(c, err);
    status = status != 0 ? status : open_requests(request, c, text, err);
    status = status != 0 ? status : check_deadlines(c, err);
    status = status != 0 ? status : read_questions(c, err);
    mem_stream_close(text);
    status = status != 0 ? status : compose_open_engine(c, &request->backend, fits, err);
    (void)inputs_collect(before);
    c->identity = status == 0 ? identity_json(c->config, &inputs) : NULL;
    inputs_fini(&inputs);
    if (status != 0) {
        compose_close(c);
        return status;
    }
    name_provenance(c, request);
    name_answers(c);
    name_settings(c, request);
    compose_state_facts(c);
    c->facts.asked_req_s = c->workload != NULL ? workload_rate_per_s(c->workload) : 0;
    snprintf(c->trace, sizeof c->trace, "%s", request->workload);
    compose_name_trace(c, 0);
    state_warnings(c);
    if (c->fleet != NULL) {
        c->facts.host.name = NULL;
        c->facts.backend = backend_names[request->backend.kind];
        c->facts.weights = request->backend.weights;
        c->facts.device = c->device;
        c->facts.emulated = c->emulates;
        c->facts.clock = request->backend.skips_idle ? "virtual" : "real";
        c->meters_energy = !request->backend.skips_idle;
        warn_of_kernels(c);
    } else {
        system_warn_of_experts(c->system, &c->facts.warnings);
    }
    *out = c;
    return 0;
}

static const char memory_key[] = "memory_utilization";

/* With as much of the device's memory as is free, which the sentence in `err` has found too little.
 * That sentence stays where this does not open either. */
static int open_in_free(const struct run_request *request, double fits, struct composition **out,
                        struct err *err) {
    const uint32_t n = request->n_settings;
    struct setting *settings = mem_zeroed(n + 1, sizeof *settings);
    struct run_request less = *request;
    struct err why = {0};
    for (uint32_t i = 0; i < n; i++) {
        settings[i] = request->settings[i];
    }
    settings[n].said = SAID_BY_SHIPPED;
    snprintf(settings[n].key, sizeof settings[n].key, "%s", memory_key);
    snprintf(settings[n].value, sizeof settings[n].value, "%.2f", fits);
    snprintf(settings[n].place, sizeof settings[n].place, "what the device has free");
    less.settings = settings;
    less.n_settings = n + 1;
    int status = open_once(&less, NULL, out, &why);
    free(settings);
    if (status != 0) {
        return err_status(err);
    }
    *err = (struct err){0};
    warnings_add(&(*out)->facts.warnings, WARNING_MEMORY_AS_FREE, fits,
                 "%s has less memory free than %s asks for: memory_utilization is %.2f here; "
                 "simulate it with --set memory_utilization=%.2f",
                 (*out)->device, (*out)->system->name, fits, fits);
    return 0;
}

int compose_open(const struct run_request *request, struct composition **out, struct err *err) {
    double fits = 0;
    const int status = open_once(request, &fits, out, err);
    return status != 0 && fits > 0 &&
                   setting_find(request->settings, request->n_settings, memory_key) == NULL
               ? open_in_free(request, fits, out, err)
               : status;
}
