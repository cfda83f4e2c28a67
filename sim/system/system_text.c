/* Descriptions of a system: its configuration as text, where its prices come from. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/decode/block.h"
#include "sim/price/link.h"
#include "sim/price/transfer.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_parts.h"

/* What is about the host's memory is not said where there is none. */
static bool is_said(const struct system *s, const char *name) {
    return s->settings.swap_host_bytes > 0 ||
           (name_behind(name, "swap.") == NULL && strcmp(name, "preempts") != 0);
}

static void add_params(const struct system *s, FILE *text, const char *prefix,
                       const struct param *params, size_t n, const void *state) {
    for (size_t i = 0; i < n; i++) {
        char value[128];
        if (!is_said(s, params[i].name)) {
            continue;
        }
        fprintf(text, "%s%s = %s\n", prefix, params[i].name,
                param_text(&params[i], state, value, sizeof value));
    }
}

char *system_text(const struct system *s) {
    char *bytes = NULL;
    size_t size;
    FILE *text = mem_stream(&bytes, &size);
    fprintf(text, "model = %s\n", s->model->path != NULL ? s->model->path : s->model->name);
    for (uint32_t i = 0; i < s->n_applied; i++) {
        if (name_behind(s->applied[i].key, "model.") != NULL) {
            fprintf(text, "%s = %s\n", s->applied[i].key, s->applied[i].value);
        }
    }
    add_params(s, text, "", system_params, system_n_params, &s->settings);
    fprintf(text, "planner = %s\n", s->planner->name);
    fprintf(text, "confidence = %s\n", s->confidence);
    fprintf(text, "runtime = %s\n", s->runtime_name);
    add_params(s, text, "runtime.", runtime_params, runtime_n_params, &s->runtime);
    fprintf(text, "host = %s\n", s->host.path != NULL ? s->host.path : s->host.name);
    add_params(s, text, "host.", host_params, host_n_params, &s->host);
    for (int part = 0; part < SYSTEM_POLICIES; part++) {
        void *state;
        const struct policy *policy = system_policy(s, (enum system_part)part, &state);
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%s.", system_part_names[part]);
        fprintf(text, "%s = %s\n", system_part_names[part], policy->name);
        add_params(s, text, prefix, policy->params, policy->n_params, state);
    }
    mem_stream_close(text);
    return bytes;
}

/* A whole number in the largest unit that leaves it whole. */
static void add_whole(FILE *out, int64_t value, const char *unit) {
    static const struct {
        const char *unit, *suffix;
        int64_t size;
    } units[] = {{"ns", "s", 1000000000},  {"ns", "ms", 1000000},     {"ns", "us", 1000},
                 {"ns", "ns", 1},          {"bytes", "GiB", 1 << 30}, {"bytes", "MiB", 1 << 20},
                 {"bytes", "KiB", 1 << 10}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].unit, unit) == 0 && value != 0 && value % units[i].size == 0) {
            fprintf(out, "%" PRId64 "%s", value / units[i].size, units[i].suffix);
            return;
        }
    }
    fprintf(out, "%" PRId64, value);
}

static void add_changed(FILE *out, const struct param *param, const void *state) {
    char value[128];
    fprintf(out, "%s%s=", ftell(out) > 0 ? ", " : "", param->name);
    if (param->type == PARAM_I64) {
        int64_t whole;
        memcpy(&whole, (const char *)state + param->offset, sizeof whole);
        add_whole(out, whole, param->unit);
    } else if (param->type == PARAM_F64) {
        double number;
        memcpy(&number, (const char *)state + param->offset, sizeof number);
        fprintf(out, "%.9g", number);
    } else {
        fputs(param_text(param, state, value, sizeof value), out);
    }
}

void system_policy_facts(const struct system *s, int kind, struct policy_facts *out) {
    void *state;
    const struct policy *policy = system_policy(s, (enum system_part)kind, &state);
    const struct setting *asked = system_applied(s, system_part_names[kind]);
    const bool is_file = asked != NULL && strchr(asked->value, '/') != NULL;
    *out = (struct policy_facts){.kind = system_part_names[kind],
                                 .name = policy->name,
                                 .file = is_file ? asked->value : NULL};
    void *initial = mem_zeroed(policy->state_bytes + 1, 1);
    char *changed = NULL;
    size_t size;
    FILE *text = mem_stream(&changed, &size);
    param_defaults(policy->params, policy->n_params, initial);
    for (uint64_t i = 0; i < policy->n_params; i++) {
        char now[128], then[128];
        param_text(&policy->params[i], state, now, sizeof now);
        param_text(&policy->params[i], initial, then, sizeof then);
        if (strcmp(now, then) != 0) {
            add_changed(text, &policy->params[i], state);
        }
    }
    mem_stream_close(text);
    snprintf(out->changed, sizeof out->changed, "%s", changed);
    free(changed);
    free(initial);
}

