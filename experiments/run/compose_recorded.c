/* Opening a run that was recorded, so that it is played again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/identity.h"
#include "analysis/quality.h"
#include "experiments/run/compose_impl.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/system/system_facts.h"

static const char *recorded_text(const struct recorded *recorded, const char *key) {
    const struct config_entry *entry = config_find(&recorded->config, "run", key);
    return entry != NULL ? entry->value : NULL;
}

static int64_t recorded_number(const struct recorded *recorded, const char *key) {
    uint64_t number = 0;
    const char *text = recorded_text(recorded, key);
    return text != NULL && num_u64(text, INT64_MAX, &number) ? (int64_t)number : 0;
}

/* With what weights a live run was made whose record is older than expert_router. */
static struct backend_request backend_then(const struct recorded *recorded) {
    const char *weights = json_string_value(json_object_get(recorded->summary, "weights"));
    const bool was_live = !recorded->is_simulated && weights != NULL;
    return (struct backend_request){.kind = was_live ? BACKEND_CUDA : BACKEND_SIM,
                                    .weights = weights};
}

/* Keys that older records have and what they are now; NULL: nothing, as that value is how it is. */
static const struct {
    const char *key, *value, *key_now, *value_now;
} renamed[] = {
    {"runtime.element_bytes", "2", "storage.weights", "bf16"},
    {"runtime.element_bytes", "4", "storage.weights", "f32"},
    {"scheduler.admits_after_preemption", "off", NULL, NULL},
    {"cache.pool_kernel", "3", NULL, NULL},
};

/* False where nothing is left of it. */
static bool rename_setting(struct setting *setting) {
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
        if (strcmp(setting->key, renamed[i].key) == 0 &&
            strcmp(setting->value, renamed[i].value) == 0) {
            if (renamed[i].key_now == NULL) {
                return false;
            }
            snprintf(setting->key, sizeof setting->key, "%s", renamed[i].key_now);
            snprintf(setting->value, sizeof setting->value, "%s", renamed[i].value_now);
        }
    }
    return true;
}

/* A record has every key of its system, so that any system of the same policies stands for one that
 * has gone. */
static const char *system_now(const char *name) {
    static const char *const gone[][2] = {
        {"ablation-scheduler", "ablation-engine"},
        {"dc-0.9", "dc"},
        {"dinfer-no-kv", "dinfer"},
        {"dinfer-no-kv-0.8", "dinfer"},
        {"focus-multiloop", "focus"},
        {"lmdeploy-0.8", "lmdeploy"},
        {"lmdeploy-0.9", "lmdeploy"},
    };
    for (size_t i = 0; name != NULL && i < sizeof gone / sizeof gone[0]; i++) {
        if (strcmp(name, gone[i][0]) == 0) {
            return gone[i][1];
        }
    }
    return name;
}

static uint32_t recorded_settings(const struct recorded *recorded, struct setting *out) {
    const struct config *config = &recorded->config;
    uint32_t n = 0;
    const struct config_entry *model = config_find(config, "system", "model"), *entry = NULL;
    while ((entry = config_next(config, "system", NULL, entry)) != NULL) {
        if (entry != model) {
            snprintf(out[n].key, sizeof out[n].key, "%s", entry->key);
            snprintf(out[n].value, sizeof out[n].value, "%s", entry->value);
            config_place(config, entry, out[n].place, sizeof out[n].place);
            n += rename_setting(&out[n]);
        }
    }
    return n;
}

