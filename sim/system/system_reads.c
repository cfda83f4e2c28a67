#include "sim/system/system_reads.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/system/system_parts.h"

/* Of what chooses a part, and where parameters of any choice are read; by enum system_part. */
static const struct {
    const char *doc, *params;
} part_docs[SYSTEM_PARTS] = {
    {"which requests run in which step [serves = on]", "[serves = on]"},
    {"which rows of a canvas are kept", ""},
    {"which positions a step commits", "[serves = on and played = off]"},
    {"which replica serves a request [replicas > 1 and serves = on]", "[serves = on]"},
    {"the implementation, as far as time and memory depend on it", ""},
    {"where a step's tensors lie [allocator = planned]", ""},
    {"what confidences are drawn from, and the size of blocks where it is not set [backend = sim "
     "and draws = on or priced = on and asked.block_tokens = 0 and model.attention != "
     "autoregressive]",
     ""},
    {"the machine that the GPU is in [backend = sim|step and host_terms = on]",
     "[backend = sim|step and host_terms = on]"},
    {"the model", ""}};

const char *system_part_doc(const char *name) {
    for (int part = 0; part < SYSTEM_PARTS; part++) {
        if (strcmp(system_part_names[part], name) == 0) {
            return part_docs[part].doc;
        }
    }
    return NULL;
}

const char *system_part_at(size_t i) {
    return i < SYSTEM_MODEL ? system_part_names[i] : NULL;
}

/* ---- the table and the state of a key's owner ---- */

struct owner {
    const struct param *table;
    size_t n;
    const void *state;
};

static struct owner owner_of(const struct system *s, int part) {
    switch (part) {
    case SYSTEM_RUNTIME:
        return (struct owner){runtime_params, runtime_n_params, &s->runtime};
    case SYSTEM_HOST:
        return (struct owner){host_params, host_n_params, &s->host};
    case SYSTEM_MODEL:
        return (struct owner){model_params, model_n_params, s->whole};
    case SYSTEM_PLANNER:
    case SYSTEM_CONFIDENCE:
        return (struct owner){0};
    default: {
        void *state;
        const struct policy *policy = system_policy(s, (enum system_part)part, &state);
        return (struct owner){policy->params, policy->n_params, state};
    }
    }
}

/* The parameter that a key names, and whose it is. */
static const struct param *find(const struct system *s, const char *key, struct owner *owner) {
    for (int part = 0; part < SYSTEM_PARTS; part++) {
        const char *rest = name_behind(key, system_part_names[part]);
        if (rest != NULL && *rest == '.') {
            *owner = owner_of(s, part);
            return param_find(owner->table, owner->n, rest + 1);
        }
    }
    *owner = (struct owner){system_params, system_n_params, &s->settings};
    return param_find(owner->table, owner->n, key);
}

const char *system_key_doc(const struct system *s, const char *key) {
    struct owner owner;
    const struct param *param = find(s, key, &owner);
    return param != NULL ? param->doc : system_part_doc(key);
}

/* Its part's condition comes first, then its own. */
const char *system_unread(const struct system *s, const char *key, const struct facts *facts,
                          char text[CONDITION_CHARS]) {
    const char *docs[2] = {NULL, system_key_doc(s, key)};
    for (int part = 0; part < SYSTEM_PARTS; part++) {
        const char *rest = name_behind(key, system_part_names[part]);
        docs[0] = rest != NULL && *rest == '.' ? part_docs[part].params : docs[0];
    }
    for (int i = 0; i < 2; i++) {
        const char *condition = docs[i] != NULL ? condition_of(docs[i], text) : NULL;
        if (condition != NULL && !condition_holds(condition, facts)) {
            return condition;
        }
    }
    return NULL;
}

/* A file describes a system for all commands: where it is not served, only settings of the command
 * line are warned of as unused. */