/* Two words where some prices come from the second profile. */
const char *system_profile_kind(const struct system *s) {
    static const char *const mixed[3][3] = {
        {"measured", "measured and imported", "measured and transferred"},
        {"imported and measured", "imported", "imported and transferred"},
        {"transferred and measured", "transferred and imported", "transferred"}};
    if (s->profile == NULL || cost_ops_behind(s->cost) == 0) {
        return provenance_words[s->profile == NULL ? PROVENANCE_ROOFLINE
                                                   : profile_kind(s->profile)];
    }
    return mixed[profile_kind(s->profile)][profile_kind(s->behind)];
}

const char *system_profile_source(const struct system *s) {
    return s->profile != NULL ? profile_source(s->profile) : s->gpu->source;
}

struct provenance system_prices(const struct system *s) {
    return provenance_of(s->profile != NULL ? profile_kind(s->profile) : PROVENANCE_ROOFLINE,
                         system_profile_source(s));
}

uint32_t system_gpus(const struct system *s) {
    return s->settings.replicas * s->settings.tensor_parallel;
}

const char *system_collectives(const struct system *s, char *text, size_t size) {
    const struct profile *profile = cost_collectives(s->cost);
    if (s->settings.tensor_parallel == 1) {
        return NULL;
    }
    if (profile != NULL) {
        snprintf(text, size, "%s: %s", provenance_words[profile_kind(profile)],
                 profile_source(profile));
    } else {
        char link[64];
        snprintf(text, size,
                 "assumed: a model of %s at %g GB/s each way (data sheet) and %" PRIu32
                 " GPUs; unmask list collectives shows how far off such are",
                 link_words(s->gpu, link, sizeof link), s->gpu->link_bandwidth * 1e-9,
                 s->settings.tensor_parallel);
    }
    return text;
}

bool system_reads_logits(const struct system *s) {
    const struct settings *settings = &s->settings;
    bool adds_credit = s->decoder->credit != NULL;
    bool stores_logits = !s->runtime.fused_head && settings->allocator == ALLOCATOR_PLANNED;
    bool tempers = settings->temperature != 1 && s->runtime.engine && stores_logits && !adds_credit;
    return settings->sampling || settings->top_k > 0 || settings->top_p < 1 || tempers;
}

bool system_divides_first(const struct system *s) {
    return s->settings.temperature != 1 && !system_reads_logits(s);
}

bool system_draws(const struct system *s) {
    struct decode_rule rule = {.rank = RANK_CONFIDENCE};
    if (s->decoder->choose == NULL) {
        rule = decoder_rule_always(s->decoder, s->decoder_state);
    }
    bool is_blind = rule.rank == RANK_ORDER || rule.rank == RANK_DRAW;
    bool counts = s->decoder->count != NULL && s->rows.settles == BLOCK_WHOLE;
    return s->rows.chooser == CHOSEN_BY_POLICY || (!is_blind && !counts && !s->renoises);
}

struct provenance system_decisions(const struct system *s) {
    return s->process.from;
}