static enum figure_unit unit_of_figure(const char *name) {
    for (size_t i = 0; i < ENGINE_FIGURES; i++) {
        if (strcmp(compose_figures[i].name, name) == 0) {
            return compose_figures[i].unit;
        }
    }
    return UNIT_NONE;
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
    facts->asked_req_s = json_number_value(
        json_object_get(json_object_get(recorded->summary, "offered"), "asked_req_s"));
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
    facts->bound = json_object_get(recorded->summary, "bound");
    facts->backend = recorded->backend;
    facts->incomplete = recorded->incomplete;
    facts->device = json_string_value(json_object_get(recorded->summary, "device"));
    facts->emulated = json_is_true(json_object_get(recorded->summary, "emulated"));
    facts->weights = json_string_value(json_object_get(recorded->summary, "weights"));
    facts->clock = json_string_value(json_object_get(recorded->summary, "clock"));
    const json_t *energy = json_object_get(recorded->summary, "energy");
    facts->energy.measured_j = json_number_value(json_object_get(energy, "measured_joules"));
    const json_t *quality = json_object_get(recorded->summary, "quality");
    const char *marks = json_string_value(json_object_get(quality, "marks"));
    if (marks != NULL) {
        c->quality.marks = marks;
        quality_add(&c->quality, recorded->summary);
        facts->quality = &c->quality;
    }
    facts->engine = c->figures;
    json_object_foreach((json_t *)figures, name, value) {
        if (facts->n_engine < ENGINE_FIGURES) {
            c->figures[facts->n_engine++] =
                (struct run_figure){name, json_number_value(value), unit_of_figure(name), ""};
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
            json_string_value(json_object_get(said, "error")),
        };
    }
}

/* The decode trace that the run played, as long as it still is the same, or the one it wrote. */
static int recall_decode(struct composition *c, const struct recorded *recorded, struct err *err) {
    const char *digest = recorded_text(recorded, "decode_digest");
    char now[32];
    int status = compose_read_decode(recorded_text(recorded, "decode"), c, err);
    if (status != 0 || c->decode == NULL) {
        return status;
    }
    snprintf(now, sizeof now, "%" PRIu64, decode_trace_digest(c->decode));
    return digest != NULL && strcmp(digest, now) == 0
               ? compose_check_decode(c, err)
               : err_world(err, "%s has other passes than when run %" PRId64 " played it",
                           c->decode_source.name, recorded->run);
}

/* The run keeps its identity. What is read now is held to what was read then. */
static void recall_identity(struct composition *c, const struct recorded *recorded,
                            const struct inputs *inputs) {
    json_t *then = json_object_get(recorded->summary, "identity");
    json_t *now = identity_json("", inputs);
    struct identity_difference difference = identity_compare(then, now, false);
    snprintf(c->changed, sizeof c->changed, "%s", difference.text);
    c->is_of_another_build = difference.build;
    c->identity = json_incref(then);
    json_decref(now);
}

static bool has_loaded(const struct recorded *recorded, const char *sha256) {
    const json_t *identity = json_object_get(recorded->summary, "identity");
    size_t i;
    json_t *input;
    json_array_foreach(json_object_get(identity, "inputs"), i, input) {
        const char *role = json_string_value(json_object_get(input, "role"));
        const char *then = json_string_value(json_object_get(input, "sha256"));
        if (role != NULL && then != NULL && strcmp(role, "plugin") == 0 &&
            strcmp(then, sha256) == 0) {
            return true;
        }
    }
    return false;
}

/* A database may come from anybody, and a plug-in is code. */
static int may_load(const void *state, const char *path, int file, struct err *err) {
    const struct recorded *recorded = state;
    char sha256[SHA256_HEX_CHARS];
    if (!recorded->allows_plugins) {
        return err_usage(err,
                         "run %" PRId64
                         " names the plug-in %s, which is code: --allow-plugin loads "
                         "it, if it is the file that the run loaded",
                         recorded->run, path);
    }
    if (!inputs_digest_open(file, sha256)) {
        return err_world(err, "cannot read the plug-in %s that run %" PRId64 " names", path,
                         recorded->run);
    }
    return has_loaded(recorded, sha256)
               ? 0
               : err_world(err,
                           "%s is not the plug-in that run %" PRId64 " loaded: its content differs",
                           path, recorded->run);
}

