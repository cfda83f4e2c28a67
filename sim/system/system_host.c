#include "sim/base/names.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_parts.h"

#include <stdio.h>
#include <string.h>

static const char *const step_keys[HOST_KIND_COUNT] = {
    "runtime.host_refresh_ns", "runtime.host_reuse_ns", "runtime.host_select_ns"};
static const char *const request_keys[HOST_KIND_COUNT] = {"runtime.host_request_refresh_ns",
                                                          "runtime.host_request_reuse_ns",
                                                          "runtime.host_request_select_ns"};
int system_take_host(struct system *s, const struct config *constants, struct err *err) {
    double asked = s->host.factor;
    bool is_asked = system_applied(s, "host.factor") != NULL;
    char name[sizeof s->host.name];
    snprintf(name, sizeof name, "%s", s->host.name);
    int status = host_find(name, constants, &s->host, err);
    is_asked = is_asked && asked != s->host.factor;
    if (status == 0 && s->host.constant[0] != '\0' && !is_asked) {
        struct setting setting = {.key = "host.factor", .place = "the host's file"};
        snprintf(setting.value, sizeof setting.value, "$%s", s->host.constant);
        status = system_expand(s, constants, &setting, err);
    }
    if (status == 0 && is_asked) {
        s->host.factor = asked;
        s->host.provenance = provenance_of(PROVENANCE_ASSUMED, "the factor was set by hand");
    }
    s->runtime.host_factor = s->host.factor;
    s->runtime.shares_prefixes = s->settings.prefix_caching;
    return status;
}

bool system_runs_on_ours(const struct system *s) {
    return strcmp(s->runtime_name, "unmask") == 0;
}

static bool takes_terms_of_profile(const struct system *s) {
    return s->profile != NULL && system_runs_on_ours(s);
}

void system_take_host_terms(struct system *s) {
    if (!takes_terms_of_profile(s)) {
        return;
    }
    s->runtime.between_ns = profile_between_ns(s->profile);
    for (size_t kind = 0; kind < HOST_KIND_COUNT; kind++) {
        const struct profile_host *host = profile_host(s->profile, kind);
        s->runtime.issued_ns[kind] = host->issued_ns;
        if (host->given && system_applied(s, step_keys[kind]) == NULL) {
            s->runtime.host_step_ns[kind] = host->step_ns;
            s->host_terms_of_profile++;
        }
        if (host->given && system_applied(s, request_keys[kind]) == NULL) {
            s->runtime.host_request_ns[kind] = host->request_ns;
            s->host_terms_of_profile++;
        }
    }
}

/* The host terms that a line of the systems file or of the command line set. */
static struct provenance of_settings(const struct system *s, struct provenance so_far) {
    for (uint32_t i = 0; i < s->n_applied; i++) {
        const struct setting *setting = &s->applied[i];
        const char *term = name_behind(setting->key, "runtime.host_");
        if (term == NULL || strcmp(term, "mode") == 0) {
            continue;
        }
        if (setting->constant[0] != '\0') {
            for (uint32_t c = 0; c < s->n_calibrated; c++) {
                if (strcmp(s->calibrated[c].name, setting->constant) == 0) {
                    so_far = provenance_of(PROVENANCE_CALIBRATED, s->calibrated[c].fitted_to);
                }
            }
        } else if (setting->layer == s->layer) {
            return provenance_of(PROVENANCE_ASSUMED, "host terms were set by hand");
        }
    }
    return so_far;
}

/* The source of the runtime's host terms, the host's factor aside. */
static struct provenance of_terms(const struct system *s) {
    const struct runtime_preset *preset = s->preset;
    bool is_of_others =
        preset->host_model != NULL && strcmp(preset->host_model, s->model->name) != 0;
    struct provenance terms = provenance_of(is_of_others && preset->host_kind == PROVENANCE_MEASURED
                                                ? PROVENANCE_TRANSFERRED
                                                : preset->host_kind,
                                            preset->source);
    if (is_of_others) {
        size_t used = strlen(terms.source);
        snprintf(terms.source + used, sizeof terms.source - used, ", of %s", preset->host_model);
    }
    if (s->host_terms_of_profile == 2 * HOST_KIND_COUNT) {
        bool is_here = profile_kind(s->profile) != PROVENANCE_TRANSFERRED;
        const char *between = profile_note(s->profile, "between");
        bool is_assumed = between != NULL && strstr(between, "assumed") != NULL;
        terms = provenance_of(is_here ? PROVENANCE_MEASURED : PROVENANCE_TRANSFERRED,
                              !is_here     ? "host rows measured with the donor"
                              : is_assumed ? "the profile's host rows; what passes between "
                                             "submissions is assumed"
                                           : "the profile's host rows");
    } else if (s->host_terms_of_profile > 0) {
        terms = provenance_of(PROVENANCE_ASSUMED, "the profile's host rows are of some steps only");
    }
    return of_settings(s, terms);
}

struct host system_host(const struct system *s) {
    struct host host = s->host;
    struct provenance terms = of_terms(s);
    bool is_beside_profile = s->host_terms_of_profile > 0 && host.gpus[0] == '\0' &&
                             host.provenance.kind == PROVENANCE_ASSUMED && host.factor == 1;
    if (is_beside_profile) {
        snprintf(host.name, sizeof host.name, "profile");
        host.provenance = terms;
        return host;
    }
    /* Host times are as sure as the weaker of the two; they rest on both sources. */
    struct provenance factor = host.provenance;
    host.provenance.kind = terms.kind > factor.kind ? terms.kind : factor.kind;
    snprintf(host.provenance.source, sizeof host.provenance.source, "%.120s; its terms: %.110s",
             factor.source, terms.source);
    return host;
}

void system_warn_of_host(const struct system *s, struct warnings *warnings) {
    const struct host host = system_host(s);
    if (!host_is_beside(&s->host, s->gpu->name)) {
        warnings_add(warnings, WARNING_HOST_FOREIGN, host.factor,
                     "%s keeps the host %s, a machine with %s, on %s: host factor %.4g", s->name,
                     host.name, host.gpus, s->gpu->name, host.factor);
    }
    if (host.provenance.kind == PROVENANCE_ASSUMED) {
        const bool has_part =
            s->host_terms_of_profile > 0 && s->host_terms_of_profile < 2 * HOST_KIND_COUNT;
        warnings_add(warnings, WARNING_HOST_ASSUMED, host.factor,
                     "the CPU's time is %sassumed, not measured (host = %s): --host takes another "
                     "machine of `unmask list hosts`, --profile one that `calibrate` measured",
                     has_part ? "in part " : "", host.name);
    }
}