void system_warn_of_unread(const struct system *s, const struct facts *facts,
                           struct warnings *warnings) {
    const bool serves = condition_holds("serves = on", facts);
    if (s->unused_file[0] != '\0') {
        warnings_add_unused(warnings, "--systems-file", s->unused_file, NULL,
                            "a system of it is asked for");
    }
    catalogue_warn_of_unread(s->whole->unread, warnings);
    catalogue_warn_of_unread(s->gpu->unread, warnings);
    for (uint32_t i = 0; i < s->n_applied; i++) {
        const struct setting *setting = &s->applied[i];
        char text[CONDITION_CHARS];
        bool is_own = setting->said == SAID_BY_COMMAND || (serves && setting->said == SAID_BY_FILE);
        const char *condition = is_own ? system_unread(s, setting->key, facts, text) : NULL;
        if (condition != NULL) {
            warnings_add_unused(warnings, setting->key, setting->value, setting->place, condition);
        }
    }
}

/* ---- facts ---- */

static const char *switch_word(bool is_on) {
    return is_on ? "on" : "off";
}

static const char *rows_word(const struct system *s) {
    static const char *const words[] = {[ROW_NONE] = "none",
                                        [ROW_KV] = "kv",
                                        [ROW_PATTERN] = "pattern",
                                        [ROW_FEATURES] = "features",
                                        [ROW_EXACT] = "exact"};
    return words[s->rows.kind];
}

static const char *reuses_word(const struct system *s) {
    return switch_word(s->rows.kind != ROW_NONE && s->rows.kind != ROW_PATTERN);
}

static const char *leads_word(const struct system *s) {
    return switch_word(s->rows.lead_layers > 0);
}

static const char *selects_word(const struct system *s) {
    return switch_word(rows_are_chosen(&s->rows));
}

static const char *evicts_word(const struct system *s) {
    return switch_word(s->rows.chooser == CHOSEN_BY_POLICY);
}

static const char *draws_word(const struct system *s) {
    return switch_word(system_draws(s));
}

static const char *grows_word(const struct system *s) {
    return switch_word(s->scheduler->grows);
}

bool system_preempts_by_swap(const struct system *s) {
    const struct policy *policy = &s->scheduler->policy;
    const struct param *param = param_find(policy->params, policy->n_params, "preempts");
    char text[32];
    return param != NULL && param->type == PARAM_WORD &&
           strcmp(param_text(param, s->scheduler_state, text, sizeof text), "swap") == 0;
}

static const char *swaps_word(const struct system *s) {
    return switch_word(system_preempts_by_swap(s) || !policy_is_built_in(&s->scheduler->policy));
}

static const char *picks_word(const struct system *s) {
    return switch_word(system_reads_logits(s));
}

/* What a step commits where blocks have that many steps. */
static void ask_decoder(const struct system *s, uint32_t steps, struct decode_rule *rule,
                        uint32_t *count) {
    struct request request = {
        .steps_per_block = steps, .block_tokens = 64, .window = window_of(0, 0, 64, 48)};
    window_advance(&request, 1, 0);
    uint32_t repeat;
    *rule = decoder_rule(s->decoder, s->decoder_state, &request);
    *count = s->decoder->count != NULL ? s->decoder->count(s->decoder_state, &request, &repeat) : 0;
}

static const char *steps_word(const struct system *s) {
    struct decode_rule few_rule, many_rule;
    uint32_t few, many;
    ask_decoder(s, 4, &few_rule, &few);
    ask_decoder(s, 48, &many_rule, &many);
    bool is_own = s->decoder->choose != NULL && !policy_is_built_in(&s->decoder->policy);
    bool decides = is_own || few != many || few_rule.threshold != many_rule.threshold;
    return switch_word(decides || s->rows.kind == ROW_PATTERN ||
                       strcmp(s->scheduler->policy.name, "knee") == 0);
}

static const char *profiled_word(const struct system *s) {
    return switch_word(system_is_profiled(s));
}

static const char *host_terms_word(const struct system *s) {
    const struct runtime *r = &s->runtime;
    double sum = r->host_look_ns + r->host_sync_layer_ns + r->host_visit_ns +
                 r->host_visit_request_ns + r->host_visit_cached_ns + r->host_plan_ns;
    for (int i = 0; i < HOST_KIND_COUNT; i++) {
        sum += r->host_step_ns[i] + r->host_request_ns[i] + r->host_layer_ns[i] +
               r->host_layer_request_ns[i] + r->host_sync_ns[i];
    }
    return switch_word(sum > 0);
}