/* " and decoder credit": what of the run is not as it was where the process was located. */
static void add_moved(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_moved(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    va_list args;
    used += (size_t)snprintf(text + used, size - used, "%s", used > 0 ? ", " : "");
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

void system_warn_of_decisions(const struct system *s, struct warnings *warnings) {
    const struct decode_conditions *at = &s->process.at;
    const struct decode_rule rule = s->decoder->choose == NULL
                                        ? decoder_rule_always(s->decoder, s->decoder_state)
                                        : (struct decode_rule){.kind = DECODE_COUNT};
    bool is_plain = rule.kind == DECODE_THRESHOLD && s->decoder->credit == NULL;
    char moved[128] = "", was[96] = "";
    if (at->threshold > 0) {
        snprintf(was, sizeof was, "threshold %g, ", at->threshold);
        if (!is_plain) {
            add_moved(moved, sizeof moved, "decoder %s", s->decoder->policy.name);
        } else if ((float)at->threshold != rule.threshold) {
            add_moved(moved, sizeof moved, "threshold %g", (double)rule.threshold);
        }
    }
    if (at->block_tokens > 0 && at->block_tokens != s->settings.block_tokens) {
        add_moved(moved, sizeof moved, "blocks of %" PRIu32, s->settings.block_tokens);
    }
    if (at->temperature > 0 && at->temperature != s->settings.temperature) {
        add_moved(moved, sizeof moved, "temperature %g", s->settings.temperature);
    }
    if (moved[0] != '\0') {
        size_t used = strlen(was);
        used +=
            (size_t)snprintf(was + used, sizeof was - used, "blocks of %" PRIu32, at->block_tokens);
        if (at->temperature > 0) {
            snprintf(was + used, sizeof was - used, ", temperature %g", at->temperature);
        }
        warnings_add(warnings, WARNING_DECISIONS_MOVED, (double)NAN,
                     "%s was located at %s; with %s what is drawn rests on its shape (%.128s)",
                     s->process.name, was, moved, s->process.error);
    }
}

void system_warn_of_experts(const struct system *s, struct warnings *warnings) {
    const struct model *m = s->whole;
    const double counted = m->block_experts_hit;
    if (m->experts == 0 || s->settings.experts_hit > 0 || s->routing.is_by_block) {
        return;
    }
    const double chance = model_experts_hit(m->experts, m->experts_active, m->block_tokens);
    if (s->settings.expert_router == ROUTER_TRAINED && counted <= 0) {
        warnings_add(
            warnings, WARNING_EXPERTS_BY_CHANCE, chance,
            "how many experts %s's trained router hits was not counted: priced as if each token "
            "chose at random, %.1f of %" PRIu32
            " for a block; trained routers that were counted hit fewer (--set experts_hit=N)",
            m->name, chance, m->experts);
    } else if (s->settings.expert_router == ROUTER_RANDOM && counted > 0) {
        warnings_add(warnings, WARNING_EXPERTS_BY_CHANCE, chance,
                     "experts are priced as random weights choose them; the trained router hits %g "
                     "of %" PRIu32 " for a block (%s): --set expert_router=trained",
                     counted, m->experts, m->block_experts_hit_source);
    }
}

void system_warn_of_weights(const struct system *s, bool has_random_weights,
                            struct warnings *warnings) {
    const struct model *m = s->whole;
    const bool prices_random = s->settings.expert_router == ROUTER_RANDOM;
    if (m->experts == 0 || s->settings.experts_hit > 0 || prices_random == has_random_weights) {
        return;
    }
    warnings_add(warnings, WARNING_EXPERTS_BY_CHANCE,
                 routing_hits(&s->routing, m->experts, m->experts_active, m->block_tokens),
                 "the record prices experts as %s, and the device has %s weights, which "
                 "hit others: compare with a run that was recorded with --set expert_router=%s",
                 prices_random ? "random weights choose them" : "a trained router chooses them",
                 has_random_weights ? "random" : "trained",
                 has_random_weights ? "random" : "trained");
}

static void print_transfer_check(const struct system *s, FILE *out) {
    struct err err = {0};
    struct transfer_check check;
    char text[512];
    if (transfer_check_nearest(s->donor, s->gpu, &check, &err) != 0) {
        fprintf(out, "%-13snot checked: %s\n", "transfer", err.text);
    } else if (check.n == 0) {
        fprintf(out, "%-13snot checked: no GPU shares rows with %s\n", "transfer", s->donor->name);
    } else {
        fprintf(out, "%-13serrors of the nearest that can be checked, %s\n", "transfer",
                transfer_check_text(&check, text, sizeof text));
    }
}

void system_print_provenance(const struct system *s, FILE *out) {
    char text[512];
    const char *collectives = system_collectives(s, text, sizeof text);
    if (collectives != NULL) {
        fprintf(out, "%-13s%s\n", "collectives", collectives);
    }
    if (s->profile == NULL) {
        return;
    }
    if (s->profile_path[0] != '\0') {
        const char *key, *value;
        fprintf(out, "%-13s%s\n", "profile", s->profile_path);
        for (size_t i = 0; profile_fact(s->profile, i, &key, &value); i++) {
            fprintf(out, "%-13s%s: %s\n", "", key, value);
        }
    } else if (s->gpu->profile == NULL && s->donor != NULL) {
        print_transfer_check(s, out);
    }
}
