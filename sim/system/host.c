#include "sim/system/host.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/datadir.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { PATH_CHARS = 1024, MOST_HOSTS = 64 };

const struct param host_params[] = {
    {"factor", PARAM_F64, 0, "1", "1", 0, 100, NULL, offsetof(struct host, factor),
     "this host's time over the reference host's"},
};
const size_t host_n_params = sizeof host_params / sizeof host_params[0];

static int open_hosts(struct config *hosts, struct err *err) {
    char path[PATH_CHARS];
    return config_read(data_path(path, sizeof path, "experiments/hosts.ini"), hosts, err);
}

static const char *text_of(const struct config *config, const char *section, const char *key) {
    const struct config_entry *entry = config_find(config, section, key);
    return entry != NULL ? entry->value : "";
}

static bool has_host(const struct config *hosts, const char *name) {
    for (size_t i = 0; i < hosts->n_entries; i++) {
        if (strcmp(hosts->entries[i].section, name) == 0) {
            return true;
        }
    }
    return false;
}

static int unknown_host(const struct config *hosts, const char *name, struct err *err) {
    const char *names[MOST_HOSTS + 1] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < hosts->n_entries && n < MOST_HOSTS; i++) {
        const char *section = hosts->entries[i].section;
        if (n == 0 || strcmp(names[n - 1], section) != 0) {
            names[n++] = section;
        }
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    return err_usage(err, "unknown host '%s'%s (`unmask list hosts` prints them all)", name, hint);
}

/* "$NAME": its value, and what it was fitted to as the source. */
static int take_constant(const struct config *constants, const char *name, struct host *out,
                         struct err *err) {
    const char *value = text_of(constants, name, "value");
    const char *fitted_to = text_of(constants, name, "fitted_to");
    if (fitted_to[0] == '\0' || !num_f64(value, &out->factor)) {
        return err_usage(err, "host %s: no calibrated constant '%s' with value and fitted_to in %s",
                         out->name, name, constants->path);
    }
    snprintf(out->constant, sizeof out->constant, "%s", name);
    snprintf(out->provenance.source, sizeof out->provenance.source, "%s", fitted_to);
    return 0;
}

static int read_host(const struct config *hosts, const struct config *constants, const char *name,
                     struct host *out, struct err *err) {
    const char *factor = text_of(hosts, name, "factor");
    const char *word = text_of(hosts, name, "kind");
    int kind = provenance_find(word);
    if (kind < 0) {
        return err_usage(err, "%s: [%s] has kind = '%s', expected measured, calibrated or assumed",
                         hosts->path, name, word);
    }
    *out = (struct host){
        .provenance = provenance_of((enum provenance_kind)kind, text_of(hosts, name, "source"))};
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->gpus, sizeof out->gpus, "%s", text_of(hosts, name, "gpu"));
    if (factor[0] == '$') {
        return take_constant(constants, factor + 1, out, err);
    }
    return num_f64(factor, &out->factor) && out->factor >= 0
               ? 0
               : err_usage(err,
                           "%s: [%s] has factor = '%s', expected a number of 0 or more, or "
                           "$CONSTANT",
                           hosts->path, name, factor);
}

int host_find(const char *name, const struct config *constants, struct host *out, struct err *err) {
    struct config hosts;
    int status = open_hosts(&hosts, err);
    if (status != 0) {
        return status;
    }
    status = has_host(&hosts, name) ? read_host(&hosts, constants, name, out, err)
                                    : unknown_host(&hosts, name, err);
    config_fini(&hosts);
    return status;
}

bool host_is_beside(const struct host *host, const char *gpu) {
    size_t length = strlen(gpu);
    const char *at = host->gpus;
    while (*at != '\0') {
        at += strspn(at, " ");
        size_t word = strcspn(at, " ");
        if (word == length && strncmp(at, gpu, length) == 0) {
            return true;
        }
        at += word;
    }
    return host->gpus[0] == '\0';
}

int host_list(int (*each)(void *state, const struct host *host, const char *doc), void *state,
              struct err *err) {
    struct config hosts, constants;
    char path[PATH_CHARS];
    int status = open_hosts(&hosts, err);
    if (status != 0) {
        return status;
    }
    status =
        config_read(data_path(path, sizeof path, "experiments/calibrated.ini"), &constants, err);
    if (status == 0) {
        for (size_t i = 0; status == 0 && i < hosts.n_entries; i++) {
            const char *section = hosts.entries[i].section;
            struct host host;
            if (i > 0 && strcmp(section, hosts.entries[i - 1].section) == 0) {
                continue;
            }
            status = read_host(&hosts, &constants, section, &host, err);
            status = status == 0 ? each(state, &host, text_of(&hosts, section, "doc")) : status;
        }
        config_fini(&constants);
    }
    config_fini(&hosts);
    return status;
}