static const char *launches_word(const struct system *s) {
    const struct runtime *r = &s->runtime;
    double sum = 0;
    for (int i = 0; i < HOST_KIND_COUNT; i++) {
        sum += r->launches_step[i] + r->launches_request[i] + r->launches_layer[i] +
               r->launches_layer_request[i];
    }
    return switch_word(sum > 0);
}

static const struct {
    struct system_fact_doc doc;
    const char *(*word)(const struct system *s);
} facts_known[] = {
    {{"rows", "what the cache policy keeps of a position: none, kv, pattern, features or exact"},
     rows_word},
    {{"reuses", "on: some steps run against cached rows"}, reuses_word},
    {{"leads", "on: leading layers take shared prefixes over (BiCache)"}, leads_word},
    {{"selects", "on: the cache policy chooses rows by scores"}, selects_word},
    {{"evicts", "on: positions leave in the middle of a step (FOCUS)"}, evicts_word},
    {{"draws", "on: what a simulated step commits is drawn from the decode process"}, draws_word},
    {{"grows", "on: the scheduler lets requests start with the memory of their next step"},
     grows_word},
    {{"swaps", "on: the scheduler preempts by swapping, or is a plug-in, which may"}, swaps_word},
    {{"picks", "on: steps have the operator that draws tokens or other confidences"}, picks_word},
    {{"steps", "on: decoder, cache policy or scheduler go by steps_per_block"}, steps_word},
    {{"profiled", "on: the GPU has a profile of models of this shape, which our own runtime uses"},
     profiled_word},
    {{"host_terms", "on: the runtime takes time on the host"}, host_terms_word},
    {{"launches", "on: the runtime says how many kernels a step launches"}, launches_word},
};
enum { N_FACTS = sizeof facts_known / sizeof facts_known[0] };

const struct system_fact_doc *system_fact_doc(size_t i) {
    return i < N_FACTS ? &facts_known[i].doc : NULL;
}

static const char *part_word(const struct system *s, int part) {
    void *state;
    switch (part) {
    case SYSTEM_RUNTIME:
        return s->runtime_name;
    case SYSTEM_PLANNER:
        return s->planner->name;
    case SYSTEM_CONFIDENCE:
        return s->confidence;
    case SYSTEM_HOST:
        return s->host.name;
    case SYSTEM_MODEL:
        return s->whole->name;
    default:
        return system_policy(s, (enum system_part)part, &state)->name;
    }
}

/* As it was set, before it was resolved. */
static const char *asked_value(const struct system *s, const char *key) {
    struct owner owner;
    const struct setting *setting = system_applied(s, key);
    const struct param *param = find(s, key, &owner);
    return setting != NULL ? setting->value : param != NULL ? param->initial : NULL;
}

const char *system_fact(const struct system *s, const char *name, char text[FACT_CHARS]) {
    for (size_t i = 0; i < N_FACTS; i++) {
        if (strcmp(facts_known[i].doc.name, name) == 0) {
            return facts_known[i].word(s);
        }
    }
    const char *asked = name_behind(name, "asked.");
    if (asked != NULL) {
        return asked_value(s, asked);
    }
    for (int part = 0; part < SYSTEM_PARTS; part++) {
        if (strcmp(system_part_names[part], name) == 0) {
            return part_word(s, part);
        }
    }
    struct owner owner;
    const struct param *param = find(s, name, &owner);
    return param != NULL ? param_text(param, owner.state, text, FACT_CHARS) : NULL;
}

const char *system_in_fact(const void *system_in, const char *name, char text[FACT_CHARS]) {
    const struct system_in *in = system_in;
    bool is_priced = strcmp(in->backend, "lmax") != 0;
    bool serves = is_priced && strcmp(in->backend, "step") != 0;
    return strcmp(name, "backend") == 0  ? in->backend
           : strcmp(name, "serves") == 0 ? switch_word(serves)
           : strcmp(name, "priced") == 0 ? switch_word(is_priced)
           : strcmp(name, "played") == 0 ? switch_word(false)
                                         : system_fact(in->system, name, text);
}

void system_warn_of_unread_in_step(const struct system *system, struct warnings *warnings) {
    const struct system_in in = {system, "step"};
    const struct facts facts = {system_in_fact, &in};
    system_warn_of_unread(system, &facts, warnings);
}