/* Decisions that a trace tells by their number alone. */
static int check_taken_back(const struct composition *c, const struct backend_request *backend,
                            struct err *err) {
    return backend->kind == BACKEND_SIM || !c->decode_source.takes_back
               ? 0
               : err_usage(err,
                           "%s says how many positions are masked again, and not which, as an "
                           "engine has to know: play it with --backend sim",
                           c->decode_source.name);
}

/* Which requests share a prefix is part of the schedule. */
static int check_prefixes(const struct composition *c, struct err *err) {
    const struct recorded *recorded = c->recorded;
    return !c->system->settings.prefix_caching || !recorded->lacks_prefixes
               ? 0
               : err_world(err,
                           "run %" PRId64 " cannot be played again: %s caches prefixes, and an "
                           "older unmask did not record what requests shared",
                           recorded->run, c->system->name);
}

int compose_recorded(const struct recorded *recorded, const struct backend_request *backend,
                     uint32_t operators_every, struct composition **out, struct err *err) {
    const struct config_entry *model = config_find(&recorded->config, "system", "model");
    const char *roofline = recorded_text(recorded, "roofline");
    struct run_request request = {.system = system_now(recorded_text(recorded, "system")),
                                  .gpu = recorded_text(recorded, "gpu"),
                                  .memory_bytes = recorded_number(recorded, "gpu_memory"),
                                  .model = model != NULL ? model->value : NULL,
                                  .systems_path = recorded_text(recorded, "systems"),
                                  .profile_path = recorded_text(recorded, "profile"),
                                  .roofline = roofline != NULL && strcmp(roofline, "on") == 0,
                                  .statistics = recorded_text(recorded, "statistics") != NULL,
                                  .slo = {recorded_number(recorded, "slo_latency"),
                                          recorded_number(recorded, "slo_ttfb"),
                                          recorded_number(recorded, "slo_tpot")}};
    const char *source = recorded_text(recorded, "price_source");
    const int found = source != NULL ? name_find(price_source_words, source) : PRICES_BEST;
    request.price_source = found >= 0 ? (enum price_source)found : PRICES_BEST;
    if (request.system == NULL || request.gpu == NULL) {
        return err_world(err, "%s names no system or no GPU", recorded->config.path);
    }
    struct composition *c = mem_zeroed(1, sizeof *c);
    struct setting *settings = mem_zeroed(recorded->config.n_entries + 1, sizeof *settings);
    summary_init(&c->summary, &request.slo);
    c->recorded = recorded;
    c->seed = recorded->seed;
    request.settings = settings;
    request.backend = backend_then(recorded);
    request.n_settings = recorded_settings(recorded, settings);
    struct inputs inputs = {0}, *before = inputs_collect(&inputs);
    const struct plugin_gate gate = {recorded, may_load}, *open = plugin_ask(&gate);
    int status = compose_open_system(&request, c, err);
    c->summary.own_reasons = status == 0 ? c->system->scheduler->reject_reasons : NULL;
    (void)plugin_ask(open);
    free(settings);
    status = status != 0 ? status : recall_decode(c, recorded, err);
    (void)inputs_collect(before);
    recall_identity(c, recorded, &inputs);
    inputs_fini(&inputs);
    status = status != 0 ? status : check_prefixes(c, err);
    status = status != 0 ? status : check_taken_back(c, backend, err);
    status = status != 0 ? status : compose_open_engine(c, backend, NULL, err);
    if (status != 0) {
        compose_close(c);
        return status;
    }
    snprintf(c->trace, sizeof c->trace, "%s", recorded->trace);
    snprintf(c->provenance, sizeof c->provenance, "%s", recorded->trace_provenance);
    compose_state_facts(c);
    if (c->fleet != NULL) {
        system_warn_of_weights(c->system, backend_has_random_weights(backend), &c->around);
    }
    recall_engine(c, recorded);
    recall_decisions(c, recorded);
    if (compose_is_measured(c)) {
        accuracy_init(&c->accuracy, c->system, recorded->n_steps, operators_every);
    }
    *out = c;
    return 0;
}
