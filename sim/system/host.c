#include "sim/system/host.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/input/catalogue.h"
#include "sim/base/input/datadir.h"
#include "sim/base/num.h"

const struct param host_params[] = {
    {"factor", PARAM_F64, 0, "1", "1", 0, 100, NULL, offsetof(struct host, factor),
     "this host's time over the reference host's"},
};
const size_t host_n_params = sizeof host_params / sizeof host_params[0];

/* As its file has it. */
struct host_file {
    const char *name, *path; /* as struct catalogued has them */
    const char *doc, *factor, *kind, *source, *gpus;
};

static const struct catalogue_text texts[] = {
    {"doc", offsetof(struct host_file, doc), false},
    {"factor", offsetof(struct host_file, factor), false},
    {"kind", offsetof(struct host_file, kind), false},
    {"source", offsetof(struct host_file, source), true},
    {"gpu", offsetof(struct host_file, gpus), true},
    {NULL, 0, false},
};

static int settle(void *thing, const char *place, struct err *err) {
    const struct host_file *file = thing;
    double factor;
    if (provenance_find(file->kind) < 0) {
        return err_usage(err, "%s: kind = '%s', expected measured, calibrated or assumed", place,
                         file->kind);
    }
    return file->factor[0] == '$' ||
                   (num_f64(file->factor, &factor) && factor >= 0 && factor <= 100)
               ? 0
               : err_usage(err, "%s: factor = '%s', expected a number from 0 to 100, or $CONSTANT",
                           place, file->factor);
}

static struct catalogue hosts = {
    .what = "host",
    .section = "host",
    .list = "hosts",
    .folder = "experiments/study/hosts",
    .size = sizeof(struct host_file),
    .texts = texts,
    .settle = settle,
};

static const char *constant_of(const struct config *constants, const char *name, const char *key) {
    const struct config_entry *entry = config_find(constants, name, key);
    return entry != NULL ? entry->value : "";
}

/* A factor "$NAME" is that constant's value, and what it was fitted to is the source. */
static int read_host(const struct host_file *file, const struct config *constants, struct host *out,
                     struct err *err) {
    *out = (struct host){.path = file->path,
                         .provenance = provenance_of(
                             (enum provenance_kind)provenance_find(file->kind), file->source)};
    snprintf(out->name, sizeof out->name, "%s", file->name);
    snprintf(out->gpus, sizeof out->gpus, "%s", file->gpus != NULL ? file->gpus : "");
    if (file->factor[0] != '$') {
        (void)num_f64(file->factor, &out->factor);
        return 0;
    }
    const char *name = file->factor + 1;
    const char *fitted_to = constant_of(constants, name, "fitted_to");
    if (fitted_to[0] == '\0' || !num_f64(constant_of(constants, name, "value"), &out->factor)) {
        return err_usage(err, "host %s: no calibrated constant '%s' with value and fitted_to in %s",
                         out->name, name, constants->path);
    }
    snprintf(out->constant, sizeof out->constant, "%s", name);
    snprintf(out->provenance.source, sizeof out->provenance.source, "%s", fitted_to);
    return 0;
}

int host_find(const char *name, const struct config *constants, struct host *out, struct err *err) {
    const struct host_file *file = catalogue_find(&hosts, name, err);
    return file != NULL ? read_host(file, constants, out, err) : err_status(err);
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
    struct config constants;
    char path[1024];
    const void *const *all = catalogue_all(&hosts, err);
    int status = all == NULL
                     ? err_status(err)
                     : config_read(data_path(path, sizeof path, "experiments/study/calibrated.ini"),
                                   &constants, err);
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; status == 0 && all[i] != NULL; i++) {
        const struct host_file *file = all[i];
        struct host host;
        status = read_host(file, &constants, &host, err);
        status = status == 0 ? each(state, &host, file->doc) : status;
    }
    config_fini(&constants);
    return status;
}
