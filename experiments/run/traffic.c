#include "experiments/run/traffic.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/input/datadir.h"
#include "traces/generate.h"

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

int traffic_open(const char *name, const struct setting *settings, uint32_t n_settings,
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
